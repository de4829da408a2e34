//! Reports of the data plane: traffic of CHILD_SAs, and packets that need one.

use super::local::{PSK_CLIENT, PSK_GATEWAY};
use super::*;
use usher_esp::plane::SaUsage;
use usher_esp::sa::TrafficVolume;

/// The total of this many packets of 100 octets.
fn packet_usage(received: u64, sent: u64) -> SaUsage {
    let volume = |packets| TrafficVolume { packets, octets: packets * 100 };
    SaUsage { received: volume(received), sent: volume(sent), last_received: None }
}

fn report_usage(
    world: &mut GatewayTestNetwork,
    host: NetworkHostHandle<IkeGateway>,
    pairs: &[(u32, SaUsage)],
) {
    world.net.send_command(host, GatewayCommand::UsageReport(pairs.to_vec())).unwrap();
}

#[test]
fn what_children_carry_is_their_sessions_over_every_replacement() {
    let mut world = GatewayTestNetwork::with_metering(PSK_GATEWAY);
    let client = world.add_client(CLIENT, PSK_CLIENT);
    world.run_for(secs(1));
    let gateway = world.gateway;
    let spi = |world: &GatewayTestNetwork| *world.installed_children(gateway).keys().next().unwrap();
    let first = spi(&world);
    report_usage(&mut world, gateway, &[(first, packet_usage(5, 3)), (0xffff, packet_usage(99, 99))]);
    // The same total is not counted twice.
    report_usage(&mut world, gateway, &[(first, packet_usage(7, 3))]);
    let status = world.sa_statuses(gateway).remove(0);
    assert_eq!((status.usage, status.children[0].usage), (packet_usage(7, 3), packet_usage(7, 3)));
    world
        .net
        .send_command(
            gateway,
            GatewayCommand::Rekey { token: 1, selection: IkeSaSelector::All, children: true },
        )
        .unwrap();
    world.run_for(secs(1));
    world
        .net
        .send_command(gateway, GatewayCommand::Removed { inbound: first, usage: Some(packet_usage(8, 4)) })
        .unwrap();
    let second = spi(&world);
    assert_ne!(first, second);
    report_usage(&mut world, gateway, &[(second, packet_usage(1, 1))]);
    // Rekeying the IKE_SA changes nothing.
    world
        .net
        .send_command(
            client,
            GatewayCommand::Rekey { token: 1, selection: IkeSaSelector::All, children: false },
        )
        .unwrap();
    world.run_for(secs(1));
    report_usage(&mut world, gateway, &[(second, packet_usage(2, 1))]);
    let status = world.sa_statuses(gateway).remove(0);
    assert_eq!((status.usage, status.children[0].usage), (packet_usage(10, 5), packet_usage(2, 1)));
    let counters = world.net[gateway].counters().0;
    assert_eq!((counters.received_packets, counters.received_octets), (10, 1000));
    assert_eq!((counters.sent_packets, counters.sent_octets), (5, 500));
}

#[test]
fn packets_that_come_are_a_sign_of_life() {
    let text = PSK_GATEWAY.replace("pools =", "liveness = \"10 s\"\npools =");
    let mut world = GatewayTestNetwork::with_metering(&text);
    world.add_client(CLIENT, &PSK_CLIENT.replace("address = true", "liveness = \"0 s\"\naddress = true"));
    world.run_for(secs(1));
    let gateway = world.gateway;
    let spi = *world.installed_children(gateway).keys().next().unwrap();
    let requests = |world: &GatewayTestNetwork| world.net[gateway].counters().2.requests;
    let before = requests(&world);
    for n in 1..12 {
        world.run_for(secs(5));
        report_usage(&mut world, gateway, &[(spi, packet_usage(n, 0))]);
    }
    assert_eq!(requests(&world), before, "nobody is asked who speaks");
    // Sent packets are no sign of life.
    for n in 1..4 {
        world.run_for(secs(5));
        report_usage(&mut world, gateway, &[(spi, packet_usage(11, n))]);
    }
    assert_eq!(requests(&world), before + 1);
}

