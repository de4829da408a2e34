//! Hosts, links and background traffic.

use super::{OneOrMore, TimeDistribution};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, IntoDeserializer, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use usher_config::units::{
    BitRate, Bound, ByteSize, Coordinate, Length, MeanLength, Percentage, PositiveCount, QueueCapacity,
    Speed, TimeSpan,
};
use usher_config::{ConfigValue, OrderedMap};
use usher_core::Instant;
use usher_core::impair::{self, ChannelConfig, ContinuousGilbertElliott, QueueLimit};
use usher_sim::radio::motion::{Position, Trajectory};

/// A host, or a group of like hosts.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostSettings {
    /// The number of hosts in the group.
    #[serde(default = "one")]
    pub count: PositiveCount,
    /// Its processor. Without one, work takes no time.
    pub cpu: Option<CpuSettings>,
    /// A processor with the costs of a profile, which `usher load --calibrate` writes. Either the profile's file,
    /// relative to this file's folder, or a table with it as `profile`. Replaces `cpu`.
    #[serde(default)]
    #[schemars(schema_with = "crate::processors::schema")]
    // For the schema only: `crate::processors` replaces it with `cpu` before this is read, so it is always `None`.
    pub processor: Option<ConfigValue>,
    /// Its position, or the start of its movement: x and y.
    #[serde(default)]
    pub position: [Coordinate; 2],
    /// Its velocity along x and y, in a straight line.
    #[serde(default)]
    pub velocity: [Speed; 2],
    /// Simulated time at which it begins to move.
    #[serde(default)]
    pub departs: TimeSpan,
    /// Each member of the group starts up to this far ahead on its path, drawn uniformly.
    #[serde(default)]
    pub spread: Length,
    /// Makes this an interface of another host: an additional address with its own links, cells and BSSs. Each member
    /// of a group has one. It moves with its host.
    pub interface_of: Option<String>,
    /// Its address; each further member of the group has the next one. Without it, hosts have addresses of 10.0.0.0/8
    /// (IPv6: fd00::/64) in the order of the file. Configurations of services name other hosts by their addresses.
    pub address: Option<IpAddr>,
    /// The service of the host, or several, each as deployed.
    #[serde(default)]
    #[schemars(schema_with = "crate::services::runs_schema")]
    pub runs: OneOrMore,
    /// The configuration of the service: its file, relative to this file's folder, or the same keys as a table. With
    /// several services, a table with one entry for each, by the service's name.
    #[serde(default)]
    #[schemars(schema_with = "crate::services::config_schema")]
    // For the schema only: `crate::services` removes it from the tree before this is read, so it is always `None`.
    pub config: Option<ConfigValue>,
}

impl HostSettings {
    /// The address of a member of the group, where the file gives it.
    pub fn address_of(&self, member: u32) -> Option<IpAddr> {
        Some(match self.address? {
            IpAddr::V4(first) => IpAddr::V4(first.to_bits().checked_add(member)?.into()),
            IpAddr::V6(first) => IpAddr::V6(first.to_bits().checked_add(member.into())?.into()),
        })
    }

    /// True when it moves, or will.
    pub fn is_mobile(&self) -> bool {
        self.velocity.iter().any(|v| v.metres_per_second() != 0.0)
    }
    /// The path of a member; `share` is how far ahead it starts within `spread`, from 0 to 1.
    pub fn trajectory(&self, share: f64) -> Trajectory {
        let [x, y] = self.position.map(Coordinate::metres);
        let [vx, vy] = self.velocity.map(Speed::metres_per_second);
        let speed = libm::sqrt(vx * vx + vy * vy);
        let ahead = if speed > 0.0 { self.spread.metres() * share / speed } else { 0.0 };
        Trajectory {
            start: Position { x: x + vx * ahead, y: y + vy * ahead },
            velocity: (vx, vy),
            departs: Instant::ZERO + self.departs.get(),
        }
    }
}

const fn one() -> PositiveCount {
    PositiveCount::ONE
}

