//! Certificates made for the test: revocation lists, and keys on elliptic curves.

use super::*;
use crate::fault::CertificateFault;
use crate::x509::{RevocationList, certificate_name};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use usher_core::WallTime;

/// An authority, below another or by itself.
#[derive(Clone)]
struct Authority {
    der: Vec<u8>,
    issuer: std::sync::Arc<Issuer<'static, KeyPair>>,
}

impl Authority {
    fn new(name: &str, serial: u64, above: Option<&Self>) -> Self {
        Self::until(2036, name, serial, above)
    }

    fn until(year: i32, name: &str, serial: u64, above: Option<&Self>) -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = params(name, serial);
        params.not_after = date_time_ymd(year, 1, 1);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = match above {
            Some(above) => params.signed_by(&key, &above.issuer).unwrap(),
            None => params.self_signed(&key).unwrap(),
        };
        Self { der: certificate.der().to_vec(), issuer: Issuer::new(params, key).into() }
    }

    fn leaf(&self, name: &str, serial: u64, usage: ExtendedKeyUsagePurpose) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = params(name, serial);
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().to_vec(), key.serialize_der())
    }

    /// A list of these numbers that is to be replaced in this year.
    fn list(&self, revoked: &[u64], until: i32) -> Vec<u8> {
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

fn params(name: &str, serial: u64) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from(serial));
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2036, 1, 1);
    params
}

/// Root, authority below it (number 7), client (number 8) and server.
struct Pki {
    root: Authority,
    below: Authority,
    client: Credentials,
    server: Credentials,
}

fn pki() -> Pki {
    let root = Authority::new("Root", 1, None);
    let below = Authority::new("Below", 7, Some(&root));
    let (client, client_key) = below.leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
    let (server, server_key) = below.leaf("server.test", 9, ExtendedKeyUsagePurpose::ServerAuth);
    let client = Credentials::from_der([&client[..], &below.der], &client_key);
    let server = Credentials::from_der([&server[..], &below.der], &server_key);
    Pki { root, below, client, server }
}

fn configs(
    pki: &Pki,
    client_versions: VersionRange,
    server_versions: VersionRange,
    crls: Vec<Vec<u8>>,
) -> Result<(ClientConfig, ServerConfig), TlsError> {
    let roots = || Roots::from_der([&pki.root.der[..]]);
    let listed = roots().with_revocation_lists(crls.iter().map(Vec::as_slice))?;
    let clock = || WallClock::at(fixtures::WALL_TIME);
    let client = ClientConfig::new(ClientOptions {
        versions: client_versions,
        credentials: Some(pki.client.clone()),
        roots: roots(),
        server_name: Some("server.test".into()),
        resumption: None,
        clock: clock(),
        key_log: None,
    })?;
    let server = ServerConfig::new(ServerOptions {
        versions: server_versions,
        credentials: pki.server.clone(),
        client_roots: Some(listed),
        resumption: None,
        clock: clock(),
        key_log: None,
    })?;
    Ok((client, server))
}

/// A client whose certificate ends on 2026-07-02, a day after [`fixtures::WALL_TIME`], long before all others.
pub(super) fn short_lived_client(
    version: Version,
    resumption: Option<Resumption>,
    clock: &WallClock,
) -> (ClientConfig, ServerConfig) {
    let root = Authority::new("Root", 1, None);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut params = params("client", 2);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_after = date_time_ymd(2026, 7, 2);
    let certificate = params.signed_by(&key, &root.issuer).unwrap();
    let setup = Setup {
        resumption,
        clock: clock.clone(),
        client: Some(Credentials::from_der([&certificate.der()[..]], &key.serialize_der())),
        client_roots: Roots::from_der([&root.der[..]]),
        ..Setup::new(version, 2)
    };
    setup.configs()
}

/// An authority that nobody's certificate ends below.
pub(super) fn other_root() -> Roots {
    Roots::from_der([&Authority::new("Other", 1, None).der[..]])
}

/// Why a server refuses a client, if it does.
fn refused((client, server): &(ClientConfig, ServerConfig)) -> Option<TlsFault> {
    let (mut client, mut server) = (Client::new(client).unwrap(), Server::new(server).unwrap());
    run(&mut client, &mut server);
    server.error().map(TlsError::fault)
}

