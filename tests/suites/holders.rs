//! Many holders of one lease, each a process of its own, through a network that loses, delays, doubles and resets requests. Some
//! are killed, some are paused until long after their lease has ended.
//!
//! Under the lease each one reads a counter, raises it by one and stores it without an expectation, so the lease alone keeps two
//! of them apart. The history keeps every write: in the end the counter must have gone up by one each time, no
//! holder may have written between two writes of another, and no two may have held the lease at once.
//!
//! It takes 20 s, or as many as PIPELINE_STATE_HOLDERS_SECONDS says.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use harness::{Faults, Proxy, fresh_name};
use pipeline_state::{Backend, Change, Error, Expectation, Outcome, State};
use rustix::process::{Pid, Signal, kill_process};
use support::{completed, id, server, with_settings};

/// What a process is told by its environment to do instead of testing.
const JOB: &str = "PIPELINE_STATE_TEST_HOLDER";
const SECONDS: &str = "PIPELINE_STATE_HOLDERS_SECONDS";
const HOLDERS: usize = 8;
const TTL: Duration = Duration::from_secs(2);
/// Beyond the end of a lease that was renewed just before.
const PAUSE: Duration = Duration::from_millis(2_500);

/// What processes note, a line each: microseconds since 1970, what, and the token of the lease.
#[derive(Clone, Debug, PartialEq)]
enum Note {
    Held,
    /// Before it is given back, or when it is known to be lost.
    Ended,
    /// The counter was stored, or perhaps.
    Counted(u64),
    Unknown(u64),
}

struct Journal {
    file: std::fs::File,
}

impl Journal {
    fn open(folder: &Path) -> Journal {
        let path = folder.join(format!("{}.txt", std::process::id()));
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        Journal { file }
    }

    /// In one write, so that a process that is killed leaves whole lines.
    fn note(&mut self, token: &str, note: Note) {
        let (word, number) = match note {
            Note::Held => ("held", 0),
            Note::Ended => ("ended", 0),
            Note::Counted(count) => ("counted", count),
            Note::Unknown(count) => ("unknown", count),
        };
        let line = format!("{} {word} {number} {token}\n", now());
        self.file.write_all(line.as_bytes()).unwrap();
    }
}

fn now() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_micros()
}

async fn open(uri: &str, schema: &str) -> Backend {
    with_settings(uri, schema, &[("history", "true")]).await
}

/// One of the processes, when the test program is started by `run`; of itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder() {
    let Ok(job) = std::env::var(JOB) else { return };
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    let text = |name: &str| job[name].as_str().unwrap().to_owned();
    let store = open(&text("uri"), &text("schema")).await;
    let mut journal = Journal::open(Path::new(&text("folder")));
    let end = UNIX_EPOCH + Duration::from_secs(job["end"].as_u64().unwrap());
    while SystemTime::now() < end {
        match job["broken"].as_bool().unwrap() {
            true => hold_badly(&store, &mut journal).await,
            false => hold(&store, &mut journal).await,
        }
    }
}

async fn hold(store: &Backend, journal: &mut Journal) {
    let lock = store.lock(&id("a")).ttl(TTL).wait(Duration::from_secs(5));
    match lock.await {
        Ok(lease) => {
            work(&lease.backend(), lease.token(), lease.lost(), journal).await;
            // Where it fails, it ends by itself. Every other process drops it, which does the same without waiting.
            if std::process::id().is_multiple_of(2) {
                let _ends_by_itself = lease.release().await;
            }
        }
        Err(error) => assert!(is_passing(&error), "{error:?}"),
    }
}

