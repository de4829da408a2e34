//! The rules. Each failure names the place and what to do.

use std::collections::BTreeSet;
use std::process::Command;
use usher_house::{
    ENVIRONMENT, NOT_IN_PRODUCTS, PRODUCTS, SIBLINGS, SourceFile, UNFUZZED, UNSAFE, repository_root,
    source_files, workspace_crates,
};

/// Fails with every breach, one a line.
#[track_caller]
pub(crate) fn assert_no_breach(breaches: Vec<String>) {
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

/// Lines of these files' code that hold one of the patterns.
fn lines_with(files: &[&SourceFile], patterns: &[&str], what_to_do: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    for file in files {
        for (number, line) in file.product_lines() {
            if let Some(pattern) = patterns.iter().find(|p| line.contains(**p)) {
                breaches.push(format!("{}:{number}: `{pattern}`: {what_to_do}", file.path));
            }
        }
    }
    breaches
}

fn code_of<'a>(sources: &'a [SourceFile], floors: &[&str]) -> Vec<&'a SourceFile> {
    let within = |s: &&SourceFile| floors.iter().any(|f| s.path.starts_with(&format!("{f}/")));
    let exempt = |s: &&SourceFile| ENVIRONMENT.iter().any(|(path, _)| s.path.starts_with(path));
    sources.iter().filter(|s| s.extension() == "rs" && !s.test && within(s) && !exempt(s)).collect()
}

#[test]
fn dependencies_point_down() {
    let members = workspace_crates();
    let mut breaches = Vec::new();
    for member in &members {
        let Some(floor) = member.floor_index() else { continue };
        for (used, tests_only) in member.used_crates() {
            let Some(other) = members.iter().find(|m| m.name == used) else {
                breaches.push(format!("{}: {used} is no member of the workspace", member.name));
                continue;
            };
            let sibling = SIBLINGS.iter().any(|(a, b, _)| member.matches_entry(a) && *b == used);
            match other.floor_index() {
                Some(below) if below < floor => {}
                Some(same) if same == floor && (sibling || tests_only) => {}
                Some(same) if same == floor => breaches.push(format!(
                    "{} uses its sibling {used}: move what they share one floor down, or, where one protocol \
                     carries the other, list the pair in tests/house/src/lib.rs with the reason",
                    member.name
                )),
                _ => breaches.push(format!(
                    "{} uses {used}, which is above it: hand the value in, or move the code up",
                    member.name
                )),
            }
        }
    }
    assert_no_breach(breaches);
}

#[test]
fn products_are_made_without_the_laboratory() {
    let members = workspace_crates();
    let find = |name: &str| members.iter().find(|m| m.name == name);
    let mut breaches: Vec<String> = PRODUCTS
        .iter()
        .chain(&NOT_IN_PRODUCTS)
        .filter(|name| find(name).is_none())
        .map(|name| format!("tests/house/src/lib.rs: there is no crate {name}"))
        .collect();
    for product in PRODUCTS {
        let mut path = vec![product];
        let mut seen = BTreeSet::new();
        while let Some(name) = path.pop() {
            let Some(member) = find(name) else { continue };
            let above = member.path.starts_with("studies/");
            if above || NOT_IN_PRODUCTS.contains(&name) {
                breaches.push(format!("{product} needs {name}, which is no part of a product"));
            }
            let used = member.used_crates().into_iter().filter(|(_, tests_only)| !tests_only);
            path.extend(used.map(|(name, _)| name).filter(|name| seen.insert(*name)));
        }
    }
    assert_no_breach(breaches);
}

#[test]
fn protocols_and_services_know_no_environment() {
    let sources = source_files();
    let files = code_of(&sources, &["protocols", "services"]);
    let patterns = [
        "std::time",
        "std::net",
        "std::thread",
        "std::fs",
        "std::env",
        "std::io",
        "std::process",
        "std::sync",
        "println!",
        "print!(",
        "eprint",
        "SystemTime",
        "Instant::now",
        "tokio",
        "getrandom",
        "thread_rng",
    ];
    assert_no_breach(lines_with(
        &files,
        &patterns,
        "the lower floors are sans-IO: take time, chance and input as arguments, give output back \
         (addresses are core::net's)",
    ));
}

