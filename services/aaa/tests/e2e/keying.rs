//! The exchange of traffic keys between a base station and the stations that EAP-TLS lets in.

use crate::build::{aaa_config, mac, radius_nas, user_name, users, world};
use crate::tls::{client, server};
use crate::world::{Who, World};
use std::sync::Arc;
use usher_aaa::Method;
use usher_core::{Duration, Input, Instant, PortId, Seed};
use usher_crypto::tls::{Recording, Version, fixtures, record};
use usher_eap::method::tls::{PeerMethodTls, PeerTls, ServerMethodTls, ServerTls};
use usher_nas::authenticator::{self, EndCause, FailReason, Retransmission};
use usher_nas::keying::{Base, Config};
use usher_nas::station::{Credentials, Event};
use usher_nas::{Access, ETHERTYPE_PKM, NasIdentity, StationId};
use usher_pkm::keys::AuthKey;

const FRAGMENT: usize = 1024;
/// Octets of the frames that carry the five messages, with the 14 of their header.
const CHALLENGE: usize = 14 + 46;
const REQUEST: usize = 14 + 68;
const RESPONSE: usize = 14 + 75;
const KEY_REQUEST: usize = 14 + 34;
const KEY_REPLY: usize = 14 + 108;

fn base_station(keying: Option<Config>) -> authenticator::Config {
    let nas = NasIdentity { address: radius_nas(1).nas.address, ..NasIdentity::wimax("bs.example.org") };
    authenticator::Config {
        nas,
        access: Access::Wimax,
        keying,
        quiet_period: Duration::ZERO,
        retransmission: Some(Retransmission::default()),
        ..radius_nas(1)
    }
}

fn recording() -> Arc<Recording> {
    let (client, server) = (client(Version::Tls12, fixtures::client(2)), server(Version::Tls12));
    Arc::new(record(&client, &server).unwrap())
}

fn tls_world(stations: usize, keying: Option<Config>, recording: &Arc<Recording>) -> World {
    let mut config = aaa_config(users(Seed::new(1), stations));
    config.methods = vec![Method::EapTls];
    let tls = ServerTls::Recorded(recording.clone());
    config.tls = Some(Arc::new(ServerMethodTls { tls, fragment: FRAGMENT }));
    world(stations, base_station(keying), &[config])
}

fn ask_in(w: &mut World, station: usize, recording: &Arc<Recording>) {
    let tls = PeerTls::Recorded(recording.clone());
    w.ask_in(station, &user_name(station), Credentials::method(PeerMethodTls { tls, fragment: FRAGMENT }));
}

/// One station that asks to be let in, with a channel that loses what `lost` says.
fn one(mut lost: impl FnMut(Who, usize) -> bool + 'static) -> World {
    let recording = recording();
    let mut w = tls_world(1, Some(Config::default()), &recording);
    w.passes(move |p| !lost(p.to, p.octets));
    ask_in(&mut w, 0, &recording);
    w.run_until(60);
    w
}

/// What the station and the base station said, with the times from the station's `Admitted` on.
fn told(w: &World) -> (Vec<(Duration, &Event)>, Vec<&authenticator::Event>) {
    let admitted = w.station_events.iter().find(|(_, _, e)| *e == Event::Admitted).map(|(_, at, _)| *at);
    let since = |at: Instant| at.since(admitted.unwrap_or(Instant::ZERO));
    let station = w.station_events.iter().map(|(_, at, e)| (since(*at), e)).collect();
    (station, w.nas_events.iter().map(|(_, _, e)| e).collect())
}

fn has_keys(w: &World) -> bool {
    let station = matches!(w.station_events.last(), Some((_, _, Event::Success { msk: Some(_) })));
    let keyed = |e: &authenticator::Event| matches!(e, authenticator::Event::Keyed { .. });
    station && w.nas_events.iter().filter(|(_, _, e)| keyed(e)).count() == 1
}

