//! The program from a user's view: its output, its files and its exit codes.

mod aaa;
mod check;
mod claims;
#[path = "../../../networks/store/tests/stores/cluster.rs"]
mod cluster;
mod config;
#[path = "../../../networks/store/tests/stores/folder.rs"]
mod folder;
mod ident;
mod ike;
mod ike_load;
mod ike_revocation;
mod lab;
mod mih;
mod own;
mod packaging;
mod place;
mod pppoe;
mod run;
mod study;
mod verify;
