//! Two servers on one ZooKeeper, which ends and comes back.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests break off to fail")]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use harness::{ClickHouse, ZooKeeper};

/// ClickHouse's code for whatever ZooKeeper refuses, and for not reaching it.
const KEEPER_EXCEPTION: &str = "Code: 999.";
/// A session of the servers ends with ZooKeeper, and they look for a new one by themselves.
const RECOVERY_LIMIT: Duration = Duration::from_secs(30);

fn replica(zookeeper: &ZooKeeper, name: &str) -> ClickHouse {
    let server = ClickHouse::start_replica(zookeeper, name).unwrap();
    server.query("CREATE DATABASE shared").unwrap();
    server
        .query(
            "CREATE TABLE shared.t (key String, value UInt64) ENGINE = KeeperMap('/t') PRIMARY KEY key",
        )
        .unwrap();
    server
}

fn insert(server: &ClickHouse, key: &str) -> Result<String, String> {
    server
        .query(&format!(
            "INSERT INTO shared.t SETTINGS keeper_map_strict_mode = 1, insert_keeper_max_retries = 1 VALUES ('{key}', 1)"
        ))
        .map_err(|error| error.to_string())
}

fn keys(server: &ClickHouse) -> String {
    server
        .query("SELECT key FROM shared.t ORDER BY key")
        .unwrap()
}

#[test]
fn two_servers_share_a_zookeeper_that_ends_and_comes_back() {
    let mut zookeeper = ZooKeeper::start().unwrap();
    let first = replica(&zookeeper, "r1");
    let second = replica(&zookeeper, "r2");

    insert(&first, "a").unwrap();
    assert_eq!(keys(&second), "a\n");
    for server in [&first, &second] {
        let refused = insert(server, "a").unwrap_err();
        assert!(refused.starts_with(KEEPER_EXCEPTION), "{refused}");
        assert!(refused.contains("Node exists"), "{refused}");
    }
    insert(&second, "b").unwrap();
    assert_eq!(keys(&first), "a\nb\n");
    let macros: Vec<_> = [&first, &second]
        .map(|server| server.query("SELECT getMacro('replica')").unwrap())
        .into();
    assert_eq!(macros, ["r1\n", "r2\n"]);

    zookeeper.stop().unwrap();
    assert!(TcpStream::connect(zookeeper.address()).is_err());
    let start = Instant::now();
    let refused = insert(&first, "c").unwrap_err();
    assert!(refused.starts_with(KEEPER_EXCEPTION), "{refused}");
    assert!(start.elapsed() < Duration::from_secs(10), "{refused}");

    zookeeper.start_again().unwrap();
    let start = Instant::now();
    for server in [&first, &second] {
        // The one whose answer got lost may have been stored.
        while let Err(refused) = insert(server, &server.address()) {
            if refused.contains("Node exists") {
                break;
            }
            assert!(start.elapsed() < RECOVERY_LIMIT, "{refused}");
            thread::sleep(Duration::from_millis(100));
        }
    }
    let seen = keys(&second);
    for key in ["a", "b", &first.address(), &second.address()] {
        assert!(seen.lines().any(|line| line == key), "{key} in {seen}");
    }
}

#[test]
fn it_ends_with_the_process_that_started_it() {
    // This program runs itself, this test alone, as that process.
    const CHILD: &str = "PIPELINE_STATE_TEST_TO_BE_KILLED";
    if env::var_os(CHILD).is_some() {
        let zookeeper = ZooKeeper::start().unwrap();
        println!("address {}", zookeeper.address());
        thread::sleep(Duration::from_secs(60));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut parent = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("it_ends_with_the_process_that_started_it")
        .env(CHILD, "1")
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let address = BufReader::new(parent.stdout.take().unwrap())
        .lines()
        .find_map(|line| Some(line.unwrap().split_once("address ")?.1.to_owned()))
        .unwrap();
    assert!(TcpStream::connect(&address).is_ok(), "{address}");

    parent.kill().unwrap();
    parent.wait().unwrap();
    let start = Instant::now();
    let left = || fs::read_dir(folder.path()).unwrap().count();
    while TcpStream::connect(&address).is_ok() || left() > 0 {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{address} and {} folders are left",
            left()
        );
        thread::sleep(Duration::from_millis(20));
    }
}
