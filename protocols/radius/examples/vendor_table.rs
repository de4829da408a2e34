//! Creates the built-in table of vendor attributes (`src/dictionary/vendors.table`) from FreeRADIUS's dictionaries. It
//! takes only names, numbers, types and named values.
//!
//! `cargo run -p usher-radius --example vendor_table /usr/share/freeradius/dictionary > vendors.table`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use usher_radius::attribute::VendorAttributeFormat;
use usher_radius::dictionary::{
    AttributeDefinition, AttributeEncryption, AttributeOid, IncludedFile, RadiusDictionary,
};

/// Files to omit: FreeRADIUS's internal ones, and files that misuse standard numbers.
const LEFT_OUT: [&str; 5] = [
    "dictionary.compat",
    "dictionary.usr.illegal",
    "dictionary.ascend.illegal",
    "dictionary.freeradius.internal",
    "dictionary.freeradius.evs5",
];

/// An attribute whose two thousand values are multiples of a rate, as their names show.
const WITHOUT_VALUES: &str = "KarlNet-TurboCell-TxRate";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args().nth(1).ok_or("name FreeRADIUS's file `dictionary`")?;
    let read = |path: &Path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let mut theirs = RadiusDictionary::default();
    theirs.load_dictionary_text(&root, &read(Path::new(&root))?, &mut |from: &str, name: &str| {
        let path = Path::new(from).with_file_name(name);
        let text = if LEFT_OUT.contains(&name) { String::new() } else { read(&path).ok()? };
        Some(IncludedFile { file: path.display().to_string(), text })
    })?;
    print!("{}", render_table(&theirs, &RadiusDictionary::standard()));
    Ok(())
}

/// Renders the definitions that the standards lack, in order of number.
fn render_table(theirs: &RadiusDictionary, standard: &RadiusDictionary) -> String {
    let mut all: BTreeMap<AttributeOid, Vec<&AttributeDefinition>> = BTreeMap::new();
    for d in theirs.attributes().iter().filter(|d| theirs.attribute_number(d.oid).is_some()) {
        if standard.by_oid(d.oid).is_none() && standard.by_name(&d.name).is_none() {
            all.entry(d.oid).or_default().push(d);
        }
    }
    let (mut out, mut vendor) = (String::new(), None);
    let is_of_vendor = |oid: &AttributeOid| matches!(oid.parts(), [26, _, ..]);
    let (of_vendors, plain): (Vec<_>, Vec<_>) = all.into_iter().partition(|(oid, _)| is_of_vendor(oid));
    for (oid, mut names) in plain.into_iter().chain(of_vendors) {
        let mut number = oid.to_string();
        if let [26, of, ..] = *oid.parts() {
            number = number.splitn(3, '.').last().unwrap_or_default().to_owned();
            if vendor != Some(of) {
                vendor = Some(of);
                append_vendor_lines(theirs, of, &mut out);
            }
        }
        // The printed name comes last.
        names.sort_by_key(|d| theirs.by_oid(oid) == Some(*d));
        for d in &names {
            let _ = writeln!(out, "{number} {} {}{}", d.name, d.data_type.name(), render_flags(d));
        }
        let mut values: Vec<_> = theirs.named_values(oid).collect();
        values.sort_by_key(|(number, _)| *number);
        for (number, name) in values.iter().filter(|_| names.iter().all(|d| d.name != WITHOUT_VALUES)) {
            let _ = writeln!(out, "={number} {name}");
        }
    }
    out
}

fn append_vendor_lines(theirs: &RadiusDictionary, number: u32, out: &mut String) {
    let last = theirs.vendor_by_number(number);
    let mut names: Vec<_> = theirs.vendors().iter().filter(|v| v.number == number).collect();
    names.sort_by_key(|v| Some(*v) == last);
    names.dedup();
    for v in names {
        let VendorAttributeFormat { type_octets, length_octets, continuation } = v.framing;
        let format = match v.framing == VendorAttributeFormat::SUGGESTED {
            true => String::new(),
            false => format!(" {type_octets},{length_octets}{}", if continuation { ",c" } else { "" }),
        };
        let _ = writeln!(out, "vendor {number} {}{format}", v.name);
    }
}

fn render_flags(d: &AttributeDefinition) -> String {
    let hidden = match d.encryption {
        AttributeEncryption::None => "",
        AttributeEncryption::UserPassword => " password",
        AttributeEncryption::Salted => " salted",
        AttributeEncryption::Ascend => " ascend",
    };
    let fixed = d.fixed.map(|n| format!(" {n}")).unwrap_or_default();
    let word = |set: bool, word: &'static str| if set { word } else { "" };
    [word(d.tagged, " tag"), word(d.concat, " concat"), word(d.array, " array"), hidden, &fixed].concat()
}
