//! Manual pages, made from the program's own help.

use crate::args::Arguments;
use crate::output::{Failure, Output};
use clap::CommandFactory;
use std::fs;
use std::path::Path;

/// Writes a page for each command into `dir`: `usher.1`, `usher-study-run.1`, …
pub(crate) fn man(output: &Output, dir: &Path) -> Result<(), Failure> {
    let failed = |e| Failure::failed(format!("{}: {e}", dir.display()));
    fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Arguments::command(), dir).map_err(failed)?;
    output.note(&format!(
        "the pages are in {}; read one with: man -l {}/usher.1",
        dir.display(),
        dir.display()
    ));
    Ok(())
}
