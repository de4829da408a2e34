//! Any message.

use crate::code::*;
use crate::payload::*;
use crate::{Header, Message, Spi};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn octets(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..most)
}

fn attribute() -> impl Strategy<Value = Attribute> {
    prop_oneof![
        3 => (0u16..1 << 15, any::<u16>()).prop_map(|(kind, value)| Attribute::Short { kind, value }),
        1 => (0u16..1 << 15, octets(20)).prop_map(|(kind, value)| Attribute::Long { kind, value }),
    ]
}

fn transform() -> impl Strategy<Value = Transform> {
    (1u8..14, any::<u16>(), vec(attribute(), 0..3)).prop_map(|(kind, id, attributes)| Transform {
        kind: TransformType(kind),
        id,
        attributes,
    })
}

fn proposal() -> impl Strategy<Value = Proposal> {
    (any::<u8>(), 0u8..5, octets(9), vec(transform(), 0..8)).prop_map(
        |(number, protocol, spi, transforms)| Proposal {
            number,
            protocol: ProtocolId(protocol),
            spi,
            transforms,
        },
    )
}

fn identification() -> impl Strategy<Value = Identification> {
    (any::<u8>(), octets(40)).prop_map(|(kind, data)| Identification { kind: IdType(kind), data })
}

fn selector() -> impl Strategy<Value = TrafficSelector> {
    let pair = prop_oneof![
        any::<[u32; 2]>().prop_map(|pair| pair.map(|v4| IpAddr::V4(Ipv4Addr::from(v4)))),
        any::<[u128; 2]>().prop_map(|pair| pair.map(|v6| IpAddr::V6(Ipv6Addr::from(v6)))),
    ];
    (any::<(u8, u16, u16)>(), pair).prop_map(|((protocol, start_port, end_port), [start, end])| {
        TrafficSelector { protocol, start_port, end_port, start, end }
    })
}

fn selectors() -> impl Strategy<Value = TrafficSelectors> {
    let other = (9u8.., any::<u8>(), octets(20)).prop_map(|(kind, protocol, data)| OtherSelector {
        kind,
        protocol,
        data,
    });
    (vec(selector(), 0..4), vec(other, 0..2))
        .prop_map(|(selectors, others)| TrafficSelectors { selectors, others })
}

fn configuration() -> impl Strategy<Value = Configuration> {
    let attribute = (0u16..1 << 15, octets(18))
        .prop_map(|(kind, value)| ConfigurationAttribute { kind: ConfigurationType(kind), value });
    (any::<u8>(), vec(attribute, 0..4))
        .prop_map(|(kind, attributes)| Configuration { kind: CfgType(kind), attributes })
}

fn notify() -> impl Strategy<Value = Notify> {
    (0u8..4, octets(9), any::<u16>(), octets(30)).prop_map(|(protocol, spi, kind, data)| Notify {
        protocol: ProtocolId(protocol),
        spi,
        kind: NotifyType(kind),
        data,
    })
}

fn delete() -> impl Strategy<Value = Delete> {
    prop_oneof![
        Just(Delete::Ike),
        (2u8..4, vec(any::<u32>(), 0..5))
            .prop_map(|(protocol, spis)| Delete::Child { protocol: ProtocolId(protocol), spis }),
    ]
}

/// Any payload but the encrypted ones.
pub(crate) fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        vec(proposal(), 1..4).prop_map(Payload::SecurityAssociation),
        (any::<u16>(), octets(64))
            .prop_map(|(m, data)| Payload::KeyExchange { method: KeyExchangeMethod(m), data }),
        identification().prop_map(Payload::IdentificationInitiator),
        identification().prop_map(Payload::IdentificationResponder),
        (any::<u8>(), octets(64))
            .prop_map(|(e, data)| Payload::Certificate { encoding: CertificateEncoding(e), data }),
        (any::<u8>(), octets(64)).prop_map(|(e, authorities)| Payload::CertificateRequest {
            encoding: CertificateEncoding(e),
            authorities
        }),
        (any::<u8>(), octets(64))
            .prop_map(|(m, data)| Payload::Authentication { method: AuthMethod(m), data }),
        vec(any::<u8>(), NONCE_LEN).prop_map(Payload::Nonce),
        notify().prop_map(Payload::Notify),
        delete().prop_map(Payload::Delete),
        octets(30).prop_map(Payload::VendorId),
        selectors().prop_map(Payload::TrafficSelectorsInitiator),
        selectors().prop_map(Payload::TrafficSelectorsResponder),
        configuration().prop_map(Payload::Configuration),
        octets(30).prop_map(Payload::Eap),
        (54u8.., any::<bool>(), octets(30)).prop_map(|(kind, critical, data)| Payload::Unknown {
            kind: PayloadType(kind),
            critical,
            data
        }),
    ]
}

pub(crate) fn header() -> impl Strategy<Value = Header> {
    any::<([u8; 8], [u8; 8], u8, bool, bool, bool, u32)>().prop_map(
        |(i, r, exchange, a, b, c, message_id)| Header {
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
pub(crate) fn message() -> impl Strategy<Value = Message> {
    let fragment =
        (1u16.., any::<u16>()).prop_map(|(number, more)| Some((number, number.saturating_add(more))));
    let encrypted =
        (any::<u8>(), prop_oneof![Just(None), fragment], octets(60)).prop_map(|(next, fragment, body)| {
            Payload::Encrypted(Encrypted { next: PayloadType(next), fragment, body })
        });
    (header(), vec(payload(), 0..6), proptest::option::of(encrypted)).prop_map(
        |(header, mut payloads, encrypted)| {
            payloads.extend(encrypted);
            Message { header, payloads }
        },
    )
}
