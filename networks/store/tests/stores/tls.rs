//! TLS to PostgreSQL: what each of libpq's modes takes and refuses.

use crate::cluster::{Cluster, done, is_root};
use crate::folder::Folder;
use crate::postgres::PATIENCE;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use usher_aaa::store::{Store, StoreError};
use usher_store::Postgres;

/// A loopback address of this process alone, where no other test takes a port. Who connects to it comes from 127.0.0.1.
fn own_loopback() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | (high & 63), middle, low)
}

/// The name in the server's certificate.
const NAME: &str = "db.example";

/// An authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn key() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap()
}

fn named(common_name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

impl Authority {
    fn new(name: &str) -> Self {
        let (key, mut params) = (key(), named(name, &[]));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate and its key, in PEM.
    fn signs(&self, common_name: &str, names: &[&str]) -> (String, String) {
        let key = key();
        let certificate = named(common_name, names).signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

impl Cluster {
    /// One that can also be reached at this process's own address.
    fn on_tcp() -> Self {
        let free = TcpListener::bind((own_loopback(), 0)).expect("a port is free");
        let port = free.local_addr().expect("it has an address").port();
        drop(free);
        Self::with(port, Some(own_loopback()))
    }

    /// What it is started with from now on.
    fn settings(&self, options: &str) {
        options.clone_into(&mut self.settings.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A file among its data, the server's alone.
    fn write(&self, name: &str, text: &str) {
        let path = self.data().join(name);
        fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        done(Command::new("chmod").arg("0600").arg(&path));
        if is_root() {
            done(Command::new("chown").arg("postgres").arg(&path));
        }
    }

    /// Who may connect from now on, and how.
    fn access(&self, lines: &str) {
        self.write("pg_hba.conf", &format!("{lines}\n"));
        done(self.program("pg_ctl").args(["-s", "-D"]).arg(self.data()).arg("reload"));
        let errors = "SELECT count(*) FROM pg_hba_file_rules WHERE error IS NOT NULL";
        assert_eq!(self.sql("postgres", errors), "0", "{lines}");
    }
}

/// A server with TLS, its authority, and files for those who connect.
struct Site {
    cluster: Cluster,
    authority: Authority,
    files: Folder,
}

impl Site {
    fn new() -> Self {
        let (cluster, authority, files) = (Cluster::on_tcp(), Authority::new("right"), Folder::new());
        let site = Self { cluster, authority, files };
        let (certificate, key) = site.authority.signs("server", &[NAME]);
        site.serves(&certificate, &key);
        site.file("ca.pem", &site.authority.pem);
        site
    }

    /// Has the server show this certificate.
    fn serves(&self, certificate: &str, key: &str) {
        self.cluster.write("server.crt", certificate);
        self.cluster.write("server.key", key);
        self.cluster.write("clients.crt", &self.authority.pem);
        self.cluster.stop("fast");
        self.cluster.settings(
            "-c ssl=on -c ssl_cert_file=server.crt -c ssl_key_file=server.key -c ssl_ca_file=clients.crt",
        );
        self.cluster.start();
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.files.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn url(&self, host: &str, more: &str) -> String {
        let files = self.files.path().display().to_string();
        let port = self.cluster.port;
        let more = more.replace("FILES", &files);
        format!("host={host} hostaddr={} port={port} user=usher dbname=postgres {more}", own_loopback())
    }

    /// Whether the server says that a connection is encrypted.
    fn encrypted(&self, url: &str) -> bool {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("looked_at_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut store = connect(&format!("{url} application_name={name}"));
        store.user("kaya").unwrap();
        let asked = format!(
            "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = '{name}'"
        );
        match self.cluster.sql("postgres", &asked).as_str() {
            "t" => true,
            "f" => false,
            other => panic!("{other}"),
        }
    }
}

/// Tries to connect, again where a busy server does not answer in time.
fn try_connect(url: &str) -> Result<Postgres, StoreError> {
    let begun = std::time::Instant::now();
    loop {
        match Postgres::connect(url) {
            Err(StoreError::Unavailable(why)) => assert!(begun.elapsed() < PATIENCE, "{url}: {why}"),
            other => return other,
        }
    }
}

#[track_caller]
fn connect(url: &str) -> Postgres {
    try_connect(url).unwrap_or_else(|e| panic!("{url}: {e}"))
}

fn refused(url: &str) -> String {
    match try_connect(url) {
        Err(StoreError::Refused(text)) => text,
        other => panic!("{url}: {other:?}"),
    }
}

#[test]
fn each_mode_verifies_what_it_says() {
    let site = Site::new();
    let wrong = Authority::new("wrong");
    site.file("wrong.pem", &wrong.pem);
    let with = |host: &str, more: &str| site.url(host, more);
    for (host, more, encrypted) in [
        (NAME, "sslmode=verify-full sslrootcert=FILES/ca.pem", true),
        ("other.example", "sslmode=verify-ca sslrootcert=FILES/ca.pem", true),
        ("other.example", "sslmode=require", true),
        ("other.example", "", true),
        ("other.example", "sslmode=prefer", true),
        (NAME, "sslmode=disable", false),
    ] {
        assert_eq!(site.encrypted(&with(host, more)), encrypted, "{host} {more}");
    }
    let said = refused(&with("other.example", "sslmode=verify-full sslrootcert=FILES/ca.pem"));
    assert!(
        said.contains(NAME) && said.contains("other.example") && said.contains("subjectAltName"),
        "{said}"
    );
    for more in ["sslmode=verify-full", "sslmode=verify-ca", "sslmode=require"] {
        let said = refused(&with(NAME, &format!("{more} sslrootcert=FILES/wrong.pem")));
        assert!(said.contains("no authority of sslrootcert signed"), "{more}: {said}");
    }
    let said = refused(&with(NAME, "sslmode=verify-full sslrootcert=FILES/none.pem"));
    assert!(said.contains("none.pem") && said.contains("No such file"), "{said}");
    site.file("empty.pem", "");
    let said = refused(&with(NAME, "sslmode=verify-full sslrootcert=FILES/empty.pem"));
    assert!(said.contains("empty.pem") && said.contains("no certificate"), "{said}");
    // In a URL of the other form, by the address.
    let host = own_loopback().to_string();
    let (certificate, key) = site.authority.signs("server", &[&host]);
    site.serves(&certificate, &key);
    let root = site.files.path().join("ca.pem").display().to_string().replace('/', "%2F");
    let port = site.cluster.port;
    let url = format!(
        "postgresql://usher@{host}:{port}/postgres?sslmode=verify-full&sslrootcert={root}&connect_timeout=2"
    );
    connect(&url);
}

#[test]
fn much_goes_over_tls_both_ways() {
    let site = Site::new();
    let mut store = connect(&site.url(NAME, "sslmode=verify-full sslrootcert=FILES/ca.pem"));
    // More than the sockets hold, so that both ends wait for each other.
    let rows = crate::suite::password(&"x".repeat(200));
    let names: Vec<String> = (0..20_000).map(|n| format!("user{n:05}")).collect();
    let users: Vec<_> = names.iter().map(|name| (name.clone(), rows.clone())).collect();
    store.put_users(&mut users.into_iter()).unwrap();
    assert_eq!(store.user_names(None, 30_000).unwrap(), names);
    assert_eq!(store.user("user19999").unwrap(), Some(rows));
}

#[test]
fn a_server_without_tls_is_taken_only_where_the_mode_lets_it() {
    let site = Site { cluster: Cluster::on_tcp(), authority: Authority::new("right"), files: Folder::new() };
    site.file("ca.pem", &site.authority.pem);
    for more in ["sslmode=require", "sslmode=verify-full sslrootcert=FILES/ca.pem"] {
        let said = refused(&site.url(NAME, more));
        assert!(said.contains("does not speak TLS") && said.contains("ssl = on"), "{more}: {said}");
    }
    for more in ["", "sslmode=prefer", "sslmode=disable"] {
        assert!(!site.encrypted(&site.url(NAME, more)), "{more}");
    }
    // To a Unix socket there is no TLS whatever the mode is, as libpq has it.
    let url = format!("{} sslmode=require", site.cluster.url("usher", "postgres"));
    connect(&url);
}

#[test]
fn who_prefers_tls_goes_on_without_it_and_offers_no_password_again() {
    let site = Site::new();
    site.cluster.sql("postgres", "ALTER USER usher PASSWORD 'kiwi'");
    site.cluster.access("local all all trust\nhostnossl all all 127.0.0.1/32 trust");
    assert!(!site.encrypted(&site.url(NAME, "")));
    let said = refused(&site.url(NAME, "sslmode=require"));
    assert!(said.contains("pg_hba.conf"), "{said}");
    site.cluster.access(
        "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\nhostnossl all all 127.0.0.1/32 trust",
    );
    let said = refused(&site.url(NAME, "password=wrong"));
    assert!(said.contains("28P01"), "{said}");
}

#[test]
fn passwords_are_bound_to_the_certificate() {
    let site = Site::new();
    site.cluster.sql("postgres", "ALTER USER usher PASSWORD 'kiwi'");
    site.cluster.access("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256");
    let bound = "password=kiwi channel_binding=require";
    assert!(site.encrypted(&site.url(NAME, &format!("sslmode=require {bound}"))));
    let said = refused(&site.url(NAME, &format!("sslmode=disable {bound}")));
    assert!(said.contains("channel binding"), "{said}");
}

#[test]
fn a_certificate_logs_in_where_the_server_asks_for_one() {
    let site = Site::new();
    site.cluster.access("local all all trust\nhostssl all all 127.0.0.1/32 cert");
    let (certificate, key) = site.authority.signs("usher", &[]);
    site.file("client.pem", &certificate);
    let file = site.file("client.key", &key);
    let full = "sslmode=verify-full sslrootcert=FILES/ca.pem";
    let shown = format!("{full} sslcert=FILES/client.pem sslkey=FILES/client.key");
    assert!(site.encrypted(&site.url(NAME, &shown)));
    let said = refused(&site.url(NAME, full));
    assert!(said.contains("client certificate"), "{said}");
    let said = refused(&site.url(NAME, &format!("{full} sslcert=FILES/client.pem")));
    assert!(said.contains("sslkey=FILE"), "{said}");
    let (stranger, key) = Authority::new("wrong").signs("usher", &[]);
    site.file("stranger.pem", &stranger);
    site.file("stranger.key", &key);
    let strange = format!("{full} sslcert=FILES/stranger.pem sslkey=FILES/stranger.key");
    // The server's alert may be lost to its closing the connection.
    assert!(Postgres::connect(&site.url(NAME, &strange)).is_err());
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    assert!(refused(&site.url(NAME, &shown)).contains("chmod 0600"));
}

#[test]
fn a_certificate_that_turns_wrong_and_right_again_needs_no_restart() {
    let site = Site::new();
    let mut store = connect(&site.url(NAME, "sslmode=verify-full sslrootcert=FILES/ca.pem"));
    store.user("kaya").unwrap();
    let (certificate, key) = Authority::new("wrong").signs("server", &[NAME]);
    site.serves(&certificate, &key);
    let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
    let begun = std::time::Instant::now();
    loop {
        match store.user("kaya") {
            Err(StoreError::Unavailable(text)) if text.contains("authority") => break,
            // The old connection is gone, or a busy server takes seconds for a new one.
            Err(StoreError::Unavailable(text)) => assert!(begun.elapsed() < PATIENCE, "{text}"),
            other => panic!("{other:?}"),
        }
        pause();
    }
    let (certificate, key) = site.authority.signs("server", &[NAME]);
    site.serves(&certificate, &key);
    let begun = std::time::Instant::now();
    while store.user("kaya").is_err() {
        assert!(begun.elapsed() < PATIENCE, "it is found again");
        pause();
    }
}
