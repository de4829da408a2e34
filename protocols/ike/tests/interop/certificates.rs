//! Certificates with chains, RSA and ECDSA, in fragments; EAP with a gateway's certificate.

use super::host::InteropHost;
use super::place::CharonNamespace;
use super::{CONNECTIONS, count_events, test_connection};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use std::sync::Arc;
use usher_core::WallTime;
use usher_crypto::signature::SigningKey;
use usher_crypto::tls::{SharedWallClock, TrustRoots};
use usher_eap::method::{PeerMethodFactory, mschapv2};
use usher_ike::machine::{IkeCommand, IkeConnectionConfig, IkeEvent, LocalAuth, RemoteAuth};

/// A root authority with an intermediate one.
struct TestAuthority {
    root: Vec<u8>,
    intermediate: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl TestAuthority {
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
    /// Issues a certificate, and returns its key (DER).
    fn issue_certificate(
        &self,
        name: &str,
        algorithm: &'static rcgen::SignatureAlgorithm,
    ) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.push(SanType::DnsName(name.try_into().unwrap()));
        (params.signed_by(&key, &self.issuer).unwrap().der().to_vec(), key.serialize_der())
    }
    /// Starts charon with a certificate.
    fn start_charon(
        &self,
        algorithm: &'static rcgen::SignatureAlgorithm,
        connections: &str,
    ) -> CharonNamespace {
        let (certificate, key) = self.issue_certificate("gw.test", algorithm);
        let files: [(&str, &[u8]); 4] = [
            ("x509/gw.der", &certificate),
            ("x509ca/below.der", &self.intermediate),
            ("x509ca/root.der", &self.root),
            ("private/gw.der", &key),
        ];
        CharonNamespace::with_files(connections, &files)
    }
    /// A connection that trusts this authority.
    fn trusting_connection(
        &self,
        host: &mut InteropHost<'_>,
        traffic: &str,
        own: &str,
    ) -> IkeConnectionConfig {
        let clock = SharedWallClock::from_time(WallTime::from_unix_secs(1_800_000_000));
        host.credentials
            .set_connection_trust_roots("site", TrustRoots::from_der([&self.root[..]]), clock)
            .unwrap();
        let remote_auth = RemoteAuth::Certificate { authorities: vec![] };
        IkeConnectionConfig { remote_auth, ..test_connection("aes128-sha256-x25519", own, traffic) }
    }
}

/// IPv6 Ready: EN.I.1.1.10.1, EN.I.1.1.10.2, EN.I.1.1.10.3, EN.R.1.1.10.1, EN.R.1.1.10.2, EN.R.1.1.10.3.
#[test]
fn charon_and_we_prove_ourselves_by_certificates_with_chains() {
    let authority = TestAuthority::new();
    let both = "{ auth = pubkey";
    let connections = CONNECTIONS.replace("METHOD", "md5").replace("{ auth = psk", both);
    for (theirs, ours) in [
        (&rcgen::PKCS_RSA_SHA256, &rcgen::PKCS_ECDSA_P256_SHA256),
        (&rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_RSA_SHA256),
    ] {
        let place = authority.start_charon(theirs, &connections);
        let mut host = InteropHost::new(&place, 0);
        let mut connection = authority.trusting_connection(&mut host, "10.1.0.0/16", "ini.test");
        let (certificate, key) = authority.issue_certificate("ini.test", ours);
        let kind = host.credentials.set_connection_signing_key("site", SigningKey::from_der(&key).unwrap());
        connection.local_auth = LocalAuth::Certificate {
            chain: vec![certificate, authority.intermediate.clone()],
            kind,
            pss: false,
        };
        let sa = host.connect(connection);
        host.send_command(IkeCommand::Delete(sa));
        host.wait_until("it has ended", |events| {
            count_events(events, |e| matches!(e, IkeEvent::Ended { .. })) == 1
        });
        assert!(place.charon_log().contains("EF(1/"), "IKE_AUTH is in fragments:\n{}", place.charon_log());
    }
}

#[test]
fn charon_proves_itself_by_a_certificate_and_we_by_eap() {
    let authority = TestAuthority::new();
    let connections =
        CONNECTIONS.replace("METHOD", "mschapv2").replace("local { auth = psk", "local { auth = pubkey");
    let place = authority.start_charon(&rcgen::PKCS_ECDSA_P256_SHA256, &connections);
    let mut host = InteropHost::new(&place, 0);
    let mut connection = authority.trusting_connection(&mut host, "10.3.0.0/16", "ann.test");
    let offer: Box<dyn PeerMethodFactory> =
        Box::new(mschapv2::MsChapV2Account::new(b"ann", b"a long password"));
    connection.local_auth = LocalAuth::Eap { identity: b"ann".to_vec(), methods: Arc::new([offer]) };
    host.connect(connection);
}
