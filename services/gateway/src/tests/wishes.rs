//! Requests of an initiator: addresses and CHILD_SAs.

use super::local::{PSK_CLIENT, PSK_GATEWAY};
use super::*;
use crate::AddressLeaseRequest;
use usher_core::SecureRng;
use usher_ike::payload::Identification;

/// RFC 7296 3.15.1: an initiator may request a specific address.
#[test]
fn an_address_that_is_asked_for_is_given_while_it_is_free() {
    let pools = load_config(PSK_GATEWAY).config.subscribers.pools;
    let mut leases = AddressLeases::new(&pools, SecureRng::from_seed([7; 32]));
    let mut ask = |who: &str, address: &str, granted: &str| {
        let wish = AddressLeaseRequest {
            sa: IkeSaId(1),
            holder: ("road".into(), Identification::from_fqdn(who)),
            granted: granted.parse().into_iter().collect(),
            pools: vec!["inner".into()],
            is_exclusive: false,
            addresses: address.parse().into_iter().collect(),
        };
        let GatewayCommand::Leased { leases, .. } = wish.answer_from(&mut leases) else {
            panic!("it answers so")
        };
        leases
            .into_iter()
            .map(|lease| match lease {
                usher_access::pool::Lease::Address(address) => address.to_string(),
                prefix @ usher_access::pool::Lease::Prefix(..) => panic!("{prefix:?} is no address"),
            })
            .next()
    };
    // Of 10.9.0.10 and 10.9.0.11.
    assert_eq!(ask("ann", "10.9.0.11", "").as_deref(), Some("10.9.0.11"));
    assert_eq!(ask("ann", "10.9.0.11", "").as_deref(), Some("10.9.0.11"), "it has that one itself");
    assert_eq!(ask("bob", "10.9.0.11", "").as_deref(), Some("10.9.0.10"), "another has it");
    assert_eq!(ask("cat", "10.9.0.10", ""), None);
    assert_eq!(ask("cat", "10.9.7.7", ""), None, "it is of no pool");
}

/// An address of a pool that an AAA server assigns is leased to that user only.
#[test]
fn an_address_that_an_aaa_server_gives_is_given_to_nobody_else() {
    let pools = load_config(PSK_GATEWAY).config.subscribers.pools;
    let mut leases = AddressLeases::new(&pools, SecureRng::from_seed([7; 32]));
    let mut ask = |who: &str, granted: &[&str], address: &[&str]| {
        let parsed = |all: &[&str]| all.iter().map(|address| address.parse().unwrap()).collect();
        let holder = ("road".into(), Identification::from_fqdn(who));
        let pools = vec!["inner".into()];
        let (granted, addresses) = (parsed(granted), parsed(address));
        let GatewayCommand::Leased { leases, .. } =
            (AddressLeaseRequest { sa: IkeSaId(1), holder, granted, pools, is_exclusive: false, addresses })
                .answer_from(&mut leases)
        else {
            panic!("it answers so")
        };
        leases.into_iter().map(|lease| format!("{lease:?}")).collect::<Vec<_>>().join(" ")
    };
    assert!(ask("ann", &["10.9.0.10"], &[]).contains("10.9.0.10"));
    assert!(ask("bob", &[], &["10.9.0.10"]).contains("10.9.0.11"), "ann has the other");
    assert_eq!(ask("cat", &[], &["10.9.0.10"]), "");
}

/// Two CHILD_SAs without a trigger: the second follows the first under the same IKE_SA.
#[test]
fn all_children_of_a_connection_that_is_begun_are_made() {
    let further = "[[connection.child]]\nname = \"other\"\n";
    let gateway = PSK_GATEWAY.replace("[[pool]]", &format!("{further}local = [\"10.3.0.0/16\"]\n[[pool]]"));
    let client = format!("{PSK_CLIENT}{further}remote = [\"10.3.0.0/16\"]\n");
    let mut world = GatewayTestNetwork::new(&gateway);
    let host = world.add_client(CLIENT, &client);
    world.run_for(secs(2));
    let mut names: Vec<String> =
        world.installed_children(host).into_values().map(|child| child.name).collect();
    names.sort();
    assert_eq!((names, world.sa_statuses(host).len()), (vec!["net".to_owned(), "other".to_owned()], 1));
    assert_eq!(world.installed_children(world.gateway).len(), 2);
}

