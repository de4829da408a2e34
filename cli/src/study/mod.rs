//! `usher study ...`

mod both;
mod cluster;
mod compare;
mod group;
mod on;
mod run;
mod show;

pub(crate) use compare::compare;
pub(crate) use run::run;
pub(crate) use show::{check, list, new, show};
