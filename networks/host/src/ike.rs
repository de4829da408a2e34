//! The IKEv2 gateway, and the client, on this host's own sockets.

mod control;
mod key_log;
mod plane;

pub use control::{Answer, ChildSa, IkeSa, Pool, Request, Status, control_path, request};

use crate::{Hosted, ServeError, Source, keep_memory_private, log, serve as host};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use usher_config::disk::{Disk, LoadError, text};
use usher_config::hint;
use usher_core::{Job, SecureRng, SocketId, WallTime};
use usher_crypto::tls::WallClock;
use usher_gateway::config::{self, DEFAULT_PATH, File, Loaded};
use usher_gateway::{Command, DYNAMIC_SOCKET, Event, Gateway, LoginFailure};
use usher_ike::credentials::Credentials;
use usher_ike::machine::{EndReason, Event as Ike, IkeJob};
use usher_live::{Carriage, Clock, Outgoing, Settings, SocketOptions, Sockets, TlsClient, bind_udp};

/// Signatures and chains of certificates at a time.
const HELPERS: usize = 4;

/// Why the gateway does not serve.
#[derive(Debug, thiserror::Error)]
pub enum IkeError {
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// It listens nowhere.
    #[error("there is no address to listen on; name one in [listen] addresses")]
    Nowhere,
    /// There is no such connection.
    #[error("the configuration has no [[connection]] \"{name}\" with a remote_address{near}")]
    NoConnection {
        /// Its name.
        name: String,
        /// What it may mean.
        near: String,
    },
    /// It is configured in contradiction to itself.
    #[error("[aaa]: {0}")]
    Aaa(#[from] usher_access::ConfigError),
    /// The connection did not come to be.
    #[error("{0}")]
    NotConnected(String),
    /// The system.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> ServeError {
    move |error| ServeError::System { what, error }
}

/// Reads and checks a file, with the keys and certificates that it names; without one, the file at [`DEFAULT_PATH`] where there is
/// one.
///
/// # Errors
/// It cannot be read, or everything that is wrong with it.
pub fn load(path: Option<&Path>) -> Result<Loaded, LoadError> {
    load_by(path, &WallClock::at(WallTime::UNIX_EPOCH))
}

fn load_by(path: Option<&Path>, clock: &WallClock) -> Result<Loaded, LoadError> {
    let default = Path::new(DEFAULT_PATH);
    let unreadable = |source| LoadError::Unreadable { path: default.to_owned(), source };
    let (path, text) = match path {
        Some(path) => (path, text(path)?),
        None if default.try_exists().map_err(unreadable)? => (default, text(default)?),
        None => (default, String::new()),
    };
    Ok(config::parse(&path.display().to_string(), &text, &Disk, clock)?)
}

/// What is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Serve until told to end, and begin what the configuration begins.
    Serve,
    /// Begin one connection, and end with it.
    Connect {
        /// Its name.
        connection: String,
        /// Begin it again whenever it ends, until told to end.
        keep: bool,
    },
}

