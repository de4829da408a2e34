//! RADIUS (RFC 2865 and its companions): packets, attributes, dictionaries, client, server.

#![cfg_attr(not(test), no_std)]

extern crate alloc;
