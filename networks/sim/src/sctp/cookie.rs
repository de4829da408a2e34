//! The state cookie (RFC 9260 §5.1.3): the listener's state of an association, signed, so that the listener
//! stores nothing until the cookie returns.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::net::IpAddr;
use usher_core::{Instant, OctetReader, OctetWriter, TruncatedInputError};

/// The contents of a cookie. "Local" is the end that created it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StateCookie {
    /// When it becomes stale.
    pub(super) expires: Instant,
    /// Local and remote port.
    pub(super) ports: (u16, u16),
    pub(super) local_tag: u32,
    pub(super) peer_tag: u32,
    pub(super) local_tsn: u32,
    pub(super) peer_tsn: u32,
    /// The window in the peer's INIT.
    pub(super) peer_window: u32,
    /// Negotiated streams.
    pub(super) outbound: u16,
    pub(super) inbound: u16,
    /// Tags of the association that existed when the INIT was received (RFC 9260 §5.2.2); 0 for none.
    pub(super) local_tie: u32,
    pub(super) peer_tie: u32,
    /// The peer's addresses beside the INIT's source.
    pub(super) peer_addresses: Vec<IpAddr>,
}

const MAC: usize = 32;

fn cookie_mac(secret: &[u8; 32], parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC pads the key with zeros to the digest's block size, which is 64 octets.
    let mut key = [0; 64];
    key[..32].copy_from_slice(secret);
    let mut mac = Hmac::<Sha256>::new(&key.into());
    for part in parts {
        mac.update(part);
    }
    mac
}

/// Derives a number from the secret and `parts`; unpredictable without the secret.
pub(super) fn derive_number(secret: &[u8; 32], label: &str, parts: &[u8]) -> u32 {
    let digest = cookie_mac(secret, &[label.as_bytes(), parts]).finalize().into_bytes();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

impl StateCookie {
    /// Returns the signed cookie.
    pub(super) fn encode_signed(&self, secret: &[u8; 32]) -> Vec<u8> {
        let mut out = Vec::with_capacity(48 + MAC);
        let mut w = OctetWriter::new(&mut out);
        w.write_u64(self.expires.as_nanos()).write_u16(self.ports.0).write_u16(self.ports.1);
        w.write_u32(self.local_tag)
            .write_u32(self.peer_tag)
            .write_u32(self.local_tsn)
            .write_u32(self.peer_tsn);
        w.write_u32(self.peer_window)
            .write_u16(self.outbound)
            .write_u16(self.inbound)
            .write_u32(self.local_tie)
            .write_u32(self.peer_tie);
        for address in &self.peer_addresses {
            match address {
                IpAddr::V4(a) => w.write_u8(4).write_bytes(&a.octets()),
                IpAddr::V6(a) => w.write_u8(6).write_bytes(&a.octets()),
            };
        }
        // RFC 9260, 5.1.3: a MAC over the cookie.
        let signature = cookie_mac(secret, &[b"cookie", &out]).finalize().into_bytes();
        out.extend_from_slice(&signature);
        out
    }

    /// Parses a cookie signed with this secret; `None` for any other.
    pub(super) fn decode_signed(secret: &[u8; 32], bytes: &[u8]) -> Option<Self> {
        let (content, signature) = bytes.split_at_checked(bytes.len().checked_sub(MAC)?)?;
        cookie_mac(secret, &[b"cookie", content]).verify_slice(signature).ok()?;
        Self::decode_fields(&mut OctetReader::new(content)).ok()
    }

    fn decode_fields(r: &mut OctetReader<'_>) -> Result<Self, TruncatedInputError> {
        Ok(Self {
            expires: Instant::from_nanos(r.read_u64()?),
            ports: (r.read_u16()?, r.read_u16()?),
            local_tag: r.read_u32()?,
            peer_tag: r.read_u32()?,
            local_tsn: r.read_u32()?,
            peer_tsn: r.read_u32()?,
            peer_window: r.read_u32()?,
            outbound: r.read_u16()?,
            inbound: r.read_u16()?,
            local_tie: r.read_u32()?,
            peer_tie: r.read_u32()?,
            peer_addresses: {
                let mut addresses = Vec::new();
                while !r.is_empty() {
                    addresses.push(match r.read_u8()? {
                        4 => r.read_array::<4>()?.into(),
                        _ => r.read_array::<16>()?.into(),
                    });
                }
                addresses
            },
        })
    }

    /// Returns its lateness in microseconds, rounded up; `None` while it is valid (RFC 9260 §3.3.10.3).
    pub(super) fn staleness(&self, now: Instant) -> Option<u32> {
        let late = || (now - self.expires).as_nanos().div_ceil(1000);
        (now > self.expires).then(|| late().try_into().unwrap_or(u32::MAX))
    }
}
