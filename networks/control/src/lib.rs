//! The control socket: how `usher aaa` speaks to the running server. A Unix socket for its owner only; one JSON object
//! a line, a [`ControlRequest`] and its [`ControlReply`] (of a trace, many).

mod client;

pub use client::{ControlError, follow_replies, request_reply};

use serde::{Deserialize, Serialize};
use usher_aaa::store::SessionRow;

/// What a server is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum ControlRequest {
    /// How are things?
    Status,
    /// Which sessions are open: those of a user, or all.
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
        /// What is to be, `ATTRIBUTE = VALUE` each.
        attributes: Vec<String>,
    },
    /// Tell what happens to a user or a station, until the connection is closed.
    Trace {
        /// User-Name.
        user: Option<String>,
        /// Calling-Station-Id.
        mac: Option<String>,
    },
    /// Ask the store again about a user, or about all, and let nobody in again by an earlier TLS session.
    Forget {
        /// User-Name.
        user: Option<String>,
        /// Whether NASs are asked to end that user's open sessions, too (RFC 5176, Disconnect-Request).
        #[serde(default)]
        disconnect: bool,
    },
    /// End sessions whose NAS will not say that they ended.
    ForgetSessions {
        /// The acctuniqueid of each.
        sessions: Vec<String>,
        /// Who wants it, for the log.
        by: String,
    },
    /// Read the configuration again.
    Reload,
}

/// What a server says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum ControlReply {
    /// Done.
    Done,
    /// The configuration was read again; of these parts what has changed takes effect when the server is started again.
    Reloaded {
        /// As the configuration calls them; none: all of it is taken up.
        restart: Vec<String>,
    },
    /// Not done.
    Failed {
        /// Why, and what to do.
        message: String,
    },
    /// Done; of the user's open sessions so many have ended, as their NASs say (Disconnect-ACK).
    Disconnected {
        /// How many.
        ended: usize,
        /// Why each other is not.
        failures: Vec<String>,
    },
    /// Sessions were ended.
    Forgotten {
        /// The acctuniqueid of each that was open.
        sessions: Vec<String>,
        /// The store has it; otherwise it will, as soon as it can be written.
        durable: bool,
    },
    /// How things are.
    Status(ServerStatus),
    /// Open sessions.
    Sessions {
        /// Each.
        sessions: Vec<SessionSummary>,
    },
    /// A line of a trace.
    Line {
        /// Which login.
        session: u64,
        /// When: microseconds since 1970-01-01T00:00:00Z.
        at: u64,
        /// What happened.
        text: String,
        /// With the line that tells that somebody is turned away or gets no verdict: the cause, as metrics call it.
        cause: Option<String>,
    },
}

/// How things are.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The program's version.
    pub version: String,
    /// Seconds since it began.
    pub uptime: u64,
    /// The configuration's file; `None`: there is none.
    pub config: Option<String>,
    /// Threads that serve.
    pub shards: usize,
    /// Logins let in.
    pub accepted: u64,
    /// Logins turned away.
    pub rejected: u64,
    /// Unfinished logins.
    pub half_open: u64,
    /// Open sessions.
    pub sessions: u64,
    /// Diameter peers that are connected.
    pub diameter_peers: u64,
    /// Home servers.
    #[serde(default)]
    pub home_servers: Vec<HomeServerStatus>,
    /// Diameter peers that this server connects to, and whether requests are sent to them.
    #[serde(default)]
    pub diameter_servers: Vec<(String, bool)>,
    /// Home servers and Diameter peers that are not reached by TLS now: each with why, such as a certificate that is not taken.
    #[serde(default)]
    pub tls_faults: Vec<(String, String)>,
    /// Reloads that were done, and that failed.
    pub reloads: (u64, u64),
    /// Revocation lists that are in use.
    #[serde(default)]
    pub lists: Vec<ListStatus>,
    /// Days until certificates end, by whose they are.
    pub certificates: Vec<(String, f64)>,
}

/// A home server, for those who ask how things are.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HomeServerStatus {
    /// What the configuration calls it.
    pub name: String,
    /// `authentication`, `accounting`, or `radsec` for both.
    pub service: String,
    /// Where.
    pub address: String,
    /// `alive`, `zombie` (owes an answer; others are asked before it) or `dead`.
    pub state: String,
    /// Requests that it was asked since the last change of home servers.
    pub requests: u64,
    /// Requests that it did not answer in time.
    pub timeouts: u64,
    /// How long an answer takes, milliseconds, over all requests that were sent once; `None`: there was none.
    pub round_trip: Option<f64>,
}

/// A revocation list that is in use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListStatus {
    /// The file, or the URL that it was fetched from.
    pub from: String,
    /// Whose it is, in the form of RFC 4514.
    pub issuer: String,
    /// When it was made, seconds since 1970.
    pub made: u64,
    /// When it is out of date, seconds since 1970, where it says so.
    pub ends: Option<u64>,
    /// cRLNumber (RFC 5280 §5.2.3) in hexadecimal, empty where it has none.
    pub number: String,
}

/// An open session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionSummary {
    /// acctuniqueid: the session's name among all NASs.
    pub unique: String,
    /// Acct-Session-Id.
    pub id: String,
    /// User-Name.
    pub user: String,
    /// The NAS's address.
    pub nas: String,
    /// Its port.
    pub port: String,
    /// Calling-Station-Id.
    pub mac: String,
    /// Framed-IP-Address.
    pub address: String,
    /// When it began, seconds since 1970; `None`: not known.
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
