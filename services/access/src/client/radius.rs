//! RADIUS: authentication (RFC 2865, RFC 3579), accounting (RFC 2866), dynamic authorization (RFC 5176).

use super::event::{ACCOUNTING, AaaRequestFailure, AccessClientEvent, ConfigError};
use crate::dynamic::{self, DynamicRequest, DynamicRequestKind, ErrorCause};
use crate::reply::{AccessReply, ReplyContent};
use crate::{AccessRequest, AccountingRecord, NasIdentity};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use usher_core::timer::earliest_deadline;
use usher_core::{
    CloseReason, CommandError, ConnId, Instant, ListenerId, Machine, MachineInput, MachineOutput,
    MachineOwnerPath, OutputQueue, SecureRng, SocketId, StreamEvent, StreamOp, Transmit, WallTime,
};
use usher_radius::EventTimestampPolicy;
use usher_radius::attribute::{AttributeList, ValueTooLong, kind};
use usher_radius::client::{self, RadiusClient, RadiusClientCommand, RadiusReply, RequestTarget};
use usher_radius::packet::PacketCode;
use usher_radius::radsec::{BadLength, PacketFramer};
use usher_radius::server::{self, ClientConfig, PortRole, RadiusServer};

/// The RADIUS configuration of a NAS.
#[derive(Clone, Debug)]
pub struct RadiusConfig {
    /// Servers, secrets, retransmission.
    pub client: client::RadiusClientConfig,
    /// The servers for logins.
    pub target: RequestTarget,
    /// The servers for accounting.
    pub accounting: RequestTarget,
    /// The servers that may send requests about sessions; `None` allows none. They send to [`DYNAMIC_SOCKET`]. A RadSec
    /// server may also use the connection that this client opened, since RadSec has one port for all packets (RFC 6614
    /// §2.1). A server without permission gets Error-Cause 406 on a connection (RFC 6614 §2.5).
    pub dynamic: Option<Box<DynamicAuthConfig>>,
}

impl RadiusConfig {
    /// Uses the client's first server only, without dynamic authorization.
    #[must_use]
    pub const fn new(client: client::RadiusClientConfig) -> Self {
        Self { client, target: RequestTarget::Server(0), accounting: RequestTarget::Server(0), dynamic: None }
    }
}

/// The servers that may end and change sessions (RFC 5176).
#[derive(Clone, Debug)]
pub struct DynamicAuthConfig {
    /// The servers by their addresses, with their secrets.
    pub clients: Vec<ClientConfig>,
    /// The maximum age of a request. `None` does not check it.
    pub freshness: Option<EventTimestampPolicy>,
}

/// The requests of a server (RFC 5176 §2).
const REQUESTS: [PacketCode; 2] = [PacketCode::DISCONNECT_REQUEST, PacketCode::COA_REQUEST];

/// The slot of the dynamic authorization server within the client.
const DYNAMIC: u16 = 0;

/// The socket for requests of dynamic authorization, over RADIUS: UDP port 3799 (RFC 5176 §2.3).
pub const DYNAMIC_SOCKET: SocketId = SocketId { owner: MachineOwnerPath::from_slot(DYNAMIC), n: 0 };

#[derive(Debug)]
struct DynamicAuthServer {
    server: RadiusServer,
    /// Unanswered requests: the code, and the State that the answer repeats (RFC 5176 §3.3).
    pending_requests: BTreeMap<u64, (PacketCode, Option<Vec<u8>>)>,
}

/// A RadSec connection of the client's.
#[derive(Debug)]
struct RadSecConnection {
    framer: PacketFramer,
    /// True if its server may send requests about sessions. Otherwise they are refused.
    allows_dynamic_requests: bool,
}

