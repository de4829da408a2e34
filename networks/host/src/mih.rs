//! The MIH function on this host's own links, and a question to another host's.

pub mod node;

use crate::line_budget::LineBudget;
use crate::netlink::{self, Change};
use crate::setup::texts;
use crate::{HelperPool, Hosted, ServeError, Signals, Source, Teller, Told, listen, log, serve as host};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration as StdDuration, Instant as StdInstant};
use usher_config::disk::{Disk, LoadError, text};
use usher_core::{Instant, Job, ListenerId, Machine, NoJob, Rng, Seed, TransportProtocol};
use usher_live::{Clock, Driver, Mailbox, Role, Settings, SocketOptions, Sockets, bind_udp, numbered};
use usher_mih::{Message, MihfId};
use usher_mih_service::client::{self, Client};
use usher_mih_service::config::{self, DEFAULT_PATH, File, Loaded};
use usher_mih_service::{
    Asked, Command, Event, Interface, Job as Wanted, LinkChange, LinkReport, MihService, PeerChange,
};

/// What the kernel is asked is answered at once: few are enough.
const HELPERS: usize = 2;
/// How often it is looked at whether a watched value is to be read, at most.
const TICK: StdDuration = StdDuration::from_millis(10);
/// How long the links are waited for after the kernel could not tell of them.
const AGAIN: StdDuration = StdDuration::from_secs(1);

/// Why the function does not serve.
#[derive(Debug, thiserror::Error)]
pub enum MihError {
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// It listens nowhere.
    #[error("there is no address to listen on; name one in [listen], or by --listen")]
    Nowhere,
    /// It has no identifier.
    #[error(
        "the host's name {0:?} is no MIHF identifier; set id in the configuration, as id = \"pos1.example.org\""
    )]
    Nameless(String),
    /// It is to be a mobile node, and its configuration has none.
    #[error("the configuration has no [handover], which a mobile node needs")]
    NoHandover,
    /// An interface of a mobile node is not there.
    #[error("{0} is not there, or has no MAC address; `ip link` shows those that are")]
    NoInterface(String),
    /// The system.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Reads and checks a file; without one, the file at [`DEFAULT_PATH`] where there is one.
///
/// # Errors
/// It cannot be read, or everything that is wrong with it.
pub fn load(path: Option<&Path>) -> Result<Loaded, LoadError> {
    let default = Path::new(DEFAULT_PATH);
    let unreadable = |source| LoadError::Unreadable { path: default.to_owned(), source };
    let (path, text) = match path {
        Some(path) => (path, text(path)?),
        None if default.try_exists().map_err(unreadable)? => (default, text(default)?),
        None => (default, String::new()),
    };
    Ok(config::parse(&path.display().to_string(), &text, &Disk)?)
}

/// This host's name.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn identifier(loaded: &Loaded) -> Result<MihfId, MihError> {
    let name = host_name();
    let own = || config::identifier(&name).map_err(|_| MihError::Nameless(name.clone()));
    loaded.id.clone().map_or_else(own, Ok)
}

/// What to tell of a configuration that was read again: its warnings, and what takes effect only at the next start; this
/// start's was `first`.
fn notices(first: &File, again: &Loaded) -> Vec<String> {
    let (a, b) = (first, &again.file);
    let later = [
        ("id", a.id != b.id),
        ("listen", a.listen != b.listen),
        ("limits.transactions", a.limits.transactions != b.limits.transactions),
        ("limits.connections", a.limits.connections.get() < b.limits.connections.get()),
    ];
    crate::setup::notices(&again.warnings, "function", &later)
}

/// The watched values, as the newest configuration has them.
type Watches = Arc<Mutex<Vec<Interface>>>;

/// Everything that serving needs before sockets: the configuration, and what the function is called.
fn prepare(path: Option<&Path>, listen_on: &[SocketAddr]) -> Result<(Loaded, MihfId), MihError> {
    let mut loaded = load(path)?;
    if !listen_on.is_empty() {
        loaded.file.listen.udp = listen_on.to_vec();
        loaded.file.listen.tcp = listen_on.to_vec();
    }
    let id = identifier(&loaded)?;
    if loaded.file.listen.udp.is_empty() && loaded.file.listen.tcp.is_empty() {
        return Err(MihError::Nowhere);
    }
    Ok((loaded, id))
}

