//! Access to attributes by number, wherever they are on the wire: lookup, removal and insertion.

use super::list::{AttributeList, ValueTooLong};
use super::{MAX_VALUE, RawAttributeIter, SALT_LEN, VendorAttributeFormat, kind, read_extended, read_vendor};
use crate::dictionary::{AttributeEncryption, AttributeNumber};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::ops::Range;

/// An attribute of a packet with joined fragments, and its position.
struct ReassembledAttribute<'a> {
    kind: u8,
    /// Extended-Type.
    extended: Option<u8>,
    value: Cow<'a, [u8]>,
    range: Range<usize>,
}

fn joined_attributes(bytes: &[u8]) -> impl Iterator<Item = ReassembledAttribute<'_>> {
    let mut rest = RawAttributeIter::new(bytes);
    let at = |rest: &RawAttributeIter<'_>| bytes.len() - rest.remaining_bytes().len();
    core::iter::from_fn(move || {
        let begin = at(&rest);
        if let Some(e) = read_extended(&mut rest) {
            let range = begin..at(&rest);
            return Some(ReassembledAttribute {
                kind: e.kind,
                extended: Some(e.extended),
                value: e.value,
                range,
            });
        }
        let a = rest.next()?;
        let value = Cow::Borrowed(a.value);
        Some(ReassembledAttribute { kind: a.kind, extended: None, value, range: begin..at(&rest) })
    })
}

/// Passes on the values inside a TLV with these numbers.
fn find_tlv_values<'v>(bytes: &'v [u8], numbers: &[u32], found: &mut dyn FnMut(&'v [u8])) {
    let Some((&first, rest)) = numbers.split_first() else { return found(bytes) };
    for (number, range) in VendorAttributeFormat::SUGGESTED.split_attributes(bytes).unwrap_or_default() {
        if number == first {
            find_tlv_values(&bytes[range], rest, found);
        }
    }
}

impl AttributeNumber {
    /// Passes on the values of this number that an attribute holds.
    fn find_values<'v>(
        &self,
        whole: &ReassembledAttribute<'_>,
        value: &'v [u8],
        found: &mut dyn FnMut(&'v [u8]),
    ) {
        match *self.oid.parts() {
            [26, vendor, number, ref rest @ ..] if whole.kind == kind::VENDOR_SPECIFIC => {
                let Some((_, data)) = read_vendor(value).filter(|(of, _)| *of == vendor) else { return };
                for (_, range) in self
                    .framing
                    .split_attributes(data)
                    .unwrap_or_default()
                    .into_iter()
                    .filter(|s| s.0 == number)
                {
                    find_tlv_values(&data[range], rest, found);
                }
            }
            [outer, extended, ref rest @ ..]
                if u32::from(whole.kind) == outer && whole.extended.map(u32::from) == Some(extended) =>
            {
                let [vendor, number, rest @ ..] = rest else { return find_tlv_values(value, rest, found) };
                if extended != u32::from(kind::VENDOR_SPECIFIC) {
                    let below = [&[*vendor, *number], rest].concat();
                    return find_tlv_values(value, &below, found);
                }
                if let Some((of, [kind, data @ ..])) = read_vendor(value)
                    && (of, u32::from(*kind)) == (*vendor, *number)
                {
                    find_tlv_values(data, rest, found);
                }
            }
            [outer, ref rest @ ..] if u32::from(whole.kind) == outer && whole.extended.is_none() => {
                find_tlv_values(value, rest, found);
            }
            _ => {}
        }
    }
}

