//! The types of a study file. Field documentation here becomes the descriptions of the JSON Schema.
//!
//! A choice between kinds is a table with a `kind`. If all settings of a kind have defaults, the name of the kind alone
//! is enough.

mod aaa_client;
mod arrivals;
mod axes;
mod bss;
mod cell;
mod handover;
mod hosts;
mod ike;
mod mih;
mod pppoe;
mod run;
mod transport;
mod workload;

pub use aaa_client::{RadiusRetransmission, RadiusSettings, TlsHandshakeMode};
pub use arrivals::{ArrivalRateScope, ArrivalSettings, TimeDistribution};
pub use axes::{
    FigureKind, MetricLimit, OneOrMore, ReferencePoint, ReferenceSeries, Relax, SettingBundle, StudyAxis,
    StudyChoice, StudyFigure, StudyRecommendation, SweepPointStatistic,
};
pub use bss::{Bss, LossFrom, WifiPreamble, WifiRate, WifiScan, WifiSlotTime};
pub use cell::{
    BandwidthRequests, CellEntrySettings, CellFrameSettings, CellScanSettings, Modulation,
    TrafficKeyExchange, WimaxCellSettings,
};
pub use handover::{CommitAnswer, GoingDown, HandoverFlow, HandoverInitiator, HandoverWorkload, OnFailure};
pub use hosts::{
    BackgroundKind, BackgroundTraffic, BurstLength, ChannelDirection, CpuSettings, FramingKind, HostSettings,
    LinkLoss, LinkSettings, LinkSide, OutageSettings,
};
pub use ike::{
    CertificateKind, IkeCertificates, IkeMethod, IkePolicy, IkeWorkload, MissingChildSaAction,
    ReauthenticationOrder,
};
pub use mih::{
    MihFunction, MihMessage, MihMessageTiming, MihTiming, MihTimingChange, MihWorkload, TimingByMihService,
    UnansweredAction, message_name,
};
pub use pppoe::{PppoeMethod, PppoeWorkload};
pub use run::{
    CalendarDate, CaptureSettings, IpVersion, ReplicationRule, ReplicationSettings, RunSettings,
    StudyModeSettings,
};
pub use transport::{
    AckTimer, BackoffReset, CongestionRecovery, DelayedAckCounting, IdleRestart, LossHalves, LossRecovery,
    NagleVariant, RtoMinBounds, RtoRestart, SctpPreset, SctpSettings, TcpCongestionControl, TcpLossRecovery,
    TcpPreset, TcpSettings, TimestampEcho, TransportSettings, WindowGrowth, WindowUnit,
};
pub use workload::{
    AccountingSettings, DialogueConnection, DialogueRetransmission, DialogueRound, DialogueWorkload,
    DiameterSettings, EapTls, EapWorkload, IdentWorkload, NasAaaProtocol, NasConnections, NasTlsSettings,
    SizeDistribution, StationUserRows, StreamPolicy, Workload,
};

use crate::certificates::WorkloadCertificates;
use crate::metrics;
use crate::services::HostService;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;
pub use usher_config::ConfigValue;
use usher_config::OrderedMap;
pub use usher_core::TransportProtocol;
use usher_sim::{HostAddresses, HostId};

/// A study: a question, the network and the workload that answer it, the axes and the figures.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StudyFile {
    /// The study in a few words, as a heading.
    pub title: String,
    /// The question that it answers, in one sentence.
    pub question: String,
    /// The setting, the assumptions and their reasons.
    #[serde(default)]
    pub description: String,
    /// Groups of studies that it belongs to; a group's name runs them all.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Duration and replications of each point.
    pub run: RunSettings,
    /// The changes of `--quick`.
    #[serde(default)]
    pub quick: StudyModeSettings,
    /// The changes of `--full`.
    #[serde(default)]
    pub full: StudyModeSettings,
    /// The changes of `--sensitivity`.
    #[serde(default)]
    pub sensitivity: StudyModeSettings,
    /// The changes of `--on lab` and `--on both`, which make the study fit the lab: real time, no radio. Without this
    /// table the study runs there unchanged, if it fits.
    pub lab: Option<StudyModeSettings>,
    /// The hosts, or groups of like hosts, by name. A host that is no endpoint forwards packets like a router.
    pub hosts: OrderedMap<HostSettings>,
    /// The links between them, by name.
    #[serde(default)]
    pub links: OrderedMap<LinkSettings>,
    /// The 802.16 cells, by name.
    #[serde(default)]
    pub cells: OrderedMap<WimaxCellSettings>,
    /// The 802.11 cells, by name.
    #[serde(default)]
    pub bss: OrderedMap<Bss>,
    /// Settings of the transport protocols, the same on all hosts.
    #[serde(default)]
    pub transport: TransportSettings,
    /// The workload: the dialogues of the clients, and how often they begin.
    pub workload: Option<Workload>,
    /// Several workloads side by side, by name, in place of `workload`. Each has its own metrics, such as `delay.mean.NAME`.
    #[serde(default)]
    pub workloads: OrderedMap<Workload>,
    /// Traffic that shares the links and is not counted.
    #[serde(default)]
    pub background: Vec<BackgroundTraffic>,
    /// Hosts that fail and come back.
    #[serde(default)]
    pub outages: Vec<OutageSettings>,
    /// Settings that the study's source leaves open, with other possible values.
    #[serde(default)]
    pub choices: Vec<StudyChoice>,
    /// The axes. The plan has every combination of their values.
    #[serde(default)]
    pub axes: Vec<StudyAxis>,
    /// The figures.
    #[serde(default)]
    pub figures: Vec<StudyFigure>,
    /// The recommendations.
    #[serde(default)]
    pub recommendations: Vec<StudyRecommendation>,
    /// Links to record (pcapng) when a capture is requested.
    #[serde(default)]
    pub capture: CaptureSettings,
}

