//! Quantities as text: a number and its unit, such as `"10 ms"`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::borrow::Cow;
use std::fmt;
use usher_core::Duration;

/// The dimension of a quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dimension {
    /// Seconds.
    Time,
    /// Bits per second.
    BitRate,
    /// Bytes.
    Size,
    /// A share; 1 is all.
    Share,
    /// Events per second.
    Rate,
    /// Packets.
    Packets,
    /// TCP segments.
    Segments,
    /// Metres.
    Length,
    /// Metres per second.
    Speed,
}

/// Unit, dimension, and how many of the dimension's base unit it is.
const UNITS: &[(&str, Dimension, f64)] = &[
    ("ns", Dimension::Time, 1e-9),
    ("us", Dimension::Time, 1e-6),
    ("ms", Dimension::Time, 1e-3),
    ("s", Dimension::Time, 1.0),
    ("min", Dimension::Time, 60.0),
    ("h", Dimension::Time, 3600.0),
    ("d", Dimension::Time, 86_400.0),
    ("b/s", Dimension::BitRate, 1.0),
    ("kb/s", Dimension::BitRate, 1e3),
    ("Mb/s", Dimension::BitRate, 1e6),
    ("Gb/s", Dimension::BitRate, 1e9),
    ("B", Dimension::Size, 1.0),
    ("kB", Dimension::Size, 1e3),
    ("MB", Dimension::Size, 1e6),
    ("GB", Dimension::Size, 1e9),
    ("KiB", Dimension::Size, 1024.0),
    ("MiB", Dimension::Size, 1_048_576.0),
    ("GiB", Dimension::Size, 1_073_741_824.0),
    ("%", Dimension::Share, 0.01),
    ("/s", Dimension::Rate, 1.0),
    ("/min", Dimension::Rate, 1.0 / 60.0),
    ("/h", Dimension::Rate, 1.0 / 3600.0),
    ("packets", Dimension::Packets, 1.0),
    ("segments", Dimension::Segments, 1.0),
    ("m", Dimension::Length, 1.0),
    ("km", Dimension::Length, 1e3),
    ("m/s", Dimension::Speed, 1.0),
    ("km/h", Dimension::Speed, 1.0 / 3.6),
];

/// Usual spellings of others, for the hint.
const ALIASES: &[(&str, &str)] = &[
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("msec", "ms"),
    ("µs", "us"),
    ("μs", "us"),
    ("usec", "us"),
    ("minutes", "min"),
    ("m", "min"),
    ("hour", "h"),
    ("hours", "h"),
    ("day", "d"),
    ("days", "d"),
    ("bps", "b/s"),
    ("bit/s", "b/s"),
    ("kbps", "kb/s"),
    ("kbit/s", "kb/s"),
    ("Kb/s", "kb/s"),
    ("Mbps", "Mb/s"),
    ("mbps", "Mb/s"),
    ("Mbit/s", "Mb/s"),
    ("Gbps", "Gb/s"),
    ("Gbit/s", "Gb/s"),
    ("byte", "B"),
    ("bytes", "B"),
    ("octets", "B"),
    ("KB", "kB"),
    ("percent", "%"),
    ("Hz", "/s"),
    ("per second", "/s"),
    ("packet", "packets"),
    ("segment", "segments"),
    ("metre", "m"),
    ("metres", "m"),
    ("meters", "m"),
    ("kilometres", "km"),
    ("mps", "m/s"),
    ("kmh", "km/h"),
    ("kph", "km/h"),
];

impl Dimension {
    /// The units that measure it.
    pub fn units(self) -> impl Iterator<Item = &'static str> {
        UNITS.iter().filter(move |u| u.1 == self).map(|u| u.0)
    }
    /// The factor of a unit of this dimension.
    fn unit_factor(self, unit: &str) -> Option<f64> {
        UNITS.iter().find(|u| u.0 == unit && u.1 == self).map(|u| u.2)
    }
    /// Its name in messages, with an example.
    fn noun_and_example(self) -> (&'static str, &'static str) {
        match self {
            Self::Time => ("a time", "10 ms"),
            Self::BitRate => ("a bit rate", "1.5 Mb/s"),
            Self::Size => ("a size", "200 B"),
            Self::Share => ("a percentage", "5 %"),
            Self::Rate => ("a rate of events", "5 /s"),
            Self::Packets => ("a number of packets", "50 packets"),
            Self::Segments => ("a number of segments", "4 segments"),
            Self::Length => ("a length", "50 m"),
            Self::Speed => ("a speed", "1 m/s"),
        }
    }
}

