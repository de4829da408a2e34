//! Formatting of numbers and texts for people.

use usher_observe::row::format_number;

/// Escapes a text for HTML and SVG, between tags and in double-quoted attributes. Control characters that XML cannot
/// contain become the replacement character.
pub(crate) fn escape_markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Formats a value with this many decimals, or as a power of ten if it is far too large or small.
pub(crate) fn format_decimals(value: f64, decimals: i32) -> String {
    if !value.is_finite() {
        return format_number(value);
    }
    if value != 0.0 && !(1e-5..1e7).contains(&value.abs()) {
        return format_scientific(value, (decimals + decimal_exponent(value)).clamp(0, 8));
    }
    let value = if decimals < 0 {
        let rounding = libm::pow(10.0, f64::from(-decimals));
        libm::round(value / rounding) * rounding
    } else {
        value
    };
    format_sign(format!("{value:.*}", decimals.clamp(0, 12) as usize))
}

/// Formats a value with this many significant digits, without trailing zeros.
pub(crate) fn format_significant(value: f64, digits: i32) -> String {
    let places = digits - 1 - decimal_exponent(value);
    let text = format_decimals(value, places);
    if text.contains('.') && !text.contains('×') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Formats a mean with its half-width, to the two significant digits of the half-width.
pub(crate) fn with_half_width(mean: f64, half_width: f64) -> String {
    if !half_width.is_finite() || half_width == 0.0 || !mean.is_finite() {
        return format_significant(mean, 5);
    }
    let places = (1 - decimal_exponent(half_width)).clamp(-12, 12);
    format!("{} ± {}", format_decimals(mean, places), format_decimals(half_width, places))
}

/// Formats a value with the ends of its interval, to two digits of the interval's half-width; the value alone without
/// an interval.
pub(crate) fn with_ends(value: f64, ends: Option<(f64, f64)>) -> String {
    let Some((low, high)) = ends.filter(|(low, high)| low < high && value.is_finite()) else {
        return format_significant(value, 5);
    };
    let places = (1 - decimal_exponent((high - low) / 2.0)).clamp(-12, 12);
    let text = |v| format_decimals(v, places);
    format!("{} ({} to {})", text(value), text(low), text(high))
}

/// Returns the power of ten of a value's first digit; 0 for zero.
pub(crate) fn decimal_exponent(value: f64) -> i32 {
    if value == 0.0 || !value.is_finite() {
        return 0;
    }
    let text = format!("{:e}", value.abs());
    text.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0)
}

/// Formats as in `1.5×10⁻⁷`; a mantissa of one is omitted.
pub(crate) fn format_scientific(value: f64, decimals: i32) -> String {
    let text = format!("{value:.*e}", decimals.max(0) as usize);
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: String = power.chars().filter_map(superscript_digit).collect();
    match format_sign(mantissa.to_owned()).as_str() {
        "1" => format!("10{power}"),
        mantissa => format!("{mantissa}×10{power}"),
    }
}

fn superscript_digit(c: char) -> Option<char> {
    match c {
        '-' => Some('⁻'),
        c => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'].get(c.to_digit(10)? as usize).copied(),
    }
}

/// Uses a true minus sign, and none before zero.
fn format_sign(text: String) -> String {
    match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| matches!(c, '0' | '.')) => rest.to_owned(),
        Some(rest) => format!("−{rest}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_only_text() {
        assert_eq!(
            escape_markup("<b a='1' c=\"2\">&\u{0}"),
            "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;\u{fffd}"
        );
    }

    #[test]
    fn numbers_for_people() {
        for (value, digits, text) in [
            (0.0, 4, "0"),
            (0.022_42, 4, "0.02242"),
            (1_234_567.0, 4, "1235000"),
            (-3.0, 3, "−3"),
            (1.5e-7, 3, "1.50×10⁻⁷"),
            (5e12, 1, "5×10¹²"),
            (1e9, 1, "10⁹"),
            (f64::NAN, 3, "NaN"),
        ] {
            assert_eq!(format_significant(value, digits), text);
        }
    }

    #[test]
    fn ends_have_the_digits_of_their_half_width() {
        assert_eq!(with_ends(2.1234, Some((1.8765, 2.6543))), "2.12 (1.88 to 2.65)");
        assert_eq!(with_ends(2.1234, None), "2.1234");
        assert_eq!(with_ends(2.0, Some((2.0, 2.0))), "2");
    }

    #[test]
    fn a_half_width_decides_the_digits() {
        for (mean, half_width, text) in [
            (12.345_67, 0.0512, "12.346 ± 0.051"),
            (1234.6, 23.0, "1235 ± 23"),
            (98_765.0, 1234.0, "98800 ± 1200"),
            (0.1, 0.0, "0.1"),
            (0.123_456_78, f64::INFINITY, "0.12346"),
            (-0.001, 0.2, "0.00 ± 0.20"),
        ] {
            assert_eq!(with_half_width(mean, half_width), text);
        }
    }
}
