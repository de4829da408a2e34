//! Parsing, output and stops of the import.

use super::words::{decode_secret, translate_identity};
use super::*;
use usher_config::EmptyConfigEnvironment;
use usher_crypto::tls::SharedWallClock;
use usher_ike::machine::{LocalAuth, RemoteAuth};

fn import_single_file(text: &str) -> Result<SwanctlImport, SwanctlError> {
    import_swanctl(text, &mut |_, _| Err("nothing is included here".to_owned()))
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
authorities { ca { cert_uri_base = "http://x" } }
"#;

#[test]
fn what_is_taken_is_a_configuration_and_what_is_not_is_named() {
    let SwanctlImport { text, left, stops } = import_single_file(SITE).unwrap();
    assert_eq!(stops, []);
    let clock = SharedWallClock::from_time(usher_core::WallTime::UNIX_EPOCH);
    let loaded = crate::config::parse("ike.toml", &text, &EmptyConfigEnvironment, &clock);
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
    let volume = loaded.file.connection[0].child[0].volume_lifetime();
    assert_eq!((volume.soft_octets, volume.soft_packets), (Some(1_000_000), None));
    assert_eq!(site.connection.liveness, Some(usher_core::Duration::from_secs(20)));
    assert!(matches!(users.connection.remote_auth, RemoteAuth::Eap { .. }) && users.pools == ["inner"]);
    assert_eq!(loaded.config.subscribers.users.passwords.len(), 1);
    let left: Vec<String> = left.iter().map(|(line, what)| alloc::format!("{line}: {what}")).collect();
    for (line, what) in [
        (6, "the proposal aes128-sha256-modp4096 is not imported: \"modp4096\" is not an algorithm"),
        (10, "keyingtries of the connection site is not imported"),
        (
            18,
            "packets initiate a connection as a whole; write on_demand = true above its [[connection.child]]",
        ),
        (32, "name servers belong to connections"),
        (41, "cert_uri_base of the authority ca is not imported"),
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
        import_single_file(&alloc::format!("connections {{\n{}{}}}\n", one(1, first), one(2, second)))
            .unwrap()
    };
    let table = |imported: &SwanctlImport| {
        imported.text.split_once("[revocation]\n").map(|(_, table)| table.trim_end().to_owned())
    };
    assert_eq!(table(&of("", "", "")).as_deref(), Some("ocsp = \"soft\""), "there, too");
    assert_eq!(table(&of("", "revocation = relaxed", "")).as_deref(), Some("ocsp = \"soft\""));
    assert_eq!(table(&of("ocsp = both", "", "")).as_deref(), Some("ocsp = \"soft\""));
    let never = Some("ocsp = \"soft\"\nocsp_response = false");
    assert_eq!(table(&of("ocsp = never", "", "")).as_deref(), never);
    assert!(!import_with("ocsp = both", "", "").text.contains("[revocation]"), "there are no certificates");
    let strict = of("", "revocation = strict", "revocation = relaxed");
    assert_eq!(table(&strict).as_deref(), Some("ocsp = \"hard\""), "the stricter one holds");
    assert!(strict.left.iter().any(|(line, what)| *line > 0 && what.contains("crl_required = true")));
    let ifuri = of("", "revocation = ifuri", "");
    assert!(ifuri.left.iter().any(|(_, what)| what.starts_with("revocation = ifuri is imported as relaxed")));
}

#[test]
fn a_text_that_is_none_is_refused_with_its_line() {
    let refused = |text: &str| import_single_file(text).unwrap_err().to_string();
    assert_eq!(refused("a {\n b\n}\n"), "line 2: expected a section or a value");
    assert_eq!(refused("a {\n"), "line 1: \"a\" is not closed");
    assert_eq!(refused("}\n"), "line 1: unexpected \"}\": no section is open");
    assert_eq!(refused("include conf.d/*.conf\n"), "line 1: nothing is included here");
    assert!(refused(&"a {\n".repeat(40)).contains("too deep"));
    assert!(import_single_file("").unwrap().text.is_empty());
    let error = refused("secrets {\n  ike {\n    secret = \"abc\n  }\n}\n");
    assert_eq!(error, "line 3: a quotation is not closed");
}

/// Imports a connection with these settings for it, its remote side and its CHILD_SA.
fn import_with(connection: &str, remote: &str, child: &str) -> SwanctlImport {
    let secrets = "secrets { ike { secret = \"a long secret\" } }";
    let remote =
        if remote.contains("auth") { remote.to_owned() } else { alloc::format!("auth = psk\n{remote}") };
    import_single_file(&alloc::format!(
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
        ("remote_addrs = %Any", "", ""),
        ("remote_addrs = 10.0.0.0 /8", "", ""),
        ("ppk_required = Yes", "", ""),
        ("proposals = cast128-md5-modp768", "", ""),
        ("remote2 { auth = eap-radius }", "", ""),
        ("Remote-b { auth = psk }", "", ""),
        ("", "id = \"C=CH, CN=peer\"", ""),
        ("", "id = *.example.org", ""),
        ("", "id = keyid:00ff", ""),
        ("", "groups = staff", ""),
        ("", "auth = pubkey\ncacerts = ca.pem\ncert1 { file = x }", ""),
        ("", "cert_policy = 1.2.3", ""),
        ("", "auth = xauth", ""),
        ("", "auth = eap", ""),
        ("", "auth = eap-tls\ncacerts = ca.pem", ""),
        ("", "auth = eap-tls\nrevocation = strict", ""),
        ("", "auth = eap-tls\nrevocation = ifuri", ""),
        ("", "auth = eap-radius\ncacerts = ca.pem", ""),
        ("", "cacerts = ca.pem", ""),
        ("", "revocation = strict", ""),
        ("", "auth = pubkey\ncacerts = 0xff", ""),
        ("", "id = 10.0.0.0/8", ""),
        ("", "id = 10.0.0.1-10.0.0.9", ""),
        ("", "id = 2001:db8::/32", ""),
        ("", "id = ^gw.*$", ""),
        ("unique = keep", "", ""),
        ("if_id_in = 7", "", ""),
        ("if_id_in = %unique", "", ""),
        ("local_addrs = gw.example.org", "", ""),
        ("local_addrs = 10.0.0.0/8", "", ""),
        ("local_addrs = 10.0.0.1, 10.0.0.2", "", ""),
        ("", "", "label = system_u:object_r:ipsec_spd_t:s0"),
        ("", "", "mark_in = 7/0xff"),
        ("", "", "mark_in = %unique"),
        ("", "", "if_id_in = 0x10"),
        ("", "", "policies = no"),
        ("", "auth = pubkey-sha512\ncacerts = ca.pem", ""),
        ("", "auth = pubkey\ncacerts = a.pem, b.pem", ""),
        ("", "", "local_ts = 10.0.0.0/8[tcp/22]"),
        ("", "", "mode = drop"),
    ] {
        let stops = import_with(connection, remote, child).stops;
        assert_eq!(stops.len(), 1, "{connection} {remote} {child}: {stops:?}");
        assert!(stops[0].1.ends_with("more peers would be admitted"), "{stops:?}");
    }
    for (connection, remote, child) in [
        ("remote_addrs = %any\nproposals = default", "id = %any", "local_ts = dynamic"),
        ("local_addrs = %any\nvips = 0.0.0.0\nunique = no", "id = *\nrevocation = relaxed", "policies = yes"),
        ("if_id_in = 0", "id = 0.0.0.0", "mark_in = 0/0x00000000\nif_id_in = 0"),
        ("local_addrs = 2001:db8::1, 192.0.2.1", "id = gw-1.test", "rekey_time = 010"),
    ] {
        let right = import_with(connection, remote, child);
        assert_eq!((right.stops, right.left), (Vec::new(), Vec::new()), "{connection} {remote} {child}");
    }
}

/// An initiator at another address gets another connection, as with charon.
#[test]
fn where_the_other_side_is_says_who_may_call() {
    for (addresses, ours) in [
        ("192.0.2.9", "remote_address = \"192.0.2.9\"\nfrom = [\"192.0.2.9\"]\n"),
        (
            "10.0.0.0/8, 2001:db8::9",
            "remote_address = \"2001:db8::9\"\nfrom = [\"10.0.0.0/8\", \"2001:db8::9\"]\n",
        ),
        ("%any4", "from = [\"0.0.0.0/0\"]\n"),
        ("10.0.0.0/8, %any", ""),
        ("gw.example.org, %any", ""),
        ("0.0.0.0", "from = [\"0.0.0.0/0\"]\n"),
        ("::", "from = [\"::/0\"]\n"),
        ("0:0::0, 10.0.0.0/8", "from = [\"10.0.0.0/8\", \"::/0\"]\n"),
        ("0.0.0.0, ::", ""),
        ("%any4, %any6", ""),
        ("", ""),
    ] {
        let made = import_with(&alloc::format!("remote_addrs = {addresses}"), "", "");
        let written = made.text.contains("from = ");
        assert!(made.text.contains(ours) && written != ours.is_empty(), "{}", made.text);
        assert_eq!((made.left, made.stops), (Vec::new(), Vec::new()));
    }
    let waits = import_with("remote_addrs = 192.0.2.9", "auth = eap-radius", "");
    assert!(!waits.text.contains("remote_address") && waits.text.contains("from = "), "{}", waits.text);
}

/// Otherwise it would be admitted by a key that others know.
#[test]
fn a_secret_that_ours_cannot_say_gives_way_to_no_other() {
    let made = |secrets: &str| {
        let text = alloc::format!(
            "connections {{ c {{ local {{ auth = psk\nid = gw.test }}\nremote {{ auth = psk\nid = ini.test }} }} }}\n\
             secrets {{\nike-1 {{ id = ini.test\nsecret = {secrets} }}\nike-2 {{ secret = \"group\" }}\n}}\n"
        );
        import_single_file(&text).unwrap()
    };
    assert!(made("own").text.contains("secret = \"own\""));
    let poisoned = made("0xff00");
    assert!(!poisoned.text.contains("secret ="), "{}", poisoned.text);
    assert!(poisoned.left.iter().any(|(_, what)| what.contains("write secret_file")));
}

/// charon reads the version by `strtoul`.
#[test]
fn what_is_of_ikev1_is_no_connection_of_ours() {
    for version in ["1", "0x1", "01", "4294967297"] {
        let made =
            import_with(&alloc::format!("version = {version}\nremote-xauth {{ auth = xauth }}"), "", "");
        assert!(!made.text.contains("[[connection]]") && made.stops.is_empty(), "{}", made.text);
        assert!(made.left[0].1.contains("uses IKEv1"), "{version}: {:?}", made.left);
    }
    for version in ["3", "-1", "0x20"] {
        let made = import_with(&alloc::format!("version = {version}"), "", "");
        assert!(!made.text.contains("[[connection]]") && made.stops.is_empty(), "{}", made.text);
        assert!(made.left[0].1.contains("has an unknown version of IKE"), "{:?}", made.left);
    }
    for (version, left) in [("2", 0), ("0x2", 0), ("02", 0), ("0", 1), ("0x0", 1)] {
        let made = import_with(&alloc::format!("version = {version}"), "", "");
        assert!(made.text.contains("[[connection]]"), "{version}");
        assert_eq!(made.left.len(), left, "{version}: {:?}", made.left);
    }
}

/// An unknown key or an invalid value discards the whole connection (`parse_rules` of charon's `vici_config.c`).
#[test]
fn what_charon_discards_is_no_connection_of_ours() {
    for (connection, remote, child, why) in [
        ("remote_adrs = 10.0.0.1", "", "", "unknown key remote_adrs"),
        ("Remote_addrs = 10.0.0.1", "", "", "unknown key Remote_addrs"),
        ("local_ts = 10.0.0.0/8", "", "", "unknown key local_ts"),
        ("mobike = maybe", "", "", "mobike = maybe"),
        ("mobike = \"\"", "", "", "mobike = "),
        ("encap = accept", "", "", "encap = accept"),
        ("fragmentation = true", "", "", "fragmentation = true"),
        ("childless = yes", "", "", "childless = yes"),
        ("unique = yes", "", "", "unique = yes"),
        ("send_cert = no", "", "", "send_cert = no"),
        ("dpd_delay = 1w", "", "", "dpd_delay = 1w"),
        ("rekey_time = 1-2", "", "", "rekey_time = 1-2"),
        ("version = two", "", "", "version = two"),
        ("version = 08", "", "", "version = 08"),
        ("dscp = 2", "", "", "dscp = 2"),
        ("if_id_in = %uniq", "", "", "if_id_in = %uniq"),
        ("vips = everything", "", "", "vips = everything"),
        ("pools = gr\u{fc}n", "", "", "pools = gr\u{fc}n"),
        ("proposals = aes128-sha256-x25519, aes128-sha256-modp4097", "", "", "aes128-sha256-modp4097"),
        ("proposals = aes128-sha256-x25519, AES128-sha256-modp2048", "", "", "AES128-sha256-modp2048"),
        ("proposals = aes128-sha256-x25519, aes128-sha256", "", "", "aes128-sha256"),
        ("proposals = aes128-x25519", "", "", "aes128-x25519"),
        ("proposals = aes128-aes128gcm16-sha256-x25519", "", "", "aes128-aes128gcm16"),
        ("proposals = aes128gcm16-x25519", "", "", "aes128gcm16-x25519"),
        ("proposals = aes128-sha256_96-x25519", "", "", "sha256_96"),
        ("proposals = aes128-sha256-none", "", "", "aes128-sha256-none"),
        ("elsewhere { auth = psk }", "", "", "unknown section elsewhere"),
        ("", "auth = PUBKEY", "", "auth = PUBKEY"),
        ("", "auth = ed25519", "", "auth = ed25519"),
        ("", "auth = password", "", "auth = password"),
        ("", "revocation = always", "", "revocation = always"),
        ("", "ids = gw.test", "", "unknown key ids"),
        ("", "id = \"CN=Z\u{fc}rich\"", "", "id = CN=Z\u{fc}rich"),
        ("", "round = first", "", "round = first"),
        ("", "ca1 { file = x }", "", "unknown section ca1"),
        ("", "cert1 { path = x }", "", "unknown key path"),
        ("", "cacert1 { }", "", "either handle or file in cacert1"),
        ("", "cert1 { file = x\nhandle = 00 }", "", "either handle or file in cert1"),
        ("", "", "remote_tss = 10.0.0.0/8", "unknown key remote_tss"),
        ("", "", "ocsp = never", "unknown key ocsp"),
        ("", "", "remote_ts = everywhere", "remote_ts = everywhere"),
        ("", "", "policies = never", "policies = never"),
        ("", "", "mode = bridge", "mode = bridge"),
        ("", "", "start_action = begin", "start_action = begin"),
        ("", "", "esp_proposals = aes128-sha256, sha256", "esp_proposals = sha256"),
        ("", "", "esp_proposals = aes128gcm16, aes128gcm17", "aes128gcm17"),
        ("", "", "ah_proposals = aes128", "ah_proposals = aes128"),
        ("", "", "mark_in = 7/x", "mark_in = 7/x"),
        ("", "", "mark_out = %same", "mark_out = %same"),
        ("", "", "rekey_bytes = 5t", "rekey_bytes = 5t"),
        ("", "", "tfc_padding = MTU", "tfc_padding = MTU"),
        ("local_addrs = %any4\nremote_addrs = 2001:db8::/32", "", "", "local addresses of one IP family"),
    ] {
        let made = import_with(connection, remote, child);
        let shown = alloc::format!("{connection} {remote} {child}: {:?}", made.left);
        assert!(!made.text.contains("[[connection]]"), "{shown}\n{}", made.text);
        assert_eq!(made.stops, [], "{shown}");
        let is_named = |(line, what): &(usize, String)| {
            *line > 0 && what.starts_with("the connection c ") && what.contains(why)
        };
        assert!(made.left.iter().any(is_named), "{shown}");
    }
    for (connection, remote, child) in [
        ("aggressive = YES\npull = Disabled\ndscp = 101110\nkeyingtries = 010\nover_time = 5 H", "", ""),
        ("proposals = aes128-sha256-x25519, aes256ctr-aesxcbc-prfsha512-ecp512bp, default", "", ""),
        ("proposals = aes256gcm-sha384-modpnone-x448, chacha20poly1305-prfsha256-curve25519", "", ""),
        ("esp_proposals =\nlocal_ts = \"\"\nunknown =", "", ""),
        ("", "auth = Psk\nround = 0x1", ""),
        ("", "", "esp_proposals = aes128gmac, null-md5, aes128-sha256-modp2048-esn, Default"),
        ("", "", "start_action = trap|start\ndpd_action = restart\nclose_action = None"),
        (
            "",
            "",
            "mark_out = %unique-dir/0xff\nset_mark_in = %same/7\nif_id_out = %unique\ntfc_padding = mtu",
        ),
        ("", "", "rekey_bytes = 2 G\nlife_bytes = 5m\nreqid = 0x10\nhw_offload = auto\nanything { x = y }"),
    ] {
        let made = import_with(connection, remote, child);
        assert!(made.text.contains("[[connection]]"), "{connection} {remote} {child}: {:?}", made.left);
    }
    assert!(import_with("", "", "rekey_bytes = 2 G").text.contains("rekey_bytes = \"2147483648 B\""));
    assert!(import_with("rekey_time = 0x1d", "", "").text.contains("rekey_after = \"29 s\""));
    // Releases after 5.9.8 accept these, and the import says so.
    for (connection, child) in
        [("ocsp = both", ""), ("proposals = aes128-sha256-x25519-ke1_mlkem768", ""), ("", "icmp = yes")]
    {
        let made = import_with(connection, "", child);
        assert!(made.text.contains("[[connection]]") && made.stops.is_empty(), "{connection} {child}");
        assert!(made.left.iter().any(|(_, what)| what.contains("after strongSwan 5.9.8")), "{:?}", made.left);
    }
    // A value that charon reads in part, or depending on its build, stops the import.
    let long = "x".repeat(600);
    for (connection, remote) in [
        ("mediation = no", ""),
        ("dpd_delay = 00000000000000000001", ""),
        ("", &*alloc::format!("id = {long}")),
    ] {
        assert_eq!(import_with(connection, remote, "").stops.len(), 1, "{connection} {remote}");
    }
}

/// A client of a discarded connection gets another one, as with charon.
#[test]
fn a_discarded_connection_decides_nothing() {
    let text = "connections {\n a { local_addrs = 192.0.2.1\n remote_adrs = 10.0.0.1\n remote { auth = eap-tls } }\n\
                b { local { auth = psk\nid = gw.test }\nremote { auth = psk } }\n}\n\
                secrets { ike { secret = \"a long secret\" } }\nauthorities { x { crl_uris = http://a/1.crl } }\n";
    let made = import_single_file(text).unwrap();
    assert_eq!(made.stops, []);
    assert_eq!(made.text.matches("[[connection]]").count(), 1, "{}", made.text);
    assert!(made.text.contains("name = \"b\""), "{}", made.text);
}

/// `EAP-TLS` is `eap` without a method to charon: methods after `eap-` are case-sensitive.
#[test]
fn methods_of_eap_are_read_as_charon_reads_them() {
    for (auth, stops) in [("eap-MSCHAPV2", 0), ("EAP-MSCHAPV2", 1), ("Eap-tls", 1), ("eapx-tls", 1)] {
        let made = import_with("", &alloc::format!("auth = {auth}"), "");
        assert_eq!(made.stops.len(), stops, "{auth}: {:?}", made.stops);
    }
}

/// The round with the lowest number comes first.
#[test]
fn rounds_stand_in_the_order_of_their_numbers() {
    let text = "connections { c { local-1 { auth = pubkey\nround = 2 }\nlocal-2 { auth = psk\nround = 1\nid = gw.test }\n\
                remote { auth = psk\nround = 1 } } }\nsecrets { ike { secret = \"a long secret\" } }\n";
    let made = import_single_file(text).unwrap();
    assert!(
        made.text.contains("local_auth = \"psk\"") && made.text.contains("local_id = \"gw.test\""),
        "{}",
        made.text
    );
    assert_eq!(made.stops, []);
}

/// An unknown attribute discards the pool.
#[test]
fn a_pool_with_an_unknown_attribute_is_none() {
    let made = |attribute: &str| {
        import_single_file(&alloc::format!("pools {{ p {{ addrs = 10.9.0.0/24\n{attribute}\n}} }}\n"))
            .unwrap()
    };
    assert!(made("split_include = 10.0.0.0/8\n28673 = 1.2.3.4").text.contains("[[pool]]"));
    let refused = made("dsn = 10.9.0.1");
    assert!(!refused.text.contains("[[pool]]"), "{}", refused.text);
    assert!(refused.left[0].1.starts_with("the pool p has an unknown attribute dsn"), "{:?}", refused.left);
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
        assert_eq!(translate_identity(theirs).as_deref(), ours, "{theirs}");
    }
    assert_eq!(decode_secret("0X616263").as_deref(), Some("abc"));
    assert_eq!(decode_secret("0SYWJj").as_deref(), Some("abc"));
    assert_eq!(decode_secret("0x61_6263").as_deref(), Some("abc"));
    assert_eq!(decode_secret("0sYWJj").as_deref(), Some("abc"));
    assert_eq!(decode_secret("abc").as_deref(), Some("abc"));
    assert_eq!((decode_secret("0xff"), decode_secret("0x616")), (None, None));
    // Beside a pseudorandom function, the integrity algorithm is ignored, as it is in ESP.
    let made = import_with(
        "proposals = aes256gcm16-sha384-prfsha512-x25519",
        "",
        "esp_proposals = aes128gcm16-sha256, aes128-sha256-prfsha1-x25519",
    );
    assert!(made.text.contains("proposals = [\"aes256gcm16-prfsha512-x25519\"]"), "{}", made.text);
    assert!(made.text.contains("proposals = [\"aes128gcm16\", \"aes128-sha256-x25519\"]"), "{}", made.text);
    let made =
        import_with("proposals = aes256gcm16-sha384-x25519, aes128-sha256-x25519", "id = @peer.test", "");
    let written = "proposals = [\"aes256gcm16-prfsha384-x25519\", \"aes128-sha256-x25519\"]";
    assert!(made.text.contains(written), "{}", made.text);
    assert!(made.text.contains("local_id = \"gw.test\"\nremote_id = \"peer.test\""), "{}", made.text);
    assert_eq!((made.left, made.stops), (Vec::new(), Vec::new()));
}

/// charon uses the best match, wherever it stands.
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
    let made = import_single_file(&alloc::format!("connections {{\n{}}}\n", all.concat())).unwrap();
    let names: Vec<&str> = made.text.lines().filter(|line| line.starts_with("name = ")).collect();
    assert_eq!(names, ["name = \"ann-near\"", "name = \"near\"", "name = \"ann\"", "name = \"all\""]);
}

