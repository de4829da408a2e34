//! Methods with a password in EAP and in tunnels, over RADIUS.

use crate::build::{PASSWORD, aaa_config, radius_nas, shared_secret, test_network, test_users, user_name};
use crate::tls::{tls_client_config, tls_server_config};
use crate::world::AaaTestNetwork;
use std::sync::Arc;
use usher_aaa::proxy::{
    self, AccountingMode, HomeServer, HomeServerPool, PoolBalance, Realm, RealmTable, RealmTarget,
};
use usher_aaa::{
    AaaServerConfig, AaaServerEvent, AuthMethod, FinishedLogin, RejectCause, User, UserDirectory, UserSource,
};
use usher_core::Seed;
use usher_crypto::tls::{
    ClientConfig, ServerConfig, SharedWallClock, TlsClientOptions, TlsResumptionConfig, TlsServerOptions,
    TlsVersion, TrustRoots, fixtures,
};
use usher_eap::method::mschapv2::MsChapV2Account;
use usher_eap::method::peap::{CryptobindingPolicy, PeapPeerFactory, PeapServerFactory};
use usher_eap::method::tls::{PeerTlsBackend, ServerTlsBackend};
use usher_eap::method::ttls::{TtlsInnerCredential, TtlsPeerFactory, TtlsServerFactory};
use usher_eap::method::{InnerMethod, PeerMethodFactory, gtc};
use usher_eap::packet::EapType;
use usher_nas::station::{self, EapCredentials};

pub(crate) const ANONYMOUS: &[u8] = b"anonymous@example.org";

fn tunnel_network(version: TlsVersion) -> AaaTestNetwork {
    test_network(1, radius_nas(1), &[tunnel_config(tls_server_config(version))])
}

pub(crate) fn tunnel_config(server: ServerConfig) -> AaaServerConfig {
    let mut config = aaa_config(test_users(Seed::new(1), 1));
    config.methods = vec![AuthMethod::Peap, AuthMethod::Ttls, AuthMethod::EapMsChapV2, AuthMethod::EapGtc];
    let tls = || ServerTlsBackend::Real(server.clone());
    config.peap = Some(Arc::new(PeapServerFactory {
        tls: tls(),
        fragment: 1024,
        inner: [EapType::MSCHAPV2, EapType::GTC].into(),
        cryptobinding: CryptobindingPolicy::Required,
    }));
    config.ttls = Some(Arc::new(TtlsServerFactory {
        tls: tls(),
        fragment: 1024,
        inner: [InnerMethod::Pap, InnerMethod::Chap, InnerMethod::MsChapV2].into(),
    }));
    config
}

/// Tunnels for a user with these methods only.
fn restricted_network(methods: &[AuthMethod]) -> AaaTestNetwork {
    let mut config = tunnel_config(tls_server_config(TlsVersion::Tls13));
    let mut all = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
    all.insert(&user_name(0), User { methods: methods.to_vec(), ..User::with_password(PASSWORD) });
    config.users = UserSource::Memory(Arc::new(all));
    test_network(1, radius_nas(1), &[config])
}

pub(crate) fn run_login(
    mut w: AaaTestNetwork,
    name: &[u8],
    credentials: EapCredentials,
) -> (station::StationEvent, Box<FinishedLogin>) {
    w.start_login(0, name, credentials);
    w.run_until(20);
    let [outcome] = &w.station_outcomes()[..] else { panic!("{:?}", w.station_outcomes()) };
    let login = w.server_events.iter().find_map(|(_, _, e)| match e {
        AaaServerEvent::Accepted(login) | AaaServerEvent::Rejected(login) => Some(login.clone()),
        _ => None,
    });
    (outcome.clone(), login.expect("a login was decided"))
}

pub(crate) fn peap_credentials(version: TlsVersion, user: &[u8], password: &[u8]) -> EapCredentials {
    let inner: [Box<dyn PeerMethodFactory>; 1] = [Box::new(MsChapV2Account::new(user, password))];
    EapCredentials::from_method(PeapPeerFactory {
        tls: PeerTlsBackend::Real(tls_client_config(version, fixtures::client_credentials(2)), 0),
        fragment: 1024,
        identity: user.to_vec(),
        inner: Arc::new(inner),
    })
}

pub(crate) fn ttls_credentials(version: TlsVersion, user: &[u8], password: &[u8]) -> EapCredentials {
    EapCredentials::from_method(TtlsPeerFactory {
        tls: PeerTlsBackend::Real(tls_client_config(version, fixtures::client_credentials(2)), 0),
        fragment: 1024,
        identity: user.to_vec(),
        proof: TtlsInnerCredential::Pap(password[..].into()),
    })
}

