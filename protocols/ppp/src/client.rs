//! The host's side: discovery, one session, and the next after its end (RFC 2516).

use crate::auth::PppCredentials;
use crate::ipv6::dhcp::link_layer_duid;
use crate::ipv6::host::DelegatedPrefix;
use crate::ipv6::neighbor::RouterAdvertisement;
use crate::ipv6cp::InterfaceIdentifier;
use crate::link::{
    AddressFamily, DropReason, EndReason, LinkConfig, NegotiatedAddresses, PppLink, PppLinkOutput,
    PppLinkRole,
};
use crate::pppoe::{
    DiscoveryTags, FrameError, MAX_PAYLOAD, MacAddress, OVERHEAD, PppoeCode, PppoeErrorTag, PppoeFrame,
    PppoeStage,
};
use crate::work;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{
    CommandError, Duration, Instant, LinkLayerPortId, Machine, MachineInput, MachineOutputOf, NoJob,
    OutputQueue, SecureRng, Transmit, WallTime, WorkRecord,
};

/// Octets of the client's Host-Uniq.
const HOST_UNIQ: usize = 8;
/// Maximum PADRs before the client starts over with a PADI (RFC 2516 §8).
const REQUESTS: u32 = 4;
/// Maximum octets of a cookie or Relay-Session-Id that the client returns. Longer values leave no room for other tags.
const OPAQUE: usize = 1024;

/// The configuration of a [`PppoeClient`].
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The port.
    pub port: LinkLayerPortId,
    /// The client's address at the port.
    pub address: MacAddress,
    /// Octets of the longest payload of a frame at the port (the interface's MTU).
    pub mtu: u16,
    /// Service-Name; empty: any.
    pub service: String,
    /// AC-Name of the concentrator; empty: any.
    pub concentrator: String,
    /// The user's credentials.
    pub credentials: Arc<PppCredentials>,
    /// True if the concentrator must authenticate the user. Only then can the concentrator prove itself. Without it,
    /// any station of the Ethernet can pose as a concentrator.
    pub requires_authentication: bool,
    /// True to request IPv4.
    pub ipv4: bool,
    /// True to request name servers (RFC 1877).
    pub dns: bool,
    /// The interface identifier to request for IPv6, zero for a random one; `None`: no IPv6.
    pub ipv6: Option<InterfaceIdentifier>,
    /// True to request a prefix for a network behind this host (RFC 8415).
    pub delegation: bool,
    /// Timers and limits of the link.
    pub link: LinkConfig,
    /// The first wait for a PADO or PADS. Each further wait is twice as long.
    pub initial_timeout: Duration,
    /// The longest wait, and the wait after a refused session.
    pub longest: Duration,
    /// PADIs per session; zero: unlimited.
    pub attempts: u32,
    /// True to begin another session after an end, except by [`ClientCommand::Disconnect`].
    pub persist: bool,
}

impl ClientConfig {
    /// Returns the default configuration: any service, IPv4 with name servers, IPv6, waits of 1 s to 30 s, five PADIs,
    /// no reconnection.
    #[must_use]
    pub fn new(port: LinkLayerPortId, address: MacAddress, credentials: PppCredentials) -> Self {
        Self {
            port,
            address,
            mtu: 1500,
            service: String::new(),
            concentrator: String::new(),
            credentials: Arc::new(credentials),
            requires_authentication: false,
            ipv4: true,
            dns: true,
            ipv6: Some(InterfaceIdentifier::default()),
            delegation: false,
            link: LinkConfig::default(),
            initial_timeout: Duration::from_secs(1),
            longest: Duration::from_secs(30),
            attempts: 5,
            persist: false,
        }
    }
}

/// A command to a [`PppoeClient`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientCommand {
    /// Begins a session.
    Connect,
    /// Ends the session, or stops the attempts to get one.
    Disconnect,
}

