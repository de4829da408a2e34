//! The configuration file: from TOML to [`Loaded`], every fault with its line.

mod check;
mod dictionary;
mod elsewhere;
pub mod model;
mod others;
pub mod secret;
pub mod units;

pub(crate) use check::certificates;
pub use check::{ClientEntry, HomeEntry, LearntList, Loaded, Rows, TlsFiles, row};
pub use usher_config::{Fault, Faults};

use secret::Disk;
use std::path::{Path, PathBuf};
use usher_config::tree::{Entry, Item, TreeNode};
use usher_config::{Alone, Collector, Format, Outside, Retired};

/// Where the configuration is unless `--config` says otherwise.
pub const DEFAULT_PATH: &str = "/etc/usher/aaa.toml";

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What it says is wrong.
    #[error(transparent)]
    Faults(#[from] Faults),
}

/// Reads and checks a file, with the secrets and keys that it names.
///
/// # Errors
/// It cannot be read, or everything that is wrong with it.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| LoadError::Unreadable { path: path.to_owned(), source })?;
    Ok(parse(&path.display().to_string(), &text, Some(path))?)
}

/// What configuration files are. Version 2 has the ranges of a pool in one key.
pub const FORMAT: Format = Format {
    what: "the AAA server's configuration",
    version: 2,
    retired: &[Retired {
        table: &["pool"],
        key: "first",
        instead: "it and \"last\" as ranges = [\"FIRST-LAST\"]",
        rewrite: one_range,
    }],
};

/// `first` and `last` of a pool as one of its `ranges`. Where one is missing, both stay as they are, for the reader to find.
fn one_range(pool: &mut TreeNode) {
    let text = |key| match pool.get(key).map(|node| &node.item) {
        Some(Item::Text(text)) => Some(text.trim().to_owned()),
        _ => None,
    };
    let (Some(first), Some(last)) = (text("first"), text("last")) else { return };
    let (Some(entry), _) = (pool.take("first"), pool.take("last")) else { return };
    let range = TreeNode::new(entry.node.span.clone(), Item::Text(format!("{first}-{last}")));
    let Item::Table(entries) = &mut pool.item else { return };
    match entries.iter_mut().find(|e| e.key == "ranges").map(|e| &mut e.node.item) {
        Some(Item::Array(ranges)) => ranges.push(range),
        Some(_) => {}
        None => {
            let node = TreeNode::new(entry.node.span, Item::Array(vec![range]));
            entries.push(Entry { key: "ranges".to_owned(), key_span: entry.key_span, node });
        }
    }
}

/// Reads a file, unchecked: neither its secrets nor the files that it names are looked at, but for those that it includes.
/// Paths of revocation lists are whole.
///
/// # Errors
/// It cannot be read, or is no configuration.
pub(crate) fn outline(path: &Path) -> Result<model::File, LoadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| LoadError::Unreadable { path: path.to_owned(), source })?;
    let mut faults = Collector::new(&path.display().to_string(), &text);
    let mut file = read(&Disk, &mut faults).map(|(file, _)| file);
    if let Some(tls) = file.as_mut().and_then(|file| file.tls.as_mut()) {
        check::name_lists(tls, path.parent().unwrap_or(Path::new("")));
    }
    Ok(faults.finish(file)?)
}

/// Reads what the collector was made of. Nothing is checked of a file of which a part cannot be read.
fn read(outside: &dyn Outside, faults: &mut Collector) -> Option<(model::File, TreeNode)> {
    let mut tree = usher_config::document(&FORMAT, outside, faults)?;
    let file = usher_config::read(&mut tree, |_| false, faults);
    Some((file.value.filter(|_| file.whole)?, tree))
}

/// Checks a text. `origin` is what faults call it; `path` is the file that it was read from, whose mode is looked at where it
/// holds secrets. Relative paths go from its folder, those of files that it includes too.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(origin: &str, text: &str, path: Option<&Path>) -> Result<Loaded, Faults> {
    let mut faults = Collector::new(origin, text);
    let outside: &dyn Outside = if path.is_some() { &Disk } else { &Alone };
    let loaded = read(outside, &mut faults).and_then(|(file, tree)| {
        let base = path.and_then(Path::parent).unwrap_or(Path::new(""));
        let files: Vec<PathBuf> = faults.sources().iter().map(|source| PathBuf::from(&source.name)).collect();
        let place = |keys: &[String]| tree.place(&tree.steps(keys));
        let (mut loaded, found) =
            check::check(file, base, |keys| path.and(place(keys)).and_then(|span| files.get(span.source)));
        for (keys, message) in found {
            faults.add(place(&keys), message);
        }
        if let Some(loaded) = &mut loaded {
            loaded.path = path.map(Path::to_owned);
            loaded.included = files.into_iter().skip(1).collect();
            loaded.warnings = faults.warnings();
        }
        loaded
    });
    faults.finish(loaded)
}

/// The JSON Schema of the file, as `docs/aaa-server.schema.json` holds it: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    usher_config::json_schema::<model::File>(&FORMAT)
}

#[cfg(test)]
mod tests;
