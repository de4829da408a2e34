//! The EAP methods that a client offers.

use super::connect::PppoeConnectError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use usher_config::ConfigEnvironment;
use usher_config::disk::DiskEnvironment;
use usher_crypto::SecretValue;
use usher_crypto::tls::{
    ClientConfig, SharedWallClock, TlsClientOptions, TlsCredentials, TlsVersionRange, TrustRoots,
};
use usher_eap::method::peap::PeapPeerFactory;
use usher_eap::method::tls::{EapTlsPeerFactory, PeerTlsBackend};
use usher_eap::method::ttls::{TtlsInnerCredential, TtlsPeerFactory};
use usher_eap::method::{PeerMethodFactory, md5, mschapv2};
use usher_service::setup::wall_time;

/// The largest EAP packet that a client sends, in octets. PPP packets have 1492 octets, headers included.
const FRAGMENT: usize = 1400;
/// The largest certificate file, in octets.
const MOST: u64 = 1 << 20;

/// The files for TLS-based methods.
#[derive(Clone, Debug)]
pub struct EapCertificateFiles {
    /// The trust anchors for the AAA server's certificate, PEM.
    pub ca: PathBuf,
    /// The user's certificate and private key, PEM. They enable EAP-TLS.
    pub own: Option<(PathBuf, PathBuf)>,
    /// The name that the AAA server's certificate must have.
    pub server_name: Option<String>,
}

/// Returns the methods, the preferred first. With certificates it returns TLS-based methods only: a server that
/// presents no certificate could be anyone.
pub(super) fn eap_offers(
    user: &str,
    password: &SecretValue,
    certificates: Option<&EapCertificateFiles>,
) -> Result<Arc<[Box<dyn PeerMethodFactory>]>, PppoeConnectError> {
    let account = || -> Box<dyn PeerMethodFactory> {
        Box::new(mschapv2::MsChapV2Account::new(user.as_bytes(), password))
    };
    let Some(certificates) = certificates else {
        let md5: Box<dyn PeerMethodFactory> =
            Box::new(md5::EapMd5Password::new(password).with_name(user.as_bytes()));
        return Ok(Arc::from([account(), md5]));
    };
    let tls = PeerTlsBackend::Real(tls_config(certificates)?, 0);
    let identity = user.as_bytes().to_vec();
    if certificates.own.is_some() {
        let offer: Box<dyn PeerMethodFactory> = Box::new(EapTlsPeerFactory { tls, fragment: FRAGMENT });
        return Ok(Arc::from([offer]));
    }
    let peap: Box<dyn PeerMethodFactory> = Box::new(PeapPeerFactory {
        tls: tls.clone(),
        fragment: FRAGMENT,
        identity: identity.clone(),
        inner: Arc::from([account()]),
    });
    let proof = TtlsInnerCredential::Pap(password[..].into());
    let ttls: Box<dyn PeerMethodFactory> =
        Box::new(TtlsPeerFactory { tls, fragment: FRAGMENT, identity, proof });
    Ok(Arc::from([peap, ttls]))
}

fn tls_config(certificates: &EapCertificateFiles) -> Result<ClientConfig, PppoeConnectError> {
    let wrong = |path: &Path, why: &dyn std::fmt::Display| {
        PppoeConnectError::Certificates(format!("{}: {why}", path.display()))
    };
    let read =
        |path: &PathBuf| DiskEnvironment.read_octets(path, MOST).map_err(PppoeConnectError::Certificates);
    let ca = &certificates.ca;
    let roots = TrustRoots::from_pem(&read(ca)?).map_err(|e| wrong(ca, &e))?;
    let credentials = match &certificates.own {
        Some((certificate, key)) => {
            let pem =
                SecretValue::new(DiskEnvironment.read_secret(key).map_err(PppoeConnectError::Certificates)?);
            let made = TlsCredentials::from_pem(&read(certificate)?, pem.as_bytes());
            Some(made.map_err(|e| wrong(if e.concerns_private_key() { key } else { certificate }, &e))?)
        }
        None => None,
    };
    let options = TlsClientOptions {
        versions: TlsVersionRange::default(),
        credentials,
        roots,
        server_name: certificates.server_name.clone(),
        resumption: None,
        clock: SharedWallClock::from_time(wall_time()),
        key_log: None,
    };
    ClientConfig::new(options).map_err(|e| PppoeConnectError::Certificates(e.to_string()))
}
