//! Entry points for fuzzers. Each answers false where it has found a defect.

use crate::keying::{Base, Config, Event, Station};
use crate::keys::AuthKey;
use crate::{Message, Owned};
use alloc::string::ToString;
use alloc::vec::Vec;
use usher_core::{Instant, Seed};

/// Parses octets; what is a message is printed, looked into, written again and must say the same.
pub fn message(bytes: &[u8]) -> bool {
    let Ok(view) = Message::parse(bytes) else { return true };
    let owned = Owned::from(view);
    let mut out = Vec::new();
    owned.emit(&mut out);
    let nested: usize = view.attributes().map(|a| a.nested().count()).sum();
    let same = Message::parse(&out).is_ok_and(|again| Owned::from(again) == owned);
    same && out.len() <= bytes.len() && nested <= bytes.len() && !view.to_string().is_empty()
}

/// Most messages and timeouts of a run.
const STEPS: usize = 200;

/// Runs a handshake and the exchange of keys over a channel that the octets command: of each message an octet says
/// whether it arrives as it is, is lost, comes twice, is spoiled at a place that the next octet says, or gives way to the
/// octets that follow. Both sides must come to an end and say which, and where both have keys, they have the same.
pub fn keying(bytes: &[u8]) -> bool {
    let key = || AuthKey::new(&[7; 64], [1; 6], [2; 6], 0);
    let (seed, mut now) = (Seed::new(1), Instant::ZERO);
    let mut base = Base::new(Config::default(), key(), &mut seed.secure("base", 0), now);
    let mut station = Station::new(Config::default(), key(), 0, &mut seed.secure("station", 0), now);
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
                    base.handle(now, &buf);
                } else {
                    station.handle(now, &buf);
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
            if let Some(Event::Keyed(teks)) = event {
                *keys = Some(teks);
            }
        }
    }
    false
}
