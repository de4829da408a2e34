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

/// What profiles are.
pub const FORMAT: ConfigFormat = ConfigFormat { description: "a profile", version: 1, retired: &[] };

/// What one login costs a server, measured on one machine with one configuration.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Usher's profile of a server")]
pub struct ServerProfile {
    /// The version of the program that served. Another version may cost otherwise, so that it refuses this profile.
    pub program: String,
    /// The day of the measurement, as 2026-11-25.
    pub date: String,
    /// The machine that it was measured on.
    pub machine: MachineProfile,
    /// What the server was set to.
    pub configuration: ServerConfiguration,
    /// CPU time of one unit of each kind of work (docs/study-files.md lists them) on one core of that machine.
    pub work: OrderedMap<CpuCost>,
    /// By how much the cost of a unit may be off, with 95 % confidence, as far as the loads show it. Public-key operations, which are
    /// timed by themselves, have none here.
    #[serde(default)]
    pub within: OrderedMap<TimeSpan>,
    /// CPU time of waking up: of a core that found nothing to do, and then something came.
    #[serde(default)]
    pub wakeup: CpuCost,
    /// CPU time of taking in what has come, however much that is: with more load more messages share it.
    #[serde(default)]
    pub batch: CpuCost,
    /// What was measured, by method.
    pub methods: OrderedMap<MethodProfile>,
    /// The store, where users were looked up in one.
    pub store: Option<StoreProfile>,
}

/// CPU time, apart by who had it.
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
    /// How fast one core is at what logins need.
    pub reference: MachineReference,
}

/// How often a second one core does what logins need, by the library that the server uses (AWS-LC).
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineReference {
    /// Signatures by RSA with 2048 bits made.
    pub rsa_2048_sign: EventRate,
    /// Signatures by ECDSA on P-256 made.
    pub ecdsa_p256_sign: EventRate,
    /// MD5 digests of 64 octets.
    pub md5: EventRate,
}

usher_core::named! {
    "where users are";
    /// Where users are.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum StoreKind {
        /// In the server's file.
        Memory = "memory",
        /// In an SQLite database.
        Sqlite = "sqlite",
        /// In a PostgreSQL database.
        Postgresql = "postgresql",
    }
}

/// What the server was set to.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerConfiguration {
    /// SHA-256 of its configuration file, in hexadecimal.
    pub fingerprint: String,
    /// Its shards.
    pub shards: PositiveCount,
    /// Where its users are.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<StoreKind>")]
    pub store: StoreKind,
    /// Whether users were remembered after they were looked up, so that the store was asked for each once only.
    pub cached: bool,
}

/// A method as it was measured, each figure for one login.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MethodProfile {
    /// What came to the server.
    pub received: LoginTraffic,
    /// What it sent.
    pub sent: LoginTraffic,
    /// CPU time of the server at the last of the loads.
    pub server: CpuCost,
    /// CPU time of the generator, whose users are the other side of the method.
    pub generator: CpuCost,
    /// Units of work that the server counted.
    pub units: OrderedMap<f64>,
    /// Each load.
    pub loads: Vec<LoadPoint>,
    /// How its CPU time was divided among libraries, and how that was found out.
    pub libraries: Option<LibraryShares>,
}

impl MethodProfile {
    /// What its costs give as a share of what was measured, of all loads where that is farthest from all of it; none without a load.
    #[must_use]
    pub fn accounted_fraction(&self) -> Option<f64> {
        let off = |share: &f64| share.ln().abs();
        self.loads.iter().map(|load| load.accounted).max_by(|a, b| off(a).total_cmp(&off(b)))
    }
}

/// Messages.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginTraffic {
    /// How many.
    pub messages: f64,
    /// Octets of UDP or TCP payload in all.
    pub octets: f64,
}

