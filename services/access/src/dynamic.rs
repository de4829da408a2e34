//! Dynamic authorisation: an AAA server's requests about sessions that it accepted (RFC 5176; RFC 6733 §8.3, §8.5).

use crate::prefix::{decode_ipv6_prefix, ipv6_prefix};
use crate::reply::{AccessReply, ReplyContent};
use crate::{NasIdentity, NasPort};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_diameter::ResultCode;
use usher_radius::attribute::{RawAttribute, kind};
use usher_radius::packet::PacketCode;

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DynamicRequestKind {
    /// Ends the session (Disconnect-Request, Abort-Session-Request).
    Disconnect,
    /// Changes the session's authorisation, as a whole or not at all (CoA-Request).
    Change,
    /// Authenticates the user again (Re-Auth-Request).
    Reauthenticate,
}

/// An AAA server's request about a session. The answer is
/// [`AccessClientCommand::AnswerDynamic`](crate::AccessClientCommand::AnswerDynamic).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DynamicRequest {
    /// The token for the answer.
    pub token: u64,
    /// The kind.
    pub kind: DynamicRequestKind,
    /// The token of the session's login, over Diameter. Over RADIUS attributes describe the session, and
    /// [`is_about`](Self::is_about) compares them.
    pub session: Option<u64>,
    /// All attributes of the request. For a change they include the new values.
    pub content: AccessReply,
}

/// The identity of a session, for [`DynamicRequest::is_about`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionIdentity<'a> {
    /// The token of its login.
    pub token: Option<u64>,
    /// The user names: the one in the request, and the one that the server assigned.
    pub names: [&'a [u8]; 2],
    /// The user's port.
    pub port: NasPort<'a>,
    /// Acct-Session-Id.
    pub session: Option<&'a str>,
    /// Acct-Multi-Session-Id.
    pub multi_session: Option<&'a str>,
    /// The user's IPv4 address.
    pub framed_ip: Option<Ipv4Addr>,
    /// Framed-Interface-Id.
    pub framed_interface_id: Option<[u8; 8]>,
    /// The user's IPv6 prefix and its bits.
    pub framed_ipv6_prefix: Option<(Ipv6Addr, u8)>,
}

/// The Error-Cause of a rejected request for dynamic authorization (RFC 5176 §3.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorCause {
    /// An attribute is not supported.
    UnsupportedAttribute = 401,
    /// The attributes identify no session, or a required one is missing.
    MissingAttribute = 402,
    /// The request is for another NAS.
    NasIdentificationMismatch = 403,
    /// The request is malformed.
    InvalidRequest = 404,
    /// Its Service-Type is not supported.
    UnsupportedService = 405,
    /// A value is not supported.
    InvalidAttributeValue = 407,
    /// The NAS does not permit this for the session.
    AdministrativelyProhibited = 501,
    /// No session matches.
    SessionContextNotFound = 503,
    /// The session cannot be ended.
    SessionContextNotRemovable = 504,
    /// The NAS lacks resources.
    ResourcesUnavailable = 506,
    /// Several sessions match, and that is not supported.
    MultipleSessionSelectionUnsupported = 508,
}

impl ErrorCause {
    /// Result-Code (RFC 5176 §4).
    pub(crate) const fn result_code(self) -> ResultCode {
        match self {
            Self::UnsupportedAttribute => ResultCode::AVP_UNSUPPORTED,
            Self::MissingAttribute => ResultCode::MISSING_AVP,
            Self::NasIdentificationMismatch => ResultCode::REALM_NOT_SERVED,
            Self::UnsupportedService => ResultCode::COMMAND_UNSUPPORTED,
            Self::InvalidAttributeValue => ResultCode::INVALID_AVP_VALUE,
            Self::AdministrativelyProhibited | Self::SessionContextNotRemovable => {
                ResultCode::AUTHORIZATION_REJECTED
            }
            Self::SessionContextNotFound => ResultCode::UNKNOWN_SESSION_ID,
            Self::ResourcesUnavailable => ResultCode::RESOURCES_EXCEEDED,
            Self::InvalidRequest | Self::MultipleSessionSelectionUnsupported => ResultCode::UNABLE_TO_COMPLY,
        }
    }
}

/// The attributes that identify a session (RFC 5176 §3).
const SESSION: [u8; 11] = [
    kind::USER_NAME,
    kind::NAS_PORT,
    kind::FRAMED_IP_ADDRESS,
    kind::CALLED_STATION_ID,
    kind::CALLING_STATION_ID,
    kind::ACCT_SESSION_ID,
    kind::ACCT_MULTI_SESSION_ID,
    kind::NAS_PORT_ID,
    kind::CHARGEABLE_USER_IDENTITY,
    kind::FRAMED_INTERFACE_ID,
    kind::FRAMED_IPV6_PREFIX,
];
/// The attributes that identify the NAS or belong to the packet.
const NON_SESSION_ATTRIBUTES: [u8; 6] = [
    kind::NAS_IP_ADDRESS,
    kind::NAS_IDENTIFIER,
    kind::NAS_IPV6_ADDRESS,
    kind::PROXY_STATE,
    kind::EVENT_TIMESTAMP,
    kind::MESSAGE_AUTHENTICATOR,
];