impl DynamicAuthServer {
    fn answer_request(
        &mut self,
        now: Instant,
        token: u64,
        answer: Result<(), ErrorCause>,
    ) -> Result<(), CommandError> {
        let (asked, state) = self.pending_requests.remove(&token).ok_or(CommandError::UnknownToken)?;
        let mut attributes = self.server.take_attributes();
        if let Err(cause) = answer {
            attributes.push_u32(kind::ERROR_CAUSE, cause as u32);
        }
        if let Some(state) = state {
            // The value was in an attribute before, so it fits one.
            let _ = attributes.push_bytes(kind::STATE, &state);
        }
        // RFC 5176, 2.3, 3.2: each request gets an ACK or a NAK.
        let code = dynamic::answer_code(asked, answer.is_ok());
        self.server.handle_command(now, server::RadiusServerCommand::Respond { token, code, attributes })
    }
}

#[derive(Debug)]
pub(super) struct RadiusAccessClient {
    client: RadiusClient,
    target: RequestTarget,
    accounting: RequestTarget,
    dynamic: Option<DynamicAuthServer>,
    /// The client's open connections, on which servers may send requests too.
    shared: BTreeMap<ConnId, RadSecConnection>,
    /// True once there has been a RadSec connection.
    by_radsec: bool,
    /// The outputs of `dynamic`, and the refusals without it.
    outputs: OutputQueue<AccessClientEvent>,
    /// A list whose memory is reused for the next request.
    spare: Option<AttributeList>,
}

impl RadiusAccessClient {
    pub(super) fn new(config: RadiusConfig, mut rng: SecureRng) -> Result<Self, ConfigError> {
        let dynamic = match config.dynamic {
            Some(dynamic) => {
                let DynamicAuthConfig { clients, freshness } = *dynamic;
                let role = PortRole::DynamicAuthorization;
                let standard = server::RadiusServerConfig::new(clients);
                // RFC 5176, 6.3: "The time window used for duplicate detection MUST be the same".
                let retain = freshness.map_or(standard.retain, |freshness| freshness.window);
                let server =
                    server::RadiusServerConfig { role, streams: role, freshness, retain, ..standard };
                let server = RadiusServer::new(server, SecureRng::from_seed(rng.random_array()))?;
                Some(DynamicAuthServer { server, pending_requests: BTreeMap::new() })
            }
            None => None,
        };
        Ok(Self {
            client: RadiusClient::new(config.client, rng)?,
            target: config.target,
            accounting: config.accounting,
            dynamic,
            shared: BTreeMap::new(),
            by_radsec: false,
            outputs: OutputQueue::default(),
            spare: None,
        })
    }
    pub(super) const fn counters(&self) -> &client::RadiusClientCounters {
        self.client.counters()
    }
    pub(super) fn dynamic_counters(&self) -> Option<&server::RadiusServerCounters> {
        self.dynamic.as_ref().map(|dynamic| dynamic.server.counters())
    }
    pub(super) fn recycle_reply(&mut self, reply: AccessReply) {
        if let ReplyContent::Radius(response) = reply.0 {
            self.spare = Some(response.attributes);
        }
    }

    /// Writes the attributes of a request.
    fn build_request_attributes(
        &mut self,
        write: impl FnOnce(&mut AttributeList) -> Result<(), ValueTooLong>,
    ) -> Result<AttributeList, CommandError> {
        let mut attributes = self.spare.take().unwrap_or_else(|| self.client.take_attributes());
        attributes.clear();
        if write(&mut attributes).is_err() {
            self.spare = Some(attributes);
            return Err(CommandError::Invalid("a value does not fit its RADIUS attribute"));
        }
        Ok(attributes)
    }

