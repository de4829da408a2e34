use super::*;
use crate::SharedSecret;
use crate::auth::MessageAuthenticator;
use crate::auth::check_message_authenticator;
use crate::client::{FailoverPolicy, RetransmissionPolicy, ServerConfig, ServerHealth};
use crate::packet::RadiusPacket;
use crate::server::{self, RadiusServer};
use crate::testing::*;
use usher_core::bench::TestMachine;

/// Second, path and octets of each transmission.
type TransmissionLog = Vec<(u64, DatagramPath, Vec<u8>)>;

/// Runs the client alone. Returns its transmissions with times, and the time of its timeout.
fn run_client(client: &mut TestMachine<RadiusClient>) -> (TransmissionLog, Option<u64>) {
    let (mut log, mut now) = (Vec::new(), Instant::ZERO);
    loop {
        for (path, bytes) in sent_datagrams(client) {
            log.push((now.as_nanos() / 1_000_000_000, path, bytes));
        }
        if let Some(RadiusClientEvent::TimedOut { .. }) = client.poll_event() {
            return (log, Some(now.as_nanos() / 1_000_000_000));
        }
        let Some(next) = client.poll_timeout() else { return (log, None) };
        now = next;
        client.handle_input(now, MachineInput::Timeout);
    }
}

/// Returns the reply of the server to a request.
fn answer_request(
    server: &mut TestMachine<RadiusServer>,
    request: &[u8],
    code: PacketCode,
    attributes: AttributeList,
) -> Vec<u8> {
    deliver_datagram(server, at_seconds(0.0), NEAR, request);
    let Some(server::RadiusServerEvent::Request(r)) = server.poll_event() else { panic!("not taken") };
    server
        .handle_command(
            at_seconds(0.0),
            server::RadiusServerCommand::Respond { token: r.token, code, attributes },
        )
        .unwrap();
    sent_datagrams(server).remove(0).1
}

#[test]
fn rfc_5080_sends_at_0_2_6_14_and_gives_up_at_30_seconds() {
    let mut c = radius_client_with(|_| {});
    send_request(&mut c, at_seconds(0.0), 1, PacketCode::ACCESS_REQUEST, user_attributes());
    let (log, end) = run_client(&mut c);
    assert_eq!(log.iter().map(|l| l.0).collect::<Vec<_>>(), [0, 2, 6, 14]);
    assert_eq!(end, Some(30));
    assert!(log.iter().all(|l| l.2 == log[0].2), "the same octets each time");
    assert_eq!((c.counters().requests, c.counters().retransmissions, c.counters().timeouts), (1, 3, 1));
    assert_eq!((c.outstanding_count(), c.poll_timeout()), (0, None));
}

#[test]
fn a_fixed_interval_has_its_count() {
    let mut c = radius_client_with(|c| {
        c.retransmission = RetransmissionPolicy::Fixed { interval: Duration::from_secs(3), count: 3 };
    });
    send_request(&mut c, at_seconds(0.0), 1, PacketCode::ACCESS_REQUEST, user_attributes());
    let (log, end) = run_client(&mut c);
    assert_eq!((log.iter().map(|l| l.0).collect::<Vec<_>>(), end), (vec![0, 3, 6], Some(9)));
}

#[test]
fn acct_delay_time_is_renewed_under_a_new_identifier() {
    let mut c = radius_client_with(|_| {});
    let mut a = AttributeList::new();
    a.push_u32(kind::ACCT_STATUS_TYPE, 1).push_u32(kind::ACCT_DELAY_TIME, 5);
    send_request(&mut c, at_seconds(0.0), 1, PacketCode::ACCOUNTING_REQUEST, a);
    let (log, _) = run_client(&mut c);
    let packets: Vec<_> = log.iter().map(|l| RadiusPacket::parse(&l.2).unwrap()).collect();
    let delays: Vec<_> = packets.iter().map(|p| p.get(kind::ACCT_DELAY_TIME).unwrap()[3]).collect();
    assert_eq!(delays, [5, 7, 11, 19]);
    for (i, p) in packets.iter().enumerate() {
        assert_eq!(p.identifier(), packets[0].identifier().wrapping_add(i as u8));
        assert!(auth::check_accounting_request(p, &test_secret()));
    }
    assert_eq!(c.counters().renewals, 3);
}

