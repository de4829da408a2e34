//! MIH messages in closed form: over UDP with and without the MIH acknowledgement ([`Exchange`]), and over TCP with
//! a doubling timeout that has a largest value ([`Lone`], [`Stream`]). `docs/mih.md` derives both.

mod tcp;
mod udp;

pub use tcp::{Lone, Means, Stream};
pub use udp::{Answer, Exchange, Expected, MOST_RETRANSMISSIONS, Message};
