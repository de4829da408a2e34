//! The encoding of data types: the standard's basic and derived types, each with one reader and one writer.
//!
//! A list is its number of elements and the elements. An octet string is a list of octets. A choice is an octet that
//! selects the variant, and the variant's value. A sequence is its members in order (annex F).

use alloc::vec::Vec;
use usher_core::{OctetReader, OctetWriter, TruncatedInputError};

/// Why octets are not a valid value of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ValueError {
    /// The octets end too early.
    #[error(transparent)]
    Truncated(#[from] TruncatedInputError),
    /// The type has no such choice.
    #[error("the type has no choice {0}")]
    Choice(u8),
    /// A BOOLEAN other than 0 and 1.
    #[error("{0} is not a truth value")]
    Boolean(u8),
    /// A length or an address type that the type does not allow.
    #[error("the type does not allow {0}")]
    Form(u64),
    /// Octets remain after the value.
    #[error("{0} octets follow the value")]
    Trailing(usize),
}

/// A data type of the standard.
pub(crate) trait WireValue: Sized {
    /// Appends the value.
    fn write_to(&self, w: &mut OctetWriter<'_>);
    /// Reads a value.
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError>;
}

/// Generates values of a type for tests, with lists of a few elements.
#[cfg(test)]
pub(crate) trait SampleValue: Sized + core::fmt::Debug {
    fn any_sample() -> proptest::strategy::BoxedStrategy<Self>;
}

/// Reads one value that takes all the octets.
pub(crate) fn read_whole_value<T: WireValue>(octets: &[u8]) -> Result<T, ValueError> {
    let mut r = OctetReader::new(octets);
    let value = T::read_from(&mut r)?;
    if r.is_empty() { Ok(value) } else { Err(ValueError::Trailing(r.remaining())) }
}

/// Returns the number of octets that encode the length `n`.
pub(crate) const fn length_octets(n: usize) -> usize {
    if n <= 128 { 1 } else { 1 + significant_octets(n - 128) }
}

const fn significant_octets(n: usize) -> usize {
    let bits = usize::BITS - n.leading_zeros();
    let octets = bits.div_ceil(8);
    if octets == 0 { 1 } else { octets as usize }
}

/// Appends a length. Up to 127 takes one octet; 128 is `0x80`. More is `0x80 + n` and the excess over 128 in `n`
/// octets.
pub(crate) fn write_mih_length(w: &mut OctetWriter<'_>, n: usize) {
    if n <= 128 {
        w.write_u8(n as u8);
    } else {
        let excess = (n - 128).to_be_bytes();
        let octets = significant_octets(n - 128);
        w.write_u8(0x80 | octets as u8).write_bytes(&excess[excess.len() - octets..]);
    }
}

/// Reads a length. An encoding longer than needed is valid.
pub(crate) fn read_mih_length(r: &mut OctetReader<'_>) -> Result<usize, ValueError> {
    let first = r.read_u8()?;
    if first <= 0x80 {
        return Ok(usize::from(first));
    }
    let mut excess = 0u64;
    for octet in r.read_bytes(usize::from(first & 0x7f))? {
        if excess > u64::from(u32::MAX) {
            return Err(ValueError::Form(excess));
        }
        excess = excess << 8 | u64::from(*octet);
    }
    usize::try_from(excess + 128).map_err(|_| ValueError::Form(excess))
}

macro_rules! integers {
    ($($type:ty: $read:ident $write:ident),*) => {$(
        impl WireValue for $type {
            fn write_to(&self, w: &mut OctetWriter<'_>) {
                w.$write(*self);
            }
            fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
                Ok(r.$read()?)
            }
        }
    )*};
}
integers!(u8: read_u8 write_u8, u16: read_u16 write_u16, u32: read_u32 write_u32, u64: read_u64 write_u64);

impl WireValue for i8 {
    fn write_to(&self, w: &mut OctetWriter<'_>) {
        w.write_u8(*self as u8);
    }
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
        Ok(r.read_u8()? as i8)
    }
}

impl WireValue for bool {
    fn write_to(&self, w: &mut OctetWriter<'_>) {
        w.write_u8(u8::from(*self));
    }
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
        match r.read_u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(ValueError::Boolean(other)),
        }
    }
}

