//! Settings of a study by path, for axes, modes and `--set`.

use usher_config::tree::{PathStep, TableEntry, TreeItem, TreeNode};
use usher_config::{OptionalPosition, name_hint};

/// The tables whose settings axes may vary.
const SETTABLE: [&str; 9] =
    ["run", "hosts", "links", "cells", "bss", "transport", "workload", "workloads", "background"];

/// Sets the node at a path and creates missing tables. `path_span` is the position of the path.
///
/// # Errors
/// A message if there can be no such setting.
pub(crate) fn insert_setting_node(
    study: &mut TreeNode,
    path: &str,
    value: TreeNode,
    path_span: &OptionalPosition,
) -> Result<(), String> {
    let keys = split_path(path)
        .ok_or_else(|| format!("\"{path}\" is not the path of a setting, such as \"links.core.loss\""))?;
    let wrong = |reason: String| format!("\"{path}\" names no setting: {reason}");
    if !SETTABLE.contains(&keys[0].as_str()) {
        return Err(wrong(format!("\"{}\" cannot be varied{}", keys[0], name_hint(&keys[0], SETTABLE))));
    }
    if let (None, Some(TreeItem::Table(several)), true) =
        (study.get("workload"), study.get("workloads").map(|node| &node.item), keys[0] == "workload")
    {
        let known: Vec<String> = several.iter().map(|entry| format!("workloads.{}", entry.key)).collect();
        return Err(wrong(format!("the workloads of this study have names: {}", known.join(", "))));
    }
    if keys.len() == 1 {
        return Err(wrong(format!("it is all of \"{path}\": name one setting in it")));
    }
    let mut node = study;
    for (depth, key) in keys.iter().enumerate() {
        // A text instead of a table is the name of a kind. It stands for a table with only that kind.
        if let TreeItem::Text(kind) = &node.item {
            let kind = TreeNode::new(node.span.clone(), TreeItem::Text(kind.clone()));
            let entry = TableEntry { key: "kind".to_owned(), key_span: node.span.clone(), node: kind };
            node.item = TreeItem::Table(vec![entry]);
        }
        node = match &mut node.item {
            TreeItem::Table(entries) => {
                let found = entries.iter().position(|e| e.key == *key);
                let named = matches!(keys[0].as_str(), "hosts" | "links" | "cells" | "bss" | "workloads");
                if found.is_none() && depth == 1 && named {
                    let known = name_hint(key, entries.iter().map(|e| e.key.as_str()));
                    return Err(wrong(format!("there is no \"{key}\" in {}{known}", keys[0])));
                }
                let at = found.unwrap_or_else(|| {
                    entries.push(TableEntry {
                        key: key.clone(),
                        key_span: path_span.clone(),
                        node: TreeNode::new(value.span.clone(), TreeItem::Table(Vec::new())),
                    });
                    entries.len() - 1
                });
                let text = matches!(entries[at].node.item, TreeItem::Text(_));
                if text || depth + 1 == keys.len() {
                    entries[at].key_span = path_span.clone();
                }
                &mut entries[at].node
            }
            TreeItem::Array(nodes) => {
                let count = nodes.len();
                let index = key.parse::<usize>().ok();
                match index.and_then(|i| nodes.get_mut(i)) {
                    Some(child) => child,
                    None => {
                        return Err(wrong(format!(
                            "\"{key}\" is not an index of its {count} entries, counted from 0"
                        )));
                    }
                }
            }
            _ => return Err(wrong(format!("\"{}\" is not a table", keys[..depth].join(".")))),
        };
    }
    *node = value;
    Ok(())
}

/// True if no other part of the file refers to the node at a path.
pub(crate) fn is_self_contained(path: &[PathStep]) -> bool {
    match path.first() {
        Some(PathStep::Key(key)) => match key.as_str() {
            "hosts" | "links" | "cells" | "bss" | "workloads" => path.len() > 2,
            "workload" => path.len() > 1,
            "axes" => false,
            _ => true,
        },
        _ => false,
    }
}

/// True if a path is that of the setting, or of a table that contains it.
pub(crate) fn covers_setting(path: &str, setting: &str) -> bool {
    setting.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Splits `a."b.c".d` into its keys; returns `None` if it is malformed.
fn split_path(path: &str) -> Option<Vec<String>> {
    let mut keys = Vec::new();
    let mut rest = path.trim();
    loop {
        let (key, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').map(|(k, after)| (k, after.trim_start()))?,
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                (rest[..end].trim(), &rest[end..])
            }
        };
        if key.is_empty() || keys.len() > 16 {
            return None;
        }
        keys.push(key.to_owned());
        match after.strip_prefix('.') {
            Some(next) => rest = next.trim_start(),
            None if after.is_empty() => return Some(keys),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split_at_dots_outside_quotes() {
        let split = |p| split_path(p).map(|keys| keys.join("|"));
        assert_eq!(split("links.core.loss").as_deref(), Some("links|core|loss"));
        assert_eq!(split("a.\"b.c\" . d").as_deref(), Some("a|b.c|d"));
        for bad in ["", ".", "a.", ".a", "a..b", "a.\"b", "a.\"b\"c", "\"\""] {
            assert_eq!(split(bad), None, "{bad}");
        }
    }
}
