//! Traces: several at one time, users found inside a tunnel, and logins without a verdict.

use crate::build::{PASSWORD, aaa_config, radius_nas, test_network, test_users, user_name};
use crate::pair::{ClientServerPair, NEVER};
use crate::tunnels::{self, ANONYMOUS, peap_credentials, ttls_credentials};
use std::sync::Arc;
use usher_aaa::{
    AaaServerCommand, AaaServerEvent, AaaServerJob, AuthMethod, LoginTraceFilter, RejectCause, TRACES,
    TraceLine, User, UserCacheConfig, UserLookupResult, UserSource,
};
use usher_core::{CommandError, Duration, Instant, Machine, MachineInput, Seed};
use usher_crypto::tls::TlsVersion;
use usher_eap::method::gtc::GtcToken;
use usher_nas::station::EapCredentials;
use usher_radius::PacketCode;
use usher_radius::attribute::kind;

fn user_filter(name: &[u8]) -> Option<LoginTraceFilter> {
    Some(LoginTraceFilter::User(name.to_vec()))
}

/// Returns the lines of a login in a tunnel by trace: of the inner user, of all, of another user, and of the outer
/// name.
fn traced_lines(credentials: EapCredentials) -> [Vec<TraceLine>; 4] {
    let mut w = test_network(
        1,
        radius_nas(1),
        &[tunnels::tunnel_config(crate::tls::tls_server_config(TlsVersion::Tls13))],
    );
    let filters = [
        user_filter(&user_name(0)),
        Some(LoginTraceFilter::All),
        user_filter(b"bob"),
        user_filter(ANONYMOUS),
    ];
    for (slot, filter) in (0..).zip(filters) {
        w.net.send_command(w.servers[0], AaaServerCommand::Trace { slot, filter }).unwrap();
    }
    w.start_login(0, ANONYMOUS, credentials);
    w.run_until(20);
    let lines: Vec<&TraceLine> = w
        .server_events
        .iter()
        .filter_map(|(_, _, event)| if let AaaServerEvent::Trace(line) = event { Some(line) } else { None })
        .collect();
    [0, 1, 2, 3].map(|slot| lines.iter().filter(|l| l.to & 1 << slot != 0).map(|l| (*l).clone()).collect())
}

fn line_texts(lines: &[TraceLine]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

#[test]
fn a_trace_finds_an_inner_user_and_shows_the_whole_login() {
    let name = user_name(0);
    for (password, reason) in [(PASSWORD, None), (&b"wrong"[..], Some(RejectCause::WrongPassword))] {
        for credentials in [
            peap_credentials(TlsVersion::Tls13, &name, password),
            ttls_credentials(TlsVersion::Tls13, &name, password),
        ] {
            let [inside, all, other, outside] = traced_lines(credentials);
            assert_eq!(line_texts(&inside), line_texts(&all));
            assert_eq!(line_texts(&outside), line_texts(&all));
            assert!(other.is_empty(), "{other:?}");
            assert!(
                inside.windows(2).all(|two| two[0].occurred_at <= two[1].occurred_at),
                "as it came: {inside:?}"
            );
            assert!(inside[0].text.starts_with("Access-Request from "), "{}", inside[0].text);
            assert_eq!((inside[0].client, inside[1].client), (Some(0), None));
            let held = |text: &str| inside.iter().filter(|line| line.text.contains(text)).count();
            assert_eq!(held("inside the tunnel: user"), 1, "{inside:?}");
            let reasons: Vec<RejectCause> = inside.iter().filter_map(|line| line.reason).collect();
            assert_eq!(reasons, reason.into_iter().collect::<Vec<_>>());
            assert_eq!(held("rejected, wrong-password: wrong password"), usize::from(reason.is_some()));
        }
    }
}

#[test]
fn a_trace_that_ends_during_a_login_leaves_the_others_running() {
    let mut config = aaa_config(test_users(Seed::new(1), 0));
    config.users = UserSource::Host(UserCacheConfig::default());
    let mut p = ClientServerPair::new(config);
    let heard = |p: &mut ClientServerPair| {
        let mut to = Vec::new();
        while let Some(event) = p.server.poll_event() {
            to.extend(if let AaaServerEvent::Trace(line) = event { Some(line.to) } else { None });
        }
        to.dedup();
        to
    };
    for slot in [0, 1] {
        p.server
            .handle_command(NEVER, AaaServerCommand::Trace { slot, filter: Some(LoginTraceFilter::All) })
            .unwrap();
    }
    p.send_pap_request(1, b"ann", b"x");
    assert_eq!(heard(&mut p), [0b11]);
    p.server.handle_command(NEVER, AaaServerCommand::Trace { slot: 0, filter: None }).unwrap();
    let Some(usher_core::JobRequest { token, job: AaaServerJob::Lookup { .. }, .. }) = p.server.poll_job()
    else {
        panic!("no look-up")
    };
    let user = UserLookupResult::User(Arc::new(User::with_password(b"x")));
    p.server.handle_command(NEVER, AaaServerCommand::Found { token, user }).unwrap();
    assert_eq!(heard(&mut p), [0b10]);
}

#[test]
fn traces_are_limited_in_number_and_end_independently() {
    let mut p = ClientServerPair::new(aaa_config(test_users(Seed::new(1), 1)));
    let slots = TRACES as u8;
    let too_many = p
        .server
        .handle_command(NEVER, AaaServerCommand::Trace { slot: slots, filter: Some(LoginTraceFilter::All) });
    assert!(matches!(too_many, Err(CommandError::Invalid(_))));
    for slot in 0..slots {
        p.server
            .handle_command(NEVER, AaaServerCommand::Trace { slot, filter: Some(LoginTraceFilter::All) })
            .unwrap();
    }
    let mut heard = |ended: &[u8]| {
        for &slot in ended {
            p.server.handle_command(NEVER, AaaServerCommand::Trace { slot, filter: None }).unwrap();
        }
        p.send_pap_request(1, b"bob", b"x");
        let mut to = 0;
        while let Some(event) = p.server.poll_event() {
            if let AaaServerEvent::Trace(line) = event {
                to |= line.to;
            }
        }
        to
    };
    assert_eq!(heard(&[]), u8::MAX);
    assert_eq!(heard(&[0, 3]), 0b1111_0110);
    assert_eq!(heard(&[1, 2, 4, 5, 6, 7]), 0);
}

fn take_undecided(p: &mut ClientServerPair) -> Vec<(Option<AuthMethod>, Option<RejectCause>, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(event) = p.server.poll_event() {
        if let AaaServerEvent::Undecided(login) = event {
            let station = login.calling_station_id().unwrap_or_default().to_vec();
            all.push((login.method, login.reason, station));
        }
    }
    all
}

#[test]
fn a_device_that_does_not_go_on_is_told_of_with_its_station() {
    let mut config = aaa_config(test_users(Seed::new(1), 1));
    config.methods = vec![AuthMethod::EapMd5];
    let mut p = ClientServerPair::new(config);
    let name = user_name(0);
    let mut identity = vec![2, 7, 0, 5 + name.len() as u8, 1];
    identity.extend_from_slice(&name);
    p.send_request(1, PacketCode::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&identity);
        a.push_text(kind::CALLING_STATION_ID, "00-11-22-33-44-55").unwrap();
    });
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_CHALLENGE);
    p.server.handle_input(Instant::ZERO + Duration::from_secs(31), MachineInput::Timeout);
    let want = (Some(AuthMethod::EapMd5), Some(RejectCause::GaveUp), b"00-11-22-33-44-55".to_vec());
    assert_eq!(take_undecided(&mut p), [want]);
    assert_eq!((p.server.counters().expired, p.server.half_open()), (1, 0));
}

