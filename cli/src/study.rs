//! `usher study ...`

mod both;
mod cluster;
mod compare;
mod group;
mod on;
mod run;
mod show;

pub(crate) use compare::compare_runs;
pub(crate) use run::run_studies;
pub(crate) use show::{check_studies, list_studies, new, show_study};
