//! Link types: identifiers, states, measurements, thresholds and actions.

use crate::wire::{ValueError, WireValue, bitmap, choice, codes, sequence};
use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter};

codes! {
    /// A link's technology (LINK_TYPE).
    LinkType {
        /// GSM.
        Gsm = 1 "GSM",
        /// GPRS.
        Gprs = 2 "GPRS",
        /// EDGE.
        Edge = 3 "EDGE",
        /// IEEE 802.3.
        Ethernet = 15 "Ethernet",
        /// Another wireless one.
        WirelessOther = 18 "wireless",
        /// IEEE 802.11.
        Ieee80211 = 19 "802.11",
        /// cdma2000.
        Cdma2000 = 22 "cdma2000",
        /// UMTS.
        Umts = 23 "UMTS",
        /// cdma2000 high rate packet data.
        Hrpd = 24 "cdma2000-HRPD",
        /// IEEE 802.16.
        Ieee80216 = 27 "802.16",
        /// IEEE 802.20.
        Ieee80220 = 28 "802.20",
        /// IEEE 802.22.
        Ieee80222 = 29 "802.22",
    }
}

/// An address on a link (LINK_ADDR).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkAddr {
    /// A MAC address.
    Mac([u8; 6]),
    /// A cell of a 3G network.
    Cell3g {
        /// The operator.
        plmn: [u8; 3],
        /// The cell.
        cell: u32,
    },
    /// A cell of a 2G network.
    Cell2g {
        /// The operator.
        plmn: [u8; 3],
        /// The location area.
        area: u16,
        /// The cell.
        cell: u16,
    },
    /// Another 3GPP address.
    Gpp(Vec<u8>),
    /// A 3GPP2 address.
    Gpp2(Vec<u8>),
    /// Another layer 2 address.
    Other(Vec<u8>),
}

/// The IANA address family of 48-bit MAC addresses, as in the dissector.
const FAMILY_MAC: u16 = 6;

impl WireValue for LinkAddr {
    fn write_to(&self, w: &mut OctetWriter<'_>) {
        match self {
            Self::Mac(mac) => {
                w.write_u8(0).write_u16(FAMILY_MAC).write_u8(6).write_bytes(mac);
            }
            Self::Cell3g { plmn, cell } => {
                w.write_u8(1).write_bytes(plmn).write_u32(*cell);
            }
            Self::Cell2g { plmn, area, cell } => {
                w.write_u8(2).write_bytes(plmn).write_u16(*area).write_u16(*cell);
            }
            Self::Gpp(octets) => {
                w.write_u8(3);
                octets.write_to(w);
            }
            Self::Gpp2(octets) => {
                w.write_u8(4);
                octets.write_to(w);
            }
            Self::Other(octets) => {
                w.write_u8(5);
                octets.write_to(w);
            }
        }
    }
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
        Ok(match r.read_u8()? {
            0 => {
                let family = r.read_u16()?;
                if family != FAMILY_MAC {
                    return Err(ValueError::Form(family.into()));
                }
                match r.read_u8()? {
                    6 => Self::Mac(r.read_array()?),
                    other => return Err(ValueError::Form(other.into())),
                }
            }
            1 => Self::Cell3g { plmn: r.read_array()?, cell: r.read_u32()? },
            2 => Self::Cell2g { plmn: r.read_array()?, area: r.read_u16()?, cell: r.read_u16()? },
            3 => Self::Gpp(Vec::read_from(r)?),
            4 => Self::Gpp2(Vec::read_from(r)?),
            5 => Self::Other(Vec::read_from(r)?),
            other => return Err(ValueError::Choice(other)),
        })
    }
}

impl fmt::Display for LinkAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac([a, b, c, d, e, g]) => write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"),
            Self::Cell3g { plmn: [a, b, c], cell } => write!(f, "{a:02x}{b:02x}{c:02x}/{cell}"),
            Self::Cell2g { plmn: [a, b, c], area, cell } => write!(f, "{a:02x}{b:02x}{c:02x}/{area}/{cell}"),
            Self::Gpp(octets) | Self::Gpp2(octets) | Self::Other(octets) => {
                write!(f, "\"{}\"", octets.escape_ascii())
            }
        }
    }
}

impl fmt::Debug for LinkAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

