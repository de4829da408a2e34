//! A wrapper that observes a machine: its outputs and their costs for each input.

use crate::{InvariantBreach, ensure};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use usher_core::{CommandError, Instant, Machine, MachineInput, MachineOutput, MachineOutputOf, WallTime};

/// The effect of one input on a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputEffect {
    /// The number of outputs.
    pub(crate) outputs: usize,
    /// True if its counters have changed.
    pub(crate) is_counted: bool,
    /// Units of work by label.
    pub(crate) work: BTreeMap<&'static str, u64>,
}

impl InputEffect {
    /// Returns the units of one work label.
    pub(crate) fn work_units(&self, label: &str) -> u64 {
        self.work.get(label).copied().unwrap_or_default()
    }
    /// True if the input has an output, or a counter records its drop.
    pub(crate) const fn is_noticed(&self) -> bool {
        self.outputs > 0 || self.is_counted
    }
    /// Fails if the work of a label exceeds its budget.
    pub(crate) fn ensure_within(&self, budget: &[(&str, u64)]) -> Result<(), InvariantBreach> {
        budget.iter().try_for_each(|(label, most)| {
            let done = self.work_units(label);
            ensure(done <= *most, || format!("{done} units of {label} for one input, and {most} may be"))
        })
    }
}

/// A machine with a budget for each input.
pub(crate) trait BudgetedMachine: Machine {
    /// The state before the input, on which the budget depends.
    type PriorState;

    /// The sum of its counters.
    fn counter_sum(&self) -> u64;
    /// Returns the state before an input.
    fn state_before(&self, input: &MachineInput<'_>) -> Self::PriorState;
    /// Checks the effect of an input.
    ///
    /// # Errors
    /// The input was dropped without a counter, or cost too much.
    fn check_budget(
        &self,
        input: &MachineInput<'_>,
        before: Self::PriorState,
        effect: &InputEffect,
    ) -> Result<(), InvariantBreach>;
}

/// A wrapper around a machine. Its host sees no difference.
pub(crate) struct ObservedMachine<M: Machine> {
    machine: M,
    outputs: VecDeque<(MachineOutputOf<M>, Vec<u8>)>,
    /// Units of work by label, over all inputs and commands.
    pub(crate) work: BTreeMap<&'static str, u64>,
    breach: Option<InvariantBreach>,
}

impl<M: Machine> ObservedMachine<M> {
    pub(crate) const fn new(machine: M) -> Self {
        Self { machine, outputs: VecDeque::new(), work: BTreeMap::new(), breach: None }
    }
    /// Fails with the first breach since the last call.
    pub(crate) fn take_breach(&mut self) -> Result<(), InvariantBreach> {
        self.breach.take().map_or(Ok(()), Err)
    }

    /// Collects the machine's outputs and counts them.
    fn collect_outputs(&mut self) -> InputEffect {
        let (mut effect, mut buf) = (InputEffect::default(), Vec::new());
        while let Some(output) = self.machine.poll_output(&mut buf) {
            if let MachineOutput::Work(work) = &output {
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

impl<M: Machine> Deref for ObservedMachine<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.machine
    }
}

impl<M: BudgetedMachine> Machine for ObservedMachine<M> {
    type Command = M::Command;
    type Event = M::Event;
    type Job = M::Job;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.machine.set_epoch(now, epoch);
        self.collect_outputs();
    }
    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        let (before, counted) = (self.machine.state_before(&input), self.machine.counter_sum());
        self.machine.handle_input(now, input);
        let mut effect = self.collect_outputs();
        effect.is_counted = self.machine.counter_sum() != counted;
        if let Err(breach) = self.machine.check_budget(&input, before, &effect) {
            self.breach.get_or_insert(breach);
        }
    }
    fn handle_command(&mut self, now: Instant, command: M::Command) -> Result<(), CommandError> {
        let done = self.machine.handle_command(now, command);
        self.collect_outputs();
        done
    }
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.collect_outputs();
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
    use usher_core::{LinkLayerPortId, NoJob, OutputQueue};

    /// Answers an input of 1, counts a 2, works on a 3, and silently drops everything else.
    #[derive(Default)]
    struct CarelessMachine {
        counted: u64,
        outputs: OutputQueue<u8>,
    }

    usher_core::work_labels! {
        /// Its only work.
        TOIL = "dialogues.toil" per "input";
    }

    impl Machine for CarelessMachine {
        type Command = ();
        type Event = u8;
        type Job = NoJob;
        fn handle_input(&mut self, _: Instant, input: MachineInput<'_>) {
            match input {
                MachineInput::Frame { data: [1], .. } => self.outputs.push_event(1),
                MachineInput::Frame { data: [2], .. } => self.counted += 1,
                MachineInput::Frame { data: [3], .. } => {
                    self.counted += 1;
                    self.outputs.push_work(usher_core::WorkRecord { label: TOIL, units: 2 });
                }
                _ => {}
            }
        }
        fn handle_command(&mut self, _: Instant, (): ()) -> Result<(), CommandError> {
            Ok(())
        }
        fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
            self.outputs.poll(buf)
        }
        fn poll_timeout(&mut self) -> Option<Instant> {
            None
        }
    }

    impl BudgetedMachine for CarelessMachine {
        type PriorState = ();
        fn counter_sum(&self) -> u64 {
            self.counted
        }
        fn state_before(&self, _: &MachineInput<'_>) {}
        fn check_budget(
            &self,
            _: &MachineInput<'_>,
            (): (),
            effect: &InputEffect,
        ) -> Result<(), InvariantBreach> {
            ensure(effect.is_noticed(), || "silence".into())?;
            effect.ensure_within(&[("dialogues.toil", 1)])
        }
    }

    #[test]
    fn silence_and_costs_are_noticed() {
        let mut witness = ObservedMachine::new(CarelessMachine::default());
        for (octet, breach) in [(1, None), (2, None), (3, Some("2 units")), (4, Some("silence"))] {
            let input = MachineInput::Frame { port: LinkLayerPortId(0), data: &[octet] };
            witness.handle_input(Instant::ZERO, input);
            let found = witness.take_breach().err().map(|InvariantBreach(what)| what);
            let expected = found.as_ref().map(|what| breach.is_some_and(|breach| what.starts_with(breach)));
            assert_eq!(expected, breach.map(|_| true), "{octet}: {found:?}");
        }
        assert!(matches!(witness.poll_output(&mut Vec::new()), Some(MachineOutput::Event(1))));
    }
}
