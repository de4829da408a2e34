//! The parser of FreeRADIUS's dictionary syntax.

use super::{AttributeDefinition, AttributeEncryption, AttributeOid, RadiusDictionary, VendorDefinition};
use crate::attribute::{AttributeDataType, VendorAttributeFormat};
use alloc::borrow::{Cow, ToOwned};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The maximum nesting of `$INCLUDE`.
const MAX_DEPTH: usize = 16;
/// The maximum number of files per load; FreeRADIUS's own dictionaries are 240.
const MAX_FILES: usize = 1024;
/// The maximum number of octets per load; FreeRADIUS's own dictionaries have a million.
const MAX_OCTETS: usize = 16 << 20;

/// An error and its position.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}:{line}: {description}")]
pub struct DictionaryError {
    /// The file, as `$INCLUDE` or the caller names it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The error.
    pub description: String,
}

/// A file that `$INCLUDE` names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IncludedFile {
    /// The name for errors. A file has the same name however it was included.
    pub file: String,
    /// The contents.
    pub text: String,
}

/// Returns the file that `$INCLUDE` names (second argument) in another file (first argument, as [`IncludedFile::file`]
/// or the caller names it); `None` if there is none.
pub type IncludeResolver<'r> = dyn FnMut(&str, &str) -> Option<IncludedFile> + 'r;

/// The context of a line.
struct DictionaryScope {
    vendor: Option<(u32, Option<AttributeOid>)>,
    tlvs: Vec<AttributeOid>,
}

/// The state that all files of a load share.
struct DictionaryLoader<'r, 'f> {
    resolver: &'r mut IncludeResolver<'f>,
    /// The open files, the outermost first.
    open: Vec<String>,
    files: usize,
    octets: usize,
    /// Values that precede the definition of their attribute.
    unresolved_values: Vec<(DictionaryError, String, String, u64)>,
}

