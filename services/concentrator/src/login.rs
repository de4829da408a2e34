//! Hosts that show who they are: each proof goes to whoever judges, and the verdict comes back.

use crate::grace::{Remembered, WhenAway};
use crate::service::{AccessConcentrator, Event, Judge, LoginFailure, Unanswered};
use crate::track::Record;
use crate::users::{Conversation, Verdict};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use usher_access::{Continuation, Failure, FramedAddress, NasPort, Reply, Request};
use usher_core::{CommandError, Duration, Instant, Machine, PortId};
use usher_eap::packet::{Packet, Type};
use usher_ppp::auth::Proof;
use usher_ppp::concentrator::{Answer, ConcentratorCommand, SessionId, Subscriber};
use usher_ppp::pppoe::MacAddress;
use usher_radius::attribute::{Attributes, kind, vendor};

/// Framed-Protocol PPP (RFC 2865 §5.7).
const PPP: u32 = 1;

/// What an AAA server says of a user whom it lets in.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Granted {
    /// Who it is, for the log, IDENT and limits.
    pub(crate) user: Vec<u8>,
    /// The name that the host gave: by EAP outside of any tunnel.
    pub(crate) login: Vec<u8>,
    /// Who it is has been said within a tunnel, or by a certificate, to the AAA server alone: [`user`](Self::user) is no user's name.
    pub(crate) nameless: bool,
    pub(crate) classes: Vec<Vec<u8>>,
    pub(crate) address: Option<core::net::Ipv4Addr>,
    pub(crate) pool: Option<String>,
    pub(crate) interface_id: Option<[u8; 8]>,
    pub(crate) prefix: Option<(Ipv6Addr, u8)>,
    pub(crate) prefix_pool: Option<String>,
    pub(crate) delegated: Option<(Ipv6Addr, u8)>,
    pub(crate) delegated_pool: Option<String>,
    pub(crate) dns: Vec<IpAddr>,
    pub(crate) lasts: Option<Duration>,
    pub(crate) idle: Option<Duration>,
    pub(crate) interim: Option<Duration>,
    pub(crate) filters: Vec<String>,
    /// Up and down, bit/s.
    pub(crate) bandwidth: (Option<u64>, Option<u64>),
    /// That of the question by which it was let in.
    pub(crate) token: Option<u64>,
}

impl Granted {
    /// User-Name of its records (RFC 2865 §5.1).
    pub(crate) fn accounted(&self) -> &[u8] {
        if self.nameless { &self.login } else { &self.user }
    }
}

/// How a host shows who it is: what the answer to it must hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Password,
    MsChapV2,
    Eap,
}

/// The port of a login, with the circuit or the station behind it.
type LoginLine = (PortId, Option<Vec<u8>>, Option<MacAddress>);

/// A host that shows who it is.
#[derive(Debug)]
pub(crate) struct Login {
    name: Vec<u8>,
    kind: Kind,
    /// Of a password, by which it is known again.
    digest: Option<[u8; 32]>,
    token: u64,
    /// A question of it is open.
    asking: bool,
    next: Continuation,
    local: Option<Conversation>,
    /// It has failed, and has been counted for it.
    counted: bool,
    /// By its EAP method the AAA server alone knows who it is, whatever it has called itself.
    hidden: bool,
}

/// Where a host is, as AAA servers are told.
pub(crate) struct Place {
    port: String,
    station: String,
    called: String,
    number: u16,
    pub(crate) attributes: Attributes,
}

impl Place {
    pub(crate) fn of(
        subscriber: &Subscriber,
        ports: &[String],
        ppp: &[usher_ppp::concentrator::Port],
    ) -> Self {
        // As RFC 3580 §3.21 has addresses of stations.
        let dashed = |address: [u8; 6]| {
            let octets: Vec<String> = address.iter().map(|octet| alloc::format!("{octet:02X}")).collect();
            octets.join("-")
        };
        let own = ppp.iter().find(|own| own.port == subscriber.port);
        let mut attributes = Attributes::new();
        attributes.push_u32(kind::FRAMED_PROTOCOL, PPP);
        for (number, id) in [
            (vendor::AGENT_CIRCUIT_ID, &subscriber.circuit_id),
            (vendor::AGENT_REMOTE_ID, &subscriber.remote_id),
        ] {
            // What is longer than an attribute is no line's name.
            if let Some(id) = id {
                let _ = attributes.push_vendor(vendor::ADSL_FORUM, number, id);
            }
        }
        let n = usize::try_from(subscriber.port.0).unwrap_or(usize::MAX);
        Self {
            port: ports.get(n).cloned().unwrap_or_default(),
            station: dashed(subscriber.address.0),
            called: own.map(|own| dashed(own.address.0)).unwrap_or_default(),
            number: subscriber.number,
            attributes,
        }
    }
    pub(crate) fn port(&self) -> NasPort<'_> {
        NasPort {
            number: Some(self.number.into()),
            id: Some(&self.port),
            calling_station: Some(&self.station),
            called_station: Some(&self.called),
            mtu: None,
        }
    }
    pub(crate) fn name(&self) -> &str {
        &self.port
    }
}

