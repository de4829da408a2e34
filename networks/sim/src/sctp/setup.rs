//! The setup (RFC 9260 §5), also with an existing association.

use super::MIN_WINDOW;
use super::association::{SctpAssociation, SctpAssociationState, SctpEvent};
use super::chunk::{Chunk, ChunkParameter, ErrorCause, InitChunk, SctpPacket, round_to_words};
use super::codec::{HOST_NAME, STATE_COOKIE, address_parameter};
use super::config::{InitialAssociationValues, SctpConfig};
use super::cookie::{StateCookie, derive_number};
use super::inbound::SctpReceiver;
use super::outbound::SctpSender;
use super::path::SctpPath;
use std::sync::Arc;
use usher_core::{CloseReason, Instant};

/// A fault of an INIT or INIT ACK (§3.3.2, §3.3.3).
pub(super) enum InitChunkError {
    /// Its tag is 0: no answer is possible.
    Unanswerable,
    /// Its window is below the minimum: answered with ABORT, and the state stays.
    SmallWindow,
    /// A field has an invalid value, or there is a host name: answered with ABORT for this cause.
    Invalid(ErrorCause),
}

/// Maximum octets of a host name that ABORT returns: the maximum of RFC 1123 §2.1, with its end.
const MAX_HOST_NAME: usize = 256;

/// Checks an INIT's fixed fields, and for forbidden parameters.
pub(super) fn check_init(init: &InitChunk) -> Result<(), InitChunkError> {
    // RFC 9260, 3.3.2: an INIT with tag 0 is dropped.
    if init.tag == 0 {
        return Err(InitChunkError::Unanswerable);
    }
    // RFC 9260, 3.3.2.1.4 and 5.1.2: a host name is refused.
    if let Some(name) = &init.host_name {
        let name = ChunkParameter { kind: HOST_NAME, value: name[..name.len().min(MAX_HOST_NAME)].to_vec() };
        return Err(InitChunkError::Invalid(ErrorCause::UnresolvableAddress(name)));
    }
    // RFC 9260, 3.3.2 and 3.3.3: at least one stream in each direction.
    if init.outbound == 0 || init.inbound == 0 {
        return Err(InitChunkError::Invalid(ErrorCause::InvalidParameter));
    }
    // RFC 9260, 3.3.2 and 3.3.3: a window of at least 1500 octets.
    if init.window >= MIN_WINDOW { Ok(()) } else { Err(InitChunkError::SmallWindow) }
}

/// Returns the ABORT for an invalid INIT or INIT ACK.
pub(super) fn refuse_init(init: &InitChunk, cause: ErrorCause) -> SctpPacket {
    SctpPacket::with_chunk(init.tag, Chunk::Abort { reflected: false, causes: vec![cause] })
}

/// Returns the outbound streams that INIT ACK offers: at most the peer's inbound limit, since no more are used
/// (§5.1.1).
pub(super) fn offered_streams(config: &SctpConfig, init: &InitChunk) -> u16 {
    config.accepted_streams.unwrap_or(init.outbound).max(1).min(init.inbound)
}

/// Returns the cookie for the sender of `init`, without the tags of an existing association; `outbound` streams
/// are offered.
pub(super) fn build_state_cookie(
    config: &SctpConfig,
    now: Instant,
    ports: (u16, u16),
    local: (u32, u32),
    outbound: u16,
    init: &InitChunk,
) -> StateCookie {
    // INIT ACK must fit into one packet. Its other contents take less than 200 octets, and each address at most 17
    // octets.
    let room = config.pmdcs().saturating_sub(200) as usize;
    StateCookie {
        expires: now + config.cookie_life,
        ports,
        local_tag: local.0,
        peer_tag: init.tag,
        local_tsn: local.1,
        peer_tsn: init.tsn,
        peer_window: init.window,
        // RFC 9260, 5.1.1: no more than the peer accepts.
        outbound: outbound.min(init.inbound),
        inbound: config.max_inbound_streams.max(1).min(init.outbound),
        local_tie: 0,
        peer_tie: 0,
        peer_addresses: init.addresses.iter().take(room / 17).copied().collect(),
    }
}

