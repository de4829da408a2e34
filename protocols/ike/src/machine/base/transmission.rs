//! Sends an IKE_SA's messages: encryption, fragmentation, retransmission.

use super::{IkeSaBase, LastResponseState, OutstandingRequest};
use crate::code::ExchangeType;
use crate::header::IkeHeader;
use crate::machine::context::IkeEndpointContext;
use crate::machine::sockets::is_nat_traversal_socket;
use crate::message::IkeMessage;
use crate::payload::{NotifyPayload, Payload, emit_chain, first_payload_type};
use crate::protect::unencrypted_message_octets;
use crate::work;
use alloc::vec::Vec;
use usher_core::{DatagramPath, Duration, OctetWriter, Transmit};

/// The shortest interval between two transmissions of a response, however often its request arrives.
const REPEAT: Duration = Duration::from_millis(100);

impl IkeSaBase {
    /// Returns the plaintext of a message of this side.
    pub(in crate::machine) fn plain_message(
        &self,
        exchange: ExchangeType,
        response: bool,
        payloads: &[Payload],
    ) -> Vec<u8> {
        let id = if response { self.expected.wrapping_sub(1) } else { self.next_request };
        let mut content = Vec::new();
        emit_chain(payloads, &mut OctetWriter::new(&mut content));
        unencrypted_message_octets(
            &self.header(exchange, response, id),
            first_payload_type(payloads),
            &content,
        )
    }

    fn header(&self, exchange: ExchangeType, response: bool, message_id: u32) -> IkeHeader {
        IkeHeader {
            initiator_spi: self.spis.0,
            responder_spi: self.spis.1,
            exchange,
            initiator: self.initiator,
            response,
            higher_version: false,
            message_id,
        }
    }

    pub(in crate::machine) fn transmit_datagrams(
        &mut self,
        cx: &mut IkeEndpointContext,
        datagrams: &[Vec<u8>],
        path: DatagramPath,
    ) {
        if path == self.path {
            self.sent = cx.now;
        }
        for datagram in datagrams {
            let mut bytes = cx.outputs.take_buffer();
            // RFC 7296, 2: on port 4500 four zero octets come first.
            if is_nat_traversal_socket(path.socket) {
                bytes.extend_from_slice(&crate::NON_ESP_MARKER);
            }
            bytes.extend_from_slice(datagram);
            cx.outputs.push_transmit(Transmit::Datagram { path }, bytes);
        }
    }

    /// Most octets of a message that is sent whole.
    fn fragment_limit(&self, cx: &IkeEndpointContext) -> Option<usize> {
        let ip = if self.path.remote.is_ipv4() { 20 } else { 40 };
        let marker = if is_nat_traversal_socket(self.path.socket) { 4 } else { 0 };
        // RFC 7383, 2.3: fragments only if both sides support them.
        self.fragmentation.then(|| cx.config.packet.saturating_sub(ip + 8 + marker))
    }

    /// Sends the first request, in the clear.
    pub(in crate::machine) fn request_plain(
        &mut self,
        cx: &mut IkeEndpointContext,
        exchange: ExchangeType,
        payloads: Vec<Payload>,
    ) -> Vec<u8> {
        let mut octets = Vec::new();
        IkeMessage { header: self.header(exchange, false, 0), payloads }.emit(&mut octets);
        self.send_request(cx, exchange, 0, alloc::vec![octets.clone()]);
        octets
    }

    /// Sends a request under the IKE_SA's keys. No other may be outstanding.
    pub(in crate::machine) fn request_protected(
        &mut self,
        cx: &mut IkeEndpointContext,
        exchange: ExchangeType,
        payloads: &[Payload],
    ) {
        let id = self.next_request;
        let (header, limit) = (self.header(exchange, false, id), self.fragment_limit(cx));
        let Some(session) = &mut self.session else { return };
        let datagrams = session.outbound.seal(&header, payloads, limit, &mut cx.rng);
        cx.count_work(work::PROTECT);
        self.send_request(cx, exchange, id, datagrams);
    }

    fn send_request(
        &mut self,
        cx: &mut IkeEndpointContext,
        exchange: ExchangeType,
        id: u32,
        datagrams: Vec<Vec<u8>>,
    ) {
        // RFC 7296, 2.3: one request at a time, within the peer's window.
        debug_assert!(self.outstanding.is_none(), "the window has one request");
        self.transmit_datagrams(cx, &datagrams, self.path);
        cx.counters.requests += 1;
        cx.count_work(work::MESSAGE);
        let due = cx.now + cx.config.retransmission.retransmission_timeout_after(0);
        self.next_request = id.wrapping_add(1);
        self.outstanding = Some(OutstandingRequest { id, datagrams, retransmissions: 0, due, exchange });
    }

    /// Responds to the peer's last request, on its path.
    pub(in crate::machine) fn respond_protected(
        &mut self,
        cx: &mut IkeEndpointContext,
        exchange: ExchangeType,
        payloads: &[Payload],
    ) {
        let (header, limit) =
            (self.header(exchange, true, self.expected.wrapping_sub(1)), self.fragment_limit(cx));
        let Some(session) = &mut self.session else { return };
        let datagrams = session.outbound.seal(&header, payloads, limit, &mut cx.rng);
        cx.count_work(work::PROTECT);
        self.send_response(cx, datagrams);
    }
    pub(in crate::machine) fn respond_notify(
        &mut self,
        cx: &mut IkeEndpointContext,
        exchange: ExchangeType,
        notify: NotifyPayload,
    ) {
        self.respond_protected(cx, exchange, &[Payload::Notify(notify)]);
    }
    /// Responds to the first request, in the clear, and expects the next.
    pub(in crate::machine) fn respond_plain(
        &mut self,
        cx: &mut IkeEndpointContext,
        exchange: ExchangeType,
        payloads: Vec<Payload>,
    ) -> Vec<u8> {
        let mut octets = Vec::new();
        IkeMessage { header: self.header(exchange, true, 0), payloads }.emit(&mut octets);
        self.expected = 1;
        self.send_response(cx, alloc::vec![octets.clone()]);
        octets
    }
    fn send_response(&mut self, cx: &mut IkeEndpointContext, datagrams: Vec<Vec<u8>>) {
        // RFC 7296, 2.11: the response goes to the address and port of the request.
        self.transmit_datagrams(cx, &datagrams, self.reply);
        cx.counters.responses += 1;
        cx.count_work(work::MESSAGE);
        self.answered = LastResponseState::Response(datagrams);
    }
    /// Sends the last response again for a retransmitted request (RFC 7296 §2.1).
    pub(in crate::machine) fn resend_last_response(
        &mut self,
        cx: &mut IkeEndpointContext,
        path: DatagramPath,
    ) {
        let LastResponseState::Response(datagrams) = &mut self.answered else {
            cx.counters.duplicate_pending += 1;
            return;
        };
        if self.repeated_at.is_some_and(|at| cx.now < at + REPEAT) {
            cx.counters.duplicates_ignored += 1;
            return;
        }
        self.repeated_at = Some(cx.now);
        let datagrams = core::mem::take(datagrams);
        cx.counters.duplicates += 1;
        self.transmit_datagrams(cx, &datagrams, path);
        self.answered = LastResponseState::Response(datagrams);
    }
    /// Defers the response to the last request until a job has finished.
    pub(in crate::machine) fn postpone_response(&mut self) {
        self.answered = LastResponseState::Pending;
    }
}
