//! A plugin: a component that was loaded, checked, and asked to describe itself.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use wasmtime::Engine;
use wasmtime::component::{Component, Linker};

use crate::audit::{self, Interfaces};
use crate::bindings::PluginPre;
use crate::bindings::exports::pipeline::state::registration as wit;
use crate::call::{CallState, Limits};
use crate::settings::{MELTANO_PREFIX, variable_part};
use crate::{Error, call};

/// The largest component that is loaded. Compiling takes some 300 ms a megabyte and grows with the size; the
/// ClickHouse plugin has less than half of one.
const LARGEST_COMPONENT: u64 = 16 * 1024 * 1024;

/// A file that a compiler takes longer for was made for that.
const LONGEST_COMPILING: Duration = Duration::from_secs(60);

/// What a plugin says of itself, checked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The schemes of the URIs that it serves.
    pub schemes: Vec<String>,
    /// The settings that it knows.
    pub settings: Vec<SettingInfo>,
    /// The port for HTTP where the target names none.
    pub plain_port: u16,
    /// The port for HTTPS where the target names none.
    pub tls_port: u16,
    /// Whether it asks for user and password, instead of leaving them to the host.
    pub needs_credentials: bool,
}

/// One setting of a plugin.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SettingInfo {
    /// Its name: in [`Settings::set`](crate::Settings::set) and in the query of the URI. One that ends in `*` stands
    /// for all names that begin so.
    pub name: String,
    /// What its value must look like: `text`, `integer` or `boolean`.
    pub kind: &'static str,
    /// What it means to the host, if anything.
    pub role: Option<Role>,
    /// A few words for people.
    pub label: String,
    /// Its value where none is given.
    pub default: Option<String>,
    /// Whether its value must never be shown.
    pub sensitive: bool,
    /// The environment variable that gives it.
    pub env: String,
}

/// What a setting means to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// The host name or address of the store.
    Host,
    /// Its port.
    Port,
    /// Whether the connection is HTTPS.
    Tls,
    /// Who the store is to take the caller for.
    User,
    /// What proves it.
    Password,
}

/// A file as a person would look at it before trusting it: what it imports and exports, even where that is
/// more than a plugin may have.
#[derive(Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// Its size in bytes.
    pub size: u64,
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The interfaces that it imports, in order.
    pub imports: Vec<String>,
    /// The interfaces that it exports, in order.
    pub exports: Vec<String>,
    /// What it says of itself, or why it is no plugin.
    pub description: Result<Description, Error>,
}

/// Loaded once, then instantiated for each call.
pub(crate) struct Plugin {
    /// Where it is from: a path, or `embedded`.
    pub(crate) source: String,
    pub(crate) digest: String,
    pub(crate) description: Description,
    pub(crate) pre: PluginPre<CallState>,
}

impl Plugin {
    pub(crate) async fn load(
        engine: &Engine,
        source: &str,
        bytes: Cow<'static, [u8]>,
        limits: &Limits,
    ) -> Result<Plugin, Error> {
        let digest = digest(&bytes);
        let component = compile(engine, source, bytes).await?;
        Plugin::of(engine, source, &component, digest, limits).await
    }

    /// From a component that is compiled already.
    async fn of(
        engine: &Engine,
        source: &str,
        component: &Component,
        digest: String,
        limits: &Limits,
    ) -> Result<Plugin, Error> {
        Interfaces::of(engine, component)
            .audit()
            .map_err(|reason| Error::bad_plugin(source, reason))?;
        let bad =
            |error: wasmtime::Error| Error::bad_plugin(source, format!("not a plugin: {error:#}"));
        let linker = linker(engine).map_err(bad)?;
        let pre = linker
            .instantiate_pre(component)
            .and_then(PluginPre::new)
            .map_err(bad)?;
        let info = call::describe(&pre, limits).await.map_err(|error| {
            Error::bad_plugin(source, format!("it does not describe itself: {error}"))
        })?;
        let description =
            Description::check(info).map_err(|reason| Error::bad_plugin(source, reason))?;
        Ok(Plugin {
            source: source.to_owned(),
            digest,
            description,
            pre,
        })
    }

