//! strongSwan's `swanctl.conf`, as a configuration of ours, with all of it that cannot be taken.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::IpAddr;
use usher_ike::payload::Proposal;

/// How deep sections may stand within each other.
const DEEPEST: usize = 16;

/// What a `swanctl.conf` is here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    /// A configuration of ours.
    pub text: String,
    /// What could not be taken: the line of each, and a sentence.
    pub left: Vec<(usize, String)>,
}

/// A text that is no `swanctl.conf`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct SwanctlError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

#[derive(Clone, Debug, Default)]
struct Section {
    line: usize,
    values: Vec<(String, String, usize)>,
    sections: Vec<(String, Section)>,
}

impl Section {
    fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|(n, _)| n == name).map(|(_, section)| section)
    }
}

/// A line without its comment: a `#` that is quoted begins none.
fn uncommented(line: &str) -> &str {
    let mut quoted = false;
    let end = line.char_indices().find(|(_, c)| {
        quoted ^= *c == '"';
        *c == '#' && !quoted
    });
    end.map_or(line, |(at, _)| &line[..at])
}

/// Reads strongSwan's settings: `name { key = value ... }`, `#` before what is not read.
fn read(text: &str) -> Result<Section, SwanctlError> {
    let wrong = |line: usize, what: &str| SwanctlError { line, what: what.to_owned() };
    let mut open = alloc::vec![(String::new(), Section::default())];
    for (n, line) in text.lines().enumerate() {
        let n = n + 1;
        let mut rest = uncommented(line).trim();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('}') {
                let Some((name, section)) = open.pop().filter(|_| !open.is_empty()) else {
                    return Err(wrong(n, "\"}\" closes nothing"));
                };
                if let Some((_, parent)) = open.last_mut() {
                    parent.sections.push((name, section));
                }
                rest = after.trim();
                continue;
            }
            if let Some(file) = rest.strip_prefix("include ") {
                let what =
                    alloc::format!("files are not included; put what {} holds in its place", file.trim());
                return Err(SwanctlError { line: n, what });
            }
            let (key, brace) = match (rest.find('='), rest.find('{')) {
                (Some(equals), Some(brace)) if equals < brace => (equals, false),
                (_, Some(brace)) => (brace, true),
                (Some(equals), None) => (equals, false),
                (None, None) => return Err(wrong(n, "neither a section nor a value")),
            };
            let name = rest[..key].trim().to_owned();
            let after = rest[key + 1..].trim();
            if brace {
                if open.len() > DEEPEST {
                    return Err(wrong(n, "sections are too deep within each other"));
                }
                open.push((name, Section { line: n, ..Section::default() }));
                rest = after;
                continue;
            }
            let (value, left) = match after.strip_prefix('"').and_then(|after| after.split_once('"')) {
                Some((value, left)) => (value, left.trim()),
                None if after.starts_with('"') => {
                    return Err(wrong(n, "a quotation is not closed; it must end in its line"));
                }
                None => after.find('}').map_or((after, ""), |end| (after[..end].trim(), &after[end..])),
            };
            if let Some((_, section)) = open.last_mut() {
                section.values.push((name, value.to_owned(), n));
            }
            rest = left;
        }
    }
    match (open.pop(), open.is_empty()) {
        (Some((_, root)), true) => Ok(root),
        (Some((name, section)), false) => {
            Err(SwanctlError { line: section.line, what: alloc::format!("\"{name}\" is not closed") })
        }
        (None, _) => Err(wrong(1, "nothing is there")),
    }
}

/// Makes a configuration of ours of a `swanctl.conf`.
///
/// # Errors
/// It is none.
pub fn import(text: &str) -> Result<Imported, SwanctlError> {
    let root = read(text)?;
    let mut importer = Importer {
        out: String::new(),
        left: Vec::new(),
        secrets: Vec::new(),
        methods: Vec::new(),
        asks: false,
        revocation: None,
        shows: true,
    };
    importer.secrets(&root);
    for (name, section) in &root.sections {
        match name.as_str() {
            "connections" => {
                for (name, connection) in &section.sections {
                    importer.connection(name, connection);
                }
            }
            "pools" => {
                for (name, pool) in &section.sections {
                    importer.pool(name, pool);
                }
            }
            "secrets" => {}
            other => importer.leave(section.line, &alloc::format!("the section {other}")),
        }
    }
    importer.rest();
    importer.left.sort();
    Ok(Imported { text: importer.out, left: importer.left })
}