#[test]
fn protocol_crates_are_no_std() {
    let mut breaches = Vec::new();
    for member in workspace_crates().iter().filter(|m| m.floor_index() == Some(0)) {
        let path = format!("{}/src/lib.rs", member.path);
        let text = std::fs::read_to_string(repository_root().join(&path)).expect("a library has a lib.rs");
        let no_std = |line: &str| line.starts_with("#![cfg_attr(not(") && line.ends_with(", no_std)]");
        if !text.lines().any(no_std) {
            breaches.push(format!("{path}: add #![cfg_attr(not(test), no_std)], and use core and alloc"));
        }
    }
    assert_no_breach(breaches);
}

#[test]
fn protocol_crates_import_nothing_in_a_browser() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut breaches = Vec::new();
    for member in workspace_crates().iter().filter(|m| m.floor_index() == Some(0)) {
        let tree = Command::new(&cargo)
            .args([
                "tree",
                "--locked",
                "--offline",
                "--no-default-features",
                "--edges",
                "normal",
                "--prefix",
                "none",
            ])
            .args(["--target", "wasm32-unknown-unknown", "--format", "{lib}", "--package", &member.name])
            .current_dir(repository_root())
            .output()
            .expect("cargo runs");
        assert!(tree.status.success(), "cargo tree: {}", String::from_utf8_lossy(&tree.stderr));
        let used: BTreeSet<String> =
            String::from_utf8_lossy(&tree.stdout).lines().map(|l| l.trim().to_owned()).collect();
        assert!(used.contains(&member.name.replace('-', "_")), "cargo tree names the crate itself: {used:?}");
        for refused in
            ["wasm_bindgen", "js_sys", "web_sys", "getrandom", "web_time", "wasi", "libc", "rustls"]
        {
            if used.contains(refused) {
                breaches.push(format!(
                    "{} brings in {refused}, which asks its environment: switch the feature off that wants it",
                    member.name
                ));
            }
        }
    }
    assert_no_breach(breaches);
}

#[test]
fn nothing_is_unsafe() {
    let sources = source_files();
    let rust: Vec<&SourceFile> =
        sources.iter().filter(|s| s.extension() == "rs" && !s.path.starts_with("tests/house/")).collect();
    let rust: Vec<&SourceFile> =
        rust.into_iter().filter(|s| !UNSAFE.iter().any(|(path, _)| s.path == *path)).collect();
    let patterns = [
        "unsafe {",
        "unsafe fn",
        "unsafe impl",
        "unsafe extern",
        "unsafe trait",
        "allow(unsafe_code)",
        "expect(unsafe_code)",
    ];
    assert_no_breach(lines_with(&rust, &patterns, "there is no unsafe code in the house: find the safe way"));
}

#[test]
fn hash_maps_below_the_studies_have_a_fixed_hasher() {
    let sources = source_files();
    let files = code_of(&sources, &["protocols", "services", "networks"]);
    let mut breaches = Vec::new();
    for file in files {
        for (number, line) in file.product_lines() {
            let of_std = line.contains("std::collections") && (line.contains("Hash") || line.contains('*'));
            if of_std || line.contains("RandomState") {
                breaches.push(format!(
                    "{}:{number}: a map seeded by the system: use usher_core::collections",
                    file.path
                ));
            }
        }
    }
    assert_no_breach(breaches);
}

