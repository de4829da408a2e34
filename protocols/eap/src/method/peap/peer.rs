//! Phase 2 of PEAP's peer.

use super::super::link::Link;
use super::super::tunnel::PeerPhase;
use super::super::{PeerOffer, PeerVerdict};
use super::tlv::{self, Tlvs};
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
}

impl Phase {
    pub(crate) fn new(
        identity: Vec<u8>,
        methods: Arc<[Box<dyn PeerOffer>]>,
        rng: SecureRng,
        wall: WallTime,
    ) -> Self {
        let config = Config { identity, methods, timeout: Duration::from_secs(1), wall };
        Self { peer: Peer::new(config, rng, Instant::ZERO), begun: false }
    }

    /// The result that the server tells, and what we say to it.
    fn result(&mut self, request: Packet<'_>, link: &Link, out: &mut Vec<u8>) -> PeerVerdict {
        let sure = if self.begun { self.peer.content() } else { link.engine.resumed() };
        let told = match tlv::read(request.data()) {
            Some(Tlvs::Result(told)) => told,
            Some(Tlvs::Unknown(kind)) => {
                tlv::emit_nak(out, request.identifier(), kind);
                return PeerVerdict::Continue;
            }
            Some(Tlvs::Nothing) | None => false,
        };
        tlv::emit_result(out, Code::Response, request.identifier(), told && sure);
        if told && sure { PeerVerdict::Done } else { PeerVerdict::Failed }
    }
}

impl PeerPhase for Phase {
    fn nothing(&mut self, _: &Link, _: &mut Vec<u8>) -> PeerVerdict {
        PeerVerdict::Continue
    }

    fn data(&mut self, identifier: u8, data: &[u8], link: &Link, out: &mut Vec<u8>) -> PeerVerdict {
        if let Some(request) = tlv::packet(data, Code::Request) {
            return self.result(request, link, out);
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

    fn established(&self, _: &Link) -> PeerVerdict {
        PeerVerdict::Continue
    }

    fn poll_work(&mut self) -> Option<Work> {
        self.peer.poll_work()
    }
}
