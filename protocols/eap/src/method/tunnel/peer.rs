//! The peer's side of a tunnel.

use super::super::connection::{FragmentKind, PeerTls, TlsConnection};
use super::super::{MethodContext, PeerMethod, PeerVerdict};
use super::take_application_data;
use crate::EapKeys;
use crate::packet::EapType;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;
use usher_core::WorkRecord;
use usher_crypto::fault::TlsFault;

/// Phase 2 of a peer. Its output goes through the tunnel. Without output, the peer sends a response without data.
pub(crate) trait PeerPhase: Debug + Send {
    /// Handles a request without data while no output is pending: an acknowledgement, tickets, or the handshake's end.
    fn handle_empty(&mut self, conn: &TlsConnection, out: &mut Vec<u8>) -> PeerVerdict;
    /// Handles data from the tunnel, in a request of this identifier.
    fn handle_data(
        &mut self,
        identifier: u8,
        data: &[u8],
        conn: &TlsConnection,
        out: &mut Vec<u8>,
    ) -> PeerVerdict;
    /// The verdict if Success follows the last flight of the handshake.
    fn handshake_verdict(&self, conn: &TlsConnection) -> PeerVerdict;
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
    verdict: PeerVerdict,
    phase: P,
}

impl<P: PeerPhase> TunnelPeer<P> {
    pub(crate) fn new(
        kind: EapType,
        tls: &PeerTls,
        fragment: usize,
        phase: P,
        context: &MethodContext<'_>,
    ) -> Self {
        let conn = TlsConnection::for_peer(tls, fragment, context);
        Self { kind, conn, started: false, verdict: PeerVerdict::Continue, phase }
    }

    /// Runs a step of phase 2 and encrypts its output.
    fn run_phase(
        &mut self,
        act: impl FnOnce(&mut P, &TlsConnection, &mut Vec<u8>) -> PeerVerdict,
    ) -> PeerVerdict {
        let Some(conn) = &mut self.conn else { return PeerVerdict::Failed };
        let mut out = Vec::new();
        let verdict = act(&mut self.phase, conn, &mut out);
        if verdict != PeerVerdict::Ignore && !out.is_empty() && !conn.write_data(&out) {
            return PeerVerdict::Failed;
        }
        verdict
    }

    /// Handles a complete TLS message.
    fn process_message(&mut self, identifier: u8) -> PeerVerdict {
        let Some(conn) = &mut self.conn else { return PeerVerdict::Failed };
        if !conn.process_message() {
            return PeerVerdict::Failed;
        }
        if conn.engine.is_handshaking() {
            return PeerVerdict::Continue;
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

impl<P: PeerPhase> PeerMethod for TunnelPeer<P> {
    fn handle_request(&mut self, identifier: u8, data: &[u8], out: &mut Vec<u8>) -> PeerVerdict {
        let Some(conn) = &mut self.conn else { return PeerVerdict::Failed };
        let failed = self.verdict == PeerVerdict::Failed;
        match (conn.read_fragment(data), conn.is_sending()) {
            (FragmentKind::Start, _) if !self.started => {
                self.started = true;
                conn.fill_output();
            }
            (FragmentKind::Acknowledgement, true) => {}
            // A failed run stays failed, and only acknowledges the rest of the conversation.
            (FragmentKind::Acknowledgement | FragmentKind::More | FragmentKind::Complete, false)
                if failed =>
            {
                conn.clear_output()
            }
            (FragmentKind::More, false) if self.started => {
                conn.clear_output();
                self.verdict = PeerVerdict::Continue;
            }
            (FragmentKind::Acknowledgement, false) if self.started && !conn.engine.is_handshaking() => {
                conn.clear_output();
                match self.run_phase(|p, conn, out| p.handle_empty(conn, out)) {
                    PeerVerdict::Ignore => return PeerVerdict::Ignore,
                    verdict => self.verdict = verdict,
                }
            }
            (FragmentKind::Complete, false) if self.started => match self.process_message(identifier) {
                PeerVerdict::Ignore => return PeerVerdict::Ignore,
                verdict => self.verdict = verdict,
            },
            _ => return PeerVerdict::Ignore,
        }
        let Some(conn) = &mut self.conn else { return PeerVerdict::Failed };
        conn.build_fragment(out);
        match self.verdict {
            PeerVerdict::MayEnd | PeerVerdict::Done if conn.is_sending() => PeerVerdict::MayFail,
            // After an inner failure the server may send only an outer Failure.
            PeerVerdict::Continue if !conn.engine.is_handshaking() => PeerVerdict::MayFail,
            verdict => verdict,
        }
    }

    fn keys(&self) -> Option<EapKeys> {
        let content = matches!(self.verdict, PeerVerdict::MayEnd | PeerVerdict::Done);
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
