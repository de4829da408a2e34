//! Users whose certificates are revoked according to the issuer's OCSP responder.

use super::daemon::eapol_test;
use super::others::{create_certificates, tls_section};
use super::revoked::{HOME, TestServer};
use crate::place::{TEST_TIMEOUT, TempDir, bound_command};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// OpenSSL's responder with the authority's key, ended with the test.
pub(crate) struct OcspResponder {
    child: Child,
    port: u16,
}

impl OcspResponder {
    /// Starts it with the user as valid (`V`), as revoked (`R`), or unknown.
    pub(crate) fn start(pki: &TempDir, entry: &str) -> Self {
        let shown = Command::new("openssl")
            .args(["x509", "-noout", "-serial", "-in", "pki/issued/ann@hotel.example.crt"])
            .current_dir(pki.path("."))
            .output()
            .expect("openssl is installed");
        let shown = String::from_utf8(shown.stdout).unwrap();
        let serial = shown.trim().strip_prefix("serial=").unwrap();
        let at = if entry == "R" { "260101000000Z" } else { "" };
        let known = format!("{entry}\t361231235959Z\t{at}\t{serial}\tunknown\t/CN=ann\n");
        pki.write("index.txt", if entry.is_empty() { "" } else { &known });
        let mut child = bound_command("openssl")
            .args(["ocsp", "-index", "index.txt", "-port", "0", "-CA", "pki/ca.crt"])
            .args(["-rsigner", "pki/ca.crt", "-rkey", "pki/ca.key", "-ndays", "1"])
            .current_dir(pki.path("."))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed");
        // An idle connection would block it, so it is not probed.
        let said = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        // As "ACCEPT [::]:44933 PID=7": the system chose the port.
        let at = said.strip_prefix("ACCEPT ").and_then(|said| said.split(' ').next()).expect(&said);
        let port = at.rsplit(':').next().unwrap().parse().expect(&said);
        Self { child, port }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// Runs `act` with a responder until the responder answers in time, since its clients' timeout is short and the
/// machine may be busy. The returned log tells.
#[track_caller]
pub(crate) fn while_silent<T>(mut act: impl FnMut() -> (T, String)) -> (T, String) {
    let begun = Instant::now();
    loop {
        let (done, log) = act();
        if !log.contains("OCSP responder http://") {
            return (done, log);
        }
        assert!(begun.elapsed() < TEST_TIMEOUT, "the responder does not answer: {log}");
    }
}

impl Drop for OcspResponder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_revoked_user_is_refused_whatever_authority_it_shows() {
    let pki = create_certificates();
    let folder = pki.path("pki");
    // An authority of the same name that the user created.
    pki.run_usher(&["aaa", "cert", "--dir", "made", "init"]).with_code(0);
    let read = |name: &str| std::fs::read_to_string(pki.path(name)).unwrap();
    pki.write("both.crt", &(read("pki/issued/ann@hotel.example.crt") + &read("made/ca.crt")));
    for (policy, revoked) in [("soft", false), ("soft", true), ("hard", false), ("hard", true)] {
        let responder = OcspResponder::start(&pki, if revoked { "R" } else { "V" });
        let url = responder.url();
        // A response is cached, so the chain with the other authority comes first.
        let certificates = ["both.crt", "pki/issued/ann@hotel.example.crt"];
        let (admitted, log) = while_silent(|| {
            let server = TestServer::start(|ports| {
                let tls = tls_section(&folder, HOME);
                let more = format!(
                    "{tls}ocsp = \"{policy}\"\nocsp_url = \"{url}\"\n[users]\nstore = \"memory\"\n[[user]]\nname = \"ann@hotel.example\"\n"
                );
                ports.server_config(1, &more)
            });
            let admitted = certificates.map(|certificate| {
                let network = format!(
                    "eap=TLS\nidentity=\"ann@hotel.example\"\nca_cert=\"{}\"\nclient_cert=\"{}\"\nprivate_key=\"{}\"",
                    folder.join("ca.crt").display(),
                    pki.path(certificate).display(),
                    folder.join("issued/ann@hotel.example.key").display(),
                );
                eapol_test(&server.temp_dir, server.ports.auth, &network, &[])
            });
            (admitted, server.daemon.log())
        });
        assert_eq!(admitted, [!revoked; 2], "{policy}, {certificates:?}: {log}");
    }
}
