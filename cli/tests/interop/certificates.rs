//! The repository's certificates as PEM files, in chains of 1 to 4 certificates (leaf and intermediates,
//! without the root).

use crate::place::{TempDir, run_program};
use std::path::Path;

fn certificate_folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors/certs")
}

fn der_to_pem(der: &str, kind: &str) -> String {
    let path = certificate_folder().join(der);
    let (right, text) = run_program(
        &certificate_folder(),
        "openssl",
        &[kind, "-inform", "DER", "-in", path.to_str().unwrap()],
        "",
    );
    assert!(right, "{text}");
    let begin = text.find("-----BEGIN").unwrap();
    let end = text.rfind("-----").unwrap() + 5;
    text[begin..end].to_owned() + "\n"
}

/// Writes `root.pem`, and for `role` (`server`, `client`) `ROLE.pem` and `ROLE.key` of a chain of `length`.
pub(crate) fn write_chain(place: &TempDir, role: &str, length: u8) {
    let mut chain = der_to_pem(&format!("{role}{length}.der"), "x509");
    for above in (1..length).rev() {
        chain.push_str(&der_to_pem(&format!("ca{above}.der"), "x509"));
    }
    place.write_private(&format!("{role}.pem"), &chain);
    place.write_private(&format!("{role}.key"), &der_to_pem(&format!("{role}{length}.key.der"), "rsa"));
    place.write_private("root.pem", &der_to_pem("root.der", "x509"));
}

/// Writes `ca.pem`, a new certification authority, and for each host `NAME.pem` and `NAME.key`, issued by it.
pub(crate) fn write_host_certificates(place: &TempDir, names: &[&str]) {
    let make = |name: &str, extensions: &str, above: &[&str]| {
        let text = format!(
            "[req]\ndistinguished_name = name\nx509_extensions = extensions\nprompt = no\n[name]\nCN = {name}\n\
             [extensions]\n{extensions}\n"
        );
        place.write_private("openssl.cnf", &text);
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        let own = ["req", "-x509", "-config", "openssl.cnf", "-nodes", "-days", "2", "-newkey", "ec"];
        let more = ["-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", &key, "-out", &certificate];
        let (right, said) = run_program(&place.path(""), "openssl", &[&own[..], &more, above].concat(), "");
        assert!(right, "{said}");
    };
    make("ca", "basicConstraints = critical, CA:TRUE\nkeyUsage = keyCertSign", &[]);
    for name in names {
        let extensions = format!("basicConstraints = CA:FALSE\nsubjectAltName = DNS:{name}");
        make(name, &extensions, &["-CA", "ca.pem", "-CAkey", "ca.key"]);
    }
}
