//! The stations that are in and that an AAA server may ask something of later.

use crate::station_id::StationId;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use usher_access::{DynamicRequest, SessionIdentity};

/// What a station's session is known by.
#[derive(Debug)]
pub(super) struct AdmittedSession {
    /// The token of the question by which it was let in.
    pub(super) token: u64,
    /// The identity that it gave, and the name that the server gave it.
    pub(super) names: [Vec<u8>; 2],
    /// Acct-Session-Id, once it is known.
    pub(super) session: Option<String>,
    pub(super) framed_ip: Option<Ipv4Addr>,
}

impl AdmittedSession {
    /// It goes on with the session `before`, by a further login: what it does not say remains.
    pub(super) fn merge_previous(mut self, before: Option<Self>) -> Self {
        if let Some(before) = before {
            self.session = before.session;
            self.framed_ip = self.framed_ip.or(before.framed_ip);
        }
        self
    }
}

/// Those that are meant by a request.
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
