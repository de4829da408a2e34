//! Applications of the simulator on the lab's hosts: the same code on both. Only the timing of a real kernel differs.

use crate::support::{TEST_TIMEOUT, TestRegistry};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_core::impair::ChannelConfig;
use usher_core::{CloseReason, ConnId, Duration, Instant, Seed};
use usher_lab::{LabError, LabHosts, LabSetup};
use usher_sim::sctp::UserMessage;
use usher_sim::{
    AppContext, AppDelivery, Application, HostId, IpVersion, LinkConfig, LinkFraming, Payload,
    ReportObserver, SimulationBuilder, TcpStreamEvent, TransportConfig, tcp,
};

const PORT: u16 = 700;
/// An EAPOL frame to the group address.
const FRAME: [u8; 20] = [0x01, 0x80, 0xc2, 0, 0, 3, 2, 0, 0, 0, 0, 0, 0x88, 0x8e, 1, 2, 3, 4, 5, 6];

/// A node's action at the start. It reports all its events.
#[derive(Clone, Copy, Debug)]
enum TestApp {
    /// Echoes datagrams, streams and frames.
    Echo,
    /// Sends a datagram.
    Datagram(HostId),
    /// Opens a connection, writes this many bytes, and closes it when as many have returned.
    Stream(HostId, u32),
    /// Sends a frame by its first port.
    Frame,
    /// Waits this long, then asks for the owner of a connection that does not exist.
    Timer(Duration),
    /// Connects to a port without a listener.
    Refused(HostId),
    /// Uses SCTP.
    Sctp(HostId),
}

/// An event that a node received.
#[derive(Clone, PartialEq, Eq, Debug)]
enum AppEvent {
    Datagram(Vec<u8>),
    Connected,
    Octets(u32),
    Closed(CloseReason),
    Frame(Vec<u8>),
    Timer,
    Owner(Option<u32>),
}

impl Application for TestApp {
    type Report = AppEvent;

    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, AppEvent>, delivery: AppDelivery) {
        let own = ConnId::nth_opened_connection(0);
        match (delivery, *self) {
            (AppDelivery::Start, Self::Datagram(to)) => {
                ctx.send_datagram(3, to, PORT, Payload { len: 100, bytes: Some([7; 30].as_slice().into()) });
            }
            (AppDelivery::Start, Self::Stream(to, len)) => {
                ctx.connect(own, to, PORT);
                ctx.write(own, Payload::with_length(len));
            }
            (AppDelivery::Start, Self::Refused(to)) => ctx.connect(own, to, PORT + 1),
            (AppDelivery::Start, Self::Frame) => ctx.send_frame(0, Payload::copy_from_slice(&FRAME)),
            (AppDelivery::Start, Self::Timer(after)) => {
                ctx.set_timer(Some(ctx.now()));
                ctx.set_timer(Some(ctx.now() + after));
            }
            (AppDelivery::Start, Self::Sctp(to)) => {
                ctx.associate(own, to, PORT, 1);
                ctx.send_message(
                    own,
                    UserMessage { stream: 0, ppid: 0, unordered: false, payload: Payload::with_length(1) },
                );
            }
            (AppDelivery::Start, Self::Echo)
            | (AppDelivery::Link { .. } | AppDelivery::Message { .. }, _) => {}
            (AppDelivery::Timer, _) => {
                ctx.report(AppEvent::Timer);
                ctx.query_owner(1, (HostId(0), 1), (HostId(1), 1));
            }
            (AppDelivery::Datagram { from, from_port, payload, .. }, node) => {
                ctx.report(AppEvent::Datagram(payload.as_slice().to_vec()));
                if let Self::Echo = node {
                    ctx.send_datagram(0, from, from_port, payload);
                }
            }
            (AppDelivery::Stream { conn, event }, node) => match event {
                TcpStreamEvent::Connected { .. } => ctx.report(AppEvent::Connected),
                TcpStreamEvent::Data(payload) => {
                    ctx.report(AppEvent::Octets(payload.len));
                    match node {
                        Self::Echo => ctx.write(conn, payload),
                        Self::Stream(to, left) if left > payload.len => {
                            *self = Self::Stream(to, left - payload.len);
                        }
                        _ => ctx.shutdown(conn),
                    }
                }
                TcpStreamEvent::Closed(reason) => ctx.report(AppEvent::Closed(reason)),
            },
            (AppDelivery::Frame { port, payload }, node) => {
                ctx.report(AppEvent::Frame(payload.as_slice().to_vec()));
                if let Self::Echo = node {
                    ctx.send_frame(port, payload);
                }
            }
            (AppDelivery::Owner { app, .. }, _) => ctx.report(AppEvent::Owner(app)),
            (AppDelivery::Acquire { policy }, _) => panic!("a lab protects no packets: {policy:?}"),
            (AppDelivery::Transit { .. }, _) => panic!("a lab's kernel forwards by itself"),
        }
    }
}

