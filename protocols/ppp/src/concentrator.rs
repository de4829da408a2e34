//! The access concentrator: discovery, and the sessions of its hosts (RFC 2516).
//!
//! [`PppoeConcentrator`] is a [machine](Machine). [`ConcentratorCommand`] and [`ConcentratorEvent`] are its commands
//! and events, [`ConcentratorConfig`] its limits.

mod config;
mod discovery;
mod event;
mod unauthenticated;

pub use config::{ConcentratorConfig, ConcentratorPort, ConfigError, ExcessSessionPolicy};
pub use event::{
    AuthenticationReply, ConcentratorCommand, ConcentratorEvent, PppoeSessionId, SubscriberInfo,
};

use crate::auth::authenticator::ProofVerdict;
use crate::link::{DropReason, EndReason, PppLink, PppLinkOutput};
use crate::packet::PppProtocol;
use crate::pppoe::cookie::CookieSecrets;
use crate::pppoe::limit::TokenBucketTable;
use crate::pppoe::{DiscoveryTags, MacAddress, PppoeCode, PppoeFrame, PppoeStage};
use crate::work;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use unauthenticated::{AccessLine, UnauthenticatedSessions};
use usher_core::timer::TimerQueue;
use usher_core::{
    CommandError, Instant, LinkLayerPortId, Machine, MachineInput, MachineOutputOf, NoJob, OutputQueue,
    SecureRng, Transmit, WallTime, WorkRecord,
};

/// Maximum stations in the table of rate limits.
const STATIONS: usize = 16_384;
/// Maximum lines (ports and circuits) in the table of rate limits.
const LINES: usize = 16_384;

usher_core::counters! {
    /// The events and drops of a concentrator.
    pub struct ConcentratorCounters {
        /// PADI answered with PADO.
        offers,
        /// Sessions started: PADS with a session number.
        sessions,
        /// PADS retransmitted for a repeated PADR.
        confirmed_again,
        /// Sessions ended.
        ended,
        /// Sessions replaced by a newer one of the same host, at its session limit.
        replaced,
        /// Frames at an unknown port or with another EtherType.
        not_ours,
        /// Frames for other stations.
        not_for_us,
        /// Frames that are not PPPoE, have a multicast source, or have tags of a wrong length.
        malformed,
        /// Discovery packets with a code, session number or address that hosts must not send.
        unexpected,
        /// PADI and PADR without exactly one Service-Name.
        service_count,
        /// PADI for another concentrator or service.
        not_offered,
        /// PADR refused: no such service.
        no_service,
        /// PADR without a valid AC-Cookie.
        bad_cookie,
        /// PADI and PADR whose answer would exceed an Ethernet frame.
        oversized,
        /// PADI beyond the rate limit of a station.
        limited_station,
        /// PADI beyond the rate limit of their circuit or port.
        limited_all,
        /// PADR beyond the rate limit of a station.
        limited_requests,
        /// PADR refused: the limit of sessions or of half-open sessions is reached.
        full,
        /// Half-open sessions evicted by new ones.
        crowded_out,
        /// Sessions ended: the host renegotiated too often.
        renegotiating,
        /// PADR refused: the station has reached its session limit.
        full_station,
        /// Session packets and PADT with an unknown session number.
        unknown_session,
        /// Session packets and PADT with another station's session number.
        spoofed,
        /// PADT with a Host-Uniq other than the session's.
        forged_padt,
        /// PADT without a Host-Uniq, from a station whose earlier PADT named none of its sessions.
        guessed_padt,
        /// Control packets with wrong lengths.
        bad_packet,
        /// Control packets that answer no request.
        not_asked,
        /// Packets of protocols that are not open yet, such as IP before the end of authentication.
        early,
        /// Echo packets with a magic number other than the negotiated one.
        bad_magic,
        /// Network packets, which belong to the data plane.
        data,
        /// Control packets without effect in the current state, such as a Configure-Request while a session ends.
        ignored,
        /// Retransmitted passwords and responses during the check of the first, whose result answers them.
        pending,
    }
}

