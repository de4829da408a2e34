//! The host's side: discovery, one session, and another when that has ended (RFC 2516).

use crate::auth::Credentials;
use crate::ipv6::dhcp::duid;
use crate::ipv6::host::Delegation;
use crate::ipv6::neighbor::RouterAdvertisement;
use crate::ipv6cp::InterfaceIdentifier;
use crate::link::{Dropped, EndReason, Family, Link, LinkConfig, Network, Role, Said};
use crate::pppoe::{Code, Discovery, ErrorTag, Frame, FrameError, MAX_PAYLOAD, MacAddress, OVERHEAD, Stage};
use crate::work;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{
    CommandError, Duration, Input, Instant, Machine, NoJob, OutputOf, Outputs, PortId, SecureRng, Transmit,
    WallTime, Work,
};

/// Octets of our Host-Uniq.
const HOST_UNIQ: usize = 8;
/// PADR that are sent before another PADI (RFC 2516 §8).
const REQUESTS: u32 = 4;
/// Octets of a cookie, or Relay-Session-Id, that are sent back: more leave no room for the rest.
const OPAQUE: usize = 1024;

/// What a [`Client`] asks for.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// At which port.
    pub port: PortId,
    /// This side's address there.
    pub address: MacAddress,
    /// Octets of the longest payload of a frame there (the interface's MTU).
    pub mtu: u16,
    /// The service; empty: any.
    pub service: String,
    /// The concentrator by its AC-Name; empty: any.
    pub concentrator: String,
    /// Who the user is.
    pub credentials: Arc<Credentials>,
    /// Whether the concentrator has to ask who the user is. What proves who the concentrator is comes with that alone: without it
    /// anybody on the Ethernet could be one.
    pub asked: bool,
    /// Whether IPv4 is wanted.
    pub ipv4: bool,
    /// Whether name servers are asked for (RFC 1877).
    pub dns: bool,
    /// Whether IPv6 is wanted, and under which interface identifier; zero: chance decides.
    pub ipv6: Option<InterfaceIdentifier>,
    /// Whether a prefix is asked for, for a network behind this host (RFC 8415).
    pub delegation: bool,
    /// How the link is kept.
    pub link: LinkConfig,
    /// The first wait for a PADO or PADS; each further one is twice as long.
    pub patience: Duration,
    /// The longest wait, and that before another session after one that had been refused.
    pub longest: Duration,
    /// PADI that are sent for one session; zero: without end.
    pub attempts: u32,
    /// Whether another session is begun when one has ended, other than by [`ClientCommand::Disconnect`].
    pub persist: bool,
}

impl ClientConfig {
    /// What a client at this port asks for as this user: any service, IPv4 with name servers and IPv6, waits from 1 s to 30 s,
    /// five PADI, no other session by itself.
    #[must_use]
    pub fn new(port: PortId, address: MacAddress, credentials: Credentials) -> Self {
        Self {
            port,
            address,
            mtu: 1500,
            service: String::new(),
            concentrator: String::new(),
            credentials: Arc::new(credentials),
            asked: false,
            ipv4: true,
            dns: true,
            ipv6: Some(InterfaceIdentifier::default()),
            delegation: false,
            link: LinkConfig::default(),
            patience: Duration::from_secs(1),
            longest: Duration::from_secs(30),
            attempts: 5,
            persist: false,
        }
    }
}

/// What a [`Client`] is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientCommand {
    /// Begin a session.
    Connect,
    /// End it, or stop trying.
    Disconnect,
}

