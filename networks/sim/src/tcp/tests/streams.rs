//! Whole connections over impaired channels, and nonsense.

use super::codec::options;
use super::connection::Aside;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use usher_core::impair::{Channel, ChannelConfig, Fate, Loss};
use usher_core::{Rng, Seed};

/// One side: its connection, what it still writes, what it has read.
struct Side {
    c: Option<Connection>,
    out: Channel,
    unsent: Vec<u8>,
    got: Vec<u8>,
    manual: bool,
    said: Vec<Event>,
}

enum Happening {
    Arrival(usize, Segment),
    Read(usize),
}

/// Two connections and the channel between them, in virtual time.
struct Pair {
    sides: [Side; 2],
    config: Arc<Config>,
    iss: u32,
    now: Instant,
    queue: BTreeMap<(Instant, u64), Happening>,
    order: u64,
    rng: Rng,
}

impl Pair {
    fn new(seed: u64, config: Config, channel: &ChannelConfig, data: [Vec<u8>; 2], manual: bool) -> Self {
        let seed = Seed::new(seed);
        let config = Arc::new(config);
        let mut rng = seed.stream("application", 0);
        let iss = rng.next_u64() as u32;
        let mut n = 0;
        let sides = data.map(|unsent| {
            n += 1;
            let out = Channel::new(channel.clone(), seed.stream("channel", n));
            Side { c: None, out, unsent, got: Vec::new(), manual, said: Vec::new() }
        });
        Self { sides, config, iss, now: Instant::ZERO, queue: BTreeMap::new(), order: 0, rng }
    }
    fn push(&mut self, at: Instant, what: Happening) {
        self.order += 1;
        self.queue.insert((at, self.order), what);
    }
    /// Gives the application its turn, then the network what leaves.
    fn settle(&mut self, i: usize) {
        let now = self.now;
        loop {
            let side = &mut self.sides[i];
            let Some(c) = &mut side.c else { return };
            let Some(event) = c.poll_event() else { break };
            match &event {
                Event::Data { len, payload } => {
                    let payload = payload.as_deref().expect("bytes were written");
                    assert_eq!(payload.len() as u32, *len);
                    side.got.extend_from_slice(payload);
                }
                Event::Connected => {
                    while !side.unsent.is_empty() {
                        let n = 1 + self.rng.below(3000).min(side.unsent.len() as u64 - 1) as usize;
                        let chunk: Vec<u8> = side.unsent.drain(..n).collect();
                        c.write(Data::Bytes(&chunk)).unwrap();
                    }
                    c.shutdown();
                }
                Event::PeerClosed | Event::Closed(_) => {}
            }
            side.said.push(event);
        }
        if self.sides[i].manual && self.sides[i].c.as_ref().is_some_and(|c| c.bytes_unread() > 0) {
            let at = now + Duration::from_millis(1 + self.rng.below(20));
            self.push(at, Happening::Read(i));
        }
        while let Some(s) = self.sides[i].c.as_mut().and_then(|c| c.poll_transmit(now)) {
            let mut bytes = Vec::new();
            s.emit(1, 2, &mut bytes);
            let s = Segment::parse(&bytes).unwrap().2;
            if let Fate::Delivered { arrives, corrupted: false, again, .. } =
                self.sides[i].out.offer(now, s.wire_len() + 20)
            {
                if let Some(again) = again {
                    self.push(again, Happening::Arrival(1 - i, s.clone()));
                }
                self.push(arrives, Happening::Arrival(1 - i, s));
            }
        }
    }
    fn arrive(&mut self, i: usize, s: &Segment) {
        let side = &mut self.sides[i];
        match &mut side.c {
            Some(c) => c.handle_segment(self.now, s),
            None => {
                side.c = Connection::accept(self.config.clone(), self.iss.wrapping_mul(7), s, self.now);
                if let Some(c) = &mut side.c {
                    c.set_auto_read(!side.manual);
                }
            }
        }
    }
    /// Runs until nothing is left to happen.
    fn run(&mut self) {
        let mut c = Connection::connect(self.config.clone(), self.iss, self.now);
        c.set_auto_read(!self.sides[0].manual);
        self.sides[0].c = Some(c);
        self.settle(0);
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
                self.settle(i);
                continue;
            }
            let Some(((at, _), what)) = self.queue.pop_first() else { return };
            self.now = at;
            match what {
                Happening::Arrival(i, s) => {
                    self.arrive(i, &s);
                    self.settle(i);
                }
                Happening::Read(i) => {
                    let n = self.rng.below(4000) as u32;
                    if let Some(c) = &mut self.sides[i].c {
                        c.read(n);
                    }
                    self.settle(i);
                }
            }
        }
    }
}

fn configs() -> impl Strategy<Value = Config> {
    let recovery = prop_oneof![Just(Recovery::Reno), Just(Recovery::NewReno), Just(Recovery::Sack)];
    let delayed = prop_oneof![
        Just(None),
        Just(Some(DelayedAck::default())),
        Just(Some(DelayedAck { every: AckEvery::FullSized(2), ..Default::default() }))
    ];
    let congestion = prop_oneof![
        Just(CongestionControl::Reno),
        Just(CongestionControl::Cubic),
        Just(CongestionControl::Bbr)
    ];
    let laws = (recovery, congestion);
    (laws, delayed, any::<[bool; 4]>(), 300u16..1500, 1u32..12, 1000u32..40_000).prop_map(
        |(laws, delayed_ack, [nagle, limited_transmit, timestamps, scale], mss, iw, receive_buffer)| Config {
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
            ..Config::default()
        },
    )
}

