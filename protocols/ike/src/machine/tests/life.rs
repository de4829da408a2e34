//! An IKE_SA's exchanges, and its end and that of its CHILD_SAs.

use super::*;
use crate::code::*;

/// IPv6 Ready: EN.I.1.2.5.2, EN.R.1.2.7.1.
#[test]
fn an_answer_leaves_after_what_it_grants_is_installed() {
    use usher_core::{Machine, MachineOutput};
    let mut world = IkeTestNetwork::with_shared_key();
    world.initiate();
    world.net.run_for(millis(25));
    // The IKE_AUTH request, given to the responder by hand.
    let request = world.net.sent_transmits()[2].bytes.clone();
    let path = usher_core::DatagramPath {
        socket: SOCKET,
        local: socket_address(RESPONDER, 500),
        remote: socket_address(INITIATOR, 500),
    };
    let (responder, now) = (world.responder, world.net.now());
    let endpoint = &mut world.net[responder];
    endpoint.handle_input(now, usher_core::MachineInput::Datagram { path, data: &request });
    let (mut buf, mut order) = (Vec::new(), Vec::new());
    while let Some(output) = endpoint.poll_output(&mut buf) {
        match output {
            MachineOutput::Event(IkeEvent::Established { .. }) => order.push("established"),
            MachineOutput::Event(IkeEvent::Install { .. }) => order.push("install"),
            MachineOutput::Transmit(_) => order.push("transmit"),
            _ => {}
        }
    }
    assert_eq!(order, ["established", "install", "transmit"]);
}

/// IPv6 Ready: EN.I.1.1.7.1, EN.R.1.1.7.1, EN.R.1.1.7.3.
#[test]
fn traffic_is_narrowed_to_what_both_allow() {
    let mut ours = psk_connection(true);
    ours.children[0].local = Some(network_selectors("10.0.0.0", 8));
    ours.children[0].remote = Some(
        [
            network_selectors("10.2.0.0", 16),
            network_selectors("10.2.7.0", 24),
            network_selectors("172.16.0.0", 12),
        ]
        .concat(),
    );
    let mut world = IkeTestNetwork::new(ours, psk_connection(false));
    world.connect();
    world.assert_children_match(1);
    let child = world.installed_children(world.initiator).into_values().next().unwrap();
    assert_eq!(
        (child.local, child.remote),
        (network_selectors("10.1.0.0", 16), network_selectors("10.2.0.0", 16))
    );
}

/// IPv6 Ready: EN.I.1.1.6.12, EN.R.1.1.6.9, EN.R.1.1.7.2.
#[test]
fn without_common_traffic_there_is_an_ike_sa_without_a_child() {
    let mut ours = psk_connection(true);
    ours.children[0].local = Some(network_selectors("192.168.0.0", 16));
    let mut world = IkeTestNetwork::new(ours.clone(), psk_connection(false));
    world.connect();
    world.assert_children_match(0);
    let refused = |world: &IkeTestNetwork| {
        world.events(world.initiator).into_iter().find_map(|event| match event {
            IkeEvent::ChildRefused { name, why, .. } => Some((name, why)),
            _ => None,
        })
    };
    assert_eq!(refused(&world), Some(("net".into(), NotifyType::TS_UNACCEPTABLE)));
    assert_eq!(world.counters(world.responder).children_refused, 1);
    ours.children[0].local = Some(network_selectors("10.1.0.0", 16));
    ours.children[0].proposals = vec![Proposal::parse_esp_proposal("3des-sha1").unwrap()];
    let mut world = IkeTestNetwork::new(ours, psk_connection(false));
    world.connect();
    assert_eq!(refused(&world), Some(("net".into(), NotifyType::NO_PROPOSAL_CHOSEN)));
}

