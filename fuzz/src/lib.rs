//! Fuzz targets: octets from outside, passed through every parser.
//!
//! A target accepts any octets and panics if an invariant does not hold. `tests/corpus.rs` runs each target over its
//! corpus in `corpus/NAME`. `tests/fuzzer.rs` continues from there with libFuzzer.

mod aaa_server;

use std::sync::{Arc, LazyLock};
use usher_crypto::tls::TlsHandshakeRecording;
use usher_dialogues::InvariantBreach;
use usher_observe::csv;
use usher_scenario::Study;

/// A named function that accepts any octets.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// The name, also of its corpus.
    pub name: &'static str,
    /// Panics on a finding.
    pub run: fn(&[u8]),
}

/// Returns the target of a name.
#[must_use]
pub fn find_target(name: &str) -> Option<FuzzTarget> {
    TARGETS.into_iter().find(|t| t.name == name)
}

const fn fuzz_target(name: &'static str, run: fn(&[u8])) -> FuzzTarget {
    FuzzTarget { name, run }
}

/// All targets, by name.
pub const TARGETS: [FuzzTarget; 37] = [
    fuzz_target("aaa_config", read_aaa_config),
    fuzz_target("aaa_control", read_control_lines),
    fuzz_target("aaa_server", aaa_server::fuzz_aaa_server),
    fuzz_target("csv", read_csv),
    fuzz_target("dialogues_aaa", |data| {
        expect_no_invariant_breach(usher_dialogues::aaa::run_aaa_input(data))
    }),
    fuzz_target("dialogues_ike", |data| {
        expect_no_invariant_breach(usher_dialogues::ike::run_ike_input(data))
    }),
    fuzz_target("dialogues_pppoe", |data| {
        expect_no_invariant_breach(usher_dialogues::pppoe::run_pppoe_input(data))
    }),
    fuzz_target("diameter_message", |data| usher_diameter::fuzz::fuzz_message(&DIAMETER_DICTIONARY, data)),
    fuzz_target("eap_packet", |data| assert!(usher_eap::fuzz::fuzz_packet(data), "octets in and out differ")),
    fuzz_target("eap_tunnel", |data| {
        assert!(usher_eap::fuzz::fuzz_tunnel(&RECORDING, data), "somebody was let in");
    }),
    fuzz_target("eapol", |data| assert!(usher_eap::fuzz::fuzz_eapol(data), "octets in and out differ")),
    fuzz_target("esp_ip", |data| {
        assert!(usher_esp::fuzz::fuzz_ip_packet(data), "a field of a packet lies outside it");
    }),
    fuzz_target("esp_plane", |data| {
        assert!(
            usher_esp::fuzz::fuzz_data_plane(data),
            "a payload lies outside its packet, or is kept without end"
        );
    }),
    fuzz_target("freeradius_files", |data| {
        let Ok(text) = std::str::from_utf8(data) else { return };
        assert!(usher_store::import::fuzz_import(text), "a complaint names no line, or a row is not whole");
    }),
    fuzz_target("ident_message", |data| {
        assert!(usher_ident::fuzz::check_message(data), "octets in and out differ");
    }),
    fuzz_target("ident_server", |data| {
        assert!(usher_ident::fuzz::check_server(data), "a reply is none, or too much is kept");
    }),
    fuzz_target("ike_endpoint", |data| {
        assert!(
            usher_ike::fuzz::check_endpoint(data),
            "an endpoint sends something that is no message, or keeps too much"
        );
    }),
    fuzz_target("ike_message", |data| {
        assert!(usher_ike::fuzz::check_message(data), "octets in and out differ")
    }),
    fuzz_target("mih_function", |data| {
        assert!(usher_mih::fuzz::fuzz_mih_function(data), "the function has lost count");
    }),
    fuzz_target("mih_message", |data| {
        assert!(usher_mih::fuzz::check_message(data), "octets in and out differ")
    }),
    fuzz_target("mip_packet", |data| {
        assert!(usher_mip::fuzz::check_mobility_round_trip(data), "octets in and out differ")
    }),
    fuzz_target("packetdrill_script", |data| {
        usher_packetdrill::parse_any(data);
        usher_packetdrill::judge_script(&String::from_utf8_lossy(data));
    }),
    fuzz_target("pkm_keying", |data| {
        assert!(usher_pkm::fuzz::fuzz_keying(data), "no end, or keys that differ")
    }),
    fuzz_target("pkm_message", |data| {
        assert!(usher_pkm::fuzz::check_message(data), "octets in and out differ")
    }),
    fuzz_target("ppp_endpoints", |data| {
        assert!(usher_ppp::fuzz::fuzz_pppoe_endpoints(data), "somebody is let in, or too much is kept");
    }),
    fuzz_target("ppp_message", |data| {
        assert!(usher_ppp::fuzz::check_message(data), "octets in and out differ")
    }),
    fuzz_target("ppp_session", |data| {
        assert!(
            usher_ppp::fuzz::fuzz_pppoe_session(data),
            "a network comes up before its host is let in, or too much is kept"
        );
    }),
    fuzz_target("pppoe_foreign_file", |data| {
        assert!(usher_concentrator::fuzz::check_foreign_config_import(data), "a complaint names no line");
    }),
    fuzz_target("pppoe_forward", |data| {
        assert!(usher_pppoe::fuzz::check_forwarding(data), "a foreign packet passes, or is not counted");
    }),
    fuzz_target("pppoe_session_log", |data| {
        assert!(
            usher_concentrator::fuzz::check_session_log_roundtrip(data),
            "a record is another once written"
        );
    }),
    fuzz_target("radius_dictionary", |data| {
        assert!(usher_radius::fuzz::fuzz_dictionary(data), "an error names no line of the text");
    }),
    fuzz_target("radius_packet", |data| {
        assert!(usher_radius::fuzz::fuzz_packet(&RADIUS_DICTIONARY, data), "octets in and out differ");
    }),
    fuzz_target("radius_radsec", |data| {
        assert!(usher_radius::fuzz::fuzz_radsec(data), "the pieces give other packets than the whole");
    }),
    fuzz_target("sctp_association", usher_sim::sctp::fuzz_association),
    fuzz_target("sctp_packet", usher_sim::sctp::round_trip),
    fuzz_target("study_file", read_study),
    fuzz_target("tcp_segment", usher_sim::tcp::round_trip),
];

