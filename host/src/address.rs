//! What an address is: of the internet, of a private network, of this machine, or none that a plugin may ever reach.
//!
//! Names are not judged here but what they resolve to, at the time of dialling: a name that is harmless today
//! resolves to 127.0.0.1 tomorrow. That covers also the odd forms of addresses that the system's resolver
//! reads, `127.1`, `0x7f.1`, `2130706433`, `017700000001`: they come out of it as what they are.
//!
//! What it can't know: a prefix that an operator took out of its own addresses for NAT64 (RFC 6052), the
//! public addresses of this machine, and what routers and proxies make of an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// How far away an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// On the internet.
    Public,
    /// In a network that only those inside it can reach.
    Private,
    /// This machine.
    Loopback,
    /// Never reached, whatever the configuration says; the text says what the address is: `a multicast address`.
    Forbidden(&'static str),
}

use Reach::{Forbidden, Loopback, Private, Public};

const METADATA: Reach =
    Forbidden("the address of a cloud's own service, which gives out credentials");
const LINK_LOCAL: Reach =
    Forbidden("a link-local address, where clouds serve metadata and credentials");
const UNSPECIFIED: Reach =
    Forbidden("an unspecified address, which some systems take for this machine");
const MULTICAST: Reach = Forbidden("a multicast address");
const RESERVED: Reach = Forbidden("an address of a range that is not in use");
const DOCUMENTATION: Reach = Forbidden("an address for examples, where there is never a server");
const TUNNEL: Reach = Forbidden("an address of a tunnel, which hides the address behind it");

/// The first row that holds an address counts; an address in none is public. The ranges are those of IANA's
/// registry of special-purpose IPv4 addresses, and the addresses of clouds within and beyond them.
const V4: &[(Ipv4Net, Reach)] = &[
    // RFC 1122, 3.2.1.3: "this network". Linux connects 0.0.0.0 to the loopback interface.
    (v4([0, 0, 0, 0], 8), UNSPECIFIED),
    // RFC 1918.
    (v4([10, 0, 0, 0], 8), Private),
    // Alibaba's metadata service, in the middle of the range below.
    (v4([100, 100, 100, 200], 32), METADATA),
    // RFC 6598: behind a carrier's NAT. Tailscale and several clouds number their machines in it.
    (v4([100, 64, 0, 0], 10), Private),
    // RFC 1122, 3.2.1.3.
    (v4([127, 0, 0, 0], 8), Loopback),
    // Azure's WireServer, the same in every region: keys and extensions of the machine. By its number it is public.
    (v4([168, 63, 129, 16], 32), METADATA),
    // RFC 3927. The metadata of nearly every cloud (.169.254), AWS's credentials of tasks (.170.2) and of pods
    // (.170.23), Scaleway's metadata (.42.42), Tencent's (.0.23).
    (v4([169, 254, 0, 0], 16), LINK_LOCAL),
    // RFC 1918.
    (v4([172, 16, 0, 0], 12), Private),
    // The metadata service of Oracle Cloud Classic, in the middle of the range below.
    (v4([192, 0, 0, 192], 32), METADATA),
    // RFC 6890: protocol assignments, as those of DS-Lite, between a router and what is behind it.
    (v4([192, 0, 0, 0], 24), Private),
    // RFC 5737. Nobody has a server there: a target that names one was copied from an example, and an error at
    // once is better than a time-out.
    (v4([192, 0, 2, 0], 24), DOCUMENTATION),
    (v4([198, 51, 100, 0], 24), DOCUMENTATION),
    (v4([203, 0, 113, 0], 24), DOCUMENTATION),
    // RFC 7526: relays of 6to4, withdrawn.
    (v4([192, 88, 99, 0], 24), TUNNEL),
    // RFC 1918.
    (v4([192, 168, 0, 0], 16), Private),
    // RFC 2544: for benchmarks. Not on the internet, and in use as one more private range: proxies and VPNs
    // resolve names to it.
    (v4([198, 18, 0, 0], 15), Private),
    // RFC 5771.
    (v4([224, 0, 0, 0], 4), MULTICAST),
    // RFC 8190.
    (
        v4([255, 255, 255, 255], 32),
        Forbidden("the broadcast address"),
    ),
    // RFC 1112, 4.
    (v4([240, 0, 0, 0], 4), RESERVED),
];

