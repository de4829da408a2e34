//! Initiators who log in to an IKEv2 gateway, by a shared key, a certificate or EAP: IKE_SA_INIT and IKE_AUTH each, then the IKE_SA
//! ends or stays.

use super::login::{Login, Logins, Sink, Start, Success};
use super::{ConfigError, NotNow, alter};
use crate::eap::{EapMethod, Who};
use crate::tally::Failure;
use crate::users::Users;
use std::net::SocketAddr;
use std::sync::Arc;
use usher_core::collections::HashMap;
use usher_core::{Duration, Input, Instant, Machine, Output, Outputs, SecureRng, WallTime};
use usher_crypto::Key;
use usher_crypto::tls::{self, Roots, WallClock};
use usher_ike::Endpoint;
use usher_ike::credentials::Credentials;
use usher_ike::machine::{
    Childless, Command, Config, Connection, EndReason, Event, LocalAuth, RemoteAuth, Retransmission, SaId,
};
use usher_ike::payload::{Identification, Proposal};

/// What the connections are called at which certificates are asked for.
const NAME: &str = "load";

/// How an initiator proves who it is.
#[derive(Clone, Debug)]
pub enum IkeLogin {
    /// By the key that all of them and the gateway have. Initiators are numbered.
    Psk,
    /// By a certificate that bears the user's name: one for each user, by number, or one for all.
    Certificate(Arc<[tls::Credentials]>),
    /// By EAP (RFC 7296 §2.16), as a user with a password or a certificate.
    Eap(EapMethod),
}

impl IkeLogin {
    /// Whether a login can be wrong, so that it must be turned away: by a wrong key or password, or by the certificate of another
    /// user.
    #[must_use]
    pub fn is_deniable(&self) -> bool {
        match self {
            Self::Psk => true,
            Self::Certificate(each) => each.len() > 1,
            Self::Eap(method) => method.is_deniable(),
        }
    }
}

/// How the gateway proves who it is.
#[derive(Clone, Debug)]
pub enum IkeGatewayAuth {
    /// By the key that initiators have too.
    Psk,
    /// By a certificate below one of these, at this time.
    Certificate(Roots, WallTime),
}

/// What an IKE generator is made of.
#[derive(Clone, Debug)]
pub struct IkeConfig {
    /// Where the gateway is.
    pub address: SocketAddr,
    /// From which address of ours.
    pub local: SocketAddr,
    /// Who the gateway has to be.
    pub gateway: Identification,
    /// What the first initiator calls itself; the `n`-th has its number behind the first label.
    pub identity: String,
    /// How many initiators there are, at least one; a login is of each in turn.
    pub initiators: usize,
    /// The number of the first, where other generators have initiators too.
    pub first: usize,
    /// How they prove who they are; at least one.
    pub logins: Vec<IkeLogin>,
    /// How the gateway does.
    pub gateway_auth: IkeGatewayAuth,
    /// The key that all of them and the gateway have; empty where there is none.
    pub secret: Key,
    /// What is said in place of a user's name before the tunnel of PEAP and TTLS is there: as IKE's identity, and outside the tunnel.
    pub anonymous: Option<Arc<[u8]>>,
    /// What is proposed.
    pub proposals: Vec<Proposal>,
    /// An IKE_SA stays when it is established; otherwise it is deleted.
    pub keep: bool,
    /// How often an initiator asks whether the gateway lives (RFC 7296 §2.4) before it leaves its IKE_SA or deletes it: messages that have
    /// nothing else in them.
    pub probes: u32,
    /// How long a response is waited for before a request is sent again; each further wait is 1.8 times as long.
    pub retransmission: Duration,
    /// How often it is.
    pub retransmissions: u32,
}

/// The initiators.
#[derive(Debug)]
pub(super) struct IkeFront {
    config: IkeConfig,
    users: Arc<Users>,
    endpoint: Endpoint,
    credentials: Credentials,
    /// Of those with a shared key, with the right one and with a wrong one.
    shared: Vec<[Arc<Connection>; 2]>,
    /// How the users' certificates prove who they are, of each method the first's number in [`Self::certificates`].
    first_certificate: Vec<usize>,
    certificates: Vec<LocalAuth>,
    next: usize,
    /// With the IKE_SA, once it has begun.
    logins: Logins<Option<SaId>>,
    by_sa: HashMap<SaId, u64>,
    /// How often the gateway is still to be asked whether it lives.
    probing: HashMap<SaId, u32>,
}

