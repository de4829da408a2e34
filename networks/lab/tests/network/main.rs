//! The lab on real namespaces. It needs its rights, for instance as root.

mod support;

mod hosts;
mod links;
mod paths;
