//! Imports configurations of other concentrators, and lists unsupported settings. Formats: accel-ppp's
//! `accel-ppp.conf`, and pppd options of rp-pppoe's `pppoe-server` (`pppoe-server-options`).

mod accel;
mod pppd;

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

/// An imported configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportedConfig {
    /// The configuration file. Interfaces, secrets and settings that the source lacks must be filled in.
    pub text: String,
    /// Unsupported settings: line, from 1, and a sentence.
    pub left: Vec<(usize, String)>,
    /// Unsupported settings that restrict access: line, from 1, and a sentence. With any of them the import must not be
    /// used.
    pub stops: Vec<(usize, String)>,
}

/// The result of a setting's import.
enum SettingOutcome {
    Complete,
    /// Imported except for this part.
    Part(&'static str),
    No,
    /// Imported, with this note.
    WithNote(&'static str),
    /// Unsupported, and it restricts access.
    Stop,
}

impl SettingOutcome {
    const fn complete_if(whole: bool) -> Self {
        if whole { Self::Complete } else { Self::No }
    }
}

/// An imported address pool.
#[derive(Clone, Debug, Default)]
struct ImportedPool {
    ranges: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct ConfigImporter {
    left: Vec<(usize, String)>,
    stops: Vec<(usize, String)>,
    interfaces: Vec<String>,
    name: Option<String>,
    services: Vec<String>,
    address: Option<Ipv4Addr>,
    dns: Vec<IpAddr>,
    protocols: Vec<&'static str>,
    /// The pools in the order of the file.
    pools: Vec<(String, ImportedPool)>,
    /// The index of each pool by name.
    pool_index: BTreeMap<String, usize>,
    /// The default pool, for users without a pool from an AAA server.
    pool: Option<String>,
    prefixes: Vec<String>,
    delegated: Vec<String>,
    identifier: Option<String>,
    nas_address: Option<IpAddr>,
    /// Address, secret, address for accounting.
    servers: Vec<(String, String, String)>,
    dynamic: Option<String>,
    interim: Option<String>,
    limits: Vec<(&'static str, String)>,
    radius: bool,
    denies_ipv4: bool,
    ipv6: Option<bool>,
    trust_circuit_id: bool,
}

/// Imports a file of either kind. A file with sections in brackets is accel-ppp's.
#[must_use]
pub fn import_config(text: &str) -> ImportedConfig {
    let mut importer = ConfigImporter::default();
    let is_accel =
        |line: &str| line.trim_start().starts_with('[') || line.trim_start().starts_with("$include");
    if text.lines().any(is_accel) {
        importer.import_accel(text);
    } else {
        importer.import_pppd(text);
    }
    importer.finish_import()
}

fn quote_toml(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn toml_list(all: &[String]) -> String {
    let all: Vec<String> = all.iter().map(|one| quote_toml(one)).collect();
    format!("[{}]", all.join(", "))
}

impl ConfigImporter {
    fn report_unsupported(&mut self, line: usize, what: &str) {
        self.left.push((line, format!("not imported: {what}")));
    }

    fn report_blocking_setting(&mut self, line: usize, what: &str) {
        self.stops.push((line, format!("not imported, and more hosts could log in without it: {what}")));
    }

    /// Sets a limit. The last of a repeated limit counts.
    fn set_limit(&mut self, key: &'static str, value: String) {
        self.limits.retain(|(known, _)| *known != key);
        self.limits.push((key, value));
    }

    fn add_protocol(&mut self, name: &'static str) {
        if !self.protocols.contains(&name) {
            self.protocols.push(name);
        }
    }

    fn finish_import(mut self) -> ImportedConfig {
        let (has_pool, is_ipv6_only) = (!self.pools.is_empty(), self.denies_ipv4);
        let missing = [
            (self.interfaces.is_empty(), "the file has no interfaces: set \"interfaces\" in [listen]"),
            (
                self.address.is_none() && !is_ipv6_only,
                "the file has no address of the concentrator: set \"address\" in [service]",
            ),
            (
                !has_pool && !is_ipv6_only,
                "the file has no addresses for hosts: write a [[pool]], and name it in \"pools\" of [service]",
            ),
            (self.radius && self.servers.is_empty(), "the file has no RADIUS servers: write [[aaa.radius]]"),
            (!self.radius, "pppd keeps passwords in chap-secrets and pap-secrets: write a [[user]] for each"),
            (
                has_pool && self.default_pool_name().is_none(),
                "the file does not name the default pool of hosts: set \"pools\" in [service]",
            ),
            (
                self.ipv6 == Some(true) && self.prefixes.is_empty() && self.servers.is_empty(),
                "IPv6 is on, but the file has no prefixes for hosts: write a [[pool]], and name it in \"prefix_pool\" \
                 of [service]",
            ),
        ];
        let missing = missing.into_iter().filter(|(is_missing, _)| *is_missing);
        self.left.extend(missing.map(|(_, what)| (0, what.to_owned())));
        let text = self.to_toml();
        #[cfg(feature = "tls")]
        self.check_text();
        ImportedConfig { text, left: self.left, stops: self.stops }
    }

    /// Returns the default pool, for users without a pool from an AAA server.
    fn default_pool_name(&self) -> Option<&str> {
        let first = self.pool.as_deref().unwrap_or("default");
        self.pools.iter().map(|(name, _)| name.as_str()).find(|name| *name == first)
    }

    /// Adds the faults that the configuration's own parser finds in the result, with the gaps filled in.
    #[cfg(feature = "tls")]
    fn check_text(&mut self) {
        let filled = {
            let whole = Self {
                interfaces: if self.interfaces.is_empty() {
                    Vec::from(["eth0".to_owned()])
                } else {
                    self.interfaces.clone()
                },
                address: self.address.or(Some(Ipv4Addr::new(192, 0, 2, 1))),
                pool: self
                    .default_pool_name()
                    .or_else(|| self.pools.first().map(|(name, _)| name.as_str()))
                    .map(str::to_owned),
                ..self.clone()
            };
            let addresses = ImportedPool { ranges: Vec::from(["198.51.100.0/24".to_owned()]) };
            if whole.pools.is_empty() {
                Self { pools: Vec::from([("default".to_owned(), addresses)]), ..whole }
            } else {
                whole
            }
        };
        let clock = usher_crypto::tls::SharedWallClock::from_time(usher_core::WallTime::UNIX_EPOCH);
        let parsed = crate::config::parse(
            "pppoe.toml",
            &filled.to_toml(),
            &usher_config::EmptyConfigEnvironment,
            &clock,
        );
        for fault in parsed.err().map(|faults| faults.faults).unwrap_or_default() {
            self.left.push((0, format!("the imported configuration has a fault: {}", fault.message)));
        }
    }

    fn to_toml(&self) -> String {
        let mut out: Vec<String> = Vec::new();
        out.push(format!("[listen]\ninterfaces = {}", toml_list(&self.interfaces)));
        out.push("\n[service]".to_owned());
        out.extend(self.name.as_ref().map(|name| format!("name = {}", quote_toml(name))));
        if !self.services.is_empty() {
            out.push(format!("services = {}", toml_list(&self.services)));
        }
        if !self.denies_ipv4 {
            out.extend(self.address.map(|address| format!("address = \"{address}\"")));
            out.extend(
                self.default_pool_name().map(|first| format!("pools = {}", toml_list(&[first.to_owned()]))),
            );
        }
        out.extend(self.ipv6.map(|ipv6| format!("ipv6 = {ipv6}")));
        let with_ipv6 = self.ipv6 != Some(false);
        if with_ipv6 && !self.prefixes.is_empty() {
            out.push("prefix_pool = \"prefixes\"".to_owned());
        }
        if with_ipv6 && !self.delegated.is_empty() {
            out.push("delegated_pool = \"delegated\"".to_owned());
        }
        if !self.dns.is_empty() {
            let all: Vec<String> = self.dns.iter().map(ToString::to_string).collect();
            out.push(format!("dns = {}", toml_list(&all)));
        }
        if self.trust_circuit_id {
            out.push("trust_circuit_id = true".to_owned());
        }
        if !self.protocols.is_empty() {
            let all: Vec<String> = self.protocols.iter().map(|one| (*one).to_owned()).collect();
            out.push(format!("\n[authentication]\nprotocols = {}", toml_list(&all)));
        }
        for (name, pool) in &self.pools {
            out.push(format!(
                "\n[[pool]]\nname = {}\nranges = {}",
                quote_toml(name),
                toml_list(&pool.ranges)
            ));
        }
        for (name, ranges) in [("prefixes", &self.prefixes), ("delegated", &self.delegated)] {
            if with_ipv6 && !ranges.is_empty() {
                out.push(format!("\n[[pool]]\nname = \"{name}\"\nranges = {}", toml_list(ranges)));
            }
        }
        if !self.servers.is_empty() {
            out.push("\n[aaa]\naccounting = true".to_owned());
            let identifier = self.identifier.as_deref().or(self.name.as_deref()).unwrap_or("usher");
            out.push(format!("nas_identifier = {}", quote_toml(identifier)));
            out.extend(self.nas_address.map(|address| format!("nas_address = \"{address}\"")));
            out.extend(self.interim.as_ref().map(|every| format!("interim = {}", quote_toml(every))));
            for (address, secret, accounting) in &self.servers {
                out.push(format!(
                    "[[aaa.radius]]\naddress = {}\nacct_address = {}\nsecret = {}",
                    quote_toml(address),
                    quote_toml(accounting),
                    quote_toml(secret)
                ));
            }
            out.extend(
                self.dynamic
                    .as_ref()
                    .map(|address| format!("[aaa.dynamic]\nlisten = {}", quote_toml(address))),
            );
        }
        if !self.limits.is_empty() {
            out.push("\n[limits]".to_owned());
            out.extend(self.limits.iter().map(|(key, value)| format!("{key} = {value}")));
        }
        out.push("\n[tracking]\n".to_owned());
        out.join("\n")
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests;
