//! Certificates created by tests: revocation lists, and keys on elliptic curves.

use super::*;
use crate::fault::CertificateFault;
use crate::x509::{RevocationList, certificate_name};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use usher_core::WallTime;

/// An authority, below another or self-signed.
#[derive(Clone)]
struct TestAuthority {
    der: Vec<u8>,
    issuer: std::sync::Arc<Issuer<'static, KeyPair>>,
}

impl TestAuthority {
    fn new(name: &str, serial: u64, above: Option<&Self>) -> Self {
        Self::valid_until(2036, name, serial, above)
    }

    fn valid_until(year: i32, name: &str, serial: u64, above: Option<&Self>) -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = certificate_params(name, serial);
        params.not_after = date_time_ymd(year, 1, 1);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = match above {
            Some(above) => params.signed_by(&key, &above.issuer).unwrap(),
            None => params.self_signed(&key).unwrap(),
        };
        Self { der: certificate.der().to_vec(), issuer: Issuer::new(params, key).into() }
    }

    fn issue_leaf(&self, name: &str, serial: u64, usage: ExtendedKeyUsagePurpose) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = certificate_params(name, serial);
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().to_vec(), key.serialize_der())
    }

    /// Returns a list of these serial numbers whose next update is in this year.
    fn issue_crl(&self, revoked: &[u64], until: i32) -> Vec<u8> {
        let entry = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2026, 2, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 2, 2),
            next_update: date_time_ymd(until, 3, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().der().to_vec()
    }
}

fn certificate_params(name: &str, serial: u64) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from(serial));
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2036, 1, 1);
    params
}

/// A root, an authority below it (number 7), a client (number 8) and a server.
struct TestPki {
    root: TestAuthority,
    below: TestAuthority,
    client: TlsCredentials,
    server: TlsCredentials,
}

fn test_pki() -> TestPki {
    let root = TestAuthority::new("Root", 1, None);
    let below = TestAuthority::new("Below", 7, Some(&root));
    let (client, client_key) = below.issue_leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
    let (server, server_key) = below.issue_leaf("server.test", 9, ExtendedKeyUsagePurpose::ServerAuth);
    let client = TlsCredentials::from_der([&client[..], &below.der], &client_key);
    let server = TlsCredentials::from_der([&server[..], &below.der], &server_key);
    TestPki { root, below, client, server }
}

fn pki_configs(
    pki: &TestPki,
    client_versions: TlsVersionRange,
    server_versions: TlsVersionRange,
    crls: Vec<Vec<u8>>,
) -> Result<(ClientConfig, ServerConfig), TlsError> {
    let roots = || TrustRoots::from_der([&pki.root.der[..]]);
    let listed = roots().with_revocation_lists(crls.iter().map(Vec::as_slice))?;
    let clock = || SharedWallClock::from_time(fixtures::WALL_TIME);
    let client = ClientConfig::new(TlsClientOptions {
        versions: client_versions,
        credentials: Some(pki.client.clone()),
        roots: roots(),
        server_name: Some("server.test".into()),
        resumption: None,
        clock: clock(),
        key_log: None,
    })?;
    let server = ServerConfig::new(TlsServerOptions {
        versions: server_versions,
        credentials: pki.server.clone(),
        client_roots: Some(listed),
        resumption: None,
        clock: clock(),
        key_log: None,
    })?;
    Ok((client, server))
}

/// Returns a client whose certificate ends on 2026-07-02, a day after [`fixtures::WALL_TIME`] and long before all
/// others.
pub(super) fn short_lived_client(
    version: TlsVersion,
    resumption: Option<TlsResumptionConfig>,
    clock: &SharedWallClock,
) -> (ClientConfig, ServerConfig) {
    let root = TestAuthority::new("Root", 1, None);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut params = certificate_params("client", 2);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_after = date_time_ymd(2026, 7, 2);
    let certificate = params.signed_by(&key, &root.issuer).unwrap();
    let setup = HandshakeSetup {
        resumption,
        clock: clock.clone(),
        client: Some(TlsCredentials::from_der([&certificate.der()[..]], &key.serialize_der())),
        client_roots: TrustRoots::from_der([&root.der[..]]),
        ..HandshakeSetup::new(version, 2)
    };
    setup.into_configs()
}

