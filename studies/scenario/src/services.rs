//! The services that a study's hosts run, each with its product configuration.
//!
//! A host's `runs = "aaa"` and `config = "aaa.toml"` name the service and the file that `usher aaa serve` takes. The
//! same keys may be in the study, as the table `config`. Both become parts of the study's tree. Axes and `--set` vary
//! them (`hosts.server.config.reject_delay`), and faults have the line of their file.

use schemars::{Schema, SchemaGenerator, json_schema};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use usher_config::tree::{PathStep, TableEntry, TreeItem, TreeNode};
use usher_config::{
    ConfigEnvironment, ConfigFormat, ConfigValue, DiagnosticCollector, OptionalPosition, OrderedMap,
    name_hint,
};
use usher_core::WallTime;
use usher_crypto::tls::SharedWallClock;

usher_core::named! {
    "a service";
    /// A service that a host can run.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ServiceKind {
        /// The AAA server, by RADIUS and Diameter.
        Aaa = "aaa",
        /// The PPPoE access concentrator, with the data plane of its sessions.
        Concentrator = "concentrator",
        /// The IDENT server for the connections of its host.
        Ident = "ident",
        /// The IKEv2 gateway, or a client.
        Ike = "ike",
        /// The MIH function for the links of its host.
        Mih = "mih",
    }
}

impl ServiceKind {
    const fn config_format(self) -> &'static ConfigFormat {
        match self {
            Self::Aaa => &usher_aaa_config::FORMAT,
            Self::Concentrator => &usher_concentrator::config::FORMAT,
            Self::Ident => &usher_ident_service::config::FORMAT,
            Self::Ike => &usher_gateway::config::FORMAT,
            Self::Mih => &usher_mih_service::config::FORMAT,
        }
    }
}

/// A service with its checked configuration.
#[derive(Clone, Debug)]
pub enum HostService {
    /// The AAA server.
    Aaa(Arc<usher_aaa_config::LoadedAaaConfig>),
    /// The PPPoE access concentrator.
    Concentrator(Arc<usher_concentrator::config::LoadedConcentratorConfig>),
    /// The IDENT server.
    Ident(Arc<usher_ident_service::config::LoadedIdentConfig>),
    /// The IKEv2 gateway, or a client.
    Ike(Arc<usher_gateway::config::LoadedGatewayConfig>),
    /// The MIH function.
    Mih(Arc<usher_mih_service::config::LoadedMihConfig>),
}

impl PartialEq for HostService {
    /// True if both come from one table; equal tables are read once.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Aaa(one), Self::Aaa(other)) => Arc::ptr_eq(one, other),
            (Self::Concentrator(one), Self::Concentrator(other)) => Arc::ptr_eq(one, other),
            (Self::Ident(one), Self::Ident(other)) => Arc::ptr_eq(one, other),
            (Self::Ike(one), Self::Ike(other)) => Arc::ptr_eq(one, other),
            (Self::Mih(one), Self::Mih(other)) => Arc::ptr_eq(one, other),
            (Self::Aaa(_) | Self::Concentrator(_) | Self::Ident(_) | Self::Ike(_) | Self::Mih(_), _) => false,
        }
    }
}

/// The table of hosts, which name their services and configurations.
const HOSTS: &str = "hosts";
const RUNS: &str = "runs";
const CONFIG: &str = "config";

/// Configurations read so far, by table. Most points of a plan have the same ones.
#[derive(Debug, Default)]
pub(crate) struct ServiceConfigCache(Vec<(ServiceKind, PathBuf, ConfigValue, HostService)>);

/// A service name in a host's `runs`.
struct ServiceName {
    kind: Option<ServiceKind>,
    text: String,
    span: OptionalPosition,
}

