//! Import of connections: both sides, and their CHILD_SAs.

use super::SwanctlImporter;
use super::secrets::secret_identity;
use super::settings::{SourceLine, SwanctlSection};
use super::words::{
    authenticates_by_certificate, ike_proposal, ike_version, is_any_identity, is_no, is_octets,
    is_section_of_side, is_yes, join_path, parse_number, parse_prefix, parse_volume, peer_addresses,
    round_auth_method, side_auth_method, side_auth_rounds, side_of, split_words, toml_array, toml_time,
    translate_esp_proposal, translate_identity, unspecified_address_families,
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
                // "default" as the only proposal is also the default here.
                if value.trim() != "default" {
                    self.report_unimported_setting(line, "\"default\" beside other proposals");
                }
                continue;
            }
            let ours = if read(&words).is_some() { rewrite(&words) } else { words.clone() };
            match read(&ours) {
                None => taken.push(ours),
                Some(why) => {
                    refused = true;
                    self.add_note(line, alloc::format!("the proposal {words} is not imported: {why}"));
                }
            }
        }
        if !taken.is_empty() {
            self.write_setting("proposals", &toml_array(taken));
        } else if refused {
            self.report_security_blocker(line, "this list, in which no proposal is supported,");
        }
    }

    /// Writes the peer's addresses: for initiating, and as a limit for initiators.
    fn write_peer_addresses(&mut self, connection: &SwanctlSection) {
        let line = connection.line_of("remote_addrs");
        let (places, unknown) = peer_addresses(connection);
        if let Some(word) = unknown {
            // Neither is supported: a name needs a DNS lookup, and a range is not a network.
            return self.report_security_blocker(line, &alloc::format!("{word} of remote_addrs"));
        }
        let is_there = |text: &str| places.iter().any(|place| place.text == text);
        if is_there("0.0.0.0/0") && is_there("::/0") {
            return;
        }
        let networks: Vec<String> = places.into_iter().map(|place| place.text).collect();
        // With EAP in remote auth the peer initiates; with EAP in local auth, this side does.
        let remote = side_auth_method(connection, "remote");
        if let Some(first) = networks.iter().find(|word| word.parse::<IpAddr>().is_ok())
            && !remote.starts_with("eap")
        {
            let is_named = |key| {
                side_of(connection, "remote")
                    .and_then(|side| side.value(key))
                    .is_some_and(|id| !is_any_identity(id))
            };
            if remote != "psk" && !(is_named("id") || is_named("eap_id")) {
                let what = "is not imported as remote_address: any certificate would be accepted; write \
                            remote_address and remote_id";
                self.add_note(line, alloc::format!("{first} {what}"));
            } else {
                self.write_text("remote_address", first);
            }
        }
        if !side_auth_method(connection, "local").starts_with("eap") {
            self.write_setting("from", &toml_array(networks));
        }
    }

    pub(super) fn write_connection(&mut self, name: &str, connection: &SwanctlSection) {
        self.out.push_str("\n[[connection]]\n");
        self.write_text("name", name);
        // These are strongSwan's defaults, which differ from the defaults here.
        let (mut liveness, mut unique) = ("0 s".to_owned(), false);
        for (key, value, line) in &connection.values {
            match key.as_str() {
                "version" if ike_version(connection) == Some(0) => self.add_note(
                    *line,
                    alloc::format!("the connection {name} is imported for IKEv2 only: IKEv1 is not supported"),
                ),
                "version" => {}
                "proposals" => {
                    let read = |words: &str| Proposal::parse_ike_proposal(words).err().map(|error| error.to_string());
                    self.write_proposals(value, *line, read, ike_proposal);
                }
                // These two keys together limit the initiators, which is written below.
                "remote_addrs" | "local_addrs" => {}
                "remote_port" => match parse_number(value).map(u16::try_from) {
                    Some(Ok(port)) => self.write_setting("remote_port", &port.to_string()),
                    _ => self.report_unimported_setting(*line, &alloc::format!("remote_port = {value}")),
                },
                "mobike" => self.write_setting("mobike", if is_yes(value) { "true" } else { "false" }),
                "fragmentation" => self.write_setting("fragmentation", if is_yes(value) { "true" } else { "false" }),
                "childless" => match &*value.to_ascii_lowercase() {
                    word @ ("never" | "force" | "allow") => self.write_text("childless", word),
                    word => {
                        self.write_text("childless", "allow");
                        self.add_note(*line, alloc::format!("childless = {word} is imported as allow"));
                    }
                },
                "pools" => self.write_setting("pools", &toml_array(split_words(value))),
                "vips" => {
                    self.write_setting("address", "true");
                    if split_words(value).any(|word| unspecified_address_families(&word) == [false, false]) {
                        let what = "requests this address in strongSwan, and any address here";
                        self.add_note(*line, alloc::format!("vips = {value} of the connection {name} {what}"));
                    }
                }
                "dpd_delay" | "rekey_time" | "reauth_time" => match toml_time(value) {
                    Some(time) if key == "dpd_delay" => liveness = time,
                    Some(time) if key == "reauth_time" => self.write_text("reauth_after", &time),
                    Some(time) => self.write_text("rekey_after", &time),
                    None => self.report_unimported_setting(*line, &alloc::format!("{key} = {value}")),
                },
                "ppk_required" if !is_no(value) => {
                    self.report_security_blocker(*line, &alloc::format!("ppk_required of the connection {name}"));
                }
                "encap" if is_yes(value) => {
                    self.add_note(*line, "encap applies to the whole gateway here; write udp_encapsulation = true in \
                                          [data]".to_owned());
                }
                "encap" | "ppk_required" => {}
                "ocsp" => match &*value.to_ascii_lowercase() {
                    "reply" => {}
                    "never" => self.sends_ocsp_replies = false,
                    word @ ("both" | "request") => {
                        self.sends_ocsp_replies &= word == "both";
                        self.revocation = self.revocation.or(Some("soft"));
                    }
                    _ => self.report_unimported_setting(*line, &alloc::format!("ocsp = {value}")),
                },
                "unique" => match &*value.to_ascii_lowercase() {
                    "replace" => unique = true,
                    "no" => {}
                    "never" => self.add_note(
                        *line,
                        alloc::format!(
                            "unique = never of the connection {name} is imported as no: INITIAL_CONTACT from an \
                             initiator ends its older IKE_SAs"
                        ),
                    ),
                    // With any other value, strongSwan rejects a second session, which this gateway cannot do.
                    _ => self.report_security_blocker(*line, &alloc::format!("unique = {value} of the connection {name}")),
                },
                "if_id_in" if parse_number(value) != Some(0) => {
                    self.report_security_blocker(*line, &alloc::format!("if_id_in of the connection {name}"));
                }
                "if_id_in" => {}
                key => self.report_unimported_setting(*line, &alloc::format!("{key} of the connection {name}")),
            }
        }
        self.write_peer_addresses(connection);
        self.write_text("liveness", &liveness);
        self.write_setting("unique", if unique { "true" } else { "false" });
        let (local, remote) = (side_auth_rounds(connection, "local"), side_auth_rounds(connection, "remote"));
        let round = alloc::format!("a further authentication round of the connection {name}");
        local.iter().skip(1).for_each(|more| self.report_unimported_setting(more.line, &round));
        remote.iter().skip(1).for_each(|more| self.report_security_blocker(more.line, &round));
        let (own, other) =
            self.write_identities(name, connection, local.first().copied(), remote.first().copied());
        let mut psk = false;
        for (section, ours) in
            local.first().map(|s| (*s, true)).into_iter().chain(remote.first().map(|s| (*s, false)))
        {
            psk |= self.write_side(name, section, ours, other.as_deref());
        }
        if psk {
            match self.take_best_matching_secret(false, own.as_deref(), other.as_deref()) {
                Some(secret) => self.write_text("secret", &secret),
                None => self.add_note(
                    connection.line,
                    alloc::format!("no secret matches the connection {name}; write secret_file"),
                ),
            }
        }
        for (kind, section) in &connection.sections {
            if kind.eq_ignore_ascii_case("children") {
                section.sections.iter().for_each(|(name, child)| self.write_child(name, child));
            } else if !(is_section_of_side(kind, "local") || is_section_of_side(kind, "remote")) {
                self.report_security_blocker(
                    section.line,
                    &alloc::format!("{kind} of the connection {name}"),
                );
            }
        }
    }

    /// Writes both identities. Returns them as secrets name them: this side's and the peer's.
    fn write_identities(
        &mut self,
        name: &str,
        connection: &SwanctlSection,
        local: Option<&SwanctlSection>,
        remote: Option<&SwanctlSection>,
    ) -> (Option<String>, Option<String>) {
        let value = |side: Option<&SwanctlSection>, key: &str| {
            side?.value(key).filter(|id| !is_any_identity(id)).map(str::to_owned)
        };
        let own = value(local, "id");
        match (own.as_deref().and_then(translate_identity), &own) {
            (Some(id), _) => self.write_text("local_id", &id),
            (None, Some(said)) => {
                self.report_unimported_setting(
                    connection.line,
                    &alloc::format!("the id {said} of the connection {name}"),
                );
            }
            (None, None) => {}
        }
        let (other, eap) = (value(remote, "id"), value(remote, "eap_id"));
        let meant = match (&other, &eap) {
            (Some(id), Some(eap)) if id != eap => {
                let what = alloc::format!("id = {id} beside eap_id = {eap} of the connection {name}");
                self.report_security_blocker(connection.line, &what);
                None
            }
            (None, Some(eap)) => {
                let what =
                    "becomes remote_id: the gateway refuses initiators with another identity outside EAP";
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
                self.report_security_blocker(
                    connection.line,
                    &alloc::format!("the id {said} of the connection {name}"),
                );
            }
            (None, None) => {}
        }
        (own.as_deref().map(secret_identity), other.as_deref().map(secret_identity))
    }

    /// Writes the authentication of one side. True for a shared key.
    fn write_side(&mut self, name: &str, section: &SwanctlSection, ours: bool, other: Option<&str>) -> bool {
        let key = if ours { "local_auth" } else { "remote_auth" };
        let value = |key: &str| section.value(key);
        let auth = &*round_auth_method(section);
        let method = match auth {
            "eap-md5" => Some("md5"),
            "eap-mschapv2" | "eap" | "eap-dynamic" => Some("mschapv2"),
            "eap-tls" => Some("tls"),
            _ => None,
        };
        // For such a connection, this gateway supports only a single EAP method.
        let is_any_method = matches!(auth, "eap" | "eap-dynamic");
        if is_any_method && (ours || auth == "eap-dynamic") {
            let what = "is imported as eap-mschapv2 only";
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
                match self.take_best_matching_secret(true, Some(&secret_identity(&said)), other) {
                    Some(secret) => self.write_text("password", &secret),
                    None if method == "tls" => {}
                    None => self.add_note(
                        section.line,
                        alloc::format!("no secret matches {said}; write password_file"),
                    ),
                }
            }
            // With this setting, charon starts no method and rejects every user.
            ("eap", false, _) => self.report_security_blocker(
                section.line,
                &alloc::format!("auth = eap of the connection {name}"),
            ),
            (_, false, Some(method)) => {
                self.write_text(key, "eap-local");
                // Users of one method must not authenticate by another, and all connections share the methods here.
                if self.methods.first().is_some_and(|other| *other != method) {
                    let what = alloc::format!(
                        "auth = {auth} of the connection {name}, beside another connection with another method,"
                    );
                    self.report_security_blocker(section.line, &what);
                }
                if !self.methods.contains(&method) {
                    self.methods.push(method);
                }
            }
            ("pubkey" | "rsa" | "ecdsa", ..) => self.write_text(key, "certificate"),
            (auth, true, _) if auth.starts_with("pubkey-") => {
                self.write_text(key, "certificate");
                self.report_unimported_setting(
                    section.line,
                    &alloc::format!("the list of signatures in auth = {auth}"),
                );
            }
            (auth, false, _) => {
                self.report_security_blocker(
                    section.line,
                    &alloc::format!("auth = {auth} of the connection {name}"),
                );
            }
            (auth, true, _) => self.add_note(
                section.line,
                alloc::format!("auth = {auth} of the connection {name} is not supported"),
            ),
        }
        let certified = authenticates_by_certificate(auth);
        for (key, value, line) in &section.values {
            match key.as_str() {
                "auth" | "id" | "eap_id" | "round" => {}
                "certs" if ours => self.write_certificate(name, value, *line),
                "revocation" if !ours && certified => self.read_revocation(value, *line),
                // Without certificates there is no revocation check, so `relaxed` requires nothing.
                "revocation" if !ours && value.eq_ignore_ascii_case("relaxed") => {}
                "cacerts" if !ours && certified && !value.contains(',') && !is_octets(value.trim()) => {
                    self.write_text("ca", &join_path("x509ca", value.trim()));
                }
                // In strongSwan, the EAP server must have this identity, which this gateway cannot require.
                "aaa_id" if ours && !is_any_identity(value) => {
                    self.report_security_blocker(
                        *line,
                        &alloc::format!("aaa_id = {value} of the connection {name}"),
                    );
                }
                key if ours => {
                    self.report_unimported_setting(*line, &alloc::format!("{key} of the connection {name}"))
                }
                // Any other key of the peer's side may limit who is admitted.
                key => self.report_security_blocker(
                    *line,
                    &alloc::format!("{key} = {value} of the connection {name}"),
                ),
            }
        }
        if !ours && auth.starts_with("eap") && value("eap_id").is_some_and(is_any_identity) {
            let what = "comes from an EAP identity request in strongSwan; here it is the IKE identity, unless that is \
                        an address";
            self.add_note(section.line, alloc::format!("eap_id of the connection {name} {what}"));
        }
        if !ours && method == Some("tls") {
            let what = "by EAP-TLS: charon checks their certificates for revocation, this gateway does not";
            self.add_note(section.line, alloc::format!("users of the connection {name} log in {what}"));
        }
        for (within, section) in &section.sections {
            let what = alloc::format!("{within} of the connection {name}");
            if ours {
                self.report_unimported_setting(section.line, &what)
            } else {
                self.report_security_blocker(section.line, &what)
            }
        }
        if !ours && certified && value("revocation").is_none() {
            self.read_revocation("relaxed", section.line);
        }
        self.has_certificates |= !ours && certified;
        if !ours && certified && value("cacerts").is_none() {
            self.add_note(
                section.line,
                alloc::format!(
                    "the connection {name} names no authority to trust; write ca = \"x509ca/...\""
                ),
            );
        }
        auth == "psk"
    }
    /// Writes the certificate of this side: the first one that is named.
    fn write_certificate(&mut self, name: &str, value: &str, line: SourceLine) {
        let mut files = split_words(value);
        let Some(file) = files.next().filter(|file| !is_octets(file)) else {
            return self.report_unimported_setting(line, &alloc::format!("certs of the connection {name}"));
        };
        self.write_text("certificate", &join_path("x509", &file));
        let what = "is not named; write key = \"private/...\"";
        self.add_note(line, alloc::format!("the private key of {file} {what}"));
        for more in files {
            self.report_unimported_setting(
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
                self.add_note(
                    line,
                    "revocation = ifuri is imported as relaxed; if certificates name a responder or a \
                     list, write ocsp = \"hard\" or crl_required = true in [revocation]"
                        .to_owned(),
                );
            }
            "strict" => {
                self.revocation = Some("hard");
                self.add_note(
                    line,
                    "revocation = strict is imported as ocsp = \"hard\"; if the authority has only \
                     lists, write ocsp = \"off\" and crl_required = true in [revocation]"
                        .to_owned(),
                );
            }
            _ => self.report_security_blocker(line, &alloc::format!("revocation = {value}")),
        }
    }

    fn write_child(&mut self, name: &str, child: &SwanctlSection) {
        match &*child.value("mode").unwrap_or("tunnel").to_ascii_lowercase() {
            "tunnel" | "transport" => {}
            "drop" => {
                return self.report_security_blocker(
                    child.line,
                    &alloc::format!("mode = drop of the CHILD_SA {name}"),
                );
            }
            other => {
                return self.report_unimported_setting(
                    child.line,
                    &alloc::format!("the CHILD_SA {name} with mode = {other}"),
                );
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
                        self.report_security_blocker(
                            *line,
                            &alloc::format!("{key} = {value} of the CHILD_SA {name}"),
                        );
                    }
                }
                "esp_proposals" => {
                    let read = |words: &str| {
                        Proposal::parse_esp_proposal(words).err().map(|error| error.to_string())
                    };
                    self.write_proposals(value, *line, read, translate_esp_proposal);
                }
                "mode" => self.write_text("mode", &value.to_ascii_lowercase()),
                "rekey_time" => match toml_time(value) {
                    Some(time) => self.write_text("rekey_after", &time),
                    None => self.report_unimported_setting(*line, &alloc::format!("rekey_time = {value}")),
                },
                "rekey_bytes" => match parse_volume(value) {
                    Some(0) => {}
                    Some(bytes) => self.write_text(key, &alloc::format!("{bytes} B")),
                    None => self.report_unimported_setting(*line, &alloc::format!("{key} = {value}")),
                },
                "rekey_packets" => match parse_number(value) {
                    Some(0) => {}
                    Some(packets) if packets <= u32::MAX.into() => {
                        self.write_setting(key, &packets.to_string())
                    }
                    _ => self.report_unimported_setting(*line, &alloc::format!("{key} = {value}")),
                },
                // In strongSwan, labels restrict inbound traffic.
                "label" => {
                    self.report_security_blocker(*line, &alloc::format!("label of the CHILD_SA {name}"))
                }
                "mark_in" if parse_number(value.split('/').next().unwrap_or_default()) != Some(0) => {
                    self.report_security_blocker(*line, &alloc::format!("mark_in of the CHILD_SA {name}"));
                }
                "if_id_in" if parse_number(value) != Some(0) => {
                    self.report_security_blocker(*line, &alloc::format!("if_id_in of the CHILD_SA {name}"));
                }
                "policies" if !is_yes(value) => {
                    self.report_security_blocker(
                        *line,
                        &alloc::format!("policies = {value} of the CHILD_SA {name}"),
                    );
                }
                "policies" | "mark_in" | "if_id_in" => {}
                "start_action" if value.eq_ignore_ascii_case("none") => {}
                "start_action" if value.eq_ignore_ascii_case("start") => {
                    self.add_note(
                        *line,
                        "only a connection as a whole starts at once; write start = true above its \
                         [[connection.child]]"
                            .to_owned(),
                    );
                }
                "start_action" if value.eq_ignore_ascii_case("trap") => {
                    self.add_note(
                        *line,
                        "packets initiate a connection as a whole; write on_demand = true above its \
                         [[connection.child]]"
                            .to_owned(),
                    );
                }
                key => self.report_unimported_setting(
                    *line,
                    &alloc::format!("{key} = {value} of the CHILD_SA {name}"),
                ),
            }
        }
        for (within, section) in &child.sections {
            self.report_unimported_setting(section.line, &alloc::format!("{within} of the CHILD_SA {name}"));
        }
    }
}
