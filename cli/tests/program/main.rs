//! The program as a user sees it: what it prints, what it writes, with which code it ends.

mod aaa;
mod claims;
mod packaging;
mod place;
mod run;
mod study;
mod verify;
