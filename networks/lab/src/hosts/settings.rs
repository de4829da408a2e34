//! The study's transport settings on the kernel: the sysctls and options for them, and the differences.
//!
//! `docs/howto/lab-studies.md` has the same as a table.

mod sctp;

pub(super) use sctp::sctp_options;
pub use sctp::{sctp_sysctls, unsupported_sctp_settings};

use socket2::Socket;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::time::Duration as StdDuration;
use usher_core::Duration;
use usher_sim::TransportConfig;
use usher_sim::tcp::{
    AckThreshold, AckTimer, BackoffReset, CongestionControl, IdleRestart, InitialWindow, LossHalves,
    LossRecovery, LossRecoveryAlgorithm, NagleVariant, RtoRestart, TcpConfig, TimestampEcho, WindowGrowth,
    WindowUnit,
};

/// The kernel's initial retransmission timeout (`TCP_TIMEOUT_INIT`).
const INITIAL_RTO: Duration = Duration::from_secs(1);
/// The kernel's minimum timeout (`TCP_RTO_MIN`).
const MIN_RTO: Duration = Duration::from_millis(200);
/// The range of the kernel's maximum timeout (`net.ipv4.tcp_rto_max_ms`).
const MAX_RTO: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(120)];
/// The range of TCP_MAXSEG (`TCP_MIN_MSS`, `MAX_TCP_WINDOW`).
const SEGMENT: [u32; 2] = [88, 32_767];
/// Practically unlimited: the maximum of TCP_USER_TIMEOUT in milliseconds.
const FOR_EVER: StdDuration = StdDuration::from_millis(i32::MAX as u64);

/// Kernel settings beyond the study's: sysctls of every host's namespace by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelSettings {
    /// Name and value, such as `net.ipv4.tcp_recovery` and `0`.
    pub sysctls: BTreeMap<String, String>,
}

impl KernelSettings {
    /// Parses and adds `net.ipv4.tcp_recovery=0`.
    ///
    /// # Errors
    /// It is not a name and value, or not a sysctl of a network namespace.
    pub fn add_argument(&mut self, argument: &str) -> Result<(), String> {
        let (name, value) = argument
            .split_once('=')
            .map(|(name, value)| (name.trim(), value.trim()))
            .filter(|(name, value)| !name.is_empty() && !value.is_empty())
            .ok_or_else(|| format!("\"{argument}\" is not NAME=VALUE, such as net.ipv4.tcp_recovery=0"))?;
        let fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !name.starts_with("net.") || !name.chars().all(fine) || name.contains("..") {
            return Err(format!(
                "\"{name}\" is not a sysctl of a network namespace: these begin with \"net.\", such as \
                 net.ipv4.tcp_recovery"
            ));
        }
        self.sysctls.insert(name.to_owned(), value.to_owned());
        Ok(())
    }
}

/// A sysctl for a study's settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SysctlSetting {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// The first kernel version with it. An older kernel keeps its built-in behavior.
    pub since: Option<&'static str>,
}

/// A study's setting that the kernel lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnsupportedSetting {
    /// Its path in a study.
    pub setting: String,
    /// The study's value.
    pub study: String,
    /// The kernel's behavior.
    pub kernel: &'static str,
}

impl Display for UnsupportedSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} = {}: {}", self.setting, self.study, self.kernel)
    }
}