/// Returns the INIT ACK with a cookie.
pub(super) fn build_init_ack(
    config: &SctpConfig,
    cookie: &StateCookie,
    secret: &[u8; 32],
    outbound: u16,
    init: &InitChunk,
) -> SctpPacket {
    let mut ack = InitChunk {
        cookie: Some(cookie.encode_signed(secret)),
        ..build_own_init(config, cookie.local_tag, cookie.local_tsn, outbound)
    };
    let room = config.pmdcs().saturating_sub(20 + ack.parameters_len());
    // RFC 9260, 3.2.2: reports the INIT's unknown parameters.
    ack.unrecognized = fitting_parameters(&init.unknown, 4, room);
    // RFC 9260, 6.10: alone in its packet.
    SctpPacket::with_chunk(init.tag, Chunk::InitAck(Box::new(ack)))
}

/// Returns the first parameters that fit into `room`, with `around` octets around each.
fn fitting_parameters(parameters: &[ChunkParameter], around: u32, room: u32) -> Vec<ChunkParameter> {
    let mut taken = 0;
    let fits = |p: &&ChunkParameter| {
        taken += round_to_words(around + p.wire_len());
        taken <= room
    };
    parameters.iter().take_while(fits).cloned().collect()
}

fn build_own_init(config: &SctpConfig, tag: u32, tsn: u32, outbound: u16) -> InitChunk {
    InitChunk {
        tag,
        window: config.bounded_receive_buffer(),
        outbound,
        inbound: config.max_inbound_streams.max(1),
        tsn,
        ..InitChunk::default()
    }
}

/// Comparison of a cookie's tag with that of the existing association (§5.2.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum VerificationTagMatch {
    /// M.
    Matches,
    /// X.
    Differs,
    /// 0: the association does not know the peer's tag yet.
    Unknown,
}

/// Comparison of the tie-tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TieTagMatch {
    /// Both match.
    Match,
    /// The cookie has none.
    None,
    /// One of them differs.
    Differ,
}

/// Action for a COOKIE ECHO with an existing association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CookieAction {
    /// A: the peer has restarted.
    Restart,
    /// B: both ends started at about the same time.
    Collide,
    /// C: the cookie is late.
    Discard,
    /// D: the cookie of this association.
    Confirm,
}

/// The table of §5.2.4: local tag, peer's tag, tie-tags (`None` for any), action.
pub(super) const COOKIE_ECHOES: [(
    VerificationTagMatch,
    VerificationTagMatch,
    Option<TieTagMatch>,
    CookieAction,
); 5] = [
    (
        VerificationTagMatch::Differs,
        VerificationTagMatch::Differs,
        Some(TieTagMatch::Match),
        CookieAction::Restart,
    ),
    (VerificationTagMatch::Matches, VerificationTagMatch::Differs, None, CookieAction::Collide),
    (VerificationTagMatch::Matches, VerificationTagMatch::Unknown, None, CookieAction::Collide),
    (
        VerificationTagMatch::Differs,
        VerificationTagMatch::Matches,
        Some(TieTagMatch::None),
        CookieAction::Discard,
    ),
    (VerificationTagMatch::Matches, VerificationTagMatch::Matches, None, CookieAction::Confirm),
];

/// Returns the action of the first matching row; without one, discards.
pub(super) fn cookie_action(
    local: VerificationTagMatch,
    peer: VerificationTagMatch,
    ties: TieTagMatch,
) -> CookieAction {
    let fits = |row: &&(VerificationTagMatch, VerificationTagMatch, Option<TieTagMatch>, CookieAction)| {
        (row.0, row.1) == (local, peer) && row.2.is_none_or(|t| t == ties)
    };
    COOKIE_ECHOES.iter().find(fits).map_or(CookieAction::Discard, |row| row.3)
}

impl SctpAssociation {
    /// Creates an association from a valid cookie.
    pub(super) fn association_from_cookie(
        config: &Arc<SctpConfig>,
        now: Instant,
        secret: [u8; 32],
        cookie: &StateCookie,
        path: u8,
        paths: u8,
    ) -> Self {
        let initial = InitialAssociationValues { tag: cookie.local_tag, tsn: cookie.local_tsn, secret };
        let mut a = Self::new(config.clone(), initial, paths, SctpAssociationState::Established);
        a.adopt_cookie_values(cookie);
        // RFC 9260, 5.1: COOKIE ACK is the first chunk.
        a.queue_control(path, Chunk::CookieAck);
        a.enter_established(now);
        a
    }

