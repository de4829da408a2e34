//! Subscribers of an access server without an AAA server: the checks of logins, and the times of sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use usher_access::{
    AuthenticationBackend, LocalUsers, LoginAnswer, LoginAttempt, LoginFailure, LoginFailureLimit,
    MsChapV2Response, NewSubscriberSession, SessionTraffic, SubscriberAddresses, SubscriberConfig,
    SubscriberEvent, SubscriberGrant, SubscriberManager, SubscriberPlace, TerminateCause, UserCredentials,
    is_identity_response,
};
use usher_core::collections::hash_state;
use usher_core::{Duration, Instant, JobRequester, Machine, MachineInput, MachineOutput, SecureRng};
use usher_crypto::SecretValue;
use usher_eap::packet::EapType;

type TestManager = SubscriberManager<u8, &'static str>;

fn at(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}
fn manager_of(config: SubscriberConfig) -> TestManager {
    let hash = hash_state(&mut SecureRng::from_seed([1; 32]));
    SubscriberManager::new(config, None, hash, SecureRng::from_seed([2; 32]))
}
fn local_config() -> SubscriberConfig {
    let passwords = BTreeMap::from([(b"ann".to_vec(), SecretValue::from(&b"a long password"[..]))]);
    SubscriberConfig {
        users: LocalUsers {
            methods: vec![EapType::MD5],
            passwords: Arc::new(passwords),
            failures: Some(LoginFailureLimit::new(3, Duration::from_secs(60), Duration::from_secs(100))),
            ..LocalUsers::default()
        },
        ..SubscriberConfig::default()
    }
}
fn events(manager: &mut TestManager) -> Vec<SubscriberEvent<u8>> {
    let mut buf = Vec::new();
    let outputs = std::iter::from_fn(|| manager.poll_output(&mut buf));
    outputs
        .filter_map(|output| match output {
            MachineOutput::Event(event) => Some(event),
            _ => None,
        })
        .collect()
}
/// Authenticates at access 1, and returns the reply.
fn reply_to(manager: &mut TestManager, secs: u64, name: &[u8], proof: UserCredentials<'_>) -> LoginAnswer {
    let attempt = LoginAttempt {
        name,
        starts_login: !matches!(proof, UserCredentials::Eap(packet) if !is_identity_response(packet)),
        proof,
        backend: AuthenticationBackend::Local,
        trusts_certificate_names: false,
        place: &Arc::default(),
        mtu: None,
        origin: "somewhere",
        requester: &JobRequester::default(),
    };
    manager.authenticate(at(secs), 1, &attempt);
    match events(manager).pop() {
        Some(SubscriberEvent::Login { access: 1, answer }) => answer,
        other => panic!("{other:?}"),
    }
}
fn failure_of(answer: &LoginAnswer) -> Option<LoginFailure> {
    match answer {
        LoginAnswer::Reject { why, .. } | LoginAnswer::Unanswered { why, .. } => Some(*why),
        LoginAnswer::Accept { .. } | LoginAnswer::Continue(_) => None,
    }
}

#[test]
fn names_that_logs_cannot_show_are_rejected_unchecked() {
    let mut manager = manager_of(local_config());
    for (name, why) in [
        (&b""[..], LoginFailure::NoName),
        (b"ann\nroot", LoginFailure::BadName),
        (b"\xff", LoginFailure::BadName),
        (b"nobody", LoginFailure::Rejected),
    ] {
        let answer = reply_to(&mut manager, 0, name, UserCredentials::Pap(b"a long password"));
        assert_eq!(failure_of(&answer), Some(why), "{name:?}");
    }
    assert_eq!((manager.counters().logins_rejected, manager.login_count()), (4, 0));
}

#[test]
fn a_right_password_is_accepted_by_each_protocol() {
    let mut manager = manager_of(local_config());
    let challenge = [9; 16];
    let chap = usher_access::ChapResponse::from_password(7, &challenge, b"a long password");
    let (ms_chap, _) = MsChapV2Response::from_password(1, [3; 16], [4; 16], b"ann", b"a long password");
    for proof in [
        UserCredentials::Pap(b"a long password"),
        UserCredentials::Chap(chap),
        UserCredentials::MsChapV2(ms_chap),
    ] {
        let answer = reply_to(&mut manager, 0, b"ann", proof);
        let LoginAnswer::Accept { grant, .. } = answer else { panic!("{proof:?}: {answer:?}") };
        assert_eq!(*grant, SubscriberGrant::for_local_user(b"ann"));
    }
    manager.refuse_logins();
    let answer = reply_to(&mut manager, 0, b"ann", UserCredentials::Pap(b"a long password"));
    assert_eq!(failure_of(&answer), Some(LoginFailure::NoAaa));
}

