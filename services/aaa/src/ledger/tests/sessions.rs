//! The rows that sequences of records lead to.

use super::*;
use crate::store::StoreChange;
use AccountingStatusType::{Interim, Off, On, Start, Stop};
use core::net::Ipv4Addr;

#[test]
fn a_session_is_one_row_from_start_to_stop() {
    let mut w = LedgerFixture::default();
    let mut start = build_record(Start, "1", 10);
    start.framed_address = Some("10.0.0.7".parse().unwrap());
    start.class = [0xab, 1].into();
    start.port = "ge-0/1".into();
    start.port_type = Some(15);
    assert!(w.send_record(&start));
    assert_eq!(w.ledger.len(), 1);
    let row = w.only_row();
    assert_eq!(row.acctstarttime, Some(wall_at(10)));
    assert_eq!((row.acctstoptime, row.interims), (None, 0));
    assert_eq!(
        (row.realm.as_str(), row.class.as_str(), row.nasportid.as_str()),
        ("example.org", "ab01", "ge-0/1")
    );
    assert_eq!(row.nasporttype, "Ethernet");
    assert_eq!(w.ledger.find_sessions(SessionFilter::Address("10.0.0.7".parse().unwrap())), [row]);

    assert!(w.send_record(&counted_record(Interim, "1", 70, 60, 5)));
    let mut stop = counted_record(Stop, "1", 100, 90, 7_000_000_000);
    stop.terminate_cause = Some(4);
    assert!(w.send_record(&stop));
    let row = w.only_row();
    assert_eq!((row.acctstoptime, row.acctsessiontime, row.interims), (Some(wall_at(100)), 90, 1));
    assert_eq!((row.acctinputoctets, row.acctoutputoctets), (7_000_000_000, 70_000_000_000));
    assert_eq!((row.acctterminatecause.as_str(), row.class.as_str()), ("Idle-Timeout", "ab01"));
    assert!(
        w.ledger.is_empty() && w.ledger.find_sessions(SessionFilter::User("anna@example.org")).is_empty()
    );
    assert_eq!(w.ledger.unwritten_change_count(), 0);
}

#[test]
fn a_retransmitted_record_is_acknowledged_and_changes_no_row() {
    let mut w = LedgerFixture::default();
    let records = [
        build_record(Start, "1", 10),
        counted_record(Interim, "1", 70, 60, 5),
        counted_record(Interim, "1", 130, 120, 9),
        counted_record(Stop, "1", 190, 180, 12),
    ];
    for (i, record) in records.iter().enumerate() {
        assert!(w.send_record(record));
        let row = w.only_row();
        // Acct-Delay-Time makes its event time the same, or nearly.
        for again in &records[..=i] {
            let mut again = again.clone();
            again.occurred_at = again.occurred_at + Duration::from_secs(1);
            assert!(w.commit_at(200, &again));
            assert_eq!(w.only_row(), row, "{again:?}");
        }
        // A restart of the server too.
        w.restart_host(300);
        for again in &records[..=i] {
            assert!(w.commit_at(300, again));
            assert_eq!(w.only_row(), row, "{again:?}");
        }
    }
}

#[test]
fn a_nas_that_says_no_times_may_retransmit_for_a_while() {
    let mut w = LedgerFixture::default();
    let untimed = |mut record: LedgerRecord| {
        (record.timed, record.stamped) = (false, false);
        record
    };
    assert!(w.send_record(&untimed(build_record(Start, "1", 10))));
    assert!(w.send_record(&untimed(build_record(Start, "1", 40))));
    assert_eq!(w.session_spans(), [(10, None)]);
    assert!(w.send_record(&untimed(counted_record(Stop, "1", 60, 50, 1))));
    assert!(w.send_record(&untimed(counted_record(Stop, "1", 90, 50, 1))));
    assert!(w.send_record(&untimed(build_record(Start, "1", 100))));
    assert_eq!(w.session_spans(), [(10, Some(60))]);
    assert!(w.send_record(&untimed(build_record(Start, "1", 200))));
    assert_eq!(w.session_spans(), [(10, Some(60)), (200, None)]);
}

