//! The trace of one user or station: each decision as a line for people. Off, it costs one comparison a request.

use super::api::TraceFilter;
use crate::users::mac_address;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use usher_eap::packet::{Code, Packet};
use usher_radius::attribute::{Attributes, kind, vendor};
use usher_radius::dictionary::{Dictionary, Oid};

/// What is traced, and the names to print attributes by.
#[derive(Debug)]
pub(super) struct Tracer {
    filter: TraceFilter,
    dictionary: Box<Dictionary>,
}

impl Tracer {
    pub(super) fn new(filter: TraceFilter) -> Self {
        Self { filter, dictionary: Box::new(Dictionary::builtin()) }
    }
    /// Whether a request is of the user or station that is traced.
    pub(super) fn concerns(&self, request: &Attributes) -> bool {
        match &self.filter {
            TraceFilter::All => true,
            TraceFilter::User(name) => request.get(kind::USER_NAME) == Some(name),
            TraceFilter::Station(wanted) => request.get(kind::CALLING_STATION_ID).is_some_and(|seen| {
                let address = mac_address(wanted);
                seen == &wanted[..] || address.is_some() && mac_address(seen) == address
            }),
        }
    }
    /// Each attribute by name. What proves or hides something is not shown.
    pub(super) fn attributes(&self, list: &Attributes) -> Vec<String> {
        let mut lines = Vec::new();
        for attribute in self.dictionary.decode(list.as_bytes()) {
            if attribute.oid == Oid::standard(kind::EAP_MESSAGE)
                || attribute.oid == Oid::standard(kind::MESSAGE_AUTHENTICATOR)
            {
                continue;
            }
            lines.push(if shown(attribute.oid) {
                alloc::format!("  {attribute}")
            } else {
                let name = attribute.definition.map_or_else(|| attribute.oid.to_string(), |d| d.name.clone());
                alloc::format!("  {name} = (not shown)")
            });
        }
        lines
    }
}

fn shown(oid: Oid) -> bool {
    const PROOFS: [u8; 4] =
        [kind::USER_PASSWORD, kind::CHAP_PASSWORD, kind::CHAP_CHALLENGE, kind::TUNNEL_PASSWORD];
    match *oid.parts() {
        [number] => !PROOFS.iter().any(|p| u32::from(*p) == number),
        [26, vendor::MICROSOFT, _] => false,
        _ => true,
    }
}

/// An EAP packet in a few words.
pub(super) fn eap(packet: &[u8]) -> String {
    let Ok(p) = Packet::parse(packet) else { return "not an EAP packet".into() };
    let code = match p.code() {
        Code::Request => "EAP-Request",
        Code::Response => "EAP-Response",
        Code::Success => "EAP-Success",
        Code::Failure => "EAP-Failure",
    };
    match p.kind() {
        Some(kind) => alloc::format!("{code} {kind}, identifier {}, {} octets", p.identifier(), packet.len()),
        None => alloc::format!("{code}, identifier {}", p.identifier()),
    }
}

/// A name for people.
pub(super) fn name(octets: &[u8]) -> String {
    alloc::format!("\"{}\"", octets.escape_ascii())
}