/// A secret: of IKE or EAP, for these identities.
struct Secret {
    eap: bool,
    ids: Vec<String>,
    secret: String,
}

struct Importer {
    out: String,
    left: Vec<(usize, String)>,
    secrets: Vec<Secret>,
    /// EAP methods by which users of its own are judged.
    methods: Vec<&'static str>,
    /// Connections are judged by AAA servers.
    asks: bool,
    /// How certificates are looked at that are taken back.
    revocation: Option<&'static str>,
    shows: bool,
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c.is_control() => {
                // Writing to a text does not fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn list(texts: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = texts.into_iter().map(|text| quoted(&text)).collect();
    alloc::format!("[{}]", all.join(", "))
}

fn words(value: &str) -> impl Iterator<Item = String> {
    value.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty())
}

/// `4h`, `90s`, `1d`, a number of seconds.
fn time(value: &str) -> Option<String> {
    let value = value.trim();
    let (number, unit) = match value.char_indices().last()? {
        (end, 's') => (&value[..end], "s"),
        (end, 'm') => (&value[..end], "min"),
        (end, 'h') => (&value[..end], "h"),
        (end, 'd') => (&value[..end], "d"),
        _ => (value, "s"),
    };
    let number: u64 = number.trim().parse().ok()?;
    Some(alloc::format!("{number} {unit}"))
}

fn yes(value: &str) -> bool {
    matches!(value, "yes" | "true" | "1" | "enabled" | "accept" | "force")
}

impl Importer {
    fn leave(&mut self, line: usize, what: &str) {
        self.left.push((line, alloc::format!("{what} is not taken")));
    }
    fn note(&mut self, line: usize, what: String) {
        self.left.push((line, what));
    }
    fn set(&mut self, key: &str, value: &str) {
        // Writing to a text does not fail.
        let _ = writeln!(self.out, "{key} = {value}");
    }
    fn text(&mut self, key: &str, value: &str) {
        self.set(key, &quoted(value));
    }

    fn secrets(&mut self, root: &Section) {
        let Some(secrets) = root.section("secrets") else { return };
        for (name, section) in &secrets.sections {
            let (ike, eap) = (name.starts_with("ike"), name.starts_with("eap") || name.starts_with("xauth"));
            let mut secret = Secret { eap, ids: Vec::new(), secret: String::new() };
            for (key, value, line) in &section.values {
                match key.as_str() {
                    "secret" => secret.secret.clone_from(value),
                    key if key.starts_with("id") => secret.ids.push(value.clone()),
                    key => self.leave(*line, &alloc::format!("{key} of the secret {name}")),
                }
            }
            if !(ike || eap) {
                self.leave(section.line, &alloc::format!("the secret {name}"));
            } else if secret.secret.starts_with("0x") || secret.secret.starts_with("0s") {
                self.note(
                    section.line,
                    alloc::format!("the secret {name} is of octets (0x, 0s), which no text has"),
                );
            } else {
                self.secrets.push(secret);
            }
        }
    }

    /// The secret that fits these two best.
    fn secret(&self, eap: bool, ids: [Option<&str>; 2]) -> Option<String> {
        // One that names somebody else is that one's.
        let fits = |secret: &&Secret| secret.ids.iter().all(|id| ids.contains(&Some(id.as_str())));
        let all = self.secrets.iter().filter(|secret| secret.eap == eap);
        let best = all.filter(fits).max_by_key(|secret| secret.ids.len())?;
        Some(best.secret.clone())
    }

    fn pool(&mut self, name: &str, pool: &Section) {
        self.out.push_str("\n[[pool]]\n");
        self.text("name", name);
        for (key, value, line) in &pool.values {
            match key.as_str() {
                "addrs" => self.set("ranges", &list(words(value))),
                "dns" => self.note(
                    *line,
                    alloc::format!(
                        "name servers are of connections: write dns = {} into those with this pool",
                        list(words(value))
                    ),
                ),
                key => self.leave(*line, &alloc::format!("{key} of the pool {name}")),
            }
        }
    }

    fn proposals(&mut self, value: &str, line: usize, read: impl Fn(&str) -> Option<String>) {
        let mut taken = Vec::new();
        for words in words(value).filter(|words| words != "default") {
            match read(&words) {
                None => taken.push(words),
                Some(why) => self.note(line, alloc::format!("the proposal {words} is not taken: {why}")),
            }
        }
        if !taken.is_empty() {
            self.set("proposals", &list(taken));
        }
    }

