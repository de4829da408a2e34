//! Filters the attributes between an access network and the home servers of another realm.
//!
//! A home server authenticates its users. It must not choose the VLAN or the router privileges of a user in a
//! foreign network, and it may be run by anybody. So its answers pass an allow list, and requests omit attributes
//! that do not concern it. A realm may allow more in either direction.

use alloc::vec::Vec;
use usher_radius::attribute::{AttributeList, RawAttribute, RawAttributeIter, kind, read_vendor, vendor};
use usher_radius::dictionary::AttributeOid;
use usher_radius::packet::PacketCode;

/// Attributes that pass in addition to the standard ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AllowedExtraAttributes {
    /// These, each with all sub-attributes: `26.9` is every attribute of vendor 9.
    These(Vec<AttributeOid>),
    /// All attributes.
    All,
}

impl Default for AllowedExtraAttributes {
    /// None.
    fn default() -> Self {
        Self::These(Vec::new())
    }
}

impl AllowedExtraAttributes {
    fn contains_oid(&self, oid: &[u32]) -> bool {
        match self {
            Self::All => true,
            Self::These(these) => these.iter().any(|one| oid.starts_with(one.parts())),
        }
    }
}

/// The filter between an access network and a realm's home servers.
///
/// **Answers** keep the attributes that an access network needs of any home server:
/// - the method: EAP-Message, State, MS-CHAP2-Success, MS-CHAP-Error
/// - keys: MS-MPPE-Recv-Key, MS-MPPE-Send-Key, MS-CHAP-MPPE-Keys with their policy and types, EAP-Key-Name
/// - session lifetime: Session-Timeout, Idle-Timeout, Termination-Action, Acct-Interim-Interval
/// - accounting: Class, Chargeable-User-Identity
/// - text: Reply-Message, without EAP only (RFC 3579 §2.6.5)
/// - a plain link: Service-Type Framed-User, Framed-Protocol, Framed-MTU, Framed-Compression
/// - User-Name, if its realm is the request's. Otherwise accounting would go to another realm.
///
/// VLANs, tunnels, filters, addresses, routes, other Service-Types and vendors' attributes do not pass.
///
/// **Requests** omit VLANs, tunnels, filters, privileges of RFC 5607, and vendors' attributes except those of a
/// proof (MS-CHAP).
///
/// State, Class and Proxy-State are never changed (RFC 2865 §2.3).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RealmFilter {
    /// Extra attributes of answers. With User-Name among them, any name passes.
    pub answers: AllowedExtraAttributes,
    /// Extra attributes of requests.
    pub requests: AllowedExtraAttributes,
}

/// The result of a filter.
#[derive(Debug, Default)]
pub struct FilteredAttributes {
    /// Attributes that pass, in their order.
    pub passed: AttributeList,
    /// Attributes that are left out.
    pub left_out: AttributeList,
}

const FRAMED_COMPRESSION: u8 = 13;
const EGRESS_VLANID: u8 = 56;
const USER_PRIORITY_TABLE: u8 = 59;
const TUNNEL_SERVER_ENDPOINT: u8 = 67;
const ACCT_TUNNEL_CONNECTION: u8 = 68;
const PASSWORD_RETRY: u8 = 75;
const PROMPT: u8 = 76;
const TUNNEL_ASSIGNMENT_ID: u8 = 82;
const TUNNEL_PREFERENCE: u8 = 83;
const ACCT_TUNNEL_PACKETS_LOST: u8 = 86;
const TUNNEL_CLIENT_AUTH_ID: u8 = 90;
const TUNNEL_SERVER_AUTH_ID: u8 = 91;
const NAS_FILTER_RULE: u8 = 92;
const FRAMED_MANAGEMENT_PROTOCOL: u8 = 133;
const MANAGEMENT_PRIVILEGE_LEVEL: u8 = 136;

/// Service-Type Framed-User (RFC 2865 §5.6).
const FRAMED_USER: u32 = 2;

