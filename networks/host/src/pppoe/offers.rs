//! The EAP methods by which a client may show who its user is.

use super::connect::ConnectError;
use crate::setup::wall_time;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use usher_config::ConfigEnvironment;
use usher_config::disk::DiskEnvironment;
use usher_crypto::SecretValue;
use usher_crypto::tls::{ClientConfig, ClientOptions, TlsCredentials, TrustRoots, VersionRange, WallClock};
use usher_eap::method::peap::PeerMethodPeap;
use usher_eap::method::tls::{PeerMethodTls, PeerTls};
use usher_eap::method::ttls::{PeerMethodTtls, TtlsProof};
use usher_eap::method::{PeerOffer, md5, mschapv2};

/// Octets of the longest EAP packet that a client sends: PPP's packets have 1492 octets, of which its header takes some.
const FRAGMENT: usize = 1400;
/// Octets of a file with certificates at most.
const MOST: u64 = 1 << 20;

/// What the methods with TLS need.
#[derive(Clone, Debug)]
pub struct EapCertificateFiles {
    /// A file with the authorities below which the AAA server's certificate has to be, PEM.
    pub ca: PathBuf,
    /// The user's own certificate and its private key, PEM; with them EAP-TLS is offered.
    pub own: Option<(PathBuf, PathBuf)>,
    /// The name that the AAA server's certificate has to have.
    pub server_name: Option<String>,
}

/// The methods, the preferred first: those with TLS where there are certificates, and then no others, since a server that shows no
/// certificate could be anybody.
pub(super) fn eap_offers(
    user: &str,
    password: &SecretValue,
    certificates: Option<&EapCertificateFiles>,
) -> Result<Arc<[Box<dyn PeerOffer>]>, ConnectError> {
    let account =
        || -> Box<dyn PeerOffer> { Box::new(mschapv2::MsChapV2Account::new(user.as_bytes(), password)) };
    let Some(certificates) = certificates else {
        let md5: Box<dyn PeerOffer> = Box::new(md5::Md5Password::new(password).with_name(user.as_bytes()));
        return Ok(Arc::from([account(), md5]));
    };
    let tls = PeerTls::Real(tls_config(certificates)?, 0);
    let identity = user.as_bytes().to_vec();
    if certificates.own.is_some() {
        let offer: Box<dyn PeerOffer> = Box::new(PeerMethodTls { tls, fragment: FRAGMENT });
        return Ok(Arc::from([offer]));
    }
    let peap: Box<dyn PeerOffer> = Box::new(PeerMethodPeap {
        tls: tls.clone(),
        fragment: FRAGMENT,
        identity: identity.clone(),
        inner: Arc::from([account()]),
    });
    let proof = TtlsProof::Pap(password[..].into());
    let ttls: Box<dyn PeerOffer> = Box::new(PeerMethodTtls { tls, fragment: FRAGMENT, identity, proof });
    Ok(Arc::from([peap, ttls]))
}

fn tls_config(certificates: &EapCertificateFiles) -> Result<ClientConfig, ConnectError> {
    let wrong = |path: &Path, why: &dyn std::fmt::Display| {
        ConnectError::Certificates(format!("{}: {why}", path.display()))
    };
    let read = |path: &PathBuf| DiskEnvironment.read_octets(path, MOST).map_err(ConnectError::Certificates);
    let ca = &certificates.ca;
    let roots = TrustRoots::from_pem(&read(ca)?).map_err(|e| wrong(ca, &e))?;
    let credentials = match &certificates.own {
        Some((certificate, key)) => {
            let pem = SecretValue::new(DiskEnvironment.read_secret(key).map_err(ConnectError::Certificates)?);
            let made = TlsCredentials::from_pem(&read(certificate)?, pem.as_bytes());
            Some(made.map_err(|e| wrong(if e.is_of_key() { key } else { certificate }, &e))?)
        }
        None => None,
    };
    let options = ClientOptions {
        versions: VersionRange::default(),
        credentials,
        roots,
        server_name: certificates.server_name.clone(),
        resumption: None,
        clock: WallClock::from_time(wall_time()),
        key_log: None,
    };
    ClientConfig::new(options).map_err(|e| ConnectError::Certificates(e.to_string()))
}
