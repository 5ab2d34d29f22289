//! The addresses that requests of plugins are not sent to, unless an administrator allows it: loopback, where other
//! services trust every client, and link-local and others, where clouds give out credentials. Addresses of the Pod and its
//! node are not known here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The metadata of Google's and Oracle's clouds over IPv6, which are not link-local addresses. Amazon's have a prefix.
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)];
/// The metadata of Alibaba's cloud, and the agent of Azure's.
const METADATA_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];

/// Whether it is loopback, link-local, multicast, or a cloud's metadata.
pub(super) fn is_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_local_v4(address),
        IpAddr::V6(address) => {
            let is_local = address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
                || address.is_unicast_link_local()
                || METADATA_V6.contains(&address)
                || matches!(address.segments(), [0xfd00, 0xec2, ..]);
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
        || METADATA_V4.contains(&address)
}

/// The IPv4 address that packets to this one reach: by NAT64 (RFC 6052, RFC 8215 with the prefix of 96 bits), by 6to4
/// (RFC 3056), or as its compatible notation (RFC 4291).
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let (high, low) = match address.segments() {
        [0x64, 0xff9b, 0 | 1, .., high, low] | [0, 0, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => (high, low),
        _ => return None,
    };
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Some(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_link_local_and_metadata_addresses_are_local_in_every_notation() {
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
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "100.100.100.200",
            "168.63.129.16",
            "64:ff9b:1::a9fe:a9fe",
            "64:ff9b:1:2:3:4:127.0.0.1",
            "2002:a9fe:a9fe::1",
            "::169.254.169.254",
            "::ffff:168.63.129.16",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
        ] {
            assert!(is_local(text.parse().unwrap()), "{text}");
        }
        for text in ["10.0.0.1", "192.168.0.1", "8.8.8.8", "100.100.100.201", "fd00::1", "fd00:ec3::1", "2001:db8::1"]
            .into_iter()
            .chain(["64:ff9b::808:808", "64:ff9b:1::808:808", "2002:808:808::1", "::8.8.8.8"])
        {
            assert!(!is_local(text.parse().unwrap()), "{text}");
        }
    }
}
