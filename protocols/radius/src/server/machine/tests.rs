use super::*;
use crate::client::RadiusClient;
use crate::testing::*;
use core::net::SocketAddr;
use usher_core::WorkRecord;
use usher_core::bench::TestMachine;

fn request_packet(c: &mut TestMachine<RadiusClient>, code: PacketCode, attributes: AttributeList) -> Vec<u8> {
    let token = c.counters().requests;
    send_request(c, at_seconds(0.0), token, code, attributes);
    sent_datagrams(c).remove(0).1
}
fn next_request(s: &mut TestMachine<RadiusServer>) -> Option<RadiusRequest> {
    s.poll_event().map(|RadiusServerEvent::Request(r)| r)
}
fn accept_request(s: &mut RadiusServer, now: Instant, token: u64) -> Result<(), CommandError> {
    s.handle_command(
        now,
        RadiusServerCommand::Respond {
            token,
            code: PacketCode::ACCESS_ACCEPT,
            attributes: AttributeList::new(),
        },
    )
}

#[test]
fn duplicates_are_dropped_in_progress_and_answered_alike_after() {
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|_| {}));
    let request = request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes());
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &request);
    deliver_datagram(&mut s, at_seconds(0.1), NEAR, &request);
    let r = next_request(&mut s).unwrap();
    assert!(next_request(&mut s).is_none());
    accept_request(&mut s, at_seconds(1.0), r.token).unwrap();
    let first = sent_datagrams(&mut s);
    deliver_datagram(&mut s, at_seconds(5.9), NEAR, &request);
    assert_eq!(sent_datagrams(&mut s), first);
    assert_eq!((s.counters().duplicates_dropped, s.counters().duplicates_answered), (1, 1));
    assert!(matches!(accept_request(&mut s, at_seconds(5.9), r.token), Err(CommandError::WrongState(_))));
    deliver_datagram(&mut s, at_seconds(6.0), NEAR, &request);
    assert!(next_request(&mut s).is_some(), "kept for five seconds, no longer");
    let mut now = at_seconds(6.0);
    while let Some(next) = s.poll_timeout() {
        now = next;
        s.handle_input(now, MachineInput::Timeout);
    }
    assert_eq!((s.entry_count(), s.counters().expired), (0, 1));
    assert!(now >= at_seconds(36.0));
}

#[test]
fn another_source_port_is_another_request() {
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|_| {}));
    let request = request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes());
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &request);
    deliver_datagram(&mut s, at_seconds(0.0), "10.0.0.1:5001", &request);
    assert_eq!(s.counters().requests, 2);
}

#[test]
fn a_new_authenticator_supersedes_and_a_discard_stays_silent() {
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|_| {}));
    let first = request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes());
    let mut second = first.clone();
    second[4] ^= 1;
    second[22..38].fill(0);
    auth::sign_request(&mut second, true, &test_secret());
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &first);
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &second);
    let (old, new) = (next_request(&mut s).unwrap(), next_request(&mut s).unwrap());
    assert_eq!(accept_request(&mut s, at_seconds(0.0), old.token), Err(CommandError::UnknownToken));
    s.handle_command(at_seconds(0.0), RadiusServerCommand::Discard { token: new.token }).unwrap();
    deliver_datagram(&mut s, at_seconds(0.1), NEAR, &second);
    assert!(sent_datagrams(&mut s).is_empty() && next_request(&mut s).is_none());
    let n = s.counters();
    assert_eq!((n.superseded, n.discarded, n.duplicates_dropped), (1, 1, 1));
}

#[test]
fn the_cache_is_bounded() {
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|c| c.max_entries = 2));
    for _ in 0..2 {
        deliver_datagram(
            &mut s,
            at_seconds(0.0),
            NEAR,
            &request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes()),
        );
    }
    deliver_datagram(
        &mut s,
        at_seconds(0.0),
        NEAR,
        &request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes()),
    );
    assert_eq!((s.counters().overload, s.entry_count()), (1, 2));
    let token = next_request(&mut s).unwrap().token;
    accept_request(&mut s, at_seconds(0.0), token).unwrap();
    deliver_datagram(
        &mut s,
        at_seconds(0.0),
        NEAR,
        &request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes()),
    );
    assert_eq!((s.counters().evicted, s.counters().requests, s.entry_count()), (1, 3, 2));
}

