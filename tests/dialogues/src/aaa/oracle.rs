//! What must hold: who was proved is who is let in, told of and holds an address.

use super::wire::SentRequest;
use crate::holdings::SessionHoldings;
use crate::{InvariantBreach, OracleBelief, TestUser, ensure};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use usher_aaa::store::SessionRow;
use usher_aaa::{FinishedLogin, canonical_name};
use usher_core::{Duration, Instant};

/// How many failures hold a name back, and within how long.
pub(super) const FAILURES: (u32, Duration) = (3, Duration::from_secs(60));

/// An accept that its access server has been sent.
#[derive(Clone, Debug)]
pub(super) struct AcceptGrant {
    /// Whom the server let in.
    pub(super) person: TestUser,
    /// When.
    pub(super) granted_at: Instant,
}

/// What is known about what was proved.
#[derive(Debug, Default)]
pub(super) struct ProofOracle {
    belief: OracleBelief,
    /// By the number of the dialogue: whose proofs were shown in it.
    proofs: Vec<BTreeSet<TestUser>>,
    /// By the number of the request: whom it let in.
    grants: BTreeMap<usize, AcceptGrant>,
    /// By Acct-Session-Id: whose it is.
    pub(super) sessions: BTreeMap<String, TestUser>,
    /// When proofs of a name failed, since it was last let in.
    failed: BTreeMap<Vec<u8>, VecDeque<Instant>>,
}

impl ProofOracle {
    pub(super) fn new(belief: OracleBelief) -> Self {
        Self { belief, ..Self::default() }
    }
    pub(super) fn start_dialogue(&mut self) -> usize {
        self.proofs.push(BTreeSet::new());
        self.proofs.len() - 1
    }
    /// A proof is shown in a dialogue.
    pub(super) fn record_proof(&mut self, dialogue: usize, by: TestUser) {
        if let Some(proofs) = self.proofs.get_mut(dialogue) {
            proofs.insert(self.belief.believed_owner(by));
        }
    }
    pub(super) fn find_grant(&self, request: usize) -> Option<&AcceptGrant> {
        self.grants.get(&request)
    }
    pub(super) fn grant_count(&self) -> usize {
        self.grants.len()
    }

    /// The server has let somebody in by this request.
    pub(super) fn record_accept(
        &mut self,
        now: Instant,
        request: Option<(usize, &SentRequest)>,
        login: &FinishedLogin,
    ) -> Result<(), InvariantBreach> {
        let who = String::from_utf8_lossy(login.record_name()).into_owned();
        let (number, sent) = request
            .ok_or_else(|| InvariantBreach(format!("{who} is let in by a request that nobody sent")))?;
        let person = TestUser::from_name(login.record_name())
            .ok_or_else(|| InvariantBreach(format!("{who} is nobody, and let in")))?;
        let proofs = &self.proofs[sent.dialogue];
        ensure(proofs.contains(&person), || {
            format!("{who} is let in by {:?}, where {proofs:?} proved something", login.method)
        })?;
        self.failed.remove(&*canonical_name(login.record_name()));
        self.grants.insert(number, AcceptGrant { person, granted_at: now });
        Ok(())
    }

    /// The server begins anew: failures are not kept over that.
    pub(super) fn clear_failures(&mut self) {
        self.failed.clear();
    }

    /// A proof of a name was weighed, and failed.
    pub(super) fn record_failure(&mut self, now: Instant, name: &[u8]) -> Result<(), InvariantBreach> {
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
    pub(super) fn check_sessions<'a>(
        &self,
        open: impl Iterator<Item = &'a SessionRow>,
        to_come: impl Iterator<Item = (IpAddr, TestUser, String)>,
    ) -> Result<(), InvariantBreach> {
        let mut holdings = SessionHoldings::default();
        for row in open {
            let named = TestUser::from_name(row.username.as_bytes());
            holdings.record_session(row, self.sessions.get(&row.acctsessionid).copied(), named)?;
        }
        for (address, person, station) in to_come {
            holdings.record_address(address, person, &station)?;
        }
        holdings.check_limit()
    }
}
