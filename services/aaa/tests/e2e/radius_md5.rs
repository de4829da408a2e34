//! EAP-MD5 over RADIUS.

use crate::build::{PASSWORD, aaa_config, mac, radius_nas, user_name, users, world};
use crate::world::{Who, World};
use usher_core::{Duration, Input, Instant, PortId, Seed};
use usher_nas::StationId;
use usher_nas::authenticator::{self, EndCause, FailReason};
use usher_nas::station::{self, Credentials};

const IN: station::Event = station::Event::Success { msk: None };

fn usual(stations: usize) -> World {
    let users = users(Seed::new(1), stations);
    world(stations, radius_nas(1), &[aaa_config(users)])
}
fn frame_station(i: usize) -> StationId {
    StationId::Frame { port: PortId(i as u32), mac: mac(i) }
}

#[test]
fn a_password_lets_in_within_two_exchanges() {
    let mut w = usual(1);
    w.ask_in_by_password(0);
    w.run_until(1);
    // Start, identity and its answer, exchange, challenge and its answer, exchange, success: ten hops.
    assert_eq!(w.station_events, [(0, Instant::ZERO + Duration::from_millis(10), IN)]);
    let [(_, _, authenticator::Event::Authenticated(login))] = &w.nas_events[..] else {
        panic!("{:?}", w.nas_events)
    };
    assert_eq!((login.station, &login.name[..], &login.msk), (frame_station(0), &user_name(0)[..], &None));
    assert_eq!((login.rounds, login.reply.session_timeout()), (2, Some(Duration::from_secs(3600))));
    let server = w.net[w.servers[0]].counters();
    assert_eq!((server.sessions, server.challenges, server.accepted_eap_md5), (1, 1, 1));
    assert_eq!((w.net[w.servers[0]].half_open(), w.net[w.nas].in_progress()), (0, 0));
    for label in ["radius.request", "radius.response", "eap.md5"] {
        assert!(w.work.contains_key(label), "{:?}", w.work);
    }
}

#[test]
fn a_wrong_password_and_an_unknown_user_are_turned_away_and_held_off() {
    let mut w = usual(2);
    w.ask_in(0, &user_name(0), Credentials::password(b"wrong"));
    w.ask_in(1, b"nobody", Credentials::password(PASSWORD));
    w.run_until(1);
    assert_eq!(w.outcomes(), [station::Event::Failure, station::Event::Failure]);
    let c = w.net[w.servers[0]].counters();
    assert_eq!((c.rejected_wrong_password, c.rejected_unknown_user, c.sessions), (1, 1, 2));
    assert_eq!(w.net[w.nas].counters().rejected, 2);
    // Within the quiet period nobody listens to it; after that it may try again.
    w.ask_in_by_password(0);
    w.run_until(2);
    assert_eq!((w.net[w.nas].counters().quiet, w.station_events.len()), (1, 2));
    w.run_until(70);
    assert_eq!(w.station_events.last(), Some(&(0, w.station_events[2].1, IN)));
}

#[test]
fn lost_datagrams_are_sent_again_by_the_radius_client() {
    let mut w = usual(1);
    w.passes(|p| p.number != 3 && p.number != 9);
    w.ask_in_by_password(0);
    w.run_until(60);
    assert_eq!(w.outcomes(), [IN]);
    assert_eq!(w.net[w.nas].radius_counters().unwrap().retransmissions, 2);
    assert_eq!(w.net[w.servers[0]].radius_counters().unwrap().duplicates_answered, 1);
    assert_eq!(w.net[w.servers[0]].counters().sessions, 1);
    let ms = w.station_events[0].1.since(Instant::ZERO).as_millis();
    assert_eq!(ms, 10 + 2 * 2000);
}

