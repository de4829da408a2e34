//! The time of day.

use std::time::SystemTime;
use usher_core::WallTime;

/// The time of day, as the system's clock shows it.
pub(crate) fn wall_time() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_unix_secs(since.as_secs())
}