#[test]
fn files_are_one_room() {
    let too_long =
        |s: &SourceFile| (s.extension() == "rs").then(|| s.text.lines().count()).filter(|n| *n > 900);
    let breach = |s: &SourceFile| {
        too_long(s)
            .map(|n| format!("{}: {n} lines, at most 900: it is more than one room, so divide it", s.path))
    };
    assert_no_breach(source_files().iter().filter_map(breach).collect());
}

#[test]
fn nothing_is_left_for_later() {
    let mut breaches = Vec::new();
    for file in source_files() {
        if file.path.starts_with("tests/house/")
            || !matches!(file.extension(), "rs" | "sh" | "py" | "js" | "")
        {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            let marks = [
                "todo!(",
                "unimplemented!(",
                "dbg!(",
                "#[ignore",
                "allow(dead_code)",
                "allow(unused",
                "TODO",
                "FIXME",
                "XXX",
            ];
            if let Some(mark) = marks.iter().find(|m| line.contains(**m)) {
                breaches.push(format!("{}:{}: `{mark}`: do it now, or leave it out", file.path, number + 1));
            }
        }
    }
    assert_no_breach(breaches);
}

/// Texts that mean something on one machine or to one tracker only.
#[test]
fn texts_stand_by_themselves() {
    let mut breaches = Vec::new();
    for file in source_files() {
        if file.path.starts_with("tests/house/") || file.path == ".gitignore" {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            let lower = line.to_lowercase();
            let numbered = lower.match_indices("issue ").any(|(at, word)| {
                lower[at + word.len()..].trim_start_matches('#').starts_with(|c: char| c.is_ascii_digit())
            });
            if numbered {
                breaches.push(format!(
                    "{}:{}: a tracker's number says nothing to a reader: say what it is about",
                    file.path,
                    number + 1
                ));
            }
            if ["<<<<<<< ", ">>>>>>> "].iter().any(|mark| line.starts_with(mark)) {
                breaches.push(format!("{}:{}: a merge left both sides here", file.path, number + 1));
            }
            if let Some(path) = foreign_path(line) {
                breaches.push(format!(
                    "{}:{}: {path} is a folder of one machine: name files from the root of the repository",
                    file.path,
                    number + 1
                ));
            }
        }
    }
    assert_no_breach(breaches);
}

/// An absolute path on the line that no usual system has.
fn foreign_path(line: &str) -> Option<&str> {
    const USUAL: [&str; 13] =
        ["bin", "boot", "dev", "etc", "lib", "opt", "proc", "run", "sbin", "sys", "tmp", "usr", "var"];
    let begins = |at: usize| line[..at].chars().next_back().is_none_or(|c| " \"'`(=".contains(c));
    line.match_indices('/').filter(|(at, _)| begins(*at)).find_map(|(at, _)| {
        let rest = &line[at..];
        let end =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && !"/._-".contains(c)).unwrap_or(rest.len());
        let path = &rest[..end];
        let mut parts = path.split('/').skip(1);
        let (first, second) = (parts.next()?, parts.next()?);
        let words = first.starts_with(|c: char| c.is_ascii_lowercase()) && first.len() > 2;
        let own = repository_root().join(first).exists();
        (words && !second.is_empty() && !USUAL.contains(&first) && !own).then_some(path)
    })
}

/// Files and folders that a page names are there.
#[test]
fn paths_that_pages_name_exist() {
    let mut breaches = Vec::new();
    let all = source_files();
    for file in all.iter().filter(|file| file.extension() == "md" && file.path != "CHANGELOG.md") {
        for (number, line) in file.text.lines().enumerate() {
            for path in line.split('`').skip(1).step_by(2).filter(|piece| names_path(piece)) {
                let path = path.trim_end_matches('/');
                if !all.iter().any(|f| f.path == path || f.path.starts_with(&format!("{path}/"))) {
                    breaches.push(format!("{}:{}: there is no {path}", file.path, number + 1));
                }
            }
        }
    }
    assert_no_breach(breaches);
}

