//! `usher study ...`

mod cluster;
mod compare;
mod comparison;
mod group;
mod lab_steps;
mod run;
mod show;

pub(crate) use compare::compare_runs;
pub(crate) use run::run_studies;
pub(crate) use show::{check_studies, list_studies, new, show_study};
