//! A concentrator from a file as deployed, hosts on an Ethernet, and Usher's AAA server, in virtual time.

mod diameter;
mod hostile;
mod identity;
mod local;
mod many;
mod radius;

use crate::config::{LoadedConcentratorConfig, parse};
use crate::track::SessionLogRecord;
use crate::{
    AAA_SLOT, AccessConcentrator, AccessConcentratorCommand, AccessConcentratorEvent, ConcentratorJob,
    LoginFailure, PppoeSessionSelector, SessionEntry, SessionStatus,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use usher_config::EmptyConfigEnvironment;
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, JobRequest, LinkLayerPortId, MachineInput, SecureRng, WallTime};
use usher_crypto::tls::SharedWallClock;
use usher_eap::method::md5::EapMd5Password;
use usher_ppp::auth::{AuthenticationProtocol, PppCredentials};
use usher_ppp::client::{ClientCommand, ClientConfig, ClientEvent, PppoeClient};
use usher_ppp::pppoe::MacAddress;
use usher_ppp::{EndReason, NegotiatedAddresses};

pub(super) const PORT: LinkLayerPortId = LinkLayerPortId(0);
pub(super) const AC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xac]);
pub(super) const CONCENTRATOR: &str = "192.0.2.1";
pub(super) const SERVER: &str = "203.0.113.1";

pub(super) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
pub(super) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}
pub(super) fn socket_address(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}
pub(super) fn host_mac(n: u16) -> MacAddress {
    let [high, low] = n.to_be_bytes();
    MacAddress([2, 0, 0, 1, high, low])
}

/// Local users, IPv4 and IPv6, a log.
pub(super) const LOCAL: &str = r#"
[listen]
interfaces = ["eth1"]
[service]
name = "campus"
address = "10.0.0.1"
pools = ["students"]
prefix_pool = "links"
delegated_pool = "sites"
dns = ["10.0.0.53", "2001:db8::53"]
[authentication]
protocols = ["eap", "mschapv2", "chap", "pap"]
[[user]]
name = "ann"
password = "a long password"
[[user]]
name = "bob"
password = "another password"
[[pool]]
name = "students"
ranges = ["10.0.0.0/28"]
[[pool]]
name = "links"
ranges = ["2001:db8:1::/48/64"]
[[pool]]
name = "sites"
ranges = ["2001:db8:ff00::/40/56"]
[[rate]]
name = "default"
down = "100 Mb/s"
[tracking]
"#;

pub(super) fn load_config(text: &str) -> LoadedConcentratorConfig {
    let mut loaded =
        parse("pppoe.toml", text, &EmptyConfigEnvironment, &SharedWallClock::from_time(WallTime::UNIX_EPOCH))
            .unwrap_or_else(|faults| panic!("{faults}\n{text}"));
    loaded.config.ppp.ports[0].address = AC;
    loaded
}

/// The disk of the log.
#[derive(Default)]
pub(super) struct MockDisk {
    pub(super) lines: Vec<String>,
    /// True if writes fail.
    pub(super) full: bool,
    /// The time to write a line.
    pub(super) line_delay: Duration,
}

pub(super) struct ConcentratorTestNetwork {
    pub(super) net: MachineNetwork,
    pub(super) ac: NetworkHostHandle<AccessConcentrator>,
    pub(super) clients: Vec<NetworkHostHandle<PppoeClient>>,
    pub(super) disk: Rc<RefCell<MockDisk>>,
    /// The number of stored lines at the first installation of each session.
    pub(super) line_counts_at_install: Rc<RefCell<Vec<usize>>>,
}

/// Returns the configuration of a host.
pub(super) fn client_config(
    n: u16,
    protocol: AuthenticationProtocol,
    name: &str,
    password: &str,
) -> ClientConfig {
    let credentials = PppCredentials {
        name: name.as_bytes().to_vec(),
        password: password.as_bytes().into(),
        protocols: vec![protocol],
        eap_methods: Arc::new([Box::new(EapMd5Password::new(password.as_bytes()))]),
    };
    ClientConfig { delegation: true, ..ClientConfig::new(PORT, host_mac(n), credentials) }
}
pub(super) fn ann_client(n: u16) -> ClientConfig {
    client_config(n, AuthenticationProtocol::Chap, "ann", "a long password")
}

