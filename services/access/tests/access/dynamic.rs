//! Dynamic authorisation: RFC 5176 over RADIUS, RFC 6733 §8 over Diameter.

use crate::world::{
    AccessTestNetwork, NAS, PORT, SERVERS, ServerScript, TestTransport, answer_avps, diameter_config,
    radius_config, server_identity, test_network, test_secret,
};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use usher_access::{
    AaaConfig, AaaRequestFailure, AccessClient, AccessClientCommand, AccessClientEvent, AccessRequest,
    DYNAMIC_SOCKET, DynamicAuthConfig, DynamicRequestKind, ErrorCause, NasIdentity, NasPort, SessionIdentity,
    TerminateCause, UserCredentials,
};
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::{
    CommandError, ConnId, Duration, Instant, ListenerId, Machine, MachineInput, MachineOutputOf, NoJob,
    OutputQueue, Seed, StreamEvent, StreamOp, Transmit,
};
use usher_crypto::digest::md5;
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application, command};
use usher_diameter::node;
use usher_diameter::{DiameterMessage, ResultCode};
use usher_radius::attribute::{error_cause, kind};
use usher_radius::client::{self, RadiusClient, RequestTarget, ServerConfig};
use usher_radius::server::ClientConfig;
use usher_radius::{AttributeList, EventTimestampPolicy, PacketCode};

const SILENT: ServerScript = ServerScript { radius: |_| None, diameter: |_| None };

/// The session of the NAS.
fn test_session() -> SessionIdentity<'static> {
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

/// A NAS that complies for its session, and a server with permission.
fn radius_nas() -> (AccessTestNetwork, NetworkHostHandle<RadiusClient>) {
    radius_of(NasIdentity { address: Some(NAS), ..NasIdentity::for_ethernet("nas.example.org") })
}
fn radius_of(identity: NasIdentity) -> (AccessTestNetwork, NetworkHostHandle<RadiusClient>) {
    let mut config = radius_config(TestTransport::Udp, 1);
    let clients = vec![ClientConfig::new(SERVERS[1], 32, test_secret())];
    let freshness = Some(EventTimestampPolicy::default());
    config.dynamic = Some(Box::new(DynamicAuthConfig { clients, freshness }));
    let mut w =
        AccessTestNetwork::with_identity(identity, AaaConfig::Radius(config), TestTransport::Udp, 1, SILENT);
    w.net.bind_socket(w.nas, DYNAMIC_SOCKET, SocketAddr::new(NAS, 3799));
    let mut asker =
        client::RadiusClientConfig::for_server(ServerConfig::new(SocketAddr::new(NAS, 3799), test_secret()));
    asker.retransmission = client::RetransmissionPolicy::Fixed { interval: Duration::from_secs(1), count: 2 };
    let asker = w.net.add_host(
        RadiusClient::new(asker, Seed::new(1).derive_secure_rng("asker", 0)).unwrap(),
        &[SERVERS[1]],
    );
    w.net.on_event(w.nas, |event| {
        let AccessClientEvent::Dynamic(request) = event else { return None };
        let found = request.is_about(&test_session());
        let answer = match request.changed_attribute_numbers().next() {
            _ if !found => Err(ErrorCause::SessionContextNotFound),
            Some(kind) if kind != kind::SESSION_TIMEOUT && kind != kind::STATE => {
                Err(ErrorCause::UnsupportedAttribute)
            }
            _ => Ok(()),
        };
        // The answer comes later, as after a lookup of the session.
        Some((Duration::from_millis(5), AccessClientCommand::AnswerDynamic { token: request.token, answer }))
    });
    (w, asker)
}

/// Returns the NAS's answer, or `None`.
fn send_dynamic_request(
    (w, asker): &mut (AccessTestNetwork, NetworkHostHandle<RadiusClient>),
    code: PacketCode,
    write: impl FnOnce(&mut AttributeList),
) -> Option<(PacketCode, Option<u32>, AttributeList)> {
    let mut attributes = AttributeList::new();
    write(&mut attributes);
    let command =
        client::RadiusClientCommand::Request { token: 1, target: RequestTarget::Server(0), code, attributes };
    w.net.send_command(*asker, command).unwrap();
    w.run_seconds(5);
    match w.net.take_events(*asker).remove(0).1 {
        client::RadiusClientEvent::Response(r) => {
            Some((r.code, r.attributes.get_u32(kind::ERROR_CAUSE), r.attributes))
        }
        _ => None,
    }
}

