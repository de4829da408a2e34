//! `transport.tcp.preset` and `transport.sctp.preset`: lists of settings that fill the gaps of a study.
//!
//! The lists are TOML with the settings' own names. `docs/reference/transports.md` compares them and names their sources.

use crate::model::ConfigValue;
use crate::setting;
use std::sync::OnceLock;
use usher_config::DiagnosticCollector;
use usher_config::tree::{self, PathStep, TableEntry, TreeItem, TreeNode};

/// The presets of a protocol: name and settings.
type PresetList = &'static [(&'static str, &'static str)];

/// The presets of TCP.
pub const TCP: PresetList = &[
    ("rfc", include_str!("../presets/tcp-rfc.toml")),
    ("ns-2", include_str!("../presets/tcp-ns-2.toml")),
    ("ns-3", include_str!("../presets/tcp-ns-3.toml")),
    ("linux", include_str!("../presets/tcp-linux.toml")),
];

/// The presets of SCTP.
pub const SCTP: PresetList = &[
    ("rfc", include_str!("../presets/sctp-rfc.toml")),
    ("ns-2", include_str!("../presets/sctp-ns-2.toml")),
    ("linux", include_str!("../presets/sctp-linux.toml")),
];

/// The setting that TCP and SCTP share.
const SHARED: &str = "transport.nagle";
/// The settings that it sets.
const OF_EACH: [&str; 2] = ["transport.tcp.nagle", "transport.sctp.nagle"];

/// Maximum number of presets of a protocol.
const MOST: usize = 4;
const _: () = assert!(TCP.len() <= MOST && SCTP.len() <= MOST);

/// The settings of a list, in its order.
type PresetSettings = Vec<(String, ConfigValue)>;

/// The settings of TCP and SCTP, parsed once: planning needs them for every value of an axis.
static READ: [[OnceLock<PresetSettings>; MOST]; 2] = [const { [const { OnceLock::new() }; MOST] }; 2];

fn read_preset(text: &str) -> PresetSettings {
    let settings = tree::parse_source(0, &mut DiagnosticCollector::new("preset", text));
    let settings = settings.iter().flat_map(TreeNode::entries);
    settings.filter_map(|setting| Some((setting.key.clone(), setting.node.to_value()?))).collect()
}

/// True if one setting replaces the other.
pub(crate) fn overrides_setting(setting: &str, other: &str) -> bool {
    setting == SHARED && OF_EACH.contains(&other)
}

/// Copies the shared setting of `[transport]` to TCP and SCTP. Leaves an invalid value for the reader to report.
fn copy_shared_nagle_setting(study: &mut TreeNode) {
    let Some(nagle) = study.get("transport").and_then(|transport| transport.get("nagle")) else { return };
    if let TreeItem::Bool(_) = nagle.item {
        let nagle = nagle.clone();
        for path in OF_EACH {
            let place = nagle.span.clone();
            // An error is ignored: if `transport` is not a table, the reader reports it.
            let _ = setting::insert_setting_node(study, path, nagle.clone(), &place);
        }
    }
}

