//! A target: the URI and the settings that an operator named, and the origin that follows from them.
//!
//! The host reads no more of a URI than what the contract gives every plugin alike (see `types.target` in
//! the WIT package): the scheme, the host and port, and settings in the query. The rest is the plugin's.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use url::{ParseError, Url, form_urlencoded};
use zeroize::Zeroizing;

use crate::Error;
use crate::bindings::pipeline::state::types as wit;
use crate::credentials::{STAND_IN, Secrets};
use crate::origin::Origin;
use crate::plugin::{Description, Role, SettingInfo};

/// No Debug: it holds passwords.
pub(crate) struct Target {
    /// What the plugin is given: what the operator wrote, since its errors are about that, but for stand-ins where user and
    /// password were.
    pub(crate) contract: wit::Target,
    /// None where neither names a host: then the plugin may reach nothing.
    pub(crate) origin: Option<Origin>,
    pub(crate) secrets: Secrets,
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
        settings: &[(String, Zeroizing<String>)],
        description: &Description,
    ) -> Result<Target, Error> {
        check(uri)?;
        // A URI that does not parse names no host. The plugin says what is wrong with it, in its own words.
        let values = Values {
            url: parse(uri),
            settings,
            description,
        };
        let origin = values.origin();
        let sensitive = description
            .settings
            .iter()
            .filter(|setting| setting.sensitive && setting.role != Some(Role::Password))
            .filter_map(|setting| values.given(&setting.name))
            .collect();
        let sealed = !description.needs_credentials;
        let secrets = Secrets::new(
            values.user_or_password(Role::User, Url::username)?,
            values.user_or_password(Role::Password, |url| url.password().unwrap_or_default())?,
            sensitive,
            sealed,
        )?;
        let contract = match sealed {
            true => seal(uri, settings, description),
            false => wit::Target {
                uri: uri.to_owned(),
                settings: settings
                    .iter()
                    .map(|(name, value)| (name.clone(), value.to_string()))
                    .collect(),
            },
        };
        Ok(Target {
            contract,
            origin,
            secrets,
        })
    }
}

/// Refuses what could be read otherwise than it was meant, so that a part of a password would be sent or shown. No error quotes
/// the URI for that.
fn check(uri: &str) -> Result<(), Error> {
    let refuse = |fault| Err(Error::InvalidInput(format!("the URI {fault}")));
    // The parser would leave them out without a word.
    if uri.contains(|c: char| c.is_ascii_control()) {
        return refuse("holds a control character; write it percent-encoded, a tab as %09");
    }
    // `u:a@b/c@h`: the host would be `b`, and would be sent a part of the password.
    if Parts::of(uri).is_some_and(|parts| parts.behind.contains('@')) {
        return refuse(
            "has an `@` behind its host; in a user or password write `/` as %2F, `?` as %3F, `#` as %23 and `@` as %40",
        );
    }
    Ok(())
}

/// A URI as text: `scheme://authority` and what stands behind that.
struct Parts<'a> {
    scheme: &'a str,
    authority: &'a str,
    behind: &'a str,
}