#[test]
fn a_session_is_found_by_whatever_describes_it() {
    let mut world = radius_nas();
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
        // These identify the NAS only; other attributes describe the session.
        (kind::NAS_IDENTIFIER, b"nas.example.org"),
    ];
    for (kind, value) in describes {
        for code in [PacketCode::DISCONNECT_REQUEST, PacketCode::COA_REQUEST] {
            let (yes, no) = match code {
                PacketCode::COA_REQUEST => (PacketCode::COA_ACK, PacketCode::COA_NAK),
                _ => (PacketCode::DISCONNECT_ACK, PacketCode::DISCONNECT_NAK),
            };
            let mut says = |value: &[u8], name: &str| {
                let answer = send_dynamic_request(&mut world, code, |a| {
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

/// RFC 3162 section 2.3: a server may send more octets of a prefix than it needs.
#[test]
fn a_session_is_found_by_its_prefix_in_however_many_octets() {
    let mut world = radius_nas();
    let mut says = |value: &[u8]| {
        let answer = send_dynamic_request(&mut world, PacketCode::DISCONNECT_REQUEST, |a| {
            a.push_bytes(kind::FRAMED_IPV6_PREFIX, value).unwrap();
        });
        answer.map(|(code, ..)| code)
    };
    for octets in 1..=16 {
        let value = [&[0, 8, 0x20][..], &[0; 15][..octets - 1]].concat();
        assert_eq!(says(&value), Some(PacketCode::DISCONNECT_ACK), "{octets}");
    }
    assert_eq!(says(&[0, 9, 0x20, 0]), Some(PacketCode::DISCONNECT_NAK), "another length");
}

#[test]
fn what_no_session_need_be_looked_at_for_is_refused_at_once() {
    let mut world = radius_nas();
    let mut refused = |code, write: fn(&mut AttributeList)| {
        send_dynamic_request(&mut world, code, write).and_then(|(_, cause, _)| cause)
    };
    let (end, change) = (PacketCode::DISCONNECT_REQUEST, PacketCode::COA_REQUEST);
    assert_eq!(refused(end, |_| {}), Some(error_cause::MISSING_ATTRIBUTE));
    let other_nas = |a: &mut AttributeList| {
        a.push_text(kind::USER_NAME, "ann").unwrap();
        a.push_ipv4(kind::NAS_IP_ADDRESS, [10, 0, 0, 9].into());
    };
    assert_eq!(refused(end, other_nas), Some(error_cause::NAS_IDENTIFICATION_MISMATCH));
    // An identity that the NAS does not have is a mismatch.
    let by_v6 = |a: &mut AttributeList| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_ipv6(kind::NAS_IPV6_ADDRESS, Ipv6Addr::LOCALHOST);
    };
    assert_eq!(refused(end, by_v6), Some(error_cause::NAS_IDENTIFICATION_MISMATCH));
    // RFC 5176 §3: a Disconnect-Request has session attributes only.
    let with_timeout = |a: &mut AttributeList| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_u32(kind::SESSION_TIMEOUT, 5);
    };
    assert_eq!(refused(end, with_timeout), Some(error_cause::UNSUPPORTED_ATTRIBUTE));
    assert_eq!(refused(change, with_timeout), None);
    // RFC 5176 §3.2: Authorize Only.
    let authorize_only = |a: &mut AttributeList| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_u32(kind::SERVICE_TYPE, 17);
        a.push_bytes(kind::STATE, b"x").unwrap();
    };
    assert_eq!(refused(change, authorize_only), Some(error_cause::UNSUPPORTED_SERVICE));
    let ill_formed = |a: &mut AttributeList| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_bytes(kind::SESSION_TIMEOUT, &[1]).unwrap();
    };
    assert_eq!(refused(change, ill_formed), Some(error_cause::INVALID_REQUEST));
    let filter = |a: &mut AttributeList| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_text(kind::FILTER_ID, "f").unwrap();
    };
    assert_eq!(refused(change, filter), Some(error_cause::UNSUPPORTED_ATTRIBUTE));
}

