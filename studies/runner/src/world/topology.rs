//! Hosts and links of a scenario in the simulator.

use super::error::ScenarioRunError;
use super::role::HostRole;
use std::collections::BTreeMap;
use usher_core::Seed;
use usher_scenario::model::{self, ChannelDirection, Scenario};
use usher_scenario::work;
use usher_sim::radio::motion::Trajectory;
use usher_sim::{
    BatchReceiveCost, CellId, CpuConfig, HostId, IpVersion, LinkConfig, LinkFraming, LinkId, ServiceTime,
    SimulationBuilder,
};

/// Deliveries that may wait for a processor: a kernel's default receive buffer (212,992 B) holds about this number of
/// AAA packets.
const CPU_QUEUE: usize = 1000;

/// The hosts and links of a run by their names in the study.
#[derive(Debug, Default)]
pub(super) struct NetworkTopology {
    pub(super) hosts: BTreeMap<String, Vec<HostId>>,
    /// In the study's order, links before cells and BSSs: name and links.
    pub(super) links: Vec<(String, Vec<LinkId>)>,
    /// In the study's order: name and cells.
    pub(super) cells: Vec<(String, Vec<CellId>)>,
    /// For each link group, true if its packets have an Ethernet header.
    pub(super) ethernet: Vec<bool>,
}

impl NetworkTopology {
    /// Returns the members of a host group.
    pub(super) fn host_group(&self, name: &str) -> Result<&[HostId], ScenarioRunError> {
        self.hosts.get(name).map(Vec::as_slice).ok_or_else(|| ScenarioRunError::NoHost(name.to_owned()))
    }

    pub(super) fn from_scenario(
        scenario: &Scenario,
        seed: Seed,
        builder: &mut SimulationBuilder<Box<dyn HostRole>>,
    ) -> Result<Self, ScenarioRunError> {
        let mut topology = Self::default();
        topology.build_hosts(scenario, seed, builder)?;
        // Build cells first: each is then its stations' first port, which their frames use.
        let mut of_cells = topology.build_cells(scenario, builder)?;
        of_cells.extend(topology.build_bss(scenario, builder)?);
        for (name, link) in scenario.links.iter() {
            let config = LinkConfig {
                up: link.channel_config(ChannelDirection::Up),
                down: link.channel_config(ChannelDirection::Down),
                mtu: link.mtu.bytes() as u32,
                framing: match link.framing {
                    _ if carries_pppoe_sessions(scenario, &link.between) => LinkFraming::Pppoe,
                    model::FramingKind::Pppoe => LinkFraming::Pppoe,
                    model::FramingKind::None if !joins_stations_to_nas(scenario, &link.between) => {
                        LinkFraming::None
                    }
                    _ => LinkFraming::Ethernet,
                },
            };
            let [a, b] = &link.between;
            let (a, b) = (topology.host_group(a)?, topology.host_group(b)?);
            let links = (0..a.len().max(b.len()))
                .map(|i| builder.add_link(a[i % a.len()], b[i % b.len()], &config))
                .collect();
            topology.links.push((name.to_owned(), links));
            topology.ethernet.push(config.framing != LinkFraming::None);
        }
        for (name, links) in of_cells {
            topology.links.push((name, links));
            topology.ethernet.push(true);
        }
        Ok(topology)
    }

    /// Builds the hosts, then their interfaces, with their positions.
    fn build_hosts(
        &mut self,
        scenario: &Scenario,
        seed: Seed,
        builder: &mut SimulationBuilder<Box<dyn HostRole>>,
    ) -> Result<(), ScenarioRunError> {
        let mut ways = BTreeMap::new();
        for (i, (name, host)) in
            scenario.hosts.iter().enumerate().filter(|(_, (_, h))| h.interface_of.is_none())
        {
            let mut rng = seed.derive_rng("place", i as u64);
            let mut members = Vec::new();
            for member in 0..host.count.get() {
                let id = builder.add_host(host.cpu.as_ref().map(cpu_config))?;
                if let Some(address) = host.address_of(member) {
                    builder.set_address(id, address)?;
                }
                let way = host.trajectory(rng.sample_unit());
                if way != Trajectory::default() {
                    builder.set_host_trajectory(id, way);
                    ways.insert(id, way);
                }
                members.push(id);
            }
            self.hosts.insert(name.to_owned(), members);
        }
        for (name, host) in scenario.hosts.iter() {
            let Some(owner) = &host.interface_of else { continue };
            let mut members = Vec::new();
            for (member, owner) in (0..).zip(self.host_group(owner)?) {
                let id = builder.add_interface(*owner)?;
                if let Some(address) = host.address_of(member) {
                    builder.set_address(id, address)?;
                }
                builder.set_host_trajectory(id, ways.get(owner).copied().unwrap_or_default());
                members.push(id);
            }
            self.hosts.insert(name.to_owned(), members);
        }
        Ok(())
    }

