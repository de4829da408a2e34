//! strongSwan's `swanctl.conf`, as a configuration of ours: what is taken means the same, and what is not is named. What would let in more
//! without it stops the import.

mod settings;

pub use settings::Include;

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use core::fmt::Write;
use core::net::IpAddr;
use settings::{Place, SettingsSection};
use usher_ike::payload::Proposal;

/// What a `swanctl.conf` is here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    /// A configuration of ours.
    pub text: String,
    /// What could not be taken: the line of each (0: of none, or of another file that the sentence names), and a sentence.
    pub left: Vec<(usize, String)>,
    /// What could not be taken, and would let in more if it were left out: likewise. Without it the configuration is not to be used.
    pub stops: Vec<(usize, String)>,
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

/// Makes a configuration of ours of a `swanctl.conf` and what it includes.
///
/// # Errors
/// It is none.
pub fn import(text: &str, include: &mut Include<'_>) -> Result<Imported, SwanctlError> {
    let settings = settings::read(text, include)?;
    let mut importer = Importer { shows: true, ..Importer::default() };
    importer.secrets(&settings.root);
    for (name, section) in &settings.root.sections {
        match name.as_str() {
            "connections" => {
                importer.leave_values(section);
                // There the one that fits best holds, and here the first.
                let mut all: Vec<_> = section.sections.iter().collect();
                all.sort_by_key(|(_, connection)| breadth(connection));
                all.into_iter().for_each(|(name, connection)| importer.connection(name, connection));
            }
            "pools" => {
                for (name, pool) in &section.sections {
                    importer.pool(name, pool);
                }
            }
            "secrets" => {}
            // Others have taken of it what it is for.
            name if settings.templates.iter().any(|template| template == name) => {}
            other => importer.leave(section.line, &alloc::format!("the section {other}")),
        }
    }
    importer.rest();
    let told = |all: Vec<(Place, String)>| {
        let mut all: Vec<_> = all.into_iter().map(|(place, what)| settings.told(place, &what)).collect();
        all.sort();
        all
    };
    Ok(Imported { text: importer.out, left: told(importer.left), stops: told(importer.stops) })
}

/// Whether a connection is for any identity, and for any place.
fn breadth(connection: &SettingsSection) -> (bool, bool) {
    let side = connection.sections.iter().find(|(name, _)| is_side(name, "remote"));
    let names = |key| side.and_then(|(_, side)| side.value(key)).is_some_and(|id| id != "%any");
    let places = connection.value("remote_addrs").filter(|places| !any(places));
    (!(names("id") || names("eap_id")), places.is_none())
}

/// A secret: of IKE or EAP, for these identities.
struct Secret {
    eap: bool,
    ids: Vec<String>,
    /// `None`: ours cannot say it, and whom it is for has no other.
    secret: Option<String>,
}

