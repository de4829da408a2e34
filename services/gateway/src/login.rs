//! Initiators who prove who they are by EAP: each packet goes to whoever judges, and the verdict comes back.

use crate::service::{Event, Gateway, GatewayJob, Judge, LoginFailure};
use crate::users::{Conversation, Judgement, Verdict};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_access::pool::Lease;
use usher_access::{Continuation, Failure, FramedAddress, Proof, Reply, Request};
use usher_core::address::{host_of, is_host_address};
use usher_core::{CommandError, Duration, Instant, Job, JobOrigin, JobWaiter, Machine};
use usher_crypto::Key;
use usher_eap::packet::{Packet, Type};
use usher_ike::machine::{self as ike, EapAnswer, SaId};
use usher_ike::payload::{ConfigurationAttribute, Identification};

/// What an AAA server says of a user whom it lets in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Granted {
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
pub(crate) struct Login {
    /// What it says of itself by EAP.
    pub(crate) name: Vec<u8>,
    pub(crate) identity: Identification,
    pub(crate) connection: String,
    pub(crate) remote: SocketAddr,
    token: u64,
    /// A question of it is open.
    asking: bool,
    next: Continuation,
    local: Option<Conversation>,
    /// For whom its jobs are.
    waiter: JobWaiter,
    /// It has been counted as failed.
    counted: bool,
    /// What it says of itself is not what it proves: that is said within a tunnel, to the AAA server alone.
    tunnelled: bool,
    pub(crate) granted: Granted,
    /// What it has wished for, until that is there.
    pub(crate) wishes: Vec<ConfigurationAttribute>,
    pub(crate) leases: Vec<Lease>,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Login {
    pub(crate) fn new(identity: Identification, connection: String, remote: SocketAddr) -> Self {
        Self {
            name: Vec::new(),
            identity,
            connection,
            remote,
            token: 0,
            asking: false,
            next: Continuation::new(),
            local: None,
            waiter: JobWaiter::default(),
            counted: false,
            tunnelled: false,
            granted: Granted::default(),
            wishes: Vec::new(),
            leases: Vec::new(),
            addresses: Vec::new(),
        }
    }
    /// For whom its jobs are.
    pub(crate) fn origin(&self) -> JobOrigin {
        JobOrigin::of(self.remote.ip()).awaited_by(&self.waiter)
    }
}

/// An address and port as strongSwan writes them in Calling-Station-Id.
pub(crate) fn station(address: SocketAddr) -> String {
    alloc::format!("{}[{}]", address.ip().to_canonical(), address.port())
}

/// Who a text of an AAA server or of EAP means.
fn identity(name: &[u8]) -> Identification {
    match core::str::from_utf8(name) {
        Ok(text) => Identification::of_text(text),
        Err(_) => Identification { kind: usher_ike::code::IdType::ID_KEY_ID, data: name.to_vec() },
    }
}

/// Whom an AAA server has let in. Whoever has proved something within a tunnel may have called itself anybody outside of it: without the
/// server's word (`nameless`) it is somebody, whom no other IKE_SA, address or connection knows.
fn proved(user: &[u8], nameless: bool, sa: SaId) -> Identification {
    if nameless {
        let name = usher_access::within(user, &alloc::format!("IKE_SA {}", sa.0));
        return Identification { kind: usher_ike::code::IdType::ID_KEY_ID, data: name };
    }
    identity(user)
}

/// The name within an EAP response of the type Identity.
fn named(packet: &[u8]) -> Option<Vec<u8>> {
    let packet = Packet::parse(packet).ok()?;
    (packet.kind() == Some(Type::IDENTITY)).then(|| packet.data().to_vec())
}

impl Gateway {
    /// An EAP packet of an initiator is to be judged.
    pub(crate) fn eap(
        &mut self,
        now: Instant,
        (sa, identity, connection, remote): (SaId, Identification, String, SocketAddr),
        packet: &[u8],
    ) {
        let token = self.token();
        let login = self.logins.entry(sa).or_insert_with(|| {
            let mut login = Login::new(identity, connection, remote);
            login.token = token;
            login.name = named(packet).unwrap_or_default();
            login
        });
        login.tunnelled |= usher_access::is_tunnelled(packet);
        let judge = self.config.peers.iter().find(|peer| peer.connection.name == login.connection);
        match judge.map_or(Judge::Aaa, |peer| peer.judge) {
            Judge::Local => self.judge(now, sa, packet),
            Judge::Aaa => self.ask(now, sa, packet),
        }
    }

    fn ask(&mut self, now: Instant, sa: SaId, packet: &[u8]) {
        let (Some(login), Some(aaa)) = (self.logins.get_mut(&sa), &mut self.aaa) else {
            return self.unanswered(now, sa, LoginFailure::NoAaa);
        };
        let station = station(login.remote);
        let port = usher_access::NasPort {
            calling_station: Some(&station),
            id: Some(&login.connection),
            ..usher_access::NasPort::default()
        };
        let request =
            Request { port, continues: Some(&login.next), ..Request::new(&login.name, Proof::Eap(packet)) };
        let token = login.token;
        match aaa.ask(now, token, &request) {
            Ok(()) => {}
            Err(CommandError::Full(_)) => return self.unanswered(now, sa, LoginFailure::Unanswered),
            // Whoever asks later asks the same.
            Err(_) => return self.turn_away(now, sa, LoginFailure::NoName),
        }
        login.asking = true;
        self.asked.insert(token, sa);
    }

