//! EAP between RADIUS and Diameter (RFC 4072, RFC 7155).

use crate::homes::{PASSWORD, server_of};
use crate::world::{NAS, World, address, secret};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::proxy::{self, Accounting, Balance, HomeServer, Pool, Realm, Realms, Route};
use usher_aaa::{Config, Event, Method, Reason};
use usher_core::{Duration, WallTime};
use usher_crypto::tls::{
    ClientConfig, ClientOptions, Roots, ServerConfig, ServerOptions, Version, WallClock, fixtures,
};
use usher_diameter::codes::application;
use usher_diameter::node;
use usher_diameter::peer::capabilities::Application;
use usher_eap::method::PeerOffer;
use usher_eap::method::tls::{PeerMethodTls, PeerTls, ServerMethodTls, ServerTls};
use usher_eap::peer;
use usher_radius::attribute::kind;
use usher_radius::{Attributes, Code};

pub(crate) const NAME: &str = "ann@example.org";

pub(crate) fn tls(config: &mut Config) {
    let tls = ServerConfig::new(ServerOptions {
        versions: Version::Tls12.into(),
        credentials: fixtures::server(2),
        client_roots: Some(Roots::from_der([fixtures::root()])),
        resumption: None,
        clock: WallClock::at(fixtures::WALL_TIME),
        key_log: None,
    });
    config.methods = vec![Method::EapTls, Method::Pap];
    config.tls = Some(Arc::new(ServerMethodTls { tls: ServerTls::Real(tls.unwrap()), fragment: 1000 }));
}
pub(crate) fn station() -> peer::Config {
    let tls = ClientConfig::new(ClientOptions {
        versions: Version::Tls12.into(),
        credentials: Some(fixtures::client(2)),
        roots: Roots::from_der([fixtures::root()]),
        server_name: Some(fixtures::SERVER_NAME.into()),
        resumption: None,
        clock: WallClock::at(fixtures::WALL_TIME),
        key_log: None,
    });
    let tls = PeerTls::Real(tls.unwrap(), 0);
    let offer: Box<dyn PeerOffer> = Box::new(PeerMethodTls { tls, fragment: 1000 });
    peer::Config {
        identity: NAME.as_bytes().to_vec(),
        methods: [offer].into(),
        timeout: Duration::MAX,
        wall: WallTime::from_unix_secs(0),
    }
}

fn diameter(n: usize, realm: &str) -> node::Config {
    let applications = [Application::auth(application::EAP), Application::auth(application::NASREQ)];
    let mut node = node::Config::new(&format!("aaa{n}.{realm}"), realm, &applications);
    node.local.addresses.push(address(n));
    node.realms.push("*".into());
    node
}
pub(crate) fn realms(route: Route) -> Realms {
    Realms::new(vec![Realm::new("example.org", route)], None).unwrap()
}
/// The first server translates to the second's Diameter.
pub(crate) fn front(connects: bool) -> Config {
    let mut config = server_of(&["bob"], NAS, "nas");
    let route = Route::Diameter { realm: "example.org".into() };
    config.proxy = Some(proxy::Config::new(realms(route), Vec::new(), Vec::new()));
    let node = diameter(0, "visited.example");
    config.diameter = Some(if connects {
        node.connect_to("aaa1.example.org", SocketAddr::new(address(1), 3868))
    } else {
        node
    });
    config
}
pub(crate) fn behind() -> Config {
    let mut config = server_of(&[NAME], address(0), "home");
    config.diameter = Some(diameter(1, "example.org").accept("aaa0.visited.example"));
    tls(&mut config);
    config
}

fn let_in(w: &mut World) -> usize {
    let (reply, event, rounds) = w.eap(station(), |_, _| {});
    let reply = reply.unwrap();
    let Some(peer::Event::Success { keys: Some(keys) }) = event else { panic!("{event:?}") };
    assert_eq!(reply.code, Code::ACCESS_ACCEPT);
    assert_eq!(reply.mppe_keys().unwrap().unwrap().msk(), Some(keys.msk), "both ends have the key");
    assert_eq!(reply.attributes.get_u32(kind::SESSION_TIMEOUT), Some(600));
    rounds
}

#[test]
fn eap_by_radius_is_answered_by_diameter() {
    let mut w = World::new(vec![front(true), behind()]);
    w.until(1);
    let rounds = let_in(&mut w);
    assert!(rounds > 4, "{rounds}");
    assert_eq!((w[1].counters().accepted_eap_tls, w.datagrams()[1]), (1, 0));
    assert_eq!(w[0].counters().accepted_elsewhere, 1);
    assert_eq!(w[0].diameter_counters().unwrap().total(), 0);
    assert_eq!(w[1].diameter_counters().unwrap().total(), 0);
}

