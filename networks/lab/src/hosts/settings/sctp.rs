//! The study's SCTP settings on the kernel.

use super::{SysctlSetting, UnsupportedSetting};
use std::time::Duration as StdDuration;
use usher_core::Duration;
use usher_sctp::{DelayedSack, RtoBounds, SocketOptions};
use usher_sim::sctp::{InitialWindow, LossRecovery, SctpConfig};

/// Returns the socket options of an association with this many streams. `None`: of a listener.
pub(in crate::hosts) fn sctp_options(sctp: &SctpConfig, streams: Option<u16>) -> SocketOptions {
    let std = |time: Duration| StdDuration::from_nanos(time.as_nanos());
    let times = |n: Option<u32>| n.map_or(u16::MAX, |n| u16::try_from(n).unwrap_or(u16::MAX).max(1));
    SocketOptions {
        // If no number is configured, the accepting side uses as many streams as the peer requests.
        streams_out: streams.or(sctp.accepted_streams).unwrap_or(u16::MAX),
        streams_in: match streams {
            Some(streams) if sctp.accepted_streams.is_none() => streams,
            _ => sctp.max_inbound_streams,
        },
        nodelay: !sctp.nagle,
        rto: Some(RtoBounds {
            initial: std(sctp.rto_initial),
            min: std(sctp.rto_min),
            max: std(sctp.rto_max),
        }),
        delayed_sack: Some(match sctp.sack_delay {
            Some(delay) => DelayedSack { delay: std(delay), packets: sctp.sack_frequency },
            None => DelayedSack { delay: StdDuration::ZERO, packets: 1 },
        }),
        max_retransmissions: Some(times(sctp.max_association_retransmissions)),
        init: Some((times(sctp.max_init_retransmissions), std(sctp.rto_max))),
        // The kernel doubles the requested size and announces half of it, which is the requested size again.
        receive_buffer: Some(sctp.receive_buffer as usize),
        ..SocketOptions::default()
    }
}

/// Returns the sysctls of a namespace for these settings.
pub fn sctp_sysctls(sctp: &SctpConfig) -> Vec<SysctlSetting> {
    let always = |name, value: String| SysctlSetting { name, value, since: None };
    let interval = sctp.heartbeat_interval.unwrap_or(NEVER);
    vec![
        always("net.sctp.path_max_retrans", sctp.max_path_retransmissions.min(i32::MAX as u32).to_string()),
        always("net.sctp.max_burst", sctp.max_burst.map_or(0, |n| n.min(i32::MAX as u32)).to_string()),
        always("net.sctp.hb_interval", (interval.as_nanos() / 1_000_000).clamp(1, NEVER_MS).to_string()),
    ]
}

/// The longest heartbeat interval that the kernel takes (`net.sctp.hb_interval`, 24 days), to turn heartbeats off.
const NEVER: Duration = Duration::from_millis(NEVER_MS);
const NEVER_MS: u64 = 86_400_000;