/// PEAP with a peer that expects another server and ends the handshake.
pub(crate) fn distrusting_credentials() -> EapCredentials {
    let tls = ClientConfig::new(TlsClientOptions {
        versions: TlsVersion::Tls13.into(),
        credentials: None,
        roots: TrustRoots::from_der([fixtures::root_certificate()]),
        server_name: Some("elsewhere.example".into()),
        resumption: None,
        clock: SharedWallClock::from_time(fixtures::WALL_TIME),
        key_log: None,
    });
    EapCredentials::from_method(PeapPeerFactory {
        tls: PeerTlsBackend::Real(tls.unwrap(), 0),
        fragment: 1024,
        identity: user_name(0),
        inner: Arc::new([
            Box::new(MsChapV2Account::new(&user_name(0), PASSWORD)) as Box<dyn PeerMethodFactory>
        ]),
    })
}

#[test]
fn who_is_anonymous_outside_is_known_inside() {
    let user = user_name(0);
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        for (credentials, method, inner) in [
            (
                peap_credentials(version, &user, PASSWORD),
                AuthMethod::Peap,
                InnerMethod::Eap(EapType::MSCHAPV2),
            ),
            (ttls_credentials(version, &user, PASSWORD), AuthMethod::Ttls, InnerMethod::Pap),
        ] {
            let (outcome, login) = run_login(tunnel_network(version), ANONYMOUS, credentials);
            assert!(
                matches!(outcome, station::StationEvent::Success { msk: Some(_) }),
                "{outcome:?} {login:?}"
            );
            assert_eq!((login.method, login.inner_method, login.reason), (Some(method), Some(inner), None));
            assert_eq!((&login.name[..], login.inner.as_deref()), (ANONYMOUS, Some(&user[..])));
        }
    }
}

/// Realms also apply to names inside tunnels.
#[test]
fn a_name_inside_of_a_realm_that_is_not_ours_is_turned_away() {
    let version = TlsVersion::Tls13;
    for (name, reason) in [
        ("ann@gone.example", Some(RejectCause::NoRealm)),
        ("ann@HOTEL.example", Some(RejectCause::NoRealm)),
        ("ann@gone.example@here.example", Some(RejectCause::NoRealm)),
        ("ann@here.example", None),
        // It has the outer realm.
        ("ann", None),
    ] {
        for credentials in
            [peap_credentials, ttls_credentials].map(|make| make(version, name.as_bytes(), PASSWORD))
        {
            let mut config = tunnel_config(tls_server_config(version));
            let mut all = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
            all.insert(name.as_bytes(), User::with_password(PASSWORD));
            config.users = UserSource::Memory(Arc::new(all));
            let elsewhere = RealmTarget::Pool { pool: 0, accounting: AccountingMode::Forward };
            let realms = vec![
                Realm::new("gone.example", RealmTarget::Refuse),
                Realm::new("hotel.example", elsewhere),
                Realm { strip: true, ..Realm::new("here.example", RealmTarget::Local) },
                Realm::new("", RealmTarget::Refuse),
            ];
            let home = HomeServer::new("hotel", "203.0.113.9:1812".parse().unwrap(), shared_secret());
            let realms = RealmTable::new(realms, None).unwrap();
            config.proxy = Some(proxy::ProxyConfig::new(
                realms,
                vec![home],
                vec![HomeServerPool {
                    name: "hotel".into(),
                    servers: vec![0],
                    balance: PoolBalance::default(),
                }],
            ));
            let world = test_network(1, radius_nas(1), &[config]);
            let (outcome, login) = run_login(world, ANONYMOUS, credentials);
            assert_eq!(login.reason, reason, "{name} {outcome:?}");
        }
    }
}

#[test]
fn a_wrong_password_or_nobody_inside_is_turned_away() {
    let version = TlsVersion::Tls13;
    for (user, password, reason) in [
        (user_name(0), &b"wrong"[..], RejectCause::WrongPassword),
        (b"nobody".to_vec(), PASSWORD, RejectCause::UnknownUser),
    ] {
        for credentials in
            [peap_credentials(version, &user, password), ttls_credentials(version, &user, password)]
        {
            let (outcome, login) = run_login(tunnel_network(version), ANONYMOUS, credentials);
            assert_eq!((outcome, login.reason), (station::StationEvent::Failure, Some(reason)), "{login:?}");
            assert_eq!(login.inner.as_deref(), Some(&user[..]));
        }
    }
}

#[test]
fn passwords_within_eap_alone() {
    let user = user_name(0);
    let mschap = || EapCredentials::from_method(MsChapV2Account::new(&user, PASSWORD));
    let (outcome, decided) = run_login(tunnel_network(TlsVersion::Tls12), &user, mschap());
    assert!(matches!(outcome, station::StationEvent::Success { msk: Some(_) }), "{outcome:?}");
    assert_eq!(decided.method, Some(AuthMethod::EapMsChapV2));
    let (outcome, decided) = run_login(
        tunnel_network(TlsVersion::Tls12),
        &user,
        EapCredentials::from_method(gtc::GtcToken::new(PASSWORD)),
    );
    assert_eq!(
        (outcome, decided.method),
        (station::StationEvent::Success { msk: None }, Some(AuthMethod::EapGtc))
    );
}

