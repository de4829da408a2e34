//! Names and types of attributes, read from FreeRADIUS's dictionary syntax, and attributes printed by them.

mod decode;
mod parse;
mod table;

pub use decode::{AttributeDecoder, DecodedAttribute};
pub use parse::{DictionaryError, IncludeResolver, IncludedFile};

use crate::attribute::{AttributeDataType, VendorAttributeFormat};
use alloc::borrow::{Cow, ToOwned};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use usher_core::collections::{HashMap, SeededHashState};

/// The maximum number of parts in an attribute number.
pub const MAX_DEPTH: usize = 10;

/// An attribute number as RFC 6929 §2.7 writes it: `1`, `26.311.16`, `241.1`, `245.26.11344.1.2`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeOid {
    parts: [u32; MAX_DEPTH],
    len: u8,
}

impl AttributeOid {
    /// The number of a standard attribute.
    #[must_use]
    pub fn from_standard_attribute(kind: u8) -> Self {
        Self { parts: [0; MAX_DEPTH], len: 0 }.child(kind.into()).unwrap_or(Self::ROOT)
    }
    const ROOT: Self = Self { parts: [0; MAX_DEPTH], len: 0 };
    /// A number of these parts; `None` for more than [`MAX_DEPTH`].
    #[must_use]
    pub fn new(parts: &[u32]) -> Option<Self> {
        parts.iter().try_fold(Self::ROOT, |oid, &n| oid.child(n))
    }
    /// Returns the number with one more part; `None` beyond [`MAX_DEPTH`].
    #[must_use]
    pub fn child(mut self, number: u32) -> Option<Self> {
        *self.parts.get_mut(usize::from(self.len))? = number;
        self.len += 1;
        Some(self)
    }
    /// The parts.
    #[must_use]
    pub fn parts(&self) -> &[u32] {
        &self.parts[..usize::from(self.len)]
    }
}

impl fmt::Display for AttributeOid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, n) in self.parts().iter().enumerate() {
            write!(f, "{}{n}", if i == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}
impl fmt::Debug for AttributeOid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An attribute number with the format of its vendor, which together give its place on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttributeNumber {
    /// The number.
    pub oid: AttributeOid,
    /// Inside Vendor-Specific, the header format of the vendor; elsewhere without meaning.
    pub framing: VendorAttributeFormat,
}

impl From<AttributeOid> for AttributeNumber {
    /// Uses the headers that RFC 2865 §5.26 suggests.
    fn from(oid: AttributeOid) -> Self {
        Self { oid, framing: VendorAttributeFormat::SUGGESTED }
    }
}

/// The way a value is hidden.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AttributeEncryption {
    /// Not hidden.
    #[default]
    None,
    /// Like User-Password (`encrypt=1`).
    UserPassword,
    /// Salted, like Tunnel-Password (`encrypt=2`).
    Salted,
    /// Ascend's variant (`encrypt=3`): one block of 16 octets.
    Ascend,
}

/// The definition of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttributeDefinition {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its number.
    pub oid: AttributeOid,
    /// Its type.
    pub data_type: AttributeDataType,
    /// The way it is hidden.
    pub encryption: AttributeEncryption,
    /// True if a tag may precede the value (RFC 2868).
    pub tagged: bool,
    /// True if a long value is split over several attributes (RFC 8044 §3.6).
    pub concat: bool,
    /// True if one attribute may hold several values.
    pub array: bool,
    /// The fixed length in octets: `octets[16]`.
    pub fixed: Option<u16>,
}

impl AttributeDefinition {
    /// The definition of an unknown attribute: octets, with the name that FreeRADIUS gives it (`Attr-26.9.1`).
    #[must_use]
    pub fn unknown_attribute_definition(oid: AttributeOid) -> Self {
        Self::new(Cow::Owned(alloc::format!("Attr-{oid}")), oid, AttributeDataType::String)
    }
    /// A definition without flags.
    fn new(name: Cow<'static, str>, oid: AttributeOid, data_type: AttributeDataType) -> Self {
        let encryption = AttributeEncryption::None;
        Self { name, oid, data_type, encryption, tagged: false, concat: false, array: false, fixed: None }
    }
}

/// The definition of a vendor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VendorDefinition {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its private enterprise number.
    pub number: u32,
    /// The format of its attributes inside Vendor-Specific (`format=type,length`).
    pub framing: VendorAttributeFormat,
}