/// The version agreed on, if the server let the client in.
fn agreed((client, server): &(ClientConfig, ServerConfig)) -> Option<Version> {
    let (mut client, mut server) = (Client::new(client).unwrap(), Server::new(server).unwrap());
    run(&mut client, &mut server);
    (server.error().is_none() && !server.is_handshaking()).then(|| server.version()).flatten()
}

#[test]
fn the_highest_common_version_is_agreed_on() {
    let pki = pki();
    let (v12, v13, both) = (Version::Tls12.into(), Version::Tls13.into(), VersionRange::default());
    for (client, server, expected) in [
        (both, both, Some(Version::Tls13)),
        (both, v12, Some(Version::Tls12)),
        (both, v13, Some(Version::Tls13)),
        (v13, both, Some(Version::Tls13)),
        (v12, v13, None),
        (v13, v12, None),
    ] {
        let configs = configs(&pki, client, server, Vec::new()).unwrap();
        assert_eq!(agreed(&configs), expected, "{client:?} {server:?}");
        let fault = expected.is_none().then_some(TlsFault::NoCommonVersion);
        assert_eq!(refused(&configs), fault, "{client:?} {server:?}");
    }
    let reversed = VersionRange { min: Version::Tls13, max: Version::Tls12 };
    let error = configs(&pki, both, reversed, Vec::new()).unwrap_err().to_string();
    assert!(error.contains("versions"), "{error}");
}

#[test]
fn a_client_on_a_list_is_refused_and_so_is_one_whose_list_is_out_of_date() {
    let pki = pki();
    for version in [Version::Tls12, Version::Tls13] {
        // With TLS 1.2 a single version has no suite for these keys.
        let client = if version == Version::Tls12 { VersionRange::default() } else { version.into() };
        let revoked = Some(CertificateFault::Revoked);
        for (what, crls, fault) in [
            ("no list", vec![], None),
            ("nobody on it", vec![pki.below.list(&[], 2027)], None),
            ("others on it", vec![pki.below.list(&[5, 6, 7], 2027)], None),
            ("the root's list alone", vec![pki.root.list(&[8], 2027)], None),
            ("the client", vec![pki.below.list(&[8], 2027)], revoked),
            ("the authority", vec![pki.below.list(&[], 2027), pki.root.list(&[7], 2027)], revoked),
            ("out of date", vec![pki.below.list(&[], 2026)], Some(CertificateFault::ListExpired)),
        ] {
            let configs = configs(&pki, client, version.into(), crls).unwrap();
            assert_eq!(agreed(&configs), fault.is_none().then_some(version), "{what}");
            assert_eq!(refused(&configs), fault.map(TlsFault::Certificate), "{what}");
        }
    }
}

#[test]
fn a_list_is_of_its_issuer_and_of_its_time() {
    let pki = pki();
    let list = RevocationList::of_der(&pki.below.list(&[8], 2027)).unwrap();
    assert!(list.is_signed_by([&pki.root.der[..], &pki.below.der]));
    assert!(!list.is_signed_by([&pki.root.der[..]]));
    // Another authority may have the same name, but not the same key.
    let other = Authority::new("Below", 7, Some(&pki.root));
    assert!(!list.is_signed_by([&other.der[..]]));
    // From 2026-02-02, or five minutes before by a clock that is late, until 2027-03-01.
    for (secs, of_now) in
        [(1_769_990_099, false), (1_769_990_100, true), (1_803_859_199, true), (1_803_859_200, false)]
    {
        assert_eq!(list.is_of_now(WallTime::from_unix_secs(secs)), of_now, "{secs}");
    }
}

#[test]
fn what_is_on_a_list_is_named_as_certificates_are() {
    let pki = pki();
    let names: Vec<_> =
        RevocationList::of_der(&pki.below.list(&[8, 1 << 63], 2027)).unwrap().certificates().collect();
    let leaf = |of: &Authority, serial| {
        let (der, _) = of.leaf("client", serial, ExtendedKeyUsagePurpose::ClientAuth);
        certificate_name(&der).unwrap()
    };
    // Numbers with their highest bit set have an octet before that.
    assert_eq!(names, [leaf(&pki.below, 8), leaf(&pki.below, 1 << 63)]);
    assert!(!names.contains(&leaf(&pki.below, 9)) && !names.contains(&leaf(&pki.root, 8)));
    assert!(certificate_name(&[1, 2, 3]).is_err());
}

#[test]
fn what_is_no_list_is_refused_when_configured() {
    let error = configs(&pki(), VersionRange::default(), VersionRange::default(), vec![vec![1, 2, 3]])
        .unwrap_err()
        .to_string();
    assert!(error.contains("revocation lists"), "{error}");
}

