//! The system's clock.

use std::time::SystemTime;
use usher_core::WallTime;

/// Returns the time of the system's clock.
pub(crate) fn wall_time() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_unix_secs(since.as_secs())
}
