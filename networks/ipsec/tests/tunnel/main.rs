//! Tunnels between network namespaces: ours with ours, ours with strongSwan's. Root may make
//! them.

mod carry;
mod charon;
mod place;
