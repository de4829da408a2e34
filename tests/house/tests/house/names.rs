//! Names and sentences: what a reader understands without asking. CONTRIBUTING.md has the rules, docs/glossary.md the words, and
//! `scripts/words` counts.

use crate::rules::assert_no_breach;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use usher_house::{SourceFile, source_files};

/// Types of one word: a standard's own term, or a word that everybody in the field reads alike. A new type has two words or more; add
/// a word here only where a second would say nothing.
const ONE_WORD_TYPES: &[(&str, &str)] = &[
    (
        "an RFC's term",
        "Alert Avp Binding Chunk Code Datagram Identification Lease Nai Packet Payload Pdu Prefix Proposal",
    ),
    ("an RFC's term", "Realm Segment Spi Supplicant Template Transform Tek Tlv"),
    ("a term of IEEE 802", "Bss Mihf Modulation Opcode Transaction"),
    ("an algorithm's name", "Bbr Cubic Rack Scoreboard"),
    ("a name of the kernel's", "Netlink"),
    ("what a study has", "Claim Metric Scenario Study Verdict Workload"),
    ("what Python sees", "Plan Results Stop"),
    (
        "a shape of this house",
        "Application Automaton Channel Driver Lab Ledger Machine Mailbox Shard Simulation Store Transmit User",
    ),
    (
        "a quantity",
        "Coordinate Dimension Direction Duration Instant Length Percentage Position Quantity Speed Trajectory",
    ),
    ("plain to everybody", "Fingerprint Reauthentication Script Seed Text"),
    ("its name goes into a digest of plans", "Relax"),
];

/// Words that say nothing of a type. Each stood in names that readers did not understand.
const EMPTY_WORDS: &[&str] = &[
    "Told",
    "Tells",
    "Telling",
    "Teller",
    "Asked",
    "Asks",
    "Asker",
    "Asking",
    "Said",
    "Says",
    "Say",
    "Heard",
    "Hears",
    "Hearer",
    "Kept",
    "Held",
    "Seen",
    "Whose",
    "Whom",
    "Who",
    "Which",
    "What",
    "Why",
    "Way",
    "Ways",
    "One",
    "Within",
    "Aside",
    "Beside",
    "Apart",
    "Elsewhere",
    "Nobody",
    "Somebody",
    "Whereabouts",
    "Owed",
    "Unsaid",
    "Untold",
    "Unheard",
    "Wished",
    "Deed",
    "Bell",
    "Rope",
    "Patience",
    "Plaything",
    "Parrot",
    "Meddler",
];
/// Types with such a word for a reason.
const WITH_EMPTY_WORDS: &[(&str, &str)] = &[
    ("AskerTable", "the table `[[asker]]` of ident.toml"),
    ("OneOrMore", "a file has one value or a list"),
    ("OneShotRole", "it ends after its first answer"),
];

/// The largest share of one-word functions that a crate may have, in per cent.
const ONE_WORD_FUNCTIONS: usize = 35;
/// Crates with more, and why.
const MORE_ONE_WORD_FUNCTIONS: &[(&str, usize, &str)] =
    &[("python", 70, "Python sees them: methods of classes and functions of a module")];

/// The most characters that a test's name may have.
const TEST_NAME: usize = 60;

/// The most words that a sentence may have. A colon or semicolon ends one, too; tables and code are left out.
const SENTENCE: usize = 30;
/// Words that begin a clause in place of a subject. A question may begin with them.
const FRONTED: &[&str] = &["What", "Who", "Whom", "Whose", "Of"];
/// Files whose texts are no sentences, and why.
const LONG_TEXTS: &[(&str, &str)] = &[
    ("studies/verify/src/sctp_presets.rs", "its texts are lists of packets"),
    ("tests/house/tests/house/names.rs", "it has examples"),
];

/// The name behind a keyword where a line defines something by it.
fn defined_name<'a>(line: &'a str, keywords: &[&str]) -> Option<&'a str> {
    let mut words = line.split_whitespace().peekable();
    while let Some(word) = words.next() {
        if keywords.contains(&word) {
            let name = words.next()?;
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            return (end > 0).then_some(&name[..end]);
        }
        let modifier = word.starts_with("pub")
            || ["unsafe", "const", "async", "extern", "\"C\"", "default"].contains(&word);
        if !modifier {
            return None;
        }
    }
    None
}

