//! Whose a connection is: what IDENT is asked of hosts behind the concentrator.
//!
//! A query that was meant for a host, and taken over, is of whoever has that address, whatever the ports are. A query to an address
//! that hosts share is of the one that the connection was translated from: by the block of ports that it is in (RFC 7422), which is
//! computed, or by what the system says that it translates.

use crate::service::{AccessConcentrator, ServiceJob};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::{Instant, JobRequest, Machine};
use usher_ident::QueriedConnection;
use usher_ident_service::{ConnectionOwner, IdentServiceCommand, SystemUser};

/// Addresses outside that stand for several hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TranslationConfig {
    /// These.
    pub addresses: Vec<IpAddr>,
}

/// What an answer of the system is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PendingTranslation {
    /// The question of the IDENT service.
    token: u64,
}

impl AccessConcentrator {
    /// The user of a session that has an address.
    pub(crate) fn user_at(&self, address: IpAddr) -> Option<SystemUser> {
        let session = self.sessions.get(&self.assigned_addresses.holder_of_address(address)?)?;
        // An asker that cuts the name at its first blank would take somebody within a tunnel for whom it called itself outside.
        let name = Some(session.granted.user.clone()).filter(|_| !session.granted.nameless);
        Some(SystemUser { name, uid: None })
    }

    pub(crate) fn owner_wanted(&mut self, now: Instant, token: u64, connection: QueriedConnection) {
        let local = connection.local;
        if let Some(user) = self.user_at(local.ip()) {
            self.counters.ident_by_address += 1;
            return self.answer_ident(now, token, ConnectionOwner::User(user));
        }
        let block =
            self.config.blocks.as_ref().and_then(|blocks| blocks.host_of_port(local.ip(), local.port()));
        if let Some(inner) = block {
            let user = self.user_at(IpAddr::V4(inner));
            self.counters.ident_by_block += u64::from(user.is_some());
            return self.answer_ident(
                now,
                token,
                user.map_or(ConnectionOwner::NoOwner, ConnectionOwner::User),
            );
        }
        if self.config.translation.addresses.contains(&local.ip()) {
            let job = self.allocate_token();
            self.pending_translations.insert(job, PendingTranslation { token });
            return self.outputs.push_job(JobRequest::new(job, ServiceJob::Translation(connection)));
        }
        self.counters.ident_nobody += 1;
        self.answer_ident(now, token, ConnectionOwner::NoOwner);
    }

    /// The system has said what it translates.
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
                    ConnectionOwner::User(user)
                }
                None => ConnectionOwner::NoOwner,
            },
            Ok(None) => ConnectionOwner::NoOwner,
            Err(()) => ConnectionOwner::Unknown,
        };
        self.answer_ident(now, token, owner);
    }

    fn answer_ident(&mut self, now: Instant, token: u64, owner: ConnectionOwner) {
        if let Some(ident) = &mut self.ident {
            // Its asker may have gone.
            let _ = ident.handle_command(now, IdentServiceCommand::Found { token, owner });
        }
    }
}