/// Returns an authority that has issued no certificate.
pub(super) fn unrelated_root() -> TrustRoots {
    TrustRoots::from_der([&TestAuthority::new("Other", 1, None).der[..]])
}

/// Returns the reason why the server rejects the client, if it does.
fn refusal_fault((client, server): &(ClientConfig, ServerConfig)) -> Option<TlsFault> {
    let (mut client, mut server) =
        (TlsClientEngine::new(client).unwrap(), TlsServerEngine::new(server).unwrap());
    run_handshake(&mut client, &mut server);
    server.error().map(TlsError::fault)
}

/// Returns the negotiated version, if the server accepts the client.
fn agreed_version((client, server): &(ClientConfig, ServerConfig)) -> Option<TlsVersion> {
    let (mut client, mut server) =
        (TlsClientEngine::new(client).unwrap(), TlsServerEngine::new(server).unwrap());
    run_handshake(&mut client, &mut server);
    (server.error().is_none() && !server.is_handshaking()).then(|| server.version()).flatten()
}

#[test]
fn the_highest_common_version_is_agreed_on() {
    let pki = test_pki();
    let (v12, v13, both) = (TlsVersion::Tls12.into(), TlsVersion::Tls13.into(), TlsVersionRange::default());
    for (client, server, expected) in [
        (both, both, Some(TlsVersion::Tls13)),
        (both, v12, Some(TlsVersion::Tls12)),
        (both, v13, Some(TlsVersion::Tls13)),
        (v13, both, Some(TlsVersion::Tls13)),
        (v12, v13, None),
        (v13, v12, None),
    ] {
        let configs = pki_configs(&pki, client, server, Vec::new()).unwrap();
        assert_eq!(agreed_version(&configs), expected, "{client:?} {server:?}");
        let fault = expected.is_none().then_some(TlsFault::NoCommonVersion);
        assert_eq!(refusal_fault(&configs), fault, "{client:?} {server:?}");
    }
    let reversed = TlsVersionRange { min: TlsVersion::Tls13, max: TlsVersion::Tls12 };
    let error = pki_configs(&pki, both, reversed, Vec::new()).unwrap_err().to_string();
    assert!(error.contains("the lowest version is above the highest"), "{error}");
}

#[test]
fn a_revoked_client_or_an_outdated_list_is_refused() {
    let pki = test_pki();
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        // A single version, TLS 1.2, has no suite for these keys.
        let client = if version == TlsVersion::Tls12 { TlsVersionRange::default() } else { version.into() };
        let revoked = Some(CertificateFault::Revoked);
        for (what, crls, fault) in [
            ("no list", vec![], None),
            ("nobody on it", vec![pki.below.issue_crl(&[], 2027)], None),
            ("others on it", vec![pki.below.issue_crl(&[5, 6, 7], 2027)], None),
            ("the root's list alone", vec![pki.root.issue_crl(&[8], 2027)], None),
            ("the client", vec![pki.below.issue_crl(&[8], 2027)], revoked),
            ("the authority", vec![pki.below.issue_crl(&[], 2027), pki.root.issue_crl(&[7], 2027)], revoked),
            ("out of date", vec![pki.below.issue_crl(&[], 2026)], Some(CertificateFault::ListExpired)),
        ] {
            let configs = pki_configs(&pki, client, version.into(), crls).unwrap();
            assert_eq!(agreed_version(&configs), fault.is_none().then_some(version), "{what}");
            assert_eq!(refusal_fault(&configs), fault.map(TlsFault::Certificate), "{what}");
        }
    }
}

