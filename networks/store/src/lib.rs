//! Stores of the AAA server: SQLite and PostgreSQL with FreeRADIUS's tables, and an importer of its files.
//!
//! Both implement [`usher_aaa::store`] with the tables of FreeRADIUS 3.2: radcheck, radreply, radgroupcheck,
//! radgroupreply, radusergroup, radacct, radpostauth, nas. So an existing FreeRADIUS database works unchanged. A few
//! columns are ours. They are added if missing, and FreeRADIUS ignores them. Times are whole seconds.

pub mod import;
mod owner;
#[cfg(feature = "databases")]
mod postgres;
#[cfg(feature = "databases")]
mod rows;
#[cfg(feature = "databases")]
mod schema;
#[cfg(feature = "databases")]
mod sqlite;

pub use owner::{allow_group_read, set_file_owner_from_folder};
#[cfg(feature = "databases")]
pub use postgres::{LOOKUP_ROUND_TRIPS, PostgresStore};
#[cfg(feature = "databases")]
pub use schema::{SchemaReport, VERSION as SCHEMA_VERSION, postgres_script};
#[cfg(feature = "databases")]
pub use sqlite::SqliteStore;