#[test]
fn a_nas_is_known_by_what_its_attributes_call_it() {
    let mut identity = NasIdentity::for_ethernet("");
    identity.attributes.push_text(kind::NAS_IDENTIFIER, "by another name").unwrap();
    let mut world = radius_of(identity);
    for (name, cause) in
        [("by another name", None), ("nas.example.org", Some(error_cause::NAS_IDENTIFICATION_MISMATCH))]
    {
        let answer = send_dynamic_request(&mut world, PacketCode::DISCONNECT_REQUEST, |a| {
            a.push_text(kind::USER_NAME, "ann").unwrap().push_text(kind::NAS_IDENTIFIER, name).unwrap();
        });
        assert_eq!(answer.unwrap().1, cause, "{name}");
    }
}

#[test]
fn an_answer_repeats_the_state() {
    let mut world = radius_nas();
    let answer = send_dynamic_request(&mut world, PacketCode::COA_REQUEST, |a| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_bytes(kind::STATE, b"again").unwrap();
        a.push_u32(kind::SESSION_TIMEOUT, 5);
    });
    let (code, _, attributes) = answer.unwrap();
    assert_eq!((code, attributes.get(kind::STATE)), (PacketCode::COA_ACK, Some(&b"again"[..])));
}

#[test]
fn strangers_and_what_is_old_are_not_heard() {
    let mut world = radius_nas();
    let old = |a: &mut AttributeList| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_u32(kind::EVENT_TIMESTAMP, 1_799_999_000);
    };
    assert_eq!(send_dynamic_request(&mut world, PacketCode::DISCONNECT_REQUEST, old), None);
    assert!(world.0.net[world.0.nas].dynamic_counters().unwrap().stale > 0);
    // The AAA server for logins is no client of dynamic authorization.
    let config =
        client::RadiusClientConfig::for_server(ServerConfig::new(SocketAddr::new(NAS, 3799), test_secret()));
    let asker = RadiusClient::new(config, Seed::new(1).derive_secure_rng("stranger", 0)).unwrap();
    let stranger = world.0.net.add_host(asker, &["10.0.0.9".parse().unwrap()]);
    let mut attributes = AttributeList::new();
    attributes.push_text(kind::USER_NAME, "ann").unwrap();
    let (target, code) = (RequestTarget::Server(0), PacketCode::DISCONNECT_REQUEST);
    world
        .0
        .net
        .send_command(stranger, client::RadiusClientCommand::Request { token: 1, target, code, attributes })
        .unwrap();
    world.0.run_seconds(60);
    assert_eq!(world.0.take_events(), []);
    assert!(world.0.net[world.0.nas].dynamic_counters().unwrap().unknown_client > 0);
}

/// A RadSec server that sends raw octets on the connection that it accepted.
#[derive(Default)]
struct RadSecServer {
    conn: Option<ConnId>,
    outputs: OutputQueue<Vec<u8>>,
}

impl Machine for RadSecServer {
    type Command = Vec<u8>;
    type Event = Vec<u8>;
    type Job = NoJob;

    fn handle_input(&mut self, _: Instant, input: MachineInput<'_>) {
        let MachineInput::Stream { conn, event } = input else { return };
        match event {
            StreamEvent::Accepted { .. } => self.conn = Some(conn),
            StreamEvent::Data(data) => self.outputs.push_event(data.to_vec()),
            _ => self.conn = None,
        }
    }
    fn handle_command(&mut self, _: Instant, octets: Vec<u8>) -> Result<(), CommandError> {
        let conn = self.conn.ok_or(CommandError::UnknownToken)?;
        self.outputs.push_transmit(Transmit::Stream { conn, op: StreamOp::Data }, octets);
        Ok(())
    }
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
}

