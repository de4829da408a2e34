//! Tests of typed reading and of its fault messages.

use super::*;
use crate::document::{ConfigFormat, EmptyConfigEnvironment, read_document};
use serde::Deserialize;

const FORMAT: ConfigFormat = ConfigFormat { description: "a test", version: 1, retired: &[] };

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TestShape {
    Point,
    Circle { radius: f64 },
}

/// A shape, or a number as its short form.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ShapeOrNumber {
    Square { side: f64 },
    Literal(f64),
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapeFile {
    size: u32,
    shape: TestShape,
    #[serde(default)]
    pair: Option<[u8; 2]>,
    #[serde(default)]
    either: Option<ShapeOrNumber>,
}

/// The value read from a text, whether it is complete, and the faults.
fn read_text(text: &str) -> (Option<ShapeFile>, bool, String) {
    let mut faults = DiagnosticCollector::new("f", text);
    let mut tree = read_document(&FORMAT, &EmptyConfigEnvironment, &mut faults).unwrap();
    let ReadOutcome { value, is_complete: whole } = read_typed(&mut tree, |_| false, &mut faults);
    let said = faults.finish(Some(())).map_or_else(|faults| faults.to_string(), |_| String::new());
    (value, whole, said)
}

#[track_caller]
fn assert_errors(text: &str, expected: &[&str]) {
    let (_, whole, said) = read_text(text);
    let lines: Vec<&str> = said.lines().collect();
    assert!(!whole && lines.len() == expected.len(), "{said}");
    assert!(lines.iter().zip(expected).all(|(line, start)| line.starts_with(start)), "{said}");
}

#[test]
fn a_kind_is_a_word_or_a_table_that_names_it() {
    let file = |shape, either| ShapeFile { size: 1, shape, pair: None, either };
    for (text, expected) in [
        ("size = 1\nshape = \"point\"\n", file(TestShape::Point, None)),
        (
            "size = 1\nshape = { kind = \"circle\", radius = 2.0 }\n",
            file(TestShape::Circle { radius: 2.0 }, None),
        ),
        (
            "size = 1\nshape = \"point\"\neither = 3.5\n",
            file(TestShape::Point, Some(ShapeOrNumber::Literal(3.5))),
        ),
        (
            "size = 1\nshape = \"point\"\neither = { kind = \"square\", side = 4.0 }\n",
            file(TestShape::Point, Some(ShapeOrNumber::Square { side: 4.0 })),
        ),
    ] {
        assert_eq!(read_text(text), (Some(expected), true, String::new()), "{text}");
    }
    assert_errors(
        "size = 1\nshape = \"pont\"\n",
        &["f:2:9: shape: \"pont\" is not known here; did you mean \"point\"?"],
    );
    assert_errors("size = 1\nshape = 3\n", &["f:2:9: shape: expected one of \"point\", \"circle\""]);
    assert_errors("size = 1\nshape = { radius = 1.0 }\n", &["f:2:1: shape: \"kind\" is missing: one of"]);
    assert_errors("size = 1\nshape = { kind = 3 }\n", &["f:2:18: "]);
}

#[test]
fn every_fault_is_said_once() {
    assert_errors("shape = \"point\"\n", &["f:1:1: \"size\" is missing"]);
    // A faulty key is not reported as missing too; a pair with one faulty element gives one fault.
    assert_errors(
        "size = \"x\"\nshape = \"point\"\nsise = 1\n",
        &["f:1:8: size: ", "f:3:1: unknown key \"sise\""],
    );
    assert_errors("size = 1\nshape = \"point\"\npair = [1, \"x\"]\n", &["f:3:12: "]);
    assert_errors("size = 1\nshape = \"point\"\npair = [1]\n", &["f:3:8: "]);
}

#[test]
fn errors_of_the_standard_library_have_texts_of_ours() {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
    use std::num::NonZeroU32;
    let errors = [
        "x".parse::<IpAddr>().unwrap_err().to_string(),
        "x".parse::<Ipv4Addr>().unwrap_err().to_string(),
        "x".parse::<Ipv6Addr>().unwrap_err().to_string(),
        "x".parse::<SocketAddr>().unwrap_err().to_string(),
        "x".parse::<u32>().unwrap_err().to_string(),
        "".parse::<u32>().unwrap_err().to_string(),
        "5000000000".parse::<u32>().unwrap_err().to_string(),
        "-5000000000".parse::<i32>().unwrap_err().to_string(),
        "0".parse::<NonZeroU32>().unwrap_err().to_string(),
        "x".parse::<f64>().unwrap_err().to_string(),
        "".parse::<f64>().unwrap_err().to_string(),
    ];
    for error in errors {
        assert!(describe_parse_error(&error).is_some(), "{error}");
    }
    assert_eq!(describe_parse_error("not a realm name"), None);
}
