//! BBR in whole connections over a bottleneck of 10 Mb/s and 20 ms each way.

use super::*;
use std::collections::BTreeMap;
use usher_core::Seed;
use usher_core::impair::{Channel, ChannelConfig, LossModel, PacketOutcome, QueueLimit};

/// A bulk sender, its receiver and the path between them.
struct BulkTransfer {
    sides: [TcpConnection; 2],
    out: [Channel; 2],
    arrivals: BTreeMap<(Instant, u64), (usize, Segment)>,
    now: Instant,
    order: u64,
    received: u64,
    /// Times and lengths of the sender's segments.
    departures: Vec<(Instant, u32)>,
}

impl BulkTransfer {
    /// The queue holds `queue` packets of 1040 octets; the bottleneck's bandwidth-delay product is 48.
    fn new(congestion: CongestionControl, queue: usize, loss: f64) -> Self {
        let config = Arc::new(TcpConfig {
            congestion,
            recovery: LossRecoveryAlgorithm::Sack,
            window_scale: Some(8),
            receive_buffer: 10_000_000,
            delayed_ack: None,
            min_rto: Duration::from_millis(200),
            ..super::test_config()
        });
        let delay = Duration::from_millis(20);
        let queue = QueueLimit::Packets(queue);
        let data = ChannelConfig {
            rate: Some(10_000_000),
            delay,
            queue,
            loss: LossModel::Bernoulli(loss),
            ..Default::default()
        };
        let acks = ChannelConfig { delay, ..Default::default() };
        let stream = |i| Seed::new(7).derive_rng("channel", i);
        let mut client = TcpConnection::connect(config.clone(), 5, Instant::ZERO);
        let syn = client.poll_transmit(Instant::ZERO).unwrap();
        let server = TcpConnection::accept(config, 9, &syn, Instant::ZERO).unwrap();
        let mut path = Self {
            sides: [client, server],
            out: [Channel::new(data, stream(0)), Channel::new(acks, stream(1))],
            arrivals: BTreeMap::new(),
            now: Instant::ZERO,
            order: 0,
            received: 0,
            departures: Vec::new(),
        };
        path.drain_side(1);
        path
    }
    fn write(&mut self, n: u32) {
        self.sides[0].write(StreamData::Count(n)).unwrap();
        self.drain_side(0);
    }
    fn drain_side(&mut self, i: usize) {
        while let Some(event) = self.sides[i].poll_event() {
            if let TcpEvent::Data { len, .. } = event {
                self.received += u64::from(len);
            }
        }
        while let Some(s) = self.sides[i].poll_transmit(self.now) {
            if i == 0 && s.len > 0 {
                self.departures.push((self.now, s.len));
            }
            if let PacketOutcome::Delivered { arrives, .. } =
                self.out[i].offer_packet(self.now, s.wire_len() + 20)
            {
                self.order += 1;
                self.arrivals.insert((arrives, self.order), (1 - i, s));
            }
        }
    }
    fn run_to(&mut self, to: Instant) {
        loop {
            let timer = (0..2).filter_map(|i| Some((self.sides[i].poll_timeout()?, i))).min();
            let arrival = self.arrivals.first_key_value().map(|(k, _)| k.0);
            let Some(next) = timer.map(|t| t.0).into_iter().chain(arrival).min().filter(|at| *at <= to)
            else {
                self.now = to;
                return;
            };
            assert!(next >= self.now, "time goes on");
            self.now = next;
            if arrival == Some(next) {
                let (i, s) = self.arrivals.pop_first().unwrap().1;
                self.sides[i].handle_segment(next, &s);
                self.drain_side(i);
            } else if let Some((_, i)) = timer {
                self.sides[i].handle_timeout(next);
                self.drain_side(i);
            }
        }
    }
    /// Returns the received data in Mb/s between two times in seconds.
    fn measure_goodput(&mut self, from: u64, to: u64) -> f64 {
        self.run_to(at_millis(1000 * from));
        let before = self.received;
        self.run_to(at_millis(1000 * to));
        (self.received - before) as f64 * 8e-6 / (to - from) as f64
    }
    fn start_bulk(congestion: CongestionControl, queue: usize, loss: f64) -> Self {
        let mut path = Self::new(congestion, queue, loss);
        path.write(200_000_000);
        path
    }
}

/// Maximum data rate at 10 Mb/s with 40 octets of headers per 1000.
const ALL: f64 = 10.0 / 1.04;

#[test]
fn it_fills_the_bottleneck_and_not_its_queue() {
    let mut bbr = BulkTransfer::start_bulk(CongestionControl::Bbr, 500, 0.0);
    let goodput = bbr.measure_goodput(2, 9);
    assert!(goodput > 0.95 * ALL, "{goodput}");
    // The path has 40 ms, and the queue at most 400 ms.
    let srtt = bbr.sides[0].srtt().unwrap();
    assert!(srtt < Duration::from_millis(60), "{srtt}");
    assert_eq!(bbr.sides[0].stats().retransmitted, 0);
    let mut reno = BulkTransfer::start_bulk(CongestionControl::Reno, 500, 0.0);
    reno.measure_goodput(2, 9);
    assert!(reno.sides[0].srtt().unwrap() > Duration::from_millis(200));
}

