mod vendors;

use super::*;
use crate::store::GroupRows;
use std::sync::LazyLock;
use usher_core::WallTime;
use usher_radius::attribute::kind;

static DICTIONARY: LazyLock<RadiusDictionary> = LazyLock::new(RadiusDictionary::builtin);

fn build_rows(text: &[(&str, &str, &str)]) -> Vec<AttributeRow> {
    text.iter()
        .map(|(attribute, op, value)| AttributeRow {
            attribute: (*attribute).into(),
            op: RowOperator::parse(op).unwrap_or(RowOperator::Unknown),
            value: (*value).into(),
        })
        .collect()
}

fn compile_user(check: &[(&str, &str, &str)], reply: &[(&str, &str, &str)]) -> Result<User, RowError> {
    let rows = UserRows { check: build_rows(check), reply: build_rows(reply), groups: Vec::new() };
    User::compile(&rows, &DICTIONARY)
}

#[test]
fn passwords_are_read_in_each_form() {
    let nt = "8846F7EAEE8FB117AD06BDD830B7586C";
    let hash = StoredPassword::NtHash(<[u8; 16]>::try_from(decode_hex(nt).unwrap()).unwrap().into());
    let argon2 = usher_crypto::password::argon2_hash(b"x", &[1; 16]);
    let headed = format!("{{nt}}{nt}");
    for (attribute, value, want) in [
        ("Cleartext-Password", "open sesame", StoredPassword::from_clear(b"open sesame")),
        ("cleartext-password", " ", StoredPassword::from_clear(b" ")),
        ("NT-Password", nt, hash.clone()),
        ("Password-With-Header", &headed, hash),
        ("Password-With-Header", "{clear}x}", StoredPassword::from_clear(b"x}")),
        ("Crypt-Password", &argon2, StoredPassword::Argon2(argon2.clone().into())),
    ] {
        let user = compile_user(&[(attribute, ":=", value)], &[]).unwrap();
        assert_eq!(user.password, Some(want), "{attribute}");
    }
}

/// FreeRADIUS looks for the attribute in the request, where it never is, so the row rejects everybody.
#[test]
fn a_setting_that_compares_is_refused() {
    for attribute in ["Cleartext-Password", "NT-Password", "Simultaneous-Use", "Expiration", "Pool-Name"] {
        let value = if attribute == "NT-Password" { "8846F7EAEE8FB117AD06BDD830B7586C" } else { "1" };
        for op in ["=", "==", "!=", "<="] {
            let complaint = compile_user(&[(attribute, op, value)], &[]).unwrap_err();
            assert!(complaint.what.contains("write := to set it"), "{attribute} {op}: {complaint}");
        }
    }
    for value in ["Accept", "Reject", "PAP"] {
        for op in ["==", "!=", "=*"] {
            let complaint = compile_user(&[("Auth-Type", op, value)], &[]).unwrap_err();
            assert!(complaint.what.contains("no method to compare"), "Auth-Type {op} {value}: {complaint}");
        }
        assert!(compile_user(&[("Auth-Type", "=", value)], &[]).is_ok(), "{value}");
    }
    assert!(compile_user(&[("Auth-Type", ":=", "4")], &[]).unwrap().rejected, "the number of Reject");
}

