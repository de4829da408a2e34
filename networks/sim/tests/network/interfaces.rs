//! Hosts with several addresses: arrivals and departures of each.

use super::ReportLog;
use std::any::Any;
use usher_core::{AssocId, CloseReason, ConnId, Duration, Instant, Seed, WorkRecord};
use usher_sim::sctp::UserMessage;
use usher_sim::{
    AppContext, AppDelivery, Application, BatchReceiveCost, CpuConfig, HostId, IpVersion, LinkConfig, LinkId,
    PacketTap, Payload, SctpAssociationEvent, ServiceTime, SimError, Simulation, SimulationBuilder,
    TcpStreamEvent,
};

usher_core::work_labels! {
    /// A packet read.
    READ = "read" per "packet";
}

/// Test applications.
#[derive(Debug)]
enum MobileApp {
    /// Reports address and socket of each datagram, with a unit of work, and echoes it.
    Mobile,
    /// Sends a datagram to each address at the start, and another after a second.
    Flow { to: [HostId; 2], port: u16 },
    /// Opens a connection and an association from each address at the start.
    Caller { from: Vec<HostId>, to: HostId },
    /// Accepts, and reports the peer.
    Acceptor,
    /// Accepts, and queries the owner of the connection, of one from the next port, and of the other end; again after
    /// the close.
    Asker,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InterfaceReport {
    Started,
    Datagram { destination: HostId, socket: u32, from: HostId },
    Stream(HostId),
    Association(HostId),
    Text(u8),
    Closed(CloseReason),
    Owner(u64, Option<u32>),
}

impl Application for MobileApp {
    type Report = InterfaceReport;
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, InterfaceReport>, delivery: AppDelivery) {
        match (self, delivery) {
            (Self::Mobile, AppDelivery::Start) => ctx.report(InterfaceReport::Started),
            (
                Self::Mobile,
                AppDelivery::Datagram { socket, from, from_port, destination: at, payload, .. },
            ) => {
                ctx.charge_work(WorkRecord { label: READ, units: 1 });
                ctx.report(InterfaceReport::Datagram { destination: at, socket, from });
                ctx.send_datagram(socket, from, from_port, payload);
            }
            (Self::Flow { to, port }, AppDelivery::Start | AppDelivery::Timer) => {
                for to in to {
                    ctx.send_datagram(0, *to, *port, Payload::copy_from_slice(b"flow"));
                }
                ctx.set_timer((ctx.now() == Instant::ZERO).then(|| at_secs(1)));
            }
            (Self::Flow { .. }, AppDelivery::Datagram { socket, from, destination: at, .. }) => {
                ctx.report(InterfaceReport::Datagram { destination: at, socket, from });
            }
            (Self::Caller { from, to }, AppDelivery::Start) => {
                for (i, from) in (0..).zip(from.iter()) {
                    let conn = ConnId::nth_opened_connection(2 * i);
                    ctx.connect_from(conn, *from, *to, 80);
                    ctx.write(conn, Payload::copy_from_slice(&[b'0' + i as u8]));
                    ctx.associate_from(AssocId::nth_opened_connection(2 * i + 1), *from, *to, 9, 1);
                }
            }
            (Self::Caller { .. }, AppDelivery::Message { assoc, event: SctpAssociationEvent::Up { .. } }) => {
                let payload = Payload::copy_from_slice(&[b'a' + (assoc.n / 2) as u8]);
                ctx.send_message(assoc, UserMessage { stream: 0, ppid: 0, unordered: false, payload });
            }
            (
                Self::Asker,
                AppDelivery::Stream {
                    conn,
                    event: TcpStreamEvent::Connected { remote, remote_port, local, local_port },
                },
            ) => {
                let ends = [(local, local_port), (remote, remote_port)];
                ctx.query_owner(1, ends[0], (remote, remote_port + 1));
                ctx.query_owner(2, ends[1], ends[0]);
                ctx.query_owner(0, ends[0], ends[1]);
                ctx.abort(conn);
                ctx.query_owner(3, ends[0], ends[1]);
            }
            (_, AppDelivery::Owner { token, app }) => ctx.report(InterfaceReport::Owner(token, app)),
            (_, AppDelivery::Stream { event, .. }) => ctx.report(match event {
                TcpStreamEvent::Connected { remote, .. } => InterfaceReport::Stream(remote),
                TcpStreamEvent::Data(p) => InterfaceReport::Text(p.as_slice()[0]),
                TcpStreamEvent::Closed(reason) => InterfaceReport::Closed(reason),
            }),
            (_, AppDelivery::Message { event, .. }) => ctx.report(match event {
                SctpAssociationEvent::Up { remote, .. } => InterfaceReport::Association(remote),
                SctpAssociationEvent::Data { payload, .. } => InterfaceReport::Text(payload.as_slice()[0]),
                SctpAssociationEvent::Down(reason) => InterfaceReport::Closed(reason),
            }),
            _ => {}
        }
    }
}

