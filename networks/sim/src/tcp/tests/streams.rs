//! Whole connections over impaired channels, and invalid input.

use super::codec::any_options;
use super::connection::RareTcpEventState;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use usher_core::impair::{Channel, ChannelConfig, LossModel, PacketOutcome};
use usher_core::{Seed, SimulationRng};

/// An end: its connection, its data to write, its data read.
struct StreamSide {
    c: Option<TcpConnection>,
    out: Channel,
    unsent: Vec<u8>,
    got: Vec<u8>,
    manual: bool,
    events: Vec<TcpEvent>,
}

enum StreamEvent {
    Arrival(usize, Segment),
    Read(usize),
}

/// Two connections and the channel between them, in virtual time.
struct ConnectionPair {
    sides: [StreamSide; 2],
    config: Arc<TcpConfig>,
    iss: u32,
    now: Instant,
    queue: BTreeMap<(Instant, u64), StreamEvent>,
    order: u64,
    rng: SimulationRng,
}

impl ConnectionPair {
    fn new(seed: u64, config: TcpConfig, channel: &ChannelConfig, data: [Vec<u8>; 2], manual: bool) -> Self {
        let seed = Seed::new(seed);
        let config = Arc::new(config);
        let mut rng = seed.derive_rng("application", 0);
        let iss = rng.next_u64() as u32;
        let mut n = 0;
        let sides = data.map(|unsent| {
            n += 1;
            let out = Channel::new(channel.clone(), seed.derive_rng("channel", n));
            StreamSide { c: None, out, unsent, got: Vec::new(), manual, events: Vec::new() }
        });
        Self { sides, config, iss, now: Instant::ZERO, queue: BTreeMap::new(), order: 0, rng }
    }
    fn push_event(&mut self, at: Instant, what: StreamEvent) {
        self.order += 1;
        self.queue.insert((at, self.order), what);
    }
    /// Runs the application, then sends the segments.
    fn drain_side(&mut self, i: usize) {
        let now = self.now;
        loop {
            let side = &mut self.sides[i];
            let Some(c) = &mut side.c else { return };
            let Some(event) = c.poll_event() else { break };
            match &event {
                TcpEvent::Data { len, payload } => {
                    let payload = payload.as_deref().expect("bytes were written");
                    assert_eq!(payload.len() as u32, *len);
                    side.got.extend_from_slice(payload);
                }
                TcpEvent::Connected => {
                    while !side.unsent.is_empty() {
                        let n = 1 + self.rng.sample_below(3000).min(side.unsent.len() as u64 - 1) as usize;
                        let chunk: Vec<u8> = side.unsent.drain(..n).collect();
                        c.write(StreamData::Bytes(&chunk)).unwrap();
                    }
                    c.shutdown();
                }
                TcpEvent::PeerClosed | TcpEvent::Closed(_) => {}
            }
            side.events.push(event);
        }
        if self.sides[i].manual && self.sides[i].c.as_ref().is_some_and(|c| c.bytes_unread() > 0) {
            let at = now + Duration::from_millis(1 + self.rng.sample_below(20));
            self.push_event(at, StreamEvent::Read(i));
        }
        while let Some(s) = self.sides[i].c.as_mut().and_then(|c| c.poll_transmit(now)) {
            let mut bytes = Vec::new();
            s.encode_into(1, 2, &mut bytes);
            let s = Segment::parse(&bytes).unwrap().2;
            if let PacketOutcome::Delivered { arrives, corrupted: false, duplicate_arrives: again, .. } =
                self.sides[i].out.offer_packet(now, s.wire_len() + 20)
            {
                if let Some(again) = again {
                    self.push_event(again, StreamEvent::Arrival(1 - i, s.clone()));
                }
                self.push_event(arrives, StreamEvent::Arrival(1 - i, s));
            }
        }
    }
    fn deliver_segment(&mut self, i: usize, s: &Segment) {
        let side = &mut self.sides[i];
        match &mut side.c {
            Some(c) => c.handle_segment(self.now, s),
            None => {
                side.c = TcpConnection::accept(self.config.clone(), self.iss.wrapping_mul(7), s, self.now);
                if let Some(c) = &mut side.c {
                    c.set_auto_read(!side.manual);
                }
            }
        }
    }
    /// Runs until no event is left.
    fn run_to_end(&mut self) {
        let mut c = TcpConnection::connect(self.config.clone(), self.iss, self.now);
        c.set_auto_read(!self.sides[0].manual);
        self.sides[0].c = Some(c);
        self.drain_side(0);
        for step in 0.. {
            assert!(
                step < 200_000,
                "no end: {:?}",
                self.sides.each_ref().map(|s| s.c.as_ref().map(|c| c.state()))
            );
            let timer = (0..2).filter_map(|i| Some((self.sides[i].c.as_ref()?.poll_timeout()?, i))).min();
            let next = self.queue.first_key_value().map(|(k, _)| k.0);
            if let Some((at, i)) = timer.filter(|(at, _)| next.is_none_or(|n| *at < n)) {
                self.now = self.now.max(at);
                self.sides[i].c.as_mut().unwrap().handle_timeout(self.now);
                self.drain_side(i);
                continue;
            }
            let Some(((at, _), what)) = self.queue.pop_first() else { return };
            self.now = at;
            match what {
                StreamEvent::Arrival(i, s) => {
                    self.deliver_segment(i, &s);
                    self.drain_side(i);
                }
                StreamEvent::Read(i) => {
                    let n = self.rng.sample_below(4000) as u32;
                    if let Some(c) = &mut self.sides[i].c {
                        c.grant_credit(n);
                    }
                    self.drain_side(i);
                }
            }
        }
    }
}

