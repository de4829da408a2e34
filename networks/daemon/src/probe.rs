//! One login, as a network access server would make it, with every step told in words.

use crate::config;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration as Wait;
use tokio::time::timeout;
use usher_aaa::Method;
use usher_access::{
    AaaConfig, AccessClient, ChapResponse, Continuation, Event, Failure, MsChapV2Response, NasIdentity,
    NasPort, Proof, RadiusConfig, Reply, Request,
};
use usher_core::{Duration, Instant, Job, NoJob, SecureRng};
use usher_crypto::fault::{CertificateFault, TlsFault};
use usher_crypto::tls::{ClientConfig, ClientOptions, Credentials, Roots, VersionRange, WallClock};
use usher_eap::method::peap::PeerMethodPeap;
use usher_eap::method::tls::{PeerMethodTls, PeerTls};
use usher_eap::method::ttls::{self, PeerMethodTtls};
use usher_eap::method::{PeerOffer, gtc, md5, mschapv2};
use usher_eap::packet;
use usher_eap::peer::{self, Peer};
use usher_live::{Clock, Driver, Role, Sockets};
use usher_radius::Secret;
use usher_radius::client::{Config, ServerConfig};

/// The longest EAP packet that is sent.
const FRAGMENT: usize = 1024;
/// Rounds of one login; more are a conversation without end.
const ROUNDS: u32 = 100;

/// Which login.
pub struct Login {
    /// The server.
    pub server: SocketAddr,
    /// The secret shared with it.
    pub secret: Vec<u8>,
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
    /// PEM: the user's certificate, for EAP-TLS, and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Calling-Station-Id.
    pub mac: Option<String>,
    /// How long the whole may take.
    pub patience: Wait,
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
    /// The server said nothing.
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
    let mut rng = SecureRng::from_seed(crate::installation::random().map_err(network)?);
    // The driver drops what it cannot send, as datagrams may be: whether there is any way to the server is asked before.
    let any: IpAddr = match login.server.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0)).and_then(|socket| socket.connect(login.server)).map_err(network)?;
    let mut config = Config::single(ServerConfig::new(login.server, Secret::new(&login.secret)));
    config.max_sockets = 1;
    let nas = NasIdentity { identifier: "usher-test".to_owned(), ..NasIdentity::default() };
    let aaa = AaaConfig::Radius(RadiusConfig::new(config));
    let access = AccessClient::new(nas, aaa, SecureRng::from_seed(rng.array()))
        .map_err(|e| ProbeError::Setup(e.to_string()))?;
    let clock = Clock::start();
    let mut test = Test {
        login,
        say,
        access,
        peer: None,
        next: Continuation::new(),
        round: 0,
        last: None,
        tls: None,
        end: None,
    };
    if login.method.eap_type().is_some() {
        test.begin_eap(clock.now(), SecureRng::from_seed(rng.array()))?;
    } else {
        test.begin(clock.now(), &mut rng)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(network)?;
    runtime.block_on(async {
        let (driver, _mailbox) = Driver::new(Hosted(&mut test), Sockets::default(), clock);
        // What has come to no end by then is silence.
        match timeout(login.patience, driver.run()).await {
            Ok(Err(error)) => Err(network(error)),
            _ => Ok(()),
        }
    })?;
    let outcome = test.end.take().unwrap_or_else(|| Ok(test.silence()))?;
    Ok(Ended { outcome, tls: test.tls })
}

fn micros(wait: Wait) -> Duration {
    Duration::from_micros(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
}

/// A login under way.
struct Test<'a> {
    login: &'a Login,
    say: &'a mut dyn FnMut(&str),
    access: AccessClient,
    /// The peer's side of EAP.
    peer: Option<Peer>,
    next: Continuation,
    round: u32,
    /// The method that the server proposed last.
    last: Option<packet::Type>,
    tls: Option<TlsFault>,
    end: Option<Result<Outcome, ProbeError>>,
}

