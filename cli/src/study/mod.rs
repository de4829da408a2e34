//! `usher study ...`

mod compare;
mod group;
mod run;
mod show;

pub(crate) use compare::compare;
pub(crate) use run::run;
pub(crate) use show::{check, list, new, show};
