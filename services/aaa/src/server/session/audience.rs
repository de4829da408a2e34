//! Who hears of a login, line by line.

use crate::server::api::{Event, TraceLine};
use crate::server::context::Context;
use crate::server::reason::Reason;
use crate::server::trace::Slots;
use alloc::string::String;
use alloc::vec::Vec;
use usher_radius::attribute::Attributes;

/// The traces that a login is of.
#[derive(Debug, Default)]
pub(super) struct Audience {
    /// The login's token, which is the number of its lines.
    number: u64,
    /// Whom its decisions are told to.
    certain: Slots,
    /// Who looks for a user, and whose this login may turn out to be once it is known who is inside its tunnel.
    maybe: Slots,
}

impl Audience {
    pub(super) const fn number(&self) -> u64 {
        self.number
    }
    /// The login has a token.
    pub(super) const fn set_number(&mut self, number: u64) {
        self.number = number;
    }
    /// A trace is over.
    pub(super) const fn leave(&mut self, traces: Slots) {
        (self.certain, self.maybe) = (self.certain & !traces, self.maybe & !traces);
    }

    /// Takes in who looks for a request, and who may: `inside` is the name within the tunnel, nothing where none has been
    /// given yet. Where nobody else can be inside, `hidden` is false.
    pub(super) fn join(&mut self, ctx: &Context, request: &Attributes, inside: Option<&[u8]>, hidden: bool) {
        self.certain |= ctx.tracers.concerned(request);
        match inside {
            Some(name) => self.certain |= ctx.tracers.of_user(name),
            None if hidden => self.maybe = ctx.tracers.of_users() & !self.certain,
            None => {}
        }
    }

    /// It is known who is inside the tunnel: those who look for that user hear what was said before.
    pub(super) fn look_inside(&mut self, ctx: &mut Context, name: &[u8]) {
        if self.maybe == 0 {
            return;
        }
        let to = ctx.tracers.of_user(name) & self.maybe;
        (self.certain, self.maybe) = (self.certain | to, 0);
        let lines = ctx.tracers.found(ctx.now, self.number, to);
        lines.into_iter().for_each(|line| ctx.outputs.event(Event::Trace(line)));
    }

    /// Whether there is anybody.
    pub(super) const fn any(&self) -> bool {
        self.certain | self.maybe != 0
    }

    /// Says what happens.
    pub(super) fn tell(&self, ctx: &mut Context, text: impl FnOnce() -> String) {
        self.tell_with(ctx, None, text);
    }
    /// Says how the login ends, where nobody is let in.
    pub(super) fn tell_end(&self, ctx: &mut Context, reason: Reason, text: impl FnOnce() -> String) {
        self.tell_with(ctx, Some(reason), text);
        ctx.tracers.forget(self.number);
    }
    fn tell_with(&self, ctx: &mut Context, reason: Option<Reason>, text: impl FnOnce() -> String) {
        if ctx.tracers.any() && self.any() {
            let line = TraceLine::new(ctx.now, self.number, text());
            ctx.tell_line(TraceLine { to: self.certain, reason, ..line }, self.maybe);
        }
    }
    /// Says several things, the first of them with the client.
    pub(super) fn tell_lines(&self, ctx: &mut Context, client: Option<u32>, lines: Vec<String>) {
        ctx.tell_lines(self.number, (self.certain, self.maybe), client, lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_is_over_leaves_and_no_other_does() {
        let mut audience = Audience { number: 1, certain: 0b0011, maybe: 0b1100 };
        audience.leave(0b0101);
        assert_eq!((audience.certain, audience.maybe), (0b0010, 0b1000));
    }
}
