//! The admitted stations that an AAA server may address later.

use crate::station_id::StationId;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use usher_access::{DynamicRequest, SessionIdentity};

/// The identifiers of a station's session.
#[derive(Debug)]
pub(super) struct AdmittedSession {
    /// The token of the request that admitted it.
    pub(super) token: u64,
    /// The station's identity, and the name from the server.
    pub(super) names: [Vec<u8>; 2],
    /// Acct-Session-Id, once known.
    pub(super) session: Option<String>,
    pub(super) framed_ip: Option<Ipv4Addr>,
}

impl AdmittedSession {
    /// Merges with the session `before` that a further login continues. Missing items keep their previous values.
    pub(super) fn merge_previous_session(mut self, before: Option<Self>) -> Self {
        if let Some(before) = before {
            self.session = before.session;
            self.framed_ip = self.framed_ip.or(before.framed_ip);
        }
        self
    }
}

/// Returns the stations that a request addresses.
pub(super) fn match_stations(
    all: &BTreeMap<StationId, AdmittedSession>,
    request: &DynamicRequest,
) -> Vec<StationId> {
    let is_meant = |(station, admitted): &(&StationId, &AdmittedSession)| {
        station.with_port(|port| {
            request.is_about(&SessionIdentity {
                token: Some(admitted.token),
                names: [&admitted.names[0], &admitted.names[1]],
                port,
                session: admitted.session.as_deref(),
                framed_ip: admitted.framed_ip,
                ..SessionIdentity::default()
            })
        })
    };
    all.iter().filter(is_meant).map(|(station, _)| *station).collect()
}
