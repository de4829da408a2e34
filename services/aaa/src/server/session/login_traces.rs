//! The traces of a login.

use crate::server::api::{AaaServerEvent, TraceLine};
use crate::server::context::ServerContext;
use crate::server::reason::RejectCause;
use crate::server::trace::LoginTraceSlots;
use alloc::string::String;
use alloc::vec::Vec;
use usher_radius::attribute::AttributeList;

/// The traces that show a login.
#[derive(Debug, Default)]
pub(super) struct MatchingLoginTraces {
    /// Token of the login, which numbers its lines.
    number: u64,
    /// Traces that match.
    certain: LoginTraceSlots,
    /// Traces of users that may match once the inner name is known.
    maybe: LoginTraceSlots,
}

impl MatchingLoginTraces {
    pub(super) const fn login_trace_number(&self) -> u64 {
        self.number
    }
    /// Sets the login's token.
    pub(super) const fn set_login_token(&mut self, number: u64) {
        self.number = number;
    }
    /// Removes a trace that has ended.
    pub(super) const fn remove_traces(&mut self, traces: LoginTraceSlots) {
        (self.certain, self.maybe) = (self.certain & !traces, self.maybe & !traces);
    }

    /// Adds the traces that match a request or may match later. `inside` is the inner name, empty if not yet known.
    /// `hidden` is false if there can be no inner name.
    pub(super) fn add_request_traces(
        &mut self,
        ctx: &ServerContext,
        request: &AttributeList,
        inside: Option<&[u8]>,
        hidden: bool,
    ) {
        self.certain |= ctx.tracers.slots_for_request(request);
        match inside {
            Some(name) => self.certain |= ctx.tracers.of_user(name),
            None if hidden => self.maybe = ctx.tracers.user_trace_slots() & !self.certain,
            None => {}
        }
    }

    /// Adds the traces of the inner name, and writes the kept lines to them.
    pub(super) fn release_inner_name_traces(&mut self, ctx: &mut ServerContext, name: &[u8]) {
        if self.maybe == 0 {
            return;
        }
        let to = ctx.tracers.of_user(name) & self.maybe;
        (self.certain, self.maybe) = (self.certain | to, 0);
        let lines = ctx.tracers.take_lines(ctx.now, self.number, to);
        lines.into_iter().for_each(|line| ctx.outputs.push_event(AaaServerEvent::Trace(line)));
    }

    /// True if any trace matches.
    pub(super) const fn has_traces(&self) -> bool {
        self.certain | self.maybe != 0
    }

    /// Writes a line.
    pub(super) fn trace_line(&self, ctx: &mut ServerContext, text: impl FnOnce() -> String) {
        self.trace_text(ctx, None, text);
    }
    /// Writes the end of a login that is not accepted.
    pub(super) fn trace_unaccepted_login_end(
        &self,
        ctx: &mut ServerContext,
        reason: RejectCause,
        text: impl FnOnce() -> String,
    ) {
        self.trace_text(ctx, Some(reason), text);
        ctx.tracers.drop_lines(self.number);
    }
    fn trace_text(
        &self,
        ctx: &mut ServerContext,
        reason: Option<RejectCause>,
        text: impl FnOnce() -> String,
    ) {
        if ctx.tracers.is_active() && self.has_traces() {
            let line = TraceLine::new(ctx.now, self.number, text());
            ctx.trace_line(TraceLine { to: self.certain, reason, ..line }, self.maybe);
        }
    }
    /// Writes several lines, the first with the client.
    pub(super) fn trace_lines(&self, ctx: &mut ServerContext, client: Option<u32>, lines: Vec<String>) {
        ctx.trace_lines(self.number, (self.certain, self.maybe), client, lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_is_over_leaves_and_no_other_does() {
        let mut audience = MatchingLoginTraces { number: 1, certain: 0b0011, maybe: 0b1100 };
        audience.remove_traces(0b0101);
        assert_eq!((audience.certain, audience.maybe), (0b0010, 0b1000));
    }
}
