//! Turns a tree into typed values with serde. Every fault knows its place.
//!
//! Two conventions are added to serde's:
//! - A choice between kinds is a table with a `kind`, or the name of the kind alone.
//! - If a choice has a variant named `literal`, that variant takes any other text.

use crate::fault::{DiagnosticCollector, OptionalPosition, name_hint, quote_names};
use crate::tree::{PathStep, TableEntry, TreeItem, TreeNode, format_path};
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, EnumAccess, Error as _, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use std::fmt;

/// The variant that takes a plain text or number.
const LITERAL: &str = "literal";
/// Limit of reported faults. A file with more is probably of another format.
const MAX_FAULTS: usize = 100;

/// A fault and the node where it is.
#[derive(Debug)]
pub(crate) struct DeserializeError {
    kind: DeserializeErrorKind,
    span: Option<OptionalPosition>,
    /// Path from the faulty node up to the root.
    path: Vec<PathStep>,
}

#[derive(Debug)]
enum DeserializeErrorKind {
    Unknown { key: String, known_keys: Vec<&'static str> },
    Missing(&'static str),
    Value(String),
}

impl DeserializeError {
    fn from_message(message: String) -> Self {
        Self { kind: DeserializeErrorKind::Value(message), span: None, path: Vec::new() }
    }
    /// Sets the position, unless a more deeply nested one is known.
    fn with_position(mut self, span: &OptionalPosition) -> Self {
        self.span.get_or_insert_with(|| span.clone());
        self
    }
    fn with_path_step(mut self, step: PathStep) -> Self {
        self.path.push(step);
        self
    }
}

impl fmt::Display for DeserializeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            DeserializeErrorKind::Unknown { key, .. } => write!(f, "unknown key \"{key}\""),
            DeserializeErrorKind::Missing(key) => write!(f, "\"{key}\" is missing"),
            DeserializeErrorKind::Value(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for DeserializeError {}

/// Describes the value found, in the terms of a file's author.
fn describe_found_value(unexpected: &Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Bool(b) => b.to_string(),
        Unexpected::Unsigned(n) => n.to_string(),
        Unexpected::Signed(n) => n.to_string(),
        Unexpected::Float(x) => x.to_string(),
        Unexpected::Str(text) => format!("\"{text}\""),
        Unexpected::Seq => "an array".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        Unexpected::Other(what) => (*what).to_owned(),
        other => other.to_string(),
    }
}

/// Describes the value needed, in the terms of a file's author.
fn describe_expected_value(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "u8" => "a whole number from 0 to 255".to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u32" => "a whole number from 0 to 4294967295".to_owned(),
        "u64" | "usize" => "a whole number of zero or more".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "IP address" => "an IP address in quotes".to_owned(),
        "socket address" => "an IP address and port in quotes".to_owned(),
        "path string" => "a path in quotes".to_owned(),
        "a string" => "a text in quotes".to_owned(),
        "a sequence" => "an array".to_owned(),
        _ if text.starts_with("struct ") => "a table".to_owned(),
        _ => text,
    }
}

/// Describes the error of a parser of the standard library in the terms of a file's author or a command's user. `None`
/// for other texts.
#[must_use]
pub fn describe_parse_error(message: &str) -> Option<&'static str> {
    Some(match message {
        "invalid IP address syntax" => "expected an IP address, such as \"192.0.2.1\" or \"2001:db8::1\"",
        "invalid IPv4 address syntax" => "expected an IPv4 address, such as \"192.0.2.1\"",
        "invalid IPv6 address syntax" => "expected an IPv6 address, such as \"2001:db8::1\"",
        "invalid socket address syntax" => {
            "expected an IP address and port, such as \"192.0.2.1:1812\" or \"[2001:db8::1]:1812\""
        }
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "expected a whole number"
        }
        "number too large to fit in target type" => "the number is too large",
        "number too small to fit in target type" => "the number is too small",
        "number would be zero for non-zero type" => "expected 1 or more",
        "invalid float literal" | "cannot parse float from empty string" => "expected a number",
        _ => return None,
    })
}

impl de::Error for DeserializeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let message = message.to_string();
        Self::from_message(describe_parse_error(&message).map_or(message, str::to_owned))
    }
    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::from_message(format!(
            "found {}, expected {}",
            describe_found_value(&unexpected),
            describe_expected_value(expected)
        ))
    }
    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }
    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self {
            kind: DeserializeErrorKind::Unknown { key: key.to_owned(), known_keys: known.to_vec() },
            span: None,
            path: Vec::new(),
        }
    }
    fn missing_field(key: &'static str) -> Self {
        Self { kind: DeserializeErrorKind::Missing(key), span: None, path: Vec::new() }
    }
}

