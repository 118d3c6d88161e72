//! The plugins of a process, by the schemes that they serve.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::sync::Arc;

use crate::Error;
use crate::backend::Backend;
use crate::builder::Builder;
use crate::call::Limits;
use crate::observe::Observer;
use crate::outbound::Client;
use crate::plugin::{Description, Plugin};
use crate::policy::Policy;
use crate::settings::Settings;
use crate::target::{Target, scheme_of};

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
    by_scheme: Arc<BTreeMap<String, Arc<Loaded>>>,
    limits: Limits,
}

/// A plugin and its connections, which it shares with no other one.
pub(crate) struct Loaded {
    pub(crate) plugin: Plugin,
    pub(crate) client: Client,
    pub(crate) policy: Arc<Policy>,
    /// Whether it may have user and password.
    pub(crate) trusted: bool,
    /// What the operator sets for all its targets.
    pub(crate) settings: Settings,
    pub(crate) observer: Option<Observer>,
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
        Builder::new()
    }

    pub(crate) fn new(
        loaded: Vec<(Vec<String>, Loaded)>,
        limits: Limits,
    ) -> Result<Plugins, Error> {
        let mut by_scheme = BTreeMap::new();
        for (schemes, loaded) in loaded {
            let loaded = Arc::new(loaded);
            for scheme in schemes {
                match by_scheme.entry(scheme) {
                    Slot::Vacant(slot) => drop(slot.insert(Arc::clone(&loaded))),
                    Slot::Occupied(slot) => {
                        let first: &Arc<Loaded> = slot.get();
                        return Err(Error::SchemeTaken {
                            scheme: slot.key().clone(),
                            first: first.plugin.source.clone(),
                            second: loaded.plugin.source.clone(),
                        });
                    }
                }
            }
        }
        Ok(Plugins {
            by_scheme: Arc::new(by_scheme),
            limits,
        })
    }

    /// Opens the store that a URI and settings name, with the plugin that serves the URI's scheme.
    ///
    /// Nothing is sent: whether the store can be reached shows at the first call.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] where the URI has no scheme, or could be read otherwise than it was meant; [`Error::UnknownScheme`]
    /// where no plugin serves it; [`Error::NotAllowed`] where the operator does not allow the origin that it names, or the plugin
    /// asks for user and password and [`Builder::trust_with_credentials`] does not say that it may have them.
    pub fn open(&self, uri: &str, settings: &Settings) -> Result<Backend, Error> {
        let scheme = scheme_of(uri)?;
        let Some(loaded) = self.by_scheme.get(&scheme) else {
            return Err(Error::UnknownScheme {
                scheme,
                known: self.by_scheme.keys().cloned().collect(),
            });
        };
        let description = &loaded.plugin.description;
        if description.needs_credentials && !loaded.trusted {
            return Err(Error::not_allowed(format!(
                "the plugin {} asks for user and password itself; if it may have them, say so for the scheme `{scheme}` (`--trust {scheme}`)",
                description.name
            )));
        }
        let settings = settings.for_plugin(&scheme, description, &loaded.settings);
        let target = Target::new(uri, &settings, description)?;
        if let Some(origin) = &target.origin {
            loaded
                .policy
                .check_origin(origin)
                .map_err(|denied| Error::not_allowed(denied.to_string()))?;
        }
        Ok(Backend::new(
            Arc::clone(loaded),
            target,
            self.limits.clone(),
        ))
    }

    /// The schemes and the plugins that serve them, in the order of the schemes.
    pub fn iter(&self) -> impl Iterator<Item = Served<'_>> {
        self.by_scheme.iter().map(|(scheme, loaded)| Served {
            scheme,
            source: &loaded.plugin.source,
            digest: &loaded.plugin.digest,
            description: &loaded.plugin.description,
        })
    }
}
