//! Imports accel-ppp's file as accel-ppp reads it (`accel-pppd/triton/conf_file.c`). The first of a repeated setting
//! counts. A section counts if its module is loaded. accel-ppp 1.12 continues a repeated section, 1.13 and later ignore
//! it.

use super::{ConfigImporter, SettingOutcome};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

/// Modules that read a section. Without any of them its settings have no effect.
const SECTION_MODULES: &[(&str, &[&str])] = &[
    ("radius", &["radius"]),
    ("ip-pool", &["ippool"]),
    ("ipv6-pool", &["ipv6pool"]),
    ("ipv6-dns", &["ipv6_nd", "ipv6_dhcp"]),
    ("chap-secrets", &["chap-secrets"]),
    ("pppoe", &["pppoe"]),
];

/// A setting of the file.
struct AccelPppOption {
    /// The line, from 1.
    line: usize,
    section: String,
    name: String,
    value: String,
    state: AccelPppOptionState,
}

/// Tells whether accel-ppp reads a setting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AccelPppOptionState {
    Read,
    /// Its section is repeated: 1.12 reads it, later releases ignore it.
    Repeated,
    /// A tab after the name is part of the name.
    Tabbed,
}

/// Maximum octets of a line in accel-ppp, which takes the rest as another line.
const LONGEST_LINE: usize = 1022;

/// Splits off the leading number of a text like `strtol`. Without digits it is 0, and the rest is the whole text.
fn leading_number(text: &str) -> (i64, &str) {
    let rest = text.trim_start_matches([' ', '\t', '\r', '\u{b}', '\u{c}']);
    let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 {
        return (0, text);
    }
    let value = digits[..end].parse().unwrap_or(i64::MAX);
    (if rest.starts_with('-') { -value } else { value }, &digits[end..])
}

/// Parses a number like `atoi`, which ignores trailing text.
fn atoi(text: &str) -> i64 {
    // Like a C `int`, the result has only the low 32 bits of the number.
    let (value, _) = leading_number(text);
    i64::from(u32::try_from(value & 0xffff_ffff).unwrap_or(0).cast_signed())
}

/// Parses a port like `strtol`, without trailing text.
fn parse_port(text: &str) -> Option<u16> {
    let (value, rest) = leading_number(text);
    u16::try_from(value).ok().filter(|_| rest.is_empty())
}

/// Parses a number like `atoi`, without trailing text.
fn parse_number(value: &str) -> Option<u32> {
    value.parse().ok()
}

/// Parses a range: `10.0.0.2-255` varies the last octet, `10.0.0.5/24` extends to the end of the network.
fn parse_range(text: &str) -> Option<String> {
    if let Some((first, last)) = text.split_once('-') {
        let first: Ipv4Addr = first.trim().parse().ok()?;
        // After `-`, accel-ppp reads only the first number of a whole address. Such a range is refused here.
        let last: u8 = last.trim().parse().ok()?;
        let [a, b, c, _] = first.octets();
        let last = Ipv4Addr::new(a, b, c, last);
        return (first <= last).then(|| format!("{first}-{last}"));
    }
    let (first, bits) = text.split_once('/')?;
    let (first, bits): (Ipv4Addr, u32) = (first.parse().ok()?, bits.parse().ok()?);
    if !(1..=32).contains(&bits) {
        return None;
    }
    let host = u32::MAX.checked_shr(bits).unwrap_or(0);
    let last = Ipv4Addr::from_bits(first.to_bits() | host);
    Some(if first.to_bits() & host == 0 { format!("{first}/{bits}") } else { format!("{first}-{last}") })
}

/// Parses `fc00:0:1::/48,64`: each /64 of the /48.
fn translate_prefix_range(text: &str) -> Option<String> {
    let (network, each) = text.split_once(',')?;
    let made = format!("{}/{}", network.trim(), each.trim());
    made.parse::<usher_access::pool::PoolRange>().is_ok().then_some(made)
}

/// True if a setting may be repeated.
fn may_repeat(section: &str, name: &str) -> bool {
    match section {
        "modules" | "ipv6-pool" | "ipv6-dns" => true,
        "ip-pool" => !matches!(name, "attr" | "vendor" | "shuffle" | "reload-orphan"),
        "radius" => name == "server",
        "pppoe" => matches!(name, "interface" | "vlan-mon"),
        _ => false,
    }
}

