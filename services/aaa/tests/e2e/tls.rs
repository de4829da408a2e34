//! EAP-TLS, real and recorded, over RADIUS and Diameter.

use crate::build::{
    aaa_config, diameter_nas, diameter_server, radius_nas, test_network, test_users, user_name,
};
use crate::keyed::pairs_of_keys;
use crate::world::{AaaTestNetwork, NetworkHost};
use std::sync::Arc;
use usher_aaa::AuthMethod;
use usher_core::Seed;
use usher_crypto::tls::{
    ClientConfig, ServerConfig, SharedWallClock, TlsClientOptions, TlsCredentials, TlsServerOptions,
    TlsVersion, TrustRoots, fixtures, record_handshake,
};
use usher_eap::method::tls::{EapTlsPeerFactory, EapTlsServerFactory, PeerTlsBackend, ServerTlsBackend};
use usher_nas::station::{self, EapCredentials};

const CHAIN: u8 = 3;
const FRAGMENT: usize = 1024;

pub(crate) fn tls_client_config(version: TlsVersion, credentials: TlsCredentials) -> ClientConfig {
    ClientConfig::new(TlsClientOptions {
        versions: version.into(),
        credentials: Some(credentials),
        roots: TrustRoots::from_der([fixtures::root_certificate()]),
        server_name: Some(fixtures::SERVER_NAME.into()),
        resumption: None,
        clock: SharedWallClock::from_time(fixtures::WALL_TIME),
        key_log: None,
    })
    .unwrap()
}

pub(crate) fn tls_server_config(version: TlsVersion) -> ServerConfig {
    ServerConfig::new(TlsServerOptions {
        versions: version.into(),
        credentials: fixtures::server_credentials(CHAIN),
        client_roots: Some(TrustRoots::from_der([fixtures::root_certificate()])),
        resumption: None,
        clock: SharedWallClock::from_time(fixtures::WALL_TIME),
        key_log: None,
    })
    .unwrap()
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum AaaProtocol {
    Radius,
    Diameter,
}

fn tls_world(stations: usize, carrier: AaaProtocol, tls: ServerTlsBackend) -> AaaTestNetwork {
    let users = test_users(Seed::new(1), stations);
    let (nas, mut config) = match carrier {
        AaaProtocol::Radius => (radius_nas(1), aaa_config(users)),
        AaaProtocol::Diameter => (diameter_nas(1), diameter_server(0, users)),
    };
    config.methods = vec![AuthMethod::EapTls];
    config.tls = Some(Arc::new(EapTlsServerFactory { tls, fragment: FRAGMENT }));
    let mut w = test_network(stations, nas, &[config]);
    w.run_until(1);
    w.reset_packet_numbers();
    w
}

fn tls_credentials(tls: PeerTlsBackend) -> EapCredentials {
    EapCredentials::from_method(EapTlsPeerFactory { tls, fragment: FRAGMENT })
}

/// Returns a run's observable properties: lengths on the wire, work, rounds, time.
fn observe_run(
    carrier: AaaProtocol,
    version: TlsVersion,
    recorded: bool,
) -> (Vec<usize>, Vec<(&'static str, u32)>, u16) {
    let (client, server) =
        (tls_client_config(version, fixtures::client_credentials(CHAIN)), tls_server_config(version));
    let (at_peer, at_server) = if recorded {
        let recording = Arc::new(record_handshake(&client, &server).unwrap());
        (PeerTlsBackend::Recorded(recording.clone()), ServerTlsBackend::Recorded(recording))
    } else {
        (PeerTlsBackend::Real(client, 0), ServerTlsBackend::Real(server))
    };
    let mut w = tls_world(1, carrier, at_server);
    w.work.clear();
    w.start_login(0, &user_name(0), tls_credentials(at_peer));
    let lengths = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = lengths.clone();
    w.set_packet_filter(move |p| {
        seen.borrow_mut().push(p.octets);
        true
    });
    w.run_until(2);
    let pairs = pairs_of_keys(&w);
    assert_eq!(pairs.len(), 1, "{carrier:?} {version:?} {recorded}: {:?}", w.station_events);
    assert_eq!(pairs[0].0, pairs[0].1);
    assert_ne!(pairs[0].0, [0; 64]);
    assert_eq!(w.net[w.servers[0]].counters().accepted_eap_tls, 1);
    let rounds = w.nas_events.iter().find_map(|(_, _, e)| match e {
        usher_nas::authenticator::AuthenticatorEvent::Authenticated(login) => Some(login.rounds),
        _ => None,
    });
    let lengths = lengths.borrow().clone();
    (lengths, w.work.into_iter().collect(), rounds.unwrap())
}

#[test]
fn keys_are_equal_and_recorded_handshakes_look_like_real_ones() {
    for carrier in [AaaProtocol::Radius, AaaProtocol::Diameter] {
        for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
            let real = observe_run(carrier, version, false);
            let recorded = observe_run(carrier, version, true);
            assert_eq!(real, recorded, "{carrier:?} {version:?}");
            assert!(real.1.contains(&("tls.sign", 2)), "{:?}", real.1);
            assert!(real.2 > 8);
        }
    }
}

#[test]
fn a_certificate_of_a_foreign_authority_admits_nobody() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let mut w = tls_world(1, AaaProtocol::Radius, ServerTlsBackend::Real(tls_server_config(version)));
        let config = tls_client_config(version, fixtures::untrusted_client_credentials());
        w.start_login(0, &user_name(0), tls_credentials(PeerTlsBackend::Real(config, 0)));
        w.run_until(2);
        assert_eq!(w.station_outcomes(), [station::StationEvent::Failure], "{version:?}");
        assert_eq!(w.net[w.servers[0]].counters().rejected_tls, 1);
    }
}