sequence! {
    /// An interface: its technology and its own address (LINK_ID).
    LinkId {
        /// Its technology.
        technology: LinkType,
        /// Its address.
        address: LinkAddr,
    }
}

impl LinkId {
    /// Returns an interface with a MAC address.
    pub const fn from_mac(technology: LinkType, mac: [u8; 6]) -> Self {
        Self { technology, address: LinkAddr::Mac(mac) }
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.technology, self.address)
    }
}

sequence! {
    /// A link: an interface and its current point of attachment (LINK_TUPLE_ID).
    LinkTupleId {
        /// The interface.
        link: LinkId,
        /// The point of attachment.
        poa: Option<LinkAddr>,
    }
}

impl fmt::Display for LinkTupleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.poa {
            Some(poa) => write!(f, "{} at {poa}", self.link),
            None => write!(f, "{}", self.link),
        }
    }
}

sequence! {
    /// An interface and its candidate points of attachment (LINK_POA_LIST).
    LinkPoaList {
        /// The interface.
        link: LinkId,
        /// The points of attachment, the preferred first.
        poas: Vec<LinkAddr>,
    }
}

codes! {
    /// Why a link is lost (LINK_DN_REASON).
    LinkDownReason {
        /// Somebody wanted so.
        ExplicitDisconnect = 0 "explicit disconnect",
        /// Frames were not acknowledged.
        PacketTimeout = 1 "packet timeout",
        /// The network has no resources for it.
        NoResource = 2 "no resource",
        /// No beacon was heard.
        NoBroadcast = 3 "no broadcast",
        /// Authentication failed.
        AuthenticationFailure = 4 "authentication failure",
        /// Billing failed.
        BillingFailure = 5 "billing failure",
    }
}

codes! {
    /// Why a link will be lost (LINK_GD_REASON).
    LinkGoingDownReason {
        /// Somebody wants so.
        ExplicitDisconnect = 0 "explicit disconnect",
        /// It gets worse.
        ParameterDegrading = 1 "link parameter degrading",
        /// The battery is low.
        LowPower = 2 "low power",
        /// The network has no resources for it.
        NoResource = 3 "no resource",
    }
}

choice! {
    /// A signal strength (SIG_STRENGTH).
    SignalStrength {
        /// In dBm.
        Dbm(i8) = 0,
        /// In percent of the best.
        Percent(u8) = 1,
    }
}

codes! {
    /// The group of a link parameter: the choice within LINK_PARAM_TYPE.
    ParameterGroup {
        /// Parameters that every technology has.
        Generic = 0 "generic",
        /// Service qualities.
        Qos = 1 "QoS",
        /// GSM and GPRS.
        Gsm = 2 "GSM",
        /// EDGE.
        Edge = 3 "EDGE",
        /// Ethernet.
        Ethernet = 4 "Ethernet",
        /// 802.11.
        Ieee80211 = 5 "802.11",
        /// cdma2000.
        Cdma2000 = 6 "cdma2000",
        /// UMTS FDD.
        Fdd = 7 "FDD",
        /// HRPD.
        Hrpd = 8 "HRPD",
        /// 802.16.
        Ieee80216 = 9 "802.16",
        /// 802.20.
        Ieee80220 = 10 "802.20",
        /// 802.22.
        Ieee80222 = 11 "802.22",
    }
}

sequence! {
    /// The type of a link parameter (LINK_PARAM_TYPE).
    LinkParamType {
        /// The parameter's group.
        group: ParameterGroup,
        /// The parameter's number in its group.
        number: u8,
    }
}

impl LinkParamType {
    /// Data rate, in kb/s.
    pub const DATA_RATE: Self = Self { group: ParameterGroup::Generic, number: 0 };
    /// Signal strength.
    pub const SIGNAL_STRENGTH: Self = Self { group: ParameterGroup::Generic, number: 1 };
    /// Signal to interference plus noise ratio.
    pub const SINR: Self = Self { group: ParameterGroup::Generic, number: 2 };
    /// Throughput.
    pub const THROUGHPUT: Self = Self { group: ParameterGroup::Generic, number: 3 };
    /// Packet error rate.
    pub const PACKET_ERROR_RATE: Self = Self { group: ParameterGroup::Generic, number: 4 };
    /// Received signal strength indication of 802.11.
    pub const RSSI_80211: Self = Self { group: ParameterGroup::Ieee80211, number: 0 };
}

