//! `usher config upgrade`

use crate::place::TempDir;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const OLD: &str = "# Guests.\n[[pool]]\nname = \"guests\"\nfirst = \"192.0.2.1\"\nlast = \"192.0.2.9\" # before the gateway\n";
const NEW: &str = "version = 2\n# Guests.\n[[pool]]\nname = \"guests\"\n# before the gateway\nranges = [\"192.0.2.1-192.0.2.9\"]\n";

#[test]
fn an_old_file_is_read_with_a_warning_until_it_is_rewritten() {
    let place = TempDir::new();
    place.write("aaa.toml", OLD);
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(place.path("aaa.toml"), mode(0o640)).unwrap();
    let checked = place.run_usher(&["aaa", "check", "aaa.toml"]).with_code(0);
    assert!(checked.err.contains("warning: aaa.toml:4:1: \"first\" is deprecated"), "{}", checked.err);
    let shown = place.run_usher(&["config", "upgrade", "aaa.toml"]).with_code(0).out;
    assert_eq!(
        shown,
        "--- aaa.toml\n+++ aaa.toml\n@@ -1 +1 @@\n+version = 2\n@@ -4 +5 @@\n-first = \"192.0.2.1\"\n\
         -last = \"192.0.2.9\" # before the gateway\n+# before the gateway\n+ranges = [\"192.0.2.1-192.0.2.9\"]\n"
    );
    assert_eq!(std::fs::read_to_string(place.path("aaa.toml")).unwrap(), OLD, "it was only shown");
    let written = place.run_usher(&["config", "upgrade", "--write", "aaa.toml"]).with_code(0).out;
    assert_eq!(written, "aaa.toml: rewritten\n");
    assert_eq!(std::fs::read_to_string(place.path("aaa.toml")).unwrap(), NEW);
    let kept = std::fs::metadata(place.path("aaa.toml")).unwrap().permissions().mode();
    assert_eq!(kept & 0o777, 0o640);
    let checked = place.run_usher(&["aaa", "check", "aaa.toml"]).with_code(0);
    assert!(!checked.err.contains("warning"), "{}", checked.err);
    let again =
        place.run_usher(&["--json", "config", "upgrade", "--write", "aaa.toml"]).with_code(0).stdout_json();
    assert_eq!(again[0]["changed"], false);
}

#[test]
fn config_upgrade_rewrites_earlier_files_and_studies() {
    let place = TempDir::new();
    let left = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors/upgrade/0.1.0/aaa.toml");
    place.write("aaa.toml", &std::fs::read_to_string(left).unwrap());
    place.run_usher(&["study", "new", "mine.toml"]).with_code(0);
    let written =
        place.run_usher(&["config", "upgrade", "--write", "aaa.toml", "mine.toml"]).with_code(0).out;
    assert_eq!(written, "aaa.toml: rewritten\nmine.toml: rewritten\n");
    place.run_usher(&["study", "check", "mine.toml"]).with_code(0);
    let text = std::fs::read_to_string(place.path("aaa.toml")).unwrap();
    assert!(text.contains("\nversion = 2\n") || text.starts_with("version = 2\n"), "{text}");
    place.write("other.toml", "[package]\nname = \"x\"\n");
    let refused = place.run_usher(&["config", "upgrade", "other.toml"]).with_code(2);
    assert!(
        refused.err.contains("other.toml: the keys fit none of these formats: a study, "),
        "{}",
        refused.err
    );
}

#[test]
fn a_refused_value_of_an_option_is_explained_in_our_words() {
    let place = TempDir::new();
    for (words, expected) in [
        (&["ident", "serve", "--listen", "x"][..], "expected an IP address and port, such as"),
        (&["mih", "flow", "192.0.2.1:1", "--from", "x"], "expected an IP address, such as"),
        (&["study", "run", "aaa", "--jobs", "0"], "expected 1 or more"),
        (&["study", "run", "aaa", "--jobs", "many"], "expected a whole number"),
    ] {
        let said = place.run_usher(words).with_code(2).err;
        assert!(said.contains(expected) && said.contains("--help"), "{said}");
        let json = place.run_usher(&[words, &["--json"]].concat()).with_code(2);
        assert!(json.err.contains(expected), "{json:?}");
    }
}
