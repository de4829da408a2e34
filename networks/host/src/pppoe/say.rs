//! What is said of a concentrator: to what carries packets, to the logs, and to whoever has asked.

use super::audit::Audit;
use super::control::{self, Answer};
use super::known::Known;
use super::nat::Nat;
use super::track::TrackLog;
use super::{Telling, usage};
use std::sync::Arc;
use usher_concentrator::{Command, Event, LoginFailure, SessionEntry};
use usher_ident_service::Event as Ident;
use usher_ppp::EndReason;
use usher_pppoe::Plane;

pub(super) struct Say {
    pub(super) plane: Arc<Plane>,
    pub(super) known: Known,
    pub(super) nat: Option<Nat>,
    pub(super) track: Option<TrackLog>,
    pub(super) audit: Audit,
    pub(super) asked: control::Asked,
    pub(super) telling: Telling<Command>,
}

fn session(entry: &SessionEntry) -> usher_pppoe::Session {
    usher_pppoe::Session {
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

impl Say {
    pub(super) fn say(&mut self, event: Event) {
        match event {
            Event::Install(entry) => self.install(&entry),
            Event::Remove { id, number } => {
                self.known.remove(number);
                let removed = self.plane.remove(number);
                if let Err(error) = &removed {
                    tracing::error!(number, %error, "a session is not wholly taken out of the data plane");
                }
                if let Some(Err(error)) = self.nat.as_mut().map(|nat| nat.remove(id)) {
                    tracing::error!(id, %error, "rules of a session's addresses stay");
                }
                let usage = removed.ok().flatten().map(usage);
                self.telling.tell(Command::Removed { id, usage });
            }
            Event::Log(record) => {
                let written = self.track.as_ref().map(|track| track.write(&record));
                if let Some(Err(error)) = written {
                    tracing::error!(%error, "the end of a session is not in the log of sessions yet");
                }
            }
            Event::LetIn(one) => {
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
            Event::Ended { status: one, reason } => {
                tracing::info!(
                    id = one.id,
                    user = one.user,
                    station = one.station,
                    lasted_s = one.lasted.as_secs(),
                    reason,
                    "ended"
                );
            }
            Event::LoginFailed { subscriber, user, why } => {
                let user = user.escape_ascii().to_string();
                tracing::warn!(station = %subscriber.address, user, cause = refusal(why), "not let in");
            }
            // Anybody can begin what comes to nothing; how many there were is told each minute.
            Event::GaveUp { subscriber, reason } => {
                tracing::debug!(station = %subscriber.address, reason = meaning(reason), "gave up");
            }
            Event::Status { token, status } => {
                self.asked.answer(token, Answer::Status(control::status(&status)));
            }
            Event::Told { token, sessions } => self.asked.answer(token, Answer::Told { sessions }),
            Event::Dynamic { id, end: true } => tracing::info!(id, "the AAA server ends this session"),
            Event::Dynamic { id, .. } => tracing::info!(id, "the AAA server changes this session"),
            Event::Unaccounted { session, logged: true } => {
                tracing::warn!(
                    session,
                    "no AAA server has acknowledged the end of this session yet: the next start tells it"
                );
            }
            Event::Unaccounted { session, .. } => {
                tracing::warn!(session, "no AAA server keeps the accounting record of this session");
            }
            Event::Server { server, up: true } => tracing::info!(server, "the AAA server answers"),
            Event::Server { server, .. } => tracing::warn!(server, "the AAA server does not answer"),
            Event::Ident(Ident::Answered { asker, connection, answer }) => {
                tracing::info!(%asker, local = %connection.local, remote = %connection.remote, %answer, "asked");
                self.audit.ident(asker, &connection, &answer.to_string());
            }
            Event::Ident(Ident::Refused { asker }) => {
                tracing::debug!(%asker, "refused: of no network that may ask");
            }
            Event::Left => {}
        }
    }

    fn install(&mut self, entry: &SessionEntry) {
        if let Some(Err(error)) = self.nat.as_mut().map(|nat| nat.install(entry)) {
            tracing::error!(id = entry.id, %error, "a session's addresses get no rules: it ends");
            self.telling.tell(Command::NotInstalled { id: entry.id });
            return;
        }
        self.known.insert(entry);
        if let Err(error) = self.plane.install(session(entry)) {
            self.known.remove(entry.number);
            tracing::error!(id = entry.id, %error, "packets of a session cannot be let through: it ends");
            self.telling.tell(Command::NotInstalled { id: entry.id });
        }
    }
}

const fn refusal(why: LoginFailure) -> &'static str {
    match why {
        LoginFailure::Rejected => "rejected",
        LoginFailure::HeldBack => "too many logins of this name or station have failed; it is held back",
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

/// Why a session ended, for people.
#[must_use]
pub const fn meaning(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Closed => "this side ended it",
        EndReason::PeerClosed | EndReason::Padt => "the other side ended it",
        EndReason::Unreachable => "the other side does not answer",
        EndReason::NotConverging => "both sides answer and do not come to agree",
        EndReason::Looped => "what is sent comes back: the Ethernet has a loop",
        EndReason::SetupTimeout => "it took too long until an address was agreed to",
        EndReason::NoAuthentication => "the two sides have no authentication protocol in common",
        EndReason::Unasked => "the concentrator does not ask who the user is, so that it could be anybody",
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
