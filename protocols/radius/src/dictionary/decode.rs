//! Decoding and printing of attributes by a dictionary.

use super::{AttributeDefinition, AttributeEncryption, AttributeOid, RadiusDictionary};
use crate::attribute::{
    AttributeDataType, AttributeValue, RawAttributeIter, VendorAttributeFormat, kind, read_extended,
    read_vendor,
};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

/// An attribute without nested attributes.
#[derive(Clone, Debug)]
pub struct DecodedAttribute<'a, 'd> {
    /// Its number.
    pub oid: AttributeOid,
    /// The definition in the dictionary.
    pub definition: Option<&'d AttributeDefinition>,
    /// The tag before the value (RFC 2868).
    pub tag: Option<u8>,
    /// The octets after the tag, joined if the attribute was split.
    pub bytes: Cow<'a, [u8]>,
    dictionary: &'d RadiusDictionary,
}

impl DecodedAttribute<'_, '_> {
    /// Returns the value by its type; octets if it is hidden, unknown or malformed (RFC 8044 §2).
    #[must_use]
    pub fn value(&self) -> AttributeValue<'_> {
        let bytes = &*self.bytes;
        match self.definition {
            Some(d) if d.encryption == AttributeEncryption::None => {
                if let (true, AttributeDataType::Integer, &[a, b, c]) = (d.tagged, d.data_type, bytes) {
                    return AttributeValue::Integer(u32::from_be_bytes([0, a, b, c]));
                }
                AttributeValue::decode(d.data_type, bytes).unwrap_or(AttributeValue::Octets(bytes))
            }
            _ => AttributeValue::Octets(bytes),
        }
    }
}

impl fmt::Display for DecodedAttribute<'_, '_> {
    /// Prints `Name[:tag] = value`, or `Attr-26.9.1 = 0x…` for unknown attributes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.definition {
            Some(d) => f.write_str(&d.name)?,
            None => write!(f, "Attr-{}", self.oid)?,
        }
        if let Some(tag) = self.tag {
            write!(f, ":{tag}")?;
        }
        f.write_str(" = ")?;
        let value = self.value();
        match value.as_number().and_then(|n| self.dictionary.value_name(self.oid, n)) {
            Some(name) => f.write_str(name),
            None => write!(f, "{value}"),
        }
    }
}

/// An iterator over attributes, including nested ones; see [`RadiusDictionary::decode`].
#[derive(Clone, Debug)]
pub struct AttributeDecoder<'a, 'd> {
    dictionary: &'d RadiusDictionary,
    attributes: RawAttributeIter<'a>,
    /// Attributes inside the previous one, in reverse order.
    inner: Vec<(AttributeOid, Cow<'a, [u8]>)>,
}

impl<'a, 'd> AttributeDecoder<'a, 'd> {
    pub(super) fn new(dictionary: &'d RadiusDictionary, attributes: &'a [u8]) -> Self {
        Self { dictionary, attributes: RawAttributeIter::new(attributes), inner: Vec::new() }
    }

    /// Returns the next attribute of the packet, joined if it is split.
    fn next_joined_attribute(&mut self) -> Option<(AttributeOid, Cow<'a, [u8]>)> {
        if let Some(e) = read_extended(&mut self.attributes) {
            return Some((AttributeOid::from_standard_attribute(e.kind).child(e.extended.into())?, e.value));
        }
        let first = self.attributes.next()?;
        let oid = AttributeOid::from_standard_attribute(first.kind);
        let mut bytes = Cow::Borrowed(first.value);
        if self.dictionary.by_oid(oid).is_some_and(|d| d.concat) {
            loop {
                let mut ahead = self.attributes.clone();
                match ahead.next() {
                    Some(a) if a.kind == first.kind => bytes.to_mut().extend_from_slice(a.value),
                    _ => break,
                }
                self.attributes = ahead;
            }
        }
        Some((oid, bytes))
    }

    /// Returns the nested attributes of a well-formed attribute.
    fn nested_attributes(
        &self,
        oid: AttributeOid,
        bytes: &[u8],
    ) -> Option<Vec<(AttributeOid, Cow<'a, [u8]>)>> {
        let data_type = self.dictionary.by_oid(oid).map(|d| d.data_type);
        let parts = oid.parts();
        if parts == [u32::from(kind::VENDOR_SPECIFIC)] {
            let (vendor, data) = read_vendor(bytes)?;
            let oid = oid.child(vendor)?;
            return split_nested(oid, data, self.dictionary.vendor_framing(vendor));
        }
        let evs = matches!(parts, [241..=246, 26]) || data_type == Some(AttributeDataType::Evs);
        if evs {
            let (vendor, data) = read_vendor(bytes)?;
            let (&number, value) = data.split_first()?;
            let oid = oid.child(vendor)?.child(number.into())?;
            return Some(alloc::vec![(oid, Cow::Owned(value.to_vec()))]);
        }
        if data_type == Some(AttributeDataType::Tlv) {
            split_nested(oid, bytes, VendorAttributeFormat::SUGGESTED)
        } else {
            None
        }
    }
}

/// Splits octets into attributes of this format; `None` if they do not fit.
fn split_nested<'a>(
    oid: AttributeOid,
    data: &[u8],
    framing: VendorAttributeFormat,
) -> Option<Vec<(AttributeOid, Cow<'a, [u8]>)>> {
    let found = framing.split_attributes(data)?.into_iter();
    found.map(|(number, range)| Some((oid.child(number)?, Cow::Owned(data[range].to_vec())))).collect()
}

impl<'a, 'd> Iterator for AttributeDecoder<'a, 'd> {
    type Item = DecodedAttribute<'a, 'd>;

    fn next(&mut self) -> Option<DecodedAttribute<'a, 'd>> {
        loop {
            let (oid, mut bytes) = match self.inner.pop() {
                Some(found) => found,
                None => self.next_joined_attribute()?,
            };
            if let Some(found) = self.nested_attributes(oid, &bytes) {
                self.inner.extend(found.into_iter().rev());
                continue;
            }
            let definition = self.dictionary.by_oid(oid);
            let mut tag = None;
            if let Some(d) = definition
                && d.tagged
                && let Some(&first) = bytes.first()
                && (first <= 0x1f || d.data_type == AttributeDataType::Integer)
            {
                tag = (1..=0x1f).contains(&first).then_some(first);
                bytes = match bytes {
                    Cow::Borrowed(b) => Cow::Borrowed(&b[1..]),
                    Cow::Owned(b) => Cow::Owned(b[1..].to_vec()),
                };
            }
            return Some(DecodedAttribute { oid, definition, tag, bytes, dictionary: self.dictionary });
        }
    }
}