/// One load at which a method was measured.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadPoint {
    /// Logins a second.
    pub rate: EventRate,
    /// How many of them began at once.
    pub burst: PositiveCount,
    /// Logins measured.
    pub logins: u64,
    /// CPU time of the server for each.
    pub server: CpuCost,
    /// How often for each login a thread of the server went to sleep.
    pub wakeups: f64,
    /// How often for each login it took in what had come.
    pub batches: f64,
    /// Share of one core that the server used; with several it may be more than 1.
    pub utilisation: f64,
    /// What the costs of `work`, `wakeup` and `batch` give for it, as a share of what was measured.
    pub accounted: f64,
}

/// How CPU time was divided.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LibraryShares {
    /// By what: samples of a hardware counter (`cycles`) or of the CPU's time (`cpu-clock`).
    pub by: String,
    /// How many samples.
    pub samples: u64,
    /// Shares by library.
    pub shares: OrderedMap<Percentage>,
}

/// The store.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreProfile {
    /// How long it took to find a user, on average, with the store as near as it was.
    pub lookup: TimeSpan,
    /// How often a look-up goes to the store and back: as many times its distance comes on top, where it is farther away.
    pub round_trips: PositiveCount,
}

/// Reads a profile from its text. `known` are the names of all kinds of work.
///
/// # Errors
/// Everything that is wrong with it, each fault with its line.
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

/// The same of a tree that was read.
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
        faults.add(place(&["methods"]), "no method was measured; at least one is needed".to_owned());
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
            faults.add(place(&["methods", name]), format!("{name}: a figure is below 0 or none at all"));
        }
        if method.received.messages <= 0.0 {
            faults.add(place(&["methods", name, "received"]), format!("{name}: a login without a message"));
        }
    }
    if faults.len() == before
        && let Err(unsound) = file.check_soundness()
    {
        let message = format!("{unsound}: it cannot be charged; calibrate again where nothing else runs");
        faults.add(place(&unsound.tree_path()), message);
    }
    (faults.len() == before).then_some(file)
}

/// Shares of what was measured that costs may give: for the last load of a method, which says what a server can do at most, and for
/// the others.
const ACCOUNTED: [std::ops::RangeInclusive<f64>; 2] = [0.9..=1.1, 0.5..=2.0];

/// The least share that kinds of work have in what a login costs a busy server.
const WORK_SHARE: f64 = 0.5;

/// Why a profile says nothing of what logins cost at other loads than those measured.
#[derive(Clone, PartialEq, Debug)]
pub enum UnsoundProfile {
    /// The costs give something else than what was measured.
    Accounted {
        /// The method.
        method: String,
        /// Logins a second of the load.
        rate: f64,
        /// Share of what was measured.
        share: f64,
    },
    /// All that a login costs was found to be wake-ups.
    Free {
        /// The method.
        method: String,
    },
}

impl UnsoundProfile {
    fn tree_path(&self) -> [&str; 2] {
        match self {
            Self::Accounted { method, .. } | Self::Free { method } => ["methods", method],
        }
    }
}

impl std::error::Error for UnsoundProfile {}

impl fmt::Display for UnsoundProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accounted { method, rate, share } => write!(
                f,
                "{method}: its costs account for {:.0} % of what was measured at {rate:.0} logins a second",
                share * 100.0
            ),
            Self::Free { method } => {
                write!(
                    f,
                    "{method}: what was measured does not tell its work from the wake-ups of the server"
                )
            }
        }
    }
}

/// What a profile is wanted for.
#[derive(Clone, Copy, Debug)]
pub struct ProfileRequirement<'a> {
    /// The program that asks.
    pub program: &'a str,
    /// Methods that it must have been measured with.
    pub methods: &'a [String],
    /// Where users will be; `None` where nobody says.
    pub store: Option<StoreKind>,
}

