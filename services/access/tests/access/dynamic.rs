//! What AAA servers ask of sessions: RFC 5176 over RADIUS, RFC 6733 §8 over Diameter.

use crate::world::{
    Carrier, NAS, PORT, SERVERS, Script, World, answer, diameter_config, host, network, radius_config, secret,
};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use usher_access::{
    AaaConfig, AccessClient, Command, DYNAMIC_SOCKET, DynamicConfig, DynamicKind, ErrorCause, Event, Failure,
    NasIdentity, NasPort, Proof, Request, SessionIdentity, TerminateCause,
};
use usher_core::bench::{At, Network};
use usher_core::{
    CommandError, ConnId, Duration, Input, Instant, ListenerId, Machine, NoJob, OutputOf, Outputs, Seed,
    StreamEvent, StreamOp, Transmit,
};
use usher_crypto::digest::md5;
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application, command};
use usher_diameter::node;
use usher_diameter::{Message, ResultCode};
use usher_radius::attribute::{error_cause, kind};
use usher_radius::client::{self, Client, ServerConfig, Target};
use usher_radius::server::ClientConfig;
use usher_radius::{Attributes, Code, Freshness};

const SILENT: Script = Script { radius: |_| None, diameter: |_| None };

/// The session that the NAS has.
fn session() -> SessionIdentity<'static> {
    SessionIdentity {
        token: Some(1),
        names: [b"ann", b"anna"],
        port: NasPort { number: Some(7), calling_station: Some("00-10-A4-23-19-C0"), ..NasPort::default() },
        session: Some("00c0ffee"),
        multi_session: Some("multi"),
        framed_ip: Some([192, 0, 2, 9].into()),
        framed_interface_id: Some([1; 8]),
        framed_ipv6_prefix: Some((Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 8)),
    }
}

/// A NAS that does what is wanted of its session, and one who may want something.
fn radius() -> (World, At<Client>) {
    radius_of(NasIdentity { address: Some(NAS), ..NasIdentity::ethernet("nas.example.org") })
}
fn radius_of(identity: NasIdentity) -> (World, At<Client>) {
    let mut config = radius_config(Carrier::Udp, 1);
    let clients = vec![ClientConfig::new(SERVERS[1], 32, secret())];
    let freshness = Some(Freshness::default());
    config.dynamic = Some(Box::new(DynamicConfig { clients, freshness }));
    let mut w = World::of(identity, AaaConfig::Radius(config), Carrier::Udp, 1, SILENT);
    w.net.bind(w.nas, DYNAMIC_SOCKET, SocketAddr::new(NAS, 3799));
    let mut asker = client::Config::single(ServerConfig::new(SocketAddr::new(NAS, 3799), secret()));
    asker.retransmission = client::Retransmission::Fixed { interval: Duration::from_secs(1), count: 2 };
    let asker = w.net.add(Client::new(asker, Seed::new(1).secure("asker", 0)).unwrap(), &[SERVERS[1]]);
    w.net.on_event(w.nas, |event| {
        let Event::Dynamic(request) = event else { return None };
        let found = request.is_about(&session());
        let answer = match request.changes().next() {
            _ if !found => Err(ErrorCause::SessionContextNotFound),
            Some(kind) if kind != kind::SESSION_TIMEOUT && kind != kind::STATE => {
                Err(ErrorCause::UnsupportedAttribute)
            }
            _ => Ok(()),
        };
        // Later than at once, as where a session has to be looked for.
        Some((Duration::from_millis(5), Command::AnswerDynamic { token: request.token, answer }))
    });
    (w, asker)
}

/// What the NAS answers; `None`: nothing.
fn ask(
    (w, asker): &mut (World, At<Client>),
    code: Code,
    write: impl FnOnce(&mut Attributes),
) -> Option<(Code, Option<u32>, Attributes)> {
    let mut attributes = Attributes::new();
    write(&mut attributes);
    let command = client::Command::Request { token: 1, target: Target::Server(0), code, attributes };
    w.net.command(*asker, command).unwrap();
    w.run(5);
    match w.net.take(*asker).remove(0).1 {
        client::Event::Response(r) => Some((r.code, r.attributes.get_u32(kind::ERROR_CAUSE), r.attributes)),
        _ => None,
    }
}

