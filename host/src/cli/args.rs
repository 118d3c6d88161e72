//! The arguments, and where the URI comes from.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use pipeline_state::{Builder, CeilingError, Error, StateId, Tls, Version};

use super::clear::ClearArgs;
use super::copy::CopyArgs;
use super::diff::DiffArgs;
use super::edit::EditArgs;
use super::export::ExportArgs;
use super::import::ImportArgs;
use super::list::{GetArgs, ListArgs};
use super::merge::MergeArgs;
use super::project::{self, Variable};
use super::set::SetArgs;
use super::sync::SyncArgs;

/// The variables that may hold the URI, the first one that is set counts.
const URI_VARIABLES: [&str; 2] = ["PIPELINE_STATE_URI", "MELTANO_STATE_BACKEND_URI"];

const AFTER_HELP: &str = "\
The URI may also stand in the variable PIPELINE_STATE_URI or MELTANO_STATE_BACKEND_URI, where no other user of
the machine can see its password. A setting is, in this order: --setting, PIPELINE_STATE_<SCHEME>_<NAME>,
MELTANO_STATE_BACKEND_<SCHEME>_<NAME>, what the URI says, the plugin's default. In a Meltano project, and without
--uri, its .env and then state_backend of its meltano.yml count where the environment sets nothing.

Exit codes:
   0  done                                  8  no answer in time
   1  a file, a pipe or the machine failed  9  the store answered with an error
   2  wrong usage or input                 10  the store answered with what can't be a state
   3  there is no such state               11  no plugin for the scheme of the URI
   4  a setting is missing                 12  a plugin can't be used, or two serve one scheme
   5  unknown user or wrong password       13  the plugin, or the URI, asked for what is not allowed
   6  the user may not do this             14  the plugin broke off
   7  the store can't be reached           15  the stored state is not the expected one
                                           16  somebody else holds the lease, or it is lost
130  broken off with Ctrl-C

Examples:
  export PIPELINE_STATE_URI=clickhouse://app:secret@localhost:8123/analytics
  pipeline-state set dev:tap-a-to-target-b '{\"completed\": {\"singer_state\": {\"bookmarks\": {}}}}'
  pipeline-state get dev:tap-a-to-target-b
  pipeline-state list --pattern 'dev:*'
  pipeline-state lock run dev:tap-a-to-target-b --wait 5m -- meltano run tap-a target-b";

/// Keeps the state of pipelines in any store, through a sandboxed plugin that the scheme of the URI chooses
#[derive(Parser)]
#[command(name = "pipeline-state", version, after_help = AFTER_HELP, next_help_heading = "For every command")]
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
    /// A file that lists the plugins, with digests, origins and settings; see the README
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "PIPELINE_STATE_PLUGINS_FILE",
        hide_env_values = true
    )]
    pub(super) plugins_file: Option<PathBuf>,
    /// How long one call to the store may take, in seconds [default: 120]
    #[arg(long, global = true, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,
    /// Print JSON, one object on a line; see the README
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Print results and errors alone
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
    /// Tell on stderr what is done; -vv tells more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
    #[command(flatten)]
    pub(super) network: NetworkArgs,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Print the IDs of the stored states, one on a line, in order
    List(ListArgs),
    /// Print a state as {"completed": {...}, "partial": {...}}
    Get(GetArgs),
    /// Store a state; asks before one that is there is replaced
    ///
    /// Where nobody can be asked, in a script, `--force` must be said to replace one. Between the question and the answer nobody's write
    /// is lost.
    Set(SetArgs),
    Merge(MergeArgs),
    /// Store a state under another ID too
    Copy(CopyArgs),
    /// Store a state under another ID, and delete it under this one
    ///
    /// DST is written first, so that the state is never in neither place.
    Move(CopyArgs),
    /// Delete states: one, those that match a pattern, or all; asks first
    #[command(visible_alias = "delete")]
    Clear(ClearArgs),
    Edit(EditArgs),
    Export(ExportArgs),
    Import(ImportArgs),
    Sync(SyncArgs),
    Diff(DiffArgs),
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
    /// Show which plugins there are, or what a file is
    #[command(subcommand)]
    Plugins(PluginsCommand),
    /// Print what makes a shell complete the arguments
    #[command(
        after_help = "Example:\n  pipeline-state completions bash > ~/.local/share/bash-completion/completions/pipeline-state"
    )]
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or that of a command
    #[command(
        after_help = "Example:\n  pipeline-state man > ~/.local/share/man/man1/pipeline-state.1"
    )]
    Man {
        /// Which command
        command: Option<String>,
    },
}

