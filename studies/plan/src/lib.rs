//! `usher plan`: the number of servers for a deployment.
//!
//! The planned server runs in the simulator with its configuration, on a processor charged by a profile
//! ([`usher_profile`], measured by `usher load --calibrate`). The load generator for real servers logs users in
//! ([`world`]). Steps at different rates find the highest rate that meets the target. Closed forms stand beside the
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
pub use deployment::{DeploymentError, DeploymentParts, ServerDeployment, TlsFor, builtin_config};
pub use file::{FORMAT, LoginDemand, LoginTarget, PlanFile, json_schema, parse_plan};
pub use login::{LoginMethod, MethodError};
pub use prepare::{PlanEffort, PrepareError, PreparedPlan};
pub use report::{answer_json, answer_text, build_report};
pub use world::{StepLength, StepResult, run_load_step};
