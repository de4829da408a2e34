//! Applications of the simulator on the lab's hosts: the same code on both, told apart by nothing but the time that a real
//! kernel takes.

use crate::support::{PATIENCE, Scratch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_core::impair::ChannelConfig;
use usher_core::{CloseReason, ConnId, Duration, Instant, Seed};
use usher_lab::{Hosts, LabError, Setup};
use usher_sim::sctp::Message;
use usher_sim::{
    Application, Builder, Context, Delivery, Framing, HostId, IpVersion, LinkConfig, Observer, Payload,
    StreamDelivery, Transports, tcp,
};

const PORT: u16 = 700;
/// A frame of EAPOL from one port to whoever hears it.
const FRAME: [u8; 20] = [0x01, 0x80, 0xc2, 0, 0, 3, 2, 0, 0, 0, 0, 0, 0x88, 0x8e, 1, 2, 3, 4, 5, 6];

/// What a node does at the start; whatever it hears, it reports.
#[derive(Clone, Copy, Debug)]
enum Node {
    /// Answers datagrams, streams and frames with what has come.
    Echo,
    /// Sends a datagram.
    Datagram(HostId),
    /// Opens a connection, writes that much, and closes it when as much is back.
    Stream(HostId, u32),
    /// Sends a frame by its first port.
    Frame,
    /// Waits this long, then asks whose a connection is that there is not.
    Timer(Duration),
    /// Connects where nobody listens.
    Refused(HostId),
    /// Speaks SCTP.
    Sctp(HostId),
}

/// What a node heard.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Heard {
    Datagram(Vec<u8>),
    Connected,
    Octets(u32),
    Closed(CloseReason),
    Frame(Vec<u8>),
    Timer,
    Owner(Option<u32>),
}

impl Application for Node {
    type Report = Heard;

    fn handle(&mut self, ctx: &mut Context<'_, Heard>, delivery: Delivery) {
        let own = ConnId::opened(0);
        match (delivery, *self) {
            (Delivery::Start, Self::Datagram(to)) => {
                ctx.send_datagram(3, to, PORT, Payload { len: 100, bytes: Some([7; 30].as_slice().into()) });
            }
            (Delivery::Start, Self::Stream(to, len)) => {
                ctx.connect(own, to, PORT);
                ctx.write(own, Payload::counted(len));
            }
            (Delivery::Start, Self::Refused(to)) => ctx.connect(own, to, PORT + 1),
            (Delivery::Start, Self::Frame) => ctx.send_frame(0, Payload::copied(&FRAME)),
            (Delivery::Start, Self::Timer(after)) => {
                ctx.set_timer(Some(ctx.now()));
                ctx.set_timer(Some(ctx.now() + after));
            }
            (Delivery::Start, Self::Sctp(to)) => {
                ctx.associate(own, to, PORT, 1);
                ctx.send_message(
                    own,
                    Message { stream: 0, ppid: 0, unordered: false, payload: Payload::counted(1) },
                );
            }
            (Delivery::Start, Self::Echo) | (Delivery::Link { .. } | Delivery::Message { .. }, _) => {}
            (Delivery::Timer, _) => {
                ctx.report(Heard::Timer);
                ctx.ask_owner(1, (HostId(0), 1), (HostId(1), 1));
            }
            (Delivery::Datagram { from, from_port, payload, .. }, node) => {
                ctx.report(Heard::Datagram(payload.as_slice().to_vec()));
                if let Self::Echo = node {
                    ctx.send_datagram(0, from, from_port, payload);
                }
            }
            (Delivery::Stream { conn, event }, node) => match event {
                StreamDelivery::Connected { .. } => ctx.report(Heard::Connected),
                StreamDelivery::Data(payload) => {
                    ctx.report(Heard::Octets(payload.len));
                    match node {
                        Self::Echo => ctx.write(conn, payload),
                        Self::Stream(to, left) if left > payload.len => {
                            *self = Self::Stream(to, left - payload.len);
                        }
                        _ => ctx.shutdown(conn),
                    }
                }
                StreamDelivery::Closed(reason) => ctx.report(Heard::Closed(reason)),
            },
            (Delivery::Frame { port, payload }, node) => {
                ctx.report(Heard::Frame(payload.as_slice().to_vec()));
                if let Self::Echo = node {
                    ctx.send_frame(port, payload);
                }
            }
            (Delivery::Owner { app, .. }, _) => ctx.report(Heard::Owner(app)),
            (Delivery::Acquire { policy }, _) => panic!("a lab protects no packets: {policy:?}"),
            (Delivery::Transit { .. }, _) => panic!("a lab's kernel forwards by itself"),
        }
    }
}

