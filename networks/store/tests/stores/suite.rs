//! The behavior of every store. Each scenario gets an empty store.

use crate::session::test_session;
use usher_aaa::store::{
    AttributeRow, ClientRequirement, ClientRow, GroupRows, RowOperator, SessionRow, Store, StoreChange,
    StoreError, UserRows,
};
use usher_core::WallTime;
use usher_radius::dictionary::RadiusDictionary;

/// Makes a new, empty store.
pub(crate) type StoreFactory<'a> = &'a mut dyn FnMut() -> Box<dyn Store>;

type StoreScenario = fn(&mut dyn Store);

/// All scenarios by name.
const SCENARIOS: [(&str, StoreScenario); 9] = [
    ("users are put, found and forgotten", check_users),
    ("groups are joined by name", check_groups),
    ("names are listed in pages", check_names),
    ("many users at once", many_users),
    ("clients are put in place", check_clients),
    ("a session's row is the last one written", check_sessions),
    ("a restarted NAS has no open session", check_restarts),
    ("changes are made in their order", check_order),
    ("logins are taken", check_logins),
];

/// Runs all scenarios, and those with values that a NAS can send and databases reject.
pub(crate) fn run_database(make: StoreFactory<'_>) {
    run_scenarios(make);
    odd_values(make().as_mut());
}

/// Runs all scenarios.
pub(crate) fn run_scenarios(make: StoreFactory<'_>) {
    for (name, scenario) in SCENARIOS {
        eprintln!("{name}");
        scenario(make().as_mut());
    }
}

pub(crate) fn attribute_row(attribute: &str, op: RowOperator, value: &str) -> AttributeRow {
    AttributeRow { attribute: attribute.to_owned(), op, value: value.to_owned() }
}

pub(crate) fn password_user(value: &str) -> UserRows {
    UserRows {
        check: vec![attribute_row("Cleartext-Password", RowOperator::Replace, value)],
        ..UserRows::default()
    }
}

fn session_change(row: &SessionRow) -> StoreChange {
    StoreChange::Session(Box::new(row.clone()))
}

fn open_sessions(store: &mut dyn Store) -> Vec<SessionRow> {
    let mut all = Vec::new();
    store.open_sessions(&mut |row| all.push(row)).unwrap();
    all.sort_by(|a, b| a.acctuniqueid.cmp(&b.acctuniqueid));
    all
}

fn check_users(store: &mut dyn Store) {
    assert_eq!(store.find_user("kaya").unwrap(), None);
    let mut kaya = password_user("it's \"odd\"; DROP TABLE radcheck --");
    kaya.check.push(attribute_row("NAS-Port-Type", RowOperator::NotEqual, "Virtual"));
    for (op, _) in RowOperator::ALL {
        kaya.reply.push(attribute_row("Reply-Message", op, "grüß 你好"));
    }
    store.put_user("kaya", &kaya).unwrap();
    assert_eq!(store.find_user("kaya").unwrap(), Some(kaya));
    assert_eq!(store.find_user("Kaya").unwrap(), None, "names are told apart by case");
    assert_eq!(store.find_user("kay").unwrap(), None);

    let other = password_user("new");
    store.put_user("kaya", &other).unwrap();
    assert_eq!(store.find_user("kaya").unwrap(), Some(other.clone()), "nothing of the rows before is left");
    store.put_user("kaya@example.org", &password_user("x")).unwrap();
    store.put_user("lim", &other).unwrap();
    store.put_user("lim", &UserRows::default()).unwrap();
    assert_eq!(store.find_user("lim").unwrap(), None, "without any row there is nobody");
    assert!(store.delete_user("kaya").unwrap());
    assert!(!store.delete_user("kaya").unwrap());
    assert_eq!(store.find_user("kaya").unwrap(), None);
    assert!(store.find_user("kaya@example.org").unwrap().is_some());
}

