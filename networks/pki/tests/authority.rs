//! An authority's certificates, lists and status answers, held against OpenSSL.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;
use usher_core::WallTime;
use usher_crypto::x509::Information;
use usher_pki::{Authority, InitOptions, KeyKind, Kind, PkiError, Reason, Request, ocsp};

/// A folder of the test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("usher-pki-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind in the system's folder for such files does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn now() -> WallTime {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    WallTime::from_unix_secs(since.as_secs())
}

fn options(name: &str, key: KeyKind) -> InitOptions {
    InitOptions { name: name.into(), key, days: 3650, now: now() }
}

fn request(name: &str, kind: Kind, key: KeyKind) -> Request {
    Request { name: name.into(), kind, names: Vec::new(), key, days: 90, ocsp: None, crl: None }
}

fn openssl(arguments: &[&str]) -> Output {
    Command::new("openssl").args(arguments).output().expect("package openssl is installed")
}

#[track_caller]
fn verified(arguments: &[&str], paths: &[&Path]) -> bool {
    let paths: Vec<&str> = paths.iter().map(|p| p.to_str().unwrap()).collect();
    let all: Vec<&str> = std::iter::once("verify").chain(arguments.iter().copied()).chain(paths).collect();
    openssl(&all).status.success()
}

#[test]
fn openssl_takes_certificates_of_every_kind_for_their_purpose() {
    let folder = Folder::new("kinds");
    for key in [KeyKind::EcdsaP256, KeyKind::Rsa2048, KeyKind::Ed25519] {
        let own = folder.0.join(format!("{key:?}"));
        let mut authority = Authority::init(&own, &options("Test Root", key)).unwrap();
        let mut server = request("radius.example.org", Kind::Server, key);
        server.names = vec!["192.0.2.1".into(), "aaa.example.org".into()];
        let server = authority.issue(&server, now()).unwrap();
        let client = authority.issue(&request("ann@example.org", Kind::Client, key), now()).unwrap();
        let root = authority.certificate();
        let root = root.to_str().unwrap();
        for (purpose, issued, want) in [
            ("sslserver", &server, true),
            ("sslclient", &client, true),
            // It shows it to those whom it asks by RadSec and Diameter, too.
            ("sslclient", &server, true),
            ("sslserver", &client, false),
        ] {
            let taken =
                verified(&["-x509_strict", "-purpose", purpose, "-CAfile", root], &[&issued.certificate]);
            assert_eq!(taken, want, "{key:?} {purpose}");
        }
        let said = Information::of_pem(&fs::read(&server.certificate).unwrap()).unwrap();
        assert_eq!(said.names, ["radius.example.org", "radius.example.org", "aaa.example.org"]);
        assert!(said.subject.contains("radius.example.org") && !said.authority);
        assert_eq!(said.not_after, server.not_after);
        let said = Information::of_pem(&fs::read(&client.certificate).unwrap()).unwrap();
        assert!(
            said.is_of("ann@example.org") && said.is_of("ann@EXAMPLE.org") && !said.is_of("bob@example.org")
        );
        assert!(!said.is_of("ANN@example.org") && !said.is_of("host/ann@example.org"));
        assert!(!said.is_of("ann") && !said.is_of("ann@other.example") && !said.is_of(""));
        assert!(Information::of_pem(&fs::read(root).unwrap()).unwrap().authority);
    }
}

/// RFC 5216 §5.2: as rfc822Name, and not as an e-mail address within the subject.
#[test]
fn a_name_in_nai_form_is_an_rfc822name() {
    let folder = Folder::new("nai");
    let mut authority = Authority::init(&folder.0, &options("Root", KeyKind::EcdsaP256)).unwrap();
    let ann = authority.issue(&request("ann@example.org", Kind::Client, KeyKind::EcdsaP256), now()).unwrap();
    let file = ann.certificate.to_str().unwrap();
    let said = openssl(&["x509", "-in", file, "-noout", "-subject", "-ext", "subjectAltName"]).stdout;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("email:ann@example.org") && !said.contains("emailAddress"), "{said}");
}

#[test]
fn a_key_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("modes");
    let mut authority = Authority::init(&folder.0, &options("Root", KeyKind::EcdsaP256)).unwrap();
    let issued = authority.issue(&request("ann", Kind::Client, KeyKind::EcdsaP256), now()).unwrap();
    for key in [folder.0.join("ca.key"), issued.key] {
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600, "{}", key.display());
    }
}

#[test]
fn what_was_revoked_is_in_the_list() {
    let folder = Folder::new("list");
    let mut authority = Authority::init(&folder.0, &options("Root", KeyKind::EcdsaP256)).unwrap();
    let ann = authority.issue(&request("ann", Kind::Client, KeyKind::EcdsaP256), now()).unwrap();
    let bob = authority.issue(&request("bob", Kind::Client, KeyKind::EcdsaP256), now()).unwrap();
    authority.revoke("ann", Reason::KeyCompromise, now()).unwrap();
    let (root, list) = (folder.0.join("ca.crt"), folder.0.join("ca.crl"));
    let flags =
        ["-crl_check", "-CRLfile", list.to_str().unwrap(), "-CAfile", root.to_str().unwrap(), "-x509_strict"];
    assert!(!verified(&flags, &[&ann.certificate]));
    assert!(verified(&flags, &[&bob.certificate]));
    // Another run of the program finds it as it was left.
    let mut again = Authority::open(&folder.0).unwrap();
    assert_eq!(again.entries().len(), 2);
    assert!(matches!(again.revoke("ann", Reason::Unspecified, now()), Err(PkiError::Revoked(_))));
    assert!(matches!(again.revoke("eve", Reason::Unspecified, now()), Err(PkiError::Unknown(_))));
}

