//! Parsing of accounting records.

use super::*;
use core::net::IpAddr;
use proptest::collection::vec;
use proptest::prelude::*;
use usher_diameter::accounting::{AccountingRecordType, AccountingRequest};
use usher_diameter::data::AvpTime;
use usher_radius::AttributeList;
use usher_radius::attribute::kind;

const SOURCE: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1));

fn stop_attributes() -> AttributeList {
    let mut a = AttributeList::new();
    a.push_text(kind::USER_NAME, "anna").unwrap();
    a.push_u32(kind::ACCT_STATUS_TYPE, 2).push_text(kind::ACCT_SESSION_ID, "abc").unwrap();
    a.push_text(kind::NAS_IDENTIFIER, "nas1").unwrap().push_u32(kind::NAS_PORT, 7);
    a
}

#[test]
fn an_accounting_request_is_read() {
    let mut a = stop_attributes();
    a.push_u32(kind::ACCT_SESSION_TIME, 90).push_u32(kind::ACCT_DELAY_TIME, 5);
    a.push_u32(kind::ACCT_INPUT_OCTETS, 7).push_u32(52, 2).push_u32(kind::ACCT_OUTPUT_OCTETS, 8);
    a.push_u32(kind::ACCT_TERMINATE_CAUSE, 1).push_u32(kind::NAS_PORT_TYPE, 19);
    a.push_ipv4(kind::FRAMED_IP_ADDRESS, [10, 0, 0, 7].into());
    a.push_bytes(kind::FRAMED_IPV6_PREFIX, &[0, 32, 0x20, 1, 0x0d, 0xb8]).unwrap();
    a.push_bytes(kind::CLASS, &[0, 255]).unwrap().push_bytes(kind::CALLED_STATION_ID, b"\0x\xff").unwrap();
    let r = LedgerRecord::from_radius(&a, SOURCE, wall_at(100)).unwrap();
    assert_eq!((r.status, r.occurred_at, r.timed), (AccountingStatusType::Stop, wall_at(95), true));
    assert_eq!(r.session, NasSessionKey { nas: SOURCE, id: "abc".into(), user: "anna".into() });
    // md5sum of anna,abc,192.0.2.1,nas1,,7
    assert_eq!(r.unique.to_string(), "e79eebaf3088bcd8109e6cf472efcebb");
    assert_eq!((r.input_octets, r.output_octets), (Some((2 << 32) + 7), Some(8)));
    assert_eq!((r.session_time, r.terminate_cause, r.port_type), (Some(90), Some(1), Some(19)));
    assert_eq!(r.framed_address, Some([10, 0, 0, 7].into()));
    assert_eq!(r.framed_prefix, Some(("2001:db8::".parse().unwrap(), 32)));
    assert_eq!((r.port.as_str(), r.called_station_id.as_str()), ("7", "\\x00x\\xff"));
    assert_eq!(r.class, [0, 255]);

    let mut a = AttributeList::new();
    a.push_u32(kind::ACCT_STATUS_TYPE, 1).push_text(kind::ACCT_SESSION_ID, "0001").unwrap();
    a.push_text(kind::USER_NAME, "bob@example.org").unwrap().push_text(kind::NAS_PORT_ID, "ge-0/1").unwrap();
    a.push_ipv6(kind::NAS_IPV6_ADDRESS, "2001:db8::1".parse().unwrap());
    let r = LedgerRecord::from_radius(&a, SOURCE, wall_at(100)).unwrap();
    assert_eq!(
        (r.session.nas, r.timed, r.occurred_at),
        ("2001:db8::1".parse().unwrap(), false, wall_at(100))
    );
    // md5sum of bob@example.org,0001,2001:db8::1,,ge-0/1,
    assert_eq!(r.unique.to_string(), "99b1861cd48cf9866aa49e1850eeb62c");
}

#[test]
fn a_time_is_believed_where_it_can_be_true() {
    let at = |stamp: u64, delay: Option<u32>| {
        let mut a = stop_attributes();
        a.push_u32(kind::EVENT_TIMESTAMP, stamp as u32);
        if let Some(delay) = delay {
            a.push_u32(kind::ACCT_DELAY_TIME, delay);
        }
        let r = LedgerRecord::from_radius(&a, SOURCE, wall_at(100)).unwrap();
        (r.occurred_at.unix_secs() - BEGIN, r.timed)
    };
    assert_eq!(at(BEGIN + 40, Some(3)), (40, true));
    assert_eq!(at(BEGIN + 101, None), (101, true), "its clock is ahead");
    assert_eq!(at(BEGIN + 400, Some(3)), (400, true));
    assert_eq!(at(BEGIN + 401, Some(3)), (97, true), "further than clocks are");
    assert_eq!(at(BEGIN + 5000, Some(3)), (97, true));
    assert_eq!(at(BEGIN + 5000, None), (100, false));
    assert_eq!(at(600, None), (100, false));
    // Without a delay the event time is the arrival, to a fraction of a second.
    let came = wall_at(100) + Duration::from_millis(500);
    for delay in [None, Some(0)] {
        let mut a = stop_attributes();
        if let Some(delay) = delay {
            a.push_u32(kind::ACCT_DELAY_TIME, delay);
        }
        assert_eq!(LedgerRecord::from_radius(&a, SOURCE, came).unwrap().occurred_at, came);
    }
}