    fn connection(&mut self, name: &str, connection: &Section) {
        self.out.push_str("\n[[connection]]\n");
        self.text("name", name);
        // What strongSwan takes where nothing is said, and we otherwise.
        let (mut liveness, mut unique) = ("0 s".to_owned(), false);
        for (key, value, line) in &connection.values {
            match key.as_str() {
                "version" if value == "2" || value == "0" => {}
                "version" => self.note(*line, alloc::format!("{name} is of IKEv1, which is not spoken")),
                "proposals" => {
                    self.proposals(value, *line, |words| Proposal::ike(words).err().map(|e| e.to_string()));
                }
                "remote_addrs" => match value.parse::<IpAddr>() {
                    Ok(_) => self.text("remote_address", value),
                    Err(_) if value == "%any" => {}
                    Err(_) => self.note(
                        *line,
                        alloc::format!("remote_addrs = {value}: one address is taken, and no name"),
                    ),
                },
                "local_addrs" => match value.parse::<IpAddr>() {
                    Ok(_) => self.text("local_address", value),
                    Err(_) if value == "%any" => {}
                    Err(_) => self.note(
                        *line,
                        alloc::format!("local_addrs = {value}: one address is taken, and no name"),
                    ),
                },
                "remote_port" => self.set("remote_port", value),
                "mobike" => self.set("mobike", if yes(value) { "true" } else { "false" }),
                "fragmentation" => self.set("fragmentation", if yes(value) { "true" } else { "false" }),
                "childless" => match value.as_str() {
                    "never" | "force" | "allow" => self.text("childless", value),
                    _ => self.text("childless", "allow"),
                },
                "pools" => self.set("pools", &list(words(value))),
                "vips" => self.set("address", "true"),
                "dpd_delay" | "rekey_time" | "reauth_time" => match time(value) {
                    Some(time) if key == "dpd_delay" => liveness = time,
                    Some(time) if key == "reauth_time" => self.text("reauth_after", &time),
                    Some(time) => self.text("rekey_after", &time),
                    None => self.leave(*line, &alloc::format!("{key} = {value}")),
                },
                "encap" if yes(value) => {
                    self.note(*line, "ESP within UDP even without a NAT is of the whole gateway: write udp_encapsulation = true below [data]".to_owned());
                }
                "encap" => {}
                "ocsp" => match value.as_str() {
                    "reply" => {}
                    "never" => self.shows = false,
                    "both" | "request" => {
                        self.shows &= value == "both";
                        self.revocation = self.revocation.or(Some("soft"));
                    }
                    _ => self.leave(*line, &alloc::format!("ocsp = {value}")),
                },
                "unique" => unique = value == "replace",
                key => self.leave(*line, &alloc::format!("{key} of the connection {name}")),
            }
        }
        self.text("liveness", &liveness);
        self.set("unique", if unique { "true" } else { "false" });
        let side = |prefix: &str| {
            let all: Vec<&Section> = connection
                .sections
                .iter()
                .filter(|(name, _)| name.split('-').next() == Some(prefix))
                .map(|(_, section)| section)
                .collect();
            all
        };
        let (local, remote) = (side("local"), side("remote"));
        for more in local.iter().skip(1).chain(remote.iter().skip(1)) {
            self.leave(
                more.line,
                &alloc::format!("a further round of authentication of the connection {name}"),
            );
        }
        let value = |of: &[&Section], key: &str| -> Option<String> {
            of.first()?.values.iter().find(|(k, ..)| k == key).map(|(_, value, _)| value.clone())
        };
        let (own, other) = (value(&local, "id"), value(&remote, "id").filter(|id| id != "%any"));
        if let Some(id) = &own {
            self.text("local_id", id);
        }
        if let Some(id) = &other {
            self.text("remote_id", id);
        }
        let mut psk = false;
        for (section, ours) in
            local.first().map(|s| (*s, true)).into_iter().chain(remote.first().map(|s| (*s, false)))
        {
            psk |= self.side(name, section, ours, own.as_deref());
        }
        if psk {
            match self.secret(false, [own.as_deref(), other.as_deref()]) {
                Some(secret) => self.text("secret", &secret),
                None => self.note(
                    connection.line,
                    alloc::format!("no secret fits the connection {name}; write secret_file"),
                ),
            }
        }
        for (kind, section) in &connection.sections {
            match kind.split('-').next() {
                Some("local" | "remote") => {}
                Some("children") => section.sections.iter().for_each(|(name, child)| self.child(name, child)),
                _ => self.leave(section.line, &alloc::format!("{kind} of the connection {name}")),
            }
        }
    }

