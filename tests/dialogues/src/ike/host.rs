//! The gateway and clients by their files, and the users of identities.

use crate::{TestUser, respell_text, tunnels};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use usher_config::ConfigEnvironment;
use usher_core::Seed;
use usher_crypto::tls::{SharedWallClock, fixtures};
use usher_eap::method::mschapv2::MsChapV2Account;
use usher_eap::method::ttls::TtlsInnerCredential;
use usher_gateway::config::{LoadedGatewayConfig, parse};
use usher_gateway::{GatewayConfig, IkeGateway};
use usher_ike::credentials::IkeCredentials;
use usher_ike::machine::LocalAuth;

pub(super) const GATEWAY: &str = "192.0.2.1";
/// The subject of the fixtures' client certificate. In these runs it is the printer's.
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
struct CertificateFiles;

impl ConfigEnvironment for CertificateFiles {
    fn read_text(&self, path: &Path) -> Result<String, String> {
        let ([server, server_key, root], [client, client_key, _]) =
            (fixtures::server_chain_pem_texts(2), fixtures::client_chain_pem_texts(2));
        match path.to_str().unwrap_or_default() {
            "gw.pem" => Ok(server),
            "gw.key" => Ok(server_key),
            "ca.pem" => Ok(root),
            "user.pem" => Ok(client),
            "user.key" => Ok(client_key),
            other => Err(format!("{other} is not there")),
        }
    }
    fn read_secret(&self, path: &Path) -> Result<String, String> {
        self.read_text(path)
    }
    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

/// The authentication method of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClientProof {
    Md5,
    MsChapV2,
    SharedKey,
    Certificate,
    /// EAP-MSCHAPv2 within PEAP.
    Peap,
    /// PAP within EAP-TTLS.
    Ttls,
}

impl ClientProof {
    pub(super) const ALL: [Self; 6] =
        [Self::Md5, Self::MsChapV2, Self::SharedKey, Self::Certificate, Self::Peap, Self::Ttls];

    /// True if the authenticated name is sent within a tunnel.
    const fn is_tunnel(self) -> bool {
        matches!(self, Self::Peap | Self::Ttls)
    }
}

/// The plan of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClientPlan {
    /// The user whose password or certificate it has.
    pub(super) owner: TestUser,
    /// The user whose identity it claims.
    pub(super) claimed: TestUser,
    pub(super) method: ClientProof,
    /// The spelling of its names ([`respell_text`]). The name within a tunnel uses the next two bits.
    pub(super) spelling: u8,
    /// True if the outer identity is anonymous.
    pub(super) is_anonymous: bool,
    /// Reauthenticates every 40 s. 1: before its old IKE_SA ends. 2: afterwards.
    pub(super) reauthentication: u8,
    /// True if it omits INITIAL_CONTACT, so that the gateway asks an older IKE_SA to end.
    pub(super) omits_initial_contact: bool,
}

impl ClientPlan {
    pub(super) const fn honest_plan(owner: TestUser, method: ClientProof) -> Self {
        Self {
            owner,
            claimed: owner,
            method,
            spelling: 0,
            is_anonymous: false,
            reauthentication: 0,
            omits_initial_contact: false,
        }
    }
}

/// Returns a client's file.
fn client_file(plan: &ClientPlan) -> String {
    let ClientPlan { owner, claimed, method, spelling, is_anonymous, reauthentication, .. } = *plan;
    let unique = !plan.omits_initial_contact;
    let (name, password) = (respell_text(claimed.name(), spelling), owner.password());
    let name = if is_anonymous && method.is_tunnel() { "anonymous".into() } else { name };
    let eap = |eap: &str| {
        format!(
            "local_id = \"{name}\"\nremote_id = \"aaa.usher.test\"\nlocal_auth = \"eap\"\nremote_auth = \"certificate\"\n\
             ca = \"ca.pem\"\neap_identity = \"{name}\"\neap_methods = [\"{eap}\"]\npassword = \"{password}\"\n"
        )
    };
    let proof = match method {
        ClientProof::Md5 => eap("md5"),
        // Tunnel methods replace the methods of the file later.
        ClientProof::MsChapV2 | ClientProof::Peap | ClientProof::Ttls => eap("mschapv2"),
        ClientProof::SharedKey => format!(
            "local_id = \"{name}\"\nremote_id = \"gw.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\nsecret = \"{password}\"\n"
        ),
        ClientProof::Certificate => format!(
            "local_id = \"{CERTIFIED}\"\nremote_id = \"aaa.usher.test\"\nlocal_auth = \"certificate\"\n\
             remote_auth = \"certificate\"\nca = \"ca.pem\"\ncertificate = \"user.pem\"\nkey = \"user.key\"\n"
        ),
    };
    let anew = match reauthentication {
        1 => "reauth_after = \"40 s\"\n",
        2 => "reauth_after = \"40 s\"\nreauthentication = \"break-before-make\"\n",
        _ => "",
    };
    format!(
        "[[connection]]\nname = \"home\"\n{proof}{anew}unique = {unique}\nremote_address = \"{GATEWAY}\"\naddress = true\nmobike = true\n\
         [[connection.child]]\nname = \"net\"\nremote = [\"10.2.0.0/16\"]\n"
    )
}