/// All events, with time and application.
#[derive(Debug, Default)]
struct EventLog {
    reports: Vec<(Instant, u32, AppEvent)>,
    /// The expected events of each application. The run ends when both have them.
    expected_reports: Option<[Vec<AppEvent>; 2]>,
}

impl ReportObserver<AppEvent> for EventLog {
    fn handle_report(&mut self, now: Instant, app: u32, report: AppEvent) {
        self.reports.push((now, app, report));
    }
    fn is_done(&self) -> bool {
        self.expected_reports.as_ref().is_some_and(|wanted| [self.events_of(0), self.events_of(1)] == *wanted)
    }
}

impl EventLog {
    /// Returns the events of an application, with consecutive pieces of a stream joined.
    fn events_of(&self, app: u32) -> Vec<AppEvent> {
        let mut all: Vec<AppEvent> = Vec::new();
        for (_, _, heard) in self.reports.iter().filter(|(_, by, _)| *by == app) {
            match (all.last_mut(), heard) {
                (Some(AppEvent::Octets(sum)), AppEvent::Octets(more)) => *sum += more,
                _ => all.push(heard.clone()),
            }
        }
        all
    }
    fn first_time(&self, app: u32, heard: &AppEvent) -> Option<Instant> {
        self.reports.iter().find(|(_, by, what)| *by == app && what == heard).map(|(at, ..)| *at)
    }
}

/// Builds two hosts and a router between them, with a node on the first and an echo on the last.
fn test_builder(node: impl Fn(HostId) -> TestApp, delay: Duration) -> SimulationBuilder<TestApp> {
    let mut builder = SimulationBuilder::new(IpVersion::V6, Seed::new(3));
    let [a, router, b] = [(); 3].map(|()| builder.add_host(None).unwrap());
    let channel = ChannelConfig { delay, ..ChannelConfig::default() };
    let link = LinkConfig {
        up: channel.clone(),
        down: channel,
        framing: LinkFraming::Ethernet,
        ..LinkConfig::default()
    };
    // Frames stay on one link, so the two hosts share one.
    match node(b) {
        TestApp::Frame => builder.add_link(a, b, &link),
        _ => {
            builder.add_link(a, router, &link);
            builder.add_link(router, b, &link)
        }
    };
    // 1500 octets less the headers of IPv6 and TCP.
    let tcp = Arc::new(tcp::TcpConfig { mss: 1440, ..tcp::TcpConfig::default() });
    let transports = Arc::new(TransportConfig { tcp, ..TransportConfig::default() });
    let app = builder.add_application(a, node(b), Some(transports.clone()));
    let echo = builder.add_application(b, TestApp::Echo, Some(transports));
    builder.take_frames(app);
    builder.take_frames(echo);
    builder.bind_udp(echo, 0, PORT).unwrap();
    builder.listen_tcp(echo, PORT).unwrap();
    builder
}

const END: Instant = Instant::from_nanos(1_500_000_000);

fn run_simulated(builder: SimulationBuilder<TestApp>) -> EventLog {
    let mut sim = builder.build(EventLog::default(), None);
    sim.run_until(END);
    std::mem::take(sim.observer_mut())
}

fn lab_hosts(
    builder: SimulationBuilder<TestApp>,
    stop: Arc<AtomicBool>,
) -> (Result<LabHosts<TestApp, EventLog>, LabError>, TestRegistry) {
    let scratch = TestRegistry::new();
    let setup = LabSetup { name: "test".to_owned(), ..LabSetup::default() };
    (LabHosts::new(builder.into_parts(), &setup, &scratch.0, EventLog::default(), None, stop), scratch)
}

