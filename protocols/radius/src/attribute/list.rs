//! The owned attribute list: wire octets in one allocation, with a record of values to hide.

use super::extended::MORE;
use super::hide::{hide_ascend, hide_password, hide_salted};
use super::{
    MAX_VALUE, RawAttribute, RawAttributeIter, SALT_LEN, VendorAttribute, kind, read_vendors, vendor,
};
use crate::dictionary::AttributeEncryption;
use crate::packet::{AttributeTypeSet, PacketError, RadiusPacket, check_attributes};
use alloc::vec::Vec;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

/// A value does not fit its attribute. The list is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("attribute {kind}: the value has {length} octets, but at most {max} fit")]
pub struct ValueTooLong {
    /// The attribute's type.
    pub kind: u8,
    /// The length of the value in octets.
    pub length: usize,
    /// The maximum length.
    pub max: usize,
}

/// A value that may start with a tag (RFC 2868 §3): 1 to 31 groups the attributes of one tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaggedValue<T> {
    /// The tag; `None` if the first octet is not one.
    pub tag: Option<u8>,
    /// The value without the tag.
    pub value: T,
}

impl<'a> TaggedValue<&'a [u8]> {
    /// Reads a tagged text (RFC 2868 §3.3): a first octet up to 0x1F is the tag.
    #[must_use]
    pub const fn parse_tagged_text(value: &'a [u8]) -> Self {
        match value {
            [tag @ 1..=0x1f, rest @ ..] => Self { tag: Some(*tag), value: rest },
            [0, rest @ ..] => Self { tag: None, value: rest },
            _ => Self { tag: None, value },
        }
    }
}

impl TaggedValue<u32> {
    /// Reads a tagged number (RFC 2868 §3.1): one octet of tag, three of value.
    #[must_use]
    pub fn parse_number(value: &[u8]) -> Option<Self> {
        let &[tag, a, b, c] = value.first_chunk::<4>()?;
        Some(Self { tag: (1..=0x1f).contains(&tag).then_some(tag), value: u32::from_be_bytes([0, a, b, c]) })
    }
}

/// The range of a clear value that encoding hides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct HiddenValueRange {
    /// The offset of the blocks; a salt precedes them.
    offset: u32,
    /// The length of the blocks in octets.
    len: u32,
    how: AttributeEncryption,
}

/// The attributes of a packet, in order.
///
/// The caller gives hidden values (User-Password, Tunnel-Password, MS-MPPE keys) in clear. The client or server hides
/// them when it writes the packet, since that needs the Request Authenticator. In a list from the wire they are still
/// hidden: see [`crate::client::RadiusReply::mppe_keys`] and [`crate::server::RadiusRequest::user_password`].
///
/// Machines reuse the lists of commands for later events, so a caller that keeps none causes no allocation.
#[derive(Clone, Default)]
pub struct AttributeList {
    bytes: Vec<u8>,
    hidden: Vec<HiddenValueRange>,
    /// The types in a list from the wire, and its length. They are valid while the list has that length: every change
    /// except an addition resets them.
    received: (AttributeTypeSet, usize),
}

impl PartialEq for AttributeList {
    fn eq(&self, other: &Self) -> bool {
        (&self.bytes, &self.hidden) == (&other.bytes, &other.hidden)
    }
}

impl Eq for AttributeList {}

