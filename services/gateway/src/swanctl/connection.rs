//! Import of connections: both sides, and their CHILD_SAs.

use super::SwanctlImporter;
use super::secrets::secret_identity;
use super::settings::{SettingsSection, SourceLine};
use super::words::{
    any_families, auth_of, auth_of_round, esp_proposal, ike_proposal, ike_version, is_any_identity,
    is_certified, is_no, is_octets, is_side, is_yes, join_path, parse_number, parse_prefix, parse_volume,
    peer_addresses, rounds_of, side_of, split_words, toml_array, toml_time, translate_identity,
};
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_ike::payload::Proposal;

impl SwanctlImporter {
    /// Writes proposals: unchanged if ours reads them alike, otherwise rewritten.
    fn write_proposals(
        &mut self,
        value: &str,
        line: SourceLine,
        read: impl Fn(&str) -> Option<String>,
        rewrite: impl Fn(&str) -> String,
    ) {
        let (mut taken, mut refused) = (Vec::new(), false);
        for words in split_words(value) {
            if words == "default" {
                // Alone, it is also our default.
                if value.trim() != "default" {
                    self.note_untaken(line, "\"default\" beside other proposals");
                }
                continue;
            }
            let ours = if read(&words).is_some() { rewrite(&words) } else { words.clone() };
            match read(&ours) {
                None => taken.push(ours),
                Some(why) => {
                    refused = true;
                    self.add_note(line, alloc::format!("the proposal {words} is not taken: {why}"));
                }
            }
        }
        if !taken.is_empty() {
            self.write_setting("proposals", &toml_array(taken));
        } else if refused {
            self.add_stop(line, "any of these proposals");
        }
    }

    /// Writes the peer's addresses: for initiating, and as a limit for initiators.
    fn write_peer_addresses(&mut self, connection: &SettingsSection) {
        let line = connection.line_of("remote_addrs");
        let (places, unknown) = peer_addresses(connection);
        if let Some(word) = unknown {
            // A name needs a lookup, and a range is no network.
            return self.add_stop(line, &alloc::format!("{word} of remote_addrs"));
        }
        let is_there = |text: &str| places.iter().any(|place| place.text == text);
        if is_there("0.0.0.0/0") && is_there("::/0") {
            return;
        }
        let networks: Vec<String> = places.into_iter().map(|place| place.text).collect();
        // With EAP in remote auth the peer initiates; with EAP in local auth, this side does.
        let remote = auth_of(connection, "remote");
        if let Some(first) = networks.iter().find(|word| word.parse::<IpAddr>().is_ok())
            && !remote.starts_with("eap")
        {
            let is_named = |key| {
                side_of(connection, "remote")
                    .and_then(|side| side.value(key))
                    .is_some_and(|id| !is_any_identity(id))
            };
            if remote != "psk" && !(is_named("id") || is_named("eap_id")) {
                let what = "is not called, since anybody with a certificate would do; write remote_address and remote_id";
                self.add_note(line, alloc::format!("{first} {what}"));
            } else {
                self.write_text("remote_address", first);
            }
        }
        if !auth_of(connection, "local").starts_with("eap") {
            self.write_setting("from", &toml_array(networks));
        }
    }

