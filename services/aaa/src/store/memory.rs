//! A store in memory, for tests, the simulator, and hosts without a database.

use super::{ClientRow, GroupRows, SessionRow, Store, StoreChange, StoreError, UserRows};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Bound;

/// A [`Store`] in memory. Its contents end with the process.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    users: BTreeMap<String, UserRows>,
    groups: BTreeMap<String, GroupRows>,
    sessions: BTreeMap<String, SessionRow>,
    clients: Vec<ClientRow>,
    logins: Vec<StoreChange>,
    max_ended: Option<usize>,
    ended_sessions: alloc::collections::VecDeque<String>,
    away: bool,
}

impl MemoryStore {
    /// Creates an empty store without limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Creates an empty store that keeps the `ended` latest ended sessions and no logins, for long runs.
    #[must_use]
    pub fn with_ended_session_limit(ended: usize) -> Self {
        Self { max_ended: Some(ended), ..Self::default() }
    }
    /// Makes the store unavailable: all calls return [`StoreError::Unavailable`].
    pub fn set_store_unavailable(&mut self, away: bool) {
        self.away = away;
    }
    /// All sessions, ordered by acctuniqueid.
    pub fn sessions(&self) -> impl Iterator<Item = &SessionRow> {
        self.sessions.values()
    }
    /// All logins ([`StoreChange::Login`]), in their order.
    #[must_use]
    pub fn logins(&self) -> &[StoreChange] {
        &self.logins
    }

    fn check_available(&self) -> Result<(), StoreError> {
        if self.away { Err(StoreError::Unavailable("it is set away".to_string())) } else { Ok(()) }
    }
    fn put_session(&mut self, row: SessionRow) {
        let key = row.acctuniqueid.clone();
        let ended = row.acctstoptime.is_some();
        let before = self.sessions.insert(key.clone(), row);
        if ended && before.is_none_or(|b| b.acctstoptime.is_none()) {
            self.record_ended_session(key);
        }
    }
    fn record_ended_session(&mut self, key: String) {
        let Some(keep) = self.max_ended else { return };
        self.ended_sessions.push_back(key);
        while self.ended_sessions.len() > keep {
            if let Some(key) = self.ended_sessions.pop_front()
                && self.sessions.get(&key).is_some_and(|s| s.acctstoptime.is_some())
            {
                self.sessions.remove(&key);
            }
        }
    }
    fn apply_change(&mut self, change: &StoreChange) {
        match change {
            StoreChange::Session(row) => self.put_session((**row).clone()),
            StoreChange::NasRestarted { nas, restarted_at: at, cause } => {
                let mut ended = Vec::new();
                for (key, row) in &mut self.sessions {
                    let began_before = row.acctstarttime.is_none_or(|start| start <= *at);
                    let theirs = row.nasipaddress == *nas && row.diameter_origin.is_empty();
                    if !theirs || row.acctstoptime.is_some() || !began_before {
                        continue;
                    }
                    if let Some(start) = row.acctstarttime {
                        let passed = at.unix_secs().saturating_sub(start.unix_secs());
                        row.acctsessiontime = row.acctsessiontime.max(passed);
                    }
                    (row.acctstoptime, row.acctupdatetime) = (Some(*at), Some(*at));
                    row.acctterminatecause.clone_from(cause);
                    ended.push(key.clone());
                }
                ended.into_iter().for_each(|key| self.record_ended_session(key));
            }
            StoreChange::Login { .. } => {
                if self.max_ended.is_none() {
                    self.logins.push(change.clone());
                }
            }
        }
    }
}

