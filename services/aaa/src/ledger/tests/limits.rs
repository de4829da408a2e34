//! Simultaneous sessions, failed attempts and pools.

use super::*;
use AccountingStatusType::{Interim, On, Start, Stop};
use core::net::{IpAddr, Ipv6Addr};

fn admit_request(user: &str, station: &str) -> AdmitRequest {
    AdmitRequest {
        user: user.into(),
        simultaneous: None,
        pool: None,
        nas: NAS.parse().unwrap(),
        port: "".into(),
        calling_station_id: station.into(),
    }
}
fn exclusive_request(station: &str) -> AdmitRequest {
    AdmitRequest { simultaneous: Some(1), ..admit_request("anna@example.org", station) }
}
fn pooled_request(station: &str) -> AdmitRequest {
    AdmitRequest { pool: Some("home".into()), ..admit_request("anna@example.org", station) }
}
fn start_record(id: &str, secs: u64, station: &str) -> LedgerRecord {
    let mut record = build_record(Start, id, secs);
    record.calling_station_id = station.into();
    record
}
const FREE: AdmissionVerdict = AdmissionVerdict::Yes { address: None, prefix: None };
const A: &str = "02-00-00-00-00-01";
const B: &str = "02-00-00-00-00-02";
const C: &str = "02-00-00-00-00-03";

impl LedgerFixture {
    fn admit_at(&mut self, secs: u64, request: &AdmitRequest) -> AdmissionVerdict {
        self.ledger.admit_user(instant_at(secs), wall_at(secs), request)
    }
    /// Returns the leased address. `None`: the pool is exhausted.
    #[track_caller]
    fn admitted_address(&mut self, secs: u64, station: &str) -> Option<IpAddr> {
        match self.admit_at(secs, &pooled_request(station)) {
            AdmissionVerdict::Yes { address, .. } => address,
            AdmissionVerdict::No(AdmissionRefusal::PoolExhausted) => None,
            other => panic!("{other:?}"),
        }
    }
    fn used_leases(&self) -> (u64, u64) {
        let used = self.ledger.pool_usage().next().unwrap();
        (used.addresses.0, used.prefixes.0)
    }
}

fn pool_config(ranges: &[&str]) -> LedgerConfig {
    let ranges = ranges.iter().map(|r| r.parse().unwrap()).collect();
    LedgerConfig { pools: [PoolConfig { name: "home".into(), ranges }].into(), ..LedgerConfig::default() }
}

#[test]
fn one_session_at_a_time_counts_those_admitted_and_those_open() {
    let mut w = LedgerFixture::default();
    let no = AdmissionVerdict::No(AdmissionRefusal::TooManySessions { allowed: 1 });
    assert_eq!(w.admit_at(0, &exclusive_request(A)), FREE);
    assert_eq!(w.admit_at(1, &exclusive_request(B)), no);
    assert!(w.send_record(&start_record("1", 2, A)));
    assert_eq!((w.ledger.pending_admission_count(), w.admit_at(3, &exclusive_request(B))), (0, no));
    // At another NAS too.
    let elsewhere = AdmitRequest { nas: "192.0.2.9".parse().unwrap(), ..exclusive_request(B) };
    assert_eq!(w.admit_at(3, &elsewhere), no);
    // A session of the same station continues.
    assert_eq!(w.admit_at(4, &exclusive_request("02:00:00:00:00:01")), FREE);
    assert!(w.send_record(&counted_record(Stop, "1", 100, 98, 1)));
    assert_eq!(w.admit_at(101, &exclusive_request(B)), FREE);
    assert_eq!(w.ledger.counters().refused_sessions, 3);
}

#[test]
fn asking_again_is_one_admission_at_one_nas_and_two_at_two() {
    let mut w = LedgerFixture::default();
    assert_eq!(
        (
            w.admit_at(0, &exclusive_request(A)),
            w.admit_at(1, &exclusive_request(A)),
            w.ledger.pending_admission_count()
        ),
        (FREE, FREE, 1)
    );
    let elsewhere = AdmitRequest { nas: "192.0.2.9".parse().unwrap(), ..exclusive_request(A) };
    assert_eq!((w.admit_at(2, &elsewhere), w.ledger.pending_admission_count()), (FREE, 2));
    // Without a station's name the port identifies it.
    let port =
        |port: &str| AdmitRequest { port: port.into(), simultaneous: Some(9), ..admit_request("bert", "") };
    let admitted = [port("1"), port("1"), port("2"), port("")].map(|request| {
        assert_eq!(w.admit_at(3, &request), FREE);
        w.ledger.pending_admission_count()
    });
    assert_eq!(admitted, [3, 3, 4, 5]);
}

