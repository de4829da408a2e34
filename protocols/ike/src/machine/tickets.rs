//! Tickets (RFC 5723 §6): what a responder needs to take up an IKE_SA again, sealed with a key that is its own, and what an
//! initiator keeps beside them.

use super::Config;
use crate::code::{IdType, PayloadType};
use crate::header::Spi;
use crate::payload::{Identification, Payload, Proposal, emit_chain, parse_chain};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, Reader, SecureRng, WallTime, Writer};
use usher_crypto::Key;
use usher_crypto::cipher::{Cipher, CipherAlgorithm};

/// A key is used for so many lifetimes of a ticket, and holds for as many more: for longer than any ticket (§6.2).
const KEY_LIFETIMES: u64 = 4;
/// Tickets that must not come again, at most; with more of them all tickets are given up, by new keys.
const SPENT: usize = 1 << 16;
/// Octets of a key of AES-256-GCM, with its salt.
const KEY: usize = 36;
/// Octets before the ciphertext: the number of the key, and the initialization vector.
const HEAD: usize = 12;
const TAG: usize = 16;
/// Connections of an initiator that have a ticket, at most.
const OWN: usize = 1 << 14;

/// The name of a ticket.
pub(super) type TicketId = [u8; 16];

/// What an IKE_SA is taken up again with (§5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State {
    pub(super) id: TicketId,
    /// The name of its connection.
    pub(super) connection: String,
    pub(super) suite: Proposal,
    pub(super) sk_d: Key,
    /// IDi and IDr.
    pub(super) identities: (Identification, Identification),
    /// SPIr of the IKE_SA that the ticket was given on, by which it is found where it is still there.
    pub(super) spi: Spi,
}

/// A ticket as an initiator keeps it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) octets: Vec<u8>,
    pub(super) suite: Proposal,
    pub(super) sk_d: Key,
    pub(super) identities: (Identification, Identification),
    until: Instant,
}

struct Sealing {
    number: u32,
    cipher: Box<dyn Cipher>,
    sealed: u64,
}

/// Tickets of both roles.
#[derive(Default)]
pub(super) struct Tickets {
    /// The newest first.
    keys: Vec<Sealing>,
    renew_at: Option<Instant>,
    /// Those that were used, or whose IKE_SA has been ended, until they expire.
    spent: BTreeSet<TicketId>,
    spent_until: BTreeSet<(u64, TicketId)>,
    own: BTreeMap<String, Held>,
}

impl core::fmt::Debug for Tickets {
    /// Without what seals them.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tickets").field("own", &self.own.len()).field("spent", &self.spent.len()).finish()
    }
}

fn put(writer: &mut Writer<'_>, octets: &[u8]) {
    writer.u16(octets.len() as u16).bytes(octets);
}
fn take<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = reader.u16().ok()?;
    reader.bytes(usize::from(length)).ok()
}
fn put_identity(writer: &mut Writer<'_>, id: &Identification) {
    writer.u8(id.kind.0);
    put(writer, &id.data);
}
fn take_identity(reader: &mut Reader<'_>) -> Option<Identification> {
    Some(Identification { kind: IdType(reader.u8().ok()?), data: take(reader)?.to_vec() })
}

impl State {
    fn emit(&self, expires: u64) -> Key {
        let mut octets = Key::new(Vec::with_capacity(512));
        let mut writer = Writer::new(&mut octets);
        writer.bytes(&self.id).u64(expires).bytes(&self.spi.0);
        put(&mut writer, self.connection.as_bytes());
        put(&mut writer, &self.sk_d);
        put_identity(&mut writer, &self.identities.0);
        put_identity(&mut writer, &self.identities.1);
        emit_chain(&[Payload::SecurityAssociation([self.suite.clone()].into())], &mut writer);
        octets
    }

    /// With the second since 1970 in which it expires.
    fn parse(octets: &[u8]) -> Option<(Self, u64)> {
        let mut reader = Reader::new(octets);
        let (id, expires, spi) = (reader.array().ok()?, reader.u64().ok()?, Spi(reader.array().ok()?));
        let connection = core::str::from_utf8(take(&mut reader)?).ok()?.into();
        let sk_d = Key::from(take(&mut reader)?);
        let identities = (take_identity(&mut reader)?, take_identity(&mut reader)?);
        let mut payloads = parse_chain(PayloadType::SA, reader.take_rest()).ok()?.into_iter();
        let Some(Payload::SecurityAssociation(suites)) = payloads.next() else { return None };
        let suite = suites.into_iter().next()?;
        Some((Self { id, connection, suite, sk_d, identities, spi }, expires))
    }
}

