//! The state machine of the server.

use super::cache::{
    CacheEntry, DuplicateCache, DuplicateCacheHandle, DuplicateCacheKey, DuplicateCacheLimits,
    RemovedEntryCounts, RequestState,
};
use super::clients::ClientNetworkTable;
use super::stream::ConnectionTable;
use super::{
    ClientConfig, ClientTransport, ConfigError, LatestDropSources, MessageAuthenticatorPolicy, PortRole,
    RadiusRequest, RadiusServerCommand, RadiusServerConfig, RadiusServerCounters, RadiusServerEvent,
};
use crate::attribute::{AttributeList, VendorAttribute, error_cause, kind, read_vendors, vendor};
use crate::auth::{
    self, MessageAuthenticator, SharedSecret, check_accounting_request, check_message_authenticator,
    covered_authenticator, sign_response,
};
use crate::freshness::RequestAuthenticatorCache;
use crate::packet::{self, PacketCode, RadiusPacket, TooLong};
use crate::work::WorkMeter;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::collections::hash_state;
use usher_core::{
    CommandError, ConnId, DatagramPath, Duration, Instant, Machine, MachineInput, MachineOutput,
    MachineOutputOf, NoJob, SecureRng, StreamOp, Transmit, WallTime,
};

/// The number of lists kept for reuse.
const SPARE: usize = 64;

/// The queue of outputs that are decided and not yet carried out, in order. Their contents wait beside it. The entries
/// stay small: an enum moves every entry at the size of the largest.
#[derive(Debug, Default)]
pub(super) struct ServerOutputQueue {
    order: VecDeque<QueuedServerOutput>,
    loose: VecDeque<(Transmit, Vec<u8>)>,
    requests: VecDeque<RadiusRequest>,
}

#[derive(Debug)]
enum QueuedServerOutput {
    /// The reply of a cache entry.
    Cached(DuplicateCacheHandle),
    /// A reply that is not cached.
    Loose,
    /// A request for the host.
    Request,
}

impl ServerOutputQueue {
    fn push_cached_reply(&mut self, reply: DuplicateCacheHandle) {
        self.order.push_back(QueuedServerOutput::Cached(reply));
    }
    pub(super) fn push_transmit(&mut self, transmit: Transmit, bytes: Vec<u8>) {
        self.order.push_back(QueuedServerOutput::Loose);
        self.loose.push_back((transmit, bytes));
    }
    fn push_request(&mut self, request: RadiusRequest) {
        self.order.push_back(QueuedServerOutput::Request);
        self.requests.push_back(request);
    }
}

/// Returns the path of a reply to the source of its request.
fn reply_transmit(path: DatagramPath, conn: Option<ConnId>) -> Transmit {
    // RFC 2865, 3; RFC 6613, 2.6: a reply leaves by the ports or the connection of its request.
    conn.map_or(Transmit::Datagram { path }, |conn| Transmit::Stream { conn, op: StreamOp::Data })
}

/// The source of a packet and its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketOrigin {
    pub(super) path: DatagramPath,
    pub(super) conn: Option<ConnId>,
    pub(super) client: u32,
    pub(super) role: PortRole,
}

/// The verdict of a packet on its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SenderPlausibility {
    /// A plausible client: valid, or an error that a client could cause.
    Fine,
    /// The sender does not know the secret or does not speak RADIUS.
    Foreign,
}

/// A RADIUS server; see the [module](super).
#[derive(Debug)]
pub struct RadiusServer {
    pub(super) clients: ClientNetworkTable,
    /// The configuration; the list of clients is in `clients`.
    pub(super) config: RadiusServerConfig,
    /// The wall time at [`Instant::ZERO`].
    epoch: WallTime,
    rng: SecureRng,
    pub(super) cache: DuplicateCache,
    pub(super) streams: ConnectionTable,
    pub(super) ready: ServerOutputQueue,
    work: WorkMeter,
    pub(super) counters: RadiusServerCounters,
    /// The sources of dropped packets.
    pub(super) sources: LatestDropSources,
    spare_lists: Vec<AttributeList>,
    /// Requests for dynamic authorization with an Event-Timestamp.
    replay_cache: RequestAuthenticatorCache,
}

