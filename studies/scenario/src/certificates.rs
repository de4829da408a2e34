//! The PEM files that a workload names. Planning reads them, so that a run reads no file.

use crate::services::source_folder;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use usher_config::secret;
use usher_config::tree::{TreeItem, TreeNode};
use usher_config::{ConfigEnvironment, DiagnosticCollector, OptionalPosition, OrderedMap};
use usher_crypto::tls::{
    ClientConfig, SharedWallClock, TlsClientOptions, TlsCredentials, TlsError, TlsVersion, TlsVersionRange,
    TrustRoots, fixtures,
};
use usher_crypto::x509::CertificateInfo;

/// Limit of a file, in octets.
const MOST: u64 = 1 << 20;

/// The certificate and trust of a TLS client.
#[derive(Clone, Debug)]
pub struct TlsClientCredentials {
    /// Its certificate, chain and key. All signatures have the same length.
    pub credentials: Option<TlsCredentials>,
    /// The trusted authorities of the server's certificate.
    pub roots: Option<TrustRoots>,
    /// Its name by its certificate: the first name with an `@`, or else the first name.
    pub name: Option<String>,
}

/// The contents of a workload's files; `None` for a table that the workload does not have.
#[derive(Clone, Debug, Default)]
pub struct WorkloadCertificates {
    /// `[workload.tls]`, of the NASes.
    pub nas: Option<Arc<TlsClientCredentials>>,
    /// `[workload.eap_tls]`, of the stations.
    pub stations: Option<Arc<TlsClientCredentials>>,
}

impl PartialEq for WorkloadCertificates {
    /// True if both come from the same reading; equal files are read once.
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Option<Arc<TlsClientCredentials>>, other: &Option<Arc<TlsClientCredentials>>| match (
            one, other,
        ) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same(&self.nas, &other.nas) && same(&self.stations, &other.stations)
    }
}

/// Certificate, key and authorities of a table: whole paths with their positions.
type CertificateFiles = [Option<(PathBuf, OptionalPosition)>; 3];

const KEYS: [&str; 3] = ["certificate", "key", "ca"];

/// Files read so far. Most points of a plan have the same files.
#[derive(Debug, Default)]
pub(crate) struct CertificateCache(Vec<([Option<PathBuf>; 3], Arc<TlsClientCredentials>)>);

/// Reads and checks the files that a point's tree names, by workload.
pub(crate) fn read_certificates(
    tree: &TreeNode,
    outside: &dyn ConfigEnvironment,
    memo: &mut CertificateCache,
    faults: &mut DiagnosticCollector,
) -> OrderedMap<WorkloadCertificates> {
    let sole = tree.get("workload").map(|node| ("", node));
    let several = tree.get("workloads").map(TreeNode::entries).unwrap_or_default();
    let mut all = OrderedMap::default();
    for (name, workload) in sole.into_iter().chain(several.iter().map(|e| (e.key.as_str(), &e.node))) {
        let at = if name.is_empty() { "workload".to_owned() } else { format!("workloads.{name}") };
        let mut of = |table: &str| {
            let node = workload.get(table)?;
            let files = KEYS.map(|key| match node.get(key) {
                Some(TreeNode { item: TreeItem::Text(file), span, .. }) => {
                    let path = source_folder(span, faults).join(file);
                    Some((
                        path.components().filter(|part| *part != Component::CurDir).collect(),
                        span.clone(),
                    ))
                }
                _ => None,
            });
            memo.read_tls_party(&format!("{at}.{table}"), files, outside, faults)
        };
        let certificates = WorkloadCertificates { nas: of("tls"), stations: of("eap_tls") };
        all.insert(name.to_owned(), certificates);
    }
    all
}

impl CertificateCache {
    fn read_tls_party(
        &mut self,
        table: &str,
        files: CertificateFiles,
        outside: &dyn ConfigEnvironment,
        faults: &mut DiagnosticCollector,
    ) -> Option<Arc<TlsClientCredentials>> {
        let paths = files.each_ref().map(|file| file.as_ref().map(|(path, _)| path.clone()));
        if let Some((_, party)) = self.0.iter().find(|(known, _)| *known == paths) {
            return Some(party.clone());
        }
        files.iter().flatten().next()?;
        match load_tls_party(&files, outside) {
            Ok(party) => {
                let party = Arc::new(party);
                self.0.push((paths, party.clone()));
                Some(party)
            }
            Err((which, why)) => {
                let place = files.into_iter().nth(which).flatten().and_then(|(_, place)| place);
                faults.add(place, format!("{table}.{}: {why}", KEYS[which]));
                None
            }
        }
    }
}

/// Loads a table's files and checks that TLS accepts them, or reports the faulty file. A certificate without a key is
/// reported elsewhere.
fn load_tls_party(
    [certificate, key, ca]: &CertificateFiles,
    outside: &dyn ConfigEnvironment,
) -> Result<TlsClientCredentials, (usize, String)> {
    let pem = |path: &Path| outside.read_octets(path, MOST);
    let wrong = |which: usize, path: &Path| {
        let path = path.display().to_string();
        move |error: TlsError| (which, format!("{path}: {error}"))
    };
    let roots = ca.as_ref().map(|(path, _)| {
        let roots = TrustRoots::from_pem(&pem(path).map_err(|why| (2, why))?).map_err(wrong(2, path))?;
        check_tls_client_builds(None, roots.clone()).map_err(wrong(2, path))?;
        Ok(roots)
    });
    let (mut credentials, mut name) = (None, None);
    if let (Some((certificate, _)), Some((key, _))) = (certificate, key) {
        let chain = pem(certificate).map_err(|why| (0, why))?;
        // The result is not used: this only checks that the file contains certificates.
        TrustRoots::from_pem(&chain).map_err(wrong(0, certificate))?;
        let secret = secret::from_file(key, outside).map_err(|why| (1, why))?;
        let own = TlsCredentials::from_pem(&chain, secret.0.as_bytes()).map_err(wrong(1, key))?;
        let own = own.with_even_signatures();
        check_tls_client_builds(Some(own.clone()), TrustRoots::accept_any_certificate())
            .map_err(wrong(1, key))?;
        let names =
            CertificateInfo::of_der(own.leaf_certificate()).map(|said| said.names).unwrap_or_default();
        name = names.iter().find(|name| name.contains('@')).or(names.first()).cloned();
        if name.is_none() {
            return Err((0, format!("{}: the certificate has no name", certificate.display())));
        }
        credentials = Some(own);
    }
    Ok(TlsClientCredentials { credentials, roots: roots.transpose()?, name })
}

/// Checks that a TLS client can be built from them.
fn check_tls_client_builds(credentials: Option<TlsCredentials>, roots: TrustRoots) -> Result<(), TlsError> {
    let options = TlsClientOptions {
        versions: TlsVersionRange::from(TlsVersion::Tls13),
        credentials,
        roots,
        server_name: None,
        resumption: None,
        clock: SharedWallClock::from_time(fixtures::WALL_TIME),
        key_log: None,
    };
    ClientConfig::new(options).map(drop)
}
