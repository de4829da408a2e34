//! Converts RADIUS attributes to AVPs and back (RFC 7155 §4, RFC 4072 §6).
//!
//! AVP codes up to 255 are attribute numbers with the same value format (RFC 6733 §4.1). Exceptions are values that
//! RADIUS encrypts, and tunnels, which have a tag in RADIUS (RFC 2868 §3) and a group in Diameter (RFC 7155 §4.5).

use usher_diameter::avp::{AvpBuf, AvpId, AvpSequence, AvpView};
use usher_diameter::codes;
use usher_radius::attribute::{
    AttributeList, RawAttribute, VendorAttributeFormat, kind, read_vendor, vendor,
};
use usher_radius::dictionary::RadiusDictionary;

/// Microsoft's keys (RFC 2548 §2.4), which RADIUS encrypts. Diameter uses EAP-Master-Session-Key.
const HIDDEN_KEYS: [u8; 3] = [vendor::MS_CHAP_MPPE_KEYS, vendor::MS_MPPE_SEND_KEY, vendor::MS_MPPE_RECV_KEY];

/// Attributes of a hop or packet, which the other protocol expresses in its own way.
pub(super) const NOT_TRANSLATED: [u8; 7] = [
    kind::USER_PASSWORD,
    kind::CHAP_PASSWORD,
    kind::STATE,
    kind::PROXY_STATE,
    kind::TUNNEL_PASSWORD,
    kind::EAP_MESSAGE,
    kind::MESSAGE_AUTHENTICATOR,
];

/// Valid tag octets of a tunnel attribute (RFC 2868 §3). 0: no tag.
const TAGS: core::ops::RangeInclusive<u8> = 0..=0x1f;
const TUNNEL_CLIENT_ENDPOINT: u8 = 66;
const TUNNEL_SERVER_ENDPOINT: u8 = 67;
const TUNNEL_PREFERENCE: u8 = 83;

/// The value format of a tunnel attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TunnelAttributeFormat {
    /// A tag and a number of three octets.
    Number,
    /// An optional tag and a text.
    Text,
}

/// Returns the format of a tunnel attribute. Tunnel-Password, which is encrypted, has none.
const fn tunnel_attribute_format(kind: u8) -> Option<TunnelAttributeFormat> {
    match kind {
        kind::TUNNEL_TYPE | kind::TUNNEL_MEDIUM_TYPE | TUNNEL_PREFERENCE => {
            Some(TunnelAttributeFormat::Number)
        }
        TUNNEL_CLIENT_ENDPOINT | TUNNEL_SERVER_ENDPOINT | kind::TUNNEL_PRIVATE_GROUP_ID | 82 | 90 | 91 => {
            Some(TunnelAttributeFormat::Text)
        }
        _ => None,
    }
}

/// Splits a tunnel attribute into its tag and the rest. Tag 0: none.
fn split_tunnel_tag<'a>(a: &RawAttribute<'a>) -> Option<(u8, &'a [u8])> {
    match (tunnel_attribute_format(a.kind)?, a.value) {
        (TunnelAttributeFormat::Number, [tag, number @ ..]) if number.len() == 3 => {
            Some((if TAGS.contains(tag) { *tag } else { 0 }, number))
        }
        (TunnelAttributeFormat::Number, _) => None,
        (TunnelAttributeFormat::Text, [tag, text @ ..]) if TAGS.contains(tag) => Some((*tag, text)),
        (TunnelAttributeFormat::Text, text) => Some((0, text)),
    }
}

