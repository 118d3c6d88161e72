//! The arguments, and where the URI comes from.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Parser, Subcommand};
use pipeline_state::{Error, StateId, Version};

/// The variables that may hold the URI, the first one that is set counts.
const URI_VARIABLES: [&str; 2] = ["PIPELINE_STATE_URI", "MELTANO_STATE_BACKEND_URI"];

const AFTER_HELP: &str = "\
The URI may also stand in the variable PIPELINE_STATE_URI or MELTANO_STATE_BACKEND_URI, where no other user of
the machine can see its password. A setting is, in this order: --setting, PIPELINE_STATE_<SCHEME>_<NAME>,
MELTANO_STATE_BACKEND_<SCHEME>_<NAME>, what the URI says, the plugin's default.

Exit codes:
   0  done                                  8  no answer in time
   1  a file, a pipe or the machine failed  9  the store answered with an error
   2  wrong usage or input                 10  the store answered with what can't be a state
   3  there is no such state               11  no plugin for the scheme of the URI
   4  a setting is missing                 12  a plugin can't be used, or two serve one scheme
   5  unknown user or wrong password       13  the plugin asked for a forbidden origin
   6  the user may not do this             14  the plugin broke off
   7  the store can't be reached           15  the stored state is not the expected one
                                           16  somebody else holds the lease, or it is lost

Examples:
  export PIPELINE_STATE_URI=clickhouse://app:secret@localhost:8123/analytics
  pipeline-state set dev:tap-a-to-target-b '{\"completed\": {\"singer_state\": {\"bookmarks\": {}}}}'
  pipeline-state get dev:tap-a-to-target-b
  pipeline-state list --pattern 'dev:*'
  pipeline-state lock run dev:tap-a-to-target-b --wait 5m -- meltano run tap-a target-b";

/// Keeps the state of pipelines in any store, through a sandboxed plugin that the scheme of the URI chooses
#[derive(Parser)]
#[command(name = "pipeline-state", version, after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Where the state is, for example clickhouse://user:password@host:8123/database
    #[arg(long, global = true)]
    uri: Option<String>,
    /// A setting of the plugin; wins over the URI and the environment. May be repeated
    #[arg(long, global = true, value_name = "NAME=VALUE", value_parser = setting)]
    pub(super) setting: Vec<(String, String)>,
    /// A folder whose .wasm files are plugins too. May be repeated
    #[arg(long, global = true, value_name = "DIR")]
    pub(super) plugin_dir: Vec<PathBuf>,
    /// How long one call to the store may take, in seconds [default: 120]
    #[arg(long, global = true, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,
    /// Tell on stderr what is done; -vv tells more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Print the IDs of the stored states, one on a line, in order
    List {
        /// Only IDs that match: * any text, ? one character, [abc] or [!abc] one of some
        #[arg(long, default_value = "*", hide_default_value = true)]
        pattern: String,
    },
    /// Print a state as {"completed": {...}, "partial": {...}}
    Get {
        /// Whose state
        id: StateId,
    },
    /// Store a state, in place of the one that is there
    #[command(group = ArgGroup::new("source").required(true).args(["state", "input_file"]))]
    Set {
        /// Whose state
        id: StateId,
        /// The state: {"completed": {"singer_state": {...}}}
        state: Option<String>,
        /// Read the state from a file; - is stdin
        #[arg(long, value_name = "FILE")]
        input_file: Option<PathBuf>,
        #[command(flatten)]
        lease: LeaseArgs,
    },
    /// Delete one state
    Delete {
        /// Whose state
        id: StateId,
        #[command(flatten)]
        lease: LeaseArgs,
    },
    /// Print the last versions of a state, the newest first
    History {
        /// Whose state
        id: StateId,
        /// How many
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Store what a state was at an earlier version, as a new version
    Restore {
        /// Whose state
        id: StateId,
        /// The version, as `history` prints it
        version: Version,
        #[command(flatten)]
        lease: LeaseArgs,
    },
    /// Show, hold and end leases: who may work on a state now
    #[command(subcommand)]
    Lock(LockCommand),
    /// Look at the store, the user and the table, and say what is wrong and what to do
    Doctor,
    /// Bring the tables up to date; changes no state
    Migrate,
    /// Delete all states
    Clear {
        /// Really do it
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        lease: LeaseArgs,
    },
    /// Show which plugins there are, or what a file is
    #[command(subcommand)]
    Plugins(PluginsCommand),
}