#[test]
fn the_cache_is_bounded_in_octets() {
    const CAPACITY: usize = 100_000;
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|c| c.max_bytes = CAPACITY));
    for port in 0..1000_u16 {
        let p = request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes());
        deliver_datagram(&mut s, at_seconds(0.0), &format!("10.0.0.1:{}", 5000 + port), &p);
        let token = next_request(&mut s).unwrap().token;
        accept_request(&mut s, at_seconds(0.0), token).unwrap();
    }
    let (entries, evicted) = (s.entry_count(), s.counters().evicted);
    assert_eq!((entries as u64 + evicted, s.counters().overload), (1000, 0));
    assert!((CAPACITY / 600..CAPACITY / 200).contains(&entries), "{entries}");
    // Expired replies free all their memory.
    s.handle_input(at_seconds(10.0), MachineInput::Timeout);
    assert_eq!(s.entry_count(), 0);
    for port in 0..100_u16 {
        let p = request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes());
        deliver_datagram(&mut s, at_seconds(11.0), &format!("10.0.0.1:{}", 5000 + port), &p);
    }
    assert_eq!((s.entry_count(), s.counters().overload), (100, 0));
}

#[test]
fn each_bad_request_is_counted_by_its_kind_and_dropped() {
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|_| {}));
    let good = request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes());
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &good[..19]);
    deliver_datagram(&mut s, at_seconds(0.0), "192.0.2.1:5000", &good);
    let mut other = good.clone();
    other[0] = 2;
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &other);
    other = good.clone();
    other[25] ^= 1;
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &other);
    other = good[..20].to_vec();
    other[3] = 20;
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &other);
    let mut accounting = AttributeList::new();
    accounting.push_u32(kind::ACCT_STATUS_TYPE, 1);
    let mut other = request_packet(&mut c, PacketCode::ACCOUNTING_REQUEST, accounting);
    other[7] ^= 1;
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &other);
    s.handle_input(at_seconds(0.0), MachineInput::Frame { port: usher_core::LinkLayerPortId(0), data: &[] });
    let n = *s.counters();
    assert_eq!(
        [
            n.malformed,
            n.unknown_client,
            n.wrong_code,
            n.bad_message_authenticator,
            n.missing_message_authenticator,
            n.bad_authenticator,
            n.not_a_datagram
        ],
        [1; 7]
    );
    let near = NEAR.parse::<SocketAddr>().ok().map(|address| (at_seconds(0.0), address.ip()));
    let sources = LatestDropSources {
        malformed: near,
        unknown_client: Some((at_seconds(0.0), "192.0.2.1".parse().unwrap())),
        wrong_code: near,
        bad_authenticator: near,
        bad_message_authenticator: near,
        missing_message_authenticator: near,
    };
    assert_eq!(*s.drop_sources(), sources);
    let later =
        LatestDropSources { malformed: Some((at_seconds(1.0), "10.0.0.9".parse().unwrap())), ..sources };
    for (mut one, other) in [(sources, later), (later, sources)] {
        one.merge_counters_by_maximum(&other);
        assert_eq!(one, later);
    }
    assert_eq!((n.total(), s.entry_count()), (7, 0));
}

/// A CHAP-Password.
const CHAP: [u8; 19] = [3, 19, 1, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7];

/// An Access-Request with only these attributes.
fn unsigned_request(identifier: u8, body: &[u8]) -> Vec<u8> {
    let mut p = vec![1, identifier, 0, 20 + body.len() as u8];
    p.resize(20, 9);
    p.extend(body);
    p
}

#[test]
fn without_the_policy_eap_still_needs_its_message_authenticator() {
    let mut s = radius_server_with(|c| c.clients[0].message_authenticator = MessageAuthenticatorPolicy::Off);
    for (id, body) in [(1, &CHAP[..]), (2, &[79, 6, 2, 1, 0, 4])] {
        deliver_datagram(&mut s, at_seconds(0.0), NEAR, &unsigned_request(id, body));
    }
    assert_eq!((s.counters().requests, s.counters().missing_message_authenticator), (1, 1));
}

#[test]
fn status_server_is_answered_by_role_and_verifies_at_the_client() {
    for (role, code) in [
        (PortRole::Authentication, PacketCode::ACCESS_ACCEPT),
        (PortRole::Both, PacketCode::ACCESS_ACCEPT),
        (PortRole::Accounting, PacketCode::ACCOUNTING_RESPONSE),
    ] {
        let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|c| c.role = role));
        let request = request_packet(&mut c, PacketCode::STATUS_SERVER, AttributeList::new());
        deliver_datagram(&mut s, at_seconds(0.0), NEAR, &request);
        assert!(next_request(&mut s).is_none());
        deliver_datagram(&mut c, at_seconds(0.0), FAR, &sent_datagrams(&mut s)[0].1);
        let Some(crate::client::RadiusClientEvent::Response(r)) = c.poll_event() else {
            panic!("no response")
        };
        assert_eq!(r.code, code);
    }
}

