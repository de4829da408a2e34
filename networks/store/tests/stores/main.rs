//! One suite over all stores, and what each does by itself.

mod cluster;
mod folder;
mod postgres;
mod sqlite;
mod suite;
