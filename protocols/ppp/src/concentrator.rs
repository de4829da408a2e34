//! The access concentrator: discovery, and the sessions of all hosts (RFC 2516).

mod config;
mod discovery;
mod event;
mod outside;

pub use config::{ConcentratorConfig, ConfigError, Excess, Port};
pub use event::{Answer, ConcentratorCommand, ConcentratorEvent, SessionId, Subscriber};

use crate::auth::authenticator::Verdict;
use crate::link::{Dropped, EndReason, Link, Said};
use crate::packet::Protocol;
use crate::pppoe::cookie::Cookies;
use crate::pppoe::limit::Buckets;
use crate::pppoe::{Code, Discovery, Frame, MacAddress, Stage};
use crate::work;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use outside::{Line, Outside};
use usher_core::timer::TimerQueue;
use usher_core::{
    CommandError, Input, Instant, Machine, NoJob, OutputOf, Outputs, PortId, SecureRng, Transmit, WallTime,
    Work,
};

/// Stations whose rates are followed.
const STATIONS: usize = 16_384;
/// Ports and circuits whose rates are.
const LINES: usize = 16_384;

usher_core::counters! {
    /// What a concentrator did and dropped.
    pub struct ConcentratorCounters {
        /// PADI that were answered with PADO.
        offers,
        /// Sessions begun: PADS with a number.
        sessions,
        /// PADS sent again: the host had not heard the first.
        confirmed_again,
        /// Sessions ended.
        ended,
        /// Sessions ended since the same host began another and may not have both.
        replaced,
        /// Frames of a port that is not this concentrator's, or of another EtherType.
        not_ours,
        /// Frames for other stations.
        not_for_us,
        /// Frames that are no PPPoE, from no single station, or with tags of a wrong length.
        malformed,
        /// Discovery packets of a code, number or address that hosts may not send.
        unexpected,
        /// PADI and PADR without exactly one Service-Name.
        service_count,
        /// PADI for another concentrator or service.
        not_offered,
        /// PADR refused: no such service.
        no_service,
        /// PADR with no AC-Cookie of ours, or an old one.
        bad_cookie,
        /// PADI and PADR whose answer would be longer than an Ethernet frame.
        oversized,
        /// PADI beyond one station's rate.
        limited_station,
        /// PADI beyond the rate of all stations of their line or port.
        limited_all,
        /// PADR beyond one station's rate.
        limited_requests,
        /// PADR refused: as many sessions as may be, or as many that are not let in yet.
        full,
        /// Sessions ended whose hosts were not let in yet, since others wanted their places.
        crowded_out,
        /// Sessions ended whose hosts left again and again what was agreed to.
        renegotiating,
        /// PADR refused: the station has as many sessions as it may.
        full_station,
        /// Session packets and PADT of a number that nobody has.
        unknown_session,
        /// Session packets and PADT of a number that another station has.
        spoofed,
        /// PADT with another Host-Uniq than the session's.
        forged_padt,
        /// PADT without a Host-Uniq of a station that had sent others that named no session of it.
        guessed_padt,
        /// Control packets whose lengths are wrong.
        bad_packet,
        /// Control packets that answer nothing that was asked.
        not_asked,
        /// Packets of protocols whose time has not come: a network's, before its host was let in.
        early,
        /// Echo packets with another magic number than agreed to.
        bad_magic,
        /// Packets of networks, which the data plane has to carry.
        data,
        /// Control packets of which nothing follows in the state that their protocol is in, such as a Configure-Request while a session
        /// ends.
        ignored,
        /// Passwords and responses that came again while the first is judged: its verdict answers them.
        pending,
    }
}

impl ConcentratorCounters {
    fn dropped(&mut self, why: Dropped) {
        *match why {
            Dropped::Malformed => &mut self.bad_packet,
            Dropped::NotAsked => &mut self.not_asked,
            Dropped::Early => &mut self.early,
            Dropped::Magic => &mut self.bad_magic,
            Dropped::Data => &mut self.data,
            Dropped::Ignored => &mut self.ignored,
            Dropped::Pending => &mut self.pending,
        } += 1;
    }
}

