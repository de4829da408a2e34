//! The file `users`, also known as `mods-config/files/authorize`.
//!
//! FreeRADIUS reads the file from top to bottom. It takes the first entry that matches, and further ones while
//! `Fall-Through = Yes`. Here a user has rows, and groups that add theirs if their checks hold. So a named entry
//! becomes a user. A `DEFAULT` entry becomes a group of the users who would reach it.
//!
//! [`items`] classifies one `Attribute operator value`. [`gather`] combines entries, and stops the import if users
//! would reach an entry in FreeRADIUS that is missing here.

mod gather;
mod items;

use super::ImportIssue;
use super::words::{ImportValue, WordReader};
use items::{CheckItem, ReplyRowImport};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use usher_aaa::store::{AttributeRow, GroupRows, RowOperator, UserRows};
use usher_radius::dictionary::RadiusDictionary;

/// The content of a users file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsersFile {
    /// Users by name, in the order of the file, each name once. Their groups have names only.
    pub users: Vec<(String, UserRows)>,
    /// Their groups, made of DEFAULT entries: `default-line-N-DIGEST`.
    pub groups: Vec<GroupRows>,
}

/// Reads an included file. The error text says why that fails.
pub type IncludeFileReader<'a> = dyn FnMut(&Path) -> Result<String, String> + 'a;

/// The settings of an import.
pub struct UsersImport<'a> {
    /// The known attributes.
    pub dictionary: &'a RadiusDictionary,
    /// The path of the file. Relative includes start at its folder, and it distinguishes groups of different files.
    pub file: PathBuf,
    /// True: leave out reply rows that cannot be imported, instead of stopping.
    pub leave_out: bool,
    /// Opens the files of `$INCLUDE`. `None`: an include stops the import.
    pub open: Option<&'a mut IncludeFileReader<'a>>,
}

impl fmt::Debug for UsersImport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsersImport")
            .field("file", &self.file)
            .field("leave_out", &self.leave_out)
            .finish_non_exhaustive()
    }
}

impl<'a> UsersImport<'a> {
    /// Creates an import with these attributes, without includes.
    #[must_use]
    pub fn new(dictionary: &'a RadiusDictionary) -> Self {
        Self { dictionary, file: PathBuf::new(), leave_out: false, open: None }
    }

    /// Reads the text of the file.
    ///
    /// Imported entries mean the same as in FreeRADIUS, and the others are reported. If an imported user would reach
    /// a missing entry in FreeRADIUS, an issue stops the import.
    #[must_use]
    pub fn read_text(self, text: &str) -> (UsersFile, Vec<ImportIssue>) {
        let mut reader = UsersReader {
            path: vec![self.file.clone()],
            import: self,
            file: None,
            files: 1,
            included: 0,
            entries: Vec::new(),
            open: None,
            promised: None,
            complaints: Vec::new(),
        };
        reader.read_text(text);
        gather::gather_users(reader.import, reader.entries, reader.complaints)
    }
}

/// Reads the text of a users file without includes; see [`UsersImport`].
#[must_use]
pub fn users_file(text: &str, dictionary: &RadiusDictionary) -> (UsersFile, Vec<ImportIssue>) {
    UsersImport::new(dictionary).read_text(text)
}

/// The limits of include depth and of files, the same as for dictionaries.
const MAX_DEPTH: usize = 16;
const MAX_FILES: usize = 1024;

/// The longest line in octets, its end included. FreeRADIUS does not load a file with a longer one.
const MAX_LINE: usize = 8191;

/// The octets of all included files, at most.
const MAX_INCLUDED: usize = 64 << 20;

/// A line of the file or of an included one.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FilePosition {
    file: Option<Arc<str>>,
    line: usize,
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "line {} of {file}", self.line),
            None => write!(f, "line {}", self.line),
        }
    }
}