    pub(super) fn send_request(
        &mut self,
        now: Instant,
        nas: &NasIdentity,
        token: u64,
        request: &AccessRequest<'_>,
    ) -> Result<(), CommandError> {
        if request.name.is_empty() {
            return Err(CommandError::Invalid("a User-Name needs at least one octet"));
        }
        let attributes = self.build_request_attributes(|a| {
            a.push_bytes(kind::USER_NAME, request.name)?;
            nas.append_identity(&request.port, a)?;
            if let Some(mtu) = request.port.framed_mtu(nas) {
                a.push_u32(kind::FRAMED_MTU, mtu);
            }
            request.port.append_stations(a)?;
            a.extend(&nas.attributes);
            if let Some(more) = request.attributes {
                a.extend(more);
            }
            let state = request.continues.map_or(&[][..], |next| next.host_and_state().1);
            if !state.is_empty() {
                a.push_bytes(kind::STATE, state)?;
            }
            request.proof.append_attributes(a)
        })?;
        let (target, code) = (self.target, PacketCode::ACCESS_REQUEST);
        self.client.handle_command(now, RadiusClientCommand::Request { token, target, code, attributes })
    }

    /// Encodes a record as if sent at once. The client updates the delay (RFC 2866 §5.2).
    pub(super) fn encode_record(
        &mut self,
        nas: &NasIdentity,
        record: &AccountingRecord<'_>,
    ) -> Result<AttributeList, CommandError> {
        self.build_request_attributes(|a| {
            a.push_u32(kind::ACCT_STATUS_TYPE, record.status_type());
            a.push_text(kind::ACCT_SESSION_ID, record.session)?;
            if record.kind.is_server_record() {
                nas.append_identity(&record.port, a)?;
                a.extend(&nas.attributes);
                return Ok(());
            }
            if !record.name.is_empty() {
                // RFC 2866, 5.13: a name too long for an attribute is omitted. Acct-Session-Id and Class identify the
                // session.
                let _ = a.push_bytes(kind::USER_NAME, record.name);
            }
            nas.append_identity(&record.port, a)?;
            record.port.append_stations(a)?;
            a.push_u32(kind::ACCT_DELAY_TIME, u32::try_from(record.ago.as_secs()).unwrap_or(u32::MAX));
            record.append_usage(a)?;
            a.extend(&nas.attributes);
            if let Some(more) = record.attributes {
                a.extend(more);
            }
            Ok(())
        })
    }

    pub(super) fn send_record(
        &mut self,
        now: Instant,
        token: u64,
        attributes: AttributeList,
    ) -> Result<(), CommandError> {
        let (target, code) = (self.accounting, PacketCode::ACCOUNTING_REQUEST);
        self.client.handle_command(now, RadiusClientCommand::Request { token, target, code, attributes })
    }

    pub(super) fn cancel_request(&mut self, now: Instant, token: u64) {
        // If the request has been answered already, there is nothing to cancel.
        let _ = self.client.handle_command(now, RadiusClientCommand::Cancel { token });
    }

