//! What the host says about logins that everything else speaks for, and rejects that are held back.

use crate::build::{PASSWORD, aaa_config, secret, user_name, users};
use crate::pair::{NEVER, Pair};
use crate::world::{nas_address, server_address};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use usher_aaa::{
    Admission, Command, Config, Event, Job, Method, Reason, Refusal, ShardConfig, ShardKey, User, Users,
    radius_socket, shard_of,
};
use usher_core::bench::Tap;
use usher_core::{Duration, Input, Instant, Machine, Path, Seed, Transmit};
use usher_crypto::digest::md5;
use usher_radius::attribute::kind;
use usher_radius::client::{self, Client, ServerConfig, Target};
use usher_radius::server::ClientConfig;
use usher_radius::{Attributes, Code};

fn limited() -> Config {
    let mut all = Users::new(&mut Seed::new(1).secure("users", 0));
    let mut user = User::with_password(b"x");
    (user.simultaneous, user.pool) = (Some(1), Some("main".into()));
    all.insert(b"ann", user);
    aaa_config(Arc::new(all))
}

fn admission(p: &mut Pair, admission: Admission) {
    let Some(usher_core::Job { token, what: Job::Admit { request, .. }, .. }) = p.server.poll_job() else {
        panic!("not asked")
    };
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

/// Found in the field: a user whose reply fits no packet kept a session and an address until the hold was over, try after try.
#[test]
fn a_reply_that_fits_no_packet_takes_nothing_of_the_ledgers() {
    let user = |octets: usize| {
        let mut user = User::with_password(b"x");
        (user.simultaneous, user.pool) = (Some(1), Some("main".into()));
        for _ in 0..octets / 250 {
            user.reply.push_bytes(kind::REPLY_MESSAGE, &[b'x'; 248]).unwrap();
        }
        user
    };
    let mut all = Users::new(&mut Seed::new(1).secure("users", 0));
    all.insert(b"talkative", user(5000));
    all.insert(b"ann", user(3500));
    let mut p = Pair::new(aaa_config(Arc::new(all)));
    p.ask_pap(1, b"talkative", b"x");
    assert!(p.server.poll_job().is_none(), "the ledger is not asked");
    assert_eq!(p.answer().unwrap().1, Code::ACCESS_REJECT);
    let Some(Event::Rejected(login)) = p.server.poll_event() else { panic!("not rejected") };
    assert_eq!((login.reason, login.method), (Some(Reason::ReplyTooLong), Some(Method::Pap)));
    assert!(login.detail.is_some_and(|detail| detail.starts_with("it has 5038 octets")));
    // One that fits beside what the pool gives is let in.
    p.ask_pap(2, b"ann", b"x");
    let address = Some(IpAddr::V4(Ipv4Addr::new(10, 9, 8, 7)));
    admission(&mut p, Admission::Yes { address, prefix: None });
    assert_eq!(p.answer().unwrap().1, Code::ACCESS_ACCEPT);
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
        let Some(usher_core::Job { token, what: Job::Account { record }, .. }) = p.server.poll_job() else {
            panic!("not asked")
        };
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

/// Sends beginnings of EAP conversations from another access server than the pair's.
fn flood(p: &mut Pair, flooder: &mut Tap<Client>, tokens: Range<u64>) {
    let near = SocketAddr::new(nas_address(1), 50_000);
    let far = SocketAddr::new(server_address(0), 1812);
    let mut buf = Vec::new();
    for token in tokens {
        let mut attributes = Attributes::new();
        attributes.push_bytes(kind::USER_NAME, &user_name(0)).unwrap().push_eap(&identity(&user_name(0)));
        let code = Code::ACCESS_REQUEST;
        let request = client::Command::Request { token, target: Target::Server(0), code, attributes };
        flooder.command(NEVER, request).unwrap();
        while let Some(Transmit::Datagram { path }) = flooder.poll_transmit(&mut buf) {
            let remote = SocketAddr::new(near.ip(), near.port() + path.socket.n as u16);
            let path = Path { socket: radius_socket(0), local: far, remote };
            p.server.handle(NEVER, Input::Datagram { path, data: &buf });
            while p.server.poll_transmit(&mut buf).is_some() {}
        }
    }
}

fn identity(name: &[u8]) -> Vec<u8> {
    let mut packet = vec![2, 1, 0, 5 + name.len() as u8, 1];
    packet.extend_from_slice(name);
    packet
}

/// The reply's EAP-MD5 challenge answered: State and the response.
fn respond(reply: &client::Response, password: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut eap = Vec::new();
    assert!(reply.code == Code::ACCESS_CHALLENGE && reply.attributes.eap(&mut eap));
    assert_eq!((eap[0], eap[4], eap[5]), (1, 4, 16));
    let value = md5(&[&[eap[1]], password, &eap[6..22]]);
    let mut response = vec![2, eap[1], 0, 22, 4, 16];
    response.extend_from_slice(&value);
    (reply.attributes.get(kind::STATE).unwrap().to_vec(), response)
}

#[test]
fn a_flood_from_one_access_server_costs_another_no_login() {
    const ROOM: usize = 64;
    let logins = 16;
    let mut config = aaa_config(users(Seed::new(1), logins));
    config.max_half_open = ROOM;
    let mut p = Pair::new(config);
    let to = ServerConfig::new(SocketAddr::new(server_address(0), 1812), secret());
    let mut config = client::Config::single(to);
    config.max_sockets = 100;
    let mut flooder = Tap::new(Client::new(config, Seed::new(9).secure("flood", 0)).unwrap());
    flood(&mut p, &mut flooder, 0..1000);
    assert_eq!(p.server.half_open(), ROOM);
    let mut states = Vec::new();
    for i in 0..logins {
        p.ask(i as u64, Code::ACCESS_REQUEST, |a| {
            let name = user_name(i);
            a.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&identity(&name));
        });
        states.push(respond(&p.reply().unwrap(), PASSWORD));
        let sent = 1000 + 500 * i as u64;
        flood(&mut p, &mut flooder, sent..sent + 500);
    }
    assert_eq!(p.server.half_open(), ROOM);
    for (i, (state, response)) in states.iter().enumerate() {
        p.ask(100 + i as u64, Code::ACCESS_REQUEST, |a| {
            a.push_bytes(kind::USER_NAME, &user_name(i)).unwrap().push_eap(response);
            a.push_bytes(kind::STATE, state).unwrap();
        });
        assert_eq!(p.answer().unwrap().1, Code::ACCESS_ACCEPT, "login {i}");
        let sent = 10_000 + 100 * i as u64;
        flood(&mut p, &mut flooder, sent..sent + 100);
    }
    let c = p.server.counters();
    assert_eq!(c.accepted_eap_md5, logins as u64);
    assert!(c.evicted > 9_000, "{}", c.evicted);
}

#[test]
fn a_login_under_way_goes_on_over_a_reload() {
    let mut config = aaa_config(users(Seed::new(1), 1));
    config.shard = Some(ShardConfig { number: 3, key: ShardKey::new(&[7; 16]) });
    let mut p = Pair::new(config.clone());
    let name = user_name(0);
    p.ask(1, Code::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&identity(&name));
    });
    let (state, response) = respond(&p.reply().unwrap(), PASSWORD);
    // The client stands elsewhere in the list now, and nobody may use PAP any more.
    let radius = config.radius.as_mut().unwrap();
    radius.clients.insert(0, ClientConfig::new(Ipv4Addr::new(192, 0, 2, 1).into(), 32, secret()));
    config.methods = vec![Method::EapMd5];
    p.server.command(NEVER, Command::Reload(Box::new(config.clone()))).unwrap();
    p.ask(2, Code::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&response);
        a.push_bytes(kind::STATE, &state).unwrap();
    });
    assert_eq!(p.answer().unwrap().1, Code::ACCESS_ACCEPT);
    p.ask_pap(3, &name, PASSWORD);
    assert_eq!((p.answer().unwrap().1, p.server.counters().rejected_no_method), (Code::ACCESS_REJECT, 1));
    // A configuration that contradicts itself changes nothing.
    let radius = config.radius.as_mut().unwrap();
    radius.clients.push(radius.clients[0].clone());
    assert!(p.server.command(NEVER, Command::Reload(Box::new(config))).is_err());
    p.ask_pap(4, &name, PASSWORD);
    assert_eq!(p.answer().unwrap().1, Code::ACCESS_REJECT);
}

#[test]
fn another_shards_conversation_is_recognised_by_its_state() {
    let mut config = aaa_config(users(Seed::new(1), 1));
    let key = ShardKey::new(&[7; 16]);
    config.shard = Some(ShardConfig { number: 3, key: key.clone() });
    let mut p = Pair::new(config);
    let name = user_name(0);
    p.ask(1, Code::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&identity(&name));
    });
    let (state, response) = respond(&p.reply().unwrap(), PASSWORD);
    let mut attributes = Attributes::new();
    attributes.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&response);
    attributes.push_bytes(kind::STATE, &state).unwrap();
    let request = client::Command::Request {
        token: 2,
        target: Target::Server(0),
        code: Code::ACCESS_REQUEST,
        attributes,
    };
    p.client.command(NEVER, request).unwrap();
    let mut buf = Vec::new();
    assert!(p.client.poll_transmit(&mut buf).is_some());
    assert_eq!((shard_of(&key, &buf), shard_of(&ShardKey::new(&[8; 16]), &buf)), (Some(3), None));
}
