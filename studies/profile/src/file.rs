//! The format of profile files, and checks of a profile.

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use usher_config::tree::{PathStep, TreeNode};
use usher_config::units::{EventRate, Percentage, PositiveCount, TimeSpan};
use usher_config::{
    ConfigEnvironment, ConfigErrors, ConfigFormat, DiagnosticCollector, OrderedMap, name_hint, named,
};

/// The format of profile files.
pub const FORMAT: ConfigFormat = ConfigFormat { description: "a profile", version: 1, retired: &[] };

/// A profile: the costs of a login at a server, measured on one machine with one configuration.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Usher's profile of a server")]
pub struct ServerProfile {
    /// The version of the server. Other versions may have other costs and reject this profile.
    pub program: String,
    /// The day of the measurement, as 2026-11-25.
    pub date: String,
    /// The machine of the measurement.
    pub machine: MachineProfile,
    /// The configuration of the server.
    pub configuration: ServerConfiguration,
    /// CPU time of one unit of each kind of work (docs/reference/study-files.md lists them) on one core of that machine.
    pub work: OrderedMap<CpuCost>,
    /// The error bound of a unit's cost, with 95 % confidence, as far as the loads show it. Public-key operations have
    /// none: they are measured by themselves.
    #[serde(default)]
    pub within: OrderedMap<TimeSpan>,
    /// CPU time of a wake-up: an idle core receives something.
    #[serde(default)]
    pub wakeup: CpuCost,
    /// CPU time of receiving a batch of any size: with more load, more messages share it.
    #[serde(default)]
    pub batch: CpuCost,
    /// The measurements, by method.
    pub methods: OrderedMap<MethodProfile>,
    /// The store, if users were looked up in one.
    pub store: Option<StoreProfile>,
}

/// CPU time of the program and of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuCost {
    /// In the program.
    pub user: TimeSpan,
    /// In the kernel, on the program's behalf.
    pub system: TimeSpan,
}

impl CpuCost {
    /// Both, in seconds.
    #[must_use]
    pub fn total_seconds(self) -> f64 {
        self.user.get().as_secs_f64() + self.system.get().as_secs_f64()
    }
}

/// A machine.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineProfile {
    /// The processor's model, as the kernel says it.
    pub processor: String,
    /// Its cores.
    pub cores: PositiveCount,
    /// The kernel.
    pub kernel: String,
    /// The speed of one core at the operations of logins.
    pub reference: ReferenceCryptoRates,
}

/// Operations of logins per second of one core, by the server's library (AWS-LC).
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReferenceCryptoRates {
    /// Signatures with RSA of 2048 bits.
    pub rsa_2048_sign: EventRate,
    /// Signatures with ECDSA on P-256.
    pub ecdsa_p256_sign: EventRate,
    /// MD5 digests of 64 octets.
    pub md5: EventRate,
}

usher_core::named! {
    "a store of users";
    /// The store of users.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum StoreKind {
        /// The server's file.
        Memory = "memory",
        /// An SQLite database.
        Sqlite = "sqlite",
        /// A PostgreSQL database.
        Postgresql = "postgresql",
    }
}

/// The configuration of the server.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerConfiguration {
    /// SHA-256 of its configuration file, in hexadecimal.
    pub fingerprint: String,
    /// Its shards.
    pub shards: PositiveCount,
    /// The store of its users.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<StoreKind>")]
    pub store: StoreKind,
    /// Whether a cache kept users after their lookup, so that each needed only one lookup.
    pub cached: bool,
}

/// A method as it was measured, each figure for one login.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MethodProfile {
    /// Messages to the server.
    pub received: LoginTraffic,
    /// Messages from the server.
    pub sent: LoginTraffic,
    /// CPU time of the server at the last of the loads.
    pub server: CpuCost,
    /// CPU time of the generator, which has the users' side of the method.
    pub generator: CpuCost,
    /// Units of work that the server counted.
    pub units: OrderedMap<f64>,
    /// The loads.
    pub loads: Vec<MeasuredLoadPoint>,
    /// The shares of libraries in its CPU time, and the way of sampling.
    pub libraries: Option<LibraryCpuShares>,
}

impl MethodProfile {
    /// The computed share of the measured CPU time, at the load where it is farthest from 1; `None` without a load.
    #[must_use]
    pub fn accounted_cpu_fraction(&self) -> Option<f64> {
        let off = |share: &f64| share.ln().abs();
        self.loads.iter().map(|load| load.accounted).max_by(|a, b| off(a).total_cmp(&off(b)))
    }
}

/// Messages.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginTraffic {
    /// The number of messages.
    pub messages: f64,
    /// Octets of UDP or TCP payload in total.
    pub octets: f64,
}

/// One load at which a method was measured.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredLoadPoint {
    /// Logins a second.
    pub rate: EventRate,
    /// How many of them began at once.
    pub burst: PositiveCount,
    /// Logins measured.
    pub logins: u64,
    /// CPU time of the server for each.
    pub server: CpuCost,
    /// Number of times that a thread of the server went to sleep, for each login.
    pub wakeups: f64,
    /// Number of batches that the server received, for each login.
    pub batches: f64,
    /// Share of one core that the server used; with several it may be more than 1.
    pub utilisation: f64,
    /// The computed share of the measured CPU time, by the costs of `work`, `wakeup` and `batch`.
    pub accounted: f64,
}

