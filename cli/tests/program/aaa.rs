//! The AAA server as a program, with clients of other projects.

mod admin;
pub(crate) mod daemon;
mod durable;
mod flood;
mod fresh_lists;
mod guesses;
mod homes;
mod hostile;
mod hostile_diameter;
mod learnt_lists;
pub(crate) mod lists;
pub(crate) mod ocsp;
mod operate;
pub(crate) mod others;
mod records;
mod revoked;
mod serve;
mod server_certificates;
mod translated;
mod upgrade;
mod vendors;
mod why;
