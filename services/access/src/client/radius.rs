//! Over RADIUS: authentication (RFC 2865, RFC 3579), accounting (RFC 2866), dynamic authorisation (RFC 5176).

use super::{ACCOUNTING, ConfigError, Event, Failure};
use crate::dynamic::{self, DynamicKind, DynamicRequest, ErrorCause};
use crate::reply::{Content, Reply};
use crate::{NasIdentity, Record, Request};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use usher_core::timer::earliest;
use usher_core::{
    CloseReason, CommandError, ConnId, Input, Instant, ListenerId, Machine, Output, Outputs, Owner,
    SecureRng, SocketId, StreamEvent, StreamOp, Transmit, WallTime,
};
use usher_radius::Freshness;
use usher_radius::attribute::{Attributes, ValueTooLong, kind};
use usher_radius::client::{self, Client, Command, Response, Target};
use usher_radius::packet::Code;
use usher_radius::radsec::{BadLength, Framer};
use usher_radius::server::{self, ClientConfig, Role, Server};

/// How a NAS asks over RADIUS.
#[derive(Clone, Debug)]
pub struct RadiusConfig {
    /// Servers, secrets, retransmission.
    pub client: client::Config,
    /// Which of them is asked.
    pub target: Target,
    /// Which of them is told of sessions.
    pub accounting: Target,
    /// Who may ask something of sessions: at [`DYNAMIC_SOCKET`], and as a RadSec server by the connection that this client has
    /// opened to it, since all packets have one port there (RFC 6614 §2.1); `None`: nobody. Who asks by a connection
    /// and may not is refused with Error-Cause 406 (RFC 6614 §2.5).
    pub dynamic: Option<Box<DynamicConfig>>,
}

impl RadiusConfig {
    /// The first of the client's servers, and no other; no dynamic authorisation.
    #[must_use]
    pub const fn new(client: client::Config) -> Self {
        Self { client, target: Target::Server(0), accounting: Target::Server(0), dynamic: None }
    }
}

/// Who may end and change sessions (RFC 5176).
#[derive(Clone, Debug)]
pub struct DynamicConfig {
    /// The servers, by their addresses, with their secrets.
    pub clients: Vec<ClientConfig>,
    /// How old a request may be; `None`: that is not looked at.
    pub freshness: Option<Freshness>,
}

/// What a server may ask (RFC 5176 §2).
const REQUESTS: [Code; 2] = [Code::DISCONNECT_REQUEST, Code::COA_REQUEST];

/// The slot of the server within the client.
const DYNAMIC: u16 = 0;

/// Where requests for dynamic authorisation come in: UDP port 3799 (RFC 5176 §2.3), where RADIUS brings them.
pub const DYNAMIC_SOCKET: SocketId = SocketId { owner: Owner::slot(DYNAMIC), n: 0 };

#[derive(Debug)]
struct Dynamic {
    server: Server,
    /// Requests without an answer: their codes, and the State that the answer repeats (RFC 5176 §3.3).
    asked: BTreeMap<u64, (Code, Option<Vec<u8>>)>,
}

/// A RadSec connection of the client's.
#[derive(Debug)]
struct Shared {
    framer: Framer,
    /// Whether its server may ask something of sessions; it is refused otherwise.
    may_ask: bool,
}

impl Dynamic {
    fn answer(
        &mut self,
        now: Instant,
        token: u64,
        answer: Result<(), ErrorCause>,
    ) -> Result<(), CommandError> {
        let (asked, state) = self.asked.remove(&token).ok_or(CommandError::UnknownToken)?;
        let mut attributes = self.server.attributes();
        if let Err(cause) = answer {
            attributes.push_u32(kind::ERROR_CAUSE, cause as u32);
        }
        if let Some(state) = state {
            // It came in an attribute.
            let _ = attributes.push_bytes(kind::STATE, &state);
        }
        let code = dynamic::answer(asked, answer.is_ok());
        self.server.command(now, server::Command::Respond { token, code, attributes })
    }
}

#[derive(Debug)]
pub(super) struct RadiusAccess {
    client: Client,
    target: Target,
    accounting: Target,
    dynamic: Option<Dynamic>,
    /// The client's connections that are up: by them its servers ask as well.
    shared: BTreeMap<ConnId, Shared>,
    /// Whether there has been one.
    by_radsec: bool,
    /// What `dynamic` wants done and said, and what is refused without it.
    outputs: Outputs<Event>,
    /// A list whose memory serves the next request.
    spare: Option<Attributes>,
}