    pub(crate) async fn inspect(
        engine: &Engine,
        source: &str,
        bytes: Vec<u8>,
        limits: &Limits,
    ) -> Result<Inspection, Error> {
        let (size, digest) = (bytes.len() as u64, digest(&bytes));
        let component = compile(engine, source, Cow::Owned(bytes)).await?;
        let Interfaces { imports, exports } = Interfaces::of(engine, &component);
        let plugin = Plugin::of(engine, source, &component, digest.clone(), limits).await;
        Ok(Inspection {
            size,
            digest,
            imports,
            exports,
            description: plugin.map(|plugin| plugin.description),
        })
    }
}

/// Reads a component's file, unless it is too large to be one.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let source = path.display().to_string();
    let unreadable = |error: std::io::Error| Error::bad_plugin(&source, error.to_string());
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > LARGEST_COMPONENT {
        return Err(Error::bad_plugin(
            &source,
            format!("it has {size} bytes, and a plugin may have {LARGEST_COMPONENT} at most"),
        ));
    }
    std::fs::read(path).map_err(unreadable)
}

/// On a thread of its own, so that nothing else waits for it.
async fn compile(
    engine: &Engine,
    source: &str,
    bytes: Cow<'static, [u8]>,
) -> Result<Component, Error> {
    let bad = |reason: String| Error::bad_plugin(source, reason);
    audit::check_header(&bytes).map_err(|reason| bad(reason.to_owned()))?;
    let engine = engine.clone();
    let compiled = spawn_blocking(move || Component::from_binary(&engine, &bytes));
    match timeout(LONGEST_COMPILING, compiled).await {
        Ok(Ok(Ok(component))) => Ok(component),
        Ok(Ok(Err(error))) => Err(bad(format!(
            "not a valid component, damaged or cut short: {}",
            format!("{error:#}").replace('\n', " ")
        ))),
        Ok(Err(broken)) => Err(bad(format!("it can't be compiled: {broken}"))),
        // It can't be ended, and goes on by itself.
        Err(_elapsed) => Err(bad(format!(
            "it was not compiled within {} s",
            LONGEST_COMPILING.as_secs()
        ))),
    }
}

fn linker(engine: &Engine) -> wasmtime::Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_proxy_interfaces_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    Ok(linker)
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::from("sha256:"), |text, byte| {
            format!("{text}{byte:02x}")
        })
}

impl Description {
    /// Takes a plugin at its word only where that harms nobody.
    fn check(info: wit::PluginInfo) -> Result<Description, String> {
        let [first, ..] = info.schemes.as_slice() else {
            return Err("it serves no scheme".to_owned());
        };
        let scheme = |text: &&String| {
            text.starts_with(|c: char| c.is_ascii_lowercase())
                && text.chars().all(|c| {
                    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '+' | '-' | '.')
                })
        };
        if !info.schemes.iter().all(|text| scheme(&text)) {
            return Err(format!(
                "`{}` are not all schemes of URIs",
                info.schemes.join("`, `")
            ));
        }
        let settings: Vec<SettingInfo> = info.settings.into_iter().map(SettingInfo::from).collect();
        for (at, setting) in settings.iter().enumerate() {
            let own = |scheme: &String| {
                setting.env
                    == format!(
                        "{MELTANO_PREFIX}{}_{}",
                        variable_part(scheme),
                        variable_part(&setting.name)
                    )
            };
            if !info.schemes.iter().any(own) {
                return Err(format!(
                    "its setting `{}` may not be read from the variable {}; that would be {MELTANO_PREFIX}{}_{}",
                    setting.name,
                    setting.env,
                    variable_part(first),
                    variable_part(&setting.name),
                ));
            }
            let twice = |other: &SettingInfo| {
                other.name == setting.name || (setting.role.is_some() && other.role == setting.role)
            };
            if settings.iter().skip(at + 1).any(twice) {
                return Err(format!(
                    "its setting `{}` or the role of it is declared twice",
                    setting.name
                ));
            }
        }
        Ok(Description {
            name: info.name,
            version: info.version,
            schemes: info.schemes,
            settings,
            plain_port: info.default_ports.plain,
            tls_port: info.default_ports.tls,
            needs_credentials: info.needs_credentials,
        })
    }
}