#[test]
fn a_session_is_found_by_whatever_describes_it() {
    let mut world = radius();
    let describes: [(u8, &[u8]); 10] = [
        (kind::USER_NAME, b"ann"),
        (kind::USER_NAME, b"anna"),
        (kind::NAS_PORT, &[0, 0, 0, 7]),
        (kind::CALLING_STATION_ID, b"00-10-A4-23-19-C0"),
        (kind::ACCT_SESSION_ID, b"00c0ffee"),
        (kind::ACCT_MULTI_SESSION_ID, b"multi"),
        (kind::FRAMED_IP_ADDRESS, &[192, 0, 2, 9]),
        (kind::FRAMED_INTERFACE_ID, &[1; 8]),
        (kind::FRAMED_IPV6_PREFIX, &[0, 8, 0x20]),
        // Of the NAS: no session is described, but it is that of the one that is described else.
        (kind::NAS_IDENTIFIER, b"nas.example.org"),
    ];
    for (kind, value) in describes {
        for code in [Code::DISCONNECT_REQUEST, Code::COA_REQUEST] {
            let (yes, no) = match code {
                Code::COA_REQUEST => (Code::COA_ACK, Code::COA_NAK),
                _ => (Code::DISCONNECT_ACK, Code::DISCONNECT_NAK),
            };
            let mut says = |value: &[u8], name: &str| {
                let answer = ask(&mut world, code, |a| {
                    a.push_bytes(kind, value).unwrap().push_text(kind::ACCT_SESSION_ID, name).unwrap();
                });
                answer.map(|(code, cause, _)| (code, cause))
            };
            assert_eq!(says(value, "00c0ffee"), Some((yes, None)), "{kind}");
            let mut other = value.to_vec();
            *other.last_mut().unwrap() ^= 1;
            let cause = match kind {
                kind::NAS_IDENTIFIER => error_cause::NAS_IDENTIFICATION_MISMATCH,
                _ => error_cause::SESSION_CONTEXT_NOT_FOUND,
            };
            assert_eq!(says(&other, "00c0ffee"), Some((no, Some(cause))), "{kind}");
            let cause = error_cause::SESSION_CONTEXT_NOT_FOUND;
            assert_eq!(says(value, "another"), Some((no, Some(cause))), "{kind}");
        }
    }
}

/// RFC 3162 section 2.3: a server may write more octets of a prefix than it needs.
#[test]
fn a_session_is_found_by_its_prefix_in_however_many_octets() {
    let mut world = radius();
    let mut says = |value: &[u8]| {
        let answer = ask(&mut world, Code::DISCONNECT_REQUEST, |a| {
            a.push_bytes(kind::FRAMED_IPV6_PREFIX, value).unwrap();
        });
        answer.map(|(code, ..)| code)
    };
    for octets in 1..=16 {
        let value = [&[0, 8, 0x20][..], &[0; 15][..octets - 1]].concat();
        assert_eq!(says(&value), Some(Code::DISCONNECT_ACK), "{octets}");
    }
    assert_eq!(says(&[0, 9, 0x20, 0]), Some(Code::DISCONNECT_NAK), "another length");
}

