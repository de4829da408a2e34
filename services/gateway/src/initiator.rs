//! Initiators before their session.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_access::pool::Lease;
use usher_access::{SubscriberGrant, SubscriberPlace};
use usher_core::{JobRequester, JobWaiter};
use usher_ike::payload::{ConfigurationAttribute, Identification};

/// An initiator that authenticates by EAP or waits for an address.
#[derive(Debug)]
pub(crate) struct InitiatorLogin {
    /// Its EAP identity.
    pub(crate) name: Vec<u8>,
    pub(crate) identity: Identification,
    pub(crate) connection: String,
    pub(crate) remote: SocketAddr,
    pub(crate) place: Arc<SubscriberPlace>,
    /// The waiter of its jobs.
    pub(crate) waiter: JobWaiter,
    /// The authorization, once the user is accepted.
    pub(crate) grant: SubscriberGrant,
    /// The requested attributes, until the addresses are there.
    pub(crate) requested_attributes: Vec<ConfigurationAttribute>,
    pub(crate) leases: Vec<Lease>,
    pub(crate) addresses: Vec<IpAddr>,
}

impl InitiatorLogin {
    pub(crate) fn new(identity: Identification, connection: String, remote: SocketAddr) -> Self {
        let place = Arc::new(place_of_initiator(&connection, remote));
        Self {
            name: Vec::new(),
            identity,
            connection,
            remote,
            place,
            waiter: JobWaiter::default(),
            grant: SubscriberGrant::default(),
            requested_attributes: Vec::new(),
            leases: Vec::new(),
            addresses: Vec::new(),
        }
    }
    /// Returns the requester of its jobs.
    pub(crate) fn job_requester(&self) -> JobRequester {
        JobRequester::from_address(self.remote.ip()).with_waiter(&self.waiter)
    }
}

/// Returns the place of an initiator. Its station has the format of strongSwan's Calling-Station-Id.
pub(crate) fn place_of_initiator(connection: &str, remote: SocketAddr) -> SubscriberPlace {
    SubscriberPlace {
        port: connection.into(),
        station: alloc::format!("{}[{}]", remote.ip().to_canonical(), remote.port()),
        ..SubscriberPlace::default()
    }
}
