//! The load generator: users who log in on real sockets, and what that shows.
//!
//! [`Generator`] is a machine without sockets: RADIUS requests with their retransmissions, EAP peers and the
//! checks of every answer, at the pace of an open or a closed loop. Tests drive it in virtual time.

mod eap;
mod generator;
mod pace;
mod tally;
mod users;

pub use eap::EapMethod;
pub use generator::{
    Accounting, Command, Config, ConfigError, Event, FrontConfig, Generator, RadiusConfig, RadiusLogin,
};
pub use pace::{Arrivals, Pace};
pub use tally::{Failure, Latencies, Tally, quantile};
pub use users::{Users, UsersError};
