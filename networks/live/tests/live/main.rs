//! Drivers on loopback sockets: datagrams, connections, TLS, and a RADIUS server with a real client.

mod common;
mod radius;
mod tcp;
mod tls;
mod turns;
mod udp;
