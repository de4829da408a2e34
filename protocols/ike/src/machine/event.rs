//! What an endpoint is told, says and asks.

use super::config::{IkeConnection, IpsecMode};
use crate::header::Spi;
use crate::keys::{IkeKeys, PacketKeys};
use crate::payload::{ConfigurationAttribute, Identification, TrafficSelector};
use crate::suite::PacketAlgorithms;
use crate::work;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_core::{DatagramPath, WallTime, WorkLabel};
use usher_crypto::SecretValue;
use usher_crypto::signature::{KeyKind, SignatureScheme};
use usher_esp::plane::{OuterPath, SaPair};
use usher_esp::{EspTransform, SaLifetime};

/// Names an IKE_SA of an endpoint; a name is never given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SaId(pub u64);

/// The bits of a name that say of which shard an IKE_SA is: there are never so many at a time that these count them.
const SHARD: u32 = 24;

impl SaId {
    /// The name of an IKE_SA that its shard knows by this token.
    pub(super) fn from_token(token: u64, shard: u8) -> Self {
        Self(token | u64::from(shard) << SHARD)
    }
    /// Of which shard it is.
    #[must_use]
    pub const fn shard_number(self) -> u8 {
        (self.0 >> SHARD) as u8
    }
    pub(super) fn token(self) -> u64 {
        self.0 & !(u64::from(u8::MAX) << SHARD)
    }
}

/// What an AAA server, or whoever judges, says to an EAP packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EapAnswer {
    /// A request for the peer.
    Continue(Vec<u8>),
    /// The peer is who it says, with the key of the method where it gives one.
    Accept {
        /// EAP-Success; empty: one is made.
        packet: Vec<u8>,
        /// The master session key.
        msk: Option<SecretValue>,
        /// Who it is: whom the method has authenticated, as the AAA server calls it. What an initiator has said of itself by IKE
        /// is not proved by EAP (RFC 7296 §2.16).
        identity: Identification,
    },
    /// It is not.
    Reject {
        /// EAP-Failure; empty: one is made.
        packet: Vec<u8>,
    },
    /// Nobody answers.
    Unanswered,
}

