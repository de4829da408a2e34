//! Traces: several at one time, users who are found inside a tunnel, and logins that nobody decided.

use crate::build::{PASSWORD, aaa_config, radius_nas, user_name, users, world};
use crate::pair::{NEVER, Pair};
use crate::tunnels::{self, ANONYMOUS, peap, ttls};
use std::sync::Arc;
use usher_aaa::{
    CacheConfig, Command, Event, Found, Job, Method, Reason, TRACES, TraceFilter, TraceLine, User, UserSource,
};
use usher_core::{CommandError, Duration, Input, Instant, Machine, Seed};
use usher_crypto::tls::Version;
use usher_eap::method::gtc::Token;
use usher_nas::station::Credentials;
use usher_radius::Code;
use usher_radius::attribute::kind;

fn user(name: &[u8]) -> Option<TraceFilter> {
    Some(TraceFilter::User(name.to_vec()))
}

/// The lines of a login in a tunnel, by trace: of the user inside, of all, of another, and of the name outside.
fn told(credentials: Credentials) -> [Vec<TraceLine>; 4] {
    let mut w = world(1, radius_nas(1), &[tunnels::config(crate::tls::server(Version::Tls13))]);
    let filters = [user(&user_name(0)), Some(TraceFilter::All), user(b"bob"), user(ANONYMOUS)];
    for (slot, filter) in (0..).zip(filters) {
        w.net.command(w.servers[0], Command::Trace { slot, filter }).unwrap();
    }
    w.ask_in(0, ANONYMOUS, credentials);
    w.run_until(20);
    let lines: Vec<&TraceLine> = w
        .server_events
        .iter()
        .filter_map(|(_, _, event)| if let Event::Trace(line) = event { Some(line) } else { None })
        .collect();
    [0, 1, 2, 3].map(|slot| lines.iter().filter(|l| l.to & 1 << slot != 0).map(|l| (*l).clone()).collect())
}

fn texts(lines: &[TraceLine]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

#[test]
fn a_user_is_found_inside_a_tunnel_and_the_login_is_told_from_its_beginning() {
    let name = user_name(0);
    for (password, reason) in [(PASSWORD, None), (&b"wrong"[..], Some(Reason::WrongPassword))] {
        for credentials in [peap(Version::Tls13, &name, password), ttls(Version::Tls13, &name, password)] {
            let [inside, all, other, outside] = told(credentials);
            assert_eq!(texts(&inside), texts(&all));
            assert_eq!(texts(&outside), texts(&all));
            assert!(other.is_empty(), "{other:?}");
            assert!(inside.windows(2).all(|two| two[0].at <= two[1].at), "as it came: {inside:?}");
            assert!(inside[0].text.starts_with("Access-Request from "), "{}", inside[0].text);
            assert_eq!((inside[0].client, inside[1].client), (Some(0), None));
            let held = |text: &str| inside.iter().filter(|line| line.text.contains(text)).count();
            assert_eq!(held("within the tunnel: user"), 1, "{inside:?}");
            let reasons: Vec<Reason> = inside.iter().filter_map(|line| line.reason).collect();
            assert_eq!(reasons, reason.into_iter().collect::<Vec<_>>());
            assert_eq!(held("rejected, wrong-password: wrong password"), usize::from(reason.is_some()));
        }
    }
}

#[test]
fn who_leaves_amid_a_login_hears_no_more_of_it_and_the_others_do() {
    let mut config = aaa_config(users(Seed::new(1), 0));
    config.users = UserSource::Host(CacheConfig::default());
    let mut p = Pair::new(config);
    let heard = |p: &mut Pair| {
        let mut to = Vec::new();
        while let Some(event) = p.server.poll_event() {
            to.extend(if let Event::Trace(line) = event { Some(line.to) } else { None });
        }
        to.dedup();
        to
    };
    for slot in [0, 1] {
        p.server.command(NEVER, Command::Trace { slot, filter: Some(TraceFilter::All) }).unwrap();
    }
    p.ask_pap(1, b"ann", b"x");
    assert_eq!(heard(&mut p), [0b11]);
    p.server.command(NEVER, Command::Trace { slot: 0, filter: None }).unwrap();
    let Some(usher_core::Job { token, what: Job::Lookup { .. }, .. }) = p.server.poll_job() else {
        panic!("no look-up")
    };
    let user = Found::User(Arc::new(User::with_password(b"x")));
    p.server.command(NEVER, Command::Found { token, user }).unwrap();
    assert_eq!(heard(&mut p), [0b10]);
}

#[test]
fn there_are_as_many_traces_as_there_may_be_and_each_ends_by_itself() {
    let mut p = Pair::new(aaa_config(users(Seed::new(1), 1)));
    let slots = TRACES as u8;
    let too_many = p.server.command(NEVER, Command::Trace { slot: slots, filter: Some(TraceFilter::All) });
    assert!(matches!(too_many, Err(CommandError::Invalid(_))));
    for slot in 0..slots {
        p.server.command(NEVER, Command::Trace { slot, filter: Some(TraceFilter::All) }).unwrap();
    }
    let mut heard = |ended: &[u8]| {
        for &slot in ended {
            p.server.command(NEVER, Command::Trace { slot, filter: None }).unwrap();
        }
        p.ask_pap(1, b"bob", b"x");
        let mut to = 0;
        while let Some(event) = p.server.poll_event() {
            if let Event::Trace(line) = event {
                to |= line.to;
            }
        }
        to
    };
    assert_eq!(heard(&[]), u8::MAX);
    assert_eq!(heard(&[0, 3]), 0b1111_0110);
    assert_eq!(heard(&[1, 2, 4, 5, 6, 7]), 0);
}

fn undecided(p: &mut Pair) -> Vec<(Option<Method>, Option<Reason>, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(event) = p.server.poll_event() {
        if let Event::Undecided(login) = event {
            let station = login.calling_station_id().unwrap_or_default().to_vec();
            all.push((login.method, login.reason, station));
        }
    }
    all
}

#[test]
fn a_device_that_does_not_go_on_is_told_of_with_its_station() {
    let mut config = aaa_config(users(Seed::new(1), 1));
    config.methods = vec![Method::EapMd5];
    let mut p = Pair::new(config);
    let name = user_name(0);
    let mut identity = vec![2, 7, 0, 5 + name.len() as u8, 1];
    identity.extend_from_slice(&name);
    p.ask(1, Code::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&identity);
        a.push_text(kind::CALLING_STATION_ID, "00-11-22-33-44-55").unwrap();
    });
    assert_eq!(p.answer().unwrap().1, Code::ACCESS_CHALLENGE);
    p.server.handle(Instant::ZERO + Duration::from_secs(31), Input::Timeout);
    let want = (Some(Method::EapMd5), Some(Reason::GaveUp), b"00-11-22-33-44-55".to_vec());
    assert_eq!(undecided(&mut p), [want]);
    assert_eq!((p.server.counters().expired, p.server.half_open()), (1, 0));
}