impl Tickets {
    fn renew(&mut self, now: Instant, lifetime: Duration, rng: &mut SecureRng) {
        if self.renew_at.is_some_and(|at| at > now) {
            return;
        }
        if self.renew_at.is_some_and(|at| at + lifetime * KEY_LIFETIMES <= now) {
            self.keys.clear();
        }
        self.change(now, lifetime, rng);
    }

    /// Has a new key; the one before still opens.
    fn change(&mut self, now: Instant, lifetime: Duration, rng: &mut SecureRng) {
        let mut key = Key::new([0; KEY]);
        rng.fill(&mut key[..]);
        // AES-256-GCM takes such a key.
        let Some(cipher) = CipherAlgorithm::AesGcm.with_key(&key[..]) else { return };
        let number = loop {
            let number = rng.next_u32();
            if self.keys.iter().all(|key| key.number != number) {
                break number;
            }
        };
        self.keys.insert(0, Sealing { number, cipher, sealed: 0 });
        self.keys.truncate(2);
        self.renew_at = Some(now + lifetime * KEY_LIFETIMES);
    }

    /// A ticket that holds for so long.
    pub(super) fn seal(
        &mut self,
        (now, wall): (Instant, WallTime),
        lifetime: Duration,
        rng: &mut SecureRng,
        state: &State,
    ) -> Option<Vec<u8>> {
        self.renew(now, lifetime, rng);
        let key = self.keys.first_mut()?;
        key.sealed += 1;
        let plain = state.emit((wall + lifetime).unix_secs());
        let mut octets = Vec::with_capacity(HEAD + plain.len() + TAG);
        Writer::new(&mut octets).u32(key.number).u64(key.sealed).bytes(&plain).zeros(TAG);
        let (head, body) = octets.split_at_mut(HEAD);
        let (number, iv) = head.split_at(4);
        let (data, tag) = body.split_at_mut(plain.len());
        key.cipher.seal(iv, number, data, tag).ok()?;
        Some(octets)
    }

    /// What a ticket holds; `None`: it is not ours, has expired, or must not come again.
    pub(super) fn open(&self, wall: WallTime, octets: &[u8]) -> Option<State> {
        let (head, body) = octets.split_at_checked(HEAD)?;
        let (number, iv) = head.split_at(4);
        let key = self.keys.iter().find(|key| key.number.to_be_bytes() == number)?;
        let (data, tag) = body.split_at_checked(body.len().checked_sub(TAG)?)?;
        let mut plain = Key::from(data);
        key.cipher.open(iv, number, &mut plain, tag).ok()?;
        let (state, expires) = State::parse(&plain)?;
        (wall.unix_secs() < expires && !self.spent.contains(&state.id)).then_some(state)
    }

    /// No ticket that was given holds any more.
    pub(super) fn void(&mut self) {
        self.keys.clear();
        self.spent.clear();
        self.spent_until.clear();
        self.renew_at = None;
    }

    /// A ticket must not come again: it was used, or its IKE_SA was ended.
    pub(super) fn spend(
        &mut self,
        (now, wall): (Instant, WallTime),
        config: &Config,
        rng: &mut SecureRng,
        id: TicketId,
    ) {
        let Some(lifetime) = config.tickets else { return };
        let second = wall.unix_secs();
        while let Some(first) = self.spent_until.first().copied().filter(|(until, _)| *until < second) {
            self.spent_until.remove(&first);
            self.spent.remove(&first.1);
        }
        if self.spent.len() >= SPENT {
            // Nothing is forgotten that could be used once more.
            self.void();
            self.change(now, lifetime, rng);
        }
        self.spent.insert(id);
        self.spent_until.insert(((wall + lifetime).unix_secs() + 1, id));
    }

    /// Keeps what a responder gave for a connection.
    pub(super) fn keep(&mut self, connection: &str, now: Instant, lifetime: Duration, held: Held) {
        if self.own.len() >= OWN {
            self.own.retain(|_, held| held.until > now);
        }
        if self.own.len() < OWN || self.own.contains_key(connection) {
            self.own.insert(connection.into(), Held { until: now + lifetime, ..held });
        }
    }

