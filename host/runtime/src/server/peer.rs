//! Who a connection is from. An address comes in, what bounds are counted by comes out.

use std::net::{IpAddr, Ipv6Addr};

/// A client, as far as bounds know it: an IPv4 address, or the 64 bits of an IPv6 address that a network gives to one machine,
/// which has all addresses below them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Peer(IpAddr);

/// The part of an IPv6 address that a machine chooses.
const CHOSEN_BITS: u32 = 64;

impl Peer {
    pub(crate) fn address(self) -> IpAddr {
        self.0
    }
}

impl From<IpAddr> for Peer {
    /// An IPv4 client of a listener for both is the same peer as one of a listener for IPv4.
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> CHOSEN_BITS << CHOSEN_BITS).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_an_ipv4_address_or_an_ipv6_network_of_64_bits() {
        let peer = |text: &str| Peer::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(peer("fd00:1:2:3::1"), peer("fd00:1:2:3:ffff:ffff:ffff:ffff"));
        assert_ne!(peer("fd00:1:2:3::1"), peer("fd00:1:2:4::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_ne!(peer("::1"), peer("127.0.0.1"));
    }
}