#[test]
fn a_session_takes_over_only_the_address_of_its_own_station() {
    let mut w = LedgerFixture::new(pool_config(&["10.0.0.0/29"]));
    let [a, b] = [A, B].map(|station| w.admitted_address(0, station).unwrap());
    // A user without an admission gets no lease of others.
    assert!(w.send_record(&start_record("1", 1, C)));
    assert_eq!((w.ledger.pending_admission_count(), w.only_row().framedipaddress), (2, None));
    assert!(w.send_record(&start_record("2", 2, B)));
    assert_eq!(
        (w.ledger.pending_admission_count(), w.ledger.find_sessions(SessionFilter::Address(b)).len()),
        (1, 1)
    );
    // A record without a station may belong to the remaining admission.
    assert!(w.send_record(&start_record("3", 3, "")));
    assert_eq!(
        (w.ledger.pending_admission_count(), w.ledger.find_sessions(SessionFilter::Address(a)).len()),
        (0, 1)
    );
}

#[test]
fn who_is_admitted_and_never_starts_is_forgotten() {
    let mut w = LedgerFixture::default();
    assert_eq!(w.admit_at(0, &exclusive_request(A)), FREE);
    assert_eq!(w.ledger.next_timeout(), Some(instant_at(60)));
    assert!(matches!(w.admit_at(59, &exclusive_request(B)), AdmissionVerdict::No(_)));
    assert_eq!(w.admit_at(60, &exclusive_request(B)), FREE);
    assert_eq!(w.ledger.pending_admission_count(), 1);
}

#[test]
fn stale_sessions_do_not_keep_anybody_out() {
    let mut w = LedgerFixture::new(LedgerConfig {
        stale_after: Some(Duration::from_secs(600)),
        ..LedgerConfig::default()
    });
    assert!(w.send_record(&start_record("1", 0, A)));
    let mut interim = counted_record(Interim, "1", 300, 300, 1);
    interim.calling_station_id = A.into();
    assert!(w.send_record(&interim));
    assert!(matches!(w.admit_at(899, &exclusive_request(B)), AdmissionVerdict::No(_)));
    assert_eq!(w.admit_at(900, &exclusive_request(B)), FREE);
}

#[test]
fn a_full_ledger_admits_nobody_until_a_session_ends() {
    let mut w = LedgerFixture::new(LedgerConfig { max_sessions: 1, ..LedgerConfig::default() });
    assert!(w.send_record(&start_record("1", 10, A)));
    assert_eq!(
        w.admit_at(20, &admit_request("bert@example.org", B)),
        AdmissionVerdict::No(AdmissionRefusal::Full)
    );
    assert!(w.send_record(&LedgerRecord { status: Stop, ..start_record("1", 30, A) }));
    assert_eq!(w.admit_at(40, &admit_request("bert@example.org", B)), FREE);
}

#[test]
fn no_session_at_all_may_be_allowed() {
    let mut w = LedgerFixture::default();
    let none = AdmitRequest { simultaneous: Some(0), ..admit_request("anna@example.org", A) };
    assert_eq!(w.admit_at(0, &none), AdmissionVerdict::No(AdmissionRefusal::TooManySessions { allowed: 0 }));
}

#[test]
fn failures_hold_users_and_stations_back_for_a_while() {
    let limit = LoginFailureLimit::new(3, Duration::from_secs(60), Duration::from_secs(300));
    let mut w = LedgerFixture::new(LedgerConfig { failures: Some(limit), ..LedgerConfig::default() });
    let anna = admit_request("anna", A);
    let mut failed = |secs, user: &str, station: &str| {
        let held = w.ledger.record_failure(instant_at(secs), user, station);
        (held.user, held.station)
    };
    assert_eq!((failed(0, "anna", A), failed(1, "anna", A)), ((false, false), (false, false)));
    // An old failure does not count.
    assert_eq!((failed(62, "anna", ""), failed(63, "anna", "")), ((false, false), (false, false)));
    // A success resets the count.
    assert_eq!(w.admit_at(64, &anna), FREE);
    let mut failed = |secs, user: &str, station: &str| {
        let held = w.ledger.record_failure(instant_at(secs), user, station);
        (held.user, held.station)
    };
    assert_eq!((failed(65, "anna", ""), failed(66, "anna", "")), ((false, false), (false, false)));
    assert_eq!(failed(67, "anna", B), (true, false));
    // A lockout is reported once.
    assert_eq!(failed(68, "anna", B), (false, false));
    assert!(
        w.ledger.is_locked_out(instant_at(366), "anna", "")
            && !w.ledger.is_locked_out(instant_at(366), "otto", B)
    );
    assert_eq!(w.admit_at(366, &anna), AdmissionVerdict::No(AdmissionRefusal::TooManyFailures));
    assert_eq!(w.admit_at(367, &anna), FREE);
    // By station, in any notation, for any user.
    for name in ["u1", "u2", "u3"] {
        w.ledger.record_failure(instant_at(400), name, "02:00:00:00:00:0A");
    }
    assert_eq!(
        w.admit_at(401, &admit_request("otto", "02-00-00-00-00-0a")),
        AdmissionVerdict::No(AdmissionRefusal::TooManyFailures)
    );
    assert_eq!(w.admit_at(401, &admit_request("otto", C)), FREE);
    assert_eq!(w.ledger.counters().refused_failures, 2);
}

