//! Compares every attribute of the built-in dictionary with FreeRADIUS: its client decodes our replies by its own
//! dictionaries, and its dictionaries contain ours.

use crate::place::{AaaServer, SECRET, TempDir, run_program};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use usher_radius::attribute::AttributeDataType;
use usher_radius::dictionary::{AttributeDefinition, AttributeEncryption, IncludedFile, RadiusDictionary};

const THEIRS: &str = "/usr/share/freeradius/dictionary";

/// Loads FreeRADIUS's dictionaries by our parser.
fn freeradius_dictionary() -> RadiusDictionary {
    let read = |path: &Path| std::fs::read(path).map(|octets| String::from_utf8_lossy(&octets).into_owned());
    let mut dictionary = RadiusDictionary::default();
    let root = read(Path::new(THEIRS)).expect("FreeRADIUS's dictionaries are installed (freeradius-common)");
    let loaded = dictionary.load_dictionary_text(THEIRS, &root, &mut |from: &str, name: &str| {
        let path = Path::new(from).with_file_name(name);
        Some(IncludedFile { text: read(&path).ok()?, file: path.display().to_string() })
    });
    loaded.unwrap_or_else(|fault| panic!("{fault}"));
    dictionary
}

/// Attributes for which we follow an RFC and FreeRADIUS does not.
const OTHERWISE: [&str; 5] = [
    "Framed-IPX-Network",
    "Login-LAT-Group",
    "Message-Authenticator",
    "User-Priority-Table",
    "NAS-Filter-Rule",
];

#[test]
fn what_we_ship_is_what_freeradius_has() {
    let (theirs, ours) = (freeradius_dictionary(), RadiusDictionary::builtin());
    let mut compared = 0;
    for d in ours.attributes() {
        let Some(same) = theirs.by_name(&d.name) else { continue };
        if OTHERWISE.contains(&&*d.name) || theirs.attribute_number(same.oid).is_none() {
            continue;
        }
        let what = |d: &AttributeDefinition| (d.oid, d.data_type, d.encryption, d.tagged);
        assert_eq!(what(d), what(same), "{}", d.name);
        compared += 1;
    }
    assert!(compared > 6000, "{compared}");
    for vendor in ours.vendors() {
        let same = theirs.vendor_by_name(&vendor.name).unwrap_or_else(|| panic!("{}", vendor.name));
        assert_eq!((vendor.number, vendor.framing), (same.number, same.framing), "{}", vendor.name);
    }
    // Our dictionary has all vendors' attributes of theirs.
    let sent = |d: &&AttributeDefinition| {
        matches!(d.oid.parts(), [26, _, ..]) && theirs.attribute_number(d.oid).is_some()
    };
    for d in theirs.attributes().iter().filter(sent) {
        assert!(ours.by_oid(d.oid).is_some(), "{} {} is missing", d.oid, d.name);
    }
}

/// Returns an unnamed value in its written form, and as radclient prints it. `None`: radclient prints the type
/// differently.
fn sample_value(d: &AttributeDefinition) -> (&'static str, Option<String>) {
    let same = |text: &'static str| (text, Some(text.to_owned()));
    match d.data_type {
        AttributeDataType::Integer if d.tagged => same("7654321"),
        AttributeDataType::Integer | AttributeDataType::Integer64 => same("87654321"),
        AttributeDataType::Short => same("54321"),
        AttributeDataType::Byte => same("213"),
        AttributeDataType::Signed => same("-7"),
        AttributeDataType::Ipv4Addr | AttributeDataType::Ip => same("192.0.2.7"),
        AttributeDataType::Ipv6Addr => same("2001:db8::7"),
        AttributeDataType::Ipv4Prefix => same("192.0.2.0/24"),
        AttributeDataType::Ipv6Prefix => same("2001:db8::/48"),
        AttributeDataType::Ifid => same("1:2:3:4"),
        AttributeDataType::Ether => same("00:11:22:aa:bb:cc"),
        AttributeDataType::Text => ("usher", Some("\"usher\"".to_owned())),
        AttributeDataType::Time => ("1700000000", None),
        _ => ("0x2a2b2c2d", None),
    }
}

/// True for attributes that this test leaves out. They are in no reply, or also in requests, or have their own
/// length, or are below a standard attribute of type TLV (RFC 6930), which FreeRADIUS does not parse.
fn passed_over(d: &AttributeDefinition) -> bool {
    let of_no_reply = [1, 2, 3, 4, 5, 24, 30, 31, 32, 33, 60, 61, 70, 75, 76, 77, 79, 80, 87];
    matches!(*d.oid.parts(), [n] if of_no_reply.contains(&n))
        || matches!(d.oid.parts(), [173, ..])
        || OTHERWISE.contains(&&*d.name)
        || d.data_type.contains_attributes()
        || d.fixed.is_some()
        || d.concat
}

#[test]
fn freeradius_reads_every_attribute_that_we_ship() {
    let (theirs, ours) = (freeradius_dictionary(), RadiusDictionary::builtin());
    let known = |d: &&AttributeDefinition| {
        let same = theirs.by_oid(d.oid).is_some_and(|same| same.name == d.name);
        same && ours.by_oid(d.oid) == Some(*d) && !passed_over(d)
    };
    let all: Vec<&AttributeDefinition> = ours.attributes().iter().filter(known).collect();
    assert!(all.len() > 5500, "{}", all.len());

    // As many users as needed, each with some of the attributes.
    let users: BTreeMap<String, &[&AttributeDefinition]> =
        all.chunks(24).enumerate().map(|(i, part)| (format!("user{i}"), part)).collect();
    let (mut config, mut requests) = ("[users]\nstore = \"memory\"\n".to_owned(), String::new());
    for (name, part) in &users {
        let row = |d: &&AttributeDefinition| {
            let tag = if d.tagged { ":3" } else { "" };
            format!("\"{}{tag} = {}\"", d.name, sample_value(d).0)
        };
        let rows: Vec<String> = part.iter().map(row).collect();
        writeln!(
            config,
            "[[user]]\nname = \"{name}\"\npassword = \"password\"\nreply = [{}]",
            rows.join(", ")
        )
        .unwrap();
        writeln!(requests, "User-Name = {name}\nUser-Password = password\n").unwrap();
    }
    let place = TempDir::new();
    let server = AaaServer::start(&place, &config);
    let to = format!("127.0.0.1:{}", server.port);
    let (right, said) = run_program(
        &place.path(""),
        "radclient",
        &["-x", "-r", "12", "-t", "5", &to, "auth", SECRET],
        &requests,
    );
    assert!(right, "{said}");
    assert_eq!(said.matches("Received Access-Accept").count(), users.len(), "{said}");
    let mut wrong = Vec::new();
    for d in &all {
        let tag = if d.tagged { ":3" } else { "" };
        let name = format!("{}{tag} = ", d.name);
        let seen: Vec<&str> = said.lines().filter_map(|l| l.trim().strip_prefix(&name)).collect();
        let right = match sample_value(d).1 {
            Some(value) => seen == [value.as_str()],
            None => seen.len() == 1,
        };
        if !right {
            wrong.push(format!("{name}{}: {seen:?}", sample_value(d).0));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    let hidden = all.iter().filter(|d| d.encryption != AttributeEncryption::None).count();
    let tagged = all.iter().filter(|d| d.tagged).count();
    assert!(hidden > 20 && tagged > 30, "{hidden} {tagged}");
}
