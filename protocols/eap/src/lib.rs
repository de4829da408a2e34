//! EAP (RFC 3748, 4137): peer, pass-through authenticator and server automata, EAP-MD5, EAP-TLS, EAPOL.

#![cfg_attr(not(test), no_std)]

extern crate alloc;
