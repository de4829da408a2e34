//! Rewrites a file in the newest version of its format and keeps comments and layout.

use crate::document::{ConfigFormat, VERSION, rewrite_retired_keys};
use crate::fault::{ConfigErrors, DiagnosticCollector};
use crate::ordered::OrderedMap;
use crate::tree;
use crate::value::ConfigValue;
use toml_edit::{Array, DocumentMut, InlineTable, Item, TableLike};

/// Returns a file's text in the newest version of its format. Included files stay as they are.
///
/// # Errors
/// The text is not TOML.
pub fn upgrade_text(name: &str, text: &str, format: &ConfigFormat) -> Result<String, ConfigErrors> {
    let mut faults = DiagnosticCollector::new(name, text);
    let trees = tree::parse_source(0, &mut faults).and_then(|old| {
        let mut new = old.clone();
        rewrite_retired_keys(&mut new, format, &mut faults);
        Some((old.to_value()?, new.to_value()?))
    });
    let document = text.parse::<DocumentMut>();
    let mut document = match document {
        Ok(document) if faults.is_empty() => document,
        Ok(_) => return faults.finish(None),
        Err(error) => {
            if faults.is_empty() {
                faults.add(None, format!("{name}: not TOML: {}", error.message()));
            }
            return faults.finish(None);
        }
    };
    let version = ConfigValue::Integer(i64::from(format.version));
    let root = document.as_table_mut();
    match trees {
        Some((ConfigValue::Table(old), ConfigValue::Table(mut new))) => {
            new.insert(VERSION.to_owned(), version);
            rewrite_table(root, &old, &new);
        }
        // A date or a non-finite number is never valid; the reader reports it.
        _ => drop(root.insert(VERSION, to_toml_item(&version))),
    }
    Ok(document.to_string())
}

/// Changes a table to the wanted entries. Entries that are right already keep their text.
fn rewrite_table(table: &mut dyn TableLike, old: &OrderedMap<ConfigValue>, new: &OrderedMap<ConfigValue>) {
    // A comment on a retired key moves to its replacement.
    let mut comments = String::new();
    for key in old.names().filter(|key| new.get(key).is_none()) {
        let before = table.key(key).and_then(|k| k.leaf_decor().prefix()?.as_str());
        comments.push_str(before.unwrap_or_default());
        let gone = table.remove(key);
        let behind = gone.as_ref().and_then(|item| item.as_value()?.decor().suffix()?.as_str());
        if let Some(behind) = behind.map(str::trim).filter(|text| !text.is_empty()) {
            comments.push_str(behind);
            comments.push('\n');
        }
    }
    for (key, wanted) in new.iter() {
        match (old.get(key), table.get_mut(key)) {
            (Some(is), _) if is == wanted => continue,
            (Some(is), Some(item)) => update_toml_item(item, is, wanted),
            _ => drop(table.insert(key, to_toml_item(wanted))),
        }
        if let Some(mut key) = table.key_mut(key) {
            let decor = key.leaf_decor_mut();
            let own = decor.prefix().and_then(|p| p.as_str()).unwrap_or_default();
            let all = std::mem::take(&mut comments) + own;
            decor.set_prefix(all);
        }
    }
}

fn update_toml_item(there: &mut Item, old: &ConfigValue, new: &ConfigValue) {
    match (old, new) {
        (ConfigValue::Table(old), ConfigValue::Table(new)) => {
            if let Some(table) = there.as_table_like_mut() {
                return rewrite_table(table, old, new);
            }
        }
        (ConfigValue::Array(old), ConfigValue::Array(new)) if old.len() == new.len() => {
            if let Some(tables) = there.as_array_of_tables_mut() {
                for (table, (old, new)) in tables.iter_mut().zip(old.iter().zip(new)) {
                    if let (ConfigValue::Table(old), ConfigValue::Table(new)) = (old, new) {
                        rewrite_table(table, old, new);
                    }
                }
                return;
            }
        }
        _ => {}
    }
    let mut value = to_plain_value(new);
    if let Some(old) = there.as_value() {
        *value.decor_mut() = old.decor().clone();
    }
    *there = Item::Value(value);
}

fn to_toml_item(new: &ConfigValue) -> Item {
    Item::Value(to_plain_value(new))
}

fn to_plain_value(new: &ConfigValue) -> toml_edit::Value {
    match new {
        ConfigValue::Bool(b) => (*b).into(),
        ConfigValue::Integer(n) => (*n).into(),
        ConfigValue::Float(x) => (*x).into(),
        ConfigValue::Text(text) => text.as_str().into(),
        ConfigValue::Array(values) => values.iter().map(to_plain_value).collect::<Array>().into(),
        ConfigValue::Table(entries) => {
            entries.iter().map(|(key, value)| (key, to_plain_value(value))).collect::<InlineTable>().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RetiredKey;

    const FORMAT: ConfigFormat = ConfigFormat {
        description: "a test",
        version: 3,
        retired: &[RetiredKey::renamed(&["a"], "old", "new"), RetiredKey::renamed(&["l"], "n", "m")],
    };

    #[test]
    fn comments_and_layout_stay() {
        let text = "# Of the file.\nx  = 1 # one\n\n# Of a.\n[a]\n# Why it is so.\nold = \"é\" # behind\nother = [1,\n  2]\n\n\
                    [[l]]\nn = 1\n[[l]]\n# Two.\nz = { n = 5 }\n";
        let new = "# Of the file.\nx  = 1 # one\nversion = 3\n\n# Of a.\n[a]\nother = [1,\n  2]\n# Why it is so.\n# behind\nnew = \"é\"\n\n\
                   [[l]]\nm = 1\n[[l]]\n# Two.\nz = { n = 5 }\n";
        assert_eq!(upgrade_text("m", text, &FORMAT).unwrap(), new);
        assert_eq!(upgrade_text("m", new, &FORMAT).unwrap(), new, "what is new stays as it is");
        assert_eq!(upgrade_text("m", "version = 1 # first\n", &FORMAT).unwrap(), "version = 3 # first\n");
        assert_eq!(
            upgrade_text("m", "l = [{ n = 1 }]\n", &FORMAT).unwrap(),
            "l = [{ m = 1 }]\nversion = 3\n"
        );
    }

    #[test]
    fn what_is_no_toml_is_said_with_its_line() {
        let said = upgrade_text("m", "x = 1\ny = \n", &FORMAT).unwrap_err().to_string();
        assert!(said.starts_with("m:2:5: not TOML"), "{said}");
    }
}
