#![cfg(feature = "tls")]

use super::*;
use crate::tests::LOCAL;
use usher_config::EmptyConfigEnvironment;
use usher_core::WallTime;

fn read_config(text: &str) -> Result<LoadedConcentratorConfig, ConfigErrors> {
    parse("etc/pppoe.toml", text, &EmptyConfigEnvironment, &SharedWallClock::from_time(WallTime::UNIX_EPOCH))
}

fn fault_messages(text: &str) -> Vec<String> {
    let faults = read_config(text).expect_err(text).faults;
    faults.iter().map(|f| format!("{}:{}: {}", f.line, f.column, f.message)).collect()
}

#[test]
fn an_empty_file_says_what_is_missing() {
    let all = fault_messages("");
    assert!(all.iter().any(|fault| fault.contains("\"interfaces\" is missing")), "{all:?}");
    assert!(all.iter().any(|fault| fault.contains("hosts would get no address")), "{all:?}");
}

#[test]
fn a_whole_file_is_read() {
    let loaded = read_config(LOCAL).unwrap();
    let config = &loaded.config;
    assert_eq!(
        (config.ports[0].as_str(), config.ppp.name.as_str(), config.ppp.ports.len()),
        ("eth1", "campus", 1)
    );
    assert_eq!(
        (config.addressing.ipv6, config.logged, config.subscribers.rates.as_ref().map(Vec::len)),
        (true, true, Some(1))
    );
    assert_eq!(config.subscribers.users.passwords.len(), 2);
    assert_eq!(loaded.file.tracking.unwrap().keep_days, 90);
}

#[test]
fn every_fault_has_its_place() {
    let replaced = |what: &str, by: &str| fault_messages(&LOCAL.replace(what, by)).join("\n");
    for (what, by, says) in [
        (
            "pools = [\"students\"]",
            "pools = [\"student\"]",
            "there is no [[pool]] \"student\"; did you mean \"students\"?",
        ),
        ("prefix_pool = \"links\"", "prefix_pool = \"students\"", "has no prefixes"),
        ("pools = [\"students\"]", "pools = [\"links\"]", "has no IPv4 addresses"),
        ("\"eth1\"", "\"eth1\", \"eth1\"", "\"eth1\" is listed twice"),
        ("\"eth1\"", "\"a long name of an interface\"", "is not an interface name"),
        ("[[rate]]", "[[rate]]\nname = \"default\"\n[[rate]]", "two [[rate]] have the name \"default\""),
        ("10.0.0.0/28", "10.0.0.0/33", "is not a range"),
        (
            "[tracking]",
            "[tracking.ports]\ninside = \"10.0.0.0/8\"\noutside = [\"192.0.2.1\"]",
            "add addresses outside",
        ),
        ("[tracking]", "[data]\nmode = \"fast\"", "\"fast\" is not known here"),
        ("[tracking]", "[data]\nnat = \"blocks\"", "needs [tracking.ports]"),
        (
            "[tracking]",
            "[tracking.ports]\ninside = \"10.0.0.0/29\"\noutside = [\"192.0.2.1\"]\n[data]\nnat = \"blocks\"",
            "of the [[pool]] \"students\" is not within \"inside\"",
        ),
        ("[tracking]", "[ident]\nothers = \"token\"", "tokens need a key"),
        (
            "[tracking]",
            "[aaa]\nnas_identifier = \"a\"\n[[aaa.radius]]\naddress = \"192.0.2.9:1812\"\nsecret = \"sixteen octets!!\"",
            "keep one of both",
        ),
        ("address = \"10.0.0.1\"\n", "", "\"address\" is missing"),
    ] {
        let fault = replaced(what, by);
        assert!(fault.contains(says), "{by}: {fault}");
    }
    let ports =
        "[tracking.ports]\ninside = \"10.0.0.0/28\"\noutside = [\"192.0.2.1\"]\n[data]\nnat = \"blocks\"";
    assert!(read_config(&LOCAL.replace("[tracking]", ports)).is_ok());
}

#[test]
fn the_schema_is_what_the_types_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pppoe.schema.json");
    if std::env::var_os("USHER_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, json_schema()).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap_or_default(),
        json_schema(),
        "docs/pppoe.schema.json is not what the types say; run this test with USHER_WRITE_SCHEMA=1"
    );
}
