//! Network access servers: the 802.1X authenticator that passes EAP through to RADIUS or Diameter.

#![cfg_attr(not(test), no_std)]

extern crate alloc;
