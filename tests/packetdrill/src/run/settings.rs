//! The `sysctl`s of scripts, mapped to the simulator's settings.
//!
//! The defaults are FreeBSD's, on which the scripts were written.

use super::ScriptFailure;
use usher_core::Duration;
use usher_sim::tcp::{
    self, AckThreshold, DelayedAck, InitialWindow, LossRecoveryAlgorithm, ReceiveWindowUpdateRule,
    TcpStackVariants,
};

/// The system's settings.
#[derive(Clone, Debug)]
pub(super) struct SystemSettings {
    pub(super) ipv6: bool,
    pub(super) mtu: u32,
    timestamps: bool,
    window_scaling: bool,
    sack: bool,
    pub(super) blackhole: bool,
    pub(super) drop_synfin: bool,
    insecure_rst: bool,
    insecure_syn: bool,
    pub(super) active_ecn: bool,
    max_buffer: u64,
    pub(super) receive_space: u32,
    pub(super) send_space: u32,
    rexmit_initial: u64,
    rexmit_min: u64,
    rexmit_slop: u64,
    pub(super) keep_init: u64,
    delayed_ack: bool,
    delack_time: u64,
    msl: u64,
    default_mss: Option<u16>,
    initial_window: u32,
    rack: bool,
    tail_loss_probe: bool,
    limited_transmit: bool,
    /// The UDP port from which TCP is decapsulated. 0 for none.
    pub(super) tunneling_port: u16,
    /// The overhead of UDP encapsulation, in bytes of a segment.
    pub(super) tunneling_overhead: u16,
    /// True if ICMP errors may reset a connection that is opening.
    pub(super) icmp_may_rst: bool,
    /// True if sockets may open by Fast Open.
    pub(super) fast_open_client: bool,
    keep_idle: u64,
    keep_interval: u64,
    keep_count: u64,
}

impl SystemSettings {
    pub(super) fn new(ipv6: bool, mtu: u32) -> Self {
        Self {
            ipv6,
            mtu,
            timestamps: true,
            window_scaling: true,
            sack: true,
            blackhole: false,
            drop_synfin: false,
            insecure_rst: false,
            insecure_syn: false,
            active_ecn: false,
            max_buffer: 2_097_152,
            receive_space: 65_536,
            send_space: 32_768,
            rexmit_initial: 1000,
            rexmit_min: 30,
            rexmit_slop: 200,
            keep_init: 75_000,
            delayed_ack: true,
            delack_time: 40,
            msl: 30_000,
            default_mss: None,
            initial_window: 10,
            rack: false,
            tail_loss_probe: false,
            limited_transmit: true,
            tunneling_port: 0,
            tunneling_overhead: 8,
            icmp_may_rst: true,
            fast_open_client: true,
            keep_idle: 7_200_000,
            keep_interval: 75_000,
            keep_count: 8,
        }
    }

    /// Returns the system's default of a socket option, in the option's unit.
    pub(super) fn preset_option(&self, option: &str) -> Option<u64> {
        Some(match option {
            "TCP_KEEPINIT" => self.keep_init / 1000,
            "TCP_KEEPIDLE" => self.keep_idle / 1000,
            "TCP_KEEPINTVL" => self.keep_interval / 1000,
            "TCP_KEEPCNT" => self.keep_count,
            _ => return None,
        })
    }