    fn build_bss(
        &self,
        scenario: &Scenario,
        builder: &mut SimulationBuilder<Box<dyn HostRole>>,
    ) -> Result<Vec<(String, Vec<LinkId>)>, ScenarioRunError> {
        let mut of_bss = Vec::new();
        for (name, bss) in scenario.bss_in_use() {
            let points = self.host_group(&bss.access_point)?;
            let stations = self.host_group(&bss.stations)?;
            let mut links = Vec::new();
            for (i, &point) in points.iter().enumerate() {
                let members: Vec<HostId> = stations.iter().copied().skip(i).step_by(points.len()).collect();
                let own =
                    builder.add_wifi_bss(point, &members, &bss.wifi_config(), bss.mtu.bytes() as u32)?.1;
                if carries_pppoe_sessions(scenario, &[bss.access_point.clone(), bss.stations.clone()]) {
                    own.iter().for_each(|link| builder.set_pppoe_framing(*link));
                }
                links.extend(own);
            }
            of_bss.push((name.to_owned(), links));
        }
        Ok(of_bss)
    }

    fn build_cells(
        &mut self,
        scenario: &Scenario,
        builder: &mut SimulationBuilder<Box<dyn HostRole>>,
    ) -> Result<Vec<(String, Vec<LinkId>)>, ScenarioRunError> {
        let mut of_cells = Vec::new();
        for (name, cell) in scenario.cells_in_use() {
            let bases = self.host_group(&cell.base_station)?;
            let stations = self.host_group(&cell.stations)?;
            let (mut cells, mut links) = (Vec::new(), Vec::new());
            for (i, &base) in bases.iter().enumerate() {
                let members: Vec<HostId> = stations.iter().copied().skip(i).step_by(bases.len()).collect();
                let (id, own) =
                    builder.add_wimax_cell(base, &members, &cell.wimax_config(), cell.mtu.bytes() as u32)?;
                cells.push(id);
                links.extend(own);
            }
            self.cells.push((name.to_owned(), cells));
            of_cells.push((name.to_owned(), links));
        }
        Ok(of_cells)
    }
}

/// True if a link joins stations with their NAS: it carries whole frames with headers.
fn joins_stations_to_nas(scenario: &Scenario, [a, b]: &[String; 2]) -> bool {
    scenario.eap_workloads().any(|(_, e)| [(a, b), (b, a)].contains(&(&e.stations, &e.nas)))
}

/// True if packets on a link between these hosts are within PPPoE.
fn carries_pppoe_sessions(scenario: &Scenario, [a, b]: &[String; 2]) -> bool {
    scenario.pppoe_workloads().any(|(_, of)| [(a, b), (b, a)].contains(&(&of.stations, &of.concentrator)))
}

/// Converts a study's processor to the simulator's.
pub fn cpu_config(cpu: &model::CpuSettings) -> CpuConfig {
    let time = |law: &model::TimeDistribution| match law {
        model::TimeDistribution::Constant(time) => ServiceTime::Constant(time.get()),
        model::TimeDistribution::Exponential { mean } => ServiceTime::Exponential(mean.get()),
        model::TimeDistribution::Uniform { low, high } => ServiceTime::Uniform(low.get(), high.get()),
    };
    CpuConfig {
        cores: cpu.cores.get(),
        queue: CPU_QUEUE,
        // Workers do the work listed in `aside`, so the processor is charged the cost given there, not the one in
        // `service`.
        service: cpu
            .aside
            .iter()
            .chain(cpu.service.iter().filter(|(name, _)| cpu.aside.get(name).is_none()))
            .filter_map(|(name, law)| Some((work::find_work_label(name)?, time(law))))
            .collect(),
        intake: BatchReceiveCost {
            wakeup: cpu.wakeup.get(),
            batch: cpu.batch.get(),
            ..BatchReceiveCost::default()
        },
    }
}

