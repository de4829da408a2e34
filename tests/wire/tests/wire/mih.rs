//! MIH messages of each kind and with each parameter, as Wireshark's dissector reads them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use usher_mih::fragment::fragment_message;
use usher_mih::*;
use usher_wire_tests::{CapturedRun, DatagramCapture};

/// The port of MIH over UDP (RFC 5677).
const PORT: u16 = 4551;
const WIFI: [u8; 6] = [2, 0, 0, 0, 0, 1];
const WIMAX: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ACCESS_POINT: [u8; 6] = [2, 0, 0, 0, 1, 1];
const BASE_STATION: [u8; 6] = [2, 0, 0, 0, 1, 2];

fn mihf_ids() -> (MihfId, MihfId) {
    (MihfId::new("mn@usher.example").unwrap(), MihfId::new("pos1@usher.example").unwrap())
}

fn encode_message(message: &MihfMessage, bits: HeaderFlags, transaction: u16) -> Vec<u8> {
    let (source, destination) = mihf_ids();
    let mut out = Vec::new();
    message.encode(bits, TransactionId::new(transaction), &source, &destination, &mut out).unwrap();
    out
}

fn wifi_link() -> LinkTupleId {
    LinkTupleId { link: LinkId::from_mac(LinkType::Ieee80211, WIFI), poa: Some(LinkAddr::Mac(ACCESS_POINT)) }
}

fn wimax_link() -> LinkTupleId {
    LinkTupleId { link: LinkId::from_mac(LinkType::Ieee80216, WIMAX), poa: Some(LinkAddr::Mac(BASE_STATION)) }
}

fn cos_values(value: u16) -> Vec<CosValue> {
    vec![CosValue { class: 1, value }]
}

fn qos_list() -> QosList {
    QosList {
        classes: 1,
        min_delay: cos_values(10),
        avg_delay: cos_values(20),
        max_delay: cos_values(50),
        jitter: cos_values(5),
        loss: cos_values(1),
    }
}

fn candidate_list() -> LinkPoaList {
    LinkPoaList { link: wimax_link().link, poas: vec![LinkAddr::Mac(BASE_STATION)] }
}

fn signal_strength() -> LinkParam {
    LinkParam { kind: LinkParamType::SIGNAL_STRENGTH, value: LinkParamValue::Number(70) }
}

fn sample_threshold() -> Threshold {
    Threshold { value: 75, direction: ThresholdDirection::Below }
}

