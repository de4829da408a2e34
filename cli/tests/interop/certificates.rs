//! The repository's certificates as PEM files, in chains of 1 to 4 (leaf and intermediates; the root is not sent).

use crate::place::{Place, run};
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
pub(crate) fn chain(place: &Place, role: &str, length: u8) {
    let mut chain = pem(&format!("{role}{length}.der"), "x509");
    for above in (1..length).rev() {
        chain.push_str(&pem(&format!("ca{above}.der"), "x509"));
    }
    place.write(&format!("{role}.pem"), &chain);
    place.write(&format!("{role}.key"), &pem(&format!("{role}{length}.key.der"), "rsa"));
    place.write("root.pem", &pem("root.der", "x509"));
}