/// An event of a [`PppoeClient`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEvent {
    /// A concentrator has confirmed a session.
    SessionStarted {
        /// The concentrator's address.
        concentrator: MacAddress,
        /// SESSION_ID.
        number: u16,
    },
    /// The concentrator has authenticated this side.
    Authenticated,
    /// A concentrator refuses, with a text.
    RefusalMessage {
        /// The text.
        message: Vec<u8>,
    },
    /// Forward packets of this network.
    Install {
        /// The concentrator's address.
        concentrator: MacAddress,
        /// SESSION_ID.
        number: u16,
        /// Octets of the longest packet.
        mtu: u16,
        /// The addresses of both ends.
        network: NegotiatedAddresses,
    },
    /// Stop forwarding packets of this network.
    Remove {
        /// The network.
        family: AddressFamily,
    },
    /// The maximum packet length has grown (RFC 4638 §5.2).
    Mtu {
        /// Octets of the longest packet.
        mtu: u16,
    },
    /// The router has advertised prefixes, from which hosts form addresses, and parameters of the link.
    Advertised {
        /// The advertisement.
        advertisement: RouterAdvertisement,
    },
    /// A prefix for a network behind this host was delegated or renewed.
    Delegated {
        /// The prefix and its lifetimes.
        delegation: DelegatedPrefix,
    },
    /// The delegated prefix is no longer valid. Removal of IPv6 withdraws it too.
    Withdrawn,
    /// The session has ended, or could not be established.
    Ended {
        /// The reason.
        reason: EndReason,
        /// The time of the next attempt.
        retry_at: Option<Instant>,
    },
}

usher_core::counters! {
    /// The events and drops of a [`PppoeClient`].
    pub struct ClientCounters {
        /// PADI sent.
        initiations,
        /// PADR sent.
        requests,
        /// Sessions established.
        sessions,
        /// Sessions ended.
        ended,
        /// Frames at another port or with another EtherType.
        not_ours,
        /// Frames for other stations, or from a station other than the concentrator.
        not_for_us,
        /// Frames that are not PPPoE, or have tags of a wrong length.
        malformed,
        /// Discovery packets that answer no request, or have another Host-Uniq.
        not_asked,
        /// PADO from another concentrator or without the service.
        not_wanted,
        /// PADO and PADS with an error.
        refused,
        /// PADT of the concentrator with another Host-Uniq.
        forged_padt,
        /// Session packets dropped: of a wrong length, unsolicited, too early, or without effect in the current state.
        bad_packet,
        /// Echo packets with a magic number other than the negotiated one.
        bad_magic,
        /// Network packets, which belong to the data plane.
        data,
    }
}

#[derive(Debug)]
enum PppoeClientState {
    Idle,
    /// A session begins at this time.
    Waiting(Instant),
    /// A PADI is sent.
    Initiated {
        due: Instant,
        wait: Duration,
    },
    /// A PADR is sent.
    Requested {
        offer: DiscoveryOffer,
        due: Instant,
        wait: Duration,
        sent: u32,
    },
    Session {
        concentrator: MacAddress,
        number: u16,
        link: alloc::boxed::Box<PppLink>,
    },
}

/// The parts of a PADO that the PADR needs.
#[derive(Clone, Debug)]
struct DiscoveryOffer {
    concentrator: MacAddress,
    cookie: Option<Vec<u8>>,
    relay_session_id: Option<Vec<u8>>,
}

/// A PPPoE client: a [`Machine`] over Ethernet frames.
///
/// - Getters: [`counters`](Self::counters), [`has_pppoe_session`](Self::has_pppoe_session).
/// - Input: [`handle_input`](Machine::handle_input) takes frames and timeouts.
/// - Commands: [`handle_command`](Machine::handle_command) takes a [`ClientCommand`].
/// - Polls: [`poll_output`](Machine::poll_output) and [`poll_timeout`](Machine::poll_timeout).
#[derive(Debug)]
pub struct PppoeClient {
    config: ClientConfig,
    rng: SecureRng,
    epoch: WallTime,
    state: PppoeClientState,
    host_uniq: [u8; HOST_UNIQ],
    relay_session_id: Option<Vec<u8>>,
    /// PADIs sent for this session.
    attempts: u32,
    /// Consecutive sessions without a network.
    failures: u32,
    closing: bool,
    counters: ClientCounters,
    outputs: OutputQueue<ClientEvent>,
}

