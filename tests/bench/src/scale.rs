//! How much is measured.

use std::time::Duration;

use crate::Failure;

const QUICK_ARGUMENT: &str = "--quick";
const QUICK_VARIABLE: &str = "PIPELINE_STATE_BENCH_QUICK";

#[derive(Clone, Copy)]
pub(crate) struct Scale {
    quick: bool,
}

impl Scale {
    /// By the arguments and the environment of this process.
    pub(crate) fn from_process() -> Result<Scale, Failure> {
        let mut quick = std::env::var(QUICK_VARIABLE).is_ok_and(|value| value == "1");
        for argument in std::env::args().skip(1) {
            if argument != QUICK_ARGUMENT {
                return Err(format!(
                    "there is no argument `{argument}`; there is {QUICK_ARGUMENT}, and the same as {QUICK_VARIABLE}=1"
                )
                .into());
            }
            quick = true;
        }
        Ok(Scale { quick })
    }

    pub(crate) fn is_quick(self) -> bool {
        self.quick
    }

    pub(crate) fn rounds(self, full: usize) -> usize {
        match self.quick {
            true => (full / 10).max(3),
            false => full,
        }
    }

    /// How many IDs a large table has.
    pub(crate) fn many_ids(self) -> u64 {
        match self.quick {
            true => 100_000,
            false => 1_000_000,
        }
    }

    /// How many states are exported and imported at once.
    pub(crate) fn bulk(self) -> u64 {
        match self.quick {
            true => 10_000,
            false => 100_000,
        }
    }

    /// How long writers write against one another.
    pub(crate) fn contention(self) -> Duration {
        match self.quick {
            true => Duration::from_secs(1),
            false => Duration::from_secs(5),
        }
    }
}
