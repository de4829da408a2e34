//! FreeRADIUS's files, taken over.

use crate::suite::{password, row};
use proptest::prelude::*;
use std::sync::LazyLock;
use usher_aaa::store::{ClientRow, Demand, GroupRows, Op, UserRows};
use usher_radius::dictionary::Dictionary;
use usher_store::import::{self, Complaint, UsersFile, clients_conf};

static DICTIONARY: LazyLock<Dictionary> = LazyLock::new(Dictionary::builtin);

fn users_file(text: &str) -> (UsersFile, Vec<Complaint>) {
    import::users_file(text, &DICTIONARY)
}

/// The lines complained of, each with a part of what must be said.
#[track_caller]
fn complained(found: &[Complaint], expected: &[(usize, &str)]) {
    let said = |(c, (line, part)): (&Complaint, &(usize, &str))| c.line == *line && c.what.contains(part);
    let all = found.len() == expected.len() && found.iter().zip(expected).all(said);
    assert!(all, "{found:#?}\ndo not say\n{expected:#?}");
}

fn member(name: &str) -> GroupRows {
    GroupRows { name: name.to_owned(), ..GroupRows::default() }
}

/// A file of Debian's package freeradius-config.
fn installed(path: &str) -> String {
    let path = format!("/etc/freeradius/3.0/{path}");
    std::fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("{path}: {e}: install Debian's package freeradius-config"))
}

#[test]
fn users_with_their_conditions_and_replies() {
    let text = "\
# people
kaya\tCleartext-Password := \"it's \\\"x\\\"\", NAS-Port-Type == Ethernet\t# wired only
\tService-Type = Framed-User,
\tTunnel-Type:1 = VLAN, Tunnel-Private-Group-Id:1 := \"20\",

    # between
  Reply-Message += 'as %{it} is'
\"Lim Ah Kow\" NT-Password := 0123456789ABCDEF0123456789ABCDEF
old User-Password == \"x\"
gone Auth-Type := Reject
\tReply-Message = \"no\"
odd\tCalled-Station-Id == \"02-00:house\", Class !* ANY, Cleartext-Password:=x
";
    let (file, complaints) = users_file(text);
    complained(&complaints, &[]);
    let mut kaya = password("it's \"x\"");
    kaya.check.push(row("NAS-Port-Type", Op::Equal, "Ethernet"));
    kaya.reply = vec![
        row("Service-Type", Op::Set, "Framed-User"),
        row("Tunnel-Type:1", Op::Set, "VLAN"),
        row("Tunnel-Private-Group-Id:1", Op::Replace, "20"),
        row("Reply-Message", Op::Add, "as %{it} is"),
    ];
    let nt = row("NT-Password", Op::Replace, "0123456789ABCDEF0123456789ABCDEF");
    let gone = UserRows {
        check: vec![row("Auth-Type", Op::Replace, "Reject")],
        reply: vec![row("Reply-Message", Op::Set, "no")],
        ..UserRows::default()
    };
    let odd = UserRows {
        check: vec![
            row("Called-Station-Id", Op::Equal, "02-00:house"),
            row("Class", Op::Absent, "ANY"),
            row("Cleartext-Password", Op::Replace, "x"),
        ],
        ..UserRows::default()
    };
    let expected = [
        ("kaya", kaya),
        ("Lim Ah Kow", UserRows { check: vec![nt], ..UserRows::default() }),
        ("old", password("x")),
        ("gone", gone),
        ("odd", odd),
    ];
    assert_eq!(file.users, expected.map(|(name, rows)| (name.to_owned(), rows)));
    assert_eq!(file.groups, []);
}

