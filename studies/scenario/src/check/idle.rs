//! Reports settings without effect, because another setting disables them.

use super::SettingFault;
use super::workloads::of_workload;
use crate::model::{Scenario, TransportProtocol, Workload};
use crate::setting;
use usher_config::tree::TreeNode;
use usher_config::units::Bound;

/// The condition under which a setting has no effect.
enum IgnoredSettingCondition {
    OnScenario(fn(&Scenario) -> bool),
    OnWorkload(fn(&Scenario, &Workload) -> bool),
}

/// A setting that has an effect only with certain values of others.
struct ConditionalSetting {
    /// Its path.
    path: &'static str,
    /// The condition under which it has no effect.
    idle: IgnoredSettingCondition,
    /// The settings that decide it.
    depends_on: &'static [&'static str],
    /// The message: fault and remedy.
    remedy: &'static str,
}

/// The message for a transport's own setting beside the shared one.
const SHARED: &str = "transport.nagle applies to both TCP and SCTP: leave one of the two out";

const SETTINGS: [ConditionalSetting; 17] = [
    ConditionalSetting {
        path: "transport.tcp.nagle",
        idle: IgnoredSettingCondition::OnScenario(|scenario| scenario.transport.nagle.is_some()),
        depends_on: &["transport.nagle"],
        remedy: SHARED,
    },
    ConditionalSetting {
        path: "transport.sctp.nagle",
        idle: IgnoredSettingCondition::OnScenario(|scenario| scenario.transport.nagle.is_some()),
        depends_on: &["transport.nagle"],
        remedy: SHARED,
    },
    ConditionalSetting {
        path: "transport.tcp.read_size",
        idle: IgnoredSettingCondition::OnScenario(|scenario| {
            scenario.transport.tcp.read_rate == Bound::Unlimited
        }),
        depends_on: &["transport.tcp.read_rate"],
        remedy: "applications read all received data at once: set transport.tcp.read_rate too, or leave this out",
    },
    ConditionalSetting {
        path: "workload.write_size",
        idle: IgnoredSettingCondition::OnWorkload(|_, workload| match workload {
            Workload::Dialogue(dialogue) => dialogue.write_rate == Bound::Unlimited,
            _ => false,
        }),
        depends_on: &["workload.write_rate"],
        remedy: "applications write whole requests: set workload.write_rate too, or leave this out",
    },
    ConditionalSetting {
        path: "transport.sctp.duplicate_resets_delay",
        idle: IgnoredSettingCondition::OnScenario(|scenario| {
            let sctp = &scenario.transport.sctp;
            sctp.bundle_sacks && !sctp.duplicate_resets_delay
        }),
        depends_on: &["transport.sctp.bundle_sacks", "transport.sctp.preset"],
        remedy: "with bundled SACKs, an immediate acknowledgement always restarts the delay: set \
                 transport.sctp.bundle_sacks = false too, or leave this out",
    },
    ConditionalSetting {
        path: "transport.sctp.initial_window_bytes",
        idle: IgnoredSettingCondition::OnScenario(|scenario| {
            scenario.transport.sctp.initial_window.is_some()
        }),
        depends_on: &["transport.sctp.initial_window"],
        remedy: "transport.sctp.initial_window, in packets, overrides this: leave one of the two out",
    },
    ConditionalSetting {
        path: "workload.tls",
        idle: IgnoredSettingCondition::OnWorkload(|_, workload| match workload {
            Workload::Eap(eap) => !eap.uses_tls_transport(),
            _ => false,
        }),
        depends_on: &["workload.aaa", "workload.diameter.transport"],
        remedy: "NAS and server do not use TLS: set workload.aaa = \"radsec\", or \"diameter\" with \
                 workload.diameter.transport = \"tls\", or leave this out",
    },
    ConditionalSetting {
        path: "workload.user",
        idle: IgnoredSettingCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(false)
        }),
        depends_on: &["workload.server"],
        remedy: "users of the workload's own server have only a password: let its host run \"aaa\", or leave this out",
    },
    ConditionalSetting {
        path: "workload.eap_tls.client_chain",
        idle: IgnoredSettingCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(true)
        }),
        depends_on: &["workload.server"],
        remedy: RUN,
    },
    ConditionalSetting {
        path: "workload.connection",
        idle: IgnoredSettingCondition::OnWorkload(|_, workload| {
            of_dialogue(workload, |t| t != TransportProtocol::Tcp)
        }),
        depends_on: &["workload.transport"],
        remedy: "only TCP has a choice of connections: set workload.transport = \"tcp\", or leave this out",
    },
    ConditionalSetting {
        path: "workload.streams",
        idle: IgnoredSettingCondition::OnWorkload(|_, workload| {
            of_dialogue(workload, |t| t != TransportProtocol::Sctp)
        }),
        depends_on: &["workload.transport"],
        remedy: "TCP and UDP have no streams: set workload.transport = \"sctp\", or leave this out",
    },
    ConditionalSetting {
        path: "workload.retransmission",
        idle: IgnoredSettingCondition::OnWorkload(|_, workload| {
            of_dialogue(workload, |t| t != TransportProtocol::Udp)
        }),
        depends_on: &["workload.transport"],
        remedy: "TCP and SCTP retransmit by themselves: set workload.transport = \"udp\", or leave this out",
    },
    ConditionalSetting {
        path: "workload.eap_tls.server_chain",
        idle: IgnoredSettingCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(true)
        }),
        depends_on: &["workload.server"],
        remedy: RUN,
    },
    ConditionalSetting {
        path: "workload.eap_tls.handshake",
        idle: IgnoredSettingCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(true)
        }),
        depends_on: &["workload.server"],
        remedy: RUN,
    },
    ConditionalSetting {
        path: "workload.eap_tls.certificate",
        idle: IgnoredSettingCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(false)
        }),
        depends_on: &["workload.server"],
        remedy: OWN,
    },
    ConditionalSetting {
        path: "workload.eap_tls.key",
        idle: IgnoredSettingCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(false)
        }),
        depends_on: &["workload.server"],
        remedy: OWN,
    },
    ConditionalSetting {
        path: "workload.eap_tls.ca",
        idle: IgnoredSettingCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(false)
        }),
        depends_on: &["workload.server"],
        remedy: OWN,
    },
];

