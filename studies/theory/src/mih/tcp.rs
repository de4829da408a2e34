//! MIH messages over TCP with lost segments and acknowledgements. The retransmission timeout doubles up to a maximum.

use usher_core::Duration;

/// Probability below which a case is omitted: it changes no printed digit.
const RARE: f64 = 1e-13;
/// Number of phases of the time between two messages.
const PHASES: usize = 250;

/// A segment on a connection with no other data in flight.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct IsolatedTcpSegment {
    /// Probability that a packet is lost, in the direction of the data and back; below 1.
    pub loss: [f64; 2],
    /// Delay of a packet, in the same directions.
    pub delay: [Duration; 2],
    /// Minimum of the retransmission timeout, and its value while no packet is lost.
    pub rto_min: Duration,
    /// Maximum of the retransmission timeout, at least the minimum.
    pub rto_max: Duration,
}

impl IsolatedTcpSegment {
    /// Returns the timeout after `level` doublings.
    fn timeout_at(&self, level: u32) -> Duration {
        let (mut timeout, mut left) = (self.rto_min, level);
        while left > 0 && timeout < self.rto_max {
            timeout = (timeout * 2).min(self.rto_max);
            left -= 1;
        }
        timeout
    }

    /// Returns the number of doublings until the maximum.
    fn rto_doubling_count(&self) -> u32 {
        (0..).find(|level| self.timeout_at(*level) >= self.rto_max).unwrap_or(0)
    }

    /// Returns the mean delay that retransmissions add, in seconds, for a segment whose timeout begins at a level. The
    /// i-th timeout counts if the first i + 1 transmissions are lost.
    fn mean_retransmission_delay(&self, level: u32) -> f64 {
        let (mut sum, mut lost, mut at) = (0.0, self.loss[0], level);
        while lost > RARE {
            sum += lost * self.timeout_at(at).as_secs_f64();
            lost *= self.loss[0];
            at = (at + 1).min(self.rto_doubling_count());
        }
        sum
    }

    /// Returns the mean delay of delivery, in seconds. It is that of a message on an idle connection with an unused
    /// timeout, and a lower bound for any other message.
    pub fn mean_delay(&self) -> f64 {
        self.delay[0].as_secs_f64() + self.mean_retransmission_delay(0)
    }
}

/// Messages at even intervals over one connection with one segment in flight. Nagle's algorithm holds later messages,
/// and the next segment carries them all. Acknowledgements are not delayed, and there are no timestamps. The backed-off
/// timeout stays until a segment needs no retransmission (RFC 6298, Karn's algorithm).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TcpMessageStream {
    /// The connection. Its round trip is shorter than its minimum timeout.
    pub lone_segment: IsolatedTcpSegment,
    /// Interval between messages.
    pub every: Duration,
    /// Messages that fit into a segment.
    pub segment_capacity: f64,
}

/// Means over all messages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MessageStreamMeans {
    /// Time from sending a message to its delivery, in seconds.
    pub delay: f64,
    /// Segments of both sides per message, acknowledgements included.
    pub segments: f64,
    /// Share of messages in segments that exceed their capacity. It shows how far the model leaves its domain.
    pub crowded: f64,
}

/// One way in which a segment is acknowledged, with its probability.
struct SegmentAckOutcome {
    chance: f64,
    /// Duration, in phases.
    lasts: usize,
    /// Level of the timeout afterwards.
    level: usize,
    /// Transmissions, and acknowledgements of those that arrive.
    segments: f64,
}

impl TcpMessageStream {
    /// Returns the means; `None` if every packet is lost, or the minimum timeout is shorter than the round trip.
    pub fn means(&self) -> Option<MessageStreamMeans> {
        let [lost, lost_back] = self.lone_segment.loss;
        let round_trip = self.lone_segment.delay[0] + self.lone_segment.delay[1];
        if lost >= 1.0 || lost_back >= 1.0 || self.lone_segment.rto_min <= round_trip || self.every.is_zero()
        {
            return None;
        }
        let levels = self.lone_segment.rto_doubling_count() as usize + 1;
        let cycles: Vec<Vec<SegmentAckOutcome>> =
            (0..levels).map(|l| self.segment_ack_outcomes(l as u32)).collect();
        let repairs: Vec<f64> =
            (0..levels).map(|l| self.lone_segment.mean_retransmission_delay(l as u32)).collect();
        let begins = stationary_distribution(&cycles);
        let phase_s = self.every.as_secs_f64() / PHASES as f64;
        let there = self.lone_segment.delay[0].as_secs_f64();
        let (mut messages, mut waits, mut segments, mut crowded) = (0.0, 0.0, 0.0, 0.0);
        for (level, from) in begins.iter().enumerate() {
            for (phase, share) in from.iter().enumerate() {
                for cycle in &cycles[level] {
                    let chance = share * cycle.chance;
                    let (n, next) = next_segment_batch(phase + cycle.lasts);
                    // The newest message waited for the phase, and each earlier message waited one interval longer than
                    // the next.
                    let waited = next as f64 * phase_s + (n - 1.0) / 2.0 * self.every.as_secs_f64();
                    messages += chance * n;
                    waits += chance * n * (waited + there + repairs[cycle.level]);
                    segments += chance * cycle.segments;
                    crowded += if n > self.segment_capacity { chance * n } else { 0.0 };
                }
            }
        }
        Some(MessageStreamMeans {
            delay: waits / messages,
            segments: segments / messages,
            crowded: crowded / messages,
        })
    }

