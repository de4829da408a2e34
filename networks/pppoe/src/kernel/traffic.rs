//! Traffic control (tc(8)) at a session's interface: source checks, rates, and their counts.

use super::filter::{self, BpfInstruction};
use crate::interface::{INGRESS, Netlink, TC_ACT_SHOT, TC_ACT_UNSPEC, push_attribute};
use crate::session::DataPlaneSession;
use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, Nla, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoData, InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::tc::{TcAttribute, TcFilterBpfOption, TcOption};
use std::io;

/// The parent of egress filters, to hosts (linux/pkt_sched.h).
const EGRESS: u32 = 0xffff_fff3;

/// Attributes of a BPF filter (linux/pkt_cls.h).
const TCA_BPF_ACT: u16 = 1;
const TCA_BPF_OPS_LEN: u16 = 4;
const TCA_BPF_OPS: u16 = 5;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
/// Attributes of an action and its counts (linux/pkt_cls.h, linux/gen_stats.h).
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_ACT_STATS: u16 = 4;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;
/// Attributes of the two actions (linux/tc_act/tc_gact.h, linux/pkt_cls.h).
const TCA_GACT_PARMS: u16 = 2;
const TCA_POLICE_TBF: u16 = 1;
const TCA_POLICE_RATE: u16 = 2;
const TCA_POLICE_RESULT: u16 = 5;
const TCA_POLICE_RATE64: u16 = 8;
const TC_ACT_OK: u32 = 0;
const TC_ACT_PIPE: u32 = 3;

/// Maximum instructions of a program (linux/bpf_common.h, `BPF_MAXINSNS`).
const STEPS: usize = 4096;

/// The burst of a rate limit: nanoseconds at the rate, and the minimum octets. The same as in other modes.
const BURST: u64 = 100_000_000;
const LEAST_BURST: u64 = 128 << 10;
/// Nanoseconds of traffic control's time unit (linux/pkt_sched.h, `PSCHED_SHIFT`).
const TICK: u64 = 64;
/// Octets of a rate table, which the kernel requires but no longer reads.
const RATE_TABLE: usize = 1024;

/// The counts of traffic control at an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct TcInterfaceCounters {
    /// Octets and packets from the host that passed.
    pub(super) octets_in: u64,
    pub(super) packets_in: u64,
    pub(super) spoofed: u64,
    pub(super) limited: u64,
}

/// The filters' priorities. The lower runs first.
#[derive(Clone, Copy)]
enum TcFilterPriority {
    /// From the host: its own source addresses.
    Own = 1,
    /// From the host: all others.
    Other = 2,
    /// To the host: the system's own link-scope packets.
    Link = 3,
    /// To the host: all others.
    Rate = 4,
}

fn nested_attribute(kind: u16, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let (mut inner, mut out) = (Vec::new(), Vec::new());
    fill(&mut inner);
    push_attribute(kind, &inner, &mut out);
    out
}

