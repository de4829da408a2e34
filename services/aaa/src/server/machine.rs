//! The server's machine.

use super::answer::{self, Asker, Verdict, read_state, write_state};
use super::session::{self, Msk, Owner, Proof, Session, Stage, Step};
use super::{Command, Config, ConfigError, Counters, Event, Reason, UserSource};
use crate::users::{Method, User};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::table::SessionTable;
use usher_core::{CommandError, Input, Instant, Machine, SecureRng, Transmit, Work};
use usher_crypto::digest::equal;
use usher_diameter::codes::{application, command};
use usher_diameter::eap::Der;
use usher_diameter::nasreq::Aar;
use usher_diameter::node::{self, Node};
use usher_diameter::{Fault, Message, ResultCode};
use usher_eap::method::Context;
use usher_eap::packet::{self, Type};
use usher_eap::server::Server;
use usher_radius::attribute::kind;
use usher_radius::packet::Code;
use usher_radius::server as radius;

/// An AAA server; see the [module](super).
#[derive(Debug)]
pub struct AaaServer {
    config: Config,
    radius: Option<radius::Server>,
    diameter: Option<Node>,
    sessions: SessionTable<Session>,
    events: VecDeque<Event>,
    work: VecDeque<Work>,
    counters: Counters,
    rng: SecureRng,
    /// The EAP packet that came, and the one that goes out.
    packet: Vec<u8>,
    out: Vec<u8>,
}

/// What a request brought, whichever protocol carried it.
struct Ask<'a> {
    asker: Asker,
    owner: Owner,
    /// The user's name as the request has it.
    name: &'a [u8],
}

impl AaaServer {
    /// A server without sessions. Session names and challenges are drawn from `rng`.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: Config, mut rng: SecureRng) -> Result<Self, ConfigError> {
        let radius = match config.radius.clone() {
            Some(c) => Some(radius::Server::new(c, SecureRng::from_seed(rng.array()))?),
            None => None,
        };
        let diameter =
            config.diameter.clone().map(|c| Node::new(c, Instant::ZERO, SecureRng::from_seed(rng.array())));
        Ok(Self {
            radius,
            diameter,
            sessions: SessionTable::new(),
            events: VecDeque::new(),
            work: VecDeque::new(),
            counters: Counters::default(),
            packet: Vec::new(),
            out: Vec::new(),
            config,
            rng,
        })
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// The RADIUS server's counters.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&radius::Counters> {
        self.radius.as_ref().map(radius::Server::counters)
    }
    /// The Diameter node's counters.
    #[must_use]
    pub fn diameter_counters(&self) -> Option<&node::Counters> {
        self.diameter.as_ref().map(Node::counters)
    }
    /// Unfinished sessions.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.sessions.len()
    }

    fn drain_radius(&mut self, now: Instant) {
        while let Some(radius::Event::Request(request)) = self.radius.as_mut().and_then(Machine::poll_event) {
            self.radius_request(now, request);
        }
    }

    fn radius_request(&mut self, now: Instant, request: radius::Request) {
        let asker = Asker::Radius(request.token);
        if request.code != Code::ACCESS_REQUEST {
            self.counters.unsupported += 1;
            return self.discard(now, asker);
        }
        let mut packet = core::mem::take(&mut self.packet);
        packet.clear();
        let a = &request.attributes;
        let owner = Owner::Radius(request.client);
        let name = a.get(kind::USER_NAME).unwrap_or_default();
        let ask = Ask { asker, owner, name };
        if a.eap(&mut packet) {
            match a.get(kind::STATE) {
                None => self.begin_eap(now, &ask, &packet),
                Some(state) => self.go_on(now, &ask, state, &packet),
            }
        } else {
            match request.user_password() {
                Ok(Some(password)) => self.begin_pap(now, &ask, password),
                Ok(None) => {
                    self.counters.no_proof += 1;
                    self.answer(now, asker, &Verdict::Reject { eap: None });
                }
                Err(_) => {
                    self.counters.bad_password += 1;
                    self.discard(now, asker);
                }
            }
        }
        self.packet = packet;
        if let Some(server) = &mut self.radius {
            server.recycle(request.attributes);
        }
    }
}

impl AaaServer {
    fn drain_diameter(&mut self, now: Instant) {
        while let Some(event) = self.diameter.as_mut().and_then(Machine::poll_event) {
            match event {
                node::Event::Request { token, message, .. } => {
                    if let Err(fault) = self.diameter_request(now, token, &message) {
                        self.counters.unsupported += 1;
                        self.refuse(now, token, fault);
                    }
                }
                node::Event::PeerUp { peer } => {
                    self.events.push_back(Event::DiameterPeer { peer, up: true });
                }
                node::Event::PeerDown { peer } => {
                    self.events.push_back(Event::DiameterPeer { peer, up: false });
                }
                // This server asks nobody.
                node::Event::Answer { .. } | node::Event::Failed { .. } => {}
            }
        }
    }

