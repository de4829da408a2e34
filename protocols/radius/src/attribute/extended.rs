//! Vendor-Specific attributes (RFC 2865 §5.26) and the extended types of RFC 6929, read in place. Fragments of a long
//! extended attribute are joined.

use super::{RawAttributeIter, kind};
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// A vendor attribute in the format of RFC 2865 §5.26: one octet of type, one of length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VendorAttribute<'a> {
    /// Private enterprise number.
    pub vendor: u32,
    /// The vendor's type.
    pub kind: u8,
    /// Its value.
    pub value: &'a [u8],
}

/// Returns the vendor number of a Vendor-Specific value and the octets after it; `None` below 5 octets.
#[must_use]
pub fn read_vendor(value: &[u8]) -> Option<(u32, &[u8])> {
    let (vendor, rest) = value.split_first_chunk::<4>()?;
    (!rest.is_empty()).then(|| (u32::from_be_bytes(*vendor), rest))
}

/// Returns the vendor attributes of all Vendor-Specific attributes, in order. Skips data in other formats.
pub fn read_vendors(attributes: RawAttributeIter<'_>) -> impl Iterator<Item = VendorAttribute<'_>> {
    attributes.filter(|a| a.kind == kind::VENDOR_SPECIFIC).filter_map(|a| read_vendor(a.value)).flat_map(
        |(vendor, data)| {
            RawAttributeIter::new(data).map(move |a| VendorAttribute { vendor, kind: a.kind, value: a.value })
        },
    )
}

/// A whole extended attribute (RFC 6929 §2.1, §2.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtendedAttribute<'a> {
    /// 241 to 246.
    pub kind: u8,
    /// Extended-Type.
    pub extended: u8,
    /// Its value: borrowed from the packet unless it was fragmented.
    pub value: Cow<'a, [u8]>,
}

/// Reads the next extended attribute and advances beyond it. Joins the fragments of a long one.
///
/// `None`: the next attribute is not extended, is too short, or announces a fragment that does not follow (RFC 6929
/// §2.2). It then consumes nothing.
pub fn read_extended<'a>(attributes: &mut RawAttributeIter<'a>) -> Option<ExtendedAttribute<'a>> {
    let mut ahead = attributes.clone();
    let first = ahead.next()?;
    match first.kind {
        kind::EXTENDED_1..=kind::EXTENDED_4 => {
            let (&extended, value) = first.value.split_first()?;
            *attributes = ahead;
            Some(ExtendedAttribute { kind: first.kind, extended, value: Cow::Borrowed(value) })
        }
        kind::LONG_EXTENDED_1..=kind::LONG_EXTENDED_2 => {
            let (&[extended, mut flags], value) = first.value.split_first_chunk::<2>()?;
            if flags & MORE == 0 {
                *attributes = ahead;
                return Some(ExtendedAttribute { kind: first.kind, extended, value: Cow::Borrowed(value) });
            }
            let mut joined = Vec::from(value);
            while flags & MORE != 0 {
                let next = ahead.next().filter(|a| a.kind == first.kind)?;
                let (&[same, more], value) = next.value.split_first_chunk::<2>()?;
                if same != extended {
                    return None;
                }
                flags = more;
                joined.extend_from_slice(value);
            }
            *attributes = ahead;
            Some(ExtendedAttribute { kind: first.kind, extended, value: Cow::Owned(joined) })
        }
        _ => None,
    }
}

/// The flag of a long extended attribute for "another fragment follows".
pub(crate) const MORE: u8 = 0x80;