/// Returns the sysctls of a namespace for these settings.
pub fn sysctl_settings(tcp: &TcpConfig) -> Vec<SysctlSetting> {
    let always = |name, value: String| SysctlSetting { name, value, since: None };
    let flag = |on: bool| u32::from(on).to_string();
    let [least, most] = MAX_RTO;
    // tcp_syn_retries and tcp_retries2 accept at most 255. Unlimited retries rely on TCP_USER_TIMEOUT instead.
    let retries = |n: Option<u32>, most: u32| n.map_or(most, |n| n.clamp(1, most)).to_string();
    // The kernel announces only half of a buffer as window, so double the size.
    let doubled = |bytes: u32| bytes.min(i32::MAX as u32 / 2) * 2;
    let rmem = tcp.receive_buffer_max.map(|most| {
        let value = format!("4096 {} {}", doubled(tcp.receive_buffer), doubled(most));
        always("net.ipv4.tcp_rmem", value)
    });
    let mut all = vec![
        always("net.ipv4.tcp_sack", flag(tcp.recovery == LossRecoveryAlgorithm::Sack)),
        always("net.ipv4.tcp_dsack", flag(tcp.variants.duplicate_sack)),
        always("net.ipv4.tcp_recovery", flag(tcp.rack)),
        // 3 is the kernel's default: probes, without early retransmit, which no longer exists.
        always("net.ipv4.tcp_early_retrans", if tcp.tail_loss_probe { "3" } else { "0" }.to_owned()),
        always("net.ipv4.tcp_retrans_collapse", flag(tcp.retransmit_collapse)),
        always("net.ipv4.tcp_timestamps", flag(tcp.timestamps)),
        always("net.ipv4.tcp_window_scaling", flag(tcp.window_scale.is_some())),
        always("net.ipv4.tcp_slow_start_after_idle", flag(tcp.restart_after_idle)),
        always("net.ipv4.tcp_retries2", retries(tcp.max_retransmissions, 255)),
        always("net.ipv4.tcp_syn_retries", retries(tcp.max_syn_retransmissions, 127)),
        always("net.ipv4.tcp_synack_retries", retries(tcp.max_syn_retransmissions, 127)),
        // A connection must start with the study's settings, not with metrics of an earlier one.
        always("net.ipv4.tcp_no_metrics_save", flag(true)),
        SysctlSetting {
            name: "net.ipv4.tcp_rto_min_us",
            value: (tcp.min_rto.as_nanos() / 1000).max(1).to_string(),
            since: Some("6.11"),
        },
        SysctlSetting {
            name: "net.ipv4.tcp_rto_max_ms",
            value: (tcp.max_rto.clamp(least, most).as_nanos() / 1_000_000).to_string(),
            since: Some("6.15"),
        },
    ];
    all.extend(rmem);
    all
}

/// Sets the options of a socket before it connects or listens.
pub(super) fn apply_to_socket(socket: &Socket, tcp: &TcpConfig) -> io::Result<()> {
    socket.set_tcp_nodelay(!tcp.nagle)?;
    socket.set_tcp_mss(u32::from(tcp.mss).clamp(SEGMENT[0], SEGMENT[1]))?;
    if tcp.receive_buffer_max.is_none() {
        // The kernel does not resize a buffer that the program sets explicitly.
        socket.set_recv_buffer_size(tcp.receive_buffer as usize)?;
    }
    if tcp.max_retransmissions.is_none() {
        socket.set_tcp_user_timeout(Some(FOR_EVER))?;
    }
    socket.set_tcp_congestion(congestion_name(tcp.congestion).as_bytes())
}

/// Returns the initial window in segments, if it differs from the kernel's (`TCP_INIT_CWND` is 10).
pub(super) fn initial_window(tcp: &TcpConfig) -> Option<u32> {
    match tcp.initial_window {
        InitialWindow::Rfc6928 => None,
        InitialWindow::Segments(n) => Some(n.max(1)),
        InitialWindow::Rfc3390 => {
            let options = if tcp.timestamps { 12 } else { 0 };
            let segment = u32::from(tcp.mss).saturating_sub(options).max(1);
            Some((tcp.initial_window.window_bytes(segment) / segment).max(1))
        }
    }
}

const fn congestion_name(congestion: CongestionControl) -> &'static str {
    match congestion {
        CongestionControl::Reno => "reno",
        CongestionControl::Cubic => "cubic",
        CongestionControl::Bbr => "bbr",
    }
}

