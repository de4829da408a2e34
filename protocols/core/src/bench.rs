//! Test tools: a network of machines in virtual time ([`MachineNetwork`]), and single machines ([`TestMachine`]).

mod network;
#[cfg(test)]
mod tests;
mod wire;

pub use network::{EPOCH, MachineNetwork, NetworkHostHandle};
pub use wire::TransmitRecord;

use crate::job::JobRequest;
use crate::machine::{Machine, MachineOutput, Transmit, WorkRecord};
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// A machine whose outputs are sorted by kind, for tests that ignore the order among kinds. Other calls go to the
/// machine itself.
#[derive(Debug)]
pub struct TestMachine<M: Machine> {
    machine: M,
    transmits: VecDeque<(Transmit, Vec<u8>)>,
    events: VecDeque<M::Event>,
    work: VecDeque<WorkRecord>,
    jobs: VecDeque<JobRequest<M::Job>>,
}

impl<M: Machine> TestMachine<M> {
    /// Wraps a machine and sets its wall clock to [`EPOCH`].
    pub fn new(mut machine: M) -> Self {
        machine.set_epoch(Instant::ZERO, EPOCH);
        Self {
            machine,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            work: VecDeque::new(),
            jobs: VecDeque::new(),
        }
    }
    fn sort_outputs(&mut self) {
        let mut buf = Vec::new();
        while let Some(output) = self.machine.poll_output(&mut buf) {
            match output {
                MachineOutput::Transmit(transmit) => {
                    self.transmits.push_back((transmit, core::mem::take(&mut buf)))
                }
                MachineOutput::Event(event) => self.events.push_back(event),
                MachineOutput::Work(work) => self.work.push_back(work),
                MachineOutput::Job(job) => self.jobs.push_back(job),
            }
        }
    }
    /// Returns the next network operation; `buf` holds its bytes.
    pub fn poll_transmit(&mut self, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.sort_outputs();
        let (transmit, bytes) = self.transmits.pop_front()?;
        *buf = bytes;
        Some(transmit)
    }
    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<M::Event> {
        self.sort_outputs();
        self.events.pop_front()
    }
    /// Returns the next record of work.
    pub fn poll_work(&mut self) -> Option<WorkRecord> {
        self.sort_outputs();
        self.work.pop_front()
    }
    /// Returns the next job.
    pub fn poll_job(&mut self) -> Option<JobRequest<M::Job>> {
        self.sort_outputs();
        self.jobs.pop_front()
    }
}

impl<M: Machine> Deref for TestMachine<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.machine
    }
}

impl<M: Machine> DerefMut for TestMachine<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.machine
    }
}
