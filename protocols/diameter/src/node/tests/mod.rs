//! Nodes talking to nodes.

mod forget;
mod message;
mod stream;
mod world;
