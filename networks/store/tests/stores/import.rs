//! Tests of the import of FreeRADIUS's files.

use crate::suite::{attribute_row, password_user};
use proptest::prelude::*;
use std::sync::LazyLock;
use usher_aaa::store::{ClientRequirement, ClientRow, GroupRows, RowOperator, UserRows};
use usher_radius::dictionary::RadiusDictionary;
use usher_store::import::{self, ImportIssue, UsersFile, clients_conf};

static DICTIONARY: LazyLock<RadiusDictionary> = LazyLock::new(RadiusDictionary::builtin);

fn users_file(text: &str) -> (UsersFile, Vec<ImportIssue>) {
    import::users_file(text, &DICTIONARY)
}

/// Checks the lines of the issues, each with a part of its message.
#[track_caller]
fn expect_issues(found: &[ImportIssue], expected: &[(usize, &str)]) {
    let said =
        |(c, (line, part)): (&ImportIssue, &(usize, &str))| c.line == *line && c.message.contains(part);
    let all = found.len() == expected.len() && found.iter().zip(expected).all(said);
    assert!(all, "{found:#?}\ndo not say\n{expected:#?}");
}

/// Returns the lines of the DEFAULT entries that became a user's groups.
fn lines_of(groups: &[GroupRows]) -> Vec<&str> {
    groups.iter().map(|group| group.name.split('-').nth(2).unwrap_or_default()).collect()
}

