//! Profiles: the cost of a login at an AAA server. `usher load --calibrate` measures it and writes it to a file.
//!
//! A profile has a cost for each kind of labelled work ([`ServerProfile::work`]), with which a simulated processor is
//! charged. It also has the measured totals of each method ([`ServerProfile::methods`]), which show how much of the
//! cost the kinds of work explain. [`solve_costs`] computes the first from the second.
//!
//! This crate has no clock and opens no file. `usher_load` measures; `usher_scenario` and `usher_plan` charge.

mod file;
mod fit;
mod scale;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod write;

pub use file::{
    CpuCost, FORMAT, FULL_BATCH, LibraryCpuShares, LoginTraffic, MachineProfile, MeasuredLoadPoint,
    MethodProfile, ProfileMismatchError, ProfileRequirement, ReferenceCryptoRates, ServerConfiguration,
    ServerProfile, StoreKind, StoreProfile, UnsoundProfileError, json_schema, parse_profile, read_tree,
};
pub use fit::{CostEquation, FittedCosts, find_redundant_unknowns, solve_costs};
pub use scale::MachineSpeedFactors;
pub use write::format_profile;

/// The kind of work that takes time off the processor: a lookup for which a thread of the store waits.
pub const LOOKUP: &str = "store.lookup";
/// The kind of work of each request, whatever its contents.
pub const REQUEST: &str = "radius.request";
