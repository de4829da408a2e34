//! What netfilter does for hosts of sessions, in one table of its own: their port 113 is answered by our IDENT server, and their
//! addresses are translated, to the way out's address or to a block of ports of an address (RFC 7422).
//!
//! ```text
//! elsewhere ─ TCP to 10.0.0.1:113 ──▶ redirect ──▶ our IDENT server             [NAT method]
//! 10.0.0.1:40000 ──▶ masquerade ──▶ 203.0.113.1:61234 ──▶ elsewhere            [masquerade method: conntrack knows whose it is]
//! 10.0.0.1:40000 ──▶ 203.0.113.1:1024-2047 ──▶ elsewhere                       [port blocks: the port says whose it is]
//! ```
//! Rules are written by nft(8), which makes all of a change or nothing of it. The table is gone with [`Netfilter`]; one that a
//! killed program has left is replaced by the next.

pub mod conntrack;
mod follow;

pub use follow::{Change, Follower};

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// What the table is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Its name.
    pub table: String,
    /// The plane's device: what goes there goes to another host, and keeps its source. With `*` at its end it is each device whose
    /// name begins so.
    pub device: String,
    /// On which port of this system our IDENT server answers for hosts.
    pub ident_port: u16,
}

/// What a host's packets have as source elsewhere. What the kernel cannot translate, since it is part of no connection, does not leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Translation {
    /// An address of the interface by which they leave, which the kernel chooses, and a port of its choice.
    Masquerade,
    /// This address, and of TCP and UDP these ports. Of other protocols ICMP alone goes out: the ports of one that has some would be those
    /// of somebody else's block.
    Block {
        /// The address; the system has to have it.
        external: Ipv4Addr,
        /// The ports.
        ports: RangeInclusive<u16>,
    },
}

/// What is done for an address or prefix of a host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// TCP to its port 113 is answered by our IDENT server.
    pub ident: bool,
    /// Its IPv4 address is translated; a network's are by masquerade alone.
    pub translation: Option<Translation>,
}

/// Why a rule is not there.
#[derive(Debug, thiserror::Error)]
pub enum NetfilterError {
    /// The program.
    #[error("nft(8) cannot be run: {0}; install Debian's nftables")]
    Program(std::io::Error),
    /// What it says.
    #[error("netfilter refuses: {0}")]
    Refused(String),
    /// A name that is none.
    #[error("\"{0}\" is no name of a table or device: take letters, digits, \"-\", \"_\" and \".\"")]
    Name(String),
    /// A translation of what has none.
    #[error(
        "{0}/{1} cannot be translated: only networks of IPv4 can, and only a single address to a block of ports"
    )]
    Untranslatable(IpAddr, u8),
    /// Ports that are none.
    #[error("{0} to {1} is no block of ports: take 1 to 65535, the lower first")]
    Ports(u16, u16),
    /// Connections of hosts that are gone.
    #[error(
        "the kernel does not forget connections of hosts that are gone: {0}; this needs CAP_NET_ADMIN and nf_conntrack_netlink"
    )]
    Forget(std::io::Error),
    /// Rules that are not there.
    #[error("{0}/{1} has no rules")]
    Unknown(IpAddr, u8),
}

type Network = (IpAddr, u8);

/// The table, until it is dropped.
#[derive(Debug)]
pub struct Netfilter {
    config: Config,
    installed: Mutex<BTreeMap<Network, Rules>>,
}

fn named(name: &str) -> Result<(), NetfilterError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let good = name.chars().all(fits) && name.starts_with(|c: char| c.is_ascii_alphabetic());
    if good { Ok(()) } else { Err(NetfilterError::Name(name.to_owned())) }
}

/// Has nft(8) carry out a script, all of it or nothing.
pub(crate) fn nft(script: &str) -> Result<(), NetfilterError> {
    let mut command = Command::new("nft");
    // Servers' programs are not on everybody's path.
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(["-f", "-"]).env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(NetfilterError::Program)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes()).map_err(NetfilterError::Program)?;
    }
    let done = child.wait_with_output().map_err(NetfilterError::Program)?;
    match done.status.success() {
        true => Ok(()),
        false => {
            Err(NetfilterError::Refused(String::from_utf8_lossy(&done.stderr).trim().replace('\n', " ")))
        }
    }
}

