//! Initiators that log in to an IKEv2 gateway by a shared key, a certificate or EAP. Each does IKE_SA_INIT and
//! IKE_AUTH; then it deletes or keeps the IKE_SA.

use super::api::ConfigError;
use super::login::{
    LoginDeferral, LoginResultRecorder, LoginStart, LoginSuccess, LoginTable, PendingLogin, alter_password,
};
use crate::eap::{EapMethod, LoginCredentials};
use crate::tally::LoginFailure;
use crate::users::UserCredentialTable;
use std::net::SocketAddr;
use std::sync::Arc;
use usher_core::collections::HashMap;
use usher_core::{
    ChildMachine, ChildOutput, Duration, Instant, Machine, MachineInput, OutputQueue, SecureRng, WallTime,
};
use usher_crypto::SecretValue;
use usher_crypto::tls::{self, SharedWallClock, TrustRoots};
use usher_ike::IkeEndpoint;
use usher_ike::credentials::IkeCredentials;
use usher_ike::machine::{
    ChildlessPolicy, EndReason, IkeCommand, IkeConnectionConfig, IkeEndpointConfig, IkeEvent, IkeSaId,
    LocalAuth, RemoteAuth, RetransmissionConfig,
};
use usher_ike::payload::{Identification, Proposal};

/// The name of connections for certificates.
const NAME: &str = "load";

/// The authentication of an initiator.
#[derive(Clone, Debug)]
pub enum IkeLogin {
    /// By the pre-shared key of the gateway and all initiators. Initiators are numbered.
    Psk,
    /// By a certificate with the user's name: one for each user, by number, or one for all.
    Certificate(Arc<[tls::TlsCredentials]>),
    /// By EAP (RFC 7296 §2.16), as a user with a password or a certificate.
    Eap(EapMethod),
}

impl IkeLogin {
    /// True if a login can be wrong, so that the gateway must reject it: by a wrong key or password, or by another
    /// user's certificate.
    #[must_use]
    pub fn is_deniable(&self) -> bool {
        match self {
            Self::Psk => true,
            Self::Certificate(each) => each.len() > 1,
            Self::Eap(method) => method.is_deniable(),
        }
    }
}

/// The authentication of the gateway.
#[derive(Clone, Debug)]
pub enum IkeGatewayAuth {
    /// By the initiators' pre-shared key.
    Psk,
    /// By a certificate below one of these roots, valid at this time.
    Certificate(TrustRoots, WallTime),
}

/// The configuration of an IKE generator.
#[derive(Clone, Debug)]
pub struct IkeConfig {
    /// The gateway's address.
    pub address: SocketAddr,
    /// The local address.
    pub local: SocketAddr,
    /// The expected identity of the gateway.
    pub gateway: Identification,
    /// The identity of the first initiator; the `n`-th has its number after the first label.
    pub identity: String,
    /// Number of initiators, at least one; they log in by turns.
    pub initiators: usize,
    /// The number of the first initiator, if other generators have initiators too.
    pub first: usize,
    /// The authentication methods of initiators; at least one.
    pub logins: Vec<IkeLogin>,
    /// The authentication of the gateway.
    pub gateway_auth: IkeGatewayAuth,
    /// The pre-shared key; empty if there is none.
    pub secret: SecretValue,
    /// The name that replaces a user's before the tunnel of PEAP or TTLS: IKE's identity, and the outer identity.
    pub anonymous: Option<Arc<[u8]>>,
    /// The proposals.
    pub proposals: Vec<Proposal>,
    /// True to keep an established IKE_SA; otherwise it is deleted.
    pub keeps_sa: bool,
    /// Number of liveness checks (RFC 7296 §2.4) before an initiator keeps or deletes its IKE_SA: empty exchanges.
    pub probes: u32,
    /// Timeout of the first transmission; each further timeout is 1.8 times as long.
    pub retransmission: Duration,
    /// Number of retransmissions.
    pub retransmissions: u32,
}