impl RadiusServer {
    /// A server of these clients. It draws salts from `rng`.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(mut config: RadiusServerConfig, mut rng: SecureRng) -> Result<Self, ConfigError> {
        let clients = core::mem::take(&mut config.clients);
        Ok(Self {
            clients: ClientNetworkTable::new(clients, hash_state(&mut rng))?,
            cache: DuplicateCache::new(
                hash_state(&mut rng),
                config.retain,
                DuplicateCacheLimits::from_config(&config),
            ),
            streams: ConnectionTable::new(hash_state(&mut rng)),
            config,
            epoch: WallTime::UNIX_EPOCH,
            rng,
            ready: ServerOutputQueue::default(),
            work: WorkMeter::default(),
            counters: RadiusServerCounters::default(),
            sources: LatestDropSources::default(),
            spare_lists: Vec::new(),
            replay_cache: RequestAuthenticatorCache::default(),
        })
    }
    /// Applies a new configuration. Pending requests and kept replies stay, as do the connections of remaining clients.
    /// The connections of other clients are closed. The limit of entries applies to new entries.
    ///
    /// # Errors
    /// If the configuration is invalid. It then changes nothing.
    pub fn reload_config(&mut self, mut config: RadiusServerConfig) -> Result<(), ConfigError> {
        let clients = core::mem::take(&mut config.clients);
        self.clients = ClientNetworkTable::new(clients, hash_state(&mut self.rng))?;
        self.cache.set_cache_limits(config.retain, DuplicateCacheLimits::from_config(&config));
        self.config = config;
        self.reidentify_connections();
        let (clients, streams) = (&self.clients, &self.streams);
        self.cache.renumber_clients(clients.len(), |entry| match entry.conn {
            Some(conn) => streams.client_index(conn),
            None => clients.find_by_address(entry.path.remote.ip()).map(|(index, _)| index),
        });
        Ok(())
    }
    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &RadiusServerCounters {
        &self.counters
    }
    /// The sources of dropped packets.
    #[must_use]
    pub const fn drop_sources(&self) -> &LatestDropSources {
        &self.sources
    }
    /// The number of pending requests and kept replies.
    #[must_use]
    pub fn entry_count(&self) -> usize {
        self.cache.len()
    }
    /// The client of an index.
    ///
    /// # Panics
    /// If no [`RadiusRequest`] of this server had this index.
    #[must_use]
    pub fn client_config(&self, index: u32) -> &ClientConfig {
        self.clients.get(index)
    }
    /// Returns the client that sends datagrams from an address, and its index. `None` also if a RadSec client has a
    /// longer prefix for the address: its hosts do not have this client's secret.
    #[must_use]
    pub fn find_datagram_client(&self, address: core::net::IpAddr) -> Option<(u32, &ClientConfig)> {
        self.clients
            .find_by_address(address)
            .filter(|(_, c)| !self.clients.has_narrower_radsec_client(address, c.prefix))
    }
    /// True if some client may connect by RadSec from this address. The host may close other connections at once.
    #[must_use]
    pub fn may_connect(&self, address: core::net::IpAddr) -> bool {
        self.clients.may_connect(address)
    }
    /// True if a client, with a packet from `source`, may name an access server by this address (NAS-IP-Address,
    /// NAS-IPv6-Address).
    ///
    /// It may name its own address, an address of its network that no other client has, or one in
    /// [`ClientConfig::speaks_for`]. The secret proves only the client of a packet; the network of a RadSec client only
    /// limits its connections.
    #[must_use]
    pub fn speaks_for(&self, client: u32, source: core::net::IpAddr, named: core::net::IpAddr) -> bool {
        named.to_canonical() == source.to_canonical() || self.clients.speaks_for(client, named.to_canonical())
    }
    /// True if a datagram is a request of a client with a valid Message-Authenticator. It counts and keeps nothing. A
    /// host uses it before it lets another server take over a request.
    #[must_use]
    pub fn is_signed(&self, source: core::net::IpAddr, datagram: &[u8]) -> bool {
        let Ok(packet) = RadiusPacket::parse(datagram) else { return false };
        self.clients
            .find_by_address(source)
            .is_some_and(|(_, config)| matches!(verify_request(&packet, &config.secret, config), Ok(true)))
    }
    /// Returns an empty list, reused from an earlier command if possible.
    #[must_use]
    pub fn take_attributes(&mut self) -> AttributeList {
        self.spare_lists.pop().unwrap_or_default()
    }

    fn receive_datagram(&mut self, now: Instant, path: DatagramPath, data: &[u8]) {
        let Ok(packet) = RadiusPacket::parse(data) else {
            self.work.count_request();
            self.counters.malformed += 1;
            self.sources.malformed = Some((now, path.remote.ip()));
            return;
        };
        // RFC 2865, 2, 3, 5.4, 5.32; RFC 5997, 4.2: only the source address gives the secret; strangers are dropped.
        let Some((client, _)) = self.clients.find_by_address(path.remote.ip()) else {
            self.work.count_request();
            self.counters.unknown_client += 1;
            self.sources.unknown_client = Some((now, path.remote.ip()));
            return;
        };
        let role = self.config.roles.get(path.socket.n as usize).copied().unwrap_or(self.config.role);
        self.process_packet(now, PacketOrigin { path, conn: None, client, role }, &packet);
    }

    /// True if a request for dynamic authorization is fresh (RFC 5176 §6.3).
    fn is_request_fresh(&self, now: Instant, packet: &RadiusPacket<'_>) -> bool {
        let dynamic = matches!(packet.code(), PacketCode::COA_REQUEST | PacketCode::DISCONNECT_REQUEST);
        let Some(policy) = self.config.freshness.filter(|_| dynamic) else { return true };
        policy.is_timestamp_in_window(now.to_wall_time(self.epoch), packet).unwrap_or(!policy.required)
    }

    /// Returns the time for which a request with an Event-Timestamp is fresh.
    fn freshness_window(&self, packet: &RadiusPacket<'_>) -> Option<Duration> {
        let dynamic = matches!(packet.code(), PacketCode::COA_REQUEST | PacketCode::DISCONNECT_REQUEST);
        let stamped = dynamic && packet.get(kind::EVENT_TIMESTAMP).is_some();
        self.config.freshness.filter(|_| stamped).map(|freshness| freshness.window)
    }

    /// Handles a packet of a client.
    pub(super) fn process_packet(
        &mut self,
        now: Instant,
        origin: PacketOrigin,
        packet: &RadiusPacket<'_>,
    ) -> SenderPlausibility {
        self.work.count_request();
        let PacketOrigin { path, conn, client, role } = origin;
        let config = self.clients.get(client);
        // RFC 2865, 3; RFC 5176, 2.3, 6.1: codes that this port does not serve are dropped.
        if !role.accepts_code(packet.code()) {
            let counter = match packet.code().name() {
                Some(_) => {
                    self.sources.wrong_code = Some((now, path.remote.ip()));
                    &mut self.counters.wrong_code
                }
                None => &mut self.counters.unknown_code,
            };
            *counter += 1;
            return self.reply_unsupported_request(now, origin, packet);
        }
        let key = DuplicateCacheKey::new(&path, conn, packet.identifier());
        let earlier = self.cache.find_handle(&key);
        let same = |entry: &&CacheEntry| {
            entry.expires > now
                && entry.authenticator == *packet.authenticator()
                && entry.code == packet.code()
        };
        let duplicate = earlier.and_then(|handle| self.cache.get(handle)).filter(same);
        if packet.attribute_count() > self.config.max_attributes {
            self.counters.too_many_attributes += 1;
            return SenderPlausibility::Fine;
        }
        // RFC 5080, 2.2.2: a duplicate is verified, with the secret of its original.
        let is_duplicate = duplicate.is_some();
        let secret = duplicate.map_or(&config.secret, |entry| &entry.secret).clone();
        let signed = match verify_request(packet, &secret, config) {
            Ok(signed) => signed,
            Err(VerificationError::Authenticator) => {
                self.counters.bad_authenticator += 1;
                self.sources.bad_authenticator = Some((now, origin.path.remote.ip()));
                return SenderPlausibility::Foreign;
            }
            Err(VerificationError::Bad) => {
                self.counters.bad_message_authenticator += 1;
                self.sources.bad_message_authenticator = Some((now, origin.path.remote.ip()));
                return SenderPlausibility::Foreign;
            }
            Err(VerificationError::Missing) => {
                self.counters.missing_message_authenticator += 1;
                self.sources.missing_message_authenticator = Some((now, origin.path.remote.ip()));
                return SenderPlausibility::Fine;
            }
        };
        if !self.is_request_fresh(now, packet) {
            self.counters.stale += 1;
            return SenderPlausibility::Fine;
        }
        // RFC 5080, 2.2.2: a duplicate gets the same reply. It is dropped while its original waits.
        if let Some(handle) = earlier.filter(|_| is_duplicate) {
            self.queue_duplicate_reply(handle);
            return SenderPlausibility::Fine;
        }
        let window = self.freshness_window(packet);
        if window.is_some() && self.replay_cache.contains(packet.authenticator()) {
            self.counters.duplicates_dropped += 1;
            return SenderPlausibility::Fine;
        }
        // RFC 5997, 2, 3, 4.4: a Status-Server is answered here, once, and never forwarded.
        if packet.code() == PacketCode::STATUS_SERVER {
            self.answer_status_server(origin, packet, &secret);
            return SenderPlausibility::Fine;
        }
        let mut purged = RemovedEntryCounts::default();
        // RFC 5080, 2.2.2: a new authenticator supersedes the request that held its identifier.
        if let Some(handle) = earlier {
            let waiting = self.cache.get(handle).is_some_and(|e| e.state == RequestState::Waiting);
            self.cache.remove(handle);
            self.counters.superseded += u64::from(waiting);
        }
        self.cache.purge_expired(now, 2, &mut purged);
        if self.cache.waiting_of(client) >= self.config.max_waiting {
            self.count_purged_entries(purged);
            self.counters.client_overload += 1;
            return SenderPlausibility::Fine;
        }
        let room = self.cache.evict_for_entry(&mut purged);
        self.count_purged_entries(purged);
        if !room {
            self.counters.overload += 1;
            return SenderPlausibility::Fine;
        }
        let mut bytes = Vec::new();
        // RFC 2865, 2, 5.33; RFC 2866, 2.1: the reply returns each Proxy-State unmodified, in order.
        if packet.get(kind::PROXY_STATE).is_some() {
            for a in packet.attributes().filter(|a| a.kind == kind::PROXY_STATE) {
                bytes.extend_from_slice(&[a.kind, a.value.len() as u8 + 2]);
                bytes.extend_from_slice(a.value);
            }
        }
        let authenticator = *packet.authenticator();
        if let Some(window) = window {
            self.replay_cache.insert(now, authenticator, window);
        }
        let handle = self.cache.insert(
            now,
            CacheEntry {
                path,
                conn,
                authenticator,
                bytes,
                client,
                secret: secret.clone(),
                identifier: packet.identifier(),
                code: packet.code(),
                signed,
                state: RequestState::Waiting,
                queued: false,
                expires: now + self.config.pending_timeout,
            },
        );
        let mut attributes = self.take_attributes();
        attributes.replace_with_packet_attributes(packet);
        self.counters.requests += 1;
        self.ready.push_request(RadiusRequest {
            token: handle.to_token(),
            client,
            path,
            conn,
            code: packet.code(),
            identifier: packet.identifier(),
            attributes,
            request_authenticator: authenticator,
            secret,
        });
        SenderPlausibility::Fine
    }

    /// Repeats the reply to a duplicate. Without a reply yet, it sends nothing.
    fn queue_duplicate_reply(&mut self, handle: DuplicateCacheHandle) {
        let Some(entry) = self.cache.get_mut(handle) else { return };
        if entry.state != RequestState::Answered {
            self.counters.duplicates_dropped += 1;
            return;
        }
        if !entry.queued {
            entry.queued = true;
            self.ready.push_cached_reply(handle);
        }
        self.counters.duplicates_answered += 1;
    }

    /// Handles a request of an unsupported kind. By RadSec the client gets an error reply, since its single port does
    /// not show the supported kinds (RFC 6614 §2.5).
    fn reply_unsupported_request(
        &mut self,
        now: Instant,
        origin: PacketOrigin,
        packet: &RadiusPacket<'_>,
    ) -> SenderPlausibility {
        let Some(code) = refusal_code(packet.code()).filter(|_| origin.conn.is_some()) else {
            return SenderPlausibility::Fine;
        };
        let config = self.clients.get(origin.client);
        let secret = config.secret.clone();
        let signed = match verify_request(packet, &secret, config) {
            Ok(signed) => signed,
            Err(VerificationError::Authenticator) => {
                self.counters.bad_authenticator += 1;
                self.sources.bad_authenticator = Some((now, origin.path.remote.ip()));
                return SenderPlausibility::Foreign;
            }
            Err(VerificationError::Bad | VerificationError::Missing) => {
                self.counters.bad_message_authenticator += 1;
                self.sources.bad_message_authenticator = Some((now, origin.path.remote.ip()));
                return SenderPlausibility::Foreign;
            }
        };
        let mut list = self.take_attributes();
        push_unsupported(packet, &mut list);
        self.send_uncached_reply(origin, packet, code, signed, list, &secret);
        SenderPlausibility::Fine
    }

    /// Sends a reply that is not cached. Returns false if it exceeds a packet.
    fn send_uncached_reply(
        &mut self,
        origin: PacketOrigin,
        packet: &RadiusPacket<'_>,
        code: PacketCode,
        message_authenticator: bool,
        list: AttributeList,
        secret: &SharedSecret,
    ) -> bool {
        let mut out = self.cache.take_buffer();
        let (identifier, request_authenticator) = (packet.identifier(), packet.authenticator());
        let reply = ReplyHeader { code, identifier, request_authenticator, message_authenticator, salt: 0 };
        let fits = encode_reply(&mut out, &reply, &list, &[], secret).is_ok();
        if fits {
            self.ready.push_transmit(reply_transmit(origin.path, origin.conn), out);
        }
        self.recycle_attributes(list);
        fits
    }

    fn count_purged_entries(&mut self, purged: RemovedEntryCounts) {
        self.counters.expired += purged.expired;
        self.counters.evicted += purged.evicted;
    }

    /// Answers a Status-Server at once, without the duplicate cache (RFC 5997 §4.2), regardless of its other attributes
    /// (§3).
    fn answer_status_server(
        &mut self,
        origin: PacketOrigin,
        packet: &RadiusPacket<'_>,
        secret: &SharedSecret,
    ) {
        let code = match origin.role {
            PortRole::Accounting => PacketCode::ACCOUNTING_RESPONSE,
            _ => PacketCode::ACCESS_ACCEPT,
        };
        let list = self.take_attributes();
        if self.send_uncached_reply(origin, packet, code, true, list, secret) {
            self.counters.status += 1;
        }
    }

    fn send_reply(
        &mut self,
        now: Instant,
        token: u64,
        code: PacketCode,
        attributes: AttributeList,
    ) -> Result<(), CommandError> {
        let handle = DuplicateCacheHandle::from_token(token);
        let mut out = self.cache.take_buffer();
        let entry = self.cache.get(handle).ok_or(CommandError::UnknownToken)?;
        if entry.state != RequestState::Waiting {
            return Err(CommandError::WrongState("the request already has its reply"));
        }
        if !code.is_reply_code_for(entry.code) {
            return Err(CommandError::Invalid("the code does not answer this request"));
        }
        if attributes.get(kind::MESSAGE_AUTHENTICATOR).is_some() {
            return Err(CommandError::Invalid("the server itself adds the Message-Authenticator"));
        }
        let given = attributes.get(kind::PROXY_STATE).is_some();
        let reply = ReplyHeader {
            code,
            identifier: entry.identifier,
            request_authenticator: &entry.authenticator,
            // RFC 2869, 5.13; RFC 3579, 3.1: every reply with EAP-Message has a Message-Authenticator.
            message_authenticator: entry.signed || entry.code == PacketCode::ACCESS_REQUEST,
            salt: if attributes.has_hidden() { self.rng.next_u32() as u16 } else { 0 },
        };
        let proxy_state = if given { &[][..] } else { &entry.bytes };
        if encode_reply(&mut out, &reply, &attributes, proxy_state, &entry.secret).is_err() {
            self.cache.recycle_buffer(out);
            return Err(CommandError::Invalid("the attributes do not fit a packet of 4096 octets"));
        }
        if let Some(entry) = self.cache.get_mut(handle) {
            entry.queued = true;
        }
        self.cache.replace_cached_bytes(handle, out);
        self.cache.set_final_state(handle, RequestState::Answered, now + self.config.retain);
        self.ready.push_cached_reply(handle);
        self.counters.responses += 1;
        self.recycle_attributes(attributes);
        Ok(())
    }

    /// Takes the list of a request back, for [`take_attributes`](Self::take_attributes) to reuse.
    pub fn recycle_attributes(&mut self, list: AttributeList) {
        if self.spare_lists.len() < SPARE {
            self.spare_lists.push(list);
            // The list is cleared in its place, since moving data that was just written is slow.
            if let Some(list) = self.spare_lists.last_mut() {
                list.clear();
            }
        }
    }
}

