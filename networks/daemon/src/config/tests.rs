//! Faults of whole files.

use super::*;
use std::os::unix::fs::PermissionsExt;

fn faults(text: &str) -> Vec<String> {
    match parse("aaa.toml", text, None) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.to_string().lines().map(str::to_owned).collect(),
    }
}

/// Each line expected begins a line that was said, and there are no others.
#[track_caller]
fn said(text: &str, expected: &[&str]) {
    let found = faults(text);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

#[test]
fn an_empty_file_is_right() {
    let loaded = parse("aaa.toml", "", None).unwrap();
    assert_eq!(loaded.file.listen.auth.len(), 2);
    assert!(loaded.file.listen.auth.iter().all(|a| a.ip().is_loopback()));
}

#[test]
fn every_fault_is_said_with_its_line() {
    said(
        "shards = 0\nshrads = 2\n\n[[client]]\nname = \"a\"\nprefix = \"10.0.0.0/40\"\nsecret = \"0123456789\"\n\n\
         [listen]\nauth = [\"1.2.3.4\"]\n",
        &[
            "aaa.toml:2:1: unknown key \"shrads\"; did you mean \"shards\"?",
            "aaa.toml:6:10: \"10.0.0.0/40\" is no network",
            "aaa.toml:10:9: ",
        ],
    );
    said(
        "shards = 0\n[[client]]\nname = \"a\"\nprefix = \"::1\"\n[[client]]\nname = \"a\"\nprefix = \"::1\"\nsecret = \"abc\"\n",
        &[
            "aaa.toml:1:10: shards are 1 to 256",
            "aaa.toml:2:1: this client has no secret",
            "aaa.toml:6:8: client 1 of the file has this name too",
            "aaa.toml:7:10: client 1 of the file has this prefix too",
            "aaa.toml:8:10: a secret of fewer than 6 octets",
        ],
    );
    said("a = [\n", &["aaa.toml:"]);
}

#[test]
fn names_are_looked_up() {
    said(
        "[[user]]\nname = \"ann\"\ngroups = [\"staff\"]\nreply = [\"nonsense\"]\n[[realm]]\nname = \"x\"\nservers = [\"h\"]\n\
         [methods]\norder = [\"pap\", \"eap-tls\"]\n[users]\nstore = \"postgresql\"\n",
        &[
            "aaa.toml:3:11: there is no group \"staff\"",
            "aaa.toml:4:10: \"nonsense\" is not ATTRIBUTE OPERATOR VALUE",
            "aaa.toml:7:12: there is no home server \"h\"",
            "aaa.toml:9:17: this method needs the server's certificate",
            "aaa.toml:11:9: nothing says where PostgreSQL is",
        ],
    );
}

#[test]
fn secrets_that_others_can_read_are_refused() {
    let folder = std::env::temp_dir().join(format!("usher-daemon-secrets-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("aaa.toml");
    let secret = folder.join("s");
    std::fs::write(&secret, "0123456789abcdef\n").unwrap();
    std::fs::write(&path, "[[client]]\nname = \"a\"\nprefix = \"::1\"\nsecret_file = \"s\"\n").unwrap();
    let mode =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(&path, 0o644);
    mode(&secret, 0o644);
    let said = load(&path).unwrap_err().to_string();
    assert!(said.contains("aaa.toml:4:15: ") && said.contains("chmod 0600"), "{said}");
    mode(&secret, 0o600);
    let loaded = load(&path).unwrap();
    assert_eq!(loaded.clients[0].secret.as_ref().unwrap().0, "0123456789abcdef");
    assert!(!format!("{loaded:?}").contains("0123456789abcdef"));
    std::fs::write(&path, "[[client]]\nname = \"a\"\nprefix = \"::1\"\nsecret = \"0123456789abcdef\"\n")
        .unwrap();
    let said = load(&path).unwrap_err().to_string();
    assert!(said.contains("aaa.toml:4:10: ") && said.contains("has mode 0644"), "{said}");
    mode(&path, 0o640);
    assert!(load(&path).is_ok());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_published_schema_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/aaa-server.schema.json");
    if std::env::var_os("USHER_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, json_schema()).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == json_schema(),
        "docs/aaa-server.schema.json is not what the types say; run this test with USHER_WRITE_SCHEMA=1"
    );
}
