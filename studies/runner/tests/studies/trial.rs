//! Studies as a researcher writes them, with known results.

use crate::services::metric_value;
use crate::{MetricMap, run_study};

/// Logins by EAP-TLS at a server with this number of cores, with the work of TLS charged.
fn run_logins(cores: u32, aaa: &str) -> MetricMap {
    run_study(&format!(
        r#"
title = "T"
question = "Q?"
[run]
duration = "20 s"
[hosts.station]
count = 50
[hosts.nas]
[hosts.server]
cpu = {{ cores = {cores}, service = {{ "tls.sign" = "40 ms" }} }}
[links.access]
between = ["station", "nas"]
delay = "1 ms"
[links.core]
between = ["nas", "server"]
delay = "20 ms"
[transport.tcp]
nagle = false
[workload]
kind = "eap"
stations = "station"
nas = "nas"
server = "server"
method = "eap-tls"
arrivals = {{ kind = "poisson", rate = "20 /s" }}
{aaa}
[workload.eap_tls]
version = "1.3"
client_chain = 2
server_chain = 2
"#
    ))
}

/// The data of a connection stays in order no matter which core finishes first; otherwise TLS would fail.
#[test]
fn more_cores_shorten_logins_and_break_no_connection() {
    for aaa in [
        "aaa = \"radius\"",
        "aaa = \"radsec\"",
        "aaa = \"diameter\"",
        "aaa = \"diameter\"\ndiameter = { transport = \"tls\" }",
    ] {
        let [one, two, four] = [1, 2, 4].map(|cores| run_logins(cores, aaa));
        for metrics in [&one, &two, &four] {
            let ends = ["failures", "rejected"].map(|name| metric_value(metrics, name));
            assert_eq!(ends, [0.0, 0.0], "{aaa}: {metrics:?}");
            assert!(metric_value(metrics, "completed") > 300.0, "{aaa}: {metrics:?}");
        }
        let delay = |metrics: &MetricMap| metric_value(metrics, "delay.mean");
        // One core is busy for four fifths of the time; with two or four there is no queue.
        assert!(delay(&two) < 0.9 * delay(&one), "{aaa}: {} {}", delay(&one), delay(&two));
        assert!(delay(&four) < 1.01 * delay(&two), "{aaa}: {} {}", delay(&two), delay(&four));
    }
}

/// The delay of logins beside a download on the same link, with a queue of this number of packets.
fn measure_login_delay(control: &str, queue: u32, buffer: &str) -> f64 {
    let metrics = run_study(&format!(
        r#"
title = "T"
question = "Q?"
[run]
duration = "30 s"
warmup = "10 s"
replications = {{ metric = "delay.mean.login" }}
[hosts.station]
count = 20
[hosts.nas]
[hosts.near]
[hosts.far]
[hosts.server]
[hosts.web]
[hosts.pc]
count = 4
[links.s]
between = ["station", "nas"]
delay = "1 ms"
[links.a]
between = ["nas", "near"]
delay = "1 ms"
[links.p]
between = ["pc", "near"]
delay = "1 ms"
[links.core]
between = ["near", "far"]
rate = "5 Mb/s"
delay = "20 ms"
queue = "{queue} packets"
[links.b]
between = ["far", "server"]
delay = "1 ms"
[links.w]
between = ["far", "web"]
delay = "1 ms"
[transport.tcp]
preset = "linux"
nagle = false
control = "{control}"
{buffer}
[workloads.login]
kind = "eap"
stations = "station"
nas = "nas"
server = "server"
method = "eap-md5"
aaa = "diameter"
arrivals = {{ kind = "poisson", rate = "5 /s" }}
[workloads.load]
kind = "dialogue"
clients = "pc"
server = "web"
transport = "tcp"
rounds = [{{ request = "200 B", answer = "20 MB" }}]
arrivals = {{ kind = "closed", pause = "1 s" }}
"#
    ));
    metric_value(&metrics, "delay.p50.login")
}

/// Loss-based senders fill a deep queue as growing receive buffers let them; a sender that measures the path leaves it
/// empty.
#[test]
fn downloads_fill_a_deep_queue_before_logins() {
    let (shallow, deep) = (measure_login_delay("cubic", 20, ""), measure_login_delay("cubic", 1000, ""));
    assert!(shallow < 0.5, "{shallow}");
    // 1000 packets of 1500 octets take 2.4 s on the link, and a login sends two requests over it.
    assert!(deep > 2.4, "{deep}");
    assert!(measure_login_delay("bbr", 1000, "") < deep / 3.0);
    // Four receivers with 64 KiB limit the data in flight to that: 0.4 s.
    let fixed = measure_login_delay("cubic", 1000, "receive_buffer_max = \"off\"");
    assert!(fixed < deep / 2.0, "{fixed} {deep}");
}