#[test]
fn failover_moves_to_the_next_server_and_back_after_a_while() {
    let mut c = radius_client_with(|c| {
        c.servers.push(ServerConfig::new(test_remote_address(1), SharedSecret::new(b"another")));
        c.groups = vec![vec![0, 1]];
        c.failover = Some(FailoverPolicy { after: 2, revive: Duration::from_secs(100) });
    });
    let request = |token| RadiusClientCommand::Request {
        token,
        target: RequestTarget::Group(0),
        code: PacketCode::ACCESS_REQUEST,
        attributes: user_attributes(),
    };
    c.handle_command(at_seconds(0.0), request(1)).unwrap();
    let (log, end) = run_client(&mut c);
    let ports: Vec<_> = log.iter().map(|l| (l.0, l.1.remote.port())).collect();
    assert_eq!(ports, [(0, 1812), (2, 1812), (6, 1813), (8, 1813), (12, 1812)]);
    assert_eq!((end, c.counters().failovers), (Some(14), 2));
    c.handle_command(at_seconds(20.0), request(2)).unwrap();
    for now in [20.0, 22.0, 26.0] {
        c.handle_input(at_seconds(now), MachineInput::Timeout);
        sent_datagrams(&mut c);
    }
    for (token, now, port) in [(3, 26.0, 1813), (4, 125.0, 1813), (5, 126.0, 1812)] {
        c.handle_command(at_seconds(now), request(token)).unwrap();
        assert_eq!(sent_datagrams(&mut c)[0].0.remote.port(), port, "at {now} s");
    }
}

#[test]
fn a_request_that_no_other_server_has_room_for_is_given_up_once() {
    for (retransmission, end) in [
        (None, 30.0),
        (Some(RetransmissionPolicy::Fixed { interval: Duration::from_secs(3), count: 3 }), 9.0),
    ] {
        let mut c = radius_client_with(|c| {
            c.servers.push(ServerConfig::for_radsec(test_remote_address(1)));
            c.max_connections = 1;
            c.groups = vec![vec![0, 1]];
            c.failover = Some(FailoverPolicy { after: 2, revive: Duration::from_secs(100) });
            c.retransmission = retransmission.unwrap_or(c.retransmission);
        });
        let request = |token, target| {
            let (code, attributes) = (PacketCode::ACCESS_REQUEST, user_attributes());
            RadiusClientCommand::Request { token, target, code, attributes }
        };
        c.handle_command(at_seconds(0.0), request(1, RequestTarget::Group(0))).unwrap();
        for token in 2..257 {
            c.handle_command(at_seconds(1.0), request(token, RequestTarget::Server(1))).unwrap();
        }
        assert!(
            c.handle_command(at_seconds(1.0), request(999, RequestTarget::Server(1))).is_err(),
            "no identifier is left"
        );
        let (mut ends, mut timeouts) = (Vec::new(), 0);
        while let Some(next) = c.poll_timeout().filter(|next| *next <= at_seconds(60.0)) {
            timeouts += 1;
            assert!(timeouts < 20, "a deadline comes again and again");
            c.handle_input(next, MachineInput::Timeout);
            while let Some(event) = c.poll_event() {
                if let RadiusClientEvent::TimedOut { token: 1 } = event {
                    ends.push(next);
                }
            }
        }
        assert_eq!(ends, [at_seconds(end)]);
        assert_eq!((c.counters().failovers, c.outstanding_count()), (0, 0));
    }
}

