//! One suite over all stores, and what each does by itself.

mod cluster;
mod folder;
mod import;
mod postgres;
mod sqlite;
mod suite;