/// What may be reached, and whom HTTPS trusts.
#[derive(clap::Args)]
#[command(next_help_heading = "Network")]
pub(super) struct NetworkArgs {
    /// An origin that the URI may name, for example https://*.example.com:8443 or http://10.0.0.0/8:8123. May be repeated
    /// [default: any]
    #[arg(
        long,
        global = true,
        value_name = "ORIGIN",
        env = "PIPELINE_STATE_ALLOW",
        hide_env_values = true
    )]
    pub(super) allow: Vec<String>,
    /// Reach neither this machine nor private networks
    #[arg(long, global = true)]
    pub(super) deny_private: bool,
    /// Trust the certificate authorities in this file too (PEM). May be repeated
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "PIPELINE_STATE_CA_FILE",
        hide_env_values = true
    )]
    pub(super) ca_file: Vec<PathBuf>,
    /// Trust the certificate authorities of the operating system too
    #[arg(long, global = true)]
    pub(super) native_roots: bool,
    /// A client certificate for HTTPS, with its chain (PEM)
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "client_key",
        env = "PIPELINE_STATE_CLIENT_CERT",
        hide_env_values = true
    )]
    pub(super) client_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "client_cert",
        env = "PIPELINE_STATE_CLIENT_KEY",
        hide_env_values = true
    )]
    pub(super) client_key: Option<PathBuf>,
    /// Give user and password to the plugin of this scheme, if it asks for them. May be repeated
    #[arg(long, global = true, value_name = "SCHEME")]
    pub(super) trust: Vec<String>,
}

impl NetworkArgs {
    pub(super) fn apply(&self, mut builder: Builder) -> Result<Builder, Error> {
        if !self.allow.is_empty() {
            let ceiling = self.allow.join(" ").parse();
            builder =
                builder.ceiling(ceiling.map_err(|error: CeilingError| {
                    Error::InvalidInput(format!("--allow: {error}"))
                })?);
        }
        if self.deny_private {
            builder = builder.deny_private();
        }
        let mut tls = Tls::new();
        for file in &self.ca_file {
            tls = tls.authority_file(file)?;
        }
        if self.native_roots {
            tls = tls.native_roots();
        }
        if let (Some(chain), Some(key)) = (&self.client_cert, &self.client_key) {
            tls = tls.client_certificate_files(chain, key)?;
        }
        let trusted = self.trust.iter();
        Ok(trusted.fold(builder.tls(tls), |builder, scheme| {
            builder.trust_with_credentials(scheme)
        }))
    }
}

/// What a write does about leases.
#[derive(clap::Args)]
pub(super) struct LeaseArgs {
    /// Write also while somebody else holds the lease of the state
    ///
    /// Without it, a command of `lock run` writes to its state under its lease. The state of the same ID in another store of the
    /// same host and port counts as that state: say this to write there.
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
    /// Nobody else gets the lease meanwhile. It is renewed in the background; if it is lost all the same, the command and all that
    /// it has started are asked to end (SIGTERM), and killed after 5 seconds. If `lock run` itself is killed, they are killed at
    /// once. That is so on Linux, also for what has made itself a daemon, but not for what runs as another user, or was given to
    /// another service to run (systemd, a container); elsewhere the command alone is stopped, and nothing when `lock run` is
    /// killed. What the command writes with pipeline-state to this state is refused once the lease is lost, whoever still runs.
    ///
    /// Signals are passed on to the command, but for SIGINT and SIGQUIT in the foreground of a terminal, which sends them to the
    /// command itself. The exit code is the command's. What it leaves running when it ends is left alone, without the lease.
    Run(RunArgs),
    /// Runs a command, and ends it with all that it has started when its parent ends
    #[command(hide = true)]
    Guard {
        parent: u32,
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
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

/// The URI, and where it is from.
pub(super) struct Uri {
    pub(super) uri: String,
    pub(super) place: String,
}

impl Args {
    /// The URI, and the variables that count beside it. A project has its say only where no URI is given: settings win over the URI, and
    /// those of a project are not meant for another store.
    pub(super) fn target(&self) -> Result<(Uri, Vec<Variable>), Error> {
        if let Some(uri) = self.uri.as_ref().filter(|uri| !uri.is_empty()) {
            let uri = Uri {
                uri: uri.clone(),
                place: String::from("--uri"),
            };
            return Ok((uri, project::of_environment()));
        }
        let variables = project::variables()?;
        let found = URI_VARIABLES
            .iter()
            .find_map(|name| variables.iter().find(|variable| variable.name == *name));
        match found {
            Some(variable) => {
                let uri = Uri {
                    uri: variable.value.clone(),
                    place: variable.place.clone(),
                };
                Ok((uri, variables))
            }
            None => Err(Error::MissingSetting(format!(
                "no URI is given; use --uri clickhouse://user:password@host:8123/database, or the variable {}",
                URI_VARIABLES.join(" or ")
            ))),
        }
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