static DIAMETER_DICTIONARY: LazyLock<usher_diameter::dictionary::DiameterDictionary> =
    LazyLock::new(usher_diameter::dictionary::DiameterDictionary::builtin);
static RADIUS_DICTIONARY: LazyLock<usher_radius::dictionary::RadiusDictionary> =
    LazyLock::new(usher_radius::dictionary::RadiusDictionary::builtin);
static RECORDING: LazyLock<Arc<TlsHandshakeRecording>> =
    LazyLock::new(|| usher_eap::fuzz::fuzz_recording().expect("a handshake in memory"));

fn expect_no_invariant_breach<T>(ran: Result<T, InvariantBreach>) {
    if let Err(breach) = ran {
        panic!("{breach}");
    }
}

/// Parses a configuration file. Faults must point into the text.
fn read_aaa_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(faults) =
        usher_aaa_config::parse("aaa.toml", text, None, &usher_config::EmptyConfigEnvironment)
    {
        let lines = text.matches('\n').count() + 1;
        assert!(!faults.faults.is_empty() && faults.faults.iter().all(|f| f.line <= lines), "{faults}");
    }
}

/// Parses a study file. Faults must point into the text.
fn read_study(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(faults) = Study::parse("study", "study.toml", text) {
        let lines = text.matches('\n').count() + 1;
        assert!(!faults.faults.is_empty() && faults.faults.iter().all(|f| f.line <= lines), "{faults}");
    }
}

/// Compiles the attributes in requests to the control socket, each `ATTRIBUTE = VALUE`. serde reads the requests.
fn read_control_lines(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for line in text.lines() {
        let Ok(request) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        for attribute in request["attributes"].as_array().into_iter().flatten().filter_map(|a| a.as_str()) {
            let rows = usher_aaa_config::parse_row(attribute).into_iter().collect();
            let user = usher_aaa::store::UserRows { reply: rows, ..Default::default() };
            // Rows may be invalid.
            let _ = usher_aaa::User::compile(&user, &RADIUS_DICTIONARY);
        }
    }
}

/// Reads rows from a CSV file, writes them and reads them again.
fn read_csv(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(rows) = csv::parse_csv(text) else { return };
    // NaN is not equal to itself, so texts are compared. An axis cannot have the name of a fixed column.
    let Ok(written) = csv::csv_text(&rows) else { return };
    let again = csv::parse_csv(&written).expect("what was written can be read");
    assert_eq!(csv::csv_text(&again).expect("what was read can be written"), written);
}
