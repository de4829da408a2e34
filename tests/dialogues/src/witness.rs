//! A machine under observation: what it does about each input, and what that costs.

use crate::{InvariantBreach, ensure};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use usher_core::{CommandError, Input, Instant, Machine, Output, OutputOf, WallTime};

/// What a machine did about one input.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputEffect {
    /// What it sent, said and asked.
    pub(crate) outputs: usize,
    /// Its counters have changed.
    pub(crate) is_counted: bool,
    /// Units of work by label.
    pub(crate) work: BTreeMap<&'static str, u64>,
}

impl InputEffect {
    /// Units of a kind of work.
    pub(crate) fn units(&self, label: &str) -> u64 {
        self.work.get(label).copied().unwrap_or_default()
    }
    /// Whoever sent the input has an answer, or a counter has its drop.
    pub(crate) const fn is_noticed(&self) -> bool {
        self.outputs > 0 || self.is_counted
    }
    /// No more than so many units of each of these kinds were done.
    pub(crate) fn ensure_within(&self, budget: &[(&str, u64)]) -> Result<(), InvariantBreach> {
        budget.iter().try_for_each(|(label, most)| {
            let done = self.units(label);
            ensure(done <= *most, || format!("{done} units of {label} for one input, and {most} may be"))
        })
    }
}

/// A machine whose inputs have a budget.
pub(crate) trait Budgeted: Machine {
    /// What its budget is judged by: it is asked before the input is given.
    type Before;

    /// The sum of its counters.
    fn counted(&self) -> u64;
    /// How it stands before an input.
    fn before(&self, input: &Input<'_>) -> Self::Before;
    /// What must hold of an input's effect.
    ///
    /// # Errors
    /// Somebody is answered by silence without a counter, or has cost too much.
    fn check(
        &self,
        input: &Input<'_>,
        before: Self::Before,
        effect: &InputEffect,
    ) -> Result<(), InvariantBreach>;
}

/// A machine under observation. Whoever hosts it notices nothing of that.
pub(crate) struct Witness<M: Machine> {
    machine: M,
    outputs: VecDeque<(OutputOf<M>, Vec<u8>)>,
    /// Units of work by label, of all inputs and commands.
    pub(crate) work: BTreeMap<&'static str, u64>,
    breach: Option<InvariantBreach>,
}

impl<M: Machine> Witness<M> {
    pub(crate) const fn new(machine: M) -> Self {
        Self { machine, outputs: VecDeque::new(), work: BTreeMap::new(), breach: None }
    }
    /// Fails with the first breach since the last time.
    pub(crate) fn verdict(&mut self) -> Result<(), InvariantBreach> {
        self.breach.take().map_or(Ok(()), Err)
    }

    /// Takes what the machine has decided, and counts it.
    fn collect(&mut self) -> InputEffect {
        let (mut effect, mut buf) = (InputEffect::default(), Vec::new());
        while let Some(output) = self.machine.poll_output(&mut buf) {
            if let Output::Work(work) = &output {
                let label = work.label.name();
                *effect.work.entry(label).or_default() += u64::from(work.units);
                *self.work.entry(label).or_default() += u64::from(work.units);
            } else {
                effect.outputs += 1;
            }
            self.outputs.push_back((output, std::mem::take(&mut buf)));
        }
        effect
    }
}

impl<M: Machine> Deref for Witness<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.machine
    }
}

impl<M: Budgeted> Machine for Witness<M> {
    type Command = M::Command;
    type Event = M::Event;
    type Job = M::Job;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.machine.set_epoch(now, epoch);
        self.collect();
    }
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        let (before, counted) = (self.machine.before(&input), self.machine.counted());
        self.machine.handle(now, input);
        let mut effect = self.collect();
        effect.is_counted = self.machine.counted() != counted;
        if let Err(breach) = self.machine.check(&input, before, &effect) {
            self.breach.get_or_insert(breach);
        }
    }
    fn command(&mut self, now: Instant, command: M::Command) -> Result<(), CommandError> {
        let done = self.machine.command(now, command);
        self.collect();
        done
    }
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.collect();
        let (output, octets) = self.outputs.pop_front()?;
        *buf = octets;
        Some(output)
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        self.machine.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::{NoJob, Outputs, PortId};

    /// It answers a one, counts a two, and passes over everything else; a three costs it work.
    #[derive(Default)]
    struct Careless {
        counted: u64,
        outputs: Outputs<u8>,
    }

    usher_core::work_labels! {
        /// What it does.
        TOIL = "dialogues.toil" per "input";
    }

    impl Machine for Careless {
        type Command = ();
        type Event = u8;
        type Job = NoJob;
        fn handle(&mut self, _: Instant, input: Input<'_>) {
            match input {
                Input::Frame { data: [1], .. } => self.outputs.event(1),
                Input::Frame { data: [2], .. } => self.counted += 1,
                Input::Frame { data: [3], .. } => {
                    self.counted += 1;
                    self.outputs.work(usher_core::Work { label: TOIL, units: 2 });
                }
                _ => {}
            }
        }
        fn command(&mut self, _: Instant, (): ()) -> Result<(), CommandError> {
            Ok(())
        }
        fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
            self.outputs.poll(buf)
        }
        fn poll_timeout(&mut self) -> Option<Instant> {
            None
        }
    }

    impl Budgeted for Careless {
        type Before = ();
        fn counted(&self) -> u64 {
            self.counted
        }
        fn before(&self, _: &Input<'_>) {}
        fn check(&self, _: &Input<'_>, (): (), effect: &InputEffect) -> Result<(), InvariantBreach> {
            ensure(effect.is_noticed(), || "silence".into())?;
            effect.ensure_within(&[("dialogues.toil", 1)])
        }
    }

    #[test]
    fn silence_and_costs_are_noticed() {
        let mut witness = Witness::new(Careless::default());
        for (octet, breach) in [(1, None), (2, None), (3, Some("2 units")), (4, Some("silence"))] {
            let input = Input::Frame { port: PortId(0), data: &[octet] };
            witness.handle(Instant::ZERO, input);
            let found = witness.verdict().err().map(|InvariantBreach(what)| what);
            let expected = found.as_ref().map(|what| breach.is_some_and(|breach| what.starts_with(breach)));
            assert_eq!(expected, breach.map(|_| true), "{octet}: {found:?}");
        }
        assert!(matches!(witness.poll_output(&mut Vec::new()), Some(Output::Event(1))));
    }
}
