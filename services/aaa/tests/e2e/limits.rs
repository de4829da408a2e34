//! The host's limits for logins with a right proof, and delayed rejects.

use crate::build::{PASSWORD, aaa_config, shared_secret, test_users, user_name};
use crate::pair::{ClientServerPair, NEVER};
use crate::world::{nas_address, server_address};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use usher_aaa::{
    AaaServerCommand, AaaServerConfig, AaaServerEvent, AaaServerJob, AdmissionRefusal, AdmissionVerdict,
    AuthMethod, InterShardKey, RejectCause, ShardConfig, User, UserDirectory, radius_socket,
    shard_for_datagram,
};
use usher_core::bench::TestMachine;
use usher_core::{DatagramPath, Duration, Instant, Machine, MachineInput, Seed, Transmit};
use usher_crypto::digest::md5;
use usher_radius::attribute::kind;
use usher_radius::client::{self, RadiusClient, RequestTarget, ServerConfig};
use usher_radius::server::ClientConfig;
use usher_radius::{AttributeList, PacketCode};

fn limited_config() -> AaaServerConfig {
    let mut all = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
    let mut user = User::with_password(b"x");
    (user.simultaneous, user.pool) = (Some(1), Some("main".into()));
    all.insert(b"ann", user);
    aaa_config(Arc::new(all))
}

fn answer_admission(p: &mut ClientServerPair, admission: AdmissionVerdict) {
    let Some(usher_core::JobRequest { token, job: AaaServerJob::Admit { request, .. }, .. }) =
        p.server.poll_job()
    else {
        panic!("not asked")
    };
    assert_eq!((request.user.as_str(), request.simultaneous), ("ann", Some(1)));
    assert_eq!(request.pool.as_deref(), Some("main"));
    p.server.handle_command(NEVER, AaaServerCommand::Admitted { token, admission }).unwrap();
    p.deliver_all(NEVER);
}

#[test]
fn limits_are_asked_about_and_addresses_given() {
    let mut p = ClientServerPair::new(limited_config());
    p.send_pap_request(1, b"ann", b"x");
    assert_eq!(p.next_answer(), None);
    let address = Ipv4Addr::new(10, 9, 8, 7);
    answer_admission(&mut p, AdmissionVerdict::Yes { address: Some(IpAddr::V4(address)), prefix: None });
    let reply = p.next_reply().unwrap();
    assert_eq!(reply.code, PacketCode::ACCESS_ACCEPT);
    assert_eq!(reply.attributes.get_ipv4(kind::FRAMED_IP_ADDRESS), Some(address));
    assert!(matches!(p.server.poll_event(), Some(AaaServerEvent::Accepted(_))));

    p.send_pap_request(2, b"ann", b"x");
    let refusal = AdmissionRefusal::TooManySessions { allowed: 1 };
    answer_admission(&mut p, AdmissionVerdict::No(refusal));
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT);
    let Some(AaaServerEvent::Rejected(login)) = p.server.poll_event() else { panic!("not rejected") };
    assert_eq!(login.reason, Some(RejectCause::Limit(refusal)));

    p.send_pap_request(3, b"ann", b"x");
    answer_admission(&mut p, AdmissionVerdict::Unavailable);
    assert_eq!((p.next_answer(), p.server.counters().unavailable), (None, 1));
    assert_eq!((p.server.half_open(), p.server.counters().rejected_simultaneous), (0, 1));
    // A login without a right proof is not checked.
    p.send_pap_request(4, b"ann", b"wrong");
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT);
}

/// A user whose reply did not fit a packet used to keep a session and an address until the hold was over, at each
/// attempt.
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
    let mut all = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
    all.insert(b"talkative", user(5000));
    all.insert(b"ann", user(3500));
    let mut p = ClientServerPair::new(aaa_config(Arc::new(all)));
    p.send_pap_request(1, b"talkative", b"x");
    assert!(p.server.poll_job().is_none(), "the ledger is not asked");
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT);
    let Some(AaaServerEvent::Rejected(login)) = p.server.poll_event() else { panic!("not rejected") };
    assert_eq!((login.reason, login.method), (Some(RejectCause::ReplyTooLong), Some(AuthMethod::Pap)));
    assert!(login.detail.is_some_and(|detail| detail.starts_with("it has 5038 octets")));
    // A reply that fits with the lease is accepted.
    p.send_pap_request(2, b"ann", b"x");
    let address = Some(IpAddr::V4(Ipv4Addr::new(10, 9, 8, 7)));
    answer_admission(&mut p, AdmissionVerdict::Yes { address, prefix: None });
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_ACCEPT);
}