#[test]
fn traffic_keys_follow_the_success_of_eap() {
    let w = one(|_, _| false);
    let (station, base) = told(&w);
    let ms = Duration::from_millis;
    // A millisecond each way, and the challenge comes with EAP's success: four messages more.
    assert_eq!(station[0], (ms(0), &Event::Admitted));
    assert!(matches!(station[1], (at, Event::Success { msk: Some(_) }) if at == ms(4)), "{station:?}");
    let order: Vec<bool> = base.iter().map(|e| matches!(e, authenticator::Event::Keyed { .. })).collect();
    assert_eq!(order, [false, true], "{base:?}");
    assert_eq!((w.net[w.nas].counters().keyed, w.net[w.nas].counters().unkeyed), (1, 0));
    let (down, up) = (w.net[w.nas].keying_counters(), w.net[w.stations[0]].keying_counters());
    assert_eq!((down.sent, down.heard, up.sent, up.heard), (3, 2, 2, 3));
    assert_eq!(
        down.octets + up.octets,
        (CHALLENGE + REQUEST + RESPONSE + KEY_REQUEST + KEY_REPLY - 5 * 14) as u64
    );
    // Both sides derive once, make or check each digest, and wrap or unwrap two keys.
    let work = |label: &str| w.work.get(label).copied().unwrap_or(0);
    assert_eq!((work("pkm.derive"), work("pkm.digest"), work("pkm.key")), (2, 10, 4));
}

#[test]
fn without_it_eap_is_the_end() {
    let recording = recording();
    let mut w = tls_world(1, None, &recording);
    ask_in(&mut w, 0, &recording);
    w.run_until(60);
    assert!(matches!(w.outcomes()[..], [Event::Success { msk: Some(_) }]));
    assert_eq!((w.net[w.nas].counters().keyed, w.net[w.nas].keying_counters().sent), (0, 0));
}

#[test]
fn a_message_lost_is_said_again() {
    for (octets, wait) in
        [(CHALLENGE, 1000), (REQUEST, 300), (RESPONSE, 300), (KEY_REQUEST, 1000), (KEY_REPLY, 1000)]
    {
        let mut done = false;
        let w = one(move |_, n| n == octets && !std::mem::replace(&mut done, true));
        assert!(has_keys(&w), "{octets}: {:?}", w.station_events);
        let (station, _) = told(&w);
        let took = station[1].0.as_millis();
        assert!((wait..wait + 10).contains(&took), "{octets}: {took} ms");
        let resent = w.net[w.nas].keying_counters().resent + w.net[w.stations[0]].keying_counters().resent;
        assert!((1..=2).contains(&resent), "{octets}: {resent}");
    }
}

#[test]
fn silence_ends_on_both_sides() {
    // The challenge never arrives: the base station and the station give up after four seconds.
    let w = one(|_, octets| octets == CHALLENGE);
    let (station, base) = told(&w);
    assert_eq!(station[1], (Duration::from_secs(4), &Event::Unkeyed));
    let ended = authenticator::Event::Ended {
        station: StationId::Frame { port: PortId(0), mac: mac(0) },
        cause: EndCause::Unkeyed,
    };
    assert_eq!(base.last(), Some(&&ended));
    assert_eq!((w.net[w.nas].counters().unkeyed, w.net[w.nas].keying_counters().sent), (1, 4));
    assert_eq!(w.net[w.stations[0]].counters().unkeyed, 1);
    // The request for keys never arrives: the base station gives up when a station does.
    let w = one(|_, octets| octets == KEY_REQUEST);
    let (_, base) = told(&w);
    assert_eq!(w.station_events.last().map(|(_, _, e)| e), Some(&Event::Unkeyed));
    assert_eq!(base.last(), Some(&&ended));
    assert_eq!((w.net[w.nas].counters().unkeyed, w.net[w.nas].counters().keyed), (1, 0));
    // The key never arrives: the base station, which has sent it, cannot tell.
    let w = one(|_, octets| octets == KEY_REPLY);
    assert_eq!(w.station_events.last().map(|(_, _, e)| e), Some(&Event::Unkeyed));
    assert_eq!((w.net[w.nas].counters().unkeyed, w.net[w.nas].keying_counters().resent), (0, 3));
}