#[test]
fn proxy_state_comes_back_in_order() {
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|_| {}));
    let mut a = user_attributes();
    a.push_bytes(kind::PROXY_STATE, b"one").unwrap().push_bytes(kind::PROXY_STATE, b"two").unwrap();
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &request_packet(&mut c, PacketCode::ACCESS_REQUEST, a));
    let token = next_request(&mut s).unwrap().token;
    accept_request(&mut s, at_seconds(0.0), token).unwrap();
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &sent_datagrams(&mut s)[0].1);
    let Some(crate::client::RadiusClientEvent::Response(r)) = c.poll_event() else { panic!("no response") };
    assert_eq!(r.attributes.get_all(kind::PROXY_STATE).collect::<Vec<_>>(), [b"one", b"two"]);
}

#[test]
fn work_is_told_per_message() {
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|_| {}));
    let request = request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes());
    assert_eq!(c.poll_work(), Some(WorkRecord { label: crate::work::REQUEST, units: 1 }));
    assert_eq!(c.poll_work(), None);
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &request);
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &request);
    assert_eq!(s.poll_work(), Some(WorkRecord { label: crate::work::REQUEST, units: 2 }));
    let token = next_request(&mut s).unwrap().token;
    accept_request(&mut s, at_seconds(0.0), token).unwrap();
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &sent_datagrams(&mut s)[0].1);
    assert_eq!(s.poll_work(), Some(WorkRecord { label: crate::work::RESPONSE, units: 1 }));
    assert_eq!(c.poll_work(), Some(WorkRecord { label: crate::work::RESPONSE, units: 1 }));
}

fn receive_on_socket(s: &mut RadiusServer, socket: u32, from: &str, data: &[u8]) {
    let path = DatagramPath {
        socket: usher_core::SocketId::from_number(socket),
        local: FAR.parse().unwrap(),
        remote: from.parse().unwrap(),
    };
    s.handle_input(at_seconds(0.0), MachineInput::Datagram { path, data });
}

#[test]
fn each_socket_has_its_role() {
    let roles = vec![PortRole::Authentication, PortRole::Accounting, PortRole::DynamicAuthorization];
    let codes = [
        PacketCode::ACCESS_REQUEST,
        PacketCode::ACCOUNTING_REQUEST,
        PacketCode::COA_REQUEST,
        PacketCode::DISCONNECT_REQUEST,
    ];
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|c| c.roles = roles));
    let packets: Vec<_> = codes.iter().map(|&code| request_packet(&mut c, code, user_attributes())).collect();
    let mut taken_by = Vec::new();
    for socket in 0..4 {
        for p in &packets {
            receive_on_socket(&mut s, socket, NEAR, p);
        }
        while let Some(r) = next_request(&mut s) {
            taken_by.push((socket, r.code.0));
        }
    }
    assert_eq!(taken_by, [(0, 1), (1, 4), (2, 43), (2, 40), (3, 1), (3, 4)]);
    assert_eq!(s.counters().wrong_code, 10);
    receive_on_socket(
        &mut s,
        2,
        NEAR,
        &request_packet(&mut c, PacketCode::STATUS_SERVER, AttributeList::new()),
    );
    let mut unknown = packets[0].clone();
    unknown[0] = 99;
    receive_on_socket(&mut s, 0, NEAR, &unknown);
    assert_eq!((s.counters().status, s.counters().wrong_code, s.counters().unknown_code), (0, 11, 1));
}

#[test]
fn dynamic_authorization_is_answered_and_forgeries_are_dropped() {
    let (mut c, mut s) =
        (radius_client_with(|_| {}), radius_server_with(|c| c.role = PortRole::DynamicAuthorization));
    let request = request_packet(&mut c, PacketCode::DISCONNECT_REQUEST, user_attributes());
    let mut forged = request.clone();
    forged[10] ^= 1;
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &forged);
    assert_eq!(s.counters().bad_authenticator, 1);
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &request);
    let token = next_request(&mut s).unwrap().token;
    let mut attributes = AttributeList::new();
    attributes.push_u32(kind::ERROR_CAUSE, crate::attribute::error_cause::SESSION_CONTEXT_NOT_FOUND);
    let respond = |code| RadiusServerCommand::Respond { token, code, attributes: attributes.clone() };
    assert!(
        s.handle_command(at_seconds(0.0), respond(PacketCode::COA_ACK)).is_err(),
        "it answers another request"
    );
    s.handle_command(at_seconds(0.0), respond(PacketCode::DISCONNECT_NAK)).unwrap();
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &sent_datagrams(&mut s)[0].1);
    let Some(crate::client::RadiusClientEvent::Response(r)) = c.poll_event() else { panic!("no response") };
    assert_eq!((r.code, r.attributes.get_u32(kind::ERROR_CAUSE)), (PacketCode::DISCONNECT_NAK, Some(503)));
}