impl<const N: usize> WireValue for [u8; N] {
    fn write_to(&self, w: &mut OctetWriter<'_>) {
        w.write_bytes(self);
    }
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
        Ok(r.read_array()?)
    }
}

impl<T: WireValue> WireValue for Vec<T> {
    fn write_to(&self, w: &mut OctetWriter<'_>) {
        write_mih_length(w, self.len());
        self.iter().for_each(|element| element.write_to(w));
    }
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
        let n = read_mih_length(r)?;
        // Each element takes at least one octet, so a valid list has no more elements than octets remain.
        if n > r.remaining() {
            return Err(TruncatedInputError { needed: n, left: r.remaining() }.into());
        }
        (0..n).map(|_| T::read_from(r)).collect()
    }
}

/// An optional value: a choice between NULL and the value.
impl<T: WireValue> WireValue for Option<T> {
    fn write_to(&self, w: &mut OctetWriter<'_>) {
        match self {
            None => {
                w.write_u8(0);
            }
            Some(value) => {
                w.write_u8(1);
                value.write_to(w);
            }
        }
    }
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
        match r.read_u8()? {
            0 => Ok(None),
            1 => T::read_from(r).map(Some),
            other => Err(ValueError::Choice(other)),
        }
    }
}

/// Declares an enumeration of one octet with names for the known values. All other values are kept.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $octet:literal $print:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
            /// An unnamed value.
            Other(u8),
        }
        impl $name {
            /// The named values.
            pub const KNOWN: &'static [Self] = &[$(Self::$variant),*];
            /// Returns the encoded octet.
            pub const fn octet(self) -> u8 {
                match self { $(Self::$variant => $octet,)* Self::Other(octet) => octet }
            }
        }
        impl From<u8> for $name {
            fn from(octet: u8) -> Self {
                match octet { $($octet => Self::$variant,)* other => Self::Other(other) }
            }
        }
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self { $(Self::$variant => f.write_str($print),)* Self::Other(octet) => write!(f, "{octet}") }
            }
        }
        #[cfg(test)]
        impl crate::wire::SampleValue for $name {
            fn any_sample() -> proptest::strategy::BoxedStrategy<Self> {
                use proptest::prelude::*;
                any::<u8>().prop_map(Self::from).boxed()
            }
        }
        impl crate::wire::WireValue for $name {
            fn write_to(&self, w: &mut usher_core::OctetWriter<'_>) {
                w.write_u8(self.octet());
            }
            fn read_from(r: &mut usher_core::OctetReader<'_>) -> Result<Self, crate::wire::ValueError> {
                Ok(Self::from(r.read_u8()?))
            }
        }
    };
}
pub(crate) use codes;