/// What a [`Client`] says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEvent {
    /// A concentrator has confirmed a session.
    Began {
        /// Its address.
        concentrator: MacAddress,
        /// SESSION_ID.
        number: u16,
    },
    /// The concentrator believes that this side is who it says.
    Authenticated,
    /// A concentrator refuses, in its own words.
    Told {
        /// What it says.
        message: Vec<u8>,
    },
    /// Packets of this network are to be let through.
    Install {
        /// The concentrator's address.
        concentrator: MacAddress,
        /// SESSION_ID.
        number: u16,
        /// Octets of the longest packet.
        mtu: u16,
        /// The addresses of both ends.
        network: Network,
    },
    /// And not any more.
    Remove {
        /// Which network.
        family: Family,
    },
    /// Packets may be so long from now on (RFC 4638 §5.2).
    Mtu {
        /// Octets.
        mtu: u16,
    },
    /// The router has advertised prefixes, of which hosts make addresses, and other parameters of the link.
    Advertised {
        /// What it says.
        advertisement: RouterAdvertisement,
    },
    /// A prefix was delegated for a network behind this host, or its time was renewed.
    Delegated {
        /// The prefix.
        delegation: Delegation,
    },
    /// The prefix is not this host's any more. It goes with IPv6, too.
    Withdrawn,
    /// The session has ended, or none came to be.
    Ended {
        /// Why.
        reason: EndReason,
        /// Another is tried for at this time.
        again: Option<Instant>,
    },
}

usher_core::counters! {
    /// What a [`Client`] did and dropped.
    pub struct ClientCounters {
        /// PADI sent.
        initiations,
        /// PADR sent.
        requests,
        /// Sessions that came to be.
        sessions,
        /// Sessions that ended.
        ended,
        /// Frames of another port or EtherType.
        not_ours,
        /// Frames for other stations, or from others than the concentrator.
        not_for_us,
        /// Frames that are no PPPoE, or with tags of a wrong length.
        malformed,
        /// Discovery packets that answer nothing that was asked, or not with our Host-Uniq.
        not_asked,
        /// PADO of another concentrator or without the service.
        not_wanted,
        /// PADO and PADS that refuse.
        refused,
        /// PADT of the concentrator with another Host-Uniq than ours.
        forged_padt,
        /// Session packets that are not taken: of a wrong length, unasked for, before their time, or of which nothing follows.
        bad_packet,
        /// Echo packets with another magic number than agreed to.
        bad_magic,
        /// Packets of networks, which the data plane has to carry.
        data,
    }
}

#[derive(Debug)]
enum State {
    Idle,
    /// A session is begun at that time.
    Waiting(Instant),
    /// PADI is sent.
    Initiated {
        due: Instant,
        wait: Duration,
    },
    /// PADR is sent.
    Requested {
        offer: Offer,
        due: Instant,
        wait: Duration,
        sent: u32,
    },
    Session {
        concentrator: MacAddress,
        number: u16,
        link: alloc::boxed::Box<Link>,
    },
}

/// What of a PADO goes into the PADR.
#[derive(Clone, Debug)]
struct Offer {
    concentrator: MacAddress,
    cookie: Option<Vec<u8>>,
    relay_session_id: Option<Vec<u8>>,
}

/// A PPPoE client: a [`Machine`] over Ethernet frames.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    rng: SecureRng,
    epoch: WallTime,
    state: State,
    host_uniq: [u8; HOST_UNIQ],
    relay_session_id: Option<Vec<u8>>,
    /// PADI sent for this session.
    attempts: u32,
    /// Sessions in a row in which no network came up.
    failures: u32,
    closing: bool,
    counters: ClientCounters,
    outputs: Outputs<ClientEvent>,
}

impl Client {
    /// One that asks for this once it is told to; `rng` is for Host-Uniq, challenges and magic numbers.
    #[must_use]
    pub fn new(config: ClientConfig, mut rng: SecureRng) -> Self {
        Self {
            config,
            host_uniq: rng.array(),
            rng,
            epoch: WallTime::UNIX_EPOCH,
            state: State::Idle,
            relay_session_id: None,
            attempts: 0,
            failures: 0,
            closing: false,
            counters: ClientCounters::default(),
            outputs: Outputs::default(),
        }
    }
    /// What it has done and dropped.
    #[must_use]
    pub const fn counters(&self) -> &ClientCounters {
        &self.counters
    }
    /// Whether it has a session.
    #[must_use]
    pub const fn has_session(&self) -> bool {
        matches!(self.state, State::Session { .. })
    }

    fn max_payload(&self) -> Option<u16> {
        let most = self.config.mtu.saturating_sub(OVERHEAD);
        (most > MAX_PAYLOAD).then_some(most)
    }

