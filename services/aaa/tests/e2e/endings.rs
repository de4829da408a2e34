//! How logins end that nobody decides, or that limits decide: the host is told once, with who it was and why.

use crate::build::{PASSWORD, aaa_config, user_name, users};
use crate::pair::{NEVER, Pair};
use crate::tunnels;
use std::sync::Arc;
use usher_aaa::{
    Admission, CacheConfig, CertificateVerdict, Command, Config, Event, Job, Login, Method, Password, Reason,
    Refusal, User, UserSource, Users,
};
use usher_core::{Duration, Input, Instant, Machine, Seed};
use usher_crypto::fault::{CertificateFault, TlsFault};
use usher_crypto::password::argon2_hash;
use usher_crypto::tls::{Version, fixtures};
use usher_eap::method::mschapv2::Account;
use usher_eap::method::peap::PeerMethodPeap;
use usher_eap::method::tls::{PeerMethodTls, PeerTls, ServerMethodTls, ServerTls};
use usher_eap::method::ttls::{PeerMethodTtls, Proof};
use usher_eap::method::{Inner, PeerOffer};
use usher_eap::packet::Type;
use usher_radius::Code;

/// What the server says; it asks nothing.
fn events(p: &mut Pair) -> Vec<Event> {
    assert!(p.server.poll_job().is_none());
    std::iter::from_fn(|| p.server.poll_event()).collect()
}

/// What the server asks; it says nothing.
fn asked(p: &mut Pair) -> Vec<usher_core::Job<Job>> {
    assert!(p.server.poll_event().is_none());
    std::iter::from_fn(|| p.server.poll_job()).collect()
}

fn peer_tls() -> PeerTls {
    PeerTls::Real(crate::tls::client(Version::Tls13, fixtures::client(2)), 0)
}

/// A way into a tunnel: by which method, how inside, and what the peer offers.
type Way = (Method, Inner, Box<dyn PeerOffer>);

fn tunnels_of(user: &[u8]) -> [Way; 2] {
    let inside: Box<dyn PeerOffer> = Box::new(Account::new(user, PASSWORD));
    let (fragment, identity) = (1024, user.to_vec());
    let peap =
        PeerMethodPeap { tls: peer_tls(), fragment, identity: identity.clone(), inner: Arc::new([inside]) };
    let ttls = PeerMethodTtls { tls: peer_tls(), fragment, identity, proof: Proof::Pap(PASSWORD.into()) };
    [(Method::Peap, Inner::Eap(Type::MSCHAPV2), Box::new(peap)), (Method::Ttls, Inner::Pap, Box::new(ttls))]
}

#[test]
fn whoever_a_limit_refuses_inside_a_tunnel_is_known() {
    let user = user_name(0);
    let outside = str::from_utf8(tunnels::ANONYMOUS).unwrap();
    let refusal = Refusal::TooManySessions { allowed: 1 };
    for (admission, reason) in
        [(Admission::No(refusal), Reason::Limit(refusal)), (Admission::Unavailable, Reason::StoreAway)]
    {
        for (method, inner, offer) in tunnels_of(&user) {
            let mut config = tunnels::config(crate::tls::server(Version::Tls13));
            config.limits = true;
            let mut p = Pair::new(config);
            assert_eq!(p.eap(outside, offer, usize::MAX).0, None, "the host is asked first");
            let [usher_core::Job { token, what: Job::Admit { .. }, .. }] = asked(&mut p)[..] else {
                panic!("not asked")
            };
            p.server.command(NEVER, Command::Admitted { token, admission }).unwrap();
            p.settle(NEVER);
            let login = match &events(&mut p)[..] {
                [Event::Rejected(login) | Event::Undecided(login)] => login.clone(),
                other => panic!("{other:?}"),
            };
            assert_eq!((login.method, login.inner_method), (Some(method), Some(inner)));
            assert_eq!((login.inner.as_deref(), login.reason), (Some(&user[..]), Some(reason)));
            assert_eq!(login.failed_as(), None);
        }
    }
}

/// A server whose users prove a certificate that is asked about.
fn by_certificate() -> Pair {
    let mut config = aaa_config(users(Seed::new(1), 1));
    config.methods = vec![Method::EapTls];
    let tls = ServerTls::Real(crate::tls::server(Version::Tls13));
    config.tls = Some(Arc::new(ServerMethodTls { tls, fragment: 1024 }));
    config.certificate_status = true;
    let mut p = Pair::new(config);
    let user = String::from_utf8(user_name(0)).unwrap();
    let offer = Box::new(PeerMethodTls { tls: peer_tls(), fragment: 1024 });
    assert_eq!(p.eap(&user, offer, usize::MAX).0, None, "the host is asked first");
    p
}

