//! A single login as a network access server makes it, with each step reported in words.

use crate::config;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration as Wait;
use tokio::time::timeout;
use usher_aaa::AuthMethod;
use usher_access::{
    AaaConfig, AaaRequestFailure, AccessClient, AccessClientEvent, AccessReply, AccessRequest, ChapResponse,
    DiameterConfig, LoginRoundState, MsChapV2Response, NasIdentity, NasPort, RadiusConfig, UserCredentials,
};
use usher_core::{Duration, Instant, JobRequest, NoJob, SecureRng};
use usher_crypto::SecretValue;
use usher_crypto::fault::{CertificateFault, TlsFault};
use usher_crypto::tls::{
    ClientConfig, SharedWallClock, TlsClientOptions, TlsCredentials, TlsError, TlsVersionRange, TrustRoots,
};
use usher_diameter::codes::application;
use usher_diameter::node;
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_diameter::stream::StreamPolicy;
use usher_eap::method::peap::PeapPeerFactory;
use usher_eap::method::tls::{EapTlsPeerFactory, PeerTlsBackend};
use usher_eap::method::ttls::{self, TtlsPeerFactory};
use usher_eap::method::{PeerMethodFactory, gtc, md5, mschapv2};
use usher_eap::packet;
use usher_eap::peer::{self, EapPeer};
use usher_live::{
    ConnectionSecuritySelector, Driver, DriverRole, DriverSockets, OutgoingConnectionSecurity, SystemClock,
    TlsClient,
};
use usher_radius::SharedSecret;
use usher_radius::client::{self, RadiusClientConfig, ServerConfig};

/// Maximum octets of an EAP packet.
const FRAGMENT: usize = 1024;
/// Maximum number of rounds. More are an endless conversation.
const ROUNDS: u32 = 100;

/// The parameters of a login.
pub struct ProbeLogin {
    /// The server.
    pub server: SocketAddr,
    /// Transport.
    pub carrier: ProbeTransport,
    /// User name.
    pub name: String,
    /// Outer identity of a tunnel. `None`: the user name.
    pub outside: Option<String>,
    /// Password, empty for EAP-TLS.
    pub password: Vec<u8>,
    /// Method.
    pub method: AuthMethod,
    /// PEM file: authorities of the server's certificate.
    pub ca: Option<PathBuf>,
    /// PEM files: certificate and key of this client, for EAP-TLS and for a TLS transport.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Required name in the server's certificate of a TLS transport.
    pub server_name: Option<String>,
    /// Calling-Station-Id.
    pub mac: Option<String>,
    /// Timeout of the whole login.
    pub timeout: Wait,
}

/// The transport of a login.
#[derive(Clone, Debug)]
pub enum ProbeTransport {
    /// RADIUS over UDP.
    Udp {
        /// Shared secret.
        secret: SecretValue,
    },
    /// RADIUS over TLS (RFC 6614).
    RadSec,
    /// Diameter.
    Diameter {
        /// DiameterIdentity of the server.
        peer: String,
        /// DiameterIdentity of this client.
        identity: String,
        /// Realm of this client.
        realm: String,
        /// Destination-Realm.
        destination: String,
        /// Transport of Diameter.
        transport: ProbeDiameterTransport,
    },
}

/// A transport of Diameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeDiameterTransport {
    /// TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// SCTP with one stream each way, which is enough for one login.
    Sctp,
}

/// Supported methods. PEAP has MSCHAPv2 inside, TTLS has PAP.
pub fn probe_methods() -> impl Iterator<Item = AuthMethod> {
    AuthMethod::ALL.into_iter().filter(|method| !matches!(method, AuthMethod::MsChap | AuthMethod::Mab))
}

/// The end of a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeOutcome {
    /// Accepted.
    Accepted,
    /// Rejected.
    Rejected,
    /// The server did not answer, or the TLS transport failed ([`ProbeResult::tls`]).
    Silence,
}

/// The result of a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeResult {
    /// End of the login.
    pub outcome: ProbeOutcome,
    /// Local TLS error, if there was one.
    pub tls: Option<TlsFault>,
}