/// Users are found by any notation of a MAC address, so limits hold for all notations together.
#[test]
fn another_spelling_of_an_address_is_no_other_user() {
    let mut w = LedgerFixture::new(LedgerConfig {
        failures: Some(LoginFailureLimit::new(3, Duration::from_secs(60), Duration::from_secs(300))),
        ..LedgerConfig::default()
    });
    for (secs, name) in [(0, "001122aabbcc"), (1, "00-11-22-AA-BB-CC"), (2, "0011.22aA.bbcc")] {
        w.ledger.record_failure(instant_at(secs), name, "");
    }
    let held = AdmissionVerdict::No(AdmissionRefusal::TooManyFailures);
    assert_eq!(w.admit_at(3, &admit_request("00:11:22:aa:bb:cC", "")), held);
    assert_eq!(w.admit_at(3, &admit_request("00:11:22:aa:bb:cd", "")), FREE);
    let one = |name: &str| AdmitRequest { simultaneous: Some(1), ..admit_request(name, "") };
    assert_eq!(w.admit_at(4, &one("02-00-00-00-00-0A")), FREE);
    let second = AdmitRequest { calling_station_id: B.into(), port: "2".into(), ..one("02000000000a") };
    assert_eq!(
        w.admit_at(5, &second),
        AdmissionVerdict::No(AdmissionRefusal::TooManySessions { allowed: 1 })
    );
}

#[test]
fn only_so_many_failures_are_remembered() {
    let limit = LoginFailureLimit {
        capacity: 10,
        ..LoginFailureLimit::new(1, Duration::from_secs(9), Duration::from_secs(99))
    };
    let mut w = LedgerFixture::new(LedgerConfig { failures: Some(limit), ..LedgerConfig::default() });
    for i in 0..100 {
        assert!(w.ledger.record_failure(instant_at(i), &i.to_string(), "").user);
    }
    let held = (0..100).filter(|i: &u64| w.ledger.is_locked_out(instant_at(99), &i.to_string(), "")).count();
    assert_eq!(held, 10);
}

/// An attack: failed attempts under other names made the ledger forget lockouts.
#[test]
fn who_is_held_back_is_not_forgotten_for_those_who_are_not() {
    let limit = LoginFailureLimit {
        capacity: 10,
        ..LoginFailureLimit::new(3, Duration::from_secs(60), Duration::from_secs(300))
    };
    let mut w = LedgerFixture::new(LedgerConfig { failures: Some(limit), ..LedgerConfig::default() });
    for i in 0..3 {
        w.ledger.record_failure(instant_at(i), "anna", "");
    }
    for i in 0..100 {
        w.ledger.record_failure(instant_at(3), &i.to_string(), "");
    }
    assert!(w.ledger.is_locked_out(instant_at(4), "anna", ""));
}

#[test]
fn an_address_stays_with_its_user_from_admission_to_stop() {
    let mut w = LedgerFixture::new(pool_config(&["10.0.0.1-10.0.0.2"]));
    let a = w.admitted_address(0, A).unwrap();
    assert_eq!(w.admitted_address(1, A), Some(a), "asked again, the same is given");
    let b = w.admitted_address(1, B).unwrap();
    assert_ne!(a, b);
    assert_eq!((w.admitted_address(2, C), w.used_leases()), (None, (2, 0)));
    // The NAS need not send the address: it was leased.
    assert!(w.send_record(&start_record("1", 3, A)));
    assert_eq!(w.only_row().framedipaddress, Some(a));
    assert_eq!(w.ledger.find_sessions(SessionFilter::Address(a)).len(), 1);
    // B never starts. A continues from the same station with the same address.
    assert_eq!((w.admitted_address(62, A), w.admitted_address(62, C)), (Some(a), Some(b)));
    assert_eq!(w.ledger.counters().refused_pool, 1);
    assert!(w.send_record(&counted_record(Stop, "1", 130, 127, 1)));
    w.ledger.expire_sessions(instant_at(200));
    assert_eq!(w.used_leases(), (0, 0));
    // The same station gets its former address. Others get the address that was free longest.
    assert_eq!(w.admitted_address(201, C), Some(b));
    assert_eq!(w.admitted_address(201, A), Some(a));
}