#[test]
fn transport_mode_is_had_where_both_want_it() {
    for (ours, theirs, mode) in [
        (IpsecMode::Transport, IpsecMode::Transport, IpsecMode::Transport),
        (IpsecMode::Transport, IpsecMode::Tunnel, IpsecMode::Tunnel),
        (IpsecMode::Tunnel, IpsecMode::Transport, IpsecMode::Tunnel),
    ] {
        let (mut a, mut b) = (psk_connection(true), psk_connection(false));
        (a.children[0].mode, b.children[0].mode) = (ours, theirs);
        let mut world = IkeTestNetwork::new(a, b);
        world.connect();
        world.assert_children_match(1);
        assert!(world.installed_children(world.responder).values().all(|child| child.mode == mode));
    }
}

/// IPv6 Ready: EN.I.2.1.2.1, EN.I.2.1.2.2.
#[test]
fn an_initiator_is_given_an_address_and_a_name_server() {
    let (mut ours, mut theirs) = (psk_connection(true), psk_connection(false));
    (ours.address, theirs.address) = (true, true);
    (ours.children[0].local, theirs.children[0].remote) = (None, None);
    let mut world = IkeTestNetwork::new(ours, theirs);
    world.connect();
    world.assert_children_match(1);
    let given = world.events(world.initiator).into_iter().find_map(|event| match event {
        IkeEvent::Configured { attributes, .. } => Some(attributes),
        _ => None,
    });
    let given: Vec<_> = given.unwrap().iter().filter_map(ConfigurationAttribute::as_address).collect();
    assert_eq!(given, [ip_address("10.9.0.7"), ip_address("10.9.0.1")]);
    let child = world.installed_children(world.initiator).into_values().next().unwrap();
    assert_eq!(child.local, network_selectors("10.9.0.7", 32), "its traffic is of that address");
}

/// IPv6 Ready: EN.I.2.1.2.4.
#[test]
fn without_an_address_to_give_there_is_no_child() {
    let (mut ours, mut theirs) = (psk_connection(true), psk_connection(false));
    (ours.address, theirs.address) = (true, true);
    let mut world = IkeTestNetwork::new(ours, theirs);
    let responder = world.responder;
    world.net.on_event(responder, |event| match event {
        IkeEvent::AddressRequested { sa, identity, attributes, .. } => {
            assert_eq!(identity.to_string(), "ini.test");
            assert!(attributes.iter().any(|a| a.kind == ConfigurationType::INTERNAL_IP4_ADDRESS));
            Some((millis(1), IkeCommand::Address { sa: *sa, attributes: vec![] }))
        }
        _ => None,
    });
    world.connect();
    world.assert_children_match(0);
    assert!(world.events(world.initiator).iter().any(|event| matches!(
        event,
        IkeEvent::ChildRefused { why: NotifyType::INTERNAL_ADDRESS_FAILURE, .. }
    )));
}

/// An initiator that requests no address, or gets none, gets no traffic selectors for it: neither now nor by a later
/// exchange.
#[test]
fn who_was_given_no_address_claims_nobodys_traffic() {
    let (mut ours, mut theirs) = (psk_connection(true), psk_connection(false));
    ours.children[0].local = Some(network_selectors("0.0.0.0", 0));
    (theirs.address, theirs.children[0].remote) = (true, None);
    for asks in [false, true] {
        ours.address = asks;
        let mut world = IkeTestNetwork::new(ours.clone(), theirs.clone());
        let responder = world.responder;
        world.net.on_event(responder, |event| match event {
            // A name server is no address.
            IkeEvent::AddressRequested { sa, .. } => {
                let attributes = vec![ConfigurationAttribute::from_name_server(ip_address("10.9.0.1"))];
                Some((millis(1), IkeCommand::Address { sa: *sa, attributes }))
            }
            _ => None,
        });
        let (sa, _) = world.connect();
        world.assert_children_match(0);
        world.net.send_command(world.initiator, IkeCommand::CreateChild { sa, name: "net".into() }).unwrap();
        world.net.run_for(secs(1));
        world.assert_children_match(0);
    }
}

