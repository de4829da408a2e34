//! Users with revoked certificates, and responders that help them or do not answer.

use super::*;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use usher_aaa_config::tls::leaf_certificate_has_name;
use usher_crypto::tls::SharedWallClock;
use usher_pki::{AuthorityInitOptions, CertificateAuthority, CertificateKind, CertificateRequest, KeyKind};
use x509_parser::pem::Pem;

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Timeout of the test, far longer than needed even on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// An authority in the test's own directory, with a server's certificate and a user's.
struct TestPki {
    folder: PathBuf,
    now: WallTime,
    serial: String,
}

impl TestPki {
    fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("usher-status-{}-{n}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let (key, now) = (KeyKind::EcdsaP256, usher_service::setup::wall_time());
        let options = AuthorityInitOptions { name: name.to_owned(), key, days: 9, now };
        let mut authority = CertificateAuthority::init(&folder, &options).unwrap();
        for (name, kind) in [("server", CertificateKind::Server), ("ann", CertificateKind::Client)] {
            let names = Vec::new();
            let request =
                CertificateRequest { name: name.into(), kind, names, key, days: 9, ocsp: None, crl: None };
            authority.issue(&request, now).unwrap();
        }
        let serial = authority.entries().last().unwrap().serial.to_uppercase();
        Self { folder, now, serial }
    }

    /// Returns the certificates of a file.
    fn certificate_der(&self, file: &str) -> Vec<u8> {
        let text = fs::read(self.folder.join(file)).unwrap();
        Pem::iter_from_buffer(&text).flatten().map(|pem| pem.contents).next().unwrap()
    }

    fn user_certificate(&self) -> Vec<u8> {
        self.certificate_der("issued/ann.crt")
    }

    fn certificate_status(&self, policy: &str, url: &str) -> CertificateCheckConfig {
        self.status_at(self.now, policy, &format!("ocsp_url = \"{url}\"\n"))
    }

    /// Returns a time at which certificates issued meanwhile are valid.
    fn time_soon(&self) -> WallTime {
        self.now + usher_core::Duration::from_secs(60)
    }

    /// Creates the checker at a time, with further lines of the table.
    fn status_at(&self, now: WallTime, policy: &str, more: &str) -> CertificateCheckConfig {
        self.status_with(now, policy, more, Vec::new())
    }

    /// Creates the checker with fetched lists.
    fn status_with(
        &self,
        now: WallTime,
        policy: &str,
        more: &str,
        fetched: Vec<(String, Vec<u8>)>,
    ) -> CertificateCheckConfig {
        let folder = self.folder.display();
        let text = format!(
            "[tls]\ncertificate = \"{folder}/issued/server.crt\"\nkey = \"{folder}/issued/server.key\"\n\
             ca = \"{folder}/ca.crt\"\nocsp = \"{policy}\"\n{more}"
        );
        let mut loaded =
            usher_aaa_config::parse("t", &text, None, &usher_config::disk::DiskEnvironment).unwrap();
        loaded.tls.as_mut().unwrap().fetched = fetched;
        let tls = usher_aaa_config::tls::load_tls(&loaded, &SharedWallClock::from_time(now), None)
            .unwrap()
            .unwrap();
        CertificateCheckConfig { timeout: LONG, ..CertificateCheckConfig::from_config(&loaded, Some(&tls)) }
    }