#[test]
fn a_method_without_keys_gives_none() {
    let mut w = world(1, base_station(Some(Config::default())), &[aaa_config(users(Seed::new(1), 1))]);
    w.ask_in_by_password(0);
    w.run_until(60);
    assert_eq!(w.outcomes(), [Event::Unkeyed]);
    let last = w.nas_events.last().map(|(_, _, e)| e);
    assert!(matches!(last, Some(authenticator::Event::Ended { cause: EndCause::Unkeyed, .. })), "{last:?}");
    assert_eq!(w.net[w.nas].keying_counters().sent, 0);
}

#[test]
fn a_forged_challenge_is_dropped_and_the_true_one_heard() {
    let recording = recording();
    let mut w = tls_world(1, Some(Config::default()), &recording);
    // The true one is lost, so that the station waits for a second.
    let mut done = false;
    w.passes(move |p| p.octets != CHALLENGE || std::mem::replace(&mut done, true));
    ask_in(&mut w, 0, &recording);
    while !w.station_events.iter().any(|(_, _, e)| *e == Event::Admitted) {
        w.run_to(w.now() + Duration::from_millis(1));
    }
    let key = AuthKey::new(&[9; 64], mac(0).0, [2, 0, 0, 0, 0, 1], 0);
    let mut forger = Base::new(Config::default(), key, &mut Seed::new(3).secure("forger", 0), w.now());
    let mut message = Vec::new();
    assert!(forger.poll_transmit(&mut message));
    let frame = [&mac(0).0[..], &[2, 0, 0, 0, 0, 1], &ETHERTYPE_PKM.to_be_bytes(), &message].concat();
    w.inject(Who::Station(0), Input::Frame { port: PortId(0), data: &frame });
    assert_eq!(w.net[w.stations[0]].keying_counters().wrong_digest, 1);
    // Nor does the base station believe it, or open a session for a stranger.
    let frame =
        [&[1, 0x80, 0xc2, 0, 0, 3][..], &mac(9).0, &ETHERTYPE_PKM.to_be_bytes(), &[9, 21, 1]].concat();
    w.inject(Who::Nas(0), Input::Frame { port: PortId(9), data: &frame });
    assert_eq!(w.net[w.nas].counters().unknown_pkm, 1);
    w.run_until(60);
    assert!(has_keys(&w), "{:?}", w.station_events);
}

#[test]
fn many_come_in_over_a_lossy_way_or_end_all_the_same() {
    let recording = recording();
    let n = 60;
    let mut w = tls_world(n, Some(Config::default()), &recording);
    for i in 0..n {
        ask_in(&mut w, i, &recording);
    }
    let mut rng = Seed::new(6).stream("loss", 0);
    w.passes(move |p| {
        let access = matches!(p.to, Who::Station(_)) || matches!(p.from, Who::Station(_));
        !(access && rng.chance(0.05))
    });
    w.run_until(1000);
    let ends = w.station_events.iter().filter(|(_, _, e)| *e != Event::Admitted).count();
    assert_eq!(ends, n, "each attempt ends once");
    let keyed = w.station_events.iter().filter(|(_, _, e)| matches!(e, Event::Success { .. })).count();
    // EAP's success is said once and may be lost; of those who heard it few miss their keys.
    assert!(keyed > n * 8 / 10, "{keyed} of {n}");
    let (down, up) = (w.net[w.nas].keying_counters(), w.net[w.stations[0]].keying_counters());
    assert_eq!((down.wrong_digest, down.replayed, up.wrong_digest, up.replayed), (0, 0, 0, 0));
    let failed = |reason| {
        let is = |e: &authenticator::Event| matches!(e, authenticator::Event::Failed { reason: r, .. } if *r == reason);
        w.nas_events.iter().filter(|(_, _, e)| is(e)).count()
    };
    assert_eq!(failed(FailReason::AaaTimeout), 0);
}

#[test]
fn a_station_that_asks_again_gets_new_keys() {
    let recording = recording();
    let mut w = tls_world(1, Some(Config::default()), &recording);
    for round in 1..=2u64 {
        ask_in(&mut w, 0, &recording);
        w.run_until(30 * round);
        assert_eq!(w.net[w.nas].counters().keyed, round);
    }
    let sums = (w.net[w.nas].keying_counters().sent, w.net[w.stations[0]].keying_counters().sent);
    assert_eq!(sums, (6, 4), "what is over is counted on");
}