#[test]
fn default_entries_become_groups_of_those_who_come_to_them() {
    let text = "\
DEFAULT NAS-Port-Type == Virtual
\tFilter-Id = first,
\tFall-Through = Yes
kaya Cleartext-Password := a
\tFall-Through = Yes
lim Cleartext-Password := b
DEFAULT Framed-Protocol == PPP
\tFramed-MTU = 1500,
\tFall-Through = 1
DEFAULT
\tSession-Timeout = 60
DEFAULT
\tSession-Timeout = 99
";
    let (file, complaints) = users_file(text);
    complained(&complaints, &[(12, "no entry of this file comes to this DEFAULT")]);
    let names = |n: usize| file.users[n].1.groups.clone();
    assert_eq!(names(0), ["default-line-1", "default-line-7", "default-line-10"].map(member));
    assert_eq!(names(1), [member("default-line-1")], "who does not fall through stays at his entry");
    let group = |line: usize, check: &[_], reply| GroupRows {
        name: format!("default-line-{line}"),
        check: check.to_vec(),
        reply,
    };
    let yes = row("Fall-Through", Op::Set, "Yes");
    let expected = [
        group(
            1,
            &[row("NAS-Port-Type", Op::Equal, "Virtual")],
            vec![row("Filter-Id", Op::Set, "first"), yes.clone()],
        ),
        group(7, &[row("Framed-Protocol", Op::Equal, "PPP")], vec![row("Framed-MTU", Op::Set, "1500"), yes]),
        group(10, &[], vec![row("Session-Timeout", Op::Set, "60")]),
    ];
    assert_eq!(file.groups, expected);
}

#[test]
fn what_cannot_be_taken_over_is_named_with_its_line() {
    let text = "\
$INCLUDE users.more
\tReply-Message = \"above all entries\"
swilson Service-Type == Framed-User, Huntgroup-Name == \"alphen\"
\tFramed-IP-Address = 192.0.2.65
bob Cleartext-Password := \"hello\"
\tReply-Message := \"Hello, %{User-Name}\",
\tSession-Timeout = `date`,
\tFilter-Id == x,
\tExec-Program = \"/bin/true\",
\tFramed-MTU = 1500
bob Cleartext-Password := \"again\"
crypted Crypt-Password := \"$1$x\"
pam Auth-Type := PAM
open Cleartext-Password := \"never closed
comma Cleartext-Password := x Class == 1
last Cleartext-Password := x,
\tFramed-MTU = 1,
next Cleartext-Password := x
\tFramed-MTU = 1
\tFilter-Id = a
\tnothing here
\t= x
\tFramed-MTU =
";
    let (file, complaints) = users_file(text);
    complained(
        &complaints,
        &[
            (1, "import that file by itself"),
            (2, "without an entry above"),
            (3, "Huntgroup-Name == alphen: this check is not served"),
            (4, "Framed-IP-Address: this row was left out with its entry, that of \"swilson\" at line 3"),
            (6, "Reply-Message"),
            (7, "Session-Timeout"),
            (8, "Filter-Id"),
            (9, "Exec-Program"),
            (11, "line 5"),
            (12, "Argon2"),
            (13, "Auth-Type"),
            (14, "not closed"),
            (15, "a comma is missing"),
            (16, "conditions stand on one line"),
            (17, "promises another row"),
            (20, "the line before does not end with a comma"),
            (21, "the line before"),
            (21, "`Attribute operator value`"),
            (22, "the line before"),
            (22, "`Attribute operator value`"),
            (23, "the line before"),
            (23, "has no value"),
        ],
    );
    assert!(complaints[2].what.contains("the entry of \"swilson\" was left out"), "{complaints:#?}");
    assert!(complaints[2].what.contains("NAS-IP-Address"), "{complaints:#?}");
    let names: Vec<&str> = file.users.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["bob", "last", "next"], "an entry whose condition was lost would let in more");
    assert_eq!(file.users[0].1.reply, [row("Framed-MTU", Op::Set, "1500")]);
    let shown: String = complaints.iter().map(ToString::to_string).collect();
    assert!(
        !shown.contains("hello") && !shown.contains("again") && !shown.contains("never closed"),
        "{shown}"
    );
}

#[test]
fn users_whose_password_everybody_has_are_left_out() {
    let text = "kaya Cleartext-Password := \"\"\n\tFilter-Id = a\nlim Cleartext-Password := b\n\
                ann NT-Password := 31D6CFE0D16AE931B73C59D7E0C089C0\n";
    let (file, complaints) = users_file(text);
    let left_out = "the password is empty";
    complained(&complaints, &[(1, left_out), (2, "left out with its entry"), (4, left_out)]);
    assert_eq!(file.users.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["lim"]);
}