impl AttributeList {
    /// The values of an attribute, including those inside other attributes. Fragments of a long extended attribute are
    /// joined (RFC 6929 §2.2). Attributes that continue each other, such as EAP-Message or WiMAX's, count as separate
    /// values.
    #[must_use]
    pub fn values_at(&self, place: &AttributeNumber) -> Vec<Cow<'_, [u8]>> {
        if let [number] = *place.oid.parts() {
            let number = u8::try_from(number).unwrap_or_default();
            return self.get_all(number).map(Cow::Borrowed).collect();
        }
        let mut all = Vec::new();
        for whole in joined_attributes(self.as_bytes()) {
            match &whole.value {
                Cow::Borrowed(value) => {
                    place.find_values(&whole, value, &mut |found| all.push(Cow::Borrowed(found)));
                }
                Cow::Owned(value) => {
                    place.find_values(&whole, value, &mut |found| all.push(Cow::Owned(found.to_vec())));
                }
            }
        }
        all
    }

    /// Removes every attribute that holds a value of this number, with all its other contents. Returns their number.
    pub fn remove_by_number(&mut self, place: &AttributeNumber) -> usize {
        if let [number] = *place.oid.parts() {
            return self.remove(u8::try_from(number).unwrap_or_default());
        }
        let mut ranges = Vec::new();
        for whole in joined_attributes(self.as_bytes()) {
            let mut holds = false;
            place.find_values(&whole, &whole.value, &mut |_| holds = true);
            if holds {
                ranges.push(whole.range);
            }
        }
        for range in ranges.iter().rev() {
            self.remove_range(range.clone());
        }
        ranges.len()
    }

    /// Adds a value with the headers that its number needs. `tag` is an octet before the value (RFC 2868 §3). Values to
    /// hide are given in clear.
    ///
    /// # Errors
    /// If it does not fit an attribute, or needs hiding in a number whose values are fragmented.
    pub fn push_by_number(
        &mut self,
        place: &AttributeNumber,
        tag: Option<u8>,
        encryption: AttributeEncryption,
        value: &[u8],
    ) -> Result<&mut Self, ValueTooLong> {
        let parts = place.oid.parts();
        let outer = parts.first().map_or(0, |n| *n as u8);
        let too_long = |max| ValueTooLong { kind: outer, length: value.len(), max };
        let mut head = AttributeHeaderBuilder::default();
        let rest = match *parts {
            [n, extended, ref rest @ ..] if (u32::from(kind::LONG_EXTENDED_1)..=246).contains(&n) => {
                if encryption != AttributeEncryption::None {
                    return Err(too_long(0));
                }
                let rest = head.push_evs(extended, rest);
                rest.iter().for_each(|n| head.push_tlv(*n));
                let octets = head.prepend_headers(&[tag.as_slice(), value].concat());
                let octets = octets.ok_or_else(|| too_long(MAX_VALUE - head.octets.len()))?;
                return Ok(self.push_long_extended(outer, extended as u8, &octets));
            }
            [26, vendor, number, ref rest @ ..] => {
                head.push_tlv(u32::from(kind::VENDOR_SPECIFIC));
                head.octets.extend_from_slice(&vendor.to_be_bytes());
                head.push_vendor_header(place.framing, number);
                rest
            }
            [n, extended, ref rest @ ..] if (u32::from(kind::EXTENDED_1)..=244).contains(&n) => {
                head.push_tlv(n);
                head.octets.push(extended as u8);
                head.push_evs(extended, rest)
            }
            ref all => {
                let (first, rest) = all.split_first().map_or((0, &[][..]), |(f, r)| (*f, r));
                head.push_tlv(first);
                rest
            }
        };
        rest.iter().for_each(|n| head.push_tlv(*n));
        let front = head.octets.len() + tag.iter().count();
        let (body, hidden) = encode_value_for_hiding(tag, encryption, value);
        let max = (MAX_VALUE + 2).saturating_sub(front);
        let max = match encryption {
            AttributeEncryption::None => max,
            AttributeEncryption::Ascend => 16,
            AttributeEncryption::UserPassword => max / 16 * 16,
            AttributeEncryption::Salted => (max.saturating_sub(SALT_LEN) / 16 * 16).saturating_sub(1),
        };
        if value.len() > max {
            return Err(too_long(max));
        }
        let octets = head.prepend_headers(&body).ok_or_else(|| too_long(max))?;
        self.append_attribute(
            &octets,
            hidden.then(|| (octets.len() - body.len() + tag.iter().count(), encryption)),
        );
        Ok(self)
    }
}

