//! EAP over PKMv2: each EAP packet in its own EAP-Transfer.
//!
//! # Identifiers
//! Descriptions of PKM agree on these rules. A station takes the next PKM identifier (modulo 256) for each new
//! PKM-REQ and keeps it for a retransmission. A PKM-RSP has the identifier of the PKM-REQ that it answers. A station
//! drops a PKM-RSP with any other identifier, except zero, which marks an unsolicited message.
//!
//! In EAP the base station asks, and in PKM the station asks. So these are assumptions:
//! - An EAP request answers the latest PKM-REQ, EAP-Start or the previous EAP response. A retransmitted EAP request
//!   keeps that identifier. If the base station retransmits because the response was lost, that is the PKM-REQ before
//!   the station's latest. So a station accepts replies to its latest PKM-REQ or, within one conversation, to the one
//!   before. EAP itself detects the duplicate.
//! - A base station that has received no PKM-REQ sends zero. A station counts from one and skips zero.
//! - An EAP response equal to the previous one is a retransmission and keeps its identifier.

use crate::attribute::AttributeType;
use crate::code::{Code, Direction};
use crate::message::{self, MessageError, PkmMessage};
use alloc::vec::Vec;

/// Identifier of an unsolicited message.
pub const UNSOLICITED: u8 = 0;

/// Why a message has no valid EAP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EapTransferError {
    /// The octets are not a PKM message.
    #[error(transparent)]
    Malformed(#[from] MessageError),
    /// The message has the wrong direction: an echo, or another node of the same role.
    #[error("the {0} has the wrong direction")]
    WrongSide(Direction),
    /// The message answers an older request. The second number is the latest request; the one before it is also
    /// accepted.
    #[error("the message answers request {0}, but the latest is {1}")]
    Stale(u8, u8),
    /// The message carries no EAP. Authenticated-EAP-Transfer is one of these, because its key is not available here.
    #[error("{0} carries no EAP")]
    NotEap(Code),
}

/// The content of a station's message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StationEapMessage<'a> {
    /// The station requests EAP.
    Start,
    /// An EAP packet.
    Eap(&'a [u8]),
}

/// The station's side of EAP over PKMv2.
#[derive(Clone, Debug, Default)]
pub struct StationEapSide {
    /// Identifier of the latest PKM-REQ.
    identifier: u8,
    /// Identifier of the previous PKM-REQ of the same conversation.
    before: u8,
    /// The EAP packet of the latest PKM-REQ, to detect retransmissions; empty after EAP-Start.
    last: Vec<u8>,
}

impl StationEapSide {
    /// Creates the station's side.
    #[must_use]
    pub const fn new() -> Self {
        Self { identifier: UNSOLICITED, before: UNSOLICITED, last: Vec::new() }
    }
    /// Returns the identifier of the latest PKM-REQ.
    #[must_use]
    pub const fn identifier(&self) -> u8 {
        self.identifier
    }
    /// Continues after another exchange's PKM-REQ with this identifier.
    pub fn resume_after_identifier(&mut self, identifier: u8) {
        (self.identifier, self.before) = (identifier, UNSOLICITED);
        self.last.clear();
    }
    fn advance_identifier(&mut self) {
        self.before = self.identifier;
        self.identifier = self.identifier.checked_add(1).unwrap_or(1);
    }
    /// Appends a new EAP-Start.
    pub fn emit_start(&mut self, out: &mut Vec<u8>) {
        self.advance_identifier();
        self.before = UNSOLICITED;
        self.last.clear();
        self.append_repeated_eap_start(out);
    }
    /// Appends the latest EAP-Start again, unchanged.
    pub fn append_repeated_eap_start(&self, out: &mut Vec<u8>) {
        message::emit_message(out, (Direction::Request, Code::EapStart, self.identifier), None);
    }
    /// Appends an EAP packet in an EAP-Transfer.
    pub fn wrap_eap(&mut self, out: &mut Vec<u8>, eap: &[u8]) {
        if self.last.is_empty() || self.last != eap {
            self.advance_identifier();
            self.last.clear();
            self.last.extend_from_slice(eap);
        }
        let header = (Direction::Request, Code::EapTransfer, self.identifier);
        message::emit_message(out, header, Some((AttributeType::EAP_PAYLOAD, eap)));
    }
    /// Returns the EAP packet of a base station's message.
    ///
    /// # Errors
    /// The message has no EAP packet for this station and is dropped.
    pub fn unwrap_eap<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], EapTransferError> {
        let message = PkmMessage::parse(bytes)?;
        if message.direction() != Direction::Response {
            return Err(EapTransferError::WrongSide(message.direction()));
        }
        if ![UNSOLICITED, self.before, self.identifier].contains(&message.identifier()) {
            return Err(EapTransferError::Stale(message.identifier(), self.identifier));
        }
        eap_payload(&message)
    }
}

