//! Questions before something is replaced or deleted. Where nobody can answer, `--force` must have been said.

use std::io::{self, BufRead, IsTerminal, Write};

use super::failure::{Failure, plain};

/// Whether a person is there to be asked.
pub(super) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Goes on where the answer is yes. `what` is a sentence, like `This deletes 3 states`.
pub(super) fn before(what: &str, force: bool) -> Result<(), Failure> {
    if force {
        return Ok(());
    }
    if !is_interactive() {
        return Err(Failure::NotForced(what.to_owned()));
    }
    match yes(&format!("{what}. Go on?"), false)? {
        true => Ok(()),
        false => Err(Failure::Declined),
    }
}

/// The answer to a question; `default` where it is left empty.
pub(super) fn yes(question: &str, default: bool) -> Result<bool, Failure> {
    let choice = if default { "[Y/n]" } else { "[y/N]" };
    loop {
        let mut err = io::stderr().lock();
        write!(err, "{} {choice} ", plain(question))?;
        err.flush()?;
        let mut answer = String::new();
        if io::stdin().lock().read_line(&mut answer)? == 0 {
            writeln!(err)?;
            return Ok(false);
        }
        match answer.trim().to_ascii_lowercase().as_str() {
            "" => return Ok(default),
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => {}
        }
    }
}
