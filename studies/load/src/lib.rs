//! The load generator: users who log in on real sockets, and what that shows.
//!
//! [`LoadGenerator`] is a machine without sockets: RADIUS requests with their retransmissions, EAP peers and the
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
