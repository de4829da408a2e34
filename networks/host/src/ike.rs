//! The IKEv2 gateway, and the client, on this host's own sockets.

mod control;
mod key_log;
mod learned;
mod plane;
mod revocation;
mod routing;
mod say;
mod steer;
mod way;

pub use control::{Answer, ChildSa, IkeSa, Pool, Request, Status, control_path, request};
pub use plane::PlaneError;
pub use say::meaning;

use crate::jobs::{JobQueue, QueueBounds};
use crate::setup::{self, outgoing, secure_rng};
use crate::within::Running;
use crate::{
    CheckAaa, HelperPool, Hosted, ServeError, StartAaa, Telling, WorkDone, keep_memory_private, log,
    serve_shards as host,
};
use plane::Plane;
use revocation::Revocation;
use say::{Outcome, Say};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use usher_config::disk::{Disk, LoadError, text};
use usher_config::hint;
use usher_core::{Job, SecureRng, SocketId, WallTime};
use usher_crypto::tls::WallClock;
use usher_gateway::config::{self, Carry, DEFAULT_PATH, File, Loaded};
use usher_gateway::{
    Command, DYNAMIC_SOCKET, Event, Gateway, GatewayJob, Leases, NAT_SOCKET, NAT_SOCKET_V6, SOCKET, SOCKET_V6,
};
use usher_ike::machine::Shard;
use usher_live::{Clock, Outgoing, Settings, SocketOptions, Sockets, bind_udp};

