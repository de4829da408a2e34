//! Logins: the proof reaches the server, and the reply reaches the NAS.

use crate::world::{AccessTestNetwork, CARRIERS, ServerScript, TestTransport, answer_avps, server_identity};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_access::{
    AccessClientEvent, AccessReply, AccessRequest, ChapResponse, FramedAddress, LoginRoundState,
    MsChapResponse, MsChapV2Response, NasPort, ServerProofError, UserCredentials,
};
use usher_core::Duration;
use usher_diameter::ResultCode;
use usher_diameter::avp::{AvpBuf, AvpId};
use usher_diameter::codes;
use usher_diameter::eap::DiameterEapRequest;
use usher_diameter::nasreq::AaRequest;
use usher_radius::attribute::{kind, vendor};
use usher_radius::{AttributeList, PacketCode};

const NAME: &[u8] = b"ann@example.org";
const PASSWORD: &[u8] = b"open sesame";
const CHALLENGE: [u8; 16] = *b"sixteen octets..";

fn test_port() -> NasPort<'static> {
    NasPort {
        number: Some(7),
        id: Some("ge-0/0/7"),
        calling_station: Some("00-10-A4-23-19-C0"),
        called_station: Some("02-00-00-00-00-01"),
        mtu: None,
    }
}

/// The attributes of a user that both protocols have, except tunnels, keys and Microsoft's.
fn common_attributes() -> AttributeList {
    let mut a = AttributeList::new();
    a.push_text(kind::USER_NAME, "anna").unwrap();
    a.push_u32(kind::SERVICE_TYPE, 2).push_u32(kind::FRAMED_PROTOCOL, 1).push_u32(kind::FRAMED_MTU, 1492);
    a.push_ipv4(kind::FRAMED_IP_ADDRESS, Ipv4Addr::new(192, 0, 2, 9));
    a.push_ipv4(kind::FRAMED_IP_NETMASK, Ipv4Addr::new(255, 255, 255, 248));
    a.push_bytes(kind::CLASS, b"gold").unwrap().push_bytes(kind::CLASS, &[0xff, 1]).unwrap();
    a.push_u32(kind::SESSION_TIMEOUT, 3600).push_u32(kind::IDLE_TIMEOUT, 600);
    a.push_u32(kind::ACCT_INTERIM_INTERVAL, 300);
    a.push_text(kind::FILTER_ID, "guests").unwrap().push_text(kind::FILTER_ID, "no-smtp").unwrap();
    a.push_text(kind::REPLY_MESSAGE, "Welcome.").unwrap();
    a.push_text(kind::FRAMED_POOL, "dsl").unwrap().push_text(kind::FRAMED_IPV6_POOL, "dsl6").unwrap();
    a.push_text(kind::DELEGATED_IPV6_PREFIX_POOL, "homes").unwrap();
    a.push_bytes(kind::FRAMED_IPV6_PREFIX, &[0, 64, 0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0]).unwrap();
    a.push_bytes(kind::DELEGATED_IPV6_PREFIX, &[0, 56, 0x20, 1, 0x0d, 0xb8, 0, 2, 0]).unwrap();
    a.push_ipv6(kind::FRAMED_IPV6_ADDRESS, "2001:db8::9".parse().unwrap());
    a.push_ipv6(kind::DNS_SERVER_IPV6_ADDRESS, "2001:db8::53".parse().unwrap());
    a.push_bytes(kind::FRAMED_INTERFACE_ID, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    a
}

fn as_avps(list: &AttributeList, avps: &mut AvpBuf) {
    for a in list.iter() {
        avps.push(codes::radius_avp_id(a.kind), a.value);
    }
}

fn assert_whole(reply: &AccessReply, carrier: TestTransport) {
    let addr = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    assert_eq!(reply.user_name(), Some(&b"anna"[..]));
    assert_eq!(
        (reply.service_type(), reply.framed_protocol(), reply.framed_mtu()),
        (Some(2), Some(1), Some(1492))
    );
    assert_eq!(reply.framed_ip_address(), Some(FramedAddress::Address(Ipv4Addr::new(192, 0, 2, 9))));
    assert_eq!(reply.framed_ip_netmask(), Some(Ipv4Addr::new(255, 255, 255, 248)));
    assert_eq!(reply.classes().collect::<Vec<_>>(), [&b"gold"[..], &[0xff, 1]]);
    let seconds = |s| Some(Duration::from_secs(s));
    assert_eq!((reply.session_timeout(), reply.idle_timeout()), (seconds(3600), seconds(600)));
    assert_eq!(reply.interim_interval(), seconds(300));
    assert_eq!(reply.filter_ids().collect::<Vec<_>>(), ["guests", "no-smtp"]);
    assert_eq!(reply.reply_messages().collect::<Vec<_>>(), [b"Welcome."]);
    assert_eq!((reply.framed_pool(), reply.framed_ipv6_pool()), (Some("dsl"), Some("dsl6")));
    assert_eq!(reply.delegated_ipv6_prefix_pool(), Some("homes"));
    assert_eq!(reply.framed_ipv6_prefixes().collect::<Vec<_>>(), [(addr("2001:db8:1::"), 64)]);
    assert_eq!(reply.delegated_ipv6_prefixes().collect::<Vec<_>>(), [(addr("2001:db8:2::"), 56)]);
    assert_eq!(reply.framed_ipv6_addresses().collect::<Vec<_>>(), [addr("2001:db8::9")]);
    assert_eq!(reply.framed_interface_id(), Some([1, 2, 3, 4, 5, 6, 7, 8]));
    let dns: Vec<IpAddr> = vec![Ipv4Addr::new(192, 0, 2, 53).into(), addr("2001:db8::53").into()];
    assert_eq!(reply.dns_servers().collect::<Vec<_>>(), dns);
    assert_eq!(reply.vlan(), Some("42"), "{carrier:?}");
    assert_eq!(*reply.msk().unwrap().unwrap(), [9; 64]);
    // After the Session-Timeout by RADIUS, after Authorization-Lifetime by Diameter.
    let again = if carrier == TestTransport::Diameter { 1800 } else { 3600 };
    assert_eq!(reply.reauthentication_delay(), seconds(again));
}

/// Type, medium and group of tunnels. Only the last is a VLAN (RFC 3580 section 3.31).
const TUNNELS: [(u32, u32, &[u8]); 4] = [(3, 1, b"vpn"), (13, 1, b"41"), (3, 6, b"40"), (13, 6, b"42")];

/// A reply with tunnels, a VLAN and the parts that differ between the protocols.
const WHOLE: ServerScript = ServerScript {
    radius: |request| {
        let mut a = common_attributes();
        for (tag, (kind, medium, group)) in (1..).zip(TUNNELS) {
            a.push_tagged_u32(kind::TUNNEL_TYPE, tag, kind).push_tagged_u32(
                kind::TUNNEL_MEDIUM_TYPE,
                tag,
                medium,
            );
            a.push_tagged_bytes(kind::TUNNEL_PRIVATE_GROUP_ID, tag, group).unwrap();
        }
        a.push_u32(kind::TERMINATION_ACTION, 1).push_msk(&[9; 64]);
        a.push_vendor(vendor::MICROSOFT, vendor::MS_PRIMARY_DNS_SERVER, &[192, 0, 2, 53]).unwrap();
        assert!(has_valid_proof(
            &request.attributes,
            request.user_password().unwrap().as_deref().map(|p| &p[..])
        ));
        Some((PacketCode::ACCESS_ACCEPT, a))
    },
    diameter: |message| {
        let mut avps = answer_avps(message);
        as_avps(&common_attributes(), &mut avps);
        for (kind, medium, group) in TUNNELS {
            avps.push_group(codes::TUNNELING, |g| {
                g.push_u32(codes::radius_avp_id(kind::TUNNEL_TYPE), kind);
                g.push_u32(codes::radius_avp_id(kind::TUNNEL_MEDIUM_TYPE), medium);
                g.push(codes::radius_avp_id(kind::TUNNEL_PRIVATE_GROUP_ID), group);
            });
        }
        avps.push_u32(codes::AUTHORIZATION_LIFETIME, 1800).push(codes::EAP_MASTER_SESSION_KEY, &[9; 64]);
        avps.push(AvpId::new_vendor_avp_id(vendor::MICROSOFT, 28, false), &[192, 0, 2, 53]);
        let view = message.avps.as_sequence();
        let mut said = AttributeList::new();
        let (name, nas) = if let Ok(der) = DiameterEapRequest::parse(view) {
            said.push_eap(der.eap);
            (der.user_name, der.nas)
        } else {
            let aar = AaRequest::parse(view).unwrap();
            if let Some(chap) = aar.chap {
                let value = [&[chap.identifier][..], chap.response].concat();
                said.push_bytes(kind::CHAP_PASSWORD, &value).unwrap();
                said.push_bytes(kind::CHAP_CHALLENGE, chap.challenge).unwrap();
            }
            for a in view.filter(|a| a.vendor == vendor::MICROSOFT) {
                said.push_vendor(a.vendor, a.code as u8, a.data).unwrap();
            }
            (aar.user_name, aar.nas)
        };
        said.push_text(kind::USER_NAME, name.unwrap()).unwrap().push_u32(kind::NAS_PORT, nas.port.unwrap());
        said.push_text(kind::CALLING_STATION_ID, nas.calling_station.unwrap()).unwrap();
        said.push_text(kind::CALLED_STATION_ID, nas.called_station.unwrap()).unwrap();
        said.push_text(kind::NAS_PORT_ID, nas.port_id.unwrap()).unwrap();
        said.push_text(kind::NAS_IDENTIFIER, nas.identifier.unwrap()).unwrap();
        assert!(has_valid_proof(&said, view.get(codes::USER_PASSWORD).map(|a| a.data)));
        Some((ResultCode::SUCCESS, avps))
    },
};

/// True if a request has the user, the port and one valid proof.
fn has_valid_proof(a: &AttributeList, password: Option<&[u8]>) -> bool {
    assert_eq!(a.get(kind::USER_NAME), Some(NAME));
    assert_eq!(a.get_u32(kind::NAS_PORT), Some(7));
    assert_eq!(a.get_text(kind::NAS_PORT_ID), Some("ge-0/0/7"));
    assert_eq!(a.get_text(kind::CALLING_STATION_ID), Some("00-10-A4-23-19-C0"));
    assert_eq!(a.get_text(kind::CALLED_STATION_ID), Some("02-00-00-00-00-01"));
    assert_eq!(a.get_text(kind::NAS_IDENTIFIER), Some("nas.example.org"));
    let microsoft = |kind| a.get_vendor(vendor::MICROSOFT, kind);
    let chap = ChapResponse::from_password(3, &CHALLENGE, PASSWORD);
    let v1 = MsChapResponse::from_password(3, *b"8 octets", PASSWORD);
    let (v2, _) = MsChapV2Response::from_password(3, CHALLENGE, [5; 16], NAME, PASSWORD);
    let mut eap = Vec::new();
    let shown = [
        a.read_eap_packet(&mut eap) && eap == [2, 1, 0, 6, 1, b'a'],
        password == Some(PASSWORD),
        a.get(kind::CHAP_PASSWORD) == Some(&[&[3][..], &chap.response].concat()[..])
            && a.get(kind::CHAP_CHALLENGE) == Some(&CHALLENGE),
        microsoft(vendor::MS_CHAP_CHALLENGE) == Some(b"8 octets")
            && microsoft(vendor::MS_CHAP_RESPONSE)
                == Some(&[&[3, 1][..], &[0; 24], &v1.nt_response].concat()[..]),
        microsoft(vendor::MS_CHAP_CHALLENGE) == Some(&CHALLENGE)
            && microsoft(vendor::MS_CHAP2_RESPONSE)
                == Some(&[&[3, 0][..], &[5; 16], &[0; 8], &v2.response].concat()[..]),
    ];
    shown.iter().filter(|shown| **shown).count() == 1
}

#[test]
fn each_proof_reaches_the_server_and_the_whole_reply_comes_back() {
    let (v2, _) = MsChapV2Response::from_password(3, CHALLENGE, [5; 16], NAME, PASSWORD);
    let proofs = [
        UserCredentials::Eap(&[2, 1, 0, 6, 1, b'a']),
        UserCredentials::Pap(PASSWORD),
        UserCredentials::Chap(ChapResponse::from_password(3, &CHALLENGE, PASSWORD)),
        UserCredentials::MsChap(MsChapResponse::from_password(3, *b"8 octets", PASSWORD)),
        UserCredentials::MsChapV2(v2),
    ];
    for carrier in CARRIERS {
        let mut w = AccessTestNetwork::new(carrier, 1, WHOLE);
        for (token, proof) in (40..).zip(proofs) {
            let now = w.net.now();
            let request = AccessRequest { port: test_port(), ..AccessRequest::new(NAME, proof) };
            w.net[w.nas].send_request(now, token, &request).unwrap();
            w.run_seconds(1);
            let event = w.take_event();
            let AccessClientEvent::Accept { token: t, reply } = &event else {
                panic!("{carrier:?} {proof:?} {event:?}")
            };
            assert_eq!(*t, token);
            assert_whole(reply, carrier);
            assert!(!format!("{event:?}").contains("9, 9, 9"), "a key is printed");
        }
    }
}

/// A server with three rounds of EAP, each with the previous State.
const ROUNDS: ServerScript = ServerScript {
    radius: |request| {
        let state = request.attributes.get(kind::STATE).map_or(0, |state| state[0]);
        let mut a = AttributeList::new();
        if state == 2 {
            a.push_eap(&[3, 9, 0, 4]);
            return Some((PacketCode::ACCESS_ACCEPT, a));
        }
        a.push_eap(&[1, 9, 0, 5, 4]).push_bytes(kind::STATE, &[state + 1]).unwrap();
        Some((PacketCode::ACCESS_CHALLENGE, a.clone()))
    },
    diameter: |message| {
        let der = DiameterEapRequest::parse(message.avps.as_sequence()).unwrap();
        let state = der.state.map_or(0, |state| state[0]);
        // The first round goes to any server, the others to the one that answered it.
        let directed = message.avps.as_sequence().get(codes::DESTINATION_HOST).map(|a| a.data);
        assert_eq!(directed, (state > 0).then_some(server_identity(0).as_bytes()));
        let mut avps = answer_avps(message);
        if state == 2 {
            avps.push(codes::EAP_PAYLOAD, &[3, 9, 0, 4]);
            return Some((ResultCode::SUCCESS, avps));
        }
        avps.push(codes::EAP_PAYLOAD, &[1, 9, 0, 5, 4]).push(codes::STATE, &[state + 1]);
        Some((ResultCode::MULTI_ROUND_AUTH, avps))
    },
};

#[test]
fn a_switch_says_what_it_is() {
    let identity = usher_access::NasIdentity::for_ethernet("switch");
    // NAS-Port-Type Ethernet and Service-Type Framed (RFC 2865 sections 5.41 and 5.6).
    assert_eq!((identity.port_type, identity.service_type), (Some(15), Some(2)));
    let identity = usher_access::NasIdentity::for_wimax("base");
    assert_eq!((identity.port_type, identity.service_type), (Some(27), Some(2)));
}

#[test]
fn a_continuation_takes_what_a_challenge_said_to_the_next_round() {
    for carrier in CARRIERS {
        let mut w = AccessTestNetwork::new(carrier, 1, ROUNDS);
        let (mut next, mut eap) = (LoginRoundState::new(), Vec::new());
        for round in 0..3 {
            let now = w.net.now();
            let proof = UserCredentials::Eap(&[2, 9, 0, 6, 4, 0]);
            let request = AccessRequest { continues: Some(&next), ..AccessRequest::new(NAME, proof) };
            w.net[w.nas].send_request(now, 4, &request).unwrap();
            w.run_seconds(1);
            match w.take_event() {
                AccessClientEvent::Challenge { token: 4, reply } if round < 2 => {
                    assert!(reply.read_eap(&mut eap) && eap == [1, 9, 0, 5, 4]);
                    reply.fill_continuation(&mut next);
                    w.net[w.nas].recycle_reply(reply);
                }
                AccessClientEvent::Accept { token: 4, reply } if round == 2 => {
                    assert!(reply.read_eap(&mut eap) && eap == [3, 9, 0, 4]);
                    assert_eq!(reply.msk(), Ok(None));
                }
                other => panic!("{carrier:?} {round} {other:?}"),
            }
        }
    }
}

#[test]
fn a_reject_says_why() {
    let script = ServerScript {
        radius: |_| {
            let mut a = AttributeList::new();
            a.push_text(kind::REPLY_MESSAGE, "Not today.").unwrap();
            a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP_ERROR, b"\x03E=691 R=0").unwrap();
            Some((PacketCode::ACCESS_REJECT, a))
        },
        diameter: |message| {
            let mut avps = answer_avps(message);
            avps.push_str(codes::REPLY_MESSAGE, "Not today.");
            avps.push(AvpId::new_vendor_avp_id(vendor::MICROSOFT, 2, false), b"\x03E=691 R=0");
            Some((ResultCode::AUTHENTICATION_REJECTED, avps))
        },
    };
    for carrier in CARRIERS {
        let mut w = AccessTestNetwork::new(carrier, 1, script);
        let now = w.net.now();
        w.net[w.nas].send_request(now, 1, &AccessRequest::new(NAME, UserCredentials::Pap(PASSWORD))).unwrap();
        w.run_seconds(1);
        let AccessClientEvent::Reject { token: 1, reply } = w.take_event() else { panic!("{carrier:?}") };
        assert_eq!(reply.reply_messages().collect::<Vec<_>>(), [b"Not today."]);
        assert_eq!(reply.ms_chap_error(), Some(&b"E=691 R=0"[..]));
        assert_eq!(reply.result_code(), (carrier == TestTransport::Diameter).then_some(4001));
    }
}

