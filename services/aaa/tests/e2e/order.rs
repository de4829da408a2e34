//! What an access server says of a verdict and the frame by which the station hears of it: in which order.

use crate::build::{PASSWORD, aaa_config, mac, radius_nas, user_name, users};
use crate::world::{RADIUS_PORT, nas_address, server_address};
use std::net::SocketAddr;
use usher_aaa::{AaaServer, radius_socket};
use usher_core::{Input, Instant, Machine, Output, Path, PortId, Seed, SocketId, Transmit};
use usher_nas::authenticator::{self, Event};
use usher_nas::station::{self, Credentials};
use usher_nas::{Authenticator, Station};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decision {
    Says(&'static str),
    /// A frame with an EAP packet of this code.
    Sends(u8),
}
use Decision::{Says, Sends};

/// EAP's Request (RFC 3748 §4.1), Success and Failure (§4.2).
const REQUEST: u8 = 1;
const SUCCESS: u8 = 3;
const FAILURE: u8 = 4;

/// What the access server decides of one login, in its order, up to the station's verdict.
fn decided(password: &[u8], server_is_on: bool, canned_failure: bool) -> Vec<Decision> {
    let seed = Seed::new(7);
    let mut server = AaaServer::new(aaa_config(users(seed, 1)), seed.secure("aaa", 0)).unwrap();
    let config = authenticator::Config { canned_failure, ..radius_nas(1) };
    let mut nas = Authenticator::new(config, seed.secure("nas", 0)).unwrap();
    let mut station = Station::new(station::Config::new(mac(0)), seed.secure("station", 0));
    let (mut now, mut buf, mut all) = (Instant::ZERO, Vec::new(), Vec::new());
    let there = |socket| {
        let (local, remote) = (server_address(0), SocketAddr::new(nas_address(0), 50_000));
        Path { socket, local: SocketAddr::new(local, RADIUS_PORT), remote }
    };
    let identity = user_name(0);
    let credentials = Credentials::password(password);
    station.command(now, station::Command::Authenticate { identity, credentials }).unwrap();
    loop {
        while let Some(output) = station.poll_output(&mut buf) {
            match output {
                Output::Transmit(_) => nas.handle(now, Input::Frame { port: PortId(0), data: &buf }),
                Output::Event(_) => return all,
                _ => {}
            }
        }
        let mut silent = true;
        while let Some(output) = nas.poll_output(&mut buf) {
            match output {
                Output::Transmit(Transmit::Frame { .. }) => {
                    silent = false;
                    // After the Ethernet header that of EAPOL, whose type 0 is an EAP packet.
                    if buf[15] == 0 {
                        all.push(Sends(buf[18]));
                    }
                    station.handle(now, Input::Frame { port: PortId(0), data: &buf });
                }
                Output::Transmit(_) if server_is_on => {
                    server.handle(now, Input::Datagram { path: there(radius_socket(0)), data: &buf });
                }
                Output::Event(Event::Authenticated(_)) => all.push(Says("Authenticated")),
                Output::Event(Event::Rejected { .. }) => all.push(Says("Rejected")),
                Output::Event(Event::Failed { .. }) => all.push(Says("Failed")),
                _ => {}
            }
        }
        while let Some(output) = server.poll_output(&mut buf) {
            if let Output::Transmit(_) = output {
                silent = false;
                let at = there(SocketId::own(0));
                let path = Path { local: at.remote, remote: at.local, ..at };
                nas.handle(now, Input::Datagram { path, data: &buf });
            }
        }
        if silent {
            let timers = [station.poll_timeout(), nas.poll_timeout(), server.poll_timeout()];
            now = timers.into_iter().flatten().min().expect("somebody waits for something").max(now);
            station.handle(now, Input::Timeout);
            nas.handle(now, Input::Timeout);
            server.handle(now, Input::Timeout);
        }
    }
}

#[test]
fn who_opens_the_port_has_heard_of_the_verdict_when_the_station_does() {
    let end = |decided: Vec<Decision>| decided[decided.len() - 2..].to_vec();
    assert_eq!(end(decided(PASSWORD, true, false)), [Says("Authenticated"), Sends(SUCCESS)]);
    assert_eq!(end(decided(b"wrong", true, false)), [Says("Rejected"), Sends(FAILURE)]);
    assert_eq!(end(decided(PASSWORD, false, true)), [Says("Failed"), Sends(FAILURE)]);
    // RFC 3579 §2.1: what nobody decided, the station does not hear.
    assert_eq!(end(decided(PASSWORD, false, false)), [Sends(REQUEST), Says("Failed")]);
}
