//! Parameters: a type, a length, a value.
//!
//! Types and values are those of Wireshark's dissector and of ODTONE. The two differ at [`CommandList`],
//! [`NetworkType`] and [`EventConfig`]. The dissector reads the presence octets of [`NetworkType`] in reverse, and
//! [`EventConfig`] as both lists in sequence. RDF queries and their answers (types 44 to 46 and 49 to 51) are not
//! typed.

use crate::element::{BinaryQuery, NetworkList};
use crate::handover::*;
use crate::id::MihfId;
use crate::link::*;
use crate::wire::{
    ValueError, WireValue, length_octets, read_mih_length, read_whole_value, write_mih_length,
};
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use usher_core::{OctetReader, OctetWriter, TruncatedInputError};

/// Declares the parameters: variant, type of the value, number with its name in [`kind`], printed name.
macro_rules! parameters {
    ($($(#[$doc:meta])* $variant:ident($type:ty) = $konst:ident $number:literal $print:literal;)*) => {
        /// A parameter of a message.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Tlv {
            $($(#[$doc])* $variant($type),)*
            /// An untyped parameter, or a typed one whose value has another form. Encoded unchanged.
            Other {
                /// Its type.
                kind: u8,
                /// Its value.
                value: Vec<u8>,
            },
        }
        /// The numbers of parameter types.
        pub mod kind {
            $($(#[$doc])* pub const $konst: u8 = $number;)*
            /// The vendor-specific type.
            pub const VENDOR: u8 = 100;
            /// The padding type: the last of the experimental types 101 to 254.
            pub const PADDING: u8 = 254;

            /// All typed parameters.
            pub const ALL: &[u8] = &[$($number),*];
            /// Returns the name of a type; `None` for an untyped one.
            pub const fn name(kind: u8) -> Option<&'static str> {
                match kind { $($number => Some($print),)* _ => None }
            }
        }
        impl Tlv {
            /// Returns the type.
            pub const fn kind(&self) -> u8 {
                match self { $(Self::$variant(_) => $number,)* Self::Other { kind, .. } => *kind }
            }
            fn write_parameter_value(&self, w: &mut OctetWriter<'_>) {
                match self {
                    $(Self::$variant(value) => value.write_to(w),)*
                    Self::Other { value, .. } => { w.write_bytes(value); }
                }
            }
            fn read(kind: u8, value: &[u8]) -> Result<Self, ValueError> {
                match kind {
                    $($number => read_whole_value(value).map(Self::$variant),)*
                    _ => Ok(Self::Other { kind, value: value.to_vec() }),
                }
            }
        }
        #[cfg(test)]
        pub(crate) mod samples {
            use super::*;
            use crate::wire::SampleValue;
            use proptest::prelude::*;

            /// Generates parameters of one type.
            pub(crate) fn of_kind(kind: u8) -> BoxedStrategy<Tlv> {
                match kind {
                    $($number => <$type>::any_sample().prop_map(Tlv::$variant).boxed(),)*
                    _ => proptest::collection::vec(any::<u8>(), 0..300)
                        .prop_map(move |value| Tlv::Other { kind, value })
                        .boxed(),
                }
            }
        }
    };
}

parameters! {
    /// The sender of the message. The MIHF writes it.
    Source(MihfId) = SOURCE 1 "source";
    /// The receiver of the message. The MIHF writes it.
    Destination(MihfId) = DESTINATION 2 "destination";
    /// How a request ended.
    Status(Status) = STATUS 3 "status";
    /// A technology.
    LinkType(LinkType) = LINK_TYPE 4 "link type";
    /// Events.
    EventList(EventList) = EVENT_LIST 5 "event list";
    /// Commands.
    CommandList(CommandList) = COMMAND_LIST 6 "command list";
    /// Queries that are answered.
    QueryTypeList(QueryTypeList) = QUERY_TYPE_LIST 7 "query type list";
    /// Transports.
    TransportList(TransportList) = TRANSPORT_LIST 8 "transport list";
    /// Interfaces.
    LinkAddressList(Vec<NetTypeAddr>) = LINK_ADDRESS_LIST 9 "link address list";
    /// The pairs of networks that allow make before break.
    MbbHandoverSupport(Vec<MbbHandover>) = MBB_HANDOVER_SUPPORT 10 "make before break support";
    /// Whether a registration is the first.
    RegisterCode(RegisterCode) = REGISTER_REQUEST_CODE 11 "register request code";
    /// For how many seconds a registration holds.
    ValidTimeInterval(u32) = VALID_TIME_INTERVAL 12 "valid time interval";
    /// A link.
    LinkIdentifier(LinkTupleId) = LINK_IDENTIFIER 13 "link identifier";
    /// The new link.
    NewLinkIdentifier(LinkTupleId) = NEW_LINK_IDENTIFIER 14 "new link identifier";
    /// The old access router.
    OldAccessRouter(LinkAddr) = OLD_ACCESS_ROUTER 15 "old access router";
    /// The new access router.
    NewAccessRouter(LinkAddr) = NEW_ACCESS_ROUTER 16 "new access router";
    /// Whether the IP address changes.
    IpRenewal(bool) = IP_RENEWAL_FLAG 17 "IP renewal flag";
    /// Ways of IP mobility.
    IpMobility(IpMobility) = IP_MOBILITY 18 "mobility management";
    /// Ways to an IP address.
    IpConfigMethods(IpConfigMethods) = IP_CONFIG_METHODS 19 "IP configuration methods";
    /// Why a link was lost.
    LinkDownReason(LinkDownReason) = LINK_DOWN_REASON 20 "link down reason";
    /// In how many milliseconds.
    TimeInterval(u16) = TIME_INTERVAL 21 "time interval";
    /// Why a link will be lost.
    LinkGoingDownReason(LinkGoingDownReason) = LINK_GOING_DOWN_REASON 22 "link going down reason";
    /// Measurements.
    LinkParameterReports(Vec<LinkParamReport>) = LINK_PARAMETER_REPORT_LIST 23 "link parameter report list";
    /// The requested states of a device.
    DeviceStates(DeviceStates) = DEVICE_STATES 24 "device states request";
    /// Interfaces.
    LinkIdentifierList(Vec<LinkId>) = LINK_IDENTIFIER_LIST 25 "link identifier list";
    /// The states of a device.
    DeviceStateList(Vec<DeviceState>) = DEVICE_STATE_LIST 26 "device states response list";
    /// The requested states of links.
    StatusRequest(LinkStatusRequest) = STATUS_REQUEST 27 "get status request set";
    /// The states of links.
    StatusResponses(Vec<LinkStatus>) = STATUS_RESPONSE_LIST 28 "get status response list";
    /// Thresholds to set.
    ConfigureRequests(Vec<LinkCfgParam>) = CONFIGURE_REQUEST_LIST 29 "configure request list";
    /// Thresholds that were to be set.
    ConfigureResponses(Vec<LinkCfgStatus>) = CONFIGURE_RESPONSE_LIST 30 "configure response list";
    /// Points of attachment: candidates, or the network's suggestion.
    LinkPoaLists(Vec<LinkPoaList>) = LINK_POA_LIST 31 "list of link PoA list";
    /// The preferred of them, the best first.
    PreferredLinks(Vec<PreferredLink>) = PREFERRED_LINK_LIST 32 "preferred link list";
    /// Service qualities that a handover needs.
    ResourceQuery(QosList) = RESOURCE_QUERY 33 "handover resource query list";
    /// Whether a station will hand over.
    HandoverStatus(HandoverStatus) = HANDOVER_STATUS 34 "handover status";
    /// The access router.
    AccessRouter(IpAddr) = ACCESS_ROUTER 35 "access router address";
    /// The DHCP server.
    DhcpServer(IpAddr) = DHCP_SERVER 36 "DHCP server address";
    /// The foreign agent.
    ForeignAgent(IpAddr) = FOREIGN_AGENT 37 "FA address";
    /// The requested actions of links.
    LinkActions(Vec<LinkAction>) = LINK_ACTION_LIST 38 "link actions list";
    /// The results of the actions.
    LinkActionOutcomes(Vec<LinkActionOutcome>) = LINK_ACTION_RESULT_LIST 39 "link actions result list";
    /// How a handover ended.
    HandoverResult(HandoverResult) = HANDOVER_RESULT 40 "handover result";
    /// Whether the resources are there.
    ResourceStatus(bool) = RESOURCE_STATUS 41 "resource status";
    /// Whether resources are kept.
    ResourceRetention(bool) = RESOURCE_RETENTION 42 "resource retention status";
    /// Binary queries.
    Queries(Vec<BinaryQuery>) = QUERY_LIST 43 "info query binary data list";
    /// How many octets an answer may have.
    MaxResponseSize(u16) = MAX_RESPONSE_SIZE 47 "max response size";
    /// Answers to binary queries.
    Answers(Vec<NetworkList>) = ANSWER_LIST 48 "info response binary data list";
    /// The station's MIHF.
    MnMihfId(MihfId) = MN_MIHF_ID 52 "mobile node MIHF ID";
    /// Whether the network wants a report of resources.
    QueryResourceReport(bool) = QUERY_RESOURCE_REPORT_FLAG 53 "query resource report flag";
    /// The conditions for events.
    EventConfigs(Vec<EventConfig>) = EVENT_CONFIG_LIST 54 "event configuration info list";
    /// The target network of a station.
    TargetNetwork(TargetNetwork) = TARGET_NETWORK 55 "target network info";
    /// The possible target networks of a station.
    TargetNetworks(Vec<TargetNetwork>) = TARGET_NETWORK_LIST 56 "list of target network info";
    /// Resources that are kept.
    AssignedResources(AssignedResources) = ASSIGNED_RESOURCES 57 "assigned resource set";
    /// Links that could be used.
    LinksDetected(Vec<LinkDetected>) = LINK_DETECTED_LIST 58 "link detected info list";
    /// The station's interface in the new network.
    MnLinkIdentifier(LinkId) = MN_LINK_IDENTIFIER 59 "MN link ID";
    /// The point of attachment in the new network.
    Poa(LinkAddr) = POA 60 "PoA";
    /// True if the requester is not authenticated.
    UnauthenticatedRequest(bool) = UNAUTHENTICATED_REQUEST 61 "unauthenticated information request";
    /// The requester's network.
    NetworkType(NetworkType) = NETWORK_TYPE 62 "network type";
    /// Resources that are wanted.
    RequestedResources(RequestedResources) = REQUESTED_RESOURCES 63 "requested resource set";
}

impl Tlv {
    /// Returns a padding parameter with this number of zero octets.
    pub fn padding(octets: usize) -> Self {
        Self::Other { kind: kind::PADDING, value: alloc::vec![0; octets] }
    }
    /// Appends the parameter.
    pub fn emit(&self, w: &mut OctetWriter<'_>) {
        let mut value = Vec::with_capacity(64);
        self.write_parameter_value(&mut OctetWriter::new(&mut value));
        w.write_u8(self.kind());
        write_mih_length(w, value.len());
        w.write_bytes(&value);
    }
    /// Returns the octets of the encoded parameter.
    pub fn encoded_length(&self) -> usize {
        let mut value = Vec::new();
        self.write_parameter_value(&mut OctetWriter::new(&mut value));
        1 + length_octets(value.len()) + value.len()
    }
}

/// Reads the type and value of the next parameter.
pub(crate) fn next_parameter<'a>(r: &mut OctetReader<'a>) -> Result<(u8, &'a [u8]), ValueError> {
    let kind = r.read_u8()?;
    let n = read_mih_length(r)?;
    if n > r.remaining() {
        return Err(TruncatedInputError { needed: n, left: r.remaining() }.into());
    }
    Ok((kind, r.read_bytes(n)?))
}

/// Decodes the parameter of a type and value.
pub(crate) fn decode_parameter(kind: u8, value: &[u8]) -> Result<Tlv, ValueError> {
    match Tlv::read(kind, value) {
        // A query with the location of its station has another form, which has no type here, so its octets are kept.
        Err(ValueError::Choice(_)) if kind == kind::QUERY_LIST => {
            Ok(Tlv::Other { kind, value: value.to_vec() })
        }
        other => other,
    }
}

impl fmt::Display for Tlv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match kind::name(kind) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "parameter {kind}")?,
        }
        match self {
            Self::Source(id) | Self::Destination(id) | Self::MnMihfId(id) => write!(f, " {id}"),
            Self::Status(v) => write!(f, " {v}"),
            Self::LinkType(v) => write!(f, " {v}"),
            Self::LinkIdentifier(v) | Self::NewLinkIdentifier(v) => write!(f, " {v}"),
            Self::MnLinkIdentifier(v) => write!(f, " {v}"),
            Self::Poa(v) | Self::OldAccessRouter(v) | Self::NewAccessRouter(v) => write!(f, " {v}"),
            Self::LinkDownReason(v) => write!(f, " {v}"),
            Self::LinkGoingDownReason(v) => write!(f, " {v}"),
            Self::TimeInterval(v) => write!(f, " {v} ms"),
            Self::ValidTimeInterval(v) => write!(f, " {v} s"),
            Self::HandoverStatus(v) => write!(f, " {v}"),
            Self::HandoverResult(v) => write!(f, " {v}"),
            Self::ResourceStatus(v) | Self::ResourceRetention(v) => write!(f, " {v}"),
            Self::Other { value, .. } => write!(f, " of {} octets", value.len()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{NetworkInfo, PoaInfo};
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn encode_tlv(tlv: &Tlv) -> Vec<u8> {
        let mut out = Vec::new();
        tlv.emit(&mut OctetWriter::new(&mut out));
        out
    }

    fn parse_tlv(octets: &[u8]) -> Result<Tlv, ValueError> {
        let mut r = OctetReader::new(octets);
        let (kind, value) = next_parameter(&mut r)?;
        assert!(r.is_empty());
        decode_parameter(kind, value)
    }

    #[track_caller]
    fn assert_vector(tlv: Tlv, octets: &[u8]) {
        assert_eq!(encode_tlv(&tlv), octets);
        assert_eq!(parse_tlv(octets), Ok(tlv));
    }

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

    #[test]
    fn parameters_have_the_octets_of_the_dissector_s_rules() {
        assert_vector(Tlv::Source(MihfId::new("mn").unwrap()), &[1, 3, 2, b'm', b'n']);
        assert_vector(Tlv::Destination(MihfId::multicast()), &[2, 1, 0]);
        assert_vector(Tlv::Status(Status::Rejected), &[3, 1, 2]);
        assert_vector(
            Tlv::EventList(EventList::LINK_DETECTED.with(EventList::LINK_GOING_DOWN)),
            &[5, 4, 0x88, 0, 0, 0],
        );
        assert_vector(Tlv::TransportList(TransportList::TCP), &[8, 2, 0x40, 0]);
        assert_vector(Tlv::TimeInterval(500), &[21, 2, 1, 0xf4]);
        let link = LinkId::from_mac(LinkType::Ieee80216, MAC);
        let address = [0, 0, 6, 6, 2, 0, 0, 0, 0, 7];
        assert_vector(
            Tlv::LinkIdentifier(LinkTupleId { link: link.clone(), poa: Some(LinkAddr::Mac(MAC)) }),
            &[&[13, 22, 27][..], &address, &[1], &address].concat(),
        );
        assert_vector(Tlv::MnLinkIdentifier(link.clone()), &[&[59, 11, 27][..], &address].concat());
        assert_vector(
            Tlv::TargetNetwork(TargetNetwork::Poa(LinkAddr::Mac(MAC))),
            &[&[55, 11, 1][..], &address].concat(),
        );
        let report = LinkParamReport {
            param: LinkParam { kind: LinkParamType::SIGNAL_STRENGTH, value: LinkParamValue::Number(0xffb0) },
            threshold: Some(Threshold { value: 0xffb5, direction: ThresholdDirection::Below }),
        };
        assert_vector(
            Tlv::LinkParameterReports(alloc::vec![report]),
            &[23, 10, 1, 0, 1, 0, 0xff, 0xb0, 1, 0xff, 0xb5, 1],
        );
        let class = |value| alloc::vec![CosValue { class: 3, value }];
        let qos = QosList { classes: 1, max_delay: class(50), loss: class(2), ..QosList::default() };
        let resources = RequestedResources {
            qos,
            container: TspContainer::Predefined(9),
            cause: HandoverCause::NoBroadcast,
        };
        assert_vector(
            Tlv::RequestedResources(resources),
            &[63, 15, 1, 0, 0, 1, 3, 0, 50, 0, 1, 3, 0, 2, 1, 9, 3],
        );
        let action = LinkAction {
            link,
            poa: None,
            action: LinkActionType::PowerUp,
            attributes: LinkActionAttributes::SCAN.with(LinkActionAttributes::RETAIN_RESOURCES),
            delay: 100,
        };
        let rest = [0, 4, 0xc0, 0, 100];
        assert_vector(
            Tlv::LinkActions(alloc::vec![action]),
            &[&[38, 17, 1, 27][..], &address, &rest].concat(),
        );
    }

    #[test]
    fn a_long_value_has_a_long_length() {
        let tlv = Tlv::padding(300);
        assert_eq!(encode_tlv(&tlv)[..3], [254, 0x81, 172]);
        assert_eq!(tlv.encoded_length(), 303);
        assert_eq!(encode_tlv(&Tlv::padding(128))[..3], [254, 0x80, 0]);
        assert_eq!(tlv.to_string(), "parameter 254 of 300 octets");
    }

    #[test]
    fn values_of_another_form_are_refused() {
        assert_eq!(parse_tlv(&[3, 2, 0, 0]), Err(ValueError::Trailing(1)));
        assert_eq!(parse_tlv(&[41, 1, 2]), Err(ValueError::Boolean(2)));
        assert_eq!(parse_tlv(&[60, 2, 9, 0]), Err(ValueError::Choice(9)));
        assert!(matches!(parse_tlv(&[1, 2, 2, b'm']), Err(ValueError::Truncated(_))));
        assert!(matches!(parse_tlv(&[25, 1, 200]), Err(ValueError::Truncated(_))));
    }

    #[test]
    fn a_query_that_says_where_its_station_is_is_kept_as_it_came() {
        let octets = [43, 3, 1, 1, 0];
        assert_eq!(
            parse_tlv(&octets),
            Ok(Tlv::Other { kind: kind::QUERY_LIST, value: alloc::vec![1, 1, 0] })
        );
    }

    #[test]
    fn elements_that_are_not_typed_are_passed_over() {
        let poa = [&[0x10, 0, 2, 0, 10, 0, 0, 6, 6][..], &MAC].concat();
        let cost = [0x10, 0, 1, 3, 2, 0xaa, 0xbb];
        let network = [&cost[..], &[0x10, 0, 3, 2, poa.len() as u8], &poa].concat();
        let list = [&[0x10, 0, 3, 1, network.len() as u8][..], &network].concat();
        let answer = [&[1, 0x10, 0, 3, 0, list.len() as u8][..], &list].concat();
        let parsed = parse_tlv(&[&[48, answer.len() as u8][..], &answer].concat());
        let poas = alloc::vec![PoaInfo { address: LinkAddr::Mac(MAC), location: None }];
        let info = NetworkInfo { poas, ..NetworkInfo::default() };
        assert_eq!(parsed, Ok(Tlv::Answers(alloc::vec![NetworkList(alloc::vec![info])])));
    }

    #[test]
    fn every_typed_parameter_has_a_name_and_its_number() {
        for kind in kind::ALL {
            assert!(kind::name(*kind).is_some());
        }
        assert_eq!((kind::ALL.len(), kind::name(44), kind::name(kind::VENDOR)), (57, None, None));
    }

    fn any_parameter() -> impl Strategy<Value = Tlv> {
        proptest::sample::select(kind::ALL).prop_flat_map(samples::of_kind)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn parameters_are_read_as_written(tlv in any_parameter()) {
            let octets = encode_tlv(&tlv);
            prop_assert_eq!(octets.len(), tlv.encoded_length());
            prop_assert!(!tlv.to_string().is_empty());
            prop_assert_eq!(parse_tlv(&octets), Ok(tlv));
        }
        #[test]
        fn cut_parameters_are_refused(tlv in any_parameter(), at: proptest::sample::Index) {
            let octets = encode_tlv(&tlv);
            let cut = &octets[..at.index(octets.len())];
            prop_assert!(next_parameter(&mut OctetReader::new(cut)).is_err());
        }
        #[test]
        fn any_octets_are_read_without_harm(
            kind in proptest::sample::select(kind::ALL),
            value in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            if let Ok(tlv) = decode_parameter(kind, &value) {
                let octets = encode_tlv(&tlv);
                prop_assert!(octets.len() <= value.len() + 2);
                prop_assert_eq!(parse_tlv(&octets), Ok(tlv));
            }
        }
    }
}