/// Runs until it is told to end, or, of one connection, until that has ended.
///
/// # Errors
/// It could not begin, or the connection did not come to be.
pub fn run(path: Option<PathBuf>, mode: &Mode) -> Result<(), IkeError> {
    keep_memory_private().map_err(system("switching core dumps off"))?;
    let clock = WallClock::at(WallTime::UNIX_EPOCH);
    let mut loaded = load_by(path.as_deref(), &clock)?;
    let _log = log::begin(loaded.file.log);
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let serves = *mode == Mode::Serve;
    if let Mode::Connect { connection, .. } = mode {
        only(&mut loaded, connection)?;
    }
    own_addresses(&mut loaded);
    let sockets = sockets(&loaded)?;
    let mut seed = [0; 32];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| system("the system's chance")(error.into()))?;
    let gateway = Gateway::new(loaded.config.clone(), SecureRng::from_seed(seed))?;
    let credentials = Arc::new(Mutex::new(loaded.credentials.clone()));
    let asked = control::Asked::default();
    let mut sources: Vec<Source<Command>> = Vec::new();
    if serves {
        control::begin(&loaded.file.listen.control, &asked, &mut sources)
            .map_err(system("control socket"))?;
        tracing::info!(path = %loaded.file.listen.control.display(), "control socket");
        if let Some(address) = loaded.file.listen.metrics {
            control::metrics(address, &asked).map_err(|error| ServeError::Listen {
                address,
                what: "metrics",
                error,
            })?;
            tracing::info!(%address, "metrics");
        }
    }
    let keys = loaded.file.key_log.as_deref().map(key_log::KeyLog::open).transpose();
    let keys = keys.map_err(system("key log"))?;
    if keys.is_some() {
        tracing::warn!(
            "the keys of all IKE_SAs are written to a file, for finding faults: who has it can read everything"
        );
    }
    let outcome = Arc::new(Mutex::new(None));
    let mut teller = Say { asked, keys, plane: plane::Plane, outcome: outcome.clone() };
    let keeps = !matches!(mode, Mode::Connect { keep: false, .. });
    let first = loaded.file.clone();
    host(Hosted {
        name: "usher-ike",
        machine: gateway,
        sockets,
        clock: Clock::start(),
        helper: Arc::new(helper(credentials.clone())),
        helpers: HELPERS,
        said: Box::new(move |event| teller.say(event)),
        over: Box::new(move |event| {
            !keeps && matches!(event, Event::Ike(Ike::Ended { reason, .. }) if *reason != EndReason::Rekeyed)
        }),
        counted: |gateway| {
            let (own, ike) = gateway.counters();
            ike.iter().chain(own.iter()).collect()
        },
        reload: Box::new(move || match load_by(path.as_deref(), &clock) {
            Ok(mut loaded) if serves => {
                log::change(loaded.file.log);
                notices(&first, &loaded).iter().for_each(|notice| tracing::warn!("{notice}"));
                own_addresses(&mut loaded);
                *credentials.lock().unwrap_or_else(PoisonError::into_inner) = loaded.credentials.clone();
                tracing::info!("the configuration was read again");
                Some(Command::Configure(Box::new(loaded.config)))
            }
            Ok(_) => None,
            Err(error) => {
                tracing::error!("the configuration is not taken up: {error}");
                None
            }
        }),
        sources,
        farewell: Some(Command::Leave),
    })?;
    let outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
    match outcome {
        Some(Outcome { established: false, reason: Some(reason) }) if !serves => {
            Err(IkeError::NotConnected(format!("no connection: {}", meaning(reason))))
        }
        _ => Ok(()),
    }
}

/// Leaves one connection to be begun, and no other.
fn only(loaded: &mut Loaded, name: &str) -> Result<(), IkeError> {
    let names: Vec<String> = loaded.config.peers.iter().map(|peer| peer.connection.name.clone()).collect();
    loaded.config.peers.retain(|peer| peer.connection.name == name && peer.remote.is_some());
    let Some(peer) = loaded.config.peers.first_mut() else {
        let near = hint(name, names.iter().map(String::as_str));
        return Err(IkeError::NoConnection { name: name.to_owned(), near });
    };
    Arc::make_mut(peer).start = true;
    Ok(())
}

/// Finds out from which address each connection leaves: what both sides take for a NAT hangs on it.
fn own_addresses(loaded: &mut Loaded) {
    for peer in &mut loaded.config.peers {
        let Some(remote) = peer.remote.filter(|_| peer.local.ip().is_unspecified()) else { continue };
        let any: IpAddr =
            if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let route = UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| {
            socket.connect(remote)?;
            socket.local_addr()
        });
        match route {
            Ok(local) => Arc::make_mut(peer).local.set_ip(local.ip()),
            Err(error) => tracing::warn!(%error, %remote, "there is no way to this address now"),
        }
    }
}

/// The sockets of a file's `[listen]`, and what AAA servers are reached by.
fn sockets(loaded: &Loaded) -> Result<Sockets, IkeError> {
    let file = &loaded.file;
    if file.listen.addresses.is_empty() {
        return Err(IkeError::Nowhere);
    }
    let options = SocketOptions { shared: false, ..SocketOptions::default() };
    let bind = |id: SocketId, address: SocketAddr, what: &'static str| {
        let socket =
            bind_udp(address, &options).map_err(|error| ServeError::Listen { address, what, error })?;
        tracing::info!(%address, what, "listening");
        Ok::<_, ServeError>((id, socket))
    };
    let udp = config::listening(file).into_iter().map(|(id, address)| {
        let what = if id == DYNAMIC_SOCKET { "dynamic authorisation" } else { "IKE" };
        bind(id, address, what)
    });
    let udp = udp.collect::<Result<Vec<_>, _>>()?;
    let tls: BTreeMap<SocketAddr, TlsClient> =
        loaded.outgoing.iter().map(|(address, config)| (*address, TlsClient::new(config.clone()))).collect();
    let outgoing: Outgoing =
        Arc::new(move |address| tls.get(&address).map_or(Carriage::Plain, |tls| Carriage::Tls(tls.clone())));
    Ok(Sockets { udp, outgoing: Some(outgoing), settings: Settings::default(), ..Sockets::default() })
}

