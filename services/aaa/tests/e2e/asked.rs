//! Raw Diameter requests of a client against RFC 4072, RFC 6733 and RFC 7155.

use crate::build::{PASSWORD, diameter_server, server_name, test_users, user_name};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::{AaaServer, AuthMethod, DIAMETER_LISTENER as LISTENER, User, UserDirectory};
use usher_core::bench::TestMachine;
use usher_core::{ConnId, Instant, Machine, MachineInput, Seed, StreamEvent, StreamOp, Transmit};
use usher_crypto::digest::md5;
use usher_diameter::avp::{Avp, AvpBuf};
use usher_diameter::codes::{application, command};
use usher_diameter::eap::{DiameterEapAnswer, DiameterEapRequest};
use usher_diameter::nasreq::{AaRequest, AuthRequestType, ChapAuth, NasInfo};
use usher_diameter::node::{self, DiameterNode, DiameterRequest};
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_diameter::{ResultCode, codes};
use usher_radius::attribute::kind;

const NOW: Instant = Instant::ZERO;

/// A client with a connection to a server.
struct ConnectedClient {
    server: TestMachine<AaaServer>,
    node: TestMachine<DiameterNode>,
    last_token: u64,
}

impl ConnectedClient {
    fn with_users(users: Arc<UserDirectory>) -> Self {
        let mut config = diameter_server(0, users);
        config.methods = vec![AuthMethod::EapMd5, AuthMethod::Pap, AuthMethod::Chap];
        config.full_answers = true;
        let applications = [
            DiameterApplication::for_authentication(application::EAP),
            DiameterApplication::for_authentication(application::NASREQ),
        ];
        let mut node = node::DiameterNodeConfig::new("switch.example.org", "example.org", &applications);
        node.local.addresses.push([10, 0, 0, 9].into());
        let at = SocketAddr::from(([10, 0, 0, 1], 3868));
        let mut client = Self {
            server: TestMachine::new(
                AaaServer::new(config, Seed::new(1).derive_secure_rng("server", 0)).unwrap(),
            ),
            node: TestMachine::new(DiameterNode::new(
                node.connect_to(&server_name(0), at),
                NOW,
                Seed::new(1).derive_secure_rng("client", 0),
            )),
            last_token: 0,
        };
        client.node.handle_input(NOW, MachineInput::Timeout);
        client.deliver_all();
        while client.node.poll_event().is_some() {}
        client
    }

    fn new() -> Self {
        Self::with_users(test_users(Seed::new(1), 1))
    }

    fn deliver_all(&mut self) {
        let mut buf = Vec::new();
        let remote = SocketAddr::from(([10, 0, 0, 9], 40_000));
        loop {
            let there = ConnId::nth_accepted_at_listener(LISTENER, 0);
            let back = ConnId::nth_opened_connection(0);
            let accepted =
                StreamEvent::Accepted { listener: LISTENER, remote, local: None, certificate: None };
            let up = StreamEvent::Connected { remote, local: None, certificate: None };
            if let Some(Transmit::Stream { op, .. }) = self.node.poll_transmit(&mut buf) {
                let connect = matches!(op, StreamOp::Connect { .. });
                let event = if connect { accepted } else { StreamEvent::Data(&buf) };
                self.server.handle_input(NOW, MachineInput::Stream { conn: there, event });
                if connect {
                    self.node.handle_input(NOW, MachineInput::Stream { conn: back, event: up });
                }
            } else if let Some(Transmit::Stream { .. }) = self.server.poll_transmit(&mut buf) {
                self.node
                    .handle_input(NOW, MachineInput::Stream { conn: back, event: StreamEvent::Data(&buf) });
            } else if self.server.poll_event().is_none() {
                return;
            }
        }
    }

    fn send_request(&mut self, request: DiameterRequest) -> (u32, AvpBuf) {
        self.last_token += 1;
        let request = DiameterRequest { token: self.last_token, ..request };
        self.node.handle_command(NOW, node::DiameterNodeCommand::Request(request)).unwrap();
        self.deliver_all();
        match self.node.poll_event() {
            Some(node::DiameterNodeEvent::Answer { result: ResultCode(result), avps, .. }) => (result, avps),
            other => panic!("{other:?}"),
        }
    }

    /// Sends a round of EAP.
    fn send_eap(&mut self, eap: &[u8], state: Option<&[u8]>) -> (u32, AvpBuf) {
        self.send_request(build_der(eap, state))
    }

    /// Starts a login. Returns the challenge and the State.
    fn request_challenge(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (result, avps) = self.send_eap(&identity_response(), None);
        assert_eq!(result, 1001);
        let dea = DiameterEapAnswer::parse(avps.as_sequence()).unwrap();
        (dea.eap.unwrap().to_vec(), dea.state.unwrap().to_vec())
    }
}

