//! Identifiers of a NAS's stations.

use core::fmt;
use usher_access::NasPort;
use usher_core::LinkLayerPortId;

/// An IEEE 802 address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Returns the address as in Calling-Station-Id (RFC 3580 §3.21): `00-10-A4-23-19-C0`.
    #[must_use]
    pub fn to_dashed(self) -> [u8; 17] {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let mut out = [b'-'; 17];
        for (i, byte) in self.0.into_iter().enumerate() {
            out[3 * i] = DIGITS[usize::from(byte >> 4)];
            out[3 * i + 1] = DIGITS[usize::from(byte & 15)];
        }
        out
    }
    /// True for a group address.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A station of a NAS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StationId {
    /// A station reached by frames.
    Frame {
        /// Its port.
        port: LinkLayerPortId,
        /// Its address.
        mac: MacAddress,
    },
    /// A station reached through the host, which exchanges EAP packets by event and command. It is on the same host,
    /// or behind another protocol that carries EAP (IKEv2, 802.16 PKM). The host chooses the number, unique among its
    /// sessions. Its low 32 bits become NAS-Port.
    Host(u64),
}

impl StationId {
    /// Returns NAS-Port (RFC 2865 §5.5).
    #[must_use]
    pub const fn nas_port(self) -> u32 {
        match self {
            Self::Frame { port, .. } => port.0,
            Self::Host(token) => token as u32,
        }
    }
    /// Passes the station's port attributes for a request to the AAA server to `tell`.
    pub(crate) fn with_port<R>(self, tell: impl FnOnce(NasPort<'_>) -> R) -> R {
        let calling = self.mac_address().map(MacAddress::to_dashed);
        let calling_station = calling.as_ref().and_then(|c| core::str::from_utf8(c).ok());
        tell(NasPort { number: Some(self.nas_port()), calling_station, ..NasPort::default() })
    }
    /// Returns the address for Calling-Station-Id, if there is one.
    #[must_use]
    pub const fn mac_address(self) -> Option<MacAddress> {
        match self {
            Self::Frame { mac, .. } => Some(mac),
            Self::Host(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calling_station_id_is_written_as_in_rfc_3580() {
        let mac = MacAddress([0x00, 0x10, 0xa4, 0x23, 0x19, 0xc0]);
        assert_eq!(&mac.to_dashed(), b"00-10-A4-23-19-C0");
        assert_eq!(std::format!("{mac}"), "00:10:a4:23:19:c0");
        assert!(!mac.is_group() && MacAddress([0x01, 0x80, 0xc2, 0, 0, 3]).is_group());
    }
}
