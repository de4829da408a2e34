//! The lab over real namespaces; needs its rights, as root has them.

mod support;

mod hosts;
mod links;
mod paths;