/// Otherwise a user with a password would be admitted where a certificate is required.
#[test]
fn connections_of_different_eap_methods_are_not_merged() {
    let one = |name: &str, auth: &str| {
        alloc::format!("{name} {{\nlocal {{ auth = pubkey }}\nremote {{ auth = {auth} }}\n}}\n")
    };
    let of = |other: &str| {
        let text = alloc::format!("connections {{\n{}{}}}\n", one("a", "eap-tls"), one("b", other));
        import_single_file(&text).unwrap().stops.len()
    };
    assert_eq!((of("eap-tls"), of("eap-mschapv2")), (0, 1));
}

/// charon prefers the best match of the address, with a single address before any network, and of the identity.
#[test]
fn the_longest_prefix_holds_and_what_no_order_says_stops() {
    let order = |all: &[(&str, &str, &str)]| {
        let one = |(name, places, id): &(&str, &str, &str)| {
            alloc::format!(
                "{name} {{\n{places}\nlocal {{ auth = psk\nid = gw.test }}\nremote {{ auth = psk\n{id} }}\n}}\n"
            )
        };
        let all: String = all.iter().map(one).collect();
        let made = import_single_file(&alloc::format!(
            "connections {{\n{all}}}\nsecrets {{ ike {{ secret = \"a long secret\" }} }}\n"
        ))
        .unwrap();
        let names: Vec<String> = made
            .text
            .lines()
            .filter_map(|line| Some(line.strip_prefix("name = ")?.replace('"', "")))
            .collect();
        (names.join(" "), made.stops.len())
    };
    let (wide, near, host) =
        ("remote_addrs = 10.0.0.0/8", "remote_addrs = 10.1.0.0/16", "remote_addrs = 10.1.2.3");
    let of = |names: &str, stops| (names.to_owned(), stops);
    assert_eq!(order(&[("a", "", ""), ("b", wide, ""), ("c", near, ""), ("d", host, "")]), of("d c b a", 0));
    assert_eq!(order(&[("a", "remote_addrs = 10.1.2.3/32", ""), ("b", host, "")]), of("b a", 0));
    assert_eq!(
        order(&[("a", wide, ""), ("b", wide, "")]),
        of("a b", 0),
        "of two that are as good the first holds"
    );
    assert_eq!(order(&[("a", wide, ""), ("b", "version = 2\nremote_addrs = 10.0.0.0/8", "")]), of("b a", 0));
    assert_eq!(
        order(&[("a", wide, "id = ann@x"), ("b", near, "id = bob@x")]),
        of("a b", 0),
        "nobody is both"
    );
    assert_eq!(order(&[("a", "remote_addrs = %any6", ""), ("b", wide, "")]), of("a b", 0), "nor at both");
    assert_eq!(
        order(&[("a", "remote_addrs = 0.0.0.0", ""), ("b", "remote_addrs = 2001:db8::/32", "")]),
        of("a b", 0),
        "nobody is at both"
    );
    assert_eq!(order(&[("a", "remote_addrs = 0.0.0.0", ""), ("b", wide, "")]), of("b a", 0));
    assert_eq!(order(&[("a", "local_addrs = ::", ""), ("b", wide, "")]), of("a b", 0), "nor on this side");
    assert_eq!(order(&[("a", wide, "id = ann@x"), ("b", near, "")]), of("a b", 0), "neither is better");
    assert_eq!(order(&[("a", near, ""), ("b", wide, "id = ann@x")]), of("a b", 0), "neither is better");
    let (mixed, other) = ("remote_addrs = 10.0.0.0/8, 192.0.2.1", "remote_addrs = 10.1.0.0/16, 192.0.2.0/24");
    assert_eq!(order(&[("a", mixed, ""), ("b", other, "")]).1, 1, "now this one, now that one");
    let circle = [("a", near, ""), ("b", wide, "id = ann@x"), ("c", near, "id = bob@x")];
    assert_eq!(order(&circle).1, 0);
    let circle = [
        ("a", wide, "id = ann@x"),
        ("b", near, ""),
        ("c", "version = 2\nremote_addrs = 10.0.0.0/8", "id = ann@x"),
    ];
    assert_eq!(order(&circle).1, 1, "each before another");
}

