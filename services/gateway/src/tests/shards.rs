//! Gateways that are shards of one: what one for all of them is, the test does as the live host does it.

use super::local::{PSK_CLIENT, PSK_GATEWAY};
use super::*;

const FIRST: &str = "192.0.2.1";
const SECOND: &str = "192.0.2.2";

/// Two shards, which here have an address each, and their pools.
struct Both {
    net: Network,
    shards: [At<Gateway>; 2],
    leases: Shared,
    clients: u64,
}

impl Both {
    fn new(text: &str) -> Self {
        let mut net = Network::new(ChannelConfig { delay: millis(10), ..ChannelConfig::default() });
        let seed = Seed::new(7).secure("leases", 0);
        let leases: Shared = Rc::new(RefCell::new(Leases::new(&loaded(text).config.pools, seed)));
        let shards = [(0, FIRST), (1, SECOND)].map(|(number, address)| {
            let of = Some((Shard { number, of: 2 }, leases.clone()));
            add(&mut net, address, text, (u64::from(number) + 1, false), of)
        });
        Self { net, shards, leases, clients: 10 }
    }
    /// A client of one of them, with this identity.
    fn client(&mut self, of: &str, identity: &str) -> At<Gateway> {
        self.clients += 1;
        let text = PSK_CLIENT.replace(FIRST, of).replace("ini.test", identity);
        let client =
            add(&mut self.net, &format!("198.51.100.{}", self.clients), &text, (self.clients, false), None);
        self.run();
        client
    }
    /// For two seconds; what shards say for others, and of pools, is passed on.
    fn run(&mut self) {
        for _ in 0..20 {
            self.net.run(millis(100));
            for shard in self.shards {
                for (_, event) in self.net.take(shard) {
                    match event {
                        Event::Released(lease) => self.leases.borrow_mut().release(lease),
                        Event::Ike(Ike::Replaces { sa, connection, local, remote, forgotten }) => {
                            let command = Command::Replaced { sa, connection, local, remote, forgotten };
                            for (number, command) in command.for_shards(2) {
                                self.net.command(self.shards[usize::from(number)], command).unwrap();
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    fn sessions(&self) -> [usize; 2] {
        self.shards.map(|shard| self.net[shard].sessions())
    }
    fn used(&self) -> u64 {
        self.leases.borrow().used().next().unwrap().1
    }
    fn status(&mut self, host: At<Gateway>) -> Vec<SaStatus> {
        self.net.command(host, Command::Status { token: 9 }).unwrap();
        self.net.settle();
        let said = self.net.take(host).into_iter().rev().find_map(|(_, event)| match event {
            Event::Status { status, .. } => Some(status.sas),
            _ => None,
        });
        said.expect("it says which it has")
    }
}

fn anybody() -> String {
    PSK_GATEWAY.replace("remote_id = \"ini.test\"\n", "")
}

#[test]
fn shards_give_addresses_of_one_pool_and_no_name_twice() {
    let mut both = Both::new(&anybody());
    both.client(FIRST, "a.test");
    both.client(SECOND, "b.test");
    assert_eq!((both.sessions(), both.used()), ([1, 1], 2));
    let [first, second] = both.shards.map(|shard| both.status(shard).remove(0));
    assert_ne!(first.addresses, second.addresses);
    assert_ne!(first.id, second.id);
    for (number, status) in [(0, &first), (1, &second)] {
        let shard = Shard { number, of: 2 };
        assert_eq!(SaId(status.id).shard(), number);
        assert!(shard.owns(status.spis.1.0[0]), "{:?}", status.spis);
        assert!(shard.owns(status.children[0].inbound.to_be_bytes()[0]));
    }
    // The pool has two addresses, whoever asks for a third.
    let third = both.client(SECOND, "c.test");
    assert_eq!((both.sessions(), both.used()), ([1, 2], 2));
    assert!(both.status(third)[0].addresses.is_empty());
    // Told at once to all, an address of one that ends is free for another shard's.
    for (number, command) in (Command::Down { token: 3, which: Which::Named("a.test".into()) }).for_shards(2)
    {
        both.net.command(both.shards[usize::from(number)], command).unwrap();
    }
    both.run();
    // `start` has it come again after a while, so that this one is first.
    assert_eq!((both.sessions(), both.used()), ([0, 2], 1));
    both.client(SECOND, "d.test");
    assert_eq!((both.sessions(), both.used()), ([0, 3], 2));
}

#[test]
fn who_comes_again_to_another_shard_leaves_nothing_behind_and_keeps_its_address() {
    let mut both = Both::new(PSK_GATEWAY);
    let old = both.client(FIRST, "ini.test");
    let before = both.status(both.shards[0])[0].addresses.clone();
    // It dies without a word.
    both.net.silence(old, true);
    both.client(SECOND, "ini.test");
    assert_eq!((both.sessions(), both.used()), ([0, 1], 1));
    assert_eq!(both.status(both.shards[1])[0].addresses, before);
}

#[test]
fn an_initiator_that_goes_while_an_address_is_looked_for_gives_it_back() {
    let mut both = Both::new(PSK_GATEWAY);
    let (number, sa) = (1, SaId(5 | 1 << 24));
    let lease = usher_access::pool::Lease::Address("10.9.0.10".parse().unwrap());
    let command = Command::Leased { sa, leases: vec![lease] };
    let [(to, command)] = command.for_shards(2).try_into().unwrap();
    assert_eq!(to, number);
    both.net.command(both.shards[1], command).unwrap();
    let said: Vec<Event> = both.net.take(both.shards[1]).into_iter().map(|(_, event)| event).collect();
    assert_eq!(said, [Event::Released(lease)]);
}

#[test]
fn what_is_told_goes_to_the_shard_that_it_is_about() {
    let told = |command: Command, of| -> Vec<u8> {
        command.for_shards(of).into_iter().map(|(number, _)| number).collect()
    };
    let removed = |inbound| Command::Removed { inbound, usage: None };
    assert_eq!(told(removed(0x0400_0000), 3), [1]);
    assert_eq!(told(removed(0x0500_0000), 3), [2]);
    assert_eq!(told(removed(0x0500_0000), 1), [0]);
    assert_eq!(told(Command::Leave, 3), [0, 1, 2]);
    assert_eq!(told(Command::Connect { token: 1, connection: "c".into() }, 3), [0]);
    let carried = |spi: u32| (spi, usher_esp::plane::Usage::default());
    let command = Command::Carried(vec![carried(0x0300_0000), carried(0x0500_0000), carried(0x0600_0000)]);
    let parts = command.for_shards(3);
    let spis = |command: &Command| match command {
        Command::Carried(pairs) => pairs.iter().map(|(spi, _)| spi >> 24).collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    let parts: Vec<_> = parts.iter().map(|(number, command)| (*number, spis(command))).collect();
    assert_eq!(parts, [(0, vec![3, 6]), (2, vec![5])]);
}

#[test]
fn a_shard_has_its_part_of_what_nobody_may_exceed_and_the_first_alone_begins() {
    let config = loaded(PSK_CLIENT).config;
    let of = |number| config.of_shard(Shard { number, of: 3 });
    let (first, last) = (of(0), of(2));
    assert_eq!((first.endpoint.sas, first.endpoint.half_open), (33_334, 3334));
    assert_eq!((first.peers[0].start, last.peers[0].start), (true, false));
    assert!(first.pools_shared && last.pools_shared && !of_one(&config).pools_shared);
    assert!(of_one(&config).peers[0].start);
}

fn of_one(config: &crate::Config) -> crate::Config {
    config.of_shard(Shard::default())
}
