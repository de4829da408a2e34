use super::packet::{ParsedPacket, TcpSegment};
use super::*;
use proptest::prelude::*;
use usher_scenario::{PlanOverrides, Study, StudyMode};

/// Returns the message names of the first point of a founding study whose key contains these words.
fn message_names(study: &str, words: &[&str]) -> Vec<String> {
    let study = Study::open(study).unwrap();
    let plan = study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
    let has = |point: &&PlanPoint| words.iter().all(|word| point.key.contains(word));
    let point = plan.points.iter().find(has).unwrap_or_else(|| panic!("no point has {words:?}"));
    let ladder = record_message_flow(point, 0, None).unwrap().expect("a dialogue ended");
    assert!(ladder.messages.windows(2).all(|m| m[0].sent <= m[1].sent), "in the order of sending");
    assert!(ladder.messages.iter().all(|m| m.from != m.to && m.arrived.is_none_or(|a| a >= m.sent)));
    ladder
        .messages
        .iter()
        .map(|m| format!("{} > {}: {}", ladder.hosts[m.from], ladder.hosts[m.to], m.name))
        .collect()
}

/// Asserts that these names follow each other, with others between them.
#[track_caller]
fn in_order(names: &[String], expected: &[&str]) {
    let mut rest = names.iter();
    for wanted in expected {
        assert!(
            rest.any(|name| name == wanted),
            "{wanted} is missing or out of order:\n{}",
            names.join("\n")
        );
    }
}

#[test]
fn an_authentication_over_radius() {
    let names = message_names("aaa-hol", &["loss=0 %", "RADIUS/UDP", "eap-md5"]);
    in_order(
        &names,
        &[
            "station > nas: EAP-Transfer (EAP-Response/Identity)",
            "nas > server: Access-Request (EAP-Response/Identity)",
            "server > nas: Access-Challenge (EAP-Request/MD5-Challenge)",
            "nas > server: Access-Request (EAP-Response/MD5-Challenge)",
            "server > nas: Access-Accept (EAP-Success)",
        ],
    );
    // A hundred stations share the server: the figure shows only one station's messages.
    assert_eq!(names.iter().filter(|n| n.contains("Access-Accept")).count(), 1, "{names:#?}");
}

#[test]
fn an_authentication_over_diameter() {
    for transport in ["Diameter/TCP", "Diameter/SCTP"] {
        let names = message_names("aaa-hol", &["loss=0 %", transport, "eap-md5"]);
        in_order(
            &names,
            &[
                "nas > server: Diameter-EAP-Request (EAP-Response/Identity)",
                "server > nas: Diameter-EAP-Answer (EAP-Request/MD5-Challenge)",
                "nas > server: Diameter-EAP-Request (EAP-Response/MD5-Challenge)",
                "server > nas: Diameter-EAP-Answer (EAP-Success)",
            ],
        );
    }
}

#[test]
fn an_ike_sa_with_eap() {
    let names = message_names("ike-auth", &["TLS"]);
    in_order(
        &names,
        &[
            "initiator > responder: IKE_SA_INIT request 0",
            "responder > initiator: IKE_SA_INIT response 0",
            "initiator > responder: IKE_AUTH request 1",
            "responder > server: Access-Request (EAP-Response/Identity)",
            "server > responder: Access-Challenge (EAP-Request/EAP-TLS)",
            "responder > initiator: IKE_AUTH response 1",
            "server > responder: Access-Accept (EAP-Success)",
        ],
    );
}

#[test]
fn a_pppoe_session() {
    let names = message_names("pppoe-many", &["plane=user"]);
    in_order(
        &names,
        &[
            "client > concentrator: PADI",
            "concentrator > client: PADO",
            "client > concentrator: PADR",
            "concentrator > client: PADS",
            "client > concentrator: LCP Configure-Request",
            "concentrator > client: LCP Configure-Ack",
            "concentrator > client: IPCP Configure-Ack",
        ],
    );
}

