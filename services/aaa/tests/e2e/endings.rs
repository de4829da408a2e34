//! Logins without a verdict, or decided by limits: the host gets one event with user and cause.

use crate::build::{PASSWORD, aaa_config, test_users, user_name};
use crate::pair::{ClientServerPair, NEVER};
use crate::tunnels;
use std::sync::Arc;
use usher_aaa::{
    AaaServerCommand, AaaServerConfig, AaaServerEvent, AaaServerJob, AdmissionRefusal, AdmissionVerdict,
    AuthMethod, CertificateVerdict, FinishedLogin, RejectCause, StoredPassword, User, UserCacheConfig,
    UserDirectory, UserSource,
};
use usher_core::{Duration, Instant, Machine, MachineInput, Seed};
use usher_crypto::fault::{CertificateFault, TlsFault};
use usher_crypto::password::argon2_hash;
use usher_crypto::tls::{TlsVersion, fixtures};
use usher_eap::method::mschapv2::MsChapV2Account;
use usher_eap::method::peap::PeapPeerFactory;
use usher_eap::method::tls::{EapTlsPeerFactory, EapTlsServerFactory, PeerTlsBackend, ServerTlsBackend};
use usher_eap::method::ttls::{TtlsInnerCredential, TtlsPeerFactory};
use usher_eap::method::{InnerMethod, PeerMethodFactory};
use usher_eap::packet::EapType;
use usher_radius::PacketCode;

/// Returns the server's events. It has no jobs.
fn take_events(p: &mut ClientServerPair) -> Vec<AaaServerEvent> {
    assert!(p.server.poll_job().is_none());
    std::iter::from_fn(|| p.server.poll_event()).collect()
}

/// Returns the server's jobs. It has no events.
fn take_jobs(p: &mut ClientServerPair) -> Vec<usher_core::JobRequest<AaaServerJob>> {
    assert!(p.server.poll_event().is_none());
    std::iter::from_fn(|| p.server.poll_job()).collect()
}

fn peer_tls() -> PeerTlsBackend {
    PeerTlsBackend::Real(crate::tls::tls_client_config(TlsVersion::Tls13, fixtures::client_credentials(2)), 0)
}

/// A tunnel case: method, inner method, and the peer's offer.
type TunnelCase = (AuthMethod, InnerMethod, Box<dyn PeerMethodFactory>);

fn tunnels_of(user: &[u8]) -> [TunnelCase; 2] {
    let inside: Box<dyn PeerMethodFactory> = Box::new(MsChapV2Account::new(user, PASSWORD));
    let (fragment, identity) = (1024, user.to_vec());
    let peap =
        PeapPeerFactory { tls: peer_tls(), fragment, identity: identity.clone(), inner: Arc::new([inside]) };
    let ttls = TtlsPeerFactory {
        tls: peer_tls(),
        fragment,
        identity,
        proof: TtlsInnerCredential::Pap(PASSWORD.into()),
    };
    [
        (AuthMethod::Peap, InnerMethod::Eap(EapType::MSCHAPV2), Box::new(peap)),
        (AuthMethod::Ttls, InnerMethod::Pap, Box::new(ttls)),
    ]
}

#[test]
fn whoever_a_limit_refuses_inside_a_tunnel_is_known() {
    let user = user_name(0);
    let outside = str::from_utf8(tunnels::ANONYMOUS).unwrap();
    let refusal = AdmissionRefusal::TooManySessions { allowed: 1 };
    for (admission, reason) in [
        (AdmissionVerdict::No(refusal), RejectCause::Limit(refusal)),
        (AdmissionVerdict::Unavailable, RejectCause::StoreAway),
    ] {
        for (method, inner, offer) in tunnels_of(&user) {
            let mut config = tunnels::tunnel_config(crate::tls::tls_server_config(TlsVersion::Tls13));
            config.limits = true;
            let mut p = ClientServerPair::new(config);
            assert_eq!(p.log_in_eap(outside, offer, usize::MAX).0, None, "the host is asked first");
            let [usher_core::JobRequest { token, job: AaaServerJob::Admit { .. }, .. }] =
                take_jobs(&mut p)[..]
            else {
                panic!("not asked")
            };
            p.server.handle_command(NEVER, AaaServerCommand::Admitted { token, admission }).unwrap();
            p.deliver_all(NEVER);
            let login = match &take_events(&mut p)[..] {
                [AaaServerEvent::Rejected(login) | AaaServerEvent::Undecided(login)] => login.clone(),
                other => panic!("{other:?}"),
            };
            assert_eq!((login.method, login.inner_method), (Some(method), Some(inner)));
            assert_eq!((login.inner.as_deref(), login.reason), (Some(&user[..]), Some(reason)));
            assert_eq!(login.failed_attempt_identity(), None);
        }
    }
}

