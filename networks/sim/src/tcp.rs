//! TCP (RFC 9293) as a sans-IO machine: a [`TcpConnection`] is one endpoint of a connection.
//!
//! Its methods are of four kinds:
//!
//! - getters, such as [`TcpConnection::state`], [`TcpConnection::stats`] and [`TcpConnection::cwnd`];
//! - handlers of input: [`TcpConnection::handle_segment`] and [`TcpConnection::handle_timeout`];
//! - commands, such as [`TcpConnection::write`], [`TcpConnection::shutdown`] and [`TcpConnection::abort`];
//! - polls: [`TcpConnection::poll_event`], [`TcpConnection::poll_transmit`] and [`TcpConnection::poll_timeout`].
//!
//! After each input or command, the host
//!
//! 1. polls events until `None` and delivers them to the application, on whose data an acknowledgement may ride;
//! 2. polls segments until `None` and sends them;
//! 3. arms a timer for [`TcpConnection::poll_timeout`].
//!
//! A kernel attempts output at each write. A host that models this drains `poll_transmit` after each
//! [`TcpConnection::write`]. A host that writes several times first models a corked socket.
//!
//! Retransmissions may cut the stream anew, as in BSD and Linux. Not implemented: urgent data, keep-alive, ECN,
//! path MTU discovery and security levels.

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
    AckThreshold, AckTimer, BackoffReset, CongestionControl, DelayedAck, IdleRestart, InitialWindow,
    LossHalves, LossRecovery, LossRecoveryAlgorithm, NagleVariant, ReceiveWindowUpdateRule, RtoRestart,
    TcpConfig, TcpStackVariants, TimestampEcho, WindowGrowth, WindowUnit,
};
pub use connection::{StreamData, TcpConnection, TcpEvent, TcpState, TcpStats};
pub use fast_open::{FastOpenCache, FastOpenCookie};
pub use segment::{SackBlocks, Segment, SegmentFlags, TcpOptions};
