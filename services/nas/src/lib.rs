//! Network access servers: the 802.1X authenticator, which passes EAP through to RADIUS or Diameter, and the station
//! that authenticates with it. EAP runs over EAPOL, or over 802.16's PKMv2 ([`AccessMedium`]).
//!
//! [`NasAuthenticator`] and [`AccessStation`] are [machines](usher_core::Machine) over Ethernet frames. Each has four
//! kinds of methods:
//!
//! - Getters, such as `counters` and `keying_counters`.
//! - `handle_input` takes frames and the timeout. The authenticator also takes datagrams, streams and SCTP
//!   associations of AAA servers.
//! - `handle_command` takes an [`AuthenticatorCommand`](authenticator::AuthenticatorCommand) or a
//!   [`StationCommand`](station::StationCommand).
//! - `poll_output` gives transmissions, events ([`AuthenticatorEvent`](authenticator::AuthenticatorEvent),
//!   [`StationEvent`](station::StationEvent)) and work. `poll_timeout` gives the time of the next timeout.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod authenticator;
mod frame;
mod record;
pub mod station;
mod station_id;

pub use authenticator::NasAuthenticator;
pub use frame::{AccessMedium, ETHERTYPE_PKM, PAE_GROUP};
pub use record::StationAccountingRecord;
pub use station::AccessStation;
pub use station_id::{MacAddress, StationId};
/// The authenticator's AAA client: its configuration and results.
pub use usher_access::{
    AaaConfig, AccessReply, AccountingRecordKind, DIAMETER_LISTENER, DYNAMIC_SOCKET, DiameterConfig,
    DiameterConnections, DynamicAuthConfig, NasIdentity, PORT_TYPE_ETHERNET, PORT_TYPE_VIRTUAL,
    PORT_TYPE_WIRELESS_80211, PORT_TYPE_WIRELESS_80216, RadiusConfig, SessionTraffic, TerminateCause,
};
/// The exchange of traffic keys over 802.16.
pub use usher_pkm::keying;