#[test]
fn a_record_that_waited_on_its_way_tells_of_no_other_session() {
    let mut w = LedgerFixture::default();
    // Acct-Delay-Time gives the delay until sending, not the time in queues.
    let delayed = |at: u64| {
        let mut record = build_record(Start, "1", at);
        record.stamped = false;
        record
    };
    assert!(w.send_record(&delayed(10)));
    assert!(w.send_record(&delayed(19)));
    assert_eq!(w.session_spans(), [(10, None)]);
    // Nor does a NAS that sets the time anew at each retransmission.
    assert!(w.send_record(&build_record(Start, "1", 69)));
    assert_eq!(w.session_spans(), [(10, None)]);
    assert!(w.send_record(&build_record(Start, "1", 131)), "nobody retransmits for so long");
    assert_eq!(w.session_spans(), [(10, Some(10)), (131, None)]);
}

#[test]
fn a_start_may_be_retransmitted_only_for_the_configured_time() {
    for (secs, sessions) in [(70, 1), (71, 2)] {
        let mut w = LedgerFixture::default();
        assert!(
            w.send_record(&build_record(Start, "1", 10)) && w.send_record(&build_record(Start, "1", secs))
        );
        assert_eq!(w.rows().len(), sessions, "{secs}");
    }
}

#[test]
fn what_comes_late_is_of_the_session_of_its_own_name() {
    let mut w = LedgerFixture::default();
    assert!(
        w.send_record(&build_record(Start, "1", 10)) && w.send_record(&counted_record(Stop, "1", 50, 40, 4))
    );
    // Its NAS reuses the id without a User-Name.
    let mut nameless = build_record(Start, "1", 60);
    nameless.session.user = "".into();
    nameless.unique = LedgerRecord::new(Start, nameless.session.clone(), nameless.occurred_at).unique;
    assert!(w.send_record(&nameless));
    for (secs, length) in [(40, 30), (55, 45)] {
        assert!(w.commit_at(70, &counted_record(Interim, "1", secs, length, 3)));
    }
    assert_eq!((w.session_spans(), w.ledger.counters().late), (vec![(10, Some(50)), (60, None)], 2));
    assert!(w.rows().iter().all(|row| row.interims == 0));
}

#[test]
fn among_many_sessions_each_is_found_by_what_is_its_own() {
    let mut w = LedgerFixture::default();
    let nas = NAS.parse().unwrap();
    let address = |n: u32| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + n));
    let of = |n: u32, status, secs| {
        let mut record = build_record(status, &n.to_string(), secs);
        record.session.user = alloc::format!("user{n}");
        record.unique = LedgerRecord::new(status, record.session.clone(), record.occurred_at).unique;
        record.framed_address = Some(address(n));
        record
    };
    for n in 0..1000 {
        assert!(w.send_record(&of(n, Start, 10)));
    }
    assert!(!w.ledger.is_empty());
    for n in (0..1000).step_by(2) {
        assert!(w.send_record(&of(n, Stop, 20)));
    }
    for n in 0..1000 {
        let open = (n % 2) as usize;
        let user = w.ledger.find_sessions(SessionFilter::User(&alloc::format!("user{n}"))).len();
        let id = w.ledger.table.open_sessions_by_acct_id(nas, &n.to_string()).count();
        let by_address = w.ledger.find_sessions(SessionFilter::Address(address(n))).len();
        assert_eq!([user, by_address, id], [open; 3], "{n}");
    }
    assert_eq!((w.ledger.len(), w.ledger.find_sessions(SessionFilter::Nas(nas)).len()), (500, 500));
}

#[test]
fn records_out_of_order_end_in_the_same_row() {
    let records = [
        build_record(Start, "1", 10),
        counted_record(Interim, "1", 70, 60, 5),
        counted_record(Interim, "1", 130, 120, 9),
        counted_record(Stop, "1", 190, 180, 12),
    ];
    for order in [[3, 0, 1, 2], [1, 0, 3, 2], [0, 2, 1, 3], [2, 1, 3, 0], [3, 2, 1, 0]] {
        let mut w = LedgerFixture::default();
        for i in order {
            assert!(w.commit_at(200, &records[i]), "{order:?}");
        }
        let row = w.only_row();
        assert_eq!(
            (row.acctstarttime, row.acctstoptime),
            (Some(wall_at(10)), Some(wall_at(190))),
            "{order:?}"
        );
        assert_eq!((row.acctsessiontime, row.acctinputoctets), (180, 12), "{order:?}");
        assert!(w.ledger.is_empty());
    }
}

