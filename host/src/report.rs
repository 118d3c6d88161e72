//! What a plugin finds out about a store for its operator.

use std::fmt;

use crate::bindings::exports::pipeline::state::maintenance as wit;

/// How much a finding matters. The more, the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Fine,
    /// Worth knowing.
    Note,
    /// Something does not work, or not as well as it could.
    Warning,
    /// States may be lost, or can't be read or written at all.
    Problem,
}

impl fmt::Display for Severity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Severity::Fine => "fine",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
        })
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What was looked at, in one or two words.
    pub subject: String,
    /// What it is like, in one line, without a secret.
    pub text: String,
    /// What to do about it.
    pub mend: Option<String>,
}

impl From<wit::Finding> for Finding {
    fn from(finding: wit::Finding) -> Finding {
        Finding {
            severity: match finding.severity {
                wit::Severity::Fine => Severity::Fine,
                wit::Severity::Note => Severity::Note,
                wit::Severity::Warning => Severity::Warning,
                wit::Severity::Problem => Severity::Problem,
            },
            subject: finding.subject,
            text: finding.text,
            mend: finding.mend,
        }
    }
}