#[test]
fn what_no_session_need_be_looked_at_for_is_refused_at_once() {
    let mut world = radius();
    let mut refused =
        |code, write: fn(&mut Attributes)| ask(&mut world, code, write).and_then(|(_, cause, _)| cause);
    let (end, change) = (Code::DISCONNECT_REQUEST, Code::COA_REQUEST);
    assert_eq!(refused(end, |_| {}), Some(error_cause::MISSING_ATTRIBUTE));
    let other_nas = |a: &mut Attributes| {
        a.push_text(kind::USER_NAME, "ann").unwrap();
        a.push_ipv4(kind::NAS_IP_ADDRESS, [10, 0, 0, 9].into());
    };
    assert_eq!(refused(end, other_nas), Some(error_cause::NAS_IDENTIFICATION_MISMATCH));
    // What the NAS does not have, it is not called.
    let by_v6 = |a: &mut Attributes| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_ipv6(kind::NAS_IPV6_ADDRESS, Ipv6Addr::LOCALHOST);
    };
    assert_eq!(refused(end, by_v6), Some(error_cause::NAS_IDENTIFICATION_MISMATCH));
    // A Disconnect-Request says which session, and nothing else (RFC 5176 §3).
    let with_timeout = |a: &mut Attributes| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_u32(kind::SESSION_TIMEOUT, 5);
    };
    assert_eq!(refused(end, with_timeout), Some(error_cause::UNSUPPORTED_ATTRIBUTE));
    assert_eq!(refused(change, with_timeout), None);
    // Authorize Only (§3.2).
    let authorize_only = |a: &mut Attributes| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_u32(kind::SERVICE_TYPE, 17);
        a.push_bytes(kind::STATE, b"x").unwrap();
    };
    assert_eq!(refused(change, authorize_only), Some(error_cause::UNSUPPORTED_SERVICE));
    let ill_formed = |a: &mut Attributes| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_bytes(kind::SESSION_TIMEOUT, &[1]).unwrap();
    };
    assert_eq!(refused(change, ill_formed), Some(error_cause::INVALID_REQUEST));
    let filter = |a: &mut Attributes| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_text(kind::FILTER_ID, "f").unwrap();
    };
    assert_eq!(refused(change, filter), Some(error_cause::UNSUPPORTED_ATTRIBUTE));
}

#[test]
fn a_nas_is_known_by_what_its_attributes_call_it() {
    let mut identity = NasIdentity::ethernet("");
    identity.attributes.push_text(kind::NAS_IDENTIFIER, "by another name").unwrap();
    let mut world = radius_of(identity);
    for (name, cause) in
        [("by another name", None), ("nas.example.org", Some(error_cause::NAS_IDENTIFICATION_MISMATCH))]
    {
        let answer = ask(&mut world, Code::DISCONNECT_REQUEST, |a| {
            a.push_text(kind::USER_NAME, "ann").unwrap().push_text(kind::NAS_IDENTIFIER, name).unwrap();
        });
        assert_eq!(answer.unwrap().1, cause, "{name}");
    }
}

#[test]
fn an_answer_repeats_the_state() {
    let mut world = radius();
    let answer = ask(&mut world, Code::COA_REQUEST, |a| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_bytes(kind::STATE, b"again").unwrap();
        a.push_u32(kind::SESSION_TIMEOUT, 5);
    });
    let (code, _, attributes) = answer.unwrap();
    assert_eq!((code, attributes.get(kind::STATE)), (Code::COA_ACK, Some(&b"again"[..])));
}

#[test]
fn strangers_and_what_is_old_are_not_heard() {
    let mut world = radius();
    let old = |a: &mut Attributes| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_u32(kind::EVENT_TIMESTAMP, 1_799_999_000);
    };
    assert_eq!(ask(&mut world, Code::DISCONNECT_REQUEST, old), None);
    assert!(world.0.net[world.0.nas].dynamic_counters().unwrap().stale > 0);
    // The AAA server that is asked for logins is no client of the other direction.
    let config = client::Config::single(ServerConfig::new(SocketAddr::new(NAS, 3799), secret()));
    let asker = Client::new(config, Seed::new(1).secure("stranger", 0)).unwrap();
    let stranger = world.0.net.add(asker, &["10.0.0.9".parse().unwrap()]);
    let mut attributes = Attributes::new();
    attributes.push_text(kind::USER_NAME, "ann").unwrap();
    let (target, code) = (Target::Server(0), Code::DISCONNECT_REQUEST);
    world.0.net.command(stranger, client::Command::Request { token: 1, target, code, attributes }).unwrap();
    world.0.run(60);
    assert_eq!(world.0.events(), []);
    assert!(world.0.net[world.0.nas].dynamic_counters().unwrap().unknown_client > 0);
}

