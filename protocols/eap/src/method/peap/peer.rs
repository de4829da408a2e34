//! Phase 2 of PEAP's peer.

use super::super::connection::TlsConnection;
use super::super::tunnel::PeerPhase;
use super::super::{PeerOffer, PeerVerdict};
use super::binding::{Compound, Subtype, VALUE};
use super::tlv::{self, Tlvs};
use crate::Keys;
use crate::packet::{self, Code, HEADER, Packet, Type};
use crate::peer::{Config, Peer};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng, WallTime, Work};

/// Phase 2 of one run.
#[derive(Debug)]
pub(crate) struct Phase {
    /// It has no clock: the conversation outside has.
    peer: Peer,
    /// A method was asked for, so that a Success without one will not do.
    begun: bool,
    /// What the keys are made of, once both ends have shown that they know it.
    bound: Option<Compound>,
}

impl Phase {
    pub(crate) fn new(
        identity: Vec<u8>,
        methods: Arc<[Box<dyn PeerOffer>]>,
        rng: SecureRng,
        wall: WallTime,
    ) -> Self {
        let config = Config { identity, methods, timeout: Duration::from_secs(1), wall };
        Self { peer: Peer::new(config, rng, Instant::ZERO), begun: false, bound: None }
    }

    /// The result that the server tells, and what we say to it.
    fn result(&mut self, request: Packet<'_>, conn: &TlsConnection, out: &mut Vec<u8>) -> PeerVerdict {
        let sure = if self.begun { self.peer.content() } else { conn.engine.resumed() };
        let (told, binding) = match tlv::read(request.data()) {
            Some(Tlvs::Known { result, binding }) => (result == Some(true), binding),
            Some(Tlvs::Unknown(kind)) => {
                tlv::emit_nak(out, request.identifier(), kind);
                return PeerVerdict::Continue;
            }
            None => (false, None),
        };
        let answer = match binding.filter(|_| told && sure) {
            Some(value) => match self.bind(&value, conn) {
                Some(answer) => Some(answer),
                None => {
                    tlv::emit_result(out, Code::Response, request.identifier(), false, None);
                    return PeerVerdict::Failed;
                }
            },
            None => None,
        };
        tlv::emit_result(out, Code::Response, request.identifier(), told && sure, answer.as_ref());
        if told && sure { PeerVerdict::Done } else { PeerVerdict::Failed }
    }

    /// Answers a server that binds the method to the tunnel; `None` where it does not know the keys of both.
    fn bind(&mut self, value: &[u8; VALUE], conn: &TlsConnection) -> Option<[u8; VALUE]> {
        let tunnel = conn.keys(Type::PEAP)?;
        let compound = if self.begun {
            Compound::new(&tunnel, self.peer.keys().as_ref())
        } else {
            Compound::resumed(&tunnel)
        };
        let nonce = compound.verify(Subtype::Request, value)?;
        let answer = compound.value(Subtype::Response, &nonce);
        self.bound = Some(compound);
        Some(answer)
    }
}

impl PeerPhase for Phase {
    fn nothing(&mut self, _: &TlsConnection, _: &mut Vec<u8>) -> PeerVerdict {
        PeerVerdict::Continue
    }

    fn data(&mut self, identifier: u8, data: &[u8], conn: &TlsConnection, out: &mut Vec<u8>) -> PeerVerdict {
        if let Some(request) = tlv::packet(data, Code::Request) {
            return self.result(request, conn, out);
        }
        // Some servers send the Identity request with its header.
        let whole = Packet::parse(data).ok().filter(|p| {
            p.code() == Code::Request && p.kind() == Some(Type::IDENTITY) && data.len() == HEADER + 1
        });
        let kind = match whole {
            Some(_) => Type::IDENTITY,
            None => Type(data.first().copied().unwrap_or_default()),
        };
        let rest = if whole.is_some() { &[] } else { data.get(1..).unwrap_or_default() };
        self.begun |= !matches!(kind, Type::IDENTITY | Type::NOTIFICATION);
        let mut request = Vec::new();
        packet::emit(&mut request, Code::Request, identifier, kind, rest);
        let mut response = Vec::new();
        if !self.peer.handle(Instant::ZERO, &request) {
            return PeerVerdict::Ignore;
        }
        if !self.peer.poll_transmit(&mut response) {
            return PeerVerdict::Failed;
        }
        out.extend_from_slice(response.get(HEADER..).unwrap_or_default());
        PeerVerdict::Continue
    }

    fn established(&self, _: &TlsConnection) -> PeerVerdict {
        PeerVerdict::Continue
    }

    fn keys(&self, tunnel: Keys) -> Keys {
        match &self.bound {
            Some(compound) => compound.keys(tunnel),
            None => tunnel,
        }
    }

    fn poll_work(&mut self) -> Option<Work> {
        self.peer.poll_work()
    }
}
