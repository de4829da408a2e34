//! The configuration of a gateway, its commands, events and jobs.

use crate::status::GatewayStatus;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_access::pool::Lease;
use usher_access::{
    AddressLeases, AuthenticationBackend, EapStepJob, LeaseHolder, LeaseKind, LoginFailure, ServerRecords,
    SubscriberConfig,
};
use usher_core::{Duration, SecureRng};
use usher_esp::plane::SaUsage;
use usher_ike::machine::{self as ike, IkeConnectionConfig, IkeJob, IkeSaId};
use usher_ike::payload::Identification;

/// A connection of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayConnectionConfig {
    /// The endpoint's part of it.
    pub connection: Arc<IkeConnectionConfig>,
    /// The verifier of EAP, if initiators authenticate by it.
    pub judge: AuthenticationBackend,
    /// True if the AAA server accepts EAP-TLS only for certificates that contain the user's name. Otherwise only the
    /// server's reply names the user.
    pub trusts_certificate_names: bool,
    /// The names of its address pools. An initiator gets an address of the first with a free one of the requested
    /// family.
    pub pools: Vec<String>,
    /// The name servers of initiators.
    pub dns: Vec<IpAddr>,
    /// The domains of these name servers (RFC 8598); empty means all.
    pub domains: Vec<String>,
    /// The local address and port. If unspecified, the host chooses them.
    pub local: SocketAddr,
    /// The peer's address, if this side may initiate.
    pub remote: Option<SocketAddr>,
    /// True to initiate it at the start, and again after an end without a command.
    pub start: bool,
    /// The wait before it is initiated again.
    pub retry: Duration,
    /// True if a packet that needs one of its CHILD_SAs initiates it ([`GatewayCommand::Acquire`]).
    pub on_demand: bool,
    /// The time until this side, as the initiator, reauthenticates (RFC 7296 §2.8.3); `None` for never.
    pub reauth_after: Option<Duration>,
    /// True if reauthentication ends the old IKE_SA first. Otherwise the old one ends when the new one is
    /// established.
    pub break_before_make: bool,
    /// The time after which an IKE_SA ends if it has not been replaced; `None` for never.
    pub lifetime: Option<Duration>,
    /// The same for its CHILD_SAs, in the connection's order.
    pub child_lifetimes: Vec<Option<Duration>>,
}

impl GatewayConnectionConfig {
    /// Creates a connection that waits for its initiator, at this local address. It assigns no addresses and has no
    /// lifetimes.
    #[must_use]
    pub fn responder_only(connection: IkeConnectionConfig, local: SocketAddr) -> Self {
        Self {
            connection: Arc::new(connection),
            judge: AuthenticationBackend::Aaa,
            trusts_certificate_names: true,
            pools: Vec::new(),
            dns: Vec::new(),
            domains: Vec::new(),
            local,
            remote: None,
            start: false,
            retry: Duration::ZERO,
            on_demand: false,
            reauth_after: None,
            break_before_make: false,
            lifetime: None,
            child_lifetimes: Vec::new(),
        }
    }
}

/// The configuration of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// The limits of the IKEv2 endpoint.
    pub endpoint: ike::IkeEndpointConfig,
    /// The connections, the preferred first.
    pub peers: Vec<Arc<GatewayConnectionConfig>>,
    /// The users, AAA servers and address pools of initiators. If it is metered, the host carries packets of CHILD_SAs.
    /// It then sends [`GatewayCommand::UsageReport`] from time to time, and [`GatewayCommand::Removed`] for each removed
    /// CHILD_SA. The accounting stop waits for that.
    pub subscribers: SubscriberConfig,
}

impl GatewayConfig {
    /// Creates a configuration for this connection alone, without pools, AAA servers and local users.
    #[must_use]
    pub fn for_peer(endpoint: ike::IkeEndpointConfig, peer: GatewayConnectionConfig) -> Self {
        Self {
            endpoint,
            peers: alloc::vec![Arc::new(peer)],
            subscribers: SubscriberConfig { server_records: ServerRecords::OnAndOff, ..Default::default() },
        }
    }
    /// Creates the pools that all shards share, without leases.
    #[must_use]
    pub fn create_leases(&self, rng: SecureRng) -> AddressLeases {
        let mut leases = AddressLeases::new(&self.subscribers.pools, rng);
        leases.set_reserved(&self.local_addresses());
        leases
    }
    /// Returns the gateway's own addresses. No initiator may have one of them.
    #[must_use]
    pub fn local_addresses(&self) -> Vec<IpAddr> {
        let all = self.peers.iter().map(|peer| peer.local.ip());
        all.filter(|address| !address.is_unspecified()).collect()
    }
    /// Returns the configuration of the initiators' users, addresses and accounting.
    pub(crate) fn subscriber_config(&self) -> SubscriberConfig {
        SubscriberConfig {
            needs_keys: true,
            assigns_ipv6_addresses: true,
            reserved_addresses: self.local_addresses(),
            rates: None,
            ..self.subscribers.clone()
        }
    }
}

