//! What a channel does to what is sent over it, written once as a sans-IO machine: rate and a finite
//! queue, delay and jitter, loss (independent, bursty, or a script), duplication, reordering, corruption.
//!
//! The simulator's links, the tests' pipes and a live relay all offer their packets to a [`Channel`] and
//! do what its [`Fate`] says. A channel carries no bytes, only times and sizes.

use crate::rng::Rng;
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// How packets are lost on the medium, after they took their time on it.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with this probability (0..=1), independently.
    Bernoulli(f64),
    /// Gilbert-Elliott: a two-state Markov chain that steps once a packet, then loses it with the state's
    /// probability.
    GilbertElliott {
        /// Probability of going from the good to the bad state.
        to_bad: f64,
        /// Probability of going back.
        to_good: f64,
        /// Loss probability in the good state.
        good: f64,
        /// Loss probability in the bad state.
        bad: f64,
    },
    /// Exactly the packets with these ordinals (from 0, ascending): hand-computed traces.
    Script(Vec<u64>),
}

impl Loss {
    /// The long-run share of packets that is lost (a script: 0).
    pub fn mean(&self) -> f64 {
        match *self {
            Self::None | Self::Script(_) => 0.0,
            Self::Bernoulli(p) => p,
            Self::GilbertElliott { to_bad, to_good, good, bad } => {
                let in_bad = if to_bad + to_good > 0.0 { to_bad / (to_bad + to_good) } else { 0.0 };
                in_bad * bad + (1.0 - in_bad) * good
            }
        }
    }
}

/// How much may wait for the medium, beside the packet that is on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueueLimit {
    /// Any amount.
    #[default]
    Unlimited,
    /// At most this many packets.
    Packets(usize),
    /// At most this many bytes.
    Bytes(u64),
}

/// A channel's properties, one direction. The default is a perfect, instant channel.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ChannelConfig {
    /// Bits per second; `None` is infinitely fast.
    pub rate: Option<u64>,
    /// Propagation delay.
    pub delay: Duration,
    /// Added delay, uniform between zero and this. Packets keep their order unless `reorder` lets them pass.
    pub jitter: Duration,
    /// What may wait; beyond it the tail is dropped.
    pub queue: QueueLimit,
    /// Loss on the medium.
    pub loss: Loss,
    /// Loss, duplication, reordering and corruption begin at this time.
    pub impaired_from: Instant,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that a packet is held back by `reorder_delay`, so that later ones pass it.
    pub reorder: f64,
    /// How long a reordered packet is held back.
    pub reorder_delay: Duration,
    /// Probability that a packet arrives damaged.
    pub corrupt: f64,
}

/// What becomes of a packet that was offered to a [`Channel`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Dropped at once: the queue is full.
    QueueFull,
    /// Sent, but lost on the medium.
    Lost {
        /// When its last bit left the sender.
        departs: Instant,
    },
    /// Delivered.
    Delivered {
        /// When its last bit left the sender.
        departs: Instant,
        /// When its last bit arrives.
        arrives: Instant,
        /// It arrives damaged: its checksum will not hold.
        corrupted: bool,
        /// When a second copy arrives, if there is one.
        again: Option<Instant>,
    },
}

/// One direction of a channel.
#[derive(Clone, Debug)]
pub struct Channel {
    config: ChannelConfig,
    rng: Rng,
    /// Nothing is left to chance: the common case of a clean link costs no draw.
    clean: bool,
    /// Nanoseconds that a byte takes, where that is a whole number: a product in place of a division.
    per_byte: Option<u64>,
    busy_until: Instant,
    last_arrival: Instant,
    /// Departure time and size of each packet that waits or is being sent.
    waiting: VecDeque<(Instant, u32)>,
    waiting_bytes: u64,
    in_bad_state: bool,
    offered: u64,
}

impl Channel {
    /// A channel with its own stream of chance.
    pub fn new(config: ChannelConfig, rng: Rng) -> Self {
        let clean = config.loss == Loss::None
            && config.duplicate == 0.0
            && config.reorder == 0.0
            && config.corrupt == 0.0
            && config.jitter.is_zero();
        let per_byte = config.rate.filter(|r| *r > 0 && 8_000_000_000 % r == 0).map(|r| 8_000_000_000 / r);
        Self {
            config,
            rng,
            clean,
            per_byte,
            busy_until: Instant::ZERO,
            last_arrival: Instant::ZERO,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            in_bad_state: false,
            offered: 0,
        }
    }

