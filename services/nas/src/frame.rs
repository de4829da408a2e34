//! Frames that carry EAP between a station and its authenticator.
//!
//! Both media are Ethernet II frames to the host. For 802.16, the Ethernet header replaces the connection identifier
//! by which a cell knows the station. The host's cell does not send its 14 octets. PKM has no assigned EtherType, so
//! the frame uses the first experimental one ([`ETHERTYPE_PKM`]). The PKM message follows, from its management
//! message type on. PKM has no logoff message, and deregistration (DREG-REQ) is left out.

use crate::station_id::MacAddress;
use alloc::vec::Vec;
use usher_eap::eapol::{ETHERTYPE, EapolPacket, EapolPacketType, EthernetFrame};
use usher_pkm::Direction;
use usher_pkm::eap::{BaseStationEapSide, EapTransferError as PkmUnheard, StationEapMessage, StationEapSide};
use usher_pkm::keying::keying_message_code;

/// The PAE group address, which bridges do not forward (IEEE 802.1X-2004 §7.8).
pub const PAE_GROUP: MacAddress = MacAddress(usher_eap::eapol::PAE_GROUP);

/// EtherType of PKM messages to and from a cell (IEEE 802 Local Experimental EtherType 1).
pub const ETHERTYPE_PKM: u16 = 0x88b5;

/// Octets of a frame around an EAP packet, in most cases.
pub(crate) const OVERHEAD: usize = 20;

/// The transport of EAP between stations and authenticator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AccessMedium {
    /// EAPOL (IEEE 802.1X).
    #[default]
    Ethernet,
    /// PKMv2 (IEEE 802.16): the authenticator is a base station.
    Wimax,
}

/// A frame with its addresses.
pub(crate) struct ReceivedFrame<T> {
    pub(crate) destination: MacAddress,
    pub(crate) source: MacAddress,
    pub(crate) body: T,
}

/// The content of a station's frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StationFrame<'a> {
    Start,
    Logoff,
    Eap(&'a [u8]),
    /// A message of the key exchange, not yet verified.
    Keying(&'a [u8]),
}

/// The content of an authenticator's frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AuthenticatorFrame<'a> {
    Eap(&'a [u8]),
    /// A message of the key exchange, not yet verified.
    Keying(&'a [u8]),
}

/// Why a frame is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameDropReason {
    /// Another protocol, another destination, or the wrong direction.
    NotForUs,
    Malformed,
    /// An EAPOL frame of another type.
    UnknownEapol,
    /// A PKM message of another code.
    UnknownPkm,
    /// A PKM message that answers an older request.
    StalePkm,
}

impl From<PkmUnheard> for FrameDropReason {
    fn from(why: PkmUnheard) -> Self {
        match why {
            PkmUnheard::Malformed(_) => Self::Malformed,
            PkmUnheard::WrongSide(_) => Self::NotForUs,
            PkmUnheard::Stale(..) => Self::StalePkm,
            PkmUnheard::NotEap(_) => Self::UnknownPkm,
        }
    }
}

fn parse_frame(bytes: &[u8], ethertype: u16) -> Result<EthernetFrame<'_>, FrameDropReason> {
    let frame = EthernetFrame::parse(bytes).map_err(|_| FrameDropReason::Malformed)?;
    if frame.ethertype == ethertype { Ok(frame) } else { Err(FrameDropReason::NotForUs) }
}

fn parse_eapol(payload: &[u8]) -> Result<StationFrame<'_>, FrameDropReason> {
    let EapolPacket { kind, body, .. } =
        EapolPacket::parse(payload).map_err(|_| FrameDropReason::Malformed)?;
    match kind {
        EapolPacketType::EapPacket => Ok(StationFrame::Eap(body)),
        EapolPacketType::Start => Ok(StationFrame::Start),
        EapolPacketType::Logoff => Ok(StationFrame::Logoff),
        EapolPacketType::Key | EapolPacketType::Other(_) => Err(FrameDropReason::UnknownEapol),
    }
}

const fn frame_with_addresses<T>(frame: &EthernetFrame<'_>, body: T) -> ReceivedFrame<T> {
    ReceivedFrame { destination: MacAddress(frame.destination), source: MacAddress(frame.source), body }
}

/// Writes a frame with a PKM message.
pub(crate) fn write_pkm_frame(buf: &mut Vec<u8>, (to, from): (MacAddress, MacAddress), message: &[u8]) {
    pkm_header(buf, to, from);
    buf.extend_from_slice(message);
}

/// True if a PKM message belongs to the key exchange, in this direction.
fn is_key_exchange_message(message: &[u8], from: Direction) -> bool {
    keying_message_code(message).is_some_and(|code| code.direction() == Some(from))
}

