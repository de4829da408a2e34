use super::*;
use crate::fuzz;
use proptest::prelude::*;
use usher_core::{Instant, Seed};

fn test_key(msk: u8) -> AuthorizationKey {
    AuthorizationKey::new(&[msk; 64], [2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 1], 0)
}

/// Both sides with their keys and the messages in flight.
struct KeyingPair {
    base: BaseStationKeying,
    station: StationKeying,
    /// Times and codes of all sent messages.
    sent_log: Vec<(u64, Code)>,
    events: [Vec<(u64, KeyingEvent)>; 2],
}

impl KeyingPair {
    fn new(keys: [AuthorizationKey; 2]) -> Self {
        let [ours, theirs] = keys;
        let seed = Seed::new(4);
        let config = KeyingConfig::default();
        Self {
            base: BaseStationKeying::new(config, ours, &mut seed.derive_secure_rng("base", 0), Instant::ZERO),
            station: StationKeying::new(
                config,
                theirs,
                5,
                &mut seed.derive_secure_rng("station", 0),
                Instant::ZERO,
            ),
            sent_log: Vec::new(),
            events: [Vec::new(), Vec::new()],
        }
    }
    /// Runs until nothing is due any more; `channel` gets each message by its number and may alter it, or lose it by
    /// emptying it. Messages take no time.
    fn run_exchange(&mut self, mut channel: impl FnMut(usize, Code, &mut Vec<u8>)) {
        let mut now = Instant::ZERO;
        loop {
            let mut buf = Vec::new();
            loop {
                let up = self.station.poll_transmit(&mut buf);
                if !up && !self.base.poll_transmit(&mut buf) {
                    break;
                }
                let code = keying_message_code(&buf).expect("a keying message");
                channel(self.sent_log.len(), code, &mut buf);
                self.sent_log.push((now.duration_since(Instant::ZERO).as_millis(), code));
                match (buf.is_empty(), up) {
                    (true, _) => {}
                    (false, true) => self.base.handle_message(now, &buf),
                    (false, false) => self.station.handle_message(now, &buf),
                }
            }
            let millis = now.duration_since(Instant::ZERO).as_millis();
            while let Some(event) = self.base.poll_event() {
                self.events[0].push((millis, event));
            }
            while let Some(event) = self.station.poll_event() {
                self.events[1].push((millis, event));
            }
            let due = [self.base.poll_timeout(), self.station.poll_timeout()];
            let Some(next) = due.into_iter().flatten().min() else { return };
            now = next;
            self.base.handle_timeout(now);
            self.station.handle_timeout(now);
        }
    }
    fn has_same_keys(&self) -> bool {
        match (&self.events[0][..], &self.events[1][..]) {
            ([(_, KeyingEvent::Keyed(a))], [(_, KeyingEvent::Keyed(b))]) => a == b,
            _ => false,
        }
    }
    fn sent_codes(&self) -> Vec<Code> {
        self.sent_log.iter().map(|(_, code)| *code).collect()
    }
}

