//! Lengths, positions and speeds.

use super::{Dimension, read_signed, read_unsigned};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::borrow::Cow;
use std::fmt;

/// The farthest and the fastest that can be written, in metres and metres per second.
const MAX: f64 = 1e9;

fn check_bounds(text: &str, base: f64, what: &str) -> Result<f64, String> {
    if base.abs() > MAX { Err(format!("\"{text}\" is more than 1e9 {what}")) } else { Ok(base) }
}

/// A length, zero or more: `"50 m"`; units m, km.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct Length(f64);

impl Length {
    /// Reads `"50 m"`.
    ///
    /// # Errors
    /// What is wrong with the text, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        check_bounds(text, read_unsigned(text, Dimension::Length)?, "m").map(Self)
    }
    /// This many metres.
    pub const fn from_metres(metres: u32) -> Self {
        Self(metres as f64)
    }
    /// Metres.
    pub const fn metres(self) -> f64 {
        self.0
    }
}
text_quantity!(
    Length,
    Dimension::Length,
    r"^\s*\+?[0-9.]+([eE][+-]?[0-9]+)?\s*k?m\s*$",
    "A length with its unit: m or km.",
    ["50 m"]
);

/// A place along an axis, either side of its zero: `"-20 m"`; units m, km.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct Coordinate(f64);

impl Coordinate {
    /// Reads `"-20 m"`.
    ///
    /// # Errors
    /// What is wrong with the text, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        check_bounds(text, read_signed(text, Dimension::Length)?, "m").map(Self)
    }
    /// Metres.
    pub const fn metres(self) -> f64 {
        self.0
    }
}
text_quantity!(
    Coordinate,
    Dimension::Length,
    r"^\s*[+-]?[0-9.]+([eE][+-]?[0-9]+)?\s*k?m\s*$",
    "A position along an axis with its unit: m or km.",
    ["-20 m"]
);

/// A speed along an axis, either way: `"1 m/s"`; units m/s, km/h.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct Speed(f64);

impl Speed {
    /// Reads `"1 m/s"`.
    ///
    /// # Errors
    /// What is wrong with the text, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        check_bounds(text, read_signed(text, Dimension::Speed)?, "m/s").map(Self)
    }
    /// Metres per second.
    pub const fn metres_per_second(self) -> f64 {
        self.0
    }
}
text_quantity!(
    Speed,
    Dimension::Speed,
    r"^\s*[+-]?[0-9.]+([eE][+-]?[0-9]+)?\s*(m/s|km/h)\s*$",
    "A speed along an axis with its unit: m/s or km/h.",
    ["1 m/s"]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_speeds_are_read_with_their_units() {
        assert_eq!(Length::parse("0.5 km").map(Length::metres), Ok(500.0));
        assert_eq!(Coordinate::parse("-20 m").map(Coordinate::metres), Ok(-20.0));
        assert_eq!(Speed::parse("3.6 km/h").map(Speed::metres_per_second), Ok(1.0));
        assert_eq!(Speed::parse("-2 m/s").map(Speed::metres_per_second), Ok(-2.0));
        assert_eq!(
            Length::parse("-1 m"),
            Err("\"-1 m\" is negative; a length must be zero or more".to_owned())
        );
        assert_eq!(
            Length::parse("5 metres"),
            Err("\"metres\" is no unit of a length (m, km); did you mean \"5 m\"?".to_owned())
        );
        assert!(Speed::parse("1 m").is_err() && Length::parse("1e10 m").is_err());
    }
}
