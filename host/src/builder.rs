//! Which plugins to load, and how.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use crate::Error;
use crate::call::Limits;
use crate::ceiling::Ceiling;
use crate::engine::{self, CompileCache};
use crate::observe::{CallReport, Observer};
use crate::outbound::{self, Client, Network, Resolve, Tls};
use crate::plugin::{self, Inspection, Plugin};
use crate::plugins::{Loaded, Plugins};
use crate::policy::Policy;
use crate::source::{self, Source};

/// How long a call may take unless told otherwise: more than the plugin's own time-outs for one request, which
/// say better what happened, and less than what anybody waits for.
const DEADLINE: Duration = Duration::from_secs(120);
/// So that adding it to the time of day can't overflow.
const LONGEST_DEADLINE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// A document of 64 MiB, its copy in a request or a response, and room to work.
const MEMORY: usize = 512 * 1024 * 1024;

/// Some more than a server needs to be busy, and far less than a ClickHouse as shipped allows (`max_connections`, 4096).
const CONNECTIONS: usize = 64;

/// What a 32-bit address reaches.
const LARGEST_MEMORY: usize = 4 * 1024 * 1024 * 1024;

/// Which plugins to load, and how. See [`Plugins::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    embedded: bool,
    directories: Vec<PathBuf>,
    sources: Vec<Source>,
    files: Vec<PathBuf>,
    cache: CompileCache,
    limits: Limits,
    policy: Policy,
    resolve: Resolve,
    tls: Tls,
    connections: usize,
    trusted: BTreeSet<String>,
    observer: Option<Observer>,
}

impl Builder {
    pub(crate) fn new() -> Builder {
        Builder {
            embedded: true,
            directories: Vec::new(),
            sources: Vec::new(),
            files: Vec::new(),
            cache: CompileCache::UserFolder,
            limits: Limits::new(DEADLINE, MEMORY),
            policy: Policy::default(),
            resolve: Resolve::default(),
            tls: Tls::new(),
            connections: CONNECTIONS,
            trusted: BTreeSet::new(),
            observer: None,
        }
    }

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

    /// Loads one file too. `digest` is what it must have, as `sha256:` and 64 hexadecimal digits; `plugins inspect` prints that.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use pipeline_state::{Error, Plugins};
    ///
    /// let pin = format!("sha256:{}", "0".repeat(64));
    /// let refused = Plugins::builder().plugin("/bin/sh", Some(&pin)).build().await;
    /// assert!(matches!(refused, Err(Error::BadPlugin { reason, .. }) if reason.contains("digest")));
    /// # }
    /// ```
    pub fn plugin(mut self, path: impl Into<PathBuf>, digest: Option<&str>) -> Builder {
        self.sources.push(Source::file(path.into(), digest));
        self
    }

    /// Loads what a file lists, in TOML. The plugin that comes with this crate is loaded then only if the file says so, by
    /// `embedded = true`.
    ///
    /// ```toml
    /// [[plugin]]
    /// scheme = "clickhouse"                    # what it must serve, and alone does; all its schemes where none is given
    /// path = "plugins/clickhouse.wasm"         # beside this file, or `embedded = true`
    /// digest = "sha256:..."                    # what it must have
    /// allow = ["https://*.example.com:8443"]   # which origins URIs may name, in place of `Builder::ceiling`
    /// credentials = false                      # whether it may have user and password, if it asks for them
    /// settings = { schema = "state" }          # over the URI, under the environment and what is given
    /// ```
    pub fn plugins_file(mut self, path: impl Into<PathBuf>) -> Builder {
        self.files.push(path.into());
        self
    }

    /// Keeps compiled plugins in this folder instead of one in the user's cache directory. It is made, for this user alone.
    ///
    /// Whoever can write to it can run code in this process, so one that belongs to others, or that others can write to, is
    /// [`Error::InvalidInput`].
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