    fn discover(&mut self, destination: MacAddress, code: Code, session: u16, tags: &Discovery<'_>) {
        let mut payload = Vec::new();
        tags.emit(&mut payload);
        self.outputs.work(Work { label: work::DISCOVERY, units: 1 });
        self.emit(destination, Stage::Discovery, code, session, &payload);
    }

    fn emit(&mut self, destination: MacAddress, stage: Stage, code: Code, session: u16, payload: &[u8]) {
        let mut bytes = self.outputs.buffer();
        Frame { destination, source: self.config.address, stage, code, session, payload }.emit(&mut bytes);
        self.outputs.transmit(Transmit::Frame { port: self.config.port }, bytes);
    }

    /// PADI (RFC 2516 §5.1).
    fn initiate(&mut self, now: Instant, wait: Duration) {
        if self.config.attempts > 0 && self.attempts >= self.config.attempts {
            return self.over(now, EndReason::NoConcentrator, false);
        }
        self.attempts = self.attempts.saturating_add(1);
        self.counters.initiations += 1;
        let (service, host_uniq) = (self.config.service.clone(), self.host_uniq);
        let tags = Discovery {
            services: [service.as_bytes()].into(),
            host_uniq: Some(&host_uniq),
            max_payload: self.max_payload(),
            ..Discovery::default()
        };
        self.discover(MacAddress::BROADCAST, Code::PADI, 0, &tags);
        self.state = State::Initiated { due: now + wait, wait };
    }

    /// PADR (RFC 2516 §5.3).
    fn request(&mut self, now: Instant, offer: Offer, wait: Duration, sent: u32) {
        self.counters.requests += 1;
        let (service, host_uniq) = (self.config.service.clone(), self.host_uniq);
        let tags = Discovery {
            services: [service.as_bytes()].into(),
            host_uniq: Some(&host_uniq),
            cookie: offer.cookie.as_deref(),
            relay_session_id: offer.relay_session_id.as_deref(),
            max_payload: self.max_payload(),
            ..Discovery::default()
        };
        self.discover(offer.concentrator, Code::PADR, 0, &tags);
        self.state = State::Requested { offer, due: now + wait, wait, sent: sent + 1 };
    }

    fn frame(&mut self, now: Instant, port: PortId, octets: &[u8]) {
        if port != self.config.port {
            self.counters.not_ours += 1;
            return;
        }
        let frame = match Frame::parse(octets) {
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
            Stage::Discovery => self.discovery(now, frame),
            Stage::Session => self.session(now, frame),
        }
    }

    fn discovery(&mut self, now: Instant, frame: Frame<'_>) {
        self.outputs.work(Work { label: work::DISCOVERY, units: 1 });
        let Ok(tags) = Discovery::parse(frame.payload) else {
            self.counters.malformed += 1;
            return;
        };
        let ours = tags.host_uniq == Some(&self.host_uniq[..]);
        match (&self.state, frame.code) {
            (State::Initiated { .. }, Code::PADO) if ours && frame.session == 0 => {
                self.offered(now, &frame, &tags);
            }
            (State::Requested { offer, .. }, Code::PADS) if ours && frame.source == offer.concentrator => {
                let offer = offer.clone();
                self.confirmed(now, &frame, &tags, &offer);
            }
            (&State::Session { concentrator, number, .. }, Code::PADT) if number == frame.session => {
                if concentrator != frame.source {
                    self.counters.not_for_us += 1;
                } else if tags.host_uniq.is_some() && !ours {
                    self.counters.forged_padt += 1;
                } else {
                    self.end(now, EndReason::Padt);
                }
            }
            _ => self.counters.not_asked += 1,
        }
    }

    fn offered(&mut self, now: Instant, frame: &Frame<'_>, tags: &Discovery<'_>) {
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
        let offer = Offer {
            concentrator: frame.source,
            cookie: tags.cookie.map(Vec::from),
            relay_session_id: tags.relay_session_id.map(Vec::from),
        };
        self.request(now, offer, self.config.patience, 0);
    }

