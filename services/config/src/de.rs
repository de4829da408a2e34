//! From the tree to typed values, with serde, such that every fault knows its place.
//!
//! Two conventions beyond serde's own: a choice between kinds is written as a table with a `kind` (or the
//! kind's name alone), and a choice with a variant named `literal` takes any other text for that variant.

use crate::fault::{Collector, Location, hint, quoted};
use crate::tree::{Entry, Item, Step, TreeNode, show};
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, EnumAccess, Error as _, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use std::fmt;

/// The variant that takes a plain text or number.
const LITERAL: &str = "literal";
/// Faults of one kind are reported up to this many; a file with more is something else.
const MAX_FAULTS: usize = 100;

/// What went wrong, at which node.
#[derive(Debug)]
pub(crate) struct Error {
    what: What,
    span: Option<Location>,
    /// From the node that is at fault up to the root.
    path: Vec<Step>,
}

#[derive(Debug)]
enum What {
    Unknown { key: String, known: Vec<&'static str> },
    Missing(&'static str),
    Value(String),
}

impl Error {
    fn value(message: String) -> Self {
        Self { what: What::Value(message), span: None, path: Vec::new() }
    }
    /// Points it to a place, unless a place further inside is known.
    fn at(mut self, span: &Location) -> Self {
        self.span.get_or_insert_with(|| span.clone());
        self
    }
    fn below(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Unknown { key, .. } => write!(f, "unknown key \"{key}\""),
            What::Missing(key) => write!(f, "\"{key}\" is missing"),
            What::Value(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

/// What was found, as the file's author would call it.
fn found(unexpected: &Unexpected<'_>) -> String {
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

/// What is needed, as the file's author would call it.
fn needed(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "u8" => "a whole number from 0 to 255".to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u32" => "a whole number from 0 to 4294967295".to_owned(),
        "u64" | "usize" => "a whole number of zero or more".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" => "a text in quotes".to_owned(),
        "a sequence" => "an array".to_owned(),
        _ if text.starts_with("struct ") => "a table".to_owned(),
        _ => text,
    }
}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::value(message.to_string())
    }
    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::value(format!("{} where {} is needed", found(&unexpected), needed(expected)))
    }
    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }
    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self {
            what: What::Unknown { key: key.to_owned(), known: known.to_vec() },
            span: None,
            path: Vec::new(),
        }
    }
    fn missing_field(key: &'static str) -> Self {
        Self { what: What::Missing(key), span: None, path: Vec::new() }
    }
}

/// Reads a typed value. What is faulty goes to the collector and is marked dead in the tree, so that one pass
/// after another finds the rest. `alone` says of a path whether nothing that is named elsewhere in the file hangs on it.
pub fn read<T: DeserializeOwned>(
    tree: &mut TreeNode,
    alone: fn(&[Step]) -> bool,
    faults: &mut Collector,
) -> Read<T> {
    let mut whole = true;
    let before = faults.len();
    loop {
        let error = match T::deserialize(Reader { node: tree, place: &tree.span, kind: None }) {
            Ok(value) => return Read { value: Some(value), whole },
            Err(error) => error,
        };
        let path: Vec<Step> = error.path.iter().rev().cloned().collect();
        let mut parent = path.clone();
        // A missing key that was itself faulty has been reported; what lacks it goes with it.
        let known = match &error.what {
            What::Missing(key) => {
                parent.push(Step::Key((*key).to_owned()));
                let lost = node_at(tree, &parent).is_some();
                parent.pop();
                lost
            }
            // Of so many values as are needed, one was faulty and has been reported.
            What::Value(_) => node_at(tree, &path)
                .is_some_and(|node| matches!(&node.item, Item::Array(nodes) if nodes.iter().any(|n| n.dead))),
            What::Unknown { .. } => false,
        };
        if !known {
            faults.add(error.span.clone().unwrap_or_else(|| tree.place(&path)), describe(&error, &path));
        }
        whole &= alone(&path);
        if path.is_empty() || !tree.kill(&path) || faults.len() - before >= MAX_FAULTS {
            return Read { value: None, whole: false };
        }
    }
}

/// What [`read`] could make of a tree.
#[derive(Debug)]
pub struct Read<T> {
    /// There when what is left could be read.
    pub value: Option<T>,
    /// Whether nothing was left out that others may refer to.
    pub whole: bool,
}

fn node_at<'a>(tree: &'a TreeNode, path: &[Step]) -> Option<&'a TreeNode> {
    path.iter().try_fold(tree, |node, step| node.child(step))
}

fn describe(error: &Error, path: &[Step]) -> String {
    match &error.what {
        What::Unknown { key, known } => {
            let table = show(&path[..path.len().saturating_sub(1)]);
            let place = if table.is_empty() { "at the top".to_owned() } else { format!("in {table}") };
            format!("unknown key \"{key}\" {place}{}", hint(key, known.iter().copied()))
        }
        What::Missing(key) if path.is_empty() => format!("\"{key}\" is missing at the top"),
        What::Missing(key) => format!("\"{key}\" is missing in {}", show(path)),
        What::Value(message) if path.is_empty() => message.clone(),
        What::Value(message) => format!("{}: {message}", show(path)),
    }
}

