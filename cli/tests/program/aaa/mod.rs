//! The AAA server as a program, asked by clients that others wrote.

mod admin;
mod daemon;
mod operate;
mod serve;
