//! Resumption of TLS sessions, and its end.

use crate::build::{PASSWORD, aaa_config, radius_nas, test_network, test_users, user_name};
use crate::pair::{ClientServerPair, NEVER};
use crate::world::AaaTestNetwork;
use std::sync::Arc;
use usher_aaa::{
    AaaServerCommand, AaaServerConfig, AaaServerEvent, AaaServerJob, AuthMethod, CertificateVerdict,
    FinishedLogin, RejectCause, User, UserDirectory, UserSource,
};
use usher_core::{Duration, Machine, Seed, WallTime};
use usher_crypto::tls::{
    ClientConfig, ServerConfig, SharedWallClock, TlsClientOptions, TlsResumptionConfig, TlsServerOptions,
    TlsVersion, TrustRoots, fixtures,
};
use usher_eap::method::mschapv2::MsChapV2Account;
use usher_eap::method::peap::{CryptobindingPolicy, PeapPeerFactory, PeapServerFactory};
use usher_eap::method::tls::{EapTlsPeerFactory, EapTlsServerFactory, PeerTlsBackend, ServerTlsBackend};
use usher_eap::method::ttls::{TtlsInnerCredential, TtlsPeerFactory, TtlsServerFactory};
use usher_eap::method::{InnerMethod, PeerMethodFactory};
use usher_eap::packet::EapType;
use usher_nas::station::EapCredentials;
use usher_radius::attribute::kind;

const VERSIONS: [TlsVersion; 2] = [TlsVersion::Tls12, TlsVersion::Tls13];
const TUNNELS: [AuthMethod; 2] = [AuthMethod::Peap, AuthMethod::Ttls];
const ALL: [AuthMethod; 3] = [AuthMethod::EapTls, AuthMethod::Peap, AuthMethod::Ttls];

/// A station that keeps its sessions, and a server whose methods share sessions.
struct ResumptionFixture {
    w: AaaTestNetwork,
    config: AaaServerConfig,
    client: ClientConfig,
    clock: SharedWallClock,
}

impl ResumptionFixture {
    fn new(version: TlsVersion) -> Self {
        let clock = SharedWallClock::from_time(fixtures::WALL_TIME);
        let resumption = Some(TlsResumptionConfig::default());
        let server = ServerConfig::new(TlsServerOptions {
            versions: version.into(),
            credentials: fixtures::server_credentials(2),
            client_roots: Some(TrustRoots::from_der([fixtures::root_certificate()])),
            resumption,
            clock: clock.clone(),
            key_log: None,
        });
        let client = ClientConfig::new(TlsClientOptions {
            versions: version.into(),
            credentials: Some(fixtures::client_credentials(2)),
            roots: TrustRoots::from_der([fixtures::root_certificate()]),
            server_name: Some(fixtures::SERVER_NAME.into()),
            resumption,
            clock: clock.clone(),
            key_log: None,
        });
        let (tls, fragment) = (ServerTlsBackend::Real(server.unwrap()), 1024);
        let mut config = aaa_config(test_users(Seed::new(1), 2));
        config.methods = ALL.to_vec();
        config.tls = Some(Arc::new(EapTlsServerFactory { tls: tls.clone(), fragment }));
        let (inner, cryptobinding) = ([EapType::MSCHAPV2].into(), CryptobindingPolicy::Optional);
        config.peap = Some(Arc::new(PeapServerFactory { tls: tls.clone(), fragment, inner, cryptobinding }));
        let inner = [InnerMethod::Pap].into();
        config.ttls = Some(Arc::new(TtlsServerFactory { tls, fragment, inner }));
        let mut nas = radius_nas(1);
        nas.quiet_period = Duration::ZERO;
        Self { w: test_network(1, nas, &[config.clone()]), config, client: client.unwrap(), clock }
    }

    /// Logs user 0 in, inside a tunnel with this password.
    fn log_in(&mut self, method: AuthMethod, password: &[u8]) -> FinishedLogin {
        self.log_in_as(&user_name(0), method, password)
    }

