//! EAP-MD5 over RADIUS.

use crate::build::{PASSWORD, aaa_config, radius_nas, station_mac, test_network, test_users, user_name};
use crate::world::{AaaTestNetwork, NetworkHost};
use usher_core::{Duration, Instant, LinkLayerPortId, MachineInput, Seed};
use usher_nas::StationId;
use usher_nas::authenticator::{self, FailReason, SessionEndCause};
use usher_nas::station::{self, EapCredentials};

const IN: station::StationEvent = station::StationEvent::Success { msk: None };

fn radius_network(stations: usize) -> AaaTestNetwork {
    let users = test_users(Seed::new(1), stations);
    test_network(stations, radius_nas(1), &[aaa_config(users)])
}
fn frame_station(i: usize) -> StationId {
    StationId::Frame { port: LinkLayerPortId(i as u32), mac: station_mac(i) }
}

#[test]
fn a_password_lets_in_within_two_exchanges() {
    let mut w = radius_network(1);
    w.start_password_login(0);
    w.run_until(1);
    // Start, identity request and response, exchange, challenge and response, exchange, success: ten hops.
    assert_eq!(w.station_events, [(0, Instant::ZERO + Duration::from_millis(10), IN)]);
    let [(_, _, authenticator::AuthenticatorEvent::Authenticated(login))] = &w.nas_events[..] else {
        panic!("{:?}", w.nas_events)
    };
    assert_eq!((login.station, &login.name[..], &login.msk), (frame_station(0), &user_name(0)[..], &None));
    assert_eq!((login.rounds, login.reply.session_timeout()), (2, Some(Duration::from_secs(3600))));
    let server = w.net[w.servers[0]].counters();
    assert_eq!((server.sessions, server.challenges, server.accepted_eap_md5), (1, 1, 1));
    assert_eq!((w.net[w.servers[0]].half_open(), w.net[w.nas].active_session_count()), (0, 0));
    for label in ["radius.request", "radius.response", "eap.md5"] {
        assert!(w.work.contains_key(label), "{:?}", w.work);
    }
}

#[test]
fn failed_logins_are_rejected_and_wait_for_the_quiet_period() {
    let mut w = radius_network(2);
    w.start_login(0, &user_name(0), EapCredentials::from_password(b"wrong"));
    w.start_login(1, b"nobody", EapCredentials::from_password(PASSWORD));
    w.run_until(1);
    assert_eq!(w.station_outcomes(), [station::StationEvent::Failure, station::StationEvent::Failure]);
    let c = w.net[w.servers[0]].counters();
    assert_eq!((c.rejected_wrong_password, c.rejected_unknown_user, c.sessions), (1, 1, 2));
    assert_eq!(w.net[w.nas].counters().rejected, 2);
    // During the quiet period its packets are ignored. Afterwards it may try again.
    w.start_password_login(0);
    w.run_until(2);
    assert_eq!((w.net[w.nas].counters().quiet, w.station_events.len()), (1, 2));
    w.run_until(70);
    assert_eq!(w.station_events.last(), Some(&(0, w.station_events[2].1, IN)));
}

#[test]
fn lost_datagrams_are_sent_again_by_the_radius_client() {
    let mut w = radius_network(1);
    w.set_packet_filter(|p| p.number != 3 && p.number != 9);
    w.start_password_login(0);
    w.run_until(60);
    assert_eq!(w.station_outcomes(), [IN]);
    assert_eq!(w.net[w.nas].radius_counters().unwrap().retransmissions, 2);
    assert_eq!(w.net[w.servers[0]].radius_counters().unwrap().duplicates_answered, 1);
    assert_eq!(w.net[w.servers[0]].counters().sessions, 1);
    let ms = w.station_events[0].1.duration_since(Instant::ZERO).as_millis();
    assert_eq!(ms, 10 + 2 * 2000);
}