#[test]
fn old_requests_for_dynamic_authorisation_are_dropped() {
    let epoch = usher_core::WallTime::from_unix_secs(1_000_000);
    for required in [false, true] {
        let window = usher_core::Duration::from_secs(300);
        let freshness = Some(crate::EventTimestampPolicy { window, required });
        let mut c = radius_client_with(|_| {});
        let mut s =
            radius_server_with(|c| (c.role, c.freshness) = (PortRole::DynamicAuthorization, freshness));
        s.set_epoch(at_seconds(0.0), epoch);
        let mut served = Vec::new();
        for stamp in [None, Some(1_000_000), Some(1_000_400), Some(1_000_401), Some(999_799)] {
            let mut a = user_attributes();
            if let Some(stamp) = stamp {
                a.push_u32(kind::EVENT_TIMESTAMP, stamp);
            }
            deliver_datagram(
                &mut s,
                at_seconds(100.0),
                NEAR,
                &request_packet(&mut c, PacketCode::COA_REQUEST, a),
            );
            served.push(next_request(&mut s).is_some());
        }
        assert_eq!(served, [!required, true, true, false, false]);
        assert_eq!(s.counters().stale, 2 + u64::from(required));
    }
}

/// RFC 5176 §6.3: an eavesdropper replays the request from another port.
#[test]
fn a_dynamic_request_is_done_once_while_its_timestamp_is_fresh() {
    let window = Duration::from_secs(300);
    let freshness = Some(crate::EventTimestampPolicy { window, required: true });
    let mut c = radius_client_with(|_| {});
    let mut s = radius_server_with(|c| {
        (c.role, c.freshness, c.retain) = (PortRole::DynamicAuthorization, freshness, window);
    });
    s.set_epoch(at_seconds(0.0), usher_core::WallTime::from_unix_secs(1_000_000));
    let mut a = user_attributes();
    a.push_u32(kind::EVENT_TIMESTAMP, 1_000_200);
    let request = request_packet(&mut c, PacketCode::DISCONNECT_REQUEST, a);
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &request);
    let token = next_request(&mut s).unwrap().token;
    let respond = RadiusServerCommand::Respond {
        token,
        code: PacketCode::DISCONNECT_ACK,
        attributes: AttributeList::new(),
    };
    s.handle_command(at_seconds(0.0), respond).unwrap();
    let first = sent_datagrams(&mut s);
    // Another request with the same identifier replaces the first reply.
    let mut b = user_attributes();
    b.push_u32(kind::EVENT_TIMESTAMP, 1_000_001);
    let mut other = radius_client_with(|_| {});
    let second = request_packet(&mut other, PacketCode::DISCONNECT_REQUEST, b);
    assert_eq!(second[1], request[1]);
    deliver_datagram(&mut s, at_seconds(250.0), NEAR, &request);
    assert_eq!(sent_datagrams(&mut s), first, "its sender hears the same again");
    deliver_datagram(&mut s, at_seconds(251.0), NEAR, &second);
    assert!(next_request(&mut s).is_some());
    for (when, port) in [(260.0, "10.0.0.1:5001"), (480.0, NEAR), (499.0, "10.0.0.1:5002")] {
        deliver_datagram(&mut s, at_seconds(when), port, &request);
        assert!(next_request(&mut s).is_none(), "again at {when} s from {port}");
    }
    assert_eq!((s.counters().duplicates_dropped, s.counters().stale), (3, 0));
    deliver_datagram(&mut s, at_seconds(501.0), "10.0.0.1:5003", &request);
    assert_eq!((next_request(&mut s).is_none(), s.counters().stale), (true, 1));
}

