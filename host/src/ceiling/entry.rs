//! One entry of a ceiling: its grammar, and what it fits.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use crate::origin::{Host, Origin};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    tls: bool,
    hosts: Hosts,
    /// None is any port.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Any,
    /// Names that end in it; it starts with a dot.
    Below(String),
    Name(String),
    /// An address is a range of one.
    Range(IpNet),
}

/// What is wrong with an entry; its text goes on after the entry. Never holds more of it than a part that
/// the grammar knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error(
        "is empty; write origins such as https://db.example.com:8443, or leave it out to allow any"
    )]
    Empty,
    #[error("holds user information; write scheme://host:port alone, without a user and password")]
    User,
    #[error("has no scheme; write https://{0}, or http:// for one without TLS")]
    NoScheme(String),
    #[error(
        "has a scheme that is not one of requests; write https://, or http:// for one without TLS"
    )]
    Scheme,
    #[error("has a path; write scheme://host:port alone, and a range as http://10.0.0.0/8:8123")]
    Path,
    #[error("has no host; write * for any")]
    NoHost,
    #[error("has a host that is neither a name nor an address; write https://db.example.com:8443")]
    Host,
    #[error(
        "has a `*` inside of a name; write it first and with a dot, https://*.example.com:8443, or alone for any host"
    )]
    Wildcard,
    #[error("has a host that is a number in an odd form; write the address in full, as 127.0.0.1")]
    Number,
    #[error(
        "has an IPv6 address without brackets; write https://[fd00::1]:8443, or https://[fd00::/8]:8443"
    )]
    Brackets,
    #[error(
        "has no range after the address; write http://10.0.0.0/8:8123 or https://[fd00::/8]:8443, with at most 32 or 128 bits"
    )]
    Length,
    #[error("has a range that starts elsewhere; write {0}")]
    Start(IpNet),
    #[error("has IPv4 addresses in their IPv6 form; write them as IPv4 ones")]
    Mapped,
    #[error("has a port that is not a number from 1 to 65535; write :8443, or :* for any")]
    Port,
}

impl Entry {
    pub(super) fn any(tls: bool) -> Entry {
        Entry {
            tls,
            hosts: Hosts::Any,
            port: None,
        }
    }

    pub(super) fn parse(text: &str) -> Result<Entry, Fault> {
        let Some((scheme, rest)) = text.split_once("://") else {
            // What would not be an entry with one either may be anything, and is not to be repeated.
            let known = Entry::parse(&format!("https://{text}")).is_ok();
            return Err(Fault::NoScheme(
                if known { text } else { "db.example.com:8443" }.to_owned(),
            ));
        };
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(Fault::Scheme),
        };
        let (hosts, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (inside, after) = rest.split_once(']').ok_or(Fault::Host)?;
                let port = match after.strip_prefix(':') {
                    Some(port) => Some(port),
                    None if after.is_empty() => None,
                    None if after.starts_with('/') => return Err(Fault::Path),
                    None => return Err(Fault::Host),
                };
                (Hosts::in_brackets(inside)?, port)
            }
            None => match rest.split_once(':') {
                Some((_, port)) if port.contains(':') => return Err(Fault::Brackets),
                Some((host, port)) => (Hosts::parse(host)?, Some(port)),
                None => (Hosts::parse(rest)?, None),
            },
        };
        let port = match port {
            None if tls => Some(443),
            None => Some(80),
            Some("*") => None,
            Some(port) if port.contains('/') => return Err(Fault::Path),
            Some(port) => Some(number(port).filter(|port| *port != 0).ok_or(Fault::Port)?),
        };
        Ok(Entry { tls, hosts, port })
    }

    /// Whether it fits this origin, for some address at least.
    pub(super) fn allows(&self, origin: &Origin) -> bool {
        self.fits(origin)
            && match (&self.hosts, origin.host()) {
                (Hosts::Range(range), Host::Address(address)) => {
                    range.contains(&address.to_canonical())
                }
                (Hosts::Range(_), Host::Name(_)) => true,
                (hosts, host) => hosts.names(host),
            }
    }

    /// Whether it fits this origin with this address.
    pub(super) fn allows_address(&self, origin: &Origin, address: IpAddr) -> bool {
        self.fits(origin)
            && match &self.hosts {
                Hosts::Range(range) => range.contains(&address.to_canonical()),
                hosts => hosts.names(origin.host()),
            }
    }

    fn fits(&self, origin: &Origin) -> bool {
        self.tls == origin.tls() && self.port.is_none_or(|port| port == origin.port())
    }
}