/// The state of an entry in the import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EntryImportState {
    Usable,
    /// A condition was not understood.
    Lost,
    /// It never matches in FreeRADIUS.
    Never,
}

/// One entry of the file.
#[derive(Debug)]
struct UserEntry {
    position: FilePosition,
    name: String,
    check: Vec<AttributeRow>,
    reply: Vec<AttributeRow>,
    /// The first value counts.
    fall_through: Option<bool>,
    state: EntryImportState,
    /// True if it rejects all users that it matches.
    rejects: bool,
    /// True if it accepts all users that it matches (`Auth-Type := Accept`).
    accepts: bool,
    /// True if all its conditions are `Hint == ...`, which were not understood.
    by_hint: bool,
    /// The attributes of its reply, by [`items::reply_attribute_key`].
    reply_keys: BTreeSet<String>,
    /// The attributes that occur several times.
    doubled: BTreeSet<String>,
    /// The rows of its reply that were not understood.
    lost_replies: Vec<SkippedReplyRow>,
}

/// A reply row that cannot be imported.
#[derive(Debug)]
struct SkippedReplyRow {
    position: FilePosition,
    row_text: String,
    /// True if it is a message to people, and restricts nothing.
    is_message: bool,
}

impl UserEntry {
    fn is_default(&self) -> bool {
        self.name == "DEFAULT"
    }
    fn does_fall_through(&self) -> bool {
        self.fall_through == Some(true)
    }
    /// True if it matches only some requests.
    fn is_conditional(&self) -> bool {
        self.check.iter().any(|row| !items::is_control(&row.attribute))
    }
}

struct UsersReader<'a> {
    import: UsersImport<'a>,
    /// The open files, each included by the one before.
    path: Vec<PathBuf>,
    /// The included file that is being read.
    file: Option<Arc<str>>,
    files: usize,
    /// The octets of the included files.
    included: usize,
    entries: Vec<UserEntry>,
    open: Option<UserEntry>,
    /// The line of the last row, if its comma announces another.
    promised: Option<usize>,
    complaints: Vec<ImportIssue>,
}

