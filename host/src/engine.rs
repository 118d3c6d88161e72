//! The WebAssembly engine, once for each [`Plugins`](crate::Plugins): configuration, compile cache, ticker.

use std::path::Path;
use std::time::Duration;

use wasmtime::{Cache, CacheConfig, Config, Engine, PoolingAllocationConfig};

use crate::Error;

/// How often a plugin that computes gives way to others, and so to the deadline of its call. It bounds how
/// late a deadline can be noticed; at 10 ms the ticker costs nothing that can be measured.
const TICK: Duration = Duration::from_millis(10);

/// How many calls run at once; more wait for their turn. Each has 4 GiB of address space set aside for its memory, of
/// which only what it uses is ever real.
pub(crate) const CALLS_AT_ONCE: u32 = 256;

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
    pool
}

/// The user's own folder is a convenience, so without it (no home, a read-only disk) plugins are compiled
/// each time. One that was asked for must work.
fn open(cache: &CompileCache) -> Result<Option<Cache>, Error> {
    match cache {
        CompileCache::Off => Ok(None),
        CompileCache::UserFolder => Ok(Cache::new(CacheConfig::new())
            .inspect_err(|error| tracing::debug!(%error, "no compile cache"))
            .ok()),
        CompileCache::Folder(folder) => {
            Cache::new(with_folder(folder)).map(Some).map_err(|error| {
                Error::InvalidInput(format!(
                    "{}: no compile cache can be kept there: {error:#}",
                    folder.display()
                ))
            })
        }
    }
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
