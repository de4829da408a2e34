//! Resumption tickets (RFC 5723 §6). A responder seals the state of an IKE_SA with a key of its own. An initiator
//! keeps the ticket with its own state.

use super::config::IkeEndpointConfig;
use super::event::CertificateName;
use super::spent_tickets::{SpentTicketTable, TicketId, TicketOwner};
use crate::code::{IdType, PayloadType};
use crate::header::Spi;
use crate::payload::{Identification, Payload, Proposal, emit_chain, parse_chain};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, OctetReader, OctetWriter, SecureRng, WallTime};
use usher_crypto::SecretValue;
use usher_crypto::cipher::{CipherAlgorithm, KeyedCipher};
use usher_crypto::hmac::hmac_sha256;

/// Number of ticket lifetimes for which a key seals. It opens for as many more: longer than any ticket lives (§6.2).
const KEY_LIFETIMES: u64 = 4;
/// Octets of an AES-256-GCM key, with its salt.
const KEY: usize = 36;
/// Octets before the ciphertext: the key's number and the initialization vector.
const HEAD: usize = 12;
const TAG: usize = 16;
/// Most connections of an initiator that have a ticket.
const OWN: usize = 1 << 14;

/// Returns the owner of the tickets of a connection and an identity. `None` means all holders of the connection's
/// group key, whose claimed identity proves nothing.
pub(super) fn ticket_owner(connection: &str, identity: Option<&Identification>) -> TicketOwner {
    let (kind, data) = identity.map_or((0, Cow::Borrowed(&[][..])), |id| (id.kind.0, id.comparison_octets()));
    let whole = hmac_sha256(connection.as_bytes(), &[&[u8::from(identity.is_some()), kind], &data]);
    core::array::from_fn(|n| whole[n])
}

/// The state from which an IKE_SA resumes (§5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ResumptionTicketState {
    pub(super) id: TicketId,
    /// The name of its connection.
    pub(super) connection: String,
    pub(super) suite: Proposal,
    pub(super) sk_d: SecretValue,
    /// IDi and IDr.
    pub(super) identities: (Identification, Identification),
    /// SPIr of the ticket's IKE_SA, to find it if it still exists.
    pub(super) spi: Spi,
    /// The end of validity of the certificates by which both sides authenticated, in this IKE_SA or a predecessor.
    /// `None` without certificates.
    pub(super) proof_until: Option<WallTime>,
    /// The client's certificates.
    pub(super) certificates: Arc<[CertificateName]>,
}

/// A ticket at an initiator.
#[derive(Clone, Debug)]
pub(super) struct StoredTicket {
    pub(super) octets: Vec<u8>,
    pub(super) suite: Proposal,
    pub(super) sk_d: SecretValue,
    pub(super) identities: (Identification, Identification),
    /// The end of validity of the responder's proof, and its certificates, if any.
    pub(super) proof_until: Option<WallTime>,
    pub(super) certificates: Arc<[CertificateName]>,
    until: Instant,
}

struct TicketSealingKey {
    number: u32,
    cipher: Box<dyn KeyedCipher>,
    sealed: u64,
}

/// The tickets of both roles.
#[derive(Default)]
pub(super) struct TicketTable {
    /// The newest first.
    keys: Vec<TicketSealingKey>,
    renew_at: Option<Instant>,
    /// Used tickets, and tickets of deleted IKE_SAs, until they expire.
    spent: SpentTicketTable,
    /// Number of issued tickets.
    issued_count: u64,
    /// Number of times that all issued tickets became void.
    era: u64,
    own: BTreeMap<String, StoredTicket>,
}

impl core::fmt::Debug for TicketTable {
    /// Omits the keys.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tickets").field("own", &self.own.len()).field("spent", &self.spent.len()).finish()
    }
}

fn write_length_prefixed_octets(writer: &mut OctetWriter<'_>, octets: &[u8]) {
    writer.write_u16(octets.len() as u16).write_bytes(octets);
}
fn take_octets<'a>(reader: &mut OctetReader<'a>) -> Option<&'a [u8]> {
    let length = reader.read_u16().ok()?;
    reader.read_bytes(usize::from(length)).ok()
}
fn put_identity(writer: &mut OctetWriter<'_>, id: &Identification) {
    writer.write_u8(id.kind.0);
    write_length_prefixed_octets(writer, &id.data);
}
fn take_identity(reader: &mut OctetReader<'_>) -> Option<Identification> {
    Some(Identification { kind: IdType(reader.read_u8().ok()?), data: take_octets(reader)?.to_vec() })
}