/// A RadSec packet with this code, authenticated as a request or as the reply to this authenticator.
fn radsec_packet(code: PacketCode, identifier: u8, authenticator: [u8; 16], attributes: &[u8]) -> Vec<u8> {
    let head = [code.0, identifier, 0, 20 + attributes.len() as u8];
    let digest = md5(&[&head, &authenticator, attributes, b"radsec"]);
    [&head[..], &digest, attributes].concat()
}

/// A NAS with a login at a RadSec server, and the request's head. This address may send dynamic requests.
fn by_radsec(
    asker: Option<IpAddr>,
) -> (MachineNetwork, NetworkHostHandle<AccessClient>, NetworkHostHandle<RadSecServer>, (u8, [u8; 16])) {
    let mut config = radius_config(TestTransport::RadSec, 1);
    config.dynamic = asker.map(|asker| {
        let clients = vec![ClientConfig::for_radsec(asker, 32, Vec::new())];
        Box::new(DynamicAuthConfig { clients, freshness: None })
    });
    let mut net = test_network();
    let identity = NasIdentity { address: Some(NAS), ..NasIdentity::for_ethernet("nas.example.org") };
    let access =
        AccessClient::new(identity, AaaConfig::Radius(config), Seed::new(5).derive_secure_rng("nas", 0));
    let nas = net.add_host(access.unwrap(), &[NAS]);
    let server = net.add_host(RadSecServer::default(), &[SERVERS[0]]);
    net.add_listener(server, ListenerId::from_number(0), SocketAddr::new(SERVERS[0], PORT));
    net.on_event(nas, |event| {
        let AccessClientEvent::Dynamic(request) = event else { return None };
        let answer =
            if request.is_about(&test_session()) { Ok(()) } else { Err(ErrorCause::SessionContextNotFound) };
        Some((Duration::ZERO, AccessClientCommand::AnswerDynamic { token: request.token, answer }))
    });
    let now = net.now();
    net[nas].send_request(now, 1, &AccessRequest::new(b"ann", UserCredentials::Pap(b"x"))).unwrap();
    net.run_for(Duration::from_millis(100));
    let asked = net.take_events(server).remove(0).1;
    let mut authenticator = [0; 16];
    authenticator.copy_from_slice(&asked[4..20]);
    (net, nas, server, (asked[1], authenticator))
}

/// RFC 6614 §2.1: one port and one connection for all RADIUS packets. §2.5: a server without permission gets an error.
#[test]
fn a_radsec_server_asks_by_the_connection_that_the_nas_opened() {
    for asker in [Some(SERVERS[0]), Some(SERVERS[1]), None] {
        let heard = asker == Some(SERVERS[0]);
        let (mut net, nas, server, (identifier, authenticator)) = by_radsec(asker);
        // The reply and two requests as one piece, whose last octets come later.
        let stretch = [
            radsec_packet(PacketCode::ACCESS_ACCEPT, identifier, authenticator, &[]),
            radsec_packet(PacketCode::DISCONNECT_REQUEST, 7, [0; 16], b"\x01\x05ann"),
            radsec_packet(PacketCode::COA_REQUEST, 8, [0; 16], b"\x01\x05eve\x21\x03p"),
        ]
        .concat();
        let (first, last) = stretch.split_at(stretch.len() - 30);
        for part in [first, last] {
            net.send_command(server, part.to_vec()).unwrap();
            net.run_for(Duration::from_millis(100));
        }
        let events: Vec<AccessClientEvent> =
            net.take_events(nas).into_iter().map(|(_, event)| event).collect();
        assert!(matches!(&events[0], AccessClientEvent::Accept { token: 1, .. }), "{events:?}");
        assert_eq!(events.len(), if heard { 3 } else { 1 }, "{events:?}");
        let answers: Vec<Vec<u8>> = net.take_events(server).into_iter().map(|(_, data)| data).collect();
        let heads: Vec<(u8, u8)> = answers.iter().map(|data| (data[0], data[1])).collect();
        let first = if heard { PacketCode::DISCONNECT_ACK } else { PacketCode::DISCONNECT_NAK };
        assert_eq!(heads, [(first.0, 7), (PacketCode::COA_NAK.0, 8)]);
        if !heard {
            // Error-Cause: Unsupported Extension.
            assert_eq!(answers[0][20..], [101, 6, 0, 0, 1, 150]);
            assert_eq!(answers[1][20..], *b"\x65\x06\0\0\x01\x96\x21\x03p");
            let request = radsec_packet(PacketCode::DISCONNECT_REQUEST, 7, [0; 16], b"\x01\x05ann");
            let digest = md5(&[&answers[0][..4], &request[4..20], &answers[0][20..], b"radsec"]);
            assert_eq!(answers[0][4..20], digest);
        }
        // A malformed packet ends the connection, and both ends remove it.
        net.send_command(server, vec![43, 1, 0, 3]).unwrap();
        net.run_for(Duration::from_millis(100));
        assert_eq!(net[nas].radius_counters().unwrap().connections_malformed, 1);
        assert_eq!(net[server].conn, None);
    }
}

