//! The payload of a datagram: an IPv6 header and a Mobility Header.

use crate::message::{CHECKSUM_AT, MessageError, MobilityMessage};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use usher_core::{OctetReader, OctetWriter};

/// The protocol number of the Mobility Header.
const MOBILITY: u8 = 135;
/// Octets of an IPv6 header.
const IPV6: usize = 40;
const HOP_LIMIT: u8 = 64;

/// A Mobility Header message with the addresses of the inner IPv6 header. The station's home address is the source of
/// a Binding Update, and the destination of an acknowledgement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MobilityPacket {
    /// The source address.
    pub source: Ipv6Addr,
    /// The destination address.
    pub destination: Ipv6Addr,
    /// The message.
    pub message: MobilityMessage,
}

impl MobilityPacket {
    /// Parses a datagram's payload and ignores traffic class, flow label and hop limit of the inner header.
    ///
    /// # Errors
    /// See [`MessageError`]; the receiver drops the datagram (§9.2).
    pub fn parse(octets: &[u8]) -> Result<Self, MessageError> {
        let mut r = OctetReader::new(octets);
        let version = r.read_array::<4>()?[0] >> 4;
        if version != 6 {
            return Err(MessageError::NotIpv6(version));
        }
        let (length, next) = (usize::from(r.read_u16()?), r.read_u8()?);
        if next != MOBILITY {
            return Err(MessageError::NotMobility(next));
        }
        r.read_u8()?;
        let (source, destination) =
            (Ipv6Addr::from(r.read_array::<16>()?), Ipv6Addr::from(r.read_array::<16>()?));
        let header = r.read_bytes(length)?;
        if !r.is_empty() {
            return Err(MessageError::Trailing(r.remaining()));
        }
        if checksum(source, destination, header) != 0 {
            return Err(MessageError::Checksum);
        }
        Ok(Self { source, destination, message: MobilityMessage::parse(header)? })
    }