/// A number with its unit, before it is known what it is for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Quantity {
    /// The number as written.
    pub number: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Its dimension.
    pub dimension: Dimension,
}

/// Splits a text into its leading number and the rest, trimmed.
fn split_number(text: &str) -> (Option<f64>, &str) {
    let text = text.trim();
    let mut end = text.find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c)).unwrap_or(text.len());
    // An exponent belongs to the number only if digits follow it.
    let rest = &text[end..];
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let n = digits.bytes().take_while(u8::is_ascii_digit).count();
        if n > 0 {
            end += rest.len() - digits.len() + n;
        }
    }
    (text[..end].parse().ok().filter(|n: &f64| n.is_finite()), text[end..].trim())
}

impl Quantity {
    /// Reads a quantity of any dimension; `None` when the text is not a number followed by a known unit.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split_number(text);
        let &(unit, dimension, _) = UNITS.iter().find(|u| u.0 == unit)?;
        Some(Self { number: number?, unit, dimension })
    }
    /// In the dimension's base unit (seconds, bits per second, bytes, a share of one, events per second, metres,
    /// metres per second).
    pub fn in_base_unit(self) -> f64 {
        let factor = self.dimension.unit_factor(self.unit).unwrap_or(1.0);
        if factor < 1.0 { self.number / rounded_reciprocal(factor) } else { self.number * factor }
    }
    /// The number in another unit of the same dimension.
    pub fn convert_to(self, unit: &str) -> Option<f64> {
        if unit == self.unit {
            return Some(self.number);
        }
        let factor = self.dimension.unit_factor(unit)?;
        Some(if factor < 1.0 {
            self.in_base_unit() * rounded_reciprocal(factor)
        } else {
            self.in_base_unit() / factor
        })
    }
}

/// One over a factor, to a tenth: dividing by it keeps decimal fractions as exact as they were written.
fn rounded_reciprocal(factor: f64) -> f64 {
    (10.0 / factor).round() / 10.0
}

/// Reads a quantity of one dimension that is not negative, in its base unit.
fn read_unsigned(text: &str, dimension: Dimension) -> Result<f64, String> {
    let base = read_signed(text, dimension)?;
    if base < 0.0 {
        return Err(format!(
            "\"{text}\" is negative; {} must be zero or more",
            dimension.noun_and_example().0
        ));
    }
    Ok(base)
}

/// Reads a quantity of one dimension, in its base unit.
fn read_signed(text: &str, dimension: Dimension) -> Result<f64, String> {
    let (noun, example) = dimension.noun_and_example();
    let (number, unit) = split_number(text);
    let Some(number) = number else {
        return Err(format!("\"{text}\" is not {noun}, such as \"{example}\""));
    };
    if unit.is_empty() {
        return Err(format!("\"{text}\" lacks its unit: {noun} is written like \"{example}\""));
    }
    let Some(quantity) = Quantity::parse(text).filter(|q| q.dimension == dimension) else {
        let units: Vec<&str> = dimension.units().collect();
        let alias = ALIASES.iter().find(|a| a.0 == unit).map(|a| a.1).filter(|a| units.contains(a));
        let hint = alias.map(|a| format!("; did you mean \"{number} {a}\"?")).unwrap_or_default();
        return Err(format!("\"{unit}\" is no unit of {noun} ({}){hint}", units.join(", ")));
    };
    Ok(quantity.in_base_unit())
}

/// Declares how a type that is written as one text is deserialised, described and shown.
macro_rules! text_quantity {
    ($type:ident, $dimension:expr, $pattern:expr, $about:expr, $examples:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        let (noun, example) = $dimension.noun_and_example();
                        write!(f, "{noun} with its unit, such as \"{example}\"")
                    }
                    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                        $type::parse(text).map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern, "description": $about, "examples": $examples })
            }
        }
    };
}

mod space;
pub use space::{Coordinate, Length, Speed};

/// A span of time: `"10 ms"`; units ns, us, ms, s, min, h, d.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct TimeSpan(pub Duration);