#[test]
fn a_server_that_does_not_know_the_password_is_found_out() {
    /// An accept with these: a proof for the peer, and the key's first octet.
    fn accept_with_proof(request: &AttributeList, right: bool, keys: Option<u8>) -> AttributeList {
        assert!(request.get_vendor(vendor::MICROSOFT, vendor::MS_CHAP2_RESPONSE).is_some());
        let mut a = AttributeList::new();
        // From RFC 2759 §9.2, for the challenges and the password below.
        let proof = b"\x07S=407A5589115FD0D6209F510FE9C04566932CDA56";
        let mut proof = proof.to_vec();
        proof[10] ^= u8::from(!right);
        a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP2_SUCCESS, &proof).unwrap();
        if let Some(first) = keys {
            a.push_vendor_salted(vendor::MICROSOFT, vendor::MS_MPPE_RECV_KEY, &[first; 16]).unwrap();
            a.push_vendor_salted(vendor::MICROSOFT, vendor::MS_MPPE_SEND_KEY, &[first; 16]).unwrap();
        }
        a
    }
    let accepts: [(fn(&usher_radius::server::RadiusRequest) -> _, _); 3] = [
        (|r| Some((PacketCode::ACCESS_ACCEPT, accept_with_proof(&r.attributes, true, None))), Ok(())),
        (
            |r| Some((PacketCode::ACCESS_ACCEPT, accept_with_proof(&r.attributes, false, None))),
            Err(ServerProofError::Response),
        ),
        (
            |r| Some((PacketCode::ACCESS_ACCEPT, accept_with_proof(&r.attributes, true, Some(1)))),
            Err(ServerProofError::Keys),
        ),
    ];
    let challenge =
        [0x5b, 0x5d, 0x7c, 0x7d, 0x7b, 0x3f, 0x2f, 0x3e, 0x3c, 0x2c, 0x60, 0x21, 0x32, 0x26, 0x26, 0x28];
    let peer =
        [0x21, 0x40, 0x23, 0x24, 0x25, 0x5e, 0x26, 0x2a, 0x28, 0x29, 0x5f, 0x2b, 0x3a, 0x33, 0x7c, 0x7e];
    for (radius, right) in accepts {
        let mut w =
            AccessTestNetwork::new(TestTransport::Udp, 1, ServerScript { radius, diameter: |_| None });
        let (response, expected) =
            MsChapV2Response::from_password(7, challenge, peer, b"User", b"clientPass");
        let now = w.net.now();
        w.net[w.nas]
            .send_request(now, 1, &AccessRequest::new(b"User", UserCredentials::MsChapV2(response)))
            .unwrap();
        w.run_seconds(1);
        let AccessClientEvent::Accept { reply, .. } = w.take_event() else { panic!() };
        assert_eq!(expected.verify_reply(&reply), right);
    }
}