/// FreeRADIUS uses the first that it finds.
#[test]
fn of_several_rows_of_one_attribute_the_first_counts() {
    let password = |rows: &[(&str, &str, &str)]| compile_user(rows, &[]).unwrap().password.unwrap();
    let (first, second) = (("Cleartext-Password", ":=", "a"), ("Cleartext-Password", ":=", "b"));
    assert_eq!(password(&[first, second]), StoredPassword::from_clear(b"a"));
    let nt = ("NT-Password", ":=", "8846F7EAEE8FB117AD06BDD830B7586C");
    assert_eq!(password(&[first, nt]), StoredPassword::from_clear(b"a"));
    let headed = ("Password-With-Header", ":=", "{clear}h");
    assert_eq!(
        [password(&[headed, first]), password(&[first, headed])],
        [first, first].map(|row| StoredPassword::from_clear(row.2.as_bytes()))
    );
    let user =
        compile_user(&[("Simultaneous-Use", ":=", "1"), ("Simultaneous-Use", "+=", "9")], &[]).unwrap();
    assert_eq!(user.simultaneous, Some(1));
    let eap = compile_user(&[("EAP-Type", ":=", "PEAP"), ("Auth-Type", ":=", "EAP")], &[]).unwrap();
    assert_eq!(eap.methods, [AuthMethod::Peap]);
    let twice = UserRows {
        reply: build_rows(&[("Fall-Through", "=", "No"), ("Fall-Through", "=", "Yes")]),
        groups: [GroupRows::default()].into(),
        ..UserRows::default()
    };
    assert!(User::compile(&twice, &DICTIONARY).unwrap().groups.is_empty());
}

#[test]
fn a_group_has_a_password_of_one_attribute() {
    let mut group = GroupRows { name: "g".into(), ..GroupRows::default() };
    group.check =
        build_rows(&[("Cleartext-Password", ":=", "a"), ("Password-With-Header", ":=", "{clear}b")]);
    let complaint = User::compile(&UserRows { groups: [group].into(), ..UserRows::default() }, &DICTIONARY);
    assert!(complaint.unwrap_err().what.contains("password in another attribute"));
}

/// A hash whose check would take half a minute.
const GREEDY: &str =
    "$argon2id$v=19$m=65536,t=1000,p=1$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZweHKfbftvj+qf+YFY4NeBbtA";

