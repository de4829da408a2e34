//! The project's own scripts pass, and each fails once something in it is not so.

use std::fs;
use std::path::{Path, PathBuf};
use usher_packetdrill::{Verdict, judge};

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).expect("the scripts' folder").flatten().map(|e| e.path()).collect();
    found.sort();
    assert!(found.len() >= 12, "scripts are missing");
    found
}

#[test]
fn own_scripts_pass() {
    for path in scripts() {
        let outcome = judge(&fs::read_to_string(&path).expect("a script"));
        assert_eq!(outcome.verdict, Verdict::Pass, "{}: {outcome:?}", path.display());
    }
}

/// Every expected packet matters: with another number or time in it, the script does not pass, and the line
/// that is blamed is that one or one after it.
#[test]
fn a_script_with_a_wrong_expectation_does_not_pass() {
    let mut changed = 0;
    for path in scripts() {
        let text = fs::read_to_string(&path).expect("a script");
        for (at, line) in text.lines().enumerate() {
            let Some((time, packet)) = line.split_once(" > ").filter(|(t, _)| t.starts_with('+')) else {
                continue;
            };
            let late: f64 = time.trim()[1..].parse::<f64>().expect("a relative time") + 0.05;
            let other_flags = match packet.split_once("flgs=") {
                Some((before, after)) => {
                    let rest = after.find([',', ']']).map_or("", |end| &after[end..]);
                    format!("{before}flgs=0x40{rest}")
                }
                None => format!("U{}", packet.trim_start()),
            };
            for wrong in [format!("+{late} > {packet}"), format!("{time} > {other_flags}")] {
                let lines: Vec<&str> =
                    text.lines().enumerate().map(|(i, l)| if i == at { &wrong } else { l }).collect();
                let outcome = judge(&lines.join("\n"));
                assert_eq!(outcome.verdict, Verdict::Diverges, "{}: {wrong}: {outcome:?}", path.display());
                assert_eq!(outcome.line, Some(at as u32 + 1), "{}: {wrong}: {outcome:?}", path.display());
                changed += 1;
            }
        }
    }
    assert!(changed > 100, "only {changed} expectations were changed");
}

fn verdict(text: &str) -> (Verdict, Option<u32>) {
    let outcome = judge(text);
    (outcome.verdict, outcome.line)
}

#[test]
fn what_is_not_had_is_unsupported_and_what_shows_nothing_is_suspect() {
    let open = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n";
    let unsupported = |rest: &str| {
        assert_eq!(verdict(&format!("{open}{rest}")), (Verdict::Unsupported, Some(2)), "{rest}");
    };
    unsupported("+0 `sysctl -w net.inet.tcp.nothing=1`");
    unsupported("+0 `reboot`");
    unsupported("+0 ioctl(3, SIOCINQ, [0]) = 0");
    unsupported("+0 setsockopt(3, SOL_SOCKET, SO_TIMESTAMPING, [1], 4) = 0");
    unsupported("+0 < udp (100)");
    unsupported("+0 %{ print(1) }%");
    unsupported("+0 < S 0:0(0) win 1 <FO 1234>");
    unsupported("+0 < sctp: ASCONF[flgs=0]");
    unsupported("+0 this is no event");
    assert_eq!(verdict(""), (Verdict::Suspect, None));
    assert_eq!(verdict("1.0 `true`\n0.5 `true`"), (Verdict::Suspect, Some(2)));
    let words = format!("{open}+0 < S 0:0(0) win 1 <mss 1460,nop>");
    assert_eq!(verdict(&words), (Verdict::Suspect, Some(2)));
}

#[test]
fn calls_and_commands_that_fail_diverge() {
    let open = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n";
    let diverges = |rest: &str| {
        assert_eq!(verdict(&format!("{open}{rest}")), (Verdict::Diverges, Some(2)), "{rest}");
    };
    diverges("+0 read(3, ..., 10) = 0");
    diverges("+0 close(4) = 0");
    diverges("+0 getsockopt(3, SOL_SOCKET, SO_ERROR, [ECONNRESET], [4]) = 0");
    diverges("+0 `sockstat -4 -s | grep -c LISTEN | grep 1`");
    diverges("+0 %{ assert tcpi_state == TCPI_LISTEN }%");
    diverges("+0 connect(3, ..., ...) = 0");
    diverges("+0 > R 0:0(0)");
}

/// Of lines for the standard and for systems, one variant must pass whole; not one for this line and another
/// for that.
#[test]
fn variants_pass_whole_or_not_at_all() {
    let script = |standard: i32, system: i32| {
        format!(
            "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n#ifdef STANDARD\n+0 close({standard}) = 0\n#endif\n\
             #ifdef FreeBSD\n+0 close({system}) = 0\n#endif\n+0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n"
        )
    };
    assert_eq!(judge(&script(3, 9)).verdict, Verdict::Pass);
    assert_eq!(judge(&script(9, 3)).verdict, Verdict::Pass);
    assert_eq!(judge(&script(9, 9)).verdict, Verdict::Diverges);
}
