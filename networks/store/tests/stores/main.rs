//! One suite over all stores, and the specifics of each.

mod cluster;
mod folder;
mod freeradius;
mod import;
mod import_stops;
mod memory;
mod postgres;
mod session;
mod sqlite;
mod suite;
mod tls;
mod verdicts;
