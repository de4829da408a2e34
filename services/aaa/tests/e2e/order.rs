//! The order of an access server's event about a verdict and its frame to the station.

use crate::build::{PASSWORD, aaa_config, radius_nas, station_mac, test_users, user_name};
use crate::world::{RADIUS_PORT, nas_address, server_address};
use std::net::SocketAddr;
use usher_aaa::{AaaServer, radius_socket};
use usher_core::{
    DatagramPath, Instant, LinkLayerPortId, Machine, MachineInput, MachineOutput, Seed, SocketId, Transmit,
};
use usher_nas::authenticator::{self, AuthenticatorEvent};
use usher_nas::station::{self, EapCredentials};
use usher_nas::{AccessStation, NasAuthenticator};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NasDecision {
    ReportedEvent(&'static str),
    /// A frame with an EAP packet of this code.
    Sends(u8),
}
use NasDecision::{ReportedEvent, Sends};

/// EAP's Request (RFC 3748 §4.1), Success and Failure (§4.2).
const REQUEST: u8 = 1;
const SUCCESS: u8 = 3;
const FAILURE: u8 = 4;

/// Returns the access server's decisions about a login, in order, up to the station's verdict.
fn observe_decisions(password: &[u8], server_is_on: bool, canned_failure: bool) -> Vec<NasDecision> {
    let seed = Seed::new(7);
    let mut server =
        AaaServer::new(aaa_config(test_users(seed, 1)), seed.derive_secure_rng("aaa", 0)).unwrap();
    let config = authenticator::AuthenticatorConfig { canned_failure, ..radius_nas(1) };
    let mut nas = NasAuthenticator::new(config, seed.derive_secure_rng("nas", 0)).unwrap();
    let mut station =
        AccessStation::new(station::StationConfig::new(station_mac(0)), seed.derive_secure_rng("station", 0));
    let (mut now, mut buf, mut all) = (Instant::ZERO, Vec::new(), Vec::new());
    let there = |socket| {
        let (local, remote) = (server_address(0), SocketAddr::new(nas_address(0), 50_000));
        DatagramPath { socket, local: SocketAddr::new(local, RADIUS_PORT), remote }
    };
    let identity = user_name(0);
    let credentials = EapCredentials::from_password(password);
    station.handle_command(now, station::StationCommand::Authenticate { identity, credentials }).unwrap();
    loop {
        while let Some(output) = station.poll_output(&mut buf) {
            match output {
                MachineOutput::Transmit(_) => {
                    nas.handle_input(now, MachineInput::Frame { port: LinkLayerPortId(0), data: &buf })
                }
                MachineOutput::Event(_) => return all,
                _ => {}
            }
        }
        let mut silent = true;
        while let Some(output) = nas.poll_output(&mut buf) {
            match output {
                MachineOutput::Transmit(Transmit::Frame { .. }) => {
                    silent = false;
                    // After the Ethernet header comes EAPOL's, whose type 0 is an EAP packet.
                    if buf[15] == 0 {
                        all.push(Sends(buf[18]));
                    }
                    station.handle_input(now, MachineInput::Frame { port: LinkLayerPortId(0), data: &buf });
                }
                MachineOutput::Transmit(_) if server_is_on => {
                    server.handle_input(
                        now,
                        MachineInput::Datagram { path: there(radius_socket(0)), data: &buf },
                    );
                }
                MachineOutput::Event(AuthenticatorEvent::Authenticated(_)) => {
                    all.push(ReportedEvent("Authenticated"))
                }
                MachineOutput::Event(AuthenticatorEvent::Rejected { .. }) => {
                    all.push(ReportedEvent("Rejected"))
                }
                MachineOutput::Event(AuthenticatorEvent::Failed { .. }) => all.push(ReportedEvent("Failed")),
                _ => {}
            }
        }
        while let Some(output) = server.poll_output(&mut buf) {
            if let MachineOutput::Transmit(_) = output {
                silent = false;
                let at = there(SocketId::from_number(0));
                let path = DatagramPath { local: at.remote, remote: at.local, ..at };
                nas.handle_input(now, MachineInput::Datagram { path, data: &buf });
            }
        }
        if silent {
            let timers = [station.poll_timeout(), nas.poll_timeout(), server.poll_timeout()];
            now = timers.into_iter().flatten().min().expect("somebody waits for something").max(now);
            station.handle_input(now, MachineInput::Timeout);
            nas.handle_input(now, MachineInput::Timeout);
            server.handle_input(now, MachineInput::Timeout);
        }
    }
}

#[test]
fn the_port_owner_learns_the_verdict_before_the_station() {
    let end = |decided: Vec<NasDecision>| decided[decided.len() - 2..].to_vec();
    assert_eq!(
        end(observe_decisions(PASSWORD, true, false)),
        [ReportedEvent("Authenticated"), Sends(SUCCESS)]
    );
    assert_eq!(end(observe_decisions(b"wrong", true, false)), [ReportedEvent("Rejected"), Sends(FAILURE)]);
    assert_eq!(end(observe_decisions(PASSWORD, false, true)), [ReportedEvent("Failed"), Sends(FAILURE)]);
    // RFC 3579 §2.1: without a verdict the station gets no EAP-Failure.
    assert_eq!(end(observe_decisions(PASSWORD, false, false)), [Sends(REQUEST), ReportedEvent("Failed")]);
}
