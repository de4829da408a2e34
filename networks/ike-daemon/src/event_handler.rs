//! Handles the events of a gateway: for the log, the key log, pending requests and the data plane.

use super::control::{self, IkeControlReply};
use super::key_log::KeyLogs;
use super::plane::IkeDataPlane;
use std::sync::{Arc, Mutex, PoisonError};
use usher_gateway::{AddressLeases, GatewayCommand, GatewayEvent};
use usher_ike::machine::{EndReason, IkeEvent};
use usher_service::CommandSender;

/// The outcome of the one connection of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct IkeConnectionOutcome {
    pub(super) established: bool,
    pub(super) reason: Option<EndReason>,
}

/// The address pools, shared by shards.
pub(super) type SharedLeases = Arc<Mutex<AddressLeases>>;

/// Sends events to the log, the key log, the pending requests and the data plane.
pub(super) struct IkeEventSink {
    pub(super) control: control::GatewayControlRequests,
    pub(super) keys: KeyLogs,
    pub(super) plane: IkeDataPlane,
    /// Sends commands to the other shards.
    pub(super) command_sender: CommandSender<GatewayCommand>,
    /// The pools of all shards, if there are several.
    pub(super) leases: Option<SharedLeases>,
    pub(super) outcome: Arc<Mutex<Option<IkeConnectionOutcome>>>,
}