/// What an endpoint is told.
#[derive(Clone, Debug)]
pub enum IkeCommand {
    /// These are the peers that may begin, the preferred first. IKE_SAs that are there stay as they are.
    Serve(Vec<Arc<IkeConnection>>),
    /// Begin an IKE_SA.
    Initiate {
        /// Comes back with [`IkeEvent::Initiated`].
        token: u64,
        /// With whom and how.
        connection: Arc<IkeConnection>,
        /// From which address of ours. An unspecified one leaves the choice to the host; there is then taken to be a NAT.
        local: SocketAddr,
        /// To which address.
        remote: SocketAddr,
    },
    /// Whoever was let in might not be any more, as when an authority has revoked certificates: no ticket that was given is taken, and
    /// IKE_SAs get new ones only once both sides have proved anew who they are.
    VoidTickets,
    /// Another shard has a new IKE_SA of these two ([`IkeEvent::Replaces`]): those of this one end.
    Replaced {
        /// That one.
        sa: SaId,
        /// By which connection it was let in: what another would have let in proves nothing of this one's.
        connection: String,
        /// Who this side is.
        local: Identification,
        /// Who the other side is.
        remote: Identification,
        /// The other side knows nothing of them any more.
        forgotten: bool,
    },
    /// The answer to [`IkeEvent::Eap`].
    Eap {
        /// Of the event.
        sa: SaId,
        /// The answer.
        answer: EapAnswer,
    },
    /// The answer to [`IkeEvent::AddressRequested`]: what the initiator gets; none: there is no address.
    Address {
        /// Of the event.
        sa: SaId,
        /// Addresses, and whatever else it is told.
        attributes: Vec<ConfigurationAttribute>,
    },
    /// The answer to [`IkeJob::Sign`]; `None`: it cannot be signed.
    Signed {
        /// Of the job.
        token: u64,
        /// The signature.
        signature: Option<Vec<u8>>,
        /// A response of OCSP about the connection's certificate, DER, where one was asked for and is to be had.
        ocsp: Option<Vec<u8>>,
    },
    /// The answer to any [`IkeJob`] that nobody can do at this moment.
    Unable {
        /// Of the job.
        token: u64,
    },
    /// The answer to [`IkeJob::Verify`].
    Verified {
        /// Of the job.
        token: u64,
        /// Until when the certificate is trusted, is of that identity, and its key has signed, as far as that was looked at;
        /// `None`: it is not so.
        until: Option<WallTime>,
        /// That certificate and those between it and an authority.
        certificates: Vec<CertificateName>,
    },
    /// Make a CHILD_SA of this name of its connection.
    CreateChild {
        /// On which IKE_SA.
        sa: SaId,
        /// Which.
        name: String,
    },
    /// Replace a CHILD_SA by a new one.
    RekeyChild {
        /// Of which IKE_SA.
        sa: SaId,
        /// The SPI at which it receives.
        spi: u32,
    },
    /// End a CHILD_SA.
    DeleteChild {
        /// Of which IKE_SA.
        sa: SaId,
        /// The SPI at which it receives.
        spi: u32,
    },
    /// These certificates are revoked, in place of those that were named before: IKE_SAs end whose other side has proved who it is by one
    /// of them, or by one below it.
    Revoked(Arc<BTreeSet<CertificateName>>),
    /// Replace an IKE_SA by a new one.
    Rekey(SaId),
    /// End an IKE_SA.
    Delete(SaId),
    /// Ask whether the other side lives.
    Probe(SaId),
    /// Packets have gone by CHILD_SAs of an IKE_SA, or authentic ones have come. Whoever sends them lives (RFC 7296 §2.4), and a
    /// NAT has seen those that went (RFC 3948 §4).
    Traffic {
        /// Which IKE_SA.
        sa: SaId,
        /// Packets have come.
        received: bool,
        /// Packets have gone.
        sent: bool,
    },
    /// This side's address has changed, or another of the other side's is to be used: an initiator moves its SAs there
    /// (RFC 4555 §3.5). Packets follow when the other side has answered from there.
    Move {
        /// Which IKE_SA.
        sa: SaId,
        /// From which address of ours.
        local: SocketAddr,
        /// To which address.
        remote: SocketAddr,
    },
}

/// A CHILD_SA: two SAs of ESP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildSa {
    /// The name of its connection.
    pub connection: String,
    /// The name of its configuration.
    pub name: String,
    /// The SPI of packets that come.
    pub inbound: u32,
    /// The SPI of packets that go.
    pub outbound: u32,
    /// How packets are protected.
    pub algorithms: PacketAlgorithms,
    /// Sequence numbers have 64 bits.
    pub extended_sequence_numbers: bool,
    /// The keys of packets that come.
    pub inbound_keys: PacketKeys,
    /// The keys of packets that go.
    pub outbound_keys: PacketKeys,
    /// Traffic of this side.
    pub local: Vec<TrafficSelector>,
    /// Traffic of the other side.
    pub remote: Vec<TrafficSelector>,
    /// Its mode.
    pub mode: IpsecMode,
    /// From where to where packets go.
    pub path: DatagramPath,
    /// Packets are within UDP: a NAT is between the two.
    pub encapsulated: bool,
    /// The SPI at which the CHILD_SA receives that this one takes the place of.
    pub replaces: Option<u32>,
    /// This side asked for it.
    pub initiator: bool,
    /// The other side is behind a NAT, and is followed to where authentic packets come from (RFC 7296 §2.23).
    pub follow: bool,
}

impl ChildSa {
    /// The two SAs as ESP knows them, for no policy of their own and without limits.
    #[must_use]
    pub fn sa_pair(&self) -> SaPair {
        let PacketAlgorithms { cipher, integrity, .. } = self.algorithms;
        let extended_sequence_numbers = self.extended_sequence_numbers;
        let DatagramPath { local, remote, .. } = self.path;
        SaPair {
            inbound: self.inbound,
            outbound: self.outbound,
            transform: EspTransform { cipher, integrity, extended_sequence_numbers },
            inbound_keys: self.inbound_keys.clone(),
            outbound_keys: self.outbound_keys.clone(),
            mode: self.mode,
            local: self.local.clone(),
            remote: self.remote.clone(),
            outer: OuterPath { local, remote, encapsulated: self.encapsulated },
            policy: None,
            lifetime: SaLifetime::default(),
            window: SaPair::WINDOW,
            replaces: self.replaces,
            after_peer: !self.initiator,
            follow: self.follow,
        }
    }
}

