//! Faults of studies with moving hosts, MIH and handovers.

use usher_scenario::Study;

/// Mobile nodes with an interface each in a BSS. The table changes its lines.
const MOBILE: &str = r#"title = "T"
question = "Q?"
[run]
duration = "10 s"
[hosts.mn]
count = 4
position = ["-40 m", "0 m"]
velocity = ["1 m/s", "0 m/s"]
spread = "1 m"
[hosts.second]
interface_of = "mn"
[hosts.ap]
[hosts.pos]
[bss.air]
access_point = "ap"
stations = "mn"
rate = "11 Mb/s"
basic_rate = "2 Mb/s"
cw_min = 31
cw_max = 1023
radius = "50 m"
going_down = "45 m"
scan = { min = "20 ms", max = "60 ms" }
[links.core]
between = ["ap", "pos"]
[workload]
kind = "mih"
mn = "mn"
pos = "pos"
message = "indication"
transport = "udp"
size = "200 B"
arrivals = { kind = "constant", interval = "500 ms" }
[workload.timing]
retransmission = "300 ms"
[workload.timing.by_service]
command = { retransmission = "500 ms" }
[workload.timing.by_message.MN_HO_Commit]
retransmissions = 3
[[figures]]
name = "delay"
title = "Delay"
x = "loss"
y = "mih.overhead"
[[axes]]
name = "loss"
set = "bss.air.packet_loss"
values = ["0 %", "5 %"]
"#;