impl TimeSpan {
    /// Reads `"10 ms"`.
    ///
    /// # Errors
    /// What is wrong with the text, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let seconds = read_unsigned(text, Dimension::Time)?;
        // 64 bits of nanoseconds hold 584 years; the limit is a tenth of that.
        if seconds > 1.8e9 {
            return Err(format!("\"{text}\" is longer than 1.8e9 s"));
        }
        Ok(Self(Duration::from_secs_f64(seconds)))
    }
    /// This many milliseconds.
    pub const fn from_millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }
    /// This many seconds.
    pub const fn from_secs(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }
    /// The span itself.
    pub const fn get(self) -> Duration {
        self.0
    }
    /// For the standard library.
    #[must_use]
    pub const fn to_std(self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.0.as_nanos())
    }
}
text_quantity!(
    TimeSpan,
    Dimension::Time,
    r"^\s*\+?[0-9.]+([eE][+-]?[0-9]+)?\s*(ns|us|ms|s|min|h|d)\s*$",
    "A span of time with its unit: ns, us, ms, s, min, h or d.",
    ["10 ms", "1.5 s", "7 d"]
);

/// A bit rate above zero: `"1.5 Mb/s"`; units b/s, kb/s, Mb/s, Gb/s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BitRate(u64);

impl BitRate {
    /// Reads `"1.5 Mb/s"`.
    ///
    /// # Errors
    /// What is wrong with the text, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rate = read_unsigned(text, Dimension::BitRate)?.round();
        if rate < 1.0 {
            return Err(format!(
                "\"{text}\" is below the lowest rate, 1 b/s; write \"unlimited\" for a link without a rate limit"
            ));
        }
        if rate > 1e15 {
            return Err(format!("\"{text}\" is more than 1000000 Gb/s"));
        }
        Ok(Self(rate as u64))
    }
    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }
}
text_quantity!(
    BitRate,
    Dimension::BitRate,
    r"^\s*\+?[0-9.]+([eE][+-]?[0-9]+)?\s*[kMG]?b/s\s*$",
    "A bit rate with its unit: b/s, kb/s, Mb/s or Gb/s.",
    ["1.5 Mb/s"]
);

/// A number of bytes: `"200 B"`; units B, kB (1000), MB, GB, KiB (1024), MiB, GiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ByteSize(u64);

impl ByteSize {
    /// Reads `"200 B"`.
    ///
    /// # Errors
    /// What is wrong with the text, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = read_unsigned(text, Dimension::Size)?;
        if bytes > 1e15 {
            return Err(format!("\"{text}\" is more than 1000000 GB"));
        }
        if bytes.fract() != 0.0 {
            return Err(format!("\"{text}\" is not a whole number of bytes"));
        }
        Ok(Self(bytes as u64))
    }
    /// This many bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }
    /// So many times 2^20 bytes.
    pub const fn from_mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// Bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}
text_quantity!(
    ByteSize,
    Dimension::Size,
    r"^\s*\+?[0-9.]+([eE][+-]?[0-9]+)?\s*([kMG]?B|[KMG]iB)\s*$",
    "A number of bytes with its unit: B, kB (1000 B), MB, GB, KiB (1024 B), MiB or GiB.",
    ["200 B", "64 kB"]
);

/// A share between 0 and 100 %: `"5 %"`.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct Percentage(f64);

impl Percentage {
    /// None.
    pub const ZERO: Self = Self(0.0);

    /// Reads `"5 %"`.
    ///
    /// # Errors
    /// What is wrong with the text, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let share = read_unsigned(text, Dimension::Share)?;
        if share > 1.0 {
            return Err(format!("\"{text}\" is more than 100 %"));
        }
        Ok(Self(share))
    }
    /// This many percent.
    pub const fn from_percent(n: u8) -> Self {
        Self(n as f64 / 100.0)
    }
    /// Between 0 and 1.
    pub const fn get(self) -> f64 {
        self.0
    }
}
text_quantity!(
    Percentage,
    Dimension::Share,
    r"^\s*\+?[0-9.]+([eE][+-]?[0-9]+)?\s*%\s*$",
    "A share between 0 % and 100 %.",
    ["5 %"]
);

/// How often something happens, above zero: `"5 /s"`; units /s, /min, /h.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct EventRate(f64);