impl ConcentratorCounters {
    fn count_dropped(&mut self, why: DropReason) {
        *match why {
            DropReason::Malformed => &mut self.bad_packet,
            DropReason::Unsolicited => &mut self.not_asked,
            DropReason::TooEarly => &mut self.early,
            DropReason::Magic => &mut self.bad_magic,
            DropReason::Data => &mut self.data,
            DropReason::Ignored => &mut self.ignored,
            DropReason::Pending => &mut self.pending,
        } += 1;
    }
}

/// The port and address of a host.
type StationKey = (LinkLayerPortId, MacAddress);

#[derive(Debug)]
struct PppoeSession {
    name: PppoeSessionId,
    station: StationKey,
    line: AccessLine,
    link: PppLink,
    /// Host-Uniq of the PADR, repeated in PADS and PADT.
    host_uniq: Option<Vec<u8>>,
    relay_session_id: Option<Vec<u8>>,
    service: Vec<u8>,
    max_payload: Option<u16>,
    subscriber: SubscriberInfo,
    started_at: Instant,
    /// True once a packet of the session has come: the host has received its SESSION_ID.
    has_received: bool,
    timer: Option<Instant>,
}

/// An access concentrator: a [`Machine`] over Ethernet frames.
///
/// - Getters: [`counters`](Self::counters), [`session_count`](Self::session_count),
///   [`subscriber`](Self::subscriber), ...
/// - Input: [`handle_input`](Machine::handle_input) takes frames and timeouts.
/// - Commands: [`handle_command`](Machine::handle_command) takes a [`ConcentratorCommand`].
/// - Polls: [`poll_output`](Machine::poll_output) and [`poll_timeout`](Machine::poll_timeout).
#[derive(Debug)]
pub struct PppoeConcentrator {
    config: ConcentratorConfig,
    rng: SecureRng,
    epoch: WallTime,
    cookies: Option<CookieSecrets>,
    sessions: BTreeMap<u16, PppoeSession>,
    /// SESSION_IDs by session name.
    names: BTreeMap<PppoeSessionId, u16>,
    /// Session names by station, in the order in which the sessions began.
    stations: BTreeMap<StationKey, Vec<PppoeSessionId>>,
    /// Sessions whose hosts are not authenticated yet.
    outside: UnauthenticatedSessions,
    timers: TimerQueue<u16>,
    next: u64,
    initiations: TokenBucketTable<AccessLine>,
    terminations: TokenBucketTable<LinkLayerPortId>,
    /// Rate limit of PADT packets that match no session of their station.
    unmatched_padts: TokenBucketTable<StationKey>,
    initiations_of: TokenBucketTable<StationKey>,
    requests_of: TokenBucketTable<StationKey>,
    counters: ConcentratorCounters,
    outputs: OutputQueue<ConcentratorEvent>,
}

