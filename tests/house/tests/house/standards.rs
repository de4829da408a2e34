//! The pages `docs/reference/standards-*.md`: the requirements of each RFC, and the tests that hold them. A
//! page must not name a missing test. A requirement must have a test or a reason.

use std::collections::BTreeMap;
use usher_house::{SourceFile, source_files, workspace_crates};

/// The words that may begin the cell of a requirement.
const LEVELS: [&str; 5] = ["MUST NOT: ", "SHOULD NOT: ", "MUST: ", "SHOULD: ", "MUST, SHOULD: "];

/// The words that may begin a reason, in a row without a test.
///
/// - `Not met`: it applies, and we do not do it.
/// - `Not ours`: it binds another party (an access server, an operator), or a feature that is absent here.
/// - `Untested`: we do it, and the reason says why no test could fail.
pub(super) const REASONS: [&str; 3] = ["Not met: ", "Not ours: ", "Untested: "];

const FORM: &str = "a row is | RFC 2865 | 3 | MUST: what is asked | `crate::test`, `crate::file::test` or a reason |, \
                    and a reason begins with Not met:, Not ours: or Untested:";

/// Where the tests are: the crate, the path of the file without `.rs`, the name.
pub(super) struct TestIndex(BTreeMap<(String, String), Vec<String>>);

impl TestIndex {
    pub(super) fn from_sources(sources: &[SourceFile], crates: &[(String, String)]) -> Self {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for source in sources.iter().filter(|s| s.extension() == "rs") {
            let owner = crates.iter().find(|(_, folder)| source.path.starts_with(&format!("{folder}/")));
            let Some((name, _)) = owner else { continue };
            for test in tests_of(&source.text) {
                let file = source.path.trim_end_matches(".rs").to_owned();
                all.entry((name.clone(), test.to_owned())).or_default().push(file);
            }
        }
        Self(all)
    }

    /// Returns the fault of the path of a test.
    fn path_error(&self, path: &str) -> Option<String> {
        self.test_file(path).err()
    }

    /// Returns a test's file without `.rs`, or the fault of its path.
    pub(super) fn test_file(&self, path: &str) -> Result<&str, String> {
        let parts: Vec<&str> = path.split("::").collect();
        let (Some(name), Some(test)) = (parts.first(), parts.last().filter(|_| parts.len() > 1)) else {
            return Err(format!("`{path}` is no crate::test"));
        };
        let Some(files) = self.0.get(&((*name).to_owned(), (*test).to_owned())) else {
            return Err(format!("{name} has no test {test}"));
        };
        let within = |file: &&String| {
            parts[1..parts.len() - 1].iter().all(|part| file.split('/').any(|folder| folder == *part))
        };
        let found: Vec<&String> = files.iter().filter(within).collect();
        match found[..] {
            [] => Err(format!("{test} is in {}, not where `{path}` says", files.join(", "))),
            [file] => Ok(file),
            _ => Err(format!("{test} is in {}: name the file, too", files.join(", "))),
        }
    }
}

/// Returns the text behind `fn` if a line starts a function, of any visibility.
fn function_signature(line: &str) -> Option<&str> {
    let visible = line.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")).map(|(_, rest)| rest);
    let line = visible.unwrap_or(line);
    line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")
}

/// The names of a file's tests: functions with an attribute that ends in `test`.
fn tests_of(text: &str) -> Vec<&str> {
    let (mut found, mut marked) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(attribute) = line.strip_prefix("#[") {
            let name = attribute.split(['(', ']']).next().unwrap_or_default();
            marked |= name == "test" || name.ends_with("::test");
        } else if let Some(rest) = function_signature(line) {
            if marked {
                found.push(rest.split(['(', '<']).next().unwrap_or_default());
            }
            marked = false;
        } else if !line.starts_with("//") && !line.is_empty() {
            marked = false;
        }
    }
    found
}