const RUN: &str = "a server that is a service of its host has its own certificates and computes each handshake: leave \
                   this out";
const OWN: &str =
    "the workload's own server uses the built-in certificates: let its host run \"aaa\", or leave this out";

/// True if a workload is a dialogue over a transport for which `is` returns true.
fn of_dialogue(workload: &Workload, is: fn(TransportProtocol) -> bool) -> bool {
    matches!(workload, Workload::Dialogue(dialogue) if is(dialogue.transport))
}

/// True if the server of a workload's logins is a service of its host.
fn uses_host_service(scenario: &Scenario, workload: &Workload) -> Option<bool> {
    match workload {
        Workload::Eap(eap) => Some(scenario.aaa_service(&eap.server).is_some()),
        _ => None,
    }
}

/// Returns the settings of `given` without effect in a scenario. `varied` are the paths that axes and choices set. A
/// setting that depends on one of them may have an effect at other points, so it is not reported.
pub(crate) fn find_idle_settings(
    scenario: &Scenario,
    given: &TreeNode,
    varied: &[String],
) -> Vec<SettingFault> {
    let mut findings = Vec::new();
    for setting in &SETTINGS {
        let mut look = |idle: bool, of: &dyn Fn(&str) -> String| {
            let path = of(setting.path);
            let keys: Vec<String> = path.split('.').map(str::to_owned).collect();
            let there =
                given.resolve_keys(&keys).iter().try_fold(given, |node, step| node.child(step)).is_some();
            if there
                && idle
                && !setting.depends_on.iter().any(|beside| any_path_covers_setting(varied, &of(beside)))
            {
                findings.push((keys, of(setting.remedy)));
            }
        };
        match setting.idle {
            IgnoredSettingCondition::OnScenario(idle) => look(idle(scenario), &str::to_owned),
            IgnoredSettingCondition::OnWorkload(idle) => {
                for (name, workload) in scenario.all_workloads() {
                    look(idle(scenario, workload), &|text| of_workload(text, name));
                }
            }
        }
    }
    findings
}

/// True if a path is that of the setting, or of a table that contains it.
fn any_path_covers_setting(paths: &[String], setting: &str) -> bool {
    paths.iter().any(|path| setting::covers_setting(path, setting))
}