/// Returns a value with its tag and the padding for hiding, and true if it is to be hidden.
fn encode_value_for_hiding(
    tag: Option<u8>,
    encryption: AttributeEncryption,
    value: &[u8],
) -> (Vec<u8>, bool) {
    let mut body = Vec::from(tag.as_slice());
    let padded = |body: &mut Vec<u8>, from: usize| {
        let length = (body.len() - from).next_multiple_of(16).max(16);
        body.resize(from + length, 0);
    };
    let from = body.len();
    match encryption {
        AttributeEncryption::None => body.extend_from_slice(value),
        AttributeEncryption::UserPassword | AttributeEncryption::Ascend => {
            body.extend_from_slice(value);
            padded(&mut body, from);
        }
        AttributeEncryption::Salted => {
            body.extend_from_slice(&[0; SALT_LEN]);
            body.push(value.len() as u8);
            body.extend_from_slice(value);
            padded(&mut body, from + SALT_LEN);
        }
    }
    (body, encryption != AttributeEncryption::None)
}

/// The headers around a value. Their lengths are set once the value is known.
#[derive(Default)]
struct AttributeHeaderBuilder {
    octets: Vec<u8>,
    /// For each length: the start of the header it counts from, its offset and its size in octets.
    lengths: Vec<(usize, usize, u8)>,
}