fn check_groups(store: &mut dyn Store) {
    let staff = GroupRows {
        name: "staff".to_owned(),
        check: vec![attribute_row("NAS-Port-Type", RowOperator::Equal, "Wireless-802.11")],
        reply: vec![
            attribute_row("Tunnel-Private-Group-Id", RowOperator::Replace, "20"),
            attribute_row("Filter-Id", RowOperator::Add, "b"),
        ],
    };
    let night = GroupRows { name: "night".to_owned(), ..GroupRows::default() };
    store.put_group(&staff).unwrap();
    let mut kaya = password_user("x");
    kaya.groups = vec![night.clone(), GroupRows { name: "staff".to_owned(), ..GroupRows::default() }];
    store.put_user("kaya", &kaya).unwrap();
    assert_eq!(
        store.find_user("kaya").unwrap().unwrap().groups,
        [night.clone(), staff.clone()],
        "in their order"
    );

    let mut lim = UserRows { groups: vec![staff.clone()], ..UserRows::default() };
    lim.groups[0].reply.clear();
    store.put_user("lim", &lim).unwrap();
    assert_eq!(store.find_user("lim").unwrap().unwrap().groups[0], staff, "a user changes no group");

    let changed =
        GroupRows { reply: vec![attribute_row("Filter-Id", RowOperator::Set, "c")], ..staff.clone() };
    store.put_group(&changed).unwrap();
    assert_eq!(store.find_user("lim").unwrap().unwrap().groups[0], changed);
    assert!(store.delete_user("lim").unwrap());
    assert_eq!(
        store.find_user("kaya").unwrap().unwrap().groups,
        [night, changed],
        "a group outlives a member"
    );
}

fn check_names(store: &mut dyn Store) {
    assert_eq!(store.user_names(None, 10).unwrap(), Vec::<String>::new());
    for name in ["b", "Z", "a", "é", "a b", "_"] {
        store.put_user(name, &password_user("x")).unwrap();
    }
    let grouped = GroupRows { name: "g".to_owned(), ..GroupRows::default() };
    store.put_user("only-in-a-group", &UserRows { groups: vec![grouped], ..UserRows::default() }).unwrap();
    let reply =
        UserRows { reply: vec![attribute_row("Class", RowOperator::Set, "1")], ..UserRows::default() };
    store.put_user("only-a-reply", &reply).unwrap();
    let all = ["Z", "_", "a", "a b", "b", "only-a-reply", "only-in-a-group", "é"];
    assert_eq!(store.user_names(None, 100).unwrap(), all, "in the order of their bytes");
    let mut seen: Vec<String> = Vec::new();
    loop {
        let page = store.user_names(seen.last().map(String::as_str), 3).unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 3);
        seen.extend(page);
    }
    assert_eq!(seen, all);
}

fn many_users(store: &mut dyn Store) {
    store.put_user("u00007", &password_user("before")).unwrap();
    let mut users = (0..12_345_u32).map(|n| (format!("u{n:05}"), password_user(&n.to_string())));
    assert_eq!(store.put_users(&mut users).unwrap(), 12_345);
    for n in [0, 7, 9_999, 10_000, 12_344] {
        assert_eq!(store.find_user(&format!("u{n:05}")).unwrap(), Some(password_user(&n.to_string())));
    }
    assert_eq!(store.find_user("u12345").unwrap(), None);
    assert_eq!(store.user_names(None, 20_000).unwrap().len(), 12_345);
    assert_eq!(store.put_users(&mut std::iter::empty()).unwrap(), 0);
}

fn check_clients(store: &mut dyn Store) {
    assert_eq!(store.list_clients().unwrap(), []);
    let client = |nasname: &str, secret: &str| ClientRow {
        nasname: nasname.to_owned(),
        shortname: "ap".to_owned(),
        kind: "other".to_owned(),
        secret: secret.to_owned(),
        description: "first floor".to_owned(),
        require_message_authenticator: ClientRequirement::Yes,
        limit_proxy_state: ClientRequirement::No,
        server: String::new(),
    };
    let (mut one, two) = (client("192.0.2.0/24", "s1"), client("2001:db8::/32", "s2"));
    store.put_client(&one).unwrap();
    store.put_client(&two).unwrap();
    assert_eq!(store.list_clients().unwrap(), [one.clone(), two.clone()]);
    one.secret = "changed".to_owned();
    one.require_message_authenticator = ClientRequirement::Auto;
    store.put_client(&one).unwrap();
    assert_eq!(store.list_clients().unwrap(), [one, two.clone()], "in its place");
    assert!(store.delete_client("192.0.2.0/24").unwrap());
    assert!(!store.delete_client("192.0.2.0/24").unwrap());
    assert_eq!(store.list_clients().unwrap(), [two]);
}

