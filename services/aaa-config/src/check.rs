//! Checks beyond the types: names are known, values are consistent, and the named files are usable.

use super::dictionary;
use super::model::{
    ConfigFile, ConfiguredClient, ExtendedMasterSecret, HomeServer, InlineUser, InnerIdentityDisclosure,
    MessageAuthenticator, SecretText, StoreKind, TlsTable,
};
use super::units::Fingerprint;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use core::net::IpAddr;
use std::path::{Path, PathBuf};
use usher_aaa::ledger::{PoolConfig, PoolRange, check_pools};
use usher_aaa::store::{AttributeRow, GroupRows, RowOperator, UserRows};
use usher_config::Prefix;
use usher_config::secret::{self, resolve_secret};
use usher_config::units::ByteSize;
use usher_config::{ConfigDiagnostic, ConfigEnvironment, KeyPathError};
use usher_core::TransportProtocol::{self, Sctp, Tcp, Udp};
use usher_radius::dictionary::RadiusDictionary;
use usher_radius::radsec::PeerCertificateCondition;

/// Rows of users by name.
pub type NamedUserRows = Vec<(String, UserRows)>;

/// A checked configuration, with its secrets and the contents of its files.
#[derive(Clone, Debug)]
pub struct LoadedAaaConfig {
    /// The configuration as written.
    pub file: ConfigFile,
    /// Path of the file. `None`: a text.
    pub path: Option<PathBuf>,
    /// Included files.
    pub included: Vec<PathBuf>,
    /// Warnings about valid settings.
    pub warnings: Vec<ConfigDiagnostic>,
    /// Clients with their secrets, in the file's order.
    pub clients: Vec<ClientEntry>,
    /// Home servers with their secrets, in the file's order.
    pub homes: Vec<HomeServerEntry>,
    /// Address pools, in the file's order.
    pub pools: Vec<PoolConfig>,
    /// Users of the file, with their groups.
    pub users: NamedUserRows,
    /// The server's dictionary, with those that the configuration names.
    pub dictionary: Arc<RadiusDictionary>,
    /// Connection string of PostgreSQL.
    pub url: Option<SecretText>,
    /// Contents of `identity_key_file`.
    pub identity_key: Option<SecretText>,
    /// Contents of the files of `[tls]`.
    pub tls: Option<TlsFiles>,
}

impl LoadedAaaConfig {
    /// Returns the file's client of an address: the longest matching prefix.
    #[must_use]
    pub fn longest_prefix_client(&self, address: IpAddr) -> Option<&ClientEntry> {
        let fits = self.clients.iter().filter(|client| client.prefix.contains(address));
        fits.max_by_key(|client| client.prefix.bits)
    }
}

/// A client with its secret.
#[derive(Clone, Debug)]
pub struct ClientEntry {
    /// Name for people.
    pub name: String,
    /// Network.
    pub prefix: Prefix,
    /// Shared secret. `None`: RadSec only.
    pub secret: Option<SecretText>,
    /// Requirement on its Access-Requests.
    pub message_authenticator: MessageAuthenticator,
    /// True if TLS 1.2 of its users' devices requires the Extended Master Secret.
    pub extended_master_secret: ExtendedMasterSecret,
    /// Accepted RadSec certificates. Empty: no RadSec.
    pub certificates: Vec<PeerCertificateCondition>,
    /// Access servers that it may name, besides itself.
    pub nas: Vec<Prefix>,
    /// Whether it gets the inner identity.
    pub inner_name: InnerIdentityDisclosure,
}

/// A home server with its secret.
#[derive(Clone, Debug)]
pub struct HomeServerEntry {
    /// Settings of the file.
    pub server: HomeServer,
    /// Shared secret.
    pub secret: SecretText,
}

/// PEM texts of `[tls]`.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate chain of the server.
    pub certificate: Vec<u8>,
    /// Private key.
    pub key: SecretText,
    /// Trusted authorities.
    pub ca: Option<Vec<u8>>,
    /// Revocation lists.
    pub crls: Vec<Vec<u8>>,
    /// Fetched lists of the state directory by URL, which the file alone does not name.
    pub fetched: Vec<(String, Vec<u8>)>,
    /// Fetched lists that users' certificates name, in the order of learning.
    pub learnt: Vec<DistributionPointCrl>,
}

