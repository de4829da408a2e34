//! MIH messages in closed form: over UDP with and without MIH acknowledgement ([`MihTransaction`]), and over TCP with a
//! retransmission timeout that doubles up to a maximum ([`IsolatedTcpSegment`], [`TcpMessageStream`]). `docs/explanation/mih.md` derives
//! both.

mod tcp;
mod udp;

pub use tcp::{IsolatedTcpSegment, MessageStreamMeans, TcpMessageStream};
pub use udp::{ExpectedOutcome, MOST_RETRANSMISSIONS, MessageKind, MihResponse, MihTransaction};
