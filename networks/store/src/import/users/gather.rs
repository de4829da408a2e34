//! Turns entries into users and groups, if each user gets the same result as in FreeRADIUS.
//!
//! FreeRADIUS takes a user through all entries of the name and through DEFAULT, in the order of the file. Here a user
//! has the rows of one entry, and then groups. This causes three differences:
//!
//! - The rows of a DEFAULT above the user's entry come later.
//! - A missing entry is never reached.
//! - No DEFAULT ends the search before the user's own entry.
//!
//! If one of these would change a result, the import stops.

use super::super::ImportIssue;
use super::items::control_attribute_name;
use super::{EntryImportState, FilePosition, TURNS_AWAY, UserEntry, UsersFile, UsersImport, is_one_of};
use std::collections::{BTreeMap, BTreeSet};
use usher_aaa::store::{AttributeRow, GroupRows, RowOperator, UserRows};

/// An entry that becomes a user.
#[derive(Clone, Copy, Debug)]
struct ImportedUser {
    /// The index of its entry.
    entry: usize,
    /// The search ends before this entry. The user's later entries are included.
    end: usize,
}

/// The attributes that entries set, by subject: the settings of the server and the reply attributes.
#[derive(Clone, Default, Debug)]
struct UserEntryAttributes {
    settings: BTreeMap<&'static str, BTreeSet<String>>,
    replies: BTreeSet<String>,
    doubled: BTreeSet<String>,
}

impl UserEntryAttributes {
    fn from_entry(entry: &UserEntry) -> Self {
        let mut content = Self::default();
        for row in &entry.check {
            if let Some(part) = control_attribute_name(&row.attribute) {
                content.settings.entry(part).or_default().insert(row.attribute.to_ascii_lowercase());
            }
        }
        content.replies.clone_from(&entry.reply_keys);
        content.doubled.clone_from(&entry.doubled);
        content
    }

    /// Returns a subject that two entries share.
    fn find_shared_subject(&self, other: &Self) -> Option<String> {
        let setting = self.settings.keys().find(|part| other.settings.contains_key(*part));
        let reply = || self.replies.intersection(&other.replies).next();
        setting.map(|part| (*part).to_owned()).or_else(|| reply().cloned())
    }

    /// Returns a subject that two entries combine differently in FreeRADIUS and here.
    fn find_conflict(&self, other: &Self) -> Option<String> {
        let differs = |(part, by): (&&'static str, &BTreeSet<String>)| {
            other.settings.get(*part).is_some_and(|their| their != by).then(|| (*part).to_owned())
        };
        // Entries conflict where the effective value depends on earlier entries. `other` is a single entry, while
        // `self` may combine many.
        let says = |content: &Self, key: &str| match control_attribute_name(key) {
            Some(part) => content.settings.contains_key(part),
            None => content.replies.contains(key),
        };
        let doubled = || {
            let theirs = other.settings.values().flatten().chain(&other.replies);
            let ours = || theirs.clone().find(|key| self.doubled.contains(*key));
            other.doubled.iter().find(|key| says(self, key)).or_else(ours).cloned()
        };
        self.settings.iter().find_map(differs).or_else(doubled)
    }

    fn merge_content(&mut self, other: &Self) {
        for (part, by) in &other.settings {
            self.settings.entry(part).or_default().extend(by.iter().cloned());
        }
        self.replies.extend(other.replies.iter().cloned());
        self.doubled.extend(other.doubled.iter().cloned());
    }
}

/// The limit of group memberships and of their rows, counted once per user.
const MAX_MEMBERSHIPS: usize = 1_000_000;
const MAX_COMPARED: usize = 8_000_000;

/// The DEFAULT entries that become groups, if users reach them.
#[derive(Debug)]
struct DefaultEntries {
    all: Vec<usize>,
    /// The entries with Fall-Through.
    falling_through: Vec<usize>,
}

impl DefaultEntries {
    fn from_entries(entries: &[UserEntry]) -> Self {
        let usable = |entry: &UserEntry| {
            entry.is_default() && entry.state == EntryImportState::Usable && !entry.rejects
        };
        let all: Vec<usize> = (0..entries.len()).filter(|n| usable(&entries[*n])).collect();
        let falling_through = all.iter().copied().filter(|n| entries[*n].does_fall_through()).collect();
        Self { all, falling_through }
    }

