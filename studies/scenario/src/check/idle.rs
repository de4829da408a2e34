//! Settings that tell only beside another: given where that other never lets them, they would do nothing.

use super::Finding;
use super::workloads::of_workload;
use crate::model::{Scenario, TransportProtocol, Workload};
use crate::setting;
use usher_config::tree::TreeNode;
use usher_config::units::Bound;

/// Whether a setting does nothing in a scenario that has it.
enum Idle {
    Of(fn(&Scenario) -> bool),
    OfWorkload(fn(&Scenario, &Workload) -> bool),
}

/// A setting that tells only beside others.
struct Setting {
    /// Its path.
    path: &'static str,
    /// When it does nothing.
    idle: Idle,
    /// Those that decide it.
    beside: &'static [&'static str],
    /// What is wrong, and what to do.
    remedy: &'static str,
}

/// Of a transport's own setting beside that of both.
const SHARED: &str = "transport.nagle decides for TCP and SCTP alike: leave one of the two out";

const SETTINGS: [Setting; 17] = [
    Setting {
        path: "transport.tcp.nagle",
        idle: Idle::Of(|scenario| scenario.transport.nagle.is_some()),
        beside: &["transport.nagle"],
        remedy: SHARED,
    },
    Setting {
        path: "transport.sctp.nagle",
        idle: Idle::Of(|scenario| scenario.transport.nagle.is_some()),
        beside: &["transport.nagle"],
        remedy: SHARED,
    },
    Setting {
        path: "transport.tcp.read_size",
        idle: Idle::Of(|scenario| scenario.transport.tcp.read_rate == Bound::Unlimited),
        beside: &["transport.tcp.read_rate"],
        remedy: "applications read at once whatever has come: give transport.tcp.read_rate as well, or leave this out",
    },
    Setting {
        path: "workload.write_size",
        idle: Idle::OfWorkload(|_, workload| match workload {
            Workload::Dialogue(dialogue) => dialogue.write_rate == Bound::Unlimited,
            _ => false,
        }),
        beside: &["workload.write_rate"],
        remedy: "requests are written whole: give workload.write_rate as well, or leave this out",
    },
    Setting {
        path: "transport.sctp.duplicate_resets_delay",
        idle: Idle::Of(|scenario| {
            let sctp = &scenario.transport.sctp;
            sctp.bundle_sacks && !sctp.duplicate_resets_delay
        }),
        beside: &["transport.sctp.bundle_sacks", "transport.sctp.preset"],
        remedy: "where acknowledgements ride on data, one that goes at once begins the delay anew in any case: set \
                 transport.sctp.bundle_sacks = false as well, or leave this out",
    },
    Setting {
        path: "transport.sctp.initial_window_bytes",
        idle: Idle::Of(|scenario| scenario.transport.sctp.initial_window.is_some()),
        beside: &["transport.sctp.initial_window"],
        remedy: "transport.sctp.initial_window, in packets, decides where both are given: leave one of the two out",
    },
    Setting {
        path: "workload.tls",
        idle: Idle::OfWorkload(|_, workload| match workload {
            Workload::Eap(eap) => !eap.inside_tls(),
            _ => false,
        }),
        beside: &["workload.aaa", "workload.diameter.transport"],
        remedy: "NAS and server do not talk inside TLS: set workload.aaa = \"radsec\", or \"diameter\" with \
                 workload.diameter.transport = \"tls\", or leave this out",
    },
    Setting {
        path: "workload.user",
        idle: Idle::OfWorkload(|scenario, workload| served(scenario, workload) == Some(false)),
        beside: &["workload.server"],
        remedy: "the server is the workload's own, and its users have a password alone: let its host run \"aaa\", or leave \
                 this out",
    },
    Setting {
        path: "workload.eap_tls.client_chain",
        idle: Idle::OfWorkload(|scenario, workload| served(scenario, workload) == Some(true)),
        beside: &["workload.server"],
        remedy: RUN,
    },
    Setting {
        path: "workload.connection",
        idle: Idle::OfWorkload(|_, workload| of_dialogue(workload, |t| t != TransportProtocol::Tcp)),
        beside: &["workload.transport"],
        remedy: "UDP has no connections, and SCTP has one association of each client: set workload.transport = \"tcp\", or leave \
                 this out",
    },
    Setting {
        path: "workload.streams",
        idle: Idle::OfWorkload(|_, workload| of_dialogue(workload, |t| t != TransportProtocol::Sctp)),
        beside: &["workload.transport"],
        remedy: "TCP and UDP have no streams: set workload.transport = \"sctp\", or leave this out",
    },
    Setting {
        path: "workload.retransmission",
        idle: Idle::OfWorkload(|_, workload| of_dialogue(workload, |t| t != TransportProtocol::Udp)),
        beside: &["workload.transport"],
        remedy: "TCP and SCTP send again what is lost, and the client nothing: set workload.transport = \"udp\", or leave this out",
    },
    Setting {
        path: "workload.eap_tls.server_chain",
        idle: Idle::OfWorkload(|scenario, workload| served(scenario, workload) == Some(true)),
        beside: &["workload.server"],
        remedy: RUN,
    },
    Setting {
        path: "workload.eap_tls.handshake",
        idle: Idle::OfWorkload(|scenario, workload| served(scenario, workload) == Some(true)),
        beside: &["workload.server"],
        remedy: RUN,
    },
    Setting {
        path: "workload.eap_tls.certificate",
        idle: Idle::OfWorkload(|scenario, workload| served(scenario, workload) == Some(false)),
        beside: &["workload.server"],
        remedy: OWN,
    },
    Setting {
        path: "workload.eap_tls.key",
        idle: Idle::OfWorkload(|scenario, workload| served(scenario, workload) == Some(false)),
        beside: &["workload.server"],
        remedy: OWN,
    },
    Setting {
        path: "workload.eap_tls.ca",
        idle: Idle::OfWorkload(|scenario, workload| served(scenario, workload) == Some(false)),
        beside: &["workload.server"],
        remedy: OWN,
    },
];