/// As above, but an address in no row is forbidden: IANA has given out 2000::/3 alone for the internet, and
/// whatever else a system may understand is not a way to a server. So are `::a.b.c.d` (RFC 4291 withdrew it),
/// `::ffff:0:a.b.c.d` (RFC 7915 did), 100::/64 (RFC 6666, discarded) and 5f00::/16 (RFC 9602, segment routing).
/// Forms that carry an IPv4 address come before it.
const V6: &[(Ipv6Net, Reach)] = &[
    // RFC 4291, 2.5.2. Linux connects it to the loopback interface.
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), UNSPECIFIED),
    // RFC 4291, 2.5.3.
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), Loopback),
    // RFC 2928: protocol assignments. Teredo (2001::/32, RFC 4380) is the tunnel among them; the rest are
    // for benchmarks, identifiers that are not routed, and anycast services that are not HTTP.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), TUNNEL),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), RESERVED),
    // RFC 3849, RFC 9637: as the ranges for documentation above.
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), DOCUMENTATION),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), DOCUMENTATION),
    // RFC 4291, 2.4.
    (v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3), Public),
    // AWS: metadata (::254), credentials of pods (::23), name and time servers. All of it is the cloud's own.
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32), METADATA),
    // Google, on machines without IPv4. The address alone: Google numbers its customers' machines in fd20::/20.
    (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), METADATA),
    // Oracle.
    (
        v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128),
        METADATA,
    ),
    // Akamai (Linode).
    (v6([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1], 128), METADATA),
    // Scaleway.
    (v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128), METADATA),
    // Alibaba.
    (v6([0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200], 128), METADATA),
    // RFC 4193.
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), Private),
    // RFC 4291, 2.5.6. OpenStack serves metadata at fe80::a9fe:a9fe.
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), LINK_LOCAL),
    // RFC 3879: site-local, withdrawn, but still what some private networks use.
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), Private),
    // RFC 4291, 2.7.
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), MULTICAST),
];

