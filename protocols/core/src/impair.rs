//! A channel model without I/O: rate and queue, delay and jitter, loss (independent, burst or scripted), duplication,
//! reordering, corruption.
//!
//! The simulator's links, the test pipes and a live relay offer their packets to a [`Channel`] and apply the resulting
//! [`PacketOutcome`]. A channel carries only times and sizes, no bytes.

mod states;

pub use states::ContinuousGilbertElliott;

use crate::rng::SimulationRng;
use crate::time::{Duration, Instant};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A model of packet loss on the medium. A lost packet still takes its time on the medium.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum LossModel {
    /// No loss.
    #[default]
    None,
    /// Each packet is lost with this probability (0..=1), independently.
    Bernoulli(f64),
    /// Gilbert-Elliott in time: a good and a bad state with mean durations.
    TimedGilbertElliott(ContinuousGilbertElliott),
    /// Gilbert-Elliott by packets: a two-state Markov chain that steps once per packet and then loses it with the
    /// probability of the state. On a quiet link a burst lasts until enough packets arrive, however long that takes.
    GilbertElliott {
        /// Probability of a step from the good to the bad state.
        to_bad: f64,
        /// Probability of a step back.
        to_good: f64,
        /// Loss probability in the good state.
        good: f64,
        /// Loss probability in the bad state.
        bad: f64,
    },
    /// Loses exactly the packets with these ordinals (from 0, ascending), for traces computed by hand.
    Script(Vec<u64>),
}

impl LossModel {
    /// Returns the long-run share of lost packets; 0 for a script.
    pub fn mean_loss_ratio(&self) -> f64 {
        match *self {
            Self::None | Self::Script(_) => 0.0,
            Self::Bernoulli(p) => p,
            Self::TimedGilbertElliott(states) => {
                let in_bad = states.bad_state_share();
                in_bad * states.bad + (1.0 - in_bad) * states.good
            }
            Self::GilbertElliott { to_bad, to_good, good, bad } => {
                let in_bad = if to_bad + to_good > 0.0 { to_bad / (to_bad + to_good) } else { 0.0 };
                in_bad * bad + (1.0 - in_bad) * good
            }
        }
    }
}

/// The queue of packets that wait for the medium, without the packet on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueueLimit {
    /// No limit.
    #[default]
    Unlimited,
    /// At most this many packets.
    Packets(usize),
    /// At most this many bytes.
    Bytes(u64),
}

/// The properties of one direction of a channel. The default is a perfect, instant channel.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ChannelConfig {
    /// Bits per second; `None` is infinitely fast.
    pub rate: Option<u64>,
    /// Propagation delay.
    pub delay: Duration,
    /// Additional delay, uniform between zero and this. Packets keep their order unless `reorder` changes it.
    pub jitter: Duration,
    /// The queue limit. Packets beyond it are dropped at the tail.
    pub queue: QueueLimit,
    /// Loss on the medium.
    pub loss: LossModel,
    /// The time at which loss, duplication, reordering and corruption begin.
    pub impaired_from: Instant,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that a packet is delayed by `reorder_delay`, so that later packets overtake it.
    pub reorder: f64,
    /// The additional delay of a reordered packet.
    pub reorder_delay: Duration,
    /// Probability that a packet arrives damaged.
    pub corrupt: f64,
}

/// The result for a packet offered to a [`Channel`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketOutcome {
    /// Dropped at once because the queue is full.
    QueueFull,
    /// Sent, but lost on the medium.
    Lost {
        /// The time when its last bit leaves the sender.
        departs: Instant,
    },
    /// Delivered.
    Delivered {
        /// The time when its last bit leaves the sender.
        departs: Instant,
        /// The time when its last bit arrives.
        arrives: Instant,
        /// True if it arrives damaged, with a wrong checksum.
        corrupted: bool,
        /// The time when a second copy arrives, if there is one.
        duplicate_arrives: Option<Instant>,
    },
}

/// One direction of a channel. It is small, since a large simulation has millions. Equal channels share their
/// properties; random streams and queues are allocated on first use.
#[derive(Clone, Debug)]
pub struct Channel {
    busy_until: Instant,
    properties: Arc<ChannelProperties>,
    waiting: Option<Box<PacketQueue>>,
    chance: Option<Box<ImpairmentState>>,
}

/// The properties that equal channels share.
#[derive(Clone, Debug)]
pub struct ChannelProperties {
    config: ChannelConfig,
    pace: TransmissionRate,
}

