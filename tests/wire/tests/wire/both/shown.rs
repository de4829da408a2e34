//! What of a message is the same wherever the service runs: everything but what is named here.

use super::hosts::{Kind, Message};
use usher_diameter::message::MessageView;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::packet::Packet;

/// What stands in a message by its number: an attribute, or an AVP with its vendor.
type Number = (u32, u32);

/// A part that differs: whose messages of which kind have it, its number, and why.
pub(crate) struct Differs {
    pub(crate) who: &'static str,
    pub(crate) kind: Option<Kind>,
    pub(crate) number: Number,
    pub(crate) why: &'static str,
}

const fn radius(who: &'static str, number: u8, why: &'static str) -> Differs {
    Differs { who, kind: None, number: (number as u32, 0), why }
}

const fn diameter(number: u32, why: &'static str) -> Differs {
    Differs { who: "gateway", kind: Some(Kind::Diameter), number: (number, 0), why }
}

/// Who draws from the system's chance, or has the time of day from it, says what differs. What EAP packets hold is compared as
/// far as it is told and not drawn, as [`EAP`].
pub(crate) const DIFFERS: &[Differs] = &[
    radius("switch", kind::STATE, "the server draws the key that ties a login's rounds together"),
    radius("switch", kind::MESSAGE_AUTHENTICATOR, "a digest of all that is said"),
    radius("switch", kind::EAP_MESSAGE, "the server draws challenges, and TLS its keys"),
    radius("switch", kind::VENDOR_SPECIFIC, "keys of the login's TLS, hidden by what is drawn"),
    Differs {
        who: "home",
        kind: None,
        number: IDENTIFIER,
        why: "the server begins to number its requests at a drawn number",
    },
    radius("home", kind::PROXY_STATE, "the server draws by what it knows an answer again"),
    radius("home", kind::USER_PASSWORD, "hidden by the Request Authenticator, which the server draws"),
    radius("home", kind::MESSAGE_AUTHENTICATOR, "a digest of all that is said"),
    diameter(24, "State: the server draws the key that ties a login's rounds together"),
    diameter(EAP_PAYLOAD, "the server draws challenges, and TLS its keys"),
    diameter(464, "EAP-Master-Session-Key: of the login's TLS"),
];

/// The number of what is told of an EAP packet.
const EAP: Number = (0, 0);

/// The number of a RADIUS packet's Identifier.
const IDENTIFIER: Number = (0, 1);

/// A part of a message: its number, its length, and its value unless that differs.
pub(crate) type Part = (Number, usize, Option<Vec<u8>>);

/// All parts of a message with their values, in their order, behind its header as far as that is not drawn.
pub(crate) fn parts(message: &Message) -> (String, Vec<(Number, Vec<u8>)>) {
    let mut eap = Vec::new();
    let (header, mut parts) = match message.kind {
        Kind::Udp | Kind::Radsec => {
            let packet = Packet::parse(&message.bytes).unwrap();
            let header = format!("{} of {} octets", packet.code(), message.bytes.len());
            Attributes::from_wire(packet.attribute_bytes()).unwrap().eap(&mut eap);
            let parts = packet.attributes().map(|a| ((a.kind.into(), 0), a.value.to_vec()));
            (
                header,
                std::iter::once((IDENTIFIER, vec![packet.identifier()])).chain(parts).collect::<Vec<_>>(),
            )
        }
        Kind::Diameter => {
            let view = MessageView::parse(&message.bytes).unwrap();
            let parts = view.avps().map(|avp| ((avp.code, avp.vendor), avp.data.to_vec()));
            let parts: Vec<_> = parts.collect();
            let payload = parts.iter().find(|((code, _), _)| *code == EAP_PAYLOAD);
            eap.extend(payload.iter().flat_map(|(_, data)| data));
            (format!("{:?} of {} octets", view.header(), message.bytes.len()), parts)
        }
    };
    if !eap.is_empty() {
        // Code, identifier, length and type are not drawn; with EAP-TLS neither are the flags, and an identity is told.
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

/// Why a part of a message differs, if it does.
pub(crate) fn differs(message: &Message, number: Number) -> Option<usize> {
    let here = |d: &Differs| {
        d.who == message.who && d.number == number && d.kind.is_none_or(|kind| kind == message.kind)
    };
    DIFFERS.iter().position(here)
}

/// What is the same wherever the service runs.
pub(crate) fn shown(message: &Message) -> (String, Vec<Part>) {
    let (header, parts) = parts(message);
    let way = if message.sent { "sends" } else { "hears" };
    let header = format!("{} {way} by {:?}: {header}", message.who, message.kind);
    let part = |(number, value): (Number, Vec<u8>)| {
        (number, value.len(), differs(message, number).is_none().then_some(value))
    };
    (header, parts.into_iter().map(part).collect())
}