const RUN: &str = "the server is a service of its host, whose certificates are its own, and each handshake is computed: leave this out";
const OWN: &str = "the server is the workload's own, which knows the certificates that come with the program: let its host run \"aaa\", \
                   or leave this out";

/// Whether a workload is a dialogue by a transport of which this holds.
fn of_dialogue(workload: &Workload, is: fn(TransportProtocol) -> bool) -> bool {
    matches!(workload, Workload::Dialogue(dialogue) if is(dialogue.transport))
}

/// Whether the server of a workload's logins is a service of its host.
fn served(scenario: &Scenario, workload: &Workload) -> Option<bool> {
    match workload {
        Workload::Eap(eap) => Some(scenario.aaa_service(&eap.server).is_some()),
        _ => None,
    }
}

/// The settings of `given` that do nothing in a scenario. What an axis or a choice decides beside them may let them tell
/// at other points, which is in order: `varied` are the paths that those set.
pub(crate) fn idle(scenario: &Scenario, given: &TreeNode, varied: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for setting in &SETTINGS {
        let mut look = |idle: bool, of: &dyn Fn(&str) -> String| {
            let path = of(setting.path);
            let keys: Vec<String> = path.split('.').map(str::to_owned).collect();
            let there = given.steps(&keys).iter().try_fold(given, |node, step| node.child(step)).is_some();
            if there && idle && !setting.beside.iter().any(|beside| sets(varied, &of(beside))) {
                findings.push((keys, of(setting.remedy)));
            }
        };
        match setting.idle {
            Idle::Of(idle) => look(idle(scenario), &str::to_owned),
            Idle::OfWorkload(idle) => {
                for (name, workload) in scenario.all_workloads() {
                    look(idle(scenario, workload), &|text| of_workload(text, name));
                }
            }
        }
    }
    findings
}

/// Whether one of the paths is that of a setting, or of a table that has it.
fn sets(paths: &[String], setting: &str) -> bool {
    paths.iter().any(|path| setting::sets(path, setting))
}