/// Returns the faults of a page.
fn page_errors(page: &SourceFile, tests: &TestIndex) -> Vec<String> {
    let mut faults = Vec::new();
    let mut rows = 0;
    for (number, line) in page.text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        let mut fault = |what: &str| faults.push(format!("{}:{}: {what}", page.path, number + 1));
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells[0] == "RFC" || cells.iter().all(|c| c.chars().all(|c| c == '-')) {
            continue;
        }
        rows += 1;
        let [rfc, section, asked, held] = cells[..] else {
            fault(FORM);
            continue;
        };
        let of_rfc = rfc.strip_prefix("RFC ").is_some_and(|n| n.parse::<u16>().is_ok());
        let says = LEVELS.iter().any(|level| asked.strip_prefix(level).is_some_and(|rest| !rest.is_empty()));
        if !of_rfc || section.is_empty() || !says {
            fault(FORM);
        }
        // Every second piece stands between backquotes; the first one, and what has the form of a path, is a test.
        let first = usize::from(!held.starts_with('`'));
        let quoted = held.split('`').skip(1).step_by(2).enumerate();
        let named = quoted.filter(|(i, text)| i + first == 0 || text.contains("::"));
        named.filter_map(|(_, test)| tests.path_error(test)).for_each(|f| fault(&f));
        let reason = REASONS.iter().any(|r| held.strip_prefix(r).is_some_and(|why| !why.is_empty()));
        if !reason && !held.starts_with('`') {
            fault(FORM);
        }
    }
    if rows == 0 {
        faults.push(format!("{}: it has no row", page.path));
    }
    faults
}

#[test]
fn what_a_standard_asks_is_held_by_a_test_or_has_a_reason() {
    let sources = source_files();
    let crates: Vec<_> = workspace_crates().into_iter().map(|m| (m.name.replace('-', "_"), m.path)).collect();
    let tests = TestIndex::from_sources(&sources, &crates);
    let pages: Vec<&SourceFile> =
        sources.iter().filter(|s| s.path.starts_with("docs/reference/standards-")).collect();
    assert!(!pages.is_empty(), "docs/reference/standards-*.md are not there");
    let faults: Vec<String> = pages.iter().flat_map(|page| page_errors(page, &tests)).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn the_check_of_the_standards_finds_what_is_wrong() {
    let source = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into(), test: true };
    let file = "#[test]\nfn one() {}\n#[tokio::test(flavor = \"x\")]\n// why\nasync fn two() {}\n#[test]\npub(super) fn visible() {}\n#[cfg(test)]\nfn no() {}\nfn nor() {}";
    let sources = [source("a/src/x.rs", file), source("a/src/y.rs", "#[test]\nfn one() {}")];
    let tests = TestIndex::from_sources(&sources, &[("a".into(), "a".into())]);
    let wrong = |row: &str| page_errors(&source("docs/standards-x.md", row), &tests).len();
    for good in [
        "| RFC 1 | 2.1 | MUST: be | `a::two`, `a::visible` |",
        "| RFC 1 | 2.1 | SHOULD NOT: be | `a::x::one`, `a::two`, and more |",
        "| RFC 1 | 2.1 | MUST NOT: be | Not met: nobody is |",
        "| RFC 1 | 2.1 | MUST: be | `a::two`; by `[a] setting` |",
        "| RFC 1 | 2.1 | MUST: be | Not met: but for `this` (`a::two`) |",
    ] {
        assert_eq!(wrong(good), 0, "{good}");
    }
    for bad in [
        "",
        "| RFC 1 | 2.1 | be | `a::two` |",
        "| RFC | 2.1 | MUST: be |",
        "| rfc1 | 2.1 | MUST: be | `a::two` |",
        "| RFC 1 | 2.1 | MUST: be | |",
        "| RFC 1 | 2.1 | MUST: be | yes |",
        "| RFC 1 | 2.1 | MUST: be | Not met: |",
        "| RFC 1 | 2.1 | MUST: be | `a::one` |",
        "| RFC 1 | 2.1 | MUST: be | `a::z::one` |",
        "| RFC 1 | 2.1 | MUST: be | `a::two`, `a::no` |",
        "| RFC 1 | 2.1 | MUST: be | `a::nor` |",
        "| RFC 1 | 2.1 | MUST: be | `b::two` |",
        "| RFC 1 | 2.1 | MUST: be | `two` |",
        "| RFC 1 | 2.1 | MUST: be | `a::two`, `a::three` |",
        "| RFC 1 | 2.1 | MUST: be | Not met: but for `a::three` |",
    ] {
        assert_eq!(wrong(bad), 1, "{bad}");
    }
}
