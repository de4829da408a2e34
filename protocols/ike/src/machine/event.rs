//! Commands, events and jobs of an endpoint.

use super::config::{IkeConnectionConfig, IpsecMode};
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
use usher_esp::plane::{OuterAddresses, SaPair};
use usher_esp::{EspTransform, SaLifetime};

/// Identifies an IKE_SA of an endpoint. Ids are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IkeSaId(pub u64);

/// The bits of an id that hold its shard. The bits below count the IKE_SAs of one shard and never overflow.
const SHARD: u32 = 24;

impl IkeSaId {
    /// Returns the id of an IKE_SA from its shard's token.
    pub(super) fn from_token(token: u64, shard: u8) -> Self {
        Self(token | u64::from(shard) << SHARD)
    }
    /// Returns the shard of this IKE_SA.
    #[must_use]
    pub const fn shard_number(self) -> u8 {
        (self.0 >> SHARD) as u8
    }
    pub(super) fn token(self) -> u64 {
        self.0 & !(u64::from(u8::MAX) << SHARD)
    }
}

/// A reply of the AAA server, or of a local one, to an EAP packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EapAnswer {
    /// A request for the peer.
    Continue(Vec<u8>),
    /// The peer is authenticated, with the method's key if it has one.
    Accept {
        /// EAP-Success. If empty, the endpoint makes one.
        packet: Vec<u8>,
        /// The master session key.
        msk: Option<SecretValue>,
        /// The identity that the method has authenticated, as the AAA server gives it. EAP does not prove the
        /// initiator's IKE identity (RFC 7296 §2.16).
        identity: Identification,
    },
    /// The peer is rejected.
    Reject {
        /// EAP-Failure. If empty, the endpoint makes one.
        packet: Vec<u8>,
    },
    /// No AAA server replies.
    Unanswered,
}

/// A command to an endpoint.
#[derive(Clone, Debug)]
pub enum IkeCommand {
    /// Replaces the list of connections that peers may initiate, the preferred first. Existing IKE_SAs stay as they
    /// are.
    Serve(Vec<Arc<IkeConnectionConfig>>),
    /// Initiates an IKE_SA.
    Initiate {
        /// Returned in [`IkeEvent::Initiated`].
        token: u64,
        /// The connection to use.
        connection: Arc<IkeConnectionConfig>,
        /// The local address. If unspecified, the host chooses it, and the endpoint assumes a NAT.
        local: SocketAddr,
        /// The peer's address.
        remote: SocketAddr,
    },
    /// Makes all tickets void, for example after an authority has revoked certificates. IKE_SAs get new tickets only
    /// after both sides have authenticated again.
    VoidTickets,
    /// Another shard has a new IKE_SA of this pair ([`IkeEvent::Replaces`]). Ends the pair's IKE_SAs of this shard.
    Replaced {
        /// The new IKE_SA.
        sa: IkeSaId,
        /// Its connection. IKE_SAs of other connections stay: an authentication by one connection is no proof for
        /// another.
        connection: String,
        /// The local identity.
        local: Identification,
        /// The peer's identity.
        remote: Identification,
        /// True if the peer has lost its state of the old IKE_SAs.
        forgotten: bool,
    },
    /// The reply to [`IkeEvent::Eap`].
    Eap {
        /// The IKE_SA of the event.
        sa: IkeSaId,
        /// The reply.
        answer: EapAnswer,
    },
    /// The reply to [`IkeEvent::AddressRequested`]. Without attributes, there is no address for the initiator.
    Address {
        /// The IKE_SA of the event.
        sa: IkeSaId,
        /// The addresses and the other attributes for the initiator.
        attributes: Vec<ConfigurationAttribute>,
    },
    /// The result of [`IkeJob::Sign`].
    Signed {
        /// The job's token.
        token: u64,
        /// The signature; `None` if the connection cannot sign.
        signature: Option<Vec<u8>>,
        /// An OCSP response about the connection's certificate, DER, if the job requested it and it is available.
        ocsp: Option<Vec<u8>>,
    },
    /// The result of an [`IkeJob`] that cannot be done now.
    Unable {
        /// The job's token.
        token: u64,
    },
    /// The result of [`IkeJob::Verify`].
    Verified {
        /// The job's token.
        token: u64,
        /// The end of the proof's validity: the certificate is trusted, has the peer's identity, and its key made the
        /// signature. `None` if one of these is not so.
        until: Option<WallTime>,
        /// The peer's certificate and those between it and an authority.
        certificates: Vec<CertificateName>,
    },
    /// Creates another CHILD_SA.
    CreateChild {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The name of the connection's [`ChildSaConfig`](super::ChildSaConfig).
        name: String,
    },
    /// Rekeys a CHILD_SA.
    RekeyChild {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The inbound SPI.
        spi: u32,
    },
    /// Deletes a CHILD_SA.
    DeleteChild {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The inbound SPI.
        spi: u32,
    },
    /// Replaces the set of revoked certificates. Ends the IKE_SAs whose peer authenticated by one of them, or by a
    /// certificate below one.
    Revoked(Arc<BTreeSet<CertificateName>>),
    /// Rekeys an IKE_SA.
    Rekey(IkeSaId),
    /// Deletes an IKE_SA.
    Delete(IkeSaId),
    /// Sends a dead peer detection request.
    Probe(IkeSaId),
    /// Reports traffic on CHILD_SAs of an IKE_SA. Authentic inbound packets prove that the peer is alive (RFC 7296
    /// §2.4). Outbound packets keep a NAT mapping alive (RFC 3948 §4).
    Traffic {
        /// The IKE_SA.
        sa: IkeSaId,
        /// Authentic packets have arrived.
        received: bool,
        /// Packets were sent.
        sent: bool,
    },
    /// Moves the SAs of an initiator to these addresses, after a change of the local or the peer's address (RFC 4555
    /// §3.5). Packets follow when the peer has responded there.
    Move {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The local address.
        local: SocketAddr,
        /// The peer's address.
        remote: SocketAddr,
    },
}