/// The initiators and their endpoint.
#[derive(Debug)]
pub(super) struct IkeLoadClient {
    config: IkeConfig,
    users: Arc<UserCredentialTable>,
    endpoint: ChildMachine<IkeEndpoint>,
    credentials: IkeCredentials,
    /// Connections by shared key: with the right key and with a wrong one.
    shared: Vec<[Arc<IkeConnectionConfig>; 2]>,
    /// For each method, the index of its first credentials in [`Self::certificates`].
    first_certificate: Vec<usize>,
    certificates: Vec<LocalAuth>,
    next: usize,
    /// Logins with their IKE_SA, once initiated.
    logins: LoginTable<Option<IkeSaId>>,
    by_sa: HashMap<IkeSaId, u64>,
    /// Remaining liveness checks by IKE_SA.
    probing: HashMap<IkeSaId, u32>,
}

/// Returns the identity of the `n`-th initiator, from 0.
fn numbered_identity(identity: &str, n: usize) -> String {
    match identity.find(['.', '@']) {
        Some(end) => format!("{}-{}{}", &identity[..end], n + 1, &identity[end..]),
        None => format!("{identity}-{}", n + 1),
    }
}

/// Returns the name of the connection that signs with the `n`-th certificate.
fn signing_name(n: usize) -> String {
    format!("{NAME}-{n}")
}

impl IkeLoadClient {
    pub(super) fn new(
        config: IkeConfig,
        users: Arc<UserCredentialTable>,
        rng: SecureRng,
    ) -> Result<Self, ConfigError> {
        if config.initiators == 0 {
            return Err(ConfigError::Invalid("the number of initiators is 0; give at least 1"));
        }
        if config.logins.is_empty() {
            return Err(ConfigError::Invalid("the initiators have no authentication method"));
        }
        let settings = IkeEndpointConfig {
            retransmission: RetransmissionConfig {
                first: config.retransmission,
                count: config.retransmissions,
                ..RetransmissionConfig::default()
            },
            sas: usize::MAX,
            ..IkeEndpointConfig::default()
        };
        let mut credentials = IkeCredentials::new();
        let trusts = |name: &str, credentials: &mut IkeCredentials| match &config.gateway_auth {
            IkeGatewayAuth::Psk => Ok(()),
            IkeGatewayAuth::Certificate(roots, now) => credentials
                .set_connection_trust_roots(name, roots.clone(), SharedWallClock::from_time(*now))
                .map_err(|_| {
                    ConfigError::Invalid("cannot read the certificates of the gateway's authorities")
                }),
        };
        trusts(NAME, &mut credentials)?;
        let (mut first_certificate, mut certificates) = (Vec::new(), Vec::new());
        for login in &config.logins {
            first_certificate.push(certificates.len());
            let IkeLogin::Certificate(each) = login else { continue };
            if each.is_empty() {
                return Err(ConfigError::Invalid("the initiators have no certificate"));
            }
            for own in each.iter() {
                let key = own.signing_key();
                let key = key
                    .map_err(|_| ConfigError::Invalid("the key of a certificate has an unsupported type"))?;
                let name = signing_name(certificates.len());
                let kind = credentials.set_connection_signing_key(&name, key);
                trusts(&name, &mut credentials)?;
                let chain = own.certificate_chain().map(<[u8]>::to_vec).collect();
                certificates.push(LocalAuth::Certificate { chain, kind, pss: false });
            }
        }
        let mut front = Self {
            endpoint: ChildMachine::without_slot(IkeEndpoint::new(settings, rng)),
            credentials,
            shared: Vec::new(),
            first_certificate,
            certificates,
            next: 0,
            logins: LoginTable::default(),
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
            let of = |n: usize, secret: &SecretValue| {
                let local = numbered_identity(&front.config.identity, front.config.first + n);
                // This initiator has a wrong key. It does not verify the gateway's, because the gateway must reject it,
                // and not the reverse.
                Arc::new(front.build_connection(NAME, &local, LocalAuth::Psk(secret.clone()), false))
            };
            front.shared = (0..front.config.initiators).map(|n| [of(n, &right), of(n, &wrong)]).collect();
        }
        Ok(front)
    }

    /// Builds a connection to the gateway. With certificate chains, messages may be fragmented (RFC 7383).
    fn build_connection(
        &self,
        name: &str,
        local: &str,
        local_auth: LocalAuth,
        fragmentation: bool,
    ) -> IkeConnectionConfig {
        let config = &self.config;
        let local = Identification::of_text(local);
        let shared = IkeConnectionConfig::shared_key(name, local, &config.secret, config.proposals.clone());
        IkeConnectionConfig {
            remote: Some(config.gateway.clone()),
            remote_auth: match config.gateway_auth {
                IkeGatewayAuth::Psk => shared.remote_auth,
                IkeGatewayAuth::Certificate(..) => RemoteAuth::Certificate { authorities: Vec::new() },
            },
            local_auth,
            childless: ChildlessPolicy::Force,
            fragmentation: fragmentation || matches!(config.gateway_auth, IkeGatewayAuth::Certificate(..)),
            ..shared
        }
    }

