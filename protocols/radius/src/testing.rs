//! A client and a server, and the wire between them, for the tests.

use crate::attribute::kind;
use crate::client::{self, Client};
use crate::server::{self, ClientConfig, Server};
use crate::{Attributes, Code, Secret};
use std::net::SocketAddr;
use usher_core::bench::Tap;
use usher_core::{Input, Instant, Machine, Path, Seed, SocketId, Transmit};

pub(crate) const NEAR: &str = "10.0.0.1:5000";
pub(crate) const FAR: &str = "10.0.0.2:1812";

pub(crate) fn secret() -> Secret {
    Secret::new(b"sixteen octets!!")
}
pub(crate) fn at(seconds: f64) -> Instant {
    Instant::ZERO + usher_core::Duration::from_secs_f64(seconds)
}
pub(crate) fn far(n: u16) -> SocketAddr {
    SocketAddr::new("10.0.0.2".parse().unwrap(), 1812 + n)
}
pub(crate) fn client_with(change: impl FnOnce(&mut client::Config)) -> Tap<Client> {
    Tap::new(bare_client_with(change))
}
pub(crate) fn bare_client_with(change: impl FnOnce(&mut client::Config)) -> Client {
    let mut config = client::Config::single(client::ServerConfig::new(far(0), secret()));
    config.retransmission = client::Retransmission::Backoff {
        initial: usher_core::Duration::from_secs(2),
        max: usher_core::Duration::from_secs(16),
        max_count: 5,
        max_duration: usher_core::Duration::from_secs(30),
        jitter: 0.0,
    };
    change(&mut config);
    Client::new(config, Seed::new(1).secure("client", 0)).unwrap()
}
pub(crate) fn server_with(change: impl FnOnce(&mut server::Config)) -> Tap<Server> {
    let mut config = server::Config::new(vec![ClientConfig::new("10.0.0.0".parse().unwrap(), 8, secret())]);
    change(&mut config);
    Tap::new(Server::new(config, Seed::new(1).secure("server", 0)).unwrap())
}
pub(crate) fn user() -> Attributes {
    let mut a = Attributes::new();
    a.push_text(kind::USER_NAME, "alice").unwrap().push_eap(&[2, 1, 0, 4]);
    a
}
pub(crate) fn ask(client: &mut Client, now: Instant, token: u64, code: Code, attributes: Attributes) {
    let target = client::Target::Server(0);
    client.command(now, client::Command::Request { token, target, code, attributes }).unwrap();
}
pub(crate) fn sent<M: Machine>(machine: &mut Tap<M>) -> Vec<(Path, Vec<u8>)> {
    let (mut all, mut buf) = (Vec::new(), Vec::new());
    while let Some(Transmit::Datagram { path }) = machine.poll_transmit(&mut buf) {
        all.push((path, buf.clone()));
    }
    all
}
pub(crate) fn arrive<M: Machine>(machine: &mut Tap<M>, now: Instant, from: &str, data: &[u8]) {
    let path = Path { socket: SocketId::own(0), local: FAR.parse().unwrap(), remote: from.parse().unwrap() };
    machine.handle(now, Input::Datagram { path, data });
}