/// Lists the settings that the kernel implements differently.
pub fn unsupported_settings(tcp: &TcpConfig) -> Vec<UnsupportedSetting> {
    let mut all = Vec::new();
    let mut tell = |differs: bool, setting: &str, study: String, kernel| {
        if differs {
            all.push(UnsupportedSetting { setting: setting.to_owned(), study, kernel });
        }
    };
    let named = |name: &str| format!("\"{name}\"");
    let time = |t: Duration| format!("\"{t}\"");
    let [least, most] = MAX_RTO;
    tell(
        tcp.recovery == LossRecoveryAlgorithm::Reno,
        "transport.tcp.congestion",
        named("reno"),
        "without SACK the kernel recovers by RFC 6582 (NewReno)",
    );
    tell(
        tcp.initial_window == InitialWindow::Rfc3390,
        "transport.tcp.initial_window",
        named("rfc3390"),
        "the kernel's initial window has whole segments (initcwnd): as many as fit into these bytes",
    );
    tell(
        tcp.nagle && tcp.nagle_variant != NagleVariant::Minshall,
        "transport.tcp.nagle_variant",
        named(if tcp.nagle_variant == NagleVariant::Bsd { "bsd" } else { "rfc896" }),
        "the kernel uses Minshall's variant: a small segment waits only for an earlier small one",
    );
    tell(
        !tcp.silly_window_avoidance,
        "transport.tcp.silly_window_avoidance",
        "false".to_owned(),
        "the kernel avoids silly windows on both sides",
    );
    tell(
        tcp.deliver_first,
        "transport.tcp.deliver_first",
        "true".to_owned(),
        "the kernel sends the data that an acknowledgement permits before it wakes the application",
    );
    if let Some(delayed) = tcp.delayed_ack {
        tell(
            delayed.timeout != Duration::from_millis(40),
            "transport.tcp.delayed_ack",
            time(delayed.timeout),
            "the kernel delays acknowledgements by at least 40 ms",
        );
        tell(
            !matches!(delayed.every, AckThreshold::LargestSeen(2)),
            "transport.tcp.delayed_ack_segments",
            match delayed.every {
                AckThreshold::Segments(n) => format!("{n} segments"),
                AckThreshold::FullSized(n) => format!("{n} full segments"),
                AckThreshold::LargestSeen(n) => format!("{n} segments of the largest size"),
            },
            "the kernel acknowledges after more than one segment of the largest size",
        );
        tell(
            !tcp.quick_ack || !tcp.ack_on_read || tcp.delayed_ack_max.is_none(),
            "transport.tcp.quick_ack, ack_on_read, delayed_ack_max",
            format!(
                "{}, {}, {}",
                tcp.quick_ack,
                tcp.ack_on_read,
                tcp.delayed_ack_max.map_or_else(|| named("off"), time)
            ),
            "the kernel acknowledges like the preset \"linux\": true, true, \"200 ms\"",
        );
        tell(
            tcp.ack_timer == AckTimer::Tick,
            "transport.tcp.delayed_ack_timer",
            named("tick"),
            "the kernel starts the timer when the segment arrives",
        );
    }
    tell(
        tcp.initial_rto != INITIAL_RTO,
        "transport.tcp.rto_initial",
        time(tcp.initial_rto),
        "the kernel starts with 1 s (TCP_TIMEOUT_INIT)",
    );
    tell(
        tcp.max_rto < least || tcp.max_rto > most,
        "transport.tcp.rto_max",
        time(tcp.max_rto),
        "the kernel accepts 1 s to 120 s",
    );
    tell(
        tcp.granularity != tcp.min_rto,
        "transport.tcp.rto_min_bounds",
        named("timeout"),
        "the kernel bounds the variance: a timeout is at least the round-trip time plus rto_min",
    );
    tell(
        tcp.backoff_reset != BackoffReset::Measurement,
        "transport.tcp.backoff_reset",
        named(match tcp.backoff_reset {
            BackoffReset::EitherAcknowledgement => "either-acknowledgement",
            _ => "acknowledgement",
        }),
        "the kernel resets the backoff with a new measurement of the round-trip time",
    );
    tell(
        tcp.loss_recovery != LossRecovery::Rfc5681,
        "transport.tcp.loss_recovery",
        named(if tcp.loss_recovery == LossRecovery::Ns3 { "ns-3" } else { "ns-2" }),
        "the kernel repairs losses by RFC 6675 and 8985",
    );
    tell(
        tcp.timestamps && tcp.timestamp_echo != TimestampEcho::Rfc7323,
        "transport.tcp.timestamp_echo",
        named("pure-acknowledgements"),
        "the kernel echoes the timestamp of the segment that its last acknowledgement covers",
    );
    tell(
        tcp.rto_restart == RtoRestart::OldTimeout,
        "transport.tcp.rto_restart",
        named("old-timeout"),
        "the kernel restarts its timer for the new timeout",
    );
    tell(
        tcp.window_unit == WindowUnit::Bytes,
        "transport.tcp.window_unit",
        named("bytes"),
        "the kernel's congestion window counts segments of any size",
    );
    tell(
        tcp.window_growth == WindowGrowth::Acknowledgements,
        "transport.tcp.window_growth",
        named("acknowledgements"),
        "the kernel counts acknowledged segments",
    );
    tell(
        tcp.loss_halves == LossHalves::Window,
        "transport.tcp.loss_halves",
        named("window"),
        "the kernel halves by the rule of its congestion control",
    );
    tell(
        tcp.idle_restart == IdleRestart::MeasuredRto,
        "transport.tcp.idle_restart",
        named("measured-rto"),
        "the kernel shrinks its window after an RTO of silence",
    );
    tell(
        !tcp.advancing_duplicates,
        "transport.tcp.advancing_duplicates",
        "false".to_owned(),
        "the kernel counts every acknowledgement with new SACK blocks",
    );
    tell(
        !tcp.fast_retransmit_restarts,
        "transport.tcp.fast_retransmit_restarts",
        "false".to_owned(),
        "the kernel restarts its timer when it retransmits the first segment",
    );
    tell(
        !tcp.rtt_tick.is_zero(),
        "transport.tcp.rtt_tick",
        time(tcp.rtt_tick),
        "the kernel measures round trips in microseconds",
    );
    tell(
        !tcp.rate_reduction,
        "transport.tcp.rate_reduction",
        "false".to_owned(),
        "the kernel reduces its window in proportion to the delivered data",
    );
    tell(
        tcp.timer_tick.is_zero(),
        "transport.tcp.timer_tick",
        time(tcp.timer_tick),
        "the kernel's timer wheel expires timers late, long ones later",
    );
    tell(
        !tcp.limited_transmit,
        "transport.tcp.limited_transmit",
        "false".to_owned(),
        "the kernel sends new data on duplicate acknowledgements",
    );
    all
}

