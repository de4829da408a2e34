//! Queries and replies (§4, §5).

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Characters of a token at most.
pub const MAX_TOKEN: usize = 64;
/// Octets of a user identifier that a server sends at most (§5, note 3).
pub const MAX_USER_ID: usize = 512;
/// The integers of the grammar have five digits at most.
const MAX_INTEGER: u32 = 99_999;

/// The ports of a connection, as its two hosts have them: what is asked, and repeated in the reply.
///
/// The grammar's integers may exceed what ports can be; [`ports`](Self::valid_ports) are only there if both do not. A reply
/// repeats them as they were.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct PortPair {
    server: u32,
    client: u32,
}

/// What is wrong with a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueryError {
    /// It is not two integers of one to five digits with a comma between them.
    #[error("no pair of ports")]
    NotAPair,
}

/// What is wrong with a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplyError {
    /// It does not begin with a pair of ports and a colon.
    #[error("no pair of ports")]
    NoPair,
    /// It is neither USERID nor ERROR.
    #[error("neither USERID nor ERROR")]
    ResponseType,
    /// The kind of error is no token, or one that is not defined and does not begin with X.
    #[error("an error that no standard knows")]
    ErrorType,
    /// The operating system is missing or is no token.
    #[error("no operating system")]
    OpSys,
    /// The character set is no token.
    #[error("no character set")]
    Charset,
    /// The user identifier is empty, or has an octet that it must not have.
    #[error(transparent)]
    UserId(#[from] NotAUserId),
}

/// Octets that are no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a token is 1 to {MAX_TOKEN} printable characters of US-ASCII without blanks, colon and comma")]
pub struct NotAToken;

/// Octets that are no user identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a user identifier has an octet at least, and neither NUL, CR nor LF")]
pub struct NotAUserId;

/// The name of an operating system, of a character set or of an error: 1 to [`MAX_TOKEN`] printable characters of US-ASCII
/// but blanks and the colon. The comma, which the grammar has among them, separates an operating system from its character
/// set and so is in neither.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IdentToken(String);

impl IdentToken {
    /// Takes these characters.
    ///
    /// # Errors
    /// They are no token.
    pub fn new(text: &str) -> Result<Self, NotAToken> {
        Self::from_octets(text.as_bytes())
    }
    fn from_octets(octets: &[u8]) -> Result<Self, NotAToken> {
        let fits = |octet: &u8| octet.is_ascii_graphic() && !b":,".contains(octet);
        if octets.is_empty() || octets.len() > MAX_TOKEN || !octets.iter().all(fits) {
            return Err(NotAToken);
        }
        Ok(Self(octets.iter().copied().map(char::from).collect()))
    }
    /// Its characters.
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

/// A user identifier: octets other than NUL, CR and LF, one at least.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(Vec<u8>);

impl UserId {
    /// Takes these octets, of which [`MAX_USER_ID`] are sent.
    ///
    /// # Errors
    /// There are none, or one of them is NUL, CR or LF.
    pub fn new(octets: impl Into<Vec<u8>>) -> Result<Self, NotAUserId> {
        let octets = octets.into();
        if octets.is_empty() || octets.iter().any(|octet| b"\0\r\n".contains(octet)) {
            return Err(NotAUserId);
        }
        Ok(Self(octets))
    }
    /// All that followed the colon, blanks included (§5).
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.0
    }
    /// The octets without blanks around them: servers put one behind the colon, as the examples of §4 do, and mean no part of
    /// the name by it.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        trim_blanks(&self.0)
    }
}

impl fmt::Display for UserId {
    /// As text where it is UTF-8, otherwise in hexadecimal (§5, note 6).
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

/// Why the owner is not told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ErrorType {
    /// A port is out of range, or no number.
    InvalidPort,
    /// There is no such connection, or nobody who can be named owns it.
    NoUser,
    /// The owner is known and does not want to be named.
    HiddenUser,
    /// Anything else.
    UnknownError,
    /// One that no standard defines: X and 1 to 63 further characters of a token.
    Extension(IdentToken),
}

impl ErrorType {
    /// As it is written.
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

/// What a reply says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ResponseBody {
    /// USERID: this is the owner.
    UserId {
        /// The operating system; `OTHER` where the identifier is not one by which the user is known there.
        opsys: IdentToken,
        /// The identifier's character set; without it US-ASCII.
        charset: Option<IdentToken>,
        /// The identifier.
        user: UserId,
    },
    /// ERROR: the owner is not told.
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

/// A reply.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct IdentResponse {
    /// What was asked.
    pub ports: PortPair,
    /// What is answered.
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

/// What stands before the first of these octets, and what stands after it.
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

impl PortPair {
    /// The pair of these ports: the server's, of which the owner is wanted, and the asker's.
    #[must_use]
    pub const fn new(server: u16, client: u16) -> Self {
        Self { server: server as u32, client: client as u32 }
    }
    /// The pair of these integers, of which ports or not: `None` for more than five digits.
    #[must_use]
    pub fn of_integers(server: u32, client: u32) -> Option<Self> {
        (server.max(client) <= MAX_INTEGER).then_some(Self { server, client })
    }
    /// The server's port and the asker's; `None` where one of them is no port (1 to 65535).
    #[must_use]
    pub fn valid_ports(self) -> Option<(u16, u16)> {
        let port = |n| u16::try_from(n).ok().filter(|port| *port > 0);
        Some((port(self.server)?, port(self.client)?))
    }
    /// Reads a query: a line without its end.
    ///
    /// # Errors
    /// It is no pair.
    pub fn parse(line: &[u8]) -> Result<Self, QueryError> {
        let (server, client) = split_at_octet(line, b',').ok_or(QueryError::NotAPair)?;
        let pair = parse_integer(server).zip(parse_integer(client)).ok_or(QueryError::NotAPair)?;
        Ok(Self { server: pair.0, client: pair.1 })
    }
    /// Appends the query, its end included.
    pub fn emit(self, buf: &mut Vec<u8>) {
        buf.extend_from_slice(self.to_string().as_bytes());
        buf.extend_from_slice(b"\r\n");
    }
}

impl fmt::Display for PortPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.server, self.client)
    }
}

impl IdentResponse {
    /// Reads a reply: a line without its end.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(line: &[u8]) -> Result<Self, ReplyError> {
        let (ports, rest) = split_at_octet(line, b':').ok_or(ReplyError::NoPair)?;
        let ports = PortPair::parse(ports).map_err(|_| ReplyError::NoPair)?;
        let (kind, rest) = split_at_octet(rest, b':').ok_or(ReplyError::ResponseType)?;
        let answer = match trim_blanks(kind) {
            b"USERID" => {
                let (system, user) = split_at_octet(rest, b':').ok_or(ReplyError::OpSys)?;
                let (opsys, charset) =
                    split_at_octet(system, b',').map_or((system, None), |(a, b)| (a, Some(b)));
                let token = |octets| IdentToken::from_octets(trim_blanks(octets));
                ResponseBody::UserId {
                    opsys: token(opsys).map_err(|_| ReplyError::OpSys)?,
                    charset: charset.map(token).transpose().map_err(|_| ReplyError::Charset)?,
                    user: UserId::new(user)?,
                }
            }
            b"ERROR" => {
                ResponseBody::Error(ErrorType::from_octets(trim_blanks(rest)).ok_or(ReplyError::ErrorType)?)
            }
            _ => return Err(ReplyError::ResponseType),
        };
        Ok(Self { ports, answer })
    }

    /// Appends the reply, its end included: without blanks, and at most [`MAX_USER_ID`] octets of an identifier.
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
