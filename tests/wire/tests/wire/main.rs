//! The simulator's packets in tshark, results by hand, and one service in two hosts.

mod both;
mod dialogue;
mod diameter;
mod ipfix;
mod mih;
mod oracles;
mod radius;
mod sctp;
mod sweep;
mod tls;
