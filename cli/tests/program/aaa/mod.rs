//! The AAA server as a program, asked by clients that others wrote.

mod admin;
mod daemon;
mod durable;
mod operate;
mod records;
mod serve;
