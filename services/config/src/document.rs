//! Reads a file and the files that it includes into one tree.

use crate::fault::{DiagnosticCollector, OptionalPosition};
use crate::tree::{self, TableEntry, TreeItem, TreeNode};
use std::path::{Component, Path, PathBuf};

/// The key of a file's version.
pub(crate) const VERSION: &str = "version";
/// The key of the files that a file includes.
pub(crate) const INCLUDE: &str = "include";
/// Limit of files read, and of the depth of includes.
const MOST_FILES: usize = 64;

/// Files and environment variables, as the host provides them.
pub trait ConfigEnvironment {
    /// Returns the text of an included file.
    ///
    /// # Errors
    /// A message if it cannot be read.
    fn read_text(&self, path: &Path) -> Result<String, String>;

    /// Returns the text of a file that holds a secret. A file that others can read or change is an error.
    ///
    /// # Errors
    /// A message if it cannot be read, or the remedy.
    fn read_secret(&self, path: &Path) -> Result<String, String>;

    /// Returns the value of an environment variable, if set.
    fn variable(&self, name: &str) -> Option<String>;

    /// Returns the octets of a file that a setting names, at most `most`.
    ///
    /// # Errors
    /// A message if it cannot be read.
    fn read_octets(&self, path: &Path, most: u64) -> Result<Vec<u8>, String> {
        let mut octets = self.read_text(path)?.into_bytes();
        octets.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(octets)
    }

    /// Returns the canonical path of a file.
    ///
    /// # Errors
    /// A message if it has none.
    fn canonical_name(&self, path: &Path) -> Result<PathBuf, String> {
        Ok(path.to_owned())
    }

    /// Checks the URL of a database. A host without a database client accepts any URL.
    ///
    /// # Errors
    /// The fault of the URL.
    fn check_database(&self, _url: &str) -> Result<(), String> {
        Ok(())
    }
}

/// The environment of a text without files and variables.
#[derive(Clone, Copy, Debug)]
pub struct EmptyConfigEnvironment;

impl ConfigEnvironment for EmptyConfigEnvironment {
    fn read_text(&self, path: &Path) -> Result<String, String> {
        Err(format!("cannot read {}: this configuration cannot use files", path.display()))
    }
    fn read_secret(&self, path: &Path) -> Result<String, String> {
        self.read_text(path)
    }
    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

/// A kind of file.
#[derive(Debug)]
pub struct ConfigFormat {
    /// The kind of file in messages: `a study`.
    pub description: &'static str,
    /// The newest version of the format.
    pub version: u32,
    /// Retired keys, accepted for one more release.
    pub retired: &'static [RetiredKey],
}

/// A retired key and its replacement.
#[derive(Debug)]
pub struct RetiredKey {
    /// The keys that lead to its table. An array of tables stands for each of its tables.
    pub table: &'static [&'static str],
    /// The key.
    pub key: &'static str,
    /// The replacement, for messages.
    pub instead: &'static str,
    /// Rewrites a table that has the key. `None` renames the key to `instead`.
    pub rewrite: Option<fn(&mut TreeNode)>,
}

impl RetiredKey {
    /// A key that has a new name.
    #[must_use]
    pub const fn renamed(table: &'static [&'static str], key: &'static str, name: &'static str) -> Self {
        Self { table, key, instead: name, rewrite: None }
    }

    /// Rewrites a table that has the key. If it has the new name too, both stay, and the old one causes an error later.
    fn rewrite_table(&self, table: &mut TreeNode) {
        if let Some(rewrite) = self.rewrite {
            rewrite(table);
        } else if let TreeItem::Table(entries) = &mut table.item
            && entries.iter().all(|e| e.key != self.instead)
        {
            entries
                .iter_mut()
                .filter(|e| e.key == self.key)
                .for_each(|e| self.instead.clone_into(&mut e.key));
        }
    }
}

/// Reads the file of the collector and the files that it includes. Rewrites retired keys, with a warning for each.
///
/// A file's own settings override those of the files that it includes; a later include overrides an earlier one. Tables
/// are merged, arrays of tables appended.
pub fn read_document(
    format: &ConfigFormat,
    outside: &dyn ConfigEnvironment,
    faults: &mut DiagnosticCollector,
) -> Option<TreeNode> {
    let name = PathBuf::from(&faults.from_sources().first()?.name);
    let mut read = FileLoader { format, outside, loaded_paths: vec![name] };
    let mut root = read.load_file(0, &mut Vec::new(), faults)?;
    rewrite_retired_keys(&mut root, format, faults);
    Some(root)
}