/// True for unsupported settings that restrict access.
fn is_unsupported_access_restriction(section: &str, name: &str, value: &str) -> bool {
    match (section, name) {
        // This setting names a list of MAC addresses to allow or deny.
        ("pppoe", "mac-filter") => true,
        // Sessions here are never encrypted, while accel-ppp would reject unencrypted ones.
        ("ppp" | "pppoe", "mppe") => value == "require",
        // With `require`, accel-ppp ends a session without this protocol. Any other word is read as a number, where 3
        // means `require`.
        ("ppp", "ipv4" | "ipv6") => value == "require" || atoi(value) == 3,
        // A delay of -1 means no PADO, always or from some number of sessions on.
        ("pppoe", "pado-delay" | "PADO-Delay") => {
            let delays = value.split(',').map(|range| range.replace(' ', ""));
            delays.into_iter().any(|range| atoi(&range) == -1)
        }
        _ => false,
    }
}

/// True for supported settings that restrict access. If their effect depends on the release, the import stops.
fn is_access_restriction(section: &str, name: &str, value: &str) -> bool {
    match (section, name) {
        ("common", "single-session" | "max-sessions") => true,
        ("pppoe", "service-name" | "Service-Name") => !value.is_empty(),
        _ => is_unsupported_access_restriction(section, name, value),
    }
}

impl ConfigImporter {
    /// Imports accel-ppp's file.
    pub(super) fn import_accel(&mut self, text: &str) {
        let options = self.read_options(text);
        let modules: BTreeSet<&str> = options
            .iter()
            .filter(|option| option.state == AccelPppOptionState::Read && option.section == "modules")
            .map(|option| option.name.as_str())
            .collect();
        self.ipv6 = Some(false);
        let mut first = BTreeSet::new();
        for option in &options {
            let AccelPppOption { line, section, name, value, .. } = option;
            let shown = format!("{name} of [{section}]");
            match option.state {
                AccelPppOptionState::Read => {}
                AccelPppOptionState::Repeated if is_access_restriction(section, name, value) => {
                    let what = "restricts access, but its section is repeated: accel-ppp 1.12 reads it and later \
                                releases do not";
                    self.stops.push((*line, format!("{shown} {what}")));
                    continue;
                }
                AccelPppOptionState::Repeated => {
                    let what = "whose section is repeated: accel-ppp 1.12 reads it and later releases do not";
                    self.report_unsupported(*line, &format!("{shown}, {what}"));
                    continue;
                }
                AccelPppOptionState::Tabbed => {
                    let what = "which accel-ppp does not read, since a tab after a name is part of it";
                    self.report_unsupported(*line, &format!("{shown}, {what}"));
                    continue;
                }
            }
            let needed = SECTION_MODULES.iter().find(|(of, _)| of == section);
            if let Some((_, needed)) = needed
                && !needed.iter().any(|module| modules.contains(module))
            {
                let module = needed.join(" or ");
                self.report_unsupported(
                    *line,
                    &format!("{shown}, whose module {module} is not in [modules]"),
                );
                continue;
            }
            if !may_repeat(section, name) && !first.insert((section, name)) {
                self.report_unsupported(*line, &format!("{shown}, since accel-ppp uses only the first one"));
                continue;
            }
            // Do not repeat the value: it may be a secret.
            match self.import_option(section, name, value, &modules) {
                SettingOutcome::Complete => {}
                SettingOutcome::Part(what) => self.report_unsupported(*line, &format!("{what} in {shown}")),
                SettingOutcome::WithNote(what) => self.left.push((*line, format!("{shown}: {what}"))),
                SettingOutcome::No => self.report_unsupported(*line, &shown),
                SettingOutcome::Stop => self.report_blocking_setting(*line, &shown),
            }
        }
        let said = |name: &str| {
            let is_said = |option: &&AccelPppOption| {
                option.state == AccelPppOptionState::Read && option.section == "pppoe" && option.name == name
            };
            options.iter().find(is_said)
        };
        let is_set = |name: &str| said(name).is_some_and(|option| atoi(&option.value) != 0);
        let line = said("service-name").or_else(|| said("Service-Name")).map(|option| option.line);
        if let Some(line) = line.filter(|_| !self.services.is_empty()) {
            if is_set("accept-any-service") {
                self.services.clear();
                let what = "service-name of [pppoe]: because of accept-any-service, every name is accepted and none \
                            is offered";
                self.left.push((line, what.to_owned()));
            } else if !is_set("accept-blank-service") {
                let what = "service-name of [pppoe] rejects hosts that name no service, while this concentrator \
                            serves them. To allow it, set accept-blank-service=1 in that file";
                self.stops.push((line, what.to_owned()));
            }
        }
    }

