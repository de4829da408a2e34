//! The certificate parameters in a PostgreSQL URL, which the client library does not support.

use std::ops::Range;

/// The TLS parameters. As in libpq, the last of a repeated parameter counts.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct TlsParameters {
    pub(super) mode: Option<String>,
    pub(super) root: Option<String>,
    pub(super) certificate: Option<String>,
    pub(super) key: Option<String>,
}

impl TlsParameters {
    fn tls_parameter_slot(&mut self, key: &str) -> Option<&mut Option<String>> {
        match key {
            "sslmode" => Some(&mut self.mode),
            "sslrootcert" => Some(&mut self.root),
            "sslcert" => Some(&mut self.certificate),
            "sslkey" => Some(&mut self.key),
            _ => None,
        }
    }
}

/// Splits the TLS parameters from a URL. The URL keeps unknown parameters, which the client library rejects.
pub(super) fn split_tls_parameters(url: &str) -> (TlsParameters, String) {
    let pairs = if url.starts_with("postgresql://") || url.starts_with("postgres://") {
        parse_url_parameters(url)
    } else {
        of_words(url)
    };
    let (mut asked, mut rest, mut from) = (TlsParameters::default(), String::new(), 0);
    for (range, key, value) in pairs {
        if let Some(place) = asked.tls_parameter_slot(&key) {
            *place = Some(value);
            rest.push_str(&url[from..range.start]);
            from = range.end;
        }
    }
    rest.push_str(&url[from..]);
    (asked, rest)
}

/// The range, the name and the value of a parameter.
type UrlParameter = (Range<usize>, String, String);

/// The parameters after the `?`, each with its trailing `&`.
fn parse_url_parameters(url: &str) -> Vec<UrlParameter> {
    // The client library allows a question mark in a password, but no at sign.
    let after = url.find('@').unwrap_or_default();
    let Some(query) = url[after..].find('?') else { return Vec::new() };
    let mut at = after + query + 1;
    let mut pairs = Vec::new();
    for pair in url[at..].split_inclusive('&') {
        let text = pair.strip_suffix('&').unwrap_or(pair);
        if let Some((key, value)) = text.split_once('=')
            && let (Some(key), Some(value)) = (decode_percent(key), decode_percent(value))
        {
            pairs.push((at..at + pair.len(), key, value));
        }
        at += pair.len();
    }
    pairs
}

/// Decodes percent-encoding such as `%2F`. `None`: the result is not text.
fn decode_percent(text: &str) -> Option<String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let escaped = others.get(..2).filter(|_| *first == b'%').and_then(|digits| {
            let digit = |n: usize| char::from(digits[n]).to_digit(16);
            u8::try_from(digit(0)? * 16 + digit(1)?).ok()
        });
        octets.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &others[2..] } else { others };
    }
    String::from_utf8(octets).ok()
}

/// The parameters of `key = value key = 'some value'`.
fn of_words(text: &str) -> Vec<UrlParameter> {
    let mut pairs = Vec::new();
    let mut at = 0;
    while let Some((key, value, end)) = next_parameter(text, at) {
        pairs.push((at..end, key, value));
        at = end;
    }
    pairs
}

/// Returns the parameter that begins at or after `at`, and its end.
fn next_parameter(text: &str, at: usize) -> Option<(String, String, usize)> {
    let (key, _) = text[at..].split_once('=')?;
    let name = key.trim();
    if name.is_empty() || name.contains(char::is_whitespace) {
        return None;
    }
    let mut rest = text[at + key.len() + 1..].trim_start().chars().peekable();
    let begin = text.len() - rest.clone().map(char::len_utf8).sum::<usize>();
    let (mut value, mut length) = (String::new(), 0);
    let quoted = rest.next_if_eq(&'\'').is_some();
    length += usize::from(quoted);
    loop {
        match rest.next() {
            None if quoted => return None,
            None => break,
            Some('\'') if quoted => {
                length += 1;
                break;
            }
            Some(c) if !quoted && c.is_whitespace() => break,
            Some('\\') => {
                length += 1;
                let escaped = rest.next();
                length += escaped.map_or(0, char::len_utf8);
                value.extend(escaped);
            }
            Some(c) => {
                length += c.len_utf8();
                value.push(c);
            }
        }
    }
    Some((name.to_owned(), value, begin + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls_parameters(mode: &str, root: &str) -> TlsParameters {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        TlsParameters { mode: given(mode), root: given(root), ..TlsParameters::default() }
    }

    #[test]
    fn parameters_of_tls_are_taken_out_of_a_url() {
        let (found, rest) = split_tls_parameters(
            "postgresql://u:what?@db/x?sslmode=verify-full&connect_timeout=2&sslrootcert=%2Fetc%2Fmy%20ca.pem",
        );
        assert_eq!(found, tls_parameters("verify-full", "/etc/my ca.pem"));
        assert_eq!(rest, "postgresql://u:what?@db/x?connect_timeout=2&");
        let (found, rest) =
            split_tls_parameters("postgres://db?sslcert=a&sslkey=b&sslmode=disable&sslmode=require");
        assert_eq!((found.certificate.as_deref(), found.key.as_deref()), (Some("a"), Some("b")));
        assert_eq!((found.mode.as_deref(), rest.as_str()), (Some("require"), "postgres://db?"));
        let plain = "postgresql://u:sslmode=require@db/x";
        assert_eq!(split_tls_parameters(plain), (TlsParameters::default(), plain.to_owned()));
    }

    #[test]
    fn parameters_of_tls_are_taken_out_of_words() {
        let (found, rest) = split_tls_parameters(
            "host=db sslmode = verify-ca password='it\\'s sslmode=x' sslrootcert='/etc/my ca'",
        );
        assert_eq!(found, tls_parameters("verify-ca", "/etc/my ca"));
        assert_eq!(rest, "host=db password='it\\'s sslmode=x'");
        let (found, rest) = split_tls_parameters("sslrootcert=/a\\ b\tuser=ü");
        assert_eq!((found, rest.as_str()), (tls_parameters("", "/a b"), "\tuser=ü"));
        for broken in ["host=db sslmode", "host=db sslmode='require", "=x sslmode=require", "a b=c"] {
            assert_eq!(split_tls_parameters(broken), (TlsParameters::default(), broken.to_owned()));
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_written_is_parted_or_left(text in "(postgresql://|)[a-z%'\\\\=&?@ ü]{0,40}") {
            let (found, rest) = split_tls_parameters(&text);
            if found == TlsParameters::default() {
                proptest::prop_assert_eq!(rest, text);
            } else {
                proptest::prop_assert!(rest.len() < text.len());
            }
        }
    }
}
