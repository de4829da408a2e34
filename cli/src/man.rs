//! Manual pages, made from the program's own help.

use crate::args::CliArguments;
use crate::output::{CommandFailure, ConsoleOutput};
use clap::CommandFactory;
use std::fs;
use std::path::Path;

/// Writes a page for each command into `dir`: `usher.1`, `usher-study-run.1`, …
pub(crate) fn write_man_pages(output: &ConsoleOutput, dir: &Path) -> Result<(), CommandFailure> {
    let failed =
        |e| CommandFailure::runtime_error(format!("cannot write the pages into {}: {e}", dir.display()));
    fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(CliArguments::command(), dir).map_err(failed)?;
    output.print_note(&format!(
        "the pages are in {}; read one with: man -l {}/usher.1",
        dir.display(),
        dir.display()
    ));
    Ok(())
}
