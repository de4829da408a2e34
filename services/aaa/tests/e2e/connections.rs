//! Diameter over several connections, and over associations.

use crate::build::{diameter_config, diameter_server, test_network, test_users, user_name, with_diameter};
use crate::world::{AaaTestNetwork, NetworkHost};
use std::collections::BTreeMap;
use std::num::NonZeroU16;
use usher_core::{CommandError, Machine, Seed};
use usher_diameter::node::{DiameterNodeCommand, DisconnectCause, PeerId, PeerTransportConfig};
use usher_diameter::stream::StreamPolicy;
use usher_nas::authenticator::{self, FailReason};
use usher_nas::station::{self, EapCredentials};
use usher_nas::{DiameterConfig, DiameterConnections, StationId};

const IN: station::StationEvent = station::StationEvent::Success { msk: None };
const OUT: station::StationEvent = station::StationEvent::Failure;

fn shared_connections(k: u16) -> DiameterConnections {
    DiameterConnections::Shared(NonZeroU16::new(k).unwrap())
}
fn sctp_transport(policy: StreamPolicy) -> PeerTransportConfig {
    PeerTransportConfig::Message { streams: 16, policy }
}

/// Creates stations, one NAS with this configuration, and servers that accept any connection.
fn new(stations: usize, config: DiameterConfig) -> AaaTestNetwork {
    let users = test_users(Seed::new(1), stations);
    let servers: Vec<_> = (0..config.node.peers.len())
        .map(|i| {
            let mut server = diameter_server(i, users.clone());
            server.diameter.as_mut().unwrap().accept_unknown = true;
            server
        })
        .collect();
    let mut w = test_network(stations, with_diameter(config), &servers);
    w.run_until(1);
    w
}

/// Logs all stations in at once, each third with a wrong password, and checks the results.
fn authenticate_all(w: &mut AaaTestNetwork, n: usize) {
    for i in 0..n {
        if i % 3 == 0 {
            w.start_login(i, &user_name(i), EapCredentials::from_password(b"wrong"));
        } else {
            w.start_password_login(i);
        }
    }
    w.run_until(5);
    let outcomes = w.station_outcomes();
    assert_eq!(outcomes.len(), n);
    for (i, outcome) in outcomes.iter().enumerate() {
        assert_eq!(*outcome, if i % 3 == 0 { OUT } else { IN }, "station {i}");
    }
    assert_eq!((w.net[w.nas].active_session_count(), w.net[w.servers[0]].half_open()), (0, 0));
}

/// Returns how often each Diameter peer connected and disconnected.
fn peer_changes(w: &AaaTestNetwork) -> (BTreeMap<PeerId, usize>, BTreeMap<PeerId, usize>) {
    let mut count = (BTreeMap::new(), BTreeMap::new());
    for (_, _, e) in &w.nas_events {
        if let authenticator::AuthenticatorEvent::DiameterPeer { peer, up } = e {
            let side = if *up { &mut count.0 } else { &mut count.1 };
            *side.entry(*peer).or_default() += 1;
        }
    }
    count
}

/// Returns how often a peer connected to a server.
fn peer_up_count(w: &AaaTestNetwork) -> usize {
    let up =
        |e: &usher_aaa::AaaServerEvent| matches!(e, usher_aaa::AaaServerEvent::DiameterPeer { up: true, .. });
    w.server_events.iter().filter(|(_, _, e)| up(e)).count()
}

#[test]
fn three_connections_share_the_sessions() {
    let n = 90;
    let mut w = new(n, diameter_config(1).with_connections(shared_connections(3)));
    let ids: Vec<_> = (0..3).map(|i| (PeerId(i), 1)).collect();
    assert_eq!(peer_changes(&w).0.into_iter().collect::<Vec<_>>(), ids);
    assert_eq!((w.open_connections(), peer_up_count(&w)), (3, 3));
    authenticate_all(&mut w, n);
    assert_eq!((w.opened_connections(), w.net[w.nas].diameter_counters().unwrap().total()), (3, 0));
}

