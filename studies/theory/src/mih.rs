//! MIH messages in closed form: over UDP with and without the MIH acknowledgement ([`MihTransaction`]), and over TCP with
//! a doubling timeout that has a largest value ([`LoneSegment`], [`MessageStream`]). `docs/mih.md` derives both.

mod tcp;
mod udp;

pub use tcp::{LoneSegment, MessageStream, StreamMeans};
pub use udp::{ExpectedOutcome, MOST_RETRANSMISSIONS, MessageKind, MihResponse, MihTransaction};
