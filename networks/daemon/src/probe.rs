//! One login, as a network access server would make it, with every step told in words.

use crate::config;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration as Wait;
use usher_aaa::Method;
use usher_core::{Duration, Input, Instant, Machine, Output, Path, SecureRng, SocketId, Transmit};
use usher_crypto::fault::{CertificateFault, TlsFault};
use usher_crypto::legacy::{mschap, nt_hash};
use usher_crypto::tls::{ClientConfig, ClientOptions, Credentials, Roots, VersionRange, WallClock};
use usher_eap::method::peap::PeerMethodPeap;
use usher_eap::method::tls::{PeerMethodTls, PeerTls};
use usher_eap::method::ttls::{PeerMethodTtls, Proof};
use usher_eap::method::{PeerOffer, gtc, md5, mschapv2};
use usher_eap::packet;
use usher_eap::peer::{self, Peer};
use usher_live::Clock;
use usher_radius::Secret;
use usher_radius::attribute::{Attributes, kind, vendor};
use usher_radius::client::{Client, Command, Config, Event, Response, Retransmission, ServerConfig, Target};
use usher_radius::packet::Code;

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
    let local: SocketAddr = match login.server.ip() {
        IpAddr::V4(_) => "0.0.0.0:0".parse().unwrap_or(login.server),
        IpAddr::V6(_) => "[::]:0".parse().unwrap_or(login.server),
    };
    let socket = UdpSocket::bind(local).map_err(network)?;
    socket.connect(login.server).map_err(network)?;
    let mut config = Config::single(ServerConfig::new(login.server, Secret::new(&login.secret)));
    config.max_sockets = 1;
    config.retransmission = Retransmission::default();
    let client = Client::new(config, SecureRng::from_seed(rng.array()))
        .map_err(|e| ProbeError::Setup(e.to_string()))?;
    let clock = Clock::start();
    let mut line = Line { socket, client, clock, until: clock.now() + micros(login.patience), tokens: 0 };
    if login.method.eap_type().is_some() {
        eap(login, &mut line, &mut rng, say)
    } else {
        Ok(Ended { outcome: plain(login, &mut line, &mut rng, say)?, tls: None })
    }
}

fn micros(wait: Wait) -> Duration {
    Duration::from_micros(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
}

/// The client's machine on one socket.
struct Line {
    socket: UdpSocket,
    client: Client,
    clock: Clock,
    until: Instant,
    tokens: u64,
}

impl Line {
    /// Sends a request and waits for its answer; `None`: there is none.
    fn ask(&mut self, server: SocketAddr, attributes: Attributes) -> Result<Option<Response>, ProbeError> {
        let network = |error| ProbeError::Network { server, error };
        self.tokens += 1;
        let target = Target::Server(0);
        let request = Command::Request { token: self.tokens, target, code: Code::ACCESS_REQUEST, attributes };
        self.client.command(self.clock.now(), request).map_err(|e| ProbeError::Setup(e.to_string()))?;
        let (mut out, mut buf) = (Vec::new(), [0; 4096]);
        let local = self.socket.local_addr().map_err(network)?;
        loop {
            let now = self.clock.now();
            while let Some(output) = self.client.poll_output(&mut out) {
                match output {
                    Output::Transmit(Transmit::Datagram { .. }) => {
                        // A port that nobody listens on shows at the next receive.
                        let _ = self.socket.send(&out);
                    }
                    Output::Event(Event::Response(response)) => return Ok(Some(response)),
                    Output::Event(Event::TimedOut { .. }) => return Ok(None),
                    _ => {}
                }
            }
            if now >= self.until {
                return Ok(None);
            }
            let next = self.client.poll_timeout().unwrap_or(self.until).min(self.until);
            let wait = Wait::from_nanos(next.since(now).as_nanos()).max(Wait::from_millis(1));
            self.socket.set_read_timeout(Some(wait)).map_err(network)?;
            let now = |clock: &Clock| clock.now();
            match self.socket.recv(&mut buf) {
                Ok(n) => {
                    let path = Path { socket: SocketId::own(0), local, remote: server };
                    let data = buf.get(..n).unwrap_or_default();
                    self.client.handle(now(&self.clock), Input::Datagram { path, data });
                }
                // Refused or nothing yet: the machine asks again.
                Err(_) => self.client.handle(now(&self.clock), Input::Timeout),
            }
        }
    }
}

/// What every request says.
fn base(login: &Login) -> Result<Attributes, ProbeError> {
    let long = |_| ProbeError::Setup("a value is longer than 253 octets".to_owned());
    let mut a = Attributes::new();
    a.push_text(kind::USER_NAME, login.outside.as_ref().unwrap_or(&login.name)).map_err(long)?;
    a.push_text(kind::NAS_IDENTIFIER, "usher-test").map_err(long)?;
    if let Some(mac) = &login.mac {
        a.push_text(kind::CALLING_STATION_ID, mac).map_err(long)?;
    }
    Ok(a)
}

fn ended(response: Option<&Response>, login: &Login, say: &mut dyn FnMut(&str)) -> Option<Outcome> {
    let Some(response) = response else {
        say(&format!(
            "No answer from {}. Is the server running? Is this machine one of its clients? A wrong shared secret is \
             met with silence too; the server's log and metrics tell which.",
            login.server
        ));
        return Some(Outcome::Silence);
    };
    let message = response.attributes.get(kind::REPLY_MESSAGE).map(String::from_utf8_lossy);
    let message = message.map(|m| format!(" It says: {m}")).unwrap_or_default();
    if response.code == Code::ACCESS_ACCEPT {
        let count = response.attributes.iter().count();
        say(&format!("Access-Accept with {count} attributes: {} is let in.{message}", login.name));
        Some(Outcome::Accepted)
    } else if response.code == Code::ACCESS_REJECT {
        say(&format!("Access-Reject: {} is turned away.{message}", login.name));
        Some(Outcome::Rejected)
    } else {
        None
    }
}

fn plain(
    login: &Login,
    line: &mut Line,
    rng: &mut SecureRng,
    say: &mut dyn FnMut(&str),
) -> Result<Outcome, ProbeError> {
    let long = |_| ProbeError::Setup("the password is too long for this method".to_owned());
    let mut a = base(login)?;
    match login.method {
        Method::Chap => {
            let challenge: [u8; 16] = rng.array();
            let id: [u8; 1] = rng.array();
            let digest = usher_crypto::digest::md5(&[&id, &login.password, &challenge]);
            a.push_bytes(kind::CHAP_PASSWORD, &[&id[..], &digest].concat()).map_err(long)?;
            a.push_bytes(kind::CHAP_CHALLENGE, &challenge).map_err(long)?;
            say("Access-Request with a CHAP response: the password itself is not sent.");
        }
        Method::MsChapV2 => {
            let (challenge, own): ([u8; 16], [u8; 16]) = (rng.array(), rng.array());
            let hash = nt_hash(&login.password);
            let answer = mschap::nt_response(&challenge, &own, login.name.as_bytes(), &hash);
            let response = [&[0, 0][..], &own, &[0; 8], &answer].concat();
            a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP_CHALLENGE, &challenge).map_err(long)?;
            a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP2_RESPONSE, &response).map_err(long)?;
            say("Access-Request with an MS-CHAPv2 response: the password itself is not sent.");
        }
        _ => {
            a.push_user_password(&login.password).map_err(long)?;
            say("Access-Request with the password, hidden by the shared secret (PAP).");
        }
    }
    let response = line.ask(login.server, a)?;
    Ok(ended(response.as_ref(), login, say).unwrap_or_else(|| {
        say("Access-Challenge, which this method does not know: taken for a reject.");
        Outcome::Rejected
    }))
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