#[test]
fn the_message_authenticator_stands_first() {
    let mut c = radius_client_with(|_| {});
    send_request(&mut c, at_seconds(0.0), 1, PacketCode::ACCESS_REQUEST, user_attributes());
    let request = sent_datagrams(&mut c).remove(0).1;
    let p = RadiusPacket::parse(&request).unwrap();
    assert_eq!(p.attributes().next().unwrap().kind, kind::MESSAGE_AUTHENTICATOR);
    assert_eq!(
        check_message_authenticator(&p, p.authenticator(), &test_secret()),
        MessageAuthenticator::Good
    );
}

#[test]
fn the_257th_request_leaves_from_another_socket() {
    let mut c = radius_client_with(|c| c.max_sockets = 2);
    for token in 0..512 {
        send_request(&mut c, at_seconds(0.0), token, PacketCode::ACCESS_REQUEST, user_attributes());
    }
    let sockets: Vec<_> = sent_datagrams(&mut c).iter().map(|s| s.0.socket.n).collect();
    assert_eq!((sockets[255], sockets[256]), (0, 1));
    let request = RadiusClientCommand::Request {
        token: 999,
        target: RequestTarget::Server(0),
        code: PacketCode::ACCESS_REQUEST,
        attributes: user_attributes(),
    };
    assert!(matches!(c.handle_command(at_seconds(0.0), request.clone()), Err(CommandError::Full(_))));
    c.handle_command(at_seconds(0.0), RadiusClientCommand::Cancel { token: 3 }).unwrap();
    assert!(
        matches!(c.handle_command(at_seconds(4.9), request.clone()), Err(CommandError::Full(_))),
        "it rests"
    );
    c.handle_command(at_seconds(5.0), request).unwrap();
}

#[test]
fn each_bad_reply_is_counted_by_its_kind_and_dropped() {
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|_| {}));
    send_request(&mut c, at_seconds(0.0), 1, PacketCode::ACCESS_REQUEST, user_attributes());
    let request = sent_datagrams(&mut c).remove(0).1;
    let good = answer_request(&mut s, &request, PacketCode::ACCESS_ACCEPT, AttributeList::new());
    let mut request_authenticator = [0; 16];
    request_authenticator.copy_from_slice(&request[4..20]);
    let resign = |mut bytes: Vec<u8>| {
        auth::sign_response(&mut bytes, false, &request_authenticator, &test_secret());
        bytes
    };
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &good[..19]);
    deliver_datagram(&mut c, at_seconds(0.0), "10.0.0.3:1812", &good);
    let mut other = good.clone();
    other[1] ^= 1;
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &other);
    other = good.clone();
    other[0] = 5;
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &other);
    other[0] = 3;
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &other);
    other = good.clone();
    other[25] ^= 1;
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &resign(other));
    other = good[..20].to_vec();
    other[3] = 20;
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &resign(other));
    c.handle_input(at_seconds(0.0), MachineInput::Frame { port: usher_core::LinkLayerPortId(0), data: &[] });
    let n = *c.counters();
    assert_eq!(
        [
            n.malformed,
            n.wrong_source,
            n.unknown_identifier,
            n.wrong_code,
            n.bad_authenticator,
            n.bad_message_authenticator,
            n.missing_message_authenticator,
            n.not_a_datagram
        ],
        [1; 8]
    );
    assert!(c.poll_event().is_none());
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &good);
    let Some(RadiusClientEvent::Response(r)) = c.poll_event() else { panic!("no response") };
    assert_eq!((r.token, r.code), (1, PacketCode::ACCESS_ACCEPT));
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &good);
    assert_eq!(c.counters().unknown_identifier, 2, "a repeated reply");
}

#[test]
fn an_old_server_is_allowed_by_policy_but_not_with_eap() {
    let mut c = radius_client_with(|c| c.servers[0].require_message_authenticator = false);
    for (token, reply) in [(1u64, &[][..]), (2, &[79, 6, 3, 1, 0, 4])] {
        send_request(&mut c, at_seconds(0.0), token, PacketCode::ACCESS_REQUEST, user_attributes());
        let request = sent_datagrams(&mut c).remove(0).1;
        let mut bytes = vec![2, request[1], 0, 20 + reply.len() as u8];
        bytes.resize(20, 0);
        bytes.extend(reply);
        let mut authenticator = [0; 16];
        authenticator.copy_from_slice(&request[4..20]);
        auth::sign_response(&mut bytes, false, &authenticator, &test_secret());
        deliver_datagram(&mut c, at_seconds(0.0), FAR, &bytes);
    }
    assert_eq!((c.counters().responses, c.counters().missing_message_authenticator), (1, 1));
}

