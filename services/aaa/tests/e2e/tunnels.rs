//! Methods that ask for a password within EAP and within tunnels, over RADIUS.

use crate::build::{PASSWORD, aaa_config, radius_nas, secret, user_name, users, world};
use crate::tls::{client, server};
use crate::world::World;
use std::sync::Arc;
use usher_aaa::proxy::{self, Accounting, Balance, HomeServer, Pool, Realm, Realms, Route};
use usher_aaa::{Config, Event, Login, Method, Reason, User, UserSource, Users};
use usher_core::Seed;
use usher_crypto::tls::{
    ClientConfig, ClientOptions, Resumption, Roots, ServerConfig, ServerOptions, Version, WallClock, fixtures,
};
use usher_eap::method::mschapv2::Account;
use usher_eap::method::peap::{Cryptobinding, PeerMethodPeap, ServerMethodPeap};
use usher_eap::method::tls::{PeerTls, ServerTls};
use usher_eap::method::ttls::{PeerMethodTtls, Proof, ServerMethodTtls};
use usher_eap::method::{Inner, PeerOffer, gtc};
use usher_eap::packet::Type;
use usher_nas::station::{self, Credentials};

pub(crate) const ANONYMOUS: &[u8] = b"anonymous@example.org";

fn tunnels(version: Version) -> World {
    world(1, radius_nas(1), &[config(server(version))])
}

pub(crate) fn config(server: ServerConfig) -> Config {
    let mut config = aaa_config(users(Seed::new(1), 1));
    config.methods = vec![Method::Peap, Method::Ttls, Method::EapMsChapV2, Method::EapGtc];
    let tls = || ServerTls::Real(server.clone());
    config.peap = Some(Arc::new(ServerMethodPeap {
        tls: tls(),
        fragment: 1024,
        inner: [Type::MSCHAPV2, Type::GTC].into(),
        cryptobinding: Cryptobinding::Required,
    }));
    config.ttls = Some(Arc::new(ServerMethodTtls {
        tls: tls(),
        fragment: 1024,
        inner: [Inner::Pap, Inner::Chap, Inner::MsChapV2].into(),
    }));
    config
}

/// Tunnels for a user whom these methods alone may admit.
fn restricted(methods: &[Method]) -> World {
    let mut config = config(server(Version::Tls13));
    let mut all = Users::new(&mut Seed::new(1).secure("users", 0));
    all.insert(&user_name(0), User { methods: methods.to_vec(), ..User::with_password(PASSWORD) });
    config.users = UserSource::Memory(Arc::new(all));
    world(1, radius_nas(1), &[config])
}

pub(crate) fn login(mut w: World, name: &[u8], credentials: Credentials) -> (station::Event, Box<Login>) {
    w.ask_in(0, name, credentials);
    w.run_until(20);
    let [outcome] = &w.outcomes()[..] else { panic!("{:?}", w.outcomes()) };
    let login = w.server_events.iter().find_map(|(_, _, e)| match e {
        Event::Accepted(login) | Event::Rejected(login) => Some(login.clone()),
        _ => None,
    });
    (outcome.clone(), login.expect("a login was decided"))
}

pub(crate) fn peap(version: Version, user: &[u8], password: &[u8]) -> Credentials {
    let inner: [Box<dyn PeerOffer>; 1] = [Box::new(Account::new(user, password))];
    Credentials::method(PeerMethodPeap {
        tls: PeerTls::Real(client(version, fixtures::client(2)), 0),
        fragment: 1024,
        identity: user.to_vec(),
        inner: Arc::new(inner),
    })
}

pub(crate) fn ttls(version: Version, user: &[u8], password: &[u8]) -> Credentials {
    Credentials::method(PeerMethodTtls {
        tls: PeerTls::Real(client(version, fixtures::client(2)), 0),
        fragment: 1024,
        identity: user.to_vec(),
        proof: Proof::Pap(password[..].into()),
    })
}

/// PEAP of a peer that wants another server, and ends the handshake.
pub(crate) fn distrustful() -> Credentials {
    let tls = ClientConfig::new(ClientOptions {
        versions: Version::Tls13.into(),
        credentials: None,
        roots: Roots::from_der([fixtures::root()]),
        server_name: Some("elsewhere.example".into()),
        resumption: None,
        clock: WallClock::at(fixtures::WALL_TIME),
        key_log: None,
    });
    Credentials::method(PeerMethodPeap {
        tls: PeerTls::Real(tls.unwrap(), 0),
        fragment: 1024,
        identity: user_name(0),
        inner: Arc::new([Box::new(Account::new(&user_name(0), PASSWORD)) as Box<dyn PeerOffer>]),
    })
}

