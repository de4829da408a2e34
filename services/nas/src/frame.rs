//! EAPOL in Ethernet frames (IEEE 802.1X), as this crate's machines hear it.

use crate::station_id::MacAddress;
use usher_eap::eapol::{ETHERTYPE, Eapol, Frame, PacketType};

/// The PAE group address, which bridges do not forward (IEEE 802.1X-2004 §7.8).
pub const PAE_GROUP: MacAddress = MacAddress(usher_eap::eapol::PAE_GROUP);

/// Octets of a frame around an EAPOL body.
pub(crate) const OVERHEAD: usize = 18;

pub(crate) struct Received<'a> {
    pub(crate) destination: MacAddress,
    pub(crate) source: MacAddress,
    pub(crate) kind: PacketType,
    pub(crate) body: &'a [u8],
}

/// Why a frame is not heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unheard {
    NotEapol,
    Malformed,
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Received<'_>, Unheard> {
    let frame = Frame::parse(bytes).map_err(|_| Unheard::Malformed)?;
    if frame.ethertype != ETHERTYPE {
        return Err(Unheard::NotEapol);
    }
    let Eapol { kind, body, .. } = Eapol::parse(frame.payload).map_err(|_| Unheard::Malformed)?;
    let (destination, source) = (MacAddress(frame.destination), MacAddress(frame.source));
    Ok(Received { destination, source, kind, body })
}

/// Fills a buffer with a frame.
pub(crate) fn emit(
    buf: &mut alloc::vec::Vec<u8>,
    to: MacAddress,
    from: MacAddress,
    kind: PacketType,
    body: &[u8],
) {
    buf.clear();
    usher_eap::eapol::emit(buf, to.0, from.0, kind, body);
}
