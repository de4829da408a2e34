//! Accounting requests. The reply waits until the record is durable.

use super::api::AaaServerJob;
use super::context::ServerContext;
use super::fronts::ProtocolFrontends;
use crate::ledger::{AccountingRecordError, AccountingStatusType, LedgerRecord, nas_of, storable_text};
use crate::proxy::{self, RealmTarget};
use alloc::boxed::Box;
use core::net::{IpAddr, Ipv4Addr};
use usher_core::table::SessionTable;
use usher_core::{CommandError, Instant};
use usher_diameter::accounting::{AccountingAnswer, AccountingRequest};
use usher_diameter::{DiameterError, DiameterMessage, ResultCode, codes};
use usher_radius::attribute::kind;
use usher_radius::packet::PacketCode;
use usher_radius::server::RadiusRequest;

/// The request whose record is being written.
#[derive(Clone, Copy, Debug)]
enum PendingAccountingRequest {
    /// The RADIUS server's token.
    Radius(u64),
    /// The Diameter node's token, and the contents of the answer.
    Diameter(u64, AccountingAnswer),
}

/// Requests whose records are being written.
#[derive(Debug, Default)]
pub(super) struct PendingAccounting {
    waiting: SessionTable<PendingAccountingRequest>,
}

impl PendingAccounting {
    pub(super) fn pending_count(&self) -> usize {
        self.waiting.len()
    }
    /// Returns the time since which the oldest request is pending.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.waiting.oldest_entry().map(|(_, since)| since)
    }

    /// Handles an Accounting-Request.
    ///
    /// RFC 2866 §4.1: an invalid record is not recorded, so it gets no reply. Records of tunnels, links, failures
    /// and vendor types are acknowledged without being recorded. Otherwise the NAS would retransmit them forever,
    /// ahead of the others.
    pub(super) fn handle_request(&mut self, fronts: &mut ProtocolFrontends, request: RadiusRequest) {
        fronts.ctx.counters.accounting += 1;
        let source = request.path.remote.ip();
        let own = fronts.speaks_for(Some(request.client), source, nas_of(&request.attributes, source));
        let client = fronts.radius.as_ref().map(|server| server.client_config(request.client));
        let client = client.map(|client| (client.network, client.prefix));
        let record =
            LedgerRecord::from_radius(&request.attributes, source, fronts.ctx.wall_time()).map(|record| {
                let mut record = LedgerRecord { client, ..record };
                let name = request.attributes.get(kind::USER_NAME).unwrap_or_default();
                replace_aliased_user_name(
                    &fronts.ctx,
                    &mut record,
                    name,
                    request.attributes.get_all(kind::CLASS),
                );
                record
            });
        match record {
            Ok(record) if own => self.assign_accounting_job(
                &mut fronts.ctx,
                PendingAccountingRequest::Radius(request.token),
                record,
            ),
            Ok(record) if matches!(record.status, AccountingStatusType::On | AccountingStatusType::Off) => {
                fronts.ctx.counters.foreign_restarts += 1;
                acknowledge_request(fronts, request.token);
            }
            Ok(mut record) => {
                fronts.ctx.counters.foreign_nas += 1;
                record.assign_to_client(source);
                self.assign_accounting_job(
                    &mut fronts.ctx,
                    PendingAccountingRequest::Radius(request.token),
                    record,
                );
            }
            Err(AccountingRecordError::UnknownStatus(_)) => {
                fronts.ctx.counters.other_accounting += 1;
                acknowledge_request(fronts, request.token);
            }
            // RFC 2866, 5: an attribute of invalid length drops the request.
            Err(_) => {
                fronts.ctx.counters.bad_accounting += 1;
                fronts.discard_radius_request(request.token);
            }
        }
        fronts.recycle_attributes(request.attributes);
    }

    /// Handles an ACR of this origin, as far as it is authenticated.
    ///
    /// # Errors
    /// It is invalid. The error is for the answer.
    pub(super) fn handle_acr(
        &mut self,
        ctx: &mut ServerContext,
        token: u64,
        origin: &str,
        message: &DiameterMessage,
    ) -> Result<(), DiameterError> {
        ctx.counters.accounting += 1;
        let acr = AccountingRequest::parse(message.avps.as_sequence())
            .inspect_err(|_| ctx.counters.bad_accounting += 1)?;
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        // The ledger counts all Diameter peers together as one client.
        let client = Some((unspecified, 0));
        let record = LedgerRecord::from_diameter(&acr, origin, unspecified, ctx.wall_time());
        let mut record = LedgerRecord { client, ..record };
        let name = acr.user_name.unwrap_or_default().as_bytes();
        replace_aliased_user_name(
            ctx,
            &mut record,
            name,
            message.avps.as_sequence().get_all(codes::CLASS).map(|avp| avp.data),
        );
        let aca = AccountingAnswer { record_type: acr.record_type, record_number: acr.record_number };
        self.assign_accounting_job(ctx, PendingAccountingRequest::Diameter(token, aca), record);
        Ok(())
    }

    fn assign_accounting_job(
        &mut self,
        ctx: &mut ServerContext,
        waiting: PendingAccountingRequest,
        record: LedgerRecord,
    ) {
        let token = self.waiting.insert(ctx.now, waiting);
        ctx.assign_job(token, AaaServerJob::Account { record: Box::new(record) });
    }

    /// Handles the host's result of a write.
    pub(super) fn finish_record(
        &mut self,
        fronts: &mut ProtocolFrontends,
        token: u64,
        durable: bool,
    ) -> Result<(), CommandError> {
        let waiting = self.waiting.remove(token).ok_or(CommandError::UnknownToken)?;
        if !durable {
            handle_record_failure(fronts, waiting);
            return Ok(());
        }
        fronts.ctx.counters.accounted += 1;
        match waiting {
            // RFC 2866, 2, 4.1, 4.2; RFC 6733, 9.2: only a durable record is acknowledged.
            PendingAccountingRequest::Radius(token) => acknowledge_request(fronts, token),
            PendingAccountingRequest::Diameter(token, aca) => {
                fronts.answer_diameter_request(token, ResultCode::SUCCESS, aca.to_avps())
            }
        }
        Ok(())
    }

    /// Drops requests whose records were not written in time.
    pub(super) fn expire_accounting_requests(&mut self, fronts: &mut ProtocolFrontends) {
        while let Some((token, since)) = self.waiting.oldest_entry() {
            if since + fronts.ctx.config.session_timeout > fronts.ctx.now {
                break;
            }
            if let Some(waiting) = self.waiting.remove(token) {
                handle_record_failure(fronts, waiting);
            }
        }
    }
}