impl ResumptionTicketState {
    fn emit(&self, expires: u64) -> SecretValue {
        let mut octets = SecretValue::new(Vec::with_capacity(512));
        let mut writer = OctetWriter::new(&mut octets);
        let proof_until = self.proof_until.map_or(u64::MAX, WallTime::unix_secs);
        writer
            .write_bytes(&self.id.owner)
            .write_u64(self.id.number)
            .write_u64(expires)
            .write_u64(proof_until)
            .write_bytes(&self.spi.0);
        write_length_prefixed_octets(&mut writer, self.connection.as_bytes());
        write_length_prefixed_octets(&mut writer, &self.sk_d);
        put_identity(&mut writer, &self.identities.0);
        put_identity(&mut writer, &self.identities.1);
        write_length_prefixed_octets(&mut writer, self.certificates.as_flattened());
        emit_chain(&[Payload::SecurityAssociation([self.suite.clone()].into())], &mut writer);
        octets
    }

    /// Returns it with its expiry, in seconds since 1970.
    fn parse(octets: &[u8]) -> Option<(Self, u64)> {
        let mut reader = OctetReader::new(octets);
        let id = TicketId { owner: reader.read_array().ok()?, number: reader.read_u64().ok()? };
        let expires = reader.read_u64().ok()?;
        let proof_until = Some(reader.read_u64().ok()?).filter(|secs| *secs != u64::MAX);
        let proof_until = proof_until.map(WallTime::from_unix_secs);
        let spi = Spi(reader.read_array().ok()?);
        let connection = core::str::from_utf8(take_octets(&mut reader)?).ok()?.into();
        let sk_d = SecretValue::from(take_octets(&mut reader)?);
        let identities = (take_identity(&mut reader)?, take_identity(&mut reader)?);
        let certificates: Arc<[CertificateName]> = take_octets(&mut reader)?.as_chunks::<16>().0.into();
        let mut payloads = parse_chain(PayloadType::SA, reader.take_rest()).ok()?.into_iter();
        let Some(Payload::SecurityAssociation(suites)) = payloads.next() else { return None };
        let suite = suites.into_iter().next()?;
        Some((Self { id, connection, suite, sk_d, identities, spi, proof_until, certificates }, expires))
    }
}

impl TicketTable {
    fn renew_ticket_key_if_due(&mut self, now: Instant, lifetime: Duration, rng: &mut SecureRng) {
        if self.renew_at.is_some_and(|at| at > now) {
            return;
        }
        if self.renew_at.is_some_and(|at| at + lifetime * KEY_LIFETIMES <= now) {
            self.keys.clear();
        }
        self.rotate_ticket_key(now, lifetime, rng);
    }

    /// Rotates the key. The previous one still opens tickets.
    fn rotate_ticket_key(&mut self, now: Instant, lifetime: Duration, rng: &mut SecureRng) {
        let mut key = SecretValue::new([0; KEY]);
        rng.fill_bytes(&mut key[..]);
        // AES-256-GCM accepts a key of this length.
        let Some(cipher) = CipherAlgorithm::AesGcm.with_key(&key[..]) else { return };
        let number = loop {
            let number = rng.next_u32();
            if self.keys.iter().all(|key| key.number != number) {
                break number;
            }
        };
        self.keys.insert(0, TicketSealingKey { number, cipher, sealed: 0 });
        self.keys.truncate(2);
        self.renew_at = Some(now + lifetime * KEY_LIFETIMES);
    }

    /// Returns the id of a new ticket.
    pub(super) const fn next_ticket_id(&mut self, owner: TicketOwner) -> TicketId {
        self.issued_count += 1;
        TicketId { owner, number: self.issued_count }
    }

