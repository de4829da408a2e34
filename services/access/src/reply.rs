//! An AAA server's reply about a user, as RADIUS attributes or Diameter AVPs.
//!
//! The first 256 AVP codes are RADIUS's attribute numbers, with the same encoding of values (RFC 6733 §4.1). Hidden
//! values and tunnels differ.

use crate::LoginRoundState;
use crate::prefix::decode_ipv6_prefix;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_core::Duration;
use usher_crypto::SecretValue;
use usher_crypto::legacy::mschap::MsChapKeys;
use usher_diameter::avp::{AvpBuf, AvpId, AvpView};
use usher_diameter::{ResultCode, codes};
use usher_radius::attribute::{
    AttributeDataType, AttributeValue, HiddenValueError, TaggedValue, kind, vendor,
};
use usher_radius::client::{MppeKeys, RadiusReply};

/// An AAA server's reply or later request about a user. Values are parsed on access.
///
/// The first of a repeated attribute counts, if it should occur once.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessReply(pub(crate) ReplyContent);

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ReplyContent {
    Radius(RadiusReply),
    Diameter(ResultCode, AvpBuf),
}

impl fmt::Debug for AccessReply {
    /// Prints the protocol and the length only, since the reply may contain keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ReplyContent::Radius(r) => write!(f, "Reply({}, {} octets)", r.code, r.attributes.len()),
            ReplyContent::Diameter(result, avps) => {
                write!(f, "Reply({result}, {} octets)", avps.as_bytes().len())
            }
        }
    }
}

/// Framed-IP-Address (RFC 2865 §5.8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FramedAddress {
    /// The user's address.
    Address(Ipv4Addr),
    /// The NAS chooses an address (255.255.255.254).
    NasChooses,
    /// The user may choose an address (255.255.255.255).
    UserChooses,
}

/// Termination-Action RADIUS-Request (RFC 2865 §5.29).
const RADIUS_REQUEST: u32 = 1;
/// Tunnel-Type and Tunnel-Medium-Type of a VLAN (RFC 3580 §3.31).
const TUNNEL_TYPE_VLAN: u32 = 13;
const TUNNEL_MEDIUM_802: u32 = 6;

const AUTH_REQUEST_TYPE: u32 = codes::AUTH_REQUEST_TYPE.code;
const MULTI_ROUND_TIME_OUT: u32 = codes::MULTI_ROUND_TIME_OUT.code;
const AUTHORIZATION_LIFETIME: u32 = codes::AUTHORIZATION_LIFETIME.code;

/// The data types of the structured attributes read here.
const fn data_type(number: u8) -> Option<AttributeDataType> {
    Some(match number {
        kind::SERVICE_TYPE
        | kind::FRAMED_PROTOCOL
        | kind::FRAMED_MTU
        | kind::SESSION_TIMEOUT
        | kind::IDLE_TIMEOUT
        | kind::TERMINATION_ACTION
        | kind::ACCT_INTERIM_INTERVAL => AttributeDataType::Integer,
        kind::FRAMED_IP_ADDRESS | kind::FRAMED_IP_NETMASK => AttributeDataType::Ipv4Addr,
        kind::FRAMED_IPV6_PREFIX | kind::DELEGATED_IPV6_PREFIX => AttributeDataType::Ipv6Prefix,
        kind::FRAMED_IPV6_ADDRESS | kind::DNS_SERVER_IPV6_ADDRESS => AttributeDataType::Ipv6Addr,
        kind::FRAMED_INTERFACE_ID => AttributeDataType::Ifid,
        _ => return None,
    })
}

fn is_well_formed_attribute(number: u8, value: &[u8]) -> bool {
    data_type(number).is_none_or(|form| AttributeValue::decode(form, value).is_ok())
}