fn any_config() -> impl Strategy<Value = TcpConfig> {
    let recovery = prop_oneof![
        Just(LossRecoveryAlgorithm::Reno),
        Just(LossRecoveryAlgorithm::NewReno),
        Just(LossRecoveryAlgorithm::Sack)
    ];
    let delayed = prop_oneof![
        Just(None),
        Just(Some(DelayedAck::default())),
        Just(Some(DelayedAck { every: AckThreshold::FullSized(2), ..Default::default() }))
    ];
    let congestion = prop_oneof![
        Just(CongestionControl::Reno),
        Just(CongestionControl::Cubic),
        Just(CongestionControl::Bbr)
    ];
    let laws = (recovery, congestion);
    (laws, delayed, any::<[bool; 4]>(), 300u16..1500, 1u32..12, 1000u32..40_000).prop_map(
        |(laws, delayed_ack, [nagle, limited_transmit, timestamps, scale], mss, iw, receive_buffer)| {
            TcpConfig {
                recovery: laws.0,
                congestion: laws.1,
                delayed_ack,
                nagle,
                limited_transmit,
                timestamps,
                window_scale: scale.then_some(4),
                mss,
                initial_window: InitialWindow::Segments(iw),
                receive_buffer: receive_buffer.max(u32::from(mss)),
                min_rto: Duration::from_millis(200),
                max_rto: Duration::from_secs(10),
                max_retransmissions: None,
                max_syn_retransmissions: None,
                time_wait: Duration::from_secs(900),
                ..TcpConfig::default()
            }
        },
    )
}