impl Hosts {
    fn parse(text: &str) -> Result<Hosts, Fault> {
        if text.is_empty() {
            return Err(Fault::NoHost);
        }
        if text == "*" {
            return Ok(Hosts::Any);
        }
        if let Some((address, length)) = text.split_once('/') {
            let address = address.parse().map_err(|_| Fault::Path)?;
            return range(address, length);
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(domain) => (true, domain),
            None => (false, text),
        };
        if name.contains('*') {
            return Err(Fault::Wildcard);
        }
        match Host::parse(name).ok_or(Fault::Host)? {
            // `*.10.0.0.1`
            Host::Address(_) if below => Err(Fault::Wildcard),
            Host::Address(address) => Ok(Hosts::Range(address.to_canonical().into())),
            Host::Name(name) if is_number(&name) => Err(Fault::Number),
            Host::Name(name) if below && name.starts_with('.') => Err(Fault::Host),
            Host::Name(name) if below => Ok(Hosts::Below(format!(".{name}"))),
            Host::Name(name) => Ok(Hosts::Name(name)),
        }
    }

    fn in_brackets(text: &str) -> Result<Hosts, Fault> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: Ipv6Addr = address.parse().map_err(|_| Fault::Host)?;
        match length {
            None => Ok(Hosts::Range(IpAddr::from(address).to_canonical().into())),
            // Addresses are compared in their IPv4 form, so the range would hold none.
            Some(_) if address.to_ipv4_mapped().is_some() => Err(Fault::Mapped),
            Some(length) => range(address.into(), length),
        }
    }

    /// Whether this host is named, so that whatever it resolves to is allowed.
    fn names(&self, host: &Host) -> bool {
        match (self, host) {
            (Hosts::Any, _) => true,
            (Hosts::Below(end), Host::Name(name)) => name
                .strip_suffix(end.as_str())
                .is_some_and(|start| !start.is_empty()),
            (Hosts::Name(named), Host::Name(name)) => named == name,
            (Hosts::Below(_) | Hosts::Name(_), Host::Address(_)) | (Hosts::Range(_), _) => false,
        }
    }
}

fn range(address: IpAddr, length: &str) -> Result<Hosts, Fault> {
    let length = number(length).ok_or(Fault::Length)?;
    let range = u8::try_from(length)
        .ok()
        .and_then(|length| IpNet::new(address, length).ok())
        .ok_or(Fault::Length)?;
    // Somebody who writes 10.0.0.5/8 may mean one address or sixteen million.
    if range != range.trunc() {
        return Err(Fault::Start(range.trunc()));
    }
    Ok(Hosts::Range(range))
}