#[test]
fn late_interims_are_counted_and_not_written_back() {
    let mut w = LedgerFixture::default();
    for r in [
        build_record(Start, "1", 0),
        counted_record(Interim, "1", 120, 120, 9),
        counted_record(Interim, "1", 60, 60, 5),
    ] {
        assert!(w.commit_at(130, &r));
    }
    assert_eq!((w.only_row().acctinputoctets, w.only_row().interims), (9, 1));
    assert_eq!((w.ledger.counters().late, w.ledger.counters().updated), (1, 1));
}

#[test]
fn an_id_that_its_nas_uses_again_is_another_session() {
    let mut w = LedgerFixture::default();
    assert!(w.send_record(&build_record(Start, "1", 10)));
    assert!(w.send_record(&counted_record(Stop, "1", 50, 40, 4)));
    assert!(w.send_record(&build_record(Start, "1", 60)));
    // The Stop is lost.
    assert!(w.send_record(&build_record(Start, "1", 300)));
    assert_eq!(w.session_spans(), [(10, Some(50)), (60, Some(60)), (300, None)]);
    // The store has what the ledger's memory lost.
    w.restart_host(400);
    assert!(w.send_record(&counted_record(Interim, "1", 400, 100, 8)));
    assert!(w.send_record(&counted_record(Stop, "1", 500, 200, 9)));
    w.restart_host(600);
    assert!(w.commit_at(600, &counted_record(Stop, "1", 500, 200, 9)));
    // The Start is lost.
    assert!(w.send_record(&counted_record(Interim, "1", 900, 100, 2)));
    assert_eq!(w.session_spans(), [(10, Some(50)), (60, Some(60)), (300, Some(500)), (800, None)]);
    let mut ids: Vec<_> = w.rows().iter().map(|r| r.acctuniqueid.clone()).collect();
    ids.sort_unstable();
    assert_eq!(
        ids.iter().map(|id| &id[28..]).filter(|end| end.starts_with('-')).collect::<Vec<_>>(),
        ["-001", "-002", "-003"]
    );
}

#[test]
fn a_nas_that_begins_anew_has_none_of_its_sessions_left() {
    let mut w = LedgerFixture::default();
    assert!(w.send_record(&build_record(Start, "1", 10)));
    assert!(w.send_record(&build_record(Start, "2", 20)));
    let mut other = build_record(Start, "3", 20);
    other.session.nas = "192.0.2.2".parse().unwrap();
    other.unique = LedgerRecord::new(Start, other.session.clone(), other.occurred_at).unique;
    assert!(w.send_record(&other));
    assert!(w.send_record(&build_record(Off, "", 90)));
    assert!(w.send_record(&build_record(On, "", 100)));
    assert!(w.send_record(&build_record(Start, "4", 110)));
    // Its retransmission does not end sessions that started since.
    assert!(w.commit_at(115, &build_record(On, "", 100)));
    assert_eq!(w.session_spans(), [(10, Some(90)), (20, None), (20, Some(90)), (110, None)]);
    assert_eq!(
        (w.ledger.len(), w.ledger.find_sessions(SessionFilter::Nas(NAS.parse().unwrap())).len()),
        (2, 1)
    );
    let ended: Vec<_> = w.rows().into_iter().filter(|r| r.acctstoptime.is_some()).collect();
    assert!(ended.iter().all(|r| r.acctterminatecause == "Admin-Reboot"), "{ended:#?}");
    assert_eq!(ended[0].acctsessiontime + ended[1].acctsessiontime, 80 + 70);
    // The same id afterwards is another session, however soon.
    assert!(w.send_record(&build_record(Start, "1", 101)));
    assert!(w.session_spans().contains(&(101, None)));
}