/// Each secret is imported or reported. Otherwise its owner would get another one or none.
#[test]
fn secrets_that_no_connection_takes_are_named() {
    let made = |local: &str, remote: &str, secrets: &str| {
        import_single_file(&alloc::format!(
            "connections {{ c {{ local {{ auth = psk\n{local} }}\nremote {{ {remote} }} }} }}\nsecrets {{\n{secrets}\n}}\n"
        ))
        .unwrap()
    };
    let (ann, all) = ("ike-ann { id = ann\nsecret = \"key of ann\" }", "ike-all { secret = \"key of all\" }");
    let both = alloc::format!("{ann}\n{all}");
    for (local, remote, secrets, taken, untaken) in [
        ("id = gw.test", "auth = psk", &*both, Some("key of all"), &["ike-ann"][..]),
        ("id = gw.test", "auth = psk\nid = ann", &*both, Some("key of ann"), &["ike-all"]),
        ("id = gw.test", "auth = psk\nid = bob", &*both, Some("key of all"), &["ike-ann"]),
        (
            "id = gw.test",
            "auth = psk\nid = ann",
            "ike-two { id-1 = bob\nid-2 = ann\nsecret = \"of two\" }",
            Some("of two"),
            &[],
        ),
        (
            "id = gw.test",
            "auth = psk\nid = ann",
            "ike-x { id = ann }\nike-all { secret = \"key of all\" }",
            Some("key of all"),
            &["ike-x, which has no value,"],
        ),
        (
            "id = gw.test",
            "auth = psk",
            "ike-gw { id = gw.test\nsecret = \"of this side\" }",
            Some("of this side"),
            &[],
        ),
        // A secret that ours cannot express applies to no other peer, and no other replaces it.
        (
            "id = \"C=CH, CN=gw\"",
            "auth = psk",
            "ike-gw { id = \"C=CH,CN=gw\"\nsecret = \"own key\" }",
            None,
            &["the secret ike-gw for C=CH,CN=gw"],
        ),
        (
            "id = gw.test",
            "auth = psk\nid = ann@x.test",
            "ike-x { id = *@x.test\nsecret = \"of x\" }\nike-all { secret = \"key of all\" }",
            None,
            &["the secret ike-x for *@x.test", "ike-all"],
        ),
        (
            "id = gw.test",
            "auth = eap-mschapv2",
            "ike { secret = \"key of all\" }\neap { secret = \"of every name\" }",
            Some("key of all"),
            &["eap is not imported: it applies to all EAP names"],
        ),
        (
            "id = gw.test",
            "auth = eap-mschapv2",
            "ike { secret = \"key of all\" }\neap-1 { id = ann\nsecret = \"first word\" }\neap-2 { id = ann\nsecret = \"second word\" }",
            Some("key of all"),
            &["eap-2"],
        ),
        (
            "id = gw.test",
            "auth = psk\nid = ann",
            "ike { secret = \"key of all\" }\neap { id = ann\nsecret = \"a password\" }",
            Some("key of all"),
            &["eap"],
        ),
    ] {
        let made = made(local, remote, secrets);
        assert_eq!(made.stops, []);
        match taken {
            Some(key) => {
                assert!(made.text.contains(&alloc::format!("secret = \"{key}\"")), "{secrets}\n{}", made.text)
            }
            None => assert!(!made.text.contains("secret = "), "{secrets}\n{}", made.text),
        }
        for name in untaken {
            assert!(made.left.iter().any(|(_, what)| what.contains(name)), "{name}: {:?}", made.left);
        }
        let told = made.left.iter().filter(|(_, what)| what.contains("the secret ")).count();
        assert_eq!(told, untaken.len(), "{secrets}: {:?}", made.left);
        assert!(!made.text.contains("second word"), "of two of a name charon takes the first");
    }
}

