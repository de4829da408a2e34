//! TLS sessions that a peer takes up again, and what ends them.

use crate::build::{PASSWORD, aaa_config, radius_nas, user_name, users, world};
use crate::pair::{NEVER, Pair};
use crate::world::World;
use std::sync::Arc;
use usher_aaa::{
    CertificateVerdict, Command, Config, Event, Job, Login, Method, Reason, User, UserSource, Users,
};
use usher_core::{Duration, Machine, Seed, WallTime};
use usher_crypto::tls::{
    ClientConfig, ClientOptions, Resumption, Roots, ServerConfig, ServerOptions, Version, WallClock, fixtures,
};
use usher_eap::method::mschapv2::Account;
use usher_eap::method::peap::{Cryptobinding, PeerMethodPeap, ServerMethodPeap};
use usher_eap::method::tls::{PeerMethodTls, PeerTls, ServerMethodTls, ServerTls};
use usher_eap::method::ttls::{PeerMethodTtls, Proof, ServerMethodTtls};
use usher_eap::method::{Inner, PeerOffer};
use usher_eap::packet::Type;
use usher_nas::station::Credentials;
use usher_radius::attribute::kind;

const VERSIONS: [Version; 2] = [Version::Tls12, Version::Tls13];
const TUNNELS: [Method; 2] = [Method::Peap, Method::Ttls];
const ALL: [Method; 3] = [Method::EapTls, Method::Peap, Method::Ttls];

/// A station that keeps its sessions, and a server whose methods share theirs.
struct Site {
    w: World,
    config: Config,
    client: ClientConfig,
    clock: WallClock,
}

impl Site {
    fn new(version: Version) -> Self {
        let clock = WallClock::at(fixtures::WALL_TIME);
        let resumption = Some(Resumption::default());
        let server = ServerConfig::new(ServerOptions {
            versions: version.into(),
            credentials: fixtures::server(2),
            client_roots: Some(Roots::from_der([fixtures::root()])),
            resumption,
            clock: clock.clone(),
            key_log: None,
        });
        let client = ClientConfig::new(ClientOptions {
            versions: version.into(),
            credentials: Some(fixtures::client(2)),
            roots: Roots::from_der([fixtures::root()]),
            server_name: Some(fixtures::SERVER_NAME.into()),
            resumption,
            clock: clock.clone(),
            key_log: None,
        });
        let (tls, fragment) = (ServerTls::Real(server.unwrap()), 1024);
        let mut config = aaa_config(users(Seed::new(1), 2));
        config.methods = ALL.to_vec();
        config.tls = Some(Arc::new(ServerMethodTls { tls: tls.clone(), fragment }));
        let (inner, cryptobinding) = ([Type::MSCHAPV2].into(), Cryptobinding::Optional);
        config.peap = Some(Arc::new(ServerMethodPeap { tls: tls.clone(), fragment, inner, cryptobinding }));
        let inner = [Inner::Pap].into();
        config.ttls = Some(Arc::new(ServerMethodTtls { tls, fragment, inner }));
        let mut nas = radius_nas(1);
        nas.quiet_period = Duration::ZERO;
        Self { w: world(1, nas, &[config.clone()]), config, client: client.unwrap(), clock }
    }

    /// Logs user 0 in; inside a tunnel with this password.
    fn log_in(&mut self, method: Method, password: &[u8]) -> Login {
        self.log_in_as(&user_name(0), method, password)
    }

    fn log_in_as(&mut self, user: &[u8], method: Method, password: &[u8]) -> Login {
        let (tls, fragment) = (PeerTls::Real(self.client.clone(), 0), 1024);
        let identity = user.to_vec();
        let credentials = match method {
            Method::EapTls => Credentials::method(PeerMethodTls { tls, fragment }),
            Method::Peap => {
                let inner: [Box<dyn PeerOffer>; 1] = [Box::new(Account::new(user, password))];
                Credentials::method(PeerMethodPeap { tls, fragment, identity, inner: Arc::new(inner) })
            }
            _ => {
                let proof = Proof::Pap(password[..].into());
                Credentials::method(PeerMethodTtls { tls, fragment, identity, proof })
            }
        };
        self.w.server_events.clear();
        self.w.ask_in(0, user, credentials);
        let until = self.w.now() + Duration::from_secs(100);
        self.w.run_to(until);
        let decided = self.w.server_events.iter().find_map(|(_, _, e)| match e {
            Event::Accepted(login) | Event::Rejected(login) => Some(Login::clone(login)),
            _ => None,
        });
        decided.expect("a login was decided")
    }

    fn command(&mut self, command: Command) {
        self.w.net.command(self.w.servers[0], command).unwrap();
    }

