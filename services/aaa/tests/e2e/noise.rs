//! No input causes a panic, and valid clients are still served.

use crate::build::{
    aaa_config, diameter_server, radius_nas, shared_secret, station_mac, test_network, test_users,
};
use crate::world::{NetworkHost, nas_address, server_address};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::SocketAddr;
use usher_aaa::{AaaServer, DIAMETER_LISTENER, radius_socket};
use usher_core::bench::TestMachine;
use usher_core::{
    ConnId, DatagramPath, Instant, LinkLayerPortId, Machine, MachineInput, Seed, SocketId, StreamEvent,
};
use usher_nas::{PAE_GROUP, station};
use usher_radius::attribute::kind;
use usher_radius::client::{self, RadiusClient, RequestTarget, ServerConfig};
use usher_radius::{AttributeList, PacketCode};

/// An EAPOL frame that may be valid, with an EAP packet that may be valid.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    (any::<bool>(), 0u8..6, vec(0u8..24, 0..12), any::<Option<u16>>()).prop_map(|(eapol, kind, body, lie)| {
        let mut frame = [&PAE_GROUP.0[..], &station_mac(0).0].concat();
        frame.extend_from_slice(if eapol { &[0x88, 0x8e] } else { &[8, 0] });
        frame.extend_from_slice(&[2, kind]);
        frame.extend_from_slice(&lie.unwrap_or(body.len() as u16).to_be_bytes());
        frame.extend_from_slice(&body);
        frame
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn frames_of_any_kind_harm_nobody(frames in vec(prop_oneof![any_frame(), vec(any::<u8>(), 0..40)], 1..40)) {
        let mut w = test_network(2, radius_nas(1), &[aaa_config(test_users(Seed::new(1), 2))]);
        w.start_password_login(1);
        for data in &frames {
            w.inject_input(NetworkHost::Nas(0), MachineInput::Frame { port: LinkLayerPortId(0), data });
            w.inject_input(NetworkHost::Station(0), MachineInput::Frame { port: LinkLayerPortId(0), data });
        }
        w.run_until(5);
        let outcome = w.station_events.iter().find(|(i, _, _)| *i == 1).map(|(_, _, e)| e.clone());
        prop_assert_eq!(outcome, Some(station::StationEvent::Success { msk: None }));
    }

    #[test]
    fn octets_of_any_kind_do_not_panic(data in vec(any::<u8>(), 0..200), frame in vec(any::<u8>(), 0..60)) {
        let mut config = diameter_server(0, test_users(Seed::new(1), 1));
        config.radius = aaa_config(test_users(Seed::new(1), 1)).radius;
        let mut server = TestMachine::new(AaaServer::new(config, Seed::new(2).derive_secure_rng("aaa", 0)).unwrap());
        let mut w = test_network(0, radius_nas(1), &[]);
        let (near, far) = (SocketAddr::new(nas_address(0), 50_000), SocketAddr::new(server_address(0), 1812));
        let listener = DIAMETER_LISTENER;
        let inputs = |socket, conn| [
            MachineInput::Datagram { path: DatagramPath { socket, local: far, remote: near }, data: &data },
            MachineInput::Stream { conn, event: StreamEvent::Accepted { listener, remote: near, local: None, certificate: None } },
            MachineInput::Stream { conn, event: StreamEvent::Data(&data) },
            MachineInput::Frame { port: LinkLayerPortId(0), data: &frame },
            MachineInput::Timeout,
        ];
        let conn = ConnId::nth_accepted_connection(0);
        let to_server = inputs(radius_socket(0), ConnId { owner: listener.owner, ..conn });
        for (to_server, to_nas) in to_server.into_iter().zip(inputs(SocketId::from_number(0), conn)) {
            server.handle_input(Instant::ZERO, to_server);
            w.inject_input(NetworkHost::Nas(0), to_nas);
        }
        prop_assert_eq!(server.half_open(), 0);
    }

    /// Requests with a valid signature and random contents.
    #[test]
    fn verified_requests_of_any_content_do_not_panic(
        name in vec(any::<u8>(), 1..20), eap in vec(any::<u8>(), 0..300), state in proptest::option::of(vec(any::<u8>(), 0..40)),
        head in 0u8..6, patched in any::<bool>(),
    ) {
        let seed = Seed::new(3);
        let (near, far) = (SocketAddr::new(nas_address(0), 50_000), SocketAddr::new(server_address(0), 1812));
        let mut server = TestMachine::new(AaaServer::new(aaa_config(test_users(seed, 1)), seed.derive_secure_rng("aaa", 0)).unwrap());
        let config = client::RadiusClientConfig::for_server(ServerConfig::new(far, shared_secret()));
        let mut client = TestMachine::new(RadiusClient::new(config, seed.derive_secure_rng("client", 0)).unwrap());
        let mut eap = eap;
        if patched && eap.len() > 4 {
            eap[0] = head;
            let length = eap.len() as u16;
            eap[2..4].copy_from_slice(&length.to_be_bytes());
            eap[4] = head;
        }
        let mut attributes = AttributeList::new();
        attributes.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&eap);
        if let Some(state) = &state {
            attributes.push_bytes(kind::STATE, state).unwrap();
        }
        let code = PacketCode::ACCESS_REQUEST;
        let request = client::RadiusClientCommand::Request { token: 1, target: RequestTarget::Server(0), code, attributes };
        client.handle_command(Instant::ZERO, request).unwrap();
        let mut buf = Vec::new();
        let _sent = client.poll_transmit(&mut buf);
        let path = DatagramPath { socket: radius_socket(0), local: far, remote: near };
        server.handle_input(Instant::ZERO, MachineInput::Datagram { path, data: &buf });
        prop_assert_eq!(server.radius_counters().unwrap().requests, 1);
        let c = server.counters();
        let ends = c.bad_eap + c.unknown_session + c.rejected_unknown_user + c.rejected_name_mismatch;
        prop_assert_eq!(ends + server.half_open() as u64, 1);
    }
}