#[test]
fn what_may_admit_a_user_holds_inside_tunnels_too() {
    let (user, version) = (user_name(0), TlsVersion::Tls13);
    let by = |methods: &[AuthMethod], credentials: EapCredentials| {
        run_login(restricted_network(methods), ANONYMOUS, credentials).1.reason
    };
    let (by_peap, by_ttls) =
        (|| peap_credentials(version, &user, PASSWORD), || ttls_credentials(version, &user, PASSWORD));
    // Either tunnel, with any inner method.
    let both = [AuthMethod::Peap, AuthMethod::Ttls];
    assert_eq!((by(&both, by_peap()), by(&both, by_ttls())), (None, None));
    // One tunnel does not allow the other.
    assert_eq!(
        (by(&[AuthMethod::Peap], by_peap()), by(&[AuthMethod::Peap], by_ttls())),
        (None, Some(RejectCause::MethodForbidden))
    );
    assert_eq!(
        (by(&[AuthMethod::Ttls], by_peap()), by(&[AuthMethod::Ttls], by_ttls())),
        (Some(RejectCause::MethodForbidden), None)
    );
    // Inside, only the named methods are allowed: the proof fails whatever the password.
    let forbidden = Some(RejectCause::MethodForbidden);
    let mschap = [AuthMethod::Peap, AuthMethod::Ttls, AuthMethod::EapMsChapV2];
    assert_eq!((by(&mschap, by_peap()), by(&mschap, by_ttls())), (None, forbidden));
    let pap = [AuthMethod::Peap, AuthMethod::Ttls, AuthMethod::Pap];
    assert_eq!((by(&pap, by_peap()), by(&pap, by_ttls())), (forbidden, None));
    assert_eq!(by(&[AuthMethod::Pap], by_ttls()), Some(RejectCause::MethodForbidden));
}

#[test]
fn a_login_says_whether_it_took_up_an_earlier_session() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let resumption = Some(TlsResumptionConfig::default());
        let server = ServerConfig::new(TlsServerOptions {
            versions: version.into(),
            credentials: fixtures::server_credentials(2),
            client_roots: None,
            resumption,
            clock: SharedWallClock::from_time(fixtures::WALL_TIME),
            key_log: None,
        });
        let client = ClientConfig::new(TlsClientOptions {
            versions: version.into(),
            credentials: None,
            roots: TrustRoots::from_der([fixtures::root_certificate()]),
            server_name: Some(fixtures::SERVER_NAME.into()),
            resumption,
            clock: SharedWallClock::from_time(fixtures::WALL_TIME),
            key_log: None,
        })
        .unwrap();
        let mut w = test_network(1, radius_nas(1), &[tunnel_config(server.unwrap())]);
        let inner: Arc<[Box<dyn PeerMethodFactory>]> =
            Arc::new([Box::new(MsChapV2Account::new(&user_name(0), PASSWORD)) as Box<dyn PeerMethodFactory>]);
        for until in [20, 40] {
            let credentials = EapCredentials::from_method(PeapPeerFactory {
                tls: PeerTlsBackend::Real(client.clone(), 0),
                fragment: 1024,
                identity: user_name(0),
                inner: inner.clone(),
            });
            w.start_login(0, ANONYMOUS, credentials);
            w.run_until(until);
        }
        let resumed: Vec<bool> = w
            .server_events
            .iter()
            .filter_map(
                |(_, _, e)| if let AaaServerEvent::Accepted(login) = e { Some(login.resumed) } else { None },
            )
            .collect();
        assert_eq!(resumed, [false, true], "{version:?} {:?}", w.station_outcomes());
    }
}

/// The event has the inner user, whether or not the ledger would have been asked.
#[test]
fn whose_reply_fits_no_packet_is_reported_by_the_inner_name() {
    for simultaneous in [None, Some(1)] {
        let mut config = tunnel_config(tls_server_config(TlsVersion::Tls13));
        let mut all = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
        let mut user = User { simultaneous, ..User::with_password(PASSWORD) };
        for _ in 0..20 {
            user.reply.push_bytes(usher_radius::attribute::kind::REPLY_MESSAGE, &[b'x'; 248]).unwrap();
        }
        all.insert(&user_name(0), user);
        config.users = UserSource::Memory(Arc::new(all));
        let mut w = test_network(1, radius_nas(1), &[config]);
        w.start_login(0, ANONYMOUS, peap_credentials(TlsVersion::Tls13, &user_name(0), PASSWORD));
        w.run_until(20);
        let rejected = w.server_events.iter().find_map(|(_, _, event)| match event {
            AaaServerEvent::Rejected(login) => Some(login.clone()),
            _ => None,
        });
        let login = rejected.expect("the user is turned away");
        assert_eq!(login.reason, Some(RejectCause::ReplyTooLong), "{simultaneous:?}");
        assert_eq!(login.inner.as_deref(), Some(&user_name(0)[..]), "{simultaneous:?}");
    }
}
