//! Logins: each proof of a host goes to the AAA server or the local users, and the verdict comes back.

use crate::grace::{AaaOutagePolicy, CachedAuthorization};
use crate::service::{
    AccessConcentrator, AccessConcentratorEvent, AuthenticationBackend, LoginFailure, UnacknowledgedRecord,
};
use crate::track::SessionLogRecord;
use crate::users::{EapConversation, LocalVerdict};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use usher_access::{AaaRequestFailure, AccessReply, AccessRequest, FramedAddress, LoginRoundState, NasPort};
use usher_core::{CommandError, Duration, Instant, LinkLayerPortId, Machine};
use usher_eap::packet::{EapPacket, EapType};
use usher_ppp::auth::AuthenticationProof;
use usher_ppp::concentrator::{AuthenticationReply, ConcentratorCommand, PppoeSessionId, SubscriberInfo};
use usher_ppp::pppoe::MacAddress;
use usher_radius::attribute::{AttributeList, kind, vendor};

/// Framed-Protocol PPP (RFC 2865 §5.7).
const PPP: u32 = 1;

/// The authorization of a user by an AAA server.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct UserAuthorization {
    /// The user name for the log, IDENT and limits.
    pub(crate) user: Vec<u8>,
    /// The name that the host gave. For EAP it is the outer identity.
    pub(crate) login: Vec<u8>,
    /// True if only the AAA server knows the inner identity (tunnel, certificate). Then [`user`](Self::user) is not a
    /// user name.
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
    /// Rates up and down, bit/s.
    pub(crate) bandwidth: (Option<u64>, Option<u64>),
    /// The token of the accepted request.
    pub(crate) token: Option<u64>,
}

impl UserAuthorization {
    /// Returns User-Name for accounting records (RFC 2865 §5.1).
    pub(crate) fn accounting_name(&self) -> &[u8] {
        if self.nameless { &self.login } else { &self.user }
    }
}

/// The kind of a proof. It determines the form of the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CredentialsKind {
    Password,
    MsChapV2,
    Eap,
}

/// The line of a login: a port, with the circuit or the station.
type AccessLineKey = (LinkLayerPortId, Option<Vec<u8>>, Option<MacAddress>);

/// A login in progress.
#[derive(Debug)]
pub(crate) struct PendingLogin {
    name: Vec<u8>,
    kind: CredentialsKind,
    /// The digest of a password, for the grace cache.
    digest: Option<[u8; 32]>,
    token: u64,
    /// True if a request to the AAA server is open.
    is_request_pending: bool,
    next: LoginRoundState,
    local: Option<EapConversation>,
    /// True if the login has failed and was counted for the lockout.
    counted: bool,
    /// True if the EAP method hides the inner identity from the concentrator.
    hidden: bool,
}

/// The location of a host in requests to AAA servers.
pub(crate) struct NasPortInfo {
    port: String,
    station: String,
    called: String,
    number: u16,
    pub(crate) attributes: AttributeList,
}

impl NasPortInfo {
    pub(crate) fn for_subscriber(
        subscriber: &SubscriberInfo,
        ports: &[String],
        ppp: &[usher_ppp::concentrator::ConcentratorPort],
    ) -> Self {
        // RFC 3580, 3.21: the format of station addresses.
        let dashed = |address: [u8; 6]| {
            let octets: Vec<String> = address.iter().map(|octet| alloc::format!("{octet:02X}")).collect();
            octets.join("-")
        };
        let own = ppp.iter().find(|own| own.port == subscriber.port);
        let mut attributes = AttributeList::new();
        attributes.push_u32(kind::FRAMED_PROTOCOL, PPP);
        for (number, id) in [
            (vendor::AGENT_CIRCUIT_ID, &subscriber.circuit_id),
            (vendor::AGENT_REMOTE_ID, &subscriber.remote_id),
        ] {
            // A line identifier too long for one attribute is left out.
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
    pub(crate) fn nas_port(&self) -> NasPort<'_> {
        NasPort {
            number: Some(self.number.into()),
            id: Some(&self.port),
            calling_station: Some(&self.station),
            called_station: Some(&self.called),
            mtu: None,
        }
    }
    pub(crate) fn port_name(&self) -> &str {
        &self.port
    }
}

/// True if a name is UTF-8 (RFC 2865 §5.1) without control characters, which would falsify its display.
fn is_printable_utf8(name: &[u8]) -> bool {
    core::str::from_utf8(name).is_ok_and(|name| !name.contains(char::is_control))
}

/// True if an EAP packet begins a conversation.
fn is_identity_response(packet: &[u8]) -> bool {
    EapPacket::parse(packet).is_ok_and(|packet| packet.kind() == Some(EapType::IDENTITY))
}

impl AccessConcentrator {
    pub(crate) fn nas_port_info(&self, subscriber: &SubscriberInfo) -> NasPortInfo {
        NasPortInfo::for_subscriber(subscriber, &self.config.ports, &self.config.ppp.ports)
    }

