//! A client of AAA servers and the servers that it asks, on one virtual network.

mod accounting;
mod dynamic;
mod failures;
mod login;
mod world;
