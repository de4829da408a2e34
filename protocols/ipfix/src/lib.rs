//! IP Flow Information Export (RFC 7011, IPFIX): what an exporter tells a collector of addresses and ports that stand for hosts
//! (RFC 8158).
//!
//! ```text
//! NatRecord ──▶ Exporter ──▶ messages: header │ templates, now and then │ sets of records ──▶ UDP ──▶ collector
//! ```
//! A collector reads records by templates, which name each field by the number of an information element. Over UDP templates get lost,
//! so that they are repeated (§8.4); the sequence number tells a collector how many records it has missed (§3.1).

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod exporter;
mod nat;
mod template;

pub use exporter::{ExporterConfig, ExporterCounters, IpfixExporter};
pub use nat::{NatEvent, NatRecord, SubscriberInfo};

/// The port of UDP and TCP that collectors listen on (§10.3.4).
pub const PORT: u16 = 4739;