    /// Adopts the peer's values from a cookie.
    fn adopt_cookie_values(&mut self, cookie: &StateCookie) {
        self.peer_tag = cookie.peer_tag;
        self.peer_addresses = cookie.peer_addresses.clone();
        self.inb = SctpReceiver::new(cookie.peer_tsn);
        self.sacked = false;
        self.set_streams(cookie.outbound, cookie.inbound);
        self.set_peer_window(cookie.peer_window);
    }
    fn set_streams(&mut self, outbound: u16, inbound: u16) {
        self.outbound_streams = outbound;
        self.inbound_streams = inbound;
        self.stats.unsendable += self.out.truncate_streams(outbound);
    }
    fn set_peer_window(&mut self, window: u32) {
        self.peer_window = window.saturating_sub(self.out.flying);
    }
    fn enter_established(&mut self, now: Instant) {
        self.state = SctpAssociationState::Established;
        self.stop_timer();
        self.setup_due = false;
        self.cookie = Vec::new();
        for path in &mut self.paths {
            path.start(&self.config, now);
        }
        self.events
            .push_back(SctpEvent::Up { outbound: self.outbound_streams, inbound: self.inbound_streams });
        if self.is_shutdown_requested {
            self.state = SctpAssociationState::ShutdownPending;
        }
        self.request_output();
    }

    /// Returns the INIT, also for retransmission.
    pub(super) fn init_packet(&self) -> SctpPacket {
        let streams = self.config.outbound_streams.max(1);
        let init = build_own_init(&self.config, self.local_tag, self.initial.tsn, streams);
        // RFC 9260, 3.1 and 6.10: alone in its packet, with tag 0.
        SctpPacket::with_chunk(0, Chunk::Init(Box::new(init)))
    }

    pub(super) fn handle_init_ack(&mut self, now: Instant, path: u8, init: &InitChunk) {
        if self.state != SctpAssociationState::CookieWait {
            self.stats.unexpected += 1;
            return;
        }
        let refusal = match (check_init(init), &init.cookie) {
            (Ok(()), Some(cookie)) => {
                self.cookie = cookie.clone();
                None
            }
            (Ok(()), None) => {
                Some((true, refuse_init(init, ErrorCause::MissingParameters(vec![STATE_COOKIE]))))
            }
            // RFC 9260, 3.3.3: ends the association.
            (Err(InitChunkError::Invalid(cause)), _) => Some((true, refuse_init(init, cause))),
            // RFC 9260, 3.3.3: drops the chunk; the setup goes on.
            (Err(InitChunkError::SmallWindow), _) => {
                Some((false, refuse_init(init, ErrorCause::InvalidParameter)))
            }
            // RFC 9260, 3.3.3: the peer gave no tag, so the reply carries the tag that it sent.
            (Err(InitChunkError::Unanswerable), _) => {
                let causes = vec![ErrorCause::InvalidParameter];
                Some((true, SctpPacket::with_chunk(self.local_tag, Chunk::Abort { reflected: true, causes })))
            }
        };
        if let Some((ends, answer)) = refusal {
            self.stats.malformed += 1;
            self.queue_reply(path, answer);
            if ends {
                self.fail(CloseReason::Reset);
            }
            return;
        }
        if let Some(at) = self.setup_sent_at.take()
            && path == self.timer_path
        {
            self.paths[usize::from(path)].rtt.add_sample(&self.config, now - at);
        }
        self.state = SctpAssociationState::CookieEchoed;
        self.stop_timer();
        self.peer_tag = init.tag;
        self.peer_addresses = init.addresses.clone();
        self.inb = SctpReceiver::new(init.tsn);
        let config = self.config.clone();
        self.set_streams(
            // RFC 9260, 5.1.1: no more than the peer accepts.
            config.outbound_streams.max(1).min(init.inbound),
            config.max_inbound_streams.max(1).min(init.outbound),
        );
        self.set_peer_window(init.window);
        self.timer_path = path;
        self.setup_due = true;
        self.arm_setup_timer(now);
        if !init.unknown.is_empty() {
            let room = self.config.pmdcs() / 2;
            let causes = vec![ErrorCause::UnrecognizedParameters(fitting_parameters(&init.unknown, 0, room))];
            self.queue_control(path, Chunk::Error(causes));
        }
    }

