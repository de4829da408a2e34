//! Netfilter rules for hosts of sessions, in a table of their own. They redirect port 113 to the IDENT server, and
//! translate addresses to the outgoing interface's address or to a port block (RFC 7422).
//!
//! ```text
//! elsewhere ─ TCP to 10.0.0.1:113 ──▶ redirect ──▶ the IDENT server   [NAT method]
//! 10.0.0.1:40000 ──▶ masquerade ──▶ 203.0.113.1:61234 ──▶ elsewhere   [masquerade method: conntrack knows the host]
//! 10.0.0.1:40000 ──▶ 203.0.113.1:1024-2047 ──▶ elsewhere              [port blocks: the port identifies the host]
//! ```
//! The table also limits the connections of each host, so that no host fills the kernel's connection table or the log's
//! disk.
//!
//! nft(8) writes the rules, each change atomically. Dropping [`NetfilterTable`] removes the table. The next start
//! replaces the table of a killed process.

pub mod conntrack;
mod follow;

pub use follow::{ConntrackEvent, ConntrackMonitor};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// The configuration of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetfilterConfig {
    /// The table's name.
    pub table: String,
    /// The plane's device. Packets to it go to another host and keep their source. A name with a final `*` matches all
    /// devices with this prefix.
    pub device: String,
    /// The ingress interfaces of hosts' packets, with `*` as above. Only their packets count for [`ConntrackLimits`].
    pub incoming: Vec<String>,
    /// The local port of the IDENT server.
    pub ident_port: u16,
    /// The limits of each host's connections.
    pub bounds: ConntrackLimits,
    /// True if each translation is logged. Packets that [`ConntrackMonitor`] cannot report then leave under no host's
    /// address.
    pub logged: bool,
}

/// The limits of a host's connections. Packets beyond them are dropped before the kernel has a table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConntrackLimits {
    /// Maximum simultaneous connections, without closed ones of TCP; 0: unlimited.
    pub at_once: u32,
    /// Maximum new connections per second, with a burst of ten times as many; 0: unlimited.
    pub per_second: u32,
}

/// Counts of dropped packets that would have begun connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewConnectionDropCounts {
    /// Packets beyond [`ConntrackLimits`].
    pub limited: u64,
    /// Packets dropped by [`NetfilterTable::drop_new_connections`].
    pub held: u64,
    /// Packets of protocols whose translation cannot be logged ([`NetfilterConfig::logged`]).
    pub unnamed: u64,
}

/// The table's counters, in the order of [`NewConnectionDropCounts`].
const LIMITED: &str = "connections_limited";
const HELD: &str = "connections_dropped";
const UNNAMED: &str = "translations_unnamed";
/// Maximum hosts with counted connections: twice the maximum of sessions.
const MOST: u32 = 131_072;

/// The source translation of a host's packets. Packets outside any connection cannot be translated and are dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceNatMode {
    /// An address of the outgoing interface, and a port of the kernel's choice.
    Masquerade,
    /// This address and, for TCP and UDP, these ports. Apart from them only ICMP passes: the ports of other protocols
    /// could be in another host's block.
    Block {
        /// The external address, which the system must have.
        external: Ipv4Addr,
        /// The ports.
        ports: RangeInclusive<u16>,
    },
}

/// The rules of a host's address or prefix.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostNetfilterRules {
    /// True to redirect TCP port 113 to the IDENT server.
    pub ident: bool,
    /// The translation of an IPv4 address. A network can only be masqueraded.
    pub translation: Option<SourceNatMode>,
    /// Bits of each host's own prefix. The hosts' connections are limited ([`ConntrackLimits`]), and dropped on
    /// request ([`NetfilterTable::drop_new_connections`]). An IPv4 host always has a single address. `None`: no hosts,
    /// unless the addresses are translated.
    pub hosts: Option<u8>,
}

/// The reason why a rule cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum NetfilterError {
    /// nft(8) cannot be run.
    #[error("cannot run nft(8): {0}; install Debian's nftables")]
    Program(std::io::Error),
    /// nft(8) refuses the rules, with its message.
    #[error("netfilter rejects the rules: {0}")]
    Refused(String),
    /// An invalid name.
    #[error("\"{0}\" is not a table or interface name: use letters, digits, \"-\", \"_\" and \".\"")]
    Name(String),
    /// A network that cannot be translated.
    #[error(
        "cannot translate {0}/{1}: only IPv4 networks can be translated, and only a single address to a port block"
    )]
    Untranslatable(IpAddr, u8),
    /// An invalid range of ports.
    #[error("{0} to {1} is not a port block: use 1 to 65535, the lower port first")]
    Ports(u16, u16),
    /// Connections of removed hosts cannot be deleted.
    #[error(
        "cannot flush the connections of departed hosts: {0}; this needs CAP_NET_ADMIN and nf_conntrack_netlink"
    )]
    FlushConnections(std::io::Error),
    /// Unknown rules.
    #[error("{0}/{1} has no rules")]
    Unknown(IpAddr, u8),
    /// The counters cannot be read.
    #[error("cannot read the netfilter counters: {0}")]
    Uncounted(String),
}

