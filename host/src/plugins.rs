//! The plugins of a process, by the schemes that they serve.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use wasmtime::Engine;

use crate::Error;
use crate::backend::Backend;
use crate::call::Limits;
use crate::engine::{self, CompileCache};
use crate::plugin::{self, Description, Inspection, Plugin};
use crate::settings::Settings;
use crate::target::{Target, scheme_of};

/// The ClickHouse plugin, built with this crate.
const CLICKHOUSE: &[u8] = include_bytes!(env!("CLICKHOUSE_COMPONENT"));

/// How long a call may take unless told otherwise: more than the plugin's own time-outs for one request, which
/// say better what happened, and less than what anybody waits for.
const DEADLINE: Duration = Duration::from_secs(120);
/// So that adding it to the time of day can't overflow.
const LONGEST_DEADLINE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// A document of 64 MiB, its copy in a request or a response, and room to work.
const MEMORY: usize = 512 * 1024 * 1024;

/// What a 32-bit address reaches.
const LARGEST_MEMORY: usize = 4 * 1024 * 1024 * 1024;

/// The plugins that were loaded, by scheme. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), pipeline_state::Error> {
/// use pipeline_state::Plugins;
///
/// let plugins = Plugins::builder().build().await?;
/// let loaded: Vec<_> = plugins.iter().map(|plugin| plugin.scheme).collect();
/// assert_eq!(loaded, ["clickhouse"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Plugins {
    by_scheme: Arc<BTreeMap<String, Arc<Plugin>>>,
    limits: Limits,
}

/// One scheme and the plugin that serves it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Served<'a> {
    /// The scheme.
    pub scheme: &'a str,
    /// Where the plugin is from: a path, or `embedded`.
    pub source: &'a str,
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: &'a str,
    /// What the plugin says of itself.
    pub description: &'a Description,
}

impl Plugins {
    /// Says which plugins to load, and how. Without more, that is the ClickHouse one that comes with this crate.
    pub fn builder() -> Builder {
        Builder {
            embedded: true,
            directories: Vec::new(),
            cache: CompileCache::UserFolder,
            limits: Limits::new(DEADLINE, MEMORY),
        }
    }

    /// Opens the store that a URI and settings name, with the plugin that serves the URI's scheme.
    ///
    /// Nothing is sent: whether the store can be reached shows at the first call.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] where the URI has no scheme, [`Error::UnknownScheme`] where no plugin serves it.
    pub fn open(&self, uri: &str, settings: &Settings) -> Result<Backend, Error> {
        let scheme = scheme_of(uri)?;
        let Some(plugin) = self.by_scheme.get(&scheme) else {
            return Err(Error::UnknownScheme {
                scheme,
                known: self.by_scheme.keys().cloned().collect(),
            });
        };
        let target = Target::new(uri, &scheme, settings, &plugin.description);
        Backend::new(Arc::clone(plugin), target, self.limits.clone())
    }

    /// The schemes and the plugins that serve them, in the order of the schemes.
    pub fn iter(&self) -> impl Iterator<Item = Served<'_>> {
        self.by_scheme.iter().map(|(scheme, plugin)| Served {
            scheme,
            source: &plugin.source,
            digest: &plugin.digest,
            description: &plugin.description,
        })
    }
}

/// Which plugins to load, and how. See [`Plugins::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    embedded: bool,
    directories: Vec<PathBuf>,
    cache: CompileCache,
    limits: Limits,
}

impl Builder {
    /// Leaves the embedded ClickHouse plugin out, for example because a folder has a newer one.
    pub fn without_embedded(mut self) -> Builder {
        self.embedded = false;
        self
    }

    /// Loads every `.wasm` file of a folder too. One that is no plugin is an error of [`Builder::build`].
    pub fn directory(mut self, folder: impl Into<PathBuf>) -> Builder {
        self.directories.push(folder.into());
        self
    }