/// A processor: messages wait for a free core and occupy it for their service time.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuSettings {
    /// The number of cores.
    #[serde(default = "one")]
    pub cores: PositiveCount,
    /// Service time of one unit by kind of work (`"radius.request" = "50 us"`), constant or drawn each time. Kinds that
    /// are not named take no time.
    #[serde(default)]
    #[schemars(transform = crate::work::schema)]
    pub service: OrderedMap<TimeDistribution>,
    /// Processor time of one unit of work whose time in `service` passes off the processor. For a lookup
    /// (`"store.lookup" = "30 us"`): to send the query and to read the result.
    #[serde(default)]
    #[schemars(transform = crate::work::schema)]
    pub aside: OrderedMap<TimeDistribution>,
    /// Time to wake up an idle core, once for the message that finds it idle.
    #[serde(default)]
    pub wakeup: TimeSpan,
    /// Time to receive a batch: all messages that wait when the previous batch is done, at most 64. So a message costs
    /// less under load.
    #[serde(default)]
    pub batch: TimeSpan,
}

/// A link between two hosts. Between groups, it stands for one link for each member of the larger group. Member i is
/// linked with member i modulo m of the smaller group, which has m members.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSettings {
    /// The two hosts. Up is from the first to the second, down is the opposite direction.
    pub between: [String; 2],
    /// Whether the link exists. A mode, an axis or a choice can switch it on or off.
    #[serde(default = "super::yes")]
    pub used: bool,
    /// Bit rate of each direction, independent of the other direction.
    #[serde(default)]
    pub rate: Bound<BitRate>,
    /// Propagation delay.
    #[serde(default)]
    pub delay: TimeSpan,
    /// The queue of each direction. It drops packets that arrive when it is full.
    #[serde(default)]
    pub queue: QueueCapacity,
    /// The largest IP packet; larger UDP datagrams are fragmented.
    #[serde(default = "mtu")]
    pub mtu: ByteSize,
    /// The frame around an IP packet on this link.
    #[serde(default)]
    pub framing: FramingKind,
    /// Loss of packets, each direction on its own.
    #[serde(default)]
    pub loss: LinkLoss,
    /// Added delay, uniform from zero to this. Packets keep their order.
    #[serde(default)]
    pub jitter: TimeSpan,
    /// Share of packets that arrive twice.
    #[serde(default)]
    pub duplicate: Percentage,
    /// Share of packets delayed by `reorder_delay`, so that later ones overtake them.
    #[serde(default)]
    pub reorder: Percentage,
    /// The additional delay of a reordered packet.
    #[serde(default = "reorder_delay")]
    pub reorder_delay: TimeSpan,
    /// Share of packets that arrive corrupted, which a checksum detects.
    #[serde(default)]
    pub corrupt: Percentage,
    /// Simulated time from which packets are lost, duplicated, reordered and corrupted.
    #[serde(default)]
    pub impaired_from: TimeSpan,
    /// Settings that differ from the first to the second host.
    #[serde(default)]
    pub up: LinkSide,
    /// Settings that differ from the second to the first host.
    #[serde(default)]
    pub down: LinkSide,
}

const fn mtu() -> ByteSize {
    ByteSize::from_bytes(1500)
}
const fn reorder_delay() -> TimeSpan {
    TimeSpan::from_millis(1)
}

/// One of a link's two directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelDirection {
    /// From the first host to the second.
    Up,
    /// From the second to the first.
    Down,
}

/// Different settings of one direction of a link. The others are the link's.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSide {
    /// Bit rate.
    pub rate: Option<Bound<BitRate>>,
    /// Propagation delay.
    pub delay: Option<TimeSpan>,
    /// The queue.
    pub queue: Option<QueueCapacity>,
    /// Loss of packets.
    pub loss: Option<LinkLoss>,
    /// Added delay, uniform from zero to this.
    pub jitter: Option<TimeSpan>,
    /// Share of packets that arrive twice.
    pub duplicate: Option<Percentage>,
    /// Share of reordered packets.
    pub reorder: Option<Percentage>,
    /// The additional delay of a reordered packet.
    pub reorder_delay: Option<TimeSpan>,
    /// Share of packets that arrive corrupted.
    pub corrupt: Option<Percentage>,
    /// Simulated time from which packets are lost, duplicated, reordered and corrupted.
    pub impaired_from: Option<TimeSpan>,
}