impl UsersReader<'_> {
    fn read_text(&mut self, text: &str) {
        for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
            self.read_line(line, number);
        }
        self.end_entry();
    }

    fn position_at(&self, line: usize) -> FilePosition {
        FilePosition { file: self.file.clone(), line }
    }

    fn report_issue(&mut self, line: usize, what: impl Into<String>) {
        self.complaints.push(ImportIssue {
            file: self.file.clone(),
            line,
            message: what.into(),
            stops: false,
        });
    }

    /// Reports an issue that stops the import.
    fn report_fatal_issue(&mut self, line: usize, what: impl Into<String>) {
        self.complaints.push(ImportIssue {
            file: self.file.clone(),
            line,
            message: what.into(),
            stops: true,
        });
    }

    fn read_line(&mut self, line: &str, number: usize) {
        if line.len() >= MAX_LINE {
            let what = format!(
                "the line has {} octets, but FreeRADIUS reads {} at most; nothing was imported",
                line.len(),
                MAX_LINE - 1
            );
            return self.report_fatal_issue(number, what);
        }
        if WordReader::new(line).is_at_end() {
            return;
        }
        if line.starts_with(|c: char| c.is_whitespace()) {
            self.read_reply(line, number);
        } else {
            self.end_entry();
            self.begin_entry(line, number);
        }
    }

    /// `$INCLUDE FILE`: inserts its entries here.
    fn include_file(&mut self, mut words: WordReader<'_>, number: usize) {
        const LOST: &str = "nothing was imported, since entries of that file may reject users";
        let name = match words.take_name() {
            Ok(name) if !name.text.is_empty() => name.text,
            _ => return self.report_fatal_issue(number, format!("$INCLUDE names no readable file: {LOST}")),
        };
        let Some(open) = &mut self.import.open else {
            return self.report_fatal_issue(
                number,
                format!("$INCLUDE {name}: included files are not read here: {LOST}"),
            );
        };
        let folder = self.path.last().and_then(|file| file.parent()).unwrap_or(Path::new(""));
        let file = folder.join(&name);
        if self.path.contains(&file) || self.path.len() >= MAX_DEPTH || self.files >= MAX_FILES {
            let why = format!(
                "$INCLUDE {name}: a file includes itself, includes are more than {MAX_DEPTH} deep, or there are more \
                 than {MAX_FILES} files: {LOST}"
            );
            return self.report_fatal_issue(number, why);
        }
        let text = match open(&file) {
            Ok(text) => text,
            Err(why) => return self.report_fatal_issue(number, format!("$INCLUDE {name}: {why}: {LOST}")),
        };
        self.included += text.len();
        if self.included > MAX_INCLUDED {
            let why = format!("$INCLUDE {name}: the included files exceed 64 MiB in all: {LOST}");
            return self.report_fatal_issue(number, why);
        }
        let outer = self.file.replace(file.to_string_lossy().into());
        self.path.push(file);
        self.files += 1;
        self.read_text(&text);
        self.path.pop();
        self.file = outer;
    }

    fn begin_entry(&mut self, line: &str, number: usize) {
        let mut words = WordReader::new(line);
        let name = words.take_name();
        if matches!(&name, Ok(name) if name.text.eq_ignore_ascii_case("$INCLUDE")) {
            return self.include_file(words, number);
        }
        // Note whether this entry rejects: if it is left out, another file may import a user that it rejects.
        let rest = if name.is_ok() { words.remaining_text() } else { line };
        let rejects = rest.to_ascii_lowercase().contains("reject");
        let lost = |this: &mut Self, why: &str| match rejects {
            true => this.report_fatal_issue(number, format!("{why}: the entry was left out{TURNS_AWAY}")),
            false => this.report_issue(number, format!("{why}: the entry was left out")),
        };
        let name = match name {
            Ok(name) if !name.text.is_empty() => name.text,
            Ok(_) => return lost(self, "a user's name is empty"),
            Err(why) => return lost(self, why),
        };
        let mut entry = UserEntry {
            position: self.position_at(number),
            name,
            check: Vec::new(),
            reply: Vec::new(),
            fall_through: None,
            state: EntryImportState::Usable,
            rejects: false,
            accepts: false,
            by_hint: true,
            reply_keys: BTreeSet::new(),
            doubled: BTreeSet::new(),
            lost_replies: Vec::new(),
        };
        let mut broken = false;
        while !words.is_at_end() {
            let (attribute, op, value) = match parse_item(&mut words) {
                Ok(item) => item,
                Err(why) => {
                    self.report_issue(number, why);
                    broken = true;
                    break;
                }
            };
            entry.by_hint &= items::is_hint_row(&attribute, op, &value);
            self.add_check_item(&mut entry, number, &attribute, op, &value);
            if !words.take_char(',') {
                if !words.is_at_end() {
                    broken = true;
                    let what = format!(
                        "a comma is missing before {:?}: the entry of {:?} was left out",
                        shorten_text(words.remaining_text()),
                        entry.name
                    );
                    self.report_issue(number, what);
                }
                break;
            }
            if words.is_at_end() {
                self.report_issue(
                    number,
                    "the comma at the end of the line was ignored: an entry has all its conditions on one line",
                );
            }
        }
        if broken {
            entry.state = EntryImportState::Lost;
            entry.by_hint = false;
        }
        self.merge_entry_settings(&mut entry, number);
        entry.rejects |= rejects && entry.state == EntryImportState::Lost;
        self.open = Some(entry);
    }

    /// Adds one condition or setting of an entry's first line.
    fn add_check_item(
        &mut self,
        entry: &mut UserEntry,
        number: usize,
        attribute: &str,
        op: RowOperator,
        value: &ImportValue,
    ) {
        match items::classify_check(attribute, op, value, self.import.dictionary) {
            CheckItem::Import { row, note } => {
                if is_one_of(&row.attribute, &["Auth-Type"]) {
                    entry.rejects |= is_one_of(&row.value, &["Reject", "4"]);
                    entry.accepts |= is_one_of(&row.value, &["Accept", "254"]);
                }
                if let Some(note) = note {
                    self.report_issue(number, format!("{attribute} of {:?}: {note}", entry.name));
                }
                entry.check.push(row);
            }
            CheckItem::Pass(why) => self.report_issue(number, format!("{why}; it was left out")),
            CheckItem::Never(why) => {
                if entry.state == EntryImportState::Usable {
                    entry.state = EntryImportState::Never;
                }
                self.report_issue(
                    number,
                    format!(
                        "{why}; the entry of {:?} was left out, since it never matches in FreeRADIUS",
                        entry.name
                    ),
                );
            }
            CheckItem::Lose(why) => {
                entry.state = EntryImportState::Lost;
                self.report_issue(
                    number,
                    format!(
                        "{why}; the entry of {:?} was left out, since without this it would accept more logins",
                        entry.name
                    ),
                );
            }
        }
    }

    /// Combines the settings of an entry.
    fn merge_entry_settings(&mut self, entry: &mut UserEntry, number: usize) {
        if entry.state != EntryImportState::Usable {
            return;
        }
        let mut kept: Vec<AttributeRow> = Vec::new();
        // The list has the indexes of settings in `kept`. Each setting occurs there once.
        let mut settings: Vec<usize> = Vec::new();
        for row in std::mem::take(&mut entry.check) {
            let is_same = |n: &&usize| items::has_same_control_subject(&kept[**n].attribute, &row.attribute);
            let Some(same) = settings.iter().find(is_same).copied() else {
                if items::is_control(&row.attribute) {
                    settings.push(kept.len());
                }
                kept.push(row);
                continue;
            };
            let first = &kept[same].attribute;
            if !is_one_of(first, &[&row.attribute]) {
                entry.state = EntryImportState::Lost;
                let what = format!(
                    "{} beside {first}: the method decides which one counts; the entry of {:?} was left out",
                    row.attribute, entry.name
                );
                return self.report_issue(number, what);
            }
            entry.doubled.insert(row.attribute.to_ascii_lowercase());
            if is_one_of(&row.attribute, &["Auth-Type"]) {
                self.report_issue(
                    number,
                    "Auth-Type occurs twice: FreeRADIUS takes the last one, or a Reject at any place; the other was \
                     left out",
                );
                if !is_one_of(&kept[same].value, &["Reject", "4"]) {
                    kept[same] = row;
                }
            } else {
                let what = format!(
                    "{} occurs twice: FreeRADIUS takes the first one; the second was left out",
                    row.attribute
                );
                self.report_issue(number, what);
            }
        }
        entry.check = kept;
    }

    fn read_reply(&mut self, line: &str, number: usize) {
        if self.open.is_none() {
            return self
                .report_issue(number, "the indented line was left out: no readable entry is above it");
        }
        if self.promised.is_none() && self.open.as_ref().is_some_and(|e| !e.reply.is_empty()) {
            self.report_issue(
                number,
                "the line before does not end with a comma, so FreeRADIUS would not read this one; it was imported",
            );
        }
        self.promised = None;
        let mut words = WordReader::new(line);
        let at = self.position_at(number);
        while !words.is_at_end() {
            let (attribute, op, value) = match parse_item(&mut words) {
                Ok(item) => item,
                Err(what) => {
                    return self.lose_reply(SkippedReplyRow {
                        position: at,
                        row_text: what,
                        is_message: false,
                    });
                }
            };
            let item = items::classify_reply(&attribute, op, &value, self.import.dictionary);
            let Some(entry) = &mut self.open else { return };
            match item {
                ReplyRowImport::FallThrough(yes) => {
                    entry.fall_through.get_or_insert(yes);
                }
                // Report every row, so that an operator does not rely on a missing filter or VLAN.
                ReplyRowImport::Import { row, .. } if entry.state != EntryImportState::Usable => {
                    let whole = format!(
                        "{}: this row was left out with the entry of {:?} at {}",
                        row.attribute, entry.name, entry.position
                    );
                    entry.reply.push(row);
                    self.report_issue(number, whole);
                }
                ReplyRowImport::Import { mut row, note } => {
                    let key = items::reply_attribute_key(&row.attribute, self.import.dictionary);
                    if !entry.reply_keys.insert(key.clone()) {
                        // In FreeRADIUS an operator applies only to the reply list of earlier entries, so a doubled
                        // attribute sends both values.
                        row.op = RowOperator::Add;
                        entry.doubled.insert(key);
                    }
                    entry.reply.push(row);
                    if let Some(note) = note {
                        let what = format!("{attribute} of {:?}: {note}", entry.name);
                        self.report_issue(number, what);
                    }
                }
                ReplyRowImport::Leave(why) => {
                    let is_message = is_one_of(&attribute, &["Reply-Message"]);
                    let what = format!("{why}; this row was left out");
                    self.lose_reply(SkippedReplyRow { position: at.clone(), row_text: what, is_message });
                }
            }
            self.promised = words.take_char(',').then_some(number);
            if self.promised.is_none() {
                if !words.is_at_end() {
                    let what = format!(
                        "a comma is missing before {:?}: the rest of the line was left out",
                        shorten_text(words.remaining_text())
                    );
                    self.lose_reply(SkippedReplyRow { position: at, row_text: what, is_message: false });
                }
                return;
            }
        }
    }

    fn lose_reply(&mut self, lost: SkippedReplyRow) {
        if let Some(entry) = &mut self.open {
            entry.lost_replies.push(lost);
        }
    }

    fn end_entry(&mut self) {
        if let Some(line) = self.promised.take() {
            self.report_issue(
                line,
                "the line ends with a comma, but no row follows: check whether one is missing",
            );
        }
        self.entries.extend(self.open.take());
    }
}