/// Why an IKE_SA ended, or never came to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EndReason {
    /// This side was told to end it.
    Deleted,
    /// The other side ended it.
    DeletedByPeer,
    /// A new one took its place.
    Rekeyed,
    /// The same two have another, newer one.
    Replaced,
    /// The other side does not answer.
    Unreachable,
    /// The initiator did not go on.
    HalfOpen,
    /// No proposal is acceptable to both.
    NoProposal,
    /// The other side did not prove who it is.
    AuthenticationFailed,
    /// This side did not convince the other.
    Refused,
    /// The other side breaks the protocol.
    Protocol,
    /// A helper of this side failed: no signature, no AAA server.
    Helper,
    /// The other side insists on what this side does not do.
    Unsupported,
    /// A certificate by which the other side has proved who it is has been revoked since.
    Revoked,
}

/// A certificate by its issuer's name and its serial number: sixteen octets of a digest of both, as
/// `usher_crypto::x509::certificate_name` makes them.
pub type CertificateName = [u8; 16];

/// What an endpoint says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IkeEvent {
    /// An IKE_SA was begun by [`IkeCommand::Initiate`].
    Initiated {
        /// Of the command.
        token: u64,
        /// Its name.
        sa: SaId,
    },
    /// An initiator's EAP packet is to be judged; [`IkeCommand::Eap`] is owed.
    Eap {
        /// Of which IKE_SA.
        sa: SaId,
        /// Who the initiator says it is.
        identity: Identification,
        /// Of which connection it is.
        connection: String,
        /// Where it has been shown to receive: failures are counted by that.
        remote: SocketAddr,
        /// Its packet; the first of a conversation is an Identity response.
        packet: Vec<u8>,
    },
    /// An initiator that has proved who it is asks for addresses; [`IkeCommand::Address`] is owed.
    AddressRequested {
        /// Of which IKE_SA.
        sa: SaId,
        /// Who it is.
        identity: Identification,
        /// Of which connection it is.
        connection: String,
        /// From where it comes.
        remote: SocketAddr,
        /// What it asks for.
        attributes: Vec<ConfigurationAttribute>,
    },
    /// An IKE_SA has these keys from now on: said where [`Config::export_keys`](super::IkeEndpointConfig::export_keys) wants it.
    Keys {
        /// SPIs of initiator and responder.
        spis: (Spi, Spi),
        /// How its messages are protected.
        algorithms: PacketAlgorithms,
        /// The keys.
        keys: Box<IkeKeys>,
    },
    /// The responder has given this side addresses and the like.
    Configured {
        /// Of which IKE_SA.
        sa: SaId,
        /// What it gave.
        attributes: Vec<ConfigurationAttribute>,
    },
    /// Both have proved who they are.
    Established {
        /// The IKE_SA.
        sa: SaId,
        /// The name of its connection.
        connection: String,
        /// Who the other side is: after EAP, whom that has authenticated.
        remote: Identification,
        /// SPIs of initiator and responder.
        spis: (Spi, Spi),
        /// From where to where its messages go, as far as the other side has been shown to receive there: where it has been since is told by
        /// [`Moved`](Self::Moved).
        path: DatagramPath,
    },
    /// An IKE_SA of this shard is the only one of these two from now on: other shards are to be told ([`IkeCommand::Replaced`]).
    Replaces {
        /// The IKE_SA.
        sa: SaId,
        /// By which connection it was let in.
        connection: String,
        /// Who this side is.
        local: Identification,
        /// Who the other side is.
        remote: Identification,
        /// The other side knows nothing of others any more.
        forgotten: bool,
    },
    /// A CHILD_SA is to be installed, before what is sent after this.
    Install {
        /// Of which IKE_SA.
        sa: SaId,
        /// The CHILD_SA.
        child: Box<ChildSa>,
    },
    /// A CHILD_SA is to be removed.
    Remove {
        /// Of which IKE_SA.
        sa: SaId,
        /// The SPI at which it receives.
        inbound: u32,
        /// The SPI at which it sends.
        outbound: u32,
    },
    /// The other side would not make a CHILD_SA.
    ChildRefused {
        /// Of which IKE_SA.
        sa: SaId,
        /// The name of its configuration.
        name: String,
        /// Why: what the other side said, or would have been told of what it granted.
        why: crate::code::NotifyType,
    },
    /// An IKE_SA has taken the place of another, with its CHILD_SAs. The other's end follows.
    Rekeyed {
        /// The old one.
        old: SaId,
        /// The new one.
        new: SaId,
        /// SPIs of initiator and responder.
        spis: (Spi, Spi),
    },
    /// The other side has answered: it lives.
    Alive {
        /// The IKE_SA.
        sa: SaId,
    },
    /// Addresses have changed: the other side has moved (RFC 4555), or a NAT has given it another, or this side has been told
    /// to and the other has agreed. Of MOBIKE, whoever is there has been shown to receive there.
    Moved {
        /// The IKE_SA.
        sa: SaId,
        /// From where to where its messages and packets go now.
        path: DatagramPath,
        /// Packets are within UDP from now on: a NAT is between the two.
        encapsulated: bool,
    },
    /// The other side does not take the addresses that [`IkeCommand::Move`] named.
    MoveRefused {
        /// The IKE_SA.
        sa: SaId,
    },
    /// An initiator has not proved who it is; its IKE_SA ends.
    Unproved {
        /// The IKE_SA.
        sa: SaId,
        /// Where it has been shown to receive, and at which address of this side.
        path: DatagramPath,
        /// Who it says it is, if it has said so.
        identity: Option<Identification>,
    },
    /// More proofs by the shared key of a connection fail than may
    /// ([`Config::failed_proofs_per_minute`](super::IkeEndpointConfig::failed_proofs_per_minute)): somebody guesses at it. Said once in ten minutes.
    TooManyFailedProofs {
        /// Its name.
        connection: String,
    },
    /// An IKE_SA has ended. Its CHILD_SAs have been removed.
    Ended {
        /// The IKE_SA.
        sa: SaId,
        /// Why.
        reason: EndReason,
    },
}

