//! Tests which parts of a users file stop the import: those without which the server would accept a user that
//! FreeRADIUS rejects.

use crate::suite::{attribute_row, password_user};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;
use usher_aaa::store::RowOperator;
use usher_radius::dictionary::RadiusDictionary;
use usher_store::import::{ImportIssue, UsersFile, UsersImport};

static DICTIONARY: LazyLock<RadiusDictionary> = LazyLock::new(RadiusDictionary::builtin);

fn users_file(text: &str) -> (UsersFile, Vec<ImportIssue>) {
    UsersImport::new(&DICTIONARY).read_text(text)
}

#[track_caller]
fn expect_stop(text: &str, why: &str) {
    let (_, complaints) = users_file(text);
    let said = complaints.iter().any(|c| c.stops && c.message.contains(why));
    assert!(said, "nothing that stops says {why:?}:\n{text}\n{complaints:#?}");
}

#[track_caller]
fn expect_pass(text: &str) -> (UsersFile, Vec<ImportIssue>) {
    let (file, complaints) = users_file(text);
    assert!(!complaints.iter().any(|c| c.stops), "{text}\n{complaints:#?}");
    (file, complaints)
}

const ANN: &str = "ann Cleartext-Password := a\n";
const ANN_ON: &str = "ann Cleartext-Password := a\n\tFall-Through = Yes\n";
const YES: &str = "\tFall-Through = Yes\n";

/// At such an entry FreeRADIUS ends the search before a user's own entry, or it adds rows that are missing here. If
/// the first of these were only reported, its users would be accepted here and rejected by FreeRADIUS.
#[test]
fn a_default_that_cannot_precede_its_users_stops_the_import() {
    for (default, why) in [
        ("DEFAULT NAS-Port == 1, Simultaneous-Use := 1\n", "stands above entries"),
        ("DEFAULT NAS-IP-Address == 10.0.0.9\n\tReply-Message = no\n", "stands above entries"),
        ("DEFAULT\n\tReply-Message = closed\n", "stands above entries"),
        ("DEFAULT Framed-Protocol == PPP\n\tFramed-Protocol = PPP\n", "stands above entries"),
        ("DEFAULT Login-Time := \"Wk0100-0101\"\n\tFall-Through = Yes\n", "this DEFAULT was left out"),
        ("DEFAULT Huntgroup-Name == x\n", "this DEFAULT was left out"),
        ("DEFAULT Hint == PPP, NAS-Port == 1\n", "this DEFAULT was left out"),
        ("DEFAULT Hint == PPP\n\tSession-Timeout = 60\n", "this DEFAULT was left out"),
        ("DEFAULT NAS-Port = 1 NAS-Port-Type == Virtual\n", "this DEFAULT was left out"),
        ("DEFAULT NAS-Port == 1, Auth-Type := Reject\n", "rejects every user that it matches"),
        ("DEFAULT NAS-Port == 1, Auth-Type := 4\n", "rejects every user that it matches"),
        ("DEFAULT Filter-Id == \"\\374\", Auth-Type := reject\n", "rejects every user that it matches"),
    ] {
        expect_stop(&format!("{default}{ANN}"), why);
        // No user reaches it from above.
        expect_pass(&format!("{ANN}{default}"));
        expect_pass(&format!("{default}gone Huntgroup-Name == y\n"));
    }
    for never in
        ["DEFAULT Cleartext-Password = x\n", "DEFAULT Fall-Through = Yes\n", "DEFAULT Pool-Name == x\n"]
    {
        let (file, complaints) = expect_pass(&format!("{never}{ANN}"));
        assert!(
            file.groups.is_empty() && complaints[0].message.contains("it never matches in FreeRADIUS"),
            "{complaints:?}"
        );
    }
}

/// A user with Fall-Through reaches it.
#[test]
fn a_default_that_users_go_on_to_and_is_lost_stops_the_import() {
    for default in ["DEFAULT Login-Time := \"Wk0100-0101\"\n", "DEFAULT Group == x\n\tSession-Timeout = 60\n"]
    {
        expect_stop(&format!("{ANN_ON}{default}"), "this DEFAULT was left out");
        expect_pass(&format!("{ANN_ON}DEFAULT\n\tIdle-Timeout = 5\n{default}"));
    }
    let hints =
        "DEFAULT Hint == \"CSLIP\"\n\tFramed-Protocol = SLIP,\n\tFramed-Compression = Van-Jacobson-TCP-IP\n";
    expect_pass(&format!("{ANN_ON}{hints}"));
    expect_pass(&format!("{hints}{ANN}"));
}

