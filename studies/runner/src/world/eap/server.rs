//! An AAA server on a simulated host.

use super::super::Report;
use super::super::machine::Place;
use usher_aaa::AaaServer;
use usher_core::Machine;
use usher_sim::{Context, Delivery};

/// The server and where it lives.
#[derive(Debug)]
pub(in super::super) struct ServerRole {
    place: Place,
    server: AaaServer,
    buf: Vec<u8>,
}

impl ServerRole {
    pub(super) fn new(place: Place, server: AaaServer) -> Self {
        Self { place, server, buf: Vec::new() }
    }

    pub(in super::super) fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        self.place.feed(ctx, &mut self.server, &delivery);
        // Its verdicts show at the stations.
        while self.server.poll_event().is_some() {}
        self.place.drain(ctx, &mut self.server, &mut self.buf);
    }
}