fn check_sessions(store: &mut dyn Store) {
    let first = test_session(1);
    assert_eq!(store.find_session(&first.acctuniqueid).unwrap(), None);
    store.write_changes(&[session_change(&first)]).unwrap();
    assert_eq!(store.find_session(&first.acctuniqueid).unwrap(), Some(first.clone()));

    let mut six = test_session(2);
    six.nasipaddress = "2001:db8::7".parse().unwrap();
    six.framedipaddress = Some("2001:db8:5::9".parse().unwrap());
    let mut bare = test_session(3);
    bare.acctstarttime = None;
    bare.acctupdatetime = None;
    bare.framedipaddress = None;
    bare.acctinputoctets = u64::try_from(i64::MAX).unwrap();
    for text in [
        &mut bare.realm,
        &mut bare.nasportid,
        &mut bare.nasporttype,
        &mut bare.acctauthentic,
        &mut bare.calledstationid,
        &mut bare.callingstationid,
        &mut bare.servicetype,
        &mut bare.framedprotocol,
        &mut bare.framedipv6prefix,
        &mut bare.class,
    ] {
        text.clear();
    }
    bare.diameter_origin = "nas.example.org/192.0.2.7".to_owned();
    let mut ended = first.clone();
    ended.acctstoptime = Some(WallTime::from_unix_secs(1_700_000_100));
    ended.acctterminatecause = "User-Request".to_owned();
    ended.acctoutputoctets += 1;
    let mut later = six.clone();
    later.interims += 1;
    // One batch can update a session several times.
    store
        .write_changes(&[
            session_change(&six),
            session_change(&bare),
            session_change(&ended),
            session_change(&later),
        ])
        .unwrap();
    assert_eq!(store.find_session(&first.acctuniqueid).unwrap(), Some(ended));
    assert_eq!(open_sessions(store), [later, bare]);
    store.write_changes(&[]).unwrap();
}

fn check_restarts(store: &mut dyn Store) {
    let at = WallTime::from_unix_secs(1_700_000_500);
    let mut other = test_session(2);
    other.nasipaddress = "192.0.2.8".parse().unwrap();
    let mut ended = test_session(3);
    ended.acctstoptime = Some(WallTime::from_unix_secs(1_700_000_400));
    ended.acctterminatecause = "User-Request".to_owned();
    let mut later = test_session(4);
    later.acctstarttime = Some(WallTime::from_unix_secs(1_700_000_501));
    let mut unknown = test_session(5);
    unknown.acctstarttime = None;
    // Its NAS counted more seconds than have passed by the clock.
    let mut longer = test_session(6);
    longer.acctsessiontime = 900;
    // Diameter has no restarts: the session is not this NAS's, whatever its address.
    let mut diameter = test_session(7);
    diameter.diameter_origin = "relay.example.org!nas.example.org/192.0.2.7".to_owned();
    let all = [&test_session(1), &other, &ended, &later, &unknown, &longer, &diameter];
    store.write_changes(&all.map(session_change)).unwrap();
    let restart = StoreChange::NasRestarted {
        nas: "192.0.2.7".parse().unwrap(),
        restarted_at: at,
        cause: "NAS-Reboot".to_owned(),
    };
    store.write_changes(&[restart]).unwrap();
    assert_eq!(open_sessions(store), [other, later, diameter]);
    let mut expected = test_session(1);
    expected.acctstoptime = Some(at);
    expected.acctupdatetime = Some(at);
    expected.acctsessiontime = 500;
    expected.acctterminatecause = "NAS-Reboot".to_owned();
    assert_eq!(store.find_session(&expected.acctuniqueid).unwrap(), Some(expected));
    unknown.acctstoptime = Some(at);
    unknown.acctupdatetime = Some(at);
    unknown.acctterminatecause = "NAS-Reboot".to_owned();
    assert_eq!(
        store.find_session(&unknown.acctuniqueid).unwrap(),
        Some(unknown),
        "its length stays as it was told"
    );
    assert_eq!(store.find_session(&ended.acctuniqueid).unwrap(), Some(ended));
    longer.acctstoptime = Some(at);
    longer.acctupdatetime = Some(at);
    longer.acctterminatecause = "NAS-Reboot".to_owned();
    assert_eq!(store.find_session(&longer.acctuniqueid).unwrap(), Some(longer));
}