    fn log_in_as(&mut self, user: &[u8], method: AuthMethod, password: &[u8]) -> FinishedLogin {
        let (tls, fragment) = (PeerTlsBackend::Real(self.client.clone(), 0), 1024);
        let identity = user.to_vec();
        let credentials = match method {
            AuthMethod::EapTls => EapCredentials::from_method(EapTlsPeerFactory { tls, fragment }),
            AuthMethod::Peap => {
                let inner: [Box<dyn PeerMethodFactory>; 1] = [Box::new(MsChapV2Account::new(user, password))];
                EapCredentials::from_method(PeapPeerFactory {
                    tls,
                    fragment,
                    identity,
                    inner: Arc::new(inner),
                })
            }
            _ => {
                let proof = TtlsInnerCredential::Pap(password[..].into());
                EapCredentials::from_method(TtlsPeerFactory { tls, fragment, identity, proof })
            }
        };
        self.w.server_events.clear();
        self.w.start_login(0, user, credentials);
        let until = self.w.now() + Duration::from_secs(100);
        self.w.run_to(until);
        let decided = self.w.server_events.iter().find_map(|(_, _, e)| match e {
            AaaServerEvent::Accepted(login) | AaaServerEvent::Rejected(login) => {
                Some(FinishedLogin::clone(login))
            }
            _ => None,
        });
        decided.expect("a login was decided")
    }

    fn send_command(&mut self, command: AaaServerCommand) {
        self.w.net.send_command(self.w.servers[0], command).unwrap();
    }

    /// Replaces the users.
    fn replace_user(&mut self, user: User) {
        let mut users = UserDirectory::new(&mut Seed::new(2).derive_secure_rng("users", 0));
        users.insert(&user_name(0), user);
        self.config.users = UserSource::Memory(Arc::new(users));
        self.send_command(AaaServerCommand::Reload(Box::new(self.config.clone())));
    }
}

#[track_caller]
fn assert_accepted(login: &FinishedLogin, resumed: bool) {
    assert_eq!((login.reason, login.resumed), (None, resumed), "{login:?}");
}

#[test]
fn a_session_of_one_method_is_none_of_another() {
    for version in VERSIONS {
        for (first, second) in [(AuthMethod::Ttls, AuthMethod::Peap), (AuthMethod::Peap, AuthMethod::Ttls)] {
            let mut site = ResumptionFixture::new(version);
            assert_accepted(&site.log_in(first, PASSWORD), false);
            let other = site.log_in(second, b"wrong");
            assert_eq!(other.reason, Some(RejectCause::WrongPassword), "{first:?} to {second:?}");
        }
        // A session by certificate does not stand for a password, and the reverse.
        let mut site = ResumptionFixture::new(version);
        assert_accepted(&site.log_in(AuthMethod::EapTls, b""), false);
        assert_eq!(site.log_in(AuthMethod::Peap, b"wrong").reason, Some(RejectCause::WrongPassword));
        assert_accepted(&site.log_in(AuthMethod::Ttls, PASSWORD), false);
        assert_accepted(&site.log_in(AuthMethod::EapTls, b""), false);
    }
}

#[test]
fn a_session_does_not_outlast_the_password() {
    for version in VERSIONS {
        for method in ALL {
            let mut site = ResumptionFixture::new(version);
            assert_accepted(&site.log_in(method, PASSWORD), false);
            assert_accepted(&site.log_in(method, PASSWORD), true);
            site.replace_user(User::with_password(b"another"));
            let stale = site.log_in(method, PASSWORD);
            assert_eq!(stale.reason, Some(RejectCause::StaleSession), "{method:?} {version:?}");
            // The session has ended: the next login is a full handshake.
            assert_accepted(&site.log_in(method, b"another"), false);
            assert_accepted(&site.log_in(method, b"another"), true);
        }
    }
}

