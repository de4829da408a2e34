//! One reader of configuration, for study files and for services' files.
//!
//! [`document`] reads TOML into a [`tree::TreeNode`] whose every part knows the file, line and column where it is written, with
//! the files that it includes; [`read`] makes typed values of it by serde, such that one fault does not hide the next.
//! Quantities carry their units ([`units`]), closed sets of words are read in one way ([`named`]), secrets come from the
//! file, from a file of their own or from the environment ([`secret`]), and keys that are on their way out are read with a
//! warning and rewritten by [`upgrade`]. Nothing here opens a file or looks at the environment: the host does, as
//! [`ConfigEnvironment`], for which those that have a disk take [`disk::DiskEnvironment`].

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

pub use checked::{CheckedConfig, KeyedError, parse, read_tree};
pub use de::{ReadOutcome, read_typed};
pub use document::{
    ConfigEnvironment, ConfigFormat, NoEnvironment, RetiredKey, read_another_document, read_document,
    rewrite_retired,
};
pub use fault::{
    ConfigDiagnostic, ConfigErrors, DiagnosticCollector, OptionalPosition, SourceFile, SourcePosition,
    name_hint, quote_names,
};
pub use ordered::OrderedMap;
pub use prefix::Prefix;
pub use schema::{json_schema, with_literal, with_names};
pub use upgrade::upgrade_text;
pub use value::ConfigValue;
