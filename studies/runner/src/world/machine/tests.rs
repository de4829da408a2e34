use super::*;
use usher_core::{CommandError, Duration, MachineOutput, NoJob, Seed};
use usher_crypto::tls::{
    HANDSHAKE_TIMEOUT, SharedWallClock, TlsClientOptions, TlsServerOptions, TlsVersion, TrustRoots, fixtures,
};
use usher_sim::{Application, IpVersion, LinkConfig, ReportObserver, Simulation, SimulationBuilder};

/// Regression test: a late close of an old connection removed the entry of a new one with the same id.
#[test]
fn the_end_of_an_old_connection_leaves_its_successor_alone() {
    let mut numbers = MachineIdTable::new();
    let id = ConnId::nth_opened_connection(7);
    let old = numbers.assign_simulator_number(id);
    numbers.release_simulator_number(old);
    assert_eq!((numbers.simulator_number(id), numbers.find_machine_id(old)), (None, Some(id)));
    let new = numbers.assign_simulator_number(id);
    assert_ne!(old, new);
    numbers.release_simulator_number(old);
    assert_eq!(numbers.simulator_number(id), Some(new));
    numbers.release_simulator_number(new);
    assert_eq!(numbers.simulator_number(id), None);
}

const PORT: u16 = 2083;

