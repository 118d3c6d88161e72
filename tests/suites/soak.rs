//! Many calls, one after the other and side by side, on one store: nothing grows.
//!
//! Some thousand unless `PIPELINE_STATE_SOAK_GETS` says how many.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use harness::Memory;
use pipeline_state::{Plugins, Settings};
use support::{completed, id, server};
use tokio::task::JoinSet;

const GETS: usize = 2_000;
const IN_FLIGHT: usize = 64;
const CONNECTIONS: usize = 32;
/// What the memory of a process may grow by whatever it does: allocators keep what was free once.
const SLACK_KIB: usize = 24 * 1024;

/// How many sockets this process has, and how many files of any kind.
fn open_files() -> (usize, usize) {
    let files: Vec<_> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .collect();
    let sockets = files
        .iter()
        .filter(|file| file.to_string_lossy().starts_with("socket:"));
    (sockets.count(), files.len())
}

/// How many connections to this port are over, and still kept by the system.
fn time_wait(port: u16) -> usize {
    // The state and the remote port, as the kernel writes them.
    const TIME_WAIT: &str = "06";
    let port = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .map(|table| {
            let rows = table.lines().skip(1).filter(|row| {
                let columns: Vec<_> = row.split_whitespace().collect();
                columns[3] == TIME_WAIT
                    && (columns[1].ends_with(&port) || columns[2].ends_with(&port))
            });
            rows.count()
        })
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_leave_memory_sockets_and_connections_as_they_were() {
    let gets = std::env::var("PIPELINE_STATE_SOAK_GETS").map_or(GETS, |text| text.parse().unwrap());
    let plugins = Plugins::builder()
        .connections(CONNECTIONS)
        .build()
        .await
        .unwrap();
    let settings = Settings::new().set("schema", harness::fresh_name("soak"));
    let backend = plugins.open(&server().uri("default"), &settings).unwrap();
    let origin = backend.origin().unwrap();
    let port = origin.rsplit_once(':').unwrap().1.parse().unwrap();
    let state = completed(&format!(r#"{{"x":"{}"}}"#, "x".repeat(4000)));
    backend.set(&id("a"), state.clone()).await.unwrap();

    let run = async |gets: usize| {
        let next = Arc::new(AtomicUsize::new(0));
        let mut workers = JoinSet::new();
        for _ in 0..IN_FLIGHT {
            let (backend, next, state) = (backend.clone(), Arc::clone(&next), state.clone());
            workers.spawn(async move {
                while next.fetch_add(1, Relaxed) < gets {
                    let entry = backend.get(&id("a")).await.unwrap().unwrap();
                    assert_eq!(entry.state, state);
                }
            });
        }
        let (mut most_sockets, mut most_files) = open_files();
        while !workers.is_empty() {
            tokio::select! {
                done = workers.join_next() => done.unwrap().unwrap(),
                () = tokio::time::sleep(Duration::from_millis(20)) => {
                    let (sockets, files) = open_files();
                    most_sockets = most_sockets.max(sockets);
                    most_files = most_files.max(files);
                }
            }
        }
        (most_sockets, most_files)
    };

    // Each place of the pool of instances is used once, and each connection made.
    run(gets.min(GETS) / 2).await;
    let (before, waiting) = (Memory::Resident.kib(None).unwrap(), time_wait(port));
    let start = Instant::now();
    let (sockets, files) = run(gets).await;
    let elapsed = start.elapsed();
    let (after, waiting_after) = (Memory::Resident.kib(None).unwrap(), time_wait(port));
    println!(
        "{gets} gets in {elapsed:.1?} ({:.0} a second), {IN_FLIGHT} in flight; memory {before} to {after} KiB; \
         at most {sockets} sockets and {files} files; {waiting} to {waiting_after} connections in TIME_WAIT",
        gets as f64 / elapsed.as_secs_f64()
    );
    assert!(
        after <= before + SLACK_KIB,
        "memory grew from {before} to {after} KiB"
    );
    // The runtime has some of its own.
    assert!(sockets <= CONNECTIONS + 8, "{sockets} sockets");
    assert!(files <= CONNECTIONS + 64, "{files} files");
    assert!(
        waiting_after <= waiting + CONNECTIONS,
        "{waiting} to {waiting_after} connections are over"
    );
}
