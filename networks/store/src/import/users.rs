//! The file `users`, also known as `mods-config/files/authorize`.
//!
//! FreeRADIUS goes through the file from top to bottom and takes the first entry that matches, and those after it while
//! `Fall-Through = Yes` says so. Here a user has rows of his own and groups that add theirs where their checks hold. So
//! a named entry becomes a user, and a `DEFAULT` entry becomes a group that those users are in who would come to it.

use super::Complaint;
use super::words::{Value, Words};
use std::collections::BTreeMap;
use usher_aaa::User;
use usher_aaa::store::{GroupRows, Op, Row, UserRows};
use usher_radius::dictionary::Dictionary;

/// What a users file says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsersFile {
    /// Users by name, in the order of the file; each name once. Their groups have names only.
    pub users: Vec<(String, UserRows)>,
    /// The groups that they are in, made of DEFAULT entries: `default-line-N`.
    pub groups: Vec<GroupRows>,
}

/// Reads the text of a users file; `dictionary` knows its attributes.
///
/// An entry with a condition that cannot be taken over is left out as a whole, for without it the entry would let in
/// more than it should; of what an entry replies, a row that cannot be taken over is left out by itself.
#[must_use]
pub fn users_file(text: &str, dictionary: &Dictionary) -> (UsersFile, Vec<Complaint>) {
    let mut reader =
        Reader { entries: Vec::new(), open: None, promised: None, complaints: Vec::new(), dictionary };
    for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
        reader.line(line, number);
    }
    reader.end_entry();
    reader.gather()
}

/// One entry of the file.
#[derive(Debug)]
struct Entry {
    line: usize,
    name: String,
    check: Vec<Row>,
    reply: Vec<Row>,
    fall_through: bool,
    /// False where a condition was not understood.
    usable: bool,
    /// It turns away whoever it fits.
    rejects: bool,
}

#[derive(Debug)]
struct Reader<'d> {
    entries: Vec<Entry>,
    open: Option<Entry>,
    /// The line of the last row, where a comma after it promises another.
    promised: Option<usize>,
    complaints: Vec<Complaint>,
    dictionary: &'d Dictionary,
}

/// What becomes of a row.
enum Fate {
    Take(Row),
    FallThrough(bool),
    /// Left out, for this reason.
    Leave(String),
}

