//! MIH messages in closed form: over UDP with and without MIH acknowledgement ([`MihTransaction`]), and over TCP with a
//! retransmission timeout that doubles up to a maximum ([`LoneSegment`], [`MessageStream`]). `docs/mih.md` derives
//! both.

mod tcp;
mod udp;

pub use tcp::{LoneSegment, MessageStream, StreamMeans};
pub use udp::{ExpectedOutcome, MOST_RETRANSMISSIONS, MessageKind, MihResponse, MihTransaction};