/// Loads what [`serve`] loads, or of a mobile node's file what [`node::node`] loads; its warnings.
///
/// # Errors
/// Why it would not serve.
pub fn check(path: &Path) -> Result<Vec<String>, MihError> {
    let loaded = match prepare(Some(path), &[]) {
        // A mobile node listens at its own addresses.
        Err(MihError::Nowhere) => load(Some(path)).map_err(MihError::from).and_then(|loaded| {
            if loaded.file.handover.is_some() { Ok(loaded) } else { Err(MihError::Nowhere) }
        })?,
        prepared => prepared?.0,
    };
    Ok(texts(&loaded.warnings))
}

/// Serves until it is told to end. `listen_on`, where it names addresses, stands against the configuration's, for UDP and
/// TCP.
///
/// # Errors
/// It could not begin.
pub fn serve(path: Option<PathBuf>, listen_on: &[SocketAddr]) -> Result<(), MihError> {
    let (loaded, id) = prepare(path.as_deref(), listen_on)?;
    let _log = log::begin(loaded.file.log);
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    if loaded.file.point_of_service.is_some() {
        return node::point(&loaded, id);
    }
    let sockets = sockets(&loaded.file, ListenerId::own)?;
    tracing::info!(%id, "this function");
    let config = loaded.config(id.clone());
    let watches: Watches = Arc::new(Mutex::new(config.interfaces.clone()));
    let (first, listen, watched) = (loaded.file.clone(), loaded.file.listen.clone(), watches.clone());
    Ok(host(Hosted {
        name: "usher-mih",
        machine: MihService::new(config, rng()),
        sockets,
        frames: None,
        clock: Clock::start(),
        helpers: HelperPool::new(HELPERS, do_job),
        said: {
            let mut log = EventLog::default();
            Box::new(move |event| log.write(StdInstant::now(), event))
        },
        over: Box::new(|_| false),
        counted: |service| {
            let (own, function) = service.counters();
            function.iter().chain(own.iter()).collect()
        },
        work: None,
        reload: Box::new(move || match load(path.as_deref()) {
            Ok(mut loaded) => {
                log::change(loaded.file.log);
                notices(&first, &loaded).iter().for_each(|notice| tracing::warn!("{notice}"));
                loaded.file.listen = listen.clone();
                let config = loaded.config(id.clone());
                *watched.lock().unwrap_or_else(PoisonError::into_inner) = config.interfaces.clone();
                tracing::info!("the configuration was read again");
                Some(Command::Configure(Box::new(config)))
            }
            Err(error) => {
                tracing::error!("the configuration is not taken up: {error}");
                None
            }
        }),
        sources: links(&watches),
        farewell: Box::new(|| Some(Command::Leave)),
        lingers: false,
    })?)
}

/// Chance of the system's.
pub(crate) fn rng() -> Rng {
    let mut octets = [0; 8];
    // A request of so few octets is never cut short; without any chance identifiers begin at one place, and all works.
    let _ = rustix::rand::getrandom(&mut octets, rustix::rand::GetRandomFlags::empty());
    Seed::new(u64::from_ne_bytes(octets)).stream("mih", 0)
}

/// The sockets of a file's `[listen]`.
fn sockets(file: &File, listener: fn(u32) -> ListenerId) -> Result<Sockets, MihError> {
    let listens = &file.listen;
    let what = "MIH";
    let options = SocketOptions { shared: false, ..SocketOptions::default() };
    let udp = |address: &SocketAddr| {
        let address = *address;
        bind_udp(address, &options).map_err(|error| ServeError::Listen { address, what, error })
    };
    let udp = listens.udp.iter().map(udp).collect::<Result<Vec<_>, _>>()?;
    let tcp = (0..).zip(&listens.tcp).map(|(n, address)| listen(what, *address, listener(n)));
    let listeners = tcp.collect::<Result<Vec<_>, _>>()?;
    for (transport, address) in
        listens.udp.iter().map(|a| ("udp", a)).chain(listens.tcp.iter().map(|a| ("tcp", a)))
    {
        tracing::info!(transport, %address, "listening");
    }
    // The machine's own limits decide, which know who is heard.
    let connections = usize::try_from(file.limits.connections.get()).unwrap_or(usize::MAX).saturating_mul(2);
    let settings = Settings { connections, connections_per_address: connections, ..Settings::default() };
    Ok(Sockets { udp: numbered(udp), listeners, settings, ..Sockets::default() })
}