    /// Seals a ticket with this lifetime, or until its proofs expire. Returns it with its lifetime in seconds; `None`
    /// if the proofs have expired.
    pub(super) fn seal_ticket(
        &mut self,
        (now, wall): (Instant, WallTime),
        lifetime: Duration,
        rng: &mut SecureRng,
        state: &ResumptionTicketState,
    ) -> Option<(Vec<u8>, u64)> {
        let expires = (wall + lifetime).min(state.proof_until.unwrap_or(wall + lifetime)).unix_secs();
        let seconds = expires.checked_sub(wall.unix_secs()).filter(|seconds| *seconds > 0)?;
        self.renew_ticket_key_if_due(now, lifetime, rng);
        let key = self.keys.first_mut()?;
        key.sealed += 1;
        let plain = state.emit(expires);
        let mut octets = Vec::with_capacity(HEAD + plain.len() + TAG);
        OctetWriter::new(&mut octets)
            .write_u32(key.number)
            .write_u64(key.sealed)
            .write_bytes(&plain)
            .write_zeros(TAG);
        let (head, body) = octets.split_at_mut(HEAD);
        let (number, iv) = head.split_at(4);
        let (data, tag) = body.split_at_mut(plain.len());
        // RFC 5723, 6.1: a ticket is encrypted and authenticated.
        key.cipher.seal(iv, number, data, tag).ok()?;
        Some((octets, seconds))
    }

    /// Opens a ticket and returns its expiry, in seconds since 1970. `None` if it is foreign, expired or spent.
    pub(super) fn open_ticket(&self, wall: WallTime, octets: &[u8]) -> Option<(ResumptionTicketState, u64)> {
        let (head, body) = octets.split_at_checked(HEAD)?;
        let (number, iv) = head.split_at(4);
        let key = self.keys.iter().find(|key| key.number.to_be_bytes() == number)?;
        let (data, tag) = body.split_at_checked(body.len().checked_sub(TAG)?)?;
        let mut plain = SecretValue::from(data);
        key.cipher.open(iv, number, &mut plain, tag).ok()?;
        let (state, expires) = ResumptionTicketState::parse(&plain)?;
        self.is_valid(wall, (state.id, expires)).then_some((state, expires))
    }
    /// True if an opened ticket of this era may still be used.
    fn is_valid(&self, wall: WallTime, (id, expires): (TicketId, u64)) -> bool {
        wall.unix_secs() < expires && !self.spent.is_ticket_spent(id)
    }
    /// Spends an opened ticket (RFC 5723 §4.3.1). False if it has expired, is void, or was used meanwhile.
    pub(super) fn redeem(
        &mut self,
        wall: WallTime,
        config: &IkeEndpointConfig,
        (era, id, expires): (u64, TicketId, u64),
    ) -> bool {
        let holds = era == self.era && self.is_valid(wall, (id, expires));
        if holds {
            self.mark_spent(wall, config, id);
        }
        holds
    }
    /// The era of tickets. An authentication from before this era gets no ticket, and a resumption from before it
    /// stops.
    pub(super) const fn era(&self) -> u64 {
        self.era
    }

    /// Voids all tickets, issued and received: their state may no longer hold.
    pub(super) fn void_all_tickets(&mut self) {
        self.own.clear();
        self.era += 1;
        self.keys.clear();
        self.spent = SpentTicketTable::default();
        self.renew_at = None;
    }

    /// Marks a ticket as spent: it was used, or its IKE_SA was deleted.
    pub(super) fn mark_spent(&mut self, wall: WallTime, config: &IkeEndpointConfig, id: TicketId) {
        let Some(lifetime) = config.tickets else { return };
        self.spent.mark_ticket_spent(wall.unix_secs(), id, (wall + lifetime).unix_secs() + 1);
    }

    /// Stores a responder's ticket for a connection.
    pub(super) fn store_ticket(
        &mut self,
        connection: &str,
        now: Instant,
        lifetime: Duration,
        held: StoredTicket,
    ) {
        if self.own.len() >= OWN {
            self.own.retain(|_, held| held.until > now);
        }
        if self.own.len() < OWN || self.own.contains_key(connection) {
            self.own.insert(connection.into(), StoredTicket { until: now + lifetime, ..held });
        }
    }

    /// Takes the ticket of a connection, for one use (§4.3.1).
    pub(super) fn take_ticket(&mut self, connection: &str, now: Instant) -> Option<StoredTicket> {
        self.own.remove(connection).filter(|held| held.until > now)
    }

    /// Removes the ticket of a connection whose IKE_SA was deleted (§6.2).
    pub(super) fn remove_ticket(&mut self, connection: &str) {
        self.own.remove(connection);
    }
}