/// A setting that is imported with another meaning is reported.
#[test]
fn what_is_taken_otherwise_is_said() {
    for (connection, remote, child, said) in [
        ("unique = never", "", "", "unique = never"),
        ("vips = 10.9.9.9", "", "", "vips = 10.9.9.9"),
        ("vips = 0.0.0.0, 2001:db8::9", "", "", "vips = "),
        ("childless = prefer", "", "", "childless = prefer is imported as allow"),
        ("", "auth = eap-dynamic", "", "is imported as eap-mschapv2 only"),
        ("", "auth = eap-mschapv2\neap_id = ann", "", "eap_id = ann of the connection c becomes remote_id"),
        (
            "",
            "auth = eap-radius\neap_id = %any",
            "",
            "eap_id of the connection c comes from an EAP identity request",
        ),
        ("", "auth = eap-tls", "", "checks their certificates for revocation"),
    ] {
        let made = import_with(connection, remote, child);
        assert_eq!(made.stops, [], "{connection} {remote} {child}");
        assert!(made.left.iter().any(|(_, what)| what.contains(said)), "{said}: {:?}", made.left);
    }
    let own = |side: &str| {
        import_single_file(&alloc::format!("connections {{ c {{ local {{ {side} }}\nremote {{ auth = pubkey\ncacerts = /etc/ssl/ca.pem }} }} }}\n")).unwrap()
    };
    let made = own("auth = pubkey\ncerts = a.pem, /b.pem");
    assert!(
        made.text.contains("certificate = \"x509/a.pem\"") && made.text.contains("ca = \"/etc/ssl/ca.pem\""),
        "{}",
        made.text
    );
    assert!(made.left.iter().any(|(_, what)| what.starts_with("/b.pem, beside a.pem")), "{:?}", made.left);
    assert!(own("auth = pubkey\ncerts = /b.pem").text.contains("certificate = \"/b.pem\""));
    assert!(!own("auth = pubkey\ncerts = 0sAAAA").text.contains("certificate = \"x509"));
    assert_eq!(own("auth = eap-tls\naaa_id = aaa.test").stops.len(), 1);
    assert_eq!(own("auth = eap-tls\naaa_id = %any").stops, []);
}