    /// Handles a host's proof.
    pub(crate) fn authenticate_host(
        &mut self,
        now: Instant,
        (session, mtu): (PppoeSessionId, u16),
        user: Vec<u8>,
        proof: &AuthenticationProof,
    ) {
        // A proof for a session that is running means that the host has renegotiated its link. Its earlier session
        // ends.
        if let Some(id) = self.current.get(&session).copied() {
            self.finish_session(now, id, usher_access::TerminateCause::UserRequest, "renegotiated");
        }
        let goes_on = matches!(proof, AuthenticationProof::Eap(packet) if !is_identity_response(packet))
            && self.logins.contains_key(&session);
        if !goes_on {
            self.drop_login(now, session);
            let kind = match proof {
                AuthenticationProof::Eap(_) => CredentialsKind::Eap,
                AuthenticationProof::MsChapV2 { .. } => CredentialsKind::MsChapV2,
                AuthenticationProof::Pap(_) | AuthenticationProof::Chap { .. } => CredentialsKind::Password,
            };
            let digest = match proof {
                AuthenticationProof::Pap(password) => Some(self.grace.password_digest(&password[..])),
                _ => None,
            };
            let token = self.allocate_token();
            let (name, next) = (user, LoginRoundState::new());
            let login = PendingLogin {
                name,
                kind,
                digest,
                token,
                is_request_pending: false,
                next,
                local: None,
                counted: false,
                hidden: false,
            };
            self.logins.insert(session, login);
        }
        if let (Some(login), AuthenticationProof::Eap(packet)) = (self.logins.get_mut(&session), proof) {
            let by_certificate =
                !self.config.trust_certificate_names && usher_access::is_eap_tls_response(packet);
            login.hidden |= by_certificate || usher_access::is_tunnelled(packet);
        }
        let name = self.logins.get(&session).map_or(&[][..], |login| &login.name[..]);
        let (nameless, no_text) = (name.is_empty(), !is_printable_utf8(name));
        match self.config.judge {
            _ if nameless => self.reject_login(now, session, LoginFailure::NoName, Vec::new()),
            _ if no_text => self.reject_login(now, session, LoginFailure::BadName, Vec::new()),
            _ if self.leaving => self.fail_login(now, session, LoginFailure::NoAaa),
            AuthenticationBackend::Local => self.authenticate_locally(now, session, proof),
            AuthenticationBackend::Aaa => self.send_aaa_request(now, (session, mtu), proof),
        }
    }

    fn send_aaa_request(
        &mut self,
        now: Instant,
        (session, mtu): (PppoeSessionId, u16),
        proof: &AuthenticationProof,
    ) {
        let Some(place) = self.attached.get(&session).map(|subscriber| self.nas_port_info(subscriber)) else {
            return;
        };
        let (Some(login), Some(aaa)) = (self.logins.get_mut(&session), &mut self.aaa) else {
            return self.fail_login(now, session, LoginFailure::NoAaa);
        };
        let shown = match proof {
            AuthenticationProof::Pap(password) => usher_access::UserCredentials::Pap(&password[..]),
            AuthenticationProof::Chap { identifier, challenge, response } => {
                usher_access::UserCredentials::Chap(usher_access::ChapResponse {
                    identifier: *identifier,
                    challenge,
                    response: *response,
                })
            }
            AuthenticationProof::MsChapV2 { identifier, challenge, peer_challenge, response } => {
                usher_access::UserCredentials::MsChapV2(usher_access::MsChapV2Response {
                    identifier: *identifier,
                    challenge: *challenge,
                    peer_challenge: *peer_challenge,
                    response: *response,
                })
            }
            AuthenticationProof::Eap(packet) => usher_access::UserCredentials::Eap(packet),
        };
        let request = AccessRequest {
            port: usher_access::NasPort { mtu: Some(mtu), ..place.nas_port() },
            continues: Some(&login.next),
            attributes: Some(&place.attributes),
            ..AccessRequest::new(&login.name, shown)
        };
        let token = login.token;
        match aaa.send_request(now, token, &request) {
            Ok(()) => {}
            // The servers answer, but this client has too many pending requests. That is no outage, so the grace cache
            // is not used.
            Err(CommandError::Full(_)) => return self.fail_login(now, session, LoginFailure::Unanswered),
            // The host's name does not fit into a request, so no server could answer.
            Err(_) => return self.reject_login(now, session, LoginFailure::NoName, Vec::new()),
        }
        login.is_request_pending = true;
        self.aaa_requests.insert(token, session);
    }

