//! Queries and responses (§4, §5).

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Maximum characters of a token.
pub const MAX_TOKEN: usize = 64;
/// Maximum octets of a user identifier that a server sends (§5, note 3).
pub const MAX_USER_ID: usize = 512;
/// The maximum integer of the grammar: five digits.
const MAX_INTEGER: u32 = 99_999;

/// The ports of a connection on its two hosts, in a query and its response.
///
/// The grammar's integers can exceed the range of ports. [`valid_ports`](Self::valid_ports) returns ports only if
/// both are in range. A response repeats the integers unchanged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct IdentPortPair {
    server: u32,
    client: u32,
}

/// Why a query is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueryParseError {
    /// The line is not two integers of one to five digits with a comma between them.
    #[error("not a pair of ports")]
    NotAPair,
}

/// Why a response is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResponseParseError {
    /// The line does not begin with a pair of ports and a colon.
    #[error("not a pair of ports")]
    NoPair,
    /// The type is neither USERID nor ERROR.
    #[error("neither USERID nor ERROR")]
    ResponseType,
    /// The error type is not a token, or is undefined and does not begin with X.
    #[error("unknown error type")]
    ErrorType,
    /// The operating system is missing or is not a token.
    #[error("no valid operating system")]
    OpSys,
    /// The character set is not a token.
    #[error("no valid character set")]
    Charset,
    /// The user identifier is empty or has a forbidden octet.
    #[error(transparent)]
    UserId(#[from] InvalidUserId),
}

/// The octets are not a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a token is 1 to {MAX_TOKEN} printable US-ASCII characters without blanks, colons and commas")]
pub struct InvalidIdentToken;

/// The octets are not a user identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a user identifier has at least one octet, and no NUL, CR or LF")]
pub struct InvalidUserId;

/// The name of an operating system, a character set or an error: 1 to [`MAX_TOKEN`] printable US-ASCII characters
/// except blanks and the colon. The grammar allows commas, but a comma separates an operating system from its
/// character set, so neither contains one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IdentToken(String);

impl IdentToken {
    /// Creates a token.
    ///
    /// # Errors
    /// The text is not a token.
    pub fn new(text: &str) -> Result<Self, InvalidIdentToken> {
        Self::from_octets(text.as_bytes())
    }
    fn from_octets(octets: &[u8]) -> Result<Self, InvalidIdentToken> {
        let fits = |octet: &u8| octet.is_ascii_graphic() && !b":,".contains(octet);
        if octets.is_empty() || octets.len() > MAX_TOKEN || !octets.iter().all(fits) {
            return Err(InvalidIdentToken);
        }
        Ok(Self(octets.iter().copied().map(char::from).collect()))
    }
    /// Returns the token's characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdentToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A user identifier: at least one octet, without NUL, CR and LF.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(Vec<u8>);

impl UserId {
    /// Creates a user identifier. A server sends at most [`MAX_USER_ID`] octets of it.
    ///
    /// # Errors
    /// There are no octets, or one of them is NUL, CR or LF.
    pub fn new(octets: impl Into<Vec<u8>>) -> Result<Self, InvalidUserId> {
        let octets = octets.into();
        // RFC 1413, 5: no NUL, CR or LF.
        if octets.is_empty() || octets.iter().any(|octet| b"\0\r\n".contains(octet)) {
            return Err(InvalidUserId);
        }
        Ok(Self(octets))
    }
    /// Returns all octets after the colon, blanks included (§5).
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.0
    }
    /// Returns the octets without surrounding blanks. Servers put a blank after the colon, as in the examples of §4,
    /// which is not part of the name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        trim_blanks(&self.0)
    }
}

impl fmt::Display for UserId {
    /// Formats UTF-8 as text, other octets in hexadecimal (§5, note 6).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match core::str::from_utf8(self.name()) {
            Ok(text) => f.write_str(text),
            Err(_) => self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}")),
        }
    }
}

impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserId({})", self.0.escape_ascii())
    }
}

/// The error type of a response.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ErrorType {
    /// A port is out of range or not a number.
    InvalidPort,
    /// The connection does not exist, or has no owner that can be named.
    NoUser,
    /// The owner has asked not to be named.
    HiddenUser,
    /// Any other reason.
    UnknownError,
    /// An undefined error type: X and 1 to 63 further characters of a token.
    Extension(IdentToken),
}

impl ErrorType {
    /// Returns its name on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::InvalidPort => "INVALID-PORT",
            Self::NoUser => "NO-USER",
            Self::HiddenUser => "HIDDEN-USER",
            Self::UnknownError => "UNKNOWN-ERROR",
            Self::Extension(token) => token.as_str(),
        }
    }
    fn from_octets(octets: &[u8]) -> Option<Self> {
        let token = IdentToken::from_octets(octets).ok()?;
        let known = [Self::InvalidPort, Self::NoUser, Self::HiddenUser, Self::UnknownError];
        known.into_iter().find(|error| error.as_str() == token.as_str()).or_else(|| {
            // RFC 1413, 5: a nonstandard error begins with X.
            let extends = token.as_str().len() > 1 && token.as_str().starts_with('X');
            extends.then_some(Self::Extension(token))
        })
    }
}

impl fmt::Display for ErrorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The content of a response.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ResponseBody {
    /// USERID: the owner.
    UserId {
        /// The operating system. `OTHER` if the identifier is not the user's name on that system.
        opsys: IdentToken,
        /// The identifier's character set; `None`: US-ASCII.
        charset: Option<IdentToken>,
        /// The identifier.
        user: UserId,
    },
    /// ERROR: the reason.
    Error(ErrorType),
}

