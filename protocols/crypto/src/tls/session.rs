//! The engines that do the cryptography.

use super::sessions::SessionStorage;
use super::{
    ClientConfig, MAX_APPLICATION, ServerConfig, TlsEngine, TlsError, TlsOperationCounts, TlsSessionMetadata,
    TlsVersion, count, faults,
};
use crate::fault::TlsFault;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, HandshakeKind, ProtocolVersion, ServerConnection};
use std::io::{Read, Write};
use std::sync::Arc;

/// The approximate memory in octets of a connection before its handshake, measured with rustls 0.23.
const IDLE: usize = 2 << 10;
/// The same from the first flight on: the transcript, keys, certificates to verify, and the record buffer.
const BUSY: usize = 14 << 10;

/// Returns an error that is not the peer's fault.
fn internal_error(error: &dyn core::fmt::Display) -> TlsError {
    TlsError::Failed(TlsFault::Internal, error.to_string())
}

/// One end of a connection.
struct TlsEngineConnection {
    connection: Connection,
    application: Vec<u8>,
    error: Option<TlsError>,
    work: TlsOperationCounts,
    /// The resumable sessions of a server.
    storage: Option<Arc<SessionStorage>>,
}

impl TlsEngineConnection {
    fn new(
        mut connection: Connection,
        work: TlsOperationCounts,
        storage: Option<Arc<SessionStorage>>,
    ) -> Self {
        // The data to send is the caller's own, not the peer's, so the caller limits it and rustls does not have to.
        connection.set_buffer_limit(None);
        Self { connection, application: Vec::new(), error: None, work, storage }
    }

    fn check_not_failed(&self) -> Result<(), TlsError> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn process_octets(&mut self, mut bytes: &[u8]) -> Result<(), TlsError> {
        while !bytes.is_empty() {
            let read = self.connection.read_tls(&mut bytes).map_err(|e| internal_error(&e))?;
            let state = self.connection.process_new_packets().map_err(|e| faults::to_tls_error(&e))?;
            let waiting = state.plaintext_bytes_to_read();
            if self.application.len() + waiting > MAX_APPLICATION {
                return Err(TlsError::Failed(TlsFault::TooMuch, "application data exceeds the limit".into()));
            }
            let start = self.application.len();
            self.application.resize(start + waiting, 0);
            let filled = self.connection.reader().read(&mut self.application[start..]).unwrap_or(0);
            self.application.truncate(start + filled);
            // After the peer has closed the connection, rustls reads no more octets, so the loop must end here.
            if read == 0 {
                break;
            }
        }
        Ok(())
    }

    fn read_tls(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        self.check_not_failed()?;
        count::take_tls_operation_counts();
        let result = self.process_octets(bytes);
        self.work += count::take_tls_operation_counts();
        if let Err(error) = &result {
            self.error = Some(error.clone());
        }
        result
    }

    fn write_tls(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            // A write to a vector always takes all octets, so 0 means that there are none.
            if self.connection.write_tls(out).unwrap_or(0) == 0 {
                break;
            }
        }
    }

    fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn export_keying_material(
        &self,
        label: &str,
        context: Option<&[u8]>,
        out: &mut [u8],
    ) -> Result<(), TlsError> {
        if self.is_handshaking() {
            return Err(TlsError::Handshaking);
        }
        self.connection
            .export_keying_material(out, label.as_bytes(), context)
            .map(|_| ())
            .map_err(|e| TlsError::Export(e.to_string()))
    }

    fn write_application(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        self.check_not_failed()?;
        if self.is_handshaking() {
            return Err(TlsError::Handshaking);
        }
        self.connection.writer().write_all(bytes).map_err(|e| internal_error(&e))
    }

    fn memory_octets(&self) -> usize {
        let rustls = if self.connection.protocol_version().is_some() { BUSY } else { IDLE };
        size_of::<Self>() + self.application.capacity() + rustls
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        if self.is_handshaking() {
            return None;
        }
        Some(self.connection.peer_certificates()?.first()?.as_ref())
    }

    fn peer_chain(&self) -> Vec<&[u8]> {
        let shown = self.connection.peer_certificates().filter(|_| !self.is_handshaking());
        shown.unwrap_or_default().iter().map(AsRef::as_ref).collect()
    }

    fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns the storage if the session was resumed.
    fn resumed_session_storage(&self) -> Option<&SessionStorage> {
        self.storage.as_deref().filter(|_| self.is_resumed())
    }

    fn version(&self) -> Option<TlsVersion> {
        match self.connection.protocol_version()? {
            ProtocolVersion::TLSv1_2 => Some(TlsVersion::Tls12),
            ProtocolVersion::TLSv1_3 => Some(TlsVersion::Tls13),
            _ => None,
        }
    }
}

/// A client engine with real cryptography.
pub struct TlsClientEngine(TlsEngineConnection);

impl TlsClientEngine {
    /// Creates a connection. Its first flight waits in [`TlsEngine::write_tls`]. All clients created this way from one
    /// configuration share one holder of resumable sessions.
    ///
    /// # Errors
    /// [`TlsError::Failed`] if the system has no random numbers.
    pub fn new(config: &ClientConfig) -> Result<Self, TlsError> {
        Self::new_for_session_holder(config, 0)
    }