#[test]
fn a_silent_server_fails_the_session_and_the_next_server_answers() {
    let users = users(Seed::new(1), 1);
    let mut w = world(1, radius_nas(1), &[aaa_config(users.clone())]);
    w.switch_off(0);
    w.ask_in_by_password(0);
    w.run_until(100);
    // RFC 3579 §2.1: no EAP-Failure is made as the result of a timeout.
    assert_eq!(w.outcomes(), [station::Event::Timeout]);
    assert_eq!(w.net[w.nas].counters().aaa_timeouts, 1);
    let reason = FailReason::AaaTimeout;
    let failed = authenticator::Event::Failed { station: frame_station(0), reason };
    assert_eq!(w.nas_events.last().map(|(_, at, e)| (at.as_nanos() / 1_000_000, e)), Some((30_003, &failed)));

    let mut w = world(1, radius_nas(2), &[aaa_config(users.clone()), aaa_config(users)]);
    w.switch_off(0);
    w.ask_in_by_password(0);
    w.run_until(100);
    assert_eq!(w.outcomes(), [IN]);
    assert_eq!(w.net[w.nas].radius_counters().unwrap().failovers, 1);
    assert_eq!(w.net[w.servers[1]].counters().accepted_eap_md5, 1);
}

#[test]
fn a_session_belongs_to_its_server_and_a_strange_state_is_turned_away() {
    let users = users(Seed::new(1), 1);
    let mut w = world(1, radius_nas(2), &[aaa_config(users.clone()), aaa_config(users)]);
    // The first server challenges, then falls silent: the second knows nothing of the session.
    w.ask_in_by_password(0);
    w.passes(|p| p.to != Who::Server(0) || p.number < 6);
    w.run_until(100);
    assert_eq!(w.outcomes(), [station::Event::Failure]);
    assert_eq!(w.net[w.servers[1]].counters().unknown_session, 1);
}

#[test]
fn an_absent_authenticator_and_a_station_that_falls_silent_time_out() {
    let mut w = usual(1);
    w.passes(|p| p.from != Who::Nas(0));
    w.ask_in_by_password(0);
    w.run_until(200);
    assert_eq!(w.outcomes(), [station::Event::Timeout]);
    assert_eq!(w.station_events[0].1, Instant::ZERO + Duration::from_secs(90));
    assert_eq!(w.net[w.stations[0]].counters().starts_repeated, 2);
    assert!(w.net[w.nas].counters().restarted + w.net[w.nas].counters().station_timeouts > 0);
    assert_eq!((w.net[w.nas].in_progress(), w.net[w.servers[0]].half_open()), (0, 0));
}

#[test]
fn the_authenticator_repeats_requests_on_a_lossy_access_link() {
    let mut config = radius_nas(1);
    config.retransmission = Some(authenticator::Retransmission::default());
    let mut w = world(1, config, &[aaa_config(users(Seed::new(1), 1))]);
    // The identity request, and the answer to the MD5 challenge, are lost once.
    w.passes(|p| p.number != 1 && p.number != 7);
    w.ask_in_by_password(0);
    w.run_until(60);
    assert_eq!(w.outcomes(), [IN]);
    assert_eq!(w.net[w.nas].counters().retransmissions, 2);

    config = radius_nas(1);
    config.retransmission = Some(authenticator::Retransmission { count: 2, ..Default::default() });
    let mut w = world(1, config, &[aaa_config(users(Seed::new(1), 1))]);
    w.passes(|p| p.from != Who::Nas(0));
    w.ask_in_by_password(0);
    w.run_until(25);
    // 3 s, 6 s and 12 s.
    let failed =
        authenticator::Event::Failed { station: frame_station(0), reason: FailReason::StationTimeout };
    assert_eq!(w.nas_events, [(0, Instant::ZERO + Duration::from_millis(21_001), failed)]);
}