/// The first case of the second loop must stop the import: in FreeRADIUS user `ann` reaches that entry first.
#[test]
fn an_entry_with_a_taken_name_stops_the_import() {
    for (text, why) in [
        (
            "cat Cleartext-Password := new, Login-Time := x\ncat Cleartext-Password := old\n",
            "FreeRADIUS reaches it before the one",
        ),
        ("ann Group == x\nann Cleartext-Password := a\n", "FreeRADIUS reaches it before the one"),
        (
            "ann Group == x, Auth-Type := Reject\nann Cleartext-Password := a\n",
            "FreeRADIUS reaches it before the one",
        ),
        (
            "ann Cleartext-Password := a\n\tFall-Through = Yes\nann Expiration := \"1 Jan 2020\"\n",
            "FreeRADIUS reaches this one too",
        ),
        (
            "ann Cleartext-Password := a\n\tFall-Through = Yes\nann NAS-Port == 7, Auth-Type := Reject\n",
            "FreeRADIUS reaches this one too",
        ),
        ("ann Filter-Id @ 7, Auth-Type := Reject\n", "it rejects users"),
        ("\"\" Auth-Type := Reject\n", "it rejects users"),
    ] {
        expect_stop(text, why);
    }
    for text in [
        "ann Cleartext-Password := a\nann NAS-Port == 7\n",
        "ann Cleartext-Password := a\nann Cleartext-Password := b, Auth-Type := Reject\n",
        "ann Cleartext-Password = b\nann Cleartext-Password := a\n",
        "gone Auth-Type := Reject\n",
        "ann Cleartext-Password := a\nDEFAULT Auth-Type := Reject\n",
        "rejecter Huntgroup-Name == x\n",
    ] {
        expect_pass(text);
    }
}

/// In FreeRADIUS a DEFAULT's rows come before those of later entries. Here they come after.
#[test]
fn a_default_above_that_says_what_a_user_says_stops_the_import() {
    let before = "DEFAULT NAS-Port-Type == Virtual\n\tSession-Timeout = 600,\n\tFall-Through = Yes\n";
    expect_stop(
        &format!("{before}bob Cleartext-Password := b\n\tSession-Timeout = 3600\n"),
        "both set Session-Timeout",
    );
    expect_pass(&format!("{before}bob Cleartext-Password := b\n\tIdle-Timeout = 3600\n"));
    let before = format!("DEFAULT Cleartext-Password := x\n{YES}");
    expect_stop(&format!("{before}{ANN}"), "both set password");
    let tagged = format!("DEFAULT\n\tTunnel-Type:1 = VLAN,\n{YES}");
    expect_stop(&format!("{tagged}{ANN}\ttunnel-type:2 = VLAN\n"), "both set Tunnel-Type");
}

