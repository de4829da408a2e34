//! The front of the load: access servers with users, IKEv2 initiators, MIH functions, or PPPoE subscribers.

use super::api::GeneratorEvent;
use super::front::AaaLoadClient;
use super::ike::IkeLoadClient;
use super::login::{LoginDeferral, LoginResultRecorder, LoginStart};
use super::mih::MihLoadClient;
use super::pppoe::PppoeLoadClient;
use usher_core::{Instant, MachineInput, OutputQueue, WallTime};

/// One kind of front.
#[derive(Debug)]
pub(super) enum ProtocolLoadClient {
    Access(Box<AaaLoadClient>),
    Ike(Box<IkeLoadClient>),
    Mih(Box<MihLoadClient>),
    Pppoe(Box<PppoeLoadClient>),
}

impl ProtocolLoadClient {
    pub(super) fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        // MIH messages contain no time of day, so MIH ignores the epoch.
        match self {
            Self::Access(front) => front.set_epoch(now, epoch),
            Self::Ike(front) => front.set_epoch(now, epoch),
            Self::Mih(_) => {}
            Self::Pppoe(front) => front.set_epoch(now, epoch),
        }
    }
    pub(super) fn is_ready(&self) -> bool {
        match self {
            Self::Access(front) => front.is_ready(),
            // A gateway or concentrator has no connection to set up first: its answer shows that it is reachable.
            Self::Ike(_) | Self::Pppoe(_) => true,
            Self::Mih(front) => front.is_ready(),
        }
    }
    pub(super) fn begin_login(
        &mut self,
        now: Instant,
        start: LoginStart,
        sink: &mut LoginResultRecorder,
    ) -> Result<(), LoginDeferral> {
        match self {
            Self::Access(front) => front.begin_login(now, start, sink),
            Self::Ike(front) => front.begin_login(now, start),
            Self::Mih(front) => front.begin_transaction(now, start),
            Self::Pppoe(front) => front.begin_login(now, start),
        }
    }
    pub(super) fn outstanding_logins(&self) -> usize {
        match self {
            Self::Access(front) => front.outstanding_logins(),
            Self::Ike(front) => front.outstanding_logins(),
            Self::Mih(front) => front.outstanding_transactions(),
            Self::Pppoe(front) => front.outstanding_logins(),
        }
    }
    pub(super) fn for_each_login(&self, see: &mut dyn FnMut(&LoginStart)) {
        match self {
            Self::Access(front) => front.for_each_login(see),
            Self::Ike(front) => front.for_each_login(see),
            Self::Mih(front) => front.for_each_transaction(see),
            Self::Pppoe(front) => front.for_each_login(see),
        }
    }
    pub(super) fn abandon_logins(&mut self, now: Instant) {
        match self {
            Self::Access(front) => front.abandon_logins(now),
            Self::Ike(front) => front.abandon_logins(now),
            Self::Mih(front) => front.abandon_transactions(now),
            Self::Pppoe(front) => front.abandon_logins(now),
        }
    }
    pub(super) fn start_leaving(&mut self, now: Instant) {
        match self {
            Self::Access(front) => front.start_leaving(now),
            Self::Pppoe(front) => front.start_leaving(now),
            Self::Ike(_) | Self::Mih(_) => {}
        }
    }
    /// True if the front has capacity for another login.
    pub(super) fn has_room(&self) -> bool {
        !matches!(self, Self::Pppoe(front) if !front.has_room())
    }
    /// True if sessions remain to be ended.
    pub(super) fn is_leaving(&self) -> bool {
        match self {
            Self::Pppoe(front) => front.is_leaving(),
            Self::Ike(front) => front.is_leaving(),
            Self::Access(_) | Self::Mih(_) => false,
        }
    }
    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Access(front) => front.counters(),
            Self::Ike(front) => front.counters(),
            Self::Mih(front) => front.counters(),
            Self::Pppoe(front) => front.counters(),
        }
    }
    pub(super) fn handle_input(
        &mut self,
        now: Instant,
        input: MachineInput<'_>,
        sink: &mut LoginResultRecorder,
    ) {
        match self {
            Self::Access(front) => front.handle_input(now, input, sink),
            Self::Ike(front) => front.handle_input(now, input),
            Self::Mih(front) => front.handle_input(now, input),
            Self::Pppoe(front) => front.handle_input(now, input, sink),
        }
    }
    pub(super) fn drain_outputs(
        &mut self,
        now: Instant,
        outputs: &mut OutputQueue<GeneratorEvent>,
        sink: &mut LoginResultRecorder,
    ) {
        match self {
            Self::Access(front) => front.drain_outputs(now, outputs, sink),
            Self::Ike(front) => front.drain_outputs(now, outputs, sink),
            Self::Mih(front) => front.drain_outputs(now, outputs, sink),
            Self::Pppoe(front) => front.drain_outputs(now, outputs, sink),
        }
    }
    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        match self {
            Self::Access(front) => front.poll_timeout(),
            Self::Ike(front) => front.poll_timeout(),
            Self::Mih(front) => front.poll_timeout(),
            Self::Pppoe(front) => front.poll_timeout(),
        }
    }
}
