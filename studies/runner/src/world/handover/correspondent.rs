//! A correspondent: sends a mobile node its flow.

use super::super::Report;
use super::super::machine::Place;
use super::tally::Said;
use usher_core::{Instant, Machine};
use usher_mobility::Correspondent;
use usher_mobility::correspondent::{Command, Event};
use usher_sim::{Context, Delivery};

/// The correspondent and where it lives.
#[derive(Debug)]
pub(in super::super) struct CorrespondentRole {
    place: Place,
    /// The number of its mobile node.
    number: u32,
    /// When the flow begins, and has not yet.
    begins: Option<Instant>,
    correspondent: Correspondent,
    buf: Vec<u8>,
}

impl CorrespondentRole {
    pub(super) fn new(place: Place, number: u32, begins: Instant, correspondent: Correspondent) -> Self {
        Self { place, number, begins: Some(begins), correspondent, buf: Vec::new() }
    }

    pub(in super::super) fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        if self.begins.is_some_and(|at| at <= ctx.now()) {
            self.begins = None;
            let _ = self.correspondent.command(ctx.now(), Command::Start);
        }
        self.place.feed(ctx, &mut self.correspondent, &delivery);
        while let Some(event) = self.correspondent.poll_event() {
            let said = match event {
                Event::Sent { sequence, .. } => Said::Sent { sequence },
                Event::Redirected { .. } => Said::Redirected,
            };
            ctx.report(Report::Mobile(self.number, said));
        }
        self.place.drain(ctx, &mut self.correspondent, &mut self.buf);
        let next = [self.correspondent.poll_timeout(), self.begins].into_iter().flatten().min();
        ctx.set_timer(next);
    }
}