#[test]
fn whatever_ends_a_session_frees_its_address() {
    let config =
        LedgerConfig { stale_after: Some(Duration::from_secs(100)), ..pool_config(&["10.0.0.8/30"]) };
    let mut w = LedgerFixture::new(config);
    for (i, station) in [A, B].into_iter().enumerate() {
        assert!(w.admitted_address(0, station).is_some());
        assert!(w.send_record(&start_record(&i.to_string(), 1, station)));
    }
    assert_eq!(w.used_leases(), (2, 0));
    w.restart_host(10);
    assert_eq!((w.used_leases(), w.admitted_address(10, C)), ((2, 0), None));
    assert!(w.send_record(&build_record(On, "", 20)));
    assert_eq!(w.used_leases(), (0, 0));
    assert!(w.admitted_address(30, C).is_some());
    assert!(w.send_record(&start_record("7", 31, C)));
    w.ledger.expire_sessions(instant_at(131));
    assert_eq!((w.used_leases(), w.ledger.len()), ((0, 0), 0));
}

#[test]
fn an_address_that_the_nas_chose_is_not_given_to_others() {
    let mut w = LedgerFixture::new(pool_config(&["10.0.0.1-10.0.0.3"]));
    let a = w.admitted_address(0, A).unwrap();
    let mut start = start_record("1", 1, A);
    start.framed_address = Some("10.0.0.3".parse().unwrap());
    assert!(w.send_record(&start));
    assert_eq!(w.used_leases(), (1, 0), "what was held is free again");
    let mut interim = counted_record(Interim, "1", 61, 60, 1);
    interim.calling_station_id = A.into();
    interim.framed_address = Some("10.0.0.2".parse().unwrap());
    assert!(w.send_record(&interim));
    let taken: Vec<_> = [B, C].iter().filter_map(|s| w.admitted_address(70, s)).collect();
    assert_eq!(taken.len(), 2);
    assert!(!taken.contains(&"10.0.0.2".parse().unwrap()));
    assert!(a.is_ipv4());
}

#[test]
fn a_pool_may_give_an_address_and_a_prefix() {
    let mut w = LedgerFixture::new(pool_config(&["10.0.0.0/29", "2001:db8::/62/64"]));
    let mut prefixes = Vec::new();
    for i in 0..4 {
        let AdmissionVerdict::Yes { address: Some(_), prefix: Some((prefix, 64)) } =
            w.admit_at(0, &pooled_request(&alloc::format!("02000000010{i}")))
        else {
            panic!()
        };
        prefixes.push(prefix);
    }
    prefixes.sort_unstable();
    let expected: Vec<Ipv6Addr> =
        (0..4_u128).map(|i| Ipv6Addr::from_bits((0x2001_0db8 << 96) | (i << 64))).collect();
    assert_eq!(prefixes, expected);
    assert_eq!(w.admit_at(0, &pooled_request(C)), AdmissionVerdict::No(AdmissionRefusal::PoolExhausted));
    assert_eq!(w.used_leases(), (4, 4), "what was taken before the other was exhausted is given back");
    let unknown = AdmitRequest { pool: Some("elsewhere".into()), ..pooled_request(A) };
    assert_eq!(w.admit_at(0, &unknown), AdmissionVerdict::No(AdmissionRefusal::UnknownPool));
    let mut start = start_record("1", 1, "020000000100");
    start.session.user = "anna@example.org".into();
    assert!(w.send_record(&start));
    assert!(w.only_row().framedipv6prefix.ends_with("/64"));
}

#[test]
fn a_full_pool_is_given_out_to_the_last_address_and_again() {
    let mut w = LedgerFixture::new(pool_config(&["10.0.0.0/25", "10.0.1.7-10.0.1.9"]));
    for round in 0..3_u64 {
        let secs = round * 1000;
        let mut given: Vec<_> =
            (0..129).map(|i| w.admitted_address(secs, &alloc::format!("{round}-{i}")).unwrap()).collect();
        given.sort_unstable();
        given.dedup();
        assert_eq!((given.len(), w.admitted_address(secs, C)), (129, None));
        w.ledger.expire_sessions(instant_at(secs + 60));
        assert_eq!(w.used_leases(), (0, 0));
    }
}

#[test]
fn two_sessions_without_a_station_have_two_addresses() {
    let mut w = LedgerFixture::new(pool_config(&["10.0.0.1-10.0.0.2"]));
    let a = w.admitted_address(0, "").unwrap();
    let mut start = start_record("1", 1, "");
    start.framed_address = Some(a);
    assert!(w.send_record(&start));
    let b = w.admitted_address(2, "").unwrap();
    assert_ne!(a, b);
    assert_eq!((w.admitted_address(3, ""), w.used_leases()), (None, (2, 0)));
}