#[test]
fn diameters_causes_are_told_in_radiuss_words() {
    // RFC 6733 section 8.15 by number, RFC 2866 section 5.10.
    for (diameter, radius) in [
        (1, 1),  // DIAMETER_LOGOUT, User-Request
        (2, 15), // DIAMETER_SERVICE_NOT_PROVIDED, Service-Unavailable
        (3, 15), // DIAMETER_BAD_ANSWER
        (4, 6),  // DIAMETER_ADMINISTRATIVE, Admin-Reset
        (5, 2),  // DIAMETER_LINK_BROKEN, Lost-Carrier
        (6, 5),  // DIAMETER_AUTH_EXPIRED, Session-Timeout
        (7, 1),  // DIAMETER_USER_MOVED
        (8, 5),  // DIAMETER_SESSION_TIMEOUT
        (0, 9),  // what is not assigned, NAS-Error
        (10, 9),
        // From 11 on RADIUS's own, ten higher (RFC 4005 section 9.3.5).
        (11, 1),
        (28, 18),
    ] {
        assert_eq!(crate::ledger::record::terminate_cause(diameter), radius, "{diameter}");
    }
}

#[test]
fn what_is_no_record_is_refused_by_name() {
    let read = |fill: &dyn Fn(&mut AttributeList)| {
        let mut a = AttributeList::new();
        fill(&mut a);
        LedgerRecord::from_radius(&a, SOURCE, wall_at(0)).map(|r| r.status)
    };
    assert_eq!(read(&|_| {}), Err(AccountingRecordError::NoStatus));
    let status = |n: u32| {
        move |a: &mut AttributeList| {
            a.push_u32(kind::ACCT_STATUS_TYPE, n);
        }
    };
    assert_eq!(read(&status(1)), Err(AccountingRecordError::NoSession));
    assert_eq!(read(&status(9)), Err(AccountingRecordError::UnknownStatus(9)));
    assert_eq!(read(&status(7)), Ok(AccountingStatusType::On));
    assert_eq!(read(&status(8)), Ok(AccountingStatusType::Off));
    let short = |a: &mut AttributeList| {
        a.push_bytes(kind::ACCT_STATUS_TYPE, &[1]).unwrap();
    };
    assert_eq!(read(&short), Err(AccountingRecordError::BadValue(40)));
    let mut a = stop_attributes();
    a.push_bytes(kind::ACCT_INPUT_OCTETS, &[1, 2]).unwrap();
    assert_eq!(LedgerRecord::from_radius(&a, SOURCE, wall_at(0)), Err(AccountingRecordError::BadValue(42)));
    // Invalid descriptive attributes are left out.
    let mut a = stop_attributes();
    a.push_bytes(kind::FRAMED_IP_ADDRESS, &[1, 2])
        .unwrap()
        .push_bytes(kind::FRAMED_IPV6_PREFIX, &[0, 200])
        .unwrap();
    let r = LedgerRecord::from_radius(&a, SOURCE, wall_at(0)).unwrap();
    assert_eq!((r.framed_address, r.framed_prefix), (None, None));
}

#[test]
fn nobody_is_the_access_server_of_no_address() {
    let mut a = AttributeList::new();
    a.push_bytes(kind::NAS_IP_ADDRESS, &[0; 4]).unwrap();
    assert_eq!(nas_of(&a, SOURCE), SOURCE);
    a.push_bytes(kind::NAS_IPV6_ADDRESS, &[0; 16]).unwrap();
    assert_eq!(nas_of(&a, SOURCE), SOURCE);
    let mut a = AttributeList::new();
    a.push_bytes(kind::NAS_IPV6_ADDRESS, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0]).unwrap();
    assert_eq!(nas_of(&a, SOURCE), SOURCE);
    a.push_bytes(kind::NAS_IP_ADDRESS, &[10, 0, 0, 1]).unwrap();
    assert_eq!(nas_of(&a, SOURCE), IpAddr::from([10, 0, 0, 1]));
}