/// A later DEFAULT with `:=` replaces the user's value, as a group does here. Otherwise the import stops.
#[test]
fn a_default_below_that_sets_what_the_user_sets() {
    for below in ["Expiration := \"1 Jan 2020\"", "Cleartext-Password := y", "Simultaneous-Use := 1"] {
        expect_pass(&format!(
            "dan Cleartext-Password := x, Expiration := \"1 Jan 2030\"\n{YES}DEFAULT {below}\n"
        ));
    }
    for (own, below, why) in [
        ("Cleartext-Password := x", "Password-With-Header := \"{clear}y\"", "both set password"),
        ("EAP-Type := PEAP", "Auth-Type := PAP", "both set method"),
        ("Cleartext-Password := x", "User-Password == master", "this DEFAULT was left out"),
        ("Cleartext-Password := x", "User-Password := master", "this DEFAULT was left out"),
        ("Cleartext-Password := x", "Password == master", "this DEFAULT was left out"),
    ] {
        expect_stop(&format!("dan {own}\n{YES}DEFAULT {below}\n"), why);
    }
    let below = "DEFAULT Cleartext-Password := y, Cleartext-Password := z\n";
    expect_stop(&format!("dan Cleartext-Password := x\n{YES}{below}"), "both set cleartext-password");
    let (_, complaints) =
        expect_pass(&format!("dan Cleartext-Password := x\n{YES}DEFAULT Cleartext-Password := y\n"));
    assert!(complaints[0].message.contains("also accepts users without an entry"), "{complaints:?}");
    let twice = "dan Cleartext-Password := x\n\tFilter-Id = a,\n\tFilter-Id = b,\n\tFall-Through = Yes\n";
    expect_stop(&format!("{twice}DEFAULT\n\tFilter-Id := c\n"), "both set Filter-Id");
    let (file, _) = expect_pass(twice);
    let ops: Vec<RowOperator> = file.users[0].1.reply.iter().map(|row| row.op).collect();
    assert_eq!(ops, [RowOperator::Set, RowOperator::Add], "FreeRADIUS sends both");
}

#[test]
fn what_a_condition_means_there() {
    for (check, said, taken) in [
        ("User-Password := x", "write Cleartext-Password", false),
        ("User-Password == x", "write Cleartext-Password", false),
        ("User-Password += x", "write Cleartext-Password", false),
        ("User-Password =~ x", "write Cleartext-Password", false),
        ("User-Password != x", "write Cleartext-Password", false),
        ("User-Password == x, Auth-Type := Accept", "write Cleartext-Password", false),
        ("Cleartext-Password = x", "it never matches in FreeRADIUS", false),
        ("Cleartext-Password := x, Simultaneous-Use == 1", "it never matches in FreeRADIUS", false),
        ("Cleartext-Password := x, Fall-Through = Yes", "it never matches in FreeRADIUS", false),
        ("Cleartext-Password := x, Fall-Through := Yes", "has no effect on this line", true),
        ("Cleartext-Password := x, Auth-Type == Accept", "neither compares nor sets", true),
        ("Cleartext-Password := x, Cleartext-Password := y", "the second was left out", true),
        (
            "Cleartext-Password := x, NT-Password := 0123456789ABCDEF0123456789ABCDEF",
            "the method decides which one counts",
            false,
        ),
        ("Auth-Type := Accept", "by its address alone", true),
        ("Cleartext-Password := x, Expiration := \"1 Jan 2030\"", "in local time", true),
        ("Cleartext-Password := x, Expiration := \"8 Feb 2106\"", "after 7 Feb 2106", false),
        ("Cleartext-Password := x, Event-Timestamp == \"1 Jan 2030\"", "in local time", true),
        ("Cleartext-Password := x, Event-Timestamp < \"1 Jan 2030\"", "a time 68 years", true),
        ("Cleartext-Password := x, Event-Timestamp > 5", "2,147,483,648", true),
        ("Cleartext-Password := x, NAS-Port >= 100", "2,147,483,648", true),
        ("Cleartext-Password := x, NAS-IP-Address > 10.0.0.0", "by == and != only", false),
        ("Cleartext-Password := x, NAS-IPv6-Address < 2001:db8::", "by == and != only", false),
        ("Cleartext-Password := x, Class < 0x05", "by == and != only", false),
        ("Cleartext-Password := x, Framed-Interface-Id >= 1:2:3:4", "by == and != only", false),
        ("Cleartext-Password := x, Framed-IPv6-Prefix <= 2001:db8::/32", "by == only", false),
        ("Cleartext-Password := x, Framed-IPv6-Prefix != 2001:db8::/32", "by == only", false),
        ("Cleartext-Password := x, Framed-IPv6-Prefix = 2001:db8::/32", "any prefix matches", false),
        (
            "Cleartext-Password := x, Fortinet-WirelessController-Device-MAC == 02:00:00:00:00:01",
            "any value matches",
            false,
        ),
        ("Cleartext-Password := x, Tunnel-Type:1 != VLAN", "write == only", false),
        ("Cleartext-Password := x, Tunnel-Type:1 !* ANY", "write == only", false),
        ("Cleartext-Password := x, Tunnel-Type:010 == VLAN", "without leading zeros", false),
        ("Cleartext-Password := x, Tunnel-Private-Group-Id == \":*:20\"", "without leading zeros", false),
        ("Cleartext-Password := x, Attr-26.99999.1 == 0x01", "by number", false),
        ("Cleartext-Password := x, Attr-4 != 0x0a000001", "by number", false),
        ("Cleartext-Password := x, attr-26.9.1 !* 0x01", "by number", false),
    ] {
        let (file, complaints) = users_file(&format!("ann {check}\n"));
        assert_eq!(file.users.len(), usize::from(taken), "{check}: {file:?}");
        assert!(complaints.iter().any(|c| c.message.contains(said)), "{check}: {complaints:#?}");
        let passwords = file.users.iter().flat_map(|(_, rows)| &rows.check);
        let passwords: Vec<_> = passwords.filter(|row| row.attribute == "Cleartext-Password").collect();
        assert!(
            passwords.len() <= 1 && passwords.iter().all(|row| row.value == "x"),
            "{check}: {passwords:?}"
        );
    }
}