impl PppoeClient {
    /// Creates an idle client. `rng` makes the Host-Uniq, challenges and magic numbers.
    #[must_use]
    pub fn new(config: ClientConfig, mut rng: SecureRng) -> Self {
        Self {
            config,
            host_uniq: rng.random_array(),
            rng,
            epoch: WallTime::UNIX_EPOCH,
            state: PppoeClientState::Idle,
            relay_session_id: None,
            attempts: 0,
            failures: 0,
            closing: false,
            counters: ClientCounters::default(),
            outputs: OutputQueue::default(),
        }
    }
    /// Returns the counters of work and dropped packets.
    #[must_use]
    pub const fn counters(&self) -> &ClientCounters {
        &self.counters
    }
    /// True if the client has a session.
    #[must_use]
    pub const fn has_pppoe_session(&self) -> bool {
        matches!(self.state, PppoeClientState::Session { .. })
    }

    fn max_payload(&self) -> Option<u16> {
        let most = self.config.mtu.saturating_sub(OVERHEAD);
        (most > MAX_PAYLOAD).then_some(most)
    }

    fn send_discovery(
        &mut self,
        destination: MacAddress,
        code: PppoeCode,
        session: u16,
        tags: &DiscoveryTags<'_>,
    ) {
        let mut payload = Vec::new();
        tags.emit(&mut payload);
        self.outputs.push_work(WorkRecord { label: work::DISCOVERY, units: 1 });
        self.send_frame(destination, PppoeStage::Discovery, code, session, &payload);
    }

    fn send_frame(
        &mut self,
        destination: MacAddress,
        stage: PppoeStage,
        code: PppoeCode,
        session: u16,
        payload: &[u8],
    ) {
        let mut bytes = self.outputs.take_buffer();
        PppoeFrame { destination, source: self.config.address, stage, code, session, payload }
            .emit(&mut bytes);
        self.outputs.push_transmit(Transmit::Frame { port: self.config.port }, bytes);
    }

    /// Sends a PADI (RFC 2516 §5.1).
    fn send_padi(&mut self, now: Instant, wait: Duration) {
        if self.config.attempts > 0 && self.attempts >= self.config.attempts {
            return self.finish_session(now, EndReason::NoConcentrator, false);
        }
        self.attempts = self.attempts.saturating_add(1);
        self.counters.initiations += 1;
        let (service, host_uniq) = (self.config.service.clone(), self.host_uniq);
        let tags = DiscoveryTags {
            // RFC 2516, 5.1: one Service-Name.
            services: [service.as_bytes()].into(),
            host_uniq: Some(&host_uniq),
            max_payload: self.max_payload(),
            ..DiscoveryTags::default()
        };
        self.send_discovery(MacAddress::BROADCAST, PppoeCode::PADI, 0, &tags);
        self.state = PppoeClientState::Initiated { due: now + wait, wait };
    }

    /// Sends a PADR (RFC 2516 §5.3).
    fn send_padr(&mut self, now: Instant, offer: DiscoveryOffer, wait: Duration, sent: u32) {
        self.counters.requests += 1;
        let (service, host_uniq) = (self.config.service.clone(), self.host_uniq);
        let tags = DiscoveryTags {
            // RFC 2516, 5.3, A: one Service-Name; AC-Cookie and Relay-Session-Id unchanged.
            services: [service.as_bytes()].into(),
            host_uniq: Some(&host_uniq),
            cookie: offer.cookie.as_deref(),
            relay_session_id: offer.relay_session_id.as_deref(),
            max_payload: self.max_payload(),
            ..DiscoveryTags::default()
        };
        self.send_discovery(offer.concentrator, PppoeCode::PADR, 0, &tags);
        self.state = PppoeClientState::Requested { offer, due: now + wait, wait, sent: sent + 1 };
    }

    fn handle_frame(&mut self, now: Instant, port: LinkLayerPortId, octets: &[u8]) {
        if port != self.config.port {
            self.counters.not_ours += 1;
            return;
        }
        let frame = match PppoeFrame::parse(octets) {
            Ok(frame) => frame,
            Err(FrameError::EtherType(_)) => {
                self.counters.not_ours += 1;
                return;
            }
            Err(_) => {
                self.counters.malformed += 1;
                return;
            }
        };
        if frame.destination != self.config.address || !frame.source.is_unicast() {
            self.counters.not_for_us += 1;
            return;
        }
        match frame.stage {
            PppoeStage::Discovery => self.handle_discovery(now, frame),
            PppoeStage::Session => self.handle_session_frame(now, frame),
        }
    }

