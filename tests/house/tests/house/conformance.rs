//! The page `docs/contribute/ike-conformance.md`: our tests for those of the IPv6 Ready Logo. Each test's
//! comment has the Logo's names.

use super::standards::{REASONS, TestIndex};
use usher_house::{SourceFile, source_files, workspace_crates};

const PAGE: &str = "docs/contribute/ike-conformance.md";

/// Returns the comment above a function.
fn function_comment(text: &str, function: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &&str| line.trim_start().starts_with(&format!("fn {function}("));
    let Some(at) = lines.iter().position(begins) else { return String::new() };
    let above = lines[..at].iter().rev().map(|line| line.trim());
    above.take_while(|line| line.starts_with("//") || line.starts_with("#[")).collect::<Vec<_>>().join(" ")
}

/// Returns the faults of the page.
fn page_errors(page: &SourceFile, tests: &TestIndex, sources: &[SourceFile]) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in page.text.lines().enumerate().filter(|(_, line)| line.starts_with("| EN.")) {
        let mut fault = |what: String| faults.push(format!("{}:{}: {what}", page.path, number + 1));
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [names, _, held] = cells[..] else {
            fault(
                "a row is | EN.I.1.1.1.1, ... | what is tested | `crate::file::test`, ... or a reason |"
                    .into(),
            );
            continue;
        };
        if REASONS.iter().any(|reason| held.starts_with(reason)) {
            continue;
        }
        for path in held.split('`').skip(1).step_by(2) {
            let (file, function) = match tests.test_file(path) {
                Ok(file) => (file, path.rsplit("::").next().unwrap_or_default()),
                Err(why) => {
                    fault(why);
                    continue;
                }
            };
            let source = sources.iter().find(|source| source.path == format!("{file}.rs"));
            let above = source.map(|source| function_comment(&source.text, function)).unwrap_or_default();
            let bears = |name: &str| above.split([' ', ',']).any(|word| word.trim_end_matches('.') == name);
            for name in names.split(", ").filter(|name| !bears(name)) {
                fault(format!("{path} does not say that it is {name}"));
            }
        }
    }
    faults
}

#[test]
fn tests_bear_the_names_of_the_ipv6_ready_logos() {
    let sources = source_files();
    let crates: Vec<_> = workspace_crates().into_iter().map(|m| (m.name.replace('-', "_"), m.path)).collect();
    let tests = TestIndex::from_sources(&sources, &crates);
    let page = sources.iter().find(|source| source.path == PAGE).expect("the page is there");
    let rows = page.text.lines().filter(|line| line.starts_with("| EN.")).count();
    assert!(rows > 30, "{rows} rows");
    let found = page_errors(page, &tests, &sources);
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    // The check finds a name that no test has.
    let text = page.text.replacen("| EN.", "| EN.X.9.9.9.9, EN.", 1);
    let wrong = SourceFile { path: page.path.clone(), text, test: page.test };
    assert_eq!(page_errors(&wrong, &tests, &sources).len(), 1);
}
