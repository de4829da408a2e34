//! An AAA server on a simulated host.

use super::super::machine::Place;
use super::super::{Report, WorldError};
use usher_aaa::{AaaServer, Config};
use usher_core::{Machine, Seed};
use usher_sim::{Context, Delivery};

/// The server and where it lives.
#[derive(Debug)]
pub(in super::super) struct ServerRole {
    place: Place,
    config: Config,
    seed: Seed,
    /// How often its host has been switched on.
    boots: u64,
    server: AaaServer,
    buf: Vec<u8>,
}

impl ServerRole {
    /// A server that begins anew, with nothing remembered, whenever its host does.
    pub(super) fn new(place: Place, config: Config, seed: Seed) -> Result<Self, WorldError> {
        let server = boot(&config, seed, 0)?;
        Ok(Self { place, config, seed, boots: 0, server, buf: Vec::new() })
    }

    pub(in super::super) fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        if matches!(delivery, Delivery::Start) {
            self.boots += 1;
            // What was accepted at first is accepted again.
            if self.boots > 1
                && let Ok(server) = boot(&self.config, self.seed, self.boots)
            {
                self.server = server;
            }
        }
        self.place.feed(ctx, &mut self.server, &delivery);
        // Its verdicts show at the stations.
        while self.server.poll_event().is_some() {}
        self.place.drain(ctx, &mut self.server, &mut self.buf);
    }
}

fn boot(config: &Config, seed: Seed, boots: u64) -> Result<AaaServer, WorldError> {
    AaaServer::new(config.clone(), seed.secure("aaa.server.boot", boots))
        .map_err(|e| WorldError::Role(e.to_string()))
}
