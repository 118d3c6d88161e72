//! The arguments.

use crate::failure::Failure;

pub(crate) const HELP: &str = "\
Keeps the state of pipelines in one kind of store: pipeline-state as a component

Usage: wasmtime run -S http --env PIPELINE_STATE_URI FILE.wasm COMMAND

Commands:
  list [--pattern PATTERN] [--long]         print the IDs of the stored states
  get ID                                    print a state as {\"completed\": {...}, \"partial\": {...}}
  set ID STATE                              store a state; --force replaces one that is there
  merge ID STATE                            merge a document into the partial one
  copy SRC DST, move SRC DST                store a state under another ID
  clear ID | --pattern PATTERN | --all      delete states, with --force; also: delete
  history ID [--limit N]                    print the last versions of a state
  restore ID VERSION                        store what a state was at an earlier version
  lock show [ID], lock break ID TOKEN       show leases, end one
  doctor                                    look at the store, and say what is wrong
  migrate                                   bring what the store consists of up to date

STATE is {\"completed\": {\"singer_state\": {...}}} or {\"singer_state\": {...}}; --input-file - reads it from stdin.

Options:
  --uri URI              where the state is [variable: PIPELINE_STATE_URI or MELTANO_STATE_BACKEND_URI]
  --setting NAME=VALUE   a setting of the store [variable: PIPELINE_STATE_<SCHEME>_<NAME>, or the plugin's own]
  --json                 print JSON, one object on a line
  --force                replace or delete
  --no-validate          take also what has no singer_state
  --ignore-lock          write also while somebody else holds the lease
  -q, --quiet            print results and errors alone
  -h, --help; -V, --version

Exit codes are those of the native program: 0 done, 2 wrong usage or input, 3 no such state, 4 a setting is missing,
5 unknown user or wrong password, 6 not allowed to the user, 7 not reached, 8 no answer in time, 9 an error of the
store, 10 no state, 11 another scheme, 15 not the expected state, 16 locked; 1 anything else.
";

/// All that is said on the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) uri: Option<String>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) command: Command,
}

/// How a write is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) force: bool,
    pub(crate) no_validate: bool,
    pub(crate) ignore_lock: bool,
}

/// Where a state is read from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Text(String),
    Stdin,
}

/// Which states are deleted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Which {
    One(String),
    Matching(String),
    All,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Version,
    List {
        pattern: String,
        long: bool,
    },
    Get(String),
    Set(String, Source, Write),
    Merge(String, Source, Write),
    /// The last member says whether the source is deleted.
    Copy(String, String, Write, bool),
    Clear(Which, Write),
    History(String, u32),
    Restore(String, u64, Write),
    LockShow(String),
    LockBreak(String, String),
    Doctor,
    Migrate,
}

/// Options that take a value, and those that take none.
const VALUES: [&str; 5] = ["uri", "setting", "pattern", "limit", "input-file"];
const SWITCHES: [&str; 9] = [
    "json",
    "quiet",
    "long",
    "force",
    "all",
    "no-validate",
    "ignore-lock",
    "help",
    "version",
];
/// Options that every command takes.
const GLOBAL: [&str; 6] = ["uri", "setting", "json", "quiet", "help", "version"];
const DEFAULT_LIMIT: u32 = 20;

impl Args {
    pub(crate) fn parse(arguments: &[String]) -> Result<Args, Failure> {
        let mut words = Words::read(arguments)?;
        let uri = words.value("uri");
        let settings = words.settings()?;
        let (json, quiet) = (words.has("json"), words.has("quiet"));
        let command = if words.has("help") || arguments.is_empty() {
            Command::Help
        } else if words.has("version") {
            Command::Version
        } else {
            words.command()?
        };
        Ok(Args {
            uri,
            settings,
            json,
            quiet,
            command,
        })
    }
}

/// The arguments, sorted.
struct Words {
    options: Vec<(&'static str, String)>,
    positional: std::vec::IntoIter<String>,
}

impl Words {
    fn read(arguments: &[String]) -> Result<Words, Failure> {
        let mut options = Vec::new();
        let mut positional = Vec::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let name = match argument.as_str() {
                "--" => {
                    positional.extend(rest.by_ref().cloned());
                    break;
                }
                "-h" => "help",
                "-V" => "version",
                "-q" => "quiet",
                "-l" => "long",
                long => match long.strip_prefix("--") {
                    Some(name) => name,
                    None if long.len() > 1 && long.starts_with('-') => {
                        return Err(unknown(long));
                    }
                    None => {
                        positional.push(argument.clone());
                        continue;
                    }
                },
            };
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (name, None),
            };
            let known = |names: &[&'static str]| names.iter().copied().find(|known| *known == name);
            match (known(&VALUES), known(&SWITCHES), value) {
                (Some(name), _, value) => {
                    let value = value.or_else(|| rest.next().cloned()).ok_or_else(|| {
                        Failure::usage(format!("--{name} needs a value; see --help"))
                    })?;
                    options.push((name, value));
                }
                (None, Some(name), None) => options.push((name, String::new())),
                // Of one that is not known its value may be a password.
                _ => return Err(unknown(&format!("--{name}"))),
            }
        }
        Ok(Words {
            options,
            positional: positional.into_iter(),
        })
    }