impl StoredTicket {
    pub(super) fn new(
        octets: Vec<u8>,
        suite: Proposal,
        sk_d: SecretValue,
        identities: (Identification, Identification),
        (proof_until, certificates): (Option<WallTime>, Arc<[CertificateName]>),
    ) -> Self {
        Self { octets, suite, sk_d, identities, proof_until, certificates, until: Instant::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::super::spent_tickets;
    use super::*;

    fn numbered_ticket_id(number: u8) -> TicketId {
        TicketId { owner: [1; 16], number: number.into() }
    }
    fn ticket_state(id: u8) -> ResumptionTicketState {
        ResumptionTicketState {
            id: numbered_ticket_id(id),
            connection: "users".into(),
            suite: Proposal::parse_ike_proposal("aes128-sha256-x25519").unwrap(),
            sk_d: SecretValue::from(&[7; 32][..]),
            identities: (Identification::from_fqdn("ini.test"), Identification::from_fqdn("gw.test")),
            spi: Spi([3; 8]),
            proof_until: None,
            certificates: Arc::new([[8; 16], [9; 16]]),
        }
    }
    fn test_times_at(secs: u64) -> (Instant, WallTime) {
        (Instant::ZERO + Duration::from_secs(secs), WallTime::from_unix_secs(1_000_000 + secs))
    }
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_ticket_is_opened_while_it_holds_and_by_whoever_sealed_it() {
        let (mut tickets, mut rng) = (TicketTable::default(), SecureRng::from_seed([1; 32]));
        let sealed = tickets.seal_ticket(test_times_at(0), HOUR, &mut rng, &ticket_state(1)).unwrap().0;
        assert_eq!(tickets.open_ticket(test_times_at(3599).1, &sealed), Some((ticket_state(1), 1_003_600)));
        assert_eq!(tickets.open_ticket(test_times_at(3600).1, &sealed), None, "its time is over");
        for at_octet in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at_octet] ^= 1;
            assert_eq!(tickets.open_ticket(test_times_at(1).1, &altered), None, "octet {at_octet}");
            assert_eq!(tickets.open_ticket(test_times_at(1).1, &sealed[..at_octet]), None);
        }
        let octets = String::from_utf8_lossy(&sealed).into_owned();
        assert!(!octets.contains("ini.test") && !sealed.windows(8).any(|part| part == [7; 8]));
        assert_eq!(
            TicketTable::default().open_ticket(test_times_at(1).1, &sealed),
            None,
            "another start has other keys"
        );
    }

    #[test]
    fn a_ticket_ends_with_the_certificates_that_it_stands_for() {
        let (mut tickets, mut rng) = (TicketTable::default(), SecureRng::from_seed([1; 32]));
        let ends =
            |secs| ResumptionTicketState { proof_until: Some(test_times_at(secs).1), ..ticket_state(1) };
        let (sealed, seconds) = tickets.seal_ticket(test_times_at(0), HOUR, &mut rng, &ends(100)).unwrap();
        assert_eq!(seconds, 100);
        assert_eq!(tickets.open_ticket(test_times_at(99).1, &sealed), Some((ends(100), 1_000_100)));
        assert_eq!(tickets.open_ticket(test_times_at(100).1, &sealed), None);
        assert_eq!(
            tickets.seal_ticket(test_times_at(0), HOUR, &mut rng, &ends(4000)).unwrap().1,
            3600,
            "nor is it longer for it"
        );
        assert!(tickets.seal_ticket(test_times_at(100), HOUR, &mut rng, &ends(100)).is_none());
    }

    #[test]
    fn a_ticket_is_redeemed_once_and_in_its_era() {
        let mut tickets = TicketTable::default();
        let config = IkeEndpointConfig { tickets: Some(HOUR), ..IkeEndpointConfig::default() };
        let expires = test_times_at(3600).1.unix_secs();
        let redeem = |tickets: &mut TicketTable, time, era, id| {
            tickets.redeem(test_times_at(time).1, &config, (era, numbered_ticket_id(id), expires))
        };
        assert!(redeem(&mut tickets, 1, 0, 1) && !redeem(&mut tickets, 2, 0, 1));
        assert!(!redeem(&mut tickets, 3600, 0, 2), "it has expired since it was opened");
        tickets.void_all_tickets();
        assert!(!redeem(&mut tickets, 3, 0, 3), "all are void");
        assert_eq!(tickets.era(), 1);
        assert!(redeem(&mut tickets, 3, 1, 4));
    }