/// The server rejects a login with such a row, since its restriction would be missing.
#[test]
fn a_lost_reply_row_stops_the_import_unless_it_may_be_left_out() {
    for reply in [
        "Filter-Id = \"%{User-Name}\"",
        "Session-Timeout <= 600",
        "Ascend-Nonsense = 1",
        "Fall-Through = Perhaps",
        "Fall-Through =* Yes",
        "Fall-Through !* Yes",
        "Fall-Through =~ Yes",
        "Filter-Id",
        "Tunnel-Private-Group-Id = \":*:20\"",
        "Tunnel-Private-Group-Id = \":010:20\"",
        "Tunnel-Private-Group-Id = \":+1:20\"",
        "Tunnel-Private-Group-Id = \":20\"",
        "Tunnel-Private-Group-Id:1 = \":2:20\"",
        "Tunnel-Type:010 = VLAN",
        "Tunnel-Type:+1 = VLAN",
    ] {
        let text = format!("{ANN}\tIdle-Timeout = 5,\n\t{reply}\n");
        expect_stop(&text, "use --leave-out");
        let import = UsersImport { leave_out: true, ..UsersImport::new(&DICTIONARY) };
        let (file, complaints) = import.read_text(&text);
        assert!(!complaints.is_empty() && !complaints.iter().any(|c| c.stops), "{complaints:#?}");
        assert_eq!(file.users[0].1.reply, [attribute_row("Idle-Timeout", RowOperator::Set, "5")]);
        // If no user reaches an entry, its rows are not missed.
        expect_pass(&format!("{ANN}DEFAULT\n\t{reply}\n"));
    }
    expect_pass(&format!("{ANN}\tReply-Message = \"Hello, %{{User-Name}}\"\n"));
}

#[test]
fn values_of_replies_are_what_they_are_there() {
    let text = "ann Cleartext-Password := a\n\tTunnel-Private-Group-Id = \":1:20\",\n\tClass = \"a\\101b\",\n\tFilter-Id = \"a\\101b\"\n";
    let (file, complaints) = expect_pass(text);
    assert_eq!(complaints, []);
    let expected = [
        attribute_row("Tunnel-Private-Group-Id:1", RowOperator::Set, "20"),
        attribute_row("Class", RowOperator::Set, "a\\101b"),
        attribute_row("Filter-Id", RowOperator::Set, "aAb"),
    ];
    assert_eq!(file.users[0].1.reply, expected);
}

#[test]
fn a_device_without_a_password_is_not_let_in_by_its_address() {
    let name = "02-00-5E-10-00-01";
    let (file, complaints) = expect_pass(&format!("{name}\n\tSession-Timeout = 60\n"));
    assert_eq!(file.users[0].1.check, [attribute_row("Auth-Type", RowOperator::Replace, "EAP")]);
    assert!(complaints[0].message.contains("write Auth-Type := Accept"), "{complaints:?}");
    expect_stop(&format!("{name}\n{YES}DEFAULT Cleartext-Password := x\n"), "give the entry the password");
    expect_stop(
        &format!("{name} Cleartext-Password := a\n02005e100001 Auth-Type := Reject\n"),
        "one user here",
    );
    let (file, _) = expect_pass(&format!("{name} Cleartext-Password := a\n"));
    assert_eq!(file.users[0].1.check, password_user("a").check);
}

