//! Gateways and clients on a test network in virtual time, each from a configuration file as in production.

mod aaa;
mod clients;
mod local;
mod names;
mod packets;
mod sessions;
mod shards;
mod wishes;

use crate::config::{LoadedGatewayConfig, parse};
use crate::{
    AAA_SLOT, AddressLeases, DYNAMIC_SOCKET, GatewayCommand, GatewayEvent, GatewayJob, IKE_SLOT, IkeGateway,
    IkeSaSelector, IkeSaStatus, LoginFailure, NAT_SOCKET, SOCKET,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use usher_config::ConfigEnvironment;
use usher_core::bench::{EPOCH, MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, JobRequest, Seed};
use usher_crypto::tls::{SharedWallClock, fixtures};
use usher_ike::machine::{ChildSa, EndReason, IkeEvent, IkeSaId, ShardIndex};

pub(super) const GATEWAY: &str = "192.0.2.1";
pub(super) const CLIENT: &str = "198.51.100.7";
pub(super) const SERVER: &str = "203.0.113.1";

/// The time of a worker for a step of EAP-TLS.
const JUDGING: Duration = Duration::from_millis(100);

pub(super) fn socket_address(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}
pub(super) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}
pub(super) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Files of test certificates: `gw.pem` is of aaa.usher.test, `user.pem` of station@usher.test.
pub(super) struct CertificateFiles;

