//! Malformed input: each case of the RFCs, with silence or the required reply, and its counter.

use super::daemon::{ANN, DaemonProcess, SECRET, ServerPorts, get_page, metric_value};
use super::records::accounting_request;
use crate::place::{TEST_TIMEOUT, TempDir, own_address};
use std::net::UdpSocket;
use usher_crypto::digest::{HmacMd5Key, md5};
use usher_radius::SharedSecret;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::{OwnedPacket, PacketCode, RadiusPacket};

/// The expected result of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ExpectedAnswer {
    Silence,
    Accept,
    Reject,
    Challenge,
}
use ExpectedAnswer::{Accept, Challenge, Reject, Silence};

/// A client of the server.
pub(super) struct TestRadiusClient {
    socket: UdpSocket,
    secret: SharedSecret,
}

impl TestRadiusClient {
    pub(super) fn new(from: &str, port: u16) -> Self {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        socket.connect((own_address(), port)).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        Self { socket, secret: SharedSecret::new(SECRET.as_bytes()) }
    }

    pub(super) fn send(&self, packet: &[u8]) {
        self.socket.send(packet).unwrap();
    }

    pub(super) fn receive(&self) -> Vec<u8> {
        let mut buf = [0; 4096];
        let n = self.socket.recv(&mut buf).expect("the server answers");
        buf[..n].to_vec()
    }

    /// Sends a packet and then a Status-Server, which is always answered. The server handles datagrams of one batch
    /// step by step, so this reply may overtake the packet's. The reply to a second Status-Server, sent after the
    /// first reply, cannot.
    fn send_and_check(&self, packet: &[u8]) -> Option<Vec<u8>> {
        const MARK: u8 = 255;
        let mark = sign_packet(
            PacketCode::STATUS_SERVER,
            MARK,
            [77; 16],
            &AttributeList::new(),
            AuthenticatorForm::Right,
        );
        self.send(packet);
        self.send(&mark);
        let mut answer = self.receive();
        if answer[1] == MARK {
            self.send(&mark);
            answer = self.receive();
            if answer[1] == MARK {
                return None;
            }
        }
        assert_eq!(self.receive()[1], MARK, "one answer at most");
        Some(answer)
    }

    /// True if a reply is the server's reply to this request.
    fn is_answer(&self, answer: &[u8], request: &[u8]) -> bool {
        let asked = request[4..20].try_into().unwrap();
        usher_radius::auth::check_response(&RadiusPacket::parse(answer).unwrap(), &asked, &self.secret)
    }
}

/// The form of a packet's proof of origin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthenticatorForm {
    Right,
    Wrong,
    Not,
    Twice,
    Short,
}

/// A packet with a Message-Authenticator (RFC 3579 §3.2).
pub(super) fn sign_packet(
    code: PacketCode,
    identifier: u8,
    authenticator: [u8; 16],
    attributes: &AttributeList,
    how: AuthenticatorForm,
) -> Vec<u8> {
    let mut attributes = attributes.clone();
    let zeros = [0; 16];
    let times = match how {
        AuthenticatorForm::Not => 0,
        AuthenticatorForm::Twice => 2,
        _ => 1,
    };
    let value = if how == AuthenticatorForm::Short { &zeros[..15] } else { &zeros };
    for _ in 0..times {
        attributes.push_bytes(kind::MESSAGE_AUTHENTICATOR, value).unwrap();
    }
    let mut out = Vec::new();
    OwnedPacket { code, identifier, authenticator, attributes }.encode_into(&mut out).unwrap();
    if times > 0 {
        let mut mac = HmacMd5Key::new(SECRET.as_bytes()).mac(&[&out]);
        if how == AuthenticatorForm::Wrong {
            mac[0] ^= 1;
        }
        let at = out.len() - value.len();
        out[at..].copy_from_slice(&mac[..value.len()]);
    }
    out
}

/// Access-Requests with consecutive numbers.
struct RequestSequence(u8);