impl Reader<'_> {
    fn complain(&mut self, line: usize, what: impl Into<String>) {
        self.complaints.push(Complaint { line, what: what.into(), stops: false });
    }

    /// An entry is left out. Whoever it turns away would be let in by another.
    fn lose(&mut self, line: usize, stops: bool, what: impl Into<String>) {
        let mut what = what.into();
        if stops {
            what.push_str(
                "; it turns somebody away, so that the file was not taken over: without it more would be let in",
            );
        }
        self.complaints.push(Complaint { line, what, stops });
    }

    fn line(&mut self, line: &str, number: usize) {
        if Words::new(line).is_at_end() {
            return;
        }
        if line.starts_with(|c: char| c.is_whitespace()) {
            self.reply(line, number);
        } else {
            self.end_entry();
            self.begin_entry(line, number);
        }
    }

    fn begin_entry(&mut self, line: &str, number: usize) {
        let mut words = Words::new(line);
        if let Some(file) = line.strip_prefix("$INCLUDE") {
            let file = file.trim();
            self.complain(number, format!("$INCLUDE {file}: import that file by itself; entries keep their order only within one file"));
            return;
        }
        // Also where it cannot be read.
        let rejects = line.to_ascii_lowercase().contains("reject");
        let name = match words.name() {
            Ok(name) if !name.text.is_empty() => name.text,
            Ok(_) => return self.lose(number, rejects, "a user's name is empty: the entry was left out"),
            Err(why) => return self.lose(number, rejects, format!("{why}: the entry was left out")),
        };
        let mut entry = Entry {
            line: number,
            name,
            check: Vec::new(),
            reply: Vec::new(),
            fall_through: false,
            usable: true,
            rejects: false,
        };
        loop {
            if words.is_at_end() {
                break;
            }
            match self.row(&mut words, number, check) {
                Some(Fate::Take(row)) => {
                    let rejects = is(&row.attribute, &["Auth-Type"]) && is(&row.value, &["Reject"]);
                    entry.rejects |= rejects;
                    entry.check.push(row);
                }
                Some(Fate::FallThrough(_)) => {
                    self.complain(number, "Fall-Through belongs on an indented line: it was left out");
                }
                Some(Fate::Leave(why)) => {
                    entry.usable = false;
                    self.complain(
                        number,
                        format!(
                            "{why}; the entry of {:?} was left out, since without this it would let in more",
                            entry.name
                        ),
                    );
                }
                None => {
                    entry.usable = false;
                    break;
                }
            }
            if !words.take(',') {
                if !words.is_at_end() {
                    entry.usable = false;
                    self.complain(
                        number,
                        format!(
                            "a comma is missing before {:?}: the entry of {:?} was left out",
                            shown(words.rest()),
                            entry.name
                        ),
                    );
                }
                break;
            }
            if words.is_at_end() {
                self.complain(number, "the comma at the line's end promises another condition: conditions stand on one line; the comma was passed over");
            }
        }
        entry.rejects |= rejects && !entry.usable;
        self.open = Some(entry);
    }

    fn reply(&mut self, line: &str, number: usize) {
        if self.open.is_none() {
            return self.complain(
                number,
                "an indented line without an entry above it that could be read: it was left out",
            );
        }
        if self.promised.is_none() && self.open.as_ref().is_some_and(|e| !e.reply.is_empty()) {
            self.complain(number, "the line before does not end with a comma, so FreeRADIUS would not read this one; it was taken over");
        }
        self.promised = None;
        let mut words = Words::new(line);
        while !words.is_at_end() {
            let fate = self.row(&mut words, number, reply);
            match (fate, &mut self.open) {
                // Each row is told of, so that nobody believes a filter or a VLAN to be there that is not.
                (Some(Fate::Take(row)), Some(entry)) if !entry.usable => {
                    let whole = format!(
                        "{}: this row was left out with its entry, that of {:?} at line {}",
                        row.attribute, entry.name, entry.line
                    );
                    self.complain(number, whole);
                }
                (Some(Fate::Take(row)), Some(entry)) => entry.reply.push(row),
                (Some(Fate::FallThrough(yes)), Some(entry)) => entry.fall_through = yes,
                (Some(Fate::Leave(why)), _) => self.complain(number, format!("{why}; this row was left out")),
                _ => return,
            }
            self.promised = words.take(',').then_some(number);
            if self.promised.is_none() {
                if !words.is_at_end() {
                    self.complain(
                        number,
                        format!(
                            "a comma is missing before {:?}: the rest of the line was left out",
                            shown(words.rest())
                        ),
                    );
                }
                return;
            }
        }
    }

    /// One `attribute operator value`; `None`, complained of, where it is none.
    fn row(
        &mut self,
        words: &mut Words<'_>,
        number: usize,
        judge: fn(&str, Op, &Value, &Dictionary) -> Fate,
    ) -> Option<Fate> {
        let attribute = words.bare(&[',', '=', ':', '+', '!', '<', '>', '#', '"', '\'', '`']).to_owned();
        // A tag of a tunnel attribute is part of the name: `Tunnel-Type:1`.
        let mut attribute = attribute;
        if words.rest().starts_with(':') && !words.rest().starts_with(":=") {
            words.take(':');
            attribute = format!("{attribute}:{}", words.bare(&[',', '=', ':', '+', '!', '<', '>', '#']));
        }
        let Some(op) = words.operator().filter(|_| !attribute.is_empty()) else {
            self.complain(
                number,
                format!(
                    "{:?} is no `Attribute operator value`: the rest of the line was left out",
                    shown(&format!("{attribute}{}", words.rest()))
                ),
            );
            return None;
        };
        match words.value(&[',', '#']) {
            Ok(value) if value.text.is_empty() && value.quote.is_none() => {
                self.complain(number, format!("{attribute} has no value: the rest of the line was left out"));
                None
            }
            Ok(value) => Some(judge(&attribute, op, &value, self.dictionary)),
            Err(why) => {
                self.complain(number, format!("{attribute}: {why}: the rest of the line was left out"));
                None
            }
        }
    }

    fn end_entry(&mut self) {
        if let Some(line) = self.promised.take() {
            self.complain(line, "the comma at the line's end promises another row, and none follows: look whether one was lost");
        }
        self.entries.extend(self.open.take());
    }

    /// Entries become users and groups.
    fn gather(mut self) -> (UsersFile, Vec<Complaint>) {
        let mut file = UsersFile::default();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        // Groups that a later user comes through before his own entry.
        let mut before: Vec<String> = Vec::new();
        // Users who go on to the entries below their own.
        let mut going_on: Vec<usize> = Vec::new();
        // DEFAULT entries at which the search ends, where they match.
        let mut ends: Vec<usize> = Vec::new();
        let entries = std::mem::take(&mut self.entries);
        let last_user = entries.iter().rposition(|entry| entry.name != "DEFAULT");
        for (n, entry) in entries.into_iter().enumerate() {
            let comes = !going_on.is_empty() || last_user.is_some_and(|last| last > n);
            if entry.name == "DEFAULT" && entry.rejects && !comes {
                self.complain(entry.line, "this DEFAULT turns away those alone who have no entry, and nobody lets them in here: it was left out");
                continue;
            }
            if entry.name == "DEFAULT" && entry.rejects {
                // A group holds for those who are in it.
                self.complaints.push(Complaint {
                    line: entry.line,
                    what: "this DEFAULT turns away whoever it fits, whoever that is, which no row here says: the file was not taken over, since \
                           without it more would be let in; give each user the check that keeps it out, as Calling-Station-Id != \
                           02-00-5E-10-00-01, and take this entry away"
                        .to_owned(),
                    stops: true,
                });
                continue;
            }
            if entry.name != "DEFAULT" {
                if !entry.usable {
                    if entry.rejects {
                        self.lose(entry.line, true, format!("the entry of {:?} was left out", entry.name));
                    }
                    continue;
                }
                if let Some(first) = seen.get(&entry.name) {
                    self.lose(entry.line, entry.rejects, format!("{:?} has an entry at line {first} already: only that one was taken over; put the rows of this one into a group with its conditions", entry.name));
                    continue;
                }
                for line in ends.drain(..) {
                    self.complain(
                        line,
                        "this DEFAULT stands above entries of users, who would not come to their own where it matches; \
                         here their own entry comes first: give them what it says, or put them into a group that says it",
                    );
                }
                seen.insert(entry.name.clone(), entry.line);
                if entry.fall_through {
                    going_on.push(file.users.len());
                }
                let groups = before.iter().map(|name| member(name)).collect();
                file.users.push((entry.name, UserRows { check: entry.check, reply: entry.reply, groups }));
                continue;
            }
            if !entry.usable {
                continue;
            }
            let name = format!("default-line-{}", entry.line);
            for user in &going_on {
                file.users[*user].1.groups.push(member(&name));
            }
            let mut reply = entry.reply;
            if entry.fall_through {
                before.push(name.clone());
                // A group says by this row that those after it are looked at too.
                reply.push(Row {
                    attribute: "Fall-Through".to_owned(),
                    op: Op::Set,
                    value: "Yes".to_owned(),
                });
            } else {
                ends.push(entry.line);
                if entry.check.is_empty() {
                    // Everybody who comes to it stays there.
                    going_on.clear();
                }
            }
            file.groups.push(GroupRows { name, check: entry.check, reply });
        }
        file.groups.retain(|group| {
            let used = file.users.iter().any(|(_, user)| user.groups.iter().any(|g| g.name == group.name));
            if !used {
                let line = group.name.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(1);
                self.complaints.push(Complaint {
                    line,
                    what: "no entry of this file comes to this DEFAULT, and names that are in no file are not let in \
                           here: it was left out; make a group of it and put users into it"
                        .to_owned(),
                    stops: false,
                });
            }
            used
        });
        self.complaints.sort_by_key(|c| c.line);
        (file, self.complaints)
    }
}