/// What the `n`-th initiator is called, from 0.
fn numbered(identity: &str, n: usize) -> String {
    match identity.find(['.', '@']) {
        Some(end) => format!("{}-{}{}", &identity[..end], n + 1, &identity[end..]),
        None => format!("{identity}-{}", n + 1),
    }
}

/// What a connection is called that signs with the `n`-th certificate.
fn signing(n: usize) -> String {
    format!("{NAME}-{n}")
}

impl IkeFront {
    pub(super) fn new(config: IkeConfig, users: Arc<Users>, rng: SecureRng) -> Result<Self, ConfigError> {
        if config.initiators == 0 {
            return Err(ConfigError::Invalid("one initiator is needed at least"));
        }
        if config.logins.is_empty() {
            return Err(ConfigError::Invalid("there is no method by which initiators prove who they are"));
        }
        let settings = Config {
            retransmission: Retransmission {
                first: config.retransmission,
                count: config.retransmissions,
                ..Retransmission::default()
            },
            sas: usize::MAX,
            ..Config::default()
        };
        let mut credentials = Credentials::new();
        let trusts = |name: &str, credentials: &mut Credentials| match &config.gateway_auth {
            IkeGatewayAuth::Psk => Ok(()),
            IkeGatewayAuth::Certificate(roots, now) => credentials
                .trust(name, roots.clone(), WallClock::at(*now))
                .map_err(|_| ConfigError::Invalid("the gateway's authorities cannot be read")),
        };
        trusts(NAME, &mut credentials)?;
        let (mut first_certificate, mut certificates) = (Vec::new(), Vec::new());
        for login in &config.logins {
            first_certificate.push(certificates.len());
            let IkeLogin::Certificate(each) = login else { continue };
            if each.is_empty() {
                return Err(ConfigError::Invalid("there is no certificate"));
            }
            for own in each.iter() {
                let key = own.signing_key();
                let key =
                    key.map_err(|_| ConfigError::Invalid("a certificate's key is of no kind that signs"))?;
                let name = signing(certificates.len());
                let kind = credentials.add_key(&name, key);
                trusts(&name, &mut credentials)?;
                let chain = own.chain().map(<[u8]>::to_vec).collect();
                certificates.push(LocalAuth::Certificate { chain, kind, pss: false });
            }
        }
        let mut front = Self {
            endpoint: Endpoint::new(settings, rng),
            credentials,
            shared: Vec::new(),
            first_certificate,
            certificates,
            next: 0,
            logins: Logins::default(),
            by_sa: HashMap::default(),
            probing: HashMap::default(),
            users,
            config,
        };
        if front.config.logins.iter().any(|login| matches!(login, IkeLogin::Psk)) {
            let right = front.config.secret.clone();
            let mut wrong = right.clone();
            match wrong.first_mut() {
                Some(octet) => *octet ^= 1,
                None => wrong.push(1),
            }
            let of = |n: usize, secret: &Key| {
                let local = numbered(&front.config.identity, front.config.first + n);
                // Who has a wrong key is to be turned away by the gateway, and not to turn it away.
                Arc::new(front.connection(NAME, &local, LocalAuth::Psk(secret.clone()), false))
            };
            front.shared = (0..front.config.initiators).map(|n| [of(n, &right), of(n, &wrong)]).collect();
        }
        Ok(front)
    }

    /// A connection to the gateway. Messages may be cut into fragments (RFC 7383) where chains of certificates are in them.
    fn connection(&self, name: &str, local: &str, local_auth: LocalAuth, fragmentation: bool) -> Connection {
        let config = &self.config;
        let local = Identification::of_text(local);
        let shared = Connection::shared_key(name, local, &config.secret, config.proposals.clone());
        Connection {
            remote: Some(config.gateway.clone()),
            remote_auth: match config.gateway_auth {
                IkeGatewayAuth::Psk => shared.remote_auth,
                IkeGatewayAuth::Certificate(..) => RemoteAuth::Certificate { authorities: Vec::new() },
            },
            local_auth,
            childless: Childless::Force,
            fragmentation: fragmentation || matches!(config.gateway_auth, IkeGatewayAuth::Certificate(..)),
            ..shared
        }
    }

