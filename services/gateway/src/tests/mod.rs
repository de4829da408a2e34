//! Gateways and clients on a network in virtual time, each from a file as it is deployed.

mod aaa;
mod clients;
mod local;
mod names;
mod packets;
mod sessions;
mod shards;
mod wishes;

use crate::config::{Loaded, parse};
use crate::{
    AAA_SLOT, Command, DYNAMIC_SOCKET, Event, Gateway, GatewayJob, IKE_SLOT, Leases, LoginFailure,
    NAT_SOCKET, SOCKET, SaStatus, Which,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use usher_config::Outside;
use usher_core::bench::{At, EPOCH, Network};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Job, Seed};
use usher_crypto::tls::{WallClock, fixtures};
use usher_ike::machine::{ChildSa, EndReason, Event as Ike, SaId, Shard};

pub(super) const GATEWAY: &str = "192.0.2.1";
pub(super) const CLIENT: &str = "198.51.100.7";
pub(super) const SERVER: &str = "203.0.113.1";

/// How long a helper takes for a step of EAP-TLS.
const JUDGING: Duration = Duration::from_millis(100);

pub(super) fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}
pub(super) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}
pub(super) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Files of certificates that are for tests: `gw.pem` is of aaa.usher.test, `user.pem` of station@usher.test.
pub(super) struct Files;

impl Outside for Files {
    fn file(&self, path: &Path) -> Result<String, String> {
        let ([server, server_key, root], [client, client_key, _]) =
            (fixtures::server_as_pem(2), fixtures::client_as_pem(2));
        match path.to_str().unwrap_or_default() {
            "gw.pem" => Ok(server),
            "gw.key" => Ok(server_key),
            "ca.pem" => Ok(root),
            "user.pem" => Ok(client),
            "user.key" => Ok(client_key),
            other => Err(format!("{other} is not there")),
        }
    }
    fn secret(&self, path: &Path) -> Result<String, String> {
        self.file(path)
    }
    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

pub(super) fn loaded(text: &str) -> Loaded {
    let clock = WallClock::at(usher_core::WallTime::UNIX_EPOCH);
    parse("ike.toml", text, &Files, &clock).unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}

/// Gateways and clients with a cable of 10 ms between each two.
pub(super) struct World {
    pub(super) net: Network,
    pub(super) gateway: At<Gateway>,
    seed: u64,
    metered: bool,
}

impl World {
    pub(super) fn new(text: &str) -> Self {
        Self::with(text, false)
    }
    /// Hosts carry packets, and tell of them.
    pub(super) fn metered(text: &str) -> Self {
        Self::with(text, true)
    }
    fn with(text: &str, metered: bool) -> Self {
        let mut net = Network::new(ChannelConfig { delay: millis(10), ..ChannelConfig::default() });
        let gateway = add(&mut net, GATEWAY, text, (1, metered), None);
        net.bind(gateway, DYNAMIC_SOCKET, at(GATEWAY, 3799));
        Self { net, gateway, seed: 1, metered }
    }
    /// A client at an address.
    pub(super) fn client(&mut self, address: &str, text: &str) -> At<Gateway> {
        self.seed += 1;
        add(&mut self.net, address, text, (self.seed, self.metered), None)
    }
    pub(super) fn run(&mut self, time: Duration) {
        self.net.run(time);
    }
    pub(super) fn connect(&mut self, client: At<Gateway>, connection: &str) {
        let command = Command::Connect { token: 1, connection: connection.into() };
        self.net.command(client, command).unwrap();
    }
    pub(super) fn events(&self, host: At<Gateway>) -> Vec<Event> {
        self.net.events(host).iter().map(|(_, event)| event.clone()).collect()
    }
    /// The IKE_SAs that a host has, as it says itself.
    pub(super) fn status(&mut self, host: At<Gateway>) -> Vec<SaStatus> {
        self.net.command(host, Command::Status { token: 99 }).unwrap();
        self.net.settle();
        let events = self.events(host);
        let said = events.into_iter().rev().find_map(|event| match event {
            Event::Status { token: 99, status } => Some(status.sas),
            _ => None,
        });
        said.expect("it says which it has")
    }
    pub(super) fn ended(&self, host: At<Gateway>) -> Vec<EndReason> {
        let reason = |event| match event {
            Event::Ike(Ike::Ended { reason, .. }) => Some(reason),
            _ => None,
        };
        self.events(host).into_iter().filter_map(reason).collect()
    }
    pub(super) fn failures(&self, host: At<Gateway>) -> Vec<LoginFailure> {
        let why = |event| match event {
            Event::LoginFailed { why, .. } => Some(why),
            _ => None,
        };
        self.events(host).into_iter().filter_map(why).collect()
    }
    /// The CHILD_SAs that a host was told to install and not to remove, by the SPI at which they receive.
    pub(super) fn installed(&self, host: At<Gateway>) -> BTreeMap<u32, ChildSa> {
        let mut all = BTreeMap::new();
        for event in self.events(host) {
            match event {
                Event::Ike(Ike::Install { child, .. }) => {
                    assert!(all.insert(child.inbound, *child).is_none(), "an SPI is installed twice");
                }
                Event::Ike(Ike::Remove { inbound, .. }) => {
                    assert!(all.remove(&inbound).is_some(), "what is removed was installed");
                }
                _ => {}
            }
        }
        all
    }
}

/// Pools that several shards share.
type Shared = Rc<RefCell<Leases>>;

/// A gateway at an address; of several, the one of this number, with the pools of all.
fn add(
    net: &mut Network,
    address: &str,
    text: &str,
    (seed, metered): (u64, bool),
    of: Option<(Shard, Shared)>,
) -> At<Gateway> {
    let Loaded { mut config, credentials, .. } = loaded(text);
    config.metered = metered;
    let shared = of.map(|(shard, shared)| {
        config = config.of_shard(shard);
        shared
    });
    let own: IpAddr = address.parse().unwrap();
    for peer in &mut config.peers {
        let peer = std::sync::Arc::make_mut(peer);
        peer.local.set_ip(own);
    }
    let gateway = Gateway::new(config, Seed::new(seed).secure("gateway", 0)).unwrap();
    let host = net.add(gateway, &[own]);
    net.bind(host, SOCKET, SocketAddr::new(own, 500));
    net.bind(host, NAT_SOCKET, SocketAddr::new(own, 4500));
    net.on_job(host, move |job| match job.what {
        GatewayJob::Ike(what) => {
            Some((millis(2), Command::Done(credentials.answer(&Job::new(job.token, what)))))
        }
        GatewayJob::Judge(judgement) => Some((JUDGING, Command::Judged(judgement.done()))),
        GatewayJob::Lease(wish) => {
            let shared = shared.as_ref().expect("one that has its pools to itself asks nobody");
            Some((millis(1), wish.answered(&mut shared.borrow_mut())))
        }
    });
    host
}

#[test]
fn slots_of_both_parts_differ() {
    assert_ne!(IKE_SLOT, AAA_SLOT);
    assert_eq!(SOCKET.owner.enter().map(|(slot, _)| slot), Some(IKE_SLOT));
    assert_eq!(DYNAMIC_SOCKET.owner.enter().map(|(slot, _)| slot), Some(AAA_SLOT));
    assert!(EPOCH.unix_secs() > 0 && Which::Sa(SaId(1).0) != Which::All);
}