impl AccessReply {
    /// True if every structured attribute is valid. A client must treat a reply with an attribute of invalid length as
    /// an Access-Reject, or discard it silently (RFC 2865 §5).
    pub(crate) fn has_valid_attributes(&self) -> bool {
        match &self.0 {
            ReplyContent::Radius(r) => r.attributes.iter().all(|a| match a.kind {
                kind::TUNNEL_TYPE | kind::TUNNEL_MEDIUM_TYPE => a.value.len() == 4,
                number => is_well_formed_attribute(number, a.value),
            }),
            ReplyContent::Diameter(_, avps) => {
                // RFC 7155, 3.2; RFC 4072, 3.2: every answer has Auth-Request-Type.
                let mut has_type = false;
                for a in avps.as_sequence() {
                    let sound = match (a.vendor, a.code) {
                        (0, 0..=255) => is_well_formed_attribute(a.code as u8, a.data),
                        (0, AUTH_REQUEST_TYPE) => {
                            has_type = matches!(a.as_u32(), Ok(1..=3));
                            has_type
                        }
                        (0, MULTI_ROUND_TIME_OUT | AUTHORIZATION_LIFETIME) => a.data.len() == 4,
                        _ => true,
                    };
                    if !sound {
                        return false;
                    }
                }
                has_type
            }
        }
    }

    /// The first value of a number that RADIUS and Diameter share (RFC 6733 §4.1).
    #[must_use]
    pub fn value(&self, number: u8) -> Option<&[u8]> {
        match &self.0 {
            ReplyContent::Radius(r) => r.attributes.get(number),
            ReplyContent::Diameter(_, avps) => {
                avps.as_sequence().get(AvpId::may(number.into())).map(|a| a.data)
            }
        }
    }
    /// All values of a shared number, in their order.
    pub fn values(&self, number: u8) -> impl Iterator<Item = &[u8]> {
        let (attributes, avps) = match &self.0 {
            ReplyContent::Radius(r) => (Some(r.attributes.get_all(number)), None),
            ReplyContent::Diameter(_, avps) => {
                (None, Some(avps.as_sequence().get_all(AvpId::may(number.into()))))
            }
        };
        attributes.into_iter().flatten().chain(avps.into_iter().flatten().map(|a| a.data))
    }
    /// The first value of a vendor's attribute (RFC 2865 §5.26) or AVP.
    #[must_use]
    pub fn vendor_value(&self, vendor: u32, number: u8) -> Option<&[u8]> {
        match &self.0 {
            ReplyContent::Radius(r) => r.attributes.get_vendor(vendor, number),
            ReplyContent::Diameter(_, avps) => {
                avps.as_sequence().get(AvpId::new_vendor_avp_id(vendor, number.into(), false)).map(|a| a.data)
            }
        }
    }
    fn u32_value(&self, number: u8) -> Option<u32> {
        self.value(number)?.try_into().ok().map(u32::from_be_bytes)
    }
    fn duration_value(&self, number: u8) -> Option<Duration> {
        self.u32_value(number).map(|seconds| Duration::from_secs(seconds.into()))
    }
    fn text_value(&self, number: u8) -> Option<&str> {
        core::str::from_utf8(self.value(number)?).ok()
    }

