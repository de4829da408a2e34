//! Stations that authenticate over an 802.16 cell, from TOML to metrics.

use super::run_study;
use usher_scenario::{ClosedFormName, PlanOverrides, Study, StudyMode};

/// Stations, base stations and a server 10 ms from each; EAP-MD5 over RADIUS.
fn cell_study(stations: u32, nas: u32, cell: &str, arrivals: &str) -> String {
    format!(
        r#"
title = "t"
question = "q"
[run]
duration = "100 s"
[hosts.station]
count = {stations}
[hosts.nas]
count = {nas}
[hosts.server]
[cells.air]
base_station = "nas"
stations = "station"
{cell}
[links.core]
between = ["nas", "server"]
delay = "10 ms"
[workload]
kind = "eap"
stations = "station"
nas = "nas"
server = "server"
method = "eap-md5"
aaa = "radius"
arrivals = {arrivals}
"#
    )
}

const ALL_AT_ONCE: &str = r#"{ kind = "constant", interval = "200 s", start = "1 s", count = 1 }"#;

#[test]
fn the_delay_of_a_lone_station_is_that_of_hand_arithmetic() {
    let calm = "entry = { done = true }\nrequests = { backoff_start = 0 }";
    let arrivals = r#"{ kind = "constant", interval = "200 s", start = "1.001 s", count = 1 }"#;
    let m = run_study(&cell_study(1, 1, calm, arrivals));
    // Nanoseconds from a frame's beginning. An uplink ends after 47 symbols and the gap. The downlink's first slots,
    // with the maps, end after the preamble and two pairs of symbols.
    let (frame, symbol) = (5_000_000, 102_857);
    let (up, down) = (47 * symbol + 105_714, 5 * symbol);
    // A station requests bandwidth in the frame in which it has data, gets a grant in the next, and sends in the one
    // after. EAP-Start falls due in frame 200 and arrives in 202. The Identity request goes down in 203, the response
    // up in 205. The server's answer takes 20 ms: to frame 210. The response to its challenge goes up in 212, and the
    // verdict is ready for frame 217.
    let heard = |n: u64| n * frame + up;
    assert!(heard(202) <= 203 * frame && heard(205) + 20_000_000 <= 210 * frame);
    assert!(heard(205) + 20_000_000 > 209 * frame && heard(212) + 20_000_000 > 216 * frame);
    let success = 217 * frame + down;
    let delay = (success - 1_001_000_000) as f64 / 1e9;
    assert!((m["delay.mean"] - delay).abs() < 1e-9, "{} for {delay}", m["delay.mean"]);
    assert_eq!((m["completed"], m["requests.air"], m["collisions.air"]), (1.0, 3.0, 0.0));
    // EAP-Start, two requests, two responses, Success: each with three octets of PKM, two around an EAP packet, and ten
    // of PDU. The identity is `station-00000@example.org`.
    assert_eq!(m["packets.air"], 6.0);
    let eap = [0, 5, 5 + 25, 22, 22, 4];
    let octets: u32 = eap.iter().map(|e| e + 13 + if *e > 0 { 2 } else { 0 }).sum();
    assert_eq!(m["bytes.air"], f64::from(octets));
    assert!(!m.contains_key("load.air"));
}

#[test]
fn a_hundred_stations_that_start_at_once_all_get_in() {
    let m = run_study(&cell_study(100, 1, "", ALL_AT_ONCE));
    assert_eq!((m["started"], m["completed"], m["failures"]), (100.0, 100.0, 0.0));
    assert!(m["collisions.air"] > 0.1, "{m:?}");
    assert!(m["requests.air"] >= 3.0, "{m:?}");
    // Stations recover from collisions of ranging and requests within seconds.
    assert!(m["delay.max"] > 0.3 && m["delay.max"] < 30.0, "{m:?}");
    assert_eq!(m, run_study(&cell_study(100, 1, "", ALL_AT_ONCE)), "the same seed gives the same run");
    // Wider windows, fewer collisions.
    let wide = "entry = { backoff_start = 8 }\nrequests = { backoff_start = 6 }";
    let wide = run_study(&cell_study(100, 1, wide, ALL_AT_ONCE));
    assert_eq!(wide["completed"], 100.0);
    assert!(wide["collisions.air"] < m["collisions.air"], "{wide:?}");
}

