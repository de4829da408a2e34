//! The TLS engine without input or output: what EAP-TLS, RadSec and Diameter over TLS run on.
//!
//! A [`TlsEngine`] takes the octets that the peer sent and gives the octets to send, both as slices of TLS
//! records; a [`TlsStream`] is one under a machine that speaks over a stream. Two kinds exist: [`TlsClientEngine`] and [`TlsServerEngine`] do the cryptography (rustls on AWS-LC), and
//! [`RecordedTls`] replays the lengths of a handshake that [`record_handshake`] ran once, which costs next to nothing.
//!
//! TLS draws its keys from the system, so octets differ from run to run. Lengths, order and work done do
//! not, where a client offers a single version: then it offers one cipher suite and X25519 alone; signatures
//! of RSA have a fixed length, tickets a fixed number, and wall time is given in.

mod config;
mod count;
mod faults;
pub mod fixtures;
mod issuers;
mod keylog;
#[cfg_attr(target_arch = "wasm32", path = "tls/absent.rs")]
mod library;
mod recorded;
mod remembered;
mod session;
mod sessions;
mod store;
mod stream;
#[cfg(test)]
mod tests;
mod trust;

pub use crate::TlsVersion;
pub use config::{
    ClientConfig, ClientOptions, ResumptionConfig, ServerConfig, ServerOptions, TlsCredentials, WallClock,
};
pub use keylog::KeyLog;
pub use recorded::{HandshakeFlight, HandshakeRecording, HandshakeSide, RecordedTls, record_handshake};
pub use session::{TlsClientEngine, TlsServerEngine};
pub use sessions::SessionNote;
pub use stream::{HANDSHAKE_TIMEOUT, TlsStream, TrustConfig};
pub use trust::{ChainVerifier, TrustRoots};

use crate::fault::{Alert, TlsFault};
use crate::work;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;

/// Most application data kept until it is taken, in octets: more is the caller's negligence or the peer's
/// flood, and ends the connection.
const MAX_APPLICATION: usize = 1 << 20;

/// Versions from one to another, both included. A single one is made `from` it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VersionRange {
    /// The lowest.
    pub min: TlsVersion,
    /// The highest.
    pub max: TlsVersion,
}

impl VersionRange {
    /// Whether this version is one of them.
    #[must_use]
    pub fn contains(self, version: TlsVersion) -> bool {
        (self.min..=self.max).contains(&version)
    }
}

impl Default for VersionRange {
    /// TLS 1.2 and 1.3.
    fn default() -> Self {
        Self { min: TlsVersion::Tls12, max: TlsVersion::Tls13 }
    }
}

impl From<TlsVersion> for VersionRange {
    fn from(version: TlsVersion) -> Self {
        Self { min: version, max: version }
    }
}

/// Why an engine, or making one, failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TlsError {
    /// The configuration cannot work: a certificate, key, root or name that is not one.
    #[error("TLS configuration: {0}")]
    Config(String),
    /// A private key that cannot be used, or is not its certificate's.
    #[error("TLS configuration: private key: {0}")]
    Key(String),
    /// The peer ended the handshake or the connection with this alert (RFC 8446 section 6.2).
    #[error("{}", TlsFault::Alert(*.0))]
    AlertReceived(Alert),
    /// This side ended the handshake or the connection; its alert can still be taken and sent. Why, and what the engine
    /// says of it besides, for people.
    #[error("{0} ({1})")]
    Failed(TlsFault, String),
    /// Asked before the handshake is complete.
    #[error("the TLS handshake is not complete")]
    Handshaking,
    /// The exporter refuses this label, context or length (RFC 5705, RFC 8446 section 7.5).
    #[error("TLS exporter: {0}")]
    Export(String),
}

impl TlsError {
    /// Whether it is about a private key, where a certificate was given with one.
    #[must_use]
    pub const fn is_of_key(&self) -> bool {
        matches!(self, Self::Key(_))
    }

    /// Why, as a value.
    #[must_use]
    pub fn fault(&self) -> TlsFault {
        match self {
            Self::AlertReceived(alert) => TlsFault::Alert(*alert),
            Self::Failed(fault, _) => *fault,
            Self::Config(_) | Self::Key(_) | Self::Handshaking | Self::Export(_) => TlsFault::Internal,
        }
    }
}

