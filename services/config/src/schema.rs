//! JSON Schemas, made from the types and documentation that the reader uses.

use crate::document::{ConfigFormat, INCLUDE, VERSION};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// The other alternatives of a choice that may also be written as a plain value of `T`.
pub fn with_literal<T: JsonSchema>(schema: &mut Schema) {
    let literal = T::json_schema(&mut SchemaGenerator::default());
    add_alternative(schema, literal);
}

/// A choice may also be written as the name of a kind alone, when all its settings have defaults.
pub fn with_names(schema: &mut Schema) {
    let mut names = Vec::new();
    for alternative in schema.get("oneOf").and_then(|a| a.as_array()).into_iter().flatten() {
        let required = alternative["required"].as_array().map_or(0, Vec::len);
        if required == 1 {
            names.push(alternative["properties"]["kind"]["const"].clone());
        }
    }
    add_alternative(
        schema,
        json_schema!({ "enum": names, "description": "The kind alone, with its defaults." }),
    );
}

fn add_alternative(schema: &mut Schema, alternative: Schema) {
    if let Some(alternatives) = schema.get_mut("oneOf").and_then(|a| a.as_array_mut()) {
        alternatives.insert(0, alternative.into());
    }
}

/// The JSON Schema of files of a format: indented, with a final newline.
#[must_use]
pub fn json_schema<T: JsonSchema>(format: &ConfigFormat) -> String {
    let mut schema = schemars::schema_for!(T);
    if let Some(keys) = schema.get_mut("properties").and_then(|p| p.as_object_mut()) {
        let version = json_schema!({
            "type": "integer", "minimum": 1, "maximum": format.version,
            "description": "The version of the format that the file is written in. Without it, the newest.",
        });
        let include = json_schema!({
            "type": "array", "items": { "type": "string" },
            "description": "Files whose settings are taken in, sought from this file's folder. What a file says itself stands against \
                            what it includes, a later file against an earlier; tables are joined, and arrays of tables appended.",
        });
        keys.insert(VERSION.to_owned(), version.into());
        keys.insert(INCLUDE.to_owned(), include.into());
    }
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
