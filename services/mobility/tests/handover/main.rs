//! Handovers in a test network of machines.

mod failures;
mod flows;
mod transports;
mod world;
