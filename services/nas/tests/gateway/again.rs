//! A Diameter server with session state that requests reauthentication of a station (RFC 6733 §8.3).

use crate::{DELAY, socket_address};
use std::num::NonZeroU16;
use usher_access::{AaaConfig, DiameterConfig, DiameterConnections, NasIdentity};
use usher_core::bench::MachineNetwork;
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, LinkLayerPortId, ListenerId, Seed};
use usher_diameter::ResultCode;
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application, command};
use usher_diameter::node::{self, DiameterNode};
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_nas::authenticator::{self, AuthenticatorEvent, NasAuthenticator, SessionEndCause};
use usher_nas::station::{self, AccessStation, EapCredentials};
use usher_nas::{MacAddress, StationId};

const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
const SESSION_TIMEOUT: u64 = 100;

/// Returns when the session of a silent station ends, in seconds after its login. The server requests
/// reauthentication after `asked` seconds.
fn logout_delay(asked: u64) -> u64 {
    let seed = Seed::new(3);
    let mut net = MachineNetwork::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
    let applications = [DiameterApplication::for_authentication(application::EAP)];
    let mut own = node::DiameterNodeConfig::new("nas.example.org", "example.org", &applications);
    own.local.addresses.push(socket_address(1, 0).ip());
    let own = own.connect_to("aaa.example.org", socket_address(2, 3868));
    let mut diameter = DiameterConfig::new(own, "example.org".into())
        .with_connections(DiameterConnections::Shared(NonZeroU16::MIN));
    diameter.stateful = true;
    let config = authenticator::AuthenticatorConfig::new(
        NasIdentity::for_ethernet("switch"),
        AaaConfig::Diameter(Box::new(diameter)),
    );
    let config = authenticator::AuthenticatorConfig { station_timeout: Duration::from_secs(1000), ..config };
    let nas = NasAuthenticator::new(config, seed.derive_secure_rng("switch", 0)).unwrap();
    let nas = net.add_host(nas, &[socket_address(1, 0).ip()]);
    let station = net.add_host(
        AccessStation::new(station::StationConfig::new(MAC), seed.derive_secure_rng("station", 0)),
        &[],
    );
    net.join_ports_in_segment(&[(nas.number, LinkLayerPortId(0)), (station.number, LinkLayerPortId(0))]);
    let mut config = node::DiameterNodeConfig::new("aaa.example.org", "example.org", &applications);
    config.local.addresses.push(socket_address(2, 0).ip());
    let node =
        DiameterNode::new(config.accept_from("nas.example.org"), net.now(), seed.derive_secure_rng("aaa", 0));
    let node = net.add_host(node, &[socket_address(2, 0).ip()]);
    net.add_listener(node, ListenerId::from_number(0), socket_address(2, 3868));
    net.on_event(node, |event| {
        let node::DiameterNodeEvent::Request { token, message, .. } = event else { return None };
        let mut avps = AvpBuf::new();
        if message.header.command == command::DIAMETER_EAP {
            avps.push_u32(codes::AUTH_REQUEST_TYPE, 3)
                .push_u32(codes::SESSION_TIMEOUT, SESSION_TIMEOUT as u32);
        }
        Some((
            Duration::ZERO,
            node::DiameterNodeCommand::Answer { token: *token, result: ResultCode::SUCCESS, avps },
        ))
    });
    net.run_for(Duration::from_secs(1));
    let (identity, credentials) = (b"ann".to_vec(), EapCredentials::from_password(b"open sesame"));
    net.send_command(station, station::StationCommand::Authenticate { identity, credentials }).unwrap();
    net.run_for(Duration::from_secs(1));
    let said = net.take_events(nas);
    let (login, _) =
        said.iter().find(|(_, event)| matches!(event, AuthenticatorEvent::Authenticated(_))).unwrap();
    let session_id = net.take_events(node).into_iter().find_map(|(_, event)| match event {
        node::DiameterNodeEvent::Request { message, .. } => {
            message.avps.as_sequence().get(codes::SESSION_ID)?.as_utf8().ok().map(str::to_owned)
        }
        _ => None,
    });
    net.set_silent(station, true);
    net.run_until(*login + Duration::from_secs(asked));
    let request = node::DiameterRequest {
        token: 1,
        application: application::EAP,
        command: command::RE_AUTH,
        destination_realm: "example.org".into(),
        destination_host: Some("nas.example.org".into()),
        session_id: session_id.unwrap(),
        avps: AvpBuf::new(),
    };
    net.send_command(node, node::DiameterNodeCommand::Request(request)).unwrap();
    net.run_for(Duration::from_secs(200));
    assert_eq!(net[nas].counters().reauthentications, 1);
    let station = StationId::Frame { port: LinkLayerPortId(0), mac: MAC };
    let said = net.take_events(nas);
    let [(at, event)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(*event, AuthenticatorEvent::Ended { station, cause: SessionEndCause::SessionTimeout });
    at.duration_since(*login).as_secs()
}

/// The station has a minute for it, or the rest of its session if that is less.
#[test]
fn a_silent_station_stays_at_most_a_minute_or_its_session() {
    assert_eq!(logout_delay(10), 70);
    assert_eq!(logout_delay(60), SESSION_TIMEOUT);
}
