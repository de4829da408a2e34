//! The AAA server's configuration file as a thing of the service: from its text to [`LoadedConfig`], every fault with its line,
//! and from there to what the server is made of ([`build_config()`]), its ledger ([`ledger_config()`]) and its TLS (`tls::make`).
//!
//! Whoever hosts the server gives it the same file: `usher aaa serve` on sockets, a study in virtual time. Files, variables
//! and their permissions are looked at through [`ConfigEnvironment`] alone, so that nothing here touches its host.

extern crate alloc;

mod bindings;
mod build;
mod check;
mod dictionary;
mod elsewhere;
#[cfg(feature = "tls")]
pub mod lists;
pub mod model;
mod others;
#[cfg(feature = "tls")]
pub mod tls;
pub mod units;

pub use bindings::{ListenBinding, ListenTransport, listen_bindings, outgoing_addresses};
pub use build::{
    BuildInputs, BuiltConfig, ClientDirectory, DIALLER, NotServed, PassedOver, build_config,
    fallback_cache_config, ledger_config, only_accept, row_reader, runner_parts,
};
pub use check::{
    ClientEntry, HomeEntry, LearntList, LoadedConfig, NamedUserRows, TlsFiles, certificate_matches, parse_row,
};

use std::path::{Path, PathBuf};
use usher_config::tree::{TableEntry, TreeItem, TreeNode};
use usher_config::{ConfigEnvironment, ConfigErrors, ConfigFormat, DiagnosticCollector, RetiredKey};

/// What configuration files are. Version 2 has the ranges of a pool in one key.
pub const FORMAT: ConfigFormat = ConfigFormat {
    description: "the AAA server's configuration",
    version: 2,
    retired: &[RetiredKey {
        table: &["pool"],
        key: "first",
        instead: "it and \"last\" as ranges = [\"FIRST-LAST\"]",
        rewrite: merge_range_keys,
    }],
};

/// `first` and `last` of a pool as one of its `ranges`. Where one is missing, both stay as they are, for the reader to find.
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

/// Reads a text, unchecked: neither its secrets nor the files that it names are looked at, but for those that it includes.
/// Paths of revocation lists are whole. `path` is the file that it was read from.
///
/// # Errors
/// It is no configuration.
pub fn parse_outline(
    text: &str,
    path: &Path,
    outside: &dyn ConfigEnvironment,
) -> Result<model::ConfigFile, ConfigErrors> {
    let mut faults = DiagnosticCollector::new(&path.display().to_string(), text);
    let tree = usher_config::read_document(&FORMAT, outside, &mut faults);
    let mut file = tree.and_then(|mut tree| read_model(&mut tree, &mut faults));
    if let Some(tls) = file.as_mut().and_then(|file| file.tls.as_mut()) {
        check::name_lists(tls, path.parent().unwrap_or(Path::new("")));
    }
    faults.finish(file)
}

/// Nothing is checked of a file of which a part cannot be read.
fn read_model(tree: &mut TreeNode, faults: &mut DiagnosticCollector) -> Option<model::ConfigFile> {
    let file = usher_config::read_typed(tree, |_| false, faults);
    file.value.filter(|_| file.is_complete)
}

/// Reads and checks a text. `origin` is what faults call it; `path` is the file that it was read from, whose mode is looked at
/// where it holds secrets. Relative paths go from its folder, those of files that it includes too.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(
    origin: &str,
    text: &str,
    path: Option<&Path>,
    outside: &dyn ConfigEnvironment,
) -> Result<LoadedConfig, ConfigErrors> {
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

/// Reads and checks a table of another file that holds the keys of a configuration, such as a host's of a study; faults and
/// warnings have its lines. Relative paths go from `base`. `None`: something is wrong, as `faults` says.
pub fn read_tree(
    mut tree: TreeNode,
    base: &Path,
    outside: &dyn ConfigEnvironment,
    faults: &mut DiagnosticCollector,
) -> Option<LoadedConfig> {
    usher_config::rewrite_retired(&mut tree, &FORMAT, faults);
    check_tree(tree, base, &[], outside, faults)
}

/// Reads and checks a tree. `private` are the files, by their numbers, that must be private where they hold secrets.
fn check_tree(
    mut tree: TreeNode,
    base: &Path,
    private: &[PathBuf],
    outside: &dyn ConfigEnvironment,
    faults: &mut DiagnosticCollector,
) -> Option<LoadedConfig> {
    let file = read_model(&mut tree, faults)?;
    let location = |keys: &[String]| tree.position_of(&tree.resolve_keys(keys));
    let written = |keys: &[String]| location(keys).and_then(|span| private.get(span.source));
    let (loaded, found) = check::check_file(file, base, outside, written);
    for (keys, message) in found {
        faults.add(location(&keys), message);
    }
    loaded
}

/// The JSON Schema of the file, as `docs/aaa-server.schema.json` holds it: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    usher_config::json_schema::<model::ConfigFile>(&FORMAT)
}

#[cfg(test)]
mod tests;
