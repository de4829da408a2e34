//! The parts that the daemons of access servers share: an AAA server inside of them, and TLS to their AAA servers.

mod embedded;
mod outgoing_tls;

pub use embedded::{
    AaaConfigChecker, AaaServer, AaaServerStarter, RunningAaaServer, check_embedded, stand_in,
};
pub use outgoing_tls::select_outgoing_tls;