/// Writes the header of an Ethernet frame with a PKM message.
fn pkm_header(buf: &mut Vec<u8>, to: MacAddress, from: MacAddress) {
    buf.clear();
    buf.extend_from_slice(&to.0);
    buf.extend_from_slice(&from.0);
    buf.extend_from_slice(&ETHERTYPE_PKM.to_be_bytes());
}

impl AccessMedium {
    /// Parses a station's frame. Returns its content and the new PKM state of the authenticator.
    pub(crate) fn parse_station_frame(
        self,
        bytes: &[u8],
    ) -> Result<ReceivedFrame<(StationFrame<'_>, BaseStationEapSide)>, FrameDropReason> {
        let mut side = BaseStationEapSide::new();
        match self {
            Self::Ethernet => {
                let frame = parse_frame(bytes, ETHERTYPE)?;
                Ok(frame_with_addresses(&frame, (parse_eapol(frame.payload)?, side)))
            }
            Self::Wimax => {
                let frame = parse_frame(bytes, ETHERTYPE_PKM)?;
                if is_key_exchange_message(frame.payload, Direction::Request) {
                    return Ok(frame_with_addresses(&frame, (StationFrame::Keying(frame.payload), side)));
                }
                let said = match side.unwrap_eap(frame.payload)? {
                    StationEapMessage::Start => StationFrame::Start,
                    StationEapMessage::Eap(packet) => StationFrame::Eap(packet),
                };
                Ok(frame_with_addresses(&frame, (said, side)))
            }
        }
    }
    /// Writes a frame to a station.
    pub(crate) fn write_frame_to_station(
        self,
        buf: &mut Vec<u8>,
        (to, from): (MacAddress, MacAddress),
        side: BaseStationEapSide,
        packet: &[u8],
    ) {
        match self {
            Self::Ethernet => {
                buf.clear();
                usher_eap::eapol::emit_frame(buf, to.0, from.0, EapolPacketType::EapPacket, packet);
            }
            Self::Wimax => {
                pkm_header(buf, to, from);
                side.wrap_eap(buf, packet);
            }
        }
    }
    /// Parses an authenticator's frame.
    pub(crate) fn parse_authenticator_frame<'a>(
        self,
        bytes: &'a [u8],
        side: &StationEapSide,
    ) -> Result<ReceivedFrame<AuthenticatorFrame<'a>>, FrameDropReason> {
        match self {
            Self::Ethernet => {
                let frame = parse_frame(bytes, ETHERTYPE)?;
                match parse_eapol(frame.payload)? {
                    StationFrame::Eap(packet) => {
                        Ok(frame_with_addresses(&frame, AuthenticatorFrame::Eap(packet)))
                    }
                    StationFrame::Start | StationFrame::Logoff | StationFrame::Keying(_) => {
                        Err(FrameDropReason::UnknownEapol)
                    }
                }
            }
            Self::Wimax => {
                let frame = parse_frame(bytes, ETHERTYPE_PKM)?;
                if is_key_exchange_message(frame.payload, Direction::Response) {
                    return Ok(frame_with_addresses(&frame, AuthenticatorFrame::Keying(frame.payload)));
                }
                Ok(frame_with_addresses(&frame, AuthenticatorFrame::Eap(side.unwrap_eap(frame.payload)?)))
            }
        }
    }
    /// Writes a frame to an authenticator. False if the medium has no such message. `again` marks a repeated start.
    pub(crate) fn write_frame_to_authenticator(
        self,
        buf: &mut Vec<u8>,
        (to, from): (MacAddress, MacAddress),
        side: &mut StationEapSide,
        said: StationFrame<'_>,
        again: bool,
    ) -> bool {
        match self {
            Self::Ethernet => {
                let (kind, body) = match said {
                    StationFrame::Keying(_) => return false,
                    StationFrame::Start => (EapolPacketType::Start, &[][..]),
                    StationFrame::Logoff => (EapolPacketType::Logoff, &[][..]),
                    StationFrame::Eap(packet) => (EapolPacketType::EapPacket, packet),
                };
                buf.clear();
                usher_eap::eapol::emit_frame(buf, to.0, from.0, kind, body);
            }
            Self::Wimax => {
                pkm_header(buf, to, from);
                match said {
                    StationFrame::Keying(message) => buf.extend_from_slice(message),
                    StationFrame::Start if again => side.append_repeated_eap_start(buf),
                    StationFrame::Start => side.emit_start(buf),
                    StationFrame::Eap(packet) => side.wrap_eap(buf, packet),
                    StationFrame::Logoff => return false,
                }
            }
        }
        true
    }
}
