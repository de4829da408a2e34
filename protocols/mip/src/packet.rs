//! What a datagram carries: an IPv6 header and a Mobility Header.

use crate::message::{CHECKSUM_AT, Message, MessageError};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use usher_core::{Reader, Writer};

/// The protocol number of the Mobility Header.
const MOBILITY: u8 = 135;
/// Octets of an IPv6 header.
const IPV6: usize = 40;
const HOP_LIMIT: u8 = 64;

/// A Mobility Header message with the inner IPv6 header's addresses: a Binding Update's source, and an
/// acknowledgement's destination, is the station's home address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Who says it.
    pub source: Ipv6Addr,
    /// To whom.
    pub destination: Ipv6Addr,
    /// What is said.
    pub message: Message,
}

impl Packet {
    /// Reads a datagram's payload. Traffic class, flow label and hop limit of the inner header are passed over.
    ///
    /// # Errors
    /// See [`MessageError`]; the receiver drops it (§9.2).
    pub fn parse(octets: &[u8]) -> Result<Self, MessageError> {
        let mut r = Reader::new(octets);
        let version = r.array::<4>()?[0] >> 4;
        if version != 6 {
            return Err(MessageError::NotIpv6(version));
        }
        let (length, next) = (usize::from(r.u16()?), r.u8()?);
        if next != MOBILITY {
            return Err(MessageError::NotMobility(next));
        }
        r.u8()?;
        let (source, destination) = (Ipv6Addr::from(r.array::<16>()?), Ipv6Addr::from(r.array::<16>()?));
        let header = r.bytes(length)?;
        if !r.is_empty() {
            return Err(MessageError::Trailing(r.remaining()));
        }
        if checksum(source, destination, header) != 0 {
            return Err(MessageError::Checksum);
        }
        Ok(Self { source, destination, message: Message::parse(header)? })
    }

