//! A base station that authenticates by PKMv2, over RADIUS.

use crate::build::{aaa_config, radius_nas, station_mac, test_network, test_users};
use crate::world::{AaaTestNetwork, NetworkHost};
use proptest::prelude::*;
use usher_core::bench::TestMachine;
use usher_core::{Duration, Instant, LinkLayerPortId, Machine, MachineInput, Seed, Transmit};
use usher_nas::authenticator::{self, EapRetransmissionConfig};
use usher_nas::station::{self, EapCredentials};
use usher_nas::{
    AccessMedium, AccessStation, ETHERTYPE_PKM, NasAuthenticator, NasIdentity, PORT_TYPE_WIRELESS_80216,
};
use usher_pkm::{AttributeType, Code, Direction, OwnedPkmMessage, PkmMessage};
use usher_radius::RadiusPacket;
use usher_radius::attribute::kind;

const IN: station::StationEvent = station::StationEvent::Success { msk: None };

fn base_station() -> authenticator::AuthenticatorConfig {
    let nas = NasIdentity { address: radius_nas(1).nas.address, ..NasIdentity::for_wimax("bs.example.org") };
    authenticator::AuthenticatorConfig { nas, access: AccessMedium::Wimax, ..radius_nas(1) }
}
fn radius_network(stations: usize, nas: authenticator::AuthenticatorConfig) -> AaaTestNetwork {
    test_network(stations, nas, &[aaa_config(test_users(Seed::new(1), stations))])
}

#[test]
fn a_password_lets_in_as_over_eapol() {
    let mut w = radius_network(1, base_station());
    w.start_password_login(0);
    w.run_until(1);
    assert_eq!(w.station_events, [(0, Instant::ZERO + Duration::from_millis(10), IN)]);
    assert_eq!(w.net[w.nas].counters().authenticated, 1);
    let s = w.net[w.stations[0]].counters();
    assert_eq!((s.malformed, s.not_for_us, s.unknown_pkm, s.stale_pkm, s.bad_eap), (0, 0, 0, 0, 0));
}

#[test]
fn a_station_says_start_again_with_the_same_identifier() {
    let config =
        station::StationConfig { access: AccessMedium::Wimax, ..station::StationConfig::new(station_mac(0)) };
    let mut station =
        TestMachine::new(AccessStation::new(config, Seed::new(1).derive_secure_rng("station", 0)));
    let credentials = EapCredentials::from_password(b"x");
    let authenticate = station::StationCommand::Authenticate { identity: b"me".to_vec(), credentials };
    station.handle_command(Instant::ZERO, authenticate).unwrap();
    let mut said = Vec::new();
    while let Some(at) = station.poll_timeout() {
        let mut buf = Vec::new();
        while station.poll_transmit(&mut buf).is_some() {
            assert_eq!(buf[6..14], [&station_mac(0).0[..], &ETHERTYPE_PKM.to_be_bytes()].concat());
            said.push(OwnedPkmMessage::from(PkmMessage::parse(&buf[14..]).unwrap()));
        }
        station.handle_input(at, MachineInput::Timeout);
    }
    assert_eq!(said, vec![OwnedPkmMessage::new(Direction::Request, Code::EapStart, 1); 3]);
    station.handle_command(Instant::ZERO, station::StationCommand::LogOff).unwrap();
    assert_eq!(station.poll_transmit(&mut Vec::new()), None, "PKM has no word for it");
}