    /// Returns the ways in which a segment is acknowledged if its timeout begins at a level: a number of failures,
    /// where data or acknowledgement is lost, then a success.
    fn segment_ack_outcomes(&self, level: u32) -> Vec<SegmentAckOutcome> {
        let [lost, lost_back] = self.lone_segment.loss;
        let passes = (1.0 - lost) * (1.0 - lost_back);
        // In some failures the data arrives, but its acknowledgement is lost.
        let in_vain = if passes < 1.0 { (1.0 - lost) * lost_back / (1.0 - passes) } else { 0.0 };
        let phase = self.every.as_nanos() as f64 / PHASES as f64;
        let top = self.lone_segment.rto_doubling_count();
        let mut lasts = self.lone_segment.delay[0] + self.lone_segment.delay[1];
        let (mut chance, mut at, mut failures) = (passes, level, 0.0);
        let mut cycles = Vec::new();
        while chance > RARE * passes {
            cycles.push(SegmentAckOutcome {
                chance,
                lasts: libm::round(lasts.as_nanos() as f64 / phase) as usize,
                level: if failures == 0.0 { 0 } else { at as usize },
                segments: 2.0 + failures * (1.0 + in_vain),
            });
            lasts += self.lone_segment.timeout_at(at);
            at = (at + 1).min(top);
            chance *= 1.0 - passes;
            failures += 1.0;
        }
        cycles
    }
}

/// Returns the number of messages in the next segment, and the phase in which it begins, `phases` after the last
/// message. Without a waiting message, the next segment begins with the next message.
fn next_segment_batch(phases: usize) -> (f64, usize) {
    let (n, phase) = (phases / PHASES, phases % PHASES);
    if n == 0 { (1.0, 0) } else { (n as f64, phase) }
}

