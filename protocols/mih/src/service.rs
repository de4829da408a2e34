//! The messages: service, opcode, action and mandatory parameters of each.

use crate::tlv::kind;
use core::fmt;

/// A service of the MIH function. Its number is the SID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ServiceId {
    /// Discovery, registration, subscription.
    Management,
    /// Events of links.
    Event,
    /// Commands to links, and handovers.
    Command,
    /// Information about networks.
    Information,
}

impl ServiceId {
    /// All services, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Management, Self::Event, Self::Command, Self::Information];

    /// Returns the number on the wire, 1 to 4.
    pub const fn wire_value(self) -> u8 {
        self.index() as u8 + 1
    }
    /// Returns the index in [`ServiceId::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
    /// Returns the service of a number; `None` for a reserved one.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Management),
            2 => Some(Self::Event),
            3 => Some(Self::Command),
            4 => Some(Self::Information),
            _ => None,
        }
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Management => "management",
            Self::Event => "event",
            Self::Command => "command",
            Self::Information => "information",
        })
    }
}

/// The role of a message in its transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Opcode {
    /// Requires a response.
    Request,
    /// Answers a request.
    Response,
    /// Requires no response.
    Indication,
}

impl Opcode {
    /// Returns the number on the wire, 1 to 3.
    pub const fn wire_value(self) -> u8 {
        self as u8 + 1
    }
    /// Returns the opcode of a number; `None` for others. 0, a confirm, is local to a function and its links.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Request),
            2 => Some(Self::Response),
            3 => Some(Self::Indication),
            _ => None,
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::Indication => "indication",
        })
    }
}

/// The name of a message: service, opcode and the 10-bit action identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// SID.
    pub service: ServiceId,
    /// The opcode.
    pub opcode: Opcode,
    /// AID; only its low 10 bits are encoded.
    pub action: u16,
}

/// Declares the messages: constant, service, opcode, action and mandatory parameters.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident = $service:ident $opcode:ident $action:literal [$($kind:ident),*];)*) => {
        impl MessageId {
            $($(#[$doc])* pub const $name: Self =
                Self { service: ServiceId::$service, opcode: Opcode::$opcode, action: $action };)*
            /// All messages.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
            /// Returns the types of the mandatory parameters; `None` for an unknown message. A response with a status
            /// other than success needs only the status.
            pub const fn mandatory(self) -> Option<&'static [u8]> {
                match self {
                    $(Self { service: ServiceId::$service, opcode: Opcode::$opcode, action: $action } =>
                        Some(&[$(kind::$kind),*]),)*
                    _ => None,
                }
            }
        }
    };
}