impl EventRate {
    /// Reads `"5 /s"`.
    ///
    /// # Errors
    /// What is wrong with the text, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rate = read_unsigned(text, Dimension::Rate)?;
        if rate < 1e-9 {
            return Err(format!("\"{text}\" is below the lowest rate, 1e-9 /s"));
        }
        if rate > 1e9 {
            return Err(format!("\"{text}\" is more than 1e9 /s"));
        }
        Ok(Self(rate))
    }
    /// So many a second, of which what cannot be written is taken for the nearest rate that can: from 1e-9 to 1e9.
    pub fn from_per_second(per_second: f64) -> Self {
        Self(if per_second.is_nan() { 1e-9 } else { per_second.clamp(1e-9, 1e9) })
    }
    /// Events per second.
    pub const fn per_second(self) -> f64 {
        self.0
    }
    /// The mean time between two.
    pub fn mean_interval(self) -> Duration {
        Duration::from_secs_f64(1.0 / self.0)
    }
}
text_quantity!(
    EventRate,
    Dimension::Rate,
    r"^\s*\+?[0-9.]+([eE][+-]?[0-9]+)?\s*/(s|min|h)\s*$",
    "A rate of events with its unit: /s, /min or /h.",
    ["5 /s"]
);

/// How much may wait at a link: `"50 packets"`, `"64 kB"` or `"unlimited"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueueCapacity {
    /// Any amount.
    #[default]
    Unlimited,
    /// At most so many packets, beside the one being sent.
    Packets(u32),
    /// At most so many bytes, beside the packet being sent.
    Bytes(u64),
}

impl QueueCapacity {
    /// Reads `"50 packets"`, `"64 kB"` or `"unlimited"`.
    ///
    /// # Errors
    /// What is wrong with the text, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim() == "unlimited" {
            return Ok(Self::Unlimited);
        }
        if Quantity::parse(text).is_some_and(|q| q.dimension == Dimension::Size) {
            return ByteSize::parse(text).map(|s| Self::Bytes(s.bytes()));
        }
        let packets = read_unsigned(text, Dimension::Packets)
            .map_err(|e| format!("{e}; expected a number of packets, a size (\"64 kB\") or \"unlimited\""))?;
        if packets.fract() != 0.0 || packets > 1e9 {
            return Err(format!("\"{text}\" is not a whole number of packets up to 1e9"));
        }
        Ok(Self::Packets(packets as u32))
    }
}
text_quantity!(
    QueueCapacity,
    Dimension::Packets,
    r"^\s*(unlimited|\+?[0-9.]+([eE][+-]?[0-9]+)?\s*(packets|[kMG]?B|[KMG]iB))\s*$",
    "The capacity of a queue: a number of packets, a number of bytes, or unlimited.",
    ["50 packets", "64 kB", "unlimited"]
);

/// TCP's initial congestion window: `"rfc3390"`, `"rfc6928"` or `"4 segments"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitialWindow {
    /// min(4 MSS, max(2 MSS, 4380 B)).
    Rfc3390,
    /// min(10 MSS, max(2 MSS, 14600 B)).
    Rfc6928,
    /// So many segments.
    Segments(u32),
}

impl InitialWindow {
    /// Reads `"rfc3390"`, `"rfc6928"` or `"4 segments"`.
    ///
    /// # Errors
    /// What is wrong with the text, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "rfc3390" => return Ok(Self::Rfc3390),
            "rfc6928" => return Ok(Self::Rfc6928),
            _ => {}
        }
        let n = read_unsigned(text, Dimension::Segments)
            .map_err(|e| format!("{e}; expected \"rfc3390\", \"rfc6928\" or a number of segments"))?;
        if n.fract() != 0.0 || !(1.0..=1e6).contains(&n) {
            return Err(format!("\"{text}\" is not a whole number of segments from 1 to 1e6"));
        }
        Ok(Self::Segments(n as u32))
    }
}
text_quantity!(
    InitialWindow,
    Dimension::Segments,
    r"^\s*(rfc3390|rfc6928|\+?[0-9.]+([eE][+-]?[0-9]+)?\s*segments)\s*$",
    "An initial congestion window: rfc3390, rfc6928 or a number of segments.",
    ["rfc6928", "4 segments"]
);

/// A whole number of one or more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PositiveCount(u32);

impl PositiveCount {
    /// One.
    pub const ONE: Self = Self(1);

