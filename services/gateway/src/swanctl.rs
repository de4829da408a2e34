//! Imports strongSwan's `swanctl.conf`. Each imported setting has the same meaning, and each other one is reported. A
//! setting whose loss would admit more peers stops the import.

mod connection;
mod order;
mod refusals;
mod secrets;
mod settings;
mod words;

pub use settings::{IncludeLoader, SwanctlError};

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::IpAddr;
use refusals::CharonRejection;
use secrets::SwanctlSecret;
use settings::{SourceLine, SwanctlSection};
use words::{
    LocalAddressScope, authenticates_by_certificate, ike_version, local_address_scope, peer_addresses,
    side_auth_method, split_words, toml_array, toml_string, translate_pool_range,
};

/// Most addresses and networks of all connections: each is compared with each other.
const MAX_PEER_ADDRESSES: usize = 8192;

/// The result of an import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwanctlImport {
    /// The configuration in our format.
    pub text: String,
    /// The settings that were not imported: the line and a sentence. The line is 0 for none, or if another file is
    /// meant, which the sentence names.
    pub left: Vec<(usize, String)>,
    /// The settings whose loss would admit more peers, in the same form. If there are any, do not use the
    /// configuration.
    pub stops: Vec<(usize, String)>,
}

/// Imports a `swanctl.conf` and the files that it includes.
///
/// # Errors
/// It is no valid `swanctl.conf`.
pub fn import_swanctl(text: &str, include: &mut IncludeLoader<'_>) -> Result<SwanctlImport, SwanctlError> {
    let settings = settings::read_settings(text, include)?;
    let mut importer = SwanctlImporter { sends_ocsp_replies: true, ..SwanctlImporter::default() };
    importer.read_secrets(&settings.root);
    let served = importer.select_connections(&settings.root);
    for (name, section) in &settings.root.sections {
        match name.as_str() {
            "connections" => {
                importer.report_unexpected_values(section);
                importer.write_connections(&served);
            }
            "pools" => {
                for (name, pool) in &section.sections {
                    importer.write_pool(name, pool);
                }
            }
            "authorities" => importer.read_authorities(&served, section),
            "secrets" => {}
            // The section is only a template, whose settings other sections have inherited.
            name if settings.templates.contains(name) => {}
            other => importer.report_unimported_setting(section.line, &alloc::format!("the section {other}")),
        }
    }
    importer.write_eap_and_users();
    #[cfg(feature = "tls")]
    importer.check_imported_config();
    let told = |all: Vec<(SourceLine, String)>| {
        let mut all: Vec<_> =
            all.into_iter().map(|(place, what)| settings.describe_position(place, &what)).collect();
        all.sort();
        all
    };
    Ok(SwanctlImport { text: importer.out, left: told(importer.left), stops: told(importer.stops) })
}

#[derive(Default)]
struct SwanctlImporter {
    out: String,
    left: Vec<(SourceLine, String)>,
    stops: Vec<(SourceLine, String)>,
    secrets: Vec<SwanctlSecret>,
    /// The EAP methods of local users.
    methods: Vec<&'static str>,
    /// True if a connection uses AAA servers.
    uses_aaa_servers: bool,
    /// The revocation policy.
    revocation: Option<&'static str>,
    /// URLs of revocation lists and of OCSP responders.
    crl_urls: Vec<String>,
    ocsp_url: Option<String>,
    /// True if a connection's peer authenticates by a certificate in IKE.
    has_certificates: bool,
    sends_ocsp_replies: bool,
}

impl SwanctlImporter {
    fn report_unimported_setting(&mut self, line: SourceLine, what: &str) {
        self.left.push((line, alloc::format!("{what} is not imported")));
    }
    fn add_note(&mut self, line: SourceLine, what: String) {
        self.left.push((line, what));
    }
    /// Reports a setting without which more peers would be admitted.
    fn report_security_blocker(&mut self, line: SourceLine, what: &str) {
        self.stops
            .push((line, alloc::format!("{what} is not imported: without it, more peers would be admitted")));
    }
    fn write_setting(&mut self, key: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{key} = {value}");
    }
    fn write_text(&mut self, key: &str, value: &str) {
        self.write_setting(key, &toml_string(value));
    }

    /// Reports the values of a section that should have none.
    fn report_unexpected_values(&mut self, section: &SwanctlSection) {
        section.values.iter().for_each(|(key, value, line)| {
            self.report_unimported_setting(*line, &alloc::format!("{key} = {value}"))
        });
    }

