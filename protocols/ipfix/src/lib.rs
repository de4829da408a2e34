//! IP Flow Information Export (RFC 7011, IPFIX): an exporter reports to a collector the addresses and ports that
//! represent hosts (RFC 8158).
//!
//! ```text
//! NatRecord ──▶ Exporter ──▶ messages: header │ templates, now and then │ sets of records ──▶ UDP ──▶ collector
//! ```
//! A collector decodes records by templates, which name each field by the number of an information element. UDP can
//! lose templates, so the exporter repeats them (§8.4). The sequence number tells a collector how many records it has
//! missed (§3.1).

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod exporter;
mod nat;
mod template;

pub use exporter::{ExporterConfig, ExporterCounters, IpfixExporter};
pub use nat::{NatEvent, NatRecord, SubscriberInfo};

/// The collectors' port, UDP and TCP (§10.3.4).
pub const PORT: u16 = 4739;
