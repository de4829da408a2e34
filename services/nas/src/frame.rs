//! EAPOL in Ethernet frames (IEEE 802.1X).

use crate::station_id::MacAddress;
use alloc::vec::Vec;
use usher_core::Reader;

/// The PAE group address, which bridges do not forward (IEEE 802.1X Table 11-1).
pub const PAE_GROUP: MacAddress = MacAddress([0x01, 0x80, 0xc2, 0, 0, 0x03]);
/// The EtherType of EAPOL.
pub const ETHERTYPE_EAPOL: u16 = 0x888e;

/// Octets of a frame around an EAPOL body.
pub(crate) const OVERHEAD: usize = 18;

pub(crate) struct Received<'a> {
    pub(crate) destination: MacAddress,
    pub(crate) source: MacAddress,
    pub(crate) kind: PacketType,
    pub(crate) body: &'a [u8],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PacketType(u8);
#[allow(non_upper_case_globals)]
impl PacketType {
    pub(crate) const Eap: Self = Self(0);
    pub(crate) const Start: Self = Self(1);
    pub(crate) const Logoff: Self = Self(2);
}

/// Why a frame is not heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unheard {
    NotEapol,
    Malformed,
}

pub(crate) fn parse(frame: &[u8]) -> Result<Received<'_>, Unheard> {
    let mut r = Reader::new(frame);
    let short = |_| Unheard::Malformed;
    let destination = MacAddress(r.array().map_err(short)?);
    let source = MacAddress(r.array().map_err(short)?);
    if r.u16().map_err(short)? != ETHERTYPE_EAPOL {
        return Err(Unheard::NotEapol);
    }
    let _version = r.u8().map_err(short)?;
    let kind = PacketType(r.u8().map_err(short)?);
    let n = r.u16().map_err(short)?;
    let body = r.bytes(n.into()).map_err(short)?;
    Ok(Received { destination, source, kind, body })
}

pub(crate) fn emit(buf: &mut Vec<u8>, to: MacAddress, from: MacAddress, kind: PacketType, body: &[u8]) {
    buf.clear();
    buf.extend_from_slice(&to.0);
    buf.extend_from_slice(&from.0);
    buf.extend_from_slice(&ETHERTYPE_EAPOL.to_be_bytes());
    buf.extend_from_slice(&[2, kind.0]);
    buf.extend_from_slice(&(body.len() as u16).to_be_bytes());
    buf.extend_from_slice(body);
}
