//! Accounting requests: each waits until its record is durable.

use super::api::Job;
use super::context::Context;
use super::fronts::Fronts;
use crate::ledger::{BadRecord, Record, Status, nas_of, text};
use crate::proxy::{self, Route};
use alloc::boxed::Box;
use core::net::{IpAddr, Ipv4Addr};
use usher_core::table::SessionTable;
use usher_core::{CommandError, Instant};
use usher_diameter::accounting::{Aca, Acr};
use usher_diameter::{Fault, Message, ResultCode, codes};
use usher_radius::attribute::kind;
use usher_radius::packet::Code;
use usher_radius::server::Request;

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
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
    /// Since when the first waits.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.waiting.oldest().map(|(_, since)| since)
    }

    /// Takes an Accounting-Request. One that is none gets no answer (RFC 2866 §4.1: what is not recorded is not
    /// acknowledged). One that tells of a tunnel, a link, a failure or what its vendor thought of has nothing that this
    /// server records, and its NAS would send it for ever, before the records that count.
    pub(super) fn request(&mut self, fronts: &mut Fronts, request: Request) {
        fronts.ctx.counters.accounting += 1;
        let source = request.path.remote.ip();
        let own = fronts.speaks_for(Some(request.client), source, nas_of(&request.attributes, source));
        let client = fronts.radius.as_ref().map(|server| server.client(request.client));
        let client = client.map(|client| (client.network, client.prefix));
        let record = Record::from_radius(&request.attributes, source, fronts.ctx.wall()).map(|record| {
            let mut record = Record { client, ..record };
            let name = request.attributes.get(kind::USER_NAME).unwrap_or_default();
            unveil(&fronts.ctx, &mut record, name, request.attributes.get_all(kind::CLASS));
            record
        });
        match record {
            Ok(record) if own => self.keep(&mut fronts.ctx, Waiting::Radius(request.token), record),
            Ok(record) if matches!(record.status, Status::On | Status::Off) => {
                fronts.ctx.counters.foreign_restarts += 1;
                acknowledge(fronts, request.token);
            }
            Ok(mut record) => {
                fronts.ctx.counters.foreign_nas += 1;
                record.report_by(source);
                self.keep(&mut fronts.ctx, Waiting::Radius(request.token), record);
            }
            Err(BadRecord::UnknownStatus(_)) => {
                fronts.ctx.counters.other_accounting += 1;
                acknowledge(fronts, request.token);
            }
            Err(_) => {
                fronts.ctx.counters.bad_accounting += 1;
                fronts.stay_silent(request.token);
            }
        }
        fronts.recycle(request.attributes);
    }

    /// Takes an ACR of this origin, as far as that is authenticated.
    ///
    /// # Errors
    /// It is none: for the answer.
    pub(super) fn message(
        &mut self,
        ctx: &mut Context,
        token: u64,
        origin: &str,
        message: &Message,
    ) -> Result<(), Fault> {
        ctx.counters.accounting += 1;
        let acr = Acr::parse(message.avps.view()).inspect_err(|_| ctx.counters.bad_accounting += 1)?;
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        // All Diameter peers together are one client of the ledger.
        let client = Some((unspecified, 0));
        let record = Record::from_diameter(&acr, origin, unspecified, ctx.wall());
        let mut record = Record { client, ..record };
        let name = acr.user_name.unwrap_or_default().as_bytes();
        unveil(ctx, &mut record, name, message.avps.view().all(codes::CLASS).map(|avp| avp.data));
        let aca = Aca { record_type: acr.record_type, record_number: acr.record_number };
        self.keep(ctx, Waiting::Diameter(token, aca), record);
        Ok(())
    }

    fn keep(&mut self, ctx: &mut Context, waiting: Waiting, record: Record) {
        let token = self.waiting.insert(ctx.now, waiting);
        ctx.assign(token, Job::Account { record: Box::new(record) });
    }

    /// The host has written a record, or could not.
    pub(super) fn written(
        &mut self,
        fronts: &mut Fronts,
        token: u64,
        durable: bool,
    ) -> Result<(), CommandError> {
        let waiting = self.waiting.remove(token).ok_or(CommandError::UnknownToken)?;
        if !durable {
            not_kept(fronts, waiting);
            return Ok(());
        }
        fronts.ctx.counters.accounted += 1;
        match waiting {
            Waiting::Radius(token) => acknowledge(fronts, token),
            Waiting::Diameter(token, aca) => fronts.answer_peer(token, ResultCode::SUCCESS, aca.avps()),
        }
        Ok(())
    }

    /// Forgets requests that nobody answered in time.
    pub(super) fn expire(&mut self, fronts: &mut Fronts) {
        while let Some((token, since)) = self.waiting.oldest() {
            if since + fronts.ctx.config.session_timeout > fronts.ctx.now {
                break;
            }
            if let Some(waiting) = self.waiting.remove(token) {
                not_kept(fronts, waiting);
            }
        }
    }
}

fn acknowledge(fronts: &mut Fronts, token: u64) {
    let attributes = fronts.attributes();
    fronts.respond(token, Code::ACCOUNTING_RESPONSE, attributes);
}

/// A record is not durable: silence over RADIUS, so that the client sends it again or elsewhere; over Diameter
/// the transient failure that says so (RFC 6733 §7.1.4).
fn not_kept(fronts: &mut Fronts, waiting: Waiting) {
    fronts.ctx.counters.unavailable += 1;
    match waiting {
        Waiting::Radius(token) => fronts.stay_silent(token),
        Waiting::Diameter(token, aca) => fronts.answer_peer(token, ResultCode::OUT_OF_SPACE, aca.avps()),
    }
}

/// Has a record tell of the user for whom its Classes stand. Only where users of the name that it gives are
/// known here: what another realm's home server calls a Class may be ours, seen elsewhere. What makes the session
/// unique stays what its access server says of it.
fn unveil<'a>(ctx: &Context, record: &mut Record, given: &[u8], classes: impl Iterator<Item = &'a [u8]>) {
    let Some(key) = &ctx.config.identity_key else { return };
    let ours = |p: &proxy::Config| *p.realms.find(given).route == Route::Local;
    if let Some(name) = key.name(classes)
        && ctx.config.proxy.as_ref().is_none_or(ours)
    {
        record.session.user = text(&name);
    }
}