#[test]
fn what_is_not_understood_is_named() {
    for (check, what) in [
        (("Cleartext-Password", "==", "hunter2"), "write := to set it"),
        (("Cleartext-Password", "", "hunter2"), "its operator (op) is unknown"),
        (("NAS-Port", "===", "1"), "its operator (op) is unknown"),
        (("User-Password", ":=", "hunter2"), "Cleartext-Password"),
        (("Crypt-Password", ":=", "$6$abc"), "Argon2"),
        (("NT-Password", ":=", "123"), "32 hexadecimal"),
        (("Cleartext-Password", ":=", ""), "the password is empty"),
        (("NT-Password", ":=", "31D6CFE0D16AE931B73C59D7E0C089C0"), "the password is empty"),
        (("Password-With-Header", ":=", "{clear}"), "the password is empty"),
        (("Password-With-Header", ":=", "{nt}31d6cfe0d16ae931b73c59d7e0c089c0"), "the password is empty"),
        (("Password-With-Header", ":=", "{ssha}hunter2"), "only {clear}, {nt} and Argon2"),
        (("Crypt-Password", ":=", GREEDY), "t=1000 passes over m=65536 KiB"),
        (("Auth-Type", ":=", "Kerberos"), "MAC authentication bypass"),
        (("EAP-Type", ":=", "LEAP"), "no such EAP method"),
        (("Simultaneous-Use", ":=", "many"), "not a number"),
        (("Expiration", ":=", "tomorrow"), "31 Dec 2026"),
        (("Login-Time", ":=", "Wk0900-1700"), "not supported"),
        (("NAS-Porto", "==", "1"), "no such attribute"),
        (("NAS-Port", ":=", "1"), "an attribute of the request (==)"),
        (("NAS-Port", "==", "one"), "neither a number"),
        (("User-Name", "=~", "^a"), "expressions"),
        (("User-Password:99", "==", "1"), "tag"),
    ] {
        let complaint = compile_user(&[check], &[]).unwrap_err().to_string();
        assert!(complaint.starts_with("radcheck, `") && complaint.contains(what), "{complaint}");
        assert!(!complaint.contains("hunter2"), "{complaint}");
    }
    for reply in
        [("Session-Timeout", "==", "1"), ("Framed-IP-Address", ":=", "10.0.0"), ("Nothing", "=", "1")]
    {
        let complaint = compile_user(&[], &[reply]).unwrap_err();
        assert!(complaint.table == "radreply" && complaint.attribute == reply.0, "{complaint}");
    }
    for (reply, what) in [
        (("Session-Timeout:1", "=", "1"), "has no tag"),
        (("Tunnel-Type:1", "=", "16777216"), "at most 16,777,215"),
        (("Ascend-Data-Filter", "=", "ip in forward"), "not compiled here"),
        (("Attr-26.9.1", "=", "shell"), "write the octets"),
        (("Attr-26.9.256", "=", "0x01"), "no packet can have"),
        (("Attr-3000", "=", "0x01"), "no packet can have"),
        (("WiMAX-Capability", "=", "0x01"), "contains others"),
        (("MS-CHAP2-Response", "=", "0x01"), "must have 50"),
        (("Ruckus-Sta-RSSI", "=", "-1"), "neither a number"),
    ] {
        let complaint = compile_user(&[], &[reply]).unwrap_err().to_string();
        assert!(complaint.contains(what), "{complaint}");
    }
    // Nor are possible secrets, by number or misspelt.
    for row in
        [("Attr-69", "=", "hunter2"), ("Attr-69:1", "=", "hunter2"), ("Tunnel-Pasword", "=", "hunter2")]
    {
        let complaint = compile_user(&[], &[row]).unwrap_err().to_string();
        assert!(complaint.contains("(hidden)") && !complaint.contains("hunter2"), "{complaint}");
    }
    for (check, reply) in
        [(Some(("Auth-Type", ":=", "Kerberos")), None), (None, Some(("NAS-Port", "=", "Kerberos")))]
    {
        let complaint = compile_user(check.as_slice(), reply.as_slice()).unwrap_err().to_string();
        assert!(complaint.contains("Kerberos"), "{complaint}");
    }
    // A secret is not shown, whatever the name of its attribute.
    let secret = "hunter2".repeat(40);
    let complaint = compile_user(&[], &[("Aruba-MPSK-Passphrase", "=", &secret)]).unwrap_err().to_string();
    assert!(complaint.contains("at most 239") && !complaint.contains("hunter2"), "{complaint}");
    let long = "x".repeat(254);
    let complaint = compile_user(&[], &[("Reply-Message", "=", &long)]).unwrap_err();
    assert!(complaint.what.contains("too long"), "{complaint}");
    let group = GroupRows {
        name: "staff".into(),
        check: build_rows(&[("Nothing", "==", "1")]),
        ..Default::default()
    };
    let rows = UserRows { groups: [group].into(), ..Default::default() };
    let complaint = User::compile(&rows, &DICTIONARY).unwrap_err();
    assert_eq!(complaint.table, "radgroupcheck of staff");
}

#[test]
fn a_vlan_is_three_tunnel_attributes() {
    let user = compile_user(
        &[("Cleartext-Password", ":=", "x"), ("Simultaneous-Use", ":=", "2"), ("Pool-Name", ":=", "main")],
        &[
            ("Tunnel-Type:1", "=", "VLAN"),
            ("Tunnel-Medium-Type:1", "=", "IEEE-802"),
            ("Tunnel-Private-Group-Id:1", "=", "42"),
            ("Session-Timeout", "=", "60"),
            ("Session-Timeout", "=", "61"),
            ("Session-Timeout", ":=", "62"),
            ("Reply-Message", "+=", "one"),
            ("Reply-Message", "+=", "two"),
        ],
    )
    .unwrap();
    let tagged = user.reply.get_tagged_u32(kind::TUNNEL_TYPE).unwrap();
    assert_eq!((tagged.tag, tagged.value), (Some(1), 13));
    assert_eq!(user.reply.get_tagged_u32(kind::TUNNEL_MEDIUM_TYPE).unwrap().value, 6);
    assert_eq!(user.reply.get_tagged(kind::TUNNEL_PRIVATE_GROUP_ID).unwrap().value, b"42");
    assert_eq!(user.reply.get_all(kind::SESSION_TIMEOUT).collect::<Vec<_>>(), [&62_u32.to_be_bytes()[..]]);
    assert_eq!(user.reply.get_all(kind::REPLY_MESSAGE).count(), 2);
    assert_eq!((user.simultaneous, user.pool.as_deref()), (Some(2), Some("main")));
}

