//! Accounting requests: each waits until its record is durable.

use super::AaaServer;
use crate::server::answer::Asker;
use usher_core::table::SessionTable;
use usher_core::{CommandError, Instant, Machine};
use usher_radius::packet::Code;
use usher_radius::server::{Command, Request};

/// Requests whose records are being written.
#[derive(Debug, Default)]
pub(super) struct Accounting {
    waiting: SessionTable<Asker>,
}

impl Accounting {
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.waiting.oldest().map(|(_, since)| since)
    }
}

impl AaaServer {
    pub(super) fn accounting_request(&mut self, now: Instant, request: Request) {
        self.counters.accounting += 1;
        let asker = Asker::Radius(request.token);
        self.counters.bad_accounting += 1;
        self.discard(now, asker);
        self.recycle(request.attributes);
    }

    pub(super) fn on_accounted(
        &mut self,
        now: Instant,
        token: u64,
        durable: bool,
    ) -> Result<(), CommandError> {
        let asker = self.accounting.waiting.remove(token).ok_or(CommandError::UnknownToken)?;
        if !durable {
            self.counters.unavailable += 1;
            self.unavailable(now, asker);
            return Ok(());
        }
        self.counters.accounted += 1;
        match asker {
            Asker::Radius(token) => {
                let attributes = self.attributes();
                if let Some(server) = &mut self.radius {
                    let code = Code::ACCOUNTING_RESPONSE;
                    // The client may have given this request up for a newer one: then nobody waits.
                    let _ = server.command(now, Command::Respond { token, code, attributes });
                }
            }
            Asker::Diameter(..) => {}
        }
        Ok(())
    }

    /// Forgets requests that nobody answered in time.
    pub(super) fn expire_accounting(&mut self, now: Instant) {
        while let Some((token, since)) = self.accounting.waiting.oldest() {
            if since + self.config.session_timeout > now {
                break;
            }
            self.counters.unavailable += 1;
            if let Some(asker) = self.accounting.waiting.remove(token) {
                self.unavailable(now, asker);
            }
        }
    }
}