    /// The gateway's own users.
    fn judge(&mut self, now: Instant, sa: SaId, packet: &[u8]) {
        if self.holds_back(now, sa) {
            return;
        }
        let wall = now.wall(self.epoch);
        let Some(login) = self.logins.get_mut(&sa) else { return };
        let conversation = match login.local.take() {
            Some(conversation) if conversation.is_costly() => {
                let what = GatewayJob::Judge(Box::new(Judgement::new(sa, conversation, packet)));
                return self.outputs.job(Job::new(login.token, what).of(login.origin()));
            }
            Some(mut conversation) => {
                conversation.handle(packet);
                conversation
            }
            None => self.config.users.begin(&login.name, packet, wall, &mut self.rng),
        };
        self.decided(now, sa, conversation);
    }

    /// A helper has judged a packet. Its login may be over.
    pub(crate) fn judged(&mut self, now: Instant, judgement: Judgement) {
        // Others may have failed meanwhile: what came of it is told nobody.
        if !self.holds_back(now, judgement.sa) {
            self.decided(now, judgement.sa, judgement.conversation);
        }
    }

    /// Turns a login away whose name or host is held back. Of many guesses made at once no more are weighed than the limit is; of one that
    /// was wrong nothing more is.
    fn holds_back(&mut self, now: Instant, sa: SaId) -> bool {
        let Some(login) = self.logins.get_mut(&sa) else { return false };
        if login.counted || !self.lockout.holds(now, &login.name, &host_of(login.remote.ip())) {
            return false;
        }
        login.local = None;
        self.counters.logins_held_back += 1;
        self.turn_away(now, sa, LoginFailure::HeldBack);
        true
    }

    /// Turns a login away that nobody has judged.
    fn turn_away(&mut self, now: Instant, sa: SaId, why: LoginFailure) {
        self.failed(sa, why);
        // An EAP-Failure is made where there is none.
        let answer = EapAnswer::Reject { packet: Vec::new() };
        self.tell(now, ike::Command::Eap { sa, answer });
    }

    fn decided(&mut self, now: Instant, sa: SaId, conversation: Conversation) {
        let Some(login) = self.logins.get_mut(&sa) else { return };
        let (login_name, from) = (login.name.clone(), host_of(login.remote.ip()));
        let conversation = login.local.insert(conversation);
        let verdict = conversation.verdict();
        // Whoever guesses does not stay to be turned away.
        let fails = conversation.refuses() || matches!(verdict, Verdict::Reject(_));
        if fails && !core::mem::replace(&mut login.counted, true) {
            self.lockout.failed(now, &login_name, &from);
        }
        for work in conversation.work() {
            self.outputs.work(work);
        }
        let answer = match verdict {
            Verdict::Continue(packet) => EapAnswer::Continue(packet),
            Verdict::Reject(packet) => {
                self.counters.logins_rejected += 1;
                self.failed(sa, LoginFailure::Rejected);
                EapAnswer::Reject { packet }
            }
            Verdict::Accept { packet, msk } => {
                self.counters.logins_accepted += 1;
                // A certificate's name in other capitals is no other user.
                login.granted.user = match self.config.users.passwords.contains_key(&login_name) {
                    true => login_name.clone(),
                    false => identity(&login_name).compared().into_owned(),
                };
                login.local = None;
                self.lockout.succeeded(now, &login_name, &from);
                EapAnswer::Accept { packet, msk, identity: identity(&login_name) }
            }
        };
        self.tell(now, ike::Command::Eap { sa, answer });
    }

    pub(crate) fn unanswered(&mut self, now: Instant, sa: SaId, why: LoginFailure) {
        self.counters.logins_unanswered += 1;
        self.failed(sa, why);
        self.tell(now, ike::Command::Eap { sa, answer: EapAnswer::Unanswered });
    }

    pub(crate) fn failed(&mut self, sa: SaId, why: LoginFailure) {
        let Some(login) = self.logins.get(&sa) else { return };
        let (remote, connection) = (login.remote, login.connection.clone());
        // Inside EAP it calls itself what it is to be let in as.
        let said = if login.name.is_empty() { login.identity.clone() } else { identity(&login.name) };
        self.outputs.event(Event::LoginFailed { remote, connection, identity: said, why });
    }

