//! EAP logins of initiators: each packet goes to the AAA server or to the local users, and the reply comes back.

use crate::service::{EapServerLocation, GatewayEvent, GatewayJob, IkeGateway, LoginFailure};
use crate::users::{EapStepJob, EapStepOutcome, LocalEapConversation};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_access::pool::Lease;
use usher_access::{
    AaaRequestFailure, AccessReply, AccessRequest, FramedAddress, LoginRoundState, UserCredentials,
};
use usher_core::address::{host_of, is_host_address};
use usher_core::{CommandError, Duration, Instant, JobRequest, JobRequester, JobWaiter, Machine};
use usher_crypto::SecretValue;
use usher_eap::packet::{EapPacket, EapType};
use usher_ike::machine::{self as ike, EapAnswer, IkeSaId};
use usher_ike::payload::{ConfigurationAttribute, Identification};

/// The AAA server's authorization of a user.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoginGrant {
    /// The user name in accounting records.
    pub(crate) user: Vec<u8>,
    pub(crate) classes: Vec<Vec<u8>>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) pool: Option<String>,
    pub(crate) dns: Vec<IpAddr>,
    pub(crate) lasts: Option<Duration>,
    pub(crate) interim: Option<Duration>,
    /// The token of the request that was accepted.
    pub(crate) token: Option<u64>,
}

/// An initiator that authenticates by EAP or waits for an address.
#[derive(Debug)]
pub(crate) struct EapLogin {
    /// Its EAP identity.
    pub(crate) name: Vec<u8>,
    pub(crate) identity: Identification,
    pub(crate) connection: String,
    pub(crate) remote: SocketAddr,
    token: u64,
    /// True while an AAA request is pending.
    is_request_pending: bool,
    next: LoginRoundState,
    local: Option<LocalEapConversation>,
    /// The waiter of its jobs.
    waiter: JobWaiter,
    /// True if its failure has been counted.
    counted: bool,
    /// True with a tunnelled method: the outer identity is then not the authenticated one, which only the AAA server
    /// sees.
    tunnelled: bool,
    pub(crate) granted: LoginGrant,
    /// The requested attributes, until the addresses are there.
    pub(crate) requested_attributes: Vec<ConfigurationAttribute>,
    pub(crate) leases: Vec<Lease>,
    pub(crate) addresses: Vec<IpAddr>,
}

impl EapLogin {
    pub(crate) fn new(identity: Identification, connection: String, remote: SocketAddr) -> Self {
        Self {
            name: Vec::new(),
            identity,
            connection,
            remote,
            token: 0,
            is_request_pending: false,
            next: LoginRoundState::new(),
            local: None,
            waiter: JobWaiter::default(),
            counted: false,
            tunnelled: false,
            granted: LoginGrant::default(),
            requested_attributes: Vec::new(),
            leases: Vec::new(),
            addresses: Vec::new(),
        }
    }
    /// The origin of its jobs.
    pub(crate) fn login_job_origin(&self) -> JobRequester {
        JobRequester::from_address(self.remote.ip()).with_waiter(&self.waiter)
    }
}

/// Returns an address and port in the format of strongSwan's Calling-Station-Id.
pub(crate) fn calling_station_id(address: SocketAddr) -> String {
    alloc::format!("{}[{}]", address.ip().to_canonical(), address.port())
}

/// Returns the identity for a name of an AAA server or of EAP.
fn identity_from_name(name: &[u8]) -> Identification {
    match core::str::from_utf8(name) {
        Ok(text) => Identification::of_text(text),
        Err(_) => Identification { kind: usher_ike::code::IdType::ID_KEY_ID, data: name.to_vec() },
    }
}

/// Returns the identity of an accepted user. A tunnelled method does not authenticate the outer identity. Without a
/// name from the server (`nameless`), the result is unique to this IKE_SA.
fn accepted_user_identity(user: &[u8], nameless: bool, sa: IkeSaId) -> Identification {
    if nameless {
        let name = usher_access::fallback_user_name(user, &alloc::format!("IKE_SA {}", sa.0));
        return Identification { kind: usher_ike::code::IdType::ID_KEY_ID, data: name };
    }
    identity_from_name(user)
}

/// Returns the name of an EAP Identity response.
fn eap_identity(packet: &[u8]) -> Option<Vec<u8>> {
    let packet = EapPacket::parse(packet).ok()?;
    (packet.kind() == Some(EapType::IDENTITY)).then(|| packet.data().to_vec())
}