/// Reads a typed value. Faults go to the collector, and faulty nodes are marked dead, so that the next pass finds the
/// remaining faults. `alone` returns true if no other part of the file refers to the node at a path.
pub fn read_typed<T: DeserializeOwned>(
    tree: &mut TreeNode,
    alone: fn(&[PathStep]) -> bool,
    faults: &mut DiagnosticCollector,
) -> ReadOutcome<T> {
    let mut whole = true;
    let before = faults.len();
    loop {
        let error =
            match T::deserialize(NodeDeserializer { node: tree, table_position: &tree.span, kind: None }) {
                Ok(value) => return ReadOutcome { value: Some(value), is_complete: whole },
                Err(error) => error,
            };
        let path: Vec<PathStep> = error.path.iter().rev().cloned().collect();
        let mut parent = path.clone();
        // The key is missing only because it was left out for a fault of its own, which is reported already.
        let known = match &error.kind {
            DeserializeErrorKind::Missing(key) => {
                parent.push(PathStep::Key((*key).to_owned()));
                let lost = node_at(tree, &parent).is_some();
                parent.pop();
                lost
            }
            // The array is too short because a faulty element, reported already, was left out.
            DeserializeErrorKind::Value(_) => node_at(tree, &path).is_some_and(
                |node| matches!(&node.item, TreeItem::Array(nodes) if nodes.iter().any(|n| n.dead)),
            ),
            DeserializeErrorKind::Unknown { .. } => false,
        };
        if !known {
            faults.add(
                error.span.clone().unwrap_or_else(|| tree.position_of(&path)),
                describe_error(&error, &path),
            );
        }
        whole &= alone(&path);
        if path.is_empty() || !tree.mark_dead(&path) || faults.len() - before >= MAX_FAULTS {
            return ReadOutcome { value: None, is_complete: false };
        }
    }
}

/// The result of [`read_typed`].
#[derive(Debug)]
pub struct ReadOutcome<T> {
    /// The value, if the rest of the tree could be read.
    pub value: Option<T>,
    /// True if no node was left out that others may refer to.
    pub is_complete: bool,
}

fn node_at<'a>(tree: &'a TreeNode, path: &[PathStep]) -> Option<&'a TreeNode> {
    path.iter().try_fold(tree, |node, step| node.child(step))
}

fn describe_error(error: &DeserializeError, path: &[PathStep]) -> String {
    match &error.kind {
        DeserializeErrorKind::Unknown { key, known_keys: known } => {
            let table = format_path(&path[..path.len().saturating_sub(1)]);
            let place = if table.is_empty() { "at the top".to_owned() } else { format!("in {table}") };
            format!("unknown key \"{key}\" {place}{}", name_hint(key, known.iter().copied()))
        }
        DeserializeErrorKind::Missing(key) if path.is_empty() => format!("\"{key}\" is missing at the top"),
        DeserializeErrorKind::Missing(key) => format!("\"{key}\" is missing in {}", format_path(path)),
        DeserializeErrorKind::Value(message) if path.is_empty() => message.clone(),
        DeserializeErrorKind::Value(message) => format!("{}: {message}", format_path(path)),
    }
}

/// Deserializes one node. If `kind` is set, the node is a table with its `kind` already read.
#[derive(Clone, Copy)]
struct NodeDeserializer<'a> {
    node: &'a TreeNode,
    /// Position at which a missing key is reported: the table's name.
    table_position: &'a OptionalPosition,
    kind: Option<&'a str>,
}