/// An error that prevents a login.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// An invalid file or parameter.
    #[error("{0}")]
    Setup(String),
    /// A network error.
    #[error("cannot reach {server}: {error}")]
    Network {
        /// The server.
        server: SocketAddr,
        /// Error of the system.
        error: std::io::Error,
    },
}

/// Makes the login. `say` gets each step.
///
/// # Errors
/// The login could not be made. A reject or a missing answer is an [`ProbeOutcome`].
pub fn run_probe(login: &ProbeLogin, say: &mut dyn FnMut(&str)) -> Result<ProbeResult, ProbeError> {
    let network = |error| ProbeError::Network { server: login.server, error };
    if matches!(login.carrier, ProbeTransport::Diameter { transport: ProbeDiameterTransport::Sctp, .. })
        && !usher_sctp::is_available()
    {
        return Err(ProbeError::Setup(usher_sctp::SctpUnavailable.to_string()));
    }
    let mut rng = SecureRng::from_seed(crate::installation::random_octets().map_err(network)?);
    // The driver silently drops a datagram that it cannot send, so check the route here first.
    let any: IpAddr = match login.server.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let way = UdpSocket::bind((any, 0)).and_then(|s| s.connect(login.server).and_then(|()| s.local_addr()));
    let local = way.map_err(network)?.ip();
    let (identifier, by_tls) = match &login.carrier {
        ProbeTransport::Udp { .. } => ("usher-test", false),
        ProbeTransport::RadSec => ("usher-test", true),
        ProbeTransport::Diameter { identity, transport: by, .. } => {
            (&identity[..], *by == ProbeDiameterTransport::Tls)
        }
    };
    let nas = NasIdentity { identifier: identifier.to_owned(), ..NasIdentity::default() };
    let access = AccessClient::new(nas, login.aaa_config(local), SecureRng::from_seed(rng.random_array()))
        .map_err(|e| ProbeError::Setup(e.to_string()))?;
    let carriage = match by_tls {
        true => Some(TlsClient::new(tls_config(login, login.server_name.as_deref())?)),
        false => None,
    };
    let outgoing = carriage.clone().map(|tls| {
        Arc::new(move |_| OutgoingConnectionSecurity::Tls(tls.clone())) as ConnectionSecuritySelector
    });
    let clock = SystemClock::start();
    let mut test = ActiveProbeLogin {
        login,
        message_sink: say,
        access,
        rng: Some(rng),
        peer: None,
        next: LoginRoundState::new(),
        round: 0,
        last: None,
        tls: None,
        carriage,
        end: None,
    };
    // A Diameter connection must be open before the login.
    if !login.by_diameter() {
        test.start_login(clock.now())?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(network)?;
    runtime.block_on(async {
        let sockets = DriverSockets { outgoing, ..DriverSockets::default() };
        let (driver, _mailbox) = Driver::new(LoginProbeRole(&mut test), sockets, clock);
        // A login that has not ended when the time limit expires got no answer.
        match timeout(login.timeout, driver.run()).await {
            Ok(Err(error)) => Err(network(error)),
            _ => Ok(()),
        }
    })?;
    let outcome = test.end.take().unwrap_or_else(|| Ok(test.explain_silence()))?;
    Ok(ProbeResult { outcome, tls: test.tls })
}

impl ProbeLogin {
    const fn by_diameter(&self) -> bool {
        matches!(self.carrier, ProbeTransport::Diameter { .. })
    }

    /// Returns the client's configuration for this local address.
    fn aaa_config(&self, local: IpAddr) -> AaaConfig {
        let server = match &self.carrier {
            ProbeTransport::Udp { secret } => ServerConfig::new(self.server, SharedSecret::new(secret)),
            ProbeTransport::RadSec => ServerConfig::for_radsec(self.server),
            ProbeTransport::Diameter { peer, identity, realm, destination, transport: by } => {
                let id =
                    if self.method.eap_type().is_some() { application::EAP } else { application::NASREQ };
                let mut node = node::DiameterNodeConfig::new(
                    identity,
                    realm,
                    &[DiameterApplication::for_authentication(id)],
                );
                node = node.connect_to(peer, self.server);
                if *by == ProbeDiameterTransport::Sctp {
                    let one =
                        node::PeerTransportConfig::Message { streams: 1, policy: StreamPolicy::SingleStream };
                    node.peers.iter_mut().for_each(|peer| peer.transport = one);
                }
                node.local.addresses.push(local);
                return AaaConfig::Diameter(Box::new(DiameterConfig::new(node, destination.clone())));
            }
        };
        let mut config = RadiusClientConfig::for_server(server);
        config.max_sockets = 1;
        AaaConfig::Radius(RadiusConfig::new(config))
    }
}

fn to_micros(wait: Wait) -> Duration {
    Duration::from_micros(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
}

/// A login under way.
struct ActiveProbeLogin<'a> {
    login: &'a ProbeLogin,
    message_sink: &'a mut dyn FnMut(&str),
    access: AccessClient,
    /// Random numbers, until the login starts.
    rng: Option<SecureRng>,
    /// The EAP peer.
    peer: Option<EapPeer>,
    next: LoginRoundState,
    round: u32,
    /// The method that the server proposed last.
    last: Option<packet::EapType>,
    tls: Option<TlsFault>,
    /// The TLS of the transport.
    carriage: Option<TlsClient>,
    end: Option<Result<ProbeOutcome, ProbeError>>,
}

impl ActiveProbeLogin<'_> {
    fn send_proof(&mut self, now: Instant, proof: UserCredentials<'_>) -> Result<(), ProbeError> {
        let name = self.login.outside.as_ref().unwrap_or(&self.login.name).as_bytes();
        let port = NasPort { calling_station: self.login.mac.as_deref(), ..NasPort::default() };
        let request = AccessRequest { port, continues: Some(&self.next), ..AccessRequest::new(name, proof) };
        self.access.send_request(now, 0, &request).map_err(|e| ProbeError::Setup(e.to_string()))
    }

    /// Sends the first request.
    fn start_login(&mut self, now: Instant) -> Result<(), ProbeError> {
        let Some(mut rng) = self.rng.take() else { return Ok(()) };
        let ProbeLogin { method, name, password, .. } = self.login;
        if method.eap_type().is_some() {
            return self.begin_eap(now, rng);
        }
        let [identifier] = rng.random_array();
        let challenge: [u8; 16] = rng.random_array();
        let (proof, what) = match method {
            AuthMethod::Chap => {
                let response = ChapResponse::from_password(identifier, &challenge, password);
                (UserCredentials::Chap(response), "a CHAP response: the password itself is not sent")
            }
            AuthMethod::MsChapV2 => {
                let name = name.as_bytes();
                let (response, _) = MsChapV2Response::from_password(
                    identifier,
                    challenge,
                    rng.random_array(),
                    name,
                    password,
                );
                (
                    UserCredentials::MsChapV2(response),
                    "an MS-CHAPv2 response: the password itself is not sent",
                )
            }
            _ if self.login.by_diameter() => (UserCredentials::Pap(password), "the password (PAP)"),
            _ => (UserCredentials::Pap(password), "the password, hidden by the shared secret (PAP)"),
        };
        self.send_proof(now, proof)?;
        let [request, ..] = self.message_names();
        (self.message_sink)(&format!("{request} with {what}."));
        Ok(())
    }

    /// Starts EAP with the identity request of an access server (RFC 3579 §2.1).
    fn begin_eap(&mut self, now: Instant, rng: SecureRng) -> Result<(), ProbeError> {
        let outside = self.login.outside.as_ref().unwrap_or(&self.login.name);
        let config = peer::EapPeerConfig {
            identity: outside.clone().into_bytes(),
            methods: Arc::from([peer_offer(self.login)?]),
            timeout: to_micros(self.login.timeout),
            wall: usher_service::setup::wall_time(),
        };
        let mut peer = EapPeer::new(config, rng, now);
        let mut identity = Vec::new();
        packet::emit_packet(&mut identity, packet::EapCode::Request, 0, packet::EapType::IDENTITY, &[]);
        peer.handle_packet(now, &identity);
        self.peer = Some(peer);
        self.send_response(now)
    }

    /// Sends the peer's response.
    fn send_response(&mut self, now: Instant) -> Result<(), ProbeError> {
        let mut packet = Vec::new();
        if !self.peer.as_mut().is_some_and(|peer| peer.poll_transmit(&mut packet)) {
            (self.message_sink)(
                "The server's last EAP packet does not fit this method: there is no answer to it.",
            );
            self.end = Some(Ok(ProbeOutcome::Rejected));
            return Ok(());
        }
        self.round += 1;
        if self.round > ROUNDS {
            (self.message_sink)("The conversation has too many rounds: the test gives up.");
            self.end = Some(Ok(ProbeOutcome::Rejected));
            return Ok(());
        }
        let what = if self.round == 1 { "the identity" } else { "a response" };
        let ([request, ..], length) = (self.message_names(), packet.len());
        (self.message_sink)(&format!("{request} {}: EAP with {what}, {length} octets.", self.round));
        self.send_proof(now, UserCredentials::Eap(&packet))
    }

    /// Handles a reply.
    fn handle_reply(
        &mut self,
        now: Instant,
        reply: &AccessReply,
        outcome: Option<ProbeOutcome>,
    ) -> Result<(), ProbeError> {
        let mut eap = Vec::new();
        if reply.read_eap(&mut eap)
            && let Some(peer) = &mut self.peer
        {
            peer.handle_packet(now, &eap);
            if self.tls.is_none() {
                self.tls = report_local_tls_error(peer, self.login, self.message_sink);
            }
        }
        if let Some(outcome) = outcome {
            self.finish_login(reply, outcome);
            return Ok(());
        }
        let [_, challenge, ..] = self.message_names();
        let Some(peer) = &mut self.peer else {
            (self.message_sink)(&format!(
                "{challenge}: this method has no challenge; it counts as a reject."
            ));
            self.end = Some(Ok(ProbeOutcome::Rejected));
            return Ok(());
        };
        let kind = eap.get(4).map(|k| packet::EapType(*k));
        if let Some(kind) = kind
            && self.last != Some(kind)
        {
            (self.message_sink)(&format!("{challenge}: the server proposes {kind}."));
            self.last = Some(kind);
        }
        if matches!(peer.poll_event(), Some(peer::EapPeerEvent::Failure)) {
            if self.tls.is_none() {
                (self.message_sink)("The client ends the login: it does not accept the server's proof.");
            }
            self.end = Some(Ok(ProbeOutcome::Rejected));
            return Ok(());
        }
        reply.fill_continuation(&mut self.next);
        self.send_response(now)
    }

    /// Handles the verdict.
    fn finish_login(&mut self, reply: &AccessReply, outcome: ProbeOutcome) {
        let name = &self.login.name;
        let message = reply.reply_messages().next().map(String::from_utf8_lossy);
        let message = message.map(|m| format!(" Message: {m}")).unwrap_or_default();
        let [.., accept, reject] = self.message_names();
        if outcome == ProbeOutcome::Accepted {
            let count = reply.attribute_count();
            (self.message_sink)(&format!("{accept} with {count} attributes: {name} is accepted.{message}"));
            match self.peer.as_mut().map(EapPeer::poll_event) {
                None => {}
                Some(Some(peer::EapPeerEvent::Success { keys })) => {
                    let keys = if keys.is_some() {
                        "keys for the link are agreed"
                    } else {
                        "this method gives no keys"
                    };
                    (self.message_sink)(&format!("EAP-Success; {keys}."));
                }
                Some(_) => {
                    (self.message_sink)(
                        "But EAP failed at the client: it does not accept the server's proof.",
                    );
                }
            }
        } else {
            let code = reply.result_code().map(|code| format!(" ({code})")).unwrap_or_default();
            (self.message_sink)(&format!("{reject}{code}: {name} is rejected.{message}"));
        }
        self.end = Some(Ok(outcome));
    }

    fn explain_silence(&mut self) -> ProbeOutcome {
        if let Some(error) = self.carriage.as_ref().and_then(TlsClient::first_fault) {
            let said = match error {
                TlsError::Failed(_, said) => said,
                _ => "",
            };
            self.tls = Some(explain_tls_fault(error.fault(), said, self.login, self.message_sink));
            return ProbeOutcome::Silence;
        }
        let mut heard = false;
        for (name, n) in
            self.access.radius_counters().into_iter().flat_map(client::RadiusClientCounters::iter)
        {
            if let Some(why) = client::drop_counter_advice(name).filter(|_| n > 0) {
                (self.message_sink)(&format!("{n} answers were dropped: {why}."));
                heard = true;
            }
        }
        if heard {
            return ProbeOutcome::Silence;
        }
        let why = match &self.login.carrier {
            ProbeTransport::Udp { .. } => {
                "Is this machine one of its clients? A wrong shared secret gets no answer either."
            }
            ProbeTransport::RadSec => "Is this machine one of its clients, by this certificate?",
            ProbeTransport::Diameter { .. } if self.rng.is_none() => "The connection was open.",
            ProbeTransport::Diameter { .. } => {
                "No connection was open: check the server's identity, and that this client is one of its peers."
            }
        };
        let server = self.login.server;
        (self.message_sink)(&format!(
            "No answer from {server}. Is the server running? {why} Its log and metrics show the cause."
        ));
        ProbeOutcome::Silence
    }

    /// Returns the names of the messages: request, challenge, accept, reject.
    fn message_names(&self) -> [&'static str; 4] {
        match (self.login.by_diameter(), &self.peer) {
            (false, _) => ["Access-Request", "Access-Challenge", "Access-Accept", "Access-Reject"],
            (true, None) => ["AA-Request", "AA-Answer", "AA-Answer of success", "AA-Answer of refusal"],
            (true, Some(_)) => [
                "Diameter-EAP-Request",
                "Diameter-EAP-Answer",
                "Diameter-EAP-Answer of success",
                "Diameter-EAP-Answer of refusal",
            ],
        }
    }
}