/// Public-key operations that an engine did: the costly part of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TlsWork {
    /// Signatures made.
    pub sign: u32,
    /// Signatures checked: those of the certificates and that of the handshake.
    pub verify: u32,
    /// Diffie-Hellman exchanges completed (a new key pair and a shared secret).
    pub key_exchange: u32,
}

impl TlsWork {
    /// As pieces of [`usher_core::WorkRecord`], by the labels of [`work`]; kinds
    /// that were not done are left out.
    pub fn to_work_records(self) -> impl Iterator<Item = usher_core::WorkRecord> {
        [(work::SIGN, self.sign), (work::VERIFY, self.verify), (work::KEY_EXCHANGE, self.key_exchange)]
            .into_iter()
            .filter(|(_, units)| *units > 0)
            .map(|(label, units)| usher_core::WorkRecord { label, units })
    }
}

impl core::ops::AddAssign for TlsWork {
    fn add_assign(&mut self, other: Self) {
        self.sign += other.sign;
        self.verify += other.verify;
        self.key_exchange += other.key_exchange;
    }
}

/// One end of a TLS connection.
pub trait TlsEngine: Send + Debug {
    /// Reads octets from the peer, in order and in pieces of any length. Afterwards [`take`](Self::write_tls).
    ///
    /// # Errors
    /// The connection is over: [`TlsError::AlertReceived`] or [`TlsError::Failed`]. An alert for the peer may
    /// wait in [`take`](Self::write_tls). Every later call gives the same error.
    fn read_tls(&mut self, bytes: &[u8]) -> Result<(), TlsError>;

    /// Appends to `out` what is to be sent, if anything. A client has its first flight from the start.
    fn write_tls(&mut self, out: &mut Vec<u8>);

    /// Whether the handshake is still going on; true for good once it has failed.
    fn is_handshaking(&self) -> bool;

    /// Fills `out` with keying material that both ends share (RFC 5705; RFC 8446 section 7.5 for TLS 1.3).
    /// In TLS 1.2 no context and an empty one give different material.
    ///
    /// # Errors
    /// [`TlsError::Handshaking`] before the handshake is complete, [`TlsError::Export`] when refused.
    fn export_keying_material(
        &self,
        label: &str,
        context: Option<&[u8]>,
        out: &mut [u8],
    ) -> Result<(), TlsError>;

    /// Encrypts application data, to be had from [`take`](Self::write_tls): EAP-TLS's one octet of zero that says
    /// that the handshake is over (RFC 9190 section 2.1.1), a RADIUS packet of RadSec.
    ///
    /// # Errors
    /// [`TlsError::Handshaking`] before the handshake is complete, otherwise why the connection is over.
    fn write_application(&mut self, bytes: &[u8]) -> Result<(), TlsError>;

    /// Appends to `out` the application data that the peer sent.
    fn take_application(&mut self, out: &mut Vec<u8>);

    /// The peer's own certificate in DER, once the handshake is complete and if it showed one.
    fn peer_certificate(&self) -> Option<&[u8]>;

    /// All certificates that the peer showed, in DER, the leaf first; none before the handshake is complete.
    fn peer_chain(&self) -> Vec<&[u8]>;

    /// The version agreed on, once it is.
    fn version(&self) -> Option<TlsVersion>;

    /// Whether the handshake took up an earlier session instead of showing certificates.
    fn is_resumed(&self) -> bool;

    /// Has a server keep its session, with this note, for the client to take up again: from now on, and until then not.
    /// Without resumption nothing is kept.
    fn keep_session(&mut self, _note: SessionNote) {}

    /// The note on the session that a server's client took up.
    fn session_note(&self) -> Option<SessionNote> {
        None
    }

    /// Ends the session that a server's client took up: it is the last time.
    fn end_session(&mut self) {}

    /// Why the connection is over, if it is.
    fn error(&self) -> Option<&TlsError>;

    /// The public-key operations done since this was last asked.
    fn take_work(&mut self) -> TlsWork;

    /// About how many octets of memory this end holds now.
    fn memory_octets(&self) -> usize {
        0
    }
}
