//! Floods: excess load of one client costs only that client.

use super::daemon::{
    DaemonProcess, SECRET, ServerPorts, find_metric, get_page, metric_value, wait_for_metric,
    wait_until_metric,
};
use super::hostile::{AuthenticatorForm, sign_packet};
use crate::place::{TEST_TIMEOUT, TempDir, own_address};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use usher_crypto::digest::md5;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::{PacketCode, RadiusPacket};

/// Two clients: one that floods, at 127.0.0.2, and one that does not, at 127.0.0.3.
fn flood_config(ports: &ServerPorts, more: &str) -> String {
    let client = |name: &str, address: &str| {
        format!("[[client]]\nname = \"{name}\"\nprefix = \"{address}\"\nsecret = \"{SECRET}\"\n")
    };
    let clients = client("flooder", "127.0.0.2") + &client("quiet", "127.0.0.3");
    ports.server_config(1, &format!("{clients}{more}"))
}

fn client_socket(from: &str, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.connect((own_address(), port)).unwrap();
    socket
}

/// Retransmits a request until it is answered.
fn send_until_answered(socket: &UdpSocket, packet: &[u8]) -> Vec<u8> {
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut buf = [0; 4096];
    let begun = Instant::now();
    while begun.elapsed() < TEST_TIMEOUT {
        socket.send(packet).unwrap();
        while let Ok(n) = socket.recv(&mut buf) {
            if buf[1] == packet[1] {
                return buf[..n].to_vec();
            }
        }
    }
    panic!("no answer");
}

fn eap_request(n: u8, packet: &[u8], state: Option<&[u8]>) -> Vec<u8> {
    let mut a = AttributeList::new();
    a.push_text(kind::USER_NAME, "ann").unwrap();
    if let Some(state) = state {
        a.push_bytes(kind::STATE, state).unwrap();
    }
    a.push_eap(packet);
    sign_packet(PacketCode::ACCESS_REQUEST, n, [n; 16], &a, AuthenticatorForm::Right)
}

const IDENTITY: [u8; 8] = [2, 1, 0, 8, 1, b'a', b'n', b'n'];

/// Logs in by EAP-MD5. Its requests use the numbers `n` and `n + 1`.
fn log_in(socket: &UdpSocket, n: u8) -> PacketCode {
    let challenge = send_until_answered(socket, &eap_request(n, &IDENTITY, None));
    let challenge = RadiusPacket::parse(&challenge).unwrap();
    let asked = challenge.get(kind::EAP_MESSAGE).unwrap();
    let response = md5(&[&[asked[1]], b"right", &asked[6..22]]);
    let answer = [&[2, asked[1], 0, 22, 4, 16][..], &response].concat();
    PacketCode(send_until_answered(socket, &eap_request(n + 1, &answer, challenge.get(kind::STATE)))[0])
}