/// Two devices of one user have an address each. A device that returns after its end gets its own again.
#[test]
fn devices_of_one_user_have_addresses_of_their_own() {
    let gateway = PSK_GATEWAY.replace("pools =", "unique = false\npools =");
    let client = PSK_CLIENT.replace("start = true", "unique = false\nstart = true");
    let mut world = GatewayTestNetwork::new(&gateway);
    let devices = ["198.51.100.1", "198.51.100.2"].map(|address| world.add_client(address, &client));
    world.run_for(secs(2));
    let [first, second] = devices.map(|device| world.sa_statuses(device)[0].addresses.clone());
    assert!(first.len() == 1 && second.len() == 1 && first != second, "{first:?} {second:?}");
    // The third gets no address, since the pool has two.
    let third = world.add_client("198.51.100.3", &client);
    world.run_for(secs(2));
    assert_eq!((world.sa_statuses(third)[0].addresses.len(), world.sa_statuses(world.gateway).len()), (0, 3));
    assert_eq!(world.login_failures(world.gateway), [LoginFailure::NoAddress]);
    // Each packet of the gateway goes to one device: no two CHILD_SAs have the same address.
    let remotes: Vec<_> =
        world.installed_children(world.gateway).into_values().map(|child| child.remote).collect();
    assert!(remotes.len() == 2 && remotes[0] != remotes[1]);
}

/// An AAA server assigns one address to both devices of a user: the first one gets it.
#[test]
fn an_address_that_another_device_has_is_not_given_twice() {
    let pools = load_config(PSK_GATEWAY).config.subscribers.pools;
    let mut leases = AddressLeases::new(&pools, SecureRng::from_seed([7; 32]));
    let mut ask = |alone, granted: &[&str], wanted: &[&str]| {
        let parsed = |all: &[&str]| all.iter().map(|address| address.parse().unwrap()).collect();
        let holder = ("road".into(), Identification::from_fqdn("ann"));
        let pools = vec!["inner".into()];
        let (granted, addresses) = (parsed(granted), parsed(wanted));
        let wish =
            AddressLeaseRequest { sa: IkeSaId(1), holder, granted, pools, is_exclusive: alone, addresses };
        let GatewayCommand::Leased { leases, .. } = wish.answer_from(&mut leases) else {
            panic!("it answers so")
        };
        leases.len()
    };
    assert_eq!(ask(true, &["10.9.0.10"], &[]), 1);
    assert_eq!(ask(true, &["10.9.0.10"], &[]), 0);
    assert_eq!(
        ask(false, &["10.9.0.10"], &[]),
        1,
        "where the newer one takes the older one's place it has it too"
    );
    assert_eq!(ask(true, &[], &["10.9.0.10"]), 1, "it is given the other");
    assert_eq!(ask(true, &[], &["10.9.0.11"]), 0);
}

/// An address that the AAA server assigns, or that a user requests, is not given while another user has it, in a pool
/// or not.
#[test]
fn an_address_of_another_user_is_not_given_until_it_is_free() {
    let pools = load_config(PSK_GATEWAY).config.subscribers.pools;
    let mut leases = AddressLeases::new(&pools, SecureRng::from_seed([7; 32]));
    let ask = |leases: &mut AddressLeases, user: &str, granted: &str| {
        let holder = ("road".into(), Identification::from_fqdn(user));
        let granted = vec![granted.parse().unwrap()];
        let (pools, addresses) = (vec!["inner".into()], Vec::new());
        let wish =
            AddressLeaseRequest { sa: IkeSaId(1), holder, granted, pools, is_exclusive: false, addresses };
        let GatewayCommand::Leased { leases, .. } = wish.answer_from(leases) else { panic!("it answers so") };
        leases
    };
    for address in ["10.9.0.10", "10.200.0.1", "2001:db8::7"] {
        let twice = [ask(&mut leases, "ann", address), ask(&mut leases, "ann", address)];
        assert_eq!((twice[0].len(), &twice[0]), (1, &twice[1]), "{address}: who comes again has it again");
        for held in twice.concat() {
            assert_eq!(ask(&mut leases, "bob", address), [], "{address}: ann has it");
            leases.release_lease(held);
        }
        assert_eq!(ask(&mut leases, "bob", address).len(), 1, "{address}: it is free");
        assert_eq!(ask(&mut leases, "ann", address), [], "{address}: bob has it");
    }
}