#[test]
fn faults_of_moving_hosts_and_of_mih_name_their_place() {
    Study::parse("t", "t.toml", MOBILE).unwrap_or_else(|e| panic!("{e}")).check_plans().unwrap();
    let table = [
        (
            r#"position = ["-40 m", "0 m"]"#,
            r#"position = ["-40 m"]"#,
            "t.toml:7:12: hosts.mn.position: expected 2 values, found 1",
        ),
        (
            r#"position = ["-40 m", "0 m"]"#,
            r#"position = ["-40 m", "0 m/s"]"#,
            "t.toml:7:22: hosts.mn.position[1]: \"m/s\" is no unit of a length (m, km)",
        ),
        (
            r#"velocity = ["1 m/s", "0 m/s"]"#,
            "",
            "t.toml:9:10: hosts.mn.spread: the host does not move: set velocity, or leave spread out",
        ),
        (
            r#"interface_of = "mn""#,
            r#"interface_of = "nm""#,
            "t.toml:11:16: hosts.second.interface_of: there is no host \"nm\"; did you mean \"mn\"?",
        ),
        (
            r#"interface_of = "mn""#,
            r#"interface_of = "second""#,
            "t.toml:11:16: hosts.second.interface_of: \"second\" is an interface itself",
        ),
        (
            r#"interface_of = "mn""#,
            "interface_of = \"mn\"\ncount = 3",
            "t.toml:12:9: hosts.second.count: each member of \"mn\" has one such interface: leave count out",
        ),
        (
            r#"interface_of = "mn""#,
            "interface_of = \"mn\"\ndeparts = \"1 s\"",
            "t.toml:12:11: hosts.second.departs: an interface moves with \"mn\": leave this out",
        ),
        (
            r#"mn = "mn""#,
            r#"mn = "second""#,
            "t.toml:28:6: workload.mn: \"second\" is an interface: name its host, \"mn\"",
        ),
        (
            r#"access_point = "ap""#,
            r#"access_point = "second""#,
            "t.toml:15:16: bss.air.access_point: \"second\" is an interface: name its host, \"mn\"\nt.toml:29:7: \
             workload.pos: no links lead from \"mn\" 0 to \"pos\"",
        ),
        (
            "[hosts.ap]",
            "[hosts.ap]\ncount = 5",
            "t.toml:16:16: bss.air.access_point: 5 access points for 4 stations: some would have no station",
        ),
        (
            "[links.core]",
            "[links.air]",
            "t.toml:14:6: bss.air: a link or cell has the name \"air\" too: rename one of them",
        ),
        (
            r#"rate = "11 Mb/s""#,
            r#"rate = "13 Mb/s""#,
            "t.toml:17:8: bss.air.rate: \"13 Mb/s\" is not known here; did you mean \"1 Mb/s\"?",
        ),
        (
            r#"rate = "11 Mb/s""#,
            r#"rate = "1 Mb/s""#,
            "t.toml:18:14: bss.air.basic_rate: the basic rate is above the data rate",
        ),
        (
            "cw_min = 31",
            "cw_min = 2047",
            "t.toml:19:10: bss.air.cw_min: contention windows from 2047 to 1023; both must be 2^n - 1, ascending, at most 65535",
        ),
        (
            r#"going_down = "45 m""#,
            r#"going_down = "55 m""#,
            "t.toml:22:14: bss.air.going_down: the radius must be above 0, and the threshold of going down must not \
             exceed it",
        ),
        (
            r#"going_down = "45 m""#,
            "going_down = \"50 m\"\nframe_loss_from = \"going-down\"",
            "t.toml:23:19: bss.air.frame_loss_from: no station in range is farther away than going_down: make \
             going_down less than radius, or set this to \"always\"",
        ),
        (
            r#"going_down = "45 m""#,
            "going_down = \"45 m\"\nframe_loss_from = \"going_down\"",
            "t.toml:23:19: bss.air.frame_loss_from: \"going_down\" is not known here; did you mean \"going-down\"?",
        ),
        (
            r#"going_down = "45 m""#,
            "going_down = \"45 m\"\nframe_loss_of = \"date\"",
            "t.toml:23:17: bss.air.frame_loss_of: \"date\" is not known here; did you mean \"data\"?",
        ),
        (
            r#"going_down = "45 m""#,
            "going_down = \"45 m\"\nframe_loss = \"105 %\"",
            "t.toml:23:14: bss.air.frame_loss: \"105 %\" is more than 100 %",
        ),
        (
            r#"size = "200 B""#,
            "size = \"200 B\"\nresponse_size = \"4 kB\"",
            "t.toml:33:17: workload.response_size: no user answers this message: leave this out, or set message = \
             \"request\", \"candidate-query\" or \"information\"",
        ),
        (
            "message = \"indication\"\ntransport = \"udp\"\nsize = \"200 B\"",
            "message = \"information\"\ntransport = \"udp\"\nsize = \"200 B\"\nresponse_size = \"70 kB\"",
            "t.toml:33:17: workload.response_size: 70000 B is not between 128 B and 65543 B",
        ),
        (
            r#"min = "20 ms""#,
            r#"min = "90 ms""#,
            "t.toml:23:1: bss.air.scan: the scan must include the access point's channel, and MinChannelTime must \
             not exceed MaxChannelTime",
        ),
        (
            r#"pos = "pos""#,
            r#"pos = "mn""#,
            "t.toml:29:7: workload.pos: \"mn\" has another role in this workload already",
        ),
        (
            r#"size = "200 B""#,
            r#"size = "20 B""#,
            "t.toml:32:8: workload.size: 20 B is not between 128 B and 65543 B",
        ),
        (
            r#"message = "indication""#,
            r#"message = "response""#,
            "t.toml:30:11: workload.message: \"response\" is not known here; expected one of \"indication\", \"request\", \
             \"candidate-query\", \"information\", \"registration\"",
        ),
        (
            r#"arrivals = { kind = "constant", interval = "500 ms" }"#,
            r#"arrivals = { kind = "closed", pause = "500 ms" }"#,
            "t.toml:33:21: workload.arrivals.kind: MIH transactions do not wait for earlier ones: use \"poisson\" or \
             \"constant\"",
        ),
        (
            r#"retransmission = "300 ms""#,
            r#"retransmission = "0 s""#,
            "t.toml:35:18: workload.timing.retransmission: must be above zero",
        ),
        (
            r#"retransmission = "500 ms""#,
            r#"response = "0 s""#,
            "t.toml:37:24: workload.timing.by_service.command.response: must be above zero",
        ),
        (
            "retransmissions = 3",
            "retransmissions = 300",
            "t.toml:39:19: workload.timing.by_message.MN_HO_Commit.retransmissions: 300 is above 255",
        ),
        (
            "[workload.timing.by_message.MN_HO_Commit]",
            "[workload.timing.by_message.MN_HO_Comit]",
            "t.toml:38:29: workload.timing.by_message.MN_HO_Comit: there is no message \"MN_HO_Comit\"; did you mean \"MN_HO_Commit\"?",
        ),
        (
            r#"y = "mih.overhead""#,
            r#"y = "mih.overhed""#,
            "t.toml:44:5: figures[0].y: there is no metric \"mih.overhed\"; did you mean \"mih.overhead\"?",
        ),
        (
            r#"y = "mih.overhead""#,
            r#"y = "sent.ari""#,
            "t.toml:44:5: figures[0].y: there is no metric \"sent.ari\"; did you mean \"sent.air\"?",
        ),
        (
            r#"set = "bss.air.packet_loss""#,
            r#"set = "bss.ari.packet_loss""#,
            "t.toml:47:7: \"bss.ari.packet_loss\" names no setting: there is no \"ari\" in bss; did you mean \"air\"?",
        ),
    ];
    for (line, other, expected) in table {
        assert!(MOBILE.contains(line), "{line}");
        let text = MOBILE.replacen(line, other, 1);
        let found = Study::parse("t", "t.toml", &text).and_then(|study| study.check_plans());
        assert_eq!(found.unwrap_err().to_string().trim_end(), expected, "{other}");
    }
}

