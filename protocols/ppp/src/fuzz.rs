//! Entry points for fuzzers. Each returns false on a defect.

use crate::auth::message::{ChapPacketData, PapRequest};
use crate::auth::{AuthenticationProtocol, PppCredentials};
use crate::client::{ClientCommand, ClientConfig, PppoeClient};
use crate::concentrator::{
    AuthenticationReply, ConcentratorCommand, ConcentratorConfig, ConcentratorEvent, ConcentratorPort,
    PppoeConcentrator,
};
use crate::ipv6::dhcp::Dhcpv6Message;
use crate::ipv6::neighbor::RouterAdvertisement;
use crate::ipv6::{Ipv6Prefix, LinkLocalPacket};
use crate::link::{AddressAssignment, Ipv4Assignment, Ipv6Assignment};
use crate::packet::{ConfigOption, ControlPacket};
use crate::pppoe::{DiscoveryTags, MacAddress, PppoeFrame};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use usher_core::{Duration, Instant, LinkLayerPortId, Machine, MachineInput, MachineOutput, SecureRng};

const PORT: LinkLayerPortId = LinkLayerPortId(0);
const HOST: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const CONCENTRATOR: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

/// Parses octets as a frame, as tags, as a control packet and as authentication data. Emits the parsed values again,
/// which must give the same.
pub fn check_message(octets: &[u8]) -> bool {
    let mut out = Vec::new();
    if let Ok(frame) = PppoeFrame::parse(octets) {
        frame.emit(&mut out);
        if PppoeFrame::parse(&out) != Ok(frame) {
            return false;
        }
    }
    out.clear();
    if let Ok(tags) = DiscoveryTags::parse(octets) {
        tags.emit(&mut out);
        if DiscoveryTags::parse(&out).as_ref() != Ok(&tags) {
            return false;
        }
    }
    out.clear();
    if let Ok(options) = ConfigOption::parse_all_options(octets) {
        options.iter().for_each(|option| option.emit(&mut out));
        if out != octets {
            return false;
        }
    }
    out.clear();
    if let Ok(request) = PapRequest::parse(octets) {
        request.emit(&mut out);
        if PapRequest::parse(&out) != Ok(request) {
            return false;
        }
    }
    out.clear();
    if let Ok(value) = ChapPacketData::parse(octets) {
        value.emit(&mut out);
        if ChapPacketData::parse(&out) != Ok(value) {
            return false;
        }
    }
    // `LinkLocalPacket` checks lengths and the checksum. The code below parses the payloads even if both are wrong.
    let _ = LinkLocalPacket::parse(octets);
    if let Some(one) = RouterAdvertisement::parse(octets)
        && RouterAdvertisement::parse(&one.to_vec()[4..]).as_ref() != Some(&one)
    {
        return false;
    }
    if let Some(one) = Dhcpv6Message::parse(octets)
        && octets.len() < usize::from(u16::MAX)
        && Dhcpv6Message::parse(&one.to_vec()).as_ref() != Some(&one)
    {
        return false;
    }
    ControlPacket::parse(octets).map_or(true, |packet| ControlPacket::parse(&packet.to_vec()) == Ok(packet))
}

fn test_credentials() -> PppCredentials {
    PppCredentials {
        name: b"alice".to_vec(),
        password: b"secret"[..].into(),
        protocols: AuthenticationProtocol::ALL.into(),
        eap_methods: Arc::new([Box::new(usher_eap::method::md5::EapMd5Password::new(b"secret"))]),
    }
}

fn build_concentrator() -> Option<PppoeConcentrator> {
    let config = ConcentratorConfig {
        ports: [ConcentratorPort { port: PORT, address: CONCENTRATOR, mtu: 9000 }].into(),
        authentication: Arc::new(AuthenticationProtocol::ALL),
        agent: true,
        sessions: 8,
        outside: 4,
        ..ConcentratorConfig::default()
    };
    PppoeConcentrator::new(config, SecureRng::from_seed([1; 32])).ok()
}

fn build_client() -> PppoeClient {
    let config = ClientConfig {
        mtu: 9000,
        persist: true,
        delegation: true,
        ..ClientConfig::new(PORT, HOST, test_credentials())
    };
    PppoeClient::new(config, SecureRng::from_seed([2; 32]))
}

/// A channel between the machines that alters, delays and duplicates frames by the octets of the input.
struct FuzzedChannel<'a> {
    octets: &'a [u8],
    now: Instant,
    let_in: bool,
}

