//! Tests of packetdrill's language and scripts.

mod language;
mod scripts;