/// Reads a file of Debian's package freeradius-config.
fn installed_file(path: &str) -> String {
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
    expect_issues(&complaints, &[(9, "write Cleartext-Password := instead")]);
    let mut kaya = password_user("it's \"x\"");
    kaya.check.push(attribute_row("NAS-Port-Type", RowOperator::Equal, "Ethernet"));
    kaya.reply = vec![
        attribute_row("Service-Type", RowOperator::Set, "Framed-User"),
        attribute_row("Tunnel-Type:1", RowOperator::Set, "VLAN"),
        attribute_row("Tunnel-Private-Group-Id:1", RowOperator::Replace, "20"),
        attribute_row("Reply-Message", RowOperator::Add, "as %{it} is"),
    ];
    let nt = attribute_row("NT-Password", RowOperator::Replace, "0123456789ABCDEF0123456789ABCDEF");
    let gone = UserRows {
        check: vec![attribute_row("Auth-Type", RowOperator::Replace, "Reject")],
        reply: vec![attribute_row("Reply-Message", RowOperator::Set, "no")],
        ..UserRows::default()
    };
    let odd = UserRows {
        check: vec![
            attribute_row("Called-Station-Id", RowOperator::Equal, "02-00:house"),
            attribute_row("Class", RowOperator::Absent, "ANY"),
            attribute_row("Cleartext-Password", RowOperator::Replace, "x"),
        ],
        ..UserRows::default()
    };
    let expected = [
        ("kaya", kaya),
        ("Lim Ah Kow", UserRows { check: vec![nt], ..UserRows::default() }),
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
    expect_issues(&complaints, &[(12, "no entry of this file reaches it")]);
    let lines = |n: usize| lines_of(&file.users[n].1.groups);
    assert_eq!(lines(0), ["1", "7", "10"]);
    assert_eq!(lines(1), ["1"], "who does not fall through stays at his entry");
    let name = |line: usize| {
        let begin = format!("default-line-{line}-");
        file.groups.iter().find(|group| group.name.starts_with(&begin)).unwrap().name.clone()
    };
    let group =
        |line: usize, check: &[_], reply| GroupRows { name: name(line), check: check.to_vec(), reply };
    let yes = attribute_row("Fall-Through", RowOperator::Set, "Yes");
    let expected = [
        group(
            1,
            &[attribute_row("NAS-Port-Type", RowOperator::Equal, "Virtual")],
            vec![attribute_row("Filter-Id", RowOperator::Set, "first"), yes.clone()],
        ),
        group(
            7,
            &[attribute_row("Framed-Protocol", RowOperator::Equal, "PPP")],
            vec![attribute_row("Framed-MTU", RowOperator::Set, "1500"), yes],
        ),
        group(10, &[], vec![attribute_row("Session-Timeout", RowOperator::Set, "60")]),
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
    expect_issues(
        &complaints,
        &[
            (1, "included files are not read here"),
            (2, "no readable entry is above it"),
            (3, "Huntgroup-Name == alphen: this check is not supported"),
            (4, "Framed-IP-Address: this row was left out with the entry of \"swilson\" at line 3"),
            (6, "Reply-Message"),
            (7, "Session-Timeout"),
            (8, "Filter-Id"),
            (9, "Exec-Program"),
            (11, "line 5"),
            (12, "Argon2"),
            (13, "Auth-Type"),
            (14, "not closed"),
            (15, "a comma is missing"),
            (16, "all its conditions on one line"),
            (17, "but no row follows"),
            (20, "the line before does not end with a comma"),
            (21, "the line before"),
            (21, "`Attribute operator value`"),
            (22, "the line before"),
            (22, "`Attribute operator value`"),
            (23, "the line before"),
            (23, "has no value"),
        ],
    );
    assert!(complaints[2].message.contains("the entry of \"swilson\" was left out"), "{complaints:#?}");
    assert!(complaints[2].message.contains("NAS-IP-Address"), "{complaints:#?}");
    let names: Vec<&str> = file.users.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["bob", "last", "next"], "an entry whose condition was lost would let in more");
    assert_eq!(file.users[0].1.reply, [attribute_row("Framed-MTU", RowOperator::Set, "1500")]);
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
    expect_issues(&complaints, &[(1, left_out), (2, "left out with the entry"), (4, left_out)]);
    assert_eq!(file.users.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["lim"]);
}

#[test]
fn invalid_utf8_leaves_out_only_the_entries_that_contain_it() {
    let text = "\u{feff}ann Cleartext-Password := \"gr\\303\\266n\" # gr\u{fffd}n\nbob Cleartext-Password := \"Se\\361al\"\n\
                eve Cleartext-Password := gr\u{fffd}n\n";
    let (file, complaints) = users_file(text);
    expect_issues(&complaints, &[(2, "not valid UTF-8"), (3, "not valid UTF-8")]);
    let [(name, rows)] = &file.users[..] else { panic!("{:?}", file.users) };
    assert_eq!((name.as_str(), rows.check[0].value.as_str()), ("ann", "gr\u{f6}n"));
}

#[test]
fn the_installed_users_file_has_nobody_but_its_defaults() {
    let text = installed_file("mods-config/files/authorize");
    let (file, complaints) = users_file(&text);
    assert_eq!((file.users.len(), file.groups.len()), (0, 0));
    // Its three entries: PPP, which no user reaches, and two by a hint.
    let (rows, entries): (Vec<_>, Vec<_>) =
        complaints.iter().partition(|c| c.message.contains("this row was left out with the entry"));
    let lines: Vec<&str> = entries.iter().map(|c| text.lines().nth(c.line - 1).unwrap()).collect();
    assert_eq!((lines.len(), rows.len()), (3, 3), "{complaints:?}");
    assert!(lines.iter().all(|line| line.starts_with("DEFAULT")), "{lines:?}");
    assert!(
        complaints[0].message.contains("no entry of this file") && complaints[1].message.contains("Hint")
    );
}

#[test]
fn the_installed_users_file_with_its_examples_taken_in() {
    // Examples that become entries without their `#`.
    let text: String = installed_file("mods-config/files/authorize")
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
    let (file, complaints) = users_file(&text);
    // Steve's attribute names that only FreeRADIUS's dictionary of old names has. Its own DEFAULT entries stop
    // nothing.
    let old = ["Framed-Filter-Id", "Van-Jacobsen"];
    let stopping: Vec<_> = complaints.iter().filter(|c| c.stops).collect();
    assert!(
        stopping.iter().zip(old).all(|(c, old)| c.message.contains(old)) && stopping.len() == 2,
        "{stopping:#?}"
    );
    let names: Vec<&str> = file.users.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["steve", "bob", "John Doe"]);
    assert_eq!(file.users[0].1.check, password_user("testing").check);
    let steve: Vec<&str> = file.users[0].1.reply.iter().map(|r| r.attribute.as_str()).collect();
    assert!(
        ["Service-Type", "Framed-Protocol", "Framed-IP-Address"].iter().all(|a| steve.contains(a)),
        "{steve:?}"
    );
}