    /// Goes on with other users, and all else as it was.
    fn change(&mut self, user: User) {
        let mut users = Users::new(&mut Seed::new(2).secure("users", 0));
        users.insert(&user_name(0), user);
        self.config.users = UserSource::Memory(Arc::new(users));
        self.command(Command::Reload(Box::new(self.config.clone())));
    }
}

#[track_caller]
fn accepted(login: &Login, resumed: bool) {
    assert_eq!((login.reason, login.resumed), (None, resumed), "{login:?}");
}

#[test]
fn a_session_of_one_method_is_none_of_another() {
    for version in VERSIONS {
        for (first, second) in [(Method::Ttls, Method::Peap), (Method::Peap, Method::Ttls)] {
            let mut site = Site::new(version);
            accepted(&site.log_in(first, PASSWORD), false);
            let other = site.log_in(second, b"wrong");
            assert_eq!(other.reason, Some(Reason::WrongPassword), "{first:?} to {second:?}");
        }
        // A certificate for nobody's password, and the other way round.
        let mut site = Site::new(version);
        accepted(&site.log_in(Method::EapTls, b""), false);
        assert_eq!(site.log_in(Method::Peap, b"wrong").reason, Some(Reason::WrongPassword));
        accepted(&site.log_in(Method::Ttls, PASSWORD), false);
        accepted(&site.log_in(Method::EapTls, b""), false);
    }
}

#[test]
fn a_session_does_not_outlast_the_password() {
    for version in VERSIONS {
        for method in ALL {
            let mut site = Site::new(version);
            accepted(&site.log_in(method, PASSWORD), false);
            accepted(&site.log_in(method, PASSWORD), true);
            site.change(User::with_password(b"another"));
            let stale = site.log_in(method, PASSWORD);
            assert_eq!(stale.reason, Some(Reason::StaleSession), "{method:?} {version:?}");
            // It is ended: the next login is one from the start.
            accepted(&site.log_in(method, b"another"), false);
            accepted(&site.log_in(method, b"another"), true);
        }
    }
}

#[test]
fn a_session_lets_nobody_in_who_may_not_log_in_any_more() {
    for method in ALL {
        let with = User::with_password(PASSWORD);
        for (user, reason) in [
            (User { rejected: true, ..with.clone() }, Reason::Locked),
            (User { expires: Some(WallTime::from_unix_secs(1)), ..with.clone() }, Reason::Expired),
        ] {
            let mut site = Site::new(Version::Tls13);
            accepted(&site.log_in(method, PASSWORD), false);
            site.change(user);
            assert_eq!(site.log_in(method, PASSWORD).reason, Some(reason), "{method:?}");
        }
    }
    for (method, only) in [(Method::Peap, Method::EapGtc), (Method::Ttls, Method::Chap)] {
        let mut site = Site::new(Version::Tls13);
        accepted(&site.log_in(method, PASSWORD), false);
        site.change(User { methods: vec![method, only], ..User::with_password(PASSWORD) });
        assert_eq!(site.log_in(method, PASSWORD).reason, Some(Reason::StaleSession), "{method:?}");
    }
}

#[test]
fn a_user_who_is_forgotten_has_no_session_left() {
    for version in VERSIONS {
        for method in ALL {
            let mut site = Site::new(version);
            accepted(&site.log_in(method, PASSWORD), false);
            site.command(Command::Forget { name: Some(user_name(1)) });
            accepted(&site.log_in(method, PASSWORD), true);
            site.command(Command::Forget { name: Some(user_name(0)) });
            accepted(&site.log_in(method, PASSWORD), false);
            site.command(Command::Forget { name: None });
            accepted(&site.log_in(method, PASSWORD), false);
        }
    }
}

#[test]
fn a_session_of_a_certificate_is_its_users_alone() {
    for version in VERSIONS {
        let mut site = Site::new(version);
        accepted(&site.log_in(Method::EapTls, b""), false);
        let other = site.log_in_as(&user_name(1), Method::EapTls, b"");
        assert_eq!(other.reason, Some(Reason::StaleSession));
    }
}

#[test]
fn a_session_lasts_for_a_day() {
    for version in VERSIONS {
        for method in TUNNELS {
            let mut site = Site::new(version);
            accepted(&site.log_in(method, PASSWORD), false);
            let later = |hours: u64| WallTime::from_unix_secs(fixtures::WALL_TIME.unix_secs() + hours * 3600);
            site.clock.set(later(23));
            accepted(&site.log_in(method, PASSWORD), true);
            site.clock.set(later(25));
            assert_eq!(site.log_in(method, b"wrong").reason, Some(Reason::WrongPassword));
        }
    }
}

