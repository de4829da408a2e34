//! What carries EAP between a station and its authenticator, as this crate's machines hear it.
//!
//! Both choices are Ethernet II frames to the host. For 802.16 the header stands in for the connection identifier, by
//! which a cell knows the station: a host's cell does not send its 14 octets. Its EtherType is the first of those for
//! experiments ([`ETHERTYPE_PKM`]), since none was given to PKM, and a PKM message follows it, from its management
//! message type on. There is no word for leaving in PKM; deregistration (DREG-REQ) is left out.

use crate::station_id::MacAddress;
use alloc::vec::Vec;
use usher_eap::eapol::{ETHERTYPE, Eapol, Frame, PacketType};
use usher_pkm::Direction;
use usher_pkm::eap::{BaseSide, FromStation, StationSide, Unheard as PkmUnheard};
use usher_pkm::keying::announced;

/// The PAE group address, which bridges do not forward (IEEE 802.1X-2004 §7.8).
pub const PAE_GROUP: MacAddress = MacAddress(usher_eap::eapol::PAE_GROUP);

/// EtherType of PKM messages on their way to and from a cell (IEEE 802 Local Experimental EtherType 1).
pub const ETHERTYPE_PKM: u16 = 0x88b5;

/// Octets of a frame around an EAP packet, in most cases.
pub(crate) const OVERHEAD: usize = 20;

/// What carries EAP between stations and authenticator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Access {
    /// EAPOL (IEEE 802.1X).
    #[default]
    Ethernet,
    /// PKMv2 (IEEE 802.16): the authenticator is a base station.
    Wimax,
}

/// A frame with its addresses.
pub(crate) struct Received<T> {
    pub(crate) destination: MacAddress,
    pub(crate) source: MacAddress,
    pub(crate) body: T,
}

/// What a station says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StationFrame<'a> {
    Start,
    Logoff,
    Eap(&'a [u8]),
    /// A message of the exchange of keys, unchecked.
    Keying(&'a [u8]),
}

/// What an authenticator says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AuthenticatorFrame<'a> {
    Eap(&'a [u8]),
    /// A message of the exchange of keys, unchecked.
    Keying(&'a [u8]),
}

/// Why a frame is not heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unheard {
    /// It carries something else, or comes from the wrong side.
    NotForUs,
    Malformed,
    /// An EAPOL frame of another type.
    UnknownEapol,
    /// A PKM message of another code.
    UnknownPkm,
    /// A PKM message that answers an older one.
    StalePkm,
}

impl From<PkmUnheard> for Unheard {
    fn from(why: PkmUnheard) -> Self {
        match why {
            PkmUnheard::Malformed(_) => Self::Malformed,
            PkmUnheard::WrongSide(_) => Self::NotForUs,
            PkmUnheard::Stale(..) => Self::StalePkm,
            PkmUnheard::NotEap(_) => Self::UnknownPkm,
        }
    }
}

fn frame(bytes: &[u8], ethertype: u16) -> Result<Frame<'_>, Unheard> {
    let frame = Frame::parse(bytes).map_err(|_| Unheard::Malformed)?;
    if frame.ethertype == ethertype { Ok(frame) } else { Err(Unheard::NotForUs) }
}

fn eapol(payload: &[u8]) -> Result<StationFrame<'_>, Unheard> {
    let Eapol { kind, body, .. } = Eapol::parse(payload).map_err(|_| Unheard::Malformed)?;
    match kind {
        PacketType::EapPacket => Ok(StationFrame::Eap(body)),
        PacketType::Start => Ok(StationFrame::Start),
        PacketType::Logoff => Ok(StationFrame::Logoff),
        PacketType::Key | PacketType::Other(_) => Err(Unheard::UnknownEapol),
    }
}

const fn addressed<T>(frame: &Frame<'_>, body: T) -> Received<T> {
    Received { destination: MacAddress(frame.destination), source: MacAddress(frame.source), body }
}

/// Fills a buffer with a frame around a PKM message.
pub(crate) fn carry(buf: &mut Vec<u8>, (to, from): (MacAddress, MacAddress), message: &[u8]) {
    pkm_header(buf, to, from);
    buf.extend_from_slice(message);
}

/// Whether a PKM message is of the exchange of keys, from this side.
fn is_keying(message: &[u8], from: Direction) -> bool {
    announced(message).is_some_and(|code| code.direction() == Some(from))
}