/// The shares of libraries in the CPU time.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LibraryCpuShares {
    /// The clock of the samples: a hardware counter (`cycles`) or the CPU's time (`cpu-clock`).
    pub by: String,
    /// The number of samples.
    pub samples: u64,
    /// Shares by library.
    pub shares: OrderedMap<Percentage>,
}

/// The store.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreProfile {
    /// Mean duration of a lookup, at the distance of the measurement.
    pub lookup: TimeSpan,
    /// Round trips to the store in a lookup. A more distant store adds its additional distance this many times.
    pub round_trips: PositiveCount,
}

/// Reads a profile from its text. `known` are the names of all kinds of work.
///
/// # Errors
/// All faults, each with its line.
pub fn parse_profile(
    origin: &str,
    text: &str,
    outside: &dyn ConfigEnvironment,
    known: &[&str],
) -> Result<ServerProfile, ConfigErrors> {
    let mut faults = DiagnosticCollector::new(origin, text);
    let file = usher_config::read_document(&FORMAT, outside, &mut faults)
        .and_then(|tree| read_tree(tree, known, &mut faults));
    faults.finish(file)
}

/// Reads a profile from a parsed tree.
pub fn read_tree(
    mut tree: TreeNode,
    known: &[&str],
    faults: &mut DiagnosticCollector,
) -> Option<ServerProfile> {
    let before = faults.len();
    let read = usher_config::read_typed::<ServerProfile>(&mut tree, |_| false, faults);
    let file = read.value.filter(|_| read.is_complete)?;
    let place = |path: &[&str]| {
        tree.position_of(&path.iter().map(|k| PathStep::Key((*k).to_owned())).collect::<Vec<_>>())
    };
    let units = file.methods.iter().flat_map(|(method, m)| {
        m.units.names().map(move |label| (vec!["methods", method, "units", label], label))
    });
    let of = |table: &'static str| move |label| (vec![table, label], label);
    let costs = file.work.names().map(of("work")).chain(file.within.names().map(of("within")));
    for (path, label) in costs.chain(units) {
        if !known.contains(&label) {
            let near = name_hint(label, known.iter().copied());
            faults.add(place(&path), format!("there is no kind of work \"{label}\"{near}"));
        }
    }
    if file.methods.is_empty() {
        faults.add(place(&["methods"]), "the profile needs at least one method".to_owned());
    }
    for (name, method) in file.methods.iter() {
        let figures =
            [method.received.messages, method.received.octets, method.sent.messages, method.sent.octets];
        let units = method.units.iter().map(|(_, units)| *units);
        let points = method
            .loads
            .iter()
            .flat_map(|load| [load.wakeups, load.batches, load.utilisation, load.accounted]);
        if figures.into_iter().chain(units).chain(points).any(|x| !x.is_finite() || x < 0.0) {
            faults.add(place(&["methods", name]), format!("{name}: a figure is negative or not a number"));
        }
        if method.received.messages <= 0.0 {
            faults.add(
                place(&["methods", name, "received"]),
                format!("{name}: a login needs at least one message"),
            );
        }
    }
    if faults.len() == before
        && let Err(unsound) = file.check_costs_explain_loads()
    {
        let message = format!("{unsound}: the profile is unusable; calibrate again on an idle machine");
        faults.add(place(&unsound.profile_tree_path()), message);
    }
    (faults.len() == before).then_some(file)
}

/// Permitted computed shares of the measured CPU time: for the last load of a method, which shows the server's limit,
/// and for the others.
const ACCOUNTED: [std::ops::RangeInclusive<f64>; 2] = [0.9..=1.1, 0.5..=2.0];

/// The smallest share of the kinds of work in a login's cost at a busy server.
const WORK_SHARE: f64 = 0.5;

/// The reason why a profile gives no costs of logins at other loads than the measured ones.
#[derive(Clone, PartialEq, Debug)]
pub enum UnsoundProfileError {
    /// The costs do not account for the measured CPU time.
    Accounted {
        /// The method.
        method: String,
        /// Logins a second of the load.
        rate: f64,
        /// The computed share of the measured CPU time.
        share: f64,
    },
    /// All of a login's cost was found to be wake-ups.
    Free {
        /// The method.
        method: String,
    },
}

impl UnsoundProfileError {
    fn profile_tree_path(&self) -> [&str; 2] {
        match self {
            Self::Accounted { method, .. } | Self::Free { method } => ["methods", method],
        }
    }
}

impl std::error::Error for UnsoundProfileError {}

impl fmt::Display for UnsoundProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accounted { method, rate, share } => write!(
                f,
                "{method}: its costs account for {:.0} % of the measured CPU time at {rate:.0} logins a second",
                share * 100.0
            ),
            Self::Free { method } => {
                write!(f, "{method}: the measurement does not separate its work from the server's wake-ups")
            }
        }
    }
}

