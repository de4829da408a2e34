//! The control socket between `usher aaa` and the running server.
//!
//! It is a Unix socket that only its owner can open. Each line is a JSON object: a [`ControlRequest`] and its
//! [`ControlReply`]. A trace has many replies.

mod server;

pub(crate) use server::start_control;
pub use usher_service::control::ControlError;

use serde::{Deserialize, Serialize};
use std::path::Path;
use usher_aaa::store::SessionRow;
use usher_service::control::ControlService;

/// The server's words in messages.
const SERVICE: ControlService = ControlService { name: "server", command: "usher aaa serve" };

/// Sends a request and returns its reply.
///
/// # Errors
/// No server runs, or it could not carry out the request.
pub fn request_reply(path: &Path, request: &ControlRequest) -> Result<ControlReply, ControlError> {
    SERVICE.request_reply(path, request).and_then(check_reply)
}

/// Sends a request and passes each reply to `each`, until `each` returns false or the server closes the connection.
///
/// # Errors
/// No server runs, or it could not carry out the request.
pub fn follow_replies(
    path: &Path,
    request: &ControlRequest,
    each: &mut dyn FnMut(ControlReply) -> bool,
) -> Result<(), ControlError> {
    SERVICE.follow_replies(path, request, &mut |reply| check_reply(reply).map(&mut *each))
}

fn check_reply(reply: ControlReply) -> Result<ControlReply, ControlError> {
    match reply {
        ControlReply::Failed { message } => Err(ControlError::Failed(message)),
        reply => Ok(reply),
    }
}

/// A request to the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum ControlRequest {
    /// Report the server's state.
    Status,
    /// List the open sessions of a user, or all.
    Sessions {
        /// User-Name.
        user: Option<String>,
    },
    /// Ask the NAS to end a session (RFC 5176, Disconnect-Request).
    Disconnect {
        /// Its acctuniqueid or Acct-Session-Id.
        session: String,
    },
    /// Ask the NAS to change a session (RFC 5176, CoA-Request).
    Change {
        /// Its acctuniqueid or Acct-Session-Id.
        session: String,
        /// The new attributes, each `ATTRIBUTE = VALUE`.
        attributes: Vec<String>,
    },
    /// Report the events of a user or a station, until the connection is closed.
    Trace {
        /// User-Name.
        user: Option<String>,
        /// Calling-Station-Id.
        mac: Option<String>,
    },
    /// Drop the cached rows of a user, or of all users, and their TLS sessions. Their next login reads the store.
    Forget {
        /// User-Name.
        user: Option<String>,
        /// True if the NASs are also asked to end the user's open sessions (RFC 5176, Disconnect-Request).
        #[serde(default)]
        disconnect: bool,
    },
    /// End sessions without the NAS, which will not report their end.
    ForgetSessions {
        /// The acctuniqueid of each.
        sessions: Vec<String>,
        /// The user who asked, for the log.
        by: String,
    },
    /// Read the configuration again.
    Reload,
}

/// A reply of the server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum ControlReply {
    /// The request is done.
    Done,
    /// The configuration was read again. Changes of some parts take effect at the next start.
    Reloaded {
        /// These parts, by their names in the configuration. Empty if all changes took effect.
        restart: Vec<String>,
    },
    /// The request failed.
    Failed {
        /// The cause and the remedy.
        message: String,
    },
    /// The user's open sessions were asked to end.
    Disconnected {
        /// The number of sessions that ended, as their NASs confirm (Disconnect-ACK).
        ended: usize,
        /// Why each other session did not end.
        failures: Vec<String>,
    },
    /// The sessions were ended.
    Forgotten {
        /// The acctuniqueid of each session that was open.
        sessions: Vec<String>,
        /// True if the store has recorded it. Otherwise it is recorded as soon as the store can be written.
        durable: bool,
    },
    /// The server's state.
    Status(ServerStatus),
    /// Open sessions.
    Sessions {
        /// The open sessions.
        sessions: Vec<SessionSummary>,
    },
    /// A line of a trace.
    Line {
        /// The number of the login.
        session: u64,
        /// The time, in microseconds since 1970-01-01T00:00:00Z.
        at: u64,
        /// The event.
        text: String,
        /// The reject cause, by its label in the metrics. Set if the login is rejected or gets no reply.
        cause: Option<String>,
    },
}

