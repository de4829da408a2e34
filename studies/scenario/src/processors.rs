//! Processors of hosts by a profile: `processor = "profile.toml"`.
//!
//! The file becomes a part of the study's tree, like the configuration of a service. The study's digest covers it,
//! faults have its lines, and axes reach `hosts.server.processor.cores`. In a point's tree, the `cpu` made from the
//! profile replaces it.

use crate::model::CpuSettings;
use crate::services::source_folder;
use crate::work;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use std::path::{Component, PathBuf};
use usher_aaa::AuthMethod;
use usher_config::tree::{PathStep, TableEntry, TreeItem, TreeNode};
use usher_config::units::{PositiveCount, TimeSpan};
use usher_config::{ConfigEnvironment, ConfigValue, DiagnosticCollector, OptionalPosition, OrderedMap};
use usher_core::{Duration, WorkLabel};
use usher_profile::{
    LOOKUP, MachineSpeedFactors, ProfileRequirement, ReferenceCryptoRates, ServerProfile, StoreKind,
};

const HOSTS: &str = "hosts";
const PROCESSOR: &str = "processor";
const PROFILE: &str = "profile";
const CPU: &str = "cpu";

/// A processor with the costs of a profile.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProfiledProcessor {
    /// The profile: its file, relative to this file's folder, or the same keys as a table.
    #[schemars(schema_with = "profile_schema")]
    profile: Option<ConfigValue>,
    /// The number of cores.
    #[serde(default = "one")]
    cores: PositiveCount,
    /// All times as a multiple of those on the profile's machine: 2 for a processor that is half as fast.
    scale: Option<f64>,
    /// Instead of `scale`: the speed of a core of this machine at the operations of the profile's reference. `usher
    /// load --calibrate` measures it.
    reference: Option<ReferenceCryptoRates>,
    /// Additional round-trip time to the store, compared with the profile.
    #[serde(default)]
    distance: TimeSpan,
    /// Accepts a profile of another version of Usher.
    #[serde(default)]
    any_version: bool,
}

const fn one() -> PositiveCount {
    PositiveCount::ONE
}

fn profile_schema(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "anyOf": [{ "type": "string" }, { "type": "object" }] })
}

/// In a schema: a file's name, or a table.
pub(crate) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let table = generator.subschema_for::<ProfiledProcessor>();
    schemars::json_schema!({ "anyOf": [{ "type": "string" }, table] })
}

fn host_entries(tree: &mut TreeNode) -> &mut [TableEntry] {
    match tree.child_mut(&PathStep::Key(HOSTS.to_owned())).map(|hosts| &mut hosts.item) {
        Some(TreeItem::Table(hosts)) => hosts,
        _ => &mut [],
    }
}

/// Puts the profiles that hosts name into their places in a study's tree.
pub(crate) fn insert_host_profiles(
    tree: &mut TreeNode,
    outside: &dyn ConfigEnvironment,
    faults: &mut DiagnosticCollector,
) {
    for host in host_entries(tree) {
        let Some(processor) = host.node.child_mut(&PathStep::Key(PROCESSOR.to_owned())) else { continue };
        // A text instead of a table is the file name of a profile.
        if let TreeItem::Text(file) = &processor.item {
            let span = processor.span.clone();
            let node = TreeNode::from_value(&ConfigValue::Text(file.clone()), &span);
            processor.item =
                TreeItem::Table(vec![TableEntry { key: PROFILE.to_owned(), key_span: span, node }]);
        }
        let Some(profile) = processor.child_mut(&PathStep::Key(PROFILE.to_owned())) else { continue };
        let TreeItem::Text(file) = &profile.item else { continue };
        let path: PathBuf = source_folder(&profile.span, faults).join(file);
        let path = path.components().filter(|part| *part != Component::CurDir).collect::<PathBuf>();
        if let Some(file) = usher_config::read_additional_document(
            &path,
            &profile.span,
            &usher_profile::FORMAT,
            outside,
            faults,
        ) {
            *profile = file;
        }
    }
}

