//! Packets without an association: setup of the listening end (RFC 9260 §5.1) and packets out of the blue (§8.4).

use super::association::SctpAssociation;
use super::chunk::{Chunk, ErrorCause, SctpPacket};
use super::config::{InitialAssociationValues, SctpConfig};
use super::cookie::StateCookie;
use super::setup::{
    InitChunkError, build_init_ack, build_state_cookie, check_init, offered_streams, refuse_init,
};
use std::sync::Arc;
use usher_core::Instant;

/// The action for a packet without an association.
#[derive(Debug)]
pub enum SctpListenerAction {
    /// Send this to the packet's source.
    Reply(SctpPacket),
    /// Drain this new association: a valid cookie arrived. The chunks bundled behind it are handled already.
    Accept(Box<SctpAssociation>),
    /// Drop the packet.
    Discard,
}

/// Handles a listener's packet without an association. INIT leads to INIT ACK with a signed cookie, a valid
/// cookie to an association, a stale one to ERROR. A forged one is dropped. Other packets are [out of the
/// blue](reply_out_of_the_blue).
///
/// `ports` are the local and the remote port, to which cookies are bound. `path` is the packet's path, one of
/// `paths` that the association may use. An accepted association takes only the secret from `initial`: its tag
/// and TSN are those of the cookie.
pub fn handle_listener_packet(
    config: &Arc<SctpConfig>,
    now: Instant,
    initial: InitialAssociationValues,
    ports: (u16, u16),
    path: u8,
    paths: u8,
    packet: SctpPacket,
) -> SctpListenerAction {
    let alone = packet.chunks.len() == 1;
    match packet.chunks.first() {
        Some(Chunk::Init(init)) if packet.vtag == 0 && alone => match check_init(init) {
            Ok(()) => {
                let outbound = offered_streams(config, init);
                let local = (initial.tag.max(1), initial.tsn);
                let cookie = build_state_cookie(config, now, ports, local, outbound, init);
                // RFC 9260, 5.1: answers at once with a cookie, and keeps no state.
                SctpListenerAction::Reply(build_init_ack(config, &cookie, &initial.secret, outbound, init))
            }
            Err(InitChunkError::Unanswerable) => SctpListenerAction::Discard,
            Err(InitChunkError::SmallWindow) => {
                SctpListenerAction::Reply(refuse_init(init, ErrorCause::InvalidParameter))
            }
            Err(InitChunkError::Invalid(cause)) => SctpListenerAction::Reply(refuse_init(init, cause)),
        },
        Some(Chunk::CookieEcho(bytes)) => {
            // RFC 9260, 5.1.5: drops a cookie with a wrong MAC, port or tag.
            let Some(cookie) = StateCookie::decode_signed(&initial.secret, bytes) else {
                return SctpListenerAction::Discard;
            };
            if cookie.ports != ports || cookie.local_tag != packet.vtag {
                return SctpListenerAction::Discard;
            }
            // RFC 9260, 5.1.5: reports a stale cookie.
            if let Some(staleness) = cookie.staleness(now) {
                let error = Chunk::Error(vec![ErrorCause::StaleCookie(staleness)]);
                return SctpListenerAction::Reply(SctpPacket::with_chunk(cookie.peer_tag, error));
            }
            let path = path.min(paths.max(1) - 1);
            let mut a =
                SctpAssociation::association_from_cookie(config, now, initial.secret, &cookie, path, paths);
            a.stats.packets_received = 1;
            a.handle_chunks(now, path, false, packet.chunks.into_iter().skip(1));
            SctpListenerAction::Accept(Box::new(a))
        }
        _ => reply_out_of_the_blue(&packet).map_or(SctpListenerAction::Discard, SctpListenerAction::Reply),
    }
}

/// Returns the reply to a packet without an association or listener (RFC 9260 §8.4); `None` if there is none.
pub fn reply_out_of_the_blue(packet: &SctpPacket) -> Option<SctpPacket> {
    let any = |what: fn(&Chunk) -> bool| packet.chunks.iter().any(what);
    if packet.chunks.is_empty() || any(|chunk| matches!(chunk, Chunk::Abort { .. })) {
        return None;
    }
    if let Some(Chunk::Init(init)) = packet.chunks.first() {
        // RFC 9260, 12.3: with other chunks, or with a tag, the whole packet is dropped.
        let answerable = packet.vtag == 0 && init.tag != 0 && packet.chunks.len() == 1;
        let abort = Chunk::Abort { reflected: false, causes: Vec::new() };
        return answerable.then(|| SctpPacket::with_chunk(init.tag, abort));
    }
    // RFC 9260, 8.5.1 A: only INIT has tag 0.
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