    pub(super) fn handle_cookie_ack(&mut self, now: Instant, path: u8) {
        if self.state != SctpAssociationState::CookieEchoed {
            self.stats.unexpected += 1;
            return;
        }
        if let Some(at) = self.setup_sent_at.take()
            && path == self.timer_path
        {
            self.paths[usize::from(path)].rtt.add_sample(&self.config, now - at);
        }
        self.enter_established(now);
    }

    /// Restarts the setup after a Stale Cookie (§5.2.6, first choice), at most as often as INIT may be retransmitted.
    pub(super) fn restart_setup(&mut self, now: Instant) {
        if self.config.max_init_retransmissions.is_some_and(|limit| self.stale_cookies >= limit) {
            self.fail(CloseReason::TimedOut);
            return;
        }
        self.stale_cookies += 1;
        self.mark_all_paths_lost();
        self.control.clear();
        self.state = SctpAssociationState::CookieWait;
        self.retries = 0;
        self.peer_tag = 0;
        self.setup_due = true;
        self.setup_sent_at = None;
        self.arm_setup_timer(now);
    }

    /// Handles INIT with an existing association (§5.2.1, §5.2.2), whose state does not change yet.
    pub(super) fn handle_init(&mut self, now: Instant, path: u8, init: &InitChunk) {
        let refused = match check_init(init) {
            Ok(()) => None,
            Err(InitChunkError::Unanswerable) => Some(None),
            Err(InitChunkError::SmallWindow) => Some(Some(ErrorCause::InvalidParameter)),
            Err(InitChunkError::Invalid(cause)) => Some(Some(cause)),
        };
        if let Some(cause) = refused {
            self.stats.malformed += 1;
            if let Some(cause) = cause {
                self.queue_reply(path, refuse_init(init, cause));
            }
            return;
        }
        let added = init.addresses.iter().filter(|a| !self.peer_addresses.contains(a));
        let added: Vec<ChunkParameter> = added.map(address_parameter).collect();
        if !added.is_empty()
            && !matches!(self.state, SctpAssociationState::CookieWait | SctpAssociationState::ShutdownAckSent)
        {
            self.stats.unexpected += 1;
            self.queue_reply(path, refuse_init(init, ErrorCause::NewAddresses(added)));
            return;
        }
        let (local, ties) = match self.state {
            SctpAssociationState::ShutdownAckSent => {
                self.queue_control(path, Chunk::ShutdownAck);
                return;
            }
            SctpAssociationState::CookieWait => ((self.local_tag, self.initial.tsn), (0, 0)),
            SctpAssociationState::CookieEchoed => {
                ((self.local_tag, self.initial.tsn), (self.local_tag, self.peer_tag))
            }
            _ => {
                let mut seed = self.local_tag.to_be_bytes().to_vec();
                seed.extend_from_slice(&init.tag.to_be_bytes());
                seed.extend_from_slice(&now.as_nanos().to_be_bytes());
                let drawn = |label| derive_number(&self.initial.secret, label, &seed);
                ((drawn("tag").max(1), drawn("tsn")), (self.local_tag, self.peer_tag))
            }
        };
        // The machine does not know its ports: a cookie without ports is valid for this association only.
        let outbound = match self.state {
            // RFC 9260, 5.2.1: as in our own INIT.
            SctpAssociationState::CookieWait | SctpAssociationState::CookieEchoed => {
                self.config.outbound_streams
            }
            // RFC 9260, 5.2.2: as in the association.
            _ => self.outbound_streams,
        };
        let outbound = outbound.clamp(1, init.inbound.max(1));
        let mut cookie = build_state_cookie(&self.config, now, (0, 0), local, outbound, init);
        (cookie.local_tie, cookie.peer_tie) = ties;
        let answer = build_init_ack(&self.config, &cookie, &self.initial.secret, outbound, init);
        self.queue_reply(path, answer);
    }

