//! Malformed Diameter: each case of RFC 6733, with its answer or the end of the connection, and its counter.

use super::daemon::{ANN, DaemonProcess, ServerPorts, get_page, metric_value};
use crate::place::{TEST_TIMEOUT, TempDir, own_socket};
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};

const EAP: u32 = 5;
const NASREQ: u32 = 1;
const CER: u32 = 257;
const DER: u32 = 268;
const REQUEST: u8 = 0xc0;
/// The flag of an AVP that must be rejected if unknown.
const M: u8 = 0x40;

/// An AVP with its padding (RFC 6733 §4.1).
fn build_avp(code: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(8 + data.len()).unwrap();
    let mut out = [&code.to_be_bytes()[..], &[flags], &length.to_be_bytes()[1..], data].concat();
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn text_avp(code: u32, text: &str) -> Vec<u8> {
    build_avp(code, M, text.as_bytes())
}

fn number_avp(code: u32, n: u32) -> Vec<u8> {
    build_avp(code, M, &n.to_be_bytes())
}

/// A message (RFC 6733 §3).
fn build_message(flags: u8, command: u32, application: u32, avps: &[Vec<u8>]) -> Vec<u8> {
    let body = avps.concat();
    let length = u32::try_from(20 + body.len()).unwrap();
    let words = |n: u32| n.to_be_bytes();
    let head = [&[1][..], &words(length)[1..], &[flags], &words(command)[1..]].concat();
    [&head[..], &words(application), &words(7), &words(9), &body].concat()
}

/// Capabilities in common with the server.
fn capability_avps() -> Vec<Vec<u8>> {
    vec![
        text_avp(264, "nas.example.net"),
        text_avp(296, "example.net"),
        build_avp(257, M, &[0, 1, 127, 0, 0, 1]),
        number_avp(266, 0),
        build_avp(269, 0, b"test"),
        number_avp(258, EAP),
        number_avp(258, NASREQ),
    ]
}

/// The first request of a login: its AVPs without the EAP packet.
fn login_avps() -> Vec<Vec<u8>> {
    vec![
        text_avp(263, "nas.example.net;1;1"),
        number_avp(258, EAP),
        text_avp(264, "nas.example.net"),
        text_avp(296, "example.net"),
        text_avp(283, "example.net"),
        number_avp(274, 3),
        text_avp(1, "ann"),
    ]
}

fn eap_identity_avp() -> Vec<u8> {
    build_avp(462, M, &[2, 1, 0, 8, 1, b'a', b'n', b'n'])
}

struct DiameterFixture {
    address: SocketAddrV4,
    metrics: u16,
    server: DaemonProcess,
    _temp_dir: TempDir,
}

impl DiameterFixture {
    fn new() -> Self {
        let (place, ports, at) = (TempDir::new(), ServerPorts::reserve_free(), own_socket());
        let config = ports.server_config(1, &format!("[methods]\norder = [\"eap-md5\"]\n{ANN}"));
        let config = config.replace("[[client]]", &format!("diameter = [\"{at}\"]\n[[client]]"));
        let diameter = "[diameter]\nidentity = \"aaa.example.net\"\nrealm = \"example.net\"\n\
                        peers = [\"nas.example.net\"]\n";
        let server = DaemonProcess::start(&place, &format!("{config}{diameter}"));
        Self { address: at, metrics: ports.metrics, server, _temp_dir: place }
    }

    fn event_counter(&self, kind: &str) -> f64 {
        let page = get_page(self.metrics, "/metrics");
        metric_value(&page, &format!("usher_aaa_diameter_events_total{{kind=\"{kind}\"}}"))
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream
    }

    /// Opens a connection and exchanges capabilities.
    fn open_peer(&self) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(&build_message(REQUEST & 0x80, CER, 0, &capability_avps())).unwrap();
        let answer = receive_message(&mut stream).expect("a CEA");
        assert_eq!(result_code(&answer), Some(2001), "{answer:x?}");
        stream
    }
}

/// Receives the next message. `None`: the server closed the connection.
fn receive_message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = [0; 20];
    match stream.read(&mut head[..1]) {
        Ok(0) => return None,
        Ok(_) => stream.read_exact(&mut head[1..]).unwrap(),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
        Err(error) => panic!("{error}"),
    }
    let length = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
    let mut message = head.to_vec();
    message.resize(length, 0);
    stream.read_exact(&mut message[20..]).unwrap();
    Some(message)
}

