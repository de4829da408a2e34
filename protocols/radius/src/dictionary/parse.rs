//! FreeRADIUS dictionary syntax.

use super::{Definition, Dictionary, Encryption, Oid, VendorDefinition};
use crate::attribute::DataType;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Files nested by `$INCLUDE` at most.
const MAX_INCLUDES: usize = 16;

/// What is wrong, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct DictionaryError {
    /// The file, as `$INCLUDE` or the caller names it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// Gives the text of a file that `$INCLUDE` names; `None` where there is none.
pub type Resolver<'r> = dyn FnMut(&str) -> Option<String> + 'r;

/// What the lines of a file stand in.
struct Scope {
    vendor: Option<(u32, Option<Oid>)>,
    tlvs: Vec<Oid>,
}

impl Dictionary {
    /// Adds the definitions of a text in dictionary syntax; later ones replace earlier ones of the same
    /// name or number. `file` names the text in errors.
    ///
    /// # Errors
    /// The first line that cannot be understood; lines before it are in.
    pub fn load(
        &mut self,
        file: &str,
        text: &str,
        resolver: &mut Resolver<'_>,
    ) -> Result<(), DictionaryError> {
        self.load_nested(file, text, resolver, 0)
    }

    fn load_nested(
        &mut self,
        file: &str,
        text: &str,
        resolver: &mut Resolver<'_>,
        depth: usize,
    ) -> Result<(), DictionaryError> {
        let mut scope = Scope { vendor: None, tlvs: Vec::new() };
        let mut last = 0;
        for (i, line) in text.lines().enumerate() {
            last = i + 1;
            let error = |what| DictionaryError { file: file.to_owned(), line: i + 1, what };
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some((&keyword, rest)) = words.split_first() else { continue };
            if keyword == "$INCLUDE" || keyword == "$INCLUDE-" {
                let &[name] = rest else { return Err(error("$INCLUDE wants one file".into())) };
                if depth == MAX_INCLUDES {
                    return Err(error(format!("more than {MAX_INCLUDES} files include each other")));
                }
                match resolver(name) {
                    Some(text) => self.load_nested(name, &text, resolver, depth + 1)?,
                    None if keyword == "$INCLUDE-" => {}
                    None => return Err(error(format!("no file `{name}`"))),
                }
                continue;
            }
            self.line(&mut scope, keyword, rest).map_err(error)?;
        }
        let open = if scope.tlvs.is_empty() { "BEGIN-VENDOR" } else { "BEGIN-TLV" };
        if scope.vendor.is_some() || !scope.tlvs.is_empty() {
            let what = format!("the file ends within {open}");
            return Err(DictionaryError { file: file.to_owned(), line: last, what });
        }
        Ok(())
    }

    fn line(&mut self, scope: &mut Scope, keyword: &str, rest: &[&str]) -> Result<(), String> {
        match (keyword, rest) {
            ("ATTRIBUTE", &[name, number, kind]) => self.attribute(scope, name, number, kind, ""),
            ("ATTRIBUTE", &[name, number, kind, flags]) => self.attribute(scope, name, number, kind, flags),
            ("VALUE", &[attribute, name, number]) => {
                let n = parse_number(number).ok_or_else(|| format!("`{number}` is not a number"))?;
                if self.define_value(attribute, name, n) {
                    Ok(())
                } else {
                    Err(format!("no attribute `{attribute}`"))
                }
            }
            ("VENDOR", &[name, number]) => self.vendor_line(name, number, "format=1,1"),
            ("VENDOR", &[name, number, format]) => self.vendor_line(name, number, format),
            ("BEGIN-VENDOR", &[name, ref parent @ ..]) if parent.len() <= 1 => {
                if scope.vendor.is_some() {
                    return Err("BEGIN-VENDOR within BEGIN-VENDOR".into());
                }
                let vendor = self.vendor_by_name(name).ok_or_else(|| format!("no vendor `{name}`"))?.number;
                let parent = match parent {
                    [p] => {
                        let p = p.strip_prefix("parent=").or(p.strip_prefix("format="));
                        let p = p.ok_or("expected parent=Attribute")?;
                        Some(self.by_name(p).ok_or_else(|| format!("no attribute `{p}`"))?.oid)
                    }
                    _ => None,
                };
                scope.vendor = Some((vendor, parent));
                Ok(())
            }
            ("END-VENDOR", &[name]) => match scope.vendor {
                Some((v, _)) if self.vendor_by_name(name).is_some_and(|d| d.number == v) => {
                    scope.vendor = None;
                    Ok(())
                }
                _ => Err(format!("END-VENDOR {name} without its BEGIN-VENDOR")),
            },
            ("BEGIN-TLV", &[name]) => {
                let oid = self.by_name(name).ok_or_else(|| format!("no attribute `{name}`"))?.oid;
                scope.tlvs.push(oid);
                Ok(())
            }
            ("END-TLV", &[name]) => {
                let oid = self.by_name(name).map(|d| d.oid);
                if oid.is_some() && scope.tlvs.last().copied() == oid {
                    scope.tlvs.pop();
                    Ok(())
                } else {
                    Err(format!("END-TLV {name} without its BEGIN-TLV"))
                }
            }
            (
                "ATTRIBUTE" | "VALUE" | "VENDOR" | "BEGIN-VENDOR" | "END-VENDOR" | "BEGIN-TLV" | "END-TLV",
                _,
            ) => Err(format!("{keyword} with {} words", rest.len())),
            _ => Err(format!("unknown keyword `{keyword}`")),
        }
    }

