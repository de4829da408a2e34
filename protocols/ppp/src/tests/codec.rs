//! Codecs: the examples of the RFCs, properties, arbitrary octets.

use super::*;
use crate::auth::message::{ChapPacketData, PapRequest, ms_chap_v2_error, pap_message};
use crate::packet::{ConfigOption, ConfigOptionError, ControlCode, ControlPacket, PacketError, PppProtocol};
use crate::pppoe::{FrameError, PppoeErrorTag, PppoeTagError};
use proptest::prelude::*;

const HOST: MacAddress = MacAddress([0, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e]);

/// RFC 2516, appendix B.
#[test]
fn the_rfcs_examples_are_read_and_written() {
    let padi = [&[0xff; 6][..], &HOST.0, &[0x88, 0x63, 0x11, 0x09, 0, 0, 0, 4, 1, 1, 0, 0]].concat();
    let any = DiscoveryTags { services: vec![b""], ..DiscoveryTags::default() };
    assert_eq!(discovery_frame(HOST, MacAddress::BROADCAST, PppoeCode::PADI, 0, &any), padi);
    let name = b"Go RedBack - eshshesh";
    assert_ne!(name.len(), 0x18, "the example's length is 24, its name that follows has 24 octets");
    let name = [
        0x47, 0x6f, 0x20, 0x52, 0x65, 0x64, 0x42, 0x61, 0x63, 0x6b, 0x20, 0x2d, 0x20, 0x65, 0x73, 0x68, 0x73,
        0x68, 0x65, 0x73, 0x68, 0x6f, 0x6f, 0x74,
    ];
    let header = [0x88, 0x63, 0x11, 0x07, 0, 0, 0, 0x20, 1, 1, 0, 0, 1, 2, 0, 0x18];
    let pado = [&HOST.0[..], &AC.0, &header, &name].concat();
    let frame = PppoeFrame::parse(&pado).unwrap();
    assert_eq!((frame.code, frame.session, frame.destination, frame.source), (PppoeCode::PADO, 0, HOST, AC));
    let tags = DiscoveryTags::parse(frame.payload).unwrap();
    assert_eq!(tags, DiscoveryTags { ac_name: Some(&name), ..any });
    assert_eq!(discovery_frame(AC, HOST, PppoeCode::PADO, 0, &tags), pado);
    assert_eq!(frame.to_string(), "PADO 02:00:00:00:00:ac > 00:0a:0b:0c:0d:0e, session 0, 32 octets");
}