impl RequestSequence {
    fn next_request(&mut self, attributes: &AttributeList, how: AuthenticatorForm) -> Vec<u8> {
        self.0 += 1;
        sign_packet(PacketCode::ACCESS_REQUEST, self.0, [self.0; 16], attributes, how)
    }
    /// The password `right`, hidden as in the next request (RFC 2865 §5.2).
    fn hidden_password(&self) -> Vec<u8> {
        let pad = md5(&[SECRET.as_bytes(), &[self.0 + 1; 16]]);
        let mut password = *b"right\0\0\0\0\0\0\0\0\0\0\0";
        password.iter_mut().zip(pad).for_each(|(octet, key)| *octet ^= key);
        password.to_vec()
    }
    fn eap_request(&mut self, name: &[u8], packet: &[u8], state: Option<&[u8]>) -> Vec<u8> {
        let mut a = AttributeList::new();
        a.push_bytes(kind::USER_NAME, name).unwrap();
        if let Some(state) = state {
            a.push_bytes(kind::STATE, state).unwrap();
        }
        a.push_eap(packet);
        self.next_request(&a, AuthenticatorForm::Right)
    }
}

/// Returns a counter of a part by its name.
fn event_counter(ports: &ServerPorts, name: &str) -> f64 {
    let (part, kind) = name.split_once(' ').unwrap();
    metric_value(
        &get_page(ports.metrics, "/metrics"),
        &format!("usher_aaa_{part}_events_total{{kind=\"{kind}\"}}"),
    )
}

#[track_caller]
fn check_answer(
    ports: &ServerPorts,
    line: &TestRadiusClient,
    what: &str,
    packet: &[u8],
    comes: ExpectedAnswer,
    counts: &str,
) -> Option<Vec<u8>> {
    let before = event_counter(ports, counts);
    let answer = line.send_and_check(packet);
    let came = match &answer {
        None => Silence,
        Some(answer) => {
            assert!(line.is_answer(answer, packet), "{what}");
            match PacketCode(answer[0]) {
                PacketCode::ACCESS_ACCEPT => Accept,
                PacketCode::ACCESS_REJECT => Reject,
                _ => Challenge,
            }
        }
    };
    assert_eq!(came, comes, "{what}");
    assert_eq!(event_counter(ports, counts), before + 1.0, "{what}: {counts}");
    answer
}

fn start_server() -> (TempDir, ServerPorts, DaemonProcess) {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let other = format!("[[client]]\nname = \"other\"\nprefix = \"127.0.0.4\"\nsecret = \"{SECRET}\"\n");
    let methods = "[methods]\norder = [\"eap-md5\", \"pap\"]\n";
    let config =
        ports.server_config(1, &format!("{methods}{other}{ANN}")).replace("127.0.0.0/8", "127.0.0.0/28");
    let server = DaemonProcess::start(&place, &config);
    (place, ports, server)
}

fn user_attributes(name: &str) -> AttributeList {
    let mut a = AttributeList::new();
    a.push_text(kind::USER_NAME, name).unwrap();
    a
}

