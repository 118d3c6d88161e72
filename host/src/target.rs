//! A target: the URI and the settings that an operator named, and the origin that follows from them.
//!
//! The host reads no more of a URI than what the contract gives every plugin alike (see `types.target` in
//! the WIT package): the scheme, the host and port, and settings in the query. The rest is the plugin's.

use url::{ParseError, Url};

use crate::Error;
use crate::bindings::pipeline::state::types as wit;
use crate::origin::Origin;
use crate::plugin::{Description, Role};
use crate::settings::Settings;

/// No Debug: it holds passwords.
pub(crate) struct Target {
    /// What the plugin is given: the URI as it is, since its errors are about what the operator wrote.
    pub(crate) contract: wit::Target,
    /// None where neither names a host: then the plugin may reach nothing.
    pub(crate) origin: Option<Origin>,
}

/// The scheme of a URI, in lower case.
///
/// The error quotes nothing of the URI: without a scheme, its first part may be a password.
pub(crate) fn scheme_of(uri: &str) -> Result<String, Error> {
    let valid = |scheme: &&str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    uri.split_once("://")
        .map(|(scheme, _)| scheme)
        .filter(valid)
        .map(str::to_ascii_lowercase)
        .ok_or_else(|| {
            Error::InvalidInput(
                "the URI has no scheme; it must look like clickhouse://user:password@host:8123/database"
                    .to_owned(),
            )
        })
}

impl Target {
    pub(crate) fn new(
        uri: &str,
        scheme: &str,
        settings: &Settings,
        description: &Description,
    ) -> Target {
        let settings = settings.for_plugin(scheme, description);
        // A URI that does not parse names no host. The plugin says what is wrong with it, in its own words.
        let origin = parse(uri).and_then(|url| origin(&url, &settings, description));
        Target {
            contract: wit::Target {
                uri: uri.to_owned(),
                settings,
            },
            origin,
        }
    }
}

/// Stands for the host of a URI that has none: `user@/path`, which the parser does not know.
const NO_HOST: &str = "no-host.invalid";

fn parse(uri: &str) -> Option<Url> {
    match Url::parse(uri) {
        Err(ParseError::EmptyHost) => {
            let (scheme, rest) = uri.split_once("://")?;
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at_checked(end)?;
            let (user, port) = authority.rsplit_once('@')?;
            Url::parse(&format!("{scheme}://{user}@{NO_HOST}{port}{path}")).ok()
        }
        url => url.ok(),
    }
}

fn origin(url: &Url, settings: &[(String, String)], description: &Description) -> Option<Origin> {
    let value = |role: Role| {
        // The URI's own host and port count also for a plugin that has no settings for them.
        let setting = description.settings.iter().find(|s| s.role == Some(role));
        let named = setting.and_then(|setting| {
            settings
                .iter()
                .rev()
                .find(|(known, _)| *known == setting.name)
                .map(|(_, value)| value.clone())
                .or_else(|| query(url, &setting.name))
        });
        named
            .or_else(|| match role {
                Role::Host => url
                    .host_str()
                    .filter(|host| !host.is_empty() && *host != NO_HOST)
                    .map(str::to_owned),
                Role::Port => url.port().map(|port| port.to_string()),
                _ => None,
            })
            .or_else(|| setting?.default.clone())
    };
    let tls = value(Role::Tls).is_some_and(|text| is_true(&text));
    let port = match value(Role::Port) {
        // 0 counts as none, as in a URI.
        Some(text) if text.trim() != "0" => text.trim().parse().ok()?,
        _ if tls => description.tls_port,
        _ => description.plain_port,
    };
    Origin::new(tls, value(Role::Host)?.trim(), port)
}

fn query(url: &Url, name: &str) -> Option<String> {
    url.query_pairs()
        .filter(|(key, value)| key == name && !value.is_empty())
        .last()
        .map(|(_, value)| value.into_owned())
}

fn is_true(text: &str) -> bool {
    ["true", "1", "yes", "on"]
        .iter()
        .any(|word| text.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::tests::description;

    fn origin_of(uri: &str, settings: Settings) -> Option<String> {
        Target::new(uri, "store", &settings, &description())
            .origin
            .map(|origin| origin.to_string())
    }

    #[test]
    fn the_scheme_is_what_stands_before_the_authority() {
        assert_eq!(scheme_of("ClickHouse://u@h/db").unwrap(), "clickhouse");
        assert_eq!(scheme_of("a+b-c.1://").unwrap(), "a+b-c.1");
        for uri in [
            "",
            "secret",
            "secret:x",
            "://h",
            "1a://h",
            "se cret://h",
            "/secret://h",
        ] {
            let message = scheme_of(uri).unwrap_err().to_string();
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn the_uri_names_the_origin() {
        for (uri, origin) in [
            ("store://u:p@Db.example:9/x", "http://db.example:9"),
            ("store://u:p@ss@h/db", "http://h:8123"),
            ("store://u@[::1]:8123/db", "http://[::1]:8123"),
            ("store://u@h:0/db", "http://h:8123"),
            ("store://u@h/db?secure=1", "https://h:8443"),
            ("store://u@h:8123/db?secure=True", "https://h:8123"),
            ("store:///db", "http://localhost:8123"),
            ("store://u:p@/db", "http://localhost:8123"),
            ("store://u@:9/db?host=other", "http://other:9"),
            ("store://u@h/db?port=0", "http://h:8123"),
            ("store:///db?host=other&port=7", "http://other:7"),
        ] {
            assert_eq!(origin_of(uri, Settings::new()).unwrap(), origin, "{uri}");
        }
    }

    #[test]
    fn settings_win_over_the_uri() {
        let settings = Settings::new()
            .set("host", "other")
            .set("port", "1234")
            .set("secure", "yes");
        assert_eq!(
            origin_of("store://u@h:8123/db?host=third&secure=0", settings).unwrap(),
            "https://other:1234"
        );
    }

    #[test]
    fn what_can_not_be_read_names_no_origin() {
        for (uri, settings) in [
            ("store://u:p/ss@h/db", Settings::new()),
            ("store://u@h:123456/db", Settings::new()),
            ("store://u@h/db", Settings::new().set("port", "http")),
            ("store://u@h/db", Settings::new().set("host", "a/b")),
        ] {
            assert_eq!(origin_of(uri, settings), None);
        }
    }
}