impl From<ChannelConfig> for ChannelProperties {
    fn from(config: ChannelConfig) -> Self {
        let pace = match config.rate {
            None | Some(0) => TransmissionRate::Instant,
            Some(rate) if 8_000_000_000 % rate == 0 => TransmissionRate::PerByte(8_000_000_000 / rate),
            Some(rate) => TransmissionRate::BitsPerSecond(rate),
        };
        Self { config, pace }
    }
}

impl From<ChannelConfig> for Arc<ChannelProperties> {
    fn from(config: ChannelConfig) -> Self {
        Self::new(config.into())
    }
}

impl ChannelProperties {
    /// Returns the configuration.
    pub const fn config(&self) -> &ChannelConfig {
        &self.config
    }
}

/// The time per byte.
#[derive(Clone, Copy, Debug)]
enum TransmissionRate {
    Instant,
    /// A whole number of nanoseconds, which replaces a division by a product.
    PerByte(u64),
    BitsPerSecond(u64),
}

/// Packets that wait for the medium: the time when each starts on it, and its size.
#[derive(Clone, Debug, Default)]
struct PacketQueue {
    packets: VecDeque<(Instant, u32)>,
    bytes: u64,
}

impl PacketQueue {
    fn remove_transmitting_packets(&mut self, now: Instant) {
        while let Some(&(starts, bytes)) = self.packets.front()
            && starts <= now
        {
            self.packets.pop_front();
            self.bytes -= u64::from(bytes);
        }
    }
}

/// The state of a channel with impairments.
#[derive(Clone, Debug)]
struct ImpairmentState {
    rng: SimulationRng,
    last_arrival: Instant,
    in_bad_state: bool,
    /// The time when a packet last sampled a state that changes in time.
    last_look: Option<Instant>,
    offered: u64,
}

