//! Checks an authority's certificates, lists and OCSP responses with OpenSSL.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;
use usher_core::WallTime;
use usher_crypto::x509::CertificateInfo;
use usher_pki::{
    AuthorityInitOptions, CertificateAuthority, CertificateKind, CertificateRequest, KeyKind, PkiError,
    RevokeReason, ocsp,
};

/// A folder for one test, removed at its end.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("usher-pki-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // Leftovers in the system's temporary folder do no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn current_time() -> WallTime {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    WallTime::from_unix_secs(since.as_secs())
}

fn init_options(name: &str, key: KeyKind) -> AuthorityInitOptions {
    AuthorityInitOptions { name: name.into(), key, days: 3650, now: current_time() }
}

fn certificate_request(name: &str, kind: CertificateKind, key: KeyKind) -> CertificateRequest {
    CertificateRequest { name: name.into(), kind, names: Vec::new(), key, days: 90, ocsp: None, crl: None }
}

fn run_openssl(arguments: &[&str]) -> Output {
    Command::new("openssl").args(arguments).output().expect("package openssl is installed")
}

#[track_caller]
fn openssl_verifies(arguments: &[&str], paths: &[&Path]) -> bool {
    let paths: Vec<&str> = paths.iter().map(|p| p.to_str().unwrap()).collect();
    let all: Vec<&str> = std::iter::once("verify").chain(arguments.iter().copied()).chain(paths).collect();
    run_openssl(&all).status.success()
}

#[test]
fn openssl_takes_certificates_of_every_kind_for_their_purpose() {
    let folder = TempDir::new("kinds");
    for key in [KeyKind::EcdsaP256, KeyKind::Rsa2048, KeyKind::Ed25519] {
        let own = folder.0.join(format!("{key:?}"));
        let mut authority = CertificateAuthority::init(&own, &init_options("Test Root", key)).unwrap();
        let mut server = certificate_request("radius.example.org", CertificateKind::Server, key);
        server.names = vec!["192.0.2.1".into(), "aaa.example.org".into()];
        let server = authority.issue(&server, current_time()).unwrap();
        let client = authority
            .issue(&certificate_request("ann@example.org", CertificateKind::Client, key), current_time())
            .unwrap();
        let root = authority.certificate_path();
        let root = root.to_str().unwrap();
        for (purpose, issued, want) in [
            ("sslserver", &server, true),
            ("sslclient", &client, true),
            // A server also uses it as a RadSec or Diameter client.
            ("sslclient", &server, true),
            ("sslserver", &client, false),
        ] {
            let taken = openssl_verifies(
                &["-x509_strict", "-purpose", purpose, "-CAfile", root],
                &[&issued.certificate],
            );
            assert_eq!(taken, want, "{key:?} {purpose}");
        }
        let said =
            CertificateInfo::from_first_pem_certificate(&fs::read(&server.certificate).unwrap()).unwrap();
        assert_eq!(said.names, ["radius.example.org", "radius.example.org", "aaa.example.org"]);
        assert!(said.subject.contains("radius.example.org") && !said.authority);
        assert_eq!(said.not_after, server.not_after);
        let said =
            CertificateInfo::from_first_pem_certificate(&fs::read(&client.certificate).unwrap()).unwrap();
        assert!(
            said.is_of("ann@example.org") && said.is_of("ann@EXAMPLE.org") && !said.is_of("bob@example.org")
        );
        assert!(!said.is_of("ANN@example.org") && !said.is_of("host/ann@example.org"));
        assert!(!said.is_of("ann") && !said.is_of("ann@other.example") && !said.is_of(""));
        assert!(CertificateInfo::from_first_pem_certificate(&fs::read(root).unwrap()).unwrap().authority);
    }
}

/// RFC 5216 §5.2: as rfc822Name, and not as an e-mail address in the subject.
#[test]
fn a_name_in_nai_form_is_an_rfc822name() {
    let folder = TempDir::new("nai");
    let mut authority =
        CertificateAuthority::init(&folder.0, &init_options("Root", KeyKind::EcdsaP256)).unwrap();
    let ann = authority
        .issue(
            &certificate_request("ann@example.org", CertificateKind::Client, KeyKind::EcdsaP256),
            current_time(),
        )
        .unwrap();
    let file = ann.certificate.to_str().unwrap();
    let said = run_openssl(&["x509", "-in", file, "-noout", "-subject", "-ext", "subjectAltName"]).stdout;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("email:ann@example.org") && !said.contains("emailAddress"), "{said}");
}

