//! The TLS engine without I/O, used by EAP-TLS, RadSec and Diameter over TLS.
//!
//! A [`TlsEngine`] takes the octets of the peer and returns the octets to send, both as TLS records. A [`TlsStream`]
//! wraps an engine for a machine over a stream. There are two kinds of engine:
//!
//! - [`TlsClientEngine`] and [`TlsServerEngine`] do the cryptography (rustls on AWS-LC).
//! - [`RecordedTls`] replays the lengths of a handshake that [`record_handshake`] ran once, at almost no cost.
//!
//! TLS draws its keys from the system, so octets differ from run to run. Lengths, order and work are repeatable if a
//! client offers a single version. It then offers one cipher suite and only X25519. RSA signatures have a fixed length,
//! the number of tickets is fixed, and wall time is an input.

mod config;
mod count;
mod faults;
pub mod fixtures;
mod issuers;
mod keylog;
#[cfg_attr(target_arch = "wasm32", path = "tls/absent.rs")]
mod library;
mod recorded;
mod session;
mod sessions;
mod signature_cache;
mod store;
mod stream;
#[cfg(test)]
mod tests;
mod trust;

pub use crate::TlsVersion;
pub use config::{
    ClientConfig, ServerConfig, SharedWallClock, TlsClientOptions, TlsCredentials, TlsResumptionConfig,
    TlsServerOptions,
};
pub use keylog::KeyLog;
pub use recorded::{
    RecordedTls, TlsHandshakeFlight, TlsHandshakeRecording, TlsHandshakeSide, record_handshake,
};
pub use session::{TlsClientEngine, TlsServerEngine};
pub use sessions::TlsSessionMetadata;
pub use stream::{HANDSHAKE_TIMEOUT, TlsStream, TlsTrustConfig};
pub use trust::{CertificateChainVerifier, TrustRoots};

use crate::fault::{Alert, TlsFault};
use crate::work;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;

/// The maximum of buffered application data in octets. More is a fault of the caller or a flood of the peer, and ends
/// the connection.
const MAX_APPLICATION: usize = 1 << 20;

/// A range of versions, both ends included. A single version converts to a range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TlsVersionRange {
    /// The lowest version.
    pub min: TlsVersion,
    /// The highest version.
    pub max: TlsVersion,
}

impl TlsVersionRange {
    /// True if the range contains this version.
    #[must_use]
    pub fn contains(self, version: TlsVersion) -> bool {
        (self.min..=self.max).contains(&version)
    }
}

impl Default for TlsVersionRange {
    /// TLS 1.2 and 1.3.
    fn default() -> Self {
        Self { min: TlsVersion::Tls12, max: TlsVersion::Tls13 }
    }
}

impl From<TlsVersion> for TlsVersionRange {
    fn from(version: TlsVersion) -> Self {
        Self { min: version, max: version }
    }
}

/// An error of an engine or its creation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TlsError {
    /// The configuration is invalid: a bad certificate, key, root or name.
    #[error("TLS configuration: {0}")]
    Config(String),
    /// A private key is unusable, or does not fit its certificate.
    #[error("TLS configuration: private key: {0}")]
    Key(String),
    /// The peer ended the handshake or the connection with this alert (RFC 8446 section 6.2).
    #[error("{}", TlsFault::Alert(*.0))]
    AlertReceived(Alert),
    /// This side ended the handshake or the connection. Its alert can still be taken and sent. The fields are the
    /// reason and the engine's own message.
    #[error("{0} ({1})")]
    Failed(TlsFault, String),
    /// The call needs a complete handshake.
    #[error("the TLS handshake is not complete")]
    Handshaking,
    /// The exporter refuses this label, context or length (RFC 5705, RFC 8446 section 7.5).
    #[error("TLS exporter: {0}")]
    Export(String),
}

impl TlsError {
    /// True if the error concerns a private key that was given with a certificate.
    #[must_use]
    pub const fn concerns_private_key(&self) -> bool {
        matches!(self, Self::Key(_))
    }

    /// Returns the reason as a value.
    #[must_use]
    pub fn fault(&self) -> TlsFault {
        match self {
            Self::AlertReceived(alert) => TlsFault::Alert(*alert),
            Self::Failed(fault, _) => *fault,
            Self::Config(_) | Self::Key(_) | Self::Handshaking | Self::Export(_) => TlsFault::Internal,
        }
    }
}