/// A revocation list of a distribution point that users' certificates name.
#[derive(Clone, Debug)]
pub struct DistributionPointCrl {
    /// URL of the list.
    pub url: String,
    /// Issuer of these certificates in DER, which signed the list.
    pub issuer: Vec<u8>,
    /// The list.
    pub octets: Vec<u8>,
}

/// Collects errors with the paths of their settings.
pub(super) struct ConfigChecker<'a> {
    base: &'a Path,
    outside: &'a dyn ConfigEnvironment,
    pub(super) dictionary: RadiusDictionary,
    pub(super) found: Vec<KeyPathError>,
}

macro_rules! at {
    ($($step:expr),*) => { Vec::from([$($step.to_string()),*]) };
}
pub(super) use at;

/// Checks a file. Relative paths start at the directory `base`. `written` returns the file of a setting, which must
/// be private if the setting is a secret.
pub(super) fn check_file<'a>(
    mut file: ConfigFile,
    base: &Path,
    outside: &dyn ConfigEnvironment,
    written: impl Fn(&[String]) -> Option<&'a PathBuf>,
) -> (Option<LoadedAaaConfig>, Vec<KeyPathError>) {
    let mut c = ConfigChecker { base, outside, dictionary: RadiusDictionary::builtin(), found: Vec::new() };
    c.own_secrets(&file, written);
    c.load_dictionaries(&mut file);
    c.check_listeners(&file);
    c.check_numeric_limits(&file);
    let clients = c.read_clients(&mut file.client);
    let homes = c.read_home_servers(&mut file.home_server);
    c.check_realms(&file);
    c.check_diameter(&file);
    let pools = c.read_pools(&file);
    let users = c.read_users(&mut file);
    let url = c.check_store(&mut file);
    let identity_key = c.identity_key(&mut file);
    let tls = file.tls.as_mut().and_then(|tls| c.read_tls(tls));
    c.check_tls_requirements(&file);
    let loaded = c.found.is_empty().then(|| LoadedAaaConfig {
        file,
        path: None,
        included: Vec::new(),
        warnings: Vec::new(),
        clients,
        homes,
        pools,
        users,
        dictionary: Arc::new(c.dictionary),
        url,
        identity_key,
        tls,
    });
    (loaded, c.found)
}