    fn confirmed(&mut self, now: Instant, frame: &Frame<'_>, tags: &Discovery<'_>, offer: &Offer) {
        if frame.session == 0 || frame.session == u16::MAX || !tags.errors.is_empty() {
            self.counters.refused += 1;
            let message = match tags.errors.first() {
                Some((tag, b"")) => tag.to_string().into_bytes(),
                Some((tag, text)) => [tag.to_string().as_bytes(), b": ", *text].concat(),
                None => b"the number of its session is none".to_vec(),
            };
            self.outputs.event(ClientEvent::Told { message });
            let service = matches!(tags.errors.first(), Some((ErrorTag::ServiceName, _)));
            let reason = if service { EndReason::NoConcentrator } else { EndReason::Refused };
            return self.over(now, reason, false);
        }
        self.counters.sessions += 1;
        // Longer packets than ordinary only where both sides have said so (RFC 4638 §4).
        let limit = match (self.max_payload(), tags.max_payload) {
            (Some(ours), Some(theirs)) if theirs > MAX_PAYLOAD => ours.min(theirs),
            _ => self.config.mtu.saturating_sub(OVERHEAD).min(MAX_PAYLOAD),
        };
        let role = Role::Peer {
            credentials: self.config.credentials.clone(),
            asked: self.config.asked,
            ipv4: self.config.ipv4,
            dns: self.config.dns,
            ipv6: self.config.ipv6,
            delegation: self.config.delegation.then(|| duid(self.config.address.0).into()),
        };
        let rng = SecureRng::from_seed(self.rng.array());
        let link = Link::new(role, self.config.link, limit, rng, now, now.wall(self.epoch));
        let (concentrator, number) = (frame.source, frame.session);
        self.relay_session_id = offer.relay_session_id.clone();
        self.state = State::Session { concentrator, number, link: link.into() };
        self.outputs.event(ClientEvent::Began { concentrator, number });
        self.settle(now);
    }

    fn session(&mut self, now: Instant, frame: Frame<'_>) {
        let wall = now.wall(self.epoch);
        let State::Session { concentrator, number, link } = &mut self.state else {
            self.counters.not_asked += 1;
            return;
        };
        if frame.source != *concentrator || frame.session != *number || frame.code != Code::SESSION {
            self.counters.not_for_us += 1;
            return;
        }
        match link.receive(now, wall, frame.payload) {
            Ok(()) => {}
            Err(Dropped::Magic) => self.counters.bad_magic += 1,
            Err(Dropped::Data) => self.counters.data += 1,
            Err(
                Dropped::Malformed | Dropped::NotAsked | Dropped::Early | Dropped::Ignored | Dropped::Pending,
            ) => self.counters.bad_packet += 1,
        }
        self.settle(now);
    }

    /// Carries out what the link has decided.
    fn settle(&mut self, now: Instant) {
        let State::Session { concentrator, number, link } = &mut self.state else { return };
        let (concentrator, number, mtu) = (*concentrator, *number, link.mtu());
        let (said, work) = (link.take(), link.take_work());
        for label in work {
            self.outputs.work(Work { label, units: 1 });
        }
        for one in said {
            match one {
                Said::Send(protocol, packet) => {
                    let payload = [&protocol.0.to_be_bytes(), &packet[..]].concat();
                    self.emit(concentrator, Stage::Session, Code::SESSION, number, &payload);
                }
                // Nobody has to show to a client who it is.
                Said::Ask { .. } => {}
                Said::Authenticated => self.outputs.event(ClientEvent::Authenticated),
                Said::Refused(message) => self.outputs.event(ClientEvent::Told { message }),
                Said::Up(network) => {
                    (self.failures, self.attempts) = (0, 0);
                    self.outputs.event(ClientEvent::Install { concentrator, number, mtu, network });
                }
                Said::Down(family) => self.outputs.event(ClientEvent::Remove { family }),
                Said::Advertised(advertisement) => {
                    self.outputs.event(ClientEvent::Advertised { advertisement });
                }
                Said::Delegated(Some(delegation)) => {
                    self.outputs.event(ClientEvent::Delegated { delegation });
                }
                Said::Delegated(None) => self.outputs.event(ClientEvent::Withdrawn),
                Said::Mtu(mtu) => self.outputs.event(ClientEvent::Mtu { mtu }),
                Said::Ended(reason) => {
                    if reason != EndReason::Padt {
                        let (host_uniq, relay) = (self.host_uniq, self.relay_session_id.clone());
                        let tags = Discovery {
                            host_uniq: Some(&host_uniq),
                            relay_session_id: relay.as_deref(),
                            ..Discovery::default()
                        };
                        self.discover(concentrator, Code::PADT, number, &tags);
                    }
                    return self.over(now, reason, true);
                }
            }
        }
    }