/// Behind a proxy or NAT, several NASs have one address and their own NAS-Identifiers.
#[test]
fn a_restart_ends_the_sessions_of_its_own_nas_identifier() {
    let of = |status, id: &str, secs, nas: &str| {
        let mut record = build_record(status, id, secs);
        record.nas_identifier = nas.into();
        if !id.is_empty() {
            record.session.user = alloc::format!("user{id}");
            record.unique = LedgerRecord::new(status, record.session.clone(), record.occurred_at).unique;
        }
        record
    };
    for (status, cause) in [(On, "NAS-Reboot"), (Off, "Admin-Reboot")] {
        let mut w = LedgerFixture::default();
        for (id, nas) in [("1", "a"), ("2", "b"), ("3", "a"), ("4", "")] {
            assert!(w.send_record(&of(Start, id, 10, nas)));
        }
        assert!(w.send_record(&of(status, "", 100, "a")));
        let open: Vec<_> = w.ledger.open_sessions().map(|row| row.acctsessionid).collect();
        assert_eq!(open, ["2"], "one of which no NAS-Identifier is known ends, too");
        let mut rows = w.rows();
        rows.sort_by(|a, b| a.acctsessionid.cmp(&b.acctsessionid));
        let causes: Vec<_> = rows.iter().map(|row| &*row.acctterminatecause).collect();
        assert_eq!(causes, [cause, "", cause, cause], "in the store as in the ledger");
        assert!(w.commit_at(105, &of(status, "", 100, "a")), "again");
        assert_eq!(w.ledger.unwritten_change_count(), 0);
        // A restart without NAS-Identifier concerns all of them.
        assert!(w.send_record(&of(status, "", 200, "")));
        assert_eq!(w.ledger.len(), 0);
        assert!(w.rows().iter().all(|row| row.acctterminatecause == cause));
    }
}

/// The store has no NAS-Identifiers. The next record of each session restores it.
#[test]
fn after_a_restart_of_the_server_an_interim_tells_nass_apart() {
    let of = |status, id: &str, secs, nas: &str| {
        let mut record = build_record(status, id, secs);
        record.nas_identifier = nas.into();
        record
    };
    let mut w = LedgerFixture::default();
    for (id, nas) in [("1", "a"), ("2", "b")] {
        assert!(w.send_record(&of(Start, id, 10, nas)));
    }
    w.restart_host(20);
    assert!(w.send_record(&of(Interim, "2", 30, "b")));
    assert!(w.send_record(&of(On, "", 100, "a")));
    let open: Vec<_> = w.ledger.open_sessions().map(|row| row.acctsessionid).collect();
    assert_eq!(open, ["2"]);
    let ended = w.rows().iter().filter(|row| row.acctstoptime.is_some()).count();
    assert_eq!(ended, 1, "in the store as in the ledger");
}

#[test]
fn a_session_that_was_thought_ended_goes_on() {
    let config = LedgerConfig { stale_after: Some(Duration::from_secs(100)), ..LedgerConfig::default() };
    let mut w = LedgerFixture::new(config);
    let mut start = build_record(Start, "1", 10);
    start.framed_address = Some("10.0.0.7".parse().unwrap());
    assert!(w.send_record(&start));
    assert_eq!(w.ledger.next_timeout(), Some(instant_at(110)));
    w.ledger.expire_sessions(instant_at(109));
    assert_eq!(w.ledger.len(), 1);
    w.ledger.expire_sessions(instant_at(110));
    assert_eq!((w.ledger.len(), w.ledger.next_timeout()), (0, None));
    assert_eq!(w.ledger.commit_changes(&mut w.store, 10).written, 1);
    assert_eq!(
        (w.only_row().acctstoptime, w.only_row().acctterminatecause.as_str()),
        (Some(wall_at(10)), "Stale-Session")
    );
    assert!(w.send_record(&counted_record(Interim, "1", 310, 300, 3)));
    let row = w.only_row();
    assert_eq!((row.acctstarttime, row.acctstoptime, row.interims), (Some(wall_at(10)), None, 1));
    assert_eq!(w.ledger.find_sessions(SessionFilter::Address("10.0.0.7".parse().unwrap())).len(), 1);
    // A late Stop sets the end.
    w.ledger.expire_sessions(instant_at(500));
    assert!(w.send_record(&counted_record(Stop, "1", 600, 590, 4)));
    assert_eq!((w.only_row().acctstoptime, w.only_row().acctsessiontime), (Some(wall_at(600)), 590));
    assert_eq!(w.ledger.counters().went_on, 2);
}