#[test]
fn the_message_authenticator_is_asked_for_by_policy() {
    use MessageAuthenticatorPolicy::{Off, ProxyState, Required};
    let plain = CHAP;
    let proxied = [&CHAP[..], &[33, 3, b'x']].concat();
    for (policy, plain_passes, proxied_passes) in
        [(Required, false, false), (ProxyState, true, false), (Off, true, true)]
    {
        let mut s = radius_server_with(|c| c.clients[0].message_authenticator = policy);
        for (id, body, passes) in [(1, &plain[..], plain_passes), (2, &proxied[..], proxied_passes)] {
            deliver_datagram(&mut s, at_seconds(0.0), NEAR, &unsigned_request(id, body));
            assert_eq!(next_request(&mut s).is_some(), passes, "{policy:?}");
        }
        // A Message-Authenticator that is present must be valid under every policy.
        let mut p = vec![1, 3, 0, 38];
        p.resize(20, 9);
        p.extend([80, 18]);
        p.resize(38, 0);
        deliver_datagram(&mut s, at_seconds(0.0), NEAR, &p);
        assert_eq!(s.counters().bad_message_authenticator, 1);
    }
}

#[test]
fn a_flood_of_one_client_leaves_room_for_another() {
    let other = ClientConfig::new("192.0.2.0".parse().unwrap(), 24, test_secret());
    let mut s = radius_server_with(|c| {
        c.clients.push(other);
        (c.max_entries, c.max_waiting) = (100, 60);
    });
    let mut c = radius_client_with(|_| {});
    for port in 0..200 {
        let p = request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes());
        deliver_datagram(&mut s, at_seconds(0.0), &format!("10.0.0.1:{}", 5000 + port), &p);
    }
    assert_eq!((s.counters().requests, s.counters().client_overload), (60, 140));
    for port in 0..40 {
        let p = request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes());
        deliver_datagram(&mut s, at_seconds(0.0), &format!("192.0.2.1:{}", 5000 + port), &p);
    }
    assert_eq!((s.counters().requests, s.counters().overload), (100, 0));
    // An answered request is no longer pending.
    let token = next_request(&mut s).unwrap().token;
    accept_request(&mut s, at_seconds(0.0), token).unwrap();
    deliver_datagram(
        &mut s,
        at_seconds(0.0),
        NEAR,
        &request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes()),
    );
    assert_eq!(s.counters().requests, 101);
}

#[test]
fn too_many_attributes_are_dropped() {
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|c| c.max_attributes = 10));
    for extra in [7, 8] {
        let mut a = user_attributes();
        (0..extra).for_each(|_| {
            a.push_u32(kind::NAS_PORT, 1);
        });
        deliver_datagram(
            &mut s,
            at_seconds(0.0),
            NEAR,
            &request_packet(&mut c, PacketCode::ACCESS_REQUEST, a),
        );
    }
    assert_eq!((s.counters().requests, s.counters().too_many_attributes), (1, 1));
}

#[test]
fn other_clients_can_be_configured_while_requests_wait() {
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|c| c.max_waiting = 1));
    deliver_datagram(
        &mut s,
        at_seconds(0.0),
        NEAR,
        &request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes()),
    );
    let token = next_request(&mut s).unwrap().token;
    let any = |n: &str, p, secret: &[u8]| ClientConfig::new(n.parse().unwrap(), p, SharedSecret::new(secret));
    let clients = vec![any("192.0.2.0", 24, b"x"), any("10.0.0.0", 8, b"another secret")];
    let mut config = RadiusServerConfig::new(clients.clone());
    config.max_waiting = 1;
    s.reload_config(config).unwrap();
    let mut broken = RadiusServerConfig::new(clients);
    broken.clients[0].prefix = 99;
    assert!(s.reload_config(broken).is_err());
    deliver_datagram(
        &mut s,
        at_seconds(0.0),
        NEAR,
        &request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes()),
    );
    assert_eq!(s.counters().bad_message_authenticator, 1, "the secret is another now");
    accept_request(&mut s, at_seconds(0.0), token).unwrap();
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &sent_datagrams(&mut s)[0].1);
    assert!(
        matches!(c.poll_event(), Some(crate::client::RadiusClientEvent::Response(_))),
        "answered by the old one"
    );
}

#[test]
fn what_waits_is_of_its_client_whatever_that_ones_number_is() {
    let of = |n: &str| ClientConfig::new(n.parse().unwrap(), 24, test_secret());
    let config = |clients: [&str; 2]| {
        let mut config = RadiusServerConfig::new(clients.map(of).into());
        config.max_waiting = 1;
        config
    };
    let mut s = TestMachine::new(
        RadiusServer::new(
            config(["10.0.0.0", "192.0.2.0"]),
            usher_core::Seed::new(1).derive_secure_rng("server", 0),
        )
        .unwrap(),
    );
    let mut c = radius_client_with(|_| {});
    let mut taken_of = |s: &mut TestMachine<RadiusServer>, from: &str| {
        let before = s.counters().requests;
        deliver_datagram(
            s,
            at_seconds(0.0),
            from,
            &request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes()),
        );
        s.counters().requests - before
    };
    assert_eq!([taken_of(&mut s, "10.0.0.1:5000"), taken_of(&mut s, "10.0.0.1:5001")], [1, 0]);
    s.reload_config(config(["192.0.2.0", "10.0.0.0"])).unwrap();
    assert_eq!([taken_of(&mut s, "10.0.0.1:5002"), taken_of(&mut s, "192.0.2.1:5000")], [0, 1]);
    // It speaks for itself and its network, and for no other.
    let (own, other) = ("10.0.0.1".parse().unwrap(), "192.0.2.9".parse().unwrap());
    assert!(s.speaks_for(1, own, own) && s.speaks_for(1, own, "10.0.0.9".parse().unwrap()));
    assert!(!s.speaks_for(1, own, other) && s.speaks_for(0, own, other));
}