impl Channel {
    /// A channel with its own random stream. Equal channels can share their properties.
    pub fn new(properties: impl Into<Arc<ChannelProperties>>, rng: SimulationRng) -> Self {
        let properties: Arc<ChannelProperties> = properties.into();
        let config = &properties.config;
        let clean = config.loss == LossModel::None
            && config.duplicate == 0.0
            && config.reorder == 0.0
            && config.corrupt == 0.0
            && config.jitter.is_zero();
        Self {
            busy_until: Instant::ZERO,
            waiting: None,
            chance: (!clean).then(|| {
                Box::new(ImpairmentState {
                    rng,
                    last_arrival: Instant::ZERO,
                    in_bad_state: false,
                    last_look: None,
                    offered: 0,
                })
            }),
            properties,
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ChannelConfig {
        &self.properties.config
    }

    /// Returns the number of packets that wait for the medium at `now`, without the packet on it. It is always 0 for an
    /// unlimited queue, which is not recorded.
    pub fn queue_len(&mut self, now: Instant) -> usize {
        self.waiting.as_mut().map_or(0, |w| {
            w.remove_transmitting_packets(now);
            w.packets.len()
        })
    }

    /// Returns the time that `bytes` occupy the medium.
    #[inline]
    pub fn transmission_time(&self, bytes: u32) -> Duration {
        match self.properties.pace {
            TransmissionRate::Instant => Duration::ZERO,
            TransmissionRate::PerByte(ns) => Duration::from_nanos(u64::from(bytes) * ns),
            TransmissionRate::BitsPerSecond(rate) => {
                Duration::from_nanos((u64::from(bytes) * 8_000_000_000 + rate / 2) / rate)
            }
        }
    }

    /// Queues a packet. Returns false if the queue is full.
    #[inline(never)]
    fn enqueue_packet(&mut self, now: Instant, bytes: u32) -> bool {
        let limit = self.properties.config.queue;
        if limit == QueueLimit::Unlimited {
            return true;
        }
        let starts = self.busy_until;
        let waiting = self.waiting.get_or_insert_default();
        waiting.remove_transmitting_packets(now);
        let room = match limit {
            QueueLimit::Unlimited => true,
            QueueLimit::Packets(n) => waiting.packets.len() < n,
            QueueLimit::Bytes(n) => waiting.bytes + u64::from(bytes) <= n,
        };
        if room {
            waiting.packets.push_back((starts, bytes));
            waiting.bytes += u64::from(bytes);
        }
        room
    }

    /// Offers a packet of `bytes` at `now`. The size includes all headers that take time on the medium. The times of
    /// successive calls must not decrease.
    #[inline(always)]
    pub fn offer_packet(&mut self, now: Instant, bytes: u32) -> PacketOutcome {
        let departs = if matches!(self.properties.pace, TransmissionRate::Instant) {
            now
        } else {
            if self.busy_until > now && !self.enqueue_packet(now, bytes) {
                return PacketOutcome::QueueFull;
            }
            self.busy_until = self.busy_until.max(now) + self.transmission_time(bytes);
            self.busy_until
        };
        let arrives = departs + self.properties.config.delay;
        match &mut self.chance {
            None => PacketOutcome::Delivered { departs, arrives, corrupted: false, duplicate_arrives: None },
            Some(chance) => {
                let fate = chance.decide_fate(&self.properties.config, now, departs, arrives);
                match fate {
                    PacketOutcome::Delivered { departs, arrives, corrupted, duplicate_arrives: Some(_) } => {
                        let again = Some(arrives + self.transmission_time(bytes));
                        PacketOutcome::Delivered { departs, arrives, corrupted, duplicate_arrives: again }
                    }
                    fate => fate,
                }
            }
        }
    }
}

impl ImpairmentState {
    /// Decides the fate of a packet that would arrive at `arrives`. A second copy arrives at the same time.
    fn decide_fate(
        &mut self,
        config: &ChannelConfig,
        now: Instant,
        departs: Instant,
        mut arrives: Instant,
    ) -> PacketOutcome {
        let ordinal = self.offered;
        self.offered += 1;
        if !config.jitter.is_zero() {
            arrives += self.rng.sample_duration(Duration::ZERO, config.jitter);
        }
        let impaired = now >= config.impaired_from;
        if impaired && self.sample_loss(&config.loss, ordinal, departs) {
            return PacketOutcome::Lost { departs };
        }
        if impaired && config.reorder > 0.0 && self.rng.sample_bool(config.reorder) {
            arrives += config.reorder_delay;
        } else {
            arrives = arrives.max(self.last_arrival);
            self.last_arrival = arrives;
        }
        let corrupted = impaired && config.corrupt > 0.0 && self.rng.sample_bool(config.corrupt);
        let twice = impaired && config.duplicate > 0.0 && self.rng.sample_bool(config.duplicate);
        PacketOutcome::Delivered { departs, arrives, corrupted, duplicate_arrives: twice.then_some(arrives) }
    }

    fn sample_loss(&mut self, loss: &LossModel, ordinal: u64, departs: Instant) -> bool {
        match loss {
            LossModel::None => false,
            LossModel::Bernoulli(p) => self.rng.sample_bool(*p),
            LossModel::TimedGilbertElliott(states) => {
                // The first packet has no earlier state to start from, so the long-run probability of the bad state
                // applies.
                let bad = self.last_look.map_or_else(
                    || states.bad_state_share(),
                    |before| states.bad_state_probability(self.in_bad_state, departs.duration_since(before)),
                );
                self.last_look = Some(departs);
                // One random number decides both the state and the loss: within the range of its state it is uniform.
                let drawn = self.rng.sample_unit();
                self.in_bad_state = drawn < bad;
                if self.in_bad_state {
                    drawn < bad * states.bad
                } else {
                    drawn - bad < (1.0 - bad) * states.good
                }
            }
            LossModel::GilbertElliott { to_bad, to_good, good, bad } => {
                let step = if self.in_bad_state { *to_good } else { *to_bad };
                if self.rng.sample_bool(step) {
                    self.in_bad_state = !self.in_bad_state;
                }
                self.rng.sample_bool(if self.in_bad_state { *bad } else { *good })
            }
            LossModel::Script(ordinals) => ordinals.binary_search(&ordinal).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Seed;

    fn test_channel(config: ChannelConfig) -> Channel {
        Channel::new(config, Seed::new(1).derive_rng("channel", 0))
    }
    fn at_millis(n: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(n)
    }
    fn arrival_time(fate: PacketOutcome) -> Option<Instant> {
        match fate {
            PacketOutcome::Delivered { arrives, .. } => Some(arrives),
            _ => None,
        }
    }

    #[test]
    fn packets_take_their_time_one_after_another() {
        let mut c = test_channel(ChannelConfig {
            rate: Some(1_000_000),
            delay: Duration::from_millis(10),
            ..Default::default()
        });
        assert_eq!(arrival_time(c.offer_packet(at_millis(0), 125)), Some(at_millis(11)));
        assert_eq!(arrival_time(c.offer_packet(at_millis(0), 125)), Some(at_millis(12)));
        assert_eq!(arrival_time(c.offer_packet(at_millis(5), 125)), Some(at_millis(16)));
    }

    #[test]
    fn a_full_queue_drops_its_tail() {
        let mut c = test_channel(ChannelConfig {
            rate: Some(1_000_000),
            queue: QueueLimit::Packets(2),
            ..Default::default()
        });
        // One packet is on the medium, two wait.
        for _ in 0..3 {
            assert!(arrival_time(c.offer_packet(at_millis(0), 125)).is_some());
        }
        assert_eq!(c.offer_packet(at_millis(0), 125), PacketOutcome::QueueFull);
        assert_eq!(c.queue_len(at_millis(0)), 2);
        assert_eq!(arrival_time(c.offer_packet(at_millis(1), 125)), Some(at_millis(4)));

        let mut c = test_channel(ChannelConfig {
            rate: Some(1_000_000),
            queue: QueueLimit::Bytes(200),
            ..Default::default()
        });
        for expected in [true, true, false] {
            assert_eq!(arrival_time(c.offer_packet(at_millis(0), 125)).is_some(), expected);
        }
    }

    #[test]
    fn loss_has_its_rate_and_bursts_have_their_length() {
        let n = 400_000u32;
        for loss in [
            LossModel::Bernoulli(0.1),
            LossModel::GilbertElliott { to_bad: 0.02, to_good: 0.18, good: 0.0, bad: 1.0 },
        ] {
            let mean = loss.mean_loss_ratio();
            let mut c = test_channel(ChannelConfig { loss: loss.clone(), ..Default::default() });
            let lost: Vec<bool> =
                (0..n).map(|_| arrival_time(c.offer_packet(at_millis(0), 1)).is_none()).collect();
            let share = lost.iter().filter(|l| **l).count() as f64 / f64::from(n);
            assert!((share - mean).abs() < 0.004, "{loss:?}: {share} for {mean}");
            let bursts = lost.windows(2).filter(|w| w[0] && !w[1]).count() as f64;
            let length = share * f64::from(n) / bursts;
            let expected = if matches!(loss, LossModel::Bernoulli(_)) { 1.0 / 0.9 } else { 1.0 / 0.18 };
            assert!((length / expected - 1.0).abs() < 0.05, "{loss:?}: bursts of {length}");
        }
    }

    #[test]
    fn a_chain_that_stays_good_loses_at_the_good_rate() {
        let stays = LossModel::GilbertElliott { to_bad: 0.0, to_good: 0.0, good: 0.25, bad: 1.0 };
        assert_eq!(stays.mean_loss_ratio(), 0.25);
    }

    #[test]
    fn a_mean_weighs_both_states_by_the_time_spent_in_them() {
        // A tenth of the time in the bad state.
        let both = LossModel::GilbertElliott { to_bad: 0.0625, to_good: 0.5625, good: 0.5, bad: 1.0 };
        assert!((both.mean_loss_ratio() - 0.55).abs() < 1e-12, "{}", both.mean_loss_ratio());
        assert_eq!(
            (LossModel::None.mean_loss_ratio(), LossModel::Script(vec![1]).mean_loss_ratio()),
            (0.0, 0.0)
        );
    }

    #[test]
    fn a_script_loses_exactly_its_packets() {
        let mut c = test_channel(ChannelConfig { loss: LossModel::Script(vec![1, 3]), ..Default::default() });
        let got: Vec<bool> =
            (0..5).map(|_| arrival_time(c.offer_packet(at_millis(0), 1)).is_some()).collect();
        assert_eq!(got, [true, false, true, false, true]);
    }

    #[test]
    fn impairments_wait_for_their_start() {
        let mut c = test_channel(ChannelConfig {
            loss: LossModel::Bernoulli(1.0),
            impaired_from: at_millis(5),
            ..Default::default()
        });
        assert!(arrival_time(c.offer_packet(at_millis(4), 1)).is_some());
        assert!(arrival_time(c.offer_packet(at_millis(5), 1)).is_none());
    }

    #[test]
    fn jitter_keeps_order_and_reordering_breaks_it() {
        let run = |reorder| {
            let mut c = test_channel(ChannelConfig {
                jitter: Duration::from_millis(20),
                reorder,
                reorder_delay: Duration::from_millis(50),
                corrupt: 0.5,
                duplicate: 0.5,
                ..Default::default()
            });
            let fates: Vec<PacketOutcome> = (0..200).map(|i| c.offer_packet(at_millis(i), 1)).collect();
            let copies = fates
                .iter()
                .filter(|f| matches!(f, PacketOutcome::Delivered { duplicate_arrives: Some(_), .. }))
                .count();
            let damaged = fates
                .iter()
                .filter(|f| matches!(f, PacketOutcome::Delivered { corrupted: true, .. }))
                .count();
            assert!((70..130).contains(&copies) && (70..130).contains(&damaged));
            let times: Vec<Instant> = fates.into_iter().filter_map(arrival_time).collect();
            times.is_sorted()
        };
        assert!(run(0.0));
        assert!(!run(0.3));
    }
}