fn client_row(nasname: &str, shortname: &str, secret: &str) -> ClientRow {
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
    let text = installed_file("clients.conf");
    let (clients, complaints) = clients_conf(&text);
    let localhost = ClientRow {
        require_message_authenticator: ClientRequirement::No,
        ..client_row("127.0.0.1", "localhost", "testing123")
    };
    assert_eq!(clients, [localhost, client_row("::1", "localhost_ipv6", "testing123")]);
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
client six { ipv6addr = 2001:db8:0:0::1/32, secret = \"s%{x}\" }
client any { ipv4addr = * ; secret = three }
client old { ipaddr = 10.0.0.0
netmask = 8
secret = four }
client all6 { ipv6addr = ::/0
 secret = five }
";
    let (clients, complaints) = clients_conf(text);
    expect_issues(&complaints, &[]);
    let floors = ClientRow {
        kind: "cisco".to_owned(),
        require_message_authenticator: ClientRequirement::Yes,
        ..client_row("192.0.2.0/24", "f", "a \"b\" #c")
    };
    let expected = [
        client_row("192.0.2.7", "192.0.2.7", "one"),
        floors,
        client_row("2001:db8::/32", "six", "s%{x}"),
        client_row("0.0.0.0/0", "any", "three"),
        client_row("10.0.0.0/8", "old", "four"),
        client_row("::/0", "all6", "five"),
    ];
    assert_eq!(clients, expected);
}

/// Its secret is public, so any host could use it by UDP.
#[test]
fn a_client_by_radsec_becomes_none_by_udp() {
    let text = "\
clients radsec {
    client peer { ipaddr = 192.0.2.1
        secret = radsec }
}
client tls { ipaddr = 192.0.2.2
    proto = tls
    secret = another }
client own { ipaddr = 192.0.2.5
    proto = radsec
    secret = another }
client public { ipaddr = 192.0.2.3
    secret = radsec }
client plain { ipaddr = 192.0.2.4
    proto = udp
    secret = x }
";
    let (clients, complaints) = clients_conf(text);
    let why = "it uses RadSec, with a certificate instead of a secret; add a [[client]]";
    expect_issues(&complaints, &[(1, "clients radsec was left out"), (5, why), (8, why), (11, why)]);
    assert_eq!(clients, [client_row("192.0.2.4", "plain", "x")]);
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
 novelty = 1
 secret = later
 limit { max_connections = 16 inner { a = b } }
}
client b { ipaddr = 192.0.2.9
 secret = z }
listen { type = auth
 secret = q }