/// Appends the attributes of a reply as AVPs. Encrypted values have no counterpart and are omitted. The M flag is
/// set if a Diameter application defines the attribute; a client need not know others or vendors' attributes.
///
/// RFC 4072 §2.8.3: with an EAP packet (`with_eap`) Reply-Message is omitted. `dictionary` has vendors with unusual
/// headers.
pub(super) fn attributes_as_avps(
    reply: &AttributeList,
    with_eap: bool,
    dictionary: Option<&RadiusDictionary>,
    avps: &mut AvpBuf,
) {
    const HIDDEN: [u8; 2] = [kind::USER_PASSWORD, kind::TUNNEL_PASSWORD];
    let plain = |a: &RawAttribute<'_>| {
        a.kind != kind::VENDOR_SPECIFIC
            && !HIDDEN.contains(&a.kind)
            && tunnel_attribute_format(a.kind).is_none()
            && !(with_eap && a.kind == kind::REPLY_MESSAGE)
    };
    for a in reply.iter().filter(plain) {
        // RFC 6733, 4.1: the M flag is as the application sets it.
        avps.push(codes::radius_avp_id(a.kind), a.value);
    }
    let mut tags: u32 = 0;
    for (tag, _) in reply.iter().filter_map(|a| split_tunnel_tag(&a)) {
        // A tag is below 32, so it selects a bit of `tags`.
        if tags & (1 << tag) == 0 {
            tags |= 1 << tag;
            push_tunneling_avp(reply, tag, avps);
        }
    }
    let hidden =
        |of, number| of == vendor::MICROSOFT && HIDDEN_KEYS.iter().any(|kind| u32::from(*kind) == number);
    for a in reply.iter().filter(|a| a.kind == kind::VENDOR_SPECIFIC && !reply.is_secret_to_hide(a)) {
        // With vendor 0 this would be an AVP of the base protocol (RFC 6733 §4.1) and bypass its checks, so it is
        // skipped.
        let Some((of @ 1.., data)) = read_vendor(a.value) else { continue };
        let framing = dictionary.map_or(VendorAttributeFormat::SUGGESTED, |d| d.vendor_framing(of));
        for (number, range) in
            framing.split_attributes(data).into_iter().flatten().filter(|v| !hidden(of, v.0))
        {
            avps.push(AvpId::new_vendor_avp_id(of, number, false), &data[range]);
        }
    }
}

/// Appends a Tunneling AVP of the attributes with this tag. Its grammar requires both endpoints. A VLAN has none
/// (RFC 3580 §3.31), so they are empty.
fn push_tunneling_avp(reply: &AttributeList, tag: u8, avps: &mut AvpBuf) {
    let with = |group: &mut AvpBuf, wanted: fn(u8) -> bool| {
        let mut some = false;
        for a in reply.iter().filter(|a| wanted(a.kind)) {
            let Some((_, value)) = split_tunnel_tag(&a).filter(|(t, _)| *t == tag) else { continue };
            some = true;
            match (tunnel_attribute_format(a.kind), value) {
                (Some(TunnelAttributeFormat::Number), &[x, y, z]) => {
                    group.push(codes::radius_avp_id(a.kind), &[0, x, y, z])
                }
                _ => group.push(codes::radius_avp_id(a.kind), value),
            };
        }
        some
    };
    // RFC 7155, 4.5: Tunneling has the M flag.
    avps.push_group(codes::TUNNELING, |group| {
        with(group, |k| matches!(k, kind::TUNNEL_TYPE | kind::TUNNEL_MEDIUM_TYPE));
        if !with(group, |k| k == TUNNEL_CLIENT_ENDPOINT) {
            group.push(codes::radius_avp_id(TUNNEL_CLIENT_ENDPOINT), b"");
        }
        if !with(group, |k| k == TUNNEL_SERVER_ENDPOINT) {
            group.push(codes::radius_avp_id(TUNNEL_SERVER_ENDPOINT), b"");
        }
        with(group, |k| tunnel_attribute_format(k).is_some() && !matches!(k, 64..=67));
    });
}