/// Whether a name is UTF-8 (RFC 2865 §5.1) without control characters, by which it would be shown as something else than it is.
fn is_text(name: &[u8]) -> bool {
    core::str::from_utf8(name).is_ok_and(|name| !name.contains(char::is_control))
}

/// Whether an EAP packet begins a conversation.
fn begins(packet: &[u8]) -> bool {
    Packet::parse(packet).is_ok_and(|packet| packet.kind() == Some(Type::IDENTITY))
}

impl AccessConcentrator {
    pub(crate) fn place(&self, subscriber: &Subscriber) -> Place {
        Place::of(subscriber, &self.config.ports, &self.config.ppp.ports)
    }

    /// A host shows who it is.
    pub(crate) fn authenticate(
        &mut self,
        now: Instant,
        (session, mtu): (SessionId, u16),
        user: Vec<u8>,
        proof: &Proof,
    ) {
        // It negotiates its link anew: whoever it was before is gone.
        if let Some(id) = self.current.get(&session).copied() {
            self.over(now, id, usher_access::TerminateCause::UserRequest, "renegotiated");
        }
        let goes_on =
            matches!(proof, Proof::Eap(packet) if !begins(packet)) && self.logins.contains_key(&session);
        if !goes_on {
            self.drop_login(now, session);
            let kind = match proof {
                Proof::Eap(_) => Kind::Eap,
                Proof::MsChapV2 { .. } => Kind::MsChapV2,
                Proof::Pap(_) | Proof::Chap { .. } => Kind::Password,
            };
            let digest = match proof {
                Proof::Pap(password) => Some(self.grace.digest(&password[..])),
                _ => None,
            };
            let token = self.token();
            let (name, next) = (user, Continuation::new());
            let login = Login {
                name,
                kind,
                digest,
                token,
                asking: false,
                next,
                local: None,
                counted: false,
                hidden: false,
            };
            self.logins.insert(session, login);
        }
        if let (Some(login), Proof::Eap(packet)) = (self.logins.get_mut(&session), proof) {
            let by_certificate =
                !self.config.trust_certificate_names && usher_access::is_by_certificate(packet);
            login.hidden |= by_certificate || usher_access::is_tunnelled(packet);
        }
        let name = self.logins.get(&session).map_or(&[][..], |login| &login.name[..]);
        let (nameless, no_text) = (name.is_empty(), !is_text(name));
        match self.config.judge {
            _ if nameless => self.reject(now, session, LoginFailure::NoName, Vec::new()),
            _ if no_text => self.reject(now, session, LoginFailure::BadName, Vec::new()),
            _ if self.leaving => self.unanswered(now, session, LoginFailure::NoAaa),
            Judge::Local => self.judge(now, session, proof),
            Judge::Aaa => self.ask(now, (session, mtu), proof),
        }
    }