/// Connects at its start, and records the events of its connections.
#[derive(Default)]
struct ProbeMachine {
    to: Option<SocketAddr>,
    noted: Vec<(Instant, &'static str)>,
}

impl Machine for ProbeMachine {
    type Command = ();
    type Event = ();
    type Job = NoJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        let MachineInput::Stream { event, .. } = input else { return };
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
    fn handle_command(&mut self, _: Instant, (): ()) -> Result<(), CommandError> {
        Ok(())
    }
    fn poll_output(&mut self, _: &mut Vec<u8>) -> Option<MachineOutput<(), NoJob>> {
        let remote = self.to.take()?;
        let op = StreamOp::Connect { local: None, remote };
        Some(MachineOutput::Transmit(Transmit::Stream { conn: ConnId::nth_opened_connection(0), op }))
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
}

enum TestApp {
    Hosted(Box<(MachineSockets, ProbeMachine)>),
    /// TCP works, but the peer sends no data. It connects at its start if it has a destination.
    Silent(Option<HostId>),
}

impl Application for TestApp {
    type Report = Option<CloseReason>;

    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, Self::Report>, delivery: AppDelivery) {
        match self {
            Self::Hosted(hosted) => {
                let (endpoint, probe) = &mut **hosted;
                endpoint.deliver_to_machine(ctx, probe, &delivery);
                endpoint.drain_outputs(ctx, probe, |_, _, _| ());
            }
            Self::Silent(to) => match delivery {
                AppDelivery::Start => {
                    if let Some(to) = to {
                        ctx.connect(ConnId::nth_opened_connection(0), *to, PORT);
                    }
                }
                AppDelivery::Stream { event: TcpStreamEvent::Closed(reason), .. } => ctx.report(Some(reason)),
                _ => {}
            },
        }
    }
}

#[derive(Default)]
struct RecordingObserver(Vec<(Instant, CloseReason)>);

impl ReportObserver<Option<CloseReason>> for RecordingObserver {
    fn handle_report(&mut self, now: Instant, _: u32, end: Option<CloseReason>) {
        self.0.extend(end.map(|end| (now, end)));
    }
}

fn server_config() -> ServerConfig {
    ServerConfig::new(TlsServerOptions {
        versions: TlsVersion::Tls13.into(),
        credentials: fixtures::server_credentials(1),
        client_roots: Some(TrustRoots::from_der([fixtures::root_certificate()])),
        resumption: None,
        clock: SharedWallClock::from_time(fixtures::WALL_TIME),
        key_log: None,
    })
    .unwrap()
}

fn client_config() -> ClientConfig {
    ClientConfig::new(TlsClientOptions {
        versions: TlsVersion::Tls13.into(),
        credentials: Some(fixtures::client_credentials(1)),
        roots: TrustRoots::from_der([fixtures::root_certificate()]),
        server_name: None,
        resumption: None,
        clock: SharedWallClock::from_time(fixtures::WALL_TIME),
        key_log: None,
    })
    .unwrap()
}

/// Two hosts, 10 ms apart: the first opens a connection to the second, each silent or with TLS.
fn test_network(silent: [bool; 2], outage: Option<[Instant; 2]>) -> Simulation<TestApp, RecordingObserver> {
    let mut builder = SimulationBuilder::new(IpVersion::V4, Seed::new(1));
    let hosts = [(); 2].map(|()| builder.add_host(None).unwrap());
    let mut config = LinkConfig::default();
    (config.up.delay, config.down.delay) = (Duration::from_millis(10), Duration::from_millis(10));
    builder.add_link(hosts[0], hosts[1], &config);
    let addresses = Arc::new(builder.addresses().clone());
    let at = |host| HostAddress { host, addresses: addresses.clone() };
    let to = at(hosts[0]).socket_address(hosts[1], PORT);
    let opener = match silent[0] {
        true => TestApp::Silent(Some(hosts[1])),
        false => {
            let endpoint =
                MachineSockets::new(at(hosts[0])).with_outgoing_tls([(to, client_config())].into());
            TestApp::Hosted(Box::new((endpoint, ProbeMachine { to: Some(to), ..ProbeMachine::default() })))
        }
    };
    let mut endpoint = MachineSockets::new(at(hosts[1]));
    endpoint.register_listener(PORT, ListenerId::default(), Some(server_config()));
    let acceptor = match silent[1] {
        true => TestApp::Silent(None),
        false => TestApp::Hosted(Box::new((endpoint, ProbeMachine::default()))),
    };
    builder.add_application(hosts[0], opener, None);
    let app = builder.add_application(hosts[1], acceptor, None);
    builder.listen_tcp(app, PORT).unwrap();
    if let Some([from, until]) = outage {
        builder.add_outage(hosts[1], from, until);
    }
    builder.build(RecordingObserver::default(), None)
}

fn at_millis(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// The recorded events of a hosted machine, and the number of its endpoint's connections.
fn noted_events(
    simulation: &Simulation<TestApp, RecordingObserver>,
    app: usize,
) -> (Vec<(Instant, &'static str)>, [usize; 3]) {
    let Some(TestApp::Hosted(hosted)) = simulation.applications().nth(app) else { panic!("it is silent") };
    let (endpoint, probe) = &**hosted;
    let held = [endpoint.accepted.len(), endpoint.tls.len(), endpoint.opened.numbers.len()];
    (probe.noted.clone(), held)
}

#[test]
fn a_server_that_never_answers_a_handshake_times_out() {
    let mut simulation = test_network([false, true], None);
    simulation.run_until(at_millis(60_000));
    assert_eq!(
        noted_events(&simulation, 0),
        (vec![(at_millis(20) + HANDSHAKE_TIMEOUT, "timed out")], [0; 3])
    );
    assert_eq!(simulation.observer().0, [(at_millis(30) + HANDSHAKE_TIMEOUT, CloseReason::Reset)]);
}

#[test]
fn a_client_that_never_starts_a_handshake_times_out() {
    let mut simulation = test_network([true, false], None);
    simulation.run_until(at_millis(60_000));
    // The machine never learned of it.
    assert_eq!(noted_events(&simulation, 1), (vec![], [0; 3]));
    assert_eq!(simulation.observer().0, [(at_millis(40) + HANDSHAKE_TIMEOUT, CloseReason::Reset)]);
}

#[test]
fn a_handshake_that_is_complete_has_no_time_limit() {
    let mut simulation = test_network([false; 2], None);
    simulation.run_until(at_millis(60_000));
    let ([(_, opened)], [(_, accepted)]) =
        (&noted_events(&simulation, 0).0[..], &noted_events(&simulation, 1).0[..])
    else {
        panic!("{:?} {:?}", noted_events(&simulation, 0), noted_events(&simulation, 1));
    };
    assert_eq!((*opened, *accepted), ("connected", "accepted"));
    assert_eq!([0, 1].map(|app| noted_events(&simulation, app).1), [[0, 1, 1], [1, 1, 0]]);
}

#[test]
fn a_host_that_was_off_has_nothing_of_its_connections_left() {
    let mut simulation = test_network([false; 2], Some([at_millis(1000), at_millis(2000)]));
    simulation.run_until(at_millis(1500));
    assert_eq!(noted_events(&simulation, 1).1, [1, 1, 0]);
    simulation.run_until(at_millis(2500));
    assert_eq!(noted_events(&simulation, 1).1, [0; 3]);
}
