//! A ramp at a server that forgets nothing: what is more than it can do waits, and is done all the same.

use crate::load;
use std::net::UdpSocket;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const SECRET: &str = "a secret of the tests";
/// How long each answer takes: 200 a second.
const EACH: Duration = Duration::from_millis(5);

/// Answers every request by Access-Accept, one after the other, for as long as the test runs.
fn serve() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap().to_string();
    let answers = socket.try_clone().unwrap();
    let (queue, waiting) = channel();
    std::thread::spawn(move || {
        let mut octets = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut octets) {
            if length >= 20 && queue.send((octets[..20].to_vec(), from)).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        let mut free = Instant::now();
        for (request, from) in waiting {
            free = free.max(Instant::now()) + EACH;
            std::thread::sleep(free.saturating_duration_since(Instant::now()));
            // RFC 2865 §3: the Response Authenticator is of the answer with the request's in its place, and the secret.
            let head = [2, request[1], 0, 20];
            let proof = usher_crypto::digest::md5(&[&head, &request[4..], SECRET.as_bytes()]);
            let _ = answers.send_to(&[&head[..], &proof].concat(), from);
        }
    });
    at
}

#[test]
fn a_ramp_waits_until_a_server_has_done_what_a_step_far_too_high_has_left_it() {
    let at = serve();
    let mut words = vec!["load", "radius", &at, "--secret", SECRET, "--no-message-authenticator", "--json"];
    words.extend(["--user", "user", "--password", "password", "--regular", "--ramp", "--ramp-start", "1600"]);
    words.extend(["--ramp-settle", "50ms", "--ramp-hold", "250ms", "--ramp-p99", "60ms"]);
    words.extend(["--ramp-precision", "30%", "--ramp-repeats", "2"]);
    let value = load(&words);
    let steps = value["ramp"]["steps"].as_array().unwrap();
    // The first leave 2 s of work each. Those at a rate that the server has time for are kept up with all the same.
    assert_eq!((steps[0]["rate"].as_f64(), &steps[0]["kept_up"]), (Some(1600.0), &false.into()), "{value:#}");
    let knee = value["ramp"]["knee_per_s"].as_f64().unwrap_or_default();
    assert!((90.0..=260.0).contains(&knee), "{value:#}");
}
