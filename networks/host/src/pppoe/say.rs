//! Handles the events of a concentrator: for the data plane, the logs and pending requests.

use super::audit::QueryAudit;
use super::control::{self, PppoeControlReply};
use super::known::CarriedSessionMap;
use super::nat::NatRules;
use super::track::TrackLog;
use super::{CommandSender, convert_usage};
use std::sync::Arc;
use usher_concentrator::{AccessConcentratorCommand, AccessConcentratorEvent, LoginFailure, SessionEntry};
use usher_ident_service::IdentServiceEvent;
use usher_ppp::EndReason;
use usher_pppoe::PppoeDataPlane;

pub(super) struct PppoeEventSink {
    pub(super) plane: Arc<PppoeDataPlane>,
    pub(super) carried_sessions: CarriedSessionMap,
    pub(super) nat: Option<NatRules>,
    pub(super) track: Option<TrackLog>,
    pub(super) audit: QueryAudit,
    pub(super) control: control::ConcentratorControl,
    pub(super) command_sender: CommandSender<AccessConcentratorCommand>,
}

fn plane_session(entry: &SessionEntry) -> usher_pppoe::DataPlaneSession {
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
                    tracing::error!(number, %error, "a session is not wholly taken out of the data plane");
                }
                if let Some(Err(error)) = self.nat.as_mut().map(|nat| nat.remove_rules(id)) {
                    tracing::error!(id, %error, "rules of a session's addresses stay");
                }
                let usage = removed.ok().flatten().map(convert_usage);
                self.command_sender.send_command(AccessConcentratorCommand::Removed { id, usage });
            }
            AccessConcentratorEvent::Log(record) => {
                let written = self.track.as_ref().map(|track| track.write_record(&record));
                if let Some(Err(error)) = written {
                    tracing::error!(%error, "the end of a session is not in the log of sessions yet");
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
                    "let in"
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
                tracing::warn!(station = %subscriber.address, user, cause = refusal_text(why), "not let in");
            }
            // Anyone can start a login and abandon it. The log has the count each minute.
            AccessConcentratorEvent::LoginAborted { subscriber, reason } => {
                tracing::debug!(station = %subscriber.address, reason = end_reason_text(reason), "gave up");
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
                tracing::warn!(
                    session,
                    "no AAA server has acknowledged the end of this session yet: the next start tells it"
                );
            }
            AccessConcentratorEvent::Unaccounted { session, .. } => {
                tracing::warn!(session, "no AAA server keeps the accounting record of this session");
            }
            AccessConcentratorEvent::Server { server, up: true } => {
                tracing::info!(server, "the AAA server answers")
            }
            AccessConcentratorEvent::Server { server, .. } => {
                tracing::warn!(server, "the AAA server does not answer")
            }
            AccessConcentratorEvent::Ident(IdentServiceEvent::Answered { asker, connection, answer }) => {
                tracing::info!(%asker, local = %connection.local, remote = %connection.remote, %answer, "asked");
                self.audit.record_ident(asker, &connection, &answer.to_string());
            }
            AccessConcentratorEvent::Ident(IdentServiceEvent::Refused { asker }) => {
                tracing::debug!(%asker, "refused: of no network that may ask");
            }
            AccessConcentratorEvent::Left => {}
        }
    }

    fn install_session(&mut self, entry: &SessionEntry) {
        if let Some(Err(error)) = self.nat.as_mut().map(|nat| nat.install_rules(entry)) {
            tracing::error!(id = entry.id, %error, "a session's addresses get no rules: it ends");
            self.command_sender.send_command(AccessConcentratorCommand::NotInstalled { id: entry.id });
            return;
        }
        self.carried_sessions.insert(entry);
        if let Err(error) = self.plane.install_session(plane_session(entry)) {
            self.carried_sessions.remove(entry.number);
            tracing::error!(id = entry.id, %error, "packets of a session cannot be let through: it ends");
            self.command_sender.send_command(AccessConcentratorCommand::NotInstalled { id: entry.id });
        }
    }
}

const fn refusal_text(why: LoginFailure) -> &'static str {
    match why {
        LoginFailure::Rejected => "rejected",
        LoginFailure::LockedOut => "too many logins of this name or station have failed; it is held back",
        LoginFailure::Unanswered => "no AAA server answers",
        LoginFailure::BadAnswer => "the AAA server's answer makes no sense",
        LoginFailure::NoAaa => "there is nobody who judges",
        LoginFailure::NoName => "it names no user, or none that fits a request to an AAA server",
        LoginFailure::BadName => "its user's name is no UTF-8, or has control characters",
        LoginFailure::NoAddress => "no pool has an address left",
        LoginFailure::AddressInUse => "somebody has the address that the AAA server gives",
        LoginFailure::TooManySessions => "the user has as many sessions as it may",
        LoginFailure::NotLogged => "the log of sessions cannot be written",
    }
}

/// Describes why a session ended.
#[must_use]
pub const fn end_reason_text(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Closed => "this side ended it",
        EndReason::PeerClosed | EndReason::Padt => "the other side ended it",
        EndReason::Unreachable => "the other side does not answer",
        EndReason::NotConverging => "both sides answer and do not come to agree",
        EndReason::Looped => "what is sent comes back: the Ethernet has a loop",
        EndReason::SetupTimeout => "it took too long until an address was agreed to",
        EndReason::NoAuthentication => "the two sides have no authentication protocol in common",
        EndReason::AuthenticationNotRequested => {
            "the concentrator does not ask who the user is, so that it could be anybody"
        }
        EndReason::AuthenticationFailed => "the other side did not prove who it is",
        EndReason::Refused => "the concentrator does not let this user in, by this password",
        EndReason::Impostor => {
            "the concentrator does not know the password: it is not the one that it says it is"
        }
        EndReason::Unjudged => "nobody answers who could judge the password",
        EndReason::NoNetwork => "the two sides have neither IPv4 nor IPv6 in common",
        EndReason::Replaced => "the same host began another session",
        EndReason::Renegotiating => "the other side negotiates anew again and again",
        EndReason::CrowdedOut => "others wanted its place before its host was let in",
        EndReason::TooLong => {
            "a name, a password or a packet of authentication is longer than the protocol or the other side takes"
        }
        EndReason::Protocol => "the other side does not speak PPP",
        EndReason::NoConcentrator => "no concentrator answers on this interface",
    }
}