impl ConfigEnvironment for CertificateFiles {
    fn read_text(&self, path: &Path) -> Result<String, String> {
        let ([server, server_key, root], [client, client_key, _]) =
            (fixtures::server_chain_pem_texts(2), fixtures::client_chain_pem_texts(2));
        match path.to_str().unwrap_or_default() {
            "gw.pem" => Ok(server),
            "gw.key" => Ok(server_key),
            "ca.pem" => Ok(root),
            "user.pem" => Ok(client),
            "user.key" => Ok(client_key),
            other => Err(format!("{other} is not there")),
        }
    }
    fn read_secret(&self, path: &Path) -> Result<String, String> {
        self.read_text(path)
    }
    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

pub(super) fn load_config(text: &str) -> LoadedGatewayConfig {
    let clock = SharedWallClock::from_time(usher_core::WallTime::UNIX_EPOCH);
    parse("ike.toml", text, &CertificateFiles, &clock).unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}

/// Gateways and clients, with links of 10 ms between each two.
pub(super) struct GatewayTestNetwork {
    pub(super) net: MachineNetwork,
    pub(super) gateway: NetworkHostHandle<IkeGateway>,
    seed: u64,
    metered: bool,
}

impl GatewayTestNetwork {
    pub(super) fn new(text: &str) -> Self {
        Self::with_config(text, false)
    }
    /// The hosts carry packets and report their traffic.
    pub(super) fn with_metering(text: &str) -> Self {
        Self::with_config(text, true)
    }
    fn with_config(text: &str, metered: bool) -> Self {
        let mut net = MachineNetwork::new(ChannelConfig { delay: millis(10), ..ChannelConfig::default() });
        let gateway = add_gateway(&mut net, GATEWAY, text, (1, metered), None);
        net.bind_socket(gateway, DYNAMIC_SOCKET, socket_address(GATEWAY, 3799));
        Self { net, gateway, seed: 1, metered }
    }
    /// Adds a client at an address.
    pub(super) fn add_client(&mut self, address: &str, text: &str) -> NetworkHostHandle<IkeGateway> {
        self.seed += 1;
        add_gateway(&mut self.net, address, text, (self.seed, self.metered), None)
    }
    pub(super) fn run_for(&mut self, time: Duration) {
        self.net.run_for(time);
    }
    pub(super) fn connect(&mut self, client: NetworkHostHandle<IkeGateway>, connection: &str) {
        let command = GatewayCommand::Connect { token: 1, connection: connection.into() };
        self.net.send_command(client, command).unwrap();
    }
    pub(super) fn events(&self, host: NetworkHostHandle<IkeGateway>) -> Vec<GatewayEvent> {
        self.net.recorded_events(host).iter().map(|(_, event)| event.clone()).collect()
    }
    /// The IKE_SAs of a host, by its own status.
    pub(super) fn sa_statuses(&mut self, host: NetworkHostHandle<IkeGateway>) -> Vec<IkeSaStatus> {
        self.net.send_command(host, GatewayCommand::Status { token: 99 }).unwrap();
        self.net.drain_hosts();
        let events = self.events(host);
        let said = events.into_iter().rev().find_map(|event| match event {
            GatewayEvent::Status { token: 99, status } => Some(status.sas),
            _ => None,
        });
        said.expect("it says which it has")
    }
    pub(super) fn end_reasons(&self, host: NetworkHostHandle<IkeGateway>) -> Vec<EndReason> {
        let reason = |event| match event {
            GatewayEvent::Ike(IkeEvent::Ended { reason, .. }) => Some(reason),
            _ => None,
        };
        self.events(host).into_iter().filter_map(reason).collect()
    }
    pub(super) fn login_failures(&self, host: NetworkHostHandle<IkeGateway>) -> Vec<LoginFailure> {
        let why = |event| match event {
            GatewayEvent::LoginFailed { why, .. } => Some(why),
            _ => None,
        };
        self.events(host).into_iter().filter_map(why).collect()
    }
    /// The installed CHILD_SAs of a host, by inbound SPI.
    pub(super) fn installed_children(&self, host: NetworkHostHandle<IkeGateway>) -> BTreeMap<u32, ChildSa> {
        let mut all = BTreeMap::new();
        for event in self.events(host) {
            match event {
                GatewayEvent::Ike(IkeEvent::Install { child, .. }) => {
                    assert!(all.insert(child.inbound, *child).is_none(), "an SPI is installed twice");
                }
                GatewayEvent::Ike(IkeEvent::Remove { inbound, .. }) => {
                    assert!(all.remove(&inbound).is_some(), "what is removed was installed");
                }
                _ => {}
            }
        }
        all
    }
}

/// Pools that several shards share.
type SharedLeases = Rc<RefCell<AddressLeases>>;

/// Adds a gateway at an address: the only one, or a shard with shared pools.
fn add_gateway(
    net: &mut MachineNetwork,
    address: &str,
    text: &str,
    (seed, metered): (u64, bool),
    of: Option<(ShardIndex, SharedLeases)>,
) -> NetworkHostHandle<IkeGateway> {
    let LoadedGatewayConfig { mut config, credentials, .. } = load_config(text);
    config.subscribers.is_metered = metered;
    let shared = of.map(|(shard, shared)| {
        config = config.config_for_shard(shard);
        shared
    });
    let own: IpAddr = address.parse().unwrap();
    for peer in &mut config.peers {
        let peer = std::sync::Arc::make_mut(peer);
        peer.local.set_ip(own);
    }
    let gateway = IkeGateway::new(config, Seed::new(seed).derive_secure_rng("gateway", 0)).unwrap();
    let host = net.add_host(gateway, &[own]);
    net.bind_socket(host, SOCKET, SocketAddr::new(own, 500));
    net.bind_socket(host, NAT_SOCKET, SocketAddr::new(own, 4500));
    net.on_job(host, move |job| match job.job {
        GatewayJob::Ike(what) => {
            Some((millis(2), GatewayCommand::Done(credentials.answer_job(&JobRequest::new(job.token, what)))))
        }
        GatewayJob::EapStep(step) => Some((JUDGING, GatewayCommand::EapStepDone(step.run_eap_step()))),
        GatewayJob::Lease(wish) => {
            let shared = shared.as_ref().expect("one that has its pools to itself asks nobody");
            Some((millis(1), wish.answer_from(&mut shared.borrow_mut())))
        }
    });
    host
}

#[test]
fn slots_of_both_parts_differ() {
    assert_ne!(IKE_SLOT, AAA_SLOT);
    assert_eq!(SOCKET.owner.split_outer_slot().map(|(slot, _)| slot), Some(IKE_SLOT));
    assert_eq!(DYNAMIC_SOCKET.owner.split_outer_slot().map(|(slot, _)| slot), Some(AAA_SLOT));
    assert!(EPOCH.unix_secs() > 0 && IkeSaSelector::Sa(IkeSaId(1).0) != IkeSaSelector::All);
}