impl IkeGateway {
    /// Handles an EAP packet of an initiator.
    pub(crate) fn handle_eap(
        &mut self,
        now: Instant,
        (sa, identity, connection, remote): (IkeSaId, Identification, String, SocketAddr),
        packet: &[u8],
    ) {
        let token = self.next_token();
        let login = self.logins.entry(sa).or_insert_with(|| {
            let mut login = EapLogin::new(identity, connection, remote);
            login.token = token;
            login.name = eap_identity(packet).unwrap_or_default();
            login
        });
        login.tunnelled |= usher_access::is_tunnelled(packet);
        let judge = self.config.peers.iter().find(|peer| peer.connection.name == login.connection);
        match judge.map_or(EapServerLocation::Aaa, |peer| peer.judge) {
            EapServerLocation::Local => self.handle_local_eap_packet(now, sa, packet),
            EapServerLocation::Aaa => self.query_aaa(now, sa, packet),
        }
    }

    fn query_aaa(&mut self, now: Instant, sa: IkeSaId, packet: &[u8]) {
        let (Some(login), Some(aaa)) = (self.logins.get_mut(&sa), &mut self.aaa) else {
            return self.fail_login_unanswered(now, sa, LoginFailure::NoAaa);
        };
        let station = calling_station_id(login.remote);
        let port = usher_access::NasPort {
            calling_station: Some(&station),
            id: Some(&login.connection),
            ..usher_access::NasPort::default()
        };
        let request = AccessRequest {
            port,
            continues: Some(&login.next),
            // RFC 3579, 2.1: the packet is relayed, whatever its method.
            ..AccessRequest::new(&login.name, UserCredentials::Eap(packet))
        };
        let token = login.token;
        match aaa.send_request(now, token, &request) {
            Ok(()) => {}
            Err(CommandError::Full(_)) => {
                return self.fail_login_unanswered(now, sa, LoginFailure::Unanswered);
            }
            // The user's name does not fit into a request, so a request to another server would fail in the same way.
            Err(_) => return self.turn_away(now, sa, LoginFailure::NoName),
        }
        login.is_request_pending = true;
        self.aaa_requests.insert(token, sa);
    }

    /// Handles an EAP packet for a local user.
    fn handle_local_eap_packet(&mut self, now: Instant, sa: IkeSaId, packet: &[u8]) {
        if self.reject_if_locked_out(now, sa) {
            return;
        }
        let wall = now.to_wall_time(self.epoch);
        let Some(login) = self.logins.get_mut(&sa) else { return };
        let conversation = match login.local.take() {
            Some(conversation) if conversation.is_costly() => {
                let what = GatewayJob::Judge(Box::new(EapStepJob::new(sa, conversation, packet)));
                return self
                    .outputs
                    .push_job(JobRequest::new(login.token, what).with_origin(login.login_job_origin()));
            }
            Some(mut conversation) => {
                conversation.handle_packet(packet);
                conversation
            }
            None => self.config.users.start_conversation(&login.name, packet, wall, &mut self.rng),
        };
        self.apply_verdict(now, sa, conversation);
    }

    /// Applies a worker's judgement. The login may have ended meanwhile.
    pub(crate) fn apply_eap_step_result(&mut self, now: Instant, judgement: EapStepJob) {
        // If a lockout has begun meanwhile, the login is rejected, so that the result stays hidden.
        if !self.reject_if_locked_out(now, judgement.sa) {
            self.apply_verdict(now, judgement.sa, judgement.conversation);
        }
    }

    /// Rejects a login whose user name or host is locked out. Many concurrent attempts are checked only up to the
    /// limit. A login that has already failed is not checked again here.
    fn reject_if_locked_out(&mut self, now: Instant, sa: IkeSaId) -> bool {
        let Some(login) = self.logins.get_mut(&sa) else { return false };
        if login.counted || !self.lockout.is_locked_out(now, &login.name, &host_of(login.remote.ip())) {
            return false;
        }
        login.local = None;
        self.counters.logins_locked_out += 1;
        self.turn_away(now, sa, LoginFailure::LockedOut);
        true
    }

    /// Rejects a login without a judgement.
    fn turn_away(&mut self, now: Instant, sa: IkeSaId, why: LoginFailure) {
        self.report_failure(sa, why);
        // The endpoint makes the EAP-Failure.
        let answer = EapAnswer::Reject { packet: Vec::new() };
        self.send_ike_command(now, ike::IkeCommand::Eap { sa, answer });
    }