    fn handle_discovery(&mut self, now: Instant, frame: PppoeFrame<'_>) {
        self.outputs.push_work(WorkRecord { label: work::DISCOVERY, units: 1 });
        let Ok(tags) = DiscoveryTags::parse(frame.payload) else {
            self.counters.malformed += 1;
            return;
        };
        let ours = tags.host_uniq == Some(&self.host_uniq[..]);
        match (&self.state, frame.code) {
            (PppoeClientState::Initiated { .. }, PppoeCode::PADO) if ours && frame.session == 0 => {
                self.handle_pado(now, &frame, &tags);
            }
            (PppoeClientState::Requested { offer, .. }, PppoeCode::PADS)
                if ours && frame.source == offer.concentrator =>
            {
                let offer = offer.clone();
                self.handle_pads(now, &frame, &tags, &offer);
            }
            (&PppoeClientState::Session { concentrator, number, .. }, PppoeCode::PADT)
                if number == frame.session =>
            {
                if concentrator != frame.source {
                    self.counters.not_for_us += 1;
                } else if tags.host_uniq.is_some() && !ours {
                    self.counters.forged_padt += 1;
                } else {
                    self.abort_session(now, EndReason::Padt);
                }
            }
            _ => self.counters.not_asked += 1,
        }
    }

    fn handle_pado(&mut self, now: Instant, frame: &PppoeFrame<'_>, tags: &DiscoveryTags<'_>) {
        let (service, concentrator) = (self.config.service.as_bytes(), self.config.concentrator.as_bytes());
        let right = concentrator.is_empty() || tags.ac_name == Some(concentrator);
        let opaque = |value: Option<&[u8]>| value.is_none_or(|value| value.len() <= OPAQUE / 2);
        if !tags.errors.is_empty() {
            self.counters.refused += 1;
            return;
        }
        let fits = opaque(tags.cookie) && opaque(tags.relay_session_id);
        if !right || tags.ac_name.is_none() || !tags.services.contains(&service) || !fits {
            self.counters.not_wanted += 1;
            return;
        }
        let offer = DiscoveryOffer {
            concentrator: frame.source,
            cookie: tags.cookie.map(Vec::from),
            relay_session_id: tags.relay_session_id.map(Vec::from),
        };
        self.send_padr(now, offer, self.config.initial_timeout, 0);
    }

    fn handle_pads(
        &mut self,
        now: Instant,
        frame: &PppoeFrame<'_>,
        tags: &DiscoveryTags<'_>,
        offer: &DiscoveryOffer,
    ) {
        // RFC 2516, 4: SESSION_ID 0xffff is reserved.
        if frame.session == 0 || frame.session == u16::MAX || !tags.errors.is_empty() {
            self.counters.refused += 1;
            let message = match tags.errors.first() {
                Some((tag, b"")) => tag.to_string().into_bytes(),
                Some((tag, text)) => [tag.to_string().as_bytes(), b": ", *text].concat(),
                None => b"the number of its session is none".to_vec(),
            };
            self.outputs.push_event(ClientEvent::RefusalMessage { message });
            let service = matches!(tags.errors.first(), Some((PppoeErrorTag::ServiceName, _)));
            let reason = if service { EndReason::NoConcentrator } else { EndReason::Refused };
            return self.finish_session(now, reason, false);
        }
        self.counters.sessions += 1;
        // RFC 4638, 4: packets longer than 1492 octets only if both sides announce them.
        let limit = match (self.max_payload(), tags.max_payload) {
            (Some(ours), Some(theirs)) if theirs > MAX_PAYLOAD => ours.min(theirs),
            _ => self.config.mtu.saturating_sub(OVERHEAD).min(MAX_PAYLOAD),
        };
        let role = PppLinkRole::Peer {
            credentials: self.config.credentials.clone(),
            requires_authentication: self.config.requires_authentication,
            ipv4: self.config.ipv4,
            dns: self.config.dns,
            ipv6: self.config.ipv6,
            delegation: self.config.delegation.then(|| link_layer_duid(self.config.address.0).into()),
        };
        let rng = SecureRng::from_seed(self.rng.random_array());
        let link = PppLink::new(role, self.config.link, limit, rng, now, now.to_wall_time(self.epoch));
        let (concentrator, number) = (frame.source, frame.session);
        self.relay_session_id = offer.relay_session_id.clone();
        self.state = PppoeClientState::Session { concentrator, number, link: link.into() };
        self.outputs.push_event(ClientEvent::SessionStarted { concentrator, number });
        self.drain_link(now);
    }

