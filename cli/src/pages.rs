//! What pages name exists: commands with their options, and keys of the configuration.

use crate::args::CliArguments;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use serde_json::Value;
use std::path::Path;

/// The pages, from the repository's root.
fn page_paths() -> Vec<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let names =
        std::fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let docs = names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}"));
    let mut all: Vec<String> = docs.chain(["README.md".to_owned()]).collect();
    all.sort();
    all
}

fn read_page(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Each line of code of a page, and each piece of code within a line, with the line's number.
fn code_pieces(page: &str) -> Vec<(usize, String)> {
    let (mut all, mut block): (Vec<(usize, String)>, bool) = (Vec::new(), false);
    let mut goes_on = false;
    for (i, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            block = !block;
        } else if block {
            let (text, more) = line.strip_suffix('\\').map_or((line, false), |text| (text, true));
            match all.last_mut().filter(|_| goes_on) {
                Some((_, before)) => before.push_str(text.trim_start()),
                None => all.push((i + 1, text.to_owned())),
            }
            goes_on = more;
        } else {
            all.extend(line.split('`').skip(1).step_by(2).map(|piece| (i + 1, piece.to_owned())));
        }
    }
    all
}

/// The words of a line as a shell has them, up to what another program or a comment has. A page may put an explanation
/// beside a command, some blanks away.
fn shell_words(line: &str) -> Vec<String> {
    let line = line.split("   ").next().unwrap_or_default();
    let (mut all, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, '|' | '>' | '<' | ';' | '&') => break,
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => all.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word);
    all
}

/// What is wrong with a command line that a page shows.
fn find_misuse(line: &str) -> Option<String> {
    let line = line.trim_start_matches("$ ").trim_start_matches("sudo ");
    if !line.starts_with("usher ") {
        return None;
    }
    let words = shell_words(line);
    let mut command = CliArguments::command();
    let mut rest = &words[1..];
    while let Some((word, after)) = rest.split_first() {
        let Some(next) = command.find_subcommand(word) else { break };
        (command, rest) = (next.clone(), after);
    }
    if rest.is_empty() {
        return None;
    }
    match CliArguments::try_parse_from(&words) {
        Ok(_) => None,
        Err(said) => match said.kind() {
            // A page may write N for a number, and SHELL for one of several.
            ErrorKind::ValueValidation | ErrorKind::InvalidValue
                if words.iter().any(|w| w.chars().all(|c| c.is_ascii_uppercase())) =>
            {
                None
            }
            _ => Some(said.to_string()),
        },
    }
}

#[test]
fn commands_that_pages_show_can_be_typed() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in page_paths() {
        for (line, text) in code_pieces(&read_page(&page)) {
            seen += usize::from(text.starts_with("usher "));
            wrong.extend(find_misuse(&text).map(|said| format!("{page}:{line}: {text}\n  {said}")));
        }
    }
    assert!(seen > 50, "the pages' commands were not found: {seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_command_that_cannot_be_typed_is_found() {
    for wrong in ["usher aaa user set --hash nt", "usher aaa users list", "usher aaa serve --confg a"] {
        assert!(find_misuse(wrong).is_some(), "{wrong}");
    }
    for right in
        ["usher aaa user set ann --password --hash nt", "usher aaa user set", "usher aaa schema | psql"]
    {
        assert_eq!(find_misuse(right), None, "{right}");
    }
}

/// Whether a schema has a key of a table; both are paths of names, as `diameter.peer` and `origins`.
fn has_key(schema: &Value, table: &str, key: &str) -> bool {
    let mut at = schema.clone();
    for name in table.split('.').chain([key]) {
        let Some(next) = find_property(schema, &at, name) else { return false };
        at = next;
    }
    true
}

/// A property of what a part of a schema describes: by itself, by reference, or of each item of a list.
fn find_property(schema: &Value, part: &Value, name: &str) -> Option<Value> {
    if let Some(found) = part["properties"].get(name) {
        return Some(found.clone());
    }
    if let Some(path) = part["$ref"].as_str().and_then(|path| path.strip_prefix('#')) {
        return find_property(schema, schema.pointer(path)?, name);
    }
    let several =
        ["anyOf", "allOf", "oneOf"].into_iter().flat_map(|of| part[of].as_array().into_iter().flatten());
    several.chain(part.get("items")).find_map(|part| find_property(schema, part, name))
}

/// The table and the key that a piece of code names, as `[limits] failures = 3` does.
fn parse_key_reference(text: &str) -> Option<(&str, &str)> {
    let (table, key) = text.strip_prefix('[')?.split_once("] ")?;
    let table = table.trim_start_matches('[').trim_end_matches(']');
    let key = key.trim_start();
    let end = key.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(key.len());
    (end > 0).then(|| (table, &key[..end]))
}

#[test]
fn keys_that_pages_name_are_of_the_configuration() {
    let schemas = crate::config::formats_with_schemas()
        .into_iter()
        .map(|(_, schema)| serde_json::from_str(&schema).unwrap());
    let schemas: Vec<Value> = schemas.collect();
    assert!(has_key(&schemas[1], "diameter.peer", "origins") && has_key(&schemas[1], "limits", "failures"));
    assert!(!has_key(&schemas[1], "limits", "login_timeout"));
    let mut seen = 0;
    for page in page_paths() {
        for (line, text) in code_pieces(&read_page(&page)) {
            let Some((table, key)) = parse_key_reference(&text) else { continue };
            seen += 1;
            assert!(
                schemas.iter().any(|schema| has_key(schema, table, key)),
                "{page}:{line}: `{text}`: table {table} has no key {key}"
            );
        }
    }
    assert!(seen >= 10, "the pages' keys were not found: {seen}");
}