/// Returns a sample parameter of a type.
fn sample_parameter(kind: u8) -> Tlv {
    let kind80216 = NetworkType::for_technology(LinkType::Ieee80216);
    let address: IpAddr = "192.0.2.7".parse().unwrap();
    let target = TargetNetwork::Poa(LinkAddr::Mac(BASE_STATION));
    let configure = LinkCfgParam {
        kind: LinkParamType::SIGNAL_STRENGTH,
        interval: None,
        action: ThresholdAction::OneShot,
        thresholds: vec![sample_threshold()],
    };
    match kind {
        kind::STATUS => Tlv::Status(Status::Success),
        kind::LINK_TYPE => Tlv::LinkType(LinkType::Ieee80216),
        kind::EVENT_LIST => Tlv::EventList(EventList::LINK_UP.with(EventList::LINK_GOING_DOWN)),
        kind::COMMAND_LIST => Tlv::CommandList(CommandList::LINK_ACTIONS.with(CommandList::MN_HO)),
        kind::QUERY_TYPE_LIST => Tlv::QueryTypeList(QueryTypeList::BINARY),
        kind::TRANSPORT_LIST => Tlv::TransportList(TransportList::UDP.with(TransportList::TCP)),
        kind::LINK_ADDRESS_LIST => {
            Tlv::LinkAddressList(vec![NetTypeAddr { network: kind80216, address: LinkAddr::Mac(WIMAX) }])
        }
        kind::MBB_HANDOVER_SUPPORT => Tlv::MbbHandoverSupport(vec![MbbHandover {
            from: NetworkType::for_technology(LinkType::Ieee80211),
            to: kind80216,
            supported: true,
        }]),
        kind::REGISTER_REQUEST_CODE => Tlv::RegisterCode(RegisterCode::Reregister),
        kind::VALID_TIME_INTERVAL => Tlv::ValidTimeInterval(3600),
        kind::LINK_IDENTIFIER => Tlv::LinkIdentifier(wifi_link()),
        kind::NEW_LINK_IDENTIFIER => Tlv::NewLinkIdentifier(wimax_link()),
        kind::OLD_ACCESS_ROUTER => Tlv::OldAccessRouter(LinkAddr::Mac(ACCESS_POINT)),
        kind::NEW_ACCESS_ROUTER => Tlv::NewAccessRouter(LinkAddr::Other(b"router".to_vec())),
        kind::IP_RENEWAL_FLAG => Tlv::IpRenewal(true),
        kind::IP_MOBILITY => Tlv::IpMobility(IpMobility::MIPV6),
        kind::IP_CONFIG_METHODS => Tlv::IpConfigMethods(IpConfigMethods::DHCPV6),
        kind::LINK_DOWN_REASON => Tlv::LinkDownReason(LinkDownReason::NoBroadcast),
        kind::TIME_INTERVAL => Tlv::TimeInterval(500),
        kind::LINK_GOING_DOWN_REASON => Tlv::LinkGoingDownReason(LinkGoingDownReason::ParameterDegrading),
        kind::LINK_PARAMETER_REPORT_LIST => Tlv::LinkParameterReports(vec![
            LinkParamReport { param: signal_strength(), threshold: Some(sample_threshold()) },
            LinkParamReport {
                param: LinkParam {
                    kind: LinkParamType { group: ParameterGroup::Qos, number: 5 },
                    value: LinkParamValue::Qos(QosValue::Loss(cos_values(3))),
                },
                threshold: None,
            },
        ]),
        kind::DEVICE_STATES => Tlv::DeviceStates(DeviceStates::BATTERY),
        kind::LINK_IDENTIFIER_LIST => Tlv::LinkIdentifierList(vec![wifi_link().link, wimax_link().link]),
        kind::DEVICE_STATE_LIST => {
            Tlv::DeviceStateList(vec![DeviceState::Info(b"laptop".to_vec()), DeviceState::Battery(80)])
        }
        kind::STATUS_REQUEST => Tlv::StatusRequest(LinkStatusRequest {
            // The dissector reads these as if in a response; this value is valid there.
            states: ReportedLinkStates::NONE,
            params: vec![LinkParamType::SIGNAL_STRENGTH],
            descriptors: LinkDescriptors::CLASSES,
        }),
        kind::STATUS_RESPONSE_LIST => Tlv::StatusResponses(vec![LinkStatus {
            link: wifi_link().link,
            states: vec![LinkState::Operation(OperationMode::Normal), LinkState::Channel(6)],
            params: vec![signal_strength()],
            descriptors: vec![LinkDescriptor::Queues(4)],
        }]),
        kind::CONFIGURE_REQUEST_LIST => Tlv::ConfigureRequests(vec![configure]),
        kind::CONFIGURE_RESPONSE_LIST => Tlv::ConfigureResponses(vec![LinkCfgStatus {
            kind: LinkParamType::SIGNAL_STRENGTH,
            threshold: sample_threshold(),
            set: true,
        }]),
        kind::LINK_POA_LIST => Tlv::LinkPoaLists(vec![candidate_list()]),
        kind::PREFERRED_LINK_LIST => Tlv::PreferredLinks(vec![PreferredLink {
            qos: qos_list(),
            ..PreferredLink::new(candidate_list())
        }]),
        kind::RESOURCE_QUERY => Tlv::ResourceQuery(qos_list()),
        kind::HANDOVER_STATUS => Tlv::HandoverStatus(HandoverStatus::Permitted),
        kind::ACCESS_ROUTER => Tlv::AccessRouter(address),
        kind::DHCP_SERVER => Tlv::DhcpServer(address),
        kind::FOREIGN_AGENT => Tlv::ForeignAgent("2001:db8::7".parse().unwrap()),
        kind::LINK_ACTION_LIST => Tlv::LinkActions(vec![LinkAction {
            link: wimax_link().link,
            poa: wimax_link().poa,
            action: LinkActionType::PowerUp,
            attributes: LinkActionAttributes::SCAN,
            delay: 40,
        }]),
        kind::LINK_ACTION_RESULT_LIST => Tlv::LinkActionOutcomes(vec![LinkActionOutcome {
            link: wimax_link().link,
            result: LinkActionResult::Success,
            scan: Some(vec![LinkScan {
                poa: LinkAddr::Mac(BASE_STATION),
                network: b"wimax".to_vec(),
                signal: SignalStrength::Dbm(-71),
            }]),
        }]),
        kind::HANDOVER_RESULT => Tlv::HandoverResult(HandoverResult::Success),
        kind::RESOURCE_STATUS => Tlv::ResourceStatus(true),
        kind::RESOURCE_RETENTION => Tlv::ResourceRetention(false),
        kind::QUERY_LIST => Tlv::Queries(vec![BinaryQuery {
            technologies: Some(TechnologySet::IEEE_802_16),
            elements: Some(vec![InformationElementType::NETWORK_TYPE, InformationElementType::POA_LINK_ADDR]),
            ..BinaryQuery::default()
        }]),
        kind::MAX_RESPONSE_SIZE => Tlv::MaxResponseSize(1400),
        kind::ANSWER_LIST => Tlv::Answers(vec![NetworkList(vec![NetworkInfo {
            network: Some(kind80216),
            operator: Some(Operator { name: b"usher".to_vec(), space: OperatorSpace::General }),
            name: Some(b"wimax".to_vec()),
            poas: vec![PoaInfo { address: LinkAddr::Mac(BASE_STATION), location: None }],
        }])]),
        kind::MN_MIHF_ID => Tlv::MnMihfId(mihf_ids().0),
        kind::QUERY_RESOURCE_REPORT_FLAG => Tlv::QueryResourceReport(true),
        kind::EVENT_CONFIG_LIST => Tlv::EventConfigs(vec![EventConfig::Parameters(vec![configure])]),
        kind::TARGET_NETWORK => Tlv::TargetNetwork(target),
        kind::TARGET_NETWORK_LIST => Tlv::TargetNetworks(vec![target]),
        kind::ASSIGNED_RESOURCES => Tlv::AssignedResources(AssignedResources {
            qos: qos_list(),
            container: TspContainer::Predefined(3),
        }),
        kind::LINK_DETECTED_LIST => Tlv::LinksDetected(vec![LinkDetected {
            link: wimax_link(),
            network: b"wimax".to_vec(),
            auxiliary: Vec::new(),
            signal: SignalStrength::Percent(60),
            sinr: 20,
            rate: 20_000,
            mih: MihCapability::COMMAND,
            capabilities: NetworkCapabilities::INTERNET,
        }]),
        kind::MN_LINK_IDENTIFIER => Tlv::MnLinkIdentifier(wimax_link().link),
        kind::POA => Tlv::Poa(LinkAddr::Mac(BASE_STATION)),
        kind::UNAUTHENTICATED_REQUEST => Tlv::UnauthenticatedRequest(false),
        kind::NETWORK_TYPE => Tlv::NetworkType(kind80216),
        kind::REQUESTED_RESOURCES => Tlv::RequestedResources(RequestedResources {
            qos: qos_list(),
            container: TspContainer::Carrier(b"voice".to_vec()),
            cause: HandoverCause::NoBroadcast,
        }),
        _ => panic!("parameter {kind} has no sample"),
    }
}

