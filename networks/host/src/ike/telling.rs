//! How other threads tell the gateway something.

use crate::{Source, Teller};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use usher_gateway::Command;

/// Tells the gateway, once it runs.
#[derive(Clone, Default)]
pub(super) struct Telling(Arc<Mutex<Option<Teller<Command>>>>);

impl Telling {
    /// What is hosted with the gateway, so that it hears.
    pub(super) fn source(&self) -> Source<Command> {
        let place = self.0.clone();
        Box::new(move |teller| *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(teller))
    }
    /// Whether it has been told.
    pub(super) fn tell(&self, command: Command) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|teller| teller(command))
    }
}

impl fmt::Debug for Telling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telling")
    }
}