/// A login on real sockets.
struct LoginProbeRole<'a, 'b>(&'a mut ActiveProbeLogin<'b>);

impl DriverRole for LoginProbeRole<'_, '_> {
    type Machine = AccessClient;
    type Message = ();

    fn machine(&mut self) -> &mut AccessClient {
        &mut self.0.access
    }
    fn on_event(&mut self, now: Instant, event: AccessClientEvent) {
        let heard = match event {
            AccessClientEvent::Challenge { reply, .. } => self.0.handle_reply(now, &reply, None),
            AccessClientEvent::Accept { reply, .. } => {
                self.0.handle_reply(now, &reply, Some(ProbeOutcome::Accepted))
            }
            AccessClientEvent::Reject { reply, .. } => {
                self.0.handle_reply(now, &reply, Some(ProbeOutcome::Rejected))
            }
            AccessClientEvent::Failed { failure: AaaRequestFailure::BadAnswer, .. } => {
                (self.0.message_sink)("The server's answer is malformed: it counts as a reject.");
                self.0.end = Some(Ok(ProbeOutcome::Rejected));
                Ok(())
            }
            AccessClientEvent::Failed { .. } => {
                self.0.end = Some(Ok(self.0.explain_silence()));
                Ok(())
            }
            AccessClientEvent::Peer { up: true, .. } => self.0.start_login(now),
            // Other events are ignored.
            _ => Ok(()),
        };
        if let Err(error) = heard {
            self.0.end = Some(Err(error));
        }
    }
    fn on_job(&mut self, _: Instant, job: JobRequest<NoJob>) {
        match job.job {}
    }
    fn on_message(&mut self, _: Instant, (): ()) {}
    fn is_stopped(&self) -> bool {
        // After a TLS fault, or once the probe has its result, another attempt would end in the same way.
        self.0.end.is_some() || self.0.carriage.as_ref().is_some_and(|tls| tls.first_fault().is_some())
    }
}