    fn by_eap(&self, start: &Start) -> bool {
        matches!(self.config.logins.get(usize::from(start.method)), Some(IkeLogin::Eap(_)))
    }

    /// The connection of a login.
    fn of_login(&mut self, start: &Start) -> Arc<Connection> {
        let method = usize::from(start.method);
        let users = self.users.clone();
        let (name, password) = users.get(start.user);
        let login = self.config.logins.get(method).unwrap_or(&self.config.logins[0]);
        match login {
            IkeLogin::Psk => {
                let connection = self.shared[self.next][usize::from(start.wrong)].clone();
                self.next = (self.next + 1) % self.shared.len();
                connection
            }
            IkeLogin::Certificate(each) => {
                // Another user's: the next one's.
                let number = (start.user + usize::from(start.wrong)) % each.len();
                let number = self.first_certificate[method] + number;
                let auth = self.certificates[number].clone();
                let local = String::from_utf8_lossy(name);
                Arc::new(self.connection(&signing(number), &local, auth, true))
            }
            IkeLogin::Eap(eap) => {
                let mut altered = [0; 128];
                let password = if start.wrong { alter(password, &mut altered) } else { password };
                let outer = match &self.config.anonymous {
                    Some(anonymous) if eap.has_tunnel() => anonymous,
                    _ => name,
                };
                let who = Who { number: start.user, outer, name, password, wrong: start.wrong };
                let methods = Arc::new([eap.offer(who)]);
                let auth = LocalAuth::Eap { identity: outer.to_vec(), methods };
                Arc::new(self.connection(NAME, &String::from_utf8_lossy(outer), auth, true))
            }
        }
    }

