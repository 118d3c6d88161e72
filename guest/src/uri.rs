//! The URI `clickhouse://user:password@host:port/database?setting=value`, taken apart and decoded.
//!
//! The rules are those of the Python backend, but for two defects: no error quotes any part of the URI, since
//! the part that is wrong may belong to a password, and what would be read otherwise than it was meant is refused.

use percent_encoding::percent_decode_str;
use url::{ParseError, Url};

use crate::error::Error;

/// The scheme that this plugin serves.
pub(crate) const SCHEME: &str = "clickhouse";

const FORM: &str = "clickhouse://user:password@host:8123/database";
const ENCODE: &str =
    "in a user or password write `/` as %2F, `?` as %3F, `#` as %23 and `@` as %40";

/// The parts of a URI, each decoded once; none where it is absent or empty.
///
/// No Debug: it holds a password.
pub(crate) struct Uri {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) database: Option<String>,
    pub(crate) query: Vec<(String, String)>,
}

impl Uri {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        // The parser would leave them out without a word.
        if text.contains(|c: char| c.is_ascii_control()) {
            return refuse("holds a control character; write it percent-encoded, a tab as %09");
        }
        // The parser has other rules for the hosts of some schemes, and debug assertions that such a host can fail.
        let scheme = text.trim_start_matches(' ').split_once(':');
        if !scheme.is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME)) {
            return refuse(&format!("must look like {FORM}"));
        }
        let parsed = match Url::parse(text) {
            Err(ParseError::EmptyHost) => {
                Url::parse(with_default_host(text).as_deref().unwrap_or(text))
            }
            parsed => parsed,
        };
        let url = parsed.or_else(|error| match error {
            ParseError::InvalidPort => {
                refuse(&format!("has a port that is no number from 1 to 65535; {ENCODE}"))
            }
            ParseError::InvalidIpv6Address => refuse(
                "has an IPv6 address that is not valid; it stands in brackets, as in [::1], and a zone (%eth0) can't be used",
            ),
            _ => refuse(&format!("must look like {FORM}; {ENCODE}")),
        })?;
        if url.cannot_be_a_base() {
            return refuse(&format!("must look like {FORM}"));
        }
        // `u:a@b/c@h`: the host would be `b`, and would be sent a part of the password.
        if [Some(url.path()), url.query(), url.fragment()]
            .into_iter()
            .flatten()
            .any(|part| part.contains('@'))
        {
            return refuse(&format!("has an `@` behind its host; {ENCODE}"));
        }
        if url.fragment().is_some() {
            return refuse(&format!("has a `#`, which has no meaning here; {ENCODE}"));
        }
        Ok(Self {
            user: decode(url.username())?,
            password: decode(url.password().unwrap_or_default())?,
            host: decode(url.host_str().unwrap_or_default())?,
            port: url.port(),
            database: decode(url.path().trim_start_matches('/'))?,
            query: url
                .query_pairs()
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
        })
    }
}

/// `u@/db` and `u@:8123/db` leave the host to a setting or the default, which the parser does not know.
fn with_default_host(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    let (user, port) = authority.rsplit_once('@')?;
    Some(format!("{scheme}://{user}@localhost{port}{path}"))
}

fn refuse<T>(fault: &str) -> Result<T, Error> {
    Err(Error::InvalidInput(format!("the ClickHouse URI {fault}")))
}

/// `+` stays `+`, as Python's `unquote` has it.
fn decode(text: &str) -> Result<Option<String>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(Some(text.into_owned())),
        Err(_) => refuse("has percent-encoded bytes that are not UTF-8"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> [String; 4] {
        let uri = Uri::parse(text).unwrap();
        [uri.user, uri.password, uri.host, uri.database].map(Option::unwrap_or_default)
    }

    fn refused(text: &str) -> String {
        match Uri::parse(text) {
            Err(Error::InvalidInput(message)) => message,
            _ => panic!("accepted: {text}"),
        }
    }

    #[test]
    fn the_parts_are_those_that_the_python_backend_sees() {
        for (text, expected) in [
            ("clickhouse://u:p%40ss%2F@h/db", ["u", "p@ss/", "h", "db"]),
            ("clickhouse://u:p@ss@h/db", ["u", "p@ss", "h", "db"]),
            ("clickhouse://u:a+b%2525@h/db", ["u", "a+b%25", "h", "db"]),
            ("clickhouse://u%3Ax:p:q@h/db", ["u:x", "p:q", "h", "db"]),
            ("clickhouse://u@[::1]:8123/db", ["u", "", "[::1]", "db"]),
            ("clickhouse://u@h/db/extra", ["u", "", "h", "db/extra"]),
            ("clickhouse://u@h//db", ["u", "", "h", "db"]),
            ("clickhouse:///db", ["", "", "", "db"]),
            ("clickhouse://u@h", ["u", "", "h", ""]),
            ("clickhouse://u:p@/db", ["u", "p", "localhost", "db"]),
            ("clickhouse://u:p@:8123/db", ["u", "p", "localhost", "db"]),
            ("clickhouse://u:p@?host=x", ["u", "p", "localhost", ""]),
            ("CLICKHOUSE://u:%C3%A9@h/", ["u", "é", "h", ""]),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
        assert_eq!(Uri::parse("clickhouse://h:0/").unwrap().port, Some(0));
        assert_eq!(Uri::parse("clickhouse://h:9/").unwrap().port, Some(9));
    }

    #[test]
    fn no_error_quotes_any_part_of_a_password() {
        for text in [
            "clickhouse://u:hunter/2sekret@h/db",
            "clickhouse://u:1/2sekret@h/db",
            "clickhouse://u:1?sekret@h/db",
            "clickhouse://u:1#sekret@h/db",
            "clickhouse://u:sekret@b/sekret@h/db",
            "clickhouse://u:sekret@b?x=sekret@h/db",
            "clickhouse://u:sekret@b#sekret@h/db",
            "clickhouse://u:sekret@h/db#sekret",
            "clickhouse://u:sek\tret@h/db",
            "clickhouse://u:sekret%FF@h/db",
            "clickhouse://u:sekret@[::1%25eth0]/db",
            "clickhouse://u:sekret@h:port/db",
            "clickhouse:sekret",
            "http://u:sekret@h/db",
            "http://u:sekret@xn--abCé/db",
            "u:sekret@h/db",
            "sekret",
            "",
        ] {
            let message = refused(text);
            assert!(message.starts_with("the ClickHouse URI "), "{message}");
            assert!(
                !message.contains("sekret") && !message.contains("hunter"),
                "{message}"
            );
        }
    }

    #[test]
    fn an_error_says_what_to_do() {
        assert!(refused("clickhouse://u:a/b@h/db").contains("%2F"));
        assert!(refused("clickhouse://u:a#b@h/db").contains("%23"));
        assert!(refused("clickhouse://u@[fe80::1%eth0]/db").contains("zone"));
        assert!(refused("clickhouse://u@h:99999/db").contains("65535"));
    }
}
