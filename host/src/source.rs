//! Where plugins are from: the one that comes with this crate, files, folders, and a file that lists them.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use wasmtime::Engine;

use crate::Error;
use crate::call::Limits;
use crate::ceiling::Ceiling;
use crate::plugin::{self, Plugin};
use crate::settings::Settings;

/// The ClickHouse plugin, built with this crate.
const CLICKHOUSE: &[u8] = include_bytes!(env!("CLICKHOUSE_COMPONENT"));

/// One plugin that is to be loaded, and what the operator says of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// None for the embedded one.
    path: Option<PathBuf>,
    /// What it must have.
    digest: Option<String>,
    /// The one that it must serve, and alone does.
    scheme: Option<String>,
    pub(crate) ceiling: Option<Ceiling>,
    /// Whether it may have user and password.
    pub(crate) credentials: bool,
    pub(crate) settings: Settings,
}

impl Source {
    pub(crate) fn file(path: PathBuf, digest: Option<&str>) -> Source {
        Source {
            path: Some(path),
            digest: digest.map(str::to_owned),
            ..Source::default()
        }
    }

    fn name(&self) -> String {
        match &self.path {
            Some(path) => path.display().to_string(),
            None => "embedded".to_owned(),
        }
    }

    pub(crate) async fn load(&self, engine: &Engine, limits: &Limits) -> Result<Plugin, Error> {
        let bytes = match &self.path {
            Some(path) => Cow::Owned(plugin::read(path)?),
            None => Cow::Borrowed(CLICKHOUSE),
        };
        // Before anything is made of it.
        if let Some(pin) = &self.digest {
            check_digest(&plugin::digest(&bytes), pin)
                .map_err(|reason| Error::bad_plugin(self.name(), reason))?;
        }
        Plugin::load(engine, &self.name(), bytes, limits).await
    }

    /// Those that it is to serve.
    pub(crate) fn schemes(&self, plugin: &Plugin) -> Result<Vec<String>, Error> {
        let served = &plugin.description.schemes;
        match &self.scheme {
            None => Ok(served.clone()),
            Some(scheme) if served.contains(scheme) => Ok(vec![scheme.clone()]),
            Some(scheme) => Err(Error::bad_plugin(
                self.name(),
                format!(
                    "it does not serve the scheme `{scheme}`, but {}",
                    served.join(", ")
                ),
            )),
        }
    }
}

fn check_digest(found: &str, pin: &str) -> Result<(), String> {
    let digits = pin.strip_prefix("sha256:").unwrap_or_default();
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err("its pinned digest must be `sha256:` and 64 hexadecimal digits".to_owned());
    }
    match found.eq_ignore_ascii_case(pin) {
        true => Ok(()),
        false => Err(format!(
            "its digest is {found}, and the pinned one is {pin}: it is another file than the one that was looked at"
        )),
    }
}

/// The `.wasm` files of a folder in the order of their names, so that errors are the same each time.
pub(crate) fn of_folder(folder: &Path) -> Result<Vec<Source>, Error> {
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
    Ok(paths
        .into_iter()
        .map(|path| Source::file(path, None))
        .collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginsFile {
    #[serde(default)]
    plugin: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    scheme: Option<String>,
    path: Option<PathBuf>,
    #[serde(default)]
    embedded: bool,
    digest: Option<String>,
    allow: Option<Vec<String>>,
    #[serde(default)]
    credentials: bool,
    #[serde(default)]
    settings: std::collections::BTreeMap<String, String>,
}

/// A file of some kilobytes; see [`Builder::plugins_file`](crate::Builder::plugins_file).
pub(crate) fn of_plugins_file(path: &Path) -> Result<Vec<Source>, Error> {
    let bad = |reason: String| Error::bad_plugin(path.display().to_string(), reason);
    let text = fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    let file = read(&text).map_err(bad)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let sources = file.plugin.into_iter().enumerate();
    let sources = sources.map(|(at, entry)| {
        entry
            .source(folder)
            .map_err(|reason| bad(format!("plugin {}: {reason}", at + 1)))
    });
    sources.collect()
}

/// The error tells the line, and not what stands there: it may be a password.
fn read(text: &str) -> Result<PluginsFile, String> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        format!("line {line}: {}", error.message().replace('\n', " "))
    })
}

impl Entry {
    fn source(self, folder: &Path) -> Result<Source, String> {
        let path = match (self.path, self.embedded) {
            (Some(path), false) => Some(folder.join(path)),
            (None, true) => None,
            _ => return Err("it needs either `path` or `embedded = true`".to_owned()),
        };
        let ceiling = self
            .allow
            .map(|allow| allow.join(" ").parse())
            .transpose()
            .map_err(|error: crate::CeilingError| error.to_string())?;
        let settings = self.settings.into_iter();
        Ok(Source {
            path,
            digest: self.digest,
            scheme: self.scheme,
            ceiling,
            credentials: self.credentials,
            settings: settings.fold(Settings::new(), |all, (name, value)| all.set(name, value)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(text: &str) -> Result<Vec<Source>, String> {
        let entries = read(text)?.plugin.into_iter();
        entries
            .map(|entry| entry.source(Path::new("/etc/state")))
            .collect()
    }

    #[test]
    fn a_file_lists_plugins() {
        let text = r#"
            [[plugin]]
            embedded = true
            settings = { schema = "state" }
            [[plugin]]
            scheme = "store"
            path = "store.wasm"
            digest = "sha256:00"
            allow = ["https://*.example.com:8443", "http://10.0.0.0/8:8123"]
            credentials = true
        "#;
        let [embedded, store] = sources(text).unwrap().try_into().unwrap();
        assert_eq!((embedded.path, embedded.ceiling), (None, None));
        assert!(!embedded.credentials);
        assert_eq!(store.path.unwrap(), Path::new("/etc/state/store.wasm"));
        assert_eq!(
            store.ceiling.unwrap().to_string(),
            "https://*.example.com:8443, http://10.0.0.0/8:8123"
        );
        assert!(store.credentials);
        assert!(sources("").unwrap().is_empty());
    }

    #[test]
    fn what_can_not_be_used_is_told_without_a_quotation() {
        for (text, reason) in [
            ("[[plugin]]\nscheme = \"x\"", "either `path` or `embedded"),
            ("[[plugin]]\npath = \"x\"\nembedded = true", "either"),
            ("[[plugin]]\npath = \"x\"\n\npasword = \"sekret\"", "line 4"),
            ("[[plugin]]\nsettings = { password = sekret }", "line 2"),
            ("[[plugin]]\npath = \"x\"\nallow = [\"db\"]", "scheme"),
            ("[[plugin]]\npath = \"x\"\nallow = []", ""),
        ] {
            let error = sources(text).map(drop).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
            assert!(
                !error.contains("sekret") && !error.contains('\n'),
                "{error}"
            );
        }
    }

    #[test]
    fn a_digest_is_compared_whole() {
        let found = format!("sha256:{}", "ab".repeat(32));
        assert_eq!(
            check_digest(&found, &found.to_uppercase().replace("SHA", "sha")),
            Ok(())
        );
        for pin in [
            "",
            "ab",
            "sha256:ab",
            &"ab".repeat(32),
            &format!("sha256:{}", "xy".repeat(32)),
        ] {
            assert!(
                check_digest(&found, pin)
                    .unwrap_err()
                    .contains("64 hexadecimal"),
                "{pin}"
            );
        }
        let other = format!("sha256:{}", "ac".repeat(32));
        assert!(check_digest(&found, &other).unwrap_err().contains(&other));
    }
}