#[test]
fn a_silent_server_fails_the_session_or_the_next_one_answers() {
    let users = test_users(Seed::new(1), 1);
    let mut w = test_network(1, radius_nas(1), &[aaa_config(users.clone())]);
    w.switch_off(0);
    w.start_password_login(0);
    w.run_until(100);
    // RFC 3579 §2.1: no EAP-Failure is made as the result of a timeout.
    assert_eq!(w.station_outcomes(), [station::StationEvent::Timeout]);
    assert_eq!(w.net[w.nas].counters().aaa_timeouts, 1);
    let reason = FailReason::AaaTimeout;
    let failed = authenticator::AuthenticatorEvent::Failed { station: frame_station(0), reason };
    assert_eq!(w.nas_events.last().map(|(_, at, e)| (at.as_nanos() / 1_000_000, e)), Some((30_003, &failed)));

    let mut w = test_network(1, radius_nas(2), &[aaa_config(users.clone()), aaa_config(users)]);
    w.switch_off(0);
    w.start_password_login(0);
    w.run_until(100);
    assert_eq!(w.station_outcomes(), [IN]);
    assert_eq!(w.net[w.nas].radius_counters().unwrap().failovers, 1);
    assert_eq!(w.net[w.servers[1]].counters().accepted_eap_md5, 1);
}

#[test]
fn a_session_belongs_to_its_server_and_others_reject_its_state() {
    let users = test_users(Seed::new(1), 1);
    let mut w = test_network(1, radius_nas(2), &[aaa_config(users.clone()), aaa_config(users)]);
    // The first server sends a challenge and then fails. The second does not have the session.
    w.start_password_login(0);
    w.set_packet_filter(|p| p.to != NetworkHost::Server(0) || p.number < 6);
    w.run_until(100);
    assert_eq!(w.station_outcomes(), [station::StationEvent::Failure]);
    assert_eq!(w.net[w.servers[1]].counters().unknown_session, 1);
}

#[test]
fn an_absent_authenticator_and_a_silent_station_time_out() {
    let mut w = radius_network(1);
    w.set_packet_filter(|p| p.from != NetworkHost::Nas(0));
    w.start_password_login(0);
    w.run_until(200);
    assert_eq!(w.station_outcomes(), [station::StationEvent::Timeout]);
    assert_eq!(w.station_events[0].1, Instant::ZERO + Duration::from_secs(90));
    assert_eq!(w.net[w.stations[0]].counters().starts_repeated, 2);
    assert!(w.net[w.nas].counters().restarted + w.net[w.nas].counters().station_timeouts > 0);
    assert_eq!((w.net[w.nas].active_session_count(), w.net[w.servers[0]].half_open()), (0, 0));
}

#[test]
fn the_authenticator_repeats_requests_on_a_lossy_access_link() {
    let mut config = radius_nas(1);
    config.retransmission = Some(authenticator::EapRetransmissionConfig::default());
    let mut w = test_network(1, config, &[aaa_config(test_users(Seed::new(1), 1))]);
    // The identity request and the response to the MD5 challenge are lost once.
    w.set_packet_filter(|p| p.number != 1 && p.number != 7);
    w.start_password_login(0);
    w.run_until(60);
    assert_eq!(w.station_outcomes(), [IN]);
    assert_eq!(w.net[w.nas].counters().retransmissions, 2);

    config = radius_nas(1);
    config.retransmission = Some(authenticator::EapRetransmissionConfig { count: 2, ..Default::default() });
    let mut w = test_network(1, config, &[aaa_config(test_users(Seed::new(1), 1))]);
    w.set_packet_filter(|p| p.from != NetworkHost::Nas(0));
    w.start_password_login(0);
    w.run_until(25);
    // 3 s, 6 s and 12 s.
    let failed = authenticator::AuthenticatorEvent::Failed {
        station: frame_station(0),
        reason: FailReason::StationTimeout,
    };
    assert_eq!(w.nas_events, [(0, Instant::ZERO + Duration::from_millis(21_001), failed)]);
}