/// Returns the names in a host's `runs`. Leaves a value that is no text for the typed reader to report.
fn host_service_names(host: &TreeNode) -> Vec<ServiceName> {
    let one = |node: &TreeNode| match &node.item {
        TreeItem::Text(text) => Some(ServiceName {
            kind: ServiceKind::from_name(text),
            text: text.clone(),
            span: node.span.clone(),
        }),
        _ => None,
    };
    match host.get(RUNS) {
        Some(TreeNode { item: TreeItem::Array(nodes), .. }) => nodes.iter().filter_map(one).collect(),
        Some(node) => one(node).into_iter().collect(),
        None => Vec::new(),
    }
}

/// Returns the configuration of a host's service: `config` itself on a host with one service, else the entry with the
/// service's name.
fn service_config<'a>(
    config: &'a mut TreeNode,
    named: &ServiceName,
    alone: bool,
) -> Option<&'a mut TreeNode> {
    match alone {
        true => Some(config),
        false => config.child_mut(&PathStep::Key(named.text.clone())),
    }
}

fn host_entries(tree: &mut TreeNode) -> &mut [TableEntry] {
    match tree.child_mut(&PathStep::Key(HOSTS.to_owned())).map(|hosts| &mut hosts.item) {
        Some(TreeItem::Table(hosts)) => hosts,
        _ => &mut [],
    }
}

/// Returns the folder of the file that contains a position.
pub(crate) fn source_folder(span: &OptionalPosition, faults: &DiagnosticCollector) -> PathBuf {
    let source = span.as_ref().and_then(|span| faults.from_sources().get(span.source));
    let file = source.or(faults.from_sources().first()).map(|source| Path::new(&source.name));
    file.and_then(Path::parent).unwrap_or(Path::new("")).to_owned()
}

/// Replaces the file names in `config` with the contents of the files and their includes.
pub(crate) fn insert_service_configs(
    tree: &mut TreeNode,
    outside: &dyn ConfigEnvironment,
    faults: &mut DiagnosticCollector,
) {
    for host in host_entries(tree) {
        let names = host_service_names(&host.node);
        let Some(config) = host.node.child_mut(&PathStep::Key(CONFIG.to_owned())) else { continue };
        for name in &names {
            let (Some(kind), Some(node)) = (name.kind, service_config(config, name, names.len() == 1)) else {
                continue;
            };
            let TreeItem::Text(file) = &node.item else { continue };
            let path: PathBuf = source_folder(&node.span, faults).join(file);
            let path = path.components().filter(|part| *part != Component::CurDir).collect::<PathBuf>();
            if let Some(file) = usher_config::read_additional_document(
                &path,
                &node.span,
                kind.config_format(),
                outside,
                faults,
            ) {
                *node = file;
            }
        }
    }
}

/// Removes the services' configurations from a point's tree, and reads and checks them, by host.
pub(crate) fn extract_service_configs(
    tree: &mut TreeNode,
    outside: &dyn ConfigEnvironment,
    memo: &mut ServiceConfigCache,
    faults: &mut DiagnosticCollector,
) -> OrderedMap<Vec<HostService>> {
    let mut services = OrderedMap::default();
    for host in host_entries(tree) {
        let names = host_service_names(&host.node);
        let mut config = host.node.take_entry(CONFIG);
        if let (Some(config), true) = (&config, names.is_empty()) {
            let message =
                "the host runs no service with this configuration: name the service, as runs = \"aaa\"";
            faults.add(config.key_span.clone(), message.to_owned());
        }
        let mut of_host = Vec::new();
        for (n, name) in names.iter().enumerate() {
            let Some(kind) = name.kind else {
                let near = name_hint(&name.text, ServiceKind::ALL.map(ServiceKind::name));
                faults.add(name.span.clone(), format!("there is no service \"{}\"{near}", name.text));
                continue;
            };
            if names.iter().take(n).any(|before| before.kind == Some(kind)) {
                faults.add(name.span.clone(), format!("\"{}\" is listed twice", name.text));
                continue;
            }
            let alone = names.len() == 1;
            let node = config.as_mut().and_then(|entry| service_config(&mut entry.node, name, alone));
            match node.map(|node| (&node.item, &*node)) {
                Some((TreeItem::Table(_), node)) => {
                    of_host.extend(memo.read_service(kind, node, outside, faults))
                }
                // The entry is still a file name, so the file was unreadable, which is already reported.
                Some((TreeItem::Text(_), _)) => {}
                _ => {
                    let key = if alone { CONFIG.to_owned() } else { format!("{CONFIG}.{}", name.text) };
                    let message = format!(
                        "\"{}\" has no configuration: name its file, as {key} = \"{}.toml\", or write its keys below \
                         [hosts.{}.{key}]",
                        name.text, name.text, host.key
                    );
                    faults.add(name.span.clone(), message);
                }
            }
        }
        if !of_host.is_empty() {
            services.insert(host.key.clone(), of_host);
        }
    }
    services
}