    /// So many; zero gives one.
    pub const fn from_u32(n: u32) -> Self {
        Self(if n == 0 { 1 } else { n })
    }
    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<'de> Deserialize<'de> for PositiveCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            0 => Err(D::Error::custom("0 is impossible here: one or more")),
            n => Ok(Self(n)),
        }
    }
}

impl JsonSchema for PositiveCount {
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 1, "maximum": u32::MAX, "description": "A whole number of one or more." })
    }
}

/// A mean length, one or more, not always whole: `3` or `1.5`.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct MeanLength(f64);

impl MeanLength {
    /// The longest that can be written.
    const MAX: f64 = 1e6;

    /// The number, from 1 to a million.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for MeanLength {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let length = f64::deserialize(deserializer)?;
        if !(1.0..=Self::MAX).contains(&length) {
            return Err(D::Error::custom(format!("{length} is not between 1 and a million")));
        }
        Ok(Self(length))
    }
}

impl JsonSchema for MeanLength {
    fn schema_name() -> Cow<'static, str> {
        "MeanLength".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 1, "maximum": 1_000_000, "description": "A mean length, from one to a million." })
    }
}

/// Declares a wrapper for "a value, or this word instead of one".
macro_rules! or_word {
    ($(#[$doc:meta])* $name:ident, $word:literal, $none:ident, $none_doc:literal, $some:ident, $some_doc:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug, Default)]
        pub enum $name<T> {
            #[doc = $none_doc]
            #[default]
            $none,
            #[doc = $some_doc]
            $some(T),
        }
        impl<T: Copy> $name<T> {
            /// The value, if there is one.
            pub fn get(self) -> Option<T> {
                match self {
                    Self::$none => None,
                    Self::$some(value) => Some(value),
                }
            }
        }
        impl<'de, T: Deserialize<'de>> Deserialize<'de> for $name<T> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(match word::deserialize(deserializer, $word)? {
                    None => Self::$none,
                    Some(value) => Self::$some(value),
                })
            }
        }
        impl<T: JsonSchema> JsonSchema for $name<T> {
            fn schema_name() -> Cow<'static, str> {
                format!("{}_{}", stringify!($name), T::schema_name()).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let value = generator.subschema_for::<T>();
                json_schema!({ "anyOf": [{ "const": $word }, value] })
            }
        }
    };
}

or_word!(
    /// A bound, or the word `"unlimited"`.
    Bound, "unlimited", Unlimited, "No bound: `\"unlimited\"`.", Limited, "At most this."
);
or_word!(
    /// A value, or the word `"off"`.
    Switch, "off", Off, "Not done: `\"off\"`.", On, "Done with this value."
);

