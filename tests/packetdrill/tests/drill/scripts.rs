//! The project's own scripts pass, and each fails once an expectation in it is wrong.

use std::fs;
use std::path::{Path, PathBuf};
use usher_packetdrill::{ScriptVerdict, judge_script};

fn script_paths() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).expect("the scripts' folder").flatten().map(|e| e.path()).collect();
    found.sort();
    assert!(found.len() >= 12, "scripts are missing");
    found
}

#[test]
fn own_scripts_pass() {
    for path in script_paths() {
        let outcome = judge_script(&fs::read_to_string(&path).expect("a script"));
        assert_eq!(outcome.verdict, ScriptVerdict::Pass, "{}: {outcome:?}", path.display());
    }
}

/// Returns copies of a line, each with another number behind one `key`.
fn bumped_lines(line: &str, key: &str) -> Vec<String> {
    let places = line.match_indices(key).map(|(at, _)| at + key.len());
    let bump = |at: usize| {
        let digits = line[at..].find(|c: char| !c.is_ascii_digit()).unwrap_or(line.len() - at);
        let n: u64 = line[at..at + digits].parse().ok()?;
        // 65535 is the maximum of such a field.
        let other = if n == 65_535 { n - 1 } else { n + 1 };
        Some(format!("{}{other}{}", &line[..at], &line[at + digits..]))
    };
    places.filter_map(bump).collect()
}

/// `1:11(10)` with another start, and with another length.
fn mutate_sequence(packet: &str) -> Vec<String> {
    let Some(word) = packet.split_whitespace().find(|w| w.contains('(') && w.contains(':')) else {
        return Vec::new();
    };
    let numbers: Vec<u32> = word.split([':', '(', ')']).take(3).filter_map(|n| n.parse().ok()).collect();
    let [from, to, len] = numbers[..] else { return Vec::new() };
    let whole = format!("{from}:{to}({len})");
    let longer = format!("{from}:{}({})", to + 1, len + 1);
    let later = format!("{}:{}({len})", from + 1, to + 1);
    // The script defines the first number of a connection.
    let syn = packet.split_whitespace().any(|w| w.starts_with('S'));
    let others = if syn { vec![longer] } else { vec![longer, later] };
    others.iter().map(|other| packet.replacen(&whole, other, 1)).collect()
}

/// Returns copies of an expected packet, each with one fault.
fn wrong_packets(packet: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some((before, after)) = packet.split_once("flgs=") {
        let rest = after.find([',', ']']).map_or("", |end| &after[end..]);
        wrong.push(format!("{before}flgs=0x40{rest}"));
        wrong.push(format!("{packet}; COOKIE_ACK[flgs=0]"));
        for (name, other) in
            [(" DATA[", " PAD["), (" SACK[", " SHUTDOWN["), (" ABORT[", " ERROR["), (" INIT[", " INIT_ACK[")]
        {
            wrong.extend(packet.contains(name).then(|| packet.replacen(name, other, 1)));
        }
        wrong.extend(packet.contains("gaps=[]").then(|| packet.replacen("gaps=[]", "gaps=[2:2]", 1)));
        wrong.extend(packet.contains("dups=[]").then(|| packet.replacen("dups=[]", "dups=[1]", 1)));
        for key in ["cum_tsn=", "len=", "sid=", "ssn=", "ppid=", "gaps=[", "dups=["] {
            wrong.extend(bumped_lines(packet, key));
        }
        if !packet.contains("INIT") {
            wrong.extend(bumped_lines(packet, " tsn="));
        }
        return wrong;
    }
    if packet.contains("(ttl") {
        wrong.extend(bumped_lines(packet, "ttl "));
    } else {
        wrong.push(format!("U{}", packet.trim_start()));
    }
    wrong.extend(mutate_sequence(packet));
    for key in [" ack ", " win ", "mss ", "wscale ", "ecr ", "sack ", "FO ", "udp(", "> "] {
        wrong.extend(bumped_lines(packet, key));
    }
    wrong.extend(packet.contains("sackOK").then(|| packet.replacen("sackOK", "nop,nop", 1)));
    if !packet.contains('<') && !packet.contains("/udp") {
        wrong.push(format!("{packet} <mss 1460>"));
    }
    wrong
}