#[test]
fn a_default_above_users_at_which_the_search_ends_is_named() {
    let text = "DEFAULT NAS-Port == 1, Simultaneous-Use := 1\nkaya Cleartext-Password := a\n\tFall-Through = Yes\n\
                DEFAULT Hint == PPP\nDEFAULT NAS-Port == 2\n\tFilter-Id = a\nDEFAULT\n\tFilter-Id = b\n";
    let (file, complaints) = users_file(text);
    complained(&complaints, &[(1, "stands above entries"), (1, "no entry of this file"), (4, "Hint")]);
    assert_eq!(file.users[0].1.groups, ["default-line-5", "default-line-7"].map(member));
}

/// A list of whom nobody is to let in: in a group it would hold for its members alone.
#[test]
fn a_default_that_turns_away_stops_the_import() {
    let block = "DEFAULT Calling-Station-Id == \"02-BA-DB-AD-00-01\", Auth-Type := Reject\n";
    let user = "kaya Cleartext-Password := a\n\tFall-Through = Yes\n";
    for text in [format!("{block}{user}"), format!("{user}{block}")] {
        let (_, complaints) = users_file(&text);
        assert_eq!(complaints.iter().filter(|c| c.stops).count(), 1, "{text}: {complaints:?}");
    }
    // Nobody comes to it who would be let in without it.
    for text in ["gone Auth-Type := Reject\n", "ann Cleartext-Password := a\nDEFAULT Auth-Type := Reject\n"] {
        let (_, complaints) = users_file(text);
        assert!(!complaints.iter().any(|c| c.stops), "{complaints:?}");
    }
}

/// Whatever is left out of a file, it must not be what keeps somebody out.
#[test]
fn an_entry_that_turns_away_and_cannot_be_taken_over_stops_the_import() {
    for text in [
        "ann Group == x, Auth-Type := Reject\nann Cleartext-Password := a\n",
        "ann Cleartext-Password := a\n\tFall-Through = Yes\nann NAS-Port == 7, Auth-Type := Reject\n",
        "ann Filter-Id @ 7, Auth-Type := Reject\n",
        "DEFAULT Filter-Id == \"\\374\", Auth-Type := reject\nann Cleartext-Password := a\n",
        "\"\" Auth-Type := Reject\n",
    ] {
        let (_, complaints) = users_file(text);
        assert!(complaints.iter().any(|c| c.stops), "{text}: {complaints:?}");
    }
    for text in
        ["ann Group == x\nann Cleartext-Password := a\n", "ann Cleartext-Password := a\nann NAS-Port == 7\n"]
    {
        let (_, complaints) = users_file(text);
        assert!(!complaints.is_empty() && !complaints.iter().any(|c| c.stops), "{text}: {complaints:?}");
    }
}

#[test]
fn octets_that_are_no_utf8_leave_out_what_has_them_and_nothing_else() {
    let text = "\u{feff}ann Cleartext-Password := \"gr\\303\\266n\" # gr\u{fffd}n\nbob Cleartext-Password := \"Se\\361al\"\n\
                eve Cleartext-Password := gr\u{fffd}n\n";
    let (file, complaints) = users_file(text);
    complained(&complaints, &[(2, "no UTF-8"), (3, "no UTF-8")]);
    let [(name, rows)] = &file.users[..] else { panic!("{:?}", file.users) };
    assert_eq!((name.as_str(), rows.check[0].value.as_str()), ("ann", "gr\u{f6}n"));
}

