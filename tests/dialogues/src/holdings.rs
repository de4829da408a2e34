//! Users with their sessions and addresses.

use crate::{InvariantBreach, TestUser, ensure, is_of_main_pool};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use usher_aaa::canonical_name;
use usher_aaa::store::SessionRow;

/// A snapshot of open sessions and their addresses.
#[derive(Debug, Default)]
pub(crate) struct SessionHoldings {
    address_holders: BTreeMap<IpAddr, (TestUser, Vec<u8>)>,
    /// Stations at which Ann has a session, and the number of her sessions without a station.
    stations: BTreeSet<Vec<u8>>,
    nameless: usize,
}

impl SessionHoldings {
    /// Records that a user has an address at a station. A station that logs in again keeps its address. An address
    /// from an access server's own pool belongs to the user: an IKEv2 gateway keeps it for a new IKE_SA that replaces
    /// an older one.
    pub(crate) fn record_address(
        &mut self,
        address: IpAddr,
        person: TestUser,
        station: &str,
    ) -> Result<(), InvariantBreach> {
        let station = if is_of_main_pool(address) { station } else { "" };
        let holder = (person, canonical_name(station.as_bytes()).into_owned());
        let before = self.address_holders.entry(address).or_insert_with(|| holder.clone());
        ensure(*before == holder, || format!("{address} is held by {before:?} and by {holder:?}"))
    }
    /// Records an open session of the ledger, with its user by the access server and its user by the name.
    pub(crate) fn record_session(
        &mut self,
        row: &SessionRow,
        whose: Option<TestUser>,
        person: Option<TestUser>,
    ) -> Result<(), InvariantBreach> {
        ensure(whose.is_some() && whose == person, || {
            format!("session {} of {whose:?} is kept as {:?}'s", row.acctsessionid, row.username)
        })?;
        let Some(person) = person else { return Ok(()) };
        if let Some(address) = row.framedipaddress {
            self.record_address(address, person, &row.callingstationid)?;
        }
        if person == TestUser::Ann && row.callingstationid.is_empty() {
            self.nameless += 1;
        } else if person == TestUser::Ann {
            self.stations.insert(canonical_name(row.callingstationid.as_bytes()).into_owned());
        }
        Ok(())
    }
    /// Checks that Ann has at most one session, apart from a station that logs in again.
    pub(crate) fn check_limit(&self) -> Result<(), InvariantBreach> {
        let sessions = self.stations.len() + self.nameless;
        ensure(sessions <= 1, || format!("ann has {sessions} sessions, and may have one"))
    }
}
