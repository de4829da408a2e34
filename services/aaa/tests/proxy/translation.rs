//! EAP between RADIUS and Diameter (RFC 4072, RFC 7155).

use crate::homes::{PASSWORD, server_of};
use crate::world::{NAS, ProxyTestNetwork, secret_for_name, server_address};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::proxy::{
    self, AccountingMode, HomeServer, HomeServerPool, PoolBalance, Realm, RealmTable, RealmTarget,
};
use usher_aaa::{AaaServerConfig, AaaServerEvent, AuthMethod, RejectCause};
use usher_core::{Duration, WallTime};
use usher_crypto::tls::{
    ClientConfig, ServerConfig, SharedWallClock, TlsClientOptions, TlsServerOptions, TlsVersion, TrustRoots,
    fixtures,
};
use usher_diameter::codes::application;
use usher_diameter::node;
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_eap::method::PeerMethodFactory;
use usher_eap::method::tls::{EapTlsPeerFactory, EapTlsServerFactory, PeerTlsBackend, ServerTlsBackend};
use usher_eap::peer;
use usher_radius::attribute::kind;
use usher_radius::{AttributeList, PacketCode};

pub(crate) const NAME: &str = "ann@example.org";

pub(crate) fn enable_tls(config: &mut AaaServerConfig) {
    let tls = ServerConfig::new(TlsServerOptions {
        versions: TlsVersion::Tls12.into(),
        credentials: fixtures::server_credentials(2),
        client_roots: Some(TrustRoots::from_der([fixtures::root_certificate()])),
        resumption: None,
        clock: SharedWallClock::from_time(fixtures::WALL_TIME),
        key_log: None,
    });
    config.methods = vec![AuthMethod::EapTls, AuthMethod::Pap];
    config.tls =
        Some(Arc::new(EapTlsServerFactory { tls: ServerTlsBackend::Real(tls.unwrap()), fragment: 1000 }));
}
pub(crate) fn tls_station() -> peer::EapPeerConfig {
    let tls = ClientConfig::new(TlsClientOptions {
        versions: TlsVersion::Tls12.into(),
        credentials: Some(fixtures::client_credentials(2)),
        roots: TrustRoots::from_der([fixtures::root_certificate()]),
        server_name: Some(fixtures::SERVER_NAME.into()),
        resumption: None,
        clock: SharedWallClock::from_time(fixtures::WALL_TIME),
        key_log: None,
    });
    let tls = PeerTlsBackend::Real(tls.unwrap(), 0);
    let offer: Box<dyn PeerMethodFactory> = Box::new(EapTlsPeerFactory { tls, fragment: 1000 });
    peer::EapPeerConfig {
        identity: NAME.as_bytes().to_vec(),
        methods: [offer].into(),
        timeout: Duration::MAX,
        wall: WallTime::from_unix_secs(0),
    }
}

fn diameter_node(n: usize, realm: &str) -> node::DiameterNodeConfig {
    let applications = [
        DiameterApplication::for_authentication(application::EAP),
        DiameterApplication::for_authentication(application::NASREQ),
    ];
    let mut node = node::DiameterNodeConfig::new(&format!("aaa{n}.{realm}"), realm, &applications);
    node.local.addresses.push(server_address(n));
    node.realms.push("*".into());
    node
}
pub(crate) fn realm_table(route: RealmTarget) -> RealmTable {
    RealmTable::new(vec![Realm::new("example.org", route)], None).unwrap()
}
/// The first server translates to the Diameter of the second.
pub(crate) fn front_config(connects: bool) -> AaaServerConfig {
    let mut config = server_of(&["bob"], NAS, "nas");
    let route = RealmTarget::Diameter { realm: "example.org".into() };
    config.proxy = Some(proxy::ProxyConfig::new(realm_table(route), Vec::new(), Vec::new()));
    let node = diameter_node(0, "visited.example");
    config.diameter = Some(if connects {
        node.connect_to("aaa1.example.org", SocketAddr::new(server_address(1), 3868))
    } else {
        node
    });
    config
}
pub(crate) fn home_config() -> AaaServerConfig {
    let mut config = server_of(&[NAME], server_address(0), "home");
    config.diameter = Some(diameter_node(1, "example.org").accept_from("aaa0.visited.example"));
    enable_tls(&mut config);
    config
}

fn let_in(w: &mut ProxyTestNetwork) -> usize {
    let (reply, event, rounds) = w.log_in_eap(tls_station(), |_, _| {});
    let reply = reply.unwrap();
    let Some(peer::EapPeerEvent::Success { keys: Some(keys) }) = event else { panic!("{event:?}") };
    assert_eq!(reply.code, PacketCode::ACCESS_ACCEPT);
    assert_eq!(reply.mppe_keys().unwrap().unwrap().msk(), Some(keys.msk), "both ends have the key");
    assert_eq!(reply.attributes.get_u32(kind::SESSION_TIMEOUT), Some(600));
    rounds
}

