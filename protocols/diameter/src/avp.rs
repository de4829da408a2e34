//! Attribute-value pairs (RFC 6733 §4): a checked view, an owned form and a buffer of encoded AVPs.

use crate::data::{AvpAddress, AvpTime};
use crate::error::{DiameterError, ResultCode};
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use usher_core::OctetWriter;

/// V: a Vendor-Id field follows.
pub const FLAG_VENDOR: u8 = 0x80;
/// M: the receiver must understand the AVP or reject the message.
pub const FLAG_MANDATORY: u8 = 0x40;
/// P: reserved for end-to-end security (RFC 6733 §4.1: sent as zero).
pub const FLAG_PROTECTED: u8 = 0x20;
/// The maximum nesting of Grouped AVPs. A message with deeper ones is rejected.
pub const MAX_DEPTH: usize = 8;
/// The longest data of an AVP, so that its length fits 24 bits.
pub const MAX_DATA: usize = 0xff_ffff - 12;

/// The identity of an AVP: code, vendor (0 is the IETF) and whether it is sent with the M flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AvpId {
    /// AVP Code.
    pub code: u32,
    /// Vendor-Id; 0 means that the V flag is clear.
    pub vendor: u32,
    /// True if it is sent with the M flag.
    pub mandatory: bool,
}

impl AvpId {
    /// Returns an IETF AVP that is sent with the M flag.
    pub const fn must(code: u32) -> Self {
        Self { code, vendor: 0, mandatory: true }
    }
    /// Returns an IETF AVP that is sent without the M flag.
    pub const fn may(code: u32) -> Self {
        Self { code, vendor: 0, mandatory: false }
    }
    /// Returns a vendor's AVP.
    pub const fn new_vendor_avp_id(vendor: u32, code: u32, mandatory: bool) -> Self {
        Self { code, vendor, mandatory }
    }
    const fn flags(self) -> u8 {
        // RFC 6733, 4.1, 4.1.1: the other flags are zero, and V stands with a vendor only.
        (if self.vendor != 0 { FLAG_VENDOR } else { 0 }) | (if self.mandatory { FLAG_MANDATORY } else { 0 })
    }
}

/// An AVP in a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AvpView<'a> {
    /// AVP Code.
    pub code: u32,
    /// The flags byte: [`FLAG_VENDOR`], [`FLAG_MANDATORY`], [`FLAG_PROTECTED`].
    pub flags: u8,
    /// Vendor-Id; 0 if the V flag is clear.
    pub vendor: u32,
    /// The data, without padding.
    pub data: &'a [u8],
}