/// Converts AVPs to RADIUS attributes of their numbers. AVPs that do not fit are omitted.
pub(super) fn avps_as_attributes(avps: AvpSequence<'_>, out: &mut AttributeList) {
    let mut tunnels = 0;
    for avp in avps {
        if avp.has_id(codes::TUNNELING) {
            tunnels += 1;
            if TAGS.contains(&tunnels) {
                tunnel_as_attributes(avp, tunnels, out);
            }
            continue;
        }
        let Ok(number @ 1..) = u8::try_from(avp.code) else { continue };
        match avp.vendor {
            0 if NOT_TRANSLATED.contains(&number) || number == kind::VENDOR_SPECIFIC => {}
            0 => drop(out.push_bytes(number, avp.data).is_ok()),
            vendor::MICROSOFT if HIDDEN_KEYS.contains(&number) => {}
            vendor => drop(out.push_vendor(vendor, number, avp.data).is_ok()),
        }
    }
}

fn tunnel_as_attributes(tunneling: AvpView<'_>, tag: u8, out: &mut AttributeList) {
    let Ok(group) = tunneling.as_group() else { return };
    for avp in group.filter(|a| a.vendor == 0) {
        let Ok(number) = u8::try_from(avp.code) else { continue };
        let mut value = alloc::vec![tag];
        match (tunnel_attribute_format(number), avp.data) {
            (Some(TunnelAttributeFormat::Number), &[0, x, y, z]) => value.extend_from_slice(&[x, y, z]),
            (Some(TunnelAttributeFormat::Text), text) if !text.is_empty() => value.extend_from_slice(text),
            _ => continue,
        }
        // A text too long for one attribute is left out: an access server could not use it.
        let _ = out.push_bytes(number, &value);
    }
}