impl ConcentratorTestNetwork {
    pub(super) fn new(text: &str, clients: Vec<ClientConfig>) -> Self {
        Self::on_one_ethernet(load_config(text), clients)
    }
    /// Creates a network with all hosts on one Ethernet.
    pub(super) fn on_one_ethernet(loaded: LoadedConcentratorConfig, clients: Vec<ClientConfig>) -> Self {
        let mut world = Self::unconnected(loaded, clients);
        let ports: Vec<_> = (0..=world.clients.len()).map(|number| (number, PORT)).collect();
        world.net.join_ports_in_segment(&ports);
        world
    }
    /// Creates a network with no Ethernet yet.
    pub(super) fn unconnected(loaded: LoadedConcentratorConfig, clients: Vec<ClientConfig>) -> Self {
        let channel = ChannelConfig { delay: millis(2), ..ChannelConfig::default() };
        let mut net = MachineNetwork::new(channel);
        let ac = AccessConcentrator::new(loaded.config, SecureRng::from_seed([9; 32])).unwrap();
        let ac = net.add_host(ac, &[CONCENTRATOR.parse().unwrap()]);
        let clients: Vec<_> = (clients.into_iter().zip(1_u64..))
            .map(|(config, seed)| {
                let mut bytes = [0; 32];
                bytes[..8].copy_from_slice(&seed.to_be_bytes());
                net.add_host(PppoeClient::new(config, SecureRng::from_seed(bytes)), &[])
            })
            .collect();
        let disk = Rc::new(RefCell::new(MockDisk { line_delay: millis(4), ..MockDisk::default() }));
        let keeps = disk.clone();
        net.on_job(ac, move |JobRequest { token, job: what, .. }| match what {
            ConcentratorJob::Log(record) => {
                let mut disk = keeps.borrow_mut();
                let kept = !disk.full;
                if kept {
                    disk.lines.push(record.to_line());
                }
                Some((disk.line_delay, AccessConcentratorCommand::Logged { token, is_stored: kept }))
            }
            ConcentratorJob::Translation(_) => None,
        });
        let kept_at_install = Rc::new(RefCell::new(Vec::new()));
        let (keeps, notes) = (disk.clone(), kept_at_install.clone());
        net.on_event(ac, move |event| {
            match event {
                AccessConcentratorEvent::Log(record) => keeps.borrow_mut().lines.push(record.to_line()),
                AccessConcentratorEvent::Install(_) => {
                    let begun = keeps.borrow().lines.iter().filter(|line| line.contains("\"begin\"")).count();
                    notes.borrow_mut().push(begun);
                }
                _ => {}
            }
            None
        });
        Self { net, ac, clients, disk, line_counts_at_install: kept_at_install }
    }
    pub(super) fn connect_client(&mut self, n: usize) {
        self.net.send_command(self.clients[n], ClientCommand::Connect).unwrap();
    }
    /// Connects a host, and runs the network for some time.
    pub(super) fn connect_and_wait(&mut self, n: usize) {
        self.connect_client(n);
        self.net.run_for(secs(3));
    }
    pub(super) fn events(&self) -> impl Iterator<Item = &AccessConcentratorEvent> {
        self.net.recorded_events(self.ac).iter().map(|(_, event)| event)
    }
    /// Returns the data plane's entries by session number.
    pub(super) fn installed_sessions(&self) -> BTreeMap<u64, SessionEntry> {
        let mut all = BTreeMap::new();
        for event in self.events() {
            match event {
                AccessConcentratorEvent::Install(entry) => drop(all.insert(entry.id, (**entry).clone())),
                AccessConcentratorEvent::Remove { id, .. } => drop(all.remove(id)),
                _ => {}
            }
        }
        all
    }
    pub(super) fn session_statuses(&mut self) -> Vec<SessionStatus> {
        self.net.send_command(self.ac, AccessConcentratorCommand::Status { token: 99 }).unwrap();
        self.net.drain_hosts();
        let said = self.events().filter_map(|event| match event {
            AccessConcentratorEvent::Status { token: 99, status } => Some(status.sessions.clone()),
            _ => None,
        });
        said.last().expect("it says which it has")
    }
    pub(super) fn login_failures(&self) -> Vec<LoginFailure> {
        let why = self.events().filter_map(|event| match event {
            AccessConcentratorEvent::LoginFailed { why, .. } => Some(*why),
            _ => None,
        });
        why.collect()
    }
    pub(super) fn end_reasons(&self) -> Vec<String> {
        let reasons = self.events().filter_map(|event| match event {
            AccessConcentratorEvent::Ended { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        reasons.collect()
    }
    pub(super) fn counter_value(&self, name: &str) -> u64 {
        let (own, subscribers, ppp) = self.net[self.ac].counters();
        let all = own.iter().chain(subscribers.iter()).chain(ppp.iter());
        all.filter(|(known, _)| *known == name).map(|(_, n)| n).sum()
    }
    pub(super) fn client_networks(&self, n: usize) -> Vec<NegotiatedAddresses> {
        let events = self.net.recorded_events(self.clients[n]).iter();
        let all = events.filter_map(|(_, event)| match event {
            ClientEvent::Install { network, .. } => Some(network.clone()),
            _ => None,
        });
        all.collect()
    }
    pub(super) fn client_end_reasons(&self, n: usize) -> Vec<EndReason> {
        let events = self.net.recorded_events(self.clients[n]).iter();
        let all = events.filter_map(|(_, event)| match event {
            ClientEvent::Ended { reason, .. } => Some(*reason),
            _ => None,
        });
        all.collect()
    }
    pub(super) fn close_sessions(&mut self, which: PppoeSessionSelector) -> usize {
        self.net
            .send_command(self.ac, AccessConcentratorCommand::Close { token: 5, selection: which })
            .unwrap();
        self.net.run_for(secs(1));
        let said = self.events().filter_map(|event| match event {
            AccessConcentratorEvent::SessionsNotified { token: 5, sessions } => Some(*sessions),
            _ => None,
        });
        said.last().unwrap()
    }
    pub(super) fn log_records(&self) -> Vec<SessionLogRecord> {
        let disk = self.disk.borrow();
        disk.lines.iter().map(|line| SessionLogRecord::parse(line).unwrap()).collect()
    }
}
