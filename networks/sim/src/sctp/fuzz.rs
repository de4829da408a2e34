//! Fuzz targets of associations and listeners.

use super::association::{SctpAssociation, SctpAssociationState};
use super::chunk::SctpPacket;
use super::config::{InitialAssociationValues, SctpConfig};
use super::crc32c::crc32c;
use super::listen::{SctpListenerAction, handle_listener_packet, reply_out_of_the_blue};
use super::{OutgoingSctpPacket, UserMessage};
use crate::packet::Payload;
use std::sync::Arc;
use usher_core::{Duration, Instant, OctetReader, TruncatedInputError};

const PORTS: (u16, u16) = (3868, 40_000);
const TAGS: [u32; 4] = [10, 11, 0, 99];

fn initial_values(tag: u32) -> InitialAssociationValues {
    InitialAssociationValues { tag, tsn: tag.wrapping_sub(20), secret: [7; 32] }
}

/// Runs octets as a sequence of events: packets with any chunks, waits, messages, shutdown. The first octet
/// selects the association's initial state.
///
/// # Panics
/// If an association or [`handle_listener_packet`](super::listen::handle_listener_packet) panics, exceeds its
/// limits, or does not come to rest: a defect.
pub fn fuzz_association(bytes: &[u8]) {
    let mut r = OctetReader::new(bytes);
    // The result is ignored: `None` only means that the input's octets are used up.
    let _ = run_events(&mut r);
}

fn run_events(r: &mut OctetReader<'_>) -> Result<(), TruncatedInputError> {
    let config = Arc::new(SctpConfig {
        receive_buffer: 20_000,
        nagle: read_odd_flag(r)?,
        heartbeat_interval: read_odd_flag(r)?.then(|| Duration::from_secs(1)),
        ..SctpConfig::default()
    });
    let mut now = Instant::ZERO;
    let mut a = SctpAssociation::connect(config.clone(), now, initial_values(TAGS[0]), 2);
    let mut b = None;
    // Exchange packets up to four times, so that the setup may be at any stage.
    for _ in 0..r.read_u8()? % 5 {
        exchange_packets(&config, now, &mut a, &mut b);
    }
    loop {
        let op = r.read_u8()?;
        match op % 8 {
            0 => {
                now += Duration::from_millis(u64::from(r.read_u16()?));
                a.handle_timeout(now);
            }
            1 => {
                now = a.poll_timeout().unwrap_or(now).max(now);
                a.handle_timeout(now);
            }
            2 => {
                let (stream, len) = (u16::from(r.read_u8()?), u32::from(r.read_u16()?));
                let payload = Payload::with_length(len);
                // The result is ignored: a refused command has no effect.
                let _ = a.send_message(now, UserMessage { stream, ppid: 0, unordered: op & 8 != 0, payload });
            }
            3 => drain_outputs(&mut a, now),
            4 if op & 0xf8 == 0 => a.shutdown(now),
            _ => {
                let len = usize::from(r.read_u8()?);
                let chunks = r.read_bytes(len.min(r.remaining()))?;
                if let Some(packet) = packet_with_checksum(TAGS[usize::from(op >> 3) % 4], chunks) {
                    let answer =
                        handle_listener_packet(&config, now, initial_values(5), PORTS, 0, 1, packet.clone());
                    if let SctpListenerAction::Accept(mut accepted) = answer {
                        drain_outputs(&mut accepted, now);
                    }
                    // The reply is ignored.
                    let _ = reply_out_of_the_blue(&packet);
                    a.handle_packet(now, op >> 7, packet);
                }
            }
        }
        check_invariants(&a);
        if a.state() == SctpAssociationState::Closed && a.poll_timeout().is_some() {
            panic!("a timer runs though all is over");
        }
    }
}

fn read_odd_flag(r: &mut OctetReader<'_>) -> Result<bool, TruncatedInputError> {
    Ok(r.read_u8()? & 1 != 0)
}

/// Passes one packet in each direction.
fn exchange_packets(
    config: &Arc<SctpConfig>,
    now: Instant,
    a: &mut SctpAssociation,
    b: &mut Option<SctpAssociation>,
) {
    let Some(OutgoingSctpPacket { path, packet }) = a.poll_transmit(now) else { return };
    let answer = match b {
        Some(b) => {
            b.handle_packet(now, path, packet);
            None
        }
        None => match handle_listener_packet(config, now, initial_values(TAGS[1]), PORTS, path, 2, packet) {
            SctpListenerAction::Reply(packet) => Some(packet),
            SctpListenerAction::Accept(accepted) => {
                *b = Some(*accepted);
                None
            }
            SctpListenerAction::Discard => None,
        },
    };
    let answer = answer.or_else(|| Some(b.as_mut()?.poll_transmit(now)?.packet));
    if let Some(answer) = answer {
        a.handle_packet(now, path, answer);
    }
}

/// Returns chunks as on the wire, behind a valid header.
fn packet_with_checksum(vtag: u32, chunks: &[u8]) -> Option<SctpPacket> {
    let mut wire = vec![0; 4];
    wire.extend_from_slice(&vtag.to_be_bytes());
    wire.extend_from_slice(&[0; 4]);
    wire.extend_from_slice(chunks);
    let crc = crc32c(&[&wire]);
    wire[8..12].copy_from_slice(&crc.to_le_bytes());
    SctpPacket::parse(&wire).ok().map(|(_, _, packet)| packet)
}

fn drain_outputs(a: &mut SctpAssociation, now: Instant) {
    while a.poll_event().is_some() {}
    for _ in 0..100_000 {
        if a.poll_transmit(now).is_none() {
            return;
        }
    }
    panic!("it sends without end");
}

fn check_invariants(a: &SctpAssociation) {
    assert!(a.control.len() <= 64 && a.replies.len() <= 64);
    assert!(a.inb.buffered + a.inb.unread <= 2 * a.config.bounded_receive_buffer());
    let flight: u32 = a.paths.iter().map(|p| p.flight).sum();
    let flying = a.out.sent.iter().filter(|s| s.whereabouts == super::outbound::SentChunkStatus::Flying);
    assert_eq!(flight, flying.map(|s| s.congestion_window_octets(&a.config)).sum::<u32>());
    let armed = a.paths.iter().all(|p| p.flight == 0 || p.t3_at != Instant::FAR_FUTURE);
    assert!(armed || a.state() == SctpAssociationState::CookieEchoed, "what is in flight is not waited for");
}