/// An initiator ignores an assigned address that no host can have, and uses the other attributes.
#[test]
fn an_address_that_no_host_can_have_is_not_taken() {
    for given in ["127.0.0.1", "224.0.0.9", "0.0.0.0", "255.255.255.255"] {
        let (mut ours, mut theirs) = (psk_connection(true), psk_connection(false));
        (ours.address, theirs.address) = (true, true);
        (ours.children[0].local, theirs.children[0].remote) = (None, None);
        let mut world = IkeTestNetwork::new(ours, theirs);
        world.net.on_event(world.responder, move |event| match event {
            IkeEvent::AddressRequested { sa, .. } => {
                let of_host = ConfigurationAttribute::from_address(ip_address(given), 32);
                let attributes =
                    vec![of_host, ConfigurationAttribute::from_name_server(ip_address("10.9.0.1"))];
                Some((millis(1), IkeCommand::Address { sa: *sa, attributes }))
            }
            _ => None,
        });
        world.connect();
        let taken = world.events(world.initiator).into_iter().find_map(|event| match event {
            IkeEvent::Configured { attributes, .. } => Some(attributes),
            _ => None,
        });
        let taken: Vec<_> = taken.unwrap().iter().filter_map(ConfigurationAttribute::as_address).collect();
        assert_eq!(taken, [ip_address("10.9.0.1")]);
        let children = world.installed_children(world.initiator);
        assert!(children.is_empty(), "{given}: {children:?}");
    }
}

/// IPv6 Ready: EN.I.1.2.3.7, EN.R.1.2.5.5.
#[test]
fn forward_secrecy_that_a_side_wants_is_not_given_up() {
    let with = |words: &str, mut connection: IkeConnectionConfig| {
        connection.children[0].proposals = vec![Proposal::parse_esp_proposal(words).unwrap()];
        connection
    };
    for (ours, theirs) in [("aes128gcm16", "aes128gcm16-x25519"), ("aes128gcm16-x25519", "aes128gcm16")] {
        let mut world =
            IkeTestNetwork::new(with(ours, psk_connection(true)), with(theirs, psk_connection(false)));
        let (sa, _) = world.connect();
        world.assert_children_match(1);
        world.net.send_command(world.initiator, IkeCommand::CreateChild { sa, name: "net".into() }).unwrap();
        world.net.run_for(secs(1));
        world.assert_children_match(1);
        let refused = |event: &IkeEvent| {
            matches!(event, IkeEvent::ChildRefused { why: NotifyType::NO_PROPOSAL_CHOSEN, .. })
        };
        assert!(world.events(world.initiator).iter().any(refused), "{ours} {theirs}");
    }
}

#[test]
fn an_ike_sa_may_begin_without_a_child_which_follows() {
    let ours = IkeConnectionConfig { childless: ChildlessPolicy::Force, ..psk_connection(true) };
    let mut world = IkeTestNetwork::new(ours.clone(), psk_connection(false));
    world.connect();
    world.assert_children_match(1);
    assert_eq!(world.net.sent_transmits().len(), 6, "CREATE_CHILD_SA is an exchange of its own");
    let theirs = IkeConnectionConfig { childless: ChildlessPolicy::Never, ..psk_connection(false) };
    let mut world = IkeTestNetwork::new(ours, theirs);
    world.initiate();
    world.net.run_for(secs(1));
    assert_eq!(
        world.end_reasons(world.initiator),
        [EndReason::Unsupported],
        "the responder does not say that it can"
    );
}

/// IPv6 Ready: EN.I.1.2.3.7, EN.I.1.2.5.1, EN.R.1.2.5.5.
#[test]
fn another_child_is_made_with_a_key_exchange_of_its_own() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, theirs) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    let before = world.net.take_work()["ike.key_exchange"];
    world.net.send_command(initiator, IkeCommand::CreateChild { sa: ours, name: "net".into() }).unwrap();
    world.net.run_for(secs(1));
    world.assert_children_match(2);
    let after = world.net.take_work()["ike.key_exchange"];
    assert_eq!((before, after), (4, 4), "begun, answered by two operations, finished");
    // The responder of the IKE_SA may initiate too.
    world.net.send_command(responder, IkeCommand::CreateChild { sa: theirs, name: "net".into() }).unwrap();
    world.net.run_for(secs(1));
    world.assert_children_match(3);
}

