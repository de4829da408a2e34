//! The server's machine.

use super::cache::{Bounds, Cache, Entry, Handle, Key, Purged, State};
use super::clients::Clients;
use super::stream::Streams;
use super::{
    ClientConfig, Command, Config, ConfigError, Counters, DropSources, Event, MessageAuthenticatorPolicy,
    Request, Role, Transport,
};
use crate::attribute::{Attributes, Vendor, error_cause, kind, read_vendors, vendor};
use crate::auth::{
    self, MessageAuthenticator, Secret, check_accounting_request, check_message_authenticator,
    covered_authenticator, sign_response,
};
use crate::freshness::Seen;
use crate::packet::{self, Code, Packet, TooLong};
use crate::work::WorkMeter;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::collections::hash_state;
use usher_core::{
    CommandError, ConnId, Duration, Input, Instant, Machine, NoJob, Output, OutputOf, Path, SecureRng,
    StreamOp, Transmit, WallTime,
};

/// How many lists are kept for reuse.
const SPARE: usize = 64;

/// What was decided and not carried out yet, in its order. What it carries waits beside it: an entry of the queue is small, since a
/// large one would be copied whole for the smallest of them.
#[derive(Debug, Default)]
pub(super) struct Ready {
    order: VecDeque<Next>,
    loose: VecDeque<(Transmit, Vec<u8>)>,
    requests: VecDeque<Request>,
}

#[derive(Debug)]
enum Next {
    /// The reply of an entry.
    Kept(Handle),
    /// A reply that nothing is kept of.
    Loose,
    /// A request, for the host.
    Request,
}

impl Ready {
    fn keep(&mut self, reply: Handle) {
        self.order.push_back(Next::Kept(reply));
    }
    pub(super) fn loose(&mut self, transmit: Transmit, bytes: Vec<u8>) {
        self.order.push_back(Next::Loose);
        self.loose.push_back((transmit, bytes));
    }
    fn request(&mut self, request: Request) {
        self.order.push_back(Next::Request);
        self.requests.push_back(request);
    }
}

/// How a reply goes back to where its request came from.
fn back(path: Path, conn: Option<ConnId>) -> Transmit {
    conn.map_or(Transmit::Datagram { path }, |conn| Transmit::Stream { conn, op: StreamOp::Data })
}

/// Where a packet came from, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) path: Path,
    pub(super) conn: Option<ConnId>,
    pub(super) client: u32,
    pub(super) role: Role,
}

/// What a packet shows of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    /// Nothing amiss, or nothing that a client would not do.
    Fine,
    /// It does not know the secret, or does not write RADIUS.
    Foreign,
}

/// A RADIUS server; see the [module](super).
#[derive(Debug)]
pub struct Server {
    pub(super) clients: Clients,
    /// Its list of clients is in `clients`.
    pub(super) config: Config,
    /// The wall time at [`Instant::ZERO`].
    epoch: WallTime,
    rng: SecureRng,
    pub(super) cache: Cache,
    pub(super) streams: Streams,
    pub(super) ready: Ready,
    work: WorkMeter,
    pub(super) counters: Counters,
    /// Whence what is dropped came.
    pub(super) sources: DropSources,
    spare_lists: Vec<Attributes>,
    /// Requests for dynamic authorisation with an Event-Timestamp.
    seen: Seen,
}