/// Reading "this word, or a value".
mod word {
    use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer, Visitor};
    use std::fmt;
    use std::marker::PhantomData;

    pub(super) fn deserialize<'de, D, T>(deserializer: D, word: &'static str) -> Result<Option<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
    {
        struct ValueOrWordVisitor<T>(&'static str, PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ValueOrWordVisitor<T> {
            type Value = Option<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a value or \"{}\"", self.0)
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                if text.trim() == self.0 {
                    return Ok(None);
                }
                // A text that begins like a number was meant as a value. Any other may be a misspelt word, so the error
                // names the word.
                let number = text.trim_start().starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
                T::deserialize(text.into_deserializer()).map(Some).map_err(|e: E| match number {
                    true => e,
                    false => E::custom(format!("{e}, or \"{}\"", self.0)),
                })
            }
            fn visit_i64<E: Error>(self, n: i64) -> Result<Self::Value, E> {
                T::deserialize(n.into_deserializer())
                    .map(Some)
                    .map_err(|e: E| E::custom(format!("{e}, or \"{}\"", self.0)))
            }
            fn visit_f64<E: Error>(self, x: f64) -> Result<Self::Value, E> {
                T::deserialize(x.into_deserializer())
                    .map(Some)
                    .map_err(|e: E| E::custom(format!("{e}, or \"{}\"", self.0)))
            }
        }
        deserializer.deserialize_any(ValueOrWordVisitor(word, PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initial_window_is_a_rule_or_so_many_segments() {
        for (text, expected) in [
            ("rfc3390", InitialWindow::Rfc3390),
            (" rfc6928 ", InitialWindow::Rfc6928),
            ("1 segments", InitialWindow::Segments(1)),
            ("10 segments", InitialWindow::Segments(10)),
        ] {
            assert_eq!(InitialWindow::parse(text), Ok(expected));
        }
        for text in ["rfc2581", "0 segments", "1.5 segments", "2e6 segments", "4"] {
            assert!(InitialWindow::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_word_is_offered_to_who_wrote_no_number() {
        let read = |text: &str| {
            let text = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text);
            Bound::<TimeSpan>::deserialize(text).map_err(|error| error.to_string())
        };
        assert_eq!(
            (read("unlimited"), read("5 s")),
            (Ok(Bound::Unlimited), Ok(Bound::Limited(TimeSpan::from_secs(5))))
        );
        for (text, offered) in
            [("unlimted", true), ("5 parsecs", false), ("+x", false), (" .5", false), ("", true)]
        {
            let said = read(text).unwrap_err();
            assert_eq!(said.ends_with(", or \"unlimited\""), offered, "{said}");
        }
    }

    #[test]
    fn the_longest_time_is_the_last_that_is_taken() {
        assert_eq!(TimeSpan::parse("1.8e9 s").map(|t| t.get().as_nanos()), Ok(1_800_000_000_000_000_000));
        assert_eq!(TimeSpan::parse("1.9e9 s"), Err("\"1.9e9 s\" is longer than 1.8e9 s".into()));
    }

    #[test]
    fn quantities_are_read_in_their_base_units() {
        assert_eq!(TimeSpan::parse("1.5 ms").map(|t| t.get().as_nanos()), Ok(1_500_000));
        assert_eq!(TimeSpan::parse("1e-3s").map(|t| t.get().as_nanos()), Ok(1_000_000));
        assert_eq!(TimeSpan::parse("2 h").map(|t| t.get().as_secs()), Ok(7200));
        assert_eq!(TimeSpan::parse("1.5 s").map(|t| t.get().as_millis()), Ok(1500));
        assert_eq!(TimeSpan::parse(" 7d ").map(|t| t.get().as_secs()), Ok(604_800));
        assert_eq!(ByteSize::parse("1.5 GiB").map(ByteSize::bytes), Ok(3 << 29));
        assert_eq!(BitRate::parse("1.5 Mb/s").map(BitRate::bits_per_second), Ok(1_500_000));
        assert_eq!(ByteSize::parse("64 KiB").map(ByteSize::bytes), Ok(65_536));
        assert_eq!(ByteSize::parse("64 kB").map(ByteSize::bytes), Ok(64_000));
        assert_eq!(Percentage::parse("5 %").map(Percentage::get), Ok(0.05));
        assert_eq!((Percentage::from_percent(5).get(), Percentage::from_percent(100).get()), (0.05, 1.0));
        assert_eq!(EventRate::parse("30 /min").map(EventRate::per_second), Ok(0.5));
        assert_eq!(QueueCapacity::parse("50 packets"), Ok(QueueCapacity::Packets(50)));
        assert_eq!(QueueCapacity::parse("3 kB"), Ok(QueueCapacity::Bytes(3000)));
        assert_eq!(QueueCapacity::parse("unlimited"), Ok(QueueCapacity::Unlimited));
        assert_eq!(InitialWindow::parse("4 segments"), Ok(InitialWindow::Segments(4)));
        assert_eq!(InitialWindow::parse("rfc3390"), Ok(InitialWindow::Rfc3390));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for text in [
            "", "s", "1", "1 S", "- 1 s", "1..2 s", "nan s", "inf s", "1e400 s", "1 s s", "9e99 h",
            "5 weeks", "99999 d",
        ] {
            assert!(TimeSpan::parse(text).is_err(), "{text}");
        }
        assert!(QueueCapacity::parse("1.5 packets").is_err());
        assert!(InitialWindow::parse("0 segments").is_err());
        assert!(ByteSize::parse("1e30 GB").is_err());
        assert!(Percentage::parse("100.1 %").is_err());
    }

    #[test]
    fn quantities_convert_within_their_dimension() {
        let q = Quantity::parse("250 ms").unwrap();
        assert_eq!(
            (q.in_base_unit(), q.convert_to("s"), q.convert_to("us"), q.convert_to("B")),
            (0.25, Some(0.25), Some(250_000.0), None)
        );
        assert_eq!(Quantity::parse("7.5%").and_then(|q| q.convert_to("%")), Some(7.5));
        assert_eq!(Quantity::parse("7 parsecs"), None);
    }
}