/// Returns the code that rejects a request of an unsupported kind (RFC 6614 §2.5).
fn refusal_code(code: PacketCode) -> Option<PacketCode> {
    match code {
        PacketCode::ACCOUNTING_REQUEST => Some(PacketCode::ACCOUNTING_RESPONSE),
        PacketCode::COA_REQUEST => Some(PacketCode::COA_NAK),
        PacketCode::DISCONNECT_REQUEST => Some(PacketCode::DISCONNECT_NAK),
        _ => None,
    }
}

/// Adds the attributes of that reply.
fn push_unsupported(packet: &RadiusPacket<'_>, list: &mut AttributeList) {
    list.push_u32(kind::ERROR_CAUSE, error_cause::UNSUPPORTED_EXTENSION);
    for a in packet.attributes().filter(|a| a.kind == kind::PROXY_STATE) {
        list.push_concat(a.kind, a.value);
    }
}

/// Builds the NAK with Error-Cause 406, for a RadSec client that gets a CoA- or Disconnect-Request and takes none on
/// this connection (RFC 6614 §2.5). It is empty if it exceeds a packet.
///
/// `None`: the packet is another one or does not prove the secret. The client must then close the connection (RFC 6613
/// §2.6.4).
#[must_use]
pub fn build_unsupported_request_nak(request: &[u8]) -> Option<Vec<u8>> {
    let packet = RadiusPacket::parse(request).ok()?;
    let code = refusal_code(packet.code())?;
    let config = ClientConfig::for_radsec(core::net::Ipv4Addr::UNSPECIFIED.into(), 0, Vec::new());
    let message_authenticator = verify_request(&packet, &config.secret, &config).ok()?;
    let mut list = AttributeList::new();
    push_unsupported(&packet, &mut list);
    let (identifier, request_authenticator) = (packet.identifier(), packet.authenticator());
    let reply = ReplyHeader { code, identifier, request_authenticator, message_authenticator, salt: 0 };
    let mut out = Vec::new();
    let fits = encode_reply(&mut out, &reply, &list, &[], &config.secret).is_ok();
    Some(if fits { out } else { Vec::new() })
}