#[test]
fn who_is_anonymous_outside_is_known_inside() {
    let user = user_name(0);
    for version in [Version::Tls12, Version::Tls13] {
        for (credentials, method, inner) in [
            (peap(version, &user, PASSWORD), Method::Peap, Inner::Eap(Type::MSCHAPV2)),
            (ttls(version, &user, PASSWORD), Method::Ttls, Inner::Pap),
        ] {
            let (outcome, login) = login(tunnels(version), ANONYMOUS, credentials);
            assert!(matches!(outcome, station::Event::Success { msk: Some(_) }), "{outcome:?} {login:?}");
            assert_eq!((login.method, login.inner_method, login.reason), (Some(method), Some(inner), None));
            assert_eq!((&login.name[..], login.inner.as_deref()), (ANONYMOUS, Some(&user[..])));
        }
    }
}

/// What realms say holds of names inside tunnels, too.
#[test]
fn a_name_inside_of_a_realm_that_is_not_ours_is_turned_away() {
    let version = Version::Tls13;
    for (name, reason) in [
        ("ann@gone.example", Some(Reason::NoRealm)),
        ("ann@HOTEL.example", Some(Reason::NoRealm)),
        ("ann@gone.example@here.example", Some(Reason::NoRealm)),
        ("ann@here.example", None),
        // It is of the realm outside.
        ("ann", None),
    ] {
        for credentials in [peap, ttls].map(|make| make(version, name.as_bytes(), PASSWORD)) {
            let mut config = config(server(version));
            let mut all = Users::new(&mut Seed::new(1).secure("users", 0));
            all.insert(name.as_bytes(), User::with_password(PASSWORD));
            config.users = UserSource::Memory(Arc::new(all));
            let elsewhere = Route::Pool { pool: 0, accounting: Accounting::Forward };
            let realms = vec![
                Realm::new("gone.example", Route::Refuse),
                Realm::new("hotel.example", elsewhere),
                Realm { strip: true, ..Realm::new("here.example", Route::Local) },
                Realm::new("", Route::Refuse),
            ];
            let home = HomeServer::new("hotel", "203.0.113.9:1812".parse().unwrap(), secret());
            let realms = Realms::new(realms, None).unwrap();
            config.proxy = Some(proxy::Config::new(
                realms,
                vec![home],
                vec![Pool { name: "hotel".into(), servers: vec![0], balance: Balance::default() }],
            ));
            let world = world(1, radius_nas(1), &[config]);
            let (outcome, login) = login(world, ANONYMOUS, credentials);
            assert_eq!(login.reason, reason, "{name} {outcome:?}");
        }
    }
}

#[test]
fn a_wrong_password_or_nobody_inside_is_turned_away() {
    let version = Version::Tls13;
    for (user, password, reason) in [
        (user_name(0), &b"wrong"[..], Reason::WrongPassword),
        (b"nobody".to_vec(), PASSWORD, Reason::UnknownUser),
    ] {
        for credentials in [peap(version, &user, password), ttls(version, &user, password)] {
            let (outcome, login) = login(tunnels(version), ANONYMOUS, credentials);
            assert_eq!((outcome, login.reason), (station::Event::Failure, Some(reason)), "{login:?}");
            assert_eq!(login.inner.as_deref(), Some(&user[..]));
        }
    }
}

#[test]
fn passwords_within_eap_alone() {
    let user = user_name(0);
    let mschap = || Credentials::method(Account::new(&user, PASSWORD));
    let (outcome, decided) = login(tunnels(Version::Tls12), &user, mschap());
    assert!(matches!(outcome, station::Event::Success { msk: Some(_) }), "{outcome:?}");
    assert_eq!(decided.method, Some(Method::EapMsChapV2));
    let (outcome, decided) =
        login(tunnels(Version::Tls12), &user, Credentials::method(gtc::Token::new(PASSWORD)));
    assert_eq!((outcome, decided.method), (station::Event::Success { msk: None }, Some(Method::EapGtc)));
}

