//! Drivers on loopback sockets: datagrams, connections, TLS, and a RADIUS server that a real client asks.

mod common;
mod radius;
mod tcp;
mod tls;
mod turns;
mod udp;
