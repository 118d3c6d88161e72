//! Builds the ClickHouse plugin, so that the library can embed it.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    component_build::rerun_if_changed(&["guest/Cargo.toml", "guest/src"]);
    let out = std::env::var("OUT_DIR")?;
    let component = component_build::build(
        "pipeline-state-clickhouse",
        &Path::new(&out).join("component"),
    )?;
    println!(
        "cargo::rustc-env=CLICKHOUSE_COMPONENT={}",
        component.display()
    );
    Ok(())
}
