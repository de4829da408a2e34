//! TLS to PostgreSQL: the results of each libpq mode.

use crate::cluster::{PostgresCluster, is_root, run_checked};
use crate::folder::StoreTempDir;
use crate::postgres::TEST_TIMEOUT;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use usher_aaa::store::{Store, StoreError};
use usher_store::PostgresStore;

/// Returns a loopback address for this process, on which no other test uses a port. Connections to it come from
/// 127.0.0.1.
fn own_loopback() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | (high & 63), middle, low)
}

/// The name in the server's certificate.
const NAME: &str = "db.example";

/// A certificate authority.
struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn generate_key() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap()
}

fn certificate_params(common_name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

impl TestAuthority {
    fn new(name: &str) -> Self {
        let (key, mut params) = (generate_key(), certificate_params(name, &[]));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Issues a certificate. Returns it and its key in PEM.
    fn sign_certificate(&self, common_name: &str, names: &[&str]) -> (String, String) {
        let key = generate_key();
        let certificate = certificate_params(common_name, names).signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

impl PostgresCluster {
    /// Creates a server that also listens on this process's own address.
    fn on_tcp() -> Self {
        let free = TcpListener::bind((own_loopback(), 0)).expect("a port is free");
        let port = free.local_addr().expect("it has an address").port();
        drop(free);
        Self::with_port(port, Some(own_loopback()))
    }

    /// Sets the options of its next start.
    fn set_options(&self, options: &str) {
        options.clone_into(&mut self.settings.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Writes a file into its data folder, readable only by the server.
    fn write_data_file(&self, name: &str, text: &str) {
        let path = self.data_folder().join(name);
        fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        run_checked(Command::new("chmod").arg("0600").arg(&path));
        if is_root() {
            run_checked(Command::new("chown").arg("postgres").arg(&path));
        }
    }

    /// Sets the access rules.
    fn set_access(&self, lines: &str) {
        self.write_data_file("pg_hba.conf", &format!("{lines}\n"));
        run_checked(self.program_command("pg_ctl").args(["-s", "-D"]).arg(self.data_folder()).arg("reload"));
        let errors = "SELECT count(*) FROM pg_hba_file_rules WHERE error IS NOT NULL";
        assert_eq!(self.run_sql("postgres", errors), "0", "{lines}");
    }
}

/// A server with TLS, its authority, and files for its clients.
struct TlsServerFixture {
    cluster: PostgresCluster,
    authority: TestAuthority,
    files: StoreTempDir,
}

impl TlsServerFixture {
    fn new() -> Self {
        let (cluster, authority, files) =
            (PostgresCluster::on_tcp(), TestAuthority::new("right"), StoreTempDir::new());
        let site = Self { cluster, authority, files };
        let (certificate, key) = site.authority.sign_certificate("server", &[NAME]);
        site.serve_certificate(&certificate, &key);
        site.write_file("ca.pem", &site.authority.pem);
        site
    }

    /// Has the server present this certificate.
    fn serve_certificate(&self, certificate: &str, key: &str) {
        self.cluster.write_data_file("server.crt", certificate);
        self.cluster.write_data_file("server.key", key);
        self.cluster.write_data_file("clients.crt", &self.authority.pem);
        self.cluster.stop_server("fast");
        self.cluster.set_options(
            "-c ssl=on -c ssl_cert_file=server.crt -c ssl_key_file=server.key -c ssl_ca_file=clients.crt",
        );
        self.cluster.start();
    }

    fn write_file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.files.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn server_url(&self, host: &str, more: &str) -> String {
        let files = self.files.path().display().to_string();
        let port = self.cluster.port;
        let more = more.replace("FILES", &files);
        format!("host={host} hostaddr={} port={port} user=usher dbname=postgres {more}", own_loopback())
    }

    /// True if the server reports that a connection is encrypted.
    fn is_encrypted(&self, url: &str) -> bool {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("looked_at_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut store = connect_store(&format!("{url} application_name={name}"));
        store.find_user("kaya").unwrap();
        let asked = format!(
            "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = '{name}'"
        );
        match self.cluster.run_sql("postgres", &asked).as_str() {
            "t" => true,
            "f" => false,
            other => panic!("{other}"),
        }
    }
}

/// Tries to connect, with retries if a busy server does not reply in time.
fn try_connect(url: &str) -> Result<PostgresStore, StoreError> {
    let begun = std::time::Instant::now();
    loop {
        match PostgresStore::connect(url) {
            Err(StoreError::Unavailable(why)) => assert!(begun.elapsed() < TEST_TIMEOUT, "{url}: {why}"),
            other => return other,
        }
    }
}

#[track_caller]
fn connect_store(url: &str) -> PostgresStore {
    try_connect(url).unwrap_or_else(|e| panic!("{url}: {e}"))
}

fn expect_refusal(url: &str) -> String {
    match try_connect(url) {
        Err(StoreError::Refused(text)) => text,
        other => panic!("{url}: {other:?}"),
    }
}

#[test]
fn each_mode_verifies_what_it_says() {
    let site = TlsServerFixture::new();
    let wrong = TestAuthority::new("wrong");
    site.write_file("wrong.pem", &wrong.pem);
    let with = |host: &str, more: &str| site.server_url(host, more);
    for (host, more, encrypted) in [
        (NAME, "sslmode=verify-full sslrootcert=FILES/ca.pem", true),
        ("other.example", "sslmode=verify-ca sslrootcert=FILES/ca.pem", true),
        ("other.example", "sslmode=require", true),
        ("other.example", "", true),
        ("other.example", "sslmode=prefer", true),
        (NAME, "sslmode=disable", false),
    ] {
        assert_eq!(site.is_encrypted(&with(host, more)), encrypted, "{host} {more}");
    }
    let said = expect_refusal(&with("other.example", "sslmode=verify-full sslrootcert=FILES/ca.pem"));
    assert!(
        said.contains(NAME) && said.contains("other.example") && said.contains("subjectAltName"),
        "{said}"
    );
    for more in ["sslmode=verify-full", "sslmode=verify-ca", "sslmode=require"] {
        let said = expect_refusal(&with(NAME, &format!("{more} sslrootcert=FILES/wrong.pem")));
        assert!(said.contains("no authority of sslrootcert signed"), "{more}: {said}");
    }
    let said = expect_refusal(&with(NAME, "sslmode=verify-full sslrootcert=FILES/none.pem"));
    assert!(said.contains("none.pem") && said.contains("No such file"), "{said}");
    site.write_file("empty.pem", "");
    let said = expect_refusal(&with(NAME, "sslmode=verify-full sslrootcert=FILES/empty.pem"));
    assert!(said.contains("empty.pem") && said.contains("no certificate"), "{said}");
    // In the other URL form, by address.
    let host = own_loopback().to_string();
    let (certificate, key) = site.authority.sign_certificate("server", &[&host]);
    site.serve_certificate(&certificate, &key);
    let root = site.files.path().join("ca.pem").display().to_string().replace('/', "%2F");
    let port = site.cluster.port;
    let url = format!(
        "postgresql://usher@{host}:{port}/postgres?sslmode=verify-full&sslrootcert={root}&connect_timeout=2"
    );
    connect_store(&url);
}

#[test]
fn much_goes_over_tls_both_ways() {
    let site = TlsServerFixture::new();
    let mut store = connect_store(&site.server_url(NAME, "sslmode=verify-full sslrootcert=FILES/ca.pem"));
    // More than the socket buffers hold, so that both ends wait for each other.
    let rows = crate::suite::password_user(&"x".repeat(200));
    let names: Vec<String> = (0..20_000).map(|n| format!("user{n:05}")).collect();
    let users: Vec<_> = names.iter().map(|name| (name.clone(), rows.clone())).collect();
    store.put_users(&mut users.into_iter()).unwrap();
    assert_eq!(store.user_names(None, 30_000).unwrap(), names);
    assert_eq!(store.find_user("user19999").unwrap(), Some(rows));
}

#[test]
fn a_server_without_tls_is_taken_only_where_the_mode_lets_it() {
    let site = TlsServerFixture {
        cluster: PostgresCluster::on_tcp(),
        authority: TestAuthority::new("right"),
        files: StoreTempDir::new(),
    };
    site.write_file("ca.pem", &site.authority.pem);
    for more in ["sslmode=require", "sslmode=verify-full sslrootcert=FILES/ca.pem"] {
        let said = expect_refusal(&site.server_url(NAME, more));
        assert!(said.contains("does not support TLS") && said.contains("ssl = on"), "{more}: {said}");
    }
    for more in ["", "sslmode=prefer", "sslmode=disable"] {
        assert!(!site.is_encrypted(&site.server_url(NAME, more)), "{more}");
    }
    // A Unix socket has no TLS in any mode, as in libpq.
    let url = format!("{} sslmode=require", site.cluster.database_url("usher", "postgres"));
    connect_store(&url);
}

#[test]
fn preferred_tls_falls_back_but_sends_no_second_password() {
    let site = TlsServerFixture::new();
    site.cluster.run_sql("postgres", "ALTER USER usher PASSWORD 'kiwi'");
    site.cluster.set_access("local all all trust\nhostnossl all all 127.0.0.1/32 trust");
    assert!(!site.is_encrypted(&site.server_url(NAME, "")));
    let said = expect_refusal(&site.server_url(NAME, "sslmode=require"));
    assert!(said.contains("pg_hba.conf"), "{said}");
    site.cluster.set_access(
        "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\nhostnossl all all 127.0.0.1/32 trust",
    );
    let said = expect_refusal(&site.server_url(NAME, "password=wrong"));
    assert!(said.contains("28P01"), "{said}");
}

#[test]
fn passwords_are_bound_to_the_certificate() {
    let site = TlsServerFixture::new();
    site.cluster.run_sql("postgres", "ALTER USER usher PASSWORD 'kiwi'");
    site.cluster.set_access("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256");
    let bound = "password=kiwi channel_binding=require";
    assert!(site.is_encrypted(&site.server_url(NAME, &format!("sslmode=require {bound}"))));
    let said = expect_refusal(&site.server_url(NAME, &format!("sslmode=disable {bound}")));
    assert!(said.contains("channel binding"), "{said}");
}

#[test]
fn a_certificate_logs_in_where_the_server_asks_for_one() {
    let site = TlsServerFixture::new();
    site.cluster.set_access("local all all trust\nhostssl all all 127.0.0.1/32 cert");
    let (certificate, key) = site.authority.sign_certificate("usher", &[]);
    site.write_file("client.pem", &certificate);
    let file = site.write_file("client.key", &key);
    let full = "sslmode=verify-full sslrootcert=FILES/ca.pem";
    let shown = format!("{full} sslcert=FILES/client.pem sslkey=FILES/client.key");
    assert!(site.is_encrypted(&site.server_url(NAME, &shown)));
    let said = expect_refusal(&site.server_url(NAME, full));
    assert!(said.contains("client certificate"), "{said}");
    let said = expect_refusal(&site.server_url(NAME, &format!("{full} sslcert=FILES/client.pem")));
    assert!(said.contains("sslkey=FILE"), "{said}");
    let (stranger, key) = TestAuthority::new("wrong").sign_certificate("usher", &[]);
    site.write_file("stranger.pem", &stranger);
    site.write_file("stranger.key", &key);
    let strange = format!("{full} sslcert=FILES/stranger.pem sslkey=FILES/stranger.key");
    // The close of the connection can discard the server's alert.
    assert!(PostgresStore::connect(&site.server_url(NAME, &strange)).is_err());
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    assert!(expect_refusal(&site.server_url(NAME, &shown)).contains("chmod 0600"));
}

#[test]
fn a_store_recovers_from_a_bad_certificate_without_a_restart() {
    let site = TlsServerFixture::new();
    let mut store = connect_store(&site.server_url(NAME, "sslmode=verify-full sslrootcert=FILES/ca.pem"));
    store.find_user("kaya").unwrap();
    let (certificate, key) = TestAuthority::new("wrong").sign_certificate("server", &[NAME]);
    site.serve_certificate(&certificate, &key);
    let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
    let begun = std::time::Instant::now();
    loop {
        match store.find_user("kaya") {
            Err(StoreError::Unavailable(text)) if text.contains("authority") => break,
            // The old connection is gone, or a busy server takes seconds for a new one.
            Err(StoreError::Unavailable(text)) => assert!(begun.elapsed() < TEST_TIMEOUT, "{text}"),
            other => panic!("{other:?}"),
        }
        pause();
    }
    let (certificate, key) = site.authority.sign_certificate("server", &[NAME]);
    site.serve_certificate(&certificate, &key);
    let begun = std::time::Instant::now();
    while store.find_user("kaya").is_err() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "it is found again");
        pause();
    }
}
