//! The oracle: only a user whose proof was shown is accepted, accounted for and given an address.

use super::wire::SentRequest;
use crate::holdings::SessionHoldings;
use crate::{InvariantBreach, OracleBelief, TestUser, ensure};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use usher_aaa::store::SessionRow;
use usher_aaa::{FinishedLogin, canonical_name};
use usher_core::{Duration, Instant};

/// The number of failed attempts that lock a name out, and their period.
pub(super) const FAILURES: (u32, Duration) = (3, Duration::from_secs(60));

/// An accept that was sent to its access server.
#[derive(Clone, Debug)]
pub(super) struct AcceptGrant {
    /// The accepted user.
    pub(super) person: TestUser,
    /// The time of the accept.
    pub(super) granted_at: Instant,
}

/// Recorded proofs and accepts.
#[derive(Debug, Default)]
pub(super) struct ProofOracle {
    belief: OracleBelief,
    /// The users whose proofs were shown, by dialogue.
    proofs: Vec<BTreeSet<TestUser>>,
    /// The accepts, by request.
    grants: BTreeMap<usize, AcceptGrant>,
    /// The user of each session, by Acct-Session-Id.
    pub(super) sessions: BTreeMap<String, TestUser>,
    /// Times of the failed attempts for a name since its last accept.
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
    /// Records a proof shown in a dialogue.
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

    /// Records an accept by this request.
    pub(super) fn record_accept(
        &mut self,
        now: Instant,
        request: Option<(usize, &SentRequest)>,
        login: &FinishedLogin,
    ) -> Result<(), InvariantBreach> {
        let who = String::from_utf8_lossy(login.user_name_for_record()).into_owned();
        let (number, sent) = request
            .ok_or_else(|| InvariantBreach(format!("{who} is let in by a request that nobody sent")))?;
        let person = TestUser::from_name(login.user_name_for_record())
            .ok_or_else(|| InvariantBreach(format!("{who} is nobody, and let in")))?;
        let proofs = &self.proofs[sent.dialogue];
        ensure(proofs.contains(&person), || {
            format!("{who} is let in by {:?}, where {proofs:?} proved something", login.method)
        })?;
        self.failed.remove(&*canonical_name(login.user_name_for_record()));
        self.grants.insert(number, AcceptGrant { person, granted_at: now });
        Ok(())
    }

    /// Clears the failed attempts: a restarted server has lost them.
    pub(super) fn clear_failures(&mut self) {
        self.failed.clear();
    }

    /// Records a failed attempt for a name.
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

    /// Checks open sessions, and the addresses of accepts whose sessions have not started.
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
