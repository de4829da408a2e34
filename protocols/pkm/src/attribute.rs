//! Attributes: a type, a length, a value.

use crate::message::MessageError;
use core::fmt;
use usher_core::{OctetReader, OctetWriter};

/// Maximum octets of a value, the limit of the dissector.
pub const MAX_VALUE: usize = 64_000;
/// Maximum attributes of a message or of a compound attribute.
pub const MAX_ATTRIBUTES: usize = 64;

/// The type of an attribute.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeType(pub u8);

/// The length or structure of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AttributeValueFormat {
    /// Any length.
    Free,
    /// This many octets.
    Fixed(usize),
    /// A series of attributes.
    Compound,
}

/// Declares the attribute types: number, printed name, shape.
macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident = $octet:literal $print:literal $shape:tt,)*) => {
        impl AttributeType {
            $($(#[$doc])* pub const $name: Self = Self($octet);)*
            const fn known(self) -> Option<(&'static str, AttributeValueFormat)> {
                match self.0 { $($octet => Some(($print, attributes!(@ $shape))),)* _ => None }
            }
        }
    };
    (@ free) => { AttributeValueFormat::Free };
    (@ compound) => { AttributeValueFormat::Compound };
    (@ $octets:literal) => { AttributeValueFormat::Fixed($octets) };
}

attributes! {
    /// Human-readable text.
    DISPLAY_STRING = 6 "Display-String" free,
    /// An authorization key, encrypted.
    AUTH_KEY = 7 "Auth-Key" free,
    /// A traffic key, encrypted.
    TEK = 8 "TEK" free,
    /// Lifetime of a key in seconds, 32 bits.
    KEY_LIFETIME = 9 "Key-Lifetime" 4,
    /// Number of a key, 8 bits.
    KEY_SEQUENCE_NUMBER = 10 "Key-Sequence-Number" 1,
    /// HMAC-SHA1 over the message.
    HMAC_DIGEST = 11 "HMAC-Digest" 20,
    /// Identifier of a security association, 16 bits.
    SAID = 12 "SAID" 2,
    /// A traffic key with its parameters.
    TEK_PARAMETERS = 13 "TEK-Parameters" compound,
    /// Initialization vector of a traffic key.
    CBC_IV = 15 "CBC-IV" free,
    /// The reason of a rejection.
    ERROR_CODE = 16 "Error-Code" 1,
    /// X.509 certificate of the station's manufacturer.
    CA_CERTIFICATE = 17 "CA-Certificate" free,
    /// X.509 certificate of the station.
    SS_CERTIFICATE = 18 "SS-Certificate" free,
    /// Capabilities of a station.
    SECURITY_CAPABILITIES = 19 "Security-Capabilities" compound,
    /// Data encryption, data authentication and key encryption: one octet each.
    CRYPTOGRAPHIC_SUITE = 20 "Cryptographic-Suite" 3,
    /// Cryptographic suites.
    CRYPTOGRAPHIC_SUITE_LIST = 21 "Cryptographic-Suite-List" free,
    /// PKM's version.
    VERSION = 22 "Version" 1,
    /// A security association.
    SA_DESCRIPTOR = 23 "SA-Descriptor" compound,
    /// Primary, static or dynamic.
    SA_TYPE = 24 "SA-Type" 1,
    /// The negotiated parameters of both sides.
    SECURITY_NEGOTIATION_PARAMETERS = 25 "Security-Negotiation-Parameters" compound,
    /// Timers of the station's key management.
    PKM_CONFIGURATION_SETTINGS = 27 "PKM-Configuration-Settings" compound,
    /// An EAP packet.
    EAP_PAYLOAD = 28 "EAP-Payload" free,
    /// A number used once, 64 bits.
    NONCE = 29 "Nonce" 8,
    /// The result of RSA authorization.
    AUTH_RESULT_CODE = 30 "Auth-Result-Code" 1,
    /// Unicast, group or multicast.
    SA_SERVICE_TYPE = 31 "SA-Service-Type" 1,
    /// First frame of a key's validity, 24 bits.
    FRAME_NUMBER = 32 "Frame-Number" 3,
    /// The station's random number, 64 bits.
    SS_RANDOM = 33 "SS-Random" 8,
    /// The base station's random number, 64 bits.
    BS_RANDOM = 34 "BS-Random" 8,
    /// A pre-primary authorization key, encrypted.
    PRE_PAK = 35 "Pre-PAK" free,
    /// Number of a primary or authorization key.
    PAK_AK_SEQUENCE_NUMBER = 36 "PAK-AK-Sequence-Number" 1,
    /// X.509 certificate of the base station.
    BS_CERTIFICATE = 37 "BS-Certificate" free,
    /// RSA signature of the base station.
    SIG_BS = 38 "SigBS" free,
    /// The station's address.
    MS_MAC_ADDRESS = 39 "MS-MAC-Address" 6,
    /// Packet number, 32 bits, and AES-CMAC over the message, 64 bits.
    CMAC_DIGEST = 40 "CMAC-Digest" 12,
    /// The type of the pushed group key.
    KEY_PUSH_MODES = 41 "Key-Push-Modes" 1,
    /// Counts pushed keys.
    KEY_PUSH_COUNTER = 42 "Key-Push-Counter" 2,
    /// A group key encryption key, encrypted.
    GKEK = 43 "GKEK" free,
    /// RSA signature of the station.
    SIG_SS = 44 "SigSS" free,
    /// Identifier of an authorization key, 64 bits.
    AKID = 45 "AKID" 8,
    /// Number of a group key encryption key.
    ASSOCIATED_GKEK_SEQUENCE_NUMBER = 46 "Associated-GKEK-Sequence-Number" 1,
    /// A group key encryption key with its parameters.
    GKEK_PARAMETERS = 47 "GKEK-Parameters" compound,
}

impl fmt::Display for AttributeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "Attribute {}", self.0),
        }
    }
}
impl fmt::Debug for AttributeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An attribute of a checked message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PkmAttribute<'a> {
    /// Its type.
    pub kind: AttributeType,
    /// Its value; never empty.
    pub value: &'a [u8],
}

