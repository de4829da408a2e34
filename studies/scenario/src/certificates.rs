//! What the PEM files hold that a workload names: they are read where the plan is made, so that a run reads none.

use crate::services::folder;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use usher_config::secret;
use usher_config::tree::{Item, TreeNode};
use usher_config::{Collector, Location, Ordered, Outside};
use usher_crypto::tls::{
    ClientConfig, ClientOptions, Credentials, Roots, TlsError, Version, VersionRange, WallClock, fixtures,
};
use usher_crypto::x509::Information;

/// The most octets of a file.
const MOST: u64 = 1 << 20;

/// What a client of TLS shows, and whom it trusts.
#[derive(Clone, Debug)]
pub struct Party {
    /// Its certificate, with those above it, and its key; signatures are of one length.
    pub credentials: Option<Credentials>,
    /// The authorities of the server's certificate.
    pub roots: Option<Roots>,
    /// Who it is by its certificate: the first name with an `@`, or else the first.
    pub name: Option<String>,
}

/// What a workload's files hold; `None` where it names none.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    /// `[workload.tls]`: of the NASes.
    pub nas: Option<Arc<Party>>,
    /// `[workload.eap_tls]`: of the stations.
    pub stations: Option<Arc<Party>>,
}

impl PartialEq for Certificates {
    /// Whether both were read at the same time: the same files are read once.
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Option<Arc<Party>>, other: &Option<Arc<Party>>| match (one, other) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same(&self.nas, &other.nas) && same(&self.stations, &other.stations)
    }
}

/// The names of a table's files, each whole and with its place: certificate, key, authorities.
type Files = [Option<(PathBuf, Location)>; 3];

const KEYS: [&str; 3] = ["certificate", "key", "ca"];

/// What was read so far: most points of a plan have the same files.
#[derive(Debug, Default)]
pub(crate) struct Memo(Vec<([Option<PathBuf>; 3], Arc<Party>)>);

/// Reads and checks the files that a point's tree names; by workload.
pub(crate) fn read(
    tree: &TreeNode,
    outside: &dyn Outside,
    memo: &mut Memo,
    faults: &mut Collector,
) -> Ordered<Certificates> {
    let sole = tree.get("workload").map(|node| ("", node));
    let several = tree.get("workloads").map(TreeNode::entries).unwrap_or_default();
    let mut all = Ordered::default();
    for (name, workload) in sole.into_iter().chain(several.iter().map(|e| (e.key.as_str(), &e.node))) {
        let at = if name.is_empty() { "workload".to_owned() } else { format!("workloads.{name}") };
        let mut of = |table: &str| {
            let node = workload.get(table)?;
            let files = KEYS.map(|key| match node.get(key) {
                Some(TreeNode { item: Item::Text(file), span, .. }) => {
                    let path = folder(span, faults).join(file);
                    Some((
                        path.components().filter(|part| *part != Component::CurDir).collect(),
                        span.clone(),
                    ))
                }
                _ => None,
            });
            memo.read(&format!("{at}.{table}"), files, outside, faults)
        };
        let certificates = Certificates { nas: of("tls"), stations: of("eap_tls") };
        all.insert(name.to_owned(), certificates);
    }
    all
}

impl Memo {
    fn read(
        &mut self,
        table: &str,
        files: Files,
        outside: &dyn Outside,
        faults: &mut Collector,
    ) -> Option<Arc<Party>> {
        let paths = files.each_ref().map(|file| file.as_ref().map(|(path, _)| path.clone()));
        if let Some((_, party)) = self.0.iter().find(|(known, _)| *known == paths) {
            return Some(party.clone());
        }
        files.iter().flatten().next()?;
        match party(&files, outside) {
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

/// What the files hold, tried out, or which of them is of no use and why. Half of a proof is reported elsewhere.
fn party([certificate, key, ca]: &Files, outside: &dyn Outside) -> Result<Party, (usize, String)> {
    let pem = |path: &Path| outside.octets(path, MOST);
    let wrong = |which: usize, path: &Path| {
        let path = path.display().to_string();
        move |error: TlsError| (which, format!("{path}: {error}"))
    };
    let roots = ca.as_ref().map(|(path, _)| {
        let roots = Roots::from_pem(&pem(path).map_err(|why| (2, why))?).map_err(wrong(2, path))?;
        usable(None, roots.clone()).map_err(wrong(2, path))?;
        Ok(roots)
    });
    let (mut credentials, mut name) = (None, None);
    if let (Some((certificate, _)), Some((key, _))) = (certificate, key) {
        let chain = pem(certificate).map_err(|why| (0, why))?;
        // Whether they are certificates at all.
        Roots::from_pem(&chain).map_err(wrong(0, certificate))?;
        let secret = secret::from_file(key, outside).map_err(|why| (1, why))?;
        let own = Credentials::from_pem(&chain, secret.0.as_bytes()).map_err(wrong(1, key))?;
        let own = own.with_even_signatures();
        usable(Some(own.clone()), Roots::anybody()).map_err(wrong(1, key))?;
        let names = Information::of_der(own.leaf()).map(|said| said.names).unwrap_or_default();
        name = names.iter().find(|name| name.contains('@')).or(names.first()).cloned();
        if name.is_none() {
            return Err((0, format!("{}: it bears no name, so that it is nobody's", certificate.display())));
        }
        credentials = Some(own);
    }
    Ok(Party { credentials, roots: roots.transpose()?, name })
}

/// Whether a client can be made of them.
fn usable(credentials: Option<Credentials>, roots: Roots) -> Result<(), TlsError> {
    let options = ClientOptions {
        versions: VersionRange::from(Version::Tls13),
        credentials,
        roots,
        server_name: None,
        resumption: None,
        clock: WallClock::at(fixtures::WALL_TIME),
        key_log: None,
    };
    ClientConfig::new(options).map(drop)
}