impl FuzzedChannel<'_> {
    fn next_octet(&mut self) -> u8 {
        let Some((&first, rest)) = self.octets.split_first() else { return 0 };
        self.octets = rest;
        first
    }
    /// Loses, duplicates, truncates or corrupts a frame.
    fn impair_fuzzed_frame(&mut self, mut frame: Vec<u8>) -> Vec<Vec<u8>> {
        match self.next_octet() % 16 {
            1 => Vec::new(),
            2 => [frame.clone(), frame].into(),
            3 => {
                let keep = usize::from(self.next_octet()) % (frame.len() + 1);
                frame.truncate(keep);
                [frame].into()
            }
            4..=7 => {
                let (at, what) = (usize::from(self.next_octet()), self.next_octet());
                let at = at % frame.len().max(1);
                if let Some(octet) = frame.get_mut(at) {
                    *octet = what;
                }
                [frame].into()
            }
            _ => [frame].into(),
        }
    }
}

/// Runs a concentrator and a client over a channel that the input alters. Neither may exceed its memory limits, and no
/// network may come up before the host is authenticated.
pub fn fuzz_pppoe_session(octets: &[u8]) -> bool {
    let Some(mut server) = build_concentrator() else { return false };
    let mut client = build_client();
    let mut wire = FuzzedChannel { octets, now: Instant::ZERO, let_in: false };
    if client.handle_command(wire.now, ClientCommand::Connect).is_err() {
        return false;
    }
    for _ in 0..64 {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let mut buf = Vec::new();
        while let Some(output) = client.poll_output(&mut buf) {
            if let MachineOutput::Transmit(_) = output {
                up.push(core::mem::take(&mut buf));
            }
        }
        let arrived: Vec<_> = up.into_iter().flat_map(|frame| wire.impair_fuzzed_frame(frame)).collect();
        for frame in arrived {
            server.handle_input(wire.now, MachineInput::Frame { port: PORT, data: &frame });
        }
        while let Some(output) = server.poll_output(&mut buf) {
            match output {
                MachineOutput::Transmit(_) => down.push(core::mem::take(&mut buf)),
                MachineOutput::Event(ConcentratorEvent::Authenticate { session, .. }) => {
                    let answer = match wire.next_octet() % 4 {
                        0 => accept_reply(),
                        1 => AuthenticationReply::Reject { message: Vec::new() },
                        2 => AuthenticationReply::Continue([1, 7, 0, 6, 4, 0].into()),
                        _ => AuthenticationReply::Unanswered,
                    };
                    wire.let_in |= matches!(answer, AuthenticationReply::Accept { .. });
                    // The session of the request may have ended since.
                    let _ = server.handle_command(wire.now, ConcentratorCommand::Answer { session, answer });
                }
                MachineOutput::Event(ConcentratorEvent::Install { .. }) if !wire.let_in => return false,
                _ => {}
            }
        }
        let arrived: Vec<_> = down.into_iter().flat_map(|frame| wire.impair_fuzzed_frame(frame)).collect();
        for frame in arrived {
            client.handle_input(wire.now, MachineInput::Frame { port: PORT, data: &frame });
        }
        if server.session_count() > 8 || server.unauthenticated_count() > 4 {
            return false;
        }
        let later = Duration::from_millis(u64::from(wire.next_octet()) * 20);
        wire.now += later;
        server.handle_input(wire.now, MachineInput::Timeout);
        client.handle_input(wire.now, MachineInput::Timeout);
    }
    true
}

fn accept_reply() -> AuthenticationReply {
    let address = |n| Ipv4Addr::new(192, 0, 2, n);
    let ipv4 = Ipv4Assignment { local: address(1), remote: address(2), dns: [address(53)].into() };
    let prefix = |length| Ipv6Prefix::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), length);
    let ipv6 = Ipv6Assignment { prefix: prefix(64), delegated: prefix(56), ..Ipv6Assignment::default() };
    let assignment = AddressAssignment { ipv4: Some(ipv4), ipv6: Some(ipv6) };
    AuthenticationReply::Accept { message: Vec::new(), assignment: assignment.into() }
}

/// Sends a concentrator and a client these octets as frames. A length precedes each frame.
pub fn fuzz_pppoe_endpoints(octets: &[u8]) -> bool {
    let Some(mut server) = build_concentrator() else { return false };
    let mut client = build_client();
    let mut now = Instant::ZERO;
    if client.handle_command(now, ClientCommand::Connect).is_err() {
        return false;
    }
    let (mut rest, mut buf) = (octets, Vec::new());
    while let Some((&length, after)) = rest.split_first() {
        let (frame, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        server.handle_input(now, MachineInput::Frame { port: PORT, data: frame });
        client.handle_input(now, MachineInput::Frame { port: PORT, data: frame });
        now += Duration::from_millis(u64::from(length));
        server.handle_input(now, MachineInput::Timeout);
        client.handle_input(now, MachineInput::Timeout);
        while let Some(output) = server.poll_output(&mut buf) {
            if let MachineOutput::Event(ConcentratorEvent::Install { .. }) = output {
                return false;
            }
        }
        while client.poll_output(&mut buf).is_some() {}
    }
    server.session_count() <= 8 && server.unauthenticated_count() <= 4
}
