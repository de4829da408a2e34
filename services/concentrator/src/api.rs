//! The configuration of a concentrator, its commands, events and jobs.

use crate::host::{SessionEntry, SessionUsage};
use crate::status::{ConcentratorStatus, SessionStatus};
use crate::track::{PortBlockMapping, SessionLogRecord, SessionLostByRestart, UnacknowledgedStop};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_access::{AuthenticationBackend, LoginFailure, ServerRecords, SubscriberConfig};
use usher_ident::QueriedConnection;
use usher_ident_service as ident;
use usher_ppp::EndReason;
use usher_ppp::concentrator::{ConcentratorConfig, ConfigError, ExcessSessionPolicy, SubscriberInfo};

/// The configuration of an [`AccessConcentrator`](crate::AccessConcentrator).
#[derive(Clone, Debug)]
pub struct AccessConcentratorConfig {
    /// The ports and limits of PPPoE.
    pub ppp: ConcentratorConfig,
    /// The names of the ports, in their order, as in NAS-Port-Id and the log.
    pub ports: Vec<String>,
    /// The verifier of proofs.
    pub judge: AuthenticationBackend,
    /// True if the AAA server accepts EAP-TLS only for certificates that contain the host's outer identity.
    pub trusts_certificate_names: bool,
    /// The users, AAA servers, address pools and rates. If it is metered, the host carries packets and reports usage. It
    /// must then give [`AccessConcentratorCommand::UsageReport`] periodically, and
    /// [`AccessConcentratorCommand::Removed`] for each removed session. The Stop record waits for the latter.
    pub subscribers: SubscriberConfig,
    /// The addresses for hosts.
    pub addressing: AddressingConfig,
    /// The limits of sessions.
    pub limits: SessionLimits,
    /// True if sessions are logged and a host is accepted only after that. Otherwise no [`ConcentratorJob::Log`] is given.
    pub logged: bool,
    /// The port blocks that map external addresses and ports to hosts (RFC 7422).
    pub blocks: Option<PortBlockMapping>,
    /// The IDENT service, and the clients that it answers.
    pub ident: Option<ident::IdentServiceConfig>,
    /// The external addresses that several hosts share.
    pub translation: NatAddressConfig,
    /// Sessions that are open in the log although the concentrator has restarted: it was killed.
    pub lost: Vec<SessionLostByRestart>,
    /// Ended sessions of earlier starts whose Stop record no AAA server has acknowledged.
    pub unacknowledged_stops: Vec<UnacknowledgedStop>,
}

impl AccessConcentratorConfig {
    /// Returns the configuration of the subscribers, with the concentrator's own address.
    pub(crate) fn subscriber_config(&self) -> SubscriberConfig {
        SubscriberConfig {
            needs_keys: false,
            assigns_prefixes: self.addressing.ipv6,
            logs_stops: self.logged,
            reserved_addresses: self.addressing.local.map(Into::into).into_iter().collect(),
            server_records: ServerRecords::OnAndOff,
            ..self.subscribers.clone()
        }
    }
}

/// A job of a concentrator.
#[derive(Clone, PartialEq, Debug)]
pub enum ConcentratorJob {
    /// Append this to the session log and sync it to disk. The reply is [`AccessConcentratorCommand::Logged`].
    Log(Box<SessionLogRecord>),
    /// Look up the internal address and port of this connection's local end in the system's translation table. The
    /// reply is [`AccessConcentratorCommand::Translated`].
    Translation(QueriedConnection),
}

/// A selection of sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PppoeSessionSelector {
    /// All sessions.
    All,
    /// The session of this number ([`SessionStatus::id`]).
    Session(u64),
    /// The sessions of this user, address, station or Acct-Session-Id.
    Named(String),
}

/// A command to a concentrator.
#[derive(Clone, Debug)]
pub enum AccessConcentratorCommand {
    /// The result of [`ConcentratorJob::Log`].
    Logged {
        /// The token of the job.
        token: u64,
        /// True if the record is on disk.
        is_stored: bool,
    },
    /// The result of [`ConcentratorJob::Translation`].
    Translated {
        /// The token of the job.
        token: u64,
        /// The internal end; `Ok(None)`: no such connection; `Err`: the lookup failed.
        inner: Result<Option<SocketAddr>, ()>,
    },
    /// Total usage of sessions, by SESSION_ID. The last report of a session precedes its [`Removed`](Self::Removed).
    UsageReport(Vec<(u16, SessionUsage)>),
    /// The data plane has removed a session.
    Removed {
        /// The number of the session in the event.
        id: u64,
        /// The session's total usage; `None`: unknown.
        usage: Option<SessionUsage>,
    },
    /// The data plane could not install a session. The session ends.
    NotInstalled {
        /// The number of the session in the event.
        id: u64,
    },
    /// Requests the status. The reply is [`AccessConcentratorEvent::Status`].
    Status {
        /// Returned with the reply.
        token: u64,
    },
    /// Ends sessions. The reply is [`AccessConcentratorEvent::SessionsNotified`].
    Close {
        /// Returned with the reply.
        token: u64,
        /// The sessions to end.
        selection: PppoeSessionSelector,
    },
    /// Replaces the configuration. Existing sessions keep theirs. AAA servers, pools and the log stay those of the
    /// start.
    Configure(Box<AccessConcentratorConfig>),
    /// Shuts down: all sessions end, and new logins are refused.
    Leave,
}