    pub(super) fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.client.set_epoch(now, epoch);
        if let Some(dynamic) = &mut self.dynamic {
            dynamic.server.set_epoch(now, epoch);
        }
    }

    pub(super) fn handle_input(&mut self, now: Instant, nas: &NasIdentity, input: MachineInput<'_>) {
        let entered = input.split_outer_slot();
        if let (None, MachineInput::Stream { conn, event }) = (entered, input) {
            self.dispatch_stream(now, conn, event);
        } else if let (Some((DYNAMIC, input)), Some(dynamic)) = (entered, &mut self.dynamic) {
            dynamic.server.handle_input(now, input);
        } else {
            self.client.handle_input(now, input);
        }
        if let (MachineInput::Timeout, Some(dynamic)) = (input, &mut self.dynamic) {
            dynamic.server.handle_input(now, input);
        }
        // Requests from a connection are handled now, while the connection still shows which server sent them.
        self.handle_dynamic_requests(now, nas);
        self.drop_closed_connections(now);
    }

    /// Splits the stream of a client's RadSec connection. Requests go to the server of `dynamic` or are refused,
    /// replies go to the client. An error of either ends the connection for both, and the rest of the stream is
    /// ignored.
    fn dispatch_stream(&mut self, now: Instant, conn: ConnId, event: StreamEvent<'_>) {
        const fn stream_input(conn: ConnId, event: StreamEvent<'_>) -> MachineInput<'_> {
            MachineInput::Stream { conn, event }
        }
        let Self { client, dynamic, shared, outputs, .. } = self;
        match (event, shared.get_mut(&conn)) {
            (StreamEvent::Data(mut data), Some(link)) => {
                while let Some(packet) = link.framer.next_packet(&mut data).transpose() {
                    let is_good = match (packet, &mut *dynamic) {
                        (Err(BadLength(_)), _) => false,
                        (Ok(packet), _)
                            if !packet.first().is_some_and(|c| REQUESTS.contains(&PacketCode(*c))) =>
                        {
                            client.handle_input(now, stream_input(conn, StreamEvent::Data(packet)));
                            client.is_connected(conn)
                        }
                        (Ok(packet), Some(dynamic)) if link.allows_dynamic_requests => {
                            dynamic.server.handle_input(now, stream_input(conn, StreamEvent::Data(packet)));
                            dynamic.server.is_connected(conn)
                        }
                        // RFC 6614, 2.5: an unwanted request gets a NAK with Error-Cause 406.
                        (Ok(packet), _) => match server::build_unsupported_request_nak(packet) {
                            Some(nak) if nak.is_empty() => true,
                            Some(nak) => {
                                outputs.push_transmit(Transmit::Stream { conn, op: StreamOp::Data }, nak);
                                true
                            }
                            None => false,
                        },
                    };
                    if !is_good {
                        return client.reset_malformed_connection(now, conn);
                    }
                }
            }
            (StreamEvent::Connected { remote, local, certificate }, None) => {
                client.handle_input(now, stream_input(conn, event));
                if !client.is_connected(conn) {
                    return;
                }
                let asking =
                    dynamic.as_mut().filter(|d| d.server.accepts_connection(remote.ip(), certificate));
                let may_ask = asking.is_some();
                if let Some(dynamic) = asking {
                    let listener = ListenerId::from_number(0);
                    let accepted = StreamEvent::Accepted { listener, remote, local, certificate };
                    dynamic.server.handle_input(now, stream_input(conn, accepted));
                }
                shared.insert(
                    conn,
                    RadSecConnection { framer: PacketFramer::new(), allows_dynamic_requests: may_ask },
                );
                self.by_radsec = true;
            }
            _ => client.handle_input(now, stream_input(conn, event)),
        }
    }

    /// Removes the connections that the client has closed.
    fn drop_closed_connections(&mut self, now: Instant) {
        let Self { client, dynamic, shared, .. } = self;
        shared.retain(|&conn, _| {
            let stays = client.is_connected(conn);
            if let (false, Some(dynamic)) = (stays, &mut *dynamic) {
                let event = StreamEvent::Closed(CloseReason::Closed);
                dynamic.server.handle_input(now, MachineInput::Stream { conn, event });
            }
            stays
        });
    }

    /// Passes on requests about sessions. Refuses those that are invalid for every session.
    fn handle_dynamic_requests(&mut self, now: Instant, nas: &NasIdentity) {
        while let Some(dynamic) = &mut self.dynamic
            && let Some(event) = {
                let shared = &self.shared;
                dynamic.server.next_event(&mut self.outputs, |transmit| match transmit {
                    Transmit::Stream { conn, .. } if shared.contains_key(conn) => {}
                    _ => transmit.add_outer_slot(DYNAMIC),
                })
            }
        {
            let server::RadiusServerEvent::Request(asked) = event;
            let (token, code) = (asked.token, asked.code);
            let response = RadiusReply {
                token,
                server: 0,
                code,
                attributes: asked.attributes,
                request_authenticator: asked.request_authenticator,
                secret: asked.secret,
            };
            let kind = match code {
                PacketCode::DISCONNECT_REQUEST => DynamicRequestKind::Disconnect,
                _ => DynamicRequestKind::Change,
            };
            let content = AccessReply(ReplyContent::Radius(response));
            let state = content.value(kind::STATE).map(<[u8]>::to_vec);
            dynamic.pending_requests.insert(token, (code, state));
            let request = DynamicRequest { token, kind, session: None, content };
            match request.validate_request(nas) {
                Ok(()) => self.outputs.push_event(AccessClientEvent::Dynamic(Box::new(request))),
                // The request has just arrived and is still pending, so the answer does not fail.
                Err(cause) => drop(dynamic.answer_request(now, token, Err(cause))),
            }
        }
    }

    pub(super) fn answer_dynamic(
        &mut self,
        now: Instant,
        nas: &NasIdentity,
        token: u64,
        answer: Result<(), ErrorCause>,
    ) -> Result<(), CommandError> {
        let dynamic = self.dynamic.as_mut().ok_or(CommandError::UnknownToken)?;
        let done = dynamic.answer_request(now, token, answer);
        self.handle_dynamic_requests(now, nas);
        done
    }

    pub(super) fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutput<AccessClientEvent>> {
        if let Some(output) = self.outputs.poll(buf) {
            return Some(output);
        }
        Some(match self.client.poll_output(buf)? {
            MachineOutput::Transmit(transmit) => MachineOutput::Transmit(transmit),
            MachineOutput::Work(work) => MachineOutput::Work(work),
            MachineOutput::Job(job) => match job.job {},
            MachineOutput::Event(event) => MachineOutput::Event(translate_event(event)),
        })
    }

    pub(super) fn next_event<E, J>(
        &mut self,
        outputs: &mut OutputQueue<E, J>,
        outside: impl Fn(&mut Transmit),
    ) -> Option<AccessClientEvent> {
        if self.dynamic.is_some() || self.by_radsec {
            outputs.queue_until_event(outside, |buf| self.poll_output(buf))
        } else {
            self.client.next_event(outputs, outside).map(translate_event)
        }
    }

    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        let client = self.client.poll_timeout();
        let Some(dynamic) = &mut self.dynamic else { return client };
        earliest_deadline([client, dynamic.server.poll_timeout()])
    }
}