    fn diameter_request(&mut self, now: Instant, token: u64, message: &Message) -> Result<(), Fault> {
        let avps = message.avps.view();
        let owner = Owner::Diameter;
        match (message.header.application, message.header.command) {
            (application::EAP, command::DIAMETER_EAP) => {
                let der = Der::parse(avps)?;
                let asker = Asker::Diameter(token, der.request_type);
                let name = der.user_name.unwrap_or_default().as_bytes();
                let ask = Ask { asker, owner, name };
                match der.state {
                    None => self.begin_eap(now, &ask, der.eap),
                    Some(state) => self.go_on(now, &ask, state, der.eap),
                }
            }
            (application::NASREQ, command::AA) => {
                let aar = Aar::parse(avps)?;
                let asker = Asker::Diameter(token, aar.request_type);
                let name = aar.user_name.unwrap_or_default().as_bytes();
                let ask = Ask { asker, owner, name };
                match aar.password {
                    Some(password) => self.begin_pap(now, &ask, password.to_vec()),
                    None => {
                        self.counters.no_proof += 1;
                        self.answer(now, asker, &Verdict::Reject { eap: None });
                    }
                }
            }
            _ => return Err(Fault::new(ResultCode::COMMAND_UNSUPPORTED, "not a request for admission")),
        }
        Ok(())
    }

    /// Answers a Diameter request with a fault.
    fn refuse(&mut self, now: Instant, token: u64, fault: Fault) {
        if let Some(node) = &mut self.diameter {
            // The connection that it came by may be gone: then nobody waits for the answer.
            let _ = node.command(now, node::Command::Reject { token, fault });
        }
    }
}

impl AaaServer {
    /// Opens a session and makes room for it.
    fn open(&mut self, now: Instant, ask: &Ask<'_>, name: &[u8], stage: Stage) -> u64 {
        while self.sessions.len() >= self.config.max_half_open.max(1) {
            let Some((oldest, _)) = self.sessions.oldest() else { break };
            self.counters.evicted += 1;
            self.abandon(now, oldest);
        }
        self.counters.sessions += 1;
        let nonce = self.rng.next_u64();
        self.sessions.insert(now, Session::new(ask.owner, ask.asker, nonce, name, stage))
    }

    /// Forgets a session that led to nothing; whoever waits for its answer gets none.
    fn abandon(&mut self, now: Instant, token: u64) {
        if let Some(session) = self.sessions.remove(token)
            && let Some(asker) = session.asker
        {
            self.discard(now, asker);
        }
    }

    fn begin_eap(&mut self, now: Instant, ask: &Ask<'_>, packet: &[u8]) {
        if packet.is_empty() {
            let identifier = self.rng.next_u32() as u8;
            let token = self.open(now, ask, &[], Stage::Identity { identifier });
            self.out.clear();
            packet::emit(&mut self.out, packet::Code::Request, identifier, Type::IDENTITY, &[]);
            return self.challenge(now, token);
        }
        let Some((name, identifier)) = session::identity(packet) else {
            self.counters.bad_eap += 1;
            return self.discard(now, ask.asker);
        };
        if name != ask.name {
            let token = self.open(now, ask, name, Stage::Looking(Proof::Eap(identifier)));
            return self.reject(now, token, Reason::NameMismatch, Some(identifier));
        }
        let token = self.open(now, ask, name, Stage::Looking(Proof::Eap(identifier)));
        self.look_up(now, token);
    }

    fn begin_pap(&mut self, now: Instant, ask: &Ask<'_>, password: Vec<u8>) {
        let token = self.open(now, ask, ask.name, Stage::Looking(Proof::Pap(password)));
        self.look_up(now, token);
    }

    /// A request of a session that is under way.
    fn go_on(&mut self, now: Instant, ask: &Ask<'_>, state: &[u8], packet: &[u8]) {
        let token = read_state(state).and_then(|(token, nonce)| {
            let session = self.sessions.get(token)?;
            (equal(&session.nonce.to_be_bytes(), &nonce.to_be_bytes()) && session.owner == ask.owner)
                .then_some(token)
        });
        match token {
            Some(token) => self.resume(now, ask, token, packet),
            None => {
                self.counters.unknown_session += 1;
                let failure = packet.get(1).map(|&identifier| session::failure(identifier));
                let eap = failure.as_ref().map(|f| &f[..]);
                self.answer(now, ask.asker, &Verdict::Reject { eap });
            }
        }
    }