impl Netfilter {
    /// Makes the table, without rules for anybody, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetfilterError`]: it needs nft(8) and CAP_NET_ADMIN.
    pub fn start(config: &Config) -> Result<Self, NetfilterError> {
        let Config { table, device, ident_port } = config;
        named(table)?;
        named(device.strip_suffix('*').unwrap_or(device))?;
        // Declared and deleted first, so that it is the same whether there was one or none.
        nft(&format!(
            r#"table inet {table}
delete table inet {table}
table inet {table} {{
  set ident4 {{ type ipv4_addr; flags interval; }}
  set ident6 {{ type ipv6_addr; flags interval; }}
  set masqueraded {{ type ipv4_addr; flags interval; }}
  set confined {{ type ipv4_addr; }}
  map outside {{ type ipv4_addr : ipv4_addr; }}
  map blocks {{
    type ipv4_addr : interval ipv4_addr . inet_service
    flags interval
  }}
  chain asked {{
    ip daddr @ident4 tcp dport 113 redirect to :{ident_port}
    ip6 daddr @ident6 tcp dport 113 redirect to :{ident_port}
  }}
  chain prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
    jump asked
  }}
  chain output {{
    type nat hook output priority -100; policy accept;
    jump asked
  }}
  chain confine {{
    type filter hook postrouting priority srcnat - 10; policy accept;
    oifname "{device}" return
    ip saddr @confined meta l4proto != {{ tcp, udp, icmp }} drop
    ip saddr @confined ct state {{ invalid, untracked }} drop
    ip saddr @masqueraded ct state {{ invalid, untracked }} drop
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname "{device}" return
    ip saddr @masqueraded masquerade
    meta l4proto {{ tcp, udp }} snat ip addr . port to ip saddr map @blocks
    snat ip to ip saddr map @outside
  }}
}}
"#
        ))?;
        Ok(Self { config: config.clone(), installed: Mutex::default() })
    }

    /// Adds to `elements`, by set, those that rules are.
    fn elements((address, bits): Network, rules: &Rules, elements: &mut BTreeMap<&'static str, Vec<String>>) {
        let mut add = |set, element: String| elements.entry(set).or_default().push(element);
        if rules.ident {
            add(if address.is_ipv4() { "ident4" } else { "ident6" }, format!("{address}/{bits}"));
        }
        match &rules.translation {
            None => {}
            Some(Translation::Masquerade) => add("masqueraded", format!("{address}/{bits}")),
            Some(Translation::Block { external, ports }) => {
                let (first, last) = (ports.start(), ports.end());
                add("confined", address.to_string());
                add("outside", format!("{address} : {external}"));
                add("blocks", format!("{address} : {external} . {first}-{last}"));
            }
        }
    }

    /// What makes of the rules before those after. A set has one command, since nft(8) goes through all that is there for each.
    fn script(&self, before: &BTreeMap<Network, Rules>, after: &BTreeMap<Network, Rules>) -> String {
        let mut script = String::new();
        for (verb, of, other) in [("delete", before, after), ("add", after, before)] {
            let mut elements = BTreeMap::new();
            for (network, rules) in of.iter().filter(|(network, rules)| other.get(network) != Some(rules)) {
                Self::elements(*network, rules, &mut elements);
            }
            for (set, elements) in elements {
                let (table, elements) = (&self.config.table, elements.join(", "));
                // Writing to a String does not fail.
                let _ = writeln!(script, "{verb} element inet {table} {set} {{ {elements} }}");
            }
        }
        script
    }

    /// Changes what is done for networks of hosts, all of it or nothing: `None` takes all rules of one away. One that had rules gets
    /// these in their place. Connections that are under way stay as they are.
    ///
    /// # Errors
    /// [`NetfilterError`].
    pub fn apply(&self, changes: &[(IpAddr, u8, Option<Rules>)]) -> Result<(), NetfilterError> {
        let mut installed = self.installed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut after = installed.clone();
        for (address, bits, rules) in changes {
            let network = (*address, *bits);
            match rules {
                Some(rules) => {
                    check(network, rules)?;
                    after.insert(network, rules.clone());
                }
                None if after.remove(&network).is_none() => {
                    return Err(NetfilterError::Unknown(*address, *bits));
                }
                None => {}
            }
        }
        let script = self.script(&installed, &after);
        if !script.is_empty() {
            nft(&script)?;
        }
        *installed = after;
        Ok(())
    }
}

