//! What is read, what is written, and what stops.

use super::*;
use usher_config::Alone;
use usher_crypto::tls::WallClock;
use usher_ike::machine::{LocalAuth, RemoteAuth};

fn alone(text: &str) -> Result<Imported, SwanctlError> {
    import(text, &mut |_, _| Err("nothing is included here".to_owned()))
}

const SITE: &str = r#"
connections {
  site {   # to the other office
    version = 2
    remote_addrs = 192.0.2.9
    proposals = aes128-sha256-x25519, aes128-sha256-modp4096, default
    mobike = no
    dpd_delay = 20s
    rekey_time = 4h
    keyingtries = 0
    local { auth = psk
            id = gw.test }
    remote { auth = psk
             id = ini.test }
    children { net { local_ts = 10.2.0.0/16, 10.3.0.0/16
                     remote_ts = 10.1.0.0/16
                     esp_proposals = aes128gcm16-x25519
                     start_action = trap
                     rekey_bytes = 1000000
                     rekey_time = 1h } }
  }
  users {
    pools = inner
    local-1 { auth = psk
              id = gw.test }
    remote { auth = eap-mschapv2
             eap_id = %any }
    children { net { local_ts = 10.2.0.0/16 } }
  }
}
pools { inner { addrs = 10.9.0.0/24
                dns = 10.9.0.1 } }
secrets {
  ike-1 { id-a = gw.test
          id-b = ini.test
          secret = "a shared \ secret" }
  ike-2 { secret = "for all the others" }
  eap-ann { id = ann
            secret = "a long password" }
}
authorities { }
"#;

#[test]
fn what_is_taken_is_a_configuration_and_what_is_not_is_named() {
    let Imported { text, left, stops } = alone(SITE).unwrap();
    assert_eq!(stops, []);
    let clock = WallClock::at(usher_core::WallTime::UNIX_EPOCH);
    let loaded = crate::config::parse("ike.toml", &text, &Alone, &clock);
    let loaded = loaded.unwrap_or_else(|faults| panic!("{faults}\n{text}"));
    let [site, users] = &loaded.config.peers[..] else { panic!("{text}") };
    assert_eq!(site.remote.map(|remote| remote.to_string()).as_deref(), Some("192.0.2.9:500"));
    let secret = |auth: &LocalAuth| match auth {
        LocalAuth::Psk(key) => String::from_utf8_lossy(key).into_owned(),
        _ => String::new(),
    };
    assert_eq!(secret(&site.connection.local_auth), "a shared  secret");
    assert_eq!(secret(&users.connection.local_auth), "for all the others");
    assert_eq!((site.connection.proposals.len(), site.connection.mobike), (1, false));
    assert_eq!(site.connection.children[0].local.as_ref().map(Vec::len), Some(2));
    let volume = loaded.file.connection[0].child[0].volume();
    assert_eq!((volume.soft_octets, volume.soft_packets), (Some(1_000_000), None));
    assert_eq!(site.connection.liveness, Some(usher_core::Duration::from_secs(20)));
    assert!(matches!(users.connection.remote_auth, RemoteAuth::Eap { .. }) && users.pools == ["inner"]);
    assert_eq!(loaded.config.users.passwords.len(), 1);
    let left: Vec<String> = left.iter().map(|(line, what)| alloc::format!("{line}: {what}")).collect();
    for (line, what) in [
        (6, "the proposal aes128-sha256-modp4096 is not taken: \"modp4096\" is no algorithm"),
        (10, "keyingtries of the connection site is not taken"),
        (18, "the first packet begins a connection: write on_demand = true above its [[connection.child]]"),
        (32, "name servers are of connections"),
        (41, "the section authorities is not taken"),
    ] {
        let start = alloc::format!("{line}: {what}");
        assert!(left.iter().any(|left| left.starts_with(&start)), "{start} is not among {left:#?}");
    }
}

#[test]
fn how_certificates_are_looked_at_is_of_the_whole_file() {
    let of = |ocsp: &str, first: &str, second: &str| {
        let one = |n: u8, more: &str| {
            alloc::format!(
                "c{n} {{\n{ocsp}\nlocal {{ auth = psk }}\nremote {{ auth = pubkey\n cacerts = ca.pem\n{more} }}\n}}\n"
            )
        };
        alone(&alloc::format!("connections {{\n{}{}}}\n", one(1, first), one(2, second))).unwrap()
    };
    let table = |imported: &Imported| {
        imported.text.split_once("[revocation]\n").map(|(_, table)| table.trim_end().to_owned())
    };
    assert_eq!(table(&of("", "", "")).as_deref(), Some("ocsp = \"soft\""), "there, too");
    assert_eq!(table(&of("", "revocation = relaxed", "")).as_deref(), Some("ocsp = \"soft\""));
    assert_eq!(table(&of("ocsp = both", "", "")).as_deref(), Some("ocsp = \"soft\""));
    let never = Some("ocsp = \"soft\"\nocsp_response = false");
    assert_eq!(table(&of("ocsp = never", "", "")).as_deref(), never);
    let strict = of("", "revocation = strict", "revocation = relaxed");
    assert_eq!(table(&strict).as_deref(), Some("ocsp = \"hard\""), "the stricter one holds");
    assert!(strict.left.iter().any(|(line, what)| *line > 0 && what.contains("crl_required = true")));
    let ifuri = of("", "revocation = ifuri", "");
    assert!(ifuri.left.iter().any(|(_, what)| what.starts_with("revocation = ifuri is taken as relaxed")));
}

