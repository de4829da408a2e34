//! Packets that belong to no association: set-up of the listening side (RFC 9260 §5.1) and what comes out
//! of the blue (§8.4).

use super::association::SctpAssociation;
use super::chunk::{Chunk, ErrorCause, SctpPacket};
use super::config::SctpConfig;
use super::cookie::StateCookie;
use super::setup::{InitFault, check_init, cookie_for, init_ack, offered_streams, refuse_init};
use std::sync::Arc;
use usher_core::Instant;

/// What a host draws for an association.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InitialValues {
    /// Our verification tag; never 0 (a 0 is taken for 1).
    pub tag: u32,
    /// Our first TSN.
    pub tsn: u32,
    /// The key of the cookies that this host signs; the same for all its associations.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for InitialValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Initial {{ tag: {:#010x}, tsn: {}, .. }}", self.tag, self.tsn)
    }
}

/// What to do about a packet that belongs to no association.
#[derive(Debug)]
pub enum ListenerAction {
    /// Send this back to where it came from.
    Reply(SctpPacket),
    /// A valid cookie came back: here is the association. What was bundled behind the cookie is taken in;
    /// drain it.
    Accept(Box<SctpAssociation>),
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
pub fn handle_listener_packet(
    config: &Arc<SctpConfig>,
    now: Instant,
    initial: InitialValues,
    ports: (u16, u16),
    path: u8,
    paths: u8,
    packet: SctpPacket,
) -> ListenerAction {
    let alone = packet.chunks.len() == 1;
    match packet.chunks.first() {
        Some(Chunk::Init(init)) if packet.vtag == 0 && alone => match check_init(init) {
            Ok(()) => {
                let outbound = offered_streams(config, init);
                let local = (initial.tag.max(1), initial.tsn);
                let cookie = cookie_for(config, now, ports, local, outbound, init);
                ListenerAction::Reply(init_ack(config, &cookie, &initial.secret, outbound, init))
            }
            Err(InitFault::Unanswerable) => ListenerAction::Discard,
            Err(InitFault::SmallWindow) => {
                ListenerAction::Reply(refuse_init(init, ErrorCause::InvalidParameter))
            }
            Err(InitFault::Invalid(cause)) => ListenerAction::Reply(refuse_init(init, cause)),
        },
        Some(Chunk::CookieEcho(bytes)) => {
            let Some(cookie) = StateCookie::decode_signed(&initial.secret, bytes) else {
                return ListenerAction::Discard;
            };
            if cookie.ports != ports || cookie.local_tag != packet.vtag {
                return ListenerAction::Discard;
            }
            if let Some(staleness) = cookie.staleness(now) {
                let error = Chunk::Error(vec![ErrorCause::StaleCookie(staleness)]);
                return ListenerAction::Reply(SctpPacket::with_chunk(cookie.peer_tag, error));
            }
            let path = path.min(paths.max(1) - 1);
            let mut a = SctpAssociation::accept_cookie(config, now, initial.secret, &cookie, path, paths);
            a.stats.packets_received = 1;
            a.take_chunks(now, path, false, packet.chunks.into_iter().skip(1));
            ListenerAction::Accept(Box::new(a))
        }
        _ => out_of_the_blue(&packet).map_or(ListenerAction::Discard, ListenerAction::Reply),
    }
}

/// What answers a packet that belongs to no association where nobody listens (RFC 9260 §8.4); `None` for
/// silence.
pub fn out_of_the_blue(packet: &SctpPacket) -> Option<SctpPacket> {
    let any = |what: fn(&Chunk) -> bool| packet.chunks.iter().any(what);
    if packet.chunks.is_empty() || any(|chunk| matches!(chunk, Chunk::Abort { .. })) {
        return None;
    }
    if let Some(Chunk::Init(init)) = packet.chunks.first() {
        // §12.3: with other chunks, or with a tag, it is discarded with all of them.
        let answerable = packet.vtag == 0 && init.tag != 0 && packet.chunks.len() == 1;
        let abort = Chunk::Abort { reflected: false, causes: Vec::new() };
        return answerable.then(|| SctpPacket::with_chunk(init.tag, abort));
    }
    // §8.5.1 A: nothing else has no tag.
    if packet.vtag == 0 {
        return None;
    }
    if any(|chunk| matches!(chunk, Chunk::ShutdownAck)) {
        return Some(SctpPacket::with_chunk(packet.vtag, Chunk::ShutdownComplete { reflected: true }));
    }
    let quiet = any(|chunk| match chunk {
        Chunk::ShutdownComplete { .. } | Chunk::CookieAck => true,
        Chunk::Error(causes) => causes.iter().any(|cause| matches!(cause, ErrorCause::StaleCookie(_))),
        _ => false,
    });
    let abort = Chunk::Abort { reflected: true, causes: Vec::new() };
    (!quiet).then(|| SctpPacket::with_chunk(packet.vtag, abort))
}