    fn run_openssl(&self, arguments: &str) {
        let done = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(&self.folder)
            .output()
            .expect("package openssl is installed");
        assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Issues a certificate with these extensions for the user's key as file NAME.crt. Returns its serial number.
    fn issue_certificate(&self, name: &str, serial: &str, extensions: &str) {
        fs::write(self.folder.join("extensions"), extensions).unwrap();
        self.run_openssl(&format!("req -new -key issued/ann.key -subj /CN={name} -out {name}.csr"));
        self.run_openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -days 9 -set_serial 0x{serial} -extfile extensions \
             -out {name}.crt"
        ));
    }

    /// Writes a revocation list of a day with this entry. Returns the configuration line that names it.
    fn write_list(&self, entries: &str) -> String {
        fs::write(self.folder.join("listed.txt"), entries).unwrap();
        let config = "[ca]\ndefault_ca = d\n[d]\ndatabase = listed.txt\ncrlnumber = number.txt\n";
        fs::write(self.folder.join("list.conf"), config).unwrap();
        fs::write(self.folder.join("number.txt"), "01\n").unwrap();
        self.run_openssl(
            "ca -config list.conf -gencrl -cert ca.crt -keyfile ca.key -md sha256 -crldays 1 -out list.crl",
        );
        format!("crl = [\"{}/list.crl\"]\n", self.folder.display())
    }

    fn revoked_entry(&self) -> String {
        format!("R\t361231235959Z\t260101000000Z\t{}\tunknown\t/CN=ann\n", self.serial)
    }

    fn valid_entry(&self) -> String {
        format!("V\t361231235959Z\t\t{}\tunknown\t/CN=ann\n", self.serial)
    }
}

impl CertificateCheckConfig {
    fn is_good(&self, chain: &[Vec<u8>]) -> bool {
        self.check_chain(chain) == CertificateVerdict::Good
    }
}

impl Drop for TestPki {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).unwrap();
    }
}

/// Returns the response of an OpenSSL responder with the key of a directory's authority. `entries` is its database.
fn signed_by(folder: &Path, question: &[u8], entries: &str) -> Vec<u8> {
    signed_with(folder, ("ca.crt", "ca.key"), question, entries)
}

/// Returns the response of a responder with this certificate and key.
fn signed_with(folder: &Path, (certificate, key): (&str, &str), question: &[u8], entries: &str) -> Vec<u8> {
    let path = |name: &str| folder.join(name);
    fs::write(path("question"), question).unwrap();
    fs::write(path("index.txt"), entries).unwrap();
    let arguments = |list: &[(&str, &str)]| -> Vec<String> {
        list.iter().flat_map(|(flag, file)| [flag.to_string(), path(file).display().to_string()]).collect()
    };
    let done = Command::new("openssl")
        .args(["ocsp", "-ndays", "1"])
        .args(arguments(&[("-index", "index.txt"), ("-CA", "ca.crt"), ("-rsigner", certificate)]))
        .args(arguments(&[("-rkey", key), ("-reqin", "question"), ("-respout", "answer")]))
        .output()
        .expect("package openssl is installed");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    fs::read(path("answer")).unwrap()
}

/// Reads the body of a request.
fn read_body(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut octet = [0];
    while !all.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut octet).unwrap();
        all.push(octet[0]);
    }
    let head = String::from_utf8(all).unwrap().to_lowercase();
    let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    body
}

/// Serves clients one after another until the test's process ends. Returns the URL.
fn start_responder(serve: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    url
}

fn send_response(stream: &mut TcpStream, answer: &[u8]) {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/ocsp-response\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.len()
    );
    stream.write_all(&[head.as_bytes(), answer].concat()).unwrap();
}