    fn resume(&mut self, now: Instant, ask: &Ask<'_>, token: u64, packet: &[u8]) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        match &mut session.stage {
            Stage::Looking(_) => {
                self.counters.busy += 1;
                self.discard(now, ask.asker);
            }
            Stage::Identity { identifier } => {
                let asked = *identifier;
                let answer = session::identity(packet).filter(|(_, answered)| *answered == asked);
                let Some((name, identifier)) = answer else {
                    self.counters.bad_eap += 1;
                    return self.discard(now, ask.asker);
                };
                session.name = name.to_vec();
                session.asker = Some(ask.asker);
                session.stage = Stage::Looking(Proof::Eap(identifier));
                self.sessions.touch(now, token);
                self.look_up(now, token);
            }
            Stage::Eap(_) => {
                session.asker = Some(ask.asker);
                self.sessions.touch(now, token);
                self.advance(now, token, packet);
            }
        }
    }
}

impl AaaServer {
    fn look_up(&mut self, now: Instant, token: u64) {
        let Some(session) = self.sessions.get(token) else { return };
        match &self.config.users {
            UserSource::Memory(users) => {
                let user = users.find(&session.name).cloned();
                self.found(now, token, user);
            }
            UserSource::Host => {
                self.events.push_back(Event::Lookup { token, name: session.name.clone() });
            }
        }
    }