/// A CHILD_SA: a pair of ESP SAs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildSa {
    /// The name of its connection.
    pub connection: String,
    /// The name of its configuration.
    pub name: String,
    /// The SPI of inbound packets.
    pub inbound: u32,
    /// The SPI of outbound packets.
    pub outbound: u32,
    /// The algorithms of its packets.
    pub algorithms: PacketAlgorithms,
    /// True if sequence numbers have 64 bits.
    pub extended_sequence_numbers: bool,
    /// The keys of inbound packets.
    pub inbound_keys: PacketKeys,
    /// The keys of outbound packets.
    pub outbound_keys: PacketKeys,
    /// The local traffic selectors.
    pub local: Vec<TrafficSelector>,
    /// The peer's traffic selectors.
    pub remote: Vec<TrafficSelector>,
    /// Tunnel or transport mode.
    pub mode: IpsecMode,
    /// The addresses between which its packets travel.
    pub path: DatagramPath,
    /// True if its packets are encapsulated in UDP, because a NAT is between the peers.
    pub encapsulated: bool,
    /// The inbound SPI of the CHILD_SA that this one replaces.
    pub replaces: Option<u32>,
    /// True if this side requested it.
    pub initiator: bool,
    /// True if the peer is behind a NAT. Packets then go to the source address of its last authentic packet (RFC 7296
    /// §2.23).
    pub follow: bool,
}

impl ChildSa {
    /// Returns the two SAs for the data plane, without a policy and without limits.
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
            outer: OuterAddresses { local, remote, encapsulated: self.encapsulated },
            policy: None,
            lifetime: SaLifetime::default(),
            window: SaPair::WINDOW,
            replaces: self.replaces,
            after_peer: !self.initiator,
            follow: self.follow,
        }
    }
}

/// The reason why an IKE_SA ended or was not established.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EndReason {
    /// A command of this side.
    Deleted,
    /// The peer deleted it.
    DeletedByPeer,
    /// A rekeying replaced it.
    Rekeyed,
    /// A newer IKE_SA of the same pair replaced it.
    Replaced,
    /// The peer does not respond.
    Unreachable,
    /// The initiator stopped before it had authenticated.
    HalfOpen,
    /// The peers have no acceptable proposal in common.
    NoProposal,
    /// The peer failed to authenticate.
    AuthenticationFailed,
    /// The peer rejected this side's authentication.
    Refused,
    /// The peer violates the protocol.
    Protocol,
    /// A job or the AAA server of this side failed.
    Helper,
    /// The peer requires a feature that this side does not have.
    Unsupported,
    /// The peer's certificate, or one above it, was revoked.
    Revoked,
}

/// Identifies a certificate by its issuer and serial number: 16 octets of a digest of both, from
/// `usher_crypto::x509::certificate_name`.
pub type CertificateName = [u8; 16];

