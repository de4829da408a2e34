//! Netlink messages of the kernel's XFRM: SAs and policies in the layout of `linux/xfrm.h`. Integers have the
//! machine's byte order, except for values of network packets. It is written by hand, since it needs nine messages
//! and a few fields of each reply.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_crypto::cipher::CipherAlgorithm;
use usher_crypto::mac::MacAlgorithm;
use usher_esp::TrafficSelector;
use usher_esp::ip::PacketFlow;
use usher_esp::plane::IpsecMode;
use usher_esp::sa::{SaLifetime, TrafficVolume};
use usher_esp::transform::{EspKeys, EspTransform};

pub(crate) const NEWSA: u16 = 0x10;
pub(crate) const DELSA: u16 = 0x11;
pub(crate) const GETSA: u16 = 0x12;
pub(crate) const DELPOLICY: u16 = 0x14;
pub(crate) const GETPOLICY: u16 = 0x15;
pub(crate) const NEWPOLICY: u16 = 0x13;
pub(crate) const ACQUIRE: u16 = 0x17;
pub(crate) const EXPIRE: u16 = 0x18;
pub(crate) const UPDPOLICY: u16 = 0x19;

const ALG_AUTH_TRUNC: u16 = 20;
const ALG_CRYPT: u16 = 2;
const ALG_AEAD: u16 = 18;
const ENCAP: u16 = 4;
const TMPL: u16 = 5;
const REPLAY_ESN_VAL: u16 = 23;
const SET_MARK: u16 = 29;
const IF_ID: u16 = 31;

/// `struct nlmsghdr`.
const HEADER: usize = 16;
/// `struct xfrm_selector`, `xfrm_usersa_info`, `xfrm_userpolicy_info`.
const SELECTOR: usize = 56;
const SA: usize = 224;
const POLICY: usize = 168;

const ESP: u8 = 50;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// The inner family may differ from the outer one; sequence numbers have 64 bits.
const AF_UNSPEC: u8 = 32;
const ESN: u8 = 128;
/// Datagrams that hold ESP (RFC 3948).
const ESP_IN_UDP: u16 = 2;

/// The direction of a policy (`XFRM_POLICY_IN` and its siblings).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum XfrmPolicyDirection {
    In = 0,
    Out = 1,
    Forward = 2,
}

/// Traffic that the kernel can match by prefixes and masks, seen outbound: the local end first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct XfrmSelector {
    pub(crate) local: XfrmSelectorEnd,
    pub(crate) remote: XfrmSelectorEnd,
    /// 0: any.
    pub(crate) protocol: u8,
}

/// One end of a selector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct XfrmSelectorEnd {
    pub(crate) network: (IpAddr, u8),
    /// A port and its mask.
    pub(crate) port: (u16, u16),
}

/// The action of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum XfrmPolicyAction {
    Discard,
    /// Protect by SAs with this reqid between these addresses. Outbound, by the SA with this SPI, or by any.
    Protect {
        reqid: u32,
        outer: (IpAddr, IpAddr),
        mode: IpsecMode,
        spi: Option<u32>,
    },
}

/// One SA of a pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XfrmState<'a> {
    pub(crate) spi: u32,
    /// The endpoints, in the direction of the packets.
    pub(crate) from: (IpAddr, u16),
    pub(crate) to: (IpAddr, u16),
    pub(crate) encapsulated: bool,
    pub(crate) reqid: u32,
    pub(crate) mode: IpsecMode,
    pub(crate) transform: EspTransform,
    pub(crate) keys: &'a EspKeys,
    pub(crate) lifetime: SaLifetime,
    pub(crate) window: u32,
    /// The mark of its outbound packets.
    pub(crate) mark: Option<u32>,
    pub(crate) interface: u32,
}

/// The replay state of an SA: the last sequence number sent, the highest received, and the window.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SaReplayState(Vec<u8>);

