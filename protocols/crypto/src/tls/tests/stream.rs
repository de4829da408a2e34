//! TLS for a machine over a stream.

use super::*;

/// The octets received by each application, and the number of completed handshakes.
type ReceivedData = (Vec<u8>, u32);

/// Carries octets between the sides, the client's first, until both are silent.
fn exchange_octets(client: &mut TlsStream, server: &mut TlsStream, mut octets: Vec<u8>) -> [ReceivedData; 2] {
    let mut heard = [ReceivedData::default(), ReceivedData::default()];
    let mut at = 1;
    while !octets.is_empty() {
        let side = if at == 0 { &mut *client } else { &mut *server };
        let (data, completed) = &mut heard[at];
        let mut out = Vec::new();
        if side.receive_tls(&octets, data, &mut out).unwrap() {
            *completed += 1;
            side.flush_pending(&mut out);
        }
        (octets, at) = (out, 1 - at);
    }
    heard
}

fn stream_pair(setup: HandshakeSetup) -> (TlsStream, TlsStream) {
    let (client, server) = setup.into_configs();
    (
        TlsStream::new(TlsTrustConfig::Client(client)).unwrap(),
        TlsStream::new(TlsTrustConfig::Server(server)).unwrap(),
    )
}

#[test]
fn what_is_said_before_the_handshake_is_heard_after_it() {
    for (version, chain) in version_chain_pairs() {
        let (mut client, mut server) = stream_pair(HandshakeSetup::new(version, chain));
        let mut out = Vec::new();
        client.send_application(b"early", &mut out);
        server.send_application(b"too", &mut out);
        assert!(out.is_empty() && client.pending_octets() == 5 && !client.is_up());
        client.start_handshake(&mut out);
        let heard = exchange_octets(&mut client, &mut server, out);
        assert_eq!(heard, [(b"too".to_vec(), 1), (b"early".to_vec(), 1)], "{version:?}");
        assert!(client.is_up() && client.pending_octets() == 0 && !client.is_resumed());
        assert!(client.take_work() != TlsOperationCounts::default());
        for (side, name) in [(&server, fixtures::CLIENT_NAME), (&client, fixtures::SERVER_NAME)] {
            let shown = side.peer_certificate().unwrap();
            assert!(
                crate::certificate::PeerCertificateCondition::Name(name.to_owned())
                    .matches_certificate(shown),
                "{name}"
            );
        }
    }
}

#[test]
fn a_peer_who_is_not_trusted_any_more_is_told_of() {
    let (mut client, mut server) = stream_pair(HandshakeSetup::new(TlsVersion::Tls13, 2));
    // During the handshake the peer is unknown, so no trust can be withdrawn.
    let other = |roots: TrustRoots| {
        let (_, server) = HandshakeSetup { client_roots: roots, ..HandshakeSetup::new(TlsVersion::Tls13, 2) }
            .into_configs();
        TlsTrustConfig::Server(server)
    };
    let (same, foreign) = (TrustRoots::from_der([fixtures::root_certificate()]), issued::unrelated_root());
    assert_eq!(server.replace_trust_config(other(same)), Ok(()));
    let mut out = Vec::new();
    client.start_handshake(&mut out);
    exchange_octets(&mut client, &mut server, out);
    assert!(server.is_up());
    assert!(server.replace_trust_config(other(foreign)).is_err());
}

#[test]
fn data_of_a_peer_distrusted_in_the_handshake_is_dropped() {
    let (mut client, mut server) = stream_pair(HandshakeSetup::new(TlsVersion::Tls13, 2));
    let (_, other) = HandshakeSetup {
        client_roots: issued::unrelated_root(),
        ..HandshakeSetup::new(TlsVersion::Tls13, 2)
    }
    .into_configs();
    let (mut octets, mut answer, mut data) = (Vec::new(), Vec::new(), Vec::new());
    client.start_handshake(&mut octets);
    server.receive_tls(&octets, &mut data, &mut answer).unwrap();
    // The configuration changes during the handshake, and the client sends as soon as its own handshake is complete.
    assert_eq!(server.replace_trust_config(TlsTrustConfig::Server(other)), Ok(()));
    let mut last = Vec::new();
    assert_eq!(client.receive_tls(&answer, &mut data, &mut last), Ok(true));
    client.send_application(b"let me in", &mut last);
    answer.clear();
    assert!(server.receive_tls(&last, &mut data, &mut answer).is_err());
    assert!(data.is_empty() && answer.is_empty() && !server.is_up());
}