messages! {
    /// A request for the capabilities of a function. It may carry the sender's own.
    CAPABILITY_DISCOVER_REQUEST = Management Request 1 [];
    /// The capabilities of the function.
    CAPABILITY_DISCOVER_RESPONSE = Management Response 1 [STATUS];
    /// A request to register.
    REGISTER_REQUEST = Management Request 2 [LINK_IDENTIFIER_LIST, REGISTER_REQUEST_CODE];
    /// The duration of the registration.
    REGISTER_RESPONSE = Management Response 2 [STATUS, VALID_TIME_INTERVAL];
    /// A request to deregister.
    DEREGISTER_REQUEST = Management Request 3 [];
    /// The result of the deregistration.
    DEREGISTER_RESPONSE = Management Response 3 [STATUS];
    /// A request to subscribe to events of a link.
    EVENT_SUBSCRIBE_REQUEST = Management Request 4 [LINK_IDENTIFIER, EVENT_LIST];
    /// The subscribed events.
    EVENT_SUBSCRIBE_RESPONSE = Management Response 4 [STATUS, LINK_IDENTIFIER];
    /// A request to unsubscribe from events of a link.
    EVENT_UNSUBSCRIBE_REQUEST = Management Request 5 [LINK_IDENTIFIER, EVENT_LIST];
    /// The unsubscribed events.
    EVENT_UNSUBSCRIBE_RESPONSE = Management Response 5 [STATUS, LINK_IDENTIFIER];

    /// A link could be used.
    LINK_DETECTED_INDICATION = Event Indication 1 [LINK_DETECTED_LIST];
    /// A link can be used now.
    LINK_UP_INDICATION = Event Indication 2 [LINK_IDENTIFIER];
    /// A link can be used no more.
    LINK_DOWN_INDICATION = Event Indication 3 [LINK_IDENTIFIER, LINK_DOWN_REASON];
    /// Measurements, at intervals or when a threshold is crossed.
    LINK_PARAMETERS_REPORT_INDICATION = Event Indication 5 [LINK_IDENTIFIER, LINK_PARAMETER_REPORT_LIST];
    /// A link will be lost soon.
    LINK_GOING_DOWN_INDICATION = Event Indication 6 [LINK_IDENTIFIER, TIME_INTERVAL, LINK_GOING_DOWN_REASON];
    /// A handover of the link layer is about to begin.
    LINK_HANDOVER_IMMINENT_INDICATION = Event Indication 7 [LINK_IDENTIFIER, NEW_LINK_IDENTIFIER];
    /// A handover of the link layer is over.
    LINK_HANDOVER_COMPLETE_INDICATION = Event Indication 8 [LINK_IDENTIFIER, NEW_LINK_IDENTIFIER, STATUS];

    /// Asks for measurements.
    LINK_GET_PARAMETERS_REQUEST = Command Request 1 [LINK_IDENTIFIER_LIST, STATUS_REQUEST];
    /// The measurements.
    LINK_GET_PARAMETERS_RESPONSE = Command Response 1 [STATUS, STATUS_RESPONSE_LIST];
    /// Sets thresholds of a link.
    LINK_CONFIGURE_THRESHOLDS_REQUEST = Command Request 2 [LINK_IDENTIFIER, CONFIGURE_REQUEST_LIST];
    /// The thresholds that are set.
    LINK_CONFIGURE_THRESHOLDS_RESPONSE = Command Response 2 [STATUS, LINK_IDENTIFIER, CONFIGURE_RESPONSE_LIST];
    /// A request for actions of links: scans, disconnects, power.
    LINK_ACTIONS_REQUEST = Command Request 3 [LINK_ACTION_LIST];
    /// The results of the actions.
    LINK_ACTIONS_RESPONSE = Command Response 3 [STATUS, LINK_ACTION_RESULT_LIST];
    /// The network asks a station to which links it could go.
    NET_HO_CANDIDATE_QUERY_REQUEST = Command Request 4 [LINK_POA_LIST, QUERY_RESOURCE_REPORT_FLAG];
    /// The station's preference.
    NET_HO_CANDIDATE_QUERY_RESPONSE = Command Response 4 [STATUS, LINK_IDENTIFIER, HANDOVER_STATUS];
    /// A station asks its network to which links it could go.
    MN_HO_CANDIDATE_QUERY_REQUEST = Command Request 5 [LINK_IDENTIFIER, LINK_POA_LIST];
    /// The network's preference.
    MN_HO_CANDIDATE_QUERY_RESPONSE = Command Response 5 [STATUS, LINK_IDENTIFIER];
    /// The serving network asks another for resources.
    N2N_HO_QUERY_RESOURCES_REQUEST = Command Request 6 [RESOURCE_QUERY];
    /// The availability of the resources.
    N2N_HO_QUERY_RESOURCES_RESPONSE = Command Response 6 [STATUS, RESOURCE_STATUS];
    /// A station says where it goes.
    MN_HO_COMMIT_REQUEST = Command Request 7 [LINK_TYPE, TARGET_NETWORK];
    /// The network's answer.
    MN_HO_COMMIT_RESPONSE = Command Response 7 [STATUS, LINK_TYPE, TARGET_NETWORK];
    /// The network says where a station goes.
    NET_HO_COMMIT_REQUEST = Command Request 8 [LINK_TYPE, TARGET_NETWORK_LIST, LINK_ACTION_LIST];
    /// The station's answer.
    NET_HO_COMMIT_RESPONSE = Command Response 8 [STATUS, LINK_TYPE];
    /// The serving network announces a station to another network.
    N2N_HO_COMMIT_REQUEST = Command Request 9 [MN_MIHF_ID, MN_LINK_IDENTIFIER, POA, REQUESTED_RESOURCES];
    /// The resources reserved for the station.
    N2N_HO_COMMIT_RESPONSE = Command Response 9 [STATUS];
    /// A station says how its handover ended.
    MN_HO_COMPLETE_REQUEST = Command Request 10 [LINK_IDENTIFIER, NEW_LINK_IDENTIFIER, HANDOVER_RESULT];
    /// The acknowledgement of the completion.
    MN_HO_COMPLETE_RESPONSE = Command Response 10 [STATUS];
    /// The new network tells the old one how a handover ended.
    N2N_HO_COMPLETE_REQUEST = Command Request 11 [MN_MIHF_ID, LINK_IDENTIFIER, NEW_LINK_IDENTIFIER, HANDOVER_RESULT];
    /// Whether the old network keeps its resources.
    N2N_HO_COMPLETE_RESPONSE = Command Response 11 [STATUS];

    /// Asks what networks there are.
    GET_INFORMATION_REQUEST = Information Request 1 [];
    /// The networks.
    GET_INFORMATION_RESPONSE = Information Response 1 [STATUS];
    /// The networks, unasked.
    PUSH_INFORMATION_INDICATION = Information Indication 2 [];
}