#[test]
fn five_messages_give_both_the_same_two_keys() {
    use Code::{Pkm2KeyReply, Pkm2KeyRequest, SaTekChallenge, SaTekRequest, SaTekResponse};
    let mut pair = KeyingPair::new([test_key(1), test_key(1)]);
    let mut sizes = Vec::new();
    let mut identifiers = Vec::new();
    pair.run_exchange(|_, _, message| {
        sizes.push(message.len());
        identifiers.push(message[2]);
    });
    assert!(pair.has_same_keys(), "{:?}", pair.events);
    assert_eq!(
        pair.sent_codes(),
        [SaTekChallenge, SaTekRequest, SaTekResponse, Pkm2KeyRequest, Pkm2KeyReply]
    );
    // Header 3, sequence number 3, AKID and random 10 each, digest 14; then what each has of its own.
    assert_eq!(sizes, [40 + 6, 40 + 10 + 7 + 11, 40 + 10 + 14 + 11, 20 + 4 + 10, 20 + 4 + 2 * 37 + 10]);
    let sent = |counters: &KeyingCounters| (counters.sent, counters.octets);
    assert_eq!(sent(pair.base.counters()), (3, (sizes[0] + sizes[2] + sizes[4]) as u64));
    assert_eq!(sent(pair.station.counters()), (2, (sizes[1] + sizes[3]) as u64));
    assert_eq!(identifiers, [0, 6, 6, 7, 7]);
    assert_eq!(pair.station.identifier(), 7);
    let KeyingEvent::Keyed([older, newer]) = &pair.events[1][0].1 else { panic!("no keys") };
    assert_eq!((older.lifetime.as_secs(), newer.lifetime.as_secs()), (6 * 3600, 12 * 3600));
    assert_eq!((older.sequence, newer.sequence), (0, 1));
    assert_ne!(older.key, newer.key);
    // Each digest is made once and checked once; two keys are wrapped and unwrapped.
    let work = |mut poll: Box<dyn FnMut() -> Option<WorkRecord>>| -> Vec<(&str, u32)> {
        core::iter::from_fn(&mut poll).map(|w| (w.label.name(), w.units)).collect()
    };
    let KeyingPair { mut base, mut station, .. } = pair;
    assert_eq!(work(Box::new(move || base.poll_work())), [("pkm.digest", 5), ("pkm.key", 2)]);
    assert_eq!(work(Box::new(move || station.poll_work())), [("pkm.digest", 5), ("pkm.key", 2)]);
}

#[test]
fn each_message_may_be_lost_once() {
    for (lost, delay) in [(0, 1000), (1, 300), (2, 300), (3, 1000), (4, 1000)] {
        let mut pair = KeyingPair::new([test_key(1), test_key(1)]);
        pair.run_exchange(|number, _, message| {
            if number == lost {
                message.clear();
            }
        });
        assert!(pair.has_same_keys(), "message {lost}: {:?}", pair.events);
        assert_eq!(pair.events[1][0].0, delay, "message {lost}");
        assert!(pair.sent_log.len() <= 7);
        let KeyingCounters { replayed, wrong_digest, foreign, .. } = *pair.base.counters();
        assert_eq!((replayed, wrong_digest, foreign), (0, 0, 0), "a repetition has a number of its own");
    }
}

#[test]
fn silence_ends_after_as_many_times_as_set() {
    for (silent, base, station, times) in [
        (Code::SaTekChallenge, Some((4000, Code::SaTekRequest)), (4000, Code::SaTekChallenge), 4),
        (Code::SaTekRequest, Some((4000, Code::SaTekRequest)), (0, Code::SaTekResponse), 0),
        // It cannot tell a station that did not hear it from one that says nothing more: 4 s from its last answer on.
        (Code::SaTekResponse, Some((4900, Code::Pkm2KeyRequest)), (1200, Code::SaTekResponse), 4),
        (Code::Pkm2KeyRequest, Some((4000, Code::Pkm2KeyRequest)), (4000, Code::Pkm2KeyReply), 4),
        (Code::Pkm2KeyReply, Some((0, Code::Pkm2KeyReply)), (4000, Code::Pkm2KeyReply), 4),
    ] {
        let mut pair = KeyingPair::new([test_key(1), test_key(1)]);
        pair.run_exchange(|_, code, message| {
            if code == silent {
                message.clear();
            }
        });
        let said = pair.sent_codes().iter().filter(|code| **code == silent).count();
        assert!(times == 0 || said == times, "{silent}: {:?}", pair.sent_log);
        let ends = pair.events.map(|events| events.into_iter().last());
        match (silent, &ends[0]) {
            // It has sent the keys and cannot know that they did not arrive.
            (Code::Pkm2KeyReply, Some((_, KeyingEvent::Keyed(_)))) => {}
            _ => {
                let fail = |(at, code)| (at, KeyingEvent::Failed(KeyingFailure::Silence(code)));
                assert_eq!(ends[0], base.map(fail), "{silent}");
            }
        }
        let Some((time, KeyingEvent::Failed(KeyingFailure::Silence(waited)))) = ends[1] else {
            panic!("{silent}: {:?}", ends[1])
        };
        assert_eq!(waited, station.1);
        // While the base station goes on asking, the station goes on answering.
        assert!(silent == Code::SaTekRequest || time == station.0, "{silent}: {time}");
    }
}