/// Rust's own numbers may start with a plus.
fn number(text: &str) -> Option<u16> {
    text.starts_with(|c: char| c.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// Whether the system's resolver may read a name as an address: `127.1`, `0x7f.1`, `2130706433`. As a name in
/// an entry it would fit only a target that is written in the same way. No domain ends in a number.
fn is_number(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let last = name.rsplit('.').next().unwrap_or(name);
    let hexadecimal = last
        .strip_prefix("0x")
        .is_some_and(|digits| digits.chars().all(|c| c.is_ascii_hexdigit()));
    hexadecimal || (!last.is_empty() && last.chars().all(|c| c.is_ascii_digit()))
}

impl fmt::Display for Entry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.tls { "https://" } else { "http://" })?;
        match &self.hosts {
            Hosts::Any => out.write_str("*")?,
            Hosts::Below(end) => write!(out, "*{end}")?,
            Hosts::Name(name) => out.write_str(name)?,
            Hosts::Range(range) => {
                let one = range.prefix_len() == range.max_prefix_len();
                match (range, one) {
                    (IpNet::V4(range), true) => write!(out, "{}", range.addr())?,
                    (IpNet::V4(range), false) => write!(out, "{range}")?,
                    (IpNet::V6(range), true) => write!(out, "[{}]", range.addr())?,
                    (IpNet::V6(range), false) => write!(out, "[{range}]")?,
                }
            }
        }
        match self.port {
            Some(port) => write!(out, ":{port}"),
            None => out.write_str(":*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_shown_as_it_may_be_written() {
        for (text, shown) in [
            ("https://db.example.com", "https://db.example.com:443"),
            ("http://db.example.com", "http://db.example.com:80"),
            ("HTTPS://DB.Example.com:8443", "https://db.example.com:8443"),
            ("https://db:*", "https://db:*"),
            ("https://my_db.:1", "https://my_db.:1"),
            ("https://*", "https://*:443"),
            ("http://*:*", "http://*:*"),
            ("https://*.Example.com:65535", "https://*.example.com:65535"),
            ("http://10.0.0.1", "http://10.0.0.1:80"),
            ("http://10.0.0.1/32:1", "http://10.0.0.1:1"),
            ("http://10.0.0.0/8:8123", "http://10.0.0.0/8:8123"),
            ("http://0.0.0.0/0:*", "http://0.0.0.0/0:*"),
            ("https://[FD00:0::1]", "https://[fd00::1]:443"),
            ("https://[fd00::/8]:8443", "https://[fd00::/8]:8443"),
            ("https://[::/0]:*", "https://[::/0]:*"),
            ("https://[fd00::1/128]", "https://[fd00::1]:443"),
            ("https://[::ffff:10.0.0.1]", "https://10.0.0.1:443"),
            ("https://0x7f.example:1", "https://0x7f.example:1"),
            ("https://7.example:1", "https://7.example:1"),
        ] {
            let entry = Entry::parse(text).unwrap();
            assert_eq!(entry.to_string(), shown);
            assert_eq!(Entry::parse(shown).unwrap(), entry);
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_the_mend() {
        let start = |range: &str| Fault::Start(range.parse().unwrap());
        for (text, fault) in [
            (
                "db.example.com",
                Fault::NoScheme("db.example.com".to_owned()),
            ),
            ("10.0.0.0/8", Fault::NoScheme("10.0.0.0/8".to_owned())),
            ("*", Fault::NoScheme("*".to_owned())),
            (
                "app:secret",
                Fault::NoScheme("db.example.com:8443".to_owned()),
            ),
            ("clickhouse://db", Fault::Scheme),
            ("*://db", Fault::Scheme),
            ("://db", Fault::Scheme),
            ("https://db/", Fault::Path),
            ("https://db:8443/", Fault::Path),
            ("https://db/path:1", Fault::Path),
            ("https://[fd00::]/8", Fault::Path),
            ("http://10.0.0.0:8123/8", Fault::Path),
            ("https://", Fault::NoHost),
            ("https://:8443", Fault::NoHost),
            ("https://a%62", Fault::Host),
            ("https://[db]", Fault::Host),
            ("https://[10.0.0.0/8]", Fault::Host),
            ("https://[fd00::1", Fault::Host),
            ("https://[fd00::1]8443", Fault::Host),
            ("https://[fe80::1%25eth0]", Fault::Host),
            ("https://*.", Fault::Host),
            ("https://*..com", Fault::Host),
            ("https://*example.com", Fault::Wildcard),
            ("https://db*.example.com", Fault::Wildcard),
            ("https://*.*.com", Fault::Wildcard),
            ("https://db.*", Fault::Wildcard),
            ("https://*.10.0.0.1", Fault::Wildcard),
            ("https://127.1", Fault::Number),
            ("https://0x7f.1", Fault::Number),
            ("https://0x7f000001", Fault::Number),
            ("https://2130706433:1", Fault::Number),
            ("https://017700000001", Fault::Number),
            ("https://127.0.0.1.", Fault::Number),
            ("https://*.0.1", Fault::Number),
            ("https://fd00::1:8443", Fault::Brackets),
            ("https://fd00::/8", Fault::Brackets),
            ("http://10.0.0.0/33", Fault::Length),
            ("http://10.0.0.0/", Fault::Length),
            ("http://10.0.0.0/+8", Fault::Length),
            ("http://10.0.0.0/255.0.0.0", Fault::Length),
            ("http://10.0.0.0/264", Fault::Length),
            ("https://[fd00::/129]", Fault::Length),
            ("http://10.0.0.5/8", start("10.0.0.0/8")),
            ("https://[fd00::5/8]", start("fd00::/8")),
            ("https://[::ffff:10.0.0.0/104]", Fault::Mapped),
            ("https://db:", Fault::Port),
            ("https://db:0", Fault::Port),
            ("https://db:65536", Fault::Port),
            ("https://db:+1", Fault::Port),
            ("https://db:https", Fault::Port),
            ("https://db:80*", Fault::Port),
        ] {
            assert_eq!(Entry::parse(text).unwrap_err(), fault, "{text}");
            let said = fault.to_string();
            assert!(said.contains("; write ") && !said.contains('\n'), "{said}");
        }
    }
}