/// An SA as the kernel reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct XfrmStateReport {
    pub(crate) spi: u32,
    pub(crate) to: IpAddr,
    pub(crate) volume: TrafficVolume,
    pub(crate) interface: u32,
    pub(crate) numbers: SaReplayState,
}

/// A message under construction.
#[derive(Debug)]
pub(crate) struct XfrmRequest(Vec<u8>);

fn address_family(address: IpAddr) -> u16 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

impl XfrmRequest {
    pub(crate) fn new(kind: u16, flags: u16) -> Self {
        let mut message = Self(vec![0; 4]);
        message.write_u16(kind).write_u16(flags | REQUEST).write_zeros(8);
        message
    }
    fn write_u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }
    fn write_u16(&mut self, value: u16) -> &mut Self {
        self.write_bytes(&value.to_ne_bytes())
    }
    fn write_u32(&mut self, value: u32) -> &mut Self {
        self.write_bytes(&value.to_ne_bytes())
    }
    fn write_u64(&mut self, value: u64) -> &mut Self {
        self.write_bytes(&value.to_ne_bytes())
    }
    fn write_bytes(&mut self, octets: &[u8]) -> &mut Self {
        self.0.extend_from_slice(octets);
        self
    }
    fn write_zeros(&mut self, count: usize) -> &mut Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }
    fn write_address(&mut self, address: IpAddr) -> &mut Self {
        match address {
            IpAddr::V4(v4) => self.write_bytes(&v4.octets()).write_zeros(12),
            IpAddr::V6(v6) => self.write_bytes(&v6.octets()),
        }
    }
    fn write_attribute(&mut self, kind: u16, content: &[u8]) {
        let length = 4 + content.len();
        self.write_u16(length as u16)
            .write_u16(kind)
            .write_bytes(content)
            .write_zeros(length.next_multiple_of(4) - length);
    }
    /// Returns its octets, with the length filled in.
    pub(crate) fn finish_message(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }

    /// `struct xfrm_selector`.
    fn write_selector(&mut self, selector: &XfrmSelector, direction: XfrmPolicyDirection) -> &mut Self {
        let (source, destination) = match direction {
            XfrmPolicyDirection::Out => (&selector.local, &selector.remote),
            XfrmPolicyDirection::In | XfrmPolicyDirection::Forward => (&selector.remote, &selector.local),
        };
        self.write_address(destination.network.0).write_address(source.network.0);
        for side in [destination, source] {
            self.write_bytes(&side.port.0.to_be_bytes()).write_bytes(&side.port.1.to_be_bytes());
        }
        self.write_u16(address_family(source.network.0))
            .write_u8(destination.network.1)
            .write_u8(source.network.1);
        self.write_u8(selector.protocol).write_zeros(3).write_u32(0).write_u32(0)
    }
    /// `struct xfrm_id`.
    fn write_xfrm_id(&mut self, to: IpAddr, spi: u32) -> &mut Self {
        self.write_address(to).write_bytes(&spi.to_be_bytes()).write_u8(ESP).write_zeros(3)
    }
    /// `struct xfrm_lifetime_cfg`.
    fn write_lifetime(&mut self, lifetime: &SaLifetime) -> &mut Self {
        let limits =
            [lifetime.soft_octets, lifetime.hard_octets, lifetime.soft_packets, lifetime.hard_packets];
        for limit in limits {
            self.write_u64(limit.unwrap_or(u64::MAX));
        }
        self.write_zeros(32)
    }

    /// Builds a policy that replaces any other with its selector.
    pub(crate) fn update_policy(
        selector: &XfrmSelector,
        direction: XfrmPolicyDirection,
        (deed, priority, interface): (XfrmPolicyAction, u32, u32),
    ) -> Vec<u8> {
        let mut message = Self::new(UPDPOLICY, ACK);
        message.write_selector(selector, direction).write_lifetime(&SaLifetime::default()).write_zeros(32);
        let discards = u8::from(deed == XfrmPolicyAction::Discard);
        message
            .write_u32(priority)
            .write_u32(0)
            .write_u8(direction as u8)
            .write_u8(discards)
            .write_u8(0)
            .write_u8(0)
            .write_zeros(4);
        if let XfrmPolicyAction::Protect { reqid, outer, mode, spi } = deed {
            let (from, to) = if direction == XfrmPolicyDirection::Out { outer } else { (outer.1, outer.0) };
            let mut template = Self(Vec::new());
            template.write_xfrm_id(to, spi.filter(|_| direction == XfrmPolicyDirection::Out).unwrap_or(0));
            template
                .write_u16(address_family(to))
                .write_zeros(2)
                .write_address(from)
                .write_u32(reqid)
                .write_u8(xfrm_mode_number(mode))
                .write_zeros(3);
            // All bits are set in the three masks, which allows any algorithms.
            template.write_u32(u32::MAX).write_u32(u32::MAX).write_u32(u32::MAX);
            message.write_attribute(TMPL, &template.0);
        }
        message.write_attribute(IF_ID, &interface.to_ne_bytes());
        message.finish_message()
    }

    /// Builds the removal of a policy.
    pub(crate) fn build_policy_deletion(
        selector: &XfrmSelector,
        direction: XfrmPolicyDirection,
        interface: u32,
    ) -> Vec<u8> {
        let mut message = Self::new(DELPOLICY, ACK);
        message.write_selector(selector, direction).write_u32(0).write_u8(direction as u8).write_zeros(3);
        message.write_attribute(IF_ID, &interface.to_ne_bytes());
        message.finish_message()
    }
    /// Builds the removal of a policy that the kernel has reported.
    pub(crate) fn build_reported_policy_deletion(told: &XfrmPolicyReport, interface: u32) -> Vec<u8> {
        let mut message = Self::new(DELPOLICY, ACK);
        message.write_bytes(&told.selector).write_u32(0).write_u8(told.direction).write_zeros(3);
        message.write_attribute(IF_ID, &interface.to_ne_bytes());
        message.finish_message()
    }

    /// Builds a new SA, which continues from `numbers` if given.
    pub(crate) fn build_state_addition(state: &XfrmState<'_>, numbers: Option<&SaReplayState>) -> Vec<u8> {
        let mut message = Self::new(NEWSA, ACK | CREATE | EXCL);
        let flags = if state.transform.extended_sequence_numbers { ESN | AF_UNSPEC } else { AF_UNSPEC };
        let flags = if state.mode == IpsecMode::Tunnel { flags } else { flags & !AF_UNSPEC };
        message.write_zeros(SELECTOR).write_xfrm_id(state.to.0, state.spi).write_address(state.from.0);
        message.write_lifetime(&state.lifetime).write_zeros(32 + 12).write_u32(0).write_u32(state.reqid);
        message
            .write_u16(address_family(state.to.0))
            .write_u8(xfrm_mode_number(state.mode))
            .write_u8(0)
            .write_u8(flags)
            .write_zeros(7);
        let algorithm = |name: &str, key: &[u8], length: Option<usize>| {
            let mut content = Self(name.as_bytes().to_vec());
            content.write_zeros(64 - name.len()).write_u32(8 * key.len() as u32);
            if let Some(length) = length {
                content.write_u32(8 * length as u32);
            }
            content.write_bytes(key);
            content.0
        };
        let (cipher, code) = (&state.keys.cipher, &state.keys.integrity);
        match state.transform.cipher {
            Some(CipherAlgorithm::AesGcm) => {
                message.write_attribute(ALG_AEAD, &algorithm("rfc4106(gcm(aes))", cipher, Some(16)));
            }
            Some(CipherAlgorithm::ChaCha20Poly1305) => {
                let name = "rfc7539esp(chacha20,poly1305)";
                message.write_attribute(ALG_AEAD, &algorithm(name, cipher, Some(16)));
            }
            Some(CipherAlgorithm::AesCbc) => {
                message.write_attribute(ALG_CRYPT, &algorithm("cbc(aes)", cipher, None));
            }
            Some(CipherAlgorithm::TripleDesCbc) => {
                message.write_attribute(ALG_CRYPT, &algorithm("cbc(des3_ede)", cipher, None));
            }
            None => message.write_attribute(ALG_CRYPT, &algorithm("ecb(cipher_null)", &[], None)),
        }
        if let Some(integrity) = state.transform.integrity {
            let name = match integrity.mac {
                MacAlgorithm::HmacSha1 => "hmac(sha1)",
                MacAlgorithm::HmacSha256 => "hmac(sha256)",
                MacAlgorithm::HmacSha384 => "hmac(sha384)",
                MacAlgorithm::HmacSha512 => "hmac(sha512)",
                MacAlgorithm::AesXcbc => "xcbc(aes)",
            };
            message.write_attribute(ALG_AUTH_TRUNC, &algorithm(name, code, Some(integrity.len)));
        }
        if state.encapsulated {
            let mut content = Self(Vec::new());
            content
                .write_u16(ESP_IN_UDP)
                .write_bytes(&state.from.1.to_be_bytes())
                .write_bytes(&state.to.1.to_be_bytes());
            message.write_attribute(ENCAP, &content.write_zeros(18).0);
        }
        match numbers {
            Some(SaReplayState(numbers)) => message.write_attribute(REPLAY_ESN_VAL, numbers),
            None => {
                let words = state.window.div_ceil(32);
                let mut content = Self(Vec::new());
                content
                    .write_u32(words)
                    .write_zeros(16)
                    .write_u32(words * 32)
                    .write_zeros(4 * words as usize);
                message.write_attribute(REPLAY_ESN_VAL, &content.0);
            }
        }
        if let Some(mark) = state.mark {
            message.write_attribute(SET_MARK, &mark.to_ne_bytes());
        }
        message.write_attribute(IF_ID, &state.interface.to_ne_bytes());
        message.finish_message()
    }

    /// Builds the removal or the query of an SA.
    pub(crate) fn build_sa_request(kind: u16, to: IpAddr, spi: u32) -> Vec<u8> {
        let mut message = Self::new(kind, ACK);
        message
            .write_address(to)
            .write_bytes(&spi.to_be_bytes())
            .write_u16(address_family(to))
            .write_u8(ESP)
            .write_u8(0);
        message.finish_message()
    }
    /// Builds a dump of all SAs or all policies.
    pub(crate) fn build_dump_request(kind: u16) -> Vec<u8> {
        Self::new(kind, DUMP).finish_message()
    }
}