impl<'a> AvpView<'a> {
    /// Splits off the first AVP and its padding.
    // Every message is parsed many times, so the path of a valid AVP is short. For an invalid one, `cut_short` finds
    // the fault.
    #[inline]
    fn split_first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&[a, b, c, d, flags, l0, l1, l2], _) = bytes.split_first_chunk::<8>()?;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let avp = bytes.get(8..length)?;
        let (vendor, data) = if flags & FLAG_VENDOR != 0 {
            let (vendor, data) = avp.split_first_chunk::<4>()?;
            (u32::from_be_bytes(*vendor), data)
        } else {
            (0, avp)
        };
        // The padding may be missing: a Grouped AVP that is not padded inside ends with the data of its last AVP.
        let rest = bytes.get(length + padding_length(length)..).unwrap_or_default();
        Some((Self { code: u32::from_be_bytes([a, b, c, d]), flags, vendor, data }, rest))
    }

    /// True if the AVP has this code and vendor. The M flag is not compared.
    pub const fn has_id(&self, id: AvpId) -> bool {
        self.code == id.code && self.vendor == id.vendor
    }
    /// The M flag.
    pub const fn is_mandatory(&self) -> bool {
        self.flags & FLAG_MANDATORY != 0
    }
    /// Returns an owned copy.
    pub fn to_owned(&self) -> Avp {
        Avp { code: self.code, flags: self.flags, vendor: self.vendor, data: self.data.into() }
    }
    fn fixed_length_data<const N: usize>(&self) -> Result<[u8; N], DiameterError> {
        // RFC 6733, 4.2: a number has its type's length.
        self.data.try_into().map_err(|_| {
            DiameterError::with_avp(
                ResultCode::INVALID_AVP_LENGTH,
                "data length does not fit the AVP's type",
                self.to_owned(),
            )
        })
    }
    fn value_error(&self, what: &'static str) -> DiameterError {
        DiameterError::with_avp(ResultCode::INVALID_AVP_VALUE, what, self.to_owned())
    }
    /// The data as Unsigned32, or as the bits of Enumerated or Float32.
    ///
    /// # Errors
    /// The data is not four bytes long (5014).
    pub fn as_u32(&self) -> Result<u32, DiameterError> {
        self.fixed_length_data().map(u32::from_be_bytes)
    }
    /// The data as Integer32 or Enumerated.
    ///
    /// # Errors
    /// The data is not four bytes long (5014).
    pub fn as_i32(&self) -> Result<i32, DiameterError> {
        self.fixed_length_data().map(i32::from_be_bytes)
    }
    /// The data as Unsigned64.
    ///
    /// # Errors
    /// The data is not eight bytes long (5014).
    pub fn as_u64(&self) -> Result<u64, DiameterError> {
        self.fixed_length_data().map(u64::from_be_bytes)
    }
    /// The data as Integer64.
    ///
    /// # Errors
    /// The data is not eight bytes long (5014).
    pub fn as_i64(&self) -> Result<i64, DiameterError> {
        self.fixed_length_data().map(i64::from_be_bytes)
    }
    /// The data as Float32.
    ///
    /// # Errors
    /// The data is not four bytes long (5014).
    pub fn as_f32(&self) -> Result<f32, DiameterError> {
        self.fixed_length_data().map(f32::from_be_bytes)
    }
    /// The data as Float64.
    ///
    /// # Errors
    /// The data is not eight bytes long (5014).
    pub fn as_f64(&self) -> Result<f64, DiameterError> {
        self.fixed_length_data().map(f64::from_be_bytes)
    }
    /// The data as UTF8String.
    ///
    /// # Errors
    /// The data is not UTF-8 (5004).
    pub fn as_utf8(&self) -> Result<&'a str, DiameterError> {
        core::str::from_utf8(self.data).map_err(|_| self.value_error("not UTF-8"))
    }
    /// The data as DiameterIdentity, a non-empty ASCII name.
    ///
    /// # Errors
    /// The data is not such a name (5004).
    pub fn as_identity(&self) -> Result<&'a str, DiameterError> {
        let name = self.as_utf8()?;
        if crate::data::is_valid_diameter_identity(name) {
            Ok(name)
        } else {
            Err(self.value_error("not a DiameterIdentity"))
        }
    }
    /// The data as Address.
    ///
    /// # Errors
    /// The data is shorter than the family field, or an IP address has the wrong length (5004).
    pub fn as_address(&self) -> Result<AvpAddress<'a>, DiameterError> {
        AvpAddress::parse(self.data).ok_or_else(|| self.value_error("not an Address"))
    }
    /// The data as Time.
    ///
    /// # Errors
    /// The data is not four bytes long (5014).
    pub fn as_time(&self) -> Result<AvpTime, DiameterError> {
        self.as_u32().map(AvpTime)
    }
    /// The AVPs inside a Grouped AVP, with checked lengths.
    ///
    /// # Errors
    /// An inner length exceeds the group (5014).
    pub fn as_group(&self) -> Result<AvpSequence<'a>, DiameterError> {
        AvpSequence::parse(self.data)
    }
}

/// Returns the error for bytes without a complete AVP. Failed-AVP shows its header, zero-filled if incomplete, and
/// example data (RFC 6733 §7.1.5).
#[cold]
fn cut_short(bytes: &[u8]) -> DiameterError {
    let mut header = [0; 12];
    let there = bytes.len().min(header.len());
    header[..there].copy_from_slice(&bytes[..there]);
    let [a, b, c, d, flags, _, _, _, v0, v1, v2, v3] = header;
    let code = u32::from_be_bytes([a, b, c, d]);
    if bytes.len() < 8 {
        let avp = Avp::zero_filled_example(code, flags & !FLAG_VENDOR, 0);
        return DiameterError::with_avp(ResultCode::INVALID_AVP_LENGTH, "AVP header cut short", avp);
    }
    let named = flags & FLAG_VENDOR != 0 && there == header.len();
    let vendor = if named { u32::from_be_bytes([v0, v1, v2, v3]) } else { 0 };
    let avp = Avp::zero_filled_example(code, flags & !FLAG_VENDOR | vendor_flag_bit(vendor), vendor);
    DiameterError::with_avp(ResultCode::INVALID_AVP_LENGTH, "AVP length beyond its bounds", avp)
}