/// RFC 3579 §3.3, note 1: an Access-Request without any proof is silently discarded, unless its Message-Authenticator
/// shows its source.
#[test]
fn a_request_that_proves_nobody_needs_its_message_authenticator() {
    use MessageAuthenticatorPolicy::{Off, ProxyState};
    let ms_chap = [&[26, 58, 0, 0, 1, 55, 25, 52][..], &[0; 50]].concat();
    for policy in [ProxyState, Off] {
        for (what, body, passes) in [
            ("nothing", &[1, 3, b'a'][..], false),
            ("an address alone", &[1, 3, b'a', 6, 6, 0, 0, 0, 10, 31, 3, b'a'], false),
            ("another vendor's words", &[26, 9, 0, 0, 0, 9, 25, 3, 1], false),
            ("User-Password", &[&[2, 18][..], &[0; 16]].concat(), true),
            ("CHAP-Password", &CHAP, true),
            ("ARAP-Password", &[&[70, 18][..], &[0; 16]].concat(), true),
            ("MS-CHAP2-Response", &ms_chap, true),
        ] {
            let mut s = radius_server_with(|c| c.clients[0].message_authenticator = policy);
            deliver_datagram(&mut s, at_seconds(0.0), NEAR, &unsigned_request(1, body));
            assert_eq!(next_request(&mut s).is_some(), passes, "{policy:?}, {what}");
            assert_eq!(s.counters().missing_message_authenticator, u64::from(!passes), "{policy:?}, {what}");
        }
    }
}

/// RFC 5080 §2.2.2: only a valid duplicate gets the reply again; a forged one changes nothing.
#[test]
fn a_duplicate_is_as_genuine_as_its_original() {
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|_| {}));
    let request = request_packet(&mut c, PacketCode::ACCESS_REQUEST, user_attributes());
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &request);
    let token = next_request(&mut s).unwrap().token;
    accept_request(&mut s, at_seconds(0.0), token).unwrap();
    let answer = sent_datagrams(&mut s);
    // An eavesdropper knows identifier and authenticator of the request.
    let mut cut_off = request[..38].to_vec();
    cut_off[3] = 38;
    let mut altered = request.clone();
    *altered.last_mut().unwrap() ^= 1;
    let mut bare = request[..20].to_vec();
    bare[3] = 20;
    for forged in [&cut_off, &altered, &bare] {
        deliver_datagram(&mut s, at_seconds(0.1), NEAR, forged);
        assert!(sent_datagrams(&mut s).is_empty());
    }
    let n = s.counters();
    assert_eq!(
        (n.bad_message_authenticator, n.missing_message_authenticator, n.duplicates_answered),
        (2, 1, 0)
    );
    deliver_datagram(&mut s, at_seconds(0.2), NEAR, &request);
    assert_eq!(sent_datagrams(&mut s), answer);
    // A duplicate with the earlier secret gets its reply again.
    let network = ClientConfig::new("10.0.0.0".parse().unwrap(), 8, SharedSecret::new(b"another secret"));
    s.reload_config(RadiusServerConfig::new(vec![network])).unwrap();
    deliver_datagram(&mut s, at_seconds(0.3), NEAR, &request);
    assert_eq!(sent_datagrams(&mut s), answer);
}