/// A server whose users have certificates to be checked by the host.
fn by_certificate() -> ClientServerPair {
    let mut config = aaa_config(test_users(Seed::new(1), 1));
    config.methods = vec![AuthMethod::EapTls];
    let tls = ServerTlsBackend::Real(crate::tls::tls_server_config(TlsVersion::Tls13));
    config.tls = Some(Arc::new(EapTlsServerFactory { tls, fragment: 1024 }));
    config.certificate_status = true;
    let mut p = ClientServerPair::new(config);
    let user = String::from_utf8(user_name(0)).unwrap();
    let offer = Box::new(EapTlsPeerFactory { tls: peer_tls(), fragment: 1024 });
    assert_eq!(p.log_in_eap(&user, offer, usize::MAX).0, None, "the host is asked first");
    p
}

#[test]
fn a_list_of_ours_that_is_out_of_date_counts_against_nobody() {
    for fault in [CertificateFault::ListExpired, CertificateFault::Revoked].map(TlsFault::Certificate) {
        let mut p = by_certificate();
        let [usher_core::JobRequest { token, job: AaaServerJob::CheckCertificate { .. }, .. }] =
            take_jobs(&mut p)[..]
        else {
            panic!("not asked")
        };
        let verdict = CertificateVerdict::Distrusted(fault);
        p.server.handle_command(NEVER, AaaServerCommand::Certificate { token, verdict }).unwrap();
        let [AaaServerEvent::Rejected(login)] = &take_events(&mut p)[..] else { panic!("not rejected") };
        assert_eq!(
            (login.reason, login.method),
            (Some(RejectCause::Distrusted(fault)), Some(AuthMethod::EapTls))
        );
        assert_eq!((login.failed_attempt_identity(), p.server.counters().rejected_tls), (None, 1));
    }
}

/// A login with a password that the host compares.
fn by_password(change: impl FnOnce(&mut AaaServerConfig, &mut User)) -> ClientServerPair {
    let mut user = User::with_password(PASSWORD);
    let mut config = aaa_config(test_users(Seed::new(1), 0));
    config.methods = vec![AuthMethod::Pap];
    change(&mut config, &mut user);
    if let UserSource::Memory(_) = config.users {
        let mut all = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
        all.insert(b"ann", user);
        config.users = UserSource::Memory(Arc::new(all));
    }
    let mut p = ClientServerPair::new(config);
    p.send_pap_request(1, b"ann", PASSWORD);
    p
}

#[test]
fn a_login_that_is_kept_waiting_says_for_whom() {
    let hash = StoredPassword::Argon2(argon2_hash(PASSWORD, &[3; 16]).into());
    let looked_up = by_password(|c, _| c.users = UserSource::Host(UserCacheConfig::default()));
    let compared = by_password(|_, u| u.password = Some(hash));
    let limited = by_password(|c, _| c.limits = true);
    for (mut p, reason) in [
        (looked_up, RejectCause::StoreAway),
        (compared, RejectCause::Busy),
        (limited, RejectCause::StoreAway),
        // The host decides whether a responder is silent.
        (by_certificate(), RejectCause::Busy),
    ] {
        let jobs = take_jobs(&mut p);
        assert_eq!(jobs.len(), 1, "the host is asked");
        assert!(jobs[0].origin.is_result_needed());
        p.server.handle_input(Instant::ZERO + Duration::from_secs(300), MachineInput::Timeout);
        // The ledger's jobs are done even if the session ends.
        assert_eq!(jobs[0].origin.is_result_needed(), matches!(jobs[0].job, AaaServerJob::Admit { .. }));
        let [AaaServerEvent::Undecided(login)] = &take_events(&mut p)[..] else {
            panic!("{reason:?}: not told")
        };
        assert_eq!(login.reason, Some(reason));
        assert_eq!(p.server.half_open(), 0);
    }
}

#[test]
fn who_leaves_when_refused_is_counted_once() {
    let user = String::from_utf8(user_name(0)).unwrap();
    let config = || {
        let mut config = aaa_config(test_users(Seed::new(1), 1));
        config.methods = vec![AuthMethod::EapMsChapV2];
        config
    };
    let wrong = || Box::new(MsChapV2Account::new(user.as_bytes(), b"wrong"));
    let (code, all) = ClientServerPair::new(config()).log_in_eap(&user, wrong(), usize::MAX);
    assert_eq!(code, Some(PacketCode::ACCESS_REJECT));
    let mut p = ClientServerPair::new(config());
    assert_eq!(p.log_in_eap(&user, wrong(), all - 1).0, Some(PacketCode::ACCESS_CHALLENGE));
    let told = |p: &mut ClientServerPair| {
        let ends = take_events(p).into_iter().filter_map(|event| match event {
            AaaServerEvent::Rejected(login) | AaaServerEvent::Undecided(login) => Some(login),
            _ => None,
        });
        ends.map(|login: Box<FinishedLogin>| login.reason).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut p), [Some(RejectCause::WrongPassword)]);
    p.server.handle_input(Instant::ZERO + Duration::from_secs(300), MachineInput::Timeout);
    assert_eq!((told(&mut p), p.server.half_open()), (vec![], 0));
    let c = p.server.counters();
    assert_eq!((c.rejected_wrong_password, c.expired), (1, 0));
}
