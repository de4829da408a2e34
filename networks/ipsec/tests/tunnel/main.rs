//! Tunnels between network namespaces: ours with ours, ours with strongSwan's, and what tshark says of our packets. Root may make
//! them.

mod carry;
mod charon;
mod place;
mod tshark;
