//! What the host says of packets: what CHILD_SAs carry, and that one is needed.

use super::local::{PSK_CLIENT, PSK_GATEWAY};
use super::*;
use crate::Config;
use usher_esp::plane::Usage;
use usher_esp::sa::Volume;

/// So many packets of 100 octets in all.
fn usage(received: u64, sent: u64) -> Usage {
    let volume = |packets| Volume { packets, octets: packets * 100 };
    Usage { received: volume(received), sent: volume(sent), last_received: None }
}

fn carried(world: &mut World, host: At<Gateway>, pairs: &[(u32, Usage)]) {
    world.net.command(host, Command::Carried(pairs.to_vec())).unwrap();
}

#[test]
fn what_children_carry_is_their_sessions_over_every_replacement() {
    let mut world = World::metered(PSK_GATEWAY);
    let client = world.client(CLIENT, PSK_CLIENT);
    world.run(secs(1));
    let gateway = world.gateway;
    let spi = |world: &World| *world.installed(gateway).keys().next().unwrap();
    let first = spi(&world);
    carried(&mut world, gateway, &[(first, usage(5, 3)), (0xffff, usage(99, 99))]);
    // What is told again is not counted again.
    carried(&mut world, gateway, &[(first, usage(7, 3))]);
    let status = world.status(gateway).remove(0);
    assert_eq!((status.carried, status.children[0].carried), (usage(7, 3), usage(7, 3)));
    world.net.command(gateway, Command::Rekey { token: 1, which: Which::All, children: true }).unwrap();
    world.run(secs(1));
    world.net.command(gateway, Command::Removed { inbound: first, usage: Some(usage(8, 4)) }).unwrap();
    let second = spi(&world);
    assert_ne!(first, second);
    carried(&mut world, gateway, &[(second, usage(1, 1))]);
    // The IKE_SA's own replacement leaves all as it is.
    world.net.command(client, Command::Rekey { token: 1, which: Which::All, children: false }).unwrap();
    world.run(secs(1));
    carried(&mut world, gateway, &[(second, usage(2, 1))]);
    let status = world.status(gateway).remove(0);
    assert_eq!((status.carried, status.children[0].carried), (usage(10, 5), usage(2, 1)));
    let counters = world.net[gateway].counters().0;
    assert_eq!((counters.received_packets, counters.received_octets), (10, 1000));
    assert_eq!((counters.sent_packets, counters.sent_octets), (5, 500));
}

