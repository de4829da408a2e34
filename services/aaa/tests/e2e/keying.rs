//! The exchange of traffic keys between a base station and the stations that EAP-TLS lets in.

use crate::build::{aaa_config, radius_nas, station_mac, test_network, test_users, user_name};
use crate::tls::{tls_client_config, tls_server_config};
use crate::world::{AaaTestNetwork, NetworkHost};
use std::sync::Arc;
use usher_aaa::AuthMethod;
use usher_core::{Duration, Instant, LinkLayerPortId, MachineInput, Seed};
use usher_crypto::tls::{TlsHandshakeRecording, TlsVersion, fixtures, record_handshake};
use usher_eap::method::tls::{EapTlsPeerFactory, EapTlsServerFactory, PeerTlsBackend, ServerTlsBackend};
use usher_nas::authenticator::{self, EapRetransmissionConfig, FailReason, SessionEndCause};
use usher_nas::keying::{BaseStationKeying, KeyingConfig};
use usher_nas::station::{EapCredentials, StationEvent};
use usher_nas::{AccessMedium, ETHERTYPE_PKM, NasIdentity, StationId};
use usher_pkm::keys::AuthorizationKey;

const FRAGMENT: usize = 1024;
/// Octets of the frames that carry the five messages, with the 14 of their header.
const CHALLENGE: usize = 14 + 46;
const REQUEST: usize = 14 + 68;
const RESPONSE: usize = 14 + 75;
const KEY_REQUEST: usize = 14 + 34;
const KEY_REPLY: usize = 14 + 108;

fn base_station(keying: Option<KeyingConfig>) -> authenticator::AuthenticatorConfig {
    let nas = NasIdentity { address: radius_nas(1).nas.address, ..NasIdentity::for_wimax("bs.example.org") };
    authenticator::AuthenticatorConfig {
        nas,
        access: AccessMedium::Wimax,
        keying,
        quiet_period: Duration::ZERO,
        retransmission: Some(EapRetransmissionConfig::default()),
        ..radius_nas(1)
    }
}

fn tls_recording() -> Arc<TlsHandshakeRecording> {
    let (client, server) = (
        tls_client_config(TlsVersion::Tls12, fixtures::client_credentials(2)),
        tls_server_config(TlsVersion::Tls12),
    );
    Arc::new(record_handshake(&client, &server).unwrap())
}

fn tls_world(
    stations: usize,
    keying: Option<KeyingConfig>,
    recording: &Arc<TlsHandshakeRecording>,
) -> AaaTestNetwork {
    let mut config = aaa_config(test_users(Seed::new(1), stations));
    config.methods = vec![AuthMethod::EapTls];
    let tls = ServerTlsBackend::Recorded(recording.clone());
    config.tls = Some(Arc::new(EapTlsServerFactory { tls, fragment: FRAGMENT }));
    test_network(stations, base_station(keying), &[config])
}

fn start_tls_login(w: &mut AaaTestNetwork, station: usize, recording: &Arc<TlsHandshakeRecording>) {
    let tls = PeerTlsBackend::Recorded(recording.clone());
    w.start_login(
        station,
        &user_name(station),
        EapCredentials::from_method(EapTlsPeerFactory { tls, fragment: FRAGMENT }),
    );
}

/// A station that logs in over a channel with the losses of `lost`.
fn run_one_station(mut lost: impl FnMut(NetworkHost, usize) -> bool + 'static) -> AaaTestNetwork {
    let recording = tls_recording();
    let mut w = tls_world(1, Some(KeyingConfig::default()), &recording);
    w.set_packet_filter(move |p| !lost(p.to, p.octets));
    start_tls_login(&mut w, 0, &recording);
    w.run_until(60);
    w
}

/// Returns the events of station and base station, with times since the station's `Admitted`.
fn observed_events(
    w: &AaaTestNetwork,
) -> (Vec<(Duration, &StationEvent)>, Vec<&authenticator::AuthenticatorEvent>) {
    let admitted =
        w.station_events.iter().find(|(_, _, e)| *e == StationEvent::Admitted).map(|(_, at, _)| *at);
    let since = |at: Instant| at.duration_since(admitted.unwrap_or(Instant::ZERO));
    let station = w.station_events.iter().map(|(_, at, e)| (since(*at), e)).collect();
    (station, w.nas_events.iter().map(|(_, _, e)| e).collect())
}

fn has_keys(w: &AaaTestNetwork) -> bool {
    let station = matches!(w.station_events.last(), Some((_, _, StationEvent::Success { msk: Some(_) })));
    let keyed =
        |e: &authenticator::AuthenticatorEvent| matches!(e, authenticator::AuthenticatorEvent::Keyed { .. });
    station && w.nas_events.iter().filter(|(_, _, e)| keyed(e)).count() == 1
}