#[test]
fn a_key_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new("modes");
    let mut authority =
        CertificateAuthority::init(&folder.0, &init_options("Root", KeyKind::EcdsaP256)).unwrap();
    let issued = authority
        .issue(&certificate_request("ann", CertificateKind::Client, KeyKind::EcdsaP256), current_time())
        .unwrap();
    for key in [folder.0.join("ca.key"), issued.key] {
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600, "{}", key.display());
    }
}

#[test]
fn what_was_revoked_is_in_the_list() {
    let folder = TempDir::new("list");
    let mut authority =
        CertificateAuthority::init(&folder.0, &init_options("Root", KeyKind::EcdsaP256)).unwrap();
    let ann = authority
        .issue(&certificate_request("ann", CertificateKind::Client, KeyKind::EcdsaP256), current_time())
        .unwrap();
    let bob = authority
        .issue(&certificate_request("bob", CertificateKind::Client, KeyKind::EcdsaP256), current_time())
        .unwrap();
    authority.revoke("ann", RevokeReason::KeyCompromise, current_time()).unwrap();
    let (root, list) = (folder.0.join("ca.crt"), folder.0.join("ca.crl"));
    let flags =
        ["-crl_check", "-CRLfile", list.to_str().unwrap(), "-CAfile", root.to_str().unwrap(), "-x509_strict"];
    assert!(!openssl_verifies(&flags, &[&ann.certificate]));
    assert!(openssl_verifies(&flags, &[&bob.certificate]));
    // A second run finds the same state.
    let mut again = CertificateAuthority::open(&folder.0).unwrap();
    assert_eq!(again.entries().len(), 2);
    assert!(matches!(
        again.revoke("ann", RevokeReason::Unspecified, current_time()),
        Err(PkiError::Revoked(_))
    ));
    assert!(matches!(
        again.revoke("eve", RevokeReason::Unspecified, current_time()),
        Err(PkiError::Unknown(_))
    ));
}

#[test]
fn a_renewed_certificate_has_a_new_key_and_a_name_revokes_both() {
    let folder = TempDir::new("renew");
    let mut authority =
        CertificateAuthority::init(&folder.0, &init_options("Root", KeyKind::EcdsaP256)).unwrap();
    let ann = authority
        .issue(&certificate_request("ann", CertificateKind::Client, KeyKind::EcdsaP256), current_time())
        .unwrap();
    let (key, first) = (fs::read(&ann.key).unwrap(), fs::read(&ann.certificate).unwrap());
    assert!(matches!(
        authority
            .issue(&certificate_request("ann", CertificateKind::Client, KeyKind::EcdsaP256), current_time()),
        Err(PkiError::NameTaken(_))
    ));
    let later = authority.renew("ann", Some(365), current_time()).unwrap();
    assert!(later.not_after > ann.not_after);
    assert_ne!((fs::read(&later.key).unwrap(), fs::read(&later.certificate).unwrap()), (key, first));
    assert!(matches!(authority.renew("eve", None, current_time()), Err(PkiError::Unknown(_))));
    authority.revoke("ann", RevokeReason::Superseded, current_time()).unwrap();
    assert!(authority.entries().iter().all(|e| e.revoked.is_some()));
}

#[test]
fn chains_of_two_three_and_four_are_sent_without_their_root() {
    let folder = TempDir::new("chains");
    let mut authority =
        CertificateAuthority::init(&folder.0.join("0"), &init_options("Root", KeyKind::EcdsaP256)).unwrap();
    let root = authority.certificate_path();
    for depth in 1..=3 {
        let name = format!("Intermediate {depth}");
        let below = folder.0.join(depth.to_string());
        authority = authority.create_subordinate(&below, &init_options(&name, KeyKind::EcdsaP256)).unwrap();
        let issued = authority
            .issue(&certificate_request("ann", CertificateKind::Client, KeyKind::EcdsaP256), current_time())
            .unwrap();
        let chain = fs::read_to_string(&issued.certificate).unwrap();
        assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), depth + 1);
        let (file, root) = (issued.certificate.to_str().unwrap(), root.to_str().unwrap());
        assert!(
            openssl_verifies(&["-CAfile", root, "-untrusted", file], &[&issued.certificate]),
            "depth {depth}"
        );
    }
}

