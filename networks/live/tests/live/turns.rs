//! A machine that is due again and again, as one is that puts off what costs much.

use crate::common::PATIENCE;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use usher_core::{CommandError, Input, Instant, Job, Machine, NoJob, Output, OutputOf, Path, Transmit};
use usher_live::{Clock, Driver, Role, SocketOptions, Sockets, bind_udp, numbered, spawn};

/// Does a step whenever it may, and answers datagrams with how many it has done.
struct Busy {
    /// How long each step takes it.
    step: Duration,
    steps: Arc<AtomicU64>,
    /// How often the driver has looked at its sockets.
    looks: Arc<AtomicU64>,
    answers: Vec<(Path, u64)>,
    stopped: bool,
}

impl Machine for Busy {
    type Command = ();
    type Event = ();
    type Job = NoJob;

    fn handle(&mut self, _: Instant, input: Input<'_>) {
        match input {
            Input::Timeout => {
                std::thread::sleep(self.step);
                self.steps.fetch_add(1, Ordering::SeqCst);
            }
            Input::Datagram { path, .. } => self.answers.push((path, self.steps.load(Ordering::SeqCst))),
            other => panic!("nothing sends {other:?}"),
        }
    }
    fn command(&mut self, _: Instant, (): ()) -> Result<(), CommandError> {
        Ok(())
    }
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        let (path, steps) = self.answers.pop()?;
        buf.clear();
        buf.extend_from_slice(&steps.to_be_bytes());
        Some(Output::Transmit(Transmit::Datagram { path }))
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        Some(Instant::ZERO)
    }
}

impl Role for Busy {
    type Machine = Self;
    type Message = ();

    fn machine(&mut self) -> &mut Self {
        self
    }
    fn event(&mut self, _: Instant, (): ()) {}
    fn job(&mut self, _: Instant, job: Job<NoJob>) {
        match job.what {}
    }
    fn message(&mut self, _: Instant, (): ()) {
        self.stopped = true;
    }
    fn stopped(&self) -> bool {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.stopped
    }
}

/// A busy machine on a socket, while the block runs with where it listens, and what counts its steps and the driver's looks.
fn busy(step: Duration, run: impl FnOnce(SocketAddr, &AtomicU64, &AtomicU64)) {
    let socket = bind_udp(([127, 0, 0, 1], 0).into(), &SocketOptions::default()).expect("a port can be had");
    let to = socket.local_addr().expect("it is bound");
    let (steps, looks) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, looked) = (Arc::clone(&steps), Arc::clone(&looks));
    let busy = Busy { step, steps: counted, looks: looked, answers: Vec::new(), stopped: false };
    let sockets = Sockets { udp: numbered([socket]), ..Sockets::default() };
    let (driver, mailbox) = Driver::new(busy, sockets, Clock::start());
    let shard = spawn("busy", None, || driver.run()).expect("a thread can be had");
    run(to, &steps, &looks);
    assert!(mailbox.send(()));
    assert!(shard.join().expect("it did not panic").is_ok());
}

#[test]
fn what_comes_waits_for_one_step_of_a_machine_that_has_many() {
    busy(Duration::from_millis(5), |to, steps, _| {
        let here = UdpSocket::bind("127.0.0.1:0").expect("a port can be had");
        here.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let mut waited: Vec<u64> = (0..41)
            .map(|n| {
                // At another moment of the driver's each time.
                std::thread::sleep(Duration::from_millis(n % 11));
                let before = steps.load(Ordering::SeqCst);
                here.send_to(b"?", to).expect("loopback takes it");
                let mut answer = [0; 8];
                assert_eq!(here.recv(&mut answer).expect("an answer comes"), 8);
                u64::from_be_bytes(answer) - before
            })
            .collect();
        waited.sort_unstable();
        // A processor that others want too may keep this thread waiting now and then, but not mostly.
        assert!(waited[waited.len() / 2] <= 1, "{waited:?}");
    });
}

#[test]
fn short_steps_share_what_a_look_at_the_sockets_costs() {
    busy(Duration::from_micros(50), |_, steps, looks| {
        let begun = std::time::Instant::now();
        while steps.load(Ordering::SeqCst) < 200 {
            assert!(begun.elapsed() < PATIENCE, "{steps:?} steps");
            std::thread::sleep(Duration::from_millis(1));
        }
        let (looks, steps) = (looks.load(Ordering::SeqCst), steps.load(Ordering::SeqCst));
        assert!(looks * 2 < steps, "{looks} looks for {steps} steps");
    });
}
