//! A TOML document as a tree whose every node knows its place in the text, so that settings can be put into
//! it and faults still name their line.

use crate::fault::{Collector, Span, hint};
use crate::model::Value;
use toml::de::{DeTable, DeValue};

/// A value and where it is written.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) item: Item,
    /// Found faulty: passed over from now on, so that the rest can be read.
    pub(crate) dead: bool,
}

/// What TOML can hold.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    /// What no setting takes: a date, or a number beyond its type. The text says what it is.
    Other(&'static str),
    Array(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) node: Node,
}

/// One step from a node to one below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// The tables that axes may reach into.
pub(crate) const SETTABLE: [&str; 8] =
    ["run", "hosts", "links", "cells", "bss", "transport", "workload", "background"];

/// Reads a document. Syntax errors go to the collector, at most ten of them.
pub(crate) fn parse(text: &str, faults: &mut Collector<'_>) -> Option<Node> {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors.iter().take(10) {
        faults.add(Some(error.span().unwrap_or(0..0)), format!("not TOML: {}", error.message().trim()));
    }
    errors.is_empty().then(|| Node::table(Some(0..0), table.into_inner()))
}

/// Reads a bare value, as one may be given to `--set`; `None` when it is not TOML.
pub(crate) fn parse_value(text: &str) -> Option<Value> {
    let value = DeValue::parse(text.trim()).ok()?;
    Node::new(None, value.into_inner()).value()
}

