//! Closed sets of words: an enum of [`usher_core::NamedValue`] as a setting.
//!
//! A field of such a type is read by `#[serde(deserialize_with = "named::read")]` and described by
//! `#[schemars(schema_with = "named::schema::<T>")]`, a list of them by `read_list` and `list_schema`; one that takes some of the words only by those of a module that
//! [`some_of!`](crate::some_of) makes.

use crate::fault::name_hint;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use usher_core::NamedValue;

/// Reads one of all words.
///
/// # Errors
/// It is none of them.
pub fn read<'de, T: NamedValue, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserialize_one_of(|_| true, deserializer)
}

/// Reads one of the words of which this holds.
///
/// # Errors
/// It is none of them.
pub fn deserialize_one_of<'de, T: NamedValue, D: Deserializer<'de>>(
    taken: fn(T) -> bool,
    deserializer: D,
) -> Result<T, D::Error> {
    struct WordVisitor<T>(fn(T) -> bool);
    impl<T: NamedValue> Visitor<'_> for WordVisitor<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::WHAT)
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            let known = || T::ALL.iter().copied().filter(|value| (self.0)(*value));
            known().find(|value| value.name() == text).ok_or_else(|| {
                let near = name_hint(text, known().map(T::name));
                E::custom(format!("\"{text}\" is not known here{near}"))
            })
        }
    }
    deserializer.deserialize_str(WordVisitor(taken))
}

/// Reads a list of words.
///
/// # Errors
/// One is none of them.
pub fn read_list<'de, T: NamedValue, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct WordElement<T>(T);
    impl<'de, T: NamedValue> Deserialize<'de> for WordElement<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            read(deserializer).map(Self)
        }
    }
    Ok(Vec::<WordElement<T>>::deserialize(deserializer)?.into_iter().map(|word| word.0).collect())
}

/// The schema of a list of words.
pub fn list_schema<T: NamedValue>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": schema_of::<T>(|_| true) })
}

/// The schema of all words.
pub fn schema<T: NamedValue>(_: &mut SchemaGenerator) -> Schema {
    schema_of::<T>(|_| true)
}

/// The schema of the words of which this holds.
#[must_use]
pub fn schema_of<T: NamedValue>(taken: fn(T) -> bool) -> Schema {
    let known = T::ALL.iter().copied().filter(|value| taken(*value));
    let each = |value: T| json_schema!({ "description": value.description(), "type": "string", "const": value.name() });
    json_schema!({ "oneOf": known.map(each).collect::<Vec<_>>() })
}

/// A module with `read` and `schema` for a field that takes some of the words: those of which this holds.
///
/// ```
/// usher_config::some_of!(stream: usher_core::TransportProtocol, |t| t == usher_core::TransportProtocol::Tcp);
/// ```
#[macro_export]
macro_rules! some_of {
    ($vis:vis $name:ident: $type:ty, $taken:expr) => {
        $vis mod $name {
            use super::*;
            pub fn read<'de, D: serde::Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                $crate::named::deserialize_one_of($taken, from)
            }
            pub fn schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::named::schema_of::<$type>($taken)
            }
        }
    };
}
