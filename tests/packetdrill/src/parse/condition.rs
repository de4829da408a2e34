//! `#ifdef`, `#ifndef`, `#else`, `#endif`: selects the lines of a script.

use super::ScriptError;

/// Blanks the lines that are not selected, so that the others keep their numbers.
pub(super) fn select_lines(text: &str, defined: &[&str]) -> Result<String, ScriptError> {
    let mut out = String::with_capacity(text.len());
    // For each open condition: whether its lines are selected, and its first line.
    let mut open: Vec<(bool, u32)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split_whitespace();
        let fault = |what: &str| ScriptError { line: number, message: what.to_owned() };
        match words.next() {
            Some(word @ ("#ifdef" | "#ifndef")) => {
                let symbol = words.next().ok_or_else(|| fault("a symbol is missing"))?;
                open.push((defined.contains(&symbol) == (word == "#ifdef"), number));
            }
            Some("#else") => {
                let (meant, _) = open.last_mut().ok_or_else(|| fault("#else without #ifdef"))?;
                *meant = !*meant;
            }
            Some("#endif") => {
                open.pop().ok_or_else(|| fault("#endif without #ifdef"))?;
            }
            _ if open.iter().all(|(meant, _)| *meant) => out.push_str(line),
            _ => {}
        }
        out.push('\n');
    }
    match open.last() {
        None => Ok(out),
        Some((_, line)) => Err(ScriptError { line: *line, message: "#endif is missing".to_owned() }),
    }
}

/// True if some lines of a script depend on `symbol`.
pub(crate) fn tests_for(text: &str, symbol: &str) -> bool {
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        matches!(words.next(), Some("#ifdef" | "#ifndef")) && words.next() == Some(symbol)
    })
}