/// A RadSec server that sends octets as they are by the connection that it accepted.
#[derive(Default)]
struct RadSecServer {
    conn: Option<ConnId>,
    outputs: Outputs<Vec<u8>>,
}

impl Machine for RadSecServer {
    type Command = Vec<u8>;
    type Event = Vec<u8>;
    type Job = NoJob;

    fn handle(&mut self, _: Instant, input: Input<'_>) {
        let Input::Stream { conn, event } = input else { return };
        match event {
            StreamEvent::Accepted { .. } => self.conn = Some(conn),
            StreamEvent::Data(data) => self.outputs.event(data.to_vec()),
            _ => self.conn = None,
        }
    }
    fn command(&mut self, _: Instant, octets: Vec<u8>) -> Result<(), CommandError> {
        let conn = self.conn.ok_or(CommandError::UnknownToken)?;
        self.outputs.transmit(Transmit::Stream { conn, op: StreamOp::Data }, octets);
        Ok(())
    }
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
}

/// A packet of RadSec's secret: a request of this code, or the answer to what has this authenticator.
fn packet(code: Code, identifier: u8, authenticator: [u8; 16], attributes: &[u8]) -> Vec<u8> {
    let head = [code.0, identifier, 0, 20 + attributes.len() as u8];
    let digest = md5(&[&head, &authenticator, attributes, b"radsec"]);
    [&head[..], &digest, attributes].concat()
}

/// A NAS whose login a RadSec server was asked for: of sessions this address may ask; and the request's head.
fn by_radsec(asker: Option<IpAddr>) -> (Network, At<AccessClient>, At<RadSecServer>, (u8, [u8; 16])) {
    let mut config = radius_config(Carrier::RadSec, 1);
    config.dynamic = asker.map(|asker| {
        let clients = vec![ClientConfig::radsec(asker, 32, Vec::new())];
        Box::new(DynamicConfig { clients, freshness: None })
    });
    let mut net = network();
    let identity = NasIdentity { address: Some(NAS), ..NasIdentity::ethernet("nas.example.org") };
    let access = AccessClient::new(identity, AaaConfig::Radius(config), Seed::new(5).secure("nas", 0));
    let nas = net.add(access.unwrap(), &[NAS]);
    let server = net.add(RadSecServer::default(), &[SERVERS[0]]);
    net.listen(server, ListenerId::own(0), SocketAddr::new(SERVERS[0], PORT));
    net.on_event(nas, |event| {
        let Event::Dynamic(request) = event else { return None };
        let answer =
            if request.is_about(&session()) { Ok(()) } else { Err(ErrorCause::SessionContextNotFound) };
        Some((Duration::ZERO, Command::AnswerDynamic { token: request.token, answer }))
    });
    let now = net.now();
    net[nas].ask(now, 1, &Request::new(b"ann", Proof::Pap(b"x"))).unwrap();
    net.run(Duration::from_millis(100));
    let asked = net.take(server).remove(0).1;
    let mut authenticator = [0; 16];
    authenticator.copy_from_slice(&asked[4..20]);
    (net, nas, server, (asked[1], authenticator))
}

