//! The AAA client of an access server (NAS), for any kind of access and over RADIUS or Diameter.
//!
//! [`AccessClient`] is a machine:
//!
//! - Getters ([`AccessClient::accepts_dynamic_requests`], the counters) show its state.
//! - `handle_input` of [`Machine`](usher_core::Machine) takes datagrams, stream data and timeouts.
//! - [`AccessClient::send_request`] sends an [`AccessRequest`] with a [`UserCredentials`], and [`AccessClient::send_record`]
//!   an [`AccountingRecord`]. `handle_command` takes an [`AccessClientCommand`].
//! - `poll_output` returns transmissions and an [`AccessClientEvent`], with an [`AccessReply`] of the AAA server or a
//!   [`DynamicRequest`] about a session. `poll_timeout` returns the next timeout.
//!
//! [`pool`] leases addresses. [`LoginFailureTable`] counts failed logins, and [`LoginLockout`] locks users out for them.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod addresses;
mod client;
mod dynamic;
mod failures;
mod grace;
mod identity;
mod local_users;
mod lockout;
pub mod pool;
mod prefix;
mod proof;
mod record;
mod reply;
mod request;
mod subscribers;
mod tunnel;

pub use addresses::{AddressLeases, LeaseHolder, LeaseKind};
pub use client::{
    AaaClientConfig, AaaConfig, AaaRequestFailure, AccessClient, AccessClientCommand, AccessClientEvent,
    AccountingRetryConfig, ConfigError, DIAMETER_LISTENER, DYNAMIC_SOCKET, DiameterConfig,
    DiameterConnections, DynamicAuthConfig, RadiusConfig,
};
pub use dynamic::{DynamicRequest, DynamicRequestKind, ErrorCause, SessionIdentity};
pub use failures::{LoginFailureLimit, LoginFailureTable};
pub use grace::AaaOutagePolicy;
pub use identity::{
    NasIdentity, NasPort, PORT_TYPE_ETHERNET, PORT_TYPE_VIRTUAL, PORT_TYPE_WIRELESS_80211,
    PORT_TYPE_WIRELESS_80216,
};
pub use local_users::{EapStepJob, LocalUsers};
pub use lockout::LoginLockout;
pub use prefix::ipv6_prefix;
pub use proof::{
    ChapResponse, ExpectedServerProof, MsChapResponse, MsChapV2Response, ServerProofError, UserCredentials,
};
pub use record::{
    AccountingRecord, AccountingRecordKind, SessionTraffic, TerminateCause, session_id, start_in_session_id,
};
pub use reply::{AccessReply, FramedAddress};
pub use request::{AccessRequest, LoginRoundState};
pub use subscribers::{
    AuthenticationBackend, LoginAnswer, LoginAttempt, LoginFailure, NewSubscriberSession, RateProfile,
    ServerRecords, SubscriberAddresses, SubscriberCommand, SubscriberConfig, SubscriberCounters,
    SubscriberEvent, SubscriberGrant, SubscriberKey, SubscriberManager, SubscriberPlace, SubscriberSession,
    is_identity_response,
};
pub use tunnel::{fallback_user_name, is_eap_tls_response, is_tunnelled};