#[test]
fn a_device_that_leaves_after_a_wrong_password_is_reported_once() {
    let mut config = aaa_config(test_users(Seed::new(1), 1));
    config.methods = vec![AuthMethod::EapMsChapV2];
    let mut p = ClientServerPair::new(config);
    let name = String::from_utf8(user_name(0)).unwrap();
    let account = usher_eap::method::mschapv2::MsChapV2Account::new(name.as_bytes(), b"wrong");
    // The identity, and the response to the challenge. The peer does not answer the failure.
    let (code, _) = p.log_in_eap(&name, Box::new(account), 2);
    assert_eq!(code, Some(PacketCode::ACCESS_CHALLENGE));
    let rejected = |p: &mut ClientServerPair| {
        let mut all = Vec::new();
        while let Some(event) = p.server.poll_event() {
            let (AaaServerEvent::Rejected(login) | AaaServerEvent::Undecided(login)) = event else {
                continue;
            };
            all.push((login.method, login.reason));
        }
        all
    };
    assert_eq!(rejected(&mut p), [(Some(AuthMethod::EapMsChapV2), Some(RejectCause::WrongPassword))]);
    // After its timeout there are no further lines.
    p.server.handle_input(Instant::ZERO + Duration::from_secs(31), MachineInput::Timeout);
    assert_eq!((rejected(&mut p), p.server.half_open()), (Vec::new(), 0));
    assert_eq!(p.server.counters().rejected_wrong_password, 1);
}

#[test]
fn a_device_that_wants_another_method_is_told_which() {
    let ann = |methods: Vec<AuthMethod>, offered: Vec<AuthMethod>, password: usher_aaa::StoredPassword| {
        let mut all = usher_aaa::UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
        all.insert(b"ann", User { methods, password: Some(password), ..User::default() });
        let mut config = aaa_config(Arc::new(all));
        config.methods = offered;
        let mut p = ClientServerPair::new(config);
        assert_eq!(p.log_in_eap("ann", Box::new(GtcToken::new(b"x")), 5).0, Some(PacketCode::ACCESS_REJECT));
        let mut rejected = None;
        while let Some(event) = p.server.poll_event() {
            if let AaaServerEvent::Rejected(login) = event {
                rejected = Some((login.reason.unwrap(), login.detail.unwrap_or_default().into_string()));
            }
        }
        rejected.unwrap()
    };
    let clear = || usher_aaa::StoredPassword::from_clear(b"x");
    let (md5, gtc) = (AuthMethod::EapMd5, AuthMethod::EapGtc);
    let wants = |reason| (reason, "the device wants GTC".to_owned());
    assert_eq!(ann(vec![], vec![md5], clear()), wants(RejectCause::NoMethod));
    assert_eq!(ann(vec![md5], vec![md5, gtc], clear()), wants(RejectCause::MethodForbidden));
    // No method is left for a user with a hashed password.
    let hashed =
        usher_aaa::StoredPassword::Argon2(usher_crypto::password::argon2_hash(b"x", &[1; 16]).into());
    let wrong_form = ann(vec![], vec![md5], hashed);
    assert_eq!(wrong_form.0, RejectCause::PasswordForm);
}