/// RFC 6613 §2.6.4: a packet that ends the connection is its last, whether for client or server. The rest is ignored,
/// and nothing more is sent.
#[test]
fn a_packet_that_ends_a_radsec_connection_is_its_last() {
    for asker in [Some(SERVERS[0]), Some(SERVERS[1]), None] {
        for case in 0..4 {
            let (mut net, nas, server, (identifier, authenticator)) = by_radsec(asker);
            let accept = radsec_packet(PacketCode::ACCESS_ACCEPT, identifier, authenticator, &[]);
            let disconnect = radsec_packet(PacketCode::DISCONNECT_REQUEST, 7, [0; 16], b"\x01\x05ann");
            let spoilt = |mut packet: Vec<u8>| {
                packet[4] ^= 1;
                packet
            };
            let stretch = match case {
                0 => [spoilt(accept), disconnect],
                1 => [spoilt(disconnect), accept],
                // An attribute longer than its packet.
                2 => [radsec_packet(PacketCode::DISCONNECT_REQUEST, 7, [0; 16], b"\x01\x09ann"), accept],
                _ => {
                    let signed = [&[80, 18][..], &[9; 16]].concat();
                    [radsec_packet(PacketCode::DISCONNECT_REQUEST, 7, [0; 16], &signed), accept]
                }
            };
            net.send_command(server, stretch.concat()).unwrap();
            net.run_for(Duration::from_millis(10));
            assert_eq!(net.take_events(nas).len(), 0, "{asker:?} {case}");
            assert_eq!(net[nas].radius_counters().unwrap().connections_malformed, 1, "{asker:?} {case}");
            assert_eq!((net[server].conn, net.take_events(server).len()), (None, 0), "{asker:?} {case}");
            // The pending request goes by the next connection.
            net.run_for(Duration::from_secs(5));
            assert_eq!(
                net.take_events(server).first().map(|(_, asked)| asked[0]),
                Some(1),
                "{asker:?} {case}"
            );
        }
    }
}

/// A stateful Diameter server. Ann's answer implies it, Bob's denies it, and Eve's accept is malformed.
fn stateful_network() -> AccessTestNetwork {
    let mut w = network_for_user(b"ann");
    assert!(matches!(w.take_event(), AccessClientEvent::Accept { .. }));
    w
}
fn network_for_user(name: &[u8]) -> AccessTestNetwork {
    let script = ServerScript {
        radius: |_| None,
        diameter: |message: &DiameterMessage| {
            let view = message.avps.as_sequence();
            let mut avps = AvpBuf::new();
            if message.header.command == command::AA {
                assert_eq!(view.get(codes::AUTH_SESSION_STATE).unwrap().as_u32(), Ok(0));
                match view.get(codes::USER_NAME).unwrap().data {
                    b"eve" => {}
                    b"ann" => avps = answer_avps(message),
                    name => {
                        avps = answer_avps(message);
                        avps.push_u32(codes::AUTH_SESSION_STATE, u32::from(name == b"bob"));
                    }
                }
            } else {
                assert_eq!(message.header.command, command::SESSION_TERMINATION);
                assert_eq!(message.header.application, application::NASREQ);
                assert_eq!(view.get(codes::DESTINATION_HOST).unwrap().data, server_identity(0).as_bytes());
                // Admin Reset and NAS Error (RFC 4005 §9.3.5).
                assert!(matches!(view.get(codes::TERMINATION_CAUSE).unwrap().as_u32(), Ok(16 | 19)));
            }
            Some((ResultCode::SUCCESS, avps))
        },
    };
    let mut config = diameter_config(1);
    config.stateful = true;
    let mut w = AccessTestNetwork::with_config(
        AaaConfig::Diameter(Box::new(config)),
        TestTransport::Diameter,
        1,
        script,
    );
    let now = w.net.now();
    w.net[w.nas]
        .send_request(now, 1 << 32 | 5, &AccessRequest::new(name, UserCredentials::Pap(b"x")))
        .unwrap();
    w.run_seconds(1);
    w
}
/// True if the server got the end of a session.
fn is_told(w: &mut AccessTestNetwork) -> bool {
    w.net.take_events(w.diameter[0]).into_iter().any(|(_, event)| {
        matches!(event, node::DiameterNodeEvent::Request { message, .. } if message.header.command == command::SESSION_TERMINATION)
    })
}