    fn command(&mut self) -> Result<Command, Failure> {
        let name = self.next("COMMAND")?;
        let name = match name.as_str() {
            "lock" => format!("lock {}", self.next("show or break")?),
            _ => name,
        };
        let (allowed, command): (&[&str], Command) = match name.as_str() {
            "list" => (
                &["pattern", "long"],
                Command::List {
                    pattern: self.value("pattern").unwrap_or_else(any),
                    long: self.has("long"),
                },
            ),
            "get" => (&[], Command::Get(self.next("ID")?)),
            "set" => (
                &["force", "no-validate", "ignore-lock", "input-file"],
                Command::Set(self.next("ID")?, self.source()?, self.write()),
            ),
            "merge" => (
                &["no-validate", "ignore-lock", "input-file"],
                Command::Merge(self.next("ID")?, self.source()?, self.write()),
            ),
            "copy" | "move" => (
                &["force", "ignore-lock"],
                Command::Copy(
                    self.next("SRC")?,
                    self.next("DST")?,
                    self.write(),
                    name == "move",
                ),
            ),
            "clear" | "delete" => (
                &["force", "ignore-lock", "pattern", "all"],
                Command::Clear(self.which()?, self.write()),
            ),
            "history" => {
                let id = self.next("ID")?;
                let limit = match self.value("limit") {
                    None => DEFAULT_LIMIT,
                    Some(limit) => limit
                        .parse()
                        .map_err(|_| Failure::usage("--limit is a number of versions"))?,
                };
                (&["limit"], Command::History(id, limit))
            }
            "restore" => {
                let id = self.next("ID")?;
                let version = self
                    .next("VERSION")?
                    .parse()
                    .map_err(|_| Failure::usage("VERSION is a number, as `history` prints it"))?;
                (
                    &["ignore-lock"],
                    Command::Restore(id, version, self.write()),
                )
            }
            "lock show" => (
                &[],
                Command::LockShow(self.positional.next().unwrap_or_else(any)),
            ),
            "lock break" => (
                &[],
                Command::LockBreak(self.next("ID")?, self.next("TOKEN")?),
            ),
            "doctor" => (&[], Command::Doctor),
            "migrate" => (&[], Command::Migrate),
            other => {
                return Err(Failure::usage(format!(
                    "there is no command `{other}`; see --help"
                )));
            }
        };
        if let Some(extra) = self.positional.next() {
            return Err(Failure::usage(format!(
                "`{name}` does not take `{extra}`; see --help"
            )));
        }
        let misplaced =
            |(option, _): &&(&str, String)| !allowed.contains(option) && !GLOBAL.contains(option);
        match self.options.iter().find(misplaced) {
            Some((option, _)) => Err(Failure::usage(format!(
                "`{name}` has no --{option}; see --help"
            ))),
            None => Ok(command),
        }
    }

    fn next(&mut self, what: &str) -> Result<String, Failure> {
        self.positional
            .next()
            .ok_or_else(|| Failure::usage(format!("{what} is missing; see --help")))
    }

    fn has(&self, switch: &str) -> bool {
        self.options.iter().any(|(name, _)| *name == switch)
    }

    /// The last one counts.
    fn value(&self, option: &str) -> Option<String> {
        let mut given = self.options.iter().rev();
        given
            .find(|(name, _)| *name == option)
            .map(|(_, value)| value.clone())
    }

    /// The error does not quote the argument: it may be a password.
    fn settings(&self) -> Result<Vec<(String, String)>, Failure> {
        self.options
            .iter()
            .filter(|(name, _)| *name == "setting")
            .map(|(_, text)| match text.split_once('=') {
                Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
                _ => Err(Failure::usage("a setting looks like NAME=VALUE")),
            })
            .collect()
    }

    fn write(&self) -> Write {
        Write {
            force: self.has("force"),
            no_validate: self.has("no-validate"),
            ignore_lock: self.has("ignore-lock"),
        }
    }

    fn source(&mut self) -> Result<Source, Failure> {
        match (self.value("input-file").as_deref(), self.positional.next()) {
            (Some("-"), None) => Ok(Source::Stdin),
            (None, Some(text)) => Ok(Source::Text(text)),
            (None, None) => Err(Failure::usage(
                "STATE is missing; --input-file - reads it from stdin",
            )),
            (Some("-"), Some(_)) => Err(Failure::usage(
                "the state is either an argument or read with --input-file",
            )),
            (Some(_), _) => Err(Failure::usage(
                "files can't be read here: say `--input-file - < FILE`",
            )),
        }
    }

