//! What can be typed behind `usher aaa`. The documentation of these items is the program's help.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub(crate) enum AaaCommand {
    /// Serve RADIUS, RadSec and Diameter until told to end.
    #[command(after_help = "Examples:
  usher aaa serve
  usher aaa serve --config ./aaa.toml
  kill -HUP $(pidof usher)      read the configuration again

Without a configuration the server serves loopback with a generated secret and says how to go on.
SIGTERM ends it when the logins under way are answered and all accounting is written.")]
    Serve(Config),
    /// Check a configuration file without serving: every fault with its line.
    #[command(after_help = "Examples:\n  usher aaa check\n  usher aaa check ./aaa.toml")]
    Check {
        /// The file [default: /etc/usher/aaa.toml].
        file: Option<PathBuf>,
    },
}

/// Which configuration.
#[derive(Args, Clone, Debug)]
pub(crate) struct Config {
    /// The configuration file [default: /etc/usher/aaa.toml].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
