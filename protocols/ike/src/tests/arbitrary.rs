//! Strategies for arbitrary messages.

use crate::code::*;
use crate::payload::*;
use crate::{IkeHeader, IkeMessage, Spi};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn any_octets(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..most)
}

fn any_attribute() -> impl Strategy<Value = TransformAttribute> {
    prop_oneof![
        3 => (0u16..1 << 15, any::<u16>()).prop_map(|(kind, value)| TransformAttribute::Short { kind, value }),
        1 => (0u16..1 << 15, any_octets(20)).prop_map(|(kind, value)| TransformAttribute::Long { kind, value }),
    ]
}

fn any_transform() -> impl Strategy<Value = Transform> {
    (1u8..14, any::<u16>(), vec(any_attribute(), 0..3)).prop_map(|(kind, id, attributes)| Transform {
        kind: TransformType(kind),
        id,
        attributes,
    })
}

fn any_proposal() -> impl Strategy<Value = Proposal> {
    (any::<u8>(), 0u8..5, any_octets(9), vec(any_transform(), 0..8)).prop_map(
        |(number, protocol, spi, transforms)| Proposal {
            number,
            protocol: ProtocolId(protocol),
            spi,
            transforms,
        },
    )
}

fn any_identification() -> impl Strategy<Value = Identification> {
    (any::<u8>(), any_octets(40)).prop_map(|(kind, data)| Identification { kind: IdType(kind), data })
}

fn any_selector() -> impl Strategy<Value = TrafficSelector> {
    let pair = prop_oneof![
        any::<[u32; 2]>().prop_map(|pair| pair.map(|v4| IpAddr::V4(Ipv4Addr::from(v4)))),
        any::<[u128; 2]>().prop_map(|pair| pair.map(|v6| IpAddr::V6(Ipv6Addr::from(v6)))),
    ];
    (any::<(u8, u16, u16)>(), pair).prop_map(|((protocol, start_port, end_port), [start, end])| {
        TrafficSelector { protocol, start_port, end_port, start, end }
    })
}

fn any_selectors() -> impl Strategy<Value = TrafficSelectors> {
    let other = (9u8.., any::<u8>(), any_octets(20))
        .prop_map(|(kind, protocol, data)| UnknownTrafficSelector { kind, protocol, data });
    (vec(any_selector(), 0..4), vec(other, 0..2))
        .prop_map(|(selectors, others)| TrafficSelectors { selectors, unknown_selectors: others })
}

fn any_configuration() -> impl Strategy<Value = ConfigurationPayload> {
    let attribute = (0u16..1 << 15, any_octets(18))
        .prop_map(|(kind, value)| ConfigurationAttribute { kind: ConfigurationType(kind), value });
    (any::<u8>(), vec(attribute, 0..4))
        .prop_map(|(kind, attributes)| ConfigurationPayload { kind: CfgType(kind), attributes })
}

fn any_notify() -> impl Strategy<Value = NotifyPayload> {
    (0u8..4, any_octets(9), any::<u16>(), any_octets(30)).prop_map(|(protocol, spi, kind, data)| {
        NotifyPayload { protocol: ProtocolId(protocol), spi, kind: NotifyType(kind), data }
    })
}

fn any_delete() -> impl Strategy<Value = DeletePayload> {
    prop_oneof![
        Just(DeletePayload::Ike),
        (2u8..4, vec(any::<u32>(), 0..5))
            .prop_map(|(protocol, spis)| DeletePayload::Child { protocol: ProtocolId(protocol), spis }),
    ]
}

/// Any payload but the encrypted ones.
pub(crate) fn any_payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        vec(any_proposal(), 1..4).prop_map(Payload::SecurityAssociation),
        (any::<u16>(), any_octets(64))
            .prop_map(|(m, data)| Payload::KeyExchange { method: KeyExchangeMethod(m), data }),
        any_identification().prop_map(Payload::IdentificationInitiator),
        any_identification().prop_map(Payload::IdentificationResponder),
        (any::<u8>(), any_octets(64))
            .prop_map(|(e, data)| Payload::Certificate { encoding: CertificateEncoding(e), data }),
        (any::<u8>(), any_octets(64)).prop_map(|(e, authorities)| Payload::CertificateRequest {
            encoding: CertificateEncoding(e),
            authorities
        }),
        (any::<u8>(), any_octets(64))
            .prop_map(|(m, data)| Payload::Authentication { method: AuthMethod(m), data }),
        vec(any::<u8>(), NONCE_LEN).prop_map(Payload::Nonce),
        any_notify().prop_map(Payload::Notify),
        any_delete().prop_map(Payload::Delete),
        any_octets(30).prop_map(Payload::VendorId),
        any_selectors().prop_map(Payload::TrafficSelectorsInitiator),
        any_selectors().prop_map(Payload::TrafficSelectorsResponder),
        any_configuration().prop_map(Payload::Configuration),
        any_octets(30).prop_map(Payload::Eap),
        (54u8.., any::<bool>(), any_octets(30)).prop_map(|(kind, critical, data)| Payload::Unknown {
            kind: PayloadType(kind),
            critical,
            data
        }),
    ]
}

pub(crate) fn any_header() -> impl Strategy<Value = IkeHeader> {
    any::<([u8; 8], [u8; 8], u8, bool, bool, bool, u32)>().prop_map(
        |(i, r, exchange, a, b, c, message_id)| IkeHeader {
            initiator_spi: Spi(i),
            responder_spi: Spi(r),
            exchange: ExchangeType(exchange),
            initiator: a,
            response: b,
            higher_version: c,
            message_id,
        },
    )
}

/// Any message.
pub(crate) fn any_message() -> impl Strategy<Value = IkeMessage> {
    let fragment =
        (1u16.., any::<u16>()).prop_map(|(number, more)| Some((number, number.saturating_add(more))));
    let encrypted = (any::<u8>(), prop_oneof![Just(None), fragment], any_octets(60)).prop_map(
        |(next, fragment, body)| {
            Payload::Encrypted(EncryptedPayload { next: PayloadType(next), fragment, body })
        },
    );
    (any_header(), vec(any_payload(), 0..6), proptest::option::of(encrypted)).prop_map(
        |(header, mut payloads, encrypted)| {
            payloads.extend(encrypted);
            IkeMessage { header, payloads }
        },
    )
}