#[test]
fn rejects_are_held_back_up_to_a_number() {
    let mut config = aaa_config(test_users(Seed::new(1), 0));
    (config.reject_delay, config.max_delayed_rejects) = (Duration::from_secs(1), 2);
    let mut p = ClientServerPair::new(config);
    p.send_pap_request(1, b"a", b"x");
    p.send_pap_request(2, b"b", b"x");
    assert_eq!((p.next_answer(), p.server.delayed_reject_count()), (None, 2));
    // The queue is full: the oldest reject goes out early.
    p.send_pap_request(3, b"c", b"x");
    assert_eq!(p.next_answer().unwrap().0, 1);
    assert_eq!((p.next_answer(), p.server.delayed_reject_count(), p.server.counters().unheld), (None, 2, 1));
    let due = Instant::ZERO + Duration::from_secs(1);
    assert!(p.server.poll_timeout().is_some_and(|at| at <= due));
    p.server.handle_input(due, MachineInput::Timeout);
    p.deliver_all(due);
    assert_eq!((p.next_answer().unwrap().0, p.next_answer().unwrap().0, p.next_answer()), (2, 3, None));
}

#[test]
fn an_accounting_request_is_answered_when_its_record_is_durable() {
    let mut p = ClientServerPair::new(aaa_config(test_users(Seed::new(1), 0)));
    let ask = |p: &mut ClientServerPair, token| {
        p.send_request(token, PacketCode::ACCOUNTING_REQUEST, |a| {
            a.push_u32(kind::ACCT_STATUS_TYPE, 1).push_text(kind::ACCT_SESSION_ID, "1").unwrap();
            a.push_text(kind::USER_NAME, "ann").unwrap();
        });
        let Some(usher_core::JobRequest { token, job: AaaServerJob::Account { record }, .. }) =
            p.server.poll_job()
        else {
            panic!("not asked")
        };
        assert_eq!((record.session.id.as_str(), record.session.user.as_str()), ("1", "ann"));
        token
    };
    let token = ask(&mut p, 1);
    assert_eq!(p.next_answer(), None);
    p.server.handle_command(NEVER, AaaServerCommand::Accounted { token, durable: true }).unwrap();
    p.deliver_all(NEVER);
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCOUNTING_RESPONSE);
    let token = ask(&mut p, 2);
    p.server.handle_command(NEVER, AaaServerCommand::Accounted { token, durable: false }).unwrap();
    p.deliver_all(NEVER);
    assert_eq!((p.next_answer(), p.server.counters().unavailable), (None, 1));
    assert_eq!((p.server.counters().accounting, p.server.counters().accounted), (2, 1));
}

/// Sends first EAP packets from another access server.
fn flood_server(p: &mut ClientServerPair, flooder: &mut TestMachine<RadiusClient>, tokens: Range<u64>) {
    let near = SocketAddr::new(nas_address(1), 50_000);
    let far = SocketAddr::new(server_address(0), 1812);
    let mut buf = Vec::new();
    for token in tokens {
        let mut attributes = AttributeList::new();
        attributes
            .push_bytes(kind::USER_NAME, &user_name(0))
            .unwrap()
            .push_eap(&identity_response(&user_name(0)));
        let code = PacketCode::ACCESS_REQUEST;
        let request = client::RadiusClientCommand::Request {
            token,
            target: RequestTarget::Server(0),
            code,
            attributes,
        };
        flooder.handle_command(NEVER, request).unwrap();
        while let Some(Transmit::Datagram { path }) = flooder.poll_transmit(&mut buf) {
            let remote = SocketAddr::new(near.ip(), near.port() + path.socket.n as u16);
            let path = DatagramPath { socket: radius_socket(0), local: far, remote };
            p.server.handle_input(NEVER, MachineInput::Datagram { path, data: &buf });
            while p.server.poll_transmit(&mut buf).is_some() {}
        }
    }
}

fn identity_response(name: &[u8]) -> Vec<u8> {
    let mut packet = vec![2, 1, 0, 5 + name.len() as u8, 1];
    packet.extend_from_slice(name);
    packet
}

/// Answers the reply's EAP-MD5 challenge. Returns State and response.
fn answer_challenge(reply: &client::RadiusReply, password: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut eap = Vec::new();
    assert!(reply.code == PacketCode::ACCESS_CHALLENGE && reply.attributes.read_eap_packet(&mut eap));
    assert_eq!((eap[0], eap[4], eap[5]), (1, 4, 16));
    let value = md5(&[&[eap[1]], password, &eap[6..22]]);
    let mut response = vec![2, eap[1], 0, 22, 4, 16];
    response.extend_from_slice(&value);
    (reply.attributes.get(kind::STATE).unwrap().to_vec(), response)
}

