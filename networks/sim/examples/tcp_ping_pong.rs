//! What a segment costs: two connections in memory exchange requests and answers of 200 bytes, and then
//! one sends a long stream. Prints nanoseconds per segment, receiving and answering it included.
//!
//! `cargo run --release -p usher-sim --example tcp_ping_pong`

use std::sync::Arc;
use std::time::Instant as Clock;
use usher_core::{Duration, Instant};
use usher_sim::tcp::{Config, Connection, Data, Event};

/// Feeds what `from` has to send to `to`; answers how many segments that were.
#[inline]
fn carry(from: &mut Connection, to: &mut Connection, now: Instant) -> u64 {
    let mut n = 0;
    while let Some(segment) = from.poll_transmit(now) {
        to.handle_segment(now, &segment);
        n += 1;
    }
    n
}

fn pair(config: Config) -> (Connection, Connection) {
    let (config, now) = (Arc::new(config), Instant::ZERO);
    let mut client = Connection::connect(config.clone(), 0, now);
    let syn = client.poll_transmit(now).expect("a SYN");
    let mut server = Connection::accept(config, 0, &syn, now).expect("a server");
    while carry(&mut server, &mut client, now) + carry(&mut client, &mut server, now) > 0 {}
    assert_eq!(client.poll_event(), Some(Event::Connected));
    assert_eq!(server.poll_event(), Some(Event::Connected));
    (client, server)
}

fn report(what: &str, segments: u64, started: Clock) {
    let ns = started.elapsed().as_nanos() as f64 / segments as f64;
    println!("{what:<44} {segments:>10} segments {ns:>7.1} ns each");
}

fn dialogue(config: Config, pairs: usize, rounds: u64, what: &str) {
    let mut pairs: Vec<_> = (0..pairs).map(|_| pair(config.clone())).collect();
    let mut now = Instant::ZERO;
    let (mut segments, mut answered) = (0, 0u64);
    let started = Clock::now();
    for _ in 0..rounds {
        for (client, server) in &mut pairs {
            client.write(Data::Count(200)).expect("open");
            segments += carry(client, server, now);
            now += Duration::from_micros(500);
            while let Some(Event::Data { len, .. }) = server.poll_event() {
                server.write(Data::Count(len)).expect("open");
            }
            segments += carry(server, client, now);
            now += Duration::from_micros(500);
            while let Some(Event::Data { len, .. }) = client.poll_event() {
                answered += u64::from(len);
            }
            let _ = (client.poll_timeout(), server.poll_timeout());
        }
    }
    assert_eq!(answered, 200 * rounds * pairs.len() as u64);
    report(what, segments, started);
}

fn stream(config: Config, bytes: u32, what: &str) {
    let (mut client, mut server) = pair(config);
    let mut now = Instant::ZERO;
    client.write(Data::Count(bytes)).expect("open");
    let (mut segments, mut got) = (0, 0);
    let started = Clock::now();
    while got < bytes {
        segments += carry(&mut client, &mut server, now);
        while let Some(event) = server.poll_event() {
            if let Event::Data { len, .. } = event {
                got += len;
            }
        }
        segments += carry(&mut server, &mut client, now);
        now += Duration::from_millis(1);
        for c in [&mut client, &mut server] {
            if c.poll_timeout().is_some_and(|at| at <= now) {
                c.handle_timeout(now);
            }
        }
    }
    report(what, segments, started);
}

fn main() {
    println!("Connection: {} bytes", size_of::<Connection>());
    let plain = Config { nagle: false, ..Config::default() };
    dialogue(plain.clone(), 1, 10_000_000, "dialogue of 200 B, one pair");
    dialogue(plain.clone(), 1000, 10_000, "dialogue of 200 B, a thousand pairs in turn");
    let stamped = Config { timestamps: true, ..plain.clone() };
    dialogue(stamped, 1, 5_000_000, "dialogue of 200 B with timestamps");
    stream(plain, 1 << 30, "stream of 1 GiB");
}