/// IPv6 Ready: EN.I.1.1.6.7, EN.R.1.1.6.7.
#[test]
fn another_method_is_asked_for_in_create_child_sa_too() {
    let (mut ours, mut theirs) = (psk_connection(true), psk_connection(false));
    ours.children[0].proposals = vec![Proposal::parse_esp_proposal("aes128gcm16-x25519-modp1024").unwrap()];
    theirs.children[0].proposals = vec![Proposal::parse_esp_proposal("aes128gcm16-modp1024").unwrap()];
    let mut world = IkeTestNetwork::new(ours, theirs);
    let (ours, _) = world.connect();
    let initiator = world.initiator;
    world.net.send_command(initiator, IkeCommand::CreateChild { sa: ours, name: "net".into() }).unwrap();
    world.net.run_for(secs(1));
    world.assert_children_match(2);
    assert_eq!(world.counters(world.responder).invalid_ke, 1);
}

/// IPv6 Ready: EN.I.1.1.3.6, EN.R.1.1.3.5, EN.R.1.1.3.6.
#[test]
fn a_child_and_an_ike_sa_are_deleted_by_either_side() {
    for by_initiator in [true, false] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, theirs) = world.connect();
        let (host, sa) = if by_initiator { (world.initiator, ours) } else { (world.responder, theirs) };
        let spi = *world.installed_children(host).keys().next().unwrap();
        world.net.send_command(host, IkeCommand::DeleteChild { sa, spi }).unwrap();
        world.net.run_for(secs(1));
        world.assert_children_match(0);
        world.net.send_command(host, IkeCommand::CreateChild { sa, name: "net".into() }).unwrap();
        world.net.run_for(secs(1));
        world.assert_children_match(1);
        world.net.send_command(host, IkeCommand::Delete(sa)).unwrap();
        world.net.run_for(secs(1));
        world.assert_children_match(0);
        let (first, second) = (world.end_reasons(world.initiator), world.end_reasons(world.responder));
        let want = (vec![EndReason::Deleted], vec![EndReason::DeletedByPeer]);
        assert_eq!(if by_initiator { (first, second) } else { (second, first) }, want);
        world.assert_all_removed();
    }
}

/// IPv6 Ready: EN.I.1.2.2.1.
#[test]
fn a_deletion_whose_answer_is_lost_is_answered_again() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, _) = world.connect();
    // There were four messages. The request is the fifth, its response the sixth.
    world.net.drop_transmits(&[5]);
    let initiator = world.initiator;
    world.net.send_command(initiator, IkeCommand::Delete(ours)).unwrap();
    world.net.run_for(secs(10));
    assert_eq!(world.end_reasons(initiator), [EndReason::Deleted]);
    assert_eq!(world.counters(world.responder).duplicates, 1);
    world.assert_all_removed();
}

/// IPv6 Ready: EN.I.1.2.6.3, EN.I.1.2.6.4, EN.I.1.2.6.5, EN.I.1.2.6.6.
#[test]
fn both_may_delete_at_the_same_time() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, theirs) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    let spis = [initiator, responder].map(|host| *world.installed_children(host).keys().next().unwrap());
    world.net.send_command(initiator, IkeCommand::DeleteChild { sa: ours, spi: spis[0] }).unwrap();
    world.net.send_command(responder, IkeCommand::DeleteChild { sa: theirs, spi: spis[1] }).unwrap();
    world.net.run_for(secs(1));
    world.assert_children_match(0);
    world.net.send_command(initiator, IkeCommand::Delete(ours)).unwrap();
    world.net.send_command(responder, IkeCommand::Delete(theirs)).unwrap();
    world.net.run_for(secs(1));
    assert_eq!(
        (world.end_reasons(initiator), world.end_reasons(responder)),
        (vec![EndReason::Deleted], vec![EndReason::Deleted])
    );
    world.assert_all_removed();
}