impl StudyFile {
    /// Whether the file has a table `[lab]`.
    pub fn has_lab(&self) -> bool {
        self.lab.is_some()
    }

    /// The named metrics that are measured only on request.
    pub(crate) fn requested_metrics(&self) -> BTreeSet<String> {
        let figures = self.figures.iter().flat_map(|figure| figure.y.0.iter().chain([&figure.x]));
        let recommended = self.recommendations.iter().flat_map(|said| {
            std::iter::once(&said.metric).chain(said.limit.as_ref().map(|limit| &limit.metric))
        });
        let run = self.run.metrics.iter().chain([&self.run.replications.metric]);
        let all = run.chain(figures).chain(recommended);
        all.filter(|name| {
            metrics::find_metric(name, self).is_some_and(|metric| metric.is_measured_on_request())
        })
        .cloned()
        .collect()
    }
}

/// The scenario of one point: all settings of a run, with the axes' values in place.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Duration and replications.
    pub run: RunSettings,
    /// The hosts, or groups of like hosts, in the file's order.
    pub hosts: OrderedMap<HostSettings>,
    /// The services that they run, by host.
    pub services: OrderedMap<Vec<HostService>>,
    /// The contents of the files that workloads name, by workload. A sole workload has an empty name.
    pub certificates: OrderedMap<WorkloadCertificates>,
    /// The links, in the file's order.
    pub links: OrderedMap<LinkSettings>,
    /// The 802.16 cells, in the file's order.
    pub cells: OrderedMap<WimaxCellSettings>,
    /// The 802.11 cells, in the file's order.
    pub bss: OrderedMap<Bss>,
    /// Settings of the transport protocols.
    pub transport: TransportSettings,
    /// The workload of a study that has one.
    pub workload: Option<Workload>,
    /// The workloads of any other study, by name.
    pub workloads: OrderedMap<Workload>,
    /// Traffic that is not counted.
    pub background: Vec<BackgroundTraffic>,
    /// Hosts that fail and come back.
    pub outages: Vec<OutageSettings>,
    /// The links to record on request.
    pub capture: CaptureSettings,
    /// Metrics that are measured because the study names them, by their names.
    pub requested_metrics: BTreeSet<String>,
}

/// The other files of a study: the services of its hosts, by host, and the contents of the files that its workloads
/// name.
pub(crate) type StudyInputFiles = (OrderedMap<Vec<HostService>>, OrderedMap<WorkloadCertificates>);

impl Scenario {
    /// Creates the scenario of a file and its other files.
    pub(crate) fn new(file: StudyFile, (services, certificates): StudyInputFiles) -> Self {
        let asked = file.requested_metrics();
        let StudyFile {
            run,
            hosts,
            mut links,
            cells,
            bss,
            transport,
            workload,
            workloads,
            background,
            outages,
            capture,
            ..
        } = file;
        links.retain(|_, link| link.used);
        Self {
            run,
            hosts,
            services,
            certificates,
            links,
            cells,
            bss,
            transport,
            workload,
            workloads,
            background,
            outages,
            capture,
            requested_metrics: asked,
        }
    }