/// Returns the user of an identity or of a name in accounting.
pub(super) fn user_named(name: &str) -> Option<TestUser> {
    if name == CERTIFIED { Some(TestUser::Printer) } else { crate::user_from_name(name) }
}

/// Returns the user of an IKE identity. A shared key's identity is a domain name, which is case-insensitive. A name
/// from within a tunnel is shown in hexadecimal.
pub(super) fn user_identified(name: &str) -> Option<TestUser> {
    let Some(digits) = name.strip_prefix("ID_KEY_ID:") else { return user_named(&name.to_lowercase()) };
    let octet = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let octets: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(octet).collect();
    user_named(core::str::from_utf8(&octets?).ok()?)
}

/// Creates the gateway and the credentials for its jobs.
pub(super) fn build_gateway(seed: u64) -> (IkeGateway, Arc<IkeCredentials>) {
    build_machine(FILE, seed, GATEWAY.parse().expect("an address"), |_| {})
}

/// Creates a client at an address, and the credentials for its jobs.
pub(super) fn build_client(plan: &ClientPlan, seed: u64, own: IpAddr) -> (IkeGateway, Arc<IkeCredentials>) {
    build_machine(&client_file(plan), seed, own, |proof| {
        if let (LocalAuth::Eap { methods, .. }, true) = (proof, plan.method.is_tunnel()) {
            let name = respell_text(plan.claimed.name(), plan.spelling >> 2);
            let (name, password) = (name.as_bytes(), plan.owner.password().as_bytes());
            *methods = Arc::new([match plan.method {
                ClientProof::Peap => {
                    tunnels::peap_offer(name, Box::new(MsChapV2Account::new(name, password)))
                }
                _ => tunnels::ttls_offer(name, TtlsInnerCredential::Pap(password.into())),
            }]);
        }
    })
}

thread_local! {
    /// Parsed files, by their text. Parsing one again would cost more than a login.
    static READ: RefCell<BTreeMap<String, (GatewayConfig, Arc<IkeCredentials>)>> = const { RefCell::new(BTreeMap::new()) };
}

fn read_config(text: &str) -> (GatewayConfig, Arc<IkeCredentials>) {
    let known = READ.with_borrow(|read| read.get(text).cloned());
    known.unwrap_or_else(|| {
        let clock = SharedWallClock::from_time(usher_core::WallTime::UNIX_EPOCH);
        let loaded = parse("ike.toml", text, &CertificateFiles, &clock);
        let LoadedGatewayConfig { config, credentials, .. } =
            loaded.unwrap_or_else(|faults| panic!("{faults}\n{text}"));
        READ.with_borrow_mut(|read| read.insert(text.into(), (config.clone(), credentials.clone())));
        (config, credentials)
    })
}

/// Creates a machine by a file at an address, and the credentials for its jobs.
fn build_machine(
    text: &str,
    seed: u64,
    own: IpAddr,
    alter: impl Fn(&mut LocalAuth),
) -> (IkeGateway, Arc<IkeCredentials>) {
    let (mut config, credentials) = read_config(text);
    for peer in &mut config.peers {
        let peer = Arc::make_mut(peer);
        peer.local.set_ip(own);
        alter(&mut Arc::make_mut(&mut peer.connection).local_auth);
    }
    let gateway = IkeGateway::new(config, Seed::new(seed).derive_secure_rng("gateway", 0));
    (gateway.expect("the file holds together"), credentials)
}