#[test]
fn each_base_station_of_a_group_has_its_own_cell() {
    let one = run_study(&cell_study(100, 1, "", ALL_AT_ONCE));
    let four = run_study(&cell_study(100, 4, "", ALL_AT_ONCE));
    assert_eq!((four["completed"], four["failures"]), (100.0, 0.0));
    assert!(four["collisions.air"] < one["collisions.air"]);
}

#[test]
fn a_study_can_choose_between_a_cell_and_a_link() {
    let arrivals = "{ kind = \"poisson\", rate = \"5 /s\" }";
    let both = cell_study(10, 1, "used = true", arrivals).replace(
        "[links.core]",
        "[links.wire]\nbetween = [\"station\", \"nas\"]\ndelay = \"1 ms\"\n[links.core]",
    );
    let cell = run_study(&both);
    assert_eq!((cell["packets.air"], cell["packets.wire"]), (6.0, 0.0));
    let wire = run_study(&both.replace("used = true", "used = false"));
    assert_eq!((wire["packets.wire"], wire.get("packets.air")), (6.0, None));
    assert!(wire["delay.mean"] < cell["delay.mean"]);
}

#[test]
fn a_better_modulation_and_losses_show() {
    let poisson = r#"{ kind = "poisson", rate = "5 /s" }"#;
    let lossy = run_study(&cell_study(50, 1, "loss = \"5 %\"\nmodulation = \"64qam-3/4\"", poisson));
    assert!(lossy["drops.air"] > 0.03 && lossy["drops.air"] < 0.07, "{lossy:?}");
    let clean = run_study(&cell_study(50, 1, "modulation = \"64qam-3/4\"", poisson));
    assert_eq!((clean["drops.air"], clean["failures"]), (0.0, 0.0));
    assert!(lossy["delay.mean"] > clean["delay.mean"]);
}

