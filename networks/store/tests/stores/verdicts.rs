//! Compares the verdicts of FreeRADIUS and this server, for generated users files that were imported, and for the
//! same rows of one database.

use crate::folder::StoreTempDir;
use crate::freeradius::{FreeRadius, SECRET, free_port, pap_request};
use crate::suite::attribute_row;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};
use usher_aaa::store::{AttributeRow, GroupRows, RowOperator, Store, UserRows};
use usher_aaa::{AuthMethod, StoredPassword, User};
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::dictionary::RadiusDictionary;
use usher_radius::packet::PacketCode;
use usher_store::{SqliteStore, import};

static DICTIONARY: LazyLock<RadiusDictionary> = LazyLock::new(RadiusDictionary::builtin);

/// The number of generated files.
const FILES: usize = 300;

/// Generates the same samples each time, so that a failure can be reproduced.
fn generate_samples<T>(strategy: &impl Strategy<Value = T>, n: usize, seed: u8) -> Vec<T> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    (0..n).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

fn pick_word(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> + Clone {
    prop::sample::select(words)
}

/// Generates the first line of an entry in forms that FreeRADIUS loads, whatever their meaning.
fn entry_line() -> impl Strategy<Value = String> {
    let name = pick_word(&["ann", "ann", "bob", "bob", "DEFAULT", "DEFAULT", "DEFAULT"]);
    let proof = pick_word(&[
        "Cleartext-Password := \"p\"",
        "Cleartext-Password := \"p\"",
        "Cleartext-Password := \"q\"",
        "Cleartext-Password += \"q\"",
        "Cleartext-Password = \"p\"",
        "Cleartext-Password == \"p\"",
        "Cleartext-Password := \"p\", Cleartext-Password := \"q\"",
        "Password-With-Header := \"{clear}p\"",
        "User-Password := \"p\"",
        "User-Password == \"p\"",
        "User-Password != \"q\"",
        "User-Password == \"p\", Auth-Type := Accept",
        "Cleartext-Password := \"p\", Auth-Type := PAP",
        "Auth-Type := Accept",
        "Auth-Type == Accept",
        "Auth-Type := Reject",
        "Auth-Type := 4",
        "Auth-Type = Reject",
        "",
        "",
        "",
    ]);
    let more = pick_word(&[
        "NAS-Port == 1",
        "NAS-Port = 1",
        "NAS-Port != 1",
        "NAS-Port-Type == Virtual",
        "Framed-Protocol !* ANY",
        "Expiration := \"1 Jan 2020\"",
        "Expiration := \"1 Jan 2090\"",
        "Expiration += \"1 Jan 2020\"",
        "Huntgroup-Name == x",
        "Login-Time := \"Wk0100-0101\"",
        "Fall-Through = Yes",
        "Fall-Through := Yes",
        "Simultaneous-Use == 1",
        "Simultaneous-Use := 1",
        "",
        "",
        "",
        "",
        "",
        "",
    ]);
    let reply = pick_word(&[
        "Idle-Timeout = 10",
        "Idle-Timeout = 20",
        "Idle-Timeout := 30",
        "Idle-Timeout += 40",
        "Idle-Timeout = 50, Idle-Timeout = 60",
        "Idle-Timeout <= 15",
        "Filter-Id = \"%{User-Name}\"",
        "Reply-Message = \"hello\"",
        "",
        "",
        "",
        "",
    ]);
    let through = pick_word(&["Fall-Through = Yes", "Fall-Through = Yes", "Fall-Through = No", "", ""]);
    (name, proof, more, reply, through).prop_map(|(name, proof, more, reply, through)| {
        let joined = |parts: [&str; 2], between| {
            parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(between)
        };
        let mut text = format!("{name} {}\n", joined([proof, more], ", "));
        let reply = joined([reply, through], ",\n\t");
        if !reply.is_empty() {
            writeln!(text, "\t{reply}").unwrap();
        }
        text
    })
}

/// Writes the configuration of a FreeRADIUS with these parts.
fn write_config(folder: &StoreTempDir, port: u16, modules: &str, authorize: &str) {
    let at = folder.path().display();
    let text = format!(
        "name = radiusd\nlibdir = /usr/lib/freeradius\nraddbdir = {at}\nrun_dir = {at}\ndb_dir = {at}\npidfile = {at}/pid\n\
         max_requests = 4096\nproxy_requests = no\nsecurity {{\n reject_delay = 0\n}}\n\
         thread pool {{\n start_servers = 1\n max_servers = 1\n min_spare_servers = 1\n max_spare_servers = 1\n}}\n\
         client here {{\n ipaddr = 127.0.0.1\n secret = {SECRET}\n}}\n\
         modules {{\n pap {{\n }}\n expiration {{\n }}\n logintime {{\n }}\n{modules}}}\n\
         server default {{\n listen {{\n  type = auth\n  ipaddr = 127.0.0.1\n  port = {port}\n }}\n\
         authorize {{\n{authorize}  expiration\n  logintime\n  pap\n }}\n authenticate {{\n  Auth-Type PAP {{\n   pap\n  }}\n }}\n}}\n"
    );
    std::fs::write(folder.path().join("radiusd.conf"), text).unwrap();
}

/// Returns the idle timeouts of a PAP request if these rows accept it.
fn pap_verdict(rows: &UserRows, asked: &AttributeList, password: &str) -> Option<Vec<u32>> {
    let user = Arc::new(User::compile(rows, &DICTIONARY).ok()?);
    let user = user.resolve_for_request(asked).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let expired = user.expires.is_some_and(|until| until.unix_secs() <= now);
    let proven = user.password == Some(StoredPassword::from_clear(password.as_bytes()));
    (proven && !expired && !user.rejected && user.may_use(AuthMethod::Pap))
        .then(|| idle_timeouts(&user.reply))
}

fn idle_timeouts(reply: &AttributeList) -> Vec<u32> {
    let number = |value: &[u8]| u32::from_be_bytes(value.try_into().unwrap());
    reply.get_all(kind::IDLE_TIMEOUT).map(number).collect()
}

fn port_request(name: &str, password: &str, port: u32) -> AttributeList {
    let mut asked = pap_request(name, password);
    asked.push_u32(kind::NAS_PORT, port);
    if port == 1 {
        // Virtual.
        asked.push_u32(kind::NAS_PORT_TYPE, 5);
    }
    asked
}

#[test]
fn users_files_let_in_whom_they_let_in_there() {
    let folder = StoreTempDir::new();
    let port = free_port();
    let files = generate_samples(&proptest::collection::vec(entry_line(), 1..6), FILES, 9);
    let (mut modules, mut cases) = (String::new(), String::new());
    for (n, entries) in files.iter().enumerate() {
        let path = folder.path().join(format!("users{n}"));
        std::fs::write(&path, entries.concat()).unwrap();
        writeln!(modules, " files f{n} {{\n  usersfile = {}\n }}", path.display()).unwrap();
        writeln!(cases, "   case \"{n}\" {{\n    f{n}\n   }}").unwrap();
    }
    write_config(&folder, port, &modules, &format!("  switch &NAS-Identifier {{\n{cases}  }}\n"));
    let server = FreeRadius::start(&folder, port);
    let (mut taken, mut stopped, mut let_in, mut wrong) = (0, 0, 0, Vec::new());
    for (n, entries) in files.iter().enumerate() {
        let text = entries.concat();
        let (file, complaints) = import::users_file(&text, &DICTIONARY);
        if complaints.iter().any(|c| c.stops) {
            stopped += 1;
            continue;
        }
        taken += 1;
        let groups: BTreeMap<_, _> = file.groups.iter().map(|g| (g.name.as_str(), g.clone())).collect();
        let mut users: BTreeMap<_, _> = file.users.into_iter().collect();
        for rows in users.values_mut() {
            rows.groups = rows.groups.iter().map(|group| groups[group.name.as_str()].clone()).collect();
        }
        for (name, password, port) in ["ann", "bob"]
            .into_iter()
            .flat_map(|name| [(name, "p", 1), (name, "q", 1), (name, "p", 2), (name, "q", 2)])
        {
            let mut asked = port_request(name, password, port);
            let ours = users.get(name).and_then(|rows| pap_verdict(rows, &asked, password));
            asked.push_text(kind::NAS_IDENTIFIER, &n.to_string()).unwrap();
            let reply = server.send_access_request(Ipv4Addr::LOCALHOST, SECRET, &asked).unwrap();
            let theirs = (reply.code == PacketCode::ACCESS_ACCEPT).then(|| idle_timeouts(&reply.attributes));
            let_in += usize::from(ours.is_some() && theirs.is_some());
            // If an issue was reported, this server may accept fewer users.
            let fair = match (&ours, &theirs) {
                (Some(_), None) => false,
                (None, Some(_)) => {
                    !complaints.is_empty() || entries.iter().any(|entry| is_conditional(entry, name))
                }
                (ours, theirs) => ours == theirs,
            };
            if !fair {
                wrong.push(format!("{name} by {password} at port {port}: {ours:?} here, {theirs:?} there:\n{text}{complaints:#?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {taken}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(taken > FILES / 8 && stopped > FILES / 8, "{taken} are taken, {stopped} stop");
    assert!(let_in > 20, "{let_in} requests are let in by both");
}

/// Here a user whose own conditions fail is rejected. In FreeRADIUS a DEFAULT can still accept it.
fn is_conditional(entry: &str, name: &str) -> bool {
    entry.starts_with(name)
        && ["NAS-Port", "Framed-Protocol"].iter().any(|attribute| entry.contains(attribute))
}

/// Generates rows of a user and of a group, as in the tables.
fn sql_rows() -> impl Strategy<Value = Vec<AttributeRow>> {
    let check = pick_word(&[
        "Cleartext-Password := p",
        "Cleartext-Password := q",
        "Cleartext-Password += q",
        "Cleartext-Password = p",
        "Cleartext-Password == p",
        "Password-With-Header := {clear}q",
        "Expiration := 1 Jan 2020",
        "Expiration := 1 Jan 2090",
        "Expiration += 1 Jan 2020",
        "Auth-Type := PAP",
        "Auth-Type == Accept",
        "Auth-Type := 4",
        "Simultaneous-Use := 1",
        "NAS-Port == 1",
    ]);
    proptest::collection::vec(check, 1..3).prop_map(|rows| {
        let parse = |text: &str| {
            let mut words = text.splitn(3, ' ');
            let mut next = || words.next().unwrap();
            let (attribute, op, value) = (next(), next(), next());
            attribute_row(attribute, RowOperator::parse(op).unwrap(), value)
        };
        rows.into_iter().map(parse).collect()
    })
}

/// The configuration of FreeRADIUS's module sql for a database, with its default queries.
fn sql_module(database: &Path) -> String {
    format!(
        " sql {{\n  driver = \"rlm_sql_sqlite\"\n  dialect = \"sqlite\"\n  sqlite {{\n   filename = \"{}\"\n  }}\n  read_groups = yes\n  group_attribute = \"SQL-Group\"\n  \
         sql_user_name = \"%{{User-Name}}\"\n  \
         authorize_check_query = \"SELECT id, username, attribute, value, op FROM radcheck WHERE username = '%{{SQL-User-Name}}' ORDER BY id\"\n  \
         authorize_reply_query = \"SELECT id, username, attribute, value, op FROM radreply WHERE username = '%{{SQL-User-Name}}' ORDER BY id\"\n  \
         authorize_group_check_query = \"SELECT id, groupname, attribute, value, op FROM radgroupcheck WHERE groupname = '%{{SQL-Group}}' ORDER BY id\"\n  \
         authorize_group_reply_query = \"SELECT id, groupname, attribute, value, op FROM radgroupreply WHERE groupname = '%{{SQL-Group}}' ORDER BY id\"\n  \
         group_membership_query = \"SELECT groupname FROM radusergroup WHERE username = '%{{SQL-User-Name}}' ORDER BY priority\"\n  \
         pool {{\n   start = 1\n   min = 1\n   max = 1\n  }}\n }}\n",
        database.display()
    )
}

/// Both read the same database.
#[test]
fn rows_of_a_database_let_in_whom_they_let_in_there() {
    let folder = StoreTempDir::new();
    let port = free_port();
    let database = folder.path().join("users.db");
    let mut store = SqliteStore::open(&database).unwrap();
    let reply = pick_word(&["", "Idle-Timeout = 10", "Idle-Timeout := 20", "Idle-Timeout += 30"]);
    let strategy = (sql_rows(), reply.clone(), sql_rows(), reply, proptest::bool::ANY);
    let mut all = Vec::new();
    for (n, (own, own_reply, group, group_reply, alone)) in
        generate_samples(&strategy, FILES, 4).into_iter().enumerate()
    {
        let reply = |text: &str| {
            let mut words = text.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some(attribute), Some(op), Some(value)) => {
                    vec![attribute_row(attribute, RowOperator::parse(op).unwrap(), value)]
                }
                _ => Vec::new(),
            }
        };
        let group = GroupRows { name: format!("g{n}"), check: group, reply: reply(group_reply) };
        store.put_group(&group).unwrap();
        let groups = if alone { Vec::new() } else { vec![group] };
        let rows = UserRows { check: own, reply: reply(own_reply), groups };
        store.put_user(&format!("u{n}"), &rows).unwrap();
        all.push(rows);
    }
    drop(store);
    write_config(&folder, port, &sql_module(&database), "  sql\n");
    let server = FreeRadius::start(&folder, port);
    let mut store = SqliteStore::open(&database).unwrap();
    let (mut let_in, mut refused, mut wrong) = (0, 0, Vec::new());
    for (n, rows) in all.iter().enumerate() {
        let read = store.find_user(&format!("u{n}")).unwrap().unwrap();
        assert_eq!(&read, rows);
        for (password, port) in [("p", 1), ("q", 1), ("p", 2), ("q", 2)] {
            let asked = port_request(&format!("u{n}"), password, port);
            let ours = pap_verdict(&read, &asked, password);
            let reply = server.send_access_request(Ipv4Addr::LOCALHOST, SECRET, &asked).unwrap();
            let theirs = (reply.code == PacketCode::ACCESS_ACCEPT).then(|| idle_timeouts(&reply.attributes));
            let_in += usize::from(ours.is_some() && theirs.is_some());
            refused += usize::from(ours.is_none() && theirs.is_none());
            // Here, invalid rows or failed own conditions reject a user, whatever the groups have.
            let stricter = User::compile(&read, &DICTIONARY).is_err()
                || rows.check.iter().any(|row| row.attribute == "NAS-Port")
                || rows.check.iter().any(|row| row.value == "4");
            let fair = match (&ours, &theirs) {
                (None, Some(_)) => stricter,
                (ours, theirs) => ours == theirs,
            };
            if !fair {
                wrong.push(format!(
                    "by {password} at port {port}: {ours:?} here, {theirs:?} there: {rows:#?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), 4 * FILES, wrong.join("\n"));
    assert!(let_in > 40 && refused > 40, "{let_in} are let in by both, {refused} by neither");
}

#[test]
fn values_of_a_database_are_what_they_are_there() {
    let folder = StoreTempDir::new();
    let port = free_port();
    let database = folder.path().join("users.db");
    drop(SqliteStore::open(&database).unwrap());
    let bodies = [
        "ab",
        r"a\101b",
        r"a\\b",
        r"a\tb",
        r"DOMAIN\user",
        r"a\xb",
        r"a\7b",
        "a'b",
        r"'a\101b'",
        r"'a\tb'",
        r#""a\101b""#,
    ];
    let expansions = [r#""%{User-Name}x""#, "%{User-Name}y", "'%{User-Name}z'", r#""100%""#];
    let more = [r"'it\'s'", r#""a\"b""#, r#""a\\b""#, r"'a\\b'", r#"a"b"#, r"a\'b", r#""a\'b""#, "'"];
    let bodies: Vec<&str> = bodies.into_iter().chain(more).chain(expansions).collect();
    let connection = rusqlite::Connection::open(&database).unwrap();
    let insert = |table: &str, user: &str, attribute: &str, op: &str, value: &str| {
        let sql = format!("INSERT INTO {table} (username, attribute, op, value) VALUES (?1, ?2, ?3, ?4)");
        connection.execute(&sql, [user, attribute, op, value]).unwrap();
    };
    for (n, body) in bodies.iter().enumerate() {
        let user = format!("u{n}");
        insert("radcheck", &user, "Cleartext-Password", ":=", body);
        for attribute in ["Reply-Message", "Class"] {
            insert("radreply", &user, attribute, "=", body);
        }
    }
    drop(connection);
    write_config(&folder, port, &sql_module(&database), "  sql\n");
    let server = FreeRadius::start(&folder, port);
    let mut store = SqliteStore::open(&database).unwrap();
    for (n, body) in bodies.iter().enumerate() {
        let name = format!("u{n}");
        let rows = store.find_user(&name).unwrap().unwrap();
        let user = User::compile(&rows, &DICTIONARY).unwrap();
        let password = &rows.check[0].value;
        let reply =
            server.send_access_request(Ipv4Addr::LOCALHOST, SECRET, &pap_request(&name, password)).unwrap();
        assert_eq!(reply.code, PacketCode::ACCESS_ACCEPT, "{body} is the password {password:?} here");
        for number in [kind::REPLY_MESSAGE, kind::CLASS] {
            assert_eq!(reply.attributes.get(number), user.reply.get(number), "{body}: attribute {number}");
        }
        // Both read rows written by this server the same way.
        store.put_user(&format!("w{n}"), &rows).unwrap();
        let written = server
            .send_access_request(Ipv4Addr::LOCALHOST, SECRET, &pap_request(&format!("w{n}"), password))
            .unwrap();
        assert_eq!(
            (written.code, written.attributes.as_bytes()),
            (reply.code, reply.attributes.as_bytes()),
            "{body}"
        );
    }
}
