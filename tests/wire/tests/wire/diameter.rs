//! Diameter over TCP in tshark.

use usher_wire_tests::{A_FEW, CapturedRun, authentication_study};

/// After all authentications, the watchdog is exchanged.
fn watchdog_study(ip: &str, core: &str) -> String {
    authentication_study(ip, core, "", &format!("{A_FEW}\n[workload.diameter]\nwatchdog = \"6 s\""))
}

/// The Hop-by-Hop Identifiers of all messages of a command and direction, in order.
fn hop_by_hop_ids(run: &CapturedRun, command: u32, request: bool) -> Vec<String> {
    let rows = run.tshark_fields(
        &format!("diameter.cmd.code == {command}"),
        &["diameter.cmd.code", "diameter.flags.request", "diameter.hopbyhopid"],
    );
    // A frame may hold several messages.
    let messages = rows.iter().flat_map(|row| {
        let split = |i: usize| row[i].split(',').map(str::to_owned).collect::<Vec<_>>();
        let (codes, requests, hops) = (split(0), split(1), split(2));
        assert!(codes.len() == requests.len() && codes.len() == hops.len(), "{row:?}");
        codes.into_iter().zip(requests).zip(hops)
    });
    let wanted = |((code, r), hop): ((String, String), String)| {
        (code == command.to_string() && (r == "1") == request).then_some(hop)
    };
    messages.filter_map(wanted).collect()
}

#[test]
fn tshark_knows_every_command_and_finds_every_answer() {
    for ip in ["v4", "v6"] {
        let run = CapturedRun::new(&watchdog_study(ip, ""));
        run.assert_clean();
        let begun = run.metric("completed") as usize;
        assert!(begun == 24 && run.metric("started") as usize == begun, "{begun}");
        // Capabilities-Exchange (257), Device-Watchdog (280) and Diameter-EAP (268).
        for (command, requests) in [(257, Some(1)), (268, Some(2 * begun)), (280, None)] {
            let asked = hop_by_hop_ids(&run, command, true);
            let answered = hop_by_hop_ids(&run, command, false);
            assert!(requests.map_or(!asked.is_empty(), |n| n == asked.len()), "{command}: {}", asked.len());
            assert_eq!(asked, answered, "{command}");
        }
        // By name, with nothing that its dictionary does not know.
        assert_eq!(run.frame_count("diameter.cmd.code == 268 && eap.type == 4"), 2 * begun);
        assert_eq!(
            run.frame_count("diameter.avp.unknown || diameter.avp.invalid-data || diameter.avp.invalid-len"),
            0
        );
        let infos = run.tshark_fields("diameter", &["_ws.col.Info"]);
        for name in ["Capabilities-Exchange Request", "Diameter-EAP Answer", "Device-Watchdog Request"] {
            assert!(infos.iter().any(|i| i[0].contains(name)), "{name}");
        }
        let unanswered = run.frame_count("diameter.flags.request == 1 && !diameter.answer_in");
        let strays = run.frame_count("diameter.flags.request == 0 && !diameter.answer_to");
        assert_eq!((unanswered, strays), (0, 0));
        assert_eq!(run.frame_count("tcp.analysis.retransmission || tcp.analysis.lost_segment"), 0);
        // Every segment is captured, and nothing else is.
        assert_eq!(run.frame_count("tcp"), run.frame_count(""));
        let counted = (run.metric("packets.core") * begun as f64).round() as usize;
        // Counting begins after the time zero, at which the SYN leaves.
        assert_eq!(counted + 1, run.frame_count("tcp"));
    }
}

#[test]
fn tshark_sees_retransmissions_under_loss_and_nothing_wrong() {
    let core = "loss = \"10 %\"\nduplicate = \"5 %\"\nreorder = \"10 %\"\nreorder_delay = \"30 ms\"";
    let run = CapturedRun::new(&watchdog_study("v4", core));
    run.assert_clean();
    let again = "tcp.analysis.retransmission || tcp.analysis.fast_retransmission || tcp.analysis.spurious_retransmission";
    assert!(run.frame_count(again) > 5);
    assert!(run.metric("tcp.retransmissions") > 0.0);
    assert!(run.metric("completed") > 10.0);
}

#[test]
fn tshark_flags_damaged_segments() {
    let run = CapturedRun::new(&watchdog_study("v4", "corrupt = \"30 %\""));
    let damaged = run.frame_count("tcp.checksum.status == \"Bad\"");
    assert!(damaged > 10, "{damaged}");
    assert_eq!(run.frame_count("tcp.checksum.status == \"Bad\" && tcp.dstport == 3868"), 0);
}