#[test]
fn a_base_station_awaits_a_key_request_for_all_its_retries() {
    let mut pair = KeyingPair::new([test_key(1), test_key(1)]);
    let mut heard = Vec::new();
    pair.run_exchange(|_, _, message| heard.push(message.clone()));
    let ms = |n| Instant::ZERO + Duration::from_millis(n);
    let base = || {
        BaseStationKeying::new(
            KeyingConfig::default(),
            test_key(1),
            &mut Seed::new(4).derive_secure_rng("base", 0),
            Instant::ZERO,
        )
    };
    // The station is silent after the handshake.
    let mut silent = base();
    silent.handle_message(ms(200), &heard[1]);
    assert_eq!(silent.poll_timeout(), Some(ms(4200)));
    silent.handle_timeout(ms(4199));
    assert_eq!(silent.poll_event(), None);
    silent.handle_timeout(ms(4200));
    assert_eq!(silent.poll_event(), Some(KeyingEvent::Failed(KeyingFailure::Silence(Code::Pkm2KeyRequest))));
    assert_eq!(silent.poll_timeout(), None);
    silent.handle_message(ms(4201), &heard[3]);
    assert_eq!((silent.poll_event(), silent.counters().out_of_place), (None, 1));
    // After the keys, nothing is pending and no further event follows.
    let mut asked = base();
    asked.handle_message(ms(200), &heard[1]);
    asked.handle_message(ms(4100), &heard[3]);
    assert!(matches!(asked.poll_event(), Some(KeyingEvent::Keyed(_))));
    assert_eq!(asked.poll_timeout(), None);
}

#[test]
fn another_key_is_another_language() {
    let mut pair = KeyingPair::new([test_key(1), test_key(2)]);
    pair.run_exchange(|_, _, _| {});
    assert_eq!(pair.sent_codes(), [Code::SaTekChallenge; 4]);
    assert_eq!(pair.station.counters().wrong_digest, 4);
    assert_eq!(pair.events[0], [(4000, KeyingEvent::Failed(KeyingFailure::Silence(Code::SaTekRequest)))]);
    assert_eq!(pair.events[1], [(4000, KeyingEvent::Failed(KeyingFailure::Silence(Code::SaTekChallenge)))]);
}

#[test]
fn a_spoiled_message_is_as_good_as_lost() {
    for spoiled in 0..5 {
        let mut pair = KeyingPair::new([test_key(1), test_key(1)]);
        pair.run_exchange(|number, _, message| {
            if number == spoiled {
                let last = message.len() - 1;
                message[last] ^= 1;
            }
        });
        assert!(pair.has_same_keys(), "message {spoiled}: {:?}", pair.events);
        let dropped = pair.base.counters().wrong_digest + pair.station.counters().wrong_digest;
        assert_eq!(dropped, 1);
    }
}

