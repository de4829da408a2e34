//! The deterministic network simulator: events, links, IP, UDP, TCP, SCTP, hosts and processors.
//!
//! A [`SimulationBuilder`] collects hosts, links and applications and builds a [`Simulation`], which runs in
//! virtual time, in whole nanoseconds. The same inputs and seed give the same run on any machine. Transports are
//! sans-IO machines ([`tcp`], [`sctp`]). A host runs [`Application`]s, usually an enum of protocol machines and
//! traffic sources.

pub mod radio;
pub mod sctp;
pub mod tcp;

mod addr;
mod app;
mod capture;
mod cpu;
mod ip;
mod link;
mod packet;
mod queue;
mod reassembly;
mod simulation;

pub use addr::{HostAddresses, HostId, IpVersion, MAX_HOSTS};
pub use app::{
    AppConnectionId, AppContext, AppDelivery, AppOperation, Application, ReportObserver,
    SctpAssociationEvent, TcpStreamEvent,
};
pub use capture::PacketTap;
pub use cpu::{BatchReceiveCost, CpuConfig, CpuStats, ServiceTime};
pub use link::{LinkConfig, LinkFraming, LinkId, LinkStats};
pub use packet::{DISCARD_PORT, Payload, TransitPacket, UDP_HEADER};
pub use queue::EventQueue;
pub use simulation::{
    CellId, CrossHalfPacket, EventOrderKey, HalfNetwork, HalfRunError, HalfSyncChannel, HostOutageSpec,
    HostStats, MemoryUse, NetworkHalfIndex, NetworkSplitPlan, SctpTotals, SimAppSpec, SimError, SimHostSpec,
    SimLinkSpec, SimRunError, SimSocketSpec, Simulation, SimulationBuilder, SimulationScope, SimulationSpec,
    TcpTotals, TransportConfig, WholeNetwork,
};