/// Converts a study's TCP settings to the simulator's, for this smallest MTU in bytes.
pub fn tcp_config(tcp: &model::TcpSettings, version: IpVersion, mtu: u32) -> usher_sim::tcp::TcpConfig {
    use usher_scenario::units::{InitialWindow, Switch};
    use usher_sim::tcp::{
        AckThreshold, AckTimer, BackoffReset, CongestionControl, DelayedAck, IdleRestart,
        InitialWindow as Window, LossHalves, LossRecovery, LossRecoveryAlgorithm, NagleVariant,
        ReceiveWindowUpdateRule, RtoRestart, TcpConfig, TcpStackVariants, TimestampEcho, WindowGrowth,
        WindowUnit,
    };
    let segments = tcp.delayed_ack_segments.get().min(255) as u8;
    let room = mtu.saturating_sub(version.header_len() + 20);
    TcpConfig {
        mss: tcp.mss.map_or(room, |s| s.bytes() as u32).min(u32::from(u16::MAX)) as u16,
        recovery: match tcp.congestion {
            model::CongestionRecovery::Reno => LossRecoveryAlgorithm::Reno,
            model::CongestionRecovery::NewReno => LossRecoveryAlgorithm::NewReno,
            model::CongestionRecovery::Sack => LossRecoveryAlgorithm::Sack,
        },
        congestion: match tcp.control {
            model::TcpCongestionControl::Reno => CongestionControl::Reno,
            model::TcpCongestionControl::Cubic => CongestionControl::Cubic,
            model::TcpCongestionControl::Bbr => CongestionControl::Bbr,
        },
        window_unit: match tcp.window_unit {
            model::WindowUnit::Bytes => WindowUnit::Bytes,
            model::WindowUnit::Segments => WindowUnit::Segments,
        },
        window_growth: match tcp.window_growth {
            model::WindowGrowth::Bytes => WindowGrowth::Bytes,
            model::WindowGrowth::Acknowledgements => WindowGrowth::Acknowledgements,
        },
        loss_halves: match tcp.loss_halves {
            model::LossHalves::Flight => LossHalves::Flight,
            model::LossHalves::Window => LossHalves::Window,
        },
        idle_restart: match tcp.idle_restart {
            model::IdleRestart::Rto => IdleRestart::Rto,
            model::IdleRestart::MeasuredRto => IdleRestart::MeasuredRto,
            model::IdleRestart::Never => IdleRestart::default(),
        },
        restart_after_idle: tcp.idle_restart != model::IdleRestart::Never,
        syn_loss_shrinks: tcp.syn_loss_shrinks,
        // RFC 9293 §3.7.1.
        default_peer_mss: match version {
            IpVersion::V4 => 536,
            IpVersion::V6 => 1220,
        },
        initial_window: match tcp.initial_window {
            InitialWindow::Rfc3390 => Window::Rfc3390,
            InitialWindow::Rfc6928 => Window::Rfc6928,
            InitialWindow::Segments(n) => Window::Segments(n),
        },
        limited_transmit: tcp.limited_transmit,
        nagle: tcp.nagle,
        nagle_variant: match tcp.nagle_variant {
            model::NagleVariant::Rfc896 => NagleVariant::Rfc896,
            model::NagleVariant::Bsd => NagleVariant::Bsd,
            model::NagleVariant::Minshall => NagleVariant::Minshall,
        },
        silly_window_avoidance: tcp.silly_window_avoidance,
        deliver_first: tcp.deliver_first,
        delayed_ack: match tcp.delayed_ack {
            Switch::Off => None,
            Switch::On(timeout) => Some(DelayedAck {
                timeout: timeout.get(),
                every: match tcp.delayed_ack_counts {
                    model::DelayedAckCounting::FullSegments => AckThreshold::FullSized(segments),
                    model::DelayedAckCounting::Segments => AckThreshold::Segments(segments),
                    model::DelayedAckCounting::LargestSegment => AckThreshold::LargestSeen(segments),
                },
            }),
        },
        ack_timer: match tcp.delayed_ack_timer {
            model::AckTimer::FromArrival => AckTimer::FromArrival,
            model::AckTimer::Tick => AckTimer::Tick,
        },
        delayed_ack_max: match tcp.delayed_ack_max {
            Switch::Off => None,
            Switch::On(most) => Some(most.get()),
        },
        quick_ack: tcp.quick_ack,
        ack_on_read: tcp.ack_on_read,
        initial_rto: tcp.rto_initial.get(),
        min_rto: tcp.rto_min.get(),
        granularity: match tcp.rto_min_bounds {
            model::RtoMinBounds::Timeout => TcpConfig::default().granularity,
            model::RtoMinBounds::Variance => tcp.rto_min.get(),
        },
        max_rto: tcp.rto_max.get(),
        loss_recovery: match tcp.loss_recovery {
            model::TcpLossRecovery::Rfc5681 => LossRecovery::Rfc5681,
            model::TcpLossRecovery::Ns2 => LossRecovery::Ns2,
            model::TcpLossRecovery::Ns3 => LossRecovery::Ns3,
        },
        backoff_reset: match tcp.backoff_reset {
            model::BackoffReset::Measurement => BackoffReset::Measurement,
            model::BackoffReset::Acknowledgement => BackoffReset::Acknowledgement,
            model::BackoffReset::EitherAcknowledgement => BackoffReset::EitherAcknowledgement,
        },
        rto_restart: match tcp.rto_restart {
            model::RtoRestart::NewTimeout => RtoRestart::NewTimeout,
            model::RtoRestart::OldTimeout => RtoRestart::OldTimeout,
        },
        advancing_duplicates: tcp.advancing_duplicates,
        variants: TcpStackVariants {
            duplicate_sack: tcp.duplicate_sack,
            window_update: match tcp.loss_recovery {
                model::TcpLossRecovery::Rfc5681 | model::TcpLossRecovery::Ns3 => {
                    ReceiveWindowUpdateRule::Rfc9293
                }
                model::TcpLossRecovery::Ns2 => ReceiveWindowUpdateRule::Ns2,
            },
            ..TcpStackVariants::default()
        },
        rack: tcp.rack,
        tail_loss_probe: tcp.tail_loss_probe,
        retransmit_collapse: tcp.retransmit_collapse,
        rate_reduction: tcp.rate_reduction,
        fast_retransmit_restarts: tcp.fast_retransmit_restarts,
        rtt_tick: tcp.rtt_tick.get(),
        timer_tick: tcp.timer_tick.get(),
        reno_recover: tcp.reno_recover,
        max_retransmissions: tcp.retransmissions.get(),
        max_syn_retransmissions: tcp.syn_retransmissions.get(),
        receive_buffer: tcp.receive_buffer.bytes() as u32,
        receive_buffer_max: tcp.receive_buffer_max.get().map(|most| most.bytes() as u32),
        window_scale: tcp.window_scale.then(|| {
            // As Linux does where the window announces half of the buffer, derive the shift from twice the configured
            // maximum.
            let most = tcp.receive_buffer_max.get().map_or(0, |most| 2 * most.bytes());
            window_shift(tcp.receive_buffer.bytes().max(most))
        }),
        timestamps: tcp.timestamps,
        timestamp_echo: match tcp.timestamp_echo {
            model::TimestampEcho::Rfc7323 => TimestampEcho::Rfc7323,
            model::TimestampEcho::PureAcknowledgements => TimestampEcho::PureAcknowledgements,
        },
        ..TcpConfig::default()
    }
}