    /// Returns the settings of the file, in their order.
    fn read_options(&mut self, text: &str) -> Vec<AccelPppOption> {
        let mut options: Vec<AccelPppOption> = Vec::new();
        // Values for `${other}`: the first setting of each name in a section.
        let mut known: BTreeMap<(String, String), String> = BTreeMap::new();
        let mut section: Option<(String, AccelPppOptionState)> = None;
        let mut sections = BTreeSet::new();
        // The depth of nested settings, `{` to `}`.
        let mut depth = 0_usize;
        for (line, text) in (1..).zip(text.lines()) {
            if text.len() > LONGEST_LINE {
                self.report_blocking_setting(line, "a line of more than 1022 octets, which accel-ppp splits");
                continue;
            }
            let text = text.trim_matches([' ', '\t', '\r']);
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if text.starts_with("$include") {
                self.report_blocking_setting(line, "$include, whose file may have more settings");
                continue;
            }
            if let Some(rest) = text.strip_prefix('[') {
                match rest.split_once(']') {
                    _ if depth > 0 => self.report_blocking_setting(
                        line,
                        "a section within a setting, for which accel-ppp rejects the file",
                    ),
                    Some((name, _)) => {
                        let is_first = sections.insert(name.to_owned());
                        let state =
                            if is_first { AccelPppOptionState::Read } else { AccelPppOptionState::Repeated };
                        section = Some((name.to_owned(), state));
                    }
                    None => self.report_blocking_setting(
                        line,
                        "a section without \"]\", for which accel-ppp rejects the file",
                    ),
                }
                continue;
            }
            if depth > 0 && text.starts_with('}') {
                depth -= 1;
                continue;
            }
            let Some((section, state)) = &section else {
                self.report_blocking_setting(
                    line,
                    "a setting before any section, for which accel-ppp rejects the file",
                );
                continue;
            };
            let end = text.find([' ', '\t', '=']).unwrap_or(text.len());
            let (name, rest) = text.split_at(end);
            let state = if rest.starts_with('\t') { AccelPppOptionState::Tabbed } else { *state };
            let rest = rest.trim_start_matches([' ', '\t']);
            let mut value = match rest.strip_prefix(['=', ',']) {
                Some(value) => value.trim_start_matches([' ', '\t']).to_owned(),
                None => String::new(),
            };
            // `${other}` stands for another setting of the section.
            if let Some(other) = value.strip_prefix("${").and_then(|rest| rest.split('}').next()) {
                match known.get(&(section.clone(), other.to_owned())) {
                    Some(meant) => value.clone_from(meant),
                    None => {
                        let what = format!(
                            "{name} of [{section}]: ${{{other}}} is not set before it, for which accel-ppp rejects \
                             the file"
                        );
                        self.report_blocking_setting(line, &what);
                        continue;
                    }
                }
            }
            let outer = value.strip_suffix('{').map(|outer| outer.trim_end_matches([' ', '\t']).to_owned());
            if let Some(outer) = &outer {
                if depth == 0 {
                    self.report_unsupported(line, &format!("the block of {name} of [{section}]"));
                }
                value.clone_from(outer);
            }
            if depth == 0 {
                if state != AccelPppOptionState::Tabbed {
                    let key = (section.clone(), name.to_owned());
                    known.entry(key).or_insert_with(|| value.clone());
                }
                let (section, name) = (section.clone(), name.to_owned());
                options.push(AccelPppOption { line, section, name, value, state });
            }
            depth += usize::from(outer.is_some());
        }
        options
    }

