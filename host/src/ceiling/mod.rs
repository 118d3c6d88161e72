//! The operator's ceiling: which origins targets may name at all. Pure; the host asks it twice.
//!
//! When a target is opened, [`Ceiling::allows`] refuses what can never be allowed. When a connection is made,
//! [`Ceiling::allows_address`] filters what the name resolved to, since an entry with a range says nothing
//! about names.

mod entry;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use self::entry::{Entry, Fault};
use crate::origin::Origin;

/// The origins that targets may name: a list of entries `scheme://host[:port]`, of which one must fit.
///
/// Entries stand one after the other, with commas or white space between. The default is no ceiling: whatever
/// a target names.
///
/// | entry | what it allows |
/// |---|---|
/// | `https://db.example.com` | this host with TLS, at port 443 |
/// | `http://db.example.com` | this host without TLS, at port 80 |
/// | `https://db.example.com:8443` | this host with TLS, at port 8443 |
/// | `https://db.example.com:*` | this host with TLS, at any port |
/// | `https://*.example.com:8443` | hosts below `example.com` at any depth, but not `example.com` itself |
/// | `https://*:*` | any host, as long as it has TLS |
/// | `http://10.1.2.3:8123`, `https://[fd00::1]:8443` | this address, and names that resolve to it |
/// | `http://10.0.0.0/8:8123`, `https://[fd00::/8]:8443` | addresses of this range, and names that resolve to one |
///
/// A scheme is `http` or `https`; for both there are two entries. A name is compared as it is written, but for
/// the case: `db`, `db.example.com` and `db.example.com.` are three. A name that an entry names may resolve to
/// any address that the policy on addresses leaves; one that only fits ranges, to addresses within them.
///
/// ```
/// use pipeline_state::Ceiling;
///
/// let ceiling: Ceiling = "https://*.example.com:8443, http://10.0.0.0/8:8123".parse()?;
/// assert_eq!(ceiling.to_string(), "https://*.example.com:8443, http://10.0.0.0/8:8123");
///
/// let error = "db.example.com:8443".parse::<Ceiling>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "`db.example.com:8443` has no scheme; write https://db.example.com:8443, or http:// for one without TLS",
/// );
/// # Ok::<(), pipeline_state::CeilingError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// Never empty.
    entries: Vec<Entry>,
}

impl Default for Ceiling {
    /// Any origin: `http://*:*, https://*:*`.
    fn default() -> Ceiling {
        Ceiling {
            entries: vec![Entry::any(false), Entry::any(true)],
        }
    }
}

impl Ceiling {
    /// Whether a target may name this origin. A name that fits a range alone may: what it resolves to counts.
    pub(crate) fn allows(&self, origin: &Origin) -> bool {
        self.entries.iter().any(|entry| entry.allows(origin))
    }

    /// Whether a connection for this origin may go to this address, which its host is or has resolved to.
    pub(crate) fn allows_address(&self, origin: &Origin, address: IpAddr) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.allows_address(origin, address))
    }

    /// The entry that would allow an origin. None where its host is a number in an odd form, which no entry may hold.
    pub(crate) fn line(origin: &Origin) -> Option<String> {
        Entry::parse(&origin.to_string())
            .ok()
            .map(|entry| entry.to_string())
    }
}

impl fmt::Display for Ceiling {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.entries.iter().enumerate() {
            if index > 0 {
                out.write_str(", ")?;
            }
            write!(out, "{entry}")?;
        }
        Ok(())
    }
}

/// What is wrong with a ceiling, and what to write. One line, which never holds user information.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{entry} {fault}")]
pub struct CeilingError {
    entry: String,
    fault: Fault,
}

impl FromStr for Ceiling {
    type Err = CeilingError;

