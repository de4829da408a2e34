//! Handles the events of a concentrator: for the data plane, the logs and pending requests.

use super::audit::AddressQueryAuditLog;
use super::control::{self, PppoeControlReply};
use super::installed_sessions::InstalledSessionMap;
use super::nat::NatRules;
use super::track::SharedSessionLog;
use super::{CommandSender, convert_usage};
use std::sync::Arc;
use usher_concentrator::{AccessConcentratorCommand, AccessConcentratorEvent, SessionEntry};
use usher_ident_service::IdentServiceEvent;
use usher_ppp::EndReason;
use usher_pppoe::PppoeDataPlane;

pub(super) struct PppoeEventSink {
    pub(super) plane: Arc<PppoeDataPlane>,
    pub(super) carried_sessions: InstalledSessionMap,
    pub(super) nat: Option<NatRules>,
    pub(super) track: Option<SharedSessionLog>,
    pub(super) audit: AddressQueryAuditLog,
    pub(super) control: control::ConcentratorControlRequests,
    pub(super) command_sender: CommandSender<AccessConcentratorCommand>,
}

fn data_plane_session_of(entry: &SessionEntry) -> usher_pppoe::DataPlaneSession {
    usher_pppoe::DataPlaneSession {
        number: entry.number,
        port: entry.port.0 as usize,
        peer: entry.peer.0,
        mtu: entry.mtu,
        ipv4: entry.ipv4,
        gateway: entry.gateway,
        networks: Vec::new(),
        ipv6: entry.ipv6.clone(),
        link_local: entry.link_local,
        rate_up: entry.rate_up,
        rate_down: entry.rate_down,
        clamp_mss: entry.clamp_mss,
    }
}

impl PppoeEventSink {
    pub(super) fn handle_event(&mut self, event: AccessConcentratorEvent) {
        match event {
            AccessConcentratorEvent::Install(entry) => self.install_session(&entry),
            AccessConcentratorEvent::Remove { id, number } => {
                self.carried_sessions.remove(number);
                let removed = self.plane.remove_session(number);
                if let Err(error) = &removed {
                    tracing::error!(number, %error, "cannot remove all state of a session from the data plane");
                }
                if let Some(Err(error)) = self.nat.as_mut().map(|nat| nat.remove_rules(id)) {
                    tracing::error!(id, %error, "cannot remove the netfilter rules of a session");
                }
                let usage = removed.ok().flatten().map(convert_usage);
                self.command_sender.send_command(AccessConcentratorCommand::Removed { id, usage });
            }
            AccessConcentratorEvent::Log(record) => {
                let written = self.track.as_ref().map(|track| track.write_record(&record));
                if let Some(Err(error)) = written {
                    tracing::error!(%error, "cannot write the end of a session to the session log yet");
                }
            }
            AccessConcentratorEvent::LoginAccepted(one) => {
                let ipv4 = one.ipv4.map(|address| address.to_string()).unwrap_or_default();
                let ipv6: Vec<String> =
                    one.ipv6.iter().map(|(prefix, bits)| format!("{prefix}/{bits}")).collect();
                let ipv6 = ipv6.join(" ");
                tracing::info!(
                    id = one.id,
                    user = one.user,
                    station = one.station,
                    port = one.port,
                    ipv4,
                    ipv6,
                    "login accepted"
                );
            }
            AccessConcentratorEvent::Ended { status: one, reason } => {
                tracing::info!(
                    id = one.id,
                    user = one.user,
                    station = one.station,
                    lasted_s = one.lasted.as_secs(),
                    reason,
                    "ended"
                );
            }
            AccessConcentratorEvent::LoginFailed { subscriber, user, why } => {
                let user = user.escape_ascii().to_string();
                tracing::warn!(station = %subscriber.address, user, cause = %why, "login failed");
            }
            // Anyone can start logins and abandon them, so these are logged at debug level. A log line each minute
            // counts them.
            AccessConcentratorEvent::LoginAborted { subscriber, reason } => {
                tracing::debug!(station = %subscriber.address, reason = end_reason_text(reason), "login abandoned");
            }
            AccessConcentratorEvent::Status { token, status } => {
                self.control
                    .complete_request(token, PppoeControlReply::Status(control::convert_status(&status)));
            }
            AccessConcentratorEvent::SessionsNotified { token, sessions } => {
                self.control.complete_request(token, PppoeControlReply::Told { sessions })
            }
            AccessConcentratorEvent::Dynamic { id, end: true } => {
                tracing::info!(id, "the AAA server ends this session")
            }
            AccessConcentratorEvent::Dynamic { id, .. } => {
                tracing::info!(id, "the AAA server changes this session")
            }
            AccessConcentratorEvent::Unaccounted { session, logged: true } => {
                tracing::warn!(session, "accounting Stop not acknowledged: the next start sends it again");
            }
            AccessConcentratorEvent::Unaccounted { session, .. } => {
                tracing::warn!(session, "accounting record lost: no AAA server acknowledged it");
            }
            AccessConcentratorEvent::Server { server, up: true } => {
                tracing::info!(server, "the AAA server answers")
            }
            AccessConcentratorEvent::Server { server, .. } => {
                tracing::warn!(server, "the AAA server does not answer")
            }
            AccessConcentratorEvent::Ident(IdentServiceEvent::Answered { asker, connection, answer }) => {
                tracing::info!(%asker, local = %connection.local, remote = %connection.remote, %answer,
                    "query answered");
                self.audit.record_ident(asker, &connection, &answer.to_string());
            }
            AccessConcentratorEvent::Ident(IdentServiceEvent::Refused { asker }) => {
                tracing::debug!(%asker, "connection refused: not from a permitted network");
            }
            AccessConcentratorEvent::Left => {}
        }
    }