#[test]
fn what_may_admit_a_user_holds_inside_tunnels_too() {
    let (user, version) = (user_name(0), Version::Tls13);
    let by = |methods: &[Method], credentials: Credentials| {
        login(restricted(methods), ANONYMOUS, credentials).1.reason
    };
    let (by_peap, by_ttls) = (|| peap(version, &user, PASSWORD), || ttls(version, &user, PASSWORD));
    // Either tunnel, with anything inside.
    let both = [Method::Peap, Method::Ttls];
    assert_eq!((by(&both, by_peap()), by(&both, by_ttls())), (None, None));
    // One tunnel is not the other.
    assert_eq!(
        (by(&[Method::Peap], by_peap()), by(&[Method::Peap], by_ttls())),
        (None, Some(Reason::MethodForbidden))
    );
    assert_eq!(
        (by(&[Method::Ttls], by_peap()), by(&[Method::Ttls], by_ttls())),
        (Some(Reason::MethodForbidden), None)
    );
    // And inside, no other than those that are named: the proof fails, whatever the password.
    let forbidden = Some(Reason::MethodForbidden);
    let mschap = [Method::Peap, Method::Ttls, Method::EapMsChapV2];
    assert_eq!((by(&mschap, by_peap()), by(&mschap, by_ttls())), (None, forbidden));
    let pap = [Method::Peap, Method::Ttls, Method::Pap];
    assert_eq!((by(&pap, by_peap()), by(&pap, by_ttls())), (forbidden, None));
    assert_eq!(by(&[Method::Pap], by_ttls()), Some(Reason::MethodForbidden));
}

#[test]
fn a_login_says_whether_it_took_up_an_earlier_session() {
    for version in [Version::Tls12, Version::Tls13] {
        let resumption = Some(Resumption::default());
        let server = ServerConfig::new(ServerOptions {
            versions: version.into(),
            credentials: fixtures::server(2),
            client_roots: None,
            resumption,
            clock: WallClock::at(fixtures::WALL_TIME),
            key_log: None,
        });
        let client = ClientConfig::new(ClientOptions {
            versions: version.into(),
            credentials: None,
            roots: Roots::from_der([fixtures::root()]),
            server_name: Some(fixtures::SERVER_NAME.into()),
            resumption,
            clock: WallClock::at(fixtures::WALL_TIME),
            key_log: None,
        })
        .unwrap();
        let mut w = world(1, radius_nas(1), &[config(server.unwrap())]);
        let inner: Arc<[Box<dyn PeerOffer>]> =
            Arc::new([Box::new(Account::new(&user_name(0), PASSWORD)) as Box<dyn PeerOffer>]);
        for until in [20, 40] {
            let credentials = Credentials::method(PeerMethodPeap {
                tls: PeerTls::Real(client.clone(), 0),
                fragment: 1024,
                identity: user_name(0),
                inner: inner.clone(),
            });
            w.ask_in(0, ANONYMOUS, credentials);
            w.run_until(until);
        }
        let resumed: Vec<bool> = w
            .server_events
            .iter()
            .filter_map(|(_, _, e)| if let Event::Accepted(login) = e { Some(login.resumed) } else { None })
            .collect();
        assert_eq!(resumed, [false, true], "{version:?} {:?}", w.outcomes());
    }
}

/// The user in the tunnel is in the report, whether or not the ledger would have been asked.
#[test]
fn whose_reply_fits_no_packet_is_reported_by_the_inner_name() {
    for simultaneous in [None, Some(1)] {
        let mut config = config(server(Version::Tls13));
        let mut all = Users::new(&mut Seed::new(1).secure("users", 0));
        let mut user = User { simultaneous, ..User::with_password(PASSWORD) };
        for _ in 0..20 {
            user.reply.push_bytes(usher_radius::attribute::kind::REPLY_MESSAGE, &[b'x'; 248]).unwrap();
        }
        all.insert(&user_name(0), user);
        config.users = UserSource::Memory(Arc::new(all));
        let mut w = world(1, radius_nas(1), &[config]);
        w.ask_in(0, ANONYMOUS, peap(Version::Tls13, &user_name(0), PASSWORD));
        w.run_until(20);
        let rejected = w.server_events.iter().find_map(|(_, _, event)| match event {
            Event::Rejected(login) => Some(login.clone()),
            _ => None,
        });
        let login = rejected.expect("the user is turned away");
        assert_eq!(login.reason, Some(Reason::ReplyTooLong), "{simultaneous:?}");
        assert_eq!(login.inner.as_deref(), Some(&user_name(0)[..]), "{simultaneous:?}");
    }
}