/// Where a host is.
type Station = (PortId, MacAddress);

#[derive(Debug)]
struct Session {
    name: SessionId,
    at: Station,
    line: Line,
    link: Link,
    /// What its PADR had, and its PADS, PADT have too.
    host_uniq: Option<Vec<u8>>,
    relay_session_id: Option<Vec<u8>>,
    service: Vec<u8>,
    max_payload: Option<u16>,
    subscriber: Subscriber,
    /// A packet of it has come: the host knows its number.
    heard: bool,
    timer: Option<Instant>,
}

/// An access concentrator: a [`Machine`] over Ethernet frames.
#[derive(Debug)]
pub struct Concentrator {
    config: ConcentratorConfig,
    rng: SecureRng,
    epoch: WallTime,
    cookies: Option<Cookies>,
    sessions: BTreeMap<u16, Session>,
    /// SESSION_IDs by names.
    names: BTreeMap<SessionId, u16>,
    /// SESSION_IDs by stations, in the order in which their sessions began.
    stations: BTreeMap<Station, Vec<SessionId>>,
    /// Sessions whose hosts are not let in yet.
    outside: Outside,
    timers: TimerQueue<u16>,
    next: u64,
    initiations: Buckets<Line>,
    terminations: Buckets<PortId>,
    /// PADT that name no session of their station.
    guesses_of: Buckets<Station>,
    initiations_of: Buckets<Station>,
    requests_of: Buckets<Station>,
    counters: ConcentratorCounters,
    outputs: Outputs<ConcentratorEvent>,
}