impl RadiusAccess {
    pub(super) fn new(config: RadiusConfig, mut rng: SecureRng) -> Result<Self, ConfigError> {
        let dynamic = match config.dynamic {
            Some(dynamic) => {
                let DynamicConfig { clients, freshness } = *dynamic;
                let role = Role::DynamicAuthorization;
                let standard = server::Config::new(clients);
                // "The time window used for duplicate detection MUST be the same" (RFC 5176 §6.3).
                let retain = freshness.map_or(standard.retain, |freshness| freshness.window);
                let server = server::Config { role, streams: role, freshness, retain, ..standard };
                let server = Server::new(server, SecureRng::from_seed(rng.array()))?;
                Some(Dynamic { server, asked: BTreeMap::new() })
            }
            None => None,
        };
        Ok(Self {
            client: Client::new(config.client, rng)?,
            target: config.target,
            accounting: config.accounting,
            dynamic,
            shared: BTreeMap::new(),
            by_radsec: false,
            outputs: Outputs::default(),
            spare: None,
        })
    }
    pub(super) const fn counters(&self) -> &client::Counters {
        self.client.counters()
    }
    pub(super) fn dynamic_counters(&self) -> Option<&server::Counters> {
        self.dynamic.as_ref().map(|dynamic| dynamic.server.counters())
    }
    pub(super) fn recycle(&mut self, reply: Reply) {
        if let Content::Radius(response) = reply.0 {
            self.spare = Some(response.attributes);
        }
    }

    /// The attributes that this writes.
    fn written(
        &mut self,
        write: impl FnOnce(&mut Attributes) -> Result<(), ValueTooLong>,
    ) -> Result<Attributes, CommandError> {
        let mut attributes = self.spare.take().unwrap_or_else(|| self.client.attributes());
        attributes.clear();
        if write(&mut attributes).is_err() {
            self.spare = Some(attributes);
            return Err(CommandError::Invalid("a value does not fit its RADIUS attribute"));
        }
        Ok(attributes)
    }

    pub(super) fn ask(
        &mut self,
        now: Instant,
        nas: &NasIdentity,
        token: u64,
        request: &Request<'_>,
    ) -> Result<(), CommandError> {
        if request.name.is_empty() {
            return Err(CommandError::Invalid("a User-Name has at least one octet"));
        }
        let attributes = self.written(|a| {
            a.push_bytes(kind::USER_NAME, request.name)?;
            nas.introduce(&request.port, a)?;
            if let Some(mtu) = request.port.framed_mtu(nas) {
                a.push_u32(kind::FRAMED_MTU, mtu);
            }
            request.port.stations(a)?;
            a.extend(&nas.attributes);
            if let Some(more) = request.attributes {
                a.extend(more);
            }
            let state = request.continues.map_or(&[][..], |next| next.split().1);
            if !state.is_empty() {
                a.push_bytes(kind::STATE, state)?;
            }
            request.proof.attributes(a)
        })?;
        let (target, code) = (self.target, Code::ACCESS_REQUEST);
        self.client.command(now, Command::Request { token, target, code, attributes })
    }

    /// What a record says: that it is told at once, too, which the client brings up to date (RFC 2866 §5.2).
    pub(super) fn record(
        &mut self,
        nas: &NasIdentity,
        record: &Record<'_>,
    ) -> Result<Attributes, CommandError> {
        self.written(|a| {
            a.push_u32(kind::ACCT_STATUS_TYPE, record.status());
            a.push_text(kind::ACCT_SESSION_ID, record.session)?;
            if record.kind.is_of_server() {
                nas.introduce(&record.port, a)?;
                a.extend(&nas.attributes);
                return Ok(());
            }
            if !record.name.is_empty() {
                // One that fits no attribute is left out: the session's own id and Class say whose it is (RFC 2866 §5.13).
                let _ = a.push_bytes(kind::USER_NAME, record.name);
            }
            nas.introduce(&record.port, a)?;
            record.port.stations(a)?;
            a.push_u32(kind::ACCT_DELAY_TIME, u32::try_from(record.ago.as_secs()).unwrap_or(u32::MAX));
            record.amounts(a)?;
            a.extend(&nas.attributes);
            if let Some(more) = record.attributes {
                a.extend(more);
            }
            Ok(())
        })
    }

