//! `lock show`, `lock break` and `lock run`, and writes while somebody else holds the lease.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use harness::{Faults, Proxy, fresh_name};
use rustix::process::{Pid, Signal, kill_process};
use support::server;
use support::shell::{Shell, failure, text};

const STATE: &str = r#"{"completed":{"singer_state":1}}"#;
const PROGRAM: &str = env!("CARGO_BIN_EXE_pipeline-state");

/// `lock run` of a command of the shell that says when it has begun.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(shell: &Shell, options: &[&str], script: &str) -> Running {
        Running::begin(&mut lock_run(shell, options, script))
    }

    fn begin(command: &mut Command) -> Running {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut running = Running { child, out };
        assert_eq!(running.line(), "begun");
        running
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
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

fn lock_run(shell: &Shell, options: &[&str], script: &str) -> Command {
    let script = format!("echo begun; {script}");
    let mut command = Command::new("/usr/bin/env");
    // What the tests were started with may ignore signals (nohup, a shell's background), which a shell can't trap then.
    if cfg!(target_os = "linux") {
        command.arg("--default-signal=HUP,INT,QUIT,TERM,USR1");
    }
    command
        .args([PROGRAM, "lock", "run", "a"])
        .args(options)
        .args(["--", "sh", "-c", &script])
        .env_clear()
        .envs(environment(shell))
        .env("PATH", std::env::var_os("PATH").unwrap());
    command
}

/// One that knows what the shell's commands know.
fn other_program(shell: &Shell, name: &str) -> Command {
    let mut command = Command::new(name);
    command.envs(environment(shell));
    command
}

fn environment(shell: &Shell) -> Vec<(OsString, OsString)> {
    let ours = shell.command(&[]);
    let variables = ours.get_envs();
    variables
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect()
}

/// Processes that write to a file of their own as long as its folder is there, and don't mind being asked to end.
struct Stubborn {
    folder: tempfile::TempDir,
}

impl Stubborn {
    fn new() -> Stubborn {
        let folder = tempfile::tempdir().unwrap();
        Stubborn { folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, name: &str) -> String {
        let file = self.file(name);
        format!(
            "trap \"\" TERM HUP INT; exec > /dev/null 2>&1; while date +%s%N > {}; do sleep 0.05; done",
            file.display()
        )
    }

    /// The command itself, one that it has started, and one that has left it and the session.
    fn family(&self) -> String {
        let [command, child, daemon] = ["command", "child", "daemon"].map(|name| self.script(name));
        format!("(setsid sh -c '{daemon}' &); sh -c '{child}' & {command}")
    }

    fn wait_until_begun(&self) {
        for name in ["command", "child", "daemon"] {
            while !self.file(name).exists() {
                sleep(Duration::from_millis(10));
            }
        }
    }

    /// Whether none of them works on.
    fn has_ended(&self) {
        let read = |file: &Path| std::fs::read(file).unwrap();
        let files = ["command", "child", "daemon"].map(|name| self.file(name));
        let before = files.each_ref().map(|file| read(file));
        sleep(Duration::from_millis(400));
        for (file, before) in files.iter().zip(before) {
            assert_eq!(read(file), before, "{} goes on", file.display());
        }
    }
}

/// The program's way to the server, until it is dropped.
fn network(command: &mut Command) -> Proxy {
    let proxy = Proxy::start(server().address().parse().unwrap(), Faults::none(1)).unwrap();
    let uri = server().uri("default");
    let through = uri.replace(&server().address(), &proxy.address().to_string());
    assert_ne!(uri, through);
    command.env("MELTANO_STATE_BACKEND_URI", through);
    proxy
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
        &["clear", "--all", "--force"],
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
            message.contains(&format!("lock break a {}", words[3])),
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
    let write = format!("{PROGRAM} set a '{STATE}' && {PROGRAM} get a; exit 7");
    let (code, _, out, stderr) = Running::start(&shell, &[], &write).end();
    assert_eq!((code, stderr.as_str()), (Some(7), ""));
    assert_eq!(
        out,
        "{\"completed\": {\"singer_state\":1}, \"partial\": {}}\n"
    );
    // Given back at once.
    let (code, ..) = Running::start(&shell, &[], "exit 0").end();
    assert_eq!(code, Some(0));
    let trap = "trap 'echo hup; exit 3' HUP; sleep 60 >/dev/null 2>&1 & wait";
    let running = Running::start(&shell, &[], trap);
    sleep(Duration::from_millis(300));
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
    // It does not mind the signal at first, and tries to write.
    let script = format!(
        "trap '{PROGRAM} set a \"{{}}\" --force; echo $?; exit 0' TERM; sleep 60 >/dev/null 2>&1 & wait"
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

/// Nothing of it works on when somebody else has the lease.
#[cfg(target_os = "linux")]
#[test]
fn what_does_not_end_when_the_lease_is_lost_is_killed() {
    let shell = Shell::new();
    let stubborn = Stubborn::new();
    let running = Running::start(&shell, &["--ttl", "3s"], &stubborn.family());
    stubborn.wait_until_begun();
    let token = token(&shell);
    // Before it is broken: on a busy machine it may be noticed before `lock break` has ended.
    let start = Instant::now();
    shell.ok(&["lock", "break", "a", &token]);
    let (code, ..) = running.end();
    let waited = start.elapsed();
    assert_eq!(code, Some(16));
    // The grace, and what it takes to notice; they would go on for ever.
    assert!(
        (5..30).contains(&waited.as_secs()),
        "it ended after {waited:?}"
    );
    stubborn.has_ended();
}

/// Who is killed can't release: the next one gets the lease when its time is over, and the command has ended by then.
#[test]
fn a_killed_holder_is_followed_within_the_time_of_its_lease() {
    let shell = Shell::new();
    let stubborn = Stubborn::new();
    let on_linux = cfg!(target_os = "linux");
    let script = match on_linux {
        true => stubborn.family(),
        false => String::from("exec sleep 60"),
    };
    let mut running = Running::start(&shell, &["--ttl", "3s"], &script);
    if on_linux {
        stubborn.wait_until_begun();
    }
    let start = Instant::now();
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let (code, ..) = Running::start(&shell, &["--wait", "30s"], "exit 0").end();
    assert_eq!(code, Some(0));
    let waited = start.elapsed();
    // 3 s after it was renewed last, which was 1 s before it was killed, or more on a busy machine: not at once.
    assert!(
        (Duration::from_millis(500)..Duration::from_secs(8)).contains(&waited),
        "{waited:?}"
    );
    if on_linux {
        stubborn.has_ended();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_was_there_before_is_left_alone() {
    let shell = Shell::new();
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "(while [ -d {} ]; do sleep 0.1; done; echo lives) & \
         exec {PROGRAM} lock run a --ttl 3s -- sh -c 'echo begun; exec sleep 60'",
        folder.path().display()
    );
    let mut command = other_program(&shell, "sh");
    let mut running = Running::begin(command.args(["-c", &script]));
    shell.ok(&["lock", "break", "a", &token(&shell)]);
    running.child.wait().unwrap();
    drop(folder);
    let (code, _, out, _) = running.end();
    assert_eq!((code, out.as_str()), (Some(16), "lives\n"));
}

#[cfg(target_os = "linux")]
#[test]
fn when_the_guard_is_killed_all_ends_and_the_lease_is_given_back() {
    let shell = Shell::new();
    let stubborn = Stubborn::new();
    let script = format!("echo $PPID; {}", stubborn.family());
    let mut running = Running::start(&shell, &[], &script);
    let guard = running.line().parse().ok().and_then(Pid::from_raw);
    stubborn.wait_until_begun();
    kill_process(guard.unwrap(), Signal::KILL).unwrap();
    assert_eq!(running.end().0, Some(128 + 9));
    stubborn.has_ended();
    assert_eq!(shell.ok(&["lock", "show"]), "");
}

#[test]
fn signals_are_for_the_command_alone() {
    let shell = Shell::new();
    let script = "trap 'echo usr1' USR1; trap 'echo int; exit 4' INT; \
        (sleep 1; echo lives) & wait; wait; sleep 60 >/dev/null 2>&1 & wait";
    // Not in the foreground of the terminal that the test may have: what is typed there comes from there.
    let running = Running::begin(lock_run(&shell, &[], script).process_group(0));
    sleep(Duration::from_millis(300));
    running.signal(Signal::USR1);
    sleep(Duration::from_millis(1_500));
    running.signal(Signal::INT);
    let (code, _, out, _) = running.end();
    assert_eq!((code, out.as_str()), (Some(4), "usr1\nlives\nint\n"));
}

#[test]
fn what_is_ignored_is_ignored_by_the_command() {
    let shell = Shell::new();
    let script = format!(
        "trap '' HUP; exec {PROGRAM} lock run a -- sh -c 'echo begun; kill -HUP $$; echo lives'"
    );
    let mut command = other_program(&shell, "sh");
    let (code, _, out, stderr) = Running::begin(command.args(["-c", &script])).end();
    assert_eq!(
        (code, out.as_str(), stderr.as_str()),
        (Some(0), "lives\n", "")
    );
}

/// Ctrl-C comes from the terminal, once, also where the command's input does not.
#[test]
fn what_is_typed_reaches_the_command_once() {
    const TERMINAL: &str = "
import os, pty, signal, sys, time
pid, tty = pty.fork()
if pid == 0:
    os.dup2(os.open('/dev/null', os.O_RDONLY), 0)
    os.execv(sys.argv[1], sys.argv[1:])
shown = b''
while b'begun' not in shown:
    shown += os.read(tty, 1000)
# It is late, so that what it passes on does not become one with what the terminal has sent.
os.kill(pid, signal.SIGSTOP)
os.write(tty, bytes([3]))
time.sleep(0.3)
os.kill(pid, signal.SIGCONT)
try:
    while more := os.read(tty, 1000):
        shown += more
except OSError:
    pass
print(shown.decode().split()[-1], os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";
    const COMMAND: &str = "
import signal, sys, time
interrupts = []
signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
print('begun', flush=True)
end = time.time() + 1.5
while time.time() < end:
    time.sleep(0.05)
print('interrupts', len(interrupts))
sys.exit(5)
";
    if Command::new("python3").arg("-V").output().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let shell = Shell::new();
    let output = other_program(&shell, "python3")
        .args(["-c", TERMINAL, PROGRAM, "lock", "run", "a", "--"])
        .args(["python3", "-c", COMMAND])
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "1 5\n", "{}", text(&output.stderr));
}

/// With nobody to read it, and nowhere to give the lease back to.
#[test]
fn the_exit_code_is_the_commands_whatever_can_not_be_told() {
    let shell = Shell::new();
    let mut command = lock_run(&shell, &[], "sleep 0.5; exit 7");
    let network = network(&mut command);
    let limit = "MELTANO_STATE_BACKEND_CLICKHOUSE_REQUEST_TIMEOUT";
    let mut running = Running::begin(command.env(limit, "1"));
    drop(network);
    drop(running.child.stderr.take());
    assert_eq!(running.end().0, Some(7));
}

#[test]
fn who_does_not_want_to_wait_for_the_release_needs_not() {
    let shell = Shell::new();
    let mut command = lock_run(&shell, &[], "sleep 0.5; exit 7");
    let network = network(&mut command);
    let mut running = Running::begin(&mut command);
    drop(network);
    sleep(Duration::from_secs(2));
    assert_eq!(running.child.try_wait().unwrap(), None);
    let start = Instant::now();
    running.signal(Signal::INT);
    let (code, _, _, stderr) = running.end();
    assert_eq!((code, stderr.as_str()), (Some(7), ""));
    let waited = start.elapsed();
    assert!(waited < Duration::from_secs(5), "{waited:?}");
}

#[test]
fn a_lease_is_of_one_state_of_one_store() {
    let shell = Shell::new();
    let other = fresh_name("suite");
    let elsewhere = format!("--setting schema={other}");
    let script = format!(
        "{PROGRAM} lock run a -- true; echo $?; \
         {PROGRAM} lock run b -- {PROGRAM} set a '{STATE}'; echo $?; \
         {PROGRAM} {elsewhere} set a '{STATE}'; echo $?; \
         {PROGRAM} {elsewhere} set a '{STATE}' --ignore-lock; echo $?; \
         {PROGRAM} {elsewhere} lock run a -- {PROGRAM} {elsewhere} set a '{STATE}'; echo $?"
    );
    let (_, _, out, stderr) = Running::start(&shell, &[], &script).end();
    assert_eq!(out, "2\n16\n16\n0\n0\n", "{stderr}");
    assert!(
        stderr.starts_with("error: this process runs under the lease of `a` already"),
        "{stderr}"
    );

    let set = |origin: &str| {
        shell
            .command(&["set", "a", STATE])
            .env("PIPELINE_STATE_LEASE_ID", "a")
            .env(
                "PIPELINE_STATE_LEASE_TOKEN",
                "0123456789abcdef0123456789abcdef",
            )
            .env("PIPELINE_STATE_LEASE_ORIGIN", origin)
            .output()
            .unwrap()
    };
    let here = format!("http://{}", server().address());
    assert_eq!(failure(&set(&here)).0, 16);
    assert_eq!(set("https://other:8443").status.code(), Some(0));
}

/// Anybody may have chosen the owner and the ID.
#[test]
fn owners_and_ids_do_nothing_to_the_terminal_and_the_shell() {
    let shell = Shell::new();
    let id = "it's\t$(exit 1)\u{1b}[2J";
    let owner = "eve\t1\nb\u{1b}]0;x\u{7}\u{9b}\u{202e}";
    let args = ["lock", "run", id, "--owner", owner, "--", "sh", "-c"];
    let mut command = shell.command(&args);
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let running = Running::begin(command.arg("echo begun; exec sleep 60"));
    let shown = shell.ok(&["lock", "show"]);
    let columns: Vec<&str> = shown.trim_end().split('\t').collect();
    assert_eq!(
        [columns[0], columns[4]],
        [
            r"it's\t$(exit 1)\u{1b}[2J",
            r"eve\t1\nb\u{1b}]0;x\u{7}\u{9b}\u{202e}"
        ],
    );
    assert_eq!((columns.len(), shown.lines().count()), (5, 1));
    let (code, message) = failure(&shell.command(&["delete", id]).output().unwrap());
    assert_eq!(code, 16, "{message}");
    assert!(
        !message.trim_end().contains(char::is_control),
        "{message:?}"
    );
    running.signal(Signal::TERM);
    running.end();

    // What the hint says can be given to a shell.
    let args = ["lock", "run", "it's a", "--", "sh", "-c"];
    let mut command = shell.command(&args);
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let running = Running::begin(command.arg("echo begun; exec sleep 60"));
    let (_, message) = failure(&shell.command(&["delete", "it's a"]).output().unwrap());
    let (_, hint) = message.split_once("end it: pipeline-state ").unwrap();
    let broken = other_program(&shell, "sh")
        .args(["-c", &format!("{PROGRAM} {hint}")])
        .output()
        .unwrap();
    assert_eq!((broken.status.code(), text(&broken.stderr)), (Some(0), ""));
    running.signal(Signal::TERM);
    running.end();
}

#[test]
fn help_says_what_a_lease_is_for() {
    let shell = Shell::new();
    let help = shell.ok(&["lock", "run", "--help"]);
    for word in ["--wait", "--ttl", "--owner", "exit code", "killed"] {
        assert!(help.contains(word), "{help}");
    }
    let help = shell.ok(&["lock", "--help"]);
    assert!(!help.contains("exec") && !help.contains("guard"), "{help}");
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
