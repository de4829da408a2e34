//! Messages: a name and parameters, encoded with the source and destination identifiers.

use crate::header::{HEADER, HeaderError, MihHeader};
use crate::service::Opcode;
use crate::tlv::{self, Tlv, kind};
use crate::wire::ValueError;
use crate::{MessageId, MihfId, Status, TransactionId};
use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter};

/// Maximum parameters of a message. This limit of the implementation far exceeds every message of the standard.
pub const MAX_PARAMETERS: usize = 64;

/// A message, without source and destination.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MihfMessage {
    /// The message's name.
    pub id: MessageId,
    /// Its parameters, in order.
    pub params: Vec<Tlv>,
}

/// The header bits that a sender chooses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct HeaderFlags {
    /// The message requests an acknowledgement.
    pub ack_req: bool,
    /// The message is or carries an acknowledgement.
    pub ack_rsp: bool,
    /// The sender has not been authenticated yet.
    pub uir: bool,
}

/// The message is too long for its header, or cannot have the requested size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// The header's length cannot express this number of octets.
    #[error("the message is too long: {0} octets after the header")]
    TooLong(usize),
    /// The message already has `octets`, more than the requested length, or one less, which no parameter can fill.
    #[error("a message of {octets} octets cannot be padded to {target_length}")]
    Padding {
        /// Octets of the message.
        octets: usize,
        /// Requested octets.
        target_length: usize,
    },
}

/// A decoded message.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DecodedMessage {
    /// Its header.
    pub header: MihHeader,
    /// The source.
    pub source: MihfId,
    /// The destination.
    pub destination: MihfId,
    /// The message.
    pub message: MihfMessage,
}

/// Why octets are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeErrorKind {
    /// The header is not valid.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The header's length differs from the number of octets after it.
    #[error("{present_octets} octets follow the header, which announces {announced_octets}")]
    Length {
        /// Octets that the header announces.
        announced_octets: usize,
        /// Octets present.
        present_octets: usize,
    },
    /// The octets are a fragment.
    #[error("the message is a fragment")]
    Fragment,
    /// The message does not begin with the identifiers of its source and destination.
    #[error("parameter {0} is not in its place")]
    Order(u8),
    /// More than [`MAX_PARAMETERS`] parameters.
    #[error("the message has too many parameters")]
    TooMany,
    /// A parameter is incomplete.
    #[error("incomplete parameter: {0}")]
    Parameter(ValueError),
    /// The value of this parameter is not valid for its type.
    #[error("parameter {0}: {1}")]
    Value(u8, ValueError),
    /// The standard has no such message.
    #[error("unknown message {0}")]
    Unknown(MessageId),
    /// A mandatory parameter is missing.
    #[error("{0} has no parameter {1}")]
    Missing(MessageId, u8),
}

/// A decoding error, with the fields that were decoded before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecodeError {
    /// The error.
    pub fault: DecodeErrorKind,
    /// The header, if it was decoded.
    pub header: Option<MihHeader>,
    /// The source, if it was decoded.
    pub source: Option<MihfId>,
    /// The destination, if it was decoded.
    pub destination: Option<MihfId>,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fault)
    }
}

impl core::error::Error for DecodeError {}

impl DecodeError {
    /// Returns the status of the response to this message. An unknown request is rejected; one that cannot be decoded
    /// fails. `None` if the message is dropped: it is not a whole request, or its source is unknown. The choice of
    /// status codes is an assumption, because the standard's text was not available.
    pub fn response_status(&self) -> Option<Status> {
        let request = self.header.is_some_and(|h| h.id.opcode == Opcode::Request && !h.ack_rsp);
        if !request || self.source.is_none() {
            return None;
        }
        match self.fault {
            DecodeErrorKind::Unknown(_) => Some(Status::Rejected),
            DecodeErrorKind::Value(..)
            | DecodeErrorKind::Missing(..)
            | DecodeErrorKind::TooMany
            | DecodeErrorKind::Parameter(_) => Some(Status::UnspecifiedFailure),
            DecodeErrorKind::Header(_)
            | DecodeErrorKind::Length { .. }
            | DecodeErrorKind::Fragment
            | DecodeErrorKind::Order(_) => None,
        }
    }
}