#[test]
fn a_lost_connection_delays_only_its_own_sessions() {
    let n = 60;
    let mut w = new(n, diameter_config(1).with_connections(shared_connections(3)));
    let cause = DisconnectCause::DoNotWantToTalkToYou;
    let command = |w: &mut AaaTestNetwork, c| {
        w.net.send_command(w.nas, authenticator::AuthenticatorCommand::Diameter(c))
    };
    command(&mut w, DiameterNodeCommand::Disconnect { peer: PeerId(1), cause }).unwrap();
    w.run_until(2);
    assert_eq!(peer_changes(&w).1, BTreeMap::from([(PeerId(1), 1)]));
    for i in 0..n {
        w.start_password_login(i);
    }
    w.run_until(4);
    let soon = w.station_outcomes().len();
    assert!((n / 3..n).contains(&soon), "{soon}");
    command(&mut w, DiameterNodeCommand::Connect { peer: PeerId(1) }).unwrap();
    w.run_until(6);
    assert_eq!(w.station_outcomes(), vec![IN; n]);
    let unknown = command(&mut w, DiameterNodeCommand::Connect { peer: PeerId(3) });
    assert_eq!(unknown, Err(CommandError::UnknownToken));
    let request = command(&mut w, DiameterNodeCommand::CancelRequest { token: 1 });
    assert!(matches!(request, Err(CommandError::Invalid(_))));
}

#[test]
fn connections_to_several_servers_fail_over_independently() {
    let n = 30;
    let mut w = new(n, diameter_config(2).with_connections(shared_connections(2)));
    assert_eq!(peer_changes(&w).0.len(), 4);
    w.set_packet_filter(|p| p.to != NetworkHost::Server(0));
    for i in 0..n {
        w.start_password_login(i);
    }
    w.run_until(2);
    w.switch_off(0);
    w.run_until(3);
    assert_eq!(w.station_outcomes(), vec![IN; n]);
    assert_eq!(w.net[w.nas].diameter_counters().unwrap().retransmitted, n as u64);
    assert_eq!(peer_changes(&w).1.into_keys().collect::<Vec<_>>(), [PeerId(0), PeerId(2)]);
}

#[test]
fn each_session_opens_and_closes_its_own_connection() {
    let n = 60;
    let mut w = new(n, diameter_config(1).with_connections(DiameterConnections::PerSession));
    assert_eq!((w.open_connections(), w.opened_connections()), (0, 0));
    authenticate_all(&mut w, n);
    assert_eq!((w.opened_connections(), w.most_open, w.open_connections(), peer_up_count(&w)), (n, n, 0, n));
    assert_eq!(peer_changes(&w), Default::default());
    // Each connection exchanged capabilities and closed in order; no message was dropped.
    assert_eq!(w.net[w.nas].diameter_counters().unwrap().total(), 0);
    assert_eq!(w.net[w.servers[0]].diameter_counters().unwrap().total(), 0);
    // No timeout is left.
    assert_eq!(w.net[w.servers[0]].poll_timeout(), None);
    let connect =
        authenticator::AuthenticatorCommand::Diameter(DiameterNodeCommand::Connect { peer: PeerId(0) });
    assert!(w.net.send_command(w.nas, connect).is_err());
}

#[test]
fn hundreds_of_sessions_leave_no_state_at_the_server() {
    let mut config = diameter_config(1).with_connections(DiameterConnections::PerSession);
    config.node.watchdog = None;
    let users = test_users(Seed::new(1), 40);
    let mut server = diameter_server(0, users);
    let node = server.diameter.as_mut().unwrap();
    node.accept_unknown = true;
    // One is configured. There is room for all simultaneous connections.
    node.max_peers = 41;
    let mut w = test_network(40, with_diameter(config), &[server]);
    for round in 0..10 {
        for i in 0..40 {
            w.start_password_login(i);
        }
        w.run_until(2 * (round + 1));
    }
    assert_eq!(w.station_outcomes(), vec![IN; 400]);
    assert_eq!((w.opened_connections(), w.open_connections(), peer_up_count(&w)), (400, 0, 400));
    assert_eq!(w.net[w.servers[0]].diameter_counters().unwrap().total(), 0);
}

#[test]
fn a_session_beyond_the_limit_is_refused_until_one_ends() {
    let mut config = diameter_config(1).with_connections(DiameterConnections::PerSession);
    config.max_connections = 2;
    let mut nas = with_diameter(config);
    nas.quiet_period = usher_core::Duration::ZERO;
    let users = test_users(Seed::new(1), 3);
    let mut server = diameter_server(0, users);
    server.diameter.as_mut().unwrap().accept_unknown = true;
    let mut w = test_network(3, nas, &[server]);
    for i in 0..3 {
        w.start_password_login(i);
    }
    w.run_until(1);
    assert_eq!(w.station_outcomes(), [IN, IN, OUT]);
    assert_eq!((w.net[w.nas].counters().aaa_unavailable, w.most_open), (1, 2));
    w.start_password_login(2);
    w.run_until(2);
    assert_eq!(w.station_outcomes(), [IN, IN, OUT, IN]);
}