    /// The look-up of a session has ended.
    fn found(&mut self, now: Instant, token: u64, user: Option<Arc<User>>) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        let Stage::Looking(proof) = &mut session.stage else { return };
        let proof = core::mem::replace(proof, Proof::Pap(Vec::new()));
        let identifier = match &proof {
            Proof::Eap(identifier) => Some(*identifier),
            Proof::Pap(_) => None,
        };
        let Some(user) = user else {
            return self.reject(now, token, Reason::UnknownUser, identifier);
        };
        match proof {
            Proof::Pap(password) => {
                let offered = self.config.methods.contains(&Method::Pap) && user.may_use(Method::Pap);
                let right = user.password.as_ref().is_some_and(|p| equal(p, &password));
                session.user = Some(user);
                if !offered {
                    self.reject(now, token, Reason::NoMethod, None);
                } else if right {
                    self.accept(now, token, Method::Pap, None, None);
                } else {
                    self.reject(now, token, Reason::WrongCredentials, None);
                }
            }
            Proof::Eap(identifier) => {
                let offers = session::offers(&self.config, &user);
                if offers.is_empty() {
                    return self.reject(now, token, Reason::NoMethod, Some(identifier));
                }
                let wall = self.config.epoch + now.since(Instant::ZERO);
                let mut eap = Box::new(Server::new(
                    offers,
                    identifier,
                    Context { rng: &mut self.rng, wall, mtu: None },
                ));
                let step = session::step(&mut eap, &mut self.work, &mut self.out);
                session.user = Some(user);
                session.stage = Stage::Eap(eap);
                self.take_step(now, token, step, identifier);
            }
        }
    }

    /// Gives the session's EAP server what its peer said.
    fn advance(&mut self, now: Instant, token: u64, packet: &[u8]) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        let Stage::Eap(eap) = &mut session.stage else { return };
        let step = if eap.handle(packet) {
            session::step(eap, &mut self.work, &mut self.out)
        } else {
            Step::Ignored
        };
        self.take_step(now, token, step, packet.get(1).copied().unwrap_or_default());
    }

    /// Does what a session's EAP server said; `identifier` is that of the response that it was given.
    fn take_step(&mut self, now: Instant, token: u64, step: Step, identifier: u8) {
        match step {
            Step::Request => self.challenge(now, token),
            Step::Success(method, msk) => self.accept(now, token, method, Some(()), msk),
            Step::Failure(reason) => self.reject(now, token, reason, Some(identifier)),
            Step::Ignored => {
                self.counters.bad_eap += 1;
                if let Some(asker) = self.sessions.get_mut(token).and_then(|s| s.asker.take()) {
                    self.discard(now, asker);
                }
            }
        }
    }

    /// Sends the request in `self.out`.
    fn challenge(&mut self, now: Instant, token: u64) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        let state = write_state(token, session.nonce);
        let Some(asker) = session.asker.take() else { return };
        self.counters.challenges += 1;
        let out = core::mem::take(&mut self.out);
        self.answer(now, asker, &Verdict::Challenge { eap: &out, state });
        self.out = out;
    }

    /// Lets a session's user in, with the EAP packet in `self.out` where there is one.
    fn accept(&mut self, now: Instant, token: u64, method: Method, eap: Option<()>, msk: Option<Msk>) {
        let Some(session) = self.sessions.remove(token) else { return };
        let (Some(asker), Some(user)) = (session.asker, &session.user) else { return };
        *match method {
            Method::Pap => &mut self.counters.accepted_pap,
            Method::EapMd5 => &mut self.counters.accepted_eap_md5,
            Method::EapTls => &mut self.counters.accepted_eap_tls,
        } += 1;
        let out = core::mem::take(&mut self.out);
        let verdict = Verdict::Accept { eap: eap.map(|()| &out[..]), msk: msk.as_ref(), user };
        self.answer(now, asker, &verdict);
        self.out = out;
        self.events.push_back(Event::Accepted { name: session.name, method });
    }

    /// Turns a session's user away; `identifier` is that of the EAP response which this answers.
    fn reject(&mut self, now: Instant, token: u64, reason: Reason, identifier: Option<u8>) {
        let Some(session) = self.sessions.remove(token) else { return };
        *match reason {
            Reason::UnknownUser => &mut self.counters.rejected_unknown_user,
            Reason::WrongCredentials => &mut self.counters.rejected_credentials,
            Reason::NoMethod => &mut self.counters.rejected_no_method,
            Reason::NameMismatch => &mut self.counters.rejected_name_mismatch,
        } += 1;
        if let Some(asker) = session.asker {
            let failure = identifier.map(session::failure);
            let eap = failure.as_ref().map(|f| &f[..]);
            self.answer(now, asker, &Verdict::Reject { eap });
        }
        self.events.push_back(Event::Rejected { name: session.name, reason });
    }

    fn answer(&mut self, now: Instant, asker: Asker, verdict: &Verdict<'_>) {
        match asker {
            Asker::Radius(token) => {
                let Some(server) = &mut self.radius else { return };
                let mut attributes = server.attributes();
                let code = answer::radius(verdict, &mut attributes);
                // The client may have given this request up for a newer one: then nobody waits.
                let _ = server.command(now, radius::Command::Respond { token, code, attributes });
            }
            Asker::Diameter(token, request_type) => {
                let Some(node) = &mut self.diameter else { return };
                let (result, avps) = answer::diameter(verdict, request_type);
                // As above: the connection may be gone.
                let _ = node.command(now, node::Command::Answer { token, result, avps });
            }
        }
    }

    fn discard(&mut self, now: Instant, asker: Asker) {
        match asker {
            Asker::Radius(token) => {
                if let Some(server) = &mut self.radius {
                    // As above: a request that is gone needs no end.
                    let _ = server.command(now, radius::Command::Discard { token });
                }
            }
            // Diameter has no silence: a request that gets no verdict is told so.
            Asker::Diameter(token, _) => {
                self.refuse(now, token, Fault::new(ResultCode::UNABLE_TO_COMPLY, "no answer can be given"));
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((token, since)) = self.sessions.oldest() {
            if since + self.config.session_timeout > now {
                break;
            }
            self.counters.expired += 1;
            self.abandon(now, token);
        }
    }
}

impl Machine for AaaServer {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Datagram { .. } => match &mut self.radius {
                Some(server) => server.handle(now, input),
                None => self.counters.no_front += 1,
            },
            Input::Stream { .. } | Input::Message { .. } => match &mut self.diameter {
                Some(node) => node.handle(now, input),
                None => self.counters.no_front += 1,
            },
            Input::Frame { .. } => self.counters.no_front += 1,
            Input::Timeout => {
                if let Some(server) = &mut self.radius {
                    server.handle(now, input);
                }
                if let Some(node) = &mut self.diameter {
                    node.handle(now, input);
                }
                self.expire(now);
            }
        }
        self.drain_radius(now);
        self.drain_diameter(now);
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Found { token, user } => {
                let looking = self.sessions.get(token).is_some_and(|s| matches!(s.stage, Stage::Looking(_)));
                if !looking {
                    return Err(CommandError::UnknownToken);
                }
                self.found(now, token, user);
                Ok(())
            }
            Command::Diameter(command) => match &mut self.diameter {
                Some(node) => node.command(now, command),
                None => Err(CommandError::Invalid("this server has no Diameter side")),
            },
        }
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(transmit) = self.radius.as_mut().and_then(|s| s.poll_transmit(now, buf)) {
            return Some(transmit);
        }
        self.diameter.as_mut()?.poll_transmit(now, buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let idle = self.sessions.oldest().map(|(_, since)| since + self.config.session_timeout);
        let radius = self.radius.as_mut().and_then(Machine::poll_timeout);
        let diameter = self.diameter.as_mut().and_then(Machine::poll_timeout);
        [idle, radius, diameter].into_iter().flatten().min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_work(&mut self) -> Option<Work> {
        self.work
            .pop_front()
            .or_else(|| self.radius.as_mut()?.poll_work())
            .or_else(|| self.diameter.as_mut()?.poll_work())
    }
}