impl MihfMessage {
    /// Creates a message.
    pub fn new(id: MessageId, params: impl Into<Vec<Tlv>>) -> Self {
        Self { id, params: params.into() }
    }
    /// Returns an acknowledgement without payload for a message.
    pub const fn acknowledgement(id: MessageId) -> Self {
        Self { id, params: Vec::new() }
    }
    /// Returns the first parameter of a type.
    pub fn get(&self, kind: u8) -> Option<&Tlv> {
        self.params.iter().find(|p| p.kind() == kind)
    }
    /// Returns the status parameter.
    pub fn status(&self) -> Option<Status> {
        self.params.iter().find_map(|p| if let Tlv::Status(status) = p { Some(*status) } else { None })
    }
    /// Returns the octets of the encoded message, header included.
    pub fn encoded_length(&self, source: &MihfId, destination: &MihfId) -> usize {
        let ends = Tlv::Source(source.clone()).encoded_length()
            + Tlv::Destination(destination.clone()).encoded_length();
        HEADER + ends + self.params.iter().map(Tlv::encoded_length).sum::<usize>()
    }
    /// Returns the message padded to `target_length` octets, header included. One parameter of type [`kind::PADDING`]
    /// fills it, or two if one cannot have the size.
    ///
    /// # Errors
    /// The message is longer already, or one octet shorter.
    pub fn with_padding_to_length(
        mut self,
        octets: usize,
        source: &MihfId,
        destination: &MihfId,
    ) -> Result<Self, EncodeError> {
        let now = self.encoded_length(source, destination);
        let mut left = match octets.checked_sub(now) {
            None | Some(1) => return Err(EncodeError::Padding { octets: now, target_length: octets }),
            Some(left) => left,
        };
        while left > 0 {
            // The length field grows at certain sizes, so one parameter cannot reach every total. Then an empty one is
            // added first.
            let fit = (2..=6)
                .map(|head| left.wrapping_sub(head))
                .find(|value| *value < left && 1 + crate::wire::length_octets(*value) + value == left);
            let value = fit.unwrap_or(0);
            self.params.push(Tlv::padding(value));
            left -= 1 + crate::wire::length_octets(value) + value;
        }
        Ok(self)
    }
    /// Appends the whole message: header, source, destination and parameters.
    ///
    /// # Errors
    /// The message is too long for its header. The buffer is unchanged.
    pub fn encode(
        &self,
        bits: HeaderFlags,
        transaction: TransactionId,
        source: &MihfId,
        destination: &MihfId,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let begin = out.len();
        let mut w = OctetWriter::new(out);
        let header = MihHeader {
            ack_req: bits.ack_req,
            ack_rsp: bits.ack_rsp,
            uir: bits.uir,
            more: false,
            fragment: 0,
            id: self.id,
            transaction,
            len: 0,
        };
        header.emit(&mut w);
        Tlv::Source(source.clone()).emit(&mut w);
        Tlv::Destination(destination.clone()).emit(&mut w);
        self.params.iter().for_each(|p| p.emit(&mut w));
        let payload = w.len() - HEADER;
        match u16::try_from(payload) {
            Ok(len) => {
                w.overwrite_at(6, &len.to_be_bytes());
                Ok(())
            }
            Err(_) => {
                out.truncate(begin);
                Err(EncodeError::TooLong(payload))
            }
        }
    }
    /// Decodes a message that takes all the octets.
    ///
    /// # Errors
    /// The octets are not a message, or a mandatory parameter is missing. An acknowledgement without payload needs
    /// none.
    pub fn decode(octets: &[u8]) -> Result<DecodedMessage, DecodeError> {
        let mut error =
            DecodeError { fault: DecodeErrorKind::Fragment, header: None, source: None, destination: None };
        match read_message(octets, &mut error) {
            Ok(message) => match (error.header, error.source, error.destination) {
                (Some(header), Some(source), Some(destination)) => {
                    Ok(DecodedMessage { header, source, destination, message })
                }
                (header, source, destination) => Err(DecodeError {
                    fault: DecodeErrorKind::Order(kind::SOURCE),
                    header,
                    source,
                    destination,
                }),
            },
            Err(fault) => {
                error.fault = fault;
                Err(error)
            }
        }
    }
}

