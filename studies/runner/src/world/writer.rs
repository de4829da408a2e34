//! An application that writes its connections slowly, a piece at a time.

use super::report::Report;
use std::collections::VecDeque;
use usher_core::{ConnId, Duration, Instant};
use usher_scenario::model;
use usher_sim::{Context, Payload};

/// What waits to be written, in its order over all connections.
#[derive(Debug)]
pub(super) struct Writer {
    /// Octets of a piece and the time that it takes; `None` writes all at once.
    pace: Option<(u32, Duration)>,
    queue: VecDeque<(ConnId, u32)>,
    /// When the next piece may be written.
    free_at: Instant,
}

impl Writer {
    pub(super) fn new(d: &model::Dialogue) -> Self {
        let pace = d.write_rate.get().map(|rate| {
            let piece = d.write_size.bytes().min(1 << 30);
            let time = Duration::from_nanos(piece * 8 * 1_000_000_000 / rate.bits_per_second());
            (piece as u32, time.max(Duration::from_nanos(1)))
        });
        Self { pace, queue: VecDeque::new(), free_at: Instant::ZERO }
    }

    pub(super) fn write(&mut self, ctx: &mut Context<'_, Report>, conn: ConnId, octets: u32) {
        if self.pace.is_none() {
            ctx.write(conn, Payload::counted(octets));
            return;
        }
        self.queue.push_back((conn, octets));
        self.due(ctx);
    }

    /// Writes the pieces whose time has come.
    pub(super) fn due(&mut self, ctx: &mut Context<'_, Report>) {
        let Some((piece, time)) = self.pace else { return };
        while self.free_at <= ctx.now()
            && let Some((conn, left)) = self.queue.front_mut()
        {
            let octets = piece.min(*left);
            ctx.write(*conn, Payload::counted(octets));
            *left -= octets;
            if *left == 0 {
                self.queue.pop_front();
            }
            self.free_at = self.free_at.max(ctx.now()) + time;
        }
    }

    /// When [`due`](Self::due) is to be called.
    pub(super) fn next(&self) -> Option<Instant> {
        (!self.queue.is_empty()).then_some(self.free_at)
    }

    /// A connection is no more: what waited for it is dropped.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.queue.retain(|(of, _)| *of != conn);
    }
}