#[test]
fn a_list_is_of_its_issuer_and_of_its_time() {
    let pki = test_pki();
    let list = RevocationList::of_der(&pki.below.issue_crl(&[8], 2027)).unwrap();
    assert!(list.is_signed_by([&pki.root.der[..], &pki.below.der]));
    assert!(!list.is_signed_by([&pki.root.der[..]]));
    // Another authority may have the same name with a different key.
    let other = TestAuthority::new("Below", 7, Some(&pki.root));
    assert!(!list.is_signed_by([&other.der[..]]));
    // From 2026-02-02, or five minutes earlier for a slow clock, until 2027-03-01.
    for (secs, of_now) in
        [(1_769_990_099, false), (1_769_990_100, true), (1_803_859_199, true), (1_803_859_200, false)]
    {
        assert_eq!(list.is_list_current(WallTime::from_unix_secs(secs)), of_now, "{secs}");
    }
}

#[test]
fn what_is_on_a_list_is_named_as_certificates_are() {
    let pki = test_pki();
    let names: Vec<_> = RevocationList::of_der(&pki.below.issue_crl(&[8, 1 << 63], 2027))
        .unwrap()
        .revoked_certificates()
        .collect();
    let leaf = |of: &TestAuthority, serial| {
        let (der, _) = of.issue_leaf("client", serial, ExtendedKeyUsagePurpose::ClientAuth);
        certificate_name(&der).unwrap()
    };
    // Numbers with their highest bit set have a leading zero octet.
    assert_eq!(names, [leaf(&pki.below, 8), leaf(&pki.below, 1 << 63)]);
    assert!(!names.contains(&leaf(&pki.below, 9)) && !names.contains(&leaf(&pki.root, 8)));
    assert!(certificate_name(&[1, 2, 3]).is_err());
}

#[test]
fn what_is_no_list_is_refused_when_configured() {
    let error =
        pki_configs(&test_pki(), TlsVersionRange::default(), TlsVersionRange::default(), vec![vec![1, 2, 3]])
            .unwrap_err()
            .to_string();
    assert!(error.contains("revocation lists"), "{error}");
}

#[test]
fn a_server_on_a_list_is_refused() {
    let pki = test_pki();
    let (client, server) =
        pki_configs(&pki, TlsVersionRange::default(), TlsVersionRange::default(), Vec::new()).unwrap();
    assert!(agreed_version(&(client, server.clone())).is_some());
    for (what, lists, good) in [
        ("others on it", vec![pki.below.issue_crl(&[8], 2027)], true),
        ("the server", vec![pki.below.issue_crl(&[9], 2027)], false),
        ("the authority", vec![pki.root.issue_crl(&[7], 2027)], false),
        ("out of date", vec![pki.below.issue_crl(&[], 2026)], false),
    ] {
        let roots = TrustRoots::from_der([&pki.root.der[..]])
            .with_revocation_lists(lists.iter().map(Vec::as_slice))
            .unwrap();
        let client = ClientConfig::new(TlsClientOptions {
            versions: TlsVersionRange::default(),
            credentials: Some(pki.client.clone()),
            roots,
            server_name: None,
            resumption: None,
            clock: SharedWallClock::from_time(fixtures::WALL_TIME),
            key_log: None,
        })
        .unwrap();
        let chain = [pki.server.leaf_certificate(), &pki.below.der];
        assert_eq!(client.check_server_chain(&chain).is_ok(), good, "{what}");
        assert_eq!(agreed_version(&(client, server.clone())).is_some(), good, "{what}");
    }
}

