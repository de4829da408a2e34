//! The AAA server as a daemon: its configuration file, shards, stores, signals, metrics and control socket.

pub mod config;