/// Reads a further file and its includes, as [`read_document`] does, such as the service configuration that a study
/// names. `place` is the position of its name. Its positions belong to the same collector.
pub fn read_additional_document(
    path: &Path,
    place: &OptionalPosition,
    format: &ConfigFormat,
    outside: &dyn ConfigEnvironment,
    faults: &mut DiagnosticCollector,
) -> Option<TreeNode> {
    // Files read before count toward the limit on files, but cannot be part of an include cycle of this file. Empty
    // paths stand for them.
    let seen = vec![PathBuf::new(); faults.from_sources().len()];
    let mut read = FileLoader { format, outside, loaded_paths: seen };
    let source = read.open_file(path.to_owned(), place, faults)?;
    let mut root = read.load_file(source, &mut Vec::new(), faults)?;
    rewrite_retired_keys(&mut root, format, faults);
    Some(root)
}

/// Rewrites retired keys in the tree of a file, or in a table with the keys of such a file. Adds a warning for each.
pub fn rewrite_retired_keys(root: &mut TreeNode, format: &ConfigFormat, faults: &mut DiagnosticCollector) {
    for retired in format.retired {
        for_each_table_at(root, retired.table, &mut |table| {
            let old = table.entries().iter().find(|e| e.key == retired.key);
            let Some(place) = old.map(|e| e.key_span.clone()) else { return };
            let message = format!(
                "\"{}\" is deprecated, and the next release rejects it; write {} (`usher config upgrade` does this)",
                retired.key, retired.instead
            );
            faults.add_warning(place, message);
            retired.rewrite_table(table);
        });
    }
}

/// Calls `found` with each table at the path of keys.
fn for_each_table_at(node: &mut TreeNode, keys: &[&str], found: &mut dyn FnMut(&mut TreeNode)) {
    match (&mut node.item, keys) {
        (TreeItem::Array(nodes), _) => nodes.iter_mut().for_each(|node| for_each_table_at(node, keys, found)),
        (TreeItem::Table(_), []) => found(node),
        (TreeItem::Table(entries), [first, rest @ ..]) => {
            if let Some(entry) = entries.iter_mut().find(|e| e.key == *first) {
                for_each_table_at(&mut entry.node, rest, found);
            }
        }
        _ => {}
    }
}

struct FileLoader<'a> {
    format: &'a ConfigFormat,
    outside: &'a dyn ConfigEnvironment,
    /// Paths, by source number.
    loaded_paths: Vec<PathBuf>,
}

impl FileLoader<'_> {
    /// Reads a source of the collector. `above` are the files on the path of includes to it.
    fn load_file(
        &mut self,
        source: usize,
        above: &mut Vec<usize>,
        faults: &mut DiagnosticCollector,
    ) -> Option<TreeNode> {
        let mut own = tree::parse_source(source, faults)?;
        self.check_version(&mut own, faults);
        let Some(include) = own.take_entry(INCLUDE) else { return Some(own) };
        let TreeItem::Array(names) = &include.node.item else {
            faults.add(
                include.node.span,
                "include must be an array of file names, such as [\"clients.toml\"]".to_owned(),
            );
            return None;
        };
        above.push(source);
        let mut whole: Option<TreeNode> = None;
        for name in names {
            let TreeItem::Text(text) = &name.item else {
                faults.add(name.span.clone(), "expected a file name in quotes".to_owned());
                return None;
            };
            let node = match self.include_file(source, text, &name.span, above, faults)? {
                Some(included) => self.load_file(included, above, faults)?,
                None => continue,
            };
            whole = Some(match whole {
                Some(whole) => merge_trees(whole, node),
                None => node,
            });
        }
        above.pop();
        Some(match whole {
            Some(whole) => merge_trees(whole, own),
            None => own,
        })
    }

    /// Adds an included file to the collector. Returns `Some(None)` if it was included before.
    fn include_file(
        &mut self,
        by: usize,
        name: &str,
        place: &OptionalPosition,
        above: &[usize],
        faults: &mut DiagnosticCollector,
    ) -> Option<Option<usize>> {
        let beside = self.loaded_paths[by].parent().unwrap_or(Path::new("")).join(name);
        let beside: PathBuf = beside.components().filter(|c| *c != Component::CurDir).collect();
        if let Some(before) = self.loaded_paths.iter().position(|path| *path == beside) {
            if !above.contains(&before) {
                return Some(None);
            }
            let round = above.iter().skip_while(|n| **n != before).chain([&before]);
            let names: Vec<String> = round.map(|n| self.loaded_paths[*n].display().to_string()).collect();
            faults.add(place.clone(), format!("files include each other: {}", names.join(" includes ")));
            return None;
        }
        if self.loaded_paths.len() >= MOST_FILES {
            faults.add(place.clone(), format!("more than {MOST_FILES} files are included"));
            return None;
        }
        self.open_file(beside, place, faults).map(Some)
    }

    fn open_file(
        &mut self,
        path: PathBuf,
        place: &OptionalPosition,
        faults: &mut DiagnosticCollector,
    ) -> Option<usize> {
        match self.outside.read_text(&path) {
            Ok(text) => {
                let source = faults.add_source(path.display().to_string(), text);
                self.loaded_paths.push(path);
                Some(source)
            }
            Err(why) => {
                faults.add(place.clone(), why);
                None
            }
        }
    }

    fn check_version(&self, own: &mut TreeNode, faults: &mut DiagnosticCollector) {
        let Some(version) = own.take_entry(VERSION) else { return };
        let newest = self.format.version;
        let message = match version.node.item {
            TreeItem::Integer(n) if (1..=i64::from(newest)).contains(&n) => return,
            TreeItem::Integer(n) if n > i64::from(newest) => format!(
                "this file is {} of version {n}, but this program reads versions up to {newest}; use a newer release",
                self.format.description
            ),
            _ => format!("version must be a whole number from 1 to {newest}"),
        };
        faults.add(version.node.span, message);
    }
}

