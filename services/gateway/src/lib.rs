//! An IKEv2 gateway and client (RFC 7296): its connections, the login of users, their addresses and their accounting.
//!
//! ```text
//! initiator ─ IKE_SA_INIT, IKE_AUTH ─▶ gateway ─ EAP packet ─▶ AAA server (RADIUS, RadSec, Diameter), or local users
//!           ◀─ IKE_AUTH ──────────────         ◀─ verdict, key, address ─
//! gateway ─ events: install, remove, move an SA ─▶ the host's ESP, before dependent responses are sent
//! gateway ◀─ commands: usage, acquire ─ the host's ESP: octets of CHILD_SAs, and packets that need one
//! gateway ─ Accounting-Request (start, interim, stop) ─▶ AAA server ─ Disconnect-Request, CoA-Request ─▶ gateway
//! ```
//! An [`IkeGateway`] is a machine ([`usher_core::Machine`]) that contains an endpoint of [`usher_ike`] and a client
//! of [`usher_access`]. It has four kinds of methods:
//!
//! - Getters (`counters`, `session_count`, `half_open`, `pool_usage`) show its state.
//! - `handle_input` takes datagrams, stream data and timeouts.
//! - `handle_command` takes commands ([`GatewayCommand`]): job results, reports of the data plane, requests of the
//!   operator.
//! - `poll_output` and `poll_timeout` return transmissions, events ([`GatewayEvent`]), jobs ([`GatewayJob`]) and the
//!   next timeout.
//!
//! One gateway has both roles. A connection with a remote address can be initiated, at the start or by a command; any
//! other waits for its initiator. Signatures and certificate chains leave it as jobs, for `usher_ike`'s
//! `Credentials`. EAP-TLS handshakes with local users are jobs too.
//!
//! [`config`] is its file, the same for a live gateway and for a study.

extern crate alloc;

mod acquire;
mod addresses;
mod api;
pub mod config;
mod ike_session;
mod initiator;
mod leave;
mod login;
mod renewal;
mod service;
mod session;
mod shards;
mod status;
mod swanctl;
#[cfg(all(test, feature = "tls"))]
mod tests;
mod traffic;

pub use api::{
    AddressLeaseRequest, GatewayCommand, GatewayConfig, GatewayConnectionConfig, GatewayEvent, GatewayJob,
    IkeSaSelector,
};
pub use service::{
    AAA_SLOT, DYNAMIC_SOCKET, GatewayCounters, IKE_SLOT, IkeGateway, NAT_SOCKET, NAT_SOCKET_V6, SOCKET,
    SOCKET_V6,
};
pub use status::{ChildSaStatus, GatewayStatus, IkeSaStatus};
pub use swanctl::{IncludeLoader, SwanctlError, SwanctlImport, import_swanctl};
pub use usher_access::{AaaClientConfig, AccountingRetryConfig, AddressLeases, LoginFailure};
