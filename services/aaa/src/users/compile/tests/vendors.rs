//! Vendors' attributes in rows.

use super::*;
use alloc::vec::Vec;
use std::borrow::ToOwned;
use std::{format, vec};
use usher_core::Seed;
use usher_radius::attribute::{reveal_password, reveal_salted};
use usher_radius::dictionary::AttributeOid;

fn compile_reply(of: &[(&str, &str, &str)]) -> AttributeList {
    compile_user(&[], of).unwrap().reply
}

fn printed_attributes(list: &AttributeList) -> Vec<String> {
    DICTIONARY.decode(list.as_bytes()).map(|item| item.to_string()).collect()
}

#[test]
fn vendors_attributes_take_every_operator() {
    for (name, one, two) in [
        ("Cisco-AVPair", "shell:priv-lvl=15", "ip:inacl#1=permit"),
        ("Aruba-User-Vlan", "10", "20"),
        ("Mikrotik-Rate-Limit", "1M/1M", "2M/2M"),
        // Header lengths of type and length: 4,0 and 2,1 and 2,2.
        ("USR-Channel-Connected-To", "7", "8"),
        ("Lucent-Dialout-Allowed", "1", "2"),
        ("SN-VPN-Name", "a", "b"),
        // Inside another attribute.
        ("WiMAX-Release", "1.0", "2.0"),
        // In an extended type, and in a long one.
        ("Original-Packet-Code", "1", "4"),
        ("Operator-NAS-Identifier", "0x01", "0x02"),
    ] {
        let said = |rows: &[(&str, &str, &str)]| {
            let texts = printed_attributes(&compile_reply(rows));
            texts
                .iter()
                .map(|t| t.split(" = ").last().unwrap().trim_matches('"').to_owned())
                .collect::<Vec<_>>()
        };
        let named = |value: &str| {
            let oid = DICTIONARY.by_name(name).unwrap().oid;
            let name = value.parse().ok().and_then(|n| DICTIONARY.value_name(oid, n));
            name.unwrap_or(value).to_owned()
        };
        let (first, second) = (named(one), named(two));
        assert_eq!(said(&[(name, "=", one), (name, "=", two)]), std::slice::from_ref(&first), "{name}");
        assert_eq!(said(&[(name, "+=", one), (name, "+=", two)]), [first, second.clone()], "{name}");
        assert_eq!(said(&[(name, "=", one), (name, ":=", two)]), [second], "{name}");
    }
}

#[test]
fn an_attribute_may_be_named_by_its_number() {
    let said = compile_reply(&[
        ("Attr-26.9.1", "=", "0x6869"),
        ("attr-26.4846.9999", "=", "0x01"),
        ("Attr-241.26.9.7", "=", "0xff"),
    ]);
    assert_eq!(
        printed_attributes(&said),
        ["Cisco-AVPair = \"hi\"", "Attr-26.4846.9999 = 0x01", "Attr-241.26.9.7 = 0xff"]
    );
    // It is the same attribute, so a later row replaces the first.
    let said = compile_reply(&[("Cisco-AVPair", "=", "a"), ("Attr-26.9.1", ":=", "0x62")]);
    assert_eq!(printed_attributes(&said), ["Cisco-AVPair = \"b\""]);
}

#[test]
fn what_goes_hidden_goes_so_by_its_number_too() {
    let sent = |row: (&str, &str, &str)| {
        let (list, mut out) = (compile_reply(&[row]), Vec::new());
        list.encode_into(&mut out, b"secret", &[9; 16], 1);
        (list.has_hidden(), out)
    };
    for (named, numbered) in [
        (("Tunnel-Password", "=", "in clear"), ("Attr-69", "=", "0x696e20636c656172")),
        (("Tunnel-Password:3", "=", "in clear"), ("Attr-69:3", "=", "0x696e20636c656172")),
        (("Aruba-MPSK-Passphrase", "=", "in clear"), ("Attr-26.14823.44", "=", "0x696e20636c656172")),
    ] {
        let oid = RadiusDictionary::parse_unknown_attribute_name(numbered.0.split(':').next().unwrap());
        assert_eq!(DICTIONARY.by_name(named.0.split(':').next().unwrap()).map(|d| d.oid), oid);
        let (hidden, octets) = sent(numbered);
        assert!(hidden && !octets.windows(8).any(|w| w == b"in clear"), "{octets:?}");
        assert_eq!((hidden, octets), sent(named));
    }
}

