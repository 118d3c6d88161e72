//! A plugin and a command as one component.

use std::path::Path;

use wac_graph::types::Package;
use wac_graph::{CompositionGraph, EncodeOptions, plug};

use crate::component::{Error, write};

/// Puts two components into one, `file`: the command gets what it imports of the contract from the plugin, and what both import of
/// WASI is left for the runtime.
///
/// ```no_run
/// use std::path::Path;
///
/// let folder = Path::new("target/components/build");
/// let plugin = component_build::build("pipeline-state-clickhouse", folder)?;
/// let command = component_build::build("pipeline-state-command", folder)?;
/// component_build::compose(&plugin, &command, Path::new("pipeline-state-clickhouse.wasm"))?;
/// # Ok::<(), component_build::Error>(())
/// ```
///
/// # Errors
///
/// Where a file can't be read or written, or the plugin offers nothing that the command imports.
pub fn compose(plugin: &Path, command: &Path, file: &Path) -> Result<(), Error> {
    let read =
        |path: &Path| std::fs::read(path).map_err(|error| Error::File(path.to_owned(), error));
    let composed = encode(read(plugin)?, read(command)?)
        .map_err(|error| Error::Compose(format!("{error:#}")))?;
    write(file, &composed).map_err(|error| Error::File(file.to_owned(), error))
}

fn encode(plugin: Vec<u8>, command: Vec<u8>) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut graph = CompositionGraph::new();
    let mut register = |name: &str, bytes: Vec<u8>| -> Result<_, Box<dyn std::error::Error>> {
        let package = Package::from_bytes(name, None, bytes, graph.types_mut())?;
        Ok(graph.register_package(package)?)
    };
    let plugin = register("pipeline:plugin", plugin)?;
    let command = register("pipeline:command", command)?;
    plug(&mut graph, vec![plugin], command)?;
    Ok(graph.encode(EncodeOptions::default())?)
}