impl From<wit::Setting> for SettingInfo {
    fn from(setting: wit::Setting) -> SettingInfo {
        SettingInfo {
            name: setting.name,
            kind: match setting.kind {
                wit::SettingKind::Text => "text",
                wit::SettingKind::Integer => "integer",
                wit::SettingKind::Boolean => "boolean",
            },
            role: setting.role.map(|role| match role {
                wit::SettingRole::Host => Role::Host,
                wit::SettingRole::Port => Role::Port,
                wit::SettingRole::Tls => Role::Tls,
                wit::SettingRole::User => Role::User,
                wit::SettingRole::Password => Role::Password,
            }),
            label: setting.label,
            default: setting.default,
            sensitive: setting.sensitive,
            env: setting.env,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn setting(name: &str, role: Option<wit::SettingRole>, default: Option<&str>) -> wit::Setting {
        wit::Setting {
            name: name.to_owned(),
            kind: wit::SettingKind::Text,
            role,
            label: name.to_owned(),
            default: default.map(str::to_owned),
            sensitive: false,
            env: format!("MELTANO_STATE_BACKEND_STORE_{}", name.to_uppercase()),
        }
    }

    fn info() -> wit::PluginInfo {
        wit::PluginInfo {
            name: "store".to_owned(),
            version: "1.2.3".to_owned(),
            schemes: vec!["store".to_owned()],
            settings: vec![
                setting("host", Some(wit::SettingRole::Host), Some("localhost")),
                setting("port", Some(wit::SettingRole::Port), None),
                setting("secure", Some(wit::SettingRole::Tls), None),
                setting("table", None, Some("state")),
                setting("user", Some(wit::SettingRole::User), None),
                setting("password", Some(wit::SettingRole::Password), None),
                setting("extra_*", None, None),
            ],
            default_ports: wit::DefaultPorts {
                plain: 8123,
                tls: 8443,
            },
            needs_credentials: false,
        }
    }

    /// A plugin like most: for the tests of what is derived from a description.
    pub(crate) fn description() -> Description {
        Description::check(info()).unwrap()
    }

    fn refused(change: impl FnOnce(&mut wit::PluginInfo)) -> String {
        let mut info = info();
        change(&mut info);
        Description::check(info).unwrap_err()
    }

    #[test]
    fn a_plugin_must_serve_a_scheme_that_a_uri_can_have() {
        assert_eq!(refused(|info| info.schemes.clear()), "it serves no scheme");
        for scheme in ["", "Store", "1store", "a b", "a:"] {
            assert!(refused(|info| info.schemes.push(scheme.to_owned())).contains("schemes"));
        }
    }

    #[test]
    fn a_plugin_can_not_ask_for_variables_that_are_not_its_own() {
        for env in [
            "AWS_SECRET_ACCESS_KEY",
            "MELTANO_STATE_BACKEND_OTHER_HOST",
            "MELTANO_STATE_BACKEND_STORE_TABLE",
            "",
        ] {
            let message = refused(|info| info.settings[0].env = env.to_owned());
            assert!(
                message.contains("MELTANO_STATE_BACKEND_STORE_HOST"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_setting_and_a_role_are_declared_once() {
        let again = |info: &mut wit::PluginInfo| info.settings.push(setting("host", None, None));
        assert!(refused(again).contains("twice"));
        let role =
            |info: &mut wit::PluginInfo| info.settings[3].role = Some(wit::SettingRole::Port);
        assert!(refused(role).contains("twice"));
    }

    #[test]
    fn a_digest_is_sha_256_in_hexadecimal() {
        assert_eq!(
            digest(b"abc"),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