#[test]
fn keys_and_passwords_arrive_in_clear() {
    let (mut c, mut s) = (radius_client_with(|_| {}), radius_server_with(|_| {}));
    let mut a = user_attributes();
    a.push_user_password(b"a password of more than sixteen octets").unwrap();
    send_request(&mut c, at_seconds(0.0), 1, PacketCode::ACCESS_REQUEST, a);
    let request = sent_datagrams(&mut c).remove(0).1;
    deliver_datagram(&mut s, at_seconds(0.0), NEAR, &request);
    let Some(server::RadiusServerEvent::Request(r)) = s.poll_event() else { panic!("not taken") };
    assert_eq!(*r.user_password().unwrap().unwrap(), b"a password of more than sixteen octets");
    let msk: [u8; 64] = core::array::from_fn(|i| i as u8);
    let mut attributes = AttributeList::new();
    attributes.push_eap(&[3, 1, 0, 4]).push_msk(&msk).push_tunnel_password(1, b"tunnel").unwrap();
    s.handle_command(
        at_seconds(0.0),
        server::RadiusServerCommand::Respond { token: r.token, code: PacketCode::ACCESS_ACCEPT, attributes },
    )
    .unwrap();
    let reply = sent_datagrams(&mut s).remove(0).1;
    assert!(!reply.windows(8).any(|w| w == &msk[..8]));
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &reply);
    let Some(RadiusClientEvent::Response(r)) = c.poll_event() else { panic!("no response") };
    assert_eq!(r.mppe_keys().unwrap().unwrap().msk(), Some(msk.into()));
    assert_eq!(r.tunnel_password().unwrap().unwrap(), b"tunnel");
}

#[test]
fn misuse_is_refused_and_changes_nothing() {
    let mut c = radius_client_with(|_| {});
    let request = |token, server, code, attributes| RadiusClientCommand::Request {
        token,
        target: RequestTarget::Server(server),
        code,
        attributes,
    };
    let mut long = AttributeList::new();
    long.push_concat(kind::CLASS, &[0; 5000]);
    let mut signed = AttributeList::new();
    signed.push_bytes(kind::MESSAGE_AUTHENTICATOR, &[0; 16]).unwrap();
    for bad in [
        request(1, 0, PacketCode::ACCESS_ACCEPT, user_attributes()),
        request(1, 9, PacketCode::ACCESS_REQUEST, user_attributes()),
        request(1, 0, PacketCode::ACCESS_REQUEST, long),
        request(1, 0, PacketCode::ACCESS_REQUEST, signed),
    ] {
        assert!(matches!(c.handle_command(at_seconds(0.0), bad), Err(CommandError::Invalid(_))));
    }
    assert_eq!(
        c.handle_command(at_seconds(0.0), RadiusClientCommand::Cancel { token: 1 }),
        Err(CommandError::UnknownToken)
    );
    assert_eq!((c.outstanding_count(), c.counters().total()), (0, 0));
    send_request(&mut c, at_seconds(0.0), 1, PacketCode::ACCESS_REQUEST, user_attributes());
    assert!(
        c.handle_command(at_seconds(0.0), request(1, 0, PacketCode::ACCESS_REQUEST, user_attributes()))
            .is_err()
    );
    c.handle_command(at_seconds(0.0), RadiusClientCommand::Cancel { token: 1 }).unwrap();
    assert!(sent_datagrams(&mut c).is_empty(), "cancelled before it was sent");
    assert_eq!((c.counters().cancelled, c.outstanding_count()), (1, 0));
}