/// RFC 5997 §3, §4.2 and §5: the reply is bare, whatever the request contains, and affects no other request.
#[test]
fn status_server_gets_a_bare_reply_and_affects_no_other_request() {
    let secrets = test_secret();
    for role in [PortRole::Authentication, PortRole::Accounting] {
        let (mut c, mut s) =
            (radius_client_with(|_| {}), radius_server_with(|c| (c.role, c.max_entries) = (role, 1)));
        let code = if role == PortRole::Accounting {
            PacketCode::ACCOUNTING_REQUEST
        } else {
            PacketCode::ACCESS_REQUEST
        };
        let request = request_packet(&mut c, code, user_attributes());
        deliver_datagram(&mut s, at_seconds(0.0), NEAR, &request);
        let token = next_request(&mut s).unwrap().token;
        let mut more = user_attributes();
        more.push_bytes(kind::PROXY_STATE, b"one").unwrap().push_user_password(b"pw").unwrap();
        let mut status = request_packet(&mut c, PacketCode::STATUS_SERVER, more);
        status[1] = request[1];
        status[22..38].fill(0);
        auth::sign_request(&mut status, true, &secrets);
        for _ in 0..3 {
            deliver_datagram(&mut s, at_seconds(0.0), NEAR, &status);
            let answers = sent_datagrams(&mut s);
            assert_eq!(answers.len(), 1, "one answer to each, RFC 5997 §3");
            let reply = RadiusPacket::parse(&answers[0].1).unwrap();
            assert_eq!(reply.attributes().map(|a| a.kind).collect::<Vec<_>>(), [kind::MESSAGE_AUTHENTICATOR]);
            let asked = status[4..20].try_into().unwrap();
            assert!(auth::check_response(&reply, asked, &secrets));
        }
        assert!(next_request(&mut s).is_none(), "it is never a request of somebody");
        assert_eq!((s.counters().status, s.counters().requests, s.counters().superseded), (3, 1, 0));
        let code = if role == PortRole::Accounting {
            PacketCode::ACCOUNTING_RESPONSE
        } else {
            PacketCode::ACCESS_ACCEPT
        };
        s.handle_command(
            at_seconds(0.0),
            RadiusServerCommand::Respond { token, code, attributes: AttributeList::new() },
        )
        .unwrap();
        assert_eq!(sent_datagrams(&mut s).len(), 1, "the request of the same identifier has its answer");
    }
}

/// Every kind of forged or foreign Status-Server gets no reply (RFC 5997 §3 and §4.2).
#[test]
fn a_status_server_of_nobody_is_dropped() {
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|_| {}));
    let status = request_packet(&mut c, PacketCode::STATUS_SERVER, AttributeList::new());
    let mut wrong = status.clone();
    wrong[30] ^= 1;
    let mut bare = status[..20].to_vec();
    bare[3] = 20;
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &wrong);
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &bare);
    deliver_datagram(&mut s, at_seconds(0.0), "192.0.2.1:5000", &status);
    assert!(sent_datagrams(&mut s).is_empty());
    let n = s.counters();
    assert_eq!(
        [n.bad_message_authenticator, n.missing_message_authenticator, n.unknown_client, n.status],
        [1, 1, 1, 0]
    );
}

#[test]
fn a_reply_returns_by_the_path_and_identifier_of_its_request() {
    for (code, reply) in [
        (PacketCode::ACCESS_REQUEST, PacketCode::ACCESS_ACCEPT),
        (PacketCode::ACCESS_REQUEST, PacketCode::ACCESS_REJECT),
        (PacketCode::ACCESS_REQUEST, PacketCode::ACCESS_CHALLENGE),
        (PacketCode::ACCOUNTING_REQUEST, PacketCode::ACCOUNTING_RESPONSE),
        (PacketCode::DISCONNECT_REQUEST, PacketCode::DISCONNECT_NAK),
        (PacketCode::COA_REQUEST, PacketCode::COA_ACK),
    ] {
        let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|c| c.role = PortRole::All));
        let mut a = user_attributes();
        a.push_bytes(kind::PROXY_STATE, b"one").unwrap().push_u32(kind::NAS_PORT, 1);
        a.push_bytes(kind::PROXY_STATE, b"\0two\0").unwrap();
        let request = request_packet(&mut c, code, a);
        deliver_datagram(&mut s, at_seconds(0.0), NEAR, &request);
        let token = next_request(&mut s).unwrap().token;
        s.handle_command(
            at_seconds(0.0),
            RadiusServerCommand::Respond { token, code: reply, attributes: user_attributes() },
        )
        .unwrap();
        let (path, bytes) = sent_datagrams(&mut s).remove(0);
        assert_eq!((path.local, path.remote), (FAR.parse().unwrap(), NEAR.parse().unwrap()));
        assert_eq!(bytes[..2], [reply.0, request[1]]);
        let asked = request[4..20].try_into().unwrap();
        let p = RadiusPacket::parse(&bytes).unwrap();
        assert!(auth::check_response(&p, asked, &test_secret()));
        let states: Vec<_> =
            p.attributes().filter(|a| a.kind == kind::PROXY_STATE).map(|a| a.value).collect();
        assert_eq!(states, [&b"one"[..], b"\0two\0"], "{code}: opaque, in order");
        let signed = auth::check_message_authenticator(&p, asked, &test_secret());
        let wanted = if code == PacketCode::ACCOUNTING_REQUEST {
            MessageAuthenticator::Absent
        } else {
            MessageAuthenticator::Good
        };
        assert_eq!(signed, wanted, "{code}");
    }
}

