//! `manifest.json`: the plan, the program, the machine and the duration of a run.

use crate::{RunFileError, file};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use usher_core::WallTime;

/// The manifest of a run's folder. It is the only file with times, and so the only one that differs between two runs of
/// the same plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunManifest {
    /// Usher's version.
    pub usher_version: String,
    /// The study's name.
    pub study: String,
    /// The run's seed.
    pub seed: u64,
    /// The mode: "quick", "full" or another one of the study.
    pub mode: String,
    /// The changed parameters and the swept axes, as text.
    pub parameters: BTreeMap<String, String>,
    /// The plan's hash, as in the journal.
    pub plan_hash: String,
    /// The machine.
    pub host: RunHostInfo,
    /// The start of the run in UTC, as RFC 3339.
    pub started: String,
    /// The duration in seconds of wall time.
    pub elapsed_s: f64,
    /// Grid points with results.
    pub points: u64,
    /// Finished replications over all points.
    pub replications: u64,
    /// True if every point is complete; false after an interrupt.
    pub complete: bool,
    /// Further facts of the run: `packet_hops`, `wall_s`, `packet_hops_per_s`, `mean_delay_s`, `peak_rss_bytes`.
    #[serde(flatten)]
    pub facts: BTreeMap<String, ManifestValue>,
}

/// A fact's value.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ManifestValue {
    /// A count.
    Count(u64),
    /// A measurement; infinity and NaN become null in JSON.
    Number(f64),
    /// A boolean.
    Flag(bool),
    /// A text.
    Text(String),
    /// An unknown value.
    Unknown(()),
}

impl From<u64> for ManifestValue {
    fn from(n: u64) -> Self {
        Self::Count(n)
    }
}
impl From<f64> for ManifestValue {
    fn from(x: f64) -> Self {
        if x.is_finite() { Self::Number(x) } else { Self::Unknown(()) }
    }
}
impl From<bool> for ManifestValue {
    fn from(b: bool) -> Self {
        Self::Flag(b)
    }
}
impl From<&str> for ManifestValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
impl From<String> for ManifestValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// The machine of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunHostInfo {
    /// System and kernel release: "Linux 6.1.0".
    pub kernel: String,
    /// The processor's model name.
    pub cpu: String,
    /// Cores that the process may use.
    pub cores: usize,
}

impl RunHostInfo {
    /// Detects this machine; a field is "unknown" if the system does not provide it.
    pub fn detect() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let or_unknown = |text: &str| if text.is_empty() { "unknown" } else { text }.to_owned();
        let kernel = ["ostype", "osrelease"].map(|n| read(&format!("/proc/sys/kernel/{n}")));
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(':'));
        Self {
            kernel: or_unknown(kernel.each_ref().map(|t| t.trim()).join(" ").trim()),
            cpu: or_unknown(model.map_or("", |(_, name)| name.trim())),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl RunManifest {
    /// Returns the manifest as JSON text, indented by two spaces, with a final line feed.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a manifest has nothing JSON cannot hold");
        text.push('\n');
        text
    }

    /// Writes the file atomically.
    ///
    /// # Errors
    /// [`RunFileError::Io`].
    pub fn write_file(&self, path: &Path) -> Result<(), RunFileError> {
        file::write_file(path, |out| out.write_all(self.to_json().as_bytes()))
    }

    /// Reads a file that [`RunManifest::write_file`] wrote.
    ///
    /// # Errors
    /// [`RunFileError::Io`]; [`RunFileError::Malformed`] with the line.
    pub fn read_file(path: &Path) -> Result<Self, RunFileError> {
        let text = file::read_file(path)?;
        serde_json::from_str(&text).map_err(|e| {
            RunFileError::malformed_line(path, e.line(), format!("this is not a manifest of usher: {e}"))
        })
    }
}

/// A wall time as RFC 3339 writes it, in whole seconds UTC: `2026-01-31T12:00:00Z`.
pub fn format_rfc3339(at: WallTime) -> String {
    let (mut days, second) = (at.unix_secs() / 86_400, at.unix_secs() % 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::TempDir;

    fn test_manifest() -> RunManifest {
        RunManifest {
            usher_version: "0.1.0".into(),
            study: "bench-tcp-100".into(),
            seed: u64::MAX,
            mode: "quick".into(),
            parameters: [("loss".into(), "0, 0.05".into())].into(),
            plan_hash: "abc".into(),
            host: RunHostInfo { kernel: "Linux 6.1".into(), cpu: "A \"fast\" one".into(), cores: 2 },
            started: format_rfc3339(WallTime::from_unix_secs(0)),
            elapsed_s: 0.1 + 0.2,
            points: 4,
            replications: 40,
            complete: true,
            facts: [
                ("packet_hops".to_owned(), ManifestValue::from(4_000_000)),
                ("mean_delay_s".to_owned(), ManifestValue::from(0.022_42)),
                ("packet_hops_per_s".to_owned(), ManifestValue::from(f64::NAN)),
                ("capture".to_owned(), ManifestValue::from(true)),
            ]
            .into(),
        }
    }

    #[test]
    fn facts_stand_beside_the_fields_and_all_reads_back() {
        let json = test_manifest().to_json();
        assert!(json.contains("\n  \"packet_hops\": 4000000"), "{json}");
        assert!(json.contains("\n  \"packet_hops_per_s\": null"), "{json}");
        let folder = TempDir::new();
        let path = folder.file_path("manifest.json");
        test_manifest().write_file(&path).unwrap();
        assert_eq!(RunManifest::read_file(&path).unwrap(), test_manifest());
    }

    #[test]
    fn a_broken_manifest_is_named_with_its_line() {
        let folder = TempDir::new();
        let path = folder.file_path("manifest.json");
        std::fs::write(&path, "{\n  \"seed\": x\n}").unwrap();
        assert!(matches!(RunManifest::read_file(&path), Err(RunFileError::Malformed { line: 2, .. })));
    }

    #[test]
    fn this_machine_is_known() {
        let host = RunHostInfo::detect();
        assert!(host.cores >= 1);
        assert!(host.kernel.starts_with("Linux "), "{}", host.kernel);
    }

    #[test]
    fn calendar() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(format_rfc3339(WallTime::from_unix_secs(secs)), text);
        }
    }
}