#[test]
fn the_installed_users_file_has_nobody_but_its_defaults() {
    let text = installed("mods-config/files/authorize");
    let (file, complaints) = users_file(&text);
    assert_eq!((file.users.len(), file.groups.len()), (0, 0));
    // Its three entries: PPP, which nobody comes to, and two by a hint.
    let (rows, entries): (Vec<_>, Vec<_>) =
        complaints.iter().partition(|c| c.what.contains("this row was left out with its entry"));
    let lines: Vec<&str> = entries.iter().map(|c| text.lines().nth(c.line - 1).unwrap()).collect();
    assert_eq!((lines.len(), rows.len()), (3, 3), "{complaints:?}");
    assert!(lines.iter().all(|line| line.starts_with("DEFAULT")), "{lines:?}");
    assert!(complaints[0].what.contains("no entry of this file") && complaints[1].what.contains("Hint"));
}

#[test]
fn the_installed_users_file_with_its_examples_taken_in() {
    // Examples that are one `#` away from being entries.
    let text: String = installed("mods-config/files/authorize")
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest)
                if rest.starts_with("bob\t")
                    || rest.starts_with("steve\t")
                    || rest.starts_with("\tFramed-") =>
            {
                rest
            }
            Some(rest)
                if rest.starts_with("\"John Doe\"") || rest.starts_with("\tService-Type = Framed-User") =>
            {
                rest
            }
            _ => line,
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let (file, _) = users_file(&text);
    let names: Vec<&str> = file.users.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["steve", "bob", "John Doe"]);
    assert_eq!(file.users[0].1.check, password("testing").check);
    let steve: Vec<&str> = file.users[0].1.reply.iter().map(|r| r.attribute.as_str()).collect();
    assert!(
        ["Service-Type", "Framed-Protocol", "Framed-IP-Address"].iter().all(|a| steve.contains(a)),
        "{steve:?}"
    );
}

fn client(nasname: &str, shortname: &str, secret: &str) -> ClientRow {
    ClientRow {
        nasname: nasname.to_owned(),
        shortname: shortname.to_owned(),
        kind: "other".to_owned(),
        secret: secret.to_owned(),
        ..ClientRow::default()
    }
}

#[test]
fn the_installed_clients_conf() {
    let text = installed("clients.conf");
    let (clients, complaints) = clients_conf(&text);
    let localhost = ClientRow {
        require_message_authenticator: Demand::No,
        ..client("127.0.0.1", "localhost", "testing123")
    };
    assert_eq!(clients, [localhost, client("::1", "localhost_ipv6", "testing123")]);
    let lines: Vec<&str> = complaints.iter().map(|c| text.lines().nth(c.line - 1).unwrap().trim()).collect();
    assert_eq!(lines, ["secret = testing123", "limit {", "secret\t\t= testing123"]);
}

#[test]
fn clients_of_every_form() {
    let text = "\
client 192.0.2.7 { secret = one }   # FreeRADIUS 1
client floors {
    ipaddr = 192.0.2.77/24
    secret = \"a \\\"b\\\" #c\"
    shortname = f
    nas_type = cisco
    require_message_authenticator = yes
    limit_proxy_state = auto
}
clients more {
    client six { ipv6addr = 2001:db8:0:0::1/32, secret = 's%{x}' }
}
client any { ipv4addr = * ; secret = three }
client old { ipaddr = 10.1.2.3
netmask = 8
secret = four }
client all6 { ipv6addr = ::/0
 secret = five }
";
    let (clients, complaints) = clients_conf(text);
    complained(&complaints, &[(10, "for all sockets")]);
    let floors = ClientRow {
        kind: "cisco".to_owned(),
        require_message_authenticator: Demand::Yes,
        ..client("192.0.2.0/24", "f", "a \"b\" #c")
    };
    let expected = [
        client("192.0.2.7", "192.0.2.7", "one"),
        floors,
        client("2001:db8::/32", "six", "s%{x}"),
        client("0.0.0.0/0", "any", "three"),
        client("10.0.0.0/8", "old", "four"),
        client("::/0", "all6", "five"),
    ];
    assert_eq!(clients, expected);
}

/// Its secret is public, so that by UDP it would be anybody.
#[test]
fn a_client_by_radsec_becomes_none_by_udp() {
    let text = "\
clients radsec {
    client peer { ipaddr = 192.0.2.1
        proto = tls
        secret = radsec }
    client own { ipaddr = 192.0.2.2
        proto = tls
        secret = another }
}
client public { ipaddr = 192.0.2.3
    secret = radsec }
