//! Names and types of attributes, read from FreeRADIUS dictionary syntax, and attributes printed by
//! them.

mod decode;
mod parse;

pub use decode::{Decode, Decoded};
pub use parse::{DictionaryError, Resolver};

use crate::attribute::DataType;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use usher_core::collections::{HashMap, HashState};

/// Most numbers in an attribute's dotted name.
pub const MAX_DEPTH: usize = 10;

/// An attribute's place in the number space, as RFC 6929 §2.7 writes it: `1`, `26.311.16`, `241.1`,
/// `245.26.11344.1.2`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid {
    parts: [u32; MAX_DEPTH],
    len: u8,
}

impl Oid {
    /// A standard attribute.
    #[must_use]
    pub fn standard(kind: u8) -> Self {
        Self { parts: [0; MAX_DEPTH], len: 0 }.child(kind.into()).unwrap_or(Self::ROOT)
    }
    const ROOT: Self = Self { parts: [0; MAX_DEPTH], len: 0 };
    /// From numbers; `None` for more than [`MAX_DEPTH`].
    #[must_use]
    pub fn new(parts: &[u32]) -> Option<Self> {
        parts.iter().try_fold(Self::ROOT, |oid, &n| oid.child(n))
    }
    /// One number deeper; `None` beyond [`MAX_DEPTH`].
    #[must_use]
    pub fn child(mut self, number: u32) -> Option<Self> {
        *self.parts.get_mut(usize::from(self.len))? = number;
        self.len += 1;
        Some(self)
    }
    /// The numbers.
    #[must_use]
    pub fn parts(&self) -> &[u32] {
        &self.parts[..usize::from(self.len)]
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, n) in self.parts().iter().enumerate() {
            write!(f, "{}{n}", if i == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}
impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How a value is hidden.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encryption {
    /// Not at all.
    #[default]
    None,
    /// As User-Password (`encrypt=1`).
    UserPassword,
    /// Salted, as Tunnel-Password (`encrypt=2`).
    Salted,
    /// Ascend's own (`encrypt=3`); its octets are left as they are.
    Ascend,
}

/// One attribute of a dictionary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// Its number.
    pub oid: Oid,
    /// Its type.
    pub data_type: DataType,
    /// How it is hidden.
    pub encryption: Encryption,
    /// A tag may be in front (RFC 2868).
    pub tagged: bool,
    /// A long value is split over several attributes (RFC 8044 §3.6).
    pub concat: bool,
    /// One attribute may hold several values.
    pub array: bool,
    /// Its octets have this length; `octets[16]`.
    pub fixed: Option<u16>,
}

/// How a vendor's attributes stand in Vendor-Specific: `format=type,length`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VendorDefinition {
    /// Its name.
    pub name: String,
    /// Its private enterprise number.
    pub number: u32,
    /// Octets of the type: 1, 2 or 4.
    pub type_octets: u8,
    /// Octets of the length: 0, 1 or 2.
    pub length_octets: u8,
    /// A continuation octet follows (`format=1,1,c`).
    pub continuation: bool,
}

/// Names, numbers and types. The built-in one is [`Dictionary::builtin`].
#[derive(Clone, Debug)]
pub struct Dictionary {
    attributes: Vec<Definition>,
    by_oid: HashMap<Oid, u32>,
    by_name: HashMap<String, u32>,
    vendors: Vec<VendorDefinition>,
    vendor_by_number: HashMap<u32, u32>,
    vendor_by_name: HashMap<String, u32>,
    value_names: HashMap<(u32, u64), String>,
    value_numbers: HashMap<(u32, String), u64>,
}

