//! Setup that services share.

use crate::ServeError;
use std::time::{Duration, SystemTime};
use usher_config::ConfigDiagnostic;
use usher_core::{SecureRng, WallTime};
use usher_crypto::tls::SharedWallClock;

/// Returns a cryptographically secure random number generator.
///
/// # Errors
/// The system has no randomness.
pub fn secure_rng() -> Result<SecureRng, ServeError> {
    let mut seed = [0; 32];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).map_err(|error| {
        ServeError::System { what: "cannot get random numbers from the system", error: error.into() }
    })?;
    Ok(SecureRng::from_seed(seed))
}

/// Returns the current time of the system's clock.
pub fn wall_time() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::UNIX_EPOCH
        + usher_core::Duration::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns a clock that follows the system's to the second while this program runs. Certificate validity depends on
/// it.
///
/// # Errors
/// A thread is unavailable.
pub fn wall_clock() -> Result<SharedWallClock, ServeError> {
    let clock = SharedWallClock::from_time(wall_time());
    let moved = clock.clone();
    let follow = move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            moved.set(wall_time());
        }
    };
    std::thread::Builder::new()
        .name("wall-clock".to_owned())
        .spawn(follow)
        .map_err(|error| ServeError::System { what: "cannot start a thread", error })?;
    Ok(clock)
}

/// Formats faults for people.
pub fn fault_texts(faults: &[ConfigDiagnostic]) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

/// The notices after a reload: warnings, and the keys whose change needs a restart of `what`.
pub fn config_notices(warnings: &[ConfigDiagnostic], what: &str, later: &[(&str, bool)]) -> Vec<String> {
    let waits = later.iter().filter(|(_, changed)| *changed);
    let waits =
        waits.map(|(key, _)| format!("{key} has changed: restart the {what} to apply the change in full"));
    fault_texts(warnings).into_iter().chain(waits).collect()
}
