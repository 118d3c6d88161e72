//! The program in a shell of its own.

use std::process::{Command, Output, Stdio};

use harness::fresh_name;

use super::server;

/// A clean environment, so that the machine's own settings change nothing.
pub fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pipeline-state"));
    command.args(args).env_clear();
    if let Some(home) = std::env::var_os("HOME") {
        command.env("HOME", home);
    }
    command
}

/// A program that knows the server, and a schema of its own.
pub struct Shell {
    pub schema: String,
}

impl Shell {
    pub fn new() -> Shell {
        Shell {
            schema: fresh_name("suite"),
        }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = program(args);
        command
            .env("MELTANO_STATE_BACKEND_URI", server().uri("default"))
            .env("MELTANO_STATE_BACKEND_CLICKHOUSE_SCHEMA", &self.schema);
        command
    }

    /// Runs a command that must succeed and returns what it prints.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(0), ""),
            "{args:?}"
        );
        text(&output.stdout).to_owned()
    }
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// What every failure looks like: one line on stderr, nothing on stdout, no panic.
pub fn failure(output: &Output) -> (i32, String) {
    let stderr = text(&output.stderr);
    assert_eq!(text(&output.stdout), "", "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("error: "), "{stderr}");
    (output.status.code().unwrap(), stderr.to_owned())
}

/// A command that is typed at a terminal, and the answers to its questions. It prints all that the terminal shows, and its last line is
/// the exit code.
#[cfg(unix)]
pub fn at_a_terminal(
    shell: &Shell,
    args: &[&str],
    answers: &[&str],
    editor: &str,
) -> (i32, String) {
    const TERMINAL: &str = "
import os, pty, sys
answers = sys.argv[1].split('|')
pid, tty = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
shown = b''
try:
    while more := os.read(tty, 10000):
        shown += more
        if shown.endswith((b'N] ', b'n] ')) and answers:
            os.write(tty, answers.pop(0).encode() + b'\\n')
except OSError:
    pass
sys.stdout.write(shown.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";
    let of = shell.command(args);
    let output = Command::new("python3")
        .args(["-c", TERMINAL, &answers.join("|")])
        .arg(of.get_program())
        .args(of.get_args())
        .envs(
            of.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("EDITOR", editor)
        .env_remove("VISUAL")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let code = output.status.code().unwrap();
    (code, text(&output.stdout).replace("\r\n", "\n"))
}