fn bytes(n: usize, salt: usize) -> Vec<u8> {
    (0..n).map(|i| ((i + salt) * 31 % 251) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_stream_arrives_whole_and_every_connection_ends(
        seed: u64,
        config in configs(),
        (loss, duplicate, reorder, corrupt) in (0.0..0.3f64, 0.0..0.2f64, 0.0..0.3f64, 0.0..0.1f64),
        sizes in (0usize..40_000, 0usize..40_000),
        manual: bool,
    ) {
        let channel = ChannelConfig {
            rate: Some(2_000_000),
            delay: Duration::from_millis(15),
            jitter: Duration::from_millis(5),
            loss: Loss::Bernoulli(loss),
            duplicate,
            reorder,
            reorder_delay: Duration::from_millis(30),
            corrupt,
            ..Default::default()
        };
        let data = [bytes(sizes.0, 1), bytes(sizes.1, 2)];
        let mut pair = Pair::new(seed, config, &channel, data.clone(), manual);
        pair.run();
        for (i, side) in pair.sides.iter().enumerate() {
            prop_assert!(side.got == data[1 - i], "side {} got {} of {} bytes", i, side.got.len(), data[1 - i].len());
            prop_assert!(side.c.as_ref().is_some_and(|c| c.is_closed()));
            let closed = side.said.iter().filter(|e| matches!(e, Event::Closed(_))).count();
            prop_assert_eq!((closed, side.said.first()), (1, Some(&Event::Connected)));
            prop_assert_eq!(side.said.last(), Some(&Event::Closed(CloseReason::Closed)));
        }
    }

    #[test]
    fn without_impairment_nothing_is_sent_twice(
        seed: u64,
        config in configs(),
        sizes in (0usize..40_000, 0usize..40_000),
        manual: bool,
    ) {
        let channel = ChannelConfig { delay: Duration::from_millis(15), ..Default::default() };
        // A delayed acknowledgement may come after 230 ms, later than the shortest timeout of the others.
        let config = Config { min_rto: Duration::from_millis(500), ..config };
        let data = [bytes(sizes.0, 1), bytes(sizes.1, 2)];
        let mut pair = Pair::new(seed, config, &channel, data.clone(), manual);
        pair.run();
        for (i, side) in pair.sides.iter().enumerate() {
            prop_assert!(side.got == data[1 - i]);
            let stats = side.c.as_ref().unwrap().stats();
            prop_assert_eq!((stats.retransmitted, stats.timeouts, stats.out_of_order), (0, 0, 0));
        }
    }
}

/// Anything that may be done to a connection.
#[derive(Clone, Debug)]
enum Act {
    Segment(Segment),
    Pass(u64),
    Write(u32),
    WriteBytes(Vec<u8>),
    Read(u32),
    AutoRead(bool),
    Shutdown,
    Abort,
}

fn act() -> impl Strategy<Value = Act> {
    let near = || prop_oneof![9 => 0u32..5000, 1 => any::<u32>()];
    let payload = prop_oneof![Just(None), (0usize..1500).prop_map(|n| Some(Arc::from(vec![7u8; n])))];
    let flags = prop_oneof![6 => Just(Flags::ACK), 1 => any::<u8>().prop_map(Flags)];
    let segment = (near(), near(), near(), any::<u16>(), flags, options(), payload, any::<bool>()).prop_map(
        |(seq, ack, len, window, flags, options, payload, honest)| {
            let len = payload.as_ref().filter(|_| honest).map_or(len, |p: &Arc<[u8]>| p.len() as u32);
            Act::Segment(Segment { seq, ack, len, window, flags, options, payload })
        },
    );
    prop_oneof![
        12 => segment,
        3 => (0u64..70_000).prop_map(Act::Pass),
        3 => prop_oneof![0u32..5000, any::<u32>()].prop_map(Act::Write),
        2 => proptest::collection::vec(any::<u8>(), 0..3000).prop_map(Act::WriteBytes),
        2 => any::<u32>().prop_map(Act::Read),
        1 => any::<bool>().prop_map(Act::AutoRead),
        1 => Just(Act::Shutdown),
        1 => Just(Act::Abort),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_segments_never_panic_nor_run_on(
        config in configs(),
        open: bool,
        acts in proptest::collection::vec(act(), 1..60),
    ) {
        let config = Arc::new(config);
        let mut now = Instant::ZERO;
        let mut c = Connection::connect(config.clone(), 0, now);
        if open {
            let _ = c.poll_transmit(now);
            c.handle_segment(now, &segment("S. 0:0(0) ack 1 <mss 1000,wscale 3,sackOK>"));
        }
        for act in acts {
            match act {
                Act::Segment(s) => c.handle_segment(now, &s),
                Act::Pass(n) => {
                    now += Duration::from_millis(n);
                    c.handle_timeout(now);
                }
                Act::Write(n) => drop(c.write(Data::Count(n))),
                Act::WriteBytes(b) => drop(c.write(Data::Bytes(&b))),
                Act::Read(n) => c.read(n),
                Act::AutoRead(auto) => c.set_auto_read(auto),
                Act::Shutdown => c.shutdown(),
                Act::Abort => c.abort(),
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
    let size = std::mem::size_of::<Connection>();
    assert!(size <= Connection::CONTROL_BLOCK as usize, "{size} bytes");
    let seldom = std::mem::size_of::<Aside>();
    assert!(size + seldom > Connection::CONTROL_BLOCK as usize, "{size} bytes are what counts for its state");
    assert!(std::mem::size_of::<Segment>() <= 40);
    // A SYN's, of which every connection of a large run may have one under way at once.
    assert!(std::mem::size_of::<Options>() <= 40);
    let mut s = Script::open(config());
    s.inject("P. 1:201(200) ack 1");
    s.write(200);
    s.inject(". 201:201(0) ack 201");
    assert!(s.c.send_buffer.is_none() && s.c.chunks.is_none() && s.c.reassembly.is_none());
}
