//! A state-machine fuzzer. Honest clients and attackers hold dialogues with the product's own machines, in virtual
//! time.
//!
//! The octets of an input are operations: the next sender, and messages that are repeated, swapped, spliced, delayed
//! or lost. The invariants are checked after each operation.
//!
//! | module | machine | partners |
//! |---|---|---|
//! | [`aaa`] | the AAA server with its ledger | stations of EAP and passwords behind access servers of RADIUS, RadSec and Diameter |
//! | [`ike`] | an IKEv2 gateway with an AAA server | clients by EAP, a shared key and a certificate |
//! | [`pppoe`] | an access concentrator with an AAA server | hosts on one Ethernet, by PAP, CHAP, MS-CHAPv2 and EAP |
//!
//! Every input is a valid run: an operation that does not apply changes nothing. `Err` is an [`InvariantBreach`], a
//! fault of the machine.

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
use usher_aaa::service::{JobRunnerParts, UserRowReader};
use usher_aaa::store::MemoryStore;
use usher_aaa::{AuthMethod, User, UserCacheConfig};
use usher_radius::attribute::kind;
use usher_radius::dictionary::RadiusDictionary;

/// The maximum number of operations of an input. Later operations are ignored.
pub const MOST_OPERATIONS: usize = 64;

/// A description of the invariant that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvariantBreach(pub String);

impl fmt::Display for InvariantBreach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Fails with the text of `breach` if an invariant does not hold.
///
/// # Errors
/// The invariant does not hold.
pub fn ensure(holds: bool, breach: impl FnOnce() -> String) -> Result<(), InvariantBreach> {
    if holds { Ok(()) } else { Err(InvariantBreach(breach())) }
}

/// The harness's assumption about passwords. The tests of the harness use a wrong one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OracleBelief {
    /// A password belongs to its user.
    #[default]
    Sound,
    /// Ann's password counts as Eve's. The harness must then report a breach in Ann's honest login.
    Mistaken,
}

impl OracleBelief {
    /// Returns the user to whom the harness attributes this user's password.
    #[must_use]
    pub const fn believed_owner(self, owner: TestUser) -> TestUser {
        match (self, owner) {
            (Self::Mistaken, TestUser::Ann) => TestUser::Eve,
            _ => owner,
        }
    }
}

/// One operation of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DialogueOperation {
    /// The kind of operation.
    pub code: u8,
    /// The slot of the dialogue.
    pub slot: u8,
    /// The parameters.
    pub how: [u8; 2],
}

/// Parses the operations of an input, four octets each. The last is padded with zeros.
pub fn parse_operations(octets: &[u8]) -> impl Iterator<Item = DialogueOperation> {
    octets.chunks(4).take(MOST_OPERATIONS).map(|chunk| {
        let octet = |i: usize| chunk.get(i).copied().unwrap_or_default();
        DialogueOperation { code: octet(0), slot: octet(1), how: [octet(2), octet(3)] }
    })
}

/// A user whom the AAA server knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TestUser {
    /// Has at most one session at a time.
    Ann,
    /// Has any number of sessions.
    Bob,
    /// Knows her own password, and claims to be others.
    Eve,
    /// A device that its address identifies.
    Printer,
}

impl TestUser {
    /// All users.
    pub const ALL: [Self; 4] = [Self::Ann, Self::Bob, Self::Eve, Self::Printer];

    /// Returns the user of a number. Only its lowest two bits count.
    #[must_use]
    pub const fn from_number(n: u8) -> Self {
        Self::ALL[(n & 3) as usize]
    }
    /// Returns the User-Name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ann => "ann",
            Self::Bob => "bob",
            Self::Eve => "eve",
            Self::Printer => "020000000009",
        }
    }
    /// Returns the user of a name, in any spelling that the AAA server treats as equal.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let name = usher_aaa::canonical_name(name);
        Self::ALL.into_iter().find(|p| *usher_aaa::canonical_name(p.name().as_bytes()) == *name)
    }
    /// Returns the password, which only the user knows. The printer's password is never used.
    #[must_use]
    pub const fn password(self) -> &'static str {
        match self {
            Self::Ann => "the password of ann",
            Self::Bob => "the password of bob",
            Self::Eve => "the password of eve",
            Self::Printer => "none",
        }
    }
    /// Returns the Calling-Station-Id of this user's device, as access servers write it.
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

/// Returns the user of a name that a gateway or concentrator uses. For a login within a tunnel, the name is the outer
/// identity and a suffix of the login.
pub(crate) fn user_from_name(name: &str) -> Option<TestUser> {
    let name = name.split_once(" within EAP, ").map_or(name, |(name, _)| name);
    TestUser::from_name(name.as_bytes())
}

/// The AAA server's users. Their addresses are from the pool `main`, and Filter-Id names the user.
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

/// The store and the dictionary behind an AAA server with this ledger. The dictionary is read once, since that costs
/// more than a login.
pub(crate) fn service_parts(ledger: LedgerConfig) -> JobRunnerParts<MemoryStore> {
    static DICTIONARY: LazyLock<Arc<RadiusDictionary>> =
        LazyLock::new(|| Arc::new(RadiusDictionary::builtin()));
    JobRunnerParts {
        inline: Arc::new(test_users()),
        reading: UserRowReader { dictionary: DICTIONARY.clone(), leave_out: false },
        cache_config: UserCacheConfig::default(),
        ledger,
        store: MemoryStore::new(),
        certificates: None,
        logins: false,
    }
}

/// True if an address is in the pool `main`, from which the AAA server assigns addresses.
pub(crate) fn is_of_main_pool(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if (9..=12).any(|n| v4.octets() == [192, 0, 2, n]))
}

/// Returns a text unchanged, in capitals, or with a capital initial.
#[must_use]
pub fn respell_text(text: &str, how: u8) -> String {
    match how & 3 {
        1 => text.to_uppercase(),
        2 => text.to_lowercase(),
        3 => text.chars().enumerate().map(|(i, c)| if i == 0 { c.to_ascii_uppercase() } else { c }).collect(),
        _ => text.into(),
    }
}

/// Returns `count` reproducible random inputs.
#[cfg(test)]
pub(crate) fn random_inputs(count: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|n| {
        let mut rng = usher_core::Seed::new(n).derive_rng("operations", 0);
        (0..4 * MOST_OPERATIONS).map(|_| rng.next_u64() as u8).collect()
    })
}
