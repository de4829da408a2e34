//! Background traffic on links that the counted traffic uses: UDP datagrams to the discard port, in one direction.

use super::report::RoleReport;
use super::role::HostRole;
use usher_core::{Duration, Instant, SimulationRng};
use usher_scenario::model::{BackgroundKind, BackgroundTraffic};
use usher_sim::{AppContext, AppDelivery, DISCARD_PORT, HostId, IpVersion, Payload, UDP_HEADER};

/// A sender of background traffic.
#[derive(Debug)]
pub(super) struct BackgroundSource {
    to: HostId,
    payload: u32,
    mean_gap: Duration,
    kind: BackgroundKind,
    next: Instant,
    stop: Instant,
    rng: SimulationRng,
}

impl BackgroundSource {
    pub(super) fn new(b: &BackgroundTraffic, to: HostId, version: IpVersion, mut rng: SimulationRng) -> Self {
        let bytes = b.packet.bytes();
        let mean_gap = Duration::from_secs_f64(bytes as f64 * 8.0 / b.rate.bits_per_second() as f64);
        let start = Instant::ZERO + b.start.get();
        // A random phase is needed: otherwise senders of the same constant rate would send at the same instants
        // forever.
        let phase = match b.kind {
            BackgroundKind::Poisson => rng.sample_exponential(mean_gap),
            BackgroundKind::Cbr | BackgroundKind::JitteredCbr => mean_gap.mul_f64(rng.sample_unit()),
        };
        Self {
            to,
            payload: (bytes as u32).saturating_sub(version.header_len() + UDP_HEADER),
            mean_gap,
            kind: b.kind,
            next: start + phase,
            stop: b.stop.map_or(Instant::FAR_FUTURE, |s| Instant::ZERO + s.get()),
            rng,
        }
    }
}

/// Draws the gap between two packets.
fn draw_packet_gap(kind: BackgroundKind, mean: Duration, rng: &mut SimulationRng) -> Duration {
    match kind {
        BackgroundKind::Cbr => mean,
        BackgroundKind::JitteredCbr => mean.mul_f64(0.5 + rng.sample_unit()),
        BackgroundKind::Poisson => rng.sample_exponential(mean),
    }
}

impl HostRole for BackgroundSource {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        let delivery = &delivery;
        if matches!(delivery, AppDelivery::Timer) {
            ctx.send_datagram(0, self.to, DISCARD_PORT, Payload::with_length(self.payload));
            self.next += draw_packet_gap(self.kind, self.mean_gap, &mut self.rng);
        }
        ctx.set_timer((self.next < self.stop).then_some(self.next));
    }
}

/// The sink of background traffic.
#[derive(Debug)]
pub(super) struct BackgroundSink;

impl HostRole for BackgroundSink {
    fn handle_delivery(&mut self, _ctx: &mut AppContext<'_, RoleReport>, _delivery: AppDelivery) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Seed;

    #[test]
    fn jittered_gaps_span_half_to_one_and_a_half_of_their_mean() {
        let gaps = |kind| {
            let mut rng = Seed::new(1).derive_rng("background", 0);
            let mean = Duration::from_millis(8);
            (0..10_000).map(|_| draw_packet_gap(kind, mean, &mut rng).as_secs_f64() * 1e3).collect::<Vec<_>>()
        };
        assert!(gaps(BackgroundKind::Cbr).iter().all(|gap| *gap == 8.0));
        let jittered = gaps(BackgroundKind::JitteredCbr);
        let (least, most) = jittered.iter().fold((9.0_f64, 0.0_f64), |(a, b), gap| (gap.min(a), gap.max(b)));
        assert!((4.0..4.01).contains(&least) && (11.99..12.0).contains(&most), "{least} {most}");
        // The standard deviation is 8 / sqrt(12) ms; the mean of 10,000 has a hundredth of it.
        assert!((jittered.iter().sum::<f64>() / 1e4 - 8.0).abs() < 0.1);
    }
}