#[test]
fn tags_stand_where_rfc_2868_has_them() {
    let octets = |name: &str, value: &str| compile_reply(&[(name, "=", value)]).as_bytes()[8..].to_vec();
    assert_eq!(octets("ERX-Service-Volume:3", "7"), [3, 0, 0, 7]);
    assert_eq!(octets("ERX-Service-Volume", "7"), [0, 0, 0, 7]);
    assert_eq!(octets("ERX-Service-Activate:3", "a"), [3, b'a']);
    assert_eq!(octets("ERX-Service-Activate", "a"), [b'a']);
    // If the value starts like a tag, a tag is added.
    assert_eq!(octets("ERX-Service-Activate", "\u{2}a"), [0, 2, b'a']);
}

#[test]
fn requests_are_compared_by_vendors_attributes() {
    let holds = |check: (&str, &str, &str), request: &[(&str, &str, &str)]| {
        let user = compile_user(&[check], &[]).unwrap();
        user.checks.iter().all(|c| c.is_met_by(&compile_reply(request)))
    };
    for (check, request, want) in [
        (("Cisco-AVPair", "==", "a"), &[("Cisco-AVPair", "+=", "b"), ("Cisco-AVPair", "+=", "a")][..], true),
        (("Cisco-AVPair", "==", "a"), &[("Cisco-AVPair", "=", "b")], false),
        (("Cisco-AVPair", "!=", "a"), &[("Cisco-AVPair", "=", "b")], true),
        (("Cisco-AVPair", "=*", ""), &[], false),
        (("Cisco-AVPair", "!*", ""), &[], true),
        (("Attr-26.9.1", "==", "0x61"), &[("Cisco-AVPair", "=", "a")], true),
        (("SN-VPN-Name", "==", "a"), &[("SN-VPN-Name", "=", "a")], true),
        (("SN-VPN-ID", ">", "300"), &[("SN-VPN-ID", "=", "301")], true),
        (("SN-VPN-ID", ">", "300"), &[("SN-VPN-ID", "=", "299")], false),
        (("Ruckus-Sta-RSSI", ">=", "7"), &[("Ruckus-Sta-RSSI", "=", "7")], true),
        // A check with a tag matches only that tag, a check without a tag any.
        (("ERX-Service-Volume:3", "==", "7"), &[("ERX-Service-Volume:3", "=", "7")], true),
        (("ERX-Service-Volume:4", "==", "7"), &[("ERX-Service-Volume:3", "=", "7")], false),
        (("ERX-Service-Volume", "<", "8"), &[("ERX-Service-Volume:3", "=", "7")], true),
        (("ERX-Service-Volume:4", "=*", ""), &[("ERX-Service-Volume:3", "=", "7")], false),
        (("ERX-Service-Volume:4", "!*", ""), &[("ERX-Service-Volume:3", "=", "7")], true),
        (("ERX-Service-Volume:3", "=*", ""), &[("ERX-Service-Volume:3", "=", "7")], true),
        (("ERX-Service-Volume:3", "!*", ""), &[("ERX-Service-Volume:3", "=", "7")], false),
        (("Tunnel-Private-Group-Id", "==", "42"), &[("Tunnel-Private-Group-Id:3", "=", "42")], true),
        (("Tunnel-Private-Group-Id:2", "==", "42"), &[("Tunnel-Private-Group-Id", "=", "42")], false),
    ] {
        assert_eq!(holds(check, request), want, "{check:?} {request:?}");
    }
}

/// Returns the maximum octets of a value.
fn max_value_octets(encryption: AttributeEncryption) -> u64 {
    match encryption {
        AttributeEncryption::None | AttributeEncryption::Salted => 200,
        AttributeEncryption::UserPassword => 100,
        AttributeEncryption::Ascend => 16,
    }
}

/// Returns a random value of a type, as written and as printed.
fn sample_value(d: &AttributeDefinition, random: &mut impl FnMut() -> u64) -> (String, String) {
    let same = |text: String| (text.clone(), text);
    let n = random();
    let (a, b) = (n as u16, (n >> 16) as u16);
    match d.data_type {
        AttributeDataType::Integer if d.tagged => same((n % (1 << 24)).to_string()),
        AttributeDataType::Integer | AttributeDataType::Time => same((n as u32).to_string()),
        AttributeDataType::Integer64 => same(n.to_string()),
        AttributeDataType::Byte => same((n as u8).to_string()),
        AttributeDataType::Short => same(a.to_string()),
        AttributeDataType::Signed => same((n as i32).to_string()),
        AttributeDataType::Ipv4Addr => same(std::net::Ipv4Addr::from_bits(n as u32).to_string()),
        AttributeDataType::Ip if n & 1 == 0 => same(std::net::Ipv4Addr::from_bits(n as u32).to_string()),
        AttributeDataType::Ipv6Addr | AttributeDataType::Ip => {
            same(std::net::Ipv6Addr::from_bits(u128::from(n) << 64 | u128::from(random())).to_string())
        }
        AttributeDataType::Ipv4Prefix => same(format!("10.{}.0.0/16", a as u8)),
        AttributeDataType::Ipv6Prefix => same(format!("2001:db8:{:x}::/48", a | 1)),
        AttributeDataType::Ifid => same(format!("{a:04x}:{b:04x}:0000:0001")),
        AttributeDataType::Ether => same(format!("00:11:22:33:{:02x}:{:02x}", a as u8, b as u8)),
        AttributeDataType::Text => {
            let most = max_value_octets(d.encryption);
            let text: String = (0..1 + n % most).map(|_| char::from(b'a' + (random() % 26) as u8)).collect();
            (text.clone(), format!("\"{text}\""))
        }
        _ => {
            let most = max_value_octets(d.encryption);
            let length = d.fixed.map_or(1 + n % most, u64::from);
            // The first is no tag, and the last no padding.
            let octets: Vec<String> = (0..length).map(|_| format!("{:02x}", 32 + random() % 200)).collect();
            same(format!("0x{}", octets.concat()))
        }
    }
}