impl ServiceConfigCache {
    fn read_service(
        &mut self,
        kind: ServiceKind,
        node: &TreeNode,
        outside: &dyn ConfigEnvironment,
        faults: &mut DiagnosticCollector,
    ) -> Option<HostService> {
        let (base, value) = (source_folder(&node.span, faults), node.to_value());
        let known = self.0.iter().find(|(k, b, v, _)| *k == kind && *b == base && Some(v) == value.as_ref());
        if let Some((.., service)) = known {
            return Some(service.clone());
        }
        let service = match kind {
            ServiceKind::Aaa => {
                let loaded = usher_aaa_config::read_tree(node.clone(), &base, outside, faults)?;
                // Load the certificates at planning, so that their faults are reported before any run.
                if let Err(why) = usher_aaa_config::tls::load_tls(
                    &loaded,
                    &SharedWallClock::from_time(WallTime::from_unix_secs(0)),
                    None,
                ) {
                    faults.add(node.get("tls").unwrap_or(node).span.clone(), why);
                    return None;
                }
                HostService::Aaa(Arc::new(loaded))
            }
            ServiceKind::Concentrator => {
                let clock = SharedWallClock::from_time(WallTime::UNIX_EPOCH);
                let read = usher_concentrator::config::read_tree;
                let loaded = read(node.clone(), &base, outside, &clock, faults)?;
                let within = loaded.file.aaa.as_ref().is_some_and(|aaa| aaa.server.is_some());
                reject_embedded_server(node, within, faults)?;
                HostService::Concentrator(Arc::new(loaded))
            }
            ServiceKind::Ident => {
                let loaded = usher_ident_service::config::read_tree(node.clone(), &base, outside, faults)?;
                HostService::Ident(Arc::new(loaded))
            }
            ServiceKind::Ike => {
                let clock = SharedWallClock::from_time(WallTime::UNIX_EPOCH);
                let loaded = usher_gateway::config::read_tree(node.clone(), &base, outside, &clock, faults)?;
                let within = loaded.file.aaa.as_ref().is_some_and(|aaa| aaa.server.is_some());
                reject_embedded_server(node, within, faults)?;
                HostService::Ike(Arc::new(loaded))
            }
            ServiceKind::Mih => {
                HostService::Mih(Arc::new(usher_mih_service::config::read_tree(node.clone(), faults)?))
            }
        };
        self.0.extend(value.map(|value| (kind, base, value, service.clone())));
        Some(service)
    }
}

/// Rejects an embedded AAA server. It is not a host, so a study cannot count packets between it and the access server.
fn reject_embedded_server(node: &TreeNode, within: bool, faults: &mut DiagnosticCollector) -> Option<()> {
    if within {
        let at = node.get("aaa").and_then(|aaa| aaa.get("server")).unwrap_or(node).span.clone();
        let message =
            "a study cannot embed an AAA server: let a host run \"aaa\", and name it in [[aaa.radius]]";
        faults.add(at, message.to_owned());
        return None;
    }
    Some(())
}

/// Schema of `runs`: the name of a service, or several.
pub(crate) fn runs_schema(_: &mut SchemaGenerator) -> Schema {
    let one = usher_config::named::named_value_schema::<ServiceKind>(|_| true);
    json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
}

/// Schema of `config`: a file, or a table by the schema of each service.
pub(crate) fn config_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string" }, { "type": "object" }] })
}