    pub(super) fn account(
        &mut self,
        now: Instant,
        token: u64,
        attributes: Attributes,
    ) -> Result<(), CommandError> {
        let (target, code) = (self.accounting, Code::ACCOUNTING_REQUEST);
        self.client.command(now, Command::Request { token, target, code, attributes })
    }

    pub(super) fn cancel(&mut self, now: Instant, token: u64) {
        // There need not be a question: its answer may have come.
        let _ = self.client.command(now, Command::Cancel { token });
    }

    pub(super) fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.client.set_epoch(now, epoch);
        if let Some(dynamic) = &mut self.dynamic {
            dynamic.server.set_epoch(now, epoch);
        }
    }

    pub(super) fn handle(&mut self, now: Instant, nas: &NasIdentity, input: Input<'_>) {
        let entered = input.enter();
        if let (None, Input::Stream { conn, event }) = (entered, input) {
            self.part(now, conn, event);
        } else if let (Some((DYNAMIC, input)), Some(dynamic)) = (entered, &mut self.dynamic) {
            dynamic.server.handle(now, input);
        } else {
            self.client.handle(now, input);
        }
        if let (Input::Timeout, Some(dynamic)) = (input, &mut self.dynamic) {
            dynamic.server.handle(now, input);
        }
        // What is said by a connection is taken while it is known whose it is.
        self.hear_dynamic(now, nas);
        self.forget(now);
    }

    /// Parts what comes by a RadSec connection of the client's: requests are for the server of `dynamic`, or refused, and
    /// answers for the client. What ends the connection for one ends it for both, and nothing behind it is heard.
    fn part(&mut self, now: Instant, conn: ConnId, event: StreamEvent<'_>) {
        const fn given(conn: ConnId, event: StreamEvent<'_>) -> Input<'_> {
            Input::Stream { conn, event }
        }
        let Self { client, dynamic, shared, outputs, .. } = self;
        match (event, shared.get_mut(&conn)) {
            (StreamEvent::Data(mut data), Some(link)) => {
                while let Some(packet) = link.framer.next(&mut data).transpose() {
                    let is_good = match (packet, &mut *dynamic) {
                        (Err(BadLength(_)), _) => false,
                        (Ok(packet), _) if !packet.first().is_some_and(|c| REQUESTS.contains(&Code(*c))) => {
                            client.handle(now, given(conn, StreamEvent::Data(packet)));
                            client.is_connected(conn)
                        }
                        (Ok(packet), Some(dynamic)) if link.may_ask => {
                            dynamic.server.handle(now, given(conn, StreamEvent::Data(packet)));
                            dynamic.server.is_connected(conn)
                        }
                        (Ok(packet), _) => match server::refuse(packet) {
                            Some(nak) if nak.is_empty() => true,
                            Some(nak) => {
                                outputs.transmit(Transmit::Stream { conn, op: StreamOp::Data }, nak);
                                true
                            }
                            None => false,
                        },
                    };
                    if !is_good {
                        return client.abandon(now, conn);
                    }
                }
            }
            (StreamEvent::Connected { remote, local, certificate }, None) => {
                client.handle(now, given(conn, event));
                if !client.is_connected(conn) {
                    return;
                }
                let asking = dynamic.as_mut().filter(|d| d.server.takes(remote.ip(), certificate));
                let may_ask = asking.is_some();
                if let Some(dynamic) = asking {
                    let listener = ListenerId::own(0);
                    let accepted = StreamEvent::Accepted { listener, remote, local, certificate };
                    dynamic.server.handle(now, given(conn, accepted));
                }
                shared.insert(conn, Shared { framer: Framer::new(), may_ask });
                self.by_radsec = true;
            }
            _ => client.handle(now, given(conn, event)),
        }
    }

    /// Forgets the connections that the client has no longer.
    fn forget(&mut self, now: Instant) {
        let Self { client, dynamic, shared, .. } = self;
        shared.retain(|&conn, _| {
            let stays = client.is_connected(conn);
            if let (false, Some(dynamic)) = (stays, &mut *dynamic) {
                let event = StreamEvent::Closed(CloseReason::Closed);
                dynamic.server.handle(now, Input::Stream { conn, event });
            }
            stays
        });
    }

    /// Hands on what is asked of sessions; what no session need be looked at for is refused at once.
    fn hear_dynamic(&mut self, now: Instant, nas: &NasIdentity) {
        while let Some(dynamic) = &mut self.dynamic
            && let Some(event) = {
                let shared = &self.shared;
                dynamic.server.next_event(&mut self.outputs, |transmit| match transmit {
                    Transmit::Stream { conn, .. } if shared.contains_key(conn) => {}
                    _ => transmit.enclose(DYNAMIC),
                })
            }
        {
            let server::Event::Request(asked) = event;
            let (token, code) = (asked.token, asked.code);
            let response = Response {
                token,
                server: 0,
                code,
                attributes: asked.attributes,
                request_authenticator: asked.request_authenticator,
                secret: asked.secret,
            };
            let kind = match code {
                Code::DISCONNECT_REQUEST => DynamicKind::Disconnect,
                _ => DynamicKind::Change,
            };
            let content = Reply(Content::Radius(response));
            let state = content.value(kind::STATE).map(<[u8]>::to_vec);
            dynamic.asked.insert(token, (code, state));
            let request = DynamicRequest { token, kind, session: None, content };
            match request.check(nas) {
                Ok(()) => self.outputs.event(Event::Dynamic(Box::new(request))),
                // It was asked just now.
                Err(cause) => drop(dynamic.answer(now, token, Err(cause))),
            }
        }
    }

    pub(super) fn answer(
        &mut self,
        now: Instant,
        nas: &NasIdentity,
        token: u64,
        answer: Result<(), ErrorCause>,
    ) -> Result<(), CommandError> {
        let dynamic = self.dynamic.as_mut().ok_or(CommandError::UnknownToken)?;
        let done = dynamic.answer(now, token, answer);
        self.hear_dynamic(now, nas);
        done
    }

    pub(super) fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        if let Some(output) = self.outputs.poll(buf) {
            return Some(output);
        }
        Some(match self.client.poll_output(buf)? {
            Output::Transmit(transmit) => Output::Transmit(transmit),
            Output::Work(work) => Output::Work(work),
            Output::Job(job) => match job.what {},
            Output::Event(event) => Output::Event(hear(event)),
        })
    }

    pub(super) fn next_event<E, J>(
        &mut self,
        outputs: &mut Outputs<E, J>,
        outside: impl Fn(&mut Transmit),
    ) -> Option<Event> {
        if self.dynamic.is_some() || self.by_radsec {
            outputs.up_to_event(outside, |buf| self.poll_output(buf))
        } else {
            self.client.next_event(outputs, outside).map(hear)
        }
    }

    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        let client = self.client.poll_timeout();
        let Some(dynamic) = &mut self.dynamic else { return client };
        earliest([client, dynamic.server.poll_timeout()])
    }
}

/// What the client says, in the words of both protocols.
fn hear(event: client::Event) -> Event {
    let response = match event {
        client::Event::Response(response) => response,
        client::Event::TimedOut { token } if token & ACCOUNTING != 0 => {
            return Event::Accounted { token: token & !ACCOUNTING, kept: Err(Failure::Timeout) };
        }
        client::Event::TimedOut { token } => return Event::Failed { token, failure: Failure::Timeout },
        client::Event::Server { server, health, cause } => return Event::Server { server, health, cause },
    };
    let (token, code) = (response.token, response.code);
    if token & ACCOUNTING != 0 {
        let kept = if code == Code::ACCOUNTING_RESPONSE { Ok(()) } else { Err(Failure::BadAnswer) };
        return Event::Accounted { token: token & !ACCOUNTING, kept };
    }
    let reply = Reply(Content::Radius(response));
    match code {
        Code::ACCESS_REJECT => Event::Reject { token, reply },
        Code::ACCESS_CHALLENGE if reply.is_sound() => Event::Challenge { token, reply },
        Code::ACCESS_ACCEPT if reply.is_sound() => Event::Accept { token, reply },
        _ => Event::Failed { token, failure: Failure::BadAnswer },
    }
}