#[test]
fn a_session_ended_by_its_nas_that_is_not_written_yet_can_go_on() {
    let mut w = LedgerFixture::default();
    assert!(w.send_record(&build_record(Start, "1", 10)));
    w.store.set_store_unavailable(true);
    assert!(!w.send_record(&counted_record(Interim, "1", 70, 60, 1)));
    assert!(!w.send_record(&build_record(On, "", 100)));
    assert!(!w.send_record(&counted_record(Interim, "1", 130, 120, 2)));
    w.store.set_store_unavailable(false);
    assert!(w.commit_at(140, &counted_record(Interim, "1", 130, 120, 2)));
    assert_eq!(w.session_spans(), [(10, None)]);
    assert_eq!(w.only_row().acctinputoctets, 2);
    assert!(w.commit_at(150, &build_record(On, "", 100)));
    assert_eq!(w.session_spans(), [(10, None)]);
    assert_eq!(w.ledger.unwritten_change_count(), 0);
}

/// A dead NAS ends no sessions; an operator ends them.
#[test]
fn a_forgotten_session_frees_its_slot_and_revives_with_its_nas() {
    let mut w = LedgerFixture::default();
    assert!(w.send_record(&build_record(Start, "1", 10)));
    assert!(w.send_record(&counted_record(Interim, "1", 70, 60, 5)));
    let unique = UniqueSessionId::parse(&w.only_row().acctuniqueid).unwrap();
    assert!(w.ledger.close_session(unique).is_some());
    assert_eq!((w.ledger.len(), w.ledger.close_session(unique)), (0, None), "once");
    assert_eq!(w.ledger.commit_changes(&mut w.store, 10).written, 1);
    let row = w.only_row();
    let ended = (row.acctstoptime, row.acctsessiontime, row.acctterminatecause.as_str());
    assert_eq!(ended, (Some(wall_at(70)), 60, "Admin-Reset"));
    // Its Stop or another record may still arrive.
    assert!(w.send_record(&counted_record(Interim, "1", 500, 490, 6)));
    assert_eq!((w.only_row().acctstoptime, w.ledger.len()), (None, 1));
    assert!(w.ledger.close_session(unique).is_some());
    w.ledger.commit_changes(&mut w.store, 10);
    assert_eq!(w.ledger.counters().forgotten, 2);
    w.restart_host(600);
    assert_eq!(w.ledger.len(), 0, "nor is it open after a restart of the server");
    assert!(w.send_record(&counted_record(Stop, "1", 700, 690, 7)));
    assert_eq!((w.only_row().acctstoptime, w.only_row().acctsessiontime), (Some(wall_at(700)), 690));
}

#[test]
fn sessions_are_found() {
    let mut w = LedgerFixture::default();
    for i in 0..600_u64 {
        let mut r = build_record(Start, &i.to_string(), 10);
        r.session.user = alloc::format!("user{}", i % 7);
        r.session.nas = [10, 9, 0, (i % 5) as u8].into();
        r.unique = LedgerRecord::new(Start, r.session.clone(), r.occurred_at).unique;
        r.framed_address = Some([10, 0, (i / 250) as u8, (i % 250) as u8].into());
        r.framed_prefix =
            Some((core::net::Ipv6Addr::from_bits((0x2001_0db8 << 96) | (u128::from(i) << 64)), 64));
        assert!(w.send_record(&r));
    }
    assert_eq!(w.ledger.find_sessions(SessionFilter::User("user3")).len(), 86);
    assert_eq!(w.ledger.find_sessions(SessionFilter::Nas([10, 9, 0, 1].into())).len(), 120);
    assert_eq!(
        w.ledger.find_sessions(SessionFilter::Id("599"))[0].framedipaddress,
        Some([10, 0, 2, 99].into())
    );
    let of_prefix = w.ledger.find_sessions(SessionFilter::Address("2001:db8:0:5::77".parse().unwrap()));
    assert_eq!((of_prefix.len(), of_prefix[0].acctsessionid.as_str()), (1, "5"));
    let ids: Vec<_> = w.ledger.open_sessions().map(|r| r.acctsessionid).collect();
    assert_eq!(ids, (0..600).map(|i| i.to_string()).collect::<Vec<_>>());
    for i in (0..600_u64).filter(|i| i % 7 == 3) {
        let row = w.ledger.find_sessions(SessionFilter::Id(&i.to_string()))[0].clone();
        let unique = UniqueSessionId::parse(&row.acctuniqueid).unwrap();
        assert_eq!(w.ledger.find_sessions(SessionFilter::Unique(unique)).first(), Some(&row));
        let key = NasSessionKey { nas: row.nasipaddress, id: row.acctsessionid, user: row.username };
        let mut stop = LedgerRecord::new(Stop, key, wall_at(20));
        stop.timed = true;
        assert!(w.send_record(&stop));
        assert!(w.ledger.find_sessions(SessionFilter::Address(row.framedipaddress.unwrap())).is_empty());
    }
    assert!(w.ledger.find_sessions(SessionFilter::User("user3")).is_empty());
    assert_eq!(w.ledger.len(), 600 - 86);
}

