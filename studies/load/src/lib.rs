//! The load generator: logs users in on real sockets and measures the server.
//!
//! [`LoadGenerator`] is a machine without sockets. It sends RADIUS requests with their retransmissions, runs EAP peers
//! and checks every reply, at the pace of an open or a closed loop. Tests drive it in virtual time.
//!
//! [`run_load_plan`] runs a [`LoadRunPlan`] on real sockets. [`report`] turns its [`LoadOutcome`] into JSON, rows and a
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
pub use eap::{EapMethod, EapTlsConfig, PeapInnerMethod, TtlsInnerMethod};
pub use expect::{ExpectError, ExpectationInputs, ExpectationVerdict, LoadExpectation};
pub use generator::{
    ConfigError, DiameterConfig, DiameterLogin, GeneratorCommand, GeneratorConfig, GeneratorEvent,
    GeneratorNasFleet, IkeConfig, IkeGatewayAuth, IkeLogin, LoadGenerator, LoadProtocolConfig,
    LoginAccounting, MethodShare, MihConfig, MihRequest, PppoeConfig, PppoeLogin, RadiusConfig, RadiusLogin,
    SessionEchoConfig, SessionHoldTime,
};
pub use limit::{BUSY_SHARE, GeneratorLimitCause, LATENESS_FLOOR_S, LATENESS_FRACTION};
pub use live::{
    FirstTlsFailure, LoadIntervalStats, LoadObserver, LoadOutcome, LoadRampPlan, LoadRunPlan, NoLoadObserver,
    RunError, ServerResourceUsage, SessionSetupRates, SessionSetupRound, log_in_by_each_method,
    run_load_plan,
};
pub use pace::{LoginArrivals, LoginPace};
pub use ramp::{RUN, RampConfig, RampKnee, RampSearch, RampStep, TURNS};
pub use scope::{is_in_network_namespace, is_own};
pub use tally::{LatencyHistogram, LoginFailure, LoginStats, MethodStats, quantile};
pub use users::{UserCredentialTable, UsersError};
pub use usher_diameter::node::PeerTransportConfig as DiameterTransport;
pub use usher_diameter::stream::StreamPolicy;