/// charon matches a message to connections of its local address.
#[test]
fn local_addresses_move_to_the_gateway_if_all_connections_agree() {
    let of = |first: &str, second: &str| {
        let one = |name: &str, address: &str| {
            alloc::format!(
                "{name} {{\n{address}\nlocal {{ auth = psk\nid = gw.test }}\nremote {{ auth = psk\nid = {name}.test }} }}\n"
            )
        };
        let all = [one("a", first), one("b", second), "old { version = 1 }\n".to_owned()].concat();
        let made = import_single_file(&alloc::format!(
            "connections {{\n{all}}}\nsecrets {{ ike {{ secret = \"a long secret\" }} }}\n"
        ))
        .unwrap();
        let listen = made.text.lines().find(|line| line.starts_with("addresses = ")).map(str::to_owned);
        (listen, made.stops.len())
    };
    let listen = |addresses: &str| Some(alloc::format!("addresses = {addresses}"));
    assert_eq!(of("local_addrs = 192.0.2.1", "local_addrs = 192.0.2.1"), (listen("[\"192.0.2.1\"]"), 0));
    assert_eq!(
        of("local_addrs = 192.0.2.1, 2001:db8::1", "local_addrs = 2001:db8::1,192.0.2.1"),
        (listen("[\"192.0.2.1\", \"2001:db8::1\"]"), 0)
    );
    assert_eq!(of("local_addrs = 192.0.2.1", ""), (None, 1));
    assert_eq!(of("", "local_addrs = 192.0.2.1"), (None, 1));
    assert_eq!(of("local_addrs = 192.0.2.1", "local_addrs = 192.0.2.2"), (None, 2));
    assert_eq!(of("local_addrs = %any", ""), (None, 0));
    assert_eq!(of("local_addrs = 0.0.0.0", "local_addrs = %any6"), (None, 0));
    assert_eq!(of("local_addrs = 0.0.0.0", "local_addrs = 192.0.2.1"), (None, 1));
    assert_eq!(of("local_addrs = %any, 192.0.2.1", ""), (None, 1), "that one is better there");
    assert_eq!(of("local_addrs = %ANY", ""), (None, 1), "a name");
    // No peer of the other family reaches an address of one.
    for (addresses, from) in [
        ("local_addrs = 0.0.0.0", Some("[\"0.0.0.0/0\"]")),
        ("local_addrs = %any6", Some("[\"::/0\"]")),
        ("local_addrs = ::, %any4", None),
        ("local_addrs = %any4\nremote_addrs = %any", Some("[\"0.0.0.0/0\"]")),
        ("local_addrs = ::\nremote_addrs = 10.0.0.0/8, 2001:db8::/32", Some("[\"2001:db8::/32\"]")),
    ] {
        let made = import_with(addresses, "", "");
        assert_eq!(made.stops, [], "{addresses}");
        match from {
            Some(from) => assert!(made.text.contains(&alloc::format!("from = {from}\n")), "{}", made.text),
            None => assert!(!made.text.contains("from ="), "{}", made.text),
        }
    }
}

