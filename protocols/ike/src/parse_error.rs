//! Errors of parsers.

use usher_core::TruncatedInputError;

/// An invalid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// A field exceeds its container.
    #[error(transparent)]
    Truncated(#[from] TruncatedInputError),
    /// An unknown major version.
    #[error("unknown major version {0}; expected 2")]
    MajorVersion(u8),
    /// The header's length differs from the message's.
    #[error("the header announces {announced} octets, but the message has {is}")]
    MessageLength {
        /// The length in the header.
        announced: usize,
        /// The received octets.
        is: usize,
    },
    /// An inner length is too short for its contents, or leaves octets over.
    #[error("a length field does not match its contents")]
    Length,
    /// A proposal or transform has a wrong "last substructure" field.
    #[error("a proposal or transform has a wrong \"Last Substruc\" field")]
    Substructure,
    /// Too many payloads or proposals.
    #[error("too many payloads or proposals")]
    TooMany,
    /// A nonce of invalid length, in octets.
    #[error("a nonce has {0} octets, but 16 to 256 are allowed")]
    Nonce(usize),
    /// A Delete payload without a protocol, or with an invalid SPI size or count.
    #[error("a Delete payload has an invalid protocol, SPI size or count")]
    Delete,
    /// An impossible fragment.
    #[error("invalid fragment number {number} of {total}")]
    Fragment {
        /// Its number.
        number: u16,
        /// The total that it announces.
        total: u16,
    },
    /// Octets after the last payload.
    #[error("{0} octets follow the last payload")]
    Trailing(usize),
}
