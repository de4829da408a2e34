//! Leases of addresses and prefixes.

use std::net::IpAddr;
use usher_access::pool::{Lease, PoolConfig};
use usher_access::{AddressLeases, LeaseHolder, LeaseKind};
use usher_core::SecureRng;

fn leases_of(pools: &[(&str, &str)]) -> AddressLeases {
    let pool = |(name, range): &(&str, &str)| PoolConfig {
        name: (*name).to_owned(),
        ranges: vec![range.parse().unwrap()],
    };
    let pools: Vec<PoolConfig> = pools.iter().map(pool).collect();
    AddressLeases::new(&pools, SecureRng::from_seed([7; 32]))
}
fn holder(owner: u64, is_exclusive: bool) -> LeaseHolder {
    LeaseHolder { identity: owner, owner, is_exclusive }
}
fn address(text: &str) -> Lease {
    Lease::Address(text.parse().unwrap())
}
fn prefix(text: &str, bits: u8) -> Lease {
    Lease::Prefix(text.parse().unwrap(), bits)
}

#[test]
fn an_address_has_the_owner_of_the_lease_around_it() {
    let mut leases = leases_of(&[]);
    for (owner, lease) in [
        (1, address("10.0.0.2")),
        (1, prefix("2001:db8:0:1::", 64)),
        (2, address("10.0.0.3")),
        (2, prefix("2001:db8:0:2::", 64)),
    ] {
        assert!(leases.claim_lease(lease, &holder(owner, true)));
    }
    let at = |leases: &AddressLeases, text: &str| leases.owner_of_address(text.parse::<IpAddr>().unwrap());
    assert_eq!((at(&leases, "10.0.0.2"), at(&leases, "::ffff:10.0.0.3")), (Some(1), Some(2)));
    assert_eq!((at(&leases, "2001:db8:0:1:ffff::1"), at(&leases, "2001:db8:0:2::")), (Some(1), Some(2)));
    for free in ["2001:db8:0:3::", "2001:db8::", "10.0.0.4"] {
        assert_eq!(at(&leases, free), None, "{free}");
    }
    let around = leases.owner_of_lease(prefix("2001:db8::", 48));
    assert_eq!(around, Some(2), "a prefix around others is not free");
    let within = leases.owner_of_lease(prefix("2001:db8:0:1:8000::", 65));
    assert_eq!((within, leases.owner_of_lease(prefix("2001:db8:1::", 48))), (Some(1), None));
    leases.release_lease(address("10.0.0.2"));
    leases.release_lease(address("10.0.0.2"));
    assert_eq!((at(&leases, "10.0.0.2"), at(&leases, "10.0.0.3")), (None, Some(2)));
}

#[test]
fn an_owner_shares_an_address_until_its_last_session_ends() {
    let mut leases = leases_of(&[("a", "10.0.0.1-10.0.0.1")]);
    let used = |leases: &AddressLeases| leases.pool_usage().next().unwrap().addresses.0;
    let taken = leases.take_lease(&["a"], LeaseKind::Ipv4, &holder(1, false));
    assert_eq!((taken, used(&leases)), (Some(address("10.0.0.1")), 1));
    assert_eq!(leases.take_lease(&["a"], LeaseKind::Ipv4, &holder(1, false)), taken);
    assert!(
        !leases.claim_lease(address("10.0.0.1"), &holder(1, true)),
        "an exclusive session shares nothing"
    );
    for owner in [2, 3] {
        assert!(!leases.claim_lease(address("10.0.0.1"), &holder(owner, false)));
        assert_eq!(leases.take_lease(&["a"], LeaseKind::Ipv4, &holder(owner, false)), None);
    }
    leases.release_lease(address("10.0.0.1"));
    assert_eq!((used(&leases), leases.owner_of_lease(address("10.0.0.1"))), (1, Some(1)));
    leases.release_lease(address("10.0.0.1"));
    assert_eq!((used(&leases), leases.owner_of_lease(address("10.0.0.1"))), (0, None));
    assert!(leases.claim_lease(address("10.0.0.1"), &holder(2, false)));
}

