//! `usher plan`: the number of servers for a deployment.
//!
//! The planned server runs in the simulator with its configuration, on a processor charged by a profile
//! ([`usher_profile`], measured by `usher load --calibrate`). The load generator for real servers logs users in
//! (`world.rs`). Steps at different rates find the highest rate that meets the target. Closed forms stand beside the
//! simulation ([`mod@bounds`]). Time is virtual and random numbers come from a seed: the same plan gives the same
//! answer.

mod answer;
pub mod bounds;
mod deployment;
mod file;
mod gateway;
mod login;
mod prepare;
mod report;
mod world;

pub use answer::{
    IntervalEstimate, LoadLevel, PlanAnswer, PlanError, PlanObserver, PlanSettings, SimulatedPoint,
    plan_deployment,
};
pub use deployment::{DeploymentError, DeploymentInputs, ServerDeployment, UserTlsConfig, builtin_config};
pub use file::{FORMAT, LoginDemand, LoginTimeTarget, PlanFile, json_schema, parse_plan};
pub use login::{LoginMethod, LoginMethodError};
pub use prepare::{PlanSimulationSettings, PrepareError, PreparedPlan};
pub use report::{answer_json, answer_text, build_report};
pub use world::{LoadStepDuration, LoadStepResult, run_load_step};