fn pattern_bytes(n: usize, salt: usize) -> Vec<u8> {
    (0..n).map(|i| ((i + salt) * 31 % 251) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_stream_arrives_whole_and_every_connection_ends(
        seed: u64,
        config in any_config(),
        (loss, duplicate, reorder, corrupt) in (0.0..0.3f64, 0.0..0.2f64, 0.0..0.3f64, 0.0..0.1f64),
        sizes in (0usize..40_000, 0usize..40_000),
        manual: bool,
    ) {
        let channel = ChannelConfig {
            rate: Some(2_000_000),
            delay: Duration::from_millis(15),
            jitter: Duration::from_millis(5),
            loss: LossModel::Bernoulli(loss),
            duplicate,
            reorder,
            reorder_delay: Duration::from_millis(30),
            corrupt,
            ..Default::default()
        };
        let data = [pattern_bytes(sizes.0, 1), pattern_bytes(sizes.1, 2)];
        let mut pair = ConnectionPair::new(seed, config, &channel, data.clone(), manual);
        pair.run_to_end();
        for (i, side) in pair.sides.iter().enumerate() {
            prop_assert!(side.got == data[1 - i], "side {} got {} of {} bytes", i, side.got.len(), data[1 - i].len());
            prop_assert!(side.c.as_ref().is_some_and(|c| c.is_closed()));
            let closed = side.events.iter().filter(|e| matches!(e, TcpEvent::Closed(_))).count();
            prop_assert_eq!((closed, side.events.first()), (1, Some(&TcpEvent::Connected)));
            prop_assert_eq!(side.events.last(), Some(&TcpEvent::Closed(CloseReason::Closed)));
        }
    }

    #[test]
    fn without_impairment_nothing_is_sent_twice(
        seed: u64,
        config in any_config(),
        sizes in (0usize..40_000, 0usize..40_000),
        manual: bool,
    ) {
        let channel = ChannelConfig { delay: Duration::from_millis(15), ..Default::default() };
        // A delayed acknowledgement may come after 230 ms, later than the shortest timeout of the others.
        let config = TcpConfig { min_rto: Duration::from_millis(500), ..config };
        let data = [pattern_bytes(sizes.0, 1), pattern_bytes(sizes.1, 2)];
        let mut pair = ConnectionPair::new(seed, config, &channel, data.clone(), manual);
        pair.run_to_end();
        for (i, side) in pair.sides.iter().enumerate() {
            prop_assert!(side.got == data[1 - i]);
            let stats = side.c.as_ref().unwrap().stats();
            prop_assert_eq!((stats.retransmitted, stats.timeouts, stats.out_of_order), (0, 0, 0));
        }
    }
}

/// Any action on a connection.
#[derive(Clone, Debug)]
enum ConnectionAction {
    Segment(Segment),
    Pass(u64),
    Write(u32),
    WriteBytes(Vec<u8>),
    Read(u32),
    AutoRead(bool),
    Shutdown,
    Abort,
}

fn any_action() -> impl Strategy<Value = ConnectionAction> {
    let near = || prop_oneof![9 => 0u32..5000, 1 => any::<u32>()];
    let payload = prop_oneof![Just(None), (0usize..1500).prop_map(|n| Some(Arc::from(vec![7u8; n])))];
    let flags = prop_oneof![6 => Just(SegmentFlags::ACK), 1 => any::<u8>().prop_map(SegmentFlags)];
    let segment = (near(), near(), near(), any::<u16>(), flags, any_options(), payload, any::<bool>())
        .prop_map(|(seq, ack, len, window, flags, options, payload, honest)| {
            let len = payload.as_ref().filter(|_| honest).map_or(len, |p: &Arc<[u8]>| p.len() as u32);
            ConnectionAction::Segment(Segment { seq, ack, len, window, flags, options, payload })
        });
    prop_oneof![
        12 => segment,
        3 => (0u64..70_000).prop_map(ConnectionAction::Pass),
        3 => prop_oneof![0u32..5000, any::<u32>()].prop_map(ConnectionAction::Write),
        2 => proptest::collection::vec(any::<u8>(), 0..3000).prop_map(ConnectionAction::WriteBytes),
        2 => any::<u32>().prop_map(ConnectionAction::Read),
        1 => any::<bool>().prop_map(ConnectionAction::AutoRead),
        1 => Just(ConnectionAction::Shutdown),
        1 => Just(ConnectionAction::Abort),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_segments_never_panic_nor_run_on(
        config in any_config(),
        open: bool,
        acts in proptest::collection::vec(any_action(), 1..60),
    ) {
        let config = Arc::new(config);
        let mut now = Instant::ZERO;
        let mut c = TcpConnection::connect(config.clone(), 0, now);
        if open {
            let _ = c.poll_transmit(now);
            c.handle_segment(now, &parse_segment("S. 0:0(0) ack 1 <mss 1000,wscale 3,sackOK>"));
        }
        for act in acts {
            match act {
                ConnectionAction::Segment(s) => c.handle_segment(now, &s),
                ConnectionAction::Pass(n) => {
                    now += Duration::from_millis(n);
                    c.handle_timeout(now);
                }
                ConnectionAction::Write(n) => drop(c.write(StreamData::Count(n))),
                ConnectionAction::WriteBytes(b) => drop(c.write(StreamData::Bytes(&b))),
                ConnectionAction::Read(n) => c.grant_credit(n),
                ConnectionAction::AutoRead(auto) => c.set_auto_read(auto),
                ConnectionAction::Shutdown => c.shutdown(),
                ConnectionAction::Abort => c.abort(),
            }
            let said = std::iter::from_fn(|| c.poll_event()).take(10_000).count();
            let sent = std::iter::from_fn(|| c.poll_transmit(now)).take(100_000).count();
            prop_assert!(said < 10_000 && sent < 100_000);
            prop_assert!(c.bytes_in_flight() <= (1 << 30) + 2);
        }
    }
}

#[test]
fn an_idle_connection_is_small() {
    let size = std::mem::size_of::<TcpConnection>();
    assert!(size <= TcpConnection::CONTROL_BLOCK as usize, "{size} bytes");
    let seldom = std::mem::size_of::<RareTcpEventState>();
    assert!(
        size + seldom > TcpConnection::CONTROL_BLOCK as usize,
        "{size} bytes are what counts for its state"
    );
    assert!(std::mem::size_of::<Segment>() <= 40);
    // Options of a SYN: every connection of a large run may have one in flight at once.
    assert!(std::mem::size_of::<TcpOptions>() <= 40);
    let mut s = ScriptedConnection::established(test_config());
    s.inject_segment("P. 1:201(200) ack 1");
    s.write(200);
    s.inject_segment(". 201:201(0) ack 201");
    assert!(s.c.send_buffer.is_none() && s.c.chunks.is_none() && s.c.reassembly.is_none());
}