/// Reports the local TLS error, if there is one.
fn report_local_tls_error(peer: &EapPeer, login: &ProbeLogin, say: &mut dyn FnMut(&str)) -> Option<TlsFault> {
    let (fault, said) = peer.tls_fault()?;
    Some(explain_tls_fault(fault, &said, login, say))
}

/// Explains a TLS error, with the message of the TLS library.
fn explain_tls_fault(fault: TlsFault, said: &str, login: &ProbeLogin, say: &mut dyn FnMut(&str)) -> TlsFault {
    let hint = match fault {
        TlsFault::Certificate(CertificateFault::UnknownAuthority | CertificateFault::Signature) => {
            let ca = login.ca.as_ref().map_or_else(String::new, |ca| format!(" ({})", ca.display()));
            format!(" Is --ca{ca} the authority that signed its certificate?")
        }
        TlsFault::Alert(_) => String::new(),
        _ if said.is_empty() => String::new(),
        _ => format!(" ({said})"),
    };
    say(&format!("TLS fails: {} [{}].{hint}", fault.describe_with_peer_name("the server"), fault.name()));
    fault
}

/// Returns the peer's only method.
fn peer_offer(login: &ProbeLogin) -> Result<Box<dyn PeerMethodFactory>, ProbeError> {
    let name = login.name.as_bytes().to_vec();
    let account =
        || -> Box<dyn PeerMethodFactory> { Box::new(mschapv2::MsChapV2Account::new(&name, &login.password)) };
    Ok(match login.method {
        AuthMethod::EapGtc => Box::new(gtc::GtcToken::new(&login.password)),
        AuthMethod::EapMsChapV2 => account(),
        AuthMethod::EapTls => Box::new(EapTlsPeerFactory { tls: users_tls(login)?, fragment: FRAGMENT }),
        AuthMethod::Peap => Box::new(PeapPeerFactory {
            tls: users_tls(login)?,
            fragment: FRAGMENT,
            identity: name.clone(),
            inner: Arc::from([account()]),
        }),
        AuthMethod::Ttls => Box::new(TtlsPeerFactory {
            tls: users_tls(login)?,
            fragment: FRAGMENT,
            identity: name.clone(),
            proof: ttls::TtlsInnerCredential::Pap(login.password.as_slice().into()),
        }),
        _ => Box::new(md5::EapMd5Password::new(&login.password)),
    })
}

