//! The value of a setting, without its position.

use crate::ordered::OrderedMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// Any value that a setting can take.
#[derive(Clone, PartialEq, Debug)]
pub enum ConfigValue {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Float(f64),
    /// A text, often a quantity with its unit.
    Text(String),
    /// Several.
    Array(Vec<ConfigValue>),
    /// Named ones.
    Table(OrderedMap<ConfigValue>),
}

impl fmt::Display for ConfigValue {
    /// A text bare, everything else as TOML writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(b) => write!(f, "{b}"),
            Self::Integer(n) => write!(f, "{n}"),
            Self::Float(x) => write!(f, "{x}"),
            Self::Text(text) => f.write_str(text),
            Self::Array(values) => {
                f.write_str("[")?;
                for (i, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Table(entries) => {
                f.write_str("{ ")?;
                for (i, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{key} = {value}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(" }")
            }
        }
    }
}

impl<'de> Deserialize<'de> for ConfigValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;
        impl<'de> Visitor<'de> for ValueVisitor {
            type Value = ConfigValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_bool<E: Error>(self, b: bool) -> Result<ConfigValue, E> {
                Ok(ConfigValue::Bool(b))
            }
            fn visit_i64<E: Error>(self, n: i64) -> Result<ConfigValue, E> {
                Ok(ConfigValue::Integer(n))
            }
            fn visit_f64<E: Error>(self, x: f64) -> Result<ConfigValue, E> {
                Ok(ConfigValue::Float(x))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<ConfigValue, E> {
                Ok(ConfigValue::Text(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ConfigValue, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = seq.next_element()? {
                    values.push(value);
                }
                Ok(ConfigValue::Array(values))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ConfigValue, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(ConfigValue::Table(entries.into_iter().collect()))
            }
        }
        deserializer.deserialize_any(ValueVisitor)
    }
}

impl JsonSchema for ConfigValue {
    fn schema_name() -> Cow<'static, str> {
        "Value".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "Any value that the setting accepts." })
    }
}
