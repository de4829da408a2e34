//! Hosts, links and background traffic.

use super::{OneOrMore, TimeLaw};
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
use usher_core::impair::{self, ChannelConfig, QueueLimit, TimedStates};
use usher_sim::radio::motion::{Position, Trajectory};

/// A host, or a group of like hosts.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostSettings {
    /// How many there are.
    #[serde(default = "one")]
    pub count: PositiveCount,
    /// Its processor. Without one, work takes no time.
    pub cpu: Option<CpuSettings>,
    /// A processor whose work takes what a profile says, which `usher load --calibrate` wrote: the name of its file, from this
    /// file's folder, or a table with that as `profile`. In place of `cpu`.
    #[serde(default)]
    #[schemars(schema_with = "crate::processors::schema")]
    // For the schema only: `crate::processors` replaces it with `cpu` before this is read, so it is always `None`.
    pub processor: Option<ConfigValue>,
    /// Where it is, or starts: x and y.
    #[serde(default)]
    pub position: [Coordinate; 2],
    /// How fast it moves along x and y, in a straight line.
    #[serde(default)]
    pub velocity: [Speed; 2],
    /// Simulated time at which it begins to move.
    #[serde(default)]
    pub departs: TimeSpan,
    /// Each member of the group starts up to so far ahead along its way, drawn uniformly, so that they differ.
    #[serde(default)]
    pub spread: Length,
    /// It is no host but an interface of this one: one more address of it, for links, cells and BSSs of its own. Of a
    /// group, every member has one. It moves with its host.
    pub interface_of: Option<String>,
    /// Its address; each further member of the group has the one after. Without it hosts have addresses of 10.0.0.0/8 (IPv6:
    /// fd00::/64) in the order of the file. Configurations of services know other hosts by their addresses.
    pub address: Option<IpAddr>,
    /// The service that it runs, or several, each as it is deployed.
    #[serde(default)]
    #[schemars(schema_with = "crate::services::runs_schema")]
    pub runs: OneOrMore,
    /// The configuration of that service: the name of its file, from this file's folder, or the same keys as a table. Of
    /// several services a table with one for each, by the service's name.
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
    /// The way of a member; `share` is how far ahead it starts within `spread`, from 0 to 1.
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

/// A processor: messages wait for a free core and keep it for their service time.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuSettings {
    /// How many cores serve at the same time.
    #[serde(default = "one")]
    pub cores: PositiveCount,
    /// Service time of one unit by kind of work (`"radius.request" = "50 us"`), the same always or drawn anew each
    /// time; what is not named takes no time.
    #[serde(default)]
    #[schemars(transform = crate::work::schema)]
    pub service: OrderedMap<TimeLaw>,
    /// What the processor itself does for one unit of work whose time in `service` passes aside, while it does other things:
    /// of looking a user up (`"store.lookup" = "30 us"`), to ask and to take the answer in.
    #[serde(default)]
    #[schemars(transform = crate::work::schema)]
    pub aside: OrderedMap<TimeLaw>,
    /// Once for what finds a core idle: to wake up.
    #[serde(default)]
    pub wakeup: TimeSpan,
    /// Once for all that wait when what was taken in before is done, at most 64: to take them in. So a message costs less the
    /// more there are.
    #[serde(default)]
    pub batch: TimeSpan,
}

/// A link between two hosts. Between groups it stands for one link per member of the larger group: member i
/// of it is linked with member i modulo m of the smaller one, of m members.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSettings {
    /// The two hosts. From the first to the second is up, the other way is down.
    pub between: [String; 2],
    /// Whether it is there: one that is not stands in a study for what a mode, an axis or a choice takes it for.
    #[serde(default = "super::yes")]
    pub used: bool,
    /// Bit rate, the same in both directions and independent.
    #[serde(default)]
    pub rate: Bound<BitRate>,
    /// Propagation delay.
    #[serde(default)]
    pub delay: TimeSpan,
    /// What may wait for each direction; beyond it, the packet that comes last is dropped.
    #[serde(default)]
    pub queue: QueueCapacity,
    /// The largest IP packet; UDP datagrams beyond it are fragmented.
    #[serde(default = "mtu")]
    pub mtu: ByteSize,
    /// What surrounds an IP packet on this link.
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
    /// Share of packets that are held back by `reorder_delay`, so that later ones pass them.
    #[serde(default)]
    pub reorder: Percentage,
    /// How long a reordered packet is held back.
    #[serde(default = "reorder_delay")]
    pub reorder_delay: TimeSpan,
    /// Share of packets that arrive damaged, which a checksum finds.
    #[serde(default)]
    pub corrupt: Percentage,
    /// Simulated time from which packets are lost, duplicated, reordered and damaged.
    #[serde(default)]
    pub impaired_from: TimeSpan,
    /// What differs from the first to the second host.
    #[serde(default)]
    pub up: LinkSide,
    /// What differs from the second to the first host.
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

