use super::*;
use crate::attribute::{AttributeList, vendor};
use std::collections::BTreeSet;

fn load_dictionary(text: &str) -> Result<RadiusDictionary, DictionaryError> {
    let mut d = RadiusDictionary::default();
    d.load_dictionary_text("test", text, &mut |_: &str, _: &str| None).map(|()| d)
}
fn print_attributes(d: &RadiusDictionary, a: &AttributeList) -> Vec<String> {
    d.decode(a.as_bytes()).map(|i| i.to_string()).collect()
}

#[test]
fn the_standard_dictionary_loads_and_repeats_nothing() {
    let mut d = RadiusDictionary::default();
    for (file, text) in STANDARD {
        d.load_dictionary_text(file, text, &mut |_: &str, _: &str| None).unwrap();
    }
    let names: BTreeSet<_> = d.attributes().iter().map(|a| a.name.to_ascii_lowercase()).collect();
    let oids: BTreeSet<_> = d.attributes().iter().map(|a| a.oid).collect();
    assert_eq!((names.len(), oids.len()), (d.attributes().len(), d.attributes().len()));
    let eap = d.by_name("eap-message").unwrap();
    assert_eq!((eap.oid, eap.concat), (AttributeOid::from_standard_attribute(79), true));
    assert_eq!(
        d.by_oid(AttributeOid::new(&[26, 311, 16]).unwrap()).unwrap().encryption,
        AttributeEncryption::Salted
    );
    assert_eq!(d.value_number(AttributeOid::from_standard_attribute(61), "wireless-802.11"), Some(19));
    assert_eq!(d.value_name(AttributeOid::from_standard_attribute(61), 19), Some("Wireless-802.11"));
}

#[test]
fn attributes_print_by_name_and_type() {
    let d = RadiusDictionary::standard();
    let mut a = AttributeList::new();
    a.push_text(1, "alice").unwrap().push_u32(61, 19).push_u32(61, 999);
    a.push_tagged_u32(64, 1, 13).push_tagged_bytes(81, 0, b"7").unwrap();
    a.push_eap(&[1; 254]).push_vendor(vendor::MICROSOFT, 10, b"corp").unwrap();
    a.push_vendor(9, 1, b"x").unwrap().push_bytes(26, &[0, 0, 1]).unwrap().push_bytes(5, &[1]).unwrap();
    a.push_evs(245, 9, 3, b"z").unwrap();
    let printed = print_attributes(&d, &a);
    let eap = format!("EAP-Message = 0x{}", "01".repeat(254));
    let want = [
        "User-Name = \"alice\"",
        "NAS-Port-Type = Wireless-802.11",
        "NAS-Port-Type = 999",
        "Tunnel-Type:1 = VLAN",
        "Tunnel-Private-Group-Id = \"7\"",
        &eap,
        "MS-CHAP-Domain = \"corp\"",
        "Attr-26.9.1 = 0x78",
        "Vendor-Specific = 0x000001",
        "NAS-Port = 0x01",
        "Attr-245.26.9.3 = 0x7a",
    ];
    assert_eq!(printed, want);
}

#[test]
fn vendors_tlvs_and_formats() {
    let d = load_dictionary(
        "VENDOR Wide 100 format=2,2 # comment\nVENDOR Narrow 0x65\nBEGIN-VENDOR Wide\nATTRIBUTE Wide-Box 300 tlv\n\
         BEGIN-TLV Wide-Box\nATTRIBUTE Wide-Number 1 integer\nEND-TLV Wide-Box\nATTRIBUTE Wide-Text 300.2 string\n\
         END-VENDOR Wide\nATTRIBUTE Ext 241.7 ipaddr\nVALUE Wide-Number Seven 7\n",
    )
    .unwrap();
    assert_eq!(d.by_name("Wide-Number").unwrap().oid.to_string(), "26.100.300.1");
    assert_eq!(d.vendor_by_name("narrow").unwrap().number, 0x65);
    let mut a = AttributeList::new();
    let data = [0, 0, 0, 100, 1, 44, 0, 13, 1, 6, 0, 0, 0, 7, 2, 3, b'a'];
    a.push_bytes(26, &data).unwrap().push_extended(241, 7, &[10, 0, 0, 1]).unwrap();
    assert_eq!(print_attributes(&d, &a), ["Wide-Number = Seven", "Wide-Text = \"a\"", "Ext = 10.0.0.1"]);
}

fn included_file(file: &str, text: &str) -> Option<IncludedFile> {
    Some(IncludedFile { file: file.into(), text: text.into() })
}

#[test]
fn files_include_files() {
    let mut d = RadiusDictionary::default();
    let mut files = |from: &str, name: &str| match (from, name) {
        ("outer", "inner") => included_file("folder/inner", "ATTRIBUTE A 1 string\n$INCLUDE beside\n"),
        ("folder/inner", "beside") => included_file("folder/beside", "ATTRIBUTE B 2 string\nVALUE C x 1\n"),
        _ => None,
    };
    let text = "$INCLUDE inner\n$INCLUDE- other\nVALUE A b 1\nATTRIBUTE C 3 integer\n";
    d.load_dictionary_text("outer", text, &mut files).unwrap();
    assert!(d.by_name("a").is_some() && d.by_name("b").is_some());
    // A value may precede its attribute.
    assert_eq!(d.value_number(AttributeOid::from_standard_attribute(3), "X"), Some(1));
}

