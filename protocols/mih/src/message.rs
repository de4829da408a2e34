//! Messages: a name and parameters, written and read with the identifiers of both ends.

use crate::header::{HEADER, Header, HeaderError};
use crate::service::Opcode;
use crate::tlv::{self, Tlv, kind};
use crate::wire::ValueError;
use crate::{MessageId, MihfId, Status, TransactionId};
use alloc::vec::Vec;
use core::fmt;
use usher_core::{Reader, Writer};

/// Parameters that a message may have: a limit of this implementation, far above what any message of the standard has.
pub const MAX_PARAMETERS: usize = 64;

/// A message, without the identifiers of its ends.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Message {
    /// Which.
    pub id: MessageId,
    /// What it says, in its order.
    pub params: Vec<Tlv>,
}

/// The header's bits that a sender chooses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Bits {
    /// An acknowledgement is wanted.
    pub ack_req: bool,
    /// This acknowledges.
    pub ack_rsp: bool,
    /// The sender has not been authenticated yet.
    pub uir: bool,
}

/// A message that a header's length cannot hold, or a size that it cannot have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// So many octets after the header.
    #[error("{0} octets after the header")]
    TooLong(usize),
    /// The message has `octets` already, which is more than `wanted`, or one less, which no parameter can fill.
    #[error("a message of {octets} octets cannot be made one of {wanted}")]
    Padding {
        /// What it has.
        octets: usize,
        /// What it should have.
        wanted: usize,
    },
}

/// A message as it came.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Decoded {
    /// Its header.
    pub header: Header,
    /// Who sent it.
    pub source: MihfId,
    /// To whom.
    pub destination: MihfId,
    /// What it says.
    pub message: Message,
}

/// What is wrong with octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// No header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The header announces `said` octets after it, and `there` are.
    #[error("{there} octets after the header, {said} announced")]
    Length {
        /// What the header says.
        said: usize,
        /// What is there.
        there: usize,
    },
    /// A piece of a message.
    #[error("a fragment")]
    Fragment,
    /// It does not begin with the identifiers of its source and its destination.
    #[error("parameter {0} is not where it must be")]
    Order(u8),
    /// More than [`MAX_PARAMETERS`] parameters.
    #[error("too many parameters")]
    TooMany,
    /// A parameter is not whole.
    #[error("a parameter's octets: {0}")]
    Parameter(ValueError),
    /// The value of a parameter of this type is not one.
    #[error("parameter {0}: {1}")]
    Value(u8, ValueError),
    /// A message that the standard does not have.
    #[error("unknown message {0}")]
    Unknown(MessageId),
    /// A parameter of this type is not there.
    #[error("{0} without parameter {1}")]
    Missing(MessageId, u8),
}

/// Why octets are no message, with as much as could be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecodeError {
    /// What is wrong.
    pub fault: Fault,
    /// The header, if there is one.
    pub header: Option<Header>,
    /// Who sent it, if that could be read.
    pub source: Option<MihfId>,
    /// To whom, if that could be read.
    pub destination: Option<MihfId>,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fault)
    }
}

impl core::error::Error for DecodeError {}

impl DecodeError {
    /// The status with which a response answers it; none for what is dropped: anything but a whole request whose sender
    /// is known. A request that the standard does not have is rejected; one that cannot be read has failed. The
    /// standard's own words on this were not at hand: of its status codes these are the ones that fit.
    pub fn answer(&self) -> Option<Status> {
        let request = self.header.is_some_and(|h| h.id.opcode == Opcode::Request && !h.ack_rsp);
        if !request || self.source.is_none() {
            return None;
        }
        match self.fault {
            Fault::Unknown(_) => Some(Status::Rejected),
            Fault::Value(..) | Fault::Missing(..) | Fault::TooMany | Fault::Parameter(_) => {
                Some(Status::UnspecifiedFailure)
            }
            Fault::Header(_) | Fault::Length { .. } | Fault::Fragment | Fault::Order(_) => None,
        }
    }
}