#[test]
fn a_list_of_ours_that_is_out_of_date_counts_against_nobody() {
    for fault in [CertificateFault::ListExpired, CertificateFault::Revoked].map(TlsFault::Certificate) {
        let mut p = by_certificate();
        let [usher_core::Job { token, what: Job::CheckCertificate { .. }, .. }] = asked(&mut p)[..] else {
            panic!("not asked")
        };
        let verdict = CertificateVerdict::Distrusted(fault);
        p.server.command(NEVER, Command::Certificate { token, verdict }).unwrap();
        let [Event::Rejected(login)] = &events(&mut p)[..] else { panic!("not rejected") };
        assert_eq!((login.reason, login.method), (Some(Reason::Distrusted(fault)), Some(Method::EapTls)));
        assert_eq!((login.failed_as(), p.server.counters().rejected_tls), (None, 1));
    }
}

/// A login with a password that the host is asked about.
fn by_password(change: impl FnOnce(&mut Config, &mut User)) -> Pair {
    let mut user = User::with_password(PASSWORD);
    let mut config = aaa_config(users(Seed::new(1), 0));
    config.methods = vec![Method::Pap];
    change(&mut config, &mut user);
    if let UserSource::Memory(_) = config.users {
        let mut all = Users::new(&mut Seed::new(1).secure("users", 0));
        all.insert(b"ann", user);
        config.users = UserSource::Memory(Arc::new(all));
    }
    let mut p = Pair::new(config);
    p.ask_pap(1, b"ann", PASSWORD);
    p
}

#[test]
fn a_login_that_is_kept_waiting_says_for_whom() {
    let hash = Password::Argon2(argon2_hash(PASSWORD, &[3; 16]).into());
    let looked_up = by_password(|c, _| c.users = UserSource::Host(CacheConfig::default()));
    let compared = by_password(|_, u| u.password = Some(hash));
    let limited = by_password(|c, _| c.limits = true);
    for (mut p, reason) in [
        (looked_up, Reason::StoreAway),
        (compared, Reason::Busy),
        (limited, Reason::StoreAway),
        // Whether a responder is silent is the host's to say.
        (by_certificate(), Reason::Busy),
    ] {
        let jobs = asked(&mut p);
        assert_eq!(jobs.len(), 1, "the host is asked");
        assert!(jobs[0].origin.is_awaited());
        p.server.handle(Instant::ZERO + Duration::from_secs(300), Input::Timeout);
        // What a ledger is asked is done whoever waits for it.
        assert_eq!(jobs[0].origin.is_awaited(), matches!(jobs[0].what, Job::Admit { .. }));
        let [Event::Undecided(login)] = &events(&mut p)[..] else { panic!("{reason:?}: not told") };
        assert_eq!(login.reason, Some(reason));
        assert_eq!(p.server.half_open(), 0);
    }
}

#[test]
fn who_leaves_when_refused_is_counted_once() {
    let user = String::from_utf8(user_name(0)).unwrap();
    let config = || {
        let mut config = aaa_config(users(Seed::new(1), 1));
        config.methods = vec![Method::EapMsChapV2];
        config
    };
    let wrong = || Box::new(Account::new(user.as_bytes(), b"wrong"));
    let (code, all) = Pair::new(config()).eap(&user, wrong(), usize::MAX);
    assert_eq!(code, Some(Code::ACCESS_REJECT));
    let mut p = Pair::new(config());
    assert_eq!(p.eap(&user, wrong(), all - 1).0, Some(Code::ACCESS_CHALLENGE));
    let told = |p: &mut Pair| {
        let ends = events(p).into_iter().filter_map(|event| match event {
            Event::Rejected(login) | Event::Undecided(login) => Some(login),
            _ => None,
        });
        ends.map(|login: Box<Login>| login.reason).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut p), [Some(Reason::WrongPassword)]);
    p.server.handle(Instant::ZERO + Duration::from_secs(300), Input::Timeout);
    assert_eq!((told(&mut p), p.server.half_open()), (vec![], 0));
    let c = p.server.counters();
    assert_eq!((c.rejected_wrong_password, c.expired), (1, 0));
}