/// With a wrong number, time, flag, option or result in any expectation, the script fails at that line.
#[test]
fn a_script_with_a_wrong_expectation_does_not_pass() {
    let mut changed = 0;
    for path in script_paths() {
        let text = fs::read_to_string(&path).expect("a script");
        for (at, line) in text.lines().enumerate() {
            let mut wrong = Vec::new();
            if let Some((time, packet)) = line.split_once(" > ").filter(|(t, _)| t.starts_with('+')) {
                if time.contains('<') {
                    continue;
                }
                let late: f64 = time.trim()[1..].parse::<f64>().expect("a relative time") + 0.05;
                wrong.push(format!("+{late} > {packet}"));
                wrong.extend(wrong_packets(packet).into_iter().map(|packet| format!("{time} > {packet}")));
            } else if let Some((call, result)) = line.split_once(") = ").filter(|_| line.starts_with('+')) {
                match result.strip_prefix("-1 ") {
                    Some(_) => wrong.push(format!("{call}) = -1 EXDEV")),
                    None => wrong.extend(bumped_lines(&format!("{call}) = {result}"), ") = ")),
                }
                let error = call.contains("SO_ERROR").then(|| call.replacen(", [", ", [ENOSPC, ", 1));
                wrong.extend(error.map(|call| format!("{call}) = {result}")));
            }
            for wrong in wrong {
                assert_ne!(wrong, line);
                let lines: Vec<&str> =
                    text.lines().enumerate().map(|(i, l)| if i == at { &wrong } else { l }).collect();
                let outcome = judge_script(&lines.join("\n"));
                assert_eq!(
                    outcome.verdict,
                    ScriptVerdict::Diverges,
                    "{}: {wrong}: {outcome:?}",
                    path.display()
                );
                assert_eq!(outcome.line, Some(at as u32 + 1), "{}: {wrong}: {outcome:?}", path.display());
                changed += 1;
            }
        }
    }
    assert!(changed > 500, "only {changed} expectations were changed");
}

/// A retransmission has the original numbers: a script with other numbers in the second SYN or INIT fails.
#[test]
fn a_repeated_opening_has_the_numbers_of_the_first() {
    let tcp = |seq: &str| {
        format!(
            "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 fcntl(3, F_SETFL, O_RDWR | O_NONBLOCK) = 0\n\
             +0 connect(3, ..., ...) = -1 EINPROGRESS\n+0 > S 0:0(0) <...>\n+1 > S {seq} <...>\n"
        )
    };
    assert_eq!(verdict_of(&tcp("0:0(0)")).0, ScriptVerdict::Pass);
    assert_eq!(verdict_of(&tcp("1:1(0)")), (ScriptVerdict::Diverges, Some(5)));
    let sctp = |numbers: &str| {
        format!(
            "0 socket(..., SOCK_STREAM, IPPROTO_SCTP) = 3\n+0 fcntl(3, F_SETFL, O_RDWR | O_NONBLOCK) = 0\n\
             +0 connect(3, ..., ...) = -1 EINPROGRESS\n+0 > sctp: INIT[flgs=0, tag=1, tsn=1, ...]\n\
             +1 > sctp: INIT[flgs=0, {numbers}, ...]\n"
        )
    };
    assert_eq!(verdict_of(&sctp("tag=1, tsn=1")).0, ScriptVerdict::Pass);
    assert_eq!(verdict_of(&sctp("tag=1, tsn=2")), (ScriptVerdict::Diverges, Some(5)));
    assert_eq!(verdict_of(&sctp("tag=2, tsn=1")), (ScriptVerdict::Diverges, Some(5)));
}

