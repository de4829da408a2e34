//! Writes a study as a single file, with its includes, profiles and service configurations.

use super::{Study, StudyFileSource};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use usher_config::tree::{TableEntry, TreeItem, TreeNode};
use usher_config::{ConfigValue, OptionalPosition};

/// Limit of a line that could be written as a section instead, in characters.
const WIDE: usize = 100;

impl Study {
    /// Returns the study as a single text, and the files that stay outside: certificates and keys, with absolute paths.
    /// A plan of the text has the same points as a plan of the study.
    pub fn resolved_text(&self) -> (String, Vec<PathBuf>) {
        let mut tree = self.tree.clone();
        tree.take_entry("include");
        let mut outside = Vec::new();
        if matches!(self.from, StudyFileSource::Disk) {
            self.make_paths_absolute(&mut tree, &mut outside);
        }
        let mut out = String::new();
        write_section(&mut out, &mut Vec::new(), tree.entries());
        (out, outside)
    }

    /// Makes relative paths of files absolute. They are relative to the folder of the file that names them.
    fn make_paths_absolute(&self, node: &mut TreeNode, outside: &mut Vec<PathBuf>) {
        match &mut node.item {
            TreeItem::Text(text) => {
                let Some(path) = self.find_named_file(&node.span, text) else { return };
                if let (true, Some(whole)) = (Path::new(text).is_relative(), path.to_str()) {
                    *text = whole.to_owned();
                }
                if !outside.contains(&path) {
                    outside.push(path);
                }
            }
            TreeItem::Array(nodes) => {
                nodes.iter_mut().for_each(|node| self.make_paths_absolute(node, outside))
            }
            TreeItem::Table(entries) => {
                entries.iter_mut().for_each(|e| self.make_paths_absolute(&mut e.node, outside))
            }
            TreeItem::Bool(_) | TreeItem::Integer(_) | TreeItem::Float(_) | TreeItem::Other(_) => {}
        }
    }

    /// Returns the file that a text names, if the text looks like a file name and the file exists.
    fn find_named_file(&self, span: &OptionalPosition, text: &str) -> Option<PathBuf> {
        let like_one = |text: &str| !text.contains(['\n', ' ']) && text.contains(['.', '/']);
        let source = span.as_ref().and_then(|span| self.sources.get(span.source)).or(self.sources.first())?;
        let path = Path::new(&source.name).parent()?.join(text);
        let path = std::path::absolute(path).ok()?;
        (like_one(text) && path.is_file()).then_some(path)
    }
}

/// Writes a table: short values on lines first, then a section for each of its tables, in order.
fn write_section(out: &mut String, path: &mut Vec<String>, entries: &[TableEntry]) {
    // Write each bundle of settings by path on one line, which is easiest to read.
    let bundle = path.first().is_some_and(|first| first == "axes" || first == "choices") && path.len() > 2;
    let divided = |node: &TreeNode| !bundle && contains_tables(node);
    // If one of several tables needs its own section, give all one, so that they keep their order.
    let long = entries
        .iter()
        .filter(|e| divided(&e.node))
        .any(|e| path.is_empty() || format_inline_value(&e.node).len() > WIDE);
    for entry in entries.iter().filter(|e| !(long && divided(&e.node))) {
        let _ = writeln!(out, "{} = {}", key_text(&entry.key), format_inline_value(&entry.node));
    }
    for entry in entries.iter().filter(|e| long && divided(&e.node)) {
        path.push(key_text(&entry.key));
        let name = path.join(".");
        match &entry.node.item {
            TreeItem::Table(entries) => {
                let _ = writeln!(out, "\n[{name}]");
                write_section(out, path, entries);
            }
            TreeItem::Array(nodes) => {
                for node in nodes {
                    let _ = writeln!(out, "\n[[{name}]]");
                    write_section(out, path, node.entries());
                }
            }
            _ => {}
        }
        path.pop();
    }
}

/// True for a table, and for an array of tables.
fn contains_tables(node: &TreeNode) -> bool {
    match &node.item {
        TreeItem::Table(_) => true,
        TreeItem::Array(nodes) => {
            !nodes.is_empty() && nodes.iter().all(|n| matches!(n.item, TreeItem::Table(_)))
        }
        _ => false,
    }
}