    /// How one side proves who it is; true: by a shared key.
    fn side(&mut self, name: &str, section: &Section, ours: bool, own: Option<&str>) -> bool {
        let key = if ours { "local_auth" } else { "remote_auth" };
        let value =
            |key: &str| section.values.iter().find(|(k, ..)| k == key).map(|(_, value, _)| value.as_str());
        let auth = value("auth").unwrap_or("pubkey");
        let method = match auth {
            "eap-md5" => Some("md5"),
            "eap-mschapv2" | "eap" | "eap-dynamic" => Some("mschapv2"),
            "eap-tls" => Some("tls"),
            _ => None,
        };
        match (auth, ours, method) {
            ("psk", ..) => self.text(key, "psk"),
            ("eap-radius", false, _) => {
                self.text(key, "eap");
                self.asks = true;
            }
            (_, true, Some(method)) => {
                self.text(key, "eap");
                self.set("eap_methods", &list([method.to_owned()]));
                let identity = value("eap_id").or(own).unwrap_or_default().to_owned();
                self.text("eap_identity", &identity);
                match self.secret(true, [Some(&identity), own]) {
                    Some(secret) => self.text("password", &secret),
                    None if method == "tls" => {}
                    None => self
                        .note(section.line, alloc::format!("no secret fits {identity}; write password_file")),
                }
            }
            (_, false, Some(method)) => {
                self.text(key, "eap-local");
                if !self.methods.contains(&method) {
                    self.methods.push(method);
                }
            }
            (auth, ..)
                if auth.starts_with("pubkey") || auth.starts_with("rsa") || auth.starts_with("ecdsa") =>
            {
                self.text(key, "certificate");
            }
            (auth, ..) => self
                .note(section.line, alloc::format!("auth = {auth} of the connection {name} is not spoken")),
        }
        for (key, value, line) in &section.values {
            match key.as_str() {
                "auth" | "id" | "eap_id" => {}
                "certs" if ours => {
                    let file = value.trim();
                    self.text("certificate", &alloc::format!("x509/{file}"));
                    self.note(
                        *line,
                        alloc::format!(
                            "which key belongs to {file} is not said there; write key = \"private/...\""
                        ),
                    );
                }
                "revocation" if !ours => self.revocation(value, *line),
                "cacerts" if !ours => self.text("ca", &alloc::format!("x509ca/{}", value.trim())),
                key => self.leave(*line, &alloc::format!("{key} of the connection {name}")),
            }
        }
        if !ours && auth.starts_with("pubkey") && value("cacerts").is_none() {
            self.note(
                section.line,
                alloc::format!(
                    "whom the connection {name} trusts is not said there; write ca = \"x509ca/...\""
                ),
            );
        }
        auth == "psk"
    }

    /// Whether it is looked at whether certificates were taken back: of all connections, here.
    fn revocation(&mut self, value: &str, line: usize) {
        match value {
            "relaxed" => self.revocation = self.revocation.or(Some("soft")),
            "ifuri" => {
                self.revocation = self.revocation.or(Some("soft"));
                self.note(line, "revocation = ifuri is taken as relaxed: write ocsp = \"hard\" or crl_required = true below [revocation] where certificates name whom to ask".to_owned());
            }
            "strict" => {
                self.revocation = Some("hard");
                self.note(line, "revocation = strict is taken as ocsp = \"hard\": where the authority has lists alone, write ocsp = \"off\" and crl_required = true below [revocation]".to_owned());
            }
            _ => self.leave(line, &alloc::format!("revocation = {value}")),
        }
    }