/// The base station's side of EAP over PKMv2, for one station.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BaseStationEapSide {
    /// Identifier of the latest PKM-REQ.
    identifier: u8,
}

impl BaseStationEapSide {
    /// Creates the base station's side.
    #[must_use]
    pub const fn new() -> Self {
        Self { identifier: UNSOLICITED }
    }
    /// Returns the content of a station's message. Later replies use its identifier.
    ///
    /// # Errors
    /// The message has no EAP content and is dropped.
    pub fn unwrap_eap<'a>(&mut self, bytes: &'a [u8]) -> Result<StationEapMessage<'a>, EapTransferError> {
        let message = PkmMessage::parse(bytes)?;
        if message.direction() != Direction::Request {
            return Err(EapTransferError::WrongSide(message.direction()));
        }
        let said = match message.code() {
            Code::EapStart => StationEapMessage::Start,
            _ => StationEapMessage::Eap(eap_payload(&message)?),
        };
        self.identifier = message.identifier();
        Ok(said)
    }
    /// Appends an EAP packet in an EAP-Transfer.
    pub fn wrap_eap(&self, out: &mut Vec<u8>, eap: &[u8]) {
        let header = (Direction::Response, Code::EapTransfer, self.identifier);
        message::emit_message(out, header, Some((AttributeType::EAP_PAYLOAD, eap)));
    }
}

