//! The configuration file: from TOML to [`Loaded`], every fault with its line.

mod check;
mod dictionary;
mod elsewhere;
mod fault;
pub mod model;
mod others;
mod read;
pub mod secret;
pub mod units;

pub(crate) use check::certificates;
pub use check::{ClientEntry, HomeEntry, LearntList, Loaded, Rows, TlsFiles, row};
pub use fault::{Fault, Faults};

use std::path::{Path, PathBuf};

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

/// Reads a file, unchecked: neither its secrets nor the files that it names are looked at. Paths of revocation lists are
/// whole.
///
/// # Errors
/// It cannot be read, or is no configuration.
pub(crate) fn outline(path: &Path) -> Result<model::File, LoadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| LoadError::Unreadable { path: path.to_owned(), source })?;
    let origin = path.display().to_string();
    let mut faults = fault::Collector::new(&origin, &text);
    let mut file = read::read(&text, &mut faults).map(|(file, _)| file);
    if let Some(tls) = file.as_mut().and_then(|file| file.tls.as_mut()) {
        check::name_lists(tls, path.parent().unwrap_or(Path::new("")));
    }
    Ok(faults.finish(file)?)
}

/// Checks a text. `origin` is what faults call it; `path` is the file whose mode is looked at where the text holds
/// secrets.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(origin: &str, text: &str, path: Option<&Path>) -> Result<Loaded, Faults> {
    let mut faults = fault::Collector::new(origin, text);
    let loaded = read::read(text, &mut faults).and_then(|(file, tree)| {
        let base = path.and_then(Path::parent).unwrap_or(Path::new(""));
        let (loaded, found) = check::check(file, path, base);
        for (path, message) in found {
            faults.add(&tree.place(&path), message);
        }
        loaded
    });
    faults.finish(loaded)
}

/// The JSON Schema of the file, as `docs/aaa-server.schema.json` holds it: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    let schema = schemars::schema_for!(model::File);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