/// The words of a name in CamelCase or with underscores.
fn split_words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let letters: Vec<char> = name.chars().collect();
    for (i, &c) in letters.iter().enumerate() {
        let after_small = i > 0 && (letters[i - 1].is_lowercase() || letters[i - 1].is_numeric());
        let before_small = letters.get(i + 1).is_some_and(|next| next.is_lowercase());
        if c == '_' || words.is_empty() || c.is_uppercase() && (after_small || before_small) {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().expect("one was pushed").push(c);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Definitions of types, with file and line. Associated types are their trait's affair.
fn type_definitions(sources: &[SourceFile]) -> impl Iterator<Item = (&str, usize, &str)> {
    sources.iter().filter(|source| source.extension() == "rs").flat_map(|source| {
        source.text.lines().enumerate().filter_map(move |(i, line)| {
            let at_the_margin = !line.starts_with(' ');
            let keywords: &[&str] = if at_the_margin {
                &["struct", "enum", "trait", "union", "type"]
            } else {
                &["struct", "enum", "trait", "union"]
            };
            let name = defined_name(line, keywords)?;
            name.starts_with(char::is_uppercase).then_some((source.path.as_str(), i + 1, name))
        })
    })
}

#[test]
fn types_of_one_word_are_terms_of_the_field() {
    let sources = source_files();
    let allowed: BTreeSet<&str> = ONE_WORD_TYPES.iter().flat_map(|(_, words)| words.split(' ')).collect();
    let mut used = BTreeSet::new();
    let mut breaches = Vec::new();
    for (path, line, name) in type_definitions(&sources) {
        if split_words(name).len() > 1 {
            continue;
        }
        used.insert(name);
        if !allowed.contains(name) {
            breaches.push(format!(
                "{path}:{line}: {name} has one word: put the thing in front that it is of, as in {name}Table or Client{name}"
            ));
        }
    }
    breaches.extend(
        allowed
            .difference(&used)
            .map(|name| format!("no type is named {name} any more: take it off the list")),
    );
    assert_no_breach(breaches);
}

#[test]
fn types_have_no_empty_words() {
    let sources = source_files();
    let mut breaches = Vec::new();
    for (path, line, name) in type_definitions(&sources) {
        let exempt = WITH_EMPTY_WORDS.iter().any(|(other, _)| *other == name);
        if let Some(word) =
            split_words(name).iter().find(|word| !exempt && EMPTY_WORDS.contains(&word.as_str()))
        {
            breaches.push(format!(
                "{path}:{line}: {word} in {name} says nothing: docs/glossary.md has a word for the thing"
            ));
        }
    }
    assert_no_breach(breaches);
}

#[test]
fn functions_have_a_verb_and_its_object() {
    let output = std::process::Command::new("python3")
        .arg("scripts/words")
        .arg("--json")
        .current_dir(usher_house::repository_root())
        .output()
        .expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // A line for each number: `"one_word": 3` and `"names": 20` stand within `"functions"` within the crate's name.
    let text = String::from_utf8(output.stdout).expect("the counts are text");
    let (mut crate_name, mut kind, mut names) = (String::new(), String::new(), 0usize);
    let mut seen = 0;
    let mut breaches = Vec::new();
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        let Some((key, value)) = line.trim().trim_end_matches(',').split_once(": ") else { continue };
        let key = key.trim_matches('"');
        match (depth, key) {
            (1, _) => crate_name = key.to_owned(),
            (2, _) => kind = key.to_owned(),
            (3, "names") => names = value.parse().expect("a count"),
            (3, "one_word") if kind == "functions" => {
                let one_word: usize = value.parse().expect("a count");
                let exemption = MORE_ONE_WORD_FUNCTIONS.iter().find(|(name, ..)| *name == crate_name);
                let most = exemption.map_or(ONE_WORD_FUNCTIONS, |(_, most, _)| *most);
                seen += 1;
                if one_word * 100 > names * most {
                    breaches.push(format!("{crate_name}: {one_word} of {names} functions have one word, and {most} % may: name the object"));
                }
            }
            _ => {}
        }
    }
    assert!(seen > 40, "scripts/words counted {seen} crates");
    assert_no_breach(breaches);
}

#[test]
fn tests_have_names_that_fit_a_line() {
    let sources = source_files();
    let mut breaches = Vec::new();
    for source in sources.iter().filter(|source| source.extension() == "rs") {
        let lines: Vec<&str> = source.text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let Some(name) = defined_name(line, &["fn"]) else { continue };
            if name.len() > TEST_NAME {
                breaches.push(format!(
                    "{}:{}: {name} has {} characters of {TEST_NAME}",
                    source.path,
                    i + 1,
                    name.len()
                ));
            }
        }
    }
    assert_no_breach(breaches);
}

/// Sentences of a page outside of code and tables, with the line on which their paragraph begins.
fn page_sentences(text: &str) -> Vec<(usize, String)> {
    let (mut sentences, mut paragraph, mut begins, mut code) = (Vec::new(), String::new(), 0, false);
    let mut finish = |paragraph: &mut String, begins: usize| {
        for sentence in paragraph.split_inclusive(['.', '!', '?', ';', ':']).collect::<Vec<_>>() {
            sentences.push((begins, sentence.trim().to_owned()));
        }
        paragraph.clear();
    };
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("```") {
            code = !code;
            finish(&mut paragraph, begins);
            continue;
        }
        let item = line.starts_with("- ")
            || line.starts_with('#')
            || line.split_once(". ").is_some_and(|(n, _)| n.parse::<u32>().is_ok());
        if line.is_empty() || line.starts_with('|') || item {
            finish(&mut paragraph, begins);
        }
        if code || line.is_empty() || line.starts_with('|') {
            continue;
        }
        if paragraph.is_empty() {
            begins = i + 1;
        }
        paragraph.push_str(line);
        paragraph.push(' ');
    }
    finish(&mut paragraph, begins);
    sentences
}

