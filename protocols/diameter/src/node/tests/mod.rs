//! Nodes talking to nodes.

mod authentication;
mod forget;
mod message;
mod rules;
mod stream;
mod world;