impl<'a> Parts<'a> {
    fn of(uri: &'a str) -> Option<Parts<'a>> {
        let (scheme, rest) = uri.split_once("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, behind) = rest.split_at_checked(end)?;
        Some(Parts {
            scheme,
            authority,
            behind,
        })
    }
}

/// The target with stand-ins for user and password where there were any.
fn seal(
    uri: &str,
    settings: &[(String, Zeroizing<String>)],
    description: &Description,
) -> wit::Target {
    let sealed = |name: &str| {
        description.settings.iter().any(|setting| {
            setting.name == name && matches!(setting.role, Some(Role::User | Role::Password))
        })
    };
    let stand_in = |name: &str, value: &str| match sealed(name) && !value.is_empty() {
        true => STAND_IN.to_owned(),
        false => value.to_owned(),
    };
    wit::Target {
        uri: Parts::of(uri).map_or_else(|| uri.to_owned(), |parts| parts.seal(&stand_in)),
        settings: settings
            .iter()
            .map(|(name, value)| (name.clone(), stand_in(name, value)))
            .collect(),
    }
}

impl Parts<'_> {
    fn seal(&self, stand_in: &impl Fn(&str, &str) -> String) -> String {
        let authority = match self.authority.rsplit_once('@') {
            Some((user, host)) => {
                let mut parts = user.splitn(2, ':');
                let hidden: Vec<&str> = parts
                    .by_ref()
                    .map(|part| if part.is_empty() { "" } else { STAND_IN })
                    .collect();
                format!("{}@{host}", hidden.join(":"))
            }
            None => self.authority.to_owned(),
        };
        format!("{}://{authority}{}", self.scheme, self.query(stand_in))
    }

    /// What stands behind the authority; a query that holds nothing secret as it is.
    fn query(&self, stand_in: &impl Fn(&str, &str) -> String) -> String {
        let behind = self.behind;
        let Some((path, rest)) = behind.split_once('?') else {
            return behind.to_owned();
        };
        let (query, fragment) = match rest.find('#').and_then(|at| rest.split_at_checked(at)) {
            Some((query, fragment)) => (query, fragment),
            None => (rest, ""),
        };
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        if pairs
            .iter()
            .all(|(name, value)| stand_in(name, value) == *value)
        {
            return behind.to_owned();
        }
        let pairs = pairs
            .iter()
            .map(|(name, value)| (name, stand_in(name, value)));
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(pairs)
            .finish();
        format!("{path}?{query}{fragment}")
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

/// Where the values of a target are from: see `types.target` in the contract.
struct Values<'a> {
    /// None where it does not parse.
    url: Option<Url>,
    settings: &'a [(String, Zeroizing<String>)],
    description: &'a Description,
}

impl Values<'_> {
    /// What is set by this name, in the settings or in the query.
    fn given(&self, name: &str) -> Option<Zeroizing<String>> {
        self.settings
            .iter()
            .rev()
            .find(|(known, value)| known == name && !value.is_empty())
            .map(|(_, value)| value.clone())
            .or_else(|| query(self.url.as_ref()?, name))
    }

    fn setting(&self, role: Role) -> Option<&SettingInfo> {
        let mut settings = self.description.settings.iter();
        settings.find(|setting| setting.role == Some(role))
    }

    /// Its own setting, the part of the URI that plays its role, or its default. The URI's part counts also for a plugin that has
    /// no setting for it.
    fn value(
        &self,
        role: Role,
        part: impl FnOnce(&Url) -> Option<String>,
    ) -> Option<Zeroizing<String>> {
        let setting = self.setting(role);
        setting
            .and_then(|setting| self.given(&setting.name))
            .or_else(|| part(self.url.as_ref()?).map(Zeroizing::new))
            .or_else(|| setting?.default.clone().map(Zeroizing::new))
    }

    fn user_or_password(
        &self,
        role: Role,
        part: impl Fn(&Url) -> &str,
    ) -> Result<Option<Zeroizing<String>>, Error> {
        // Of an encoded part that is not used no error is made either.
        let mut undecodable = false;
        let value = self.value(role, |url| {
            let text = part(url);
            let decoded = percent_decode_str(text).decode_utf8();
            undecodable = decoded.is_err();
            decoded
                .ok()
                .filter(|text| !text.is_empty())
                .map(Cow::into_owned)
        });
        match undecodable {
            false => Ok(value),
            true => Err(Error::InvalidInput(
                "the user or the password of the URI has percent-encoded bytes that are not UTF-8"
                    .to_owned(),
            )),
        }
    }

    fn origin(&self) -> Option<Origin> {
        self.url.as_ref()?;
        let tls = self
            .value(Role::Tls, |_| None)
            .is_some_and(|text| is_true(&text));
        let port = self.value(Role::Port, |url| url.port().map(|port| port.to_string()));
        let port = match port {
            // 0 counts as none, as in a URI.
            Some(text) if text.trim() != "0" => text.trim().parse().ok()?,
            _ if tls => self.description.tls_port,
            _ => self.description.plain_port,
        };
        let host = self.value(Role::Host, |url| {
            url.host_str()
                .filter(|host| !host.is_empty() && *host != NO_HOST)
                .map(str::to_owned)
        })?;
        Origin::new(tls, host.trim(), port)
    }
}

fn query(url: &Url, name: &str) -> Option<Zeroizing<String>> {
    url.query_pairs()
        .filter(|(key, value)| key == name && !value.is_empty())
        .last()
        .map(|(_, value)| Zeroizing::new(value.into_owned()))
}

fn is_true(text: &str) -> bool {
    ["true", "1", "yes", "on"]
        .iter()
        .any(|word| text.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::plugin::tests::description;
    use crate::settings::Settings;

    fn target(uri: &str, settings: &Settings) -> Result<Target, Error> {
        let description = description();
        let settings = settings.for_plugin("store", &description, &Settings::new());
        Target::new(uri, &settings, &description)
    }

    fn origin_of(uri: &str, settings: Settings) -> Option<String> {
        target(uri, &settings)
            .unwrap()
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
            ("store://u:p%FF@h/db?user=a&password=b", "http://h:8123"),
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
            ("store://u@h:123456/db", Settings::new()),
            ("store://u@h/db", Settings::new().set("port", "http")),
            ("store://u@h/db", Settings::new().set("host", "a/b")),
        ] {
            assert_eq!(origin_of(uri, settings), None);
        }
    }
    fn sealed(uri: &str, settings: &[(&str, &str)]) -> (String, Vec<(String, String)>, String) {
        let settings = settings
            .iter()
            .fold(Settings::new(), |all, (name, value)| all.set(*name, *value));
        let target = target(uri, &settings).unwrap();
        let authorization = target.secrets.authorization();
        let authorization = authorization.map_or("", |value| value.to_str().unwrap());
        let authorization = authorization.trim_start_matches("Basic ").to_owned();
        (target.contract.uri, target.contract.settings, authorization)
    }

    #[test]
    fn a_plugin_sees_stand_ins_where_user_and_password_were_given() {
        let encode = |text: &str| STANDARD.encode(text);
        for (uri, seen, authorization) in [
            ("store://h/db", "store://h/db", String::new()),
            ("store://u@h:9/db", "store://sealed@h:9/db", encode("u:")),
            (
                "STORE://u:s%40krét@h/db?table=x#f",
                "STORE://sealed:sealed@h/db?table=x#f",
                encode("u:s@krét"),
            ),
            (
                "store://u:p@ss@h",
                "store://sealed:sealed@h",
                encode("u:p@ss"),
            ),
            ("store://:p@/db", "store://:sealed@/db", encode(":p")),
            (
                "store://h/db?user=u&table=a+b&password=p%26q",
                "store://h/db?user=sealed&table=a+b&password=sealed",
                encode("u:p&q"),
            ),
            // What is left out is hidden too.
            (
                "store://a:b@h?password=c&password=d&password=",
                "store://sealed:sealed@h?password=sealed&password=sealed&password=",
                encode("a:d"),
            ),
        ] {
            let (found, _, header) = sealed(uri, &[]);
            assert_eq!((found.as_str(), header), (seen, authorization), "{uri}");
        }
        let given = [("password", "old"), ("table", "t"), ("password", "new")];
        let (uri, settings, header) = sealed("store://u:p@h/", &given);
        assert_eq!(
            (uri.as_str(), header),
            ("store://sealed:sealed@h/", encode("u:new"))
        );
        let settings: Vec<_> = settings.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(settings, ["sealed", "t", "sealed"]);
    }

    #[test]
    fn a_uri_that_does_not_parse_shows_no_password_either() {
        for uri in [
            "store://u:sekret@h:port/db",
            "store://u:sekret@[::1%25eth0]/db",
        ] {
            let (seen, ..) = sealed(uri, &[]);
            assert!(seen.starts_with("store://sealed:sealed@"), "{seen}");
        }
    }

    #[test]
    fn what_could_be_read_otherwise_is_refused_without_a_quotation() {
        for uri in [
            "store://u:sekret/sekret@h/db",
            "store://u:1?sekret@h/db",
            "store://u:1#sekret@h/db",
            "store://u:sek\tret@h/db",
            "store://u:sekret%FF@h/db",
        ] {
            let refused = target(uri, &Settings::new());
            let Err(Error::InvalidInput(message)) = refused.map(drop) else {
                panic!("{uri}")
            };
            assert!(!message.contains("sek"), "{message}");
        }
    }

    #[test]
    fn who_needs_credentials_is_given_them_and_no_header_is_added() {
        let description = Description {
            needs_credentials: true,
            ..description()
        };
        let target = Target::new("store://u:p@h/", &[], &description).unwrap();
        assert_eq!(target.contract.uri, "store://u:p@h/");
        assert!(target.secrets.authorization().is_none());
        assert_eq!(target.secrets.redact("p"), "[redacted]");
    }
}