/// Returns the header and the payload of a message that takes all the octets.
pub(crate) fn split_header(octets: &[u8]) -> Result<(MihHeader, &[u8]), DecodeErrorKind> {
    let header = MihHeader::parse(octets)?;
    let payload = octets.get(HEADER..).unwrap_or_default();
    if payload.len() != usize::from(header.len) {
        return Err(DecodeErrorKind::Length {
            announced_octets: header.len.into(),
            present_octets: payload.len(),
        });
    }
    Ok((header, payload))
}

/// Reads the source or destination identifier, which must come next.
pub(crate) fn read_endpoint_id(r: &mut OctetReader<'_>, kind: u8) -> Result<MihfId, DecodeErrorKind> {
    if r.is_empty() {
        return Err(DecodeErrorKind::Order(kind));
    }
    let (found, value) = tlv::next_parameter(r).map_err(DecodeErrorKind::Parameter)?;
    match tlv::decode_parameter(found, value) {
        Ok(Tlv::Source(id)) if kind == kind::SOURCE => Ok(id),
        Ok(Tlv::Destination(id)) if kind == kind::DESTINATION => Ok(id),
        Err(e) if found == kind => Err(DecodeErrorKind::Value(kind, e)),
        _ => Err(DecodeErrorKind::Order(kind)),
    }
}

/// Reads a message, and stores the decoded fields in `error` on the way.
fn read_message(octets: &[u8], error: &mut DecodeError) -> Result<MihfMessage, DecodeErrorKind> {
    let header = MihHeader::parse(octets)?;
    error.header = Some(header);
    let (_, payload) = split_header(octets)?;
    if header.is_fragment() {
        return Err(DecodeErrorKind::Fragment);
    }
    let mut r = OctetReader::new(payload);
    error.source = Some(read_endpoint_id(&mut r, kind::SOURCE)?);
    error.destination = Some(read_endpoint_id(&mut r, kind::DESTINATION)?);
    let mandatory = header.id.mandatory().ok_or(DecodeErrorKind::Unknown(header.id))?;
    let mut params = Vec::new();
    while !r.is_empty() {
        if params.len() == MAX_PARAMETERS {
            return Err(DecodeErrorKind::TooMany);
        }
        let (kind, value) = tlv::next_parameter(&mut r).map_err(DecodeErrorKind::Parameter)?;
        if matches!(kind, kind::SOURCE | kind::DESTINATION) {
            return Err(DecodeErrorKind::Order(kind));
        }
        params.push(tlv::decode_parameter(kind, value).map_err(|e| DecodeErrorKind::Value(kind, e))?);
    }
    let message = MihfMessage { id: header.id, params };
    let bare = header.ack_rsp && message.params.is_empty();
    let failed =
        header.id.opcode == Opcode::Response && message.status().is_some_and(|s| s != Status::Success);
    match mandatory.iter().find(|kind| message.get(**kind).is_none()) {
        Some(kind) if !bare && !failed => Err(DecodeErrorKind::Missing(header.id, *kind)),
        _ => Ok(message),
    }
}

