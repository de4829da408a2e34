//! Processors of hosts that a profile says: `processor = "profile.toml"`.
//!
//! As with a service's configuration, the file is put into the study's tree, so that the study's digest is of it, faults have its
//! lines, and axes reach `hosts.server.processor.cores`. A point's tree then has, in its place, the `cpu` that the profile
//! makes.

use crate::model::Cpu;
use crate::services::folder;
use crate::work;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use std::path::{Component, PathBuf};
use usher_aaa::Method;
use usher_config::tree::{Entry, Item, Step, TreeNode};
use usher_config::units::{Count, Time};
use usher_config::{Collector, Location, Ordered, Outside, Value};
use usher_core::{Duration, WorkLabel};
use usher_profile::{File, LOOKUP, Reference, Scale, StoreKind, Wanted};

const HOSTS: &str = "hosts";
const PROCESSOR: &str = "processor";
const PROFILE: &str = "profile";
const CPU: &str = "cpu";

/// A processor whose work takes what a profile says.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Processor {
    /// The profile: the name of its file, from this file's folder, or the same keys as a table.
    #[schemars(schema_with = "profile_schema")]
    profile: Option<Value>,
    /// How many cores serve at the same time.
    #[serde(default = "one")]
    cores: Count,
    /// So many times as long as on the profile's machine work takes: 2 for one that is half as fast.
    scale: Option<f64>,
    /// Or how often a second a core of this machine does what the profile's reference says of its own, from which the scale
    /// follows: `usher load --calibrate` measures it there.
    reference: Option<Reference>,
    /// How much longer than in the profile the way to the store and back takes.
    #[serde(default)]
    distance: Time,
    /// Takes a profile of another version of the program.
    #[serde(default)]
    any_version: bool,
}

const fn one() -> Count {
    Count::ONE
}

fn profile_schema(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "anyOf": [{ "type": "string" }, { "type": "object" }] })
}

/// In a schema: a file's name, or a table.
pub(crate) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let table = generator.subschema_for::<Processor>();
    schemars::json_schema!({ "anyOf": [{ "type": "string" }, table] })
}

fn hosts(tree: &mut TreeNode) -> &mut [Entry] {
    match tree.child_mut(&Step::Key(HOSTS.to_owned())).map(|hosts| &mut hosts.item) {
        Some(Item::Table(hosts)) => hosts,
        _ => &mut [],
    }
}

/// Puts the profiles that hosts name into their places in a study's tree.
pub(crate) fn graft(tree: &mut TreeNode, outside: &dyn Outside, faults: &mut Collector) {
    for host in hosts(tree) {
        let Some(processor) = host.node.child_mut(&Step::Key(PROCESSOR.to_owned())) else { continue };
        // The name of a file alone stands for a table with that profile.
        if let Item::Text(file) = &processor.item {
            let span = processor.span.clone();
            let node = TreeNode::of(&Value::Text(file.clone()), &span);
            processor.item = Item::Table(vec![Entry { key: PROFILE.to_owned(), key_span: span, node }]);
        }
        let Some(profile) = processor.child_mut(&Step::Key(PROFILE.to_owned())) else { continue };
        let Item::Text(file) = &profile.item else { continue };
        let path: PathBuf = folder(&profile.span, faults).join(file);
        let path = path.components().filter(|part| *part != Component::CurDir).collect::<PathBuf>();
        if let Some(file) =
            usher_config::further(&path, &profile.span, &usher_profile::FORMAT, outside, faults)
        {
            *profile = file;
        }
    }
}

/// Replaces the processors of a point's tree by what they cost.
pub(crate) fn take(tree: &mut TreeNode, faults: &mut Collector) {
    let logins = logins(tree);
    for host in hosts(tree) {
        let Some(mut entry) = host.node.take(PROCESSOR) else { continue };
        let place = entry.key_span.clone();
        if let Some(cpu) = host.node.get(CPU) {
            let message = format!(
                "\"{}\" has a processor by its profile and one by cpu; the cores of the first are processor.cores, and what its work \
                 takes is in the profile: leave one of them out",
                host.key
            );
            faults.add(cpu.span.clone(), message);
            continue;
        }
        let read = usher_config::read::<Processor>(&mut entry.node, |_| false, faults);
        let Some(processor) = read.value.filter(|_| read.whole) else { continue };
        if processor.profile.is_none() {
            let message = format!(
                "\"{}\" has a processor without a profile; name its file, as processor = \"profile.toml\"",
                host.key
            );
            faults.add(place, message);
            continue;
        }
        // A file that could not be read was reported, and its name stands there still.
        let Some(profile) = entry.node.take(PROFILE) else { continue };
        if matches!(profile.node.item, Item::Text(_)) {
            continue;
        }
        let names: Vec<&str> = work::all().map(WorkLabel::name).collect();
        let Some(file) = usher_profile::read_tree(profile.node, &names, faults) else { continue };
        let methods: Vec<String> = logins
            .iter()
            .filter(|(server, _)| *server == host.key)
            .map(|(_, method)| method.clone())
            .collect();
        let program = if processor.any_version { &file.program } else { env!("CARGO_PKG_VERSION") };
        let wanted = Wanted { program, methods: &methods, store: store(&host.node) };
        if let Err(misfit) = file.fits(&wanted) {
            faults.add(place, format!("\"{}\": {misfit}", host.key));
            continue;
        }
        match processor.scale(&file) {
            Ok(scale) => {
                let cpu = cpu(&file, processor.cores, scale, processor.distance);
                put(&mut host.node, &cpu, &place);
            }
            Err(message) => faults.add(place, format!("\"{}\": {message}", host.key)),
        }
    }
}

