//! Many sites that connect at the same time, as after a power cut.

use super::*;

const TUNNELS: u32 = 2000;

fn site_address(n: u32) -> IpAddr {
    IpAddr::from((0x0a14_0000 + n).to_be_bytes())
}

/// A gateway, and this number of sites, each at its own address.
fn gateway_with_sites()
-> (MachineNetwork, NetworkHostHandle<IkeEndpoint>, Vec<NetworkHostHandle<IkeEndpoint>>) {
    let channel = ChannelConfig { delay: millis(10), ..ChannelConfig::default() };
    let mut net = MachineNetwork::new(channel);
    let mut gateway = IkeEndpoint::new(default_config(), SecureRng::from_seed([1; 32]));
    let all = IkeConnectionConfig { remote: None, unique: true, ..psk_connection(false) };
    gateway.handle_command(Instant::ZERO, IkeCommand::Serve(vec![Arc::new(all)])).unwrap();
    let gateway = net.add_host(gateway, &[ip_address(RESPONDER)]);
    net.bind_socket(gateway, SOCKET, socket_address(RESPONDER, 500));
    let site = |n| {
        let site = net.add_host(fresh_endpoint(n), &[site_address(n)]);
        net.bind_socket(site, SOCKET, SocketAddr::new(site_address(n), 500));
        site
    };
    let sites = (0..TUNNELS).map(site).collect();
    (net, gateway, sites)
}

/// A site that has just been switched on.
fn fresh_endpoint(n: u32) -> IkeEndpoint {
    let mut seed = [2; 32];
    seed[..4].copy_from_slice(&n.to_be_bytes());
    IkeEndpoint::new(default_config(), SecureRng::from_seed(seed))
}

fn initiate_all(net: &mut MachineNetwork, sites: &[NetworkHostHandle<IkeEndpoint>]) {
    for (n, site) in (0..).zip(sites) {
        let connection = IkeConnectionConfig {
            local: Identification::from_fqdn(&format!("site-{n}.test")),
            unique: true,
            ..psk_connection(true)
        };
        let (local, remote) = (SocketAddr::new(site_address(n), 500), socket_address(RESPONDER, 500));
        let connection = Arc::new(connection);
        net.send_command(*site, IkeCommand::Initiate { token: 0, connection, local, remote }).unwrap();
    }
}

/// The number of established sites, and the time of the last one.
fn count_established(net: &mut MachineNetwork, gateway: NetworkHostHandle<IkeEndpoint>) -> (usize, Instant) {
    let events = net.take_events(gateway);
    let all = events.iter().filter(|(_, event)| matches!(event, IkeEvent::Established { .. }));
    let times: Vec<Instant> = all.map(|(at, _)| *at).collect();
    (times.len(), times.last().copied().unwrap_or(Instant::ZERO))
}

#[test]
fn two_thousand_tunnels_come_back_at_once_after_a_power_cut() {
    let (mut net, gateway, sites) = gateway_with_sites();
    initiate_all(&mut net, &sites);
    net.run_for(secs(30));
    assert_eq!(count_established(&mut net, gateway).0, TUNNELS as usize);
    // All go out and come back at once. One datagram in fifty is lost.
    for (n, site) in (0..).zip(&sites) {
        net[*site] = fresh_endpoint(n + TUNNELS);
    }
    let lost = |n: usize, _: &mut usher_core::bench::TransmitRecord| match n % 50 {
        7 => Vec::new(),
        _ => vec![Duration::ZERO],
    };
    net.intercept_transmits(lost);
    let begun = net.now();
    initiate_all(&mut net, &sites);
    net.run_for(secs(60));
    let (count, last) = count_established(&mut net, gateway);
    assert_eq!(count, TUNNELS as usize, "each is there again");
    // Three round trips without loss: a cookie, for all but the first hundred, and two exchanges. A lost message is
    // retransmitted after 4, 7.2 and 13 s.
    let took = last.duration_since(begun);
    assert!(took <= secs(25), "the last came after {took}");
    // No old state is left.
    let counters = *net[gateway].counters();
    assert_eq!((net[gateway].active_sa_count(), net[gateway].half_open()), (TUNNELS as usize, 0));
    assert_eq!(counters.children, 2 * u64::from(TUNNELS));
    assert!(counters.cookies >= u64::from(TUNNELS), "{} cookies", counters.cookies);
    assert_eq!(counters.full + counters.full_network, 0);
}
