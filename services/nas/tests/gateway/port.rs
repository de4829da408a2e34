//! A station at the port of a switch (IEEE 802.1X), and a RADIUS server behind it.

use crate::{DELAY, address, secret};
use usher_access::{AaaConfig, DYNAMIC_SOCKET, DynamicConfig, NasIdentity, RadiusConfig};
use usher_core::bench::{At, Network};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Input, Instant, PortId, Seed, SocketId};
use usher_crypto::digest::md5;
use usher_nas::authenticator::{self, Authenticator, EndCause};
use usher_nas::station::{self, Credentials, Station};
use usher_nas::{MacAddress, StationId};
use usher_radius::attribute::{error_cause, kind};
use usher_radius::client::{self, Client, ServerConfig, Target};
use usher_radius::server::{self, ClientConfig, Server};
use usher_radius::{Attributes, Code};

const PASSWORD: &[u8] = b"open sesame";
const CHALLENGE: [u8; 16] = [7; 16];
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
const ANN: StationId = StationId::Frame { port: PortId(0), mac: MAC };

fn secs(n: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(n)
}

/// EAP-MD5 (RFC 3748 section 5.4), of everybody with one password.
fn judge(request: &Attributes, reply: &mut Attributes) -> Code {
    let mut packet = Vec::new();
    request.eap(&mut packet);
    match &packet[..] {
        [2, identifier, _, _, 1, ..] => {
            let ask = [&[1, identifier.wrapping_add(1), 0, 22, 4, 16][..], &CHALLENGE].concat();
            reply.push_eap(&ask).push_bytes(kind::STATE, b"one").unwrap();
            Code::ACCESS_CHALLENGE
        }
        [2, identifier, _, _, 4, 16, proof @ ..]
            if proof.starts_with(&md5(&[&[*identifier], PASSWORD, &CHALLENGE])) =>
        {
            reply.push_eap(&[3, *identifier, 0, 4]).push_u32(kind::SESSION_TIMEOUT, 100);
            Code::ACCESS_ACCEPT
        }
        [_, identifier, ..] => {
            reply.push_eap(&[4, *identifier, 0, 4]);
            Code::ACCESS_REJECT
        }
        _ => panic!("no EAP"),
    }
}

struct World {
    net: Network,
    station: At<Station>,
    nas: At<Authenticator>,
    /// Who may want a session to end.
    asker: At<Client>,
}