#[test]
fn a_text_that_is_none_is_refused_with_its_line() {
    let refused = |text: &str| alone(text).unwrap_err().to_string();
    assert_eq!(refused("a {\n b\n}\n"), "line 2: neither a section nor a value");
    assert_eq!(refused("a {\n"), "line 1: \"a\" is not closed");
    assert_eq!(refused("}\n"), "line 1: \"}\" closes nothing");
    assert_eq!(refused("include conf.d/*.conf\n"), "line 1: nothing is included here");
    assert!(refused(&"a {\n".repeat(40)).contains("too deep"));
    assert!(alone("").unwrap().text.is_empty());
    let error = refused("secrets {\n  ike {\n    secret = \"abc\n  }\n}\n");
    assert_eq!(error, "line 3: a quotation is not closed");
}

/// A connection with this of the connection, of its remote side, and of its CHILD_SA.
fn with(connection: &str, remote: &str, child: &str) -> Imported {
    let secrets = "secrets { ike { secret = \"a long secret\" } }";
    let remote =
        if remote.contains("auth") { remote.to_owned() } else { alloc::format!("auth = psk\n{remote}") };
    alone(&alloc::format!(
        "connections {{ c {{\n{connection}\nlocal {{ auth = psk\nid = @gw.test }}\nremote {{\n{remote}\n}}\n\
         children {{ n {{\n{child}\n}} }} }} }}\n{secrets}\n"
    ))
    .unwrap()
}

#[test]
fn what_would_let_in_more_stops_the_import() {
    for (connection, remote, child) in [
        ("remote_addrs = gw.example.org", "", ""),
        ("remote_addrs = 10.0.0.1-10.0.0.9", "", ""),
        ("ppk_required = Yes", "", ""),
        ("proposals = cast128-md5-modp768", "", ""),
        ("remote2 { auth = eap-radius }", "", ""),
        ("Remote-b { auth = psk }", "", ""),
        ("elsewhere { auth = psk }", "", ""),
        ("", "id = \"C=CH, CN=peer\"", ""),
        ("", "id = *.example.org", ""),
        ("", "id = keyid:00ff", ""),
        ("", "groups = staff", ""),
        ("", "revocation = always", ""),
        ("", "auth = pubkey\ncacerts = ca.pem\ncert1 { file = x }", ""),
        ("", "cert_policy = 1.2.3", ""),
        ("", "auth = xauth", ""),
        ("", "auth = pubkey-sha512\ncacerts = ca.pem", ""),
        ("", "auth = pubkey\ncacerts = a.pem, b.pem", ""),
        ("", "", "local_ts = 10.0.0.0/8[tcp/22]"),
        ("", "", "mode = drop"),
    ] {
        let stops = with(connection, remote, child).stops;
        assert_eq!(stops.len(), 1, "{connection} {remote} {child}: {stops:?}");
        assert!(stops[0].1.ends_with("more would be let in"), "{stops:?}");
    }
    let right = with("remote_addrs = %any\nproposals = default", "id = %any", "local_ts = dynamic");
    assert_eq!((right.stops.len(), right.left), (0, Vec::new()));
}

/// Whoever is elsewhere is another connection's, as there.
#[test]
fn where_the_other_side_is_says_who_may_call() {
    for (addresses, ours) in [
        ("192.0.2.9", "remote_address = \"192.0.2.9\"\nfrom = [\"192.0.2.9\"]\n"),
        (
            "10.0.0.0/8, 2001:db8::9",
            "remote_address = \"2001:db8::9\"\nfrom = [\"10.0.0.0/8\", \"2001:db8::9\"]\n",
        ),
        ("%any4", "from = [\"0.0.0.0/0\"]\n"),
        ("10.0.0.0/8, %Any", ""),
    ] {
        let made = with(&alloc::format!("remote_addrs = {addresses}"), "", "");
        let written = made.text.contains("from = ");
        assert!(made.text.contains(ours) && written != ours.is_empty(), "{}", made.text);
        assert_eq!((made.left, made.stops), (Vec::new(), Vec::new()));
    }
    let waits = with("remote_addrs = 192.0.2.9", "auth = eap-radius", "");
    assert!(!waits.text.contains("remote_address") && waits.text.contains("from = "), "{}", waits.text);
}