/// Returns the digest of an authority's key, by which a request names it.
fn key_hash(certificate: &Path) -> Vec<u8> {
    let said = Command::new("openssl")
        .args(["x509", "-noout", "-ocspid", "-in"])
        .arg(certificate)
        .output()
        .expect("package openssl is installed");
    let said = String::from_utf8(said.stdout).unwrap();
    let hash = said.lines().find_map(|l| l.trim().strip_prefix("Public key OCSP hash: ")).unwrap();
    (0..hash.len()).step_by(2).map(|i| u8::from_str_radix(&hash[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn a_namesake_authority_does_not_admit_a_revoked_user() {
    let (real, made) = (TestPki::new("Test"), TestPki::new("Test"));
    // The real authority's responder is right. For the user's own authority, a responder answers that all is good.
    let hash = key_hash(&real.folder.join("ca.crt"));
    let (of_real, of_made) =
        ((real.folder.clone(), real.revoked_entry()), (made.folder.clone(), real.valid_entry()));
    let url = start_responder(move |mut stream| {
        let question = read_body(&mut stream);
        let asked_real = question.windows(hash.len()).any(|w| w == hash);
        let (folder, entries) = if asked_real { &of_real } else { &of_made };
        send_response(&mut stream, &signed_by(folder, &question, entries));
    });
    let ann = real.user_certificate();
    for policy in ["soft", "hard"] {
        for chain in [
            vec![ann.clone()],
            vec![ann.clone(), real.certificate_der("ca.crt")],
            vec![ann.clone(), made.certificate_der("ca.crt")],
            vec![ann.clone(), made.certificate_der("ca.crt"), real.certificate_der("ca.crt")],
        ] {
            assert!(
                !real.certificate_status(policy, &url).is_good(&chain),
                "{policy}, {} shown",
                chain.len()
            );
        }
        // The responder of an untrusted authority is not contacted.
        assert!(
            !real
                .certificate_status(policy, "http://127.0.0.1:1")
                .is_good(&[made.user_certificate(), made.certificate_der("ca.crt")])
        );
    }
}

#[test]
fn what_another_authority_signs_is_no_answer() {
    let (real, made) = (TestPki::new("Test"), TestPki::new("Test"));
    let (folder, entries) = (made.folder.clone(), real.valid_entry());
    let hash = key_hash(&made.folder.join("ca.crt"));
    let real_hash = key_hash(&real.folder.join("ca.crt"));
    let url = start_responder(move |mut stream| {
        // It answers for its own authority whatever the request.
        let mut question = read_body(&mut stream);
        let at = question.windows(20).position(|w| w == real_hash).expect("the real authority is asked for");
        question[at..at + 20].copy_from_slice(&hash);
        send_response(&mut stream, &signed_by(&folder, &question, &entries));
    });
    let chain = [real.user_certificate(), made.certificate_der("ca.crt")];
    assert!(!real.certificate_status("hard", &url).is_good(&chain));
    let clients = real.certificate_status("hard", &url);
    let path = clients.server_config().unwrap().verified_client_path(&chain).unwrap();
    assert_eq!(path, [real.user_certificate(), real.certificate_der("ca.crt")]);
    let said = clients.query_status(clients.server_config().unwrap(), &path, real.now).unwrap_err();
    assert!(said.why.contains("signed") && said.fault == OcspFailureKind::Unbelievable, "{said:?}");
}

#[test]
fn a_revoked_user_is_refused_and_another_taken() {
    let pki = TestPki::new("Test");
    let folder = pki.folder.clone();
    let entries = Arc::new(Mutex::new(String::new()));
    let known = entries.clone();
    let url = start_responder(move |mut stream| {
        let question = read_body(&mut stream);
        send_response(&mut stream, &signed_by(&folder, &question, &lock_mutex(&known)));
    });
    let chain = [pki.user_certificate()];
    *lock_mutex(&entries) = pki.revoked_entry();
    let revoked = CertificateVerdict::Status(OcspStatusFault::Revoked);
    assert_eq!(
        ["soft", "hard"].map(|policy| pki.certificate_status(policy, &url).check_chain(&chain)),
        [revoked; 2]
    );
    *lock_mutex(&entries) = pki.valid_entry();
    assert!(
        pki.certificate_status("soft", &url).is_good(&chain)
            && pki.certificate_status("hard", &url).is_good(&chain)
    );
    // The responder does not know the certificate.
    lock_mutex(&entries).clear();
    let unknown = CertificateVerdict::Status(OcspStatusFault::Unknown);
    assert!(pki.certificate_status("soft", &url).is_good(&chain));
    assert_eq!(pki.certificate_status("hard", &url).check_chain(&chain), unknown);
}

#[test]
fn a_responder_that_says_nothing_is_not_asked_at_every_login() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    // It closes each connection.
    let url = start_responder(move |stream| {
        count.fetch_add(1, Ordering::SeqCst);
        drop(stream);
    });
    let pki = TestPki::new("Test");
    let status = pki.certificate_status("hard", &url);
    let clients = status.server_config().unwrap();
    let path = clients.verified_client_path(&[pki.user_certificate()]).unwrap();
    let asked = || asked.load(Ordering::SeqCst);
    let after =
        |seconds| status.query_status(clients, &path, pki.now + usher_core::Duration::from_secs(seconds));
    assert!(after(0).is_err());
    let once = asked();
    assert!(once > 0);
    assert!(after(9).is_err());
    assert_eq!(asked(), once, "it was asked a moment ago");
    assert!(after(11).is_err());
    assert_eq!(asked(), 2 * once);
    let silent = CertificateVerdict::Status(OcspStatusFault::Silent);
    assert_eq!(status.check_chain(&[pki.user_certificate()]), silent, "nobody says that it holds");
}

#[test]
fn users_behind_a_silent_responder_wait_for_it_once() {
    // It receives a request and does not answer until the test disconnects, long before any timeout.
    let (asked, questions) = channel();
    let url = start_responder(move |stream| drop(asked.send(stream)));
    let pki = TestPki::new("Test");
    let status = CertificateCheckConfig { timeout: 2 * LONG, ..pki.certificate_status("soft", &url) };
    let clients = status.server_config().unwrap();
    // Other users have other certificates. The failure is not cached by certificate.
    let path = clients.verified_client_path(&[pki.user_certificate()]).unwrap();
    let users = Mutex::new(0..24);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(_user) = { lock_mutex(&users).next() } {
                    assert!(status.query_status(clients, &path, pki.now).is_err());
                }
            });
        }
        // Four requests, since the failure is not yet cached.
        drop(next_questions(&questions, 4));
    });
    assert!(questions.try_recv().is_err(), "the other twenty do not ask");
    // After its lifetime one request is sent; the others do not wait for it.
    let later = pki.now + usher_core::Duration::from_secs(20);
    let (done, others) = channel();
    std::thread::scope(|scope| {
        for _ in 0..24 {
            let done = done.clone();
            let (status, path) = (&status, &path);
            scope.spawn(move || {
                assert!(status.query_status(clients, path, later).is_err());
                done.send(()).unwrap();
            });
        }
        let held = next_questions(&questions, 1);
        for answered in 0..23 {
            assert!(others.recv_timeout(LONG).is_ok(), "{answered} of 23 did not wait");
        }
        assert!(others.try_recv().is_err(), "one waits");
        drop(held);
    });
    assert!(others.try_recv().is_ok() && questions.try_recv().is_err());
}

