//! Recorded handshakes of studies by name. A program records each once, or gets it from another program.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use usher_crypto::tls::{TlsError, TlsHandshakeRecording};

/// Recordings by name, made here or by another program.
static RECORDINGS: Mutex<BTreeMap<String, Arc<TlsHandshakeRecording>>> = Mutex::new(BTreeMap::new());

/// Returns the handshake of this name, which contains everything that its lengths depend on. Records it if it is
/// unknown.
pub(super) fn recorded_handshake(
    name: String,
    make: impl FnOnce() -> Result<TlsHandshakeRecording, TlsError>,
) -> Result<Arc<TlsHandshakeRecording>, TlsError> {
    // The lock is not held while recording: two threads that record the same handshake at once get the same lengths.
    let known = || RECORDINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(recording) = known().get(&name) {
        return Ok(recording.clone());
    }
    let recording = Arc::new(make()?);
    Ok(known().entry(name).or_insert(recording).clone())
}

/// Returns the handshakes that this program has used so far, by name. Another program without cryptography can use them
/// ([`add_recorded_handshake`]).
#[must_use]
pub fn export_handshakes() -> BTreeMap<String, Vec<u8>> {
    let known = RECORDINGS.lock().unwrap_or_else(PoisonError::into_inner);
    known.iter().filter_map(|(name, recording)| Some((name.clone(), recording.encode()?))).collect()
}

/// Adds a handshake recorded by another program. False if the bytes are not a recording.
pub fn add_recorded_handshake(name: &str, bytes: &[u8]) -> bool {
    let Some(recording) = TlsHandshakeRecording::decode(bytes) else { return false };
    RECORDINGS.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), Arc::new(recording));
    true
}
