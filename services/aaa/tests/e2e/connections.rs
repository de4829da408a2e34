//! Diameter over several connections, and over associations.

use crate::build::{diameter_config, diameter_server, user_name, users, with_diameter, world};
use crate::world::{Who, World};
use std::collections::BTreeMap;
use std::num::NonZeroU16;
use usher_core::{CommandError, Machine, Seed};
use usher_diameter::node::{Command, DisconnectCause, PeerId, Transport};
use usher_diameter::stream::StreamPolicy;
use usher_nas::authenticator::{self, FailReason};
use usher_nas::station::{self, Credentials};
use usher_nas::{Connections, DiameterConfig, StationId};

const IN: station::Event = station::Event::Success { msk: None };
const OUT: station::Event = station::Event::Failure;

fn shared(k: u16) -> Connections {
    Connections::Shared(NonZeroU16::new(k).unwrap())
}
fn sctp(policy: StreamPolicy) -> Transport {
    Transport::Message { streams: 16, policy }
}

/// So many stations, one NAS that asks like this, and servers that let anybody connect.
fn new(stations: usize, config: DiameterConfig) -> World {
    let users = users(Seed::new(1), stations);
    let servers: Vec<_> = (0..config.node.peers.len())
        .map(|i| {
            let mut server = diameter_server(i, users.clone());
            server.diameter.as_mut().unwrap().accept_unknown = true;
            server
        })
        .collect();
    let mut w = world(stations, with_diameter(config), &servers);
    w.run_until(1);
    w
}

/// Asks everybody in at once, each third with a wrong password; how it went is checked.
fn everybody(w: &mut World, n: usize) {
    for i in 0..n {
        if i % 3 == 0 {
            w.ask_in(i, &user_name(i), Credentials::password(b"wrong"));
        } else {
            w.ask_in_by_password(i);
        }
    }
    w.run_until(5);
    let outcomes = w.outcomes();
    assert_eq!(outcomes.len(), n);
    for (i, outcome) in outcomes.iter().enumerate() {
        assert_eq!(*outcome, if i % 3 == 0 { OUT } else { IN }, "station {i}");
    }
    assert_eq!((w.net[w.nas].in_progress(), w.net[w.servers[0]].half_open()), (0, 0));
}

/// How often each Diameter peer came, and went.
fn peers(w: &World) -> (BTreeMap<PeerId, usize>, BTreeMap<PeerId, usize>) {
    let mut count = (BTreeMap::new(), BTreeMap::new());
    for (_, _, e) in &w.nas_events {
        if let authenticator::Event::DiameterPeer { peer, up } = e {
            let side = if *up { &mut count.0 } else { &mut count.1 };
            *side.entry(*peer).or_default() += 1;
        }
    }
    count
}

/// How often a peer came to a server.
fn visitors(w: &World) -> usize {
    let up = |e: &usher_aaa::Event| matches!(e, usher_aaa::Event::DiameterPeer { up: true, .. });
    w.server_events.iter().filter(|(_, _, e)| up(e)).count()
}

#[test]
fn three_connections_share_the_sessions() {
    let n = 90;
    let mut w = new(n, diameter_config(1).by(shared(3)));
    let ids: Vec<_> = (0..3).map(|i| (PeerId(i), 1)).collect();
    assert_eq!(peers(&w).0.into_iter().collect::<Vec<_>>(), ids);
    assert_eq!((w.open(), visitors(&w)), (3, 3));
    everybody(&mut w, n);
    assert_eq!((w.opened(), w.net[w.nas].diameter_counters().unwrap().total()), (3, 0));
}

#[test]
fn one_connection_of_three_is_lost_and_only_its_sessions_wait_for_it() {
    let n = 60;
    let mut w = new(n, diameter_config(1).by(shared(3)));
    let cause = DisconnectCause::DoNotWantToTalkToYou;
    let command = |w: &mut World, c| w.net.command(w.nas, authenticator::Command::Diameter(c));
    command(&mut w, Command::Disconnect { peer: PeerId(1), cause }).unwrap();
    w.run_until(2);
    assert_eq!(peers(&w).1, BTreeMap::from([(PeerId(1), 1)]));
    for i in 0..n {
        w.ask_in_by_password(i);
    }
    w.run_until(4);
    let soon = w.outcomes().len();
    assert!((n / 3..n).contains(&soon), "{soon}");
    command(&mut w, Command::Connect { peer: PeerId(1) }).unwrap();
    w.run_until(6);
    assert_eq!(w.outcomes(), vec![IN; n]);
    let unknown = command(&mut w, Command::Connect { peer: PeerId(3) });
    assert_eq!(unknown, Err(CommandError::UnknownToken));
    let request = command(&mut w, Command::Forget { token: 1 });
    assert!(matches!(request, Err(CommandError::Invalid(_))));
}