impl RadiusDictionary {
    /// Adds the definitions of a text in dictionary syntax. Later ones replace earlier ones of the same name or number.
    /// `file` names the text in errors.
    ///
    /// # Errors
    /// The first invalid line; the lines before it are loaded. A VALUE may precede its ATTRIBUTE. If the attribute is
    /// still missing at the end, the line of the VALUE is the error, and everything else is loaded.
    pub fn load_dictionary_text(
        &mut self,
        file: &str,
        text: &str,
        resolver: &mut IncludeResolver<'_>,
    ) -> Result<(), DictionaryError> {
        let mut load = DictionaryLoader {
            resolver,
            open: Vec::new(),
            files: 0,
            octets: 0,
            unresolved_values: Vec::new(),
        };
        self.load_file(&mut load, file, text).map_err(|(line, what)| DictionaryError {
            file: load.open.last().map_or(file, String::as_str).to_owned(),
            line,
            description: what,
        })?;
        for (error, attribute, name, number) in load.unresolved_values {
            if !self.define_value(&attribute, &name, number) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Reads a file. After an error it is the last of the open files.
    fn load_file(
        &mut self,
        load: &mut DictionaryLoader<'_, '_>,
        file: &str,
        text: &str,
    ) -> Result<(), (usize, String)> {
        load.open.push(file.to_owned());
        load.files += 1;
        load.octets += text.len();
        let mut scope = DictionaryScope { vendor: None, tlvs: Vec::new() };
        let mut last = 0;
        for (i, line) in text.lines().enumerate() {
            last = i + 1;
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some((&keyword, rest)) = words.split_first() else { continue };
            let done = match keyword {
                "$INCLUDE" | "$INCLUDE-" => {
                    let included = match *rest {
                        [name] => resolve_include(load, file, name).map_err(|what| (last, what))?,
                        _ => return Err((last, "$INCLUDE needs one file name".into())),
                    };
                    match included {
                        Some(included) => self.load_file(load, &included.file, &included.text)?,
                        None if keyword == "$INCLUDE-" => {}
                        None => return Err((last, format!("no file `{}`", rest[0]))),
                    }
                    Ok(())
                }
                "VALUE" => self.parse_value(rest).map(|early| {
                    let error =
                        |what| DictionaryError { file: file.to_owned(), line: last, description: what };
                    load.unresolved_values.extend(early.map(|(attribute, name, number)| {
                        (error(format!("no attribute `{attribute}`")), attribute, name, number)
                    }));
                }),
                _ => self.parse_line(&mut scope, keyword, rest),
            };
            done.map_err(|what| (last, what))?;
        }
        let open = if scope.tlvs.is_empty() { "BEGIN-VENDOR" } else { "BEGIN-TLV" };
        if scope.vendor.is_some() || !scope.tlvs.is_empty() {
            return Err((last, format!("the file ends within {open}")));
        }
        load.open.pop();
        Ok(())
    }

    /// Parses a named value. Returns it if its attribute is unknown so far.
    fn parse_value(&mut self, rest: &[&str]) -> Result<Option<(String, String, u64)>, String> {
        let &[attribute, name, number] = rest else {
            return Err(format!("VALUE needs 3 words, not {}", rest.len()));
        };
        let number = parse_number(number).ok_or_else(|| format!("`{number}` is not a number"))?;
        let known = self.define_value(attribute, name, number);
        Ok((!known).then(|| (attribute.to_owned(), name.to_owned(), number)))
    }

    fn parse_line(
        &mut self,
        scope: &mut DictionaryScope,
        keyword: &str,
        rest: &[&str],
    ) -> Result<(), String> {
        match (keyword, rest) {
            ("ATTRIBUTE", &[name, number, kind]) => {
                self.parse_attribute_definition(scope, name, number, kind, "")
            }
            ("ATTRIBUTE", &[name, number, kind, flags]) => {
                self.parse_attribute_definition(scope, name, number, kind, flags)
            }
            ("VENDOR", &[name, number]) => self.parse_vendor_definition(name, number, "format=1,1"),
            ("VENDOR", &[name, number, format]) => self.parse_vendor_definition(name, number, format),
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
            ("ATTRIBUTE" | "VENDOR" | "BEGIN-VENDOR" | "END-VENDOR" | "BEGIN-TLV" | "END-TLV", _) => {
                Err(format!("{keyword} has a wrong number of words: {}", rest.len()))
            }
            _ => Err(format!("unknown keyword `{keyword}`")),
        }
    }

    fn parse_attribute_definition(
        &mut self,
        scope: &DictionaryScope,
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
        // FreeRADIUS's older syntax: the name of the vendor in place of the flags.
        let named = if parts.is_empty() { self.vendor_by_name(flags) } else { None };
        if let Some(vendor) = named {
            parts.extend([26, vendor.number]);
        }
        let flags = if named.is_some() { "" } else { flags };
        for part in number.split('.') {
            let n = parse_number(part).and_then(|n| u32::try_from(n).ok());
            parts.push(n.ok_or_else(|| format!("`{number}` is not an attribute number"))?);
        }
        if parts[0] == 0 {
            return Err("attribute numbers begin with 1".into());
        }
        let oid = AttributeOid::new(&parts).ok_or_else(|| format!("`{number}` is nested too deep"))?;
        let kind = kind.to_ascii_lowercase();
        let (type_name, fixed) = match kind.split_once('[') {
            Some((base, size)) => {
                let size = size.strip_suffix(']').and_then(|s| s.parse().ok());
                (base, Some(size.ok_or_else(|| format!("`{kind}` has no valid length"))?))
            }
            None => (kind.as_str(), None),
        };
        let data_type = match AttributeDataType::from_name(type_name) {
            Some(data_type) => data_type,
            None if is_octets_type(type_name) => AttributeDataType::String,
            None => return Err(format!("unknown type `{type_name}`")),
        };
        let mut definition = AttributeDefinition::new(Cow::Owned(name.to_owned()), oid, data_type);
        definition.concat = type_name == "concat";
        definition.fixed = fixed;
        for flag in flags.split(',').filter(|f| !f.is_empty()) {
            match flag {
                "has_tag" => definition.tagged = true,
                "concat" => definition.concat = true,
                "array" => definition.array = true,
                "encrypt=1" => definition.encryption = AttributeEncryption::UserPassword,
                "encrypt=2" => definition.encryption = AttributeEncryption::Salted,
                "encrypt=3" => definition.encryption = AttributeEncryption::Ascend,
                "extended" => definition.data_type = AttributeDataType::Extended,
                "long-extended" | "long" => definition.data_type = AttributeDataType::LongExtended,
                "evs" => definition.data_type = AttributeDataType::Evs,
                "virtual" | "internal" | "secret" => {}
                _ => return Err(format!("unknown flag `{flag}`")),
            }
        }
        self.define_attribute(definition);
        Ok(())
    }

    fn parse_vendor_definition(&mut self, name: &str, number: &str, format: &str) -> Result<(), String> {
        let n = parse_number(number).and_then(|n| u32::try_from(n).ok());
        let number = n.ok_or_else(|| format!("`{number}` is not a vendor number"))?;
        let framing = format.strip_prefix("format=").and_then(parse_framing);
        let framing =
            framing.ok_or_else(|| format!("`{format}`: expected format=1|2|4,0|1|2 or format=1,1,c"))?;
        self.define_vendor(VendorDefinition { name: Cow::Owned(name.to_owned()), number, framing });
        Ok(())
    }
}

/// Reads `1|2|4,0|1|2` or `1,1,c`.
pub(super) fn parse_framing(text: &str) -> Option<VendorAttributeFormat> {
    let fields: Vec<&str> = text.split(',').collect();
    let (kind, length, continuation) = match fields[..] {
        [kind, length] => (kind, length, false),
        ["1", "1", "c"] => ("1", "1", true),
        _ => return None,
    };
    let (type_octets, length_octets) = (kind.parse().ok()?, length.parse().ok()?);
    (matches!(type_octets, 1 | 2 | 4) && length_octets <= 2).then_some(VendorAttributeFormat {
        type_octets,
        length_octets,
        continuation,
    })
}

/// Returns the file that a line includes.
fn resolve_include(
    load: &mut DictionaryLoader<'_, '_>,
    from: &str,
    name: &str,
) -> Result<Option<IncludedFile>, String> {
    if load.open.len() == MAX_DEPTH {
        return Err(format!("more than {MAX_DEPTH} files include each other"));
    }
    let Some(found) = (load.resolver)(from, name) else { return Ok(None) };
    if load.open.contains(&found.file) {
        return Err(format!("`{}` includes itself", found.file));
    }
    if load.files == MAX_FILES || load.octets.saturating_add(found.text.len()) > MAX_OCTETS {
        return Err(format!(
            "more than {MAX_FILES} files or {} MiB are included; name fewer",
            MAX_OCTETS >> 20
        ));
    }
    Ok(Some(found))
}

/// True for types of later FreeRADIUS versions, which are octets here.
fn is_octets_type(name: &str) -> bool {
    matches!(name, "bool" | "struct")
}

fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