    fn from_str(text: &str) -> Result<Ceiling, CeilingError> {
        let entries = || {
            text.split(|c: char| c == ',' || c.is_whitespace())
                .filter(|entry| !entry.is_empty())
                .zip(1_usize..)
        };
        // First of all: a password may hold a comma, and then its parts are no entries to quote.
        if let Some((_, number)) = entries().find(|(entry, _)| entry.contains('@')) {
            return Err(CeilingError {
                entry: format!("entry {number}"),
                fault: Fault::User,
            });
        }
        let entries = entries()
            .map(|(entry, number)| {
                Entry::parse(entry).map_err(|fault| CeilingError {
                    entry: name(entry, number),
                    fault,
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        if entries.is_empty() {
            // Neither "nothing" nor "anything" would be sure to be what is meant.
            return Err(CeilingError {
                entry: "the list of allowed origins".to_owned(),
                fault: Fault::Empty,
            });
        }
        Ok(Ceiling { entries })
    }
}

/// An entry in an error: quoted only if it is made of what entries are made of. A query, for one, may hold a secret.
fn name(entry: &str, number: usize) -> String {
    let known = |c: char| c.is_ascii_alphanumeric() || "-_.:/[]*".contains(c);
    if entry.chars().all(known) {
        format!("`{entry}`")
    } else {
        format!("entry {number}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ceiling(text: &str) -> Ceiling {
        text.parse().unwrap()
    }

    fn origin(text: &str) -> Origin {
        Origin::of_request(&text.parse().unwrap()).unwrap()
    }

    #[test]
    fn an_entry_allows_what_it_says_and_no_more() {
        // What a name resolves to is asked later: ranges allow every name.
        for (entries, allowed, denied) in [
            (
                "https://db.example.com",
                "https://db.example.com",
                "https://db.example.com:8443 http://db.example.com:443",
            ),
            (
                "http://db.example.com",
                "http://db.example.com:80",
                "https://db.example.com:80",
            ),
            (
                "https://DB.Example.COM:8443",
                "https://db.example.com:8443",
                "",
            ),
            ("HTTPS://db:8443", "https://DB:8443", ""),
            ("https://db:8443", "", "https://db.example.com:8443"),
            (
                "https://db.example.com:8443",
                "",
                "https://db.example.com.:8443 https://xdb.example.com:8443",
            ),
            (
                "https://db.example.com:*",
                "https://db.example.com:1",
                "http://db.example.com:1",
            ),
            (
                "https://*.example.com:8443",
                "https://db.example.com:8443 https://a.b.c.example.com:8443",
                "https://example.com:8443 https://.example.com:8443 https://badexample.com:8443 https://example.com.evil.org:8443 https://db.example.com:8444 http://db.example.com:8443",
            ),
            ("https://*.internal", "https://db.internal", ""),
            (
                "https://*",
                "https://db https://10.0.0.1 https://[2a00::1]",
                "https://db:8443",
            ),
            ("https://*:*", "https://db:8443", "http://db:443"),
            (
                "http://10.0.0.5:8123",
                "http://10.0.0.5:8123 http://[::ffff:10.0.0.5]:8123",
                "http://10.0.0.6:8123 http://10.0.0.5:8124",
            ),
            (
                "http://[fd00::5]:8123",
                "http://[fd00:0::5]:8123",
                "http://[fd00::6]:8123",
            ),
            (
                "http://10.0.0.0/8:8123",
                "http://10.0.0.0:8123 http://10.255.255.255:8123 http://[::ffff:10.1.2.3]:8123 http://db:8123",
                "http://9.255.255.255:8123 http://11.0.0.0:8123 http://[64:ff9b::a00:1]:8123 https://10.0.0.1:8123 http://10.0.0.1:8124 http://db:8124 https://db:8123",
            ),
            ("http://10.0.0.0/8", "http://10.0.0.1", ""),
            ("http://10.0.0.0/8:*", "http://10.0.0.1:9", ""),
            ("http://0.0.0.0/0:*", "", "http://[fd00::1]:9"),
            (
                "https://[fd00::/8]:8443",
                "https://[fdff:ffff::1]:8443",
                "https://[fe00::]:8443",
            ),
            (
                "https://a, https://b:1 http://c",
                "https://b:1 http://c",
                "https://d",
            ),
        ] {
            for asked in allowed.split_whitespace() {
                assert!(ceiling(entries).allows(&origin(asked)), "{entries} {asked}");
            }
            for asked in denied.split_whitespace() {
                assert!(
                    !ceiling(entries).allows(&origin(asked)),
                    "{entries} {asked}"
                );
            }
        }
    }

    #[test]
    fn a_name_that_fits_ranges_alone_may_only_go_there() {
        for (entries, asked, allowed, denied) in [
            ("http://db:8123", "http://db:8123", "8.8.8.8 ::1", ""),
            ("http://db:8123", "http://web:8123", "", "8.8.8.8"),
            ("http://*.corp:8123", "http://db.corp:8123", "8.8.8.8", ""),
            ("http://*:8123", "http://db:8123", "8.8.8.8", ""),
            (
                "http://10.0.0.0/8:8123",
                "http://db:8123",
                "10.0.0.0 10.255.255.255 ::ffff:10.0.0.1",
                "11.0.0.0 fd00::1",
            ),
            ("http://10.0.0.0/8:8123", "http://db:8124", "", "10.0.0.1"),
            ("http://10.0.0.0/8:8123", "https://db:8123", "", "10.0.0.1"),
            (
                "http://10.0.0.5:8123",
                "http://db:8123",
                "10.0.0.5",
                "10.0.0.6",
            ),
            (
                "https://[fd00::/8]:8443",
                "https://db:8443",
                "fd12::1",
                "fc00::1",
            ),
            (
                "http://10.0.0.0/8:1 http://db:1",
                "http://db:1",
                "8.8.8.8",
                "",
            ),
            (
                "http://10.0.0.0/8:1 http://db:2",
                "http://db:1",
                "",
                "8.8.8.8",
            ),
        ] {
            let (ceiling, asked) = (ceiling(entries), origin(asked));
            for address in allowed.split_whitespace() {
                assert!(
                    ceiling.allows_address(&asked, address.parse().unwrap()),
                    "{entries} {address}"
                );
                // What is allowed at the time of dialling was not refused when the target was opened.
                assert!(ceiling.allows(&asked));
            }
            for address in denied.split_whitespace() {
                assert!(
                    !ceiling.allows_address(&asked, address.parse().unwrap()),
                    "{entries} {address}"
                );
            }
        }
    }

    #[test]
    fn without_a_ceiling_anything_may_be_named() {
        let none = Ceiling::default();
        assert_eq!(none.to_string(), "http://*:*, https://*:*");
        assert_eq!(ceiling(&none.to_string()), none);
        for asked in [
            "http://db",
            "https://db:1",
            "http://10.0.0.1",
            "https://[fd00::1]:1",
            "http://127.1:2",
        ] {
            assert!(none.allows(&origin(asked)), "{asked}");
            assert!(
                none.allows_address(&origin(asked), "8.8.8.8".parse().unwrap()),
                "{asked}"
            );
        }
    }

    #[test]
    fn an_empty_list_is_neither_everything_nor_nothing() {
        for text in ["", " \n", ",", " , "] {
            let error = text.parse::<Ceiling>().unwrap_err().to_string();
            assert!(
                error.starts_with("the list of allowed origins is empty; write "),
                "{error}"
            );
        }
    }

    #[test]
    fn a_line_allows_the_origin_that_it_is_for() {
        for (asked, line) in [
            ("https://db.example.com:8443", "https://db.example.com:8443"),
            ("https://db.example.com", "https://db.example.com:443"),
            ("http://my_db.", "http://my_db.:80"),
            ("http://10.0.0.1:8123", "http://10.0.0.1:8123"),
            ("http://[::ffff:10.0.0.1]", "http://10.0.0.1:80"),
            ("http://[FD00:0::1]:1", "http://[fd00::1]:1"),
        ] {
            assert_eq!(Ceiling::line(&origin(asked)).unwrap(), line);
            assert!(ceiling(line).allows(&origin(asked)), "{asked}");
        }
        assert_eq!(Ceiling::line(&origin("http://127.1:8123")), None);
        assert_eq!(Ceiling::line(&origin("http://0x7f.1")), None);
    }

    #[test]
    fn user_information_is_never_quoted() {
        for (text, error) in [
            ("https://app:secret@db", "entry 1 holds user information"),
            (
                "https://a, https://app:secret@db",
                "entry 2 holds user information",
            ),
            ("https://app:sec,ret@db", "entry 2 holds user information"),
            ("https://app:secret x@db", "entry 2 holds user information"),
            ("app:secret@db", "entry 1 holds user information"),
            ("https://db?password=secret", "entry 1 has a host"),
            ("https://app:secret%40db", "entry 1 has a port"),
        ] {
            let refused = text.parse::<Ceiling>().unwrap_err();
            for shown in [refused.to_string(), format!("{refused:?}")] {
                assert!(!shown.contains("sec") && !shown.contains("ret"), "{shown}");
            }
            assert!(refused.to_string().starts_with(error), "{refused}");
        }
    }
}