impl Server {
    /// A server of these clients. Salts are drawn from `rng`.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(mut config: Config, mut rng: SecureRng) -> Result<Self, ConfigError> {
        let clients = core::mem::take(&mut config.clients);
        Ok(Self {
            clients: Clients::new(clients, hash_state(&mut rng))?,
            cache: Cache::new(hash_state(&mut rng), config.retain, Bounds::of(&config)),
            streams: Streams::new(hash_state(&mut rng)),
            config,
            epoch: WallTime::UNIX_EPOCH,
            rng,
            ready: Ready::default(),
            work: WorkMeter::default(),
            counters: Counters::default(),
            sources: DropSources::default(),
            spare_lists: Vec::new(),
            seen: Seen::default(),
        })
    }
    /// Takes another configuration. Requests that wait and replies that are kept stay, as do connections of those
    /// who are still clients; connections of others are closed. The bound on entries holds for new ones.
    ///
    /// # Errors
    /// The configuration contradicts itself, and nothing changed.
    pub fn reload(&mut self, mut config: Config) -> Result<(), ConfigError> {
        let clients = core::mem::take(&mut config.clients);
        self.clients = Clients::new(clients, hash_state(&mut self.rng))?;
        self.cache.bound(config.retain, Bounds::of(&config));
        self.config = config;
        self.reidentify();
        let (clients, streams) = (&self.clients, &self.streams);
        self.cache.renumber(clients.len(), |entry| match entry.conn {
            Some(conn) => streams.client(conn),
            None => clients.find(entry.path.remote.ip()).map(|(index, _)| index),
        });
        Ok(())
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Whence what it dropped came.
    #[must_use]
    pub const fn drop_sources(&self) -> &DropSources {
        &self.sources
    }
    /// Requests being worked on and replies kept.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.cache.len()
    }
    /// The client of an index.
    ///
    /// # Panics
    /// When no [`Request`] of this server had that index.
    #[must_use]
    pub fn client(&self, index: u32) -> &ClientConfig {
        self.clients.get(index)
    }
    /// The client that sends datagrams from an address, and its index; `None` also where the address is of a RadSec
    /// client whose network is the narrower one: who is there has not this client's secret.
    #[must_use]
    pub fn client_at(&self, address: core::net::IpAddr) -> Option<(u32, &ClientConfig)> {
        self.clients.find(address).filter(|(_, c)| !self.clients.narrower_by_radsec(address, c.prefix))
    }
    /// Whether some client may connect by RadSec from an address: any other need not be heard out.
    #[must_use]
    pub fn may_connect(&self, address: core::net::IpAddr) -> bool {
        self.clients.may_connect(address)
    }
    /// Whether a client whose packet came from `source` may name an access server by this address (NAS-IP-Address,
    /// NAS-IPv6-Address): its own, one of its network that is no other client's, or one that it is said to speak for.
    /// The secret proves no more than which client a packet is of; a RadSec client's network says only where it may
    /// connect from.
    #[must_use]
    pub fn speaks_for(&self, client: u32, source: core::net::IpAddr, named: core::net::IpAddr) -> bool {
        named.to_canonical() == source.to_canonical() || self.clients.speaks_for(client, named.to_canonical())
    }
    /// Whether a datagram from an address is a request of a client with a right Message-Authenticator. Nothing is counted
    /// or kept: for hosts that let another server take what is its.
    #[must_use]
    pub fn is_signed(&self, source: core::net::IpAddr, datagram: &[u8]) -> bool {
        let Ok(packet) = Packet::parse(datagram) else { return false };
        self.clients
            .find(source)
            .is_some_and(|(_, config)| matches!(verify(&packet, &config.secret, config), Ok(true)))
    }
    /// An empty list, reused from an earlier command where there is one.
    #[must_use]
    pub fn attributes(&mut self) -> Attributes {
        self.spare_lists.pop().unwrap_or_default()
    }

    fn receive(&mut self, now: Instant, path: Path, data: &[u8]) {
        let Ok(packet) = Packet::parse(data) else {
            self.work.request();
            self.counters.malformed += 1;
            self.sources.malformed = Some((now, path.remote.ip()));
            return;
        };
        let Some((client, _)) = self.clients.find(path.remote.ip()) else {
            self.work.request();
            self.counters.unknown_client += 1;
            self.sources.unknown_client = Some((now, path.remote.ip()));
            return;
        };
        let role = self.config.roles.get(path.socket.n as usize).copied().unwrap_or(self.config.role);
        self.take(now, Origin { path, conn: None, client, role }, &packet);
    }

    /// Whether a request for dynamic authorisation is of now (RFC 5176 §6.3).
    fn is_fresh(&self, now: Instant, packet: &Packet<'_>) -> bool {
        let dynamic = matches!(packet.code(), Code::COA_REQUEST | Code::DISCONNECT_REQUEST);
        let Some(policy) = self.config.freshness.filter(|_| dynamic) else { return true };
        policy.judge(now.wall(self.epoch), packet).unwrap_or(!policy.required)
    }

    /// How long a request is fresh that says of when it is.
    fn window(&self, packet: &Packet<'_>) -> Option<Duration> {
        let dynamic = matches!(packet.code(), Code::COA_REQUEST | Code::DISCONNECT_REQUEST);
        let stamped = dynamic && packet.get(kind::EVENT_TIMESTAMP).is_some();
        self.config.freshness.filter(|_| stamped).map(|freshness| freshness.window)
    }

    /// Takes a packet of a client.
    pub(super) fn take(&mut self, now: Instant, origin: Origin, packet: &Packet<'_>) -> Shown {
        self.work.request();
        let Origin { path, conn, client, role } = origin;
        let config = self.clients.get(client);
        if !role.serves(packet.code()) {
            let counter = match packet.code().name() {
                Some(_) => {
                    self.sources.wrong_code = Some((now, path.remote.ip()));
                    &mut self.counters.wrong_code
                }
                None => &mut self.counters.unknown_code,
            };
            *counter += 1;
            return self.unwanted(now, origin, packet);
        }
        let key = Key::new(&path, conn, packet.identifier());
        let earlier = self.cache.find(&key);
        let same = |entry: &&Entry| {
            entry.expires > now
                && entry.authenticator == *packet.authenticator()
                && entry.code == packet.code()
        };
        let duplicate = earlier.and_then(|handle| self.cache.get(handle)).filter(same);
        if packet.attribute_count() > self.config.max_attributes {
            self.counters.too_many_attributes += 1;
            return Shown::Fine;
        }
        // A duplicate proves the secret that its original proved, which may be another by now.
        let is_duplicate = duplicate.is_some();
        let secret = duplicate.map_or(&config.secret, |entry| &entry.secret).clone();
        let signed = match verify(packet, &secret, config) {
            Ok(signed) => signed,
            Err(Refusal::Authenticator) => {
                self.counters.bad_authenticator += 1;
                self.sources.bad_authenticator = Some((now, origin.path.remote.ip()));
                return Shown::Foreign;
            }
            Err(Refusal::Bad) => {
                self.counters.bad_message_authenticator += 1;
                self.sources.bad_message_authenticator = Some((now, origin.path.remote.ip()));
                return Shown::Foreign;
            }
            Err(Refusal::Missing) => {
                self.counters.missing_message_authenticator += 1;
                self.sources.missing_message_authenticator = Some((now, origin.path.remote.ip()));
                return Shown::Fine;
            }
        };
        if !self.is_fresh(now, packet) {
            self.counters.stale += 1;
            return Shown::Fine;
        }
        if let Some(handle) = earlier.filter(|_| is_duplicate) {
            self.repeat(handle);
            return Shown::Fine;
        }
        let window = self.window(packet);
        if window.is_some() && self.seen.contains(packet.authenticator()) {
            self.counters.duplicates_dropped += 1;
            return Shown::Fine;
        }
        if packet.code() == Code::STATUS_SERVER {
            self.status(origin, packet, &secret);
            return Shown::Fine;
        }
        let mut purged = Purged::default();
        if let Some(handle) = earlier {
            let waiting = self.cache.get(handle).is_some_and(|e| e.state == State::Waiting);
            self.cache.remove(handle);
            self.counters.superseded += u64::from(waiting);
        }
        self.cache.purge(now, 2, &mut purged);
        if self.cache.waiting_of(client) >= self.config.max_waiting {
            self.note(purged);
            self.counters.client_overload += 1;
            return Shown::Fine;
        }
        let room = self.cache.make_room(&mut purged);
        self.note(purged);
        if !room {
            self.counters.overload += 1;
            return Shown::Fine;
        }
        let mut bytes = Vec::new();
        if packet.get(kind::PROXY_STATE).is_some() {
            for a in packet.attributes().filter(|a| a.kind == kind::PROXY_STATE) {
                bytes.extend_from_slice(&[a.kind, a.value.len() as u8 + 2]);
                bytes.extend_from_slice(a.value);
            }
        }
        let authenticator = *packet.authenticator();
        if let Some(window) = window {
            self.seen.insert(now, authenticator, window);
        }
        let handle = self.cache.insert(
            now,
            Entry {
                path,
                conn,
                authenticator,
                bytes,
                client,
                secret: secret.clone(),
                identifier: packet.identifier(),
                code: packet.code(),
                signed,
                state: State::Waiting,
                queued: false,
                expires: now + self.config.patience,
            },
        );
        let mut attributes = self.attributes();
        attributes.refill(packet);
        self.counters.requests += 1;
        self.ready.request(Request {
            token: handle.token(),
            client,
            path,
            conn,
            code: packet.code(),
            identifier: packet.identifier(),
            attributes,
            request_authenticator: authenticator,
            secret,
        });
        Shown::Fine
    }

    /// A request came again: what it was answered it is answered again, and nothing while it has no answer.
    fn repeat(&mut self, handle: Handle) {
        let Some(entry) = self.cache.get_mut(handle) else { return };
        if entry.state != State::Answered {
            self.counters.duplicates_dropped += 1;
            return;
        }
        if !entry.queued {
            entry.queued = true;
            self.ready.keep(handle);
        }
        self.counters.duplicates_answered += 1;
    }

    /// A request of a kind that is not served. By RadSec, whose one port says nothing of what is served, its client is
    /// told (RFC 6614 §2.5).
    fn unwanted(&mut self, now: Instant, origin: Origin, packet: &Packet<'_>) -> Shown {
        let Some(code) = refusal(packet.code()).filter(|_| origin.conn.is_some()) else { return Shown::Fine };
        let config = self.clients.get(origin.client);
        let secret = config.secret.clone();
        let signed = match verify(packet, &secret, config) {
            Ok(signed) => signed,
            Err(Refusal::Authenticator) => {
                self.counters.bad_authenticator += 1;
                self.sources.bad_authenticator = Some((now, origin.path.remote.ip()));
                return Shown::Foreign;
            }
            Err(Refusal::Bad | Refusal::Missing) => {
                self.counters.bad_message_authenticator += 1;
                self.sources.bad_message_authenticator = Some((now, origin.path.remote.ip()));
                return Shown::Foreign;
            }
        };
        let mut list = self.attributes();
        unsupported(packet, &mut list);
        self.reply_at_once(origin, packet, code, signed, list, &secret);
        Shown::Fine
    }

    /// Answers a request of which nothing is kept; whether the answer fits a packet.
    fn reply_at_once(
        &mut self,
        origin: Origin,
        packet: &Packet<'_>,
        code: Code,
        message_authenticator: bool,
        list: Attributes,
        secret: &Secret,
    ) -> bool {
        let mut out = self.cache.buffer();
        let (identifier, request_authenticator) = (packet.identifier(), packet.authenticator());
        let reply = Reply { code, identifier, request_authenticator, message_authenticator, salt: 0 };
        let fits = encode(&mut out, &reply, &list, &[], secret).is_ok();
        if fits {
            self.ready.loose(back(origin.path, origin.conn), out);
        }
        self.recycle(list);
        fits
    }

    fn note(&mut self, purged: Purged) {
        self.counters.expired += purged.expired;
        self.counters.evicted += purged.evicted;
    }

    /// Answers a Status-Server (RFC 5997 §4.2): at once, without the duplicate cache, and whatever else it says (§3).
    fn status(&mut self, origin: Origin, packet: &Packet<'_>, secret: &Secret) {
        let code = match origin.role {
            Role::Accounting => Code::ACCOUNTING_RESPONSE,
            _ => Code::ACCESS_ACCEPT,
        };
        let list = self.attributes();
        if self.reply_at_once(origin, packet, code, true, list, secret) {
            self.counters.status += 1;
        }
    }

    fn respond(
        &mut self,
        now: Instant,
        token: u64,
        code: Code,
        attributes: Attributes,
    ) -> Result<(), CommandError> {
        let handle = Handle::from_token(token);
        let mut out = self.cache.buffer();
        let entry = self.cache.get(handle).ok_or(CommandError::UnknownToken)?;
        if entry.state != State::Waiting {
            return Err(CommandError::WrongState("this request has its answer"));
        }
        if !code.answers(entry.code) {
            return Err(CommandError::Invalid("the code does not answer this request"));
        }
        if attributes.get(kind::MESSAGE_AUTHENTICATOR).is_some() {
            return Err(CommandError::Invalid("the server puts the Message-Authenticator in"));
        }
        let given = attributes.get(kind::PROXY_STATE).is_some();
        let reply = Reply {
            code,
            identifier: entry.identifier,
            request_authenticator: &entry.authenticator,
            message_authenticator: entry.signed || entry.code == Code::ACCESS_REQUEST,
            salt: if attributes.has_hidden() { self.rng.next_u32() as u16 } else { 0 },
        };
        let proxy_state = if given { &[][..] } else { &entry.bytes };
        if encode(&mut out, &reply, &attributes, proxy_state, &entry.secret).is_err() {
            self.cache.recycle(out);
            return Err(CommandError::Invalid("the attributes do not fit a packet of 4096 octets"));
        }
        if let Some(entry) = self.cache.get_mut(handle) {
            entry.queued = true;
        }
        self.cache.put(handle, out);
        self.cache.settle(handle, State::Answered, now + self.config.retain);
        self.ready.keep(handle);
        self.counters.responses += 1;
        self.recycle(attributes);
        Ok(())
    }

    /// Takes a request's list back, for [`attributes`](Self::attributes) to give out again.
    pub fn recycle(&mut self, list: Attributes) {
        if self.spare_lists.len() < SPARE {
            self.spare_lists.push(list);
            // Where it lies: to move what has just been written in part is slow.
            if let Some(list) = self.spare_lists.last_mut() {
                list.clear();
            }
        }
    }
}