#[test]
fn a_server_on_a_list_is_refused() {
    let pki = pki();
    let (client, server) =
        configs(&pki, VersionRange::default(), VersionRange::default(), Vec::new()).unwrap();
    assert!(agreed(&(client, server.clone())).is_some());
    for (what, lists, good) in [
        ("others on it", vec![pki.below.list(&[8], 2027)], true),
        ("the server", vec![pki.below.list(&[9], 2027)], false),
        ("the authority", vec![pki.root.list(&[7], 2027)], false),
        ("out of date", vec![pki.below.list(&[], 2026)], false),
    ] {
        let roots = Roots::from_der([&pki.root.der[..]])
            .with_revocation_lists(lists.iter().map(Vec::as_slice))
            .unwrap();
        let client = ClientConfig::new(ClientOptions {
            versions: VersionRange::default(),
            credentials: Some(pki.client.clone()),
            roots,
            server_name: None,
            resumption: None,
            clock: WallClock::at(fixtures::WALL_TIME),
            key_log: None,
        })
        .unwrap();
        let chain = [pki.server.leaf(), &pki.below.der];
        assert_eq!(client.trusts(&chain).is_ok(), good, "{what}");
        assert_eq!(agreed(&(client, server.clone())).is_some(), good, "{what}");
    }
}

#[test]
fn a_path_is_the_one_that_is_verified_whatever_else_is_shown() {
    let pki = pki();
    let (client, server) =
        configs(&pki, VersionRange::default(), VersionRange::default(), Vec::new()).unwrap();
    let (leaf, below, root) = (pki.client.leaf(), &pki.below.der[..], &pki.root.der[..]);
    // One of the same name with another key, below itself and below another root of the same name.
    let alone = Authority::new("Below", 7, None);
    let other = Authority::new("Below", 7, Some(&Authority::new("Root", 1, None)));
    for chain in [
        vec![leaf, below],
        vec![leaf, below, root],
        vec![leaf, &alone.der, below],
        vec![leaf, &other.der, &alone.der, root, below],
    ] {
        assert_eq!(server.client_path(&chain).unwrap(), [leaf, below, root]);
    }
    for chain in [vec![leaf], vec![leaf, &alone.der], vec![leaf, &other.der, root], vec![]] {
        assert!(server.client_path(&chain).is_err());
    }
    assert!(server.client_path(&[pki.server.leaf(), below]).is_err(), "it is for servers");
    assert!(client.trusts(&[leaf, below]).is_err() && client.trusts(&[pki.server.leaf(), below]).is_ok());
    let (responder, _) = pki.below.leaf("responder", 10, ExtendedKeyUsagePurpose::OcspSigning);
    assert_eq!(server.path_for_any_purpose(&[&responder[..], below]).unwrap(), [&responder[..], below, root]);
    assert!(server.client_path(&[&responder[..], below]).is_err());
    assert!(server.path_for_any_purpose(&[&responder[..], &alone.der]).is_err());
    let (_, anonymous) = Setup::new(Version::Tls13, 1).configs();
    assert!(anonymous.client_path(&[leaf, below]).is_err(), "another root");
}

/// Why a server refuses a client that shows this chain beside `leaf`, if it does, and how many signatures it has verified.
fn refusal_of(pki: &Pki, (leaf, key): &(Vec<u8>, Vec<u8>), shown: &[&[u8]]) -> (Option<TlsFault>, u32) {
    let both = VersionRange::default();
    let client = Credentials::from_der([&leaf[..]].into_iter().chain(shown.iter().copied()), key);
    let pki = Pki { root: pki.root.clone(), below: pki.below.clone(), client, server: pki.server.clone() };
    let (client, server) = configs(&pki, both, both, Vec::new()).unwrap();
    let (mut client, mut server) = (Client::new(&client).unwrap(), Server::new(&server).unwrap());
    run(&mut client, &mut server);
    (server.error().map(TlsError::fault), server.work().verify)
}