/// The Session-Id of the login.
fn session_id(w: &mut AccessTestNetwork) -> String {
    let events = w.net.take_events(w.diameter[0]);
    let id = events.iter().find_map(|(_, event)| match event {
        node::DiameterNodeEvent::Request { message, .. } => {
            message.avps.as_sequence().get(codes::SESSION_ID)?.as_utf8().ok()
        }
        _ => None,
    });
    id.unwrap().to_owned()
}

/// Sends a server's request and returns the NAS's answer.
fn send_server_request(w: &mut AccessTestNetwork, command: u32, session_id: &str) -> ResultCode {
    let request = node::DiameterRequest {
        token: 9,
        application: application::NASREQ,
        command,
        destination_realm: "example.org".into(),
        destination_host: Some("nas.example.org".into()),
        session_id: session_id.into(),
        avps: AvpBuf::new(),
    };
    w.net.send_command(w.diameter[0], node::DiameterNodeCommand::Request(request)).unwrap();
    w.run_seconds(1);
    let events = w.net.take_events(w.diameter[0]);
    let result = events.into_iter().find_map(|(_, event)| match event {
        node::DiameterNodeEvent::Answer { token: 9, result, .. } => Some(result),
        _ => None,
    });
    result.unwrap()
}

#[test]
fn a_diameter_server_ends_a_session_and_gets_its_termination() {
    let mut w = stateful_network();
    let id = session_id(&mut w);
    w.net.on_event(w.nas, |event| {
        let AccessClientEvent::Dynamic(request) = event else { return None };
        assert_eq!((request.kind, request.session), (DynamicRequestKind::Disconnect, Some(1 << 32 | 5)));
        Some((Duration::ZERO, AccessClientCommand::AnswerDynamic { token: request.token, answer: Ok(()) }))
    });
    assert_eq!(send_server_request(&mut w, command::ABORT_SESSION, &id), ResultCode::SUCCESS);
    let (token, cause) = (1 << 32 | 5, TerminateCause::AdminReset);
    w.net.send_command(w.nas, AccessClientCommand::Terminate { token, cause }).unwrap();
    w.run_seconds(1);
    assert!(is_told(&mut w));
    // The session is over: no further disconnection and no second termination.
    assert_eq!(send_server_request(&mut w, command::ABORT_SESSION, &id), ResultCode::UNKNOWN_SESSION_ID);
    let before = w.net.sent_transmits().len();
    w.net.send_command(w.nas, AccessClientCommand::Terminate { token, cause }).unwrap();
    assert_eq!(w.net.sent_transmits().len(), before);
}