/// Signatures, chains of certificates and steps of EAP-TLS at a time.
const HELPERS: usize = 4;
/// How many of these may wait. One costs a millisecond or so, and an initiator asks again after a second and longer.
const WAITING: usize = 4096;

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
    /// Nothing carries packets.
    #[error(transparent)]
    Plane(#[from] PlaneError),
    /// Something stopped to carry packets.
    #[error("the device of CHILD_SAs has failed; the log says why")]
    PlaneFailed,
    /// A file of revocation lists.
    #[error("[revocation]: {0}")]
    Revocation(String),
    /// The AAA server within this program.
    #[error("[aaa] server: {0}")]
    Within(String),
    /// It has ended by itself.
    #[error("the AAA server within this program has failed; the log says why")]
    WithinFailed,
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

/// Everything that a gateway needs before its sockets: the configuration, of which a machine can be made, and the files beside it.
fn prepare(path: Option<&Path>, clock: &WallClock) -> Result<Loaded, IkeError> {
    let loaded = load_by(path, clock)?;
    if loaded.file.listen.addresses.is_empty() {
        return Err(IkeError::Nowhere);
    }
    let mut config = loaded.config.clone();
    crate::within::stand_in(loaded.file.aaa.as_ref(), config.aaa.as_mut());
    Gateway::new(config, secure_rng()?)?;
    Revocation::new(&loaded, &Telling::default()).map_err(IkeError::Revocation)?;
    key_log::check(&loaded.file).map_err(system("key log"))?;
    Ok(loaded)
}

/// The folder from which the paths of a file go.
fn base(path: Option<&Path>) -> &Path {
    path.unwrap_or(Path::new(DEFAULT_PATH)).parent().unwrap_or(Path::new(""))
}

/// Loads what a gateway loads, and what the AAA server loads that it has within its program; their warnings.
///
/// # Errors
/// Why it would not serve.
pub fn check(path: &Path, check_aaa: CheckAaa) -> Result<Vec<String>, IkeError> {
    let loaded = prepare(Some(path), &WallClock::at(setup::wall()))?;
    let within = crate::within::check(loaded.file.aaa.as_ref(), base(Some(path)), check_aaa);
    Ok([setup::texts(&loaded.warnings), within.map_err(IkeError::Within)?].concat())
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

/// Runs until it is told to end, or, of one connection, until that has ended; `start` starts an AAA server within this program, where
/// the file names one.
///
/// # Errors
/// It could not begin, or the connection did not come to be.
pub fn run(path: Option<PathBuf>, mode: &Mode, start: StartAaa) -> Result<(), IkeError> {
    keep_memory_private().map_err(system("switching core dumps off"))?;
    let clock = setup::wall_clock()?;
    let mut loaded = prepare(path.as_deref(), &clock)?;
    let _log = log::begin(loaded.file.log);
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let serves = *mode == Mode::Serve;
    if let Mode::Connect { connection, .. } = mode {
        only(&mut loaded, connection)?;
    }
    if serves {
        // Before anything of another one is touched: its ports are shared, and what the kernel carries for it is taken away at a start.
        crate::control::free(&loaded.file.listen.control).map_err(system("control socket"))?;
    }
    let carries = loaded.file.data.carry != Carry::None;
    let mark = carries.then(|| loaded.file.data.mark.get());
    way::own_addresses(&mut loaded, mark);
    // A client is one IKE_SA.
    let shards = if serves { loaded.file.listen.shards } else { 1 };
    let servers = outgoing(&loaded.outgoing, loaded.file.aaa.as_ref());
    let all = (0..shards).map(|number| sockets(&loaded, &servers, mark, (number, shards)));
    let mut all = all.collect::<Result<Vec<_>, _>>()?;
    let telling = Telling::default();
    let base = base(path.as_deref());
    let (table, aaa, gone) = (loaded.file.aaa.as_ref(), loaded.config.aaa.as_mut(), telling.clone());
    let within = Running::start(table.filter(|_| serves), aaa, base, start, move || {
        gone.tell(Command::Leave);
    });
    let within = within.map_err(IkeError::Within)?;
    let mut rng = secure_rng()?;
    let plane = Plane::start(&loaded, SecureRng::from_seed(rng.array()), &telling)?;
    let _ending = Ending(plane.clone());
    loaded.config.metered = plane.carries();
    if shards > 1 {
        apart(&all[0], shards, plane.carries())?;
    }
    let leases = (shards > 1).then(|| {
        let rng = SecureRng::from_seed(rng.array());
        Arc::new(Mutex::new(Leases::new(&loaded.config.pools, rng)))
    });
    let mut gateways = Vec::new();
    for (number, sockets) in (0..).zip(all.drain(..)) {
        let config = loaded.config.of_shard(Shard { number, of: shards });
        gateways.push((Gateway::new(config, SecureRng::from_seed(rng.array()))?, sockets));
    }
    let (gateway, sockets) = gateways.remove(0);
    let revocation = Revocation::new(&loaded, &telling).map_err(IkeError::Revocation)?;
    revocation.follow().map_err(system("looking after revocation lists"))?;
    // Another configuration may ask about certificates, and this one's helpers are those that there are.
    let threads = HELPERS + revocation::ASKED;
    let jobs = Arc::new(JobQueue::new(QueueBounds { all: WAITING, ..QueueBounds::default() }));
    let work = WorkDone::default();
    let asked = control::Asked::new(&telling, &plane, (shards, leases.clone()), (work.clone(), jobs.clone()));
    if serves {
        control::begin(&loaded.file.listen.control, &asked).map_err(system("control socket"))?;
        tracing::info!(path = %loaded.file.listen.control.display(), "control socket");
        if let Some(address) = loaded.file.listen.metrics {
            crate::metrics::begin(address, Arc::new(asked.clone())).map_err(|error| ServeError::Listen {
                address,
                what: "metrics",
                error,
            })?;
            tracing::info!(%address, "metrics");
        }
    }
    way::follow(&loaded, mark, &telling).map_err(system("following this host's addresses"))?;
    let keys = key_log::KeyLogs::open(&loaded.file).map_err(system("key log"))?;
    let outcome = Arc::new(Mutex::new(None));
    let mut teller = Say {
        asked,
        keys,
        plane: plane.clone(),
        telling: telling.clone(),
        leases: leases.clone(),
        outcome: outcome.clone(),
    };
    let keeps = !matches!(mode, Mode::Connect { keep: false, .. });
    let first = loaded.file.clone();
    let (reloaded, leaving, beside) = (plane.clone(), plane.clone(), within.clone());
    let hosted = Hosted {
        name: "usher-ike",
        machine: gateway,
        sockets,
        frames: None,
        clock: Clock::start(),
        helpers: HelperPool::new(threads, helper(revocation.clone(), leases, work.clone()))
            .bounded(jobs, |job: Job<GatewayJob>| Some(job.what.refused(job.token))),
        said: Box::new(move |event| teller.say(event)),
        over: Box::new(move |event| match event {
            Event::Left => true,
            Event::Over { .. } => !keeps,
            _ => false,
        }),
        counted: |gateway| {
            let (own, ike) = gateway.counters();
            ike.iter().chain(own.iter()).collect()
        },
        work: Some(work),
        reload: Box::new(move || match load_by(path.as_deref(), &clock) {
            Ok(mut loaded) if serves => {
                log::change(loaded.file.log);
                notices(&first, &loaded).iter().for_each(|notice| tracing::warn!("{notice}"));
                way::own_addresses(&mut loaded, mark);
                reloaded.configure(&loaded);
                revocation.configure(&loaded);
                if let Some(within) = &beside {
                    within.reload();
                }
                tracing::info!("the configuration was read again");
                Some(Command::Configure(Box::new(loaded.config)))
            }
            Ok(_) => None,
            Err(error) => {
                tracing::error!("the configuration is not taken up: {error}");
                None
            }
        }),
        sources: vec![telling.source()],
        farewell: Box::new(move || {
            leaving.report();
            Some(Command::Leave)
        }),
        // The last records of accounting have their answers.
        lingers: true,
    };
    let share = move |command: Command| {
        let told = command.for_shards(shards).into_iter();
        told.map(|(number, command)| (usize::from(number), command)).collect()
    };
    host(hosted, gateways, Arc::new(share))?;
    if plane.failed() {
        return Err(IkeError::PlaneFailed);
    }
    if within.is_some_and(|within| within.failed()) {
        return Err(IkeError::WithinFailed);
    }
    let outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
    match outcome {
        Some(Outcome { established: false, reason: Some(reason) }) if !serves => {
            Err(IkeError::NotConnected(format!("no connection: {}", meaning(reason))))
        }
        _ => Ok(()),
    }
}

/// Takes away what carries packets, however the program ends.
struct Ending(Plane);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
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

/// The sockets of a file's `[listen]`, and what AAA servers are reached by, of one of several shards. With a mark IKE shares its
/// port 4500 with ESP.
fn sockets(
    loaded: &Loaded,
    servers: &Outgoing,
    mark: Option<u32>,
    (number, shards): (u8, u8),
) -> Result<Sockets, IkeError> {
    let file = &loaded.file;
    let alone = SocketOptions { shared: false, ..SocketOptions::default() };
    let bind =
        |id: SocketId, address: SocketAddr, what: &'static str| {
            let shared = shards > 1 || mark.is_some() && (id == NAT_SOCKET || id == NAT_SOCKET_V6);
            let options = if id == DYNAMIC_SOCKET { alone } else { SocketOptions { shared, mark, ..alone } };
            // Another program of the same user could share the port, too: it is to be nobody's.
            let free = if shared && number == 0 { bind_udp(address, &alone).map(drop) } else { Ok(()) };
            let socket = free
                .and_then(|()| bind_udp(address, &options))
                .map_err(|error| ServeError::Listen { address, what, error })?;
            if number == 0 {
                tracing::info!(%address, what, shards, "listening");
            }
            Ok::<_, ServeError>((id, socket))
        };
    let udp = config::listening(file).into_iter().map(|(id, address)| {
        let what = if id == DYNAMIC_SOCKET { "dynamic authorisation" } else { "IKE" };
        bind(id, address, what)
    });
    let udp = udp.collect::<Result<Vec<_>, _>>()?;
    Ok(Sockets { udp, outgoing: Some(servers.clone()), settings: Settings::default(), ..Sockets::default() })
}

/// Has the kernel tell shards' datagrams apart.
fn apart(first: &Sockets, shards: u8, esp: bool) -> Result<(), IkeError> {
    for (id, socket) in &first.udp {
        let port = match *id {
            SOCKET | SOCKET_V6 => steer::Port::Ike,
            NAT_SOCKET | NAT_SOCKET_V6 => steer::Port::Nat { esp },
            _ => continue,
        };
        steer::apart(socket, port, shards)
            .map_err(system("telling the datagrams of [listen] shards apart"))?;
    }
    Ok(())
}

/// Does jobs by the newest keys.
fn helper(
    revocation: Revocation,
    leases: Option<say::Shared>,
    work: WorkDone,
) -> impl Fn(Job<GatewayJob>) -> Command + Send + Sync {
    move |Job { token, what, .. }| match what {
        GatewayJob::Ike(what) => {
            work.add([(what.work(), 1)]);
            Command::Done(revocation.answer(&Job::new(token, what)))
        }
        GatewayJob::Judge(judgement) => Command::Judged(judgement.done()),
        GatewayJob::Lease(wish) => match &leases {
            Some(leases) => wish.answered(&mut leases.lock().unwrap_or_else(PoisonError::into_inner)),
            None => Command::Leased { sa: wish.sa, leases: Vec::new() },
        },
    }
}

/// What to tell of a configuration that was read again: its warnings, and what takes effect only at the next start; this
/// start's was `first`.
fn notices(first: &File, again: &Loaded) -> Vec<String> {
    let (a, b) = (first, &again.file);
    let text = |value: &dyn std::fmt::Debug| format!("{value:?}");
    let later = [
        ("listen", text(&a.listen) != text(&b.listen)),
        ("pool", text(&a.pool) != text(&b.pool)),
        ("aaa", text(&a.aaa) != text(&b.aaa)),
        ("limits", text(&a.limits) != text(&b.limits)),
        ("data", text(&a.data) != text(&b.data)),
        ("key_log", a.key_log != b.key_log),
        ("esp_key_log", a.esp_key_log != b.esp_key_log),
    ];
    setup::notices(&again.warnings, "gateway", &later)
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
        way::own_addresses(&mut loaded, None);
        assert_eq!(loaded.config.peers[0].local, "127.0.0.1:500".parse().unwrap());
    }
}