/// It would be let in by a key that others know.
#[test]
fn a_secret_that_ours_cannot_say_gives_way_to_no_other() {
    let made = |secrets: &str| {
        let text = alloc::format!(
            "connections {{ c {{ local {{ auth = psk\nid = gw.test }}\nremote {{ auth = psk\nid = ini.test }} }} }}\n\
             secrets {{\nike-1 {{ id = ini.test\nsecret = {secrets} }}\nike-2 {{ secret = \"group\" }}\n}}\n"
        );
        alone(&text).unwrap()
    };
    assert!(made("own").text.contains("secret = \"own\""));
    let poisoned = made("0xff00");
    assert!(!poisoned.text.contains("secret ="), "{}", poisoned.text);
    assert!(poisoned.left.iter().any(|(_, what)| what.contains("write secret_file")));
}

#[test]
fn what_is_of_ikev1_is_no_connection_of_ours() {
    let made = with("version = 1\nremote-xauth { auth = xauth }", "", "");
    assert!(!made.text.contains("[[connection]]") && made.stops.is_empty(), "{}", made.text);
    assert!(made.left[0].1.contains("is of IKEv1"), "{:?}", made.left);
}

#[test]
fn identities_secrets_and_proposals_are_written_as_ours() {
    for (theirs, ours) in [
        ("@gw.test", Some("gw.test")),
        ("fqdn:gw.test", Some("gw.test")),
        ("@@ann@gw.test", Some("ann@gw.test")),
        ("email:ann@gw.test", Some("ann@gw.test")),
        ("ipv4:192.0.2.1", Some("192.0.2.1")),
        ("2001:db8::1", Some("2001:db8::1")),
        ("ann", Some("ann")),
        ("@#0a0b", None),
        ("asn1dn:CN=x", None),
        ("%any", None),
    ] {
        assert_eq!(identity(theirs).as_deref(), ours, "{theirs}");
    }
    let octets = |text| octets(text);
    assert_eq!(octets("0x61_6263").as_deref(), Some("abc"));
    assert_eq!(octets("0sYWJj").as_deref(), Some("abc"));
    assert_eq!(octets("abc").as_deref(), Some("abc"));
    assert_eq!((octets("0xff"), octets("0x616")), (None, None));
    let made = with("proposals = aes256gcm16-sha384-x25519, aes128-sha256-x25519", "id = @peer.test", "");
    let written = "proposals = [\"aes256gcm16-prfsha384-x25519\", \"aes128-sha256-x25519\"]";
    assert!(made.text.contains(written), "{}", made.text);
    assert!(made.text.contains("local_id = \"gw.test\"\nremote_id = \"peer.test\""), "{}", made.text);
    assert_eq!((made.left, made.stops), (Vec::new(), Vec::new()));
}

/// There the connection that fits best holds, wherever it stands.
#[test]
fn connections_stand_in_the_order_in_which_they_hold() {
    let one = |name: &str, more: &str, id: &str| {
        alloc::format!("{name} {{\n{more}\nlocal {{ auth = psk }}\nremote {{ auth = psk\n{id} }}\n}}\n")
    };
    let all = [
        one("all", "", ""),
        one("near", "remote_addrs = 10.0.0.0/8", ""),
        one("ann", "", "id = ann@x"),
        one("ann-near", "remote_addrs = 10.0.0.0/8", "id = ann@x"),
    ];
    let made = alone(&alloc::format!("connections {{\n{}}}\n", all.concat())).unwrap();
    let names: Vec<&str> = made.text.lines().filter(|line| line.starts_with("name = ")).collect();
    assert_eq!(names, ["name = \"ann-near\"", "name = \"ann\"", "name = \"near\"", "name = \"all\""]);
}

/// Who knows a password would come in where a certificate is wanted.
#[test]
fn connections_of_different_methods_of_eap_are_not_taken_together() {
    let one = |name: &str, auth: &str| {
        alloc::format!("{name} {{\nlocal {{ auth = pubkey }}\nremote {{ auth = {auth} }}\n}}\n")
    };
    let of = |other: &str| {
        let text = alloc::format!("connections {{\n{}{}}}\n", one("a", "eap-tls"), one("b", other));
        alone(&text).unwrap().stops.len()
    };
    assert_eq!((of("eap-tls"), of("eap-mschapv2")), (0, 1));
}