impl Node {
    fn new(span: Span, value: DeValue<'_>) -> Self {
        let item = match value {
            DeValue::String(text) => Item::Text(text.into_owned()),
            DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix())
                .map_or(Item::Other("a number beyond 64 bits"), Item::Integer),
            DeValue::Float(x) => match x.as_str().parse::<f64>() {
                Ok(x) if x.is_finite() => Item::Float(x),
                _ => Item::Other("a number that is not finite"),
            },
            DeValue::Boolean(b) => Item::Bool(b),
            DeValue::Datetime(_) => Item::Other("a date"),
            DeValue::Array(values) => {
                Item::Array(values.into_iter().map(|v| Self::new(Some(v.span()), v.into_inner())).collect())
            }
            DeValue::Table(table) => return Self::table(span, table),
        };
        Self { span, item, dead: false }
    }

    /// A table with its keys in the order of the text.
    fn table(span: Span, table: DeTable<'_>) -> Self {
        let mut entries: Vec<Entry> = table
            .into_iter()
            .map(|(key, value)| Entry {
                key_span: Some(key.span()),
                key: key.into_inner().into_owned(),
                node: Self::new(Some(value.span()), value.into_inner()),
            })
            .collect();
        entries.sort_by_key(|e| e.key_span.as_ref().map(|s| s.start));
        Self { span, item: Item::Table(entries), dead: false }
    }

    /// A node of a model's value; everything in it points to one place.
    pub(crate) fn of(value: &Value, span: &Span) -> Self {
        let item = match value {
            Value::Bool(b) => Item::Bool(*b),
            Value::Integer(n) => Item::Integer(*n),
            Value::Float(x) => Item::Float(*x),
            Value::Text(text) => Item::Text(text.clone()),
            Value::Array(values) => Item::Array(values.iter().map(|v| Self::of(v, span)).collect()),
            Value::Table(entries) => Item::Table(
                entries
                    .iter()
                    .map(|(key, value)| Entry {
                        key: key.to_owned(),
                        key_span: span.clone(),
                        node: Self::of(value, span),
                    })
                    .collect(),
            ),
        };
        Self { span: span.clone(), item, dead: false }
    }

    /// What it holds, without its places; `None` where it holds what no setting takes.
    pub(crate) fn value(&self) -> Option<Value> {
        Some(match &self.item {
            Item::Bool(b) => Value::Bool(*b),
            Item::Integer(n) => Value::Integer(*n),
            Item::Float(x) => Value::Float(*x),
            Item::Text(text) => Value::Text(text.clone()),
            Item::Other(_) => return None,
            Item::Array(nodes) => Value::Array(nodes.iter().map(Self::value).collect::<Option<_>>()?),
            Item::Table(entries) => Value::Table(
                entries.iter().map(|e| Some((e.key.clone(), e.node.value()?))).collect::<Option<_>>()?,
            ),
        })
    }

    /// A table's entries; none of anything else.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.item {
            Item::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The node one step down.
    pub(crate) fn child(&self, step: &Step) -> Option<&Node> {
        match (step, &self.item) {
            (Step::Key(key), Item::Table(entries)) => entries.iter().find(|e| e.key == *key).map(|e| &e.node),
            (Step::Index(i), Item::Array(nodes)) => nodes.get(*i),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub(crate) fn child_mut(&mut self, step: &Step) -> Option<&mut Node> {
        match (step, &mut self.item) {
            (Step::Key(key), Item::Table(entries)) => {
                entries.iter_mut().find(|e| e.key == *key).map(|e| &mut e.node)
            }
            (Step::Index(i), Item::Array(nodes)) => nodes.get_mut(*i),
            _ => None,
        }
    }

    /// Marks a node as faulty, so that it is passed over; false where it was or there is none.
    pub(crate) fn kill(&mut self, path: &[Step]) -> bool {
        let mut node = self;
        for step in path {
            match node.child_mut(step) {
                Some(child) => node = child,
                None => return false,
            }
        }
        !std::mem::replace(&mut node.dead, true)
    }

    /// True when something at or below the path was found faulty.
    pub(crate) fn damaged(&self, path: &[Step]) -> bool {
        path.iter().try_fold(self, |node, step| node.child(step)).is_some_and(Self::dead_within)
    }

    fn dead_within(&self) -> bool {
        self.dead
            || match &self.item {
                Item::Array(nodes) => nodes.iter().any(Self::dead_within),
                Item::Table(entries) => entries.iter().any(|e| e.node.dead_within()),
                _ => false,
            }
    }

    /// The place of a path: of its value, or of the key of the deepest table that exists on the way.
    pub(crate) fn place(&self, path: &[Step]) -> Span {
        let mut node = self;
        let mut place = Some(0..0);
        for step in path {
            let Some(child) = node.child(step) else { return place };
            place = match (&node.item, &child.item, step) {
                (Item::Table(entries), Item::Table(_), Step::Key(key)) => {
                    entries.iter().find(|e| e.key == *key).and_then(|e| e.key_span.clone())
                }
                _ => child.span.clone(),
            };
            node = child;
        }
        place
    }

    /// The steps of a path given as keys, where places in arrays are numbers.
    pub(crate) fn steps(&self, keys: &[String]) -> Vec<Step> {
        let mut node = Some(self);
        let mut steps = Vec::with_capacity(keys.len());
        for key in keys {
            let step = match (node.map(|n| &n.item), key.parse()) {
                (Some(Item::Array(_)), Ok(i)) => Step::Index(i),
                _ => Step::Key(key.clone()),
            };
            node = node.and_then(|n| n.child(&step));
            steps.push(step);
        }
        steps
    }

    /// Puts a node at a path, making tables on the way; `path_span` is where the path is written.
    ///
    /// # Errors
    /// Why there can be no such setting.
    pub(crate) fn set(&mut self, path: &str, value: Node, path_span: &Span) -> Result<(), String> {
        let keys = split_path(path)
            .ok_or_else(|| format!("\"{path}\" is not the path of a setting, such as \"links.core.loss\""))?;
        let wrong = |reason: String| format!("\"{path}\" names no setting: {reason}");
        if !SETTABLE.contains(&keys[0].as_str()) {
            return Err(wrong(format!("\"{}\" cannot be varied{}", keys[0], hint(&keys[0], SETTABLE))));
        }
        if keys.len() == 1 {
            return Err(wrong(format!("it is the whole of \"{path}\"; name one setting in it")));
        }
        let mut node = self;
        for (depth, key) in keys.iter().enumerate() {
            // The name of a kind alone stands for a table with that kind.
            if let Item::Text(kind) = &node.item {
                let kind = Node { span: node.span.clone(), item: Item::Text(kind.clone()), dead: false };
                let entry = Entry { key: "kind".to_owned(), key_span: node.span.clone(), node: kind };
                node.item = Item::Table(vec![entry]);
            }
            node = match &mut node.item {
                Item::Table(entries) => {
                    let found = entries.iter().position(|e| e.key == *key);
                    let named = matches!(keys[0].as_str(), "hosts" | "links" | "cells" | "bss");
                    if found.is_none() && depth == 1 && named {
                        let known = hint(key, entries.iter().map(|e| e.key.as_str()));
                        return Err(wrong(format!("there is no \"{key}\" in {}{known}", keys[0])));
                    }
                    let at = found.unwrap_or_else(|| {
                        entries.push(Entry {
                            key: key.clone(),
                            key_span: path_span.clone(),
                            node: Node {
                                span: value.span.clone(),
                                item: Item::Table(Vec::new()),
                                dead: false,
                            },
                        });
                        entries.len() - 1
                    });
                    let text = matches!(entries[at].node.item, Item::Text(_));
                    if text || depth + 1 == keys.len() {
                        entries[at].key_span = path_span.clone();
                    }
                    &mut entries[at].node
                }
                Item::Array(nodes) => {
                    let count = nodes.len();
                    let index = key.parse::<usize>().ok();
                    match index.and_then(|i| nodes.get_mut(i)) {
                        Some(child) => child,
                        None => {
                            return Err(wrong(format!(
                                "\"{key}\" is none of its {count} places, counted from 0"
                            )));
                        }
                    }
                }
                _ => return Err(wrong(format!("there is nothing below \"{}\"", keys[..depth].join(".")))),
            };
        }
        *node = value;
        Ok(())
    }
}

/// Splits `a."b.c".d` into its keys; `None` when it is malformed.
pub(crate) fn split_path(path: &str) -> Option<Vec<String>> {
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

/// A path as people write it: `links.core.loss`; places in arrays count from 0: `axes[0].values`.
pub(crate) fn show(path: &[Step]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            Step::Key(key) if out.is_empty() => out.push_str(key),
            Step::Key(key) if key.contains(['.', ' ', '"']) => out.push_str(&format!(".\"{key}\"")),
            Step::Key(key) => out.push_str(&format!(".{key}")),
            Step::Index(i) => out.push_str(&format!("[{i}]")),
        }
    }
    out
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
