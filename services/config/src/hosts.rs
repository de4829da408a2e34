//! Hosts from which a server may fetch revocation lists that a peer's certificate names. They are the settings
//! `crl_from_users` of an AAA server and `crl_from_peers` of an IKEv2 gateway.

/// Limit of a URL, in octets.
const LONGEST_URL: usize = 512;

/// Returns the host and port of a plain HTTP URL. Rejects any URL that two parsers could read as different hosts.
fn parse_host(url: &str) -> Option<(String, u16)> {
    let scheme = url.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://"))?;
    let plain = url.len() <= LONGEST_URL && url.bytes().all(|c| c.is_ascii_graphic());
    let authority = url[scheme.len()..].split(['/', '?', '#']).next().filter(|_| plain)?;
    let (name, port) = match authority.rsplit_once(':') {
        // An IPv6 address in brackets contains colons.
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()?),
        _ => (authority, 80),
    };
    let inside = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    let known = |c: u8| c.is_ascii_alphanumeric() || b".-_:".contains(&c);
    let sound = !inside.is_empty() && inside.bytes().all(known) && (name != inside || !name.contains(':'));
    sound.then(|| (name.to_ascii_lowercase(), port))
}

/// Returns the fault of an entry that names no host.
#[must_use]
pub fn host_entry_error(entry: &str) -> Option<String> {
    let name = entry.strip_prefix("*.").unwrap_or(entry);
    if entry == "*" {
        return Some(
            "\"*\" is not allowed: any issuer below `ca` could make this server fetch from any host in its \
             reach; name the hosts that publish lists"
                .to_owned(),
        );
    }
    let url = format!("http://{name}");
    (name.contains(['/', '?', '#', '*']) || parse_host(&url).is_none()).then(|| {
        format!(
            "\"{entry}\" is not a host such as \"crl.example.org\", \"*.example.org\" or \
             \"crl.example.org:8080\""
        )
    })
}

/// True if the host and port of a URL match an entry of `hosts`.
#[must_use]
pub fn is_of(url: &str, hosts: &[String]) -> bool {
    let Some((name, port)) = parse_host(url) else { return false };
    hosts.iter().any(|entry| {
        let (below, entry) =
            entry.strip_prefix("*.").map_or((false, entry.as_str()), |domain| (true, domain));
        let Some((wanted, at)) = parse_host(&format!("http://{entry}")) else { return false };
        let fits = if below {
            name.strip_suffix(&wanted).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        } else {
            name == wanted
        };
        fits && port == at
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_of_the_hosts_that_are_named_and_no_other() {
        let hosts =
            ["crl.example.org", "*.pki.example:8080", "[2001:db8::1]", "192.0.2.1:81"].map(str::to_owned);
        for url in [
            "http://crl.example.org/a.crl",
            "HTTP://CRL.example.org",
            "http://crl.example.org:80/a?b#c",
            "http://x.pki.example:8080/",
            "http://x.y.pki.example:8080/",
            "http://[2001:db8::1]/a",
            "http://192.0.2.1:81/a",
        ] {
            assert!(is_of(url, &hosts), "{url}");
        }
        for url in [
            "https://crl.example.org/a.crl",
            "ldap://crl.example.org/a",
            "file:///etc/passwd",
            "http://crl.example.org:8080/",
            "http://crl.example.org.evil.example/",
            "http://evil.example/crl.example.org",
            "http://crl.example.org@evil.example/",
            "http://evil.example#@crl.example.org/",
            "http://evil.example\\@crl.example.org/",
            "http://crl.example.org%2fevil.example/",
            "http://xcrl.example.org/",
            "http://pki.example:8080/",
            "http://.pki.example:8080/",
            "http://xpki.example:8080/",
            "http://x.pki.example/",
            "http://2001:db8::1/",
            "http://192.0.2.1/",
            "http://127.0.0.1/",
            "http://",
            "http:///a",
            "http://crl.example.org/\r\nHost: evil",
            "http://crl.example.org:/",
            "http://crl.example.org:99999/",
        ] {
            assert!(!is_of(url, &hosts), "{url}");
        }
        assert!(!is_of(&format!("http://crl.example.org/{}", "a".repeat(LONGEST_URL)), &hosts));
        for entry in &hosts {
            assert_eq!(host_entry_error(entry), None, "{entry}");
        }
        for wrong in ["", "*", "*.", "http://a", "a/b", "a b", "a@b", "*.*.a", "a:x"] {
            assert!(host_entry_error(wrong).is_some(), "{wrong}");
        }
    }
}