#[test]
fn a_flood_of_new_sessions_costs_the_flooder_alone() {
    const HALF_OPEN: usize = 500;
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let limits = format!("[limits]\nhalf_open = {HALF_OPEN}\n[methods]\norder = [\"eap-md5\"]\n");
    let config = flood_config(&ports, &format!("{limits}{}", super::daemon::ANN));
    let server = DaemonProcess::start(&place, &config);
    let over = Arc::new(AtomicBool::new(false));
    let (until, port) = (over.clone(), ports.auth);
    let flood = std::thread::spawn(move || {
        // Each socket and identifier starts a conversation. The flood is as fast as the server replies, since the
        // server's socket would drop any sender's excess.
        let packets: Vec<Vec<u8>> = (0..=u8::MAX).map(|n| eap_request(n, &IDENTITY, None)).collect();
        while !until.load(Ordering::Relaxed) {
            let socket = client_socket("127.0.0.2", port);
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            for some in packets.chunks(32) {
                for packet in some {
                    // An error belongs to an earlier packet.
                    let _ = socket.send(packet);
                }
                let answers = some.iter().take_while(|_| socket.recv(&mut [0; 4096]).is_ok());
                answers.for_each(drop);
            }
        }
    });
    let evicted = |client: &str| format!("usher_aaa_evicted_total{{client=\"{client}\"}}");
    wait_until_metric(ports.metrics, &evicted("flooder"), |evicted| evicted > 1000.0);
    let before = metric_value(&get_page(ports.metrics, "/metrics"), &evicted("flooder"));
    let quiet = client_socket("127.0.0.3", ports.auth);
    for login in 0..100_u8 {
        assert_eq!(log_in(&quiet, 2 * login), PacketCode::ACCESS_ACCEPT, "login {login}");
    }
    // The flood continues.
    wait_until_metric(ports.metrics, &evicted("flooder"), |evicted| evicted > before + 100.0);
    let page = get_page(ports.metrics, "/metrics");
    over.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    assert!(metric_value(&page, "usher_aaa_half_open") <= HALF_OPEN as f64, "{page}");
    assert_eq!(find_metric(&page, &evicted("quiet")).unwrap_or(0.0), 0.0, "{page}");
    let accepts = "usher_aaa_logins_total{method=\"eap-md5\",inner=\"\",result=\"accept\",reason=\"\"}";
    wait_for_metric(ports.metrics, accepts, 100.0);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_flood_of_slow_passwords_delays_nobody_else() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let server =
        DaemonProcess::start(&place, &flood_config(&ports, "[users]\ncache_ttl = \"1 ms\"\nthreads = 1\n"));
    for (name, how) in [("ann", ""), ("slow", "--hash argon2"), ("other", "--hash argon2")] {
        let add = format!("echo right | usher aaa user add {name} {how} --password-file - --config aaa.toml");
        place.run_shell(&add).with_code(0);
    }
    let pad = |n: u8| md5(&[SECRET.as_bytes(), &[n; 16]]);
    let pap = move |n: u8, name: &str| {
        let mut password = *b"right\0\0\0\0\0\0\0\0\0\0\0";
        password.iter_mut().zip(pad(n)).for_each(|(octet, key)| *octet ^= key);
        let mut a = AttributeList::new();
        a.push_text(kind::USER_NAME, name).unwrap();
        a.push_bytes(kind::USER_PASSWORD, &password).unwrap();
        sign_packet(PacketCode::ACCESS_REQUEST, n, [n; 16], &a, AuthenticatorForm::Right)
    };
    // The time of a login with a slow password without a flood.
    let quiet = client_socket("127.0.0.3", ports.auth);
    let mut number = 0;
    let mut logs_in = |socket: &UdpSocket, name: &str| {
        number += 1;
        let begun = Instant::now();
        assert_eq!(send_until_answered(socket, &pap(number, name))[0], PacketCode::ACCESS_ACCEPT.0, "{name}");
        begun.elapsed()
    };
    let alone = (0..5).map(|_| logs_in(&quiet, "other")).min().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let (until, port, metrics) = (over.clone(), ports.auth, ports.metrics);
    let flood = std::thread::spawn(move || {
        // More logins at once than may wait, again and again. They fit into the server's socket: the reply to a
        // Status-Server behind them shows that they were read. The thread of look-ups, too, gets its turn between them,
        // however busy the machine is.
        let mark = sign_packet(
            PacketCode::STATUS_SERVER,
            u8::MAX,
            [77; 16],
            &AttributeList::new(),
            AuthenticatorForm::Right,
        );
        while !until.load(Ordering::Relaxed) {
            let flooder = client_socket("127.0.0.2", port);
            for n in 0..u8::MAX {
                // An error belongs to an earlier packet.
                let _ = flooder.send(&pap(n, "slow"));
                if n % 16 == 0 && !until.load(Ordering::Relaxed) {
                    send_until_answered(&flooder, &mark);
                    wait_until_metric(metrics, "usher_aaa_jobs_waiting{queue=\"lookup\"}", |waiting| {
                        waiting == 0.0
                    });
                }
            }
        }
    });
    let queue = |name: &str| metric_value(&get_page(ports.metrics, "/metrics"), name);
    let refused = "usher_aaa_jobs_refused_total{queue=\"password\"}";
    wait_until_metric(ports.metrics, refused, |refused| refused > 0.0);
    // The quickest of several logins is free of other load on the machine. A password that is compared at once waits
    // for no slow one. A slow password waits only for the few of the flood that were queued.
    let ann = (0..20).map(|_| logs_in(&quiet, "ann")).min().unwrap();
    assert!(ann < alone, "{ann:?}, and {alone:?} by a slow password alone");
    for from in ["127.0.0.2", "127.0.0.3"] {
        let socket = client_socket(from, ports.auth);
        let other = (0..5).map(|_| logs_in(&socket, "other")).min().unwrap();
        assert!(other < 64 * alone, "{other:?} from {from}, and {alone:?} alone");
    }
    over.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    assert!(queue("usher_aaa_aaa_events_total{kind=\"unavailable\"}") > 0.0, "and they are told so");
    assert_eq!(queue("usher_aaa_jobs_refused_total{queue=\"lookup\"}"), 0.0);
    drop(server);
}

#[test]
fn only_requests_signed_by_a_client_reach_the_shard_of_a_login() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let order = "[methods]\norder = [\"eap-md5\"]\n";
    let config =
        flood_config(&ports, &format!("{order}{}", super::daemon::ANN)).replace("shards = 1", "shards = 2");
    let server = DaemonProcess::start(&place, &config);
    let begun =
        send_until_answered(&client_socket("127.0.0.2", ports.auth), &eap_request(1, &IDENTITY, None));
    let state = RadiusPacket::parse(&begun).unwrap().get(kind::STATE).unwrap().to_vec();
    let request = |how: AuthenticatorForm| {
        let mut a = AttributeList::new();
        a.push_text(kind::USER_NAME, "ann").unwrap();
        a.push_bytes(kind::STATE, &state).unwrap();
        a.push_eap(&[2, 9, 0, 6, 3, 4]);
        sign_packet(PacketCode::ACCESS_REQUEST, 2, [2; 16], &a, how)
    };
    // Each from its own port, so that both shards get some.
    for how in [AuthenticatorForm::Wrong, AuthenticatorForm::Not] {
        for _ in 0..20 {
            client_socket("127.0.0.2", ports.auth).send(&request(how)).unwrap();
        }
    }
    let page = || get_page(ports.metrics, "/metrics");
    for kind in ["bad_message_authenticator", "missing_message_authenticator"] {
        let name = format!("usher_aaa_radius_events_total{{kind=\"{kind}\"}}");
        wait_for_metric(ports.metrics, &name, 20.0);
    }
    assert_eq!(metric_value(&page(), "usher_aaa_diverted_total"), 0.0);
    for _ in 0..20 {
        client_socket("127.0.0.2", ports.auth).send(&request(AuthenticatorForm::Right)).unwrap();
    }
    // A client's requests are.
    wait_until_metric(ports.metrics, "usher_aaa_diverted_total", |diverted| diverted > 0.0);
    assert_eq!(metric_value(&page(), "usher_aaa_not_diverted_total"), 0.0);
    drop(server);
}