const fn vendor_flag_bit(vendor: u32) -> u8 {
    if vendor != 0 { FLAG_VENDOR } else { 0 }
}

/// The number of zero bytes after an AVP of this length.
const fn padding_length(length: usize) -> usize {
    (4 - length % 4) % 4
}

/// A checked sequence of AVPs, and an iterator over them.
#[derive(Clone, Copy, Debug)]
pub struct AvpSequence<'a> {
    rest: &'a [u8],
}

impl<'a> AvpSequence<'a> {
    /// Checks that complete AVPs fill `bytes`.
    ///
    /// # Errors
    /// A length exceeds its bounds (5014).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DiameterError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            // RFC 6733, 4.1: a wrong AVP length is an error.
            (_, rest) = AvpView::split_first(rest).ok_or_else(|| cut_short(rest))?;
        }
        Ok(Self { rest: bytes })
    }
    /// Wraps bytes that [`AvpBuf`] or an earlier check has validated.
    pub(crate) const fn from_checked(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    /// The first remaining AVP with this code and vendor.
    pub fn get(&self, id: AvpId) -> Option<AvpView<'a>> {
        let mut from_here = *self;
        from_here.find(|a| a.has_id(id))
    }
    /// All remaining AVPs with this code and vendor.
    pub fn get_all(&self, id: AvpId) -> impl Iterator<Item = AvpView<'a>> + use<'a> {
        (*self).filter(move |a| a.has_id(id))
    }
    /// The first remaining AVP with this code and vendor.
    ///
    /// # Errors
    /// There is none: 5005 with an example AVP (RFC 6733 §7.5).
    pub fn require_avp(&self, id: AvpId) -> Result<AvpView<'a>, DiameterError> {
        self.get(id).ok_or_else(|| {
            let avp = Avp::zero_filled_example(id.code, id.flags(), id.vendor);
            DiameterError::with_avp(ResultCode::MISSING_AVP, "a required AVP is missing", avp)
        })
    }
    /// The remaining encoded bytes.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for AvpSequence<'a> {
    type Item = AvpView<'a>;
    fn next(&mut self) -> Option<AvpView<'a>> {
        let (avp, rest) = AvpView::split_first(self.rest)?;
        self.rest = rest;
        Some(avp)
    }
}

/// An owned AVP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Avp {
    /// AVP Code.
    pub code: u32,
    /// The flags byte. The vendor is encoded if the V flag is set.
    pub flags: u8,
    /// Vendor-Id.
    pub vendor: u32,
    /// The data, without padding.
    pub data: Vec<u8>,
}

impl Avp {
    /// Returns an example for Failed-AVP: the header, and zeros of the shortest valid length (RFC 6733 §7.5).
    #[must_use]
    pub fn zero_filled_example(code: u32, flags: u8, vendor: u32) -> Self {
        let data = alloc::vec![0; if vendor == 0 { crate::codes::minimum_avp_data_len(code) } else { 0 }];
        Self { code, flags, vendor, data }
    }
}

impl fmt::Display for AvpView<'_> {
    /// Formats as `code[/vendor] flags hex-or-text`. [`crate::dictionary::DiameterDictionary::display_message`] adds
    /// names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if self.flags & FLAG_VENDOR != 0 {
            write!(f, "/{}", self.vendor)?;
        }
        let flag = |bit, c| if self.flags & bit != 0 { c } else { '-' };
        write!(f, " {}{}{} ", flag(FLAG_VENDOR, 'V'), flag(FLAG_MANDATORY, 'M'), flag(FLAG_PROTECTED, 'P'))?;
        write_bytes(f, self.data)
    }
}

