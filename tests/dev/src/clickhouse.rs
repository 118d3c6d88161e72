//! `cargo dev clickhouse`: a server for a person to try things on.

use harness::ClickHouse;

use crate::setup;

pub(crate) fn clickhouse(port: u16) -> Result<(), String> {
    setup::setup()?;
    let server = ClickHouse::start_on(port).map_err(|error| error.to_string())?;
    let (user, password) = server.user();
    println!("\nClickHouse is up until you press Ctrl-C; its data goes with it.");
    println!("  export PIPELINE_STATE_URI={}", server.uri("meltano"));
    println!(
        "  curl -u {user}:{password} http://{}/ --data-binary 'SELECT version()'",
        server.address()
    );
    // The server ends when this process does, however that ends.
    loop {
        std::thread::park();
    }
}