/// The server's state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The program's version.
    pub version: String,
    /// Seconds since the server started.
    pub uptime: u64,
    /// The configuration file. `None` if there is none.
    pub config: Option<String>,
    /// The number of shards.
    pub shards: usize,
    /// Accepted logins.
    pub accepted: u64,
    /// Rejected logins.
    pub rejected: u64,
    /// Unfinished logins.
    pub half_open: u64,
    /// Open sessions.
    pub sessions: u64,
    /// Connected Diameter peers.
    pub diameter_peers: u64,
    /// Home servers.
    #[serde(default)]
    pub home_servers: Vec<HomeServerStatus>,
    /// Diameter peers to which this server connects. True if requests are sent to the peer.
    #[serde(default)]
    pub diameter_servers: Vec<(String, bool)>,
    /// Home servers and Diameter peers without a TLS connection, each with the cause, such as a rejected certificate.
    #[serde(default)]
    pub tls_faults: Vec<(String, String)>,
    /// Reloads that succeeded, and reloads that failed.
    pub reloads: (u64, u64),
    /// Revocation lists in use.
    #[serde(default)]
    pub lists: Vec<RevocationListStatus>,
    /// Days until each certificate expires, by its owner.
    pub certificates: Vec<(String, f64)>,
}

/// The state of a home server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HomeServerStatus {
    /// Its name in the configuration.
    pub name: String,
    /// `authentication`, `accounting`, or `radsec` for both.
    pub service: String,
    /// Its address.
    pub address: String,
    /// `alive`, `zombie` (has not answered; others are preferred) or `dead`.
    pub state: String,
    /// Requests sent since the last change of the home servers.
    pub requests: u64,
    /// Requests without an answer in time.
    pub timeouts: u64,
    /// Mean round-trip time of requests that were sent once, in milliseconds. `None` without such a request.
    pub round_trip: Option<f64>,
}

/// A revocation list in use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RevocationListStatus {
    /// Its file, or the URL from which it was fetched.
    pub from: String,
    /// The issuer, in the form of RFC 4514.
    pub issuer: String,
    /// thisUpdate, in seconds since 1970.
    pub made: u64,
    /// nextUpdate, in seconds since 1970, if the list has one.
    pub ends: Option<u64>,
    /// cRLNumber (RFC 5280 §5.2.3) in hexadecimal. Empty if the list has none.
    pub number: String,
}

/// An open session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionSummary {
    /// acctuniqueid: unique among all NASs.
    pub unique: String,
    /// Acct-Session-Id.
    pub id: String,
    /// User-Name.
    pub user: String,
    /// The NAS's address.
    pub nas: String,
    /// The NAS's port.
    pub port: String,
    /// Calling-Station-Id.
    pub mac: String,
    /// Framed-IP-Address.
    pub address: String,
    /// Start, in seconds since 1970. `None` if unknown.
    pub started: Option<u64>,
    /// Octets from the user.
    pub input_octets: u64,
    /// Octets to the user.
    pub output_octets: u64,
}

impl From<&SessionRow> for SessionSummary {
    fn from(row: &SessionRow) -> Self {
        Self {
            unique: row.acctuniqueid.clone(),
            id: row.acctsessionid.clone(),
            user: row.username.clone(),
            nas: row.nasipaddress.to_string(),
            port: row.nasportid.clone(),
            mac: row.callingstationid.clone(),
            address: row.framedipaddress.map(|a| a.to_string()).unwrap_or_default(),
            started: row.acctstarttime.map(|t| t.unix_secs()),
            input_octets: row.acctinputoctets,
            output_octets: row.acctoutputoctets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_survive_their_line() {
        let name = || Some("ann".to_owned());
        let requests = [
            ControlRequest::Status,
            ControlRequest::Sessions { user: name() },
            ControlRequest::Disconnect { session: "5f".to_owned() },
            ControlRequest::Change {
                session: "5f".to_owned(),
                attributes: vec!["Filter-Id = \"x\"".to_owned()],
            },
            ControlRequest::Trace { user: None, mac: name() },
            ControlRequest::Forget { user: name(), disconnect: true },
            ControlRequest::ForgetSessions { sessions: vec!["5f".to_owned()], by: "root".to_owned() },
            ControlRequest::Reload,
        ];
        for request in requests {
            let line = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<ControlRequest>(&line).unwrap(), request, "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
        let line = ControlReply::Line { session: 7, at: 1, text: "a\nb".to_owned(), cause: None };
        for reply in [ControlReply::Done, ControlReply::Failed { message: "\n".to_owned() }, line] {
            let line = serde_json::to_string(&reply).unwrap();
            assert_eq!(serde_json::from_str::<ControlReply>(&line).unwrap(), reply, "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
        // A client of an older version leaves `disconnect` out.
        let old = serde_json::from_str(r#"{"command":"forget","user":null}"#).unwrap();
        assert_eq!(ControlRequest::Forget { user: None, disconnect: false }, old);
    }
}
