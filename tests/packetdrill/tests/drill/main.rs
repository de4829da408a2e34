//! packetdrill's language, and scripts in it.

mod language;
mod scripts;