#[test]
fn every_shipped_attribute_is_written_and_read_back() {
    let mut rng = Seed::new(13).derive_secure_rng("values", 0);
    let mut random = || rng.next_u64();
    let mut seen = 0;
    for round in 0..4_u8 {
        for d in DICTIONARY.attributes().iter().filter(|d| !d.data_type.contains_attributes()) {
            let Some(place) = DICTIONARY.attribute_number(d.oid) else {
                panic!("{}: no packet can have it", d.name)
            };
            if matches!(d.oid.parts(), &[n] if NOT_OF_A_REPLY.iter().any(|&kind| u32::from(kind) == n)) {
                continue;
            }
            let (mut text, mut shown) = sample_value(d, &mut random);
            let names: Vec<_> = DICTIONARY.named_values(d.oid).collect();
            let number = text.parse().ok().filter(|_| d.data_type.is_number());
            if let Some((number, _)) = names
                .get(usize::from(round))
                .filter(|_| round > 0 && d.data_type.is_number() && d.encryption == AttributeEncryption::None)
            {
                // By name. Of several names of a number the first is shown.
                text = names[usize::from(round)].1.to_owned();
                let first = DICTIONARY.value_number(d.oid, &text).unwrap_or(*number);
                shown = DICTIONARY.value_name(d.oid, first).unwrap().to_owned();
            } else if let Some(name) = number.and_then(|n| DICTIONARY.value_name(d.oid, n)) {
                shown = name.to_owned();
            }
            if d.oid == AttributeOid::from_standard_attribute(kind::ACCT_INTERIM_INTERVAL) {
                (text, shown) = ("600".into(), "600".into());
            }
            let tag = if d.tagged { 1 + round } else { 0 };
            let (name, tagged) = if d.tagged {
                (format!("{}:{tag}", d.name), format!(":{tag}"))
            } else {
                (d.name.to_string(), String::new())
            };
            let list = match compile_user(&[], &[(&name, "=", &text)]) {
                Ok(user) => user.reply,
                Err(complaint) => panic!("{complaint}"),
            };
            assert_eq!(list.values_at(&place).len(), 1, "{name}");
            let mut wire = Vec::new();
            list.encode_into(&mut wire, b"secret", &[7; 16], 1);
            let items: Vec<_> = DICTIONARY.decode(&wire).collect();
            assert!(items.len() == 1 && items[0].oid == d.oid, "{name}: {items:?}");
            seen += 1;
            let item = &items[0];
            if item.definition != Some(d) {
                // Another name of the same number is printed.
                continue;
            }
            let clear = match d.encryption {
                AttributeEncryption::None => {
                    assert_eq!(item.to_string(), format!("{}{tagged} = {shown}", d.name), "{text}");
                    continue;
                }
                AttributeEncryption::Salted => reveal_salted(b"secret", &[7; 16], &item.bytes).unwrap(),
                AttributeEncryption::UserPassword => {
                    reveal_password(b"secret", &[7; 16], &item.bytes).unwrap()
                }
                AttributeEncryption::Ascend => {
                    let mut block = item.bytes.to_vec();
                    usher_radius::attribute::hide_ascend(b"secret", &[7; 16], &mut block);
                    block.truncate(block.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1));
                    block
                }
            };
            let mut want = vec![];
            encode_value(d, &text, &DICTIONARY, &mut want).unwrap();
            assert!(clear == want && item.tag == d.tagged.then_some(tag), "{name} = {text}: {clear:?}");
        }
    }
    assert!(seen > 4 * 6000, "{seen}");
}
