//! Diameter (RFC 6733): messages, AVPs, dictionary, peer automaton, watchdog, routing, EAP application.

#![cfg_attr(not(test), no_std)]

extern crate alloc;