/// Replaces the processors of a point's tree by what they cost.
pub(crate) fn replace_processors_by_costs(tree: &mut TreeNode, faults: &mut DiagnosticCollector) {
    let logins = login_methods(tree);
    for host in host_entries(tree) {
        let Some(mut entry) = host.node.take_entry(PROCESSOR) else { continue };
        let place = entry.key_span.clone();
        if let Some(cpu) = host.node.get(CPU) {
            let message = format!(
                "\"{}\" has both processor and cpu: leave one of them out; a processor takes its costs from the \
                 profile and its cores from processor.cores",
                host.key
            );
            faults.add(cpu.span.clone(), message);
            continue;
        }
        let read = usher_config::read_typed::<ProfiledProcessor>(&mut entry.node, |_| false, faults);
        let Some(processor) = read.value.filter(|_| read.is_complete) else { continue };
        if processor.profile.is_none() {
            let message = format!(
                "\"{}\" has a processor without a profile: name its file, as processor = \"profile.toml\"",
                host.key
            );
            faults.add(place, message);
            continue;
        }
        // Skip a profile that is still a file name: the file was unreadable, which is already reported.
        let Some(profile) = entry.node.take_entry(PROFILE) else { continue };
        if matches!(profile.node.item, TreeItem::Text(_)) {
            continue;
        }
        let names: Vec<&str> = work::all_work_labels().map(WorkLabel::name).collect();
        let Some(file) = usher_profile::read_tree(profile.node, &names, faults) else { continue };
        let methods: Vec<String> = logins
            .iter()
            .filter(|(server, _)| *server == host.key)
            .map(|(_, method)| method.clone())
            .collect();
        let program = if processor.any_version { &file.program } else { env!("CARGO_PKG_VERSION") };
        let wanted = ProfileRequirement { program, methods: &methods, store: host_store_kind(&host.node) };
        if let Err(misfit) = file.check_requirements(&wanted) {
            faults.add(place, format!("\"{}\": {misfit}", host.key));
            continue;
        }
        match processor.work_scale(&file) {
            Ok(scale) => {
                let cpu = cpu_table(&file, processor.cores, scale, processor.distance);
                insert_cpu_table(&mut host.node, &cpu, &place);
            }
            Err(message) => faults.add(place, format!("\"{}\": {message}", host.key)),
        }
    }
}

impl ProfiledProcessor {
    fn work_scale(&self, file: &ServerProfile) -> Result<MachineSpeedFactors, &'static str> {
        match (self.scale, &self.reference) {
            (Some(_), Some(_)) => {
                Err("processor.scale and processor.reference both set the speed: leave one of them out")
            }
            (Some(factor), None) if factor.is_finite() && factor > 0.0 => {
                Ok(MachineSpeedFactors::with_uniform_factor(factor))
            }
            (Some(_), None) => Err("processor.scale must be above 0"),
            (None, Some(reference)) => Ok(MachineSpeedFactors::for_machine(file, reference)),
            (None, None) => Ok(MachineSpeedFactors::with_uniform_factor(1.0)),
        }
    }
}

/// Returns the equivalent `[hosts.NAME] cpu`: the profile's work on this number of cores, scaled, with additional
/// distance to the store.
fn cpu_table(
    file: &ServerProfile,
    cores: PositiveCount,
    scale: MachineSpeedFactors,
    distance: TimeSpan,
) -> ConfigValue {
    let time =
        |seconds: f64| ConfigValue::Text(format!("{} ns", Duration::from_secs_f64(seconds).as_nanos()));
    let (mut service, mut aside) = (OrderedMap::default(), OrderedMap::default());
    let looked_up = file.store.is_some();
    for (label, cost) in file.work.iter() {
        // If the profile gives the store's lookup duration, a lookup waits aside. Otherwise its cost loads the
        // processor.
        let to = if label == LOOKUP && looked_up { &mut aside } else { &mut service };
        to.insert(label.to_owned(), time(cost.total_seconds() * scale.work_label_factor(label)));
    }
    if let Some(store) = &file.store {
        let away = distance.get().as_secs_f64() * f64::from(store.round_trips.get());
        service.insert(LOOKUP.to_owned(), time(store.lookup.get().as_secs_f64() + away));
    }
    let mut cpu = OrderedMap::default();
    for (key, value) in [
        ("cores", ConfigValue::Integer(i64::from(cores.get()))),
        ("service", ConfigValue::Table(service)),
        ("aside", ConfigValue::Table(aside)),
        ("wakeup", time(file.wakeup.total_seconds() * scale.rest)),
        ("batch", time(file.batch.total_seconds() * scale.rest)),
    ] {
        cpu.insert(key.to_owned(), value);
    }
    ConfigValue::Table(cpu)
}

