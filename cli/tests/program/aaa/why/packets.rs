//! Causes that ordinary clients do not trigger: handmade packets, TLS that breaks its rules, and certificates and
//! lists with unusual faults.

use super::super::daemon::eapol_test;
use super::super::hostile::{AuthenticatorForm, TestRadiusClient, sign_packet};
use super::super::lists::start_publisher;
use super::{CertificateKind, DAY, TestPki, TraceFixture, as_arguments, now, user_tables};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use usher_core::WallTime;
use usher_crypto::fault::{Alert, TlsFault};
use usher_crypto::legacy::{mschap, nt_hash};
use usher_crypto::tls::{
    ClientConfig, SharedWallClock, TlsClientEngine, TlsClientOptions, TlsEngine, TlsVersionRange, TrustRoots,
};
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::{PacketCode, RadiusPacket};

const NAK: u8 = 3;
const MD5: u8 = 4;
const TLS: u8 = 13;
const MSCHAPV2: u8 = 26;
/// Causes without a test here, with the reason and the place of their tests.
pub(super) const UNTRIGGERED_CAUSES: [(&str, &str); 7] = [
    (
        "undeliverable",
        "it takes a peer by Diameter: the test of usher_aaa \
         translation::a_foreign_realm_of_a_diameter_peer_is_not_decided_here",
    ),
    (
        "stale-session",
        "it takes a device that remembers TLS sessions: the test of usher_aaa \
         resumption::a_session_does_not_outlast_the_password",
    ),
    (
        "sessions-full",
        "it takes a million open sessions: the test of usher_aaa a_full_ledger_admits_nobody_until_a_session_ends",
    ),
    (
        "certificate-name",
        "whose name is known beforehand is a server, never a device: the tests of usher_crypto::tls",
    ),
    ("certificate-other", "the TLS library names all that it refuses today: the tests of usher_crypto::tls"),
    (
        "tls-too-much",
        "EAP bounds what comes by fewer octets than TLS: the test of usher_crypto::tls \
         unread_data_waits_and_a_flood_ends_the_connection",
    ),
    ("tls-internal", "no packet has the engine fail"),
];

/// EAP-TLS: more fragments follow (RFC 5216 §3.1).
const MORE: u8 = 0x40;

/// A device and its access server, packet by packet.
struct TestDevice {
    line: TestRadiusClient,
    name: &'static str,
    identifier: u8,
    state: Option<Vec<u8>>,
}

impl TestDevice {
    fn new(scene: &TraceFixture, name: &'static str) -> Self {
        Self { line: TestRadiusClient::new("127.0.0.1", scene.ports.auth), name, identifier: 0, state: None }
    }

    fn build_request(&mut self, fill: impl FnOnce(&mut AttributeList)) -> Vec<u8> {
        let mut attributes = AttributeList::new();
        attributes.push_text(kind::USER_NAME, self.name).unwrap();
        if let Some(state) = &self.state {
            attributes.push_bytes(kind::STATE, state).unwrap();
        }
        fill(&mut attributes);
        self.identifier = self.identifier.wrapping_add(1);
        sign_packet(
            PacketCode::ACCESS_REQUEST,
            self.identifier,
            next_authenticator(),
            &attributes,
            AuthenticatorForm::Right,
        )
    }

    /// Sends a request and returns the reply's code.
    fn send_request(&mut self, fill: impl FnOnce(&mut AttributeList)) -> PacketCode {
        let request = self.build_request(fill);
        self.line.send(&request);
        self.take_answer().0
    }

    /// Receives a reply and the EAP packet in it.
    fn take_answer(&mut self) -> (PacketCode, Vec<u8>) {
        let answer = self.line.receive();
        let packet = RadiusPacket::parse(&answer).unwrap();
        let all = |wanted| packet.attributes().filter(move |a| a.kind == wanted).map(|a| a.value.to_vec());
        self.state = all(kind::STATE).next();
        (packet.code(), all(kind::EAP_MESSAGE).flatten().collect())
    }

    /// Sends an EAP packet and receives the reply.
    fn send_eap(&mut self, packet: &[u8]) -> (PacketCode, Vec<u8>) {
        let request = self.build_request(|a| {
            a.push_eap(packet);
        });
        self.line.send(&request);
        self.take_answer()
    }

