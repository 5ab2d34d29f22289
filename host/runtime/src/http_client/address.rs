//! The addresses that requests of plugins are not sent to, unless an administrator allows it: this machine, where other
//! services trust every client, and its link, where clouds give out credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where AWS serves its metadata over IPv6, which is not a link-local address.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
/// RFC 6052: the last four bytes of an address under this prefix are an IPv4 address.
const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// Whether it is an address of this machine or its link, or of more than one machine.
pub(super) fn is_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_local_v4(address),
        IpAddr::V6(address) => {
            let is_local = address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
                || address.is_unicast_link_local()
                || address == METADATA_V6;
            is_local || embedded(address).is_some_and(is_local_v4)
        }
    }
}

fn is_local_v4(address: Ipv4Addr) -> bool {
    // 0.0.0.0/8 is "this network".
    address.is_loopback()
        || address.octets()[0] == 0
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
}

fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b] = address.segments();
    let ([a, b], [c, d]) = (a.to_be_bytes(), b.to_be_bytes());
    (address.segments()[..6] == NAT64).then_some(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_and_its_link_are_local_in_every_notation() {
        for text in [
            "127.0.0.1",
            "127.255.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
        ] {
            assert!(is_local(text.parse().unwrap()), "{text}");
        }
        for text in ["10.0.0.1", "192.168.0.1", "8.8.8.8", "fd00::1", "2001:db8::1", "64:ff9b::808:808"] {
            assert!(!is_local(text.parse().unwrap()), "{text}");
        }
    }
}