    /// Which origins URIs and settings may name; all, unless told otherwise.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use pipeline_state::{Error, Plugins, Settings};
    ///
    /// let ceiling = "https://*.example.com:8443, http://10.0.0.0/8:8123".parse()?;
    /// let plugins = Plugins::builder().ceiling(ceiling).build().await?;
    /// let refused = plugins.open("clickhouse://u@example.org/db?secure=true", &Settings::new());
    /// assert!(matches!(refused, Err(Error::NotAllowed { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn ceiling(mut self, ceiling: Ceiling) -> Builder {
        self.policy.ceiling = ceiling;
        self
    }

    /// Lets nobody reach this machine or a private network, whatever a URI names, and whatever a name stands for. Addresses where
    /// clouds serve credentials are out of reach in any case.
    pub fn deny_private(mut self) -> Builder {
        self.policy.private = false;
        self
    }

    /// Resolves the names of hosts by this function, instead of asking the operating system. What it answers is checked, and
    /// dialled as it is.
    pub fn resolver<F>(mut self, resolve: impl Fn(String) -> F + Send + Sync + 'static) -> Builder
    where
        F: Future<Output = io::Result<Vec<IpAddr>>> + Send + 'static,
    {
        self.resolve = Resolve::by(resolve);
        self
    }

    /// Whom HTTPS connections trust, and how they identify themselves.
    pub fn tls(mut self, tls: Tls) -> Builder {
        self.tls = tls;
        self
    }

    /// How many connections each plugin may have to one origin; 64 unless told otherwise, 1 at least. More calls wait, in the order
    /// of their coming.
    pub fn connections(mut self, connections: usize) -> Builder {
        self.connections = connections.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        self
    }

    /// Gives user and password to the plugin that serves this scheme, if it asks for them. Any other one is given stand-ins, and
    /// its requests get the header `Authorization` on their way.
    pub fn trust_with_credentials(mut self, scheme: &str) -> Builder {
        self.trusted.insert(scheme.to_ascii_lowercase());
        self
    }

    /// Calls this after each call to a store, for metrics. It must not block.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = harness::ClickHouse::start()?;
    /// use std::sync::{Arc, Mutex};
    /// use pipeline_state::{Plugins, Settings, StateId};
    ///
    /// let seen = Arc::new(Mutex::new(Vec::new()));
    /// let counted = Arc::clone(&seen);
    /// let plugins = Plugins::builder()
    ///     .observer(move |call| counted.lock().unwrap().push((call.operation, call.requests)))
    ///     .build()
    ///     .await?;
    /// let store = plugins.open(&server.uri("x"), &Settings::new())?;
    /// store.get(&StateId::from("a")).await?;
    /// assert_eq!(*seen.lock().unwrap(), [("get", 1)]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn observer(
        mut self,
        listener: impl Fn(&CallReport<'_>) + Send + Sync + 'static,
    ) -> Builder {
        self.observer = Some(Observer::new(listener));
        self
    }

    /// Loads the plugins. The first time, each is compiled, which takes some 100 ms.
    ///
    /// # Errors
    ///
    /// [`Error::BadPlugin`] names a file that can't be used, or a folder that holds no plugin, and says why;
    /// [`Error::SchemeTaken`] names two plugins that serve one scheme; [`Error::InvalidInput`] tells what can't be used of the rest.
    pub async fn build(mut self) -> Result<Plugins, Error> {
        let mut sources = std::mem::take(&mut self.sources);
        for folder in &self.directories {
            sources.extend(source::of_folder(folder)?);
        }
        for file in &self.files {
            sources.extend(source::of_plugins_file(file)?);
        }
        if self.embedded && self.files.is_empty() {
            sources.insert(0, Source::default());
        }
        let engine = engine::new(&self.cache, self.limits.memory)?;
        let tls = self.tls.config()?;
        let mut loaded = Vec::new();
        for source in sources {
            let plugin = source.load(&engine, &self.limits).await?;
            let schemes = source.schemes(&plugin)?;
            loaded.push((schemes, self.loaded(source, plugin, &tls)));
        }
        Plugins::new(loaded, self.limits)
    }

    fn loaded(&self, source: Source, plugin: Plugin, tls: &ClientConfig) -> Loaded {
        let mut policy = self.policy.clone();
        if let Some(ceiling) = source.ceiling {
            policy.ceiling = ceiling;
        }
        let policy = Arc::new(policy);
        let network = Network {
            policy: Arc::clone(&policy),
            resolve: self.resolve.clone(),
        };
        let limits = outbound::Limits {
            connections: self.connections,
            response: self.limits.memory as u64,
        };
        let mut schemes = plugin.description.schemes.iter();
        Loaded {
            client: Client::new(network, tls.clone(), limits),
            trusted: source.credentials || schemes.any(|scheme| self.trusted.contains(scheme)),
            settings: source.settings,
            policy,
            observer: self.observer.clone(),
            plugin,
        }
    }

    /// Looks at a file before anybody trusts it. None of its code runs unless it imports no more than a plugin may.
    ///
    /// # Errors
    ///
    /// [`Error::BadPlugin`] where the file is not a component.
    pub async fn inspect(self, path: &Path) -> Result<Inspection, Error> {
        let engine = engine::new(&self.cache, self.limits.memory)?;
        let bytes = plugin::read(path)?;
        Plugin::inspect(&engine, &path.display().to_string(), bytes, &self.limits).await
    }
}
