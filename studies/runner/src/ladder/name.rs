//! Names messages as their standards do.

use super::packet::{SctpChunk, TcpSegment};
use std::sync::LazyLock;
use usher_core::OctetReader;
use usher_diameter::dictionary::DiameterDictionary;
use usher_diameter::{MessageView, codes};
use usher_eap::eapol::{self, EapolPacket, EapolPacketType};
use usher_eap::packet as eap;
use usher_ike::code::PayloadType;
use usher_nas::ETHERTYPE_PKM;
use usher_ppp::packet::{ControlPacket, PppProtocol};
use usher_ppp::pppoe;
use usher_radius::attribute::kind;

/// The name of a message and its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MessageLabel {
    pub(super) protocol: &'static str,
    pub(super) name: String,
    pub(super) owner: MessageOwner,
}

/// The owner of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MessageOwner {
    /// Data without a name of its own, of any user.
    Data,
    /// The two peers themselves.
    Peers,
    /// This user; the message comes from the user's access network.
    User(Vec<u8>),
    /// The user of a RADIUS request or of the request that this reply answers.
    Radius { request: bool, identifier: u8, user: Option<Vec<u8>> },
    /// The user of the session of a Diameter request, or of the request that this answer belongs to.
    Diameter { request: bool, hop: u32, session: Option<Vec<u8>>, user: Option<Vec<u8>> },
}

impl MessageLabel {
    pub(super) fn data_message_label(protocol: &'static str) -> Self {
        Self { protocol, name: "data".to_owned(), owner: MessageOwner::Data }
    }
    pub(super) fn peer_message_label(protocol: &'static str, name: impl Into<String>) -> Self {
        Self { protocol, name: name.into(), owner: MessageOwner::Peers }
    }
}

/// A protocol over streams and datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ApplicationProtocol {
    Radius,
    RadSec,
    Diameter,
    Mih,
    Mip,
    Ike,
    Ident,
}