impl<'a> NodeDeserializer<'a> {
    fn table_access(&self, entries: &'a [TableEntry]) -> TableAccess<'a> {
        TableAccess { rest: entries.iter(), current: None, skip_kind: self.kind.is_some() }
    }
    fn array_access(nodes: &'a [TreeNode]) -> ArrayAccess<'a> {
        ArrayAccess { nodes: nodes.iter().enumerate() }
    }
}

impl<'de> de::Deserializer<'de> for NodeDeserializer<'_> {
    type Error = DeserializeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        let result = match &self.node.item {
            TreeItem::Bool(b) => visitor.visit_bool(*b),
            TreeItem::Integer(n) => visitor.visit_i64(*n),
            TreeItem::Float(x) => visitor.visit_f64(*x),
            TreeItem::Text(text) if self.kind.is_none() => visitor.visit_str(text),
            TreeItem::Text(_) => visitor.visit_map(self.table_access(&[])),
            TreeItem::Other(what) => Err(DeserializeError::invalid_type(Unexpected::Other(what), &visitor)),
            TreeItem::Array(nodes) => visitor.visit_seq(Self::array_access(nodes)),
            TreeItem::Table(entries) => visitor.visit_map(self.table_access(entries)),
        };
        let whole_table = matches!(self.node.item, TreeItem::Table(_));
        result.map_err(|e| e.with_position(if whole_table { self.table_position } else { &self.node.span }))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        match &self.node.item {
            TreeItem::Array(nodes) if nodes.len() != len => {
                Err(DeserializeError::from_message(format!("expected {len} values, found {}", nodes.len()))
                    .with_position(&self.node.span))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        let kinds: Vec<&str> = variants.iter().copied().filter(|v| *v != LITERAL).collect();
        let literal = variants.len() > kinds.len();
        let unknown = |name: &str, span: &OptionalPosition| {
            DeserializeError::from_message(format!(
                "\"{name}\" is not known here{}",
                name_hint(name, kinds.iter().copied())
            ))
            .with_position(span)
        };
        let chosen = match &self.node.item {
            TreeItem::Text(name) if kinds.contains(&name.as_str()) => name.as_str(),
            TreeItem::Text(name) if !literal => return Err(unknown(name, &self.node.span)),
            TreeItem::Table(entries) => {
                let Some(kind) = entries.iter().find(|e| e.key == "kind" && !e.node.dead) else {
                    let message = format!("\"kind\" is missing: one of {}", quote_names(&kinds));
                    return Err(DeserializeError::from_message(message).with_position(self.table_position));
                };
                match &kind.node.item {
                    TreeItem::Text(name) if kinds.contains(&name.as_str()) => name.as_str(),
                    TreeItem::Text(name) => return Err(unknown(name, &kind.node.span)),
                    _ => {
                        let message = format!("\"kind\" must be one of {}", quote_names(&kinds));
                        return Err(DeserializeError::from_message(message).with_position(&kind.node.span));
                    }
                }
            }
            _ if literal => LITERAL,
            _ => {
                let message = format!("expected one of {}", quote_names(&kinds));
                return Err(DeserializeError::from_message(message).with_position(&self.node.span));
            }
        };
        let content = Self { kind: (chosen != LITERAL).then_some(chosen), ..self };
        visitor
            .visit_enum(ChosenVariantAccess { chosen, content })
            .map_err(|e| e.with_position(self.table_position))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple_struct map struct identifier ignored_any
    }
}

struct TableAccess<'a> {
    rest: std::slice::Iter<'a, TableEntry>,
    current: Option<&'a TableEntry>,
    skip_kind: bool,
}

impl<'de> MapAccess<'de> for TableAccess<'_> {
    type Error = DeserializeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DeserializeError> {
        self.current = self.rest.find(|e| !(e.node.dead || self.skip_kind && e.key == "kind"));
        let Some(entry) = self.current else { return Ok(None) };
        let key: StrDeserializer<'_, DeserializeError> = entry.key.as_str().into_deserializer();
        seed.deserialize(key)
            .map(Some)
            .map_err(|e| e.with_position(&entry.key_span).with_path_step(PathStep::Key(entry.key.clone())))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DeserializeError> {
        let Some(entry) = self.current else { return Err(DeserializeError::custom("a key without a value")) };
        seed.deserialize(NodeDeserializer { node: &entry.node, table_position: &entry.key_span, kind: None })
            .map_err(|e| e.with_position(&entry.node.span).with_path_step(PathStep::Key(entry.key.clone())))
    }
}

struct ArrayAccess<'a> {
    nodes: std::iter::Enumerate<std::slice::Iter<'a, TreeNode>>,
}

impl<'de> SeqAccess<'de> for ArrayAccess<'_> {
    type Error = DeserializeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DeserializeError> {
        let Some((i, node)) = self.nodes.find(|(_, n)| !n.dead) else { return Ok(None) };
        seed.deserialize(NodeDeserializer { node, table_position: &node.span, kind: None })
            .map(Some)
            .map_err(|e| e.with_position(&node.span).with_path_step(PathStep::Index(i)))
    }
}

struct ChosenVariantAccess<'a> {
    chosen: &'a str,
    content: NodeDeserializer<'a>,
}

impl<'de, 'a> EnumAccess<'de> for ChosenVariantAccess<'a> {
    type Error = DeserializeError;
    type Variant = NodeDeserializer<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, NodeDeserializer<'a>), DeserializeError> {
        let name: StrDeserializer<'_, DeserializeError> = self.chosen.into_deserializer();
        Ok((seed.deserialize(name)?, self.content))
    }
}

impl<'de> VariantAccess<'de> for NodeDeserializer<'_> {
    type Error = DeserializeError;

    fn unit_variant(self) -> Result<(), DeserializeError> {
        match &self.node.item {
            TreeItem::Table(entries) => match entries.iter().find(|e| e.key != "kind" && !e.node.dead) {
                Some(extra) => {
                    let kind = self.kind.unwrap_or_default();
                    let message = format!("unknown key \"{}\": \"{kind}\" has no settings", extra.key);
                    Err(DeserializeError::from_message(message)
                        .with_position(&extra.key_span)
                        .with_path_step(PathStep::Key(extra.key.clone())))
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DeserializeError> {
        seed.deserialize(self)
    }
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, DeserializeError> {
        de::Deserializer::deserialize_tuple(self, len, visitor)
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        de::Deserializer::deserialize_any(self, visitor)
    }
}

#[cfg(test)]
mod tests;