#[test]
fn no_subscriber_gets_an_address_of_the_access_server() {
    let mut leases = leases_of(&[("a", "10.0.0.1-10.0.0.2"), ("p", "2001:db8::/32/64")]);
    let own: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
    leases.set_reserved(&own);
    let all: Vec<_> =
        (1..=2).filter_map(|n| leases.take_lease(&["a"], LeaseKind::Ipv4, &holder(n, true))).collect();
    assert_eq!(all, [address("10.0.0.2")]);
    assert!(!leases.claim_lease(own.map(Lease::Address)[0], &holder(3, false)));
    assert!(!leases.claim_lease(prefix("2001:db8::", 48), &holder(3, false)), "it contains one");
    assert!(leases.claim_lease(prefix("2001:db8:1::", 48), &holder(3, false)));
    leases.set_reserved(&[]);
    assert!(leases.claim_lease(address("10.0.0.1"), &holder(4, true)));
}

/// A reload reserves an address that a subscriber has. It keeps the address until its end, and gets another one then.
#[test]
fn a_reserved_address_returns_to_nobody() {
    let mut leases = leases_of(&[("a", "10.0.0.1-10.0.0.3")]);
    let used = |leases: &AddressLeases| leases.pool_usage().next().unwrap().addresses.0;
    let ann = holder(1, false);
    let Some(Lease::Address(first)) = leases.take_lease(&["a"], LeaseKind::Ipv4, &ann) else {
        panic!("none")
    };
    leases.set_reserved(&[first]);
    assert_eq!((leases.owner_of_address(first), used(&leases)), (Some(1), 1));
    leases.release_lease(Lease::Address(first));
    for _ in 0..3 {
        let second = leases.take_lease(&["a"], LeaseKind::Ipv4, &ann).unwrap();
        assert!(second != Lease::Address(first) && used(&leases) <= 3, "{second:?} {}", used(&leases));
        leases.release_lease(second);
    }
    leases.set_reserved(&[]);
    assert!(leases.claim_lease(Lease::Address(first), &ann));
    leases.release_lease(Lease::Address(first));
    assert_eq!(used(&leases), 0);
    // Without another free address there is none, and nothing is kept of the attempts.
    let mut leases = leases_of(&[("a", "10.0.0.1-10.0.0.1")]);
    assert!(leases.take_lease(&["a"], LeaseKind::Ipv4, &ann).is_some());
    leases.set_reserved(&[[10, 0, 0, 1].into()]);
    leases.release_lease(address("10.0.0.1"));
    for _ in 0..3 {
        assert_eq!(leases.take_lease(&["a"], LeaseKind::Ipv4, &ann), None);
    }
    leases.set_reserved(&[]);
    assert_eq!(used(&leases), 0);
}

/// An AAA server assigns a prefix of another length than the pool's.
#[test]
fn a_pool_passes_over_prefixes_within_an_assigned_one() {
    let mut leases = leases_of(&[("p", "2001:db8::/62/64")]);
    let used = |leases: &AddressLeases| leases.pool_usage().next().unwrap().prefixes.0;
    assert!(leases.claim_lease(prefix("2001:db8::", 63), &holder(1, true)));
    let mut taken: Vec<_> =
        (2..6).filter_map(|n| leases.take_lease(&["p"], LeaseKind::Prefix, &holder(n, true))).collect();
    taken.sort_by_key(|lease| format!("{lease:?}"));
    assert_eq!(taken, [prefix("2001:db8:0:2::", 64), prefix("2001:db8:0:3::", 64)]);
    assert_eq!(used(&leases), 4, "those within the assigned one stay reserved");
    leases.release_lease(prefix("2001:db8::", 63));
    assert_eq!(used(&leases), 2);
    assert!(leases.take_lease(&["p"], LeaseKind::Prefix, &holder(7, true)).is_some());
}