/// Returns tshark's name of an action, which may differ from the standard's.
fn tshark_name(name: &str) -> &str {
    match name {
        "MIH_Link_Up" => "MIH_Link_UP",
        "MIH_Link_Parameters_Report" => "MIH_Link_Parameter_Report",
        "MIH_Link_Going_Down" => "MIH_Link_Going_down",
        "MIH_Link_Handover_Complete" => "MIH_Handover_Complete",
        "MIH_Net_HO_Commit" => "MIH_Net_HO-Commit",
        "MIH_N2N_HO_Commit" => "MN_N2N_HO_Commit",
        "MIH_Push_Information" => "MIH_Push_information",
        other => other,
    }
}

#[test]
fn tshark_names_every_message_as_we_do_and_reads_its_header() {
    let message = |id: &MessageId| {
        let params: Vec<_> = id.mandatory().unwrap().iter().map(|kind| sample_parameter(*kind)).collect();
        MihfMessage::new(*id, params)
    };
    let bits = |i: usize| HeaderFlags {
        ack_req: i.is_multiple_of(2),
        ack_rsp: i.is_multiple_of(3),
        uir: i.is_multiple_of(5),
    };
    let payloads: Vec<_> = MessageId::ALL
        .iter()
        .enumerate()
        .map(|(i, id)| encode_message(&message(id), bits(i), 90 * i as u16))
        .collect();
    let datagrams = DatagramCapture::new(PORT, &payloads);
    datagrams.assert_clean();
    let lines = datagrams.tshark_fields(&[
        "_ws.col.Info",
        "mih.version",
        "mih.acq_req",
        "mih.acq_resp",
        "mih.uir",
        "mih.more_frag",
        "mih.frag_no",
        "mih.tid",
        "mih.pay_len",
        "mih.tlv_type",
        "mih.mihf_id",
    ]);
    assert_eq!(lines.len(), MessageId::ALL.len());
    let flag = |on: bool| u8::from(on).to_string();
    for (i, (id, line)) in MessageId::ALL.iter().zip(&lines).enumerate() {
        let service = format!("{:?}", id.service).replace("Management", "Service Management");
        let service =
            if id.service == ServiceId::Management { service } else { format!("{service} Service") };
        let expected = format!("{service} {:?} \"{}\"", id.opcode, tshark_name(id.name().unwrap()));
        assert_eq!(line[0].trim(), expected);
        let bits = bits(i);
        assert_eq!(line[1], "1,1");
        assert_eq!(line[2..5], [flag(bits.ack_req), flag(bits.ack_rsp), flag(bits.uir)], "{id}");
        assert_eq!(line[5..7], ["0", "0"]);
        assert_eq!(line[7..9], [(90 * i).to_string(), (payloads[i].len() - HEADER).to_string()]);
        let kinds = [&[kind::SOURCE, kind::DESTINATION], id.mandatory().unwrap()].concat();
        assert_eq!(line[9], kinds.iter().map(u8::to_string).collect::<Vec<_>>().join(","), "{id}");
        assert!(line[10].starts_with("mn@usher.example,pos1@usher.example"), "{}", line[10]);
    }
}