/// Does jobs by the newest keys.
fn helper(credentials: Arc<Mutex<Arc<Credentials>>>) -> impl Fn(Job<IkeJob>) -> Command + Send + Sync {
    move |job| {
        let newest = credentials.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Command::Done(newest.answer(&job))
    }
}

/// What to tell of a configuration that was read again: its warnings, and what takes effect only at the next start; this
/// start's was `first`.
fn notices(first: &File, again: &Loaded) -> Vec<String> {
    let mut notices: Vec<_> = again.warnings.iter().map(ToString::to_string).collect();
    let (a, b) = (first, &again.file);
    let text = |value: &dyn std::fmt::Debug| format!("{value:?}");
    let later = [
        ("listen", text(&a.listen) != text(&b.listen)),
        ("pool", text(&a.pool) != text(&b.pool)),
        ("aaa", text(&a.aaa) != text(&b.aaa)),
        ("limits", text(&a.limits) != text(&b.limits)),
        ("key_log", a.key_log != b.key_log),
    ];
    let waits = later.into_iter().filter(|(_, changed)| *changed);
    notices.extend(
        waits.map(|(key, _)| {
            format!("{key} has changed: that takes effect when the gateway is started again")
        }),
    );
    notices
}

/// What became of the connection that the program was started for.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    established: bool,
    reason: Option<EndReason>,
}

/// The log, the key log, the answers that somebody waits for, and what carries packets.
struct Say {
    asked: control::Asked,
    keys: Option<key_log::KeyLog>,
    plane: plane::Plane,
    outcome: Arc<Mutex<Option<Outcome>>>,
}

impl Say {
    fn note(&self, established: bool, reason: Option<EndReason>) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let before = outcome.is_some_and(|outcome| outcome.established);
        *outcome = Some(Outcome { established: established || before, reason });
    }

    fn say(&mut self, event: Event) {
        match event {
            Event::Ike(event) => self.ike(&event),
            Event::Begun { token, result } => self.asked.answer(token, control::begun(result)),
            Event::Status { token, status } => {
                self.asked.answer(token, Answer::Status(control::status(&status)))
            }
            Event::Told { token, sas } => self.asked.answer(token, Answer::Told { sas }),
            Event::LoginFailed { remote, connection, identity, why } => {
                tracing::warn!(%remote, connection, %identity, cause = refusal(why), "not let in");
            }
            Event::Dynamic { sa, end: true } => tracing::info!(sa = sa.0, "the AAA server ends this session"),
            Event::Dynamic { sa, .. } => tracing::info!(sa = sa.0, "the AAA server changes this session"),
            Event::Unaccounted { session } => {
                tracing::warn!(session, "no AAA server keeps the accounting record of this session");
            }
            Event::Server { server, up: true } => tracing::info!(server, "the AAA server answers"),
            Event::Server { server, .. } => tracing::warn!(server, "the AAA server does not answer"),
        }
    }

    fn ike(&mut self, event: &Ike) {
        self.plane.carry_out(event);
        match event {
            Ike::Established { sa, connection, remote, spis, path } => {
                self.note(true, None);
                tracing::info!(sa = sa.0, connection, peer = %remote, from = %path.remote, spis = %spi_pair(*spis), "established");
            }
            Ike::Ended { sa, reason } => {
                self.note(false, Some(*reason));
                match reason {
                    EndReason::Deleted
                    | EndReason::DeletedByPeer
                    | EndReason::Rekeyed
                    | EndReason::Replaced => {
                        tracing::info!(sa = sa.0, reason = meaning(*reason), "ended");
                    }
                    // Anybody can begin what comes to nothing; how many there were is told each minute.
                    EndReason::HalfOpen => tracing::debug!(sa = sa.0, reason = meaning(*reason), "ended"),
                    _ => tracing::warn!(sa = sa.0, reason = meaning(*reason), "ended"),
                }
            }
            Ike::Rekeyed { old, new, spis } => {
                tracing::info!(sa = new.0, replaces = old.0, spis = %spi_pair(*spis), "replaced");
            }
            Ike::Configured { sa, attributes } => {
                let addresses: Vec<String> = attributes
                    .iter()
                    .filter_map(|one| one.internal_address())
                    .map(|a| a.to_string())
                    .collect();
                tracing::info!(sa = sa.0, addresses = addresses.join(" "), "given");
            }
            Ike::Moved { sa, path, encapsulated } => {
                tracing::info!(sa = sa.0, from = %path.local, to = %path.remote, encapsulated, "moved");
            }
            Ike::ChildRefused { sa, name, why } => {
                tracing::warn!(sa = sa.0, name, %why, "the other side makes no CHILD_SA")
            }
            Ike::MoveRefused { sa } => {
                tracing::warn!(sa = sa.0, "the other side does not take the new addresses")
            }
            Ike::Keys { spis, algorithms, keys } => {
                if let Some(log) = &mut self.keys
                    && let Err(error) = log.note(*spis, algorithms, keys)
                {
                    tracing::error!(%error, "keys are not written");
                    self.keys = None;
                }
            }
            Ike::Initiated { .. }
            | Ike::Install { .. }
            | Ike::Remove { .. }
            | Ike::Alive { .. }
            | Ike::Eap { .. }
            | Ike::AddressWanted { .. } => {}
        }
    }
}