/// Why a profile does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProfileMisfit {
    /// It is another version's.
    Program {
        /// The profile's.
        profile: String,
        /// The one that asks.
        program: String,
    },
    /// It has no such method.
    Method {
        /// Which.
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

impl fmt::Display for ProfileMisfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program { profile, program } => write!(
                f,
                "the profile is of usher {profile} and this is usher {program}, whose logins may cost otherwise: measure \
                 again with usher load --calibrate"
            ),
            Self::Method { method, available_methods: known } => write!(
                f,
                "the profile has no method \"{method}\"{}; it has {}: measure it with usher load --calibrate",
                name_hint(method, known.iter().map(String::as_str)),
                known.join(", ")
            ),
            Self::Store { profile, required_store: wanted } => write!(
                f,
                "the profile's users were in {} and yours are in {}, which costs otherwise: measure with that store",
                profile.name(),
                wanted.name()
            ),
        }
    }
}

impl ServerProfile {
    /// Whether it is of use for something.
    ///
    /// # Errors
    /// Why not, as a sentence.
    pub fn check_fit(&self, wanted: &ProfileRequirement<'_>) -> Result<(), ProfileMisfit> {
        if self.program != wanted.program {
            return Err(ProfileMisfit::Program {
                profile: self.program.clone(),
                program: wanted.program.to_owned(),
            });
        }
        if let Some(method) = wanted.methods.iter().find(|m| self.methods.get(m).is_none()) {
            let known = self.methods.names().map(str::to_owned).collect();
            return Err(ProfileMisfit::Method { method: method.clone(), available_methods: known });
        }
        match wanted.store {
            Some(store) if store != self.configuration.store => {
                Err(ProfileMisfit::Store { profile: self.configuration.store, required_store: store })
            }
            _ => Ok(()),
        }
    }

    /// Whether its costs give what was measured, and can be charged.
    ///
    /// # Errors
    /// Where they do not.
    pub fn check_soundness(&self) -> Result<(), UnsoundProfile> {
        for (name, method) in self.methods.iter() {
            let method_name = || name.to_owned();
            let [busy, others] = ACCOUNTED;
            let last = method.loads.len().saturating_sub(1);
            let bounds = |at: usize| if at == last { &busy } else { &others };
            let mut loads = method.loads.iter().enumerate();
            if let Some((_, load)) = loads.find(|(at, load)| !bounds(*at).contains(&load.accounted)) {
                let (rate, share) = (load.rate.per_second(), load.accounted);
                return Err(UnsoundProfile::Accounted { method: method_name(), rate, share });
            }
            let busy = method.loads.last().map_or(0.0, |load| load.server.total_seconds());
            let work = self.work_cost(method);
            if work <= 0.0 || work < busy * WORK_SHARE {
                return Err(UnsoundProfile::Free { method: method_name() });
            }
        }
        Ok(())
    }

    /// The kinds of work that logins had and that have no cost of their own, since no load told them from others, which have theirs.
    #[must_use]
    pub fn unpriced_kinds(&self) -> BTreeSet<&str> {
        let counted = self.methods.iter().flat_map(|(_, method)| method.units.names());
        counted.filter(|label| self.work.get(label).is_none()).collect()
    }

    /// Whether the cost of a kind of work is no more than it may be off by.
    #[must_use]
    pub fn is_doubtful(&self, label: &str) -> bool {
        let cost = self.work.get(label).map_or(0.0, |cost| cost.total_seconds());
        self.within.get(label).is_some_and(|within| within.get().as_secs_f64() >= cost)
    }

    /// CPU time of a method's work alone, seconds.
    fn work_cost(&self, method: &MethodProfile) -> f64 {
        let cost =
            |(label, units): (&str, &f64)| self.work.get(label).map_or(0.0, |c| c.total_seconds() * units);
        method.units.iter().map(cost).sum()
    }

    /// CPU time of a method's login on a core that is never without work: what a server can do at most is one over it, for each
    /// core. Seconds.
    #[must_use]
    pub fn busy_cost(&self, method: &MethodProfile) -> f64 {
        self.work_cost(method) + self.batch.total_seconds() * method.received.messages / FULL_BATCH
    }
}

/// How many messages a busy server takes in at a time.
pub const FULL_BATCH: f64 = 64.0;

/// The JSON Schema of profiles, as `docs/profile.schema.json` holds it: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    usher_config::json_schema::<ServerProfile>(&FORMAT)
}
