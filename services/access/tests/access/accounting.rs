//! Records of accounting.

use crate::world::{CARRIERS, Carrier, Script, World, diameter_config};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use usher_access::{
    AaaConfig, Command, Connections, Event, Failure, NasPort, Record, RecordKind, TerminateCause, Traffic,
};
use usher_core::{CommandError, Duration, Instant};
use usher_diameter::ResultCode;
use usher_diameter::accounting::{Aca, Acr, RecordType};
use usher_diameter::codes;
use usher_diameter::node;
use usher_radius::attribute::kind;
use usher_radius::{Attributes, Code};

fn record(kind: RecordKind, number: u32) -> Record<'static> {
    Record {
        name: b"ann",
        port: NasPort { number: Some(7), calling_station: Some("00-10-A4-23-19-C0"), ..NasPort::default() },
        lasted: Duration::from_secs(90),
        traffic: Some(Traffic {
            input_octets: 0x1_0000_0005,
            output_octets: 7,
            input_packets: 3,
            output_packets: 4,
        }),
        cause: TerminateCause::IdleTimeout,
        classes: &[b"gold", b"west"],
        framed_ip: Some(Ipv4Addr::new(192, 0, 2, 9)),
        framed_ipv6_prefix: Some(("2001:db8:1::".parse().unwrap(), 64)),
        ..Record::new(kind, "00c0ffee", number)
    }
}

const KEEPS: Script = Script {
    radius: |request| {
        let a = &request.attributes;
        let status = a.get_u32(kind::ACCT_STATUS_TYPE).unwrap();
        let starts = status == 1;
        assert_eq!(a.get_text(kind::ACCT_SESSION_ID), Some("00c0ffee"));
        assert_eq!((a.get_text(kind::USER_NAME), a.get_u32(kind::NAS_PORT)), (Some("ann"), Some(7)));
        assert_eq!(a.get_text(kind::CALLING_STATION_ID), Some("00-10-A4-23-19-C0"));
        let counted = [
            (kind::ACCT_SESSION_TIME, 90),
            (kind::ACCT_INPUT_OCTETS, 5),
            (kind::ACCT_INPUT_GIGAWORDS, 1),
            (kind::ACCT_OUTPUT_OCTETS, 7),
            (kind::ACCT_INPUT_PACKETS, 3),
            (kind::ACCT_OUTPUT_PACKETS, 4),
        ];
        for (kind, value) in counted {
            assert_eq!(a.get_u32(kind), (!starts).then_some(value), "{kind}");
        }
        assert_eq!(a.get(kind::ACCT_OUTPUT_GIGAWORDS), None);
        assert_eq!(a.get_u32(kind::ACCT_TERMINATE_CAUSE), (status == 2).then_some(4));
        assert_eq!(a.get_all(kind::CLASS).collect::<Vec<_>>(), [b"gold", b"west"]);
        assert_eq!(a.get_ipv4(kind::FRAMED_IP_ADDRESS), Some(Ipv4Addr::new(192, 0, 2, 9)));
        assert_eq!(a.get(kind::FRAMED_IPV6_PREFIX), Some(&[0, 64, 0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0][..]));
        Some((Code::ACCOUNTING_RESPONSE, Attributes::new()))
    },
    diameter: |message| {
        let acr = Acr::parse(message.avps.view()).unwrap();
        let starts = acr.record_type == RecordType::Start;
        let counted = |n: u64| (!starts).then_some(n);
        assert_eq!((acr.user_name, acr.acct_session_id), (Some("ann"), Some(&b"00c0ffee"[..])));
        assert_eq!((acr.nas.port, acr.session_time), (Some(7), (!starts).then_some(90)));
        assert_eq!((acr.input_octets, acr.output_octets), (counted(0x1_0000_0005), counted(7)));
        assert_eq!((acr.input_packets, acr.output_packets), (counted(3), counted(4)));
        // Idle Timeout (RFC 4005 §9.3.5).
        let stops = acr.record_type == RecordType::Stop;
        assert_eq!(acr.termination_cause, stops.then_some(14));
        let classes = message.avps.view().all(codes::CLASS).map(|a| a.data);
        assert_eq!(classes.collect::<Vec<_>>(), [b"gold", b"west"]);
        assert_eq!(acr.framed_ip, Some(Ipv4Addr::new(192, 0, 2, 9)));
        assert_eq!(acr.framed_ipv6_prefix, Some(&[0, 64, 0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0][..]));
        let Acr { record_type, record_number, .. } = acr;
        Some((ResultCode::SUCCESS, Aca { record_type, record_number }.avps()))
    },
};