#[test]
fn the_dialogue_that_is_shown() {
    let dialogue = |began, completed, counts, data| ObservedDialogue {
        workload: String::new(),
        host_index: Some(0),
        started_at: Instant::from_nanos(began),
        ended_at: Instant::from_nanos(began + 1),
        completed,
        counts,
        data,
    };
    let warming_up = dialogue(1, true, false, false);
    let page = dialogue(2, true, true, true);
    let failed = dialogue(3, false, true, false);
    let counted = dialogue(4, true, true, false);
    let later = dialogue(5, true, true, false);
    let by_preference = [&counted, &later, &warming_up, &page, &failed];
    for (i, best) in by_preference.iter().enumerate() {
        // The choice does not depend on the order of the ends.
        assert_eq!(choose_dialogue(by_preference[i..].iter().rev().copied()), Some(*best));
    }
}

#[test]
fn a_message_of_802_21_and_a_handover() {
    let indication = message_names("mih-udp", &["loss=0 %", "indication", "with;"]);
    assert!(indication.iter().any(|n| n.starts_with("mn > pos: MIH_")), "{indication:#?}");
    let handover = message_names("handover-mn", &["loss=0 %"]);
    in_order(
        &handover,
        &[
            "mn > pos: MIH_MN_HO_Candidate_Query.request",
            "pos > mn: MIH_MN_HO_Candidate_Query.response",
            "mn > pos: MIH_MN_HO_Commit.request",
            "pos > mn: MIH_MN_HO_Commit.response",
        ],
    );
    assert!(handover.iter().any(|n| n.ends_with(": Binding Update")), "{handover:#?}");
}

#[test]
fn a_point_gives_the_same_ladder_again() {
    let study = Study::open("mih-udp").unwrap();
    let plan = study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
    assert_eq!(
        record_message_flow(&plan.points[0], 0, None).unwrap(),
        record_message_flow(&plan.points[0], 0, None).unwrap()
    );
}

#[test]
fn a_stream_names_retransmissions_and_messages_in_two_parts() {
    let mut streams = TransportStreamTable::default();
    let header = [1u8, 0, 0, 20, 0x80, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    let long = [&[1u8, 0, 0, 24, 0x80, 0, 1, 24, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1][..], &[0; 4]].concat();
    let segment = |sequence, payload| TcpSegment { ports: [40_000, 3868], sequence, flags: 16, payload };
    let mut say = |sequence, payload| {
        let (named, again) = streams.label_tcp_segment(None, &segment(sequence, payload));
        (named.into_iter().map(|n| n.name).collect::<Vec<_>>(), again)
    };
    let one = |name: &str| vec![name.to_owned()];
    assert_eq!(say(100, &header), (one("Capabilities-Exchange-Request"), false));
    assert_eq!(say(100, &header), (one("Capabilities-Exchange-Request"), true));
    assert_eq!(say(120, &long[..22]), (one("Device-Watchdog-Request (first part)"), false));
    assert_eq!(say(142, &long[22..]), (one("Device-Watchdog-Request"), false));
    assert_eq!(say(142, &[]), (Vec::new(), false), "an acknowledgement says nothing");
}

proptest! {
    #[test]
    fn arbitrary_octets_never_panic(
        octets in proptest::collection::vec(any::<u8>(), 0..200), ethernet: bool, ports in any::<[u16; 2]>(),
        known in proptest::sample::select(vec![1812u16, 2083, 3868, 4551, 4191, 500, 4500, 113])
    ) {
        let mut streams = TransportStreamTable::default();
        for port in [ports[1], known] {
            let ports = [ports[0], port];
            let _ = name::name_datagram(ports, &octets);
            for sequence in [0u32, 7, u32::MAX] {
                let _ = streams.label_tcp_segment(None, &TcpSegment { ports, sequence, flags: octets.first().copied().unwrap_or(16), payload: &octets });
            }
        }
        for kind in [0x0800u16, 0x86dd, 0x8863, 0x8864, 0x888e, 0x88b5] {
            let frame = [&[0; 12][..], &kind.to_be_bytes(), &octets].concat();
            for whole in [&frame[..], &octets] {
                if let Some(parsed) = ParsedPacket::parse(whole, ethernet) {
                    let _ = label_traced_packet(&parsed, &mut streams);
                }
            }
        }
    }
}
