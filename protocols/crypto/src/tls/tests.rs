//! Real and recorded handshakes against each other.
