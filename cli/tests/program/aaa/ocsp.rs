//! Users whose certificates are revoked, and whose issuer says so when it is asked.

use super::daemon::{Ports, eapol_test};
use super::others::{certificates, tls};
use super::revoked::{HOME, Server};
use crate::place::Folder;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// OpenSSL's responder with the authority's key, ended with the test.
pub(crate) struct Responder(Child);

impl Responder {
    /// It knows the user as valid (`V`), as revoked (`R`), or not at all.
    pub(crate) fn start(pki: &Folder, port: u16, entry: &str) -> Self {
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
        let mut child = Command::new("openssl")
            .args(["ocsp", "-index", "index.txt", "-port", &port.to_string(), "-CA", "pki/ca.crt"])
            .args(["-rsigner", "pki/ca.crt", "-rkey", "pki/ca.key", "-ndays", "1"])
            .current_dir(pki.path("."))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed");
        // A connection that asks nothing would block it for ever, so that it is not probed.
        let said = BufReader::new(child.stdout.take().unwrap()).lines().next();
        assert!(said.unwrap().unwrap().starts_with("ACCEPT"));
        Self(child)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_revoked_user_is_refused_whatever_authority_it_shows() {
    let pki = certificates();
    let folder = pki.path("pki");
    // An authority of the same name that the user made.
    pki.usher(&["aaa", "cert", "--dir", "made", "init"]).with_code(0);
    let read = |name: &str| std::fs::read_to_string(pki.path(name)).unwrap();
    pki.write("both.crt", &(read("pki/issued/ann@hotel.example.crt") + &read("made/ca.crt")));
    for (policy, revoked) in [("soft", false), ("soft", true), ("hard", false), ("hard", true)] {
        let port = Ports::free().auth;
        let _responder = Responder::start(&pki, port, if revoked { "R" } else { "V" });
        let server = Server::start(|ports| {
            let tls = tls(&folder, HOME);
            let more = format!(
                "{tls}ocsp = \"{policy}\"\nocsp_url = \"http://127.0.0.1:{port}\"\n[users]\nstore = \"memory\"\n[[user]]\nname = \"ann@hotel.example\"\n"
            );
            ports.config(1, &more)
        });
        // An answer is remembered: the one with the other authority comes first.
        for certificate in ["both.crt", "pki/issued/ann@hotel.example.crt"] {
            let network = format!(
                "eap=TLS\nidentity=\"ann@hotel.example\"\nca_cert=\"{}\"\nclient_cert=\"{}\"\nprivate_key=\"{}\"",
                folder.join("ca.crt").display(),
                pki.path(certificate).display(),
                folder.join("issued/ann@hotel.example.key").display(),
            );
            let admitted = eapol_test(&server.place, server.ports.auth, &network, &[]);
            assert_eq!(admitted, !revoked, "{policy}, {certificate}: {}", server.daemon.log());
        }
    }
}
