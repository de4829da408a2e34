//! Study files: valid ones, their faults, and their plans.

mod cells;
mod doubts;
mod faults;
mod founding;
mod lab;
mod meaning;
mod mobility_faults;
mod plans;
mod processors;
mod schema;
mod workloads;