/// An event of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IkeEvent {
    /// An IKE_SA was begun for [`IkeCommand::Initiate`].
    Initiated {
        /// The command's token.
        token: u64,
        /// The new IKE_SA.
        sa: IkeSaId,
    },
    /// An initiator sent an EAP packet. Reply with [`IkeCommand::Eap`].
    Eap {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The identity that the initiator claims.
        identity: Identification,
        /// The name of its connection.
        connection: String,
        /// The initiator's proven address, by which failed attempts are counted.
        remote: SocketAddr,
        /// The EAP packet. The first of a conversation is an Identity response.
        packet: Vec<u8>,
    },
    /// An authenticated initiator requests addresses. Reply with [`IkeCommand::Address`].
    AddressRequested {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The initiator's identity.
        identity: Identification,
        /// The name of its connection.
        connection: String,
        /// The initiator's address.
        remote: SocketAddr,
        /// The requested attributes.
        attributes: Vec<ConfigurationAttribute>,
    },
    /// An IKE_SA has new keys. Only with [`IkeEndpointConfig::export_keys`](super::IkeEndpointConfig::export_keys).
    Keys {
        /// The SPIs of the initiator and of the responder.
        spis: (Spi, Spi),
        /// The algorithms of its messages.
        algorithms: PacketAlgorithms,
        /// The keys.
        keys: Box<IkeKeys>,
    },
    /// The responder assigned addresses and other attributes to this side.
    Configured {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The assigned attributes.
        attributes: Vec<ConfigurationAttribute>,
    },
    /// Both sides have authenticated.
    Established {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The name of its connection.
        connection: String,
        /// The peer's identity. After EAP, the identity that EAP has authenticated.
        remote: Identification,
        /// The SPIs of the initiator and of the responder.
        spis: (Spi, Spi),
        /// The addresses of its messages, as far as the peer has proved its address. [`Moved`](Self::Moved) reports
        /// later changes.
        path: DatagramPath,
    },
    /// An IKE_SA of this shard is from now on the only one of its pair. Send [`IkeCommand::Replaced`] to the other
    /// shards.
    Replaces {
        /// The IKE_SA.
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
    /// Install this CHILD_SA before you send the transmissions that follow this event.
    Install {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The CHILD_SA.
        child: Box<ChildSa>,
    },
    /// Remove this CHILD_SA.
    Remove {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The inbound SPI.
        inbound: u32,
        /// The outbound SPI.
        outbound: u32,
    },
    /// A CHILD_SA of this side's request was not created.
    ChildRefused {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The name of its configuration.
        name: String,
        /// The error: the peer's, or the one that fits its invalid response.
        why: crate::code::NotifyType,
    },
    /// A rekeyed IKE_SA replaced another and has its CHILD_SAs. [`Ended`](Self::Ended) of the old one follows.
    Rekeyed {
        /// The old IKE_SA.
        old: IkeSaId,
        /// The new IKE_SA.
        new: IkeSaId,
        /// The SPIs of the initiator and of the responder.
        spis: (Spi, Spi),
    },
    /// The peer has responded: it is alive.
    Alive {
        /// The IKE_SA.
        sa: IkeSaId,
    },
    /// Addresses have changed. The peer moved (RFC 4555), a NAT changed its address, or the peer accepted
    /// [`IkeCommand::Move`]. With MOBIKE, the peer has proved that it receives there.
    Moved {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The new addresses of its messages and packets.
        path: DatagramPath,
        /// True if packets are encapsulated in UDP from now on, because a NAT is between the peers.
        encapsulated: bool,
    },
    /// The peer rejected the addresses of [`IkeCommand::Move`].
    MoveRefused {
        /// The IKE_SA.
        sa: IkeSaId,
    },
    /// An initiator failed to authenticate. Its IKE_SA ends.
    Unproved {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The initiator's proven address, and the local one.
        path: DatagramPath,
        /// The identity that it claimed, if any.
        identity: Option<Identification>,
    },
    /// Failed proofs by a connection's shared key exceed
    /// [`IkeEndpointConfig::failed_proofs_per_minute`](super::IkeEndpointConfig::failed_proofs_per_minute): a
    /// guessing attack is likely. At most one event in ten minutes.
    TooManyFailedProofs {
        /// The name of the connection.
        connection: String,
    },
    /// An IKE_SA has ended, and its CHILD_SAs have been removed.
    Ended {
        /// The IKE_SA.
        sa: IkeSaId,
        /// The reason.
        reason: EndReason,
    },
}

/// A job of an endpoint, for a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IkeJob {
    /// Sign these octets with a connection's key. The result is [`IkeCommand::Signed`].
    Sign {
        /// The name of the connection.
        connection: String,
        /// The signature scheme.
        scheme: SignatureScheme,
        /// The octets to sign.
        octets: Vec<u8>,
        /// True if the peer requests an OCSP response about the connection's certificate (RFC 4806 §4.1).
        ocsp: bool,
    },
    /// Verify a peer's certificate and signature. The result is [`IkeCommand::Verified`].
    Verify {
        /// The name of the connection.
        connection: String,
        /// The identity that the peer claims.
        identity: Identification,
        /// Certificates, DER: the peer's first, the others in any order.
        certificates: Vec<Vec<u8>>,
        /// The peer's OCSP responses, DER, not yet verified (RFC 4806 §3.2).
        ocsp: Vec<Vec<u8>>,
        /// The signature scheme that the peer names.
        scheme: SignatureScheme,
        /// The signed octets.
        octets: Vec<u8>,
        /// The signature.
        signature: Vec<u8>,
    },
}

impl IkeJob {
    /// The kind of key that the job needs.
    #[must_use]
    pub const fn key_kind(&self) -> KeyKind {
        match self {
            Self::Sign { scheme, .. } | Self::Verify { scheme, .. } => scheme.required_key_kind(),
        }
    }
    /// The label of its work: one unit per job.
    #[must_use]
    pub const fn work_label(&self) -> WorkLabel {
        match self {
            Self::Sign { .. } => work::SIGN,
            Self::Verify { .. } => work::VERIFY,
        }
    }
}