/// Lists the settings that the kernel implements differently.
pub fn unsupported_sctp_settings(sctp: &SctpConfig) -> Vec<UnsupportedSetting> {
    let switches = [
        (
            sctp.first_sack_at_once,
            true,
            "first_sack_at_once",
            "the kernel acknowledges the first data at once",
        ),
        (
            sctp.measure_behind_retransmission,
            true,
            "measure_behind_retransmission",
            "the kernel measures round trips with every chunk that was sent only once",
        ),
        (
            sctp.one_packet_after_timeout,
            false,
            "one_packet_after_timeout",
            "after a timeout the kernel sends as much as its window allows",
        ),
        (sctp.cumulative_growth, false, "cumulative_growth", "the kernel's window grows by RFC 9260"),
        (
            sctp.filled_gap_at_once,
            false,
            "filled_gap_at_once",
            "the kernel delays the acknowledgement of a filled gap",
        ),
        (sctp.duplicate_resets_delay, true, "duplicate_resets_delay", "the kernel restarts the delay"),
        (sctp.headers_in_window, false, "headers_in_window", "the kernel counts only user data"),
        (sctp.deliver_first, false, "deliver_first", "the kernel sends before it wakes the application"),
        (sctp.bundle_sacks, true, "bundle_sacks", "the kernel bundles acknowledgements with data"),
    ];
    let switches = switches.into_iter().filter(|(own, kernel, ..)| own != kernel);
    let mut all: Vec<UnsupportedSetting> = switches
        .map(|(own, _, name, kernel)| UnsupportedSetting {
            setting: sysctl_path(name),
            study: own.to_string(),
            kernel,
        })
        .collect();
    if sctp.loss_recovery != LossRecovery::Rfc9260 {
        let kernel = "the kernel recovers by RFC 9260";
        all.push(UnsupportedSetting {
            setting: sysctl_path("loss_recovery"),
            study: "\"ns-2\"".to_owned(),
            kernel,
        });
    }
    if sctp.initial_window != InitialWindow::Bytes(4380) {
        let kernel = "the kernel starts with 4380 bytes";
        let study = format!("{:?}", sctp.initial_window).to_lowercase();
        all.push(UnsupportedSetting { setting: sysctl_path("initial_window"), study, kernel });
    }
    if sctp.max_association_retransmissions.is_none() {
        let kernel = "the kernel accepts at most 65535, also for INIT";
        all.push(UnsupportedSetting {
            setting: sysctl_path("retransmissions"),
            study: "\"unlimited\"".to_owned(),
            kernel,
        });
    }
    all
}

/// Returns the path of a setting.
fn sysctl_path(name: &str) -> String {
    format!("transport.sctp.{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux's preset.
    fn linux_preset() -> SctpConfig {
        SctpConfig {
            measure_behind_retransmission: true,
            one_packet_after_timeout: false,
            filled_gap_at_once: false,
            headers_in_window: false,
            initial_window: InitialWindow::Bytes(4380),
            max_inbound_streams: u16::MAX,
            ..SctpConfig::default()
        }
    }

    #[test]
    fn what_the_kernel_has_is_set_and_what_it_has_not_is_told() {
        assert_eq!(unsupported_sctp_settings(&linux_preset()), []);
        let told = unsupported_sctp_settings(&SctpConfig {
            bundle_sacks: false,
            max_association_retransmissions: None,
            ..linux_preset()
        });
        let names: Vec<&str> = told.iter().map(|u| u.setting.as_str()).collect();
        assert_eq!(names, ["transport.sctp.bundle_sacks", "transport.sctp.retransmissions"]);
        let by_name =
            |name: &str| sctp_sysctls(&linux_preset()).into_iter().find(|s| s.name == name).unwrap().value;
        assert_eq!(
            (by_name("net.sctp.max_burst"), by_name("net.sctp.hb_interval")),
            ("4".into(), "30000".into())
        );
    }

    #[test]
    fn who_accepts_has_as_many_streams_as_are_asked_for() {
        let (asks, accepts) = (sctp_options(&linux_preset(), Some(64)), sctp_options(&linux_preset(), None));
        // RFC 9260, 5.1.1: the minimum of the requested and the accepted number.
        assert_eq!(asks.streams_out.min(accepts.streams_in), 64);
        assert_eq!(accepts.streams_out.min(asks.streams_in), 64);
        let few = SctpConfig { accepted_streams: Some(8), ..linux_preset() };
        let (asks, accepts) = (sctp_options(&few, Some(64)), sctp_options(&few, None));
        assert_eq!(accepts.streams_out.min(asks.streams_in), 8);
        let immediate = sctp_options(&SctpConfig { sack_delay: None, nagle: true, ..linux_preset() }, None);
        assert_eq!((immediate.delayed_sack.unwrap().packets, immediate.nodelay), (1, false));
    }
}