/// Returns the codes and data of a message's AVPs.
fn parse_avps(message: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let (mut rest, mut all) = (&message[20..], Vec::new());
    while rest.len() >= 8 {
        let code = u32::from_be_bytes(rest[..4].try_into().unwrap());
        let length = u32::from_be_bytes([0, rest[5], rest[6], rest[7]]) as usize;
        let head = if rest[4] & 0x80 == 0 { 8 } else { 12 };
        all.push((code, rest[head..length].to_vec()));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

/// Returns the Result-Code.
fn result_code(message: &[u8]) -> Option<u32> {
    let found = parse_avps(message).into_iter().find(|(code, _)| *code == 268);
    found.map(|(_, data)| u32::from_be_bytes(data.try_into().unwrap()))
}

#[test]
fn connections_that_begin_badly_end() {
    let s = DiameterFixture::new();
    let with = |mut message: Vec<u8>, at: usize, octets: &[u8]| {
        message[at..at + octets.len()].copy_from_slice(octets);
        message
    };
    let cer = || build_message(0x80, CER, 0, &capability_avps());
    for (what, bytes, counts) in [
        ("another version", with(cer(), 0, &[2]), "unframable"),
        ("a length below that of a header", with(cer(), 1, &[0, 0, 16]), "unframable"),
        ("a length beyond any message", with(cer(), 1, &[255, 255, 252]), "unframable"),
        ("a length that is no multiple of four", with(cer(), 1, &[0, 0, 22]), "unframable"),
        ("an AVP beyond the message", with(cer(), 25, &[0, 255, 255]), "malformed"),
        ("another request", build_message(REQUEST, DER, EAP, &login_avps()), "not_a_cer"),
        ("an answer", build_message(0, CER, 0, &capability_avps()), "not_a_cer"),
    ] {
        let before = s.event_counter(counts);
        let mut stream = s.connect();
        stream.write_all(&bytes).unwrap();
        assert_eq!(receive_message(&mut stream), None, "{what}");
        assert_eq!(s.event_counter(counts), before + 1.0, "{what}: {counts}");
    }
    let without = |code: u32| {
        capability_avps().into_iter().filter(|a| a[..4] != code.to_be_bytes()).collect::<Vec<_>>()
    };
    let other = |code: u32, avp: Vec<u8>| [without(code), vec![avp]].concat();
    for (what, avps, code, counts) in [
        ("no Origin-Host", without(264), 5005, "bad_capabilities"),
        ("no Origin-Realm", without(296), 5005, "bad_capabilities"),
        ("a stranger", other(264, text_avp(264, "eve.example.net")), 3010, "unknown_peer"),
        ("no common application", other(258, number_avp(258, 4)), 5010, "no_common_application"),
    ] {
        let before = s.event_counter(counts);
        let mut stream = s.connect();
        stream.write_all(&build_message(0x80, CER, 0, &avps)).unwrap();
        let answer = receive_message(&mut stream).unwrap_or_else(|| panic!("{what}: no CEA"));
        assert_eq!((result_code(&answer), answer[4] & 0x80), (Some(code), 0), "{what}");
        assert_eq!(receive_message(&mut stream), None, "{what}: the connection ends");
        assert_eq!(s.event_counter(counts), before + 1.0, "{what}: {counts}");
    }
    assert_eq!(s.server.terminate(), Some(0));
}

#[test]
fn requests_that_are_wrong_are_answered_as_the_rfc_says() {
    let s = DiameterFixture::new();
    let mut stream = s.open_peer();
    let der = |avps: &[Vec<u8>]| build_message(REQUEST, DER, EAP, avps);
    let with = |more: Vec<u8>| der(&[login_avps(), vec![more]].concat());
    let without = |code: u32| {
        let rest = login_avps().into_iter().filter(|a| a[..4] != code.to_be_bytes());
        der(&rest.chain([eap_identity_avp()]).collect::<Vec<_>>())
    };
    let other = |code: u32, avp: Vec<u8>| {
        let rest = login_avps().into_iter().filter(|a| a[..4] != code.to_be_bytes());
        der(&rest.chain([avp, eap_identity_avp()]).collect::<Vec<_>>())
    };
    let short = |length: u8| {
        let mut avp = text_avp(1, "ann");
        avp[7] = length;
        with(avp)
    };
    let unknown = der(&[login_avps(), vec![build_avp(65_000, M, &[1]), eap_identity_avp()]].concat());
    let good = der(&[login_avps(), vec![eap_identity_avp()]].concat());
    let flagged = |flags: u8| {
        let mut message = good.clone();
        message[4] = flags;
        message
    };
    for (what, bytes, code, counts) in [
        ("an AVP that reaches beyond the message", short(200), 5014, "diameter malformed"),
        ("an AVP shorter than its header", short(7), 5014, "diameter malformed"),
        (
            "a vendor's AVP without room for the vendor",
            with(build_avp(1, 0xc0, &[])),
            5014,
            "diameter malformed",
        ),
        ("a request that is an error", flagged(0xe0), 3008, "diameter malformed"),
        ("no Session-Id", without(263), 5005, "diameter malformed"),
        ("no Origin-Host", without(264), 5005, "diameter malformed"),
        ("no Auth-Request-Type", without(274), 5005, "aaa unsupported"),
        ("no EAP-Payload", der(&login_avps()), 5005, "aaa unsupported"),
        ("a number of three octets", other(274, build_avp(274, M, &[0, 0, 3])), 5014, "aaa unsupported"),
        ("a value that nobody defined", other(274, number_avp(274, 99)), 5004, "aaa unsupported"),
        ("a mandatory AVP that nobody knows", unknown, 5001, "aaa unsupported"),
        (
            "an application that is not spoken",
            build_message(REQUEST, DER, 99, &login_avps()),
            3007,
            "diameter application_unsupported",
        ),
        ("a command of nobody", build_message(REQUEST, 999, EAP, &login_avps()), 3001, "aaa unsupported"),
        (
            "what passed here before",
            other(282, text_avp(282, "aaa.example.net")),
            3005,
            "diameter loop_detected",
        ),
        ("another host", other(293, text_avp(293, "bbb.example.net")), 3002, "diameter not_for_us"),
        ("another realm", other(283, text_avp(283, "example.org")), 3003, "diameter not_for_us"),
        ("an EAP packet that is none", with(build_avp(462, M, &[2, 1, 0])), 4001, "aaa bad_eap"),
    ] {
        let read = || {
            let (part, kind) = counts.split_once(' ').unwrap();
            let page = get_page(s.metrics, "/metrics");
            metric_value(&page, &format!("usher_aaa_{part}_events_total{{kind=\"{kind}\"}}"))
        };
        let before = read();
        stream.write_all(&bytes).unwrap();
        let answer = receive_message(&mut stream).unwrap_or_else(|| panic!("{what}: the connection ended"));
        assert_eq!(result_code(&answer), Some(code), "{what}");
        assert_eq!(&answer[12..20], &bytes[12..20], "{what}: the request's identifiers");
        // Protocol errors have the E flag (RFC 6733 §7.1.3).
        assert_eq!(answer[4] & 0x20 != 0, code / 1000 == 3, "{what}");
        assert_eq!(read(), before + 1.0, "{what}: {counts}");
    }
    // An answer without a request is ignored.
    stream.write_all(&build_message(0x40, DER, EAP, &login_avps())).unwrap();
    // Reserved bits are ignored (RFC 6733 §3, §4.1), and so are optional AVPs.
    let mut odd = der(&[login_avps(), vec![build_avp(65_000, 0, &[1]), eap_identity_avp()]].concat());
    odd[4] |= 0x0f;
    stream.write_all(&odd).unwrap();
    let answer = receive_message(&mut stream).expect("an answer");
    assert_eq!(result_code(&answer), Some(1001), "DIAMETER_MULTI_ROUND_AUTH");
    assert_eq!(s.event_counter("unmatched_answer"), 1.0);
    // A retransmission (RFC 6733 §3) gets the same answer.
    odd[4] |= 0x10;
    stream.write_all(&odd).unwrap();
    assert_eq!(receive_message(&mut stream), Some(answer));
    assert_eq!(s.event_counter("duplicate_request"), 1.0);
    assert_eq!(s.server.terminate(), Some(0));
}
