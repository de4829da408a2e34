//! Handovers of a whole world of machines.

mod failures;
mod flows;
mod pipes;
mod transports;
mod world;