    pub(super) fn write_connection(&mut self, name: &str, connection: &SettingsSection) {
        self.out.push_str("\n[[connection]]\n");
        self.write_text("name", name);
        // The defaults of strongSwan, which differ from ours.
        let (mut liveness, mut unique) = ("0 s".to_owned(), false);
        for (key, value, line) in &connection.values {
            match key.as_str() {
                "version" if ike_version(connection) == Some(0) => self.add_note(
                    *line,
                    alloc::format!("the connection {name} is taken for IKEv2 alone: IKEv1 is not spoken"),
                ),
                "version" => {}
                "proposals" => {
                    let read = |words: &str| Proposal::parse_ike(words).err().map(|error| error.to_string());
                    self.write_proposals(value, *line, read, ike_proposal);
                }
                // Both together limit the initiators, below.
                "remote_addrs" | "local_addrs" => {}
                "remote_port" => match parse_number(value).map(u16::try_from) {
                    Some(Ok(port)) => self.write_setting("remote_port", &port.to_string()),
                    _ => self.note_untaken(*line, &alloc::format!("remote_port = {value}")),
                },
                "mobike" => self.write_setting("mobike", if is_yes(value) { "true" } else { "false" }),
                "fragmentation" => self.write_setting("fragmentation", if is_yes(value) { "true" } else { "false" }),
                "childless" => match &*value.to_ascii_lowercase() {
                    word @ ("never" | "force" | "allow") => self.write_text("childless", word),
                    word => {
                        self.write_text("childless", "allow");
                        self.add_note(*line, alloc::format!("childless = {word} is taken as allow"));
                    }
                },
                "pools" => self.write_setting("pools", &toml_array(split_words(value))),
                "vips" => {
                    self.write_setting("address", "true");
                    if split_words(value).any(|word| any_families(&word) == [false, false]) {
                        let what = "is asked for there, and here any address";
                        self.add_note(*line, alloc::format!("vips = {value} of the connection {name} {what}"));
                    }
                }
                "dpd_delay" | "rekey_time" | "reauth_time" => match toml_time(value) {
                    Some(time) if key == "dpd_delay" => liveness = time,
                    Some(time) if key == "reauth_time" => self.write_text("reauth_after", &time),
                    Some(time) => self.write_text("rekey_after", &time),
                    None => self.note_untaken(*line, &alloc::format!("{key} = {value}")),
                },
                "ppk_required" if !is_no(value) => {
                    self.add_stop(*line, &alloc::format!("ppk_required of the connection {name}"));
                }
                "encap" if is_yes(value) => {
                    self.add_note(*line, "ESP within UDP even without a NAT is of the whole gateway: write udp_encapsulation = true below [data]".to_owned());
                }
                "encap" | "ppk_required" => {}
                "ocsp" => match &*value.to_ascii_lowercase() {
                    "reply" => {}
                    "never" => self.sends_ocsp_replies = false,
                    word @ ("both" | "request") => {
                        self.sends_ocsp_replies &= word == "both";
                        self.revocation = self.revocation.or(Some("soft"));
                    }
                    _ => self.note_untaken(*line, &alloc::format!("ocsp = {value}")),
                },
                "unique" => match &*value.to_ascii_lowercase() {
                    "replace" => unique = true,
                    "no" => {}
                    "never" => self.add_note(
                        *line,
                        alloc::format!(
                            "unique = never of the connection {name} is taken as no: an initiator that says it begins anew (INITIAL_CONTACT) \
                             ends what it had"
                        ),
                    ),
                    // There, a second session is rejected.
                    _ => self.add_stop(*line, &alloc::format!("unique = {value} of the connection {name}")),
                },
                "if_id_in" if parse_number(value) != Some(0) => {
                    self.add_stop(*line, &alloc::format!("if_id_in of the connection {name}"));
                }
                "if_id_in" => {}
                key => self.note_untaken(*line, &alloc::format!("{key} of the connection {name}")),
            }
        }
        self.write_peer_addresses(connection);
        self.write_text("liveness", &liveness);
        self.write_setting("unique", if unique { "true" } else { "false" });
        let (local, remote) = (rounds_of(connection, "local"), rounds_of(connection, "remote"));
        let round = alloc::format!("a further round of authentication of the connection {name}");
        local.iter().skip(1).for_each(|more| self.note_untaken(more.line, &round));
        remote.iter().skip(1).for_each(|more| self.add_stop(more.line, &round));
        let (own, other) =
            self.write_identities(name, connection, local.first().copied(), remote.first().copied());
        let mut psk = false;
        for (section, ours) in
            local.first().map(|s| (*s, true)).into_iter().chain(remote.first().map(|s| (*s, false)))
        {
            psk |= self.write_side(name, section, ours, other.as_deref());
        }
        if psk {
            match self.take_secret(false, own.as_deref(), other.as_deref()) {
                Some(secret) => self.write_text("secret", &secret),
                None => self.add_note(
                    connection.line,
                    alloc::format!("no secret fits the connection {name}; write secret_file"),
                ),
            }
        }
        for (kind, section) in &connection.sections {
            if kind.eq_ignore_ascii_case("children") {
                section.sections.iter().for_each(|(name, child)| self.write_child(name, child));
            } else if !(is_side(kind, "local") || is_side(kind, "remote")) {
                self.add_stop(section.line, &alloc::format!("{kind} of the connection {name}"));
            }
        }
    }