#[test]
fn what_was_heard_once_is_not_heard_again() {
    let mut pair = KeyingPair::new([test_key(1), test_key(1)]);
    let mut heard = Vec::new();
    pair.run_exchange(|_, _, message| heard.push(message.clone()));
    let seed = Seed::new(4);
    // The same base station again, in the middle of another handshake under the same key.
    let mut base = BaseStationKeying::new(
        KeyingConfig::default(),
        test_key(1),
        &mut seed.derive_secure_rng("base", 0),
        Instant::ZERO,
    );
    base.handle_message(Instant::ZERO, &heard[1]);
    base.handle_message(Instant::ZERO, &heard[1]);
    base.handle_message(Instant::ZERO, &heard[3]);
    base.handle_message(Instant::ZERO, &heard[3]);
    let KeyingCounters { heard: sound, replayed, .. } = *base.counters();
    assert_eq!((sound, replayed), (2, 2));
    // With other random numbers the old request is foreign.
    let mut other = BaseStationKeying::new(
        KeyingConfig::default(),
        test_key(1),
        &mut seed.derive_secure_rng("base", 1),
        Instant::ZERO,
    );
    other.handle_message(Instant::ZERO, &heard[1]);
    other.handle_message(Instant::ZERO, &heard[3]);
    let KeyingCounters { foreign, out_of_place, .. } = *other.counters();
    assert_eq!((foreign, out_of_place), (1, 1));
    // Its own messages, reflected, are not a station's.
    other.handle_message(Instant::ZERO, &heard[0]);
    assert_eq!(other.counters().out_of_place, 2);
}

#[test]
fn an_association_that_is_not_the_stations_is_refused() {
    let mut pair = KeyingPair::new([test_key(1), test_key(1)]);
    pair.run_exchange(|_, code, message| {
        if code == Code::Pkm2KeyRequest {
            *message = reencode_message(message, 9, |(kind, value)| {
                if *kind == AttributeType::SAID {
                    *value = vec![0, 2];
                }
            });
        }
    });
    // The reject names the association that was asked for, which this station did not: it asks until it gives up.
    assert_eq!(pair.sent_codes()[3..6], [Code::Pkm2KeyRequest, Code::Pkm2KeyReject, Code::Pkm2KeyRequest]);
    assert_eq!((pair.base.counters().heard, pair.station.counters().foreign), (2, 1));
    let mut pair = KeyingPair::new([test_key(1), test_key(1)]);
    pair.run_exchange(|_, code, message| {
        if code == Code::Pkm2KeyReply {
            let reply = PkmMessage::parse(message).unwrap();
            let refusal = OwnedPkmMessage::new(Direction::Response, Code::Pkm2KeyReject, reply.identifier())
                .with_attribute(AttributeType::KEY_SEQUENCE_NUMBER, &[0])
                .with_attribute(AttributeType::SAID, &PRIMARY.to_be_bytes())
                .with_attribute(AttributeType::ERROR_CODE, &[2])
                .with_attribute(AttributeType::NONCE, reply.get(AttributeType::NONCE).unwrap());
            message.clear();
            protect::seal_message(&refusal, &test_key(1), 9, message);
        }
    });
    assert_eq!(pair.events[1], [(0, KeyingEvent::Failed(KeyingFailure::Rejected(2)))]);
}

#[test]
fn a_key_under_another_is_not_taken() {
    let mut pair = KeyingPair::new([test_key(1), test_key(1)]);
    pair.run_exchange(|number, code, message| {
        if code == Code::Pkm2KeyReply && number < 5 {
            *message = reencode_message(message, 3, |(kind, value)| {
                if *kind == AttributeType::TEK_PARAMETERS {
                    value[5] ^= 1;
                }
            });
        }
    });
    assert_eq!(pair.station.counters().unusable, 1);
    assert!(pair.has_same_keys(), "the second reply is whole");
    assert_eq!(pair.events[1][0].0, 1000);
}

/// A message once more, as whoever said it would say it: with another packet number, and a digest of it.
fn reencode_message(bytes: &[u8], number: u32, change: impl Fn(&mut (AttributeType, Vec<u8>))) -> Vec<u8> {
    let mut message = OwnedPkmMessage::from(PkmMessage::parse(bytes).unwrap());
    message.attributes.retain(|(kind, _)| *kind != AttributeType::CMAC_DIGEST);
    message.attributes.iter_mut().for_each(change);
    let mut sealed = Vec::new();
    protect::seal_message(&message, &test_key(1), number, &mut sealed);
    sealed
}

