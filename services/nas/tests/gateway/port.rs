//! A station at the port of a switch (IEEE 802.1X), with a RADIUS server.

use crate::{DELAY, socket_address, test_secret};
use usher_access::{AaaConfig, DYNAMIC_SOCKET, DynamicAuthConfig, NasIdentity, RadiusConfig};
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Instant, LinkLayerPortId, MachineInput, Seed, SocketId};
use usher_crypto::digest::md5;
use usher_nas::authenticator::{self, NasAuthenticator, SessionEndCause};
use usher_nas::station::{self, AccessStation, EapCredentials};
use usher_nas::{MacAddress, StationId};
use usher_radius::attribute::{error_cause, kind};
use usher_radius::client::{self, RadiusClient, RequestTarget, ServerConfig};
use usher_radius::server::{self, ClientConfig, RadiusServer};
use usher_radius::{AttributeList, PacketCode};

const PASSWORD: &[u8] = b"open sesame";
const CHALLENGE: [u8; 16] = [7; 16];
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
const ANN: StationId = StationId::Frame { port: LinkLayerPortId(0), mac: MAC };

fn time_at(n: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(n)
}

/// Answers EAP-MD5 (RFC 3748 section 5.4), with one password for all users.
fn answer_md5(request: &AttributeList, reply: &mut AttributeList) -> PacketCode {
    let mut packet = Vec::new();
    request.read_eap_packet(&mut packet);
    match &packet[..] {
        [2, identifier, _, _, 1, ..] => {
            let ask = [&[1, identifier.wrapping_add(1), 0, 22, 4, 16][..], &CHALLENGE].concat();
            reply.push_eap(&ask).push_bytes(kind::STATE, b"one").unwrap();
            PacketCode::ACCESS_CHALLENGE
        }
        [2, identifier, _, _, 4, 16, proof @ ..]
            if proof.starts_with(&md5(&[&[*identifier], PASSWORD, &CHALLENGE])) =>
        {
            reply.push_eap(&[3, *identifier, 0, 4]).push_u32(kind::SESSION_TIMEOUT, 100);
            PacketCode::ACCESS_ACCEPT
        }
        [_, identifier, ..] => {
            reply.push_eap(&[4, *identifier, 0, 4]);
            PacketCode::ACCESS_REJECT
        }
        _ => panic!("no EAP"),
    }
}

struct PortTestNetwork {
    net: MachineNetwork,
    station: NetworkHostHandle<AccessStation>,
    nas: NetworkHostHandle<NasAuthenticator>,
    /// The client that may end a session.
    asker: NetworkHostHandle<RadiusClient>,
}

