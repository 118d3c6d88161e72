//! What the tests and `cargo dev` stand on. It knows nothing of plugins or hosts.
//!
//! - [`ClickHouse`]: a real server: one that the user names, an installed one, or one from a Python wheel.
//! - [`ZooKeeper`]: a real one, for servers that share it.
//! - [`Proxy`]: the network's faults, in front of a real server.
//! - [`Stub`]: a server of canned answers, for faults that a real one won't produce, and to count requests.
//! - [`Hostile`]: a server that answers late, for ever, or wrongly.
//! - [`Memory`]: how much of it a process has.
//! - [`TlsFront`]: TLS in front of a server, with good certificates and bad ones.
//! - [`wasmtime`]: a program that runs components, and knows nothing of ours.

mod certificates;
mod clickhouse;
mod hostile;
mod http2;
mod listening;
mod memory;
mod message;
mod proxy;
mod stub;
mod tls;
mod wasmtime;
mod wheel;
mod zookeeper;

pub use certificates::Certificate;
pub use clickhouse::{ClickHouse, Error, GIVEN_VARIABLE, prepare, workspace};
pub use hostile::{Behaviour, Hostile};
pub use memory::Memory;
pub use proxy::{Faults, Proxy};
pub use stub::{Received, Stub};
pub use tls::TlsFront;
pub use wasmtime::wasmtime;
pub use zookeeper::ZooKeeper;

/// A name for a database that no other test uses, also where several runs share one server.
///
/// ```
/// assert_ne!(harness::fresh_name("state"), harness::fresh_name("state"));
/// ```
pub fn fresh_name(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    format!(
        "{prefix}_{}_{}_{}",
        now.as_millis(),
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}