impl LinkSettings {
    /// One direction's channel, with what differs there in place.
    pub fn channel_config(&self, direction: ChannelDirection) -> ChannelConfig {
        let side = match direction {
            ChannelDirection::Up => &self.up,
            ChannelDirection::Down => &self.down,
        };
        ChannelConfig {
            rate: side.rate.unwrap_or(self.rate).get().map(BitRate::bits_per_second),
            delay: side.delay.unwrap_or(self.delay).get(),
            jitter: side.jitter.unwrap_or(self.jitter).get(),
            queue: match side.queue.unwrap_or(self.queue) {
                QueueCapacity::Unlimited => QueueLimit::Unlimited,
                QueueCapacity::Packets(n) => QueueLimit::Packets(n as usize),
                QueueCapacity::Bytes(n) => QueueLimit::Bytes(n),
            },
            loss: side.loss.as_ref().unwrap_or(&self.loss).channel_loss(),
            impaired_from: Instant::ZERO + side.impaired_from.unwrap_or(self.impaired_from).get(),
            duplicate: side.duplicate.unwrap_or(self.duplicate).get(),
            reorder: side.reorder.unwrap_or(self.reorder).get(),
            reorder_delay: side.reorder_delay.unwrap_or(self.reorder_delay).get(),
            corrupt: side.corrupt.unwrap_or(self.corrupt).get(),
        }
    }
}

/// The frame around an IP packet on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FramingKind {
    /// None: only IP packets count.
    #[default]
    None,
    /// Ethernet's header and frame check sequence, 18 B.
    Ethernet,
    /// Ethernet, with PPPoE's header and PPP's protocol field inside (RFC 2516), 26 B. Access links of the workload
    /// `pppoe` have it by default.
    Pppoe,
}

impl FramingKind {
    /// Bytes added to each packet.
    pub const fn overhead_bytes(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Ethernet => 18,
            Self::Pppoe => 26,
        }
    }
}

/// The loss of packets.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(tag = "kind", transform = usher_config::add_literal_alternative::<Percentage>)]
pub enum LinkLoss {
    /// This share of packets, each independently, written as a plain percentage.
    #[serde(rename = "literal")]
    #[schemars(skip)]
    Independent(Percentage),
    /// Bursts in time: a good and a bad state with exponential durations (Gilbert, Elliott).
    TimedGilbertElliott {
        /// Mean duration of the good state.
        good_time: TimeSpan,
        /// Mean duration of the bad state.
        bad_time: TimeSpan,
        /// Share lost in the good state.
        #[serde(default)]
        good: Percentage,
        /// Share lost in the bad state.
        bad: Percentage,
    },
    /// Bursts of packets: a good and a bad state, with one step for each packet (Gilbert, Elliott). On a quiet link a
    /// burst outlasts every retransmission.
    GilbertElliott {
        /// Probability of the step from the good state to the bad one, per packet.
        to_bad: Percentage,
        /// Probability of the step from the bad state to the good one, per packet.
        to_good: Percentage,
        /// Share lost in the good state.
        #[serde(default)]
        good: Percentage,
        /// Share lost in the bad state.
        bad: Percentage,
    },
    /// Bursts that take every packet: one state loses nothing, the other all.
    Burst {
        /// Share of lost packets in the long run; for bursts of packets at most mean / (mean + 1).
        loss: Percentage,
        /// Mean length of a burst: a time, such as `"20 ms"`, or a number of packets. On a quiet link, a burst of
        /// packets lasts until that many have arrived.
        mean: BurstLength,
    },
    /// Exactly these packets of each direction.
    Script {
        /// The packets' ordinals in their direction, from 0, ascending.
        packets: Vec<u64>,
    },
}