impl ApplicationProtocol {
    /// Returns the protocol by the port of either side.
    pub(super) fn from_ports(ports: [u16; 2]) -> Option<Self> {
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

    /// Returns the length of the message at the beginning of a stream, in octets; `None` if it is not known yet.
    pub(super) fn message_length(self, octets: &[u8]) -> Option<usize> {
        match self {
            Self::Diameter => match octets {
                [1, a, b, c, ..] => Some(u32::from_be_bytes([0, *a, *b, *c]) as usize).filter(|n| *n >= 20),
                _ => None,
            },
            Self::Mih => usher_mih::MihHeader::message_length(octets),
            Self::RadSec => match octets {
                [20..=23, 3, _, a, b, ..] => Some(5 + usize::from(u16::from_be_bytes([*a, *b]))),
                _ => None,
            },
            Self::Ident => octets.iter().position(|o| *o == b'\n').map(|end| end + 1),
            Self::Radius | Self::Mip | Self::Ike => None,
        }
    }

    /// Returns the name of a message or of its available part; `None` if it is not of this protocol.
    pub(super) fn name_message(self, ports: [u16; 2], octets: &[u8]) -> Option<MessageLabel> {
        match self {
            Self::Radius => name_radius(octets),
            Self::RadSec => Some(name_tls_record(octets)),
            Self::Diameter => name_diameter(octets),
            Self::Mih => name_mih(octets),
            Self::Mip => name_mip(octets),
            Self::Ike => name_ike(ports, octets),
            Self::Ident => {
                let query = Self::from_ports([0, ports[1]]) == Some(Self::Ident);
                Some(MessageLabel::peer_message_label("IDENT", if query { "query" } else { "reply" }))
            }
        }
    }
}

/// Names a UDP datagram.
pub(super) fn name_datagram(ports: [u16; 2], payload: &[u8]) -> MessageLabel {
    ApplicationProtocol::from_ports(ports)
        .and_then(|carried| carried.name_message(ports, payload))
        .unwrap_or_else(|| MessageLabel::data_message_label("UDP"))
}

/// Names a TCP control segment; `None` for a pure acknowledgement.
pub(super) fn name_tcp_control(segment: &TcpSegment<'_>) -> Option<MessageLabel> {
    let of = |flag| segment.flags & flag != 0;
    let name = match () {
        () if of(TcpSegment::SYN) && of(TcpSegment::ACK) => "SYN-ACK",
        () if of(TcpSegment::SYN) => "SYN",
        () if of(TcpSegment::RST) => "RST",
        () if of(TcpSegment::FIN) => "FIN",
        () => return None,
    };
    Some(MessageLabel { name: name.to_owned(), ..MessageLabel::data_message_label("TCP") })
}

/// Names an SCTP control chunk; `None` if it carries data or only acknowledges.
pub(super) fn name_sctp_control(chunk: &SctpChunk<'_>) -> Option<MessageLabel> {
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
    Some(MessageLabel { name: name.to_owned(), ..MessageLabel::data_message_label("SCTP") })
}

/// Names a frame whose EtherType is neither IP nor PPPoE.
pub(super) fn label_link_frame(ethertype: u16, payload: &[u8]) -> Option<MessageLabel> {
    match ethertype {
        eapol::ETHERTYPE => {
            let said = EapolPacket::parse(payload).ok()?;
            if said.kind == EapolPacketType::EapPacket {
                return Some(name_access_eap_packet("EAPOL", None, said.body));
            }
            Some(MessageLabel::peer_message_label("EAPOL", format!("EAPOL-{:?}", said.kind)))
        }
        ETHERTYPE_PKM => {
            let said = usher_pkm::PkmMessage::parse(payload).ok()?;
            let code = said.code().to_string();
            Some(match said.eap_packet() {
                Some(packet) => name_access_eap_packet("PKMv2", Some(code), packet),
                None => MessageLabel::peer_message_label("PKMv2", code),
            })
        }
        _ => None,
    }
}

/// Names an EAP packet of the access network within a message of this name.
fn name_access_eap_packet(protocol: &'static str, within: Option<String>, packet: &[u8]) -> MessageLabel {
    let (said, user) = match eap::EapPacket::parse(packet) {
        Ok(said) => (eap_name(&said), eap_identity(&said)),
        Err(_) => ("EAP".to_owned(), None),
    };
    let name = within.map_or_else(|| said.clone(), |within| format!("{within} ({said})"));
    MessageLabel { protocol, name, owner: user.map_or(MessageOwner::Peers, MessageOwner::User) }
}

fn eap_identity(packet: &eap::EapPacket<'_>) -> Option<Vec<u8>> {
    let is = packet.code() == eap::EapCode::Response && packet.kind() == Some(eap::EapType::IDENTITY);
    is.then(|| packet.data().to_vec())
}

fn eap_name(packet: &eap::EapPacket<'_>) -> String {
    match packet.kind() {
        Some(kind) => format!("EAP-{:?}/{kind}", packet.code()),
        None => format!("EAP-{:?}", packet.code()),
    }
}

/// Returns the name of an EAP packet in parentheses, to append to another name; empty if it is not EAP.
fn with_eap(packet: &[u8]) -> String {
    eap::EapPacket::parse(packet).map_or_else(|_| String::new(), |packet| format!(" ({})", eap_name(&packet)))
}

fn name_radius(octets: &[u8]) -> Option<MessageLabel> {
    let code = usher_radius::PacketCode(*octets.first()?);
    let mut name = code.name()?.to_owned();
    let identifier = *octets.get(1)?;
    let mut user = None;
    if let Ok(packet) = usher_radius::RadiusPacket::parse(octets) {
        user = packet.get(kind::USER_NAME).map(<[u8]>::to_vec);
        let eap: Vec<u8> = packet
            .attributes()
            .filter(|attribute| attribute.kind == kind::EAP_MESSAGE)
            .flat_map(|attribute| attribute.value.iter().copied())
            .collect();
        name.push_str(&with_eap(&eap));
        if let Some([0, 0, 0, status]) = packet.get(kind::ACCT_STATUS_TYPE) {
            name.push_str(accounting_record_suffix(u32::from(*status), [1, 3, 2]));
        }
    }
    Some(MessageLabel {
        protocol: "RADIUS",
        name,
        owner: MessageOwner::Radius { request: code.is_request(), identifier, user },
    })
}

/// Returns the kind of an accounting record by the protocol's numbers for start, interim and stop.
fn accounting_record_suffix(number: u32, [start, interim, stop]: [u32; 3]) -> &'static str {
    match number {
        n if n == start => " (Start)",
        n if n == interim => " (Interim)",
        n if n == stop => " (Stop)",
        _ => "",
    }
}

fn name_diameter(octets: &[u8]) -> Option<MessageLabel> {
    static DICTIONARY: LazyLock<DiameterDictionary> = LazyLock::new(DiameterDictionary::builtin);
    let header = MessageView::parse_message_header(octets)?;
    let request = header.flags.is_request();
    let command = DICTIONARY
        .command_by_code(header.command)
        .map_or_else(|| header.command.to_string(), |c| c.name.clone());
    let mut name = format!("{command}-{}", if request { "Request" } else { "Answer" });
    let (mut session, mut user) = (None, None);
    if let Ok(message) = MessageView::parse(octets) {
        let of = |id| message.avps().get(id).map(|avp| avp.data.to_vec());
        (session, user) = (of(codes::SESSION_ID), of(codes::USER_NAME));
        if let Some(payload) = of(codes::EAP_PAYLOAD) {
            name.push_str(&with_eap(&payload));
        }
        if let Some(kind) =
            message.avps().get(codes::ACCOUNTING_RECORD_TYPE).and_then(|avp| avp.as_u32().ok())
        {
            name.push_str(accounting_record_suffix(kind, [2, 3, 4]));
        }
    }
    let hop = header.hop_by_hop;
    let base = session.is_none() && user.is_none() && header.application == codes::application::BASE;
    let who = if base { MessageOwner::Data } else { MessageOwner::Diameter { request, hop, session, user } };
    Some(MessageLabel { protocol: "Diameter", name, owner: who })
}