#[test]
fn a_path_is_the_one_that_is_verified_whatever_else_is_shown() {
    let pki = test_pki();
    let (client, server) =
        pki_configs(&pki, TlsVersionRange::default(), TlsVersionRange::default(), Vec::new()).unwrap();
    let (leaf, below, root) = (pki.client.leaf_certificate(), &pki.below.der[..], &pki.root.der[..]);
    // An authority of the same name with another key: self-signed, and below another root of the same name.
    let alone = TestAuthority::new("Below", 7, None);
    let other = TestAuthority::new("Below", 7, Some(&TestAuthority::new("Root", 1, None)));
    for chain in [
        vec![leaf, below],
        vec![leaf, below, root],
        vec![leaf, &alone.der, below],
        vec![leaf, &other.der, &alone.der, root, below],
    ] {
        assert_eq!(server.verified_client_path(&chain).unwrap(), [leaf, below, root]);
    }
    for chain in [vec![leaf], vec![leaf, &alone.der], vec![leaf, &other.der, root], vec![]] {
        assert!(server.verified_client_path(&chain).is_err());
    }
    assert!(
        server.verified_client_path(&[pki.server.leaf_certificate(), below]).is_err(),
        "it is for servers"
    );
    assert!(
        client.check_server_chain(&[leaf, below]).is_err()
            && client.check_server_chain(&[pki.server.leaf_certificate(), below]).is_ok()
    );
    let (responder, _) = pki.below.issue_leaf("responder", 10, ExtendedKeyUsagePurpose::OcspSigning);
    assert_eq!(
        server.verified_path_for_any_purpose(&[&responder[..], below]).unwrap(),
        [&responder[..], below, root]
    );
    assert!(server.verified_client_path(&[&responder[..], below]).is_err());
    assert!(server.verified_path_for_any_purpose(&[&responder[..], &alone.der]).is_err());
    let (_, anonymous) = HandshakeSetup::new(TlsVersion::Tls13, 1).into_configs();
    assert!(anonymous.verified_client_path(&[leaf, below]).is_err(), "another root");
}

/// Returns the reason why the server rejects a client with these certificates besides `leaf`, and the number of
/// signatures verified.
fn refusal_of(pki: &TestPki, (leaf, key): &(Vec<u8>, Vec<u8>), shown: &[&[u8]]) -> (Option<TlsFault>, u32) {
    let both = TlsVersionRange::default();
    let client = TlsCredentials::from_der([&leaf[..]].into_iter().chain(shown.iter().copied()), key);
    let pki =
        TestPki { root: pki.root.clone(), below: pki.below.clone(), client, server: pki.server.clone() };
    let (client, server) = pki_configs(&pki, both, both, Vec::new()).unwrap();
    let (mut client, mut server) =
        (TlsClientEngine::new(&client).unwrap(), TlsServerEngine::new(&server).unwrap());
    run_handshake(&mut client, &mut server);
    (server.error().map(TlsError::fault), server.take_work().verify)
}

#[test]
fn a_path_takes_six_authorities_in_any_order_but_not_seven() {
    let pki = test_pki();
    let mut authorities = vec![pki.below.clone()];
    for n in 2..=7 {
        let above = authorities.last().unwrap();
        authorities.push(TestAuthority::new(&format!("Below {n}"), n, Some(above)));
    }
    for (depth, order, taken) in [(6, 1, true), (6, 5, true), (7, 1, false)] {
        let leaf = authorities[depth - 1].issue_leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
        let mut shown: Vec<&[u8]> = authorities[..depth].iter().map(|one| &one.der[..]).collect();
        shown.rotate_left(order);
        let (fault, verified) = refusal_of(&pki, &leaf, &shown);
        let too_many = TlsFault::Certificate(CertificateFault::Constraint);
        assert_eq!(fault, (!taken).then_some(too_many), "{depth} {order}");
        // One for each certificate, and one for the handshake.
        assert_eq!(verified, if taken { 8 } else { 0 }, "{depth} {order}");
    }
}