#[derive(Default)]
struct Importer {
    out: String,
    left: Vec<(Place, String)>,
    stops: Vec<(Place, String)>,
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

/// An identity as strongSwan writes it, as ours is written; `None`: ours has no such one.
fn identity(id: &str) -> Option<String> {
    // What stands for several is for strongSwan to match.
    let plain = |name: &str| (!name.is_empty() && !name.contains(['*', '=', '#'])).then(|| name.to_owned());
    if let Some(mail) = id.strip_prefix("@@") {
        return plain(mail).filter(|mail| mail.contains('@'));
    }
    if let Some(name) = id.strip_prefix('@') {
        return plain(name).filter(|name| !name.contains('@'));
    }
    match id.split_once(':') {
        Some(("fqdn" | "dns", name)) => plain(name).filter(|name| !name.contains('@')),
        Some(("email" | "rfc822", name)) => plain(name).filter(|name| name.contains('@')),
        Some(("ipv4" | "ipv6", address)) => address.parse::<IpAddr>().ok().map(|_| address.to_owned()),
        Some(_) => id.parse::<IpAddr>().ok().map(|_| id.to_owned()),
        None if id == "%any" => None,
        None => plain(id),
    }
}

/// The octets of a secret that is written in hexadecimal or base64, where they are a text.
fn octets(secret: &str) -> Option<String> {
    let bytes = match (secret.strip_prefix("0x"), secret.strip_prefix("0s")) {
        (Some(hex), _) => {
            let hex: Vec<u8> = hex.bytes().filter(|octet| *octet != b'_').collect();
            let pairs =
                hex.chunks(2).map(|pair| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok());
            pairs.collect::<Option<Vec<u8>>>().filter(|_| hex.len().is_multiple_of(2))?
        }
        (_, Some(base64)) => STANDARD.decode(base64).ok()?,
        _ => return Some(secret.to_owned()),
    };
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// A proposal in our words. With a cipher that protects integrity itself, what is written as such an algorithm is the pseudo-random function.
fn proposal(words: &str) -> String {
    let combined =
        words.split('-').any(|word| ["gcm", "ccm", "chacha"].iter().any(|name| word.contains(name)));
    let word = |word: &str| match word.strip_prefix("sha") {
        Some(_) if combined => alloc::format!("prf{word}"),
        _ => word.to_owned(),
    };
    words.split('-').map(word).collect::<Vec<_>>().join("-")
}

/// Words mean the same in capitals.
fn yes(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    matches!(&*value, "yes" | "true" | "1" | "enabled" | "accept" | "force")
}
fn no(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    matches!(&*value, "no" | "false" | "0" | "disabled")
}

/// Whether these addresses are all there are.
fn any(addresses: &str) -> bool {
    let all = ["%any", "0.0.0.0", "::"];
    addresses.split(',').any(|word| all.iter().any(|any| word.trim().eq_ignore_ascii_case(any)))
}

/// Whether a section of a connection is one of these: whatever follows tells them apart.
fn is_side(section: &str, side: &str) -> bool {
    section.get(..side.len()).is_some_and(|start| start.eq_ignore_ascii_case(side))
}

/// How the other side of a connection proves who it is, and how this one.
fn auth_of(connection: &SettingsSection, side: &str) -> String {
    let section = connection.sections.iter().find(|(name, _)| is_side(name, side));
    section.and_then(|(_, section)| section.value("auth")).unwrap_or("pubkey").to_ascii_lowercase()
}

impl Importer {
    fn leave(&mut self, line: Place, what: &str) {
        self.left.push((line, alloc::format!("{what} is not taken")));
    }
    fn note(&mut self, line: Place, what: String) {
        self.left.push((line, what));
    }
    /// Whoever is kept out by what this says would be let in without it.
    fn stop(&mut self, line: Place, what: &str) {
        self.stops.push((line, alloc::format!("{what} is not taken, and without it more would be let in")));
    }
    fn set(&mut self, key: &str, value: &str) {
        // Writing to a text does not fail.
        let _ = writeln!(self.out, "{key} = {value}");
    }
    fn text(&mut self, key: &str, value: &str) {
        self.set(key, &quoted(value));
    }

    /// Tells of the values of a section that has none there.
    fn leave_values(&mut self, section: &SettingsSection) {
        section
            .values
            .iter()
            .for_each(|(key, value, line)| self.leave(*line, &alloc::format!("{key} = {value}")));
    }

    fn secrets(&mut self, root: &SettingsSection) {
        let Some(secrets) = root.section("secrets") else { return };
        for (name, section) in &secrets.sections {
            let (ike, eap) = (name.starts_with("ike"), name.starts_with("eap") || name.starts_with("xauth"));
            if !(ike || eap) {
                self.leave(section.line, &alloc::format!("the secret {name}"));
                continue;
            }
            let mut secret = Secret { eap, ids: Vec::new(), secret: None };
            let mut whole = true;
            for (key, value, line) in &section.values {
                match key.as_str() {
                    "secret" => match octets(value) {
                        Some(text) => secret.secret = Some(text),
                        None => {
                            let what = "is of octets (0x, 0s), which no text has";
                            self.note(*line, alloc::format!("the secret {name} {what}"));
                        }
                    },
                    key if key.starts_with("id") => match identity(value) {
                        Some(id) => secret.ids.push(id),
                        None if value == "%any" => {}
                        None => {
                            // It would be everybody's.
                            whole = false;
                            self.leave(*line, &alloc::format!("the secret {name} of {value}"));
                        }
                    },
                    key => self.leave(*line, &alloc::format!("{key} of the secret {name}")),
                }
            }
            for (within, section) in &section.sections {
                self.leave(section.line, &alloc::format!("{within} of the secret {name}"));
            }
            if whole {
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
        best.secret.clone()
    }

    fn pool(&mut self, name: &str, pool: &SettingsSection) {
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
        for (within, section) in &pool.sections {
            self.leave(section.line, &alloc::format!("{within} of the pool {name}"));
        }
    }

    fn proposals(&mut self, value: &str, line: Place, read: impl Fn(&str) -> Option<String>) {
        let (mut taken, mut refused) = (Vec::new(), false);
        for words in words(value) {
            if words == "default" {
                // By itself it is what ours offers without any.
                if value.trim() != "default" {
                    self.leave(line, "\"default\" beside other proposals");
                }
                continue;
            }
            let ours = if read(&words).is_some() { proposal(&words) } else { words.clone() };
            match read(&ours) {
                None => taken.push(ours),
                Some(why) => {
                    refused = true;
                    self.note(line, alloc::format!("the proposal {words} is not taken: {why}"));
                }
            }
        }
        if !taken.is_empty() {
            self.set("proposals", &list(taken));
        } else if refused {
            self.stop(line, "any of these proposals");
        }
    }

    /// Writes where the other side is: whom this side calls, and who may call.
    fn write_places(&mut self, connection: &SettingsSection, value: &str, line: Place) {
        let mut networks = Vec::new();
        for word in words(value) {
            match word.to_ascii_lowercase().as_str() {
                "%any4" => {
                    networks.push("0.0.0.0/0".to_owned());
                    continue;
                }
                "%any6" => {
                    networks.push("::/0".to_owned());
                    continue;
                }
                word if any(word) => return,
                _ => {}
            }
            match usher_config::Prefix::parse(&word) {
                Ok(_) => networks.push(word),
                // A name is looked up there, and of a range no network is made.
                Err(_) => return self.stop(line, &alloc::format!("{word} of remote_addrs")),
            }
        }
        // By EAP the other side begins, and where this one proves itself so, this one.
        let remote = auth_of(connection, "remote");
        if let Some(first) = networks.iter().find(|word| word.parse::<IpAddr>().is_ok())
            && !remote.starts_with("eap")
        {
            if remote != "psk" && breadth(connection).0 {
                let what = "is not called, since anybody with a certificate would do; write remote_address and remote_id";
                self.note(line, alloc::format!("{first} {what}"));
            } else {
                self.text("remote_address", first);
            }
        }
        if !networks.is_empty() && !auth_of(connection, "local").starts_with("eap") {
            self.set("from", &list(networks));
        }
    }

    fn connection(&mut self, name: &str, connection: &SettingsSection) {
        if connection.value("version") == Some("1") {
            return self.note(
                connection.line,
                alloc::format!("the connection {name} is of IKEv1, which is not spoken: it is not taken"),
            );
        }
        self.out.push_str("\n[[connection]]\n");
        self.text("name", name);
        // What strongSwan takes where nothing is said, and we otherwise.
        let (mut liveness, mut unique) = ("0 s".to_owned(), false);
        for (key, value, line) in &connection.values {
            match key.as_str() {
                "version" if value == "0" => self.note(
                    *line,
                    alloc::format!("the connection {name} is taken for IKEv2 alone: IKEv1 is not spoken"),
                ),
                "version" if value == "2" => {}
                "proposals" => {
                    self.proposals(value, *line, |words| Proposal::ike(words).err().map(|e| e.to_string()));
                }
                "remote_addrs" => self.write_places(connection, value, *line),
                "local_addrs" => match value.parse::<IpAddr>() {
                    Ok(_) => {
                        self.text("local_address", value);
                        let what = "is the address from which this side begins; who comes to another that is listened at is served as well";
                        self.note(*line, alloc::format!("local_addrs = {value} {what}"));
                    }
                    Err(_) if any(value) => {}
                    Err(_) => self.note(
                        *line,
                        alloc::format!("local_addrs = {value}: one address is taken, and no name"),
                    ),
                },
                "remote_port" => match value.parse::<u16>() {
                    Ok(port) => self.set("remote_port", &port.to_string()),
                    Err(_) => self.leave(*line, &alloc::format!("remote_port = {value}")),
                },
                "mobike" => self.set("mobike", if yes(value) { "true" } else { "false" }),
                "fragmentation" => self.set("fragmentation", if yes(value) { "true" } else { "false" }),
                "childless" => match &*value.to_ascii_lowercase() {
                    word @ ("never" | "force" | "allow") => self.text("childless", word),
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
                "ppk_required" if !no(value) => {
                    self.stop(*line, &alloc::format!("ppk_required of the connection {name}"));
                }
                "encap" if yes(value) => {
                    self.note(*line, "ESP within UDP even without a NAT is of the whole gateway: write udp_encapsulation = true below [data]".to_owned());
                }
                "encap" | "ppk_required" => {}
                "ocsp" => match &*value.to_ascii_lowercase() {
                    "reply" => {}
                    "never" => self.shows = false,
                    word @ ("both" | "request") => {
                        self.shows &= word == "both";
                        self.revocation = self.revocation.or(Some("soft"));
                    }
                    _ => self.leave(*line, &alloc::format!("ocsp = {value}")),
                },
                "unique" => unique = value.eq_ignore_ascii_case("replace"),
                key => self.leave(*line, &alloc::format!("{key} of the connection {name}")),
            }
        }
        self.text("liveness", &liveness);
        self.set("unique", if unique { "true" } else { "false" });
        let side = |prefix: &str| {
            let all: Vec<&SettingsSection> = connection
                .sections
                .iter()
                .filter(|(name, _)| is_side(name, prefix))
                .map(|(_, section)| section)
                .collect();
            all
        };
        let (local, remote) = (side("local"), side("remote"));
        let round = alloc::format!("a further round of authentication of the connection {name}");
        local.iter().skip(1).for_each(|more| self.leave(more.line, &round));
        remote.iter().skip(1).for_each(|more| self.stop(more.line, &round));
        let value = |of: &[&SettingsSection], key: &str| -> Option<String> {
            of.first()?.value(key).map(str::to_owned)
        };
        let own = value(&local, "id");
        let own_id = own.as_deref().and_then(identity);
        match (&own_id, &own) {
            (Some(id), _) => self.text("local_id", id),
            (None, Some(said)) if said != "%any" => {
                self.leave(connection.line, &alloc::format!("the id {said} of the connection {name}"));
            }
            _ => {}
        }
        // Whoever is to prove an identity by EAP is known by that.
        let other = value(&remote, "id").filter(|id| id != "%any");
        let eap = value(&remote, "eap_id").filter(|id| id != "%any");
        let other = match (other, eap) {
            (Some(id), Some(eap)) if id != eap => {
                let what = alloc::format!("id = {id} beside eap_id = {eap} of the connection {name}");
                self.stop(connection.line, &what);
                None
            }
            (id, eap) => id.or(eap),
        };
        let other_id = other.as_deref().and_then(identity);
        match (&other_id, &other) {
            (Some(id), _) => self.text("remote_id", id),
            (None, Some(said)) => {
                self.stop(connection.line, &alloc::format!("the id {said} of the connection {name}"));
            }
            (None, None) => {}
        }
        let mut psk = false;
        for (section, ours) in
            local.first().map(|s| (*s, true)).into_iter().chain(remote.first().map(|s| (*s, false)))
        {
            psk |= self.side(name, section, ours, own_id.as_deref());
        }
        if psk {
            match self.secret(false, [own_id.as_deref(), other_id.as_deref()]) {
                Some(secret) => self.text("secret", &secret),
                None => self.note(
                    connection.line,
                    alloc::format!("no secret fits the connection {name}; write secret_file"),
                ),
            }
        }
        for (kind, section) in &connection.sections {
            if kind.eq_ignore_ascii_case("children") {
                section.sections.iter().for_each(|(name, child)| self.child(name, child));
            } else if !(is_side(kind, "local") || is_side(kind, "remote")) {
                self.stop(section.line, &alloc::format!("{kind} of the connection {name}"));
            }
        }
    }

    /// How one side proves who it is; true: by a shared key.
    fn side(&mut self, name: &str, section: &SettingsSection, ours: bool, own: Option<&str>) -> bool {
        let key = if ours { "local_auth" } else { "remote_auth" };
        let value = |key: &str| section.value(key);
        let auth = &*value("auth").unwrap_or("pubkey").to_ascii_lowercase();
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
                let said = value("eap_id").and_then(identity).or_else(|| own.map(str::to_owned));
                let said = said.unwrap_or_default();
                self.text("eap_identity", &said);
                match self.secret(true, [Some(&said), own]) {
                    Some(secret) => self.text("password", &secret),
                    None if method == "tls" => {}
                    None => {
                        self.note(section.line, alloc::format!("no secret fits {said}; write password_file"))
                    }
                }
            }
            (_, false, Some(method)) => {
                self.text(key, "eap-local");
                // A user of one is not to come in by another's.
                if self.methods.first().is_some_and(|other| *other != method) {
                    let what = alloc::format!(
                        "auth = {auth} of the connection {name} beside another method of another"
                    );
                    self.stop(section.line, &what);
                }
                if !self.methods.contains(&method) {
                    self.methods.push(method);
                }
            }
            ("pubkey" | "rsa" | "ecdsa" | "ed25519" | "ed448", ..) => self.text(key, "certificate"),
            (auth, true, _) if auth.starts_with("pubkey-") => {
                self.text(key, "certificate");
                self.leave(section.line, &alloc::format!("which signatures auth = {auth} names"));
            }
            (auth, false, _) => {
                self.stop(section.line, &alloc::format!("auth = {auth} of the connection {name}"));
            }
            (auth, true, _) => self
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
                "cacerts" if !ours && !value.contains(',') => {
                    self.text("ca", &alloc::format!("x509ca/{}", value.trim()));
                }
                key if ours => self.leave(*line, &alloc::format!("{key} of the connection {name}")),
                // Whatever it is, it says who may come in.
                key => self.stop(*line, &alloc::format!("{key} = {value} of the connection {name}")),
            }
        }
        for (within, section) in &section.sections {
            let what = alloc::format!("{within} of the connection {name}");
            if ours { self.leave(section.line, &what) } else { self.stop(section.line, &what) }
        }
        let certified = !matches!(auth, "psk") && !auth.starts_with("eap");
        if !ours && certified && value("revocation").is_none() {
            self.revocation("relaxed", section.line);
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
    fn revocation(&mut self, value: &str, line: Place) {
        match &*value.to_ascii_lowercase() {
            "relaxed" => self.revocation = self.revocation.or(Some("soft")),
            "ifuri" => {
                self.revocation = self.revocation.or(Some("soft"));
                self.note(line, "revocation = ifuri is taken as relaxed: write ocsp = \"hard\" or crl_required = true below [revocation] where certificates name whom to ask".to_owned());
            }
            "strict" => {
                self.revocation = Some("hard");
                self.note(line, "revocation = strict is taken as ocsp = \"hard\": where the authority has lists alone, write ocsp = \"off\" and crl_required = true below [revocation]".to_owned());
            }
            _ => self.stop(line, &alloc::format!("revocation = {value}")),
        }
    }

    fn child(&mut self, name: &str, child: &SettingsSection) {
        match &*child.value("mode").unwrap_or("tunnel").to_ascii_lowercase() {
            "tunnel" | "transport" => {}
            "drop" => return self.stop(child.line, &alloc::format!("mode = drop of the CHILD_SA {name}")),
            other => {
                return self.leave(child.line, &alloc::format!("the CHILD_SA {name} with mode = {other}"));
            }
        }
        self.out.push_str("[[connection.child]]\n");
        self.text("name", name);
        for (key, value, line) in &child.values {
            match key.as_str() {
                "local_ts" | "remote_ts" => {
                    let networks = |word: &String| usher_config::Prefix::parse(word).is_ok();
                    if value == "dynamic" {
                    } else if words(value).all(|word| networks(&word)) {
                        self.set(&key.replace("_ts", ""), &list(words(value)));
                    } else {
                        self.stop(*line, &alloc::format!("{key} = {value} of the CHILD_SA {name}"));
                    }
                }
                "esp_proposals" => {
                    self.proposals(value, *line, |words| Proposal::esp(words).err().map(|e| e.to_string()));
                }
                "mode" => self.text("mode", &value.to_ascii_lowercase()),
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
                "start_action" if value.eq_ignore_ascii_case("none") => {}
                "start_action" if value.eq_ignore_ascii_case("start") => {
                    self.note(*line, "a connection is begun at the start: write start = true above its [[connection.child]]".to_owned());
                }
                "start_action" if value.eq_ignore_ascii_case("trap") => {
                    self.note(*line, "the first packet begins a connection: write on_demand = true above its [[connection.child]]".to_owned());
                }
                key => self.leave(*line, &alloc::format!("{key} = {value} of the CHILD_SA {name}")),
            }
        }
        for (within, section) in &child.sections {
            self.leave(section.line, &alloc::format!("{within} of the CHILD_SA {name}"));
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
                .flat_map(|one| one.ids.iter().filter_map(|id| Some((id.clone(), one.secret.clone()?))))
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
mod tests;
