//! Reads the TOML files of studies and services.
//!
//! - [`read_document`] reads a file and the files that it includes into a [`tree::TreeNode`]. Each node knows its file,
//!   line and column.
//! - [`read_typed`] turns the tree into typed values with serde. It reports all faults in one pass, not only the first.
//! - [`units`] holds quantities with their units, [`named`] closed sets of words, [`secret`] secrets from the file, a
//!   separate file or the environment.
//! - [`upgrade_text`] rewrites retired keys. Until then the reader accepts them with a warning.
//!
//! This crate opens no file and reads no environment variable itself. The host does, through [`ConfigEnvironment`];
//! [`disk::DiskEnvironment`] is the implementation for hosts with a disk.

extern crate alloc;

mod checked;
mod de;
#[cfg(feature = "disk")]
pub mod disk;
mod document;
mod fault;
pub mod hosts;
pub mod log;
pub mod named;
mod ordered;
mod prefix;
mod schema;
pub mod secret;
pub mod tree;
pub mod units;
mod upgrade;
mod value;

pub use checked::{CheckedConfig, KeyPathError, parse, read_tree};
pub use de::{ReadOutcome, describe_parse_error, read_typed};
pub use document::{
    ConfigEnvironment, ConfigFormat, EmptyConfigEnvironment, RetiredKey, read_additional_document,
    read_document, rewrite_retired_keys,
};
pub use fault::{
    ConfigDiagnostic, ConfigErrors, DiagnosticCollector, OptionalPosition, SourceFile, SourcePosition,
    name_hint, quote_names,
};
pub use ordered::OrderedMap;
pub use prefix::Prefix;
pub use schema::{add_literal_alternative, json_schema, with_names};
pub use upgrade::upgrade_text;
pub use value::ConfigValue;