impl PortTestNetwork {
    fn new() -> Self {
        let seed = Seed::new(3);
        let mut net = MachineNetwork::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
        let to_server =
            client::RadiusClientConfig::for_server(ServerConfig::new(socket_address(2, 1812), test_secret()));
        let mut radius = RadiusConfig::new(to_server);
        let clients = vec![ClientConfig::new(socket_address(3, 0).ip(), 32, test_secret())];
        radius.dynamic = Some(Box::new(DynamicAuthConfig { clients, freshness: None }));
        let config = authenticator::AuthenticatorConfig::new(
            NasIdentity::for_ethernet("switch"),
            AaaConfig::Radius(radius),
        );
        let nas = NasAuthenticator::new(config, seed.derive_secure_rng("switch", 0)).unwrap();
        let nas = net.add_host(nas, &[socket_address(1, 0).ip()]);
        net.bind_socket(nas, DYNAMIC_SOCKET, socket_address(1, 3799));
        let station =
            AccessStation::new(station::StationConfig::new(MAC), seed.derive_secure_rng("station", 0));
        let station = net.add_host(station, &[]);
        net.join_ports_in_segment(&[(nas.number, LinkLayerPortId(0)), (station.number, LinkLayerPortId(0))]);
        let config = server::RadiusServerConfig::new(vec![ClientConfig::new(
            socket_address(1, 0).ip(),
            32,
            test_secret(),
        )]);
        let server = net.add_host(
            RadiusServer::new(config, seed.derive_secure_rng("server", 0)).unwrap(),
            &[socket_address(2, 0).ip()],
        );
        net.bind_socket(server, SocketId::from_number(0), socket_address(2, 1812));
        net.on_event(server, |server::RadiusServerEvent::Request(request)| {
            let mut attributes = AttributeList::new();
            let code = answer_md5(&request.attributes, &mut attributes);
            Some((
                Duration::ZERO,
                server::RadiusServerCommand::Respond { token: request.token, code, attributes },
            ))
        });
        let to_nas =
            client::RadiusClientConfig::for_server(ServerConfig::new(socket_address(1, 3799), test_secret()));
        let asker = net.add_host(
            RadiusClient::new(to_nas, seed.derive_secure_rng("asker", 0)).unwrap(),
            &[socket_address(3, 0).ip()],
        );
        Self { net, station, nas, asker }
    }
    fn log_in(&mut self, password: &[u8]) {
        let (identity, credentials) = (b"ann".to_vec(), EapCredentials::from_password(password));
        self.net
            .send_command(self.station, station::StationCommand::Authenticate { identity, credentials })
            .unwrap();
    }
    /// Returns the station's events until `now`, with their times.
    fn station_at(&mut self, now: u64) -> Vec<(Instant, station::StationEvent)> {
        self.net.run_until(time_at(now));
        self.net.take_events(self.station)
    }
    fn nas_counters(&self) -> &authenticator::AuthenticatorCounters {
        self.net[self.nas].counters()
    }
    /// Sends a dynamic authorization request. Returns the reply with its Error-Cause.
    fn send_dynamic_request(&mut self, code: PacketCode, station: &str) -> (PacketCode, Option<u32>) {
        let mut attributes = AttributeList::new();
        attributes.push_text(kind::CALLING_STATION_ID, station).unwrap();
        let command = client::RadiusClientCommand::Request {
            token: 1,
            target: RequestTarget::Server(0),
            code,
            attributes,
        };
        self.net.send_command(self.asker, command).unwrap();
        self.net.run_for(Duration::from_secs(1));
        match self.net.take_events(self.asker).remove(0).1 {
            client::RadiusClientEvent::Response(r) => (r.code, r.attributes.get_u32(kind::ERROR_CAUSE)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_station_is_in_until_its_session_timeout_has_passed() {
    let mut w = PortTestNetwork::new();
    w.log_in(PASSWORD);
    // Start, identity request and response, two round trips to the server, challenge and response, Success.
    let end = Instant::ZERO + DELAY * 10;
    assert_eq!(w.station_at(50), [(end, station::StationEvent::Success { msk: None })]);
    let said = w.net.take_events(w.nas);
    let [(at, authenticator::AuthenticatorEvent::Authenticated(login))] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!((login.station, login.msk.is_some(), login.rounds), (ANN, false, 2));
    assert_eq!((*at, &login.name[..]), (end - DELAY, &b"ann"[..]));
    assert_eq!((w.nas_counters().authenticated, w.net[w.nas].active_session_count()), (1, 0));
    w.net.run_until(time_at(200));
    let ended =
        authenticator::AuthenticatorEvent::Ended { station: ANN, cause: SessionEndCause::SessionTimeout };
    assert_eq!(w.net.take_events(w.nas), [(end - DELAY + Duration::from_secs(100), ended)]);
}

#[test]
fn who_is_turned_away_is_not_heard_for_the_quiet_period() {
    let mut w = PortTestNetwork::new();
    w.log_in(b"wrong");
    assert_eq!(w.station_at(1), [(Instant::ZERO + DELAY * 10, station::StationEvent::Failure)]);
    let rejected = authenticator::AuthenticatorEvent::Rejected { station: ANN, name: b"ann".to_vec() };
    assert_eq!(w.net.take_events(w.nas), [(Instant::ZERO + DELAY * 9, rejected)]);
    w.net.run_until(time_at(10));
    // The station starts at 10 s, 40 s and 70 s; the quiet period ends after 60 s.
    w.log_in(PASSWORD);
    assert_eq!(w.station_at(80), [(time_at(70) + DELAY * 10, station::StationEvent::Success { msk: None })]);
    let nas = w.nas_counters();
    assert_eq!((nas.rejected, nas.quiet, nas.authenticated), (1, 2, 1));
    assert_eq!(w.net[w.station].counters().starts_repeated, 2);
}

#[test]
fn a_station_that_nobody_answers_gives_up() {
    let mut w = PortTestNetwork::new();
    w.net.set_silent(w.nas, true);
    w.log_in(PASSWORD);
    assert_eq!(w.station_at(300), [(time_at(90), station::StationEvent::Timeout)]);
    // The NAS falls silent during the login.
    let mut w = PortTestNetwork::new();
    w.log_in(PASSWORD);
    w.net.run_until(Instant::ZERO + DELAY * 4);
    w.net.set_silent(w.nas, true);
    assert_eq!(
        w.station_at(300),
        [(Instant::ZERO + DELAY * 2 + Duration::from_secs(60), station::StationEvent::Timeout)]
    );
    let counters = w.net[w.station].counters();
    assert_eq!((counters.attempts, counters.timeouts, counters.starts_repeated), (1, 1, 0));
}

#[test]
fn a_server_ends_the_session_that_it_describes_and_no_other() {
    let mut w = PortTestNetwork::new();
    w.log_in(PASSWORD);
    w.net.run_until(time_at(1));
    let unknown = (PacketCode::DISCONNECT_NAK, Some(error_cause::SESSION_CONTEXT_NOT_FOUND));
    assert_eq!(w.send_dynamic_request(PacketCode::DISCONNECT_REQUEST, "02-00-00-00-00-08"), unknown);
    w.net.take_events(w.nas);
    assert_eq!(
        w.send_dynamic_request(PacketCode::DISCONNECT_REQUEST, "02-00-00-00-00-09"),
        (PacketCode::DISCONNECT_ACK, None)
    );
    let ended =
        authenticator::AuthenticatorEvent::Ended { station: ANN, cause: SessionEndCause::Disconnected };
    assert_eq!(w.net.take_events(w.nas).into_iter().map(|(_, event)| event).collect::<Vec<_>>(), [ended]);
    assert_eq!(w.send_dynamic_request(PacketCode::DISCONNECT_REQUEST, "02-00-00-00-00-09"), unknown);
}

#[test]
fn frames_of_others_are_counted_and_left_alone() {
    let mut w = PortTestNetwork::new();
    let start = |to: [u8; 6], from: [u8; 6]| [&to[..], &from, &[0x88, 0x8e, 2, 1, 0, 0]].concat();
    let group = [1, 0x80, 0xc2, 0, 0, 3];
    for frame in [start([2, 0, 0, 0, 0, 7], MAC.0), start(group, [3, 0, 0, 0, 0, 9])] {
        w.net.inject_input(w.nas, MachineInput::Frame { port: LinkLayerPortId(0), data: &frame });
    }
    assert_eq!((w.nas_counters().not_for_us, w.net[w.nas].active_session_count()), (2, 0));
    for (n, to) in [(1, group), (2, [2, 0, 0, 0, 0, 1])] {
        w.net.inject_input(
            w.nas,
            MachineInput::Frame { port: LinkLayerPortId(0), data: &start(to, [2, 0, 0, 0, 1, n]) },
        );
        assert_eq!(w.net[w.nas].active_session_count(), usize::from(n));
    }
}
