//! The load generator: users who log in on real sockets, and what that shows.
//!
//! [`Generator`] is a machine without sockets: RADIUS requests with their retransmissions, EAP peers and the
//! checks of every answer, at the pace of an open or a closed loop. Tests drive it in virtual time.

pub mod calibrate;
mod cpu;
mod eap;
mod expect;
mod generator;
mod limit;
mod live;
mod pace;
mod ramp;
pub mod report;
mod scope;
mod tally;
mod users;

pub use cpu::{CpuTime, peak_memory};
pub use eap::{EapMethod, PeapInner, Tls, TtlsInner};
pub use expect::{ExpectError, Expectation, Shown, Verdict};
pub use generator::{
    Accounting, Command, Config, ConfigError, DiameterConfig, DiameterLogin, EchoConfig, Event, Fleet,
    FrontConfig, Generator, Hold, IkeConfig, IkeGatewayAuth, IkeLogin, MihConfig, MihRequest, PppoeConfig,
    PppoeLogin, RadiusConfig, RadiusLogin, Share,
};
pub use limit::{BUSY_SHARE, LATE_FLOOR_S, LATE_SHARE, Limit};
pub use live::{
    Interval, Outcome, Plan, RampPlan, Round, RunError, ServerUse, Setup, TlsFailure, Unwatched, Watch, run,
    try_one,
};
pub use pace::{Arrivals, Pace};
pub use ramp::{Knee, RUN, Ramp, RampConfig, Step, TURNS};
pub use scope::{in_namespace, is_own};
pub use tally::{Failure, Latencies, Part, Tally, quantile};
pub use users::{Users, UsersError};
pub use usher_diameter::node::Transport as DiameterTransport;
pub use usher_diameter::stream::StreamPolicy;
