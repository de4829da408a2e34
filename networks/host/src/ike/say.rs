//! Handles the events of a gateway: for the log, the key log, pending requests and the data plane.

use super::control::{self, IkeControlReply};
use super::key_log::KeyLogs;
use super::plane::IkeDataPlane;
use crate::CommandSender;
use std::sync::{Arc, Mutex, PoisonError};
use usher_gateway::{AddressLeases, GatewayCommand, GatewayEvent, LoginFailure};
use usher_ike::machine::{EndReason, IkeEvent};

/// The outcome of the one connection of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionOutcome {
    pub(super) established: bool,
    pub(super) reason: Option<EndReason>,
}

/// The address pools, shared by shards.
pub(super) type SharedLeases = Arc<Mutex<AddressLeases>>;

/// Sends events to the log, the key log, the pending requests and the data plane.
pub(super) struct IkeEventSink {
    pub(super) control: control::GatewayControl,
    pub(super) keys: KeyLogs,
    pub(super) plane: IkeDataPlane,
    /// Sends commands to the other shards.
    pub(super) command_sender: CommandSender<GatewayCommand>,
    /// The pools of all shards, if there are several.
    pub(super) leases: Option<SharedLeases>,
    pub(super) outcome: Arc<Mutex<Option<ConnectionOutcome>>>,
}

impl IkeEventSink {
    fn record_outcome(&self, established: bool, reason: Option<EndReason>) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let before = outcome.is_some_and(|outcome| outcome.established);
        *outcome = Some(ConnectionOutcome { established: established || before, reason });
    }

    pub(super) fn handle_event(&mut self, event: GatewayEvent) {
        self.plane.carry_out(&event);
        match event {
            GatewayEvent::Ike(event) => self.handle_ike_event(&event),
            GatewayEvent::ConnectResult { token, result } => {
                self.control.complete_request(token, control::start_reply(result))
            }
            GatewayEvent::Status { token, status } => {
                self.control
                    .complete_request(token, IkeControlReply::Status(control::convert_status(&status)));
            }
            GatewayEvent::SasNotified { token, sas } => {
                self.control.complete_request(token, IkeControlReply::Told { sas })
            }
            GatewayEvent::LoginFailed { remote, connection, identity, why } => {
                tracing::warn!(%remote, connection, %identity, cause = refusal_text(why), "not let in");
            }
            GatewayEvent::Dynamic { sa, end: true } => {
                tracing::info!(sa = sa.0, "the AAA server ends this session")
            }
            GatewayEvent::Dynamic { sa, .. } => {
                tracing::info!(sa = sa.0, "the AAA server changes this session")
            }
            GatewayEvent::Unaccounted { session } => {
                tracing::warn!(session, "no AAA server keeps the accounting record of this session");
            }
            GatewayEvent::Unprotected { connection, child: None } => {
                tracing::warn!(
                    connection,
                    "there will be no CHILD_SA for packets that wait: they are dropped"
                );
            }
            // Every packet repeats this event until the next attempt of the connection.
            GatewayEvent::Unprotected { connection, child: Some(child) } => {
                tracing::debug!(connection, child, "there will be no CHILD_SA for packets that wait");
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
                tracing::info!(sa = sa.0, connection, peer = %remote, from = %path.remote, spis = %spi_pair(*spis), "established");
            }
            IkeEvent::Unproved { sa, path, identity } => {
                let identity = identity.as_ref().map(ToString::to_string);
                tracing::warn!(sa = sa.0, from = %path.remote, identity, "it has not proved who it is");
            }
            IkeEvent::TooManyFailedProofs { connection } => {
                tracing::warn!(
                    connection,
                    "somebody guesses at the shared key: more proofs by it fail than [limits] failed_proofs_per_minute, and those of \
                     networks from which some have failed are not looked at"
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
                    // Anyone can start an exchange and abandon it. The log has the count each minute.
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
                tracing::info!(sa = sa.0, addresses = addresses.join(" "), dns = dns.join(" "), "given");
                if !dns.is_empty() {
                    tracing::info!(
                        sa = sa.0,
                        "these name servers are not asked by this host until you have it ask them; usher ike status shows their domains"
                    );
                }
            }
            IkeEvent::Moved { sa, path, encapsulated } => {
                tracing::info!(sa = sa.0, from = %path.local, to = %path.remote, encapsulated, "moved");
            }
            IkeEvent::ChildRefused { sa, name, why } => {
                tracing::warn!(sa = sa.0, name, %why, "the other side makes no CHILD_SA")
            }
            IkeEvent::MoveRefused { sa } => {
                tracing::warn!(sa = sa.0, "the other side does not take the new addresses")
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

const fn refusal_text(why: LoginFailure) -> &'static str {
    match why {
        LoginFailure::Rejected => "rejected",
        LoginFailure::Unanswered => "no AAA server answers",
        LoginFailure::Overload => "too many others are judged at this moment",
        LoginFailure::BadAnswer => "the AAA server's answer makes no sense",
        LoginFailure::NoName => "it names no user, or none that fits a request to an AAA server",
        LoginFailure::NoAaa => "the configuration has no AAA server",
        LoginFailure::LockedOut => "too many logins of this name or host have failed; it is held back",
        LoginFailure::AddressInUse => {
            "the AAA server gives it an address that another user has, or another IKE_SA of the same where unique = false"
        }
        LoginFailure::NoAddress => "no pool has an address left",
    }
}

/// Describes why an IKE_SA ended.
#[must_use]
pub const fn end_reason_text(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Deleted => "this side ended it",
        EndReason::DeletedByPeer => "the other side ended it",
        EndReason::Rekeyed => "a new one took its place",
        EndReason::Replaced => "the same two have another, newer one",
        EndReason::Unreachable => "the other side does not answer",
        EndReason::HalfOpen => "the initiator did not go on",
        EndReason::NoProposal => "no proposal is acceptable to both sides",
        EndReason::AuthenticationFailed => "the other side did not prove who it is",
        EndReason::Refused => "the other side does not take what this side says it is, or its proof",
        EndReason::Protocol => "the other side breaks the protocol",
        EndReason::Helper => "no signature could be made, or no AAA server answers",
        EndReason::Unsupported => "the other side insists on what this side does not do",
        EndReason::Revoked => "a certificate of the other side has been revoked since",
    }
}
