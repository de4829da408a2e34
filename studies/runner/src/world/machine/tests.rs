use super::*;
use usher_core::{CommandError, Duration, NoJob, Output, Seed};
use usher_crypto::tls::{
    ClientOptions, HANDSHAKE_TIMEOUT, Roots, ServerOptions, Version, WallClock, fixtures,
};
use usher_sim::{Application, Builder, IpVersion, LinkConfig, Observer, Simulation};

/// Found by reading: a late end of an old connection took the entry of the one that had its id by then.
#[test]
fn the_end_of_an_old_connection_leaves_its_successor_alone() {
    let mut numbers = Numbers::new();
    let id = ConnId::opened(7);
    let old = numbers.number(id);
    numbers.forget(old);
    assert_eq!((numbers.known(id), numbers.id(old)), (None, Some(id)));
    let new = numbers.number(id);
    assert_ne!(old, new);
    numbers.forget(old);
    assert_eq!(numbers.known(id), Some(new));
    numbers.forget(new);
    assert_eq!(numbers.known(id), None);
}

const PORT: u16 = 2083;

/// Connects at its start, and notes what becomes of its connections.
#[derive(Default)]
struct Probe {
    to: Option<SocketAddr>,
    noted: Vec<(Instant, &'static str)>,
}

impl Machine for Probe {
    type Command = ();
    type Event = ();
    type Job = NoJob;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        let Input::Stream { event, .. } = input else { return };
        self.noted.push((
            now,
            match event {
                StreamEvent::Accepted { .. } => "accepted",
                StreamEvent::Connected { .. } => "connected",
                StreamEvent::Closed(CloseReason::TimedOut) => "timed out",
                StreamEvent::Closed(_) => "closed",
                StreamEvent::Data(_) | StreamEvent::Writable | StreamEvent::Finished => "data",
            },
        ));
    }
    fn command(&mut self, _: Instant, (): ()) -> Result<(), CommandError> {
        Ok(())
    }
    fn poll_output(&mut self, _: &mut Vec<u8>) -> Option<Output<(), NoJob>> {
        let remote = self.to.take()?;
        let op = StreamOp::Connect { local: None, remote };
        Some(Output::Transmit(Transmit::Stream { conn: ConnId::opened(0), op }))
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
}

enum App {
    Hosted(Box<(Endpoint, Probe)>),
    /// Its TCP does what TCP does, and it says nothing; it connects at its start where it has somewhere to go.
    Silent(Option<HostId>),
}

impl Application for App {
    type Report = Option<CloseReason>;