    fn ask(&mut self, now: Instant, (session, mtu): (SessionId, u16), proof: &Proof) {
        let Some(place) = self.attached.get(&session).map(|subscriber| self.place(subscriber)) else {
            return;
        };
        let (Some(login), Some(aaa)) = (self.logins.get_mut(&session), &mut self.aaa) else {
            return self.unanswered(now, session, LoginFailure::NoAaa);
        };
        let shown = match proof {
            Proof::Pap(password) => usher_access::Proof::Pap(&password[..]),
            Proof::Chap { identifier, challenge, response } => {
                usher_access::Proof::Chap(usher_access::ChapResponse {
                    identifier: *identifier,
                    challenge,
                    response: *response,
                })
            }
            Proof::MsChapV2 { identifier, challenge, peer_challenge, response } => {
                usher_access::Proof::MsChapV2(usher_access::MsChapV2Response {
                    identifier: *identifier,
                    challenge: *challenge,
                    peer_challenge: *peer_challenge,
                    response: *response,
                })
            }
            Proof::Eap(packet) => usher_access::Proof::Eap(packet),
        };
        let request = Request {
            port: usher_access::NasPort { mtu: Some(mtu), ..place.port() },
            continues: Some(&login.next),
            attributes: Some(&place.attributes),
            ..Request::new(&login.name, shown)
        };
        let token = login.token;
        match aaa.ask(now, token, &request) {
            Ok(()) => {}
            // Servers answer, and others ask so much that there is no room: that is no reason to let anybody in without them.
            Err(CommandError::Full(_)) => return self.unanswered(now, session, LoginFailure::Unanswered),
            // What the host calls itself fits no request.
            Err(_) => return self.reject(now, session, LoginFailure::NoName, Vec::new()),
        }
        login.asking = true;
        self.asked.insert(token, session);
    }

    /// The line that a host logs in by: its circuit, where that is believed, and else its station, at a port.
    fn line(&self, session: SessionId) -> Option<LoginLine> {
        let subscriber = self.attached.get(&session)?;
        let station = subscriber.circuit_id.is_none().then_some(subscriber.address);
        Some((subscriber.port, subscriber.circuit_id.clone(), station))
    }

    /// The concentrator's own users.
    fn judge(&mut self, now: Instant, session: SessionId, proof: &Proof) {
        let wall = now.wall(self.epoch);
        let line = self.line(session);
        let Some(login) = self.logins.get_mut(&session) else { return };
        // Of many guesses made at once no more are weighed than the limit is; of one that was wrong nothing more is.
        if !login.counted && self.lockout.holds(now, &login.name, &line) {
            self.counters.logins_held_back += 1;
            return self.reject(now, session, LoginFailure::HeldBack, Vec::new());
        }
        let verdict = match proof {
            Proof::Eap(packet) => {
                let conversation = match login.local.take() {
                    Some(mut conversation) => {
                        conversation.handle(packet);
                        conversation
                    }
                    None => self.config.users.begin(&login.name, packet, wall, &mut self.rng),
                };
                let conversation = login.local.insert(conversation);
                let verdict = conversation.verdict();
                for work in conversation.work() {
                    self.outputs.work(work);
                }
                verdict
            }
            other => self.config.users.judge(&login.name, other),
        };
        // A host that guesses does not stay to be turned away.
        let refused = login.local.as_ref().is_some_and(Conversation::refuses);
        if (refused || matches!(verdict, Verdict::Reject(_))) && !core::mem::replace(&mut login.counted, true)
        {
            self.lockout.failed(now, &login.name, &line);
        }
        if matches!(verdict, Verdict::Accept(_)) {
            self.lockout.succeeded(now, &login.name, &line);
        }
        let user = login.name.clone();
        match verdict {
            Verdict::Continue(packet) => {
                self.tell(now, ConcentratorCommand::Answer { session, answer: Answer::Continue(packet) });
            }
            Verdict::Accept(message) => {
                let granted = Granted { login: user.clone(), user, ..Granted::default() };
                self.admit(now, session, granted, message);
            }
            Verdict::Reject(message) => self.reject(now, session, LoginFailure::Rejected, message),
        }
    }

    /// A host is turned away.
    pub(crate) fn reject(&mut self, now: Instant, session: SessionId, why: LoginFailure, message: Vec<u8>) {
        self.counters.logins_rejected += 1;
        self.failed(session, why);
        self.tell(now, ConcentratorCommand::Answer { session, answer: Answer::Reject { message } });
    }

    /// Nobody decides about a host.
    pub(crate) fn unanswered(&mut self, now: Instant, session: SessionId, why: LoginFailure) {
        self.counters.logins_unanswered += 1;
        self.failed(session, why);
        self.tell(now, ConcentratorCommand::Answer { session, answer: Answer::Unanswered });
    }

    fn failed(&mut self, session: SessionId, why: LoginFailure) {
        let login = self.logins.remove(&session);
        let Some(subscriber) = self.attached.get(&session).cloned() else { return };
        let user = login.map(|login| login.name).unwrap_or_default();
        self.outputs.event(Event::LoginFailed { subscriber, user, why });
    }

