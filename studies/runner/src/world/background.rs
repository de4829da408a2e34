//! Traffic that shares links with what is counted: UDP datagrams to the discard port, one way.

use super::report::Report;
use super::role::Role;
use usher_core::{Duration, Instant, Rng};
use usher_scenario::model::{Background, BackgroundKind};
use usher_sim::{Context, DISCARD_PORT, Delivery, HostId, IpVersion, Payload, UDP_HEADER};

/// One sender of background traffic.
#[derive(Debug)]
pub(super) struct Source {
    to: HostId,
    payload: u32,
    mean_gap: Duration,
    poisson: bool,
    next: Instant,
    stop: Instant,
    rng: Rng,
}

impl Source {
    pub(super) fn new(b: &Background, to: HostId, version: IpVersion, mut rng: Rng) -> Self {
        let bytes = b.packet.bytes();
        let mean_gap = Duration::from_secs_f64(bytes as f64 * 8.0 / b.rate.bits_per_second() as f64);
        let poisson = b.kind == BackgroundKind::Poisson;
        let start = Instant::ZERO + b.start.get();
        // Several senders of one constant rate would otherwise send at the same instant for ever.
        let phase = if poisson { rng.exponential(mean_gap) } else { mean_gap.mul_f64(rng.unit()) };
        Self {
            to,
            payload: (bytes as u32).saturating_sub(version.header_len() + UDP_HEADER),
            mean_gap,
            poisson,
            next: start + phase,
            stop: b.stop.map_or(Instant::FAR_FUTURE, |s| Instant::ZERO + s.get()),
            rng,
        }
    }
}

impl Role for Source {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        let delivery = &delivery;
        if matches!(delivery, Delivery::Timer) {
            ctx.send_datagram(0, self.to, DISCARD_PORT, Payload::counted(self.payload));
            self.next += if self.poisson { self.rng.exponential(self.mean_gap) } else { self.mean_gap };
        }
        ctx.set_timer((self.next < self.stop).then_some(self.next));
    }
}

/// Where background traffic ends.
#[derive(Debug)]
pub(super) struct Sink;

impl Role for Sink {
    fn handle(&mut self, _ctx: &mut Context<'_, Report>, _delivery: Delivery) {}
}