/// The reason why verification fails.
enum VerificationError {
    Authenticator,
    Bad,
    Missing,
}

/// True if an Access-Request carries a proof of its user, in an attribute of RFC 2865, 2548 or 2869.
fn has_user_authentication_attribute(packet: &RadiusPacket<'_>) -> bool {
    const PROOFS: [u8; 4] = [kind::USER_PASSWORD, kind::CHAP_PASSWORD, ARAP_PASSWORD, kind::EAP_MESSAGE];
    let microsoft = |v: VendorAttribute<'_>| {
        v.vendor == vendor::MICROSOFT
            && matches!(v.kind, vendor::MS_CHAP_RESPONSE | vendor::MS_CHAP2_RESPONSE)
    };
    packet.attributes().any(|a| PROOFS.contains(&a.kind)) || read_vendors(packet.attributes()).any(microsoft)
}

/// ARAP-Password (RFC 2869 §5.4).
const ARAP_PASSWORD: u8 = 70;

/// Verifies a request. Returns true if it has a Message-Authenticator.
fn verify_request(
    packet: &RadiusPacket<'_>,
    secret: &SharedSecret,
    config: &ClientConfig,
) -> Result<bool, VerificationError> {
    let computed = !matches!(packet.code(), PacketCode::ACCESS_REQUEST | PacketCode::STATUS_SERVER);
    // RFC 2866, 3; RFC 5080, 2.3.3; RFC 5176, 2.3: a wrong Request Authenticator drops the packet.
    if computed && !check_accounting_request(packet, secret) {
        return Err(VerificationError::Authenticator);
    }
    let covered = covered_authenticator(packet.code(), packet.authenticator(), None);
    match check_message_authenticator(packet, &covered, secret) {
        MessageAuthenticator::Good => Ok(true),
        // RFC 2869, 5.14; RFC 3579, 3.2; RFC 5997, 4.2: a wrong Message-Authenticator drops the packet.
        MessageAuthenticator::Bad => Err(VerificationError::Bad),
        MessageAuthenticator::Absent => {
            let required = match packet.code() {
                // RFC 5997, 2, 3: a Status-Server has a Message-Authenticator.
                PacketCode::STATUS_SERVER => true,
                PacketCode::ACCESS_REQUEST => {
                    let policy = match config.message_authenticator {
                        MessageAuthenticatorPolicy::Required => true,
                        MessageAuthenticatorPolicy::ProxyState => packet.get(kind::PROXY_STATE).is_some(),
                        MessageAuthenticatorPolicy::Off => false,
                    };
                    // RFC 3579, 3.3, note 1: by UDP nothing else proves the source.
                    let bare = config.transport == ClientTransport::Udp
                        && !has_user_authentication_attribute(packet);
                    // RFC 2869, 5.13; RFC 3579, 3.1: EAP-Message needs a Message-Authenticator.
                    policy || packet.get(kind::EAP_MESSAGE).is_some() || bare
                }
                _ => false,
            };
            if required { Err(VerificationError::Missing) } else { Ok(false) }
        }
    }
}