/// An event of a concentrator.
#[derive(Clone, PartialEq, Debug)]
pub enum AccessConcentratorEvent {
    /// Install or update this session in the data plane, before any output that follows this event.
    Install(Box<SessionEntry>),
    /// Remove this session from the data plane. If sessions are metered, the reply is
    /// [`AccessConcentratorCommand::Removed`].
    Remove {
        /// [`SessionEntry::id`].
        id: u64,
        /// [`SessionEntry::number`].
        number: u16,
    },
    /// A user has logged in.
    LoginAccepted(Box<SessionStatus>),
    /// A login failed.
    LoginFailed {
        /// The host.
        subscriber: SubscriberInfo,
        /// The claimed user name.
        user: Vec<u8>,
        /// The reason.
        why: LoginFailure,
    },
    /// A session of a user has ended.
    Ended {
        /// The last status of the session.
        status: Box<SessionStatus>,
        /// The reason.
        reason: String,
    },
    /// A session has ended before its login.
    LoginAborted {
        /// The host.
        subscriber: SubscriberInfo,
        /// The reason.
        reason: EndReason,
    },
    /// Append this to the session log. No immediate sync is needed.
    Log(Box<SessionLogRecord>),
    /// The reply to [`AccessConcentratorCommand::Status`].
    Status {
        /// The token of the command.
        token: u64,
        /// The status.
        status: Box<ConcentratorStatus>,
    },
    /// The reply to [`AccessConcentratorCommand::Close`].
    SessionsNotified {
        /// The token of the command.
        token: u64,
        /// The number of sessions that end.
        sessions: usize,
    },
    /// An AAA server has ended or changed a session.
    Dynamic {
        /// The session's number.
        id: u64,
        /// True if the session ends, false if its authorization has changed.
        end: bool,
    },
    /// An accounting record was lost: no AAA server acknowledged it.
    Unaccounted {
        /// Acct-Session-Id.
        session: String,
        /// True if the session log has the record. The next start sends it again.
        logged: bool,
    },
    /// An AAA server has become available or unavailable.
    Server {
        /// Its index among the configured servers.
        server: usize,
        /// True if it is available.
        up: bool,
    },
    /// An event of the IDENT service.
    Ident(ident::IdentServiceEvent),
    /// The reply to [`AccessConcentratorCommand::Leave`]: all sessions have ended, and their records are acknowledged
    /// or given up.
    Left,
}

/// The default addresses for hosts, which an AAA server can override.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressingConfig {
    /// This side's IPv4 address on every link; `None`: no IPv4.
    pub local: Option<Ipv4Addr>,
    /// Names of the IPv4 pools, by preference.
    pub pools: Vec<String>,
    /// True if hosts may have IPv6.
    pub ipv6: bool,
    /// The pool of link prefixes, from which hosts form addresses.
    pub prefix_pool: Option<String>,
    /// The pool of prefixes to delegate to networks behind hosts.
    pub delegated_pool: Option<String>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
}

/// External addresses that several hosts share.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NatAddressConfig {
    /// The addresses.
    pub addresses: Vec<IpAddr>,
}

/// The limits of sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// Maximum sessions of a user; zero: unlimited.
    pub sessions_per_user: usize,
    /// Policy for a session beyond the maximum.
    pub excess: ExcessSessionPolicy,
    /// True to clamp the TCP MSS of hosts to the session's MTU.
    pub clamp_mss: bool,
}

/// The reason why a configuration is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConcentratorConfigError {
    /// PPPoE.
    Ppp(ConfigError),
    /// The AAA client.
    Aaa(usher_access::ConfigError),
}

impl core::fmt::Display for ConcentratorConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Ppp(error) => write!(f, "{error}"),
            Self::Aaa(error) => write!(f, "[aaa]: {error}"),
        }
    }
}

impl core::error::Error for ConcentratorConfigError {}
