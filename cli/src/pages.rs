//! Commands with their options and keys of the configuration that pages name exist.

use crate::args::CliArguments;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use serde_json::Value;
use std::path::Path;

/// The pages, from the repository's root.
fn documentation_page_paths() -> Vec<String> {
    let mut all = vec!["README.md".to_owned()];
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in
            std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(&folder)).unwrap()
        {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().into_string().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(path),
                false if path.ends_with(".md") => all.push(path),
                false => {}
            }
        }
    }
    all.sort();
    all
}

fn read_documentation_page(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Each line of code of a page, and each piece of code within a line, with the line's number.
fn documented_code_lines(page: &str) -> Vec<(usize, String)> {
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

/// The fault of a command line that a page shows.
fn find_command_line_error(line: &str) -> Option<String> {
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
            // In an example of a page, a word in capitals, such as N or SHELL, is a placeholder for a value.
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
    for page in documentation_page_paths() {
        for (line, text) in documented_code_lines(&read_documentation_page(&page)) {
            seen += usize::from(text.starts_with("usher "));
            wrong.extend(
                find_command_line_error(&text).map(|said| format!("{page}:{line}: {text}\n  {said}")),
            );
        }
    }
    assert!(seen > 50, "the pages' commands were not found: {seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_command_that_cannot_be_typed_is_found() {
    for wrong in ["usher aaa user set --hash nt", "usher aaa users list", "usher aaa serve --confg a"] {
        assert!(find_command_line_error(wrong).is_some(), "{wrong}");
    }
    for right in
        ["usher aaa user set ann --password --hash nt", "usher aaa user set", "usher aaa schema | psql"]
    {
        assert_eq!(find_command_line_error(right), None, "{right}");
    }
}

/// Whether a schema has a key of a table; both are paths of names, as `diameter.peer` and `origins`.
fn schema_has_key(schema: &Value, table: &str, key: &str) -> bool {
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
fn new_names_of_keys_are_of_the_configuration() {
    for (format, schema) in crate::config::formats_with_schemas() {
        let schema: Value = serde_json::from_str(&schema).unwrap();
        for retired in format.retired.iter().filter(|retired| retired.rewrite.is_none()) {
            let table = retired.table.join(".");
            assert!(
                schema_has_key(&schema, &table, retired.instead),
                "{}: {table}.{}",
                format.description,
                retired.instead
            );
            assert!(
                !schema_has_key(&schema, &table, retired.key),
                "{}: {table}.{}",
                format.description,
                retired.key
            );
        }
    }
}

#[test]
fn keys_that_pages_name_are_of_the_configuration() {
    let schemas = crate::config::formats_with_schemas()
        .into_iter()
        .map(|(_, schema)| serde_json::from_str(&schema).unwrap());
    let schemas: Vec<Value> = schemas.collect();
    assert!(
        schema_has_key(&schemas[1], "diameter.peer", "origins")
            && schema_has_key(&schemas[1], "limits", "failures")
    );
    assert!(!schema_has_key(&schemas[1], "limits", "login_timeout"));
    let mut seen = 0;
    for page in documentation_page_paths() {
        for (line, text) in documented_code_lines(&read_documentation_page(&page)) {
            let Some((table, key)) = parse_key_reference(&text) else { continue };
            seen += 1;
            assert!(
                schemas.iter().any(|schema| schema_has_key(schema, table, key)),
                "{page}:{line}: `{text}`: table {table} has no key {key}"
            );
        }
    }
    assert!(seen >= 10, "the pages' keys were not found: {seen}");
}
