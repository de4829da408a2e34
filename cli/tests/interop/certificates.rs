//! The repository's certificates as PEM files, in chains of 1 to 4 (leaf and intermediates; the root is not sent).

use crate::place::{Folder, run};
use std::path::Path;

fn source() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors/certs")
}

fn pem(der: &str, kind: &str) -> String {
    let path = source().join(der);
    let (right, text) =
        run(&source(), "openssl", &[kind, "-inform", "DER", "-in", path.to_str().unwrap()], "");
    assert!(right, "{text}");
    let begin = text.find("-----BEGIN").unwrap();
    let end = text.rfind("-----").unwrap() + 5;
    text[begin..end].to_owned() + "\n"
}

/// Writes `root.pem`, and for `role` (`server`, `client`) `ROLE.pem` and `ROLE.key` of a chain of `length`.
pub(crate) fn chain(place: &Folder, role: &str, length: u8) {
    let mut chain = pem(&format!("{role}{length}.der"), "x509");
    for above in (1..length).rev() {
        chain.push_str(&pem(&format!("ca{above}.der"), "x509"));
    }
    place.write(&format!("{role}.pem"), &chain);
    place.write(&format!("{role}.key"), &pem(&format!("{role}{length}.key.der"), "rsa"));
    place.write("root.pem", &pem("root.der", "x509"));
}

/// Writes `ca.pem`, an authority of this place's own, and for each of these hosts `NAME.pem` and `NAME.key` below it.
pub(crate) fn hosts(place: &Folder, names: &[&str]) {
    let make = |name: &str, extensions: &str, above: &[&str]| {
        let text = format!(
            "[req]\ndistinguished_name = name\nx509_extensions = extensions\nprompt = no\n[name]\nCN = {name}\n\
             [extensions]\n{extensions}\n"
        );
        place.write("openssl.cnf", &text);
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        let own = ["req", "-x509", "-config", "openssl.cnf", "-nodes", "-days", "2", "-newkey", "ec"];
        let more = ["-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", &key, "-out", &certificate];
        let (right, said) = run(&place.path(""), "openssl", &[&own[..], &more, above].concat(), "");
        assert!(right, "{said}");
    };
    make("ca", "basicConstraints = critical, CA:TRUE\nkeyUsage = keyCertSign", &[]);
    for name in names {
        let extensions = format!("basicConstraints = CA:FALSE\nsubjectAltName = DNS:{name}");
        make(name, &extensions, &["-CA", "ca.pem", "-CAkey", "ca.key"]);
    }
}