    /// The entries that a user reaches, in order: first those above the user's own entry.
    fn default_entries_reached(&self, user: ImportedUser) -> impl Iterator<Item = usize> + '_ {
        let [above, from, to] = self.default_entry_path_bounds(user);
        self.falling_through[..above].iter().chain(&self.all[from..to]).copied()
    }

    /// Returns the bounds of a user's path: the count in `falling_through`, then the start and end in `all`.
    fn default_entry_path_bounds(&self, user: ImportedUser) -> [usize; 3] {
        let above = self.falling_through.partition_point(|n| *n < user.entry);
        let from = self.all.partition_point(|n| *n <= user.entry);
        [above, from, self.all.partition_point(|n| *n < user.end).max(from)]
    }
}

/// Returns the canonical form of a name: for a MAC address, one of its spellings.
fn canonical_name(name: &str) -> String {
    String::from_utf8_lossy(&usher_aaa::canonical_name(name.as_bytes())).into_owned()
}

fn is_mac_address(name: &str) -> bool {
    usher_aaa::name_spellings(name).len() > 1
}

struct ImportedUserCollector<'a> {
    import: UsersImport<'a>,
    entries: Vec<UserEntry>,
    complaints: Vec<ImportIssue>,
    /// Users in the order of their entries.
    users: Vec<ImportedUser>,
    /// Indexes into [`Self::users`] by canonical name.
    by_name: BTreeMap<String, usize>,
    /// For each entry, whether imported users reach a DEFAULT there: from above their own entries, or from them.
    reached: Vec<bool>,
}

/// Turns entries into users and groups.
pub(super) fn gather_users(
    import: UsersImport<'_>,
    entries: Vec<UserEntry>,
    complaints: Vec<ImportIssue>,
) -> (UsersFile, Vec<ImportIssue>) {
    let (users, by_name, reached) = (Vec::new(), BTreeMap::new(), Vec::new());
    let mut this = ImportedUserCollector { import, entries, complaints, users, by_name, reached };
    this.find_users();
    this.find_reached_entries();
    for n in 0..this.entries.len() {
        this.check_user_entry(n);
    }
    let defaults = DefaultEntries::from_entries(&this.entries);
    let file = match this.is_too_much(&defaults) {
        true => UsersFile::default(),
        false => {
            this.check_user_paths(&defaults);
            this.build_file(&defaults)
        }
    };
    // Issues of the file itself come before those of included files, each in the order of lines.
    this.complaints.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    (file, this.complaints)
}

