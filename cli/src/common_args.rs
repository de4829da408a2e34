//! Arguments of all commands.

use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct CommonArgs {
    /// Print the result as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Do not draw a progress bar.
    #[arg(long, global = true)]
    pub(crate) plain: bool,
    /// Print more detail.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}