/// By what code a request is refused whose kind is not served (RFC 6614 §2.5).
fn refusal(code: Code) -> Option<Code> {
    match code {
        Code::ACCOUNTING_REQUEST => Some(Code::ACCOUNTING_RESPONSE),
        Code::COA_REQUEST => Some(Code::COA_NAK),
        Code::DISCONNECT_REQUEST => Some(Code::DISCONNECT_NAK),
        _ => None,
    }
}

/// What that says.
fn unsupported(packet: &Packet<'_>, list: &mut Attributes) {
    list.push_u32(kind::ERROR_CAUSE, error_cause::UNSUPPORTED_EXTENSION);
    for a in packet.attributes().filter(|a| a.kind == kind::PROXY_STATE) {
        list.push_concat(a.kind, a.value);
    }
}

/// The NAK, with Error-Cause 406, that a RadSec client answers to a CoA- or Disconnect-Request where it takes none from
/// the server of the connection (RFC 6614 §2.5); empty where it fits no packet. `None`: what came is no such request, or
/// does not know the secret, and its connection is to be given up (RFC 6613 §2.6.4).
#[must_use]
pub fn refuse(request: &[u8]) -> Option<Vec<u8>> {
    let packet = Packet::parse(request).ok()?;
    let code = refusal(packet.code())?;
    let config = ClientConfig::radsec(core::net::Ipv4Addr::UNSPECIFIED.into(), 0, Vec::new());
    let message_authenticator = verify(&packet, &config.secret, &config).ok()?;
    let mut list = Attributes::new();
    unsupported(&packet, &mut list);
    let (identifier, request_authenticator) = (packet.identifier(), packet.authenticator());
    let reply = Reply { code, identifier, request_authenticator, message_authenticator, salt: 0 };
    let mut out = Vec::new();
    let fits = encode(&mut out, &reply, &list, &[], &config.secret).is_ok();
    Some(if fits { out } else { Vec::new() })
}

