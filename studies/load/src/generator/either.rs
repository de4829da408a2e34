//! Who asks: access servers with users behind them, IKEv2 initiators, MIH functions, or PPPoE subscribers.

use super::front::Front as AccessFront;
use super::ike::IkeFront;
use super::login::{Sink, Start};
use super::mih::MihFront;
use super::pppoe::PppoeFront;
use super::{Event, NotNow};
use usher_core::{Input, Instant, Outputs, WallTime};

/// One of these.
#[derive(Debug)]
pub(super) enum Front {
    Access(Box<AccessFront>),
    Ike(Box<IkeFront>),
    Mih(Box<MihFront>),
    Pppoe(Box<PppoeFront>),
}

impl Front {
    pub(super) fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        // What MIH functions say has no time of day.
        match self {
            Self::Access(front) => front.set_epoch(now, epoch),
            Self::Ike(front) => front.set_epoch(now, epoch),
            Self::Mih(_) => {}
            Self::Pppoe(front) => front.set_epoch(now, epoch),
        }
    }
    pub(super) fn ready(&self) -> bool {
        match self {
            Self::Access(front) => front.ready(),
            // A gateway is there once it answers, and so is a concentrator.
            Self::Ike(_) | Self::Pppoe(_) => true,
            Self::Mih(front) => front.ready(),
        }
    }
    pub(super) fn begin(&mut self, now: Instant, start: Start, sink: &mut Sink) -> Result<(), NotNow> {
        match self {
            Self::Access(front) => front.begin(now, start, sink),
            Self::Ike(front) => front.begin(now, start),
            Self::Mih(front) => front.begin(now, start),
            Self::Pppoe(front) => front.begin(now, start),
        }
    }
    pub(super) fn outstanding(&self) -> usize {
        match self {
            Self::Access(front) => front.outstanding(),
            Self::Ike(front) => front.outstanding(),
            Self::Mih(front) => front.outstanding(),
            Self::Pppoe(front) => front.outstanding(),
        }
    }
    pub(super) fn each(&self, see: &mut dyn FnMut(&Start)) {
        match self {
            Self::Access(front) => front.each(see),
            Self::Ike(front) => front.each(see),
            Self::Mih(front) => front.each(see),
            Self::Pppoe(front) => front.each(see),
        }
    }
    pub(super) fn abandon(&mut self, now: Instant) {
        match self {
            Self::Access(front) => front.abandon(now),
            Self::Ike(front) => front.abandon(now),
            Self::Mih(front) => front.abandon(now),
            Self::Pppoe(front) => front.abandon(now),
        }
    }
    pub(super) fn leave(&mut self, now: Instant) {
        match self {
            Self::Access(front) => front.leave(now),
            Self::Pppoe(front) => front.leave(now),
            Self::Ike(_) | Self::Mih(_) => {}
        }
    }
    /// Whether another login could begin, as far as those who log in go.
    pub(super) fn has_room(&self) -> bool {
        !matches!(self, Self::Pppoe(front) if !front.has_room())
    }
    /// Whether there is still something to be ended.
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
    pub(super) fn handle(&mut self, now: Instant, input: Input<'_>, sink: &mut Sink) {
        match self {
            Self::Access(front) => front.handle(now, input, sink),
            Self::Ike(front) => front.handle(now, input),
            Self::Mih(front) => front.handle(now, input),
            Self::Pppoe(front) => front.handle(now, input, sink),
        }
    }
    pub(super) fn settle(&mut self, now: Instant, outputs: &mut Outputs<Event>, sink: &mut Sink) {
        match self {
            Self::Access(front) => front.settle(now, outputs, sink),
            Self::Ike(front) => front.settle(now, outputs, sink),
            Self::Mih(front) => front.settle(now, outputs, sink),
            Self::Pppoe(front) => front.settle(now, outputs, sink),
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
