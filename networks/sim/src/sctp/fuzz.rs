//! What fuzzers run against an association and a listener.

use super::association::{Association, State};
use super::chunk::Packet;
use super::config::Config;
use super::crc32c::crc32c;
use super::listen::{Answer, Initial, listen, out_of_the_blue};
use super::{Message, Transmit};
use crate::packet::Payload;
use std::sync::Arc;
use usher_core::{Duration, Instant, Reader, Truncated};

const PORTS: (u16, u16) = (3868, 40_000);
const TAGS: [u32; 4] = [10, 11, 0, 99];

fn initial(tag: u32) -> Initial {
    Initial { tag, tsn: tag.wrapping_sub(20), secret: [7; 32] }
}

/// Runs bytes as a course of events: packets with any chunks, waits, messages, shutdown. What is first
/// read says in which state the association begins.
///
/// # Panics
/// Where an association or [`listen`] panics, keeps more than it may, or does not come to rest: a defect.
pub fn disturb(bytes: &[u8]) {
    let mut r = Reader::new(bytes);
    // The course ends with the bytes.
    let _ = course(&mut r);
}

fn course(r: &mut Reader<'_>) -> Result<(), Truncated> {
    let config = Arc::new(Config {
        receive_buffer: 20_000,
        nagle: bytes_odd(r)?,
        heartbeat_interval: bytes_odd(r)?.then(|| Duration::from_secs(1)),
        ..Config::default()
    });
    let mut now = Instant::ZERO;
    let mut a = Association::connect(config.clone(), now, initial(TAGS[0]), 2);
    let mut b = None;
    // From the set-up's first packet to the end of its exchange.
    for _ in 0..r.u8()? % 5 {
        exchange(&config, now, &mut a, &mut b);
    }
    loop {
        let op = r.u8()?;
        match op % 8 {
            0 => {
                now += Duration::from_millis(u64::from(r.u16()?));
                a.handle_timeout(now);
            }
            1 => {
                now = a.poll_timeout().unwrap_or(now).max(now);
                a.handle_timeout(now);
            }
            2 => {
                let (stream, len) = (u16::from(r.u8()?), u32::from(r.u16()?));
                let payload = Payload::counted(len);
                // A command that is refused changes nothing.
                let _ = a.send(now, Message { stream, ppid: 0, unordered: op & 8 != 0, payload });
            }
            3 => drain(&mut a, now),
            4 if op & 0xf8 == 0 => a.shutdown(now),
            _ => {
                let len = usize::from(r.u8()?);
                let chunks = r.bytes(len.min(r.remaining()))?;
                if let Some(packet) = packet(TAGS[usize::from(op >> 3) % 4], chunks) {
                    let answer = listen(&config, now, initial(5), PORTS, 0, 1, packet.clone());
                    if let Answer::Accept(mut accepted) = answer {
                        drain(&mut accepted, now);
                    }
                    // Its answer is not looked at.
                    let _ = out_of_the_blue(&packet);
                    a.handle_packet(now, op >> 7, packet);
                }
            }
        }
        check(&a);
        if a.state() == State::Closed && a.poll_timeout().is_some() {
            panic!("a timer runs though all is over");
        }
    }
}

fn bytes_odd(r: &mut Reader<'_>) -> Result<bool, Truncated> {
    Ok(r.u8()? & 1 != 0)
}

/// One packet each way.
fn exchange(config: &Arc<Config>, now: Instant, a: &mut Association, b: &mut Option<Association>) {
    let Some(Transmit { path, packet }) = a.poll_transmit(now) else { return };
    let answer = match b {
        Some(b) => {
            b.handle_packet(now, path, packet);
            None
        }
        None => match listen(config, now, initial(TAGS[1]), PORTS, path, 2, packet) {
            Answer::Reply(packet) => Some(packet),
            Answer::Accept(accepted) => {
                *b = Some(*accepted);
                None
            }
            Answer::Discard => None,
        },
    };
    let answer = answer.or_else(|| Some(b.as_mut()?.poll_transmit(now)?.packet));
    if let Some(answer) = answer {
        a.handle_packet(now, path, answer);
    }
}

/// Chunks as they may stand on the wire, behind a good header.
fn packet(vtag: u32, chunks: &[u8]) -> Option<Packet> {
    let mut wire = vec![0; 4];
    wire.extend_from_slice(&vtag.to_be_bytes());
    wire.extend_from_slice(&[0; 4]);
    wire.extend_from_slice(chunks);
    let crc = crc32c(&[&wire]);
    wire[8..12].copy_from_slice(&crc.to_le_bytes());
    Packet::parse(&wire).ok().map(|(_, _, packet)| packet)
}

fn drain(a: &mut Association, now: Instant) {
    while a.poll_event().is_some() {}
    for _ in 0..100_000 {
        if a.poll_transmit(now).is_none() {
            return;
        }
    }
    panic!("it sends without end");
}

fn check(a: &Association) {
    assert!(a.control.len() <= 64 && a.replies.len() <= 64);
    assert!(a.inb.held + a.inb.unread <= 2 * a.config.buffer());
    let flight: u32 = a.paths.iter().map(|p| p.flight).sum();
    let flying = a.out.sent.iter().filter(|s| s.whereabouts == super::outbound::Whereabouts::Flying);
    assert_eq!(flight, flying.map(|s| s.weight(&a.config)).sum::<u32>());
    let armed = a.paths.iter().all(|p| p.flight == 0 || p.t3_at != Instant::FAR_FUTURE);
    assert!(armed || a.state() == State::CookieEchoed, "what is in flight is not waited for");
}
