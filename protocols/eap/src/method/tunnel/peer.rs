//! The peer's side of a tunnel.

use super::super::connection::{EapFragmentKind, PeerTlsBackend, TlsConnection};
use super::super::{EapMethodContext, PeerMethod, PeerMethodResult};
use super::take_application_data;
use crate::EapKeys;
use crate::packet::EapType;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;
use usher_core::WorkRecord;
use usher_crypto::fault::TlsFault;

/// Phase 2 of a peer. Its output goes through the tunnel. Without output, the peer sends a response without data.
pub(crate) trait TunnelPeerPhase: Debug + Send {
    /// Handles a request without data while no output is pending: an acknowledgement, tickets, or the handshake's end.
    fn handle_empty(&mut self, conn: &TlsConnection, out: &mut Vec<u8>) -> PeerMethodResult;
    /// Handles data from the tunnel, in a request of this identifier.
    fn handle_data(
        &mut self,
        identifier: u8,
        data: &[u8],
        conn: &TlsConnection,
        out: &mut Vec<u8>,
    ) -> PeerMethodResult;
    /// The verdict if Success follows the last flight of the handshake.
    fn handshake_verdict(&self, conn: &TlsConnection) -> PeerMethodResult;
    /// Derives the method's keys from the tunnel's.
    fn derive_keys(&self, tunnel: EapKeys) -> EapKeys {
        tunnel
    }
    /// The next piece of inner work.
    fn poll_work(&mut self) -> Option<WorkRecord>;
}

/// A run of a tunnelled method in a peer.
#[derive(Debug)]
pub(crate) struct TunnelPeer<P> {
    kind: EapType,
    /// `None` if TLS refused the configuration. The run then fails.
    conn: Option<TlsConnection>,
    started: bool,
    /// The verdict once all output is sent.
    verdict: PeerMethodResult,
    phase: P,
}

impl<P: TunnelPeerPhase> TunnelPeer<P> {
    pub(crate) fn new(
        kind: EapType,
        tls: &PeerTlsBackend,
        fragment: usize,
        phase: P,
        context: &EapMethodContext<'_>,
    ) -> Self {
        let conn = TlsConnection::for_peer(tls, fragment, context);
        Self { kind, conn, started: false, verdict: PeerMethodResult::Continue, phase }
    }

    /// Runs a step of phase 2 and encrypts its output.
    fn run_phase(
        &mut self,
        act: impl FnOnce(&mut P, &TlsConnection, &mut Vec<u8>) -> PeerMethodResult,
    ) -> PeerMethodResult {
        let Some(conn) = &mut self.conn else { return PeerMethodResult::Failed };
        let mut out = Vec::new();
        let verdict = act(&mut self.phase, conn, &mut out);
        if verdict != PeerMethodResult::Ignore && !out.is_empty() && !conn.write_data(&out) {
            return PeerMethodResult::Failed;
        }
        verdict
    }

    /// Handles a complete TLS message.
    fn process_message(&mut self, identifier: u8) -> PeerMethodResult {
        let Some(conn) = &mut self.conn else { return PeerMethodResult::Failed };
        if !conn.process_message() {
            return PeerMethodResult::Failed;
        }
        if conn.engine.is_handshaking() {
            return PeerMethodResult::Continue;
        }
        let data = take_application_data(conn);
        if !data.is_empty() {
            return self.run_phase(|p, conn, out| p.handle_data(identifier, &data, conn, out));
        }
        if conn.is_sending() {
            return self.phase.handshake_verdict(conn);
        }
        self.run_phase(|p, conn, out| p.handle_empty(conn, out))
    }
}

impl<P: TunnelPeerPhase> PeerMethod for TunnelPeer<P> {
    fn handle_request(&mut self, identifier: u8, data: &[u8], out: &mut Vec<u8>) -> PeerMethodResult {
        let Some(conn) = &mut self.conn else { return PeerMethodResult::Failed };
        let failed = self.verdict == PeerMethodResult::Failed;
        match (conn.read_fragment(data), conn.is_sending()) {
            (EapFragmentKind::Start, _) if !self.started => {
                self.started = true;
                conn.fill_output();
            }
            (EapFragmentKind::Acknowledgement, true) => {}
            // After a failure the peer only acknowledges the server's remaining messages.
            (EapFragmentKind::Acknowledgement | EapFragmentKind::More | EapFragmentKind::Complete, false)
                if failed =>
            {
                conn.clear_output()
            }
            (EapFragmentKind::More, false) if self.started => {
                conn.clear_output();
                self.verdict = PeerMethodResult::Continue;
            }
            (EapFragmentKind::Acknowledgement, false) if self.started && !conn.engine.is_handshaking() => {
                conn.clear_output();
                match self.run_phase(|p, conn, out| p.handle_empty(conn, out)) {
                    PeerMethodResult::Ignore => return PeerMethodResult::Ignore,
                    verdict => self.verdict = verdict,
                }
            }
            (EapFragmentKind::Complete, false) if self.started => match self.process_message(identifier) {
                PeerMethodResult::Ignore => return PeerMethodResult::Ignore,
                verdict => self.verdict = verdict,
            },
            _ => return PeerMethodResult::Ignore,
        }
        let Some(conn) = &mut self.conn else { return PeerMethodResult::Failed };
        conn.build_fragment(out);
        match self.verdict {
            PeerMethodResult::MayEnd | PeerMethodResult::Done if conn.is_sending() => {
                PeerMethodResult::MayFail
            }
            // If the inner method fails, the server may send an outer Failure without further messages, so the peer
            // must accept it.
            PeerMethodResult::Continue if !conn.engine.is_handshaking() => PeerMethodResult::MayFail,
            verdict => verdict,
        }
    }

    fn keys(&self) -> Option<EapKeys> {
        let content = matches!(self.verdict, PeerMethodResult::MayEnd | PeerMethodResult::Done);
        let keys = self.conn.as_ref().filter(|_| content)?.export_keys(self.kind)?;
        Some(self.phase.derive_keys(keys))
    }

    fn tls_fault(&self) -> Option<(TlsFault, String)> {
        self.conn.as_ref()?.tls_fault()
    }

    fn poll_work(&mut self) -> Option<WorkRecord> {
        self.conn.as_mut()?.poll_work().or_else(|| self.phase.poll_work())
    }
}
