use super::*;
use crate::attribute::{Attributes, vendor};
use std::collections::BTreeSet;

fn load(text: &str) -> Result<Dictionary, DictionaryError> {
    let mut d = Dictionary::default();
    d.load("test", text, &mut |_: &str| None).map(|()| d)
}
fn print(d: &Dictionary, a: &Attributes) -> Vec<String> {
    d.decode(a.as_bytes()).map(|i| i.to_string()).collect()
}

#[test]
fn the_built_in_dictionary_loads_and_repeats_nothing() {
    let mut d = Dictionary::default();
    for (file, text) in BUILTIN {
        d.load(file, text, &mut |_: &str| None).unwrap();
    }
    let names: BTreeSet<_> = d.attributes().iter().map(|a| a.name.to_ascii_lowercase()).collect();
    let oids: BTreeSet<_> = d.attributes().iter().map(|a| a.oid).collect();
    assert_eq!((names.len(), oids.len()), (d.attributes().len(), d.attributes().len()));
    let eap = d.by_name("eap-message").unwrap();
    assert_eq!((eap.oid, eap.concat), (Oid::standard(79), true));
    assert_eq!(d.by_oid(Oid::new(&[26, 311, 16]).unwrap()).unwrap().encryption, Encryption::Salted);
    assert_eq!(d.value_number(Oid::standard(61), "wireless-802.11"), Some(19));
    assert_eq!(d.value_name(Oid::standard(61), 19), Some("Wireless-802.11"));
}

#[test]
fn attributes_print_by_name_and_type() {
    let d = Dictionary::builtin();
    let mut a = Attributes::new();
    a.push_text(1, "alice").unwrap().push_u32(61, 19).push_u32(61, 999);
    a.push_tagged_u32(64, 1, 13).push_tagged_bytes(81, 0, b"7").unwrap();
    a.push_eap(&[1; 254]).push_vendor(vendor::MICROSOFT, 10, b"corp").unwrap();
    a.push_vendor(9, 1, b"x").unwrap().push_bytes(26, &[0, 0, 1]).unwrap().push_bytes(5, &[1]).unwrap();
    a.push_evs(245, 9, 3, b"z").unwrap();
    let printed = print(&d, &a);
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
    let d = load(
        "VENDOR Wide 100 format=2,2 # comment\nVENDOR Narrow 0x65\nBEGIN-VENDOR Wide\nATTRIBUTE Wide-Box 300 tlv\n\
         BEGIN-TLV Wide-Box\nATTRIBUTE Wide-Number 1 integer\nEND-TLV Wide-Box\nATTRIBUTE Wide-Text 300.2 string\n\
         END-VENDOR Wide\nATTRIBUTE Ext 241.7 ipaddr\nVALUE Wide-Number Seven 7\n",
    )
    .unwrap();
    assert_eq!(d.by_name("Wide-Number").unwrap().oid.to_string(), "26.100.300.1");
    assert_eq!(d.vendor_by_name("narrow").unwrap().number, 0x65);
    let mut a = Attributes::new();
    let data = [0, 0, 0, 100, 1, 44, 0, 13, 1, 6, 0, 0, 0, 7, 2, 3, b'a'];
    a.push_bytes(26, &data).unwrap().push_extended(241, 7, &[10, 0, 0, 1]).unwrap();
    assert_eq!(print(&d, &a), ["Wide-Number = Seven", "Wide-Text = \"a\"", "Ext = 10.0.0.1"]);
}

#[test]
fn files_include_files() {
    let mut d = Dictionary::default();
    let mut files = |name: &str| (name == "inner").then(|| "ATTRIBUTE A 1 string\n".to_owned());
    d.load("outer", "$INCLUDE inner\n$INCLUDE- other\nVALUE A b 1\n", &mut files).unwrap();
    assert!(d.by_name("a").is_some());
    let e = d.load("loop", "$INCLUDE loop\n", &mut |_: &str| Some("$INCLUDE loop\n".into())).unwrap_err();
    assert_eq!(e.to_string(), "loop:1: more than 16 files include each other");
}

#[test]
fn errors_name_file_line_and_what() {
    for (text, want) in [
        ("\nATTRIBUTE A 1 sting", "test:2: unknown type `sting`"),
        ("ATTRIBUTE A x string", "test:1: `x` is not an attribute number"),
        ("ATTRIBUTE A 256 string", "test:1: attribute number 256 is not within 1 to 255"),
        ("ATTRIBUTE A 1 string has_tg", "test:1: unknown flag `has_tg`"),
        ("ATTRIBUTE A 1", "test:1: ATTRIBUTE with 2 words"),
        ("VALUE A b 1", "test:1: no attribute `A`"),
        ("VENDOR V 1 format=3,1", "test:1: `format=3,1`: expected format=1|2|4,0|1|2 or format=1,1,c"),
        ("BEGIN-VENDOR V", "test:1: no vendor `V`"),
        ("VENDOR V 1\nBEGIN-VENDOR V\n", "test:2: the file ends within BEGIN-VENDOR"),
        ("END-TLV T", "test:1: END-TLV T without its BEGIN-TLV"),
        ("$INCLUDE x", "test:1: no file `x`"),
        ("ATRIBUTE A 1 string", "test:1: unknown keyword `ATRIBUTE`"),
    ] {
        assert_eq!(load(text).unwrap_err().to_string(), want);
    }
}
