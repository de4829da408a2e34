//! Handover types: target networks, service qualities, resources, results and capabilities.

use crate::link::{CosValue, LinkAddr, LinkDownReason, LinkPoaList, LinkType};
use crate::wire::{ValueError, WireValue, bitmap, choice, codes, sequence};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_core::{OctetReader, OctetWriter};

codes! {
    /// How a request ended (STATUS).
    Status {
        /// Well.
        Success = 0 "success",
        /// Not well.
        UnspecifiedFailure = 1 "unspecified failure",
        /// It was refused.
        Rejected = 2 "rejected",
        /// Its sender may not.
        AuthorizationFailure = 3 "authorization failure",
        /// The network failed.
        NetworkError = 4 "network error",
    }
}

codes! {
    /// Whether a station will hand over (HO_STATUS).
    HandoverStatus {
        /// It will.
        Permitted = 0 "permitted",
        /// It will not.
        Declined = 1 "declined",
    }
}

codes! {
    /// How a handover ended (HO_RESULT). Numbers as ODTONE has them; the dissector prints them as a [`Status`].
    HandoverResult {
        /// On the new link.
        Success = 0 "success",
        /// Not on it.
        Failure = 1 "failure",
        /// It was refused.
        Rejected = 2 "rejected",
    }
}

/// The cause of a handover (HO_CAUSE). The dissector reads the numbers of [`LinkDownReason`].
pub type HandoverCause = LinkDownReason;

codes! {
    /// Whether a registration is the first (REG_REQUEST_CODE).
    RegisterCode {
        /// It is.
        Register = 0 "register",
        /// It renews one.
        Reregister = 1 "re-register",
    }
}

sequence! {
    /// Service qualities, by class of service (QOS_LIST).
    #[derive(Default)]
    QosList {
        /// Number of classes.
        classes: u8,
        /// Shortest packet delays, in ms.
        min_delay: Vec<CosValue>,
        /// Mean packet delays, in ms.
        avg_delay: Vec<CosValue>,
        /// Longest packet delays, in ms.
        max_delay: Vec<CosValue>,
        /// Standard deviation of packet delays, in ms.
        jitter: Vec<CosValue>,
        /// Packet loss rates.
        loss: Vec<CosValue>,
    }
}

/// The traffic specification of a target (TSP_CONTAINER).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum TspContainer {
    /// None.
    #[default]
    None,
    /// A predefined specification, by its agreed number.
    Predefined(u8),
    /// A link-specific specification, opaque to MIH.
    Carrier(Vec<u8>),
}

impl WireValue for TspContainer {
    fn write_to(&self, w: &mut OctetWriter<'_>) {
        match self {
            Self::None => {
                w.write_u8(0);
            }
            Self::Predefined(number) => {
                w.write_u8(1).write_u8(*number);
            }
            Self::Carrier(octets) => {
                w.write_u8(2);
                octets.write_to(w);
            }
        }
    }
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
        match r.read_u8()? {
            0 => Ok(Self::None),
            1 => Ok(Self::Predefined(r.read_u8()?)),
            2 => Vec::read_from(r).map(Self::Carrier),
            other => Err(ValueError::Choice(other)),
        }
    }
}

sequence! {
    /// Resources assigned to a station (ASGN_RES_SET).
    #[derive(Default)]
    AssignedResources {
        /// Service qualities.
        qos: QosList,
        /// The traffic specification.
        container: TspContainer,
    }
}

sequence! {
    /// Resources that a station requests (REQ_RES_SET).
    RequestedResources {
        /// Service qualities.
        qos: QosList,
        /// The traffic specification.
        container: TspContainer,
        /// The cause of the handover.
        cause: HandoverCause,
    }
}

bitmap! {
    /// Methods of IP address configuration (IP_CFG_MTHDS).
    IpConfigMethods: u32 {
        /// Static IPv4.
        IPV4_STATIC = 0,
        /// DHCP for IPv4.
        DHCPV4 = 1,
        /// Mobile IPv4 with a foreign agent.
        MIPV4_FA = 2,
        /// Mobile IPv4 without a foreign agent.
        MIPV4_NO_FA = 3,
        /// Stateless IPv6.
        IPV6_STATELESS = 11,
        /// DHCP for IPv6.
        DHCPV6 = 12,
        /// Manual IPv6.
        IPV6_MANUAL = 13,
    }
}

