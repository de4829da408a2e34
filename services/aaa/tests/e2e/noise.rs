//! Whatever comes from outside, nothing panics and those who mean it are served.

use crate::build::{aaa_config, diameter_server, mac, radius_nas, secret, users, world};
use crate::world::{Who, nas_address, server_address};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::SocketAddr;
use usher_aaa::{AaaServer, DIAMETER_LISTENER, radius_socket};
use usher_core::bench::Tap;
use usher_core::{ConnId, Input, Instant, Machine, Path, PortId, Seed, SocketId, StreamEvent};
use usher_nas::{PAE_GROUP, station};
use usher_radius::attribute::kind;
use usher_radius::client::{self, Client, ServerConfig, Target};
use usher_radius::{Attributes, Code};

/// A frame of EAPOL that may be whole, with an EAP packet that may be one.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    (any::<bool>(), 0u8..6, vec(0u8..24, 0..12), any::<Option<u16>>()).prop_map(|(eapol, kind, body, lie)| {
        let mut frame = [&PAE_GROUP.0[..], &mac(0).0].concat();
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
        let mut w = world(2, radius_nas(1), &[aaa_config(users(Seed::new(1), 2))]);
        w.ask_in_by_password(1);
        for data in &frames {
            w.inject(Who::Nas(0), Input::Frame { port: PortId(0), data });
            w.inject(Who::Station(0), Input::Frame { port: PortId(0), data });
        }
        w.run_until(5);
        let outcome = w.station_events.iter().find(|(i, _, _)| *i == 1).map(|(_, _, e)| e.clone());
        prop_assert_eq!(outcome, Some(station::Event::Success { msk: None }));
    }

    #[test]
    fn octets_of_any_kind_do_not_panic(data in vec(any::<u8>(), 0..200), frame in vec(any::<u8>(), 0..60)) {
        let mut config = diameter_server(0, users(Seed::new(1), 1));
        config.radius = aaa_config(users(Seed::new(1), 1)).radius;
        let mut server = Tap::new(AaaServer::new(config, Seed::new(2).secure("aaa", 0)).unwrap());
        let mut w = world(0, radius_nas(1), &[]);
        let (near, far) = (SocketAddr::new(nas_address(0), 50_000), SocketAddr::new(server_address(0), 1812));
        let listener = DIAMETER_LISTENER;
        let inputs = |socket, conn| [
            Input::Datagram { path: Path { socket, local: far, remote: near }, data: &data },
            Input::Stream { conn, event: StreamEvent::Accepted { listener, remote: near, local: None, certificate: None } },
            Input::Stream { conn, event: StreamEvent::Data(&data) },
            Input::Frame { port: PortId(0), data: &frame },
            Input::Timeout,
        ];
        let conn = ConnId::accepted(0);
        let to_server = inputs(radius_socket(0), ConnId { owner: listener.owner, ..conn });
        for (to_server, to_nas) in to_server.into_iter().zip(inputs(SocketId::own(0), conn)) {
            server.handle(Instant::ZERO, to_server);
            w.inject(Who::Nas(0), to_nas);
        }
        prop_assert_eq!(server.half_open(), 0);
    }

    /// Requests that a true client signed, with whatever in them.
    #[test]
    fn verified_requests_of_any_content_do_not_panic(
        name in vec(any::<u8>(), 1..20), eap in vec(any::<u8>(), 0..300), state in proptest::option::of(vec(any::<u8>(), 0..40)),
        head in 0u8..6, patched in any::<bool>(),
    ) {
        let seed = Seed::new(3);
        let (near, far) = (SocketAddr::new(nas_address(0), 50_000), SocketAddr::new(server_address(0), 1812));
        let mut server = Tap::new(AaaServer::new(aaa_config(users(seed, 1)), seed.secure("aaa", 0)).unwrap());
        let config = client::Config::single(ServerConfig::new(far, secret()));
        let mut client = Tap::new(Client::new(config, seed.secure("client", 0)).unwrap());
        let mut eap = eap;
        if patched && eap.len() > 4 {
            eap[0] = head;
            let length = eap.len() as u16;
            eap[2..4].copy_from_slice(&length.to_be_bytes());
            eap[4] = head;
        }
        let mut attributes = Attributes::new();
        attributes.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&eap);
        if let Some(state) = &state {
            attributes.push_bytes(kind::STATE, state).unwrap();
        }
        let code = Code::ACCESS_REQUEST;
        let request = client::Command::Request { token: 1, target: Target::Server(0), code, attributes };
        client.command(Instant::ZERO, request).unwrap();
        let mut buf = Vec::new();
        let _sent = client.poll_transmit(&mut buf);
        let path = Path { socket: radius_socket(0), local: far, remote: near };
        server.handle(Instant::ZERO, Input::Datagram { path, data: &buf });
        prop_assert_eq!(server.radius_counters().unwrap().requests, 1);
        let c = server.counters();
        let ends = c.bad_eap + c.unknown_session + c.rejected_unknown_user + c.rejected_name_mismatch;
        prop_assert_eq!(ends + server.half_open() as u64, 1);
    }
}
