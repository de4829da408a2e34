//! Files of other concentrators, as a configuration of ours, with all of them that cannot be taken: accel-ppp's `accel-ppp.conf`,
//! and the options of pppd that rp-pppoe's `pppoe-server` is run with (`pppoe-server-options`).

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

/// What a file is here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Imported {
    /// A configuration of ours. Interfaces, secrets and whatever the file does not say are to be filled in.
    pub text: String,
    /// What could not be taken: the line of each, from 1, and a sentence.
    pub left: Vec<(usize, String)>,
    /// What could not be taken, and would let in more if it were left out: likewise. Without it the configuration is not to be used.
    pub stops: Vec<(usize, String)>,
}

/// What of a setting is taken.
enum SettingOutcome {
    Whole,
    /// But for this.
    Part(&'static str),
    No,
    /// Nothing, and without it more would be let in.
    Stop,
}

impl SettingOutcome {
    const fn if_so(whole: bool) -> Self {
        if whole { Self::Whole } else { Self::No }
    }
}

/// A pool.
#[derive(Debug, Default)]
struct Pool {
    ranges: Vec<String>,
}

#[derive(Debug, Default)]
struct Importer {
    left: Vec<(usize, String)>,
    stops: Vec<(usize, String)>,
    interfaces: Vec<String>,
    name: Option<String>,
    services: Vec<String>,
    address: Option<Ipv4Addr>,
    dns: Vec<IpAddr>,
    protocols: Vec<&'static str>,
    /// In the order of the file.
    pools: Vec<(String, Pool)>,
    /// The pool of whom no AAA server says another for.
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
    ipv6: Option<bool>,
    trust_circuit_id: bool,
}

/// Reads either kind of file: one with sections in brackets is accel-ppp's.
#[must_use]
pub fn import(text: &str) -> Imported {
    let mut importer = Importer::default();
    if text.lines().any(|line| line.trim_start().starts_with('[')) {
        importer.accel(text);
    } else {
        importer.options(text);
    }
    importer.write()
}

fn quoted(text: &str) -> String {
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

fn list(all: &[String]) -> String {
    let all: Vec<String> = all.iter().map(|one| quoted(one)).collect();
    format!("[{}]", all.join(", "))
}

/// A range as accel-ppp has it: `10.0.0.2-255` counts in the last octet, `10.0.0.0/24` is a network.
fn range(text: &str) -> Option<String> {
    if let Some((first, last)) = text.split_once('-') {
        let first: Ipv4Addr = first.trim().parse().ok()?;
        let last: Ipv4Addr = match last.trim().parse::<u8>() {
            Ok(last) => {
                let [a, b, c, _] = first.octets();
                Ipv4Addr::new(a, b, c, last)
            }
            Err(_) => last.trim().parse().ok()?,
        };
        return (first <= last).then(|| format!("{first}-{last}"));
    }
    let (network, bits) = text.split_once('/')?;
    let (network, bits): (Ipv4Addr, u8) = (network.parse().ok()?, bits.parse().ok()?);
    (bits <= 32).then(|| format!("{network}/{bits}"))
}

/// `fc00:0:1::/48,64`: each /64 of the /48.
fn prefixes(text: &str) -> Option<String> {
    let (network, each) = text.split_once(',')?;
    let made = format!("{}/{}", network.trim(), each.trim());
    made.parse::<usher_access::pool::Range>().is_ok().then_some(made)
}

impl Importer {
    fn leave(&mut self, line: usize, what: &str) {
        self.left.push((line, format!("{what} is not taken")));
    }

    fn protocol(&mut self, name: &'static str) {
        if !self.protocols.contains(&name) {
            self.protocols.push(name);
        }
    }

    /// accel-ppp's file.
    fn accel(&mut self, text: &str) {
        let mut section = String::new();
        for (n, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                name.clone_into(&mut section);
                continue;
            }
            let (key, value) =
                line.split_once('=').map_or((line, ""), |(key, value)| (key.trim(), value.trim()));
            // What stands behind the key may be a secret.
            match self.taken(&section, key, value) {
                SettingOutcome::Whole => {}
                SettingOutcome::Part(what) => self.leave(n, &format!("{what} in {key} of [{section}]")),
                SettingOutcome::No => self.leave(n, &format!("{key} of [{section}]")),
                SettingOutcome::Stop => {
                    let what = "is not taken, and without it more would be let in";
                    self.stops.push((n, format!("{key} of [{section}] {what}")));
                }
            }
        }
    }

    /// What of a setting of accel-ppp's is taken, or says what is so anyway.
    fn taken(&mut self, section: &str, key: &str, value: &str) -> SettingOutcome {
        match (section, key) {
            ("modules", "auth_mschap_v2") => self.protocol("mschapv2"),
            ("modules", "auth_chap_md5") => self.protocol("chap"),
            ("modules", "auth_pap") => self.protocol("pap"),
            ("modules", "radius") => self.radius = true,
            (
                "modules",
                "pppoe" | "ippool" | "ipv6pool" | "ipv6_nd" | "ipv6_dhcp" | "log_file" | "shaper",
            ) => {}
            (_, "verbose") => {}
            ("common", "single-session") if matches!(value, "replace" | "deny") => {
                self.limits.push(("sessions_per_user", "1".to_owned()));
                let excess = if value == "deny" { "refuse" } else { "replace" };
                self.limits.push(("excess", quoted(excess)));
            }
            ("common", "max-sessions") if value.parse::<u32>().is_ok_and(|n| (1..=65_534).contains(&n)) => {
                self.limits.push(("sessions", value.to_owned()));
            }
            ("ppp", "lcp-echo-interval") if value.parse::<u32>().is_ok() => {
                self.limits.push(("keepalive", quoted(&format!("{value} s"))));
            }
            ("ppp", "lcp-echo-failure") if value.parse::<u32>().is_ok_and(|n| n > 0) => {
                self.limits.push(("keepalive_failures", value.to_owned()));
            }
            ("ppp", "ipv6") => self.ipv6 = Some(value != "deny"),
            ("ppp", "ipv4") if value != "deny" => {}
            // An expression is of interfaces that are not there yet.
            ("pppoe", "interface") if value.starts_with("re:") => return SettingOutcome::No,
            ("pppoe", "interface") => {
                let mut parts = value.split(',');
                self.interfaces.extend(parts.next().map(ToOwned::to_owned));
                if parts.next().is_some() {
                    return SettingOutcome::Part("what stands behind its name");
                }
            }
            ("pppoe", "ip-pool") => self.pool = Some(value.to_owned()),
            // Who is on it is kept out, or alone let in.
            ("pppoe", "mac-filter") => return SettingOutcome::Stop,
            ("pppoe", "ac-name") => self.name = Some(value.to_owned()),
            ("pppoe", "service-name") => {
                self.services = value.split(',').map(|one| one.trim().to_owned()).collect()
            }
            ("pppoe", "tr101") => self.trust_circuit_id = value == "1",
            ("dns", "dns1" | "dns2") => match value.parse() {
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
                    Some(Ok(_)) => return SettingOutcome::Part("an address that is another than before"),
                    _ => return SettingOutcome::No,
                }
            }
            ("radius", "nas-identifier") => self.identifier = Some(value.to_owned()),
            ("radius", "nas-ip-address") => match value.parse() {
                Ok(address) => self.nas_address = Some(address),
                Err(_) => return SettingOutcome::No,
            },
            ("radius", "server") => return self.server(value),
            ("radius", "dae-server") => match value.split(',').next() {
                Some(address) if address.contains(':') => self.dynamic = Some(address.to_owned()),
                _ => return SettingOutcome::No,
            },
            ("radius", "acct-interim-interval") if value.parse::<u32>().is_ok() => {
                self.interim = Some(format!("{value} s"));
            }
            ("ip-pool", range_or_key) => return self.pool(range_or_key, value),
            ("ipv6-pool", "delegate") => match prefixes(value) {
                Some(range) => self.delegated.push(range),
                None => return SettingOutcome::No,
            },
            ("ipv6-pool", range) => match prefixes(range) {
                Some(range) => self.prefixes.push(range),
                None => return SettingOutcome::No,
            },
            _ => return SettingOutcome::No,
        }
        SettingOutcome::Whole
    }

