//! An IKEv2 gateway and client (RFC 7296): with whom there may be IKE_SAs, who says whether a user may in, which addresses
//! users get, and what an AAA server is told of them.
//!
//! ```text
//! initiator ─ IKE_SA_INIT, IKE_AUTH ─▶ Gateway ─ EAP packet ─▶ AAA server (RADIUS, RadSec, Diameter), or users of its own
//!           ◀─ IKE_AUTH ──────────────         ◀─ verdict, key, address ─
//! Gateway ─ Event::Ike(Install, Remove, Moved) ─▶ the host's ESP, before the answer leaves that depends on it
//! Gateway ◀─ Carried, Acquire ─ the host's ESP: what CHILD_SAs have carried, and packets that need one
//! Gateway ─ Accounting-Request (start, interim, stop) ─▶ AAA server ─ Disconnect-Request, CoA-Request ─▶ Gateway
//! ```
//! A [`IkeGateway`] is a machine that contains an endpoint of [`usher_ike`] and a client of [`usher_access`]. Both roles are one:
//! a connection that names a remote address can be begun, at the start or by a command, and any other is waited for. Signatures
//! and chains of certificates leave it as jobs, which `usher_ike`'s `Credentials` answer, and so do handshakes of EAP-TLS that it
//! judges itself.
//!
//! [`config`] is its file, the same for a live gateway and for a study.

extern crate alloc;

mod accounting;
mod acquire;
mod addresses;
pub mod config;
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
mod users;

pub use addresses::{AddressLeases, LeaseWish};
pub use service::{
    AAA_SLOT, DYNAMIC_SOCKET, EapJudge, GatewayCommand, GatewayConfig, GatewayCounters, GatewayEvent,
    GatewayJob, GatewayPeer, IKE_SLOT, IkeGateway, LoginFailure, NAT_SOCKET, NAT_SOCKET_V6, SOCKET,
    SOCKET_V6, SaSelection,
};
pub use status::{ChildStatus, GatewayStatus, SaStatus};
pub use swanctl::{IncludeLoader, SwanctlError, SwanctlImport, import_swanctl};
pub use users::{EapJudgement, LocalUsers};
pub use usher_access::{AaaClientConfig, AccountingRetryConfig};