#[test]
fn inclusion_ends() {
    let fault = |files: &mut IncludeResolver<'_>| {
        let mut d = RadiusDictionary::default();
        d.load_dictionary_text("f0", "\n$INCLUDE next\n", files).unwrap_err().to_string()
    };
    let itself = &mut |_: &str, _: &str| included_file("f0", "");
    assert_eq!(fault(itself), "f0:2: `f0` includes itself");
    let round =
        &mut |from: &str, _: &str| included_file(if from == "a" { "b" } else { "a" }, "$INCLUDE next");
    assert_eq!(fault(round), "b:1: `a` includes itself");
    let mut depth = 0;
    let deeper = &mut |_: &str, _: &str| {
        depth += 1;
        included_file(&format!("f{depth}"), "$INCLUDE next")
    };
    assert_eq!(fault(deeper), "f15:1: more than 16 files include each other");
    // Each of a few files includes the next one many times.
    let mut n = 0;
    let wide = &mut |from: &str, _: &str| {
        n += 1;
        let name = if from == "f0" { "outer" } else { "inner" };
        included_file(
            &format!("{name}{n}"),
            &if name == "outer" { "$INCLUDE x\n".repeat(2000) } else { String::new() },
        )
    };
    assert!(fault(wide).contains("more than 1024 files or 16 MiB"));
    let large = &mut |_: &str, _: &str| included_file("large", &" ".repeat(17 << 20));
    assert!(fault(large).starts_with("f0:2: more than 1024 files or 16 MiB"));
}

#[test]
fn what_freeradius_writes_otherwise_is_read_too() {
    let d = load_dictionary(
        "VENDOR Old 100\nATTRIBUTE Old-Way 1 String Old\nATTRIBUTE Its-Own 3000 string\n\
         BEGIN-VENDOR Old\nATTRIBUTE Old-Mac 2 ether\nATTRIBUTE Old-Small 3 uint8\nEND-VENDOR Old\n",
    )
    .unwrap();
    let is = |name: &str| d.by_name(name).map(|d| (d.oid.to_string(), d.data_type));
    assert_eq!(is("old-way"), Some(("26.100.1".into(), AttributeDataType::Text)));
    assert_eq!(is("old-mac"), Some(("26.100.2".into(), AttributeDataType::Ether)));
    assert_eq!(is("old-small"), Some(("26.100.3".into(), AttributeDataType::Byte)));
    // An internal attribute of FreeRADIUS is known, but no packet can hold it.
    assert!(d.attribute_number(d.by_name("its-own").unwrap().oid).is_none());
}

#[test]
fn later_definitions_replace_earlier_ones_and_keep_the_values() {
    let mut d = RadiusDictionary::builtin();
    let cause = d.by_name("Cisco-Disconnect-Cause").unwrap().oid;
    let unknown = d.value_number(cause, "Unknown").unwrap();
    let all = d.attributes().len();
    let text = "BEGIN-VENDOR Cisco\nATTRIBUTE Cisco-Why 195 integer\nATTRIBUTE Cisco-AVPair 1 octets\n\
                END-VENDOR Cisco\nVALUE Cisco-Disconnect-Cause Other 4711\n";
    d.load_dictionary_text("site", text, &mut |_: &str, _: &str| None).unwrap();
    assert_eq!(d.by_oid(cause).unwrap().name, "Cisco-Why");
    assert_eq!(d.by_name("Cisco-Disconnect-Cause").unwrap().oid, cause);
    assert_eq!((d.value_number(cause, "Unknown"), d.value_name(cause, 4711)), (Some(unknown), Some("Other")));
    assert_eq!(d.by_name("cisco-avpair").unwrap().data_type, AttributeDataType::String);
    assert_eq!(d.attributes().len(), all + 1);
}

#[test]
fn unknown_attributes_have_numbers_for_a_name() {
    let oid = |name: &str| RadiusDictionary::parse_unknown_attribute_name(name).map(|oid| oid.to_string());
    for name in ["Attr-26.9.1", "attr-5", "ATTR-241.26.9.1"] {
        assert_eq!(oid(name).as_deref(), Some(&name[5..]), "{name}");
    }
    let deep = format!("Attr-{}", ["1"; 11].join("."));
    for name in
        ["Attr-", "Attr-x", "Attr-26.", "Attr-26.+9.1", "Attr-4294967296", "Attr", "Attribut", "ätt-1", &deep]
    {
        assert_eq!(oid(name), None, "{name}");
    }
}

#[test]
fn errors_name_file_line_and_what() {
    for (text, want) in [
        ("\nATTRIBUTE A 1 sting", "test:2: unknown type `sting`"),
        ("ATTRIBUTE A x string", "test:1: `x` is not an attribute number"),
        ("ATTRIBUTE A 0 string", "test:1: attribute numbers begin with 1"),
        ("VALUE A 1", "test:1: VALUE needs 3 words, not 2"),
        ("VALUE A b c", "test:1: `c` is not a number"),
        ("ATTRIBUTE A 1 string has_tg", "test:1: unknown flag `has_tg`"),
        ("ATTRIBUTE A 1", "test:1: ATTRIBUTE has a wrong number of words: 2"),
        ("VALUE A b 1", "test:1: no attribute `A`"),
        ("VENDOR V 1 format=3,1", "test:1: `format=3,1`: expected format=1|2|4,0|1|2 or format=1,1,c"),
        ("BEGIN-VENDOR V", "test:1: no vendor `V`"),
        ("VENDOR V 1\nBEGIN-VENDOR V\n", "test:2: the file ends within BEGIN-VENDOR"),
        ("END-TLV T", "test:1: END-TLV T without its BEGIN-TLV"),
        ("$INCLUDE x", "test:1: no file `x`"),
        ("ATRIBUTE A 1 string", "test:1: unknown keyword `ATRIBUTE`"),
    ] {
        assert_eq!(load_dictionary(text).unwrap_err().to_string(), want);
    }
}
