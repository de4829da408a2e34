//! Common parts of the wire tests: they run studies on the simulator, and read the captures by tshark and by a small
//! pcapng reader.

mod datagrams;
mod pcapng;
mod tshark;

pub use datagrams::DatagramCapture;
pub use pcapng::{CapturedPacket, UdpDatagram, udp_datagram};
pub use tshark::{DAMAGE, FLAWS, tshark_fields};

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use usher_runner::capture::{self, CapturedPackets};
use usher_runner::world::ScenarioRun;
use usher_scenario::{PlanOverrides, Study, StudyMode, StudyPlan};

/// A temporary folder of a test, removed when dropped.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates a new, empty folder.
    ///
    /// # Panics
    /// The folder cannot be created.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("usher-wire-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A folder left behind in the system's temporary folder does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Plans a study from a text without title and question.
///
/// # Panics
/// The text is faulty. The message lists the faults.
pub fn study_plan(text: &str) -> StudyPlan {
    let text = format!("title = \"T\"\nquestion = \"Q?\"\n{text}");
    let study = Study::parse("wire", "wire.toml", &text).unwrap_or_else(|faults| panic!("{faults}\n{text}"));
    study
        .build_plan(StudyMode::Default, &PlanOverrides::default())
        .unwrap_or_else(|faults| panic!("{faults}"))
}

/// A study of dialogues: a client queries a server two hops away, once a second for ten seconds, from the time 1 s
/// on. `tables` adds tables, such as a transport's. `workload` adds settings of the dialogue.
pub fn dialogue_study(tables: &str, workload: &str) -> String {
    format!(
        r#"
[run]
duration = "20 s"
warmup = "1 s"
[run.replications]
min = 1
max = 1
[hosts.client]
[hosts.router]
[hosts.server]
[links.access]
between = ["client", "router"]
rate = "10 Mb/s"
delay = "1 ms"
[links.core]
between = ["router", "server"]
rate = "1 Mb/s"
delay = "10 ms"
{tables}
[workload]
kind = "dialogue"
clients = "client"
server = "server"
arrivals = {{ kind = "constant", interval = "1 s", start = "2 s", count = 10 }}
{workload}
[capture]
links = ["access", "core"]
"#
    )
}

/// The arrivals of [`authentication_study`]: 24 logins, at an interval for each station.
pub const A_FEW: &str = "arrivals = { kind = \"closed\", start = \"1 s\", \
                         pause = { kind = \"exponential\", mean = \"2 s\" }, limit = 24 }";

/// A study of EAP-MD5 over Diameter: four stations at one NAS, with one connection or association to the server.
/// `core` adds properties of its link. `tables` adds tables, such as a transport's. `workload` adds settings of the
/// authentications, and their tables.
pub fn authentication_study(ip: &str, core: &str, tables: &str, workload: &str) -> String {
    format!(
        r#"
[run]
duration = "40 s"
drain = "120 s"
ip = "{ip}"
[run.replications]
min = 1
max = 1
[hosts.station]
count = 4
[hosts.nas]
[hosts.server]
[links.access]
between = ["station", "nas"]
rate = "10 Mb/s"
[links.core]
between = ["nas", "server"]
rate = "1.5 Mb/s"
delay = "10 ms"
{core}
{tables}
[workload]
kind = "eap"
stations = "station"
nas = "nas"
server = "server"
method = "eap-md5"
aaa = "diameter"
{workload}
[capture]
links = ["core"]
"#
    )
}

/// The metrics and the capture of one run.
#[derive(Debug)]
pub struct CapturedRun {
    metrics: Vec<(String, f64)>,
    folder: TempDir,
}

impl CapturedRun {
    /// Runs replication 0 of a study's first point and captures the links of the study's `[capture]`.
    ///
    /// # Panics
    /// The study is faulty, or its capture cannot be written.
    pub fn new(text: &str) -> Self {
        Self::from_plan(&study_plan(text))
    }

    /// The same for a founding study in quick mode, with these values of axes and settings.
    ///
    /// # Panics
    /// The study, a setting or a value does not exist.
    pub fn from_founding_study(name: &str, set: &[(&str, &str)]) -> Self {
        let set = set.iter().map(|(axis, value)| ((*axis).to_owned(), (*value).to_owned())).collect();
        let overrides = PlanOverrides { set, ..PlanOverrides::default() };
        let plan = Study::open(name).unwrap().build_plan(StudyMode::Quick, &overrides);
        Self::from_plan(&plan.unwrap_or_else(|faults| panic!("{faults}")))
    }

    fn from_plan(plan: &StudyPlan) -> Self {
        let point = &plan.points[0];
        let tap = Box::<CapturedPackets>::default();
        let links = &point.scenario.capture.links;
        let world = ScenarioRun::new(&point.scenario, point.replication_seed(0), links, Some(tap)).unwrap();
        let result = world.run_to_end().unwrap();
        let folder = TempDir::new();
        capture::write_capture(result.capture.unwrap(), &folder.path().join("capture.pcapng"), &[]).unwrap();
        Self { metrics: result.metrics, folder }
    }

    /// Returns a metric.
    ///
    /// # Panics
    /// The run has no metric of this name.
    pub fn metric(&self, name: &str) -> f64 {
        let found = self.metrics.iter().find(|(n, _)| n == name);
        found.unwrap_or_else(|| panic!("no metric {name} in {:?}", self.metrics)).1
    }

    /// Returns the path of the capture.
    pub fn capture_path(&self) -> PathBuf {
        self.folder.path().join("capture.pcapng")
    }

    /// Returns the captured packets, in order.
    ///
    /// # Panics
    /// The file is not a capture of [`usher_observe`].
    pub fn captured_packets(&self) -> Vec<CapturedPacket> {
        pcapng::read_packets(&std::fs::read(self.capture_path()).unwrap())
    }

    /// Returns tshark's fields of the frames that match `filter`, a line for each frame. Several values of a field
    /// are joined by commas.
    ///
    /// # Panics
    /// tshark is missing, or rejects the filter, a field or the capture.
    pub fn tshark_fields(&self, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
        tshark::tshark_fields(&self.capture_path(), filter, fields)
    }

    /// Returns the number of frames that match.
    ///
    /// # Panics
    /// As [`CapturedRun::tshark_fields`].
    pub fn frame_count(&self, filter: &str) -> usize {
        self.tshark_fields(filter, &["frame.number"]).len()
    }

    /// Asserts that tshark finds no flaw in any frame.
    ///
    /// # Panics
    /// tshark finds a flaw. The message shows the first such frames.
    #[track_caller]
    pub fn assert_clean(&self) {
        let flawed = self.tshark_fields(
            FLAWS,
            &["frame.number", "_ws.col.Protocol", "_ws.col.Info", "_ws.expert.message"],
        );
        assert!(flawed.is_empty(), "{} flawed frames: {:#?}", flawed.len(), &flawed[..flawed.len().min(5)]);
    }
}
