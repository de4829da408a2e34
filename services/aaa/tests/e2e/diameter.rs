//! EAP over Diameter.

use crate::build::{
    PASSWORD, diameter_nas, diameter_server, station_mac, test_network, test_users, user_name,
};
use crate::world::{AaaTestNetwork, NetworkHost, nas_address};
use usher_core::{
    CloseReason, ConnId, Instant, LinkLayerPortId, Machine, MachineInput, MachineOutput,
    MessageAssociationEvent, MessageAssociationOp, Seed, StreamEvent, StreamOp, Transmit,
};
use usher_diameter::node::PeerId;
use usher_nas::StationId;
use usher_nas::authenticator::{self, FailReason};
use usher_nas::station::{self, EapCredentials};

const IN: station::StationEvent = station::StationEvent::Success { msk: None };

/// Connections are open after the first second.
fn connected_network(stations: usize, servers: usize) -> AaaTestNetwork {
    let users = test_users(Seed::new(1), stations);
    let configs: Vec<_> = (0..servers).map(|i| diameter_server(i, users.clone())).collect();
    let mut w = test_network(stations, diameter_nas(servers), &configs);
    w.run_until(1);
    for i in 0..servers {
        let up = authenticator::AuthenticatorEvent::DiameterPeer { peer: PeerId(i as u32), up: true };
        assert!(w.nas_events.iter().any(|(_, _, e)| *e == up), "{:?}", w.nas_events);
    }
    w
}

#[test]
fn a_password_lets_in_and_wrong_ones_do_not() {
    let mut w = connected_network(3, 1);
    w.start_password_login(0);
    w.start_login(1, &user_name(1), EapCredentials::from_password(b"wrong"));
    w.start_login(2, b"nobody", EapCredentials::from_password(PASSWORD));
    w.run_until(2);
    assert_eq!(w.station_outcomes(), [IN, station::StationEvent::Failure, station::StationEvent::Failure]);
    let admitted = w.nas_events.iter().find_map(|(_, _, e)| match e {
        authenticator::AuthenticatorEvent::Authenticated(login) => {
            Some((login.station, login.rounds, login.reply.session_timeout()))
        }
        _ => None,
    });
    let (station, rounds, timeout) = admitted.unwrap();
    assert_eq!(station, StationId::Frame { port: LinkLayerPortId(0), mac: station_mac(0) });
    assert_eq!((rounds, timeout.map(|t| t.as_secs())), (2, Some(3600)));
    let c = w.net[w.servers[0]].counters();
    assert_eq!((c.accepted_eap_md5, c.rejected_wrong_password, c.rejected_unknown_user), (1, 1, 1));
    assert!(w.work["diameter.request"] > 0 && w.work["diameter.answer"] > 0);
}

#[test]
fn a_lost_connection_moves_its_request_to_the_other_server() {
    let mut w = connected_network(1, 2);
    // The first request to the first server is lost, because the server dies.
    w.set_packet_filter(|p| p.to != NetworkHost::Server(0));
    w.start_password_login(0);
    w.run_until(2);
    w.switch_off(0);
    w.run_until(3);
    assert_eq!(w.station_outcomes(), [IN]);
    assert_eq!(w.net[w.nas].diameter_counters().unwrap().retransmitted, 1);
    assert_eq!(w.net[w.servers[1]].counters().accepted_eap_md5, 1);
    let down = authenticator::AuthenticatorEvent::DiameterPeer { peer: PeerId(0), up: false };
    assert!(w.nas_events.iter().any(|(_, _, e)| *e == down));
}