/// Returns the first mandatory AVP of a successful answer that has no RADIUS attribute (RFC 6733 §4.1). It may
/// restrict the user.
pub(super) fn find_untranslatable_avp<'a>(mut avps: AvpSequence<'a>) -> Option<AvpView<'a>> {
    avps.find(|a| {
        let heard = matches!(
            (a.vendor, a.code),
            (_, 0..=255)
                // These AVPs describe the message and not the user: identities, results, session id and lifetime.
                | (0, 257..=269 | 271 | 272 | 274 | 276..=285 | 291 | 293 | 294 | 296..=298)
                | (0, 401 | 462..=465)
        );
        a.is_mandatory() && !heard
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_diameter::dictionary::DiameterDictionary;

    fn translated_avps(reply: &AttributeList, with_eap: bool) -> AvpBuf {
        let mut avps = AvpBuf::new();
        attributes_as_avps(reply, with_eap, None, &mut avps);
        avps
    }

    fn attribute_list(attributes: &[(u8, &[u8])]) -> AttributeList {
        let mut list = AttributeList::new();
        for (kind, value) in attributes {
            list.push_bytes(*kind, value).unwrap();
        }
        list
    }

    const VLAN: [(u8, &[u8]); 3] = [(64, &[0, 0, 0, 13]), (65, &[0, 0, 0, 6]), (81, b"42")];
    const TWO_TUNNELS: [(u8, &[u8]); 6] = [
        (64, &[1, 0, 0, 3]),
        (64, &[2, 0, 0, 13]),
        (67, b"\x01lns.example"),
        (65, &[1, 0, 0, 1]),
        (65, &[2, 0, 0, 6]),
        (81, b"\x0242"),
    ];

    #[test]
    fn vendor_0_is_nobody_and_makes_no_avp_of_the_base_protocol() {
        let octets = [0, 0, 0, 0, 8, 6, 10, 0, 0, 1];
        assert_eq!(translated_avps(&attribute_list(&[(26, &octets)]), false).as_sequence().count(), 0);
        let ciscos = [0, 0, 0, 9, 8, 6, 10, 0, 0, 1];
        assert_eq!(translated_avps(&attribute_list(&[(26, &ciscos)]), false).as_sequence().count(), 1);
    }

    /// RFC 7155 §4.5: a tunnel is a group without the tag. Each required AVP occurs once.
    #[test]
    fn a_tunnel_is_a_group() {
        let dictionary = DiameterDictionary::builtin();
        for (attributes, tunnels) in [(&VLAN[..], 1), (&TWO_TUNNELS, 2)] {
            let avps = translated_avps(&attribute_list(attributes), true);
            let groups: Vec<AvpView<'_>> = avps.as_sequence().collect();
            assert_eq!(groups.len(), tunnels);
            for group in groups {
                assert!(group.has_id(codes::TUNNELING) && group.is_mandatory());
                let inner = group.as_group().unwrap();
                for code in 64..=67 {
                    let all: Vec<_> = inner.filter(|a| a.code == code).collect();
                    assert_eq!(all.len(), 1, "{code}");
                    assert!(code > 65 || all[0].as_u32().is_ok());
                }
                for a in inner {
                    assert!(dictionary.avp_by_code(a.code).is_some() && a.is_mandatory(), "{a}");
                }
            }
        }
        let avps = translated_avps(&attribute_list(&VLAN), true);
        let group = avps.as_sequence().next().unwrap().as_group().unwrap();
        let of = |kind| group.get(codes::radius_avp_id(kind)).unwrap().data;
        assert_eq!((of(64), of(65), of(81)), (&[0, 0, 0, 13][..], &[0, 0, 0, 6][..], &b"42"[..]));
    }

    #[test]
    fn tunnels_come_back_as_they_went() {
        let back = |attributes: &[(u8, &[u8])]| {
            let mut list_of = AttributeList::new();
            avps_as_attributes(
                translated_avps(&attribute_list(attributes), true).as_sequence(),
                &mut list_of,
            );
            let mut all: Vec<_> = list_of.iter().map(|a| (a.kind, a.value.to_vec())).collect();
            all.sort();
            all
        };
        let mut expected: Vec<_> = TWO_TUNNELS.iter().map(|(kind, value)| (*kind, value.to_vec())).collect();
        expected.sort();
        assert_eq!(back(&TWO_TUNNELS), expected);
        // An attribute without a tag gets one.
        let vlan = [(64, vec![1, 0, 0, 13]), (65, vec![1, 0, 0, 6]), (81, b"\x0142".to_vec())];
        assert_eq!(back(&VLAN), vlan);
    }

    /// RFC 4072 §2.8.3.
    #[test]
    fn no_reply_message_goes_beside_an_eap_packet() {
        let reply = attribute_list(&[(18, b"welcome"), (27, &[0, 0, 0, 60])]);
        let has =
            |with_eap| translated_avps(&reply, with_eap).as_sequence().get(codes::REPLY_MESSAGE).is_some();
        assert_eq!((has(true), has(false)), (false, true));
    }

    /// RFC 6733 §4.1: AVPs outside Diameter applications may be ignored.
    #[test]
    fn only_what_an_application_defines_must_be_understood() {
        let avps = translated_avps(
            &attribute_list(&[(27, &[0, 0, 0, 60]), (168, &[0; 16]), (85, &[0, 0, 1, 0])]),
            true,
        );
        let mandatory: Vec<_> = avps.as_sequence().map(|a| (a.code, a.is_mandatory())).collect();
        assert_eq!(mandatory, [(27, true), (168, false), (85, true)]);
    }

    #[test]
    fn what_forbids_something_is_not_passed_over() {
        let found = |id: AvpId| {
            let mut avps = AvpBuf::new();
            avps.push_u32(codes::RESULT_CODE, 2001).push(id, b"x");
            find_untranslatable_avp(avps.as_sequence()).map(|a| a.code)
        };
        for passed in [codes::SESSION_ID, codes::TUNNELING, codes::radius_avp_id(11), AvpId::may(400)] {
            assert_eq!(found(passed), None, "{passed:?}");
        }
        assert_eq!(found(AvpId::new_vendor_avp_id(9, 1, true)), None);
        // NAS-Filter-Rule, an unknown AVP, and a vendor's AVP that exceeds an attribute.
        for (id, code) in [
            (AvpId::must(400), 400),
            (AvpId::must(60_000), 60_000),
            (AvpId::new_vendor_avp_id(10_415, 1_400, true), 1_400),
        ] {
            assert_eq!(found(id), Some(code));
        }
    }
}