#[test]
fn a_record_finds_no_session_of_another_diameter_peer() {
    // Both have the same address and Session-Id. The second has no User-Name.
    let by = |status, origin: &str, user: &str| {
        let mut record = counted_record(status, "nas.example.org;1;2", 50, 40, 7);
        record.session.user = user.into();
        record.diameter_origin = origin.into();
        record.unique = UniqueSessionId::from_freeradius_parts(
            [user, "nas.example.org;1;2", origin, "", "", ""].map(str::as_bytes),
        );
        record
    };
    for restarts in [false, true] {
        let mut w = LedgerFixture::default();
        assert!(w.send_record(&by(Start, "nas.example.org/192.0.2.1", "anna")));
        if restarts {
            w.restart_host(50);
        }
        assert!(w.send_record(&by(Stop, "other.example.org/192.0.2.1", "")));
        assert_eq!(w.rows().len(), 2);
        assert_eq!(w.ledger.find_sessions(SessionFilter::User("anna")).len(), 1, "it goes on");
    }
    // A record of the peer itself without User-Name belongs to its session.
    for restarts in [false, true] {
        let mut w = LedgerFixture::default();
        assert!(w.send_record(&by(Start, "nas.example.org/192.0.2.1", "anna")));
        if restarts {
            w.restart_host(50);
        }
        assert!(w.send_record(&by(Stop, "nas.example.org/192.0.2.1", "")));
        assert_eq!((w.only_row().username.as_str(), w.only_row().acctstoptime), ("anna", Some(wall_at(50))));
    }
}

#[test]
fn a_radius_client_ends_no_session_of_diameter() {
    // A Diameter NAS may claim any address, that of a RADIUS client or none.
    let by_diameter = |status, secs| {
        let mut record = counted_record(status, "nas.example.org;1;2", secs, secs - 9, 7);
        record.diameter_origin = "nas.example.org/192.0.2.1".into();
        record.unique = UniqueSessionId::from_freeradius_parts([
            b"anna",
            b"nas.example.org;1;2",
            record.diameter_origin.as_bytes(),
            b"",
            b"",
            b"",
        ]);
        record
    };
    let mut stop = counted_record(Stop, "nas.example.org;1;2", 50, 40, 7);
    stop.session.user = "".into();
    stop.calling_station_id = "".into();
    stop.unique = LedgerRecord::new(Stop, stop.session.clone(), stop.occurred_at).unique;
    let ends = [stop, build_record(On, "", 50), build_record(Off, "", 50)];
    for (ends, restarts) in ends.iter().flat_map(|ends| [(ends, false), (ends, true)]) {
        let mut w = LedgerFixture::default();
        assert!(w.send_record(&by_diameter(Start, 10)));
        if restarts {
            w.restart_host(20);
        }
        assert!(w.send_record(ends));
        let of_diameter = |w: &LedgerFixture| {
            let rows = w.rows();
            let mut own = rows.iter().filter(|row| !row.username.is_empty());
            (own.next().unwrap().acctstoptime, own.count())
        };
        assert_eq!(of_diameter(&w), (None, 0), "{:?}", ends.status);
        assert_eq!(
            w.ledger.find_sessions(SessionFilter::User("anna@example.org")).len(),
            1,
            "{:?}",
            ends.status
        );
        assert!(w.send_record(&by_diameter(Stop, 60)));
        assert_eq!(of_diameter(&w), (Some(wall_at(60)), 0), "{:?}", ends.status);
        // For a session of an earlier version it is known from the next record on, permanently.
        let mut w = LedgerFixture::default();
        assert!(w.send_record(&by_diameter(Start, 10)));
        let before = SessionRow { diameter_origin: String::new(), ..w.only_row() };
        w.store.write_changes(&[StoreChange::Session(before.into())]).unwrap();
        w.restart_host(20);
        assert!(w.send_record(&by_diameter(Interim, 30)));
        if restarts {
            w.restart_host(40);
        }
        assert!(w.send_record(ends));
        assert_eq!(
            w.ledger.find_sessions(SessionFilter::User("anna@example.org")).len(),
            1,
            "{:?}",
            ends.status
        );
        assert_eq!(of_diameter(&w).0, None);
    }
}