    /// Imports a setting, or reports that it holds anyway.
    fn import_option(
        &mut self,
        section: &str,
        name: &str,
        value: &str,
        modules: &BTreeSet<&str>,
    ) -> SettingOutcome {
        if is_unsupported_access_restriction(section, name, value) {
            return SettingOutcome::Stop;
        }
        match (section, name) {
            ("modules", "auth_mschap_v2") => self.add_protocol("mschapv2"),
            ("modules", "auth_chap_md5") => self.add_protocol("chap"),
            ("modules", "auth_pap") => self.add_protocol("pap"),
            ("modules", "radius") => self.radius = true,
            ("modules", "shaper") => {
                return SettingOutcome::WithNote(
                    "write rates as [[rate]]; an AAA server selects one by Filter-Id",
                );
            }
            ("modules", "pppoe" | "ippool" | "ipv6pool" | "ipv6_nd" | "ipv6_dhcp" | "log_file") => {}
            (_, "verbose") => {}
            ("common", "single-session") if matches!(value, "replace" | "deny") => {
                self.set_limit("sessions_per_user", "1".to_owned());
                let excess = if value == "deny" { "refuse" } else { "replace" };
                self.set_limit("excess", super::quote_toml(excess));
            }
            ("common", "max-sessions") => match parse_number(value) {
                Some(most @ 1..=65_534) => self.set_limit("sessions", format!("{most}")),
                _ => return SettingOutcome::No,
            },
            ("ppp", "lcp-echo-interval") => match parse_number(value) {
                Some(seconds) => self.set_limit("keepalive", super::quote_toml(&format!("{seconds} s"))),
                None => return SettingOutcome::No,
            },
            ("ppp", "lcp-echo-failure") => match parse_number(value) {
                Some(failures @ 1..) => self.set_limit("keepalive_failures", format!("{failures}")),
                _ => return SettingOutcome::No,
            },
            ("ppp" | "pppoe", "mppe") if value == "deny" => {}
            // accel-ppp also accepts the words as numbers, which begin with 0 for `deny`.
            ("ppp", "ipv4" | "ipv6") => {
                let has = match value {
                    "deny" | "0" => false,
                    "allow" | "prefer" | "prefere" | "1" | "2" => true,
                    _ => return SettingOutcome::No,
                };
                if name == "ipv4" { self.denies_ipv4 = !has } else { self.ipv6 = Some(has) }
            }
            // A regular expression also matches interfaces that do not exist yet, so it has no equivalent here.
            ("pppoe", "interface") if value.starts_with("re:") => return SettingOutcome::No,
            ("pppoe", "interface") => {
                let mut parts = value.split(',');
                self.interfaces.extend(parts.next().map(ToOwned::to_owned));
                if parts.next().is_some() {
                    return SettingOutcome::Part("the text after the name");
                }
            }
            ("pppoe", "ip-pool") => self.pool = Some(value.to_owned()),
            ("pppoe", "ac-name") => self.name = Some(value.to_owned()),
            ("pppoe", "AC-Name") if self.name.is_none() => self.name = Some(value.to_owned()),
            ("pppoe", "service-name" | "Service-Name") => {
                if name == "service-name" || self.services.is_empty() {
                    let names = value.split(',').filter(|name| !name.is_empty());
                    self.services = names.map(ToOwned::to_owned).collect();
                }
            }
            // The import of `service-name` already covers these two settings.
            ("pppoe", "accept-any-service" | "accept-blank-service") => {}
            ("pppoe", "tr101") => self.trust_circuit_id = atoi(value) != 0,
            ("dns", "dns1" | "dns2") => match value.parse() {
                // dns1 comes first, whichever of the two lines comes first in the file.
                Ok(address) if name == "dns1" => self.dns.insert(0, address),
                Ok(address) => self.dns.push(address),
                Err(_) => return SettingOutcome::No,
            },
            ("ipv6-dns", address) => match address.parse() {
                Ok(address) => self.dns.push(address),
                Err(_) => return SettingOutcome::No,
            },
            ("radius" | "ip-pool" | "chap-secrets", "gw-ip-address") => {
                match value.split('/').next().map(str::parse) {
                    Some(Ok(address)) if self.address.is_none_or(|known| known == address) => {
                        self.address = Some(address);
                    }
                    Some(Ok(_)) => return SettingOutcome::Part("a second, different address"),
                    _ => return SettingOutcome::No,
                }
            }
            ("radius", "nas-identifier") => self.identifier = Some(value.to_owned()),
            ("radius", "nas-ip-address") => match value.parse() {
                Ok(address) => self.nas_address = Some(address),
                Err(_) => return SettingOutcome::No,
            },
            ("radius", "server") => return self.import_server(value),
            ("radius", "dae-server") => match value.split(',').next() {
                Some(address) if address.contains(':') => {
                    self.dynamic = Some(address.to_owned());
                    return SettingOutcome::Part("the secret (each server of [[aaa.radius]] uses its own)");
                }
                _ => return SettingOutcome::No,
            },
            ("radius", "acct-interim-interval") => match parse_number(value) {
                // In accel-ppp, 0 means no interim records.
                Some(0) => {}
                Some(seconds) => self.interim = Some(format!("{seconds} s")),
                None => return SettingOutcome::No,
            },
            ("ip-pool", range_or_key) => return self.import_pool(range_or_key, value),
            ("ipv6-pool", "delegate") => match translate_prefix_range(value) {
                Some(range) if modules.contains("ipv6_dhcp") => self.delegated.push(range),
                Some(_) => {
                    return SettingOutcome::WithNote(
                        "not imported: delegation needs the module ipv6_dhcp in [modules]",
                    );
                }
                None => return SettingOutcome::No,
            },
            ("ipv6-pool", range) if value.is_empty() => match translate_prefix_range(range) {
                Some(range) => self.prefixes.push(range),
                None => return SettingOutcome::No,
            },
            _ => return SettingOutcome::No,
        }
        SettingOutcome::Complete
    }

