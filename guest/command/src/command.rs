//! What each command does.

use std::collections::HashMap;

use serde_json::json;

use crate::args::{Command, Source, Which, Write};
use crate::bindings::pipeline::state::maintenance::Severity;
use crate::bindings::pipeline::state::types as wit;
use crate::bindings::pipeline::state::{history, locks, maintenance, store};
use crate::document::{Alone, Documents, is_empty};
use crate::failure::{Code, Failure, plain};
use crate::pattern::escape;
use crate::streams::{self, End, Output};
use crate::target::Target;
use crate::time::{utc, utc_seconds};

/// What tells a command that runs under a lease of which state that is, and its token: as for the native program.
const LEASE_ID: &str = "PIPELINE_STATE_LEASE_ID";
const LEASE_TOKEN: &str = "PIPELINE_STATE_LEASE_TOKEN";

/// How many are asked for at once.
const PAGE: u32 = 1000;
/// States may be large.
const PAGE_OF_STATES: u32 = 100;

/// The store that is meant.
pub(crate) struct Store {
    target: wit::Target,
    variables: Vec<(String, String)>,
}

impl Store {
    pub(crate) fn new(target: Target, variables: Vec<(String, String)>) -> Store {
        Store {
            target: wit::Target {
                uri: target.uri,
                settings: target.settings,
            },
            variables,
        }
    }

    pub(crate) fn run(&self, command: &Command, output: &Output) -> Result<(), End> {
        match command {
            // They need no store.
            Command::Help | Command::Version => Ok(()),
            Command::List { pattern, long } => match long {
                true => self.list_states(pattern, output),
                false => self.list_ids(pattern, output),
            },
            Command::Get(id) => self.get(id, output),
            Command::Set(id, source, write) => {
                let state = read(source, Alone::Completed, *write)?;
                let version = self.set(id, &state, *write)?;
                output.written(id, version)
            }
            Command::Merge(id, source, write) => self.merge(id, source, *write, output),
            Command::Copy(from, to, write, delete) => self.copy(from, to, *write, *delete, output),
            Command::Clear(which, write) => self.clear(which, *write, output),
            Command::History(id, limit) => self.history(id, *limit, output),
            Command::Restore(id, version, write) => self.restore(id, *version, *write, output),
            Command::LockShow(pattern) => self.show_leases(pattern, output),
            Command::LockBreak(id, token) => self.break_lease(id, token),
            Command::Doctor => self.doctor(output),
            Command::Migrate => self.migrate(output),
        }
    }