/// SPIs of initiator and responder, as captures show them.
fn spi_pair((initiator, responder): (usher_ike::Spi, usher_ike::Spi)) -> String {
    format!("{initiator}_{responder}")
}

const fn refusal(why: LoginFailure) -> &'static str {
    match why {
        LoginFailure::Rejected => "rejected",
        LoginFailure::Unanswered => "no AAA server answers",
        LoginFailure::BadAnswer => "the AAA server's answer makes no sense",
        LoginFailure::NoAaa => "the configuration has no AAA server",
        LoginFailure::NoAddress => "no pool has an address left",
    }
}

/// Why an IKE_SA ended, for people.
#[must_use]
pub const fn meaning(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Deleted => "this side ended it",
        EndReason::DeletedByPeer => "the other side ended it",
        EndReason::Rekeyed => "a new one took its place",
        EndReason::Replaced => "the same two have another, newer one",
        EndReason::Unreachable => "the other side does not answer",
        EndReason::HalfOpen => "the initiator did not go on",
        EndReason::NoProposal => "no proposal is acceptable to both sides",
        EndReason::AuthenticationFailed => "the other side did not prove who it is",
        EndReason::Refused => "the other side does not take what this side says it is, or its proof",
        EndReason::Protocol => "the other side breaks the protocol",
        EndReason::Helper => "no signature could be made, or no AAA server answers",
        EndReason::Unsupported => "the other side insists on what this side does not do",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_config::Alone;

    fn read(text: &str) -> Loaded {
        config::parse("ike.toml", text, &Alone, &WallClock::at(WallTime::UNIX_EPOCH)).unwrap()
    }

    const HOME: &str = "[[connection]]\nname = \"home\"\nlocal_id = \"a.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\n\
                        secret = \"sixteen octets!!\"\n";

    #[test]
    fn a_reload_tells_what_waits_for_a_start() {
        let first = read(HOME).file;
        assert!(notices(&first, &read(&format!("{HOME}mobike = false\n"))).is_empty());
        let told = notices(&first, &read(&format!("[listen]\nport = 501\n[limits]\nsas = 5\n{HOME}")));
        let keys: Vec<_> = told.iter().map(|notice| notice.split(' ').next().unwrap()).collect();
        assert_eq!(keys, ["listen", "limits"]);
    }

    #[test]
    fn one_connection_is_left_to_be_begun() {
        let mut loaded =
            read(&format!("{HOME}remote_address = \"127.0.0.1\"\n{}", HOME.replace("home", "other")));
        let error = only(&mut loaded.clone(), "hom").unwrap_err().to_string();
        assert!(error.contains("did you mean \"home\"?"), "{error}");
        assert!(
            matches!(only(&mut loaded.clone(), "other"), Err(IkeError::NoConnection { .. })),
            "nobody to begin with"
        );
        only(&mut loaded, "home").unwrap();
        assert_eq!((loaded.config.peers.len(), loaded.config.peers[0].start), (1, true));
        own_addresses(&mut loaded);
        assert_eq!(loaded.config.peers[0].local, "127.0.0.1:500".parse().unwrap());
    }
}
