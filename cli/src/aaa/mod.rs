//! `usher aaa`: the AAA server and what an operator does with it.

pub(crate) mod args;
mod serve;

use crate::output::{Failure, Output};
use args::AaaCommand;

pub(crate) fn aaa(output: &Output, command: AaaCommand) -> Result<(), Failure> {
    match command {
        AaaCommand::Serve(config) => serve::serve(output, &config),
        AaaCommand::Check { file } => serve::check(output, file.as_deref()),
    }
}