/// Receives this number of requests, which stay unanswered while they are held.
fn next_questions(questions: &Receiver<TcpStream>, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| questions.recv_timeout(LONG).expect("a question")).collect()
}

#[test]
fn a_name_is_of_the_first_certificate() {
    let pki = TestPki::new("Test");
    assert!(leaf_certificate_has_name(&[pki.user_certificate(), pki.certificate_der("ca.crt")], b"ann"));
    assert!(
        !leaf_certificate_has_name(&[pki.certificate_der("ca.crt"), pki.user_certificate()], b"ann")
            && !leaf_certificate_has_name(&[], b"ann")
    );
}

/// RFC 6960 §A.1: OCSP over HTTP. A certificate may name several responders, and other access methods.
#[test]
fn the_next_responder_is_asked_where_one_is_silent() {
    let pki = TestPki::new("Test");
    let folder = pki.folder.clone();
    let url = start_responder(move |mut stream| {
        let question = read_body(&mut stream);
        let entry = "R\t361231235959Z\t260101000000Z\t77\tunknown\t/CN=bob\n";
        send_response(&mut stream, &signed_by(&folder, &question, entry));
    });
    let silent = start_responder(drop);
    pki.issue_certificate(
        "bob",
        "77",
        &format!(
            "extendedKeyUsage = clientAuth\n\
             authorityInfoAccess = OCSP;URI:ldap://127.0.0.1/cn=x,OCSP;URI:{silent},OCSP;URI:{url}\n"
        ),
    );
    let status = pki.status_at(pki.time_soon(), "soft", "");
    assert_eq!(
        status.check_chain(&[pki.certificate_der("bob.crt")]),
        CertificateVerdict::Status(OcspStatusFault::Revoked)
    );
}