/// Returns the processor of a profile, as a study's host has it.
///
/// # Errors
/// The profile gives no processor. This is a defect of the program: a profile that was read has a cost for each kind of
/// work.
pub fn profiled_cpu(
    file: &ServerProfile,
    cores: PositiveCount,
    scale: MachineSpeedFactors,
    distance: TimeSpan,
) -> Result<CpuSettings, String> {
    let mut faults = DiagnosticCollector::new("the profile", "");
    let mut node = TreeNode::from_value(&cpu_table(file, cores, scale, distance), &None);
    let read = usher_config::read_typed::<CpuSettings>(&mut node, |_| false, &mut faults);
    faults.finish(read.value).map_err(|faults| faults.to_string())
}

fn insert_cpu_table(host: &mut TreeNode, cpu: &ConfigValue, place: &OptionalPosition) {
    if let TreeItem::Table(entries) = &mut host.item {
        let node = TreeNode::from_value(cpu, place);
        entries.push(TableEntry { key: CPU.to_owned(), key_span: place.clone(), node });
    }
}

/// Returns the servers of all workloads that log in, with the methods' names in profiles.
fn login_methods(tree: &TreeNode) -> Vec<(String, String)> {
    let several = tree.get("workloads").map(TreeNode::entries).unwrap_or_default();
    let all = tree.get("workload").into_iter().chain(several.iter().map(|entry| &entry.node));
    let text = |node: &TreeNode, key: &str| match &node.get(key)?.item {
        TreeItem::Text(text) => Some(text.clone()),
        _ => None,
    };
    all.filter_map(|workload| {
        let method = profile_method_name(&text(workload, "method")?)?;
        let diameter = text(workload, "aaa").is_some_and(|aaa| aaa == "diameter");
        let name = match (diameter, method) {
            (false, method) => method.to_owned(),
            (true, method) if method.starts_with("eap-") => format!("diameter-{method}"),
            (true, method) => format!("diameter-eap-{method}"),
        };
        Some((text(workload, "server")?, name))
    })
    .collect()
}

/// Returns the name that profiles have for a method of the workload `eap`.
fn profile_method_name(name: &str) -> Option<&'static str> {
    match AuthMethod::ALL.iter().copied().find(|method| method.name() == name)? {
        AuthMethod::EapMd5 => Some("eap-md5"),
        AuthMethod::EapMsChapV2 => Some("eap-mschapv2"),
        AuthMethod::EapTls => Some("eap-tls"),
        AuthMethod::Peap => Some("peap-mschapv2"),
        AuthMethod::Ttls => Some("ttls-pap"),
        _ => None,
    }
}

/// Returns the store of a host's AAA server; `None` if it runs none.
fn host_store_kind(host: &TreeNode) -> Option<StoreKind> {
    let runs = host.get("runs")?;
    let is = |node: &TreeNode| matches!(&node.item, TreeItem::Text(text) if text == "aaa");
    let alone = is(runs);
    let config = match &runs.item {
        TreeItem::Array(all) if all.iter().any(is) => host.get("config")?.get("aaa")?,
        _ if alone => host.get("config")?,
        _ => return None,
    };
    match config.get("users").and_then(|users| users.get("store")).map(|store| &store.item) {
        Some(TreeItem::Text(name)) => StoreKind::from_name(name),
        Some(_) => None,
        None => Some(StoreKind::Sqlite),
    }
}
