//! The peer's side of a tunnel.

use super::super::connection::{PeerTls, Piece, TlsConnection};
use super::super::{Context, PeerMethod, PeerVerdict};
use super::application;
use crate::Keys;
use crate::packet::Type;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;
use usher_core::Work;
use usher_crypto::fault::TlsFault;

/// Phase 2 of a peer. What it puts out goes through the tunnel; where it puts out nothing, a response without data is
/// sent.
pub(crate) trait PeerPhase: Debug + Send {
    /// A request came that has no data, when nothing is left to be sent: an acknowledgement, tickets, or the
    /// handshake's end.
    fn nothing(&mut self, conn: &TlsConnection, out: &mut Vec<u8>) -> PeerVerdict;
    /// Data came out of the tunnel, in a request of this identifier.
    fn data(&mut self, identifier: u8, data: &[u8], conn: &TlsConnection, out: &mut Vec<u8>) -> PeerVerdict;
    /// What a Success means that comes when the last of the handshake is sent.
    fn established(&self, conn: &TlsConnection) -> PeerVerdict;
    /// The method's keys, from those that its tunnel gives.
    fn keys(&self, tunnel: Keys) -> Keys {
        tunnel
    }
    /// Work done inside.
    fn poll_work(&mut self) -> Option<Work>;
}

/// One run of a tunnelled method in a peer.
#[derive(Debug)]
pub(crate) struct TunnelPeer<P> {
    kind: Type,
    /// Without an engine (its configuration was refused) every run fails.
    conn: Option<TlsConnection>,
    started: bool,
    /// What the verdict is when all is sent.
    verdict: PeerVerdict,
    phase: P,
}

impl<P: PeerPhase> TunnelPeer<P> {
    pub(crate) fn new(kind: Type, tls: &PeerTls, fragment: usize, phase: P, context: &Context<'_>) -> Self {
        let conn = TlsConnection::peer(tls, fragment, context);
        Self { kind, conn, started: false, verdict: PeerVerdict::Continue, phase }
    }

    /// Has phase 2 answer.
    fn turn(&mut self, act: impl FnOnce(&mut P, &TlsConnection, &mut Vec<u8>) -> PeerVerdict) -> PeerVerdict {
        let Some(conn) = &mut self.conn else { return PeerVerdict::Failed };
        let mut out = Vec::new();
        let verdict = act(&mut self.phase, conn, &mut out);
        if verdict != PeerVerdict::Ignore && !out.is_empty() && !conn.write(&out) {
            return PeerVerdict::Failed;
        }
        verdict
    }

    /// A whole message came.
    fn message(&mut self, identifier: u8) -> PeerVerdict {
        let Some(conn) = &mut self.conn else { return PeerVerdict::Failed };
        if !conn.digest() {
            return PeerVerdict::Failed;
        }
        if conn.engine.is_handshaking() {
            return PeerVerdict::Continue;
        }
        let data = application(conn);
        if !data.is_empty() {
            return self.turn(|p, conn, out| p.data(identifier, &data, conn, out));
        }
        if conn.sending() {
            return self.phase.established(conn);
        }
        self.turn(|p, conn, out| p.nothing(conn, out))
    }
}

impl<P: PeerPhase> PeerMethod for TunnelPeer<P> {
    fn request(&mut self, identifier: u8, data: &[u8], out: &mut Vec<u8>) -> PeerVerdict {
        let Some(conn) = &mut self.conn else { return PeerVerdict::Failed };
        let failed = self.verdict == PeerVerdict::Failed;
        match (conn.read(data), conn.sending()) {
            (Piece::Start, _) if !self.started => {
                self.started = true;
                conn.refill();
            }
            (Piece::Nothing, true) => {}
            // What failed stays so; only what is left of the conversation is acknowledged.
            (Piece::Nothing | Piece::More | Piece::Whole, false) if failed => conn.rewind(),
            (Piece::More, false) if self.started => {
                conn.rewind();
                self.verdict = PeerVerdict::Continue;
            }
            (Piece::Nothing, false) if self.started && !conn.engine.is_handshaking() => {
                conn.rewind();
                match self.turn(|p, conn, out| p.nothing(conn, out)) {
                    PeerVerdict::Ignore => return PeerVerdict::Ignore,
                    verdict => self.verdict = verdict,
                }
            }
            (Piece::Whole, false) if self.started => match self.message(identifier) {
                PeerVerdict::Ignore => return PeerVerdict::Ignore,
                verdict => self.verdict = verdict,
            },
            _ => return PeerVerdict::Ignore,
        }
        let Some(conn) = &mut self.conn else { return PeerVerdict::Failed };
        conn.build(out);
        match self.verdict {
            PeerVerdict::MayEnd | PeerVerdict::Done if conn.sending() => PeerVerdict::MayFail,
            // Whom the server refuses for what was said inside may hear so outside only.
            PeerVerdict::Continue if !conn.engine.is_handshaking() => PeerVerdict::MayFail,
            verdict => verdict,
        }
    }

    fn keys(&self) -> Option<Keys> {
        let content = matches!(self.verdict, PeerVerdict::MayEnd | PeerVerdict::Done);
        let keys = self.conn.as_ref().filter(|_| content)?.keys(self.kind)?;
        Some(self.phase.keys(keys))
    }

    fn tls_fault(&self) -> Option<(TlsFault, String)> {
        self.conn.as_ref()?.fault()
    }

    fn poll_work(&mut self) -> Option<Work> {
        self.conn.as_mut()?.poll_work().or_else(|| self.phase.poll_work())
    }
}