impl DynamicRequest {
    /// True if the session has every session attribute of the request (RFC 5176 §3).
    #[must_use]
    pub fn is_about(&self, session: &SessionIdentity<'_>) -> bool {
        let text = |text: Option<&str>, value: &[u8]| text.is_some_and(|text| text.as_bytes() == value);
        let fits = |number, value: &[u8]| match number {
            kind::USER_NAME => session.names.iter().any(|name| !name.is_empty() && *name == value),
            kind::NAS_PORT => session.port.number.is_some_and(|n| n.to_be_bytes() == value),
            kind::FRAMED_IP_ADDRESS => session.framed_ip.is_some_and(|a| a.octets() == value),
            kind::CALLED_STATION_ID => text(session.port.called_station, value),
            kind::CALLING_STATION_ID => text(session.port.calling_station, value),
            kind::ACCT_SESSION_ID => text(session.session, value),
            kind::ACCT_MULTI_SESSION_ID => text(session.multi_session, value),
            kind::NAS_PORT_ID => text(session.port.id, value),
            kind::FRAMED_INTERFACE_ID => session.framed_interface_id.is_some_and(|id| id == value),
            kind::FRAMED_IPV6_PREFIX => session.framed_ipv6_prefix.is_some_and(|(prefix, bits)| {
                // The server may send more octets of the prefix than its length needs.
                decode_ipv6_prefix(value).is_some_and(|(p, b)| ipv6_prefix(p, b) == ipv6_prefix(prefix, bits))
            }),
            _ => false,
        };
        (self.session.is_none() || self.session == session.token)
            && SESSION.iter().all(|&number| self.content.values(number).all(|value| fits(number, value)))
    }
    /// The attribute numbers of the requested change: all that do not identify a session or NAS. A vendor's is 26.
    pub fn changed_attribute_numbers(&self) -> impl Iterator<Item = u8> {
        let attributes = match &self.content.0 {
            ReplyContent::Radius(r) => Some(r.attributes.iter()),
            // RFC 7155, 3.3: the other AVPs of a Re-Auth-Request describe the original login.
            ReplyContent::Diameter(..) => None,
        };
        // RFC 5176, 3.6: identification is no change.
        let is_change =
            |a: &RawAttribute<'_>| !SESSION.contains(&a.kind) && !NON_SESSION_ATTRIBUTES.contains(&a.kind);
        attributes.into_iter().flatten().filter(is_change).map(|a| a.kind)
    }
    /// Checks the parts of a RADIUS request that need no session.
    pub(crate) fn validate_request(&self, nas: &NasIdentity) -> Result<(), ErrorCause> {
        let says = |number| self.content.value(number);
        // If the request names an identity that this NAS does not have, it is not for this NAS.
        let other = |number, own: Option<&[u8]>| {
            let own = || own.into_iter().chain(nas.attributes.get_all(number));
            self.content.values(number).any(|value| own().all(|own| own != value))
        };
        let (v4, v6) = match nas.address {
            Some(IpAddr::V4(address)) => (Some(address.octets()), None),
            Some(IpAddr::V6(address)) => (None, Some(address.octets())),
            None => (None, None),
        };
        let identifier = (!nas.identifier.is_empty()).then_some(nas.identifier.as_bytes());
        if other(kind::NAS_IDENTIFIER, identifier)
            || other(kind::NAS_IP_ADDRESS, v4.as_ref().map(|a| &a[..]))
            || other(kind::NAS_IPV6_ADDRESS, v6.as_ref().map(|a| &a[..]))
        {
            return Err(ErrorCause::NasIdentificationMismatch);
        }
        // RFC 5176, 3, 3.2: a Disconnect-Request only identifies its session.
        if self.kind == DynamicRequestKind::Disconnect && self.changed_attribute_numbers().next().is_some() {
            return Err(ErrorCause::UnsupportedAttribute);
        }
        // RFC 5176, 3.2, 3.3: Authorize Only is not supported, and a session's service cannot change.
        if says(kind::SERVICE_TYPE).is_some() {
            return Err(ErrorCause::UnsupportedService);
        }
        if !SESSION.iter().any(|&number| says(number).is_some()) {
            return Err(ErrorCause::MissingAttribute);
        }
        if self.content.has_valid_attributes() { Ok(()) } else { Err(ErrorCause::InvalidRequest) }
    }
}

/// The packet code of the answer.
pub(crate) const fn answer_code(asked: PacketCode, done: bool) -> PacketCode {
    match (asked, done) {
        (PacketCode::DISCONNECT_REQUEST, true) => PacketCode::DISCONNECT_ACK,
        (PacketCode::DISCONNECT_REQUEST, false) => PacketCode::DISCONNECT_NAK,
        (_, true) => PacketCode::COA_ACK,
        (_, false) => PacketCode::COA_NAK,
    }
}
