//! The users of connections: IDENT queries about hosts behind the concentrator.
//!
//! A query to a host's address, intercepted by the concentrator, concerns the host of that address, whatever the ports.
//! A query to a shared address concerns the host behind the translated connection. That host follows from the port
//! block (RFC 7422), by computation, or from the system's translation table.

use crate::api::ConcentratorJob;
use crate::service::{AccessConcentrator, PendingTranslation};
use core::net::{IpAddr, SocketAddr};
use usher_core::{Instant, JobRequest, Machine};
use usher_ident::QueriedConnection;
use usher_ident_service::{ConnectionOwner, IdentServiceCommand, OwnerLookupResult};

impl AccessConcentrator {
    /// Returns the user of the session that has an address.
    pub(crate) fn user_at(&self, address: IpAddr) -> Option<ConnectionOwner> {
        let session = self.subscribers.session(self.subscribers.leases()?.owner_of_address(address)?)?;
        // An outer identity is not disclosed: a client that cuts the name at the first blank would take it for the
        // user.
        let name = Some(session.grant.user.clone()).filter(|_| !session.grant.is_nameless);
        Some(ConnectionOwner { name, uid: None })
    }

    pub(crate) fn look_up_connection_owner(
        &mut self,
        now: Instant,
        token: u64,
        connection: QueriedConnection,
    ) {
        let local = connection.local;
        if let Some(user) = self.user_at(local.ip()) {
            self.counters.ident_by_address += 1;
            return self.answer_ident(now, token, OwnerLookupResult::User(user));
        }
        let block =
            self.config.blocks.as_ref().and_then(|blocks| blocks.host_of_port(local.ip(), local.port()));
        if let Some(inner) = block {
            let user = self.user_at(IpAddr::V4(inner));
            self.counters.ident_by_block += u64::from(user.is_some());
            return self.answer_ident(
                now,
                token,
                user.map_or(OwnerLookupResult::NoOwner, OwnerLookupResult::User),
            );
        }
        if self.config.translation.addresses.contains(&local.ip()) {
            let job = self.allocate_token();
            self.pending_translations.insert(job, PendingTranslation { token });
            return self.outputs.push_job(JobRequest::new(job, ConcentratorJob::Translation(connection)));
        }
        self.counters.ident_no_user += 1;
        self.answer_ident(now, token, OwnerLookupResult::NoOwner);
    }

    /// Handles the result of a translation lookup.
    pub(crate) fn handle_translation(
        &mut self,
        now: Instant,
        token: u64,
        inner: Result<Option<SocketAddr>, ()>,
    ) {
        let Some(PendingTranslation { token }) = self.pending_translations.remove(&token) else { return };
        let owner = match inner {
            Ok(Some(inner)) => match self.user_at(inner.ip()) {
                Some(user) => {
                    self.counters.ident_by_translation += 1;
                    OwnerLookupResult::User(user)
                }
                None => OwnerLookupResult::NoOwner,
            },
            Ok(None) => OwnerLookupResult::NoOwner,
            Err(()) => OwnerLookupResult::Unknown,
        };
        self.answer_ident(now, token, owner);
    }

    fn answer_ident(&mut self, now: Instant, token: u64, owner: OwnerLookupResult) {
        if let Some(ident) = &mut self.ident {
            // If the IDENT client has disconnected, the command fails. Then no answer is needed.
            let _ = ident.handle_command(now, IdentServiceCommand::Found { token, owner });
        }
    }
}