fn acknowledge_request(fronts: &mut ProtocolFrontends, token: u64) {
    let attributes = fronts.take_attributes();
    fronts.answer_radius(token, PacketCode::ACCOUNTING_RESPONSE, attributes);
}

/// Handles a failed write. Over RADIUS there is no reply, so that the client retransmits or fails over. Over
/// Diameter the answer has a transient failure (RFC 6733 §7.1.4).
fn handle_record_failure(fronts: &mut ProtocolFrontends, waiting: PendingAccountingRequest) {
    fronts.ctx.counters.unavailable += 1;
    match waiting {
        PendingAccountingRequest::Radius(token) => fronts.discard_radius_request(token),
        PendingAccountingRequest::Diameter(token, aca) => {
            // RFC 6733, 8.2: a record that cannot be stored gets 4002.
            fronts.answer_diameter_request(token, ResultCode::OUT_OF_SPACE, aca.to_avps())
        }
    }
}

/// Replaces a record's user by the user of its Classes. Only names of local realms are replaced: a Class of another
/// realm may be an alias of this server that came back. The session keeps the identification of its access server.
fn replace_aliased_user_name<'a>(
    ctx: &ServerContext,
    record: &mut LedgerRecord,
    given: &[u8],
    classes: impl Iterator<Item = &'a [u8]>,
) {
    let Some(key) = &ctx.config.identity_key else { return };
    let ours = |p: &proxy::ProxyConfig| *p.realms.find_route(given).route == RealmTarget::Local;
    if let Some(name) = key.name_from_classes(classes)
        && ctx.config.proxy.as_ref().is_none_or(ours)
    {
        record.session.user = storable_text(&name);
    }
}