#[test]
fn nonsense_is_refused_and_changes_nothing() {
    let folder = TempDir::new("nonsense");
    assert!(matches!(CertificateAuthority::open(&folder.0), Err(PkiError::Missing(_))));
    let mut authority =
        CertificateAuthority::init(&folder.0, &init_options("Root", KeyKind::EcdsaP256)).unwrap();
    assert!(matches!(
        CertificateAuthority::init(&folder.0, &init_options("Other", KeyKind::EcdsaP256)),
        Err(PkiError::Exists(_))
    ));
    for name in ["", "../ca", "a/b", ".hidden", "a b"] {
        let refused = authority
            .issue(&certificate_request(name, CertificateKind::Client, KeyKind::EcdsaP256), current_time());
        assert!(matches!(refused, Err(PkiError::Name(_))), "{name}");
    }
    let mut forever = certificate_request("ann", CertificateKind::Client, KeyKind::EcdsaP256);
    forever.days = 0;
    assert!(matches!(authority.issue(&forever, current_time()), Err(PkiError::Days(0))));
    assert!(authority.entries().is_empty());
    assert!(
        CertificateInfo::of_der(b"no certificate").is_err()
            && CertificateInfo::from_first_pem_certificate(b"").is_err()
    );
}

/// OpenSSL's own responder, which ends with the test.
struct OpensslResponder(Child);

impl Drop for OpensslResponder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn openssl_s_responder_says_what_holds() {
    let folder = TempDir::new("ocsp");
    let mut authority =
        CertificateAuthority::init(&folder.0, &init_options("Root", KeyKind::Rsa2048)).unwrap();
    let named = "http://ocsp.example.org".to_owned();
    let mut ann = certificate_request("ann", CertificateKind::Client, KeyKind::EcdsaP256);
    ann.ocsp = Some(named.clone());
    let ann = authority.issue(&ann, current_time()).unwrap();
    let bob = authority
        .issue(&certificate_request("bob", CertificateKind::Client, KeyKind::EcdsaP256), current_time())
        .unwrap();
    let eve = authority
        .issue(&certificate_request("eve", CertificateKind::Client, KeyKind::EcdsaP256), current_time())
        .unwrap();
    assert_eq!(
        CertificateInfo::from_first_pem_certificate(&fs::read(&ann.certificate).unwrap()).unwrap().ocsp,
        std::slice::from_ref(&named)
    );