    /// Sends the identity.
    fn send_identity(&mut self) -> (PacketCode, Vec<u8>) {
        let name = self.name;
        self.send_eap(&eap_response(1, 1, name.as_bytes()))
    }

    /// Starts EAP-TLS and returns the server's Start.
    fn begin_tls(&mut self) -> Vec<u8> {
        let (_, mut request) = self.send_identity();
        if request[4] != TLS {
            request = self.send_eap(&eap_response(request[1], NAK, &[TLS])).1;
        }
        assert_eq!(request[4..], [TLS, 0x20], "EAP-TLS begins");
        request
    }

    /// Sends octets as one EAP-TLS fragment in response to a request. Returns the server's whole flight, or the end
    /// of the login.
    fn send_tls(&mut self, asked: &[u8], octets: &[u8]) -> (PacketCode, Vec<u8>, Vec<u8>) {
        let (mut code, mut request) = self.send_eap(&eap_response(asked[1], TLS, &[&[0], octets].concat()));
        let mut flight = Vec::new();
        loop {
            let Some((&flags, rest)) = request.get(5..).and_then(<[u8]>::split_first) else {
                return (code, request, flight);
            };
            flight.extend_from_slice(if flags & 0x80 == 0 { rest } else { &rest[4..] });
            if flags & MORE == 0 {
                return (code, request, flight);
            }
            (code, request) = self.send_eap(&eap_response(request[1], TLS, &[0]));
        }
    }

    /// Sends only the first TLS message. The device acknowledges the resulting alert.
    fn send_tls_once(&mut self, octets: &[u8]) {
        let start = self.begin_tls();
        let (code, request, _) = self.send_tls(&start, octets);
        if code == PacketCode::ACCESS_CHALLENGE {
            self.send_eap(&eap_response(request[1], TLS, &[0]));
        }
    }

    /// Runs a TLS handshake and changes its second flight.
    fn run_handshake(&mut self, config: &ClientConfig, change: impl FnOnce(&mut Vec<u8>)) {
        let mut client = TlsClientEngine::new(config).unwrap();
        let (mut hello, mut flight) = (Vec::new(), Vec::new());
        client.write_tls(&mut hello);
        let start = self.begin_tls();
        let (_, request, said) = self.send_tls(&start, &hello);
        client.read_tls(&said).unwrap();
        client.write_tls(&mut flight);
        change(&mut flight);
        let (code, request, _) = self.send_tls(&request, &flight);
        if code == PacketCode::ACCESS_CHALLENGE {
            self.send_eap(&eap_response(request[1], TLS, &[0]));
        }
    }
}

/// Returns an authenticator that no other request has.
fn next_authenticator() -> [u8; 16] {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut octets = [7; 16];
    octets[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    octets
}

/// An EAP response (RFC 3748 §4).
fn eap_response(identifier: u8, method: u8, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(5 + data.len()).unwrap().to_be_bytes();
    [&[2, identifier, length[0], length[1], method], data].concat()
}

/// A TLS record (RFC 8446 §5.1).
fn tls_record(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&[kind, 3, 3, length[0], length[1]], body].concat()
}

/// A ClientHello of an old version (RFC 5246 §7.4.1.2), with one cipher suite, P-256 and ECDSA with SHA-256.
fn client_hello(version: [u8; 2], suite: [u8; 2]) -> Vec<u8> {
    let extensions =
        [&[0, 13, 0, 4, 0, 2, 4, 3][..], &[0, 10, 0, 4, 0, 2, 0, 23], &[0, 11, 0, 2, 1, 0]].concat();
    let length = u16::try_from(extensions.len()).unwrap().to_be_bytes();
    let body = [&version[..], &[7; 32], &[0, 0, 2], &suite, &[1, 0], &length, &extensions].concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    tls_record(22, &[&[1], &length[1..], &body].concat())
}

