//! The network seen by its applications: hosts, links, fragments, processors, connections.

use super::ReportLog;
use std::any::Any;
use usher_core::impair::{ChannelConfig, LossModel, QueueLimit};
use usher_core::{ConnId, Duration, Instant, Seed, WorkRecord};
use usher_sim::{
    AppContext, AppDelivery, Application, BatchReceiveCost, CpuConfig, HostId, IpVersion, LinkConfig,
    LinkFraming, PacketTap, Payload, ServiceTime, Simulation, SimulationBuilder, TcpStreamEvent,
};

usher_core::work_labels! {
    /// A packet returned.
    ECHO = "echo" per "packet";
}

/// Test applications.
#[derive(Debug)]
enum NetworkApp {
    /// Sends these payloads to a host's port at the start.
    Sender { to: HostId, port: u16, payloads: Vec<Payload> },
    /// Echoes each datagram, and charges one unit of work for it.
    Echo,
    /// Writes these bytes on a connection and closes it.
    Upload { to: HostId, bytes: Vec<u8> },
    /// Collects data of connections.
    Collect { got: Vec<u8>, closed: bool },
    /// Sends one frame out of its port.
    Frame,
}

/// Their report: the octets of a datagram or frame.
type PayloadReport = Vec<u8>;

impl Application for NetworkApp {
    type Report = PayloadReport;
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, PayloadReport>, delivery: AppDelivery) {
        match (self, delivery) {
            (Self::Sender { to, port, payloads }, AppDelivery::Start) => {
                for p in payloads.drain(..) {
                    ctx.send_datagram(0, *to, *port, p);
                }
            }
            (Self::Echo, AppDelivery::Datagram { from, from_port, payload, .. }) => {
                ctx.charge_work(WorkRecord { label: ECHO, units: 1 });
                ctx.send_datagram(0, from, from_port, payload);
            }
            (Self::Upload { to, bytes }, AppDelivery::Start) => {
                let conn = ConnId::nth_opened_connection(0);
                ctx.connect(conn, *to, 80);
                ctx.write(conn, Payload::copy_from_slice(bytes));
            }
            (Self::Upload { .. }, AppDelivery::Stream { conn, event: TcpStreamEvent::Connected { .. } }) => {
                ctx.shutdown(conn)
            }
            (Self::Collect { got, closed }, AppDelivery::Stream { event, .. }) => match event {
                TcpStreamEvent::Connected { .. } => {}
                TcpStreamEvent::Data(p) => got.extend_from_slice(p.as_slice()),
                TcpStreamEvent::Closed(_) => *closed = true,
            },
            (Self::Frame, AppDelivery::Start) => ctx.send_frame(0, Payload::copy_from_slice(b"frame")),
            (_, AppDelivery::Datagram { payload, .. } | AppDelivery::Frame { payload, .. }) => {
                ctx.report(payload.as_slice().to_vec());
            }
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
struct CapturedPackets(Vec<(bool, Vec<u8>)>);
impl PacketTap for CapturedPackets {
    fn capture_packet(&mut self, _: Instant, _: u16, outward: bool, bytes: &[u8]) {
        self.0.push((outward, bytes.to_vec()));
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

fn at_millis(n: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(n)
}
fn delayed_channel(rate: Option<u64>, delay_ms: u64) -> ChannelConfig {
    ChannelConfig { rate, delay: Duration::from_millis(delay_ms), ..Default::default() }
}
fn symmetric_link(channel: ChannelConfig) -> LinkConfig {
    LinkConfig { up: channel.clone(), down: channel, ..Default::default() }
}
fn test_builder(version: IpVersion) -> SimulationBuilder<NetworkApp> {
    SimulationBuilder::new(version, Seed::new(7))
}

/// A sender, a router and an echo: payloads travel over a first link of 1500 B and a second of `mtu`.
fn through_router(
    version: IpVersion,
    mtu: u32,
    payload: Payload,
    loss: LossModel,
) -> Simulation<NetworkApp, ReportLog<PayloadReport>> {
    let mut b = test_builder(version);
    let [a, r, s] = [(); 3].map(|()| b.add_host(None).unwrap());
    b.add_link(a, r, &symmetric_link(delayed_channel(None, 1)));
    let mut narrow = LinkConfig { mtu, ..symmetric_link(delayed_channel(None, 1)) };
    narrow.up.loss = loss;
    b.add_link(r, s, &narrow);
    b.add_application(a, NetworkApp::Sender { to: s, port: 7, payloads: vec![payload] }, None);
    let echo = b.add_application(s, NetworkApp::Echo, None);
    b.bind_udp(echo, 0, 7).unwrap();
    let mut sim = b.build(ReportLog::default(), None);
    sim.run_until(at_millis(40_000));
    sim
}

#[test]
fn a_datagram_crosses_a_router_and_comes_back() {
    let sim = through_router(IpVersion::V4, 1500, Payload::copy_from_slice(b"hello"), LossModel::None);
    assert_eq!(sim.observer().0, [(at_millis(4), 0, b"hello".to_vec())]);
    assert_eq!(sim.packet_hops(), 4);
}

#[test]
fn routers_fragment_ipv4_and_hosts_put_it_together() {
    let bytes: Vec<u8> = (0..1400u32).map(|i| i as u8).collect();
    let sim = through_router(IpVersion::V4, 576, Payload::copy_from_slice(&bytes), LossModel::None);
    assert_eq!(sim.observer().0, [(at_millis(4), 0, bytes)]);
    // 1408 B of datagram in 552 + 552 + 304; the echo is fragmented at its source.
    assert_eq!(sim.packet_hops(), 1 + 3 + 3 + 3);
    assert_eq!(sim.host_stats().fragmented, 2);
}

#[test]
fn a_source_fragments_ipv6() {
    let mut b = test_builder(IpVersion::V6);
    let [a, s] = [(); 2].map(|()| b.add_host(None).unwrap());
    b.add_link(a, s, &LinkConfig { mtu: 1280, ..symmetric_link(delayed_channel(None, 1)) });
    let bytes: Vec<u8> = (0..1400u32).map(|i| i as u8).collect();
    b.add_application(
        a,
        NetworkApp::Sender { to: s, port: 7, payloads: vec![Payload::copy_from_slice(&bytes)] },
        None,
    );
    let echo = b.add_application(s, NetworkApp::Echo, None);
    b.bind_udp(echo, 0, 7).unwrap();
    let mut sim = b.build(ReportLog::default(), None);
    sim.run_until(at_millis(100));
    // 1408 octets of datagram in 1232 and 176, there and back: 1280 less 40 of header and 8 of fragment header.
    assert_eq!((sim.observer().0.clone(), sim.packet_hops()), (vec![(at_millis(2), 0, bytes)], 4));
    assert_eq!((sim.host_stats().fragmented, sim.host_stats().too_big), (2, 0));
}

#[test]
fn each_fate_of_a_packet_is_counted_with_its_octets() {
    let stats = |up: ChannelConfig, port: u16| {
        let mut b = test_builder(IpVersion::V4);
        let [a, s] = [(); 2].map(|()| b.add_host(None).unwrap());
        let l = b.add_link(a, s, &LinkConfig { up, framing: LinkFraming::Ethernet, ..LinkConfig::default() });
        let payloads = [100, 200, 300, 400].map(Payload::with_length).into();
        b.add_application(a, NetworkApp::Sender { to: s, port, payloads }, None);
        let mut sim = b.build(ReportLog::default(), None);
        sim.run_until(at_millis(60_000));
        let [there, back] = sim.link_stats(l);
        assert_eq!((back.offered, back.offered_bytes), (0, 0));
        // Headers of UDP, IP and Ethernet, and the check sequence.
        assert_eq!((there.offered, there.offered_bytes), (4, 1000 + 4 * (8 + 20 + 18)));
        there
    };
    let fine = stats(ChannelConfig::default(), 7);
    assert_eq!(
        (fine.queue_full, fine.lost, fine.dropped_bytes, fine.duplicated, fine.corrupted),
        (0, 0, 0, 0, 0)
    );
    assert_eq!((fine.background, fine.background_bytes), (0, 0));
    let loads = stats(ChannelConfig::default(), usher_sim::DISCARD_PORT);
    assert_eq!((loads.background, loads.background_bytes), (loads.offered, loads.offered_bytes));
    let lossy = stats(ChannelConfig { loss: LossModel::Script(vec![1, 3]), ..ChannelConfig::default() }, 7);
    assert_eq!((lossy.queue_full, lossy.lost, lossy.dropped_bytes), (0, 2, 600 + 2 * 46));
    // One is on the link and one is queued; the others are dropped.
    let narrow =
        ChannelConfig { rate: Some(1_000_000), queue: QueueLimit::Packets(1), ..ChannelConfig::default() };
    let narrow = stats(narrow, 7);
    assert_eq!((narrow.queue_full, narrow.lost, narrow.dropped_bytes), (2, 0, 700 + 2 * 46));
    let twice = stats(ChannelConfig { duplicate: 1.0, ..ChannelConfig::default() }, 7);
    let damaged = stats(ChannelConfig { corrupt: 1.0, ..ChannelConfig::default() }, 7);
    assert_eq!([twice.duplicated, twice.corrupted, damaged.duplicated, damaged.corrupted], [4, 0, 0, 4]);
}

#[test]
fn routers_do_not_fragment_ipv6() {
    let sim = through_router(IpVersion::V6, 1280, Payload::with_length(1400), LossModel::None);
    assert!(sim.observer().0.is_empty());
    assert_eq!(sim.host_stats().too_big, 1);
}

#[test]
fn a_lost_fragment_loses_the_datagram() {
    let sim = through_router(IpVersion::V4, 576, Payload::with_length(1400), LossModel::Script(vec![1]));
    assert!(sim.observer().0.is_empty());
}

#[test]
fn what_nobody_wants_is_counted() {
    let mut b = test_builder(IpVersion::V4);
    let [a, s, far] = [(); 3].map(|()| b.add_host(None).unwrap());
    b.add_link(a, s, &LinkConfig::default());
    let _ = far;
    let to_nobody = |to| NetworkApp::Sender { to, port: 99, payloads: vec![Payload::with_length(1)] };
    b.add_application(a, to_nobody(s), None);
    b.add_application(far, to_nobody(a), None);
    let mut sim = b.build(ReportLog::default(), None);
    sim.run_until(at_millis(1));
    assert_eq!((sim.host_stats().udp_no_port, sim.host_stats().no_route), (1, 1));
}

#[test]
fn a_busy_processor_queues_and_drops() {
    let mut b = test_builder(IpVersion::V4);
    let a = b.add_host(None).unwrap();
    let cpu = CpuConfig {
        cores: 2,
        queue: 2,
        service: vec![(ECHO, ServiceTime::Constant(Duration::from_millis(10)))],
        intake: BatchReceiveCost::default(),
    };
    let s = b.add_host(Some(cpu)).unwrap();
    b.add_link(a, s, &LinkConfig::default());
    let payloads = (0..6u8).map(|i| Payload::copy_from_slice(&[i])).collect();
    b.add_application(a, NetworkApp::Sender { to: s, port: 7, payloads }, None);
    let echo = b.add_application(s, NetworkApp::Echo, None);
    b.bind_udp(echo, 0, 7).unwrap();
    let mut sim = b.build(ReportLog::default(), None);
    sim.run_until(at_millis(100));
    let answers: Vec<_> = sim.observer().0.iter().map(|(t, _, r)| (*t, r[0])).collect();
    assert_eq!(answers, [(at_millis(10), 0), (at_millis(10), 1), (at_millis(20), 2), (at_millis(20), 3)]);
    let stats = sim.cpu_stats(s).unwrap();
    assert_eq!((stats.dropped, stats.busy_ns, stats.waited_ns), (2, 40_000_000, 20_000_000));
}

#[test]
fn what_waits_is_taken_in_together() {
    let mut b = test_builder(IpVersion::V4);
    let a = b.add_host(None).unwrap();
    let ms_of = Duration::from_millis;
    let intake = BatchReceiveCost { wakeup: ms_of(3), batch: ms_of(2), most: 3 };
    let service = vec![(ECHO, ServiceTime::Constant(ms_of(10)))];
    let s = b.add_host(Some(CpuConfig { cores: 1, queue: 10, service, intake })).unwrap();
    b.add_link(a, s, &LinkConfig::default());
    let payloads = (0..6u8).map(|i| Payload::copy_from_slice(&[i])).collect();
    b.add_application(a, NetworkApp::Sender { to: s, port: 7, payloads }, None);
    let echo = b.add_application(s, NetworkApp::Echo, None);
    b.bind_udp(echo, 0, 7).unwrap();
    let mut sim = b.build(ReportLog::default(), None);
    sim.run_until(at_millis(200));
    let answers: Vec<_> = sim.observer().0.iter().map(|(t, ..)| *t).collect();
    // The first finds the core idle; then a batch of three, and then one of two.
    assert_eq!(answers, [15, 27, 37, 47, 59, 69].map(at_millis));
    assert_eq!(sim.cpu_stats(s).unwrap().busy_ns, 69_000_000);
}

#[test]
fn frames_go_one_hop_and_are_captured_as_they_are() {
    let mut b = test_builder(IpVersion::V4);
    let [a, s] = [(); 2].map(|()| b.add_host(None).unwrap());
    let l = b.add_link(a, s, &LinkConfig { framing: LinkFraming::Ethernet, ..Default::default() });
    b.capture_link(l, false, 3);
    b.add_application(a, NetworkApp::Frame, None);
    let collect = b.add_application(s, NetworkApp::Collect { got: Vec::new(), closed: false }, None);
    b.take_frames(collect);
    let mut sim = b.build(ReportLog::default(), Some(Box::<CapturedPackets>::default()));
    sim.run_until(at_millis(1));
    assert_eq!(sim.observer().0, [(Instant::ZERO, 1, b"frame".to_vec())]);
    let packets = sim.take_tap().unwrap().into_any().downcast::<CapturedPackets>().unwrap();
    assert_eq!(packets.0, [(false, b"frame".to_vec())]);
    // On the link it is longer by its check sequence.
    assert_eq!(sim.link_stats(l)[0].offered_bytes, 5 + 4);
}

fn run_upload(seed: u64, loss: f64, slow: bool) -> Simulation<NetworkApp, ReportLog<PayloadReport>> {
    upload_until(seed, loss, slow, at_millis(600_000))
}

fn upload_until(
    seed: u64,
    loss: f64,
    slow: bool,
    until: Instant,
) -> Simulation<NetworkApp, ReportLog<PayloadReport>> {
    let mut b = SimulationBuilder::new(IpVersion::V4, Seed::new(seed));
    let [a, s] = [(); 2].map(|()| b.add_host(None).unwrap());
    let mut config = delayed_channel(Some(10_000_000), 5);
    config.queue = QueueLimit::Packets(20);
    config.loss = if loss > 0.0 { LossModel::Bernoulli(loss) } else { LossModel::None };
    b.add_link(a, s, &symmetric_link(config));
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i / 7) as u8).collect();
    b.add_application(a, NetworkApp::Upload { to: s, bytes }, None);
    let collect = b.add_application(s, NetworkApp::Collect { got: Vec::new(), closed: false }, None);
    b.listen_tcp(collect, 80).unwrap();
    if slow {
        b.limit_read_rate(collect, 100_000, None);
    }
    let mut sim = b.build(ReportLog::default(), None);
    sim.run_until(until);
    sim
}

#[test]
fn data_counts_when_sent_and_stays_counted_after_the_close() {
    let mut sim = run_upload(1, 0.0, false);
    // 300,000 octets in 206 segments of up to 1460, each with 40 of headers, and retransmissions of full ones that
    // the queue dropped; acknowledgements carry none.
    let sent = |sim: &Simulation<NetworkApp, ReportLog<PayloadReport>>| {
        let totals = sim.tcp_totals();
        (totals.data_segments, totals.data_octets, totals.data_packet_octets)
    };
    let again = sim.tcp_totals().retransmitted;
    let (segments, octets) = (206 + again, 300_000 + again * 1460);
    assert_eq!(sent(&sim), (segments, octets, octets + segments * 40));
    assert!(collected_bytes(&sim).1, "closed");
    // During it the connection is open.
    sim = upload_until(1, 0.0, false, at_millis(100));
    assert!(!collected_bytes(&sim).1 && sent(&sim).0 > 50 && sent(&sim).0 < 206, "{:?}", sent(&sim));
    let (segments, octets, packets) = sent(&sim);
    assert_eq!((octets, packets), (segments * 1460, segments * 1500));
}

fn collected_bytes(sim: &Simulation<NetworkApp, ReportLog<PayloadReport>>) -> (&[u8], bool) {
    sim.applications()
        .find_map(|a| match a {
            NetworkApp::Collect { got, closed } => Some((&got[..], *closed)),
            _ => None,
        })
        .unwrap()
}

#[test]
fn a_stream_survives_loss_and_its_run_repeats() {
    for (loss, slow) in [(0.0, false), (0.05, false), (0.0, true)] {
        let sim = run_upload(1, loss, slow);
        let (got, closed) = collected_bytes(&sim);
        assert_eq!(got.len(), 300_000, "loss {loss}, slow {slow}");
        assert!(got.iter().enumerate().all(|(i, b)| *b == (i / 7) as u8) && closed);
        let again = run_upload(1, loss, slow);
        assert_eq!((sim.event_count(), sim.tcp_totals()), (again.event_count(), again.tcp_totals()));
        assert!(sim.tcp_totals().retransmitted > 0 || loss == 0.0);
    }
}