/// RFC 2865 §2.5, RFC 2866 §4.1, RFC 5080 §2.10, RFC 5176 §2.3 and §6.3: a retransmission has the same octets,
/// including an Event-Timestamp, and the same port.
#[test]
fn what_is_sent_again_is_the_same() {
    for code in [
        PacketCode::ACCESS_REQUEST,
        PacketCode::ACCOUNTING_REQUEST,
        PacketCode::COA_REQUEST,
        PacketCode::DISCONNECT_REQUEST,
    ] {
        let mut c = radius_client_with(|_| {});
        let mut a = user_attributes();
        a.push_u32(kind::EVENT_TIMESTAMP, 7).push_user_password(b"pw").unwrap();
        send_request(&mut c, at_seconds(0.0), 1, code, a);
        let (log, _) = run_client(&mut c);
        assert_eq!(log.len(), 4);
        assert!(log.iter().all(|l| (&l.1, &l.2) == (&log[0].1, &log[0].2)), "{code}");
    }
}

/// RFC 2865 §3 and §4.1, RFC 5997 §3 and §4.1: a new request has another identifier and an unguessable authenticator,
/// and so has a Status-Server.
#[test]
fn each_new_request_has_its_own_identifier_and_authenticator() {
    for code in [PacketCode::ACCESS_REQUEST, PacketCode::STATUS_SERVER] {
        let mut c = radius_client_with(|_| {});
        let (mut seen, mut before) = (std::collections::BTreeSet::new(), None);
        for token in 0..1000 {
            send_request(&mut c, at_seconds(0.0), token, code, AttributeList::new());
            let request = sent_datagrams(&mut c).remove(0).1;
            assert!(seen.insert(request[4..20].to_vec()), "an authenticator came twice");
            assert_ne!(before, Some(request[1]));
            before = Some(request[1]);
            assert!(
                RadiusPacket::parse(&request).unwrap().get(kind::MESSAGE_AUTHENTICATOR).is_some(),
                "each is signed"
            );
            c.handle_command(at_seconds(0.0), RadiusClientCommand::Cancel { token }).unwrap();
        }
        // Each of its octets takes most values.
        let values = |i: usize| seen.iter().map(|a| a[i]).collect::<std::collections::BTreeSet<_>>().len();
        assert!((0..16).all(|i| values(i) > 200));
    }
}

/// RFC 5176 §6.3: a reply with a stale timestamp is silently discarded, and the request stays outstanding.
#[test]
fn an_answer_of_another_time_is_dropped() {
    let epoch = usher_core::WallTime::from_unix_secs(1_000_000);
    for (stamp, taken) in
        [(None, true), (Some(1_000_000), true), (Some(1_000_400), true), (Some(1_000_401), false)]
    {
        let mut c = radius_client_with(|c| c.freshness = Some(crate::EventTimestampPolicy::default()));
        c.set_epoch(at_seconds(0.0), epoch);
        let mut s = radius_server_with(|c| c.role = server::PortRole::DynamicAuthorization);
        send_request(&mut c, at_seconds(99.0), 1, PacketCode::DISCONNECT_REQUEST, user_attributes());
        let request = sent_datagrams(&mut c).remove(0).1;
        let mut a = AttributeList::new();
        if let Some(stamp) = stamp {
            a.push_u32(kind::EVENT_TIMESTAMP, stamp);
        }
        let reply = answer_request(&mut s, &request, PacketCode::DISCONNECT_ACK, a);
        deliver_datagram(&mut c, at_seconds(100.0), FAR, &reply);
        assert_eq!(c.poll_event().is_some(), taken, "{stamp:?}");
        assert_eq!((c.outstanding_count(), c.counters().stale), (usize::from(!taken), u64::from(!taken)));
        // The clock is set: a timestamp of tomorrow is now fresh.
        c.set_epoch(at_seconds(100.0), epoch + Duration::from_secs(1));
        deliver_datagram(&mut c, at_seconds(100.0), FAR, &reply);
        assert_eq!(c.outstanding_count(), 0);
    }
    let mut c = radius_client_with(|c| c.freshness = Some(crate::EventTimestampPolicy::default()));
    send_request(&mut c, at_seconds(0.0), 1, PacketCode::ACCESS_REQUEST, user_attributes());
    let mut a = AttributeList::new();
    a.push_u32(kind::EVENT_TIMESTAMP, 7);
    let request = sent_datagrams(&mut c).remove(0).1;
    let reply = answer_request(&mut radius_server_with(|_| {}), &request, PacketCode::ACCESS_ACCEPT, a);
    deliver_datagram(&mut c, at_seconds(0.0), FAR, &reply);
    assert!(c.poll_event().is_some(), "of logins nothing is asked");
}

