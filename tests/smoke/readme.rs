//! What the README shows of `wasmtime run`, typed into a shell.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use harness::workspace;

use crate::{Schema, components, server};

/// The URI that a reader has from `cargo dev clickhouse`.
const URI: &str = "clickhouse://app:secret@127.0.0.1:8123/meltano";
/// How many digits a version has, and a time in milliseconds.
const DIGITS: [usize; 2] = [19, 13];

#[test]
fn what_the_readme_shows_is_what_happens() {
    let schema = Schema::new();
    let uri = format!("{}?schema={}", server().uri("meltano"), schema.0);
    let text = fs::read_to_string(workspace().join("README.md")).unwrap();
    let section = text.split("\n## `wasmtime run`\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let shown: String = section
        .split("```console\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(shown.matches("--invoke").count() > 1);

    // Each command is printed before it runs, as a terminal shows it.
    let mut script = String::from("shopt -s expand_aliases\n");
    for command in shown.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let quoted = command.replace('\'', r"'\''");
        let command = command.replace(URI, &uri);
        writeln!(
            script,
            "s=$?; printf '$ %s\\n' '{quoted}'; (exit $s)\n{command}"
        )
        .unwrap();
    }
    let wasmtime = harness::wasmtime().unwrap().parent().unwrap();
    let path = format!("{}:{}", wasmtime.display(), std::env::var("PATH").unwrap());
    let folder = workspace().join("target/smoke/readme");
    fs::create_dir_all(&folder).unwrap();
    let files = components();
    fs::copy(&files.plugin, folder.join("clickhouse.wasm")).unwrap();
    fs::copy(
        &files.command,
        folder.join("pipeline-state-clickhouse.wasm"),
    )
    .unwrap();
    let output = Command::new("bash")
        .args(["-c", &format!("exec 2>&1\n{script}")])
        .current_dir(folder)
        .env("PATH", path)
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(masked(&printed), masked(&shown));
}

/// The same with each version and each time as `N`.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    let time = |word: &str| word.starts_with("20") && word.ends_with('Z') && word.contains('T');
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && !"-:.".contains(c)) {
        let stem = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let number = DIGITS.contains(&stem.len()) && stem.chars().all(|c| c.is_ascii_digit());
        match number || time(stem) {
            true => masked.extend(["N", word.strip_prefix(stem).unwrap()]),
            false => masked.push_str(word),
        }
    }
    masked
}