#[test]
fn traffic_keys_follow_the_success_of_eap() {
    let w = run_one_station(|_, _| false);
    let (station, base) = observed_events(&w);
    let ms = Duration::from_millis;
    // A millisecond each way. The challenge arrives with EAP's success; four messages follow.
    assert_eq!(station[0], (ms(0), &StationEvent::Admitted));
    assert!(matches!(station[1], (at, StationEvent::Success { msk: Some(_) }) if at == ms(4)), "{station:?}");
    let order: Vec<bool> =
        base.iter().map(|e| matches!(e, authenticator::AuthenticatorEvent::Keyed { .. })).collect();
    assert_eq!(order, [false, true], "{base:?}");
    assert_eq!((w.net[w.nas].counters().keyed, w.net[w.nas].counters().unkeyed), (1, 0));
    let (down, up) = (w.net[w.nas].keying_counters(), w.net[w.stations[0]].keying_counters());
    assert_eq!((down.sent, down.heard, up.sent, up.heard), (3, 2, 2, 3));
    assert_eq!(
        down.octets + up.octets,
        (CHALLENGE + REQUEST + RESPONSE + KEY_REQUEST + KEY_REPLY - 5 * 14) as u64
    );
    // Both sides derive once, compute or check each digest, and wrap or unwrap two keys.
    let work = |label: &str| w.work.get(label).copied().unwrap_or(0);
    assert_eq!((work("pkm.derive"), work("pkm.digest"), work("pkm.key")), (2, 10, 4));
}

#[test]
fn without_it_eap_is_the_end() {
    let recording = tls_recording();
    let mut w = tls_world(1, None, &recording);
    start_tls_login(&mut w, 0, &recording);
    w.run_until(60);
    assert!(matches!(w.station_outcomes()[..], [StationEvent::Success { msk: Some(_) }]));
    assert_eq!((w.net[w.nas].counters().keyed, w.net[w.nas].keying_counters().sent), (0, 0));
}

#[test]
fn a_message_lost_is_said_again() {
    for (octets, wait) in
        [(CHALLENGE, 1000), (REQUEST, 300), (RESPONSE, 300), (KEY_REQUEST, 1000), (KEY_REPLY, 1000)]
    {
        let mut done = false;
        let w = run_one_station(move |_, n| n == octets && !std::mem::replace(&mut done, true));
        assert!(has_keys(&w), "{octets}: {:?}", w.station_events);
        let (station, _) = observed_events(&w);
        let took = station[1].0.as_millis();
        assert!((wait..wait + 10).contains(&took), "{octets}: {took} ms");
        let resent = w.net[w.nas].keying_counters().resent + w.net[w.stations[0]].keying_counters().resent;
        assert!((1..=2).contains(&resent), "{octets}: {resent}");
    }
}

#[test]
fn silence_ends_on_both_sides() {
    // The challenge is lost: base station and station give up after four seconds.
    let w = run_one_station(|_, octets| octets == CHALLENGE);
    let (station, base) = observed_events(&w);
    assert_eq!(station[1], (Duration::from_secs(4), &StationEvent::Unkeyed));
    let ended = authenticator::AuthenticatorEvent::Ended {
        station: StationId::Frame { port: LinkLayerPortId(0), mac: station_mac(0) },
        cause: SessionEndCause::Unkeyed,
    };
    assert_eq!(base.last(), Some(&&ended));
    assert_eq!((w.net[w.nas].counters().unkeyed, w.net[w.nas].keying_counters().sent), (1, 4));
    assert_eq!(w.net[w.stations[0]].counters().unkeyed, 1);
    // The key request is lost: the base station gives up when the station does.
    let w = run_one_station(|_, octets| octets == KEY_REQUEST);
    let (_, base) = observed_events(&w);
    assert_eq!(w.station_events.last().map(|(_, _, e)| e), Some(&StationEvent::Unkeyed));
    assert_eq!(base.last(), Some(&&ended));
    assert_eq!((w.net[w.nas].counters().unkeyed, w.net[w.nas].counters().keyed), (1, 0));
    // The key reply is lost: the base station, which has sent it, cannot know.
    let w = run_one_station(|_, octets| octets == KEY_REPLY);
    assert_eq!(w.station_events.last().map(|(_, _, e)| e), Some(&StationEvent::Unkeyed));
    assert_eq!((w.net[w.nas].counters().unkeyed, w.net[w.nas].keying_counters().resent), (0, 3));
}

