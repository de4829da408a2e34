//! An application that writes to its connections slowly, in pieces.

use super::report::RoleReport;
use std::collections::VecDeque;
use usher_core::{ConnId, Duration, Instant};
use usher_scenario::model;
use usher_sim::{AppContext, Payload};

/// Data waiting to be written, in order over all connections.
#[derive(Debug)]
pub(super) struct PacedWriter {
    /// `None` writes everything at once.
    paced: Option<Box<PacedWriteQueue>>,
}

#[derive(Debug)]
struct PacedWriteQueue {
    /// Octets of a piece and its duration.
    piece: u32,
    time: Duration,
    queue: VecDeque<(ConnId, u32)>,
    /// The earliest time of the next piece.
    free_at: Instant,
}

impl PacedWriter {
    pub(super) fn new(d: &model::DialogueWorkload) -> Self {
        let paced = d.write_rate.get().map(|rate| {
            let piece = d.write_size.bytes().min(1 << 30);
            let time = Duration::from_nanos(piece * 8 * 1_000_000_000 / rate.bits_per_second());
            let time = time.max(Duration::from_nanos(1));
            Box::new(PacedWriteQueue {
                piece: piece as u32,
                time,
                queue: VecDeque::new(),
                free_at: Instant::ZERO,
            })
        });
        Self { paced }
    }

    pub(super) fn write_octets(&mut self, ctx: &mut AppContext<'_, RoleReport>, conn: ConnId, octets: u32) {
        match &mut self.paced {
            None => ctx.write(conn, Payload::with_length(octets)),
            Some(paced) => {
                paced.queue.push_back((conn, octets));
                paced.write_due(ctx);
            }
        }
    }

    /// Writes the pieces that are due.
    pub(super) fn write_due(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        if let Some(paced) = &mut self.paced {
            paced.write_due(ctx);
        }
    }

    /// Returns when to call [`write_due`](Self::write_due).
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.paced.as_ref().filter(|paced| !paced.queue.is_empty()).map(|paced| paced.free_at)
    }

    /// Drops the queued data of a closed connection.
    pub(super) fn discard_queued_data(&mut self, conn: ConnId) {
        if let Some(paced) = &mut self.paced {
            paced.queue.retain(|(of, _)| *of != conn);
        }
    }
}

impl PacedWriteQueue {
    fn write_due(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        while self.free_at <= ctx.now()
            && let Some((conn, left)) = self.queue.front_mut()
        {
            let octets = self.piece.min(*left);
            ctx.write(*conn, Payload::with_length(octets));
            *left -= octets;
            if *left == 0 {
                self.queue.pop_front();
            }
            self.free_at = self.free_at.max(ctx.now()) + self.time;
        }
    }
}