    /// Writes both identities. Returns them as secrets name them: this side's and the peer's.
    fn write_identities(
        &mut self,
        name: &str,
        connection: &SettingsSection,
        local: Option<&SettingsSection>,
        remote: Option<&SettingsSection>,
    ) -> (Option<String>, Option<String>) {
        let value = |side: Option<&SettingsSection>, key: &str| {
            side?.value(key).filter(|id| !is_any_identity(id)).map(str::to_owned)
        };
        let own = value(local, "id");
        match (own.as_deref().and_then(translate_identity), &own) {
            (Some(id), _) => self.write_text("local_id", &id),
            (None, Some(said)) => {
                self.note_untaken(connection.line, &alloc::format!("the id {said} of the connection {name}"));
            }
            (None, None) => {}
        }
        let (other, eap) = (value(remote, "id"), value(remote, "eap_id"));
        let meant = match (&other, &eap) {
            (Some(id), Some(eap)) if id != eap => {
                let what = alloc::format!("id = {id} beside eap_id = {eap} of the connection {name}");
                self.add_stop(connection.line, &what);
                None
            }
            (None, Some(eap)) => {
                let what = "becomes remote_id: an initiator that calls itself otherwise outside of EAP is refused here";
                self.add_note(
                    connection.line,
                    alloc::format!("eap_id = {eap} of the connection {name} {what}"),
                );
                Some(eap)
            }
            (id, _) => id.as_ref(),
        };
        match (meant.and_then(|id| translate_identity(id)), meant) {
            (Some(id), _) => self.write_text("remote_id", &id),
            (None, Some(said)) => {
                self.add_stop(connection.line, &alloc::format!("the id {said} of the connection {name}"));
            }
            (None, None) => {}
        }
        (own.as_deref().map(secret_identity), other.as_deref().map(secret_identity))
    }

