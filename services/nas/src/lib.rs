//! Network access servers: the 802.1X authenticator that passes EAP through to RADIUS or Diameter, and
//! the station that asks it to be let in. EAP travels by EAPOL, or by 802.16's PKMv2 ([`Access`]).

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod aaa;
pub mod authenticator;
mod frame;
pub mod station;
mod station_id;

pub use aaa::{
    AaaConfig, ConfigError, Connections, DIAMETER_LISTENER, DiameterConfig, Facts, NasIdentity,
    PORT_TYPE_ETHERNET, PORT_TYPE_VIRTUAL, PORT_TYPE_WIRELESS_80211, PORT_TYPE_WIRELESS_80216, RadiusConfig,
    Record, RecordKind,
};
pub use authenticator::Authenticator;
pub use frame::{Access, ETHERTYPE_PKM, PAE_GROUP};
pub use station::Station;
pub use station_id::{MacAddress, StationId};
/// The exchange of traffic keys over 802.16.
pub use usher_pkm::keying;