/// RFC 2548 §2.4.1: the keys of MS-CHAP.
#[test]
fn the_keys_of_ms_chap_are_read() {
    fn accept_with_keys(keys: &[u8]) -> Option<(PacketCode, AttributeList)> {
        let mut a = AttributeList::new();
        a.push_vendor_hidden(vendor::MICROSOFT, vendor::MS_CHAP_MPPE_KEYS, keys).unwrap();
        Some((PacketCode::ACCESS_ACCEPT, a))
    }
    const KEYS: [u8; 32] = [
        1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 0, 0, 0, 0, 0, 0,
        0, 0, 0,
    ];
    let reply = |radius| {
        let mut w =
            AccessTestNetwork::new(TestTransport::Udp, 1, ServerScript { radius, diameter: |_| None });
        let now = w.net.now();
        let proof = UserCredentials::MsChap(MsChapResponse::from_password(7, [8; 8], PASSWORD));
        w.net[w.nas].send_request(now, 1, &AccessRequest::new(NAME, proof)).unwrap();
        w.run_seconds(1);
        let AccessClientEvent::Accept { reply, .. } = w.take_event() else { panic!() };
        reply
    };
    let keys = reply(|_| accept_with_keys(&KEYS)).ms_chap_keys().unwrap().unwrap();
    assert_eq!((&keys.lm[..], &keys.nt[..]), (&KEYS[..8], &KEYS[8..24]));
    assert_eq!(reply(|_| Some((PacketCode::ACCESS_ACCEPT, AttributeList::new()))).ms_chap_keys(), Ok(None));
    assert!(reply(|_| accept_with_keys(&KEYS[..16])).ms_chap_keys().is_err());
}