type HostNetwork = (IpAddr, u8);

/// The table. Dropping it removes the table from the kernel.
#[derive(Debug)]
pub struct NetfilterTable {
    config: NetfilterConfig,
    installed: Mutex<InstalledHostRules>,
}

#[derive(Debug, Default)]
struct InstalledHostRules {
    rules: BTreeMap<HostNetwork, HostNetfilterRules>,
    /// Bits of the IPv6 prefixes that have sets.
    lengths: BTreeSet<u8>,
}

fn check_name(name: &str) -> Result<(), NetfilterError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let good = name.chars().all(fits) && name.starts_with(|c: char| c.is_ascii_alphabetic());
    if good { Ok(()) } else { Err(NetfilterError::Name(name.to_owned())) }
}

/// Checks that nft(8) accepts an interface name within quotes.
fn check_quotable(name: &str) -> Result<(), NetfilterError> {
    let of = name.strip_suffix('*').unwrap_or(name);
    let good = !of.is_empty() && of.chars().all(|c| c.is_ascii_graphic() && !"\"\\*".contains(c));
    if good { Ok(()) } else { Err(NetfilterError::Name(name.to_owned())) }
}

fn nft_command(arguments: &[&str]) -> Command {
    let mut command = Command::new("nft");
    // nft is in sbin, which may be missing from PATH.
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(arguments).env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Runs a script by nft(8), atomically.
pub(crate) fn run_nft(script: &str) -> Result<(), NetfilterError> {
    let mut command = nft_command(&["-f", "-"]);
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

impl NetfilterTable {
    /// Creates the table without rules for hosts, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetfilterError`]: it needs nft(8) and CAP_NET_ADMIN.
    pub fn start(config: &NetfilterConfig) -> Result<Self, NetfilterError> {
        let NetfilterConfig { table, device, incoming, ident_port, bounds, logged } = config;
        check_name(table)?;
        check_name(device.strip_suffix('*').unwrap_or(device))?;
        incoming.iter().try_for_each(|name| check_quotable(name))?;
        let from = incoming.iter().map(|name| format!("    iifname \"{name}\" goto bounded\n"));
        let from: String = from.collect();
        let bounded = match *bounds == ConntrackLimits::default() {
            true => String::new(),
            // The chain gets only the first packet of each connection, and packets that belong to no connection.
            false => format!(
                r#"{}  chain bounded {{
    ip saddr @masqueraded goto bound4
    ip saddr @confined goto bound4
    ip saddr @hosts4 goto bound4
  }}
  chain bound {{
    type filter hook prerouting priority filter; policy accept;
    ct state {{ invalid, untracked }} return
    ct status & confirmed == confirmed return
{from}  }}
"#,
                bounds.connection_limit_chain("4", "ipv4_addr", "ip saddr")
            ),
        };
        // This rule comes after the translation, because only then is it known whether the packet was translated.
        let named = |set| {
            format!(
                "    ct original ip saddr @{set} meta l4proto != {{ tcp, udp, icmp }} counter name {UNNAMED} drop\n"
            )
        };
        let named: String = ["masqueraded", "confined", "hosts4"].map(named).concat();
        let named = match logged {
            true => format!(
                r#"  chain named {{
    type filter hook postrouting priority srcnat + 10; policy accept;
    oifname "{device}" return
    ct status & snat == 0 return
{named}  }}
"#
            ),
            false => String::new(),
        };
        // Declare the table, then delete it, so that the script works whether or not an earlier table exists.
        run_nft(&format!(
            r#"table inet {table}
delete table inet {table}
table inet {table} {{
  set ident4 {{ type ipv4_addr; flags interval; }}
  set ident6 {{ type ipv6_addr; flags interval; }}
  set masqueraded {{ type ipv4_addr; flags interval; }}
  set confined {{ type ipv4_addr; }}
  set hosts4 {{ type ipv4_addr; flags interval; }}
  counter {LIMITED} {{ }}
  counter {HELD} {{ }}
  counter {UNNAMED} {{ }}
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
{bounded}  chain held {{
  }}
  chain confine {{
    type filter hook postrouting priority srcnat - 10; policy accept;
    oifname "{device}" return
    ip saddr @confined meta l4proto != {{ tcp, udp, icmp }} drop
    ip saddr @confined ct state {{ invalid, untracked }} drop
    ip saddr @masqueraded ct state {{ invalid, untracked }} drop
    jump held
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname "{device}" return
    ip saddr @masqueraded masquerade
    meta l4proto {{ tcp, udp }} snat ip addr . port to ip saddr map @blocks
    snat ip to ip saddr map @outside
  }}
{named}}}
"#
        ))?;
        Ok(Self { config: config.clone(), installed: Mutex::default() })
    }

    /// Starts or stops to drop new connections of hosts from IPv4 addresses. Existing connections continue.
    ///
    /// # Errors
    /// [`NetfilterError`]: nothing has changed.
    pub fn drop_new_connections(&self, hold: bool) -> Result<(), NetfilterError> {
        let table = &self.config.table;
        let mut script = format!("flush chain inet {table} held\n");
        for set in ["masqueraded", "confined", "hosts4"].iter().filter(|_| hold) {
            let _ = writeln!(
                script,
                "add rule inet {table} held ct status & confirmed == 0 ip saddr @{set} counter name {HELD} drop"
            );
        }
        run_nft(&script)
    }

    /// Returns the packets dropped since the start.
    ///
    /// # Errors
    /// [`NetfilterError`].
    pub fn drop_counts(&self) -> Result<NewConnectionDropCounts, NetfilterError> {
        let mut command = nft_command(&["list", "counters", "table", "inet", &self.config.table]);
        let done = command.stdin(Stdio::null()).output().map_err(NetfilterError::Program)?;
        let said = String::from_utf8_lossy(&done.stdout);
        let of = |name| parse_counter(&said, name);
        let all = || {
            Some(NewConnectionDropCounts { limited: of(LIMITED)?, held: of(HELD)?, unnamed: of(UNNAMED)? })
        };
        all().ok_or_else(|| {
            NetfilterError::Uncounted(String::from_utf8_lossy(&done.stderr).trim().replace('\n', " "))
        })
    }

    /// Adds the rules' elements to `elements`, by set.
    fn collect_elements(
        &self,
        (address, bits): HostNetwork,
        rules: &HostNetfilterRules,
        elements: &mut BTreeMap<String, Vec<String>>,
    ) {
        let mut add = |set: &str, element: String| elements.entry(set.to_owned()).or_default().push(element);
        match rules.hosts {
            Some(_) if address.is_ipv4() && rules.translation.is_none() => {
                add("hosts4", format!("{address}/{bits}"));
            }
            Some(each) if address.is_ipv6() && self.config.bounds != ConntrackLimits::default() => {
                add(&format!("hosts6_{each}"), format!("{address}/{bits}"));
            }
            _ => {}
        }
        if rules.ident {
            add(if address.is_ipv4() { "ident4" } else { "ident6" }, format!("{address}/{bits}"));
        }
        match &rules.translation {
            None => {}
            Some(SourceNatMode::Masquerade) => add("masqueraded", format!("{address}/{bits}")),
            Some(SourceNatMode::Block { external, ports }) => {
                let (first, last) = (ports.start(), ports.end());
                add("confined", address.to_string());
                add("outside", format!("{address} : {external}"));
                add("blocks", format!("{address} : {external} . {first}-{last}"));
            }
        }
    }

    /// Returns the sets and rules for hosts with prefixes of these lengths.
    fn prefix_length_script<'a>(&self, lengths: impl Iterator<Item = &'a u8>) -> String {
        let mut script = String::new();
        for bits in lengths {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub((*bits).into())).unwrap_or(0);
            let key = format!("ip6 saddr & {}", Ipv6Addr::from_bits(mask));
            let key = if *bits == 128 { "ip6 saddr" } else { &key };
            let bound = self.config.bounds.connection_limit_chain(&format!("6_{bits}"), "ipv6_addr", key);
            // Writing to a String does not fail.
            let _ = write!(
                script,
                r#"table inet {} {{
  set hosts6_{bits} {{ type ipv6_addr; flags interval; }}
{bound}  chain bounded {{
    ip6 saddr @hosts6_{bits} goto bound6_{bits}
  }}
}}
"#,
                self.config.table
            );
        }
        script
    }

    /// Returns the script from the earlier to the new rules. It has one command per set, since nft(8) reads the whole
    /// set for each.
    fn element_script(
        &self,
        before: &BTreeMap<HostNetwork, HostNetfilterRules>,
        after: &BTreeMap<HostNetwork, HostNetfilterRules>,
    ) -> String {
        let mut script = String::new();
        for (verb, of, other) in [("delete", before, after), ("add", after, before)] {
            let mut elements = BTreeMap::new();
            for (network, rules) in of.iter().filter(|(network, rules)| other.get(network) != Some(rules)) {
                self.collect_elements(*network, rules, &mut elements);
            }
            for (set, elements) in elements {
                let (table, elements) = (&self.config.table, elements.join(", "));
                // Writing to a String does not fail.
                let _ = writeln!(script, "{verb} element inet {table} {set} {{ {elements} }}");
            }
        }
        script
    }

    /// Replaces the rules of hosts' networks atomically. `None` removes a network's rules. Existing connections
    /// continue unchanged.
    ///
    /// # Errors
    /// [`NetfilterError`].
    pub fn apply_changes(
        &self,
        changes: &[(IpAddr, u8, Option<HostNetfilterRules>)],
    ) -> Result<(), NetfilterError> {
        let mut installed = self.installed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut after = installed.rules.clone();
        for (address, bits, rules) in changes {
            let network = (*address, *bits);
            match rules {
                Some(rules) => {
                    check_rules(network, rules)?;
                    after.insert(network, rules.clone());
                }
                None if after.remove(&network).is_none() => {
                    return Err(NetfilterError::Unknown(*address, *bits));
                }
                None => {}
            }
        }
        let mut lengths = BTreeSet::new();
        if self.config.bounds != ConntrackLimits::default() {
            let of6 = after.iter().filter(|((address, _), _)| address.is_ipv6());
            lengths = of6.filter_map(|(_, rules)| rules.hosts).collect();
        }
        let new = self.prefix_length_script(lengths.difference(&installed.lengths));
        let script = new + &self.element_script(&installed.rules, &after);
        if !script.is_empty() {
            run_nft(&script)?;
        }
        installed.rules = after;
        installed.lengths.append(&mut lengths);
        Ok(())
    }
}