#[test]
fn a_session_lets_nobody_in_who_may_not_log_in_any_more() {
    for method in ALL {
        let with = User::with_password(PASSWORD);
        for (user, reason) in [
            (User { rejected: true, ..with.clone() }, RejectCause::Locked),
            (User { expires: Some(WallTime::from_unix_secs(1)), ..with.clone() }, RejectCause::Expired),
        ] {
            let mut site = ResumptionFixture::new(TlsVersion::Tls13);
            assert_accepted(&site.log_in(method, PASSWORD), false);
            site.replace_user(user);
            assert_eq!(site.log_in(method, PASSWORD).reason, Some(reason), "{method:?}");
        }
    }
    for (method, only) in [(AuthMethod::Peap, AuthMethod::EapGtc), (AuthMethod::Ttls, AuthMethod::Chap)] {
        let mut site = ResumptionFixture::new(TlsVersion::Tls13);
        assert_accepted(&site.log_in(method, PASSWORD), false);
        site.replace_user(User { methods: vec![method, only], ..User::with_password(PASSWORD) });
        assert_eq!(site.log_in(method, PASSWORD).reason, Some(RejectCause::StaleSession), "{method:?}");
    }
}

#[test]
fn a_user_who_is_forgotten_has_no_session_left() {
    for version in VERSIONS {
        for method in ALL {
            let mut site = ResumptionFixture::new(version);
            assert_accepted(&site.log_in(method, PASSWORD), false);
            site.send_command(AaaServerCommand::EvictUsers { name: Some(user_name(1)) });
            assert_accepted(&site.log_in(method, PASSWORD), true);
            site.send_command(AaaServerCommand::EvictUsers { name: Some(user_name(0)) });
            assert_accepted(&site.log_in(method, PASSWORD), false);
            site.send_command(AaaServerCommand::EvictUsers { name: None });
            assert_accepted(&site.log_in(method, PASSWORD), false);
        }
    }
}

#[test]
fn a_session_of_a_certificate_is_its_users_alone() {
    for version in VERSIONS {
        let mut site = ResumptionFixture::new(version);
        assert_accepted(&site.log_in(AuthMethod::EapTls, b""), false);
        let other = site.log_in_as(&user_name(1), AuthMethod::EapTls, b"");
        assert_eq!(other.reason, Some(RejectCause::StaleSession));
    }
}

#[test]
fn a_session_lasts_for_a_day() {
    for version in VERSIONS {
        for method in TUNNELS {
            let mut site = ResumptionFixture::new(version);
            assert_accepted(&site.log_in(method, PASSWORD), false);
            let later = |hours: u64| WallTime::from_unix_secs(fixtures::WALL_TIME.unix_secs() + hours * 3600);
            site.clock.set(later(23));
            assert_accepted(&site.log_in(method, PASSWORD), true);
            site.clock.set(later(25));
            assert_eq!(site.log_in(method, b"wrong").reason, Some(RejectCause::WrongPassword));
        }
    }
}

#[test]
fn a_session_outlasts_a_time_in_which_its_user_may_not_log_in() {
    for version in VERSIONS {
        for method in ALL {
            let mut site = ResumptionFixture::new(version);
            assert_accepted(&site.log_in(method, PASSWORD), false);
            site.replace_user(User { rejected: true, ..User::with_password(PASSWORD) });
            assert_eq!(
                site.log_in(method, PASSWORD).reason,
                Some(RejectCause::Locked),
                "{method:?} {version:?}"
            );
            site.replace_user(User::with_password(PASSWORD));
            // A ticket of TLS 1.3 is used up by the attempt.
            assert_accepted(&site.log_in(method, PASSWORD), version == TlsVersion::Tls12);
            // A changed password ends it permanently.
            site.replace_user(User::with_password(b"another"));
            assert_eq!(site.log_in(method, PASSWORD).reason, Some(RejectCause::StaleSession));
            site.replace_user(User::with_password(PASSWORD));
            assert_accepted(&site.log_in(method, PASSWORD), false);
        }
    }
}

