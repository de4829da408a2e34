//! The peer's side of EAP-TLS.

use super::super::{PeerMethod, PeerVerdict};
use crate::Keys;
use crate::method::link::{Link, Piece};
use crate::packet::Type;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::Work;
use usher_crypto::fault::TlsFault;

/// One run of EAP-TLS in a peer.
#[derive(Debug)]
pub struct Peer {
    /// Without an engine (its configuration was refused) every run fails.
    link: Option<Link>,
    started: bool,
    failed: bool,
    /// TLS 1.3's commitment message has come (RFC 9190 §2.1.1).
    committed: bool,
}

impl Peer {
    pub(super) fn new(link: Option<Link>) -> Self {
        Self { link, started: false, failed: false, committed: false }
    }
}

impl PeerMethod for Peer {
    fn request(&mut self, _: u8, data: &[u8], out: &mut Vec<u8>) -> PeerVerdict {
        let Some(link) = &mut self.link else { return PeerVerdict::Failed };
        match link.read(data) {
            Piece::Start if !self.started => {
                self.started = true;
                link.refill();
            }
            Piece::Nothing if link.sending() => {}
            Piece::More if self.started && !link.sending() => {
                link.rewind();
            }
            Piece::Whole if self.started && !link.sending() => {
                self.failed |= !link.digest();
                let mut commitment = Vec::new();
                link.engine.take_application(&mut commitment);
                self.committed |= commitment == [0];
                self.failed |= !commitment.is_empty() && !self.committed;
            }
            _ => return PeerVerdict::Ignore,
        }
        link.build(out);
        match link.engine.is_handshaking() {
            _ if self.failed => PeerVerdict::Failed,
            _ if link.sending() => PeerVerdict::Continue,
            true => PeerVerdict::Continue,
            false if link.is_13() && !self.committed => PeerVerdict::Continue,
            false => PeerVerdict::Done,
        }
    }

    fn keys(&self) -> Option<Keys> {
        self.link.as_ref().filter(|_| !self.failed)?.keys(Type::TLS)
    }

    fn tls_fault(&self) -> Option<(TlsFault, String)> {
        self.link.as_ref()?.fault()
    }

    fn poll_work(&mut self) -> Option<Work> {
        self.link.as_mut()?.poll_work()
    }
}
