//! TLS secrets as text for packet analysers.

use core::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// A buffer of connection secrets as NSS key log text (draft-ietf-tls-keylogfile), with which Wireshark decrypts a
/// capture. Clones share the buffer. It grows until [`take_text`](Self::take_text) empties it.
#[derive(Clone, Default)]
pub struct KeyLog(Arc<Mutex<String>>);

impl KeyLog {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Returns the text so far, a line per secret: label, client random and secret in hexadecimal.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Returns the text so far and empties the buffer.
    #[must_use]
    pub fn take_text(&self) -> String {
        core::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl core::fmt::Debug for KeyLog {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyLog(..)")
    }
}

impl rustls::KeyLog for KeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str(label);
        for bytes in [client_random, secret] {
            text.push(' ');
            for byte in bytes {
                let _ = write!(text, "{byte:02x}");
            }
        }
        text.push('\n');
    }
}