client plain { ipaddr = 192.0.2.4
    proto = udp
    secret = x }
";
    let (clients, complaints) = clients_conf(text);
    let why = "it comes by RadSec, by its certificate and not by a secret; add a [[client]]";
    complained(&complaints, &[(1, "for all sockets"), (2, why), (5, why), (9, why)]);
    assert_eq!(clients, [client("192.0.2.4", "plain", "x")]);
}

#[test]
fn clients_that_cannot_be_taken_over() {
    let text = "\
}
secret = x
client named { ipaddr = radius.example.org
    secret = x }
client bare { ipaddr = 192.0.2.1 }
client elsewhere {
    ipaddr = 192.0.2.2
    secret = $ENV{SECRET}
}
client wide { ipaddr = 192.0.2.0/33
 secret = x }
client a { ipaddr = 192.0.2.9
 secret = x#y
 virtual_server = v
 novelty = 1
 proto = tcp
 limit_proxy_state = perhaps
 ipaddr = 192.0.2.10
 limit { max_connections = 16 inner { a = b } }
}
client b { ipaddr = 192.0.2.10
 secret = z }
listen { type = auth
 secret = q }
just words here
$INCLUDE other.conf
client open { secret = \"
client {
";
    let (clients, complaints) = clients_conf(text);
    complained(
        &complaints,
        &[
            (1, "closes nothing"),
            (2, "stands in no section"),
            (3, "names are not looked up"),
            (5, "no secret"),
            (6, "no secret"),
            (8, "write it out"),
            (10, "at most 32 bits"),
            (14, "no such setting"),
            (15, "not known"),
            (16, "tcp is not served"),
            (17, "neither yes, no nor auto"),
            (18, "192.0.2.9, which stood before"),
            (19, "section limit"),
            (21, "line 12 already"),
            (23, "section listen is no client"),
            (25, "neither `name = value`"),
            (26, "import that file"),
            (27, "not closed"),
            (28, "section client of a client"),
            (28, "begins at line 27"),
        ],
    );
    assert_eq!(clients, [client("192.0.2.10", "a", "x#y")]);
}

proptest! {
    #[test]
    fn any_text_is_read_to_its_end(text in any::<String>()) {
        prop_assert!(import::fuzz(&text));
    }

    #[test]
    fn any_text_of_their_words_is_read_to_its_end(
        words in proptest::collection::vec(prop::sample::select(WORDS), 0..60),
    ) {
        prop_assert!(import::fuzz(&words.concat()));
    }

    #[test]
    fn a_quoted_value_is_read_as_it_was_written(value in "[^\\x00-\\x1f]{1,40}") {
        let marked: String = value.chars().flat_map(|c| ['\\', c].into_iter().skip(usize::from(!"\"\\".contains(c)))).collect();
        // U+FFFD stands for octets that are no UTF-8.
        prop_assume!(!value.contains("%{") && !value.contains('\u{fffd}'));
        let (file, complaints) = users_file(&format!("kaya Cleartext-Password := \"{marked}\"\n"));
        prop_assert_eq!(complaints, []);
        prop_assert_eq!(&file.users, &[("kaya".to_owned(), password(&value))]);
    }
}

/// What both files are made of.
const WORDS: &[&str] = &[
    "\n",
    "\n",
    "\n\t",
    " ",
    ",",
    "#",
    "\"",
    "'",
    "`",
    "\\",
    "{",
    "}",
    "=",
    ":=",
    "+=",
    "==",
    ":1",
    "%{",
    "$INCLUDE ",
    "$ENV{",
    "client ",
    "clients ",
    "ipaddr",
    "secret",
    "netmask",
    "192.0.2.1",
    "/24",
    "/",
    "::",
    "*",
    "yes",
    "limit ",
    "DEFAULT",
    "kaya",
    "Fall-Through",
    "Yes",
    "Cleartext-Password",
    "Auth-Type",
    "\u{e9}",
    "\\1",
    "\r",
];