/// Why a request is not believed.
enum Refusal {
    Authenticator,
    Bad,
    Missing,
}

/// Whether an Access-Request carries something that proves its user, in an attribute of RFC 2865, 2548 or 2869.
fn proves_somebody(packet: &Packet<'_>) -> bool {
    const PROOFS: [u8; 4] = [kind::USER_PASSWORD, kind::CHAP_PASSWORD, ARAP_PASSWORD, kind::EAP_MESSAGE];
    let microsoft = |v: Vendor<'_>| {
        v.vendor == vendor::MICROSOFT
            && matches!(v.kind, vendor::MS_CHAP_RESPONSE | vendor::MS_CHAP2_RESPONSE)
    };
    packet.attributes().any(|a| PROOFS.contains(&a.kind)) || read_vendors(packet.attributes()).any(microsoft)
}

/// ARAP-Password (RFC 2869 §5.4).
const ARAP_PASSWORD: u8 = 70;

/// Whether a request is genuine; answers whether it has a Message-Authenticator.
fn verify(packet: &Packet<'_>, secret: &Secret, config: &ClientConfig) -> Result<bool, Refusal> {
    let computed = !matches!(packet.code(), Code::ACCESS_REQUEST | Code::STATUS_SERVER);
    if computed && !check_accounting_request(packet, secret) {
        return Err(Refusal::Authenticator);
    }
    let covered = covered_authenticator(packet.code(), packet.authenticator(), None);
    match check_message_authenticator(packet, &covered, secret) {
        MessageAuthenticator::Good => Ok(true),
        MessageAuthenticator::Bad => Err(Refusal::Bad),
        MessageAuthenticator::Absent => {
            let required = match packet.code() {
                Code::STATUS_SERVER => true,
                Code::ACCESS_REQUEST => {
                    let policy = match config.message_authenticator {
                        MessageAuthenticatorPolicy::Required => true,
                        MessageAuthenticatorPolicy::ProxyState => packet.get(kind::PROXY_STATE).is_some(),
                        MessageAuthenticatorPolicy::Off => false,
                    };
                    // By datagrams nothing else would show where it is from (RFC 3579 §3.3, note 1).
                    let bare = config.transport == Transport::Udp && !proves_somebody(packet);
                    policy || packet.get(kind::EAP_MESSAGE).is_some() || bare
                }
                _ => false,
            };
            if required { Err(Refusal::Missing) } else { Ok(false) }
        }
    }
}

