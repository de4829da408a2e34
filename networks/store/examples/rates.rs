//! Measures the stores: a million users written and looked up, and accounting records in group commits.
//!
//! `rates [FOLDER [USERS]]` creates files in FOLDER (default: the temporary folder) for USERS (default: 1,000,000)
//! users. PostgreSQL runs as a server of its own with default settings.

#[path = "../tests/stores/cluster.rs"]
mod cluster;
#[path = "../tests/stores/folder.rs"]
mod folder;
#[path = "../tests/stores/session.rs"]
mod session;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use usher_aaa::store::{AttributeRow, GroupRows, RowOperator, Store, StoreChange, UserRows};
use usher_store::{PostgresStore, SqliteStore};

fn test_user(n: u64) -> (String, UserRows) {
    let row =
        |attribute: &str, op, value: String| AttributeRow { attribute: attribute.to_owned(), op, value };
    let check = vec![row("Cleartext-Password", RowOperator::Replace, format!("secret-{n:08}"))];
    let reply = vec![row("Tunnel-Private-Group-Id", RowOperator::Replace, (n % 100).to_string())];
    let groups = vec![GroupRows { name: format!("group-{}", n % 10), ..GroupRows::default() }];
    (user_name(n), UserRows { check, reply, groups })
}

fn user_name(n: u64) -> String {
    format!("user{n:07}@example.org")
}

/// Pseudo-random numbers below `users`.
fn scattered_numbers(count: u64, users: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) % users)
}

/// The median and the maximum time of `count` lookups, each of another user.
fn look_ups(store: &mut dyn Store, count: u64, users: u64) -> (Duration, Duration) {
    let one = |n| {
        let begun = Instant::now();
        assert!(store.find_user(&user_name(n)).expect("the store answers").is_some());
        begun.elapsed()
    };
    let mut times: Vec<Duration> = scattered_numbers(count, users).map(one).collect();
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() - 1])
}

fn measure_user_puts(label: &str, store: &mut dyn Store, users: u64) {
    for n in 0..10 {
        let reply = vec![AttributeRow {
            attribute: "Filter-Id".to_owned(),
            op: RowOperator::Set,
            value: format!("filter-{n}"),
        }];
        store
            .put_group(&GroupRows { name: format!("group-{n}"), check: Vec::new(), reply })
            .expect("a group is put");
    }
    let begun = Instant::now();
    store.put_users(&mut (0..users).map(test_user)).expect("the users are put");
    let took = begun.elapsed();
    println!(
        "{label}: {users} users put in {:.1} s, {:.0} a second",
        took.as_secs_f64(),
        users as f64 / took.as_secs_f64()
    );
}

fn print_times(label: &str, (median, slowest): (Duration, Duration)) {
    println!("{label}: a user's rows in {median:.1?} (median), {slowest:.1?} (slowest)");
}

fn measure_records(label: &str, store: &mut dyn Store) {
    let mut number = 0;
    for batch in [1, 16, 256, 1024] {
        let begun = Instant::now();
        let mut written = 0;
        let mut commits = 0;
        while begun.elapsed() < Duration::from_secs(5) {
            let changes: Vec<StoreChange> = (number..number + batch)
                .map(|n| StoreChange::Session(Box::new(session::test_session(n))))
                .collect();
            store.write_changes(&changes).expect("the records are written");
            number += batch;
            written += batch;
            commits += 1;
        }
        let took = begun.elapsed().as_secs_f64();
        println!(
            "{label}: {:.0} records a second in commits of {batch}, {:.2} ms each",
            f64::from(written) / took,
            1e3 * took / f64::from(commits)
        );
    }
}

/// Drops a file's pages from the page cache.
fn drop_page_cache(path: &Path) {
    let status = Command::new("dd")
        .arg(format!("if={}", path.display()))
        .args(["iflag=nocache", "count=0", "status=none"])
        .status();
    assert!(status.is_ok_and(|s| s.success()), "dd runs");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next();
    let count: u64 = arguments.next().map_or(1_000_000, |n| n.parse().expect("a number of users"));
    let temporary = folder::StoreTempDir::new();
    let folder = folder.as_deref().map_or(temporary.path(), Path::new);

    let path = folder.join("rates.db");
    let mut store = SqliteStore::open(&path).expect("the file can be made");
    measure_user_puts("SQLite", &mut store, count);
    drop(store);
    let size = std::fs::metadata(&path).expect("the file is there").len();
    println!("SQLite: the file has {:.0} MB, {} bytes a user", size as f64 / 1e6, size / count);
    drop_page_cache(&path);
    let mut store = SqliteStore::open(&path).expect("the file can be opened");
    print_times("SQLite, cold (no page in memory)", look_ups(&mut store, 200, count));
    print_times("SQLite, warming", look_ups(&mut store, 20_000, count));
    print_times("SQLite, warm", look_ups(&mut store, 20_000, count));
    print_times("SQLite, 1,000 users again and again", {
        look_ups(&mut store, 1_000, 1_000);
        look_ups(&mut store, 20_000, 1_000)
    });
    measure_records("SQLite", &mut store);
    drop(store);
    std::fs::remove_file(&path).expect("the file is there");

    let cluster = cluster::PostgresCluster::new();
    let url = cluster.database_url("usher", &cluster.create_database());
    let mut store = PostgresStore::connect(&url).expect("the server can be reached");
    measure_user_puts("PostgreSQL", &mut store, count);
    cluster.stop_server("fast");
    cluster.start();
    let mut store = PostgresStore::connect(&url).expect("the server can be reached");
    print_times("PostgreSQL, just started", look_ups(&mut store, 200, count));
    look_ups(&mut store, 20_000, count);
    print_times("PostgreSQL, warm", look_ups(&mut store, 20_000, count));
    measure_records("PostgreSQL", &mut store);
}