    fn attribute(
        &mut self,
        scope: &Scope,
        name: &str,
        number: &str,
        kind: &str,
        flags: &str,
    ) -> Result<(), String> {
        let mut parts = match (scope.tlvs.last(), scope.vendor) {
            (Some(tlv), _) => tlv.parts().to_vec(),
            (None, Some((vendor, None))) => alloc::vec![26, vendor],
            (None, Some((vendor, Some(parent)))) => {
                let mut parts = parent.parts().to_vec();
                parts.push(vendor);
                parts
            }
            (None, None) => Vec::new(),
        };
        let outermost = parts.is_empty();
        for part in number.split('.') {
            let n = parse_number(part).and_then(|n| u32::try_from(n).ok());
            parts.push(n.ok_or_else(|| format!("`{number}` is not an attribute number"))?);
        }
        if outermost && !(1..=255).contains(&parts[0]) {
            return Err(format!("attribute number {} is not within 1 to 255", parts[0]));
        }
        let oid = Oid::new(&parts).ok_or_else(|| format!("`{number}` is nested too deep"))?;
        let (type_name, fixed) = match kind.split_once('[') {
            Some((base, size)) => {
                let size = size.strip_suffix(']').and_then(|s| s.parse().ok());
                (base, Some(size.ok_or_else(|| format!("`{kind}` has no proper length"))?))
            }
            None => (kind, None),
        };
        let mut definition = Definition {
            name: name.to_owned(),
            oid,
            data_type: DataType::from_name(type_name).unwrap_or(DataType::String),
            encryption: Encryption::None,
            tagged: false,
            concat: type_name == "concat",
            array: false,
            fixed,
        };
        if DataType::from_name(type_name).is_none() && !is_small_type(type_name) {
            return Err(format!("unknown type `{type_name}`"));
        }
        for flag in flags.split(',').filter(|f| !f.is_empty()) {
            match flag {
                "has_tag" => definition.tagged = true,
                "concat" => definition.concat = true,
                "array" => definition.array = true,
                "encrypt=1" => definition.encryption = Encryption::UserPassword,
                "encrypt=2" => definition.encryption = Encryption::Salted,
                "encrypt=3" => definition.encryption = Encryption::Ascend,
                "extended" => definition.data_type = DataType::Extended,
                "long-extended" | "long" => definition.data_type = DataType::LongExtended,
                "evs" => definition.data_type = DataType::Evs,
                "virtual" | "internal" | "secret" => {}
                _ => return Err(format!("unknown flag `{flag}`")),
            }
        }
        self.define(definition);
        Ok(())
    }

    fn vendor_line(&mut self, name: &str, number: &str, format: &str) -> Result<(), String> {
        let n = parse_number(number).and_then(|n| u32::try_from(n).ok());
        let number = n.ok_or_else(|| format!("`{number}` is not a vendor number"))?;
        let wrong = || format!("`{format}`: expected format=1|2|4,0|1|2 or format=1,1,c");
        let fields: Vec<&str> = format.strip_prefix("format=").ok_or_else(wrong)?.split(',').collect();
        let (kind, length, continuation) = match fields[..] {
            [kind, length] => (kind, length, false),
            ["1", "1", "c"] => ("1", "1", true),
            _ => return Err(wrong()),
        };
        let octets = |s: &str| s.parse::<u8>().map_err(|_| wrong());
        let (type_octets, length_octets) = (octets(kind)?, octets(length)?);
        if !matches!(type_octets, 1 | 2 | 4) || length_octets > 2 {
            return Err(wrong());
        }
        let name = name.to_owned();
        self.define_vendor(VendorDefinition { name, number, type_octets, length_octets, continuation });
        Ok(())
    }
}

/// Types of FreeRADIUS beyond RFC 8044, which are shown as octets.
fn is_small_type(name: &str) -> bool {
    matches!(name, "byte" | "short" | "signed" | "bool" | "ether" | "combo-ip" | "struct")
}

fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
