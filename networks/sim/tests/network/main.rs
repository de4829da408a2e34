//! The network as its applications see it.

mod associations;
mod cell;
mod interfaces;
mod mobility;
mod network;