impl Concentrator {
    /// One that allows this; `rng` is for cookies, challenges, magic numbers and SESSION_IDs.
    ///
    /// # Errors
    /// It could serve nobody, or would let in everybody.
    pub fn new(config: ConcentratorConfig, rng: SecureRng) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            rng,
            epoch: WallTime::UNIX_EPOCH,
            cookies: None,
            sessions: BTreeMap::new(),
            names: BTreeMap::new(),
            stations: BTreeMap::new(),
            outside: Outside::default(),
            timers: TimerQueue::new(),
            next: 0,
            initiations: Buckets::new(LINES),
            terminations: Buckets::new(LINES),
            guesses_of: Buckets::new(STATIONS),
            initiations_of: Buckets::new(STATIONS),
            requests_of: Buckets::new(STATIONS),
            counters: ConcentratorCounters::default(),
            outputs: Outputs::default(),
        })
    }
    /// What it has done and dropped.
    #[must_use]
    pub const fn counters(&self) -> &ConcentratorCounters {
        &self.counters
    }
    /// Sessions that there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }
    /// Of them, those whose hosts are not let in yet.
    #[must_use]
    pub fn outside(&self) -> usize {
        self.outside.len()
    }
    /// Who has a session.
    #[must_use]
    pub fn subscriber(&self, session: SessionId) -> Option<&Subscriber> {
        self.names.get(&session).and_then(|id| self.sessions.get(id)).map(|session| &session.subscriber)
    }
    /// Stations and lines whose rates are remembered: a bounded number.
    #[must_use]
    pub fn followed(&self) -> usize {
        let stations = self.initiations_of.len() + self.requests_of.len() + self.guesses_of.len();
        stations + self.initiations.len() + self.terminations.len()
    }

    fn work(&mut self, label: usher_core::WorkLabel) {
        self.outputs.work(Work { label, units: 1 });
    }

    fn frame(&mut self, now: Instant, port: PortId, octets: &[u8]) {
        let Some(own) = self.config.ports.iter().find(|own| own.port == port).copied() else {
            self.counters.not_ours += 1;
            return;
        };
        let frame = match Frame::parse(octets) {
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
        let initiation = frame.stage == Stage::Discovery && frame.code == Code::PADI;
        let for_us = if initiation { MacAddress::BROADCAST } else { own.address };
        // A PADI by unicast is none of the standard's, and answered by nobody who might be surprised.
        if frame.destination != for_us {
            self.counters.not_for_us += 1;
            return;
        }
        if !frame.source.is_unicast() || frame.source == own.address {
            self.counters.malformed += 1;
            return;
        }
        match frame.stage {
            Stage::Discovery => self.discovery(now, own, frame),
            Stage::Session => self.session(now, own, frame),
        }
    }

    /// The session that a frame's number names, if the frame is from its station.
    fn owned(&mut self, port: PortId, frame: &Frame<'_>) -> Option<u16> {
        match self.sessions.get(&frame.session) {
            Some(session) if session.at == (port, frame.source) => Some(frame.session),
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

    fn session(&mut self, now: Instant, own: Port, frame: Frame<'_>) {
        if frame.code != Code::SESSION {
            self.counters.malformed += 1;
            return;
        }
        let Some(id) = self.owned(own.port, &frame) else {
            // A host whose session was forgotten, by a restart of this side, learns of it at once.
            let unknown = frame.session != 0 && !self.sessions.contains_key(&frame.session);
            if unknown && self.terminations.take(now, own.port, self.config.terminations) {
                self.terminate(own, frame.source, frame.session, &Discovery::default());
            }
            return;
        };
        let wall = now.wall(self.epoch);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.heard = true;
        if let Err(why) = session.link.receive(now, wall, frame.payload) {
            self.counters.dropped(why);
        }
        self.settle(id);
    }

    /// PADT.
    fn terminate(&mut self, own: Port, host: MacAddress, session: u16, tags: &Discovery<'_>) {
        self.discover(own, host, Code::PADT, session, tags);
    }

    /// Sends a packet of the discovery stage; false: it is too long, and not sent.
    fn discover(
        &mut self,
        own: Port,
        destination: MacAddress,
        code: Code,
        session: u16,
        tags: &Discovery<'_>,
    ) -> bool {
        let mut payload = Vec::new();
        tags.emit(&mut payload);
        if payload.len() + crate::pppoe::HEADERS > usize::from(config::ETHERNET) + 14 {
            self.counters.oversized += 1;
            return false;
        }
        self.work(work::DISCOVERY);
        let frame = Frame {
            destination,
            source: own.address,
            stage: Stage::Discovery,
            code,
            session,
            payload: &payload,
        };
        let mut bytes = self.outputs.buffer();
        frame.emit(&mut bytes);
        self.outputs.transmit(Transmit::Frame { port: own.port }, bytes);
        true
    }

    /// Carries out what a session's link has decided, and arms its timer.
    fn settle(&mut self, id: u16) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let (name, (port, host)) = (session.name, session.at);
        let (said, work) = (session.link.take(), session.link.take_work());
        for label in work {
            self.work(label);
        }
        let own = self.config.ports.iter().find(|own| own.port == port).copied();
        for one in said {
            match one {
                Said::Send(protocol, packet) => {
                    if let Some(own) = own {
                        self.send(own, host, id, protocol, &packet);
                    }
                }
                Said::Ask { name: user, proof, mtu } => {
                    let event = ConcentratorEvent::Authenticate { session: name, user, proof, mtu };
                    self.outputs.event(event);
                }
                Said::Authenticated => {
                    if let Some(session) = self.sessions.get(&id) {
                        self.outside.remove(session.line, name);
                    }
                }
                Said::Up(network) => {
                    let Some(session) = self.sessions.get(&id) else { continue };
                    let (subscriber, mtu) = (session.subscriber.clone(), session.link.mtu());
                    self.outputs.event(ConcentratorEvent::Install {
                        session: name,
                        subscriber,
                        mtu,
                        network,
                    });
                }
                Said::Down(family) => {
                    self.outputs.event(ConcentratorEvent::Remove { session: name, family });
                }
                Said::Mtu(mtu) => self.outputs.event(ConcentratorEvent::Mtu { session: name, mtu }),
                // What only a client hears.
                Said::Refused(_) | Said::Advertised(_) | Said::Delegated(_) => {}
                Said::Ended(reason) => return self.forget(id, reason),
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

    fn send(&mut self, own: Port, destination: MacAddress, session: u16, protocol: Protocol, packet: &[u8]) {
        let payload = [&protocol.0.to_be_bytes(), packet].concat();
        let source = own.address;
        let frame = Frame {
            destination,
            source,
            stage: Stage::Session,
            code: Code::SESSION,
            session,
            payload: &payload,
        };
        let mut bytes = self.outputs.buffer();
        frame.emit(&mut bytes);
        self.outputs.transmit(Transmit::Frame { port: own.port }, bytes);
    }

    /// A session is over: its number is free again when its host has been told.
    fn forget(&mut self, id: u16, reason: EndReason) {
        let Some(session) = self.sessions.remove(&id) else { return };
        let (port, host) = session.at;
        if let Some(at) = session.timer {
            self.timers.remove(at, id);
        }
        self.names.remove(&session.name);
        self.outside.remove(session.line, session.name);
        if let Some(names) = self.stations.get_mut(&session.at) {
            names.retain(|name| *name != session.name);
            if names.is_empty() {
                self.stations.remove(&session.at);
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
            let tags = Discovery { host_uniq, relay_session_id, ..Discovery::default() };
            self.terminate(own, host, id, &tags);
        }
        self.outputs.event(ConcentratorEvent::Ended { session: session.name, reason });
    }

    /// Ends a session without another word of LCP.
    fn cut(&mut self, id: u16, reason: EndReason) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.link.end(reason);
            self.settle(id);
        }
    }

    fn number(&self, session: SessionId) -> Result<u16, CommandError> {
        self.names.get(&session).copied().ok_or(CommandError::UnknownToken)
    }
}

impl Machine for Concentrator {
    type Command = ConcentratorCommand;
    type Event = ConcentratorEvent;
    type Job = NoJob;

    fn set_epoch(&mut self, _: Instant, epoch: WallTime) {
        self.epoch = epoch;
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Frame { port, data } => self.frame(now, port, data),
            Input::Timeout => {
                let wall = now.wall(self.epoch);
                while let Some((_, id)) = self.timers.pop_due(now) {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.timer = None;
                        session.link.timeout(now, wall);
                        self.settle(id);
                    }
                }
            }
            other => {
                if let Some(refusal) = other.refusal() {
                    self.outputs.operate(refusal);
                }
            }
        }
    }

    fn command(&mut self, now: Instant, command: ConcentratorCommand) -> Result<(), CommandError> {
        let wall = now.wall(self.epoch);
        match command {
            ConcentratorCommand::Answer { session, answer } => {
                let id = self.number(session)?;
                let (verdict, assignment) = match answer {
                    Answer::Continue(packet) => (Verdict::Continue(packet), None),
                    Answer::Accept { message, assignment } => (Verdict::Accept(message), Some(assignment)),
                    Answer::Reject { message } => (Verdict::Reject(message), None),
                    Answer::Unanswered => (Verdict::Unanswered, None),
                };
                let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
                if !session.link.answer(now, wall, verdict, assignment.as_deref()) {
                    return Err(CommandError::WrongState("no proof of this session waits for an answer"));
                }
                self.settle(id);
            }
            ConcentratorCommand::Close(session) => {
                let id = self.number(session)?;
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.link.close(now, wall, EndReason::Closed);
                }
                self.settle(id);
            }
            ConcentratorCommand::CloseAll => {
                for id in self.sessions.keys().copied().collect::<Vec<_>>() {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.link.close(now, wall, EndReason::Closed);
                    }
                    self.settle(id);
                }
            }
            ConcentratorCommand::Configure(config) => {
                config.check().map_err(|_| CommandError::Invalid("the configuration serves nobody"))?;
                self.config = *config;
            }
        }
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next()
    }
}
