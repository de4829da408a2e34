//! Accounting records.

use crate::world::{AccessTestNetwork, CARRIERS, ServerScript, TestTransport, diameter_config};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use usher_access::{
    AaaConfig, AaaRequestFailure, AccessClientCommand, AccessClientEvent, AccountingRecord,
    AccountingRecordKind, DiameterConnections, NasPort, SessionTraffic, TerminateCause,
};
use usher_core::{CommandError, Duration, Instant};
use usher_diameter::ResultCode;
use usher_diameter::accounting::{AccountingAnswer, AccountingRecordType, AccountingRequest};
use usher_diameter::codes;
use usher_diameter::node;
use usher_radius::attribute::kind;
use usher_radius::{AttributeList, PacketCode};

fn test_record(kind: AccountingRecordKind, number: u32) -> AccountingRecord<'static> {
    AccountingRecord {
        name: b"ann",
        port: NasPort { number: Some(7), calling_station: Some("00-10-A4-23-19-C0"), ..NasPort::default() },
        lasted: Duration::from_secs(90),
        traffic: Some(SessionTraffic {
            input_octets: 0x1_0000_0005,
            output_octets: 7,
            input_packets: 3,
            output_packets: 4,
        }),
        cause: TerminateCause::IdleTimeout,
        classes: &[b"gold", b"west"],
        framed_ip: Some(Ipv4Addr::new(192, 0, 2, 9)),
        framed_ipv6_prefix: Some(("2001:db8:1::".parse().unwrap(), 64)),
        ..AccountingRecord::new(kind, "00c0ffee", number)
    }
}

const ACKNOWLEDGING_SERVER: ServerScript = ServerScript {
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
        Some((PacketCode::ACCOUNTING_RESPONSE, AttributeList::new()))
    },
    diameter: |message| {
        let acr = AccountingRequest::parse(message.avps.as_sequence()).unwrap();
        let starts = acr.record_type == AccountingRecordType::Start;
        let counted = |n: u64| (!starts).then_some(n);
        assert_eq!((acr.user_name, acr.acct_session_id), (Some("ann"), Some(&b"00c0ffee"[..])));
        assert_eq!((acr.nas.port, acr.session_time), (Some(7), (!starts).then_some(90)));
        assert_eq!((acr.input_octets, acr.output_octets), (counted(0x1_0000_0005), counted(7)));
        assert_eq!((acr.input_packets, acr.output_packets), (counted(3), counted(4)));
        // Idle Timeout (RFC 4005 §9.3.5).
        let stops = acr.record_type == AccountingRecordType::Stop;
        assert_eq!(acr.termination_cause, stops.then_some(14));
        let classes = message.avps.as_sequence().get_all(codes::CLASS).map(|a| a.data);
        assert_eq!(classes.collect::<Vec<_>>(), [b"gold", b"west"]);
        assert_eq!(acr.framed_ip, Some(Ipv4Addr::new(192, 0, 2, 9)));
        assert_eq!(acr.framed_ipv6_prefix, Some(&[0, 64, 0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0][..]));
        let AccountingRequest { record_type, record_number, .. } = acr;
        Some((ResultCode::SUCCESS, AccountingAnswer { record_type, record_number }.to_avps()))
    },
};

#[test]
fn a_session_is_told_from_start_to_stop() {
    for carrier in CARRIERS {
        let mut w = AccessTestNetwork::new(carrier, 1, ACKNOWLEDGING_SERVER);
        for (n, kind) in
            [AccountingRecordKind::Start, AccountingRecordKind::Interim, AccountingRecordKind::Stop]
                .into_iter()
                .enumerate()
        {
            let now = w.net.now();
            w.net[w.nas].send_record(now, n as u64, &test_record(kind, n as u32)).unwrap();
            w.run_seconds(1);
            assert_eq!(
                w.take_event(),
                AccessClientEvent::Accounted { token: n as u64, result: Ok(()) },
                "{carrier:?}"
            );
        }
    }
}