    fn list_ids(&self, pattern: &str, output: &Output) -> Result<(), End> {
        let mut after = None;
        loop {
            let page = store::get_ids(&self.target, pattern, after.as_deref(), PAGE)?;
            let lines = page.ids.iter().map(|id| match output.json {
                true => json!({"id": id}).to_string() + "\n",
                false => format!("{id}\n"),
            });
            output.write(&lines.collect::<String>())?;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn list_states(&self, pattern: &str, output: &Output) -> Result<(), End> {
        let leases = self.leases(pattern)?.into_iter();
        let holders: HashMap<_, _> = leases.map(|lease| (lease.id, lease.owner)).collect();
        let mut after = None;
        loop {
            let page = store::get_page(&self.target, pattern, after.as_deref(), PAGE_OF_STATES)?;
            for entry in page.entries {
                let holder = holders.get(&entry.id);
                let state = Documents::from(entry.state);
                let (time, bytes, kind) = (utc(entry.updated_at_ms), state.bytes(), state.kind());
                output.line(&match output.json {
                    true => json!({
                        "id": entry.id,
                        "updated_at": time,
                        "bytes": bytes,
                        "version": entry.version.to_string(),
                        "state": kind,
                        "holder": holder,
                    })
                    .to_string(),
                    false => format!(
                        "{}\t{time}\t{bytes}\t{}\t{kind}\t{}",
                        entry.id,
                        entry.version,
                        holder.map_or(String::from("-"), |owner| plain(owner)),
                    ),
                })?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn get(&self, id: &str, output: &Output) -> Result<(), End> {
        let entry = self.stored(id)?;
        let state = Documents::from(entry.state);
        match output.json {
            false => output.line(&state.json()),
            true => output.line(&format!(
                "{{\"id\":{},\"version\":\"{}\",\"updated_at\":\"{}\",\"state\":{}}}",
                json!(id),
                entry.version,
                utc(entry.updated_at_ms),
                state.json_line()?
            )),
        }
    }

    fn merge(&self, id: &str, source: &Source, write: Write, output: &Output) -> Result<(), End> {
        let state = read(source, Alone::Partial, write)?;
        // The contract's update would replace the state by it.
        if !is_empty(state.completed.as_deref()) {
            return Err(Failure::usage(
                "a completed document can't be merged here, only a partial one or {\"singer_state\": {...}}; \
                 the native program can",
            )
            .into());
        }
        let lease = self.lease_for(id, write)?;
        let version = store::update(&self.target, id, &state.into(), lease.as_deref())?;
        output.written(id, version)
    }

    /// Unless by force it replaces no state, and else the one that it has seen and no newer one.
    fn set(&self, id: &str, state: &Documents, write: Write) -> Result<u64, End> {
        let lease = self.lease_for(id, write)?;
        let expect = match write.force {
            true => store::Expectation::Any,
            false => match store::get(&self.target, id)? {
                None => store::Expectation::Absent,
                Some(entry) => {
                    if Documents::from(entry.state).json() != state.json() {
                        let what = format!("This replaces the state `{id}`");
                        return Err(Failure::not_forced(&what).into());
                    }
                    store::Expectation::Version(entry.version)
                }
            },
        };
        let state = state.clone().into();
        Ok(store::set(
            &self.target,
            id,
            &state,
            expect,
            lease.as_deref(),
        )?)
    }

    /// The target is written before the source is deleted, so that the state is always somewhere.
    fn copy(
        &self,
        from: &str,
        to: &str,
        write: Write,
        delete: bool,
        output: &Output,
    ) -> Result<(), End> {
        if from == to {
            return Err(Failure::usage("SRC and DST are the same state").into());
        }
        let lease = match delete {
            true => self.lease_for(from, write)?,
            false => None,
        };
        let stored = self.stored(from)?;
        let version = self.set(to, &stored.state.into(), write)?;
        if delete {
            let expect = store::Expectation::Version(stored.version);
            store::delete(&self.target, from, expect, lease.as_deref()).map_err(|error| {
                let what = match &error {
                    wit::Error::Conflict(_) => {
                        ", since somebody has changed it meanwhile; look at both, and move it again or clear it"
                    }
                    _ => "; clear it",
                };
                let failure = Failure::from(error);
                let text = format!("`{to}` is stored, and `{from}` is not deleted{what}: {}", failure.text);
                Failure::new(failure.code, text)
            })?;
        }
        output.written(to, version)
    }

    fn clear(&self, which: &Which, write: Write, output: &Output) -> Result<(), End> {
        let deleted = match which {
            Which::One(id) => {
                let lease = self.lease_for(id, write)?;
                if !write.force {
                    self.stored(id)?;
                    let what = format!("This deletes the state `{id}`");
                    return Err(Failure::not_forced(&what).into());
                }
                let any = store::Expectation::Any;
                if !store::delete(&self.target, id, any, lease.as_deref())? {
                    return Err(Failure::no_such_state(id).into());
                }
                return match output.json {
                    true => output.line(&json!({"deleted": 1}).to_string()),
                    false => Ok(()),
                };
            }
            Which::Matching(pattern) => {
                self.refuse_held(pattern, write)?;
                let ids = self.ids(pattern)?;
                if let (Some(first), false) = (ids.first(), write.force) {
                    let what = match ids.len() {
                        1 => format!("This deletes the state `{first}`"),
                        count => {
                            format!("This deletes {count} states, `{first}` the first of them")
                        }
                    };
                    return Err(Failure::not_forced(&what).into());
                }
                let mut deleted = 0;
                for id in &ids {
                    let any = store::Expectation::Any;
                    deleted += u64::from(store::delete(&self.target, id, any, None)?);
                }
                deleted
            }
            Which::All => {
                if !write.force {
                    return Err(Failure::not_forced("This deletes every state").into());
                }
                self.refuse_held("*", write)?;
                store::clear(&self.target)?
            }
        };
        let sentence = format!("deleted {deleted} states");
        output.result(&json!({"deleted": deleted}), &sentence)
    }

    fn history(&self, id: &str, limit: u32, output: &Output) -> Result<(), End> {
        for change in history::versions(&self.target, id, None, limit)? {
            let time = utc(change.written_at_ms);
            let state = change.state.map(Documents::from);
            output.line(&match output.json {
                true => format!(
                    "{{\"id\":{},\"version\":\"{}\",\"written_at\":\"{time}\",\"state\":{}}}",
                    json!(id),
                    change.version,
                    match state {
                        Some(state) => state.json_line()?,
                        None => String::from("null"),
                    }
                ),
                false => format!(
                    "{}\t{time}\t{}",
                    change.version,
                    state.map_or(String::from("deleted"), |state| state.json())
                ),
            })?;
        }
        Ok(())
    }

    fn restore(&self, id: &str, version: u64, write: Write, output: &Output) -> Result<(), End> {
        let lease = self.lease_for(id, write)?;
        // The newest one before the version after it.
        let before = Some(version.saturating_add(1));
        let changes = history::versions(&self.target, id, before, 1)?;
        let change = changes
            .into_iter()
            .find(|change| change.version == version)
            .ok_or_else(|| {
                Failure::new(
                    Code::NoSuchState,
                    format!("the history of `{id}` has no version {version}; see `history`"),
                )
            })?;
        let any = store::Expectation::Any;
        match change.state {
            Some(state) => {
                let version = store::set(&self.target, id, &state, any, lease.as_deref())?;
                output.written(id, version)
            }
            None => {
                store::delete(&self.target, id, any, lease.as_deref())?;
                Ok(())
            }
        }
    }

    fn show_leases(&self, pattern: &str, output: &Output) -> Result<(), End> {
        for lease in self.leases(pattern)? {
            let (acquired, expires) = (utc(lease.acquired_at_ms), utc(lease.expires_at_ms));
            output.line(&match output.json {
                true => json!({
                    "id": lease.id,
                    "acquired_at": acquired,
                    "expires_at": expires,
                    "token": lease.token,
                    "owner": lease.owner,
                })
                .to_string(),
                false => format!(
                    "{}\t{acquired}\t{expires}\t{}\t{}",
                    plain(&lease.id),
                    plain(&lease.token),
                    plain(&lease.owner)
                ),
            })?;
        }
        Ok(())
    }

    fn break_lease(&self, id: &str, token: &str) -> Result<(), End> {
        match locks::break_lease(&self.target, id, token)? {
            true => Ok(()),
            false => Err(Failure::new(
                Code::NoSuchState,
                format!(
                    "the lease of `{id}` with the token {token} is not held any more; see `lock show`"
                ),
            )
            .into()),
        }
    }

    fn doctor(&self, output: &Output) -> Result<(), End> {
        let findings = maintenance::check(&self.target)?;
        for finding in &findings {
            let severity = match finding.severity {
                Severity::Fine => "fine",
                Severity::Note => "note",
                Severity::Warning => "warning",
                Severity::Problem => "problem",
            };
            let (subject, text) = (&finding.subject, &finding.text);
            if output.json {
                let mend = &finding.mend;
                let object =
                    json!({"severity": severity, "subject": subject, "text": text, "mend": mend});
                output.line(&object.to_string())?;
                continue;
            }
            output.line(&format!("{severity:<8} {subject:<11} {text}"))?;
            if let Some(mend) = &finding.mend {
                output.line(&format!("{:<20} -> {mend}", ""))?;
            }
        }
        let problem = |finding: &&maintenance::Finding| finding.severity == Severity::Problem;
        match findings.iter().filter(problem).count() {
            0 => Ok(()),
            1 => Err(Failure::new(Code::Failed, "there is a problem").into()),
            count => Err(Failure::new(Code::Failed, format!("there are {count} problems")).into()),
        }
    }

    fn migrate(&self, output: &Output) -> Result<(), End> {
        let done = maintenance::migrate(&self.target)?;
        if output.json {
            return output.line(&json!({"done": done}).to_string());
        }
        if done.is_empty() {
            output.line("nothing to do")?;
        }
        done.iter().try_for_each(|line| output.line(line))
    }

    fn stored(&self, id: &str) -> Result<store::Entry, Failure> {
        store::get(&self.target, id)?.ok_or_else(|| Failure::no_such_state(id))
    }

    fn ids(&self, pattern: &str) -> Result<Vec<String>, Failure> {
        let mut ids = Vec::new();
        let mut after = None;
        loop {
            let page = store::get_ids(&self.target, pattern, after.as_deref(), PAGE)?;
            ids.extend(page.ids);
            after = page.next;
            if after.is_none() {
                return Ok(ids);
            }
        }
    }

    fn leases(&self, pattern: &str) -> Result<Vec<wit::Lease>, Failure> {
        let mut leases = Vec::new();
        let mut after = None;
        loop {
            let page = locks::inspect(&self.target, pattern, after.as_deref(), PAGE)?;
            leases.extend(page.leases);
            after = page.next;
            if after.is_none() {
                return Ok(leases);
            }
        }
    }

    /// The lease under which a state is written, if this command runs under one of it. Otherwise nobody may hold it.
    fn lease_for(&self, id: &str, write: Write) -> Result<Option<String>, Failure> {
        if write.ignore_lock {
            return Ok(None);
        }
        if self.variable(LEASE_ID) == Some(id)
            && let Some(token) = self.variable(LEASE_TOKEN)
        {
            return Ok(Some(token.to_owned()));
        }
        self.refuse_held(&escape(id), write)?;
        Ok(None)
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let mut variables = self.variables.iter();
        variables
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    fn refuse_held(&self, pattern: &str, write: Write) -> Result<(), Failure> {
        if write.ignore_lock {
            return Ok(());
        }
        match self.leases(pattern)?.into_iter().next() {
            None => Ok(()),
            held => Err(wit::Error::Locked(held).into()),
        }
    }
}

fn read(source: &Source, alone: Alone, write: Write) -> Result<Documents, Failure> {
    let state = match source {
        Source::Text(text) => Documents::read(text, alone, write.no_validate)?,
        Source::Stdin => Documents::read(&streams::read()?, alone, write.no_validate)?,
    };
    if !write.no_validate {
        state.check()?;
    }
    Ok(state)
}

impl From<wit::State> for Documents {
    fn from(state: wit::State) -> Documents {
        Documents {
            completed: state.completed,
            partial: state.partial,
        }
    }
}

impl From<Documents> for wit::State {
    fn from(state: Documents) -> wit::State {
        wit::State {
            completed: state.completed,
            partial: state.partial,
        }
    }
}

impl From<wit::Error> for End {
    fn from(error: wit::Error) -> End {
        End::Failed(Failure::from(error))
    }
}

impl From<wit::Error> for Failure {
    fn from(error: wit::Error) -> Failure {
        let (code, text, outcome) = match error {
            wit::Error::InvalidInput(text) => (Code::Usage, text, None),
            wit::Error::MissingSetting(text) => (Code::MissingSetting, text, None),
            wit::Error::Unauthenticated(text) => (Code::Unauthenticated, text, None),
            wit::Error::AccessDenied(text) => (Code::AccessDenied, text, None),
            wit::Error::Conflict(Some(version)) => (
                Code::Conflict,
                format!(
                    "the stored state has the version {version}, which is not the expected one; nothing was written"
                ),
                None,
            ),
            wit::Error::Conflict(None) => (
                Code::Conflict,
                String::from("there is no such state, and one was expected; nothing was written"),
                None,
            ),
            wit::Error::Locked(lease) => (Code::Locked, locked(lease.as_ref()), None),
            wit::Error::Unavailable(failure) => {
                (Code::Unavailable, failure.message, Some(failure.outcome))
            }
            wit::Error::TimedOut(failure) => {
                (Code::TimedOut, failure.message, Some(failure.outcome))
            }
            wit::Error::Server(error) => (Code::Server, error.message, Some(error.outcome)),
            wit::Error::Corrupt(text) => (Code::Corrupt, text, None),
        };
        // A write whose fate is not known must not look like one that did nothing.
        let hint = match outcome {
            Some(wit::Outcome::Unknown) => {
                "; the change may have been stored or not: read it back before you try again"
            }
            _ => "",
        };
        Failure::new(code, format!("{text}{hint}"))
    }
}

fn locked(lease: Option<&wit::Lease>) -> String {
    let Some(lease) = lease else {
        return String::from(
            "the lease is lost: it has expired, or was broken; nothing was written",
        );
    };
    let (id, token) = (&lease.id, &lease.token);
    let owner = match lease.owner.as_str() {
        "" => "somebody without a name",
        owner => owner,
    };
    format!(
        "`{id}` is locked by {owner} since {}, until {} unless renewed (token {token}); wait for it, or end it with `lock break`",
        utc_seconds(lease.acquired_at_ms),
        utc_seconds(lease.expires_at_ms),
    )
}