/// Two nodes that can hand over. Tests replace its lines.
const HANDOVER: &str = r#"title = "T"
question = "Q?"
[run]
duration = "30 s"
[hosts.mn]
count = 2
[hosts.wlan]
interface_of = "mn"
[hosts.wimax]
interface_of = "mn"
[hosts.ap]
[hosts.bs]
[hosts.serving]
[hosts.target]
[hosts.peer]
count = 2
[bss.air]
access_point = "ap"
stations = "wlan"
[cells.wide]
base_station = "bs"
stations = "wimax"
[links.a]
between = ["ap", "serving"]
[links.b]
between = ["bs", "target"]
[links.c]
between = ["serving", "target"]
[links.d]
between = ["peer", "target"]
[workload]
kind = "handover"
mn = "mn"
wlan = "wlan"
wimax = "wimax"
pos = "serving"
target = "target"
correspondent = "peer"
initiated_by = "station"
transport = "udp"
application = { interval = "500 ms", size = "200 B" }
"#;

#[test]
fn faults_of_a_handover_name_their_place() {
    Study::parse("t", "t.toml", HANDOVER).unwrap_or_else(|e| panic!("{e}")).check_plans().unwrap();
    let table = [
        (
            "wlan = \"wlan\"",
            "wlan = \"ap\"",
            "t.toml:34:8: workload.wlan: \"ap\" is not an interface of \"mn\"",
        ),
        (
            "wimax = \"wimax\"",
            "wimax = \"wlan\"",
            "t.toml:35:9: workload.wimax: \"wlan\" is not a station of any cell in use\nt.toml:35:9: workload.wimax: \
             \"wlan\" is the other interface already",
        ),
        (
            "[hosts.peer]\ncount = 2",
            "[hosts.peer]\ncount = 1",
            "t.toml:38:17: workload.correspondent: each mobile node needs its own correspondent, and there are 1 for 2",
        ),
        (
            "target = \"target\"",
            "target = \"serving\"",
            "t.toml:37:10: workload.target: \"serving\" is the point of service of the old network already",
        ),
        (
            "[hosts.target]",
            "[hosts.target]\ncount = 2",
            "t.toml:38:10: workload.target: each point of service of the old network needs its own target, and there \
             are 2 for 1",
        ),
        (
            "[hosts.ap]",
            "[hosts.ap]\ncount = 2",
            "t.toml:37:7: workload.pos: all nodes of a point of service must share one access point and one base \
             station",
        ),
        (
            "stations = \"wlan\"",
            "stations = \"wlan\"\nused = false\n[links.e]\nbetween = [\"wlan\", \"ap\"]",
            "t.toml:37:8: workload.wlan: \"wlan\" is not a station of any BSS in use",
        ),
        (
            "interval = \"500 ms\"",
            "interval = \"0 s\"",
            "t.toml:41:28: workload.application.interval: must be above zero",
        ),
        (
            "initiated_by = \"station\"",
            "initiated_by = \"me\"",
            "t.toml:39:16: workload.initiated_by: \"me\" is not known here; expected one of \"station\", \"network\"",
        ),
    ];
    for (line, other, expected) in table {
        assert!(HANDOVER.contains(line), "{line}");
        let text = HANDOVER.replacen(line, other, 1);
        let found = Study::parse("t", "t.toml", &text).and_then(|study| study.check_plans());
        assert_eq!(found.unwrap_err().to_string().trim_end(), expected, "{other}");
    }
}