fn first_user_name() -> String {
    String::from_utf8(user_name(0)).unwrap()
}
fn identity_response() -> Vec<u8> {
    [&[2, 0, 0, first_user_name().len() as u8 + 5, 1], first_user_name().as_bytes()].concat()
}
fn md5_response(challenge: &[u8], password: &[u8]) -> Vec<u8> {
    let digest = md5(&[&[challenge[1]], password, &challenge[6..22]]);
    [&[2, challenge[1], 0, 22, 4, 16][..], &digest].concat()
}
fn build_der(eap: &[u8], state: Option<&[u8]>) -> DiameterRequest {
    let (name, request_type) = (first_user_name(), AuthRequestType::AuthorizeAuthenticate);
    let der =
        DiameterEapRequest { request_type, eap, user_name: Some(&name), state, nas: NasInfo::default() };
    der.to_request(0, "switch.example.org;1;1".into(), "example.org".into(), None)
}
fn build_aar(password: Option<&[u8]>, chap: Option<ChapAuth<'_>>) -> DiameterRequest {
    let (name, request_type) = (first_user_name(), AuthRequestType::AuthorizeAuthenticate);
    let nas = NasInfo::default();
    let aar = AaRequest { request_type, user_name: Some(&name), password, chap, state: None, nas };
    aar.to_request(0, "switch.example.org;1;2".into(), "example.org".into(), None)
}
/// Returns the answer's Failed-AVP.
fn failed_avp(avps: &AvpBuf) -> Option<Avp> {
    avps.as_sequence().get(codes::FAILED_AVP)?.as_group().unwrap().next().map(|a| a.to_owned())
}

/// RFC 7155 §4.3.4.
#[test]
fn chap_proves_a_password() {
    let mut client = ConnectedClient::new();
    for (password, expected) in [(PASSWORD, 2001), (&b"wrong"[..], 4001)] {
        let response = &md5(&[&[7], password, b"who are you?"]);
        let chap = ChapAuth { identifier: 7, response, challenge: b"who are you?" };
        assert_eq!(client.send_request(build_aar(None, Some(chap))).0, expected);
    }
    let c = client.server.counters();
    assert_eq!((c.accepted_chap, c.rejected_wrong_password), (1, 1));
    // A malformed proof is not a wrong password.
    let chap = ChapAuth { identifier: 7, response: &[0; 16], challenge: b"" };
    let mut request = build_aar(None, Some(chap));
    request.avps = request.avps.as_sequence().filter(|a| !a.has_id(codes::CHAP_CHALLENGE)).fold(
        AvpBuf::new(),
        |mut b, a| {
            b.push_view(a);
            b
        },
    );
    let (result, avps) = client.send_request(request);
    assert_eq!((result, failed_avp(&avps).map(|a| a.code)), (5005, Some(60)));
}

/// RFC 4072 §2.4: after a non-fatal error the answer has the pending EAP request in EAP-Reissued-Payload.
#[test]
fn a_packet_that_answers_nothing_gets_the_open_request_again() {
    let mut client = ConnectedClient::new();
    let (challenge, state) = client.request_challenge();
    // Another identifier, another method, a Nak of a method that is not offered, and no packet.
    for packet in
        [&[2, challenge[1].wrapping_add(9), 0, 6, 4, 0][..], &[2, challenge[1], 0, 6, 13, 0], &[2, 1]]
    {
        let (result, avps) = client.send_eap(packet, Some(&state));
        let dea = DiameterEapAnswer::parse(avps.as_sequence()).unwrap();
        assert_eq!((result, dea.eap, dea.reissued), (1001, None, Some(&challenge[..])), "{packet:?}");
        assert_eq!((dea.state, dea.multi_round_timeout), (Some(&state[..]), Some(30)));
    }
    // The conversation continues unchanged.
    let (result, avps) = client.send_eap(&md5_response(&challenge, PASSWORD), Some(&state));
    let dea = DiameterEapAnswer::parse(avps.as_sequence()).unwrap();
    assert_eq!((result, dea.eap.map(|e| e[0])), (2001, Some(3)));
    assert_eq!(client.server.counters().bad_eap, 3);
    // So does an empty packet, which asks for the identity.
    let (result, avps) = client.send_eap(b"", None);
    let dea = DiameterEapAnswer::parse(avps.as_sequence()).unwrap();
    let (asked, state) = (dea.eap.unwrap().to_vec(), dea.state.unwrap().to_vec());
    assert_eq!((result, asked[4]), (1001, 1));
    let (result, avps) = client.send_eap(&[2, asked[1].wrapping_add(1), 0, 6, 1, b'x'], Some(&state));
    let dea = DiameterEapAnswer::parse(avps.as_sequence()).unwrap();
    assert_eq!((result, dea.eap, dea.reissued), (1001, None, Some(&asked[..])));
}

/// RFC 4072 §2.4, §2.8.4: a packet that cannot start a conversation gets an EAP-Failure, and an EAP request a failure.
#[test]
fn what_is_no_response_of_a_peer_is_a_failure() {
    let mut client = ConnectedClient::new();
    let nak = [2, 9, 0, 6, 3, 0];
    for (packet, said) in
        [(&[1, 9, 0, 5, 1][..], &nak[..]), (&[2, 9], &[4, 9, 0, 4]), (b"\xff\x09\xff\xff\xff", &[4, 9, 0, 4])]
    {
        let (result, avps) = client.send_eap(packet, None);
        let dea = DiameterEapAnswer::parse(avps.as_sequence()).unwrap();
        assert_eq!((result, dea.eap), (4001, Some(said)), "{packet:?}");
    }
    let (challenge, state) = client.request_challenge();
    let (result, avps) = client.send_eap(&challenge, Some(&state));
    assert_eq!((result / 1000, DiameterEapAnswer::parse(avps.as_sequence()).is_err()), (5, true));
}

