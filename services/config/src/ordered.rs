//! A map that keeps the order of the file.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// A map of names that keeps the file's order. Small: looking a name up walks it.
#[derive(Clone, PartialEq, Debug)]
pub struct OrderedMap<T>(Vec<(String, T)>);

impl<T> OrderedMap<T> {
    /// Names and values, in the file's order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &T)> + ExactSizeIterator {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
    /// The names, in the file's order.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.0.iter().map(|(name, _)| name.as_str())
    }
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }
    /// The place of this name in the file's order.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|(n, _)| n == name)
    }
    /// Adds one, or changes the one of this name.
    pub fn insert(&mut self, name: String, value: T) {
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }
    /// Leaves those out that are not to be kept.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &T) -> bool) {
        self.0.retain(|(name, value)| keep(name, value));
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// True for none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for OrderedMap<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> FromIterator<(String, T)> for OrderedMap<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OrderedMapVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OrderedMapVisitor<T> {
            type Value = OrderedMap<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(OrderedMap(entries))
            }
        }
        deserializer.deserialize_map(OrderedMapVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for OrderedMap<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Named_{}", T::schema_name()).into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        schemars::json_schema!({ "type": "object", "additionalProperties": value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_order_and_are_there_once() {
        let mut map: OrderedMap<u8> =
            [("b", 1), ("a", 2), ("c", 3)].map(|(n, v)| (n.to_owned(), v)).into_iter().collect();
        map.insert("a".to_owned(), 7);
        map.insert("d".to_owned(), 8);
        assert_eq!(map.iter().collect::<Vec<_>>(), [("b", &1), ("a", &7), ("c", &3), ("d", &8)]);
        assert_eq!((map.len(), map.is_empty(), map.get("a"), map.get("x")), (4, false, Some(&7), None));
        assert_eq!((map.position("c"), map.position("x")), (Some(2), None));
        map.retain(|name, value| name != "b" && *value != 8);
        assert_eq!((map.names().collect::<Vec<_>>(), map.len()), (vec!["a", "c"], 2));
        map.retain(|_, _| false);
        assert_eq!((map.len(), map.is_empty(), map == OrderedMap::default()), (0, true, true));
    }
}