/// What an endpoint asks of slow helpers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IkeJob {
    /// Sign these octets with the key of a connection; [`IkeCommand::Signed`] is owed.
    Sign {
        /// The name of the connection.
        connection: String,
        /// How.
        scheme: SignatureScheme,
        /// What.
        octets: Vec<u8>,
        /// The other side would like a response of OCSP about the connection's certificate (RFC 4806 §4.1).
        ocsp: bool,
    },
    /// Verify what somebody says it is; [`IkeCommand::Verified`] is owed.
    Verify {
        /// The name of the connection.
        connection: String,
        /// Who it says it is.
        identity: Identification,
        /// Certificates, DER, its own first, others in no order.
        certificates: Vec<Vec<u8>>,
        /// Responses of OCSP that it shows, DER, of which nobody knows yet whether they are to be believed (RFC 4806 §3.2).
        ocsp: Vec<Vec<u8>>,
        /// How it says that it has signed.
        scheme: SignatureScheme,
        /// What it has signed.
        octets: Vec<u8>,
        /// The signature.
        signature: Vec<u8>,
    },
}

impl IkeJob {
    /// The kind of key that is needed.
    #[must_use]
    pub const fn key_kind(&self) -> KeyKind {
        match self {
            Self::Sign { scheme, .. } | Self::Verify { scheme, .. } => scheme.required_key_kind(),
        }
    }
    /// The kind of work that it is, of which whoever does it does one unit.
    #[must_use]
    pub const fn work_label(&self) -> WorkLabel {
        match self {
            Self::Sign { .. } => work::SIGN,
            Self::Verify { .. } => work::VERIFY,
        }
    }
}