    /// `10.0.0.2-255,name=pool1`: the line may have been cut at its first `=`.
    fn pool(&mut self, key: &str, value: &str) -> SettingOutcome {
        let (addresses, name) = match key.split_once(',') {
            Some((addresses, "name")) => (addresses, value),
            Some(_) => return SettingOutcome::No,
            None if value.is_empty() => (key, "default"),
            None => return SettingOutcome::if_so(key == "attr" && value == "Framed-Pool"),
        };
        // What follows the name, such as next=, is of no pool of ours.
        let whole = !name.contains(',');
        let name = name.split(',').next().unwrap_or_default();
        let Some(range) = range(addresses) else { return SettingOutcome::No };
        match self.pools.iter_mut().find(|(known, _)| known == name) {
            Some((_, pool)) => pool.ranges.push(range),
            None => self.pools.push((name.to_owned(), Pool { ranges: Vec::from([range]) })),
        }
        if whole { SettingOutcome::Whole } else { SettingOutcome::Part("what stands behind its name") }
    }

    /// `192.0.2.1,secret,auth-port=1812,acct-port=1813,...`.
    fn server(&mut self, value: &str) -> SettingOutcome {
        let mut parts = value.split(',').map(str::trim);
        let (Some(address), Some(secret)) = (parts.next(), parts.next()) else { return SettingOutcome::No };
        if address.parse::<IpAddr>().is_err() || secret.contains('\u{fffd}') {
            return SettingOutcome::No;
        }
        let (mut auth, mut acct, mut whole) = ("1812", "1813", true);
        for part in parts {
            match part.split_once('=') {
                // Port 0 is none.
                Some(("auth-port", "0")) => return SettingOutcome::No,
                Some(("auth-port", port)) => auth = port,
                Some(("acct-port", "0")) => whole = false,
                Some(("acct-port", port)) => acct = port,
                _ => whole = false,
            }
        }
        let at = |port: &str| {
            if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
        };
        self.radius = true;
        self.servers.push((at(auth), secret.to_owned(), at(acct)));
        if whole { SettingOutcome::Whole } else { SettingOutcome::Part("what stands behind its ports") }
    }