/// IPv6 Ready: EN.I.1.1.3.3, EN.R.1.1.3.4, EN.R.1.3.1.1.
#[test]
fn a_silent_side_is_asked_whether_it_lives_and_given_up() {
    let ours = IkeConnectionConfig { liveness: Some(secs(30)), ..psk_connection(true) };
    let mut world = IkeTestNetwork::new(ours, psk_connection(false));
    world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.run_for(secs(62));
    let alive =
        world.events(initiator).iter().filter(|event| matches!(event, IkeEvent::Alive { .. })).count();
    assert_eq!(alive, 2);
    world.net.set_silent(responder, true);
    world.net.run_for(secs(30 + 166));
    assert_eq!(world.end_reasons(initiator), [EndReason::Unreachable]);
    let counters = world.counters(initiator);
    assert_eq!((counters.retransmissions, counters.given_up), (5, 1));
    assert_eq!(world.installed_children(initiator).len(), 0, "what it carried is removed");
}

/// A deleted peer is gone after half a minute, whether it responds or not, and whatever else is outstanding.
#[test]
fn who_does_not_answer_that_it_is_deleted_ends_soon() {
    for owes in [false, true] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (_, theirs) = world.connect();
        let (initiator, responder) = (world.initiator, world.responder);
        world.net.set_silent(initiator, true);
        if owes {
            world.net.send_command(responder, IkeCommand::Probe(theirs)).unwrap();
            world.net.run_for(secs(20));
        }
        world.net.send_command(responder, IkeCommand::Delete(theirs)).unwrap();
        world.net.run_for(secs(29));
        assert_eq!(world.installed_children(responder).len(), 1);
        world.net.run_for(secs(2));
        assert_eq!(
            (world.installed_children(responder).len(), world.end_reasons(responder)),
            (0, vec![EndReason::Deleted])
        );
    }
}

/// IPv6 Ready: EN.R.1.1.3.4, EN.R.1.3.1.1.
#[test]
fn a_probe_is_an_empty_exchange() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, _) = world.connect();
    let initiator = world.initiator;
    world.net.send_command(initiator, IkeCommand::Probe(ours)).unwrap();
    world.net.run_for(secs(1));
    assert!(world.events(initiator).contains(&IkeEvent::Alive { sa: ours }));
}

#[test]
fn requests_go_one_after_another() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, _) = world.connect();
    let initiator = world.initiator;
    for _ in 0..3 {
        world.net.send_command(initiator, IkeCommand::Probe(ours)).unwrap();
        world.net.send_command(initiator, IkeCommand::CreateChild { sa: ours, name: "net".into() }).unwrap();
    }
    world.net.run_for(millis(5));
    assert_eq!(world.net.sent_transmits().len(), 5, "the window has one request");
    world.net.run_for(secs(1));
    // A task is not planned twice.
    assert_eq!(world.installed_children(initiator).len(), 2);
}

#[test]
fn long_messages_are_sent_in_fragments_where_both_can() {
    for (ours, theirs, fragmented) in [(true, true, true), (true, false, false), (false, true, false)] {
        let (mut a, mut b) = (psk_connection(true), psk_connection(false));
        (a.fragmentation, b.fragmentation) = (ours, theirs);
        let config = IkeEndpointConfig { packet: 200, ..default_config() };
        let mut world = IkeTestNetwork::with_config(config, a, b, TestEapMethod::MsChapV2);
        world.connect();
        world.assert_children_match(1);
        let after: Vec<_> = world.net.sent_transmits()[2..].iter().map(|sent| sent.bytes.len()).collect();
        assert_eq!(after.len() > 2, fragmented, "{after:?}");
        assert!(!fragmented || after.iter().all(|length| *length + 28 <= 200), "{after:?}");
    }
}

#[test]
fn fragments_that_are_lost_are_sent_again_with_all_others() {
    let config = IkeEndpointConfig { packet: 200, ..default_config() };
    let mut world = IkeTestNetwork::with_config(
        config,
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    );
    // The IKE_AUTH request, and its response.
    world.net.drop_transmits(&[3, 7]);
    world.initiate();
    world.net.run_for(secs(20));
    world.assert_children_match(1);
    assert!(world.counters(world.initiator).retransmissions >= 1);
}