impl ConfigChecker<'_> {
    pub(super) fn add_fault(&mut self, path: Vec<String>, message: impl Into<String>) {
        self.found.push((path, message.into()));
    }

    fn make_absolute(&self, path: &mut PathBuf) {
        if path.is_relative() {
            *path = self.base.join(&*path);
        }
    }

    fn load_dictionaries(&mut self, file: &mut ConfigFile) {
        for (i, path) in file.dictionary.iter_mut().enumerate() {
            self.make_absolute(path);
            if let Err(message) = dictionary::load_dictionary(&mut self.dictionary, path, self.outside) {
                self.add_fault(at!("dictionary", i), message);
            }
        }
    }

    /// A file with secrets must be as private as a file of secrets. One error for each file.
    fn own_secrets<'a>(&mut self, file: &ConfigFile, written: impl Fn(&[String]) -> Option<&'a PathBuf>) {
        let clients = file.client.iter().enumerate().filter(|(_, c)| c.secret.is_some());
        let homes = file.home_server.iter().enumerate().filter(|(_, h)| h.secret.is_some());
        let holds = |u: &InlineUser| u.password.is_some() || u.nt_hash.is_some() || u.argon2.is_some();
        let users = file.user.iter().enumerate().filter(|(_, u)| holds(u));
        let places = clients
            .map(|(i, _)| at!("client", i, "secret"))
            .chain(homes.map(|(i, _)| at!("home_server", i, "secret")))
            .chain(users.map(|(i, _)| at!("user", i)))
            .chain(file.users.url.is_some().then(|| at!("users", "url")));
        let mut seen = BTreeSet::new();
        for at in places {
            if let Some(path) = written(&at)
                && seen.insert(path)
                && let Err(message) = self.outside.read_secret(path)
            {
                self.add_fault(at, message);
            }
        }
    }

    fn check_listeners(&mut self, file: &ConfigFile) {
        let l = &file.listen;
        let mut seen: BTreeSet<(TransportProtocol, _)> = BTreeSet::new();
        for (key, addresses, by) in [
            ("auth", &l.auth, Udp),
            ("acct", &l.acct, Udp),
            ("radsec", &l.radsec, Tcp),
            ("diameter", &l.diameter, Tcp),
            ("diameter_tls", &l.diameter_tls, Tcp),
            ("diameter_sctp", &l.diameter_sctp, Sctp),
        ] {
            for (i, address) in addresses.iter().enumerate() {
                if address.port() == 0 {
                    self.add_fault(at!("listen", key, i), "port 0 is not allowed; write a port".to_owned());
                } else if !seen.insert((by, *address)) {
                    self.add_fault(at!("listen", key, i), format!("{address} occurs twice; keep one"));
                } else if by == Sctp && address.ip().is_unspecified() {
                    self.add_fault(
                        at!("listen", key, i),
                        "a Diameter node announces its SCTP addresses to its peers; write each address"
                            .to_owned(),
                    );
                }
            }
        }
        if seen.is_empty() {
            self.add_fault(
                at!("listen"),
                "the server listens on no address; add one, such as auth = [\"0.0.0.0:1812\"]",
            );
        }
        if file.diameter.is_none()
            && [&l.diameter, &l.diameter_tls, &l.diameter_sctp].iter().any(|l| !l.is_empty())
        {
            self.add_fault(
                at!("listen"),
                "a Diameter listener needs the server's name; add [diameter] with identity and realm",
            );
        }
    }

    fn check_numeric_limits(&mut self, file: &ConfigFile) {
        if let Some(0 | 257..) = file.shards {
            self.add_fault(
                at!("shards"),
                "shards is between 1 and 256; remove the line for one shard per core",
            );
        }
        if file.users.threads == 0 || file.users.threads > 64 {
            self.add_fault(at!("users", "threads"), "threads is between 1 and 64");
        }
        if file.limits.half_open == 0 {
            self.add_fault(
                at!("limits", "half_open"),
                "with 0 unfinished logins no user can log in; write 1 or more",
            );
        }
        if file.limits.half_open_memory < ByteSize::from_mib(1) {
            let said = "one TLS login under way takes up to 80 KiB; write at least \"1 MiB\" for all";
            self.add_fault(at!("limits", "half_open_memory"), said);
        }
        if file.limits.requests == 0 {
            self.add_fault(
                at!("limits", "requests"),
                "with 0 requests the server answers none; write 1 or more",
            );
        }
        if !(64..=4000).contains(&file.methods.fragment_size) {
            self.add_fault(at!("methods", "fragment_size"), "fragment_size is between 64 and 4000 octets");
        }
        if file.reject_delay.0.as_secs() > 10 {
            self.add_fault(
                at!("reject_delay"),
                "after more than 10 s the client has given up; write 10 s or less",
            );
        }
    }

    /// Reads a secret from one of three places.
    pub(super) fn read_secret(
        &mut self,
        at: &[String],
        inline: &Option<SecretText>,
        file: &mut Option<PathBuf>,
        env: &Option<String>,
    ) -> Option<SecretText> {
        if let Some(file) = file {
            self.make_absolute(file);
        }
        let found = resolve_secret("secret", inline.as_ref(), file.as_deref(), env.as_deref(), self.outside);
        let (key, message) = match found {
            Ok(None) => return None,
            Ok(Some(secret)) => match long_enough(&secret) {
                Ok(()) => return Some(secret),
                Err(message) => ("secret".to_owned(), message),
            },
            Err(fault) => fault,
        };
        let mut at = at.to_vec();
        at.extend((!key.is_empty()).then_some(key));
        self.add_fault(at, message);
        None
    }

    fn read_clients(&mut self, clients: &mut [ConfiguredClient]) -> Vec<ClientEntry> {
        let (mut names, mut networks) = (BTreeMap::new(), BTreeMap::new());
        let mut entries = Vec::new();
        for (i, client) in clients.iter_mut().enumerate() {
            if let Some(first) = names.insert(client.name.clone(), i) {
                let message =
                    format!("client {} of the file has this name, too; choose another name", first + 1);
                self.add_fault(at!("client", i, "name"), message);
            }
            if let Some(first) = networks.insert(client.prefix.to_string(), i) {
                let message = format!("client {} of the file has this prefix, too; keep one", first + 1);
                self.add_fault(at!("client", i, "prefix"), message);
            }
            let before = self.found.len();
            self.check_single_certificate_criterion(
                at!("client", i),
                client.certificate.as_ref(),
                client.fingerprint,
            );
            let certificates = accepted_certificate_matches(client.certificate.as_ref(), client.fingerprint);
            let secret = self.read_secret(
                &at!("client", i),
                &client.secret,
                &mut client.secret_file,
                &client.secret_env,
            );
            if secret.is_none() && certificates.is_empty() && self.found.len() == before {
                self.add_fault(
                    at!("client", i),
                    "this client has no secret; add secret_file (or secret, or secret_env), or for RadSec certificate \
                     or fingerprint",
                );
            }
            entries.push(ClientEntry {
                name: client.name.clone(),
                prefix: client.prefix,
                secret,
                message_authenticator: client.message_authenticator,
                extended_master_secret: client.extended_master_secret,
                certificates,
                nas: client.nas.clone(),
                inner_name: client.inner_name,
            });
        }
        entries
    }

    fn read_pools(&mut self, file: &ConfigFile) -> Vec<PoolConfig> {
        let mut pools = Vec::new();
        for (i, pool) in file.pool.iter().enumerate() {
            let mut ranges = Vec::new();
            for (n, text) in pool.ranges.iter().enumerate() {
                match text.parse::<PoolRange>() {
                    Ok(range) => ranges.push(range),
                    Err(error) => self.add_fault(at!("pool", i, "ranges", n), error.to_string()),
                }
            }
            if ranges.iter().map(PoolRange::size).sum::<u64>() > 1 << 20 {
                self.add_fault(at!("pool", i), "a pool has at most 1,048,576 addresses or prefixes");
            }
            pools.push(PoolConfig { name: pool.name.clone(), ranges });
        }
        if self.found.is_empty()
            && let Err(error) = check_pools(&pools)
        {
            self.add_fault(at!("pool"), error.to_string());
        }
        pools
    }

    fn read_users(&mut self, file: &mut ConfigFile) -> NamedUserRows {
        let mut groups: BTreeMap<String, GroupRows> = BTreeMap::new();
        for (i, group) in file.group.iter().enumerate() {
            let check = self.parse_rows(&group.check, &at!("group", i, "check"));
            let reply = self.parse_rows(&group.reply, &at!("group", i, "reply"));
            let rows = GroupRows { name: group.name.clone(), check, reply };
            if groups.insert(group.name.clone(), rows).is_some() {
                self.add_fault(at!("group", i, "name"), "another group has this name; choose another name");
            }
        }
        let (mut names, mut all) = (BTreeSet::new(), Vec::new());
        for i in 0..file.user.len() {
            if let Some(path) = file.user.get_mut(i).and_then(|u| u.password_file.as_mut()) {
                self.make_absolute(path);
            }
            let Some(user) = file.user.get(i) else { continue };
            if !names.insert(user.name.clone()) {
                self.add_fault(at!("user", i, "name"), "another user has this name; keep one");
            }
            let mut rows = UserRows {
                check: self.password_rows(i, user),
                reply: self.parse_rows(&user.reply, &at!("user", i, "reply")),
                groups: Vec::new(),
            };
            rows.check.extend(self.parse_rows(&user.check, &at!("user", i, "check")));
            for (n, name) in user.groups.iter().enumerate() {
                match groups.get(name) {
                    Some(group) => rows.groups.push(group.clone()),
                    None => self.add_fault(
                        at!("user", i, "groups", n),
                        format!("there is no group \"{name}\"; add a [[group]] of this name"),
                    ),
                }
            }
            if let Err(complaint) = usher_aaa::User::compile(&rows, &self.dictionary) {
                self.add_fault(at!("user", i), complaint.to_string());
            }
            all.push((user.name.clone(), rows));
        }
        all
    }

    /// Returns the rows of a user's password, with FreeRADIUS's names.
    fn password_rows(&mut self, i: usize, user: &InlineUser) -> Vec<AttributeRow> {
        let given = [
            user.password.is_some(),
            user.password_file.is_some(),
            user.nt_hash.is_some(),
            user.argon2.is_some(),
        ];
        if given.iter().filter(|g| **g).count() > 1 {
            self.add_fault(
                at!("user", i),
                "the password is given more than once; keep one of password, password_file, nt_hash and argon2",
            );
        }
        let row = |attribute: &str, value: &SecretText| {
            vec![AttributeRow {
                attribute: attribute.to_owned(),
                op: RowOperator::Replace,
                value: (*value.0).clone(),
            }]
        };
        if let Some(password) = &user.password {
            if password.0.is_empty() {
                let message = "the password is empty, so everybody knows it; set another, or remove the line if the \
                               user needs none";
                self.add_fault(at!("user", i, "password"), message);
                return Vec::new();
            }
            return row("Cleartext-Password", password);
        }
        if let Some(path) = &user.password_file {
            return match secret::from_file(path, self.outside) {
                Ok(password) => row("Cleartext-Password", &password),
                Err(message) => {
                    self.add_fault(at!("user", i, "password_file"), message);
                    Vec::new()
                }
            };
        }
        if let Some(hash) = &user.nt_hash {
            if hash.0.len() != 32 || !hash.0.bytes().all(|b| b.is_ascii_hexdigit()) {
                self.add_fault(at!("user", i, "nt_hash"), "an NT hash is 32 hexadecimal digits");
            }
            return row("NT-Password", hash);
        }
        if let Some(hash) = &user.argon2 {
            if !hash.0.starts_with("$argon2") {
                self.add_fault(at!("user", i, "argon2"), "an argon2 hash begins with $argon2");
            }
            return row("Crypt-Password", hash);
        }
        Vec::new()
    }

    /// Parses rows of the form `ATTRIBUTE OPERATOR VALUE`.
    fn parse_rows(&mut self, texts: &[String], at: &[String]) -> Vec<AttributeRow> {
        let mut rows = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            match parse_row(text) {
                Some(row) => rows.push(row),
                None => {
                    let mut at = at.to_vec();
                    at.push(i.to_string());
                    let message = format!(
                        "\"{text}\" does not have the form ATTRIBUTE OPERATOR VALUE, such as \"Session-Timeout = 3600\""
                    );
                    self.add_fault(at, message);
                }
            }
        }
        rows
    }

    fn check_store(&mut self, file: &mut ConfigFile) -> Option<SecretText> {
        let users = &mut file.users;
        if let Some(path) = &mut users.path {
            if path.is_relative() {
                *path = self.base.join(&*path);
            }
            if users.store != StoreKind::Sqlite {
                self.add_fault(at!("users", "path"), "\"path\" is for store = \"sqlite\"; remove it");
            }
        }
        if let Some(path) = &mut users.url_file
            && path.is_relative()
        {
            *path = self.base.join(&*path);
        }
        let (file, env) = (users.url_file.as_deref(), users.url_env.as_deref());
        let found = resolve_secret("url", users.url.as_ref(), file, env, self.outside);
        match (found, users.store) {
            (Ok(Some(url)), StoreKind::Postgresql) => {
                if let Err(refused) = self.outside.check_database(&url.0) {
                    let keys = [("url", users.url.is_some()), ("url_file", users.url_file.is_some())];
                    let key = keys.iter().find(|(_, given)| *given).map_or("url_env", |(key, _)| *key);
                    self.add_fault(at!("users", key), refused);
                }
                Some(url)
            }
            (Ok(None), StoreKind::Postgresql) => {
                self.add_fault(
                    at!("users", "store"),
                    "the address of PostgreSQL is missing; add url_file (or url, or url_env)",
                );
                None
            }
            (Ok(Some(_)), _) => {
                self.add_fault(at!("users", "store"), "a url is for store = \"postgresql\"; remove it");
                None
            }
            (Ok(None), _) => None,
            (Err((key, message)), _) => {
                self.add_fault(at!("users", key), message);
                None
            }
        }
    }

    fn identity_key(&mut self, file: &mut ConfigFile) -> Option<SecretText> {
        let path = file.accounting.identity_key_file.as_mut()?;
        self.make_absolute(path);
        let key = secret::from_file(path, self.outside).and_then(|key| match key.0.len() {
            0..32 => Err(format!("{} has fewer than 32 characters", path.display())),
            _ => Ok(key),
        });
        key.map_err(|message| self.add_fault(at!("accounting", "identity_key_file"), message)).ok()
    }

    fn read_tls(&mut self, tls: &mut TlsTable) -> Option<TlsFiles> {
        let before = self.found.len();
        if !(1..=7 * 24 * 60 * 60).contains(&tls.session_lifetime.0.as_secs()) {
            self.add_fault(
                at!("tls", "session_lifetime"),
                "session_lifetime is between 1 s and 7 days (RFC 8446 section 4.6.1); sessions = 0 disables resumption",
            );
        }
        if tls.min_version > tls.max_version {
            self.add_fault(at!("tls", "min_version"), "min_version is newer than max_version");
        }
        for path in [Some(&mut tls.certificate), Some(&mut tls.key), tls.ca.as_mut()].into_iter().flatten() {
            if path.is_relative() {
                *path = self.base.join(&*path);
            }
        }
        let named = tls.crl.len();
        resolve_revocation_list_paths(tls, self.base);
        for (i, url) in tls.crl_url.iter().enumerate().filter(|(_, url)| !url.starts_with("http://")) {
            let message = format!(
                "\"{url}\": lists are fetched over http:// only; they are signed, and a TLS connection would itself \
                 need a list"
            );
            self.add_fault(at!("tls", "crl_url", i), message);
        }
        let hosts = tls.crl_from_users.iter().enumerate();
        for (i, fault) in
            hosts.filter_map(|(i, host)| Some((i, usher_config::hosts::host_entry_error(host)?)))
        {
            self.add_fault(at!("tls", "crl_from_users", i), fault);
        }
        // A revoked certificate is accepted until the next check, so the interval has a limit.
        let day = usher_core::Duration::from_secs(86_400);
        if tls.crl_interval.0.as_secs() < 1 || tls.crl_interval.0 > day {
            self.add_fault(at!("tls", "crl_interval"), "crl_interval is between 1 s and one day");
        }
        let outside = self.outside;
        let read = |path: &Path| outside.read_octets(path, u64::MAX);
        let certificate =
            read(&tls.certificate).map_err(|e| self.add_fault(at!("tls", "certificate"), e)).ok();
        let key = secret::from_file(&tls.key, outside).map_err(|e| self.add_fault(at!("tls", "key"), e)).ok();
        let ca = match &tls.ca {
            Some(path) => Some(read(path).map_err(|e| self.add_fault(at!("tls", "ca"), e)).ok()?),
            None => None,
        };
        let mut crls = Vec::new();
        for (i, path) in tls.crl.iter().enumerate() {
            let list = read(path).and_then(|octets| match list_fault(&octets) {
                Some(fault) => Err(format!("{}: {fault}", path.display())),
                None => Ok(octets),
            });
            let at = if i < named { at!("tls", "crl", i) } else { at!("tls", "crl_authority") };
            crls.extend(list.map_err(|e| self.add_fault(at, e)));
        }
        let fetches =
            !tls.crl_url.is_empty() || tls.crl_distribution_points || !tls.crl_from_users.is_empty();
        if ca.is_none() && (fetches || !(tls.crl.is_empty() && tls.ocsp == super::model::OcspPolicy::Off)) {
            self.add_fault(
                at!("tls"),
                "crl and ocsp concern clients' certificates; add ca, the trusted authorities",
            );
        }
        let files = TlsFiles {
            certificate: certificate?,
            key: key?,
            ca,
            crls,
            fetched: Vec::new(),
            learnt: Vec::new(),
        };
        if self.found.len() == before
            && let Err((key, message)) = try_out(tls, &files)
        {
            self.add_fault(at!("tls", key), message);
        }
        Some(files)
    }
}