/// Lists the settings that this machine's kernel lacks, though newer ones have them.
pub fn kernel_missing_settings(tcp: &TcpConfig) -> Vec<UnsupportedSetting> {
    let lacks = |name: &str| !Path::new("/proc/sys").join(name.replace('.', "/")).exists();
    let time = |t: Duration| format!("\"{t}\"");
    let mut all = Vec::new();
    if tcp.min_rto != MIN_RTO && lacks("net.ipv4.tcp_rto_min_us") {
        let kernel = "this kernel uses 200 ms: it has no net.ipv4.tcp_rto_min_us (since Linux 6.11)";
        all.push(UnsupportedSetting {
            setting: "transport.tcp.rto_min".to_owned(),
            study: time(tcp.min_rto),
            kernel,
        });
    }
    if tcp.max_rto != MAX_RTO[1] && lacks("net.ipv4.tcp_rto_max_ms") {
        let kernel = "this kernel uses 120 s: it has no net.ipv4.tcp_rto_max_ms (since Linux 6.15)";
        all.push(UnsupportedSetting {
            setting: "transport.tcp.rto_max".to_owned(),
            study: time(tcp.max_rto),
            kernel,
        });
    }
    let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").ok();
    let most = most.and_then(|m| m.trim().parse::<u32>().ok());
    if tcp.receive_buffer_max.is_none() && most.is_some_and(|most| tcp.receive_buffer > most) {
        all.push(UnsupportedSetting {
            setting: "transport.tcp.receive_buffer".to_owned(),
            study: format!("\"{} B\"", tcp.receive_buffer),
            kernel: "net.core.rmem_max is smaller and limits it",
        });
    }
    all
}