#[test]
fn freeradius_names_restrict_the_authentication_methods() {
    let methods = |attribute, value| compile_user(&[(attribute, ":=", value)], &[]).unwrap().methods.to_vec();
    for (value, expected) in [
        ("Accept", &[AuthMethod::Mab][..]),
        ("PAP", &[AuthMethod::Pap]),
        ("Local", &[AuthMethod::Pap]),
        ("CHAP", &[AuthMethod::Chap]),
        ("MS-CHAP", &[AuthMethod::MsChap, AuthMethod::MsChapV2]),
        ("EAP", &eap_methods()),
    ] {
        assert_eq!(methods("Auth-Type", value), expected, "{value}");
    }
    for (name, number, expected) in [
        ("EAP-MD5", "4", AuthMethod::EapMd5),
        ("EAP-GTC", "6", AuthMethod::EapGtc),
        ("EAP-TLS", "13", AuthMethod::EapTls),
        ("EAP-TTLS", "21", AuthMethod::Ttls),
        ("EAP-PEAP", "25", AuthMethod::Peap),
        ("EAP-MSCHAPv2", "26", AuthMethod::EapMsChapV2),
    ] {
        assert_eq!([methods("EAP-Type", name), methods("EAP-Type", number)], [[expected], [expected]]);
    }
}

/// FreeRADIUS orders octets differently, and its operators on prefixes have other meanings.
#[test]
fn octets_and_addresses_are_unordered_and_prefixes_only_equal() {
    for (attribute, value, what) in [
        ("Class", "0x05", "by == and != only"),
        ("NAS-IP-Address", "10.0.0.0", "by == and != only"),
        ("NAS-IPv6-Address", "2001:db8::", "by == and != only"),
        ("Framed-Interface-Id", "1:2:3:4", "by == and != only"),
        ("Framed-IPv6-Prefix", "2001:db8::/32", "by == only"),
        ("Fortinet-WirelessController-Device-MAC", "02:00:00:00:00:01", "by == only"),
    ] {
        for op in ["<", "<=", ">", ">="] {
            let complaint = compile_user(&[(attribute, op, value)], &[]).unwrap_err().to_string();
            assert!(complaint.contains(what), "{complaint}");
        }
        for op in ["==", "=", "!="] {
            let is_refused = compile_user(&[(attribute, op, value)], &[]).is_err();
            assert_eq!(is_refused, op == "!=" && what == "by == only", "{attribute} {op}");
        }
    }
    for (attribute, value) in [("NAS-Port", "1"), ("User-Name", "a"), ("Event-Timestamp", "5")] {
        assert!(compile_user(&[(attribute, "<", value)], &[]).is_ok(), "{attribute}");
    }
    let holds = |given: &[u8]| {
        let user = compile_user(&[("Framed-IPv6-Prefix", "==", "2001:db8::/32")], &[]).unwrap();
        let mut request = AttributeList::new();
        request.push_bytes(97, given).unwrap();
        user.checks[0].is_met_by(&request)
    };
    let mut whole = [0; 18];
    whole[..6].copy_from_slice(&[0, 32, 0x20, 1, 0xd, 0xb8]);
    assert!(holds(&whole[..6]) && holds(&whole[..10]) && holds(&whole), "in however many octets");
    assert!(
        !holds(&[0, 48, 0x20, 1, 0xd, 0xb8, 0, 0])
            && !holds(&[0, 32, 0x20])
            && !holds(&[0, 32, 0x20, 1, 0xd, 0xb9])
    );
}