const fn xfrm_mode_number(mode: IpsecMode) -> u8 {
    match mode {
        IpsecMode::Transport => 0,
        IpsecMode::Tunnel => 1,
    }
}

/// The identity of a policy as the kernel reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct XfrmPolicyReport {
    selector: Vec<u8>,
    direction: u8,
    pub(crate) interface: u32,
}

/// A message of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum XfrmMessage {
    /// The result of a request.
    Done(Result<(), i32>),
    State(XfrmStateReport),
    Policy(XfrmPolicyReport),
    /// A packet of this flow needs an SA, by the policy with this selector.
    Acquire {
        flow: PacketFlow,
        policy: Vec<u8>,
    },
    /// An SA has reached its soft or hard limit.
    Expire {
        spi: u32,
        hard: bool,
    },
}

/// The octets of a message, which may be truncated.
#[derive(Clone, Copy)]
struct OctetView<'a>(&'a [u8]);

impl<'a> OctetView<'a> {
    fn slice_at(self, at: usize, count: usize) -> Option<&'a [u8]> {
        self.0.get(at..at.checked_add(count)?)
    }
    fn array_at<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.slice_at(at, N)?.try_into().ok()
    }
    fn u16_at(self, at: usize) -> Option<u16> {
        self.array_at(at).map(u16::from_ne_bytes)
    }
    fn u32_at(self, at: usize) -> Option<u32> {
        self.array_at(at).map(u32::from_ne_bytes)
    }
    fn u64_at(self, at: usize) -> Option<u64> {
        self.array_at(at).map(u64::from_ne_bytes)
    }
    fn address_at(self, at: usize, family: u16) -> Option<IpAddr> {
        match family {
            AF_INET => self.array_at::<4>(at).map(|four| Ipv4Addr::from(four).into()),
            AF_INET6 => self.array_at::<16>(at).map(|sixteen| Ipv6Addr::from(sixteen).into()),
            _ => None,
        }
    }
    /// Finds an attribute after the fixed part of a message.
    fn find_attribute(self, mut at: usize, kind: u16) -> Option<&'a [u8]> {
        loop {
            let (length, of) = (usize::from(self.u16_at(at)?), self.u16_at(at + 2)?);
            let content = self.slice_at(at + 4, length.checked_sub(4)?)?;
            if of == kind {
                return Some(content);
            }
            at += length.next_multiple_of(4);
        }
    }
    fn interface_number(self, at: usize) -> u32 {
        self.find_attribute(at, IF_ID).and_then(|content| OctetView(content).u32_at(0)).unwrap_or(0)
    }
}