#[test]
fn a_lost_server_fails_its_session_and_the_next_finds_another() {
    let mut w = connected_network(2, 2);
    // The second round of the first session is lost.
    let mut rounds = 0;
    w.set_packet_filter(move |p| {
        rounds += usize::from(p.to == NetworkHost::Server(0));
        p.to != NetworkHost::Server(0) || rounds < 2
    });
    w.start_password_login(0);
    w.run_until(2);
    w.switch_off(0);
    w.run_until(3);
    w.start_password_login(1);
    w.run_until(100);
    assert_eq!(w.station_outcomes(), [station::StationEvent::Timeout, IN]);
    let reasons: Vec<_> = w
        .nas_events
        .iter()
        .filter_map(|(_, _, e)| match e {
            authenticator::AuthenticatorEvent::Failed { reason, .. } => Some(*reason),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, [FailReason::AaaTimeout]);
    assert_eq!(
        (w.net[w.nas].active_session_count(), w.net[w.servers[1]].counters().accepted_eap_md5),
        (0, 1)
    );
}

#[test]
fn without_any_server_a_session_times_out() {
    let mut w = connected_network(1, 1);
    w.switch_off(0);
    w.start_password_login(0);
    w.run_until(100);
    assert_eq!(w.station_outcomes(), [station::StationEvent::Timeout]);
    assert_eq!(w.net[w.nas].counters().aaa_timeouts, 1);
}

#[test]
fn hundreds_of_sessions_share_one_connection() {
    let n = 300;
    let mut w = connected_network(n, 1);
    for i in 0..n {
        if i % 3 == 0 {
            w.start_login(i, &user_name(i), EapCredentials::from_password(b"wrong"));
        } else {
            w.start_password_login(i);
        }
    }
    w.run_until(5);
    for (i, outcome) in w.station_outcomes().iter().enumerate() {
        assert_eq!(*outcome, if i % 3 == 0 { station::StationEvent::Failure } else { IN }, "station {i}");
    }
    assert_eq!(w.station_outcomes().len(), n);
    assert_eq!((w.net[w.nas].active_session_count(), w.net[w.servers[0]].half_open()), (0, 0));
}

#[test]
fn noise_on_a_connection_is_counted_and_harmless() {
    let mut w = connected_network(1, 1);
    let listener = usher_aaa::DIAMETER_LISTENER;
    let conn = ConnId::nth_accepted_at_listener(listener, 77);
    let remote = std::net::SocketAddr::new(nas_address(9), 1);
    let feed = |w: &mut AaaTestNetwork, event| {
        w.inject_input(NetworkHost::Server(0), MachineInput::Stream { conn, event })
    };
    feed(&mut w, StreamEvent::Accepted { listener, remote, local: None, certificate: None });
    feed(&mut w, StreamEvent::Data(b"GET / HTTP/1.1\r\n\r\n and then some more"));
    feed(&mut w, StreamEvent::Closed(CloseReason::Closed));
    assert_eq!(w.net[w.servers[0]].diameter_counters().unwrap().unframable, 1);
    w.start_password_login(0);
    w.run_until(3);
    assert_eq!(w.station_outcomes(), [IN]);
}

#[test]
fn who_connects_where_nobody_serves_is_refused() {
    let mut server = usher_aaa::AaaServer::new(
        usher_aaa::AaaServerConfig::new(usher_aaa::UserSource::Memory(test_users(Seed::new(7), 1))),
        Seed::new(7).derive_secure_rng("aaa", 0),
    )
    .unwrap();
    let done = |server: &mut usher_aaa::AaaServer| match server.poll_output(&mut Vec::new()) {
        Some(MachineOutput::Transmit(transmit)) => transmit,
        other => panic!("{other:?}"),
    };
    let remote = std::net::SocketAddr::new(nas_address(9), 1);
    for listener in [usher_aaa::RADSEC_LISTENER, usher_aaa::DIAMETER_LISTENER] {
        let conn = ConnId::nth_accepted_at_listener(listener, 77);
        let event = StreamEvent::Accepted { listener, remote, local: None, certificate: None };
        server.handle_input(Instant::ZERO, MachineInput::Stream { conn, event });
        assert_eq!(done(&mut server), Transmit::Stream { conn, op: StreamOp::Abort });
        let event = MessageAssociationEvent::Accepted { listener, remote, streams: 1 };
        server.handle_input(Instant::ZERO, MachineInput::Message { assoc: conn, event });
        assert_eq!(done(&mut server), Transmit::Message { assoc: conn, op: MessageAssociationOp::Abort });
    }
    assert_eq!(server.counters().no_front, 4);
}

#[test]
fn a_nas_without_diameter_takes_no_diameter_command() {
    let mut w = test_network(0, crate::build::radius_nas(1), &[]);
    let command = usher_diameter::node::DiameterNodeCommand::Connect { peer: PeerId(0) };
    assert!(
        w.net[w.nas]
            .handle_command(Instant::ZERO, authenticator::AuthenticatorCommand::Diameter(command))
            .is_err()
    );
}
