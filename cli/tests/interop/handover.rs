//! A handover between two real links. The mobile node runs the study's controller, its links are veth, and its flow
//! continues.

use crate::namespace::NetworkNamespace;
use crate::place::{RunningProgram, TEST_TIMEOUT, TempDir, USHER, run_program};
use std::time::{Duration, Instant};

/// The mobile node has `w0` and `e0`. Their other ends are the two networks. The points of service and the
/// correspondent have addresses there.
struct HandoverTestNetwork {
    temp_dir: TempDir,
    node: NetworkNamespace,
    net: NetworkNamespace,
}

const POS1: &str = "10.97.9.1";
const POS2: &str = "10.97.9.2";
const CORRESPONDENT: &str = "10.97.9.9";
const MACS: [&str; 4] = ["02:00:00:97:01:02", "02:00:00:97:01:01", "02:00:00:97:02:02", "02:00:00:97:02:01"];

impl HandoverTestNetwork {
    /// `retransmission`: the functions' timeout of an acknowledgement.
    fn new(transport: &str, retransmission: &str) -> Self {
        let (place, node, net) = (TempDir::new(), NetworkNamespace::new(), NetworkNamespace::new());
        for (n, (own, other)) in [("w0", "w1"), ("e0", "e1")].into_iter().enumerate() {
            let (here, there) = (MACS[2 * n], MACS[2 * n + 1]);
            let add = ["link", "add", own, "address", here, "type", "veth", "peer", "name", other];
            node.run_ip(&[&add[..], &["address", there, "netns", net.name()]].concat());
            node.run_ip(&["addr", "add", &format!("10.97.{}.2/24", n + 1), "dev", own]);
            net.run_ip(&["addr", "add", &format!("10.97.{}.1/24", n + 1), "dev", other]);
            node.run_ip(&["link", "set", own, "up"]);
            net.run_ip(&["link", "set", other, "up"]);
        }
        node.run_ip(&["route", "add", "default", "via", "10.97.1.1"]);
        for address in [POS1, POS2, CORRESPONDENT] {
            net.run_ip(&["addr", "add", address, "dev", "lo"]);
        }
        // Packets that arrive by a link without the default route must be accepted.
        let loose = "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done";
        assert!(node.run_program(&place, "sh", &["-c", loose], "").0);
        let pos = |id: &str, address: &str, poa: &str, more: &str| {
            format!(
                "id = \"{id}\"\n[listen]\nudp = [\"{address}:4551\"]\ntcp = [\"{address}:4551\"]\n\
                 [timers]\nretransmission = \"{retransmission}\"\n[point_of_service]\npoa = \"{poa}\"\n{more}\
                 [[peer]]\nid = \"mn@example.org\"\naddress = \"10.97.1.2\"\nnetworks = [\"10.97.2.0/24\"]\ntransport = \"{transport}\"\n"
            )
        };
        let station = format!(
            "station = [{{ id = \"mn@example.org\", address = \"{}\", link_type = \"802.11\" }}]\n\
             neighbour = {{ id = \"pos2.example.org\", poa = \"{}\", link_type = \"ethernet\" }}\n",
            MACS[0], MACS[3]
        );
        let other = |id: &str, address: &str| {
            format!("[[peer]]\nid = \"{id}\"\naddress = \"{address}\"\ntransport = \"{transport}\"\n")
        };
        let pos1 = pos("pos1.example.org", POS1, MACS[1], &station) + &other("pos2.example.org", POS2);
        let neighbour = format!(
            "neighbour = {{ id = \"pos1.example.org\", poa = \"{}\", link_type = \"802.11\" }}\n",
            MACS[1]
        );
        let pos2 = pos("pos2.example.org", POS2, MACS[3], &neighbour) + &other("pos1.example.org", POS1);
        let node_file = format!(
            "id = \"mn@example.org\"\n[listen]\nudp = [\"0.0.0.0:4551\"]\n[timers]\nretransmission = \"{retransmission}\"\n\
             [[interface]]\nname = \"w0\"\nlink_type = \"802.11\"\npoa = \"{}\"\n\
             watch = {{ file = \"signal\", below = -75, interval = \"20 ms\", within = \"2 s\" }}\n\
             [[interface]]\nname = \"e0\"\npoa = \"{}\"\n{}{}\
             [handover]\nserving = \"w0\"\ntarget = \"e0\"\nserving_address = \"10.97.1.2\"\ntarget_address = \"10.97.2.2\"\n\
             gateway = \"10.97.2.1\"\nserving_pos = \"pos1.example.org\"\ntarget_pos = \"pos2.example.org\"\n\
             correspondent = \"{CORRESPONDENT}\"\n",
            MACS[1],
            MACS[3],
            other("pos1.example.org", POS1),
            other("pos2.example.org", POS2)
        );
        for (name, text) in [("pos1.toml", pos1), ("pos2.toml", pos2), ("mn.toml", node_file)] {
            place.write_private(name, &text);
            let (right, said) = run_program(&place.path(""), USHER, &["mih", "check", name], "");
            assert!(right, "{said}");
        }
        place.write_private("signal", "-60\n");
        Self { temp_dir: place, node, net }
    }

