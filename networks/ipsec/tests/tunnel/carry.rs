//! Our ESP at both ends: all traffic that enters at one end leaves at the other.

use super::place::{NamespacePair, TEST_TIMEOUT, network_selector, test_pair, wait_until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use usher_crypto::cipher::CipherAlgorithm;
use usher_crypto::mac::MacAlgorithm;
use usher_esp::plane::{IpsecMode, OuterAddresses};
use usher_esp::{
    EspEvent, EspTransform, IntegrityAlgorithm, IpsecOperation, PolicyAction, SaPair, SecurityPolicy,
    SecurityPolicyId,
};
use usher_ipsec::{EspTunnel, TunnelConfig, TunnelEvent};

fn aead_transform(cipher: CipherAlgorithm, extended_sequence_numbers: bool) -> EspTransform {
    EspTransform { cipher: Some(cipher), integrity: None, extended_sequence_numbers }
}

fn gcm_transform() -> EspTransform {
    aead_transform(CipherAlgorithm::AesGcm, false)
}

fn install_pair(tunnel: &EspTunnel, pair: SaPair) {
    assert_eq!(tunnel.apply_operation(IpsecOperation::Install(pair.into())), Ok(()));
}

fn udp_socket(place: &NamespacePair, end: usize, address: &str) -> UdpSocket {
    let address: SocketAddr = address.parse().expect("an address");
    place.run_in_namespace(end, move || {
        let socket = UdpSocket::bind(address).expect("the address is there");
        socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a socket can wait");
        socket
    })
}

/// Sends `octets` octets by TCP from end 0 to an address of end 1. True if they arrive unchanged.
pub(crate) fn transfer_stream(place: &NamespacePair, address: &str, octets: usize) -> bool {
    let address: SocketAddr = address.parse().expect("an address");
    let listener =
        place.run_in_namespace(1, move || TcpListener::bind(address).expect("the address is there"));
    let to = listener.local_addr().expect("it is bound");
    let mut sender = {
        let connected = std::thread::spawn(move || listener.accept().expect("somebody comes").0);
        let sender = place.run_in_namespace(0, move || TcpStream::connect(to).expect("it answers"));
        (sender, connected.join().expect("it is accepted"))
    };
    let data: Vec<u8> =
        (0..octets).map(|n| (n as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let sent = data.clone();
    let writer = std::thread::spawn(move || sender.0.write_all(&sent).is_ok());
    let mut came = vec![0; octets];
    sender.1.set_read_timeout(Some(TEST_TIMEOUT)).expect("a stream can wait");
    sender.1.read_exact(&mut came).is_ok() && came == data && writer.join().expect("it is written")
}

#[test]
fn streams_of_each_transform_arrive_as_they_were_sent() {
    use CipherAlgorithm::{AesCbc, AesGcm, ChaCha20Poly1305, TripleDesCbc};
    let code = |cipher, mac, len| EspTransform {
        integrity: Some(IntegrityAlgorithm { mac, len }),
        ..aead_transform(cipher, false)
    };
    for (transform, key, encapsulated) in [
        (gcm_transform(), 20, true),
        (aead_transform(AesGcm, true), 36, true),
        (aead_transform(ChaCha20Poly1305, true), 36, true),
        (code(AesCbc, MacAlgorithm::HmacSha256, 16), 16, true),
        (code(TripleDesCbc, MacAlgorithm::HmacSha1, 12), 24, true),
        (gcm_transform(), 20, false),
    ] {
        let place = NamespacePair::new();
        let (a, _) = place.start_tunnel(0, TunnelConfig::default());
        let (b, _) = place.start_tunnel(1, TunnelConfig::default());
        install_pair(&a, test_pair(0, transform, key, encapsulated));
        install_pair(&b, test_pair(1, transform, key, encapsulated));
        for address in ["10.2.0.1:0", "[2001:db8:2::1]:0"] {
            assert!(transfer_stream(&place, address, 3 << 20), "{transform:?} to {address}");
        }
        let ((sealed, moved), (opened, _)) = (a.counters(), b.counters());
        assert!(opened.opened > 4000 && sealed.sealed > 4000, "{transform:?}: {opened:?}");
        assert_eq!((opened.integrity, opened.replayed, opened.selectors, opened.length), (0, 0, 0, 0));
        if encapsulated && a.offloaded_protocols().0 {
            let (packets, messages) = (moved.packets_out, moved.messages_out);
            assert!(messages * 4 < packets, "whole batches go as one: {moved:?}");
        }
        assert_eq!((moved.not_sent, moved.not_written, moved.malformed), (0, 0, 0), "{transform:?}");
    }
}

#[test]
fn without_offload_all_is_the_same_packet_by_packet() {
    let place = NamespacePair::new();
    let config = TunnelConfig { offload: false, ..TunnelConfig::default() };
    let (a, _) = place.start_tunnel(0, config.clone());
    let (b, _) = place.start_tunnel(1, config);
    install_pair(&a, test_pair(0, gcm_transform(), 20, true));
    install_pair(&b, test_pair(1, gcm_transform(), 20, true));
    assert!(transfer_stream(&place, "10.2.0.1:0", 1 << 20));
}

#[test]
fn datagrams_of_all_sizes_arrive_and_are_answered() {
    let place = NamespacePair::new();
    let (a, _) = place.start_tunnel(0, TunnelConfig::default());
    let (b, _) = place.start_tunnel(1, TunnelConfig::default());
    install_pair(&a, test_pair(0, gcm_transform(), 20, true));
    install_pair(&b, test_pair(1, gcm_transform(), 20, true));
    let ours = udp_socket(&place, 0, "10.1.0.1:0");
    let theirs = udp_socket(&place, 1, "10.2.0.1:7000");
    let mut buf = vec![0; 65_536];
    // Packets above the device's MTU of 1400 octets are fragmented.
    for size in [0, 1, 2, 3, 500, 1371, 1372, 1373, 4000, 30_000] {
        let data: Vec<u8> = (0..size).map(|n| n as u8).collect();
        ours.send_to(&data, "10.2.0.1:7000").expect("it is sent");
        let (length, from) = theirs.recv_from(&mut buf).unwrap_or_else(|e| panic!("{size} octets: {e}"));
        assert_eq!((&buf[..length], from), (&data[..], ours.local_addr().expect("it is bound")));
        theirs.send_to(&data, from).expect("it is sent");
        assert_eq!(ours.recv(&mut buf).unwrap_or_else(|e| panic!("{size} octets back: {e}")), size);
    }
}

/// Like a ping in the third founding study: its first packet acquires the SA, and arrives.
#[test]
fn the_first_packet_brings_its_sa_about_and_arrives() {
    let place = NamespacePair::new();
    let (a, said) = place.start_tunnel(0, TunnelConfig::default());
    let (b, _) = place.start_tunnel(1, TunnelConfig::default());
    let policy = |id, remote: &str, action| SecurityPolicy {
        id: SecurityPolicyId(id),
        local: vec![network_selector("10.1.0.0/16")],
        remote: vec![network_selector(remote)],
        action,
    };
    let policies = vec![
        policy(1, "10.2.9.0/24", PolicyAction::Discard),
        policy(2, "10.2.0.0/16", PolicyAction::Protect),
    ];
    assert_eq!(a.apply_operation(IpsecOperation::Policies(policies)), Ok(()));
    install_pair(&b, test_pair(1, gcm_transform(), 20, true));
    let theirs = udp_socket(&place, 1, "10.2.0.1:7000");
    let ours = udp_socket(&place, 0, "10.1.0.1:0");
    ours.send_to(b"nobody hears", "10.2.9.9:7000").expect("it is sent");
    for word in [&b"first"[..], b"second"] {
        ours.send_to(word, "10.2.0.1:7000").expect("it is sent");
    }
    // IPv6 first sends packets of its own, which match no policy.
    let flow = match said.recv_timeout(TEST_TIMEOUT).expect("it asks for an SA") {
        TunnelEvent::Plane(EspEvent::Acquire { policy: SecurityPolicyId(2), flow }) => flow,
        other => panic!("{other:?}"),
    };
    assert_eq!((flow.protocol, flow.destination), (17, "10.2.0.1".parse().expect("an address")));
    wait_until("both wait", || a.counters().0.queued == 2);
    install_pair(&a, SaPair { policy: Some(SecurityPolicyId(2)), ..test_pair(0, gcm_transform(), 20, true) });
    let mut buf = [0; 100];
    for word in [&b"first"[..], b"second"] {
        let length = theirs.recv(&mut buf).expect("it arrives");
        assert_eq!(&buf[..length], word);
    }
    assert_eq!(
        (a.counters().0.queue_dropped, a.pair_usage(0x1000).map(|usage| usage.sent.packets)),
        (0, Some(2))
    );
    assert!(a.counters().0.discarded >= 1);
}

#[test]
fn what_a_policy_forwards_goes_past_the_device() {
    let place = NamespacePair::new();
    let (a, _) = place.start_tunnel(0, TunnelConfig { mark: Some(7), ..TunnelConfig::default() });
    // Marked packets use the cable to the other end, which has an address there too.
    let name = &place.names[0];
    super::place::run_ip(&format!("-n {name} rule add fwmark 7 table 7"));
    super::place::run_ip(&format!("-n {name} route add default via 192.0.2.2 table 7"));
    super::place::run_ip(&format!("-n {} addr add 10.2.0.1/32 dev lo", place.names[1]));
    let policy = SecurityPolicy {
        id: SecurityPolicyId(1),
        local: vec![network_selector("0.0.0.0/0")],
        remote: vec![network_selector("10.2.0.0/16")],
        action: PolicyAction::Forward,
    };
    assert_eq!(a.apply_operation(IpsecOperation::Policies(vec![policy])), Ok(()));
    let theirs = udp_socket(&place, 1, "10.2.0.1:7000");
    let ours = udp_socket(&place, 0, "10.1.0.1:0");
    ours.send_to(b"in the clear", "10.2.0.1:7000").expect("it is sent");
    let mut buf = [0; 100];
    assert_eq!(theirs.recv_from(&mut buf).expect("it arrives").1, ours.local_addr().expect("it is bound"));
    assert!(a.counters().0.forwarded >= 1);
}

#[test]
fn transport_mode_carries_what_two_hosts_say() {
    let place = NamespacePair::new();
    let [(a, _), (b, _)] = [0, 1].map(|end| {
        let tunnel = place.start_tunnel(end, TunnelConfig { mark: Some(7), ..TunnelConfig::default() });
        // Unprotected packets go to the device, and protected ones past it.
        let (name, other) = (&place.names[end], 2 - end);
        super::place::run_ip(&format!("-n {name} rule add fwmark 7 lookup main pref 10"));
        super::place::run_ip(&format!(
            "-n {name} rule add to 192.0.2.{other} ipproto udp dport 7000 lookup 8 pref 20"
        ));
        super::place::run_ip(&format!("-n {name} route add default dev {} table 8", tunnel.0.device_name()));
        super::place::run_ip(&format!("netns exec {name} sysctl -qw net.ipv4.conf.all.rp_filter=0"));
        tunnel
    });
    let one = |end: usize| {
        let traffic = |end: usize| vec![network_selector(&format!("192.0.2.{}/32", end + 1))];
        let (local, remote) = (traffic(end), traffic(1 - end));
        SaPair { mode: IpsecMode::Transport, local, remote, ..test_pair(end, gcm_transform(), 20, true) }
    };
    install_pair(&a, one(0));
    install_pair(&b, one(1));
    let theirs = udp_socket(&place, 1, "192.0.2.2:7000");
    let ours = udp_socket(&place, 0, "192.0.2.1:7000");
    let mut buf = [0; 100];
    ours.send_to(b"there", "192.0.2.2:7000").expect("it is sent");
    let (length, from) = theirs.recv_from(&mut buf).expect("it arrives");
    assert_eq!((&buf[..length], from), (&b"there"[..], ours.local_addr().expect("it is bound")));
    theirs.send_to(b"and back", from).expect("it is sent");
    assert_eq!(ours.recv(&mut buf).expect("it arrives"), 8);
    assert_eq!((b.counters().0.opened, a.counters().0.opened), (1, 1));
}

#[test]
fn ike_beside_esp_gets_what_is_its_own() {
    let place = NamespacePair::new();
    let first = place.run_in_namespace(1, || {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).expect("a socket");
        socket.set_reuse_port(true).expect("it may be shared");
        socket.bind(&"0.0.0.0:4500".parse::<SocketAddr>().expect("an address").into()).expect("it is free");
        UdpSocket::from(socket)
    });
    first.set_read_timeout(Some(TEST_TIMEOUT)).expect("a socket can wait");
    let v4 =
        TunnelConfig { udp: vec!["0.0.0.0:4500".parse().expect("an address")], ..TunnelConfig::default() };
    let (b, _) = place.start_tunnel(1, TunnelConfig { shares_ike_port: true, ..v4.clone() });
    let (a, said) = place.start_tunnel(0, v4);
    install_pair(&a, test_pair(0, gcm_transform(), 20, true));
    install_pair(&b, test_pair(1, gcm_transform(), 20, true));
    // IKE messages to the end that shares its port, from the end that does not.
    let outer: OuterAddresses = test_pair(0, gcm_transform(), 20, true).outer;
    for n in 0..20u8 {
        a.send_datagram(outer, [&[0, 0, 0, 0, n], &[7; 200][..]].concat());
    }
    a.send_datagram(outer, vec![0xff]);
    let mut buf = [0; 300];
    for n in 0..20 {
        let (length, from) = first.recv_from(&mut buf).expect("it arrives");
        assert_eq!((length, buf[4], from), (205, n, outer.local));
    }
    assert_eq!(first.recv(&mut buf).expect("so does what is too short to be ESP"), 1);
    assert!(transfer_stream(&place, "10.2.0.1:0", 1 << 20), "and ESP goes to the tunnel");
    // Without an IKE socket, the tunnel passes the message on.
    first.send_to(&[0, 0, 0, 0, 42], outer.local).expect("it is sent");
    let ike = loop {
        match said.recv_timeout(TEST_TIMEOUT).expect("it is handed over") {
            TunnelEvent::Ike { outer, message } => break (outer, message),
            TunnelEvent::Plane(_) | TunnelEvent::UsageReport(_) => {}
            TunnelEvent::Failed(why) => panic!("{why}"),
        }
    };
    assert_eq!(ike, (outer, vec![0, 0, 0, 0, 42]));
    assert_eq!((a.counters().1.ike, b.counters().0.unknown_spi), (1, 0));
}

#[test]
fn a_tunnel_goes_on_after_an_sa_was_replaced_and_moved() {
    let place = NamespacePair::new();
    let (a, said) = place.start_tunnel(0, TunnelConfig::default());
    let (b, _) = place.start_tunnel(1, TunnelConfig::default());
    install_pair(&a, test_pair(0, gcm_transform(), 20, true));
    install_pair(&b, test_pair(1, gcm_transform(), 20, true));
    assert!(transfer_stream(&place, "10.2.0.1:0", 1 << 20));
    let new = |end: usize| {
        let old = test_pair(end, gcm_transform(), 20, true);
        SaPair { inbound: old.inbound + 16, outbound: old.outbound + 16, replaces: Some(old.inbound), ..old }
    };
    install_pair(&b, SaPair { after_peer: true, ..new(1) });
    install_pair(&a, new(0));
    for (tunnel, inbound) in [(&a, 0x1000), (&b, 0x1001)] {
        assert_eq!(tunnel.apply_operation(IpsecOperation::Remove { inbound }), Ok(()));
    }
    assert!(transfer_stream(&place, "10.2.0.1:0", 1 << 20));
    // To the IPv6 addresses.
    for (tunnel, own, other) in [(&a, 1, 2), (&b, 2, 1)] {
        let address = |n| format!("[2001:db8::{n}]:4500").parse().expect("an address");
        let outer = OuterAddresses { local: address(own), remote: address(other), encapsulated: true };
        let inbound = 0x1010 + own - 1;
        assert_eq!(tunnel.apply_operation(IpsecOperation::Move { inbound, outer }), Ok(()));
    }
    assert!(transfer_stream(&place, "10.2.0.1:0", 1 << 20));
    let removed = said.try_iter().find_map(|said| match said {
        TunnelEvent::Plane(EspEvent::Removed { inbound: 0x1000, usage }) => Some(usage),
        _ => None,
    });
    assert!(removed.is_some_and(|usage| usage.sent.octets > 1 << 20), "{removed:?}");
}

#[test]
fn a_tunnel_that_cannot_be_says_why() {
    let place = NamespacePair::new();
    let _held = udp_socket(&place, 0, "0.0.0.0:4500");
    let refused = place.run_in_namespace(0, || {
        let (config, rng) = (TunnelConfig::default(), usher_core::SecureRng::from_seed([0; 32]));
        EspTunnel::start(&config, rng, Box::new(|_| {})).expect_err("the port is held").to_string()
    });
    assert!(refused.starts_with("cannot receive ESP in UDP at 0.0.0.0:4500: "), "{refused}");
}
