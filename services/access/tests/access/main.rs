//! An AAA client and its servers on a virtual network.

mod accounting;
mod dynamic;
mod failures;
mod login;
mod world;
