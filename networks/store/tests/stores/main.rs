//! One suite over all stores, and what each does by itself.

mod folder;
mod sqlite;
mod suite;