fn eap_payload<'a>(message: &PkmMessage<'a>) -> Result<&'a [u8], EapTransferError> {
    let plain = message.code() == Code::EapTransfer;
    message.eap_packet().filter(|_| plain).ok_or(EapTransferError::NotEap(message.code()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn collect_emitted_octets(emit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        emit(&mut out);
        out
    }

    #[test]
    fn answers_have_the_identifier_of_what_they_answer() {
        let (mut station, mut base) = (StationEapSide::new(), BaseStationEapSide::new());
        let start = collect_emitted_octets(|out| station.emit_start(out));
        assert_eq!(start, [9, 17, 1]);
        assert_eq!(base.unwrap_eap(&start), Ok(StationEapMessage::Start));
        let request = collect_emitted_octets(|out| base.wrap_eap(out, b"who?"));
        assert_eq!(&request[..3], [10, 18, 1]);
        assert_eq!(station.unwrap_eap(&request), Ok(&b"who?"[..]));
        let response = collect_emitted_octets(|out| station.wrap_eap(out, b"me"));
        assert_eq!(&response[..3], [9, 18, 2]);
        assert_eq!(base.unwrap_eap(&response), Ok(StationEapMessage::Eap(b"me")));
        assert_eq!(collect_emitted_octets(|out| base.wrap_eap(out, b"prove it"))[2], 2);
    }

    #[test]
    fn a_repetition_keeps_its_identifier() {
        let mut station = StationEapSide::new();
        let start = collect_emitted_octets(|out| station.emit_start(out));
        assert_eq!(collect_emitted_octets(|out| station.append_repeated_eap_start(out)), start);
        let response = collect_emitted_octets(|out| station.wrap_eap(out, b"me"));
        assert_eq!(collect_emitted_octets(|out| station.wrap_eap(out, b"me")), response);
        assert_eq!(collect_emitted_octets(|out| station.wrap_eap(out, b"my proof"))[2], 3);
        // The same octets in another conversation are a new message.
        station.emit_start(&mut Vec::new());
        assert_eq!(collect_emitted_octets(|out| station.wrap_eap(out, b"my proof"))[2], 5);
    }

    #[test]
    fn what_answers_an_older_request_is_not_heard() {
        let (mut station, mut base) = (StationEapSide::new(), BaseStationEapSide::new());
        let unasked = collect_emitted_octets(|out| base.wrap_eap(out, b"who?"));
        assert_eq!(station.unwrap_eap(&unasked), Ok(&b"who?"[..]), "nobody has asked anything yet");
        base.unwrap_eap(&collect_emitted_octets(|out| station.emit_start(out))).unwrap();
        let old = collect_emitted_octets(|out| base.wrap_eap(out, b"who?"));
        station.wrap_eap(&mut Vec::new(), b"me");
        // The base station may not have received the previous message.
        assert_eq!(station.unwrap_eap(&old), Ok(&b"who?"[..]));
        station.wrap_eap(&mut Vec::new(), b"my proof");
        assert_eq!(station.unwrap_eap(&old), Err(EapTransferError::Stale(1, 3)));
        station.emit_start(&mut Vec::new());
        let proof =
            collect_emitted_octets(|out| BaseStationEapSide { identifier: 3 }.wrap_eap(out, b"prove it"));
        assert_eq!(station.unwrap_eap(&proof), Err(EapTransferError::Stale(3, 4)), "another conversation");
        assert_eq!(station.unwrap_eap(&unasked), Ok(&b"who?"[..]));
    }

    #[test]
    fn identifiers_go_on_where_another_exchange_ended() {
        let mut station = StationEapSide::new();
        station.emit_start(&mut Vec::new());
        station.wrap_eap(&mut Vec::new(), b"me");
        assert_eq!(station.identifier(), 2);
        station.resume_after_identifier(4);
        let old = collect_emitted_octets(|out| BaseStationEapSide { identifier: 2 }.wrap_eap(out, b"who?"));
        assert_eq!(station.unwrap_eap(&old), Err(EapTransferError::Stale(2, 4)));
        assert_eq!(
            collect_emitted_octets(|out| station.wrap_eap(out, b"me"))[2],
            5,
            "no repetition of what was said before"
        );
    }

    #[test]
    fn identifiers_pass_zero_over() {
        let mut station = StationEapSide::new();
        let seen: Vec<u8> =
            (0..256).map(|_| collect_emitted_octets(|out| station.emit_start(out))[2]).collect();
        assert_eq!((seen[0], seen[254], seen[255]), (1, 255, 1));
    }

    #[test]
    fn what_is_not_for_us_says_why() {
        let (mut station, mut base) = (StationEapSide::new(), BaseStationEapSide::new());
        let start = collect_emitted_octets(|out| station.emit_start(out));
        assert_eq!(station.unwrap_eap(&start), Err(EapTransferError::WrongSide(Direction::Request)));
        let response = collect_emitted_octets(|out| base.wrap_eap(out, b"x"));
        assert_eq!(base.unwrap_eap(&response), Err(EapTransferError::WrongSide(Direction::Response)));
        assert_eq!(base.unwrap_eap(&[9, 12, 1]), Err(EapTransferError::NotEap(Code::AuthInfo)));
        assert_eq!(
            base.unwrap_eap(&[9, 19, 1, 28, 1, 1]),
            Err(EapTransferError::NotEap(Code::AuthenticatedEapTransfer)),
            "nobody here can check its digest"
        );
        assert_eq!(
            base.unwrap_eap(&[9, 99, 1]),
            Err(EapTransferError::Malformed(MessageError::ReservedCode(99)))
        );
        assert_eq!(base, BaseStationEapSide::new(), "a dropped message leaves no trace");
    }

    proptest! {
        #[test]
        fn packets_arrive_as_they_were(eap in prop::collection::vec(any::<u8>(), 1..3000)) {
            let (mut station, mut base) = (StationEapSide::new(), BaseStationEapSide::new());
            let up = collect_emitted_octets(|out| station.wrap_eap(out, &eap));
            prop_assert_eq!(base.unwrap_eap(&up), Ok(StationEapMessage::Eap(&eap)));
            let down = collect_emitted_octets(|out| base.wrap_eap(out, &eap));
            prop_assert_eq!(station.unwrap_eap(&down), Ok(&eap[..]));
        }
    }
}
