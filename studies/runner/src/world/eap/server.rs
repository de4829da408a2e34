//! An AAA server on a simulated host.

use super::super::machine::{Endpoint, EventOrJob};
use super::super::{Report, WorldError};
use usher_aaa::ledger::{Ledger, LedgerConfig};
use usher_aaa::store::{Memory, Store};
use usher_aaa::{AaaServer, Command, Config, Job};
use usher_core::{Instant, Machine, Seed};
use usher_sim::{Context, Delivery};

/// The server and where it lives.
#[derive(Debug)]
pub(in super::super) struct ServerRole {
    endpoint: Endpoint,
    config: Config,
    seed: Seed,
    /// How often its host has been switched on.
    boots: u64,
    server: AaaServer,
    /// Where there is accounting: what it knows of sessions, and what is left of that when its host is off.
    books: Option<Box<(Ledger, Memory)>>,
}

impl ServerRole {
    /// A server that begins anew, with nothing remembered, whenever its host does.
    pub(super) fn new(
        endpoint: Endpoint,
        config: Config,
        seed: Seed,
        accounting: bool,
    ) -> Result<Self, WorldError> {
        let server = boot(&config, seed, 0)?;
        let books = accounting.then(|| Box::new((Ledger::new(LedgerConfig::default()), Memory::new())));
        Ok(Self { endpoint, config, seed, boots: 0, server, books })
    }

    /// A ledger of what the store has.
    fn reopen(&mut self, now: Instant) {
        if let Some(books) = &mut self.books {
            let (ledger, store) = &mut **books;
            *ledger = Ledger::new(LedgerConfig::default());
            // A store in memory never fails, and there is room for what was there before.
            let _ = store.open_sessions(&mut |row| {
                ledger.restore(now, &row);
            });
        }
    }

    pub(in super::super) fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        if matches!(delivery, Delivery::Start) {
            self.boots += 1;
            // What was accepted at first is accepted again.
            if self.boots > 1
                && let Ok(server) = boot(&self.config, self.seed, self.boots)
            {
                self.server = server;
                self.reopen(ctx.now());
            }
        }
        self.endpoint.feed(ctx, &mut self.server, &delivery);
        let books = &mut self.books;
        self.endpoint.drain(ctx, &mut self.server, |ctx, server, word| {
            // Its verdicts show at the stations.
            let EventOrJob::Job(usher_core::Job { token, what: Job::Account { record }, .. }) = word else {
                return;
            };
            if let Some(books) = books {
                let (ledger, store) = &mut **books;
                let durable = ledger.serve(ctx.now(), store, &record);
                // The request may be gone with its connection: then nobody waits.
                let _ = server.command(ctx.now(), Command::Accounted { token, durable });
            }
        });
    }
}

fn boot(config: &Config, seed: Seed, boots: u64) -> Result<AaaServer, WorldError> {
    AaaServer::new(config.clone(), seed.secure("aaa.server.boot", boots))
        .map_err(|e| WorldError::Role(e.to_string()))
}
