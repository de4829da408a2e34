//! The built-in table of vendor attributes, in a short format of its own that parses fast:
//!
//! ```text
//! vendor 9 Cisco
//! 1 Cisco-AVPair string
//! 195 Cisco-Disconnect-Cause integer
//! =2 Unknown
//! vendor 429 USR 4,0
//! ```
//!
//! A `vendor` line has the number, the name, and the format if it differs from RFC 2865 §5.26. An attribute line has
//! the number below the vendor, the name, FreeRADIUS's name of the type, and flags. A value line (`=`) belongs to the
//! attribute above it. Lines before the first vendor are standard attributes. If a number has several names, the last
//! is printed.
//!
//! `cargo run -p usher-radius --example vendor_table` creates the table from FreeRADIUS's dictionaries.

use super::parse::parse_framing;
use super::{AttributeDefinition, AttributeEncryption, AttributeOid, RadiusDictionary, VendorDefinition};
use crate::attribute::{AttributeDataType, VendorAttributeFormat};
use alloc::borrow::Cow;

/// Returns the lines of a table with their offsets.
fn lines_with_offsets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |at, line| {
        let begin = *at;
        *at += line.len();
        Some((begin, line.trim_end()))
    })
}

/// Returns the values in a part of a table: `=NUMBER NAME` each.
pub(super) fn parse_values(part: &str) -> impl Iterator<Item = (u64, &str)> {
    part.lines().filter_map(|line| {
        let (number, name) = line.strip_prefix('=')?.split_once(' ')?;
        Some((number.parse().ok()?, name))
    })
}

impl RadiusDictionary {
    /// Adds the definitions of a table. Known numbers keep their names. `None` if a line is invalid.
    pub(super) fn load_dictionary_table(&mut self, text: &'static str) -> Option<()> {
        let known = self.attributes.len();
        let mut vendor = None;
        // The attribute to which the next values belong, and the offset at which these begin.
        let mut open: Option<(u32, usize)> = None;
        for (begin, line) in lines_with_offsets(text) {
            if line.starts_with('=') {
                continue;
            }
            self.store_open_values(text, open.take(), begin);
            let mut words = line.split(' ');
            let first = words.next()?;
            if first == "vendor" {
                let (number, name) = (words.next()?.parse().ok()?, words.next()?);
                let framing = words.next().map_or(Some(VendorAttributeFormat::SUGGESTED), parse_framing)?;
                self.define_vendor(VendorDefinition { name: Cow::Borrowed(name), number, framing });
                vendor = Some(number);
                continue;
            }
            let outer = vendor.map_or(Some(AttributeOid::ROOT), |vendor| AttributeOid::new(&[26, vendor]))?;
            let oid = first.split('.').try_fold(outer, |oid, n| oid.child(n.parse().ok()?))?;
            let (name, kind) = (words.next()?, words.next()?);
            let mut definition =
                AttributeDefinition::new(Cow::Borrowed(name), oid, AttributeDataType::from_name(kind)?);
            for flag in words {
                match flag {
                    "tag" => definition.tagged = true,
                    "concat" => definition.concat = true,
                    "array" => definition.array = true,
                    "password" => definition.encryption = AttributeEncryption::UserPassword,
                    "salted" => definition.encryption = AttributeEncryption::Salted,
                    "ascend" => definition.encryption = AttributeEncryption::Ascend,
                    octets => definition.fixed = Some(octets.parse().ok()?),
                }
            }
            let standard = self.by_oid.get(&oid).is_some_and(|index| (*index as usize) < known);
            if !standard && !self.by_name.contains_key(&name.to_ascii_lowercase()) {
                let index = self.define_attribute(definition);
                open = Some((index, begin + line.len() + 1));
            }
        }
        self.store_open_values(text, open, text.len());
        Some(())
    }

    fn store_open_values(&mut self, text: &'static str, open: Option<(u32, usize)>, end: usize) {
        if let Some((index, begin)) = open
            && let Some(part) = text.get(begin..end).filter(|part| !part.is_empty())
        {
            self.shipped.insert(index, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::VENDORS;
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn the_table_is_understood_and_repeats_nothing() {
        let before = RadiusDictionary::standard();
        let all = RadiusDictionary::builtin();
        let entries = VENDORS.lines().filter(|l| !l.starts_with('=') && !l.starts_with("vendor "));
        assert_eq!(all.attributes().len(), before.attributes().len() + entries.count());
        assert!(all.attributes().len() > 6000, "{}", all.attributes().len());
        let names: BTreeSet<_> = all.attributes().iter().map(|d| d.name.to_ascii_lowercase()).collect();
        assert_eq!(names.len(), all.attributes().len());
        for line in VENDORS.lines().filter(|l| l.starts_with('=')) {
            assert_eq!(parse_values(line).count(), 1, "{line}");
        }
        // The table repeats nothing of the standards.
        for d in before.attributes() {
            assert_eq!(all.by_oid(d.oid), Some(d));
        }
    }

    #[test]
    fn the_table_says_what_vendors_say() {
        let all = RadiusDictionary::builtin();
        let is = |name: &str| {
            let d = all.by_name(name).unwrap_or_else(|| panic!("{name}"));
            (alloc::format!("{}", d.oid), d.data_type, d.tagged, d.encryption)
        };
        let plain = |oid: &str, data_type| (oid.into(), data_type, false, AttributeEncryption::None);
        assert_eq!(is("cisco-avpair"), plain("26.9.1", AttributeDataType::Text));
        assert_eq!(is("Aruba-User-Vlan"), plain("26.14823.2", AttributeDataType::Integer));
        assert_eq!(is("Mikrotik-Rate-Limit"), plain("26.14988.8", AttributeDataType::Text));
        assert!(is("ERX-Service-Activate").2);
        assert_eq!(is("Aruba-MPSK-Passphrase").3, AttributeEncryption::Salted);
        assert_eq!(is("Ascend-Send-Secret").3, AttributeEncryption::Ascend);
        let usr = all.vendor_by_name("usr").unwrap();
        assert_eq!((usr.framing.type_octets, usr.framing.length_octets), (4, 0));
        let cause = all.by_name("Cisco-Disconnect-Cause").unwrap().oid;
        let number = all.value_number(cause, "unknown").unwrap();
        assert_eq!(all.value_name(cause, number), Some("Unknown"));
        assert_eq!(all.value_name(cause, 1_000_000), None);
    }
}