#[test]
fn a_session_that_let_nobody_in_is_not_kept() {
    for version in VERSIONS {
        let site = ResumptionFixture::new(version);
        let mut config = site.config;
        config.certificate_status = true;
        let mut p = ClientServerPair::new(config);
        let user = String::from_utf8(user_name(0)).unwrap();
        let mut log_in = |verdict| {
            let tls = PeerTlsBackend::Real(site.client.clone(), 0);
            p.log_in_eap(&user, Box::new(EapTlsPeerFactory { tls, fragment: 1024 }), usize::MAX);
            let events = std::iter::from_fn(|| p.server.poll_event()).collect::<Vec<_>>();
            assert!(events.is_empty(), "{events:?}");
            let jobs = std::iter::from_fn(|| p.server.poll_job()).collect::<Vec<_>>();
            let [usher_core::JobRequest { token, job: AaaServerJob::CheckCertificate { .. }, .. }] = jobs[..]
            else {
                panic!("{jobs:?}")
            };
            p.server.handle_command(NEVER, AaaServerCommand::Certificate { token, verdict }).unwrap();
            p.deliver_all(NEVER);
            p.next_reply().unwrap();
            match p.server.poll_event() {
                Some(AaaServerEvent::Accepted(login) | AaaServerEvent::Rejected(login)) => {
                    (login.reason, login.resumed)
                }
                other => panic!("{other:?}"),
            }
        };
        let other = (Some(RejectCause::CertificateName), false);
        assert_eq!(
            [log_in(CertificateVerdict::NameMismatch), log_in(CertificateVerdict::NameMismatch)],
            [other; 2]
        );
        assert_eq!(log_in(CertificateVerdict::Good), (None, false), "{version:?}");
        assert_eq!(log_in(CertificateVerdict::Good), (None, true), "{version:?}");
    }
}

/// RFC 9190 §2.1.8: the certificate names the user of an anonymous outer identity, also at a resumption.
#[test]
fn an_anonymous_peer_of_eap_tls_is_whom_its_certificate_names() {
    for version in VERSIONS {
        let site = ResumptionFixture::new(version);
        let mut config = site.config;
        config.certificate_status = true;
        let mut p = ClientServerPair::new(config);
        let mut log_in = |named: Option<&[u8]>| {
            let named = named.map(<[u8]>::to_vec);
            let tls = PeerTlsBackend::Real(site.client.clone(), 0);
            p.log_in_eap("@usher.test", Box::new(EapTlsPeerFactory { tls, fragment: 1024 }), usize::MAX);
            let asked = p.server.poll_job().unwrap();
            let AaaServerJob::NameUser { outer, chain } = &asked.job else { panic!("{asked:?}") };
            assert!(outer == b"@usher.test" && !chain.is_empty());
            p.server
                .handle_command(NEVER, AaaServerCommand::Named { token: asked.token, name: named.clone() })
                .unwrap();
            if let Some(asked) = p.server.poll_job() {
                let AaaServerJob::CheckCertificate { name, .. } = asked.job else { panic!("{asked:?}") };
                assert_eq!(name, named);
                let verdict = CertificateVerdict::Good;
                p.server
                    .handle_command(NEVER, AaaServerCommand::Certificate { token: asked.token, verdict })
                    .unwrap();
            }
            p.deliver_all(NEVER);
            let reply = p.next_reply().unwrap();
            assert!(reply.attributes.get(kind::USER_NAME).is_none_or(|name| name == b"@usher.test"));
            match p.server.poll_event() {
                Some(AaaServerEvent::Accepted(login) | AaaServerEvent::Rejected(login)) => {
                    (login.reason, login.resumed, login.inner.clone())
                }
                other => panic!("{other:?}"),
            }
        };
        let user = user_name(0);
        assert_eq!(log_in(Some(&user)), (None, false, Some(user.clone())), "{version:?}");
        assert_eq!(log_in(Some(&user)), (None, true, Some(user.clone())), "{version:?}");
        let (reason, _, inner) = log_in(Some(b"nobody"));
        assert_eq!((reason, inner.as_deref()), (Some(RejectCause::UnknownUser), Some(&b"nobody"[..])));
        assert_eq!(log_in(None).0, Some(RejectCause::CertificateName));
    }
}