#[test]
fn authorities_say_where_it_is_asked_whether_certificates_hold() {
    let of = |auth: &str, authorities: &str| {
        import_single_file(&alloc::format!(
            "connections {{ c {{ local {{ auth = psk\nid = gw.test }}\nremote {{ auth = {auth} }} }} }}\n\
             secrets {{ ike {{ secret = \"a long secret\" }} }}\nauthorities {{ {authorities} }}\n"
        ))
        .unwrap()
    };
    let both = "a { cacert = a.pem\ncrl_uris = http://a/1.crl, http://a/2.crl\nocsp_uris = http://a/ocsp }";
    let made = of("pubkey", both);
    assert_eq!(made.stops, []);
    assert!(
        made.text
            .contains("crl_url = [\"http://a/1.crl\", \"http://a/2.crl\"]\nocsp_url = \"http://a/ocsp\""),
        "{}",
        made.text
    );
    for (auth, authorities, stops) in [
        ("psk", both, 0),
        ("eap-tls", both, 2),
        ("pubkey", "a { crl_uris = ldap://a }", 1),
        ("pubkey", "a { ocsp_uris = http://a/1, http://a/2 }", 1),
        ("pubkey", "a { ocsp_uris = http://a/ }\nb { ocsp_uris = http://b/ }", 2),
        ("pubkey", "a { cacert = a.pem }", 0),
    ] {
        let made = of(auth, authorities);
        assert_eq!(made.stops.len(), stops, "{auth} {authorities}: {:?}", made.stops);
        assert!(made.left.iter().chain(&made.stops).any(|(_, what)| what.contains("of the authority")));
    }
}