    /// Returns the line of a host's login: its port, and its circuit if it is trusted or else its station.
    fn login_access_line(&self, session: PppoeSessionId) -> Option<AccessLineKey> {
        let subscriber = self.attached.get(&session)?;
        let station = subscriber.circuit_id.is_none().then_some(subscriber.address);
        Some((subscriber.port, subscriber.circuit_id.clone(), station))
    }

    /// Verifies a proof by the local users.
    fn authenticate_locally(&mut self, now: Instant, session: PppoeSessionId, proof: &AuthenticationProof) {
        let wall = now.to_wall_time(self.epoch);
        let line = self.login_access_line(session);
        let Some(login) = self.logins.get_mut(&session) else { return };
        // The lockout is checked before each proof, so that parallel attempts are limited, too. A login that has
        // already failed is not checked again.
        if !login.counted && self.lockout.is_locked_out(now, &login.name, &line) {
            self.counters.logins_locked_out += 1;
            return self.reject_login(now, session, LoginFailure::LockedOut, Vec::new());
        }
        let verdict = match proof {
            AuthenticationProof::Eap(packet) => {
                let conversation = match login.local.take() {
                    Some(mut conversation) => {
                        conversation.handle_packet(packet);
                        conversation
                    }
                    None => self.config.users.start_conversation(&login.name, packet, wall, &mut self.rng),
                };
                let conversation = login.local.insert(conversation);
                let verdict = conversation.next_eap_verdict();
                for work in conversation.drain_work() {
                    self.outputs.push_work(work);
                }
                verdict
            }
            other => self.config.users.verify_proof(&login.name, other),
        };
        // Count the failure when the proof is wrong, not at the final reject: an attacker may leave before.
        let refused = login.local.as_ref().is_some_and(EapConversation::has_refused);
        if (refused || matches!(verdict, LocalVerdict::Reject(_)))
            && !core::mem::replace(&mut login.counted, true)
        {
            self.lockout.record_failure(now, &login.name, &line);
        }
        if matches!(verdict, LocalVerdict::Accept(_)) {
            self.lockout.record_success(now, &login.name, &line);
        }
        let user = login.name.clone();
        match verdict {
            LocalVerdict::Continue(packet) => {
                self.send_ppp_command(
                    now,
                    ConcentratorCommand::Answer { session, answer: AuthenticationReply::Continue(packet) },
                );
            }
            LocalVerdict::Accept(message) => {
                let granted = UserAuthorization { login: user.clone(), user, ..UserAuthorization::default() };
                self.admit_user(now, session, granted, message);
            }
            LocalVerdict::Reject(message) => self.reject_login(now, session, LoginFailure::Rejected, message),
        }
    }

    /// Rejects a login.
    pub(crate) fn reject_login(
        &mut self,
        now: Instant,
        session: PppoeSessionId,
        why: LoginFailure,
        message: Vec<u8>,
    ) {
        self.counters.logins_rejected += 1;
        self.report_failed_login(session, why);
        self.send_ppp_command(
            now,
            ConcentratorCommand::Answer { session, answer: AuthenticationReply::Reject { message } },
        );
    }

    /// Fails a login without a verdict.
    pub(crate) fn fail_login(&mut self, now: Instant, session: PppoeSessionId, why: LoginFailure) {
        self.counters.logins_unanswered += 1;
        self.report_failed_login(session, why);
        self.send_ppp_command(
            now,
            ConcentratorCommand::Answer { session, answer: AuthenticationReply::Unanswered },
        );
    }

    fn report_failed_login(&mut self, session: PppoeSessionId, why: LoginFailure) {
        let login = self.logins.remove(&session);
        let Some(subscriber) = self.attached.get(&session).cloned() else { return };
        let user = login.map(|login| login.name).unwrap_or_default();
        self.outputs.push_event(AccessConcentratorEvent::LoginFailed { subscriber, user, why });
    }

