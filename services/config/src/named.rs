//! Settings with a closed set of words: enums that implement [`usher_core::NamedValue`].
//!
//! A field of such a type has `#[serde(deserialize_with = "named::read")]` and `#[schemars(schema_with =
//! "named::schema::<T>")]`. A list uses `read_list` and `list_schema`. A field that accepts only some words uses the
//! module that [`some_of!`](crate::some_of) makes.

use crate::fault::name_hint;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use usher_core::NamedValue;

/// Reads any word of `T`.
///
/// # Errors
/// An unknown word.
pub fn read<'de, T: NamedValue, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserialize_one_of(|_| true, deserializer)
}

/// Reads a word for which `taken` returns true.
///
/// # Errors
/// An unknown or unaccepted word.
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
/// The list has an unknown word.
pub fn read_list<'de, T: NamedValue, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct WordElement<T>(T);
    impl<'de, T: NamedValue> Deserialize<'de> for WordElement<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            read(deserializer).map(Self)
        }
    }
    Ok(Vec::<WordElement<T>>::deserialize(deserializer)?.into_iter().map(|word| word.0).collect())
}

/// Returns the schema of a list of words.
pub fn list_schema<T: NamedValue>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": named_value_schema::<T>(|_| true) })
}

/// Returns the schema of all words.
pub fn schema<T: NamedValue>(_: &mut SchemaGenerator) -> Schema {
    named_value_schema::<T>(|_| true)
}

/// Returns the schema of the words for which `taken` returns true.
#[must_use]
pub fn named_value_schema<T: NamedValue>(taken: fn(T) -> bool) -> Schema {
    let known = T::ALL.iter().copied().filter(|value| taken(*value));
    let each = |value: T| json_schema!({ "description": value.description(), "type": "string", "const": value.name() });
    json_schema!({ "oneOf": known.map(each).collect::<Vec<_>>() })
}

/// Makes a module with `read` and `schema` for a field that accepts only the words for which the closure returns true.
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
                $crate::named::named_value_schema::<$type>($taken)
            }
        }
    };
}