sequence! {
    /// A value of one class of service.
    CosValue {
        /// The class.
        class: u8,
        /// The value: ms for delays, a ratio for losses.
        value: u16,
    }
}

choice! {
    /// The value of a quality of service parameter (QOS_PARAM_VAL).
    QosValue {
        /// Number of classes.
        Classes(u8) = 0,
        /// Shortest packet delays.
        MinDelay(Vec<CosValue>) = 1,
        /// Mean packet delays.
        AvgDelay(Vec<CosValue>) = 2,
        /// Longest packet delays.
        MaxDelay(Vec<CosValue>) = 3,
        /// Spread of packet delays.
        Jitter(Vec<CosValue>) = 4,
        /// Packet losses.
        Loss(Vec<CosValue>) = 5,
    }
}

choice! {
    /// The value of a link parameter (LINK_PARAM's value).
    LinkParamValue {
        /// A number in the unit of its type.
        Number(u16) = 0,
        /// A quality of service value.
        Qos(QosValue) = 1,
    }
}

sequence! {
    /// A measured link parameter (LINK_PARAM).
    LinkParam {
        /// The parameter.
        kind: LinkParamType,
        /// Its value.
        value: LinkParamValue,
    }
}

codes! {
    /// From which side a threshold is crossed (THRESHOLD_XDIR).
    ThresholdDirection {
        /// The value goes above it.
        Above = 0 "above",
        /// The value goes below it.
        Below = 1 "below",
    }
}

sequence! {
    /// A threshold (THRESHOLD).
    Threshold {
        /// The threshold's value.
        value: u16,
        /// The direction in which the value crosses it.
        direction: ThresholdDirection,
    }
}

sequence! {
    /// A measurement and the threshold that it crossed (LINK_PARAM_RPT).
    LinkParamReport {
        /// The measurement.
        param: LinkParam,
        /// The threshold; `None` in a periodic report.
        threshold: Option<Threshold>,
    }
}

codes! {
    /// An action on a threshold (TH_ACTION).
    ThresholdAction {
        /// It is set.
        Normal = 0 "set",
        /// It is set until it is crossed once.
        OneShot = 1 "set once",
        /// It is given up.
        Cancel = 2 "cancel",
    }
}

sequence! {
    /// Thresholds to configure (LINK_CFG_PARAM).
    LinkCfgParam {
        /// The parameter.
        kind: LinkParamType,
        /// The interval of reports, in ms.
        interval: Option<u16>,
        /// The action on the thresholds.
        action: ThresholdAction,
        /// The thresholds.
        thresholds: Vec<Threshold>,
    }
}

sequence! {
    /// The result of configuring a threshold (LINK_CFG_STATUS).
    LinkCfgStatus {
        /// The parameter.
        kind: LinkParamType,
        /// The threshold.
        threshold: Threshold,
        /// True if the threshold is set.
        set: bool,
    }
}

codes! {
    /// An action of a link (LINK_AC_TYPE).
    LinkActionType {
        /// Nothing, but for the action's attributes.
        None = 0 "none",
        /// Break the connection.
        Disconnect = 1 "disconnect",
        /// Go to sleep.
        LowPower = 2 "low power",
        /// Switch off.
        PowerDown = 3 "power down",
        /// Switch on, and connect.
        PowerUp = 4 "power up",
    }
}

bitmap! {
    /// Attributes of a link action (LINK_AC_ATTR).
    LinkActionAttributes: u8 {
        /// Scan.
        SCAN = 0,
        /// Keep the resources on disconnection.
        RETAIN_RESOURCES = 1,
        /// Forward buffered data to the new link.
        FORWARD_DATA = 2,
    }
}

codes! {
    /// The result of an action (LINK_AC_RESULT).
    LinkActionResult {
        /// It is done.
        Success = 0 "success",
        /// It failed.
        Failure = 1 "failure",
        /// The link would not.
        Refused = 2 "refused",
        /// The link cannot.
        Incapable = 3 "incapable",
    }
}

sequence! {
    /// A link action (LINK_ACTION_REQ).
    LinkAction {
        /// The interface.
        link: LinkId,
        /// The point of attachment that the action concerns.
        poa: Option<LinkAddr>,
        /// The action.
        action: LinkActionType,
        /// Its attributes.
        attributes: LinkActionAttributes,
        /// The delay of the action, in ms.
        delay: u16,
    }
}