/// Parameters that the dissector misreads, with its reading.
const MISREAD: [(u8, &str); 4] = [
    (kind::ACCESS_ROUTER, "it takes the address's first octet for its length"),
    (kind::DHCP_SERVER, "the same"),
    (kind::FOREIGN_AGENT, "the same"),
    (kind::EVENT_CONFIG_LIST, "it reads both lists of the choice, one after the other"),
];

/// tshark's fields for the samples of [`sample_parameter`]. For other samples tshark shows no field, or only
/// octets.
const READINGS: &[(u8, &[(&str, &str)])] = &[
    (kind::STATUS, &[("mih.status", "0")]),
    (kind::LINK_TYPE, &[("mih.link_type", "27")]),
    (kind::EVENT_LIST, &[("mih.event_list", "0x48000000")]),
    (kind::COMMAND_LIST, &[("mih.command_list", "0x28000000")]),
    (kind::QUERY_TYPE_LIST, &[("mih.iq_type_list", "0x80000000")]),
    (kind::TRANSPORT_LIST, &[("mih.trans_list", "0xc000")]),
    (kind::REGISTER_REQUEST_CODE, &[("mih.reg_request_code", "1")]),
    (kind::VALID_TIME_INTERVAL, &[("mih.valid_time_interval", "3600")]),
    (kind::LINK_IDENTIFIER, &[("mih.link_type", "19"), ("mih.mac_addr", "02:00:00:00:00:01")]),
    (kind::NEW_LINK_IDENTIFIER, &[("mih.link_type", "27"), ("mih.mac_addr", "02:00:00:00:00:02")]),
    (kind::OLD_ACCESS_ROUTER, &[("mih.mac_addr", "02:00:00:00:01:01")]),
    (kind::NEW_ACCESS_ROUTER, &[("mih.link_addr_string", "router")]),
    (kind::IP_RENEWAL_FLAG, &[("mih.ip_renewal", "1")]),
    (kind::IP_MOBILITY, &[("mih.mob_list", "0x2000")]),
    (kind::IP_CONFIG_METHODS, &[("mih.cfg_mthds", "0x00080000")]),
    (kind::LINK_DOWN_REASON, &[("mih.link_dn_reason", "3")]),
    (kind::TIME_INTERVAL, &[("mih.time_interval", "500")]),
    (kind::LINK_GOING_DOWN_REASON, &[("mih.link_gdn_reason", "1")]),
    (
        kind::LINK_PARAMETER_REPORT_LIST,
        &[
            ("mih.link_param_gen", "1"),
            ("mih.link_param_value", "70"),
            ("mih.threshold_val", "75"),
            ("mih.threshold_x_dir", "1"),
            ("mih.link_param_qos", "5"),
            ("mih.cos_value", "3"),
        ],
    ),
    (kind::DEVICE_STATES, &[("mih.dev_states_req", "0x4000")]),
    (
        kind::LINK_IDENTIFIER_LIST,
        &[("mih.link_type", "19,27"), ("mih.mac_addr", "02:00:00:00:00:01,02:00:00:00:00:02")],
    ),
    (
        kind::DEVICE_STATE_LIST,
        &[("mih.dev_states_resp.dev_info", "laptop"), ("mih.dev_states_resp.batt_level", "80")],
    ),
    (
        kind::STATUS_RESPONSE_LIST,
        &[
            ("mih.op_mode", "0"),
            ("mih.channel_id", "6"),
            ("mih.link_param_value", "70"),
            ("mih.num_queue", "4"),
        ],
    ),
    (kind::CONFIGURE_REQUEST_LIST, &[("mih.link_param_gen", "1"), ("mih.threshold_action", "1")]),
    (kind::CONFIGURE_RESPONSE_LIST, &[("mih.threshold_val", "75"), ("mih.config_status", "1")]),
    (kind::LINK_POA_LIST, &[("mih.mac_addr", "02:00:00:00:00:02,02:00:00:00:01:02")]),
    (
        kind::PREFERRED_LINK_LIST,
        &[("mih.mac_addr", "02:00:00:00:00:02,02:00:00:00:01:02"), ("mih.cos_value", "10,20,50,5,1")],
    ),
    (kind::RESOURCE_QUERY, &[("mih.num_cos", "1"), ("mih.cos_value", "10,20,50,5,1")]),
    (kind::HANDOVER_STATUS, &[("mih.ho_status", "0")]),
    (
        kind::LINK_ACTION_LIST,
        &[
            ("mih.mac_addr", "02:00:00:00:00:02,02:00:00:00:01:02"),
            ("mih.link_ac_type", "4"),
            ("mih.link_ac_attr", "0x80"),
            ("mih.link_ac_ext_time", "40"),
        ],
    ),
    (
        kind::LINK_ACTION_RESULT_LIST,
        &[("mih.link_ac_result", "0"), ("mih.network_id", "wimax"), ("mih.sig_strength", "-71")],
    ),
    (kind::HANDOVER_RESULT, &[("mih.status", "0")]),
    (kind::RESOURCE_STATUS, &[("mih.res_status", "1")]),
    (kind::RESOURCE_RETENTION, &[("mih.res_retention_status", "0")]),
    (kind::MAX_RESPONSE_SIZE, &[("mih.max_resp_size", "1400")]),
    (kind::MN_MIHF_ID, &[("mih.mihf_id", "mn@usher.example,pos1@usher.example,mn@usher.example")]),
    (kind::QUERY_RESOURCE_REPORT_FLAG, &[("mih.res_rpt_flag", "1")]),
    (kind::TARGET_NETWORK, &[("mih.mac_addr", "02:00:00:00:01:02")]),
    (kind::TARGET_NETWORK_LIST, &[("mih.mac_addr", "02:00:00:00:01:02")]),
    (kind::ASSIGNED_RESOURCES, &[("mih.cos_value", "10,20,50,5,1"), ("mih.predef_cfg_id", "3")]),
    (
        kind::LINK_DETECTED_LIST,
        &[("mih.mac_addr", "02:00:00:00:00:02,02:00:00:00:01:02"), ("mih.network_id", "wimax")],
    ),
    (kind::MN_LINK_IDENTIFIER, &[("mih.link_type", "27"), ("mih.mac_addr", "02:00:00:00:00:02")]),
    (kind::POA, &[("mih.mac_addr", "02:00:00:00:01:02")]),
    (kind::UNAUTHENTICATED_REQUEST, &[("mih.unauth_info_req", "0")]),
    (
        kind::REQUESTED_RESOURCES,
        &[("mih.cos_value", "10,20,50,5,1"), ("mih.tsp_carrier", "voice"), ("mih.ho_reason", "3")],
    ),
];

