//! Nodes talking to nodes.

mod authentication;
mod forget;
mod message;
mod stream;
mod world;