/// Sentences of a file's doc comments, which are also the descriptions of commands, options and schemas.
fn doc_sentences(text: &str) -> Vec<(usize, String)> {
    let comment = |line: &str| {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
        doc.unwrap_or_default().to_owned() + "\n"
    };
    page_sentences(&text.lines().map(comment).collect::<String>())
}

/// Sentences of a file's texts: messages, log lines, findings. A text with blanks in a row is a table or a command with its
/// description, and one of few words has no sentence.
fn message_sentences(source: &SourceFile) -> Vec<(usize, String)> {
    let Ok(tokens) = source.text.parse::<TokenStream>() else { return Vec::new() };
    let end = source.product_lines().last().map_or(0, |(number, _)| number);
    let mut literals = Vec::new();
    collect_texts(tokens, &mut literals);
    let mut sentences = Vec::new();
    for (line, text) in literals.into_iter().filter(|(line, _)| *line <= end) {
        for part in text.lines().filter(|part| !part.contains("  ") && part.split_whitespace().count() > 4) {
            let parts = part.split_inclusive(['.', '!', '?', ';', ':']);
            sentences.extend(parts.map(|sentence| (line, sentence.trim().to_owned())));
        }
    }
    sentences
}

/// Collects the string literals of tokens with their lines, without documentation.
fn collect_texts(tokens: TokenStream, found: &mut Vec<(usize, String)>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let first = group.stream().into_iter().next();
                if first.is_none_or(|token| token.to_string() != "doc") {
                    collect_texts(group.stream(), found);
                }
            }
            TokenTree::Literal(literal) => {
                let line = literal.span().start().line;
                if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                    found.push((line, text.value()));
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// Returns the fault of a sentence, if it has one.
fn sentence_fault(sentence: &str) -> Option<String> {
    let words = sentence.split_whitespace().count();
    if words > SENTENCE {
        return Some(format!("{words} words of {SENTENCE}"));
    }
    let (first, rest) = sentence.split_once(' ')?;
    let is_clause = FRONTED.contains(&first) && rest.starts_with(|c: char| c.is_ascii_lowercase());
    (is_clause && !sentence.ends_with('?'))
        .then(|| format!("it begins with a clause by '{first}': name the thing"))
}

#[test]
fn sentences_are_short_and_begin_with_their_subject() {
    let sources = source_files();
    let mut breaches = Vec::new();
    for source in &sources {
        let sentences = match source.extension() {
            "md" => page_sentences(&source.text),
            "rs" if source.test => doc_sentences(&source.text),
            "rs" => [doc_sentences(&source.text), message_sentences(source)].concat(),
            _ => continue,
        };
        if LONG_TEXTS.iter().any(|(path, _)| source.path == *path) {
            continue;
        }
        for (line, sentence) in sentences {
            if let Some(fault) = sentence_fault(&sentence) {
                breaches.push(format!("{}:{line}: {fault}: {sentence}", source.path));
            }
        }
    }
    assert_no_breach(breaches);
}

#[test]
fn the_rules_find_what_they_look_for() {
    assert_eq!(split_words("TlsClientEngine"), ["Tls", "Client", "Engine"]);
    assert_eq!(split_words("IPv6Prefix"), ["I", "Pv6", "Prefix"]);
    assert_eq!(split_words("read_u8"), ["read", "u8"]);
    assert_eq!(split_words("Told"), ["Told"]);
    assert_eq!(defined_name("pub(crate) struct Told<'a> {", &["struct"]), Some("Told"));
    assert_eq!(defined_name("    pub const fn of(self) -> Self {", &["fn"]), Some("of"));
    assert_eq!(defined_name("let x = struct_of(y);", &["struct"]), None);
    let page =
        "# A page\n\nOne sentence. Another\none.\n\n| a table | of words |\n```\ncode. more code.\n```\n";
    let found: Vec<String> =
        page_sentences(page).into_iter().map(|(_, sentence)| sentence).filter(|s| !s.is_empty()).collect();
    assert_eq!(found, ["# A page", "One sentence.", "Another one."]);
    let code =
        "/// What it is\n/// called. Fine.\nfn f() { g(\"Of that nobody \\\n knows. It works here.\"); }\n";
    let source = SourceFile { path: "a/src/b.rs".into(), text: code.into(), test: false };
    let faults = |sentences: Vec<(usize, String)>| {
        sentences.iter().filter(|(_, sentence)| sentence_fault(sentence).is_some()).count()
    };
    assert_eq!(faults(doc_sentences(code)), 1);
    assert_eq!(faults(message_sentences(&source)), 1);
    assert_eq!(sentence_fault("What is it?"), None);
    assert!(sentence_fault(&"word ".repeat(SENTENCE + 1)).is_some());
}