/// The requirements that a profile must meet.
#[derive(Clone, Copy, Debug)]
pub struct ProfileRequirement<'a> {
    /// The version of the program that needs it.
    pub program: &'a str,
    /// Methods that it must have.
    pub methods: &'a [String],
    /// The store of users; `None` for any.
    pub store: Option<StoreKind>,
}

/// The reason why a profile does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProfileMismatchError {
    /// It is from another version.
    Program {
        /// The profile's.
        profile: String,
        /// The one that asks.
        program: String,
    },
    /// It has no such method.
    Method {
        /// The method.
        method: String,
        /// Those it has.
        available_methods: Vec<String>,
    },
    /// Its users were elsewhere.
    Store {
        /// The profile's.
        profile: StoreKind,
        /// The one that is wanted.
        required_store: StoreKind,
    },
}

impl fmt::Display for ProfileMismatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program { profile, program } => write!(
                f,
                "the profile is of usher {profile} and this is usher {program}, which may have other costs: measure \
                 again with usher load --calibrate, or accept the profile with any_version = true in the file or \
                 usher plan --any-version"
            ),
            Self::Method { method, available_methods: known } => write!(
                f,
                "the profile has no method \"{method}\"{}; it has {}: measure it with usher load --calibrate",
                name_hint(method, known.iter().map(String::as_str)),
                known.join(", ")
            ),
            Self::Store { profile, required_store: wanted } => write!(
                f,
                "the profile's users were in {} and yours are in {}, which has other costs: measure with that store",
                profile.name(),
                wanted.name()
            ),
        }
    }
}

impl ServerProfile {
    /// Checks that the profile meets the requirements.
    ///
    /// # Errors
    /// The unmet requirement.
    pub fn check_requirements(&self, wanted: &ProfileRequirement<'_>) -> Result<(), ProfileMismatchError> {
        if self.program != wanted.program {
            return Err(ProfileMismatchError::Program {
                profile: self.program.clone(),
                program: wanted.program.to_owned(),
            });
        }
        if let Some(method) = wanted.methods.iter().find(|m| self.methods.get(m).is_none()) {
            let known = self.methods.names().map(str::to_owned).collect();
            return Err(ProfileMismatchError::Method { method: method.clone(), available_methods: known });
        }
        match wanted.store {
            Some(store) if store != self.configuration.store => {
                Err(ProfileMismatchError::Store { profile: self.configuration.store, required_store: store })
            }
            _ => Ok(()),
        }
    }

    /// Checks that its costs account for the measurements, so that they can be charged.
    ///
    /// # Errors
    /// The costs do not account for them.
    pub fn check_costs_explain_loads(&self) -> Result<(), UnsoundProfileError> {
        for (name, method) in self.methods.iter() {
            let method_name = || name.to_owned();
            let [busy, others] = ACCOUNTED;
            let last = method.loads.len().saturating_sub(1);
            let bounds = |at: usize| if at == last { &busy } else { &others };
            let mut loads = method.loads.iter().enumerate();
            if let Some((_, load)) = loads.find(|(at, load)| !bounds(*at).contains(&load.accounted)) {
                let (rate, share) = (load.rate.per_second(), load.accounted);
                return Err(UnsoundProfileError::Accounted { method: method_name(), rate, share });
            }
            let busy = method.loads.last().map_or(0.0, |load| load.server.total_seconds());
            let work = self.method_work_seconds(method);
            if work <= 0.0 || work < busy * WORK_SHARE {
                return Err(UnsoundProfileError::Free { method: method_name() });
            }
        }
        Ok(())
    }

    /// The kinds of work that logins had and that have no cost of their own, since no load told them from others, which have theirs.
    #[must_use]
    pub fn uncosted_work_labels(&self) -> BTreeSet<&str> {
        let counted = self.methods.iter().flat_map(|(_, method)| method.units.names());
        counted.filter(|label| self.work.get(label).is_none()).collect()
    }

    /// True if the cost of a kind of work is at most its error bound.
    #[must_use]
    pub fn is_work_cost_doubtful(&self, label: &str) -> bool {
        let cost = self.work.get(label).map_or(0.0, |cost| cost.total_seconds());
        self.within.get(label).is_some_and(|within| within.get().as_secs_f64() >= cost)
    }

    /// CPU time of a method's work alone, seconds.
    fn method_work_seconds(&self, method: &MethodProfile) -> f64 {
        let cost =
            |(label, units): (&str, &f64)| self.work.get(label).map_or(0.0, |c| c.total_seconds() * units);
        method.units.iter().map(cost).sum()
    }

    /// CPU time of a method's login on a core that is always busy, in seconds. The server's limit is its inverse, for
    /// each core.
    #[must_use]
    pub fn busy_login_seconds(&self, method: &MethodProfile) -> f64 {
        self.method_work_seconds(method) + self.batch.total_seconds() * method.received.messages / FULL_BATCH
    }
}

/// How many messages a busy server takes in at a time.
pub const FULL_BATCH: f64 = 64.0;

/// The JSON Schema of profiles, as `docs/profile.schema.json` holds it: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    usher_config::json_schema::<ServerProfile>(&FORMAT)
}
