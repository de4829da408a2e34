//! The hot paths of `src/bin/instructions.rs` stay within their limits.

use std::process::Command;

#[test]
fn no_hot_path_takes_more_instructions_than_its_limit() {
    let run = Command::new(env!("CARGO_BIN_EXE_instructions")).output().expect("it starts");
    let [stdout, stderr] = [run.stdout, run.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    println!("{stdout}");
    assert!(run.status.success(), "{stdout}{stderr}");
    assert_eq!(stdout.lines().count(), 5, "{stdout}");
    assert!(!stdout.contains("no limit"), "{stdout}build it with CARGO_INCREMENTAL=0, as ./x test does");
}
