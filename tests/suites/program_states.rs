//! The program's commands on states: what replaces and deletes, asks, merges, copies, edits and compares.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::fs;
use std::process::Output;

use support::shell::{Shell, at_a_terminal, failure, text};

const ONE: &str = r#"{"completed":{"singer_state":{"n":1}}}"#;
const TWO: &str = r#"{"completed":{"singer_state":{"n":2}}}"#;

fn get(shell: &Shell, id: &str) -> String {
    shell.ok(&["get", id]).trim_end().to_owned()
}

fn completed(document: &str) -> String {
    format!("{{\"completed\": {document}, \"partial\": {{}}}}")
}

fn fails(shell: &Shell, args: &[&str]) -> (i32, String) {
    failure(&shell.command(args).output().unwrap())
}

#[test]
fn a_state_that_is_there_is_replaced_by_force_alone() {
    let shell = Shell::new();
    shell.ok(&["set", "a", ONE]);
    // What is stored already replaces nothing.
    shell.ok(&["set", "a", ONE]);
    let printed = shell.ok(&["get", "a"]);
    shell.ok(&["set", "a", &printed]);
    let (code, message) = fails(&shell, &["set", "a", TWO]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("replaces the state `a`") && message.contains("--force"));
    assert_eq!(get(&shell, "a"), completed(r#"{"singer_state":{"n":1}}"#));
    shell.ok(&["set", "a", TWO, "--force"]);
    assert_eq!(get(&shell, "a"), completed(r#"{"singer_state":{"n":2}}"#));
}

#[test]
fn what_meltano_would_not_read_is_refused_and_its_own_form_is_taken() {
    let shell = Shell::new();
    for (state, document) in [
        (r#"{"completed":{"bookmarks":{}}}"#, "completed"),
        (
            r#"{"completed":{"singer_state":{}},"partial":{"x":1}}"#,
            "partial",
        ),
    ] {
        let (code, message) = fails(&shell, &["set", "a", state]);
        assert_eq!(code, 2);
        assert!(message.contains(&format!("the {document} document has no `singer_state`")));
        shell.ok(&["set", document, state, "--no-validate"]);
    }
    // As Meltano takes it, alone, where nobody looks at what it is.
    assert_eq!(fails(&shell, &["set", "a", r#"{"x": 1}"#]).0, 2);
    shell.ok(&["set", "alone", r#"{"x": 1}"#, "--no-validate"]);
    assert_eq!(get(&shell, "alone"), completed(r#"{"x": 1}"#));
    shell.ok(&["merge", "alone", r#"{"y": 2}"#, "--no-validate"]);
    assert_eq!(
        shell.ok(&["get", "--merged", "alone"]),
        "{\"x\": 1, \"y\": 2}\n"
    );
    shell.ok(&["set", "empty", "{}"]);
    shell.ok(&[
        "set",
        "a",
        r#"{"singer_state": {"n": 18446744073709551617}}"#,
    ]);
    assert_eq!(
        get(&shell, "a"),
        completed(r#"{"singer_state": {"n": 18446744073709551617}}"#)
    );
}

#[cfg(unix)]
#[test]
fn a_person_is_asked() {
    let shell = Shell::new();
    shell.ok(&["set", "a", ONE]);
    let (code, shown) = at_a_terminal(&shell, &["set", "a", TWO], &["what?", "n"], "");
    assert_eq!(code, 1);
    assert!(
        shown.contains("This replaces the state `a`. Go on? [y/N] n"),
        "{shown}"
    );
    assert!(shown.ends_with("error: nothing was done\n"), "{shown}");
    let (code, shown) = at_a_terminal(&shell, &["set", "a", TWO], &["y"], "");
    assert_eq!(code, 0, "{shown}");
    assert_eq!(get(&shell, "a"), completed(r#"{"singer_state":{"n":2}}"#));
    let (code, shown) = at_a_terminal(&shell, &["clear", "--pattern", "a*"], &[""], "");
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("This deletes the state `a`"), "{shown}");
    let (code, shown) = at_a_terminal(&shell, &["clear", "a"], &["yes"], "");
    assert_eq!(code, 0, "{shown}");
    assert_eq!(fails(&shell, &["get", "a"]).0, 3);
}

/// Between the question and the answer.
#[cfg(unix)]
#[test]
fn what_was_written_since_it_was_asked_is_not_replaced() {
    let shell = Shell::new();
    shell.ok(&["set", "a", ONE]);
    let folder = tempfile::tempdir().unwrap();
    let editor = folder.path().join("editor.sh");
    let set = env!("CARGO_BIN_EXE_pipeline-state");
    fs::write(
        &editor,
        format!("{set} set a '{TWO}' --force; sed -i 's/: 1/: 3/' \"$1\""),
    )
    .unwrap();
    let editor = format!("sh {}", editor.display());
    let (code, shown) = at_a_terminal(&shell, &["edit", "a"], &[], &editor);
    assert_eq!(code, 15, "{shown}");
    assert!(
        shown.contains("-      \"n\": 1\n+      \"n\": 2\n"),
        "{shown}"
    );
    let (_, kept) = shown
        .trim_end()
        .split_once("what you wrote is in ")
        .unwrap();
    assert!(fs::read_to_string(kept).unwrap().contains("\"n\": 3"));
    fs::remove_file(kept).unwrap();
    assert_eq!(get(&shell, "a"), completed(r#"{"singer_state":{"n":2}}"#));
}

fn edit(shell: &Shell, id: &str, editor: &str) -> Output {
    shell
        .command(&["edit", id, "--json"])
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("VISUAL", editor)
        .output()
        .unwrap()
}

#[cfg(unix)]
#[test]
fn a_state_is_edited_and_what_is_not_touched_keeps_its_bytes() {
    let shell = Shell::new();
    let state = r#"{"completed":{"singer_state":{"n":1}},"partial":{"singer_state":  {"x":1.0}}}"#;
    shell.ok(&["set", "a", state]);
    let output = edit(
        &shell,
        "a",
        "sed -i 's/\"n\": 1/\"n\": 18446744073709551617/'",
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).starts_with(r#"{"id":"a","version":"1"#));
    let after = "{\"completed\": {\"singer_state\": {\"n\": 18446744073709551617}}, \"partial\": {\"singer_state\":  {\"x\":1.0}}}";
    assert_eq!(get(&shell, "a"), after);

    // Nothing, and what does not count.
    for editor in ["true", "sed -i 's/^ *//'"] {
        let output = edit(&shell, "a", editor);
        assert_eq!(
            (
                output.status.code(),
                text(&output.stdout),
                text(&output.stderr)
            ),
            (Some(0), "", "nothing was changed\n")
        );
    }
    // What can't be read is kept.
    for (editor, why) in [
        ("sed -i s/{/[/", "not a state"),
        ("sed -i s/singer_state/x/", "singer_state"),
    ] {
        let (code, message) = failure(&edit(&shell, "a", editor));
        assert_eq!(code, 2, "{message}");
        assert!(message.contains(why), "{message}");
        let (_, kept) = message
            .trim_end()
            .split_once("what you wrote is in ")
            .unwrap();
        fs::remove_file(kept).unwrap();
    }
    let (code, message) = failure(&edit(&shell, "a", "false"));
    assert_eq!(code, 1, "{message}");
    assert_eq!(get(&shell, "a"), after);

    // A new one.
    let editor = "sed -i 's/\"completed\": {}/\"completed\": {\"singer_state\": {}}/'";
    assert_eq!(edit(&shell, "new", editor).status.code(), Some(0));
    assert_eq!(get(&shell, "new"), completed(r#"{"singer_state": {}}"#));
}

#[cfg(unix)]
#[test]
fn who_made_a_mistake_may_edit_again() {
    let shell = Shell::new();
    shell.ok(&["set", "a", ONE]);
    // The first time it breaks it, the second time it mends it.
    let editor = "sh -c 'if grep -q \"n.: 1\" \"$1\"; then sed -i \"s/: 1/: x/\" \"$1\"; else sed -i \"s/: x/: 2/\" \"$1\"; fi' sh";
    let (code, shown) = at_a_terminal(&shell, &["edit", "a"], &["y"], editor);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("Edit it again? [Y/n]"), "{shown}");
    assert_eq!(get(&shell, "a"), completed(r#"{"singer_state": {"n": 2}}"#));
}

#[test]
fn merging_follows_meltano() {
    let shell = Shell::new();
    shell.ok(&[
        "set",
        "a",
        r#"{"completed":{"singer_state":{"x":{"n":1},"l":[1]}}}"#,
    ]);
    shell.ok(&["merge", "a", r#"{"singer_state":{"x":{"m":2}}}"#]);
    shell.ok(&["merge", "a", r#"{"completed":{"singer_state":{"l":[2]}}}"#]);
    assert_eq!(
        get(&shell, "a"),
        r#"{"completed": {"singer_state": {"x": {"n":1}, "l": [2]}}, "partial": {"singer_state":{"x":{"m":2}}}}"#
    );
    // What the next run reads, as `meltano state get` prints it, and what another state gets of it.
    let merged = r#"{"singer_state": {"x": {"n": 1, "m": 2}, "l": [2]}}"#;
    assert_eq!(shell.ok(&["get", "a", "--merged"]).trim_end(), merged);
    shell.ok(&["merge", "b", "--from-state-id", "a"]);
    assert_eq!(
        get(&shell, "b"),
        format!("{{\"completed\": {{}}, \"partial\": {merged}}}")
    );
    let (code, message) = fails(
        &shell,
        &["merge", "a", r#"{"completed":{"singer_state":{"l":{}}}}"#],
    );
    assert_eq!(code, 2);
    assert!(message.contains("`singer_state.l`"), "{message}");
    assert_eq!(
        fails(&shell, &["merge", "a", "--from-state-id", "none"]).0,
        3
    );
    assert_eq!(
        fails(&shell, &["merge", "a", r#"{"partial":{"x":1}}"#]).0,
        2
    );
}

/// Each adds a member of its own to both documents.
#[test]
fn merges_at_the_same_moment_all_count() {
    let shell = Shell::new();
    let writers: Vec<_> = (0..6)
        .map(|n| {
            let added = format!(r#"{{"completed":{{"singer_state":{{"m{n}":{n}}}}}}}"#);
            shell.command(&["merge", "a", &added]).spawn().unwrap()
        })
        .collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let state = get(&shell, "a");
    for n in 0..6 {
        assert!(state.contains(&format!("\"m{n}\":")), "{state}");
    }
}

#[test]
fn a_state_is_copied_and_moved_with_both_documents() {
    let shell = Shell::new();
    let state = r#"{"completed":{"singer_state":{"n":1.0}},"partial":{"singer_state":{"m":2}}}"#;
    shell.ok(&["set", "a", state]);
    shell.ok(&["copy", "a", "b"]);
    shell.ok(&["move", "b", "c"]);
    assert_eq!(get(&shell, "c"), get(&shell, "a"));
    assert_eq!(fails(&shell, &["get", "b"]).0, 3);
    shell.ok(&["set", "d", ONE]);
    for command in ["copy", "move"] {
        assert_eq!(fails(&shell, &[command, "a", "d"]).0, 2);
        assert_eq!(fails(&shell, &[command, "a", "a", "--force"]).0, 2);
        assert_eq!(fails(&shell, &[command, "none", "e"]).0, 3);
    }
    assert_eq!(get(&shell, "d"), completed(r#"{"singer_state":{"n":1}}"#));
    shell.ok(&["move", "--force", "a", "d"]);
    assert_eq!(get(&shell, "d"), get(&shell, "c"));
    assert_eq!(shell.ok(&["list"]), "c\nd\n");
}

#[test]
fn what_matches_is_cleared_and_nothing_else() {
    let shell = Shell::new();
    for id in ["dev:a", "dev:b", "prod:a"] {
        shell.ok(&["set", id, ONE]);
    }
    assert_eq!(fails(&shell, &["clear", "--pattern", "dev:*"]).0, 2);
    let output = shell
        .command(&["clear", "--pattern", "dev:*", "--force", "--json"])
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "{\"deleted\":2}\n");
    assert_eq!(shell.ok(&["list"]), "prod:a\n");
    assert_eq!(shell.ok(&["--quiet", "clear", "--all", "--force"]), "");
    assert_eq!(shell.ok(&["list"]), "");
    for wrong in [
        &["clear"][..],
        &["clear", "a", "--all"],
        &["clear", "a", "--pattern", "x"],
    ] {
        assert_eq!(
            shell.command(wrong).output().unwrap().status.code(),
            Some(2)
        );
    }
}

#[test]
fn what_has_changed_is_shown() {
    let shell = Shell::new();
    let on = ["--setting", "history=true"];
    let run = |args: &[&str]| shell.ok(&[&on[..], args].concat());
    run(&["set", "a", ONE]);
    run(&["set", "a", TWO, "--force"]);
    let changed = "-      \"n\": 1\n+      \"n\": 2\n";
    let diff = run(&["diff", "a"]);
    assert!(
        diff.contains(changed) && diff.starts_with("--- 1"),
        "{diff}"
    );
    let history = run(&["history", "a"]);
    let versions: Vec<&str> = history
        .lines()
        .map(|line| line.split('\t').next().unwrap())
        .collect();
    assert!(run(&["diff", "a", versions[1]]).contains(changed));
    assert!(run(&["diff", "a", versions[1], versions[0]]).contains(changed));
    assert_eq!(run(&["diff", "a", versions[0]]), "");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.json");
    fs::write(&file, ONE).unwrap();
    let diff = shell.ok(&["diff", "a", file.to_str().unwrap()]);
    assert!(
        diff.contains("-      \"n\": 2\n+      \"n\": 1\n"),
        "{diff}"
    );
    assert_eq!(
        failure(
            &shell
                .command(&[&on[..], &["diff", "a", "7"]].concat())
                .output()
                .unwrap()
        )
        .0,
        3
    );
}

#[test]
fn who_mistypes_an_id_is_told_what_there_is() {
    let shell = Shell::new();
    shell.ok(&["set", "dev:tap-github-to-target-jsonl", ONE]);
    let (code, message) = fails(&shell, &["get", "dev:tap-githbu-to-target-jsonl"]);
    assert_eq!(code, 3);
    assert!(
        message.contains("did you mean `dev:tap-github-to-target-jsonl`?"),
        "{message}"
    );
    let (_, message) = fails(&shell, &["get", "prod:nothing-of-the-kind"]);
    assert!(!message.contains("did you mean"), "{message}");
}