/// Returns the settings of a namespace by path below `/proc/sys/net`: the study's that the kernel has, and the
/// additional ones.
pub(super) fn namespace_settings(
    of: &TransportConfig,
    sctp: bool,
    kernel: &KernelSettings,
) -> Vec<(String, String)> {
    let path = |name: &str| name.trim_start_matches("net.").replace('.', "/");
    let there = |name: &str| Path::new("/proc/sys/net").join(path(name)).exists();
    let sctp = sctp.then(|| sctp_sysctls(&of.sctp)).into_iter().flatten();
    let own = sysctl_settings(&of.tcp).into_iter().chain(sctp).filter(|s| s.since.is_none() || there(s.name));
    let mut all: BTreeMap<String, String> = own.map(|s| (path(s.name), s.value)).collect();
    all.extend(kernel.sysctls.iter().map(|(name, value)| (path(name), value.clone())));
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sysctl_of_no_namespace_is_refused() {
        let mut kernel = KernelSettings::default();
        assert_eq!(kernel.add_argument(" net.ipv4.tcp_recovery = 0"), Ok(()));
        assert_eq!(kernel.sysctls["net.ipv4.tcp_recovery"], "0");
        for wrong in
            ["net.ipv4.tcp_recovery", "=1", "kernel.panic=1", "net.ipv4/../../kernel.panic=1", "net..x=1"]
        {
            assert!(kernel.add_argument(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_initial_window_is_one_of_segments() {
        let of = |window| initial_window(&TcpConfig { initial_window: window, ..TcpConfig::default() });
        assert_eq!(of(InitialWindow::Rfc6928), None);
        assert_eq!(of(InitialWindow::Segments(2)), Some(2));
        assert_eq!(of(InitialWindow::Rfc3390), Some(3), "4380 bytes are three times 1460");
    }

    #[test]
    fn what_the_kernel_has_is_not_told() {
        let tcp = TcpConfig {
            recovery: LossRecoveryAlgorithm::Sack,
            congestion: CongestionControl::Cubic,
            initial_window: InitialWindow::Rfc6928,
            nagle_variant: NagleVariant::Minshall,
            delayed_ack: None,
            variants: usher_sim::tcp::TcpStackVariants { duplicate_sack: true, ..Default::default() },
            rack: true,
            tail_loss_probe: true,
            retransmit_collapse: true,
            fast_retransmit_restarts: true,
            rate_reduction: true,
            timer_tick: Duration::from_millis(4),
            window_unit: WindowUnit::Segments,
            min_rto: Duration::from_millis(200),
            granularity: Duration::from_millis(200),
            ..TcpConfig::default()
        };
        assert_eq!(unsupported_settings(&tcp), []);
        let told = unsupported_settings(&TcpConfig { max_rto: Duration::from_millis(200), ..tcp.clone() });
        assert_eq!(told.iter().map(|u| u.setting.as_str()).collect::<Vec<_>>(), ["transport.tcp.rto_max"]);
        let by_name = |name: &str| sysctl_settings(&tcp).into_iter().find(|s| s.name == name).unwrap().value;
        assert_eq!(by_name("net.ipv4.tcp_rto_min_us"), "200000");
        assert_eq!(
            (by_name("net.ipv4.tcp_sack"), by_name("net.ipv4.tcp_window_scaling")),
            ("1".into(), "0".into())
        );
    }
}