#[test]
fn a_renewed_certificate_has_a_new_key_and_both_are_revoked_by_name() {
    let folder = Folder::new("renew");
    let mut authority = Authority::init(&folder.0, &options("Root", KeyKind::EcdsaP256)).unwrap();
    let ann = authority.issue(&request("ann", Kind::Client, KeyKind::EcdsaP256), now()).unwrap();
    let (key, first) = (fs::read(&ann.key).unwrap(), fs::read(&ann.certificate).unwrap());
    assert!(matches!(
        authority.issue(&request("ann", Kind::Client, KeyKind::EcdsaP256), now()),
        Err(PkiError::Taken(_))
    ));
    let later = authority.renew("ann", Some(365), now()).unwrap();
    assert!(later.not_after > ann.not_after);
    assert_ne!((fs::read(&later.key).unwrap(), fs::read(&later.certificate).unwrap()), (key, first));
    assert!(matches!(authority.renew("eve", None, now()), Err(PkiError::Unknown(_))));
    authority.revoke("ann", Reason::Superseded, now()).unwrap();
    assert!(authority.entries().iter().all(|e| e.revoked.is_some()));
}

#[test]
fn chains_of_two_three_and_four_are_sent_without_their_root() {
    let folder = Folder::new("chains");
    let mut authority = Authority::init(&folder.0.join("0"), &options("Root", KeyKind::EcdsaP256)).unwrap();
    let root = authority.certificate();
    for depth in 1..=3 {
        let name = format!("Intermediate {depth}");
        let below = folder.0.join(depth.to_string());
        authority = authority.subordinate(&below, &options(&name, KeyKind::EcdsaP256)).unwrap();
        let issued = authority.issue(&request("ann", Kind::Client, KeyKind::EcdsaP256), now()).unwrap();
        let chain = fs::read_to_string(&issued.certificate).unwrap();
        assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), depth + 1);
        let (file, root) = (issued.certificate.to_str().unwrap(), root.to_str().unwrap());
        assert!(verified(&["-CAfile", root, "-untrusted", file], &[&issued.certificate]), "depth {depth}");
    }
}

#[test]
fn nonsense_is_refused_and_changes_nothing() {
    let folder = Folder::new("nonsense");
    assert!(matches!(Authority::open(&folder.0), Err(PkiError::Missing(_))));
    let mut authority = Authority::init(&folder.0, &options("Root", KeyKind::EcdsaP256)).unwrap();
    assert!(matches!(
        Authority::init(&folder.0, &options("Other", KeyKind::EcdsaP256)),
        Err(PkiError::Exists(_))
    ));
    for name in ["", "../ca", "a/b", ".hidden", "a b"] {
        let refused = authority.issue(&request(name, Kind::Client, KeyKind::EcdsaP256), now());
        assert!(matches!(refused, Err(PkiError::Name(_))), "{name}");
    }
    let mut forever = request("ann", Kind::Client, KeyKind::EcdsaP256);
    forever.days = 0;
    assert!(matches!(authority.issue(&forever, now()), Err(PkiError::Days(0))));
    assert!(authority.entries().is_empty());
    assert!(Information::of_der(b"no certificate").is_err() && Information::of_pem(b"").is_err());
}

