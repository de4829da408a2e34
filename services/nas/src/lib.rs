//! Network access servers: the 802.1X authenticator that passes EAP through to RADIUS or Diameter, and
//! the station that asks it to be let in. EAP travels by EAPOL, or by 802.16's PKMv2 ([`Access`]).

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod authenticator;
mod frame;
mod record;
pub mod station;
mod station_id;

pub use authenticator::Authenticator;
pub use frame::{Access, ETHERTYPE_PKM, PAE_GROUP};
pub use record::Record;
pub use station::Station;
pub use station_id::{MacAddress, StationId};
/// How an authenticator asks an AAA server, and what it hears of it.
pub use usher_access::{
    AaaConfig, Connections, DIAMETER_LISTENER, DYNAMIC_SOCKET, DiameterConfig, DynamicConfig, NasIdentity,
    PORT_TYPE_ETHERNET, PORT_TYPE_VIRTUAL, PORT_TYPE_WIRELESS_80211, PORT_TYPE_WIRELESS_80216, RadiusConfig,
    RecordKind, Reply, TerminateCause, Traffic,
};
/// The exchange of traffic keys over 802.16.
pub use usher_pkm::keying;