#[test]
fn an_ike_sa_that_is_new_ends_another_of_the_same_two() {
    // By INITIAL_CONTACT, and by the configuration.
    for unique in [true, false] {
        let ours = IkeConnectionConfig { unique: true, ..psk_connection(true) };
        let theirs = IkeConnectionConfig { unique, ..psk_connection(false) };
        let mut world = IkeTestNetwork::new(ours.clone(), theirs);
        world.connect();
        // The initiator restarts without its state.
        let initiator = world.initiator;
        world.net[initiator] = IkeEndpoint::new(default_config(), SecureRng::from_seed([9; 32]));
        world.net.take_events(initiator);
        world.connection = Arc::new(ours);
        world.initiate();
        world.net.run_for(secs(1));
        assert_eq!(world.end_reasons(world.responder), [EndReason::Replaced]);
        assert_eq!(world.installed_children(world.responder).len(), 1);
        assert_eq!(world.sa_counts().1, 1);
    }
}

/// A device without power does not respond to the Delete. Its user meanwhile has the address by two IKE_SAs.
#[test]
fn a_replaced_ike_sa_does_not_wait_long_for_its_dead_peer() {
    let ours = IkeConnectionConfig { unique: false, ..psk_connection(true) };
    let mut world =
        IkeTestNetwork::new(ours.clone(), IkeConnectionConfig { unique: true, ..psk_connection(false) });
    world.connect();
    let initiator = world.initiator;
    world.net[initiator] = IkeEndpoint::new(default_config(), SecureRng::from_seed([9; 32]));
    world.connection = Arc::new(ours);
    world.initiate();
    world.net.run_for(secs(1));
    assert_eq!((world.end_reasons(world.responder), world.sa_counts().1), (vec![], 2), "its Delete is out");
    world.net.run_for(secs(30));
    assert_eq!((world.end_reasons(world.responder), world.sa_counts().1), (vec![EndReason::Replaced], 1));
}

#[test]
fn an_initiator_that_does_not_go_on_is_forgotten() {
    let mut world = IkeTestNetwork::with_shared_key();
    let initiator = world.initiator;
    world.initiate();
    world.net.run_for(millis(15));
    world.net.set_silent(initiator, true);
    world.net.run_for(millis(1));
    assert_eq!((world.sa_counts().1, world.net[world.responder].half_open()), (1, 1));
    world.net.run_for(secs(31));
    assert_eq!((world.sa_counts().1, world.net[world.responder].half_open()), (0, 0));
    assert_eq!(world.end_reasons(world.responder), [EndReason::HalfOpen]);
    assert_eq!(world.counters(world.responder).half_open_expired, 1);
}

#[test]
fn a_host_that_a_nat_gives_another_address_is_followed() {
    let mut world = IkeTestNetwork::with_shared_key();
    let connection = world.connection.clone();
    let initiator = world.initiator;
    let (local, remote) = (socket_address("0.0.0.0", 500), socket_address(RESPONDER, 500));
    world.net.send_command(initiator, IkeCommand::Initiate { token: 1, connection, local, remote }).unwrap();
    world.net.run_for(secs(1));
    let sa = world.established_sa(initiator).unwrap();
    world.net.send_command(initiator, IkeCommand::Probe(sa)).unwrap();
    // The same message arrives from another port of the NAT before the right one.
    let probe = world.net.sent_transmits().last().unwrap().bytes.clone();
    let responder = world.responder;
    let other = socket_address("203.0.113.9", 61000);
    world.forge_datagram(responder, other, socket_address(RESPONDER, 4500), &probe);
    let moved = world.events(responder).into_iter().find_map(|event| match event {
        IkeEvent::Moved { path, .. } => Some(path.remote),
        _ => None,
    });
    assert_eq!((moved, world.counters(responder).moved), (Some(other), 1));
    assert!(instant_after(secs(1)) <= world.net.now());
}