    fn is_eap_login(&self, start: &LoginStart) -> bool {
        matches!(self.config.logins.get(usize::from(start.method)), Some(IkeLogin::Eap(_)))
    }

    /// Returns the connection of a login.
    fn of_login(&mut self, start: &LoginStart) -> Arc<IkeConnectionConfig> {
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
                // A login that must fail uses the next user's certificate.
                let number = (start.user + usize::from(start.wrong)) % each.len();
                let number = self.first_certificate[method] + number;
                let auth = self.certificates[number].clone();
                let local = String::from_utf8_lossy(name);
                Arc::new(self.build_connection(&signing_name(number), &local, auth, true))
            }
            IkeLogin::Eap(eap) => {
                let mut altered = [0; 128];
                let password = if start.wrong { alter_password(password, &mut altered) } else { password };
                let outer = match &self.config.anonymous {
                    Some(anonymous) if eap.has_tunnel() => anonymous,
                    _ => name,
                };
                let who = LoginCredentials { number: start.user, outer, name, password, wrong: start.wrong };
                let methods = Arc::new([eap.peer_offer(who)]);
                let auth = LocalAuth::Eap { identity: outer.to_vec(), methods };
                Arc::new(self.build_connection(NAME, &String::from_utf8_lossy(outer), auth, true))
            }
        }
    }

    pub(super) fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.endpoint.set_epoch(now, epoch);
    }

    /// Begins a login.
    pub(super) fn begin_login(&mut self, now: Instant, start: LoginStart) -> Result<(), LoginDeferral> {
        let connection = self.of_login(&start);
        let token = self.logins.next_token();
        let (local, remote) = (self.config.local, self.config.address);
        let initiate = IkeCommand::Initiate { token, connection, local, remote };
        self.endpoint.handle_command(now, initiate).map_err(|_| LoginDeferral::Full)?;
        self.logins.insert(PendingLogin { start, requested_at: now, rounds: 0, state: None });
        Ok(())
    }

    pub(super) fn outstanding_logins(&self) -> usize {
        self.logins.len()
    }

    pub(super) fn for_each_login(&self, see: &mut dyn FnMut(&LoginStart)) {
        self.logins.iter().for_each(|(_, login)| see(&login.start));
    }

    pub(super) fn abandon_logins(&mut self, now: Instant) {
        let open: Vec<(u64, Option<IkeSaId>)> =
            self.logins.iter().map(|(token, login)| (token, login.state)).collect();
        for (token, sa) in open {
            self.logins.remove(token);
            if let Some(sa) = sa {
                self.by_sa.remove(&sa);
                // An error is ignored: the IKE_SA may have ended.
                let _ = self.endpoint.handle_command(now, IkeCommand::Delete(sa));
            }
        }
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        self.endpoint.counters().iter().collect()
    }

    pub(super) fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        self.endpoint.handle_input(now, input);
    }

    pub(super) fn drain_outputs(
        &mut self,
        now: Instant,
        outputs: &mut OutputQueue<super::api::GeneratorEvent>,
        sink: &mut LoginResultRecorder,
    ) {
        while let Some(output) = outputs.next_event_or_job(&mut self.endpoint) {
            match output {
                ChildOutput::Job(job) => {
                    // An error is ignored: the IKE_SA of the job may have ended.
                    let _ = self.endpoint.handle_command(now, self.credentials.answer_job(&job));
                }
                ChildOutput::Event(event) => self.handle_event(now, &event, sink),
            }
        }
    }

    /// Continues with an established IKE_SA: sends the remaining liveness checks, then keeps or deletes it.
    fn go_on(&mut self, now: Instant, sa: IkeSaId) {
        let Some(left) = self.probing.get_mut(&sa) else { return };
        // The IKE_SA is established, so it accepts the command.
        if *left > 0 {
            *left -= 1;
            let _ = self.endpoint.handle_command(now, IkeCommand::Probe(sa));
            return;
        }
        self.probing.remove(&sa);
        if !self.config.keeps_sa {
            let _ = self.endpoint.handle_command(now, IkeCommand::Delete(sa));
        }
    }

    /// True if the gateway still has to answer requests.
    pub(super) fn is_leaving(&self) -> bool {
        !self.probing.is_empty()
    }

    fn handle_event(&mut self, now: Instant, event: &IkeEvent, sink: &mut LoginResultRecorder) {
        match event {
            IkeEvent::Initiated { token, sa } => {
                if let Some(login) = self.logins.get_mut(*token) {
                    login.state = Some(*sa);
                    self.by_sa.insert(*sa, *token);
                }
            }
            IkeEvent::Established { sa, .. } => {
                if let Some(login) = self.by_sa.remove(sa).and_then(|token| self.logins.remove(token)) {
                    sink.record_answered_request(now, login.requested_at);
                    let end = if login.start.wrong {
                        Err(LoginFailure::WronglyAccepted)
                    } else {
                        Ok(LoginSuccess::Accepted)
                    };
                    sink.record_login_end(now, &login.start, end);
                }
                self.probing.insert(*sa, self.config.probes);
                self.go_on(now, *sa);
            }
            IkeEvent::Alive { sa } => self.go_on(now, *sa),
            IkeEvent::Ended { sa, reason } => {
                self.probing.remove(sa);
                let Some(login) = self.by_sa.remove(sa).and_then(|token| self.logins.remove(token)) else {
                    return;
                };
                let end = match reason {
                    EndReason::Refused if login.start.wrong => Ok(LoginSuccess::RejectedAsExpected),
                    // RFC 4137, UNCOND_SUCC: after its TLS has ended, a peer accepts no EAP-Failure. IKE ends with a
                    // protocol error.
                    EndReason::Protocol if login.start.wrong && self.is_eap_login(&login.start) => {
                        Ok(LoginSuccess::RejectedAsExpected)
                    }
                    EndReason::Refused | EndReason::NoProposal | EndReason::Unsupported => {
                        Err(LoginFailure::Rejected)
                    }
                    EndReason::Unreachable => Err(LoginFailure::Timeout),
                    _ => Err(LoginFailure::BadAnswer),
                };
                sink.record_login_end(now, &login.start, end);
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
    use crate::generator::{self as generator, LoadGenerator, LoadProtocolConfig, MethodShare};
    use crate::pace::LoginPace;
    use crate::users::UserCredentialTable;
    use std::net::IpAddr;
    use usher_core::Seed;
    use usher_core::bench::{MachineNetwork, NetworkHostHandle};
    use usher_core::impair::ChannelConfig;
    use usher_ike::machine::{NAT_SOCKET, SOCKET};

    const GATEWAY: &str = "10.2.0.1";
    const HOST: &str = "10.1.0.1";

    fn test_proposals(words: &str) -> Vec<Proposal> {
        vec![Proposal::parse_ike_proposal(words).unwrap()]
    }

    /// A gateway that accepts any initiator with the key, and this number of logins, four at a time.
    fn test_network(
        count: u64,
        (keep, probes): (bool, u32),
        offered: &str,
        wrong_share: f64,
    ) -> (MachineNetwork, NetworkHostHandle<LoadGenerator>, NetworkHostHandle<IkeEndpoint>) {
        let mut net = MachineNetwork::new(ChannelConfig {
            delay: Duration::from_millis(1),
            ..ChannelConfig::default()
        });
        let key = SecretValue::from(&b"the key of all"[..]);
        let ike = IkeConfig {
            address: SocketAddr::new(GATEWAY.parse().unwrap(), 500),
            local: SocketAddr::new(HOST.parse().unwrap(), 0),
            gateway: Identification::from_fqdn("gw.test"),
            identity: "load@example.org".into(),
            initiators: 3,
            first: 0,
            logins: vec![IkeLogin::Psk],
            gateway_auth: IkeGatewayAuth::Psk,
            secret: key.clone(),
            anonymous: None,
            proposals: test_proposals(offered),
            keeps_sa: keep,
            probes,
            retransmission: Duration::from_secs(1),
            retransmissions: 2,
        };
        let config = generator::GeneratorConfig {
            pace: LoginPace::Closed { concurrency: 4 },
            warmup: Duration::ZERO,
            duration: None,
            count: Some(count),
            outstanding: 4,
            drain_timeout: Duration::from_secs(20),
            spin: Duration::ZERO,
            wrong_share,
            users: Arc::new(UserCredentialTable::from_template("initiator", "", 1).unwrap()),
            first: 0,
            step: 1,
            mix: vec![MethodShare { name: "psk".to_owned(), weight: 1.0, deniable: true }],
            front: LoadProtocolConfig::Ike(ike),
        };
        let generator =
            LoadGenerator::new(config, Instant::ZERO, Seed::new(3).derive_secure_rng("load", 0)).unwrap();
        let generator = net.add_host(generator, &[HOST.parse::<IpAddr>().unwrap()]);
        let mut gateway =
            IkeEndpoint::new(IkeEndpointConfig::default(), Seed::new(4).derive_secure_rng("gateway", 0));
        let own = Identification::from_fqdn("gw.test");
        let connection =
            IkeConnectionConfig::shared_key("all", own, &key, test_proposals("aes128-sha256-x25519"));
        gateway.handle_command(Instant::ZERO, IkeCommand::Serve(vec![Arc::new(connection)])).unwrap();
        let gateway = net.add_host(gateway, &[GATEWAY.parse::<IpAddr>().unwrap()]);
        for (socket, port) in [(SOCKET, 500), (NAT_SOCKET, 4500)] {
            net.bind_socket(gateway, socket, SocketAddr::new(GATEWAY.parse().unwrap(), port));
        }
        net.run_for(Duration::from_secs(60));
        (net, generator, gateway)
    }

    #[test]
    fn initiators_log_in_and_their_sas_end_or_stay() {
        for keep in [false, true] {
            let (net, generator, gateway) = test_network(20, (keep, 0), "aes128-sha256-x25519", 0.0);
            let tally = net[generator].login_stats();
            assert_eq!((tally.succeeded, tally.failed_total(), net[generator].is_finished()), (20, 0, true));
            // Two exchanges of a millisecond each way.
            assert_eq!(crate::tally::quantile(&tally.latency, 0.5).map(|s| (s * 1000.0).round()), Some(4.0));
            assert_eq!(net[gateway].sa_count(), if keep { 20 } else { 0 });
            assert_eq!(net[gateway].counters().established, 20);
        }
    }

    #[test]
    fn initiators_ask_whether_the_gateway_lives_before_they_leave() {
        for keep in [false, true] {
            let (net, generator, gateway) = test_network(20, (keep, 5), "aes128-sha256-x25519", 0.0);
            let tally = net[generator].login_stats();
            // A login has succeeded before its liveness checks; pending checks at the end may finish.
            assert_eq!((tally.succeeded, tally.failed_total(), net[generator].is_finished()), (20, 0, true));
            assert_eq!(crate::tally::quantile(&tally.latency, 0.5).map(|s| (s * 1000.0).round()), Some(4.0));
            assert_eq!(net[gateway].sa_count(), if keep { 20 } else { 0 });
            let exchanges = 2 + 5 + u64::from(!keep);
            assert_eq!(net[gateway].counters().responses, 20 * exchanges);
        }
    }

    #[test]
    fn wrong_keys_are_expected_rejects_and_bad_proposals_failures() {
        let (net, generator, gateway) = test_network(40, (false, 3), "aes128-sha256-x25519", 0.5);
        let tally = net[generator].login_stats();
        assert_eq!((tally.succeeded, tally.failed_total()), (40, 0));
        assert!((5..35).contains(&tally.expected_rejects), "{}", tally.expected_rejects);
        assert_eq!(net[gateway].counters().authentication_failed, tally.expected_rejects);
        let (net, generator, _) = test_network(4, (false, 0), "aes256-sha512-modp2048", 0.0);
        assert_eq!(
            net[generator].login_stats().failures().collect::<Vec<_>>(),
            [(LoginFailure::Rejected, 4)]
        );
    }

    #[test]
    fn each_initiator_has_an_identity() {
        let names: Vec<_> = [0, 1].map(|n| numbered_identity("load@example.org", n)).into();
        assert_eq!(names, ["load-1@example.org", "load-2@example.org"]);
        assert_eq!(numbered_identity("load", 2), "load-3");
    }
}
