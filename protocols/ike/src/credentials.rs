//! Who answers an endpoint's jobs: keys that sign, and authorities that are trusted.

use crate::code::IdType;
use crate::machine::{Command, IkeJob};
use crate::payload::Identification;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::Job;
use usher_crypto::signature::{KeyKind, SigningKey};
use usher_crypto::tls::ChainVerifier;
use usher_crypto::x509::{SubjectName, bears, may_prove_identity};

/// The keys of connections, and whom they trust. A host asks it wherever it does jobs, as on a thread.
#[derive(Debug, Default)]
pub struct Credentials {
    keys: BTreeMap<String, SigningKey>,
    trusted: BTreeMap<String, ChainVerifier>,
}

impl Credentials {
    /// With nobody's key, trusting nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// The key that a connection of this name signs with. Gives its kind.
    pub fn add_key(&mut self, connection: &str, key: SigningKey) -> KeyKind {
        let kind = key.kind();
        self.keys.insert(connection.into(), key);
        kind
    }
    /// Whom a connection of this name trusts.
    pub fn trust(&mut self, connection: &str, verifier: ChainVerifier) {
        self.trusted.insert(connection.into(), verifier);
    }

    /// Does a job, and gives what the endpoint is to be told.
    #[must_use]
    pub fn answer(&self, job: &Job<IkeJob>) -> Command {
        let token = job.token;
        match &job.what {
            IkeJob::Sign { connection, scheme, octets } => {
                let signature = self.keys.get(connection).and_then(|key| key.sign(*scheme, octets).ok());
                Command::Signed { token, signature }
            }
            IkeJob::Verify { connection, identity, certificates, scheme, octets, signature } => {
                let path = self.path(connection, certificates);
                let leaf = path.and_then(|path| path.into_iter().next());
                let holds = leaf.is_some_and(|leaf| {
                    is_of(&leaf, identity)
                        && may_prove_identity(&leaf)
                        && scheme.verify(&leaf, octets, signature).is_ok()
                });
                Command::Verified { token, holds }
            }
        }
    }

    fn path(&self, connection: &str, certificates: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
        self.trusted.get(connection)?.path(certificates).ok()
    }
}

/// Whether a certificate is of an identity: it bears it as an alternative name of the same kind, or as its subject
/// (RFC 7296 §3.5, RFC 4945 §3.1).
#[must_use]
pub fn is_of(certificate: &[u8], identity: &Identification) -> bool {
    let name = match (identity.kind, identity.as_text(), identity.as_address()) {
        (IdType::ID_FQDN, Some(name), _) => SubjectName::Dns(name),
        (IdType::ID_RFC822_ADDR, Some(name), _) => SubjectName::Mail(name),
        (IdType::ID_DER_ASN1_DN, ..) => SubjectName::Subject(&identity.data),
        (_, _, Some(address)) => SubjectName::Address(address),
        _ => return false,
    };
    bears(certificate, name)
}