/// Fills in the shared settings and the presets, where a study's transports have no setting of their own. Leaves an
/// unknown preset for the reader to report.
pub(crate) fn apply_transport_presets(study: &mut TreeNode) {
    copy_shared_nagle_setting(study);
    for ((protocol, presets), read_once) in [("tcp", TCP), ("sctp", SCTP)].into_iter().zip(&READ) {
        let path = ["transport", protocol].map(|key| PathStep::Key(key.to_owned()));
        let Some(table) = path.iter().try_fold(&mut *study, |node, step| node.child_mut(step)) else {
            continue;
        };
        let Some(preset) = table.child(&PathStep::Key("preset".to_owned())) else { continue };
        let (TreeItem::Text(name), span) = (&preset.item, preset.span.clone()) else { continue };
        let mut lists = presets.iter().zip(read_once);
        let Some(((_, text), list)) = lists.find(|((known, _), _)| known == name) else { continue };
        let TreeItem::Table(entries) = &mut table.item else { continue };
        for (key, value) in list.get_or_init(|| read_preset(text)) {
            if !entries.iter().any(|e| e.key == *key) {
                let node = TreeNode::from_value(value, &span);
                entries.push(TableEntry { key: key.clone(), key_span: span.clone(), node });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SctpSettings, TcpSettings, TimestampEcho, TransportSettings};
    use crate::{PlanOverrides, Study, StudyMode};

    const NAGLE: &str = "[transport]\nnagle = false";

    /// Returns the template's transport settings with `text` as its `[transport]`.
    fn parse_template_transport(text: &str) -> TransportSettings {
        let (head, rest) = crate::default_template().split_once(NAGLE).unwrap();
        let (_, tail) = rest.split_once("\n\n").unwrap();
        let study =
            Study::parse("t", "t.toml", &format!("{head}{text}\n\n{tail}")).unwrap_or_else(|f| panic!("{f}"));
        let plan = study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
        plan.points[0].scenario.transport.clone()
    }

    #[test]
    fn the_rfcs_preset_is_what_a_study_without_one_has() {
        let given =
            parse_template_transport("[transport.tcp]\npreset = \"rfc\"\n[transport.sctp]\npreset = \"rfc\"");
        assert_eq!(
            given,
            TransportSettings { nagle: None, tcp: TcpSettings::default(), sctp: SctpSettings::default() }
        );
    }

    #[test]
    fn each_preset_has_the_settings_of_the_rfc_preset_and_no_others() {
        for (protocol, presets) in [("tcp", TCP), ("sctp", SCTP)] {
            let keys = |text: &'static str| {
                let line = |l: &'static str| l.split_once(" = ").map(|(key, _)| key);
                text.lines().filter(|l| !l.starts_with('#')).filter_map(line).collect::<Vec<_>>()
            };
            let all = keys(presets[0].1);
            assert!(all.len() > 10);
            for (name, text) in presets {
                let own = keys(text);
                assert!(all.iter().all(|key| own.contains(key)), "{protocol} {name}: {own:?}");
                parse_template_transport(&format!("[transport.{protocol}]\npreset = \"{name}\""));
            }
        }
    }

    #[test]
    fn what_a_study_gives_stands_against_its_preset() {
        let given = parse_template_transport("[transport.tcp]\nrto_min = \"7 ms\"\npreset = \"ns-2\"");
        assert_eq!(
            (given.tcp.rto_min.get().to_string(), given.tcp.mss.map(|s| s.bytes())),
            ("7 ms".into(), Some(536))
        );
        assert_eq!(given.sctp, SctpSettings::default());
    }

    #[test]
    fn what_the_transports_share_stands_against_their_presets() {
        let presets = "[transport.tcp]\npreset = \"linux\"\n[transport.sctp]\npreset = \"linux\"";
        for nagle in [false, true] {
            let given = parse_template_transport(&format!("[transport]\nnagle = {nagle}\n{presets}"));
            assert_eq!([given.tcp.nagle, given.sctp.nagle], [nagle; 2]);
            let alone = parse_template_transport(&format!("[transport]\nnagle = {nagle}"));
            let tcp = TcpSettings { nagle, ..TcpSettings::default() };
            assert_eq!(
                alone,
                TransportSettings {
                    nagle: Some(nagle),
                    tcp,
                    sctp: SctpSettings { nagle, ..SctpSettings::default() }
                }
            );
        }
    }

    #[test]
    fn a_preset_may_be_varied() {
        let text = crate::default_template().replace(NAGLE, "[transport.tcp]\npreset = \"ns-2\"");
        let study = Study::parse("t", "t.toml", &text).unwrap_or_else(|f| panic!("{f}"));
        for (preset, most) in [("rfc", "60 s"), ("ns-2", "60 s"), ("ns-3", "60 s"), ("linux", "120 s")] {
            let mut overrides = PlanOverrides::default();
            overrides.add_setting(&format!("transport.tcp.preset={preset}")).unwrap();
            let plan = study.build_plan(StudyMode::Quick, &overrides).unwrap_or_else(|f| panic!("{f}"));
            let tcp = &plan.points[0].scenario.transport.tcp;
            assert_eq!(tcp.rto_max.get().to_string(), most, "{preset}");
            // Two lists set a segment size; with the others there is none.
            let size = [("ns-2", 536), ("ns-3", 548)].iter().find(|(name, _)| *name == preset);
            assert_eq!(tcp.mss.map(|s| s.bytes()), size.map(|(_, bytes)| *bytes), "{preset}");
        }
    }

    #[test]
    fn the_page_shows_the_lists_as_they_are() {
        let page = include_str!("../../../docs/reference/transports.md");
        for presets in [TCP, SCTP] {
            let read = |(_, text): &(&'static str, &'static str)| {
                let line = |l: &'static str| {
                    let (key, rest) = l.split_once(" = ")?;
                    let value = match rest.strip_prefix('"') {
                        Some(quoted) => quoted.split('"').next()?,
                        None => rest.split(' ').next()?,
                    };
                    Some((key, value))
                };
                text.lines().filter(|l| !l.starts_with('#')).filter_map(line).collect::<Vec<_>>()
            };
            let lists: Vec<_> = presets.iter().map(read).collect();
            for (key, _) in lists.iter().flatten() {
                let cell = |list: &Vec<(&str, &str)>| {
                    list.iter().find(|(k, _)| k == key).map_or(String::new(), |(_, v)| format!("`{v}`"))
                };
                let cells: Vec<_> = lists.iter().map(cell).collect();
                let row = format!("| `{key}` | {} | ", cells.join(" | "));
                assert!(page.contains(&row), "docs/reference/transports.md lacks {row}");
            }
        }
    }

    #[test]
    fn a_preset_that_there_is_not_is_named_with_its_line() {
        let text = crate::default_template().replace(NAGLE, "[transport.tcp]\npreset = \"bsd\"");
        let faults = Study::parse("t", "t.toml", &text).unwrap_err().to_string();
        assert!(faults.contains("bsd") && faults.contains("linux"), "{faults}");
    }

    #[test]
    fn a_preset_may_be_an_axis() {
        let text = r#"
title = "t"
question = "q"
[run]
duration = "1 s"
[run.replications]
min = 2
max = 2
[hosts.client]
[hosts.server]
[links.l]
between = ["client", "server"]
delay = "10 ms"
[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "tcp"
rounds = [{ request = "20 B", answer = "20 B" }]
give_up = "5 s"
arrivals = { kind = "constant", interval = "1 s", count = 1 }
[[axes]]
name = "preset"
set = "transport.tcp.preset"
values = ["rfc", "ns-3"]
"#;
        let study = Study::parse("t", "t.toml", text).unwrap_or_else(|f| panic!("{f}"));
        let plan =
            study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap_or_else(|f| panic!("{f}"));
        let echoes: Vec<_> = plan.points.iter().map(|p| p.scenario.transport.tcp.timestamp_echo).collect();
        assert_eq!(echoes, [TimestampEcho::Rfc7323, TimestampEcho::PureAcknowledgements]);
    }

    #[test]
    fn ns_3_has_no_preset_of_sctp() {
        let text = crate::default_template().replace(NAGLE, "[transport.sctp]\npreset = \"ns-3\"");
        let line = 1 + text.lines().position(|l| l == "preset = \"ns-3\"").unwrap();
        let faults = Study::parse("t", "t.toml", &text).unwrap_err().to_string();
        assert!(faults.contains(&format!("t.toml:{line}:")) && faults.contains("ns-3"), "{faults}");
    }
}
