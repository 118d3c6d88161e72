//! How much memory processes have, as Linux tells.

use std::fs;
use std::io;

/// What of a process's memory is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// What it has now, not counting what it has set aside (`VmRSS`).
    Resident,
    /// The most that it has had (`VmHWM`).
    Peak,
}

impl Memory {
    /// Of a process, or of this one where none is named, in KiB.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use harness::Memory;
    /// assert!(Memory::Resident.kib(None)? <= Memory::Peak.kib(None)?);
    /// # }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Where there is no such process any more, or no `/proc`.
    pub fn kib(self, process: Option<u32>) -> io::Result<usize> {
        let process = process.map_or_else(|| String::from("self"), |id| id.to_string());
        let path = format!("/proc/{process}/status");
        let name = match self {
            Memory::Resident => "VmRSS:",
            Memory::Peak => "VmHWM:",
        };
        fs::read_to_string(&path)?
            .lines()
            .find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
            .and_then(|kib| kib.parse().ok())
            .ok_or_else(|| io::Error::other(format!("{path} does not tell {name}")))
    }
}