/// Microsoft's types (RFC 2548 §2.4) for the use of its keys, and the MS-CHAP keys.
const MS_MPPE_ENCRYPTION_POLICY: u8 = 7;
const MS_MPPE_ENCRYPTION_TYPES: u8 = 8;
impl RealmFilter {
    /// Filters a request.
    #[must_use]
    pub fn filter_request(&self, given: &AttributeList) -> FilteredAttributes {
        split_attributes(given, |oid, _| self.requests.contains_oid(oid) || is_allowed_in_request(oid))
    }
    /// Filters a home server's answer. `own_name` is true for a User-Name of the request's realm.
    #[must_use]
    pub fn filter_answer(
        &self,
        code: PacketCode,
        given: &AttributeList,
        own_name: impl Fn(&[u8]) -> bool,
    ) -> FilteredAttributes {
        let eap = given.get(kind::EAP_MESSAGE).is_some();
        split_attributes(given, |oid, value| {
            self.answers.contains_oid(oid)
                || match *oid {
                    [n] if n == u32::from(kind::USER_NAME) => {
                        code == PacketCode::ACCESS_ACCEPT && own_name(value)
                    }
                    [n] if n == u32::from(kind::REPLY_MESSAGE) => {
                        !eap && is_allowed_in_answer(code, oid, value)
                    }
                    _ => is_allowed_in_answer(code, oid, value),
                }
        })
    }
}

fn is_allowed_in_request(oid: &[u32]) -> bool {
    let octet = |n: u32| u8::try_from(n).unwrap_or(0);
    match *oid {
        [n] => !matches!(
            octet(n),
            kind::FILTER_ID
                | EGRESS_VLANID..=USER_PRIORITY_TABLE
                | kind::TUNNEL_TYPE..=TUNNEL_SERVER_ENDPOINT
                | ACCT_TUNNEL_CONNECTION
                | kind::TUNNEL_PASSWORD
                | kind::TUNNEL_PRIVATE_GROUP_ID
                | TUNNEL_ASSIGNMENT_ID
                | TUNNEL_PREFERENCE
                | ACCT_TUNNEL_PACKETS_LOST
                | TUNNEL_CLIENT_AUTH_ID
                | TUNNEL_SERVER_AUTH_ID
                | NAS_FILTER_RULE
                | FRAMED_MANAGEMENT_PROTOCOL..=MANAGEMENT_PRIVILEGE_LEVEL
        ),
        [26, vendor::MICROSOFT, n] => {
            matches!(
                octet(n),
                vendor::MS_CHAP_RESPONSE | vendor::MS_CHAP_CHALLENGE | vendor::MS_CHAP2_RESPONSE
            )
        }
        // Vendors' attributes, also inside an extended type (RFC 6929 §2.4).
        [26, ..] | [_, 26, ..] => false,
        _ => true,
    }
}

fn is_allowed_in_answer(code: PacketCode, oid: &[u32], value: &[u8]) -> bool {
    let octet = |n: u32| u8::try_from(n).unwrap_or(0);
    let number = octet(oid.first().copied().unwrap_or(0));
    match (code, oid) {
        (_, [_])
            if matches!(
                number,
                kind::STATE
                    | kind::CLASS
                    | kind::PROXY_STATE
                    | kind::EAP_MESSAGE
                    | kind::MESSAGE_AUTHENTICATOR
                    | kind::ERROR_CAUSE
            ) =>
        {
            true
        }
        (PacketCode::ACCESS_ACCEPT, [_]) => match number {
            kind::SERVICE_TYPE => value == FRAMED_USER.to_be_bytes(),
            _ => matches!(
                number,
                kind::FRAMED_PROTOCOL
                    | kind::FRAMED_MTU
                    | FRAMED_COMPRESSION
                    | kind::REPLY_MESSAGE
                    | kind::SESSION_TIMEOUT
                    | kind::IDLE_TIMEOUT
                    | kind::TERMINATION_ACTION
                    | kind::ACCT_INTERIM_INTERVAL
                    | kind::CHARGEABLE_USER_IDENTITY
                    | kind::EAP_KEY_NAME
            ),
        },
        (PacketCode::ACCESS_ACCEPT, &[26, vendor::MICROSOFT, n]) => matches!(
            octet(n),
            MS_MPPE_ENCRYPTION_POLICY
                | MS_MPPE_ENCRYPTION_TYPES
                | vendor::MS_CHAP_MPPE_KEYS
                | vendor::MS_MPPE_SEND_KEY
                | vendor::MS_MPPE_RECV_KEY
                | vendor::MS_CHAP2_SUCCESS
        ),
        (PacketCode::ACCESS_CHALLENGE, [_]) => {
            matches!(number, kind::REPLY_MESSAGE | kind::SESSION_TIMEOUT | kind::IDLE_TIMEOUT | PROMPT)
        }
        (PacketCode::ACCESS_REJECT, [_]) => matches!(number, kind::REPLY_MESSAGE | PASSWORD_RETRY),
        (PacketCode::ACCESS_REJECT, &[26, vendor::MICROSOFT, n]) => octet(n) == vendor::MS_CHAP_ERROR,
        _ => false,
    }
}