/// Builds the server's TLS from the files, as a check.
#[cfg(all(feature = "tls", not(target_arch = "wasm32")))]
fn try_out(tls: &TlsTable, files: &TlsFiles) -> Result<(), (&'static str, String)> {
    let clock = usher_crypto::tls::SharedWallClock::from_time(usher_core::WallTime::UNIX_EPOCH);
    crate::tls::build_tls(tls, files, &clock, None).map(drop)
}

/// Handshakes are replayed in this build, and no key is used.
#[cfg(not(all(feature = "tls", not(target_arch = "wasm32"))))]
fn try_out(_: &TlsTable, _: &TlsFiles) -> Result<(), (&'static str, String)> {
    Ok(())
}

#[cfg(feature = "tls")]
use crate::lists::find_revocation_list_fault as list_fault;

/// A build without TLS does not parse lists.
#[cfg(not(feature = "tls"))]
fn list_fault(_: &[u8]) -> Option<String> {
    None
}

/// Checks the length of a shared secret (RFC 2865 §3, RFC 3579 §4.2): a short one can be guessed from one packet.
fn long_enough(secret: &SecretText) -> Result<(), String> {
    match secret.0.len() {
        0..=5 => Err(
            "a secret of fewer than 6 octets is easily guessed; use 16 or more (head -c 16 /dev/urandom | base64)"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

/// Makes the paths of revocation lists absolute, and adds that of a local authority.
pub(super) fn resolve_revocation_list_paths(tls: &mut TlsTable, base: &Path) {
    for path in tls.crl.iter_mut().chain(&mut tls.crl_authority) {
        if path.is_relative() {
            *path = base.join(&*path);
        }
    }
    if let Some(folder) = &tls.crl_authority {
        let list = folder.join("ca.crl");
        if !tls.crl.contains(&list) {
            tls.crl.push(list);
        }
    }
}

/// Returns the accepted certificates for a name or a fingerprint.
#[must_use]
pub fn accepted_certificate_matches(
    name: Option<&String>,
    fingerprint: Option<Fingerprint>,
) -> Vec<PeerCertificateCondition> {
    let name = name.cloned().map(PeerCertificateCondition::Name);
    name.into_iter().chain(fingerprint.map(|print| PeerCertificateCondition::Fingerprint(print.0))).collect()
}

/// Parses `ATTRIBUTE OPERATOR VALUE` in FreeRADIUS's syntax, and removes quotes around the value. `None`: invalid.
#[must_use]
pub fn parse_row(text: &str) -> Option<AttributeRow> {
    let text = text.trim();
    let end = text.find(|c: char| c.is_whitespace() || "=:+!<>~*".contains(c))?;
    // A tag is part of the name: `Tunnel-Type:1 = VLAN`.
    let tag =
        text[end..].strip_prefix(':').map_or(0, |tag| tag.bytes().take_while(u8::is_ascii_digit).count());
    let (attribute, rest) = text.split_at(if tag > 0 { end + 1 + tag } else { end });
    let rest = rest.trim_start();
    let mut operators: Vec<(RowOperator, &str)> = RowOperator::ALL.to_vec();
    operators.sort_by_key(|(_, written)| core::cmp::Reverse(written.len()));
    let (op, written) = operators.into_iter().find(|(_, written)| rest.starts_with(written))?;
    let value = rest[written.len()..].trim();
    let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
    let complete = !attribute.is_empty()
        && (!value.is_empty() || matches!(op, RowOperator::Present | RowOperator::Absent));
    complete.then(|| AttributeRow { attribute: attribute.to_owned(), op, value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_attribute_operator_value() {
        let read = |text| parse_row(text).map(|r| (r.attribute, r.op, r.value));
        let is = |a: &str, op, v: &str| Some((a.to_owned(), op, v.to_owned()));
        assert_eq!(read("Session-Timeout = 3600"), is("Session-Timeout", RowOperator::Set, "3600"));
        assert_eq!(read("Reply-Message:=\"a b\""), is("Reply-Message", RowOperator::Replace, "a b"));
        assert_eq!(read("NAS-Port >= 5"), is("NAS-Port", RowOperator::GreaterOrEqual, "5"));
        assert_eq!(read("Tunnel-Type:1 = VLAN"), is("Tunnel-Type:1", RowOperator::Set, "VLAN"));
        assert_eq!(read("Tunnel-Type:1:=VLAN"), is("Tunnel-Type:1", RowOperator::Replace, "VLAN"));
        assert_eq!(read("Calling-Station-Id =* "), is("Calling-Station-Id", RowOperator::Present, ""));
        for wrong in [
            "",
            "Tunnel-Type:1",
            "Tunnel-Type:x = VLAN",
            "Session-Timeout",
            "= 5",
            "Session-Timeout =",
            "a b c",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
