//! Gateway and clients as their files have them, and whose an identity is.

use crate::Person;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use usher_config::Outside;
use usher_core::Seed;
use usher_crypto::tls::{WallClock, fixtures};
use usher_gateway::Gateway;
use usher_gateway::config::{Loaded, parse};
use usher_ike::credentials::Credentials;

pub(super) const GATEWAY: &str = "192.0.2.1";
/// Whom the certificate of the fixtures names: here it is the printer's.
pub(super) const CERTIFIED: &str = "station@usher.test";

const FILE: &str = r#"
[limits]
sas = 8
half_open = 4
cookies_from = 2
[[connection]]
name = "shared"
local_id = "gw.test"
remote_id = "bob"
local_auth = "psk"
remote_auth = "psk"
secret = "the password of bob"
pools = ["inner"]
mobike = true
[[connection.child]]
name = "net"
local = ["10.2.0.0/16"]
[[connection]]
name = "certificates"
local_id = "aaa.usher.test"
remote_id = "station@usher.test"
local_auth = "certificate"
remote_auth = "certificate"
certificate = "gw.pem"
key = "gw.key"
ca = "ca.pem"
pools = ["inner"]
mobike = true
[[connection.child]]
name = "net"
local = ["10.2.0.0/16"]
[[connection]]
name = "users"
local_id = "aaa.usher.test"
local_auth = "certificate"
remote_auth = "eap"
certificate = "gw.pem"
key = "gw.key"
pools = ["inner"]
mobike = true
[[connection.child]]
name = "net"
local = ["10.2.0.0/16"]
[[pool]]
name = "inner"
ranges = ["10.9.0.8-10.9.0.11"]
[aaa]
nas_identifier = "gw.usher.test"
accounting = true
[[aaa.radius]]
address = "203.0.113.1:1812"
secret = "the secret of RADIUS"
[aaa.dynamic]
"#;

/// Files of certificates that are for tests.
struct Files;

impl Outside for Files {
    fn file(&self, path: &Path) -> Result<String, String> {
        let ([server, server_key, root], [client, client_key, _]) =
            (fixtures::server_as_pem(2), fixtures::client_as_pem(2));
        match path.to_str().unwrap_or_default() {
            "gw.pem" => Ok(server),
            "gw.key" => Ok(server_key),
            "ca.pem" => Ok(root),
            "user.pem" => Ok(client),
            "user.key" => Ok(client_key),
            other => Err(format!("{other} is not there")),
        }
    }
    fn secret(&self, path: &Path) -> Result<String, String> {
        self.file(path)
    }
    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

/// How a client proves who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClientProof {
    Md5,
    MsChapV2,
    SharedKey,
    Certificate,
}

impl ClientProof {
    pub(super) const ALL: [Self; 4] = [Self::Md5, Self::MsChapV2, Self::SharedKey, Self::Certificate];
}

/// A client's file: whose password it has, whom it claims to be, how it proves that.
pub(super) fn client_file(owner: Person, claimed: Person, method: ClientProof) -> String {
    let (name, password) = (claimed.name(), owner.password());
    let eap = |eap: &str| {
        format!(
            "local_id = \"{name}\"\nremote_id = \"aaa.usher.test\"\nlocal_auth = \"eap\"\nremote_auth = \"certificate\"\n\
             ca = \"ca.pem\"\neap_identity = \"{name}\"\neap_methods = [\"{eap}\"]\npassword = \"{password}\"\n"
        )
    };
    let proof = match method {
        ClientProof::Md5 => eap("md5"),
        ClientProof::MsChapV2 => eap("mschapv2"),
        ClientProof::SharedKey => format!(
            "local_id = \"{name}\"\nremote_id = \"gw.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\nsecret = \"{password}\"\n"
        ),
        ClientProof::Certificate => format!(
            "local_id = \"{CERTIFIED}\"\nremote_id = \"aaa.usher.test\"\nlocal_auth = \"certificate\"\n\
             remote_auth = \"certificate\"\nca = \"ca.pem\"\ncertificate = \"user.pem\"\nkey = \"user.key\"\n"
        ),
    };
    format!(
        "[[connection]]\nname = \"home\"\n{proof}remote_address = \"{GATEWAY}\"\naddress = true\nmobike = true\n\
         [[connection.child]]\nname = \"net\"\nremote = [\"10.2.0.0/16\"]\n"
    )
}

pub(super) fn gateway_file() -> &'static str {
    FILE
}

/// Whose an identity or a name of accounting is.
pub(super) fn person(name: &str) -> Option<Person> {
    if name == CERTIFIED { Some(Person::Printer) } else { Person::named(name.as_bytes()) }
}

/// A machine of a file at an address, and who does its jobs.
pub(super) fn machine(text: &str, seed: u64, own: IpAddr) -> (Gateway, Arc<Credentials>) {
    let clock = WallClock::at(usher_core::WallTime::UNIX_EPOCH);
    let loaded = parse("ike.toml", text, &Files, &clock);
    let Loaded { mut config, credentials, .. } = loaded.unwrap_or_else(|faults| panic!("{faults}\n{text}"));
    for peer in &mut config.peers {
        Arc::make_mut(peer).local.set_ip(own);
    }
    let gateway = Gateway::new(config, Seed::new(seed).secure("gateway", 0));
    (gateway.expect("the file holds together"), credentials)
}