/// Reads one node. With `kind` it is a table whose `kind` has been read.
#[derive(Clone, Copy)]
struct Reader<'a> {
    node: &'a TreeNode,
    /// Where a missing key is reported: the table's name.
    place: &'a Location,
    kind: Option<&'a str>,
}

impl<'a> Reader<'a> {
    fn entries(&self, entries: &'a [Entry]) -> Entries<'a> {
        Entries { rest: entries.iter(), current: None, skip_kind: self.kind.is_some() }
    }
    fn elements(nodes: &'a [TreeNode]) -> Elements<'a> {
        Elements { nodes: nodes.iter().enumerate() }
    }
}

impl<'de> de::Deserializer<'de> for Reader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let result = match &self.node.item {
            Item::Bool(b) => visitor.visit_bool(*b),
            Item::Integer(n) => visitor.visit_i64(*n),
            Item::Float(x) => visitor.visit_f64(*x),
            Item::Text(text) if self.kind.is_none() => visitor.visit_str(text),
            Item::Text(_) => visitor.visit_map(self.entries(&[])),
            Item::Other(what) => Err(Error::invalid_type(Unexpected::Other(what), &visitor)),
            Item::Array(nodes) => visitor.visit_seq(Self::elements(nodes)),
            Item::Table(entries) => visitor.visit_map(self.entries(entries)),
        };
        let whole_table = matches!(self.node.item, Item::Table(_));
        result.map_err(|e| e.at(if whole_table { self.place } else { &self.node.span }))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        match &self.node.item {
            Item::Array(nodes) if nodes.len() != len => {
                Err(Error::value(format!("{len} values are needed, here are {}", nodes.len()))
                    .at(&self.node.span))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let kinds: Vec<&str> = variants.iter().copied().filter(|v| *v != LITERAL).collect();
        let literal = variants.len() > kinds.len();
        let unknown = |name: &str, span: &Location| {
            Error::value(format!("\"{name}\" is not known here{}", hint(name, kinds.iter().copied())))
                .at(span)
        };
        let chosen = match &self.node.item {
            Item::Text(name) if kinds.contains(&name.as_str()) => name.as_str(),
            Item::Text(name) if !literal => return Err(unknown(name, &self.node.span)),
            Item::Table(entries) => {
                let Some(kind) = entries.iter().find(|e| e.key == "kind" && !e.node.dead) else {
                    let message = format!("\"kind\" is missing: one of {}", quoted(&kinds));
                    return Err(Error::value(message).at(self.place));
                };
                match &kind.node.item {
                    Item::Text(name) if kinds.contains(&name.as_str()) => name.as_str(),
                    Item::Text(name) => return Err(unknown(name, &kind.node.span)),
                    _ => {
                        let message = format!("\"kind\" must be one of {}", quoted(&kinds));
                        return Err(Error::value(message).at(&kind.node.span));
                    }
                }
            }
            _ if literal => LITERAL,
            _ => {
                let message = format!("one of {} is needed", quoted(&kinds));
                return Err(Error::value(message).at(&self.node.span));
            }
        };
        let content = Self { kind: (chosen != LITERAL).then_some(chosen), ..self };
        visitor.visit_enum(Choice { chosen, content }).map_err(|e| e.at(self.place))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple_struct map struct identifier ignored_any
    }
}

struct Entries<'a> {
    rest: std::slice::Iter<'a, Entry>,
    current: Option<&'a Entry>,
    skip_kind: bool,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.current = self.rest.find(|e| !(e.node.dead || self.skip_kind && e.key == "kind"));
        let Some(entry) = self.current else { return Ok(None) };
        let key: StrDeserializer<'_, Error> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|e| e.at(&entry.key_span).below(Step::Key(entry.key.clone())))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some(entry) = self.current else { return Err(Error::custom("a key without a value")) };
        seed.deserialize(Reader { node: &entry.node, place: &entry.key_span, kind: None })
            .map_err(|e| e.at(&entry.node.span).below(Step::Key(entry.key.clone())))
    }
}

struct Elements<'a> {
    nodes: std::iter::Enumerate<std::slice::Iter<'a, TreeNode>>,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((i, node)) = self.nodes.find(|(_, n)| !n.dead) else { return Ok(None) };
        seed.deserialize(Reader { node, place: &node.span, kind: None })
            .map(Some)
            .map_err(|e| e.at(&node.span).below(Step::Index(i)))
    }
}

struct Choice<'a> {
    chosen: &'a str,
    content: Reader<'a>,
}

impl<'de, 'a> EnumAccess<'de> for Choice<'a> {
    type Error = Error;
    type Variant = Reader<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Reader<'a>), Error> {
        let name: StrDeserializer<'_, Error> = self.chosen.into_deserializer();
        Ok((seed.deserialize(name)?, self.content))
    }
}

impl<'de> VariantAccess<'de> for Reader<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match &self.node.item {
            Item::Table(entries) => match entries.iter().find(|e| e.key != "kind" && !e.node.dead) {
                Some(extra) => {
                    let kind = self.kind.unwrap_or_default();
                    let message = format!("unknown key \"{}\": \"{kind}\" has no settings", extra.key);
                    Err(Error::value(message).at(&extra.key_span).below(Step::Key(extra.key.clone())))
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_tuple(self, len, visitor)
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_any(self, visitor)
    }
}

#[cfg(test)]
mod tests;