    /// The ticket of a connection, which is used once (§4.3.1).
    pub(super) fn take(&mut self, connection: &str, now: Instant) -> Option<Held> {
        self.own.remove(connection).filter(|held| held.until > now)
    }

    /// The IKE_SA of a connection has been ended, and its ticket with it (§6.2).
    pub(super) fn forget(&mut self, connection: &str) {
        self.own.remove(connection);
    }
}

impl Held {
    pub(super) fn new(
        octets: Vec<u8>,
        suite: Proposal,
        sk_d: Key,
        identities: (Identification, Identification),
    ) -> Self {
        Self { octets, suite, sk_d, identities, until: Instant::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(id: u8) -> State {
        State {
            id: [id; 16],
            connection: "users".into(),
            suite: Proposal::ike("aes128-sha256-x25519").unwrap(),
            sk_d: Key::from(&[7; 32][..]),
            identities: (Identification::fqdn("ini.test"), Identification::fqdn("gw.test")),
            spi: Spi([3; 8]),
        }
    }
    fn at(secs: u64) -> (Instant, WallTime) {
        (Instant::ZERO + Duration::from_secs(secs), WallTime::from_unix_secs(1_000_000 + secs))
    }
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_ticket_is_opened_while_it_holds_and_by_whoever_sealed_it() {
        let (mut tickets, mut rng) = (Tickets::default(), SecureRng::from_seed([1; 32]));
        let sealed = tickets.seal(at(0), HOUR, &mut rng, &state(1)).unwrap();
        assert_eq!(tickets.open(at(3599).1, &sealed), Some(state(1)));
        assert_eq!(tickets.open(at(3600).1, &sealed), None, "its time is over");
        for at_octet in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at_octet] ^= 1;
            assert_eq!(tickets.open(at(1).1, &altered), None, "octet {at_octet}");
            assert_eq!(tickets.open(at(1).1, &sealed[..at_octet]), None);
        }
        let octets = String::from_utf8_lossy(&sealed).into_owned();
        assert!(!octets.contains("ini.test") && !sealed.windows(8).any(|part| part == [7; 8]));
        assert_eq!(Tickets::default().open(at(1).1, &sealed), None, "another start has other keys");
    }

    #[test]
    fn keys_change_and_hold_for_longer_than_tickets() {
        let (mut tickets, mut rng) = (Tickets::default(), SecureRng::from_seed([1; 32]));
        let first = tickets.seal(at(0), HOUR, &mut rng, &state(1)).unwrap();
        let last = tickets.seal(at(4 * 3600 - 1), HOUR, &mut rng, &state(2)).unwrap();
        let next = tickets.seal(at(4 * 3600), HOUR, &mut rng, &state(3)).unwrap();
        assert_eq!(first[..4], last[..4]);
        assert_ne!(last[..4], next[..4]);
        assert_eq!(tickets.open(at(5 * 3600 - 2).1, &last), Some(state(2)));
        assert_eq!(tickets.open(at(5 * 3600 - 2).1, &next), Some(state(3)));
        tickets.seal(at(20 * 3600), HOUR, &mut rng, &state(4)).unwrap();
        assert_eq!(tickets.keys.len(), 1, "nothing that is sealed by the others holds any more");
    }

    #[test]
    fn a_ticket_that_was_used_is_none_and_is_forgotten_when_it_would_have_expired() {
        let (mut tickets, mut rng) = (Tickets::default(), SecureRng::from_seed([1; 32]));
        let config = Config { tickets: Some(HOUR), ..Config::default() };
        let sealed = tickets.seal(at(0), HOUR, &mut rng, &state(1)).unwrap();
        tickets.spend(at(5), &config, &mut rng, [1; 16]);
        assert_eq!(tickets.open(at(6).1, &sealed), None);
        tickets.spend(at(3700), &config, &mut rng, [2; 16]);
        assert_eq!((tickets.spent.len(), tickets.spent_until.len()), (1, 1));
        let sealed = tickets.seal(at(3700), HOUR, &mut rng, &state(3)).unwrap();
        for n in 0..=SPENT as u32 {
            let mut id = [9; 16];
            id[..4].copy_from_slice(&n.to_be_bytes());
            tickets.spend(at(3701), &config, &mut rng, id);
        }
        assert!(tickets.spent.len() <= SPENT, "it is bounded");
        assert_eq!(tickets.open(at(3702).1, &sealed), None, "by giving up all tickets");
    }
}
