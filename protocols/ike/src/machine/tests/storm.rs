//! Many who come at the same time: what users of gateways fear after a power cut.

use super::*;

const TUNNELS: u32 = 2000;

fn host(n: u32) -> IpAddr {
    IpAddr::from((0x0a14_0000 + n).to_be_bytes())
}

/// Their gateway, and so many sites, each at an address of its own.
fn sites() -> (Network, At<Endpoint>, Vec<At<Endpoint>>) {
    let channel = ChannelConfig { delay: millis(10), ..ChannelConfig::default() };
    let mut net = Network::new(channel);
    let mut gateway = Endpoint::new(config(), SecureRng::from_seed([1; 32]));
    let all = Connection { remote: None, unique: true, ..connection(false) };
    gateway.command(Instant::ZERO, Command::Serve(vec![Arc::new(all)])).unwrap();
    let gateway = net.add(gateway, &[address(RESPONDER)]);
    net.bind(gateway, SOCKET, at(RESPONDER, 500));
    let site = |n| {
        let site = net.add(fresh(n), &[host(n)]);
        net.bind(site, SOCKET, SocketAddr::new(host(n), 500));
        site
    };
    let sites = (0..TUNNELS).map(site).collect();
    (net, gateway, sites)
}

/// A site that has just been switched on.
fn fresh(n: u32) -> Endpoint {
    let mut seed = [2; 32];
    seed[..4].copy_from_slice(&n.to_be_bytes());
    Endpoint::new(config(), SecureRng::from_seed(seed))
}

fn begin(net: &mut Network, sites: &[At<Endpoint>]) {
    for (n, site) in (0..).zip(sites) {
        let connection = Connection {
            local: Identification::fqdn(&format!("site-{n}.test")),
            unique: true,
            ..connection(true)
        };
        let (local, remote) = (SocketAddr::new(host(n), 500), at(RESPONDER, 500));
        let connection = Arc::new(connection);
        net.command(*site, Command::Initiate { token: 0, connection, local, remote }).unwrap();
    }
}

/// How many of them are there, and when the last one came.
fn established(net: &mut Network, gateway: At<Endpoint>) -> (usize, Instant) {
    let events = net.take(gateway);
    let all = events.iter().filter(|(_, event)| matches!(event, Event::Established { .. }));
    let times: Vec<Instant> = all.map(|(at, _)| *at).collect();
    (times.len(), times.last().copied().unwrap_or(Instant::ZERO))
}

#[test]
fn two_thousand_tunnels_come_back_at_once_after_a_power_cut() {
    let (mut net, gateway, sites) = sites();
    begin(&mut net, &sites);
    net.run(secs(30));
    assert_eq!(established(&mut net, gateway).0, TUNNELS as usize);
    // All of them go out, and come back at one moment; one datagram in fifty is lost on the way.
    for (n, site) in (0..).zip(&sites) {
        net[*site] = fresh(n + TUNNELS);
    }
    let lost = |n: usize, _: &mut usher_core::bench::Sent| match n % 50 {
        7 => Vec::new(),
        _ => vec![Duration::ZERO],
    };
    net.meddle(lost);
    let begun = net.now();
    begin(&mut net, &sites);
    net.run(secs(60));
    let (count, last) = established(&mut net, gateway);
    assert_eq!(count, TUNNELS as usize, "each is there again");
    // Three round trips where nothing is lost (a cookie, which all but the first hundred have to fetch, and two exchanges); who
    // loses a message waits for its retransmission, after 4, 7.2 and 13 s.
    let took = last.since(begun);
    assert!(took <= secs(25), "the last came after {took}");
    // Nothing is left of what they had before.
    let counters = *net[gateway].counters();
    assert_eq!((net[gateway].living(), net[gateway].half_open()), (TUNNELS as usize, 0));
    assert_eq!(counters.children, 2 * u64::from(TUNNELS));
    assert!(counters.cookies >= u64::from(TUNNELS), "{} cookies", counters.cookies);
    assert_eq!(counters.full + counters.full_network, 0);
}