/// The number of public-key operations of an engine, the expensive part of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TlsOperationCounts {
    /// Signatures created.
    pub sign: u32,
    /// Signatures verified: those of the certificates and of the handshake.
    pub verify: u32,
    /// Diffie-Hellman exchanges completed: a new key pair and a shared secret.
    pub key_exchange: u32,
}

impl TlsOperationCounts {
    /// Returns the operations as [`usher_core::WorkRecord`]s, by the labels of [`work`]. Kinds with count 0 are
    /// omitted.
    pub fn to_work_records(self) -> impl Iterator<Item = usher_core::WorkRecord> {
        [(work::SIGN, self.sign), (work::VERIFY, self.verify), (work::KEY_EXCHANGE, self.key_exchange)]
            .into_iter()
            .filter(|(_, units)| *units > 0)
            .map(|(label, units)| usher_core::WorkRecord { label, units })
    }
}

impl core::ops::AddAssign for TlsOperationCounts {
    fn add_assign(&mut self, other: Self) {
        self.sign += other.sign;
        self.verify += other.verify;
        self.key_exchange += other.key_exchange;
    }
}

/// One end of a TLS connection.
pub trait TlsEngine: Send + Debug {
    /// Reads octets of the peer, in order and in pieces of any length. Afterwards call [`write_tls`](Self::write_tls).
    ///
    /// # Errors
    /// If the connection is over: [`TlsError::AlertReceived`] or [`TlsError::Failed`]. An alert for the peer may wait
    /// in [`write_tls`](Self::write_tls). Every later call returns the same error.
    fn read_tls(&mut self, bytes: &[u8]) -> Result<(), TlsError>;

    /// Appends the octets to send to `out`, if any. A client has its first flight from the start.
    fn write_tls(&mut self, out: &mut Vec<u8>);

    /// True until the handshake is complete. Stays true if it fails.
    fn is_handshaking(&self) -> bool;

    /// Fills `out` with keying material that both ends share (RFC 5705; RFC 8446 section 7.5 for TLS 1.3). In TLS 1.2
    /// no context and an empty context yield different material.
    ///
    /// # Errors
    /// [`TlsError::Handshaking`] before the handshake is complete, [`TlsError::Export`] if the exporter refuses.
    fn export_keying_material(
        &self,
        label: &str,
        context: Option<&[u8]>,
        out: &mut [u8],
    ) -> Result<(), TlsError>;

    /// Encrypts application data, which [`write_tls`](Self::write_tls) then returns. Examples are the zero octet of
    /// EAP-TLS after the handshake (RFC 9190 section 2.1.1), or a RADIUS packet of RadSec.
    ///
    /// # Errors
    /// [`TlsError::Handshaking`] before the handshake is complete, otherwise the reason why the connection is over.
    fn write_application(&mut self, bytes: &[u8]) -> Result<(), TlsError>;

    /// Appends the application data of the peer to `out`.
    fn take_application(&mut self, out: &mut Vec<u8>);

    /// Returns the peer's own certificate in DER, after the handshake and if the peer presented one.
    fn peer_certificate(&self) -> Option<&[u8]>;

    /// Returns all certificates of the peer in DER, the leaf first; none before the handshake is complete.
    fn peer_chain(&self) -> Vec<&[u8]>;

    /// Returns the negotiated version.
    fn version(&self) -> Option<TlsVersion>;

    /// True if the handshake resumed an earlier session.
    fn is_resumed(&self) -> bool;

    /// Makes a server keep its session, with this note, for later resumption. Before this call the client cannot resume
    /// it. Without resumption it does nothing.
    fn keep_session(&mut self, _note: TlsSessionMetadata) {}

    /// Returns the note of the session that the server's client resumed.
    fn session_note(&self) -> Option<TlsSessionMetadata> {
        None
    }

    /// Ends the session that the server's client resumed, so that it cannot be resumed again.
    fn end_session(&mut self) {}

    /// Returns the reason why the connection is over, if it is.
    fn error(&self) -> Option<&TlsError>;

    /// Returns the public-key operations since the last call.
    fn take_work(&mut self) -> TlsOperationCounts;

    /// Returns the approximate memory of this end in octets.
    fn memory_octets(&self) -> usize {
        0
    }
}