/// RFC 6614 §2.1: one port, and one connection, for all that RADIUS says; and §2.5: who may not ask is told so.
#[test]
fn a_radsec_server_asks_by_the_connection_that_the_nas_opened() {
    for asker in [Some(SERVERS[0]), Some(SERVERS[1]), None] {
        let heard = asker == Some(SERVERS[0]);
        let (mut net, nas, server, (identifier, authenticator)) = by_radsec(asker);
        // The answer and two requests as one stretch, and the end of the last later.
        let stretch = [
            packet(Code::ACCESS_ACCEPT, identifier, authenticator, &[]),
            packet(Code::DISCONNECT_REQUEST, 7, [0; 16], b"\x01\x05ann"),
            packet(Code::COA_REQUEST, 8, [0; 16], b"\x01\x05eve\x21\x03p"),
        ]
        .concat();
        let (first, last) = stretch.split_at(stretch.len() - 30);
        for part in [first, last] {
            net.command(server, part.to_vec()).unwrap();
            net.run(Duration::from_millis(100));
        }
        let events: Vec<Event> = net.take(nas).into_iter().map(|(_, event)| event).collect();
        assert!(matches!(&events[0], Event::Accept { token: 1, .. }), "{events:?}");
        assert_eq!(events.len(), if heard { 3 } else { 1 }, "{events:?}");
        let answers: Vec<Vec<u8>> = net.take(server).into_iter().map(|(_, data)| data).collect();
        let heads: Vec<(u8, u8)> = answers.iter().map(|data| (data[0], data[1])).collect();
        let first = if heard { Code::DISCONNECT_ACK } else { Code::DISCONNECT_NAK };
        assert_eq!(heads, [(first.0, 7), (Code::COA_NAK.0, 8)]);
        if !heard {
            // Error-Cause: Unsupported Extension.
            assert_eq!(answers[0][20..], [101, 6, 0, 0, 1, 150]);
            assert_eq!(answers[1][20..], *b"\x65\x06\0\0\x01\x96\x21\x03p");
            let request = packet(Code::DISCONNECT_REQUEST, 7, [0; 16], b"\x01\x05ann");
            let digest = md5(&[&answers[0][..4], &request[4..20], &answers[0][20..], b"radsec"]);
            assert_eq!(answers[0][4..20], digest);
        }
        // What no packet can be ends the connection, and both sides of it are forgotten.
        net.command(server, vec![43, 1, 0, 3]).unwrap();
        net.run(Duration::from_millis(100));
        assert_eq!(net[nas].radius_counters().unwrap().connections_spoilt, 1);
        assert_eq!(net[server].conn, None);
    }
}

/// RFC 6613 §2.6.4: whichever side of the connection a packet is for, what follows one that ends it is not heard, and
/// nothing goes by it any more.
#[test]
fn a_packet_that_ends_a_radsec_connection_is_the_last_that_is_heard_of_it() {
    for asker in [Some(SERVERS[0]), Some(SERVERS[1]), None] {
        for case in 0..4 {
            let (mut net, nas, server, (identifier, authenticator)) = by_radsec(asker);
            let accept = packet(Code::ACCESS_ACCEPT, identifier, authenticator, &[]);
            let disconnect = packet(Code::DISCONNECT_REQUEST, 7, [0; 16], b"\x01\x05ann");
            let spoilt = |mut packet: Vec<u8>| {
                packet[4] ^= 1;
                packet
            };
            let stretch = match case {
                0 => [spoilt(accept), disconnect],
                1 => [spoilt(disconnect), accept],
                // An attribute longer than its packet.
                2 => [packet(Code::DISCONNECT_REQUEST, 7, [0; 16], b"\x01\x09ann"), accept],
                _ => {
                    let signed = [&[80, 18][..], &[9; 16]].concat();
                    [packet(Code::DISCONNECT_REQUEST, 7, [0; 16], &signed), accept]
                }
            };
            net.command(server, stretch.concat()).unwrap();
            net.run(Duration::from_millis(10));
            assert_eq!(net.take(nas).len(), 0, "{asker:?} {case}");
            assert_eq!(net[nas].radius_counters().unwrap().connections_spoilt, 1, "{asker:?} {case}");
            assert_eq!((net[server].conn, net.take(server).len()), (None, 0), "{asker:?} {case}");
            // What waits goes by the next connection.
            net.run(Duration::from_secs(5));
            assert_eq!(net.take(server).first().map(|(_, asked)| asked[0]), Some(1), "{asker:?} {case}");
        }
    }
}