    fn handle(&mut self, ctx: &mut Context<'_, Self::Report>, delivery: Delivery) {
        match self {
            Self::Hosted(hosted) => {
                let (endpoint, probe) = &mut **hosted;
                endpoint.feed(ctx, probe, &delivery);
                endpoint.drain(ctx, probe, |_, _, _| ());
            }
            Self::Silent(to) => match delivery {
                Delivery::Start => {
                    if let Some(to) = to {
                        ctx.connect(ConnId::opened(0), *to, PORT);
                    }
                }
                Delivery::Stream { event: StreamDelivery::Closed(reason), .. } => ctx.report(Some(reason)),
                _ => {}
            },
        }
    }
}

#[derive(Default)]
struct Ends(Vec<(Instant, CloseReason)>);

impl Observer<Option<CloseReason>> for Ends {
    fn report(&mut self, now: Instant, _: u32, end: Option<CloseReason>) {
        self.0.extend(end.map(|end| (now, end)));
    }
}

fn server() -> ServerConfig {
    ServerConfig::new(ServerOptions {
        versions: Version::Tls13.into(),
        credentials: fixtures::server(1),
        client_roots: Some(Roots::from_der([fixtures::root()])),
        resumption: None,
        clock: WallClock::at(fixtures::WALL_TIME),
        key_log: None,
    })
    .unwrap()
}

fn client() -> ClientConfig {
    ClientConfig::new(ClientOptions {
        versions: Version::Tls13.into(),
        credentials: Some(fixtures::client(1)),
        roots: Roots::from_der([fixtures::root()]),
        server_name: None,
        resumption: None,
        clock: WallClock::at(fixtures::WALL_TIME),
        key_log: None,
    })
    .unwrap()
}

/// Two hosts, 10 ms apart: the first opens a connection to the second, each silent or with TLS.
fn world(silent: [bool; 2], outage: Option<[Instant; 2]>) -> Simulation<App, Ends> {
    let mut builder = Builder::new(IpVersion::V4, Seed::new(1));
    let hosts = [(); 2].map(|()| builder.host(None).unwrap());
    let mut config = LinkConfig::default();
    (config.up.delay, config.down.delay) = (Duration::from_millis(10), Duration::from_millis(10));
    builder.link(hosts[0], hosts[1], &config);
    let addresses = Arc::new(builder.addresses().clone());
    let at = |host| HostAddress { host, addresses: addresses.clone() };
    let to = at(hosts[0]).address(hosts[1], PORT);
    let opener = match silent[0] {
        true => App::Silent(Some(hosts[1])),
        false => {
            let endpoint = Endpoint::new(at(hosts[0])).connecting([(to, client())].into());
            App::Hosted(Box::new((endpoint, Probe { to: Some(to), ..Probe::default() })))
        }
    };
    let mut endpoint = Endpoint::new(at(hosts[1]));
    endpoint.accept_at(PORT, ListenerId::default(), Some(server()));
    let acceptor = match silent[1] {
        true => App::Silent(None),
        false => App::Hosted(Box::new((endpoint, Probe::default()))),
    };
    builder.app(hosts[0], opener, None);
    let app = builder.app(hosts[1], acceptor, None);
    builder.listen(app, PORT).unwrap();
    if let Some([from, until]) = outage {
        builder.outage(hosts[1], from, until);
    }
    builder.build(Ends::default(), None)
}

fn millis(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// What a hosted application's machine noted, and how many connections its endpoint has.
fn noted(simulation: &Simulation<App, Ends>, app: usize) -> (Vec<(Instant, &'static str)>, [usize; 3]) {
    let Some(App::Hosted(hosted)) = simulation.apps().nth(app) else { panic!("it is silent") };
    let (endpoint, probe) = &**hosted;
    let held = [endpoint.accepted.len(), endpoint.tls.len(), endpoint.opened.numbers.len()];
    (probe.noted.clone(), held)
}

#[test]
fn a_server_that_never_answers_a_handshake_is_given_up_in_its_time() {
    let mut simulation = world([false, true], None);
    simulation.run_until(millis(60_000));
    assert_eq!(noted(&simulation, 0), (vec![(millis(20) + HANDSHAKE_TIMEOUT, "timed out")], [0; 3]));
    assert_eq!(simulation.observer().0, [(millis(30) + HANDSHAKE_TIMEOUT, CloseReason::Reset)]);
}

#[test]
fn a_client_that_never_begins_a_handshake_is_shown_out_in_its_time() {
    let mut simulation = world([true, false], None);
    simulation.run_until(millis(60_000));
    // The machine never heard of it.
    assert_eq!(noted(&simulation, 1), (vec![], [0; 3]));
    assert_eq!(simulation.observer().0, [(millis(40) + HANDSHAKE_TIMEOUT, CloseReason::Reset)]);
}

#[test]
fn a_handshake_that_is_complete_has_no_time_limit() {
    let mut simulation = world([false; 2], None);
    simulation.run_until(millis(60_000));
    let ([(_, opened)], [(_, accepted)]) = (&noted(&simulation, 0).0[..], &noted(&simulation, 1).0[..])
    else {
        panic!("{:?} {:?}", noted(&simulation, 0), noted(&simulation, 1));
    };
    assert_eq!((*opened, *accepted), ("connected", "accepted"));
    assert_eq!([0, 1].map(|app| noted(&simulation, app).1), [[0, 1, 1], [1, 1, 0]]);
}

#[test]
fn a_host_that_was_off_has_nothing_of_its_connections_left() {
    let mut simulation = world([false; 2], Some([millis(1000), millis(2000)]));
    simulation.run_until(millis(1500));
    assert_eq!(noted(&simulation, 1).1, [1, 1, 0]);
    simulation.run_until(millis(2500));
    assert_eq!(noted(&simulation, 1).1, [0; 3]);
}
