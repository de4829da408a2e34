//! Authentication of a connection's peer: by address, and by the certificate of its TLS.

use super::world::*;
use crate::node::*;
use crate::peer::automaton::State;
use usher_crypto::certificate::PeerCertificateCondition;
use usher_crypto::fingerprint::sha256_fingerprint;

/// Has the DNS name `aaa.usher.test`.
const AAA: &[u8] = include_bytes!("../../../../../vectors/certs/server1.der");
/// Has no DNS name; its common name is `station@usher.test`.
const STATION: &[u8] = include_bytes!("../../../../../vectors/certs/client1.der");

/// Connects a client of this identity and certificate to a server that authenticates it in this way.
fn connect_with_certificate(
    client: &str,
    shows: Option<&'static [u8]>,
    authentication: PeerAuthentication,
) -> NodeTestNetwork {
    let mut server = test_config("s.example").accept_from(client);
    server.peers[0].authentication = authentication;
    let mut w =
        NodeTestNetwork::new(vec![test_config(client).connect_to("s.example", node_address(1)), server]);
    w[0].config.reconnect = usher_core::Duration::from_secs(1000);
    if let Some(certificate) = shows {
        let pinned = PeerCertificateCondition::Fingerprint(sha256_fingerprint(STATION));
        w[0].peers[0].authentication.certificates.push(pinned);
        w.set_certificates([(0, certificate), (1, STATION)]);
    }
    w.run_secs(1);
    w
}

#[track_caller]
fn assert_accepted(w: &NodeTestNetwork) {
    assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::IOpen, State::ROpen));
    assert_eq!(w[1].counters().unauthenticated_peer, 0);
}

#[track_caller]
fn assert_refused(w: &NodeTestNetwork) {
    assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::Closed, State::Closed));
    assert_eq!(w[1].counters().unauthenticated_peer, 1);
    assert_eq!(w[0].counters().unknown_peer, 1, "it is told 3010");
}

#[test]
fn a_certificate_bears_the_peers_identity() {
    assert_accepted(&connect_with_certificate("aaa.usher.test", Some(AAA), PeerAuthentication::default()));
    assert_accepted(&connect_with_certificate("AAA.Usher.test", Some(AAA), PeerAuthentication::default()));
    // A certificate of the same authority, but with another peer's identity.
    assert_refused(&connect_with_certificate("aaa.usher.test", Some(STATION), PeerAuthentication::default()));
    assert_refused(&connect_with_certificate("c.example", Some(AAA), PeerAuthentication::default()));
}

#[test]
fn a_certificate_may_be_named_instead() {
    let of = |certificates| PeerAuthentication { certificates, ..PeerAuthentication::default() };
    let named = of(vec![PeerCertificateCondition::Name("station@usher.test".into())]);
    assert_accepted(&connect_with_certificate("c.example", Some(STATION), named.clone()));
    assert_refused(&connect_with_certificate("c.example", Some(AAA), named));
    let pinned = of(vec![PeerCertificateCondition::Fingerprint(sha256_fingerprint(AAA))]);
    assert_accepted(&connect_with_certificate("c.example", Some(AAA), pinned.clone()));
    assert_refused(&connect_with_certificate("aaa.usher.test", Some(STATION), pinned));
}

#[test]
fn without_tls_the_address_says_who_it_is() {
    let from = |network: [u8; 4], bits| PeerAuthentication {
        networks: vec![(network.into(), bits)],
        ..PeerAuthentication::default()
    };
    assert_accepted(&connect_with_certificate("c.example", None, PeerAuthentication::default()));
    // Node 0 is 10.0.0.0, node 1 10.0.0.1.
    assert_accepted(&connect_with_certificate("c.example", None, from([10, 0, 0, 0], 32)));
    assert_accepted(&connect_with_certificate("c.example", None, from([10, 0, 0, 128], 24)));
    assert_accepted(&connect_with_certificate("c.example", None, from([192, 0, 2, 1], 0)));
    assert_refused(&connect_with_certificate("c.example", None, from([10, 0, 0, 128], 25)));
    assert_refused(&connect_with_certificate("c.example", None, from([10, 0, 0, 1], 32)));
}

#[test]
fn a_peer_of_tls_is_not_taken_without() {
    let tls = PeerAuthentication { tls: true, ..PeerAuthentication::default() };
    assert_accepted(&connect_with_certificate("aaa.usher.test", Some(AAA), tls.clone()));
    assert_refused(&connect_with_certificate("aaa.usher.test", None, tls));
    // A pinned certificate is required.
    let pinned = PeerAuthentication {
        certificates: vec![PeerCertificateCondition::Fingerprint(sha256_fingerprint(AAA))],
        ..PeerAuthentication::default()
    };
    assert_accepted(&connect_with_certificate("aaa.usher.test", Some(AAA), pinned.clone()));
    assert_refused(&connect_with_certificate("aaa.usher.test", None, pinned));
}

#[test]
fn a_stranger_too_bears_its_identity() {
    let stranger = |host: &str, shows: &'static [u8]| {
        let mut server = test_config("s.example");
        server.accept_unknown = true;
        let mut w =
            NodeTestNetwork::new(vec![test_config(host).connect_to("s.example", node_address(1)), server]);
        let pinned = PeerCertificateCondition::Fingerprint(sha256_fingerprint(STATION));
        w[0].peers[0].authentication.certificates.push(pinned);
        w.set_certificates([(0, shows), (1, STATION)]);
        w.run_secs(1);
        (w.first_peer_state(0), w[1].counters().unauthenticated_peer)
    };
    assert_eq!(stranger("aaa.usher.test", AAA), (State::IOpen, 0));
    assert_eq!(stranger("c.example", AAA), (State::Closed, 1));
}

#[test]
fn whom_we_connect_to_shows_who_it_is() {
    let connecting = |server: &str, shows: Option<&'static [u8]>, tls: bool| {
        let mut client = test_config("c.example").connect_to(server, node_address(1));
        client.peers[0].authentication.tls = tls;
        let mut known = test_config(server).accept_from("c.example");
        if shows.is_some() {
            let pinned = PeerCertificateCondition::Fingerprint(sha256_fingerprint(STATION));
            known.peers[0].authentication.certificates.push(pinned);
        }
        let mut w = NodeTestNetwork::new(vec![client, known]);
        if let Some(certificate) = shows {
            w.set_certificates([(0, STATION), (1, certificate)]);
        }
        w.run_secs(1);
        (w.first_peer_state(0), w[0].counters().unauthenticated_peer)
    };
    assert_eq!(connecting("aaa.usher.test", Some(AAA), true), (State::IOpen, 0));
    assert_eq!(connecting("aaa.usher.test", None, false), (State::IOpen, 0));
    assert_eq!(connecting("other.usher.test", Some(AAA), true), (State::Closed, 1));
    assert_eq!(connecting("aaa.usher.test", None, true), (State::Closed, 1));
}
