//! What a machine decided and its host has not carried out yet: [`Outputs`] is the machine's queue of it, [`Host`] empties
//! it, and a [`Child`] is a machine whose outputs pass through the queue of the machine that it is within.

use crate::job::{Job, NoJob};
use crate::machine::{Machine, Output, Transmit, Work};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// How many buffers are kept for reuse, and how large ones.
const SPARE: usize = 32;
const SPARE_OCTETS: usize = 4096;

/// What comes next. What it says, does or asks stands in a queue of its own: an event may be many times as large as a
/// transmit, and each would be moved at the size of the largest.
#[derive(Debug)]
enum Next {
    Transmit,
    Event,
    Work(Work),
    Job,
}

/// A machine's outputs, in the order in which they were decided. Bytes change hands and are not copied.
#[derive(Debug)]
pub struct Outputs<E, J = NoJob> {
    order: VecDeque<Next>,
    transmits: VecDeque<(Transmit, Vec<u8>)>,
    events: VecDeque<E>,
    jobs: VecDeque<Job<J>>,
    spare: Vec<Vec<u8>>,
}

impl<E, J> Default for Outputs<E, J> {
    fn default() -> Self {
        Self {
            order: VecDeque::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            jobs: VecDeque::new(),
            spare: Vec::new(),
        }
    }
}

impl<E, J> Outputs<E, J> {
    /// An empty buffer, of an earlier transmit where there is one.
    #[must_use]
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }
    /// Takes a buffer back, for [`buffer`](Self::buffer) to give out again.
    pub fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE && (1..=SPARE_OCTETS).contains(&bytes.capacity()) {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
    /// Something is to be done on the network, with these bytes.
    pub fn transmit(&mut self, transmit: Transmit, bytes: Vec<u8>) {
        self.order.push_back(Next::Transmit);
        self.transmits.push_back((transmit, bytes));
    }
    /// Something is to be done on the network that carries no bytes.
    pub fn operate(&mut self, transmit: Transmit) {
        self.transmit(transmit, Vec::new());
    }
    /// Something is to be said.
    pub fn event(&mut self, event: E) {
        self.order.push_back(Next::Event);
        self.events.push_back(event);
    }
    /// Something was done. Work of one kind without anything between is one piece.
    pub fn work(&mut self, work: Work) {
        match self.order.back_mut() {
            Some(Next::Work(last)) if last.label == work.label => last.units += work.units,
            _ => self.order.push_back(Next::Work(work)),
        }
    }
    /// Something is asked of a slow helper.
    pub fn job(&mut self, job: Job<J>) {
        self.order.push_back(Next::Job);
        self.jobs.push_back(job);
    }
    /// Something is to be done on the network, without bytes, for a machine within this one and in its stead.
    pub fn operate_for<M>(&mut self, child: &Child<M>, transmit: Transmit) {
        self.operate(transmit);
        self.rename_last(|transmit| enclose(child.slot, transmit));
    }
    /// The next output, as [`Machine::poll_output`] gives it.
    pub fn poll(&mut self, buf: &mut Vec<u8>) -> Option<Output<E, J>> {
        match self.order.pop_front()? {
            Next::Transmit => {
                let (transmit, mut bytes) = self.transmits.pop_front()?;
                core::mem::swap(buf, &mut bytes);
                self.recycle(bytes);
                Some(Output::Transmit(transmit))
            }
            Next::Event => self.events.pop_front().map(Output::Event),
            Next::Work(work) => Some(Output::Work(work)),
            Next::Job => self.jobs.pop_front().map(Output::Job),
        }
    }
    /// Takes the outputs of a machine within this one up to its next event, and gives that. Nothing of a step may be left
    /// behind: ask until the answer is `None`.
    pub fn next_event<M: Machine<Job = NoJob>>(&mut self, child: &mut Child<M>) -> Option<M::Event> {
        let slot = child.slot;
        child.machine.next_event(self, |transmit| enclose(slot, transmit))
    }
    /// Changes the ids of the last transmit where it lies: it has been moved once, in large pieces, and to move it again just
    /// after a few octets of it were written would cost a stall of the processor.
    fn rename_last(&mut self, outside: impl Fn(&mut Transmit)) {
        if let Some((transmit, _)) = self.transmits.back_mut() {
            outside(transmit);
        }
    }
    /// Takes what `poll` gives up to the next event, and gives that; `outside` gives a transmit the ids that it has here.
    pub fn up_to_event<X>(
        &mut self,
        outside: impl Fn(&mut Transmit),
        mut poll: impl FnMut(&mut Vec<u8>) -> Option<Output<X>>,
    ) -> Option<X> {
        let mut buf = self.buffer();
        let event = loop {
            match poll(&mut buf) {
                Some(Output::Transmit(transmit)) => {
                    let next = self.buffer();
                    self.transmit(transmit, core::mem::replace(&mut buf, next));
                    self.rename_last(&outside);
                }
                Some(Output::Work(work)) => self.work(work),
                Some(Output::Event(event)) => break Some(event),
                Some(Output::Job(job)) => match job.what {},
                None => break None,
            }
        };
        self.recycle(buf);
        event
    }
}

