//! Studies on the simulator, from TOML to metrics.

mod accounting;
mod cell;
mod handover;
mod mih;
mod world;