    /// Appends the payload of a datagram.
    pub fn emit(&self, buf: &mut Vec<u8>) {
        let mut w = Writer::new(buf);
        w.u32(6 << 28).u16(0).u8(MOBILITY).u8(HOP_LIMIT);
        w.bytes(&self.source.octets()).bytes(&self.destination.octets());
        let start = buf.len();
        self.message.emit(buf);
        let sum = checksum(self.source, self.destination, &buf[start..]);
        let length = (buf.len() - start) as u16;
        buf[start + CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
        let at = start - IPV6 + 4;
        buf[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
}

/// The Mobility Header's checksum (RFC 6275 §6.1.1, RFC 8200 §8.1): zero over a message that holds the right one.
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, header: &[u8]) -> u16 {
    let words = |octets: &[u8]| -> u32 {
        let pairs = octets.chunks(2);
        pairs.map(|p| u32::from(p[0]) << 8 | u32::from(p.get(1).copied().unwrap_or(0))).sum()
    };
    let pseudo = words(&source.octets()) + words(&destination.octets()) + header.len() as u32;
    let mut sum = pseudo + u32::from(MOBILITY) + words(header);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An address as the inner header holds it: one of IPv4 as IPv4-mapped (RFC 4291 §2.5.5.2).
#[must_use]
pub const fn inner(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// The address that [`inner`] wrote.
#[must_use]
pub const fn outer(address: Ipv6Addr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{BindingAcknowledgement, BindingUpdate, Lifetime, MobilityOption, Status};
    use proptest::prelude::*;

    fn update(options: Vec<MobilityOption>) -> Packet {
        let message = Message::Update(BindingUpdate {
            sequence: 0x0102,
            acknowledge: true,
            home_registration: true,
            link_local: false,
            key_management: false,
            lifetime: Lifetime(105),
            options,
        });
        Packet { source: inner([10, 0, 1, 2].into()), destination: inner([10, 0, 9, 9].into()), message }
    }
    fn octets(packet: &Packet) -> Vec<u8> {
        let mut buf = Vec::new();
        packet.emit(&mut buf);
        buf
    }

    /// Written out by hand after §6.1.7: no option, so four octets of padding.
    #[test]
    fn a_binding_update_octet_by_octet() {
        let mut expected = vec![0x60, 0, 0, 0, 0, 16, 135, 64];
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        expected.extend_from_slice(&mapped);
        expected.extend_from_slice(&[10, 0, 1, 2]);
        expected.extend_from_slice(&mapped);
        expected.extend_from_slice(&[10, 0, 9, 9]);
        // Sum: 2 x ffff, 0a00 + 0102 + 0a00 + 0909, length 10, protocol 87; header 3b01 + 0500 + 0102 + c000 + 0069
        // + 0102 (PadN).
        let mut sum: u32 = 2 * 0xffff + 0x0a00 + 0x0102 + 0x0a00 + 0x0909 + 0x10 + 0x87;
        sum += 0x3b01 + 0x0500 + 0x0102 + 0xc000 + 0x0069 + 0x0102;
        sum = (sum & 0xffff) + (sum >> 16);
        let [high, low] = (!(sum as u16)).to_be_bytes();
        expected.extend_from_slice(&[59, 1, 5, 0, high, low, 1, 2, 0xc0, 0, 0, 105, 1, 2, 0, 0]);
        assert_eq!(octets(&update(Vec::new())), expected);
        assert_eq!(Packet::parse(&expected), Ok(update(Vec::new())));
    }

    /// §6.2.5: the alternate care-of address begins at 8n + 6.
    #[test]
    fn options_are_aligned() {
        let care_of = inner([10, 0, 2, 2].into());
        let options = vec![MobilityOption::AlternateCareOf(care_of), MobilityOption::RefreshAdvice(7)];
        let packet = update(options);
        let octets = octets(&packet);
        assert_eq!(octets[IPV6 + 12..IPV6 + 16], [1, 0, 3, 16]);
        assert_eq!(octets[IPV6 + 32..IPV6 + 40], [2, 2, 0, 7, 1, 2, 0, 0]);
        assert_eq!(octets[IPV6 + 1], 4);
        assert_eq!(Packet::parse(&octets), Ok(packet));
    }

    #[test]
    fn what_is_no_packet_is_told_from_one() {
        let good = octets(&update(Vec::new()));
        let spoilt = |at: usize, value: u8| {
            let mut bad = good.clone();
            bad[at] = value;
            Packet::parse(&bad)
        };
        // Changed, and the checksum set right again.
        let rearranged = |changes: &[(usize, u8)]| {
            let mut bad = good.clone();
            changes.iter().for_each(|&(at, value)| bad[at] = value);
            bad[IPV6 + 4..IPV6 + 6].fill(0);
            let (source, destination) = (inner([10, 0, 1, 2].into()), inner([10, 0, 9, 9].into()));
            let sum = checksum(source, destination, &bad[IPV6..]);
            bad[IPV6 + 4..IPV6 + 6].copy_from_slice(&sum.to_be_bytes());
            Packet::parse(&bad)
        };
        assert_eq!(spoilt(0, 0x45), Err(MessageError::NotIpv6(4)));
        assert_eq!(spoilt(6, 17), Err(MessageError::NotMobility(17)));
        assert_eq!(spoilt(IPV6 + 7, 3), Err(MessageError::Checksum));
        assert_eq!(rearranged(&[(IPV6, 6)]), Err(MessageError::Payload(6)));
        assert_eq!(rearranged(&[(IPV6 + 2, 99)]), Err(MessageError::UnknownType(99)));
        assert_eq!(rearranged(&[(IPV6 + 1, 0)]), Err(MessageError::Trailing(8)));
        assert!(matches!(rearranged(&[(IPV6 + 1, 2)]), Err(MessageError::Truncated(_))));
        assert_eq!(rearranged(&[(IPV6 + 12, 3)]), Err(MessageError::OptionLength(3, 2)));
        assert!(matches!(Packet::parse(&good[..50]), Err(MessageError::Truncated(_))));
        let longer = [&good[..], &[0]].concat();
        assert_eq!(Packet::parse(&longer), Err(MessageError::Trailing(1)));
    }

    fn option() -> impl Strategy<Value = MobilityOption> {
        prop_oneof![
            any::<u16>().prop_map(MobilityOption::RefreshAdvice),
            any::<u128>().prop_map(|a| MobilityOption::AlternateCareOf(a.into())),
            (4u8.., prop::collection::vec(any::<u8>(), 0..256))
                .prop_map(|(kind, data)| MobilityOption::Other { kind, data }),
        ]
    }

    fn message() -> impl Strategy<Value = Message> {
        let options = || prop::collection::vec(option(), 0..=crate::MAX_OPTIONS);
        prop_oneof![
            (any::<(u16, bool, bool, bool, bool, u16)>(), options()).prop_map(
                |((s, a, h, l, k, t), options)| {
                    Message::Update(BindingUpdate {
                        sequence: s,
                        acknowledge: a,
                        home_registration: h,
                        link_local: l,
                        key_management: k,
                        lifetime: Lifetime(t),
                        options,
                    })
                }
            ),
            (any::<(u8, bool, u16, u16)>(), options()).prop_map(|((status, k, s, t), options)| {
                Message::Acknowledgement(BindingAcknowledgement {
                    status: Status(status),
                    key_management: k,
                    sequence: s,
                    lifetime: Lifetime(t),
                    options,
                })
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(source: u128, destination: u128, message in message()) {
            let packet = Packet { source: source.into(), destination: destination.into(), message };
            prop_assert_eq!(Packet::parse(&octets(&packet)), Ok(packet));
        }

        #[test]
        fn no_octets_are_too_odd(octets in prop::collection::vec(any::<u8>(), 0..120)) {
            prop_assert!(crate::fuzz::packet(&octets));
        }

        #[test]
        fn a_changed_octet_is_noticed_or_harmless(at in 0usize..56, value: u8) {
            let mut octets = octets(&update(Vec::new()));
            octets[at] = value;
            prop_assert!(crate::fuzz::packet(&octets));
        }
    }
}