impl PppoeConcentrator {
    /// Creates a concentrator. `rng` makes cookies, challenges, magic numbers and SESSION_IDs.
    ///
    /// # Errors
    /// The configuration serves no host, or admits hosts without authentication.
    pub fn new(config: ConcentratorConfig, rng: SecureRng) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            rng,
            epoch: WallTime::UNIX_EPOCH,
            cookies: None,
            sessions: BTreeMap::new(),
            names: BTreeMap::new(),
            stations: BTreeMap::new(),
            outside: UnauthenticatedSessions::default(),
            timers: TimerQueue::new(),
            next: 0,
            initiations: TokenBucketTable::new(LINES),
            terminations: TokenBucketTable::new(LINES),
            unmatched_padts: TokenBucketTable::new(STATIONS),
            initiations_of: TokenBucketTable::new(STATIONS),
            requests_of: TokenBucketTable::new(STATIONS),
            counters: ConcentratorCounters::default(),
            outputs: OutputQueue::default(),
        })
    }
    /// Returns the counters of work and dropped packets.
    #[must_use]
    pub const fn counters(&self) -> &ConcentratorCounters {
        &self.counters
    }
    /// Returns the number of sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }
    /// Returns the number of sessions whose hosts are not authenticated yet.
    #[must_use]
    pub fn unauthenticated_count(&self) -> usize {
        self.outside.len()
    }
    /// Returns the subscriber of a session.
    #[must_use]
    pub fn subscriber(&self, session: PppoeSessionId) -> Option<&SubscriberInfo> {
        self.names.get(&session).and_then(|id| self.sessions.get(id)).map(|session| &session.subscriber)
    }
    /// Returns the number of rate limit buckets of stations and lines, which is bounded.
    #[must_use]
    pub fn bucket_count(&self) -> usize {
        let stations = self.initiations_of.len() + self.requests_of.len() + self.unmatched_padts.len();
        stations + self.initiations.len() + self.terminations.len()
    }

    fn record_work(&mut self, label: usher_core::WorkLabel) {
        self.outputs.push_work(WorkRecord { label, units: 1 });
    }

    fn handle_frame(&mut self, now: Instant, port: LinkLayerPortId, octets: &[u8]) {
        let Some(own) = self.config.ports.iter().find(|own| own.port == port).copied() else {
            self.counters.not_ours += 1;
            return;
        };
        let frame = match PppoeFrame::parse(octets) {
            Ok(frame) => frame,
            Err(crate::pppoe::FrameError::EtherType(_)) => {
                self.counters.not_ours += 1;
                return;
            }
            Err(_) => {
                self.counters.malformed += 1;
                return;
            }
        };
        let initiation = frame.stage == PppoeStage::Discovery && frame.code == PppoeCode::PADI;
        let for_us = if initiation { MacAddress::BROADCAST } else { own.address };
        // RFC 2516, 5.1: a PADI is broadcast. A unicast PADI is dropped.
        if frame.destination != for_us {
            self.counters.not_for_us += 1;
            return;
        }
        if !frame.source.is_unicast() || frame.source == own.address {
            self.counters.malformed += 1;
            return;
        }
        match frame.stage {
            PppoeStage::Discovery => self.handle_discovery(now, own, frame),
            PppoeStage::Session => self.handle_session_frame(now, own, frame),
        }
    }

    /// Returns the SESSION_ID of a frame if the session belongs to the frame's station.
    fn look_up_session(&mut self, port: LinkLayerPortId, frame: &PppoeFrame<'_>) -> Option<u16> {
        match self.sessions.get(&frame.session) {
            Some(session) if session.station == (port, frame.source) => Some(frame.session),
            Some(_) => {
                self.counters.spoofed += 1;
                None
            }
            None => {
                self.counters.unknown_session += 1;
                None
            }
        }
    }

    fn handle_session_frame(&mut self, now: Instant, own: ConcentratorPort, frame: PppoeFrame<'_>) {
        // RFC 2516, 6: CODE is 0x00 in a session.
        if frame.code != PppoeCode::SESSION {
            self.counters.malformed += 1;
            return;
        }
        let Some(id) = self.look_up_session(own.port, &frame) else {
            // If this side has restarted, the host's session is unknown. A PADT tells the host at once, so that it can
            // reconnect.
            let unknown = frame.session != 0 && !self.sessions.contains_key(&frame.session);
            if unknown && self.terminations.take_token(now, own.port, self.config.terminations) {
                self.send_padt(own, frame.source, frame.session, &DiscoveryTags::default());
            }
            return;
        };
        let wall = now.to_wall_time(self.epoch);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.has_received = true;
        if let Err(why) = session.link.receive_packet(now, wall, frame.payload) {
            self.counters.count_dropped(why);
        }
        self.drain_link(id);
    }

    /// Sends a PADT.
    fn send_padt(&mut self, own: ConcentratorPort, host: MacAddress, session: u16, tags: &DiscoveryTags<'_>) {
        self.send_discovery(own, host, PppoeCode::PADT, session, tags);
    }

    /// Sends a discovery packet; false if it is too long and was not sent.
    fn send_discovery(
        &mut self,
        own: ConcentratorPort,
        destination: MacAddress,
        code: PppoeCode,
        session: u16,
        tags: &DiscoveryTags<'_>,
    ) -> bool {
        let mut payload = Vec::new();
        tags.emit(&mut payload);
        if payload.len() + crate::pppoe::HEADERS > usize::from(config::ETHERNET) + 14 {
            self.counters.oversized += 1;
            return false;
        }
        self.record_work(work::DISCOVERY);
        let frame = PppoeFrame {
            destination,
            source: own.address,
            stage: PppoeStage::Discovery,
            code,
            session,
            payload: &payload,
        };
        let mut bytes = self.outputs.take_buffer();
        frame.emit(&mut bytes);
        self.outputs.push_transmit(Transmit::Frame { port: own.port }, bytes);
        true
    }

    /// Applies the outputs of a session's link and sets its timer.
    fn drain_link(&mut self, id: u16) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let (name, (port, host)) = (session.name, session.station);
        let (said, work) = (session.link.take_link_outputs(), session.link.take_work());
        for label in work {
            self.record_work(label);
        }
        let own = self.config.ports.iter().find(|own| own.port == port).copied();
        for one in said {
            match one {
                PppLinkOutput::Send(protocol, packet) => {
                    if let Some(own) = own {
                        self.send_session_frame(own, host, id, protocol, &packet);
                    }
                }
                PppLinkOutput::VerifyProof { name: user, proof, mtu } => {
                    let event = ConcentratorEvent::Authenticate { session: name, user, proof, mtu };
                    self.outputs.push_event(event);
                }
                PppLinkOutput::Authenticated => {
                    if let Some(session) = self.sessions.get(&id) {
                        self.outside.remove(session.line, name);
                    }
                }
                PppLinkOutput::Up(network) => {
                    let Some(session) = self.sessions.get(&id) else { continue };
                    let (subscriber, mtu) = (session.subscriber.clone(), session.link.mtu());
                    self.outputs.push_event(ConcentratorEvent::Install {
                        session: name,
                        subscriber,
                        mtu,
                        network,
                    });
                }
                PppLinkOutput::Down(family) => {
                    self.outputs.push_event(ConcentratorEvent::Remove { session: name, family });
                }
                PppLinkOutput::Mtu(mtu) => {
                    self.outputs.push_event(ConcentratorEvent::Mtu { session: name, mtu })
                }
                // Only the link of a client gives these outputs.
                PppLinkOutput::Refused(_) | PppLinkOutput::Advertised(_) | PppLinkOutput::Delegated(_) => {}
                PppLinkOutput::Ended(reason) => return self.remove_session(id, reason),
            }
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let timer = session.link.poll_timeout();
        if timer != session.timer {
            if let Some(at) = session.timer {
                self.timers.remove(at, id);
            }
            if let Some(at) = timer {
                self.timers.insert(at, id);
            }
            session.timer = timer;
        }
    }

    fn send_session_frame(
        &mut self,
        own: ConcentratorPort,
        destination: MacAddress,
        session: u16,
        protocol: PppProtocol,
        packet: &[u8],
    ) {
        let payload = [&protocol.0.to_be_bytes(), packet].concat();
        let source = own.address;
        let frame = PppoeFrame {
            destination,
            source,
            stage: PppoeStage::Session,
            code: PppoeCode::SESSION,
            session,
            payload: &payload,
        };
        let mut bytes = self.outputs.take_buffer();
        frame.emit(&mut bytes);
        self.outputs.push_transmit(Transmit::Frame { port: own.port }, bytes);
    }

    /// Removes a session after it has sent a PADT to the host. Its SESSION_ID is then free.
    fn remove_session(&mut self, id: u16, reason: EndReason) {
        let Some(session) = self.sessions.remove(&id) else { return };
        let (port, host) = session.station;
        if let Some(at) = session.timer {
            self.timers.remove(at, id);
        }
        self.names.remove(&session.name);
        self.outside.remove(session.line, session.name);
        if let Some(names) = self.stations.get_mut(&session.station) {
            names.retain(|name| *name != session.name);
            if names.is_empty() {
                self.stations.remove(&session.station);
            }
        }
        self.counters.ended += 1;
        self.counters.crowded_out += u64::from(reason == EndReason::CrowdedOut);
        self.counters.renegotiating += u64::from(reason == EndReason::Renegotiating);
        if reason != EndReason::Padt
            && let Some(own) = self.config.ports.iter().find(|own| own.port == port).copied()
        {
            let (host_uniq, relay_session_id) =
                (session.host_uniq.as_deref(), session.relay_session_id.as_deref());
            let tags = DiscoveryTags { host_uniq, relay_session_id, ..DiscoveryTags::default() };
            self.send_padt(own, host, id, &tags);
        }
        self.outputs.push_event(ConcentratorEvent::Ended { session: session.name, reason });
    }

    /// Ends a session without further LCP packets.
    fn abort_session(&mut self, id: u16, reason: EndReason) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.link.end_link_without_lcp(reason);
            self.drain_link(id);
        }
    }

    fn session_number(&self, session: PppoeSessionId) -> Result<u16, CommandError> {
        self.names.get(&session).copied().ok_or(CommandError::UnknownToken)
    }
}

