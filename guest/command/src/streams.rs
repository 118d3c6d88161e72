//! The three streams of a command.

use crate::bindings::wasi::cli::{stderr, stdin, stdout};
use crate::bindings::wasi::io::error::Error;
use crate::bindings::wasi::io::streams::{OutputStream, StreamError};
use crate::failure::{Code, Failure, plain};

/// What one `blocking-write-and-flush` takes.
const LARGEST_WRITE: usize = 4096;
const LARGEST_READ: u64 = 1 << 16;

/// Why a command ended early.
pub(crate) enum End {
    Failed(Failure),
    /// The reader of a pipe has seen enough.
    Closed,
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(failure)
    }
}

/// Data goes to stdout, everything else to stderr.
pub(crate) struct Output {
    out: OutputStream,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool) -> Output {
        Output {
            out: stdout::get_stdout(),
            json,
            quiet,
        }
    }

    pub(crate) fn write(&self, text: &str) -> Result<(), End> {
        write(&self.out, text).map_err(|error| match error {
            StreamError::Closed => End::Closed,
            StreamError::LastOperationFailed(error) => {
                End::Failed(Failure::new(Code::Failed, reason(&error)))
            }
        })
    }

    pub(crate) fn line(&self, text: &str) -> Result<(), End> {
        self.write(&format!("{text}\n"))
    }

    /// A result that is one object with `--json`, and else a sentence on stderr.
    pub(crate) fn result(&self, object: &serde_json::Value, sentence: &str) -> Result<(), End> {
        match (self.json, self.quiet) {
            (true, _) => self.line(&object.to_string()),
            (false, false) => {
                tell(&plain(sentence));
                Ok(())
            }
            (false, true) => Ok(()),
        }
    }

    /// What was written: nothing for people, who know what they asked for.
    pub(crate) fn written(&self, id: &str, version: u64) -> Result<(), End> {
        match self.json {
            true => {
                let object = serde_json::json!({"id": id, "version": version.to_string()});
                self.line(&object.to_string())
            }
            false => Ok(()),
        }
    }
}

/// Runtimes add to it where in themselves it happened.
fn reason(error: &Error) -> String {
    let text = error.to_debug_string();
    text.lines().next().unwrap_or_default().to_owned()
}

/// A line on stderr. Where that is closed there is nobody to tell.
pub(crate) fn tell(line: &str) {
    let _ = write(&stderr::get_stderr(), &format!("{line}\n"));
}

fn write(stream: &OutputStream, text: &str) -> Result<(), StreamError> {
    text.as_bytes()
        .chunks(LARGEST_WRITE)
        .try_for_each(|chunk| stream.blocking_write_and_flush(chunk))
}

/// All of stdin.
pub(crate) fn read() -> Result<String, Failure> {
    let stream = stdin::get_stdin();
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(LARGEST_READ) {
            Ok(piece) => bytes.extend(piece),
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(Failure::new(
                    Code::Failed,
                    format!("stdin: {}", reason(&error)),
                ));
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage("stdin is no UTF-8 text"))
}