bitmap! {
    /// Protocols of IP mobility (IP_MOB_MGMT).
    IpMobility: u16 {
        /// Mobile IPv4.
        MIPV4 = 0,
        /// Mobile IPv4 with regional registration.
        MIPV4_REGIONAL = 1,
        /// Mobile IPv6.
        MIPV6 = 2,
        /// Hierarchical mobile IPv6.
        HMIPV6 = 3,
        /// Low latency handoffs.
        LOW_LATENCY = 4,
        /// Fast handovers for mobile IPv6.
        FMIPV6 = 5,
        /// IKEv2 mobility and multihoming.
        MOBIKE = 6,
    }
}

/// An IP address (IP_ADDR): the IANA address family, then the octets.
impl WireValue for IpAddr {
    fn write_to(&self, w: &mut OctetWriter<'_>) {
        match self {
            Self::V4(v4) => {
                w.write_u16(1).write_u8(4).write_bytes(&v4.octets());
            }
            Self::V6(v6) => {
                w.write_u16(2).write_u8(16).write_bytes(&v6.octets());
            }
        }
    }
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
        let family = r.read_u16()?;
        let length = r.read_u8()?;
        match (family, length) {
            (1, 4) => Ok(Self::V4(Ipv4Addr::from(r.read_array::<4>()?))),
            (2, 16) => Ok(Self::V6(Ipv6Addr::from(r.read_array::<16>()?))),
            (1 | 2, _) => Err(ValueError::Form(length.into())),
            _ => Err(ValueError::Form(family.into())),
        }
    }
}

/// A network's offer of one item: unknown, present or absent, or its value.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum NetworkOffer<T> {
    /// Unknown.
    #[default]
    Unspecified,
    /// True if the network has it.
    Has(bool),
    /// Its value.
    Is(T),
}

impl<T: WireValue> WireValue for NetworkOffer<T> {
    fn write_to(&self, w: &mut OctetWriter<'_>) {
        match self {
            Self::Unspecified => {
                w.write_u8(0);
            }
            Self::Has(has) => {
                w.write_u8(1);
                has.write_to(w);
            }
            Self::Is(value) => {
                w.write_u8(2);
                value.write_to(w);
            }
        }
    }
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
        match r.read_u8()? {
            0 => Ok(Self::Unspecified),
            1 => bool::read_from(r).map(Self::Has),
            2 => T::read_from(r).map(Self::Is),
            other => Err(ValueError::Choice(other)),
        }
    }
}

sequence! {
    /// A candidate link with the resources of its network (RQ_RESULT).
    PreferredLink {
        /// The interface and its points of attachment.
        poas: LinkPoaList,
        /// Service qualities.
        qos: QosList,
        /// Methods of IP address configuration.
        ip_config: NetworkOffer<IpConfigMethods>,
        /// The DHCP server.
        dhcp: NetworkOffer<IpAddr>,
        /// The foreign agent.
        foreign_agent: NetworkOffer<IpAddr>,
        /// The access router.
        access_router: NetworkOffer<IpAddr>,
    }
}

impl PreferredLink {
    /// Returns a candidate link with its points of attachment only.
    pub fn new(poas: LinkPoaList) -> Self {
        Self {
            poas,
            qos: QosList::default(),
            ip_config: NetworkOffer::Unspecified,
            dhcp: NetworkOffer::Unspecified,
            foreign_agent: NetworkOffer::Unspecified,
            access_router: NetworkOffer::Unspecified,
        }
    }
}

sequence! {
    /// The names of a network.
    NetworkName {
        /// Its identifier (NETWORK_ID), such as an SSID.
        network: Vec<u8>,
        /// A further name (NET_AUX_ID).
        auxiliary: Option<Vec<u8>>,
    }
}

choice! {
    /// The target of a handover (TGT_NET_INFO).
    TargetNetwork {
        /// A network.
        Network(NetworkName) = 0,
        /// A point of attachment.
        Poa(LinkAddr) = 1,
    }
}