/// The program takes files and folders, prints in the order of names, and reports faults.
#[test]
fn the_program_tells_of_each_script_in_order() {
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_usher-packetdrill"));
        let out = command.args(args).output().expect("the program");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (out.status.code(), text(out.stdout), text(out.stderr))
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts");
    let (status, lines, count) = run(&["--jobs", "4", "--strict", folder, folder]);
    let names: Vec<String> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["file"].to_string())
        .collect();
    assert!(names.is_sorted() && names.len() == script_paths().len(), "{names:?}");
    assert_eq!(status, Some(0));
    assert!(count.contains(&format!("{0} of {0} pass", names.len())), "{count}");
    assert_eq!(run(&["--jobs", "1", folder]).1, lines);
    let (status, help, _) = run(&["--help"]);
    assert!(status == Some(0) && help.starts_with("Usage:"), "{help}");
    for (args, code, says) in [
        (&[][..], 2, "no file or folder"),
        (&["--fast", "x"], 2, "--fast: no such option"),
        (&["--jobs", "0", "x"], 2, "--jobs: 0"),
        (&["/nowhere.pkt"], 1, "/nowhere.pkt: cannot be read"),
        (&[concat!(env!("CARGO_MANIFEST_DIR"), "/src")], 1, "no file *.pkt is below it"),
        (&["--strict", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], 1, "0 of 1 pass"),
    ] {
        let (status, _, error) = run(args);
        assert_eq!(status, Some(code), "{args:?}: {error}");
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

fn verdict_of(text: &str) -> (ScriptVerdict, Option<u32>) {
    let outcome = judge_script(text);
    (outcome.verdict, outcome.line)
}

#[test]
fn missing_features_are_unsupported_and_empty_scripts_suspect() {
    let open = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n";
    let unsupported = |rest: &str| {
        assert_eq!(verdict_of(&format!("{open}{rest}")), (ScriptVerdict::Unsupported, Some(2)), "{rest}");
    };
    unsupported("+0 `sysctl -w net.inet.tcp.nothing=1`");
    unsupported("+0 `reboot`");
    unsupported("+0 ioctl(3, SIOCINQ, [0]) = 0");
    unsupported("+0 setsockopt(3, SOL_SOCKET, SO_TIMESTAMPING, [1], 4) = 0");
    unsupported("+0 < udp (100)");
    unsupported("+0 %{ print(1) }%");
    unsupported("+0 < S 0:0(0) win 1 <md5 valid>");
    unsupported("+0 < 10.0.0.1 > 10.0.0.2 S 0:0(0) win 1");
    unsupported("+0 < sctp: ASCONF[flgs=0]");
    unsupported("+0 this is no event");
    assert_eq!(verdict_of(""), (ScriptVerdict::Suspect, None));
    assert_eq!(verdict_of("1.0 `true`\n0.5 `true`"), (ScriptVerdict::Suspect, Some(2)));
    let words = format!("{open}+0 < S 0:0(0) win 1 <mss 1460,nop>");
    assert_eq!(verdict_of(&words), (ScriptVerdict::Suspect, Some(2)));
}

#[test]
fn calls_and_commands_that_fail_diverge() {
    let open = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n";
    let diverges = |rest: &str| {
        assert_eq!(verdict_of(&format!("{open}{rest}")), (ScriptVerdict::Diverges, Some(2)), "{rest}");
    };
    diverges("+0 read(3, ..., 10) = 0");
    diverges("+0 close(4) = 0");
    diverges("+0 getsockopt(3, SOL_SOCKET, SO_ERROR, [ECONNRESET], [4]) = 0");
    diverges("+0 `sockstat -4 -s | grep -c LISTEN | grep 1`");
    diverges("+0 %{ assert tcpi_state == TCPI_LISTEN }%");
    diverges("+0 connect(3, ..., ...) = 0");
    diverges("+0 > R 0:0(0)");
}

/// One variant must pass as a whole. Lines of different variants do not combine.
#[test]
fn variants_pass_whole_or_not_at_all() {
    let script = |standard: i32, system: i32| {
        format!(
            "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n#ifdef STANDARD\n+0 close({standard}) = 0\n#endif\n\
             #ifdef FreeBSD\n+0 close({system}) = 0\n#endif\n+0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n"
        )
    };
    assert_eq!(judge_script(&script(3, 9)).verdict, ScriptVerdict::Pass);
    assert_eq!(judge_script(&script(9, 3)).verdict, ScriptVerdict::Pass);
    assert_eq!(judge_script(&script(9, 9)).verdict, ScriptVerdict::Diverges);
}
