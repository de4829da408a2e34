//! The table `[log]` of all services.

use schemars::JsonSchema;
use serde::Deserialize;

/// Logs, to standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// For people or for programs.
    pub format: LogFormat,
    /// The least important that is said.
    pub level: LogLevel,
}

/// For people or for programs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines of text.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// The least important that is said.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What needs somebody.
    Error,
    /// And what may.
    Warn,
    /// And what is done: each login or question, start, stop and reload.
    #[default]
    Info,
    /// And the details: each accounting record.
    Debug,
}