/// charon begins at an address within a network if one is named, and leaves out the network's last one.
#[test]
fn pools_begin_where_charon_begins_them() {
    for (theirs, ours) in [
        ("10.9.0.0/24", "10.9.0.0/24"),
        ("10.9.0.5/24", "10.9.0.5-10.9.0.254"),
        ("10.9.0.5", "10.9.0.5-10.9.0.5"),
        ("10.9.0.5/32", "10.9.0.5-10.9.0.5"),
        ("10.9.0.5/31", "10.9.0.5-10.9.0.5"),
        ("10.9.0.5-10.9.0.9", "10.9.0.5-10.9.0.9"),
        ("2001:db8::/112", "2001:db8::/112"),
        ("2001:db8::5/112", "2001:db8::5-2001:db8::fffe"),
        ("words", "words"),
    ] {
        assert_eq!(super::words::translate_pool_range(theirs), ours, "{theirs}");
        let made = import_single_file(&alloc::format!("pools {{ p {{ addrs = {theirs} }} }}\n")).unwrap();
        let faults = made.left.iter().filter(|(_, what)| what.contains("has a fault")).count();
        assert_eq!(faults, usize::from(theirs == "words"), "{theirs}: {:?}", made.left);
    }
}

/// Faults that our own parser would find are reported, except for files, which are not read here.
#[test]
fn what_is_made_is_right_or_its_faults_are_told() {
    let told = |made: &SwanctlImport| made.left.iter().any(|(_, what)| what.contains("has a fault"));
    let short = import_single_file("connections { c { local { auth = psk\nid = a }\nremote { auth = psk\nid = b } } }\nsecrets { ike { secret = abc } }\n").unwrap();
    assert!(told(&short), "{:?}", short.left);
    let certified = import_single_file("connections { c { local { auth = psk\nid = a }\nremote { auth = pubkey\ncacerts = ca.pem } } }\nsecrets { ike { secret = \"a long secret\" } }\n").unwrap();
    assert!(!told(&certified), "{:?}", certified.left);
    assert!(told(&import_with("pools = nowhere", "", "")));
}
