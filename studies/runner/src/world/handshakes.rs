//! Recorded handshakes of studies, by what they are of: each is made once in a program, or given to one that can make none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use usher_crypto::tls::{HandshakeRecording, TlsError};

/// Those that were made or given, by name.
static RECORDINGS: Mutex<BTreeMap<String, Arc<HandshakeRecording>>> = Mutex::new(BTreeMap::new());

/// The handshake of this name, which says all that its lengths depend on; it is made where it is not known yet.
pub(super) fn recorded_handshake(
    name: String,
    make: impl FnOnce() -> Result<HandshakeRecording, TlsError>,
) -> Result<Arc<HandshakeRecording>, TlsError> {
    // Two that make it at once make the same lengths.
    let known = || RECORDINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(recording) = known().get(&name) {
        return Ok(recording.clone());
    }
    let recording = Arc::new(make()?);
    Ok(known().entry(name).or_insert(recording).clone())
}

/// The handshakes that worlds of this program have used until now, by name: for another program that has no cryptography
/// ([`give_handshake`]).
#[must_use]
pub fn export_handshakes() -> BTreeMap<String, Vec<u8>> {
    let known = RECORDINGS.lock().unwrap_or_else(PoisonError::into_inner);
    known.iter().filter_map(|(name, recording)| Some((name.clone(), recording.encode()?))).collect()
}

/// Has a handshake used that another program has made. False: these are not the bytes of one.
pub fn give_handshake(name: &str, bytes: &[u8]) -> bool {
    let Some(recording) = HandshakeRecording::decode(bytes) else { return false };
    RECORDINGS.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), Arc::new(recording));
    true
}