impl ConntrackLimits {
    /// Returns sets and a chain that drops connections beyond the limits, for hosts that a key of this type identifies.
    fn connection_limit_chain(self, suffix: &str, kind: &str, key: &str) -> String {
        let drop = format!("counter name {LIMITED} drop");
        let (mut sets, mut rules) = (String::new(), String::new());
        // Writing to a String does not fail.
        if self.per_second > 0 {
            let (rate, burst) = (self.per_second, self.per_second.saturating_mul(10));
            let _ = writeln!(
                sets,
                "  set rated{suffix} {{ type {kind}; size {MOST}; flags dynamic, timeout; timeout 1m; }}"
            );
            let _ = writeln!(
                rules,
                "    update @rated{suffix} {{ {key} limit rate over {rate}/second burst {burst} packets }} {drop}"
            );
        }
        if self.at_once > 0 {
            let most = self.at_once;
            let _ = writeln!(sets, "  set begun{suffix} {{ type {kind}; size {MOST}; flags dynamic; }}");
            let _ = writeln!(rules, "    add @begun{suffix} {{ {key} ct count over {most} }} {drop}");
        }
        format!("{sets}  chain bound{suffix} {{\n{rules}  }}\n")
    }
}

/// Parses a counter's packets from the listing of nft(8).
fn parse_counter(said: &str, name: &str) -> Option<u64> {
    let of = said.split(&format!("counter {name} {{")).nth(1)?;
    of.split_whitespace().skip_while(|word| *word != "packets").nth(1)?.parse().ok()
}

