//! `usher config upgrade`

use crate::output::{CommandFailure, ConsoleOutput};
use serde_json::json;
use std::path::PathBuf;
use usher_config::tree::{self, TreeNode};
use usher_config::{ConfigFormat, ConfigValue, DiagnosticCollector};

/// Rewrites files in the newest version of their format, or shows the differences.
pub(crate) fn upgrade_files(
    output: &ConsoleOutput,
    files: &[PathBuf],
    write: bool,
) -> Result<(), CommandFailure> {
    let (mut text, mut values) = (String::new(), Vec::new());
    for path in files {
        let name = path.display().to_string();
        let old = std::fs::read_to_string(path)
            .map_err(|e| CommandFailure::usage_error(format!("cannot read {name}: {e}")))?;
        let new = usher_config::upgrade_text(&name, &old, detect_format(&name, &old)?)
            .map_err(CommandFailure::usage_error)?;
        if write && new != old {
            // Overwrite the file in place, so that it keeps its owner and mode.
            std::fs::write(path, &new)
                .map_err(|e| CommandFailure::runtime_error(format!("cannot write {name}: {e}")))?;
        }
        let said = match (new == old, write) {
            (true, _) => format!("{name}: up to date\n"),
            (false, true) => format!("{name}: rewritten\n"),
            (false, false) => format!("--- {name}\n+++ {name}\n{}", diff_lines(&old, &new)),
        };
        text.push_str(&said);
        values.push(json!({ "file": name, "changed": new != old, "written": write && new != old }));
    }
    if output.json { output.print_json(&serde_json::Value::Array(values)) } else { output.print_text(&text) }
}

/// Detects the format of a file by its keys.
fn detect_format(name: &str, text: &str) -> Result<&'static ConfigFormat, CommandFailure> {
    let mut faults = DiagnosticCollector::new(name, text);
    let Some(tree) = tree::parse_source(0, &mut faults) else {
        return Err(faults
            .finish::<()>(None)
            .map_or_else(CommandFailure::usage_error, |()| CommandFailure::usage_error(name)));
    };
    let known = |schema: String| {
        let schema: serde_json::Value = serde_json::from_str(&schema).unwrap_or_default();
        tree.entries().iter().filter(|e| schema["properties"].get(&e.key).is_some()).count()
    };
    let mut kinds: Vec<_> =
        formats_with_schemas().into_iter().map(|(format, schema)| (known(schema), format)).collect();
    kinds.sort_by_key(|(keys, _)| std::cmp::Reverse(*keys));
    let most = kinds[0].0;
    let version = match tree.get("version").and_then(TreeNode::to_value) {
        Some(ConfigValue::Integer(version)) => version,
        _ => 1,
    };
    // If the tables fit several formats, the file's version and its deprecated keys decide.
    let tied = kinds
        .iter()
        .filter(|(keys, format)| *keys == most && most > 0 && version <= i64::from(format.version));
    let tied: Vec<&'static ConfigFormat> = tied.map(|(_, format)| *format).collect();
    let stale = |format: &&&ConfigFormat| {
        let mut new = tree.clone();
        usher_config::rewrite_retired_keys(&mut new, format, &mut faults);
        new.to_value() != tree.to_value()
    };
    let mut stale = tied.iter().filter(stale);
    match (&tied[..], stale.next(), stale.next()) {
        ([format], ..) | (_, Some(format), None) => return Ok(*format),
        _ => {}
    }
    let kinds = kinds.iter().map(|(_, format)| format.description).collect::<Vec<_>>().join(", ");
    Err(CommandFailure::usage_error(format!(
        "{name}: the keys fit none of these formats: {kinds}; the file is unchanged"
    )))
}

/// The file formats, each with its schema.
pub(crate) fn formats_with_schemas() -> Vec<(&'static ConfigFormat, String)> {
    vec![
        (&usher_scenario::FORMAT, usher_scenario::json_schema()),
        (&usher_aaa_config::FORMAT, usher_aaa_config::json_schema()),
        (&usher_ident_service::config::FORMAT, usher_ident_service::config::json_schema()),
        (&usher_gateway::config::FORMAT, usher_gateway::config::json_schema()),
        (&usher_concentrator::config::FORMAT, usher_concentrator::config::json_schema()),
        (&usher_mih_service::config::FORMAT, usher_mih_service::config::json_schema()),
        (&usher_profile::FORMAT, usher_profile::json_schema()),
        #[cfg(feature = "live")]
        (&usher_plan::FORMAT, usher_plan::json_schema()),
    ]
}

/// Returns the removed and added lines, by the longest common subsequence.
fn diff_lines(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let before = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (a, b) = (&old[before..], &new[before..]);
    let behind = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - behind], &b[..b.len() - behind]);
    // `common[i][j]` is the number of common lines of the remainders of `a` from `i` and of `b` from `j`.
    let mut common = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] =
                if a[i] == b[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut text, mut whole) = (0, 0, String::new(), true);
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            (i, j, whole) = (i + 1, j + 1, true);
            continue;
        }
        if std::mem::take(&mut whole) {
            text.push_str(&format!("@@ -{} +{} @@\n", before + i + 1, before + j + 1));
        }
        if j == b.len() || i < a.len() && common[i + 1][j] >= common[i][j + 1] {
            text.push_str(&format!("-{}\n", a[i]));
            i += 1;
        } else {
            text.push_str(&format!("+{}\n", b[j]));
            j += 1;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_go_and_come_are_shown_with_their_places() {
        let (old, new) = ("a\nb\nc\nd\ne\n", "a\nx\nb\nd\ny\ne\n");
        assert_eq!(diff_lines(old, new), "@@ -2 +2 @@\n+x\n@@ -3 +4 @@\n-c\n@@ -5 +5 @@\n+y\n");
        assert_eq!(diff_lines(old, old), "");
    }

    #[test]
    fn a_file_is_known_by_its_keys() {
        let what = |text| detect_format("f", text).map(|f| f.description).map_err(|e| e.message);
        assert_eq!(what(usher_scenario::default_template()), Ok("a study"));
        assert_eq!(what("[[client]]\nname = \"a\"\n"), Ok("the AAA server's configuration"));
        assert_eq!(what("[[connection]]\n[[pool]]\n"), Ok("the IKEv2 gateway's configuration"));
        assert_eq!(
            what("[service]\n[authentication]\n[[pool]]\n"),
            Ok("the PPPoE access concentrator's configuration")
        );
        assert_eq!(what("listen = []\n[[asker]]\n"), Ok("the IDENT server's configuration"));
        assert_eq!(what("[listen]\nudp = []\n[[allow]]\n"), Ok("an MIH function's configuration"));
        assert!(what("x = 1\n").unwrap_err().starts_with("f: the keys fit none of these formats: a study, "));
        assert!(what("x = \n").unwrap_err().starts_with("f:1:5: not TOML"));
    }
}
