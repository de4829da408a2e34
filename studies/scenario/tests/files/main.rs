//! Study files: what is right in them, what is wrong, and the plans that follow.

mod cells;
mod doubts;
mod faults;
mod founding;
mod lab;
mod meaning;
mod plans;
mod processors;
mod schema;
mod workloads;
