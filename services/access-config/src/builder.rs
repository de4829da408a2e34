//! Reads and checks the secrets, certificates and pools that a file names. Each fault has its place.

use crate::model::{PoolTable, TlsTable, UserTable};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;
use std::path::{Path, PathBuf};
use usher_access::pool::{PoolConfig, PoolError, PoolRange, check_pools};
use usher_config::secret::{self, SecretText};
use usher_config::{ConfigEnvironment, KeyPathError};
use usher_crypto::SecretValue;
use usher_crypto::tls::{
    ClientConfig, SharedWallClock, TlsClientOptions, TlsCredentials, TlsError, TlsVersionRange, TrustRoots,
};

/// Limit of a certificate file, in octets.
const MOST: u64 = 1 << 20;

/// The possible sources of a secret.
#[derive(Clone, Copy, Debug)]
pub struct SecretSources<'a> {
    /// The key of the secret in the file. The keys of the other sources append `_file` and `_env`.
    pub key: &'static str,
    /// The secret in the file itself.
    pub inline: Option<&'a SecretText>,
    /// The path of a separate file.
    pub file: Option<&'a Path>,
    /// The name of an environment variable.
    pub env: Option<&'a str>,
}

/// Reads the files and secrets that the tables name, and collects the faults.
pub struct AccessConfigBuilder<'a> {
    base: &'a Path,
    outside: &'a dyn ConfigEnvironment,
    /// Clock for the validity of certificates.
    pub clock: &'a SharedWallClock,
    found: Vec<KeyPathError>,
    pub(crate) outgoing: BTreeMap<SocketAddr, ClientConfig>,
}

impl fmt::Debug for AccessConfigBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("base", &self.base)
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}

