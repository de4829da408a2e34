//! Outputs that a machine has decided and its host has not carried out yet.
//!
//! [`OutputQueue`] is the machine's queue of outputs. [`MachineHost`] drains it. A [`ChildMachine`] is a machine whose
//! outputs pass through the queue of its container.

use crate::job::{JobRequest, NoJob};
use crate::machine::{Machine, MachineOutput, Transmit, WorkRecord};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The number of buffers kept for reuse; the next constant is their largest size.
const SPARE: usize = 32;
const SPARE_OCTETS: usize = 4096;

/// The kind of the next output. Events, work and jobs have queues of their own. An event may be many times as large as
/// a transmit, and a common enum would move every output at the size of the largest.
#[derive(Debug)]
enum QueuedOutputKind {
    Transmit,
    Event,
    Work(WorkRecord),
    Job,
}

/// The outputs of a machine in the order of its decisions. Buffers are moved, not copied.
#[derive(Debug)]
pub struct OutputQueue<E, J = NoJob> {
    order: VecDeque<QueuedOutputKind>,
    transmits: VecDeque<(Transmit, Vec<u8>)>,
    events: VecDeque<E>,
    jobs: VecDeque<JobRequest<J>>,
    spare: Vec<Vec<u8>>,
}

impl<E, J> Default for OutputQueue<E, J> {
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

impl<E, J> OutputQueue<E, J> {
    /// Returns an empty buffer, reused from an earlier transmit if possible.
    #[must_use]
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }
    /// Takes a buffer back, for [`take_buffer`](Self::take_buffer) to reuse.
    pub fn recycle_buffer(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE && (1..=SPARE_OCTETS).contains(&bytes.capacity()) {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
    /// Queues a network operation with these bytes.
    pub fn push_transmit(&mut self, transmit: Transmit, bytes: Vec<u8>) {
        self.order.push_back(QueuedOutputKind::Transmit);
        self.transmits.push_back((transmit, bytes));
    }
    /// Queues a network operation without bytes.
    pub fn push_operation(&mut self, transmit: Transmit) {
        self.push_transmit(transmit, Vec::new());
    }
    /// Queues an event.
    pub fn push_event(&mut self, event: E) {
        self.order.push_back(QueuedOutputKind::Event);
        self.events.push_back(event);
    }
    /// Queues work. Consecutive work of one kind merges into one record.
    pub fn push_work(&mut self, work: WorkRecord) {
        match self.order.back_mut() {
            Some(QueuedOutputKind::Work(last)) if last.label == work.label => last.units += work.units,
            _ => self.order.push_back(QueuedOutputKind::Work(work)),
        }
    }
    /// Queues a job.
    pub fn push_job(&mut self, job: JobRequest<J>) {
        self.order.push_back(QueuedOutputKind::Job);
        self.jobs.push_back(job);
    }
    /// Queues a network operation without bytes on behalf of a child machine.
    pub fn push_child_operation<M>(&mut self, child: &ChildMachine<M>, transmit: Transmit) {
        self.push_operation(transmit);
        self.map_last_transmit(|transmit| add_child_slot(child.slot, transmit));
    }
    /// Returns the next output, as [`Machine::poll_output`] does.
    pub fn poll(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutput<E, J>> {
        match self.order.pop_front()? {
            QueuedOutputKind::Transmit => {
                let (transmit, mut bytes) = self.transmits.pop_front()?;
                core::mem::swap(buf, &mut bytes);
                self.recycle_buffer(bytes);
                Some(MachineOutput::Transmit(transmit))
            }
            QueuedOutputKind::Event => self.events.pop_front().map(MachineOutput::Event),
            QueuedOutputKind::Work(work) => Some(MachineOutput::Work(work)),
            QueuedOutputKind::Job => self.jobs.pop_front().map(MachineOutput::Job),
        }
    }
    /// Moves the outputs of a child machine here, up to its next event, and returns that event. Call it until it
    /// returns `None`, so that no output of a step stays behind.
    pub fn next_event<M: Machine<Job = NoJob>>(&mut self, child: &mut ChildMachine<M>) -> Option<M::Event> {
        let slot = child.slot;
        child.machine.next_event(self, |transmit| add_child_slot(slot, transmit))
    }
    /// Moves the outputs of a child machine here, up to its next event or job, and returns that one. Call it until it
    /// returns `None`, so that no output of a step stays behind.
    pub fn next_event_or_job<M: Machine>(
        &mut self,
        child: &mut ChildMachine<M>,
    ) -> Option<ChildOutput<M::Event, M::Job>> {
        let ChildMachine { machine, slot } = child;
        self.queue_until_event_or_job(
            |transmit| add_child_slot(*slot, transmit),
            |buf| machine.poll_output(buf),
        )
    }
    /// Changes the ids of the last transmit in place. A second move just after a write of a few octets would stall the
    /// processor.
    fn map_last_transmit(&mut self, outside: impl Fn(&mut Transmit)) {
        if let Some((transmit, _)) = self.transmits.back_mut() {
            outside(transmit);
        }
    }
    /// Queues the outputs of `poll` up to the next event, and returns that event. `outside` gives a transmit its ids
    /// here.
    pub fn queue_until_event<X>(
        &mut self,
        outside: impl Fn(&mut Transmit),
        poll: impl FnMut(&mut Vec<u8>) -> Option<MachineOutput<X>>,
    ) -> Option<X> {
        match self.queue_until_event_or_job(outside, poll)? {
            ChildOutput::Event(event) => Some(event),
            ChildOutput::Job(job) => match job.job {},
        }
    }
    fn queue_until_event_or_job<X, Y>(
        &mut self,
        outside: impl Fn(&mut Transmit),
        mut poll: impl FnMut(&mut Vec<u8>) -> Option<MachineOutput<X, Y>>,
    ) -> Option<ChildOutput<X, Y>> {
        let mut buf = self.take_buffer();
        let output = loop {
            match poll(&mut buf) {
                Some(MachineOutput::Transmit(transmit)) => {
                    let next = self.take_buffer();
                    self.push_transmit(transmit, core::mem::replace(&mut buf, next));
                    self.map_last_transmit(&outside);
                }
                Some(MachineOutput::Work(work)) => self.push_work(work),
                Some(MachineOutput::Event(event)) => break Some(ChildOutput::Event(event)),
                Some(MachineOutput::Job(job)) => break Some(ChildOutput::Job(job)),
                None => break None,
            }
        };
        self.recycle_buffer(buf);
        output
    }
}

/// An output of a child machine that its container handles.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChildOutput<E, J> {
    /// An event.
    Event(E),
    /// A job, which the container does or passes on.
    Job(JobRequest<J>),
}

/// A machine inside another. Its slot there distinguishes its ids from those of other children
/// ([`MachineOwnerPath`](crate::MachineOwnerPath)).
///
/// The container routes by [`MachineInput::split_outer_slot`](crate::MachineInput::split_outer_slot). After each input
/// or command it takes the child's outputs by [`OutputQueue::next_event`], or by [`OutputQueue::next_event_or_job`] if
/// the child has jobs.
#[derive(Debug)]
pub struct ChildMachine<M> {
    machine: M,
    slot: Option<u16>,
}

impl<M> ChildMachine<M> {
    /// A machine in this slot.
    pub const fn new(slot: u16, machine: M) -> Self {
        Self { machine, slot: Some(slot) }
    }
    /// The only machine with sockets in its container, which has none itself. Its ids are the container's and pass
    /// unchanged.
    pub const fn without_slot(machine: M) -> Self {
        Self { machine, slot: None }
    }
    /// Returns the slot; `None` if the machine is the only child with sockets.
    pub const fn slot(&self) -> Option<u16> {
        self.slot
    }
}

/// Gives a transmit of the machine in this slot its ids outside.
fn add_child_slot(slot: Option<u16>, transmit: &mut Transmit) {
    if let Some(slot) = slot {
        transmit.add_outer_slot(slot);
    }
}

impl<M> core::ops::Deref for ChildMachine<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.machine
    }
}