const ON_DEMAND: &str = r#"
[[connection]]
name = "home"
local_id = "ini.test"
remote_id = "gw.test"
local_auth = "psk"
remote_auth = "psk"
secret = "a shared secret"
remote_address = "192.0.2.1"
on_demand = true
[[connection.child]]
name = "net"
local = ["10.1.0.0/16"]
remote = ["10.2.0.0/16"]
[[connection.child]]
name = "other"
local = ["10.1.0.0/16"]
remote = ["10.3.0.0/16"]
"#;

const SITE: &str = r#"
[[connection]]
name = "site"
local_id = "gw.test"
remote_id = "ini.test"
local_auth = "psk"
remote_auth = "psk"
secret = "a shared secret"
[[connection.child]]
name = "net"
local = ["10.2.0.0/16"]
remote = ["10.1.0.0/16"]
"#;

fn acquire_child(world: &mut GatewayTestNetwork, host: NetworkHostHandle<IkeGateway>, child: &str) {
    let command = GatewayCommand::Acquire { connection: "home".into(), child: child.into() };
    world.net.send_command(host, command).unwrap();
}
fn unprotected_children(
    world: &GatewayTestNetwork,
    host: NetworkHostHandle<IkeGateway>,
) -> Vec<Option<String>> {
    let found = world.events(host).into_iter().filter_map(|event| match event {
        GatewayEvent::Unprotected { child, .. } => Some(child),
        _ => None,
    });
    found.collect()
}

#[test]
fn a_packet_begins_the_connection_that_it_needs_once() {
    let more =
        "[[connection.child]]\nname = \"other\"\nlocal = [\"10.3.0.0/16\"]\nremote = [\"10.1.0.0/16\"]\n";
    let mut world = GatewayTestNetwork::with_metering(&format!("{SITE}{more}"));
    let client = world.add_client(CLIENT, ON_DEMAND);
    world.run_for(secs(5));
    assert_eq!(world.sa_statuses(client).len(), 0, "nothing needs it");
    // Both are requested before the IKE_SA exists, the first one twice.
    for child in ["net", "other", "net"] {
        acquire_child(&mut world, client, child);
    }
    world.run_for(secs(1));
    let names = |world: &GatewayTestNetwork| {
        let installed = world.installed_children(client);
        let mut names: Vec<_> = installed.values().map(|child| child.name.clone()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&world), ["net", "other"]);
    assert_eq!((world.sa_statuses(client).len(), unprotected_children(&world, client)), (1, vec![]));
    assert_eq!(world.net[client].counters().0.initiated, 1);
    acquire_child(&mut world, client, "net");
    world.run_for(secs(1));
    assert_eq!(names(&world), ["net", "other"], "it is there");
}

#[test]
fn packets_are_told_that_they_wait_in_vain() {
    // The gateway has no CHILD_SA for the second.
    let mut world = GatewayTestNetwork::with_metering(SITE);
    let client = world.add_client(CLIENT, ON_DEMAND);
    acquire_child(&mut world, client, "other");
    world.run_for(secs(1));
    assert_eq!(unprotected_children(&world, client), [Some("other".to_owned())]);
    // The peer rejects it.
    let wrong = world.add_client("198.51.100.9", &ON_DEMAND.replace("a shared secret", "another secret"));
    acquire_child(&mut world, wrong, "net");
    world.run_for(secs(1));
    assert_eq!(unprotected_children(&world, wrong), [None]);
    // It rests for a while.
    acquire_child(&mut world, wrong, "net");
    assert_eq!(unprotected_children(&world, wrong), [None, Some("net".to_owned())]);
    assert_eq!(world.net[wrong].counters().0.initiated, 1);
    world.run_for(secs(10));
    acquire_child(&mut world, wrong, "net");
    assert_eq!(world.net[wrong].counters().0.initiated, 2);
    // A connection that is not on-demand.
    let gateway = world.gateway;
    acquire_child(&mut world, gateway, "net");
    assert_eq!(unprotected_children(&world, gateway).len(), 1);
}