#[test]
fn a_session_is_told_from_start_to_stop() {
    for carrier in CARRIERS {
        let mut w = World::new(carrier, 1, KEEPS);
        for (n, kind) in [RecordKind::Start, RecordKind::Interim, RecordKind::Stop].into_iter().enumerate() {
            let now = w.net.now();
            w.net[w.nas].account(now, n as u64, &record(kind, n as u32)).unwrap();
            w.run(1);
            assert_eq!(w.event(), Event::Accounted { token: n as u64, kept: Ok(()) }, "{carrier:?}");
        }
    }
}

#[test]
fn all_records_of_a_session_go_by_one_connection_and_any_can_be_cancelled() {
    let mut config = diameter_config(1).by(Connections::Shared(NonZeroU16::new(2).unwrap()));
    config.node.request_timeout = Some(Duration::from_secs(5));
    let silent = Script { radius: |_| None, diameter: |_| None };
    let mut w = World::with(AaaConfig::Diameter(Box::new(config)), Carrier::Diameter, 1, silent);
    for session in ["00c0ffee", "00c0ffef"] {
        for token in 0..4 {
            let now = w.net.now();
            let record = Record { session, ..record(RecordKind::Interim, token as u32) };
            w.net[w.nas].account(now, token, &record).unwrap();
        }
        w.net.command(w.nas, Command::CancelRecord { token: 2 }).unwrap();
        w.run(100);
        let timed_out = |token| Event::Accounted { token, kept: Err(Failure::Timeout) };
        assert_eq!(w.events(), [0, 1, 3].map(timed_out));
    }
    let told: BTreeSet<_> = w.net.take(w.diameter[0]).into_iter().filter_map(session_of).collect();
    let of = |session: &str| told.iter().filter(|(_, id)| id.ends_with(session)).count();
    assert_eq!((of("00c0ffee"), of("00c0ffef")), (1, 1), "{told:?}");
    let hosts: BTreeSet<_> = told.iter().map(|(host, _)| host).collect();
    assert_eq!(hosts.len(), 2);
}

#[test]
fn a_later_start_names_a_session_of_an_earlier_one_as_that_did() {
    let named = |start| {
        let mut w = World::new(Carrier::Diameter, 1, KEEPS);
        let now = w.net.now();
        let record = Record { start, ..record(RecordKind::Stop, u32::MAX) };
        w.net[w.nas].account(now, 1, &record).unwrap();
        w.run(5);
        w.net.take(w.diameter[0]).into_iter().find_map(session_of).unwrap()
    };
    let (host, id) = named(Some(0x00c0_ffee));
    assert_eq!(id, format!("{host};12648430;00c0ffee"));
    assert_ne!(named(None).1, id);
}

/// Origin-Host and Session-Id of a request.
fn session_of((_, event): (Instant, node::Event)) -> Option<(String, String)> {
    let node::Event::Request { message, .. } = event else { return None };
    let text = |id| message.avps.view().get(id).unwrap().utf8().unwrap().to_owned();
    Some((text(codes::ORIGIN_HOST), text(codes::SESSION_ID)))
}