/// Accounting-Requests need no Message-Authenticator (RFC 2866 §3). A server checks one if present, at any position.
#[test]
fn an_accounting_request_may_have_one_message_authenticator() {
    let secrets = test_secret();
    let empty = [&[kind::MESSAGE_AUTHENTICATOR, 18][..], &[0; 16]].concat();
    let session = [&[kind::ACCT_STATUS_TYPE, 6, 0, 0, 0, 1][..], &[kind::ACCT_SESSION_ID, 3, b's']].concat();
    // The parts of a packet, the positions of its Message-Authenticators, and whether they are valid.
    for (what, parts, places, is_right, taken_in) in [
        ("none", [&session[..], &[], &[]], &[][..], true, true),
        ("in front", [&empty, &session, &[]], &[22], true, true),
        ("at the end", [&session, &empty, &[]], &[31], true, true),
        ("a wrong one", [&session, &empty, &[]], &[31], false, false),
        ("two", [&empty, &session, &empty], &[22, 49], true, false),
    ] {
        let mut packet = [&[PacketCode::ACCOUNTING_REQUEST.0, 1, 0, 0][..], &[0; 16]].concat();
        parts.iter().for_each(|part| packet.extend_from_slice(part));
        packet[3] = packet.len() as u8;
        let mac = usher_crypto::digest::HmacMd5Key::new(secrets.as_bytes()).mac(&[&packet]);
        for at in places {
            packet[*at..*at + 16].copy_from_slice(&mac);
            packet[*at] ^= u8::from(!is_right);
        }
        let authenticator = auth::accounting_request_authenticator(&packet, &secrets);
        packet[4..20].copy_from_slice(&authenticator);
        let mut s = radius_server_with(|c| c.role = PortRole::Accounting);
        deliver_datagram(&mut s, at_seconds(0.0), NEAR, &packet);
        let request = next_request(&mut s);
        assert_eq!(request.is_some(), taken_in, "{what}");
        assert_eq!(s.counters().bad_message_authenticator, u64::from(!taken_in), "{what}");
        if let Some(request) = request {
            let (token, code) = (request.token, PacketCode::ACCOUNTING_RESPONSE);
            let respond = RadiusServerCommand::Respond { token, code, attributes: AttributeList::new() };
            s.handle_command(at_seconds(0.0), respond).unwrap();
            let answer = sent_datagrams(&mut s);
            deliver_datagram(&mut s, at_seconds(0.1), NEAR, &packet);
            assert_eq!((sent_datagrams(&mut s), answer.len()), (answer, 1), "{what}");
        }
    }
}

/// The secret of a network applies to its hosts. A host that becomes a client has its own secret until it is removed.
#[test]
fn a_host_with_a_client_of_its_own_leaves_that_of_its_network() {
    const OTHER_CLIENT: &str = "10.0.0.9:5000";
    let own = SharedSecret::new(b"of one host alone");
    let network = ClientConfig::new("10.0.0.0".parse().unwrap(), 8, test_secret());
    let host = ClientConfig::new("10.0.0.1".parse().unwrap(), 32, own.clone());
    let (mut s, mut by_network) = (radius_server_with(|_| {}), radius_client_with(|_| {}));
    let mut by_host = radius_client_with(|c| c.servers[0].secret = own);
    let mut answered = |s: &mut TestMachine<RadiusServer>, from: &str| {
        [&mut by_network, &mut by_host].map(|client| {
            deliver_datagram(
                s,
                at_seconds(0.0),
                from,
                &request_packet(client, PacketCode::ACCESS_REQUEST, user_attributes()),
            );
            next_request(s).is_some()
        })
    };
    for (clients, of_host) in [
        (vec![network.clone()], [true, false]),
        (vec![network.clone(), host.clone()], [false, true]),
        (vec![host.clone(), network.clone()], [false, true]),
        (vec![network.clone()], [true, false]),
    ] {
        s.reload_config(RadiusServerConfig::new(clients)).unwrap();
        assert_eq!((answered(&mut s, NEAR), answered(&mut s, OTHER_CLIENT)), (of_host, [true, false]));
    }
}
