//! The cost of RADIUS: exchanges of EAP-MD5's shape between a client and a server in memory. Prints nanoseconds per
//! request and reply, for both sides together.
//!
//! `cargo run --release -p usher-radius --example radius_cost`

use std::net::{Ipv4Addr, SocketAddr};
use usher_core::bench::TestMachine;
use usher_core::{DatagramPath, Duration, Instant, Machine, MachineInput, Seed, SocketId, Transmit};
use usher_radius::attribute::kind;
use usher_radius::client::{self, RadiusClient};
use usher_radius::server::{self, ClientConfig, RadiusServer};
use usher_radius::{PacketCode, SharedSecret};

const PAIRS: u64 = 400_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let secret = SharedSecret::new(b"sixteen octets!!");
    let (near, far): (SocketAddr, SocketAddr) = ("10.0.0.1:5000".parse()?, "10.0.0.2:1812".parse()?);
    let seed = Seed::new(1);
    let config = client::RadiusClientConfig::for_server(client::ServerConfig::new(far, secret.clone()));
    let mut client = TestMachine::new(RadiusClient::new(config, seed.derive_secure_rng("client", 0))?);
    let config = server::RadiusServerConfig::new(vec![ClientConfig::new(near.ip(), 32, secret)]);
    let mut server = TestMachine::new(RadiusServer::new(config, seed.derive_secure_rng("server", 0))?);
    let (mut buf, mut now, mut octets) = (Vec::new(), Instant::ZERO, 0);
    let begin = std::time::Instant::now();
    for token in 0..PAIRS {
        // One port at 10,000 exchanges a second: a reused identifier replaces its kept reply.
        now += Duration::from_micros(100);
        let challenge = token % 2 == 0;
        let mut attributes = client.take_attributes();
        attributes.push_bytes(kind::USER_NAME, b"station-000001@example.org")?;
        attributes.push_ipv4(kind::NAS_IP_ADDRESS, Ipv4Addr::new(10, 0, 0, 1));
        attributes.push_u32(kind::NAS_PORT, 1);
        attributes.push_eap(&[2; 31]);
        if !challenge {
            attributes.push_bytes(kind::STATE, &[3; 16])?;
        }
        let target = client::RequestTarget::Server(0);
        let code = PacketCode::ACCESS_REQUEST;
        client
            .handle_command(now, client::RadiusClientCommand::Request { token, target, code, attributes })?;
        let _ = client.poll_transmit(&mut buf).ok_or("no request")?;
        octets += buf.len();
        let path = DatagramPath { socket: SocketId::from_number(0), local: far, remote: near };
        server.handle_input(now, MachineInput::Datagram { path, data: &buf });
        let server::RadiusServerEvent::Request(request) = server.poll_event().ok_or("no request event")?;
        let (mut attributes, token) = (request.attributes, request.token);
        attributes.clear();
        let code = if challenge {
            attributes.push_eap(&[1; 30]).push_bytes(kind::STATE, &[3; 16])?;
            PacketCode::ACCESS_CHALLENGE
        } else {
            attributes.push_eap(&[3, 1, 0, 4]).push_bytes(kind::USER_NAME, b"station-000001@example.org")?;
            PacketCode::ACCESS_ACCEPT
        };
        server.handle_command(now, server::RadiusServerCommand::Respond { token, code, attributes })?;
        let _: Transmit = server.poll_transmit(&mut buf).ok_or("no reply")?;
        octets += buf.len();
        let path = DatagramPath { socket: SocketId::from_number(0), local: near, remote: far };
        client.handle_input(now, MachineInput::Datagram { path, data: &buf });
        let client::RadiusClientEvent::Response(_) = client.poll_event().ok_or("no response event")? else {
            return Err("timed out".into());
        };
    }
    let ns = begin.elapsed().as_nanos() as f64;
    println!(
        "{:.0} ns per request/reply pair, both sides, {} octets a packet on average, {} replies kept",
        ns / PAIRS as f64,
        octets as u64 / (2 * PAIRS),
        server.entry_count(),
    );
    Ok(())
}
