//! Packets of other implementations of routers, access nodes and concentrators: unusual but legal, or against a rule.

use super::*;
use crate::auth::AuthenticationProtocol;
use crate::auth::message::ChapPacketData;
use crate::ipv6::dhcp::{Dhcpv6Message, Dhcpv6MessageType, Dhcpv6Status, IaPd, IaPrefix, link_layer_duid};
use crate::ipv6::{ALL_DHCP_SERVERS, LinkLocalPacket, LinkLocalPayload, dhcp_packet};
use crate::link::{PppLink, PppLinkOutput, PppLinkRole};
use crate::packet::{ConfigOption, ControlCode, ControlPacket, PppProtocol};
use crate::{Ipv6Prefix, LinkConfig};
use std::net::Ipv6Addr;
use usher_core::Instant;

const NOW: (Instant, WallTime) = (Instant::ZERO, WallTime::UNIX_EPOCH);

fn ppp_packet(protocol: PppProtocol, code: ControlCode, identifier: u8, data: &[u8]) -> Vec<u8> {
    [&protocol.0.to_be_bytes(), &ControlPacket { code, identifier, data }.to_vec()[..]].concat()
}

fn encode_options(all: &[(u8, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    all.iter().for_each(|(kind, data)| ConfigOption { kind: *kind, data }.emit(&mut out));
    out
}

/// Builds a session frame of another implementation.
fn frame_to(to: MacAddress, from: MacAddress, session: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let (stage, code) = (PppoeStage::Session, PppoeCode::SESSION);
    PppoeFrame { destination: to, source: from, stage, code, session, payload }.emit(&mut out);
    out
}

/// RFC 1661 §3.7: a network protocol that closes leaves the link and the other protocols up.
#[test]
fn a_host_that_terminates_ipv6cp_keeps_ipv4() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    let (session, number) = world.connect_first();
    let since = world.net.sent_transmits().len();
    let terminate = ppp_packet(PppProtocol::IPV6CP, ControlCode::TERMINATE_REQUEST, 9, b"no interface");
    world.deliver_frame(&session_frame(host_mac(1), number, &terminate));
    let answer = world.sent_to(host_mac(1), since).remove(0);
    let (protocol, packet) = PppProtocol::split_packet(PppoeFrame::parse(&answer).unwrap().payload).unwrap();
    let packet = ControlPacket::parse(packet).unwrap();
    assert_eq!(
        (protocol, packet.code, packet.identifier),
        (PppProtocol::IPV6CP, ControlCode::TERMINATE_ACK, 9)
    );
    world.net.run_for(secs(5));
    assert_eq!((world.end_reasons(), world.installed_count()), (vec![], 1));
    let removed = world.net.recorded_events(world.ac).iter().find_map(|(_, event)| match event {
        ConcentratorEvent::Remove { session, family, .. } => Some((*session, *family)),
        _ => None,
    });
    assert_eq!(removed, Some((session, crate::AddressFamily::Ipv6)));
}

/// RFC 4638 §4, RFC 4679 §3.3.1: the tags of access nodes do not change the host's PPP-Max-Payload.
#[test]
fn tags_of_access_nodes_change_nothing_of_a_session() {
    const LINE: &[u8] = b"\x01\x05\x00\x17\x00\x00\x0d\xe9\x01\x07eth 0/1\x02\x02me\x81\x04\x00\x00\x10\x00";
    const ANY: &[u8] = &[1, 1, 0, 0, 1, 3, 0, 2, b'h', b'u'];
    let with = |more: &[u8]| [ANY, more].concat();
    for (what, tags, payload) in [
        ("nothing", with(&[]), Some(None)),
        ("a line", with(LINE), Some(None)),
        ("a line and 1500", with(&[LINE, &[1, 0x20, 0, 2, 5, 0xdc]].concat()), Some(Some(1500))),
        ("another vendor's 1500", with(&[1, 5, 0, 6, 0, 0, 3, 0x11, 5, 0xdc]), Some(None)),
        ("a vendor's tag of nothing", with(&[1, 5, 0, 0]), Some(None)),
        ("a vendor's tag of two octets", with(&[1, 5, 0, 2, 5, 0xdc]), Some(None)),
        (
            "a line that lies about its length",
            with(&[1, 5, 0, 8, 0, 0, 0xd, 0xe9, 1, 0xff, b'a', b'b']),
            Some(None),
        ),
        ("1492 and no more", with(&[1, 0x20, 0, 2, 5, 0xd4]), Some(None)),
        ("65535", with(&[1, 0x20, 0, 2, 0xff, 0xff]), Some(Some(1500))),
        ("what follows the end of the list", with(&[0, 0, 0, 0, 0xff, 0xff, 0xff]), Some(None)),
        ("no service", vec![1, 3, 0, 2, b'h', b'u'], None),
    ] {
        let ports = vec![ConcentratorPort { port: PORT, address: AC, mtu: 1508 }];
        let mut world = PppoeTestNetwork::new(ConcentratorConfig { ports, ..concentrator_config() }, vec![]);
        let give = |world: &mut PppoeTestNetwork, to: MacAddress, code: PppoeCode, payload: &[u8]| {
            let since = world.net.sent_transmits().len();
            let (stage, mut out) = (PppoeStage::Discovery, Vec::new());
            PppoeFrame { destination: to, source: host_mac(1), stage, code, session: 0, payload }
                .emit(&mut out);
            world.deliver_frame(&out);
            world.sent_to(host_mac(1), since)
        };
        let offers = give(&mut world, MacAddress::BROADCAST, PppoeCode::PADI, &tags);
        assert_eq!(!offers.is_empty(), payload.is_some(), "{what}");
        let (Some(offer), Some(payload)) = (offers.first(), payload) else { continue };
        let offer = DiscoveryTags::parse(PppoeFrame::parse(offer).unwrap().payload).unwrap();
        let cookie = offer.cookie.unwrap();
        let cookie = [&[1, 4, 0, cookie.len() as u8][..], cookie].concat();
        // Insert the cookie before End-Of-List, if there is one.
        let request = [&tags[..ANY.len()], &cookie, &tags[ANY.len()..]].concat();
        let sent = give(&mut world, AC, PppoeCode::PADR, &request);
        let confirmed = PppoeFrame::parse(&sent[0]).unwrap();
        let said = DiscoveryTags::parse(confirmed.payload).unwrap();
        assert_eq!((confirmed.code, said.host_uniq), (PppoeCode::PADS, Some(&b"hu"[..])), "{what}");
        assert!(confirmed.session != 0 && said.errors.is_empty(), "{what}");
        // The payload is limited to this Ethernet's.
        assert_eq!(said.max_payload.map(|most| most.min(1500)), payload, "{what}");
    }
}

/// A client drops frames that are not of its concentrator or not of its session.
#[test]
fn a_client_hears_its_own_concentrator_and_session_alone() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    let (_, number) = world.connect_first();
    let (client, since) = (world.clients[0], world.net.sent_transmits().len());
    let rogue = host_mac(9);
    let none = DiscoveryTags::default();
    let lcp = |code, data: &[u8]| ppp_packet(PppProtocol::LCP, code, 77, data);
    for (what, frame) in [
        ("another's PADT", discovery_frame(rogue, host_mac(1), PppoeCode::PADT, number, &none)),
        ("the PADT of another session", discovery_frame(AC, host_mac(1), PppoeCode::PADT, number ^ 1, &none)),
        ("the PADT of no session", discovery_frame(AC, host_mac(1), PppoeCode::PADT, 0, &none)),
        ("another's end", frame_to(host_mac(1), rogue, number, &lcp(ControlCode::TERMINATE_REQUEST, &[]))),
        (
            "another session's end",
            frame_to(host_mac(1), AC, number ^ 1, &lcp(ControlCode::TERMINATE_REQUEST, &[])),
        ),
        (
            "another's question",
            frame_to(host_mac(1), rogue, number, &lcp(ControlCode::ECHO_REQUEST, &[1, 2, 3, 4])),
        ),
        (
            "another's negotiation",
            frame_to(host_mac(1), rogue, number, &lcp(ControlCode::CONFIGURE_REQUEST, &[])),
        ),
    ] {
        world.net.inject_input(client, MachineInput::Frame { port: PORT, data: &frame });
        assert_eq!(world.net.sent_transmits().len(), since, "{what} is not answered");
        assert!(world.net[client].has_pppoe_session() && world.client_end_reasons(0).is_empty(), "{what}");
    }
    world.net.run_for(secs(60));
    assert_eq!((world.installed_count(), world.client_end_reasons(0)), (2, vec![]));
}