    fn apply_verdict(&mut self, now: Instant, sa: IkeSaId, conversation: LocalEapConversation) {
        let Some(login) = self.logins.get_mut(&sa) else { return };
        let (login_name, from) = (login.name.clone(), host_of(login.remote.ip()));
        let conversation = login.local.insert(conversation);
        let verdict = conversation.take_verdict();
        // An attacker may leave before the EAP-Failure, so a wrong password counts as soon as it is known.
        let fails = conversation.has_refused() || matches!(verdict, EapStepOutcome::Reject(_));
        if fails && !core::mem::replace(&mut login.counted, true) {
            self.lockout.record_failure(now, &login_name, &from);
        }
        for work in conversation.drain_work() {
            self.outputs.push_work(work);
        }
        let answer = match verdict {
            EapStepOutcome::Continue(packet) => EapAnswer::Continue(packet),
            EapStepOutcome::Reject(packet) => {
                self.counters.logins_rejected += 1;
                self.report_failure(sa, LoginFailure::Rejected);
                EapAnswer::Reject { packet }
            }
            EapStepOutcome::Accept { packet, msk } => {
                self.counters.logins_accepted += 1;
                // The letter case of a name from a certificate does not distinguish users, so such a user gets the
                // canonical name.
                login.granted.user = match self.config.users.passwords.contains_key(&login_name) {
                    true => login_name.clone(),
                    false => identity_from_name(&login_name).comparison_octets().into_owned(),
                };
                login.local = None;
                self.lockout.record_success(now, &login_name, &from);
                EapAnswer::Accept { packet, msk, identity: identity_from_name(&login_name) }
            }
        };
        self.send_ike_command(now, ike::IkeCommand::Eap { sa, answer });
    }

    pub(crate) fn fail_login_unanswered(&mut self, now: Instant, sa: IkeSaId, why: LoginFailure) {
        self.counters.logins_unanswered += 1;
        self.report_failure(sa, why);
        self.send_ike_command(now, ike::IkeCommand::Eap { sa, answer: EapAnswer::Unanswered });
    }

    pub(crate) fn report_failure(&mut self, sa: IkeSaId, why: LoginFailure) {
        let Some(login) = self.logins.get(&sa) else { return };
        let (remote, connection) = (login.remote, login.connection.clone());
        // The login is for the EAP identity, so the IKE identity is reported only if there is none.
        let said =
            if login.name.is_empty() { login.identity.clone() } else { identity_from_name(&login.name) };
        self.outputs.push_event(GatewayEvent::LoginFailed { remote, connection, identity: said, why });
    }

    /// Handles an event of the AAA client.
    pub(crate) fn handle_aaa_event(&mut self, now: Instant, event: usher_access::AccessClientEvent) {
        use usher_access::AccessClientEvent;
        match event {
            AccessClientEvent::Challenge { token, reply } => self.apply_challenge(now, token, reply),
            AccessClientEvent::Accept { token, reply } => self.handle_aaa_accept(now, token, reply),
            AccessClientEvent::Reject { token, reply } => {
                let Some(sa) = self.take_query(token) else { return };
                self.counters.logins_rejected += 1;
                self.report_failure(sa, LoginFailure::Rejected);
                let mut packet = Vec::new();
                reply.read_eap(&mut packet);
                self.recycle_reply(reply);
                self.send_ike_command(now, ike::IkeCommand::Eap { sa, answer: EapAnswer::Reject { packet } });
            }
            AccessClientEvent::Failed { token, failure } => {
                let Some(sa) = self.take_query(token) else { return };
                let why = match failure {
                    AaaRequestFailure::BadAnswer => LoginFailure::BadAnswer,
                    AaaRequestFailure::Timeout
                    | AaaRequestFailure::Unavailable
                    | AaaRequestFailure::ConnectionLost
                    | AaaRequestFailure::Fault(_) => LoginFailure::Unanswered,
                };
                self.fail_login_unanswered(now, sa, why);
            }
            AccessClientEvent::Accounted { token, result: kept } => {
                let Some(session) = self.records.remove(&token) else { return };
                if kept.is_err() {
                    self.counters.records_lost += 1;
                    self.outputs.push_event(GatewayEvent::Unaccounted { session });
                }
                self.finish_shutdown(false);
            }
            AccessClientEvent::Dynamic(request) => self.handle_dynamic_request(now, &request),
            AccessClientEvent::Peer { peer, up } => self.outputs.push_event(GatewayEvent::Server {
                server: usize::try_from(peer.0).unwrap_or(usize::MAX),
                up,
            }),
            AccessClientEvent::Server { server, health, .. } => {
                let up = health == usher_radius::client::ServerHealth::Alive;
                self.outputs.push_event(GatewayEvent::Server { server: server.into(), up });
            }
        }
    }