#[test]
fn who_has_keys_may_ask_again_and_for_no_others() {
    let mut pair = KeyingPair::new([test_key(1), test_key(1)]);
    let mut heard = Vec::new();
    pair.run_exchange(|_, _, message| heard.push(message.clone()));
    let mut answers = |message: Vec<u8>| {
        pair.base.handle_message(Instant::ZERO, &message);
        let mut answer = Vec::new();
        assert!(pair.base.poll_transmit(&mut answer));
        (keying_message_code(&answer), pair.base.poll_event(), pair.base.poll_timeout())
    };
    let foreign = |(kind, value): &mut (AttributeType, Vec<u8>)| {
        if *kind == AttributeType::SAID {
            *value = vec![0, 2];
        }
    };
    assert_eq!(answers(reencode_message(&heard[1], 7, |_| ())), (Some(Code::SaTekResponse), None, None));
    assert_eq!(answers(reencode_message(&heard[3], 8, foreign)), (Some(Code::Pkm2KeyReject), None, None));
    assert_eq!(answers(reencode_message(&heard[3], 9, |_| ())), (Some(Code::Pkm2KeyReply), None, None));
}

#[test]
fn another_challenge_gets_another_request() {
    let (seed, second) = (Seed::new(4), Instant::ZERO + Duration::from_secs(1));
    let base = |index| {
        BaseStationKeying::new(
            KeyingConfig::default(),
            test_key(1),
            &mut seed.derive_secure_rng("base", index),
            Instant::ZERO,
        )
    };
    let (mut one, mut other) = (base(0), base(1));
    let mut station = StationKeying::new(
        KeyingConfig::default(),
        test_key(1),
        5,
        &mut seed.derive_secure_rng("station", 0),
        Instant::ZERO,
    );
    let mut said = Vec::new();
    other.handle_timeout(second);
    for base in [&mut one, &mut other] {
        let mut message = Vec::new();
        while base.poll_transmit(&mut message) {}
        station.handle_message(second, &message);
        let challenge = PkmMessage::parse(&message).unwrap().get(AttributeType::BS_RANDOM).unwrap().to_vec();
        assert!(station.poll_transmit(&mut message));
        let request = PkmMessage::parse(&message).unwrap();
        assert_eq!(request.get(AttributeType::BS_RANDOM), Some(&challenge[..]));
        said.push(request.identifier());
    }
    assert_eq!((said, station.counters().resent), (vec![6, 7], 0));
}

#[test]
fn every_row_is_taken() {
    use super::base::BaseTable;
    use super::station::StationTable;
    let scenarios = || {
        each_message_may_be_lost_once();
        silence_ends_after_as_many_times_as_set();
        a_base_station_awaits_a_key_request_for_all_its_retries();
        what_was_heard_once_is_not_heard_again();
        an_association_that_is_not_the_stations_is_refused();
        a_key_under_another_is_not_taken();
        another_challenge_gets_another_request();
        who_has_keys_may_ask_again_and_for_no_others();
    };
    BaseTable::cover(|| StationTable::cover(scenarios));
}

#[test]
fn only_keying_messages_are_announced() {
    assert_eq!(keying_message_code(&[10, 20]), Some(Code::SaTekChallenge));
    assert_eq!(keying_message_code(&[9, 20]), None);
    assert_eq!(keying_message_code(&[9, 18, 1, 28, 1, 1]), None);
    assert_eq!(keying_message_code(&[9]), None);
    for (direction, octet) in [(9, 21), (10, 22), (9, 23), (10, 24), (10, 25)] {
        assert_eq!(keying_message_code(&[direction, octet]).map(Code::octet), Some(octet));
    }
}

proptest! {
    #[test]
    fn no_channel_makes_keys_differ(bytes: Vec<u8>) {
        prop_assert!(fuzz::fuzz_keying(&bytes));
    }
}
