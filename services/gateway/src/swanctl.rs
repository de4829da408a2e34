//! Imports strongSwan's `swanctl.conf`. Each imported setting has the same meaning, and each other one is reported. A
//! setting whose loss would admit more peers stops the import.

mod connection;
mod order;
mod refusals;
mod secrets;
mod settings;
mod words;

pub use settings::IncludeLoader;

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::IpAddr;
use refusals::SectionRefusal;
use secrets::SwanctlSecret;
use settings::{SettingsSection, SourceLine};
use words::{
    LocalScope, auth_of, ike_version, is_certified, local_scope, peer_addresses, pool_range, split_words,
    toml_array, toml_string,
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

/// An invalid `swanctl.conf`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct SwanctlError {
    /// The line, from 1.
    pub line: usize,
    /// The fault.
    pub what: String,
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
                importer.leave_values(section);
                importer.write_connections(&served);
            }
            "pools" => {
                for (name, pool) in &section.sections {
                    importer.write_pool(name, pool);
                }
            }
            "authorities" => importer.read_authorities(&served, section),
            "secrets" => {}
            // A template, whose settings other sections have inherited.
            name if settings.templates.contains(name) => {}
            other => importer.note_untaken(section.line, &alloc::format!("the section {other}")),
        }
    }
    importer.write_remaining();
    #[cfg(feature = "tls")]
    importer.check_output();
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
    fn note_untaken(&mut self, line: SourceLine, what: &str) {
        self.left.push((line, alloc::format!("{what} is not taken")));
    }
    fn add_note(&mut self, line: SourceLine, what: String) {
        self.left.push((line, what));
    }
    /// Reports a setting without which more peers would be admitted.
    fn add_stop(&mut self, line: SourceLine, what: &str) {
        self.stops.push((line, alloc::format!("{what} is not taken, and without it more would be let in")));
    }
    fn write_setting(&mut self, key: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{key} = {value}");
    }
    fn write_text(&mut self, key: &str, value: &str) {
        self.write_setting(key, &toml_string(value));
    }

    /// Reports the values of a section that should have none.
    fn leave_values(&mut self, section: &SettingsSection) {
        section
            .values
            .iter()
            .for_each(|(key, value, line)| self.note_untaken(*line, &alloc::format!("{key} = {value}")));
    }

    /// Returns the connections that both charon and ours support, in the file's order. Others are reported. They do
    /// not influence the order, because charon gives their clients another connection too.
    fn select_connections<'a>(&mut self, root: &'a SettingsSection) -> Vec<&'a (String, SettingsSection)> {
        let mut served = Vec::new();
        for entry in root.find_section("connections").map(|all| &all.sections).into_iter().flatten() {
            let (name, connection) = entry;
            let reading = refusals::read_connection(connection);
            if let Some(SectionRefusal { position: place, why }) = reading.refusal {
                let what = "it is not taken, as charon does not take it";
                self.add_note(place, alloc::format!("the connection {name} {why}: {what}"));
                continue;
            }
            let (places, unknown) = peer_addresses(connection);
            let why = match ike_version(connection) {
                Some(1) => "is of IKEv1, which is not spoken",
                Some(0 | 2) if places.is_empty() && unknown.is_none() => {
                    "has addresses of one family on this side and of the other on its other side, and nobody comes to it"
                }
                Some(0 | 2) => {
                    for (place, what) in reading.later {
                        let more =
                            "is of a release after strongSwan 5.9.8, which takes no connection with it";
                        self.add_note(place, alloc::format!("{what} of the connection {name} {more}"));
                    }
                    for (place, what) in reading.unclear {
                        self.add_stop(
                            place,
                            &alloc::format!(
                                "{what} of the connection {name}, which charon may read otherwise,"
                            ),
                        );
                    }
                    served.push(entry);
                    continue;
                }
                _ => "is of a version of IKE that nobody speaks",
            };
            self.add_note(
                connection.line_of("version"),
                alloc::format!("the connection {name} {why}: it is not taken"),
            );
        }
        served
    }

    /// Writes the connections in order of precedence.
    fn write_connections(&mut self, all: &[&(String, SettingsSection)]) {
        self.write_listen(all);
        let sections: Vec<&SettingsSection> = all.iter().map(|(_, connection)| connection).collect();
        if sections.iter().map(|connection| peer_addresses(connection).0.len()).sum::<usize>()
            > MAX_PEER_ADDRESSES
        {
            let what = alloc::format!(
                "connections have more than {MAX_PEER_ADDRESSES} addresses and networks, whose order"
            );
            return self.add_stop(0, &what);
        }
        let (order, conflicts) = order::sort_connections(&sections);
        for (name, connection) in conflicts.iter().map(|n| all[*n]) {
            let what = "is before another connection for some addresses and behind it for others: the order";
            self.add_stop(connection.line, &alloc::format!("{name} {what}"));
        }
        order.iter().map(|n| all[*n]).for_each(|(name, connection)| self.write_connection(name, connection));
    }

    /// Writes the listening addresses. A connection that is limited to some of them would otherwise be served at all.
    fn write_listen(&mut self, all: &[&(String, SettingsSection)]) {
        let addresses = |connection: &SettingsSection| match local_scope(connection) {
            LocalScope::Addresses(all) => Some(all),
            LocalScope::Families(_) | LocalScope::Both => None,
        };
        for (name, connection) in all.iter().filter(|(_, one)| local_scope(one) == LocalScope::Both) {
            let line = connection.line_of("local_addrs");
            let what = "which has named addresses beside any,";
            self.add_stop(line, &alloc::format!("local_addrs of the connection {name}, {what}"));
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
                    let what = "which not every connection has as its one address of a family,";
                    self.add_stop(line, &alloc::format!("local_addrs of the connection {name}, {what}"));
                }
            }
        }
    }

    /// Reads the revocation sources of authorities.
    fn read_authorities(&mut self, served: &[&(String, SettingsSection)], section: &SettingsSection) {
        self.leave_values(section);
        let auths: Vec<String> = served.iter().map(|(_, connection)| auth_of(connection, "remote")).collect();
        let certified = auths.iter().any(|auth| is_certified(auth));
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
                        let what = "is asked about every certificate here, in place of what that says";
                        self.add_note(*line, alloc::format!("ocsp_uris of the authority {name} {what}"));
                    }
                    // Without them, revoked certificates would be accepted.
                    key @ ("crl_uris" | "ocsp_uris") if looks => {
                        self.add_stop(*line, &alloc::format!("{key} of the authority {name}"));
                    }
                    key => self.note_untaken(*line, &alloc::format!("{key} of the authority {name}")),
                }
            }
            for (within, section) in &authority.sections {
                self.note_untaken(section.line, &alloc::format!("{within} of the authority {name}"));
            }
        }
    }

    fn write_pool(&mut self, name: &str, pool: &SettingsSection) {
        if let Some(SectionRefusal { position: place, why }) = refusals::find_pool_refusal(pool) {
            let what = "it is not taken, as charon does not take it";
            return self.add_note(place, alloc::format!("the pool {name} {why}: {what}"));
        }
        self.out.push_str("\n[[pool]]\n");
        self.write_text("name", name);
        for (key, value, line) in &pool.values {
            match key.as_str() {
                "addrs" => self
                    .write_setting("ranges", &toml_array(split_words(value).map(|word| pool_range(&word)))),
                "dns" => self.add_note(
                    *line,
                    alloc::format!(
                        "name servers are of connections: write dns = {} into those with this pool",
                        toml_array(split_words(value))
                    ),
                ),
                key => self.note_untaken(*line, &alloc::format!("{key} of the pool {name}")),
            }
        }
        for (within, section) in &pool.sections {
            self.note_untaken(section.line, &alloc::format!("{within} of the pool {name}"));
        }
    }

    fn write_remaining(&mut self) {
        if !self.methods.is_empty() {
            self.out.push_str("\n[eap]\n");
            let methods = toml_array(self.methods.iter().map(|method| (*method).to_owned()));
            self.write_setting("methods", &methods);
            if self.methods.contains(&"tls") {
                self.add_note(0, "EAP-TLS needs certificate, key and ca below [eap.tls]".to_owned());
            }
            let users = self.take_users();
            for (name, password) in users {
                self.out.push_str("[[user]]\n");
                self.write_text("name", &name);
                self.write_text("password", &password);
            }
        }
        self.name_untaken_secrets();
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
            self.add_note(0, "which RADIUS servers are asked is in strongswan.conf (charon.plugins.eap-radius): write [aaa] and [[aaa.radius]]".to_owned());
        }
    }
    /// Reports faults that our own parser finds. Named files are not read here.
    #[cfg(feature = "tls")]
    fn check_output(&mut self) {
        let clock = usher_crypto::tls::WallClock::from_time(usher_core::WallTime::UNIX_EPOCH);
        let parsed = crate::config::parse("ike.toml", &self.out, &UnreadFiles, &clock);
        for fault in parsed.err().map(|faults| faults.faults).unwrap_or_default() {
            if !fault.message.contains(UNREAD) {
                self.add_note(0, alloc::format!("what is made of it is not right yet: {}", fault.message));
            }
        }
    }
}

/// The diagnostic of a file that was not read.
#[cfg(feature = "tls")]
const UNREAD: &str = "is not looked at by an importer";

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