/// Translates a RADIUS client's event.
fn translate_event(event: client::RadiusClientEvent) -> AccessClientEvent {
    let response = match event {
        client::RadiusClientEvent::Response(response) => response,
        client::RadiusClientEvent::TimedOut { token } if token & ACCOUNTING != 0 => {
            return AccessClientEvent::Accounted {
                token: token & !ACCOUNTING,
                result: Err(AaaRequestFailure::Timeout),
            };
        }
        client::RadiusClientEvent::TimedOut { token } => {
            return AccessClientEvent::Failed { token, failure: AaaRequestFailure::Timeout };
        }
        client::RadiusClientEvent::Server { server, health, cause } => {
            return AccessClientEvent::Server { server, health, cause };
        }
    };
    let (token, code) = (response.token, response.code);
    if token & ACCOUNTING != 0 {
        let kept =
            if code == PacketCode::ACCOUNTING_RESPONSE { Ok(()) } else { Err(AaaRequestFailure::BadAnswer) };
        return AccessClientEvent::Accounted { token: token & !ACCOUNTING, result: kept };
    }
    let reply = AccessReply(ReplyContent::Radius(response));
    match code {
        PacketCode::ACCESS_REJECT => AccessClientEvent::Reject { token, reply },
        PacketCode::ACCESS_CHALLENGE if reply.has_valid_attributes() => {
            AccessClientEvent::Challenge { token, reply }
        }
        PacketCode::ACCESS_ACCEPT if reply.has_valid_attributes() => {
            AccessClientEvent::Accept { token, reply }
        }
        _ => AccessClientEvent::Failed { token, failure: AaaRequestFailure::BadAnswer },
    }
}