    /// Appends the payload of a datagram.
    pub fn emit(&self, buf: &mut Vec<u8>) {
        let mut w = OctetWriter::new(buf);
        w.write_u32(6 << 28).write_u16(0).write_u8(MOBILITY).write_u8(HOP_LIMIT);
        w.write_bytes(&self.source.octets()).write_bytes(&self.destination.octets());
        let start = buf.len();
        self.message.emit(buf);
        let sum = checksum(self.source, self.destination, &buf[start..]);
        let length = (buf.len() - start) as u16;
        buf[start + CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
        let at = start - IPV6 + 4;
        buf[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
}

/// Returns the Mobility Header's checksum (RFC 6275 §6.1.1, RFC 8200 §8.1). It is zero over a message with a valid
/// one.
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

/// Returns an address as in the inner header: an IPv4 address as IPv4-mapped (RFC 4291 §2.5.5.2).
#[must_use]
pub const fn to_inner_address(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Reverses [`to_inner_address`].
#[must_use]
pub const fn from_inner_address(address: Ipv6Addr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{
        BindingAcknowledgement, BindingLifetime, BindingStatus, BindingUpdate, MobilityOption,
    };
    use proptest::prelude::*;

    fn update_packet(options: Vec<MobilityOption>) -> MobilityPacket {
        let message = MobilityMessage::Update(BindingUpdate {
            sequence: 0x0102,
            acknowledge: true,
            home_registration: true,
            link_local: false,
            key_management: false,
            lifetime: BindingLifetime(105),
            options,
        });
        MobilityPacket {
            source: to_inner_address([10, 0, 1, 2].into()),
            destination: to_inner_address([10, 0, 9, 9].into()),
            message,
        }
    }
    fn emit_packet(packet: &MobilityPacket) -> Vec<u8> {
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
        assert_eq!(emit_packet(&update_packet(Vec::new())), expected);
        assert_eq!(MobilityPacket::parse(&expected), Ok(update_packet(Vec::new())));
    }

    /// §6.2.5: the alternate care-of address begins at 8n + 6.
    #[test]
    fn options_are_aligned() {
        let care_of = to_inner_address([10, 0, 2, 2].into());
        let options = vec![MobilityOption::AlternateCareOf(care_of), MobilityOption::RefreshAdvice(7)];
        let packet = update_packet(options);
        let octets = emit_packet(&packet);
        assert_eq!(octets[IPV6 + 12..IPV6 + 16], [1, 0, 3, 16]);
        assert_eq!(octets[IPV6 + 32..IPV6 + 40], [2, 2, 0, 7, 1, 2, 0, 0]);
        assert_eq!(octets[IPV6 + 1], 4);
        assert_eq!(MobilityPacket::parse(&octets), Ok(packet));
    }

    #[test]
    fn what_is_no_packet_is_told_from_one() {
        let good = emit_packet(&update_packet(Vec::new()));
        let spoilt = |at: usize, value: u8| {
            let mut bad = good.clone();
            bad[at] = value;
            MobilityPacket::parse(&bad)
        };
        // Changed, and the checksum set right again.
        let rearranged = |changes: &[(usize, u8)]| {
            let mut bad = good.clone();
            changes.iter().for_each(|&(at, value)| bad[at] = value);
            bad[IPV6 + 4..IPV6 + 6].fill(0);
            let (source, destination) =
                (to_inner_address([10, 0, 1, 2].into()), to_inner_address([10, 0, 9, 9].into()));
            let sum = checksum(source, destination, &bad[IPV6..]);
            bad[IPV6 + 4..IPV6 + 6].copy_from_slice(&sum.to_be_bytes());
            MobilityPacket::parse(&bad)
        };
        assert_eq!(spoilt(0, 0x45), Err(MessageError::NotIpv6(4)));
        assert_eq!(spoilt(6, 17), Err(MessageError::NotMobility(17)));
        assert_eq!(spoilt(IPV6 + 7, 3), Err(MessageError::Checksum));
        assert_eq!(rearranged(&[(IPV6, 6)]), Err(MessageError::Payload(6)));
        assert_eq!(rearranged(&[(IPV6 + 2, 99)]), Err(MessageError::UnknownType(99)));
        assert_eq!(rearranged(&[(IPV6 + 1, 0)]), Err(MessageError::Trailing(8)));
        assert!(matches!(rearranged(&[(IPV6 + 1, 2)]), Err(MessageError::Truncated(_))));
        assert_eq!(rearranged(&[(IPV6 + 12, 3)]), Err(MessageError::OptionLength(3, 2)));
        assert!(matches!(MobilityPacket::parse(&good[..50]), Err(MessageError::Truncated(_))));
        let longer = [&good[..], &[0]].concat();
        assert_eq!(MobilityPacket::parse(&longer), Err(MessageError::Trailing(1)));
    }

    fn any_option() -> impl Strategy<Value = MobilityOption> {
        prop_oneof![
            any::<u16>().prop_map(MobilityOption::RefreshAdvice),
            any::<u128>().prop_map(|a| MobilityOption::AlternateCareOf(a.into())),
            (4u8.., prop::collection::vec(any::<u8>(), 0..256))
                .prop_map(|(kind, data)| MobilityOption::Other { kind, data }),
        ]
    }

    fn any_message() -> impl Strategy<Value = MobilityMessage> {
        let options = || prop::collection::vec(any_option(), 0..=crate::MAX_OPTIONS);
        prop_oneof![
            (any::<(u16, bool, bool, bool, bool, u16)>(), options()).prop_map(
                |((s, a, h, l, k, t), options)| {
                    MobilityMessage::Update(BindingUpdate {
                        sequence: s,
                        acknowledge: a,
                        home_registration: h,
                        link_local: l,
                        key_management: k,
                        lifetime: BindingLifetime(t),
                        options,
                    })
                }
            ),
            (any::<(u8, bool, u16, u16)>(), options()).prop_map(|((status, k, s, t), options)| {
                MobilityMessage::Acknowledgement(BindingAcknowledgement {
                    status: BindingStatus(status),
                    key_management: k,
                    sequence: s,
                    lifetime: BindingLifetime(t),
                    options,
                })
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(source: u128, destination: u128, message in any_message()) {
            let packet = MobilityPacket { source: source.into(), destination: destination.into(), message };
            prop_assert_eq!(MobilityPacket::parse(&emit_packet(&packet)), Ok(packet));
        }

        #[test]
        fn no_octets_are_too_odd(octets in prop::collection::vec(any::<u8>(), 0..120)) {
            prop_assert!(crate::fuzz::check_mobility_round_trip(&octets));
        }

        #[test]
        fn a_changed_octet_is_noticed_or_harmless(at in 0usize..56, value: u8) {
            let mut octets = emit_packet(&update_packet(Vec::new()));
            octets[at] = value;
            prop_assert!(crate::fuzz::check_mobility_round_trip(&octets));
        }
    }
}