    fn which(&mut self) -> Result<Which, Failure> {
        match (
            self.positional.next(),
            self.value("pattern"),
            self.has("all"),
        ) {
            (Some(id), None, false) => Ok(Which::One(id)),
            (None, Some(pattern), false) => Ok(Which::Matching(pattern)),
            (None, None, true) => Ok(Which::All),
            _ => Err(Failure::usage(
                "say which states: one of ID, --pattern and --all",
            )),
        }
    }
}

fn any() -> String {
    String::from("*")
}

fn unknown(option: &str) -> Failure {
    Failure::usage(format!("there is no option {option}; see --help"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<Args, Failure> {
        let words: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        Args::parse(&words)
    }

    fn command(line: &[&str]) -> Command {
        parse(line).unwrap().command
    }

    fn refused(line: &[&str]) -> String {
        parse(line).unwrap_err().line()
    }

    #[test]
    fn options_stand_anywhere_and_what_follows_two_hyphens_is_none() {
        let args = parse(&["--json", "get", "--uri=u", "--", "--json"]).unwrap();
        assert_eq!(args.command, Command::Get("--json".to_owned()));
        assert_eq!((args.json, args.uri.as_deref()), (true, Some("u")));
        let args = parse(&["list", "--setting", "a=b=c", "--setting=d=", "-ql"]);
        assert!(args.is_err(), "short options are not joined");
        let args = parse(&["list", "--setting", "a=b=c", "--setting=d=", "-q", "-l"]).unwrap();
        assert_eq!(
            args.settings,
            [("a".into(), "b=c".into()), ("d".into(), String::new())]
        );
        assert!(args.quiet);
        let (pattern, long) = (any(), true);
        assert_eq!(args.command, Command::List { pattern, long });
    }

    #[test]
    fn each_command_is_read() {
        let id = || "a".to_owned();
        let force = Write {
            force: true,
            ..Write::default()
        };
        let lock = Write {
            ignore_lock: true,
            ..Write::default()
        };
        for (line, expected) in [
            (&[][..], Command::Help),
            (&["get", "-h"], Command::Help),
            (&["-V"], Command::Version),
            (&["get", "-"], Command::Get("-".to_owned())),
            (
                &["set", "a", "{}", "--force"],
                Command::Set(id(), Source::Text("{}".to_owned()), force),
            ),
            (
                &["merge", "a", "--input-file", "-"],
                Command::Merge(id(), Source::Stdin, Write::default()),
            ),
            (
                &["move", "a", "b", "--ignore-lock"],
                Command::Copy(id(), "b".to_owned(), lock, true),
            ),
            (
                &["delete", "a", "--force"],
                Command::Clear(Which::One(id()), force),
            ),
            (
                &["clear", "--pattern", "a*"],
                Command::Clear(Which::Matching("a*".to_owned()), Write::default()),
            ),
            (
                &["clear", "--all"],
                Command::Clear(Which::All, Write::default()),
            ),
            (&["history", "a"], Command::History(id(), DEFAULT_LIMIT)),
            (&["history", "a", "--limit", "3"], Command::History(id(), 3)),
            (
                &["restore", "a", "18446744073709551615"],
                Command::Restore(id(), u64::MAX, Write::default()),
            ),
            (&["lock", "show"], Command::LockShow(any())),
            (
                &["lock", "break", "a", "t"],
                Command::LockBreak(id(), "t".to_owned()),
            ),
            (&["doctor"], Command::Doctor),
            (&["migrate"], Command::Migrate),
        ] {
            assert_eq!(command(line), expected, "{line:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_and_a_password_is_not() {
        for (line, words) in [
            (&["gte", "a"][..], "no command `gte`"),
            (&["--json"], "COMMAND is missing"),
            (&["get"], "ID is missing"),
            (&["get", "a", "b"], "does not take `b`"),
            (&["get", "a", "--force"], "`get` has no --force"),
            (&["get", "a", "--uri"], "--uri needs a value"),
            (&["get", "a", "--json=1"], "no option --json"),
            (&["get", "a", "--password=secret"], "no option --password"),
            (&["list", "--setting", "secret"], "looks like NAME=VALUE"),
            (&["set", "a"], "STATE is missing"),
            (&["set", "a", "--input-file", "f"], "--input-file - < FILE"),
            (&["set", "a", "{}", "--input-file=-"], "either"),
            (&["clear", "a", "--all"], "one of ID"),
            (&["clear"], "one of ID"),
            (&["history", "a", "--limit=x"], "--limit is a number"),
            (&["restore", "a", "x"], "VERSION is a number"),
            (&["lock"], "show or break is missing"),
            (&["lock", "run"], "no command `lock run`"),
        ] {
            let line = refused(line);
            assert!(line.contains(words), "{line}");
            assert!(!line.contains("secret"), "{line}");
        }
    }
}