#[test]
fn a_child_that_has_carried_what_it_may_is_replaced_or_ended() {
    let mut world = GatewayTestNetwork::with_metering(PSK_GATEWAY);
    world.add_client(CLIENT, PSK_CLIENT);
    world.run_for(secs(1));
    let gateway = world.gateway;
    let spi = |world: &GatewayTestNetwork| world.installed_children(gateway).keys().next().copied();
    let first = spi(&world).unwrap();
    world.net.send_command(gateway, GatewayCommand::Expired { inbound: first, hard: false }).unwrap();
    world.run_for(secs(1));
    let second = spi(&world).unwrap();
    assert_ne!(first, second);
    world.net.send_command(gateway, GatewayCommand::Expired { inbound: second, hard: true }).unwrap();
    world.run_for(secs(1));
    assert_eq!((spi(&world), world.sa_statuses(gateway).len()), (None, 1));
}

#[test]
fn a_client_follows_its_hosts_address_where_both_can_move() {
    for (mobike, moves) in [("true", true), ("false", false)] {
        let mut world = GatewayTestNetwork::with_metering(
            &PSK_GATEWAY.replace("pools =", &format!("mobike = {mobike}\npools =")),
        );
        let client = world.add_client(CLIENT, PSK_CLIENT);
        world.run_for(secs(1));
        let there: IpAddr = "198.51.100.77".parse().unwrap();
        world.net.bind_socket(client, SOCKET, SocketAddr::new(there, 500));
        world.net.bind_socket(client, NAT_SOCKET, SocketAddr::new(there, 4500));
        world
            .net
            .send_command(client, GatewayCommand::Addresses(vec![("home".into(), SocketAddr::new(there, 0))]))
            .unwrap();
        world.run_for(secs(2));
        let seen = world.sa_statuses(world.gateway)[0].remote.ip();
        assert_eq!(seen == there, moves, "{mobike}");
    }
}

/// The inbound SPIs of a host, in the order of their installation.
fn installed_spis(world: &GatewayTestNetwork, host: NetworkHostHandle<IkeGateway>) -> Vec<u32> {
    world.installed_children(host).keys().copied().collect()
}

#[test]
fn a_client_proves_anew_who_it_is_before_its_old_sa_ends() {
    for unique in ["true", "false"] {
        let gateway_text = PSK_GATEWAY.replace("pools =", &format!("unique = {unique}\npools ="));
        let mut world = GatewayTestNetwork::with_metering(&gateway_text);
        let more = format!("reauth_after = \"100 s\"\nunique = {unique}\naddress = true");
        let client = world.add_client(CLIENT, &PSK_CLIENT.replace("address = true", &more));
        world.run_for(secs(1));
        let (first, address) =
            (installed_spis(&world, client), world.sa_statuses(client)[0].addresses.clone());
        assert_eq!(first.len(), 1);
        world.run_for(secs(101));
        let now = world.sa_statuses(client);
        assert_eq!((now.len(), &now[0].addresses), (1, &address), "the same address: {unique}");
        let second = installed_spis(&world, client);
        assert!(second.len() == 1 && second != first);
        assert_eq!(world.sa_statuses(world.gateway).len(), 1);
        assert_eq!(world.net[client].counters().0.reauthentications, 1);
        // There was always at least one.
        let mut there = 0;
        for event in world.events(client) {
            match event {
                GatewayEvent::Ike(IkeEvent::Install { .. }) => there += 1,
                GatewayEvent::Ike(IkeEvent::Remove { .. }) => {
                    there -= 1;
                    assert!(there > 0, "{unique}");
                }
                _ => {}
            }
        }
        // Each login has its own proofs.
        world.run_for(secs(300));
        assert!(world.net[client].counters().0.reauthentications >= 3);
        assert_eq!(
            (
                world.sa_statuses(client).len(),
                world.net[world.gateway].pool_usage().next().unwrap().addresses.0
            ),
            (1, 1)
        );
    }
}

#[test]
fn a_client_may_end_its_old_sa_first() {
    let mut world = GatewayTestNetwork::with_metering(PSK_GATEWAY);
    let more = "reauth_after = \"100 s\"\nreauthentication = \"break-before-make\"\naddress = true";
    let client =
        world.add_client(CLIENT, &PSK_CLIENT.replace("start = true\n", "").replace("address = true", more));
    world.connect(client, "home");
    world.run_for(secs(1));
    let first = installed_spis(&world, client);
    world.run_for(secs(101));
    let (second, reauthenticated) =
        (installed_spis(&world, client), world.net[client].counters().0.reauthentications);
    assert!(first.len() == 1 && second.len() == 1 && first != second);
    assert_eq!((world.end_reasons(client), reauthenticated), (vec![EndReason::Deleted], 1));
    // A connection that a command ended is not initiated again.
    world.net.send_command(client, GatewayCommand::Down { token: 1, selection: IkeSaSelector::All }).unwrap();
    world.run_for(secs(200));
    assert_eq!((world.sa_statuses(client).len(), world.sa_statuses(world.gateway).len()), (0, 0));
}