    /// Options of pppd.
    fn options(&mut self, text: &str) {
        for (n, line) in (1..).zip(text.lines()) {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let Some((option, words)) = words.split_first() else { continue };
            let value = words.first().copied().unwrap_or_default();
            match *option {
                "require-pap" | "+pap" => self.protocol("pap"),
                "require-chap" | "+chap" => self.protocol("chap"),
                "require-mschap-v2" | "+mschap-v2" => self.protocol("mschapv2"),
                "require-eap" => self.protocol("eap"),
                "lcp-echo-interval" if value.parse::<u32>().is_ok() => {
                    self.limits.push(("keepalive", quoted(&format!("{value} s"))));
                }
                "lcp-echo-failure" if value.parse::<u32>().is_ok_and(|n| n > 0) => {
                    self.limits.push(("keepalive_failures", value.to_owned()));
                }
                "idle" if value.parse::<u32>().is_ok() => {
                    self.limits.push(("idle_timeout", quoted(&format!("{value} s"))));
                }
                "maxconnect" if value.parse::<u32>().is_ok() => {
                    self.limits.push(("session_timeout", quoted(&format!("{value} s"))));
                }
                "ms-dns" if value.parse::<Ipv4Addr>().is_ok() => self.dns.extend(value.parse::<IpAddr>()),
                "plugin" if value.ends_with("radius.so") => {
                    self.radius = true;
                    self.left.push((
                        n,
                        "the servers of radiusclient's own file are not known here: write [[aaa.radius]]"
                            .to_owned(),
                    ));
                }
                "+ipv6" => self.ipv6 = Some(true),
                "ipv6" => {
                    self.ipv6 = Some(true);
                    self.leave(n, line.trim());
                }
                "noipv6" | "-ipv6" => self.ipv6 = Some(false),
                // What is so anyway, or of a link's other end.
                "auth" | "lock" | "nodefaultroute" | "noproxyarp" | "nobsdcomp" | "nodeflate" | "noccp"
                | "novj" | "novjccomp" | "noipx" | "refuse-pap" | "refuse-chap" | "refuse-mschap"
                | "ipcp-accept-remote" => {}
                _ => self.leave(n, line.trim()),
            }
        }
    }

