//! The claims of the PPPoE document, from synthetic rows.

use super::*;

/// One value for each of three rounds.
fn round_rows(study: &str, at: &[(&str, &str)], metric: &str, values: [f64; 3]) -> Vec<ResultRow> {
    let row = |(i, value): (usize, f64)| ResultRow {
        study: study.into(),
        point: GridPoint::new(at.iter().copied()),
        replication: i as u32,
        metric: metric.into(),
        value,
    };
    values.into_iter().enumerate().map(row).collect()
}

const PROCESSORS: [&str; 3] = ["100 %", "55 %", "23 %"];

/// Rates and processor shares of four clients by mode: user mode with these shares, and eBPF mode with each kind of
/// IDENT.
fn rate_rows(user_share: f64, user_usage: f64, masquerade: f64) -> Vec<ResultRow> {
    let mut rows = Vec::new();
    let mut add =
        |mode: &str, ident: &str, clients: &str, processor: &str, rate: f64, usage: f64, switches: f64| {
            let at = [("mode", mode), ("ident", ident), ("clients", clients), ("processor", processor)];
            for (study, metric, value_of) in [
                ("pppoe-rate", "rate.max_kB_s", rate),
                ("pppoe-rate", "rate.by_clock_kB_s", rate),
                ("pppoe-rate", "samples", 16.0),
                ("pppoe-rate", "context_switches_per_s", switches),
                ("pppoe-rate", "order.right", 1.0),
                ("pppoe-rate", "done_s.A", 8.0),
                ("pppoe-rate", "done_s.B", 11.0),
                ("pppoe-rate", "done_s.C", 14.0),
                ("pppoe-rate", "done_s.D", 17.0),
                ("pppoe-cpu", "cpu.usage", usage),
                ("pppoe-cpu", "cpu.threads", usage),
            ] {
                let wobble = value_of * 1e-4;
                rows.extend(round_rows(study, &at, metric, [value_of - wobble, value_of, value_of + wobble]));
            }
        };
    for processor in PROCESSORS {
        add("router", "off", "4", processor, 12_200.0, 0.1, 1000.0);
        add("user", "off", "4", processor, 12_200.0 * user_share, user_usage, 9000.0);
        add("ebpf", "off", "4", processor, 12_150.0, 0.15, 1200.0);
    }
    add("ebpf", "off", "1", "100 %", 12_150.0, 0.12, 1200.0);
    add("ebpf", "nat", "4", "100 %", 12_150.0, 0.16, 1200.0);
    add("ebpf", "masquerade", "4", "100 %", 12_149.0, masquerade, 1200.0);
    rows
}

fn ident_rows(right: f64, active_by_masquerade: f64) -> Vec<ResultRow> {
    let mut rows = Vec::new();
    for mode in ["user", "ebpf"] {
        for ident in ["nat", "masquerade"] {
            let active = if ident == "nat" { 1.0 } else { active_by_masquerade };
            for (metric, of) in [
                ("asked", 4.0),
                ("right", right),
                ("lied", 4.0 - right),
                ("active_ftp", active),
                ("addresses_per_client", 1.0),
            ] {
                rows.extend(round_rows("pppoe-ident", &[("mode", mode), ("ident", ident)], metric, [of; 3]));
            }
        }
    }
    rows
}

#[test]
fn rates_as_published_and_otherwise() {
    let as_published = rate_rows(0.8, 0.99, 0.2);
    assert_verdict(&as_published, "pppoe.rate.line", Reproduced, &["ebpf 12150 at 23 %", "12500"]);
    assert_verdict(&as_published, "pppoe.rate.kernel", Reproduced, &["99.6 %"]);
    assert_verdict(&as_published, "pppoe.rate.user", Reproduced, &["80 %"]);
    assert_verdict(&as_published, "pppoe.rate.metric", Reproduced, &["16", "90 %"]);
    assert_verdict(&as_published, "pppoe.rate.ident", Reproduced, &["with nat", "with masquerade"]);
    assert_verdict(&as_published, "pppoe.timeline", Reproduced, &["9000"]);
    let faster = rate_rows(0.99, 0.3, 0.2);
    assert_verdict(
        &faster,
        "pppoe.rate.user",
        Partly,
        &["24 % above the published 80 %", "differs where its processor is not full"],
    );
    let mut slow = as_published;
    slow.iter_mut().filter(|row| &*row.metric == "rate.by_clock_kB_s").for_each(|row| row.value *= 0.5);
    assert_verdict(&slow, "pppoe.rate.line", Differs, &["11000"]);
}

#[test]
fn usages_as_published_and_otherwise() {
    assert_verdict(&rate_rows(0.8, 0.99, 0.2), "pppoe.cpu.kernel", Reproduced, &["15 %, 15 %, 15 %"]);
    assert_verdict(
        &rate_rows(0.99, 0.3, 0.2),
        "pppoe.cpu.kernel",
        Partly,
        &["user mode about 100 %: differs"],
    );
    assert_verdict(&rate_rows(0.8, 0.99, 0.2), "pppoe.cpu.ident", Reproduced, &["16 %", "20 %"]);
    assert_verdict(&rate_rows(0.8, 0.99, 0.15), "pppoe.cpu.ident", Differs, &[]);
}

#[test]
fn answers_by_ident_are_held_against_both_methods() {
    let right = ident_rows(4.0, 0.0);
    assert_verdict(&right, "ident.masq", Reproduced, &["4 of 4 in user mode", "Active FTP fails"]);
    // It takes one address where the paper took two.
    assert_verdict(&right, "ident.nat", Partly, &["It differs in addresses: ours takes 1"]);
    assert_verdict(&right, "ident.applications", Reproduced, &["works by NAT and fails by masquerade"]);
    let lied = ident_rows(0.0, 1.0);
    assert_verdict(&lied, "ident.masq", Differs, &["0 of 4", "works without a helper"]);
    assert_verdict(&lied, "ident.applications", Partly, &[]);
}

#[test]
fn what_is_simulated_is_read_from_studies() {
    let many = |clients: &str| {
        round_rows("pppoe-many", &[("clients", clients), ("plane", "user")], "delay.p50.page", [0.1; 3])
    };
    assert_verdict(
        &[many("500"), many("10000")].concat(),
        "pppoe.future",
        Reproduced,
        &["500 to 10000 clients"],
    );
    let wlan = |failures: f64| {
        round_rows(
            "pppoe-wlan",
            &[("protection", "PPPoE"), ("loss", "0 %")],
            "failures.session",
            [failures; 3],
        )
    };
    assert_verdict(
        &wlan(0.0),
        "pppoe.overhead",
        Reproduced,
        &["PPPoE adds 8 octets", "PPTP 33 to 40", "TLS 62 to 93"],
    );
    assert_verdict(&wlan(0.5), "pppoe.overhead", Partly, &["50.00 %"]);
    let some = round_rows(
        "pppoe-rate",
        &[("mode", "user"), ("ident", "off"), ("clients", "1"), ("processor", "100 %")],
        "samples",
        [4.0; 3],
    );
    assert_verdict(&some, "pppoe.rate.kernel", NotRun, &["run all of benches/peers/pppoe-rate"]);
}
