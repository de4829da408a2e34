//! A base station of 802.16 and a station that it lets in, and then exchanges traffic keys with (IEEE 802.16e-2005, 7.2.2).

use crate::{DELAY, address, secret};
use usher_access::{AaaConfig, NasIdentity, RadiusConfig};
use usher_core::bench::Network;
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, PortId, SecureRng, Seed, SocketId, WallTime};
use usher_crypto::Key;
use usher_eap::method::mschapv2::{Account, Hash};
use usher_eap::method::{Context, UserSecret};
use usher_eap::server;
use usher_nas::authenticator::{self, Authenticator};
use usher_nas::keying::Config;
use usher_nas::station::{self, Credentials, Event, Station};
use usher_nas::{Access, MacAddress, StationId};
use usher_radius::attribute::kind;
use usher_radius::client::{self, ServerConfig};
use usher_radius::server::{ClientConfig, Command, Event as Asked, Server};
use usher_radius::{Attributes, Code};

const PASSWORD: &[u8] = b"open sesame";
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

/// EAP-MSCHAPv2, which gives a key, of one conversation.
fn judge(conversation: &mut Option<server::Server>, request: &Attributes, reply: &mut Attributes) -> Code {
    let (mut packet, mut said) = (Vec::new(), Vec::new());
    request.eap(&mut packet);
    match conversation {
        Some(server) => assert!(server.handle(&packet)),
        None => {
            let secret = UserSecret::Clear(Key::from(PASSWORD));
            let wall = WallTime::from_unix_secs(0);
            let mut rng = SecureRng::from_seed([7; 32]);
            let context = Context { rng: &mut rng, wall, mtu: None, without_extended_master_secret: false };
            let offer = Box::new(Hash::new(&secret).unwrap());
            *conversation = Some(server::Server::new(vec![offer], packet[1], context));
        }
    }
    let server = conversation.as_mut().unwrap();
    assert!(server.poll_transmit(&mut said));
    reply.push_eap(&said);
    match server.poll_event() {
        Some(server::Event::Success { keys, .. }) => {
            reply.push_msk(&keys.unwrap().msk);
            Code::ACCESS_ACCEPT
        }
        Some(server::Event::Failure { .. }) => Code::ACCESS_REJECT,
        _ => {
            reply.push_bytes(kind::STATE, b"one").unwrap();
            Code::ACCESS_CHALLENGE
        }
    }
}

#[test]
fn a_base_station_hears_out_whom_it_exchanges_keys_with() {
    let seed = Seed::new(3);
    let mut net = Network::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
    let radius = RadiusConfig::new(client::Config::single(ServerConfig::new(address(2, 1812), secret())));
    let (access, keying) = (Access::Wimax, Some(Config::default()));
    let config = authenticator::Config::new(NasIdentity::wimax("bs"), AaaConfig::Radius(radius));
    let config = authenticator::Config { access, keying, ..config };
    let base = Authenticator::new(config, seed.secure("base", 0)).unwrap();
    let base = net.add(base, &[address(1, 0).ip()]);
    let config = station::Config { access, keying, ..station::Config::new(MAC) };
    let station = net.add(Station::new(config, seed.secure("station", 0)), &[]);
    net.join(&[(base.number, PortId(0)), (station.number, PortId(0))]);
    let config = usher_radius::server::Config::new(vec![ClientConfig::new(address(1, 0).ip(), 32, secret())]);
    let server = net.add(Server::new(config, seed.secure("server", 0)).unwrap(), &[address(2, 0).ip()]);
    net.bind(server, SocketId::own(0), address(2, 1812));
    let mut conversation = None;
    net.on_event(server, move |Asked::Request(request)| {
        let mut attributes = Attributes::new();
        let code = judge(&mut conversation, &request.attributes, &mut attributes);
        Some((Duration::ZERO, Command::Respond { token: request.token, code, attributes }))
    });
    let (identity, credentials) = (b"ann".to_vec(), Credentials::method(Account::new(b"ann", PASSWORD)));
    net.command(station, station::Command::Authenticate { identity, credentials }).unwrap();
    net.run(Duration::from_secs(1));
    let said: Vec<Event> = net.take(station).into_iter().map(|(_, event)| event).collect();
    assert!(matches!(said[..], [Event::Admitted, Event::Success { msk: Some(_) }]), "{said:?}");
    let keyed = authenticator::Event::Keyed { station: StationId::Frame { port: PortId(0), mac: MAC } };
    assert!(net.take(base).iter().any(|(_, event)| *event == keyed));
    // Challenge, response and the keys; the request before each of the last two.
    let keying = net[base].keying_counters();
    assert_eq!((keying.sent, keying.heard, keying.resent), (3, 2, 0));
    assert_eq!((net[base].counters().keyed, net[base].counters().unknown_pkm), (1, 0));
}