impl Message {
    /// A message.
    pub fn new(id: MessageId, params: impl Into<Vec<Tlv>>) -> Self {
        Self { id, params: params.into() }
    }
    /// An acknowledgement without payload: it says which message, and nothing else.
    pub const fn acknowledgement(id: MessageId) -> Self {
        Self { id, params: Vec::new() }
    }
    /// The first parameter of a type.
    pub fn get(&self, kind: u8) -> Option<&Tlv> {
        self.params.iter().find(|p| p.kind() == kind)
    }
    /// Its status parameter.
    pub fn status(&self) -> Option<Status> {
        self.params.iter().find_map(|p| if let Tlv::Status(status) = p { Some(*status) } else { None })
    }
    /// Octets of the message between these two, the header included.
    pub fn octets(&self, source: &MihfId, destination: &MihfId) -> usize {
        let ends = Tlv::Source(source.clone()).octets() + Tlv::Destination(destination.clone()).octets();
        HEADER + ends + self.params.iter().map(Tlv::octets).sum::<usize>()
    }
    /// The message with a parameter that says nothing ([`kind::PADDING`]; two, where one cannot have the size), so that
    /// between these two it has this many octets, the header included.
    ///
    /// # Errors
    /// It has more already, or one less.
    pub fn padded_to(
        mut self,
        octets: usize,
        source: &MihfId,
        destination: &MihfId,
    ) -> Result<Self, EncodeError> {
        let now = self.octets(source, destination);
        let mut left = match octets.checked_sub(now) {
            None | Some(1) => return Err(EncodeError::Padding { octets: now, wanted: octets }),
            Some(left) => left,
        };
        while left > 0 {
            // Lengths grow by octets at some sizes, which leaves totals that no single parameter has.
            let fit = (2..=6)
                .map(|head| left.wrapping_sub(head))
                .find(|value| *value < left && 1 + crate::wire::length_octets(*value) + value == left);
            let value = fit.unwrap_or(0);
            self.params.push(Tlv::padding(value));
            left -= 1 + crate::wire::length_octets(value) + value;
        }
        Ok(self)
    }
    /// Appends the message, whole, with its header and the identifiers of its ends.
    ///
    /// # Errors
    /// It is longer than a header can say; nothing is appended.
    pub fn encode(
        &self,
        bits: Bits,
        transaction: TransactionId,
        source: &MihfId,
        destination: &MihfId,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let begin = out.len();
        let mut w = Writer::new(out);
        let header = Header {
            ack_req: bits.ack_req,
            ack_rsp: bits.ack_rsp,
            uir: bits.uir,
            more: false,
            fragment: 0,
            id: self.id,
            transaction,
            len: 0,
        };
        header.emit(&mut w);
        Tlv::Source(source.clone()).emit(&mut w);
        Tlv::Destination(destination.clone()).emit(&mut w);
        self.params.iter().for_each(|p| p.emit(&mut w));
        let payload = w.len() - HEADER;
        match u16::try_from(payload) {
            Ok(len) => {
                w.patch(6, &len.to_be_bytes());
                Ok(())
            }
            Err(_) => {
                out.truncate(begin);
                Err(EncodeError::TooLong(payload))
            }
        }
    }
    /// Reads a whole message out of octets that hold nothing else.
    ///
    /// # Errors
    /// They are no message, or one that lacks what it cannot do without. An acknowledgement without payload may lack
    /// everything.
    pub fn decode(octets: &[u8]) -> Result<Decoded, DecodeError> {
        let mut error = DecodeError { fault: Fault::Fragment, header: None, source: None, destination: None };
        match read(octets, &mut error) {
            Ok(message) => match (error.header, error.source, error.destination) {
                (Some(header), Some(source), Some(destination)) => {
                    Ok(Decoded { header, source, destination, message })
                }
                (header, source, destination) => {
                    Err(DecodeError { fault: Fault::Order(kind::SOURCE), header, source, destination })
                }
            },
            Err(fault) => {
                error.fault = fault;
                Err(error)
            }
        }
    }
}

/// Header and payload of octets that hold nothing else.
pub(crate) fn split(octets: &[u8]) -> Result<(Header, &[u8]), Fault> {
    let header = Header::parse(octets)?;
    let payload = octets.get(HEADER..).unwrap_or_default();
    if payload.len() != usize::from(header.len) {
        return Err(Fault::Length { said: header.len.into(), there: payload.len() });
    }
    Ok((header, payload))
}

/// The identifier that must come next.
pub(crate) fn end(r: &mut Reader<'_>, kind: u8) -> Result<MihfId, Fault> {
    if r.is_empty() {
        return Err(Fault::Order(kind));
    }
    let (found, value) = tlv::next(r).map_err(Fault::Parameter)?;
    match tlv::typed(found, value) {
        Ok(Tlv::Source(id)) if kind == kind::SOURCE => Ok(id),
        Ok(Tlv::Destination(id)) if kind == kind::DESTINATION => Ok(id),
        Err(e) if found == kind => Err(Fault::Value(kind, e)),
        _ => Err(Fault::Order(kind)),
    }
}

/// Reads a message; what is read on the way is kept in `error`.
fn read(octets: &[u8], error: &mut DecodeError) -> Result<Message, Fault> {
    let header = Header::parse(octets)?;
    error.header = Some(header);
    let (_, payload) = split(octets)?;
    if header.is_fragment() {
        return Err(Fault::Fragment);
    }
    let mut r = Reader::new(payload);
    error.source = Some(end(&mut r, kind::SOURCE)?);
    error.destination = Some(end(&mut r, kind::DESTINATION)?);
    let mandatory = header.id.mandatory().ok_or(Fault::Unknown(header.id))?;
    let mut params = Vec::new();
    while !r.is_empty() {
        if params.len() == MAX_PARAMETERS {
            return Err(Fault::TooMany);
        }
        let (kind, value) = tlv::next(&mut r).map_err(Fault::Parameter)?;
        if matches!(kind, kind::SOURCE | kind::DESTINATION) {
            return Err(Fault::Order(kind));
        }
        params.push(tlv::typed(kind, value).map_err(|e| Fault::Value(kind, e))?);
    }
    let message = Message { id: header.id, params };
    let bare = header.ack_rsp && message.params.is_empty();
    let failed =
        header.id.opcode == Opcode::Response && message.status().is_some_and(|s| s != Status::Success);
    match mandatory.iter().find(|kind| message.get(**kind).is_none()) {
        Some(kind) if !bare && !failed => Err(Fault::Missing(header.id, *kind)),
        _ => Ok(message),
    }
}

impl Decoded {
    /// True for an acknowledgement that carries nothing else.
    pub fn is_acknowledgement(&self) -> bool {
        self.header.ack_rsp && self.message.params.is_empty()
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        for (i, param) in self.params.iter().enumerate() {
            write!(f, "{}{param}", if i == 0 { ": " } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} #{} {}", self.source, self.destination, self.header.transaction, self.message)?;
        for (on, name) in [(self.header.ack_req, " ACK-Req"), (self.header.ack_rsp, " ACK-Rsp")] {
            if on {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}