impl<'a> PkmAttribute<'a> {
    /// Returns the attributes within a compound attribute; none for any other.
    #[must_use]
    pub fn nested_attributes(&self) -> AttributeIter<'a> {
        let compound = matches!(self.kind.known(), Some((_, AttributeValueFormat::Compound)));
        AttributeIter { rest: OctetReader::new(if compound { self.value } else { &[] }) }
    }
}

/// The attributes of a checked message or compound attribute, in order.
#[derive(Clone, Copy, Debug)]
pub struct AttributeIter<'a> {
    rest: OctetReader<'a>,
}

impl<'a> AttributeIter<'a> {
    /// Creates the iterator from checked octets.
    pub(crate) const fn from_checked(checked: &'a [u8]) -> Self {
        Self { rest: OctetReader::new(checked) }
    }
}

impl<'a> Iterator for AttributeIter<'a> {
    type Item = PkmAttribute<'a>;

    fn next(&mut self) -> Option<PkmAttribute<'a>> {
        read_attribute(&mut self.rest).ok()
    }
}

/// Reads the next attribute.
fn read_attribute<'a>(r: &mut OctetReader<'a>) -> Result<PkmAttribute<'a>, MessageError> {
    let kind = AttributeType(r.read_u8()?);
    let length = match r.read_u8()? {
        short @ 0..=0x7f => usize::from(short),
        long => {
            let octets = usize::from(long & 0x7f);
            if !(1..=4).contains(&octets) {
                return Err(MessageError::LengthFieldSize(octets));
            }
            r.read_bytes(octets)?.iter().fold(0, |n, octet| n << 8 | usize::from(*octet))
        }
    };
    match length {
        0 => Err(MessageError::Empty(kind)),
        1..=MAX_VALUE => Ok(PkmAttribute { kind, value: r.read_bytes(length)? }),
        _ => Err(MessageError::TooLong(kind, length)),
    }
}

/// Checks all attributes of a message.
pub(crate) fn check_attributes(bytes: &[u8]) -> Result<(), MessageError> {
    check_each(bytes, |attribute| {
        let PkmAttribute { kind, value } = attribute;
        match kind.known() {
            Some((_, AttributeValueFormat::Fixed(length))) if length != value.len() => {
                Err(MessageError::WrongLength(kind, value.len()))
            }
            // The attributes inside a compound attribute have types of their own, so their lengths are not checked
            // here.
            Some((_, AttributeValueFormat::Compound)) => check_each(value, |_| Ok(())),
            _ => Ok(()),
        }
    })
}

fn check_each(
    bytes: &[u8],
    judge: impl Fn(PkmAttribute<'_>) -> Result<(), MessageError>,
) -> Result<(), MessageError> {
    let mut r = OctetReader::new(bytes);
    for _ in 0..MAX_ATTRIBUTES {
        if r.is_empty() {
            return Ok(());
        }
        judge(read_attribute(&mut r)?)?;
    }
    if r.is_empty() { Ok(()) } else { Err(MessageError::TooMany) }
}

/// Appends an attribute with the shortest form of its length. An empty value has no encoding and is skipped. A value
/// is truncated to [`MAX_VALUE`].
pub(crate) fn emit_attribute(w: &mut OctetWriter<'_>, kind: AttributeType, value: &[u8]) {
    let value = &value[..value.len().min(MAX_VALUE)];
    match value.len() {
        0 => return,
        short @ 1..=0x7f => w.write_u8(kind.0).write_u8(short as u8),
        middle @ 0x80..=0xff => w.write_u8(kind.0).write_u8(0x81).write_u8(middle as u8),
        long => w.write_u8(kind.0).write_u8(0x82).write_u16(long as u16),
    };
    w.write_bytes(value);
}