#[test]
fn eap_by_radius_is_answered_by_diameter() {
    let mut w = ProxyTestNetwork::new(vec![front_config(true), home_config()]);
    w.run_until_second(1);
    let rounds = let_in(&mut w);
    assert!(rounds > 4, "{rounds}");
    assert_eq!((w[1].counters().accepted_eap_tls, w.datagram_counts()[1]), (1, 0));
    assert_eq!(w[0].counters().accepted_elsewhere, 1);
    assert_eq!(w[0].diameter_counters().unwrap().total(), 0);
    assert_eq!(w[1].diameter_counters().unwrap().total(), 0);
}

#[test]
fn who_is_turned_away_by_diameter_is_turned_away() {
    let mut w = ProxyTestNetwork::new(vec![front_config(true), home_config()]);
    w.run_until_second(1);
    let mut nobody = tls_station();
    nobody.identity = b"nobody@example.org".to_vec();
    // An unknown name gets the same dialogue as any other: a handshake, and then a reject. The peer ignores a
    // Failure after it (RFC 3748 §4.2).
    let (reply, event, _) = w.log_in_eap(nobody, |_, _| {});
    let reply = reply.unwrap();
    assert_eq!((reply.code, event), (PacketCode::ACCESS_REJECT, None));
    let mut eap = Vec::new();
    assert!(reply.attributes.read_eap_packet(&mut eap));
    assert_eq!((eap[0], eap.len()), (4, 4));
    assert_eq!(w[0].counters().rejected_elsewhere, 1);
    // Only EAP is translated, and an unknown State is rejected.
    assert_eq!(w.log_in_pap(NAME, PASSWORD).unwrap().code, PacketCode::ACCESS_REJECT);
    let mut a = AttributeList::new();
    a.push_text(kind::USER_NAME, NAME).unwrap().push_bytes(kind::STATE, &[7; 16]).unwrap();
    a.push_eap(&[2, 9, 0, 6, 13, 0]);
    assert_eq!(w.request_reply(PacketCode::ACCESS_REQUEST, a).unwrap().code, PacketCode::ACCESS_REJECT);
    let c = w[0].counters();
    assert_eq!((c.no_proof, c.unknown_session), (1, 1));
}

#[test]
fn without_a_diameter_peer_there_is_silence() {
    let mut w = ProxyTestNetwork::new(vec![front_config(false)]);
    let (reply, ..) = w.log_in_eap(tls_station(), |_, _| {});
    assert!(reply.is_none());
    assert_eq!(w[0].counters().proxy_unanswered, 1);
}

#[test]
fn eap_goes_from_radius_to_diameter_and_to_radius_again() {
    let mut middle = home_config();
    let home = HomeServer::new("home", SocketAddr::new(server_address(2), 1812), secret_for_name("home"));
    let pool = HomeServerPool { name: "homes".into(), servers: vec![0], balance: PoolBalance::Failover };
    let route = RealmTarget::Pool { pool: 0, accounting: AccountingMode::Local };
    middle.proxy = Some(proxy::ProxyConfig::new(realm_table(route), vec![home], vec![pool]));
    let mut last = server_of(&[NAME], server_address(1), "home");
    enable_tls(&mut last);
    let mut w = ProxyTestNetwork::new(vec![front_config(true), middle, last]);
    w.run_until_second(1);
    let_in(&mut w);
    assert_eq!((w[2].counters().accepted_eap_tls, w[1].counters().sessions), (1, 0));
    assert_eq!(w[1].counters().accepted_elsewhere, 1);
    w.set_silent(2, true);
    let (reply, ..) = w.log_in_eap(tls_station(), |_, _| {});
    assert!(reply.is_none());
    w.run_until_second(18);
    assert_eq!(w[1].counters().proxy_unanswered, 1);
    assert_eq!(w[0].counters().proxy_unanswered, 1, "3002 is no verdict");
}

/// Realms apply to Diameter requests as to RADIUS requests. This server's own user is in one of them.
#[test]
fn a_foreign_realm_of_a_diameter_peer_is_not_decided_here() {
    let elsewhere = RealmTarget::Diameter { realm: "example.org".into() };
    for (route, refused) in [(RealmTarget::Refuse, 1), (elsewhere, 0)] {
        let mut home = home_config();
        home.proxy = Some(proxy::ProxyConfig::new(realm_table(route), Vec::new(), Vec::new()));
        let mut w = ProxyTestNetwork::new(vec![front_config(true), home]);
        w.run_until_second(1);
        let (reply, ..) = w.log_in_eap(tls_station(), |_, _| {});
        assert!(reply.is_none_or(|reply| reply.code == PacketCode::ACCESS_REJECT));
        let c = w[1].counters();
        assert_eq!((c.sessions, c.proxy_refused, c.proxy_undeliverable), (0, refused, 1 - refused));
        let end = |(s, event): &&(usize, AaaServerEvent)| {
            *s == 1 && !matches!(event, AaaServerEvent::DiameterPeer { .. })
        };
        let ends: Vec<_> = w.events.iter().filter(end).map(|(_, e)| e).collect();
        match (&ends[..], refused) {
            ([AaaServerEvent::Rejected(login)], 1) => assert_eq!(login.reason, Some(RejectCause::NoRealm)),
            ([AaaServerEvent::Undecided(login)], _) => {
                assert_eq!(
                    (&login.name[..], login.reason),
                    (NAME.as_bytes(), Some(RejectCause::Undeliverable))
                );
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(w[1].diameter_counters().unwrap().total(), 0);
    }
}