    /// What an AAA server answers, or wants.
    pub(crate) fn answered(&mut self, now: Instant, event: usher_access::Event) {
        use usher_access::Event as E;
        match event {
            E::Challenge { token, reply } => self.challenged(now, token, reply),
            E::Accept { token, reply } => self.accepted(now, token, reply),
            E::Reject { token, reply } => {
                let Some(sa) = self.verdict(token) else { return };
                self.counters.logins_rejected += 1;
                self.failed(sa, LoginFailure::Rejected);
                let mut packet = Vec::new();
                reply.eap(&mut packet);
                self.recycle(reply);
                self.tell(now, ike::Command::Eap { sa, answer: EapAnswer::Reject { packet } });
            }
            E::Failed { token, failure } => {
                let Some(sa) = self.verdict(token) else { return };
                let why = match failure {
                    Failure::BadAnswer => LoginFailure::BadAnswer,
                    Failure::Timeout | Failure::Unavailable | Failure::ConnectionLost | Failure::Fault(_) => {
                        LoginFailure::Unanswered
                    }
                };
                self.unanswered(now, sa, why);
            }
            E::Accounted { token, kept } => {
                let Some(session) = self.records.remove(&token) else { return };
                if kept.is_err() {
                    self.counters.records_lost += 1;
                    self.outputs.event(Event::Unaccounted { session });
                }
                self.say_farewell(false);
            }
            E::Dynamic(request) => self.dynamic(now, &request),
            E::Peer { peer, up } => self
                .outputs
                .event(Event::Server { server: usize::try_from(peer.0).unwrap_or(usize::MAX), up }),
            E::Server { server, health, .. } => {
                let up = health == usher_radius::client::Health::Alive;
                self.outputs.event(Event::Server { server: server.into(), up });
            }
        }
    }

    /// The login whose question is answered.
    fn verdict(&mut self, token: u64) -> Option<SaId> {
        let sa = self.asked.remove(&token)?;
        self.logins.get_mut(&sa)?.asking = false;
        Some(sa)
    }

    fn recycle(&mut self, reply: Reply) {
        if let Some(aaa) = &mut self.aaa {
            aaa.recycle(reply);
        }
    }

    fn challenged(&mut self, now: Instant, token: u64, reply: Reply) {
        let Some(sa) = self.verdict(token) else { return };
        let mut packet = Vec::new();
        let asks = reply.eap(&mut packet);
        if let Some(login) = self.logins.get_mut(&sa) {
            reply.continuation(&mut login.next);
        }
        self.recycle(reply);
        if asks {
            self.tell(now, ike::Command::Eap { sa, answer: EapAnswer::Continue(packet) });
        } else {
            self.unanswered(now, sa, LoginFailure::BadAnswer);
        }
    }

    fn accepted(&mut self, now: Instant, token: u64, reply: Reply) {
        let Some(sa) = self.verdict(token) else { return };
        let Ok(msk) = reply.msk() else { return self.unanswered(now, sa, LoginFailure::BadAnswer) };
        let Some(login) = self.logins.get_mut(&sa) else { return };
        let user = reply.user_name().unwrap_or(&login.name).to_vec();
        let framed = match reply.framed_ip_address() {
            Some(FramedAddress::Address(address)) => Some(IpAddr::V4(address)),
            Some(FramedAddress::NasChooses | FramedAddress::UserChooses) | None => None,
        };
        let addresses: Vec<IpAddr> =
            framed.into_iter().chain(reply.framed_ipv6_addresses().map(IpAddr::V6)).collect();
        if !addresses.iter().copied().all(is_host_address) {
            return self.unanswered(now, sa, LoginFailure::BadAnswer);
        }
        login.granted = Granted {
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
        reply.eap(&mut packet);
        self.recycle(reply);
        let msk = msk.map(|msk| Key::from(&msk[..]));
        let identity = proved(&user, nameless, sa);
        let answer = EapAnswer::Accept { packet, msk, identity };
        self.tell(now, ike::Command::Eap { sa, answer });
    }

    /// A login is over, without a session: whom it asked need not answer.
    pub(crate) fn drop_login(&mut self, now: Instant, sa: SaId) {
        if self.logins.get(&sa).is_some_and(|login| login.asking) {
            self.counters.logins_unanswered += 1;
            self.failed(sa, LoginFailure::Unanswered);
        }
        let Some(login) = self.logins.remove(&sa) else { return };
        if login.asking {
            self.asked.remove(&login.token);
            if let Some(aaa) = &mut self.aaa {
                // It knows every question.
                let _ = aaa.command(now, usher_access::Command::Cancel { token: login.token });
            }
        } else if let (Some(token), Some(aaa)) = (login.granted.token, &mut self.aaa) {
            let cause = usher_access::TerminateCause::UserError;
            let _ = aaa.command(now, usher_access::Command::Terminate { token, cause });
        }
        for lease in login.leases {
            self.release(lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_outside_a_tunnel_is_nobodys() {
        let (ann, other) = (proved(b"ann", true, SaId(1)), proved(b"ann", true, SaId(2)));
        assert!(ann != other && ann != identity(b"ann"), "{ann:?} {other:?}");
        assert_eq!(proved(b"ann", false, SaId(1)), identity(b"ann"));
    }
}