/// A machine within another: it has a slot there, by which its ids are told from those of others ([`Owner`](crate::Owner)).
///
/// Its container routes by [`Input::enter`](crate::Input::enter) and takes what it decided by [`Outputs::next_event`], after
/// each thing that it is given.
#[derive(Debug)]
pub struct Child<M> {
    machine: M,
    slot: Option<u16>,
}

impl<M> Child<M> {
    /// The machine in this slot.
    pub const fn new(slot: u16, machine: M) -> Self {
        Self { machine, slot: Some(slot) }
    }
    /// The only machine in its container that has sockets, where the container has none itself: its ids are the container's
    /// and pass unchanged.
    pub const fn only(machine: M) -> Self {
        Self { machine, slot: None }
    }
    /// Its slot, if it is not the only one.
    pub const fn slot(&self) -> Option<u16> {
        self.slot
    }
}

/// Gives a transmit of the machine in this slot the ids that it has outside.
fn enclose(slot: Option<u16>, transmit: &mut Transmit) {
    if let Some(slot) = slot {
        transmit.enclose(slot);
    }
}

impl<M> core::ops::Deref for Child<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.machine
    }
}

impl<M> core::ops::DerefMut for Child<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.machine
    }
}

/// Who hosts a machine: carries its outputs out.
pub trait Host {
    /// What is hosted.
    type Machine: Machine;

    /// The machine.
    fn machine(&mut self) -> &mut Self::Machine;
    /// It wants something done on the network, with the bytes that `bytes` holds; it may keep the buffer and leave another.
    fn transmit(&mut self, transmit: Transmit, bytes: &mut Vec<u8>);
    /// It says something. The host may feed the machine and give it commands: what it decides then comes after what it
    /// has decided already.
    fn event(&mut self, event: <Self::Machine as Machine>::Event);
    /// It did something.
    fn work(&mut self, work: Work);
    /// It asks something of a slow helper. An answer may be given at once.
    fn job(&mut self, job: Job<<Self::Machine as Machine>::Job>);