/// FreeRADIUS has 32 bits for a date, and parses `0X` and a tag of the form `010` in its own way.
#[test]
fn values_are_read_as_freeradius_reads_them() {
    assert!(compile_user(&[("Expiration", ":=", "7 Feb 2106 06:28:15")], &[]).is_ok());
    for late in ["7 Feb 2106 06:28:16", "4294967296", "31 Dec 9999"] {
        let complaint = compile_user(&[("Expiration", ":=", late)], &[]).unwrap_err().to_string();
        assert!(complaint.contains("after 7 Feb 2106"), "{complaint}");
    }
    let reply = |row: (&str, &str, &str)| compile_user(&[], &[row]).map(|user| user.reply);
    for octets in ["0x414243", "0X414243"] {
        assert_eq!(reply(("Class", "=", octets)).unwrap().get(kind::CLASS), Some(&b"ABC"[..]), "{octets}");
    }
    for tag in ["010", "00", "+1", "32", "", "*"] {
        let complaint = reply((&format!("Tunnel-Type:{tag}"), "=", "VLAN")).unwrap_err().to_string();
        assert!(complaint.contains("a tag is a number"), "{complaint}");
    }
    for tag in ["0", "1", "31"] {
        assert!(reply((&format!("Tunnel-Type:{tag}"), "=", "VLAN")).is_ok(), "{tag}");
    }
    for op in ["=*", "!*", "=~", "!~"] {
        assert!(reply(("Fall-Through", op, "Yes")).is_err(), "{op}");
    }
    for rows in [
        compile_user(&[("Cleartext-Password", "", "`date`")], &[]),
        compile_user(&[], &[("Filter-Id", "", "`date`")]),
    ] {
        let complaint = rows.unwrap_err().to_string();
        assert!(complaint.contains("expands a value between backquotes"), "{complaint}");
    }
}

#[test]
fn a_number_that_may_be_negative_has_no_order() {
    let mut dictionary = RadiusDictionary::builtin();
    let text = "VENDOR Test 32473\nBEGIN-VENDOR Test\nATTRIBUTE Test-Level 1 signed\nEND-VENDOR Test\n";
    dictionary.load_dictionary_text("test", text, &mut |_, _| None).unwrap();
    let compile = |op| {
        let rows = UserRows { check: build_rows(&[("Test-Level", op, "-2")]), ..UserRows::default() };
        User::compile(&rows, &dictionary)
    };
    assert!(compile("==").is_ok() && compile("!=").is_ok());
    let complaint = compile("<").unwrap_err().to_string();
    assert!(complaint.contains("by == and != only"), "{complaint}");
}

#[test]
fn groups_come_with_their_rows_unless_the_user_stops_there() {
    let group = GroupRows {
        name: "staff".into(),
        check: build_rows(&[("NAS-Port-Type", "==", "Ethernet"), ("Auth-Type", ":=", "Reject")]),
        reply: build_rows(&[("Fall-Through", "=", "Yes"), ("Idle-Timeout", "=", "5")]),
    };
    let mut all = UserRows { groups: [group].into(), ..Default::default() };
    let user = User::compile(&all, &DICTIONARY).unwrap();
    let [group] = &user.groups[..] else { panic!("{user:?}") };
    assert!(
        group.fall_through && group.control.rejected && group.checks.len() == 1 && group.reply.len() == 1
    );
    assert_eq!(group.checks[0].value, [0, 0, 0, 15]);
    all.reply = build_rows(&[("Fall-Through", "=", "No")]);
    assert!(User::compile(&all, &DICTIONARY).unwrap().groups.is_empty());
}

#[test]
fn dates_are_those_of_the_calendar() {
    for (text, seconds) in [
        ("0", 0),
        ("1 Jan 1970", 0),
        ("2026-01-01", 1_767_225_600),
        ("Jan 1 2026 00:00:00", 1_767_225_600),
        ("29 February 2024 12:34:56", 1_709_210_096),
        ("2024-02-29T12:34:56Z", 1_709_210_096),
        ("31 Dec 2016 23:59:60", 1_483_228_800),
    ] {
        assert_eq!(parse_date(text), Some(WallTime::from_unix_secs(seconds)), "{text}");
    }
    for text in [
        "",
        "29 Feb 2026",
        "31 Feb 2026",
        "31 Apr 2026",
        "1 Jan",
        "2026-13-01",
        "x",
        "1 Jan 2026 25:00",
        "1 Jan 2026 12:00:61",
        "1 Jan 2026 12:00:75",
        "0 Jan 2026",
    ] {
        assert_eq!(parse_date(text), None, "{text}");
    }
}