#[test]
fn many_recorded_handshakes_interleave_on_a_lossy_way() {
    let (client, server) = (
        tls_client_config(TlsVersion::Tls13, fixtures::client_credentials(CHAIN)),
        tls_server_config(TlsVersion::Tls13),
    );
    let recording = Arc::new(record_handshake(&client, &server).unwrap());
    let n = 200;
    let mut w = tls_world(n, AaaProtocol::Radius, ServerTlsBackend::Recorded(recording.clone()));
    for i in 0..n {
        w.start_login(i, &user_name(i), tls_credentials(PeerTlsBackend::Recorded(recording.clone())));
    }
    let mut rng = Seed::new(6).derive_rng("loss", 0);
    w.set_packet_filter(move |p| {
        let access = matches!(p.to, NetworkHost::Station(_)) || matches!(p.from, NetworkHost::Station(_));
        access || !rng.sample_bool(0.05)
    });
    w.run_until(120);
    let pairs = pairs_of_keys(&w);
    assert_eq!(pairs.len(), n);
    assert!(pairs.iter().all(|(station, nas)| station == nas));
    assert!(w.net[w.nas].radius_counters().unwrap().retransmissions > 50);
    assert_eq!((w.net[w.nas].active_session_count(), w.net[w.servers[0]].half_open()), (0, 0));
}

#[test]
fn a_diameter_handshake_that_loses_its_server_starts_elsewhere() {
    let (client, server) = (
        tls_client_config(TlsVersion::Tls12, fixtures::client_credentials(CHAIN)),
        tls_server_config(TlsVersion::Tls12),
    );
    let recording = Arc::new(record_handshake(&client, &server).unwrap());
    let users = test_users(Seed::new(1), 1);
    let configs: Vec<_> = (0..2)
        .map(|i| {
            let mut config = diameter_server(i, users.clone());
            config.methods = vec![AuthMethod::EapTls];
            let tls = ServerTlsBackend::Recorded(recording.clone());
            config.tls = Some(Arc::new(EapTlsServerFactory { tls, fragment: FRAGMENT }));
            config
        })
        .collect();
    let mut nas = diameter_nas(2);
    nas.quiet_period = usher_core::Duration::ZERO;
    let mut w = test_network(1, nas, &configs);
    w.run_until(1);
    let mut rounds = 0;
    w.set_packet_filter(move |p| {
        rounds += usize::from(p.to == NetworkHost::Server(0));
        p.to != NetworkHost::Server(0) || rounds < 4
    });
    w.start_login(0, &user_name(0), tls_credentials(PeerTlsBackend::Recorded(recording.clone())));
    w.run_until(2);
    w.switch_off(0);
    w.run_until(70);
    // RFC 4137 figure 3: during a method a forged Failure is ignored, and the station times out.
    assert_eq!(w.station_outcomes(), [station::StationEvent::Timeout]);
    assert_eq!(w.net[w.nas].counters().aaa_timeouts, 1);
    w.start_login(0, &user_name(0), tls_credentials(PeerTlsBackend::Recorded(recording)));
    w.run_until(72);
    assert_eq!(pairs_of_keys(&w).len(), 1);
    assert_eq!(w.net[w.servers[1]].counters().accepted_eap_tls, 1);
}
