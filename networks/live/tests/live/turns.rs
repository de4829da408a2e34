//! A machine that is due again and again, like one that defers costly work.

use crate::common::{TEST_TIMEOUT, own_loopback};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use usher_core::{CommandError, Instant, JobRequest, Machine, MachineInput, MachineOutputOf, NoJob};
use usher_live::{
    Driver, DriverRole, DriverSockets, SocketOptions, SystemClock, bind_udp, number_sockets, spawn_shard,
};

/// Does a step at each timeout. It sends itself a datagram at the start and the end of each step, with the step's
/// number.
struct BusyRole {
    /// Duration of a step.
    step: Duration,
    letters: Option<(UdpSocket, SocketAddr)>,
    counts: Arc<BusyCounts>,
    stopped: bool,
}

/// Counts of a busy machine and its driver.
#[derive(Default)]
struct BusyCounts {
    steps: AtomicU64,
    /// Number of polls of the driver's sockets.
    looks: AtomicU64,
    datagrams: AtomicU64,
    /// Maximum steps that began between a datagram's arrival and its handling.
    longest_wait: AtomicU64,
}

impl BusyRole {
    fn send_number(&self, step: u64) {
        if let Some((socket, to)) = &self.letters {
            socket.send_to(&step.to_be_bytes(), to).expect("loopback takes it");
        }
    }
}

impl Machine for BusyRole {
    type Command = ();
    type Event = ();
    type Job = NoJob;

    fn handle_input(&mut self, _: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Timeout => {
                let step = self.counts.steps.fetch_add(1, Ordering::SeqCst) + 1;
                self.send_number(step);
                std::thread::sleep(self.step);
                self.send_number(step);
            }
            MachineInput::Datagram { data, .. } => {
                let sent_in = u64::from_be_bytes(data.try_into().expect("a number"));
                let waited = self.counts.steps.load(Ordering::SeqCst) - sent_in;
                self.counts.longest_wait.fetch_max(waited, Ordering::SeqCst);
                self.counts.datagrams.fetch_add(1, Ordering::SeqCst);
            }
            other => panic!("nothing sends {other:?}"),
        }
    }
    fn handle_command(&mut self, _: Instant, (): ()) -> Result<(), CommandError> {
        Ok(())
    }
    fn poll_output(&mut self, _: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        None
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        Some(Instant::ZERO)
    }
}

impl DriverRole for BusyRole {
    type Machine = Self;
    type Message = ();

    fn machine(&mut self) -> &mut Self {
        self
    }
    fn on_event(&mut self, _: Instant, (): ()) {}
    fn on_job(&mut self, _: Instant, job: JobRequest<NoJob>) {
        match job.job {}
    }
    fn on_message(&mut self, _: Instant, (): ()) {
        self.stopped = true;
    }
    fn is_stopped(&self) -> bool {
        self.counts.looks.fetch_add(1, Ordering::SeqCst);
        self.stopped
    }
}

/// Runs a busy machine until its counts satisfy `wanted`, and returns them.
fn run_busy(step: Duration, sends: bool, wanted: impl Fn(&BusyCounts) -> bool) -> Arc<BusyCounts> {
    let socket = bind_udp((own_loopback(), 0).into(), &SocketOptions::default()).expect("a port can be had");
    let to = socket.local_addr().expect("it is bound");
    let letters = sends.then(|| (UdpSocket::bind("127.0.0.1:0").expect("a port can be had"), to));
    let counts = Arc::new(BusyCounts::default());
    let busy = BusyRole { step, letters, counts: Arc::clone(&counts), stopped: false };
    let sockets = DriverSockets { udp: number_sockets([socket]), ..DriverSockets::default() };
    let (driver, mailbox) = Driver::new(busy, sockets, SystemClock::start());
    let shard = spawn_shard("busy", None, || driver.run()).expect("a thread can be had");
    let begun = std::time::Instant::now();
    while !wanted(&counts) {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{:?} steps", counts.steps);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(mailbox.send(()));
    assert!(shard.join().expect("it did not panic").is_ok());
    counts
}

#[test]
fn what_comes_waits_for_one_step_of_a_machine_that_has_many() {
    // Each step exceeds the driver's time slice. No datagram waits for a second step, however busy the machine is:
    // the driver's own thread sends them.
    let counts = run_busy(Duration::from_millis(5), true, |counts| {
        counts.datagrams.load(Ordering::SeqCst) >= 80 && counts.steps.load(Ordering::SeqCst) >= 40
    });
    let longest = counts.longest_wait.load(Ordering::SeqCst);
    assert!(longest <= 1, "a datagram waited for {longest} steps more than the one in which it came");
}

#[test]
fn short_steps_share_what_a_look_at_the_sockets_costs() {
    // Steps take no time. If they did, a thread interrupted during one would need a poll for each.
    let counts = run_busy(Duration::ZERO, false, |counts| counts.steps.load(Ordering::SeqCst) >= 200);
    let (looks, steps) = (counts.looks.load(Ordering::SeqCst), counts.steps.load(Ordering::SeqCst));
    assert!(looks * 2 < steps, "{looks} looks for {steps} steps");
}