/// RFC 2865 §5.44, RFC 2869 §5.19. Attributes that the server adds itself are refused too.
#[test]
fn attributes_that_no_accept_has_are_refused() {
    for (attribute, value) in [
        ("CHAP-Password", "0x0102"),
        ("NAS-IP-Address", "192.0.2.1"),
        ("NAS-Port", "1"),
        ("State", "0x01"),
        ("Called-Station-Id", "x"),
        ("Calling-Station-Id", "x"),
        ("NAS-Identifier", "x"),
        ("Proxy-State", "0x01"),
        ("CHAP-Challenge", "0x01"),
        ("NAS-Port-Type", "Ethernet"),
        ("Connect-Info", "x"),
        ("EAP-Message", "0x01"),
        ("Message-Authenticator", "0x00"),
        ("NAS-Port-Id", "x"),
    ] {
        let complaint = compile_user(&[], &[(attribute, "=", value)]).unwrap_err().to_string();
        assert!(complaint.contains("an Access-Accept cannot have this"), "{complaint}");
    }
}

/// RFC 2865 §5: an attribute without a value is not sent; RFC 2869 §5.16: an interval is a minute at least.
#[test]
fn replies_are_what_may_be_sent() {
    let reply = |rows: &[(&str, &str, &str)]| compile_user(&[], rows).unwrap().reply;
    let said = reply(&[("Reply-Message", "=", ""), ("Filter-Id", "=", "a"), ("Filter-Id", ":=", "")]);
    assert!(said.is_empty(), "{said:?}");
    for (given, sent) in [(1, 60), (59, 60), (60, 60), (600, 600)] {
        let said = reply(&[("Acct-Interim-Interval", "=", &given.to_string())]);
        assert_eq!(said.get_u32(kind::ACCT_INTERIM_INTERVAL), Some(sent));
    }
}

#[test]
fn an_unreadable_reply_may_be_left_out_and_a_check_may_not() {
    let group = GroupRows {
        name: "staff".into(),
        reply: build_rows(&[
            ("Nonsense", "=", "1"),
            ("Idle-Timeout", "=", "5"),
            ("Fall-Through", "=", "Perhaps"),
        ]),
        ..GroupRows::default()
    };
    let mut all = UserRows {
        check: build_rows(&[("Cleartext-Password", ":=", "x")]),
        reply: build_rows(&[("Session-Timeout", "=", "soon"), ("Filter-Id", "=", "a")]),
        groups: [group].into(),
    };
    let complaint = User::compile(&all, &DICTIONARY).unwrap_err();
    assert_eq!((complaint.table.as_str(), complaint.attribute.as_str()), ("radreply", "Session-Timeout"));
    let user = User::compile_skipping_bad_replies(&all, &DICTIONARY).unwrap();
    let left_out: Vec<_> = user.left_out.iter().map(|c| (c.table.as_str(), c.attribute.as_str())).collect();
    let staff = "radgroupreply of staff";
    assert_eq!(left_out, [("radreply", "Session-Timeout"), (staff, "Nonsense"), (staff, "Fall-Through")]);
    assert!(user.reply.get(11) == Some(b"a") && user.groups[0].reply.len() == 1);
    for table in ["radcheck", "radgroupcheck of staff"] {
        let mut all = all.clone();
        let place = if table == "radcheck" { &mut all.check } else { &mut all.groups[0].check };
        place.extend(build_rows(&[("Nonsense", "==", "1")]));
        assert_eq!(User::compile_skipping_bad_replies(&all, &DICTIONARY).unwrap_err().table, table);
    }
    all.reply.clear();
    all.groups.clear();
    assert!(User::compile_skipping_bad_replies(&all, &DICTIONARY).unwrap().left_out.is_empty());
}
