//! EAP-TLS in studies.

use super::super::WorldError;
use usher_scenario::model::EapTls;

/// TLS secrets of a run.
#[derive(Debug, Default)]
pub(in super::super) struct KeyLog;

impl KeyLog {
    pub(in super::super) fn text(&self) -> String {
        String::new()
    }
}

#[derive(Debug)]
pub(super) struct Tls;

impl Tls {
    pub(super) fn new(_: &EapTls, _: &KeyLog) -> Result<Self, WorldError> {
        Err(WorldError::Role("EAP-TLS is not there yet".into()))
    }
}