    fn child(&mut self, name: &str, child: &Section) {
        self.out.push_str("[[connection.child]]\n");
        self.text("name", name);
        for (key, value, line) in &child.values {
            match key.as_str() {
                "local_ts" | "remote_ts" => {
                    if value != "dynamic" {
                        self.set(&key.replace("_ts", ""), &list(words(value)));
                    }
                }
                "esp_proposals" => {
                    self.proposals(value, *line, |words| Proposal::esp(words).err().map(|e| e.to_string()));
                }
                "mode" if value == "tunnel" || value == "transport" => self.text("mode", value),
                "rekey_time" => match time(value) {
                    Some(time) => self.text("rekey_after", &time),
                    None => self.leave(*line, &alloc::format!("rekey_time = {value}")),
                },
                "rekey_bytes" | "rekey_packets" => match value.parse::<u64>() {
                    Ok(0) => {}
                    Ok(bytes) if key == "rekey_bytes" => self.text(key, &alloc::format!("{bytes} B")),
                    Ok(packets) if packets <= u32::MAX.into() => self.set(key, value),
                    _ => self.leave(*line, &alloc::format!("{key} = {value}")),
                },
                "start_action" if value == "none" => {}
                "start_action" if value == "start" => {
                    self.note(*line, "a connection is begun at the start: write start = true above its [[connection.child]]".to_owned());
                }
                "start_action" if value == "trap" => {
                    self.note(*line, "the first packet begins a connection: write on_demand = true above its [[connection.child]]".to_owned());
                }
                key => self.leave(*line, &alloc::format!("{key} = {value} of the CHILD_SA {name}")),
            }
        }
    }

