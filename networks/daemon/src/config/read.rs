//! From the text to typed values, such that one fault does not hide the next.

use super::fault::Collector;
use super::model::File;
use serde::Deserialize;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer};

/// Faults of one kind are looked for up to this many; a file with more is something else.
const MOST: usize = 50;

/// A file as it was written, to find the places of what it says.
#[derive(Debug)]
pub(super) struct Tree<'a>(Spanned<DeTable<'a>>);

/// Reads the text. `None` where something is wrong that hides what others say.
pub(super) fn read<'a>(text: &'a str, faults: &mut Collector<'_>) -> Option<(File, Tree<'a>)> {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors.iter().take(MOST) {
        faults.add(&error.span().unwrap_or(0..0), format!("not TOML: {}", error.message().trim()));
    }
    if !errors.is_empty() {
        return None;
    }
    let mut left = table.clone();
    let mut removed: Vec<String> = Vec::new();
    for n in 0..MOST {
        match File::deserialize(Deserializer::from(left.clone())) {
            Ok(file) if n == 0 => return Some((file, Tree(table))),
            Ok(_) => return None,
            Err(error) => {
                let span = error.span().unwrap_or(0..0);
                let message = plain(error.message());
                // What is faulty is taken out, so that the rest can be read; that it is missing then is no news.
                let missing = message.strip_prefix("missing field \"").and_then(|m| m.strip_suffix('"'));
                if !missing.is_some_and(|key| removed.iter().any(|r| r == key)) {
                    faults.add(&span, message);
                }
                removed.push(remove(left.get_mut(), &span)?);
            }
        }
    }
    None
}

/// What serde says, in words of the file's author.
fn plain(message: &str) -> String {
    let message = message.trim();
    if let Some((unknown, known)) = message.split_once(", expected one of ")
        && let Some(name) = unknown.strip_prefix("unknown field ")
    {
        let name = name.trim_matches('`');
        let near = known
            .split(", ")
            .map(|k| k.trim_matches('`'))
            .map(|k| (strsim::damerau_levenshtein(name, k), k))
            .min()
            .filter(|(distance, k)| *distance <= (name.len().max(k.len()) / 3).max(1));
        return match near {
            Some((_, near)) => format!("unknown key \"{name}\"; did you mean \"{near}\"?"),
            None => format!("unknown key \"{name}\"; known are {}", known.replace('`', "\"")),
        };
    }
    message.replace('`', "\"").replace("invalid type: ", "").replace(", expected ", "; needed is ")
}

/// Removes the innermost entry whose key or value is at the place, and gives its key; empty for an item of an array.
/// `None`: there is none.
fn remove<'a>(table: &mut DeTable<'a>, at: &Range<usize>) -> Option<String> {
    let holds = |span: &Range<usize>| span.start <= at.start && at.end <= span.end && !span.is_empty();
    let mut found = None;
    for (key, value) in table.iter_mut() {
        let (whole, name) = (value.span(), key.span());
        match value.get_mut() {
            DeValue::Table(inner) => {
                if let Some(key) = remove(inner, at) {
                    return Some(key);
                }
            }
            DeValue::Array(items) => {
                if let Some(key) = remove_item(items, at) {
                    return Some(key);
                }
            }
            _ => {}
        }
        if holds(&whole) || holds(&name) {
            found = Some(key.get_ref().to_string());
        }
    }
    found.inspect(|key| drop(table.remove(key.as_str())))
}

/// The same for what is in an array.
fn remove_item<'a>(items: &mut DeArray<'a>, at: &Range<usize>) -> Option<String> {
    for i in 0..items.len() {
        let Some(item) = items.get_mut(i) else { continue };
        let span = item.span();
        if let DeValue::Table(inner) = item.get_mut()
            && let Some(key) = remove(inner, at)
        {
            return Some(key);
        }
        if span.start <= at.start && at.end <= span.end && !span.is_empty() {
            let kept = items.iter().enumerate().filter(|(n, _)| *n != i);
            *items = kept.map(|(_, item)| item.clone()).collect();
            return Some(String::new());
        }
    }
    None
}

impl Tree<'_> {
    /// Where something stands: a path of keys and, within arrays, numbers. Of a table, or of what is not there, the
    /// place of the last key on the way that is.
    pub(super) fn place(&self, path: &[String]) -> Range<usize> {
        let mut table = self.0.get_ref();
        let mut place = 0..0;
        let mut steps = path.iter();
        while let Some(step) = steps.next() {
            let Some((key, value)) = table.get_key_value(step.as_str()) else { break };
            place = key.span();
            match value.get_ref() {
                DeValue::Table(inner) => table = inner,
                DeValue::Array(items) => {
                    let Some(item) = steps.next().and_then(|i| items.get(i.parse::<usize>().ok()?)) else {
                        break;
                    };
                    place = item.span();
                    match item.get_ref() {
                        DeValue::Table(inner) => table = inner,
                        _ => break,
                    }
                }
                _ => {
                    place = value.span();
                    break;
                }
            }
        }
        place
    }
}