/// What a reply is besides its attributes.
struct Reply<'a> {
    code: Code,
    identifier: u8,
    request_authenticator: &'a [u8; 16],
    message_authenticator: bool,
    salt: u16,
}

fn encode(
    out: &mut Vec<u8>,
    reply: &Reply<'_>,
    attributes: &Attributes,
    proxy_state: &[u8],
    secret: &Secret,
) -> Result<(), TooLong> {
    let room = packet::HEADER_LEN + auth::MESSAGE_AUTHENTICATOR_LEN + attributes.len() + proxy_state.len();
    out.reserve(room);
    packet::begin(out, reply.code, reply.identifier, reply.request_authenticator);
    if reply.message_authenticator {
        auth::reserve(out);
    }
    attributes.emit(out, secret.as_bytes(), reply.request_authenticator, reply.salt);
    out.extend_from_slice(proxy_state);
    packet::finish(out, 0)?;
    sign_response(out, reply.message_authenticator, reply.request_authenticator, secret);
    Ok(())
}

impl Machine for Server {
    type Command = Command;
    type Event = Event;
    type Job = NoJob;

    fn set_epoch(&mut self, _: Instant, epoch: WallTime) {
        self.epoch = epoch;
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Datagram { path, data } => self.receive(now, path, data),
            Input::Timeout => {
                let mut purged = Purged::default();
                self.cache.sweep(now, &mut purged);
                self.note(purged);
            }
            Input::Stream { conn, event } => self.stream(now, conn, event),
            Input::Message { .. } | Input::Frame { .. } => {
                self.counters.not_a_datagram += 1;
            }
        }
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Respond { token, code, attributes } => self.respond(now, token, code, attributes),
            Command::Discard { token } => {
                let handle = Handle::from_token(token);
                let entry = self.cache.get(handle).ok_or(CommandError::UnknownToken)?;
                if entry.state != State::Waiting {
                    return Err(CommandError::WrongState("this request has its answer"));
                }
                self.cache.settle(handle, State::Discarded, now + self.config.retain);
                self.counters.discarded += 1;
                Ok(())
            }
        }
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        let transmit = loop {
            match self.ready.order.pop_front() {
                Some(Next::Request) => {
                    return self.ready.requests.pop_front().map(|asked| Output::Event(Event::Request(asked)));
                }
                Some(Next::Loose) => {
                    let (transmit, bytes) = self.ready.loose.pop_front()?;
                    buf.clear();
                    if bytes.is_empty() {
                        return Some(Output::Transmit(transmit));
                    }
                    buf.extend_from_slice(&bytes);
                    self.cache.recycle(bytes);
                    break transmit;
                }
                Some(Next::Kept(handle)) => {
                    let Some(entry) = self.cache.get_mut(handle) else { continue };
                    entry.queued = false;
                    buf.clear();
                    buf.extend_from_slice(&entry.bytes);
                    break back(entry.path, entry.conn);
                }
                None => return self.work.poll().map(Output::Work),
            }
        };
        self.work.response();
        Some(Output::Transmit(transmit))
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.cache.next_sweep()
    }
}

#[cfg(test)]
mod tests;