#[test]
fn who_gets_a_name_late_holds_what_was_admitted() {
    let pool = PoolConfig { name: "home".into(), ranges: ["10.0.0.0/29".parse().unwrap()].into() };
    let mut w = LedgerFixture::new(LedgerConfig { pools: [pool].into(), ..LedgerConfig::default() });
    let mut request = AdmitRequest {
        user: "anna@example.org".into(),
        simultaneous: Some(1),
        pool: Some("home".into()),
        nas: NAS.parse().unwrap(),
        port: "".into(),
        calling_station_id: "02-00-00-00-00-01".into(),
    };
    let AdmissionVerdict::Yes { address: Some(address), .. } =
        w.ledger.admit_user(instant_at(0), wall_at(0), &request)
    else {
        panic!()
    };
    let mut start = build_record(Start, "1", 1);
    start.session.user = "".into();
    start.unique = LedgerRecord::new(Start, start.session.clone(), start.occurred_at).unique;
    assert!(w.send_record(&start));
    assert_eq!(
        (
            w.ledger.pending_admission_count(),
            w.ledger.find_sessions(SessionFilter::User("anna@example.org")).len()
        ),
        (1, 0)
    );
    assert!(w.send_record(&counted_record(Interim, "1", 30, 29, 1)));
    assert_eq!((w.ledger.pending_admission_count(), w.only_row().framedipaddress), (0, Some(address)));
    assert_eq!(w.ledger.find_sessions(SessionFilter::User("anna@example.org")).len(), 1);
    assert_eq!(w.ledger.find_sessions(SessionFilter::Address(address)).len(), 1);
    request.calling_station_id = "02-00-00-00-00-02".into();
    assert_eq!(
        w.ledger.admit_user(instant_at(31), wall_at(31), &request),
        AdmissionVerdict::No(AdmissionRefusal::TooManySessions { allowed: 1 })
    );
    assert!(w.send_record(&counted_record(Stop, "1", 60, 59, 1)));
    assert_eq!(w.ledger.pool_usage().next().unwrap().addresses.0, 0, "its address came back");
}

#[test]
fn an_id_that_many_sessions_share_tells_nothing_apart() {
    let mut w = LedgerFixture::default();
    let of = |n: u64, status| {
        let mut record = build_record(status, "0", 10 + n);
        record.session.user = alloc::format!("user{n}");
        record.unique = LedgerRecord::new(status, record.session.clone(), record.occurred_at).unique;
        record
    };
    for n in 0..100 {
        assert!(w.send_record(&of(n, Start)));
    }
    let mut stop = of(7, Stop);
    stop.session.user = "USER7".into();
    stop.unique = LedgerRecord::new(Stop, stop.session.clone(), stop.occurred_at).unique;
    assert!(w.commit_at(200, &stop));
    assert_eq!((w.ledger.len(), w.rows().len()), (100, 101));
    assert!(w.commit_at(200, &of(7, Stop)));
    assert_eq!((w.ledger.len(), w.rows().len()), (99, 101));
}