impl AttributeHeaderBuilder {
    fn push_tlv(&mut self, number: u32) {
        self.push_vendor_header(VendorAttributeFormat::SUGGESTED, number);
    }
    fn push_vendor_header(&mut self, framing: VendorAttributeFormat, number: u32) {
        let begin = self.octets.len();
        let types = usize::from(framing.type_octets).min(4);
        self.octets.extend_from_slice(&number.to_be_bytes()[4 - types..]);
        self.lengths.push((begin, self.octets.len(), framing.length_octets));
        self.octets.resize(begin + framing.header_length(), 0);
    }
    /// Adds vendor and type of an extended vendor-specific attribute (RFC 6929 §2.4). Returns the remaining numbers.
    fn push_evs<'n>(&mut self, extended: u32, rest: &'n [u32]) -> &'n [u32] {
        match rest {
            [vendor, number, below @ ..] if extended == u32::from(kind::VENDOR_SPECIFIC) => {
                self.octets.extend_from_slice(&vendor.to_be_bytes());
                self.octets.push(*number as u8);
                below
            }
            _ => rest,
        }
    }
    /// Returns headers and body; `None` if a length overflows.
    fn prepend_headers(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mut whole = [&self.octets, body].concat();
        for &(begin, at, octets) in &self.lengths {
            let length = whole.len() - begin;
            match octets {
                0 => {}
                1 => whole[at] = u8::try_from(length).ok()?,
                _ => whole[at..at + 2].copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes()),
            }
        }
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dictionary::{AttributeOid, is_encodable_attribute};
    use proptest::prelude::*;

    fn attribute_number(parts: &[u32], framing: VendorAttributeFormat) -> AttributeNumber {
        AttributeNumber { oid: AttributeOid::new(parts).unwrap(), framing }
    }
    const USR: VendorAttributeFormat =
        VendorAttributeFormat { type_octets: 4, length_octets: 0, continuation: false };
    const LUCENT: VendorAttributeFormat =
        VendorAttributeFormat { type_octets: 2, length_octets: 1, continuation: false };
    const STARENT: VendorAttributeFormat =
        VendorAttributeFormat { type_octets: 2, length_octets: 2, continuation: false };
    const WIMAX: VendorAttributeFormat =
        VendorAttributeFormat { type_octets: 1, length_octets: 1, continuation: true };

    fn attribute_numbers() -> Vec<AttributeNumber> {
        Vec::from([
            attribute_number(&[11], VendorAttributeFormat::SUGGESTED),
            attribute_number(&[26, 9, 1], VendorAttributeFormat::SUGGESTED),
            attribute_number(&[26, 429, 0x9001], USR),
            attribute_number(&[26, 4846, 300], LUCENT),
            attribute_number(&[26, 8164, 300], STARENT),
            attribute_number(&[26, 24757, 1, 2], WIMAX),
            attribute_number(&[26, 25053, 153, 7], VendorAttributeFormat::SUGGESTED),
            attribute_number(&[173, 2], VendorAttributeFormat::SUGGESTED),
            attribute_number(&[241, 5, 1], VendorAttributeFormat::SUGGESTED),
            attribute_number(&[241, 26, 9, 1], VendorAttributeFormat::SUGGESTED),
            attribute_number(&[245, 3], VendorAttributeFormat::SUGGESTED),
            attribute_number(&[245, 26, 11_344, 1, 2], VendorAttributeFormat::SUGGESTED),
        ])
    }

    #[test]
    fn an_attribute_stands_where_its_numbers_say() {
        let octets = |parts: &[u32], framing| {
            let mut list = AttributeList::new();
            list.push_by_number(&attribute_number(parts, framing), None, AttributeEncryption::None, b"ab")
                .unwrap();
            list.as_bytes().to_vec()
        };
        assert_eq!(octets(&[11], VendorAttributeFormat::SUGGESTED), [11, 4, b'a', b'b']);
        assert_eq!(
            octets(&[26, 9, 1], VendorAttributeFormat::SUGGESTED),
            [26, 10, 0, 0, 0, 9, 1, 4, b'a', b'b']
        );
        assert_eq!(octets(&[26, 429, 0x9001], USR), [26, 12, 0, 0, 1, 173, 0, 0, 0x90, 1, b'a', b'b']);
        assert_eq!(octets(&[26, 4846, 300], LUCENT), [26, 11, 0, 0, 0x12, 0xee, 1, 44, 5, b'a', b'b']);
        assert_eq!(octets(&[26, 8164, 3], STARENT), [26, 12, 0, 0, 0x1f, 0xe4, 0, 3, 0, 6, b'a', b'b']);
        assert_eq!(octets(&[26, 24757, 1, 2], WIMAX), [26, 13, 0, 0, 0x60, 0xb5, 1, 7, 0, 2, 4, b'a', b'b']);
        assert_eq!(
            octets(&[241, 26, 9, 1], VendorAttributeFormat::SUGGESTED),
            [241, 10, 26, 0, 0, 0, 9, 1, b'a', b'b']
        );
        assert_eq!(octets(&[245, 3], VendorAttributeFormat::SUGGESTED), [245, 6, 3, 0, b'a', b'b']);
    }

    #[test]
    fn what_is_too_long_is_not_added() {
        let fits = |place: &AttributeNumber, encryption, length: usize| {
            let mut list = AttributeList::new();
            let tag = (encryption == AttributeEncryption::Salted).then_some(1);
            let done = list.push_by_number(place, tag, encryption, &alloc::vec![7; length]).map(drop);
            assert_eq!(done.is_err(), list.is_empty());
            done.map_err(|e| e.max)
        };
        let cisco = attribute_number(&[26, 9, 1], VendorAttributeFormat::SUGGESTED);
        for (encryption, most) in [
            (AttributeEncryption::None, 247),
            (AttributeEncryption::UserPassword, 240),
            (AttributeEncryption::Salted, 239),
            (AttributeEncryption::Ascend, 16),
        ] {
            assert_eq!(fits(&cisco, encryption, most), Ok(()), "{encryption:?}");
            assert_eq!(fits(&cisco, encryption, most + 1), Err(most), "{encryption:?}");
        }
        // A fragmented attribute may be longer, but no length inside it may overflow.
        let long = attribute_number(&[245, 26, 11_344, 1], VendorAttributeFormat::SUGGESTED);
        assert_eq!(fits(&long, AttributeEncryption::None, 4000), Ok(()));
        assert!(
            fits(
                &attribute_number(&[245, 26, 11_344, 1, 2], VendorAttributeFormat::SUGGESTED),
                AttributeEncryption::None,
                254
            )
            .is_err()
        );
        assert!(fits(&long, AttributeEncryption::Salted, 1).is_err());
    }

    #[test]
    fn of_several_in_one_attribute_all_are_found() {
        let mut list = AttributeList::new();
        list.push_bytes(26, &[0, 0, 0, 9, 1, 3, b'a', 2, 3, b'b', 1, 3, b'c']).unwrap();
        list.push_bytes(26, &[0, 0, 0, 9, 1, 9]).unwrap().push_text(1, "ann").unwrap();
        let cisco = attribute_number(&[26, 9, 1], VendorAttributeFormat::SUGGESTED);
        assert_eq!(list.values_at(&cisco), [&b"a"[..], b"c"]);
        assert_eq!((list.remove_by_number(&cisco), list.iter().count()), (1, 2));
        assert!(list.values_at(&cisco).is_empty());
    }

    #[test]
    fn only_numbers_that_a_packet_can_have_are_sent() {
        let sent =
            |parts: &[u32], framing| is_encodable_attribute(AttributeOid::new(parts).unwrap(), framing);
        for place in attribute_numbers() {
            assert!(is_encodable_attribute(place.oid, place.framing), "{place:?}");
        }
        assert!(sent(&[26], VendorAttributeFormat::SUGGESTED));
        for parts in [
            &[0][..],
            &[3000],
            &[26, 9],
            &[26, 9, 256],
            &[26, 9, 1, 0],
            &[26, 0, 1],
            &[241, 26, 0, 1],
            &[241],
            &[241, 26, 9],
            &[245, 300],
        ] {
            assert!(!sent(parts, VendorAttributeFormat::SUGGESTED), "{parts:?}");
        }
    }

    /// A value with its number, and an optional tag.
    fn arbitrary_placement() -> impl Strategy<Value = (usize, Option<u8>, Vec<u8>)> {
        (0..attribute_numbers().len(), any::<Option<u8>>(), proptest::collection::vec(any::<u8>(), 1..120))
    }

    proptest! {
        #[test]
        fn what_is_put_in_is_found_there_and_taken_out_again(
            picks in proptest::collection::vec(arbitrary_placement(), 1..8),
        ) {
            let places = attribute_numbers();
            let mut list = AttributeList::new();
            for (i, tag, value) in &picks {
                list.push_by_number(&places[*i], *tag, AttributeEncryption::None, value).unwrap();
            }
            prop_assert!(AttributeList::parse_attribute_list(list.as_bytes()).is_ok());
            let found = |list: &AttributeList| -> Vec<Vec<Vec<u8>>> {
                let at = |place: &AttributeNumber| list.values_at(place).into_iter().map(Cow::into_owned).collect();
                places.iter().map(at).collect()
            };
            let all = found(&list);
            for (i, place) in places.iter().enumerate() {
                let of = picks.iter().filter(|(at, ..)| *at == i);
                let put: Vec<Vec<u8>> = of.map(|(_, tag, value)| [tag.as_slice(), value].concat()).collect();
                prop_assert_eq!(&all[i], &put);
                let mut without = list.clone();
                prop_assert_eq!(without.remove_by_number(place), put.len());
                // Each is in an attribute of its own: other attributes are unchanged.
                let mut left = all.clone();
                left[i].clear();
                prop_assert_eq!(found(&without), left);
            }
        }

        /// Lists as a packet may have them: whole attributes of the kinds that hold others, with one octet changed.
        #[test]
        fn octets_that_are_wrong_within_an_attribute_never_panic(
            picks in proptest::collection::vec((arbitrary_placement(), any::<u8>(), any::<u8>()), 1..8),
        ) {
            let places = attribute_numbers();
            let mut octets = Vec::new();
            for ((i, tag, value), at, flip) in &picks {
                let mut one = AttributeList::new();
                one.push_by_number(&places[*i], *tag, AttributeEncryption::None, value).unwrap();
                let mut one = one.as_bytes().to_vec();
                // Its own type and length stay unchanged.
                let at = 2 + usize::from(*at) % (one.len() - 2);
                one[at] ^= flip;
                octets.extend(one);
            }
            let list = AttributeList::parse_attribute_list(&octets).unwrap();
            let mut met = 0;
            for place in &places {
                let mut list = list.clone();
                let found = list.values_at(place).len();
                let removed = list.remove_by_number(place);
                met += found;
                prop_assert!(removed <= found && (found == 0) == (removed == 0));
                prop_assert!(list.values_at(place).is_empty());
                prop_assert!(AttributeList::parse_attribute_list(list.as_bytes()).is_ok());
            }
            let untouched = picks.iter().any(|(_, _, flip)| *flip == 0);
            prop_assert!(met > 0 || !untouched, "what was not changed is found");
        }

        #[test]
        fn arbitrary_octets_never_panic(bytes: Vec<u8>, numbers in proptest::collection::vec(0..300u32, 1..6)) {
            if let (Ok(mut list), Some(oid)) = (AttributeList::parse_attribute_list(&bytes), AttributeOid::new(&numbers)) {
                for framing in [VendorAttributeFormat::SUGGESTED, USR, LUCENT, STARENT, WIMAX] {
                    let place = AttributeNumber { oid, framing };
                    let found = list.values_at(&place).len();
                    let removed = list.remove_by_number(&place);
                    prop_assert!(removed <= found);
                }
            }
        }
    }
}
