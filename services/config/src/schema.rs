//! JSON Schemas, made from the types and documentation that the reader uses.

use crate::document::{ConfigFormat, INCLUDE, VERSION};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// The other alternatives of a choice that may also be written as a plain value of `T`.
pub fn add_literal_alternative<T: JsonSchema>(schema: &mut Schema) {
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
        json_schema!({ "enum": names, "description": "The kind alone; its settings have their defaults." }),
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
            "description": "The version of the file's format. Default: the newest.",
        });
        let include = json_schema!({
            "type": "array", "items": { "type": "string" },
            "description": "Files to include. Relative paths start at this file's folder. A file's own settings \
                            override those of the files that it includes; a later include overrides an earlier one. \
                            Tables are merged, arrays of tables appended.",
        });
        keys.insert(VERSION.to_owned(), version.into());
        keys.insert(INCLUDE.to_owned(), include.into());
    }
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
