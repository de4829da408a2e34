//! What must hold: who was proved is who is let in, told of and holds an address.

use super::wire::SentRequest;
use crate::{Belief, Breach, Person, ensure};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use usher_aaa::store::SessionRow;
use usher_aaa::{Login, canonical_name};
use usher_core::{Duration, Instant};

/// How many failures hold a name back, and within how long.
pub(super) const FAILURES: (u32, Duration) = (3, Duration::from_secs(60));

/// An accept that its access server has been sent.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    /// Whom the server let in.
    pub(super) person: Person,
    /// When.
    pub(super) at: Instant,
}

/// Somebody who has an address: whose it is, and at which station.
type Holder = (Person, Vec<u8>);

/// What is known about what was proved.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    belief: Belief,
    /// By the number of the dialogue: whose proofs were shown in it.
    proofs: Vec<BTreeSet<Person>>,
    /// By the number of the request: whom it let in.
    grants: BTreeMap<usize, Grant>,
    /// By Acct-Session-Id: whose it is.
    pub(super) sessions: BTreeMap<String, Person>,
    /// When proofs of a name failed, since it was last let in.
    failed: BTreeMap<Vec<u8>, VecDeque<Instant>>,
}

/// Whose name this is, whatever its spelling.
fn person_of(name: &[u8]) -> Option<Person> {
    let name = canonical_name(name);
    Person::ALL.into_iter().find(|person| *canonical_name(person.name().as_bytes()) == *name)
}

impl Oracle {
    pub(super) fn new(belief: Belief) -> Self {
        Self { belief, ..Self::default() }
    }
    pub(super) fn dialogue(&mut self) -> usize {
        self.proofs.push(BTreeSet::new());
        self.proofs.len() - 1
    }
    /// A proof is shown in a dialogue.
    pub(super) fn shown(&mut self, dialogue: usize, by: Person) {
        let believed = match (self.belief, by) {
            (Belief::Mistaken, Person::Ann) => Person::Eve,
            _ => by,
        };
        if let Some(proofs) = self.proofs.get_mut(dialogue) {
            proofs.insert(believed);
        }
    }
    pub(super) fn grant(&self, request: usize) -> Option<&Grant> {
        self.grants.get(&request)
    }
    pub(super) fn granted(&self) -> usize {
        self.grants.len()
    }

    /// The server has let somebody in by this request.
    pub(super) fn accepted(
        &mut self,
        now: Instant,
        request: Option<(usize, &SentRequest)>,
        login: &Login,
    ) -> Result<(), Breach> {
        let who = String::from_utf8_lossy(login.who()).into_owned();
        let (number, sent) =
            request.ok_or_else(|| Breach(format!("{who} is let in by a request that nobody sent")))?;
        let person = person_of(login.who()).ok_or_else(|| Breach(format!("{who} is nobody, and let in")))?;
        let proofs = &self.proofs[sent.dialogue];
        ensure(proofs.contains(&person), || {
            format!("{who} is let in by {:?}, where {proofs:?} proved something", login.method)
        })?;
        self.failed.remove(&*canonical_name(login.who()));
        self.grants.insert(number, Grant { person, at: now });
        Ok(())
    }

    /// The server begins anew: failures are not kept over that.
    pub(super) fn restarted(&mut self) {
        self.failed.clear();
    }

    /// A proof of a name was weighed, and failed.
    pub(super) fn failure(&mut self, now: Instant, name: &[u8]) -> Result<(), Breach> {
        let (most, within) = FAILURES;
        if name.is_empty() {
            return Ok(());
        }
        let times = self.failed.entry(canonical_name(name).into_owned()).or_default();
        times.retain(|at| *at + within > now);
        times.push_back(now);
        ensure(times.len() <= most as usize, || {
            format!(
                "{} proofs of {:?} were weighed within {within}",
                times.len(),
                String::from_utf8_lossy(name)
            )
        })
    }

    /// Sessions that are open, and addresses that access servers were given for sessions to come.
    pub(super) fn sessions<'a>(
        &self,
        open: impl Iterator<Item = &'a SessionRow>,
        to_come: impl Iterator<Item = (IpAddr, Person, String)>,
    ) -> Result<(), Breach> {
        let mut held: BTreeMap<IpAddr, Holder> = BTreeMap::new();
        let mut hold = |address: IpAddr, person: Person, station: &str| {
            let holder = (person, canonical_name(station.as_bytes()).into_owned());
            let before = held.entry(address).or_insert_with(|| holder.clone());
            ensure(*before == holder, || format!("{address} is held by {before:?} and by {holder:?}"))
        };
        let (mut stations, mut nameless) = (BTreeSet::new(), 0);
        for row in open {
            let whose = self.sessions.get(&row.acctsessionid);
            let person = person_of(row.username.as_bytes());
            ensure(whose.is_some() && whose.copied() == person, || {
                format!("session {} of {whose:?} is kept as {:?}'s", row.acctsessionid, row.username)
            })?;
            let Some(person) = person else { continue };
            if let Some(address) = row.framedipaddress {
                hold(address, person, &row.callingstationid)?;
            }
            if person == Person::Ann {
                if row.callingstationid.is_empty() {
                    nameless += 1;
                } else {
                    stations.insert(canonical_name(row.callingstationid.as_bytes()).into_owned());
                }
            }
        }
        for (address, person, station) in to_come {
            hold(address, person, &station)?;
        }
        // A station that comes again goes on with what it had.
        let sessions = stations.len() + nameless;
        ensure(sessions <= 1, || format!("ann has {sessions} sessions, and may have one"))
    }
}