#[test]
fn a_responder_that_is_on_a_list_appoints_nothing() {
    let pki = TestPki::new("Test");
    pki.issue_certificate("responder", "99", "extendedKeyUsage = OCSPSigning\n");
    let (folder, entries) = (pki.folder.clone(), pki.valid_entry());
    let url = start_responder(move |mut stream| {
        let question = read_body(&mut stream);
        send_response(
            &mut stream,
            &signed_with(&folder, ("responder.crt", "issued/ann.key"), &question, &entries),
        );
    });
    let judge = |more: &str| {
        let status = pki.status_at(pki.time_soon(), "hard", &format!("ocsp_url = \"{url}\"\n{more}"));
        status.check_chain(&[pki.user_certificate()])
    };
    let revoked = |serial: &str| format!("R\t361231235959Z\t260101000000Z\t{serial}\tunknown\t/CN=x\n");
    assert_eq!(judge(&pki.write_list(&revoked("98"))), CertificateVerdict::Good, "another is on it");
    assert_eq!(
        judge(&pki.write_list(&revoked("99"))),
        CertificateVerdict::Status(OcspStatusFault::Unbelievable)
    );
}

#[test]
fn a_list_that_has_expired_lets_nobody_in_by_an_earlier_session() {
    let pki = TestPki::new("Test");
    let list = pki.write_list("");
    let after =
        |hours: u64| pki.status_at(pki.now + usher_core::Duration::from_secs(3600 * hours), "off", &list);
    assert_eq!(after(1).recheck_chain(&[pki.user_certificate()]), CertificateVerdict::Good);
    assert!(matches!(after(25).recheck_chain(&[pki.user_certificate()]), CertificateVerdict::Distrusted(_)));
    // A fetched list, and no file.
    let fetched = vec![("http://a/".to_owned(), fs::read(pki.folder.join("list.crl")).unwrap())];
    let after = |hours: u64| {
        let now = pki.now + usher_core::Duration::from_secs(3600 * hours);
        pki.status_with(now, "off", "crl_url = [\"http://a/\"]\n", fetched.clone())
    };
    assert_eq!(after(1).recheck_chain(&[pki.user_certificate()]), CertificateVerdict::Good);
    assert!(matches!(after(25).recheck_chain(&[pki.user_certificate()]), CertificateVerdict::Distrusted(_)));
    // Without lists only the certificate can expire, and its session ends with it.
    let without = pki.status_at(pki.now, "off", "");
    assert_eq!(without.recheck_chain(&[pki.certificate_der("issued/server.crt")]), CertificateVerdict::Good);
}

#[test]
fn an_ocsp_answer_survives_a_new_list_without_revocations() {
    let pki = TestPki::new("Test");
    let asked = Arc::new(AtomicU32::new(0));
    let (folder, entries, count) = (pki.folder.clone(), pki.valid_entry(), asked.clone());
    let url = start_responder(move |mut stream| {
        count.fetch_add(1, Ordering::SeqCst);
        let question = read_body(&mut stream);
        send_response(&mut stream, &signed_by(&folder, &question, &entries));
    });
    let before = pki.certificate_status("hard", &url);
    assert!(before.is_good(&[pki.user_certificate()]) && asked.load(Ordering::SeqCst) == 1);
    let list = pki.write_list("");
    let after = || pki.status_at(pki.now, "hard", &format!("ocsp_url = \"{url}\"\n{list}"));
    assert!(after().with_ocsp_cache_of(&before).is_good(&[pki.user_certificate()]));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert!(after().is_good(&[pki.user_certificate()]));
    assert_eq!(asked.load(Ordering::SeqCst), 2, "it is the same answer, asked for again");
}
