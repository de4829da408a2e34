//! Messages by the names that their standards give them.

use super::packet::{Chunk, Segment};
use std::sync::LazyLock;
use usher_core::Reader;
use usher_diameter::dictionary::Dictionary;
use usher_diameter::{MessageView, codes};
use usher_eap::eapol::{self, Eapol, PacketType};
use usher_eap::packet as eap;
use usher_ike::code::PayloadType;
use usher_nas::ETHERTYPE_PKM;
use usher_ppp::packet::{Packet as Control, Protocol};
use usher_ppp::pppoe;
use usher_radius::attribute::kind;

/// What a message is called, and whose it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named {
    /// The protocol's name.
    pub(super) protocol: &'static str,
    /// The message's name.
    pub(super) name: String,
    pub(super) who: Who,
}

/// Whose a message is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Who {
    /// Data of whoever it may be: it has no name of its own.
    Data,
    /// Of the two that speak.
    Peers,
    /// Of this user, whose access network it comes from.
    User(Vec<u8>),
    /// Of the user of a RADIUS request, or of what it answers.
    Radius { request: bool, identifier: u8, user: Option<Vec<u8>> },
    /// Of the user of a Diameter request's session, or of what it answers.
    Diameter { request: bool, hop: u32, session: Option<Vec<u8>>, user: Option<Vec<u8>> },
}

impl Named {
    pub(super) fn data(protocol: &'static str) -> Self {
        Self { protocol, name: "data".to_owned(), who: Who::Data }
    }
    pub(super) fn of(protocol: &'static str, name: impl Into<String>) -> Self {
        Self { protocol, name: name.into(), who: Who::Peers }
    }
}

/// A protocol that streams and datagrams carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Carried {
    Radius,
    RadSec,
    Diameter,
    Mih,
    Mip,
    Ike,
    Ident,
}

impl Carried {
    /// By the port of either side.
    pub(super) fn of(ports: [u16; 2]) -> Option<Self> {
        let known = |port| {
            Some(match port {
                1812 | 1813 | 3799 => Self::Radius,
                usher_radius::radsec::PORT => Self::RadSec,
                3868 | 5868 => Self::Diameter,
                usher_mih::PORT => Self::Mih,
                usher_mip::PORT => Self::Mip,
                500 | 4500 => Self::Ike,
                usher_ident::PORT => Self::Ident,
                _ => return None,
            })
        };
        let [source, destination] = ports;
        known(destination).or_else(|| known(source))
    }

    /// How many octets of a stream the message at its beginning takes; nothing where that cannot be said yet.
    pub(super) fn extent(self, octets: &[u8]) -> Option<usize> {
        match self {
            Self::Diameter => match octets {
                [1, a, b, c, ..] => Some(u32::from_be_bytes([0, *a, *b, *c]) as usize).filter(|n| *n >= 20),
                _ => None,
            },
            Self::Mih => usher_mih::Header::extent(octets),
            Self::RadSec => match octets {
                [20..=23, 3, _, a, b, ..] => Some(5 + usize::from(u16::from_be_bytes([*a, *b]))),
                _ => None,
            },
            Self::Ident => octets.iter().position(|o| *o == b'\n').map(|end| end + 1),
            Self::Radius | Self::Mip | Self::Ike => None,
        }
    }

    /// The name of a message, or of the part of one that is there; nothing where it is none of this protocol.
    pub(super) fn name(self, ports: [u16; 2], octets: &[u8]) -> Option<Named> {
        match self {
            Self::Radius => radius(octets),
            Self::RadSec => Some(tls(octets)),
            Self::Diameter => diameter(octets),
            Self::Mih => mih(octets),
            Self::Mip => mip(octets),
            Self::Ike => ike(ports, octets),
            Self::Ident => {
                let query = Self::of([0, ports[1]]) == Some(Self::Ident);
                Some(Named::of("IDENT", if query { "query" } else { "reply" }))
            }
        }
    }
}

/// A datagram of UDP.
pub(super) fn datagram(ports: [u16; 2], payload: &[u8]) -> Named {
    Carried::of(ports).and_then(|carried| carried.name(ports, payload)).unwrap_or_else(|| Named::data("UDP"))
}

/// What a segment of TCP does for its connection; nothing where it only acknowledges.
pub(super) fn control(segment: &Segment<'_>) -> Option<Named> {
    let of = |flag| segment.flags & flag != 0;
    let name = match () {
        () if of(Segment::SYN) && of(Segment::ACK) => "SYN-ACK",
        () if of(Segment::SYN) => "SYN",
        () if of(Segment::RST) => "RST",
        () if of(Segment::FIN) => "FIN",
        () => return None,
    };
    Some(Named { name: name.to_owned(), ..Named::data("TCP") })
}