/// Each conversation that begins anew counts, too: a guess is a wrong response, whatever follows it.
#[test]
fn guesses_by_conversations_that_begin_anew_are_counted() {
    let mut manager = manager_of(local_config());
    let identity = [2, 1, 0, 8, 1, b'a', b'n', b'n'];
    for n in 0..3 {
        let answer = reply_to(&mut manager, n, b"ann", UserCredentials::Eap(&identity));
        let LoginAnswer::Continue(request) = answer else { panic!("{n}: {answer:?}") };
        let mut guess = vec![2, request[1], 0, 22, 4, 16];
        guess.extend([0; 16]);
        let answer = reply_to(&mut manager, n, b"ann", UserCredentials::Eap(&guess));
        assert_eq!(failure_of(&answer), Some(LoginFailure::Rejected), "{n}");
    }
    let answer = reply_to(&mut manager, 3, b"ann", UserCredentials::Eap(&identity));
    assert_eq!(failure_of(&answer), Some(LoginFailure::LockedOut));
    let answer = reply_to(&mut manager, 4, b"ann", UserCredentials::Pap(b"a long password"));
    assert_eq!(failure_of(&answer), Some(LoginFailure::LockedOut));
    assert_eq!((manager.counters().logins_rejected, manager.counters().logins_locked_out), (5, 2));
    let answer = reply_to(&mut manager, 103, b"ann", UserCredentials::Pap(b"a long password"));
    assert_eq!(failure_of(&answer), None, "the lockout is over");
}

/// A service may allow one login for each access. Another identity then neither ends nor renames it.
#[test]
fn an_identity_amid_a_login_is_no_login_of_its_own() {
    let mut manager = manager_of(local_config());
    let identity = [2, 1, 0, 8, 1, b'a', b'n', b'n'];
    let first = reply_to(&mut manager, 0, b"ann", UserCredentials::Eap(&identity));
    let attempt = LoginAttempt {
        name: b"bob",
        starts_login: false,
        proof: UserCredentials::Eap(&[2, 1, 0, 8, 1, b'b', b'o', b'b']),
        backend: AuthenticationBackend::Local,
        trusts_certificate_names: false,
        place: &Arc::default(),
        mtu: None,
        origin: "somewhere",
        requester: &JobRequester::default(),
    };
    manager.authenticate(at(0), 1, &attempt);
    let again = SubscriberEvent::Login { access: 1, answer: first };
    assert_eq!((events(&mut manager), manager.login_count()), (vec![again], 1), "the same request");
}

fn open_session(manager: &mut TestManager, now: Instant) -> u64 {
    let (id, _) = manager.allocate_session();
    let new = NewSubscriberSession {
        grant: SubscriberGrant::for_local_user(b"ann"),
        place: Arc::new(SubscriberPlace::default()),
        addresses: SubscriberAddresses::default(),
        leases: Vec::new(),
        is_accounted: true,
        access: "session",
    };
    manager.open_session(now, id, new);
    id
}
fn expire(manager: &mut TestManager) -> (u64, Vec<SubscriberEvent<u8>>) {
    let now = manager.poll_timeout().expect("a timer");
    manager.handle_input(now, MachineInput::Timeout);
    (now.duration_since(Instant::ZERO).as_secs(), events(manager))
}