/// Its timers fire while the gateway's response to the Delete is pending.
#[test]
fn what_is_told_to_end_is_not_begun_anew_by_its_times() {
    let anew = "reauth_after = \"100 s\"\n";
    let first = format!("{anew}reauthentication = \"break-before-make\"\n");
    for times in [anew, &first, "rekey_after = \"0 s\"\nlifetime = \"100 s\"\n"] {
        let mut world = GatewayTestNetwork::new(PSK_GATEWAY);
        let text = PSK_CLIENT.replace("start = true\n", "");
        let client =
            world.add_client(CLIENT, &text.replace("address = true", &format!("{times}address = true")));
        world.connect(client, "home");
        world.run_for(secs(85));
        world.net.set_silent(world.gateway, true);
        world
            .net
            .send_command(client, GatewayCommand::Down { token: 1, selection: IkeSaSelector::All })
            .unwrap();
        world.run_for(secs(29));
        world.net.set_silent(world.gateway, false);
        world.run_for(secs(20));
        let initiated = world.net[client].counters().0.initiated;
        assert_eq!((world.sa_statuses(client).len(), initiated), (0, 1), "{times}");
        assert_eq!(world.end_reasons(client), [EndReason::Deleted]);
    }
}

#[test]
fn a_failed_reauthentication_keeps_the_sa_and_is_retried() {
    let mut world = GatewayTestNetwork::with_metering(PSK_GATEWAY);
    let text =
        PSK_CLIENT.replace("address = true", "reauth_after = \"100 s\"\nretry = \"20 s\"\naddress = true");
    let client = world.add_client(CLIENT, &text);
    world.run_for(secs(1));
    let first = installed_spis(&world, client);
    let other = PSK_GATEWAY.replace("a shared secret", "another secret");
    let config = |text: &str| Box::new(load_config(text).config);
    let gateway = world.gateway;
    world.net.send_command(gateway, GatewayCommand::Configure(config(&other))).unwrap();
    world.run_for(secs(110));
    assert_eq!((installed_spis(&world, client), world.sa_statuses(client).len()), (first.clone(), 1));
    world.net.send_command(gateway, GatewayCommand::Configure(config(PSK_GATEWAY))).unwrap();
    world.run_for(secs(25));
    assert_ne!(installed_spis(&world, client), first);
    assert_eq!(world.sa_statuses(client).len(), 1);
}

#[test]
fn what_nobody_replaces_ends() {
    let never = "rekey_after = \"0 s\"\nlifetime = \"100 s\"\n";
    let gateway_text =
        PSK_GATEWAY.replace("local = [", "rekey_after = \"0 s\"\nlifetime = \"40 s\"\nlocal = [");
    let mut world =
        GatewayTestNetwork::with_metering(&gateway_text.replace("pools =", &format!("{never}pools =")));
    let text = PSK_CLIENT.replace("remote = [", "rekey_after = \"0 s\"\nremote = [");
    let client = world.add_client(
        CLIENT,
        &text.replace("address = true", "rekey_after = \"0 s\"\nretry = \"5 s\"\naddress = true"),
    );
    world.run_for(secs(35));
    assert_eq!(installed_spis(&world, client).len(), 1);
    world.run_for(secs(10));
    assert_eq!(
        (installed_spis(&world, client).len(), world.sa_statuses(client).len()),
        (0, 1),
        "its child has ended"
    );
    world.run_for(secs(60));
    let counters = world.net[world.gateway].counters().0;
    assert_eq!((counters.children_expired, counters.expired), (1, 1));
    assert_eq!(world.end_reasons(client), [EndReason::DeletedByPeer], "and then itself");
    world.run_for(secs(10));
    assert_eq!(world.sa_statuses(client).len(), 1, "who has begun it begins it again");
}
