//! Initiators who prove who they are by EAP: each packet goes to whoever judges, and the verdict comes back.

use crate::service::{EapJudge, GatewayEvent, GatewayJob, IkeGateway, LoginFailure};
use crate::users::{EapJudgement, EapVerdict, LocalConversation};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_access::pool::Lease;
use usher_access::{AaaFailure, AccessReply, AccessRequest, FramedAddress, LoginContinuation, LoginProof};
use usher_core::address::{host_of, is_host_address};
use usher_core::{CommandError, Duration, Instant, JobOrigin, JobRequest, JobWaiter, Machine};
use usher_crypto::SecretValue;
use usher_eap::packet::{EapPacket, EapType};
use usher_ike::machine::{self as ike, EapAnswer, SaId};
use usher_ike::payload::{ConfigurationAttribute, Identification};

/// What an AAA server says of a user whom it lets in.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoginGrant {
    /// The name that records of accounting have.
    pub(crate) user: Vec<u8>,
    pub(crate) classes: Vec<Vec<u8>>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) pool: Option<String>,
    pub(crate) dns: Vec<IpAddr>,
    pub(crate) lasts: Option<Duration>,
    pub(crate) interim: Option<Duration>,
    /// That of the question by which it was let in.
    pub(crate) token: Option<u64>,
}

/// An initiator who proves who it is, or waits for an address.
#[derive(Debug)]
pub(crate) struct EapLogin {
    /// What it says of itself by EAP.
    pub(crate) name: Vec<u8>,
    pub(crate) identity: Identification,
    pub(crate) connection: String,
    pub(crate) remote: SocketAddr,
    token: u64,
    /// A question of it is open.
    is_request_pending: bool,
    next: LoginContinuation,
    local: Option<LocalConversation>,
    /// For whom its jobs are.
    waiter: JobWaiter,
    /// It has been counted as failed.
    counted: bool,
    /// What it says of itself is not what it proves: that is said within a tunnel, to the AAA server alone.
    tunnelled: bool,
    pub(crate) granted: LoginGrant,
    /// What it has wished for, until that is there.
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
            next: LoginContinuation::new(),
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
    /// For whom its jobs are.
    pub(crate) fn job_origin(&self) -> JobOrigin {
        JobOrigin::from_address(self.remote.ip()).awaited_by(&self.waiter)
    }
}

/// An address and port as strongSwan writes them in Calling-Station-Id.
pub(crate) fn calling_station_id(address: SocketAddr) -> String {
    alloc::format!("{}[{}]", address.ip().to_canonical(), address.port())
}

/// Who a text of an AAA server or of EAP means.
fn identity_from_name(name: &[u8]) -> Identification {
    match core::str::from_utf8(name) {
        Ok(text) => Identification::of_text(text),
        Err(_) => Identification { kind: usher_ike::code::IdType::ID_KEY_ID, data: name.to_vec() },
    }
}

/// Whom an AAA server has let in. Whoever has proved something within a tunnel may have called itself anybody outside of it: without the
/// server's word (`nameless`) it is somebody, whom no other IKE_SA, address or connection knows.
fn proven_identity(user: &[u8], nameless: bool, sa: SaId) -> Identification {
    if nameless {
        let name = usher_access::fallback_user_name(user, &alloc::format!("IKE_SA {}", sa.0));
        return Identification { kind: usher_ike::code::IdType::ID_KEY_ID, data: name };
    }
    identity_from_name(user)
}

/// The name within an EAP response of the type Identity.
fn eap_identity(packet: &[u8]) -> Option<Vec<u8>> {
    let packet = EapPacket::parse(packet).ok()?;
    (packet.kind() == Some(EapType::IDENTITY)).then(|| packet.data().to_vec())
}

impl IkeGateway {
    /// An EAP packet of an initiator is to be judged.
    pub(crate) fn handle_eap(
        &mut self,
        now: Instant,
        (sa, identity, connection, remote): (SaId, Identification, String, SocketAddr),
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
        match judge.map_or(EapJudge::Aaa, |peer| peer.judge) {
            EapJudge::Local => self.judge_locally(now, sa, packet),
            EapJudge::Aaa => self.query_aaa(now, sa, packet),
        }
    }

