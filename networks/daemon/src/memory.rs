//! A store that keeps nothing: users are in the configuration file, sessions in the ledger alone.

use usher_aaa::store::{Change, ClientRow, GroupRows, SessionRow, Store, StoreError, UserRows};

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory;

fn refused<T>() -> Result<T, StoreError> {
    Err(StoreError::Refused(
        "store = \"memory\" keeps nothing; write it into the configuration file".to_owned(),
    ))
}

impl Store for Memory {
    fn user(&mut self, _: &str) -> Result<Option<UserRows>, StoreError> {
        Ok(None)
    }
    fn write(&mut self, _: &[Change]) -> Result<(), StoreError> {
        Ok(())
    }
    fn open_sessions(&mut self, _: &mut dyn FnMut(SessionRow)) -> Result<(), StoreError> {
        Ok(())
    }
    fn session(&mut self, _: &str) -> Result<Option<SessionRow>, StoreError> {
        Ok(None)
    }
    fn clients(&mut self) -> Result<Vec<ClientRow>, StoreError> {
        Ok(Vec::new())
    }
    fn user_names(&mut self, _: Option<&str>, _: u32) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
    fn put_user(&mut self, _: &str, _: &UserRows) -> Result<(), StoreError> {
        refused()
    }
    fn delete_user(&mut self, _: &str) -> Result<bool, StoreError> {
        refused()
    }
    fn put_group(&mut self, _: &GroupRows) -> Result<(), StoreError> {
        refused()
    }
    fn put_client(&mut self, _: &ClientRow) -> Result<(), StoreError> {
        refused()
    }
    fn delete_client(&mut self, _: &str) -> Result<bool, StoreError> {
        refused()
    }
}