    fn install_session(&mut self, entry: &SessionEntry) {
        if let Some(Err(error)) = self.nat.as_mut().map(|nat| nat.install_rules(entry)) {
            tracing::error!(id = entry.id, %error, "cannot install the netfilter rules of a session; ending it");
            self.command_sender.send_command(AccessConcentratorCommand::NotInstalled { id: entry.id });
            return;
        }
        self.carried_sessions.insert(entry);
        if let Err(error) = self.plane.install_session(data_plane_session_of(entry)) {
            self.carried_sessions.remove(entry.number);
            tracing::error!(id = entry.id, %error, "cannot install a session in the data plane; ending it");
            self.command_sender.send_command(AccessConcentratorCommand::NotInstalled { id: entry.id });
        }
    }
}

/// Describes why a session ended.
#[must_use]
pub const fn end_reason_text(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Closed => "this side ended it",
        EndReason::PeerClosed | EndReason::Padt => "the peer ended it",
        EndReason::Unreachable => "the peer does not answer",
        EndReason::NotConverging => "the negotiation of options does not converge",
        EndReason::Looped => "the link is looped: sent packets come back",
        EndReason::SetupTimeout => "the session setup took too long",
        EndReason::NoAuthentication => "no common authentication protocol",
        EndReason::AuthenticationNotRequested => {
            "the concentrator requests no authentication, so it could be an impostor"
        }
        EndReason::AuthenticationFailed => "the authentication of the peer failed",
        EndReason::Refused => "the concentrator rejected this user name and password",
        EndReason::Impostor => "the concentrator does not know the password: it is an impostor",
        EndReason::Unjudged => "no server answers that could check the password",
        EndReason::NoNetwork => "the two sides have neither IPv4 nor IPv6 in common",
        EndReason::Replaced => "another session of the same host replaced it",
        EndReason::Renegotiating => "the peer renegotiates too often",
        EndReason::CrowdedOut => "evicted before authentication: too many half-open sessions",
        EndReason::TooLong => {
            "a name, a password or an authentication packet is too long for the protocol or the peer"
        }
        EndReason::Protocol => "the peer does not speak PPP",
        EndReason::NoConcentrator => "no concentrator answers on this interface",
    }
}