    fn query_aaa(&mut self, now: Instant, sa: SaId, packet: &[u8]) {
        let (Some(login), Some(aaa)) = (self.logins.get_mut(&sa), &mut self.aaa) else {
            return self.fail_unanswered(now, sa, LoginFailure::NoAaa);
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
            ..AccessRequest::new(&login.name, LoginProof::Eap(packet))
        };
        let token = login.token;
        match aaa.send_request(now, token, &request) {
            Ok(()) => {}
            Err(CommandError::Full(_)) => return self.fail_unanswered(now, sa, LoginFailure::Unanswered),
            // Whoever asks later asks the same.
            Err(_) => return self.turn_away(now, sa, LoginFailure::NoName),
        }
        login.is_request_pending = true;
        self.aaa_requests.insert(token, sa);
    }

    /// The gateway's own users.
    fn judge_locally(&mut self, now: Instant, sa: SaId, packet: &[u8]) {
        if self.reject_if_locked_out(now, sa) {
            return;
        }
        let wall = now.to_wall_time(self.epoch);
        let Some(login) = self.logins.get_mut(&sa) else { return };
        let conversation = match login.local.take() {
            Some(conversation) if conversation.is_costly() => {
                let what = GatewayJob::Judge(Box::new(EapJudgement::new(sa, conversation, packet)));
                return self
                    .outputs
                    .push_job(JobRequest::new(login.token, what).with_origin(login.job_origin()));
            }
            Some(mut conversation) => {
                conversation.handle_packet(packet);
                conversation
            }
            None => self.config.users.start_conversation(&login.name, packet, wall, &mut self.rng),
        };
        self.apply_verdict(now, sa, conversation);
    }

    /// A helper has judged a packet. Its login may be over.
    pub(crate) fn apply_judgement(&mut self, now: Instant, judgement: EapJudgement) {
        // Others may have failed meanwhile: what came of it is told nobody.
        if !self.reject_if_locked_out(now, judgement.sa) {
            self.apply_verdict(now, judgement.sa, judgement.conversation);
        }
    }

    /// Turns a login away whose name or host is held back. Of many guesses made at once no more are weighed than the limit is; of one that
    /// was wrong nothing more is.
    fn reject_if_locked_out(&mut self, now: Instant, sa: SaId) -> bool {
        let Some(login) = self.logins.get_mut(&sa) else { return false };
        if login.counted || !self.lockout.is_locked_out(now, &login.name, &host_of(login.remote.ip())) {
            return false;
        }
        login.local = None;
        self.counters.logins_held_back += 1;
        self.turn_away(now, sa, LoginFailure::LockedOut);
        true
    }

    /// Turns a login away that nobody has judged.
    fn turn_away(&mut self, now: Instant, sa: SaId, why: LoginFailure) {
        self.report_failure(sa, why);
        // An EAP-Failure is made where there is none.
        let answer = EapAnswer::Reject { packet: Vec::new() };
        self.send_ike_command(now, ike::IkeCommand::Eap { sa, answer });
    }