/// Logins through a cell of 802.11 that its stations leave at this speed from the tenth second on.
fn run_walking_stations(speed: &str) -> MetricMap {
    run_study(&format!(
        r#"
title = "T"
question = "Q?"
[run]
duration = "60 s"
warmup = "5 s"
[hosts.station]
count = 200
position = ["0 m", "0 m"]
velocity = ["{speed}", "0 m/s"]
departs = "10 s"
spread = "20 m"
[hosts.nas]
count = 4
position = ["0 m", "0 m"]
[hosts.server]
[bss.cell]
stations = "station"
access_point = "nas"
[links.wire]
between = ["nas", "server"]
delay = "10 ms"
[workload]
kind = "eap"
stations = "station"
nas = "nas"
server = "server"
method = "eap-md5"
aaa = "radius"
arrivals = {{ kind = "poisson", rate = "5 /s" }}
"#
    ))
}

/// Stations within the cell log in; outside none can, and faster stations leave sooner.
#[test]
fn who_walks_out_of_a_cell_is_let_in_no_more() {
    let [slow, walk, run] =
        ["0.2 m/s", "1 m/s", "5 m/s"].map(|speed| metric_value(&run_walking_stations(speed), "failures"));
    assert!(slow == 0.0, "{slow}");
    assert!((0.05..0.5).contains(&walk), "{walk}");
    // They begin to walk with nine tenths of the time left, and leave the cell within an eighth of it.
    assert!((0.5..0.95).contains(&run), "{run}");
}

/// Requests by TCP, each on its own connection over one link, with TCP settings and the size of each request.
fn run_dialogues(link: &str, tcp: &str, request: &str) -> MetricMap {
    run_study(&format!(
        r#"
title = "T"
question = "Q?"
[run]
duration = "120 s"
drain = "300 s"
[hosts.client]
count = 2
[hosts.server]
[links.path]
between = ["client", "server"]
{link}
[transport.tcp]
{tcp}
[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "tcp"
connection = "per-dialogue"
rounds = [{{ request = "{request}", answer = "100 B" }}]
arrivals = {{ kind = "poisson", rate = "0.2 /s" }}
"#
    ))
}

/// With spurious retransmissions, including the FIN, each dialogue still ends after two round trips.
#[test]
fn a_path_beyond_the_first_timeout_takes_two_round_trips() {
    for (delay, least) in [("501 ms", 2.004), ("2 s", 8.0), ("5 s", 20.0)] {
        let metrics = run_dialogues(&format!("rate = \"1 Mb/s\"\ndelay = \"{delay}\""), "", "100 B");
        assert_eq!(metric_value(&metrics, "failures"), 0.0, "{delay}: {metrics:?}");
        assert!(metric_value(&metrics, "completed") >= 10.0, "{delay}: {metrics:?}");
        let mean = metric_value(&metrics, "delay.mean");
        assert!((least..1.1 * least).contains(&mean), "{delay}: {mean}");
    }
}

/// Queue overflows and damaged packets slow a transfer but do not stop it.
#[test]
fn a_short_queue_and_damage_stop_no_transfer() {
    let link = "rate = \"2 Mb/s\"\ndelay = \"20 ms\"\nqueue = \"10 packets\"\ncorrupt = ";
    for congestion in ["reno", "newreno", "sack"] {
        let tcp = format!("mss = \"1000 B\"\ncongestion = \"{congestion}\"");
        let [clean, damaged] =
            ["0 %", "1 %"].map(|share| run_dialogues(&format!("{link}\"{share}\""), &tcp, "300 kB"));
        for metrics in [&clean, &damaged] {
            assert_eq!(metric_value(metrics, "failures"), 0.0, "{congestion}: {metrics:?}");
        }
        let [clean, damaged] = [&clean, &damaged].map(|metrics| metric_value(metrics, "delay.mean"));
        // 300 kB take 1.2 s of the link.
        assert!((1.2..4.0).contains(&clean), "{congestion}: {clean}");
        assert!(clean < damaged && damaged < 20.0, "{congestion}: {clean} {damaged}");
    }
}
