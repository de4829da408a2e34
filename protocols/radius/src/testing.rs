//! A client, a server and the wire between them, for tests.

use crate::attribute::kind;
use crate::client::{self, RadiusClient};
use crate::server::{self, ClientConfig, RadiusServer};
use crate::{AttributeList, PacketCode, SharedSecret};
use std::net::SocketAddr;
use usher_core::bench::TestMachine;
use usher_core::{DatagramPath, Instant, Machine, MachineInput, Seed, SocketId, Transmit};

pub(crate) const NEAR: &str = "10.0.0.1:5000";
pub(crate) const FAR: &str = "10.0.0.2:1812";

pub(crate) fn test_secret() -> SharedSecret {
    SharedSecret::new(b"sixteen octets!!")
}
pub(crate) fn at_seconds(seconds: f64) -> Instant {
    Instant::ZERO + usher_core::Duration::from_secs_f64(seconds)
}
pub(crate) fn test_remote_address(n: u16) -> SocketAddr {
    SocketAddr::new("10.0.0.2".parse().unwrap(), 1812 + n)
}
pub(crate) fn radius_client_with(
    change: impl FnOnce(&mut client::RadiusClientConfig),
) -> TestMachine<RadiusClient> {
    TestMachine::new(bare_client_with(change))
}
pub(crate) fn bare_client_with(change: impl FnOnce(&mut client::RadiusClientConfig)) -> RadiusClient {
    let mut config = client::RadiusClientConfig::for_server(client::ServerConfig::new(
        test_remote_address(0),
        test_secret(),
    ));
    config.retransmission = client::RetransmissionPolicy::Backoff {
        initial: usher_core::Duration::from_secs(2),
        max: usher_core::Duration::from_secs(16),
        max_count: 5,
        max_duration: usher_core::Duration::from_secs(30),
        jitter: 0.0,
    };
    change(&mut config);
    RadiusClient::new(config, Seed::new(1).derive_secure_rng("client", 0)).unwrap()
}
pub(crate) fn radius_server_with(
    change: impl FnOnce(&mut server::RadiusServerConfig),
) -> TestMachine<RadiusServer> {
    let mut config = server::RadiusServerConfig::new(vec![ClientConfig::new(
        "10.0.0.0".parse().unwrap(),
        8,
        test_secret(),
    )]);
    change(&mut config);
    TestMachine::new(RadiusServer::new(config, Seed::new(1).derive_secure_rng("server", 0)).unwrap())
}
pub(crate) fn user_attributes() -> AttributeList {
    let mut a = AttributeList::new();
    a.push_text(kind::USER_NAME, "alice").unwrap().push_eap(&[2, 1, 0, 4]);
    a
}
pub(crate) fn send_request(
    client: &mut RadiusClient,
    now: Instant,
    token: u64,
    code: PacketCode,
    attributes: AttributeList,
) {
    let target = client::RequestTarget::Server(0);
    client
        .handle_command(now, client::RadiusClientCommand::Request { token, target, code, attributes })
        .unwrap();
}
pub(crate) fn sent_datagrams<M: Machine>(machine: &mut TestMachine<M>) -> Vec<(DatagramPath, Vec<u8>)> {
    let (mut all, mut buf) = (Vec::new(), Vec::new());
    while let Some(Transmit::Datagram { path }) = machine.poll_transmit(&mut buf) {
        all.push((path, buf.clone()));
    }
    all
}
pub(crate) fn deliver_datagram<M: Machine>(
    machine: &mut TestMachine<M>,
    now: Instant,
    from: &str,
    data: &[u8],
) {
    let path = DatagramPath {
        socket: SocketId::from_number(0),
        local: FAR.parse().unwrap(),
        remote: from.parse().unwrap(),
    };
    machine.handle_input(now, MachineInput::Datagram { path, data });
}