fn parse_message(kind: u16, body: &[u8]) -> Option<XfrmMessage> {
    let body = OctetView(body);
    Some(match kind {
        2 => {
            let code = i32::from_ne_bytes(body.array_at(0)?);
            XfrmMessage::Done(if code == 0 { Ok(()) } else { Err(code.wrapping_neg()) })
        }
        3 => XfrmMessage::Done(Ok(())),
        NEWSA => {
            let numbers = body.find_attribute(SA, REPLAY_ESN_VAL).unwrap_or_default().to_vec();
            XfrmMessage::State(XfrmStateReport {
                spi: u32::from_be_bytes(body.array_at(72)?),
                to: body.address_at(SELECTOR, body.u16_at(212)?)?,
                volume: TrafficVolume { octets: body.u64_at(160)?, packets: body.u64_at(168)? },
                interface: body.interface_number(SA),
                numbers: SaReplayState(numbers),
            })
        }
        NEWPOLICY => XfrmMessage::Policy(XfrmPolicyReport {
            selector: body.slice_at(0, SELECTOR)?.to_vec(),
            direction: *body.slice_at(160, 1)?.first()?,
            interface: body.interface_number(POLICY),
        }),
        ACQUIRE => {
            let family = body.u16_at(40 + 40)?;
            let (destination, source) = (body.address_at(40, family)?, body.address_at(56, family)?);
            let port = |at| body.array_at(at).map(u16::from_be_bytes);
            let ports = Some((port(76)?, port(72)?)).filter(|ports| *ports != (0, 0));
            let protocol = *body.slice_at(84, 1)?.first()?;
            let flow = PacketFlow { protocol, source, destination, ports };
            XfrmMessage::Acquire { flow, policy: body.slice_at(96, SELECTOR)?.to_vec() }
        }
        EXPIRE => XfrmMessage::Expire {
            spi: u32::from_be_bytes(body.array_at(72)?),
            hard: *body.slice_at(SA, 1)?.first()? != 0,
        },
        _ => return None,
    })
}