/// The certificates of strangers and users cost few signature checks, in however many ways they name each other.
#[test]
fn certificates_with_many_paths_cost_few_signature_checks() {
    let pki = test_pki();
    let barred = Some(TlsFault::Certificate(CertificateFault::Constraint));
    // A stranger's certificates that all claim to be the root's, with their own keys.
    let strangers: Vec<TestAuthority> = (0..6).map(|n| TestAuthority::new("Root", 100 + n, None)).collect();
    let shown: Vec<&[u8]> = strangers.iter().map(|one| &one.der[..]).collect();
    let leaf = strangers[0].issue_leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
    // Each by the root's key, and the leaf.
    let wrong = Some(TlsFault::Certificate(CertificateFault::Signature));
    assert_eq!(refusal_of(&pki, &leaf, &shown), (wrong, 7));
    // Below an authority's certificate, which is public.
    let strangers: Vec<TestAuthority> = (0..5).map(|n| TestAuthority::new("Below", 100 + n, None)).collect();
    let shown: Vec<&[u8]> = strangers.iter().map(|one| &one.der[..]).chain([&pki.below.der[..]]).collect();
    let leaf = strangers[0].issue_leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
    let (fault, verified) = refusal_of(&pki, &leaf, &shown);
    assert!(fault.is_some() && verified <= 7, "{fault:?} {verified}");
    // A user who signs authorities with the key of its own certificate.
    let (own, key) = pki.below.issue_leaf("user", 9, ExtendedKeyUsagePurpose::ClientAuth);
    let signing = KeyPair::try_from(&key[..]).unwrap();
    let user = TestAuthority { der: own, issuer: Issuer::new(certificate_params("user", 9), signing).into() };
    let made: Vec<TestAuthority> = (0..4).map(|n| TestAuthority::new("user", 100 + n, Some(&user))).collect();
    let shown: Vec<&[u8]> =
        made.iter().map(|one| &one.der[..]).chain([&user.der[..], &pki.below.der]).collect();
    let leaf = made[0].issue_leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
    // The user's certificate by the authority's key, and the authority's own.
    assert_eq!(refusal_of(&pki, &leaf, &shown), (barred, 2));
}

#[test]
fn who_may_not_sign_certificates_is_no_authority() {
    let pki = test_pki();
    let barred = Some(TlsFault::Certificate(CertificateFault::Constraint));
    for (is_ca, usages, taken) in [
        (IsCa::Ca(BasicConstraints::Unconstrained), vec![], true),
        (IsCa::Ca(BasicConstraints::Unconstrained), vec![KeyUsagePurpose::KeyCertSign], true),
        (IsCa::Ca(BasicConstraints::Unconstrained), vec![KeyUsagePurpose::CrlSign], false),
        (IsCa::ExplicitNoCa, vec![KeyUsagePurpose::KeyCertSign], false),
        (IsCa::NoCa, vec![], false),
    ] {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = certificate_params("Between", 11);
        (params.is_ca, params.key_usages) = (is_ca, usages);
        let der = params.signed_by(&key, &pki.below.issuer).unwrap().der().to_vec();
        let between = TestAuthority { der, issuer: Issuer::new(params, key).into() };
        let leaf = between.issue_leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
        let (fault, _) = refusal_of(&pki, &leaf, &[&between.der, &pki.below.der]);
        assert_eq!(fault, if taken { None } else { barred });
    }
}

/// Returns a server that caches verified signatures.
fn caching_server(pki: &TestPki, roots: &TrustRoots, clock: &SharedWallClock) -> ServerConfig {
    ServerConfig::new(TlsServerOptions {
        versions: TlsVersionRange::default(),
        credentials: pki.server.clone(),
        client_roots: Some(roots.clone()),
        resumption: None,
        clock: clock.clone(),
        key_log: None,
    })
    .unwrap()
}

/// Returns true if the server accepts the client, and the number of signatures verified.
fn count_verifications(client: &ClientConfig, server: &ServerConfig) -> (bool, u32) {
    let (mut client, mut server) =
        (TlsClientEngine::new(client).unwrap(), TlsServerEngine::new(server).unwrap());
    run_handshake(&mut client, &mut server);
    (server.error().is_none() && !server.is_handshaking(), server.take_work().verify)
}

