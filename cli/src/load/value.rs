//! Times, shares and mixes as people write them.

use std::str::FromStr;
use usher_core::Duration;

/// A time: `10s`, `500ms`, `2m`, `1.5` (seconds).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Secs(pub(crate) Duration);

impl FromStr for Secs {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("us", 1e-6), ("ms", 1e-3), ("min", 60.0), ("m", 60.0), ("h", 3600.0), ("s", 1.0)];
        let text = text.trim();
        let found = units.into_iter().find_map(|(unit, s)| text.strip_suffix(unit).map(|number| (number, s)));
        let (number, unit) = found.unwrap_or((text, 1.0));
        match number.trim().parse::<f64>() {
            Ok(n) if n.is_finite() && (0.0..1e9).contains(&(n * unit)) => {
                Ok(Self(Duration::from_secs_f64(n * unit)))
            }
            _ => Err(format!("{text:?} is no time; write 10s, 500ms or 2m")),
        }
    }
}

/// A share: `0.1` or `10%`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Share(pub(crate) f64);

impl FromStr for Share {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = match text.trim().strip_suffix('%') {
            Some(number) => (number.trim(), 0.01),
            None => (text.trim(), 1.0),
        };
        match number.parse::<f64>() {
            Ok(n) if (0.0..=1.0).contains(&(n * unit)) => Ok(Self(n * unit)),
            _ => Err(format!("{text:?} is no share; write 0.1 or 10%")),
        }
    }
}

/// A method of several with its share: `pap=70`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Part {
    pub(crate) method: String,
    pub(crate) share: f64,
}

impl FromStr for Part {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no METHOD=SHARE; write them as pap=70,chap=30");
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
    fn times_and_shares_are_read() {
        for (text, ms) in
            [("10s", 10_000), ("500ms", 500), ("2m", 120_000), ("1.5", 1_500), ("0", 0), ("1 min", 60_000)]
        {
            assert_eq!(text.parse::<Secs>().map(|s| s.0), Ok(Duration::from_millis(ms)), "{text}");
        }
        for (text, share) in [("0.25", 0.25), ("25%", 0.25), ("100 %", 1.0)] {
            assert_eq!(text.parse::<Share>(), Ok(Share(share)), "{text}");
        }
        for text in ["", "s", "-1s", "x", "1e30"] {
            assert!(text.parse::<Secs>().is_err(), "{text}");
        }
        for text in ["pap=70", " PAP = 70 %"] {
            assert_eq!(text.parse(), Ok(Part { method: "pap".to_owned(), share: 70.0 }), "{text}");
        }
        for text in ["pap", "=5", "pap=", "pap=0", "pap=-1", "pap=inf", "pap=x"] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
        assert!("1.5".parse::<Share>().is_err() && "101%".parse::<Share>().is_err());
    }
}