/// Converts a study's SCTP settings to the simulator's.
pub fn sctp_config(sctp: &model::SctpSettings, version: IpVersion, mtu: u32) -> usher_sim::sctp::SctpConfig {
    use usher_sim::sctp::{InitialWindow, LossRecovery, SctpConfig};
    let room = mtu.saturating_sub(version.header_len());
    SctpConfig {
        rto_initial: sctp.rto_initial.get(),
        rto_min: sctp.rto_min.get(),
        rto_max: sctp.rto_max.get(),
        sack_delay: sctp.sack_delay.get().map(|t| t.get()),
        sack_frequency: sctp.sack_frequency.get(),
        first_sack_at_once: sctp.first_sack_at_once,
        measure_behind_retransmission: sctp.measure_behind_retransmission,
        one_packet_after_timeout: sctp.one_packet_after_timeout,
        cumulative_growth: sctp.cumulative_growth,
        filled_gap_at_once: sctp.filled_gap_at_once,
        duplicate_resets_delay: sctp.duplicate_resets_delay,
        headers_in_window: sctp.headers_in_window,
        deliver_first: sctp.deliver_first,
        loss_recovery: match sctp.loss_recovery {
            model::LossRecovery::Rfc9260 => LossRecovery::Rfc9260,
            model::LossRecovery::Ns2 => LossRecovery::Ns2,
        },
        bundle_sacks: sctp.bundle_sacks,
        initial_window: sctp
            .initial_window
            .map_or(InitialWindow::Bytes(sctp.initial_window_bytes.bytes() as u32), |n| {
                InitialWindow::Packets(n.get())
            }),
        nagle: sctp.nagle,
        accepted_streams: sctp.accepted_streams.map(|n| n.get().min(u32::from(u16::MAX)) as u16),
        max_inbound_streams: u16::MAX,
        max_packet: sctp.packet.map_or(room, |s| s.bytes() as u32),
        max_burst: sctp.max_burst.get(),
        max_association_retransmissions: sctp.retransmissions.get(),
        max_path_retransmissions: sctp.path_retransmissions,
        max_init_retransmissions: sctp.init_retransmissions.get(),
        heartbeat_interval: sctp.heartbeat.get().map(|t| t.get()),
        receive_buffer: sctp.receive_buffer.bytes() as u32,
        ..SctpConfig::default()
    }
}