just words here
$include other.conf
client open { secret = \"
client {
";
    let (clients, complaints) = clients_conf(text);
    expect_issues(
        &complaints,
        &[
            (1, "closes no section"),
            (2, "it is in no section"),
            (3, "names are not looked up"),
            (5, "no secret"),
            (6, "its secret cannot be imported (line 8)"),
            (8, "write the value itself"),
            (10, "at most 32 bits"),
            (14, "unknown setting"),
            (15, "the first one counts"),
            (16, "section limit"),
            (18, "already has a client at line 12"),
            (20, "section listen was ignored"),
            (22, "neither `name = value`"),
            (23, "import that file"),
            (24, "not closed"),
            (25, "section client of a client"),
            (25, "from line 24"),
        ],
    );
    assert_eq!(clients, [client_row("192.0.2.9", "a", "x#y")]);
}

/// In FreeRADIUS each is more restricted than a UDP client for all hosts of an address.
#[test]
fn clients_that_are_others_there_are_left_out() {
    for (inner, why) in [
        ("ipaddr = 192.0.2.1\n proto = radsec", "it uses RadSec"),
        ("ipaddr = 192.0.2.1\n proto = tcp", "its proto cannot be imported"),
        ("ipaddr = 192.0.2.0/24\n dynamic_clients = d", "its dynamic_clients cannot be imported"),
        ("ipaddr = 192.0.2.1\n virtual_server = guests", "its virtual_server cannot be imported"),
        (
            "ipaddr = 192.0.2.1\n require_message_authenticator = $ENV{X}",
            "require_message_authenticator cannot",
        ),
        (
            "ipaddr = 192.0.2.1\n require_message_authenticator = perhaps",
            "require_message_authenticator cannot",
        ),
        ("ipaddr = 192.0.2.1\n limit_proxy_state = perhaps", "limit_proxy_state cannot"),
        ("ipaddr = 192.0.2.1\n ipv4addr = 192.0.2.2", "its ipv4addr cannot be imported"),
        ("ipaddr = $ENV{X}", "its ipaddr cannot be imported"),
        ("ipaddr = 10.1.2.3\n netmask = 8", "it matches no host in FreeRADIUS"),
        ("ipaddr = 10.1.0.0/16\n netmask = 8", "another netmask"),
        ("ipaddr = 192.0.2.1\n $INCLUDE more", "it includes a file"),
        ("ipaddr = 192.0.2.1\n just words here", "one of its lines cannot be read"),
    ] {
        let (clients, complaints) = clients_conf(&format!("client 192.0.2.9 {{ {inner}\n secret = x }}\n"));
        let named = complaints
            .iter()
            .any(|c| c.line == 1 && c.message.contains(why) && c.message.contains("left out"));
        assert!(clients.is_empty() && named, "{inner}: {clients:?} {complaints:#?}");
    }
    let (clients, _) = clients_conf("clients unused {\n client c { ipaddr = 192.0.2.1\n secret = x }\n}\n");
    assert_eq!(clients, []);
}

/// Its packets would match the wider client, which has another secret and other rules.
#[test]
fn a_skipped_client_inside_an_imported_one_stops_the_import() {
    let wide = "client wide { ipaddr = 127.0.0.0/8\n secret = weak\n}\n";
    let stops = |text: &str| clients_conf(text).1.iter().any(|c| c.stops);
    for special in [
        "client s { ipaddr = 127.0.0.1\n secret = strong\n virtual_server = other\n}\n",
        "client 127.0.0.1 { secret = strong\n virtual_server = other\n}\n",
        "client s { ipaddr = 127.0.0.0/24\n dynamic_clients = d\n}\n",
        "client s { ipaddr = 127.0.0.1\n secret = $ENV{STRONG}\n}\n",
        "client s { ipaddr = 127.0.0.1\n proto = *\n}\n",
        "client s { ipaddr = 127.0.0.1\n secret = radsec\n}\n",
        "client s { ipaddr = 127.0.0.1\n secret = strong\n proto = $ENV{P}\n}\n",
        "client s { ipaddr = 127.0.0.1\n secret = strong\n require_message_authenticator = maybe\n}\n",
        "client s { ipaddr = 127.0.0.1\n secret = strong\n $INCLUDE more\n}\n",
        "client s { $INCLUDE more\n}\n",
        "client s { ipaddr = $ENV{SOMEWHERE}\n secret = strong\n}\n",
        "client s { ipaddr = radius.example.org\n secret = strong\n}\n",
        "client s { ipaddr = 192.0.2.1\n ipv4addr = 127.0.0.1\n secret = strong\n}\n",
        "$INCLUDE more\n",
        "$-include more\n",
        "client s { ipaddr = 127.0.0.1\n secret = strong\n",
    ] {
        assert!(stops(&format!("{wide}{special}")), "{special}");
        if special.ends_with('}') || special.ends_with("}\n") {
            assert!(stops(&format!("{special}{wide}")), "{special}");
        }
        assert!(!stops(special), "{special}");
        assert!(
            !stops(&format!("{special}client one {{ ipaddr = 192.0.2.7\n secret = x\n}}\n")),
            "{special}"
        );
    }
    for other in [
        "client s { ipaddr = 127.0.0.1\n secret = strong\n proto = tcp\n}\n",
        "client s { ipaddr = 127.0.0.1\n secret = strong\n proto = tls\n}\n",
        "client s { ipaddr = 128.0.0.1\n virtual_server = other\n}\n",
        "client s { ipaddr = 126.0.0.0/7\n virtual_server = other\n}\n",
        "client s { ipaddr = ::1\n virtual_server = other\n}\n",
        "client s { ipaddr = 127.0.0.1\n netmask = 16\n secret = strong\n}\n",
        "client s { ipaddr = 127.0.0.0/8\n secret = weak\n}\n",
        "clients list { client s { ipaddr = 127.0.0.1\n secret = strong\n}\n}\n",
    ] {
        assert!(!stops(&format!("{wide}{other}")), "{other}");
    }
    let (_, complaints) = clients_conf(&format!("{wide}client s {{ ipaddr = 127.0.0.1\n}}\n"));
    assert!(complaints[0].message.contains("the wider client 127.0.0.0/8"), "{complaints:?}");
}

/// FreeRADIUS's setting names are case-sensitive, and it ignores unknown ones.
#[test]
fn settings_in_other_letters_are_others() {
    for (text, nasname, secret) in [
        ("client 127.0.0.9 { Ipaddr = 0.0.0.0/0\n secret = x }", "127.0.0.9", "x"),
        ("client c { ipaddr = 192.0.2.1\n SECRET = y\n secret = x }", "192.0.2.1", "x"),
        ("client c { ipaddr = 192.0.2.1\n secret = x\n Virtual_Server = z }", "192.0.2.1", "x"),
    ] {
        let (clients, complaints) = clients_conf(text);
        let found: Vec<_> = clients.iter().map(|c| (c.nasname.as_str(), c.secret.as_str())).collect();
        assert_eq!(found, [(nasname, secret)], "{text}");
        assert!(complaints.len() == 1 && complaints[0].message.contains("unknown setting"), "{complaints:?}");
    }
}

/// Results of FreeRADIUS 3.2.1; another test compares with it.
#[test]
fn clients_are_read_as_freeradius_reads_them() {
    for (text, nasname, secret) in [
        ("client 127.0.9.1 { netmask = 8\n secret = x }", "127.0.9.1", "x"),
        ("client c { ipaddr = 192.0.2.1\n secret = first\n secret = second }", "192.0.2.1", "first"),
        ("client c { ipaddr = 192.0.2.1\n ipaddr = 192.0.2.2\n secret = x }", "192.0.2.1", "x"),
        ("client c { ipaddr = 192.0.2.1\n secret = ab\\\ncd\n}", "192.0.2.1", "abcd"),
        ("client c { ipaddr = 192.0.2.1 # a note \\\n secret = x\n secret = y\n}", "192.0.2.1", "y"),
        ("client c { ipaddr = 0.0.0.0\n secret = x }", "0.0.0.0/0", "x"),
        ("client c { ipaddr = ::\n secret = x }", "::/0", "x"),
        ("client c { ipaddr = 192.0.2.1\n secret = \"a%{b}c\" }", "192.0.2.1", "a%{b}c"),
        ("client c { ipaddr = 192.0.2.1\n virtual_server = default\n secret = x }", "192.0.2.1", "x"),
    ] {
        let (clients, complaints) = clients_conf(text);
        let found: Vec<_> = clients.iter().map(|c| (c.nasname.as_str(), c.secret.as_str())).collect();
        assert_eq!(found, [(nasname, secret)], "{text}: {complaints:#?}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_to_its_end(text in any::<String>()) {
        prop_assert!(import::fuzz_import(&text));
    }

    #[test]
    fn any_text_of_their_words_is_read_to_its_end(
        words in proptest::collection::vec(prop::sample::select(WORDS), 0..60),
    ) {
        prop_assert!(import::fuzz_import(&words.concat()));
    }

    #[test]
    fn a_quoted_value_is_read_as_it_was_written(value in "[^\\x00-\\x1f]{1,40}") {
        let marked: String = value.chars().flat_map(|c| ['\\', c].into_iter().skip(usize::from(!"\"\\".contains(c)))).collect();
        // U+FFFD stands for invalid UTF-8.
        prop_assume!(!value.contains("%{") && !value.contains('\u{fffd}'));
        let (file, complaints) = users_file(&format!("kaya Cleartext-Password := \"{marked}\"\n"));
        prop_assert_eq!(complaints, []);
        prop_assert_eq!(&file.users, &[("kaya".to_owned(), password_user(&value))]);
    }
}

/// The vocabulary of both generated files.
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
