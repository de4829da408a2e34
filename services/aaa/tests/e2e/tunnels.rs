//! Methods that ask for a password within EAP and within tunnels, over RADIUS.

use crate::build::{PASSWORD, aaa_config, radius_nas, user_name, users, world};
use crate::tls::{client, server};
use crate::world::World;
use std::sync::Arc;
use usher_aaa::{Event, Login, Method, Reason};
use usher_core::Seed;
use usher_crypto::tls::{Version, fixtures};
use usher_eap::method::mschapv2::Account;
use usher_eap::method::peap::{PeerMethodPeap, ServerMethodPeap};
use usher_eap::method::tls::{PeerTls, ServerTls};
use usher_eap::method::ttls::{PeerMethodTtls, Proof, ServerMethodTtls};
use usher_eap::method::{Inner, PeerOffer, gtc};
use usher_eap::packet::Type;
use usher_nas::station::{self, Credentials};

const ANONYMOUS: &[u8] = b"anonymous@example.org";

fn tunnels(version: Version) -> World {
    let mut config = aaa_config(users(Seed::new(1), 1));
    config.methods = vec![Method::Peap, Method::Ttls, Method::EapMsChapV2, Method::EapGtc];
    let tls = || ServerTls::Real(server(version));
    config.peap = Some(Arc::new(ServerMethodPeap {
        tls: tls(),
        fragment: 1024,
        inner: [Type::MSCHAPV2, Type::GTC].into(),
    }));
    config.ttls = Some(Arc::new(ServerMethodTtls {
        tls: tls(),
        fragment: 1024,
        inner: [Inner::Pap, Inner::Chap, Inner::MsChapV2].into(),
    }));
    world(1, radius_nas(1), &[config])
}

fn login(mut w: World, name: &[u8], credentials: Credentials) -> (station::Event, Box<Login>) {
    w.ask_in(0, name, credentials);
    w.run_until(20);
    let [outcome] = &w.outcomes()[..] else { panic!("{:?}", w.outcomes()) };
    let login = w.server_events.iter().find_map(|(_, _, e)| match e {
        Event::Accepted(login) | Event::Rejected(login) => Some(login.clone()),
        _ => None,
    });
    (outcome.clone(), login.expect("a login was decided"))
}

fn peap(version: Version, user: &[u8], password: &[u8]) -> Credentials {
    let inner: [Box<dyn PeerOffer>; 1] = [Box::new(Account::new(user, password))];
    Credentials::method(PeerMethodPeap {
        tls: PeerTls::Real(client(version, fixtures::client(2)), 0),
        fragment: 1024,
        identity: user.to_vec(),
        inner: Arc::new(inner),
    })
}

fn ttls(version: Version, user: &[u8], password: &[u8]) -> Credentials {
    Credentials::method(PeerMethodTtls {
        tls: PeerTls::Real(client(version, fixtures::client(2)), 0),
        fragment: 1024,
        identity: user.to_vec(),
        proof: Proof::Pap(password.to_vec()),
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

#[test]
fn a_wrong_password_or_nobody_inside_is_turned_away() {
    let version = Version::Tls13;
    for (user, password, reason) in [
        (user_name(0), &b"wrong"[..], Reason::WrongCredentials),
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