    /// Ends the session without another word of LCP.
    fn end(&mut self, now: Instant, reason: EndReason) {
        if let State::Session { link, .. } = &mut self.state {
            link.end(reason);
            self.settle(now);
        }
    }

    /// There is no session any more. Another is tried for after a while that grows with each that came to nothing, and is of
    /// chance, so that the hosts of a whole building do not come back at one time.
    fn over(&mut self, now: Instant, reason: EndReason, had: bool) {
        self.state = State::Idle;
        self.counters.ended += u64::from(had);
        self.host_uniq = self.rng.array();
        let mut again = None;
        if self.config.persist && !self.closing {
            let most = (self.config.patience * (1 << self.failures.min(16))).min(self.config.longest);
            self.failures += 1;
            let at = now + most.mul_f64(0.5 + self.rng.unit() / 2.0);
            self.state = State::Waiting(at);
            again = Some(at);
        }
        self.closing = false;
        self.outputs.event(ClientEvent::Ended { reason, again });
    }

    fn timeout(&mut self, now: Instant) {
        let double = |wait: Duration, longest: Duration| (wait * 2).min(longest);
        match &mut self.state {
            State::Idle => {}
            State::Waiting(at) if *at <= now => {
                self.attempts = 0;
                self.initiate(now, self.config.patience);
            }
            State::Initiated { due, wait, .. } if *due <= now => {
                let wait = double(*wait, self.config.longest);
                self.initiate(now, wait);
            }
            State::Requested { offer, due, wait, sent } if *due <= now => {
                let (offer, wait, sent) = (offer.clone(), double(*wait, self.config.longest), *sent);
                if sent < REQUESTS {
                    self.request(now, offer, wait, sent);
                } else {
                    self.initiate(now, self.config.patience);
                }
            }
            State::Session { link, .. } => {
                link.timeout(now, now.wall(self.epoch));
                self.settle(now);
            }
            State::Waiting(_) | State::Initiated { .. } | State::Requested { .. } => {}
        }
    }
}

impl Machine for Client {
    type Command = ClientCommand;
    type Event = ClientEvent;
    type Job = NoJob;

    fn set_epoch(&mut self, _: Instant, epoch: WallTime) {
        self.epoch = epoch;
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Frame { port, data } => self.frame(now, port, data),
            Input::Timeout => self.timeout(now),
            other => {
                if let Some(refusal) = other.refusal() {
                    self.outputs.operate(refusal);
                }
            }
        }
    }

    fn command(&mut self, now: Instant, command: ClientCommand) -> Result<(), CommandError> {
        match (command, &mut self.state) {
            (ClientCommand::Connect, State::Idle | State::Waiting(_)) => {
                (self.attempts, self.failures, self.closing) = (0, 0, false);
                self.initiate(now, self.config.patience);
            }
            (ClientCommand::Connect, _) => {
                return Err(CommandError::WrongState("it has a session, or is trying for one"));
            }
            (ClientCommand::Disconnect, State::Idle) => {
                return Err(CommandError::WrongState("it has no session, and is not trying for one"));
            }
            (ClientCommand::Disconnect, State::Session { link, .. }) => {
                self.closing = true;
                link.close(now, now.wall(self.epoch), EndReason::Closed);
                self.settle(now);
            }
            (ClientCommand::Disconnect, _) => {
                self.closing = true;
                self.over(now, EndReason::Closed, false);
            }
        }
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        match &self.state {
            State::Idle => None,
            State::Waiting(at) => Some(*at),
            State::Initiated { due, .. } | State::Requested { due, .. } => Some(*due),
            State::Session { link, .. } => link.poll_timeout(),
        }
    }
}