    /// Returns the connections that both charon and ours support, in the file's order. Others are reported. They do
    /// not influence the order, because charon gives their clients another connection too.
    fn select_connections<'a>(&mut self, root: &'a SwanctlSection) -> Vec<&'a (String, SwanctlSection)> {
        let mut served = Vec::new();
        for entry in root.find_section("connections").map(|all| &all.sections).into_iter().flatten() {
            let (name, connection) = entry;
            let reading = refusals::read_connection(connection);
            if let Some(CharonRejection { position: place, why }) = reading.refusal {
                let what = "it is not imported, because charon rejects it";
                self.add_note(place, alloc::format!("the connection {name} {why}: {what}"));
                continue;
            }
            let (places, unknown) = peer_addresses(connection);
            let why = match ike_version(connection) {
                Some(1) => "uses IKEv1, which is not supported",
                Some(0 | 2) if places.is_empty() && unknown.is_none() => {
                    "has local addresses of one IP family and remote addresses of the other, so no peer matches it"
                }
                Some(0 | 2) => {
                    for (place, what) in reading.later {
                        let more =
                            "needs a release after strongSwan 5.9.8, which rejects connections with it";
                        self.add_note(place, alloc::format!("{what} of the connection {name} {more}"));
                    }
                    for (place, what) in reading.unclear {
                        self.report_security_blocker(
                            place,
                            &alloc::format!(
                                "{what} of the connection {name}, which charon may read differently,"
                            ),
                        );
                    }
                    served.push(entry);
                    continue;
                }
                _ => "has an unknown version of IKE",
            };
            self.add_note(
                connection.line_of("version"),
                alloc::format!("the connection {name} {why}: it is not imported"),
            );
        }
        served
    }

    /// Writes the connections in order of precedence.
    fn write_connections(&mut self, all: &[&(String, SwanctlSection)]) {
        self.write_listen_addresses(all);
        let sections: Vec<&SwanctlSection> = all.iter().map(|(_, connection)| connection).collect();
        if sections.iter().map(|connection| peer_addresses(connection).0.len()).sum::<usize>()
            > MAX_PEER_ADDRESSES
        {
            let what = alloc::format!(
                "the order of connections with more than {MAX_PEER_ADDRESSES} addresses and networks"
            );
            return self.report_security_blocker(0, &what);
        }
        let (order, conflicts) = order::sort_connections(&sections);
        for (name, connection) in conflicts.iter().map(|n| all[*n]) {
            let what =
                "comes before another connection for some addresses and after it for others; the order";
            self.report_security_blocker(connection.line, &alloc::format!("{name} {what}"));
        }
        order.iter().map(|n| all[*n]).for_each(|(name, connection)| self.write_connection(name, connection));
    }

    /// Writes the listening addresses. A connection that is limited to some of them would otherwise be served at all.
    fn write_listen_addresses(&mut self, all: &[&(String, SwanctlSection)]) {
        let addresses = |connection: &SwanctlSection| match local_address_scope(connection) {
            LocalAddressScope::Addresses(all) => Some(all),
            LocalAddressScope::Families(_) | LocalAddressScope::Both => None,
        };
        for (name, connection) in
            all.iter().filter(|(_, one)| local_address_scope(one) == LocalAddressScope::Both)
        {
            let line = connection.line_of("local_addrs");
            let what = "which mixes specific addresses and any address,";
            self.report_security_blocker(
                line,
                &alloc::format!("local_addrs of the connection {name}, {what}"),
            );
        }
        let first = all.first().and_then(|(_, connection)| addresses(connection));
        let is_same = all.iter().all(|(_, connection)| addresses(connection) == first);
        let read =
            |all: &Vec<String>| -> Option<Vec<IpAddr>> { all.iter().map(|word| word.parse().ok()).collect() };
        let families = |all: &Vec<IpAddr>| {
            let v4 = all.iter().filter(|address| address.is_ipv4()).count();
            v4 <= 1 && all.len() - v4 <= 1
        };
        match first.as_ref().filter(|_| is_same).and_then(read).filter(families) {
            Some(own) => {
                self.out.push_str("[listen]\n");
                self.write_setting("addresses", &toml_array(own.iter().map(ToString::to_string)));
            }
            None => {
                for (name, connection) in all.iter().filter(|(_, connection)| addresses(connection).is_some())
                {
                    let line = connection.line_of("local_addrs");
                    let what = "which must be one address per family, and the same in all connections,";
                    self.report_security_blocker(
                        line,
                        &alloc::format!("local_addrs of the connection {name}, {what}"),
                    );
                }
            }
        }
    }

    /// Reads the revocation sources of authorities.
    fn read_authorities(&mut self, served: &[&(String, SwanctlSection)], section: &SwanctlSection) {
        self.report_unexpected_values(section);
        let auths: Vec<String> =
            served.iter().map(|(_, connection)| side_auth_method(connection, "remote")).collect();
        let certified = auths.iter().any(|auth| authenticates_by_certificate(auth));
        let looks = certified || auths.iter().any(|auth| auth == "eap-tls");
        let by_http =
            |url: &String| url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
        let asked = section.sections.iter().filter(|(_, one)| one.value("ocsp_uris").is_some()).count();
        for (name, authority) in &section.sections {
            for (key, value, line) in &authority.values {
                let urls: Vec<String> = split_words(value).collect();
                let is_whole = certified && urls.iter().all(by_http);
                match key.as_str() {
                    "crl_uris" if is_whole => self.crl_urls.extend(urls),
                    "ocsp_uris" if is_whole && urls.len() == 1 && asked == 1 => {
                        self.ocsp_url = urls.into_iter().next();
                        let what = "applies to all certificates here, instead of the responder that a certificate \
                                    names";
                        self.add_note(*line, alloc::format!("ocsp_uris of the authority {name} {what}"));
                    }
                    // Without these URLs the revocation check would accept revoked certificates, so the import stops.
                    key @ ("crl_uris" | "ocsp_uris") if looks => {
                        self.report_security_blocker(*line, &alloc::format!("{key} of the authority {name}"));
                    }
                    key => self
                        .report_unimported_setting(*line, &alloc::format!("{key} of the authority {name}")),
                }
            }
            for (within, section) in &authority.sections {
                self.report_unimported_setting(
                    section.line,
                    &alloc::format!("{within} of the authority {name}"),
                );
            }
        }
    }

    fn write_pool(&mut self, name: &str, pool: &SwanctlSection) {
        if let Some(CharonRejection { position: place, why }) = refusals::find_pool_refusal(pool) {
            let what = "it is not imported, because charon rejects it";
            return self.add_note(place, alloc::format!("the pool {name} {why}: {what}"));
        }
        self.out.push_str("\n[[pool]]\n");
        self.write_text("name", name);
        for (key, value, line) in &pool.values {
            match key.as_str() {
                "addrs" => self.write_setting(
                    "ranges",
                    &toml_array(split_words(value).map(|word| translate_pool_range(&word))),
                ),
                "dns" => self.add_note(
                    *line,
                    alloc::format!(
                        "name servers belong to connections; write dns = {} in those with this pool",
                        toml_array(split_words(value))
                    ),
                ),
                key => self.report_unimported_setting(*line, &alloc::format!("{key} of the pool {name}")),
            }
        }
        for (within, section) in &pool.sections {
            self.report_unimported_setting(section.line, &alloc::format!("{within} of the pool {name}"));
        }
    }

    fn write_eap_and_users(&mut self) {
        if !self.methods.is_empty() {
            self.out.push_str("\n[eap]\n");
            let methods = toml_array(self.methods.iter().map(|method| (*method).to_owned()));
            self.write_setting("methods", &methods);
            if self.methods.contains(&"tls") {
                self.add_note(0, "EAP-TLS needs certificate, key and ca in [eap.tls]".to_owned());
            }
            let users = self.take_eap_users();
            for (name, password) in users {
                self.out.push_str("[[user]]\n");
                self.write_text("name", &name);
                self.write_text("password", &password);
            }
        }
        self.report_unused_secrets();
        // Without certificates there is no revocation to check.
        self.revocation = self.revocation.filter(|_| self.has_certificates);
        if self.revocation.is_some() || !self.sends_ocsp_replies {
            self.out.push_str("\n[revocation]\n");
            if let Some(policy) = self.revocation {
                self.write_text("ocsp", policy);
            }
            if !self.sends_ocsp_replies {
                self.write_setting("ocsp_response", "false");
            }
            if !self.crl_urls.is_empty() {
                let urls = toml_array(core::mem::take(&mut self.crl_urls));
                self.write_setting("crl_url", &urls);
            }
            if let Some(url) = self.ocsp_url.take() {
                self.write_text("ocsp_url", &url);
            }
        }
        if self.uses_aaa_servers {
            self.add_note(
                0,
                "strongswan.conf names the RADIUS servers (charon.plugins.eap-radius); write them in \
                 [aaa] and [[aaa.radius]]"
                    .to_owned(),
            );
        }
    }
    /// Reports faults that our own parser finds. Named files are not read here.
    #[cfg(feature = "tls")]
    fn check_imported_config(&mut self) {
        let clock = usher_crypto::tls::SharedWallClock::from_time(usher_core::WallTime::UNIX_EPOCH);
        let parsed = crate::config::parse("ike.toml", &self.out, &UnreadFiles, &clock);
        for fault in parsed.err().map(|faults| faults.faults).unwrap_or_default() {
            if !fault.message.contains(UNREAD) {
                self.add_note(0, alloc::format!("the imported configuration has a fault: {}", fault.message));
            }
        }
    }
}

/// The diagnostic of a file that was not read.
#[cfg(feature = "tls")]
const UNREAD: &str = "is not read by an import";

/// The files that a generated configuration names.
#[cfg(feature = "tls")]
struct UnreadFiles;

#[cfg(feature = "tls")]
impl usher_config::ConfigEnvironment for UnreadFiles {
    fn read_text(&self, path: &std::path::Path) -> Result<String, String> {
        Err(alloc::format!("{} {UNREAD}", path.display()))
    }
    fn read_secret(&self, path: &std::path::Path) -> Result<String, String> {
        self.read_text(path)
    }
    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests;