/// Returns the smallest shift with which the 16-bit window can announce the whole buffer (RFC 7323 §2.2).
fn window_shift(buffer: u64) -> u8 {
    (0..14).find(|shift| buffer >> shift <= 65_535).unwrap_or(14)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_recovery_are_set_apart() {
        use usher_sim::tcp::{CongestionControl, LossRecoveryAlgorithm};
        let tcp = model::TcpSettings {
            congestion: model::CongestionRecovery::Sack,
            control: model::TcpCongestionControl::Cubic,
            ..Default::default()
        };
        let config = tcp_config(&tcp, IpVersion::V4, 1500);
        assert_eq!(
            (config.recovery, config.congestion),
            (LossRecoveryAlgorithm::Sack, CongestionControl::Cubic)
        );
        let config = tcp_config(&model::TcpSettings::default(), IpVersion::V4, 1500);
        assert_eq!(
            (config.recovery, config.congestion),
            (LossRecoveryAlgorithm::NewReno, CongestionControl::Reno)
        );
    }

    #[test]
    fn delayed_acknowledgements_count_full_segments_unless_told() {
        use usher_sim::tcp::AckThreshold;
        let every = |counts| {
            let tcp = model::TcpSettings { delayed_ack_counts: counts, ..Default::default() };
            tcp_config(&tcp, IpVersion::V4, 1500).delayed_ack.map(|d| d.every)
        };
        assert_eq!(every(model::DelayedAckCounting::default()), Some(AckThreshold::FullSized(2)));
        assert_eq!(every(model::DelayedAckCounting::Segments), Some(AckThreshold::Segments(2)));
        assert_eq!(every(model::DelayedAckCounting::LargestSegment), Some(AckThreshold::LargestSeen(2)));
    }

    #[test]
    fn the_default_peer_segment_size_follows_the_ip_version() {
        let size = |version| tcp_config(&model::TcpSettings::default(), version, 1500).default_peer_mss;
        assert_eq!([IpVersion::V4, IpVersion::V6].map(size), [536, 1220], "RFC 9293 section 3.7.1");
    }

    #[test]
    fn the_window_shift_covers_the_buffer() {
        assert_eq!([65_535, 65_536, 1 << 20, 1 << 40].map(window_shift), [0, 1, 5, 14]);
    }
}
