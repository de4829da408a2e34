//! Dialogues over UDP and TCP in tshark: fragments, and TCP's retransmissions.

use usher_wire_tests::CapturedRun;

fn study_text(ip: &str, core: &str, workload: &str) -> String {
    format!(
        r#"
[run]
duration = "20 s"
ip = "{ip}"
[run.replications]
min = 1
max = 1
[hosts.client]
count = 3
[hosts.router]
[hosts.server]
[links.access]
between = ["client", "router"]
rate = "10 Mb/s"
delay = "1 ms"
[links.core]
between = ["router", "server"]
rate = "2 Mb/s"
delay = "10 ms"
{core}
[workload]
kind = "dialogue"
clients = "client"
server = "server"
arrivals = {{ kind = "poisson", rate = "5 /s", start = "1 s" }}
{workload}
[capture]
links = ["core"]
"#
    )
}

const BIG: &str = "transport = \"udp\"\nrounds = [{ request = \"3000 B\", answer = \"2001 B\" }]";

#[test]
fn tshark_puts_fragments_together() {
    // IPv6 links have at least 1280 B, and only senders cut, so the whole path has this size.
    for (ip, mtu) in [("v4", "576 B"), ("v6", "1280 B")] {
        for framing in ["none", "ethernet"] {
            let size = format!("mtu = \"{mtu}\"\nframing = \"{framing}\"");
            let text = study_text(ip, &size, BIG);
            let text = text.replace("[links.core]", &format!("mtu = \"{mtu}\"\n[links.core]"));
            let run = CapturedRun::new(&text);
            run.assert_clean();
            let begun = run.metric("completed") as usize;
            assert!(begun > 50 && run.metric("failures") == 0.0);
            assert_eq!(run.frame_count("udp.dstport == 7 && udp.length == 3008"), begun, "{ip} {framing}");
            assert_eq!(run.frame_count("udp.srcport == 7 && udp.length == 2009"), begun, "{ip} {framing}");
            assert_eq!(run.frame_count("udp.checksum.status == \"Good\""), 2 * begun);
            // 3008 B in pieces of 552 (IPv4, 20 B of headers) or 1232 (IPv6, 48 B): 6 or 3; 2009 B: 4 or 2.
            let pieces = if ip == "v4" { 6 + 4 } else { 3 + 2 };
            assert_eq!(run.frame_count(""), pieces * begun);
            assert_eq!((run.metric("packets.core") * begun as f64).round() as usize, pieces * begun);
        }
    }
}

#[test]
fn tshark_accepts_lost_duplicated_and_reordered_fragments() {
    let core = "mtu = \"576 B\"\nloss = \"3 %\"\nduplicate = \"10 %\"\nreorder = \"20 %\"\nreorder_delay = \"20 ms\"";
    let run = CapturedRun::new(&study_text("v4", core, BIG));
    run.assert_clean();
    assert!(run.metric("failures") > 0.1 && run.metric("completed") > 20.0);
    assert!(run.frame_count("udp.checksum.status == \"Good\"") > 50);
}

#[test]
fn tcp_repairs_what_is_lost_and_nothing_else() {
    let workload = "transport = \"tcp\"\nrounds = [{ request = \"4000 B\", answer = \"9000 B\" }]";
    let repaired = "tcp.analysis.retransmission || tcp.analysis.fast_retransmission \
        || tcp.analysis.spurious_retransmission || tcp.analysis.out_of_order";
    for ip in ["v4", "v6"] {
        let whole = CapturedRun::new(&study_text(ip, "", workload));
        whole.assert_clean();
        assert_eq!((whole.frame_count(repaired), whole.frame_count("tcp.analysis.lost_segment")), (0, 0));
        assert_eq!(whole.metric("tcp.retransmissions"), 0.0);
        // Every frame is of TCP, in segments no larger than the path takes.
        let (all, tcp) = (whole.frame_count(""), whole.frame_count("tcp"));
        assert_eq!(all, tcp);
        assert_eq!(whole.frame_count("frame.len > 1500"), 0);
        assert!(whole.frame_count("frame.len == 1500") > 100);

        let lossy = CapturedRun::new(&study_text(ip, "loss = \"5 %\"", workload));
        lossy.assert_clean();
        assert!(lossy.frame_count(repaired) > 20, "{}", lossy.frame_count(repaired));
        assert!(lossy.metric("tcp.retransmissions") > 0.0);
        assert_eq!(lossy.metric("failures"), 0.0);
    }
}
