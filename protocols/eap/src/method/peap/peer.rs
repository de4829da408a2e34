//! Phase 2 of PEAP's peer.

use super::super::connection::TlsConnection;
use super::super::tunnel::TunnelPeerPhase;
use super::super::{PeerMethodFactory, PeerMethodResult};
use super::binding::{CryptobindingSubtype, PeapCompoundKeys, VALUE};
use super::tlv::{self, ParsedPeapTlvs};
use crate::EapKeys;
use crate::packet::{self, EapCode, EapPacket, EapType, HEADER};
use crate::peer::{EapPeer, EapPeerConfig};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng, WallTime, WorkRecord};

/// Phase 2 of a run.
#[derive(Debug)]
pub(crate) struct PeapPeerPhase {
    /// The inner conversation. The outer conversation has the timer.
    peer: EapPeer,
    /// True if the server has requested a method. A Success without a completed method is then a failure.
    has_method_started: bool,
    /// The keys to derive from, once both ends have proven them.
    bound: Option<PeapCompoundKeys>,
}

impl PeapPeerPhase {
    pub(crate) fn new(
        identity: Vec<u8>,
        methods: Arc<[Box<dyn PeerMethodFactory>]>,
        rng: SecureRng,
        wall: WallTime,
    ) -> Self {
        let config = EapPeerConfig { identity, methods, timeout: Duration::from_secs(1), wall };
        Self { peer: EapPeer::new(config, rng, Instant::ZERO), has_method_started: false, bound: None }
    }

    /// Answers the server's result.
    fn answer_peap_result(
        &mut self,
        request: EapPacket<'_>,
        conn: &TlsConnection,
        out: &mut Vec<u8>,
    ) -> PeerMethodResult {
        let sure =
            if self.has_method_started { self.peer.would_accept_success() } else { conn.engine.is_resumed() };
        let (told, binding) = match tlv::parse_tlvs(request.data()) {
            Some(ParsedPeapTlvs::Known { result, binding }) => (result == Some(true), binding),
            Some(ParsedPeapTlvs::Unknown(kind)) => {
                tlv::emit_nak(out, request.identifier(), kind);
                return PeerMethodResult::Continue;
            }
            None => (false, None),
        };
        let answer = match binding.filter(|_| told && sure) {
            Some(value) => match self.answer_cryptobinding(&value, conn) {
                Some(answer) => Some(answer),
                None => {
                    tlv::emit_result_packet(out, EapCode::Response, request.identifier(), false, None);
                    return PeerMethodResult::Failed;
                }
            },
            None => None,
        };
        tlv::emit_result_packet(out, EapCode::Response, request.identifier(), told && sure, answer.as_ref());
        if told && sure { PeerMethodResult::Done } else { PeerMethodResult::Failed }
    }

    /// Answers the server's cryptobinding. `None` if the server does not know the keys of both tunnel and method.
    fn answer_cryptobinding(&mut self, value: &[u8; VALUE], conn: &TlsConnection) -> Option<[u8; VALUE]> {
        let tunnel = conn.export_keys(EapType::PEAP)?;
        let compound = if self.has_method_started {
            PeapCompoundKeys::new(&tunnel, self.peer.method_keys().as_ref())
        } else {
            PeapCompoundKeys::from_resumed_tunnel(&tunnel)
        };
        let nonce = compound.verify_cryptobinding_tlv(CryptobindingSubtype::Request, value)?;
        let answer = compound.cryptobinding_tlv_value(CryptobindingSubtype::Response, &nonce);
        self.bound = Some(compound);
        Some(answer)
    }
}

impl TunnelPeerPhase for PeapPeerPhase {
    fn handle_empty(&mut self, _: &TlsConnection, _: &mut Vec<u8>) -> PeerMethodResult {
        PeerMethodResult::Continue
    }

    fn handle_data(
        &mut self,
        identifier: u8,
        data: &[u8],
        conn: &TlsConnection,
        out: &mut Vec<u8>,
    ) -> PeerMethodResult {
        if let Some(request) = tlv::parse_tlv_packet(data, EapCode::Request) {
            return self.answer_peap_result(request, conn, out);
        }
        // Some servers send the inner Identity request with its EAP header, which PEAP leaves out.
        let whole = EapPacket::parse(data).ok().filter(|p| {
            p.code() == EapCode::Request && p.kind() == Some(EapType::IDENTITY) && data.len() == HEADER + 1
        });
        let kind = match whole {
            Some(_) => EapType::IDENTITY,
            None => EapType(data.first().copied().unwrap_or_default()),
        };
        let rest = if whole.is_some() { &[] } else { data.get(1..).unwrap_or_default() };
        self.has_method_started |= !matches!(kind, EapType::IDENTITY | EapType::NOTIFICATION);
        let mut request = Vec::new();
        packet::emit_packet(&mut request, EapCode::Request, identifier, kind, rest);
        let mut response = Vec::new();
        if !self.peer.handle_packet(Instant::ZERO, &request) {
            return PeerMethodResult::Ignore;
        }
        if !self.peer.poll_transmit(&mut response) {
            return PeerMethodResult::Failed;
        }
        out.extend_from_slice(response.get(HEADER..).unwrap_or_default());
        PeerMethodResult::Continue
    }

    fn handshake_verdict(&self, _: &TlsConnection) -> PeerMethodResult {
        PeerMethodResult::Continue
    }

    fn derive_keys(&self, tunnel: EapKeys) -> EapKeys {
        match &self.bound {
            Some(compound) => compound.derive_keys(tunnel),
            None => tunnel,
        }
    }

    fn poll_work(&mut self) -> Option<WorkRecord> {
        self.peer.poll_work()
    }
}
