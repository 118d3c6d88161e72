//! The policy of the network: what a target may name, and what its name may resolve to.
//!
//! Two layers are needed. The ceiling judges what an operator wrote, and a name in it says nothing about where
//! the name leads: whoever has the domain may point it to this machine or to the metadata of its cloud. The kinds
//! of addresses judge that, and say nothing about which of the servers at public addresses is meant.
//!
//! The host checks the origin when it opens a target, and each address that the origin's name resolved to
//! before it connects to that very address. So no names are special here: `localhost` and
//! `metadata.google.internal` are what they resolve to, and so is `127.1`, which looks like an address
//! but is one only to the system's resolver.

use std::net::IpAddr;

use crate::address::{Reach, reach};
use crate::ceiling::Ceiling;
use crate::origin::{Host, Origin};

/// What a host lets its targets reach.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// What targets may name.
    pub(crate) ceiling: Ceiling,
    /// Whether an origin may be on this machine or in a private network, as most stores are.
    pub(crate) private: bool,
}

/// Whatever a target names, but for what nobody may reach.
impl Default for Policy {
    fn default() -> Policy {
        Policy {
            ceiling: Ceiling::default(),
            private: true,
        }
    }
}

/// Why an origin may not be reached: one line, with the configuration that would allow it where one can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    /// No entry of the ceiling fits.
    #[error("{origin} is none of the allowed origins; {}", match .line {
        Some(line) => format!("to allow it, add {line} to them"),
        None => String::from("write its address in full, as 127.0.0.1"),
    })]
    Ceiling {
        origin: Origin,
        /// The entry that would allow it.
        line: Option<String>,
    },
    /// Only ranges fit, and the address is in none of them.
    #[error("{}, which is in no range that is allowed for it; {}", at(.origin, .address), match .line {
        Some(line) => format!("to allow it, add {line} to the allowed origins"),
        None => String::from("write its address in full, as 127.0.0.1"),
    })]
    Range {
        origin: Origin,
        address: IpAddr,
        /// The entry that would allow it.
        line: Option<String>,
    },
    /// The address is on this machine or in a private network, and neither is allowed.
    #[error("{}, {what}; to allow it, allow private addresses", at(.origin, .address))]
    Private {
        origin: Origin,
        address: IpAddr,
        what: &'static str,
    },
    /// The address is one that nobody may reach.
    #[error("{}, {what}; no configuration allows it", at(.origin, .address))]
    Forbidden {
        origin: Origin,
        address: IpAddr,
        what: &'static str,
    },
}

/// For a text of which the next words are about the address.
fn at(origin: &Origin, address: &IpAddr) -> String {
    format!("{origin} is at {address}")
}

impl Policy {
    /// Whether a target may name this origin. An address in it is judged at once.
    pub(crate) fn check_origin(&self, origin: &Origin) -> Result<(), Denied> {
        match origin.host() {
            Host::Address(address) => self.check_address(origin, *address),
            Host::Name(_) => self.check_ceiling(origin),
        }
    }

    /// Whether a connection for this origin may go to this address, which its host is or has resolved to.
    pub(crate) fn check_address(&self, origin: &Origin, address: IpAddr) -> Result<(), Denied> {
        let reach = reach(address);
        // What nothing can allow comes first: nobody should add an entry and be denied again.
        if let Reach::Forbidden(what) = reach {
            return Err(Denied::Forbidden {
                origin: origin.clone(),
                address,
                what,
            });
        }
        self.check_ceiling(origin)?;
        if !self.ceiling.allows_address(origin, address) {
            return Err(Denied::Range {
                origin: origin.clone(),
                address,
                line: Ceiling::line(origin),
            });
        }
        let what = match reach {
            Reach::Private => "a private address",
            Reach::Loopback => "a loopback address",
            Reach::Public | Reach::Forbidden(_) => return Ok(()),
        };
        if self.private {
            return Ok(());
        }
        Err(Denied::Private {
            origin: origin.clone(),
            address,
            what,
        })
    }

