//! A store that keeps nothing: users are in the configuration file, sessions in the ledger's memory.

use usher_aaa::store::{ClientRow, GroupRows, SessionRow, Store, StoreChange, StoreError, UserRows};

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(crate) struct NullStore;

fn refuse_memory_store_write<T>() -> Result<T, StoreError> {
    Err(StoreError::Refused("store = \"memory\" saves no changes: edit the configuration file".to_owned()))
}

impl Store for NullStore {
    fn find_user(&mut self, _: &str) -> Result<Option<UserRows>, StoreError> {
        Ok(None)
    }
    fn write_changes(&mut self, _: &[StoreChange]) -> Result<(), StoreError> {
        Ok(())
    }
    fn open_sessions(&mut self, _: &mut dyn FnMut(SessionRow)) -> Result<(), StoreError> {
        Ok(())
    }
    fn find_session(&mut self, _: &str) -> Result<Option<SessionRow>, StoreError> {
        Ok(None)
    }
    fn list_clients(&mut self) -> Result<Vec<ClientRow>, StoreError> {
        Ok(Vec::new())
    }
    fn user_names(&mut self, _: Option<&str>, _: u32) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
    fn put_user(&mut self, _: &str, _: &UserRows) -> Result<(), StoreError> {
        refuse_memory_store_write()
    }
    fn delete_user(&mut self, _: &str) -> Result<bool, StoreError> {
        refuse_memory_store_write()
    }
    fn put_group(&mut self, _: &GroupRows) -> Result<(), StoreError> {
        refuse_memory_store_write()
    }
    fn put_client(&mut self, _: &ClientRow) -> Result<(), StoreError> {
        refuse_memory_store_write()
    }
    fn delete_client(&mut self, _: &str) -> Result<bool, StoreError> {
        refuse_memory_store_write()
    }
}