#[test]
fn tshark_reads_every_parameter_as_it_was_meant() {
    let misread = |kind: u8| MISREAD.iter().any(|(other, _)| *other == kind);
    let kinds: Vec<u8> = kind::ALL[2..].iter().copied().filter(|kind| !misread(*kind)).collect();
    let message =
        |kind: &u8| MihfMessage::new(MessageId::CAPABILITY_DISCOVER_REQUEST, [sample_parameter(*kind)]);
    let payloads: Vec<_> =
        kinds.iter().map(|kind| encode_message(&message(kind), HeaderFlags::default(), 1)).collect();
    let datagrams = DatagramCapture::new(PORT, &payloads);
    datagrams.assert_clean();
    let names: BTreeSet<&str> =
        READINGS.iter().flat_map(|(_, fields)| *fields).map(|(name, _)| *name).collect();
    let names: Vec<&str> = names.into_iter().chain(["mih.tlv_type", "mih.tlv_length"]).collect();
    let lines = datagrams.tshark_fields(&names);
    assert_eq!(lines.len(), kinds.len());
    let mut wrong = Vec::new();
    for (kind, line) in kinds.iter().zip(&lines) {
        let said = |name: &str| &line[names.iter().position(|n| *n == name).unwrap()];
        assert_eq!(said("mih.tlv_type"), &format!("1,2,{kind}"));
        let readings = READINGS.iter().filter(|(other, _)| other == kind).flat_map(|(_, fields)| *fields);
        wrong.extend(
            readings.filter(|(name, value)| said(name) != value).map(|r| (kind::name(*kind), r, said(r.0))),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn tshark_reads_padded_messages_and_fragments() {
    let (source, destination) = mihf_ids();
    let query = MihfMessage::new(MessageId::GET_INFORMATION_REQUEST, [sample_parameter(kind::QUERY_LIST)]);
    let padded = query.with_padding_to_length(1000, &source, &destination).unwrap();
    let whole = encode_message(&padded, HeaderFlags { ack_req: true, ..HeaderFlags::default() }, 4095);
    assert_eq!(whole.len(), 1000);
    let pieces = fragment_message(&whole, 400).unwrap();
    assert_eq!(pieces.len(), 3);
    let acknowledgement = MihfMessage::acknowledgement(padded.id);
    let acknowledgement =
        encode_message(&acknowledgement, HeaderFlags { ack_rsp: true, ..HeaderFlags::default() }, 4095);
    let datagrams = DatagramCapture::new(PORT, &[&[whole][..], &pieces, &[acknowledgement]].concat());
    datagrams.assert_clean();
    let lines = datagrams.tshark_fields(&[
        "mih.acq_req",
        "mih.acq_resp",
        "mih.more_frag",
        "mih.frag_no",
        "mih.tlv_type",
    ]);
    let expected = [
        ["1", "0", "0", "0", "1,2,43,254"],
        ["1", "0", "1", "0", ""],
        ["1", "0", "1", "1", ""],
        ["1", "0", "0", "2", ""],
        ["0", "1", "0", "0", "1,2"],
    ];
    assert_eq!(lines, expected);
}

#[test]
fn tshark_reads_the_handovers_of_the_studies() {
    // Register, the subscription if the network leads, and the flow's messages over the 802.11 cell.
    for (study, transport, names) in [
        ("handover-mn", "UDP, 0.1 s", &["MIH_MN_HO_Candidate_Query", "MIH_MN_HO_Commit"][..]),
        ("handover-mn", "TCP, 1 s", &["MIH_MN_HO_Candidate_Query", "MIH_MN_HO_Commit"]),
        (
            "handover-net",
            "UDP, 0.3 s",
            &["MIH_Link_Going_Down", "MIH_Net_HO_Candidate_Query", "MIH_Net_HO_Commit"],
        ),
        (
            "handover-net",
            "TCP, 0.5 s",
            &["MIH_Link_Going_Down", "MIH_Net_HO_Candidate_Query", "MIH_Net_HO_Commit"],
        ),
    ] {
        let run = CapturedRun::from_founding_study(study, &[("loss", "0 %"), ("transport", transport)]);
        run.assert_clean();
        assert_eq!(run.metric("success"), 1.0, "{study} {transport}");
        let seen = run.tshark_fields("mih", &["_ws.col.Info"]);
        for name in names {
            let named = format!("\"{}\"", tshark_name(name));
            assert!(seen.iter().any(|info| info[0].contains(&named)), "{study} {transport} {name} {seen:?}");
        }
    }
}

#[test]
fn tshark_reads_the_messages_of_the_studies() {
    for (study, message, ack) in [
        ("mih-udp", "indication", "without"),
        ("mih-udp", "request", "with"),
        ("mih-tcp", "indication", "with"),
        ("mih-tcp", "request", "without"),
    ] {
        let set = [
            ("loss", "20 %"),
            ("message", message),
            ("ack", ack),
            ("run.duration", "60 s"),
            ("run.drain", "60 s"),
        ];
        let run = CapturedRun::from_founding_study(study, &set);
        run.assert_clean();
        // At least one packet each half second, unless messages share a TCP segment.
        assert!(run.frame_count("mih") > 60, "{study} {message} {ack}: {}", run.frame_count("mih"));
    }
}