impl Default for Dictionary {
    fn default() -> Self {
        let state = HashState::with_seed(0);
        Self {
            attributes: Vec::new(),
            by_oid: HashMap::with_hasher(state.clone()),
            by_name: HashMap::with_hasher(state.clone()),
            vendors: Vec::new(),
            vendor_by_number: HashMap::with_hasher(state.clone()),
            vendor_by_name: HashMap::with_hasher(state.clone()),
            value_names: HashMap::with_hasher(state.clone()),
            value_numbers: HashMap::with_hasher(state),
        }
    }
}

/// The standard attributes and Microsoft's, in dictionary syntax.
pub const BUILTIN: [(&str, &str); 2] = [
    ("dictionary.rfc", include_str!("dictionary.rfc")),
    ("dictionary.microsoft", include_str!("dictionary.microsoft")),
];

impl Dictionary {
    /// The attributes of the RFCs that this crate speaks (2865, 2866, 2868, 2869, 3162, 4072, 4372,
    /// 4675, 4818, 4849, 5176, 5580, 6911, 6929) and Microsoft's (RFC 2548).
    #[must_use]
    pub fn builtin() -> Self {
        let mut dictionary = Self::default();
        for (file, text) in BUILTIN {
            // A test holds that they load.
            let loaded = dictionary.load(file, text, &mut |_: &str| None);
            debug_assert!(loaded.is_ok(), "{loaded:?}");
        }
        dictionary
    }
    /// All attributes, in the order in which they were defined.
    #[must_use]
    pub fn attributes(&self) -> &[Definition] {
        &self.attributes
    }
    /// The attribute of a number.
    #[must_use]
    pub fn by_oid(&self, oid: Oid) -> Option<&Definition> {
        self.attributes.get(*self.by_oid.get(&oid)? as usize)
    }
    /// The attribute of a name, capitals or not.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Definition> {
        self.attributes.get(*self.by_name.get(&name.to_ascii_lowercase())? as usize)
    }
    /// The vendor of a number.
    #[must_use]
    pub fn vendor(&self, number: u32) -> Option<&VendorDefinition> {
        self.vendors.get(*self.vendor_by_number.get(&number)? as usize)
    }
    /// The vendor of a name, capitals or not.
    #[must_use]
    pub fn vendor_by_name(&self, name: &str) -> Option<&VendorDefinition> {
        self.vendors.get(*self.vendor_by_name.get(&name.to_ascii_lowercase())? as usize)
    }
    /// The name of an attribute's value.
    #[must_use]
    pub fn value_name(&self, oid: Oid, number: u64) -> Option<&str> {
        self.value_names.get(&(*self.by_oid.get(&oid)?, number)).map(String::as_str)
    }
    /// The number of an attribute's named value, capitals or not.
    #[must_use]
    pub fn value_number(&self, oid: Oid, name: &str) -> Option<u64> {
        self.value_numbers.get(&(*self.by_oid.get(&oid)?, name.to_ascii_lowercase())).copied()
    }
    /// Reads attributes as this dictionary has them, one printable item each.
    #[must_use]
    pub fn decode<'a>(&self, attributes: &'a [u8]) -> Decode<'a, '_> {
        Decode::new(self, attributes)
    }

    fn define(&mut self, definition: Definition) {
        let index = self.attributes.len() as u32;
        self.by_oid.insert(definition.oid, index);
        self.by_name.insert(definition.name.to_ascii_lowercase(), index);
        self.attributes.push(definition);
    }
    fn define_vendor(&mut self, vendor: VendorDefinition) {
        let index = self.vendors.len() as u32;
        self.vendor_by_number.insert(vendor.number, index);
        self.vendor_by_name.insert(vendor.name.to_ascii_lowercase(), index);
        self.vendors.push(vendor);
    }
    fn define_value(&mut self, attribute: &str, name: &str, number: u64) -> bool {
        let Some(&index) = self.by_name.get(&attribute.to_ascii_lowercase()) else { return false };
        self.value_names.insert((index, number), name.to_owned());
        self.value_numbers.insert((index, name.to_ascii_lowercase()), number);
        true
    }
}

#[cfg(test)]
mod tests;
