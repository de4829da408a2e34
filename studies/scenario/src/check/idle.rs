//! Reports settings without effect, because another setting disables them.

use super::CheckFinding;
use super::workloads::of_workload;
use crate::model::{Scenario, TransportProtocol, Workload};
use crate::setting;
use usher_config::tree::TreeNode;
use usher_config::units::Bound;

/// The condition under which a setting has no effect.
enum IdleCondition {
    OnScenario(fn(&Scenario) -> bool),
    OnWorkload(fn(&Scenario, &Workload) -> bool),
}

/// A setting that has an effect only with certain values of others.
struct ConditionalSetting {
    /// Its path.
    path: &'static str,
    /// The condition under which it has no effect.
    idle: IdleCondition,
    /// The settings that decide it.
    depends_on: &'static [&'static str],
    /// The message: fault and remedy.
    remedy: &'static str,
}

/// The message for a transport's own setting beside the shared one.
const SHARED: &str = "transport.nagle decides for TCP and SCTP alike: leave one of the two out";

const SETTINGS: [ConditionalSetting; 17] = [
    ConditionalSetting {
        path: "transport.tcp.nagle",
        idle: IdleCondition::OnScenario(|scenario| scenario.transport.nagle.is_some()),
        depends_on: &["transport.nagle"],
        remedy: SHARED,
    },
    ConditionalSetting {
        path: "transport.sctp.nagle",
        idle: IdleCondition::OnScenario(|scenario| scenario.transport.nagle.is_some()),
        depends_on: &["transport.nagle"],
        remedy: SHARED,
    },
    ConditionalSetting {
        path: "transport.tcp.read_size",
        idle: IdleCondition::OnScenario(|scenario| scenario.transport.tcp.read_rate == Bound::Unlimited),
        depends_on: &["transport.tcp.read_rate"],
        remedy: "applications read at once whatever has come: give transport.tcp.read_rate as well, or leave this out",
    },
    ConditionalSetting {
        path: "workload.write_size",
        idle: IdleCondition::OnWorkload(|_, workload| match workload {
            Workload::Dialogue(dialogue) => dialogue.write_rate == Bound::Unlimited,
            _ => false,
        }),
        depends_on: &["workload.write_rate"],
        remedy: "requests are written whole: give workload.write_rate as well, or leave this out",
    },
    ConditionalSetting {
        path: "transport.sctp.duplicate_resets_delay",
        idle: IdleCondition::OnScenario(|scenario| {
            let sctp = &scenario.transport.sctp;
            sctp.bundle_sacks && !sctp.duplicate_resets_delay
        }),
        depends_on: &["transport.sctp.bundle_sacks", "transport.sctp.preset"],
        remedy: "where acknowledgements ride on data, one that goes at once begins the delay anew in any case: set \
                 transport.sctp.bundle_sacks = false as well, or leave this out",
    },
    ConditionalSetting {
        path: "transport.sctp.initial_window_bytes",
        idle: IdleCondition::OnScenario(|scenario| scenario.transport.sctp.initial_window.is_some()),
        depends_on: &["transport.sctp.initial_window"],
        remedy: "transport.sctp.initial_window, in packets, decides where both are given: leave one of the two out",
    },
    ConditionalSetting {
        path: "workload.tls",
        idle: IdleCondition::OnWorkload(|_, workload| match workload {
            Workload::Eap(eap) => !eap.inside_tls(),
            _ => false,
        }),
        depends_on: &["workload.aaa", "workload.diameter.transport"],
        remedy: "NAS and server do not talk inside TLS: set workload.aaa = \"radsec\", or \"diameter\" with \
                 workload.diameter.transport = \"tls\", or leave this out",
    },
    ConditionalSetting {
        path: "workload.user",
        idle: IdleCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(false)
        }),
        depends_on: &["workload.server"],
        remedy: "the server is the workload's own, and its users have a password alone: let its host run \"aaa\", or leave \
                 this out",
    },
    ConditionalSetting {
        path: "workload.eap_tls.client_chain",
        idle: IdleCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(true)
        }),
        depends_on: &["workload.server"],
        remedy: RUN,
    },
    ConditionalSetting {
        path: "workload.connection",
        idle: IdleCondition::OnWorkload(|_, workload| of_dialogue(workload, |t| t != TransportProtocol::Tcp)),
        depends_on: &["workload.transport"],
        remedy: "UDP has no connections, and SCTP has one association of each client: set workload.transport = \"tcp\", or leave \
                 this out",
    },
    ConditionalSetting {
        path: "workload.streams",
        idle: IdleCondition::OnWorkload(|_, workload| {
            of_dialogue(workload, |t| t != TransportProtocol::Sctp)
        }),
        depends_on: &["workload.transport"],
        remedy: "TCP and UDP have no streams: set workload.transport = \"sctp\", or leave this out",
    },
    ConditionalSetting {
        path: "workload.retransmission",
        idle: IdleCondition::OnWorkload(|_, workload| of_dialogue(workload, |t| t != TransportProtocol::Udp)),
        depends_on: &["workload.transport"],
        remedy: "TCP and SCTP send again what is lost, and the client nothing: set workload.transport = \"udp\", or leave this out",
    },
    ConditionalSetting {
        path: "workload.eap_tls.server_chain",
        idle: IdleCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(true)
        }),
        depends_on: &["workload.server"],
        remedy: RUN,
    },
    ConditionalSetting {
        path: "workload.eap_tls.handshake",
        idle: IdleCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(true)
        }),
        depends_on: &["workload.server"],
        remedy: RUN,
    },
    ConditionalSetting {
        path: "workload.eap_tls.certificate",
        idle: IdleCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(false)
        }),
        depends_on: &["workload.server"],
        remedy: OWN,
    },
    ConditionalSetting {
        path: "workload.eap_tls.key",
        idle: IdleCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(false)
        }),
        depends_on: &["workload.server"],
        remedy: OWN,
    },
    ConditionalSetting {
        path: "workload.eap_tls.ca",
        idle: IdleCondition::OnWorkload(|scenario, workload| {
            uses_host_service(scenario, workload) == Some(false)
        }),
        depends_on: &["workload.server"],
        remedy: OWN,
    },
];

const RUN: &str = "the server is a service of its host, whose certificates are its own, and each handshake is computed: leave this out";
const OWN: &str = "the server is the workload's own, which knows the certificates that come with the program: let its host run \"aaa\", \
                   or leave this out";

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
) -> Vec<CheckFinding> {
    let mut findings = Vec::new();
    for setting in &SETTINGS {
        let mut look = |idle: bool, of: &dyn Fn(&str) -> String| {
            let path = of(setting.path);
            let keys: Vec<String> = path.split('.').map(str::to_owned).collect();
            let there =
                given.resolve_keys(&keys).iter().try_fold(given, |node, step| node.child(step)).is_some();
            if there && idle && !setting.depends_on.iter().any(|beside| any_covers(varied, &of(beside))) {
                findings.push((keys, of(setting.remedy)));
            }
        };
        match setting.idle {
            IdleCondition::OnScenario(idle) => look(idle(scenario), &str::to_owned),
            IdleCondition::OnWorkload(idle) => {
                for (name, workload) in scenario.all_workloads() {
                    look(idle(scenario, workload), &|text| of_workload(text, name));
                }
            }
        }
    }
    findings
}

/// True if a path is that of the setting, or of a table that contains it.
fn any_covers(paths: &[String], setting: &str) -> bool {
    paths.iter().any(|path| setting::covers_setting(path, setting))
}