#[test]
fn a_session_outlasts_a_time_in_which_its_user_may_not_log_in() {
    for version in VERSIONS {
        for method in ALL {
            let mut site = Site::new(version);
            accepted(&site.log_in(method, PASSWORD), false);
            site.change(User { rejected: true, ..User::with_password(PASSWORD) });
            assert_eq!(site.log_in(method, PASSWORD).reason, Some(Reason::Locked), "{method:?} {version:?}");
            site.change(User::with_password(PASSWORD));
            // A ticket of TLS 1.3 is used up by the attempt.
            accepted(&site.log_in(method, PASSWORD), version == Version::Tls12);
            // Another password ends it for good.
            site.change(User::with_password(b"another"));
            assert_eq!(site.log_in(method, PASSWORD).reason, Some(Reason::StaleSession));
            site.change(User::with_password(PASSWORD));
            accepted(&site.log_in(method, PASSWORD), false);
        }
    }
}

#[test]
fn a_session_that_let_nobody_in_is_not_kept() {
    for version in VERSIONS {
        let site = Site::new(version);
        let mut config = site.config;
        config.certificate_status = true;
        let mut p = Pair::new(config);
        let user = String::from_utf8(user_name(0)).unwrap();
        let mut log_in = |verdict| {
            let tls = PeerTls::Real(site.client.clone(), 0);
            p.eap(&user, Box::new(PeerMethodTls { tls, fragment: 1024 }), usize::MAX);
            let events = std::iter::from_fn(|| p.server.poll_event()).collect::<Vec<_>>();
            assert!(events.is_empty(), "{events:?}");
            let jobs = std::iter::from_fn(|| p.server.poll_job()).collect::<Vec<_>>();
            let [usher_core::Job { token, what: Job::CheckCertificate { .. }, .. }] = jobs[..] else {
                panic!("{jobs:?}")
            };
            p.server.command(NEVER, Command::Certificate { token, verdict }).unwrap();
            p.settle(NEVER);
            p.reply().unwrap();
            match p.server.poll_event() {
                Some(Event::Accepted(login) | Event::Rejected(login)) => (login.reason, login.resumed),
                other => panic!("{other:?}"),
            }
        };
        let other = (Some(Reason::CertificateName), false);
        assert_eq!(
            [log_in(CertificateVerdict::OtherName), log_in(CertificateVerdict::OtherName)],
            [other; 2]
        );
        assert_eq!(log_in(CertificateVerdict::Good), (None, false), "{version:?}");
        assert_eq!(log_in(CertificateVerdict::Good), (None, true), "{version:?}");
    }
}

/// RFC 9190 §2.1.8: a peer that says no name outside is whom its certificate names, also when it takes up its TLS session again.
#[test]
fn an_anonymous_peer_of_eap_tls_is_whom_its_certificate_names() {
    for version in VERSIONS {
        let site = Site::new(version);
        let mut config = site.config;
        config.certificate_status = true;
        let mut p = Pair::new(config);
        let mut log_in = |named: Option<&[u8]>| {
            let named = named.map(<[u8]>::to_vec);
            let tls = PeerTls::Real(site.client.clone(), 0);
            p.eap("@usher.test", Box::new(PeerMethodTls { tls, fragment: 1024 }), usize::MAX);
            let asked = p.server.poll_job().unwrap();
            let Job::NameUser { outer, chain } = &asked.what else { panic!("{asked:?}") };
            assert!(outer == b"@usher.test" && !chain.is_empty());
            p.server.command(NEVER, Command::Named { token: asked.token, name: named.clone() }).unwrap();
            if let Some(asked) = p.server.poll_job() {
                let Job::CheckCertificate { name, .. } = asked.what else { panic!("{asked:?}") };
                assert_eq!(name, named);
                let verdict = CertificateVerdict::Good;
                p.server.command(NEVER, Command::Certificate { token: asked.token, verdict }).unwrap();
            }
            p.settle(NEVER);
            let reply = p.reply().unwrap();
            assert!(reply.attributes.get(kind::USER_NAME).is_none_or(|name| name == b"@usher.test"));
            match p.server.poll_event() {
                Some(Event::Accepted(login) | Event::Rejected(login)) => {
                    (login.reason, login.resumed, login.inner.clone())
                }
                other => panic!("{other:?}"),
            }
        };
        let user = user_name(0);
        assert_eq!(log_in(Some(&user)), (None, false, Some(user.clone())), "{version:?}");
        assert_eq!(log_in(Some(&user)), (None, true, Some(user.clone())), "{version:?}");
        let (reason, _, inner) = log_in(Some(b"nobody"));
        assert_eq!((reason, inner.as_deref()), (Some(Reason::UnknownUser), Some(&b"nobody"[..])));
        assert_eq!(log_in(None).0, Some(Reason::CertificateName));
    }
}