/// Returns the TLS of the user's method.
fn users_tls(login: &ProbeLogin) -> Result<PeerTlsBackend, ProbeError> {
    if login.method == AuthMethod::EapTls && login.certificate.is_none() {
        return Err(ProbeError::Setup("eap-tls needs --certificate FILE and --key FILE".to_owned()));
    }
    Ok(PeerTlsBackend::Real(tls_config(login, None)?, 0))
}

fn tls_config(login: &ProbeLogin, server_name: Option<&str>) -> Result<ClientConfig, ProbeError> {
    let setup = |e: String| ProbeError::Setup(e);
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|e| setup(format!("cannot read {}: {e}", path.display())))
    };
    let ca = login
        .ca
        .as_ref()
        .ok_or_else(|| setup("add --ca FILE: the authority of the server's certificate".to_owned()))?;
    let roots = TrustRoots::from_pem(&read(ca)?).map_err(|e| setup(format!("{}: {e}", ca.display())))?;
    let credentials = match &login.certificate {
        Some((certificate, key)) => {
            let private = config::from_file(key).map_err(setup)?;
            let made = TlsCredentials::from_pem(&read(certificate)?, private.0.as_bytes());
            let of = |e: &TlsError| if e.concerns_private_key() { key } else { certificate }.display();
            Some(made.map_err(|e| setup(format!("{}: {e}", of(&e))))?)
        }
        None => None,
    };
    ClientConfig::new(TlsClientOptions {
        versions: TlsVersionRange::default(),
        credentials,
        roots,
        server_name: server_name.map(str::to_owned),
        resumption: None,
        clock: SharedWallClock::from_time(usher_service::setup::wall_time()),
        key_log: None,
    })
    .map_err(|e| setup(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_to_whom_there_is_no_way_is_said_so_at_once() {
        let login = ProbeLogin {
            // The system refuses datagrams to this address without a socket option.
            server: SocketAddr::from((Ipv4Addr::BROADCAST, 1812)),
            carrier: ProbeTransport::Udp { secret: b"a secret".to_vec().into() },
            name: "ann".to_owned(),
            outside: None,
            password: b"right".to_vec(),
            method: AuthMethod::Pap,
            ca: None,
            certificate: None,
            server_name: None,
            mac: None,
            timeout: Wait::from_secs(60),
        };
        let begun = std::time::Instant::now();
        let error = run_probe(&login, &mut |step| panic!("{step}")).unwrap_err().to_string();
        assert!(error.contains("cannot reach 255.255.255.255:1812"), "{error}");
        assert!(begun.elapsed() < login.timeout);
    }
}
