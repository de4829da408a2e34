//! One login, as a network access server would make it, with every step told in words.

use crate::config;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration as Wait;
use tokio::time::timeout;
use usher_aaa::Method;
use usher_access::{
    AaaConfig, AccessClient, ChapResponse, Continuation, DiameterConfig, Event, Failure, MsChapV2Response,
    NasIdentity, NasPort, Proof, RadiusConfig, Reply, Request,
};
use usher_core::{Duration, Instant, Job, NoJob, SecureRng};
use usher_crypto::Key;
use usher_crypto::fault::{CertificateFault, TlsFault};
use usher_crypto::tls::{ClientConfig, ClientOptions, Credentials, Roots, TlsError, VersionRange, WallClock};
use usher_diameter::codes::application;
use usher_diameter::node;
use usher_diameter::peer::capabilities::Application;
use usher_diameter::stream::StreamPolicy;
use usher_eap::method::peap::PeerMethodPeap;
use usher_eap::method::tls::{PeerMethodTls, PeerTls};
use usher_eap::method::ttls::{self, PeerMethodTtls};
use usher_eap::method::{PeerOffer, gtc, md5, mschapv2};
use usher_eap::packet;
use usher_eap::peer::{self, Peer};
use usher_live::{Carriage, Clock, Driver, Outgoing, Role, Sockets, TlsClient};
use usher_radius::Secret;
use usher_radius::client::{self, Config, ServerConfig};

/// The longest EAP packet that is sent.
const FRAGMENT: usize = 1024;
/// Rounds of one login; more are a conversation without end.
const ROUNDS: u32 = 100;

/// Which login.
pub struct Login {
    /// The server.
    pub server: SocketAddr,
    /// How it is asked.
    pub carrier: Carrier,
    /// The user.
    pub name: String,
    /// The name outside a tunnel; `None`: the user's.
    pub outside: Option<String>,
    /// The password; empty for EAP-TLS.
    pub password: Vec<u8>,
    /// How it is proved.
    pub method: Method,
    /// PEM: authorities of the server's certificate.
    pub ca: Option<PathBuf>,
    /// PEM: the certificate by which this side is known, and its key: by EAP-TLS, and by the server where it is asked by TLS.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The name that the certificate must bear that the server shows where it is asked by TLS.
    pub server_name: Option<String>,
    /// Calling-Station-Id.
    pub mac: Option<String>,
    /// How long the whole may take.
    pub patience: Wait,
}

/// How a server is asked.
#[derive(Clone, Debug)]
pub enum Carrier {
    /// RADIUS by datagrams.
    Udp {
        /// The secret shared with the server.
        secret: Key,
    },
    /// RADIUS over TLS (RFC 6614).
    RadSec,
    /// Diameter.
    Diameter {
        /// What the server calls itself.
        peer: String,
        /// What this side calls itself.
        identity: String,
        /// Our realm.
        realm: String,
        /// Destination-Realm.
        destination: String,
        /// What carries it.
        by: DiameterBy,
    },
}

/// What carries Diameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiameterBy {
    /// TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// SCTP, one stream each way: there is one login.
    Sctp,
}

/// The methods that a login can be proved by here: of PEAP with MSCHAPv2 inside, of TTLS with PAP.
pub fn methods() -> impl Iterator<Item = Method> {
    Method::ALL.into_iter().filter(|method| !matches!(method, Method::MsChap | Method::Mab))
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Let in.
    Accepted,
    /// Turned away.
    Rejected,
    /// The server said nothing, or the TLS by which it is asked did not come about ([`Ended::tls`]).
    Silence,
}

/// What became of a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// How it ended.
    pub outcome: Outcome,
    /// Why TLS came to its end on this side, where it did.
    pub tls: Option<TlsFault>,
}

/// Why no login was made.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A file, or what the method needs.
    #[error("{0}")]
    Setup(String),
    /// The network.
    #[error("cannot speak to {server}: {error}")]
    Network {
        /// The server.
        server: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
}