/// What a chunk of SCTP does for its association; nothing where it carries data or only acknowledges.
pub(super) fn association(chunk: &Chunk<'_>) -> Option<Named> {
    let name = match chunk.kind {
        1 => "INIT",
        2 => "INIT ACK",
        6 => "ABORT",
        7 => "SHUTDOWN",
        8 => "SHUTDOWN ACK",
        10 => "COOKIE ECHO",
        11 => "COOKIE ACK",
        14 => "SHUTDOWN COMPLETE",
        _ => return None,
    };
    Some(Named { name: name.to_owned(), ..Named::data("SCTP") })
}

/// A frame of another EtherType than those of IP and PPPoE.
pub(super) fn frame(ethertype: u16, payload: &[u8]) -> Option<Named> {
    match ethertype {
        eapol::ETHERTYPE => {
            let said = Eapol::parse(payload).ok()?;
            if said.kind == PacketType::EapPacket {
                return Some(in_access("EAPOL", None, said.body));
            }
            Some(Named::of("EAPOL", format!("EAPOL-{:?}", said.kind)))
        }
        ETHERTYPE_PKM => {
            let said = usher_pkm::Message::parse(payload).ok()?;
            let code = said.code().to_string();
            Some(match said.eap() {
                Some(packet) => in_access("PKMv2", Some(code), packet),
                None => Named::of("PKMv2", code),
            })
        }
        _ => None,
    }
}

/// An EAP packet of the access network, within a message of this name.
fn in_access(protocol: &'static str, within: Option<String>, packet: &[u8]) -> Named {
    let (said, user) = match eap::Packet::parse(packet) {
        Ok(said) => (eap_name(&said), identity(&said)),
        Err(_) => ("EAP".to_owned(), None),
    };
    let name = within.map_or_else(|| said.clone(), |within| format!("{within} ({said})"));
    Named { protocol, name, who: user.map_or(Who::Peers, Who::User) }
}

fn identity(packet: &eap::Packet<'_>) -> Option<Vec<u8>> {
    let is = packet.code() == eap::Code::Response && packet.kind() == Some(eap::Type::IDENTITY);
    is.then(|| packet.data().to_vec())
}

fn eap_name(packet: &eap::Packet<'_>) -> String {
    match packet.kind() {
        Some(kind) => format!("EAP-{:?}/{kind}", packet.code()),
        None => format!("EAP-{:?}", packet.code()),
    }
}

/// The name of an EAP packet in parentheses behind another; nothing where it is none.
fn with_eap(packet: &[u8]) -> String {
    eap::Packet::parse(packet).map_or_else(|_| String::new(), |packet| format!(" ({})", eap_name(&packet)))
}

fn radius(octets: &[u8]) -> Option<Named> {
    let code = usher_radius::Code(*octets.first()?);
    let mut name = code.name()?.to_owned();
    let identifier = *octets.get(1)?;
    let mut user = None;
    if let Ok(packet) = usher_radius::Packet::parse(octets) {
        user = packet.get(kind::USER_NAME).map(<[u8]>::to_vec);
        let eap: Vec<u8> = packet
            .attributes()
            .filter(|attribute| attribute.kind == kind::EAP_MESSAGE)
            .flat_map(|attribute| attribute.value.iter().copied())
            .collect();
        name.push_str(&with_eap(&eap));
        if let Some([0, 0, 0, status]) = packet.get(kind::ACCT_STATUS_TYPE) {
            name.push_str(record(u32::from(*status), [1, 3, 2]));
        }
    }
    Some(Named {
        protocol: "RADIUS",
        name,
        who: Who::Radius { request: code.is_request(), identifier, user },
    })
}

/// What a record of accounting is of, by the protocol's numbers of the beginning, of one between, and of the end.
fn record(number: u32, [start, interim, stop]: [u32; 3]) -> &'static str {
    match number {
        n if n == start => " (Start)",
        n if n == interim => " (Interim)",
        n if n == stop => " (Stop)",
        _ => "",
    }
}