#[test]
fn a_device_that_leaves_when_it_is_told_that_its_password_is_wrong_is_told_of_once() {
    let mut config = aaa_config(users(Seed::new(1), 1));
    config.methods = vec![Method::EapMsChapV2];
    let mut p = Pair::new(config);
    let name = String::from_utf8(user_name(0)).unwrap();
    let account = usher_eap::method::mschapv2::Account::new(name.as_bytes(), b"wrong");
    // The identity, and the response to the challenge: what says that it is wrong is not answered.
    let (code, _) = p.eap(&name, Box::new(account), 2);
    assert_eq!(code, Some(Code::ACCESS_CHALLENGE));
    let rejected = |p: &mut Pair| {
        let mut all = Vec::new();
        while let Some(event) = p.server.poll_event() {
            let (Event::Rejected(login) | Event::Undecided(login)) = event else { continue };
            all.push((login.method, login.reason));
        }
        all
    };
    assert_eq!(rejected(&mut p), [(Some(Method::EapMsChapV2), Some(Reason::WrongPassword))]);
    // When its time is over there is nothing more to be told.
    p.server.handle(Instant::ZERO + Duration::from_secs(31), Input::Timeout);
    assert_eq!((rejected(&mut p), p.server.half_open()), (Vec::new(), 0));
    assert_eq!(p.server.counters().rejected_wrong_password, 1);
}

#[test]
fn a_device_that_wants_another_method_is_told_which() {
    let ann = |methods: Vec<Method>, offered: Vec<Method>, password: usher_aaa::Password| {
        let mut all = usher_aaa::Users::new(&mut Seed::new(1).secure("users", 0));
        all.insert(b"ann", User { methods, password: Some(password), ..User::default() });
        let mut config = aaa_config(Arc::new(all));
        config.methods = offered;
        let mut p = Pair::new(config);
        assert_eq!(p.eap("ann", Box::new(Token::new(b"x")), 5).0, Some(Code::ACCESS_REJECT));
        let mut rejected = None;
        while let Some(event) = p.server.poll_event() {
            if let Event::Rejected(login) = event {
                rejected = Some((login.reason.unwrap(), login.detail.unwrap_or_default().into_string()));
            }
        }
        rejected.unwrap()
    };
    let clear = || usher_aaa::Password::clear(b"x");
    let (md5, gtc) = (Method::EapMd5, Method::EapGtc);
    let wants = |reason| (reason, "the device wants GTC".to_owned());
    assert_eq!(ann(vec![], vec![md5], clear()), wants(Reason::NoMethod));
    assert_eq!(ann(vec![md5], vec![md5, gtc], clear()), wants(Reason::MethodForbidden));
    // Nothing is left to offer to a user whose password is a hash.
    let hashed = usher_aaa::Password::Argon2(usher_crypto::password::argon2_hash(b"x", &[1; 16]).into());
    let wrong_form = ann(vec![], vec![md5], hashed);
    assert_eq!(wrong_form.0, Reason::PasswordForm);
}