impl fmt::Display for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UserId { opsys, charset: None, user } => write!(f, "{user} ({opsys})"),
            Self::UserId { opsys, charset: Some(charset), user } => write!(f, "{user} ({opsys}, {charset})"),
            Self::Error(error) => write!(f, "{error}"),
        }
    }
}

/// A response.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct IdentResponse {
    /// The ports of the query.
    pub ports: IdentPortPair,
    /// The content.
    pub answer: ResponseBody,
}

const fn is_blank(octet: u8) -> bool {
    matches!(octet, b' ' | b'\t')
}

fn trim_blanks(octets: &[u8]) -> &[u8] {
    let begin = octets.iter().position(|octet| !is_blank(*octet)).unwrap_or(octets.len());
    let end = octets.iter().rposition(|octet| !is_blank(*octet)).map_or(begin, |at| at + 1);
    octets.get(begin..end).unwrap_or_default()
}

/// Splits the octets at the first `at`, which is in neither part.
fn split_at_octet(octets: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let at = octets.iter().position(|octet| *octet == at)?;
    Some((octets.get(..at)?, octets.get(at + 1..)?))
}

fn parse_integer(octets: &[u8]) -> Option<u32> {
    let digits = trim_blanks(octets);
    if digits.is_empty() || digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |n, digit| n * 10 + u32::from(digit - b'0')))
}

impl IdentPortPair {
    /// Creates a pair from the server's port, whose owner is requested, and the asker's.
    #[must_use]
    pub const fn new(server: u16, client: u16) -> Self {
        Self { server: server as u32, client: client as u32 }
    }
    /// Creates a pair from two integers, in the range of ports or not. `None` for more than five digits.
    #[must_use]
    pub fn from_port_integers(server: u32, client: u32) -> Option<Self> {
        (server.max(client) <= MAX_INTEGER).then_some(Self { server, client })
    }
    /// Returns the server's port and the asker's; `None` if one of them is not a port (1 to 65535).
    #[must_use]
    pub fn valid_ports(self) -> Option<(u16, u16)> {
        let port = |n| u16::try_from(n).ok().filter(|port| *port > 0);
        Some((port(self.server)?, port(self.client)?))
    }
    /// Parses a query: a line without its end.
    ///
    /// # Errors
    /// The line is not a pair of ports.
    pub fn parse(line: &[u8]) -> Result<Self, QueryParseError> {
        let (server, client) = split_at_octet(line, b',').ok_or(QueryParseError::NotAPair)?;
        let pair = parse_integer(server).zip(parse_integer(client)).ok_or(QueryParseError::NotAPair)?;
        Ok(Self { server: pair.0, client: pair.1 })
    }
    /// Appends the query with its line end.
    pub fn emit(self, buf: &mut Vec<u8>) {
        buf.extend_from_slice(self.to_string().as_bytes());
        buf.extend_from_slice(b"\r\n");
    }
}

impl fmt::Display for IdentPortPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.server, self.client)
    }
}

impl IdentResponse {
    /// Parses a response: a line without its end.
    ///
    /// # Errors
    /// The line is not a response.
    pub fn parse(line: &[u8]) -> Result<Self, ResponseParseError> {
        let (ports, rest) = split_at_octet(line, b':').ok_or(ResponseParseError::NoPair)?;
        let ports = IdentPortPair::parse(ports).map_err(|_| ResponseParseError::NoPair)?;
        let (kind, rest) = split_at_octet(rest, b':').ok_or(ResponseParseError::ResponseType)?;
        let answer = match trim_blanks(kind) {
            b"USERID" => {
                let (system, user) = split_at_octet(rest, b':').ok_or(ResponseParseError::OpSys)?;
                let (opsys, charset) =
                    split_at_octet(system, b',').map_or((system, None), |(a, b)| (a, Some(b)));
                let token = |octets| IdentToken::from_octets(trim_blanks(octets));
                ResponseBody::UserId {
                    opsys: token(opsys).map_err(|_| ResponseParseError::OpSys)?,
                    charset: charset.map(token).transpose().map_err(|_| ResponseParseError::Charset)?,
                    // RFC 1413, 5: blanks after the colon belong to the identifier.
                    user: UserId::new(user)?,
                }
            }
            b"ERROR" => ResponseBody::Error(
                ErrorType::from_octets(trim_blanks(rest)).ok_or(ResponseParseError::ErrorType)?,
            ),
            _ => return Err(ResponseParseError::ResponseType),
        };
        Ok(Self { ports, answer })
    }

    /// Appends the response with its line end, without blanks, and with at most [`MAX_USER_ID`] octets of the
    /// identifier.
    pub fn emit(&self, buf: &mut Vec<u8>) {
        let mut put = |octets: &[u8]| buf.extend_from_slice(octets);
        put(self.ports.to_string().as_bytes());
        match &self.answer {
            ResponseBody::UserId { opsys, charset, user } => {
                put(b":USERID:");
                put(opsys.as_str().as_bytes());
                if let Some(charset) = charset {
                    put(b",");
                    put(charset.as_str().as_bytes());
                }
                put(b":");
                // RFC 1413, 5, note 3: the most significant part, in 512 octets.
                put(user.0.get(..MAX_USER_ID).unwrap_or(&user.0));
            }
            ResponseBody::Error(error) => {
                put(b":ERROR:");
                put(error.as_str().as_bytes());
            }
        }
        put(b"\r\n");
    }
}

#[cfg(test)]
mod tests;