/// Splits a list by `passes`, which gets the numbers and value of each attribute.
fn split_attributes(given: &AttributeList, passes: impl Fn(&[u32], &[u8]) -> bool) -> FilteredAttributes {
    let mut sifted = FilteredAttributes {
        passed: AttributeList::with_capacity(given.len()),
        ..FilteredAttributes::default()
    };
    let put = |list: &mut AttributeList, kind: u8, value: &[u8]| {
        let fits = list.push_bytes(kind, value).is_ok();
        debug_assert!(fits, "it came out of a list");
    };
    for a in given.iter() {
        if a.kind == kind::VENDOR_SPECIFIC {
            filter_vendor_attribute(a, &passes, &mut sifted);
            continue;
        }
        let mut oid = [u32::from(a.kind), 0, 0];
        let depth = read_extended_oid(a, &mut oid);
        let list = if passes(&oid[..depth], a.value) { &mut sifted.passed } else { &mut sifted.left_out };
        put(list, a.kind, a.value);
    }
    sifted
}

/// Reads the numbers of an attribute with an extended type, and returns their count.
fn read_extended_oid(a: RawAttribute<'_>, oid: &mut [u32; 3]) -> usize {
    let header = match a.kind {
        kind::EXTENDED_1..=kind::EXTENDED_4 => 1,
        kind::LONG_EXTENDED_1..=kind::LONG_EXTENDED_2 => 2,
        _ => return 1,
    };
    let Some(&number) = a.value.first() else { return 1 };
    oid[1] = number.into();
    match a.value.get(header..).and_then(|rest| rest.first_chunk()) {
        Some(vendor) if number == kind::VENDOR_SPECIFIC => {
            oid[2] = u32::from_be_bytes(*vendor);
            3
        }
        _ => 2,
    }
}

