//! Datagrams in groups get the same replies as single ones.

use crate::build::{PASSWORD, aaa_config, shared_secret, test_users, user_name};
use crate::world::{nas_address, server_address};
use std::net::SocketAddr;
use usher_aaa::{AaaServer, AaaServerEvent, AuthMethod, radius_socket};
use usher_core::bench::TestMachine;
use usher_core::{DatagramPath, Duration, Instant, Machine, Seed, Transmit};
use usher_radius::PacketCode;
use usher_radius::attribute::kind;
use usher_radius::client::{self, RadiusClient, RequestTarget, ServerConfig};

/// The requests of ten logins: right and wrong passwords, an unknown user, an EAP identity, a MAC address without a
/// password, a request without a proof, and one of an unknown client.
fn login_datagrams() -> DatagramList {
    let seed = Seed::new(5);
    let mut asking = client::RadiusClientConfig::for_server(ServerConfig::new(
        SocketAddr::new(server_address(0), 1812),
        shared_secret(),
    ));
    asking.max_sockets = 100;
    let mut nas = TestMachine::new(RadiusClient::new(asking, seed.derive_secure_rng("nas", 0)).unwrap());
    let mut all = Vec::new();
    for token in 0..10 {
        let mut attributes = usher_radius::AttributeList::new();
        let name = if token == 3 { b"nobody".to_vec() } else { user_name(token as usize % 4) };
        attributes.push_bytes(kind::USER_NAME, &name).unwrap();
        match token {
            2 => drop(attributes.push_user_password(b"not this").unwrap()),
            5 => {
                let mut identity = Vec::new();
                let code = usher_eap::packet::EapCode::Response;
                usher_eap::packet::emit_packet(
                    &mut identity,
                    code,
                    1,
                    usher_eap::packet::EapType::IDENTITY,
                    &name,
                );
                attributes.push_eap(&identity);
            }
            7 => {}
            _ => drop(attributes.push_user_password(PASSWORD).unwrap()),
        }
        let code = PacketCode::ACCESS_REQUEST;
        let request = client::RadiusClientCommand::Request {
            token,
            target: RequestTarget::Server(0),
            code,
            attributes,
        };
        nas.handle_command(Instant::ZERO, request).unwrap();
        let mut buf = Vec::new();
        while let Some(Transmit::Datagram { path }) = nas.poll_transmit(&mut buf) {
            let stranger = SocketAddr::from(([198, 51, 100, 7], 50_000));
            let known = SocketAddr::new(nas_address(0), 50_000 + path.socket.n as u16);
            let remote = if token == 8 { stranger } else { known };
            let local = SocketAddr::new(server_address(0), 1812);
            all.push((DatagramPath { socket: radius_socket(0), local, remote }, buf.clone()));
        }
    }
    all
}

fn test_server() -> TestMachine<AaaServer> {
    let mut config = aaa_config(test_users(Seed::new(1), 8));
    config.methods = vec![AuthMethod::EapMd5, AuthMethod::Pap];
    config.reject_delay = Duration::ZERO;
    TestMachine::new(AaaServer::new(config, Seed::new(3).derive_secure_rng("aaa", 0)).unwrap())
}

type DatagramList = Vec<(DatagramPath, Vec<u8>)>;

/// Returns the datagrams and events of a server that receives datagrams in groups of this size.
fn handle_in_groups(all: &DatagramList, group: usize) -> (DatagramList, Vec<String>, TestMachine<AaaServer>) {
    let (mut server, mut sent, mut said) = (test_server(), Vec::new(), Vec::new());
    let now = Instant::ZERO + Duration::from_millis(1);
    for group in all.chunks(group) {
        let group: Vec<(DatagramPath, &[u8])> = group.iter().map(|(path, data)| (*path, &data[..])).collect();
        server.handle_datagrams(now, &group);
        let mut buf = Vec::new();
        while let Some(Transmit::Datagram { path }) = server.poll_transmit(&mut buf) {
            sent.push((path, buf.clone()));
        }
        said.extend(std::iter::from_fn(|| server.poll_event()).map(|event| match event {
            AaaServerEvent::Accepted(login) | AaaServerEvent::Rejected(login) => {
                format!("{:?} {:?}", login.name, login.reason)
            }
            other => format!("{other:?}"),
        }));
    }
    (sent, said, server)
}

#[test]
fn datagrams_that_come_together_are_answered_as_one_by_one() {
    let all = login_datagrams();
    let (sent, said, alone) = handle_in_groups(&all, 1);
    assert!(sent.len() >= 8 && said.len() >= 7, "{} {said:?}", sent.len());
    for group in [2, 3, 8, 10] {
        let (sent_together, said_together, together) = handle_in_groups(&all, group);
        assert_eq!(sent_together, sent, "in groups of {group}");
        assert_eq!(said_together, said, "in groups of {group}");
        assert_eq!(together.radius_counters(), alone.radius_counters());
        assert_eq!(together.half_open(), alone.half_open());
    }
}

#[test]
fn a_request_that_comes_twice_together_is_answered_once() {
    let (path, data) = login_datagrams().swap_remove(0);
    let all = vec![(path, data); 3];
    let (sent, said, server) = handle_in_groups(&all, 3);
    assert_eq!((sent.len(), said.len()), (1, 1));
    assert_eq!(server.radius_counters().unwrap().duplicates_dropped, 2);
}