    fn check_ceiling(&self, origin: &Origin) -> Result<(), Denied> {
        if self.ceiling.allows(origin) {
            return Ok(());
        }
        Err(Denied::Ceiling {
            origin: origin.clone(),
            line: Ceiling::line(origin),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        Origin::of_request(&text.parse().unwrap()).unwrap()
    }

    fn policy(ceiling: &str, private: bool) -> Policy {
        let ceiling = match ceiling {
            "" => Ceiling::default(),
            entries => entries.parse().unwrap(),
        };
        Policy { ceiling, private }
    }

    fn said(checked: Result<(), Denied>) -> String {
        checked.map_or_else(|denied| denied.to_string(), |()| "ok".to_owned())
    }

    const METADATA: &str = "a link-local address, where clouds serve metadata and credentials";

    #[test]
    fn a_target_may_name_what_the_ceiling_and_its_address_allow() {
        for (ceiling, private, asked, answer) in [
            ("", false, "https://db.example.com:8443", "ok"),
            ("", false, "https://8.8.8.8:8443", "ok"),
            ("", true, "http://127.0.0.1:8123", "ok"),
            ("", true, "http://10.0.0.1:8123", "ok"),
            // Judged by what they resolve to.
            ("", false, "http://localhost:8123", "ok"),
            ("", false, "http://db.localhost:8123", "ok"),
            ("", false, "http://metadata.google.internal", "ok"),
            ("", false, "http://127.1:8123", "ok"),
            ("", false, "http://2130706433:8123", "ok"),
            ("http://10.0.0.0/8:8123", true, "http://db:8123", "ok"),
            ("http://10.0.0.0/8:8123", true, "http://10.1.2.3:8123", "ok"),
            (
                "",
                false,
                "http://127.0.0.1:8123",
                "http://127.0.0.1:8123 is at 127.0.0.1, a loopback address; to allow it, allow private addresses",
            ),
            (
                "",
                false,
                "http://[fd01::1]:8123",
                "http://[fd01::1]:8123 is at fd01::1, a private address; to allow it, allow private addresses",
            ),
            // An entry of the ceiling does not make a private address public.
            (
                "http://10.0.0.0/8:8123",
                false,
                "http://10.1.2.3:8123",
                "http://10.1.2.3:8123 is at 10.1.2.3, a private address; to allow it, allow private addresses",
            ),
            (
                "",
                true,
                "http://169.254.169.254",
                &format!(
                    "http://169.254.169.254:80 is at 169.254.169.254, {METADATA}; no configuration allows it"
                ),
            ),
            (
                "http://169.254.169.254",
                true,
                "http://[::ffff:169.254.169.254]",
                &format!(
                    "http://[::ffff:169.254.169.254]:80 is at ::ffff:169.254.169.254, {METADATA}; no configuration allows it"
                ),
            ),
            (
                "https://a",
                true,
                "https://db.example.com:8443",
                "https://db.example.com:8443 is none of the allowed origins; to allow it, add https://db.example.com:8443 to them",
            ),
            (
                "http://10.0.0.0/8:8123",
                true,
                "http://192.168.0.1:8123",
                "http://192.168.0.1:8123 is none of the allowed origins; to allow it, add http://192.168.0.1:8123 to them",
            ),
            (
                "https://a",
                true,
                "http://127.1:8123",
                "http://127.1:8123 is none of the allowed origins; write its address in full, as 127.0.0.1",
            ),
        ] {
            assert_eq!(
                said(policy(ceiling, private).check_origin(&origin(asked))),
                answer
            );
        }
    }

    #[test]
    fn a_name_may_lead_where_the_ceiling_and_the_address_allow() {
        for (ceiling, private, address, answer) in [
            ("", false, "8.8.8.8", "ok"),
            ("", true, "127.0.0.1", "ok"),
            ("", true, "fd01::1", "ok"),
            ("http://db:8123", false, "2a00::1", "ok"),
            ("http://10.0.0.0/8:8123", true, "10.1.2.3", "ok"),
            ("http://10.0.0.0/8:8123", true, "::ffff:10.1.2.3", "ok"),
            ("http://8.8.8.0/24:8123", false, "8.8.8.8", "ok"),
            (
                "",
                false,
                "127.0.0.1",
                "http://db:8123 is at 127.0.0.1, a loopback address; to allow it, allow private addresses",
            ),
            (
                "http://db:8123",
                false,
                "::ffff:127.0.0.1",
                "http://db:8123 is at ::ffff:127.0.0.1, a loopback address; to allow it, allow private addresses",
            ),
            (
                "",
                true,
                "169.254.169.254",
                &format!(
                    "http://db:8123 is at 169.254.169.254, {METADATA}; no configuration allows it"
                ),
            ),
            (
                "http://0.0.0.0/0:8123",
                true,
                "0.0.0.0",
                "http://db:8123 is at 0.0.0.0, an unspecified address, which some systems take for this machine; no configuration allows it",
            ),
            (
                "http://10.0.0.0/8:8123",
                true,
                "8.8.8.8",
                "http://db:8123 is at 8.8.8.8, which is in no range that is allowed for it; to allow it, add http://db:8123 to the allowed origins",
            ),
            (
                "https://a",
                true,
                "8.8.8.8",
                "http://db:8123 is none of the allowed origins; to allow it, add http://db:8123 to them",
            ),
        ] {
            let checked = policy(ceiling, private)
                .check_address(&origin("http://db:8123"), address.parse().unwrap());
            assert_eq!(said(checked), answer);
        }
    }
}