#[test]
fn a_path_of_six_authorities_is_taken_in_any_order_and_of_seven_refused() {
    let pki = pki();
    let mut authorities = vec![pki.below.clone()];
    for n in 2..=7 {
        let above = authorities.last().unwrap();
        authorities.push(Authority::new(&format!("Below {n}"), n, Some(above)));
    }
    for (depth, order, taken) in [(6, 1, true), (6, 5, true), (7, 1, false)] {
        let leaf = authorities[depth - 1].leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
        let mut shown: Vec<&[u8]> = authorities[..depth].iter().map(|one| &one.der[..]).collect();
        shown.rotate_left(order);
        let (fault, verified) = refusal_of(&pki, &leaf, &shown);
        let too_many = TlsFault::Certificate(CertificateFault::Constraint);
        assert_eq!(fault, (!taken).then_some(too_many), "{depth} {order}");
        // Each certificate's, once, and the handshake's.
        assert_eq!(verified, if taken { 8 } else { 0 }, "{depth} {order}");
    }
}

/// What a stranger and a user show costs few signatures, however many ways its certificates name each other.
#[test]
fn certificates_that_name_each_other_in_many_ways_cost_few_signatures() {
    let pki = pki();
    let barred = Some(TlsFault::Certificate(CertificateFault::Constraint));
    // A stranger's that all say they are the root's, of keys of their own.
    let strangers: Vec<Authority> = (0..6).map(|n| Authority::new("Root", 100 + n, None)).collect();
    let shown: Vec<&[u8]> = strangers.iter().map(|one| &one.der[..]).collect();
    let leaf = strangers[0].leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
    // Each by the root's key, and the leaf.
    let wrong = Some(TlsFault::Certificate(CertificateFault::Signature));
    assert_eq!(refusal_of(&pki, &leaf, &shown), (wrong, 7));
    // Below an authority's certificate that everybody can have.
    let strangers: Vec<Authority> = (0..5).map(|n| Authority::new("Below", 100 + n, None)).collect();
    let shown: Vec<&[u8]> = strangers.iter().map(|one| &one.der[..]).chain([&pki.below.der[..]]).collect();
    let leaf = strangers[0].leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
    let (fault, verified) = refusal_of(&pki, &leaf, &shown);
    assert!(fault.is_some() && verified <= 7, "{fault:?} {verified}");
    // A user who signs authorities with the key of its own certificate.
    let (own, key) = pki.below.leaf("user", 9, ExtendedKeyUsagePurpose::ClientAuth);
    let signing = KeyPair::try_from(&key[..]).unwrap();
    let user = Authority { der: own, issuer: Issuer::new(params("user", 9), signing).into() };
    let made: Vec<Authority> = (0..4).map(|n| Authority::new("user", 100 + n, Some(&user))).collect();
    let shown: Vec<&[u8]> =
        made.iter().map(|one| &one.der[..]).chain([&user.der[..], &pki.below.der]).collect();
    let leaf = made[0].leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
    // The user's own, by the authority's key, and the authority's.
    assert_eq!(refusal_of(&pki, &leaf, &shown), (barred, 2));
}

#[test]
fn who_may_not_sign_certificates_is_no_authority() {
    let pki = pki();
    let barred = Some(TlsFault::Certificate(CertificateFault::Constraint));
    for (is_ca, usages, taken) in [
        (IsCa::Ca(BasicConstraints::Unconstrained), vec![], true),
        (IsCa::Ca(BasicConstraints::Unconstrained), vec![KeyUsagePurpose::KeyCertSign], true),
        (IsCa::Ca(BasicConstraints::Unconstrained), vec![KeyUsagePurpose::CrlSign], false),
        (IsCa::ExplicitNoCa, vec![KeyUsagePurpose::KeyCertSign], false),
        (IsCa::NoCa, vec![], false),
    ] {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = params("Between", 11);
        (params.is_ca, params.key_usages) = (is_ca, usages);
        let der = params.signed_by(&key, &pki.below.issuer).unwrap().der().to_vec();
        let between = Authority { der, issuer: Issuer::new(params, key).into() };
        let leaf = between.leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
        let (fault, _) = refusal_of(&pki, &leaf, &[&between.der, &pki.below.der]);
        assert_eq!(fault, if taken { None } else { barred });
    }
}

/// A server that remembers what it has verified of certificates.
fn remembering(pki: &Pki, roots: &Roots, clock: &WallClock) -> ServerConfig {
    ServerConfig::new(ServerOptions {
        versions: VersionRange::default(),
        credentials: pki.server.clone(),
        client_roots: Some(roots.clone()),
        resumption: None,
        clock: clock.clone(),
        key_log: None,
    })
    .unwrap()
}

