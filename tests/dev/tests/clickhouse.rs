//! `cargo dev clickhouse`: the server is there, and ends with the process that started it, however that ends.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn the_server_ends_when_its_parent_is_killed() {
    let mut parent = Command::new(env!("CARGO_BIN_EXE_dev"))
        .args(["clickhouse", "--port", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = parent.stdout.take().unwrap();
    let uri = BufReader::new(stdout)
        .lines()
        .find_map(|line| {
            line.unwrap()
                .trim()
                .strip_prefix("export PIPELINE_STATE_URI=")
                .map(str::to_owned)
        })
        .unwrap();
    let (_, rest) = uri.split_once("@").unwrap();
    let (address, _) = rest.split_once('/').unwrap();
    assert!(TcpStream::connect(address).is_ok(), "{uri}");

    // SIGKILL on Unix: it has no chance to do anything more.
    parent.kill().unwrap();
    parent.wait().unwrap();
    let start = Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{address} still listens"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