    pub(super) fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.endpoint.set_epoch(now, epoch);
    }

    /// Begins a login.
    pub(super) fn begin(&mut self, now: Instant, start: Start) -> Result<(), NotNow> {
        let connection = self.of_login(&start);
        let token = self.logins.next_token();
        let (local, remote) = (self.config.local, self.config.address);
        let initiate = Command::Initiate { token, connection, local, remote };
        self.endpoint.command(now, initiate).map_err(|_| NotNow::Full)?;
        self.logins.insert(Login { start, asked: now, rounds: 0, state: None });
        Ok(())
    }

    pub(super) fn outstanding(&self) -> usize {
        self.logins.len()
    }

    pub(super) fn each(&self, see: &mut dyn FnMut(&Start)) {
        self.logins.iter().for_each(|(_, login)| see(&login.start));
    }

    pub(super) fn abandon(&mut self, now: Instant) {
        let open: Vec<(u64, Option<SaId>)> =
            self.logins.iter().map(|(token, login)| (token, login.state)).collect();
        for (token, sa) in open {
            self.logins.remove(token);
            if let Some(sa) = sa {
                self.by_sa.remove(&sa);
                // It may have ended.
                let _ = self.endpoint.command(now, Command::Delete(sa));
            }
        }
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        self.endpoint.counters().iter().collect()
    }

    pub(super) fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.endpoint.handle(now, input);
    }

    pub(super) fn settle(&mut self, now: Instant, outputs: &mut Outputs<super::Event>, sink: &mut Sink) {
        let mut buf = outputs.buffer();
        while let Some(output) = self.endpoint.poll_output(&mut buf) {
            match output {
                Output::Transmit(transmit) => {
                    let next = outputs.buffer();
                    outputs.transmit(transmit, core::mem::replace(&mut buf, next));
                }
                Output::Work(work) => outputs.work(work),
                Output::Job(job) => {
                    // The IKE_SA that asked may have ended.
                    let _ = self.endpoint.command(now, self.credentials.answer(&job));
                }
                Output::Event(event) => self.heard(now, &event, sink),
            }
        }
        outputs.recycle(buf);
    }

    /// An IKE_SA is established: asks whether the gateway lives, as often as it is to, and then leaves it or deletes it.
    fn go_on(&mut self, now: Instant, sa: SaId) {
        let Some(left) = self.probing.get_mut(&sa) else { return };
        // It is established; what it is told it does.
        if *left > 0 {
            *left -= 1;
            let _ = self.endpoint.command(now, Command::Probe(sa));
            return;
        }
        self.probing.remove(&sa);
        if !self.config.keep {
            let _ = self.endpoint.command(now, Command::Delete(sa));
        }
    }

    /// Whether there is something still to be asked of the gateway.
    pub(super) fn is_leaving(&self) -> bool {
        !self.probing.is_empty()
    }

    fn heard(&mut self, now: Instant, event: &Event, sink: &mut Sink) {
        match event {
            Event::Initiated { token, sa } => {
                if let Some(login) = self.logins.get_mut(*token) {
                    login.state = Some(*sa);
                    self.by_sa.insert(*sa, *token);
                }
            }
            Event::Established { sa, .. } => {
                if let Some(login) = self.by_sa.remove(sa).and_then(|token| self.logins.remove(token)) {
                    sink.exchange(now, login.asked);
                    let end =
                        if login.start.wrong { Err(Failure::WronglyAccepted) } else { Ok(Success::LetIn) };
                    sink.end(now, &login.start, end);
                }
                self.probing.insert(*sa, self.config.probes);
                self.go_on(now, *sa);
            }
            Event::Alive { sa } => self.go_on(now, *sa),
            Event::Ended { sa, reason } => {
                self.probing.remove(sa);
                let Some(login) = self.by_sa.remove(sa).and_then(|token| self.logins.remove(token)) else {
                    return;
                };
                let end = match reason {
                    EndReason::Refused if login.start.wrong => Ok(Success::TurnedAway),
                    // Whose TLS has come to its end takes no EAP-Failure any more (RFC 4137, UNCOND_SUCC): IKE breaks off.
                    EndReason::Protocol if login.start.wrong && self.by_eap(&login.start) => {
                        Ok(Success::TurnedAway)
                    }
                    EndReason::Refused | EndReason::NoProposal | EndReason::Unsupported => {
                        Err(Failure::Rejected)
                    }
                    EndReason::Unreachable => Err(Failure::Timeout),
                    _ => Err(Failure::BadAnswer),
                };
                sink.end(now, &login.start, end);
            }
            _ => {}
        }
    }

    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{self as generator, FrontConfig, Generator, Share};
    use crate::pace::Pace;
    use crate::users::Users;
    use std::net::IpAddr;
    use usher_core::Seed;
    use usher_core::bench::{At, Network};
    use usher_core::impair::ChannelConfig;
    use usher_ike::machine::{NAT_SOCKET, SOCKET};

    const GATEWAY: &str = "10.2.0.1";
    const HOST: &str = "10.1.0.1";

    fn proposal(words: &str) -> Vec<Proposal> {
        vec![Proposal::ike(words).unwrap()]
    }

    /// A gateway that lets anybody in who has the key, and so many logins at it, four at a time.
    fn world(
        count: u64,
        (keep, probes): (bool, u32),
        offered: &str,
        wrong_share: f64,
    ) -> (Network, At<Generator>, At<Endpoint>) {
        let mut net =
            Network::new(ChannelConfig { delay: Duration::from_millis(1), ..ChannelConfig::default() });
        let key = Key::from(&b"the key of all"[..]);
        let ike = IkeConfig {
            address: SocketAddr::new(GATEWAY.parse().unwrap(), 500),
            local: SocketAddr::new(HOST.parse().unwrap(), 0),
            gateway: Identification::fqdn("gw.test"),
            identity: "load@example.org".into(),
            initiators: 3,
            first: 0,
            logins: vec![IkeLogin::Psk],
            gateway_auth: IkeGatewayAuth::Psk,
            secret: key.clone(),
            anonymous: None,
            proposals: proposal(offered),
            keep,
            probes,
            retransmission: Duration::from_secs(1),
            retransmissions: 2,
        };
        let config = generator::Config {
            pace: Pace::Closed { concurrency: 4 },
            warmup: Duration::ZERO,
            duration: None,
            count: Some(count),
            outstanding: 4,
            patience: Duration::from_secs(20),
            spin: Duration::ZERO,
            wrong_share,
            users: Arc::new(Users::template("initiator", "", 1).unwrap()),
            first: 0,
            step: 1,
            mix: vec![Share { name: "psk".to_owned(), weight: 1.0, deniable: true }],
            front: FrontConfig::Ike(ike),
        };
        let generator = Generator::new(config, Instant::ZERO, Seed::new(3).secure("load", 0)).unwrap();
        let generator = net.add(generator, &[HOST.parse::<IpAddr>().unwrap()]);
        let mut gateway = Endpoint::new(Config::default(), Seed::new(4).secure("gateway", 0));
        let own = Identification::fqdn("gw.test");
        let connection = Connection::shared_key("all", own, &key, proposal("aes128-sha256-x25519"));
        gateway.command(Instant::ZERO, Command::Serve(vec![Arc::new(connection)])).unwrap();
        let gateway = net.add(gateway, &[GATEWAY.parse::<IpAddr>().unwrap()]);
        for (socket, port) in [(SOCKET, 500), (NAT_SOCKET, 4500)] {
            net.bind(gateway, socket, SocketAddr::new(GATEWAY.parse().unwrap(), port));
        }
        net.run(Duration::from_secs(60));
        (net, generator, gateway)
    }

    #[test]
    fn initiators_log_in_and_their_sas_end_or_stay() {
        for keep in [false, true] {
            let (net, generator, gateway) = world(20, (keep, 0), "aes128-sha256-x25519", 0.0);
            let tally = net[generator].tally();
            assert_eq!((tally.succeeded, tally.failed_total(), net[generator].is_finished()), (20, 0, true));
            // Two exchanges of a millisecond each way.
            assert_eq!(crate::tally::quantile(&tally.latency, 0.5).map(|s| (s * 1000.0).round()), Some(4.0));
            assert_eq!(net[gateway].sas(), if keep { 20 } else { 0 });
            assert_eq!(net[gateway].counters().established, 20);
        }
    }

    #[test]
    fn initiators_ask_whether_the_gateway_lives_before_they_leave() {
        for keep in [false, true] {
            let (net, generator, gateway) = world(20, (keep, 5), "aes128-sha256-x25519", 0.0);
            let tally = net[generator].tally();
            // Who has logged in has, however much it asks afterwards; what is under way at the end is waited for.
            assert_eq!((tally.succeeded, tally.failed_total(), net[generator].is_finished()), (20, 0, true));
            assert_eq!(crate::tally::quantile(&tally.latency, 0.5).map(|s| (s * 1000.0).round()), Some(4.0));
            assert_eq!(net[gateway].sas(), if keep { 20 } else { 0 });
            let exchanges = 2 + 5 + u64::from(!keep);
            assert_eq!(net[gateway].counters().responses, 20 * exchanges);
        }
    }

    #[test]
    fn a_wrong_key_is_to_be_refused_and_a_proposal_that_is_refused_is_a_failure() {
        let (net, generator, gateway) = world(40, (false, 3), "aes128-sha256-x25519", 0.5);
        let tally = net[generator].tally();
        assert_eq!((tally.succeeded, tally.failed_total()), (40, 0));
        assert!((5..35).contains(&tally.expected_rejects), "{}", tally.expected_rejects);
        assert_eq!(net[gateway].counters().authentication_failed, tally.expected_rejects);
        let (net, generator, _) = world(4, (false, 0), "aes256-sha512-modp2048", 0.0);
        assert_eq!(net[generator].tally().failures().collect::<Vec<_>>(), [(Failure::Rejected, 4)]);
    }

    #[test]
    fn each_initiator_has_an_identity() {
        let names: Vec<_> = [0, 1].map(|n| numbered("load@example.org", n)).into();
        assert_eq!(names, ["load-1@example.org", "load-2@example.org"]);
        assert_eq!(numbered("load", 2), "load-3");
    }
}
