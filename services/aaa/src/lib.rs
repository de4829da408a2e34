//! The AAA server: users, policy, EAP back end, RADIUS and Diameter fronts.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod ledger;
pub mod proxy;
pub mod server;
pub mod store;
mod users;

pub use server::{AaaServer, Command, Config, Counters, Event, Reason, UserSource};
pub use users::{Method, User, Users};