#[test]
fn the_server_is_told_that_the_port_is_802_16() {
    let now = Instant::ZERO;
    let config =
        station::StationConfig { access: AccessMedium::Wimax, ..station::StationConfig::new(station_mac(3)) };
    let mut station =
        TestMachine::new(AccessStation::new(config, Seed::new(1).derive_secure_rng("station", 0)));
    let mut nas = TestMachine::new(
        NasAuthenticator::new(base_station(), Seed::new(1).derive_secure_rng("nas", 0)).unwrap(),
    );
    let credentials = EapCredentials::from_password(b"x");
    let authenticate = station::StationCommand::Authenticate { identity: b"me".to_vec(), credentials };
    station.handle_command(now, authenticate).unwrap();
    let mut buf = Vec::new();
    // EAP-Start, the identity request, the identity.
    for _ in 0..2 {
        assert!(station.poll_transmit(&mut buf).is_some());
        nas.handle_input(now, MachineInput::Frame { port: LinkLayerPortId(5), data: &buf });
        if let Some(Transmit::Frame { port: LinkLayerPortId(5) }) = nas.poll_transmit(&mut buf) {
            station.handle_input(now, MachineInput::Frame { port: LinkLayerPortId(0), data: &buf });
        }
    }
    let packet = RadiusPacket::parse(&buf).unwrap();
    assert_eq!(packet.get(kind::NAS_PORT_TYPE), Some(&PORT_TYPE_WIRELESS_80216.to_be_bytes()[..]));
    assert_eq!(packet.get(kind::CALLING_STATION_ID), Some(&station_mac(3).to_dashed()[..]));
    assert_eq!(packet.get(kind::NAS_PORT), Some(&[0, 0, 0, 5][..]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn messages_of_any_kind_harm_nobody(
        messages in prop::collection::vec((9u8..11, 15u8..24, any::<u8>(), prop::collection::vec(0u8..32, 0..12)), 1..40),
    ) {
        let mut w = radius_network(2, base_station());
        w.start_password_login(1);
        for (direction, code, identifier, rest) in &messages {
            let to = if *direction == 9 { [0x01, 0x80, 0xc2, 0, 0, 3] } else { station_mac(0).0 };
            let message = [&[*direction, *code, *identifier][..], rest].concat();
            let data = [&to[..], &station_mac(0).0, &ETHERTYPE_PKM.to_be_bytes(), &message].concat();
            w.inject_input(NetworkHost::Nas(0), MachineInput::Frame { port: LinkLayerPortId(0), data: &data });
            w.inject_input(NetworkHost::Station(0), MachineInput::Frame { port: LinkLayerPortId(0), data: &data });
        }
        w.run_until(5);
        let outcome = w.station_events.iter().find(|(i, ..)| *i == 1).map(|(_, _, e)| e.clone());
        prop_assert_eq!(outcome, Some(IN));
    }
}

#[test]
fn losses_are_made_up_for() {
    for lost in 0..10 {
        let retransmission = Some(EapRetransmissionConfig::default());
        let mut w =
            radius_network(1, authenticator::AuthenticatorConfig { retransmission, ..base_station() });
        w.set_packet_filter(move |p| p.number != lost);
        w.start_password_login(0);
        w.run_until(100);
        // EAP-Success is not retransmitted. A station that misses it gives up.
        let end = if lost == 9 { station::StationEvent::Timeout } else { IN };
        assert_eq!(w.station_outcomes(), [end], "packet {lost}");
        assert_eq!(w.net[w.stations[0]].counters().stale_pkm, 0);
    }
}

#[test]
fn noise_is_counted_and_harmless() {
    let mut w = radius_network(1, base_station());
    w.start_password_login(0);
    let message = |direction, code| {
        OwnedPkmMessage::new(direction, code, 77).with_attribute(AttributeType::EAP_PAYLOAD, &[2, 1, 0, 4])
    };
    let frame = |to: usize, ethertype: u16, rest: &[u8]| {
        let to = if to == 0 { station_mac(0).0 } else { [0x01, 0x80, 0xc2, 0, 0, 3] };
        [&to[..], &station_mac(9).0, &ethertype.to_be_bytes(), rest].concat()
    };
    let emitted = |m: OwnedPkmMessage| {
        let mut out = Vec::new();
        m.emit(&mut out);
        out
    };
    let (request, response) = (Direction::Request, Direction::Response);
    for to in [0, 1] {
        for bytes in [
            vec![0; 13],
            frame(to, 0x888e, &[2, 1, 0, 0]),
            frame(to, ETHERTYPE_PKM, &[9, 18]),
            frame(to, ETHERTYPE_PKM, &[9, 18, 1, 28, 200, 1]),
            frame(to, ETHERTYPE_PKM, &[10, 99, 1]),
            frame(to, ETHERTYPE_PKM, &emitted(message(request, Code::EapTransfer))),
            frame(to, ETHERTYPE_PKM, &emitted(message(response, Code::EapTransfer))),
            frame(to, ETHERTYPE_PKM, &emitted(message(request, Code::AuthenticatedEapTransfer))),
            frame(to, ETHERTYPE_PKM, &emitted(OwnedPkmMessage::new(response, Code::Pkm2TekInvalid, 0))),
        ] {
            let who = if to == 0 { NetworkHost::Station(0) } else { NetworkHost::Nas(0) };
            w.inject_input(
                who,
                MachineInput::Frame { port: LinkLayerPortId(if to == 0 { 0 } else { 9 }), data: &bytes },
            );
        }
    }
    let n = *w.net[w.nas].counters();
    assert_eq!((n.malformed, n.not_for_us, n.no_session, n.unknown_pkm), (4, 3, 1, 1));
    let s = *w.net[w.stations[0]].counters();
    assert_eq!((s.malformed, s.not_for_us, s.stale_pkm, s.unknown_pkm), (4, 3, 1, 1));
    w.run_until(10);
    assert_eq!(w.station_outcomes(), [IN]);
}
