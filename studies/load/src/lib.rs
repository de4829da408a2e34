//! The load generator: users who log in on real sockets, and what that shows.
//!
//! [`Generator`] is a machine without sockets: RADIUS requests with their retransmissions, EAP peers and the
//! checks of every answer, at the pace of an open or a closed loop. Tests drive it in virtual time.

mod cpu;
mod eap;
mod generator;
mod live;
mod pace;
mod ramp;
pub mod report;
mod scope;
mod tally;
mod users;

pub use cpu::{CpuTime, peak_memory};
pub use eap::{EapMethod, PeapInner, Tls, TtlsInner};
pub use generator::{
    Accounting, Command, Config, ConfigError, DiameterConfig, DiameterLogin, Event, FrontConfig, Generator,
    RadiusConfig, RadiusLogin,
};
pub use live::{Interval, Outcome, Plan, RampPlan, RunError, ServerUse, Unwatched, Watch, run, try_one};
pub use pace::{Arrivals, Pace};
pub use ramp::{Ramp, RampConfig, Step};
pub use scope::is_own;
pub use tally::{Failure, Latencies, Tally, quantile};
pub use users::{Users, UsersError};
