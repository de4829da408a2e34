//! TLS under a machine that speaks over a stream.

use super::*;

/// Octets that each side's application heard, and how often its handshake was completed.
type Heard = (Vec<u8>, u32);

/// Carries octets to and fro, the client's first, until nobody says any more.
fn carry(client: &mut TlsStream, server: &mut TlsStream, mut octets: Vec<u8>) -> [Heard; 2] {
    let mut heard = [Heard::default(), Heard::default()];
    let mut at = 1;
    while !octets.is_empty() {
        let side = if at == 0 { &mut *client } else { &mut *server };
        let (data, completed) = &mut heard[at];
        let mut out = Vec::new();
        if side.receive(&octets, data, &mut out).unwrap() {
            *completed += 1;
            side.release(&mut out);
        }
        (octets, at) = (out, 1 - at);
    }
    heard
}

fn streams(setup: Setup) -> (TlsStream, TlsStream) {
    let (client, server) = setup.configs();
    (TlsStream::new(Trust::Client(client)).unwrap(), TlsStream::new(Trust::Server(server)).unwrap())
}

#[test]
fn what_is_said_before_the_handshake_is_heard_after_it() {
    for (version, chain) in each() {
        let (mut client, mut server) = streams(Setup::new(version, chain));
        let mut out = Vec::new();
        client.send(b"early", &mut out);
        server.send(b"too", &mut out);
        assert!(out.is_empty() && client.waiting() == 5 && !client.is_up());
        client.connected(&mut out);
        let heard = carry(&mut client, &mut server, out);
        assert_eq!(heard, [(b"too".to_vec(), 1), (b"early".to_vec(), 1)], "{version:?}");
        assert!(client.is_up() && client.waiting() == 0 && !client.resumed());
        assert!(client.work() != TlsWork::default());
        for (side, name) in [(&server, fixtures::CLIENT_NAME), (&client, fixtures::SERVER_NAME)] {
            let shown = side.certificate().unwrap();
            assert!(crate::certificate::CertificateMatch::Name(name.to_owned()).fits(shown), "{name}");
        }
    }
}

#[test]
fn a_peer_who_is_not_trusted_any_more_is_told_of() {
    let (mut client, mut server) = streams(Setup::new(Version::Tls13, 2));
    // While the handshake is under way nobody is known who could be distrusted.
    let other = |roots: Roots| {
        let (_, server) = Setup { client_roots: roots, ..Setup::new(Version::Tls13, 2) }.configs();
        Trust::Server(server)
    };
    let (same, foreign) = (Roots::from_der([fixtures::root()]), issued::other_root());
    assert_eq!(server.replace(other(same)), Ok(()));
    let mut out = Vec::new();
    client.connected(&mut out);
    carry(&mut client, &mut server, out);
    assert!(server.is_up());
    assert!(server.replace(other(foreign)).is_err());
}

#[test]
fn of_a_peer_who_is_distrusted_when_the_handshake_ends_nothing_is_heard() {
    let (mut client, mut server) = streams(Setup::new(Version::Tls13, 2));
    let (_, other) = Setup { client_roots: issued::other_root(), ..Setup::new(Version::Tls13, 2) }.configs();
    let (mut octets, mut answer, mut data) = (Vec::new(), Vec::new(), Vec::new());
    client.connected(&mut octets);
    server.receive(&octets, &mut data, &mut answer).unwrap();
    // Another configuration comes amid the handshake, and the client speaks as soon as that is over for it.
    assert_eq!(server.replace(Trust::Server(other)), Ok(()));
    let mut last = Vec::new();
    assert_eq!(client.receive(&answer, &mut data, &mut last), Ok(true));
    client.send(b"let me in", &mut last);
    answer.clear();
    assert!(server.receive(&last, &mut data, &mut answer).is_err());
    assert!(data.is_empty() && answer.is_empty() && !server.is_up());
}
