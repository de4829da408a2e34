//! Study files: from TOML to a checked [`model`], and from there to a plan, the grid of points to run.
//!
//! A study file says which hosts there are, how they are linked, what they say to each other, what is
//! varied (axes) and what is drawn (figures). Every quantity carries its unit, every key is known, every
//! fault is reported with its line. The format is described in `docs/study-files.md`.

pub mod model;
pub mod ordered;
mod schema;
pub mod units;

pub use model::{Scenario, StudyFile};
pub use ordered::Ordered;
