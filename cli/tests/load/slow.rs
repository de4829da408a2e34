//! A ramp against a server that drops nothing: excess requests wait for a late reply.

use crate::own::{TEST_TIMEOUT, own_socket};
use crate::run_load;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const SECRET: &str = "a secret of the tests";
/// The time for each reply: 200 a second.
const EACH: Duration = Duration::from_millis(5);
/// Maximum delay of replies at a sustained rate. A busy machine rarely delays the server's turn by as much.
const LIMIT: Duration = Duration::from_millis(200);
/// The time of a rate before its measurement; `HOLD` is that of the measurement.
const SETTLE: Duration = Duration::from_millis(50);
const HOLD: Duration = Duration::from_millis(500);

/// Starts a server that answers every request by Access-Accept, one after the other. Returns its address, and
/// the maximum lateness of a reply in microseconds.
fn start_slow_server() -> (String, Arc<AtomicU64>) {
    let socket = UdpSocket::bind(own_socket()).unwrap();
    let at = socket.local_addr().unwrap().to_string();
    let answers = socket.try_clone().unwrap();
    let (queue, waiting) = channel();
    let latest = Arc::<AtomicU64>::default();
    let late = latest.clone();
    std::thread::spawn(move || {
        let mut octets = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut octets) {
            if length >= 20 && queue.send((octets[..20].to_vec(), from, Instant::now())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        let mut free = Instant::now();
        for (request, from, arrived) in waiting {
            // After a late wake-up the next wait is shorter.
            free = free.max(arrived) + EACH;
            std::thread::sleep(free.saturating_duration_since(Instant::now()));
            late.fetch_max(free.elapsed().as_micros() as u64, Ordering::Relaxed);
            // RFC 2865 §3: the Response Authenticator covers the reply with the request's authenticator, and
            // the secret.
            let head = [2, request[1], 0, 20];
            let proof = usher_crypto::digest::md5(&[&head, &request[4..], SECRET.as_bytes()]);
            let _ = answers.send_to(&[&head[..], &proof].concat(), from);
        }
    });
    (at, latest)
}

#[test]
fn a_ramp_waits_until_the_server_has_cleared_an_overload() {
    let (at, latest) = start_slow_server();
    let [limit, settle, hold] = [LIMIT, SETTLE, HOLD].map(|time| format!("{}ms", time.as_millis()));
    let mut words = vec!["load", "radius", &at, "--secret", SECRET, "--no-message-authenticator", "--json"];
    words.extend(["--user", "user", "--password", "password", "--regular", "--ramp", "--ramp-start", "800"]);
    words.extend(["--ramp-settle", &settle, "--ramp-hold", &hold, "--ramp-p99", &limit]);
    words.extend(["--ramp-precision", "30%", "--ramp-repeats", "2"]);
    // If the server or the generator was not scheduled for half of the limit, every rate was too high. The test
    // then repeats the ramp.
    let begun = Instant::now();
    let value = loop {
        latest.store(0, Ordering::Relaxed);
        let value = run_load(&words);
        let steps = value["ramp"]["steps"].as_array().unwrap().iter();
        let own = steps.filter_map(|step| step["own_lag_p99_s"].as_f64()).fold(0.0, f64::max);
        let late = Duration::from_micros(latest.load(Ordering::Relaxed)).as_secs_f64().max(own);
        if late < LIMIT.as_secs_f64() / 2.0 || begun.elapsed() > TEST_TIMEOUT {
            break value;
        }
    };
    let steps = value["ramp"]["steps"].as_array().unwrap();
    // The first steps leave 2 s of work each. The server still sustains later steps at rates within its
    // capacity. The ramp judges only logins that start more than the limit before a step's end. So a step above
    // the capacity passes if the server is behind by less than the limit at that time.
    assert_eq!((steps[0]["rate"].as_f64(), &steps[0]["kept_up"]), (Some(800.0), &false.into()), "{value:#}");
    let knee = value["ramp"]["knee_per_s"].as_f64().unwrap_or_default();
    let judged = (SETTLE + HOLD - LIMIT).as_secs_f64();
    let most = 200.0 * (1.0 + LIMIT.as_secs_f64() / judged);
    assert!((90.0..=most * 1.1).contains(&knee), "{value:#}");
}
