//! ESP on a live host. Packets that the system routes to a TUN device are encrypted and sent. Received ESP packets
//! are decrypted and reach the system by that device.
//!
//! ```text
//! system ── TUN: up to 64 KiB as one ──▶ cut ─▶ seal ─▶ UDP_SEGMENT: up to 64 packets as one ──▶ network
//!        ◀── TUN: up to 64 KiB as one ── join ◀─ open ◀─ UDP_GRO: up to 64 KiB as one ─────────
//! ```
//! An [`EspTunnel`] is one thread with a [`EspDataPlane`](usher_esp::EspDataPlane). It knows no other protocol. The owner,
//! such as an IKE gateway, sets SAs and policies by [`EspTunnel::apply_operation`], and receives events.
//!
//! Packets in UDP use port 4500, which IKE uses too. If IKE has a socket of its own, bound before with
//! `SO_REUSEPORT`, the kernel separates the two ([`TunnelConfig::shares_ike_port`]). Otherwise the tunnel passes IKE
//! messages on ([`TunnelEvent::Ike`]).
//!
//! A [`KernelEsp`] does the same by the kernel's XFRM, with the same operations and events.

mod interface;
mod kernel;
mod sys;
mod tunnel;
mod worker;
mod xfrm;

pub use kernel::{KernelEsp, KernelEspConfig, KernelEspError};
pub use tunnel::{EspTunnel, StartError, TunnelConfig, TunnelEvent};
pub use worker::TunnelCounters;