/// Whether a server lets the client in, and how many signatures it verified.
fn verified(client: &ClientConfig, server: &ServerConfig) -> (bool, u32) {
    let (mut client, mut server) = (Client::new(client).unwrap(), Server::new(server).unwrap());
    run(&mut client, &mut server);
    (server.error().is_none() && !server.is_handshaking(), server.work().verify)
}

#[test]
fn a_signature_on_a_certificate_is_verified_once_where_that_is_remembered() {
    let pki = pki();
    let both = VersionRange::default();
    let (client, forgetful) = configs(&pki, both, both, Vec::new()).unwrap();
    // The handshake's, the client's certificate's and the authority's.
    assert_eq!([verified(&client, &forgetful), verified(&client, &forgetful)], [(true, 3); 2]);
    let clock = WallClock::at(fixtures::WALL_TIME);
    let roots = Roots::from_der([&pki.root.der[..]]);
    let server = remembering(&pki, &roots.clone().remembering(), &clock);
    assert_eq!(verified(&client, &server), (true, 3));
    assert_eq!([verified(&client, &server), verified(&client, &server)], [(true, 1); 2]);
    // Two lists more.
    let lists = [pki.root.list(&[5], 2027), pki.below.list(&[6], 2027)];
    let listed = roots.with_revocation_lists(lists.iter().map(Vec::as_slice)).unwrap();
    let server = remembering(&pki, &listed.clone().remembering(), &clock);
    assert_eq!([verified(&client, &server), verified(&client, &server)], [(true, 5), (true, 1)]);
    // Another configuration knows nothing of that.
    assert_eq!(verified(&client, &remembering(&pki, &listed.remembering(), &clock)), (true, 5));
}

#[test]
fn an_authority_that_is_remembered_is_refused_when_it_is_revoked_or_expired() {
    let root = Authority::new("Root", 1, None);
    let below = Authority::until(2030, "Below", 7, Some(&root));
    let (client, client_key) = below.leaf("client", 8, ExtendedKeyUsagePurpose::ClientAuth);
    let (server, server_key) = below.leaf("server.test", 9, ExtendedKeyUsagePurpose::ServerAuth);
    let client = Credentials::from_der([&client[..], &below.der], &client_key);
    let server = Credentials::from_der([&server[..], &below.der], &server_key);
    let pki = Pki { root, below, client, server };
    let (both, clock) = (VersionRange::default(), WallClock::at(fixtures::WALL_TIME));
    let (client, _) = configs(&pki, both, both, Vec::new()).unwrap();
    let roots = Roots::from_der([&pki.root.der[..]]).remembering();
    let server = remembering(&pki, &roots, &clock);
    assert_eq!([verified(&client, &server), verified(&client, &server)], [(true, 3), (true, 1)]);
    // The same memory, and a list more.
    let lists = [pki.root.list(&[7], 2027)];
    let listed = roots.with_revocation_lists(lists.iter().map(Vec::as_slice)).unwrap();
    let revoking = remembering(&pki, &listed, &clock);
    assert!(!verified(&client, &revoking).0);
    assert!(!verified(&client, &revoking).0, "the list is remembered, too");
    // The authority's end comes before the client's.
    clock.set(WallTime::from_unix_secs(1_900_000_000));
    assert!(!verified(&client, &server).0);
    clock.set(fixtures::WALL_TIME);
    assert!(verified(&client, &server).0);
}

#[test]
fn a_peer_that_is_remembered_is_refused_when_it_is_revoked_or_is_another() {
    let pki = pki();
    let (both, clock) = (VersionRange::default(), WallClock::at(fixtures::WALL_TIME));
    let (client, _) = configs(&pki, both, both, Vec::new()).unwrap();
    let roots = Roots::from_der([&pki.root.der[..]]).remembering();
    let server = remembering(&pki, &roots, &clock);
    assert_eq!([verified(&client, &server), verified(&client, &server)], [(true, 3), (true, 1)]);
    let lists = [pki.below.list(&[8], 2027)];
    let listed = roots.with_revocation_lists(lists.iter().map(Vec::as_slice)).unwrap();
    assert!(!verified(&client, &remembering(&pki, &listed, &clock)).0);
    // An authority of the same name, of the same root, whose key did not sign it.
    let other = Authority::new("Below", 7, Some(&pki.root));
    let forged = Credentials::from_der([pki.client.leaf(), &other.der], pki.client.key_der());
    let forged = Pki { client: forged, ..pki };
    let (client, _) = configs(&forged, both, both, Vec::new()).unwrap();
    assert!(!verified(&client, &server).0);
}
