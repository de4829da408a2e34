//! A TOML document as a tree whose every node knows its place in the text, so that settings can be put into
//! it and faults still name their line.

use crate::fault::{Collector, Location, Span};
use crate::value::Value;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// A value and where it is written.
#[derive(Clone, Debug)]
pub struct TreeNode {
    /// Where it is written.
    pub span: Location,
    /// What it holds.
    pub item: Item,
    /// Found faulty: passed over from now on, so that the rest can be read.
    pub dead: bool,
}

/// What TOML can hold.
#[derive(Clone, Debug)]
pub enum Item {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Another number, finite.
    Float(f64),
    /// A text.
    Text(String),
    /// What no setting takes: a date, or a number beyond its type. The text says what it is.
    Other(&'static str),
    /// Several.
    Array(Vec<TreeNode>),
    /// Named ones, in the order of the text.
    Table(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key is written.
    pub key_span: Location,
    /// The value.
    pub node: TreeNode,
}

/// One step from a node to one below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// To the value of a table's key.
    Key(String),
    /// To one of an array's places, from 0.
    Index(usize),
}

/// Reads a file that the collector has, without those that it includes. Syntax errors go to the collector, at most ten of
/// them.
pub fn parse(source: usize, faults: &mut Collector) -> Option<TreeNode> {
    let file = faults.sources().get(source)?.clone();
    let (table, errors) = DeTable::parse_recoverable(&file.text);
    let place = |span: Range<usize>| Some(Span { source, start: span.start });
    for error in errors.iter().take(10) {
        faults.add(place(error.span().unwrap_or(0..0)), format!("not TOML: {}", error.message().trim()));
    }
    errors.is_empty().then(|| TreeNode::table(place(0..0), table.into_inner(), &place))
}

/// Reads a bare value, as one may be given to an argument of the program; `None` when it is not TOML.
#[must_use]
pub fn parse_value(text: &str) -> Option<Value> {
    let value = DeValue::parse(text.trim()).ok()?;
    TreeNode::read(None, value.into_inner(), &|_| None).value()
}

/// From octets of a text to a place.
type Places<'a> = &'a dyn Fn(Range<usize>) -> Location;

impl TreeNode {
    /// A value at a place.
    #[must_use]
    pub const fn new(span: Location, item: Item) -> Self {
        Self { span, item, dead: false }
    }

    fn read(span: Location, value: DeValue<'_>, places: Places<'_>) -> Self {
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
                let read = |v: toml::Spanned<_>| Self::read(places(v.span()), v.into_inner(), places);
                Item::Array(values.into_iter().map(read).collect())
            }
            DeValue::Table(table) => return Self::table(span, table, places),
        };
        Self::new(span, item)
    }

    /// A table with its keys in the order of the text.
    fn table(span: Location, table: DeTable<'_>, places: Places<'_>) -> Self {
        let mut entries: Vec<Entry> = table
            .into_iter()
            .map(|(key, value)| Entry {
                key_span: places(key.span()),
                key: key.into_inner().into_owned(),
                node: Self::read(places(value.span()), value.into_inner(), places),
            })
            .collect();
        entries.sort_by_key(|e| e.key_span.as_ref().map(|s| s.start));
        Self::new(span, Item::Table(entries))
    }

    /// A node of a model's value; everything in it points to one place.
    #[must_use]
    pub fn of(value: &Value, span: &Location) -> Self {
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
        Self::new(span.clone(), item)
    }

    /// What it holds, without its places; `None` where it holds what no setting takes.
    #[must_use]
    pub fn value(&self) -> Option<Value> {
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

    /// The value of a table's key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&TreeNode> {
        self.entries().iter().find(|e| e.key == key).map(|e| &e.node)
    }

    /// Takes an entry out of a table.
    pub fn take(&mut self, key: &str) -> Option<Entry> {
        let Item::Table(entries) = &mut self.item else { return None };
        let at = entries.iter().position(|e| e.key == key)?;
        Some(entries.remove(at))
    }

    /// A table's entries; none of anything else.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        match &self.item {
            Item::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The node one step down.
    #[must_use]
    pub fn child(&self, step: &Step) -> Option<&TreeNode> {
        match (step, &self.item) {
            (Step::Key(key), Item::Table(entries)) => entries.iter().find(|e| e.key == *key).map(|e| &e.node),
            (Step::Index(i), Item::Array(nodes)) => nodes.get(*i),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn child_mut(&mut self, step: &Step) -> Option<&mut TreeNode> {
        match (step, &mut self.item) {
            (Step::Key(key), Item::Table(entries)) => {
                entries.iter_mut().find(|e| e.key == *key).map(|e| &mut e.node)
            }
            (Step::Index(i), Item::Array(nodes)) => nodes.get_mut(*i),
            _ => None,
        }
    }

    /// Marks a node as faulty, so that it is passed over; false where it was or there is none.
    pub fn kill(&mut self, path: &[Step]) -> bool {
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
    #[must_use]
    pub fn damaged(&self, path: &[Step]) -> bool {
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
    ///
    /// An array of tables is where its name is.
    #[must_use]
    pub fn place(&self, path: &[Step]) -> Location {
        let mut node = self;
        let mut place = self.span.clone();
        for step in path {
            let Some(child) = node.child(step) else { return place };
            let of_tables = match &child.item {
                Item::Table(_) => true,
                Item::Array(nodes) => nodes.first().is_some_and(|n| matches!(n.item, Item::Table(_))),
                _ => false,
            };
            place = match (&node.item, step) {
                (Item::Table(entries), Step::Key(key)) if of_tables => {
                    entries.iter().find(|e| e.key == *key).and_then(|e| e.key_span.clone())
                }
                _ => child.span.clone(),
            };
            node = child;
        }
        place
    }

    /// The steps of a path given as keys, where places in arrays are numbers.
    #[must_use]
    pub fn steps(&self, keys: &[String]) -> Vec<Step> {
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
}

/// A path as people write it: `links.core.loss`; places in arrays count from 0: `axes[0].values`.
#[must_use]
pub fn show(path: &[Step]) -> String {
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