/// Begins an Ethernet frame with a PKM message.
fn pkm_header(buf: &mut Vec<u8>, to: MacAddress, from: MacAddress) {
    buf.clear();
    buf.extend_from_slice(&to.0);
    buf.extend_from_slice(&from.0);
    buf.extend_from_slice(&ETHERTYPE_PKM.to_be_bytes());
}

impl Access {
    /// What a station said, and the authenticator's side of its PKM from then on.
    pub(crate) fn hear_station(
        self,
        bytes: &[u8],
    ) -> Result<Received<(StationFrame<'_>, BaseSide)>, Unheard> {
        let mut side = BaseSide::new();
        match self {
            Self::Ethernet => {
                let frame = frame(bytes, ETHERTYPE)?;
                Ok(addressed(&frame, (eapol(frame.payload)?, side)))
            }
            Self::Wimax => {
                let frame = frame(bytes, ETHERTYPE_PKM)?;
                if is_keying(frame.payload, Direction::Request) {
                    return Ok(addressed(&frame, (StationFrame::Keying(frame.payload), side)));
                }
                let said = match side.unwrap(frame.payload)? {
                    FromStation::Start => StationFrame::Start,
                    FromStation::Eap(packet) => StationFrame::Eap(packet),
                };
                Ok(addressed(&frame, (said, side)))
            }
        }
    }
    /// Fills a buffer with a frame for a station.
    pub(crate) fn tell_station(
        self,
        buf: &mut Vec<u8>,
        (to, from): (MacAddress, MacAddress),
        side: BaseSide,
        packet: &[u8],
    ) {
        match self {
            Self::Ethernet => {
                buf.clear();
                usher_eap::eapol::emit(buf, to.0, from.0, PacketType::EapPacket, packet);
            }
            Self::Wimax => {
                pkm_header(buf, to, from);
                side.wrap(buf, packet);
            }
        }
    }
    /// What an authenticator said.
    pub(crate) fn hear_authenticator<'a>(
        self,
        bytes: &'a [u8],
        side: &StationSide,
    ) -> Result<Received<AuthenticatorFrame<'a>>, Unheard> {
        match self {
            Self::Ethernet => {
                let frame = frame(bytes, ETHERTYPE)?;
                match eapol(frame.payload)? {
                    StationFrame::Eap(packet) => Ok(addressed(&frame, AuthenticatorFrame::Eap(packet))),
                    StationFrame::Start | StationFrame::Logoff | StationFrame::Keying(_) => {
                        Err(Unheard::UnknownEapol)
                    }
                }
            }
            Self::Wimax => {
                let frame = frame(bytes, ETHERTYPE_PKM)?;
                if is_keying(frame.payload, Direction::Response) {
                    return Ok(addressed(&frame, AuthenticatorFrame::Keying(frame.payload)));
                }
                Ok(addressed(&frame, AuthenticatorFrame::Eap(side.unwrap(frame.payload)?)))
            }
        }
    }
    /// Fills a buffer with a frame for an authenticator; false where there is no word for it. A start that is `again`
    /// said repeats the one before.
    pub(crate) fn tell_authenticator(
        self,
        buf: &mut Vec<u8>,
        (to, from): (MacAddress, MacAddress),
        side: &mut StationSide,
        said: StationFrame<'_>,
        again: bool,
    ) -> bool {
        match self {
            Self::Ethernet => {
                let (kind, body) = match said {
                    StationFrame::Keying(_) => return false,
                    StationFrame::Start => (PacketType::Start, &[][..]),
                    StationFrame::Logoff => (PacketType::Logoff, &[][..]),
                    StationFrame::Eap(packet) => (PacketType::EapPacket, packet),
                };
                buf.clear();
                usher_eap::eapol::emit(buf, to.0, from.0, kind, body);
            }
            Self::Wimax => {
                pkm_header(buf, to, from);
                match said {
                    StationFrame::Keying(message) => buf.extend_from_slice(message),
                    StationFrame::Start if again => side.start_again(buf),
                    StationFrame::Start => side.start(buf),
                    StationFrame::Eap(packet) => side.wrap(buf, packet),
                    StationFrame::Logoff => return false,
                }
            }
        }
        true
    }
}