/// The parts of a reply without its attributes.
struct ReplyHeader<'a> {
    code: PacketCode,
    identifier: u8,
    request_authenticator: &'a [u8; 16],
    message_authenticator: bool,
    salt: u16,
}

fn encode_reply(
    out: &mut Vec<u8>,
    reply: &ReplyHeader<'_>,
    attributes: &AttributeList,
    proxy_state: &[u8],
    secret: &SharedSecret,
) -> Result<(), TooLong> {
    let room = packet::HEADER_LEN + auth::MESSAGE_AUTHENTICATOR_LEN + attributes.len() + proxy_state.len();
    out.reserve(room);
    packet::write_header(out, reply.code, reply.identifier, reply.request_authenticator);
    if reply.message_authenticator {
        auth::reserve_authenticator(out);
    }
    attributes.encode_into(out, secret.as_bytes(), reply.request_authenticator, reply.salt);
    out.extend_from_slice(proxy_state);
    packet::finish_packet(out, 0)?;
    sign_response(out, reply.message_authenticator, reply.request_authenticator, secret);
    Ok(())
}

impl Machine for RadiusServer {
    type Command = RadiusServerCommand;
    type Event = RadiusServerEvent;
    type Job = NoJob;

    fn set_epoch(&mut self, _: Instant, epoch: WallTime) {
        self.epoch = epoch;
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Datagram { path, data } => self.receive_datagram(now, path, data),
            MachineInput::Timeout => {
                let mut purged = RemovedEntryCounts::default();
                self.cache.run_sweep(now, &mut purged);
                self.count_purged_entries(purged);
            }
            MachineInput::Stream { conn, event } => self.handle_stream_event(now, conn, event),
            MachineInput::Message { .. } | MachineInput::Frame { .. } => {
                self.counters.not_a_datagram += 1;
            }
        }
    }

    fn handle_command(&mut self, now: Instant, command: RadiusServerCommand) -> Result<(), CommandError> {
        match command {
            RadiusServerCommand::Respond { token, code, attributes } => {
                self.send_reply(now, token, code, attributes)
            }
            RadiusServerCommand::Discard { token } => {
                let handle = DuplicateCacheHandle::from_token(token);
                let entry = self.cache.get(handle).ok_or(CommandError::UnknownToken)?;
                if entry.state != RequestState::Waiting {
                    return Err(CommandError::WrongState("the request already has its reply"));
                }
                self.cache.set_final_state(handle, RequestState::Discarded, now + self.config.retain);
                self.counters.discarded += 1;
                Ok(())
            }
        }
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        let transmit = loop {
            match self.ready.order.pop_front() {
                Some(QueuedServerOutput::Request) => {
                    return self
                        .ready
                        .requests
                        .pop_front()
                        .map(|asked| MachineOutput::Event(RadiusServerEvent::Request(asked)));
                }
                Some(QueuedServerOutput::Loose) => {
                    let (transmit, bytes) = self.ready.loose.pop_front()?;
                    buf.clear();
                    if bytes.is_empty() {
                        return Some(MachineOutput::Transmit(transmit));
                    }
                    buf.extend_from_slice(&bytes);
                    self.cache.recycle_buffer(bytes);
                    break transmit;
                }
                Some(QueuedServerOutput::Cached(handle)) => {
                    let Some(entry) = self.cache.get_mut(handle) else { continue };
                    entry.queued = false;
                    buf.clear();
                    buf.extend_from_slice(&entry.bytes);
                    break reply_transmit(entry.path, entry.conn);
                }
                None => return self.work.take_work().map(MachineOutput::Work),
            }
        };
        self.work.count_reply_work();
        Some(MachineOutput::Transmit(transmit))
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.cache.next_cache_sweep()
    }
}

#[cfg(test)]
mod tests;