    /// Imports `10.0.0.2-255,name=pool1` or `10.0.0.2-255,pool1`. The parser may have split the line at its first `=`.
    fn import_pool(&mut self, key: &str, value: &str) -> SettingOutcome {
        let (addresses, name) = match key.split_once(',') {
            Some((addresses, "name")) => (addresses, value),
            Some((addresses, name)) if value.is_empty() && !name.contains(',') => (addresses, name),
            Some(_) => return SettingOutcome::No,
            None if value.is_empty() => (key, "default"),
            None => return SettingOutcome::complete_if(key == "attr" && value == "Framed-Pool"),
        };
        // Parameters after the name, such as next=, are unsupported.
        let whole = !name.contains(',');
        let name = name.split(',').next().unwrap_or_default();
        // With `allocator=`, the pool has only a part of the range, such as every second address of four.
        if !whole && value.contains("allocator=") {
            return SettingOutcome::No;
        }
        let Some(range) = parse_range(addresses) else { return SettingOutcome::No };
        match self.pool_index.get(name).and_then(|n| self.pools.get_mut(*n)) {
            Some((_, pool)) => pool.ranges.push(range),
            None => {
                self.pool_index.insert(name.to_owned(), self.pools.len());
                self.pools.push((name.to_owned(), super::ImportedPool { ranges: Vec::from([range]) }));
            }
        }
        if whole { SettingOutcome::Complete } else { SettingOutcome::Part("the text after the name") }
    }

    /// Imports `192.0.2.1,secret,auth-port=1812,acct-port=1813,...` or `192.0.2.1,secret,1812,1813`. Blanks are
    /// significant.
    fn import_server(&mut self, value: &str) -> SettingOutcome {
        let Some((address, rest)) = value.split_once(',') else { return SettingOutcome::No };
        let (secret, rest) = match rest.split_once(',') {
            Some((secret, rest)) => (secret, Some(rest)),
            None => (rest, None),
        };
        if address.parse::<IpAddr>().is_err() || secret.contains('\u{fffd}') {
            return SettingOutcome::No;
        }
        let ports = rest.map_or(Some(ServerPorts::default()), |rest| {
            ServerPorts::parse_positional_ports(rest).or_else(|| ServerPorts::parse_named_ports(rest))
        });
        let Some(ports) = ports.filter(|ports| ports.auth > 0) else { return SettingOutcome::No };
        // Port 0 means none.
        let acct = if ports.acct > 0 { ports.acct } else { 1813 };
        let at = |port: u16| {
            if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
        };
        self.servers.push((at(ports.auth), secret.to_owned(), at(acct)));
        if ports.is_whole && ports.acct > 0 {
            SettingOutcome::Complete
        } else {
            SettingOutcome::Part("the text after the ports")
        }
    }
}

/// The ports of a RADIUS server, as accel-ppp's `serv.c` reads the part after the secret.
struct ServerPorts {
    auth: u16,
    acct: u16,
    /// True if there is no other parameter.
    is_whole: bool,
}

impl Default for ServerPorts {
    fn default() -> Self {
        Self { auth: 1812, acct: 1813, is_whole: true }
    }
}

impl ServerPorts {
    /// Parses `1812,1813` like `parse_server1`: numbers only. An empty one means no port.
    fn parse_positional_ports(rest: &str) -> Option<Self> {
        let port = |text: &str| if text.is_empty() { Some(0) } else { parse_port(text) };
        let (auth, acct) = rest.split_once(',').map_or((rest, None), |(auth, acct)| (auth, Some(acct)));
        Some(Self { auth: port(auth)?, acct: acct.map_or(Some(1813), port)?, is_whole: true })
    }

    /// Parses `auth-port=1812,acct-port=1813` like `parse_server2`: the first of each name. An invalid number drops the
    /// server.
    fn parse_named_ports(rest: &str) -> Option<Self> {
        let first = |name: &str| rest.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        let port = |name: &str, otherwise: u16| first(name).map_or(Some(otherwise), parse_port);
        let is_number = |name: &&str| first(name).is_none_or(|text| leading_number(text).1.is_empty());
        if !["req-limit", "fail-timeout", "fail-time", "max-fail"].iter().all(is_number) {
            return None;
        }
        let is_port = |part: &str| part.starts_with("auth-port=") || part.starts_with("acct-port=");
        Some(Self {
            auth: port("auth-port", 1812)?,
            acct: port("acct-port", 1813)?,
            is_whole: rest.split(',').all(is_port),
        })
    }
}