/// A job of a gateway, for a worker.
#[derive(Debug)]
pub enum GatewayJob {
    /// A signature, or a certificate chain. The result is [`GatewayCommand::Done`].
    Ike(IkeJob),
    /// A step of an EAP-TLS handshake with a local user. The result is [`GatewayCommand::EapStepDone`].
    EapStep(Box<EapStepJob<IkeSaId>>),
    /// Addresses of the pools that all shards share. The result is [`GatewayCommand::Leased`].
    Lease(AddressLeaseRequest),
}

impl GatewayJob {
    /// Returns the result for a job that is dropped because the queue is full.
    #[must_use]
    pub fn dropped_job_command(self, token: u64) -> GatewayCommand {
        match self {
            Self::Ike(_) => GatewayCommand::Done(ike::IkeCommand::Unable { token }),
            Self::EapStep(step) => GatewayCommand::EapStepDropped { sa: step.access, token },
            Self::Lease(wish) => GatewayCommand::Leased { sa: wish.sa, leases: Vec::new() },
        }
    }
}

/// A selection of IKE_SAs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IkeSaSelector {
    /// All.
    All,
    /// The one with this id ([`IkeSaStatus::id`](crate::IkeSaStatus::id)).
    Sa(u64),
    /// Those with this connection, identity, user or virtual address.
    Named(String),
}

/// A command to a gateway.
#[derive(Debug)]
pub enum GatewayCommand {
    /// The result of [`GatewayJob::Ike`].
    Done(ike::IkeCommand),
    /// The result of [`GatewayJob::EapStep`]: the same value, [done](EapStepJob::run_eap_step).
    EapStepDone(Box<EapStepJob<IkeSaId>>),
    /// The result of [`GatewayJob::EapStep`] if the job was dropped under load.
    EapStepDropped {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The token of the job.
        token: u64,
    },
    /// The result of [`GatewayJob::Lease`].
    Leased {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The leases, possibly fewer than requested.
        leases: Vec<Lease>,
    },
    /// Makes all resumption tickets void ([`ike::IkeCommand::VoidTickets`]), for example after an authority has
    /// revoked certificates.
    VoidTickets,
    /// Replaces the set of revoked certificates. Ends the sessions of peers that authenticated by one of them
    /// ([`ike::IkeCommand::Revoked`]).
    Revoked(Arc<BTreeSet<ike::CertificateName>>),
    /// Another shard has a new IKE_SA of this pair ([`ike::IkeEvent::Replaces`]).
    Replaced {
        /// The new IKE_SA.
        sa: IkeSaId,
        /// The name of its connection.
        connection: String,
        /// The local identity.
        local: Identification,
        /// The peer's identity.
        remote: Identification,
        /// True if the peer has lost its state of the old IKE_SAs.
        forgotten: bool,
    },
    /// Initiates a connection. The reply is [`GatewayEvent::ConnectResult`].
    Connect {
        /// Returned in the reply.
        token: u64,
        /// Its name.
        connection: String,
    },
    /// Requests the status. The reply is [`GatewayEvent::Status`].
    Status {
        /// Returned in the reply.
        token: u64,
    },
    /// Rekeys IKE_SAs, or their CHILD_SAs. The reply is [`GatewayEvent::SasNotified`].
    Rekey {
        /// Returned in the reply.
        token: u64,
        /// The IKE_SAs.
        selection: IkeSaSelector,
        /// True to rekey their CHILD_SAs instead.
        children: bool,
    },
    /// Ends IKE_SAs. The reply is [`GatewayEvent::SasNotified`]. Connections with `start` are not initiated again.
    Down {
        /// Returned in the reply.
        token: u64,
        /// The IKE_SAs.
        selection: IkeSaSelector,
    },
    /// A packet needs a CHILD_SA. Initiates its connection if necessary. [`GatewayEvent::Unprotected`] follows if
    /// that fails.
    Acquire {
        /// The name of the connection.
        connection: String,
        /// The name of the CHILD_SA's configuration.
        child: String,
    },
    /// Reports the total traffic of CHILD_SAs, by their inbound SPIs.
    UsageReport(Vec<(u32, SaUsage)>),
    /// Reports that a CHILD_SA was removed.
    Removed {
        /// Its inbound SPI.
        inbound: u32,
        /// Its total traffic; `None` if unknown.
        usage: Option<SaUsage>,
    },
    /// Reports a CHILD_SA that is near its traffic limit or at it, or that could not be installed.
    Expired {
        /// Its inbound SPI.
        inbound: u32,
        /// True if it carries no more packets.
        hard: bool,
    },
    /// This host's addresses have changed: the local address of each connection. IKE_SAs with MOBIKE move there (RFC
    /// 4555).
    Addresses(Vec<(String, SocketAddr)>),
    /// Applies a new configuration. Existing IKE_SAs stay as they are. AAA servers, pools and endpoint limits stay
    /// those of the start.
    Configure(Box<GatewayConfig>),
    /// Shuts down: ends all IKE_SAs and initiates no more.
    Leave,
}