#[test]
fn what_is_no_frame_says_why() {
    let good = discovery_frame(HOST, AC, PppoeCode::PADR, 0, &DiscoveryTags::default());
    let with = |at: usize, octet| {
        let mut frame = good.clone();
        frame[at] = octet;
        PppoeFrame::parse(&frame).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(with(12, 8), Err("EtherType 0x0863 is not PPPoE's".into()));
    assert_eq!(with(14, 0x12), Err("PPPoE version and type 0x12 are not 0x11".into()));
    assert_eq!(with(19, 1), Err("the frame is truncated: 1 bytes needed, 0 left".into()));
    assert!(matches!(PppoeFrame::parse(&good[..13]), Err(FrameError::Truncated(_))));
    let padded = [&good[..], &[0; 40]].concat();
    assert_eq!(PppoeFrame::parse(&padded), PppoeFrame::parse(&good));
}

#[test]
fn tags_of_wrong_lengths_are_refused_and_unknown_ones_ignored() {
    let wrong = |octets: &[u8]| DiscoveryTags::parse(octets).unwrap_err();
    assert_eq!(wrong(&[1, 1, 0, 5, 0]), PppoeTagError { tag: 0x0101, length: 5 });
    assert_eq!(wrong(&[1, 0x20, 0, 1, 0]), PppoeTagError { tag: 0x0120, length: 1 });
    assert!(DiscoveryTags::parse(&[1, 1, 0]).is_err());
    // An unknown tag, End-Of-List, and octets after it.
    let tags = DiscoveryTags::parse(&[9, 9, 0, 2, 1, 2, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 9]).unwrap();
    assert_eq!(tags, DiscoveryTags { services: vec![b""], ..DiscoveryTags::default() });
    // The DSL Forum's tag, as an access node writes it (RFC 4679): circuit, remote, and a rate that is ignored.
    let line = b"\x01\x05\x00\x17\x00\x00\x0d\xe9\x01\x07eth 0/1\x02\x02me\x81\x04\x00\x00\x10\x00";
    let tags = DiscoveryTags::parse(line).unwrap();
    assert_eq!((tags.circuit_id, tags.remote_id), (Some(&b"eth 0/1"[..]), Some(&b"me"[..])));
    // Tags of another vendor, or with a wrong inner length, are ignored.
    for other in
        [&b"\x01\x05\x00\x06\x00\x00\x00\x09\x01\x00"[..], b"\x01\x05\x00\x06\x00\x00\x0d\xe9\x01\x09"]
    {
        assert_eq!(DiscoveryTags::parse(other), Ok(DiscoveryTags::default()));
    }
}

#[test]
fn control_packets_and_options_say_what_is_wrong() {
    assert_eq!(ControlPacket::parse(&[1, 2, 0]), Err(PacketError::Truncated(3)));
    assert_eq!(ControlPacket::parse(&[1, 2, 0, 3]), Err(PacketError::ShortLength(3)));
    assert_eq!(ControlPacket::parse(&[1, 2, 0, 5]), Err(PacketError::Truncated(4)));
    let padded = ControlPacket::parse(&[1, 2, 0, 5, 7, 0, 0]).unwrap();
    assert_eq!((padded.data, padded.to_string()), (&[7][..], "Configure-Request 2, 1 octets".into()));
    let wrong = |octets: &[u8]| ConfigOption::parse_all_options(octets).unwrap_err();
    assert_eq!(wrong(&[1, 4, 0, 0, 5, 6, 1]), ConfigOptionError { offset: 4, length: 6, left: 3 });
    assert_eq!(wrong(&[1, 1]), ConfigOptionError { offset: 0, length: 1, left: 2 });
    assert_eq!(wrong(&[1]), ConfigOptionError { offset: 0, length: 0, left: 1 });
    assert_eq!(PppProtocol::split_packet(&[0xc0]), None);
    assert_eq!([PppProtocol::LCP.to_string(), PppProtocol(0x80fd).to_string()], ["LCP", "protocol 0x80fd"]);
    assert_eq!([ControlCode(77).to_string(), PppoeCode(1).to_string()], ["code 77", "code 0x01"]);
}

#[test]
fn messages_for_people_and_of_ms_chap_are_found() {
    assert_eq!(
        (pap_message(b"\x02hi"), pap_message(b"\x09hi"), pap_message(b"")),
        (&b"hi"[..], &b"hi"[..], &b""[..])
    );
    assert_eq!(ms_chap_v2_error(b"E=691 R=0 C=00 V=3 M=no"), Some(691));
    for other in [&b"E= R=0"[..], b"", b"691", b"E=99999999999999999999"] {
        assert_eq!(ms_chap_v2_error(other), None);
    }
    // RFC 1334 §2.2.1, with a name of three octets.
    let request = PapRequest::parse(b"\x03bob\x00").unwrap();
    assert_eq!((request.name, request.password), (&b"bob"[..], &b""[..]));
    assert!(PapRequest::parse(b"\x03bo").is_err() && ChapPacketData::parse(b"\x03ab").is_err());
}

/// Both forms of RFC 5072 §4.1, and RFC 4862's link-local address.
#[test]
fn an_interface_identifier_comes_of_an_ethernet_address() {
    let of = InterfaceIdentifier::from_eui48_address([0x00, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f]);
    assert_eq!(
        (of.to_string(), of.link_local().to_string()),
        ("021b:2cff:fe3d:4e5f".into(), "fe80::21b:2cff:fe3d:4e5f".into())
    );
}

fn octets_up_to(most: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..most)
}

proptest! {
    #[test]
    fn what_is_emitted_is_parsed(
        services in proptest::collection::vec(octets_up_to(20), 0..4),
        once in proptest::array::uniform4(proptest::option::of(octets_up_to(40))),
        max_payload: Option<u16>,
        line in proptest::array::uniform2(proptest::option::of(octets_up_to(64))),
        errors in proptest::collection::vec((0usize..3, octets_up_to(20)), 0..3),
    ) {
        let kinds = [PppoeErrorTag::ServiceName, PppoeErrorTag::AcSystem, PppoeErrorTag::Generic];
        let [ac_name, host_uniq, cookie, relay_session_id] = once.each_ref().map(Option::as_deref);
        let [circuit_id, remote_id] = line.each_ref().map(Option::as_deref);
        let tags = DiscoveryTags {
            services: services.iter().map(|name| &name[..]).collect(),
            ac_name,
            host_uniq,
            cookie,
            relay_session_id,
            max_payload,
            circuit_id,
            remote_id,
            errors: errors.iter().map(|(kind, text)| (kinds[*kind], &text[..])).collect(),
        };
        let mut out = Vec::new();
        tags.emit(&mut out);
        prop_assert_eq!(DiscoveryTags::parse(&out), Ok(tags));
    }

    #[test]
    fn arbitrary_octets_do_no_harm(bytes in octets_up_to(300)) {
        prop_assert!(crate::fuzz::check_message(&bytes));
        prop_assert!(crate::fuzz::fuzz_pppoe_endpoints(&bytes));
    }

    #[test]
    fn a_session_with_altered_frames_never_skips_authentication(bytes in octets_up_to(400)) {
        prop_assert!(crate::fuzz::fuzz_pppoe_session(&bytes));
    }
}