#[test]
fn a_dialogue_and_background_traffic_cross_a_cell() {
    let m = run_study(
        r#"
title = "t"
question = "q"
[run]
duration = "20 s"
[hosts.client]
count = 5
[hosts.base]
[hosts.server]
[cells.air]
base_station = "base"
stations = "client"
entry = { done = true }
[links.core]
between = ["base", "server"]
rate = "10 Mb/s"
[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "tcp"
rounds = [{ request = "2000 B", answer = "4000 B" }]
arrivals = { kind = "poisson", rate = "2 /s" }
[[background]]
from = "server"
to = "client"
rate = "200 kb/s"
"#,
    );
    assert!(m["completed"] > 20.0 && m["failures"] == 0.0, "{m:?}");
    assert!(m["delay.mean"] > 0.03 && m["delay.mean"] < 0.3, "{m:?}");
}

#[test]
fn traffic_keys_follow_an_authentication_if_the_study_says_so() {
    let arrivals = r#"{ kind = "constant", interval = "200 s", start = "1 s", count = 1 }"#;
    let calm = "entry = { done = true }\nrequests = { backoff_start = 0 }";
    let tls = |keys: &str| {
        cell_study(1, 1, &format!("{calm}\n{keys}"), arrivals)
            .replace("method = \"eap-md5\"", "method = \"eap-tls\"")
    };
    let (without, with) = (run_study(&tls("")), run_study(&tls("keys = { used = true }")));
    // The closed form counts whole frames. In its last frame, maps and bursts of the downlink have the length of EAP's
    // success and challenge, apart from slots of a symbol or two.
    for lead in [1, 2] {
        let text = tls(&format!("keys = {{ used = true }}\nframe = {{ uplink_lead = {lead} }}"));
        let plan = Study::parse("t", "t", &text)
            .unwrap()
            .build_plan(StudyMode::Default, &PlanOverrides::default())
            .unwrap();
        let form =
            usher_theory::closed_form_value(ClosedFormName::KeysDelay, &plan.points[0].scenario).unwrap();
        let took = run_study(&text)["keys.delay"];
        assert!((took - form).abs() < 0.000_5, "{took} for {form}");
    }
    assert!(!without.contains_key("keys.delay") && !without.contains_key("keys.messages"));
    // SA-TEK-Challenge, -Request, -Response, Key-Request and Key-Reply, each in a PDU of its own with ten octets more.
    let octets = [46, 68, 75, 34, 108];
    assert_eq!((with["keys.messages"], with["keys.bytes"]), (5.0, f64::from(octets.iter().sum::<u32>())));
    assert_eq!(with["keys.failures"], 0.0);
    assert_eq!(with["packets.air"] - without["packets.air"], 5.0);
    assert_eq!(with["bytes.air"] - without["bytes.air"], with["keys.bytes"] + 50.0);
    // The authentication takes longer by exactly two more bandwidth requests, each received two frames later and
    // answered in the next.
    let longer = with["delay.mean"] - without["delay.mean"];
    assert!((longer - with["keys.delay"]).abs() < 0.0051, "{longer} and {}", with["keys.delay"]);
    assert_eq!(with["requests.air"] - without["requests.air"], 2.0);
}

#[test]
fn digests_and_keys_take_their_time() {
    let arrivals = r#"{ kind = "constant", interval = "200 s", start = "1 s", count = 1 }"#;
    let cell = "entry = { done = true }\nkeys = { used = true }";
    let free = cell_study(1, 1, cell, arrivals).replace("method = \"eap-md5\"", "method = \"eap-tls\"");
    let cpu = r#"cpu = { service = { "pkm.derive" = "7 ms", "pkm.digest" = "20 ms", "pkm.key" = "3 ms" } }"#;
    let charged = free.replace("[hosts.nas]", &format!("[hosts.nas]\n{cpu}"));
    let (free, charged) = (run_study(&free), run_study(&charged));
    // A digest for the challenge, one check and one digest for each of two requests, then two wrapped keys. The
    // challenge, with the derivation, waits for nothing: it leaves with EAP's success.
    let more = charged["keys.delay"] - free["keys.delay"];
    assert!((0.080..0.105).contains(&more), "{more}");
    assert!(charged["busy.nas"] > 0.0);
}

#[test]
fn lost_key_messages_are_retransmitted_or_end_the_exchange() {
    let arrivals = r#"{ kind = "poisson", rate = "1 /s" }"#;
    let lossy = |keys: &str| {
        let cell = format!("loss = \"10 %\"\nentry = {{ done = true }}\nkeys = {{ used = true{keys} }}");
        cell_study(20, 1, &cell, arrivals).replace("method = \"eap-md5\"", "method = \"eap-tls\"")
    };
    const ONCE: &str = ", challenge_tries = 1, request_tries = 1, key_tries = 1";
    let m = run_study(&lossy(""));
    assert!(m["keys.messages"] > 5.2 && m["keys.delay"] > 0.1, "{m:?}");
    let once = run_study(&lossy(ONCE));
    assert!(once["keys.failures"] > m["keys.failures"] + 0.1, "{once:?}");
    assert!(once["failures"] > m["failures"]);
    // Repeated admissions of one authentication until it has keys count as one authentication with keys.
    let again = lossy(ONCE).replace("duration = \"100 s\"", "duration = \"100 s\"\ndrain = \"900 s\"");
    let again = run_study(&format!("{again}retry = \"1 s\"\n"));
    assert_eq!((again["failures"], again["keys.failures"]), (0.0, 0.0), "{again:?}");
    assert_eq!(m, run_study(&lossy("")), "the same seed gives the same run");
}
