//! Parsing of a configuration together with the checks of its service.

use crate::document::{ConfigEnvironment, ConfigFormat, read_document, rewrite_retired_keys};
use crate::fault::{ConfigDiagnostic, ConfigErrors, DiagnosticCollector};
use crate::read_typed;
use crate::tree::TreeNode;
use serde::de::DeserializeOwned;
use std::path::Path;

/// The keys that lead to a fault's place, and its message. Indices of arrays count as keys.
pub type KeyPathError = (Vec<String>, String);

/// A configuration without faults.
#[derive(Clone, Debug)]
pub struct CheckedConfig<F, M> {
    /// The typed file, as written.
    pub file: F,
    /// The result of `check`.
    pub built_config: M,
    /// Valid settings that should be written otherwise.
    pub warnings: Vec<ConfigDiagnostic>,
}

/// Reads a text into `F` and checks it. `origin` is the path of the file, or its name in messages.
///
/// `check` gets the typed file and the base folder of relative paths. It returns the built configuration and the faults
/// that it finds.
///
/// # Errors
/// All faults. If a part of the file cannot be read, `check` does not run.
pub fn parse<F: DeserializeOwned, M>(
    format: &ConfigFormat,
    origin: &str,
    text: &str,
    outside: &dyn ConfigEnvironment,
    check: impl FnOnce(&mut F, &Path) -> (Option<M>, Vec<KeyPathError>),
) -> Result<CheckedConfig<F, M>, ConfigErrors> {
    let mut faults = DiagnosticCollector::new(origin, text);
    let folder = Path::new(origin).parent().unwrap_or(Path::new(""));
    let tree = read_document(format, outside, &mut faults);
    let checked = tree.and_then(|tree| check_tree(tree, folder, check, &mut faults));
    faults.finish(checked)
}

/// Like [`parse`], for a table within another file, such as the service configuration of a study's host. Faults and
/// warnings have the lines of that file; relative paths start at `base`. Returns `None` if the configuration has
/// faults.
pub fn read_tree<F: DeserializeOwned, M>(
    format: &ConfigFormat,
    mut tree: TreeNode,
    base: &Path,
    check: impl FnOnce(&mut F, &Path) -> (Option<M>, Vec<KeyPathError>),
    faults: &mut DiagnosticCollector,
) -> Option<CheckedConfig<F, M>> {
    rewrite_retired_keys(&mut tree, format, faults);
    check_tree(tree, base, check, faults)
}

fn check_tree<F: DeserializeOwned, M>(
    mut tree: TreeNode,
    base: &Path,
    check: impl FnOnce(&mut F, &Path) -> (Option<M>, Vec<KeyPathError>),
    faults: &mut DiagnosticCollector,
) -> Option<CheckedConfig<F, M>> {
    let read = read_typed::<F>(&mut tree, |_| false, faults);
    let mut file = read.value.filter(|_| read.is_complete)?;
    let (made, found) = check(&mut file, base);
    let right = found.is_empty();
    for (keys, message) in found {
        faults.add(tree.position_of(&tree.resolve_keys(&keys)), message);
    }
    let made = made.filter(|_| right)?;
    Some(CheckedConfig { file, built_config: made, warnings: faults.warnings() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::EmptyConfigEnvironment;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct PortFile {
        port: u16,
    }

    const FORMAT: ConfigFormat =
        ConfigFormat { description: "a test's configuration", version: 1, retired: &[] };

    fn check_port_file(file: &mut PortFile, base: &Path) -> (Option<String>, Vec<KeyPathError>) {
        let found = (file.port == 0).then(|| (vec!["port".to_owned()], "0 is no port".to_owned()));
        (Some(format!("{}:{}", base.display(), file.port)), found.into_iter().collect())
    }

    #[test]
    fn what_is_wrong_has_its_line_and_nothing_is_made() {
        let right =
            parse(&FORMAT, "etc/a.toml", "port = 7\n", &EmptyConfigEnvironment, check_port_file).unwrap();
        assert_eq!((right.file.port, right.built_config.as_str()), (7, "etc:7"));
        let wrong = parse(&FORMAT, "etc/a.toml", "\nport = 0\n", &EmptyConfigEnvironment, check_port_file)
            .unwrap_err()
            .to_string();
        assert!(wrong.contains("etc/a.toml:2:") && wrong.contains("0 is no port"), "{wrong}");
        let unread = parse(
            &FORMAT,
            "etc/a.toml",
            "port = \"x\"\n",
            &EmptyConfigEnvironment,
            |_: &mut PortFile, _: &Path| unreachable!("nothing is checked of what cannot be read"),
        );
        let unread: Result<CheckedConfig<PortFile, ()>, _> = unread;
        assert!(unread.is_err());
    }
}