impl World {
    fn new() -> Self {
        let seed = Seed::new(3);
        let mut net = Network::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
        let to_server = client::Config::single(ServerConfig::new(address(2, 1812), secret()));
        let mut radius = RadiusConfig::new(to_server);
        let clients = vec![ClientConfig::new(address(3, 0).ip(), 32, secret())];
        radius.dynamic = Some(Box::new(DynamicConfig { clients, freshness: None }));
        let config = authenticator::Config::new(NasIdentity::ethernet("switch"), AaaConfig::Radius(radius));
        let nas = Authenticator::new(config, seed.secure("switch", 0)).unwrap();
        let nas = net.add(nas, &[address(1, 0).ip()]);
        net.bind(nas, DYNAMIC_SOCKET, address(1, 3799));
        let station = Station::new(station::Config::new(MAC), seed.secure("station", 0));
        let station = net.add(station, &[]);
        net.join(&[(nas.number, PortId(0)), (station.number, PortId(0))]);
        let config = server::Config::new(vec![ClientConfig::new(address(1, 0).ip(), 32, secret())]);
        let server = net.add(Server::new(config, seed.secure("server", 0)).unwrap(), &[address(2, 0).ip()]);
        net.bind(server, SocketId::own(0), address(2, 1812));
        net.on_event(server, |server::Event::Request(request)| {
            let mut attributes = Attributes::new();
            let code = judge(&request.attributes, &mut attributes);
            Some((Duration::ZERO, server::Command::Respond { token: request.token, code, attributes }))
        });
        let to_nas = client::Config::single(ServerConfig::new(address(1, 3799), secret()));
        let asker = net.add(Client::new(to_nas, seed.secure("asker", 0)).unwrap(), &[address(3, 0).ip()]);
        Self { net, station, nas, asker }
    }
    fn log_in(&mut self, password: &[u8]) {
        let (identity, credentials) = (b"ann".to_vec(), Credentials::password(password));
        self.net.command(self.station, station::Command::Authenticate { identity, credentials }).unwrap();
    }
    /// What the station has said by then, and when.
    fn station_at(&mut self, now: u64) -> Vec<(Instant, station::Event)> {
        self.net.run_until(secs(now));
        self.net.take(self.station)
    }
    fn nas(&self) -> &authenticator::Counters {
        self.net[self.nas].counters()
    }
    /// Asks for what a session is to do; the answer, with its Error-Cause.
    fn ask(&mut self, code: Code, station: &str) -> (Code, Option<u32>) {
        let mut attributes = Attributes::new();
        attributes.push_text(kind::CALLING_STATION_ID, station).unwrap();
        let command = client::Command::Request { token: 1, target: Target::Server(0), code, attributes };
        self.net.command(self.asker, command).unwrap();
        self.net.run(Duration::from_secs(1));
        match self.net.take(self.asker).remove(0).1 {
            client::Event::Response(r) => (r.code, r.attributes.get_u32(kind::ERROR_CAUSE)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_station_is_in_until_its_session_timeout_has_passed() {
    let mut w = World::new();
    w.log_in(PASSWORD);
    // Start, identity asked and said, two rounds behind the switch, the challenge and its answer, the end.
    let end = Instant::ZERO + DELAY * 10;
    assert_eq!(w.station_at(50), [(end, station::Event::Success { msk: None })]);
    let said = w.net.take(w.nas);
    let [(at, authenticator::Event::Authenticated(login))] = &said[..] else { panic!("{said:?}") };
    assert_eq!((login.station, login.msk.is_some(), login.rounds), (ANN, false, 2));
    assert_eq!((*at, &login.name[..]), (end - DELAY, &b"ann"[..]));
    assert_eq!((w.nas().authenticated, w.net[w.nas].in_progress()), (1, 0));
    w.net.run_until(secs(200));
    let ended = authenticator::Event::Ended { station: ANN, cause: EndCause::SessionTimeout };
    assert_eq!(w.net.take(w.nas), [(end - DELAY + Duration::from_secs(100), ended)]);
}

#[test]
fn who_is_turned_away_is_not_heard_for_the_quiet_period() {
    let mut w = World::new();
    w.log_in(b"wrong");
    assert_eq!(w.station_at(1), [(Instant::ZERO + DELAY * 10, station::Event::Failure)]);
    let rejected = authenticator::Event::Rejected { station: ANN, name: b"ann".to_vec() };
    assert_eq!(w.net.take(w.nas), [(Instant::ZERO + DELAY * 9, rejected)]);
    w.net.run_until(secs(10));
    // It asks at 10 s, 40 s and 70 s; the quiet period ends after 60.
    w.log_in(PASSWORD);
    assert_eq!(w.station_at(80), [(secs(70) + DELAY * 10, station::Event::Success { msk: None })]);
    let nas = w.nas();
    assert_eq!((nas.rejected, nas.quiet, nas.authenticated), (1, 2, 1));
    assert_eq!(w.net[w.station].counters().starts_repeated, 2);
}

#[test]
fn a_station_that_nobody_answers_gives_up() {
    let mut w = World::new();
    w.net.silence(w.nas, true);
    w.log_in(PASSWORD);
    assert_eq!(w.station_at(300), [(secs(90), station::Event::Timeout)]);
    // And one that is left in the midst of it.
    let mut w = World::new();
    w.log_in(PASSWORD);
    w.net.run_until(Instant::ZERO + DELAY * 4);
    w.net.silence(w.nas, true);
    assert_eq!(
        w.station_at(300),
        [(Instant::ZERO + DELAY * 2 + Duration::from_secs(60), station::Event::Timeout)]
    );
    let counters = w.net[w.station].counters();
    assert_eq!((counters.attempts, counters.timeouts, counters.starts_repeated), (1, 1, 0));
}

#[test]
fn a_server_ends_the_session_that_it_describes_and_no_other() {
    let mut w = World::new();
    w.log_in(PASSWORD);
    w.net.run_until(secs(1));
    let unknown = (Code::DISCONNECT_NAK, Some(error_cause::SESSION_CONTEXT_NOT_FOUND));
    assert_eq!(w.ask(Code::DISCONNECT_REQUEST, "02-00-00-00-00-08"), unknown);
    w.net.take(w.nas);
    assert_eq!(w.ask(Code::DISCONNECT_REQUEST, "02-00-00-00-00-09"), (Code::DISCONNECT_ACK, None));
    let ended = authenticator::Event::Ended { station: ANN, cause: EndCause::Disconnected };
    assert_eq!(w.net.take(w.nas).into_iter().map(|(_, event)| event).collect::<Vec<_>>(), [ended]);
    assert_eq!(w.ask(Code::DISCONNECT_REQUEST, "02-00-00-00-00-09"), unknown);
}

#[test]
fn frames_of_others_are_counted_and_left_alone() {
    let mut w = World::new();
    let start = |to: [u8; 6], from: [u8; 6]| [&to[..], &from, &[0x88, 0x8e, 2, 1, 0, 0]].concat();
    let group = [1, 0x80, 0xc2, 0, 0, 3];
    for frame in [start([2, 0, 0, 0, 0, 7], MAC.0), start(group, [3, 0, 0, 0, 0, 9])] {
        w.net.give(w.nas, Input::Frame { port: PortId(0), data: &frame });
    }
    assert_eq!((w.nas().not_for_us, w.net[w.nas].in_progress()), (2, 0));
    for (n, to) in [(1, group), (2, [2, 0, 0, 0, 0, 1])] {
        w.net.give(w.nas, Input::Frame { port: PortId(0), data: &start(to, [2, 0, 0, 0, 1, n]) });
        assert_eq!(w.net[w.nas].in_progress(), usize::from(n));
    }
}
