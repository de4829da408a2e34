//! The parser accepts the whole language. Any text is a script or a fault with its line.

use proptest::prelude::*;
use usher_packetdrill::{parse_any, parse_script};

fn parse_error(text: &str) -> (u32, String) {
    match parse_script(text, &[]) {
        Ok(script) => panic!("{text:?} was read as {script:?}"),
        Err(fault) => (fault.line, fault.message),
    }
}

#[test]
fn every_form_of_the_language_is_read() {
    let text = r#"
--ip_version=ipv4
--tolerance_usecs=5000
--mtu=1500
`sysctl -w net.inet.tcp.sack.enable=1`
/* A comment
   of two lines. */
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3 // to the end
+0.1 fcntl(3, F_SETFL, O_RDWR | O_NONBLOCK) = 0
+ .5 connect(3, {sa_family = AF_INET, sin_port = htons(8080), sin_addr = inet_addr("192.0.2.1")}, 16) = -1 EINPROGRESS (Operation now in progress)
1.0~1.2 > SEWPU. 1:3(2) ack 7 win 9 urg 1 <mss 1460,nop,wscale 7,sackOK,TS val 1 ecr 0,sack 1:2 3:4,eol,FO abcd>
+0~+0.2 > [ect0] (tos 0x2) . 0:0(0)
* > S ...(0) <...>
+0...0.5 recv(3, ..., 10, MSG_PEEK) = 10
+0 < sctp(tag=5, bad_crc32c): INIT[flgs=0, tag=1, a_rwnd=..., os=..., is=0x10, tsn=1, ...]; DATA[flgs=BE, len=20, tsn=1, sid=0, ssn=0, ppid=0];
+0 < sctp: INIT[flgs=0, tag=1, a_rwnd=1500, os=1, is=1, tsn=1, IPV4_ADDRESS[addr=192.0.2.1], IPV6_ADDRESS[addr=2001:db8::1]]
+0 > sctp: SACK[flgs=0, cum_tsn=1, a_rwnd=..., gaps=[2:3, 5:5], dups=[1, 2]]
+0 < sctp: ERROR[flgs=0, UNRECOGNIZED_PARAMETERS[params=[PARAMETER[type=0x1, len=6, val=[0x1, 2]]]]]
+0 %{ assert tcpi_state == TCPI_LISTEN }%
+0 `sockstat | grep 1`
+0 setsockopt(3, SOL_SOCKET, SO_LINGER, {onoff=1, linger=0}, 8) = 0
+0 < icmp unreachable frag_needed mtu 1300 [1:4(3)/udp(9 > 7)]
+0 > (ttl 4, tos 0x20) R. 0:0(0)! ack 1 win 0/udp(9 > 7)
+0 < 224.0.0.0 > 192.0.2.1 sctp: [0x01, 2, 0x60]
+0 close(3) = 0"#;
    let script = parse_script(text, &[]).unwrap();
    assert_eq!(script.option_value("mtu"), Some("1500"));
    assert_eq!(script.set_up.len(), 1);
    let lines: Vec<u32> = script.events.iter().map(|e| e.line).collect();
    assert_eq!(lines, [8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25]);
}

#[test]
fn conditions_choose_lines_and_keep_their_numbers() {
    let text = "#ifdef A\n+0 close(1) = 0\n#else\n+0 close(2) = 0\n#endif\n#ifndef A\n+0 close(3) = 0\n#endif\n+0 close(4) = 0\n";
    let lines = |defined: &[&str]| -> Vec<u32> {
        parse_script(text, defined).unwrap().events.iter().map(|e| e.line).collect()
    };
    assert_eq!(lines(&["A"]), [2, 9]);
    assert_eq!(lines(&[]), [4, 7, 9]);
}

#[test]
fn faults_tell_their_line() {
    assert_eq!(parse_error("0 close(1) = 0\n+0 close(1\n").0, 3);
    assert_eq!(parse_error("0 > . 1:9(2)"), (1, "1:9 is not 2 bytes".to_owned()));
    assert_eq!(parse_error("#ifdef A\n"), (1, "#endif is missing".to_owned()));
    assert_eq!(parse_error("0 close(1) = 0\n#endif\n"), (2, "#endif without #ifdef".to_owned()));
    assert_eq!(parse_error("\n+0 `sysctl").0, 2);
    assert_eq!(parse_error("+0 < S 0:0(0) win 70000"), (1, "70000 is too large here".to_owned()));
    assert!(parse_error(&format!("0 f({}", "[".repeat(5000))).1.contains("nested too deeply"));
    assert!(parse_error(&format!("0 f({}", "~".repeat(5000))).1.contains("nested too deeply"));
    assert!(parse_error(&"\n".repeat(2 << 20)).1.contains("at most"));
}

proptest! {
    #[test]
    fn any_bytes_are_a_script_or_a_fault(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        parse_any(&bytes);
    }

    /// Words of the language in random order reach deeper than random bytes.
    #[test]
    fn any_words_are_a_script_or_a_fault(words in proptest::collection::vec(prop::sample::select(vec![
        "+0", "0.5", "*", "...", "~", "<", ">", "S.", ".", "1:2(1)", "0:0(0)", "ack", "win", "7", "0x1f", "sack",
        "mss", "TS", "val", "ecr", "eol", ",", ":", ";", "|", "(", ")", "[", "]", "{", "}", "=", "-1", "~+", "sctp:",
        "sctp(tag=1):", "DATA", "INIT", "flgs=BE", "gaps=", "close", "(...)", "`", "%{", "}%", "\"", "//", "/*", "*/",
        "\n", "#ifdef", "#else", "#endif", "FreeBSD", "--mtu=7", "EINVAL", "é", "99999999999999999999",
    ]), 0..60)) {
        parse_any(words.join(" ").as_bytes());
        usher_packetdrill::judge_script(&words.join(" "));
    }

    /// A script with a damaged byte ends with some outcome.
    #[test]
    fn a_damaged_script_is_judged(at in 0usize..4000, with in any::<u8>(), which in 0usize..3) {
        let texts = [
            include_str!("../../scripts/sack-recovery.pkt"),
            include_str!("../../scripts/sctp-loss.pkt"),
            include_str!("../../scripts/timestamps.pkt"),
        ];
        let mut bytes = texts[which].as_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = with;
        usher_packetdrill::judge_script(&String::from_utf8_lossy(&bytes));
    }
}