    fn handle_session_frame(&mut self, now: Instant, frame: PppoeFrame<'_>) {
        let wall = now.to_wall_time(self.epoch);
        let PppoeClientState::Session { concentrator, number, link } = &mut self.state else {
            self.counters.not_asked += 1;
            return;
        };
        if frame.source != *concentrator || frame.session != *number || frame.code != PppoeCode::SESSION {
            self.counters.not_for_us += 1;
            return;
        }
        match link.receive_packet(now, wall, frame.payload) {
            Ok(()) => {}
            Err(DropReason::Magic) => self.counters.bad_magic += 1,
            Err(DropReason::Data) => self.counters.data += 1,
            Err(
                DropReason::Malformed
                | DropReason::Unsolicited
                | DropReason::TooEarly
                | DropReason::Ignored
                | DropReason::Pending,
            ) => self.counters.bad_packet += 1,
        }
        self.drain_link(now);
    }

    /// Applies the outputs of the link.
    fn drain_link(&mut self, now: Instant) {
        let PppoeClientState::Session { concentrator, number, link } = &mut self.state else { return };
        let (concentrator, number, mtu) = (*concentrator, *number, link.mtu());
        let (said, work) = (link.take_link_outputs(), link.take_work());
        for label in work {
            self.outputs.push_work(WorkRecord { label, units: 1 });
        }
        for one in said {
            match one {
                PppLinkOutput::Send(protocol, packet) => {
                    let payload = [&protocol.0.to_be_bytes(), &packet[..]].concat();
                    self.send_frame(concentrator, PppoeStage::Session, PppoeCode::SESSION, number, &payload);
                }
                // A client authenticates no peer.
                PppLinkOutput::VerifyProof { .. } => {}
                PppLinkOutput::Authenticated => self.outputs.push_event(ClientEvent::Authenticated),
                PppLinkOutput::Refused(message) => {
                    self.outputs.push_event(ClientEvent::RefusalMessage { message })
                }
                PppLinkOutput::Up(network) => {
                    (self.failures, self.attempts) = (0, 0);
                    self.outputs.push_event(ClientEvent::Install { concentrator, number, mtu, network });
                }
                PppLinkOutput::Down(family) => self.outputs.push_event(ClientEvent::Remove { family }),
                PppLinkOutput::Advertised(advertisement) => {
                    self.outputs.push_event(ClientEvent::Advertised { advertisement });
                }
                PppLinkOutput::Delegated(Some(delegation)) => {
                    self.outputs.push_event(ClientEvent::Delegated { delegation });
                }
                PppLinkOutput::Delegated(None) => self.outputs.push_event(ClientEvent::Withdrawn),
                PppLinkOutput::Mtu(mtu) => self.outputs.push_event(ClientEvent::Mtu { mtu }),
                PppLinkOutput::Ended(reason) => {
                    if reason != EndReason::Padt {
                        let (host_uniq, relay) = (self.host_uniq, self.relay_session_id.clone());
                        let tags = DiscoveryTags {
                            host_uniq: Some(&host_uniq),
                            relay_session_id: relay.as_deref(),
                            ..DiscoveryTags::default()
                        };
                        self.send_discovery(concentrator, PppoeCode::PADT, number, &tags);
                    }
                    return self.finish_session(now, reason, true);
                }
            }
        }
    }

