//! Handovers of a whole world of machines.

mod failures;
mod flows;
mod transports;
mod world;
