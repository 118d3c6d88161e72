//! `lock show`, `lock break` and `lock run`, and writes while somebody else holds the lease.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::shell::{Shell, failure, text};

const STATE: &str = r#"{"completed":{"a":1}}"#;

/// `lock run` of a command of the shell that says when it has begun.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(shell: &Shell, options: &[&str], script: &str) -> Running {
        let script = format!("echo begun; {script}");
        let mut args = vec!["lock", "run", "a"];
        args.extend(options);
        args.extend(["--", "sh", "-c", &script]);
        let mut command = shell.command(&args);
        let mut child = command
            .env("PATH", std::env::var_os("PATH").unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        Running { child, out }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The exit code or the signal, the rest of the output, and stderr.
    fn end(mut self) -> (Option<i32>, Option<i32>, String, String) {
        let output = self.child.wait_with_output().unwrap();
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.out, &mut rest).unwrap();
        let stderr = text(&output.stderr).to_owned();
        (output.status.code(), output.status.signal(), rest, stderr)
    }
}

fn token(shell: &Shell) -> String {
    let shown = shell.ok(&["lock", "show", "a"]);
    shown
        .split('\t')
        .nth(3)
        .unwrap_or_else(|| panic!("{shown:?}"))
        .to_owned()
}

#[test]
fn while_a_command_holds_the_lease_others_are_told_who_it_is() {
    let shell = Shell::new();
    shell.ok(&["set", "a", STATE]);
    let running = Running::start(&shell, &["--owner", "nightly"], "exec sleep 60");
    let shown = shell.ok(&["lock", "show"]);
    let words: Vec<&str> = shown.trim_end().split('\t').collect();
    assert_eq!((words.len(), words[0], words[4]), (5, "a", "nightly"));
    assert_eq!(shell.ok(&["lock", "show", "b*"]), "");

    let writes: [&[&str]; 5] = [
        &["set", "a", STATE],
        &["delete", "a"],
        &["restore", "a", "1"],
        &["clear", "--force"],
        &["lock", "run", "a", "--wait", "100ms", "--", "true"],
    ];
    for args in writes {
        let (code, message) = failure(&shell.command(args).output().unwrap());
        assert_eq!(code, 16, "{message}");
        assert!(
            message.contains("`a` is locked by nightly since 2"),
            "{message}"
        );
        assert!(
            message.contains(&format!("lock break 'a' {}", words[3])),
            "{message}"
        );
    }
    // Another state is free, and so is who means it.
    shell.ok(&["set", "b", STATE]);
    shell.ok(&["set", "a", STATE, "--ignore-lock"]);

    running.signal(Signal::TERM);
    let (code, _, _, stderr) = running.end();
    assert_eq!((code, stderr.as_str()), (Some(128 + 15), ""));
    assert_eq!(shell.ok(&["lock", "show"]), "");
}

#[test]
fn a_command_ends_as_it_does_without_the_lock_and_may_write_its_state() {
    let shell = Shell::new();
    let program = env!("CARGO_BIN_EXE_pipeline-state");
    let write = format!("{program} set a '{STATE}' && {program} get a; exit 7");
    let (code, _, out, stderr) = Running::start(&shell, &[], &write).end();
    assert_eq!((code, stderr.as_str()), (Some(7), ""));
    assert_eq!(out, "{\"completed\": {\"a\":1}, \"partial\": {}}\n");
    // Given back at once.
    let (code, ..) = Running::start(&shell, &[], "exit 0").end();
    assert_eq!(code, Some(0));
    let trap = "trap 'echo hup; exit 3' HUP; sleep 60 >/dev/null 2>&1 & wait";
    let running = Running::start(&shell, &[], trap);
    std::thread::sleep(Duration::from_millis(300));
    running.signal(Signal::HUP);
    let (code, _, out, _) = running.end();
    assert_eq!((code, out.as_str()), (Some(3), "hup\n"));
    let (code, message) = failure(
        &shell
            .command(&["lock", "run", "a", "--", "/no/such/command"])
            .output()
            .unwrap(),
    );
    assert_eq!(code, 127, "{message}");
    assert!(message.contains("/no/such/command"), "{message}");
}

#[test]
fn a_command_whose_lease_is_broken_is_stopped_and_can_not_write() {
    let shell = Shell::new();
    let program = env!("CARGO_BIN_EXE_pipeline-state");
    // It does not mind the signal at first, and tries to write.
    let script = format!(
        "trap '{program} set a \"{{}}\"; echo $?; exit 0' TERM; sleep 60 >/dev/null 2>&1 & wait"
    );
    let running = Running::start(&shell, &["--ttl", "3s"], &script);
    let token = token(&shell);
    let (code, message) = failure(
        &shell
            .command(&["lock", "break", "a", "other"])
            .output()
            .unwrap(),
    );
    assert_eq!(code, 3, "{message}");
    assert_eq!(shell.ok(&["lock", "break", "a", &token]), "");
    let start = Instant::now();
    let (code, _, out, stderr) = running.end();
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "{:?}",
        start.elapsed()
    );
    assert_eq!((code, out.as_str()), (Some(16), "16\n"));
    assert!(
        stderr.contains("the lease is lost") && stderr.contains("stopping the command"),
        "{stderr}"
    );
    assert_eq!(
        failure(&shell.command(&["get", "a"]).output().unwrap()).0,
        3
    );
}

/// Who is killed can't release: the next one gets the lease when its time is over, and the command has ended by then.
#[test]
fn a_killed_holder_is_followed_within_the_time_of_its_lease() {
    let shell = Shell::new();
    let folder = tempfile::tempdir().unwrap();
    let alive = folder.path().join("alive");
    let script = format!(
        "while true; do date +%s%N > {}; sleep 0.05; done",
        alive.display()
    );
    let mut running = Running::start(&shell, &["--ttl", "3s"], &script);
    while !alive.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let start = Instant::now();
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let (code, ..) = Running::start(&shell, &["--wait", "30s"], "exit 0").end();
    assert_eq!(code, Some(0));
    let waited = start.elapsed();
    assert!(waited < Duration::from_millis(4_500), "{waited:?}");
    if cfg!(target_os = "linux") {
        let last = std::fs::read(&alive).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(
            std::fs::read(&alive).unwrap(),
            last,
            "the command goes on without its holder"
        );
    }
}

#[test]
fn help_says_what_a_lease_is_for() {
    let shell = Shell::new();
    let help = shell.ok(&["lock", "run", "--help"]);
    for word in ["--wait", "--ttl", "--owner", "exit code"] {
        assert!(help.contains(word), "{help}");
    }
    let help = shell.ok(&["lock", "--help"]);
    assert!(!help.contains("exec"), "{help}");
    for (args, code) in [
        (vec!["lock", "run", "a"], 2),
        (vec!["lock", "run", "a", "--ttl", "1s", "--", "true"], 2),
    ] {
        assert_eq!(
            shell.command(&args).output().unwrap().status.code(),
            Some(code),
            "{args:?}"
        );
    }
}