    /// Ends the session without further LCP packets.
    fn abort_session(&mut self, now: Instant, reason: EndReason) {
        if let PppoeClientState::Session { link, .. } = &mut self.state {
            link.end_link_without_lcp(reason);
            self.drain_link(now);
        }
    }

    /// Finishes a session and schedules the next. The wait grows with each failure and is random, so that the hosts of
    /// a building do not reconnect at the same time.
    fn finish_session(&mut self, now: Instant, reason: EndReason, had: bool) {
        self.state = PppoeClientState::Idle;
        self.counters.ended += u64::from(had);
        self.host_uniq = self.rng.random_array();
        let mut again = None;
        if self.config.persist && !self.closing {
            let most = (self.config.initial_timeout * (1 << self.failures.min(16))).min(self.config.longest);
            self.failures += 1;
            let at = now + most.mul_f64(0.5 + self.rng.sample_unit() / 2.0);
            self.state = PppoeClientState::Waiting(at);
            again = Some(at);
        }
        self.closing = false;
        self.outputs.push_event(ClientEvent::Ended { reason, retry_at: again });
    }

    fn handle_timeout(&mut self, now: Instant) {
        let double = |wait: Duration, longest: Duration| (wait * 2).min(longest);
        match &mut self.state {
            PppoeClientState::Idle => {}
            PppoeClientState::Waiting(at) if *at <= now => {
                self.attempts = 0;
                self.send_padi(now, self.config.initial_timeout);
            }
            PppoeClientState::Initiated { due, wait, .. } if *due <= now => {
                let wait = double(*wait, self.config.longest);
                self.send_padi(now, wait);
            }
            PppoeClientState::Requested { offer, due, wait, sent } if *due <= now => {
                let (offer, wait, sent) = (offer.clone(), double(*wait, self.config.longest), *sent);
                if sent < REQUESTS {
                    self.send_padr(now, offer, wait, sent);
                } else {
                    self.send_padi(now, self.config.initial_timeout);
                }
            }
            PppoeClientState::Session { link, .. } => {
                link.handle_timeout(now, now.to_wall_time(self.epoch));
                self.drain_link(now);
            }
            PppoeClientState::Waiting(_)
            | PppoeClientState::Initiated { .. }
            | PppoeClientState::Requested { .. } => {}
        }
    }
}

impl Machine for PppoeClient {
    type Command = ClientCommand;
    type Event = ClientEvent;
    type Job = NoJob;

    fn set_epoch(&mut self, _: Instant, epoch: WallTime) {
        self.epoch = epoch;
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Frame { port, data } => self.handle_frame(now, port, data),
            MachineInput::Timeout => self.handle_timeout(now),
            other => {
                if let Some(refusal) = other.refusal() {
                    self.outputs.push_operation(refusal);
                }
            }
        }
    }

    fn handle_command(&mut self, now: Instant, command: ClientCommand) -> Result<(), CommandError> {
        match (command, &mut self.state) {
            (ClientCommand::Connect, PppoeClientState::Idle | PppoeClientState::Waiting(_)) => {
                (self.attempts, self.failures, self.closing) = (0, 0, false);
                self.send_padi(now, self.config.initial_timeout);
            }
            (ClientCommand::Connect, _) => {
                return Err(CommandError::WrongState("the client has a session or is establishing one"));
            }
            (ClientCommand::Disconnect, PppoeClientState::Idle) => {
                return Err(CommandError::WrongState(
                    "the client has no session and is not establishing one",
                ));
            }
            (ClientCommand::Disconnect, PppoeClientState::Session { link, .. }) => {
                self.closing = true;
                link.close(now, now.to_wall_time(self.epoch), EndReason::Closed);
                self.drain_link(now);
            }
            (ClientCommand::Disconnect, _) => {
                self.closing = true;
                self.finish_session(now, EndReason::Closed, false);
            }
        }
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        match &self.state {
            PppoeClientState::Idle => None,
            PppoeClientState::Waiting(at) => Some(*at),
            PppoeClientState::Initiated { due, .. } | PppoeClientState::Requested { due, .. } => Some(*due),
            PppoeClientState::Session { link, .. } => link.poll_timeout(),
        }
    }
}