impl IkeEventSink {
    fn record_outcome(&self, established: bool, reason: Option<EndReason>) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let before = outcome.is_some_and(|outcome| outcome.established);
        *outcome = Some(IkeConnectionOutcome { established: established || before, reason });
    }

    pub(super) fn handle_event(&mut self, event: GatewayEvent) {
        self.plane.carry_out(&event);
        match event {
            GatewayEvent::Ike(event) => self.handle_ike_event(&event),
            GatewayEvent::ConnectResult { token, result } => {
                self.control.complete_request(token, control::sa_start_reply(result))
            }
            GatewayEvent::Status { token, status } => {
                self.control
                    .complete_request(token, IkeControlReply::Status(control::convert_status(&status)));
            }
            GatewayEvent::SasNotified { token, sas } => {
                self.control.complete_request(token, IkeControlReply::Told { sas })
            }
            GatewayEvent::LoginFailed { remote, connection, identity, why } => {
                tracing::warn!(%remote, connection, %identity, cause = %why, "login failed");
            }
            GatewayEvent::Dynamic { sa, end: true } => {
                tracing::info!(sa = sa.0, "the AAA server ends this session")
            }
            GatewayEvent::Dynamic { sa, .. } => {
                tracing::info!(sa = sa.0, "the AAA server changes this session")
            }
            GatewayEvent::Unaccounted { session } => {
                tracing::warn!(session, "accounting record lost: no AAA server acknowledged it");
            }
            GatewayEvent::Unprotected { connection, child: None } => {
                tracing::warn!(connection, "no CHILD_SA for queued packets; packets dropped");
            }
            // Until the connection's next attempt, every packet repeats this event, so it is logged at debug level.
            GatewayEvent::Unprotected { connection, child: Some(child) } => {
                tracing::debug!(connection, child, "no CHILD_SA for queued packets");
            }
            GatewayEvent::Released(lease) => {
                if let Some(leases) = &self.leases {
                    leases.lock().unwrap_or_else(PoisonError::into_inner).release_lease(lease);
                }
            }
            GatewayEvent::ConnectionEnded { .. } | GatewayEvent::Left => {}
            GatewayEvent::Server { server, up: true } => tracing::info!(server, "the AAA server answers"),
            GatewayEvent::Server { server, .. } => tracing::warn!(server, "the AAA server does not answer"),
        }
    }

    fn handle_ike_event(&mut self, event: &IkeEvent) {
        match event {
            IkeEvent::Established { sa, connection, remote, spis, path } => {
                self.record_outcome(true, None);
                tracing::info!(sa = sa.0, connection, peer = %remote, from = %path.remote, spis = %spi_pair(*spis),
                    "established");
            }
            IkeEvent::Unproved { sa, path, identity } => {
                let identity = identity.as_ref().map(ToString::to_string);
                tracing::warn!(sa = sa.0, from = %path.remote, identity, "authentication of an initiator failed");
            }
            IkeEvent::TooManyFailedProofs { connection } => {
                tracing::warn!(
                    connection,
                    "possible guessing of the shared key: failed proofs exceed failed_proofs_per_minute of [limits]; \
                     proofs from networks with failures are rejected unchecked"
                );
            }
            IkeEvent::Ended { sa, reason } => {
                self.record_outcome(false, Some(*reason));
                match reason {
                    EndReason::Deleted
                    | EndReason::DeletedByPeer
                    | EndReason::Rekeyed
                    | EndReason::Replaced => {
                        tracing::info!(sa = sa.0, reason = end_reason_text(*reason), "ended");
                    }
                    // Anyone can start exchanges and abandon them, so these are logged at debug level. A log line each
                    // minute counts them.
                    EndReason::HalfOpen => {
                        tracing::debug!(sa = sa.0, reason = end_reason_text(*reason), "ended")
                    }
                    _ => tracing::warn!(sa = sa.0, reason = end_reason_text(*reason), "ended"),
                }
            }
            IkeEvent::Rekeyed { old, new, spis } => {
                tracing::info!(sa = new.0, replaces = old.0, spis = %spi_pair(*spis), "replaced");
            }
            IkeEvent::Configured { sa, attributes } => {
                let addresses: Vec<String> = attributes
                    .iter()
                    .filter_map(|one| one.internal_address())
                    .map(|a| a.to_string())
                    .collect();
                let dns: Vec<String> =
                    attributes.iter().filter_map(|one| one.name_server()).map(|a| a.to_string()).collect();
                tracing::info!(
                    sa = sa.0,
                    addresses = addresses.join(" "),
                    dns = dns.join(" "),
                    "addresses assigned"
                );
                if !dns.is_empty() {
                    tracing::info!(
                        sa = sa.0,
                        "this host does not use the assigned name servers: add them to its resolver; \
                         usher ike status shows their domains"
                    );
                }
            }
            IkeEvent::Moved { sa, path, encapsulated } => {
                tracing::info!(sa = sa.0, from = %path.local, to = %path.remote, encapsulated, "moved");
            }
            IkeEvent::ChildRefused { sa, name, why } => {
                tracing::warn!(sa = sa.0, name, %why, "the peer refused a CHILD_SA")
            }
            IkeEvent::MoveRefused { sa } => {
                tracing::warn!(sa = sa.0, "the peer rejected the new addresses")
            }
            IkeEvent::Keys { spis, algorithms, keys } => self.keys.log_ike_keys(*spis, algorithms, keys),
            IkeEvent::Install { child, .. } => self.keys.log_esp_keys(child),
            IkeEvent::Replaces { sa, connection, local, remote, forgotten } => {
                self.command_sender.send_command(GatewayCommand::Replaced {
                    sa: *sa,
                    connection: connection.clone(),
                    local: local.clone(),
                    remote: remote.clone(),
                    forgotten: *forgotten,
                });
            }
            IkeEvent::Initiated { .. }
            | IkeEvent::Remove { .. }
            | IkeEvent::Alive { .. }
            | IkeEvent::Eap { .. }
            | IkeEvent::AddressRequested { .. } => {}
        }
    }
}

/// SPIs of initiator and responder, as captures show them.
fn spi_pair((initiator, responder): (usher_ike::Spi, usher_ike::Spi)) -> String {
    format!("{initiator}_{responder}")
}

/// Describes why an IKE_SA ended.
#[must_use]
pub const fn end_reason_text(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Deleted => "this side ended it",
        EndReason::DeletedByPeer => "the peer ended it",
        EndReason::Rekeyed => "a rekeying replaced it",
        EndReason::Replaced => "a newer IKE_SA with this peer replaced it",
        EndReason::Unreachable => "the peer does not answer",
        EndReason::HalfOpen => "the initiator stopped before authentication",
        EndReason::NoProposal => "no common proposal",
        EndReason::AuthenticationFailed => "the authentication of the peer failed",
        EndReason::Refused => "the peer rejected this side's identity or proof",
        EndReason::Protocol => "the peer violates the protocol",
        EndReason::Helper => "cannot create a signature, or no AAA server answers",
        EndReason::Unsupported => "the peer requires a feature that this side lacks",
        EndReason::Revoked => "a certificate of the peer has been revoked",
    }
}