    /// No AAA server answers a login.
    fn away(&mut self, now: Instant, session: SessionId) {
        self.grace.away(now);
        let known = match (self.config.when_away, self.logins.get(&session), self.attached.get(&session)) {
            (WhenAway::Grace(lasts), Some(login), Some(subscriber)) => login.digest.and_then(|digest| {
                let place = (subscriber.port, subscriber.address);
                self.grace.known(now, lasts, place, &login.name, &digest)
            }),
            _ => None,
        };
        match known {
            Some(granted) => {
                self.counters.logins_in_grace += 1;
                // The server has not let this session in, and is to hear of no other by its token.
                let granted = Granted { token: None, ..granted };
                self.admit(now, session, granted, Vec::new());
            }
            None => self.unanswered(now, session, LoginFailure::Unanswered),
        }
    }

    /// What an AAA server answers, or wants.
    pub(crate) fn answered(&mut self, now: Instant, event: usher_access::Event) {
        use usher_access::Event as E;
        match event {
            E::Challenge { token, reply } => self.challenged(now, token, reply),
            E::Accept { token, reply } => self.accepted(now, token, reply),
            E::Reject { token, reply } => {
                let Some((session, kind)) = self.verdict(now, token) else { return };
                let mut message = Vec::new();
                match kind {
                    Kind::Eap => drop(reply.eap(&mut message)),
                    Kind::MsChapV2 => message = reply.ms_chap_error().unwrap_or_default().to_owned(),
                    Kind::Password => message = messages(&reply),
                }
                self.recycle(reply);
                if let (Some(login), Some(subscriber)) =
                    (self.logins.get(&session), self.attached.get(&session))
                {
                    let place = (subscriber.port, subscriber.address);
                    self.grace.refused(place, &login.name, login.digest.as_ref());
                }
                self.reject(now, session, LoginFailure::Rejected, message);
            }
            E::Failed { token, failure } => {
                let Some(session) = self.asked.remove(&token) else { return };
                if let Some(login) = self.logins.get_mut(&session) {
                    login.asking = false;
                }
                match failure {
                    Failure::BadAnswer => self.unanswered(now, session, LoginFailure::BadAnswer),
                    Failure::Timeout | Failure::Unavailable | Failure::ConnectionLost | Failure::Fault(_) => {
                        self.away(now, session)
                    }
                }
            }
            E::Accounted { token, kept } => {
                let Some(Unanswered { session, logged }) = self.records.remove(&token) else { return };
                if kept.is_err() {
                    self.counters.records_lost += 1;
                    self.outputs.event(Event::Unaccounted { session, logged: false });
                } else if logged {
                    let at = now.wall(self.epoch);
                    self.outputs.event(Event::Log(Box::new(Record::StopAcknowledged { at, session })));
                }
                self.say_farewell(now, false);
            }
            E::Dynamic(request) => self.dynamic(now, &request),
            E::Peer { peer, up } => {
                let server = usize::try_from(peer.0).unwrap_or(usize::MAX);
                self.outputs.event(Event::Server { server, up });
            }
            E::Server { server, health, .. } => {
                let up = health == usher_radius::client::Health::Alive;
                self.outputs.event(Event::Server { server: server.into(), up });
            }
        }
    }

    /// The login whose question is answered.
    fn verdict(&mut self, now: Instant, token: u64) -> Option<(SessionId, Kind)> {
        let session = self.asked.remove(&token)?;
        self.grace.answers();
        self.overdue(now);
        let login = self.logins.get_mut(&session)?;
        login.asking = false;
        Some((session, login.kind))
    }

    fn recycle(&mut self, reply: Reply) {
        if let Some(aaa) = &mut self.aaa {
            aaa.recycle(reply);
        }
    }

    fn challenged(&mut self, now: Instant, token: u64, reply: Reply) {
        let Some((session, kind)) = self.verdict(now, token) else { return };
        let mut packet = Vec::new();
        let asks = reply.eap(&mut packet) && kind == Kind::Eap;
        if let Some(login) = self.logins.get_mut(&session) {
            reply.continuation(&mut login.next);
        }
        self.recycle(reply);
        if asks {
            self.tell(now, ConcentratorCommand::Answer { session, answer: Answer::Continue(packet) });
        } else {
            // PAP and CHAP have no second round.
            self.unanswered(now, session, LoginFailure::BadAnswer);
        }
    }

