//! A capture of our concentrator and client, as tshark reads it: it has all protocols, and tshark finds no
//! fault.

use super::{PppoeTestNetwork, SITE};
use crate::place::{TEST_TIMEOUT, run_program};
use std::time::Instant;

/// Expert severities from this value on are warnings and errors.
const WARNING: u32 = 0x60_0000;
/// The group of warnings about sequence numbers, which the kernel's TCP causes on a busy machine.
const SEQUENCE: &str = "33554432";
/// The concentrator's health page. Without this, tshark takes a connection for the protocol of its client's port, which
/// is a random one.
const HTTP: &str = "tcp.port==9100,http";
/// tshark warns that EAP-MD5 does not authenticate the server.
const EXEMPT: &str = "Vulnerable to MITM attacks. If possible, change EAP type.";

/// The capture must have each of these.
const PARTS: &[&str] = &[
    "pppoe.code == 0x09",
    "pppoe.code == 0x07",
    "pppoe.code == 0x19",
    "pppoe.code == 0x65",
    "pppoe.code == 0xa7",
    "pppoed.tags.ac_cookie",
    "lcp && ppp.code == 1",
    "lcp && ppp.code == 3",
    "lcp && ppp.code == 5",
    "lcp && ppp.code == 6",
    "lcp && ppp.code == 9",
    "lcp && ppp.code == 10",
    "pap.code == 2",
    "chap.code == 3",
    "chap && chap.value_size == 49",
    "eap.type == 4",
    "eap.code == 3",
    "ipcp && ppp.code == 3",
    "ipv6cp && ppp.code == 2",
    "icmpv6.type == 133",
    "icmpv6.type == 134 && icmpv6.opt.prefix",
    "dhcpv6.msgtype == 2",
    "dhcpv6.msgtype == 7 && dhcpv6.iaprefix.pref_addr",
    "pppoes && ip && tcp.port == 9100",
    "pppoes && ipv6 && tcp.port == 9100",
];

#[test]
fn tshark_finds_nothing_wrong_with_any_of_our_protocols() {
    let ipv6 = SITE
        .replace(
            "pools = [\"students\"]",
            "pools = [\"students\"]\nprefix_pool = \"links\"\ndelegated_pool = \"sites\"",
        )
        .replace("metrics = \"0.0.0.0:9100\"", "metrics = \"[::]:9100\"")
        + "[[pool]]\nname = \"links\"\nranges = [\"2001:db8:1::/48/64\"]\n[[pool]]\nname = \"sites\"\n\
           ranges = [\"2001:db8:ff00::/40/56\"]\n[authentication]\nprotocols = [\"eap\", \"mschapv2\", \"chap\", \"pap\"]\n\
           eap_methods = [\"md5\"]\n";
    let cable = PppoeTestNetwork::with_config(&ipv6);
    cable.ac.run_ip(&["addr", "add", "2001:db8:ffff::1/128", "dev", "lo"]);
    let forward = "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
    assert!(cable.ac.run_program(&cable.temp_dir, "sh", &["-c", forward], "").0);
    let mut command = cable.host.command("dumpcap");
    command.args(["-q", "-B", "32", "-i", "lan", "-w", "capture.pcapng"]);
    let mut dumpcap = cable.temp_dir.start_program("dumpcap", &mut command, "File: ");
    let mut concentrator = cable.start_concentrator("ac");
    // During the capture the file may end within a frame; tshark then reports that, too.
    let captured = |filter: &str| {
        let words = ["-n", "-r", "capture.pcapng", "-Y", filter, "-T", "fields", "-e", "frame.protocols"];
        run_program(&cable.temp_dir.path(""), "tshark", &words, "")
            .1
            .lines()
            .filter(|line| line.contains(":ppp:"))
            .count()
    };
    for protocol in ["pap", "chap", "mschapv2", "eap"] {
        let name = format!("client-{protocol}");
        let refused =
            cable.as_user(&name, "ann", protocol, "wrong", &[], "rejected this user name and password");
        drop(refused);
        let more = ["--ipv6", "--delegation", "--network", "::/0"];
        let mut client = cable.as_user(&name, "ann", protocol, "password", &more, "connected address");
        client.wait_for("IPv6 address");
        client.wait_for("prefix delegated to this host prefix=\"2001:db8:ff");
        for address in ["10.0.0.1", "2001:db8:ffff::1"] {
            let get = format!(
                "exec 3<>/dev/tcp/{address}/9100 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"
            );
            let (answers, said) =
                cable.host.run_program(&cable.temp_dir, "timeout", &["60", "bash", "-c", &get], "");
            assert!(answers && said.contains("serving"), "{name} {address}: {said}\n{}", client.log());
        }
        // The client sends an LCP Echo-Request each second.
        let (echoes, begun) = ("lcp && ppp.code == 10", Instant::now());
        let before = captured(echoes);
        while captured(echoes) == before {
            assert!(begun.elapsed() < TEST_TIMEOUT, "nobody asks whether the host lives: {}", client.log());
        }
        assert_eq!(client.terminate(), Some(0), "{}", client.log());
        concentrator.wait_for("ended");
    }
    assert_eq!(concentrator.terminate(), Some(0), "{}", concentrator.log());
    let read = |filter: &str, fields: &[&str]| {
        let mut words = vec!["-n", "-2", "-r", "capture.pcapng", "-d", HTTP, "-Y", filter];
        words.extend(["-T", "fields", "-E", "aggregator=;"]);
        fields.iter().for_each(|field| words.extend(["-e", field]));
        let (right, said) = run_program(&cable.temp_dir.path(""), "tshark", &words, "");
        assert!(right, "{filter}: {said}");
        said.lines()
            .filter(|line| !line.starts_with("Running as user"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(dumpcap.terminate(), Some(0));
    for part in PARTS {
        assert!(!read(part, &["frame.number"]).is_empty(), "{part} is not in the capture");
    }
    let mut flawed = read("_ws.malformed", &["frame.number", "_ws.col.Info"]);
    let fields = ["frame.number", "_ws.expert.severity", "_ws.expert.group", "_ws.expert.message"];
    for line in read("_ws.expert", &fields) {
        let columns: Vec<Vec<&str>> = line.split('\t').map(|c| c.split(';').collect()).collect();
        let [_, severities, groups, messages] = &columns[..] else { panic!("{line}") };
        let warns = |n: usize| {
            severities[n].parse::<u32>().unwrap() >= WARNING && groups[n] != SEQUENCE && messages[n] != EXEMPT
        };
        if (0..severities.len()).any(warns) {
            flawed.push(line.clone());
        }
    }
    assert!(flawed.is_empty(), "{flawed:#?}");
}
