//! Passwords and secrets from a file, standard input or the terminal.

use crate::output::Failure;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use usher_config::disk;

/// A password or secret: of a file that others cannot read, of standard input where that is `-` or no terminal, or asked for.
pub(super) fn read(file: Option<&Path>, what: &str) -> Result<String, Failure> {
    let text = match file {
        Some(path) if path != Path::new("-") => {
            private(path)?;
            let text = std::fs::read_to_string(path);
            text.map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?
        }
        None if io::stdin().is_terminal() => asked(what)?,
        _ => line()?,
    };
    let text = text.lines().next().unwrap_or("").to_owned();
    if text.is_empty() {
        return Err(Failure::usage(format!("the {what} is empty; nothing was done")));
    }
    Ok(text)
}

/// Refuses a file that others can read or change; a pipe, such as a shell makes of a command, has no mode that matters.
pub(super) fn private(path: &Path) -> Result<(), Failure> {
    if path.is_file() { disk::private(path).map_err(Failure::usage) } else { Ok(()) }
}

fn line() -> Result<String, Failure> {
    let mut text = String::new();
    let read = io::stdin().lock().read_line(&mut text);
    read.map_err(|e| Failure::failed(format!("standard input: {e}")))?;
    Ok(text)
}

/// Asks on the terminal, without showing what is typed.
fn asked(what: &str) -> Result<String, Failure> {
    let echo = |how: &str| {
        let done = Command::new("stty").arg(how).stdin(Stdio::inherit()).stderr(Stdio::null()).status();
        done.is_ok_and(|s| s.success())
    };
    let mut out = io::stderr();
    // Nobody can be told that standard error is closed.
    let _ = write!(out, "{what}: ");
    let _ = out.flush();
    let hidden = echo("-echo");
    let text = line();
    if hidden {
        echo("echo");
        let _ = writeln!(out);
    }
    text
}