/// Runs until both applications have their expected events, and a while longer, in which no more may arrive.
fn on_lab(builder: SimulationBuilder<TestApp>, wanted: [Vec<AppEvent>; 2]) -> EventLog {
    const LONGEST: Duration = Duration::from_millis(TEST_TIMEOUT.as_millis() as u64);
    const AFTERWARDS: Duration = Duration::from_millis(100);
    let (made, _scratch) = lab_hosts(builder, Arc::default());
    let mut hosts = made.unwrap();
    hosts.observer_mut().expected_reports = Some(wanted);
    hosts.run_until(Instant::ZERO + LONGEST);
    hosts.observer_mut().expected_reports = None;
    hosts.run_until(hosts.now() + AFTERWARDS);
    assert!(hosts.take_failure().is_none());
    std::mem::take(hosts.observer_mut())
}

#[test]
fn applications_get_the_same_events_on_a_lab_as_simulated() {
    let far = Duration::from_millis(2);
    let nodes: [fn(HostId) -> TestApp; 5] = [
        TestApp::Datagram,
        |to| TestApp::Stream(to, 300_000),
        |_| TestApp::Frame,
        |_| TestApp::Timer(Duration::from_millis(20)),
        TestApp::Refused,
    ];
    for node in nodes {
        let sim = run_simulated(test_builder(node, far));
        let expected = [0, 1].map(|app| {
            // Octets without a value still cross a kernel's socket.
            let mut expected = sim.events_of(app);
            for heard in &mut expected {
                if let AppEvent::Datagram(bytes) = heard {
                    bytes.resize(100, 0);
                }
            }
            expected
        });
        assert!(!expected[0].is_empty());
        let lab = on_lab(test_builder(node, far), expected.clone());
        assert_eq!([lab.events_of(0), lab.events_of(1)], expected, "{:?}", node(HostId(2)));
    }
}

#[test]
fn an_answer_takes_the_links_delays_and_little_more() {
    let far = Duration::from_millis(25);
    let mut payload = vec![7; 30];
    payload.resize(100, 0);
    let heard = AppEvent::Datagram(payload);
    let least = far + far + far + far;
    // A busy machine may delay one reply, but not each. A delay longer by half would be
    // that of another network.
    let begun = std::time::Instant::now();
    loop {
        let log = on_lab(test_builder(TestApp::Datagram, far), [vec![heard.clone()], vec![heard.clone()]]);
        let took = log.first_time(0, &heard).unwrap().duration_since(Instant::ZERO);
        assert!(took >= least, "{took}");
        if took < least + far + far {
            return;
        }
        assert!(begun.elapsed() < TEST_TIMEOUT, "no answer in less than {took}");
    }
}

#[test]
fn a_run_that_is_told_to_stop_does_so_before_its_end() {
    let stop = Arc::new(AtomicBool::new(true));
    let (made, _scratch) =
        lab_hosts(test_builder(|_| TestApp::Timer(Duration::from_secs(1)), Duration::ZERO), stop.clone());
    let mut hosts = made.unwrap();
    hosts.run_until(END);
    assert!(hosts.observer().events_of(0).is_empty());
    stop.store(false, Ordering::Relaxed);
}

#[test]
fn what_a_lab_has_not_is_refused_with_its_reason() {
    let mut outage = test_builder(|_| TestApp::Echo, Duration::ZERO);
    outage.add_outage(HostId(0), Instant::ZERO, END);
    let mut sctp = test_builder(TestApp::Sctp, Duration::ZERO);
    sctp.listen_sctp(1, PORT).unwrap();
    let (made, _scratch) = lab_hosts(outage, Arc::default());
    let told = made.map(|_| ()).unwrap_err().to_string();
    assert!(told.contains("outages"), "{told}");
    let (made, _scratch) = lab_hosts(sctp, Arc::default());
    if usher_lab::has_sctp() {
        let mut hosts = made.unwrap();
        hosts.run_until(END);
        assert!(hosts.take_failure().is_none());
        return;
    }
    let told = made.map(|_| ()).unwrap_err().to_string();
    assert!(told.contains("has no SCTP: load its module"), "{told}");
    // An application that uses SCTP without a listener ends the run.
    let (made, _scratch) = lab_hosts(test_builder(TestApp::Sctp, Duration::ZERO), Arc::default());
    let mut hosts = made.unwrap();
    hosts.run_until(END);
    assert!(hosts.take_failure().unwrap().to_string().contains("SCTP"));
}