fn diameter(octets: &[u8]) -> Option<Named> {
    static DICTIONARY: LazyLock<Dictionary> = LazyLock::new(Dictionary::base);
    let header = MessageView::header_of(octets)?;
    let request = header.flags.is_request();
    let command =
        DICTIONARY.command(header.command).map_or_else(|| header.command.to_string(), |c| c.name.clone());
    let mut name = format!("{command}-{}", if request { "Request" } else { "Answer" });
    let (mut session, mut user) = (None, None);
    if let Ok(message) = MessageView::parse(octets) {
        let of = |id| message.avps().get(id).map(|avp| avp.data.to_vec());
        (session, user) = (of(codes::SESSION_ID), of(codes::USER_NAME));
        if let Some(payload) = of(codes::EAP_PAYLOAD) {
            name.push_str(&with_eap(&payload));
        }
        if let Some(kind) = message.avps().get(codes::ACCOUNTING_RECORD_TYPE).and_then(|avp| avp.u32().ok()) {
            name.push_str(record(kind, [2, 3, 4]));
        }
    }
    let hop = header.hop_by_hop;
    let base = session.is_none() && user.is_none() && header.application == codes::application::BASE;
    let who = if base { Who::Data } else { Who::Diameter { request, hop, session, user } };
    Some(Named { protocol: "Diameter", name, who })
}

fn mih(octets: &[u8]) -> Option<Named> {
    let header = usher_mih::Header::parse(octets).ok()?;
    let name = match header.id.name() {
        Some(name) => format!("{name}.{}", header.id.opcode),
        None => header.id.to_string(),
    };
    let acknowledgement =
        usher_mih::Message::decode(octets).is_ok_and(|decoded| decoded.is_acknowledgement());
    let name = match () {
        () if acknowledgement => format!("acknowledgement of {name}"),
        () if header.is_fragment() => format!("{name} (fragment {})", header.fragment + 1),
        () => name,
    };
    Some(Named::of("MIH", name))
}

fn mip(octets: &[u8]) -> Option<Named> {
    let name = match usher_mip::Packet::parse(octets).ok()?.message {
        usher_mip::Message::Update(_) => "Binding Update",
        usher_mip::Message::Acknowledgement(_) => "Binding Acknowledgement",
    };
    Some(Named::of("Mobile IPv6", name))
}

fn ike(ports: [u16; 2], octets: &[u8]) -> Option<Named> {
    let octets = match ports.contains(&4500) {
        true => match octets.strip_prefix(&usher_ike::NON_ESP_MARKER) {
            Some(message) => message,
            None => return Some(Named::data("ESP")),
        },
        false => octets,
    };
    let (header, first, _) = usher_ike::Header::parse(&mut Reader::new(octets)).ok()?;
    let fragment = if first == PayloadType::SKF { " (fragment)" } else { "" };
    Some(Named::of("IKEv2", format!("{header}{fragment}")))
}

/// A record of TLS, by its content type (RFC 8446 §5.1).
fn tls(octets: &[u8]) -> Named {
    let name = match octets {
        [22, _, _, _, _, 1, ..] => "ClientHello",
        [22, _, _, _, _, 2, ..] => "ServerHello",
        [22, ..] => "handshake",
        [21, ..] => "alert",
        [20, ..] => "change_cipher_spec",
        _ => "application data",
    };
    Named::of("TLS", name)
}

/// A frame of PPPoE that carries no packet of IP.
pub(super) fn pppoe(frame: &pppoe::Frame<'_>) -> Named {
    if frame.code != pppoe::Code::SESSION {
        return Named::of("PPPoE", frame.code.to_string());
    }
    let Some((protocol, packet)) = Protocol::split(frame.payload) else { return Named::data("PPP") };
    match protocol {
        Protocol::EAP => in_access("PPP", None, packet),
        Protocol::PAP | Protocol::CHAP => authentication(protocol, packet),
        protocol => match Control::parse(packet) {
            Ok(control) => Named::of("PPP", format!("{protocol} {}", control.code)),
            Err(_) => Named::data("PPP"),
        },
    }
}

/// PAP (RFC 1334 §2) and CHAP (RFC 1994 §4), whose codes are of their own.
fn authentication(protocol: Protocol, packet: &[u8]) -> Named {
    let Ok(said) = Control::parse(packet) else { return Named::data("PPP") };
    let names: [&str; 4] = match protocol {
        Protocol::PAP => ["Authenticate-Request", "Authenticate-Ack", "Authenticate-Nak", ""],
        _ => ["Challenge", "Response", "Success", "Failure"],
    };
    let name =
        usize::from(said.code.0).checked_sub(1).and_then(|n| names.get(n)).copied().unwrap_or_default();
    let behind = |length: u8| said.data.get(1 + usize::from(length)..).unwrap_or_default();
    let user = match (protocol, name, said.data) {
        (Protocol::PAP, "Authenticate-Request", [length, rest @ ..]) => rest.get(..usize::from(*length)),
        (Protocol::CHAP, "Response", [length, ..]) => Some(behind(*length)),
        _ => None,
    };
    let who = user.map_or(Who::Peers, |user| Who::User(user.to_vec()));
    Named { protocol: "PPP", name: format!("{protocol} {name}").trim_end().to_owned(), who }
}
