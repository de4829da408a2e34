//! The studies that come with the program.

use crate::model::ConfigValue;
use crate::study::Study;
use std::path::Path;
use usher_config::tree::{self, PathStep};
use usher_config::{ConfigEnvironment, DiagnosticCollector, EmptyConfigEnvironment};

/// Processor profiles of studies that come with the program: path and text.
const PROFILES: &[(&str, &str)] = &[
    ("profiles/eap-tls-2026-11.toml", include_str!("../../founding/profiles/eap-tls-2026-11.toml")),
    ("profiles/ike-gateway-2026-11.toml", include_str!("../../founding/profiles/ike-gateway-2026-11.toml")),
];

/// The files that come with the program, as an environment.
pub(crate) struct ShippedFiles;

impl ConfigEnvironment for ShippedFiles {
    fn read_text(&self, path: &Path) -> Result<String, String> {
        match PROFILES.iter().find(|(name, _)| Path::new(name) == path) {
            Some((_, text)) => Ok((*text).to_owned()),
            None => EmptyConfigEnvironment.read_text(path),
        }
    }
    fn read_secret(&self, path: &Path) -> Result<String, String> {
        EmptyConfigEnvironment.read_secret(path)
    }
    fn variable(&self, name: &str) -> Option<String> {
        EmptyConfigEnvironment.variable(name)
    }
}

/// A study that comes with the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundingStudy {
    /// Its name on the command line.
    pub name: &'static str,
    /// The text of its file.
    pub text: &'static str,
}

impl FoundingStudy {
    /// Returns a digest of its text and of the files that it names, equal to [`Study::digest`] of the loaded study.
    pub fn digest(&self) -> String {
        Study::open(self.name)
            .map_or_else(|_| crate::study::hex_digest(self.text.as_bytes()), |study| study.digest())
    }

    /// True if its text names the group. Reads nothing else of the text, because every lookup of a name calls this for
    /// all studies.
    fn belongs_to_group(&self, group: &str) -> bool {
        let tree = tree::parse_source(0, &mut DiagnosticCollector::new(self.name, self.text));
        let groups =
            tree.as_ref().and_then(|tree| tree.child(&PathStep::Key("groups".to_owned()))?.to_value());
        matches!(groups, Some(ConfigValue::Array(groups)) if groups.iter().any(|g| matches!(g, ConfigValue::Text(g) if g == group)))
    }
}

/// Declares the studies by the names of their files.
macro_rules! founding {
    ($($name:literal),+ $(,)?) => {
        &[$(FoundingStudy { name: $name, text: include_str!(concat!("../../founding/", $name, ".toml")) }),+]
    };
}

const ALL: &[FoundingStudy] = founding![
    "aaa-hol",
    "aaa-nagle",
    "aaa-delack",
    "aaa-packets",
    "aaa-congestion",
    "aaa-many-nas",
    "aaa-recovery",
    "aaa-connections",
    "aaa-sws",
    "aaa-accounting",
    "aaa-keys",
    "aaa-beyond",
    "aaa-advice",
    "aaa-sctp-delay",
    "mih-udp",
    "mih-tcp",
    "mih-sctp",
    "mih-shared-segment",
    "handover-mn",
    "handover-net",
    "mih-timers",
    "mih-response",
    "mih-lifetime",
    "mih-services",
    "mih-transaction",
    "bench-radius-100",
    "bench-tcp-100",
    "dialogue-polling",
    "dialogue-queue",
    "eduroam-day",
    "ike-auth",
    "ike-ping",
    "ike-applications",
    "ike-remote",
    "ike-parallel",
    "ike-scale",
    "pppoe-servers",
    "pppoe-wlan",
    "pppoe-many",
    "pppoe-aaa",
];

/// Returns all studies, in the order in which a group runs.
pub fn founding_studies() -> &'static [FoundingStudy] {
    ALL
}

/// Finds a study by its name.
pub fn find_founding_study(name: &str) -> Option<&'static FoundingStudy> {
    ALL.iter().find(|s| s.name == name)
}

/// Returns the names of a group's studies; empty if there is no such group.
pub fn group_members(group: &str) -> Vec<&'static str> {
    ALL.iter().filter(|s| s.belongs_to_group(group)).map(|s| s.name).collect()
}