impl ImportedUserCollector<'_> {
    fn report_issue(&mut self, at: &FilePosition, stops: bool, what: impl Into<String>) {
        self.complaints.push(ImportIssue {
            file: at.file.clone(),
            line: at.line,
            message: what.into(),
            stops,
        });
    }

    fn find_users(&mut self) {
        for (n, entry) in self.entries.iter().enumerate() {
            if entry.is_default() || entry.state != EntryImportState::Usable {
                continue;
            }
            let place = self.users.len();
            if let std::collections::btree_map::Entry::Vacant(vacant) =
                self.by_name.entry(canonical_name(&entry.name))
            {
                vacant.insert(place);
                self.users.push(ImportedUser { entry: n, end: n + 1 });
            }
        }
        // A DEFAULT that matches every request and has no Fall-Through ends the search for all users.
        let ends = |entry: &UserEntry| {
            entry.is_default()
                && entry.state == EntryImportState::Usable
                && !entry.is_conditional()
                && !entry.does_fall_through()
        };
        let mut end = self.entries.len();
        let mut below = vec![end; self.entries.len()];
        for n in (0..self.entries.len()).rev() {
            below[n] = end;
            if ends(&self.entries[n]) {
                end = n + 1;
            }
        }
        for user in &mut self.users {
            if self.entries[user.entry].does_fall_through() {
                user.end = below[user.entry];
            }
        }
    }

    fn find_reached_entries(&mut self) {
        let last = self.users.last().map_or(0, |user| user.entry);
        let (mut users, mut end) = (self.users.iter().peekable(), 0);
        for n in 0..self.entries.len() {
            self.reached.push(n < last || n < end);
            while let Some(user) = users.next_if(|user| user.entry <= n) {
                end = end.max(user.end);
            }
        }
    }

    fn is_above_last_user_entry(&self, n: usize) -> bool {
        self.users.last().is_some_and(|last| last.entry > n)
    }

    fn check_user_entry(&mut self, n: usize) {
        let is_taken = self.users.binary_search_by_key(&n, |user| user.entry).is_ok();
        let reached = self.entries[n].is_default() && self.reached[n];
        let lost = std::mem::take(&mut self.entries[n].lost_replies);
        for lost in lost {
            let usable = self.entries[n].state == EntryImportState::Usable;
            let stops = usable && (is_taken || reached) && !lost.is_message && !self.import.leave_out;
            let why = match stops {
                true => {
                    "; its restriction would be missing, so the file was not imported: correct the row, remove it, or \
                     use --leave-out"
                }
                false => "",
            };
            self.report_issue(&lost.position, stops, format!("{}{why}", lost.row_text));
        }
        if is_taken || self.entries[n].state == EntryImportState::Never {
            return;
        }
        match self.entries[n].is_default() {
            true => self.check_default_entry(n, reached),
            false => self.report_named_entry(n),
        }
    }

    fn check_default_entry(&mut self, n: usize, reached: bool) {
        let entry = &self.entries[n];
        let at = entry.position.clone();
        if entry.rejects && !reached {
            return self.report_issue(
                &at,
                false,
                "this DEFAULT was left out: it rejects only users without an entry, and this server rejects them \
                 anyway",
            );
        }
        if entry.rejects {
            // A group cannot replace this DEFAULT, because a group applies only to its members.
            return self.report_issue(&at, true, "this DEFAULT rejects every user that it matches, which no row can \
                                                 express here: the file was not imported, since more users would be \
                                                 accepted; give each rejected user a check, such as \
                                                 Calling-Station-Id != 02-00-5E-10-00-01, and remove this entry");
        }
        if entry.state == EntryImportState::Lost {
            if reached && !is_hint_entry(entry) {
                self.report_issue(&at, true, "this DEFAULT was left out, but users reach it in FreeRADIUS: the file \
                                              was not imported, since more users would be accepted without it; \
                                              correct or remove the entry");
            }
            return;
        }
        if !entry.does_fall_through() && self.is_above_last_user_entry(n) {
            return self.report_issue(&at, true, "this DEFAULT stands above entries of users and hides them where it \
                                                 matches; here a user's own entry comes first: the file was not \
                                                 imported, since those users would be accepted; move it below them, \
                                                 or give it Fall-Through = Yes");
        }
        let sets_password = |row: &AttributeRow| control_attribute_name(&row.attribute) == Some("password");
        if reached && (entry.accepts || entry.check.iter().any(sets_password)) {
            let what = "in FreeRADIUS this DEFAULT also accepts users without an entry; here it applies to users with \
                        an entry only";
            return self.report_issue(&at, false, what);
        }
        if !reached {
            self.report_issue(
                &at,
                false,
                "this DEFAULT was left out: no entry of this file reaches it, and this server rejects unknown names; \
                 make a group of it and add users to the group",
            );
        }
    }

    /// Reports a named entry that did not become the user.
    fn report_named_entry(&mut self, n: usize) {
        let entry = &self.entries[n];
        let (at, name) = (entry.position.clone(), entry.name.clone());
        let lost = entry.state == EntryImportState::Lost;
        let user = self.by_name.get(&canonical_name(&name)).map(|place| self.users[*place]);
        let Some(user) = user else {
            // A rejecting entry that is left out is reported, because another file may bring a user of this name.
            if entry.rejects {
                self.report_issue(&at, true, format!("the entry of {name:?} was left out{TURNS_AWAY}"));
            }
            return;
        };
        let first = &self.entries[user.entry];
        let (first_at, first_name) = (first.position.clone(), first.name.clone());
        if first_name != name {
            let what = format!(
                "{name:?} and {first_name:?} at {first_at} are one MAC address: one user here, but two with separate \
                 rows in FreeRADIUS; the file was not imported: keep one of them"
            );
            return self.report_issue(&at, true, what);
        }
        if n < user.entry {
            let what = format!(
                "this entry of {name:?} was left out, but FreeRADIUS reaches it before the one at {first_at}: the \
                 file was not imported, since more users would be accepted"
            );
            return self.report_issue(&at, true, what);
        }
        let comes = n < user.end;
        let what = format!(
            "{name:?} already has an entry at {first_at}: only that one was imported; put the rows of this one into a \
             group with its conditions"
        );
        match (comes, lost) {
            (true, _) => {
                let why = "; FreeRADIUS reaches this one too, so the file was not imported: more users would be \
                           accepted";
                self.report_issue(&at, true, format!("{what}{why}"));
            }
            (false, false) => self.report_issue(&at, false, what),
            (false, true) => {}
        }
    }

    /// True if the memberships exceed the limit.
    fn is_too_much(&mut self, defaults: &DefaultEntries) -> bool {
        let rows = |n: &usize| 1 + self.entries[*n].check.len() + self.entries[*n].reply.len();
        let sums = |of: &[usize]| -> Vec<usize> {
            let mut sum = 0;
            let sums = of.iter().map(|n| {
                sum += rows(n);
                sum
            });
            std::iter::once(0).chain(sums).collect()
        };
        let (all, through) = (sums(&defaults.all), sums(&defaults.falling_through));
        let (mut memberships, mut compared) = (0_usize, 0_usize);
        let first = self.users.iter().find(|user| {
            let [above, from, to] = defaults.default_entry_path_bounds(**user);
            memberships += above + to - from;
            compared = compared.saturating_add(through[above] + all[to] - all[from]);
            memberships > MAX_MEMBERSHIPS || compared > MAX_COMPARED
        });
        let Some(first) = first else { return false };
        let at = self.entries[first.entry].position.clone();
        let what = format!(
            "up to this line users reach DEFAULT entries more than {MAX_MEMBERSHIPS} times, or more than \
             {MAX_COMPARED} rows of them: the file was not imported; give fewer users Fall-Through = Yes, merge \
             DEFAULT entries of one purpose, or import the file in parts"
        );
        self.report_issue(&at, true, what);
        true
    }

    /// Checks that each user's rows and groups combine to the same result as the entries.
    fn check_user_paths(&mut self, defaults: &DefaultEntries) {
        let contents: BTreeMap<usize, UserEntryAttributes> =
            defaults.all.iter().map(|n| (*n, UserEntryAttributes::from_entry(&self.entries[*n]))).collect();
        let mut reported = BTreeSet::new();
        for user in self.users.clone() {
            let path: Vec<usize> = defaults.default_entries_reached(user).collect();
            let own = UserEntryAttributes::from_entry(&self.entries[user.entry]);
            let name = self.entries[user.entry].name.clone();
            let mut so_far = own.clone();
            for n in &path {
                let content = &contents[n];
                let earlier = (*n < user.entry).then(|| own.find_shared_subject(content)).flatten();
                let conflict = earlier.or_else(|| so_far.find_conflict(content));
                so_far.merge_content(content);
                let Some(what) = conflict.filter(|_| reported.insert(*n)) else { continue };
                let what = self.attribute_name(&what);
                let at = self.entries[*n].position.clone();
                let text = format!(
                    "this DEFAULT and the entry of {name:?} both set {what}, which FreeRADIUS combines differently: \
                     the file was not imported; keep one of them"
                );
                self.report_issue(&at, true, text);
            }
            self.check_passwordless_device(user, &path, &contents);
        }
    }

    fn attribute_name(&self, key: &str) -> String {
        let parts: Option<Vec<u32>> = key.split('.').map(|part| part.parse().ok()).collect();
        let oid = parts.and_then(|parts| usher_radius::dictionary::AttributeOid::new(&parts));
        let definition = oid.and_then(|oid| self.import.dictionary.by_oid(oid));
        definition.map_or_else(|| key.to_owned(), |definition| definition.name.to_string())
    }

    /// Checks a device without a password. Here its address alone admits it; in FreeRADIUS only a certificate does.
    fn check_passwordless_device(
        &mut self,
        user: ImportedUser,
        path: &[usize],
        contents: &BTreeMap<usize, UserEntryAttributes>,
    ) {
        let entry = &self.entries[user.entry];
        let sets =
            |part: &str| entry.check.iter().any(|row| control_attribute_name(&row.attribute) == Some(part));
        if !is_mac_address(&entry.name) || entry.rejects || sets("password") || sets("method") {
            return;
        }
        let (at, name) = (entry.position.clone(), entry.name.clone());
        if path.iter().any(|n| contents[n].settings.contains_key("password")) {
            let what = format!(
                "{name:?} gets its password from a DEFAULT; where that does not match, its address alone would be \
                 accepted: the file was not imported; give the entry the password"
            );
            return self.report_issue(&at, true, what);
        }
        let row = AttributeRow {
            attribute: "Auth-Type".to_owned(),
            op: RowOperator::Replace,
            value: "EAP".to_owned(),
        };
        self.entries[user.entry].check.push(row);
        self.report_issue(&at, false, format!("{name:?} has neither a password nor an Auth-Type, so FreeRADIUS \
                                               accepts it by a certificate only; it was imported with Auth-Type := \
                                               EAP; write Auth-Type := Accept if the address is enough"));
    }

    fn build_file(&mut self, defaults: &DefaultEntries) -> UsersFile {
        let names: BTreeMap<usize, String> =
            defaults.all.iter().map(|n| (*n, unique_group_name(&self.import, &self.entries[*n]))).collect();
        let mut used = BTreeSet::new();
        let mut file = UsersFile::default();
        for user in &self.users {
            used.extend(defaults.default_entries_reached(*user));
            let entry = &mut self.entries[user.entry];
            let member = |n: usize| GroupRows { name: names[&n].clone(), ..GroupRows::default() };
            let rows = UserRows {
                check: std::mem::take(&mut entry.check),
                reply: std::mem::take(&mut entry.reply),
                groups: defaults.default_entries_reached(*user).map(member).collect(),
            };
            file.users.push((std::mem::take(&mut entry.name), rows));
        }
        for n in used {
            let entry = &mut self.entries[n];
            let mut reply = std::mem::take(&mut entry.reply);
            if entry.does_fall_through() {
                // With Fall-Through = Yes, the user's later groups are examined too.
                let yes = "Yes".to_owned();
                reply.push(AttributeRow {
                    attribute: "Fall-Through".to_owned(),
                    op: RowOperator::Set,
                    value: yes,
                });
            }
            let check = std::mem::take(&mut entry.check);
            file.groups.push(GroupRows { name: names[&n].clone(), check, reply });
        }
        file
    }
}

/// True for FreeRADIUS's sample entries by a hint, which a request has if its user name ends in `.slip` or similar.
/// No user has such a name here, and the entries concern only SLIP framing.
fn is_hint_entry(entry: &UserEntry) -> bool {
    let harmless = ["Framed-Protocol", "Framed-Compression"];
    entry.by_hint
        && entry.lost_replies.is_empty()
        && entry.reply.iter().all(|row| is_one_of(&row.attribute, &harmless))
}

/// Makes a unique name for the group of an entry, across files. The digest leaves out password values, so that it
/// reveals nothing about them.
fn unique_group_name(import: &UsersImport<'_>, entry: &UserEntry) -> String {
    // FNV-1a.
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |text: &str| {
        for octet in text.bytes().chain([0]) {
            digest = (digest ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    add(&import.file.to_string_lossy());
    add(entry.position.file.as_deref().unwrap_or_default());
    for row in entry.check.iter().chain(&entry.reply) {
        let secret = row.attribute.to_ascii_lowercase().contains("password");
        let value = if secret { "" } else { row.value.as_str() };
        [row.attribute.as_str(), row.op.as_str(), value].into_iter().for_each(&mut add);
    }
    format!("default-line-{}-{digest:016x}", entry.position.line)
}