/// RFC 6733 §8.9, §8.13: two encodings of no limit. RFC 2865 §5.27 has none.
#[test]
fn diameter_says_without_end_in_two_ways() {
    const UNLIMITED: ServerScript = ServerScript {
        radius: |_| {
            let mut a = AttributeList::new();
            a.push_u32(kind::SESSION_TIMEOUT, 0);
            Some((PacketCode::ACCESS_ACCEPT, a))
        },
        diameter: |message| {
            let mut avps = answer_avps(message);
            avps.push_u32(codes::radius_avp_id(kind::SESSION_TIMEOUT), 0);
            avps.push_u32(codes::AUTHORIZATION_LIFETIME, u32::MAX);
            Some((ResultCode::SUCCESS, avps))
        },
    };
    for carrier in CARRIERS {
        let mut w = AccessTestNetwork::new(carrier, 1, UNLIMITED);
        let now = w.net.now();
        w.net[w.nas].send_request(now, 1, &AccessRequest::new(NAME, UserCredentials::Pap(PASSWORD))).unwrap();
        w.run_seconds(1);
        let AccessClientEvent::Accept { reply, .. } = w.take_event() else { panic!("{carrier:?}") };
        let ends = (carrier != TestTransport::Diameter).then_some(Duration::ZERO);
        assert_eq!((reply.session_timeout(), reply.reauthentication_delay()), (ends, None));
    }
}