/// Interface, protocol, source and destination of every captured IPv4 packet that leaves.
#[derive(Debug, Default)]
struct InterfacePackets(Vec<(u16, u8, [u8; 4], [u8; 4])>);
impl PacketTap for InterfacePackets {
    fn capture_packet(&mut self, _: Instant, interface: u16, outward: bool, bytes: &[u8]) {
        if outward {
            let address = |at: usize| bytes[at..at + 4].try_into().unwrap();
            self.0.push((interface, bytes[9], address(12), address(16)));
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

fn at_secs(n: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(n)
}
fn delayed_link(delay_ms: u64) -> LinkConfig {
    let mut link = LinkConfig::default();
    for channel in [&mut link.up, &mut link.down] {
        channel.delay = Duration::from_millis(delay_ms);
    }
    link
}

/// A far host behind a router, to which a mobile host's own link and two interfaces connect: 1, 2 and 3 ms away.
struct MobileNetwork {
    builder: SimulationBuilder<MobileApp>,
    mobile: HostId,
    interfaces: [HostId; 2],
    far: HostId,
    links: [LinkId; 3],
}

fn mobile_network(cpu: Option<CpuConfig>) -> MobileNetwork {
    let mut b = SimulationBuilder::new(IpVersion::V4, Seed::new(5));
    let [far, router] = [(); 2].map(|()| b.add_host(None).unwrap());
    let mobile = b.add_host(cpu).unwrap();
    let interfaces = [(); 2].map(|()| b.add_interface(mobile).unwrap());
    b.add_link(far, router, &delayed_link(10));
    let links = [mobile, interfaces[0], interfaces[1]];
    let mut delays = 1..;
    let links = links.map(|at| b.add_link(at, router, &delayed_link(delays.next().unwrap())));
    for (interface, link) in (0..).zip(links) {
        b.capture_link(link, true, interface);
    }
    MobileNetwork { builder: b, mobile, interfaces, far, links }
}

fn run_until(
    b: SimulationBuilder<MobileApp>,
    until: Instant,
) -> (Simulation<MobileApp, ReportLog<InterfaceReport>>, InterfacePackets) {
    let mut sim = b.build(ReportLog::default(), Some(Box::<InterfacePackets>::default()));
    sim.run_until(until);
    let packets = sim.take_tap().unwrap().into_any().downcast::<InterfacePackets>().unwrap();
    (sim, *packets)
}

fn ipv4_octets(host: HostId) -> [u8; 4] {
    [10, 0, 0, host.0 as u8 + 1]
}

#[test]
fn datagrams_arrive_at_each_address_and_answers_leave_by_it() {
    let mut w = mobile_network(None);
    let app = w.builder.add_application(w.mobile, MobileApp::Mobile, None);
    for (socket, at) in (0..).zip(w.interfaces) {
        w.builder.bind_udp_at(app, socket, at, 7).unwrap();
    }
    let flow = w.builder.add_application(w.far, MobileApp::Flow { to: w.interfaces, port: 7 }, None);
    let (sim, packets) = run_until(w.builder, at_secs(3));
    let [a, b] = w.interfaces;
    let ms = |n: u64| Instant::from_nanos(n * 1_000_000);
    let got = |socket, at| InterfaceReport::Datagram { destination: at, socket, from: w.far };
    let back = |from| InterfaceReport::Datagram { destination: w.far, socket: 0, from };
    let once = [(12, app, got(0, a)), (13, app, got(1, b)), (24, flow, back(a)), (26, flow, back(b))];
    let log: Vec<_> =
        sim.observer().0.iter().filter(|(.., said)| *said != InterfaceReport::Started).copied().collect();
    let expected: Vec<_> =
        [0, 1000].iter().flat_map(|s| once.map(|(t, app, said)| (ms(t + s), app, said))).collect();
    assert_eq!(log, expected);
    let sent: Vec<_> =
        [0, 1].map(|i| (i as u16 + 1, 17, ipv4_octets(w.interfaces[i]), ipv4_octets(w.far))).repeat(2);
    assert_eq!(packets.0, sent);
    assert_eq!(sim.host_stats(), Default::default());
    assert_eq!(w.links.map(|l| sim.link_stats(l).map(|s| s.offered)), [[0, 0], [2, 2], [2, 2]]);
}

#[test]
fn connections_and_associations_leave_by_their_local_address() {
    let mut w = mobile_network(None);
    let from = vec![w.mobile, w.interfaces[0], w.interfaces[1]];
    let caller =
        w.builder.add_application(w.mobile, MobileApp::Caller { from: from.clone(), to: w.far }, None);
    let called = w.builder.add_application(w.far, MobileApp::Acceptor, None);
    w.builder.listen_tcp(called, 80).unwrap();
    w.builder.listen_sctp(called, 9).unwrap();
    let (sim, packets) = run_until(w.builder, at_secs(3));
    let said: Vec<_> = sim.observer().0.iter().filter(|(_, app, _)| *app == called).map(|l| l.2).collect();
    let streams = from.iter().map(|h| InterfaceReport::Stream(*h));
    let associations = from.iter().map(|h| InterfaceReport::Association(*h));
    let texts = b"012abc".iter().map(|t| InterfaceReport::Text(*t));
    let expected: Vec<_> = streams.chain(associations).chain(texts).collect();
    assert!(expected.len() == said.len() && expected.iter().all(|e| said.contains(e)), "{said:?}");
    assert!(sim.observer().0.iter().all(|(_, app, _)| [caller, called].contains(app)));
    for (interface, host) in (0..).zip(from) {
        for protocol in [6, 132] {
            assert!(packets.0.contains(&(interface, protocol, ipv4_octets(host), ipv4_octets(w.far))));
        }
        assert!(
            packets
                .0
                .iter()
                .all(|p| p.0 != interface || (p.2, p.3) == (ipv4_octets(host), ipv4_octets(w.far)))
        );
    }
}

#[test]
fn connections_are_accepted_at_the_address_that_listens() {
    let mut w = mobile_network(None);
    let called = w.builder.add_application(w.mobile, MobileApp::Acceptor, None);
    w.builder.listen_at(called, w.interfaces[0], 80).unwrap();
    w.builder.listen_sctp_at(called, w.interfaces[1], 9).unwrap();
    for to in w.interfaces {
        w.builder.add_application(w.far, MobileApp::Caller { from: vec![w.far], to }, None);
    }
    let (sim, _) = run_until(w.builder, at_secs(3));
    let of = |app| sim.observer().0.iter().filter(|l| l.1 == app).map(|l| l.2).collect::<Vec<_>>();
    assert_eq!(
        of(0),
        [
            InterfaceReport::Stream(w.far),
            InterfaceReport::Text(b'0'),
            InterfaceReport::Association(w.far),
            InterfaceReport::Text(b'a')
        ]
    );
    // The first finds only TCP, the second only SCTP.
    assert_eq!(
        of(1),
        [InterfaceReport::Stream(w.interfaces[0]), InterfaceReport::Closed(CloseReason::Refused)]
    );
    assert_eq!(of(2), [InterfaceReport::Closed(CloseReason::Refused)]);
}

#[test]
fn a_host_knows_whose_its_own_connections_are() {
    let mut w = mobile_network(None);
    let asker = w.builder.add_application(w.mobile, MobileApp::Asker, None);
    w.builder.listen_at(asker, w.interfaces[0], 80).unwrap();
    w.builder.add_application(w.far, MobileApp::Caller { from: vec![w.far], to: w.interfaces[0] }, None);
    let (sim, _) = run_until(w.builder, at_secs(3));
    let told: Vec<_> = sim.observer().0.iter().filter(|l| l.1 == asker).map(|l| l.2).collect();
    let answers = [(1, None), (2, None), (0, Some(asker)), (3, None)];
    assert_eq!(told, answers.map(|(token, app)| InterfaceReport::Owner(token, app)));
}

#[test]
fn the_owner_works_for_its_interfaces() {
    let read = ServiceTime::Constant(Duration::from_millis(100));
    let core =
        CpuConfig { cores: 1, queue: 10, service: vec![(READ, read)], intake: BatchReceiveCost::default() };
    let mut w = mobile_network(Some(core));
    let app = w.builder.add_application(w.mobile, MobileApp::Mobile, None);
    for (socket, at) in (0..).zip(w.interfaces) {
        w.builder.bind_udp_at(app, socket, at, 7).unwrap();
    }
    w.builder.add_application(w.far, MobileApp::Flow { to: w.interfaces, port: 7 }, None);
    let (sim, _) = run_until(w.builder, Instant::from_nanos(900_000_000));
    let said: Vec<_> =
        sim.observer().0.iter().filter(|l| l.1 == app && l.2 != InterfaceReport::Started).collect();
    // One after the other, despite different interfaces.
    let times: Vec<u64> = said.iter().map(|l| l.0.as_nanos() / 1_000_000).collect();
    assert_eq!(times, [112, 212]);
    assert_eq!(sim.cpu_stats(w.mobile).unwrap().handled, 3);
}

#[test]
fn an_outage_of_the_owner_takes_its_interfaces_along() {
    let mut w = mobile_network(None);
    let app = w.builder.add_application(w.mobile, MobileApp::Mobile, None);
    for (socket, at) in (0..).zip(w.interfaces) {
        w.builder.bind_udp_at(app, socket, at, 7).unwrap();
    }
    let flow = w.builder.add_application(w.far, MobileApp::Flow { to: w.interfaces, port: 7 }, None);
    w.builder.add_outage(w.mobile, Instant::from_nanos(1), Instant::from_nanos(500_000_000));
    let (sim, _) = run_until(w.builder, at_secs(3));
    assert_eq!(sim.host_stats().host_down, 2);
    let started = sim.observer().0.iter().filter(|l| l.2 == InterfaceReport::Started).count();
    let answers = sim.observer().0.iter().filter(|l| l.1 == flow).count();
    assert_eq!((started, answers), (2, 2), "those of the second round come back");
}

#[test]
fn an_address_of_another_host_is_refused() {
    let mut w = mobile_network(None);
    let app = w.builder.add_application(w.mobile, MobileApp::Caller { from: vec![w.far], to: w.far }, None);
    let error = SimError::NoInterface { host: w.mobile.0, at: w.far.0 };
    assert_eq!(w.builder.bind_udp_at(app, 0, w.far, 7), Err(error.clone()));
    assert_eq!(w.builder.listen_at(app, w.far, 80), Err(error.clone()));
    assert_eq!(w.builder.listen_sctp_at(app, w.far, 80), Err(error));
    assert_eq!(w.builder.bind_udp_at(app, 0, w.interfaces[0], 7), Ok(()));
    let taken = SimError::PortTaken { host: w.interfaces[0].0, port: 7 };
    assert_eq!(w.builder.bind_udp_at(app, 1, w.interfaces[0], 7), Err(taken));
    let (sim, _) = run_until(w.builder, at_secs(1));
    let refused = InterfaceReport::Closed(CloseReason::Refused);
    assert_eq!(sim.observer().0, [(Instant::ZERO, app, refused), (Instant::ZERO, app, refused)]);
    // The two, and the write on the connection.
    assert_eq!(sim.host_stats().stale_operation, 3);
}