impl MessageId {
    /// Returns the name of the action as the standard writes it; `None` for an unknown one.
    pub const fn name(self) -> Option<&'static str> {
        Some(match (self.service, self.action) {
            (ServiceId::Management, 1) => "MIH_Capability_Discover",
            (ServiceId::Management, 2) => "MIH_Register",
            (ServiceId::Management, 3) => "MIH_DeRegister",
            (ServiceId::Management, 4) => "MIH_Event_Subscribe",
            (ServiceId::Management, 5) => "MIH_Event_Unsubscribe",
            (ServiceId::Event, 1) => "MIH_Link_Detected",
            (ServiceId::Event, 2) => "MIH_Link_Up",
            (ServiceId::Event, 3) => "MIH_Link_Down",
            (ServiceId::Event, 5) => "MIH_Link_Parameters_Report",
            (ServiceId::Event, 6) => "MIH_Link_Going_Down",
            (ServiceId::Event, 7) => "MIH_Link_Handover_Imminent",
            (ServiceId::Event, 8) => "MIH_Link_Handover_Complete",
            (ServiceId::Command, 1) => "MIH_Link_Get_Parameters",
            (ServiceId::Command, 2) => "MIH_Link_Configure_Thresholds",
            (ServiceId::Command, 3) => "MIH_Link_Actions",
            (ServiceId::Command, 4) => "MIH_Net_HO_Candidate_Query",
            (ServiceId::Command, 5) => "MIH_MN_HO_Candidate_Query",
            (ServiceId::Command, 6) => "MIH_N2N_HO_Query_Resources",
            (ServiceId::Command, 7) => "MIH_MN_HO_Commit",
            (ServiceId::Command, 8) => "MIH_Net_HO_Commit",
            (ServiceId::Command, 9) => "MIH_N2N_HO_Commit",
            (ServiceId::Command, 10) => "MIH_MN_HO_Complete",
            (ServiceId::Command, 11) => "MIH_N2N_HO_Complete",
            (ServiceId::Information, 1) => "MIH_Get_Information",
            (ServiceId::Information, 2) => "MIH_Push_Information",
            _ => return None,
        })
    }
    /// True for a message of the standard.
    pub const fn is_known(self) -> bool {
        self.mandatory().is_some()
    }
    /// Returns the response of a request's action.
    #[must_use]
    pub const fn to_response(self) -> Self {
        Self { opcode: Opcode::Response, ..self }
    }
    /// Returns the 16 bits of the header: SID, opcode, AID.
    pub const fn to_bits(self) -> u16 {
        (self.service.wire_value() as u16) << 12
            | (self.opcode.wire_value() as u16) << 10
            | self.action & 0x3ff
    }
    /// Returns the message of the header's 16 bits; `None` for a reserved service or opcode.
    pub const fn from_bits(bits: u16) -> Option<Self> {
        match (ServiceId::from_number((bits >> 12) as u8), Opcode::from_number((bits >> 10 & 3) as u8)) {
            (Some(service), Some(opcode)) => Some(Self { service, opcode, action: bits & 0x3ff }),
            _ => None,
        }
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} {}", self.opcode),
            None => write!(f, "{} action {} {}", self.service, self.action, self.opcode),
        }
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_message_has_a_name_and_its_own_bits() {
        for id in MessageId::ALL {
            assert!(id.name().is_some(), "{id}");
            assert_eq!(MessageId::from_bits(id.to_bits()), Some(*id));
            assert_eq!(
                MessageId::ALL.iter().filter(|other| other.to_bits() == id.to_bits()).count(),
                1,
                "{id}"
            );
            if id.opcode == Opcode::Request {
                assert!(id.to_response().mandatory().is_some_and(|m| m.contains(&kind::STATUS)), "{id}");
            }
        }
        assert_eq!(MessageId::MN_HO_COMMIT_REQUEST.to_bits(), 0x3407);
        assert_eq!(MessageId::MN_HO_COMMIT_REQUEST.to_string(), "MIH_MN_HO_Commit request");
    }

    #[test]
    fn reserved_services_and_opcodes_are_no_message() {
        assert_eq!(MessageId::from_bits(0x0401), None);
        assert_eq!(MessageId::from_bits(0x5401), None);
        assert_eq!(MessageId::from_bits(0x1001), None);
        assert!(!MessageId::from_bits(0x2c04).unwrap().is_known());
    }
}