impl AttributeList {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), hidden: Vec::new(), received: (AttributeTypeSet::NONE, 0) }
    }
    /// An empty list with capacity for `octets`.
    #[must_use]
    pub fn with_capacity(octets: usize) -> Self {
        Self { bytes: Vec::with_capacity(octets), ..Self::new() }
    }
    /// Copies received attributes.
    ///
    /// # Errors
    /// If their lengths are inconsistent.
    pub fn parse_attribute_list(bytes: &[u8]) -> Result<Self, PacketError> {
        let summary = check_attributes(bytes)?;
        Ok(Self::from_checked_octets(bytes, summary.kinds))
    }
    pub(crate) fn from_checked_octets(bytes: &[u8], kinds: AttributeTypeSet) -> Self {
        Self { bytes: bytes.to_vec(), hidden: Vec::new(), received: (kinds, bytes.len()) }
    }
    /// Replaces the contents with the attributes of a packet.
    pub(crate) fn replace_with_packet_attributes(&mut self, packet: &RadiusPacket<'_>) {
        self.clear();
        self.bytes.extend_from_slice(packet.attribute_bytes());
        self.received = (packet.attribute_types(), self.bytes.len());
    }
    /// Removes all attributes and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.hidden.clear();
        self.received = (AttributeTypeSet::NONE, 0);
    }
    /// The octets. Values that encoding hides are in clear.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// The total length in octets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
    /// True if the list has no attributes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The attributes in order.
    #[must_use]
    pub fn iter(&self) -> RawAttributeIter<'_> {
        RawAttributeIter::new(&self.bytes)
    }
    /// The value of the first attribute of a type.
    #[must_use]
    pub fn get(&self, kind: u8) -> Option<&[u8]> {
        let (kinds, length) = self.received;
        if length == self.bytes.len() && !kinds.may_have_attribute_type(kind) {
            return None;
        }
        self.get_all(kind).next()
    }
    /// The values of all attributes of a type, in order.
    pub fn get_all(&self, kind: u8) -> impl Iterator<Item = &[u8]> {
        self.iter().filter(move |a| a.kind == kind).map(|a| a.value)
    }
    /// The first attribute of a type as a number; `None` also if it is not 4 octets long.
    #[must_use]
    pub fn get_u32(&self, kind: u8) -> Option<u32> {
        self.get(kind)?.try_into().ok().map(u32::from_be_bytes)
    }
    /// The first attribute of a type as text; `None` also if it is not UTF-8.
    #[must_use]
    pub fn get_text(&self, kind: u8) -> Option<&str> {
        core::str::from_utf8(self.get(kind)?).ok()
    }
    /// The first attribute of a type as an IPv4 address; `None` also if it is not 4 octets long.
    #[must_use]
    pub fn get_ipv4(&self, kind: u8) -> Option<Ipv4Addr> {
        self.get_u32(kind).map(Ipv4Addr::from_bits)
    }
    /// The first value of a vendor's type, in the format of RFC 2865 §5.26.
    #[must_use]
    pub fn get_vendor(&self, vendor: u32, kind: u8) -> Option<&[u8]> {
        self.vendor_attributes().find(|v| v.vendor == vendor && v.kind == kind).map(|v| v.value)
    }
    /// All vendor attributes, in order.
    pub fn vendor_attributes(&self) -> impl Iterator<Item = VendorAttribute<'_>> {
        read_vendors(self.iter())
    }
    /// The first tagged text (RFC 2868 §3.3) of a type: a first octet up to 0x1F is the tag.
    #[must_use]
    pub fn get_tagged(&self, kind: u8) -> Option<TaggedValue<&[u8]>> {
        self.get(kind).map(TaggedValue::parse_tagged_text)
    }
    /// The first tagged number (RFC 2868 §3.1) of a type: one octet of tag, three of value.
    #[must_use]
    pub fn get_tagged_u32(&self, kind: u8) -> Option<TaggedValue<u32>> {
        self.get(kind).and_then(TaggedValue::parse_number)
    }
    /// Appends the joined EAP packet of the EAP-Message attributes (RFC 3579 §3.1) to `out`. Returns false if there is
    /// none.
    pub fn read_eap_packet(&self, out: &mut Vec<u8>) -> bool {
        let mut any = false;
        for piece in self.get_all(kind::EAP_MESSAGE) {
            out.extend_from_slice(piece);
            any = true;
        }
        any
    }
    /// The value of a short or long extended attribute (RFC 6929), with joined fragments.
    #[must_use]
    pub fn get_extended(&self, kind: u8, extended: u8) -> Option<alloc::borrow::Cow<'_, [u8]>> {
        let mut iter = self.iter();
        loop {
            match super::read_extended(&mut iter) {
                Some(e) if e.kind == kind && e.extended == extended => return Some(e.value),
                Some(_) => {}
                None => {
                    iter.next()?;
                }
            }
        }
    }

    fn push_attribute_header(&mut self, kind: u8, length: usize, max: usize) -> Result<(), ValueTooLong> {
        if length > max {
            return Err(ValueTooLong { kind, length, max });
        }
        self.bytes.extend_from_slice(&[kind, (length + MAX_VALUE - max + 2) as u8]);
        Ok(())
    }
    fn push_array_attribute<const N: usize>(&mut self, kind: u8, value: [u8; N]) -> &mut Self {
        self.bytes.extend_from_slice(&[kind, N as u8 + 2]);
        self.bytes.extend_from_slice(&value);
        self
    }
    /// Adds octets unchanged.
    ///
    /// # Errors
    /// If the value exceeds 253 octets.
    pub fn push_bytes(&mut self, kind: u8, value: &[u8]) -> Result<&mut Self, ValueTooLong> {
        self.push_attribute_header(kind, value.len(), MAX_VALUE)?;
        self.bytes.extend_from_slice(value);
        Ok(self)
    }
    /// Adds text.
    ///
    /// # Errors
    /// If the text exceeds 253 octets.
    pub fn push_text(&mut self, kind: u8, text: &str) -> Result<&mut Self, ValueTooLong> {
        self.push_bytes(kind, text.as_bytes())
    }
    /// Adds a number, an enumerated value or a time.
    pub fn push_u32(&mut self, kind: u8, value: u32) -> &mut Self {
        self.push_array_attribute(kind, value.to_be_bytes())
    }
    /// Adds a 64-bit number.
    pub fn push_u64(&mut self, kind: u8, value: u64) -> &mut Self {
        self.push_array_attribute(kind, value.to_be_bytes())
    }
    /// Adds an IPv4 address.
    pub fn push_ipv4(&mut self, kind: u8, address: Ipv4Addr) -> &mut Self {
        self.push_array_attribute(kind, address.octets())
    }
    /// Adds an IPv6 address.
    pub fn push_ipv6(&mut self, kind: u8, address: Ipv6Addr) -> &mut Self {
        self.push_array_attribute(kind, address.octets())
    }
    /// Adds a tagged number (RFC 2868 §3.1); its low 24 bits are sent. Tag 0: none.
    pub fn push_tagged_u32(&mut self, kind: u8, tag: u8, value: u32) -> &mut Self {
        let [_, a, b, c] = value.to_be_bytes();
        self.push_array_attribute(kind, [tag, a, b, c])
    }
    /// Adds a tagged text (RFC 2868 §3.3). Tag 0: none.
    ///
    /// # Errors
    /// If the text exceeds 252 octets.
    pub fn push_tagged_bytes(&mut self, kind: u8, tag: u8, value: &[u8]) -> Result<&mut Self, ValueTooLong> {
        self.push_attribute_header(kind, value.len(), MAX_VALUE - 1)?;
        self.bytes.push(tag);
        self.bytes.extend_from_slice(value);
        Ok(self)
    }
    /// Adds octets of any length, in attributes of 253 octets each (the `concat` type of RFC 8044 §3.6). An empty value
    /// gives one empty attribute.
    pub fn push_concat(&mut self, kind: u8, value: &[u8]) -> &mut Self {
        let mut rest = value;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(MAX_VALUE));
            self.bytes.extend_from_slice(&[kind, piece.len() as u8 + 2]);
            self.bytes.extend_from_slice(piece);
            rest = after;
            if rest.is_empty() {
                return self;
            }
        }
    }
    /// Adds an EAP packet in consecutive EAP-Message attributes (RFC 2869 §5.13, RFC 3579 §3.1).
    pub fn push_eap(&mut self, packet: &[u8]) -> &mut Self {
        self.push_concat(kind::EAP_MESSAGE, packet)
    }
    /// Adds a Vendor-Specific attribute with one vendor attribute (RFC 2865 §5.26).
    ///
    /// # Errors
    /// If the value exceeds 247 octets.
    pub fn push_vendor(&mut self, vendor: u32, kind: u8, value: &[u8]) -> Result<&mut Self, ValueTooLong> {
        self.push_attribute_header(kind::VENDOR_SPECIFIC, value.len(), MAX_VALUE - 6)?;
        self.bytes.extend_from_slice(&vendor.to_be_bytes());
        self.bytes.extend_from_slice(&[kind, value.len() as u8 + 2]);
        self.bytes.extend_from_slice(value);
        Ok(self)
    }
    /// Adds an extended attribute (RFC 6929 §2.1), `kind` 241 to 244.
    ///
    /// # Errors
    /// If the value exceeds 252 octets.
    pub fn push_extended(&mut self, kind: u8, extended: u8, value: &[u8]) -> Result<&mut Self, ValueTooLong> {
        self.push_attribute_header(kind, value.len(), MAX_VALUE - 1)?;
        self.bytes.push(extended);
        self.bytes.extend_from_slice(value);
        Ok(self)
    }
    /// Adds a long extended attribute (RFC 6929 §2.2), `kind` 245 or 246, in as many fragments as needed.
    pub fn push_long_extended(&mut self, kind: u8, extended: u8, value: &[u8]) -> &mut Self {
        let mut rest = value;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(MAX_VALUE - 2));
            rest = after;
            let flags = if rest.is_empty() { 0 } else { MORE };
            self.bytes.extend_from_slice(&[kind, piece.len() as u8 + 4, extended, flags]);
            self.bytes.extend_from_slice(piece);
            if rest.is_empty() {
                return self;
            }
        }
    }
    /// Adds an extended vendor-specific attribute (RFC 6929 §2.4) to any of the six types.
    ///
    /// # Errors
    /// If the value exceeds 247 octets in a short extended type (241 to 244).
    pub fn push_evs(
        &mut self,
        kind: u8,
        vendor: u32,
        vendor_kind: u8,
        value: &[u8],
    ) -> Result<&mut Self, ValueTooLong> {
        if kind >= kind::LONG_EXTENDED_1 {
            let mut data = Vec::with_capacity(value.len() + 5);
            data.extend_from_slice(&vendor.to_be_bytes());
            data.push(vendor_kind);
            data.extend_from_slice(value);
            return Ok(self.push_long_extended(kind, kind::VENDOR_SPECIFIC, &data));
        }
        self.push_attribute_header(kind, value.len(), MAX_VALUE - 6)?;
        self.bytes.push(kind::VENDOR_SPECIFIC);
        self.bytes.extend_from_slice(&vendor.to_be_bytes());
        self.bytes.push(vendor_kind);
        self.bytes.extend_from_slice(value);
        Ok(self)
    }

    /// Marks the octets after `at` for hiding, and pads them to whole blocks.
    fn mark_for_hiding_from(&mut self, at: usize, how: AttributeEncryption) {
        let len = (self.bytes.len() - at).next_multiple_of(16).max(16);
        self.bytes.resize(at + len, 0);
        self.hidden.push(HiddenValueRange { offset: at as u32, len: len as u32, how });
    }
    /// Adds a whole attribute and marks it for hiding from this octet on. A salt is already included.
    pub(super) fn append_attribute(
        &mut self,
        attribute: &[u8],
        hidden: Option<(usize, AttributeEncryption)>,
    ) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(attribute);
        if let Some((from, how)) = hidden {
            let salt = if how == AttributeEncryption::Salted { SALT_LEN } else { 0 };
            let at = start + from + salt;
            self.hidden.push(HiddenValueRange {
                offset: at as u32,
                len: (self.bytes.len() - at) as u32,
                how,
            });
        }
    }
    /// Removes whole attributes.
    pub(super) fn remove_range(&mut self, range: core::ops::Range<usize>) {
        let len = range.len() as u32;
        self.hidden.retain(|h| !range.contains(&(h.offset as usize)));
        self.hidden.iter_mut().filter(|h| h.offset as usize > range.start).for_each(|h| h.offset -= len);
        self.bytes.drain(range);
        self.received.1 = usize::MAX;
    }
    /// Adds the User-Password: clear here, hidden on the wire (RFC 2865 §5.2).
    ///
    /// # Errors
    /// If the password exceeds 128 octets.
    pub fn push_user_password(&mut self, password: &[u8]) -> Result<&mut Self, ValueTooLong> {
        if password.len() > 128 {
            return Err(ValueTooLong { kind: kind::USER_PASSWORD, length: password.len(), max: 128 });
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[kind::USER_PASSWORD, 0]);
        self.bytes.extend_from_slice(password);
        self.mark_for_hiding_from(start + 2, AttributeEncryption::UserPassword);
        self.bytes[start + 1] = (self.bytes.len() - start) as u8;
        Ok(self)
    }
    /// Adds a tagged password: clear here, salted and hidden on the wire (RFC 2868 §3.5).
    ///
    /// # Errors
    /// If the password exceeds 239 octets.
    pub fn push_tunnel_password(&mut self, tag: u8, password: &[u8]) -> Result<&mut Self, ValueTooLong> {
        if password.len() > 239 {
            return Err(ValueTooLong { kind: kind::TUNNEL_PASSWORD, length: password.len(), max: 239 });
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[kind::TUNNEL_PASSWORD, 0, tag, 0, 0, password.len() as u8]);
        self.bytes.extend_from_slice(password);
        self.mark_for_hiding_from(start + 3 + SALT_LEN, AttributeEncryption::Salted);
        self.bytes[start + 1] = (self.bytes.len() - start) as u8;
        Ok(self)
    }
    /// Adds a vendor attribute, salted and hidden on the wire like the MS-MPPE keys.
    ///
    /// # Errors
    /// If the value exceeds 239 octets.
    pub fn push_vendor_salted(
        &mut self,
        vendor: u32,
        kind: u8,
        value: &[u8],
    ) -> Result<&mut Self, ValueTooLong> {
        if value.len() > 239 {
            return Err(ValueTooLong { kind: kind::VENDOR_SPECIFIC, length: value.len(), max: 239 });
        }
        self.push_salted(vendor, kind, value);
        Ok(self)
    }
    /// Adds a vendor attribute that is hidden on the wire like User-Password, without a salt (MS-CHAP-MPPE-Keys,
    /// RFC 2548 §2.4.1). It pads the value with zeros to a multiple of 16 octets.
    ///
    /// # Errors
    /// If the value exceeds 240 octets.
    pub fn push_vendor_hidden(
        &mut self,
        vendor: u32,
        kind: u8,
        value: &[u8],
    ) -> Result<&mut Self, ValueTooLong> {
        if value.len() > 240 {
            return Err(ValueTooLong { kind: kind::VENDOR_SPECIFIC, length: value.len(), max: 240 });
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[kind::VENDOR_SPECIFIC, 0]);
        self.bytes.extend_from_slice(&vendor.to_be_bytes());
        self.bytes.extend_from_slice(&[kind, 0]);
        self.bytes.extend_from_slice(value);
        self.mark_for_hiding_from(start + 8, AttributeEncryption::UserPassword);
        let length = (self.bytes.len() - start) as u8;
        self.bytes[start + 1] = length;
        self.bytes[start + 7] = length - 6;
        Ok(self)
    }
    fn push_salted(&mut self, vendor: u32, kind: u8, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[kind::VENDOR_SPECIFIC, 0]);
        self.bytes.extend_from_slice(&vendor.to_be_bytes());
        self.bytes.extend_from_slice(&[kind, 0, 0, 0, value.len() as u8]);
        self.bytes.extend_from_slice(value);
        self.mark_for_hiding_from(start + 8 + SALT_LEN, AttributeEncryption::Salted);
        let length = (self.bytes.len() - start) as u8;
        self.bytes[start + 1] = length;
        self.bytes[start + 7] = length - 6;
    }
    /// Adds MS-MPPE-Recv-Key and MS-MPPE-Send-Key (RFC 2548 §2.4), which carry the MSK of an EAP method to the
    /// authenticator. They are its first and second 32 octets (RFC 3748 §7.10, RFC 5216 §2.3).
    pub fn push_msk(&mut self, msk: &[u8; 64]) -> &mut Self {
        self.push_salted(vendor::MICROSOFT, vendor::MS_MPPE_RECV_KEY, &msk[..32]);
        self.push_salted(vendor::MICROSOFT, vendor::MS_MPPE_SEND_KEY, &msk[32..]);
        self
    }

    /// Adds all attributes of another list, including values to hide.
    pub fn extend(&mut self, other: &Self) -> &mut Self {
        let base = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&other.bytes);
        self.hidden.extend(other.hidden.iter().map(|h| HiddenValueRange { offset: h.offset + base, ..*h }));
        self
    }
    /// Replaces the value of the first attribute of a type by one of the same length. Returns false if the list has no
    /// attribute of this type and length.
    pub fn replace_value(&mut self, kind: u8, value: &[u8]) -> bool {
        match self.iter().find(|a| a.kind == kind).map(|a| value_offset_and_len(&self.bytes, a)) {
            Some((at, len)) if len == value.len() => {
                self.bytes[at..at + len].copy_from_slice(value);
                true
            }
            _ => false,
        }
    }
    /// Removes all attributes of a type and returns their number.
    pub fn remove(&mut self, kind: u8) -> usize {
        self.remove_where(|a| a.kind == kind)
    }
    fn remove_where(&mut self, which: impl Fn(&RawAttribute<'_>) -> bool) -> usize {
        let mut count = 0;
        while let Some((at, len)) = self
            .iter()
            .find(&which)
            .map(|a| value_offset_and_len(&self.bytes, a))
            .map(|(at, len)| (at - 2, len + 2))
        {
            self.remove_range(at..at + len);
            count += 1;
        }
        count
    }

    /// Appends the attributes to a packet and hides values. `salt` numbers the salted values of the packet, with its
    /// top bit set (RFC 2868 §3.5).
    pub fn encode_into(&self, out: &mut Vec<u8>, secret: &[u8], request_authenticator: &[u8; 16], salt: u16) {
        let base = out.len();
        out.extend_from_slice(&self.bytes);
        for (i, h) in self.hidden.iter().enumerate() {
            let at = base + h.offset as usize;
            let (front, blocks) = out[..at + h.len as usize].split_at_mut(at);
            match h.how {
                AttributeEncryption::Salted => {
                    let salt = (salt.wrapping_add(i as u16) | 0x8000).to_be_bytes();
                    front[at - SALT_LEN..].copy_from_slice(&salt);
                    hide_salted(secret, request_authenticator, salt, blocks);
                }
                AttributeEncryption::UserPassword => hide_password(secret, request_authenticator, blocks),
                AttributeEncryption::Ascend => hide_ascend(secret, request_authenticator, blocks),
                AttributeEncryption::None => {}
            }
        }
    }
    /// True if the attribute holds a secret in clear, which encoding hides.
    #[must_use]
    pub fn is_secret_to_hide(&self, a: &RawAttribute<'_>) -> bool {
        let (at, len) = value_offset_and_len(&self.bytes, *a);
        self.hidden.iter().any(|h| (at..at + len).contains(&(h.offset as usize)))
    }
    /// The maximum length of all attributes in a packet. Hiding adds a salt, a length and padding to 16 octets.
    #[must_use]
    pub fn packet_octets(&self) -> usize {
        const HIDDEN: usize = 2 + 1 + 15;
        self.bytes.len() + HIDDEN * self.hidden.len()
    }
    /// True if the list has values to hide.
    #[must_use]
    pub fn has_hidden(&self) -> bool {
        !self.hidden.is_empty()
    }
}

/// Returns offset and length of an attribute's value in its list.
fn value_offset_and_len(bytes: &[u8], a: RawAttribute<'_>) -> (usize, usize) {
    (a.value.as_ptr() as usize - bytes.as_ptr() as usize, a.value.len())
}

impl fmt::Debug for AttributeList {
    /// Prints types as numbers, without values to hide.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        for a in self.iter() {
            if self.is_secret_to_hide(&a) {
                list.entry(&format_args!("{}=(to be hidden)", a.kind));
            } else {
                list.entry(&format_args!("{}={}", a.kind, super::HexOctets(a.value)));
            }
        }
        list.finish()
    }
}

#[cfg(test)]
mod tests;
