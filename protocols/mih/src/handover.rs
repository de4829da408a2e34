//! Handovers: networks to go to, service qualities, resources, results; and what functions can do.

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

/// Why a handover is wanted (HO_CAUSE): the dissector reads the numbers of [`LinkDownReason`].
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
        /// How many classes are told apart.
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

/// What a target's traffic shall be like (TSP_CONTAINER).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum TspContainer {
    /// Nothing is said.
    #[default]
    None,
    /// As an agreed number says.
    Predefined(u8),
    /// As these octets say, of which MIH knows nothing.
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
    /// Resources that are kept for a station (ASGN_RES_SET).
    #[derive(Default)]
    AssignedResources {
        /// Service qualities.
        qos: QosList,
        /// What the traffic shall be like.
        container: TspContainer,
    }
}

sequence! {
    /// Resources that a station wants (REQ_RES_SET).
    RequestedResources {
        /// Service qualities.
        qos: QosList,
        /// What the traffic shall be like.
        container: TspContainer,
        /// Why it comes.
        cause: HandoverCause,
    }
}

bitmap! {
    /// Ways to an IP address (IP_CFG_MTHDS).
    IpConfigMethods: u32 {
        /// IPv4, written down.
        IPV4_STATIC = 0,
        /// DHCP for IPv4.
        DHCPV4 = 1,
        /// Mobile IPv4 with a foreign agent.
        MIPV4_FA = 2,
        /// Mobile IPv4 without.
        MIPV4_NO_FA = 3,
        /// IPv6, stateless.
        IPV6_STATELESS = 11,
        /// DHCP for IPv6.
        DHCPV6 = 12,
        /// IPv6, written down.
        IPV6_MANUAL = 13,
    }
}

bitmap! {
    /// Ways of IP mobility (IP_MOB_MGMT).
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

/// An internet address (IP_ADDR): IANA's address family, then the octets.
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

/// What a network offers of something: nothing is said, whether it has it, or what it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum NetworkOffer<T> {
    /// Nothing is said.
    #[default]
    Unspecified,
    /// Whether it has it.
    Has(bool),
    /// What it is.
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
    /// A link that a station could go to, with what it would find there (RQ_RESULT).
    PreferredLink {
        /// The interface and its points of attachment.
        poas: LinkPoaList,
        /// Service qualities.
        qos: QosList,
        /// Ways to an IP address.
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
    /// A link of which nothing but its points of attachment is said.
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
    /// A network by its names.
    NetworkName {
        /// Its identifier (NETWORK_ID), such as an SSID.
        network: Vec<u8>,
        /// What else names it (NET_AUX_ID).
        auxiliary: Option<Vec<u8>>,
    }
}

choice! {
    /// Where a station goes (TGT_NET_INFO).
    TargetNetwork {
        /// To a network.
        Network(NetworkName) = 0,
        /// To a point of attachment.
        Poa(LinkAddr) = 1,
    }
}

sequence! {
    /// What kind a network is of (NETWORK_TYPE).
    #[derive(Default)]
    NetworkType {
        /// Its technology.
        technology: Option<LinkType>,
        /// Bands or releases of it, as the technology's bitmap says.
        subtype: Option<u64>,
        /// What else is to be said.
        extension: Option<Vec<u8>>,
    }
}

impl NetworkType {
    /// A network of a technology.
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
    /// Whether a station can make before it breaks (MBB_HO_SUPP).
    MbbHandover {
        /// Going from a network of this kind.
        from: NetworkType,
        /// To one of this.
        to: NetworkType,
        /// It can.
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
        /// MIH_Link_PDU_Transmit_Status, which no message carries.
        LINK_PDU_TRANSMIT_STATUS = 7,
    }
}

bitmap! {
    /// Commands (MIH_CMD_LIST). Bits as ODTONE has them; the dissector prints those of LINK_CMD_LIST, which is another
    /// list.
    CommandList: u32 {
        /// MIH_Link_Get_Parameters.
        LINK_GET_PARAMETERS = 0,
        /// MIH_Link_Configure_Thresholds.
        LINK_CONFIGURE_THRESHOLDS = 1,
        /// MIH_Link_Actions.
        LINK_ACTIONS = 2,
        /// The commands that a network gives: MIH_Net_HO and MIH_N2N_HO.
        NET_HO = 3,
        /// The commands that a station gives: MIH_MN_HO.
        MN_HO = 4,
    }
}

bitmap! {
    /// Queries that an information server answers (MIH_IQ_TYPE_LST), as far as this crate has them.
    QueryTypeList: u64 {
        /// Binary queries.
        BINARY = 0,
        /// RDF queries.
        RDF = 1,
        /// The schema's address.
        RDF_SCHEMA_URL = 2,
        /// The schema.
        RDF_SCHEMA = 3,
        /// For network types.
        NETWORK_TYPE = 4,
        /// For operators.
        OPERATOR_ID = 5,
        /// For networks' names.
        NETWORK_ID = 8,
        /// For points of attachment.
        POA_LINK_ADDR = 23,
        /// For their places.
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
        /// SCTP. The standard has no bit for it; this is the first that it reserves.
        SCTP = 2,
    }
}

bitmap! {
    /// What one wants to know of a device (DEV_STATES_REQ).
    DeviceStates: u16 {
        /// What it is.
        INFO = 0,
        /// Its battery.
        BATTERY = 1,
    }
}

choice! {
    /// What a device says of itself (DEV_STATES_RSP).
    DeviceState {
        /// What it is.
        Info(Vec<u8>) = 0,
        /// Its battery, in percent.
        Battery(u8) = 1,
    }
}
