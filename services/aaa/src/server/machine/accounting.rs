//! Accounting requests: each waits until its record is durable.

use super::AaaServer;
use crate::ledger::{BadRecord, Record, Status, nas_of, text};
use crate::proxy::{self, Route};
use crate::server::api::Job;
use alloc::boxed::Box;
use core::net::{IpAddr, Ipv4Addr};
use usher_core::table::SessionTable;
use usher_core::{CommandError, Instant, Machine, WallTime};
use usher_diameter::accounting::{Aca, Acr};
use usher_diameter::{Fault, Message, ResultCode, codes, node};
use usher_radius::attribute::kind;
use usher_radius::packet::Code;
use usher_radius::server as radius;

/// Who waits for a record to be durable.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// The RADIUS server's token.
    Radius(u64),
    /// The Diameter node's token, and what the answer says.
    Diameter(u64, Aca),
}

/// Requests whose records are being written.
#[derive(Debug, Default)]
pub(super) struct Accounting {
    waiting: SessionTable<Waiting>,
}

impl Accounting {
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.waiting.oldest().map(|(_, since)| since)
    }
}

impl AaaServer {
    /// Accounting requests that wait for their records to be durable.
    #[must_use]
    pub fn accounting_waiting(&self) -> usize {
        self.accounting.waiting.len()
    }
    pub(super) fn wall(&self, now: Instant) -> WallTime {
        self.config.epoch + now.since(Instant::ZERO)
    }
    /// Takes an Accounting-Request. One that is none gets no answer (RFC 2866 §4.1: what is not recorded is not
    /// acknowledged). One that tells of a tunnel, a link, a failure or what its vendor thought of has nothing that this
    /// server records, and its NAS would send it for ever, before the records that count.
    pub(super) fn accounting_request(&mut self, now: Instant, request: radius::Request) {
        self.counters.accounting += 1;
        let source = request.path.remote.ip();
        let own = self.speaks_for(request.client, source, nas_of(&request.attributes, source));
        let client = self.radius.as_ref().map(|server| server.client(request.client));
        let client = client.map(|client| (client.network, client.prefix));
        let record = Record::from_radius(&request.attributes, source, self.wall(now)).map(|record| {
            let mut record = Record { client, ..record };
            let name = request.attributes.get(kind::USER_NAME).unwrap_or_default();
            self.unveil(&mut record, name, request.attributes.get_all(kind::CLASS));
            record
        });
        match record {
            Ok(record) if own => self.keep(now, Waiting::Radius(request.token), record),
            Ok(record) if matches!(record.status, Status::On | Status::Off) => {
                self.counters.foreign_restarts += 1;
                self.acknowledge(now, request.token);
            }
            Ok(mut record) => {
                self.counters.foreign_nas += 1;
                record.report_by(source);
                self.keep(now, Waiting::Radius(request.token), record);
            }
            Err(BadRecord::UnknownStatus(_)) => {
                self.counters.other_accounting += 1;
                self.acknowledge(now, request.token);
            }
            Err(_) => {
                self.counters.bad_accounting += 1;
                self.ignore(now, request.token);
            }
        }
        self.recycle(request.attributes);
    }
    /// Takes an ACR of this origin, as far as that is authenticated.
    ///
    /// # Errors
    /// It is none: for the answer.
    pub(super) fn accounting_message(
        &mut self,
        now: Instant,
        token: u64,
        origin: &str,
        message: &Message,
    ) -> Result<(), Fault> {
        self.counters.accounting += 1;
        let acr = Acr::parse(message.avps.view()).inspect_err(|_| self.counters.bad_accounting += 1)?;
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        // All Diameter peers together are one client of the ledger.
        let client = Some((unspecified, 0));
        let record = Record::from_diameter(&acr, origin, unspecified, self.wall(now));
        let mut record = Record { client, ..record };
        let name = acr.user_name.unwrap_or_default().as_bytes();
        self.unveil(&mut record, name, message.avps.view().all(codes::CLASS).map(|avp| avp.data));
        let aca = Aca { record_type: acr.record_type, record_number: acr.record_number };
        self.keep(now, Waiting::Diameter(token, aca), record);
        Ok(())
    }
    /// Has a record tell of the user for whom one of its Classes stands. Only where users of the name that it gives are
    /// known here: what another realm's home server calls a Class may be ours, seen elsewhere. What makes the session
    /// unique stays what its access server says of it.
    fn unveil<'a>(&self, record: &mut Record, given: &[u8], mut classes: impl Iterator<Item = &'a [u8]>) {
        let Some(key) = &self.config.identity_key else { return };
        let ours = |p: &proxy::Config| *p.realms.find(given).route == Route::Local;
        if let Some(name) = classes.find_map(|class| key.name(class))
            && self.config.proxy.as_ref().is_none_or(ours)
        {
            record.session.user = text(&name);
        }
    }
    fn keep(&mut self, now: Instant, waiting: Waiting, record: Record) {
        let token = self.accounting.waiting.insert(now, waiting);
        self.assign(token, Job::Account { record: Box::new(record) });
    }
    /// Whether a client may name an access server by this address.
    pub(super) fn speaks_for(&self, client: u32, source: IpAddr, named: IpAddr) -> bool {
        self.radius.as_ref().is_some_and(|server| server.speaks_for(client, source, named))
    }
    fn acknowledge(&mut self, now: Instant, token: u64) {
        let (code, attributes) = (Code::ACCOUNTING_RESPONSE, self.attributes());
        if let Some(server) = &mut self.radius {
            // The client may have given this request up for a newer one: then nobody waits.
            let _ = server.command(now, radius::Command::Respond { token, code, attributes });
        }
    }
    fn ignore(&mut self, now: Instant, token: u64) {
        if let Some(server) = &mut self.radius {
            // A request that is gone needs no end.
            let _ = server.command(now, radius::Command::Discard { token });
        }
    }

    pub(super) fn on_accounted(
        &mut self,
        now: Instant,
        token: u64,
        durable: bool,
    ) -> Result<(), CommandError> {
        let waiting = self.accounting.waiting.remove(token).ok_or(CommandError::UnknownToken)?;
        if !durable {
            self.not_kept(now, waiting);
            return Ok(());
        }
        self.counters.accounted += 1;
        match waiting {
            Waiting::Radius(token) => self.acknowledge(now, token),
            Waiting::Diameter(token, aca) => {
                let (result, avps) = (ResultCode::SUCCESS, aca.avps());
                if let Some(node) = &mut self.diameter {
                    // As above: the connection may be gone.
                    let _ = node.command(now, node::Command::Answer { token, result, avps });
                }
            }
        }
        Ok(())
    }
    /// A record is not durable: silence over RADIUS, so that the client sends it again or elsewhere; over Diameter
    /// the transient failure that says so (RFC 6733 §7.1.4).
    fn not_kept(&mut self, now: Instant, waiting: Waiting) {
        self.counters.unavailable += 1;
        match waiting {
            Waiting::Radius(token) => self.ignore(now, token),
            Waiting::Diameter(token, aca) => {
                let (result, avps) = (ResultCode::OUT_OF_SPACE, aca.avps());
                if let Some(node) = &mut self.diameter {
                    // As above: the connection may be gone.
                    let _ = node.command(now, node::Command::Answer { token, result, avps });
                }
            }
        }
    }

    /// Forgets requests that nobody answered in time.
    pub(super) fn expire_accounting(&mut self, now: Instant) {
        while let Some((token, since)) = self.accounting.waiting.oldest() {
            if since + self.config.session_timeout > now {
                break;
            }
            if let Some(waiting) = self.accounting.waiting.remove(token) {
                self.not_kept(now, waiting);
            }
        }
    }
}
