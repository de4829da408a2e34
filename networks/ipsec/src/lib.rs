//! ESP on a live host: packets that the system routes to a TUN device are protected and sent, and what comes is opened and
//! given to the system by that device.
//!
//! ```text
//!  system ── TUN: up to 64 KiB as one ──▶ cut ─▶ seal ─▶ UDP_SEGMENT: up to 64 packets as one ──▶ network
//!         ◀── TUN: up to 64 KiB as one ── join ◀─ open ◀─ UDP_GRO: up to 64 KiB as one ─────────
//! ```
//! A [`EspTunnel`] is one thread, which has a [`Plane`](usher_esp::EspDataPlane) and knows no protocol but that. Whoever negotiates tells
//! it of SAs and policies by [`EspTunnel::apply_operation`], and hears what it has to say.
//!
//! Packets within UDP take port 4500, on which IKE speaks, too. Where IKE has a socket of its own, bound before with
//! `SO_REUSEPORT`, the kernel tells the two apart ([`TunnelConfig::shares_ike_port`]); otherwise messages of IKE are handed over
//! ([`TunnelEvent::Ike`]).
//!
//! Where the kernel has ESP a [`KernelEsp`] does the same by the kernel's XFRM: the same operations, the same that it says.

mod interface;
mod kernel;
mod sys;
mod tunnel;
mod worker;
mod xfrm;

pub use kernel::{KernelConfig, KernelError, KernelEsp};
pub use tunnel::{EspTunnel, StartError, TunnelConfig, TunnelEvent};
pub use worker::TunnelCounters;