    fn accepted(&mut self, now: Instant, token: u64, reply: Reply) {
        let Some((session, kind)) = self.verdict(now, token) else { return };
        let Some(login) = self.logins.get(&session) else { return };
        let mut message = Vec::new();
        match kind {
            Kind::Eap => drop(reply.eap(&mut message)),
            Kind::Password => message = messages(&reply),
            // Without the server's own proof the host does not believe this side (RFC 2759 §5).
            Kind::MsChapV2 => match reply.ms_chap2_success() {
                Some(success) => {
                    message = success.to_owned();
                    message.extend_from_slice(b" M=");
                    message.extend(messages(&reply));
                }
                None => return self.unanswered(now, session, LoginFailure::BadAnswer),
            },
        }
        let user = reply.user_name().filter(|name| !name.is_empty()).unwrap_or(&login.name);
        if !is_text(user) {
            return self.unanswered(now, session, LoginFailure::BadAnswer);
        }
        let granted = Granted {
            user: user.to_vec(),
            login: login.name.clone(),
            nameless: login.hidden && user == login.name,
            classes: reply.classes().map(<[u8]>::to_vec).collect(),
            address: match reply.framed_ip_address() {
                Some(FramedAddress::Address(address)) => Some(address),
                Some(FramedAddress::NasChooses | FramedAddress::UserChooses) | None => None,
            },
            pool: reply.framed_pool().map(Into::into),
            interface_id: reply.framed_interface_id(),
            prefix: reply.framed_ipv6_prefixes().next(),
            prefix_pool: reply.framed_ipv6_pool().map(Into::into),
            delegated: reply.delegated_ipv6_prefixes().next(),
            delegated_pool: reply.delegated_ipv6_prefix_pool().map(Into::into),
            dns: reply.dns_servers().collect(),
            lasts: set(reply.session_timeout()),
            idle: set(reply.idle_timeout()),
            interim: reply.interim_interval(),
            filters: reply.filter_ids().map(Into::into).collect(),
            bandwidth: {
                let (up, down) = reply.bandwidth();
                (up.map(u64::from), down.map(u64::from))
            },
            token: Some(token),
        };
        if let (WhenAway::Grace(lasts), Some(digest), Some(subscriber)) =
            (self.config.when_away, login.digest, self.attached.get(&session))
        {
            let place = (subscriber.port, subscriber.address);
            let one = Remembered { digest, granted: granted.clone(), at: now };
            self.grace.remember(now, lasts, place, &login.name, one);
        }
        self.recycle(reply);
        self.admit(now, session, granted, message);
    }

    /// A login is over, without a session: whom it asked need not answer.
    pub(crate) fn drop_login(&mut self, now: Instant, session: SessionId) {
        let Some(login) = self.logins.remove(&session) else { return };
        if login.asking {
            self.counters.logins_unanswered += 1;
            self.asked.remove(&login.token);
            if let Some(aaa) = &mut self.aaa {
                // It knows every question.
                let _ = aaa.command(now, usher_access::Command::Cancel { token: login.token });
            }
        }
    }

    /// A user is let in, as soon as the log has kept it.
    fn admit(&mut self, now: Instant, session: SessionId, granted: Granted, message: Vec<u8>) {
        let token = granted.token;
        if let Err(why) = self.open(now, session, granted, message) {
            // The server has let it in, and believes that it is there.
            if let (Some(token), Some(aaa)) = (token, &mut self.aaa) {
                let cause = usher_access::TerminateCause::NasError;
                let _ = aaa.command(now, usher_access::Command::Terminate { token, cause });
            }
            match why {
                LoginFailure::NoAddress => self.counters.addresses_exhausted += 1,
                LoginFailure::AddressInUse => self.counters.addresses_in_use += 1,
                LoginFailure::TooManySessions => self.counters.users_full += 1,
                _ => {}
            }
            return self.reject(now, session, why, Vec::new());
        }
        self.logins.remove(&session);
    }
}

/// A limit that a server sets. Zero is none, as Diameter has it (RFC 6733 §8.13): a session of no second is nobody's wish.
pub(crate) fn set(limit: Option<Duration>) -> Option<Duration> {
    limit.filter(|limit| !limit.is_zero())
}

/// What the user may be shown.
fn messages(reply: &Reply) -> Vec<u8> {
    reply.messages().collect::<Vec<_>>().join(&b'\n')
}

/// The answer that lets a host in.
pub(crate) fn accept(message: Vec<u8>, assignment: usher_ppp::Assignment) -> Answer {
    Answer::Accept { message, assignment: Box::new(assignment) }
}