fn check_rules((address, bits): HostNetwork, rules: &HostNetfilterRules) -> Result<(), NetfilterError> {
    let Some(translation) = &rules.translation else { return Ok(()) };
    let single = matches!(translation, SourceNatMode::Block { .. });
    if !address.is_ipv4() || single && bits != 32 {
        return Err(NetfilterError::Untranslatable(address, bits));
    }
    match translation {
        SourceNatMode::Block { ports, .. } if *ports.start() == 0 || ports.is_empty() => {
            Err(NetfilterError::Ports(*ports.start(), *ports.end()))
        }
        _ => Ok(()),
    }
}

impl Drop for NetfilterTable {
    fn drop(&mut self) {
        // An error is ignored: the next start replaces the table.
        let _ = run_nft(&format!("delete table inet {}\n", self.config.table));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a table that the system does not have.
    fn absent_table() -> std::mem::ManuallyDrop<NetfilterTable> {
        let bounds = ConntrackLimits { at_once: 7, per_second: 0 };
        let (table, device) = ("t".to_owned(), "d".to_owned());
        let incoming = vec![device.clone()];
        let config = NetfilterConfig { table, incoming, device, ident_port: 1, bounds, logged: false };
        std::mem::ManuallyDrop::new(NetfilterTable { config, installed: Mutex::default() })
    }

    #[test]
    fn a_set_has_one_command_for_all_that_changes_in_it() {
        let table = absent_table();
        let rules = |n: u8| {
            let external = [203, 0, 113, 1].into();
            let translation = Some(SourceNatMode::Block { external, ports: 1024..=1039 });
            (([10, 0, 0, n].into(), 32), HostNetfilterRules { ident: true, translation, hosts: Some(32) })
        };
        let all: BTreeMap<HostNetwork, HostNetfilterRules> = (0..=255).map(rules).collect();
        let none = BTreeMap::new();
        let sets = |script: &str| -> Vec<String> {
            script.lines().map(|line| line.split(" {").next().unwrap().to_owned()).collect()
        };
        let of = |verb: &str| {
            ["blocks", "confined", "ident4", "outside"].map(|set| format!("{verb} element inet t {set}"))
        };
        let script = table.element_script(&none, &all);
        assert_eq!(sets(&script), of("add"));
        assert_eq!(script.matches("10.0.0.255").count(), 4);
        assert_eq!(sets(&table.element_script(&all, &none)), of("delete"));
        assert_eq!(table.element_script(&all, &all), "");
    }

    #[test]
    fn a_length_of_prefixes_has_its_sets_and_counters_are_read() {
        let table = absent_table();
        let said = table.prefix_length_script([56, 128].iter());
        for expected in [
            "set hosts6_56 { type ipv6_addr; flags interval; }",
            "add @begun6_56 { ip6 saddr & ffff:ffff:ffff:ff00:: ct count over 7 } counter name connections_limited drop",
            "ip6 saddr @hosts6_56 goto bound6_56",
            "add @begun6_128 { ip6 saddr ct count over 7 }",
        ] {
            assert!(said.contains(expected), "{expected} is not in:\n{said}");
        }
        assert!(!said.contains("rated"), "{said}");
        let listed = "table inet t {\n\tcounter connections_limited {\n\t\tpackets 7 bytes 420\n\t}\n}\n";
        assert_eq!((parse_counter(listed, LIMITED), parse_counter(listed, HELD)), (Some(7), None));
    }

    #[test]
    fn what_cannot_be_is_said_before_anything_is_asked() {
        let table = absent_table();
        let refuse = |address: &str, bits, rules: Option<HostNetfilterRules>| {
            let error = table.apply_changes(&[(address.parse().unwrap(), bits, rules)]).unwrap_err();
            error.to_string()
        };
        let masquerade = || {
            Some(HostNetfilterRules {
                translation: Some(SourceNatMode::Masquerade),
                ..HostNetfilterRules::default()
            })
        };
        let block = |ports| {
            let translation = Some(SourceNatMode::Block { external: [203, 0, 113, 1].into(), ports });
            Some(HostNetfilterRules { translation, ..HostNetfilterRules::default() })
        };
        assert_eq!(
            refuse("10.0.0.0", 24, block(1..=9)),
            "cannot translate 10.0.0.0/24: only IPv4 networks can be translated, \
             and only a single address to a port block"
        );
        assert!(refuse("2001:db8::", 128, masquerade()).starts_with("cannot translate 2001:db8::/128"));
        assert!(refuse("10.0.0.1", 32, block(0..=9)).starts_with("0 to 9 is not a port block"));
        #[expect(clippy::reversed_empty_ranges)]
        let reversed = 9..=8;
        assert!(refuse("10.0.0.1", 32, block(reversed)).starts_with("9 to 8 is not a port block"));
        assert_eq!(refuse("10.0.0.1", 32, None), "10.0.0.1/32 has no rules");
        for name in ["", "a b", "a\"", "a*b", "*"] {
            let config = NetfilterConfig { incoming: vec![name.to_owned()], ..table.config.clone() };
            assert!(matches!(NetfilterTable::start(&config), Err(NetfilterError::Name(_))), "{name}");
        }
        assert!(check_quotable("1lan.7@x:y").is_ok() && check_quotable("pppoe-*").is_ok());
        for name in ["", "a b", "x;", "1a", "a{"] {
            let config = NetfilterConfig { table: name.to_owned(), ..table.config.clone() };
            assert!(matches!(NetfilterTable::start(&config), Err(NetfilterError::Name(_))), "{name}");
        }
    }
}
