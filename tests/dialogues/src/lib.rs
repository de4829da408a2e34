//! A state-machine fuzzer: honest clients and attackers hold dialogues with the product's own machines in virtual time. The octets of an
//! input are operations: who speaks next, what is repeated, swapped, spliced, delayed or lost. After each operation the invariants hold.
//!
//! | module | machine | partners |
//! |---|---|---|
//! | [`aaa`] | the AAA server with its ledger | stations of EAP and passwords behind access servers of RADIUS, RadSec and Diameter |
//! | [`ike`] | an IKEv2 gateway with an AAA server | clients by EAP, a shared key and a certificate |
//! | [`pppoe`] | an access concentrator with an AAA server | hosts on one Ethernet, by PAP, CHAP, MS-CHAPv2 and EAP |
//!
//! Every input is a valid run: an operation that fits nothing changes nothing. `Err` is a [`InvariantBreach`]: a fault of the machine.

pub mod aaa;
mod holdings;
pub mod ike;
pub mod pppoe;
mod site;
mod tunnels;
mod witness;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use usher_aaa::ledger::{LedgerConfig, PoolConfig};
use usher_aaa::service::{JobRunnerParts, RowReader};
use usher_aaa::store::MemoryStore;
use usher_aaa::{AuthMethod, CacheConfig, User};
use usher_radius::attribute::kind;
use usher_radius::dictionary::RadiusDictionary;

/// How many operations of an input are carried out at most.
pub const MOST_OPERATIONS: usize = 64;

/// An invariant that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvariantBreach(pub String);

impl fmt::Display for InvariantBreach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Fails with what `breach` says where an invariant does not hold.
///
/// # Errors
/// It does not hold.
pub fn ensure(holds: bool, breach: impl FnOnce() -> String) -> Result<(), InvariantBreach> {
    if holds { Ok(()) } else { Err(InvariantBreach(breach())) }
}

/// What a harness believes of its people. The tests of the harness break it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OracleBelief {
    /// Whoever shows a password has that user's.
    #[default]
    Sound,
    /// Ann's password is taken for Eve's: a harness that believes so must find a breach in Ann's honest login.
    Mistaken,
}

impl OracleBelief {
    /// Whose password somebody shows who has that person's.
    #[must_use]
    pub const fn believed_owner(self, owner: TestUser) -> TestUser {
        match (self, owner) {
            (Self::Mistaken, TestUser::Ann) => TestUser::Eve,
            _ => owner,
        }
    }
}

/// One operation: what is done, with which dialogue, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DialogueOperation {
    /// What is done.
    pub code: u8,
    /// With which dialogue.
    pub slot: u8,
    /// How.
    pub how: [u8; 2],
}

/// The operations of an input, four octets each; what is missing of the last is zero.
pub fn parse_operations(octets: &[u8]) -> impl Iterator<Item = DialogueOperation> {
    octets.chunks(4).take(MOST_OPERATIONS).map(|chunk| {
        let octet = |i: usize| chunk.get(i).copied().unwrap_or_default();
        DialogueOperation { code: octet(0), slot: octet(1), how: [octet(2), octet(3)] }
    })
}

/// Somebody who may be let in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TestUser {
    /// May have one session at once.
    Ann,
    /// May have any number.
    Bob,
    /// Knows her own password, and claims to be others.
    Eve,
    /// A device that is known by its address.
    Printer,
}

impl TestUser {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ann, Self::Bob, Self::Eve, Self::Printer];

    /// The one of a number, of which the lowest two bits count.
    #[must_use]
    pub const fn from_number(n: u8) -> Self {
        Self::ALL[(n & 3) as usize]
    }
    /// The User-Name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ann => "ann",
            Self::Bob => "bob",
            Self::Eve => "eve",
            Self::Printer => "020000000009",
        }
    }
    /// Whose name this is, in whatever spelling the AAA server takes for the same.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let name = usher_aaa::canonical_name(name);
        Self::ALL.into_iter().find(|p| *usher_aaa::canonical_name(p.name().as_bytes()) == *name)
    }
    /// The password, which nobody else knows; the printer has one that nobody asks for.
    #[must_use]
    pub const fn password(self) -> &'static str {
        match self {
            Self::Ann => "the password of ann",
            Self::Bob => "the password of bob",
            Self::Eve => "the password of eve",
            Self::Printer => "none",
        }
    }
    /// The name of this person's own device, as access servers write it.
    #[must_use]
    pub const fn station(self) -> &'static str {
        match self {
            Self::Ann => "02-00-00-00-00-01",
            Self::Bob => "02-00-00-00-00-02",
            Self::Eve => "02-00-00-00-00-03",
            Self::Printer => "02-00-00-00-00-09",
        }
    }
}

/// Whose a name is by which a gateway or a concentrator calls its user. Of whoever says within a tunnel what it has said outside, too, it
/// says so, and behind it what is that login's alone.
pub(crate) fn user_from_name(name: &str) -> Option<TestUser> {
    let name = name.split_once(" within EAP, ").map_or(name, |(name, _)| name);
    TestUser::from_name(name.as_bytes())
}

/// Ann, Bob, Eve and the printer as an AAA server knows them: their addresses are of the pool `main`, and Filter-Id says whose a reply is.
#[must_use]
pub fn test_users() -> BTreeMap<Vec<u8>, Arc<User>> {
    let user = |person: TestUser| {
        let mut user = match person {
            TestUser::Printer => User { methods: vec![AuthMethod::Mab], ..User::default() },
            _ => User::with_password(person.password().as_bytes()),
        };
        user.simultaneous = (person == TestUser::Ann).then_some(1);
        user.pool = Some("main".into());
        let _ = user.reply.push_text(kind::FILTER_ID, person.name());
        (person.name().as_bytes().to_vec(), Arc::new(user))
    };
    TestUser::ALL.map(user).into()
}

/// The pool `main`, of four addresses.
pub(crate) fn main_pool() -> PoolConfig {
    PoolConfig { name: "main".into(), ranges: vec!["192.0.2.9-192.0.2.12".parse().expect("a range")] }
}

/// What stands behind an AAA server with this ledger. The dictionary is read once: that costs more than a login.
pub(crate) fn service_parts(ledger: LedgerConfig) -> JobRunnerParts<MemoryStore> {
    static DICTIONARY: LazyLock<Arc<RadiusDictionary>> =
        LazyLock::new(|| Arc::new(RadiusDictionary::builtin()));
    JobRunnerParts {
        inline: Arc::new(test_users()),
        reading: RowReader { dictionary: DICTIONARY.clone(), leave_out: false },
        cache_config: CacheConfig::default(),
        ledger,
        store: MemoryStore::new(),
        certificates: None,
        logins: false,
    }
}

/// Whether an address is of the pool `main`, of which the AAA server gives them.
pub(crate) fn is_of_main_pool(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if (9..=12).any(|n| v4.octets() == [192, 0, 2, n]))
}

/// A text as it is, in capitals, or with its first letter large.
#[must_use]
pub fn respell_text(text: &str, how: u8) -> String {
    match how & 3 {
        1 => text.to_uppercase(),
        2 => text.to_lowercase(),
        3 => text.chars().enumerate().map(|(i, c)| if i == 0 { c.to_ascii_uppercase() } else { c }).collect(),
        _ => text.into(),
    }
}

/// So many inputs of chance, the same each time.
#[cfg(test)]
pub(crate) fn random_inputs(count: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|n| {
        let mut rng = usher_core::Seed::new(n).derive_rng("operations", 0);
        (0..4 * MOST_OPERATIONS).map(|_| rng.next_u64() as u8).collect()
    })
}