/// The mean length of a burst.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum BurstLength {
    /// A time.
    Time(TimeSpan),
    /// A number of packets.
    Packets(MeanLength),
}

impl<'de> Deserialize<'de> for BurstLength {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimeOrNumber;
        impl Visitor<'_> for TimeOrNumber {
            type Value = BurstLength;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time, such as \"20 ms\", or a number of packets")
            }
            fn visit_str<E: Error>(self, time: &str) -> Result<BurstLength, E> {
                TimeSpan::deserialize(time.into_deserializer()).map(BurstLength::Time)
            }
            fn visit_f64<E: Error>(self, packets: f64) -> Result<BurstLength, E> {
                MeanLength::deserialize(packets.into_deserializer()).map(BurstLength::Packets)
            }
            fn visit_i64<E: Error>(self, packets: i64) -> Result<BurstLength, E> {
                self.visit_f64(packets as f64)
            }
            fn visit_u64<E: Error>(self, packets: u64) -> Result<BurstLength, E> {
                self.visit_f64(packets as f64)
            }
        }
        deserializer.deserialize_any(TimeOrNumber)
    }
}

impl JsonSchema for BurstLength {
    fn schema_name() -> Cow<'static, str> {
        "BurstLength".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let either = [generator.subschema_for::<TimeSpan>(), generator.subschema_for::<MeanLength>()];
        json_schema!({ "anyOf": either, "description": "A time, or a number of packets." })
    }
}

impl Default for LinkLoss {
    fn default() -> Self {
        Self::Independent(Percentage::ZERO)
    }
}

impl LinkLoss {
    /// As a channel takes it.
    pub fn channel_loss(&self) -> impair::LossModel {
        match self {
            Self::Independent(share) if share.get() == 0.0 => impair::LossModel::None,
            Self::Independent(share) => impair::LossModel::Bernoulli(share.get()),
            Self::TimedGilbertElliott { good_time, bad_time, good, bad } => {
                impair::LossModel::TimedGilbertElliott(ContinuousGilbertElliott {
                    good_time: good_time.get(),
                    bad_time: bad_time.get(),
                    good: good.get(),
                    bad: bad.get(),
                })
            }
            Self::GilbertElliott { to_bad, to_good, good, bad } => impair::LossModel::GilbertElliott {
                to_bad: to_bad.get(),
                to_good: to_good.get(),
                good: good.get(),
                bad: bad.get(),
            },
            Self::Burst { loss, .. } if loss.get() == 0.0 => impair::LossModel::None,
            // The bad state lasts `mean` on average. The good state lasts long enough that the share of bad time equals
            // the loss.
            Self::Burst { loss, mean: BurstLength::Time(mean) } => {
                impair::LossModel::TimedGilbertElliott(ContinuousGilbertElliott {
                    good_time: mean.get().mul_f64((1.0 - loss.get()) / loss.get()),
                    bad_time: mean.get(),
                    good: 0.0,
                    bad: 1.0,
                })
            }
            Self::Burst { loss, mean: BurstLength::Packets(mean) } => {
                // A burst ends after `mean` packets on average.
                let to_good = 1.0 / mean.get();
                let to_bad = to_good * loss.get() / (1.0 - loss.get());
                impair::LossModel::GilbertElliott { to_bad: to_bad.min(1.0), to_good, good: 0.0, bad: 1.0 }
            }
            Self::Script { packets } => impair::LossModel::Script(packets.clone()),
        }
    }
}

/// An outage of hosts, like a loss of power: they neither send nor receive, and their connections are gone. After it,
/// an AAA server starts without any state.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutageSettings {
    /// The host, or group of hosts.
    pub host: String,
    /// Simulated time at which it fails.
    pub from: TimeSpan,
    /// Simulated time at which it works again.
    pub until: TimeSpan,
}