/// A dictionary of names, numbers and types. [`RadiusDictionary::builtin`] returns the built-in one.
#[derive(Clone, Debug)]
pub struct RadiusDictionary {
    attributes: Vec<AttributeDefinition>,
    by_oid: HashMap<AttributeOid, u32>,
    by_name: HashMap<String, u32>,
    vendors: Vec<VendorDefinition>,
    vendor_by_number: HashMap<u32, u32>,
    vendor_by_name: HashMap<String, u32>,
    /// Named values by attribute, in order of definition.
    values: HashMap<u32, Vec<(u64, String)>>,
    /// Values of the built-in table, not parsed yet: lookups need few of them.
    shipped: HashMap<u32, &'static str>,
}

impl Default for RadiusDictionary {
    fn default() -> Self {
        let state = SeededHashState::with_seed(0);
        Self {
            attributes: Vec::new(),
            by_oid: HashMap::with_hasher(state.clone()),
            by_name: HashMap::with_hasher(state.clone()),
            vendors: Vec::new(),
            vendor_by_number: HashMap::with_hasher(state.clone()),
            vendor_by_name: HashMap::with_hasher(state.clone()),
            values: HashMap::with_hasher(state.clone()),
            shipped: HashMap::with_hasher(state),
        }
    }
}

/// The standard attributes and Microsoft's, in dictionary syntax.
pub const STANDARD: [(&str, &str); 2] = [
    ("dictionary.rfc", include_str!("dictionary/dictionary.rfc")),
    ("dictionary.microsoft", include_str!("dictionary/dictionary.microsoft")),
];

/// The table that [`RadiusDictionary::builtin`] adds: names, numbers and types of the attributes of vendors and of
/// later RFCs in the dictionaries of FreeRADIUS 3.2.
const VENDORS: &str = include_str!("dictionary/vendors.table");

