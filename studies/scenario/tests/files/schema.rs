//! The published schema accepts every study that the loader accepts, and rejects faults that an editor should mark.

use serde_json::Value;
use usher_scenario::{TEMPLATES, default_template, founding, json_schema};

/// Returns violations of the schema, by place. Understands only the keywords of our schema and panics at others, so
/// that it skips no check.
fn find_misfits(root: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let Value::Object(rules) = schema else {
        return if schema == &Value::Bool(false) {
            vec![format!("{place}: nothing may be here")]
        } else {
            Vec::new()
        };
    };
    let mut out = Vec::new();
    let mut require = |holds: bool, what: String| {
        if !holds {
            out.push(format!("{place}: {what}"));
        }
    };
    for (keyword, rule) in rules {
        let alternatives = || {
            rule.as_array().unwrap().iter().filter(|s| find_misfits(root, s, value, place).is_empty()).count()
        };
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" | "examples" | "format" => {}
            "type" => {
                let types: Vec<&str> = rule.as_array().map_or_else(
                    || vec![rule.as_str().unwrap()],
                    |types| types.iter().map(|t| t.as_str().unwrap()).collect(),
                );
                let is = match value {
                    Value::Null => "null",
                    Value::Bool(_) => "boolean",
                    Value::Number(n) if n.is_f64() => "number",
                    Value::Number(_) => "integer",
                    Value::String(_) => "string",
                    Value::Array(_) => "array",
                    Value::Object(_) => "object",
                };
                let fits = types.contains(&is) || is == "integer" && types.contains(&"number");
                require(fits, format!("{is} is not {types:?}"));
            }
            "const" => require(value == rule, format!("{value} is not {rule}")),
            "enum" => require(rule.as_array().unwrap().contains(value), format!("{value} is not in {rule}")),
            "minimum" => require(value.as_f64() >= rule.as_f64(), format!("{value} is below {rule}")),
            "maximum" => require(value.as_f64() <= rule.as_f64(), format!("{value} is above {rule}")),
            "minItems" => {
                require(value.as_array().map(Vec::len) >= rule.as_u64().map(|n| n as usize), "too few".into())
            }
            "maxItems" => require(
                value.as_array().map(Vec::len) <= rule.as_u64().map(|n| n as usize),
                "too many".into(),
            ),
            "pattern" => {
                let regex = regex_lite::Regex::new(rule.as_str().unwrap()).unwrap();
                require(
                    value.as_str().is_none_or(|text| regex.is_match(text)),
                    format!("{value} does not match {rule}"),
                );
            }
            "required" => {
                for key in rule.as_array().unwrap() {
                    let key = key.as_str().unwrap();
                    require(!value.is_object() || value.get(key).is_some(), format!("{key} is missing"));
                }
            }
            "oneOf" => require(alternatives() == 1, format!("{} alternatives fit {value}", alternatives())),
            "anyOf" => require(alternatives() > 0, format!("no alternative fits {value}")),
            "$ref" => {
                let target = root.pointer(rule.as_str().unwrap().strip_prefix('#').unwrap()).unwrap();
                find_misfits(root, target, value, place).into_iter().for_each(|m| require(false, m));
            }
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    find_misfits(root, rule, item, &format!("{place}[{i}]"))
                        .into_iter()
                        .for_each(|m| require(false, m));
                }
            }
            "properties" | "additionalProperties" => {
                for (key, member) in value.as_object().into_iter().flatten() {
                    let named = rules.get("properties").and_then(|p| p.get(key));
                    let rule = match (keyword.as_str(), named) {
                        ("properties", Some(named)) => named,
                        ("additionalProperties", None) => rule,
                        _ => continue,
                    };
                    find_misfits(root, rule, member, &format!("{place}.{key}"))
                        .into_iter()
                        .for_each(|m| require(false, m));
                }
            }
            other => panic!("the schema uses {other}, which this test does not know"),
        }
    }
    out
}

fn check_text(text: &str) -> Vec<String> {
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    let study: Value = toml::from_str(text).unwrap();
    find_misfits(&schema, &schema, &study, "study")
}

#[test]
fn every_founding_study_and_the_template_fit() {
    for study in founding::founding_studies() {
        assert_eq!(check_text(study.text), Vec::<String>::new(), "{}", study.name);
    }
    for template in TEMPLATES {
        assert_eq!(check_text(template.text), Vec::<String>::new(), "{}", template.kind);
    }
}

#[test]
fn what_the_loader_refuses_by_itself_the_schema_refuses_too() {
    for (right, wrong) in [
        ("delay = \"10 ms\"", "delay = \"10\""),
        ("delay = \"10 ms\"", "delay = 10"),
        ("delay = \"10 ms\"", "dealy = \"10 ms\""),
        ("rate = \"1.5 Mb/s\"", "rate = \"1.5 Mbps\""),
        ("queue = \"50 packets\"", "queue = \"50\""),
        ("count = 10", "count = 0"),
        ("transport = \"tcp\"", "transport = \"carrier pigeon\""),
        ("kind = \"poisson\"", "kind = \"random\""),
        ("rate = \"20 /s\"", ""),
        ("title = \"My study\"", ""),
        ("between = [\"router\", \"server\"]", "between = [\"router\"]"),
        ("loss = \"0 %\"", "loss = { kind = \"gilbert-elliott\", to_bad = \"1 %\" }"),
        ("loss = \"0 %\"", "loss = { kind = \"burst\", loss = \"5 %\", mean = 0.5 }"),
        ("nagle = false", "control = \"vegas\""),
    ] {
        assert!(default_template().contains(right), "{right}");
        assert_ne!(
            check_text(&default_template().replacen(right, wrong, 1)),
            Vec::<String>::new(),
            "{wrong}"
        );
    }
}