impl Machine for PppoeConcentrator {
    type Command = ConcentratorCommand;
    type Event = ConcentratorEvent;
    type Job = NoJob;

    fn set_epoch(&mut self, _: Instant, epoch: WallTime) {
        self.epoch = epoch;
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Frame { port, data } => self.handle_frame(now, port, data),
            MachineInput::Timeout => {
                let wall = now.to_wall_time(self.epoch);
                while let Some((_, id)) = self.timers.pop_due(now) {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.timer = None;
                        session.link.handle_timeout(now, wall);
                        self.drain_link(id);
                    }
                }
            }
            other => {
                if let Some(refusal) = other.refusal() {
                    self.outputs.push_operation(refusal);
                }
            }
        }
    }

    fn handle_command(&mut self, now: Instant, command: ConcentratorCommand) -> Result<(), CommandError> {
        let wall = now.to_wall_time(self.epoch);
        match command {
            ConcentratorCommand::Answer { session, answer } => {
                let id = self.session_number(session)?;
                let (verdict, assignment) = match answer {
                    AuthenticationReply::Continue(packet) => (ProofVerdict::Continue(packet), None),
                    AuthenticationReply::Accept { message, assignment } => {
                        (ProofVerdict::Accept(message), Some(assignment))
                    }
                    AuthenticationReply::Reject { message } => (ProofVerdict::Reject(message), None),
                    AuthenticationReply::Unanswered => (ProofVerdict::Unanswered, None),
                };
                let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
                if !session.link.apply_verdict(now, wall, verdict, assignment.as_deref()) {
                    return Err(CommandError::WrongState("no proof of this session waits for an answer"));
                }
                self.drain_link(id);
            }
            ConcentratorCommand::Close(session) => {
                let id = self.session_number(session)?;
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.link.close(now, wall, EndReason::Closed);
                }
                self.drain_link(id);
            }
            ConcentratorCommand::CloseAll => {
                for id in self.sessions.keys().copied().collect::<Vec<_>>() {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.link.close(now, wall, EndReason::Closed);
                    }
                    self.drain_link(id);
                }
            }
            ConcentratorCommand::Configure(config) => {
                config.validate().map_err(|_| CommandError::Invalid("the configuration is invalid"))?;
                self.config = *config;
            }
        }
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next_deadline()
    }
}