/// Merges two trees; settings of `over` take precedence.
fn merge_trees(mut under: TreeNode, over: TreeNode) -> TreeNode {
    let (TreeItem::Table(entries), TreeItem::Table(more)) = (&mut under.item, over.item) else {
        return under;
    };
    under.span = over.span;
    for TableEntry { key, key_span, node } in more {
        let Some(entry) = entries.iter_mut().find(|e| e.key == key) else {
            entries.push(TableEntry { key, key_span, node });
            continue;
        };
        let tables = |nodes: &[TreeNode]| nodes.iter().all(|n| matches!(n.item, TreeItem::Table(_)));
        match (&mut entry.node.item, node.item) {
            (TreeItem::Table(_), item @ TreeItem::Table(_)) => {
                let below = std::mem::replace(&mut entry.node, TreeNode::new(None, TreeItem::Bool(false)));
                entry.node = merge_trees(below, TreeNode::new(node.span, item));
            }
            (TreeItem::Array(nodes), TreeItem::Array(further)) if tables(nodes) && tables(&further) => {
                nodes.extend(further);
            }
            (item, own) => {
                *item = own;
                entry.node.span = node.span;
            }
        }
        entry.key_span = key_span;
    }
    under
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConfigValue;

    const FORMAT: ConfigFormat = ConfigFormat {
        description: "a test",
        version: 2,
        retired: &[RetiredKey::renamed(&["pool", "range"], "size", "length")],
    };

    /// Files by name.
    struct MemoryFiles<'a>(&'a [(&'a str, &'a str)]);

    impl ConfigEnvironment for MemoryFiles<'_> {
        fn read_text(&self, path: &Path) -> Result<String, String> {
            let found = self.0.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| format!("{}: not there", path.display()))
        }
        fn read_secret(&self, path: &Path) -> Result<String, String> {
            self.read_text(path)
        }
        fn variable(&self, _: &str) -> Option<String> {
            None
        }
    }

    /// The value of the first file or the faults, and the warnings.
    fn read_files(files: &[(&str, &str)]) -> (Result<Option<ConfigValue>, String>, Vec<String>) {
        let (name, text) = files[0];
        let mut faults = DiagnosticCollector::new(name, text);
        let node = read_document(&FORMAT, &MemoryFiles(files), &mut faults);
        let warnings = faults.warnings().iter().map(ToString::to_string).collect();
        (faults.finish(node).map(|node| node.to_value()).map_err(|f| f.to_string()), warnings)
    }

    fn read_as_text(files: &[(&str, &str)]) -> String {
        read_files(files).0.map(|value| value.map_or(String::new(), |v| v.to_string())).unwrap_or_else(|e| e)
    }

    #[test]
    fn without_a_folder_a_file_has_the_name_that_it_is_given() {
        assert_eq!(EmptyConfigEnvironment.canonical_name(Path::new("f/../a.toml")), Ok("f/../a.toml".into()));
        assert!(
            EmptyConfigEnvironment.read_text(Path::new("a")).is_err()
                && EmptyConfigEnvironment.read_secret(Path::new("a")).is_err()
        );
        assert_eq!(
            (
                EmptyConfigEnvironment.variable("PATH"),
                EmptyConfigEnvironment.check_database("postgresql://h/d")
            ),
            (None, Ok(()))
        );
        // A host that reads only texts still honours the limit of octets.
        let folder = MemoryFiles(&[("a", "12345")]);
        assert_eq!(folder.read_octets(Path::new("a"), 3), Ok(b"123".to_vec()));
        assert_eq!(folder.read_octets(Path::new("a"), 9), Ok(b"12345".to_vec()));
    }

    #[test]
    fn tables_are_joined_and_arrays_of_tables_appended() {
        let main = "include = [\"sub/a.toml\", \"b.toml\"]\nx = 1\n[t]\ny = 2\n[[l]]\nn = 3\n";
        let files = [
            ("f/main.toml", main),
            ("f/sub/a.toml", "include = [\"../b.toml\"]\nx = 7\nz = [1]\n[t]\ny = 8\nw = 9\n[[l]]\nn = 1\n"),
            ("f/sub/../b.toml", "z = [2, 3]\n[[l]]\nn = 0\n"),
            ("f/b.toml", "[[l]]\nn = 2\n"),
        ];
        assert_eq!(
            read_as_text(&files),
            "{ z = [1], l = [{ n = 0 }, { n = 1 }, { n = 2 }, { n = 3 }], x = 1, t = { y = 2, w = 9 } }"
        );
    }

    #[test]
    fn a_fault_names_the_file_that_has_it() {
        let main = ("f/main.toml", "include = [\"a.toml\"]\n");
        assert_eq!(read_as_text(&[main]), "f/main.toml:1:12: f/a.toml: not there");
        let broken = read_as_text(&[main, ("f/a.toml", "x = 1\ny = \n")]);
        assert!(broken.starts_with("f/a.toml:2:5: not TOML"), "{broken}");
        let later = read_as_text(&[main, ("f/a.toml", "version = 3\n")]);
        assert!(later.starts_with("f/a.toml:1:11: this file is a test of version 3"), "{later}");
        assert_eq!(
            read_as_text(&[("m", "version = \"1\"\n")]),
            "m:1:11: version must be a whole number from 1 to 2"
        );
        assert_eq!(read_as_text(&[("m", "version = 2\nx = 1\n")]), "{ x = 1 }");
        assert!(read_as_text(&[("m", "include = \"a\"\n")]).starts_with("m:1:11: include must be an array"));
        assert!(read_as_text(&[("m", "include = [1]\n")]).starts_with("m:1:12: expected a file name"));
    }

    #[test]
    fn files_that_include_each_other_are_refused() {
        let files = [
            ("main.toml", "include = [\"a.toml\"]\n"),
            ("a.toml", "include = [\"./b.toml\"]\n"),
            ("b.toml", "x = 1\ninclude = [\"a.toml\"]\n"),
        ];
        assert_eq!(
            read_as_text(&files),
            "b.toml:2:12: files include each other: a.toml includes b.toml includes a.toml"
        );
        let own = read_as_text(&[("a.toml", "include = [\"a.toml\"]\n")]);
        assert_eq!(own, "a.toml:1:12: files include each other: a.toml includes a.toml");
        let names: Vec<(String, String)> =
            (0..99).map(|n| (format!("{n}"), format!("include = [\"{}\"]\n", n + 1))).collect();
        let names: Vec<(&str, &str)> = names.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
        assert_eq!(read_as_text(&names), "63:1:12: more than 64 files are included");
    }

    #[test]
    fn what_is_on_its_way_out_is_read_with_a_warning() {
        let (value, warnings) =
            read_files(&[("m", "[[pool]]\n[[pool.range]]\nsize = 1\n[pool.more]\nsize = 2\n")]);
        let value = value.unwrap().unwrap().to_string();
        assert_eq!(value, "{ pool = [{ range = [{ length = 1 }], more = { size = 2 } }] }");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("m:3:1: \"size\" is deprecated"), "{warnings:?}");
        assert!(warnings[0].contains("write length"), "{warnings:?}");
    }
}