impl Test<'_> {
    fn ask(&mut self, now: Instant, proof: Proof<'_>) -> Result<(), ProbeError> {
        let name = self.login.outside.as_ref().unwrap_or(&self.login.name).as_bytes();
        let port = NasPort { calling_station: self.login.mac.as_deref(), ..NasPort::default() };
        let request = Request { port, continues: Some(&self.next), ..Request::new(name, proof) };
        self.access.ask(now, 0, &request).map_err(|e| ProbeError::Setup(e.to_string()))
    }

    /// Asks by something else than EAP.
    fn begin(&mut self, now: Instant, rng: &mut SecureRng) -> Result<(), ProbeError> {
        let Login { method, name, password, .. } = self.login;
        let [identifier] = rng.array();
        let challenge: [u8; 16] = rng.array();
        let (proof, what) = match method {
            Method::Chap => (
                Proof::Chap(ChapResponse::to(identifier, &challenge, password)),
                "Access-Request with a CHAP response: the password itself is not sent.",
            ),
            Method::MsChapV2 => {
                let name = name.as_bytes();
                let (response, _) = MsChapV2Response::to(identifier, challenge, rng.array(), name, password);
                (
                    Proof::MsChapV2(response),
                    "Access-Request with an MS-CHAPv2 response: the password itself is not sent.",
                )
            }
            _ => {
                (Proof::Pap(password), "Access-Request with the password, hidden by the shared secret (PAP).")
            }
        };
        self.ask(now, proof)?;
        (self.say)(what);
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
        (self.say)(&format!("Access-Request {}: EAP with {what}, {} octets.", self.round, packet.len()));
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
        let Some(peer) = &mut self.peer else {
            (self.say)("Access-Challenge, which this method does not know: taken for a reject.");
            self.end = Some(Ok(Outcome::Rejected));
            return Ok(());
        };
        let kind = eap.get(4).map(|k| packet::Type(*k));
        if let Some(kind) = kind
            && self.last != Some(kind)
        {
            (self.say)(&format!("Access-Challenge: the server proposes {kind}."));
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
        if outcome == Outcome::Accepted {
            let count = reply.count();
            (self.say)(&format!("Access-Accept with {count} attributes: {name} is let in.{message}"));
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
            (self.say)(&format!("Access-Reject: {name} is turned away.{message}"));
        }
        self.end = Some(Ok(outcome));
    }

    fn silence(&mut self) -> Outcome {
        (self.say)(&format!(
            "No answer from {}. Is the server running? Is this machine one of its clients? A wrong shared secret is \
             met with silence too; the server's log and metrics tell which.",
            self.login.server
        ));
        Outcome::Silence
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
        self.0.end.is_some()
    }
}

/// What TLS of this side has to say once it has come to its end.
fn tls_ended(peer: &Peer, login: &Login, say: &mut dyn FnMut(&str)) -> Option<TlsFault> {
    let (fault, said) = peer.tls_fault()?;
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
    Some(fault)
}

/// What the peer can do: the one method.
fn offer(login: &Login) -> Result<Box<dyn PeerOffer>, ProbeError> {
    let name = login.name.as_bytes().to_vec();
    let account = || -> Box<dyn PeerOffer> { Box::new(mschapv2::Account::new(&name, &login.password)) };
    Ok(match login.method {
        Method::EapGtc => Box::new(gtc::Token::new(&login.password)),
        Method::EapMsChapV2 => account(),
        Method::EapTls => Box::new(PeerMethodTls { tls: tls(login)?, fragment: FRAGMENT }),
        Method::Peap => Box::new(PeerMethodPeap {
            tls: tls(login)?,
            fragment: FRAGMENT,
            identity: name.clone(),
            inner: Arc::from([account()]),
        }),
        Method::Ttls => Box::new(PeerMethodTtls {
            tls: tls(login)?,
            fragment: FRAGMENT,
            identity: name.clone(),
            proof: ttls::Proof::Pap(login.password.as_slice().into()),
        }),
        _ => Box::new(md5::Password::new(&login.password)),
    })
}

fn tls(login: &Login) -> Result<PeerTls, ProbeError> {
    let setup = |e: String| ProbeError::Setup(e);
    let read = |path: &PathBuf| std::fs::read(path).map_err(|e| setup(format!("{}: {e}", path.display())));
    let ca = login.ca.as_ref().ok_or_else(|| {
        setup("this method shows the server's certificate; give its authority by --ca FILE".to_owned())
    })?;
    let roots = Roots::from_pem(&read(ca)?).map_err(|e| setup(format!("{}: {e}", ca.display())))?;
    let credentials = match (&login.certificate, login.method) {
        (Some((certificate, key)), _) => {
            let key = config::from_file(key).map_err(setup)?;
            let made = Credentials::from_pem(&read(certificate)?, key.0.as_bytes());
            Some(made.map_err(|e| setup(format!("{}: {e}", certificate.display())))?)
        }
        (None, Method::EapTls) => {
            return Err(setup("eap-tls needs --certificate FILE and --key FILE".to_owned()));
        }
        (None, _) => None,
    };
    let config = ClientConfig::new(ClientOptions {
        versions: VersionRange::default(),
        credentials,
        roots,
        server_name: None,
        resumption: None,
        clock: WallClock::at(crate::clock::wall()),
        key_log: None,
    });
    Ok(PeerTls::Real(config.map_err(|e| setup(e.to_string()))?, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_to_whom_there_is_no_way_is_said_so_at_once() {
        let login = Login {
            // No datagram may go there without a leave of its own.
            server: SocketAddr::from((Ipv4Addr::BROADCAST, 1812)),
            secret: b"a secret".to_vec(),
            name: "ann".to_owned(),
            outside: None,
            password: b"right".to_vec(),
            method: Method::Pap,
            ca: None,
            certificate: None,
            mac: None,
            patience: Wait::from_secs(60),
        };
        let begun = std::time::Instant::now();
        let error = run(&login, &mut |step| panic!("{step}")).unwrap_err().to_string();
        assert!(error.contains("cannot speak to 255.255.255.255:1812"), "{error}");
        assert!(begun.elapsed() < login.patience);
    }
}