fn format_inline_value(node: &TreeNode) -> String {
    match &node.item {
        TreeItem::Text(text) if text.contains('\n') => {
            format!("\"\"\"\n{}\"\"\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
        TreeItem::Array(nodes) => {
            format!("[{}]", nodes.iter().map(format_inline_value).collect::<Vec<_>>().join(", "))
        }
        TreeItem::Table(entries) if entries.is_empty() => "{}".to_owned(),
        TreeItem::Table(entries) => {
            let pairs =
                entries.iter().map(|e| format!("{} = {}", key_text(&e.key), format_inline_value(&e.node)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        _ => node.to_value().map_or_else(|| "\"\"".to_owned(), |value| scalar_text(&value)),
    }
}

fn scalar_text(value: &ConfigValue) -> String {
    match value {
        ConfigValue::Bool(b) => b.to_string(),
        ConfigValue::Integer(n) => n.to_string(),
        ConfigValue::Float(x) => format!("{x:?}"),
        ConfigValue::Text(text) => quote_text(text),
        ConfigValue::Array(_) | ConfigValue::Table(_) => String::new(),
    }
}

fn key_text(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && key.chars().all(bare) { key.to_owned() } else { quote_text(key) }
}

/// Formats a text as a basic string of TOML.
fn quote_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::founding;
    use usher_config::OrderedMap;

    /// Moves values that are not tables in front of tables, as far as order does not matter.
    fn sort_tables(value: ConfigValue) -> ConfigValue {
        match value {
            ConfigValue::Array(values) => ConfigValue::Array(values.into_iter().map(sort_tables).collect()),
            ConfigValue::Table(entries) => {
                let all = || entries.iter().map(|(key, value)| (key.to_owned(), sort_tables(value.clone())));
                let of_tables = |value: &ConfigValue| match value {
                    ConfigValue::Table(_) => true,
                    ConfigValue::Array(values) => {
                        !values.is_empty() && values.iter().all(|v| matches!(v, ConfigValue::Table(_)))
                    }
                    _ => false,
                };
                let first = all().filter(|(_, value)| !of_tables(value));
                ConfigValue::Table(
                    first.chain(all().filter(|(_, value)| of_tables(value))).collect::<OrderedMap<_>>(),
                )
            }
            other => other,
        }
    }

    #[test]
    fn every_founding_study_says_the_same_in_one_file() {
        for known in founding::founding_studies() {
            let study = Study::open(known.name).unwrap();
            let (text, outside) = study.resolved_text();
            assert!(outside.is_empty(), "{}", known.name);
            let whole = Study::parse(known.name, "whole.toml", &text)
                .unwrap_or_else(|faults| panic!("{}: {faults}\n{text}", known.name));
            let of = |study: &Study| study.tree.to_value().map(sort_tables);
            assert!(of(&whole) == of(&study), "{}:\n{text}", known.name);
        }
    }

    #[test]
    fn files_beside_a_study_are_inlined_or_named_by_absolute_path() {
        let folder = std::env::temp_dir().join(format!("usher-resolved-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("study.toml", &format!("include = [\"more.toml\"]\n{}", crate::default_template()));
        write("more.toml", "# \"A \\ comment\"\n[run]\ndate = \"2026-07-02\"\n");
        let resolved = Study::load(&folder.join("study.toml")).map(|study| study.resolved_text());
        write("ca.pem", "a file");
        let mut named =
            Study::parse("t", &folder.join("study.toml").display().to_string(), crate::default_template())
                .unwrap();
        named.from = StudyFileSource::Disk;
        let mut node = TreeNode::from_value(&ConfigValue::Text("ca.pem".to_owned()), &None);
        let mut outside = Vec::new();
        named.make_paths_absolute(&mut node, &mut outside);
        let whole = folder.join("ca.pem");
        std::fs::remove_dir_all(&folder).unwrap();
        let (text, outside_of_study) = resolved.unwrap();
        assert!(!text.contains("include") && text.contains("date = \"2026-07-02\""), "{text}");
        assert!(outside_of_study.is_empty(), "{outside_of_study:?}");
        assert!(matches!(&node.item, TreeItem::Text(text) if *text == whole.display().to_string()));
        assert_eq!(outside, [whole]);
    }

    #[test]
    fn texts_come_back_as_they_were() {
        for text in ["plain", "a \"b\" \\ c", "two\nlines\n", "\"\"\"\n\\", "tab\t\u{1}", ""] {
            let node = TreeNode::from_value(&ConfigValue::Text(text.to_owned()), &None);
            let read = usher_config::tree::parse_value(&format_inline_value(&node));
            assert_eq!(read, Some(ConfigValue::Text(text.to_owned())), "{}", format_inline_value(&node));
        }
    }
}
