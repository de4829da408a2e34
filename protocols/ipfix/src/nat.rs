//! Records of address translation (RFC 8158 §4.6). Two elements are added to those of the RFC to identify the owner
//! of an address: the subscriber's name and its station's address.

use crate::template::{Template, TemplateField, VARIABLE, write_variable_length_value};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use usher_core::WallTime;

/// Maximum octets of an exported subscriber name, the limit of RADIUS (RFC 2865 §5.1).
const NAME: usize = 253;

const fn fixed_field(element: u16, length: u16) -> TemplateField {
    TemplateField { element, length }
}

// Numbers of RFC 8158 table 1; sourceMacAddress and userName are from IANA's registry.
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

/// All templates.
pub(crate) const TEMPLATES: [Template; 3] = [SESSION, ADDRESS, BLOCK];

/// The owner of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriberInfo {
    /// The user name (userName); at most 253 octets of it are exported.
    pub user: Vec<u8>,
    /// The station's address (sourceMacAddress).
    pub station: [u8; 6],
}

/// An event of address translation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NatEvent {
    /// A connection, or a UDP flow, is translated: NAT44 session create or delete (§4.6.1).
    Session {
        /// The protocol number: 6 for TCP, 17 for UDP.
        protocol: u8,
        /// The inside address and port.
        inside: SocketAddrV4,
        /// The outside address and port.
        outside: SocketAddrV4,
    },
    /// An address represents a host: address binding create or delete (§4.6.9).
    Address {
        /// The host's address.
        inside: Ipv4Addr,
        /// The outside address; the same without translation.
        outside: Ipv4Addr,
        /// The owner of the address.
        subscriber: SubscriberInfo,
    },
    /// Ports of an address represent a host: port block allocation or de-allocation (§4.6.10).
    Block {
        /// The host's address.
        inside: Ipv4Addr,
        /// The outside address.
        outside: Ipv4Addr,
        /// The first and the last port.
        ports: (u16, u16),
        /// The owner of the ports.
        subscriber: SubscriberInfo,
    },
}

/// An event with its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NatRecord {
    /// When it occurred, exported in milliseconds.
    pub occurred_at: WallTime,
    /// True if the event begins a translation, false if it ends one.
    pub is_start: bool,
    /// The event.
    pub event: NatEvent,
}

impl NatRecord {
    /// Returns the number of its template.
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
        // RFC 8158 table 2: even numbers begin something, the following odd number ends it.
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
        write_variable_length_value(&self.user, NAME, out);
    }
}