/// What was heard, when and by whom.
#[derive(Debug, Default)]
struct Log {
    heard: Vec<(Instant, u32, Heard)>,
    /// What each application is to hear; the run ends when both have.
    wanted: Option<[Vec<Heard>; 2]>,
}

impl Observer<Heard> for Log {
    fn report(&mut self, now: Instant, app: u32, report: Heard) {
        self.heard.push((now, app, report));
    }
    fn is_done(&self) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| [self.of(0), self.of(1)] == *wanted)
    }
}

impl Log {
    /// What an application heard; octets that came in pieces together.
    fn of(&self, app: u32) -> Vec<Heard> {
        let mut all: Vec<Heard> = Vec::new();
        for (_, _, heard) in self.heard.iter().filter(|(_, by, _)| *by == app) {
            match (all.last_mut(), heard) {
                (Some(Heard::Octets(sum)), Heard::Octets(more)) => *sum += more,
                _ => all.push(heard.clone()),
            }
        }
        all
    }
    fn first(&self, app: u32, heard: &Heard) -> Option<Instant> {
        self.heard.iter().find(|(_, by, what)| *by == app && what == heard).map(|(at, ..)| *at)
    }
}

/// Two hosts and a router between them, a node on the first and an echo on the last.
fn network(node: impl Fn(HostId) -> Node, delay: Duration) -> Builder<Node> {
    let mut builder = Builder::new(IpVersion::V6, Seed::new(3));
    let [a, router, b] = [(); 3].map(|()| builder.host(None).unwrap());
    let channel = ChannelConfig { delay, ..ChannelConfig::default() };
    let link = LinkConfig {
        up: channel.clone(),
        down: channel,
        framing: Framing::Ethernet,
        ..LinkConfig::default()
    };
    // Frames go no further than a link, so it is that between the two.
    match node(b) {
        Node::Frame => builder.link(a, b, &link),
        _ => {
            builder.link(a, router, &link);
            builder.link(router, b, &link)
        }
    };
    // 1500 octets less the headers of IPv6 and TCP.
    let tcp = Arc::new(tcp::Config { mss: 1440, ..tcp::Config::default() });
    let transports = Arc::new(Transports { tcp, ..Transports::default() });
    let app = builder.app(a, node(b), Some(transports.clone()));
    let echo = builder.app(b, Node::Echo, Some(transports));
    builder.take_frames(app);
    builder.take_frames(echo);
    builder.bind_udp(echo, 0, PORT).unwrap();
    builder.listen(echo, PORT).unwrap();
    builder
}

const END: Instant = Instant::from_nanos(1_500_000_000);

fn simulated(builder: Builder<Node>) -> Log {
    let mut sim = builder.build(Log::default(), None);
    sim.run_until(END);
    std::mem::take(sim.observer_mut())
}

fn hosts(builder: Builder<Node>, stop: Arc<AtomicBool>) -> (Result<Hosts<Node, Log>, LabError>, Scratch) {
    let scratch = Scratch::new();
    let setup = Setup { name: "test".to_owned(), ..Setup::default() };
    (Hosts::new(builder.into_parts(), &setup, &scratch.0, Log::default(), None, stop), scratch)
}

