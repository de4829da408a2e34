//! Manual pages, and the Debian package.

use crate::place::{Place, USHER};
use std::path::Path;
use std::process::Command;

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::new();
    place.usher(&["man", "man1"]).with_code(0);
    for page in
        ["usher.1", "usher-study-run.1", "usher-aaa-serve.1", "usher-aaa-cert-issue.1", "usher-load-eap.1"]
    {
        let text = std::fs::read_to_string(place.path("man1").join(page)).unwrap();
        assert!(text.contains(".TH") && text.contains("SYNOPSIS"), "{page}");
    }
}

#[test]
fn the_package_has_the_program_its_pages_its_completions_and_its_service() {
    let place = Place::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = place.path("out");
    let made = Command::new(root.join("scripts/deb")).arg(USHER).arg(&out).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let package = String::from_utf8(made.stdout).unwrap();
    let unpacked = place.path("root");
    let run = |program: &str, arguments: &[&str]| {
        let said = Command::new(program).args(arguments).output().unwrap();
        assert!(said.status.success(), "{program}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    run("dpkg-deb", &["-x", package.trim(), unpacked.to_str().unwrap()]);
    let control = run("dpkg-deb", &["-f", package.trim()]);
    assert!(control.contains("Package: usher") && control.contains("Version: 0.1.0"), "{control}");
    for file in [
        "lib/systemd/system/usher-aaa.service",
        "usr/share/man/man1/usher-aaa-serve.1.gz",
        "usr/share/bash-completion/completions/usher",
        "usr/share/zsh/vendor-completions/_usher",
        "usr/share/fish/vendor_completions.d/usher.fish",
        "usr/share/usher/aaa-server.schema.json",
        "usr/share/doc/usher/copyright",
    ] {
        assert!(unpacked.join(file).is_file(), "{file}");
    }
    let said = run(unpacked.join("usr/bin/usher").to_str().unwrap(), &["--version"]);
    assert!(said.starts_with("usher "), "{said}");
}

#[test]
fn an_authority_is_made_issues_renews_and_takes_back() {
    let place = Place::new();
    let cert = |arguments: &[&str]| {
        let all: Vec<&str> = ["aaa", "cert", "--dir", "pki"].iter().chain(arguments).copied().collect();
        place.usher(&all)
    };
    assert!(cert(&["list"]).with_code(1).err.contains("usher aaa cert init"));
    let said = cert(&["init", "--server", "radius.example.org"]).with_code(0);
    assert!(
        said.out.contains("pki/issued/radius.example.org.crt") && said.err.contains("pki/ca.crt"),
        "{said:?}"
    );
    cert(&["issue", "ann@example.org"]).with_code(0);
    assert!(cert(&["issue", "ann@example.org"]).with_code(1).err.contains("renew"));
    cert(&["renew", "ann@example.org", "--days", "10"]).with_code(0);
    assert!(cert(&["renew", "--expiring", "30"]).with_code(0).out.contains("ann@example.org"));
    cert(&["revoke", "ann@example.org", "--reason", "key-compromise"]).with_code(0);
    let listed = cert(&["list"]).with_code(0).out;
    assert_eq!(listed.matches("revoked").count(), 3, "{listed}");
    let shown = cert(&["show", "pki/issued/radius.example.org.crt"]).with_code(0).out;
    assert!(shown.contains("CN=radius.example.org") && shown.contains("days left"), "{shown}");
}
