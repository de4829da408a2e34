//! A Diameter server that keeps the sessions that it lets in, and has a station authenticated again (RFC 6733 §8.3).

use crate::{DELAY, address};
use std::num::NonZeroU16;
use usher_access::{AaaConfig, Connections, DiameterConfig, NasIdentity};
use usher_core::bench::Network;
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, ListenerId, PortId, Seed};
use usher_diameter::ResultCode;
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application, command};
use usher_diameter::node::{self, Node};
use usher_diameter::peer::capabilities::Application;
use usher_nas::authenticator::{self, Authenticator, EndCause, Event};
use usher_nas::station::{self, Credentials, Station};
use usher_nas::{MacAddress, StationId};

const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
const SESSION_TIMEOUT: u64 = 100;

/// How many seconds after its login a station is out that is asked to authenticate itself again so many seconds after it, and
/// is silent.
fn ended(asked: u64) -> u64 {
    let seed = Seed::new(3);
    let mut net = Network::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
    let applications = [Application::auth(application::EAP)];
    let mut own = node::Config::new("nas.example.org", "example.org", &applications);
    own.local.addresses.push(address(1, 0).ip());
    let own = own.connect_to("aaa.example.org", address(2, 3868));
    let mut diameter =
        DiameterConfig::new(own, "example.org".into()).by(Connections::Shared(NonZeroU16::MIN));
    diameter.stateful = true;
    let config =
        authenticator::Config::new(NasIdentity::ethernet("switch"), AaaConfig::Diameter(Box::new(diameter)));
    let config = authenticator::Config { station_timeout: Duration::from_secs(1000), ..config };
    let nas = Authenticator::new(config, seed.secure("switch", 0)).unwrap();
    let nas = net.add(nas, &[address(1, 0).ip()]);
    let station = net.add(Station::new(station::Config::new(MAC), seed.secure("station", 0)), &[]);
    net.join(&[(nas.number, PortId(0)), (station.number, PortId(0))]);
    let mut config = node::Config::new("aaa.example.org", "example.org", &applications);
    config.local.addresses.push(address(2, 0).ip());
    let node = Node::new(config.accept("nas.example.org"), net.now(), seed.secure("aaa", 0));
    let node = net.add(node, &[address(2, 0).ip()]);
    net.listen(node, ListenerId::own(0), address(2, 3868));
    net.on_event(node, |event| {
        let node::Event::Request { token, message, .. } = event else { return None };
        let mut avps = AvpBuf::new();
        if message.header.command == command::DIAMETER_EAP {
            avps.push_u32(codes::AUTH_REQUEST_TYPE, 3)
                .push_u32(codes::SESSION_TIMEOUT, SESSION_TIMEOUT as u32);
        }
        Some((Duration::ZERO, node::Command::Answer { token: *token, result: ResultCode::SUCCESS, avps }))
    });
    net.run(Duration::from_secs(1));
    let (identity, credentials) = (b"ann".to_vec(), Credentials::password(b"open sesame"));
    net.command(station, station::Command::Authenticate { identity, credentials }).unwrap();
    net.run(Duration::from_secs(1));
    let said = net.take(nas);
    let (login, _) = said.iter().find(|(_, event)| matches!(event, Event::Authenticated(_))).unwrap();
    let session_id = net.take(node).into_iter().find_map(|(_, event)| match event {
        node::Event::Request { message, .. } => {
            message.avps.view().get(codes::SESSION_ID)?.utf8().ok().map(str::to_owned)
        }
        _ => None,
    });
    net.silence(station, true);
    net.run_until(*login + Duration::from_secs(asked));
    let request = node::Request {
        token: 1,
        application: application::EAP,
        command: command::RE_AUTH,
        destination_realm: "example.org".into(),
        destination_host: Some("nas.example.org".into()),
        session_id: session_id.unwrap(),
        avps: AvpBuf::new(),
    };
    net.command(node, node::Command::Request(request)).unwrap();
    net.run(Duration::from_secs(200));
    assert_eq!(net[nas].counters().reauthentications, 1);
    let station = StationId::Frame { port: PortId(0), mac: MAC };
    let said = net.take(nas);
    let [(at, event)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(*event, Event::Ended { station, cause: EndCause::SessionTimeout });
    at.since(*login).as_secs()
}

/// A minute is what it has for it, and what is left of its session where that is less.
#[test]
fn who_is_to_be_authenticated_again_and_is_silent_stays_in_no_longer_than_a_minute_or_its_session() {
    assert_eq!(ended(10), 70);
    assert_eq!(ended(60), SESSION_TIMEOUT);
}
