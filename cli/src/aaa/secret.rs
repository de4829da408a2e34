//! Passwords and secrets from a file, standard input or the terminal.

use crate::output::CommandFailure;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use usher_config::disk;

/// Reads a password or secret from a private file, from standard input (`-`, or no terminal), or from a prompt.
pub(super) fn read_secret(file: Option<&Path>, what: &str) -> Result<String, CommandFailure> {
    let text = match file {
        Some(path) if path != Path::new("-") => {
            require_private_file(path)?;
            let text = std::fs::read_to_string(path);
            text.map_err(|e| CommandFailure::runtime_error(format!("cannot read {}: {e}", path.display())))?
        }
        None if io::stdin().is_terminal() => prompt_secret(what)?,
        _ => read_stdin_line()?,
    };
    let text = text.lines().next().unwrap_or("").to_owned();
    if text.is_empty() {
        return Err(CommandFailure::usage_error(format!("the {what} is empty; no change was made")));
    }
    Ok(text)
}

/// Rejects a file that others can read or change. The mode of a pipe, such as a shell's process substitution, does
/// not matter.
pub(super) fn require_private_file(path: &Path) -> Result<(), CommandFailure> {
    if path.is_file() { disk::check_private(path).map_err(CommandFailure::usage_error) } else { Ok(()) }
}

fn read_stdin_line() -> Result<String, CommandFailure> {
    let mut text = String::new();
    let read = io::stdin().lock().read_line(&mut text);
    read.map_err(|e| CommandFailure::runtime_error(format!("cannot read standard input: {e}")))?;
    Ok(text)
}

/// Prompts on the terminal without echo.
fn prompt_secret(what: &str) -> Result<String, CommandFailure> {
    let echo = |how: &str| {
        let done = Command::new("stty").arg(how).stdin(Stdio::inherit()).stderr(Stdio::null()).status();
        done.is_ok_and(|s| s.success())
    };
    let mut out = io::stderr();
    // A failed write is ignored: if standard error is closed, there is nowhere to report it.
    let _ = write!(out, "{what}: ");
    let _ = out.flush();
    let hidden = echo("-echo");
    let text = read_stdin_line();
    if hidden {
        echo("echo");
        let _ = writeln!(out);
    }
    text
}
