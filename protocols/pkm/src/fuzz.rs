//! Entry points for fuzzers. Each answers false where it has found a defect.

use crate::keying::{BaseStationKeying, KeyingConfig, KeyingEvent, StationKeying};
use crate::keys::AuthorizationKey;
use crate::{OwnedPkmMessage, PkmMessage};
use alloc::string::ToString;
use alloc::vec::Vec;
use usher_core::{Instant, Seed};

/// Parses octets. A valid message is printed, inspected, and must encode to an equal one.
pub fn check_message(bytes: &[u8]) -> bool {
    let Ok(view) = PkmMessage::parse(bytes) else { return true };
    let owned = OwnedPkmMessage::from(view);
    let mut out = Vec::new();
    owned.emit(&mut out);
    let nested: usize = view.attributes().map(|a| a.nested_attributes().count()).sum();
    let same = PkmMessage::parse(&out).is_ok_and(|again| OwnedPkmMessage::from(again) == owned);
    same && out.len() <= bytes.len() && nested <= bytes.len() && !view.to_string().is_empty()
}

/// Most messages and timeouts of a run.
const STEPS: usize = 200;

/// Runs a handshake and the exchange of keys over a channel that the octets control. An octet decides the fate of each
/// message: it arrives intact, is lost, comes twice, is spoiled at the place in the next octet, or gives way to the
/// following octets. Both sides must end and report how. If both have keys, the keys are the same.
pub fn fuzz_keying(bytes: &[u8]) -> bool {
    let key = || AuthorizationKey::new(&[7; 64], [1; 6], [2; 6], 0);
    let (seed, mut now) = (Seed::new(1), Instant::ZERO);
    let mut base =
        BaseStationKeying::new(KeyingConfig::default(), key(), &mut seed.derive_secure_rng("base", 0), now);
    let mut station =
        StationKeying::new(KeyingConfig::default(), key(), 0, &mut seed.derive_secure_rng("station", 0), now);
    let mut commands = bytes.iter().copied();
    let (mut keys, mut told) = ([None, None], [false; 2]);
    let mut buf = Vec::new();
    for _ in 0..STEPS {
        let up = station.poll_transmit(&mut buf);
        if up || base.poll_transmit(&mut buf) {
            let mut times = 1;
            match commands.next().map_or(0, |c| c % 5) {
                1 => times = 0,
                2 => times = 2,
                3 => {
                    let at = usize::from(commands.next().unwrap_or(0)) % buf.len();
                    buf[at] ^= commands.next().unwrap_or(1);
                }
                4 => {
                    buf.clear();
                    let octets = commands.next().unwrap_or(0);
                    buf.extend(commands.by_ref().take(octets.into()));
                }
                _ => {}
            }
            for _ in 0..times {
                if up {
                    base.handle_message(now, &buf);
                } else {
                    station.handle_message(now, &buf);
                }
            }
        } else {
            let Some(next) = [base.poll_timeout(), station.poll_timeout()].into_iter().flatten().min() else {
                let [a, b] = keys;
                return told == [true; 2] && (a.is_none() || b.is_none() || a == b);
            };
            now = next;
            base.handle_timeout(now);
            station.handle_timeout(now);
        }
        let events = [base.poll_event(), station.poll_event()];
        for ((keys, told), event) in keys.iter_mut().zip(&mut told).zip(events) {
            *told |= event.is_some();
            if let Some(KeyingEvent::Keyed(teks)) = event {
                *keys = Some(teks);
            }
        }
    }
    false
}