    /// Returns the login of an answered AAA request.
    fn take_query(&mut self, token: u64) -> Option<IkeSaId> {
        let sa = self.aaa_requests.remove(&token)?;
        self.logins.get_mut(&sa)?.is_request_pending = false;
        Some(sa)
    }

    fn recycle_reply(&mut self, reply: AccessReply) {
        if let Some(aaa) = &mut self.aaa {
            aaa.recycle_reply(reply);
        }
    }

    fn apply_challenge(&mut self, now: Instant, token: u64, reply: AccessReply) {
        let Some(sa) = self.take_query(token) else { return };
        let mut packet = Vec::new();
        let asks = reply.read_eap(&mut packet);
        if let Some(login) = self.logins.get_mut(&sa) {
            reply.fill_continuation(&mut login.next);
        }
        self.recycle_reply(reply);
        if asks {
            self.send_ike_command(now, ike::IkeCommand::Eap { sa, answer: EapAnswer::Continue(packet) });
        } else {
            self.fail_login_unanswered(now, sa, LoginFailure::BadAnswer);
        }
    }

    fn handle_aaa_accept(&mut self, now: Instant, token: u64, reply: AccessReply) {
        let Some(sa) = self.take_query(token) else { return };
        let Ok(msk) = reply.msk() else {
            return self.fail_login_unanswered(now, sa, LoginFailure::BadAnswer);
        };
        let Some(login) = self.logins.get_mut(&sa) else { return };
        let user = reply.user_name().unwrap_or(&login.name).to_vec();
        let framed = match reply.framed_ip_address() {
            Some(FramedAddress::Address(address)) => Some(IpAddr::V4(address)),
            Some(FramedAddress::NasChooses | FramedAddress::UserChooses) | None => None,
        };
        let addresses: Vec<IpAddr> =
            framed.into_iter().chain(reply.framed_ipv6_addresses().map(IpAddr::V6)).collect();
        if !addresses.iter().copied().all(is_host_address) {
            return self.fail_login_unanswered(now, sa, LoginFailure::BadAnswer);
        }
        login.granted = LoginGrant {
            classes: reply.classes().map(<[u8]>::to_vec).collect(),
            addresses,
            pool: reply.framed_pool().map(Into::into),
            dns: reply.dns_servers().collect(),
            // Zero means no limit, as in Diameter (RFC 6733 §8.13).
            lasts: reply.session_timeout().filter(|lasts| !lasts.is_zero()),
            interim: reply.interim_interval(),
            token: Some(token),
            user: user.clone(),
        };
        let nameless = login.tunnelled && user == login.name;
        self.counters.logins_accepted += 1;
        let mut packet = Vec::new();
        reply.read_eap(&mut packet);
        self.recycle_reply(reply);
        let msk = msk.map(|msk| SecretValue::from(&msk[..]));
        let identity = accepted_user_identity(&user, nameless, sa);
        let answer = EapAnswer::Accept { packet, msk, identity };
        self.send_ike_command(now, ike::IkeCommand::Eap { sa, answer });
    }

    /// Removes a login without a session and cancels its AAA request.
    pub(crate) fn drop_login(&mut self, now: Instant, sa: IkeSaId) {
        if self.logins.get(&sa).is_some_and(|login| login.is_request_pending) {
            self.counters.logins_unanswered += 1;
            self.report_failure(sa, LoginFailure::Unanswered);
        }
        let Some(login) = self.logins.remove(&sa) else { return };
        if login.is_request_pending {
            self.aaa_requests.remove(&login.token);
            if let Some(aaa) = &mut self.aaa {
                // The client knows the token of every pending request, so the command does not fail.
                let _ =
                    aaa.handle_command(now, usher_access::AccessClientCommand::Cancel { token: login.token });
            }
        } else if let (Some(token), Some(aaa)) = (login.granted.token, &mut self.aaa) {
            let cause = usher_access::TerminateCause::UserError;
            let _ = aaa.handle_command(now, usher_access::AccessClientCommand::Terminate { token, cause });
        }
        for lease in login.leases {
            self.release_lease(lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_outside_a_tunnel_is_nobodys() {
        let (ann, other) = (
            accepted_user_identity(b"ann", true, IkeSaId(1)),
            accepted_user_identity(b"ann", true, IkeSaId(2)),
        );
        assert!(ann != other && ann != identity_from_name(b"ann"), "{ann:?} {other:?}");
        assert_eq!(accepted_user_identity(b"ann", false, IkeSaId(1)), identity_from_name(b"ann"));
    }
}