    /// Creates a connection like [`new`](Self::new), for one of many holders, such as a station. Each holder resumes
    /// only its own sessions.
    ///
    /// # Errors
    /// [`TlsError::Failed`] if the system has no random numbers.
    pub fn new_for_session_holder(config: &ClientConfig, holder: u64) -> Result<Self, TlsError> {
        // This name is neither sent nor checked: it is only the key under which the holder's sessions are stored.
        let name = ServerName::try_from(format!("h{holder}.invalid")).map_err(|e| internal_error(&e))?;
        count::take_tls_operation_counts();
        let connection =
            ClientConnection::new(config.inner.clone(), name).map_err(|e| faults::to_tls_error(&e))?;
        Ok(Self(TlsEngineConnection::new(connection.into(), count::take_tls_operation_counts(), None)))
    }

    /// Creates a connection like [`new`](Self::new), to a named host. It sends the name, except an address (RFC 6066
    /// §3), and offers these protocols (RFC 7301). The configuration decides which name the server must prove.
    ///
    /// # Errors
    /// [`TlsError::Config`] if `host` is neither a DNS name nor an address. [`TlsError::Failed`] if the system has no
    /// random numbers.
    pub fn to_host(config: &ClientConfig, host: &str, protocols: &[&[u8]]) -> Result<Self, TlsError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|e| TlsError::Config(format!("\"{host}\" is not a host name or address: {e}")))?;
        let mut inner = rustls::ClientConfig::clone(&config.inner);
        inner.enable_sni = true;
        inner.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        count::take_tls_operation_counts();
        let connection =
            ClientConnection::new(Arc::new(inner), name).map_err(|e| faults::to_tls_error(&e))?;
        Ok(Self(TlsEngineConnection::new(connection.into(), count::take_tls_operation_counts(), None)))
    }
}

/// A server engine with real cryptography.
pub struct TlsServerEngine(TlsEngineConnection);

impl TlsServerEngine {
    /// Creates a connection that waits for a client's first flight. The client always makes a full handshake.
    ///
    /// # Errors
    /// [`TlsError::Failed`] if the system has no random numbers.
    pub fn new(config: &ServerConfig) -> Result<Self, TlsError> {
        Self::with_storage(config.inner.clone(), None)
    }

    /// Creates a connection like [`new`](Self::new), with resumption if configured, for one of several purposes such as
    /// an EAP method's type. A session can be resumed only for its own purpose.
    ///
    /// # Errors
    /// [`TlsError::Failed`] if the system has no random numbers.
    pub fn new_for_session_purpose(config: &ServerConfig, purpose: u8) -> Result<Self, TlsError> {
        let (config, storage) = config.connection_config(purpose);
        Self::with_storage(config, storage)
    }

    fn with_storage(
        config: Arc<rustls::ServerConfig>,
        storage: Option<Arc<SessionStorage>>,
    ) -> Result<Self, TlsError> {
        count::take_tls_operation_counts();
        let connection = ServerConnection::new(config).map_err(|e| faults::to_tls_error(&e))?;
        Ok(Self(TlsEngineConnection::new(connection.into(), count::take_tls_operation_counts(), storage)))
    }
}

macro_rules! engine {
    ($name:ident) => {
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("handshaking", &self.0.is_handshaking())
                    .field("version", &self.0.version())
                    .field("error", &self.0.error)
                    .finish_non_exhaustive()
            }
        }

        impl TlsEngine for $name {
            fn read_tls(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
                self.0.read_tls(bytes)
            }
            fn write_tls(&mut self, out: &mut Vec<u8>) {
                self.0.write_tls(out);
            }
            fn is_handshaking(&self) -> bool {
                self.0.is_handshaking()
            }
            fn export_keying_material(
                &self,
                label: &str,
                context: Option<&[u8]>,
                out: &mut [u8],
            ) -> Result<(), TlsError> {
                self.0.export_keying_material(label, context, out)
            }
            fn write_application(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
                self.0.write_application(bytes)
            }
            fn take_application(&mut self, out: &mut Vec<u8>) {
                out.append(&mut self.0.application);
            }
            fn peer_certificate(&self) -> Option<&[u8]> {
                self.0.peer_certificate()
            }
            fn peer_chain(&self) -> Vec<&[u8]> {
                self.0.peer_chain()
            }
            fn version(&self) -> Option<TlsVersion> {
                self.0.version()
            }
            fn is_resumed(&self) -> bool {
                self.0.is_resumed()
            }
            fn keep_session(&mut self, note: TlsSessionMetadata) {
                if let Some(storage) = &self.0.storage {
                    storage.store_session(note, self.0.is_resumed(), self.0.peer_chain());
                }
            }
            fn session_note(&self) -> Option<TlsSessionMetadata> {
                self.0.resumed_session_storage()?.found_session_note()
            }
            fn end_session(&mut self) {
                if let Some(storage) = self.0.resumed_session_storage() {
                    storage.end_session();
                }
            }
            fn error(&self) -> Option<&TlsError> {
                self.0.error.as_ref()
            }
            fn take_work(&mut self) -> TlsOperationCounts {
                core::mem::take(&mut self.0.work)
            }
            fn memory_octets(&self) -> usize {
                self.0.memory_octets()
            }
        }
    };
}

engine!(TlsClientEngine);
engine!(TlsServerEngine);
