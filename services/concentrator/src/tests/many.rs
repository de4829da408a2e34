//! Many simultaneous hosts.

use super::*;
use crate::track::SessionLogIndex;

/// Number of ports, and of hosts behind each.
const PORTS: u16 = 100;
const EACH: u16 = 10;
const HOSTS: u16 = PORTS * EACH;

/// Creates a concentrator with many Ethernets and their hosts.
fn large_network(config: impl Fn(u16) -> ClientConfig) -> ConcentratorTestNetwork {
    let interfaces: Vec<String> = (0..PORTS).map(|n| format!("\"eth{n}\"")).collect();
    let text = LOCAL.replace("10.0.0.0/28", "10.0.16.0/20").replace("\"eth1\"", &interfaces.join(", "));
    let mut loaded = load_config(&format!("{text}[limits]\nsessions_per_station = 1\n"));
    for (n, port) in (0_u8..).zip(&mut loaded.config.ppp.ports) {
        port.address = MacAddress([2, 0, 0, 0, n, 0xac]);
    }
    let mut world = ConcentratorTestNetwork::unconnected(loaded, (1..=HOSTS).map(config).collect());
    for n in 0..PORTS {
        let hosts = (0..EACH).map(|host| (usize::from(n * EACH + host) + 1, PORT));
        let ends: Vec<_> = [(0, LinkLayerPortId(n.into()))].into_iter().chain(hosts).collect();
        world.net.join_ports_in_segment(&ends);
    }
    world
}

#[test]
fn a_thousand_hosts_get_their_sessions_back_after_a_power_cut() {
    let config =
        |n| ClientConfig { persist: true, attempts: 0, ipv6: None, delegation: false, ..ann_client(n) };
    let mut world = large_network(config);
    (0..usize::from(HOSTS)).for_each(|n| world.connect_client(n));
    world.net.run_for(secs(8));
    assert_eq!((world.session_statuses().len(), world.installed_sessions().len()), (1000, 1000));
    let addresses = |world: &mut ConcentratorTestNetwork| -> BTreeMap<String, Option<Ipv4Addr>> {
        world.session_statuses().into_iter().map(|one| (one.station, one.ipv4)).collect()
    };
    let before = addresses(&mut world);
    assert_eq!(before.values().collect::<std::collections::BTreeSet<_>>().len(), 1000, "each has its own");
    // All hosts lose their power and restart at the same moment.
    for n in 0..usize::from(HOSTS) {
        let mut seed = [77; 32];
        seed[..8].copy_from_slice(&(n as u64).to_be_bytes());
        let fresh = PppoeClient::new(config(n as u16 + 1), SecureRng::from_seed(seed));
        world.net[world.clients[n]] = fresh;
        world.connect_client(n);
    }
    world.net.run_for(secs(8));
    let status = world.session_statuses();
    assert_eq!(
        (status.len(), world.installed_sessions().len()),
        (1000, 1000),
        "all are back, and none is stuck"
    );
    assert_eq!(world.counter_value("logins_accepted"), 2000);
    let ends = world.log_records().iter().filter(|record| matches!(record, SessionLogRecord::End(_))).count();
    assert_eq!(ends, 1000, "each session before is ended once");
    let mut index = SessionLogIndex::default();
    world.disk.borrow().lines.iter().for_each(|line| index.read_lines(line));
    assert_eq!(index.open_sessions().count(), 1000);
}

#[test]
fn a_concentrator_that_was_killed_ends_what_it_had_left() {
    let config = |n| ClientConfig { persist: true, ..ann_client(n) };
    let mut world = ConcentratorTestNetwork::new(LOCAL, (1..=3).map(config).collect());
    (0..3).for_each(|n| world.connect_and_wait(n));
    assert_eq!(world.session_statuses().len(), 3);
    let mut index = SessionLogIndex::default();
    world.disk.borrow().lines.iter().for_each(|line| index.read_lines(line));
    let mut again = load_config(LOCAL).config;
    again.lost = index.open_sessions().collect();
    assert_eq!(again.lost.len(), 3);
    world.net[world.ac] = AccessConcentrator::new(again, SecureRng::from_seed([44; 32])).unwrap();
    // A PADT answers each host's next Echo-Request, and the host reconnects.
    world.net.run_for(secs(40));
    assert_eq!((world.session_statuses().len(), world.counter_value("sessions_lost")), (3, 3));
    let mut index = SessionLogIndex::default();
    world.disk.borrow().lines.iter().for_each(|line| index.read_lines(line));
    assert_eq!(
        (index.open_sessions().count(), world.log_records().len()),
        (3, 11),
        "two starts, six begins and three ends"
    );
}