/// Makes the login; `say` gets each step.
///
/// # Errors
/// It could not be made; a reject or silence is an [`Outcome`].
pub fn run(login: &Login, say: &mut dyn FnMut(&str)) -> Result<Ended, ProbeError> {
    let network = |error| ProbeError::Network { server: login.server, error };
    if matches!(login.carrier, Carrier::Diameter { by: DiameterBy::Sctp, .. }) && !usher_sctp::is_available()
    {
        return Err(ProbeError::Setup(usher_sctp::NoSctp.to_string()));
    }
    let mut rng = SecureRng::from_seed(crate::installation::random().map_err(network)?);
    // The driver drops what it cannot send, as datagrams may be: whether there is any way to the server is asked before.
    let any: IpAddr = match login.server.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let way = UdpSocket::bind((any, 0)).and_then(|s| s.connect(login.server).and_then(|()| s.local_addr()));
    let local = way.map_err(network)?.ip();
    let (identifier, by_tls) = match &login.carrier {
        Carrier::Udp { .. } => ("usher-test", false),
        Carrier::RadSec => ("usher-test", true),
        Carrier::Diameter { identity, by, .. } => (&identity[..], *by == DiameterBy::Tls),
    };
    let nas = NasIdentity { identifier: identifier.to_owned(), ..NasIdentity::default() };
    let access = AccessClient::new(nas, login.aaa(local), SecureRng::from_seed(rng.array()))
        .map_err(|e| ProbeError::Setup(e.to_string()))?;
    let carriage = match by_tls {
        true => Some(TlsClient::new(tls(login, login.server_name.as_deref())?)),
        false => None,
    };
    let outgoing = carriage.clone().map(|tls| Arc::new(move |_| Carriage::Tls(tls.clone())) as Outgoing);
    let clock = Clock::start();
    let mut test = Test {
        login,
        say,
        access,
        rng: Some(rng),
        peer: None,
        next: Continuation::new(),
        round: 0,
        last: None,
        tls: None,
        carriage,
        end: None,
    };
    // Diameter's connection comes up first.
    if !login.by_diameter() {
        test.begin(clock.now())?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(network)?;
    runtime.block_on(async {
        let sockets = Sockets { outgoing, ..Sockets::default() };
        let (driver, _mailbox) = Driver::new(Hosted(&mut test), sockets, clock);
        // What has come to no end by then is silence.
        match timeout(login.patience, driver.run()).await {
            Ok(Err(error)) => Err(network(error)),
            _ => Ok(()),
        }
    })?;
    let outcome = test.end.take().unwrap_or_else(|| Ok(test.silence()))?;
    Ok(Ended { outcome, tls: test.tls })
}

impl Login {
    const fn by_diameter(&self) -> bool {
        matches!(self.carrier, Carrier::Diameter { .. })
    }

    /// How the server is asked, from this address.
    fn aaa(&self, local: IpAddr) -> AaaConfig {
        let server = match &self.carrier {
            Carrier::Udp { secret } => ServerConfig::new(self.server, Secret::new(secret)),
            Carrier::RadSec => ServerConfig::radsec(self.server),
            Carrier::Diameter { peer, identity, realm, destination, by } => {
                let id =
                    if self.method.eap_type().is_some() { application::EAP } else { application::NASREQ };
                let mut node = node::Config::new(identity, realm, &[Application::auth(id)]);
                node = node.connect_to(peer, self.server);
                if *by == DiameterBy::Sctp {
                    let one = node::Transport::Message { streams: 1, policy: StreamPolicy::One };
                    node.peers.iter_mut().for_each(|peer| peer.transport = one);
                }
                node.local.addresses.push(local);
                return AaaConfig::Diameter(Box::new(DiameterConfig::new(node, destination.clone())));
            }
        };
        let mut config = Config::single(server);
        config.max_sockets = 1;
        AaaConfig::Radius(RadiusConfig::new(config))
    }
}

fn micros(wait: Wait) -> Duration {
    Duration::from_micros(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
}

/// A login under way.
struct Test<'a> {
    login: &'a Login,
    say: &'a mut dyn FnMut(&str),
    access: AccessClient,
    /// Until the login begins.
    rng: Option<SecureRng>,
    /// The peer's side of EAP.
    peer: Option<Peer>,
    next: Continuation,
    round: u32,
    /// The method that the server proposed last.
    last: Option<packet::Type>,
    tls: Option<TlsFault>,
    /// The TLS by which the server is asked, where it is.
    carriage: Option<TlsClient>,
    end: Option<Result<Outcome, ProbeError>>,
}

impl Test<'_> {
    fn ask(&mut self, now: Instant, proof: Proof<'_>) -> Result<(), ProbeError> {
        let name = self.login.outside.as_ref().unwrap_or(&self.login.name).as_bytes();
        let port = NasPort { calling_station: self.login.mac.as_deref(), ..NasPort::default() };
        let request = Request { port, continues: Some(&self.next), ..Request::new(name, proof) };
        self.access.ask(now, 0, &request).map_err(|e| ProbeError::Setup(e.to_string()))
    }

    /// Asks the first question.
    fn begin(&mut self, now: Instant) -> Result<(), ProbeError> {
        let Some(mut rng) = self.rng.take() else { return Ok(()) };
        let Login { method, name, password, .. } = self.login;
        if method.eap_type().is_some() {
            return self.begin_eap(now, rng);
        }
        let [identifier] = rng.array();
        let challenge: [u8; 16] = rng.array();
        let (proof, what) = match method {
            Method::Chap => {
                let response = ChapResponse::to(identifier, &challenge, password);
                (Proof::Chap(response), "a CHAP response: the password itself is not sent")
            }
            Method::MsChapV2 => {
                let name = name.as_bytes();
                let (response, _) = MsChapV2Response::to(identifier, challenge, rng.array(), name, password);
                (Proof::MsChapV2(response), "an MS-CHAPv2 response: the password itself is not sent")
            }
            _ if self.login.by_diameter() => (Proof::Pap(password), "the password (PAP)"),
            _ => (Proof::Pap(password), "the password, hidden by the shared secret (PAP)"),
        };
        self.ask(now, proof)?;
        let [request, ..] = self.words();
        (self.say)(&format!("{request} with {what}."));
        Ok(())
    }

    /// Begins EAP with what the access server asks by itself (RFC 3579 §2.1).
    fn begin_eap(&mut self, now: Instant, rng: SecureRng) -> Result<(), ProbeError> {
        let outside = self.login.outside.as_ref().unwrap_or(&self.login.name);
        let config = peer::Config {
            identity: outside.clone().into_bytes(),
            methods: Arc::from([offer(self.login)?]),
            timeout: micros(self.login.patience),
            wall: crate::clock::wall(),
        };
        let mut peer = Peer::new(config, rng, now);
        let mut identity = Vec::new();
        packet::emit(&mut identity, packet::Code::Request, 0, packet::Type::IDENTITY, &[]);
        peer.handle(now, &identity);
        self.peer = Some(peer);
        self.respond(now)
    }

    /// Sends what the peer answers.
    fn respond(&mut self, now: Instant) -> Result<(), ProbeError> {
        let mut packet = Vec::new();
        if !self.peer.as_mut().is_some_and(|peer| peer.poll_transmit(&mut packet)) {
            (self.say)(
                "The server's last EAP packet cannot be answered: it is not what this method expects.",
            );
            self.end = Some(Ok(Outcome::Rejected));
            return Ok(());
        }
        self.round += 1;
        if self.round > ROUNDS {
            (self.say)("The conversation does not end; giving up.");
            self.end = Some(Ok(Outcome::Rejected));
            return Ok(());
        }
        let what = if self.round == 1 { "who it is" } else { "an answer" };
        let ([request, ..], length) = (self.words(), packet.len());
        (self.say)(&format!("{request} {}: EAP with {what}, {length} octets.", self.round));
        self.ask(now, Proof::Eap(&packet))
    }

    /// Hears a reply.
    fn hear(&mut self, now: Instant, reply: &Reply, outcome: Option<Outcome>) -> Result<(), ProbeError> {
        let mut eap = Vec::new();
        if reply.eap(&mut eap)
            && let Some(peer) = &mut self.peer
        {
            peer.handle(now, &eap);
            if self.tls.is_none() {
                self.tls = tls_ended(peer, self.login, self.say);
            }
        }
        if let Some(outcome) = outcome {
            self.ended(reply, outcome);
            return Ok(());
        }
        let [_, challenge, ..] = self.words();
        let Some(peer) = &mut self.peer else {
            (self.say)(&format!("{challenge}, which this method does not know: taken for a reject."));
            self.end = Some(Ok(Outcome::Rejected));
            return Ok(());
        };
        let kind = eap.get(4).map(|k| packet::Type(*k));
        if let Some(kind) = kind
            && self.last != Some(kind)
        {
            (self.say)(&format!("{challenge}: the server proposes {kind}."));
            self.last = Some(kind);
        }
        if matches!(peer.poll_event(), Some(peer::Event::Failure)) {
            if self.tls.is_none() {
                (self.say)("This side gives up: the server's proof does not convince.");
            }
            self.end = Some(Ok(Outcome::Rejected));
            return Ok(());
        }
        reply.continuation(&mut self.next);
        self.respond(now)
    }

    /// The server decided.
    fn ended(&mut self, reply: &Reply, outcome: Outcome) {
        let name = &self.login.name;
        let message = reply.messages().next().map(String::from_utf8_lossy);
        let message = message.map(|m| format!(" It says: {m}")).unwrap_or_default();
        let [.., accept, reject] = self.words();
        if outcome == Outcome::Accepted {
            let count = reply.count();
            (self.say)(&format!("{accept} with {count} attributes: {name} is let in.{message}"));
            match self.peer.as_mut().map(Peer::poll_event) {
                None => {}
                Some(Some(peer::Event::Success { keys })) => {
                    let keys = if keys.is_some() {
                        "keys for the link were agreed on"
                    } else {
                        "the method gives no keys"
                    };
                    (self.say)(&format!("EAP-Success; {keys}."));
                }
                Some(_) => {
                    (self.say)("But EAP did not succeed on this side: the server's proof does not convince.");
                }
            }
        } else {
            let code = reply.result_code().map(|code| format!(" ({code})")).unwrap_or_default();
            (self.say)(&format!("{reject}{code}: {name} is turned away.{message}"));
        }
        self.end = Some(Ok(outcome));
    }

    fn silence(&mut self) -> Outcome {
        if let Some(error) = self.carriage.as_ref().and_then(TlsClient::first_fault) {
            let said = match error {
                TlsError::Failed(_, said) => said,
                _ => "",
            };
            self.tls = Some(tls_told(error.fault(), said, self.login, self.say));
            return Outcome::Silence;
        }
        let mut heard = false;
        for (name, n) in self.access.radius_counters().into_iter().flat_map(client::Counters::iter) {
            if let Some(why) = client::why_dropped(name).filter(|_| n > 0) {
                (self.say)(&format!("{n} answers came and were dropped: {why}."));
                heard = true;
            }
        }
        if heard {
            return Outcome::Silence;
        }
        let why = match &self.login.carrier {
            Carrier::Udp { .. } => {
                "Is this machine one of its clients? A wrong shared secret is met with silence too"
            }
            Carrier::RadSec => "Is this machine one of its clients, by this certificate?",
            Carrier::Diameter { .. } if self.rng.is_none() => "The connection came up",
            Carrier::Diameter { .. } => {
                "No connection came up: is that what it calls itself, and are we one of its peers?"
            }
        };
        let server = self.login.server;
        (self.say)(&format!(
            "No answer from {server}. Is the server running? {why}; the server's log and metrics tell which."
        ));
        Outcome::Silence
    }

    /// What a request is called, an answer that asks for more, one that lets in, one that does not.
    fn words(&self) -> [&'static str; 4] {
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
struct Hosted<'a, 'b>(&'a mut Test<'b>);

impl Role for Hosted<'_, '_> {
    type Machine = AccessClient;
    type Message = ();

    fn machine(&mut self) -> &mut AccessClient {
        &mut self.0.access
    }
    fn event(&mut self, now: Instant, event: Event) {
        let heard = match event {
            Event::Challenge { reply, .. } => self.0.hear(now, &reply, None),
            Event::Accept { reply, .. } => self.0.hear(now, &reply, Some(Outcome::Accepted)),
            Event::Reject { reply, .. } => self.0.hear(now, &reply, Some(Outcome::Rejected)),
            Event::Failed { failure: Failure::BadAnswer, .. } => {
                (self.0.say)("The server's answer is not well-formed: taken for a reject.");
                self.0.end = Some(Ok(Outcome::Rejected));
                Ok(())
            }
            Event::Failed { .. } => {
                self.0.end = Some(Ok(self.0.silence()));
                Ok(())
            }
            Event::Peer { up: true, .. } => self.0.begin(now),
            // Nothing else is asked.
            _ => Ok(()),
        };
        if let Err(error) = heard {
            self.0.end = Some(Err(error));
        }
    }
    fn job(&mut self, _: Instant, job: Job<NoJob>) {
        match job.what {}
    }
    fn message(&mut self, _: Instant, (): ()) {}
    fn stopped(&self) -> bool {
        // Another attempt would end as the first.
        self.0.end.is_some() || self.0.carriage.as_ref().is_some_and(|tls| tls.first_fault().is_some())
    }
}

/// What TLS of this side has to say once it has come to its end.
fn tls_ended(peer: &Peer, login: &Login, say: &mut dyn FnMut(&str)) -> Option<TlsFault> {
    let (fault, said) = peer.tls_fault()?;
    Some(tls_told(fault, &said, login, say))
}

/// Says why TLS ended, and what its engine says of it besides.
fn tls_told(fault: TlsFault, said: &str, login: &Login, say: &mut dyn FnMut(&str)) -> TlsFault {
    let hint = match fault {
        TlsFault::Certificate(CertificateFault::UnknownAuthority | CertificateFault::Signature) => {
            let ca = login.ca.as_ref().map_or_else(String::new, |ca| format!(" ({})", ca.display()));
            format!(" Is --ca{ca} its authority?")
        }
        TlsFault::Alert(_) => String::new(),
        _ if said.is_empty() => String::new(),
        _ => format!(" ({said})"),
    };
    say(&format!("TLS ends: {} [{}].{hint}", fault.told("the server"), fault.name()));
    fault
}

/// What the peer can do: the one method.
fn offer(login: &Login) -> Result<Box<dyn PeerOffer>, ProbeError> {
    let name = login.name.as_bytes().to_vec();
    let account = || -> Box<dyn PeerOffer> { Box::new(mschapv2::Account::new(&name, &login.password)) };
    Ok(match login.method {
        Method::EapGtc => Box::new(gtc::Token::new(&login.password)),
        Method::EapMsChapV2 => account(),
        Method::EapTls => Box::new(PeerMethodTls { tls: users_tls(login)?, fragment: FRAGMENT }),
        Method::Peap => Box::new(PeerMethodPeap {
            tls: users_tls(login)?,
            fragment: FRAGMENT,
            identity: name.clone(),
            inner: Arc::from([account()]),
        }),
        Method::Ttls => Box::new(PeerMethodTtls {
            tls: users_tls(login)?,
            fragment: FRAGMENT,
            identity: name.clone(),
            proof: ttls::Proof::Pap(login.password.as_slice().into()),
        }),
        _ => Box::new(md5::Password::new(&login.password)),
    })
}

/// The TLS of the user's method.
fn users_tls(login: &Login) -> Result<PeerTls, ProbeError> {
    if login.method == Method::EapTls && login.certificate.is_none() {
        return Err(ProbeError::Setup("eap-tls needs --certificate FILE and --key FILE".to_owned()));
    }
    Ok(PeerTls::Real(tls(login, None)?, 0))
}

fn tls(login: &Login, server_name: Option<&str>) -> Result<ClientConfig, ProbeError> {
    let setup = |e: String| ProbeError::Setup(e);
    let read = |path: &PathBuf| std::fs::read(path).map_err(|e| setup(format!("{}: {e}", path.display())));
    let ca = login
        .ca
        .as_ref()
        .ok_or_else(|| setup("the server shows a certificate; give its authority by --ca FILE".to_owned()))?;
    let roots = Roots::from_pem(&read(ca)?).map_err(|e| setup(format!("{}: {e}", ca.display())))?;
    let credentials = match &login.certificate {
        Some((certificate, key)) => {
            let private = config::from_file(key).map_err(setup)?;
            let made = Credentials::from_pem(&read(certificate)?, private.0.as_bytes());
            let of = |e: &TlsError| if e.is_of_key() { key } else { certificate }.display();
            Some(made.map_err(|e| setup(format!("{}: {e}", of(&e))))?)
        }
        None => None,
    };
    ClientConfig::new(ClientOptions {
        versions: VersionRange::default(),
        credentials,
        roots,
        server_name: server_name.map(str::to_owned),
        resumption: None,
        clock: WallClock::at(crate::clock::wall()),
        key_log: None,
    })
    .map_err(|e| setup(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_to_whom_there_is_no_way_is_said_so_at_once() {
        let login = Login {
            // No datagram may go there without a leave of its own.
            server: SocketAddr::from((Ipv4Addr::BROADCAST, 1812)),
            carrier: Carrier::Udp { secret: b"a secret".to_vec().into() },
            name: "ann".to_owned(),
            outside: None,
            password: b"right".to_vec(),
            method: Method::Pap,
            ca: None,
            certificate: None,
            server_name: None,
            mac: None,
            patience: Wait::from_secs(60),
        };
        let begun = std::time::Instant::now();
        let error = run(&login, &mut |step| panic!("{step}")).unwrap_err().to_string();
        assert!(error.contains("cannot speak to 255.255.255.255:1812"), "{error}");
        assert!(begun.elapsed() < login.patience);
    }
}
