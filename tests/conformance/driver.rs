//! A driver: a process that gets a request on a line, and answers on a line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;

/// Much longer than a call of any case takes.
const LONGEST_ANSWER: Duration = Duration::from_secs(60);

/// A running driver. It ends when it is dropped.
pub(crate) struct Driver {
    child: Child,
    /// None once it is to end.
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Driver {
    pub(crate) fn start(command: &mut Command) -> Result<Driver, String> {
        let program = command.get_program().to_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.to_string_lossy()))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the driver has no pipes".to_owned());
        };
        let (told, answers) = channel();
        // So that one that hangs can be waited for, and for so long.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if told.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Driver {
            child,
            stdin: Some(stdin),
            answers,
        })
    }

    pub(crate) fn ask(&mut self, request: &Value) -> Result<Value, String> {
        let gone = |why: &dyn std::fmt::Display| format!("the driver has ended: {why}");
        let stdin = self.stdin.as_mut().ok_or("the driver was told to end")?;
        writeln!(stdin, "{request}").map_err(|error| gone(&error))?;
        match self.answers.recv_timeout(LONGEST_ANSWER) {
            Ok(line) => serde_json::from_str(&line)
                .map_err(|error| format!("the driver's answer is no JSON: {error}: {line}")),
            Err(RecvTimeoutError::Disconnected) => Err(gone(&"it closed its output")),
            Err(RecvTimeoutError::Timeout) => Err(format!(
                "the driver did not answer within {} s",
                LONGEST_ANSWER.as_secs()
            )),
        }
    }

    /// Ends it as the protocol has it, and says what was wrong with that.
    pub(crate) fn end(mut self) -> Result<(), String> {
        self.stdin.take();
        // Its output ends when it does.
        match self.answers.recv_timeout(LONGEST_ANSWER) {
            Err(RecvTimeoutError::Disconnected) => {}
            Err(RecvTimeoutError::Timeout) => {
                return Err("the driver did not end with its input".to_owned());
            }
            Ok(line) => return Err(format!("the driver said more than it was asked: {line}")),
        }
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the driver ended with {status}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // One that has ended already needs neither.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