impl<'a> AccessConfigBuilder<'a> {
    /// Creates a builder for a file whose relative paths start at `base`.
    #[must_use]
    pub fn new(base: &'a Path, outside: &'a dyn ConfigEnvironment, clock: &'a SharedWallClock) -> Self {
        Self { base, outside, clock, found: Vec::new(), outgoing: BTreeMap::new() }
    }
    /// Returns the faults, and the TLS configuration of each outgoing connection, by server address.
    #[must_use]
    pub fn finish(self) -> (Vec<KeyPathError>, BTreeMap<SocketAddr, ClientConfig>) {
        (self.found, self.outgoing)
    }
    /// Adds a fault at a place.
    pub fn report_fault(&mut self, at: &[&str], message: impl Into<String>) {
        let keys = at.iter().map(|key| (*key).to_owned()).collect();
        self.found.push((keys, message.into()));
    }
    /// Returns the value, or adds its error as a fault at a place.
    pub fn ok_or_report<T>(&mut self, at: &[&str], result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.report_fault(at, message)).ok()
    }

    /// Reads a secret from its source.
    pub fn read_secret(&mut self, table: &[&str], places: &SecretSources<'_>) -> Option<SecretValue> {
        let file = places.file.map(|file| self.base.join(file));
        match secret::resolve_secret(places.key, places.inline, file.as_deref(), places.env, self.outside) {
            Ok(Some(secret)) => Some(SecretValue::from(secret.0.as_bytes())),
            Ok(None) => {
                let message = format!("\"{0}\" is missing: set it, \"{0}_file\" or \"{0}_env\"", places.key);
                self.report_fault(table, message);
                None
            }
            Err((key, message)) => {
                let mut at = table.to_vec();
                if !key.is_empty() {
                    at.push(&key);
                }
                self.report_fault(&at, message);
                None
            }
        }
    }

    /// Reads this side's certificate and key.
    pub fn read_credentials(
        &mut self,
        table: &[&str],
        certificate: Option<&PathBuf>,
        key: Option<&PathBuf>,
    ) -> Option<TlsCredentials> {
        let mut missing = |key: &str| {
            self.report_fault(table, format!("\"{key}\" is missing: set both \"certificate\" and \"key\""));
        };
        let certificate = certificate.or_else(|| {
            missing("certificate");
            None
        })?;
        let key = key.or_else(|| {
            missing("key");
            None
        })?;
        let (at, at_key) = ([table, &["certificate"]].concat(), [table, &["key"]].concat());
        let chain = self.outside.read_octets(&self.base.join(certificate), MOST);
        let chain = self.ok_or_report(&at, chain);
        let pem = self.outside.read_secret(&self.base.join(key));
        let pem = self.ok_or_report(&at_key, pem)?;
        let pem = SecretValue::new(pem);
        let made = TlsCredentials::from_pem(&chain?, pem.as_bytes());
        made.map_err(|error| {
            self.report_fault(if error.concerns_private_key() { &at_key } else { &at }, error.to_string())
        })
        .ok()
    }

    /// Reads the trusted authorities of the file that a table names.
    pub fn read_roots(&mut self, table: &[&str], ca: Option<&PathBuf>) -> Option<TrustRoots> {
        let at = [table, &["ca"]].concat();
        let Some(ca) = ca else {
            self.report_fault(
                table,
                "\"ca\" is missing: name the file with the certificates of the trusted authorities",
            );
            return None;
        };
        let text = self.outside.read_octets(&self.base.join(ca), MOST);
        let text = self.ok_or_report(&at, text)?;
        let roots = TrustRoots::from_pem(&text).map_err(|e| e.to_string());
        self.ok_or_report(&at, roots).map(TrustRoots::with_signature_cache)
    }

    /// Builds the TLS configuration of a client with a certificate.
    pub fn build_tls_client_from_table(
        &mut self,
        at: &[&str],
        table: &TlsTable,
        server_name: Option<String>,
    ) -> Option<ClientConfig> {
        let credentials = self.read_credentials(at, Some(&table.certificate), Some(&table.key))?;
        let roots = self.read_roots(at, Some(&table.ca))?;
        let made = self.tls_client(credentials, roots, server_name);
        self.ok_or_report(at, made)
    }
    /// Builds the TLS configuration of a client from credentials and authorities.
    ///
    /// # Errors
    /// The TLS engine rejects them.
    pub fn tls_client(
        &self,
        credentials: TlsCredentials,
        roots: TrustRoots,
        server_name: Option<String>,
    ) -> Result<ClientConfig, String> {
        let options = TlsClientOptions {
            versions: TlsVersionRange::default(),
            credentials: Some(credentials),
            roots,
            server_name,
            resumption: None,
            clock: self.clock.clone(),
            key_log: None,
        };
        ClientConfig::new(options).map_err(|e: TlsError| e.to_string())
    }

    /// Builds the address pools. `fits` rejects a range that this kind of access server cannot use.
    pub fn build_pools(
        &mut self,
        tables: &[PoolTable],
        fits: impl Fn(&PoolRange) -> Result<(), String>,
    ) -> Vec<PoolConfig> {
        let mut pools = Vec::new();
        for (i, table) in tables.iter().enumerate() {
            let number = i.to_string();
            let mut ranges = Vec::new();
            for (n, text) in table.ranges.iter().enumerate() {
                let n = n.to_string();
                let at = ["pool", &number, "ranges", &n];
                let range = text.parse::<PoolRange>().map_err(|error| error.to_string());
                let range = range.and_then(|range| fits(&range).map(|()| range));
                ranges.extend(self.ok_or_report(&at, range));
            }
            pools.push(PoolConfig { name: table.name.clone(), ranges });
        }
        if self.found.is_empty()
            && let Err(error) = check_pools(&pools)
        {
            let name = match &error {
                PoolError::DuplicateName(name)
                | PoolError::Empty(name)
                | PoolError::Overlap { pool: name, .. } => Some(name),
                PoolError::NotARange(_) => None,
            };
            let n = name
                .and_then(|name| pools.iter().rposition(|pool| pool.name == *name))
                .unwrap_or(0)
                .to_string();
            self.report_fault(&["pool", &n], error.to_string());
        }
        pools
    }

    /// Reads the passwords of local users, by name.
    pub fn read_passwords(&mut self, tables: &[UserTable]) -> BTreeMap<Vec<u8>, SecretValue> {
        let mut passwords = BTreeMap::new();
        for (i, table) in tables.iter().enumerate() {
            let number = i.to_string();
            let at = ["user", &number];
            let UserTable { name, password, password_file, password_env } = table;
            let places = SecretSources {
                key: "password",
                inline: password.as_ref(),
                file: password_file.as_deref(),
                env: password_env.as_deref(),
            };
            let Some(password) = self.read_secret(&at, &places) else { continue };
            if passwords.insert(name.as_bytes().to_vec(), password).is_some() {
                self.report_fault(
                    &[&at[..], &["name"]].concat(),
                    format!("two users have the name \"{name}\""),
                );
            }
        }
        passwords
    }
}