impl<M> core::ops::DerefMut for ChildMachine<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.machine
    }
}

/// A host of a machine: carries its outputs out.
pub trait MachineHost {
    /// The hosted machine.
    type Machine: Machine;

    /// Returns the machine.
    fn machine(&mut self) -> &mut Self::Machine;
    /// Carries out a network operation with these bytes. It may keep the buffer and leave another.
    fn transmit(&mut self, transmit: Transmit, bytes: &mut Vec<u8>);
    /// Handles an event. It may pass input and commands to the machine: their outputs follow those already decided.
    fn handle_event(&mut self, event: <Self::Machine as Machine>::Event);
    /// Records work of the machine.
    fn record_work(&mut self, work: WorkRecord);
    /// Starts a job. It may pass the result to the machine at once.
    fn start_job(&mut self, job: JobRequest<<Self::Machine as Machine>::Job>);

    /// Carries out the outputs of the machine in their order until none is left. `buf` is a scratch buffer.
    fn drain_outputs(&mut self, buf: &mut Vec<u8>) {
        loop {
            match self.machine().poll_output(buf) {
                Some(MachineOutput::Transmit(transmit)) => self.transmit(transmit, buf),
                Some(MachineOutput::Event(event)) => self.handle_event(event),
                Some(MachineOutput::Work(work)) => self.record_work(work),
                Some(MachineOutput::Job(job)) => self.start_job(job),
                None => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{CommandError, ConnId, MachineInput, MachineOutputOf, StreamOp};
    use crate::time::Instant;
    use crate::work::WorkLabel;
    use alloc::vec;

    const TEST_LABEL: WorkLabel = WorkLabel::from_declaration(&["test.one", "unit", "One."]);
    const TWO: WorkLabel = WorkLabel::from_declaration(&["test.two", "unit", "Two."]);

    const CONN: ConnId = ConnId::nth_opened_connection(3);

    fn data_transmit(conn: ConnId) -> Transmit {
        Transmit::Stream { conn, op: StreamOp::Data }
    }

    /// Emits events and transmits by turns.
    #[derive(Default)]
    struct AlternatingMachine(OutputQueue<u8>);

    impl Machine for AlternatingMachine {
        type Command = ();
        type Event = u8;
        type Job = NoJob;

        fn handle_input(&mut self, _: Instant, _: MachineInput<'_>) {
            self.0.push_work(WorkRecord { label: TEST_LABEL, units: 1 });
            self.0.push_event(1);
            self.0.push_transmit(data_transmit(CONN), vec![1]);
            self.0.push_event(2);
            self.0.push_transmit(data_transmit(CONN), vec![2]);
        }
        fn handle_command(&mut self, _: Instant, (): ()) -> Result<(), CommandError> {
            Ok(())
        }
        fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
            self.0.poll(buf)
        }
        fn poll_timeout(&mut self) -> Option<Instant> {
            None
        }
    }

    fn drain_outputs_with_bytes<E, J>(
        outputs: &mut OutputQueue<E, J>,
    ) -> Vec<(MachineOutput<E, J>, Vec<u8>)> {
        let mut buf = Vec::new();
        core::iter::from_fn(|| {
            buf.clear();
            outputs.poll(&mut buf).map(|output| (output, buf.clone()))
        })
        .collect()
    }

    #[test]
    fn outputs_come_in_the_order_in_which_they_were_decided() {
        let mut outputs = OutputQueue::<u8, u8>::default();
        outputs.push_event(1);
        outputs.push_transmit(data_transmit(CONN), vec![7, 8]);
        outputs.push_job(JobRequest::new(5, 6));
        outputs.push_event(2);
        outputs.push_operation(Transmit::Stream { conn: CONN, op: StreamOp::Abort });
        let expected = vec![
            (MachineOutput::Event(1), vec![]),
            (MachineOutput::Transmit(data_transmit(CONN)), vec![7, 8]),
            (MachineOutput::Job(JobRequest::new(5, 6)), vec![]),
            (MachineOutput::Event(2), vec![]),
            (MachineOutput::Transmit(Transmit::Stream { conn: CONN, op: StreamOp::Abort }), vec![]),
        ];
        assert_eq!(drain_outputs_with_bytes(&mut outputs), expected);
    }

    #[test]
    fn a_child_with_jobs_gives_them_in_their_order() {
        /// Emits an event between two jobs.
        #[derive(Default)]
        struct WorkingMachine(OutputQueue<u8, u8>);

        impl Machine for WorkingMachine {
            type Command = ();
            type Event = u8;
            type Job = u8;

            fn handle_input(&mut self, _: Instant, _: MachineInput<'_>) {
                self.0.push_job(JobRequest::new(5, 6));
                self.0.push_transmit(data_transmit(CONN), vec![1]);
                self.0.push_event(1);
                self.0.push_job(JobRequest::new(7, 8));
            }
            fn handle_command(&mut self, _: Instant, (): ()) -> Result<(), CommandError> {
                Ok(())
            }
            fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
                self.0.poll(buf)
            }
            fn poll_timeout(&mut self) -> Option<Instant> {
                None
            }
        }

        let mut child = ChildMachine::new(3, WorkingMachine::default());
        child.handle_input(Instant::ZERO, MachineInput::Timeout);
        let mut outputs = OutputQueue::<u8>::default();
        let all: Vec<_> = core::iter::from_fn(|| outputs.next_event_or_job(&mut child)).collect();
        let job = |token, job| ChildOutput::Job(JobRequest::new(token, job));
        assert_eq!(all, [job(5, 6), ChildOutput::Event(1), job(7, 8)]);
        let outside = data_transmit(CONN).with_outer_slot(3);
        assert_eq!(drain_outputs_with_bytes(&mut outputs), [(MachineOutput::Transmit(outside), vec![1])]);
    }

    #[test]
    fn work_of_a_kind_is_one_piece_until_something_else_comes() {
        let mut outputs = OutputQueue::<u8>::default();
        let mut add = |label, units| outputs.push_work(WorkRecord { label, units });
        add(TEST_LABEL, 1);
        add(TEST_LABEL, 2);
        add(TWO, 1);
        add(TEST_LABEL, 4);
        outputs.push_event(0);
        outputs.push_work(WorkRecord { label: TEST_LABEL, units: 8 });
        let units =
            drain_outputs_with_bytes(&mut outputs).into_iter().filter_map(|(output, _)| match output {
                MachineOutput::Work(work) => Some((work.label.name(), work.units)),
                _ => None,
            });
        let expected = [("test.one", 3), ("test.two", 1), ("test.one", 4), ("test.one", 8)];
        assert_eq!(units.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn child_transmits_keep_their_order_among_the_container_outputs() {
        for (slot, conn) in [(Some(2), CONN.with_outer_slot(2)), (None, CONN)] {
            let mut child = slot.map_or_else(
                || ChildMachine::without_slot(AlternatingMachine::default()),
                |slot| ChildMachine::new(slot, AlternatingMachine::default()),
            );
            let mut outputs = OutputQueue::<u16>::default();
            child.handle_input(Instant::ZERO, MachineInput::Timeout);
            while let Some(event) = outputs.next_event(&mut child) {
                outputs.push_event(u16::from(event) * 100);
            }
            outputs.push_child_operation(&child, Transmit::Stream { conn: CONN, op: StreamOp::Abort });
            let expected = vec![
                (MachineOutput::Work(WorkRecord { label: TEST_LABEL, units: 1 }), vec![]),
                (MachineOutput::Event(100), vec![]),
                (MachineOutput::Transmit(data_transmit(conn)), vec![1]),
                (MachineOutput::Event(200), vec![]),
                (MachineOutput::Transmit(data_transmit(conn)), vec![2]),
                (MachineOutput::Transmit(Transmit::Stream { conn, op: StreamOp::Abort }), vec![]),
            ];
            assert_eq!(drain_outputs_with_bytes(&mut outputs), expected);
        }
    }

    #[test]
    fn a_buffer_is_used_again_and_a_large_one_is_not_kept() {
        let mut outputs = OutputQueue::<u8>::default();
        let mut small = outputs.take_buffer();
        small.push(1);
        let at = small.as_ptr();
        outputs.recycle_buffer(small);
        outputs.recycle_buffer(vec![0; SPARE_OCTETS + 1]);
        let again = outputs.take_buffer();
        assert_eq!((again.as_ptr(), again.len()), (at, 0));
        assert_eq!(outputs.take_buffer().capacity(), 0);
    }
}