    /// Writes the authentication of one side. True for a shared key.
    fn write_side(&mut self, name: &str, section: &SettingsSection, ours: bool, other: Option<&str>) -> bool {
        let key = if ours { "local_auth" } else { "remote_auth" };
        let value = |key: &str| section.value(key);
        let auth = &*auth_of_round(section);
        let method = match auth {
            "eap-md5" => Some("md5"),
            "eap-mschapv2" | "eap" | "eap-dynamic" => Some("mschapv2"),
            "eap-tls" => Some("tls"),
            _ => None,
        };
        // Ours has a single method for such a connection.
        let is_any_method = matches!(auth, "eap" | "eap-dynamic");
        if is_any_method && (ours || auth == "eap-dynamic") {
            let what = "is taken as eap-mschapv2 alone";
            self.add_note(section.line, alloc::format!("auth = {auth} of the connection {name} {what}"));
        }
        match (auth, ours, method) {
            ("psk", ..) => self.write_text(key, "psk"),
            ("eap-radius", false, _) => {
                self.write_text(key, "eap");
                self.uses_aaa_servers = true;
            }
            (_, true, Some(method)) => {
                self.write_text(key, "eap");
                self.write_setting("eap_methods", &toml_array([method.to_owned()]));
                let said = value("eap_id")
                    .and_then(translate_identity)
                    .or_else(|| value("id").and_then(translate_identity));
                let said = said.unwrap_or_default();
                self.write_text("eap_identity", &said);
                match self.take_secret(true, Some(&secret_identity(&said)), other) {
                    Some(secret) => self.write_text("password", &secret),
                    None if method == "tls" => {}
                    None => self
                        .add_note(section.line, alloc::format!("no secret fits {said}; write password_file")),
                }
            }
            // charon then starts no method and rejects every user.
            ("eap", false, _) => {
                self.add_stop(section.line, &alloc::format!("auth = eap of the connection {name}"))
            }
            (_, false, Some(method)) => {
                self.write_text(key, "eap-local");
                // Users of one method must not authenticate by another.
                if self.methods.first().is_some_and(|other| *other != method) {
                    let what = alloc::format!(
                        "auth = {auth} of the connection {name} beside another method of another"
                    );
                    self.add_stop(section.line, &what);
                }
                if !self.methods.contains(&method) {
                    self.methods.push(method);
                }
            }
            ("pubkey" | "rsa" | "ecdsa", ..) => self.write_text(key, "certificate"),
            (auth, true, _) if auth.starts_with("pubkey-") => {
                self.write_text(key, "certificate");
                self.note_untaken(section.line, &alloc::format!("which signatures auth = {auth} names"));
            }
            (auth, false, _) => {
                self.add_stop(section.line, &alloc::format!("auth = {auth} of the connection {name}"));
            }
            (auth, true, _) => self.add_note(
                section.line,
                alloc::format!("auth = {auth} of the connection {name} is not spoken"),
            ),
        }
        let certified = is_certified(auth);
        for (key, value, line) in &section.values {
            match key.as_str() {
                "auth" | "id" | "eap_id" | "round" => {}
                "certs" if ours => self.write_certificate(name, value, *line),
                "revocation" if !ours && certified => self.read_revocation(value, *line),
                // Without a revocation check it requires nothing more.
                "revocation" if !ours && value.eq_ignore_ascii_case("relaxed") => {}
                "cacerts" if !ours && certified && !value.contains(',') && !is_octets(value.trim()) => {
                    self.write_text("ca", &join_path("x509ca", value.trim()));
                }
                // The EAP server has to have this identity.
                "aaa_id" if ours && !is_any_identity(value) => {
                    self.add_stop(*line, &alloc::format!("aaa_id = {value} of the connection {name}"));
                }
                key if ours => self.note_untaken(*line, &alloc::format!("{key} of the connection {name}")),
                // Any other key may limit who is admitted.
                key => self.add_stop(*line, &alloc::format!("{key} = {value} of the connection {name}")),
            }
        }
        if !ours && auth.starts_with("eap") && value("eap_id").is_some_and(is_any_identity) {
            let what = "is asked for by EAP there, and here the identity of IKE stands for it unless that is an address";
            self.add_note(section.line, alloc::format!("eap_id of the connection {name} {what}"));
        }
        if !ours && method == Some("tls") {
            let what =
                "by EAP-TLS: charon asks whether their certificates still hold, and here nobody is asked";
            self.add_note(section.line, alloc::format!("users of the connection {name} come {what}"));
        }
        for (within, section) in &section.sections {
            let what = alloc::format!("{within} of the connection {name}");
            if ours { self.note_untaken(section.line, &what) } else { self.add_stop(section.line, &what) }
        }
        if !ours && certified && value("revocation").is_none() {
            self.read_revocation("relaxed", section.line);
        }
        self.has_certificates |= !ours && certified;
        if !ours && certified && value("cacerts").is_none() {
            self.add_note(
                section.line,
                alloc::format!(
                    "whom the connection {name} trusts is not said there; write ca = \"x509ca/...\""
                ),
            );
        }
        auth == "psk"
    }
    /// Writes the certificate of this side: the first one that is named.
    fn write_certificate(&mut self, name: &str, value: &str, line: SourceLine) {
        let mut files = split_words(value);
        let Some(file) = files.next().filter(|file| !is_octets(file)) else {
            return self.note_untaken(line, &alloc::format!("certs of the connection {name}"));
        };
        self.write_text("certificate", &join_path("x509", &file));
        let what = "is not said there; write key = \"private/...\"";
        self.add_note(line, alloc::format!("which key belongs to {file} {what}"));
        for more in files {
            self.note_untaken(
                line,
                &alloc::format!("{more}, beside {file} in certs of the connection {name},"),
            );
        }
    }

