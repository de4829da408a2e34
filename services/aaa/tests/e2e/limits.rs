//! What the host says about logins that everything else speaks for, and rejects that are held back.

use crate::build::{aaa_config, users};
use crate::pair::{NEVER, Pair};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use usher_aaa::{Admission, Command, Config, Event, Reason, Refusal, User, Users};
use usher_core::{Duration, Input, Instant, Machine, Seed};
use usher_radius::Code;
use usher_radius::attribute::kind;

fn limited() -> Config {
    let mut all = Users::new(&mut Seed::new(1).secure("users", 0));
    let mut user = User::with_password(b"x");
    (user.simultaneous, user.pool) = (Some(1), Some("main".into()));
    all.insert(b"ann", user);
    aaa_config(Arc::new(all))
}

fn admission(p: &mut Pair, admission: Admission) {
    let Some(Event::Admit { token, request }) = p.server.poll_event() else { panic!("not asked") };
    assert_eq!((request.user.as_str(), request.simultaneous), ("ann", Some(1)));
    assert_eq!(request.pool.as_deref(), Some("main"));
    p.server.command(NEVER, Command::Admitted { token, admission }).unwrap();
    p.settle(NEVER);
}

#[test]
fn limits_are_asked_about_and_addresses_given() {
    let mut p = Pair::new(limited());
    p.ask_pap(1, b"ann", b"x");
    assert_eq!(p.answer(), None);
    let address = Ipv4Addr::new(10, 9, 8, 7);
    admission(&mut p, Admission::Yes { address: Some(IpAddr::V4(address)), prefix: None });
    let reply = p.reply().unwrap();
    assert_eq!(reply.code, Code::ACCESS_ACCEPT);
    assert_eq!(reply.attributes.get_ipv4(kind::FRAMED_IP_ADDRESS), Some(address));
    assert!(matches!(p.server.poll_event(), Some(Event::Accepted(_))));

    p.ask_pap(2, b"ann", b"x");
    let refusal = Refusal::TooManySessions { allowed: 1 };
    admission(&mut p, Admission::No(refusal));
    assert_eq!(p.answer().unwrap().1, Code::ACCESS_REJECT);
    let Some(Event::Rejected(login)) = p.server.poll_event() else { panic!("not rejected") };
    assert_eq!(login.reason, Some(Reason::Limit(refusal)));

    p.ask_pap(3, b"ann", b"x");
    admission(&mut p, Admission::Unavailable);
    assert_eq!((p.answer(), p.server.counters().unavailable), (None, 1));
    assert_eq!((p.server.half_open(), p.server.counters().rejected_simultaneous), (0, 1));
    // Who cannot prove anything is not asked about.
    p.ask_pap(4, b"ann", b"wrong");
    assert_eq!(p.answer().unwrap().1, Code::ACCESS_REJECT);
}

#[test]
fn rejects_are_held_back_up_to_a_number() {
    let mut config = aaa_config(users(Seed::new(1), 0));
    (config.reject_delay, config.max_held) = (Duration::from_secs(1), 2);
    let mut p = Pair::new(config);
    p.ask_pap(1, b"a", b"x");
    p.ask_pap(2, b"b", b"x");
    assert_eq!((p.answer(), p.server.held()), (None, 2));
    // No room: the one held longest goes out early.
    p.ask_pap(3, b"c", b"x");
    assert_eq!(p.answer().unwrap().0, 1);
    assert_eq!((p.answer(), p.server.held(), p.server.counters().unheld), (None, 2, 1));
    let due = Instant::ZERO + Duration::from_secs(1);
    assert!(p.server.poll_timeout().is_some_and(|at| at <= due));
    p.server.handle(due, Input::Timeout);
    p.settle(due);
    assert_eq!((p.answer().unwrap().0, p.answer().unwrap().0, p.answer()), (2, 3, None));
}

#[test]
fn an_accounting_request_is_answered_when_its_record_is_durable() {
    let mut p = Pair::new(aaa_config(users(Seed::new(1), 0)));
    let ask = |p: &mut Pair, token| {
        p.ask(token, Code::ACCOUNTING_REQUEST, |a| {
            a.push_u32(kind::ACCT_STATUS_TYPE, 1).push_text(kind::ACCT_SESSION_ID, "1").unwrap();
            a.push_text(kind::USER_NAME, "ann").unwrap();
        });
        let Some(Event::Account { token, record }) = p.server.poll_event() else { panic!("not asked") };
        assert_eq!((record.session.id.as_str(), record.session.user.as_str()), ("1", "ann"));
        token
    };
    let token = ask(&mut p, 1);
    assert_eq!(p.answer(), None);
    p.server.command(NEVER, Command::Accounted { token, durable: true }).unwrap();
    p.settle(NEVER);
    assert_eq!(p.answer().unwrap().1, Code::ACCOUNTING_RESPONSE);
    let token = ask(&mut p, 2);
    p.server.command(NEVER, Command::Accounted { token, durable: false }).unwrap();
    p.settle(NEVER);
    assert_eq!((p.answer(), p.server.counters().unavailable), (None, 1));
    assert_eq!((p.server.counters().accounting, p.server.counters().accounted), (2, 1));
}