    #[test]
    fn keys_change_and_hold_for_longer_than_tickets() {
        let (mut tickets, mut rng) = (TicketTable::default(), SecureRng::from_seed([1; 32]));
        let mut seal =
            |time, id| tickets.seal_ticket(test_times_at(time), HOUR, &mut rng, &ticket_state(id)).unwrap().0;
        let (first, last, next) = (seal(0, 1), seal(4 * 3600 - 1, 2), seal(4 * 3600, 3));
        assert_eq!(first[..4], last[..4]);
        assert_ne!(last[..4], next[..4]);
        let opened =
            |sealed| tickets.open_ticket(test_times_at(5 * 3600 - 2).1, sealed).map(|(state, _)| state);
        assert_eq!((opened(&last), opened(&next)), (Some(ticket_state(2)), Some(ticket_state(3))));
        tickets.seal_ticket(test_times_at(20 * 3600), HOUR, &mut rng, &ticket_state(4)).unwrap();
        assert_eq!(tickets.keys.len(), 1, "nothing that is sealed by the others holds any more");
    }

    #[test]
    fn a_spent_ticket_is_refused_and_forgotten_at_its_expiry() {
        let (mut tickets, mut rng) = (TicketTable::default(), SecureRng::from_seed([1; 32]));
        let config = IkeEndpointConfig { tickets: Some(HOUR), ..IkeEndpointConfig::default() };
        let sealed = tickets.seal_ticket(test_times_at(0), HOUR, &mut rng, &ticket_state(1)).unwrap().0;
        tickets.mark_spent(test_times_at(5).1, &config, numbered_ticket_id(1));
        assert_eq!(tickets.open_ticket(test_times_at(6).1, &sealed), None);
        tickets.mark_spent(test_times_at(3700).1, &config, numbered_ticket_id(2));
        assert_eq!(tickets.spent.len(), 1);
    }

    /// One client spends more tickets in a lifetime than the table holds.
    #[test]
    fn who_uses_up_tickets_without_end_leaves_others_theirs() {
        let (mut tickets, mut rng) = (TicketTable::default(), SecureRng::from_seed([1; 32]));
        let config = IkeEndpointConfig { tickets: Some(HOUR), ..IkeEndpointConfig::default() };
        let [ann, bob] =
            ["ann.test", "bob.test"].map(|id| ticket_owner("site", Some(&Identification::from_fqdn(id))));
        let mut seal = |tickets: &mut TicketTable, owner| {
            let state = ResumptionTicketState { id: tickets.next_ticket_id(owner), ..ticket_state(1) };
            (tickets.seal_ticket(test_times_at(0), HOUR, &mut rng, &state).unwrap().0, state.id)
        };
        let (of_ann, _) = seal(&mut tickets, ann);
        let (of_bob, _) = seal(&mut tickets, bob);
        for _ in 0..2 * spent_tickets::CAPACITY {
            let id = tickets.next_ticket_id(bob);
            tickets.mark_spent(test_times_at(1).1, &config, id);
        }
        assert!(tickets.spent.len() <= spent_tickets::CAPACITY, "it is bounded");
        assert_eq!(
            (tickets.era(), tickets.open_ticket(test_times_at(2).1, &of_bob)),
            (0, None),
            "his own that he has not used"
        );
        assert!(tickets.open_ticket(test_times_at(2).1, &of_ann).is_some());
        let (next, _) = seal(&mut tickets, bob);
        assert!(tickets.open_ticket(test_times_at(2).1, &next).is_some());
    }

    #[test]
    fn tickets_are_of_whoever_has_proved_who_it_is() {
        let id = Identification::from_fqdn("ini.test");
        let owners = [ticket_owner("a", Some(&id)), ticket_owner("b", Some(&id)), ticket_owner("a", None)];
        assert!(
            owners.iter().enumerate().all(|(n, one)| owners.iter().skip(n + 1).all(|other| one != other))
        );
        let other = Identification { kind: IdType::ID_RFC822_ADDR, ..id.clone() };
        assert_ne!(ticket_owner("a", Some(&other)), ticket_owner("a", Some(&id)));
    }
}
