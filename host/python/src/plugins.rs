//! Loading plugins and opening stores.

use std::path::PathBuf;
use std::time::Duration;

use pipeline_state::{Ceiling, Error, Role, Settings, Tls};
use pyo3::prelude::*;
use zeroize::Zeroizing;

use crate::backend::Backend;
use crate::errors::raised;
use crate::waiting::Home;

/// The plugins of a process.
#[pyclass(frozen)]
pub(crate) struct Plugins {
    home: Home,
    inner: pipeline_state::Plugins,
}

/// name, kind, role, label, default, sensitive, env
type Setting = (
    String,
    &'static str,
    Option<&'static str>,
    String,
    Option<String>,
    bool,
    String,
);

/// scheme, source, digest, name, version, settings, ports for HTTP and HTTPS, whether it asks for credentials
type Served = (
    String,
    String,
    String,
    String,
    String,
    Vec<Setting>,
    (u16, u16),
    bool,
);

/// What [`Plugins::new`] is told, by the names of the Python class.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Options {
    embedded: bool,
    directories: Vec<PathBuf>,
    files: Vec<(PathBuf, Option<String>)>,
    plugins_file: Option<PathBuf>,
    cache_folder: Option<PathBuf>,
    allow: Option<String>,
    deny_private: bool,
    trust: Vec<String>,
    ca_file: Option<PathBuf>,
    native_roots: bool,
    client_certificate: Option<(PathBuf, PathBuf)>,
    connections: Option<usize>,
    call_deadline: Option<f64>,
    memory: Option<usize>,
}

#[pymethods]
impl Plugins {
    #[new]
    fn new(py: Python<'_>, options: Options) -> PyResult<Plugins> {
        let builder = builder(options).map_err(|error| raised(py, error))?;
        let home = Home::get().map_err(|error| raised(py, error))?;
        Ok(Plugins {
            home,
            inner: home.wait(py, builder.build())?,
        })
    }

    fn open(
        &self,
        py: Python<'_>,
        uri: String,
        settings: Vec<(String, String)>,
        environment: bool,
    ) -> PyResult<Backend> {
        let uri = Zeroizing::new(uri);
        let start = match environment {
            true => Settings::from_env(),
            false => Settings::new(),
        };
        let settings = settings
            .into_iter()
            .fold(start, |all, (name, value)| all.set(name, value));
        match self.inner.open(&uri, &settings) {
            Ok(inner) => Ok(Backend::new(self.home, inner)),
            Err(error) => Err(raised(py, error)),
        }
    }

    fn served(&self) -> Vec<Served> {
        let plugins = self.inner.iter();
        plugins
            .map(|plugin| {
                let about = plugin.description;
                (
                    plugin.scheme.to_owned(),
                    plugin.source.to_owned(),
                    plugin.digest.to_owned(),
                    about.name.clone(),
                    about.version.clone(),
                    about.settings.iter().map(setting).collect(),
                    (about.plain_port, about.tls_port),
                    about.needs_credentials,
                )
            })
            .collect()
    }
}

fn setting(setting: &pipeline_state::SettingInfo) -> Setting {
    let role = setting.role.and_then(|role| match role {
        Role::Host => Some("host"),
        Role::Port => Some("port"),
        Role::Tls => Some("tls"),
        Role::User => Some("user"),
        Role::Password => Some("password"),
        _ => None,
    });
    (
        setting.name.clone(),
        setting.kind,
        role,
        setting.label.clone(),
        setting.default.clone(),
        setting.sensitive,
        setting.env.clone(),
    )
}

fn builder(options: Options) -> Result<pipeline_state::Builder, Error> {
    let mut builder = pipeline_state::Plugins::builder().tls(tls(&options)?);
    if !options.embedded {
        builder = builder.without_embedded();
    }
    for folder in options.directories {
        builder = builder.directory(folder);
    }
    for (file, digest) in options.files {
        builder = builder.plugin(file, digest.as_deref());
    }
    if let Some(file) = options.plugins_file {
        builder = builder.plugins_file(file);
    }
    if let Some(folder) = options.cache_folder {
        builder = builder.cache_folder(folder);
    }
    if let Some(allow) = options.allow {
        let ceiling: Ceiling = allow
            .parse()
            .map_err(|error| Error::InvalidInput(format!("allow: {error}")))?;
        builder = builder.ceiling(ceiling);
    }
    if options.deny_private {
        builder = builder.deny_private();
    }
    for scheme in options.trust {
        builder = builder.trust_with_credentials(&scheme);
    }
    if let Some(connections) = options.connections {
        builder = builder.connections(connections);
    }
    if let Some(seconds) = options.call_deadline {
        builder = builder.call_deadline(duration("call_deadline", seconds)?);
    }
    if let Some(bytes) = options.memory {
        builder = builder.memory(bytes);
    }
    Ok(builder)
}

fn tls(options: &Options) -> Result<Tls, Error> {
    let mut tls = Tls::new();
    if let Some(file) = &options.ca_file {
        tls = tls.authority_file(file)?;
    }
    if options.native_roots {
        tls = tls.native_roots();
    }
    if let Some((chain, key)) = &options.client_certificate {
        tls = tls.client_certificate_files(chain, key)?;
    }
    Ok(tls)
}

/// Seconds, as Python counts them.
pub(crate) fn duration(name: &str, seconds: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Error::InvalidInput(format!("{name} must be a number of seconds, 0 or more")))
}