/// Writes printable ASCII in quotes, or else hexadecimal.
pub(crate) fn write_bytes(f: &mut dyn fmt::Write, data: &[u8]) -> fmt::Result {
    match core::str::from_utf8(data) {
        Ok(s) if !s.is_empty() && s.bytes().all(|b| (0x20..0x7f).contains(&b)) => write!(f, "{s:?}"),
        _ => {
            f.write_str("0x")?;
            data.iter().try_for_each(|b| write!(f, "{b:02x}"))
        }
    }
}

/// A buffer of encoded AVPs: the body of a message or the content of a Grouped AVP.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AvpBuf {
    bytes: Vec<u8>,
}

impl AvpBuf {
    /// An empty sequence.
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }
    /// Returns an empty sequence with this capacity, bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }
    pub(crate) const fn from_checked(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
    /// The encoded bytes. Their length is a multiple of four.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// True if there is no AVP.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
    /// Removes all AVPs and keeps the capacity.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
    /// The AVPs.
    pub fn as_sequence(&self) -> AvpSequence<'_> {
        AvpSequence::from_checked(&self.bytes)
    }
    /// Appends an AVP. Data longer than [`MAX_DATA`] is truncated.
    pub fn push(&mut self, id: AvpId, data: &[u8]) -> &mut Self {
        write_avp(&mut self.bytes, id.code, id.flags(), id.vendor, data);
        self
    }
    /// Appends an unchanged copy of an AVP, flags included.
    pub fn push_view(&mut self, avp: AvpView<'_>) -> &mut Self {
        write_avp(&mut self.bytes, avp.code, avp.flags, avp.vendor, avp.data);
        self
    }
    /// Appends an owned AVP unchanged.
    pub fn push_avp(&mut self, avp: &Avp) -> &mut Self {
        write_avp(&mut self.bytes, avp.code, avp.flags, avp.vendor, &avp.data);
        self
    }
    /// Appends all AVPs of another sequence.
    pub fn extend(&mut self, other: &AvpBuf) -> &mut Self {
        self.bytes.extend_from_slice(&other.bytes);
        self
    }
    /// Appends a text or DiameterIdentity AVP.
    pub fn push_str(&mut self, id: AvpId, text: &str) -> &mut Self {
        self.push(id, text.as_bytes())
    }
    /// Appends an Unsigned32, Integer32 (`as u32`) or Enumerated AVP.
    pub fn push_u32(&mut self, id: AvpId, value: u32) -> &mut Self {
        self.push(id, &value.to_be_bytes())
    }
    /// Appends an Unsigned64 or Integer64 (`as u64`) AVP.
    pub fn push_u64(&mut self, id: AvpId, value: u64) -> &mut Self {
        self.push(id, &value.to_be_bytes())
    }
    /// Appends an Address AVP.
    pub fn push_address(&mut self, id: AvpId, address: IpAddr) -> &mut Self {
        let mut data = [0; 18];
        let len = AvpAddress::from(address).encode_into(&mut data);
        self.push(id, &data[..len])
    }
    /// Appends a Grouped AVP. `fill` writes its content.
    pub fn push_group(&mut self, id: AvpId, fill: impl FnOnce(&mut AvpBuf)) -> &mut Self {
        let start = self.bytes.len();
        self.push(id, &[]);
        fill(self);
        let length = (self.bytes.len() - start).min(0xff_ffff) as u32;
        self.bytes.truncate(start + length as usize);
        self.bytes[start + 5..start + 8].copy_from_slice(&length.to_be_bytes()[1..]);
        self.bytes.resize(self.bytes.len() + padding_length(length as usize), 0);
        self
    }
}

fn write_avp(buf: &mut Vec<u8>, code: u32, flags: u8, vendor: u32, data: &[u8]) {
    let data = &data[..data.len().min(MAX_DATA)];
    let header = if flags & FLAG_VENDOR != 0 { 12 } else { 8 };
    let length = header + data.len();
    buf.reserve(length + 3);
    let mut w = OctetWriter::new(buf);
    w.write_u32(code).write_u8(flags).write_u24(length as u32);
    if flags & FLAG_VENDOR != 0 {
        w.write_u32(vendor);
    }
    // RFC 6733, 4: zeros that the length does not count pad to four octets.
    w.write_bytes(data).write_zeros(padding_length(length));
}
