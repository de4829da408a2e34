//! An 802.16 base station accepts a station and exchanges traffic keys with it (IEEE 802.16e-2005, 7.2.2).

use crate::{DELAY, socket_address, test_secret};
use usher_access::{AaaConfig, NasIdentity, RadiusConfig};
use usher_core::bench::MachineNetwork;
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, LinkLayerPortId, SecureRng, Seed, SocketId, WallTime};
use usher_crypto::SecretValue;
use usher_eap::method::mschapv2::{MsChapV2Account, MsChapV2ServerFactory};
use usher_eap::method::{EapMethodContext, UserSecret};
use usher_eap::server;
use usher_nas::authenticator::{self, NasAuthenticator};
use usher_nas::keying::KeyingConfig;
use usher_nas::station::{self, AccessStation, EapCredentials, StationEvent};
use usher_nas::{AccessMedium, MacAddress, StationId};
use usher_radius::attribute::kind;
use usher_radius::client::{self, ServerConfig};
use usher_radius::server::{ClientConfig, RadiusServer, RadiusServerCommand, RadiusServerEvent};
use usher_radius::{AttributeList, PacketCode};

const PASSWORD: &[u8] = b"open sesame";
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

/// Handles a request of one EAP-MSCHAPv2 conversation, which yields a key.
fn answer_mschapv2(
    conversation: &mut Option<server::EapServer>,
    request: &AttributeList,
    reply: &mut AttributeList,
) -> PacketCode {
    let (mut packet, mut said) = (Vec::new(), Vec::new());
    request.read_eap_packet(&mut packet);
    match conversation {
        Some(server) => assert!(server.handle_packet(&packet)),
        None => {
            let secret = UserSecret::Clear(SecretValue::from(PASSWORD));
            let wall = WallTime::from_unix_secs(0);
            let mut rng = SecureRng::from_seed([7; 32]);
            let context =
                EapMethodContext { rng: &mut rng, wall, mtu: None, without_extended_master_secret: false };
            let offer = Box::new(MsChapV2ServerFactory::new(&secret).unwrap());
            *conversation = Some(server::EapServer::new(vec![offer], packet[1], context));
        }
    }
    let server = conversation.as_mut().unwrap();
    assert!(server.poll_transmit(&mut said));
    reply.push_eap(&said);
    match server.poll_event() {
        Some(server::EapServerEvent::Success { keys, .. }) => {
            reply.push_msk(&keys.unwrap().msk);
            PacketCode::ACCESS_ACCEPT
        }
        Some(server::EapServerEvent::Failure { .. }) => PacketCode::ACCESS_REJECT,
        _ => {
            reply.push_bytes(kind::STATE, b"one").unwrap();
            PacketCode::ACCESS_CHALLENGE
        }
    }
}

#[test]
fn a_base_station_hears_out_whom_it_exchanges_keys_with() {
    let seed = Seed::new(3);
    let mut net = MachineNetwork::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
    let radius = RadiusConfig::new(client::RadiusClientConfig::for_server(ServerConfig::new(
        socket_address(2, 1812),
        test_secret(),
    )));
    let (access, keying) = (AccessMedium::Wimax, Some(KeyingConfig::default()));
    let config =
        authenticator::AuthenticatorConfig::new(NasIdentity::for_wimax("bs"), AaaConfig::Radius(radius));
    let config = authenticator::AuthenticatorConfig { access, keying, ..config };
    let base = NasAuthenticator::new(config, seed.derive_secure_rng("base", 0)).unwrap();
    let base = net.add_host(base, &[socket_address(1, 0).ip()]);
    let config = station::StationConfig { access, keying, ..station::StationConfig::new(MAC) };
    let station = net.add_host(AccessStation::new(config, seed.derive_secure_rng("station", 0)), &[]);
    net.join_ports_in_segment(&[(base.number, LinkLayerPortId(0)), (station.number, LinkLayerPortId(0))]);
    let config = usher_radius::server::RadiusServerConfig::new(vec![ClientConfig::new(
        socket_address(1, 0).ip(),
        32,
        test_secret(),
    )]);
    let server = net.add_host(
        RadiusServer::new(config, seed.derive_secure_rng("server", 0)).unwrap(),
        &[socket_address(2, 0).ip()],
    );
    net.bind_socket(server, SocketId::from_number(0), socket_address(2, 1812));
    let mut conversation = None;
    net.on_event(server, move |RadiusServerEvent::Request(request)| {
        let mut attributes = AttributeList::new();
        let code = answer_mschapv2(&mut conversation, &request.attributes, &mut attributes);
        Some((Duration::ZERO, RadiusServerCommand::Respond { token: request.token, code, attributes }))
    });
    let (identity, credentials) =
        (b"ann".to_vec(), EapCredentials::from_method(MsChapV2Account::new(b"ann", PASSWORD)));
    net.send_command(station, station::StationCommand::Authenticate { identity, credentials }).unwrap();
    net.run_for(Duration::from_secs(1));
    let said: Vec<StationEvent> = net.take_events(station).into_iter().map(|(_, event)| event).collect();
    assert!(matches!(said[..], [StationEvent::Admitted, StationEvent::Success { msk: Some(_) }]), "{said:?}");
    let keyed = authenticator::AuthenticatorEvent::Keyed {
        station: StationId::Frame { port: LinkLayerPortId(0), mac: MAC },
    };
    assert!(net.take_events(base).iter().any(|(_, event)| *event == keyed));
    // Sent: challenge, response to the request, and keys. Received: two requests.
    let keying = net[base].keying_counters();
    assert_eq!((keying.sent, keying.heard, keying.resent), (3, 2, 0));
    assert_eq!((net[base].counters().keyed, net[base].counters().unknown_pkm), (1, 0));
}