/// A Diameter server that keeps the sessions that it lets in: Ann's without saying so, and not Bob's. It lets Eve in by an
/// answer that is none.
fn keeping() -> World {
    let mut w = asked_by(b"ann");
    assert!(matches!(w.event(), Event::Accept { .. }));
    w
}
fn asked_by(name: &[u8]) -> World {
    let script = Script {
        radius: |_| None,
        diameter: |message: &Message| {
            let view = message.avps.view();
            let mut avps = AvpBuf::new();
            if message.header.command == command::AA {
                assert_eq!(view.get(codes::AUTH_SESSION_STATE).unwrap().u32(), Ok(0));
                match view.get(codes::USER_NAME).unwrap().data {
                    b"eve" => {}
                    b"ann" => avps = answer(message),
                    name => {
                        avps = answer(message);
                        avps.push_u32(codes::AUTH_SESSION_STATE, u32::from(name == b"bob"));
                    }
                }
            } else {
                assert_eq!(message.header.command, command::SESSION_TERMINATION);
                assert_eq!(message.header.application, application::NASREQ);
                assert_eq!(view.get(codes::DESTINATION_HOST).unwrap().data, host(0).as_bytes());
                // Admin Reset and NAS Error (RFC 4005 §9.3.5).
                assert!(matches!(view.get(codes::TERMINATION_CAUSE).unwrap().u32(), Ok(16 | 19)));
            }
            Some((ResultCode::SUCCESS, avps))
        },
    };
    let mut config = diameter_config(1);
    config.stateful = true;
    let mut w = World::with(AaaConfig::Diameter(Box::new(config)), Carrier::Diameter, 1, script);
    let now = w.net.now();
    w.net[w.nas].ask(now, 1 << 32 | 5, &Request::new(name, Proof::Pap(b"x"))).unwrap();
    w.run(1);
    w
}
/// Whether the server has been told that a session has ended.
fn is_told(w: &mut World) -> bool {
    w.net.take(w.diameter[0]).into_iter().any(|(_, event)| {
        matches!(event, node::Event::Request { message, .. } if message.header.command == command::SESSION_TERMINATION)
    })
}

/// The Session-Id of the login.
fn session_id(w: &mut World) -> String {
    let events = w.net.take(w.diameter[0]);
    let id = events.iter().find_map(|(_, event)| match event {
        node::Event::Request { message, .. } => message.avps.view().get(codes::SESSION_ID)?.utf8().ok(),
        _ => None,
    });
    id.unwrap().to_owned()
}

/// What the NAS answers to the server.
fn server_asks(w: &mut World, command: u32, session_id: &str) -> ResultCode {
    let request = node::Request {
        token: 9,
        application: application::NASREQ,
        command,
        destination_realm: "example.org".into(),
        destination_host: Some("nas.example.org".into()),
        session_id: session_id.into(),
        avps: AvpBuf::new(),
    };
    w.net.command(w.diameter[0], node::Command::Request(request)).unwrap();
    w.run(1);
    let events = w.net.take(w.diameter[0]);
    let result = events.into_iter().find_map(|(_, event)| match event {
        node::Event::Answer { token: 9, result, .. } => Some(result),
        _ => None,
    });
    result.unwrap()
}

#[test]
fn a_diameter_server_ends_a_session_that_it_keeps_and_is_told_when_it_has_ended() {
    let mut w = keeping();
    let id = session_id(&mut w);
    w.net.on_event(w.nas, |event| {
        let Event::Dynamic(request) = event else { return None };
        assert_eq!((request.kind, request.session), (DynamicKind::Disconnect, Some(1 << 32 | 5)));
        Some((Duration::ZERO, Command::AnswerDynamic { token: request.token, answer: Ok(()) }))
    });
    assert_eq!(server_asks(&mut w, command::ABORT_SESSION, &id), ResultCode::SUCCESS);
    let (token, cause) = (1 << 32 | 5, TerminateCause::AdminReset);
    w.net.command(w.nas, Command::Terminate { token, cause }).unwrap();
    w.run(1);
    assert!(is_told(&mut w));
    // It is over: nothing is to be ended any more, and nobody told again.
    assert_eq!(server_asks(&mut w, command::ABORT_SESSION, &id), ResultCode::UNKNOWN_SESSION_ID);
    let before = w.net.sent().len();
    w.net.command(w.nas, Command::Terminate { token, cause }).unwrap();
    assert_eq!(w.net.sent().len(), before);
}

