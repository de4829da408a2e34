//! The Network Access Identifier (RFC 7542): the user and realm of a name.

/// A parsed name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nai<'a> {
    /// User part. Empty if the name hides it (`@example.org`, RFC 7542 §2.4).
    pub user: &'a [u8],
    /// Realm as in the name. `None`: no realm.
    pub realm: Option<&'a [u8]>,
}

impl<'a> Nai<'a> {
    /// Splits `user@realm` at the last `@`. Without `@`, splits `realm` and `user` at the first `prefix` character
    /// (`EXAMPLE\user`). If the realm is invalid ([`is_valid_realm`]), the whole name is the user.
    #[must_use]
    pub fn parse(name: &'a [u8], prefix: Option<u8>) -> Self {
        let whole = Self { user: name, realm: None };
        let (user, realm, labels) = if let Some(at) = name.iter().rposition(|&b| b == b'@') {
            (&name[..at], &name[at + 1..], is_valid_realm(&name[at + 1..]))
        } else if let Some(at) = prefix.and_then(|p| name.iter().position(|&b| b == p)) {
            // The prefix is often a domain of a single label, with characters that host names cannot have. So
            // `is_valid_realm` does not apply.
            (&name[at + 1..], &name[..at], at > 0)
        } else {
            return whole;
        };
        if labels { Self { user, realm: Some(realm) } } else { whole }
    }
}

/// True if the octets are a valid realm (RFC 7542 §2.2): labels of letters, digits, hyphens and non-ASCII
/// characters, separated by dots. Labels are not empty and have no hyphen at either end. The realm is UTF-8 of at
/// most 253 octets. A single label is allowed, since such realms are in use.
#[must_use]
pub fn is_valid_realm(realm: &[u8]) -> bool {
    let label = |l: &[u8]| {
        !l.is_empty()
            && l.first() != Some(&b'-')
            && l.last() != Some(&b'-')
            && l.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'-' || b >= 0x80)
    };
    realm.len() <= 253 && realm.split(|&b| b == b'.').all(label) && core::str::from_utf8(realm).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_name(name: &str) -> (&str, Option<&str>) {
        let nai = Nai::parse(name.as_bytes(), Some(b'\\'));
        let text = |b| core::str::from_utf8(b).unwrap();
        (text(nai.user), nai.realm.map(text))
    }

    /// The examples of RFC 7542 §2.9. "fred@example" and "eng%nancy@example.net" count as valid, since only the
    /// realm for routing is parsed here.
    #[test]
    fn names_of_rfc_7542() {
        for (name, user, realm) in [
            ("bob", "bob", None),
            ("joe@example.com", "joe", Some("example.com")),
            ("fred@foo-9.example.com", "fred", Some("foo-9.example.com")),
            ("jack@3rd.depts.example.com", "jack", Some("3rd.depts.example.com")),
            ("fred.smith@example.com", "fred.smith", Some("example.com")),
            ("eng%nancy@example.net", "eng%nancy", Some("example.net")),
            ("@privatecorp.example.net", "", Some("privatecorp.example.net")),
            ("alice@xn--tmonesimerkki-bfbb.example.net", "alice", Some("xn--tmonesimerkki-bfbb.example.net")),
            ("山田@例え.テスト", "山田", Some("例え.テスト")),
            ("fred@example", "fred", Some("example")),
            ("EXAMPLE\\fred", "fred", Some("EXAMPLE")),
            ("EXAMPLE\\fred@example.org", "EXAMPLE\\fred", Some("example.org")),
            ("two@ats@example.org", "two@ats", Some("example.org")),
        ] {
            assert_eq!(parse_name(name), (user, realm));
        }
        for bad in ["fred@example_9.com", "fred@.example.net", "fred@", "a@b..c", "a@-b.c", "a@b-", "\\a"] {
            assert_eq!(parse_name(bad), (bad, None));
        }
        assert!(!is_valid_realm(&[0x80]) && !is_valid_realm(&[b'a'; 254]));
        assert_eq!(Nai::parse(b"a\\b", None), Nai { user: b"a\\b", realm: None });
    }

    proptest! {
        #[test]
        fn a_name_is_its_parts(name: Vec<u8>) {
            let nai = Nai::parse(&name, Some(b'\\'));
            match nai.realm {
                None => prop_assert_eq!(nai.user, &name[..]),
                Some(realm) => prop_assert_eq!(nai.user.len() + realm.len() + 1, name.len()),
            }
        }
    }
}
