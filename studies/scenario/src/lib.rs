//! Study files: from TOML to a checked [`model`], and from there to a [`StudyPlan`], the grid of points to run.
//!
//! A study file describes hosts, links, workloads, axes and figures. Every quantity carries its unit. An unknown key is
//! a fault, and every fault has its line. `docs/reference/study-files.md` describes the format.

mod axis;
pub mod certificates;
mod check;
mod form;
pub mod founding;
pub mod lab;
pub mod metrics;
pub mod model;
mod plan;
pub mod ports;
pub mod presets;
mod processors;
pub mod reference;
pub mod services;
mod setting;
mod study;
mod template;
pub mod work;

pub use form::ClosedFormName;
pub use model::{Scenario, StudyFile};
pub use plan::{AxisSetting, DEFAULT, PlanOverrides, PlanPoint, PlannedAxis, StudyMode, StudyPlan, VARIANT};
pub use processors::profiled_cpu;
pub use study::{FORMAT, LoadError, MAX_POINTS, Study, json_schema};
pub use template::{StudyTemplate, TEMPLATES, default_template};
pub use usher_config::{ConfigDiagnostic, ConfigErrors, OrderedMap, units};
