//! Network access servers: the 802.1X authenticator, which passes EAP through to RADIUS or Diameter, and the station
//! that authenticates with it. EAP runs over EAPOL, or over 802.16's PKMv2 ([`AccessMedium`]).

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod authenticator;
mod frame;
mod record;
pub mod station;
mod station_id;

pub use authenticator::NasAuthenticator;
pub use frame::{AccessMedium, ETHERTYPE_PKM, PAE_GROUP};
pub use record::StationRecord;
pub use station::AccessStation;
pub use station_id::{MacAddress, StationId};
/// The authenticator's AAA client: its configuration and results.
pub use usher_access::{
    AaaConfig, AccessReply, DIAMETER_LISTENER, DYNAMIC_SOCKET, DiameterConfig, DiameterConnections,
    DynamicConfig, NasIdentity, PORT_TYPE_ETHERNET, PORT_TYPE_VIRTUAL, PORT_TYPE_WIRELESS_80211,
    PORT_TYPE_WIRELESS_80216, RadiusConfig, RecordKind, SessionTraffic, TerminateCause,
};
/// The exchange of traffic keys over 802.16.
pub use usher_pkm::keying;