/// Returns a client that has sent its PADI, without a concentrator, and its Host-Uniq.
fn client_after_padi() -> (PppoeTestNetwork, Vec<u8>) {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    world.net.set_silent(world.ac, true);
    world.connect_client(0);
    world.net.run_for(Duration::from_millis(5));
    let frame = world.net.sent_transmits()[0].bytes.clone();
    let tags = DiscoveryTags::parse(PppoeFrame::parse(&frame).unwrap().payload).unwrap();
    (world, tags.host_uniq.unwrap().to_vec())
}

/// Returns the PADRs that a client has sent.
fn sent_padrs(world: &PppoeTestNetwork) -> Vec<Vec<u8>> {
    let all = world.net.sent_transmits().iter().map(|sent| &sent.bytes);
    all.filter(|bytes| PppoeFrame::parse(bytes).is_ok_and(|frame| frame.code == PppoeCode::PADR))
        .cloned()
        .collect()
}

/// RFC 2516 §5.2, appendix A: the required tags of an offer, and the tags that the client returns.
#[test]
fn an_offer_is_taken_where_it_has_what_it_must() {
    let long = [7; 1000];
    for (what, uniq, change, taken) in [
        ("as it should be", true, (|_| {}) as fn(&mut DiscoveryTags<'_>), true),
        ("of another Host-Uniq", true, |tags| tags.host_uniq = Some(b"zz"), false),
        ("without the Host-Uniq", false, |_| {}, false),
        ("without a name", true, |tags| tags.ac_name = None, false),
        ("of other services", true, |tags| tags.services = vec![b"gold", b"silver"], false),
        ("of services beside that of all", true, |tags| tags.services.push(b"gold"), true),
        (
            "with an error",
            true,
            |tags| tags.errors = vec![(crate::pppoe::PppoeErrorTag::AcSystem, b"full")],
            false,
        ),
        ("of another payload", true, |tags| tags.max_payload = Some(1472), true),
    ] {
        let (mut world, host_uniq) = client_after_padi();
        let mut tags = DiscoveryTags {
            services: vec![b""],
            ac_name: Some(b"ac1"),
            host_uniq: uniq.then_some(&host_uniq[..]),
            cookie: Some(b"cookie"),
            ..DiscoveryTags::default()
        };
        change(&mut tags);
        let client = world.clients[0];
        let frame = discovery_frame(AC, host_mac(1), PppoeCode::PADO, 0, &tags);
        world.net.inject_input(client, MachineInput::Frame { port: PORT, data: &frame });
        assert_eq!(sent_padrs(&world).len(), usize::from(taken), "{what}");
    }
    // The client returns echoed tags unchanged, of any length.
    let (mut world, host_uniq) = client_after_padi();
    let tags = DiscoveryTags {
        services: vec![b""],
        ac_name: Some(b"ac1"),
        host_uniq: Some(&host_uniq),
        cookie: Some(&long[..400]),
        relay_session_id: Some(b"relay"),
        circuit_id: Some(b"eth 0/1"),
        ..DiscoveryTags::default()
    };
    let client = world.clients[0];
    let frame = discovery_frame(AC, host_mac(1), PppoeCode::PADO, 0, &tags);
    world.net.inject_input(client, MachineInput::Frame { port: PORT, data: &frame });
    let request = sent_padrs(&world).remove(0);
    let back = DiscoveryTags::parse(PppoeFrame::parse(&request).unwrap().payload).unwrap();
    assert_eq!((back.cookie, back.relay_session_id), (tags.cookie, tags.relay_session_id));
    assert_eq!((back.host_uniq, back.circuit_id), (tags.host_uniq, None));
    // SESSION_ID 0 and the reserved value are invalid.
    for number in [0, u16::MAX] {
        let (mut world, host_uniq) = client_after_padi();
        let offer =
            DiscoveryTags { services: vec![b""], host_uniq: Some(&host_uniq), ..DiscoveryTags::default() };
        for (code, session) in [(PppoeCode::PADO, 0), (PppoeCode::PADS, number)] {
            let tags = DiscoveryTags { ac_name: Some(b"ac1"), ..offer.clone() };
            let frame = discovery_frame(AC, host_mac(1), code, session, &tags);
            world.net.inject_input(client, MachineInput::Frame { port: PORT, data: &frame });
        }
        assert!(!world.net[client].has_pppoe_session(), "{number}");
        assert_eq!(world.client_end_reasons(0), [EndReason::Refused], "{number}");
        let told = world.net.recorded_events(client).iter().any(|(_, event)| {
            matches!(event, ClientEvent::RefusalMessage { message } if message == b"the number of its session is none")
        });
        assert!(told, "{number}");
    }
}

/// A client's end of a link, driven by hand.
struct ClientLinkFixture {
    link: PppLink,
    /// The options of each of its LCP and IPCP requests.
    requested_options: Vec<(PppProtocol, Vec<u8>)>,
    link_outputs: Vec<PppLinkOutput>,
    /// True for options of its Configure-Requests that the other side rejects.
    rejects: fn(PppProtocol, u8) -> bool,
}

impl ClientLinkFixture {
    fn new(protocol: AuthenticationProtocol, rejects: fn(PppProtocol, u8) -> bool) -> Self {
        let role = PppLinkRole::Peer {
            credentials: Arc::new(test_credentials(&[protocol], PASSWORD)),
            requires_authentication: false,
            ipv4: true,
            dns: true,
            ipv6: None,
            delegation: None,
        };
        let rng = SecureRng::from_seed([5; 32]);
        let link = PppLink::new(role, LinkConfig::default(), 1492, rng, NOW.0, NOW.1);
        Self { link, requested_options: Vec::new(), link_outputs: Vec::new(), rejects }
    }
    fn deliver_packet(&mut self, protocol: PppProtocol, code: ControlCode, identifier: u8, data: &[u8]) {
        let _ = self.link.receive_packet(NOW.0, NOW.1, &ppp_packet(protocol, code, identifier, data));
    }
    /// Answers its requests until it sends no more. Returns its replies.
    fn drain_outputs(&mut self) -> Vec<(PppProtocol, ControlCode, Vec<u8>)> {
        let mut answers = Vec::new();
        loop {
            let said = self.link.take_link_outputs();
            if said.is_empty() {
                return answers;
            }
            for one in said {
                let PppLinkOutput::Send(protocol, octets) = one else {
                    self.link_outputs.push(one);
                    continue;
                };
                let packet = ControlPacket::parse(&octets).unwrap();
                if packet.code == ControlCode::CONFIGURE_REQUEST && protocol != PppProtocol::CHAP {
                    self.answer_request(protocol, packet);
                } else if packet.code == ControlCode::TERMINATE_REQUEST && protocol != PppProtocol::CHAP {
                    self.deliver_packet(protocol, ControlCode::TERMINATE_ACK, packet.identifier, &[]);
                } else {
                    answers.push((protocol, packet.code, packet.data.to_vec()));
                }
            }
        }
    }
    fn answer_request(&mut self, protocol: PppProtocol, packet: ControlPacket<'_>) {
        let all = ConfigOption::parse_all_options(packet.data).unwrap();
        self.requested_options.push((protocol, all.iter().map(|option| option.kind).collect()));
        let (mut rejected, mut suggested) = (Vec::new(), Vec::new());
        for option in &all {
            if (self.rejects)(protocol, option.kind) {
                option.emit(&mut rejected);
            } else if protocol == PppProtocol::IPCP && option.data == [0; 4] {
                let data = &[10, 0, 0, option.kind];
                ConfigOption { kind: option.kind, data }.emit(&mut suggested);
            }
        }
        let (code, data) = match (&rejected[..], &suggested[..]) {
            ([], []) => (ControlCode::CONFIGURE_ACK, packet.data),
            ([], suggested) => (ControlCode::CONFIGURE_NAK, suggested),
            (rejected, _) => (ControlCode::CONFIGURE_REJECT, rejected),
        };
        self.deliver_packet(protocol, code, packet.identifier, data);
    }
    /// Starts LCP from the other side, with or without an Authentication-Protocol option.
    fn start_lcp(&mut self, identifier: u8, authentication: &[u8]) {
        let mut wanted = encode_options(&[(1, &1460u16.to_be_bytes()), (5, &[9, 9, 9, identifier])]);
        if !authentication.is_empty() {
            wanted.extend(encode_options(&[(3, authentication)]));
        }
        self.deliver_packet(PppProtocol::LCP, ControlCode::CONFIGURE_REQUEST, identifier, &wanted);
        self.drain_outputs();
    }
    /// Authenticates the client by CHAP, with a Success of the given text. Returns its reply.
    fn run_chap(&mut self, identifier: u8, verdict: impl FnOnce(&[u8]) -> Vec<u8>) {
        let mut data = Vec::new();
        ChapPacketData { value: &[identifier; 16], name: b"ac" }.emit(&mut data);
        self.deliver_packet(PppProtocol::CHAP, ControlCode(1), identifier, &data);
        let answers = self.drain_outputs();
        let response =
            answers.iter().find(|(protocol, code, _)| *protocol == PppProtocol::CHAP && code.0 == 2);
        let text = verdict(ChapPacketData::parse(&response.expect("it answers").2).unwrap().value);
        self.deliver_packet(PppProtocol::CHAP, ControlCode(3), identifier, &text);
        self.drain_outputs();
    }
    fn networks(&self) -> Vec<NegotiatedAddresses> {
        let up = self.link_outputs.iter().filter_map(|said| match said {
            PppLinkOutput::Up(network) => Some(network.clone()),
            _ => None,
        });
        up.collect()
    }
    fn end_reasons(&self) -> Vec<EndReason> {
        let ends = self.link_outputs.iter().filter_map(|said| match said {
            PppLinkOutput::Ended(reason) => Some(*reason),
            _ => None,
        });
        ends.collect()
    }
}

fn ipv4_network(last: u8, dns: &[u8]) -> NegotiatedAddresses {
    let dns = dns.iter().map(|n| Ipv4Addr::new(10, 0, 0, *n)).collect();
    NegotiatedAddresses::Ipv4 {
        local: Ipv4Addr::new(10, 0, 0, 3),
        remote: Ipv4Addr::new(10, 0, 0, last),
        dns,
    }
}

/// A concentrator that requests name servers from its client, as LANCOM's do, gets a Configure-Reject.
#[test]
fn name_servers_that_a_concentrator_asks_for_are_rejected() {
    let mut hand = ClientLinkFixture::new(AuthenticationProtocol::Chap, |_, _| false);
    hand.start_lcp(1, &[]);
    let zero: &[u8] = &[0; 4];
    let wished = [(3, &[10, 0, 0, 1][..]), (129, zero), (130, zero), (131, zero), (132, zero)];
    hand.deliver_packet(PppProtocol::IPCP, ControlCode::CONFIGURE_REQUEST, 1, &encode_options(&wished));
    let rejected = (PppProtocol::IPCP, ControlCode::CONFIGURE_REJECT, encode_options(&wished[1..]));
    assert_eq!(hand.drain_outputs(), [rejected]);
    hand.deliver_packet(PppProtocol::IPCP, ControlCode::CONFIGURE_REQUEST, 2, &encode_options(&wished[..1]));
    hand.drain_outputs();
    assert_eq!((hand.networks(), hand.end_reasons()), (vec![ipv4_network(1, &[129, 131])], vec![]));
}

/// RFC 1661 §5.4: a rejected option is not in any later Configure-Request.
#[test]
fn what_was_rejected_is_not_asked_for_again() {
    let mut hand = ClientLinkFixture::new(AuthenticationProtocol::Chap, |protocol, kind| match protocol {
        PppProtocol::LCP => kind == 5,
        _ => kind != 3,
    });
    hand.start_lcp(1, &[]);
    hand.deliver_packet(
        PppProtocol::IPCP,
        ControlCode::CONFIGURE_REQUEST,
        1,
        &encode_options(&[(3, &[10, 0, 0, 1])]),
    );
    hand.drain_outputs();
    assert_eq!((hand.networks(), hand.end_reasons()), (vec![ipv4_network(1, &[])], vec![]));
    for (protocol, kind) in [(PppProtocol::LCP, 5), (PppProtocol::IPCP, 129), (PppProtocol::IPCP, 131)] {
        let all: Vec<_> = hand.requested_options.iter().filter(|(of, _)| *of == protocol).collect();
        assert!(all.len() > 1 && all[0].1.contains(&kind), "{protocol} {kind}: {all:?}");
        assert!(all[1..].iter().all(|(_, kinds)| !kinds.contains(&kind)), "{protocol} {kind}: {all:?}");
    }
}

/// RFC 1661 §3.4, RFC 2661 §6.12: a network server behind an access concentrator restarts LCP once the user is known,
/// and authenticates again.
#[test]
fn a_link_that_begins_anew_after_authentication_comes_up() {
    let mut hand = ClientLinkFixture::new(AuthenticationProtocol::Chap, |_, _| false);
    for round in [1, 2] {
        hand.start_lcp(round, &[0xc2, 0x23, 5]);
        hand.run_chap(round, |value| {
            assert_eq!(value, md5(&[&[round], PASSWORD, &[round; 16]]), "round {round}");
            b"welcome".to_vec()
        });
        assert_eq!(hand.end_reasons(), [], "round {round}");
    }
    hand.deliver_packet(
        PppProtocol::IPCP,
        ControlCode::CONFIGURE_REQUEST,
        1,
        &encode_options(&[(3, &[10, 0, 0, 1])]),
    );
    hand.drain_outputs();
    assert_eq!((hand.networks(), hand.end_reasons()), (vec![ipv4_network(1, &[129, 131])], vec![]));
    let authenticated =
        hand.link_outputs.iter().filter(|said| **said == PppLinkOutput::Authenticated).count();
    assert_eq!(authenticated, 2);
}

/// RFC 2759 §5: `S=` and 40 digits prove the password. The text after them is for display, and servers vary its form.
#[test]
fn a_success_of_ms_chap_is_believed_in_whatever_form_it_is() {
    type MessageForm = fn(String) -> String;
    let forms: [(MessageForm, bool); 7] = [
        (|proof| format!("{proof} M=Welcome"), true),
        (|proof| format!("{proof}M=Welcome"), true),
        (|proof| proof, true),
        (|proof| format!("S={}", proof[2..].to_lowercase()), true),
        (|proof| format!("{proof}\0"), true),
        (|proof| proof[..41].to_owned(), false),
        (|_| format!("S={} M=Welcome", "0".repeat(40)), false),
    ];
    for (n, (form, is_believed)) in forms.into_iter().enumerate() {
        let mut hand = ClientLinkFixture::new(AuthenticationProtocol::MsChapV2, |_, _| false);
        hand.start_lcp(1, &[0xc2, 0x23, 0x81]);
        hand.run_chap(1, |value| {
            let value = MsChapV2ResponseValue::parse(value).unwrap();
            let (hash, peer) = (nt_hash(PASSWORD), value.peer_challenge);
            assert_eq!(value.response, mschap::nt_response(&[1; 16], &peer, b"alice", &hash));
            let proof =
                mschap::authenticator_response(&hash, &value.response, &peer, &[1; 16], b"alice").to_vec();
            form(String::from_utf8(proof).unwrap()).into_bytes()
        });
        assert_eq!(hand.link_outputs.contains(&PppLinkOutput::Authenticated), is_believed, "form {n}");
        let ended = if is_believed { vec![] } else { vec![EndReason::Impostor] };
        assert_eq!(hand.end_reasons(), ended, "form {n}");
    }
}

/// RFC 8415 §18.3: a session delegates one prefix and no addresses, with a status for each requested association.
#[test]
fn each_association_of_dhcpv6_is_answered_by_itself() {
    let mut world =
        PppoeTestNetwork::new(concentrator_config(), vec![client_config(1, &[AuthenticationProtocol::Chap])]);
    let (_, number) = world.connect_first();
    let local = world.client_networks(0).into_iter().find_map(|network| match network {
        NegotiatedAddresses::Ipv6 { local, .. } => Some(local),
        NegotiatedAddresses::Ipv4 { .. } => None,
    });
    let local: Ipv6Addr = local.unwrap();
    let server = link_layer_duid(AC.0);
    let mut ask = |message: &Dhcpv6Message<'_>| {
        let since = world.net.sent_transmits().len();
        let packet = dhcp_packet(local, ALL_DHCP_SERVERS, true, &message.to_vec());
        world.deliver_frame(&session_frame(
            host_mac(1),
            number,
            &[&PppProtocol::IPV6.0.to_be_bytes(), &packet[..]].concat(),
        ));
        let sent = world.sent_to(host_mac(1), since);
        let (_, octets) = PppProtocol::split_packet(PppoeFrame::parse(&sent[0]).unwrap().payload).unwrap();
        let LinkLocalPayload::Dhcp { message, .. } = LinkLocalPacket::parse(octets).unwrap().payload else {
            panic!("DHCPv6")
        };
        let answer = Dhcpv6Message::parse(message).unwrap();
        assert_eq!(answer.server, Some(&server[..]));
        (answer.kind, answer.addresses, answer.delegations)
    };
    let of = |kind| Dhcpv6Message { client: Some(b"me"), ..Dhcpv6Message::new(kind, [1, 2, 3]) };
    let wish = |iaid, prefixes| IaPd { iaid, prefixes, ..IaPd::default() };
    let granted = |iaid| IaPd {
        iaid,
        t1: 1800,
        t2: 2880,
        prefixes: vec![IaPrefix { prefix: test_prefixes()[1], preferred: 3600, valid: 7200 }],
        status: None,
    };
    let both = Dhcpv6Message {
        addresses: vec![1],
        delegations: vec![wish(2, vec![])],
        ..of(Dhcpv6MessageType::SOLICIT)
    };
    assert_eq!(ask(&both), (Dhcpv6MessageType::ADVERTISE, vec![1], vec![granted(2)]));
    let addresses = Dhcpv6Message { addresses: vec![1], ..of(Dhcpv6MessageType::SOLICIT) };
    assert_eq!(ask(&addresses), (Dhcpv6MessageType::ADVERTISE, vec![1], vec![]), "of which it has none");
    // An earlier lease: the client gets the current prefix, and zero lifetimes for the earlier one.
    let lease = |text: &str, length, valid| {
        let prefix = Ipv6Prefix::new(text.parse().unwrap(), length).unwrap();
        IaPrefix { prefix, preferred: valid, valid }
    };
    for (wished, stray) in [
        (lease("2001:db8:ff00:7700::", 56, 200), true),
        (lease("2001:db8:aaaa::", 56, 100), true),
        (lease("2001:db8:ff00:7700::", 64, 0), false),
    ] {
        let rebind =
            Dhcpv6Message { delegations: vec![wish(2, vec![wished])], ..of(Dhcpv6MessageType::REBIND) };
        let mut expected = granted(2);
        expected.prefixes.extend(stray.then_some(IaPrefix { preferred: 0, valid: 0, ..wished }));
        assert_eq!(ask(&rebind), (Dhcpv6MessageType::REPLY, vec![], vec![expected]), "{wished:?}");
    }
    let asks =
        |delegations| Dhcpv6Message { server: Some(&server), delegations, ..of(Dhcpv6MessageType::REQUEST) };
    let hint = asks(vec![wish(2, vec![lease("::", 60, 0)])]);
    assert_eq!(ask(&hint).2, [granted(2)], "a wish for another length is one");
    let none = IaPd { iaid: 3, status: Some(Dhcpv6Status::NO_PREFIXES), ..IaPd::default() };
    assert_eq!(ask(&asks(vec![wish(2, vec![]), wish(3, vec![])])).2, [granted(2), none]);
    let release = Dhcpv6Message { kind: Dhcpv6MessageType::RELEASE, ..asks(vec![wish(2, vec![])]) };
    assert_eq!(ask(&release), (Dhcpv6MessageType::REPLY, vec![], vec![]));
    assert_eq!(
        ask(&asks(vec![wish(2, vec![])])).2,
        [granted(2)],
        "the session's prefix is there as long as it"
    );
}