#[test]
fn the_cache_verifies_a_certificate_signature_only_once() {
    let pki = test_pki();
    let both = TlsVersionRange::default();
    let (client, forgetful) = pki_configs(&pki, both, both, Vec::new()).unwrap();
    // The handshake, the client's certificate and the authority's.
    assert_eq!(
        [count_verifications(&client, &forgetful), count_verifications(&client, &forgetful)],
        [(true, 3); 2]
    );
    let clock = SharedWallClock::from_time(fixtures::WALL_TIME);
    let roots = TrustRoots::from_der([&pki.root.der[..]]);
    let server = caching_server(&pki, &roots.clone().with_signature_cache(), &clock);
    assert_eq!(count_verifications(&client, &server), (true, 3));
    assert_eq!(
        [count_verifications(&client, &server), count_verifications(&client, &server)],
        [(true, 1); 2]
    );
    // Two lists more.
    let lists = [pki.root.issue_crl(&[5], 2027), pki.below.issue_crl(&[6], 2027)];
    let listed = roots.with_revocation_lists(lists.iter().map(Vec::as_slice)).unwrap();
    let server = caching_server(&pki, &listed.clone().with_signature_cache(), &clock);
    assert_eq!(
        [count_verifications(&client, &server), count_verifications(&client, &server)],
        [(true, 5), (true, 1)]
    );
    // Another configuration does not share the cache.
    assert_eq!(
        count_verifications(&client, &caching_server(&pki, &listed.with_signature_cache(), &clock)),
        (true, 5)
    );
}

#[test]
fn a_cached_authority_is_refused_once_revoked_or_expired() {
    let root = TestAuthority::new("Root", 1, None);
    let below = TestAuthority::valid_until(2030, "Below", 7, Some(&root));
    let (client, client_key) = below.issue_leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
    let (server, server_key) = below.issue_leaf("server.test", 9, ExtendedKeyUsagePurpose::ServerAuth);
    let client = TlsCredentials::from_der([&client[..], &below.der], &client_key);
    let server = TlsCredentials::from_der([&server[..], &below.der], &server_key);
    let pki = TestPki { root, below, client, server };
    let (both, clock) = (TlsVersionRange::default(), SharedWallClock::from_time(fixtures::WALL_TIME));
    let (client, _) = pki_configs(&pki, both, both, Vec::new()).unwrap();
    let roots = TrustRoots::from_der([&pki.root.der[..]]).with_signature_cache();
    let server = caching_server(&pki, &roots, &clock);
    assert_eq!(
        [count_verifications(&client, &server), count_verifications(&client, &server)],
        [(true, 3), (true, 1)]
    );
    // The same cache, and one list more.
    let lists = [pki.root.issue_crl(&[7], 2027)];
    let listed = roots.with_revocation_lists(lists.iter().map(Vec::as_slice)).unwrap();
    let revoking = caching_server(&pki, &listed, &clock);
    assert!(!count_verifications(&client, &revoking).0);
    assert!(!count_verifications(&client, &revoking).0, "the list is remembered, too");
    // The authority expires before the client.
    clock.set(WallTime::from_unix_secs(1_900_000_000));
    assert!(!count_verifications(&client, &server).0);
    clock.set(fixtures::WALL_TIME);
    assert!(count_verifications(&client, &server).0);
}

#[test]
fn a_cached_peer_is_refused_if_revoked_or_of_another_authority() {
    let pki = test_pki();
    let (both, clock) = (TlsVersionRange::default(), SharedWallClock::from_time(fixtures::WALL_TIME));
    let (client, _) = pki_configs(&pki, both, both, Vec::new()).unwrap();
    let roots = TrustRoots::from_der([&pki.root.der[..]]).with_signature_cache();
    let server = caching_server(&pki, &roots, &clock);
    assert_eq!(
        [count_verifications(&client, &server), count_verifications(&client, &server)],
        [(true, 3), (true, 1)]
    );
    let lists = [pki.below.issue_crl(&[8], 2027)];
    let listed = roots.with_revocation_lists(lists.iter().map(Vec::as_slice)).unwrap();
    assert!(!count_verifications(&client, &caching_server(&pki, &listed, &clock)).0);
    // An authority of the same name and root whose key did not sign it.
    let other = TestAuthority::new("Below", 7, Some(&pki.root));
    let forged = TlsCredentials::from_der([pki.client.leaf_certificate(), &other.der], pki.client.key_der());
    let forged = TestPki { client: forged, ..pki };
    let (client, _) = pki_configs(&forged, both, both, Vec::new()).unwrap();
    assert!(!count_verifications(&client, &server).0);
}