/// OpenSSL's own responder, ended with the test.
struct Responder(Child);

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn openssl_s_responder_says_what_holds() {
    let folder = Folder::new("ocsp");
    let mut authority = Authority::init(&folder.0, &options("Root", KeyKind::Rsa2048)).unwrap();
    let named = "http://ocsp.example.org".to_owned();
    let mut ann = request("ann", Kind::Client, KeyKind::EcdsaP256);
    ann.ocsp = Some(named.clone());
    let ann = authority.issue(&ann, now()).unwrap();
    let bob = authority.issue(&request("bob", Kind::Client, KeyKind::EcdsaP256), now()).unwrap();
    let eve = authority.issue(&request("eve", Kind::Client, KeyKind::EcdsaP256), now()).unwrap();
    assert_eq!(
        Information::of_pem(&fs::read(&ann.certificate).unwrap()).unwrap().ocsp,
        std::slice::from_ref(&named)
    );

    let line = |kind: &str, revoked: &str, n: usize, name: &str| {
        let serial = authority.entries()[n].serial.to_uppercase();
        format!("{kind}\t361231235959Z\t{revoked}\t{serial}\tunknown\t/CN={name}\n")
    };
    let index = folder.0.join("index.txt");
    fs::write(&index, line("V", "", 0, "ann") + &line("R", "260101000000Z", 1, "bob")).unwrap();
    let file = |name: &str| folder.0.join(name).to_str().unwrap().to_owned();
    // It takes a port that is free, and says which: `ACCEPT [::]:PORT PID=...`.
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
        let mut responder = Responder(responder);
        // A connection that asks nothing would block it for ever, so that it is not probed.
        let said = BufReader::new(responder.0.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        let address = said.strip_prefix("ACCEPT ").and_then(|rest| rest.split(' ').next());
        let port = address.and_then(|address| address.rsplit_once(':')?.1.parse::<u16>().ok());
        let port = port.unwrap_or_else(|| panic!("it says no port: {said}"));
        (responder, format!("http://127.0.0.1:{port}"))
    };
    let (_responder, url) = begin(&[]);

    let der = |path: &Path| openssl(&["x509", "-in", path.to_str().unwrap(), "-outform", "DER"]).stdout;
    let root = der(&folder.0.join("ca.crt"));
    let wait = Duration::from_secs(120);
    let ask_of = |certificate: &[u8], issuer: &[u8], url: &str, now: WallTime| {
        let nonce = Some([0x5a; ocsp::NONCE_LEN]);
        let answer = ocsp::Question { certificate, issuer, now, nonce, appointed: &|_| true }.ask(url, wait);
        answer.map(|answer| answer.status).map_err(|e| e.to_string())
    };
    let ask = |issued: &usher_pki::Issued, at| ask_of(&der(&issued.certificate), &root, &url, at);
    assert_eq!(ask(&ann, now()), Ok(ocsp::Status::Good));
    assert_eq!(ask(&bob, now()), Ok(ocsp::Status::Revoked));
    assert_eq!(ask(&eve, now()), Ok(ocsp::Status::Unknown));
    // What was fetched is shown to somebody else, who believes it by itself; of another certificate, or altered, it is nothing.
    let nonce = None;
    let question =
        |certificate| ocsp::Question { certificate, issuer: &root, now: now(), nonce, appointed: &|_| true };
    let (of_ann, of_bob) = (der(&ann.certificate), der(&bob.certificate));
    let (said, shown) = question(&of_ann).fetch(&url, wait).unwrap();
    assert_eq!((said.status, question(&of_ann).read(&shown).unwrap()), (ocsp::Status::Good, said));
    assert!(question(&of_bob).read(&shown).is_err());
    let mut altered = shown.clone();
    // Within what is signed.
    altered[60] ^= 1;
    assert!(question(&of_ann).read(&altered).is_err() && question(&of_ann).read(&shown[..40]).is_err());
    // An answer of another day is no answer, nor is one that somebody else signed.
    let tomorrow = WallTime::from_unix_secs(now().unix_secs() + 3 * 86_400);
    assert!(ask(&ann, tomorrow).unwrap_err().contains("not of now"));
    Authority::init(&folder.0.join("other"), &options("Root", KeyKind::Rsa2048)).unwrap();
    let other = der(&folder.0.join("other").join("ca.crt"));
    let forged = ask_of(&der(&ann.certificate), &other, &url, now()).unwrap_err();
    assert!(forged.contains("signed") || forged.contains("other certificates"), "{forged}");
    // A signature on a SHA-1 digest can be one that was made of something else.
    let (_weak, weak) = begin(&["-rmd", "sha1"]);
    let said = ask_of(&der(&ann.certificate), &root, &weak, now()).unwrap_err();
    assert!(said.contains("signed"), "{said}");
    // Nobody there: an error that says so, not a verdict.
    let dead = ask_of(&der(&ann.certificate), &root, "http://127.0.0.1:1", now()).unwrap_err();
    assert!(dead.contains("127.0.0.1:1"), "{dead}");
}

#[test]
fn a_servers_key_is_prepared_before_it_takes_its_name() {
    use std::sync::{Arc, Mutex};
    let folder = Folder::new("prepare");
    let mut authority = Authority::init(&folder.0, &options("Root", KeyKind::EcdsaP256)).unwrap();
    let issued = folder.0.join("issued");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (there, prepared) = (issued.join("radius.usher.test.key"), seen.clone());
    authority.prepare_server_keys(move |file| {
        let length = file.metadata()?.len();
        prepared.lock().unwrap().push((length, there.exists()));
        if prepared.lock().unwrap().len() == 1 { Err(std::io::Error::other("refused")) } else { Ok(()) }
    });
    let server = request("radius.usher.test", Kind::Server, KeyKind::EcdsaP256);
    assert!(authority.issue(&server, now()).is_err());
    assert!(!issued.join("radius.usher.test.key").exists(), "a key that could not be prepared has no name");
    let made = authority.issue(&server, now()).unwrap();
    authority.issue(&request("ann@usher.test", Kind::Client, KeyKind::EcdsaP256), now()).unwrap();
    let length = fs::metadata(&made.key).unwrap().len();
    assert_eq!(seen.lock().unwrap()[1], (length, false));
    assert_eq!(seen.lock().unwrap().len(), 2, "a user's key is not the server's");
}