#[test]
fn several_connections_to_several_servers_fail_over_each_for_itself() {
    let n = 30;
    let mut w = new(n, diameter_config(2).by(shared(2)));
    assert_eq!(peers(&w).0.len(), 4);
    w.passes(|p| p.to != Who::Server(0));
    for i in 0..n {
        w.ask_in_by_password(i);
    }
    w.run_until(2);
    w.switch_off(0);
    w.run_until(3);
    assert_eq!(w.outcomes(), vec![IN; n]);
    assert_eq!(w.net[w.nas].diameter_counters().unwrap().retransmitted, n as u64);
    assert_eq!(peers(&w).1.into_keys().collect::<Vec<_>>(), [PeerId(0), PeerId(2)]);
}

#[test]
fn each_session_opens_and_closes_its_own_connection() {
    let n = 60;
    let mut w = new(n, diameter_config(1).by(Connections::PerSession));
    assert_eq!((w.open(), w.opened()), (0, 0));
    everybody(&mut w, n);
    assert_eq!((w.opened(), w.most_open, w.open(), visitors(&w)), (n, n, 0, n));
    assert_eq!(peers(&w), Default::default());
    // Each connection had its capabilities exchanged and was left in good order: nothing was dropped.
    assert_eq!(w.net[w.nas].diameter_counters().unwrap().total(), 0);
    assert_eq!(w.net[w.servers[0]].diameter_counters().unwrap().total(), 0);
    // And nothing is left to be done.
    assert_eq!(w.net[w.servers[0]].poll_timeout(), None);
    let connect = authenticator::Command::Diameter(Command::Connect { peer: PeerId(0) });
    assert!(w.net.command(w.nas, connect).is_err());
}

#[test]
fn hundreds_of_sessions_come_and_go_and_leave_no_trace_at_the_server() {
    let mut config = diameter_config(1).by(Connections::PerSession);
    config.node.watchdog = None;
    let users = users(Seed::new(1), 40);
    let mut server = diameter_server(0, users);
    let node = server.diameter.as_mut().unwrap();
    node.accept_unknown = true;
    // One is configured; there is room for as many at once as come at once.
    node.max_peers = 41;
    let mut w = world(40, with_diameter(config), &[server]);
    for round in 0..10 {
        for i in 0..40 {
            w.ask_in_by_password(i);
        }
        w.run_until(2 * (round + 1));
    }
    assert_eq!(w.outcomes(), vec![IN; 400]);
    assert_eq!((w.opened(), w.open(), visitors(&w)), (400, 0, 400));
    assert_eq!(w.net[w.servers[0]].diameter_counters().unwrap().total(), 0);
}

#[test]
fn a_session_beyond_the_limit_is_refused_and_the_limit_is_free_again_afterwards() {
    let mut config = diameter_config(1).by(Connections::PerSession);
    config.max_connections = 2;
    let mut nas = with_diameter(config);
    nas.quiet_period = usher_core::Duration::ZERO;
    let users = users(Seed::new(1), 3);
    let mut server = diameter_server(0, users);
    server.diameter.as_mut().unwrap().accept_unknown = true;
    let mut w = world(3, nas, &[server]);
    for i in 0..3 {
        w.ask_in_by_password(i);
    }
    w.run_until(1);
    assert_eq!(w.outcomes(), [IN, IN, OUT]);
    assert_eq!((w.net[w.nas].counters().aaa_unavailable, w.most_open), (1, 2));
    w.ask_in_by_password(2);
    w.run_until(2);
    assert_eq!(w.outcomes(), [IN, IN, OUT, IN]);
}