    /// Handles a login that no AAA server answers.
    fn handle_aaa_outage(&mut self, now: Instant, session: PppoeSessionId) {
        self.grace.mark_aaa_unavailable(now);
        let known = match (self.config.without_aaa, self.logins.get(&session), self.attached.get(&session)) {
            (AaaOutagePolicy::Grace(lasts), Some(login), Some(subscriber)) => {
                login.digest.and_then(|digest| {
                    let place = (subscriber.port, subscriber.address);
                    self.grace.cached_authorization(now, lasts, place, &login.name, &digest)
                })
            }
            _ => None,
        };
        match known {
            Some(granted) => {
                self.counters.logins_in_grace += 1;
                // The server has not accepted this session. Without the old token, the server gets no commands about
                // it.
                let granted = UserAuthorization { token: None, ..granted };
                self.admit_user(now, session, granted, Vec::new());
            }
            None => self.fail_login(now, session, LoginFailure::Unanswered),
        }
    }

    /// Handles an event of the AAA client.
    pub(crate) fn handle_aaa_event(&mut self, now: Instant, event: usher_access::AccessClientEvent) {
        use usher_access::AccessClientEvent;
        match event {
            AccessClientEvent::Challenge { token, reply } => self.handle_challenge(now, token, reply),
            AccessClientEvent::Accept { token, reply } => self.handle_accept(now, token, reply),
            AccessClientEvent::Reject { token, reply } => {
                let Some((session, kind)) = self.take_answered_login(now, token) else { return };
                let mut message = Vec::new();
                match kind {
                    CredentialsKind::Eap => drop(reply.read_eap(&mut message)),
                    CredentialsKind::MsChapV2 => {
                        message = reply.ms_chap_error().unwrap_or_default().to_owned()
                    }
                    CredentialsKind::Password => message = reply_messages(&reply),
                }
                self.recycle_reply(reply);
                if let (Some(login), Some(subscriber)) =
                    (self.logins.get(&session), self.attached.get(&session))
                {
                    let place = (subscriber.port, subscriber.address);
                    self.grace.revoke_rejected_authorizations(place, &login.name, login.digest.as_ref());
                }
                self.reject_login(now, session, LoginFailure::Rejected, message);
            }
            AccessClientEvent::Failed { token, failure } => {
                let Some(session) = self.aaa_requests.remove(&token) else { return };
                if let Some(login) = self.logins.get_mut(&session) {
                    login.is_request_pending = false;
                }
                match failure {
                    AaaRequestFailure::BadAnswer => self.fail_login(now, session, LoginFailure::BadAnswer),
                    AaaRequestFailure::Timeout
                    | AaaRequestFailure::Unavailable
                    | AaaRequestFailure::ConnectionLost
                    | AaaRequestFailure::Fault(_) => self.handle_aaa_outage(now, session),
                }
            }
            AccessClientEvent::Accounted { token, result: kept } => {
                let Some(UnacknowledgedRecord { session, logged }) = self.records.remove(&token) else {
                    return;
                };
                if kept.is_err() {
                    self.counters.records_lost += 1;
                    self.outputs.push_event(AccessConcentratorEvent::Unaccounted { session, logged: false });
                } else if logged {
                    let at = now.to_wall_time(self.epoch);
                    self.outputs.push_event(AccessConcentratorEvent::Log(Box::new(
                        SessionLogRecord::StopAcknowledged { acknowledged_at: at, session },
                    )));
                }
                self.finish_shutdown(now, false);
            }
            AccessClientEvent::Dynamic(request) => self.handle_dynamic_request(now, &request),
            AccessClientEvent::Peer { peer, up } => {
                let server = usize::try_from(peer.0).unwrap_or(usize::MAX);
                self.outputs.push_event(AccessConcentratorEvent::Server { server, up });
            }
            AccessClientEvent::Server { server, health, .. } => {
                let up = health == usher_radius::client::ServerHealth::Alive;
                self.outputs.push_event(AccessConcentratorEvent::Server { server: server.into(), up });
            }
        }
    }

    /// Returns the login of an answered request.
    fn take_answered_login(&mut self, now: Instant, token: u64) -> Option<(PppoeSessionId, CredentialsKind)> {
        let session = self.aaa_requests.remove(&token)?;
        self.grace.mark_aaa_available();
        self.end_overdue_sessions(now);
        let login = self.logins.get_mut(&session)?;
        login.is_request_pending = false;
        Some((session, login.kind))
    }

    fn recycle_reply(&mut self, reply: AccessReply) {
        if let Some(aaa) = &mut self.aaa {
            aaa.recycle_reply(reply);
        }
    }

