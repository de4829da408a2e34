//! Results of runs and their files.
//!
//! - [`row`]s of results, [`stats`] over them, and the comparison of two runs ([`compare`])
//! - [`csv`] and [`parquet`] files, the [`journal`] for resuming a sweep, the [`manifest`] of a run
//! - [`pcapng`] captures
//!
//! All output for users derives from rows. The same rows give the same bytes on every machine: floating-point functions
//! come from `libm`, sums run in index order, and only the manifest contains times.

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

pub use columns::ResultRowUnits;
pub use error::RunFileError;
pub use row::{GridPoint, ResultRow};
pub use stats::{MeanEstimate, StoppingRule};