/// RFC 5997 §4.1: a Status-Server is never retransmitted.
#[test]
fn a_status_server_is_sent_once() {
    let mut c = radius_client_with(|_| {});
    send_request(&mut c, at_seconds(0.0), 1, PacketCode::STATUS_SERVER, AttributeList::new());
    let (log, end) = run_client(&mut c);
    assert_eq!((log.len(), end), (1, Some(2)));
}

/// A server without Status-Server support revives although it never answers one.
#[test]
fn a_server_silent_to_status_server_comes_back_after_a_while() {
    let mut c =
        radius_client_with(|c| c.servers[0].liveness = Some(crate::client::ServerLivenessConfig::default()));
    let mut s = radius_server_with(|_| {});
    send_request(&mut c, at_seconds(0.0), 1, PacketCode::ACCESS_REQUEST, user_attributes());
    let mut turns = Vec::new();
    let mut now = at_seconds(0.0);
    loop {
        sent_datagrams(&mut c);
        while let Some(event) = c.poll_event() {
            if let RadiusClientEvent::Server { health, .. } = event
                && turns.last().is_none_or(|(_, last)| *last != health)
            {
                turns.push((now.as_nanos() / 1_000_000_000, health));
            }
        }
        if turns.len() == 3 {
            break;
        }
        now = c.poll_timeout().unwrap();
        assert!(now < at_seconds(400.0), "{turns:?}");
        c.handle_input(now, MachineInput::Timeout);
    }
    let expected = [(4, ServerHealth::Suspect), (16, ServerHealth::Dead), (136, ServerHealth::Alive)];
    assert_eq!(turns, expected, "two minutes after its death");
    send_request(&mut c, at_seconds(180.0), 2, PacketCode::ACCESS_REQUEST, user_attributes());
    let request = sent_datagrams(&mut c).remove(0).1;
    let reply = answer_request(&mut s, &request, PacketCode::ACCESS_ACCEPT, AttributeList::new());
    deliver_datagram(&mut c, at_seconds(180.0), FAR, &reply);
    assert!(matches!(c.poll_event(), Some(RadiusClientEvent::Response(_))));
}

/// RFC 5176 §3.4: a Message-Authenticator in a reply covers the authenticator of the request, and must be valid.
#[test]
fn a_message_authenticator_in_a_dynamic_reply_must_be_right() {
    for spoilt in [false, true] {
        let mut c = radius_client_with(|_| {});
        send_request(&mut c, at_seconds(0.0), 1, PacketCode::DISCONNECT_REQUEST, user_attributes());
        let request = sent_datagrams(&mut c).remove(0).1;
        let authenticator: [u8; 16] = request[4..20].try_into().unwrap();
        let mut reply = [&[41, request[1], 0, 38][..], &authenticator, &[80, 18], &[0; 16]].concat();
        let mac = usher_crypto::digest::HmacMd5Key::new(test_secret().as_bytes()).mac(&[&reply]);
        reply[22..].copy_from_slice(&mac);
        reply[22] ^= u8::from(spoilt);
        auth::sign_response(&mut reply, false, &authenticator, &test_secret());
        deliver_datagram(&mut c, at_seconds(0.0), FAR, &reply);
        assert_eq!(c.poll_event().is_some(), !spoilt);
        assert_eq!(c.counters().bad_message_authenticator, u64::from(spoilt));
    }
}