/// Whether a piece of code in a page is the path of one of the project's own files or folders of source.
fn names_path(piece: &str) -> bool {
    const FLOORS: [&str; 5] = ["protocols/", "services/", "networks/", "studies/", "cli/"];
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    FLOORS.iter().any(|floor| piece.starts_with(floor)) && piece.chars().all(plain) && !piece.contains("NAME")
}

#[test]
fn every_crate_takes_the_workspace_lints() {
    let own =
        |m: &usher_house::WorkspaceCrate| m.manifest.get("lints").and_then(|l| l.get("workspace")?.as_bool());
    let breach = |m: &usher_house::WorkspaceCrate| {
        (own(m) != Some(true)).then(|| format!("{}/Cargo.toml: add [lints] workspace = true", m.path))
    };
    assert_no_breach(workspace_crates().iter().filter_map(breach).collect());
}

#[test]
fn every_codec_is_fuzzed() {
    let root = repository_root();
    let mut texts = String::new();
    for entry in std::fs::read_dir(root.join("fuzz/src")).expect("there are fuzz targets").flatten() {
        texts.push_str(&std::fs::read_to_string(entry.path()).expect("a target can be read"));
    }
    let mut breaches = Vec::new();
    for member in workspace_crates() {
        let codec = member.floor_index() == Some(0) && !UNFUZZED.iter().any(|(name, _)| *name == member.name);
        let ident = member.name.replace('-', "_");
        if codec && !texts.contains(&format!("{ident}::")) {
            breaches.push(format!("{}: no fuzz target calls it: write one in fuzz/src/lib.rs", member.name));
        }
        let Ok(text) = std::fs::read_to_string(root.join(&member.path).join("src/fuzz.rs")) else { continue };
        for line in text.lines().filter_map(|l| l.strip_prefix("pub fn ")) {
            let function = line.split('(').next().unwrap_or_default();
            if !texts.contains(&format!("{ident}::fuzz::{function}")) {
                breaches.push(format!(
                    "{ident}::fuzz::{function} is in no fuzz target: write one in fuzz/src/lib.rs"
                ));
            }
        }
    }
    assert_no_breach(breaches);
}

/// A crate whose manifest keeps its library from being built for tests, or its examples from being run, has none.
#[test]
fn no_test_is_left_out() {
    let says = |m: &usher_house::WorkspaceCrate, key: &str| {
        m.manifest.get("lib").and_then(|lib| lib.get(key)?.as_bool()) == Some(false)
    };
    let sources = source_files();
    let mut breaches = Vec::new();
    for member in workspace_crates() {
        let own = format!("{}/src/", member.path);
        for file in sources.iter().filter(|s| s.extension() == "rs" && s.path.starts_with(&own)) {
            if says(&member, "test") && file.text.contains("#[test]") {
                breaches.push(format!("{}: {}/Cargo.toml says test = false", file.path, member.path));
            }
            if says(&member, "doctest") && has_example(&file.text) {
                breaches.push(format!("{}: {}/Cargo.toml says doctest = false", file.path, member.path));
            }
        }
    }
    assert_no_breach(breaches);
}

/// Whether the documentation in a file has Rust in a fence.
fn has_example(text: &str) -> bool {
    let docs = text.lines().map(str::trim).filter_map(|l| l.strip_prefix("///").or(l.strip_prefix("//!")));
    // The first of each pair of fences names the language.
    let mut languages = docs.filter_map(|l| l.trim().strip_prefix("```")).step_by(2);
    languages.any(|language| !matches!(language, "text" | "toml" | "json" | "sh"))
}