#[test]
fn a_flood_from_one_access_server_costs_another_no_login() {
    const HALF_OPEN_LIMIT: usize = 64;
    let logins = 16;
    let mut config = aaa_config(test_users(Seed::new(1), logins));
    config.max_half_open = HALF_OPEN_LIMIT;
    let mut p = ClientServerPair::new(config);
    let to = ServerConfig::new(SocketAddr::new(server_address(0), 1812), shared_secret());
    let mut config = client::RadiusClientConfig::for_server(to);
    config.max_sockets = 100;
    let mut flooder =
        TestMachine::new(RadiusClient::new(config, Seed::new(9).derive_secure_rng("flood", 0)).unwrap());
    flood_server(&mut p, &mut flooder, 0..1000);
    assert_eq!(p.server.half_open(), HALF_OPEN_LIMIT);
    let mut states = Vec::new();
    for i in 0..logins {
        p.send_request(i as u64, PacketCode::ACCESS_REQUEST, |a| {
            let name = user_name(i);
            a.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&identity_response(&name));
        });
        states.push(answer_challenge(&p.next_reply().unwrap(), PASSWORD));
        let sent = 1000 + 500 * i as u64;
        flood_server(&mut p, &mut flooder, sent..sent + 500);
    }
    assert_eq!(p.server.half_open(), HALF_OPEN_LIMIT);
    for (i, (state, response)) in states.iter().enumerate() {
        p.send_request(100 + i as u64, PacketCode::ACCESS_REQUEST, |a| {
            a.push_bytes(kind::USER_NAME, &user_name(i)).unwrap().push_eap(response);
            a.push_bytes(kind::STATE, state).unwrap();
        });
        assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_ACCEPT, "login {i}");
        let sent = 10_000 + 100 * i as u64;
        flood_server(&mut p, &mut flooder, sent..sent + 100);
    }
    let c = p.server.counters();
    assert_eq!(c.accepted_eap_md5, logins as u64);
    assert!(c.evicted > 9_000, "{}", c.evicted);
}

#[test]
fn a_login_under_way_goes_on_over_a_reload() {
    let mut config = aaa_config(test_users(Seed::new(1), 1));
    config.shard = Some(ShardConfig { number: 3, key: InterShardKey::new(&[7; 16]) });
    let mut p = ClientServerPair::new(config.clone());
    let name = user_name(0);
    p.send_request(1, PacketCode::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&identity_response(&name));
    });
    let (state, response) = answer_challenge(&p.next_reply().unwrap(), PASSWORD);
    // The client has another index now, and PAP is no longer allowed.
    let radius = config.radius.as_mut().unwrap();
    radius.clients.insert(0, ClientConfig::new(Ipv4Addr::new(192, 0, 2, 1).into(), 32, shared_secret()));
    config.methods = vec![AuthMethod::EapMd5];
    p.server.handle_command(NEVER, AaaServerCommand::Reload(Box::new(config.clone()))).unwrap();
    p.send_request(2, PacketCode::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&response);
        a.push_bytes(kind::STATE, &state).unwrap();
    });
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_ACCEPT);
    p.send_pap_request(3, &name, PASSWORD);
    assert_eq!(
        (p.next_answer().unwrap().1, p.server.counters().rejected_no_method),
        (PacketCode::ACCESS_REJECT, 1)
    );
    // A contradictory configuration changes nothing.
    let radius = config.radius.as_mut().unwrap();
    radius.clients.push(radius.clients[0].clone());
    assert!(p.server.handle_command(NEVER, AaaServerCommand::Reload(Box::new(config))).is_err());
    p.send_pap_request(4, &name, PASSWORD);
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT);
}

#[test]
fn another_shards_conversation_is_recognised_by_its_state() {
    let mut config = aaa_config(test_users(Seed::new(1), 1));
    let key = InterShardKey::new(&[7; 16]);
    config.shard = Some(ShardConfig { number: 3, key: key.clone() });
    let mut p = ClientServerPair::new(config);
    let name = user_name(0);
    p.send_request(1, PacketCode::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&identity_response(&name));
    });
    let (state, response) = answer_challenge(&p.next_reply().unwrap(), PASSWORD);
    let mut attributes = AttributeList::new();
    attributes.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&response);
    attributes.push_bytes(kind::STATE, &state).unwrap();
    let request = client::RadiusClientCommand::Request {
        token: 2,
        target: RequestTarget::Server(0),
        code: PacketCode::ACCESS_REQUEST,
        attributes,
    };
    p.client.handle_command(NEVER, request).unwrap();
    let mut buf = Vec::new();
    assert!(p.client.poll_transmit(&mut buf).is_some());
    assert_eq!(
        (shard_for_datagram(&key, &buf), shard_for_datagram(&InterShardKey::new(&[8; 16]), &buf)),
        (Some(3), None)
    );
}
