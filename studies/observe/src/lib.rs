//! What runs observed, and how it is kept: [`row`]s, [`stats`] over them, [`csv`] and [`parquet`]
//! files, the [`journal`] an interrupted sweep is resumed from, the [`manifest`] of a run, [`pcapng`]
//! captures, and the comparison of two runs ([`compare`]).
//!
//! Everything a user is shown is made from rows. The same rows give the same bytes on every machine:
//! floating-point mathematics goes through `libm`, sums run in index order, and no file but the manifest
//! carries a time.

mod error;

pub mod columns;
pub mod compare;
pub mod csv;
pub mod file;
pub mod journal;
pub mod manifest;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod pcapng;
pub mod row;
pub mod stats;
pub mod summary;
pub mod table;

pub use columns::RowUnits;
pub use error::RunFileError;
pub use row::{GridPoint, ResultRow};
pub use stats::{MeanEstimate, StoppingRule};