    fn write(mut self) -> Imported {
        let mut out: Vec<String> = Vec::new();
        let mut missing = |what: &str| self.left.push((0, what.to_owned()));
        if self.interfaces.is_empty() {
            missing("the interfaces are not in the file: write [listen] interfaces");
        }
        if self.address.is_none() {
            missing("the concentrator's own address is not in the file: write [service] address");
        }
        if self.pools.is_empty() {
            missing(
                "addresses for hosts are not in the file: write a [[pool]], and name it in [service] pools",
            );
        }
        if self.ipv6 == Some(true) && self.prefixes.is_empty() && self.servers.is_empty() {
            missing(
                "IPv6 is wanted and prefixes for hosts are not in the file: write a [[pool]], and name it in [service] prefix_pool",
            );
        }
        if self.radius && self.servers.is_empty() {
            missing("the RADIUS servers are not in the file: write [[aaa.radius]]");
        }
        if !self.radius {
            missing(
                "passwords stand in files of pppd's, chap-secrets and pap-secrets: write a [[user]] for each",
            );
        }
        out.push(format!("[listen]\ninterfaces = {}", list(&self.interfaces)));
        out.push("\n[service]".to_owned());
        out.extend(self.name.as_ref().map(|name| format!("name = {}", quoted(name))));
        if !self.services.is_empty() {
            out.push(format!("services = {}", list(&self.services)));
        }
        out.extend(self.address.map(|address| format!("address = \"{address}\"")));
        // Those of other names are for whom an AAA server names them.
        let first = self.pool.take().unwrap_or_else(|| "default".to_owned());
        if self.pools.iter().any(|(name, _)| *name == first) {
            out.push(format!("pools = {}", list(&[first])));
        } else if !self.pools.is_empty() {
            self.left.push((
                0,
                "which [[pool]] hosts get addresses of is not in the file: write [service] pools".to_owned(),
            ));
        }
        let with_ipv6 = self.ipv6 != Some(false);
        if with_ipv6 && !self.prefixes.is_empty() {
            out.push("prefix_pool = \"prefixes\"".to_owned());
        }
        if with_ipv6 && !self.delegated.is_empty() {
            out.push("delegated_pool = \"delegated\"".to_owned());
        }
        if !self.dns.is_empty() {
            let all: Vec<String> = self.dns.iter().map(ToString::to_string).collect();
            out.push(format!("dns = {}", list(&all)));
        }
        if self.trust_circuit_id {
            out.push("trust_circuit_id = true".to_owned());
        }
        if !self.protocols.is_empty() {
            let all: Vec<String> = self.protocols.iter().map(|one| (*one).to_owned()).collect();
            out.push(format!("\n[authentication]\nprotocols = {}", list(&all)));
        }
        for (name, pool) in &self.pools {
            out.push(format!("\n[[pool]]\nname = {}\nranges = {}", quoted(name), list(&pool.ranges)));
        }
        for (name, ranges) in [("prefixes", &self.prefixes), ("delegated", &self.delegated)] {
            if with_ipv6 && !ranges.is_empty() {
                out.push(format!("\n[[pool]]\nname = \"{name}\"\nranges = {}", list(ranges)));
            }
        }
        if !self.servers.is_empty() {
            out.push("\n[aaa]\naccounting = true".to_owned());
            let identifier = self.identifier.as_deref().or(self.name.as_deref()).unwrap_or("usher");
            out.push(format!("nas_identifier = {}", quoted(identifier)));
            out.extend(self.nas_address.map(|address| format!("nas_address = \"{address}\"")));
            out.extend(self.interim.as_ref().map(|every| format!("interim = {}", quoted(every))));
            for (address, secret, accounting) in &self.servers {
                out.push(format!(
                    "[[aaa.radius]]\naddress = {}\nacct_address = {}\nsecret = {}",
                    quoted(address),
                    quoted(accounting),
                    quoted(secret)
                ));
            }
            out.extend(
                self.dynamic.as_ref().map(|address| format!("[aaa.dynamic]\nlisten = {}", quoted(address))),
            );
        }
        if !self.limits.is_empty() {
            out.push("\n[limits]".to_owned());
            out.extend(self.limits.iter().map(|(key, value)| format!("{key} = {value}")));
        }
        out.push("\n[tracking]\n".to_owned());
        Imported { text: out.join("\n"), left: self.left, stops: self.stops }
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;
    use usher_config::Alone;
    use usher_core::WallTime;
    use usher_crypto::tls::WallClock;

    const ACCEL: &str = "[modules]\npppoe\nauth_mschap_v2\nauth_chap_md5\nradius\nippool\nl2tp\n\
        [ppp]\nlcp-echo-interval=20\nmtu=1400\n[pppoe]\nac-name=campus\ninterface=eth1\ninterface=eth2,padi-limit=10\n\
        [dns]\ndns1=172.16.0.1\n[radius]\nnas-identifier=accel\ngw-ip-address=192.168.100.1\n\
        server=192.0.2.5,a \"secret\",auth-port=1812,acct-port=1813,weight=1\ndae-server=127.0.0.1:3799,testing123\n\
        [common]\nsingle-session=replace\n# a remark\n\
        [ip-pool]\nattr=Framed-Pool\n192.168.0.2-255\n192.168.1.1-255,name=guests\n192.168.4.0/24,name=more,next=guests\n\
        [ipv6-pool]\nfc00:0:1::/48,64\ndelegate=fc00:1::/36,48\n";

    fn read(text: &str) -> crate::config::Loaded {
        let clock = WallClock::at(WallTime::UNIX_EPOCH);
        crate::config::parse("pppoe.toml", text, &Alone, &clock)
            .unwrap_or_else(|faults| panic!("{faults}\n{text}"))
    }

    #[test]
    fn a_file_of_accel_ppp_becomes_one_of_ours_and_what_is_left_is_named() {
        let imported = import(ACCEL);
        let loaded = read(&imported.text);
        assert_eq!(loaded.config.ports, ["eth1", "eth2"]);
        assert_eq!(loaded.config.ppp.name, "campus");
        assert_eq!(loaded.config.pools.len(), 5);
        assert_eq!(loaded.config.limits.sessions_per_user, 1);
        assert_eq!(loaded.file.authentication.protocols.len(), 2);
        assert!(loaded.config.aaa.is_some_and(|aaa| aaa.accounting && aaa.nas.identifier == "accel"));
        let left: Vec<usize> = imported.left.iter().map(|(line, _)| *line).collect();
        assert_eq!(left, [7, 10, 14, 20, 29], "{:?}", imported.left);
        assert_eq!(imported.left[0].1, "l2tp of [modules] is not taken");
        assert_eq!(imported.left[2].1, "what stands behind its name in interface of [pppoe] is not taken");
        assert_eq!(
            loaded.config.addressing.pools,
            ["default"],
            "others are for whom an AAA server names them"
        );
        assert!(!imported.left.iter().any(|(_, what)| what.contains("secret")), "{:?}", imported.left);
    }

    #[test]
    fn the_pool_that_is_named_is_the_first_and_a_filter_stops_the_import() {
        let pools = "[ip-pool]\ngw-ip-address=10.0.0.1\n10.9.0.0/24,name=blocked\n10.1.0.0/24,name=users\n";
        let pool = |text: &str| read(&format!("{}\n", import(text).text)).config.addressing.pools;
        assert_eq!(pool(&format!("[pppoe]\ninterface=eth1\nip-pool=users\n{pools}")), ["users"]);
        let two = import(&format!("{pools}gw-ip-address=10.0.0.2\n[pppoe]\ninterface=re:eth.*\n"));
        assert!(
            two.text.contains("address = \"10.0.0.1\"") && two.text.contains("interfaces = []"),
            "{}",
            two.text
        );
        assert!(two.left.iter().any(|(line, what)| *line == 5 && what.contains("another than before")));
        assert!(import("[pppoe]\ninterface=eth1\n").stops.is_empty());
        assert_eq!(import("[pppoe]\nmac-filter=/etc/list,deny\n").stops[0].0, 2);
    }

    #[test]
    fn options_of_pppd_become_what_they_can() {
        let text = "# PPP options\nrequire-chap\nlcp-echo-interval 10\nlcp-echo-failure 2\nms-dns 10.0.0.53\nproxyarp\nlogin\n";
        let imported = import(text);
        assert!(
            imported.text.contains("protocols = [\"chap\"]")
                && imported.text.contains("keepalive = \"10 s\"")
        );
        let left: Vec<usize> = imported.left.iter().map(|(line, _)| *line).filter(|line| *line > 0).collect();
        assert_eq!(left, [6, 7], "{:?}", imported.left);
        let whole = imported
            .text
            .replace("interfaces = []", "interfaces = [\"eth1\"]")
            .replace("[service]\n", "[service]\naddress = \"10.0.0.1\"\npools = [\"p\"]\n")
            + "[[pool]]\nname = \"p\"\nranges = [\"10.0.0.0/24\"]\n";
        assert_eq!(read(&whole).config.addressing.dns.len(), 1);
    }

    #[test]
    fn a_server_without_accounting_is_named() {
        let of = |port: &str| {
            let server = format!("server=192.0.2.5,a secret,auth-port=1812,acct-port={port}\n");
            import(&format!("[modules]\nradius\n[pppoe]\ninterface=eth1\n[radius]\n{server}"))
        };
        let named = |imported: &Imported| imported.left.iter().any(|(line, _)| *line == 6);
        assert!(!named(&of("1813")) && named(&of("0")) && !of("0").text.contains(":0"), "{}", of("0").text);
    }

    #[test]
    fn ipv6_of_pppds_options_is_asked_for_or_named() {
        let named = |text: &str| -> Vec<usize> {
            let left = import(text).left.into_iter();
            left.filter(|(line, what)| *line > 0 || what.contains("IPv6")).map(|(line, _)| line).collect()
        };
        assert_eq!(named("require-chap\nipv6 ::1,::2\n"), [2, 0]);
        assert_eq!((named("+ipv6\n"), named("noipv6\n"), named("")), (vec![0], vec![], vec![]));
        assert_eq!(named("ipv6cp-use-ipaddr\n192.0.2.1:192.0.2.100\n"), [1, 2]);
        assert!(import("+mschap-v2\n").text.contains("protocols = [\"mschapv2\"]"));
        // Where an AAA server may give prefixes, nothing is missing.
        let radius = "[modules]\nradius\n[ppp]\nipv6=allow\n[radius]\nserver=192.0.2.5,a secret\n";
        let without = radius.replace("server=192.0.2.5,a secret", "");
        assert_eq!((named(radius), named(&without)), (vec![], vec![0]));
    }

    #[test]
    fn any_text_is_borne() {
        for text in [
            "",
            "[",
            "[pppoe\ninterface",
            "[ip-pool]\n1-2\n1.2.3.4-\n=\n,name=\n",
            "[radius]\nserver=\nserver=a,b\n",
            "\u{0}\"\\\n",
        ] {
            let _ = import(text);
        }
    }
}