impl Store for MemoryStore {
    fn find_user(&mut self, name: &str) -> Result<Option<UserRows>, StoreError> {
        self.check_available()?;
        let Some(mut rows) = self.users.get(name).cloned() else { return Ok(None) };
        for group in &mut rows.groups {
            if let Some(known) = self.groups.get(&group.name) {
                group.clone_from(known);
            }
        }
        Ok(Some(rows))
    }
    fn write_changes(&mut self, changes: &[StoreChange]) -> Result<(), StoreError> {
        self.check_available()?;
        changes.iter().for_each(|change| self.apply_change(change));
        Ok(())
    }
    fn open_sessions(&mut self, each: &mut dyn FnMut(SessionRow)) -> Result<(), StoreError> {
        self.check_available()?;
        self.sessions.values().filter(|row| row.acctstoptime.is_none()).for_each(|row| each(row.clone()));
        Ok(())
    }
    fn find_session(&mut self, acctuniqueid: &str) -> Result<Option<SessionRow>, StoreError> {
        self.check_available()?;
        Ok(self.sessions.get(acctuniqueid).cloned())
    }
    fn list_clients(&mut self) -> Result<Vec<ClientRow>, StoreError> {
        self.check_available()?;
        Ok(self.clients.clone())
    }
    fn user_names(&mut self, after: Option<&str>, most: u32) -> Result<Vec<String>, StoreError> {
        self.check_available()?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.users.range::<str, _>((from, Bound::Unbounded)).map(|(name, _)| name.clone());
        Ok(names.take(most as usize).collect())
    }
    fn put_user(&mut self, name: &str, rows: &UserRows) -> Result<(), StoreError> {
        self.check_available()?;
        let mut rows = rows.clone();
        for group in &mut rows.groups {
            *group = GroupRows { name: core::mem::take(&mut group.name), ..GroupRows::default() };
        }
        self.users.remove(name);
        // A user without rows does not exist.
        if rows != UserRows::default() {
            self.users.insert(name.into(), rows);
        }
        Ok(())
    }
    fn delete_user(&mut self, name: &str) -> Result<bool, StoreError> {
        self.check_available()?;
        Ok(self.users.remove(name).is_some())
    }
    fn put_group(&mut self, group: &GroupRows) -> Result<(), StoreError> {
        self.check_available()?;
        self.groups.insert(group.name.clone(), group.clone());
        Ok(())
    }
    fn put_client(&mut self, client: &ClientRow) -> Result<(), StoreError> {
        self.check_available()?;
        match self.clients.iter_mut().find(|c| c.nasname == client.nasname) {
            Some(known) => known.clone_from(client),
            None => self.clients.push(client.clone()),
        }
        Ok(())
    }
    fn delete_client(&mut self, nasname: &str) -> Result<bool, StoreError> {
        self.check_available()?;
        let before = self.clients.len();
        self.clients.retain(|c| c.nasname != nasname);
        Ok(self.clients.len() < before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_join_groups_by_name() {
        let mut store = MemoryStore::new();
        let group = |reply: &[&str]| GroupRows {
            name: "staff".into(),
            check: Vec::new(),
            reply: reply
                .iter()
                .map(|v| super::super::AttributeRow {
                    attribute: "Class".into(),
                    op: super::super::RowOperator::Set,
                    value: (*v).into(),
                })
                .collect(),
        };
        let rows = UserRows { groups: [group(&["ignored"])].into(), ..UserRows::default() };
        store.put_user("anna", &rows).unwrap();
        assert_eq!(store.find_user("anna").unwrap().unwrap().groups, [group(&[])]);
        store.put_group(&group(&["gold"])).unwrap();
        assert_eq!(store.find_user("anna").unwrap().unwrap().groups, [group(&["gold"])]);
        assert_eq!(store.find_user("otto").unwrap(), None);
        store.put_user("otto", &UserRows::default()).unwrap();
        assert_eq!(
            store.find_user("otto").unwrap(),
            None,
            "a user of no rows is nobody, as in the databases"
        );
        store.put_user("emma", &rows).unwrap();
        assert_eq!(store.user_names(Some("anna"), 1).unwrap(), ["emma"]);
        assert!(store.delete_user("emma").unwrap() && !store.delete_user("emma").unwrap());
        let mut many = ["ida", "max"].into_iter().map(|name| (name.into(), rows.clone()));
        assert_eq!(store.put_users(&mut many), Ok(2));
        assert_eq!(store.user_names(None, 9).unwrap(), ["anna", "ida", "max"]);
        assert_eq!(store.put_users(&mut core::iter::empty()), Ok(0));
        store.set_store_unavailable(true);
        assert!(matches!(store.find_user("anna"), Err(StoreError::Unavailable(_))));
    }

    #[test]
    fn clients_are_put_in_place_of_their_like() {
        let mut store = MemoryStore::new();
        for secret in ["one", "two"] {
            let client =
                ClientRow { nasname: "192.0.2.1".into(), secret: secret.into(), ..ClientRow::default() };
            store.put_client(&client).unwrap();
        }
        assert_eq!(store.list_clients().unwrap().len(), 1);
        assert_eq!(store.list_clients().unwrap()[0].secret, "two");
        assert!(store.delete_client("192.0.2.1").unwrap() && !store.delete_client("192.0.2.1").unwrap());
    }
}