/// What tells the function of this host's links: the kernel, and whatever writes the values that are watched.
fn links(watches: &Watches) -> Vec<Source<Command>> {
    let watches = watches.clone();
    let kernel = |tell: Teller<Command>| {
        let mut open = true;
        while open {
            let followed = netlink::follow(|change| {
                open = tell(match change {
                    Change::Link(report) => Command::Link(report),
                    Change::Address => Command::Moved,
                });
                open
            });
            if let Err(error) = followed {
                tracing::error!(%error, "the kernel does not tell of its links");
                std::thread::sleep(AGAIN);
            }
        }
    };
    let values = move |tell: Teller<Command>| {
        watch(&watches, |interface, value| tell(Command::Watched { interface, value }));
    };
    vec![Box::new(kernel), Box::new(values)]
}

/// Reads the watched values, each at its interval, as long as somebody wants to hear them.
pub(crate) fn watch(watches: &Mutex<Vec<Interface>>, mut said: impl FnMut(String, f64) -> bool) {
    let mut read: Vec<(String, StdInstant)> = Vec::new();
    loop {
        let interfaces = watches.lock().unwrap_or_else(PoisonError::into_inner).clone();
        read.retain(|(name, _)| interfaces.iter().any(|interface| interface.name == *name));
        let now = StdInstant::now();
        let mut next = StdDuration::from_secs(1);
        for interface in interfaces {
            let Some(watch) = interface.watch else { continue };
            let interval = StdDuration::from_nanos(watch.interval.as_nanos());
            let last = read.iter().position(|(name, _)| *name == interface.name);
            let passed = last.map(|at| now.saturating_duration_since(read[at].1));
            if let Some(left) =
                passed.and_then(|passed| interval.checked_sub(passed)).filter(|l| !l.is_zero())
            {
                next = next.min(left);
                continue;
            }
            match last {
                Some(at) => read[at].1 = now,
                None => read.push((interface.name.clone(), now)),
            }
            next = next.min(interval);
            let value = match &watch.file {
                Some(file) => std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()),
                None => netlink::signal(&interface.name).map(f64::from),
            };
            if let Some(value) = value
                && !said(interface.name, value)
            {
                return;
            }
        }
        std::thread::sleep(next.max(TICK));
    }
}

/// Does what the function asks of the kernel.
fn do_job(Job { token, what, .. }: Job<Wanted>) -> Command {
    match what {
        Wanted::Measure { interfaces } => {
            let all = netlink::links().unwrap_or_else(|error| {
                tracing::error!(%error, "the kernel does not say how its links are");
                Vec::new()
            });
            let meant = |link: &LinkReport| interfaces.contains(&link.name);
            let reports = all.into_iter().map(|(_, link)| link).filter(meant).collect();
            Command::Measured { token, reports }
        }
        Wanted::Switch { interface, on } => {
            let done = netlink::switch(&interface, on);
            if let Err(error) = &done {
                tracing::error!(%error, interface, on, "an interface is not switched; that needs CAP_NET_ADMIN");
            } else {
                tracing::info!(interface, on, "switched, as was asked");
            }
            Command::Acted { token, done: done.is_ok() }
        }
    }
}

fn from(asked: &Asked) -> String {
    asked.address.map_or_else(String::new, |address| address.to_string())
}

/// What the log has of a message, at most.
const MESSAGE_SHOWN: usize = 500;

/// A message as the log has it: one can be 64 KiB long.
fn shown(message: &Message) -> String {
    let mut text = message.to_string();
    if text.len() > MESSAGE_SHOWN {
        text.truncate(text.floor_char_boundary(MESSAGE_SHOWN));
        text.push_str("...");
    }
    text
}

/// The log. Others cause lines without end: there are some of functions of the configuration, whose addresses can be forged, and
/// some of all others.
#[derive(Default)]
struct EventLog {
    peers: LineBudget,
    strangers: LineBudget,
}

impl EventLog {
    fn allows(&mut self, now: StdInstant, asked: &Asked) -> bool {
        match asked.is_configured {
            true => self.peers.allows(now, "functions of [[peer]]"),
            false => self.strangers.allows(now, "functions of no [[peer]]"),
        }
    }