#[test]
fn idle_and_overdue_sessions_end() {
    let config = SubscriberConfig {
        is_metered: true,
        session_timeout: Some(Duration::from_secs(100)),
        idle_timeout: Some(Duration::from_secs(30)),
        ..SubscriberConfig::default()
    };
    let mut manager = manager_of(config);
    let (quiet, busy) = (open_session(&mut manager, at(0)), open_session(&mut manager, at(0)));
    for secs in (10..100).step_by(10) {
        let packet = SessionTraffic { input_packets: 1, input_octets: 60, ..SessionTraffic::default() };
        manager.add_traffic(at(secs), busy, packet);
        if manager.poll_timeout() == Some(at(secs)) {
            manager.handle_input(at(secs), MachineInput::Timeout);
        }
    }
    let ended = SubscriberEvent::End { id: quiet, cause: TerminateCause::IdleTimeout };
    assert_eq!(events(&mut manager), [ended]);
    manager.end_session(at(99), quiet, TerminateCause::IdleTimeout);
    let ended = SubscriberEvent::End { id: busy, cause: TerminateCause::SessionTimeout };
    assert_eq!(expire(&mut manager), (100, vec![ended]));
    // The service has not ended it yet. The manager does not end it twice.
    assert_eq!((manager.poll_timeout(), manager.counters().sessions_timed_out), (None, 1));
}

/// Between two reports of traffic a session looks idle.
#[test]
fn a_session_is_idle_after_two_reports_at_the_earliest() {
    let config = SubscriberConfig {
        is_metered: true,
        traffic_interval: Duration::from_secs(10),
        idle_timeout: Some(Duration::from_secs(5)),
        ..SubscriberConfig::default()
    };
    let mut manager = manager_of(config);
    let id = open_session(&mut manager, at(0));
    let packet = SessionTraffic { input_packets: 1, input_octets: 60, ..SessionTraffic::default() };
    manager.add_traffic(at(10), id, packet);
    assert_eq!(expire(&mut manager), (20, vec![]));
    let ended = SubscriberEvent::End { id, cause: TerminateCause::IdleTimeout };
    assert_eq!(expire(&mut manager), (30, vec![ended]));
}

#[test]
fn an_ended_session_waits_for_its_last_traffic_but_not_forever() {
    let mut manager = manager_of(SubscriberConfig { is_metered: true, ..SubscriberConfig::default() });
    let ids = [(); 2].map(|()| open_session(&mut manager, at(0)));
    for id in ids {
        manager.session_mut(id).unwrap().awaits_traffic = true;
        manager.end_session(at(10), id, TerminateCause::UserRequest);
        assert!(manager.session(id).is_none() && manager.take_closed_session(id).is_none());
    }
    let last = SessionTraffic { output_octets: 7, ..SessionTraffic::default() };
    manager.add_traffic(at(11), ids[0], last);
    manager.any_session_mut(ids[0]).unwrap().awaits_traffic = false;
    let mut closed = manager.take_closed_session(ids[0]).unwrap();
    manager.stop_accounting(at(11), &mut closed);
    assert_eq!((closed.traffic(), closed.duration(at(11))), (last, Duration::from_secs(10)));
    assert_eq!(expire(&mut manager), (15, vec![SubscriberEvent::CloseDue { id: ids[1] }]));
    let closed = manager.take_closed_session(ids[1]).unwrap();
    assert_eq!((closed.access, closed.cause()), ("session", TerminateCause::UserRequest));
    manager.shut_down(at(16));
    assert_eq!(events(&mut manager), [SubscriberEvent::Left]);
}

#[test]
fn a_shutdown_waits_for_the_log_of_a_session() {
    let mut manager = manager_of(SubscriberConfig::default());
    let id = open_session(&mut manager, at(0));
    manager.session_mut(id).unwrap().awaits_log = true;
    manager.end_session(at(1), id, TerminateCause::AdminReboot);
    manager.shut_down(at(1));
    assert!(manager.take_closed_session(id).is_none() && events(&mut manager).is_empty());
    manager.any_session_mut(id).unwrap().awaits_log = false;
    let mut closed = manager.take_closed_session(id).unwrap();
    manager.stop_accounting(at(2), &mut closed);
    assert_eq!(events(&mut manager), [SubscriberEvent::Left]);
    // A log that never answers does not hold it for ever.
    let mut manager = manager_of(SubscriberConfig::default());
    let id = open_session(&mut manager, at(0));
    manager.session_mut(id).unwrap().awaits_log = true;
    manager.end_session(at(1), id, TerminateCause::AdminReboot);
    manager.shut_down(at(1));
    assert_eq!(expire(&mut manager), (6, vec![SubscriberEvent::Left]));
}