/// What an address is, whichever form it has.
pub(crate) fn reach(address: IpAddr) -> Reach {
    // RFC 4291, 2.5.5.2: ::ffff:a.b.c.d is the IPv4 address itself, for a socket that does both.
    match address.to_canonical() {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => carried(address).unwrap_or_else(|| {
            V6.iter()
                .find(|(range, _)| range.contains(&address))
                .map_or(RESERVED, |(_, reach)| *reach)
        }),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    V4.iter()
        .find(|(range, _)| range.contains(&address))
        .map_or(Public, |(_, reach)| *reach)
}

/// What an IPv6 address is that somebody on the way turns into an IPv4 one. None where nobody does.
fn carried(address: Ipv6Addr) -> Option<Reach> {
    match address.segments() {
        // NAT64: RFC 6052, and for use within a network RFC 8215, with the IPv4 address at the end. A translator
        // of RFC 8215 may as well read it from the middle, where zeros are 0.0.0.0 to it: see the next arm.
        [0x64, 0xff9b, 0 | 1, 0, 0, 0, high, low] => Some(match reach_v4(join(high, low)) {
            // Not this machine's.
            Loopback => Forbidden("a loopback address behind NAT64"),
            // RFC 6052 says no to private addresses; AWS's translators do reach them.
            reach => reach,
        }),
        // There may be one IPv4 address at the end, and another one for the translator.
        [0x64, 0xff9b, 1, ..] => Some(Forbidden(
            "an address for NAT64 that can be read in several ways",
        )),
        // 6to4: RFC 3056, 2. It must carry a public address; RFC 3964 tells what happens with others.
        [0x2002, high, low, ..] if reach_v4(join(high, low)) != Public => Some(TUNNEL),
        // ISATAP: RFC 5214, 6.1. The interface of the tunnel sends it to the IPv4 address at the end.
        [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => Some(TUNNEL),
        _ => None,
    }
}

fn join(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

/// For constants: a wrong length does not compile.
const fn v4([a, b, c, d]: [u8; 4], length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

/// As [`v4`].
const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length)
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs;

    use super::*;

    fn of(address: &str) -> Reach {
        reach(address.parse().unwrap())
    }

    /// Each range by its first and last address; what is before and after it is something else.
    #[test]
    fn a_range_starts_and_ends_where_its_document_says() {
        let rows: [(Reach, &[&str]); _] = [
            (UNSPECIFIED, &["0.0.0.0 0.255.255.255", ":: ::"]),
            (Loopback, &["127.0.0.0 127.255.255.255", "::1 ::1"]),
            (
                Private,
                &[
                    "10.0.0.0 10.255.255.255",
                    "100.64.0.0 100.100.100.199",
                    "100.100.100.201 100.127.255.255",
                    "172.16.0.0 172.31.255.255",
                    "192.0.0.0 192.0.0.191",
                    "192.0.0.193 192.0.0.255",
                    "192.168.0.0 192.168.255.255",
                    "198.18.0.0 198.19.255.255",
                    "fc00:: fd00:42::41",
                    "fd00:42::43 fd00:c1::a9fe:a9fd",
                    "fd00:c1::a9fe:a9ff fd00:100::100:1ff",
                    "fd00:100::100:201 fd00:ec1:ffff:ffff:ffff:ffff:ffff:ffff",
                    "fd00:ec3:: fd00:a9fe:a9fe::",
                    "fd00:a9fe:a9fe::2 fd20:ce::253",
                    "fd20:ce::255 fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                    "fec0:: feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                ],
            ),
            (
                LINK_LOCAL,
                &[
                    "169.254.0.0 169.254.255.255",
                    "fe80:: febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                ],
            ),
            (
                METADATA,
                &[
                    "100.100.100.200 100.100.100.200",
                    "168.63.129.16 168.63.129.16",
                    "192.0.0.192 192.0.0.192",
                    "fd00:42::42 fd00:42::42",
                    "fd00:c1::a9fe:a9fe fd00:c1::a9fe:a9fe",
                    "fd00:100::100:200 fd00:100::100:200",
                    "fd00:ec2:: fd00:ec2:ffff:ffff:ffff:ffff:ffff:ffff",
                    "fd00:a9fe:a9fe::1 fd00:a9fe:a9fe::1",
                    "fd20:ce::254 fd20:ce::254",
                ],
            ),
            (
                MULTICAST,
                &[
                    "224.0.0.0 239.255.255.255",
                    "ff00:: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                ],
            ),
            (
                DOCUMENTATION,
                &[
                    "192.0.2.0 192.0.2.255",
                    "198.51.100.0 198.51.100.255",
                    "203.0.113.0 203.0.113.255",
                    "2001:db8:: 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
                    "3fff:: 3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
                ],
            ),
            (
                TUNNEL,
                &[
                    "192.88.99.0 192.88.99.255",
                    "2001:: 2001:0:ffff:ffff:ffff:ffff:ffff:ffff",
                    "2002:7f00:: 2002:7fff:ffff:ffff:ffff:ffff:ffff:ffff",
                ],
            ),
            (
                RESERVED,
                &[
                    "240.0.0.0 255.255.255.254",
                    "::2 ::fffe:ffff:ffff",
                    "::1:0:0:0 64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff",
                    "64:ff9b::1:0:0 64:ff9b:0:ffff:ffff:ffff:ffff:ffff",
                    "64:ff9b:2:: 1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                    "2001:1:: 2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
                    "4000:: fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                    "fe00:: fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                ],
            ),
            (
                Forbidden("the broadcast address"),
                &["255.255.255.255 255.255.255.255"],
            ),
            (
                Public,
                &[
                    "1.0.0.0 9.255.255.255",
                    "11.0.0.0 100.63.255.255",
                    "100.128.0.0 126.255.255.255",
                    "128.0.0.0 168.63.129.15",
                    "2000:: 2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                    "2001:200:: 2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
                    "3fff:1000:: 3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                ],
            ),
        ];
        for (what, ranges) in rows {
            for range in ranges {
                let (first, last) = range.split_once(' ').unwrap();
                assert_eq!(of(first), what, "{first}");
                assert_eq!(of(last), what, "{last}");
                let outside = [neighbour(first, -1), neighbour(last, 1)];
                for address in outside.into_iter().flatten() {
                    assert_ne!(reach(address), what, "{address}");
                }
            }
        }
    }

    fn neighbour(address: &str, step: i8) -> Option<IpAddr> {
        Some(match address.parse().unwrap() {
            IpAddr::V4(a) => {
                Ipv4Addr::from_bits(a.to_bits().checked_add_signed(step.into())?).into()
            }
            IpAddr::V6(a) => {
                Ipv6Addr::from_bits(a.to_bits().checked_add_signed(step.into())?).into()
            }
        })
    }

    #[test]
    fn what_clouds_serve_to_their_machines_is_forbidden() {
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.42.42",
            "fe80::a9fe:a9fe",
        ] {
            assert_eq!(of(address), LINK_LOCAL, "{address}");
        }
        for address in ["fd00:ec2::254", "fd00:ec2::23", "::ffff:168.63.129.16"] {
            assert_eq!(of(address), METADATA, "{address}");
        }
    }

    #[test]
    fn what_is_on_the_internet_is_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.0.1",
            "172.15.0.1",
            "192.0.1.1",
            "2606:4700:4700::1111",
            "2a00:1450:4001:80f::200e",
        ] {
            assert_eq!(of(address), Public, "{address}");
        }
    }

    #[test]
    fn an_address_inside_another_one_is_judged() {
        let loopback = Forbidden("a loopback address behind NAT64");
        let several = Forbidden("an address for NAT64 that can be read in several ways");
        for (address, what) in [
            ("::ffff:127.0.0.1", Loopback),
            ("::ffff:10.0.0.1", Private),
            ("::ffff:169.254.169.254", LINK_LOCAL),
            ("::ffff:a9fe:a9fe", LINK_LOCAL),
            ("::ffff:0.0.0.0", UNSPECIFIED),
            ("::ffff:100.100.100.200", METADATA),
            ("::ffff:8.8.8.8", Public),
            ("::127.0.0.1", RESERVED),
            ("::8.8.8.8", RESERVED),
            ("::ffff:0:127.0.0.1", RESERVED),
            ("::ffff:0:8.8.8.8", RESERVED),
            ("64:ff9b::8.8.8.8", Public),
            ("64:ff9b::10.0.0.1", Private),
            ("64:ff9b::127.0.0.1", loopback),
            ("64:ff9b::169.254.169.254", LINK_LOCAL),
            ("64:ff9b::168.63.129.16", METADATA),
            ("64:ff9b::", UNSPECIFIED),
            ("64:ff9b::1:8.8.8.8", RESERVED),
            ("64:ff9b:1::8.8.8.8", Public),
            ("64:ff9b:1::192.168.0.1", Private),
            ("64:ff9b:1::127.0.0.1", loopback),
            ("64:ff9b:1::169.254.169.254", LINK_LOCAL),
            // 169.254.169.254 for a translator that has the prefix of 48 bits.
            ("64:ff9b:1:a9fe:a9:fe00:808:808", several),
            ("64:ff9b:1:ffff:ffff:ffff:ffff:ffff", several),
            ("64:ff9b:2::8.8.8.8", RESERVED),
            ("2002:808:808::1", Public),
            ("2002:7f00:1::1", TUNNEL),
            ("2002:a9fe:a9fe::1", TUNNEL),
            ("2002:a00:1::1", TUNNEL),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", TUNNEL),
            ("fe80::5efe:10.0.0.1", TUNNEL),
            ("2a00::200:5efe:169.254.169.254", TUNNEL),
            ("fd01::5efe:127.0.0.1", TUNNEL),
        ] {
            assert_eq!(of(address), what, "{address}");
        }
    }

    /// The system's resolver reads numbers as C's `inet_aton` does. Other systems refuse such names, which is as well.
    #[test]
    fn odd_forms_of_an_address_are_judged_when_they_are_resolved() {
        for (name, what) in [
            ("127.1", Loopback),
            ("0x7f.1", Loopback),
            ("2130706433", Loopback),
            ("017700000001", Loopback),
            ("0", UNSPECIFIED),
            ("10.1", Private),
            ("0xa9fea9fe", LINK_LOCAL),
            ("2852039166", LINK_LOCAL),
        ] {
            assert!(name.parse::<IpAddr>().is_err(), "{name}");
            let resolved: Vec<_> = (name, 80).to_socket_addrs().into_iter().flatten().collect();
            if cfg!(all(target_os = "linux", target_env = "gnu")) {
                assert!(!resolved.is_empty(), "{name}");
            }
            for address in resolved {
                assert_eq!(reach(address.ip()), what, "{name}");
            }
        }
    }
}
