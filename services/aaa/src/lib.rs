//! The AAA server: users, policy, EAP back end, RADIUS and Diameter fronts.

#![cfg_attr(not(test), no_std)]

extern crate alloc;
