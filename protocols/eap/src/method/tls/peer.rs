//! The peer's side of EAP-TLS.

use super::super::{PeerMethod, PeerVerdict};
use crate::Keys;
use crate::method::connection::{Piece, TlsConnection};
use crate::packet::Type;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::Work;
use usher_crypto::fault::TlsFault;

/// One run of EAP-TLS in a peer.
#[derive(Debug)]
pub struct Peer {
    /// Without an engine (its configuration was refused) every run fails.
    conn: Option<TlsConnection>,
    started: bool,
    failed: bool,
    /// TLS 1.3's commitment message has come (RFC 9190 §2.1.1).
    committed: bool,
}

impl Peer {
    pub(super) fn new(conn: Option<TlsConnection>) -> Self {
        Self { conn, started: false, failed: false, committed: false }
    }
}

impl PeerMethod for Peer {
    fn request(&mut self, _: u8, data: &[u8], out: &mut Vec<u8>) -> PeerVerdict {
        let Some(conn) = &mut self.conn else { return PeerVerdict::Failed };
        match conn.read(data) {
            Piece::Start if !self.started => {
                self.started = true;
                conn.refill();
            }
            Piece::Nothing if conn.sending() => {}
            Piece::More if self.started && !conn.sending() => {
                conn.rewind();
            }
            Piece::Whole if self.started && !conn.sending() => {
                self.failed |= !conn.digest();
                let mut commitment = Vec::new();
                conn.engine.take_application(&mut commitment);
                self.committed |= commitment == [0];
                self.failed |= !commitment.is_empty() && !self.committed;
            }
            _ => return PeerVerdict::Ignore,
        }
        conn.build(out);
        match conn.engine.is_handshaking() {
            _ if self.failed => PeerVerdict::Failed,
            _ if conn.sending() => PeerVerdict::Continue,
            true => PeerVerdict::Continue,
            false if conn.is_13() && !self.committed => PeerVerdict::Continue,
            false => PeerVerdict::Done,
        }
    }

    fn keys(&self) -> Option<Keys> {
        self.conn.as_ref().filter(|_| !self.failed)?.keys(Type::TLS)
    }

    fn tls_fault(&self) -> Option<(TlsFault, String)> {
        self.conn.as_ref()?.fault()
    }

    fn poll_work(&mut self) -> Option<Work> {
        self.conn.as_mut()?.poll_work()
    }
}