/// Declares a bitmap. Bit 0 is the leftmost, as the standard counts.
macro_rules! bitmap {
    ($(#[$meta:meta])* $name:ident: $int:ident { $($(#[$doc:meta])* $flag:ident = $bit:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $int);
        impl $name {
            $($(#[$doc])* pub const $flag: Self = Self(1 << ($int::BITS - 1 - $bit));)*
            /// The empty set.
            pub const NONE: Self = Self(0);
            /// Returns the union.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
            /// Returns the intersection.
            #[must_use]
            pub const fn common(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
            /// Returns the bits of this set that the other lacks.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
            /// True if this set contains all of `other`.
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
            /// True if no bit is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }
        #[cfg(test)]
        impl crate::wire::SampleValue for $name {
            fn any_sample() -> proptest::strategy::BoxedStrategy<Self> {
                use proptest::prelude::*;
                any::<$int>().prop_map(Self).boxed()
            }
        }
        impl crate::wire::WireValue for $name {
            fn write_to(&self, w: &mut usher_core::OctetWriter<'_>) {
                self.0.write_to(w);
            }
            fn read_from(r: &mut usher_core::OctetReader<'_>) -> Result<Self, crate::wire::ValueError> {
                $int::read_from(r).map(Self)
            }
        }
    };
}
pub(crate) use bitmap;

/// Declares a sequence: a struct whose members are encoded in order.
macro_rules! sequence {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub struct $name { $($(#[$doc])* pub $field: $type,)* }
        #[cfg(test)]
        impl crate::wire::SampleValue for $name {
            fn any_sample() -> proptest::strategy::BoxedStrategy<Self> {
                use proptest::prelude::*;
                let members = ($(<$type as crate::wire::SampleValue>::any_sample(),)*);
                members.prop_map(|($($field,)*)| Self { $($field),* }).boxed()
            }
        }
        impl crate::wire::WireValue for $name {
            fn write_to(&self, w: &mut usher_core::OctetWriter<'_>) {
                $(self.$field.write_to(w);)*
            }
            fn read_from(r: &mut usher_core::OctetReader<'_>) -> Result<Self, crate::wire::ValueError> {
                Ok(Self { $($field: crate::wire::WireValue::read_from(r)?,)* })
            }
        }
    };
}
pub(crate) use sequence;

/// Declares a choice: an enumeration whose first octet selects the variant.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident($type:ty) = $octet:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $($(#[$doc])* $variant($type),)* }
        #[cfg(test)]
        impl crate::wire::SampleValue for $name {
            fn any_sample() -> proptest::strategy::BoxedStrategy<Self> {
                use proptest::prelude::*;
                let variants = [$(<$type as crate::wire::SampleValue>::any_sample().prop_map(Self::$variant).boxed()),*];
                proptest::strategy::Union::new(variants).boxed()
            }
        }
        impl crate::wire::WireValue for $name {
            fn write_to(&self, w: &mut usher_core::OctetWriter<'_>) {
                match self {
                    $(Self::$variant(value) => {
                        w.write_u8($octet);
                        value.write_to(w);
                    })*
                }
            }
            fn read_from(r: &mut usher_core::OctetReader<'_>) -> Result<Self, crate::wire::ValueError> {
                match r.read_u8()? {
                    $($octet => crate::wire::WireValue::read_from(r).map(Self::$variant),)*
                    other => Err(crate::wire::ValueError::Choice(other)),
                }
            }
        }
    };
}
pub(crate) use choice;

#[cfg(test)]
mod samples {
    use super::SampleValue;
    use crate::element::*;
    use crate::handover::{NetworkOffer, NetworkType, TspContainer};
    use crate::{LinkAddr, MihfId};
    use alloc::vec::Vec;
    use core::net::IpAddr;
    use proptest::collection::vec;
    use proptest::prelude::*;

    macro_rules! any {
        ($($type:ty),*) => {$(
            impl SampleValue for $type {
                fn any_sample() -> BoxedStrategy<Self> {
                    any::<Self>().boxed()
                }
            }
        )*};
    }
    any!(u8, u16, u32, u64, i8, bool, [u8; 3], IpAddr);

    impl<T: SampleValue + 'static> SampleValue for Vec<T> {
        fn any_sample() -> BoxedStrategy<Self> {
            vec(T::any_sample(), 0..4).boxed()
        }
    }
    impl<T: SampleValue + 'static> SampleValue for Option<T> {
        fn any_sample() -> BoxedStrategy<Self> {
            proptest::option::of(T::any_sample()).boxed()
        }
    }
    impl<T: SampleValue + Clone + 'static> SampleValue for NetworkOffer<T> {
        fn any_sample() -> BoxedStrategy<Self> {
            let has = any::<bool>().prop_map(Self::Has);
            prop_oneof![Just(Self::Unspecified), has, T::any_sample().prop_map(Self::Is)].boxed()
        }
    }
    impl SampleValue for MihfId {
        fn any_sample() -> BoxedStrategy<Self> {
            vec(any::<u8>(), 0..=253).prop_map(|octets| Self::new(octets).unwrap()).boxed()
        }
    }
    impl SampleValue for TspContainer {
        fn any_sample() -> BoxedStrategy<Self> {
            let carrier = vec(any::<u8>(), 0..300).prop_map(Self::Carrier);
            prop_oneof![Just(Self::None), any::<u8>().prop_map(Self::Predefined), carrier].boxed()
        }
    }
    impl SampleValue for LinkAddr {
        fn any_sample() -> BoxedStrategy<Self> {
            let octets = || vec(any::<u8>(), 0..9);
            let plmn = any::<[u8; 3]>;
            prop_oneof![
                any::<[u8; 6]>().prop_map(Self::Mac),
                (plmn(), any::<u32>()).prop_map(|(plmn, cell)| Self::Cell3g { plmn, cell }),
                (plmn(), any::<[u16; 2]>()).prop_map(|(plmn, [area, cell])| Self::Cell2g {
                    plmn,
                    area,
                    cell
                }),
                octets().prop_map(Self::Gpp),
                octets().prop_map(Self::Gpp2),
                octets().prop_map(Self::Other),
            ]
            .boxed()
        }
    }
    impl SampleValue for InformationElementType {
        fn any_sample() -> BoxedStrategy<Self> {
            any::<u32>().prop_map(Self).boxed()
        }
    }
    impl SampleValue for BinaryQuery {
        fn any_sample() -> BoxedStrategy<Self> {
            (
                SampleValue::any_sample(),
                SampleValue::any_sample(),
                SampleValue::any_sample(),
                SampleValue::any_sample(),
                SampleValue::any_sample(),
            )
                .prop_map(|(technologies, networks, elements, limit, currency)| Self {
                    technologies,
                    networks,
                    elements,
                    limit,
                    currency,
                })
                .boxed()
        }
    }
    impl SampleValue for PoaInfo {
        fn any_sample() -> BoxedStrategy<Self> {
            (SampleValue::any_sample(), SampleValue::any_sample())
                .prop_map(|(address, location)| Self { address, location })
                .boxed()
        }
    }
    impl SampleValue for NetworkInfo {
        fn any_sample() -> BoxedStrategy<Self> {
            (
                Option::<NetworkType>::any_sample(),
                SampleValue::any_sample(),
                SampleValue::any_sample(),
                SampleValue::any_sample(),
            )
                .prop_map(|(network, operator, name, poas)| Self { network, operator, name, poas })
                .boxed()
        }
    }
    impl SampleValue for NetworkList {
        fn any_sample() -> BoxedStrategy<Self> {
            Vec::<NetworkInfo>::any_sample().prop_map(Self).boxed()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_are_written_as_the_standard_says() {
        for (n, octets) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[0x80]),
            (129, &[0x81, 1]),
            (383, &[0x81, 255]),
            (384, &[0x82, 1, 0]),
            (65_663, &[0x82, 255, 255]),
        ] {
            let mut out = Vec::new();
            write_mih_length(&mut OctetWriter::new(&mut out), n);
            assert_eq!(out, octets, "{n}");
            assert_eq!(length_octets(n), octets.len(), "{n}");
            assert_eq!(read_mih_length(&mut OctetReader::new(&out)), Ok(n));
        }
    }

    #[test]
    fn a_length_may_have_leading_zeros_but_must_fit_a_number() {
        assert_eq!(read_mih_length(&mut OctetReader::new(&[0x81, 0])), Ok(128));
        assert_eq!(read_mih_length(&mut OctetReader::new(&[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7])), Ok(135));
        assert!(matches!(
            read_mih_length(&mut OctetReader::new(&[0x86, 1, 0, 0, 0, 0, 0])),
            Err(ValueError::Form(_))
        ));
        assert!(read_mih_length(&mut OctetReader::new(&[0x82, 1])).is_err());
    }

    #[test]
    fn a_list_longer_than_its_octets_is_refused_at_once() {
        assert!(read_whole_value::<Vec<u8>>(&[0x84, 0xff, 0xff, 0xff, 0, 1]).is_err());
        assert_eq!(read_whole_value::<Vec<u16>>(&[2, 0, 1, 0, 2]), Ok(alloc::vec![1, 2]));
        assert_eq!(read_whole_value::<Vec<u16>>(&[1, 0, 1, 9]), Err(ValueError::Trailing(1)));
    }

    proptest! {
        #[test]
        fn lengths_are_read_as_written(n in 0usize..1 << 24) {
            let mut out = Vec::new();
            write_mih_length(&mut OctetWriter::new(&mut out), n);
            prop_assert_eq!(out.len(), length_octets(n));
            prop_assert_eq!(read_mih_length(&mut OctetReader::new(&out)), Ok(n));
        }
    }
}