/// Returns the long-run share of segments that begin at each level and phase.
fn stationary_distribution(cycles: &[Vec<SegmentAckOutcome>]) -> Vec<Vec<f64>> {
    let mut now = vec![vec![0.0; PHASES]; cycles.len()];
    now[0][0] = 1.0;
    loop {
        let mut next = vec![vec![0.0; PHASES]; cycles.len()];
        for (from, ways) in now.iter().zip(cycles) {
            for (phase, share) in from.iter().enumerate().filter(|(_, share)| **share > 0.0) {
                for cycle in ways {
                    next[cycle.level][next_segment_batch(phase + cycle.lasts).1] += share * cycle.chance;
                }
            }
        }
        let whole: f64 = next.iter().flatten().sum();
        next.iter_mut().flatten().for_each(|share| *share /= whole);
        let moved: f64 = next.iter().flatten().zip(now.iter().flatten()).map(|(a, b)| (a - b).abs()).sum();
        now = next;
        if moved < 1e-10 {
            return now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Seed;

    const fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn test_stream(loss: f64, rto_max: u64) -> TcpMessageStream {
        let lone = IsolatedTcpSegment {
            loss: [loss; 2],
            delay: [millis(20); 2],
            rto_min: millis(200),
            rto_max: millis(rto_max),
        };
        TcpMessageStream { lone_segment: lone, every: millis(500), segment_capacity: 6.4 }
    }

    #[test]
    fn a_lone_segment_waits_for_its_own_repairs() {
        // 20 ms, and 200, 400, 500, 500, ... ms with probabilities 1/2, 1/4, 1/8, 1/16, ...
        let mean = test_stream(0.5, 500).lone_segment.mean_delay();
        assert!((mean - (0.02 + 0.1 + 0.1 + 0.5 * 0.25)).abs() < 1e-9, "{mean}");
        assert_eq!(test_stream(0.0, 500).lone_segment.mean_delay(), 0.02);
        let levels = [200, 300, 400, 1000].map(|max| test_stream(0.1, max).lone_segment.rto_doubling_count());
        assert_eq!(levels, [0, 1, 1, 3]);
    }

    #[test]
    fn without_loss_a_message_takes_a_segment_and_its_ack() {
        let means = test_stream(0.0, 1000).means().unwrap();
        assert!((means.delay - 0.02).abs() < 1e-12 && (means.segments - 2.0).abs() < 1e-12, "{means:?}");
        assert_eq!(means.crowded, 0.0);
        let fast = IsolatedTcpSegment { rto_min: millis(40), ..test_stream(0.1, 1000).lone_segment };
        assert_eq!(TcpMessageStream { lone_segment: fast, ..test_stream(0.1, 1000) }.means(), None);
        assert_eq!(test_stream(1.0, 1000).means(), None);
    }

    /// Simulates the connection, transmission by transmission, in milliseconds.
    fn simulate_message_stream(s: &TcpMessageStream, seed: Seed, messages: u64) -> (f64, f64) {
        let mut rng = seed.derive_rng("losses", 0);
        let (every, one_way) = (s.every.as_millis(), s.lone_segment.delay[0].as_millis());
        let (least, most) = (s.lone_segment.rto_min.as_millis(), s.lone_segment.rto_max.as_millis());
        let (mut now, mut sent, mut timeout, mut sum, mut segments) = (0, 0, least, 0, 0);
        while sent < messages {
            now = now.max(sent * every);
            let until = now / every + 1;
            let (mut delivered, mut retried) = (None, false);
            loop {
                segments += 1;
                let arrives = !rng.sample_bool(s.lone_segment.loss[0]);
                if arrives {
                    delivered.get_or_insert(now + one_way);
                    segments += 1;
                    if !rng.sample_bool(s.lone_segment.loss[1]) {
                        now += 2 * one_way;
                        break;
                    }
                }
                now += timeout;
                timeout = (2 * timeout).min(most);
                retried = true;
            }
            if !retried {
                timeout = least;
            }
            let at = delivered.unwrap_or(now);
            sum += (sent..until).map(|m| at - m * every).sum::<u64>();
            sent = until;
        }
        (sum as f64 / 1000.0 / sent as f64, segments as f64 / sent as f64)
    }

    #[test]
    fn a_played_connection_has_the_means() {
        for (loss, rto_max) in [(0.05, 1000), (0.2, 200), (0.2, 500), (0.3, 1000), (0.5, 300)] {
            let s = test_stream(loss, rto_max);
            let means = s.means().unwrap();
            let plays: Vec<(f64, f64)> = (0..20)
                .map(|r| simulate_message_stream(&s, Seed::new(3).derive_seed("play", r), 20_000))
                .collect();
            for (theory, values) in [
                (means.delay, plays.iter().map(|p| p.0).collect::<Vec<_>>()),
                (means.segments, plays.iter().map(|p| p.1).collect()),
            ] {
                let mean = values.iter().sum::<f64>() / 20.0;
                let spread: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
                let error = (spread / 19.0 / 20.0).sqrt();
                assert!(
                    (mean - theory).abs() < 4.0 * error,
                    "{loss}, {rto_max}: {mean} ± {error}, not {theory}"
                );
            }
        }
    }

    #[test]
    fn delay_grows_faster_with_loss_and_linearly_with_the_timeout() {
        let steps = |of: &dyn Fn(u64) -> TcpMessageStream| {
            let delays = [0, 1, 2, 3, 4].map(|i| of(i).means().unwrap().delay);
            [0, 1, 2, 3].map(|i| delays[i + 1] - delays[i])
        };
        let by_loss = steps(&|i| test_stream(0.1 * i as f64, 500));
        assert!(by_loss[0] > 0.0 && by_loss.windows(2).all(|w| w[1] > w[0]), "{by_loss:?}");
        let by_timeout = steps(&|i| test_stream(0.45, 200 + 200 * i));
        assert!(by_timeout.iter().all(|s| (s / 0.7 - 1.0).abs() < 0.05), "{by_timeout:?}");
        for (loss, rto_max) in [(0.1, 200), (0.4, 1000)] {
            let s = test_stream(loss, rto_max);
            assert!(s.means().unwrap().delay > s.lone_segment.mean_delay());
        }
    }
}