#[test]
fn causes_of_packets_are_told_apart() {
    let hash = usher_crypto::password::argon2_hash(b"right", &[7; 16]);
    let more = format!(
        "[users]\nstore = \"memory\"\nthreads = 1\n{}[[user]]\nname = \"hashed\"\nargon2 = \"{hash}\"\n\
         [[home_server]]\nname = \"h\"\naddress = \"127.0.0.1:9\"\nsecret = \"0123456789abcdef\"\n\
         [[realm]]\nname = \"far.example\"\nservers = [\"h\"]\n",
        user_tables(&["ann"])
    );
    let s = TraceFixture::start(&more);
    let reject = |cause: &str, text: &str, fill: &dyn Fn(&mut AttributeList)| {
        s.expect_cause("reject", cause, text, || {
            assert_eq!(TestDevice::new(&s, "ann").send_request(fill), PacketCode::ACCESS_REJECT, "{cause}");
        });
    };
    reject("no-proof", "the request has no proof", &|_| {});
    reject("bad-proof", "the request's password or response is malformed", &|a| {
        a.push_user_password(b"right").unwrap();
        a.push_bytes(kind::CHAP_PASSWORD, &[1; 17]).unwrap();
    });
    reject("name-mismatch", "User-Name is not the EAP identity", &|a| {
        a.push_eap(&eap_response(1, 1, b"bob"));
    });
    reject("bad-eap", "the EAP packet does not begin a conversation", &|a| {
        // A request instead of a response.
        a.push_eap(&[1, 1, 0, 6, MD5, 0]);
    });
    s.expect_cause("none", "unknown-session", "State names no login under way", || {
        let code = TestDevice::new(&s, "ann").send_request(|a| {
            a.push_bytes(kind::STATE, &[7; 16]).unwrap();
            a.push_eap(&eap_response(1, MD5, &[0]));
        });
        assert_eq!(code, PacketCode::ACCESS_REJECT);
    });
    s.expect_cause("none", "proxy-loop", "the request passed too many proxies", || {
        let mut device = TestDevice::new(&s, "ann@far.example");
        let request = device.build_request(|a| {
            a.push_user_password(b"right").unwrap();
            for hop in 0..17 {
                a.push_bytes(kind::PROXY_STATE, &[hop]).unwrap();
            }
        });
        device.line.send(&request);
    });
    // The device reports a failure after the server's success (draft-kamath-pppext-eap-mschapv2 §2).
    s.expect_cause("reject", "method-rules", "the device breaks the protocol of its method", || {
        let mut device = TestDevice::new(&s, "ann");
        let (_, request) = device.send_identity();
        assert_eq!(request[4..6], [MSCHAPV2, 1], "the server begins MSCHAPv2");
        let challenge: &[u8; 16] = request[10..26].try_into().unwrap();
        let proof = mschap::nt_response(challenge, &[5; 16], b"ann", &nt_hash(b"right"));
        let value = [&[5; 16][..], &[0; 8], &proof, &[0]].concat();
        let right = [&[2, request[6], 0, 57, 49][..], &value, b"ann"].concat();
        let (_, success) = device.send_eap(&eap_response(request[1], MSCHAPV2, &right));
        assert_eq!(success[4..6], [MSCHAPV2, 3], "it is right");
        assert_eq!(device.send_eap(&eap_response(success[1], MSCHAPV2, &[4])).0, PacketCode::ACCESS_REJECT);
    });
    // One thread compares slow hashes, and few logins of one name may wait.
    s.expect_cause("none", "busy", "the server is overloaded", || {
        let mut device = TestDevice::new(&s, "hashed");
        for _ in 0..60 {
            let request = device.build_request(|a| {
                a.push_user_password(b"right").unwrap();
            });
            device.line.send(&request);
        }
    });
    assert_eq!(s.daemon.terminate(), Some(0));
}

/// A server for each, so that no login times out for another cause.
#[test]
fn causes_of_time_are_told_apart() {
    let more = format!("[users]\nstore = \"memory\"\n{}", user_tables(&["ann"]));
    let s = TraceFixture::start_with("session_timeout = \"1 s\"\n", &more);
    s.expect_cause("none", "device-silent", "the device did not continue the login", || {
        assert_eq!(TestDevice::new(&s, "ann").send_identity().0, PacketCode::ACCESS_CHALLENGE);
    });
    assert_eq!(s.daemon.terminate(), Some(0));
    let s = TraceFixture::start_with("login_timeout = \"1 s\"\n", &more);
    s.expect_cause("none", "too-slow", "the login took too long in total", || {
        let mut device = TestDevice::new(&s, "ann");
        let (_, request) = device.send_identity();
        std::thread::sleep(Duration::from_millis(1200));
        let late = device.build_request(|a| {
            a.push_eap(&eap_response(request[1], request[4], &[0]));
        });
        device.line.send(&late);
    });
    assert_eq!(s.daemon.terminate(), Some(0));
}