/// Filters a Vendor-Specific attribute, which may hold several sub-attributes. If it is not in the format of RFC
/// 2865 §5.26, only its vendor decides.
fn filter_vendor_attribute(
    a: RawAttribute<'_>,
    passes: &impl Fn(&[u32], &[u8]) -> bool,
    sifted: &mut FilteredAttributes,
) {
    let number = a.value.first_chunk().map_or(0, |v| u32::from_be_bytes(*v));
    let all = read_vendor(a.value).map(|(_, rest)| rest).filter(|rest| {
        let mut walk = RawAttributeIter::new(rest);
        walk.by_ref().for_each(drop);
        walk.remaining_bytes().is_empty()
    });
    let put = |sifted: &mut FilteredAttributes, passed: bool, done: &dyn Fn(&mut AttributeList) -> bool| {
        let fits = done(if passed { &mut sifted.passed } else { &mut sifted.left_out });
        debug_assert!(fits, "it came out of a list");
    };
    let Some(all) = all else {
        let passed = passes(&[26, number], a.value);
        return put(sifted, passed, &|list| list.push_bytes(a.kind, a.value).is_ok());
    };
    let mut parts =
        RawAttributeIter::new(all).map(|part| passes(&[26, number, part.kind.into()], part.value));
    let first = parts.next().unwrap_or(false);
    if parts.all(|passed| passed == first) {
        return put(sifted, first, &|list| list.push_bytes(a.kind, a.value).is_ok());
    }
    for part in RawAttributeIter::new(all) {
        let passed = passes(&[26, number, part.kind.into()], part.value);
        put(sifted, passed, &|list| list.push_vendor(number, part.kind, part.value).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attribute_kinds(list: &AttributeList) -> Vec<u8> {
        list.iter().map(|a| a.kind).collect()
    }
    fn attributes_with(kinds: &[u8]) -> AttributeList {
        let mut list = AttributeList::new();
        for &k in kinds {
            list.push_bytes(k, &[0, 0, 0, 2]).unwrap();
        }
        list
    }
    fn standard_attributes() -> AttributeList {
        attributes_with(&(1..=240).filter(|k| *k != 26).collect::<Vec<u8>>())
    }
    fn filtered_answer(filter: &RealmFilter, code: PacketCode, given: &AttributeList) -> FilteredAttributes {
        filter.filter_answer(code, given, |name| name == b"ann@example.org")
    }

    #[test]
    fn of_standard_attributes_a_home_server_may_say_these() {
        let filter = RealmFilter::default();
        let said = |code| attribute_kinds(&filtered_answer(&filter, code, &standard_attributes()).passed);
        assert_eq!(
            said(PacketCode::ACCESS_ACCEPT),
            [6, 7, 12, 13, 24, 25, 27, 28, 29, 33, 79, 80, 85, 89, 101, 102]
        );
        assert_eq!(said(PacketCode::ACCESS_CHALLENGE), [24, 25, 27, 28, 33, 76, 79, 80, 101]);
        assert_eq!(said(PacketCode::ACCESS_REJECT), [24, 25, 33, 75, 79, 80, 101]);
        assert_eq!(said(PacketCode::ACCOUNTING_RESPONSE), [24, 25, 33, 79, 80, 101]);
        // Reply-Message passes without EAP.
        for code in [PacketCode::ACCESS_ACCEPT, PacketCode::ACCESS_CHALLENGE, PacketCode::ACCESS_REJECT] {
            assert_eq!(
                attribute_kinds(&filtered_answer(&filter, code, &attributes_with(&[18])).passed),
                [18]
            );
        }
    }

    #[test]
    fn a_home_server_gives_no_privileges() {
        for (service, passes) in [(1_u32, false), (2, true), (6, false), (7, false), (8, false), (11, false)]
        {
            let mut list = AttributeList::new();
            list.push_u32(kind::SERVICE_TYPE, service);
            let passed = filtered_answer(&RealmFilter::default(), PacketCode::ACCESS_ACCEPT, &list).passed;
            assert_eq!(!passed.is_empty(), passes, "{service}");
        }
    }

    #[test]
    fn of_standard_attributes_a_home_server_is_not_told_these() {
        let sifted = RealmFilter::default().filter_request(&standard_attributes());
        let hidden =
            [11, 56, 57, 58, 59, 64, 65, 66, 67, 68, 69, 81, 82, 83, 86, 90, 91, 92, 133, 134, 135, 136];
        assert_eq!(attribute_kinds(&sifted.left_out), hidden);
        assert_eq!(sifted.passed.iter().count() + hidden.len(), 239);
    }

    #[test]
    fn a_name_passes_within_its_realm() {
        let filter = RealmFilter::default();
        for (name, passes) in [("ann@example.org", true), ("root", false)] {
            let mut list = AttributeList::new();
            list.push_text(kind::USER_NAME, name).unwrap();
            assert_eq!(!filtered_answer(&filter, PacketCode::ACCESS_ACCEPT, &list).passed.is_empty(), passes);
            assert!(filtered_answer(&filter, PacketCode::ACCESS_REJECT, &list).passed.is_empty());
            let any = RealmFilter {
                answers: AllowedExtraAttributes::These(
                    [AttributeOid::from_standard_attribute(kind::USER_NAME)].into(),
                ),
                ..RealmFilter::default()
            };
            assert!(!filtered_answer(&any, PacketCode::ACCESS_ACCEPT, &list).passed.is_empty());
        }
    }

    fn vendor_attributes() -> AttributeList {
        let mut list = AttributeList::new();
        list.push_vendor(9, 1, b"shell:priv-lvl=15").unwrap();
        // Several in one attribute: keys, and an attribute that does not concern the home server
        // (MS-Primary-DNS-Server).
        let mut value = vendor::MICROSOFT.to_be_bytes().to_vec();
        value.extend([17, 4, 1, 2, 28, 6, 9, 9, 9, 9, 16, 4, 3, 4]);
        list.push_bytes(26, &value).unwrap();
        // Not in the suggested format.
        list.push_bytes(26, &[0, 0, 0, 9, 1, 200, 3]).unwrap();
        list.push_bytes(26, &[0, 0]).unwrap();
        list.push_extended(241, 5, b"x").unwrap();
        list.push_bytes(245, &[26, 0, 0, 0, 0, 9, 1, 2]).unwrap();
        list
    }

    #[test]
    fn of_vendors_attributes_the_keys_pass() {
        let sifted =
            filtered_answer(&RealmFilter::default(), PacketCode::ACCESS_ACCEPT, &vendor_attributes());
        let seen: Vec<_> =
            sifted.passed.vendor_attributes().map(|v| (v.vendor, v.kind, v.value.to_vec())).collect();
        assert_eq!(seen, [(311, 17, vec![1, 2]), (311, 16, vec![3, 4])]);
        assert_eq!(sifted.passed.iter().count(), 2);
        assert_eq!(attribute_kinds(&sifted.left_out), [26, 26, 26, 26, 241, 245]);
        for code in [PacketCode::ACCESS_CHALLENGE, PacketCode::ACCESS_REJECT, PacketCode::ACCOUNTING_RESPONSE]
        {
            assert!(filtered_answer(&RealmFilter::default(), code, &vendor_attributes()).passed.is_empty());
        }
        let mut error = AttributeList::new();
        error.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP_ERROR, b"\x01E=691 R=0").unwrap();
        assert!(
            !filtered_answer(&RealmFilter::default(), PacketCode::ACCESS_REJECT, &error).passed.is_empty()
        );
        let told = RealmFilter::default().filter_request(&vendor_attributes());
        assert_eq!(attribute_kinds(&told.passed), [241], "an extended type that is no vendor's");
    }

    #[test]
    fn what_is_named_passes_too() {
        let these = |oids: &[&[u32]]| {
            let these = AllowedExtraAttributes::These(
                oids.iter().map(|oid| AttributeOid::new(oid).unwrap()).collect(),
            );
            let filter = RealmFilter { answers: these.clone(), requests: these };
            let list = vendor_attributes();
            let said = attribute_kinds(&filtered_answer(&filter, PacketCode::ACCESS_ACCEPT, &list).passed);
            (said, attribute_kinds(&filter.filter_request(&list).passed))
        };
        let lists = |said: &[u8], told: &[u8]| (said.to_vec(), told.to_vec());
        assert_eq!(these(&[]), lists(&[26, 26], &[241]));
        assert_eq!(these(&[&[26, 9, 1]]), lists(&[26, 26, 26], &[26, 241]));
        assert_eq!(these(&[&[26, 9]]), lists(&[26, 26, 26, 26], &[26, 26, 241]));
        assert_eq!(these(&[&[241, 5], &[245, 26, 9]]), lists(&[26, 26, 241, 245], &[241, 245]));
        assert_eq!(these(&[&[26]]), lists(&[26, 26, 26, 26], &[26, 26, 26, 26, 241]));
        let all = RealmFilter { answers: AllowedExtraAttributes::All, requests: AllowedExtraAttributes::All };
        assert_eq!(
            filtered_answer(&all, PacketCode::ACCESS_REJECT, &vendor_attributes()).passed.as_bytes(),
            vendor_attributes().as_bytes()
        );
        assert_eq!(
            all.filter_request(&standard_attributes()).passed.as_bytes(),
            standard_attributes().as_bytes()
        );
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_what_passed_passes_again(
            parts in proptest::collection::vec((1u8..=255, proptest::collection::vec(any::<u8>(), 0..60)), 0..12),
        ) {
            let mut list = AttributeList::new();
            for (kind, value) in parts {
                list.push_bytes(kind, &value).unwrap();
            }
            let octets = |list: &AttributeList| {
                list.iter().filter(|a| a.kind != 26).map(|a| a.value.len() + 2).sum::<usize>()
            };
            for code in [PacketCode::ACCESS_ACCEPT, PacketCode::ACCESS_CHALLENGE, PacketCode::ACCESS_REJECT] {
                let sifted = filtered_answer(&RealmFilter::default(), code, &list);
                prop_assert_eq!(octets(&sifted.passed) + octets(&sifted.left_out), octets(&list));
                let again = filtered_answer(&RealmFilter::default(), code, &sifted.passed);
                prop_assert!(again.left_out.iter().all(|a| a.kind == kind::REPLY_MESSAGE) || again.left_out.is_empty());
            }
            let told = RealmFilter::default().filter_request(&list);
            prop_assert!(RealmFilter::default().filter_request(&told.passed).left_out.is_empty());
        }
    }
}