    fn handle_challenge(&mut self, now: Instant, token: u64, reply: AccessReply) {
        let Some((session, kind)) = self.take_answered_login(now, token) else { return };
        let mut packet = Vec::new();
        let asks = reply.read_eap(&mut packet) && kind == CredentialsKind::Eap;
        if let Some(login) = self.logins.get_mut(&session) {
            reply.fill_continuation(&mut login.next);
        }
        self.recycle_reply(reply);
        if asks {
            self.send_ppp_command(
                now,
                ConcentratorCommand::Answer { session, answer: AuthenticationReply::Continue(packet) },
            );
        } else {
            // A server cannot challenge PAP or CHAP, which have no second round.
            self.fail_login(now, session, LoginFailure::BadAnswer);
        }
    }

    fn handle_accept(&mut self, now: Instant, token: u64, reply: AccessReply) {
        let Some((session, kind)) = self.take_answered_login(now, token) else { return };
        let Some(login) = self.logins.get(&session) else { return };
        let mut message = Vec::new();
        match kind {
            CredentialsKind::Eap => drop(reply.read_eap(&mut message)),
            CredentialsKind::Password => message = reply_messages(&reply),
            // RFC 2759, 5: without the authenticator response the host rejects this side.
            CredentialsKind::MsChapV2 => match reply.ms_chap2_success() {
                Some(success) => {
                    message = success.to_owned();
                    message.extend_from_slice(b" M=");
                    message.extend(reply_messages(&reply));
                }
                None => return self.fail_login(now, session, LoginFailure::BadAnswer),
            },
        }
        let user = reply.user_name().filter(|name| !name.is_empty()).unwrap_or(&login.name);
        if !is_printable_utf8(user) {
            return self.fail_login(now, session, LoginFailure::BadAnswer);
        }
        let granted = UserAuthorization {
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
            lasts: nonzero_limit(reply.session_timeout()),
            idle: nonzero_limit(reply.idle_timeout()),
            interim: reply.interim_interval(),
            filters: reply.filter_ids().map(Into::into).collect(),
            bandwidth: {
                let (up, down) = reply.bandwidth();
                (up.map(u64::from), down.map(u64::from))
            },
            token: Some(token),
        };
        if let (AaaOutagePolicy::Grace(lasts), Some(digest), Some(subscriber)) =
            (self.config.without_aaa, login.digest, self.attached.get(&session))
        {
            let place = (subscriber.port, subscriber.address);
            let one = CachedAuthorization { digest, granted: granted.clone(), granted_at: now };
            self.grace.cache_authorization(now, lasts, place, &login.name, one);
        }
        self.recycle_reply(reply);
        self.admit_user(now, session, granted, message);
    }

    /// Drops a login and cancels its request.
    pub(crate) fn drop_login(&mut self, now: Instant, session: PppoeSessionId) {
        let Some(login) = self.logins.remove(&session) else { return };
        if login.is_request_pending {
            self.counters.logins_unanswered += 1;
            self.aaa_requests.remove(&login.token);
            if let Some(aaa) = &mut self.aaa {
                // The client knows every open request, so the command does not fail.
                let _ =
                    aaa.handle_command(now, usher_access::AccessClientCommand::Cancel { token: login.token });
            }
        }
    }

    /// Admits a user, once the log has stored the session.
    fn admit_user(
        &mut self,
        now: Instant,
        session: PppoeSessionId,
        granted: UserAuthorization,
        message: Vec<u8>,
    ) {
        let token = granted.token;
        if let Err(why) = self.open_session(now, session, granted, message) {
            // The server has accepted the session and counts it as open: end it there.
            if let (Some(token), Some(aaa)) = (token, &mut self.aaa) {
                let cause = usher_access::TerminateCause::NasError;
                let _ =
                    aaa.handle_command(now, usher_access::AccessClientCommand::Terminate { token, cause });
            }
            match why {
                LoginFailure::NoAddress => self.counters.addresses_exhausted += 1,
                LoginFailure::AddressInUse => self.counters.addresses_in_use += 1,
                LoginFailure::TooManySessions => self.counters.users_full += 1,
                _ => {}
            }
            return self.reject_login(now, session, why, Vec::new());
        }
        self.logins.remove(&session);
    }
}

/// Returns a limit of a server. Zero means unlimited, as in Diameter (RFC 6733 §8.13).
pub(crate) fn nonzero_limit(limit: Option<Duration>) -> Option<Duration> {
    limit.filter(|limit| !limit.is_zero())
}

/// Returns the reply messages for the user.
fn reply_messages(reply: &AccessReply) -> Vec<u8> {
    reply.reply_messages().collect::<Vec<_>>().join(&b'\n')
}

/// Returns the reply that accepts a host.
pub(crate) fn accept_reply(
    message: Vec<u8>,
    assignment: usher_ppp::AddressAssignment,
) -> AuthenticationReply {
    AuthenticationReply::Accept { message, assignment: Box::new(assignment) }
}
