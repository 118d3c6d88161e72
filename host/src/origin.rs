//! An origin: scheme, host and port, the only place that a call may reach. Pure; no names are resolved here.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use http::Uri;
use http::uri::Scheme;

/// Where a plugin may send requests. Two origins are equal when all three parts are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    tls: bool,
    host: Host,
    port: u16,
}

/// What a target wrote as its host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    /// In lower case. It may still be a number that the system's resolver takes for an address: `127.1`.
    Name(String),
    Address(IpAddr),
}

impl Origin {
    /// `host` may be a name in any case, or an address, an IPv6 one in brackets or not. None where it is neither.
    pub(crate) fn new(tls: bool, host: &str, port: u16) -> Option<Origin> {
        Some(Origin {
            tls,
            host: Host::parse(host)?,
            port,
        })
    }

    /// The origin of a request that a plugin wants to send. None where its URI is not an absolute one of
    /// HTTP, or holds user information, which no request needs and some parsers read otherwise.
    pub(crate) fn of_request(uri: &Uri) -> Option<Origin> {
        let scheme = uri.scheme()?;
        let tls = match scheme {
            s if *s == Scheme::HTTP => false,
            s if *s == Scheme::HTTPS => true,
            _ => return None,
        };
        let authority = uri.authority()?;
        if authority.as_str().contains('@') {
            return None;
        }
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            // `host:` and `host:99999` have no port that `http` would give, but are not without one.
            None if authority.as_str() != authority.host() => return None,
            None if tls => 443,
            None => 80,
        };
        Origin::new(tls, authority.host(), port)
    }

    pub(crate) fn tls(&self) -> bool {
        self.tls
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Host {
    /// A name in any case, or an address, an IPv6 one in brackets or not. None where it is neither.
    pub(crate) fn parse(text: &str) -> Option<Host> {
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Some(address) = bare {
            return address
                .parse::<Ipv6Addr>()
                .ok()
                .map(|a| Host::Address(a.into()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Host::Address(address));
        }
        let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        (!text.is_empty() && text.chars().all(name)).then(|| Host::Name(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.tls { "https://" } else { "http://" })?;
        match &self.host {
            Host::Name(name) => out.write_str(name)?,
            Host::Address(IpAddr::V6(address)) => write!(out, "[{address}]")?,
            Host::Address(address) => write!(out, "{address}")?,
        }
        write!(out, ":{}", self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(uri: &str) -> Option<String> {
        Origin::of_request(&uri.parse().ok()?).map(|origin| origin.to_string())
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        for (uri, origin) in [
            ("http://db/", "http://db:80"),
            ("https://db/?q", "https://db:443"),
            ("http://DB.Example.com:8123/x", "http://db.example.com:8123"),
            ("http://127.0.0.1:1/", "http://127.0.0.1:1"),
            ("http://[::1]:8123/", "http://[::1]:8123"),
            ("http://[0:0:0:0:0:0:0:1]:8123/", "http://[::1]:8123"),
        ] {
            assert_eq!(of(uri).unwrap(), origin);
        }
    }

    #[test]
    fn what_has_no_clear_origin_has_none() {
        for uri in [
            "/path",
            "db:8123",
            "ftp://db/",
            "http://user@db/",
            "http://user:password@db:8123/",
            "http://db:/",
            "http://db:99999/",
            "http://[::1%25eth0]/",
            "http://d%62/",
            "http://db%00/",
        ] {
            assert_eq!(of(uri), None, "{uri}");
        }
    }

    #[test]
    fn origins_differ_in_any_part() {
        let origin = Origin::new(false, "db", 8123).unwrap();
        assert_eq!(origin, Origin::new(false, "DB", 8123).unwrap());
        assert_ne!(origin, Origin::new(true, "db", 8123).unwrap());
        assert_ne!(origin, Origin::new(false, "db", 8124).unwrap());
        assert_ne!(origin, Origin::new(false, "db.", 8123).unwrap());
    }

    #[test]
    fn an_address_is_one_however_it_is_written() {
        assert_eq!(
            Origin::new(false, "::1", 1),
            Origin::new(false, "[0::1]", 1)
        );
        assert_eq!(Origin::new(false, "[127.0.0.1]", 1), None);
        assert_eq!(Origin::new(false, "", 1), None);
        assert_eq!(Origin::new(false, "a b", 1), None);
    }
}