    /// The Result-Code, over Diameter.
    #[must_use]
    pub const fn result_code(&self) -> Option<u32> {
        match &self.0 {
            ReplyContent::Radius(_) => None,
            ReplyContent::Diameter(result, _) => Some(result.0),
        }
    }
    /// Replaces the content of `out` by the EAP packet for the peer. Returns false if there is none.
    pub fn read_eap(&self, out: &mut Vec<u8>) -> bool {
        out.clear();
        match &self.0 {
            ReplyContent::Radius(r) => r.attributes.read_eap_packet(out),
            ReplyContent::Diameter(_, avps) => {
                let packet = avps.as_sequence().get(codes::EAP_PAYLOAD);
                out.extend_from_slice(packet.map_or(&[], |a| a.data));
                packet.is_some()
            }
        }
    }
    /// Replaces the content of `next` by the state for the answer to a challenge. For an accept it is the state for the
    /// [reauthentication](Self::reauthentication_delay) (RFC 2865 §5.24).
    pub fn fill_continuation(&self, next: &mut LoginRoundState) {
        let (mut host, mut state) = (&[][..], &[][..]);
        match &self.0 {
            ReplyContent::Radius(r) => state = r.attributes.get(kind::STATE).unwrap_or_default(),
            ReplyContent::Diameter(_, avps) => avps.as_sequence().for_each(|a| {
                if a.has_id(codes::ORIGIN_HOST) && a.as_identity().is_ok() {
                    host = a.data;
                } else if a.has_id(codes::STATE) {
                    state = a.data;
                }
            }),
        }
        next.set_host_and_state(host, state);
    }
    /// The keys of server and peer (RFC 2548 §2.4; EAP-Master-Session-Key, RFC 4072 §4.1.3). `None` unless both are
    /// present.
    ///
    /// # Errors
    /// The decrypted length is invalid.
    pub fn mppe_keys(&self) -> Result<Option<MppeKeys>, HiddenValueError> {
        match &self.0 {
            ReplyContent::Radius(r) => r.mppe_keys(),
            ReplyContent::Diameter(_, avps) => {
                Ok(avps.as_sequence().get(codes::EAP_MASTER_SESSION_KEY).map(|a| {
                    let (recv, send) = a.data.split_at(a.data.len() / 2);
                    MppeKeys { recv: recv.into(), send: send.into() }
                }))
            }
        }
    }
    /// The keys of an MS-CHAP login (RFC 2548 §2.4.1). For MS-CHAPv2 use [`mppe_keys`](Self::mppe_keys). Diameter has
    /// no AVP for them.
    ///
    /// # Errors
    /// The length is invalid.
    pub fn ms_chap_keys(&self) -> Result<Option<MsChapKeys>, HiddenValueError> {
        match &self.0 {
            ReplyContent::Radius(r) => r.ms_chap_keys(),
            ReplyContent::Diameter(..) => Ok(None),
        }
    }
    /// The master session key of an EAP method (RFC 3748 §7.10), if the keys are one.
    ///
    /// # Errors
    /// As for [`mppe_keys`](Self::mppe_keys).
    pub fn msk(&self) -> Result<Option<SecretValue<[u8; 64]>>, HiddenValueError> {
        Ok(self.mppe_keys()?.and_then(|keys| keys.msk()))
    }

