//! Who has a session and an address.

use crate::{InvariantBreach, TestUser, ensure, is_of_main_pool};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use usher_aaa::canonical_name;
use usher_aaa::store::SessionRow;

/// Open sessions and what they hold, seen at one moment.
#[derive(Debug, Default)]
pub(crate) struct SessionHoldings {
    address_holders: BTreeMap<IpAddr, (TestUser, Vec<u8>)>,
    /// Stations at which Ann has a session, and how many of hers name none.
    stations: BTreeSet<Vec<u8>>,
    nameless: usize,
}

impl SessionHoldings {
    /// Somebody has an address, at this station. A station that comes again goes on with what it had. What an access server gives of its
    /// own pools it gives to a user: an IKEv2 gateway has a user keep it whose new IKE_SA takes an older one's place, from wherever the user
    /// comes.
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
    /// A session that is open in the ledger, whose it is as far as its access server knows, and whose its name is.
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
    /// Ann has one session at most, but for a station that comes again.
    pub(crate) fn check_limit(&self) -> Result<(), InvariantBreach> {
        let sessions = self.stations.len() + self.nameless;
        ensure(sessions <= 1, || format!("ann has {sessions} sessions, and may have one"))
    }
}