/// Draft-cardwell-iccrg-bbr-congestion-control-00, 4.3.2: the pacing rate of start-up follows the measured
/// bandwidth.
#[test]
fn start_up_finds_the_bandwidth_within_ten_round_trips() {
    // The initial window in a round trip of 40 ms, times 2.885, is 0.72 MB/s.
    let mut path = BulkTransfer::start_bulk(CongestionControl::Bbr, 500, 0.0);
    path.run_to(at_millis(400));
    let bandwidth = path.sides[0].congestion.bbr().unwrap().bandwidth() as f64 / 1e6;
    assert!((1.19..=1.22).contains(&bandwidth), "{bandwidth}");
}

#[test]
fn it_measures_the_path() {
    let mut path = BulkTransfer::start_bulk(CongestionControl::Bbr, 500, 0.0);
    path.run_to(at_millis(5000));
    let bbr = path.sides[0].congestion.bbr().unwrap();
    // 1.25 MB/s of packets carry 1.202 MB/s of data.
    let bandwidth = bbr.bandwidth() as f64 / 1e6;
    assert!((1.19..=1.22).contains(&bandwidth), "{bandwidth}");
    // 40 ms of path and 0.832 ms on the medium.
    assert_eq!(bbr.min_rtt().as_micros(), 40_832);
    // Two products of 49.1 kB and three segments.
    assert!((100_000..=103_000).contains(&path.sides[0].cwnd()), "{}", path.sides[0].cwnd());
}

#[test]
fn random_loss_does_not_slow_it() {
    let share = |congestion| BulkTransfer::start_bulk(congestion, 100, 0.02).measure_goodput(2, 12) / ALL;
    let (bbr, cubic) = (share(CongestionControl::Bbr), share(CongestionControl::Cubic));
    // 0.98 arrive; CUBIC has about 1.22 / sqrt(0.02) = 8.6 segments of the 48.
    assert!(bbr > 0.85, "{bbr}");
    assert!(cubic < 0.35, "{cubic}");
}

#[test]
fn segments_leave_at_the_pace_of_the_bottleneck() {
    let mut path = BulkTransfer::start_bulk(CongestionControl::Bbr, 500, 0.0);
    path.run_to(at_millis(4000));
    path.departures.clear();
    path.run_to(at_millis(8000));
    let mut gaps: Vec<u64> = path.departures.windows(2).map(|w| (w[1].0 - w[0].0).as_micros()).collect();
    gaps.sort_unstable();
    // 832 µs at gain 1, which six of eight phases have; 666 and 1109 in the others.
    let (least, middle) = (gaps[gaps.len() / 100], gaps[gaps.len() / 2]);
    assert!((820..=840).contains(&middle), "{middle}");
    assert!((650..=680).contains(&least), "{least}");
}

#[test]
fn after_ten_seconds_bbr_probes_the_round_trip_by_four_segments() {
    let mut path = BulkTransfer::start_bulk(CongestionControl::Bbr, 500, 0.0);
    let mut at_least = Vec::new();
    for t in 0..1300 {
        path.run_to(at_millis(10 * t));
        if t > 100 && path.sides[0].cwnd() == 4000 {
            at_least.push(10 * t);
        }
    }
    let (first, last) = (at_least[0], *at_least.last().unwrap());
    assert!((10_000..=12_500).contains(&first), "{first}");
    assert!((200..=300).contains(&(last - first)), "{first} to {last}");
    assert!(path.measure_goodput(13, 15) > 0.95 * ALL, "and comes back to its window");
}

#[test]
fn an_application_below_the_rate_does_not_lower_it() {
    let mut path = BulkTransfer::new(CongestionControl::Bbr, 500, 0.0);
    path.write(3_000_000);
    path.run_to(at_millis(4000));
    let before = path.sides[0].congestion.bbr().unwrap().bandwidth();
    for i in 0..100 {
        path.write(200);
        path.run_to(at_millis(4000 + 50 * i));
    }
    let bbr = path.sides[0].congestion.bbr().unwrap();
    assert_eq!(bbr.bandwidth(), before);
    assert!(!bbr.is_waiting, "a dialogue is not held up by the pace");
}

#[test]
fn a_shallow_queue_costs_retransmissions_but_not_the_rate() {
    // Start-up and each bandwidth probe exceed a queue of ten packets.
    let mut path = BulkTransfer::start_bulk(CongestionControl::Bbr, 10, 0.0);
    let goodput = path.measure_goodput(3, 9);
    assert!(goodput > 0.8 * ALL, "{goodput}");
    assert!(path.sides[0].stats().retransmitted > 50);
}

#[test]
fn retransmissions_are_paced_even_without_new_data() {
    let mut s = ScriptedConnection::connect(TcpConfig {
        congestion: CongestionControl::Bbr,
        recovery: LossRecoveryAlgorithm::Sack,
        initial_window: InitialWindow::Segments(8),
        ..test_config()
    });
    s.run_to(100);
    s.inject_segment("S. 0:0(0) ack 1 <mss 1000,sackOK>");
    s.write(8000);
    s.run_to(200);
    assert_eq!(s.c.bytes_in_flight(), 8000);
    s.sent.clear();
    // The first two are lost; the acknowledgement of the others arrives at once.
    for until in (3001..=8001).step_by(1000) {
        s.inject_segment(&format!(". 1:1(0) ack 1 <sack 2001:{until}>"));
    }
    s.run_to(300);
    // The initial window in 100 ms, times 2.885: a segment takes 4.3 ms.
    s.expect_sent(&["200 . 1:1001(1000) ack 1", "204 . 1001:2001(1000) ack 1"]);
}