/// Parses a datagram of the kernel. Skips messages that it cannot read.
pub(crate) fn parse_messages(mut octets: &[u8]) -> Vec<XfrmMessage> {
    let mut all = Vec::new();
    while let Some(length) = OctetView(octets).u32_at(0) {
        let Ok(length) = usize::try_from(length) else { break };
        let (Some(message), true) = (octets.get(..length), length >= HEADER) else { break };
        all.extend(OctetView(message).u16_at(4).and_then(|kind| parse_message(kind, &message[HEADER..])));
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

const REQUEST: u16 = 1;
const ACK: u16 = 4;
const EXCL: u16 = 0x200;
const CREATE: u16 = 0x400;
const DUMP: u16 = 0x300;

impl SaReplayState {
    /// Advances by `packets`, which may have left since the state was read: no sequence number may be reused.
    pub(crate) fn advance_outbound_sequence(mut self, packets: u32) -> Self {
        // Offsets 4 and 12 are `oseq` and `oseq_hi` of `struct xfrm_replay_state_esn`.
        let (low, high) = (OctetView(&self.0).u32_at(4), OctetView(&self.0).u32_at(12));
        if let (Some(low), Some(high)) = (low, high) {
            let (low, carry) = low.overflowing_add(packets);
            self.0[4..8].copy_from_slice(&low.to_ne_bytes());
            self.0[12..16].copy_from_slice(&high.wrapping_add(carry.into()).to_ne_bytes());
        }
        self
    }
}

/// Returns the port prefixes that cover a range, each with its mask.
fn port_prefixes(first: u16, last: u16) -> Vec<(u16, u16)> {
    let (mut at, end, mut all) = (u32::from(first), u32::from(last), Vec::new());
    while at <= end {
        let free = (0..=at.trailing_zeros().min(16)).rev().find(|free| at + (1 << free) - 1 <= end);
        let size = 1u32 << free.unwrap_or(0);
        all.push((at as u16, !((size - 1) as u16)));
        at += size;
    }
    all
}

/// Converts the traffic selectors of both sides to kernel selectors. `None`: more than `most`, or ports that the
/// kernel cannot match.
pub(crate) fn xfrm_selectors(
    local: &[TrafficSelector],
    remote: &[TrafficSelector],
    networks: &dyn Fn(&TrafficSelector) -> Vec<(IpAddr, u8)>,
    most: usize,
) -> Option<Vec<XfrmSelector>> {
    let sides = |selector: &TrafficSelector| -> Option<Vec<XfrmSelectorEnd>> {
        let ports = match (selector.start_port, selector.end_port) {
            (0, u16::MAX) => vec![(0, 0)],
            (first, last) if first <= last => port_prefixes(first, last),
            _ => return None,
        };
        let networks = networks(selector);
        let each = networks.iter().flat_map(|network| ports.iter().map(|port| (*network, *port)));
        Some(each.map(|(network, port)| XfrmSelectorEnd { network, port }).collect())
    };
    let mut all = Vec::new();
    for (one, other) in local.iter().flat_map(|one| remote.iter().map(move |other| (one, other))) {
        let protocol = match (one.protocol, other.protocol) {
            (protocol, 0) | (0, protocol) => protocol,
            (a, b) if a == b => a,
            _ => continue,
        };
        if one.start.is_ipv4() != other.start.is_ipv4() {
            continue;
        }
        let remotes = sides(other)?;
        for local in sides(one)? {
            all.extend(remotes.iter().map(|remote| XfrmSelector { local, remote: *remote, protocol }));
        }
        if all.len() > most {
            return None;
        }
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}

/// Encodes an outbound policy's selector as the kernel does.
pub(crate) fn encode_selector(selector: &XfrmSelector) -> Vec<u8> {
    let mut message = XfrmRequest(Vec::new());
    message.write_selector(selector, XfrmPolicyDirection::Out);
    message.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use usher_crypto::SecretValue;

    fn test_selector() -> XfrmSelector {
        let side = |address: [u8; 4]| XfrmSelectorEnd { network: (address.into(), 24), port: (0, 0) };
        XfrmSelector { local: side([10, 1, 0, 0]), remote: side([10, 2, 0, 0]), protocol: 17 }
    }

    /// Sizes and offsets of `linux/xfrm.h` by a C compiler, where 64-bit integers are aligned to eight octets.
    #[test]
    fn messages_are_laid_out_as_the_kernel_has_them() {
        let outer = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let deed = XfrmPolicyAction::Protect { reqid: 7, outer, mode: IpsecMode::Tunnel, spi: Some(0x1234) };
        let policy =
            XfrmRequest::update_policy(&test_selector(), XfrmPolicyDirection::Out, (deed, 100, 4500));
        assert_eq!(policy.len(), HEADER + POLICY + 4 + 64 + 8);
        assert_eq!(policy[HEADER..][..4], [10, 2, 0, 0]);
        assert_eq!(policy[HEADER + 16..][..4], [10, 1, 0, 0]);
        assert_eq!(policy[HEADER + POLICY + 4..][..4], [192, 0, 2, 2]);
        assert_eq!(policy[HEADER + POLICY + 4 + 16..][..4], [0, 0, 0x12, 0x34]);
        let inwards =
            XfrmRequest::update_policy(&test_selector(), XfrmPolicyDirection::In, (deed, 100, 4500));
        assert_eq!(inwards[HEADER..][..4], [10, 1, 0, 0]);
        assert_eq!(inwards[HEADER + POLICY + 4..][..4], [192, 0, 2, 1]);
        assert_eq!(inwards[HEADER + POLICY + 4 + 16..][..4], [0; 4], "any SA of its number");
        assert_eq!(
            XfrmRequest::build_policy_deletion(&test_selector(), XfrmPolicyDirection::Out, 1).len(),
            HEADER + 64 + 8
        );
        assert_eq!(XfrmRequest::build_sa_request(DELSA, outer.0, 1).len(), HEADER + 24);
        let keys = EspKeys { cipher: SecretValue::from(&[3; 20][..]), integrity: SecretValue::from(&[][..]) };
        let transform = EspTransform {
            cipher: Some(CipherAlgorithm::AesGcm),
            integrity: None,
            extended_sequence_numbers: true,
        };
        let state = XfrmState {
            spi: 0x0102_0304,
            from: (outer.0, 4500),
            to: (outer.1, 4500),
            encapsulated: true,
            reqid: 7,
            mode: IpsecMode::Tunnel,
            transform,
            keys: &keys,
            lifetime: SaLifetime::default(),
            window: 1024,
            mark: Some(9),
            interface: 4500,
        };
        let octets = XfrmRequest::build_state_addition(&state, None);
        let algorithm = (4 + 64 + 4 + 4 + 20usize).next_multiple_of(4);
        assert_eq!(octets.len(), HEADER + SA + algorithm + (4 + 24) + (4 + 24 + 128) + 8 + 8);
        // As the kernel would report it.
        let [XfrmMessage::State(told)] = &parse_messages(&octets)[..] else { panic!("it is an SA") };
        assert_eq!((told.spi, told.to, told.interface), (0x0102_0304, outer.1, 4500));
        let again = XfrmRequest::build_state_addition(&state, Some(&told.numbers));
        assert_eq!(again, octets);
        let later = XfrmRequest::build_state_addition(
            &state,
            Some(&told.numbers.clone().advance_outbound_sequence(5)),
        );
        let at = HEADER + SA + algorithm + 28 + 4;
        assert_eq!(later[at + 4..at + 8], 5u32.to_ne_bytes());
    }

    #[test]
    fn ranges_of_ports_are_prefixes() {
        assert_eq!(port_prefixes(0, 65535), [(0, 0)]);
        assert_eq!(port_prefixes(80, 80), [(80, 0xffff)]);
        assert_eq!(port_prefixes(1023, 1025), [(1023, 0xffff), (1024, 0xfffe)]);
        for (first, last) in [(0, 1), (5, 1000), (60_000, 65_535)] {
            let all = port_prefixes(first, last);
            let count = (0..=u16::MAX).filter(|port| all.iter().any(|(at, mask)| port & mask == *at)).count();
            assert_eq!(count, usize::from(last - first) + 1);
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_left_out(octets in prop::collection::vec(any::<u8>(), 0..600), kind in 0u16..40) {
            let _ = parse_messages(&octets);
            let _ = parse_message(kind, &octets);
        }
    }
}