impl DecodedMessage {
    /// True for an acknowledgement without payload.
    pub fn is_acknowledgement(&self) -> bool {
        self.header.ack_rsp && self.message.params.is_empty()
    }
}

impl fmt::Display for MihfMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        for (i, param) in self.params.iter().enumerate() {
            write!(f, "{}{param}", if i == 0 { ": " } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for DecodedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} #{} {}", self.source, self.destination, self.header.transaction, self.message)?;
        for (on, name) in [(self.header.ack_req, " ACK-Req"), (self.header.ack_rsp, " ACK-Rsp")] {
            if on {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::SampleValue;
    use crate::{HandoverResult, LinkAddr, LinkId, LinkTupleId, LinkType, TargetNetwork};
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn endpoint_ids() -> (MihfId, MihfId) {
        (MihfId::new("mn").unwrap(), MihfId::new("pos1").unwrap())
    }

    fn encode_message(message: &MihfMessage, bits: HeaderFlags) -> Vec<u8> {
        let (source, destination) = endpoint_ids();
        let mut out = Vec::new();
        message.encode(bits, TransactionId::new(7), &source, &destination, &mut out).unwrap();
        out
    }

    fn commit_request() -> MihfMessage {
        let target = TargetNetwork::Poa(LinkAddr::Mac([2, 0, 0, 0, 0, 9]));
        let params = [Tlv::LinkType(LinkType::Ieee80216), Tlv::TargetNetwork(target)];
        MihfMessage::new(MessageId::MN_HO_COMMIT_REQUEST, params)
    }

    #[test]
    fn a_message_has_the_octets_of_the_dissector_s_rules() {
        let octets = [
            0x18, 0, 0x34, 0x07, 0, 7, 0, 28, 1, 3, 2, b'm', b'n', 2, 5, 4, b'p', b'o', b's', b'1', 4, 1, 27,
            55, 11, 1, 0, 0, 6, 6, 2, 0, 0, 0, 0, 9,
        ];
        assert_eq!(
            encode_message(&commit_request(), HeaderFlags { ack_req: true, ..HeaderFlags::default() }),
            octets
        );
        let decoded = MihfMessage::decode(&octets).unwrap();
        assert_eq!((&decoded.source, &decoded.destination), (&endpoint_ids().0, &endpoint_ids().1));
        assert_eq!(decoded.message, commit_request());
        let line = "mn > pos1 #7 MIH_MN_HO_Commit request: link type 802.16, target network info ACK-Req";
        assert_eq!(decoded.to_string(), line);
    }

    #[test]
    fn an_acknowledgement_carries_the_ends_alone() {
        let message = MihfMessage::acknowledgement(MessageId::MN_HO_COMMIT_REQUEST);
        let octets = encode_message(&message, HeaderFlags { ack_rsp: true, ..HeaderFlags::default() });
        assert_eq!(octets.len(), HEADER + 5 + 7);
        assert!(MihfMessage::decode(&octets).unwrap().is_acknowledgement());
        let unmarked = encode_message(&message, HeaderFlags::default());
        let missing = DecodeErrorKind::Missing(MessageId::MN_HO_COMMIT_REQUEST, kind::LINK_TYPE);
        let error = MihfMessage::decode(&unmarked).unwrap_err();
        assert_eq!((error.fault, error.response_status()), (missing, Some(Status::UnspecifiedFailure)));
    }

    #[test]
    fn a_response_that_is_no_success_may_carry_the_status_alone() {
        let response = |status| MihfMessage::new(MessageId::MN_HO_COMMIT_RESPONSE, [Tlv::Status(status)]);
        assert!(
            MihfMessage::decode(&encode_message(&response(Status::Rejected), HeaderFlags::default())).is_ok()
        );
        let error = MihfMessage::decode(&encode_message(&response(Status::Success), HeaderFlags::default()))
            .unwrap_err();
        assert_eq!(error.fault, DecodeErrorKind::Missing(MessageId::MN_HO_COMMIT_RESPONSE, kind::LINK_TYPE));
        assert_eq!(error.response_status(), None, "nothing answers a response");
    }

    #[test]
    fn identifiers_come_first_and_once() {
        let octets = encode_message(&commit_request(), HeaderFlags::default());
        let swapped = [&octets[..8], &octets[13..20], &octets[8..13], &octets[20..]].concat();
        let error = MihfMessage::decode(&swapped).unwrap_err();
        assert_eq!((error.fault, error.response_status()), (DecodeErrorKind::Order(kind::SOURCE), None));
        let mut doubled = [&octets[..], &octets[8..13]].concat();
        doubled[7] += 5;
        assert_eq!(MihfMessage::decode(&doubled).unwrap_err().fault, DecodeErrorKind::Order(kind::SOURCE));
        let mut alone = octets[..13].to_vec();
        alone[7] = 5;
        assert_eq!(MihfMessage::decode(&alone).unwrap_err().fault, DecodeErrorKind::Order(kind::DESTINATION));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_could_be_read() {
        let octets = encode_message(&commit_request(), HeaderFlags::default());
        let fault = |octets: &[u8]| MihfMessage::decode(octets).unwrap_err();
        assert!(matches!(fault(&octets[..7]).fault, DecodeErrorKind::Header(HeaderError::Truncated(_))));
        assert_eq!(
            fault(&octets[..30]).fault,
            DecodeErrorKind::Length { announced_octets: 28, present_octets: 22 }
        );
        assert_eq!(
            fault(&[&octets[..], &[0]].concat()).fault,
            DecodeErrorKind::Length { announced_octets: 28, present_octets: 29 }
        );
        let mut unknown = octets.clone();
        unknown[3] = 99;
        let error = fault(&unknown);
        assert_eq!(
            (error.response_status(), error.source.as_ref()),
            (Some(Status::Rejected), Some(&endpoint_ids().0))
        );
        assert_eq!(error.to_string(), "unknown message command action 99 request");
        let mut broken = octets.clone();
        broken[25] = 7;
        let error = fault(&broken);
        assert_eq!(error.fault, DecodeErrorKind::Value(kind::TARGET_NETWORK, ValueError::Choice(7)));
        assert_eq!(error.response_status(), Some(Status::UnspecifiedFailure));
        broken[24] = 12;
        assert!(matches!(fault(&broken).fault, DecodeErrorKind::Parameter(ValueError::Truncated(_))));
        let many = MihfMessage::new(commit_request().id, alloc::vec![Tlv::padding(0); MAX_PARAMETERS + 1]);
        assert_eq!(fault(&encode_message(&many, HeaderFlags::default())).fault, DecodeErrorKind::TooMany);
    }

    #[test]
    fn messages_longer_than_a_header_says_are_not_written() {
        let (source, destination) = endpoint_ids();
        let long = MihfMessage::new(commit_request().id, [Tlv::padding(65_520)]);
        let mut out = alloc::vec![1];
        let result =
            long.encode(HeaderFlags::default(), TransactionId::default(), &source, &destination, &mut out);
        assert_eq!((result, out), (Err(EncodeError::TooLong(65_536)), alloc::vec![1]));
    }

    #[test]
    fn messages_are_padded_to_any_size() {
        let (source, destination) = endpoint_ids();
        let least = commit_request().encoded_length(&source, &destination);
        assert_eq!(least, 36);
        for octets in (least..2000).chain([65_000, 65_543]) {
            let padded = commit_request().with_padding_to_length(octets, &source, &destination);
            if octets == least + 1 {
                assert_eq!(padded, Err(EncodeError::Padding { octets: least, target_length: octets }));
                continue;
            }
            let message = padded.unwrap();
            let encoded = encode_message(&message, HeaderFlags::default());
            assert_eq!(encoded.len(), octets);
            assert_eq!(MihfMessage::decode(&encoded).unwrap().message, message);
            assert!(message.params.len() <= commit_request().params.len() + 2);
        }
        assert!(commit_request().with_padding_to_length(20, &source, &destination).is_err());
    }

    fn parameter_strategies(kinds: &[u8]) -> Vec<BoxedStrategy<Tlv>> {
        kinds.iter().map(|kind| tlv::samples::of_kind(*kind)).collect()
    }

    fn any_message() -> impl Strategy<Value = MihfMessage> {
        let others = proptest::sample::subsequence(&kind::ALL[2..], 0..4);
        (proptest::sample::select(MessageId::ALL), others).prop_flat_map(|(id, others)| {
            let kinds = [id.mandatory().unwrap(), &others].concat();
            parameter_strategies(&kinds).prop_map(move |params| MihfMessage { id, params })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]
        #[test]
        fn messages_are_read_as_written(
            message in any_message(), bits: [bool; 3], transaction in 0u16..4096,
            source in MihfId::any_sample(), destination in MihfId::any_sample(),
        ) {
            let [ack_req, ack_rsp, uir] = bits;
            let transaction = TransactionId::new(transaction);
            let mut out = Vec::new();
            message.encode(HeaderFlags { ack_req, ack_rsp, uir }, transaction, &source, &destination, &mut out).unwrap();
            prop_assert_eq!(out.len(), message.encoded_length(&source, &destination));
            prop_assert!(crate::fuzz::check_message(&out));
            let decoded = MihfMessage::decode(&out).unwrap();
            prop_assert_eq!((decoded.header.ack_req, decoded.header.ack_rsp, decoded.header.uir), bits.into());
            prop_assert_eq!(decoded.header.transaction, transaction);
            prop_assert_eq!((decoded.source, decoded.destination), (source, destination));
            prop_assert_eq!(decoded.message, message);
        }
        #[test]
        fn damaged_messages_are_read_without_harm(
            message in any_message(), damage: Vec<(proptest::sample::Index, u8)>, cut: proptest::sample::Index,
        ) {
            let mut octets = encode_message(&message, HeaderFlags::default());
            for (at, octet) in damage.iter().take(4) {
                let at = at.index(octets.len());
                octets[at] = *octet;
            }
            prop_assert!(crate::fuzz::check_message(&octets));
            prop_assert!(crate::fuzz::check_message(&octets[..cut.index(octets.len())]));
        }
        #[test]
        fn each_mandatory_parameter_is_missed(message in any_message(), at: proptest::sample::Index) {
            let mandatory = message.id.mandatory().unwrap();
            if mandatory.is_empty() {
                return Ok(());
            }
            let mut message = message;
            for param in &mut message.params {
                if let Tlv::Status(status) = param {
                    *status = Status::Success;
                }
            }
            let kind = mandatory[at.index(mandatory.len())];
            let mut less = message.clone();
            less.params.retain(|p| p.kind() != kind);
            let fault = MihfMessage::decode(&encode_message(&less, HeaderFlags::default())).unwrap_err().fault;
            prop_assert_eq!(fault, DecodeErrorKind::Missing(message.id, kind));
        }
    }

    #[test]
    fn a_complete_says_how_it_ended() {
        let link = |technology| LinkTupleId { link: LinkId::from_mac(technology, [2; 6]), poa: None };
        let params = [
            Tlv::LinkIdentifier(link(LinkType::Ieee80211)),
            Tlv::NewLinkIdentifier(link(LinkType::Ieee80216)),
            Tlv::HandoverResult(HandoverResult::Success),
        ];
        let message = MihfMessage::new(MessageId::MN_HO_COMPLETE_REQUEST, params);
        assert_eq!(
            message.to_string(),
            "MIH_MN_HO_Complete request: link identifier 802.11 02:02:02:02:02:02, \
             new link identifier 802.16 02:02:02:02:02:02, handover result success"
        );
    }
}
