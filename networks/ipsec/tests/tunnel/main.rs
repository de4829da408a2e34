//! Tunnels between network namespaces: ours with ours, ours with strongSwan's, and tshark's view of our packets. They
//! need root.

mod carry;
mod charon;
mod place;
mod tshark;