#[test]
fn a_session_that_is_given_up_takes_its_connection_along() {
    let mut config = with_diameter(diameter_config(1).with_connections(DiameterConnections::PerSession));
    config.station_timeout = usher_core::Duration::from_secs(5);
    let users = test_users(Seed::new(1), 3);
    let mut server = diameter_server(0, users);
    server.diameter.as_mut().unwrap().accept_unknown = true;
    let mut w = test_network(3, config, &[server]);
    // The first station is removed while its request waits for the connection, the second while its request is
    // pending. The third does not answer the server's challenge.
    let forget = |w: &mut AaaTestNetwork, i: usize| {
        let mac = crate::build::station_mac(i);
        let station = StationId::Frame { port: usher_core::LinkLayerPortId(i as u32), mac };
        w.net.send_command(w.nas, authenticator::AuthenticatorCommand::RemoveStation { station }).unwrap();
    };
    let step = usher_core::Duration::from_micros(500);
    w.start_password_login(0);
    while w.opened_connections() == 0 {
        w.run_to(w.now() + step);
    }
    forget(&mut w, 0);
    w.run_until(1);
    assert_eq!((w.open_connections(), w.net[w.servers[0]].counters().sessions), (0, 0));

    w.start_password_login(1);
    while w.net[w.servers[0]].counters().sessions == 0 {
        w.run_to(w.now() + step);
    }
    forget(&mut w, 1);
    assert_eq!(w.open_connections(), 1);
    w.run_until(2);
    assert_eq!(w.open_connections(), 0);

    let mut heard = 0;
    w.set_packet_filter(move |p| {
        heard += usize::from(p.to == NetworkHost::Station(2));
        p.to != NetworkHost::Station(2) || heard < 2
    });
    w.start_password_login(2);
    w.run_until(3);
    assert_eq!(w.open_connections(), 1);
    w.run_until(60);
    let timeout = |e: &authenticator::AuthenticatorEvent| {
        matches!(e, authenticator::AuthenticatorEvent::Failed { reason: FailReason::StationTimeout, .. })
    };
    assert_eq!(w.nas_events.iter().filter(|(_, _, e)| timeout(e)).count(), 1);
    assert_eq!((w.open_connections(), w.opened_connections()), (0, 3));
}

#[test]
fn a_session_with_a_dead_server_fails_without_a_reconnect() {
    let mut w = new(1, diameter_config(1).with_connections(DiameterConnections::PerSession));
    w.switch_off(0);
    w.start_password_login(0);
    w.run_until(200);
    assert_eq!(w.station_outcomes(), [station::StationEvent::Timeout]);
    assert_eq!((w.net[w.nas].counters().aaa_timeouts, w.net[w.nas].poll_timeout()), (1, None));
}

#[test]
fn over_associations_by_each_policy() {
    for (policy, streams) in
        [(StreamPolicy::SingleStream, 1), (StreamPolicy::BySession, 16), (StreamPolicy::Unordered, 1)]
    {
        let mut w = new(60, diameter_config(1).with_transport(sctp_transport(policy)));
        authenticate_all(&mut w, 60);
        assert_eq!((w.opened_connections(), w.stream_count()), (1, streams), "{policy:?}");
    }
}

#[test]
fn several_associations_and_one_for_each_session() {
    let over = sctp_transport(StreamPolicy::BySession);
    let mut w = new(60, diameter_config(1).with_connections(shared_connections(3)).with_transport(over));
    authenticate_all(&mut w, 60);
    assert_eq!((w.opened_connections(), w.open_connections()), (3, 3));
    let mut w =
        new(60, diameter_config(1).with_connections(DiameterConnections::PerSession).with_transport(over));
    authenticate_all(&mut w, 60);
    assert_eq!((w.opened_connections(), w.open_connections(), peer_up_count(&w)), (60, 0, 60));
    assert_eq!(w.net[w.nas].diameter_counters().unwrap().total(), 0);
}

#[test]
fn a_server_may_know_each_identity() {
    let config = diameter_config(1).with_connections(shared_connections(2));
    let users = test_users(Seed::new(1), 10);
    let mut server = diameter_server(0, users);
    let mut node = server.diameter.take().unwrap();
    for identity in config.connection_identities() {
        node = node.accept_from(&identity);
    }
    server.diameter = Some(node);
    let mut w = test_network(10, with_diameter(config), &[server]);
    w.run_until(1);
    assert_eq!(peer_changes(&w).0.len(), 2);
    for i in 0..10 {
        w.start_password_login(i);
    }
    w.run_until(2);
    assert_eq!(w.station_outcomes(), vec![IN; 10]);
}