/// RFC 6733 §8.1, §8.5.2: a session whose disconnection is refused continues.
#[test]
fn a_session_that_is_not_ended_goes_on() {
    for (cause, result) in [
        (ErrorCause::SessionContextNotRemovable, ResultCode::UNABLE_TO_COMPLY),
        (ErrorCause::ResourcesUnavailable, ResultCode::UNABLE_TO_COMPLY),
        (ErrorCause::SessionContextNotFound, ResultCode::UNKNOWN_SESSION_ID),
    ] {
        let mut w = stateful_network();
        let id = session_id(&mut w);
        w.net.on_event(w.nas, move |event| {
            let AccessClientEvent::Dynamic(request) = event else { return None };
            Some((
                Duration::ZERO,
                AccessClientCommand::AnswerDynamic { token: request.token, answer: Err(cause) },
            ))
        });
        assert_eq!(send_server_request(&mut w, command::ABORT_SESSION, &id), result);
        let (token, cause) = (1 << 32 | 5, TerminateCause::AdminReset);
        w.net.send_command(w.nas, AccessClientCommand::Terminate { token, cause }).unwrap();
        w.run_seconds(1);
        assert!(is_told(&mut w));
    }
}

/// RFC 6733 §8.11: the answer decides whether a session is stateful. Without the AVP it is.
#[test]
fn whether_a_session_is_kept_is_the_servers_word() {
    for (name, is_kept) in [(&b"ann"[..], true), (b"zoe", true), (b"bob", false)] {
        let mut w = network_for_user(name);
        assert!(matches!(w.take_event(), AccessClientEvent::Accept { .. }));
        w.net.take_events(w.diameter[0]);
        let (token, cause) = (1 << 32 | 5, TerminateCause::AdminReset);
        w.net.send_command(w.nas, AccessClientCommand::Terminate { token, cause }).unwrap();
        w.run_seconds(1);
        assert_eq!(is_told(&mut w), is_kept, "{name:?}");
    }
}

/// RFC 6733 §8.1: the NAS terminates a session that it cannot use.
#[test]
fn the_server_gets_a_termination_for_an_unusable_session() {
    let mut w = network_for_user(b"eve");
    assert_eq!(
        w.take_event(),
        AccessClientEvent::Failed { token: 1 << 32 | 5, failure: AaaRequestFailure::BadAnswer }
    );
    assert!(is_told(&mut w));
}

#[test]
fn a_diameter_server_wants_a_user_authenticated_again() {
    let mut w = stateful_network();
    let id = session_id(&mut w);
    w.net.on_event(w.nas, |event| {
        let AccessClientEvent::Dynamic(request) = event else { return None };
        assert_eq!(
            (request.kind, request.changed_attribute_numbers().count()),
            (DynamicRequestKind::Reauthenticate, 0)
        );
        let answer = Err(ErrorCause::AdministrativelyProhibited);
        Some((Duration::ZERO, AccessClientCommand::AnswerDynamic { token: request.token, answer }))
    });
    assert_eq!(send_server_request(&mut w, command::RE_AUTH, &id), ResultCode::AUTHORIZATION_REJECTED);
    // RFC 6733 §8.1: the session is over on both sides, without a termination.
    assert_eq!(send_server_request(&mut w, command::RE_AUTH, &id), ResultCode::UNKNOWN_SESSION_ID);
    let (token, cause) = (1 << 32 | 5, TerminateCause::AdminReset);
    w.net.send_command(w.nas, AccessClientCommand::Terminate { token, cause }).unwrap();
    w.run_seconds(1);
    assert!(!is_told(&mut w));
    for other in ["nas.example.org;1;1;5", "another;0;1;5", "x", ""] {
        assert_eq!(send_server_request(&mut w, command::RE_AUTH, other), ResultCode::UNKNOWN_SESSION_ID);
    }
}

#[test]
fn a_nas_without_kept_sessions_is_asked_nothing() {
    let mut w = AccessTestNetwork::new(TestTransport::Diameter, 1, SILENT);
    assert!(!w.net[w.nas].accepts_dynamic_requests());
    assert_eq!(
        send_server_request(&mut w, command::ABORT_SESSION, "x;1;2;3"),
        ResultCode::COMMAND_UNSUPPORTED
    );
    let terminate = AccessClientCommand::Terminate { token: 1, cause: TerminateCause::UserRequest };
    let before = w.net.sent_transmits().len();
    w.net.send_command(w.nas, terminate).unwrap();
    assert_eq!((w.net.sent_transmits().len(), w.net.now() > Instant::ZERO), (before, true));
}