    /// Applies `name=value` of a `sysctl`.
    pub(super) fn set_sysctl(&mut self, name: &str, value: &str) -> Result<(), ScriptFailure> {
        let unknown = || ScriptFailure::Unsupported(format!("sysctl {name}={value}"));
        let first = value.trim_matches('"').split_whitespace().next().unwrap_or("");
        let n: u64 = first.parse().map_err(|_| unknown())?;
        let on = n != 0;
        match name.trim() {
            "net.inet.tcp.rfc1323" => (self.timestamps, self.window_scaling) = (on, on),
            "net.ipv4.tcp_timestamps" => self.timestamps = on,
            "net.ipv4.tcp_window_scaling" => self.window_scaling = on,
            "net.inet.tcp.sack.enable" | "net.ipv4.tcp_sack" => self.sack = on,
            "net.ipv4.tcp_recovery" => self.rack = n & 1 != 0,
            "net.ipv4.tcp_early_retrans" => self.tail_loss_probe = matches!(n, 3 | 4),
            "net.inet.tcp.blackhole" => self.blackhole = on,
            "net.inet.tcp.drop_synfin" => self.drop_synfin = on,
            "net.inet.tcp.insecure_rst" => self.insecure_rst = on,
            "net.inet.tcp.insecure_syn" => self.insecure_syn = on,
            "net.inet.tcp.ecn.enable" => self.active_ecn = n == 1,
            "net.ipv4.tcp_ecn" => self.active_ecn = n == 1,
            "kern.ipc.maxsockbuf" => self.max_buffer = n,
            "net.inet.tcp.recvspace" => self.receive_space = n.min(1 << 30) as u32,
            "net.inet.tcp.sendspace" => self.send_space = n.min(1 << 30) as u32,
            "net.inet.tcp.rexmit_initial" => self.rexmit_initial = n,
            "net.inet.tcp.rexmit_min" => self.rexmit_min = n,
            "net.inet.tcp.rexmit_slop" => self.rexmit_slop = n,
            "net.inet.tcp.keepinit" => self.keep_init = n,
            "net.inet.tcp.delayed_ack" => self.delayed_ack = on,
            "net.inet.tcp.delacktime" => self.delack_time = n,
            "net.inet.tcp.msl" => self.msl = n,
            "net.inet.tcp.mssdflt" | "net.inet.tcp.v6mssdflt" => {
                self.default_mss = Some(n.try_into().map_err(|_| unknown())?);
            }
            "net.inet.tcp.initcwnd_segments" => self.initial_window = n.clamp(1, 1000) as u32,
            "net.inet.tcp.udp_tunneling_port" => self.tunneling_port = n.try_into().map_err(|_| unknown())?,
            "net.inet.tcp.udp_tunneling_overhead" => {
                self.tunneling_overhead = n.try_into().map_err(|_| unknown())?;
            }
            "net.inet.tcp.fastopen.client_enable" => self.fast_open_client = on,
            "net.inet.tcp.icmp_may_rst" => self.icmp_may_rst = on,
            "net.inet.tcp.keepidle" => self.keep_idle = n,
            "net.inet.tcp.keepintvl" => self.keep_interval = n,
            "net.inet.tcp.keepcnt" => self.keep_count = n,
            "net.inet.tcp.rfc3042" => self.limited_transmit = on,
            // The simulator has no host cache, and its listeners keep state for every SYN. The number of SYNs with
            // ECN does not matter, since none is sent.
            "net.inet.tcp.hostcache.purgenow" | "net.inet.tcp.syncookies" | "net.inet.tcp.ecn.maxretries" => {
            }
            // The simulator implements the value 0.
            "net.inet.tcp.syncookies_only"
            | "net.inet.tcp.rexmit_drop_options"
            | "net.inet.tcp.tolerate_missing_ts"
            | "net.inet.tcp.always_keepalive"
            | "net.inet.tcp.path_mtu_discovery"
            | "net.inet.tcp.tso"
            | "net.inet.tcp.recvbuf_auto"
            | "net.inet.tcp.sendbuf_auto"
                if !on => {}
            _ => return Err(unknown()),
        }
        Ok(())
    }

    /// The maximum payload without options.
    pub(super) fn mss(&self) -> u16 {
        self.mss_of(self.mtu)
    }
    /// The same for packets of at most `mtu` bytes.
    pub(super) fn mss_of(&self, mtu: u32) -> u16 {
        let headers = if self.ipv6 { 60 } else { 40 };
        mtu.saturating_sub(headers).clamp(1, 65_535) as u16
    }

    /// Returns the simulator's configuration of a connection.
    pub(super) fn tcp_config(&self, receive_buffer: u32, options: bool, nagle: bool) -> tcp::TcpConfig {
        let ms = Duration::from_millis;
        let reach = |shift: u8| 0xffff_u64 << shift;
        let shift = (0..14).find(|s| reach(*s) >= self.max_buffer).unwrap_or(14);
        tcp::TcpConfig {
            mss: self.mss(),
            default_peer_mss: self.default_mss.unwrap_or(if self.ipv6 { 1220 } else { 536 }),
            recovery: if self.sack && options {
                LossRecoveryAlgorithm::Sack
            } else {
                LossRecoveryAlgorithm::NewReno
            },
            initial_window: match self.initial_window {
                10 => InitialWindow::Rfc6928,
                n => InitialWindow::Segments(n),
            },
            limited_transmit: self.limited_transmit,
            rack: self.rack,
            tail_loss_probe: self.tail_loss_probe,
            nagle,
            delayed_ack: self
                .delayed_ack
                .then(|| DelayedAck { timeout: ms(self.delack_time), every: AckThreshold::Segments(2) }),
            initial_rto: ms(self.rexmit_initial),
            min_rto: ms(self.rexmit_min),
            max_rto: Duration::from_secs(64),
            rto_after_syn_loss: ms(self.rexmit_initial),
            max_retransmissions: Some(12),
            max_syn_retransmissions: Some(12),
            receive_buffer,
            window_scale: (self.window_scaling && options).then_some(shift),
            timestamps: self.timestamps && options,
            time_wait: ms(2 * self.msl),
            challenge_ack_interval: Duration::ZERO,
            variants: TcpStackVariants {
                window_update: ReceiveWindowUpdateRule::Bsd,
                duplicate_sack: true,
                strict_rst: !self.insecure_rst,
                strict_syn: !self.insecure_syn,
                time_wait_ignores_rst: true,
                fin_again: true,
                options,
                rto_slop: ms(self.rexmit_slop),
            },
            ..tcp::TcpConfig::default()
        }
    }
}