#[test]
fn records_of_a_session_share_a_connection_and_are_cancellable() {
    let mut config =
        diameter_config(1).with_connections(DiameterConnections::Shared(NonZeroU16::new(2).unwrap()));
    config.node.request_timeout = Some(Duration::from_secs(5));
    let silent = ServerScript { radius: |_| None, diameter: |_| None };
    let mut w = AccessTestNetwork::with_config(
        AaaConfig::Diameter(Box::new(config)),
        TestTransport::Diameter,
        1,
        silent,
    );
    for session in ["00c0ffee", "00c0ffef"] {
        for token in 0..4 {
            let now = w.net.now();
            let record =
                AccountingRecord { session, ..test_record(AccountingRecordKind::Interim, token as u32) };
            w.net[w.nas].send_record(now, token, &record).unwrap();
        }
        w.net.send_command(w.nas, AccessClientCommand::CancelRecord { token: 2 }).unwrap();
        w.run_seconds(100);
        let timed_out =
            |token| AccessClientEvent::Accounted { token, result: Err(AaaRequestFailure::Timeout) };
        assert_eq!(w.take_events(), [0, 1, 3].map(timed_out));
    }
    let told: BTreeSet<_> = w.net.take_events(w.diameter[0]).into_iter().filter_map(session_of).collect();
    let of = |session: &str| told.iter().filter(|(_, id)| id.ends_with(session)).count();
    assert_eq!((of("00c0ffee"), of("00c0ffef")), (1, 1), "{told:?}");
    let hosts: BTreeSet<_> = told.iter().map(|(host, _)| host).collect();
    assert_eq!(hosts.len(), 2);
}

#[test]
fn a_later_start_names_a_session_of_an_earlier_one_as_that_did() {
    let named = |start| {
        let mut w = AccessTestNetwork::new(TestTransport::Diameter, 1, ACKNOWLEDGING_SERVER);
        let now = w.net.now();
        let record = AccountingRecord { start, ..test_record(AccountingRecordKind::Stop, u32::MAX) };
        w.net[w.nas].send_record(now, 1, &record).unwrap();
        w.run_seconds(5);
        w.net.take_events(w.diameter[0]).into_iter().find_map(session_of).unwrap()
    };
    let (host, id) = named(Some(0x00c0_ffee));
    assert_eq!(id, format!("{host};12648430;00c0ffee"));
    assert_ne!(named(None).1, id);
}

/// Origin-Host and Session-Id of a request.
fn session_of((_, event): (Instant, node::DiameterNodeEvent)) -> Option<(String, String)> {
    let node::DiameterNodeEvent::Request { message, .. } = event else { return None };
    let text = |id| message.avps.as_sequence().get(id).unwrap().as_utf8().unwrap().to_owned();
    Some((text(codes::ORIGIN_HOST), text(codes::SESSION_ID)))
}

#[test]
fn a_record_that_is_not_kept_says_why() {
    let refuses = ServerScript {
        radius: |_| None,
        diameter: |_| Some((ResultCode::OUT_OF_SPACE, usher_diameter::AvpBuf::new())),
    };
    for carrier in CARRIERS {
        let mut w = AccessTestNetwork::new(carrier, 1, refuses);
        let now = w.net.now();
        w.net[w.nas].send_record(now, 3, &test_record(AccountingRecordKind::Start, 0)).unwrap();
        w.run_seconds(100);
        let failure = if carrier == TestTransport::Diameter {
            AaaRequestFailure::Fault(4002)
        } else {
            AaaRequestFailure::Timeout
        };
        assert_eq!(
            w.take_event(),
            AccessClientEvent::Accounted { token: 3, result: Err(failure) },
            "{carrier:?}"
        );
    }
}

