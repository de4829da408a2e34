//! Times, shares and mixes as people write them.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::str::FromStr;
use usher_config::units::TimeSpan;
use usher_core::{Duration, NamedValue};
use usher_ppp::pppoe::MacAddress;

/// One of a closed set of words.
pub(crate) fn named_value_parser<T: NamedValue + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let words = T::ALL.iter().map(|value| value.name());
    PossibleValuesParser::new(words).try_map(|text| {
        T::ALL.iter().copied().find(|value| value.name() == text).ok_or(format!("no such {}", T::WHAT))
    })
}

/// A time: `10s`, `500ms`, `2m`, `1.5` (seconds).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct DurationArg(pub(crate) Duration);

impl FromStr for DurationArg {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        // A duration on the command line may be short: a number without a unit means seconds, and `m` means minutes.
        let text = text.trim();
        let whole = match text.strip_suffix('m') {
            Some(minutes) => format!("{minutes} min"),
            None if text.ends_with(|c: char| c.is_ascii_digit() || c == '.') => format!("{text} s"),
            None => text.to_owned(),
        };
        let time =
            TimeSpan::parse(&whole).map_err(|_| format!("{text:?} is not a time; write 10s, 500ms or 2m"))?;
        Ok(Self(time.get()))
    }
}

/// A share: `0.1` or `10%`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct FractionArg(pub(crate) f64);

impl FromStr for FractionArg {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = match text.trim().strip_suffix('%') {
            Some(number) => (number.trim(), 0.01),
            None => (text.trim(), 1.0),
        };
        match number.parse::<f64>() {
            Ok(n) if (0.0..=1.0).contains(&(n * unit)) => Ok(Self(n * unit)),
            _ => Err(format!("{text:?} is not a share; write 0.1 or 10%")),
        }
    }
}

/// An address of Ethernet: `02:00:5e:00:00:00`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MacAddressArg(pub(crate) MacAddress);

impl FromStr for MacAddressArg {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let octets = text.split(':').map(|part| match part.len() {
            2 => u8::from_str_radix(part, 16).ok(),
            _ => None,
        });
        let address = octets.collect::<Option<Vec<u8>>>().and_then(|all| <[u8; 6]>::try_from(all).ok());
        match address.map(MacAddress) {
            Some(address) if address.is_unicast() => Ok(Self(address)),
            _ => {
                Err(format!("{text:?} is not the Ethernet address of one station, such as 02:00:5e:00:00:00"))
            }
        }
    }
}

/// A method of several with its share: `pap=70`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct MethodShareArg {
    pub(crate) method: String,
    pub(crate) share: f64,
}

impl FromStr for MethodShareArg {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not METHOD=SHARE; write several as pap=70,chap=30");
        let (method, share) = text.split_once('=').ok_or_else(bad)?;
        let share = share.trim().trim_end_matches('%').trim_end().parse::<f64>().map_err(|_| bad())?;
        if method.trim().is_empty() || !(share.is_finite() && share > 0.0) {
            return Err(bad());
        }
        Ok(Self { method: method.trim().to_ascii_lowercase(), share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_are_read() {
        assert_eq!("02:00:5e:0a:00:ff".parse(), Ok(MacAddressArg(MacAddress([2, 0, 0x5e, 10, 0, 255]))));
        for wrong in [
            "02:00:5e:00:00",
            "02:00:5e:00:00:00:00",
            "2:0:5e:0:0:0",
            "03:00:5e:00:00:00",
            "0g:00:5e:00:00:00",
        ] {
            assert!(wrong.parse::<MacAddressArg>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_and_shares_are_read() {
        for (text, ms) in [
            ("10s", 10_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1.5", 1_500),
            ("0", 0),
            ("1 min", 60_000),
            ("1 d", 86_400_000),
        ] {
            assert_eq!(text.parse::<DurationArg>().map(|s| s.0), Ok(Duration::from_millis(ms)), "{text}");
        }
        for (text, share) in [("0.25", 0.25), ("25%", 0.25), ("100 %", 1.0)] {
            assert_eq!(text.parse::<FractionArg>(), Ok(FractionArg(share)), "{text}");
        }
        for text in ["", "s", "-1s", "x", "1e30"] {
            assert!(text.parse::<DurationArg>().is_err(), "{text}");
        }
        for text in ["pap=70", " PAP = 70 %"] {
            assert_eq!(text.parse(), Ok(MethodShareArg { method: "pap".to_owned(), share: 70.0 }), "{text}");
        }
        for text in ["pap", "=5", "pap=", "pap=0", "pap=-1", "pap=inf", "pap=x"] {
            assert!(text.parse::<MethodShareArg>().is_err(), "{text}");
        }
        assert!("1.5".parse::<FractionArg>().is_err() && "101%".parse::<FractionArg>().is_err());
    }
}