fn encode_words(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Encodes an action, the `order`th of its filter.
fn encode_action(order: u16, kind: &str, options: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    nested_attribute(order, |out| {
        push_attribute(TCA_ACT_KIND, format!("{kind}\0").as_bytes(), out);
        out.extend(nested_attribute(TCA_ACT_OPTIONS, options));
    })
}

/// Encodes an action that passes or drops.
fn verdict_action(order: u16, what: u32) -> Vec<u8> {
    // struct tc_gact: index, capab, action, refcnt, bindcnt.
    encode_action(order, "gact", |out| {
        push_attribute(TCA_GACT_PARMS, &encode_words(&[0, 0, what, 0, 0]), out)
    })
}

/// Encodes an action that drops packets beyond a rate in bit/s, and passes others to the next action.
fn police_action(order: u16, rate: u64) -> Vec<u8> {
    let octets = (rate / 8).max(1);
    let burst = BURST.max(LEAST_BURST * 1_000_000_000 / octets) / TICK;
    // struct tc_ratespec: cell_log, linklayer (1: Ethernet), overhead, cell_align, mpu, rate.
    let ratespec = |rate: u64| {
        let mut all = vec![16, 1, 0, 0, 0, 0, 0, 0];
        all.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
        all
    };
    encode_action(order, "police", |out| {
        // struct tc_police: index, action, limit, burst, mtu, rate, peakrate, refcnt, bindcnt, capab.
        let burst = u32::try_from(burst).unwrap_or(u32::MAX);
        let mut all = encode_words(&[0, TC_ACT_SHOT, 0, burst, u32::MAX >> 1]);
        all.extend(ratespec(octets));
        all.extend(ratespec(0));
        all.extend(encode_words(&[0, 0, 0]));
        push_attribute(TCA_POLICE_TBF, &all, out);
        push_attribute(TCA_POLICE_RATE, &[0; RATE_TABLE], out);
        push_attribute(TCA_POLICE_RESULT, &encode_words(&[TC_ACT_PIPE]), out);
        if octets > u64::from(u32::MAX) {
            push_attribute(TCA_POLICE_RATE64, &octets.to_ne_bytes(), out);
        }
    })
}

/// Encodes a filter's options: its program and actions.
fn filter_options(program: &[BpfInstruction], flags: Option<u32>, actions: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut steps = Vec::new();
    for step in program {
        steps.extend(step.code.to_ne_bytes());
        steps.extend([step.jt, step.jf]);
        steps.extend(step.k.to_ne_bytes());
    }
    push_attribute(TCA_BPF_OPS_LEN, &(program.len() as u16).to_ne_bytes(), &mut out);
    push_attribute(TCA_BPF_OPS, &steps, &mut out);
    if let Some(flags) = flags {
        push_attribute(TCA_BPF_FLAGS, &flags.to_ne_bytes(), &mut out);
    }
    if !actions.is_empty() {
        push_attribute(TCA_BPF_ACT, &actions.concat(), &mut out);
    }
    out
}

impl Netlink {
    /// Sets the source filter and the rates of a session's interface. Its counts restart.
    pub(super) fn set_interface_traffic_rules(
        &self,
        index: u32,
        session: &DataPlaneSession,
    ) -> io::Result<()> {
        let own = filter::match_own_sources(session);
        if own.len() > STEPS {
            let why = format!(
                "the networks of a session need a filter of {} instructions; the kernel's limit is {STEPS}",
                own.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        let made =
            self.send_request(flags, RouteNetlinkMessage::NewQueueDiscipline(Self::clsact_message(index)));
        match made {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            made => drop(made?),
        }
        let limited = |order, rate: Option<u64>| rate.map(|rate| police_action(order, rate));
        let mut up: Vec<Vec<u8>> = limited(1, session.rate_up).into_iter().collect();
        up.push(verdict_action(up.len() as u16 + 1, TC_ACT_OK));
        let down: Vec<Vec<u8>> = limited(1, session.rate_down).into_iter().collect();
        // Create the filters that pass packets after those that drop packets, so that no other packet passes meanwhile.
        let link = filter::link_message_filter(TC_ACT_SHOT, TC_ACT_UNSPEC);
        for (parent, priority, options) in [
            (
                INGRESS,
                TcFilterPriority::Other,
                filter_options(&filter::match_all_packets(), None, &[verdict_action(1, TC_ACT_SHOT)]),
            ),
            (INGRESS, TcFilterPriority::Own, filter_options(&own, None, &up)),
            (EGRESS, TcFilterPriority::Link, filter_options(&link, Some(TCA_BPF_FLAG_ACT_DIRECT), &[])),
            (EGRESS, TcFilterPriority::Rate, filter_options(&filter::match_all_packets(), None, &down)),
        ] {
            let mut message = Self::filter_message(index, parent, priority as u32);
            message.attributes.push(TcAttribute::Other(DefaultNla::new(2, options)));
            let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
            self.send_request(flags, RouteNetlinkMessage::NewTrafficFilter(message))?;
        }
        Ok(())
    }

    /// Returns the counts since the filters were created.
    pub(super) fn traffic_counts(&self, index: u32) -> io::Result<TcInterfaceCounters> {
        let mut counts = TcInterfaceCounters::default();
        for parent in [INGRESS, EGRESS] {
            let message = Self::tc_message(index, parent, 0, "bpf");
            for answer in self.send_request(NLM_F_DUMP, RouteNetlinkMessage::GetTrafficFilter(message))? {
                let RouteNetlinkMessage::NewTrafficFilter(filter) = answer else { continue };
                let other = filter.header.info >> 16 == TcFilterPriority::Other as u32;
                for option in filter
                    .attributes
                    .iter()
                    .filter_map(|one| match one {
                        TcAttribute::Options(all) => Some(all),
                        _ => None,
                    })
                    .flatten()
                {
                    if let TcOption::Bpf(TcFilterBpfOption::Other(actions)) = option
                        && actions.kind() == TCA_BPF_ACT
                    {
                        let mut octets = vec![0; actions.value_len()];
                        actions.emit_value(&mut octets);
                        add_action_stats(&octets, other, &mut counts);
                    }
                }
            }
        }
        Ok(counts)
    }
}

/// Adds the counts of a filter's actions.
fn add_action_stats(actions: &[u8], other: bool, counts: &mut TcInterfaceCounters) {
    for action in NlasIterator::new(actions).flatten() {
        let (mut kind, mut octets, mut packets, mut dropped) = (Vec::new(), 0, 0, 0);
        for part in NlasIterator::new(action.value()).flatten() {
            match part.kind() {
                TCA_ACT_KIND => kind = part.value().to_vec(),
                TCA_ACT_STATS => {
                    for stat in NlasIterator::new(part.value()).flatten() {
                        let value = stat.value();
                        let word = |at: usize| {
                            value
                                .get(at..at + 4)
                                .and_then(<[u8]>::first_chunk)
                                .map_or(0, |four| u32::from_ne_bytes(*four))
                        };
                        match stat.kind() {
                            TCA_STATS_BASIC => {
                                octets = value.first_chunk().map_or(0, |eight| u64::from_ne_bytes(*eight));
                                packets = word(8).into();
                            }
                            // TCA_STATS_PKT64 is the 64-bit packet count, which the kernel adds when the 32-bit count
                            // is too small.
                            TCA_STATS_PKT64 => {
                                packets = value.first_chunk().map_or(0, |eight| u64::from_ne_bytes(*eight));
                            }
                            // struct gnet_stats_queue: qlen, backlog, drops, requeues, overlimits.
                            TCA_STATS_QUEUE => dropped = word(8).into(),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        match (kind.strip_suffix(b"\0").unwrap_or(&kind), other) {
            (b"police", _) => counts.limited += dropped,
            (_, true) => counts.spoofed += packets,
            (_, false) => {
                counts.octets_in += octets;
                counts.packets_in += packets;
            }
        }
    }
}

/// Attributes of a PPP interface (linux/if_link.h).
const IFLA_PPP_DEV_FD: u16 = 1;

impl Netlink {
    /// Creates the interface of an open /dev/ppp descriptor. It is down.
    pub(super) fn create_ppp_interface(
        &self,
        name: &str,
        descriptor: i32,
        mtu: u16,
        group: u32,
    ) -> io::Result<()> {
        let mut data = Vec::new();
        push_attribute(IFLA_PPP_DEV_FD, &descriptor.to_ne_bytes(), &mut data);
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Mtu(mtu.into()),
            LinkAttribute::Group(group),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Other("ppp".to_owned())),
                LinkInfo::Data(InfoData::Other(data)),
            ]),
        ];
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        self.send_request(flags, RouteNetlinkMessage::NewLink(message)).map(drop)
    }
    /// Sets an interface up.
    pub(super) fn set_up(&self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.send_request(NLM_F_ACK, RouteNetlinkMessage::SetLink(message)).map(drop)
    }
    pub(super) fn set_mtu_and_group(&self, index: u32, mtu: u16, group: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = vec![LinkAttribute::Mtu(mtu.into()), LinkAttribute::Group(group)];
        self.send_request(NLM_F_ACK, RouteNetlinkMessage::SetLink(message)).map(drop)
    }
    /// Returns the octets and packets that an interface has sent.
    pub(super) fn transmit_stats(&self, index: u32) -> io::Result<(u64, u64)> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let stats = self.get_link(message)?.attributes.into_iter().find_map(|one| match one {
            LinkAttribute::Stats64(stats) => Some((stats.tx_bytes, stats.tx_packets)),
            _ => None,
        });
        Ok(stats.unwrap_or_default())
    }
    /// Removes all interfaces of a group.
    pub(super) fn remove_group(&self, group: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::Group(group)];
        self.send_request(NLM_F_ACK, RouteNetlinkMessage::DelLink(message)).map(drop)
    }
}

impl TcInterfaceCounters {
    pub(super) const fn sum_with(self, other: Self) -> Self {
        Self {
            octets_in: self.octets_in + other.octets_in,
            packets_in: self.packets_in + other.packets_in,
            spoofed: self.spoofed + other.spoofed,
            limited: self.limited + other.limited,
        }
    }
}
