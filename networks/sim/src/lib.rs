//! The deterministic network simulator: events, links, IP, UDP, TCP, hosts and CPUs.
//!
//! A [`Builder`] takes hosts, links and applications; the [`Simulation`] that it makes runs them in virtual
//! time, in whole nanoseconds. The same inputs and seed give the same run on any machine. Transports are
//! sans-IO machines of their own ([`tcp`]); what runs on hosts is an [`Application`], usually an enum of
//! protocol machines and traffic sources.

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

pub use addr::{Addresses, HostId, IpVersion, MAX_HOSTS};
pub use app::{Application, Context, Delivery, LocalId, MessageDelivery, Observer, Op, StreamDelivery};
pub use capture::Tap;
pub use cpu::{CpuConfig, CpuStats, Intake, ServiceTime};
pub use link::{Framing, LinkConfig, LinkId, LinkStats};
pub use packet::{DISCARD_PORT, Payload, Transit, UDP_HEADER};
pub use queue::EventQueue;
pub use simulation::{
    AppPart, Builder, CellId, Crossing, End, Extent, Fault, Half, Halves, Held, HostPart, HostStats,
    LinkPart, Mark, OutagePart, Parted, Parts, SctpTotals, Side, SimError, Simulation, SocketPart, TcpTotals,
    Transports, Whole,
};
