//! Running programs in the open: each command is shown before it runs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::workspace;

/// What a finished command said.
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A command of this workspace's cargo, in the root of it.
pub(crate) fn cargo(args: &[&str]) -> Command {
    // cargo names itself to what it runs.
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(args).current_dir(workspace());
    forget_this_tool(&mut cargo);
    cargo
}

/// Builds programs of the workspace as `cargo test` builds them. One package alone has other features, or it has them without the
/// development dependencies, which an example asks for: then the WebAssembly engine is compiled once more.
pub(crate) fn build(programs: &[&str]) -> Result<(), String> {
    let mut build = cargo(&["build", "--locked", "--workspace", "--example", "driver"]);
    build.args(programs.iter().flat_map(|program| ["--bin", program]));
    step(&mut build)
}

/// `cargo run` describes this tool to it in variables that build scripts of others watch (ring's, for one): with them, each
/// change between `cargo dev` and a plain cargo would build those crates again.
pub(crate) fn forget_this_tool(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// Shows a command, runs it with its output left to the terminal, and says how long it took.
pub(crate) fn step(command: &mut Command) -> Result<(), String> {
    let shown = shown(command);
    println!("$ {shown}");
    let start = Instant::now();
    let status = command
        .status()
        .map_err(|error| format!("{shown}: {error}"))?;
    if !status.success() {
        return Err(format!("{shown}: {status}"));
    }
    println!("  ({:.1} s)", start.elapsed().as_secs_f64());
    Ok(())
}

/// Runs a command and keeps what it prints.
pub(crate) fn capture(command: &mut Command) -> Result<Output, String> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{shown}: {error}"))?;
    Ok(Output {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Runs a command, and ends it when it takes longer than `limit`.
pub(crate) fn within(limit: Duration, command: &mut Command) -> Result<(), String> {
    let shown = shown(command);
    println!("$ {shown}");
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    let mut child = command.spawn().map_err(failed)?;
    let start = Instant::now();
    loop {
        match child.try_wait().map_err(failed)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("{shown}: {status}")),
            None if start.elapsed() > limit => {
                child.kill().and_then(|()| child.wait()).map_err(failed)?;
                return Err(format!("{shown}: not done within {} s", limit.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// A command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![
        program
            .file_name()
            .unwrap_or(program.as_os_str())
            .to_string_lossy()
            .into_owned(),
    ];
    words.extend(command.get_args().map(|arg| quoted(&arg.to_string_lossy())));
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_so_that_it_can_be_typed_again() {
        let mut command = Command::new("/usr/bin/echo");
        command.args(["plain-word", "two words", "it's", "", "dev:*"]);
        assert_eq!(
            shown(&command),
            r"echo plain-word 'two words' 'it'\''s' '' 'dev:*'"
        );
    }

    #[test]
    fn a_command_that_hangs_is_ended() {
        let late = within(Duration::from_millis(100), Command::new("sleep").arg("60"));
        assert!(late.unwrap_err().contains("not done within"));
    }
}
