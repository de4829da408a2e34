//! Ranges and the choice of leases.

use super::*;

fn test_range(text: &str) -> PoolRange {
    text.parse().unwrap()
}
fn test_pools(ranges: &[&[&str]]) -> AddressPools {
    let pool = |(n, ranges): (usize, &&[&str])| PoolConfig {
        name: alloc::format!("pool {n}"),
        ranges: ranges.iter().map(|text| test_range(text)).collect(),
    };
    let config: Vec<PoolConfig> = ranges.iter().enumerate().map(pool).collect();
    AddressPools::new(&config, &SeededHashState::with_seed(1))
}
fn address_lease(text: &str) -> Lease {
    Lease::Address(text.parse().unwrap())
}

#[test]
fn ranges_are_written_as_people_write_them() {
    for (text, size) in [
        ("192.0.2.10-192.0.2.19", 10),
        ("192.0.2.0/24", 254),
        ("192.0.2.1/32", 1),
        ("2001:db8::/120", 255),
        ("2001:db8::/64", 1 << 32),
        ("2001:db8::/40/56", 1 << 16),
    ] {
        let range: PoolRange = text.parse().unwrap();
        assert_eq!(range.size(), size, "{text}");
        assert_eq!(range.to_string().parse(), Ok(range), "{text}");
    }
    for bad in [
        "",
        "192.0.2.1",
        "192.0.2.9-192.0.2.1",
        "10.0.0.1-::1",
        "10.0.0.0/33",
        "2001:db8::/64/56",
        "10.0.0.0/8/16",
        "2001:db8::/40/56/64",
    ] {
        assert_eq!(bad.parse::<PoolRange>(), Err(PoolError::NotARange(bad.into())));
    }
}

#[test]
fn pools_that_contradict_themselves_are_named() {
    let pool = |name: &str, ranges: &[&str]| PoolConfig {
        name: name.into(),
        ranges: ranges.iter().map(|r| r.parse().unwrap()).collect(),
    };
    assert_eq!(
        check_pools(&[pool("a", &["10.0.0.0/24", "10.0.1.0/24"]), pool("b", &["2001:db8::/64"])]),
        Ok(())
    );
    assert_eq!(check_pools(&[pool("a", &[])]), Err(PoolError::Empty("a".into())));
    let two = [pool("a", &["10.0.0.0/24"]), pool("a", &["10.0.1.0/24"])];
    assert_eq!(check_pools(&two), Err(PoolError::DuplicateName("a".into())));
    let overlap = [pool("a", &["10.0.0.0/16"]), pool("b", &["10.0.7.7-10.0.7.9"])];
    assert!(matches!(check_pools(&overlap), Err(PoolError::Overlap { pool, .. }) if pool == "b"));
}

#[test]
fn each_lease_of_a_range_is_found_at_its_place() {
    for (text, size, first, last) in [
        ("10.0.0.5/29", 6, "10.0.0.1", "10.0.0.6"),
        ("10.0.0.4/31", 2, "10.0.0.4", "10.0.0.5"),
        ("192.0.2.250-192.0.3.3", 10, "192.0.2.250", "192.0.3.3"),
        ("2001:db8::/124", 15, "2001:db8::1", "2001:db8::f"),
        ("2001:db8::4/127", 2, "2001:db8::4", "2001:db8::5"),
        ("2001:db8:0:100::/56/60", 16, "2001:db8:0:100::", "2001:db8:0:1f0::"),
    ] {
        let range = test_range(text);
        let all: Vec<Lease> = (0..size).map(|n| range.lease_at(n)).collect();
        assert_eq!(range.size(), size, "{text}");
        let found: Vec<_> = all.iter().map(|lease| range.lease_offset(*lease)).collect();
        assert_eq!(found, (0..size).map(Some).collect::<Vec<_>>(), "{text}");
        let lease = |text: &str| match range {
            PoolRange::Prefixes { each, .. } => Lease::Prefix(text.parse().unwrap(), each),
            PoolRange::Addresses { .. } => address_lease(text),
        };
        assert_eq!((all[0], all[size as usize - 1]), (lease(first), lease(last)), "{text}");
    }
    for (text, beside) in
        [("10.0.0.0/29", ["10.0.0.0", "10.0.0.7"]), ("192.0.2.250-192.0.3.3", ["192.0.2.249", "192.0.3.4"])]
    {
        assert_eq!(
            beside.map(|beside| test_range(text).lease_offset(address_lease(beside))),
            [None, None],
            "{text}"
        );
    }
    let prefix = |text: &str| Lease::Prefix(text.parse().unwrap(), 60);
    let beside = ["2001:db8:0:f0::", "2001:db8:0:200::"].map(prefix);
    assert_eq!(beside.map(|beside| test_range("2001:db8:0:100::/56/60").lease_offset(beside)), [None, None]);
    assert_eq!(
        test_range("2001:db8::/40/56").lease_offset(Lease::Prefix("2001:db8::".parse().unwrap(), 64)),
        None
    );
}

#[test]
fn a_pool_gives_what_it_has_ranges_of() {
    let pools =
        test_pools(&[&["10.0.0.0/29"], &["2001:db8::/40/56"], &["2001:db8:1::/120", "2001:db8:2::/40/56"]]);
    let gives: Vec<_> = (0..4).map(|pool| pools.leases_addresses_and_prefixes(pool)).collect();
    assert_eq!(gives, [(true, false), (false, true), (true, true), (false, false)]);
    assert_eq!((pools.find_pool("pool 1"), pools.find_pool("pool 9")), (Some(1), None));
}

#[test]
fn what_two_sessions_have_is_free_when_both_have_left_it() {
    let mut pools = test_pools(&[&["10.0.0.1-10.0.0.3"]]);
    let used = |pools: &AddressPools| pools.pool_usage().next().unwrap().addresses;
    let lease = address_lease("10.0.0.2");
    for (n, holder) in [(1, 7), (1, 8)] {
        pools.claim(lease, holder);
        assert_eq!(used(&pools), (n, 3));
    }
    pools.claim(address_lease("10.0.0.3"), 9);
    assert_eq!(used(&pools), (2, 3));
    pools.claim(address_lease("10.0.0.9"), 9);
    for n in [2, 1, 1] {
        pools.release(lease);
        assert_eq!(used(&pools), (n, 3));
    }
}

#[test]
fn a_holder_gets_its_lease_again_and_the_oldest_free_goes_first() {
    let mut pools = test_pools(&[&["10.0.0.1-10.0.0.4"]]);
    let take = |pools: &mut AddressPools, holder| pools.take_lease(0, false, holder, false, 0);
    let given: Vec<Lease> = (0..4).map(|holder| take(&mut pools, holder).unwrap()).collect();
    assert_eq!(pools.pool_usage().next().unwrap().addresses, (4, 4));
    assert_eq!(take(&mut pools, 9), None);
    // A holder that requests its own lease again gets it. Otherwise it gets another one.
    assert_eq!(pools.take_lease(0, false, 2, true, 0), Some(given[2]));
    pools.release(given[2]);
    for n in [3, 1, 0] {
        pools.release(given[n]);
    }
    assert_eq!(take(&mut pools, 1), Some(given[1]));
    assert_eq!([take(&mut pools, 9), take(&mut pools, 8)], [Some(given[3]), Some(given[0])]);
    assert_eq!((take(&mut pools, 7), take(&mut pools, 2)), (None, None));
}
