//! Certificates with chains, and signatures by helpers.

use super::*;
use crate::credentials::Credentials;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use usher_core::WallTime;
use usher_crypto::signature::SigningKey;
use usher_crypto::tls::{ChainVerifier, Roots, WallClock};

/// An authority with one below it.
struct Authority {
    root: Vec<u8>,
    intermediate: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let authority = |name: &str| {
            let mut params = CertificateParams::new(vec![]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            (params, KeyPair::generate().unwrap())
        };
        let ((root, root_key), (below, below_key)) = (authority("root"), authority("below"));
        let root_der = root.self_signed(&root_key).unwrap().der().to_vec();
        let issuer = Issuer::new(root, root_key);
        let intermediate = below.signed_by(&below_key, &issuer).unwrap().der().to_vec();
        Self { root: root_der, intermediate, issuer: Issuer::new(below, below_key) }
    }
    /// A certificate with its chain, and its key.
    fn certify(
        &self,
        name: &str,
        algorithm: &'static rcgen::SignatureAlgorithm,
    ) -> (Vec<Vec<u8>>, SigningKey) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.subject_alt_names.push(SanType::DnsName(name.try_into().unwrap()));
        let der = params.signed_by(&key, &self.issuer).unwrap().der().to_vec();
        (vec![der, self.intermediate.clone()], SigningKey::from_der(&key.serialize_der()).unwrap())
    }
    fn verifier(&self) -> ChainVerifier {
        let clock = WallClock::at(WallTime::from_unix_secs(1_800_000_000));
        ChainVerifier::new(Roots::from_der([&self.root[..]]), clock).unwrap()
    }
}

/// Both sides have certificates of one authority, of these kinds.
fn world(
    authority: &Authority,
    algorithms: [&'static rcgen::SignatureAlgorithm; 2],
    name: &str,
    trusts: &Authority,
) -> World {
    let mut sides = [connection(true), connection(false)];
    let mut credentials = Vec::new();
    for ((side, algorithm), name) in sides.iter_mut().zip(algorithms).zip([name, "gw.test"]) {
        let (chain, key) = authority.certify(name, algorithm);
        let mut own = Credentials::new();
        let kind = own.add_key("site", key);
        own.trust("site", trusts.verifier());
        side.local_auth = LocalAuth::Certificate { chain, kind };
        side.remote_auth = RemoteAuth::Certificate { authorities: vec![[7; 20]] };
        credentials.push(own);
    }
    let [ours, theirs] = sides;
    let mut world = World::new(ours, theirs);
    for (host, own) in [world.initiator, world.responder].into_iter().zip(credentials) {
        world.net.on_job(host, move |job| Some((millis(3), own.answer(&job))));
    }
    world
}

const P256: &rcgen::SignatureAlgorithm = &rcgen::PKCS_ECDSA_P256_SHA256;

#[test]
fn both_sides_are_proved_by_certificates_with_chains() {
    let authority = Authority::new();
    for algorithms in
        [[&rcgen::PKCS_RSA_SHA256, P256], [&rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_RSA_SHA256]]
    {
        let mut world = world(&authority, algorithms, "ini.test", &authority);
        world.connect();
        world.fit(1);
        let work = world.net.take_work();
        assert_eq!((work["ike.sign"], work["ike.verify"]), (2, 2));
        assert!(world.net.sent().len() > 4, "the chains are long: IKE_AUTH is in fragments");
    }
}

#[test]
fn a_certificate_of_another_name_or_authority_does_not_convince() {
    let (authority, other) = (Authority::new(), Authority::new());
    for mut world in [
        world(&authority, [P256, P256], "other.test", &authority),
        world(&authority, [P256, P256], "ini.test", &other),
    ] {
        world.initiate();
        world.net.run(secs(1));
        assert_eq!(world.ended(world.responder), [EndReason::AuthenticationFailed]);
        assert_eq!(world.ended(world.initiator), [EndReason::Refused]);
        world.forgotten();
    }
}

#[test]
fn without_a_signature_there_is_no_login() {
    let authority = Authority::new();
    for of_initiator in [true, false] {
        let mut world = world(&authority, [P256, P256], "ini.test", &authority);
        let host = if of_initiator { world.initiator } else { world.responder };
        let own = Credentials::new();
        let verifier = authority.verifier();
        world.net.on_job(host, move |job| match &job.what {
            IkeJob::Sign { .. } => Some((millis(1), own.answer(&job))),
            IkeJob::Verify { .. } => {
                let _ = &verifier;
                Some((millis(1), Command::Verified { token: job.token, holds: true }))
            }
        });
        world.initiate();
        world.net.run(secs(1));
        assert_eq!(world.ended(host), [EndReason::Helper]);
    }
}

#[test]
fn a_shared_key_of_one_side_and_a_certificate_of_the_other_are_a_login() {
    let authority = Authority::new();
    let (chain, key) = authority.certify("gw.test", P256);
    let mut gateway = Credentials::new();
    let kind = gateway.add_key("site", key);
    let (mut ours, mut theirs) = (connection(true), connection(false));
    theirs.local_auth = LocalAuth::Certificate { chain, kind };
    ours.remote_auth = RemoteAuth::Certificate { authorities: vec![] };
    let mut own = Credentials::new();
    own.trust("site", authority.verifier());
    let mut world = World::new(ours, theirs);
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.on_job(initiator, move |job| Some((millis(1), own.answer(&job))));
    world.net.on_job(responder, move |job| Some((millis(1), gateway.answer(&job))));
    world.connect();
    world.fit(1);
}

#[test]
fn eap_beside_a_gateways_certificate_is_a_login() {
    let authority = Authority::new();
    let (chain, key) = authority.certify("gw.test", P256);
    let mut gateway = Credentials::new();
    let kind = gateway.add_key("site", key);
    let (mut ours, mut theirs) = (connection(true), connection(false));
    theirs.local_auth = LocalAuth::Certificate { chain, kind };
    theirs.remote_auth = RemoteAuth::Eap { ask_identity: false };
    ours.local_auth = peer_auth(Method::MsChapV2, PASSWORD);
    ours.remote_auth = RemoteAuth::Certificate { authorities: vec![] };
    let mut own = Credentials::new();
    own.trust("site", authority.verifier());
    let mut world = World::new(ours, theirs);
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.on_job(initiator, move |job| Some((millis(1), own.answer(&job))));
    world.net.on_job(responder, move |job| Some((millis(1), gateway.answer(&job))));
    world.connect();
    world.fit(1);
}
