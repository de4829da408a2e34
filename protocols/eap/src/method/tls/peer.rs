//! The peer's side of EAP-TLS.

use super::super::{PeerMethod, PeerMethodResult};
use crate::EapKeys;
use crate::method::connection::{EapFragmentKind, TlsConnection};
use crate::packet::EapType;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::WorkRecord;
use usher_crypto::fault::TlsFault;

/// A run of EAP-TLS in a peer.
#[derive(Debug)]
pub struct EapTlsPeer {
    /// `None` if TLS refused the configuration. The run then fails.
    conn: Option<TlsConnection>,
    started: bool,
    failed: bool,
    /// True if TLS 1.3's commitment message was received (RFC 9190 §2.1.1).
    committed: bool,
}

impl EapTlsPeer {
    pub(super) fn new(conn: Option<TlsConnection>) -> Self {
        Self { conn, started: false, failed: false, committed: false }
    }
}

impl PeerMethod for EapTlsPeer {
    fn handle_request(&mut self, _: u8, data: &[u8], out: &mut Vec<u8>) -> PeerMethodResult {
        let Some(conn) = &mut self.conn else { return PeerMethodResult::Failed };
        match conn.read_fragment(data) {
            EapFragmentKind::Start if !self.started => {
                self.started = true;
                conn.fill_output();
            }
            EapFragmentKind::Acknowledgement if conn.is_sending() => {}
            EapFragmentKind::More if self.started && !conn.is_sending() => {
                conn.clear_output();
            }
            EapFragmentKind::Complete if self.started && !conn.is_sending() => {
                self.failed |= !conn.process_message();
                let mut commitment = Vec::new();
                conn.engine.take_application(&mut commitment);
                self.committed |= commitment == [0];
                self.failed |= !commitment.is_empty() && !self.committed;
            }
            _ => return PeerMethodResult::Ignore,
        }
        conn.build_fragment(out);
        match conn.engine.is_handshaking() {
            _ if self.failed => PeerMethodResult::Failed,
            _ if conn.is_sending() => PeerMethodResult::Continue,
            true => PeerMethodResult::Continue,
            false if conn.is_tls13() && !self.committed => PeerMethodResult::Continue,
            false => PeerMethodResult::Done,
        }
    }

    fn keys(&self) -> Option<EapKeys> {
        self.conn.as_ref().filter(|_| !self.failed)?.export_keys(EapType::TLS)
    }

    fn tls_fault(&self) -> Option<(TlsFault, String)> {
        self.conn.as_ref()?.tls_fault()
    }

    fn poll_work(&mut self) -> Option<WorkRecord> {
        self.conn.as_mut()?.poll_work()
    }
}