/// The warning about a missing entry that rejects users.
const TURNS_AWAY: &str =
    "; it rejects users, so the file was not imported: more users would be accepted without it";

/// Parses one `attribute operator value`.
///
/// # Errors
/// Why the parse failed. The rest of the line cannot be read.
fn parse_item(words: &mut WordReader<'_>) -> Result<(String, RowOperator, ImportValue), String> {
    let mut attribute =
        words.take_bare_word(&[',', '=', ':', '+', '!', '<', '>', '#', '"', '\'', '`']).to_owned();
    // A colon and number after the attribute are the tag of a tunnel attribute and part of its name, as in
    // `Tunnel-Type:1`.
    if words.remaining_text().starts_with(':') && !words.remaining_text().starts_with(":=") {
        words.take_char(':');
        attribute =
            format!("{attribute}:{}", words.take_bare_word(&[',', '=', ':', '+', '!', '<', '>', '#']));
    }
    let Some(op) = words.take_operator().filter(|_| !attribute.is_empty()) else {
        return Err(format!(
            "{:?} is not `Attribute operator value`: the rest of the line was left out",
            shorten_text(&format!("{attribute}{}", words.remaining_text()))
        ));
    };
    match words.take_value(&[',', '#']) {
        Ok(value) if value.text.is_empty() && value.quote.is_none() => {
            Err(format!("{attribute} has no value: the rest of the line was left out"))
        }
        Ok(value) => Ok((attribute, op, value)),
        Err(why) => Err(format!("{attribute}: {why}: the rest of the line was left out")),
    }
}

/// Shortens a text for a message.
fn shorten_text(text: &str) -> String {
    let text = text.trim();
    let short: String = text.chars().take(40).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|n| name.eq_ignore_ascii_case(n))
}
