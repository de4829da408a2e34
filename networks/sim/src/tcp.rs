//! TCP as a machine without input or output of its own (RFC 9293): one [`TcpConnection`] each side.
//!
//! A host feeds a connection with [`TcpConnection::handle_segment`], [`TcpConnection::handle_timeout`] and the
//! application's calls, then drains
//!
//! 1. [`TcpConnection::poll_event`], giving the application its turn (what it writes now, an acknowledgement
//!    rides on);
//! 2. [`TcpConnection::poll_transmit`] until `None`, sending each segment;
//! 3. and arms a timer for [`TcpConnection::poll_timeout`].
//!
//! A kernel attempts output at every write. A host that wants the same drains `poll_transmit` after each
//! [`TcpConnection::write`]; one that writes several times first gets what a corked socket would send.
//!
//! Losses are repaired by retransmission that may cut the stream anew, as BSD and Linux do. Left out:
//! urgent data, keep-alive, ECN, path MTU discovery, and a security level.

mod ack_pace;
mod bbr;
mod codec;
mod config;
mod congestion;
mod connection;
mod cubic;
mod fast_open;
mod full_tcp;
mod input;
mod ns3_cubic;
mod ns3_sender;
mod output;
mod rack;
mod receive_buffer;
mod receive_tuning;
mod recovery;
mod reduction;
mod rtt;
mod scoreboard;
mod segment;
mod send_buffer;
pub(crate) mod seq;
mod timers;

#[cfg(test)]
mod tests;

pub use codec::{ParseError, round_trip};
pub use config::{
    AckEvery, AckTimer, BackoffReset, CongestionControl, DelayedAck, IdleRestart, InitialWindow, LossHalves,
    LossRecovery, NagleVariant, RecoveryAlgorithm, RtoRestart, StackVariants, TcpConfig, TimestampEcho,
    WindowGrowth, WindowUnit, WindowUpdate,
};
pub use connection::{StreamData, TcpConnection, TcpEvent, TcpState, TcpStats};
pub use fast_open::{FastOpenCache, FastOpenCookie};
pub use segment::{SackBlocks, Segment, SegmentFlags, TcpOptions};