    /// Reads the revocation policy, which applies to all connections here.
    fn read_revocation(&mut self, value: &str, line: SourceLine) {
        match &*value.to_ascii_lowercase() {
            "relaxed" => self.revocation = self.revocation.or(Some("soft")),
            "ifuri" => {
                self.revocation = self.revocation.or(Some("soft"));
                self.add_note(line, "revocation = ifuri is taken as relaxed: write ocsp = \"hard\" or crl_required = true below [revocation] where certificates name whom to ask".to_owned());
            }
            "strict" => {
                self.revocation = Some("hard");
                self.add_note(line, "revocation = strict is taken as ocsp = \"hard\": where the authority has lists alone, write ocsp = \"off\" and crl_required = true below [revocation]".to_owned());
            }
            _ => self.add_stop(line, &alloc::format!("revocation = {value}")),
        }
    }

    fn write_child(&mut self, name: &str, child: &SettingsSection) {
        match &*child.value("mode").unwrap_or("tunnel").to_ascii_lowercase() {
            "tunnel" | "transport" => {}
            "drop" => {
                return self.add_stop(child.line, &alloc::format!("mode = drop of the CHILD_SA {name}"));
            }
            other => {
                return self
                    .note_untaken(child.line, &alloc::format!("the CHILD_SA {name} with mode = {other}"));
            }
        }
        self.out.push_str("[[connection.child]]\n");
        self.write_text("name", name);
        for (key, value, line) in &child.values {
            match key.as_str() {
                "local_ts" | "remote_ts" => {
                    let networks = |word: &String| parse_prefix(word).is_some();
                    if value == "dynamic" {
                    } else if split_words(value).all(|word| networks(&word)) {
                        self.write_setting(&key.replace("_ts", ""), &toml_array(split_words(value)));
                    } else {
                        self.add_stop(*line, &alloc::format!("{key} = {value} of the CHILD_SA {name}"));
                    }
                }
                "esp_proposals" => {
                    let read = |words: &str| Proposal::parse_esp(words).err().map(|error| error.to_string());
                    self.write_proposals(value, *line, read, esp_proposal);
                }
                "mode" => self.write_text("mode", &value.to_ascii_lowercase()),
                "rekey_time" => match toml_time(value) {
                    Some(time) => self.write_text("rekey_after", &time),
                    None => self.note_untaken(*line, &alloc::format!("rekey_time = {value}")),
                },
                "rekey_bytes" => match parse_volume(value) {
                    Some(0) => {}
                    Some(bytes) => self.write_text(key, &alloc::format!("{bytes} B")),
                    None => self.note_untaken(*line, &alloc::format!("{key} = {value}")),
                },
                "rekey_packets" => match parse_number(value) {
                    Some(0) => {}
                    Some(packets) if packets <= u32::MAX.into() => {
                        self.write_setting(key, &packets.to_string())
                    }
                    _ => self.note_untaken(*line, &alloc::format!("{key} = {value}")),
                },
                // There, labels restrict inbound traffic.
                "label" => self.add_stop(*line, &alloc::format!("label of the CHILD_SA {name}")),
                "mark_in" if parse_number(value.split('/').next().unwrap_or_default()) != Some(0) => {
                    self.add_stop(*line, &alloc::format!("mark_in of the CHILD_SA {name}"));
                }
                "if_id_in" if parse_number(value) != Some(0) => {
                    self.add_stop(*line, &alloc::format!("if_id_in of the CHILD_SA {name}"));
                }
                "policies" if !is_yes(value) => {
                    self.add_stop(*line, &alloc::format!("policies = {value} of the CHILD_SA {name}"));
                }
                "policies" | "mark_in" | "if_id_in" => {}
                "start_action" if value.eq_ignore_ascii_case("none") => {}
                "start_action" if value.eq_ignore_ascii_case("start") => {
                    self.add_note(*line, "a connection is begun at the start: write start = true above its [[connection.child]]".to_owned());
                }
                "start_action" if value.eq_ignore_ascii_case("trap") => {
                    self.add_note(*line, "the first packet begins a connection: write on_demand = true above its [[connection.child]]".to_owned());
                }
                key => self.note_untaken(*line, &alloc::format!("{key} = {value} of the CHILD_SA {name}")),
            }
        }
        for (within, section) in &child.sections {
            self.note_untaken(section.line, &alloc::format!("{within} of the CHILD_SA {name}"));
        }
    }
}