    /// User-Name, which replaces the user's own name in accounting records (RFC 2865 §5.1).
    #[must_use]
    pub fn user_name(&self) -> Option<&[u8]> {
        self.value(kind::USER_NAME)
    }
    /// Reply-Message: lines to show to the user (RFC 2865 §5.18).
    pub fn reply_messages(&self) -> impl Iterator<Item = &[u8]> {
        self.values(kind::REPLY_MESSAGE)
    }
    /// Class, which accounting records return unchanged (RFC 2865 §5.25).
    pub fn classes(&self) -> impl Iterator<Item = &[u8]> {
        self.values(kind::CLASS)
    }
    /// Session-Timeout: the maximum duration of the session (RFC 2865 §5.27). In a challenge it is the user's time to
    /// answer (RFC 3579 §2.3; Multi-Round-Time-Out, RFC 6733 §8.19). `None` for no limit, which is zero in Diameter
    /// (RFC 6733 §8.13).
    #[must_use]
    pub fn session_timeout(&self) -> Option<Duration> {
        let lasts = self.duration_value(kind::SESSION_TIMEOUT);
        let ReplyContent::Diameter(_, avps) = &self.0 else { return lasts };
        let seconds = |a: AvpView<'_>| a.as_u32().ok().map(|seconds| Duration::from_secs(seconds.into()));
        let rounds = avps.as_sequence().get(codes::MULTI_ROUND_TIME_OUT).and_then(seconds);
        rounds.or(lasts.filter(|lasts| !lasts.is_zero()))
    }
    /// The time until the user must be authenticated again. Over RADIUS it is the Session-Timeout, if
    /// Termination-Action requests it (RFC 3580 §3.17). Over Diameter it is Authorization-Lifetime (RFC 6733 §8.9):
    /// zero is immediately, all ones never.
    #[must_use]
    pub fn reauthentication_delay(&self) -> Option<Duration> {
        match &self.0 {
            ReplyContent::Radius(_) => {
                let again = self.u32_value(kind::TERMINATION_ACTION) == Some(RADIUS_REQUEST);
                self.session_timeout().filter(|_| again)
            }
            ReplyContent::Diameter(_, avps) => {
                let seconds = avps.as_sequence().get(codes::AUTHORIZATION_LIFETIME)?.as_u32().ok()?;
                (seconds != u32::MAX).then(|| Duration::from_secs(seconds.into()))
            }
        }
    }
    /// Idle-Timeout: the maximum silence of the user (RFC 2865 §5.28).
    #[must_use]
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.duration_value(kind::IDLE_TIMEOUT)
    }
    /// Acct-Interim-Interval: the interval of interim records (RFC 2869 §5.16).
    #[must_use]
    pub fn interim_interval(&self) -> Option<Duration> {
        self.duration_value(kind::ACCT_INTERIM_INTERVAL)
    }
    /// Service-Type (RFC 2865 §5.6).
    #[must_use]
    pub fn service_type(&self) -> Option<u32> {
        self.u32_value(kind::SERVICE_TYPE)
    }
    /// Framed-Protocol (RFC 2865 §5.7): 1 is PPP.
    #[must_use]
    pub fn framed_protocol(&self) -> Option<u32> {
        self.u32_value(kind::FRAMED_PROTOCOL)
    }
    /// Framed-MTU (RFC 2865 §5.12), octets.
    #[must_use]
    pub fn framed_mtu(&self) -> Option<u32> {
        self.u32_value(kind::FRAMED_MTU)
    }
    /// Framed-IP-Address: the user's IPv4 address, or the side that chooses it.
    #[must_use]
    pub fn framed_ip_address(&self) -> Option<FramedAddress> {
        Some(match self.u32_value(kind::FRAMED_IP_ADDRESS)? {
            0xffff_fffe => FramedAddress::NasChooses,
            0xffff_ffff => FramedAddress::UserChooses,
            bits => FramedAddress::Address(Ipv4Addr::from_bits(bits)),
        })
    }
    /// Framed-IP-Netmask (RFC 2865 §5.9), for a network that is routed to the user.
    #[must_use]
    pub fn framed_ip_netmask(&self) -> Option<Ipv4Addr> {
        self.u32_value(kind::FRAMED_IP_NETMASK).map(Ipv4Addr::from_bits)
    }
    /// Framed-Pool: the NAS's pool for the user's address (RFC 2869 §5.18).
    #[must_use]
    pub fn framed_pool(&self) -> Option<&str> {
        self.text_value(kind::FRAMED_POOL)
    }
    /// Framed-IPv6-Address (RFC 6911 §3.1).
    pub fn framed_ipv6_addresses(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.values(kind::FRAMED_IPV6_ADDRESS).filter_map(parse_ipv6)
    }
    /// Framed-IPv6-Prefix: the prefixes of the user's link, with their lengths (RFC 3162 §2.3).
    pub fn framed_ipv6_prefixes(&self) -> impl Iterator<Item = (Ipv6Addr, u8)> {
        self.values(kind::FRAMED_IPV6_PREFIX).filter_map(decode_ipv6_prefix)
    }
    /// Framed-Interface-Id (RFC 3162 §2.2).
    #[must_use]
    pub fn framed_interface_id(&self) -> Option<[u8; 8]> {
        self.value(kind::FRAMED_INTERFACE_ID)?.try_into().ok()
    }
    /// Framed-IPv6-Pool: the NAS's pool for the link's prefix (RFC 3162 §2.6).
    #[must_use]
    pub fn framed_ipv6_pool(&self) -> Option<&str> {
        self.text_value(kind::FRAMED_IPV6_POOL)
    }
    /// Delegated-IPv6-Prefix: the prefixes delegated to the user, with their lengths (RFC 4818).
    pub fn delegated_ipv6_prefixes(&self) -> impl Iterator<Item = (Ipv6Addr, u8)> {
        self.values(kind::DELEGATED_IPV6_PREFIX).filter_map(decode_ipv6_prefix)
    }
    /// Delegated-IPv6-Prefix-Pool: the NAS's pool for a delegated prefix (RFC 6911 §3.4).
    #[must_use]
    pub fn delegated_ipv6_prefix_pool(&self) -> Option<&str> {
        self.text_value(kind::DELEGATED_IPV6_PREFIX_POOL)
    }
    /// The user's name servers: MS-Primary-DNS-Server and MS-Secondary-DNS-Server (RFC 2548 §2.7), then
    /// DNS-Server-IPv6-Address (RFC 6911 §3.2).
    pub fn dns_servers(&self) -> impl Iterator<Item = IpAddr> {
        let microsofts = [vendor::MS_PRIMARY_DNS_SERVER, vendor::MS_SECONDARY_DNS_SERVER];
        let v4 = microsofts.into_iter().filter_map(|number| {
            let octets: [u8; 4] = self.vendor_value(vendor::MICROSOFT, number)?.try_into().ok()?;
            Some(IpAddr::from(octets))
        });
        v4.chain(self.values(kind::DNS_SERVER_IPV6_ADDRESS).filter_map(parse_ipv6).map(IpAddr::from))
    }
    /// Filter-Id: the NAS's filters for the user's packets (RFC 2865 §5.11).
    pub fn filter_ids(&self) -> impl Iterator<Item = &str> {
        self.values(kind::FILTER_ID).filter_map(|id| core::str::from_utf8(id).ok())
    }
    /// WISPr-Bandwidth-Max-Up and WISPr-Bandwidth-Max-Down: the user's maximum rates, bit/s.
    #[must_use]
    pub fn bandwidth(&self) -> (Option<u32>, Option<u32>) {
        let [up, down] = [vendor::WISPR_BANDWIDTH_MAX_UP, vendor::WISPR_BANDWIDTH_MAX_DOWN]
            .map(|number| self.vendor_value(vendor::WISPR, number)?.try_into().ok().map(u32::from_be_bytes));
        (up, down)
    }
    /// The user's VLAN: a number from 1 to 4094 in digits, or a name configured on the NAS. It is the
    /// Tunnel-Private-Group-Id of the first tunnel of type VLAN over 802 (RFC 3580 §3.31).
    #[must_use]
    pub fn vlan(&self) -> Option<&str> {
        let group = match &self.0 {
            ReplyContent::Radius(r) => {
                r.attributes.get_all(kind::TUNNEL_PRIVATE_GROUP_ID).find_map(|value| {
                    let TaggedValue { tag, value } = TaggedValue::parse_tagged_text(value);
                    let says = |number, wanted| {
                        let all = r.attributes.get_all(number).filter_map(TaggedValue::parse_number);
                        all.into_iter().any(|t| t.tag == tag && t.value == wanted)
                    };
                    (says(kind::TUNNEL_TYPE, TUNNEL_TYPE_VLAN)
                        && says(kind::TUNNEL_MEDIUM_TYPE, TUNNEL_MEDIUM_802))
                    .then_some(value)
                })
            }
            ReplyContent::Diameter(_, avps) => {
                avps.as_sequence().get_all(codes::TUNNELING).find_map(|tunnel| {
                    let tunnel = tunnel.as_group().ok()?;
                    let says = |number: u8, wanted| {
                        tunnel.get(AvpId::must(number.into())).is_some_and(|a| a.as_u32() == Ok(wanted))
                    };
                    let group = tunnel.get(AvpId::must(kind::TUNNEL_PRIVATE_GROUP_ID.into()))?;
                    (says(kind::TUNNEL_TYPE, TUNNEL_TYPE_VLAN)
                        && says(kind::TUNNEL_MEDIUM_TYPE, TUNNEL_MEDIUM_802))
                    .then_some(group.data)
                })
            }
        };
        core::str::from_utf8(group?).ok()
    }
    /// MS-CHAP2-Success: the server's proof for the peer, `S=` and 40 digits (RFC 2548 §2.3.3).
    #[must_use]
    pub fn ms_chap2_success(&self) -> Option<&[u8]> {
        self.vendor_value(vendor::MICROSOFT, vendor::MS_CHAP2_SUCCESS)?.get(1..43)
    }
    /// MS-CHAP-Error: the reason for the reject, for the peer's software (RFC 2548 §2.1.5).
    #[must_use]
    pub fn ms_chap_error(&self) -> Option<&[u8]> {
        self.vendor_value(vendor::MICROSOFT, vendor::MS_CHAP_ERROR)?.get(1..)
    }
    /// The number of attributes or AVPs.
    #[must_use]
    pub fn attribute_count(&self) -> usize {
        match &self.0 {
            ReplyContent::Radius(r) => r.attributes.iter().count(),
            ReplyContent::Diameter(_, avps) => avps.as_sequence().count(),
        }
    }
}

fn parse_ipv6(value: &[u8]) -> Option<Ipv6Addr> {
    <[u8; 16]>::try_from(value).ok().map(Ipv6Addr::from)
}