/// Lines that FreeRADIUS does not load are skipped, and excessive numbers of groups are not created.
#[test]
fn files_beyond_bounds_stop_the_import() {
    let condition = ["NAS-Port == 1"; 20_000].join(", ");
    let (file, complaints) = users_file(&format!("ann Cleartext-Password := a, {condition}\n"));
    assert!(file.users.is_empty() && complaints.len() == 1, "{complaints:?}");
    assert!(complaints[0].stops && complaints[0].message.contains("8190 at most"), "{complaints:?}");
    let comment = "x".repeat(8190 - "ann Cleartext-Password := a #".len());
    expect_pass(&format!("ann Cleartext-Password := a #{comment}\n"));
    expect_stop(&format!("ann Cleartext-Password := a #{comment}x\n"), "8190 at most");
    let file = |users: usize, defaults: usize| {
        let users = (0..users).map(|n| format!("u{n} Cleartext-Password := a\n{YES}"));
        let defaults = (0..defaults).map(|n| format!("DEFAULT NAS-Port == {n}\n\tFilter-Id += f{n},\n{YES}"));
        users.chain(defaults).collect::<String>()
    };
    let begun = std::time::Instant::now();
    let (made, complaints) = users_file(&file(4_000, 500));
    assert!(made.users.is_empty() && made.groups.is_empty());
    let [complaint] = &complaints[..] else { panic!("{complaints:?}") };
    assert!(complaint.stops && complaint.message.contains("import the file in parts"), "{complaint}");
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    let (made, _) = expect_pass(&file(300, 100));
    assert!(made.groups.len() == 100 && made.users.iter().all(|(_, rows)| rows.groups.len() == 100));
}

/// Regression: two files with a DEFAULT at the same line had one group.
#[test]
fn groups_of_two_files_have_two_names() {
    let text = |timeout| format!("{ANN_ON}DEFAULT\n\tSession-Timeout = {timeout}\n");
    let group = |file: &str, timeout| {
        let import = UsersImport { file: file.into(), ..UsersImport::new(&DICTIONARY) };
        import.read_text(&text(timeout)).0.groups.remove(0).name
    };
    assert_eq!(group("a", 1), group("a", 1));
    assert_ne!(group("a", 1), group("a", 2));
    assert_ne!(group("a", 1), group("b", 1));
}

#[test]
fn included_files_stand_where_they_are_included() {
    let files: BTreeMap<&str, &str> = [
        (
            "conf/more",
            "bob Cleartext-Password := b\n$include sub/again\nDEFAULT NAS-Port == 1\n\tIdle-Timeout = 5\n",
        ),
        ("conf/sub/again", "eve Cleartext-Password := e\n\tFall-Through = Yes\n"),
        ("conf/cycle", "$INCLUDE cycle\n"),
    ]
    .into();
    let read = |text: &str| {
        let mut open = |file: &Path| {
            files
                .get(file.to_str().unwrap())
                .map(|text| (*text).to_owned())
                .ok_or_else(|| "not there".to_owned())
        };
        let import =
            UsersImport { file: "conf/users".into(), open: Some(&mut open), ..UsersImport::new(&DICTIONARY) };
        import.read_text(text)
    };
    let (file, complaints) = read("ann Cleartext-Password := a\n$INCLUDE more\n");
    assert!(complaints.is_empty(), "{complaints:?}");
    let names: Vec<&str> = file.users.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ann", "bob", "eve"]);
    assert_eq!(file.users[2].1.groups.len(), 1, "the search goes on in the file around it");
    for (include, why) in [("cycle", "a file includes itself"), ("nowhere", "not there")] {
        let (_, complaints) = read(&format!("{ANN}$INCLUDE {include}\n"));
        assert!(complaints.iter().any(|c| c.stops && c.message.contains(why)), "{complaints:?}");
    }
    expect_stop(&format!("{ANN}$Include more\n"), "not read here");
}
