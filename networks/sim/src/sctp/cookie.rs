//! The state cookie (RFC 9260 §5.1.3): all that the listening side must know of an association, signed, so
//! that it keeps nothing until the cookie comes back.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::net::IpAddr;
use usher_core::{Instant, Reader, Truncated, Writer};

/// What a cookie says. "Local" is the side that made it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cookie {
    /// When it is stale.
    pub(super) expires: Instant,
    /// Local and remote port.
    pub(super) ports: (u16, u16),
    pub(super) local_tag: u32,
    pub(super) peer_tag: u32,
    pub(super) local_tsn: u32,
    pub(super) peer_tsn: u32,
    /// The window in the other side's INIT.
    pub(super) peer_window: u32,
    /// Streams as negotiated.
    pub(super) outbound: u16,
    pub(super) inbound: u16,
    /// Tags of the association that there was when the INIT came (RFC 9260 §5.2.2); 0 for none.
    pub(super) local_tie: u32,
    pub(super) peer_tie: u32,
    /// The other side's addresses beside that which the INIT came from.
    pub(super) peer_addresses: Vec<IpAddr>,
}

const MAC: usize = 32;

fn mac(secret: &[u8; 32], parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC fills a key up to the digest's block with zeros.
    let mut key = [0; 64];
    key[..32].copy_from_slice(secret);
    let mut mac = Hmac::<Sha256>::new(&key.into());
    for part in parts {
        mac.update(part);
    }
    mac
}

/// A number that follows from the secret and from `parts`, to nobody else predictable.
pub(super) fn derived(secret: &[u8; 32], label: &str, parts: &[u8]) -> u32 {
    let digest = mac(secret, &[label.as_bytes(), parts]).finalize().into_bytes();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

impl Cookie {
    /// The cookie as bytes, signed.
    pub(super) fn seal(&self, secret: &[u8; 32]) -> Vec<u8> {
        let mut out = Vec::with_capacity(48 + MAC);
        let mut w = Writer::new(&mut out);
        w.u64(self.expires.as_nanos()).u16(self.ports.0).u16(self.ports.1);
        w.u32(self.local_tag).u32(self.peer_tag).u32(self.local_tsn).u32(self.peer_tsn);
        w.u32(self.peer_window).u16(self.outbound).u16(self.inbound).u32(self.local_tie).u32(self.peer_tie);
        for address in &self.peer_addresses {
            match address {
                IpAddr::V4(a) => w.u8(4).bytes(&a.octets()),
                IpAddr::V6(a) => w.u8(6).bytes(&a.octets()),
            };
        }
        let signature = mac(secret, &[b"cookie", &out]).finalize().into_bytes();
        out.extend_from_slice(&signature);
        out
    }

    /// Reads a cookie that this side signed; `None` for any other.
    pub(super) fn open(secret: &[u8; 32], bytes: &[u8]) -> Option<Self> {
        let (content, signature) = bytes.split_at_checked(bytes.len().checked_sub(MAC)?)?;
        mac(secret, &[b"cookie", content]).verify_slice(signature).ok()?;
        Self::read(&mut Reader::new(content)).ok()
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self {
            expires: Instant::from_nanos(r.u64()?),
            ports: (r.u16()?, r.u16()?),
            local_tag: r.u32()?,
            peer_tag: r.u32()?,
            local_tsn: r.u32()?,
            peer_tsn: r.u32()?,
            peer_window: r.u32()?,
            outbound: r.u16()?,
            inbound: r.u16()?,
            local_tie: r.u32()?,
            peer_tie: r.u32()?,
            peer_addresses: {
                let mut addresses = Vec::new();
                while !r.is_empty() {
                    addresses.push(match r.u8()? {
                        4 => r.array::<4>()?.into(),
                        _ => r.array::<16>()?.into(),
                    });
                }
                addresses
            },
        })
    }

    /// By how many microseconds, rounded up, it is too late; `None` while it is good (RFC 9260 §3.3.10.3).
    pub(super) fn staleness(&self, now: Instant) -> Option<u32> {
        let late = || (now - self.expires).as_nanos().div_ceil(1000);
        (now > self.expires).then(|| late().try_into().unwrap_or(u32::MAX))
    }
}
