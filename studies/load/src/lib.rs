//! The load generator: logs users in on real sockets and measures the server.
//!
//! [`LoadGenerator`] is a machine without sockets. It sends RADIUS requests with their retransmissions, runs EAP peers
//! and checks every reply, at the pace of an open or a closed loop. Tests drive it in virtual time.
//!
//! [`run_load_plan`] runs a [`LoadPlan`] on real sockets. [`report`] turns its [`LoadOutcome`] into JSON, rows and a
//! report. [`calibrate`] measures the cost of a login on this machine.

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
pub use eap::{EapMethod, EapTlsConfig, PeapInner, TtlsInner};
pub use expect::{ExpectError, ExpectationInputs, ExpectationVerdict, LoadExpectation};
pub use generator::{
    ConfigError, DiameterConfig, DiameterLogin, EchoConfig, FrontConfig, GeneratorCommand, GeneratorConfig,
    GeneratorEvent, IkeConfig, IkeGatewayAuth, IkeLogin, LoadGenerator, LoginAccounting, MethodShare,
    MihConfig, MihRequest, NasFleet, PppoeConfig, PppoeLogin, RadiusConfig, RadiusLogin, SessionHold,
};
pub use limit::{BUSY_SHARE, GeneratorLimit, LATENESS_FLOOR_S, LATENESS_FRACTION};
pub use live::{
    LoadInterval, LoadObserver, LoadOutcome, LoadPlan, NoLoadObserver, RampPlan, RunError, ServerUse,
    SetupRates, SetupRound, TlsFailure, run_load_plan, try_each_method,
};
pub use pace::{LoginArrivals, LoginPace};
pub use ramp::{RUN, RampConfig, RampKnee, RampSearch, RampStep, TURNS};
pub use scope::{in_namespace, is_own};
pub use tally::{LatencyHistogram, LoginFailure, LoginStats, MethodStats, quantile};
pub use users::{LoadUsers, UsersError};
pub use usher_diameter::node::PeerTransportConfig as DiameterTransport;
pub use usher_diameter::stream::StreamPolicy;
