//! Nodes talking to nodes.

mod authentication;
mod duplicates;
mod forget;
mod message;
mod rules;
mod stream;
mod table;
mod world;