sequence! {
    /// A result of a scan (LINK_SCAN_RSP).
    LinkScan {
        /// The point of attachment.
        poa: LinkAddr,
        /// Its network.
        network: Vec<u8>,
        /// Its signal strength.
        signal: SignalStrength,
    }
}

sequence! {
    /// The result of a link action (LINK_ACTION_RSP).
    LinkActionOutcome {
        /// The interface.
        link: LinkId,
        /// The result.
        result: LinkActionResult,
        /// The points of attachment found, for a scan.
        scan: Option<Vec<LinkScan>>,
    }
}

bitmap! {
    /// MIH services that a network announces (LINK_MIHCAP_FLAG).
    MihCapability: u8 {
        /// Events.
        EVENT = 0,
        /// Commands.
        COMMAND = 1,
        /// Information.
        INFORMATION = 2,
    }
}

bitmap! {
    /// The capabilities of a network (NET_CAPS).
    NetworkCapabilities: u32 {
        /// Security.
        SECURITY = 0,
        /// Quality of service, class 0.
        QOS_0 = 1,
        /// Access to the internet.
        INTERNET = 7,
        /// Emergency services.
        EMERGENCY = 8,
        /// MIH.
        MIH = 9,
    }
}

sequence! {
    /// A detected link (LINK_DET_INFO).
    LinkDetected {
        /// The interface, and the point of attachment.
        link: LinkTupleId,
        /// The network's name.
        network: Vec<u8>,
        /// A further name, such as an HESSID.
        auxiliary: Vec<u8>,
        /// Its signal strength.
        signal: SignalStrength,
        /// Signal to interference plus noise ratio, in dB.
        sinr: u16,
        /// Highest data rate, in kb/s.
        rate: u32,
        /// The network's MIH services.
        mih: MihCapability,
        /// The network's capabilities.
        capabilities: NetworkCapabilities,
    }
}

sequence! {
    /// Conditions of reports of detected links (LINK_DET_CFG).
    LinkDetectedConfig {
        /// Only links of this network.
        network: Option<Vec<u8>>,
        /// Minimum signal strength.
        signal: Option<SignalStrength>,
        /// Minimum data rate, in kb/s.
        rate: Option<u32>,
    }
}

choice! {
    /// Conditions of an event (EVT_CFG_INFO).
    EventConfig {
        /// Conditions of detected links.
        Detected(Vec<LinkDetectedConfig>) = 0,
        /// Conditions of measurements.
        Parameters(Vec<LinkCfgParam>) = 1,
    }
}

bitmap! {
    /// Requested states of a link (LINK_STATES_REQ).
    ReportedLinkStates: u16 {
        /// The operation mode.
        OPERATION_MODE = 0,
        /// Its channel.
        CHANNEL = 1,
    }
}

bitmap! {
    /// Requested descriptors of a link (LINK_DESC_REQ).
    LinkDescriptors: u16 {
        /// The number of classes of service.
        CLASSES = 0,
        /// The number of queues.
        QUEUES = 1,
    }
}

sequence! {
    /// Requested status of links (LINK_STATUS_REQ).
    LinkStatusRequest {
        /// States.
        states: ReportedLinkStates,
        /// Measurements.
        params: Vec<LinkParamType>,
        /// Descriptors.
        descriptors: LinkDescriptors,
    }
}

codes! {
    /// How a link is operated (OP_MODE).
    OperationMode {
        /// Normally.
        Normal = 0 "normal",
        /// To save power.
        PowerSaving = 1 "power saving",
        /// It is off.
        PoweredDown = 2 "powered down",
    }
}

choice! {
    /// A link's state (LINK_STATES_RSP).
    LinkState {
        /// The operation mode.
        Operation(OperationMode) = 0,
        /// Its channel.
        Channel(u16) = 1,
    }
}

choice! {
    /// A descriptor of a link (LINK_DESC_RSP).
    LinkDescriptor {
        /// The number of classes of service.
        Classes(u8) = 0,
        /// The number of queues.
        Queues(u8) = 1,
    }
}

sequence! {
    /// The status of a link (an element of the status response list).
    LinkStatus {
        /// The interface.
        link: LinkId,
        /// Its states.
        states: Vec<LinkState>,
        /// Its measurements.
        params: Vec<LinkParam>,
        /// Its descriptors.
        descriptors: Vec<LinkDescriptor>,
    }
}