/// An event of a gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GatewayEvent {
    /// An event of its endpoint: IKE_SAs change, and CHILD_SAs are to be installed, moved or removed. The gateway
    /// handles EAP packets and address requests itself.
    Ike(ike::IkeEvent),
    /// The reply to [`GatewayCommand::Connect`].
    ConnectResult {
        /// The command's token.
        token: u64,
        /// The id of the IKE_SA, or the reason of the failure.
        result: Result<u64, String>,
    },
    /// The reply to [`GatewayCommand::Status`].
    Status {
        /// The command's token.
        token: u64,
        /// The status.
        status: Box<GatewayStatus>,
    },
    /// The reply to [`GatewayCommand::Rekey`] and [`GatewayCommand::Down`].
    SasNotified {
        /// The command's token.
        token: u64,
        /// Number of affected SAs.
        sas: usize,
    },
    /// A login failed.
    LoginFailed {
        /// The initiator's address.
        remote: SocketAddr,
        /// The name of the connection.
        connection: String,
        /// The identity that the initiator claims.
        identity: Identification,
        /// The reason.
        why: LoginFailure,
    },
    /// An AAA server ended or changed a session (dynamic authorization).
    Dynamic {
        /// The IKE_SA.
        sa: IkeSaId,
        /// True if it ends; otherwise its timeouts have changed.
        end: bool,
    },
    /// A CHILD_SA of [`GatewayCommand::Acquire`] could not be created.
    Unprotected {
        /// The name of the connection.
        connection: String,
        /// The name of the CHILD_SA's configuration; `None` for all of the connection.
        child: Option<String>,
    },
    /// A connection that this side initiated has ended and was not replaced.
    ConnectionEnded {
        /// Its name.
        connection: String,
    },
    /// The shutdown is complete: the reply to [`GatewayCommand::Leave`].
    Left,
    /// No AAA server accepted an accounting record.
    Unaccounted {
        /// Acct-Session-Id.
        session: String,
    },
    /// An address of the shared pools is free again.
    Released(Lease),
    /// An AAA server has become reachable or unreachable.
    Server {
        /// Its index in the configuration.
        server: usize,
        /// True if it is reachable.
        up: bool,
    },
}

/// A request for addresses of the pools.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressLeaseRequest {
    /// Its IKE_SA.
    pub sa: IkeSaId,
    /// The holder: connection and identity. A returning holder gets the same address while it is free.
    pub holder: (String, Identification),
    /// Addresses from the AAA server, in a pool or not. They are leased unless another holder has them.
    pub granted: Vec<IpAddr>,
    /// The pools to choose from, the preferred first.
    pub pools: Vec<String>,
    /// True if another IKE_SA of the same holder must not share an address.
    pub is_exclusive: bool,
    /// The requested addresses. 0.0.0.0 or :: means any of the family. A specific address that is not free is
    /// replaced by any of its family.
    pub addresses: Vec<IpAddr>,
}

impl AddressLeaseRequest {
    /// Leases addresses of the shared pools. The result of [`GatewayJob::Lease`].
    #[must_use]
    pub fn answer_from(self, by: &mut AddressLeases) -> GatewayCommand {
        let leases = self.allocate(by);
        GatewayCommand::Leased { sa: self.sa, leases }
    }
    pub(crate) fn allocate(&self, by: &mut AddressLeases) -> Vec<Lease> {
        let identity = by.hash_holder(&self.holder);
        let holder = LeaseHolder { identity, owner: identity, is_exclusive: self.is_exclusive };
        let pools: Vec<&str> = self.pools.iter().map(String::as_str).collect();
        let granted = self.granted.iter().map(|address| Lease::Address(*address));
        let mut leases: Vec<Lease> = granted.filter(|lease| by.claim_lease(*lease, &holder)).collect();
        for wanted in &self.addresses {
            if !wanted.is_unspecified() && by.take_specific_lease(&pools, *wanted, &holder) {
                leases.push(Lease::Address(*wanted));
                continue;
            }
            let kind = if wanted.is_ipv4() { LeaseKind::Ipv4 } else { LeaseKind::Ipv6 };
            leases.extend(by.take_lease(&pools, kind, &holder));
        }
        leases
    }
}