fn fault_text(fault: TlsFault) -> String {
    fault.describe_with_peer_name("the device").to_string()
}

/// Returns the text of a TLS cause.
fn cause_text(cause: &str) -> String {
    fault_text(*TlsFault::KNOWN.iter().find(|fault| fault.name() == cause).unwrap())
}

/// A client without a certificate.
fn config_without_certificate(pki: &TestPki) -> ClientConfig {
    let roots =
        TrustRoots::from_pem(&std::fs::read(pki.authority_folder("pki").join("ca.crt")).unwrap()).unwrap();
    ClientConfig::new(TlsClientOptions {
        versions: TlsVersionRange::default(),
        credentials: None,
        roots,
        server_name: None,
        resumption: None,
        clock: SharedWallClock::from_time(WallTime::from_unix_secs(now())),
        key_log: None,
    })
    .unwrap()
}

#[test]
fn causes_of_tls_are_told_apart() {
    let pki = TestPki::new();
    let mut ours = pki.create_authority("pki", "Ours");
    TestPki::issue_certificate(&mut ours, "server", CertificateKind::Server, now() - DAY, 30);
    let order = "[methods]\npeap_cryptobinding = \"required\"\n";
    let s = TraceFixture::start(&(pki.tls_section("server", "") + &user_tables(&["ann"]) + order));
    // Any alert of the device, also without a name.
    for alert in Alert::KNOWN.iter().copied().chain([Alert(200)]) {
        let fault = TlsFault::Alert(alert);
        s.expect_cause("reject", fault.name(), &fault_text(fault), || {
            TestDevice::new(&s, "ann").send_tls_once(&tls_record(21, &[2, alert.0]));
        });
    }
    let unexpected = tls_record(22, &[&[20, 0, 0, 12][..], &[0; 12]].concat());
    for (cause, octets) in [
        ("tls-malformed", vec![0x99; 40]),
        ("tls-misbehaved", unexpected),
        ("tls-version", client_hello([3, 1], [0xc0, 0x2b])),
        ("tls-cipher", client_hello([3, 3], [0, 0x2f])),
        ("tls-extended-master-secret", client_hello([3, 3], [0xc0, 0x2b])),
    ] {
        s.expect_cause("reject", cause, &cause_text(cause), || {
            TestDevice::new(&s, "ann").send_tls_once(&octets)
        });
    }
    let client = config_without_certificate(&pki);
    s.expect_cause("reject", "certificate-missing", &cause_text("certificate-missing"), || {
        TestDevice::new(&s, "ann").run_handshake(&client, |_| {});
    });
    s.expect_cause("reject", "tls-undecipherable", &cause_text("tls-undecipherable"), || {
        TestDevice::new(&s, "ann").run_handshake(&client, |flight| *flight.last_mut().unwrap() ^= 1);
    });
    let ca = pki.authority_folder("pki").join("ca.crt").display().to_string();
    let peap = |more: &str| {
        let network = format!("eap=PEAP\nidentity=\"ann\"\npassword=\"right\"\nca_cert=\"{ca}\"\n{more}");
        assert!(!eapol_test(&s.temp_dir, s.ports.auth, &network, &[]));
    };
    s.expect_cause("reject", "no-inner-method", "no method in common inside the tunnel", || {
        peap("phase2=\"auth=OTP\"");
    });
    s.expect_cause("reject", "cryptobinding", "the ends of the tunnel have different keys", || {
        peap("phase1=\"crypto_binding=0\"\nphase2=\"auth=MSCHAPV2\"");
    });
    assert_eq!(s.daemon.terminate(), Some(0));
}

