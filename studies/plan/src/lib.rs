//! `usher plan`: how many servers a deployment needs.
//!
//! The server that will be deployed runs in the simulator with its configuration, on a processor that a profile charges
//! ([`usher_profile`], measured by `usher load --calibrate`), and the load generator that measures real servers logs users in
//! ([`world`]). Steps at different rates find the highest that meets the target; closed forms stand beside what was simulated
//! ([`mod@bounds`]). Time is virtual, chance comes from a seed: the same plan gives the same answer.

mod answer;
pub mod bounds;
mod deployment;
mod file;
mod gateway;
mod login;
mod prepare;
mod report;
mod world;

pub use answer::{Answer, Level, PlanError, Settings, SimulatedPoint, Spread, Watch, answer};
pub use deployment::{Deployment, DeploymentError, Parts, TlsFor, builtin};
pub use file::{Demand, FORMAT, File, Target, json_schema, parse};
pub use login::{Method, MethodError};
pub use prepare::{Effort, PrepareError, Prepared};
pub use report::{json, report, text};
pub use world::{Length, Step, step};
