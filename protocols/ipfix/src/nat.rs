//! Records of address translation (RFC 8158 §4.6). To the elements that the RFC names come two that say whose an address is: the
//! subscriber's name and the address of its station.

use crate::template::{Template, TemplateField, VARIABLE, write_variable};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use usher_core::WallTime;

/// Octets of a subscriber's name that are told, at most: that of RADIUS has no more (RFC 2865 §5.1).
const NAME: usize = 253;

const fn fixed_field(element: u16, length: u16) -> TemplateField {
    TemplateField { element, length }
}

// Numbers of RFC 8158 table 1; sourceMacAddress and userName are of IANA's registry alone.
const OBSERVATION_TIME_MILLISECONDS: TemplateField = fixed_field(323, 8);
const NAT_EVENT: TemplateField = fixed_field(230, 1);
const SOURCE_IPV4_ADDRESS: TemplateField = fixed_field(8, 4);
const POST_NAT_SOURCE_IPV4_ADDRESS: TemplateField = fixed_field(225, 4);
const PROTOCOL_IDENTIFIER: TemplateField = fixed_field(4, 1);
const SOURCE_TRANSPORT_PORT: TemplateField = fixed_field(7, 2);
const POST_NAPT_SOURCE_TRANSPORT_PORT: TemplateField = fixed_field(227, 2);
const PORT_RANGE_START: TemplateField = fixed_field(361, 2);
const PORT_RANGE_END: TemplateField = fixed_field(362, 2);
const SOURCE_MAC_ADDRESS: TemplateField = fixed_field(56, 6);
const USER_NAME: TemplateField = fixed_field(371, VARIABLE);

/// Table 5, without destinations, which should not be logged (§4.1).
const SESSION: Template = Template {
    id: 256,
    fields: &[
        OBSERVATION_TIME_MILLISECONDS,
        NAT_EVENT,
        SOURCE_IPV4_ADDRESS,
        POST_NAT_SOURCE_IPV4_ADDRESS,
        PROTOCOL_IDENTIFIER,
        SOURCE_TRANSPORT_PORT,
        POST_NAPT_SOURCE_TRANSPORT_PORT,
    ],
};
/// Table 20.
const ADDRESS: Template = Template {
    id: 257,
    fields: &[
        OBSERVATION_TIME_MILLISECONDS,
        NAT_EVENT,
        SOURCE_IPV4_ADDRESS,
        POST_NAT_SOURCE_IPV4_ADDRESS,
        SOURCE_MAC_ADDRESS,
        USER_NAME,
    ],
};
/// Table 21.
const BLOCK: Template = Template {
    id: 258,
    fields: &[
        OBSERVATION_TIME_MILLISECONDS,
        NAT_EVENT,
        SOURCE_IPV4_ADDRESS,
        POST_NAT_SOURCE_IPV4_ADDRESS,
        PORT_RANGE_START,
        PORT_RANGE_END,
        SOURCE_MAC_ADDRESS,
        USER_NAME,
    ],
};

/// All templates of an exporter.
pub(crate) const TEMPLATES: [Template; 3] = [SESSION, ADDRESS, BLOCK];

/// Whose an address is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriberInfo {
    /// The user's name (userName); 253 octets of it are told at most.
    pub user: Vec<u8>,
    /// The station's address (sourceMacAddress).
    pub station: [u8; 6],
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NatEvent {
    /// A connection, or what UDP has for one, is translated: NAT44 session create or delete (§4.6.1).
    Session {
        /// The protocol's number: 6 is TCP, 17 UDP.
        protocol: u8,
        /// The end inside.
        inside: SocketAddrV4,
        /// What stands for it outside.
        outside: SocketAddrV4,
    },
    /// An address stands for a host: address binding create or delete (§4.6.9).
    Address {
        /// The host's address.
        inside: Ipv4Addr,
        /// What stands for it outside: itself, where nothing is translated.
        outside: Ipv4Addr,
        /// Whose it is.
        subscriber: SubscriberInfo,
    },
    /// Ports of an address stand for a host: port block allocation or de-allocation (§4.6.10).
    Block {
        /// The host's address.
        inside: Ipv4Addr,
        /// The address outside.
        outside: Ipv4Addr,
        /// The first and the last port.
        ports: (u16, u16),
        /// Whose it is.
        subscriber: SubscriberInfo,
    },
}

/// What happened when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NatRecord {
    /// When, told to the millisecond.
    pub occurred_at: WallTime,
    /// It begins; otherwise it ends.
    pub is_start: bool,
    /// What.
    pub event: NatEvent,
}

impl NatRecord {
    /// The number of its template.
    pub(crate) const fn template_id(&self) -> u16 {
        match self.event {
            NatEvent::Session { .. } => SESSION.id,
            NatEvent::Address { .. } => ADDRESS.id,
            NatEvent::Block { .. } => BLOCK.id,
        }
    }

    /// Appends its data record (RFC 7011 §3.4.3).
    pub(crate) fn write_record(&self, out: &mut Vec<u8>) {
        let millis = self.occurred_at.unix_micros() / 1000;
        out.extend_from_slice(&millis.to_be_bytes());
        // Table 2 of RFC 8158: the even numbers begin something, the odd ones after them end it.
        let begins = match self.event {
            NatEvent::Session { .. } => 4,
            NatEvent::Address { .. } => 14,
            NatEvent::Block { .. } => 16,
        };
        out.push(begins + u8::from(!self.is_start));
        match &self.event {
            NatEvent::Session { protocol, inside, outside } => {
                out.extend_from_slice(&inside.ip().octets());
                out.extend_from_slice(&outside.ip().octets());
                out.push(*protocol);
                out.extend_from_slice(&inside.port().to_be_bytes());
                out.extend_from_slice(&outside.port().to_be_bytes());
            }
            NatEvent::Address { inside, outside, subscriber } => {
                out.extend_from_slice(&inside.octets());
                out.extend_from_slice(&outside.octets());
                subscriber.write_fields(out);
            }
            NatEvent::Block { inside, outside, ports, subscriber } => {
                out.extend_from_slice(&inside.octets());
                out.extend_from_slice(&outside.octets());
                out.extend_from_slice(&ports.0.to_be_bytes());
                out.extend_from_slice(&ports.1.to_be_bytes());
                subscriber.write_fields(out);
            }
        }
    }
}

impl SubscriberInfo {
    fn write_fields(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.station);
        write_variable(&self.user, NAME, out);
    }
}