/// RFC 6733 §8.1, §8.5.2: a session that is not ended goes on.
#[test]
fn a_session_that_is_not_ended_goes_on() {
    for (cause, result) in [
        (ErrorCause::SessionContextNotRemovable, ResultCode::UNABLE_TO_COMPLY),
        (ErrorCause::ResourcesUnavailable, ResultCode::UNABLE_TO_COMPLY),
        (ErrorCause::SessionContextNotFound, ResultCode::UNKNOWN_SESSION_ID),
    ] {
        let mut w = keeping();
        let id = session_id(&mut w);
        w.net.on_event(w.nas, move |event| {
            let Event::Dynamic(request) = event else { return None };
            Some((Duration::ZERO, Command::AnswerDynamic { token: request.token, answer: Err(cause) }))
        });
        assert_eq!(server_asks(&mut w, command::ABORT_SESSION, &id), result);
        let (token, cause) = (1 << 32 | 5, TerminateCause::AdminReset);
        w.net.command(w.nas, Command::Terminate { token, cause }).unwrap();
        w.run(1);
        assert!(is_told(&mut w));
    }
}

/// RFC 6733 §8.11: the answer says whether there is a session to be terminated, and by silence that there is.
#[test]
fn whether_a_session_is_kept_is_the_servers_word() {
    for (name, is_kept) in [(&b"ann"[..], true), (b"zoe", true), (b"bob", false)] {
        let mut w = asked_by(name);
        assert!(matches!(w.event(), Event::Accept { .. }));
        w.net.take(w.diameter[0]);
        let (token, cause) = (1 << 32 | 5, TerminateCause::AdminReset);
        w.net.command(w.nas, Command::Terminate { token, cause }).unwrap();
        w.run(1);
        assert_eq!(is_told(&mut w), is_kept, "{name:?}");
    }
}

/// RFC 6733 §8.1.
#[test]
fn of_a_session_that_nobody_can_have_the_server_is_told_that_it_has_ended() {
    let mut w = asked_by(b"eve");
    assert_eq!(w.event(), Event::Failed { token: 1 << 32 | 5, failure: Failure::BadAnswer });
    assert!(is_told(&mut w));
}

#[test]
fn a_diameter_server_wants_a_user_authenticated_again() {
    let mut w = keeping();
    let id = session_id(&mut w);
    w.net.on_event(w.nas, |event| {
        let Event::Dynamic(request) = event else { return None };
        assert_eq!((request.kind, request.changes().count()), (DynamicKind::Reauthenticate, 0));
        let answer = Err(ErrorCause::AdministrativelyProhibited);
        Some((Duration::ZERO, Command::AnswerDynamic { token: request.token, answer }))
    });
    assert_eq!(server_asks(&mut w, command::RE_AUTH, &id), ResultCode::AUTHORIZATION_REJECTED);
    // So the session is over on both sides, and nobody is told of its end (RFC 6733 §8.1).
    assert_eq!(server_asks(&mut w, command::RE_AUTH, &id), ResultCode::UNKNOWN_SESSION_ID);
    let (token, cause) = (1 << 32 | 5, TerminateCause::AdminReset);
    w.net.command(w.nas, Command::Terminate { token, cause }).unwrap();
    w.run(1);
    assert!(!is_told(&mut w));
    for other in ["nas.example.org;1;1;5", "another;0;1;5", "x", ""] {
        assert_eq!(server_asks(&mut w, command::RE_AUTH, other), ResultCode::UNKNOWN_SESSION_ID);
    }
}

#[test]
fn a_nas_without_kept_sessions_is_asked_nothing() {
    let mut w = World::new(Carrier::Diameter, 1, SILENT);
    assert!(!w.net[w.nas].hears_requests());
    assert_eq!(server_asks(&mut w, command::ABORT_SESSION, "x;1;2;3"), ResultCode::COMMAND_UNSUPPORTED);
    let terminate = Command::Terminate { token: 1, cause: TerminateCause::UserRequest };
    let before = w.net.sent().len();
    w.net.command(w.nas, terminate).unwrap();
    assert_eq!((w.net.sent().len(), w.net.now() > Instant::ZERO), (before, true));
}
