//! Profiles: what one login costs an AAA server, measured by `usher load --calibrate` and written to a file.
//!
//! A profile has a cost for each kind of labelled work ([`ServerProfile::work`]), so that a simulated processor can be charged with
//! it, and beside them, for each method, what was measured as a whole ([`ServerProfile::methods`]), so that a reader can see how much of
//! it the kinds of work account for. [`fit`] solves the first from the second.
//!
//! Nothing here measures: no clock, no file. `usher_load` measures, `usher_scenario` and `usher_plan` charge.

mod file;
mod fit;
mod scale;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod write;

pub use file::{
    CpuCost, FORMAT, FULL_BATCH, LibraryShares, LoadPoint, LoginTraffic, MachineProfile, MachineReference,
    MethodProfile, ProfileMisfit, ProfileRequirement, ServerConfiguration, ServerProfile, StoreKind,
    StoreProfile, UnsoundProfile, json_schema, parse_profile, read_tree,
};
pub use fit::{CostEquation, CostSolution, find_spare, solve_costs};
pub use scale::WorkScale;
pub use write::format_profile;

/// What one more unit of a kind of work that leaves the processor to itself is charged, such as a look-up that a store's thread
/// waits for.
pub const LOOKUP: &str = "store.lookup";
/// The kind of work that a request is, whatever is in it.
pub const REQUEST: &str = "radius.request";