    fn rest(&mut self) {
        if !self.methods.is_empty() {
            self.out.push_str("\n[eap]\n");
            let methods = list(self.methods.iter().map(|method| (*method).to_owned()));
            self.set("methods", &methods);
            if self.methods.contains(&"tls") {
                self.note(0, "EAP-TLS needs certificate, key and ca below [eap.tls]".to_owned());
            }
            let users: Vec<(String, String)> = self
                .secrets
                .iter()
                .filter(|secret| secret.eap)
                .flat_map(|secret| secret.ids.iter().map(|id| (id.clone(), secret.secret.clone())))
                .collect();
            for (name, password) in users {
                self.out.push_str("[[user]]\n");
                self.text("name", &name);
                self.text("password", &password);
            }
        }
        if self.revocation.is_some() || !self.shows {
            self.out.push_str("\n[revocation]\n");
            if let Some(policy) = self.revocation {
                self.text("ocsp", policy);
            }
            if !self.shows {
                self.set("ocsp_response", "false");
            }
        }
        if self.asks {
            self.note(0, "which RADIUS servers are asked is in strongswan.conf (charon.plugins.eap-radius): write [aaa] and [[aaa.radius]]".to_owned());
        }
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;
    use usher_config::Alone;
    use usher_crypto::tls::WallClock;
    use usher_ike::machine::{LocalAuth, RemoteAuth};

    const SITE: &str = r#"
connections {
  site {   # to the other office
    version = 2
    remote_addrs = 192.0.2.9
    proposals = aes128-sha256-x25519, aes128-sha256-modp4096, default
    mobike = no
    dpd_delay = 20s
    rekey_time = 4h
    keyingtries = 0
    local { auth = psk
            id = gw.test }
    remote { auth = psk
             id = ini.test }
    children { net { local_ts = 10.2.0.0/16, 10.3.0.0/16
                     remote_ts = 10.1.0.0/16
                     esp_proposals = aes128gcm16-x25519
                     start_action = trap
                     rekey_bytes = 1000000
                     rekey_time = 1h } }
  }
  users {
    pools = inner
    local-1 { auth = psk
              id = gw.test }
    remote { auth = eap-mschapv2
             eap_id = %any }
    children { net { local_ts = 10.2.0.0/16 } }
  }
}
pools { inner { addrs = 10.9.0.0/24
                dns = 10.9.0.1 } }
secrets {
  ike-1 { id-a = gw.test
          id-b = ini.test
          secret = "a shared \ secret" }
  ike-2 { secret = "for all the others" }
  eap-ann { id = ann
            secret = "a long password" }
}
authorities { }
"#;

    #[test]
    fn what_is_taken_is_a_configuration_and_what_is_not_is_named() {
        let Imported { text, left } = import(SITE).unwrap();
        let clock = WallClock::at(usher_core::WallTime::UNIX_EPOCH);
        let loaded = crate::config::parse("ike.toml", &text, &Alone, &clock);
        let loaded = loaded.unwrap_or_else(|faults| panic!("{faults}\n{text}"));
        let [site, users] = &loaded.config.peers[..] else { panic!("{text}") };
        assert_eq!(site.remote.map(|remote| remote.to_string()).as_deref(), Some("192.0.2.9:500"));
        let secret = |auth: &LocalAuth| match auth {
            LocalAuth::Psk(key) => String::from_utf8_lossy(key).into_owned(),
            _ => String::new(),
        };
        assert_eq!(secret(&site.connection.local_auth), "a shared \\ secret");
        assert_eq!(secret(&users.connection.local_auth), "for all the others");
        assert_eq!((site.connection.proposals.len(), site.connection.mobike), (1, false));
        assert_eq!(site.connection.children[0].local.as_ref().map(Vec::len), Some(2));
        let volume = loaded.file.connection[0].child[0].volume();
        assert_eq!((volume.soft_octets, volume.soft_packets), (Some(1_000_000), None));
        assert_eq!(site.connection.liveness, Some(usher_core::Duration::from_secs(20)));
        assert!(matches!(users.connection.remote_auth, RemoteAuth::Eap { .. }) && users.pools == ["inner"]);
        assert_eq!(loaded.config.users.passwords.len(), 1);
        let left: Vec<String> = left.iter().map(|(line, what)| alloc::format!("{line}: {what}")).collect();
        for (line, what) in [
            (6, "the proposal aes128-sha256-modp4096 is not taken: \"modp4096\" is no algorithm"),
            (10, "keyingtries of the connection site is not taken"),
            (
                18,
                "the first packet begins a connection: write on_demand = true above its [[connection.child]]",
            ),
            (32, "name servers are of connections"),
            (41, "the section authorities is not taken"),
        ] {
            let start = alloc::format!("{line}: {what}");
            assert!(left.iter().any(|left| left.starts_with(&start)), "{start} is not among {left:#?}");
        }
    }

    #[test]
    fn how_certificates_are_looked_at_is_of_the_whole_file() {
        let of = |ocsp: &str, first: &str, second: &str| {
            let one = |n: u8, more: &str| {
                alloc::format!(
                    "c{n} {{\n{ocsp}\nlocal {{ auth = psk }}\nremote {{ auth = pubkey\n cacerts = ca.pem\n{more} }}\n}}\n"
                )
            };
            import(&alloc::format!("connections {{\n{}{}}}\n", one(1, first), one(2, second))).unwrap()
        };
        let table = |imported: &Imported| {
            imported.text.split_once("[revocation]\n").map(|(_, table)| table.trim_end().to_owned())
        };
        assert_eq!(table(&of("", "", "")), None);
        assert_eq!(table(&of("", "revocation = relaxed", "")).as_deref(), Some("ocsp = \"soft\""));
        assert_eq!(table(&of("ocsp = both", "", "")).as_deref(), Some("ocsp = \"soft\""));
        assert_eq!(table(&of("ocsp = never", "", "")).as_deref(), Some("ocsp_response = false"));
        let strict = of("", "revocation = strict", "revocation = relaxed");
        assert_eq!(table(&strict).as_deref(), Some("ocsp = \"hard\""), "the stricter one holds");
        assert!(strict.left.iter().any(|(line, what)| *line > 0 && what.contains("crl_required = true")));
        let ifuri = of("", "revocation = ifuri", "");
        assert!(
            ifuri.left.iter().any(|(_, what)| what.starts_with("revocation = ifuri is taken as relaxed"))
        );
    }

    #[test]
    fn a_text_that_is_none_is_refused_with_its_line() {
        let refused = |text| import(text).unwrap_err().to_string();
        assert_eq!(refused("a {\n b\n}\n"), "line 2: neither a section nor a value");
        assert_eq!(refused("a {\n"), "line 1: \"a\" is not closed");
        assert_eq!(refused("}\n"), "line 1: \"}\" closes nothing");
        assert!(refused("include conf.d/*.conf\n").starts_with("line 1: files are not included"));
        assert!(refused(&"a {\n".repeat(40)).contains("too deep"));
        assert!(import("").unwrap().text.is_empty());
    }

    #[test]
    fn what_is_quoted_is_read_as_it_stands() {
        let root =
            read("secrets {\n  ike {\n    secret = \"abc#def # ghi\" # of the site\n  }\n}\n").unwrap();
        let ike = root.section("secrets").and_then(|secrets| secrets.section("ike")).unwrap();
        assert_eq!(ike.values, [("secret".to_owned(), "abc#def # ghi".to_owned(), 3)]);
        let error = read("secrets {\n  ike {\n    secret = \"abc\n  }\n}\n").unwrap_err();
        assert_eq!(error.to_string(), "line 3: a quotation is not closed; it must end in its line");
    }
}