#[test]
fn an_acr_is_read() {
    let mut acr = AccountingRequest::new(AccountingRecordType::Stop, 2);
    acr.user_name = Some("anna");
    acr.session_id = Some("nas.example.org;1;2");
    acr.origin_host = Some("nas.example.org");
    acr.event_timestamp = Some(AvpTime::avp_time_from_wall(wall_at(90)));
    acr.termination_cause = Some(14);
    acr.input_octets = Some(1 << 40);
    acr.nas.port = Some(4);
    acr.framed_ipv6_prefix = Some(&[0, 8, 0x20]);
    let r = LedgerRecord::from_diameter(&acr, "nas.example.org", SOURCE, wall_at(100));
    assert_eq!((r.status, r.occurred_at, r.timed), (AccountingStatusType::Stop, wall_at(90), true));
    assert_eq!(
        (r.session.id.as_str(), r.nas_identifier.as_str()),
        ("nas.example.org;1;2", "nas.example.org")
    );
    assert_eq!((r.terminate_cause, r.input_octets, r.port.as_str()), (Some(4), Some(1 << 40), "4"));
    assert_eq!(r.framed_prefix, Some(("2000::".parse().unwrap(), 8)));
    for (diameter, radius) in [(1, 1), (4, 6), (5, 2), (8, 5), (9, 9), (11, 1), (32, 22)] {
        acr.termination_cause = Some(diameter);
        assert_eq!(
            LedgerRecord::from_diameter(&acr, "nas.example.org", SOURCE, wall_at(100)).terminate_cause,
            Some(radius)
        );
    }
    acr.acct_session_id = Some(b"r1");
    acr.record_type = AccountingRecordType::Event;
    let r = LedgerRecord::from_diameter(&acr, "nas.example.org", SOURCE, wall_at(100));
    assert_eq!((r.status, r.session.id.as_str()), (AccountingStatusType::Stop, "r1"));
}

#[test]
fn a_record_is_of_the_origin_that_is_authenticated() {
    let mut acr = AccountingRequest::new(AccountingRecordType::Stop, 2);
    acr.session_id = Some("nas.example.org;1;2");
    acr.origin_host = Some("nas.example.org");
    let unique = |acr: &AccountingRequest<'_>, origin: &str| {
        LedgerRecord::from_diameter(acr, origin, SOURCE, wall_at(100)).unique
    };
    let own = unique(&acr, "nas.example.org");
    assert_ne!(unique(&acr, "other.example.org"), own);
    acr.origin_host = Some("other.example.org");
    assert_ne!(unique(&acr, "nas.example.org"), own);
    // As version 0.1.0 wrote it, so that its open sessions continue.
    acr.origin_host = Some("NAS.example.org");
    let parts = ["", "nas.example.org;1;2", "NAS.example.org/192.0.2.1", "NAS.example.org", "", ""];
    assert_eq!(
        unique(&acr, "nas.example.org"),
        UniqueSessionId::from_freeradius_parts(parts.map(str::as_bytes))
    );
}

#[test]
fn unique_ids_are_read_as_they_are_written() {
    let text = "0123456789abcdef0123456789abcdef";
    let first = UniqueSessionId::parse(text).unwrap();
    assert_eq!(first.to_string(), text);
    let third = UniqueSessionId { generation: 2, ..first };
    assert_eq!(third.to_string(), "0123456789abcdef0123456789ab-002");
    assert_eq!(UniqueSessionId::parse(&third.to_string()).unwrap().to_string(), third.to_string());
    for bad in [
        "",
        "0123",
        "0123456789abcdef0123456789abcdeg",
        "0123456789abcdef0123456789ab-000",
        "0123456789abcdef0123456789abéab",
    ] {
        assert_eq!(UniqueSessionId::parse(bad), None, "{bad}");
    }
}

proptest! {
    /// Any input is a record or an error. Its texts fit any store, and its row can be read back as the session.
    #[test]
    fn any_attributes_are_read(pieces in vec((0..60_u8, vec(any::<u8>(), 0..20)), 0..30), status in 1..4_u32) {
        let mut a = AttributeList::new();
        a.push_u32(kind::ACCT_STATUS_TYPE, status);
        for (kind, value) in pieces {
            a.push_bytes(kind, &value).unwrap();
        }
        if let Ok(record) = LedgerRecord::from_radius(&a, SOURCE, wall_at(1000)) {
            prop_assert!(record.occurred_at <= wall_at(1000) + CLOCK_DIFFERENCE);
            let mut w = LedgerFixture::default();
            prop_assert!(w.commit_at(1000, &record));
            let row = w.only_row();
            let texts = [&row.username, &row.acctsessionid, &row.nasportid, &row.callingstationid, &row.class];
            prop_assert!(texts.iter().all(|t| !t.chars().any(char::is_control)));
            let again = session::LedgerSession::of_row(&row, 0).unwrap().to_row();
            if row.acctstoptime.is_none() {
                prop_assert_eq!(again, row);
            }
            prop_assert!(w.commit_at(1001, &record));
            prop_assert_eq!(w.rows().len(), 1);
        }
    }
}

/// RFC 2866 §5.5 and §5.11, RFC 5080 §2.3.2: session ids are text; other octets are escaped.
#[test]
fn what_names_sessions_is_text() {
    let mut a = AttributeList::new();
    a.push_u32(kind::ACCT_STATUS_TYPE, 1)
        .push_bytes(kind::ACCT_SESSION_ID, "1\u{e9}\u{7}".as_bytes())
        .unwrap();
    a.push_bytes(50, b"m\xff").unwrap();
    let r = LedgerRecord::from_radius(&a, SOURCE, wall_at(100)).unwrap();
    assert_eq!((r.session.id.as_str(), r.multi_session_id.as_str()), ("1\u{e9}\\x07", "m\\xff"));
}
