//! Closed sets of words: an enum of [`usher_core::Named`] as a setting.
//!
//! A field of such a type is read by `#[serde(deserialize_with = "named::read")]` and described by
//! `#[schemars(schema_with = "named::schema::<T>")]`; one that takes some of the words only has functions of its own that
//! call [`one_of`] and [`schema_of`].

use crate::fault::hint;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Visitor};
use std::fmt;
use std::marker::PhantomData;
use usher_core::Named;

/// Reads one of all words.
///
/// # Errors
/// It is none of them.
pub fn read<'de, T: Named, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    one_of(T::ALL, deserializer)
}

/// Reads one of these words.
///
/// # Errors
/// It is none of them.
pub fn one_of<'de, T: Named, D: Deserializer<'de>>(
    known: &'static [T],
    deserializer: D,
) -> Result<T, D::Error> {
    struct Word<T: 'static>(&'static [T], PhantomData<T>);
    impl<T: Named> Visitor<'_> for Word<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::WHAT)
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            self.0.iter().copied().find(|value| value.name() == text).ok_or_else(|| {
                let near = hint(text, self.0.iter().map(|value| value.name()));
                E::custom(format!("\"{text}\" is not known here{near}"))
            })
        }
    }
    deserializer.deserialize_str(Word(known, PhantomData))
}

/// The schema of all words.
pub fn schema<T: Named>(_: &mut SchemaGenerator) -> Schema {
    schema_of(T::ALL)
}

/// The schema of these words.
#[must_use]
pub fn schema_of<T: Named>(known: &[T]) -> Schema {
    let each =
        |value: &T| json_schema!({ "description": value.about(), "type": "string", "const": value.name() });
    json_schema!({ "oneOf": known.iter().map(each).collect::<Vec<_>>() })
}