impl RadiusDictionary {
    /// The attributes of the RFCs that this crate implements (2865, 2866, 2868, 2869, 3162, 4072, 4372, 4675, 4818,
    /// 4849, 5176, 5580, 6911, 6929), and Microsoft's (RFC 2548).
    #[must_use]
    pub fn standard() -> Self {
        let mut dictionary = Self::default();
        for (file, text) in STANDARD {
            // A test checks that these files load, so an error is impossible here.
            let loaded = dictionary.load_dictionary_text(file, text, &mut |_: &str, _: &str| None);
            debug_assert!(loaded.is_ok(), "{loaded:?}");
        }
        dictionary
    }
    /// [`Self::standard`] and the vendor attributes of FreeRADIUS: about 6,700 attributes, read in about a millisecond.
    /// A program should create one and share it.
    #[must_use]
    pub fn builtin() -> Self {
        let mut dictionary = Self::standard();
        let whole = dictionary.load_dictionary_table(VENDORS);
        debug_assert!(whole.is_some(), "a test holds that each line is understood");
        dictionary
    }
    /// All attributes in order of definition.
    #[must_use]
    pub fn attributes(&self) -> &[AttributeDefinition] {
        &self.attributes
    }
    /// All vendors in order of definition.
    #[must_use]
    pub fn vendors(&self) -> &[VendorDefinition] {
        &self.vendors
    }
    /// The attribute of a number.
    #[must_use]
    pub fn by_oid(&self, oid: AttributeOid) -> Option<&AttributeDefinition> {
        self.attributes.get(*self.by_oid.get(&oid)? as usize)
    }
    /// The attribute of a name, ignoring case.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&AttributeDefinition> {
        self.attributes.get(*self.by_name.get(&name.to_ascii_lowercase())? as usize)
    }
    /// The vendor of a number.
    #[must_use]
    pub fn vendor_by_number(&self, number: u32) -> Option<&VendorDefinition> {
        self.vendors.get(*self.vendor_by_number.get(&number)? as usize)
    }
    /// The vendor of a name, ignoring case.
    #[must_use]
    pub fn vendor_by_name(&self, name: &str) -> Option<&VendorDefinition> {
        self.vendors.get(*self.vendor_by_name.get(&name.to_ascii_lowercase())? as usize)
    }
    /// The format of a vendor's attributes; the suggestion of RFC 2865 §5.26 for unknown vendors.
    #[must_use]
    pub fn vendor_framing(&self, vendor: u32) -> VendorAttributeFormat {
        self.vendor_by_number(vendor).map_or(VendorAttributeFormat::SUGGESTED, |v| v.framing)
    }
    /// The place of an attribute on the wire; `None` if no packet can hold it, such as FreeRADIUS's internal attributes
    /// above 255.
    #[must_use]
    pub fn attribute_number(&self, oid: AttributeOid) -> Option<AttributeNumber> {
        let framing = match *oid.parts() {
            [26, vendor, ..] => self.vendor_framing(vendor),
            _ => VendorAttributeFormat::SUGGESTED,
        };
        is_encodable_attribute(oid, framing).then_some(AttributeNumber { oid, framing })
    }
    /// The number in FreeRADIUS's name of an unknown attribute, `Attr-26.9.1`, ignoring case.
    #[must_use]
    pub fn parse_unknown_attribute_name(name: &str) -> Option<AttributeOid> {
        let (word, numbers) = name.split_at_checked(5)?;
        if !word.eq_ignore_ascii_case("attr-") {
            return None;
        }
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        numbers
            .split('.')
            .try_fold(AttributeOid::ROOT, |oid, part| oid.child(part.parse().ok().filter(|_| digits(part))?))
    }
    /// The name of an attribute's value.
    #[must_use]
    pub fn value_name(&self, oid: AttributeOid, number: u64) -> Option<&str> {
        let index = *self.by_oid.get(&oid)?;
        self.values_of(index).find(|v| v.0 == number).map(|v| v.1)
    }
    /// The number of a named value of an attribute, ignoring case.
    #[must_use]
    pub fn value_number(&self, oid: AttributeOid, name: &str) -> Option<u64> {
        let index = *self.by_oid.get(&oid)?;
        self.values_of(index).find(|v| v.1.eq_ignore_ascii_case(name)).map(|v| v.0)
    }
    /// The named values of an attribute. If a number has several names, the printed name comes first.
    pub fn named_values(&self, oid: AttributeOid) -> impl Iterator<Item = (u64, &str)> {
        self.by_oid.get(&oid).into_iter().flat_map(|index| self.values_of(*index))
    }
    fn values_of(&self, index: u32) -> impl Iterator<Item = (u64, &str)> {
        let told = self.values.get(&index).into_iter().flatten().rev().map(|(n, name)| (*n, name.as_str()));
        told.chain(table::parse_values(self.shipped.get(&index).copied().unwrap_or_default()))
    }
    /// Decodes attributes into printable items.
    #[must_use]
    pub fn decode<'a>(&self, attributes: &'a [u8]) -> AttributeDecoder<'a, '_> {
        AttributeDecoder::new(self, attributes)
    }

    /// Adds an attribute and keeps the known values of its number. It replaces an attribute of the same name and
    /// number. An attribute of the same number only stays available by its name.
    fn define_attribute(&mut self, definition: AttributeDefinition) -> u32 {
        let name = definition.name.to_ascii_lowercase();
        if let Some(&index) = self.by_name.get(&name)
            && let Some(same) = self.attributes.get_mut(index as usize).filter(|d| d.oid == definition.oid)
        {
            *same = definition;
            return index;
        }
        let index = self.attributes.len() as u32;
        if let Some(before) = self.by_oid.insert(definition.oid, index)
            && let Some(values) = self.shipped.get(&before).copied()
        {
            self.shipped.insert(index, values);
        }
        self.by_name.insert(name, index);
        self.attributes.push(definition);
        index
    }
    fn define_vendor(&mut self, vendor: VendorDefinition) {
        let index = self.vendors.len() as u32;
        self.vendor_by_number.insert(vendor.number, index);
        self.vendor_by_name.insert(vendor.name.to_ascii_lowercase(), index);
        self.vendors.push(vendor);
    }
    fn define_value(&mut self, attribute: &str, name: &str, number: u64) -> bool {
        let Some(definition) = self.by_name(attribute) else { return false };
        let Some(&index) = self.by_oid.get(&definition.oid) else { return false };
        self.values.entry(index).or_default().push((number, name.to_owned()));
        true
    }
}

/// True if a packet can hold an attribute of these numbers, with this format of its vendor.
pub(crate) fn is_encodable_attribute(oid: AttributeOid, framing: VendorAttributeFormat) -> bool {
    let octets = |numbers: &[u32]| numbers.iter().all(|n| (1..=255).contains(n));
    match *oid.parts() {
        [26, 0, ..] | [241..=246, 26, 0, ..] => false,
        [26, _, number, ref rest @ ..] => number > 0 && framing.fits_vendor_type(number) && octets(rest),
        [26, _] => false,
        [241..=246, 26, _, number, ref rest @ ..] => octets(&[number]) && octets(rest),
        [241..=246, 26, ..] | [241..=246] | [] => false,
        ref all => octets(all),
    }
}

#[cfg(test)]
mod tests;
