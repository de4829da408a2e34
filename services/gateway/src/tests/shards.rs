//! Shards of one gateway. The test does the host's part of their shared state.

use super::local::{PSK_CLIENT, PSK_GATEWAY};
use super::*;
use crate::GatewayConfig;
use usher_access::ServerRecords;

const FIRST: &str = "192.0.2.1";
const SECOND: &str = "192.0.2.2";

/// Two shards, here with an address each, and their pools.
struct ShardPair {
    net: MachineNetwork,
    shards: [NetworkHostHandle<IkeGateway>; 2],
    leases: SharedLeases,
    clients: u64,
}

impl ShardPair {
    fn new(text: &str) -> Self {
        let mut net = MachineNetwork::new(ChannelConfig { delay: millis(10), ..ChannelConfig::default() });
        let seed = Seed::new(7).derive_secure_rng("leases", 0);
        let leases: SharedLeases = Rc::new(RefCell::new(load_config(text).config.create_leases(seed)));
        let shards = [(0, FIRST), (1, SECOND)].map(|(number, address)| {
            let of = Some((ShardIndex { number, shard_count: 2 }, leases.clone()));
            add_gateway(&mut net, address, text, (u64::from(number) + 1, false), of)
        });
        Self { net, shards, leases, clients: 10 }
    }
    /// Adds a client of one of them, with this identity.
    fn add_client(&mut self, of: &str, identity: &str) -> NetworkHostHandle<IkeGateway> {
        self.clients += 1;
        let text = PSK_CLIENT.replace(FIRST, of).replace("ini.test", identity);
        let client = add_gateway(
            &mut self.net,
            &format!("198.51.100.{}", self.clients),
            &text,
            (self.clients, false),
            None,
        );
        self.run_and_relay();
        client
    }
    /// Runs for two seconds and relays events between shards and pools.
    fn run_and_relay(&mut self) {
        for _ in 0..20 {
            self.net.run_for(millis(100));
            for shard in self.shards {
                for (_, event) in self.net.take_events(shard) {
                    match event {
                        GatewayEvent::Released(lease) => self.leases.borrow_mut().release_lease(lease),
                        GatewayEvent::Ike(IkeEvent::Replaces {
                            sa,
                            connection,
                            local,
                            remote,
                            forgotten,
                        }) => {
                            let command =
                                GatewayCommand::Replaced { sa, connection, local, remote, forgotten };
                            for (number, command) in command.split_for_shards(2) {
                                self.net.send_command(self.shards[usize::from(number)], command).unwrap();
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    fn session_counts(&self) -> [usize; 2] {
        self.shards.map(|shard| self.net[shard].session_count())
    }
    fn used_addresses(&self) -> u64 {
        self.leases.borrow().pool_usage().next().unwrap().addresses.0
    }
    fn sa_statuses(&mut self, host: NetworkHostHandle<IkeGateway>) -> Vec<IkeSaStatus> {
        self.net.send_command(host, GatewayCommand::Status { token: 9 }).unwrap();
        self.net.drain_hosts();
        let said = self.net.take_events(host).into_iter().rev().find_map(|(_, event)| match event {
            GatewayEvent::Status { status, .. } => Some(status.sas),
            _ => None,
        });
        said.expect("it says which it has")
    }
}

fn gateway_for_any_peer() -> String {
    PSK_GATEWAY.replace("remote_id = \"ini.test\"\n", "")
}

#[test]
fn shards_give_addresses_of_one_pool_and_no_name_twice() {
    let mut both = ShardPair::new(&gateway_for_any_peer());
    both.add_client(FIRST, "a.test");
    both.add_client(SECOND, "b.test");
    assert_eq!((both.session_counts(), both.used_addresses()), ([1, 1], 2));
    let [first, second] = both.shards.map(|shard| both.sa_statuses(shard).remove(0));
    assert_ne!(first.addresses, second.addresses);
    assert_ne!(first.id, second.id);
    for (number, status) in [(0, &first), (1, &second)] {
        let shard = ShardIndex { number, shard_count: 2 };
        assert_eq!(IkeSaId(status.id).shard_number(), number);
        assert!(shard.owns_spi_octet(status.spis.1.0[0]), "{:?}", status.spis);
        assert!(shard.owns_spi_octet(status.children[0].inbound.to_be_bytes()[0]));
    }
    // The pool has two addresses, and this is the third client.
    let third = both.add_client(SECOND, "c.test");
    assert_eq!((both.session_counts(), both.used_addresses()), ([1, 2], 2));
    assert!(both.sa_statuses(third)[0].addresses.is_empty());
    // After a command to all shards, a freed address of one is available to the other.
    for (number, command) in
        (GatewayCommand::Down { token: 3, selection: IkeSaSelector::Named("a.test".into()) })
            .split_for_shards(2)
    {
        both.net.send_command(both.shards[usize::from(number)], command).unwrap();
    }
    both.run_and_relay();
    // `start` initiates it again after a while, so this one comes first.
    assert_eq!((both.session_counts(), both.used_addresses()), ([0, 2], 1));
    both.add_client(SECOND, "d.test");
    assert_eq!((both.session_counts(), both.used_addresses()), ([0, 3], 2));
}

#[test]
fn a_client_that_returns_to_another_shard_keeps_its_address() {
    let mut both = ShardPair::new(PSK_GATEWAY);
    let old = both.add_client(FIRST, "ini.test");
    let before = both.sa_statuses(both.shards[0])[0].addresses.clone();
    // It dies silently.
    both.net.set_silent(old, true);
    both.add_client(SECOND, "ini.test");
    assert_eq!((both.session_counts(), both.used_addresses()), ([0, 1], 1));
    assert_eq!(both.sa_statuses(both.shards[1])[0].addresses, before);
}

#[test]
fn an_initiator_gone_during_the_lookup_returns_its_lease() {
    let mut both = ShardPair::new(PSK_GATEWAY);
    let (number, sa) = (1, IkeSaId(5 | 1 << 24));
    let lease = usher_access::pool::Lease::Address("10.9.0.10".parse().unwrap());
    let command = GatewayCommand::Leased { sa, leases: vec![lease] };
    let [(to, command)] = command.split_for_shards(2).try_into().unwrap();
    assert_eq!(to, number);
    both.net.send_command(both.shards[1], command).unwrap();
    let said: Vec<GatewayEvent> =
        both.net.take_events(both.shards[1]).into_iter().map(|(_, event)| event).collect();
    assert_eq!(said, [GatewayEvent::Released(lease)]);
}

#[test]
fn what_is_told_goes_to_the_shard_that_it_is_about() {
    let told = |command: GatewayCommand, of| -> Vec<u8> {
        command.split_for_shards(of).into_iter().map(|(number, _)| number).collect()
    };
    let removed = |inbound| GatewayCommand::Removed { inbound, usage: None };
    assert_eq!(told(removed(0x0400_0000), 3), [1]);
    assert_eq!(told(removed(0x0500_0000), 3), [2]);
    assert_eq!(told(removed(0x0500_0000), 1), [0]);
    assert_eq!(told(GatewayCommand::Leave, 3), [0, 1, 2]);
    assert_eq!(told(GatewayCommand::Connect { token: 1, connection: "c".into() }, 3), [0]);
    let carried = |spi: u32| (spi, usher_esp::plane::SaUsage::default());
    let command =
        GatewayCommand::UsageReport(vec![carried(0x0300_0000), carried(0x0500_0000), carried(0x0600_0000)]);
    let parts = command.split_for_shards(3);
    let spis = |command: &GatewayCommand| match command {
        GatewayCommand::UsageReport(pairs) => pairs.iter().map(|(spi, _)| spi >> 24).collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    let parts: Vec<_> = parts.iter().map(|(number, command)| (*number, spis(command))).collect();
    assert_eq!(parts, [(0, vec![3, 6]), (2, vec![5])]);
}

#[test]
fn shards_split_the_limits_and_only_the_first_initiates() {
    let config = load_config(PSK_CLIENT).config;
    let of = |number| config.config_for_shard(ShardIndex { number, shard_count: 3 });
    let (first, last) = (of(0), of(2));
    assert_eq!((first.endpoint.sas, first.endpoint.half_open), (33_334, 3334));
    assert_eq!((first.peers[0].start, last.peers[0].start), (true, false));
    let shares = |config: &GatewayConfig| config.subscribers.shares_pools;
    assert!(shares(&first) && shares(&last) && !shares(&single_shard_config(&config)));
    let records = |config: &GatewayConfig| config.subscribers.server_records;
    assert_eq!((records(&first), records(&last)), (ServerRecords::On, ServerRecords::Never));
    assert!(single_shard_config(&config).peers[0].start);
}

fn single_shard_config(config: &crate::GatewayConfig) -> crate::GatewayConfig {
    config.config_for_shard(ShardIndex::default())
}
