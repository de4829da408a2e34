//! Attributes read and printed by a dictionary.

use super::{Definition, Dictionary, Encryption, Oid};
use crate::attribute::{DataType, Framing, RawIter, Value, kind, read_extended, read_vendor};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

/// One attribute that holds no others.
#[derive(Clone, Debug)]
pub struct Decoded<'a, 'd> {
    /// Its number.
    pub oid: Oid,
    /// What the dictionary says of it.
    pub definition: Option<&'d Definition>,
    /// The tag in front (RFC 2868).
    pub tag: Option<u8>,
    /// The octets after the tag, joined where the attribute was in pieces.
    pub bytes: Cow<'a, [u8]>,
    dictionary: &'d Dictionary,
}

impl Decoded<'_, '_> {
    /// The value by its type; octets where it is hidden, unknown or ill-formed (RFC 8044 §2).
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        let bytes = &*self.bytes;
        match self.definition {
            Some(d) if d.encryption == Encryption::None => {
                if let (true, DataType::Integer, &[a, b, c]) = (d.tagged, d.data_type, bytes) {
                    return Value::Integer(u32::from_be_bytes([0, a, b, c]));
                }
                Value::decode(d.data_type, bytes).unwrap_or(Value::Octets(bytes))
            }
            _ => Value::Octets(bytes),
        }
    }
}

impl fmt::Display for Decoded<'_, '_> {
    /// `Name[:tag] = value`, or `Attr-26.9.1 = 0x…` for what the dictionary does not have.
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
        match value.number().and_then(|n| self.dictionary.value_name(self.oid, n)) {
            Some(name) => f.write_str(name),
            None => write!(f, "{value}"),
        }
    }
}

/// Walks attributes, those within others included; see [`Dictionary::decode`].
#[derive(Clone, Debug)]
pub struct Decode<'a, 'd> {
    dictionary: &'d Dictionary,
    attributes: RawIter<'a>,
    /// Found within the attribute before, last first.
    inner: Vec<(Oid, Cow<'a, [u8]>)>,
}

impl<'a, 'd> Decode<'a, 'd> {
    pub(super) fn new(dictionary: &'d Dictionary, attributes: &'a [u8]) -> Self {
        Self { dictionary, attributes: RawIter::new(attributes), inner: Vec::new() }
    }

    /// The next attribute of the packet, joined where it is in pieces.
    fn outer(&mut self) -> Option<(Oid, Cow<'a, [u8]>)> {
        if let Some(e) = read_extended(&mut self.attributes) {
            return Some((Oid::standard(e.kind).child(e.extended.into())?, e.value));
        }
        let first = self.attributes.next()?;
        let oid = Oid::standard(first.kind);
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

    /// What an attribute holds, if it holds others and is well-formed.
    fn contents(&self, oid: Oid, bytes: &[u8]) -> Option<Vec<(Oid, Cow<'a, [u8]>)>> {
        let data_type = self.dictionary.by_oid(oid).map(|d| d.data_type);
        let parts = oid.parts();
        if parts == [u32::from(kind::VENDOR_SPECIFIC)] {
            let (vendor, data) = read_vendor(bytes)?;
            let oid = oid.child(vendor)?;
            return split(oid, data, self.dictionary.framing(vendor));
        }
        let evs = matches!(parts, [241..=246, 26]) || data_type == Some(DataType::Evs);
        if evs {
            let (vendor, data) = read_vendor(bytes)?;
            let (&number, value) = data.split_first()?;
            let oid = oid.child(vendor)?.child(number.into())?;
            return Some(alloc::vec![(oid, Cow::Owned(value.to_vec()))]);
        }
        if data_type == Some(DataType::Tlv) { split(oid, bytes, Framing::SUGGESTED) } else { None }
    }
}

/// The attributes that octets are, framed so; `None` where they are not.
fn split<'a>(oid: Oid, data: &[u8], framing: Framing) -> Option<Vec<(Oid, Cow<'a, [u8]>)>> {
    let found = framing.split(data)?.into_iter();
    found.map(|(number, range)| Some((oid.child(number)?, Cow::Owned(data[range].to_vec())))).collect()
}

impl<'a, 'd> Iterator for Decode<'a, 'd> {
    type Item = Decoded<'a, 'd>;

    fn next(&mut self) -> Option<Decoded<'a, 'd>> {
        loop {
            let (oid, mut bytes) = match self.inner.pop() {
                Some(found) => found,
                None => self.outer()?,
            };
            if let Some(found) = self.contents(oid, &bytes) {
                self.inner.extend(found.into_iter().rev());
                continue;
            }
            let definition = self.dictionary.by_oid(oid);
            let mut tag = None;
            if let Some(d) = definition
                && d.tagged
                && let Some(&first) = bytes.first()
                && (first <= 0x1f || d.data_type == DataType::Integer)
            {
                tag = (1..=0x1f).contains(&first).then_some(first);
                bytes = match bytes {
                    Cow::Borrowed(b) => Cow::Borrowed(&b[1..]),
                    Cow::Owned(b) => Cow::Owned(b[1..].to_vec()),
                };
            }
            return Some(Decoded { oid, definition, tag, bytes, dictionary: self.dictionary });
        }
    }
}