/// What a write does about leases.
#[derive(clap::Args)]
pub(super) struct LeaseArgs {
    /// Write also while somebody else holds the lease of the state
    #[arg(long)]
    pub(super) ignore_lock: bool,
}

#[derive(Subcommand)]
pub(super) enum LockCommand {
    /// Print the leases that are held: ID, acquired, ends, token, owner
    Show {
        /// Only of this state, or of those that match the pattern
        #[arg(value_name = "ID", default_value = "*", hide_default_value = true)]
        pattern: String,
    },
    /// End a lease whose holder is gone; what it still writes is refused
    Break {
        /// Whose state
        id: StateId,
        /// Which lease, as `lock show` prints it: never a newer one
        token: String,
    },
    /// Run a command, and hold the lease of a state as long as it runs
    ///
    /// Nobody else gets the lease meanwhile. It is renewed in the background; if it is lost all the same, the command is stopped.
    /// Signals are passed on, and the exit code is the command's. What it writes with pipeline-state to this
    /// state is refused once the lease is lost.
    Run(RunArgs),
    /// Becomes a command that ends when its parent does
    #[command(hide = true)]
    Exec {
        parent: u32,
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
}

#[derive(clap::Args)]
pub(super) struct RunArgs {
    /// Whose state
    pub(super) id: StateId,
    /// How long to wait for the lease where somebody else holds it, for example 30s or 5m
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration)]
    pub(super) wait: Duration,
    /// After which time without a sign of life somebody else may have it
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    pub(super) ttl: Duration,
    /// Who holds it, for people [default: user, host and process]
    #[arg(long)]
    pub(super) owner: Option<String>,
    /// The command and its arguments
    #[arg(required = true, last = true)]
    pub(super) command: Vec<OsString>,
}

#[derive(Subcommand)]
pub(super) enum PluginsCommand {
    /// Print the schemes that can be used and the plugins behind them
    List,
    /// Print what a component imports, exports and says of itself, before it is trusted
    Inspect {
        /// The .wasm file
        file: PathBuf,
    },
}

impl Args {
    pub(super) fn uri(&self) -> Result<String, Error> {
        if let Some(uri) = self.uri.as_ref().filter(|uri| !uri.is_empty()) {
            return Ok(uri.clone());
        }
        URI_VARIABLES
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|uri| !uri.is_empty()))
            .ok_or_else(|| {
                Error::MissingSetting(format!(
                    "no URI is given; use --uri clickhouse://user:password@host:8123/database, or the variable {}",
                    URI_VARIABLES.join(" or ")
                ))
            })
    }
}

/// The error does not quote the argument: it may be a password.
fn setting(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a setting looks like NAME=VALUE"),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "a time-out is a number of seconds above 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_setting_has_a_name_and_a_value_that_may_hold_anything() {
        assert_eq!(
            setting("a=b=c").unwrap(),
            ("a".to_owned(), "b=c".to_owned())
        );
        assert_eq!(setting("a=").unwrap(), ("a".to_owned(), String::new()));
        assert!(setting("a").is_err());
        assert!(setting("=a").is_err());
    }

    #[test]
    fn a_timeout_is_positive() {
        assert_eq!(seconds("1.5").unwrap(), Duration::from_millis(1500));
        for text in ["0", "-1", "NaN", "inf", "1s", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