/// RFC 4072 §3.2, §2.8.2: EAP packet and Result-Code agree.
#[test]
fn the_packet_says_what_the_result_says() {
    for (password, result, packet) in [(PASSWORD, 2001, 3), (&b"wrong"[..], 4001, 4)] {
        let mut client = ConnectedClient::new();
        let (challenge, state) = client.request_challenge();
        let (code, avps) = client.send_eap(&md5_response(&challenge, password), Some(&state));
        let dea = DiameterEapAnswer::parse(avps.as_sequence()).unwrap();
        assert_eq!((code, dea.eap.map(|e| (e[0], e[1]))), (result, Some((packet, challenge[1]))));
        // RFC 6733 §8.11: no session is left to be terminated.
        assert_eq!(avps.as_sequence().get(codes::AUTH_SESSION_STATE).map(|a| a.as_u32()), Some(Ok(1)));
        // RFC 4072 §2.7: the accepted method, and none at a reject.
        assert_eq!(dea.methods, if result == 2001 { vec![4] } else { vec![] });
    }
}

/// RFC 4072 §4.1.4.
#[test]
fn a_key_that_a_client_names_is_passed_over() {
    let mut client = ConnectedClient::new();
    let mut request = build_der(&identity_response(), None);
    request.avps.push(codes::EAP_KEY_NAME, b"mine");
    let (result, avps) = client.send_request(request);
    assert_eq!((result, avps.as_sequence().get(codes::EAP_KEY_NAME)), (1001, None));
}

/// RFC 4072 §2.8.3.
#[test]
fn a_reply_message_goes_with_a_password_and_not_with_eap() {
    let mut rng = Seed::new(1).derive_secure_rng("users", 0);
    let mut all = UserDirectory::new(&mut rng);
    let mut user = User::with_password(PASSWORD);
    user.reply.push_text(kind::REPLY_MESSAGE, "welcome").unwrap();
    all.insert(&user_name(0), user);
    let mut client = ConnectedClient::with_users(Arc::new(all));
    let (result, avps) = client.send_request(build_aar(Some(PASSWORD), None));
    assert_eq!(
        (result, avps.as_sequence().get(codes::REPLY_MESSAGE).map(|a| a.data)),
        (2001, Some(&b"welcome"[..]))
    );
    let (challenge, state) = client.request_challenge();
    let (result, avps) = client.send_eap(&md5_response(&challenge, PASSWORD), Some(&state));
    assert_eq!((result, avps.as_sequence().get(codes::REPLY_MESSAGE)), (2001, None));
}

/// RFC 6733 §8.1, §8.3, §8.4, §8.5: a stateless server answers requests for a session with an unknown-session error.
#[test]
fn sessions_that_nobody_keeps_are_unknown() {
    let mut client = ConnectedClient::new();
    for (command, id, value) in
        [(command::SESSION_TERMINATION, 295, 1), (command::ABORT_SESSION, 0, 0), (command::RE_AUTH, 285, 0)]
    {
        let mut request = build_der(b"", None);
        (request.command, request.avps) = (command, AvpBuf::new());
        request.destination_host = Some(server_name(0));
        if id != 0 {
            request.avps.push_u32(usher_diameter::AvpId::must(id), value);
        }
        let (result, avps) = client.send_request(request);
        assert_eq!(result, 5002, "{command}");
        assert_eq!(
            avps.as_sequence().get(codes::SESSION_ID).map(|a| a.data),
            Some(&b"switch.example.org;1;1"[..])
        );
    }
}

/// RFC 6733 §3.2, §4.1, §7.1.5: a request is first checked against the grammar of its command.
#[test]
fn a_request_against_its_grammar_is_refused() {
    let mut client = ConnectedClient::new();
    let with = |id, data: &[u8]| {
        let mut request = build_der(&identity_response(), None);
        request.avps.push(id, data);
        request
    };
    for (request, code, avp) in [
        (with(codes::USER_NAME, b"somebody else"), 5009, 1),
        (with(codes::EAP_PAYLOAD, &identity_response()), 5009, 462),
        (with(codes::SESSION_TIMEOUT, b"x"), 5014, 27),
        (with(usher_diameter::AvpId::must(60_000), b"x"), 5001, 60_000),
        (with(codes::ACCT_APPLICATION_ID, &[0, 0, 0, 3]), 5004, 259),
        (DiameterRequest { avps: AvpBuf::new(), ..build_der(b"", None) }, 5005, 274),
    ] {
        let (result, avps) = client.send_request(request);
        assert_eq!((result, failed_avp(&avps).map(|a| a.code)), (code, Some(avp)));
    }
    assert_eq!(client.server.counters().sessions, 0);
}