impl Processor {
    fn scale(&self, file: &File) -> Result<Scale, &'static str> {
        match (self.scale, &self.reference) {
            (Some(_), Some(_)) => {
                Err("processor.scale and processor.reference say the same in two ways: leave one of them out")
            }
            (Some(factor), None) if factor.is_finite() && factor > 0.0 => Ok(Scale::all(factor)),
            (Some(_), None) => Err("processor.scale must be above 0"),
            (None, Some(reference)) => Ok(Scale::to(file, reference)),
            (None, None) => Ok(Scale::all(1.0)),
        }
    }
}

/// What `[hosts.NAME] cpu` would say: the work of a profile on so many cores that take so much longer, with a store so far away
/// beyond where it was.
fn cpu(file: &File, cores: Count, scale: Scale, distance: Time) -> Value {
    let time = |seconds: f64| Value::Text(format!("{} ns", Duration::from_secs_f64(seconds).as_nanos()));
    let (mut service, mut aside) = (Ordered::default(), Ordered::default());
    let looked_up = file.store.is_some();
    for (label, cost) in file.work.iter() {
        // Of a look-up that takes no time nothing passes aside.
        let to = if label == LOOKUP && looked_up { &mut aside } else { &mut service };
        to.insert(label.to_owned(), time(cost.seconds() * scale.of(label)));
    }
    if let Some(store) = &file.store {
        let away = distance.get().as_secs_f64() * f64::from(store.round_trips.get());
        service.insert(LOOKUP.to_owned(), time(store.lookup.get().as_secs_f64() + away));
    }
    let mut cpu = Ordered::default();
    for (key, value) in [
        ("cores", Value::Integer(i64::from(cores.get()))),
        ("service", Value::Table(service)),
        ("aside", Value::Table(aside)),
        ("wakeup", time(file.wakeup.seconds() * scale.rest)),
        ("batch", time(file.batch.seconds() * scale.rest)),
    ] {
        cpu.insert(key.to_owned(), value);
    }
    Value::Table(cpu)
}

/// The processor that a profile makes, as a study's host has it.
///
/// # Errors
/// A profile that no processor comes of: a fault of the program, since one that was read has a cost for each of its works.
pub fn charged(file: &File, cores: Count, scale: Scale, distance: Time) -> Result<Cpu, String> {
    let mut faults = Collector::new("the profile", "");
    let mut node = TreeNode::of(&cpu(file, cores, scale, distance), &None);
    let read = usher_config::read::<Cpu>(&mut node, |_| false, &mut faults);
    faults.finish(read.value).map_err(|faults| faults.to_string())
}

fn put(host: &mut TreeNode, cpu: &Value, place: &Location) {
    if let Item::Table(entries) = &mut host.item {
        let node = TreeNode::of(cpu, place);
        entries.push(Entry { key: CPU.to_owned(), key_span: place.clone(), node });
    }
}

/// The servers of all workloads that log in, with the methods by the names that profiles have for them.
fn logins(tree: &TreeNode) -> Vec<(String, String)> {
    let several = tree.get("workloads").map(TreeNode::entries).unwrap_or_default();
    let all = tree.get("workload").into_iter().chain(several.iter().map(|entry| &entry.node));
    let text = |node: &TreeNode, key: &str| match &node.get(key)?.item {
        Item::Text(text) => Some(text.clone()),
        _ => None,
    };
    all.filter_map(|workload| {
        let method = profiled(&text(workload, "method")?)?;
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

/// What profiles call a method of the workload `eap`.
fn profiled(name: &str) -> Option<&'static str> {
    match Method::ALL.iter().copied().find(|method| method.name() == name)? {
        Method::EapMd5 => Some("eap-md5"),
        Method::EapMsChapV2 => Some("eap-mschapv2"),
        Method::EapTls => Some("eap-tls"),
        Method::Peap => Some("peap-mschapv2"),
        Method::Ttls => Some("ttls-pap"),
        _ => None,
    }
}

/// Where a host's AAA server has its users; `None` where it runs none.
fn store(host: &TreeNode) -> Option<StoreKind> {
    let runs = host.get("runs")?;
    let is = |node: &TreeNode| matches!(&node.item, Item::Text(text) if text == "aaa");
    let alone = is(runs);
    let config = match &runs.item {
        Item::Array(all) if all.iter().any(is) => host.get("config")?.get("aaa")?,
        _ if alone => host.get("config")?,
        _ => return None,
    };
    match config.get("users").and_then(|users| users.get("store")).map(|store| &store.item) {
        Some(Item::Text(name)) => StoreKind::from_name(name),
        Some(_) => None,
        None => Some(StoreKind::Sqlite),
    }
}