fn eap(
    login: &Login,
    line: &mut Line,
    rng: &mut SecureRng,
    say: &mut dyn FnMut(&str),
) -> Result<Ended, ProbeError> {
    let now = line.clock.now();
    let outside = login.outside.as_ref().unwrap_or(&login.name);
    let config = peer::Config {
        identity: outside.clone().into_bytes(),
        methods: Arc::from([offer(login)?]),
        timeout: micros(login.patience),
        wall: crate::clock::wall(),
    };
    let mut peer = Peer::new(config, SecureRng::from_seed(rng.array()), now);
    // What the access server asks by itself (RFC 3579 §2.1).
    let mut packet = Vec::new();
    packet::emit(&mut packet, packet::Code::Request, 0, packet::Type::IDENTITY, &[]);
    peer.handle(now, &packet);
    let mut state: Option<Vec<u8>> = None;
    let mut last = None;
    let mut tls = None;
    for round in 0..ROUNDS {
        if !peer.poll_transmit(&mut packet) {
            say("The server's last EAP packet cannot be answered: it is not what this method expects.");
            return Ok(Ended { outcome: Outcome::Rejected, tls });
        }
        let mut a = base(login)?;
        a.push_eap(&packet);
        if let Some(state) = &state {
            a.push_bytes(kind::STATE, state)
                .map_err(|_| ProbeError::Setup("State is too long".to_owned()))?;
        }
        let what = if round == 0 { "who it is" } else { "an answer" };
        say(&format!("Access-Request {}: EAP with {what}, {} octets.", round + 1, packet.len()));
        let response = line.ask(login.server, a)?;
        let mut reply = Vec::new();
        if let Some(response) = &response
            && response.attributes.eap(&mut reply)
        {
            peer.handle(line.clock.now(), &reply);
            if tls.is_none() {
                tls = tls_ended(&peer, login, say);
            }
        }
        if let Some(outcome) = ended(response.as_ref(), login, say) {
            if outcome == Outcome::Accepted {
                match peer.poll_event() {
                    Some(peer::Event::Success { keys }) => {
                        let keys = if keys.is_some() {
                            "keys for the link were agreed on"
                        } else {
                            "the method gives no keys"
                        };
                        say(&format!("EAP-Success; {keys}."));
                    }
                    _ => say("But EAP did not succeed on this side: the server's proof does not convince."),
                }
            }
            return Ok(Ended { outcome, tls });
        }
        state = response.as_ref().and_then(|r| r.attributes.get(kind::STATE)).map(<[u8]>::to_vec);
        let kind = reply.get(4).map(|k| packet::Type(*k));
        if let Some(kind) = kind
            && last != Some(kind)
        {
            say(&format!("Access-Challenge: the server proposes {kind}."));
            last = Some(kind);
        }
        if matches!(peer.poll_event(), Some(peer::Event::Failure)) {
            if tls.is_none() {
                say("This side gives up: the server's proof does not convince.");
            }
            return Ok(Ended { outcome: Outcome::Rejected, tls });
        }
    }
    say("The conversation does not end; giving up.");
    Ok(Ended { outcome: Outcome::Rejected, tls })
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
            proof: Proof::Pap(login.password.as_slice().into()),
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
