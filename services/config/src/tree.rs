//! A TOML document as a tree. Every node knows its position in the text, so that faults name their line even after
//! settings were overridden.

use crate::fault::{DiagnosticCollector, OptionalPosition, SourcePosition};
use crate::value::ConfigValue;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// A value and its position.
#[derive(Clone, Debug)]
pub struct TreeNode {
    /// Position in the text.
    pub span: OptionalPosition,
    /// The value.
    pub item: TreeItem,
    /// True if the node is faulty. The reader skips it, so that it can read the rest.
    pub dead: bool,
}

/// A TOML value.
#[derive(Clone, Debug)]
pub enum TreeItem {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A finite number with a fraction.
    Float(f64),
    /// A text.
    Text(String),
    /// A value that no setting takes, such as a date or a number out of range. The text describes it.
    Other(&'static str),
    /// An array.
    Array(Vec<TreeNode>),
    /// A table, in the order of the text.
    Table(Vec<TableEntry>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct TableEntry {
    /// Its name.
    pub key: String,
    /// Position of the key.
    pub key_span: OptionalPosition,
    /// The value.
    pub node: TreeNode,
}

/// One step from a node to a child.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathStep {
    /// To the value of a key.
    Key(String),
    /// To an element of an array, from 0.
    Index(usize),
}

/// Parses a file of the collector, without its includes. Adds at most ten syntax errors to the collector.
pub fn parse_source(source: usize, faults: &mut DiagnosticCollector) -> Option<TreeNode> {
    let file = faults.from_sources().get(source)?.clone();
    let (table, errors) = DeTable::parse_recoverable(&file.text);
    let place = |span: Range<usize>| Some(SourcePosition { source, start: span.start });
    for error in errors.iter().take(10) {
        faults.add(place(error.span().unwrap_or(0..0)), format!("not TOML: {}", error.message().trim()));
    }
    errors.is_empty().then(|| TreeNode::from_table(place(0..0), table.into_inner(), &place))
}

/// Parses a single value, such as one in a program argument. Returns `None` if it is not TOML.
#[must_use]
pub fn parse_value(text: &str) -> Option<ConfigValue> {
    let value = DeValue::parse(text.trim()).ok()?;
    TreeNode::from_toml(None, value.into_inner(), &|_| None).to_value()
}

/// Converts a range of octets to a position.
type PositionLookup<'a> = &'a dyn Fn(Range<usize>) -> OptionalPosition;

impl TreeNode {
    /// Creates a node.
    #[must_use]
    pub const fn new(span: OptionalPosition, item: TreeItem) -> Self {
        Self { span, item, dead: false }
    }

    fn from_toml(span: OptionalPosition, value: DeValue<'_>, places: PositionLookup<'_>) -> Self {
        let item = match value {
            DeValue::String(text) => TreeItem::Text(text.into_owned()),
            DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix())
                .map_or(TreeItem::Other("a number beyond 64 bits"), TreeItem::Integer),
            DeValue::Float(x) => match x.as_str().parse::<f64>() {
                Ok(x) if x.is_finite() => TreeItem::Float(x),
                _ => TreeItem::Other("a number that is not finite"),
            },
            DeValue::Boolean(b) => TreeItem::Bool(b),
            DeValue::Datetime(_) => TreeItem::Other("a date"),
            DeValue::Array(values) => {
                let read = |v: toml::Spanned<_>| Self::from_toml(places(v.span()), v.into_inner(), places);
                TreeItem::Array(values.into_iter().map(read).collect())
            }
            DeValue::Table(table) => return Self::from_table(span, table, places),
        };
        Self::new(span, item)
    }

    /// Creates a table with its keys in the order of the text.
    fn from_table(span: OptionalPosition, table: DeTable<'_>, places: PositionLookup<'_>) -> Self {
        let mut entries: Vec<TableEntry> = table
            .into_iter()
            .map(|(key, value)| TableEntry {
                key_span: places(key.span()),
                key: key.into_inner().into_owned(),
                node: Self::from_toml(places(value.span()), value.into_inner(), places),
            })
            .collect();
        entries.sort_by_key(|e| e.key_span.as_ref().map(|s| s.start));
        Self::new(span, TreeItem::Table(entries))
    }

    /// Converts a value to a node; all its positions are `span`.
    #[must_use]
    pub fn from_value(value: &ConfigValue, span: &OptionalPosition) -> Self {
        let item = match value {
            ConfigValue::Bool(b) => TreeItem::Bool(*b),
            ConfigValue::Integer(n) => TreeItem::Integer(*n),
            ConfigValue::Float(x) => TreeItem::Float(*x),
            ConfigValue::Text(text) => TreeItem::Text(text.clone()),
            ConfigValue::Array(values) => {
                TreeItem::Array(values.iter().map(|v| Self::from_value(v, span)).collect())
            }
            ConfigValue::Table(entries) => TreeItem::Table(
                entries
                    .iter()
                    .map(|(key, value)| TableEntry {
                        key: key.to_owned(),
                        key_span: span.clone(),
                        node: Self::from_value(value, span),
                    })
                    .collect(),
            ),
        };
        Self::new(span.clone(), item)
    }

    /// Converts the node to a value without positions. Returns `None` if it contains a [`TreeItem::Other`].
    #[must_use]
    pub fn to_value(&self) -> Option<ConfigValue> {
        Some(match &self.item {
            TreeItem::Bool(b) => ConfigValue::Bool(*b),
            TreeItem::Integer(n) => ConfigValue::Integer(*n),
            TreeItem::Float(x) => ConfigValue::Float(*x),
            TreeItem::Text(text) => ConfigValue::Text(text.clone()),
            TreeItem::Other(_) => return None,
            TreeItem::Array(nodes) => {
                ConfigValue::Array(nodes.iter().map(Self::to_value).collect::<Option<_>>()?)
            }
            TreeItem::Table(entries) => ConfigValue::Table(
                entries.iter().map(|e| Some((e.key.clone(), e.node.to_value()?))).collect::<Option<_>>()?,
            ),
        })
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&TreeNode> {
        self.entries().iter().find(|e| e.key == key).map(|e| &e.node)
    }

    /// Removes an entry of a table and returns it.
    pub fn take_entry(&mut self, key: &str) -> Option<TableEntry> {
        let TreeItem::Table(entries) = &mut self.item else { return None };
        let at = entries.iter().position(|e| e.key == key)?;
        Some(entries.remove(at))
    }

    /// The entries of a table; empty for any other node.
    #[must_use]
    pub fn entries(&self) -> &[TableEntry] {
        match &self.item {
            TreeItem::Table(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the child at a step.
    #[must_use]
    pub fn child(&self, step: &PathStep) -> Option<&TreeNode> {
        match (step, &self.item) {
            (PathStep::Key(key), TreeItem::Table(entries)) => {
                entries.iter().find(|e| e.key == *key).map(|e| &e.node)
            }
            (PathStep::Index(i), TreeItem::Array(nodes)) => nodes.get(*i),
            _ => None,
        }
    }

    /// Like `child`, mutable.
    pub fn child_mut(&mut self, step: &PathStep) -> Option<&mut TreeNode> {
        match (step, &mut self.item) {
            (PathStep::Key(key), TreeItem::Table(entries)) => {
                entries.iter_mut().find(|e| e.key == *key).map(|e| &mut e.node)
            }
            (PathStep::Index(i), TreeItem::Array(nodes)) => nodes.get_mut(*i),
            _ => None,
        }
    }

    /// Marks the node at a path as faulty. Returns false if there is none, or if it is marked already.
    pub fn mark_dead(&mut self, path: &[PathStep]) -> bool {
        let mut node = self;
        for step in path {
            match node.child_mut(step) {
                Some(child) => node = child,
                None => return false,
            }
        }
        !std::mem::replace(&mut node.dead, true)
    }

    /// True if the node at a path, or one below it, is faulty.
    #[must_use]
    pub fn has_faulty_node_at(&self, path: &[PathStep]) -> bool {
        path.iter().try_fold(self, |node, step| node.child(step)).is_some_and(Self::contains_dead_nodes)
    }

    fn contains_dead_nodes(&self) -> bool {
        self.dead
            || match &self.item {
                TreeItem::Array(nodes) => nodes.iter().any(Self::contains_dead_nodes),
                TreeItem::Table(entries) => entries.iter().any(|e| e.node.contains_dead_nodes()),
                _ => false,
            }
    }

    /// Returns the position of the value at a path, or of the deepest existing key on the way.
    ///
    /// The position of an array of tables is its name.
    #[must_use]
    pub fn position_of(&self, path: &[PathStep]) -> OptionalPosition {
        let mut node = self;
        let mut place = self.span.clone();
        for step in path {
            let Some(child) = node.child(step) else { return place };
            let of_tables = match &child.item {
                TreeItem::Table(_) => true,
                TreeItem::Array(nodes) => nodes.first().is_some_and(|n| matches!(n.item, TreeItem::Table(_))),
                _ => false,
            };
            place = match (&node.item, step) {
                (TreeItem::Table(entries), PathStep::Key(key)) if of_tables => {
                    entries.iter().find(|e| e.key == *key).and_then(|e| e.key_span.clone())
                }
                _ => child.span.clone(),
            };
            node = child;
        }
        place
    }

    /// Converts keys to steps; an array index is a number.
    #[must_use]
    pub fn resolve_keys(&self, keys: &[String]) -> Vec<PathStep> {
        let mut node = Some(self);
        let mut steps = Vec::with_capacity(keys.len());
        for key in keys {
            let step = match (node.map(|n| &n.item), key.parse()) {
                (Some(TreeItem::Array(_)), Ok(i)) => PathStep::Index(i),
                _ => PathStep::Key(key.clone()),
            };
            node = node.and_then(|n| n.child(&step));
            steps.push(step);
        }
        steps
    }
}

/// Formats a path: `links.core.loss`, `axes[0].values`. Array indices count from 0.
#[must_use]
pub fn format_path(path: &[PathStep]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            PathStep::Key(key) if out.is_empty() => out.push_str(key),
            PathStep::Key(key) if key.contains(['.', ' ', '"']) => out.push_str(&format!(".\"{key}\"")),
            PathStep::Key(key) => out.push_str(&format!(".{key}")),
            PathStep::Index(i) => out.push_str(&format!("[{i}]")),
        }
    }
    out
}