/// What differs in one direction of a link; what is not given is the link's.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSide {
    /// Bit rate.
    pub rate: Option<Bound<BitRate>>,
    /// Propagation delay.
    pub delay: Option<TimeSpan>,
    /// What may wait.
    pub queue: Option<QueueCapacity>,
    /// Loss of packets.
    pub loss: Option<LinkLoss>,
    /// Added delay, uniform from zero to this.
    pub jitter: Option<TimeSpan>,
    /// Share of packets that arrive twice.
    pub duplicate: Option<Percentage>,
    /// Share of packets that are held back.
    pub reorder: Option<Percentage>,
    /// How long a reordered packet is held back.
    pub reorder_delay: Option<TimeSpan>,
    /// Share of packets that arrive damaged.
    pub corrupt: Option<Percentage>,
    /// Simulated time from which packets are lost, duplicated, reordered and damaged.
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

/// What surrounds an IP packet on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FramingKind {
    /// Nothing: only IP packets are counted.
    #[default]
    None,
    /// Ethernet's header and frame check sequence, 18 B.
    Ethernet,
    /// The same with PPPoE's header and PPP's protocol field within (RFC 2516), 26 B. An access link of the workload `pppoe` has
    /// it by itself.
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

/// How packets are lost.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(tag = "kind", transform = usher_config::with_literal::<Percentage>)]
pub enum LinkLoss {
    /// This share of packets, each independently, written as a plain percentage.
    #[serde(rename = "literal")]
    #[schemars(skip)]
    Independent(Percentage),
    /// In bursts of time: a good and a bad state whose durations are exponential (Gilbert, Elliott).
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
    /// In bursts of packets: a chain with a good and a bad state that steps once a packet (Gilbert, Elliott). On a quiet link a
    /// burst outlasts every retransmission.
    GilbertElliott {
        /// Chance of going from the good state to the bad one, per packet.
        to_bad: Percentage,
        /// Chance of going from the bad state to the good one, per packet.
        to_good: Percentage,
        /// Share lost in the good state.
        #[serde(default)]
        good: Percentage,
        /// Share lost in the bad state.
        bad: Percentage,
    },
    /// In bursts that take every packet: one state loses nothing, the other all.
    Burst {
        /// Share that is lost in the long run; of bursts of packets at most mean / (mean + 1).
        loss: Percentage,
        /// Mean length of a burst: a time, such as `"20 ms"`, or a number of packets, with which a burst lasts on a quiet link
        /// until so many have come.
        mean: BurstLength,
    },
    /// Exactly these packets of each direction.
    Script {
        /// The packets' ordinals in their direction, from 0, ascending.
        packets: Vec<u64>,
    },
}

/// How long a burst is on average.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum BurstLength {
    /// So long a time.
    Time(TimeSpan),
    /// So many packets.
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
                impair::LossModel::TimedGilbertElliott(TimedStates {
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
            // The good state lasts long enough to make up the rest of the time.
            Self::Burst { loss, mean: BurstLength::Time(mean) } => {
                impair::LossModel::TimedGilbertElliott(TimedStates {
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

/// A time in which hosts are out of order, as after a loss of power: they neither send nor receive, and their
/// connections are gone. When they are back, an AAA server begins anew, with no memory of what was.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutageSettings {
    /// The host, or group of hosts.
    pub host: String,
    /// Simulated time at which it fails.
    pub from: TimeSpan,
    /// Simulated time at which it is back.
    pub until: TimeSpan,
}

/// Traffic that shares the links with what is counted: UDP datagrams one way, unanswered.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackgroundTraffic {
    /// The host that sends; every member of a group does.
    pub from: String,
    /// The host that receives; member i of the senders sends to member i modulo m.
    pub to: String,
    /// When the packets go.
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
    /// Simulated time after which none is sent; without it, until the run ends.
    pub stop: Option<TimeSpan>,
}

const fn packet() -> ByteSize {
    ByteSize::from_bytes(1000)
}

/// When background packets go.
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
            impair::LossModel::TimedGilbertElliott(TimedStates { good_time, bad_time, good: 0.0, bad: 1.0 })
        );
        assert!((states.mean_loss() - 0.05).abs() < 1e-12);
        // With a loss of 100 %, there is no good state.
        assert_eq!(burst_loss("loss = '100 %'\nmean = '20 ms'").mean_loss(), 1.0);
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
        assert!((chain.mean_loss() - 0.05).abs() < 1e-15);
        let whole = burst_loss("loss = '60 %'\nmean = 1.5");
        assert!((whole.mean_loss() - 0.6).abs() < 1e-12, "{whole:?}");
        assert_eq!(burst_loss("loss = '0 %'\nmean = 4"), impair::LossModel::None);
    }
}