#[test]
fn radius_packets_that_are_none() {
    let (_place, ports, server) = start_server();
    let line = TestRadiusClient::new("127.0.0.1", ports.auth);
    let mut requests = RequestSequence(0);
    let mut pap = |how| {
        let mut a = user_attributes("ann");
        a.push_bytes(kind::USER_PASSWORD, &requests.hidden_password()).unwrap();
        requests.next_request(&a, how)
    };
    let with = |mut packet: Vec<u8>, at: usize, octets: &[u8]| {
        packet[at..at + octets.len()].copy_from_slice(octets);
        packet
    };
    let good = pap(AuthenticatorForm::Right);
    let longer = [&good[..], &[0; 3000]].concat();
    let length = u16::try_from(good.len()).unwrap();
    for (what, packet) in [
        ("one octet", vec![1]),
        ("less than a header", good[..19].to_vec()),
        ("a length below that of a header", with(good.clone(), 2, &19_u16.to_be_bytes())),
        ("a length beyond what came", with(good.clone(), 2, &(length + 1).to_be_bytes())),
        ("a length beyond what RADIUS allows", with(longer, 2, &4097_u16.to_be_bytes())),
        ("an attribute of length 0", with(good.clone(), 21, &[0])),
        ("an attribute of length 1", with(good.clone(), 21, &[1])),
        ("an attribute beyond the packet", with(good.clone(), 21, &[255])),
    ] {
        check_answer(&ports, &line, what, &packet, Silence, "radius malformed");
    }
    check_answer(&ports, &line, "more than any packet has", &[1; 5000], Silence, "driver truncated");
    // Octets beyond the length are padding (RFC 2865 §3).
    let padded = [pap(AuthenticatorForm::Right), vec![9; 7]].concat();
    check_answer(&ports, &line, "padding", &padded, Accept, "radius requests");

    for (how, counts) in [
        (AuthenticatorForm::Not, "radius missing_message_authenticator"),
        (AuthenticatorForm::Wrong, "radius bad_message_authenticator"),
        (AuthenticatorForm::Twice, "radius bad_message_authenticator"),
        (AuthenticatorForm::Short, "radius bad_message_authenticator"),
    ] {
        check_answer(&ports, &line, counts, &pap(how), Silence, counts);
    }
    let mut eap = user_attributes("ann");
    eap.push_eap(&[2, 1, 0, 8, 1, b'a', b'n', b'n']);
    let unsigned = requests.next_request(&eap, AuthenticatorForm::Not);
    check_answer(&ports, &line, "EAP", &unsigned, Silence, "radius missing_message_authenticator");

    let stranger = TestRadiusClient::new("127.0.0.99", ports.auth);
    stranger.send(&requests.next_request(&user_attributes("ann"), AuthenticatorForm::Right));
    check_answer(
        &ports,
        &line,
        "a code of nobody",
        &with(good.clone(), 0, &[200]),
        Silence,
        "radius unknown_code",
    );
    assert_eq!(event_counter(&ports, "radius unknown_client"), 1.0);
    for code in [2, 3, 4, 11, 40, 43] {
        let packet = with(good.clone(), 0, &[code]);
        check_answer(&ports, &line, "a code of another port", &packet, Silence, "radius wrong_code");
    }
    let mut many = user_attributes("ann");
    for _ in 0..1000 {
        many.push_bytes(kind::CLASS, &[]).unwrap();
    }
    let packet = requests.next_request(&many, AuthenticatorForm::Right);
    check_answer(&ports, &line, "too many attributes", &packet, Silence, "radius too_many_attributes");

    let mut odd = user_attributes("ann");
    odd.push_bytes(kind::USER_PASSWORD, &[1; 15]).unwrap();
    let packet = requests.next_request(&odd, AuthenticatorForm::Right);
    check_answer(&ports, &line, "a password of 15 octets", &packet, Reject, "aaa bad_password");
    let packet = requests.next_request(&user_attributes("ann"), AuthenticatorForm::Right);
    check_answer(&ports, &line, "no proof", &packet, Reject, "aaa no_proof");

    let acct = TestRadiusClient::new("127.0.0.1", ports.acct);
    let secret = SharedSecret::new(SECRET.as_bytes());
    let mut record = user_attributes("ann");
    record.push_text(kind::ACCT_SESSION_ID, "1").unwrap();
    let none = accounting_request(PacketCode::ACCOUNTING_REQUEST, 1, &record, &secret);
    check_answer(&ports, &acct, "no Acct-Status-Type", &none, Silence, "aaa bad_accounting");
    record.push_u32(kind::ACCT_STATUS_TYPE, 1);
    let foreign =
        accounting_request(PacketCode::ACCOUNTING_REQUEST, 2, &record, &SharedSecret::new(b"another secret"));
    check_answer(&ports, &acct, "another secret", &foreign, Silence, "radius bad_authenticator");
    check_answer(&ports, &acct, "a login", &good, Silence, "radius wrong_code");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn radius_requests_that_come_again() {
    let (_place, ports, server) = start_server();
    let line = TestRadiusClient::new("127.0.0.1", ports.auth);
    let mut requests = RequestSequence(0);
    let packet = requests.eap_request(b"ann", &[2, 1, 0, 8, 1, b'a', b'n', b'n'], None);
    let first = check_answer(&ports, &line, "the first", &packet, Challenge, "radius requests");
    let again = check_answer(&ports, &line, "again", &packet, Challenge, "radius duplicates_answered");
    assert_eq!(first, again, "the same octets");
    assert_eq!(event_counter(&ports, "radius requests"), 1.0);
    // The same identifier with another authenticator is another request (RFC 2865 §3).
    let mut a = user_attributes("ann");
    a.push_eap(&[2, 1, 0, 8, 1, b'a', b'n', b'n']);
    let other = sign_packet(PacketCode::ACCESS_REQUEST, packet[1], [99; 16], &a, AuthenticatorForm::Right);
    let answer = check_answer(&ports, &line, "another", &other, Challenge, "radius requests");
    assert_ne!(first, answer);
    assert_eq!(event_counter(&ports, "aaa sessions"), 2.0);
    // So is the first request after that: its reply is no longer cached.
    check_answer(&ports, &line, "the first, late", &packet, Challenge, "radius requests");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn eap_packets_that_are_none_and_state_that_nobody_gave() {
    let (_place, ports, server) = start_server();
    let line = TestRadiusClient::new("127.0.0.1", ports.auth);
    let mut requests = RequestSequence(0);
    for (what, eap) in [
        ("less than a header", &[2, 1, 0][..]),
        ("a length beyond what came", &[2, 1, 0, 9, 1, b'a', b'n', b'n']),
        ("a length below that of a header", &[2, 1, 0, 3, 1, b'a', b'n', b'n']),
        ("a response without a type", &[2, 1, 0, 4]),
        ("a request", &[1, 1, 0, 8, 1, b'a', b'n', b'n']),
        ("a success", &[3, 1, 0, 4]),
        ("a failure", &[4, 1, 0, 4]),
        ("a code of nobody", &[9, 1, 0, 8, 1, b'a', b'n', b'n']),
    ] {
        let packet = requests.eap_request(b"ann", eap, None);
        check_answer(&ports, &line, what, &packet, Reject, "aaa bad_eap");
    }
    // A response to a request of the access server's own (RFC 3579 §2.1).
    for eap in [&[2, 1, 0, 6, 4, 0][..], &[2, 1, 0, 6, 200, 0]] {
        let packet = requests.eap_request(b"ann", eap, None);
        check_answer(&ports, &line, "a method that we did not begin", &packet, Challenge, "aaa challenges");
    }
    let identity = [2, 1, 0, 8, 1, b'a', b'n', b'n'];
    let packet = requests.eap_request(b"bob", &identity, None);
    check_answer(&ports, &line, "two names", &packet, Reject, "aaa rejected_name_mismatch");
    let packet = requests.eap_request(b"", &[], None);
    check_answer(&ports, &line, "EAP-Start", &packet, Challenge, "aaa challenges");

    for state in [&b""[..], b"x", &[0; 16], &[255; 24], &[7; 253]] {
        let packet = requests.eap_request(b"ann", &[2, 1, 0, 6, 4, 0], Some(state));
        let answer = check_answer(&ports, &line, "a bogus State", &packet, Reject, "aaa unknown_session");
        let answer = answer.unwrap();
        let failure = RadiusPacket::parse(&answer).unwrap().get(kind::EAP_MESSAGE).map(<[u8]>::to_vec);
        assert_eq!(failure, Some(vec![4, 1, 0, 4]), "an EAP-Failure goes with it");
    }

    let packet = requests.eap_request(b"ann", &identity, None);
    let challenge = check_answer(&ports, &line, "who it is", &packet, Challenge, "aaa sessions").unwrap();
    let challenge = RadiusPacket::parse(&challenge).unwrap();
    let state = challenge.get(kind::STATE).unwrap().to_vec();
    let eap = challenge.get(kind::EAP_MESSAGE).unwrap().to_vec();
    let (id, value) = (eap[1], &eap[6..22]);
    assert_eq!((eap[4], eap[5]), (4, 16), "EAP-MD5");
    let response = md5(&[&[id], b"right", value]);
    let answer = |id: u8, size: u8, response: &[u8]| {
        [&[2, id, 0, 6 + response.len() as u8, 4, size][..], response].concat()
    };
    // Another client must not continue this conversation.
    let packet = requests.eap_request(b"ann", &answer(id, 16, &response), Some(&state));
    let other = TestRadiusClient::new("127.0.0.4", ports.auth);
    check_answer(&ports, &other, "another client", &packet, Reject, "aaa unknown_session");
    // A response without a request is ignored, and the conversation continues (RFC 3748 §4.2).
    for (what, eap) in [
        ("another identifier", answer(id.wrapping_add(1), 16, &response)),
        ("a size that lies", answer(id, 17, &response)),
        ("a response that is cut off", answer(id, 16, &response[..15])),
        ("a method that was not proposed", vec![2, id, 0, 6, 13, 0]),
    ] {
        let packet = requests.eap_request(b"ann", &eap, Some(&state));
        check_answer(&ports, &line, what, &packet, Silence, "aaa bad_eap");
    }
    let packet = requests.eap_request(b"ann", &answer(id, 16, &response), Some(&state));
    check_answer(&ports, &line, "the right one", &packet, Accept, "aaa accepted_eap_md5");
    // The conversation has ended.
    let packet = requests.eap_request(b"ann", &answer(id, 16, &response), Some(&state));
    check_answer(&ports, &line, "once more", &packet, Reject, "aaa unknown_session");

    let packet = requests.eap_request(b"ann", &identity, None);
    let challenge = check_answer(&ports, &line, "who it is", &packet, Challenge, "aaa sessions").unwrap();
    let challenge = RadiusPacket::parse(&challenge).unwrap();
    let state = challenge.get(kind::STATE).unwrap().to_vec();
    let id = challenge.get(kind::EAP_MESSAGE).unwrap()[1];
    let nak = requests.eap_request(b"ann", &[2, id, 0, 6, 3, 200], Some(&state));
    check_answer(&ports, &line, "a Nak for a method of nobody", &nak, Reject, "aaa rejected_no_method");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_client_ends_no_session_of_another() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let clients = |nas: &str| {
        let client = |name: &str, address: &str, nas: &str| {
            format!("[[client]]\nname = \"{name}\"\nprefix = \"{address}\"\nsecret = \"{SECRET}\"\n{nas}")
        };
        let both = client("one", "127.0.0.2", "") + &client("two", "127.0.0.3", nas);
        ports.server_config(2, &format!("{both}{ANN}"))
    };
    let server = DaemonProcess::start(&place, &clients(""));
    let secret = SharedSecret::new(SECRET.as_bytes());
    let mut identifier = 0;
    let mut tell = |from: &str, status: u32| {
        identifier += 1;
        let mut a = user_attributes("ann");
        a.push_text(kind::ACCT_SESSION_ID, "5f2a").unwrap().push_u32(kind::ACCT_STATUS_TYPE, status);
        a.push_ipv4(kind::NAS_IP_ADDRESS, [127, 0, 0, 2].into());
        let line = TestRadiusClient::new(from, ports.acct);
        line.send(&accounting_request(PacketCode::ACCOUNTING_REQUEST, identifier, &a, &secret));
        assert_eq!(line.receive()[0], PacketCode::ACCOUNTING_RESPONSE.0);
    };
    let open = || metric_value(&get_page(ports.metrics, "/metrics"), "usher_aaa_sessions");
    tell("127.0.0.2", 1);
    // A Stop and an Accounting-On for another client's access server: acknowledged, but not applied.
    tell("127.0.0.3", 2);
    tell("127.0.0.3", 7);
    assert_eq!(open(), 1.0);
    assert_eq!(event_counter(&ports, "aaa foreign_nas"), 1.0);
    assert_eq!(event_counter(&ports, "aaa foreign_restarts"), 1.0);
    // A client that is configured to speak for it is believed.
    super::daemon::write_private(&place, "aaa.toml", &clients("nas = [\"127.0.0.2\"]\n"));
    server.send_signal("HUP");
    server.wait_for_log("reloaded");
    tell("127.0.0.3", 7);
    assert_eq!(open(), 0.0);
    assert_eq!(server.terminate(), Some(0));
}
