//! Compares the event queue with the standard library's binary heap in one process. At a constant number of pending
//! events, one event is removed and one inserted.

use serde_json::json;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant as Clock;
use usher_benches::{main as bench, median};
use usher_core::{Duration, Instant, Seed, SimulationRng};
use usher_sim::EventQueue;

const PENDING: [usize; 3] = [1_000, 30_000, 1_000_000];
/// Events removed and inserted in one measurement.
const STEPS: usize = 2_000_000;
/// The mean time until an event is due.
const AHEAD: Duration = Duration::from_millis(20);

/// The interface of a measured queue.
trait BenchmarkEventQueue {
    fn push(&mut self, at: Instant, event: u32);
    fn pop(&mut self) -> Option<(Instant, u32)>;
}

impl BenchmarkEventQueue for EventQueue<u32> {
    fn push(&mut self, at: Instant, event: u32) {
        EventQueue::push(self, at, event);
    }
    fn pop(&mut self) -> Option<(Instant, u32)> {
        self.pop_until(Instant::FAR_FUTURE)
    }
}

/// The heap, with a sequence number that keeps equal times in order.
#[derive(Default)]
struct HeapQueue {
    heap: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    pushed: u64,
}

impl BenchmarkEventQueue for HeapQueue {
    fn push(&mut self, at: Instant, event: u32) {
        self.heap.push(Reverse((at, self.pushed, event)));
        self.pushed += 1;
    }
    fn pop(&mut self) -> Option<(Instant, u32)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

/// Returns the nanoseconds for an event, removed and inserted. The times are drawn beforehand.
fn measure_queued_event(queue: &mut impl BenchmarkEventQueue, pending: usize, ahead: &[Duration]) -> f64 {
    let mut ahead = ahead.iter().cycle();
    let mut next = || *ahead.next().unwrap_or(&AHEAD);
    for i in 0..pending {
        queue.push(Instant::ZERO + next(), i as u32);
    }
    let mut steps = |n: usize| {
        for _ in 0..n {
            if let Some((at, event)) = queue.pop() {
                queue.push(at + next(), black_box(event));
            }
        }
    };
    steps(pending);
    let began = Clock::now();
    steps(STEPS);
    began.elapsed().as_nanos() as f64 / STEPS as f64
}

fn main() -> ExitCode {
    bench(5, |arguments| {
        let mut rng: SimulationRng = Seed::new(1).derive_rng("queue", 0);
        let ahead: Vec<Duration> = (0..1 << 16).map(|_| rng.sample_exponential(AHEAD)).collect();
        let (mut results, mut missed) = (Vec::new(), Vec::new());
        for pending in PENDING {
            let both: Vec<(f64, f64)> = (0..arguments.runs)
                .map(|_| {
                    let radix = measure_queued_event(&mut EventQueue::new(), pending, &ahead);
                    (radix, measure_queued_event(&mut HeapQueue::default(), pending, &ahead))
                })
                .collect();
            let radix = median(both.iter().map(|b| b.0));
            let heap = median(both.iter().map(|b| b.1));
            let ratio = median(both.iter().map(|b| b.1 / b.0));
            if !arguments.json {
                println!(
                    "{pending:>9} pending: event queue {radix:6.1} ns, binary heap {heap:6.1} ns, \
                     {ratio:.2} times as fast"
                );
            }
            if ratio < 1.0 {
                missed.push(format!("{pending} pending: {ratio:.2} times as fast as the binary heap"));
            }
            results.push(json!({
                "pending": pending,
                "event_queue_ns": radix,
                "binary_heap_ns": heap,
                "times_as_fast": ratio,
            }));
        }
        Ok((json!(results), missed))
    })
}
