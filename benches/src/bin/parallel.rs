//! Measures the speed-up of one simulation on two cores, with the same results. It also measures the bounds: two
//! independent halves at once, the packet-hops within a lookahead, and the cost of the threads' meetings.

use serde_json::json;
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use usher_benches::{MeasuredRun, STUDY, dialogues_per_station, main as bench, median, timed_run_settings};

const STATIONS: u64 = 100_000;
/// The delays of the study's links in ms. An event on one side of a link affects the other side only after this
/// delay.
const LOOKAHEADS: [(&str, u64); 2] = [("access", 1), ("shared", 10)];
/// The interval of a station's dialogues in ms.
const INTERVAL: u64 = 100;
/// Packet-hops of a dialogue: two links in both directions.
const HOPS: u64 = 4;
/// The numbers of threads that share a run. A run uses at most two.
const THREADS: [usize; 2] = [2, 4];
/// The minimum speed-up of two threads.
const GAIN: f64 = 1.3;
/// The number of meetings.
const MEETINGS: u32 = 200_000;

/// Returns the nanoseconds of a meeting of two otherwise idle threads.
fn thread_meeting_time(meet: impl Fn(u64) + Sync) -> f64 {
    let all = || (1..=u64::from(MEETINGS)).for_each(&meet);
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(all);
        all();
    });
    began.elapsed().as_nanos() as f64 / f64::from(MEETINGS)
}

/// Threads that meet at the standard library's barrier and sleep there.
fn thread_barrier_time() -> f64 {
    let barrier = Barrier::new(2);
    thread_meeting_time(|_| {
        barrier.wait();
    })
}

/// Threads that spin on a counter until both have arrived.
fn spin_time() -> f64 {
    let arrived = AtomicU64::new(0);
    thread_meeting_time(|round| {
        arrived.fetch_add(1, Ordering::AcqRel);
        while arrived.load(Ordering::Acquire) < 2 * round {
            std::hint::spin_loop();
        }
    })
}

/// Runs two child processes at once. Returns the seconds of the slower one.
fn at_once(set: &[String]) -> Result<f64, String> {
    let of = || MeasuredRun::run_in_child(STUDY, set).map(|run| run.wall_s);
    let (a, b) = std::thread::scope(|scope| {
        let other = scope.spawn(of);
        let own = of();
        (own, other.join().unwrap_or_else(|_| Err("a run's thread ended early".into())))
    });
    Ok(a?.max(b?))
}

fn main() -> ExitCode {
    bench(3, |arguments| {
        let each = dialogues_per_station(STATIONS);
        let (whole, half) = (timed_run_settings(STATIONS, each), timed_run_settings(STATIONS / 2, each));
        let (mut alone, mut halves, mut hop) = (Vec::new(), Vec::new(), Vec::new());
        let mut shared = THREADS.map(|threads| (threads, Vec::new()));
        for _ in 0..arguments.runs {
            let run = MeasuredRun::run_in_child(STUDY, &whole)?;
            alone.push(run.wall_s);
            hop.push(1e9 / run.packet_hop_rate());
            halves.push(at_once(&half)?);
            for (threads, times) in &mut shared {
                let by = MeasuredRun::run_with_threads(*threads, STUDY, &whole)?;
                if !by.divided || by.metrics != run.metrics || by.packet_hops != run.packet_hops {
                    return Err(format!("{threads} threads do not give what one gives"));
                }
                times.push(by.wall_s);
            }
        }
        let (alone, halves, hop) = (median(alone), median(halves), median(hop));
        let gains = shared.map(|(threads, times)| (threads, alone / median(times)));
        let missed = gains.iter().filter(|(threads, gain)| *threads == 2 && *gain < GAIN).map(|(threads, gain)| {
            format!("{threads} threads run {STATIONS} stations {gain:.2} times as fast as one, of at least {GAIN}")
        });
        let missed = missed.collect();
        let of = |measure: fn() -> f64| median((0..arguments.runs).map(|_| measure()));
        let (sleeping, spinning) = (of(thread_barrier_time), of(spin_time));
        let windows = LOOKAHEADS.map(|(link, delay)| (link, delay, STATIONS * HOPS * delay / INTERVAL));
        if !arguments.json {
            println!("{STATIONS} stations in one run: {alone:.2} s, {hop:.0} ns a packet-hop");
            for (threads, gain) in gains {
                println!("by {threads} threads, with the same results: {gain:.2} times as fast");
            }
            println!("two halves of them at once: {halves:.2} s, a gain of {:.2} times", alone / halves);
            println!(
                "a meeting of two threads: {spinning:.0} ns if they spin, {sleeping:.0} ns if they sleep"
            );
            for (link, delay, hops) in windows {
                let share = 100.0 * sleeping / (hops as f64 * hop / 2.0);
                println!(
                    "a lookahead of {delay} ms ({link}): {hops} packet-hops, of which a meeting takes {share:.2} %"
                );
            }
        }
        let rows = windows
            .map(|(link, delay, hops)| json!({ "link": link, "lookahead_ms": delay, "packet_hops": hops }));
        let result = json!({
            "stations": STATIONS,
            "whole_s": alone,
            "halves_s": halves,
            "gain": alone / halves,
            "threads": gains.map(|(threads, gain)| json!({ "threads": threads, "gain": gain })),
            "ns_per_packet_hop": hop,
            "meeting_ns": { "spinning": spinning, "sleeping": sleeping },
            "windows": rows,
        });
        Ok((result, missed))
    })
}
