//! An AAA client and its servers on a virtual network.

mod accounting;
mod addresses;
mod dynamic;
mod failures;
mod login;
mod subscribers;
mod world;