/// Runs until both applications have heard what they are to hear, and a while longer, in which they hear nothing more.
fn on_lab(builder: Builder<Node>, wanted: [Vec<Heard>; 2]) -> Log {
    const LONGEST: Duration = Duration::from_millis(PATIENCE.as_millis() as u64);
    const AFTERWARDS: Duration = Duration::from_millis(100);
    let (made, _scratch) = hosts(builder, Arc::default());
    let mut hosts = made.unwrap();
    hosts.observer_mut().wanted = Some(wanted);
    hosts.run_until(Instant::ZERO + LONGEST);
    hosts.observer_mut().wanted = None;
    hosts.run_until(hosts.now() + AFTERWARDS);
    assert!(hosts.failure().is_none());
    std::mem::take(hosts.observer_mut())
}

#[test]
fn what_applications_hear_on_a_lab_is_what_they_hear_in_the_simulator() {
    let far = Duration::from_millis(2);
    let nodes: [fn(HostId) -> Node; 5] = [
        Node::Datagram,
        |to| Node::Stream(to, 300_000),
        |_| Node::Frame,
        |_| Node::Timer(Duration::from_millis(20)),
        Node::Refused,
    ];
    for node in nodes {
        let sim = simulated(network(node, far));
        let expected = [0, 1].map(|app| {
            // Bytes that nobody reads are bytes on a kernel's socket.
            let mut expected = sim.of(app);
            for heard in &mut expected {
                if let Heard::Datagram(bytes) = heard {
                    bytes.resize(100, 0);
                }
            }
            expected
        });
        assert!(!expected[0].is_empty());
        let lab = on_lab(network(node, far), expected.clone());
        assert_eq!([lab.of(0), lab.of(1)], expected, "{:?}", node(HostId(2)));
    }
}

#[test]
fn an_answer_takes_the_links_delays_and_little_more() {
    let far = Duration::from_millis(25);
    let mut payload = vec![7; 30];
    payload.resize(100, 0);
    let heard = Heard::Datagram(payload);
    let least = far + far + far + far;
    // A machine that others keep busy may be late with one answer, and not with each. In half as much again another network
    // would answer.
    let begun = std::time::Instant::now();
    loop {
        let log = on_lab(network(Node::Datagram, far), [vec![heard.clone()], vec![heard.clone()]]);
        let took = log.first(0, &heard).unwrap().since(Instant::ZERO);
        assert!(took >= least, "{took}");
        if took < least + far + far {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "no answer in less than {took}");
    }
}

#[test]
fn a_run_that_is_told_to_stop_does_so_before_its_end() {
    let stop = Arc::new(AtomicBool::new(true));
    let (made, _scratch) =
        hosts(network(|_| Node::Timer(Duration::from_secs(1)), Duration::ZERO), stop.clone());
    let mut hosts = made.unwrap();
    hosts.run_until(END);
    assert!(hosts.observer().of(0).is_empty());
    stop.store(false, Ordering::Relaxed);
}

#[test]
fn what_a_lab_has_not_is_refused_with_its_reason() {
    let mut outage = network(|_| Node::Echo, Duration::ZERO);
    outage.outage(HostId(0), Instant::ZERO, END);
    let mut sctp = network(Node::Sctp, Duration::ZERO);
    sctp.listen_sctp(1, PORT).unwrap();
    let (made, _scratch) = hosts(outage, Arc::default());
    let told = made.map(|_| ()).unwrap_err().to_string();
    assert!(told.contains("outages"), "{told}");
    let (made, _scratch) = hosts(sctp, Arc::default());
    if usher_lab::has_sctp() {
        let mut hosts = made.unwrap();
        hosts.run_until(END);
        assert!(hosts.failure().is_none());
        return;
    }
    let told = made.map(|_| ()).unwrap_err().to_string();
    assert!(told.contains("has no SCTP: load its module"), "{told}");
    // An application that speaks it although nobody listens ends the run.
    let (made, _scratch) = hosts(network(Node::Sctp, Duration::ZERO), Arc::default());
    let mut hosts = made.unwrap();
    hosts.run_until(END);
    assert!(hosts.failure().unwrap().to_string().contains("SCTP"));
}