#[test]
fn a_method_without_keys_gives_none() {
    let mut w = test_network(
        1,
        base_station(Some(KeyingConfig::default())),
        &[aaa_config(test_users(Seed::new(1), 1))],
    );
    w.start_password_login(0);
    w.run_until(60);
    assert_eq!(w.station_outcomes(), [StationEvent::Unkeyed]);
    let last = w.nas_events.last().map(|(_, _, e)| e);
    assert!(
        matches!(
            last,
            Some(authenticator::AuthenticatorEvent::Ended { cause: SessionEndCause::Unkeyed, .. })
        ),
        "{last:?}"
    );
    assert_eq!(w.net[w.nas].keying_counters().sent, 0);
}

#[test]
fn a_forged_challenge_is_dropped_and_the_true_one_heard() {
    let recording = tls_recording();
    let mut w = tls_world(1, Some(KeyingConfig::default()), &recording);
    // The real one is lost, so that the station waits for a second.
    let mut done = false;
    w.set_packet_filter(move |p| p.octets != CHALLENGE || std::mem::replace(&mut done, true));
    start_tls_login(&mut w, 0, &recording);
    while !w.station_events.iter().any(|(_, _, e)| *e == StationEvent::Admitted) {
        w.run_to(w.now() + Duration::from_millis(1));
    }
    let key = AuthorizationKey::new(&[9; 64], station_mac(0).0, [2, 0, 0, 0, 0, 1], 0);
    let mut forger = BaseStationKeying::new(
        KeyingConfig::default(),
        key,
        &mut Seed::new(3).derive_secure_rng("forger", 0),
        w.now(),
    );
    let mut message = Vec::new();
    assert!(forger.poll_transmit(&mut message));
    let frame = [&station_mac(0).0[..], &[2, 0, 0, 0, 0, 1], &ETHERTYPE_PKM.to_be_bytes(), &message].concat();
    w.inject_input(NetworkHost::Station(0), MachineInput::Frame { port: LinkLayerPortId(0), data: &frame });
    assert_eq!(w.net[w.stations[0]].keying_counters().wrong_digest, 1);
    // The base station ignores it too, and opens no session for an unknown station.
    let frame = [&[1, 0x80, 0xc2, 0, 0, 3][..], &station_mac(9).0, &ETHERTYPE_PKM.to_be_bytes(), &[9, 21, 1]]
        .concat();
    w.inject_input(NetworkHost::Nas(0), MachineInput::Frame { port: LinkLayerPortId(9), data: &frame });
    assert_eq!(w.net[w.nas].counters().unknown_pkm, 1);
    w.run_until(60);
    assert!(has_keys(&w), "{:?}", w.station_events);
}

#[test]
fn many_come_in_over_a_lossy_way_or_end_all_the_same() {
    let recording = tls_recording();
    let n = 60;
    let mut w = tls_world(n, Some(KeyingConfig::default()), &recording);
    for i in 0..n {
        start_tls_login(&mut w, i, &recording);
    }
    let mut rng = Seed::new(6).derive_rng("loss", 0);
    w.set_packet_filter(move |p| {
        let access = matches!(p.to, NetworkHost::Station(_)) || matches!(p.from, NetworkHost::Station(_));
        !(access && rng.sample_bool(0.05))
    });
    w.run_until(1000);
    let ends = w.station_events.iter().filter(|(_, _, e)| *e != StationEvent::Admitted).count();
    assert_eq!(ends, n, "each attempt ends once");
    let keyed = w.station_events.iter().filter(|(_, _, e)| matches!(e, StationEvent::Success { .. })).count();
    // EAP-Success is sent once and may be lost. Few stations that received it miss their keys.
    assert!(keyed > n * 8 / 10, "{keyed} of {n}");
    let (down, up) = (w.net[w.nas].keying_counters(), w.net[w.stations[0]].keying_counters());
    assert_eq!((down.wrong_digest, down.replayed, up.wrong_digest, up.replayed), (0, 0, 0, 0));
    let failed = |reason| {
        let is = |e: &authenticator::AuthenticatorEvent| matches!(e, authenticator::AuthenticatorEvent::Failed { reason: r, .. } if *r == reason);
        w.nas_events.iter().filter(|(_, _, e)| is(e)).count()
    };
    assert_eq!(failed(FailReason::AaaTimeout), 0);
}

#[test]
fn a_station_that_asks_again_gets_new_keys() {
    let recording = tls_recording();
    let mut w = tls_world(1, Some(KeyingConfig::default()), &recording);
    for round in 1..=2u64 {
        start_tls_login(&mut w, 0, &recording);
        w.run_until(30 * round);
        assert_eq!(w.net[w.nas].counters().keyed, round);
    }
    let sums = (w.net[w.nas].keying_counters().sent, w.net[w.stations[0]].keying_counters().sent);
    assert_eq!(sums, (6, 4), "what is over is counted on");
}