#[test]
fn a_record_may_share_a_requests_token_and_is_cancelled_alone() {
    let silent = ServerScript { radius: |_| None, diameter: |_| None };
    for carrier in CARRIERS {
        let mut w = AccessTestNetwork::new(carrier, 1, silent);
        let now = w.net.now();
        let request = usher_access::AccessRequest::new(b"ann", usher_access::UserCredentials::Pap(b"x"));
        w.net[w.nas].send_request(now, 3, &request).unwrap();
        w.net[w.nas].send_record(now, 3, &test_record(AccountingRecordKind::Start, 0)).unwrap();
        w.net.send_command(w.nas, AccessClientCommand::CancelRecord { token: 3 }).unwrap();
        w.run_seconds(100);
        assert_eq!(
            w.take_event(),
            AccessClientEvent::Failed { token: 3, failure: AaaRequestFailure::Timeout },
            "{carrier:?}"
        );
    }
}

#[test]
fn what_is_owed_goes_as_soon_as_the_server_is_there_again() {
    let config = AaaConfig::Diameter(Box::new(diameter_config(1)));
    let mut w =
        AccessTestNetwork::with_record_queue(config, TestTransport::Diameter, 1, ACKNOWLEDGING_SERVER);
    w.net.set_refusing_connections(w.diameter[0], true);
    w.net.reset_connections(w.diameter[0]);
    w.run_seconds(1);
    let now = w.net.now();
    w.net[w.nas].send_record(now, 1, &test_record(AccountingRecordKind::Stop, 1)).unwrap();
    // By then it pauses a minute at a time.
    w.run_seconds(275);
    assert_eq!(w.take_events(), []);
    w.net.set_refusing_connections(w.diameter[0], false);
    w.run_seconds(31);
    let said = w.net.take_events(w.nas);
    let [
        (up, AccessClientEvent::Peer { up: true, .. }),
        (kept, AccessClientEvent::Accounted { token: 1, result: Ok(()) }),
    ] = said[..]
    else {
        panic!("{said:?}")
    };
    assert!(kept.duration_since(up) < Duration::from_millis(10), "{up:?} {kept:?}");
}

#[test]
fn a_value_that_does_not_fit_is_refused_and_changes_nothing() {
    let mut w = AccessTestNetwork::new(TestTransport::Udp, 1, ACKNOWLEDGING_SERVER);
    let (now, long) = (w.net.now(), "x".repeat(254));
    let record = AccountingRecord { session: &long, ..test_record(AccountingRecordKind::Start, 0) };
    assert!(matches!(w.net[w.nas].send_record(now, 1, &record), Err(CommandError::Invalid(_))));
    let mut w = AccessTestNetwork::new(TestTransport::Diameter, 1, ACKNOWLEDGING_SERVER);
    let now = w.net.now();
    let record = AccountingRecord { name: &[0xff], ..self::test_record(AccountingRecordKind::Start, 0) };
    assert!(matches!(w.net[w.nas].send_record(now, 1, &record), Err(CommandError::Invalid(_))));
}

/// RFC 2865 §5: User-Name has 253 octets at most, and an EAP identity may have more.
#[test]
fn a_session_of_a_long_name_is_accounted_without_it() {
    let nameless = ServerScript {
        radius: |request| {
            assert_eq!(request.attributes.get(kind::USER_NAME), None);
            assert_eq!(request.attributes.get_text(kind::ACCT_SESSION_ID), Some("00c0ffee"));
            Some((PacketCode::ACCOUNTING_RESPONSE, AttributeList::new()))
        },
        diameter: |_| None,
    };
    let mut w = AccessTestNetwork::new(TestTransport::Udp, 1, nameless);
    let (now, long) = (w.net.now(), [b'x'; 305]);
    let record = AccountingRecord { name: &long, ..test_record(AccountingRecordKind::Start, 0) };
    w.net[w.nas].send_record(now, 1, &record).unwrap();
    w.run_seconds(1);
    assert_eq!(w.take_event(), AccessClientEvent::Accounted { token: 1, result: Ok(()) });
}