    fn apply_verdict(&mut self, now: Instant, sa: SaId, conversation: LocalConversation) {
        let Some(login) = self.logins.get_mut(&sa) else { return };
        let (login_name, from) = (login.name.clone(), host_of(login.remote.ip()));
        let conversation = login.local.insert(conversation);
        let verdict = conversation.take_verdict();
        // Whoever guesses does not stay to be turned away.
        let fails = conversation.has_refused() || matches!(verdict, EapVerdict::Reject(_));
        if fails && !core::mem::replace(&mut login.counted, true) {
            self.lockout.record_failure(now, &login_name, &from);
        }
        for work in conversation.drain_work() {
            self.outputs.push_work(work);
        }
        let answer = match verdict {
            EapVerdict::Continue(packet) => EapAnswer::Continue(packet),
            EapVerdict::Reject(packet) => {
                self.counters.logins_rejected += 1;
                self.report_failure(sa, LoginFailure::Rejected);
                EapAnswer::Reject { packet }
            }
            EapVerdict::Accept { packet, msk } => {
                self.counters.logins_accepted += 1;
                // A certificate's name in other capitals is no other user.
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

    pub(crate) fn fail_unanswered(&mut self, now: Instant, sa: SaId, why: LoginFailure) {
        self.counters.logins_unanswered += 1;
        self.report_failure(sa, why);
        self.send_ike_command(now, ike::IkeCommand::Eap { sa, answer: EapAnswer::Unanswered });
    }

    pub(crate) fn report_failure(&mut self, sa: SaId, why: LoginFailure) {
        let Some(login) = self.logins.get(&sa) else { return };
        let (remote, connection) = (login.remote, login.connection.clone());
        // Inside EAP it calls itself what it is to be let in as.
        let said =
            if login.name.is_empty() { login.identity.clone() } else { identity_from_name(&login.name) };
        self.outputs.push_event(GatewayEvent::LoginFailed { remote, connection, identity: said, why });
    }

    /// What an AAA server answers, or wants.
    pub(crate) fn handle_aaa_event(&mut self, now: Instant, event: usher_access::AccessClientEvent) {
        use usher_access::AccessClientEvent;
        match event {
            AccessClientEvent::Challenge { token, reply } => self.apply_challenge(now, token, reply),
            AccessClientEvent::Accept { token, reply } => self.apply_accept(now, token, reply),
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
                    AaaFailure::BadAnswer => LoginFailure::BadAnswer,
                    AaaFailure::Timeout
                    | AaaFailure::Unavailable
                    | AaaFailure::ConnectionLost
                    | AaaFailure::Fault(_) => LoginFailure::Unanswered,
                };
                self.fail_unanswered(now, sa, why);
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

    /// The login whose question is answered.
    fn take_query(&mut self, token: u64) -> Option<SaId> {
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
            self.fail_unanswered(now, sa, LoginFailure::BadAnswer);
        }
    }

    fn apply_accept(&mut self, now: Instant, token: u64, reply: AccessReply) {
        let Some(sa) = self.take_query(token) else { return };
        let Ok(msk) = reply.msk() else { return self.fail_unanswered(now, sa, LoginFailure::BadAnswer) };
        let Some(login) = self.logins.get_mut(&sa) else { return };
        let user = reply.user_name().unwrap_or(&login.name).to_vec();
        let framed = match reply.framed_ip_address() {
            Some(FramedAddress::Address(address)) => Some(IpAddr::V4(address)),
            Some(FramedAddress::NasChooses | FramedAddress::UserChooses) | None => None,
        };
        let addresses: Vec<IpAddr> =
            framed.into_iter().chain(reply.framed_ipv6_addresses().map(IpAddr::V6)).collect();
        if !addresses.iter().copied().all(is_host_address) {
            return self.fail_unanswered(now, sa, LoginFailure::BadAnswer);
        }
        login.granted = LoginGrant {
            classes: reply.classes().map(<[u8]>::to_vec).collect(),
            addresses,
            pool: reply.framed_pool().map(Into::into),
            dns: reply.dns_servers().collect(),
            // Zero is no limit, as Diameter has it (RFC 6733 §8.13).
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
        let identity = proven_identity(&user, nameless, sa);
        let answer = EapAnswer::Accept { packet, msk, identity };
        self.send_ike_command(now, ike::IkeCommand::Eap { sa, answer });
    }

    /// A login is over, without a session: whom it asked need not answer.
    pub(crate) fn drop_login(&mut self, now: Instant, sa: SaId) {
        if self.logins.get(&sa).is_some_and(|login| login.is_request_pending) {
            self.counters.logins_unanswered += 1;
            self.report_failure(sa, LoginFailure::Unanswered);
        }
        let Some(login) = self.logins.remove(&sa) else { return };
        if login.is_request_pending {
            self.aaa_requests.remove(&login.token);
            if let Some(aaa) = &mut self.aaa {
                // It knows every question.
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
        let (ann, other) = (proven_identity(b"ann", true, SaId(1)), proven_identity(b"ann", true, SaId(2)));
        assert!(ann != other && ann != identity_from_name(b"ann"), "{ann:?} {other:?}");
        assert_eq!(proven_identity(b"ann", false, SaId(1)), identity_from_name(b"ann"));
    }
}
