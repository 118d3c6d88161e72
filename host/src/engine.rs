//! The WebAssembly engine, once for each [`Plugins`](crate::Plugins): configuration, compile cache, ticker.

use std::path::{Path, PathBuf};
use std::time::Duration;

use wasmtime::{Cache, CacheConfig, Config, Enabled, Engine, PoolingAllocationConfig};

use crate::Error;

/// How often a plugin that computes gives way to others, and so to the deadline of its call. It bounds how
/// late a deadline can be noticed; at 10 ms the ticker costs nothing that can be measured.
const TICK: Duration = Duration::from_millis(10);

/// How many calls run at once; more wait for their turn. Each has 4 GiB of address space set aside for its memory, of
/// which only what it uses is ever real.
pub(crate) const CALLS_AT_ONCE: u32 = 256;

/// How much memory each place in the pool keeps from one call to the next, zeroed or as the plugin's file has it: what a call for a
/// state of some kilobytes writes to, several times.
const KEPT: usize = 2 * 1024 * 1024;

/// Where compiled plugins are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompileCache {
    /// Where wasmtime keeps its own: a folder of the user's cache directory.
    UserFolder,
    Folder(std::path::PathBuf),
    Off,
}

/// `memory` is the most that a plugin may have, in bytes.
pub(crate) fn new(cache: &CompileCache, memory: usize) -> Result<Engine, Error> {
    let mut config = Config::new();
    config.wasm_component_model(true);
    config.concurrency_support(false);
    config.epoch_interruption(true);
    config.cache(open(cache)?);
    let mut pooling = config.clone();
    pooling.allocation_strategy(pool(memory));
    // Where address space is short (`ulimit -v`, 32 bits), each call maps its memory anew, which costs it some 0.2 ms.
    let engine = Engine::new(&pooling).or_else(|error| {
        tracing::debug!(%error, "no pool of instances");
        Engine::new(&config)
    });
    let engine = engine.map_err(|error| Error::PluginFailed {
        reason: format!("no WebAssembly engine on this machine: {error:#}"),
        outcome: crate::Outcome::NotApplied,
    })?;
    start_ticker(&engine)?;
    Ok(engine)
}

fn pool(memory: usize) -> PoolingAllocationConfig {
    // A component is its module and a few small ones that the encoder adds, with one memory among them.
    const MODULES: u32 = 8;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(CALLS_AT_ONCE)
        .total_stacks(CALLS_AT_ONCE)
        .total_memories(CALLS_AT_ONCE)
        .total_tables(CALLS_AT_ONCE * MODULES)
        .total_core_instances(CALLS_AT_ONCE * MODULES)
        .max_core_instances_per_component(MODULES)
        .max_tables_per_component(MODULES)
        .max_memories_per_component(1)
        .max_memory_size(memory);
    // Where Linux tells which pages a call has written to (since 6.7), those alone are set back for the next call, and it meets no
    // page fault at each of them. Elsewhere that would cost more than it saves.
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        pool.pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(KEPT)
            .table_keep_resident(KEPT);
    }
    pool
}

/// The user's own folder is a convenience, so without it (no home, a read-only disk) plugins are compiled
/// each time. One that was asked for must work.
fn open(cache: &CompileCache) -> Result<Option<Cache>, Error> {
    match cache {
        CompileCache::Off => Ok(None),
        CompileCache::UserFolder => Ok(user_folder()
            .and_then(|folder| open_folder(&folder))
            .inspect_err(|error| tracing::warn!(%error, "no compile cache"))
            .ok()),
        CompileCache::Folder(folder) => open_folder(folder).map(Some).map_err(|reason| {
            Error::InvalidInput(format!(
                "{}: no compile cache can be kept there: {reason}",
                folder.display()
            ))
        }),
    }
}

/// Beside wasmtime's own, which may be open to a group.
fn user_folder() -> Result<PathBuf, String> {
    let cache = Cache::new(CacheConfig::new()).map_err(|error| format!("{error:#}"))?;
    Ok(cache.directory().with_file_name("pipeline-state"))
}

fn open_folder(folder: &Path) -> Result<Cache, String> {
    make_private(folder).map_err(|error| error.to_string())?;
    let cache = Cache::new(with_folder(folder)).map_err(|error| format!("{error:#}"))?;
    check_private(cache.directory())?;
    Ok(cache)
}

/// What is in there is run as it is: whoever can write to it can run code in this process.
#[cfg(unix)]
fn check_private(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;

    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let facts = std::fs::metadata(folder).map_err(|error| error.to_string())?;
    if facts.uid() != rustix::process::geteuid().as_raw() {
        return Err("it belongs to another user".to_owned());
    }
    match facts.mode() & WRITABLE_BY_OTHERS {
        0 => Ok(()),
        _ => Err("others can write to it; take that from them: chmod go-w".to_owned()),
    }
}

#[cfg(unix)]
fn make_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;

    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)
}

/// A user's folders are closed to other users there.
#[cfg(not(unix))]
fn check_private(_: &Path) -> Result<(), String> {
    Ok(())
}

#[cfg(not(unix))]
fn make_private(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)
}

fn with_folder(folder: &Path) -> CacheConfig {
    let mut config = CacheConfig::new();
    config.with_directory(folder);
    config
}

/// One thread for the engine, which ends within a tick of it.
fn start_ticker(engine: &Engine) -> Result<(), Error> {
    let engine = engine.weak();
    std::thread::Builder::new()
        .name("pipeline-state-ticker".to_owned())
        .spawn(move || {
            while let Some(engine) = engine.upgrade() {
                engine.increment_epoch();
                drop(engine);
                std::thread::sleep(TICK);
            }
        })
        .map(drop)
        .map_err(|error| Error::PluginFailed {
            reason: format!("no thread can be started: {error}"),
            outcome: crate::Outcome::NotApplied,
        })
}
