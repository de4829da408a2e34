//! The pages: each stands in the table of contents, and each link leads somewhere.

use crate::rules::assert_no_breach;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use usher_house::{SourceFile, repository_root, source_files};

/// The table of contents of the site that `./x docs` makes.
const CONTENTS: &str = "docs/SUMMARY.md";

/// Lines of a page outside of its code blocks, with their numbers.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((i + 1, line))
    })
}

/// The fragment by which mdBook and GitHub name a heading.
fn heading_fragment(heading: &str) -> String {
    let mut shown = String::new();
    let mut rest = heading;
    // A heading shows only the text of a link.
    while let Some((before, after)) = rest.split_once("](") {
        shown.push_str(before);
        rest = after.split_once(')').map_or("", |(_, behind)| behind);
    }
    shown.push_str(rest);
    shown
        .trim()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

/// The fragments of a page's headings. Those that repeat a heading get a number.
fn page_fragments(text: &str) -> HashSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = prose_lines(text).filter(|(_, line)| line.starts_with('#'));
    headings
        .map(|(_, line)| {
            let fragment = heading_fragment(line.trim_start_matches('#'));
            let count = seen.entry(fragment.clone()).and_modify(|n| *n += 1).or_insert(0);
            if *count == 0 { fragment } else { format!("{fragment}-{count}") }
        })
        .collect()
}

/// The targets of a line's links.
fn line_links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
}

/// A path from the repository's root, as a link of a page has it.
fn resolve_link(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn page_breaches(page: &SourceFile, fragments: &HashMap<&str, HashSet<String>>, root: &Path) -> Vec<String> {
    let mut breaches = Vec::new();
    for (number, line) in prose_lines(&page.text) {
        for link in line_links(line).filter(|link| !link.contains("://")) {
            let (target, fragment) = link.split_once('#').unwrap_or((link, ""));
            let path = if target.is_empty() { page.path.clone() } else { resolve_link(&page.path, target) };
            let named = fragments.get(path.as_str());
            if !root.join(&path).exists()
                || (!fragment.is_empty() && !named.is_some_and(|all| all.contains(fragment)))
            {
                breaches.push(format!("{}:{number}: {link} leads nowhere", page.path));
            }
        }
    }
    breaches
}

#[test]
fn links_of_pages_lead_somewhere() {
    let sources = source_files();
    let pages: Vec<&SourceFile> = sources.iter().filter(|source| source.extension() == "md").collect();
    let fragments = pages.iter().map(|page| (page.path.as_str(), page_fragments(&page.text))).collect();
    let root = repository_root();
    assert_no_breach(pages.iter().flat_map(|page| page_breaches(page, &fragments, &root)).collect());
}

#[test]
fn the_table_of_contents_has_each_page_once() {
    let sources = source_files();
    let contents = sources.iter().find(|source| source.path == CONTENTS).expect("a table of contents");
    let mut listed: HashMap<String, usize> = HashMap::new();
    for link in contents.text.lines().flat_map(line_links) {
        *listed.entry(resolve_link(CONTENTS, link)).or_default() += 1;
    }
    let mut breaches: Vec<String> = sources
        .iter()
        .filter(|source| {
            source.extension() == "md" && source.path.starts_with("docs/") && source.path != CONTENTS
        })
        .filter(|page| !listed.contains_key(&page.path))
        .map(|page| format!("{CONTENTS} lacks {}", page.path))
        .collect();
    breaches.extend(
        listed
            .iter()
            .filter(|(_, times)| **times > 1)
            .map(|(path, _)| format!("{CONTENTS} has {path} twice")),
    );
    assert_no_breach(breaches);
}

#[test]
fn the_check_of_links_finds_dead_ones() {
    let page = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into(), test: false };
    let other = page(
        "docs/reference/b.md",
        "# B\n\n## `[limits]` and more\n\n## Twice\n\n## Twice\n```\n# code\n```\n",
    );
    assert_eq!(
        page_fragments(&other.text),
        ["b", "limits-and-more", "twice", "twice-1"].map(String::from).into()
    );
    let root = repository_root();
    let fragments = HashMap::from([("docs/reference/b.md", page_fragments(&other.text))]);
    let breaches = |text: &str| page_breaches(&page("docs/howto/a.md", text), &fragments, &root).len();
    // The fragment of a page is looked up there; the file itself is looked up in the repository.
    assert_eq!(
        breaches("[a](../../README.md) [b](https://example.org/x#y) `](x`\n```\n[c](nowhere.md)\n```"),
        1
    );
    assert_eq!(breaches("[a](../nowhere.md)"), 1);
    assert_eq!(breaches("[a](#nothing)"), 1);
    assert_eq!(resolve_link("docs/howto/a.md", "../reference/b.md"), "docs/reference/b.md");
}