    /// Keeps compiled plugins in this folder instead of one in the user's cache directory.
    ///
    /// Whoever can write to it can run code in this process.
    pub fn cache_folder(mut self, folder: impl Into<PathBuf>) -> Builder {
        self.cache = CompileCache::Folder(folder.into());
        self
    }

    /// Keeps no compiled plugins: each [`Builder::build`] compiles anew, some 100 ms for each plugin.
    pub fn without_cache(mut self) -> Builder {
        self.cache = CompileCache::Off;
        self
    }

    /// How long one call may take, waiting for the store included; 120 s unless told otherwise, a year at most.
    pub fn call_deadline(mut self, deadline: Duration) -> Builder {
        self.limits.deadline = deadline.min(LONGEST_DEADLINE);
        self
    }

    /// How much memory, in bytes, a plugin may use in one call; 512 MiB unless told otherwise, 4 GiB at most.
    pub fn memory(mut self, bytes: usize) -> Builder {
        self.limits.memory = bytes.min(LARGEST_MEMORY);
        self
    }

    /// Loads the plugins. The first time, each is compiled, which takes some 100 ms.
    ///
    /// # Errors
    ///
    /// [`Error::BadPlugin`] names a file that can't be used, or a folder that holds no plugin, and says why;
    /// [`Error::SchemeTaken`] names two plugins that serve one scheme.
    pub async fn build(self) -> Result<Plugins, Error> {
        let engine = engine::new(&self.cache, self.limits.memory)?;
        let mut by_scheme = BTreeMap::new();
        if self.embedded {
            let plugin = Plugin::load(&engine, "embedded", CLICKHOUSE, &self.limits).await?;
            register(&mut by_scheme, plugin)?;
        }
        for folder in &self.directories {
            for path in components_in(folder)? {
                let plugin = load_file(&engine, &path, &self.limits).await?;
                register(&mut by_scheme, plugin)?;
            }
        }
        Ok(Plugins {
            by_scheme: Arc::new(by_scheme),
            limits: self.limits,
        })
    }

    /// Looks at a file before anybody trusts it. None of its code runs unless it imports no more than a plugin may.
    ///
    /// # Errors
    ///
    /// [`Error::BadPlugin`] where the file is not a component.
    pub async fn inspect(self, path: &Path) -> Result<Inspection, Error> {
        let engine = engine::new(&self.cache, self.limits.memory)?;
        let bytes = plugin::read(path)?;
        Plugin::inspect(&engine, &path.display().to_string(), &bytes, &self.limits).await
    }
}

async fn load_file(engine: &Engine, path: &Path, limits: &Limits) -> Result<Plugin, Error> {
    let bytes = plugin::read(path)?;
    Plugin::load(engine, &path.display().to_string(), &bytes, limits).await
}

fn register(by_scheme: &mut BTreeMap<String, Arc<Plugin>>, plugin: Plugin) -> Result<(), Error> {
    let plugin = Arc::new(plugin);
    for scheme in &plugin.description.schemes {
        match by_scheme.entry(scheme.clone()) {
            Slot::Vacant(slot) => {
                slot.insert(Arc::clone(&plugin));
            }
            Slot::Occupied(slot) => {
                return Err(Error::SchemeTaken {
                    scheme: scheme.clone(),
                    first: slot.get().source.clone(),
                    second: plugin.source.clone(),
                });
            }
        }
    }
    Ok(())
}

/// The `.wasm` files of a folder in the order of their names, so that errors are the same each time.
fn components_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let bad = |reason: String| Error::bad_plugin(folder.display().to_string(), reason);
    let entries = std::fs::read_dir(folder).map_err(|error| bad(error.to_string()))?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad(error.to_string()))?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "wasm"));
    if paths.is_empty() {
        return Err(bad(
            "there is no plugin in this folder, no file whose name ends in .wasm".to_owned(),
        ));
    }
    paths.sort();
    Ok(paths)
}
