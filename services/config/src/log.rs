//! The table `[log]` of all services.

use schemars::JsonSchema;
use serde::Deserialize;

/// The log, which goes to standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// The format of log lines.
    pub format: LogFormat,
    /// The lowest level that is logged.
    pub level: LogLevel,
}

/// The format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text, for people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// The lowest level that is logged.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Errors, which need the operator.
    Error,
    /// Also warnings, which may need the operator.
    Warn,
    /// Also each login or query, start, stop and reload.
    #[default]
    Info,
    /// Also details, such as each accounting record.
    Debug,
}