#[test]
fn a_record_that_is_not_kept_says_why() {
    let refuses = Script {
        radius: |_| None,
        diameter: |_| Some((ResultCode::OUT_OF_SPACE, usher_diameter::AvpBuf::new())),
    };
    for carrier in CARRIERS {
        let mut w = World::new(carrier, 1, refuses);
        let now = w.net.now();
        w.net[w.nas].account(now, 3, &record(RecordKind::Start, 0)).unwrap();
        w.run(100);
        let failure = if carrier == Carrier::Diameter { Failure::Fault(4002) } else { Failure::Timeout };
        assert_eq!(w.event(), Event::Accounted { token: 3, kept: Err(failure) }, "{carrier:?}");
    }
}

#[test]
fn a_record_and_a_question_may_have_one_token_and_a_cancelled_record_is_not_sent_again() {
    let silent = Script { radius: |_| None, diameter: |_| None };
    for carrier in CARRIERS {
        let mut w = World::new(carrier, 1, silent);
        let now = w.net.now();
        let request = usher_access::Request::new(b"ann", usher_access::Proof::Pap(b"x"));
        w.net[w.nas].ask(now, 3, &request).unwrap();
        w.net[w.nas].account(now, 3, &record(RecordKind::Start, 0)).unwrap();
        w.net.command(w.nas, Command::CancelRecord { token: 3 }).unwrap();
        w.run(100);
        assert_eq!(w.event(), Event::Failed { token: 3, failure: Failure::Timeout }, "{carrier:?}");
    }
}

#[test]
fn what_is_owed_goes_as_soon_as_the_server_is_there_again() {
    let config = AaaConfig::Diameter(Box::new(diameter_config(1)));
    let mut w = World::owing(config, Carrier::Diameter, 1, KEEPS);
    w.net.refuse(w.diameter[0], true);
    w.net.cut(w.diameter[0]);
    w.run(1);
    let now = w.net.now();
    w.net[w.nas].account(now, 1, &record(RecordKind::Stop, 1)).unwrap();
    // It rests a minute at a time by then.
    w.run(275);
    assert_eq!(w.events(), []);
    w.net.refuse(w.diameter[0], false);
    w.run(31);
    let said = w.net.take(w.nas);
    let [(up, Event::Peer { up: true, .. }), (kept, Event::Accounted { token: 1, kept: Ok(()) })] = said[..]
    else {
        panic!("{said:?}")
    };
    assert!(kept.since(up) < Duration::from_millis(10), "{up:?} {kept:?}");
}

#[test]
fn a_value_that_does_not_fit_is_refused_and_changes_nothing() {
    let mut w = World::new(Carrier::Udp, 1, KEEPS);
    let (now, long) = (w.net.now(), "x".repeat(254));
    let record = Record { session: &long, ..record(RecordKind::Start, 0) };
    assert!(matches!(w.net[w.nas].account(now, 1, &record), Err(CommandError::Invalid(_))));
    let mut w = World::new(Carrier::Diameter, 1, KEEPS);
    let now = w.net.now();
    let record = Record { name: &[0xff], ..self::record(RecordKind::Start, 0) };
    assert!(matches!(w.net[w.nas].account(now, 1, &record), Err(CommandError::Invalid(_))));
}

/// RFC 2865 §5: User-Name has 253 octets at most, and an EAP identity may have more.
#[test]
fn a_session_of_a_long_name_is_accounted_without_it() {
    let nameless = Script {
        radius: |request| {
            assert_eq!(request.attributes.get(kind::USER_NAME), None);
            assert_eq!(request.attributes.get_text(kind::ACCT_SESSION_ID), Some("00c0ffee"));
            Some((Code::ACCOUNTING_RESPONSE, Attributes::new()))
        },
        diameter: |_| None,
    };
    let mut w = World::new(Carrier::Udp, 1, nameless);
    let (now, long) = (w.net.now(), [b'x'; 305]);
    let record = Record { name: &long, ..record(RecordKind::Start, 0) };
    w.net[w.nas].account(now, 1, &record).unwrap();
    w.run(1);
    assert_eq!(w.event(), Event::Accounted { token: 1, kept: Ok(()) });
}