    /// Handles COOKIE ECHO with an existing association (§5.2.4); true if the chunks bundled behind it are to be
    /// handled.
    pub(super) fn handle_cookie_echo(&mut self, now: Instant, path: u8, vtag: u32, bytes: &[u8]) -> bool {
        // RFC 9260, 5.1.5: drops a cookie with a wrong MAC or tag.
        let Some(cookie) = StateCookie::decode_signed(&self.initial.secret, bytes) else {
            self.stats.bad_cookie += 1;
            return false;
        };
        if vtag != cookie.local_tag {
            self.stats.bad_tag += 1;
            return false;
        }
        let same = |theirs, ours| {
            if theirs == ours { VerificationTagMatch::Matches } else { VerificationTagMatch::Differs }
        };
        let local = same(cookie.local_tag, self.local_tag);
        let peer = if self.peer_tag == 0 {
            VerificationTagMatch::Unknown
        } else {
            same(cookie.peer_tag, self.peer_tag)
        };
        let ties = match (cookie.local_tie, cookie.peer_tie) {
            (0, 0) => TieTagMatch::None,
            tags if tags == (self.local_tag, self.peer_tag) => TieTagMatch::Match,
            _ => TieTagMatch::Differ,
        };
        let action = cookie_action(local, peer, ties);
        if action != CookieAction::Confirm
            && let Some(staleness) = cookie.staleness(now)
        {
            self.stats.stale_cookie += 1;
            let error = Chunk::Error(vec![ErrorCause::StaleCookie(staleness)]);
            self.queue_reply(path, SctpPacket::with_chunk(cookie.peer_tag, error));
            return false;
        }
        match action {
            CookieAction::Discard => {
                self.stats.unexpected += 1;
                return false;
            }
            CookieAction::Restart if self.state == SctpAssociationState::ShutdownAckSent => {
                self.queue_control(path, Chunk::ShutdownAck);
                self.queue_control(path, Chunk::Error(vec![ErrorCause::CookieWhileShuttingDown]));
                return false;
            }
            CookieAction::Restart => {
                self.restart_association(now, &cookie);
                self.queue_control(path, Chunk::CookieAck);
            }
            CookieAction::Collide => {
                if matches!(self.state, SctpAssociationState::CookieWait | SctpAssociationState::CookieEchoed)
                {
                    self.mark_all_paths_lost();
                    self.control.clear();
                    self.adopt_cookie_values(&cookie);
                    self.queue_control(path, Chunk::CookieAck);
                    self.enter_established(now);
                } else {
                    self.peer_tag = cookie.peer_tag;
                    self.queue_control(path, Chunk::CookieAck);
                }
            }
            CookieAction::Confirm => {
                self.queue_control(path, Chunk::CookieAck);
                if self.state == SctpAssociationState::CookieEchoed {
                    self.enter_established(now);
                }
            }
        }
        true
    }

    /// Action A: resets all state except events that the application has not polled.
    fn restart_association(&mut self, now: Instant, cookie: &StateCookie) {
        let unread = self.inb.unread;
        self.local_tag = cookie.local_tag;
        self.initial.tsn = cookie.local_tsn;
        self.out = SctpSender::new(cookie.local_tsn);
        // RFC 9260, 5.2.4: a restart resets congestion control.
        self.paths.iter_mut().for_each(|path| *path = SctpPath::new(&self.config));
        self.control.clear();
        self.adopt_cookie_values(cookie);
        self.inb.unread = unread;
        self.clear_sack_due();
        self.guard_at = Instant::FAR_FUTURE;
        (self.in_fast_recovery, self.grant, self.probing) = (false, false, false);
        (self.is_repair_blocked, self.bound_burst) = (false, false);
        (self.recover, self.highest_acked) = (self.out.cumulative, self.out.cumulative);
        self.outstanding_until = self.out.cumulative;
        (self.probe_at, self.probe_due) = (Instant::FAR_FUTURE, false);
        self.errors = 0;
        self.is_shutdown_requested = false;
        self.enter_established(now);
    }
}