#[test]
fn exemptions_are_still_needed() {
    let members = workspace_crates();
    let mut breaches = Vec::new();
    for (user, used, reason) in SIBLINGS {
        let uses = |m: &usher_house::WorkspaceCrate| {
            m.matches_entry(user) && m.used_crates().iter().any(|(name, _)| name == used)
        };
        if reason.is_empty() || !members.iter().any(uses) {
            breaches.push(format!(
                "tests/house/src/lib.rs: {user} does not use {used} any more: remove the pair"
            ));
        }
    }
    for (path, reason) in ENVIRONMENT {
        let there =
            repository_root().join(path).exists() || repository_root().join(format!("{path}.rs")).exists();
        if reason.is_empty() || !there {
            breaches
                .push(format!("tests/house/src/lib.rs: {path} is not there any more: remove the exemption"));
        }
    }
    assert_no_breach(breaches);
}

#[test]
fn each_bench_says_how_it_is_used() {
    let mut breaches = Vec::new();
    let files = std::fs::read_dir(repository_root().join("benches/peers")).expect("benches/peers is there");
    for path in
        files.map(|file| file.expect("it can be listed").path()).filter(|path| path.extension().is_none())
    {
        let said =
            Command::new("python3").args(["-B".as_ref(), path.as_os_str(), "--help".as_ref()]).output();
        let said = said.expect("python3 is there: scripts/setup test installs it");
        if !said.status.success() || !said.stdout.starts_with(b"usage:") {
            let why = String::from_utf8_lossy(&said.stderr);
            breaches.push(format!("{}: --help does not say: {why}", path.display()));
        }
    }
    assert_no_breach(breaches);
}

/// The fault of a commit's title, if it has one.
fn title_fault(title: &str) -> Option<&'static str> {
    let is_room = |room: &str| {
        room.starts_with(|c: char| c.is_ascii_lowercase())
            && room.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || " _./,-".contains(c))
    };
    match title.split_once(": ") {
        _ if title.chars().count() > 72 => Some("more than 72 characters"),
        Some((room, what)) if is_room(room) && !what.is_empty() => None,
        _ => Some("not of the form `room: what`"),
    }
}

#[test]
fn titles_of_commits_name_the_room_and_fit_a_line() {
    // The archive of a release has no commits.
    if !repository_root().join(".git").exists() {
        return;
    }
    // The owner of a checkout may be another user than the tests'.
    let said = Command::new("git")
        .args(["-c", "safe.directory=*", "log", "--no-merges", "--max-count=20", "--format=%s"])
        .current_dir(repository_root())
        .output()
        .expect("git runs");
    assert!(said.status.success(), "{said:?}");
    let titles = String::from_utf8(said.stdout).expect("titles are text");
    assert!(titles.lines().count() > 0, "a checkout has a commit");
    let breaches = titles.lines().filter_map(|title| Some(format!("{title}: {}", title_fault(title)?)));
    assert_no_breach(breaches.collect());
}

#[test]
fn the_rules_find_what_they_look_for() {
    assert_eq!(title_fault("pppoe import: a line without a name"), None);
    assert_eq!(title_fault("Mend the importer"), Some("not of the form `room: what`"));
    assert_eq!(title_fault(&format!("words: {}", "x".repeat(70))), Some("more than 72 characters"));
    assert_eq!(foreign_path("see /home/someone/notes"), Some("/home/someone/notes"));
    assert!(has_example("/// ```text\n/// a\n/// ```\n/// ```\n/// let b = 1;\n/// ```\n"));
    assert!(
        names_path("networks/live/src/driver.rs")
            && !names_path("protocols/NAME")
            && !names_path("cli serve")
    );
    assert!(!has_example("/// ```text\n/// let a = 1;\n/// ```\n"));
    assert_eq!(foreign_path("/proc/self/status and 10 /s, and/or, `/dev/full`"), None);
    let source = SourceFile {
        path: "protocols/x/src/a.rs".to_owned(),
        test: false,
        text: "use std::fs; // std::env\n#[cfg(test)]\nmod tests {\n    use std::net;\n}\n".to_owned(),
    };
    let found = lines_with(&[&source], &["std::fs", "std::env", "std::net"], "no");
    assert_eq!(found, ["protocols/x/src/a.rs:1: `std::fs`: no"]);
}