    /// The cells that are there, in the file's order.
    pub fn cells_in_use(&self) -> impl Iterator<Item = (&str, &WimaxCellSettings)> {
        self.cells.iter().filter(|(_, cell)| cell.used)
    }
    /// The BSSs that are there, in the file's order.
    pub fn bss_in_use(&self) -> impl Iterator<Item = (&str, &Bss)> {
        self.bss.iter().filter(|(_, bss)| bss.used)
    }
    /// The workloads with their names, in the file's order. A sole workload has an empty name.
    pub fn all_workloads(&self) -> impl Iterator<Item = (&str, &Workload)> {
        self.workload.iter().map(|sole| ("", sole)).chain(self.workloads.iter())
    }
    /// The workload of a study that has one, whether it has a name or not.
    pub fn sole_workload(&self) -> Option<&Workload> {
        let mut all = self.all_workloads();
        all.next().filter(|_| all.next().is_none()).map(|(_, sole)| sole)
    }
    /// The workloads of EAP among them.
    pub fn eap_workloads(&self) -> impl Iterator<Item = (&str, &EapWorkload)> {
        self.all_workloads().filter_map(|(name, workload)| match workload {
            Workload::Eap(eap) => Some((name, &**eap)),
            _ => None,
        })
    }
    /// The workloads of PPPoE among them whose hosts have sessions.
    pub fn pppoe_workloads(&self) -> impl Iterator<Item = (&str, &PppoeWorkload)> {
        self.all_workloads().filter_map(|(name, workload)| match workload {
            Workload::Pppoe(pppoe) if pppoe.used => Some((name, pppoe)),
            _ => None,
        })
    }
    /// Whether handshakes are octets of a recording, which no secrets decrypt.
    pub fn replays_handshakes(&self) -> bool {
        self.all_workloads().any(|(_, workload)| match workload {
            Workload::Eap(eap) => eap.replays_handshakes() && self.aaa_service(&eap.server).is_none(),
            Workload::Ike(ike) => ike.replays_handshakes(),
            _ => false,
        })
    }
    /// The names of links, cells and BSSs, in the file's order.
    pub fn link_names(&self) -> impl Iterator<Item = &str> {
        self.links.names().chain(self.cells.names()).chain(self.bss.names())
    }
    /// The groups with the numbers that their first members have in the simulator: hosts before interfaces, each in the
    /// file's order.
    pub fn numbered_groups(&self) -> impl Iterator<Item = (&str, HostId)> {
        let of = |interfaces: bool| {
            self.hosts.iter().filter(move |(_, host)| host.interface_of.is_some() == interfaces)
        };
        let mut next = 0;
        of(false).chain(of(true)).map(move |(name, _)| {
            let first = HostId(next);
            next = next.saturating_add(self.member_count(name).unwrap_or(0));
            (name, first)
        })
    }
    /// The addresses of all hosts. A host with a wrong `address` has the address of its number.
    pub fn host_addresses(&self) -> HostAddresses {
        let mut addresses = HostAddresses::new(self.run.ip.into());
        for (name, first) in self.numbered_groups() {
            let Some(host) = self.hosts.get(name).filter(|host| host.address.is_some()) else { continue };
            for member in 0..self.member_count(name).unwrap_or(0) {
                if let Some(address) = host.address_of(member) {
                    addresses.assign_address(HostId(first.0 + member), address);
                }
            }
        }
        addresses
    }
    /// The AAA service that the members of a group run, if they do.
    pub fn aaa_service(&self, host: &str) -> Option<&usher_aaa_config::LoadedAaaConfig> {
        self.services.get(host)?.iter().find_map(|service| match service {
            HostService::Aaa(loaded) => Some(&**loaded),
            _ => None,
        })
    }
    /// The access concentrator that the members of a group run, if they do.
    pub fn concentrator_service(
        &self,
        host: &str,
    ) -> Option<&usher_concentrator::config::LoadedConcentratorConfig> {
        self.services.get(host)?.iter().find_map(|service| match service {
            HostService::Concentrator(loaded) => Some(&**loaded),
            _ => None,
        })
    }
    /// The IDENT service that the members of a group run, if they do.
    pub fn ident_service(&self, host: &str) -> Option<&usher_ident_service::config::LoadedIdentConfig> {
        self.services.get(host)?.iter().find_map(|service| match service {
            HostService::Ident(loaded) => Some(&**loaded),
            _ => None,
        })
    }
    /// How many hosts a group has; an interface is as many as the hosts that have it.
    pub fn member_count(&self, name: &str) -> Option<u32> {
        let host = self.hosts.get(name)?;
        let owner = host.interface_of.as_deref().and_then(|owner| self.hosts.get(owner));
        Some(owner.unwrap_or(host).count.get())
    }
}

/// The default of a switch that is on.
pub(crate) const fn yes() -> bool {
    true
}