    fn write(&mut self, now: StdInstant, event: Event) {
        let about = match &event {
            Event::Registered(asked) | Event::Deregistered(asked) => Some(asked),
            Event::Answered { asked, .. } | Event::AddressReplaced { asked, .. } => Some(asked),
            Event::Indication { from, .. } => Some(from).filter(|from| from.is_configured),
            _ => None,
        };
        if about.is_some_and(|asked| !self.allows(now, asked)) {
            return;
        }
        match event {
            Event::Registered(asked) => {
                tracing::info!(peer = %asked.peer, from = from(&asked), "registered");
            }
            Event::Deregistered(asked) => tracing::info!(peer = %asked.peer, "registered no more"),
            Event::Answered { asked, request, status } => {
                tracing::info!(peer = %asked.peer, from = from(&asked), %request, %status, "asked");
            }
            Event::Link { interface, change, told } => match change {
                LinkChange::Up => tracing::info!(interface, told, "link up"),
                LinkChange::Down(reason) => tracing::info!(interface, told, %reason, "link down"),
                LinkChange::GoingDown(reason, within) => {
                    tracing::info!(interface, told, %reason, within_ms = within.as_millis(), "link going down");
                }
            },
            Event::Indication { from, message } if from.is_configured => {
                tracing::info!(peer = %from.peer, message = shown(&message), "told");
            }
            // Nobody asked for it; how many there were is told each minute.
            Event::Indication { from: asked, message } => {
                tracing::debug!(peer = %asked.peer, from = from(&asked), message = shown(&message), "told");
            }
            Event::Peer { peer, change } => match change {
                PeerChange::Registered(seconds) => {
                    tracing::info!(%peer, seconds, "this function is registered");
                }
                PeerChange::Subscribed(link, events) => {
                    tracing::debug!(%peer, %link, events = events.0, "subscribed");
                }
                PeerChange::Refused(request, status) => {
                    let status = status.map_or_else(String::new, |status| status.to_string());
                    tracing::warn!(%peer, %request, status, "refused");
                }
                PeerChange::Lost(why) => tracing::warn!(%peer, %why, "does not answer"),
            },
            Event::ClaimRefused(asked) => {
                tracing::warn!(peer = %asked.peer, from = from(&asked), "refused: this peer is at another address");
            }
            Event::AddressReplaced { asked, before } => {
                tracing::info!(peer = %asked.peer, from = from(&asked), %before, "has another address");
            }
            // Anybody can cause these without end; how many there were is told each minute.
            Event::Refused(from) => tracing::debug!(%from, "not heard: of no network that is allowed"),
        }
    }
}

/// A client on a driver.
struct Asking<F> {
    client: Client,
    said: F,
    finished: bool,
}

impl<F: FnMut(client::Event)> Role for Asking<F> {
    type Machine = Client;
    type Message = client::Command;

    fn machine(&mut self) -> &mut Client {
        &mut self.client
    }
    fn event(&mut self, _: Instant, event: client::Event) {
        self.finished |= event == client::Event::Finished;
        (self.said)(event);
    }
    fn job(&mut self, _: Instant, job: Job<NoJob>) {
        match job.what {}
    }
    fn message(&mut self, now: Instant, command: client::Command) {
        // A client takes its end whatever it does.
        let _ = self.client.command(now, command);
    }
    fn stopped(&self) -> bool {
        self.finished
    }
}

/// Asks another function, from this address or the system's choice. `said` hears what it answers; a signal ends a client that
/// follows.
///
/// # Errors
/// Sockets cannot be had.
pub fn ask(
    mut config: client::Config,
    local: Option<IpAddr>,
    said: impl FnMut(client::Event),
) -> io::Result<()> {
    let any: IpAddr = match config.route.remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut sockets = Sockets::default();
    if config.route.transport == TransportProtocol::Udp {
        let own = local.unwrap_or(any);
        let socket =
            bind_udp(SocketAddr::new(own, 0), &SocketOptions { shared: false, ..SocketOptions::default() })?;
        sockets.udp = numbered([socket]);
        config.mih.locals = vec![own];
        config.route.local = Some(own);
    } else {
        config.route.local = local;
    }
    let timing = config.mih.timing;
    let patience = timing.response.unwrap_or(timing.retransmission);
    sockets.settings.connect_timeout = StdDuration::from_nanos(patience.as_nanos());
    let clock = Clock::start();
    let mut client = Client::new(config, rng());
    let begun = client.command(clock.now(), client::Command::Start);
    begun.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let (driver, mailbox) = Driver::new(Asking { client, said, finished: false }, sockets, clock);
        let mut run = std::pin::pin!(driver.run());
        loop {
            tokio::select! {
                ended = &mut run => return ended.map(drop),
                told = signals.next() => leave(told, &mailbox),
            }
        }
    })
}