fn check((address, bits): Network, rules: &Rules) -> Result<(), NetfilterError> {
    let Some(translation) = &rules.translation else { return Ok(()) };
    let single = matches!(translation, Translation::Block { .. });
    if !address.is_ipv4() || single && bits != 32 {
        return Err(NetfilterError::Untranslatable(address, bits));
    }
    match translation {
        Translation::Block { ports, .. } if *ports.start() == 0 || ports.is_empty() => {
            Err(NetfilterError::Ports(*ports.start(), *ports.end()))
        }
        _ => Ok(()),
    }
}

impl Drop for Netfilter {
    fn drop(&mut self) {
        // What cannot be taken away now is replaced by the next that begins.
        let _ = nft(&format!("delete table inet {}\n", self.config.table));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that the system has not.
    fn absent() -> std::mem::ManuallyDrop<Netfilter> {
        let config = Config { table: "t".to_owned(), device: "d".to_owned(), ident_port: 1 };
        std::mem::ManuallyDrop::new(Netfilter { config, installed: Mutex::default() })
    }

    #[test]
    fn a_set_has_one_command_for_all_that_changes_in_it() {
        let table = absent();
        let rules = |n: u8| {
            let external = [203, 0, 113, 1].into();
            let translation = Some(Translation::Block { external, ports: 1024..=1039 });
            (([10, 0, 0, n].into(), 32), Rules { ident: true, translation })
        };
        let all: BTreeMap<Network, Rules> = (0..=255).map(rules).collect();
        let none = BTreeMap::new();
        let sets = |script: &str| -> Vec<String> {
            script.lines().map(|line| line.split(" {").next().unwrap().to_owned()).collect()
        };
        let of = |verb: &str| {
            ["blocks", "confined", "ident4", "outside"].map(|set| format!("{verb} element inet t {set}"))
        };
        let script = table.script(&none, &all);
        assert_eq!(sets(&script), of("add"));
        assert_eq!(script.matches("10.0.0.255").count(), 4);
        assert_eq!(sets(&table.script(&all, &none)), of("delete"));
        assert_eq!(table.script(&all, &all), "");
    }

    #[test]
    fn what_cannot_be_is_said_before_anything_is_asked() {
        let table = absent();
        let refuse = |address: &str, bits, rules: Option<Rules>| {
            let error = table.apply(&[(address.parse().unwrap(), bits, rules)]).unwrap_err();
            error.to_string()
        };
        let masquerade = || Some(Rules { ident: false, translation: Some(Translation::Masquerade) });
        let block = |ports| {
            let translation = Some(Translation::Block { external: [203, 0, 113, 1].into(), ports });
            Some(Rules { ident: false, translation })
        };
        assert_eq!(
            refuse("10.0.0.0", 24, block(1..=9)),
            "10.0.0.0/24 cannot be translated: only networks of IPv4 can, and only a single address to a block of ports"
        );
        assert!(refuse("2001:db8::", 128, masquerade()).starts_with("2001:db8::/128 cannot"));
        assert!(refuse("10.0.0.1", 32, block(0..=9)).starts_with("0 to 9 is no block"));
        #[expect(clippy::reversed_empty_ranges)]
        let reversed = 9..=8;
        assert!(refuse("10.0.0.1", 32, block(reversed)).starts_with("9 to 8 is no block"));
        assert_eq!(refuse("10.0.0.1", 32, None), "10.0.0.1/32 has no rules");
        for name in ["", "a b", "x;", "1a", "a{"] {
            let config = Config { table: name.to_owned(), ..table.config.clone() };
            assert!(matches!(Netfilter::start(&config), Err(NetfilterError::Name(_))), "{name}");
        }
    }
}