fn check_order(store: &mut dyn Store) {
    let at = WallTime::from_unix_secs(1_700_000_500);
    let restart = |cause: &str| StoreChange::NasRestarted {
        nas: "192.0.2.7".parse().unwrap(),
        restarted_at: at,
        cause: cause.to_owned(),
    };
    let batch = [
        restart("one"),
        session_change(&test_session(1)),
        restart("two"),
        session_change(&test_session(2)),
        session_change(&test_session(1)),
        restart("three"),
    ];
    store.write_changes(&batch[..4]).unwrap();
    assert_eq!(open_sessions(store), [test_session(2)]);
    assert_eq!(store.find_session(&test_session(1).acctuniqueid).unwrap().unwrap().acctterminatecause, "two");
    store.write_changes(&batch[4..]).unwrap();
    assert_eq!(open_sessions(store), []);
    for n in [1, 2] {
        assert_eq!(
            store.find_session(&test_session(n).acctuniqueid).unwrap().unwrap().acctterminatecause,
            "three"
        );
    }
}

fn odd_values(store: &mut dyn Store) {
    let mut odd = test_session(1);
    odd.username = "a\0b'\"\\\u{7f}\u{1}{},NULL".to_owned();
    odd.callingstationid = "x".repeat(253);
    odd.class = "f".repeat(506);
    odd.acctinputoctets = u64::MAX;
    odd.framedipv6prefix = "no prefix".to_owned();
    store.write_changes(&[session_change(&odd), session_change(&test_session(2))]).unwrap();
    odd.username = odd.username.replace('\0', "\u{fffd}");
    odd.acctinputoctets = u64::try_from(i64::MAX).unwrap();
    odd.framedipv6prefix.clear();
    assert_eq!(open_sessions(store), [odd, test_session(2)]);
    // A name with a replaced character must not be looked up.
    let nobody = |said| matches!(said, Err(StoreError::Unstorable(_)));
    assert!(nobody(store.find_user("a\0b")));
    store.put_user("a\0b", &password_user("x\0")).unwrap();
    assert!(nobody(store.find_user("a\0b")));
    assert_eq!(store.find_user("a\u{fffd}b").unwrap(), Some(password_user("x\u{fffd}")));
    assert!(store.delete_user("a\0b").unwrap());
    assert_eq!(store.user_names(Some("\0"), 5).unwrap(), Vec::<String>::new());
}

fn check_logins(store: &mut dyn Store) {
    let login = |reply| StoreChange::Login {
        username: "kaya\0".to_owned(),
        reply,
        decided_at: WallTime::from_unix_secs(1_700_000_000),
        callingstationid: "02-00-00-00-00-02".to_owned(),
    };
    store
        .write_changes(&[login("Access-Accept"), session_change(&test_session(1)), login("Access-Reject")])
        .unwrap();
    store.write_changes(&[login("Access-Accept")]).unwrap();
    assert_eq!(open_sessions(store), [test_session(1)]);
}

/// A row with an invalid operator is read, and its user's rows cannot be understood. The store has still answered.
pub(crate) fn refused_operator(store: &mut dyn Store) {
    let odd = store.find_user("odd").unwrap().unwrap();
    assert_eq!(odd.check.last().map(|row| row.op), Some(RowOperator::Unknown));
    let complaint = usher_aaa::User::compile(&odd, &RadiusDictionary::builtin()).unwrap_err();
    assert!(complaint.to_string().contains("operator"), "{complaint}");
}