    /// Carries out what the machine decided, in its order, until it is silent. `buf` is for the bytes.
    fn drain(&mut self, buf: &mut Vec<u8>) {
        loop {
            match self.machine().poll_output(buf) {
                Some(Output::Transmit(transmit)) => self.transmit(transmit, buf),
                Some(Output::Event(event)) => self.event(event),
                Some(Output::Work(work)) => self.work(work),
                Some(Output::Job(job)) => self.job(job),
                None => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{CommandError, ConnId, Input, OutputOf, StreamOp};
    use crate::time::Instant;
    use crate::work::WorkLabel;
    use alloc::vec;

    const ONE: WorkLabel = WorkLabel::declared(&["test.one", "unit", "One."]);
    const TWO: WorkLabel = WorkLabel::declared(&["test.two", "unit", "Two."]);

    const CONN: ConnId = ConnId::opened(3);

    fn data(conn: ConnId) -> Transmit {
        Transmit::Stream { conn, op: StreamOp::Data }
    }

    /// Says and sends by turns.
    #[derive(Default)]
    struct Chatter(Outputs<u8>);

    impl Machine for Chatter {
        type Command = ();
        type Event = u8;
        type Job = NoJob;

        fn handle(&mut self, _: Instant, _: Input<'_>) {
            self.0.work(Work { label: ONE, units: 1 });
            self.0.event(1);
            self.0.transmit(data(CONN), vec![1]);
            self.0.event(2);
            self.0.transmit(data(CONN), vec![2]);
        }
        fn command(&mut self, _: Instant, (): ()) -> Result<(), CommandError> {
            Ok(())
        }
        fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
            self.0.poll(buf)
        }
        fn poll_timeout(&mut self) -> Option<Instant> {
            None
        }
    }

    fn all<E, J>(outputs: &mut Outputs<E, J>) -> Vec<(Output<E, J>, Vec<u8>)> {
        let mut buf = Vec::new();
        core::iter::from_fn(|| {
            buf.clear();
            outputs.poll(&mut buf).map(|output| (output, buf.clone()))
        })
        .collect()
    }

    #[test]
    fn outputs_come_in_the_order_in_which_they_were_decided() {
        let mut outputs = Outputs::<u8, u8>::default();
        outputs.event(1);
        outputs.transmit(data(CONN), vec![7, 8]);
        outputs.job(Job::new(5, 6));
        outputs.event(2);
        outputs.operate(Transmit::Stream { conn: CONN, op: StreamOp::Abort });
        let expected = vec![
            (Output::Event(1), vec![]),
            (Output::Transmit(data(CONN)), vec![7, 8]),
            (Output::Job(Job::new(5, 6)), vec![]),
            (Output::Event(2), vec![]),
            (Output::Transmit(Transmit::Stream { conn: CONN, op: StreamOp::Abort }), vec![]),
        ];
        assert_eq!(all(&mut outputs), expected);
    }

    #[test]
    fn work_of_a_kind_is_one_piece_until_something_else_comes() {
        let mut outputs = Outputs::<u8>::default();
        let mut add = |label, units| outputs.work(Work { label, units });
        add(ONE, 1);
        add(ONE, 2);
        add(TWO, 1);
        add(ONE, 4);
        outputs.event(0);
        outputs.work(Work { label: ONE, units: 8 });
        let units = all(&mut outputs).into_iter().filter_map(|(output, _)| match output {
            Output::Work(work) => Some((work.label.name(), work.units)),
            _ => None,
        });
        let expected = [("test.one", 3), ("test.two", 1), ("test.one", 4), ("test.one", 8)];
        assert_eq!(units.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_a_machine_within_sends_stays_in_order_with_what_its_container_makes_of_its_events() {
        for (slot, conn) in [(Some(2), CONN.within(2)), (None, CONN)] {
            let mut child = slot
                .map_or_else(|| Child::only(Chatter::default()), |slot| Child::new(slot, Chatter::default()));
            let mut outputs = Outputs::<u16>::default();
            child.handle(Instant::ZERO, Input::Timeout);
            while let Some(event) = outputs.next_event(&mut child) {
                outputs.event(u16::from(event) * 100);
            }
            outputs.operate_for(&child, Transmit::Stream { conn: CONN, op: StreamOp::Abort });
            let expected = vec![
                (Output::Work(Work { label: ONE, units: 1 }), vec![]),
                (Output::Event(100), vec![]),
                (Output::Transmit(data(conn)), vec![1]),
                (Output::Event(200), vec![]),
                (Output::Transmit(data(conn)), vec![2]),
                (Output::Transmit(Transmit::Stream { conn, op: StreamOp::Abort }), vec![]),
            ];
            assert_eq!(all(&mut outputs), expected);
        }
    }

    #[test]
    fn a_buffer_is_used_again_and_a_large_one_is_not_kept() {
        let mut outputs = Outputs::<u8>::default();
        let mut small = outputs.buffer();
        small.push(1);
        let at = small.as_ptr();
        outputs.recycle(small);
        outputs.recycle(vec![0; SPARE_OCTETS + 1]);
        let again = outputs.buffer();
        assert_eq!((again.as_ptr(), again.len()), (at, 0));
        assert_eq!(outputs.buffer().capacity(), 0);
    }
}
