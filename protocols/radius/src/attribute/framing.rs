//! Formats of vendor attributes inside Vendor-Specific. RFC 2865 §5.26 suggests one; some vendors use others.

use alloc::vec::Vec;
use core::ops::Range;

/// The header format of a vendor's attributes, `format=type,length` in FreeRADIUS's dictionaries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VendorAttributeFormat {
    /// Octets of the type: 1, 2 or 4.
    pub type_octets: u8,
    /// Octets of the length, which includes the header: 0 (one attribute takes all octets), 1 or 2.
    pub length_octets: u8,
    /// A continuation octet follows (`format=1,1,c`, WiMAX).
    pub continuation: bool,
}

impl Default for VendorAttributeFormat {
    fn default() -> Self {
        Self::SUGGESTED
    }
}

impl VendorAttributeFormat {
    /// One octet of type and one of length (RFC 2865 §5.26), also used by TLVs (RFC 8044 §3.13).
    pub const SUGGESTED: Self = Self { type_octets: 1, length_octets: 1, continuation: false };

    /// The octets of a header.
    #[must_use]
    pub const fn header_length(self) -> usize {
        self.type_octets as usize + self.length_octets as usize + self.continuation as usize
    }
    /// True if the header can hold this type.
    #[must_use]
    pub const fn fits_vendor_type(self, number: u32) -> bool {
        self.type_octets >= 4 || number < 1 << (8 * self.type_octets as u32)
    }
    /// Splits a vendor's octets into attributes: the type and the range of the value of each. `None` if headers and
    /// lengths do not fit exactly, or the octets are empty.
    #[must_use]
    pub fn split_attributes(self, data: &[u8]) -> Option<Vec<(u32, Range<usize>)>> {
        let number = |bytes: &[u8]| bytes.iter().fold(0_u32, |n, &b| n << 8 | u32::from(b));
        let (types, lengths) = (usize::from(self.type_octets), usize::from(self.length_octets));
        let header = self.header_length();
        let (mut found, mut at) = (Vec::new(), 0);
        while at < data.len() {
            let rest = data.get(at..)?;
            let head = rest.get(..header)?;
            let length =
                if lengths == 0 { rest.len() } else { number(&head[types..types + lengths]) as usize };
            rest.get(header..length)?;
            found.push((number(&head[..types]), at + header..at + length));
            at += length;
        }
        (!found.is_empty()).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: VendorAttributeFormat =
        VendorAttributeFormat { type_octets: 2, length_octets: 2, continuation: false };

    #[test]
    fn octets_are_split_by_every_framing() {
        let split = |framing: VendorAttributeFormat, data: &[u8]| framing.split_attributes(data);
        assert_eq!(
            split(VendorAttributeFormat::SUGGESTED, &[1, 3, 9, 2, 2]),
            Some(alloc::vec![(1, 2..3), (2, 5..5)])
        );
        assert_eq!(split(WIDE, &[1, 44, 0, 5, 9]), Some(alloc::vec![(300, 4..5)]));
        let usr = VendorAttributeFormat { type_octets: 4, length_octets: 0, continuation: false };
        assert_eq!(split(usr, &[0, 0, 0x90, 1, 7, 8]), Some(alloc::vec![(0x9001, 4..6)]));
        let wimax = VendorAttributeFormat { continuation: true, ..VendorAttributeFormat::SUGGESTED };
        assert_eq!(split(wimax, &[2, 4, 0, 7]), Some(alloc::vec![(2, 3..4)]));
        for bad in [&[][..], &[1], &[1, 1], &[1, 4, 0], &[1, 2, 1]] {
            assert_eq!(split(VendorAttributeFormat::SUGGESTED, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_type_must_fit_its_octets() {
        assert!(
            VendorAttributeFormat::SUGGESTED.fits_vendor_type(255)
                && !VendorAttributeFormat::SUGGESTED.fits_vendor_type(256)
        );
        assert!(WIDE.fits_vendor_type(65_535) && !WIDE.fits_vendor_type(65_536));
        assert!(VendorAttributeFormat { type_octets: 4, ..WIDE }.fits_vendor_type(u32::MAX));
    }
}