sequence! {
    /// The type of a network (NETWORK_TYPE).
    #[derive(Default)]
    NetworkType {
        /// Its technology.
        technology: Option<LinkType>,
        /// Its bands or releases, in the technology's bitmap.
        subtype: Option<u64>,
        /// Further octets.
        extension: Option<Vec<u8>>,
    }
}

impl NetworkType {
    /// Returns the network type of a technology.
    pub const fn for_technology(technology: LinkType) -> Self {
        Self { technology: Some(technology), subtype: None, extension: None }
    }
}

sequence! {
    /// An interface of a function (NET_TYPE_ADDR).
    NetTypeAddr {
        /// Its network.
        network: NetworkType,
        /// Its address.
        address: LinkAddr,
    }
}

sequence! {
    /// Support of make-before-break handover (MBB_HO_SUPP).
    MbbHandover {
        /// The network type of the old link.
        from: NetworkType,
        /// The network type of the new link.
        to: NetworkType,
        /// True if the handover can be make-before-break.
        supported: bool,
    }
}

bitmap! {
    /// Events (MIH_EVT_LIST).
    EventList: u32 {
        /// MIH_Link_Detected.
        LINK_DETECTED = 0,
        /// MIH_Link_Up.
        LINK_UP = 1,
        /// MIH_Link_Down.
        LINK_DOWN = 2,
        /// MIH_Link_Parameters_Report.
        LINK_PARAMETERS_REPORT = 3,
        /// MIH_Link_Going_Down.
        LINK_GOING_DOWN = 4,
        /// MIH_Link_Handover_Imminent.
        LINK_HANDOVER_IMMINENT = 5,
        /// MIH_Link_Handover_Complete.
        LINK_HANDOVER_COMPLETE = 6,
        /// MIH_Link_PDU_Transmit_Status, which is local and has no message.
        LINK_PDU_TRANSMIT_STATUS = 7,
    }
}

bitmap! {
    /// Commands (MIH_CMD_LIST). The bits are ODTONE's. The dissector prints the bits of LINK_CMD_LIST, a different
    /// list.
    CommandList: u32 {
        /// MIH_Link_Get_Parameters.
        LINK_GET_PARAMETERS = 0,
        /// MIH_Link_Configure_Thresholds.
        LINK_CONFIGURE_THRESHOLDS = 1,
        /// MIH_Link_Actions.
        LINK_ACTIONS = 2,
        /// The network's commands: MIH_Net_HO and MIH_N2N_HO.
        NET_HO = 3,
        /// The station's commands: MIH_MN_HO.
        MN_HO = 4,
    }
}

bitmap! {
    /// Queries that an information server answers (MIH_IQ_TYPE_LST). Only the bits that this crate uses.
    QueryTypeList: u64 {
        /// Binary queries.
        BINARY = 0,
        /// RDF queries.
        RDF = 1,
        /// The URL of the RDF schema.
        RDF_SCHEMA_URL = 2,
        /// The RDF schema.
        RDF_SCHEMA = 3,
        /// Network types.
        NETWORK_TYPE = 4,
        /// Operators.
        OPERATOR_ID = 5,
        /// Network names.
        NETWORK_ID = 8,
        /// Points of attachment.
        POA_LINK_ADDR = 23,
        /// Locations of points of attachment.
        POA_LOCATION = 24,
    }
}

bitmap! {
    /// Transports (MIH_TRANS_LST).
    TransportList: u16 {
        /// UDP.
        UDP = 0,
        /// TCP.
        TCP = 1,
        /// SCTP. The standard has no bit for it; this is its first reserved bit.
        SCTP = 2,
    }
}

bitmap! {
    /// Requested states of a device (DEV_STATES_REQ).
    DeviceStates: u16 {
        /// Device information.
        INFO = 0,
        /// Its battery.
        BATTERY = 1,
    }
}

choice! {
    /// A state of a device (DEV_STATES_RSP).
    DeviceState {
        /// Device information.
        Info(Vec<u8>) = 0,
        /// Its battery, in percent.
        Battery(u8) = 1,
    }
}