#[test]
fn causes_of_unusual_certificates_are_told_apart() {
    let pki = TestPki::new();
    let now = now();
    let mut ours = pki.create_authority("pki", "Ours");
    TestPki::issue_certificate(&mut ours, "server", CertificateKind::Server, now - DAY, 30);
    TestPki::issue_certificate(&mut ours, "ann", CertificateKind::Client, now - DAY, 30);
    let client = "extendedKeyUsage = clientAuth\n";
    let strange = format!("{client}1.2.3.4 = critical,ASN1:UTF8String:what\n");
    pki.issue_by("sha1", "ca", "-sha1", client);
    pki.issue_by("strange", "ca", "-sha256", &strange);
    pki.issue_by("below", "issued/ann", "-sha256", client);
    let read = |name: &str| std::fs::read_to_string(pki.authority_folder("pki").join(name)).unwrap();
    let chain = read("issued/below.crt") + &read("issued/ann.crt");
    std::fs::write(pki.authority_folder("pki").join("issued/below.crt"), chain).unwrap();
    let everybody = user_tables(&["ann", "sha1", "strange", "below"]);
    let by = |name: &str| pki.certificate_arguments("pki", name, "pki");
    let s = TraceFixture::start(&(pki.tls_section("server", "") + &everybody));
    s.run_login_test("ann", &as_arguments(&by("ann"))).with_code(0);
    for (name, cause) in [("sha1", "certificate-algorithm"), ("below", "certificate-constraint")] {
        s.expect_reject(cause, &cause_text(cause), name, &as_arguments(&by(name)));
    }
    // Our own client rejects such a certificate.
    s.expect_cause("reject", "certificate-malformed", &cause_text("certificate-malformed"), || {
        let of = |end: &str| pki.authority_folder("pki").join(format!("issued/strange.{end}")).display().to_string();
        let ca = pki.authority_folder("pki").join("ca.crt").display().to_string();
        let (certificate, key) = (of("crt"), of("key"));
        let network = format!(
            "eap=TLS\nidentity=\"strange\"\nca_cert=\"{ca}\"\nclient_cert=\"{certificate}\"\nprivate_key=\"{key}\""
        );
        assert!(!eapol_test(&s.temp_dir, s.ports.auth, &network, &[]));
    });
    drop(s);
    // A list of an authority of the same name, with another key.
    pki.create_authority("double", "Ours");
    let list = pki.authority_folder("double").join("ca.crl").display().to_string();
    let s = TraceFixture::start(&(pki.tls_section("server", &format!("crl = [\"{list}\"]")) + &everybody));
    s.expect_reject("crl-unusable", &cause_text("crl-unusable"), "ann", &as_arguments(&by("ann")));
    drop(s);
    // A responder with an unreadable response.
    let url = start_publisher(&Arc::new(Mutex::new(Some(b"yes".to_vec()))), "ocsp");
    let more = format!("ocsp = \"hard\"\nocsp_url = \"{url}\"");
    let s = TraceFixture::start(&(pki.tls_section("server", &more) + &everybody));
    let unbelievable = "the OCSP response about the device's certificate is invalid";
    s.expect_reject("ocsp-invalid", unbelievable, "ann", &as_arguments(&by("ann")));
    assert_eq!(s.daemon.terminate(), Some(0));
}

#[test]
fn names_that_no_user_can_have_are_turned_away() {
    let s = TraceFixture::start(&format!("[users]\nstore = \"sqlite\"\n{}", user_tables(&["ann"])));
    for name in [&b"ann\0"[..], b"\xff\xfe", b"an\xc3"] {
        s.expect_cause("reject", "unstorable-name", "the name is not UTF-8", || {
            let mut attributes = AttributeList::new();
            attributes.push_bytes(kind::USER_NAME, name).unwrap();
            attributes.push_user_password(b"right").unwrap();
            let line = TestRadiusClient::new("127.0.0.1", s.ports.auth);
            line.send(&sign_packet(
                PacketCode::ACCESS_REQUEST,
                1,
                next_authenticator(),
                &attributes,
                AuthenticatorForm::Right,
            ));
            assert_eq!(
                RadiusPacket::parse(&line.receive()).unwrap().code(),
                PacketCode::ACCESS_REJECT,
                "{name:?}"
            );
        });
    }
}