#[test]
fn hundreds_of_sessions_interleave() {
    let n = 300;
    let mut w = usual(n);
    let mut rng = Seed::new(5).stream("loss", 0);
    w.passes(move |p| {
        let access = matches!(p.to, Who::Station(_)) || matches!(p.from, Who::Station(_));
        access || !rng.chance(0.1)
    });
    for i in 0..n {
        match i % 10 {
            3 => w.ask_in(i, &user_name(i), Credentials::password(b"wrong")),
            7 => w.ask_in(i, b"nobody", Credentials::password(PASSWORD)),
            _ => w.ask_in_by_password(i),
        }
        w.run_to(w.now() + Duration::from_micros(100));
    }
    w.run_until(60);
    let outcomes = w.outcomes();
    assert_eq!(outcomes.len(), n);
    for (i, outcome) in outcomes.iter().enumerate() {
        let expected = if i % 10 == 3 || i % 10 == 7 { station::Event::Failure } else { IN };
        assert_eq!(*outcome, expected, "station {i}");
    }
    assert_eq!(w.net[w.nas].counters().authenticated, n as u64 * 8 / 10);
    assert_eq!((w.net[w.nas].in_progress(), w.net[w.servers[0]].half_open()), (0, 0));
}

#[test]
fn one_who_was_let_in_logs_off_or_runs_out_of_time() {
    let mut w = usual(2);
    w.ask_in_by_password(0);
    w.ask_in_by_password(1);
    w.run_until(10);
    w.net.command(w.stations[0], station::Command::LogOff).unwrap();
    w.run_until(4000);
    let ends: Vec<_> =
        w.nas_events[2..].iter().map(|(_, at, e)| (at.as_nanos() / 1_000_000, e.clone())).collect();
    assert_eq!(
        ends,
        [
            (10_001, authenticator::Event::Ended { station: frame_station(0), cause: EndCause::LoggedOff }),
            (
                3_600_009,
                authenticator::Event::Ended { station: frame_station(1), cause: EndCause::SessionTimeout }
            ),
        ]
    );
}

#[test]
fn noise_is_counted_and_harmless() {
    let mut w = usual(1);
    w.ask_in_by_password(0);
    let to = [0x01, 0x80, 0xc2, 0, 0, 3];
    let frame = |ethertype: [u8; 2], rest: &[u8]| [&to[..], &mac(9).0, &ethertype, rest].concat();
    for bytes in [
        vec![],
        vec![0; 13],
        frame([8, 0], &[0; 46]),
        frame([0x88, 0x8e], &[2, 0, 0]),
        frame([0x88, 0x8e], &[2, 0, 0xff, 0xff]),
        frame([0x88, 0x8e], &[2, 9, 0, 0]),
        frame([0x88, 0x8e], &[2, 0, 0, 4, 2, 1, 0, 4]),
    ] {
        w.inject(Who::Nas(0), Input::Frame { port: PortId(9), data: &bytes });
        w.inject(Who::Station(0), Input::Frame { port: PortId(0), data: &bytes });
    }
    let c = *w.net[w.nas].counters();
    assert_eq!((c.malformed, c.not_for_us, c.unknown_eapol, c.no_session), (4, 1, 1, 1));
    assert_eq!(w.net[w.stations[0]].counters().malformed, 4);
    w.run_until(10);
    assert_eq!(w.outcomes(), [IN]);
}

#[test]
fn new_sessions_push_the_longest_idle_out() {
    let users = users(Seed::new(1), 3);
    let mut config = aaa_config(users);
    config.max_half_open = 2;
    let mut w = world(3, radius_nas(1), &[config]);
    // Nobody hears a challenge until all three sessions are open.
    for i in 0..3 {
        w.ask_in_by_password(i);
    }
    w.run_until(60);
    assert_eq!(w.net[w.servers[0]].counters().evicted, 1);
    let refused = w.outcomes().iter().filter(|e| **e != IN).count();
    assert_eq!((refused, w.net[w.servers[0]].counters().unknown_session), (1, 1));
}

#[test]
fn a_nas_has_a_limit_too() {
    let mut config = radius_nas(1);
    config.max_sessions = 2;
    let mut w = world(3, config, &[aaa_config(users(Seed::new(1), 3))]);
    for i in 0..3 {
        w.ask_in_by_password(i);
    }
    w.run_until(20);
    assert_eq!((w.net[w.nas].counters().full, w.outcomes().len()), (1, 2));
    // The third says EAPOL-Start again, and finds room.
    w.run_until(40);
    assert_eq!(w.outcomes(), [IN, IN, IN]);
}