fn leave(told: Told, mailbox: &Mailbox<client::Command>) {
    if told == Told::End {
        mailbox.send(client::Command::Leave);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_config::Alone;

    #[test]
    fn a_reload_tells_what_waits_for_a_start() {
        let read = |text| config::parse("mih.toml", text, &Alone).unwrap();
        let first = read("id = \"a.example\"\n").file;
        assert!(notices(&first, &read("id = \"a.example\"\n[timers]\nretry = \"1 s\"\n")).is_empty());
        let told = notices(&first, &read("[listen]\nudp = []\n[limits]\ntransactions = 9\n"));
        let keys: Vec<_> = told.iter().map(|notice| notice.split(' ').next().unwrap()).collect();
        assert_eq!(keys, ["id", "listen", "limits.transactions"]);
    }

    /// What a log has of these events, which all come at once.
    fn written(log: &mut EventLog, events: impl IntoIterator<Item = Event>) -> String {
        #[derive(Clone, Default)]
        struct Lines(Arc<Mutex<Vec<u8>>>);
        impl io::Write for Lines {
            fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(octets);
                Ok(octets.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let now = StdInstant::now();
        tracing::subscriber::with_default(subscriber, || {
            events.into_iter().for_each(|event| log.write(now, event));
        });
        let octets = lines.0.lock().unwrap();
        String::from_utf8(octets.clone()).unwrap()
    }

    /// What others send makes some lines, whoever they say that they are; those of a peer stay among strangers' noise.
    #[test]
    fn others_do_not_fill_the_log() {
        let asked = |name: &str, is_configured| {
            let address = Some("192.0.2.66:4551".parse().unwrap());
            Asked { peer: MihfId::new(name).unwrap(), address, is_configured }
        };
        let link = usher_mih::LinkId::mac(usher_mih::LinkType::Ethernet, [2, 0, 0, 0, 0, 1]);
        let long = usher_mih::Tlv::LinkIdentifierList(vec![link; 3000]);
        let message = Message::new(usher_mih::MessageId::LINK_UP_INDICATION, [long]);
        let told = |from: Asked| Event::Indication { from, message: message.clone() };
        let mut log = EventLog::default();
        let strangers = (0..20_000).map(|n| told(asked(&format!("x{n}"), false)));
        assert_eq!(written(&mut log, strangers), "", "nobody asked them");
        let (request, status) =
            (usher_mih::MessageId::LINK_ACTIONS_REQUEST, usher_mih::Status::AuthorizationFailure);
        let strangers = (0..20_000).flat_map(|n| {
            let asked = asked(&format!("x{n}"), false);
            let answered = Event::Answered { asked: asked.clone(), request, status };
            [Event::Registered(asked.clone()), answered, Event::Deregistered(asked)]
        });
        assert_eq!(written(&mut log, strangers).lines().count(), 60);
        let peer = written(&mut log, (0..1000).map(|_| told(asked("mn", true))));
        assert_eq!(peer.lines().count(), 60);
        assert!(peer.contains("told peer=mn") && peer.lines().all(|line| line.len() < 700), "{peer}");
    }

    #[test]
    fn watched_values_are_read_at_their_interval_until_nobody_listens() {
        let file = std::env::temp_dir().join(format!("usher-watch-{}", std::process::id()));
        std::fs::write(&file, "-71.5\n").unwrap();
        let text = format!(
            "[[interface]]\nname = \"w0\"\nwatch = {{ file = {:?}, below = -75, interval = \"10 ms\" }}\n\
             [[interface]]\nname = \"w1\"\nwatch = {{ file = \"/nowhere\", below = 0 }}\n",
            file.display().to_string()
        );
        let interfaces = config::parse("mih.toml", &text, &Alone).unwrap().interfaces;
        let mut heard = Vec::new();
        watch(&Mutex::new(interfaces), |name, value| {
            heard.push((name, value));
            heard.len() < 3
        });
        std::fs::remove_file(&file).unwrap();
        assert_eq!(heard, vec![("w0".to_owned(), -71.5); 3]);
    }
}