/// Traffic that shares the links with the workload: UDP datagrams in one direction, without replies.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackgroundTraffic {
    /// The sender; every member of a group sends.
    pub from: String,
    /// The receiver; member i of the senders sends to member i modulo the number of receivers.
    pub to: String,
    /// The arrival process of the packets.
    #[serde(default)]
    pub kind: BackgroundKind,
    /// Bit rate of each sender, IP headers included.
    pub rate: BitRate,
    /// Size of each IP packet, headers included.
    #[serde(default = "packet")]
    pub packet: ByteSize,
    /// Simulated time of the first packet.
    #[serde(default)]
    pub start: TimeSpan,
    /// Simulated time of the last possible packet; without it, until the run ends.
    pub stop: Option<TimeSpan>,
}

const fn packet() -> ByteSize {
    ByteSize::from_bytes(1000)
}

/// The arrival process of background packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BackgroundKind {
    /// At a constant bit rate.
    #[default]
    Cbr,
    /// At a constant bit rate on average: each gap is longer or shorter by up to half of it, drawn uniformly (ns-2's `random_ 1`).
    JitteredCbr,
    /// After exponentially distributed gaps.
    Poisson,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst_loss(text: &str) -> impair::LossModel {
        #[derive(Deserialize)]
        struct BurstLossTable {
            loss: String,
            mean: BurstLength,
        }
        let one: BurstLossTable = toml::from_str(text).unwrap();
        LinkLoss::Burst { loss: Percentage::parse(&one.loss).unwrap(), mean: one.mean }.channel_loss()
    }

    #[test]
    fn members_start_along_their_way() {
        let text =
            "position = ['-10 m', '5 m']\nvelocity = ['3 m/s', '4 m/s']\ndeparts = '5 s'\nspread = '2 m'";
        let host: HostSettings = toml::from_str(text).unwrap();
        let way = host.trajectory(0.5);
        assert_eq!((way.start, way.velocity), (Position { x: -9.4, y: 5.8 }, (3.0, 4.0)));
        let at = way.position_at(Instant::ZERO + TimeSpan::from_secs(6).get());
        assert!((at.x + 6.4).abs() < 1e-12 && (at.y - 9.8).abs() < 1e-12, "{at:?}");
    }

    #[test]
    fn a_burst_of_time_makes_up_its_share_of_it() {
        let states = burst_loss("loss = '5 %'\nmean = '20 ms'");
        let [good_time, bad_time] = [380, 20].map(usher_core::Duration::from_millis);
        assert_eq!(
            states,
            impair::LossModel::TimedGilbertElliott(ContinuousGilbertElliott {
                good_time,
                bad_time,
                good: 0.0,
                bad: 1.0
            })
        );
        assert!((states.mean_loss_ratio() - 0.05).abs() < 1e-12);
        // With a loss of 100 %, there is no good state.
        assert_eq!(burst_loss("loss = '100 %'\nmean = '20 ms'").mean_loss_ratio(), 1.0);
        assert_eq!(burst_loss("loss = '0 %'\nmean = '20 ms'"), impair::LossModel::None);
    }

    #[test]
    fn a_burst_is_the_chain_with_its_share_and_length() {
        let chain = burst_loss("loss = '5 %'\nmean = 4");
        let impair::LossModel::GilbertElliott { to_bad, to_good, good, bad } = chain else {
            panic!("{chain:?}")
        };
        // Of 80 packets, a burst takes 4 and 76 are good. One of these 76 precedes the bad state.
        assert_eq!((to_good, good, bad), (0.25, 0.0, 1.0));
        assert!((to_bad - 1.0 / 76.0).abs() < 1e-15);
        assert!((chain.mean_loss_ratio() - 0.05).abs() < 1e-15);
        let whole = burst_loss("loss = '60 %'\nmean = 1.5");
        assert!((whole.mean_loss_ratio() - 0.6).abs() < 1e-12, "{whole:?}");
        assert_eq!(burst_loss("loss = '0 %'\nmean = 4"), impair::LossModel::None);
    }
}
