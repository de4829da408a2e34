//! The usher program.

fn main() {}