    let line = |kind: &str, revoked: &str, n: usize, name: &str| {
        let serial = authority.entries()[n].serial.to_uppercase();
        format!("{kind}\t361231235959Z\t{revoked}\t{serial}\tunknown\t/CN={name}\n")
    };
    let index = folder.0.join("index.txt");
    fs::write(&index, line("V", "", 0, "ann") + &line("R", "260101000000Z", 1, "bob")).unwrap();
    let file = |name: &str| folder.0.join(name).to_str().unwrap().to_owned();
    // It chooses a free port and prints it: `ACCEPT [::]:PORT PID=...`.
    let begin = |more: &[&str]| {
        let responder = Command::new("openssl")
            .args(["ocsp", "-index", index.to_str().unwrap(), "-port", "0"])
            .args(["-CA", &file("ca.crt"), "-rsigner", &file("ca.crt"), "-rkey", &file("ca.key")])
            .args(["-ndays", "1"])
            .args(more)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("package openssl is installed");
        let mut responder = OpensslResponder(responder);
        // Do not probe the port: a connection without a request would block the responder forever.
        let said = BufReader::new(responder.0.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        let address = said.strip_prefix("ACCEPT ").and_then(|rest| rest.split(' ').next());
        let port = address.and_then(|address| address.rsplit_once(':')?.1.parse::<u16>().ok());
        let port = port.unwrap_or_else(|| panic!("it says no port: {said}"));
        (responder, format!("http://127.0.0.1:{port}"))
    };
    let (_responder, url) = begin(&[]);

    let der = |path: &Path| run_openssl(&["x509", "-in", path.to_str().unwrap(), "-outform", "DER"]).stdout;
    let root = der(&folder.0.join("ca.crt"));
    let wait = Duration::from_secs(120);
    let ask_of = |certificate: &[u8], issuer: &[u8], url: &str, now: WallTime| {
        let nonce = Some([0x5a; ocsp::NONCE_LEN]);
        let answer =
            ocsp::OcspQuery { certificate, issuer, now, nonce, appointed: &|_| true }.send_query(url, wait);
        answer.map(|answer| answer.status).map_err(|e| e.to_string())
    };
    let ask = |issued: &usher_pki::IssuedCertificate, at| ask_of(&der(&issued.certificate), &root, &url, at);
    assert_eq!(ask(&ann, current_time()), Ok(ocsp::OcspStatus::Good));
    assert_eq!(ask(&bob, current_time()), Ok(ocsp::OcspStatus::Revoked));
    assert_eq!(ask(&eve, current_time()), Ok(ocsp::OcspStatus::Unknown));
    // Another party can verify the fetched response by itself. With another certificate, or altered, it is invalid.
    let nonce = None;
    let question = |certificate| ocsp::OcspQuery {
        certificate,
        issuer: &root,
        now: current_time(),
        nonce,
        appointed: &|_| true,
    };
    let (of_ann, of_bob) = (der(&ann.certificate), der(&bob.certificate));
    let (said, shown) = question(&of_ann).fetch_response(&url, wait).unwrap();
    assert_eq!(
        (said.status, question(&of_ann).read_response(&shown).unwrap()),
        (ocsp::OcspStatus::Good, said)
    );
    assert!(question(&of_bob).read_response(&shown).is_err());
    let mut altered = shown.clone();
    // Within the signed part.
    altered[60] ^= 1;
    assert!(
        question(&of_ann).read_response(&altered).is_err()
            && question(&of_ann).read_response(&shown[..40]).is_err()
    );
    // A response of another day is invalid, and so is one with another signer.
    let tomorrow = WallTime::from_unix_secs(current_time().unix_secs() + 3 * 86_400);
    assert!(ask(&ann, tomorrow).unwrap_err().contains("expired or is not valid yet"));
    CertificateAuthority::init(&folder.0.join("other"), &init_options("Root", KeyKind::Rsa2048)).unwrap();
    let other = der(&folder.0.join("other").join("ca.crt"));
    let forged = ask_of(&der(&ann.certificate), &other, &url, current_time()).unwrap_err();
    assert!(forged.contains("signed") || forged.contains("other certificates"), "{forged}");
    // A signature on a SHA-1 digest could belong to other content.
    let (_weak, weak) = begin(&["-rmd", "sha1"]);
    let said = ask_of(&der(&ann.certificate), &root, &weak, current_time()).unwrap_err();
    assert!(said.contains("signed"), "{said}");
    // Without a responder, the result is an error about that, not a verdict.
    let dead = ask_of(&der(&ann.certificate), &root, "http://127.0.0.1:1", current_time()).unwrap_err();
    assert!(dead.contains("127.0.0.1:1"), "{dead}");
}

#[test]
fn a_servers_key_is_prepared_before_it_takes_its_name() {
    use std::sync::{Arc, Mutex};
    let folder = TempDir::new("prepare");
    let mut authority =
        CertificateAuthority::init(&folder.0, &init_options("Root", KeyKind::EcdsaP256)).unwrap();
    let issued = folder.0.join("issued");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (there, prepared) = (issued.join("radius.usher.test.key"), seen.clone());
    authority.set_server_key_preparation(move |file| {
        let length = file.metadata()?.len();
        prepared.lock().unwrap().push((length, there.exists()));
        if prepared.lock().unwrap().len() == 1 { Err(std::io::Error::other("refused")) } else { Ok(()) }
    });
    let server = certificate_request("radius.usher.test", CertificateKind::Server, KeyKind::EcdsaP256);
    assert!(authority.issue(&server, current_time()).is_err());
    assert!(!issued.join("radius.usher.test.key").exists(), "a key that could not be prepared has no name");
    let made = authority.issue(&server, current_time()).unwrap();
    authority
        .issue(
            &certificate_request("ann@usher.test", CertificateKind::Client, KeyKind::EcdsaP256),
            current_time(),
        )
        .unwrap();
    let length = fs::metadata(&made.key).unwrap().len();
    assert_eq!(seen.lock().unwrap()[1], (length, false));
    assert_eq!(seen.lock().unwrap().len(), 2, "a user's key is not the server's");
}