#[test]
fn who_is_turned_away_by_diameter_is_turned_away() {
    let mut w = World::new(vec![front(true), behind()]);
    w.until(1);
    let mut nobody = station();
    nobody.identity = b"nobody@example.org".to_vec();
    // A name that nobody has goes the way of any other: the handshake is made, and then refused. The peer takes no
    // Failure after it (RFC 3748 §4.2).
    let (reply, event, _) = w.eap(nobody, |_, _| {});
    let reply = reply.unwrap();
    assert_eq!((reply.code, event), (Code::ACCESS_REJECT, None));
    let mut eap = Vec::new();
    assert!(reply.attributes.eap(&mut eap));
    assert_eq!((eap[0], eap.len()), (4, 4));
    assert_eq!(w[0].counters().rejected_elsewhere, 1);
    // A proof other than EAP is not translated, and a State that names no conversation leads nowhere.
    assert_eq!(w.pap(NAME, PASSWORD).unwrap().code, Code::ACCESS_REJECT);
    let mut a = Attributes::new();
    a.push_text(kind::USER_NAME, NAME).unwrap().push_bytes(kind::STATE, &[7; 16]).unwrap();
    a.push_eap(&[2, 9, 0, 6, 13, 0]);
    assert_eq!(w.ask(Code::ACCESS_REQUEST, a).unwrap().code, Code::ACCESS_REJECT);
    let c = w[0].counters();
    assert_eq!((c.no_proof, c.unknown_session), (1, 1));
}

#[test]
fn without_a_diameter_peer_there_is_silence() {
    let mut w = World::new(vec![front(false)]);
    let (reply, ..) = w.eap(station(), |_, _| {});
    assert!(reply.is_none());
    assert_eq!(w[0].counters().proxy_unanswered, 1);
}

#[test]
fn eap_goes_from_radius_to_diameter_and_to_radius_again() {
    let mut middle = behind();
    let home = HomeServer::new("home", SocketAddr::new(address(2), 1812), secret("home"));
    let pool = Pool { name: "homes".into(), servers: vec![0], balance: Balance::Failover };
    let route = Route::Pool { pool: 0, accounting: Accounting::Local };
    middle.proxy = Some(proxy::Config::new(realms(route), vec![home], vec![pool]));
    let mut last = server_of(&[NAME], address(1), "home");
    tls(&mut last);
    let mut w = World::new(vec![front(true), middle, last]);
    w.until(1);
    let_in(&mut w);
    assert_eq!((w[2].counters().accepted_eap_tls, w[1].counters().sessions), (1, 0));
    assert_eq!(w[1].counters().accepted_elsewhere, 1);
    w.off(2, true);
    let (reply, ..) = w.eap(station(), |_, _| {});
    assert!(reply.is_none());
    w.until(18);
    assert_eq!(w[1].counters().proxy_unanswered, 1);
    assert_eq!(w[0].counters().proxy_unanswered, 1, "3002 is no verdict");
}

/// Realms hold for who asks by Diameter as for who asks by RADIUS: a user of this server's own is in one of them.
#[test]
fn a_realm_that_is_not_ours_is_not_decided_here_for_a_diameter_peer() {
    let elsewhere = Route::Diameter { realm: "example.org".into() };
    for (route, refused) in [(Route::Refuse, 1), (elsewhere, 0)] {
        let mut home = behind();
        home.proxy = Some(proxy::Config::new(realms(route), Vec::new(), Vec::new()));
        let mut w = World::new(vec![front(true), home]);
        w.until(1);
        let (reply, ..) = w.eap(station(), |_, _| {});
        assert!(reply.is_none_or(|reply| reply.code == Code::ACCESS_REJECT));
        let c = w[1].counters();
        assert_eq!((c.sessions, c.proxy_refused, c.proxy_undeliverable), (0, refused, 1 - refused));
        let end = |(s, event): &&(usize, Event)| *s == 1 && !matches!(event, Event::DiameterPeer { .. });
        let ends: Vec<_> = w.events.iter().filter(end).map(|(_, e)| e).collect();
        match (&ends[..], refused) {
            ([Event::Rejected(login)], 1) => assert_eq!(login.reason, Some(Reason::NoRealm)),
            ([Event::Undecided(login)], _) => {
                assert_eq!((&login.name[..], login.reason), (NAME.as_bytes(), Some(Reason::Undeliverable)));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(w[1].diameter_counters().unwrap().total(), 0);
    }
}
