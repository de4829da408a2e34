//! The AAA server's configuration file: parses the text into [`LoadedAaaConfig`] with the line of each error, and
//! builds the server's configuration ([`build_config()`]), its ledger ([`ledger_config()`]) and its TLS
//! (`tls::load_tls`).
//!
//! All hosts use the same file: `usher aaa serve` on sockets, a study in virtual time. Files, environment variables
//! and permissions are read through [`ConfigEnvironment`] alone, so this crate does no I/O.

extern crate alloc;

mod bindings;
mod build;
mod check;
mod dictionary;
#[cfg(feature = "tls")]
pub mod lists;
pub mod model;
mod peer_checks;
mod peer_tables;
#[cfg(feature = "tls")]
pub mod tls;
pub mod units;

pub use bindings::{ListenBinding, ListenTransport, listen_bindings, outgoing_addresses_and_tls};
pub use build::{
    AaaConfigBuildInputs, BuiltConfig, ClientDirectory, DIALLER, SkippedClient, SkippedClientReason,
    build_config, disable_outgoing_peers, fallback_cache_config, job_runner_parts, ledger_config, row_reader,
};
pub use check::{
    ClientEntry, DistributionPointCrl, HomeServerEntry, LoadedAaaConfig, NamedUserRows, TlsFiles,
    accepted_certificate_matches, parse_row,
};

use std::path::{Path, PathBuf};
use usher_config::tree::{TableEntry, TreeItem, TreeNode};
use usher_config::{ConfigEnvironment, ConfigErrors, ConfigFormat, DiagnosticCollector, RetiredKey};

/// The format of configuration files. Version 2 has a pool's ranges in one key.
pub const FORMAT: ConfigFormat = ConfigFormat {
    description: "the AAA server's configuration",
    version: 2,
    retired: &[
        RetiredKey {
            table: &["pool"],
            key: "first",
            instead: "it and \"last\" as ranges = [\"FIRST-LAST\"]",
            rewrite: Some(merge_range_keys),
        },
        RetiredKey::renamed(&["limits"], "failures_within", "failure_window"),
        RetiredKey::renamed(&["limits"], "failures_hold", "lockout_time"),
    ],
};

/// Converts `first` and `last` of a pool to a range of `ranges`. If one is missing, both stay and cause an error
/// later.
fn merge_range_keys(pool: &mut TreeNode) {
    let text = |key| match pool.get(key).map(|node| &node.item) {
        Some(TreeItem::Text(text)) => Some(text.trim().to_owned()),
        _ => None,
    };
    let (Some(first), Some(last)) = (text("first"), text("last")) else { return };
    let (Some(entry), _) = (pool.take_entry("first"), pool.take_entry("last")) else { return };
    let range = TreeNode::new(entry.node.span.clone(), TreeItem::Text(format!("{first}-{last}")));
    let TreeItem::Table(entries) = &mut pool.item else { return };
    match entries.iter_mut().find(|e| e.key == "ranges").map(|e| &mut e.node.item) {
        Some(TreeItem::Array(ranges)) => ranges.push(range),
        Some(_) => {}
        None => {
            let node = TreeNode::new(entry.node.span, TreeItem::Array(vec![range]));
            entries.push(TableEntry { key: "ranges".to_owned(), key_span: entry.key_span, node });
        }
    }
}

/// Parses a text and its includes without checks, secrets and other files. Paths of revocation lists are made
/// absolute. `path` is the file of the text.
///
/// # Errors
/// The text is no configuration.
pub fn parse_without_checks(
    text: &str,
    path: &Path,
    outside: &dyn ConfigEnvironment,
) -> Result<model::ConfigFile, ConfigErrors> {
    let mut faults = DiagnosticCollector::new(&path.display().to_string(), text);
    let tree = usher_config::read_document(&FORMAT, outside, &mut faults);
    let mut file = tree.and_then(|mut tree| read_config_model(&mut tree, &mut faults));
    if let Some(tls) = file.as_mut().and_then(|file| file.tls.as_mut()) {
        check::resolve_revocation_list_paths(tls, path.parent().unwrap_or(Path::new("")));
    }
    faults.finish(file)
}

/// If a part cannot be parsed, nothing else is checked.
fn read_config_model(tree: &mut TreeNode, faults: &mut DiagnosticCollector) -> Option<model::ConfigFile> {
    let file = usher_config::read_typed(tree, |_| false, faults);
    file.value.filter(|_| file.is_complete)
}

/// Parses and checks a text. `origin` is its name in errors. `path` is its file, whose mode is checked if it has
/// secrets. Relative paths start at the file's directory, also those of included files.
///
/// # Errors
/// All errors in the text.
pub fn parse(
    origin: &str,
    text: &str,
    path: Option<&Path>,
    outside: &dyn ConfigEnvironment,
) -> Result<LoadedAaaConfig, ConfigErrors> {
    let mut faults = DiagnosticCollector::new(origin, text);
    let base = path.and_then(Path::parent).unwrap_or(Path::new(""));
    let loaded = usher_config::read_document(&FORMAT, outside, &mut faults).and_then(|tree| {
        let files: Vec<PathBuf> =
            faults.from_sources().iter().map(|source| PathBuf::from(&source.name)).collect();
        let private = if path.is_some() { &*files } else { &[] };
        let mut loaded = check_tree(tree, base, private, outside, &mut faults)?;
        loaded.path = path.map(Path::to_owned);
        loaded.included = files.into_iter().skip(1).collect();
        loaded.warnings = faults.warnings();
        Some(loaded)
    });
    faults.finish(loaded)
}

/// Parses and checks a table of another file with the keys of a configuration, such as a host of a study. Errors
/// and warnings have its lines. Relative paths start at `base`. `None`: `faults` has the errors.
pub fn read_tree(
    mut tree: TreeNode,
    base: &Path,
    outside: &dyn ConfigEnvironment,
    faults: &mut DiagnosticCollector,
) -> Option<LoadedAaaConfig> {
    usher_config::rewrite_retired_keys(&mut tree, &FORMAT, faults);
    check_tree(tree, base, &[], outside, faults)
}

/// Parses and checks a tree. `private` are the files by number that must be private if they have secrets.
fn check_tree(
    mut tree: TreeNode,
    base: &Path,
    private: &[PathBuf],
    outside: &dyn ConfigEnvironment,
    faults: &mut DiagnosticCollector,
) -> Option<LoadedAaaConfig> {
    let file = read_config_model(&mut tree, faults)?;
    let location = |keys: &[String]| tree.position_of(&tree.resolve_keys(keys));
    let written = |keys: &[String]| location(keys).and_then(|span| private.get(span.source));
    let (loaded, found) = check::check_file(file, base, outside, written);
    for (keys, message) in found {
        faults.add(location(&keys), message);
    }
    loaded
}

/// Returns the JSON Schema of the file as in `docs/aaa-server.schema.json`: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    usher_config::json_schema::<model::ConfigFile>(&FORMAT)
}

#[cfg(test)]
mod tests;