/// As one might do it: whoever finds no lock, or an old one, puts its own there, waits a little and looks whether it still is.
async fn hold_badly(store: &Backend, journal: &mut Journal) {
    let lock = id("lock");
    let found = store.get(&lock).await.ok().flatten();
    let until = found.map_or(0, |entry| u128::from(counter(&entry.state).0));
    let token = format!("{}-{}", std::process::id(), now());
    let state = |until: u128| completed(&format!("{{\"count\":{until},\"by\":\"{token}\"}}"));
    if until > now()
        || store
            .set(&lock, state(now() + TTL.as_micros()))
            .await
            .is_err()
    {
        return tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    let found = store.get(&lock).await.ok().flatten();
    if found.is_some_and(|entry| counter(&entry.state).1 == token) {
        work(store, &token, std::future::pending(), journal).await;
        let _ = store.set(&lock, state(0)).await;
    }
}

/// Faults of the network, and leases that others have.
fn is_passing(error: &Error) -> bool {
    matches!(
        error,
        Error::Locked { .. } | Error::Unavailable { .. } | Error::TimedOut { .. }
    )
}

async fn work(
    store: &Backend,
    token: &str,
    lost: impl Future<Output = Error>,
    journal: &mut Journal,
) {
    let mut lost = std::pin::pin!(lost);
    journal.note(token, Note::Held);
    for _ in 0..3 {
        let counted = tokio::select! {
            counted = count(store, token) => counted,
            _ = &mut lost => break,
        };
        match counted {
            Ok(count) => journal.note(token, Note::Counted(count)),
            Err((count, error)) => {
                assert!(is_passing(&error), "{error:?}");
                if error.outcome() == Outcome::Unknown {
                    journal.note(token, Note::Unknown(count));
                }
                break;
            }
        }
    }
    journal.note(token, Note::Ended);
}

/// Reads, and stores one more.
async fn count(store: &Backend, token: &str) -> Result<u64, (u64, Error)> {
    let read = store.get(&id("a")).await.map_err(|error| (0, error))?;
    let next = read.map_or(0, |entry| counter(&entry.state).0) + 1;
    let state = completed(&format!("{{\"count\":{next},\"by\":\"{}\"}}", token));
    match store.set_if(&id("a"), state, Expectation::Any).await {
        Ok(_) => Ok(next),
        Err(error) => Err((next, error)),
    }
}

fn counter(state: &State) -> (u64, String) {
    let document: serde_json::Value =
        serde_json::from_str(state.completed.as_ref().unwrap()).unwrap();
    (
        document["count"].as_u64().unwrap(),
        document["by"].as_str().unwrap().to_owned(),
    )
}

/// What is found to be wrong, and how much there was to be wrong.
#[derive(Debug, Default)]
struct Verdict {
    wrong: Vec<String>,
    leases: usize,
    writes: usize,
    killed: usize,
    paused: usize,
    faults: usize,
}

fn faults(seed: u64) -> Faults {
    Faults {
        before: 0.03,
        after: 0.03,
        delay: Some((0.05, Duration::from_millis(30))),
        duplicate: 0.05,
        ..Faults::none(seed)
    }
}

async fn run(seconds: u64, broken: bool) -> Verdict {
    let schema = fresh_name("holders");
    let store = open(&server().uri("default"), &schema).await;
    store.migrate().await.unwrap();
    let proxy = Proxy::start(server().address().parse().unwrap(), faults(11)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let end = SystemTime::now() + Duration::from_secs(seconds);
    let job = serde_json::json!({
        "uri": server().uri("default").replace(&server().address(), &proxy.address().to_string()),
        "schema": schema,
        "folder": folder.path(),
        "broken": broken,
        "end": end.duration_since(UNIX_EPOCH).unwrap().as_secs(),
    });
    let mut verdict = Verdict::default();
    let (disturbed, counts) = {
        let folder = folder.path().to_owned();
        tokio::task::spawn_blocking(move || disturb(&job.to_string(), end, &folder))
            .await
            .unwrap()
    };
    (verdict.killed, verdict.paused) = counts;
    verdict.faults = proxy.count();
    check_leases(folder.path(), &disturbed, &mut verdict);
    check_writes(folder.path(), &store, &mut verdict).await;
    verdict
}

/// When processes were killed or paused: until then what they held counts as held.
type Disturbed = HashMap<u32, Vec<u128>>;

fn start(job: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder", "--nocapture"])
        .env(JOB, job)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Starts the processes, and kills or pauses one of them every now and then; for one that is killed another one starts.
fn disturb(job: &str, end: SystemTime, folder: &Path) -> (Disturbed, (usize, usize)) {
    let mut children: Vec<Child> = (0..HOLDERS).map(|_| start(job)).collect();
    let mut disturbed = Disturbed::new();
    let (mut killed, mut paused) = (0, 0);
    std::thread::sleep(Duration::from_secs(2));
    while SystemTime::now() + PAUSE < end {
        std::thread::sleep(Duration::from_millis(700));
        // The one who holds it now, as far as its journal tells: there it hurts.
        let place = holding(&children, folder).unwrap_or((killed + paused) % HOLDERS);
        let child = &mut children[place];
        let pid = Pid::from_child(child);
        if usize::is_multiple_of(killed + paused, 2) {
            child.kill().unwrap();
            child.wait().unwrap();
            disturbed.entry(child.id()).or_default().push(now());
            killed += 1;
            *child = start(job);
        } else {
            kill_process(pid, Signal::STOP).unwrap();
            disturbed.entry(child.id()).or_default().push(now());
            std::thread::sleep(PAUSE);
            kill_process(pid, Signal::CONT).unwrap();
            paused += 1;
        }
    }
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    (disturbed, (killed, paused))
}

fn holding(children: &[Child], folder: &Path) -> Option<usize> {
    children.iter().position(|child| {
        let path = folder.join(format!("{}.txt", child.id()));
        let notes = std::fs::read_to_string(path).unwrap_or_default();
        notes
            .lines()
            .last()
            .is_some_and(|line| !line.contains("ended"))
    })
}

struct Line {
    at: u128,
    note: Note,
    token: String,
}

fn journals(folder: &Path) -> Vec<(u32, Vec<Line>)> {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let journal = |path: PathBuf| {
        let process = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let count = words[2].parse().unwrap();
            Line {
                at: words[0].parse().unwrap(),
                note: match words[1] {
                    "held" => Note::Held,
                    "ended" => Note::Ended,
                    "counted" => Note::Counted(count),
                    "unknown" => Note::Unknown(count),
                    other => panic!("{other}"),
                },
                token: words[3].to_owned(),
            }
        });
        (process, lines.collect())
    };
    files.map(journal).collect()
}

/// No two at once. Who is killed holds until then; who is paused holds until then as well, if it finds itself paused for too long:
/// it can do nothing meanwhile, and what it does afterwards is refused, which `check_writes` sees.
fn check_leases(folder: &Path, disturbed: &Disturbed, verdict: &mut Verdict) {
    let mut held: Vec<(u128, u128, String)> = Vec::new();
    for (process, lines) in journals(folder) {
        for start in lines.iter().filter(|line| line.note == Note::Held) {
            let end = lines
                .iter()
                .find(|line| line.note == Note::Ended && line.token == start.token)
                .map_or(u128::MAX, |line| line.at);
            let cut = disturbed.get(&process).into_iter().flatten().copied();
            let cut = cut.filter(|at| (start.at..end).contains(at)).min();
            held.push((start.at, cut.unwrap_or(end), start.token.clone()));
        }
    }
    held.sort();
    verdict.leases = held.len();
    for pair in held.windows(2) {
        let [(_, end, one), (start, _, other)] = pair else {
            continue;
        };
        if start < end {
            verdict.wrong.push(format!(
                "{one} and {other} held the lease at once for {} us",
                end - start
            ));
        }
    }
    let tokens: HashSet<&String> = held.iter().map(|(.., token)| token).collect();
    if tokens.len() != held.len() {
        verdict.wrong.push("two leases have one token".to_owned());
    }
}

/// The counter goes up by one with each write, what was counted is there once, and nobody writes after the next holder did.
async fn check_writes(folder: &Path, store: &Backend, verdict: &mut Verdict) {
    let mut changes = Vec::new();
    loop {
        let before = changes.last().map(|change: &Change| change.version);
        let page = store.versions(&id("a"), before, 1_000).await.unwrap();
        if page.is_empty() {
            break;
        }
        changes.extend(page);
    }
    let written: Vec<(u64, String)> = changes
        .iter()
        .rev()
        .filter_map(|change| change.state.as_ref())
        .map(counter)
        .collect();
    verdict.writes = written.len();
    for (place, (count, by)) in written.iter().enumerate() {
        if *count != place as u64 + 1 {
            verdict
                .wrong
                .push(format!("write {} stored {count}, by {by}", place + 1));
        }
    }
    let mut before = HashSet::new();
    for pair in written.chunk_by(|(_, one), (_, other)| one == other) {
        if !before.insert(&pair[0].1) {
            verdict
                .wrong
                .push(format!("{} wrote after the next holder did", pair[0].1));
        }
    }
    let stored: HashSet<&(u64, String)> = written.iter().collect();
    for (_, lines) in journals(folder) {
        for line in lines {
            if let Note::Counted(count) = line.note
                && !stored.contains(&(count, line.token.clone()))
            {
                verdict.wrong.push(format!(
                    "{count} was reported as stored by {}, and is not",
                    line.token
                ));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_hold_a_lease_at_once_and_no_write_is_lost() {
    let seconds = std::env::var(SECONDS)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20);
    let start = Instant::now();
    let verdict = run(seconds, false).await;
    let Verdict {
        leases,
        writes,
        killed,
        paused,
        faults,
        ..
    } = verdict;
    println!(
        "{leases} leases, {writes} writes, {killed} killed, {paused} paused, {faults} faults, {:?}",
        start.elapsed()
    );
    assert_eq!(verdict.wrong, Vec::<String>::new());
    assert!(
        leases > 20 && writes > 20 && killed > 1 && paused > 1 && faults > 20,
        "{leases} {writes} {killed} {paused} {faults}"
    );
}

/// That the test above can fail: with a lock of the common kind it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_lock_that_is_read_and_then_written_two_hold_it_and_writes_are_lost() {
    let verdict = run(8, true).await;
    let found = |text: &str| verdict.wrong.iter().any(|wrong| wrong.contains(text));
    assert!(found("held the lease at once"), "{verdict:?}");
    assert!(found(" stored "), "{verdict:?}");
}