#[test]
fn packets_that_come_are_a_sign_of_life() {
    let text = PSK_GATEWAY.replace("pools =", "liveness = \"10 s\"\npools =");
    let mut world = World::metered(&text);
    world.client(CLIENT, &PSK_CLIENT.replace("address = true", "liveness = \"0 s\"\naddress = true"));
    world.run(secs(1));
    let gateway = world.gateway;
    let spi = *world.installed(gateway).keys().next().unwrap();
    let requests = |world: &World| world.net[gateway].counters().1.requests;
    let before = requests(&world);
    for n in 1..12 {
        world.run(secs(5));
        carried(&mut world, gateway, &[(spi, usage(n, 0))]);
    }
    assert_eq!(requests(&world), before, "nobody is asked who speaks");
    // What goes is no such sign.
    for n in 1..4 {
        world.run(secs(5));
        carried(&mut world, gateway, &[(spi, usage(11, n))]);
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

fn acquire(world: &mut World, host: At<Gateway>, child: &str) {
    let command = Command::Acquire { connection: "home".into(), child: child.into() };
    world.net.command(host, command).unwrap();
}
fn unprotected(world: &World, host: At<Gateway>) -> Vec<Option<String>> {
    let found = world.events(host).into_iter().filter_map(|event| match event {
        Event::Unprotected { child, .. } => Some(child),
        _ => None,
    });
    found.collect()
}

#[test]
fn a_packet_begins_the_connection_that_it_needs_once() {
    let more =
        "[[connection.child]]\nname = \"other\"\nlocal = [\"10.3.0.0/16\"]\nremote = [\"10.1.0.0/16\"]\n";
    let mut world = World::metered(&format!("{SITE}{more}"));
    let client = world.client(CLIENT, ON_DEMAND);
    world.run(secs(5));
    assert_eq!(world.status(client).len(), 0, "nothing needs it");
    // Both are wanted before there is anything, and the first twice.
    for child in ["net", "other", "net"] {
        acquire(&mut world, client, child);
    }
    world.run(secs(1));
    let names = |world: &World| {
        let installed = world.installed(client);
        let mut names: Vec<_> = installed.values().map(|child| child.name.clone()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&world), ["net", "other"]);
    assert_eq!((world.status(client).len(), unprotected(&world, client)), (1, vec![]));
    assert_eq!(world.net[client].counters().0.initiated, 1);
    acquire(&mut world, client, "net");
    world.run(secs(1));
    assert_eq!(names(&world), ["net", "other"], "it is there");
}

#[test]
fn packets_are_told_that_they_wait_in_vain() {
    // The gateway has no CHILD_SA for the second.
    let mut world = World::metered(SITE);
    let client = world.client(CLIENT, ON_DEMAND);
    acquire(&mut world, client, "other");
    world.run(secs(1));
    assert_eq!(unprotected(&world, client), [Some("other".to_owned())]);
    // The other side does not let it in.
    let wrong = world.client("198.51.100.9", &ON_DEMAND.replace("a shared secret", "another secret"));
    acquire(&mut world, wrong, "net");
    world.run(secs(1));
    assert_eq!(unprotected(&world, wrong), [None]);
    // For a while it is not asked again.
    acquire(&mut world, wrong, "net");
    assert_eq!(unprotected(&world, wrong), [None, Some("net".to_owned())]);
    assert_eq!(world.net[wrong].counters().0.initiated, 1);
    world.run(secs(10));
    acquire(&mut world, wrong, "net");
    assert_eq!(world.net[wrong].counters().0.initiated, 2);
    // A connection that packets may not begin.
    let gateway = world.gateway;
    acquire(&mut world, gateway, "net");
    assert_eq!(unprotected(&world, gateway).len(), 1);
}

#[test]
fn a_child_that_has_carried_what_it_may_is_replaced_or_ended() {
    let mut world = World::metered(PSK_GATEWAY);
    world.client(CLIENT, PSK_CLIENT);
    world.run(secs(1));
    let gateway = world.gateway;
    let spi = |world: &World| world.installed(gateway).keys().next().copied();
    let first = spi(&world).unwrap();
    world.net.command(gateway, Command::Expired { inbound: first, hard: false }).unwrap();
    world.run(secs(1));
    let second = spi(&world).unwrap();
    assert_ne!(first, second);
    world.net.command(gateway, Command::Expired { inbound: second, hard: true }).unwrap();
    world.run(secs(1));
    assert_eq!((spi(&world), world.status(gateway).len()), (None, 1));
}

#[test]
fn a_client_follows_its_hosts_address_where_both_can_move() {
    for (mobike, moves) in [("true", true), ("false", false)] {
        let mut world =
            World::metered(&PSK_GATEWAY.replace("pools =", &format!("mobike = {mobike}\npools =")));
        let client = world.client(CLIENT, PSK_CLIENT);
        world.run(secs(1));
        let there: IpAddr = "198.51.100.77".parse().unwrap();
        world.net.bind(client, SOCKET, SocketAddr::new(there, 500));
        world.net.bind(client, NAT_SOCKET, SocketAddr::new(there, 4500));
        world
            .net
            .command(client, Command::Addresses(vec![("home".into(), SocketAddr::new(there, 0))]))
            .unwrap();
        world.run(secs(2));
        let seen = world.status(world.gateway)[0].remote.ip();
        assert_eq!(seen == there, moves, "{mobike}");
    }
}

/// The SPIs at which a host receives, in the order in which it was told of them.
fn lasting(world: &World, host: At<Gateway>) -> Vec<u32> {
    world.installed(host).keys().copied().collect()
}

#[test]
fn a_client_proves_anew_who_it_is_before_its_old_sa_ends() {
    for unique in ["true", "false"] {
        let gateway_text = PSK_GATEWAY.replace("pools =", &format!("unique = {unique}\npools ="));
        let mut world = World::metered(&gateway_text);
        let more = format!("reauth_after = \"100 s\"\nunique = {unique}\naddress = true");
        let client = world.client(CLIENT, &PSK_CLIENT.replace("address = true", &more));
        world.run(secs(1));
        let (first, address) = (lasting(&world, client), world.status(client)[0].addresses.clone());
        assert_eq!(first.len(), 1);
        world.run(secs(101));
        let now = world.status(client);
        assert_eq!((now.len(), &now[0].addresses), (1, &address), "the same address: {unique}");
        let second = lasting(&world, client);
        assert!(second.len() == 1 && second != first);
        assert_eq!(world.status(world.gateway).len(), 1);
        assert_eq!(world.net[client].counters().0.reauthentications, 1);
        // At no time there was none.
        let mut there = 0;
        for event in world.events(client) {
            match event {
                Event::Ike(Ike::Install { .. }) => there += 1,
                Event::Ike(Ike::Remove { .. }) => {
                    there -= 1;
                    assert!(there > 0, "{unique}");
                }
                _ => {}
            }
        }
        // It is one login after another, each with its own proofs.
        world.run(secs(300));
        assert!(world.net[client].counters().0.reauthentications >= 3);
        assert_eq!((world.status(client).len(), world.net[world.gateway].pools().next().unwrap().1), (1, 1));
    }
}

#[test]
fn a_client_may_end_its_old_sa_first() {
    let mut world = World::metered(PSK_GATEWAY);
    let more = "reauth_after = \"100 s\"\nreauthentication = \"break-before-make\"\naddress = true";
    let client =
        world.client(CLIENT, &PSK_CLIENT.replace("start = true\n", "").replace("address = true", more));
    world.connect(client, "home");
    world.run(secs(1));
    let first = lasting(&world, client);
    world.run(secs(101));
    let (second, reauthenticated) =
        (lasting(&world, client), world.net[client].counters().0.reauthentications);
    assert!(first.len() == 1 && second.len() == 1 && first != second);
    assert_eq!((world.ended(client), reauthenticated), (vec![EndReason::Deleted], 1));
    // What is told to end is not begun again.
    world.net.command(client, Command::Down { token: 1, which: Which::All }).unwrap();
    world.run(secs(200));
    assert_eq!((world.status(client).len(), world.status(world.gateway).len()), (0, 0));
}

/// The times for that come while the gateway's answer to the Delete is still awaited.
#[test]
fn what_is_told_to_end_is_not_begun_anew_by_its_times() {
    let anew = "reauth_after = \"100 s\"\n";
    let first = format!("{anew}reauthentication = \"break-before-make\"\n");
    for times in [anew, &first, "rekey_after = \"0 s\"\nlifetime = \"100 s\"\n"] {
        let mut world = World::new(PSK_GATEWAY);
        let text = PSK_CLIENT.replace("start = true\n", "");
        let client = world.client(CLIENT, &text.replace("address = true", &format!("{times}address = true")));
        world.connect(client, "home");
        world.run(secs(85));
        world.net.silence(world.gateway, true);
        world.net.command(client, Command::Down { token: 1, which: Which::All }).unwrap();
        world.run(secs(29));
        world.net.silence(world.gateway, false);
        world.run(secs(20));
        let initiated = world.net[client].counters().0.initiated;
        assert_eq!((world.status(client).len(), initiated), (0, 1), "{times}");
        assert_eq!(world.ended(client), [EndReason::Deleted]);
    }
}

#[test]
fn who_cannot_prove_anew_who_it_is_keeps_what_it_has_and_tries_again() {
    let mut world = World::metered(PSK_GATEWAY);
    let text =
        PSK_CLIENT.replace("address = true", "reauth_after = \"100 s\"\nretry = \"20 s\"\naddress = true");
    let client = world.client(CLIENT, &text);
    world.run(secs(1));
    let first = lasting(&world, client);
    let other = PSK_GATEWAY.replace("a shared secret", "another secret");
    let config = |text: &str| Box::new(Config { metered: true, ..loaded(text).config });
    let gateway = world.gateway;
    world.net.command(gateway, Command::Configure(config(&other))).unwrap();
    world.run(secs(110));
    assert_eq!((lasting(&world, client), world.status(client).len()), (first.clone(), 1));
    world.net.command(gateway, Command::Configure(config(PSK_GATEWAY))).unwrap();
    world.run(secs(25));
    assert_ne!(lasting(&world, client), first);
    assert_eq!(world.status(client).len(), 1);
}

#[test]
fn what_nobody_replaces_ends() {
    let never = "rekey_after = \"0 s\"\nlifetime = \"100 s\"\n";
    let gateway_text =
        PSK_GATEWAY.replace("local = [", "rekey_after = \"0 s\"\nlifetime = \"40 s\"\nlocal = [");
    let mut world = World::metered(&gateway_text.replace("pools =", &format!("{never}pools =")));
    let text = PSK_CLIENT.replace("remote = [", "rekey_after = \"0 s\"\nremote = [");
    let client = world.client(
        CLIENT,
        &text.replace("address = true", "rekey_after = \"0 s\"\nretry = \"5 s\"\naddress = true"),
    );
    world.run(secs(35));
    assert_eq!(lasting(&world, client).len(), 1);
    world.run(secs(10));
    assert_eq!((lasting(&world, client).len(), world.status(client).len()), (0, 1), "its child has ended");
    world.run(secs(60));
    let counters = world.net[world.gateway].counters().0;
    assert_eq!((counters.children_expired, counters.expired), (1, 1));
    assert_eq!(world.ended(client), [EndReason::DeletedByPeer], "and then itself");
    world.run(secs(10));
    assert_eq!(world.status(client).len(), 1, "who has begun it begins it again");
}