#[test]
fn a_session_that_is_given_up_takes_its_connection_along() {
    let mut config = with_diameter(diameter_config(1).by(Connections::PerSession));
    config.station_timeout = usher_core::Duration::from_secs(5);
    let users = users(Seed::new(1), 3);
    let mut server = diameter_server(0, users);
    server.diameter.as_mut().unwrap().accept_unknown = true;
    let mut w = world(3, config, &[server]);
    // The first station is forgotten while the server is asked, before the connection is up; the second
    // while its question is under way; the third does not answer the server's challenge.
    let forget = |w: &mut World, i: usize| {
        let mac = crate::build::mac(i);
        let station = StationId::Frame { port: usher_core::PortId(i as u32), mac };
        w.net.command(w.nas, authenticator::Command::Forget { station }).unwrap();
    };
    let step = usher_core::Duration::from_micros(500);
    w.ask_in_by_password(0);
    while w.opened() == 0 {
        w.run_to(w.now() + step);
    }
    forget(&mut w, 0);
    w.run_until(1);
    assert_eq!((w.open(), w.net[w.servers[0]].counters().sessions), (0, 0));

    w.ask_in_by_password(1);
    while w.net[w.servers[0]].counters().sessions == 0 {
        w.run_to(w.now() + step);
    }
    forget(&mut w, 1);
    assert_eq!(w.open(), 1);
    w.run_until(2);
    assert_eq!(w.open(), 0);

    let mut heard = 0;
    w.passes(move |p| {
        heard += usize::from(p.to == Who::Station(2));
        p.to != Who::Station(2) || heard < 2
    });
    w.ask_in_by_password(2);
    w.run_until(3);
    assert_eq!(w.open(), 1);
    w.run_until(60);
    let timeout = |e: &authenticator::Event| {
        matches!(e, authenticator::Event::Failed { reason: FailReason::StationTimeout, .. })
    };
    assert_eq!(w.nas_events.iter().filter(|(_, _, e)| timeout(e)).count(), 1);
    assert_eq!((w.open(), w.opened()), (0, 3));
}

#[test]
fn a_session_whose_server_is_off_fails_and_is_not_connected_for_again() {
    let mut w = new(1, diameter_config(1).by(Connections::PerSession));
    w.switch_off(0);
    w.ask_in_by_password(0);
    w.run_until(200);
    assert_eq!(w.outcomes(), [station::Event::Timeout]);
    assert_eq!((w.net[w.nas].counters().aaa_timeouts, w.net[w.nas].poll_timeout()), (1, None));
}

#[test]
fn over_associations_by_each_policy() {
    for (policy, streams) in
        [(StreamPolicy::One, 1), (StreamPolicy::BySession, 16), (StreamPolicy::Unordered, 1)]
    {
        let mut w = new(60, diameter_config(1).over(sctp(policy)));
        everybody(&mut w, 60);
        assert_eq!((w.opened(), w.streams()), (1, streams), "{policy:?}");
    }
}

#[test]
fn several_associations_and_one_for_each_session() {
    let over = sctp(StreamPolicy::BySession);
    let mut w = new(60, diameter_config(1).by(shared(3)).over(over));
    everybody(&mut w, 60);
    assert_eq!((w.opened(), w.open()), (3, 3));
    let mut w = new(60, diameter_config(1).by(Connections::PerSession).over(over));
    everybody(&mut w, 60);
    assert_eq!((w.opened(), w.open(), visitors(&w)), (60, 0, 60));
    assert_eq!(w.net[w.nas].diameter_counters().unwrap().total(), 0);
}

#[test]
fn a_server_may_know_each_identity() {
    let config = diameter_config(1).by(shared(2));
    let users = users(Seed::new(1), 10);
    let mut server = diameter_server(0, users);
    let mut node = server.diameter.take().unwrap();
    for identity in config.identities() {
        node = node.accept(&identity);
    }
    server.diameter = Some(node);
    let mut w = world(10, with_diameter(config), &[server]);
    w.run_until(1);
    assert_eq!(peers(&w).0.len(), 2);
    for i in 0..10 {
        w.ask_in_by_password(i);
    }
    w.run_until(2);
    assert_eq!(w.outcomes(), vec![IN; 10]);
}