    /// The properties it was made with.
    pub fn config(&self) -> &ChannelConfig {
        &self.config
    }

    /// Packets waiting or being sent at `now`.
    pub fn queue_len(&mut self, now: Instant) -> usize {
        self.forget_departed(now);
        self.waiting.len()
    }

    /// How long `bytes` occupy the medium.
    pub fn transmission_time(&self, bytes: u32) -> Duration {
        if let Some(per_byte) = self.per_byte {
            return Duration::from_nanos(u64::from(bytes) * per_byte);
        }
        match self.config.rate {
            Some(rate) if rate > 0 => {
                Duration::from_nanos((u64::from(bytes) * 8_000_000_000 + rate / 2) / rate)
            }
            _ => Duration::ZERO,
        }
    }

    fn forget_departed(&mut self, now: Instant) {
        while let Some(&(departs, bytes)) = self.waiting.front() {
            if departs > now {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes -= u64::from(bytes);
        }
    }

    /// Whether a packet of `bytes` finds room at `now`; the one being sent does not count as waiting.
    fn has_room(&mut self, now: Instant, bytes: u32) -> bool {
        if self.config.queue == QueueLimit::Unlimited {
            return true;
        }
        self.forget_departed(now);
        let Some(&(_, in_service)) = self.waiting.front() else { return true };
        match self.config.queue {
            QueueLimit::Unlimited => true,
            QueueLimit::Packets(n) => self.waiting.len() - 1 < n,
            QueueLimit::Bytes(n) => self.waiting_bytes - u64::from(in_service) + u64::from(bytes) <= n,
        }
    }

    /// Offers a packet of `bytes` (all headers that take time on the medium included) at `now`.
    /// Times of successive calls must not go back.
    pub fn offer(&mut self, now: Instant, bytes: u32) -> Fate {
        let departs = if self.config.rate.is_some() {
            if !self.has_room(now, bytes) {
                return Fate::QueueFull;
            }
            let departs = self.busy_until.max(now) + self.transmission_time(bytes);
            self.busy_until = departs;
            if self.config.queue != QueueLimit::Unlimited {
                self.waiting.push_back((departs, bytes));
                self.waiting_bytes += u64::from(bytes);
            }
            departs
        } else {
            now
        };
        let mut arrives = departs + self.config.delay;
        if self.clean {
            return Fate::Delivered { departs, arrives, corrupted: false, again: None };
        }
        let ordinal = self.offered;
        self.offered += 1;
        if !self.config.jitter.is_zero() {
            arrives += self.rng.between(Duration::ZERO, self.config.jitter);
        }
        let impaired = now >= self.config.impaired_from;
        if impaired && self.loses(ordinal) {
            return Fate::Lost { departs };
        }
        if impaired && self.config.reorder > 0.0 && self.rng.chance(self.config.reorder) {
            arrives += self.config.reorder_delay;
        } else {
            arrives = arrives.max(self.last_arrival);
            self.last_arrival = arrives;
        }
        let corrupted = impaired && self.config.corrupt > 0.0 && self.rng.chance(self.config.corrupt);
        let again = (impaired && self.config.duplicate > 0.0 && self.rng.chance(self.config.duplicate))
            .then(|| arrives + self.transmission_time(bytes));
        Fate::Delivered { departs, arrives, corrupted, again }
    }

    fn loses(&mut self, ordinal: u64) -> bool {
        match &self.config.loss {
            Loss::None => false,
            Loss::Bernoulli(p) => self.rng.chance(*p),
            Loss::GilbertElliott { to_bad, to_good, good, bad } => {
                let step = if self.in_bad_state { *to_good } else { *to_bad };
                if self.rng.chance(step) {
                    self.in_bad_state = !self.in_bad_state;
                }
                self.rng.chance(if self.in_bad_state { *bad } else { *good })
            }
            Loss::Script(ordinals) => ordinals.binary_search(&ordinal).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Seed;

    fn channel(config: ChannelConfig) -> Channel {
        Channel::new(config, Seed::new(1).stream("channel", 0))
    }
    fn ms(n: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(n)
    }
    fn arrival(fate: Fate) -> Option<Instant> {
        match fate {
            Fate::Delivered { arrives, .. } => Some(arrives),
            _ => None,
        }
    }

    #[test]
    fn packets_take_their_time_one_after_another() {
        let mut c = channel(ChannelConfig {
            rate: Some(1_000_000),
            delay: Duration::from_millis(10),
            ..Default::default()
        });
        assert_eq!(arrival(c.offer(ms(0), 125)), Some(ms(11)));
        assert_eq!(arrival(c.offer(ms(0), 125)), Some(ms(12)));
        assert_eq!(arrival(c.offer(ms(5), 125)), Some(ms(16)));
    }

    #[test]
    fn a_full_queue_drops_its_tail() {
        let mut c = channel(ChannelConfig {
            rate: Some(1_000_000),
            queue: QueueLimit::Packets(2),
            ..Default::default()
        });
        // One is being sent, two wait.
        for _ in 0..3 {
            assert!(arrival(c.offer(ms(0), 125)).is_some());
        }
        assert_eq!(c.offer(ms(0), 125), Fate::QueueFull);
        assert_eq!(c.queue_len(ms(0)), 3);
        assert_eq!(arrival(c.offer(ms(1), 125)), Some(ms(4)));

        let mut c = channel(ChannelConfig {
            rate: Some(1_000_000),
            queue: QueueLimit::Bytes(200),
            ..Default::default()
        });
        for expected in [true, true, false] {
            assert_eq!(arrival(c.offer(ms(0), 125)).is_some(), expected);
        }
    }

    #[test]
    fn loss_has_its_rate_and_bursts_have_their_length() {
        let n = 400_000u32;
        for loss in
            [Loss::Bernoulli(0.1), Loss::GilbertElliott { to_bad: 0.02, to_good: 0.18, good: 0.0, bad: 1.0 }]
        {
            let mean = loss.mean();
            let mut c = channel(ChannelConfig { loss: loss.clone(), ..Default::default() });
            let lost: Vec<bool> = (0..n).map(|_| arrival(c.offer(ms(0), 1)).is_none()).collect();
            let share = lost.iter().filter(|l| **l).count() as f64 / f64::from(n);
            assert!((share - mean).abs() < 0.004, "{loss:?}: {share} for {mean}");
            let bursts = lost.windows(2).filter(|w| w[0] && !w[1]).count() as f64;
            let length = share * f64::from(n) / bursts;
            let expected = if matches!(loss, Loss::Bernoulli(_)) { 1.0 / 0.9 } else { 1.0 / 0.18 };
            assert!((length / expected - 1.0).abs() < 0.05, "{loss:?}: bursts of {length}");
        }
    }

    #[test]
    fn a_script_loses_exactly_its_packets() {
        let mut c = channel(ChannelConfig { loss: Loss::Script(vec![1, 3]), ..Default::default() });
        let got: Vec<bool> = (0..5).map(|_| arrival(c.offer(ms(0), 1)).is_some()).collect();
        assert_eq!(got, [true, false, true, false, true]);
    }

    #[test]
    fn impairments_wait_for_their_start() {
        let mut c =
            channel(ChannelConfig { loss: Loss::Bernoulli(1.0), impaired_from: ms(5), ..Default::default() });
        assert!(arrival(c.offer(ms(4), 1)).is_some());
        assert!(arrival(c.offer(ms(5), 1)).is_none());
    }

    #[test]
    fn jitter_keeps_order_and_reordering_breaks_it() {
        let run = |reorder| {
            let mut c = channel(ChannelConfig {
                jitter: Duration::from_millis(20),
                reorder,
                reorder_delay: Duration::from_millis(50),
                corrupt: 0.5,
                duplicate: 0.5,
                ..Default::default()
            });
            let fates: Vec<Fate> = (0..200).map(|i| c.offer(ms(i), 1)).collect();
            let copies = fates.iter().filter(|f| matches!(f, Fate::Delivered { again: Some(_), .. })).count();
            let damaged =
                fates.iter().filter(|f| matches!(f, Fate::Delivered { corrupted: true, .. })).count();
            assert!((70..130).contains(&copies) && (70..130).contains(&damaged));
            let times: Vec<Instant> = fates.into_iter().filter_map(arrival).collect();
            times.is_sorted()
        };
        assert!(run(0.0));
        assert!(!run(0.3));
    }
}
