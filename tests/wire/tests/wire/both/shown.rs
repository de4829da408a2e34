//! The comparable parts of a message: everything except the listed differences.

use super::hosts::{MessageKind, ObservedMessage};
use usher_diameter::message::MessageView;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::RadiusPacket;

/// The number of a message's part: an attribute, or an AVP with its vendor.
type PartNumber = (u32, u32);

/// A part that differs: the peer and kind of its messages, its number, and the reason.
pub(crate) struct ExpectedDifference {
    pub(crate) machine_name: &'static str,
    pub(crate) kind: Option<MessageKind>,
    pub(crate) number: PartNumber,
    pub(crate) why: &'static str,
}

const fn radius_difference(who: &'static str, number: u8, why: &'static str) -> ExpectedDifference {
    ExpectedDifference { machine_name: who, kind: None, number: (number as u32, 0), why }
}

const fn diameter_difference(number: u32, why: &'static str) -> ExpectedDifference {
    ExpectedDifference {
        machine_name: "gateway",
        kind: Some(MessageKind::Diameter),
        number: (number, 0),
        why,
    }
}

/// The differences: parts that are random or depend on the time. The fixed parts of EAP packets are compared, as
/// [`EAP`].
pub(crate) const DIFFERS: &[ExpectedDifference] = &[
    radius_difference("switch", kind::STATE, "the server draws the key that ties a login's rounds together"),
    radius_difference("switch", kind::MESSAGE_AUTHENTICATOR, "a digest of all that is said"),
    radius_difference("switch", kind::EAP_MESSAGE, "the server draws challenges, and TLS its keys"),
    radius_difference("switch", kind::VENDOR_SPECIFIC, "keys of the login's TLS, hidden by what is drawn"),
    ExpectedDifference {
        machine_name: "home",
        kind: None,
        number: IDENTIFIER,
        why: "the server begins to number its requests at a drawn number",
    },
    radius_difference("home", kind::PROXY_STATE, "the server draws by what it knows an answer again"),
    radius_difference(
        "home",
        kind::USER_PASSWORD,
        "hidden by the Request Authenticator, which the server draws",
    ),
    radius_difference("home", kind::MESSAGE_AUTHENTICATOR, "a digest of all that is said"),
    diameter_difference(24, "State: the server draws the key that ties a login's rounds together"),
    diameter_difference(EAP_PAYLOAD, "the server draws challenges, and TLS its keys"),
    diameter_difference(464, "EAP-Master-Session-Key: of the login's TLS"),
];

/// The number of the fixed part of an EAP packet.
const EAP: PartNumber = (0, 0);

/// The number of a RADIUS packet's Identifier.
const IDENTIFIER: PartNumber = (0, 1);

/// A part of a message: its number, its length, and its value unless that differs.
pub(crate) type MessagePart = (PartNumber, usize, Option<Vec<u8>>);

/// Returns all parts of a message in order, after the fixed part of its header.
pub(crate) fn message_parts(message: &ObservedMessage) -> (String, Vec<(PartNumber, Vec<u8>)>) {
    let mut eap = Vec::new();
    let (header, mut parts) = match message.kind {
        MessageKind::Udp | MessageKind::Radsec => {
            let packet = RadiusPacket::parse(&message.bytes).unwrap();
            let header = format!("{} of {} octets", packet.code(), message.bytes.len());
            AttributeList::parse_attribute_list(packet.attribute_bytes()).unwrap().read_eap_packet(&mut eap);
            let parts = packet.attributes().map(|a| ((a.kind.into(), 0), a.value.to_vec()));
            (
                header,
                std::iter::once((IDENTIFIER, vec![packet.identifier()])).chain(parts).collect::<Vec<_>>(),
            )
        }
        MessageKind::Diameter => {
            let view = MessageView::parse(&message.bytes).unwrap();
            let parts = view.avps().map(|avp| ((avp.code, avp.vendor), avp.data.to_vec()));
            let parts: Vec<_> = parts.collect();
            let payload = parts.iter().find(|((code, _), _)| *code == EAP_PAYLOAD);
            eap.extend(payload.iter().flat_map(|(_, data)| data));
            (format!("{:?} of {} octets", view.header(), message.bytes.len()), parts)
        }
    };
    if !eap.is_empty() {
        // Code, identifier, length and type are fixed. So are EAP-TLS's flags and an identity.
        let told = match eap.get(4) {
            Some(4 | 13) => 6,
            _ => eap.len(),
        };
        parts.push((EAP, eap[..told].to_vec()));
    }
    (header, parts)
}

/// EAP-Payload (RFC 4072 §4.1.1).
const EAP_PAYLOAD: u32 = 462;

/// Returns the index of the difference that covers a part, if any.
pub(crate) fn difference_index(message: &ObservedMessage, number: PartNumber) -> Option<usize> {
    let here = |d: &ExpectedDifference| {
        d.machine_name == message.machine_name
            && d.number == number
            && d.kind.is_none_or(|kind| kind == message.kind)
    };
    DIFFERS.iter().position(here)
}

/// Returns the comparable parts of a message.
pub(crate) fn comparable_parts(message: &ObservedMessage) -> (String, Vec<MessagePart>) {
    let (header, parts) = message_parts(message);
    let way = if message.sent { "sends" } else { "hears" };
    let header = format!("{} {way} by {:?}: {header}", message.machine_name, message.kind);
    let part = |(number, value): (PartNumber, Vec<u8>)| {
        (number, value.len(), difference_index(message, number).is_none().then_some(value))
    };
    (header, parts.into_iter().map(part).collect())
}