fn member(name: &str) -> GroupRows {
    GroupRows { name: name.to_owned(), ..GroupRows::default() }
}

/// The beginning of a text, for a message.
fn shown(text: &str) -> String {
    let text = text.trim();
    let short: String = text.chars().take(40).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

fn is(name: &str, names: &[&str]) -> bool {
    names.iter().any(|n| name.eq_ignore_ascii_case(n))
}

/// A row as the server will read it from the store, or why it will not.
fn taken(row: Row, of: fn(Row) -> UserRows, dictionary: &Dictionary) -> Fate {
    match User::compile(&of(row.clone()), dictionary) {
        Ok(_) => Fate::Take(row),
        Err(c) => {
            let instead = instead(&c.attribute).map(|instead| format!("; {instead}")).unwrap_or_default();
            Fate::Leave(format!("{} {} {}: {}{instead}", c.attribute, c.op.as_str(), c.value, c.what))
        }
    }
}

/// What says here what a check of FreeRADIUS's says there.
fn instead(attribute: &str) -> Option<&'static str> {
    match () {
        () if is(attribute, &["Huntgroup-Name"]) => {
            Some("a huntgroup of one access server is said by NAS-IP-Address == ITS-ADDRESS")
        }
        () if is(attribute, &["Group", "Ldap-Group", "SQL-Group"]) => {
            Some("a group's members are named here: usher aaa user set NAME --group GROUP")
        }
        () => None,
    }
}

fn expanded(attribute: &str) -> Fate {
    Fate::Leave(format!(
        "{attribute}: its value is worked out anew for each request, which is not done here: write it out"
    ))
}

/// What becomes of a condition or of a setting beside it.
fn check(attribute: &str, op: Op, value: &Value, dictionary: &Dictionary) -> Fate {
    if value.is_expanded() {
        return expanded(attribute);
    }
    if is(attribute, &["Fall-Through"]) {
        return Fate::FallThrough(true);
    }
    // As a password was written before FreeRADIUS 2.
    let old = is(attribute, &["User-Password", "Password"]);
    let (attribute, op) = if old { ("Cleartext-Password", Op::Replace) } else { (attribute, op) };
    let row = Row { attribute: attribute.to_owned(), op, value: value.text.clone() };
    taken(row, |row| UserRows { check: vec![row], ..UserRows::default() }, dictionary)
}

/// What becomes of a row of the reply.
fn reply(attribute: &str, op: Op, value: &Value, dictionary: &Dictionary) -> Fate {
    if is(attribute, &["Fall-Through"]) {
        return Fate::FallThrough(is(&value.text, &["Yes", "1", "True"]));
    }
    if value.is_expanded() {
        return expanded(attribute);
    }
    let row = Row { attribute: attribute.to_owned(), op, value: value.text.clone() };
    taken(row, |row| UserRows { reply: vec![row], ..UserRows::default() }, dictionary)
}