fn name_mih(octets: &[u8]) -> Option<MessageLabel> {
    let header = usher_mih::MihHeader::parse(octets).ok()?;
    let name = match header.id.name() {
        Some(name) => format!("{name}.{}", header.id.opcode),
        None => header.id.to_string(),
    };
    let acknowledgement =
        usher_mih::MihfMessage::decode(octets).is_ok_and(|decoded| decoded.is_acknowledgement());
    let name = match () {
        () if acknowledgement => format!("acknowledgement of {name}"),
        () if header.is_fragment() => format!("{name} (fragment {})", header.fragment + 1),
        () => name,
    };
    Some(MessageLabel::peer_message_label("MIH", name))
}

fn name_mip(octets: &[u8]) -> Option<MessageLabel> {
    let name = match usher_mip::MobilityPacket::parse(octets).ok()?.message {
        usher_mip::MobilityMessage::Update(_) => "Binding Update",
        usher_mip::MobilityMessage::Acknowledgement(_) => "Binding Acknowledgement",
    };
    Some(MessageLabel::peer_message_label("Mobile IPv6", name))
}

fn name_ike(ports: [u16; 2], octets: &[u8]) -> Option<MessageLabel> {
    let octets = match ports.contains(&4500) {
        true => match octets.strip_prefix(&usher_ike::NON_ESP_MARKER) {
            Some(message) => message,
            None => return Some(MessageLabel::data_message_label("ESP")),
        },
        false => octets,
    };
    let (header, first, _) = usher_ike::IkeHeader::parse(&mut OctetReader::new(octets)).ok()?;
    let fragment = if first == PayloadType::SKF { " (fragment)" } else { "" };
    Some(MessageLabel::peer_message_label("IKEv2", format!("{header}{fragment}")))
}

/// Names a TLS record by its content type (RFC 8446 §5.1).
fn name_tls_record(octets: &[u8]) -> MessageLabel {
    let name = match octets {
        [22, _, _, _, _, 1, ..] => "ClientHello",
        [22, _, _, _, _, 2, ..] => "ServerHello",
        [22, ..] => "handshake",
        [21, ..] => "alert",
        [20, ..] => "change_cipher_spec",
        _ => "application data",
    };
    MessageLabel::peer_message_label("TLS", name)
}

/// Names a PPPoE frame that carries no IP packet.
pub(super) fn name_pppoe(frame: &pppoe::PppoeFrame<'_>) -> MessageLabel {
    if frame.code != pppoe::PppoeCode::SESSION {
        return MessageLabel::peer_message_label("PPPoE", frame.code.to_string());
    }
    let Some((protocol, packet)) = PppProtocol::split_packet(frame.payload) else {
        return MessageLabel::data_message_label("PPP");
    };
    match protocol {
        PppProtocol::EAP => name_access_eap_packet("PPP", None, packet),
        PppProtocol::PAP | PppProtocol::CHAP => name_ppp_authentication(protocol, packet),
        protocol => match ControlPacket::parse(packet) {
            Ok(control) => MessageLabel::peer_message_label("PPP", format!("{protocol} {}", control.code)),
            Err(_) => MessageLabel::data_message_label("PPP"),
        },
    }
}

/// Names PAP (RFC 1334 §2) and CHAP (RFC 1994 §4) packets, which have codes of their own.
fn name_ppp_authentication(protocol: PppProtocol, packet: &[u8]) -> MessageLabel {
    let Ok(said) = ControlPacket::parse(packet) else { return MessageLabel::data_message_label("PPP") };
    let names: [&str; 4] = match protocol {
        PppProtocol::PAP => ["Authenticate-Request", "Authenticate-Ack", "Authenticate-Nak", ""],
        _ => ["Challenge", "Response", "Success", "Failure"],
    };
    let name =
        usize::from(said.code.0).checked_sub(1).and_then(|n| names.get(n)).copied().unwrap_or_default();
    let behind = |length: u8| said.data.get(1 + usize::from(length)..).unwrap_or_default();
    let user = match (protocol, name, said.data) {
        (PppProtocol::PAP, "Authenticate-Request", [length, rest @ ..]) => rest.get(..usize::from(*length)),
        (PppProtocol::CHAP, "Response", [length, ..]) => Some(behind(*length)),
        _ => None,
    };
    let who = user.map_or(MessageOwner::Peers, |user| MessageOwner::User(user.to_vec()));
    MessageLabel { protocol: "PPP", name: format!("{protocol} {name}").trim_end().to_owned(), owner: who }
}
