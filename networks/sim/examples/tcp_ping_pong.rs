//! Measures the cost of a segment: two connections in memory exchange requests and replies of 200 octets, then
//! one sends a long stream. Prints nanoseconds per segment, including its reception and the reply.
//!
//! `cargo run --release -p usher-sim --example tcp_ping_pong`

use std::sync::Arc;
use std::time::Instant as Clock;
use usher_core::{Duration, Instant};
use usher_sim::tcp::{StreamData, TcpConfig, TcpConnection, TcpEvent};

/// Passes the segments of `from` to `to`; returns their number.
#[inline]
fn feed_segments(from: &mut TcpConnection, to: &mut TcpConnection, now: Instant) -> u64 {
    let mut n = 0;
    while let Some(segment) = from.poll_transmit(now) {
        to.handle_segment(now, &segment);
        n += 1;
    }
    n
}

fn connect_pair(config: TcpConfig) -> (TcpConnection, TcpConnection) {
    let (config, now) = (Arc::new(config), Instant::ZERO);
    let mut client = TcpConnection::connect(config.clone(), 0, now);
    let syn = client.poll_transmit(now).expect("a SYN");
    let mut server = TcpConnection::accept(config, 0, &syn, now).expect("a server");
    while feed_segments(&mut server, &mut client, now) + feed_segments(&mut client, &mut server, now) > 0 {}
    assert_eq!(client.poll_event(), Some(TcpEvent::Connected));
    assert_eq!(server.poll_event(), Some(TcpEvent::Connected));
    (client, server)
}

fn print_cost(what: &str, segments: u64, started: Clock) {
    let ns = started.elapsed().as_nanos() as f64 / segments as f64;
    println!("{what:<44} {segments:>10} segments {ns:>7.1} ns each");
}

fn run_dialogue(config: TcpConfig, pairs: usize, rounds: u64, what: &str) {
    let mut pairs: Vec<_> = (0..pairs).map(|_| connect_pair(config.clone())).collect();
    let mut now = Instant::ZERO;
    let (mut segments, mut answered) = (0, 0u64);
    let started = Clock::now();
    for _ in 0..rounds {
        for (client, server) in &mut pairs {
            client.write(StreamData::Count(200)).expect("open");
            segments += feed_segments(client, server, now);
            now += Duration::from_micros(500);
            while let Some(TcpEvent::Data { len, .. }) = server.poll_event() {
                server.write(StreamData::Count(len)).expect("open");
            }
            segments += feed_segments(server, client, now);
            now += Duration::from_micros(500);
            while let Some(TcpEvent::Data { len, .. }) = client.poll_event() {
                answered += u64::from(len);
            }
            let _ = (client.poll_timeout(), server.poll_timeout());
        }
    }
    assert_eq!(answered, 200 * rounds * pairs.len() as u64);
    print_cost(what, segments, started);
}

fn run_stream(config: TcpConfig, bytes: u32, what: &str) {
    let (mut client, mut server) = connect_pair(config);
    let mut now = Instant::ZERO;
    client.write(StreamData::Count(bytes)).expect("open");
    let (mut segments, mut got) = (0, 0);
    let started = Clock::now();
    while got < bytes {
        segments += feed_segments(&mut client, &mut server, now);
        while let Some(event) = server.poll_event() {
            if let TcpEvent::Data { len, .. } = event {
                got += len;
            }
        }
        segments += feed_segments(&mut server, &mut client, now);
        now += Duration::from_millis(1);
        for c in [&mut client, &mut server] {
            if c.poll_timeout().is_some_and(|at| at <= now) {
                c.handle_timeout(now);
            }
        }
    }
    print_cost(what, segments, started);
}

fn main() {
    println!("Connection: {} bytes", size_of::<TcpConnection>());
    let plain = TcpConfig { nagle: false, ..TcpConfig::default() };
    run_dialogue(plain.clone(), 1, 10_000_000, "dialogue of 200 B, one pair");
    run_dialogue(plain.clone(), 1000, 10_000, "dialogue of 200 B, a thousand pairs in turn");
    let stamped = TcpConfig { timestamps: true, ..plain.clone() };
    run_dialogue(stamped, 1, 5_000_000, "dialogue of 200 B with timestamps");
    run_stream(plain, 1 << 30, "stream of 1 GiB");
}