#[test]
fn hundreds_of_sessions_interleave() {
    let n = 300;
    let mut w = radius_network(n);
    let mut rng = Seed::new(5).derive_rng("loss", 0);
    w.set_packet_filter(move |p| {
        let access = matches!(p.to, NetworkHost::Station(_)) || matches!(p.from, NetworkHost::Station(_));
        access || !rng.sample_bool(0.1)
    });
    for i in 0..n {
        match i % 10 {
            3 => w.start_login(i, &user_name(i), EapCredentials::from_password(b"wrong")),
            7 => w.start_login(i, b"nobody", EapCredentials::from_password(PASSWORD)),
            _ => w.start_password_login(i),
        }
        w.run_to(w.now() + Duration::from_micros(100));
    }
    w.run_until(60);
    let outcomes = w.station_outcomes();
    assert_eq!(outcomes.len(), n);
    for (i, outcome) in outcomes.iter().enumerate() {
        let expected = if i % 10 == 3 || i % 10 == 7 { station::StationEvent::Failure } else { IN };
        assert_eq!(*outcome, expected, "station {i}");
    }
    assert_eq!(w.net[w.nas].counters().authenticated, n as u64 * 8 / 10);
    assert_eq!((w.net[w.nas].active_session_count(), w.net[w.servers[0]].half_open()), (0, 0));
}

#[test]
fn one_who_was_let_in_logs_off_or_runs_out_of_time() {
    let mut w = radius_network(2);
    w.start_password_login(0);
    w.start_password_login(1);
    w.run_until(10);
    w.net.send_command(w.stations[0], station::StationCommand::LogOff).unwrap();
    w.run_until(4000);
    let ends: Vec<_> =
        w.nas_events[2..].iter().map(|(_, at, e)| (at.as_nanos() / 1_000_000, e.clone())).collect();
    assert_eq!(
        ends,
        [
            (
                10_001,
                authenticator::AuthenticatorEvent::Ended {
                    station: frame_station(0),
                    cause: SessionEndCause::LoggedOff
                }
            ),
            (
                3_600_009,
                authenticator::AuthenticatorEvent::Ended {
                    station: frame_station(1),
                    cause: SessionEndCause::SessionTimeout
                }
            ),
        ]
    );
}

#[test]
fn noise_is_counted_and_harmless() {
    let mut w = radius_network(1);
    w.start_password_login(0);
    let to = [0x01, 0x80, 0xc2, 0, 0, 3];
    let frame = |ethertype: [u8; 2], rest: &[u8]| [&to[..], &station_mac(9).0, &ethertype, rest].concat();
    for bytes in [
        vec![],
        vec![0; 13],
        frame([8, 0], &[0; 46]),
        frame([0x88, 0x8e], &[2, 0, 0]),
        frame([0x88, 0x8e], &[2, 0, 0xff, 0xff]),
        frame([0x88, 0x8e], &[2, 9, 0, 0]),
        frame([0x88, 0x8e], &[2, 0, 0, 4, 2, 1, 0, 4]),
    ] {
        w.inject_input(NetworkHost::Nas(0), MachineInput::Frame { port: LinkLayerPortId(9), data: &bytes });
        w.inject_input(
            NetworkHost::Station(0),
            MachineInput::Frame { port: LinkLayerPortId(0), data: &bytes },
        );
    }
    let c = *w.net[w.nas].counters();
    assert_eq!((c.malformed, c.not_for_us, c.unknown_eapol, c.no_session), (4, 1, 1, 1));
    assert_eq!(w.net[w.stations[0]].counters().malformed, 4);
    w.run_until(10);
    assert_eq!(w.station_outcomes(), [IN]);
}

#[test]
fn new_sessions_push_the_longest_idle_out() {
    let users = test_users(Seed::new(1), 3);
    let mut config = aaa_config(users);
    config.max_half_open = 2;
    let mut w = test_network(3, radius_nas(1), &[config]);
    // No challenge is delivered until all three sessions are open.
    for i in 0..3 {
        w.start_password_login(i);
    }
    w.run_until(60);
    assert_eq!(w.net[w.servers[0]].counters().evicted, 1);
    let refused = w.station_outcomes().iter().filter(|e| **e != IN).count();
    assert_eq!((refused, w.net[w.servers[0]].counters().unknown_session), (1, 1));
}

#[test]
fn a_nas_has_a_limit_too() {
    let mut config = radius_nas(1);
    config.max_sessions = 2;
    let mut w = test_network(3, config, &[aaa_config(test_users(Seed::new(1), 3))]);
    for i in 0..3 {
        w.start_password_login(i);
    }
    w.run_until(20);
    assert_eq!((w.net[w.nas].counters().full, w.station_outcomes().len()), (1, 2));
    // The third sends EAPOL-Start again and finds room.
    w.run_until(40);
    assert_eq!(w.station_outcomes(), [IN, IN, IN]);
}
