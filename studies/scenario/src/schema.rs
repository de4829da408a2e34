//! The JSON Schema of study files, from the same types and texts as the loader.

use schemars::{JsonSchema, Schema, SchemaGenerator};

/// The other alternatives of a choice that may also be written as a plain value of `T`.
pub(crate) fn with_literal<T: JsonSchema>(schema: &mut Schema) {
    let literal = T::json_schema(&mut SchemaGenerator::default());
    add_alternative(schema, literal);
}

/// A choice may also be written as the name of a kind alone, when all its settings have defaults.
pub(crate) fn with_names(schema: &mut Schema) {
    let mut names = Vec::new();
    for alternative in schema.get("oneOf").and_then(|a| a.as_array()).into_iter().flatten() {
        let required = alternative["required"].as_array().map_or(0, Vec::len);
        if required == 1 {
            names.push(alternative["properties"]["kind"]["const"].clone());
        }
    }
    add_alternative(
        schema,
        schemars::json_schema!({ "enum": names, "description": "The kind alone, with its defaults." }),
    );
}

fn add_alternative(schema: &mut Schema, alternative: Schema) {
    if let Some(alternatives) = schema.get_mut("oneOf").and_then(|a| a.as_array_mut()) {
        alternatives.insert(0, alternative.into());
    }
}

/// A table has a value for each kind of work, and no other.
pub(crate) fn by_work(schema: &mut Schema) {
    let Some(value) = schema.insert("additionalProperties".into(), false.into()) else { return };
    let properties = crate::work::all().map(|label| {
        let mut value = value.clone();
        value["description"] = format!("{} One unit is one {}.", label.about(), label.unit()).into();
        (label.name().to_owned(), value)
    });
    schema.insert("properties".into(), properties.collect::<serde_json::Map<_, _>>().into());
}

/// The JSON Schema of study files, as `docs/study.schema.json` holds it: indented, with a final newline.
pub fn json_schema() -> String {
    let schema = schemars::schema_for!(crate::model::StudyFile);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