    fn start_mih(&self, space: &NetworkNamespace, name: &str, words: &[&str]) -> RunningProgram {
        let mut command = space.command(USHER);
        command.arg("mih").args(words);
        self.temp_dir.start_program(name, &mut command, "started")
    }
}

/// Returns the number behind a key in the log line with this text.
#[track_caller]
fn log_number(log: &str, line: &str, key: &str) -> f64 {
    let found = log.lines().find(|l| l.contains(line)).unwrap_or_else(|| panic!("no {line}: {log}"));
    let value = found.split(&format!("{key}=")).nth(1).and_then(|rest| rest.split_whitespace().next());
    value.and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("no {key}: {found}"))
}

fn run_handover(transport: &str, foreseen: bool) {
    // If no link is lost, the test waits for functions that are late on a busy machine. A lost link delivers
    // nothing.
    let world = HandoverTestNetwork::new(transport, if foreseen { "5 s" } else { "1 s" });
    let mut dumpcap = world.node.command("dumpcap");
    dumpcap.args(["-q", "-B", "32", "-i", "w0", "-i", "e0", "-w", "handover.pcapng"]);
    let mut dumpcap = world.temp_dir.start_program("dumpcap", &mut dumpcap, "File: ");
    let _pos1 = world.start_mih(&world.net, "pos1", &["serve", "--config", "pos1.toml"]);
    let mut pos2 = world.start_mih(&world.net, "pos2", &["serve", "--config", "pos2.toml"]);
    let mut node = world.start_mih(&world.node, "mn", &["node", "--config", "mn.toml"]);
    node.wait_for("registered with the serving point of service");
    let flow = ["flow", "10.97.1.2:5000", "--from", CORRESPONDENT, "--interval", "10 ms"];
    let mut flow = world.start_mih(&world.net, "flow", &flow);
    node.wait_for("the flow arrives interface=Serving");
    if foreseen {
        world.temp_dir.write_private("signal", "-80\n");
        node.wait_for("handover done");
        pos2.wait_for("arrived");
        // The link goes down only now, and nothing is lost.
        world.net.run_ip(&["link", "set", "w1", "down"]);
    } else {
        world.net.run_ip(&["link", "set", "w1", "down"]);
        node.wait_for("handover done");
    }
    node.wait_for("the flow arrives interface=Target");
    flow.wait_for("the flow is redirected to=10.97.2.2");
    let log = node.log();
    let (took, gap, lost) = (
        log_number(&log, "handover done", "took_ms"),
        log_number(&log, "interface=Target", "gap_ms"),
        log_number(&log, "interface=Target", "lost"),
    );
    eprintln!(
        "{transport}, foreseen {foreseen}: handover {took:.1} ms, flow interrupted {gap:.1} ms, {lost} lost"
    );
    assert!(log.contains(&format!("handover done success={foreseen}")), "{log}");
    if foreseen {
        for step in ["scan", "resources", "commit", "entry", "redirection"] {
            assert!(log.contains(&format!("handover step step={step}")), "{step}: {log}");
        }
        // The old link carries the flow until the new one does.
        assert!(lost <= 1.0, "{log}");
    }
    // The kernel delivers captured packets in blocks, with a delay.
    let messages = if foreseen { 8 } else { 4 };
    let begun = Instant::now();
    // dumpcap writes the packets of two interfaces out of order. Without sorting, tshark takes a late one for a
    // retransmission and does not dissect it.
    let sort_capture =
        || run_program(&world.temp_dir.path(""), "reordercap", &["handover.pcapng", "sorted.pcapng"], "");
    let captured = || {
        let words = ["-n", "-r", "sorted.pcapng", "-Y", "mih", "-T", "fields", "-e", "frame.protocols"];
        // The file may end in the middle of a frame, which both programs report.
        sort_capture();
        run_program(&world.temp_dir.path(""), "tshark", &words, "")
            .1
            .lines()
            .filter(|line| line.contains(":mih"))
            .count()
    };
    while captured() < messages {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{} messages are captured", captured());
        std::thread::sleep(Duration::from_millis(200));
    }
    node.terminate();
    let code = flow.terminate();
    assert_eq!(code, Some(0));
    dumpcap.terminate();
    let (right, said) = sort_capture();
    assert!(right, "{said}");
    let tshark = |filter: &str, field: &str| {
        let words = ["-n", "-r", "sorted.pcapng", "-Y", filter, "-T", "fields", "-e", field];
        let (right, said) = run_program(&world.temp_dir.path(""), "tshark", &words, "");
        assert!(right, "{filter}: {said}");
        said.lines()
            .filter(|line| !line.starts_with("Running as user"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(tshark("mih", "frame.number").len() >= messages);
    let flaws = tshark("_ws.malformed || (mih && _ws.expert.severity >= 0x600000)", "_ws.expert.message");
    assert!(flaws.is_empty(), "{flaws:?}");
}

#[test]
fn a_flow_moves_to_the_other_link_before_a_predicted_link_loss() {
    for transport in ["udp", "tcp"] {
        run_handover(transport, true);
    }
}

#[test]
fn a_flow_moves_to_the_other_link_after_a_sudden_link_loss() {
    run_handover("udp", false);
}
